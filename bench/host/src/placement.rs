//! Suite `placement`: the same driver at work in different places, beside Linux's native one, as the paper on drivers
//! in domains has it: a server in the machine echoes datagrams (bench/net/server.c), the load generator on the host
//! (`load`) offers twelve loads, up to more than the best of the first series.
//!
//! For each load: answers in a second, processor time of the guest, round trips at the median and the 99th percentile.
//! The processor time is what the thread of the machine's processor did not sleep, which is a counter of idleness that
//! runs in no guest and that none of them can be wrong about (`net::rule`). With `--icount`: the guest's instructions
//! for each echo, eight under way, counted by the plugin of `trace`.
//!
//! [`SERIES`] says what there is to be compared; a placement is a line there.

mod load;

use std::time::Duration;

use aegis_link::drivers::Model;

use super::failure::Failure;
use super::filter::RowFilter;
use super::guest::{Event, Guest, Limits, Line};
use super::linux::{Flavour, Kernel};
use super::net::client::{Client, Kind, more_operations};
use super::net::rule::Used;
use super::net::{PORTS, free_ports};
use super::options::{BenchOptions, Nic};
use super::result::{Cell, Column, Figure, Measured, Row, Series as Curve, Table};
use super::system::{LinuxLine, MEMORY_MIB, Machines, Shape, System, aegis_line, shown};
use super::trace::plugin::{Counts, Plugin};
use super::trace::starter::{Starter, read_file};
use super::{card, compile, progress};
use load::{Outcome, busiest, offer, wait_for};

/// Until the server speaks.
const LIMITS: Limits = Limits { silence: Duration::from_secs(120), total: Duration::from_secs(1800) };
/// From there until it is reached: Linux has a link on an 82540EM after some seconds.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Bytes of a datagram.
const SIZES: [usize; 2] = [64, 1400];
/// Loads, in percent of the best throughput of the first series.
const LOADS: [u32; 12] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120];
/// Datagrams under way when the best throughput is looked for.
const UNDER_WAY: u32 = 8;
/// The same for instructions.
const COUNTED_UNDER_WAY: u32 = 8;
const COUNTED: u32 = 2000;
/// Port of the server.
const SERVER_PORT: u16 = PORTS[0].0;

/// What is compared.
struct Series {
    key: &'static str,
    title: &'static str,
    /// Where the driver is; `None`: Linux's own.
    placement: Option<&'static str>,
}

static SERIES: [Series; 4] = [
    Series { key: "linux", title: "Linux native", placement: None },
    Series { key: "kernel", title: "Aegis, kernel", placement: Some("kernel") },
    Series { key: "domain", title: "Aegis, domain", placement: Some("domain") },
    Series { key: "library", title: "Aegis, library", placement: Some("library") },
];

/// What is measured at a load, in the order of the tables.
const UNITS: [&str; 4] =
    ["ns an answer", "ns of the processor an answer", "ns there and back, median", "ns there and back, 99 %"];

/// One load on one series.
#[derive(Clone, Copy, Debug)]
struct Point {
    offered: f64,
    throughput: f64,
    /// Share of the time that the processor was not idle.
    busy: f64,
    median_ns: f64,
    percentile_99_ns: f64,
}

impl Point {
    /// In the order of [`UNITS`].
    fn values(&self) -> [f64; UNITS.len()] {
        [1e9 / self.throughput, self.busy * 1e9 / self.throughput, self.median_ns, self.percentile_99_ns]
    }
}

impl Nic {
    fn model(self) -> Model {
        match self {
            Self::Virtio => Model::Virtio,
            Self::E1000 => Model::E1000,
            Self::E1000e => Model::E1000e,
        }
    }
}

/// Measures the cards that were asked for; `None` if no row is wanted.
pub(super) fn run(
    options: &BenchOptions,
    machines: &Machines,
    filter: &RowFilter,
) -> Result<Option<Measured>, Failure> {
    let server = compile::server(&machines.cache)?;
    let initramfs = server.with_extension("placement.cpio");
    let linux = match &machines.linux {
        // The one for virtual machines has no drivers of Intel's cards.
        Some(_) => {
            let mut kernel = Kernel::get(&machines.cache, Flavour::Generic)?;
            card::write_initramfs(&mut kernel, &machines.cache, &server, &initramfs)?;
            Some(kernel)
        }
        None => None,
    };
    let is_wanted = |series: &&Series| match series.placement {
        None => linux.is_some(),
        Some(_) => machines.has_aegis(),
    };
    let series: Vec<&Series> = SERIES.iter().filter(is_wanted).collect();
    let plugin = if options.icount { Some(Plugin::prepare(machines, &read_file(&server)?, 0)?) } else { None };
    let suite = Placement { options, machines, server, initramfs, linux, series, plugin };
    let mut measured = Measured::default();
    let mut rows: Vec<Vec<Row>> = vec![Vec::new(); if options.icount { 1 } else { UNITS.len() }];
    for nic in &options.nic {
        for bytes in SIZES {
            let name = format!("{}_{bytes}B", nic.model().name());
            if options.icount {
                if filter.finds(&name) {
                    rows[0].push(suite.count(*nic, bytes, name)?);
                }
                continue;
            }
            let loads: Vec<u32> = LOADS.into_iter().filter(|load| filter.finds(&format!("{name}_{load}"))).collect();
            if !loads.is_empty() {
                suite.measure(*nic, bytes, &loads, &mut rows, &mut measured)?;
            }
        }
    }
    let units = if options.icount { &["instructions"][..] } else { &UNITS };
    measured.tables = units.iter().zip(rows).map(|(unit, rows)| suite.table(unit, rows)).collect();
    measured.tables.retain(|table| !table.rows.is_empty());
    Ok((!measured.tables.is_empty()).then_some(measured))
}

struct Placement<'a> {
    options: &'a BenchOptions,
    machines: &'a Machines,
    server: std::path::PathBuf,
    initramfs: std::path::PathBuf,
    linux: Option<Kernel>,
    /// Those that take part.
    series: Vec<&'static Series>,
    plugin: Option<Plugin>,
}

/// A machine whose server answers.
struct Machine {
    guest: Guest,
    port: u16,
}

impl Machine {
    fn client(&self) -> Client {
        Client([self.port; PORTS.len()])
    }
}

impl Placement<'_> {
    fn line(&self, series: &Series, nic: Nic, port: &str) -> Line {
        match (series.placement, &self.linux) {
            (None, Some(kernel)) => {
                let mut line = LinuxLine {
                    qemu: &self.machines.qemu,
                    kernel: &kernel.image,
                    initramfs: &self.initramfs,
                    memory_mib: MEMORY_MIB,
                    append: format!("{} {}", System::LinuxTuned.kernel_words(), card::APPEND),
                    firmware: None,
                    shape: Shape { icount_shift: None, cpu_count: 1 },
                }
                .build();
                let network = format!("user,hostfwd=udp:127.0.0.1:{port}-:{SERVER_PORT}");
                card::add(&mut line, nic.model(), &network);
                line
            }
            (placement, _) => {
                let driver = format!("net={}:{}", placement.unwrap_or("library"), nic.model().name());
                let published = format!("{port}:{SERVER_PORT}/udp");
                let options = ["-M", "pc", "-q", "--host-access", "--driver", &driver, "-p", &published];
                aegis_line(&self.machines.tool, MEMORY_MIB, &options, vec![self.server.clone().into()])
            }
        }
    }

    fn start(&self, series: &Series, nic: Nic, output: Option<&std::path::Path>) -> Result<Machine, Failure> {
        let port = free_ports().map_err(|error| Failure::Host("finding free ports", error))?[0];
        let mut line = self.line(series, nic, &port.to_string());
        if let (Some(output), Some(plugin)) = (output, &self.plugin) {
            let starter = if series.placement.is_some() { Starter::Tool } else { Starter::Qemu };
            plugin.add_to(&mut line, starter, output);
        }
        let mut guest = Guest::start(&line, LIMITS)?;
        loop {
            match guest.next() {
                Event::Line(line, _) if line == "ready" => break,
                Event::Line(..) => {}
                Event::End => return Err(Failure::NotUp(series.title, guest.finish())),
                Event::Limit(why) => return Err(Failure::NotUp(series.title, why.into())),
            }
        }
        wait_for(port, ANSWER_MAX).map_err(|why| Failure::NotUp(series.title, why.to_string()))?;
        Ok(Machine { guest, port })
    }

    /// All loads on all series, as rows and figures.
    fn measure(
        &self,
        nic: Nic,
        bytes: usize,
        loads: &[u32],
        rows: &mut [Vec<Row>],
        measured: &mut Measured,
    ) -> Result<(), Failure> {
        let name = format!("{}_{bytes}B", nic.model().name());
        let mut peak = None;
        let mut points: Vec<Vec<Point>> = Vec::new();
        let mut cells = vec![vec![vec![Cell::NotAsked; self.series.len()]; loads.len()]; UNITS.len()];
        for (column, series) in self.series.iter().enumerate() {
            let mut curve: Vec<Point> = Vec::new();
            for pair in 1..=self.options.pairs {
                progress::say(&format!("placement: {name}, {}, run {pair} of {}", series.title, self.options.pairs));
                let machine = self.start(series, nic, None)?;
                let found = self.best(&machine, bytes);
                let best = *peak.get_or_insert(found.map_err(|why| Failure::NotUp(series.title, why))?);
                for (row, load) in loads.iter().enumerate() {
                    let outcome = self.load(&machine, bytes, best * f64::from(*load) / 100.0);
                    let values: [Result<f64, String>; UNITS.len()] = match &outcome {
                        Ok(point) => point.values().map(Ok),
                        Err(why) => [(); UNITS.len()].map(|()| Err(why.clone())),
                    };
                    for (unit, value) in values.into_iter().enumerate() {
                        let cell = value.map_or_else(Cell::NotAvailable, |value| Cell::Values(vec![value]));
                        cells[unit][row][column].merge(cell);
                    }
                    // Curves are of the first run.
                    curve.extend(outcome.ok().filter(|_| pair == 1));
                }
            }
            points.push(curve);
        }
        for ((unit, of_unit), into) in cells.into_iter().enumerate().zip(rows) {
            debug_assert!(unit < UNITS.len());
            into.extend(loads.iter().zip(of_unit).map(|(load, cells)| Row {
                name: format!("{name}_{load}"),
                cells,
                beside: None,
            }));
        }
        measured.figures.extend(self.figures(&name, &points));
        measured.notes.extend(peak.map(|peak| format!("{name}: 100 is {peak:.0} datagrams a second")));
        Ok(())
    }

    /// The best throughput, with many under way at any time.
    fn best(&self, machine: &Machine, bytes: usize) -> Result<f64, String> {
        let duration = Duration::from_millis(if self.options.quick { 300 } else { 2000 });
        busiest(machine.port, bytes, UNDER_WAY, duration).map_err(|error| error.to_string())
    }

    fn load(&self, machine: &Machine, bytes: usize, rate: f64) -> Result<Point, String> {
        let duration = Duration::from_millis(if self.options.quick { 300 } else { 3000 });
        let process = machine.guest.process_id();
        let before = Used::now(process);
        let mut after = None;
        let outcome = offer(machine.port, bytes, rate, duration, || after = Used::now(process));
        let outcome: Outcome = outcome.map_err(|error| error.to_string())?;
        let (before, after) = before.zip(after).ok_or("this host does not say how busy it is")?;
        let missing = || "no answer came".to_owned();
        Ok(Point {
            offered: outcome.asked_count as f64 / outcome.seconds,
            throughput: outcome.throughput(),
            busy: 1.0 - after.since(before).guest_idle,
            median_ns: outcome.percentile(0.5).ok_or_else(missing)?,
            percentile_99_ns: outcome.percentile(0.99).ok_or_else(missing)?,
        })
    }

    /// The paper's figure: what came of a load, and what it cost; and beside it how long it took.
    fn figures(&self, name: &str, points: &[Vec<Point>]) -> Vec<Figure> {
        type Of = fn(&Point) -> f64;
        let curves = |values: &[(&str, Of)]| {
            let mut curves = Vec::new();
            for (series, points) in self.series.iter().zip(points) {
                for (suffix, of) in values {
                    let points = points.iter().map(|point| (point.offered, of(point))).collect();
                    curves.push(Curve { title: format!("{}{suffix}", series.title), is_line: true, points });
                }
            }
            curves
        };
        let figure = |kind: &str, title: &str, axis: &str, series| Figure {
            name: format!("{name}_{kind}"),
            title: format!("{name}: {title}"),
            axes: ["datagrams offered a second".into(), axis.into()],
            is_doubling: false,
            series,
        };
        let answered = curves(&[("", |point| point.throughput)]);
        let busy = curves(&[("", |point| point.busy * 100.0)]);
        let times = curves(&[
            (", median", |point| point.median_ns / 1000.0),
            (", 99th percentile", |point| point.percentile_99_ns / 1000.0),
        ]);
        vec![
            figure("throughput", "echoes that came back, by what was offered", "answers a second", answered),
            figure("processor", "processor time of the guest, by what was offered", "% of one processor", busy),
            figure("round_trip", "time there and back, by what was offered", "us", times),
        ]
    }

    /// The guest's instructions for an echo.
    fn count(&self, nic: Nic, bytes: usize, name: String) -> Result<Row, Failure> {
        let mut cells = Vec::new();
        for series in &self.series {
            progress::say(&format!("placement: {name}, {}, counting instructions", series.title));
            let system = if series.placement.is_some() { System::Aegis } else { System::LinuxTuned };
            let output = self.plugin.as_ref().map(|plugin| plugin.output_file(system));
            let machine = self.start(series, nic, output.as_deref())?;
            let counted = output.as_deref().map(|output| instructions(&machine, bytes, output));
            cells.push(match counted {
                Some(Ok(count)) => Cell::Values(vec![count]),
                Some(Err(why)) => Cell::NotAvailable(why),
                None => Cell::NotAsked,
            });
            let _ = output.map(std::fs::remove_file);
        }
        Ok(Row { name, cells, beside: None })
    }

    fn table(&self, unit: &str, rows: Vec<Row>) -> Table {
        let nic = self.options.nic.first().copied().unwrap_or(Nic::Virtio);
        let column = |series: &&Series| Column {
            key: series.key.into(),
            title: series.title.into(),
            command: shown(&self.line(series, nic, "PORT")),
        };
        Table {
            suite: "placement".into(),
            unit: unit.into(),
            columns: self.series.iter().map(column).collect(),
            compared: (self.series.len() > 1).then_some((self.series.len() - 1, 0)),
            rows,
        }
    }
}

/// Instructions of the whole guest for an echo, of which several are under way.
fn instructions(machine: &Machine, bytes: usize, output: &std::path::Path) -> Result<f64, String> {
    let kind = Kind::Datagrams { bytes, under_way: COUNTED_UNDER_WAY };
    let client = machine.client();
    client.operations(kind, COUNTED)?;
    let _ = std::fs::remove_file(output);
    let said = |error: std::io::Error| error.to_string();
    client.mark(b'<').map_err(said)?;
    client.operations(kind, COUNTED)?;
    client.mark(b'>').map_err(said)?;
    let counts = Counts::read(output).map_err(|failure| failure.to_string())?;
    let sum: u64 = counts.executions.iter().map(|(_, executions)| executions).sum();
    Ok((sum + counts.lost) as f64 / f64::from(COUNTED + more_operations(kind, COUNTED)))
}
