//! Suite `net`: what a client on the host sees of a server in the machine (bench/net/server.c), through QEMU's user
//! network and a port of 127.0.0.1, on Aegis and on Linux with the same card.
//!
//! Two tables: the time of one operation, and the instructions that the guest executes for it, whatever it executes
//! them in (the plugin of `trace` counts them in machines of their own; a halted processor executes none). The second
//! one says what a system costs where QEMU and the client are what the first one measures.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::filter::RowFilter;
use super::guest::{Event, Guest, Limits, Line};
use super::options::BenchOptions;
use super::result::{Cell, Column, Measured, Row, Table};
use super::system::{LinuxLine, MEMORY_MIB, Machines, Shape, System, aegis_line, shown};
use super::trace::plugin::{Counts, Plugin};
use super::trace::starter::{Starter, read_file};
use super::{card, compile, progress};

/// Until the server speaks.
const LIMITS: Limits = Limits { silence: Duration::from_secs(120), total: Duration::from_secs(1800) };
/// Longest time of one answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The server's ports: datagrams, bytes, a stream in, a stream out.
const PORTS: [(u16, &str); 4] = [(7000, "udp"), (7001, "tcp"), (7002, "tcp"), (7003, "tcp")];
/// Bytes of a stream (bench/net/server.c).
const STREAM_BYTES: usize = 4 << 20;
/// A stream is counted in pieces of this size.
const PIECE_BYTES: usize = 64 << 10;
/// Operations that are not measured, before those that are.
const WARM_COUNT: u32 = 100;
/// Only round trips of datagrams may be lost, and only so many.
const LOST_MAX: u32 = 20;

/// What one operation of a row is.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A datagram of so many bytes there and back, so many of them under way.
    Datagrams { bytes: usize, under_way: u32 },
    /// Bytes of one connection there and back.
    Bytes(usize),
    /// A connection, a byte there and back, and its end.
    Connections,
    /// A piece of a stream to the server.
    In,
    /// A piece of a stream from it.
    Out,
}

const ROWS: [(&str, Kind, u32); 7] = [
    ("udp_echo_64B", Kind::Datagrams { bytes: 64, under_way: 1 }, 1000),
    ("udp_echo_64B_8", Kind::Datagrams { bytes: 64, under_way: 8 }, 2000),
    ("udp_echo_1400B_8", Kind::Datagrams { bytes: 1400, under_way: 8 }, 2000),
    ("tcp_echo_1B", Kind::Bytes(1), 1000),
    ("tcp_connect", Kind::Connections, 200),
    ("tcp_in_64K", Kind::In, (STREAM_BYTES / PIECE_BYTES) as u32),
    ("tcp_out_64K", Kind::Out, (STREAM_BYTES / PIECE_BYTES) as u32),
];

/// Measures the rows that were asked for; `None` if there are none.
pub(super) fn run(
    options: &BenchOptions,
    machines: &mut Machines,
    filter: &RowFilter,
) -> Result<Option<Measured>, Failure> {
    let rows: Vec<_> = ROWS.into_iter().filter(|(name, ..)| filter.finds(name)).collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let server = compile::server(&machines.cache)?;
    let initramfs = server.with_extension("cpio");
    let cache = machines.cache.clone();
    if let Some(kernel) = &mut machines.linux {
        card::write_initramfs(kernel, &cache, &server, &initramfs)?;
    }
    let plugin = Plugin::prepare(machines, &read_file(&server)?, 0)?;
    let suite = Net { machines, server, initramfs };
    let systems: Vec<System> = machines.systems().into_iter().filter(|it| *it != System::LinuxDefault).collect();
    let mut times = vec![vec![Cell::NotAsked; systems.len()]; rows.len()];
    let mut counts = times.clone();
    for pair in 1..=options.pairs {
        for (index, system) in systems.iter().enumerate() {
            progress::say(&format!("net: {}, run {pair} of {}", system.title(), options.pairs));
            let machine = suite.start(*system, None)?;
            for (row, cells) in rows.iter().zip(&mut times) {
                cells[index].merge(cell(machine.operations(row.1, row.2).map(|time| time.as_nanos() as f64)));
            }
        }
    }
    for (index, system) in systems.iter().enumerate() {
        progress::say(&format!("net: {}, counting instructions", system.title()));
        let output = plugin.output_file(*system);
        let machine = suite.start(*system, Some((&plugin, &output)))?;
        for (row, cells) in rows.iter().zip(&mut counts) {
            cells[index] = cell(machine.counted(row.1, row.2, &output));
        }
        let _ = std::fs::remove_file(&output);
    }
    let table = |unit: &str, cells: Vec<Vec<Cell>>| suite.table(unit, &systems, &rows, cells);
    let tables = vec![table("ns", times), table("instructions", counts)];
    Ok(Some(Measured { tables, figures: Vec::new(), doubts: Vec::new() }))
}

fn cell(value: Result<f64, String>) -> Cell {
    value.map_or_else(Cell::NotAvailable, |value| Cell::Values(vec![value]))
}

struct Net<'a> {
    machines: &'a Machines,
    server: PathBuf,
    initramfs: PathBuf,
}

/// A machine whose server answers.
struct Machine {
    _guest: Guest,
    ports: [u16; 4],
}

impl Net<'_> {
    fn start(&self, system: System, plugin: Option<(&Plugin, &Path)>) -> Result<Machine, Failure> {
        let ports = free_ports().map_err(|error| Failure::Host("finding free ports", error))?;
        let mut line = self.line(system, &ports.map(|port| port.to_string()));
        if let Some((plugin, output)) = plugin {
            let starter = if system == System::Aegis { Starter::Tool } else { Starter::Qemu };
            plugin.add_to(&mut line, starter, output);
        }
        let mut guest = Guest::start(&line, LIMITS)?;
        loop {
            match guest.next() {
                Event::Line(line, _) if line == "ready" => return Ok(Machine { _guest: guest, ports }),
                Event::Line(..) => {}
                Event::End => return Err(Failure::NotUp(system.title(), guest.finish())),
                Event::Limit(why) => return Err(Failure::NotUp(system.title(), why.into())),
            }
        }
    }

    fn line(&self, system: System, ports: &[String; 4]) -> Line {
        let forwards = || ports.iter().zip(PORTS);
        match (system, &self.machines.linux) {
            (System::Aegis, _) | (_, None) => {
                let ports: Vec<String> =
                    forwards().map(|(host, (inside, protocol))| format!("{host}:{inside}/{protocol}")).collect();
                let mut options = vec!["-M", "pc", "-q", "--host-access"];
                ports.iter().for_each(|port| options.extend(["-p", port]));
                aegis_line(&self.machines.tool, MEMORY_MIB, &options, vec![self.server.clone().into()])
            }
            (_, Some(kernel)) => {
                let mut line = LinuxLine {
                    qemu: &self.machines.qemu,
                    kernel: &kernel.image,
                    initramfs: &self.initramfs,
                    memory_mib: MEMORY_MIB,
                    append: format!("{} {}", system.kernel_words(), card::APPEND),
                    firmware: None,
                    shape: Shape { icount_shift: None, cpu_count: 1 },
                }
                .build();
                let forwards: String = forwards()
                    .map(|(host, (inside, protocol))| format!(",hostfwd={protocol}:127.0.0.1:{host}-:{inside}"))
                    .collect();
                card::add(&mut line, &format!("user{forwards}"));
                line
            }
        }
    }

    fn table(&self, unit: &str, systems: &[System], rows: &[(&str, Kind, u32)], cells: Vec<Vec<Cell>>) -> Table {
        let ports = [(); 4].map(|()| "PORT".to_string());
        let column = |system: &System| Column {
            key: system.key().into(),
            title: system.title().into(),
            command: shown(&self.line(*system, &ports)),
        };
        let rows = rows.iter().zip(cells).map(|(row, cells)| Row { name: row.0.into(), cells, beside: None });
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
fn free_ports() -> io::Result<[u16; 4]> {
    let mut held = Vec::new();
    let mut ports = [0; 4];
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
    fn address(&self, index: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports[index]).into()
    }

    /// The time of one operation of `count`.
    fn operations(&self, kind: Kind, count: u32) -> Result<Duration, String> {
        let took = match kind {
            Kind::Datagrams { bytes, under_way } => self.datagrams(bytes, under_way, count),
            Kind::Bytes(bytes) => self.bytes(bytes, count),
            Kind::Connections => self.connections(count),
            Kind::In => self.stream_in(),
            Kind::Out => self.stream_out(),
        };
        Ok(took.map_err(|error| error.to_string())? / count)
    }

    /// The guest's instructions for one operation.
    fn counted(&self, kind: Kind, count: u32, output: &Path) -> Result<f64, String> {
        self.operations(kind, count)?;
        // One that is there is of the row before.
        let _ = std::fs::remove_file(output);
        let told = |error: io::Error| error.to_string();
        self.mark(b'<').map_err(told)?;
        self.operations(kind, count)?;
        self.mark(b'>').map_err(told)?;
        let counts = Counts::read(output).map_err(|failure| failure.to_string())?;
        let sum: u64 = counts.executions.iter().map(|(_, executions)| executions).sum();
        let warm = if matches!(kind, Kind::In | Kind::Out) { 0 } else { WARM_COUNT };
        Ok((sum + counts.lost) as f64 / f64::from(count + warm))
    }

    fn mark(&self, mark: u8) -> io::Result<()> {
        let socket = self.datagram_socket()?;
        socket.send(&[mark])?;
        socket.recv(&mut [0; 8]).map(drop)
    }

    fn datagram_socket(&self) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(self.address(0))?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        Ok(socket)
    }

    fn datagrams(&self, bytes: usize, under_way: u32, count: u32) -> io::Result<Duration> {
        let socket = self.datagram_socket()?;
        socket.set_read_timeout(Some(Duration::from_millis(300)))?;
        let mut buffer = vec![b'x'; bytes];
        let mut lost = 0;
        let mut exchange = |count: u32, under_way: u32| -> io::Result<Duration> {
            let begin = Instant::now();
            (0..under_way).try_for_each(|_| socket.send(&buffer).map(drop))?;
            let (mut received, mut sent) = (0, under_way);
            while received < count {
                match socket.recv(&mut buffer) {
                    Ok(_) => received += 1,
                    Err(_) if lost < LOST_MAX => lost += 1,
                    Err(error) => return Err(error),
                }
                if sent < count || received + 1 >= sent {
                    socket.send(&buffer)?;
                    sent += 1;
                }
            }
            Ok(begin.elapsed())
        };
        exchange(WARM_COUNT, 1)?;
        exchange(count, under_way)
    }

    fn connection(&self, index: usize) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address(index))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        Ok(stream)
    }

    fn bytes(&self, bytes: usize, count: u32) -> io::Result<Duration> {
        let mut stream = self.connection(1)?;
        let mut buffer = vec![b'x'; bytes];
        let mut exchange = |count: u32| -> io::Result<Duration> {
            let begin = Instant::now();
            for _ in 0..count {
                stream.write_all(&buffer)?;
                stream.read_exact(&mut buffer)?;
            }
            Ok(begin.elapsed())
        };
        exchange(WARM_COUNT)?;
        exchange(count)
    }

    fn connections(&self, count: u32) -> io::Result<Duration> {
        let exchange = |count: u32| -> io::Result<Duration> {
            let begin = Instant::now();
            for _ in 0..count {
                let mut stream = self.connection(1)?;
                stream.write_all(b"x")?;
                stream.read_exact(&mut [0])?;
            }
            Ok(begin.elapsed())
        };
        exchange(WARM_COUNT)?;
        exchange(count)
    }

    fn stream_in(&self) -> io::Result<Duration> {
        let mut stream = self.connection(2)?;
        let piece = vec![b'x'; PIECE_BYTES];
        let begin = Instant::now();
        (0..STREAM_BYTES / PIECE_BYTES).try_for_each(|_| stream.write_all(&piece))?;
        stream.shutdown(Shutdown::Write)?;
        stream.read_exact(&mut [0])?;
        Ok(begin.elapsed())
    }

    fn stream_out(&self) -> io::Result<Duration> {
        let mut stream = self.connection(3)?;
        let mut piece = vec![0; PIECE_BYTES];
        let begin = Instant::now();
        let mut total = 0;
        while total < STREAM_BYTES {
            match stream.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => total += count,
            }
        }
        Ok(begin.elapsed())
    }
}
