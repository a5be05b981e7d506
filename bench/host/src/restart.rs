//! Suite `restart`: what a program sees of a domain that is lost and made anew while its device is in use
//! (bench/disk/restart.c). The domain faults 100 ms after each start, so it is killed again and again, with requests
//! under way.
//!
//! A pause is a time in which nothing ended for the program. A kill is one pause at least, and pauses of other causes
//! are not told from them: as many of the longest are taken as there were kills, so each figure here is one that the
//! kills alone do not exceed. How many there were the machine says (`--stats`).
//!
//! A program that finds a wrong block, or an error, ends the suite: there is no figure then.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::failure::Failure;
use super::filter::RowFilter;
use super::guest::{Guest, Limits, Line};
use super::options::BenchOptions;
use super::result::{Cell, Column, Figure, Measured, Row, Series, Table};
use super::system::{MEMORY_MIB, Machines, aegis_line, shown};
use super::{compile, progress};

/// From a domain's start to its fault.
const FAULT_MS: u32 = 100;
/// How long a program runs: 1,000 kills and some time for the pauses. With `--quick` a tenth.
const SECONDS: u64 = 150;
/// Bytes of the disk: more than what the program writes.
const DISK_BYTES: u64 = 16 << 20;
const DISK_FILE: &str = "bench-restart.raw";
/// The host, as the machine sees it.
const HOST: &str = "10.0.2.2";
const TITLE: &str = "Aegis, domain";
const UNITS: [&str; 3] = ["ns of a pause, median", "ns of a pause, 99 %", "ns of a pause, longest"];

/// What is lost.
#[derive(Clone, Copy)]
struct Device {
    name: &'static str,
    driver: &'static str,
    fault: &'static str,
    /// What counts its starts.
    counter: &'static str,
    /// The disk's name; none: a card.
    disk: Option<&'static str>,
}

const DISK_FAULT: &str = "--fault-disk-domain";
const DISK_STARTS: &str = "disk_domain_starts";

// QEMU's 82540EM takes no frame for a second after each start, so there is nothing to be seen of it.
static DEVICES: [Device; 3] = [
    Device {
        name: "disk_virtio",
        driver: "disk=domain:virtio",
        fault: DISK_FAULT,
        counter: DISK_STARTS,
        disk: Some("/dev/vda"),
    },
    Device {
        name: "disk_ide",
        driver: "disk=domain:ide",
        fault: DISK_FAULT,
        counter: DISK_STARTS,
        disk: Some("/dev/sda"),
    },
    Device {
        name: "net_virtio",
        driver: "net=domain:virtio",
        fault: "--fault-net-domain",
        counter: "net_domain_starts",
        disk: None,
    },
];

/// A server on the host's loopback that gives every datagram back, until it is dropped.
struct Echo {
    port: u16,
    is_over: Arc<AtomicBool>,
}

impl Echo {
    fn start() -> std::io::Result<Self> {
        let socket = UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let (port, is_over) = (socket.local_addr()?.port(), Arc::new(AtomicBool::new(false)));
        let flag = is_over.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 2048];
            while !flag.load(Ordering::Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut bytes) {
                    // Datagrams may be lost.
                    let _ = socket.send_to(&bytes[..length], from);
                }
            }
        });
        Ok(Self { port, is_over })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// What a run came to.
struct Pauses {
    /// Longest first, as many as there were kills.
    ns: Vec<f64>,
    operation_count: u64,
}

impl Pauses {
    /// That which a share of them does not exceed.
    fn quantile(&self, share: f64) -> Option<f64> {
        let below = (self.ns.len() as f64 * (1.0 - share)) as usize;
        self.ns.get(below.min(self.ns.len().saturating_sub(1))).copied()
    }
}

/// Measures the devices that were asked for; `None` if no row is wanted.
pub(super) fn run(
    options: &BenchOptions,
    machines: &Machines,
    filter: &RowFilter,
) -> Result<Option<Measured>, Failure> {
    let wanted: Vec<&Device> = DEVICES.iter().filter(|device| filter.finds(device.name)).collect();
    if wanted.is_empty() || !machines.has_aegis() {
        return Ok(None);
    }
    let program = compile::restart(&machines.cache)?;
    let disk = machines.cache.join(DISK_FILE);
    let made = std::fs::File::create(&disk).and_then(|file| file.set_len(DISK_BYTES));
    made.map_err(|error| Failure::file("writing", disk.clone(), error))?;
    let echo = Echo::start().map_err(|error| Failure::Host("opening a socket", error))?;
    let seconds = if options.quick { SECONDS / 10 } else { SECONDS };
    let line = |device: &Device, port: &str, seconds: &str| {
        let disk_path = disk.display().to_string().replace(',', ",,");
        let fault = FAULT_MS.to_string();
        let mut words = vec!["-M", "pc", "--stats=json", "--driver", device.driver, device.fault, &fault];
        match device.disk {
            Some(_) => words.extend(["--disk", &disk_path]),
            None => words.push("--host-access"),
        }
        let what = match device.disk {
            Some(disk) => vec!["disk", disk, seconds],
            None => vec!["net", HOST, port, seconds],
        };
        let program = std::iter::once(program.clone().into()).chain(what.into_iter().map(Into::into)).collect();
        aegis_line(&machines.tool, MEMORY_MIB, &words, program)
    };
    let mut rows: [Vec<Row>; UNITS.len()] = Default::default();
    let mut measured = Measured::default();
    let mut curves = Vec::new();
    for device in &wanted {
        progress::say(&format!("restart: {}, {seconds} s", device.name));
        let (port, time) = (echo.port.to_string(), seconds.to_string());
        let pauses = measure(&line(device, &port, &time), device, seconds)?;
        for (share, rows) in [0.5, 0.99, 1.0].into_iter().zip(&mut rows) {
            let cell = Cell::of(pauses.quantile(share));
            rows.push(Row { name: device.name.into(), cells: vec![cell], beside: None });
        }
        measured.notes.push(format!(
            "{}: {} kills, {} operations, none of them wrong",
            device.name,
            pauses.ns.len(),
            pauses.operation_count
        ));
        curves.push(curve(device.name, &pauses));
    }
    measured.figures.push(Figure {
        name: "restart_pauses".into(),
        title: "pauses that a program sees when its driver's domain is lost: the share of kills that are over".into(),
        axes: ["ms".into(), "% of kills".into()],
        is_doubling: false,
        series: curves,
    });
    let command = shown(&line(wanted[0], "PORT", "SECONDS"));
    measured.tables = UNITS.iter().zip(rows).map(|(unit, rows)| table(unit, rows, &command)).collect();
    Ok(Some(measured))
}

fn table(unit: &str, rows: Vec<Row>, command: &str) -> Table {
    let column = Column { key: "domain".into(), title: TITLE.into(), command: command.into() };
    Table { suite: "restart".into(), unit: unit.into(), compared: None, columns: vec![column], rows }
}

/// The share of pauses that are not longer, at most at a hundred places.
fn curve(name: &str, pauses: &Pauses) -> Series {
    let count = pauses.ns.len();
    let point = |(at, ns): (usize, &f64)| (ns / 1e6, (at + 1) as f64 * 100.0 / count as f64);
    let step = (count / 100).max(1);
    let points = pauses.ns.iter().rev().enumerate().filter(|(at, _)| at % step == 0 || at + 1 == count).map(point);
    Series { title: name.into(), is_line: true, points: points.collect() }
}

fn measure(line: &Line, device: &Device, seconds: u64) -> Result<Pauses, Failure> {
    // The program speaks when it is done; a busy host may need some time more.
    let limit = Duration::from_secs(3 * seconds + 180);
    let guest = Guest::start(line, Limits { silence: limit, total: limit })?;
    let (lines, errors) = guest.lines();
    let broken = |why: String| Failure::Broken(device.name, why);
    let number = |line: &str, key: &str| line.strip_prefix(key).and_then(|rest| rest.parse::<u64>().ok());
    let operation_count = lines.iter().find_map(|line| number(line, "operations "));
    let last_error = || errors.lines().rev().find(|line| !line.contains("started anew")).unwrap_or_default().to_owned();
    let operation_count = operation_count.ok_or_else(|| broken(last_error()))?;
    let start_count = counted(&errors, device.counter).ok_or_else(|| broken("it does not say its starts".into()))?;
    // The first start comes after no kill.
    let kill_count = start_count.saturating_sub(1) as usize;
    let gaps = lines.iter().filter_map(|line| number(line, "gap "));
    let ns: Vec<f64> = gaps.map(|ns| ns as f64).take(kill_count).collect();
    if ns.len() < kill_count.max(1) {
        return Err(broken(format!("{} pauses of {kill_count} kills were seen", ns.len())));
    }
    Ok(Pauses { ns, operation_count })
}

/// A counter of `--stats=json`.
fn counted(errors: &str, key: &str) -> Option<u64> {
    let (_, rest) = errors.split_once(&format!("\"{key}\":"))?;
    let digits = rest.split(|character: char| !character.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Pauses, counted, curve};

    #[test]
    fn quantiles_are_of_the_longest() {
        let pauses = Pauses { ns: (1..=1000).rev().map(f64::from).collect(), operation_count: 0 };
        assert_eq!([0.5, 0.99, 1.0].map(|share| pauses.quantile(share)), [Some(500.0), Some(990.0), Some(1000.0)]);
        let points = curve("x", &pauses).points;
        assert_eq!((points.first(), points.last()), (Some(&(1e-6, 0.1)), Some(&(1e-3, 100.0))));
        assert_eq!(Pauses { ns: Vec::new(), operation_count: 0 }.quantile(0.5), None);
    }

    #[test]
    fn counters_are_found_in_what_the_tool_says() {
        let errors = "aegis: a line\n{\"status\":0,\"guest\":{\"disk_domain_starts\":1031,\"x\":2}}\n";
        assert_eq!(counted(errors, "disk_domain_starts"), Some(1031));
        assert_eq!(counted(errors, "net_domain_starts"), None);
    }
}
