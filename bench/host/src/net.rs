//! Suite `net`: what a client on the host sees of a server in the machine (bench/net/server.c, and where they are nginx
//! and redis), through QEMU's user network and a port of 127.0.0.1, on Aegis and on Linux with the same card.
//!
//! Two tables: the time of one operation, and the instructions that the guest executes for it, whatever it executes
//! them in (the plugin of `trace` counts them in machines of their own; a halted processor executes none). The second
//! one says what a system costs where QEMU and the client are what the first one measures; `rule` weighs both, a line
//! for each row. `client` is the host's side, `programs` has the servers of others.

pub(crate) mod client;
mod programs;
pub(crate) mod rule;

use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aegis_link::drivers::Model;

use super::failure::Failure;
use super::filter::RowFilter;
use super::guest::{Event, Guest, Limits, Line};
use super::options::BenchOptions;
use super::result::{Cell, Column, Measured, Row, Table, median};
use super::system::{LinuxLine, MEMORY_MIB, Machines, Shape, System, aegis_line, shown};
use super::trace::plugin::{Counts, Plugin};
use super::trace::starter::{Starter, read_file};
use super::tree_images::RootFiles;
use super::{card, compile, progress};
use client::{Client, Kind, PIECE_BYTES, STREAM_BYTES, more_operations};
use programs::{NGINX, NGINX_GET, Program, REDIS, REDIS_GET, STARTER};
use rule::{Judged, Load, Used};

/// Until the server speaks.
const LIMITS: Limits = Limits { silence: Duration::from_secs(120), total: Duration::from_secs(1800) };
/// The server's ports: datagrams, bytes, a stream in, a stream out, requests; and that of a program beside it.
pub(crate) const PORTS: [(u16, &str); 6] =
    [(7000, "udp"), (7001, "tcp"), (7002, "tcp"), (7003, "tcp"), (7004, "tcp"), (PROGRAM_PORT, "tcp")];
const PROGRAM_PORT: u16 = 7010;
/// Places in [`PORTS`].
const REQUESTS_AT: usize = 4;
const PROGRAM_AT: usize = 5;
/// What the server answers by a page.
const REQUEST: &str = "0123456789012345678901234567890123456789012345678901234567890123";

/// A row: its name, what an operation is, how many, and the program that has to be there.
struct NetRow {
    name: &'static str,
    kind: Kind,
    count: u32,
    program: Option<&'static Program>,
}

const fn row(name: &'static str, kind: Kind, count: u32) -> NetRow {
    NetRow { name, kind, count, program: None }
}

const fn requests(port: usize, text: &'static str, connections: u32, depth: u32) -> Kind {
    Kind::Requests { port, text, connections, depth }
}

const PIECE_COUNT: u32 = (STREAM_BYTES / PIECE_BYTES) as u32;
/// Rows of one program stand together: they share a machine.
static ROWS: [NetRow; 11] = [
    row("udp_echo_64B", Kind::Datagrams { bytes: 64, under_way: 1 }, 1000),
    row("udp_echo_64B_8", Kind::Datagrams { bytes: 64, under_way: 8 }, 2000),
    row("udp_echo_1400B_8", Kind::Datagrams { bytes: 1400, under_way: 8 }, 2000),
    row("tcp_echo_1B", Kind::Bytes(1), 1000),
    row("tcp_connect", Kind::Connections, 200),
    row("tcp_in_64K", Kind::In, PIECE_COUNT),
    row("tcp_out_64K", Kind::Out, PIECE_COUNT),
    row("epoll_1K_32", requests(REQUESTS_AT, REQUEST, 32, 1), 3200),
    NetRow { name: "nginx_1K_32", kind: requests(PROGRAM_AT, NGINX_GET, 32, 1), count: 3200, program: Some(&NGINX) },
    NetRow { name: "redis_get_50", kind: requests(PROGRAM_AT, REDIS_GET, 50, 1), count: 5000, program: Some(&REDIS) },
    NetRow {
        name: "redis_get_50_P16",
        kind: requests(PROGRAM_AT, REDIS_GET, 50, 16),
        count: 40_000,
        program: Some(&REDIS),
    },
];

/// Measures the rows that were asked for; `None` if there are none.
pub(super) fn run(
    options: &BenchOptions,
    machines: &mut Machines,
    filter: &RowFilter,
) -> Result<Option<Measured>, Failure> {
    let rows: Vec<&NetRow> = ROWS.iter().filter(|row| filter.finds(row.name)).collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let server = compile::server(&machines.cache)?;
    let initramfs = server.with_extension("cpio");
    let cache = machines.cache.clone();
    let mut modules = Vec::new();
    if let Some(kernel) = &mut machines.linux {
        card::write_initramfs(kernel, &cache, &server, &initramfs)?;
        modules = kernel.network_modules(&cache)?;
    }
    let plugin = Plugin::prepare(machines, &read_file(&server)?, 0)?;
    let systems: Vec<System> = machines.systems().into_iter().filter(|it| *it != System::LinuxDefault).collect();
    let suite = Net { machines, server, initramfs, plugin };
    let mut results = Results::new(rows.len(), systems.len());
    for group in groups(&rows) {
        let place = match rows[group.start].program {
            None => Place::Alone,
            Some(program) => match program.root(&cache, &suite.server, &modules, options.programs.as_deref())? {
                Ok(files) => Place::With(program, files),
                Err(why) => {
                    results.miss(group, &why);
                    continue;
                }
            },
        };
        for (index, system) in systems.iter().enumerate() {
            suite.measure(options.pairs, *system, &place, &rows[group.clone()], |at, measure| {
                results.take(group.start + at, index, measure);
            })?;
        }
    }
    let notes = results.notes(&rows, &systems);
    let table = |unit: &str, cells| suite.table(unit, &systems, &rows, cells);
    let tables = vec![table("ns", results.times), table("instructions", results.counts)];
    Ok(Some(Measured { tables, notes, ..Measured::default() }))
}

/// Rows that share a machine, as ranges.
fn groups(rows: &[&NetRow]) -> Vec<std::ops::Range<usize>> {
    let name = |at: usize| rows[at].program.map(|program| program.name);
    let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
    for at in 0..rows.len() {
        match groups.last_mut().filter(|group| name(group.start) == name(at)) {
            Some(group) => group.end = at + 1,
            None => groups.push(at..at + 1),
        }
    }
    groups
}

/// One measurement of a row.
enum Measure {
    Time(Result<(f64, Option<Load>), String>),
    Count(Result<f64, String>),
}

/// What was measured: cells by row and system, and loads by row on Aegis.
struct Results {
    times: Vec<Vec<Cell>>,
    counts: Vec<Vec<Cell>>,
    loads: Vec<Vec<Load>>,
}

impl Results {
    fn new(row_count: usize, system_count: usize) -> Self {
        let cells = vec![vec![Cell::NotAsked; system_count]; row_count];
        Self { times: cells.clone(), counts: cells, loads: vec![Vec::new(); row_count] }
    }

    fn miss(&mut self, group: std::ops::Range<usize>, why: &str) {
        for row in group {
            self.times[row].iter_mut().chain(&mut self.counts[row]).for_each(|it| *it = Cell::NotAvailable(why.into()));
        }
    }

    fn take(&mut self, row: usize, system: usize, measure: Measure) {
        match measure {
            Measure::Time(found) => {
                // Aegis is the first one.
                if let (Ok((_, Some(load))), 0) = (&found, system) {
                    self.loads[row].push(*load);
                }
                self.times[row][system].merge(cell(found.map(|(time, _)| time)));
            }
            Measure::Count(found) => self.counts[row][system].merge(cell(found)),
        }
    }

    /// How each row is judged, if both systems were measured.
    fn notes(&self, rows: &[&NetRow], systems: &[System]) -> Vec<String> {
        if systems.len() != 2 {
            return Vec::new();
        }
        let mut notes = Vec::new();
        let mut judged = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            let share = |cells: &[Cell]| Some(cells[0].median()? / cells[1].median()?);
            let (Some(time), Some(instructions)) = (share(&self.times[at]), share(&self.counts[at])) else { continue };
            let middle = |of: fn(&Load) -> f64| median(&self.loads[at].iter().map(of).collect::<Vec<_>>());
            let load = middle(|load| load.guest_idle).zip(middle(|load| load.host_busy));
            let Some((guest_idle, host_busy)) = load else { continue };
            let one = Judged { throughput: 1.0 / time, instructions, load: Load { guest_idle, host_busy } };
            notes.push(one.sentence(row.name));
            judged.push(one);
        }
        notes.extend(rule::means(&judged));
        notes.push("the card is on QEMU's user network; --network tap was not tried: it needs an interface".into());
        notes
    }
}

fn cell(value: Result<f64, String>) -> Cell {
    value.map_or_else(Cell::NotAvailable, |value| Cell::Values(vec![value]))
}

/// Where rows are measured.
enum Place {
    /// bench/net/server.c alone.
    Alone,
    /// With a program beside it.
    With(&'static Program, RootFiles),
}

struct Net<'a> {
    machines: &'a Machines,
    server: PathBuf,
    initramfs: PathBuf,
    plugin: Plugin,
}

/// A machine whose server answers.
struct Machine {
    guest: Guest,
    client: Client,
}

impl Net<'_> {
    /// Rows on a system: in time as often as asked for, then once in instructions.
    fn measure(
        &self,
        pairs: u8,
        system: System,
        place: &Place,
        rows: &[&NetRow],
        mut take: impl FnMut(usize, Measure),
    ) -> Result<(), Failure> {
        let beside = if let Place::With(program, _) = place { program.name } else { "its server" };
        for pair in 1..=pairs {
            progress::say(&format!("net: {} with {beside}, run {pair} of {pairs}", system.title()));
            let machine = self.start(system, place, None)?;
            for (at, row) in rows.iter().enumerate() {
                take(at, Measure::Time(machine.timed(row.kind, row.count)));
            }
        }
        progress::say(&format!("net: {} with {beside}, counting instructions", system.title()));
        let output = self.plugin.output_file(system);
        let machine = self.start(system, place, Some(&output))?;
        for (at, row) in rows.iter().enumerate() {
            take(at, Measure::Count(machine.counted(row.kind, row.count, &output)));
        }
        let _ = std::fs::remove_file(&output);
        Ok(())
    }

    fn start(&self, system: System, place: &Place, counts: Option<&Path>) -> Result<Machine, Failure> {
        let ports = free_ports().map_err(|error| Failure::Host("finding free ports", error))?;
        let mut line = self.line(system, place, &ports.map(|port| port.to_string()));
        if let Some(output) = counts {
            let starter = if system == System::Aegis { Starter::Tool } else { Starter::Qemu };
            self.plugin.add_to(&mut line, starter, output);
        }
        let mut guest = Guest::start(&line, LIMITS)?;
        loop {
            match guest.next() {
                Event::Line(line, _) if line == "ready" => break,
                Event::Line(..) => {}
                Event::End => return Err(Failure::NotUp(system.title(), guest.finish())),
                Event::Limit(why) => return Err(Failure::NotUp(system.title(), why.into())),
            }
        }
        let machine = Machine { guest, client: Client(ports) };
        if let Place::With(program, _) = place {
            let answered = machine.client.wait_for(PROGRAM_AT, program.hello);
            answered.map_err(|why| Failure::NotUp(system.title(), format!("{}: {why}", program.name)))?;
        }
        Ok(machine)
    }

    fn line(&self, system: System, place: &Place, ports: &[String; PORTS.len()]) -> Line {
        let forwards = || ports.iter().zip(PORTS);
        let words = match place {
            Place::Alone => Vec::new(),
            Place::With(program, _) => {
                let mut words = vec!["start".to_string(), program.place()];
                words.extend(program.words.iter().map(|word| word.to_string()));
                words
            }
        };
        match (system, &self.machines.linux) {
            (System::Aegis, _) | (_, None) => {
                let ports: Vec<String> =
                    forwards().map(|(host, (inside, protocol))| format!("{host}:{inside}/{protocol}")).collect();
                let mut options = vec!["-M", "pc", "-q", "--host-access"];
                ports.iter().for_each(|port| options.extend(["-p", port]));
                let mut command: Vec<std::ffi::OsString> = vec![self.server.clone().into()];
                let image;
                if let Place::With(_, files) = place {
                    image = files.image.to_string_lossy();
                    options.extend(["--root", &*image]);
                    command = vec![STARTER.into()];
                }
                command.extend(words.iter().map(Into::into));
                aegis_line(&self.machines.tool, MEMORY_MIB, &options, command)
            }
            (_, Some(kernel)) => {
                let (initramfs, more_mib, first) = match place {
                    Place::Alone => (&self.initramfs, 0, String::new()),
                    Place::With(_, files) => (&files.initramfs, files.size_mib, format!(" rdinit={STARTER}")),
                };
                let words: String = words.iter().map(|word| format!(" {word}")).collect();
                let mut line = LinuxLine {
                    qemu: &self.machines.qemu,
                    kernel: &kernel.image,
                    initramfs,
                    memory_mib: MEMORY_MIB + more_mib,
                    append: format!(
                        "{} {}{first} --{words} {}",
                        system.kernel_words(),
                        card::APPEND_NAMES,
                        card::APPEND_INIT
                    ),
                    firmware: None,
                    shape: Shape { icount_shift: None, cpu_count: 1 },
                }
                .build();
                let forwards: String = forwards()
                    .map(|(host, (inside, protocol))| format!(",hostfwd={protocol}:127.0.0.1:{host}-:{inside}"))
                    .collect();
                card::add(&mut line, Model::Virtio, &format!("user{forwards}"));
                line
            }
        }
    }

    fn table(&self, unit: &str, systems: &[System], rows: &[&NetRow], cells: Vec<Vec<Cell>>) -> Table {
        let ports = PORTS.map(|_| "PORT".to_string());
        let column = |system: &System| Column {
            key: system.key().into(),
            title: system.title().into(),
            command: shown(&self.line(*system, &Place::Alone, &ports)),
        };
        let rows = rows.iter().zip(cells).map(|(row, cells)| Row { name: row.name.into(), cells, beside: None });
        Table {
            suite: "net".into(),
            unit: unit.into(),
            columns: systems.iter().map(column).collect(),
            compared: (systems.len() == 2).then_some((0, 1)),
            rows: rows.collect(),
        }
    }
}

/// Ports of 127.0.0.1 that nobody has now.
pub(crate) fn free_ports() -> io::Result<[u16; PORTS.len()]> {
    let mut held = Vec::new();
    let mut ports = [0; PORTS.len()];
    for (port, (_, protocol)) in ports.iter_mut().zip(PORTS) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        if protocol == "udp" {
            UdpSocket::bind((Ipv4Addr::LOCALHOST, *port))?;
        }
        held.push(listener);
    }
    Ok(ports)
}

impl Machine {
    /// Nanoseconds of one operation, and how busy guest and host were.
    fn timed(&self, kind: Kind, count: u32) -> Result<(f64, Option<Load>), String> {
        let process = self.guest.process_id();
        let before = Used::now(process);
        let time = self.client.operations(kind, count)?;
        let load = before.zip(Used::now(process)).map(|(before, after)| after.since(before));
        Ok((time.as_nanos() as f64, load))
    }

    /// The guest's instructions for one operation.
    fn counted(&self, kind: Kind, count: u32, output: &Path) -> Result<f64, String> {
        self.client.operations(kind, count)?;
        // One that is there is of the row before.
        let _ = std::fs::remove_file(output);
        let told = |error: io::Error| error.to_string();
        self.client.mark(b'<').map_err(told)?;
        self.client.operations(kind, count)?;
        self.client.mark(b'>').map_err(told)?;
        let counts = Counts::read(output).map_err(|failure| failure.to_string())?;
        let sum: u64 = counts.executions.iter().map(|(_, executions)| executions).sum();
        Ok((sum + counts.lost) as f64 / f64::from(count + more_operations(kind, count)))
    }
}
