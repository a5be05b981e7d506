//! `aegis run --profile`: where the machine's time goes, as a flame graph.
//!
//! A thread stops the machine at a steady rate through QEMU's debugger port (`gdb`), reads the registers of each
//! processor and as much of its stack as `unwind` asks for, and lets it go on; `place` knows whose an address
//! is, `flame` draws. Nothing in the guest takes part but for `map` lines, in which exos tells what programs
//! map. See docs/adr/0014.
//!
//! Invariants: every sample is in exactly one of the domains, so their sums are the number of samples. The
//! guest's clock stands while it is stopped, so a program does not see that it is sampled. A profile that cannot
//! go on ends alone, with a line; the program's output and status are those of a run without it.
//!
//! Limits: [`RATE_HZ_MAX`], [`SAMPLE_COUNT_MAX`], and those of `unwind` and `place`.

mod flame;
mod gdb;
mod lookup;
mod unwind;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aegis_abi::layout::LIBOS_BASE;
use aegis_launch::domain::{DOMAINS, Domain, is_of_driver};
use aegis_launch::errors::{Doing, Error};
use aegis_link::control::Mapping;

use flame::{Caption, Flames};
use gdb::{Gdb, READ_BYTES_MAX, Registers};
pub(crate) use lookup::RootFiles;
use lookup::{Frame, Places};
use unwind::Memory;

/// Samples of each processor in a second, unless asked otherwise: no multiple of what timers tend to use.
pub(crate) const RATE_HZ: u16 = 199;
/// The highest rate: above it, stopping takes more of the host's time than running.
pub(crate) const RATE_HZ_MAX: i64 = 1000;
/// Most samples; then sampling ends, and the run goes on.
const SAMPLE_COUNT_MAX: u64 = 1 << 20;
/// Memory is read by pieces of this size, which divides a page.
const PIECE_BYTES: u64 = 2048;
const _: () = assert!(PIECE_BYTES as usize <= READ_BYTES_MAX);

/// What a profile is made from.
#[derive(Debug)]
pub(crate) struct Sources<'a> {
    /// The kernel's ELF file.
    pub(crate) kernel: &'a Path,
    /// exos's.
    pub(crate) library_os: &'a Path,
    /// Where the program's files are.
    pub(crate) root: RootFiles,
    /// Processors of the machine.
    pub(crate) cpu_count: u8,
    /// Samples in a second.
    pub(crate) rate_hz: u16,
}

/// A profile that is being taken.
#[derive(Debug)]
pub(crate) struct Profile {
    thread: JoinHandle<Samples>,
}

/// The stacks of a run.
#[derive(Debug)]
struct Samples {
    places: Places,
    /// By address space, moment and addresses, innermost first.
    stacks: HashMap<(u64, usize, Vec<u64>), u64>,
    count: u64,
    elapsed: Duration,
    /// How long the machine stood for it.
    stopped: Duration,
    /// Why it ended before the machine did.
    problem: Option<String>,
}

impl Profile {
    /// Starts to sample the machine at the other end of `socket`, which does not run before that. The sender
    /// takes what exos tells of mappings.
    pub(crate) fn start(socket: UnixStream, sources: Sources<'_>) -> Result<(Self, Sender<Mapping>), Error> {
        let Sources { kernel, library_os, root, cpu_count, rate_hz } = sources;
        let places = Places::new(kernel, library_os, root).doing("preparing the profile")?;
        let gdb = Gdb::new(socket).doing("preparing the profile")?;
        let (sender, mappings) = channel();
        let interval = Duration::from_secs(1) / u32::from(rate_hz.max(1));
        let sampler = Sampler { gdb, mappings, cpu_count, interval };
        let thread = std::thread::Builder::new().name("profile".into());
        let thread = thread.spawn(move || sampler.run(places)).doing("starting the profile")?;
        Ok((Self { thread }, sender))
    }

    /// Writes the picture after the machine's end; the answer is a line for the user. Whatever becomes of the
    /// profile, the run is over and has its own status.
    pub(crate) fn finish(self, path: &Path, title: &str) -> String {
        let Ok(samples) = self.thread.join() else {
            return "profile: nothing: its thread ended".into();
        };
        let (svg, sums, note) = samples.draw(title);
        let parts = DOMAINS.iter().zip(sums).filter(|(_, count)| *count > 0);
        let parts: Vec<String> = parts.map(|(domain, count)| format!("{} {count}", domain.name())).collect();
        let parts = if parts.is_empty() { "nothing".into() } else { parts.join(" + ") };
        match std::fs::write(path, svg) {
            Ok(()) => format!("profile: {parts}; {note}; written to {}", path.display()),
            Err(error) => format!("profile: writing {}: {error}", path.display()),
        }
    }
}

struct Sampler {
    gdb: Gdb,
    mappings: Receiver<Mapping>,
    cpu_count: u8,
    interval: Duration,
}

impl Sampler {
    fn run(mut self, places: Places) -> Samples {
        let stacks = HashMap::new();
        let (elapsed, stopped) = (Duration::ZERO, Duration::ZERO);
        let mut samples = Samples { places, stacks, count: 0, elapsed, stopped, problem: None };
        let start = Instant::now();
        match self.sample_all(&mut samples) {
            Ok(()) => samples.problem = Some(format!("ended after {SAMPLE_COUNT_MAX} samples")),
            // QEMU has ended.
            Err(error) if is_end(&error) => {}
            Err(error) => samples.problem = Some(format!("ended early: {error}")),
        }
        samples.elapsed = start.elapsed();
        // If QEMU still listens, the machine must not stand.
        let _ = self.gdb.go_on();
        samples
    }

    fn sample_all(&mut self, samples: &mut Samples) -> io::Result<()> {
        self.gdb.begin()?;
        self.gdb.go_on()?;
        while samples.count < SAMPLE_COUNT_MAX {
            // The machine runs that long between two stops, however long these take on a busy host.
            std::thread::sleep(self.interval);
            let begun = Instant::now();
            self.gdb.stop()?;
            samples.places_add(&self.mappings);
            for processor in 0..self.cpu_count {
                if self.cpu_count > 1 {
                    self.gdb.choose(processor)?;
                }
                samples.take(&mut self.gdb)?;
            }
            self.gdb.go_on()?;
            samples.stopped += begun.elapsed();
        }
        Ok(())
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl Samples {
    fn places_add(&mut self, mappings: &Receiver<Mapping>) {
        while let Ok(mapping) = mappings.try_recv() {
            self.places.add(mapping);
        }
    }

    /// Takes one sample of the chosen processor.
    fn take(&mut self, gdb: &mut Gdb) -> io::Result<()> {
        let registers = gdb.registers()?;
        let is_whole = registers.rip >= LIBOS_BASE || registers.ring == 3;
        let frames = if is_whole && !self.places.is_idle(registers.rip) {
            let mut memory = Pieces { gdb, pieces: HashMap::new(), error: None };
            let frames = self.unwind(registers, &mut memory);
            if let Some(error) = memory.error {
                return Err(error);
            }
            frames
        } else {
            vec![registers.rip]
        };
        let moment = self.places.moment();
        *self.stacks.entry((registers.space, moment, frames)).or_default() += 1;
        self.count += 1;
        Ok(())
    }

    fn unwind(&self, registers: Registers, memory: &mut dyn Memory) -> Vec<u64> {
        unwind::stack(registers, memory, &mut |address| self.places.code(registers.space, address))
    }

    /// The functions of a stack, outermost first, and whose sample it is.
    fn functions(&self, space: u64, moment: usize, stack: &[u64]) -> (Vec<Frame>, Domain) {
        let Some((leaf, callers)) = stack.split_first() else {
            return (Vec::new(), Domain::Idle);
        };
        if self.places.is_idle(*leaf) {
            let idle = Frame { domain: Domain::Idle, name: "idle".into(), file: String::new() };
            return (vec![idle], Domain::Idle);
        }
        // Of a return address, the call before it is what counts.
        let callers = callers.iter().map(|address| address.wrapping_sub(1));
        let mut frames: Vec<Frame> =
            std::iter::once(*leaf).chain(callers).map(|address| self.places.frame(space, address, moment)).collect();
        let mut domain = frames[0].domain;
        let system = frames.iter().take_while(|frame| frame.domain == Domain::LibraryOs);
        if system.into_iter().find_map(|frame| is_of_driver(&frame.name)) == Some(true) {
            domain = Domain::Driver;
        }
        for frame in frames.iter_mut().filter(|frame| frame.domain == Domain::LibraryOs) {
            if is_of_driver(&frame.name) == Some(true) {
                frame.domain = Domain::Driver;
            }
        }
        frames.reverse();
        (frames, domain)
    }

    /// The picture, the sums of the domains, and how it was taken.
    fn draw(&self, title: &str) -> (String, [u64; DOMAINS.len()], String) {
        let mut flames = Flames::default();
        let mut sums = [0; DOMAINS.len()];
        for ((space, moment, stack), count) in &self.stacks {
            let (frames, domain) = self.functions(*space, *moment, stack);
            flames.add(frames, *count);
            for (sum, _) in sums.iter_mut().zip(DOMAINS).filter(|(_, it)| *it == domain) {
                *sum += count;
            }
        }
        let seconds = self.elapsed.as_secs_f64();
        let mut note = format!(
            "{} samples in {seconds:.1} s, of which the machine stood {:.1} s",
            self.count,
            self.stopped.as_secs_f64()
        );
        if let Some(problem) = &self.problem {
            note += &format!("; {problem}");
        }
        let svg = flames.svg(&Caption { title, sums, note: &note });
        (svg, sums, note)
    }
}

/// Memory of a stopped machine, read by pieces that are kept until it goes on.
struct Pieces<'a> {
    gdb: &'a mut Gdb,
    pieces: HashMap<u64, Vec<u8>>,
    error: Option<io::Error>,
}

impl Memory for Pieces<'_> {
    fn word(&mut self, address: u64) -> Option<u64> {
        let start = address - address % PIECE_BYTES;
        if !self.pieces.contains_key(&start) {
            let piece = match self.gdb.read(start, PIECE_BYTES as usize) {
                Ok(piece) => piece,
                Err(error) => {
                    self.error.get_or_insert(error);
                    return None;
                }
            };
            self.pieces.insert(start, piece);
        }
        let offset = usize::try_from(address - start).ok()?;
        // A word across two pieces is no word of a stack.
        let bytes = self.pieces.get(&start)?.get(offset..offset + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// Makes sure before the run that the picture can be written after it.
pub(crate) fn check_path(path: &Path) -> Result<(), Error> {
    let was_there = path.exists();
    let file = File::options().write(true).create(true).truncate(false).open(path);
    file.map_err(|error| Error::Usage(format!("--profile: {}: {error}", path.display())))?;
    if !was_there {
        // A run that fails leaves nothing behind.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}
