//! `aegis run`: from the command line to the exit status.
//!
//! The order of the steps is the order in which a user wants to hear of problems: the program, the root, the
//! machine. Nothing is started before everything that can be known beforehand is known.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Read};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use aegis_image::config::{Config, Flags};

use crate::accel::{Choice, Trial, choose, firmware_for};
use crate::artifacts::{Artifacts, find_qemu};
use crate::boot::{self, BootBundle};
use crate::cache::Cache;
use crate::control::Mapping;
use crate::errors::{Doing, Error};
use crate::machine::{GuestEnds, HostEnds, Machine, sockets};
use crate::options::{RunOptions, StatsFormat};
use crate::ports::{BOOT_LIMIT, Habits, printable_lines, relay};
use crate::profile::{self, Profile, RootFiles, Sources};
use crate::program::{absolute, locate};
use crate::qemu::{Accelerator, MachineLine};
use crate::root::{HOSTNAME, Prepared, Source, is_directory, prepare, working_directory};
use crate::shares::{Served, serve};
use crate::signals::Signals;
use crate::stats::Stats;
use crate::terminal::RawTerminal;

/// The program's PATH, and where a host program is looked for when this process has no PATH.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Memory of the machine that is neither the program's nor the bundle's: the kernel, its tables, exos.
const OVERHEAD_MIB: u64 = 16;
/// One part in so many of the program's memory is added for what describes it: page tables, exos's page maps.
const OVERHEAD_SHARE: u64 = 32;
/// The wall-clock time of a run with `--icount`, the same as QEMU's `-rtc base=2026-01-01T00:00:00`.
const ICOUNT_REALTIME_NS: u64 = 1_767_225_600 * 1_000_000_000;
/// The random seed of a run with `--icount`.
const ICOUNT_SEED: [u8; 32] = [1; 32];

/// Runs a program; the answer is the tool's exit status.
pub(crate) fn run(options: &RunOptions, start: Instant) -> Result<u8, Error> {
    let cwd = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let guest_cwd = working_directory(&options.working_directory)?;
    let program = place_of_program(options, &cwd)?;
    let artifacts = Artifacts::find();
    artifacts.check()?;
    let qemu = match (find_qemu(), options.dry_run) {
        (Err(Error::QemuMissing(name)), true) => name.into(),
        (found, _) => found?,
    };
    let cache = Cache::open();
    let live_root = live_root(options)?;
    let shares = serve(live_root, &options.volumes)?;
    let root = match live_root {
        Some(_) => None,
        None => Some(prepare(source_of(options, &program), &options.with, cache.as_ref())?),
    };
    report_root(options, root.as_ref(), &shares);
    let library_os = artifacts.flat_library_os()?;
    let config = config_of(options, &program.guest, &guest_cwd, &shares)?;
    let trial = Trial {
        qemu: &qemu,
        artifacts: &artifacts,
        library_os: &library_os,
        machine: options.machine,
        cache: cache.as_ref().filter(|_| !options.dry_run),
    };
    let choice = choose(options.accel, options.icount, &trial)?;
    report_choice(options, &choice);
    let bundle = boot::build(&library_os, &config, root.as_ref().map(|root| &root.image))?;
    let (host, mut guest) = sockets()?;
    let profiled = options.profile.as_deref().map(|path| Profiled::prepare(path, &mut guest)).transpose()?;
    let debugger = profiled.as_ref().map(|profiled| profiled.debugger);
    let line = Line { options, qemu: &qemu, artifacts: &artifacts, bundle: &bundle, debugger, shares: &shares };
    let arguments = line.build(choice.accelerator, &mut guest)?;
    if options.dry_run {
        println!("{}", arguments.shown);
        return Ok(0);
    }
    drop(bundle);
    if options.verbose {
        eprintln!("aegis: {}", arguments.shown);
    }
    let parts = Parts { qemu, arguments: arguments.words, host, guest };
    let Some(profiled) = profiled else {
        return run_machine(options, parts, choice.accelerator, start, None);
    };
    let sources = Sources {
        kernel: &artifacts.kernel(),
        library_os: &artifacts.library_os(),
        root: match &root {
            Some(root) => {
                let file = root.image.file.try_clone().doing("opening the root image")?;
                RootFiles::image(file, root.image.size_bytes)
            }
            None => RootFiles::Directory(shares.first().map(|served| served.host.clone()).unwrap_or_default()),
        },
        cpu_count: options.cpus,
        rate_hz: options.profile_rate,
    };
    let (profile, mappings) = Profile::start(profiled.socket, sources)?;
    let status = run_machine(options, parts, choice.accelerator, start, Some(mappings));
    let line = profile.finish(&profiled.path, &shown_program(options));
    if !options.quiet {
        eprintln!("aegis: {line}");
    }
    status
}

/// The tool's end of the debugger's port, and the machine's.
struct Profiled {
    path: PathBuf,
    socket: UnixStream,
    debugger: RawFd,
}

impl Profiled {
    fn prepare(path: &Path, guest: &mut GuestEnds) -> Result<Self, Error> {
        profile::check_path(path)?;
        let (socket, other) = UnixStream::pair().doing("making the debugger's port")?;
        Ok(Self { path: path.into(), socket, debugger: guest.add(&other.into())? })
    }
}

/// The program and its arguments as one line.
fn shown_program(options: &RunOptions) -> String {
    let words = options.program_words().iter().map(|word| word.to_string_lossy().into_owned());
    words.collect::<Vec<_>>().join(" ")
}

/// Where PROGRAM is.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// On the host; `None` with `--root`.
    host: Option<PathBuf>,
    /// In the machine. A bare name is looked up there by exos.
    guest: PathBuf,
}

/// With `--root`, exos looks for PROGRAM in the root. Else it is a program of the host, by the path that it
/// has there or by the one that a `--with` or `-v` gives it.
fn place_of_program(options: &RunOptions, cwd: &Path) -> Result<Place, Error> {
    let name = options.program_name();
    if name.is_empty() {
        return Err(Error::Usage("PROGRAM is empty".into()));
    }
    if options.root.is_some() {
        return Ok(Place { host: None, guest: name.into() });
    }
    let search = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let with = options.with.iter().filter_map(|with| Some((&with.host, with.guest.as_ref()?)));
    let volumes = options.volumes.iter().map(|volume| (&volume.host, &volume.guest));
    for (from, guest) in with.chain(volumes) {
        if let Ok(rest) = Path::new(name).strip_prefix(guest) {
            // Joining an empty path would add a slash.
            let host = if rest == Path::new("") { from.clone() } else { from.join(rest) };
            let host = locate(absolute(&host, cwd).as_os_str(), &search, cwd)?;
            return Ok(Place { host: Some(host), guest: name.into() });
        }
    }
    let host = locate(name, &search, cwd)?;
    Ok(Place { guest: host.clone(), host: Some(host) })
}

/// What a root image is made of.
fn source_of<'a>(options: &'a RunOptions, program: &'a Place) -> Source<'a> {
    match (&options.root, &program.host) {
        (Some(path), _) => Source::Given(path),
        (None, Some(path)) => Source::Program(path),
        (None, None) => Source::Program(&program.guest),
    }
}

/// The directory that is the root live. With `--pack` or `--with` it is packed into an image like every other root.
fn live_root(options: &RunOptions) -> Result<Option<&Path>, Error> {
    match &options.root {
        Some(path) if !options.pack && options.with.is_empty() && is_directory(path)? => Ok(Some(path)),
        _ => Ok(None),
    }
}

fn report_root(options: &RunOptions, root: Option<&Prepared>, shares: &[Served]) {
    if options.verbose {
        for served in shares {
            eprintln!("aegis: {} is served live", served.host.display());
        }
    }
    let Some(root) = root else { return };
    if !options.quiet {
        for warning in &root.warnings {
            eprintln!("aegis: {warning}");
        }
    }
    if options.verbose {
        let how = if root.was_cached { "from the cache" } else { "written" };
        eprintln!("aegis: root image of {} KiB, {how}", root.image.size_bytes >> 10);
    }
}

fn report_choice(options: &RunOptions, choice: &Choice) {
    if options.verbose || (choice.is_new && !options.quiet) {
        eprintln!("aegis: --accel {}: {}", choice.accelerator.name(), choice.reason);
    }
}

fn config_of(
    options: &RunOptions,
    program: &Path,
    working_directory: &Path,
    shares: &[Served],
) -> Result<Vec<u8>, Error> {
    let bytes = |text: &OsStr| text.as_bytes().to_vec();
    let mut flags = Flags::empty();
    flags.set(Flags::TRACE, options.trace);
    flags.set(Flags::STATS, options.stats.is_some());
    flags.set(Flags::NO_REWRITE, options.no_rewrite);
    flags.set(Flags::VERBOSE, options.verbose);
    flags.set(Flags::QUIET, options.quiet);
    flags.set(Flags::PROFILE, options.profile.is_some());
    flags.set(Flags::TERMINAL, options.terminal);
    flags.set(Flags::STDIN_IS_TERMINAL, std::io::stdin().is_terminal());
    flags.set(Flags::STDOUT_IS_TERMINAL, std::io::stdout().is_terminal());
    flags.set(Flags::STDERR_IS_TERMINAL, std::io::stderr().is_terminal());
    flags.set(Flags::STDERR_IS_STDOUT, are_one_file(std::io::stdout().as_fd(), std::io::stderr().as_fd()));
    let (realtime_start_ns, random_seed) =
        if options.icount { (ICOUNT_REALTIME_NS, ICOUNT_SEED) } else { (realtime_ns(), random_seed()?) };
    let size =
        rustix::termios::tcgetwinsize(std::io::stdout()).or_else(|_| rustix::termios::tcgetwinsize(std::io::stdin()));
    let (terminal_rows, terminal_columns) = size.map_or((0, 0), |size| (size.ws_row, size.ws_col));
    let config = Config {
        program: bytes(program.as_os_str()),
        arguments: options.program_words().iter().map(|word| bytes(word)).collect(),
        environment: environment(&inherited(options), &options.environment).iter().map(|word| bytes(word)).collect(),
        working_directory: bytes(working_directory.as_os_str()),
        flags,
        memory_limit_bytes: options.memory,
        realtime_start_ns,
        random_seed,
        terminal_rows,
        terminal_columns,
        hostname: HOSTNAME.to_vec(),
        shares: shares.iter().map(|served| served.share.clone()).collect(),
        ..Config::default()
    };
    config.encode().map_err(|why| Error::Usage(why.to_string()))
}

/// Whether what is written to both comes out in one order: two names of one file that was opened once, as far as
/// can be told from outside.
fn are_one_file(output: BorrowedFd<'_>, errors: BorrowedFd<'_>) -> bool {
    let identity = |file| rustix::fs::fstat(file).ok().map(|status| (status.st_dev, status.st_ino, status.st_rdev));
    let flags = |file| rustix::fs::fcntl_getfl(file).ok();
    identity(output).is_some() && identity(output) == identity(errors) && flags(output) == flags(errors)
}

/// Variables of the host that the program gets without asking: TERM, and where the root is the host's own also those
/// that say where its programs and texts are.
fn inherited(options: &RunOptions) -> Vec<OsString> {
    let is_own_root = options.root.as_deref().is_some_and(|root| root == Path::new("/"));
    let is_kept = |name: &OsStr| match name.as_bytes() {
        b"TERM" => true,
        b"PATH" | b"LANG" | b"LANGUAGE" | b"TZ" => is_own_root,
        name => is_own_root && name.starts_with(b"LC_"),
    };
    let kept = std::env::vars_os().filter(|(name, _)| is_kept(name));
    kept.map(|(name, value)| [name, value].join(OsStr::new("="))).collect()
}

/// A small environment of its own, not the host's: PATH and HOME, then what is inherited, then `-e`. Of several values
/// of one variable the last counts.
fn environment(inherited: &[OsString], given: &[OsString]) -> Vec<OsString> {
    let mut list: Vec<OsString> = vec![format!("PATH={DEFAULT_PATH}").into(), "HOME=/root".into()];
    for variable in inherited.iter().chain(given) {
        let name = |text: &OsString| text.as_bytes().split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
        list.retain(|old| name(old) != name(variable));
        list.push(variable.clone());
    }
    list
}

fn realtime_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn random_seed() -> Result<[u8; 32], Error> {
    let mut seed = [0; 32];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut seed))
        .doing("reading /dev/urandom")?;
    Ok(seed)
}

/// The kernel's command line. With `--icount` the draws are those of the kernel's fixed key, so that a run is
/// repeatable.
fn kernel_words(options: &RunOptions) -> Result<String, Error> {
    let mut words = Vec::new();
    if options.verbose {
        words.push("log=info".to_owned());
    }
    if !options.icount {
        let digits = random_seed()?[..16].iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        words.push(format!("lottery={digits}"));
    }
    Ok(words.join(" "))
}

/// What the command line is made from.
struct Line<'a> {
    options: &'a RunOptions,
    qemu: &'a Path,
    artifacts: &'a Artifacts,
    bundle: &'a BootBundle,
    debugger: Option<RawFd>,
    shares: &'a [Served],
}

struct BuiltLine {
    words: Vec<OsString>,
    shown: String,
}

impl Line<'_> {
    fn build(&self, accelerator: Accelerator, guest: &mut GuestEnds) -> Result<BuiltLine, Error> {
        let bundle_path = format!("/proc/self/fd/{}", guest.add(&self.bundle.file)?);
        let line = MachineLine {
            qemu: self.qemu,
            machine: self.options.machine,
            accelerator,
            counts_instructions: self.options.icount,
            cpu_count: self.options.cpus,
            memory_mib: match self.options.machine_memory {
                Some(bytes) => bytes.div_ceil(1 << 20),
                None => memory_mib(self.options.memory, self.bundle.size_bytes),
            },
            kernel: &self.artifacts.kernel(),
            kernel_words: &kernel_words(self.options)?,
            bundle: Path::new(&bundle_path),
            firmware: firmware_for(self.options.machine),
            ports: guest.port_fds(),
            debugger: self.debugger,
            more: &self.options.qemu_words,
            shares: self.shares,
        };
        Ok(BuiltLine { words: line.arguments(), shown: line.shell_line() })
    }
}

/// The machine's memory: what the user asked for, the bundle, and what the system itself needs.
fn memory_mib(program_bytes: u64, bundle_bytes: u64) -> u64 {
    let program_mib = program_bytes.div_ceil(1 << 20);
    program_mib + program_mib.div_ceil(OVERHEAD_SHARE) + bundle_bytes.div_ceil(1 << 20) + OVERHEAD_MIB
}

struct Parts {
    qemu: PathBuf,
    arguments: Vec<OsString>,
    host: HostEnds,
    guest: GuestEnds,
}

fn run_machine(
    options: &RunOptions,
    parts: Parts,
    accelerator: Accelerator,
    start: Instant,
    mappings: Option<Sender<Mapping>>,
) -> Result<u8, Error> {
    let mut signals = Signals::block().doing("preparing for signals")?;
    let machine = Machine::start(&parts.qemu, &parts.arguments, parts.guest)?;
    let mut stats = Stats::new(accelerator.name());
    stats.times.machine_started = Some(start.elapsed());
    let habits = Habits {
        timeout: options.timeout,
        boot_limit: BOOT_LIMIT,
        quiet: options.quiet,
        verbose: options.verbose,
        start,
    };
    let raw = if options.terminal { Some(RawTerminal::enter().doing("preparing the terminal")?) } else { None };
    let finished = relay(machine, parts.host, &mut signals, &mut stats, habits, mappings);
    // Before anything is said.
    drop(raw);
    let finished = finished?;
    let verdict = finished.ending.verdict();
    if verdict.shows_log && !options.verbose && !finished.log.is_empty() {
        eprintln!("{}", printable_lines(&finished.log).trim_end());
    }
    if let Some(line) = &verdict.line {
        eprintln!("aegis: {line}");
    }
    stats.times.wall = start.elapsed();
    stats.status = verdict.status;
    match options.stats {
        Some(StatsFormat::Text) => eprint!("{}", stats.table()),
        Some(StatsFormat::Json) => eprintln!("{}", stats.json()),
        None => {}
    }
    Ok(verdict.status)
}

#[cfg(test)]
mod tests {
    use super::{are_one_file, environment, memory_mib};
    use std::ffi::OsString;
    use std::os::fd::AsFd;

    #[test]
    fn the_last_value_of_a_variable_counts() {
        let given: Vec<OsString> = ["A=1", "PATH=/x", "A=2=3"].map(Into::into).to_vec();
        let list = environment(&["PATH=/y".into(), "LANG=C".into()], &given);
        let has = |text: &str| list.contains(&OsString::from(text));
        assert!(has("PATH=/x") && has("A=2=3") && has("HOME=/root") && has("LANG=C") && !has("A=1"));
        let paths = list.iter().filter(|it| it.to_string_lossy().starts_with("PATH="));
        assert_eq!(paths.count(), 1);
    }

    #[test]
    fn one_file_under_two_names_is_known() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let again = writer.try_clone().expect("a copy");
        assert!(are_one_file(writer.as_fd(), again.as_fd()));
        assert!(!are_one_file(writer.as_fd(), reader.as_fd()), "its two ends are not one");
        let other = std::io::pipe().expect("a pipe");
        assert!(!are_one_file(writer.as_fd(), other.1.as_fd()));
    }

    #[test]
    fn the_bundle_comes_on_top_of_the_programs_memory() {
        assert_eq!(memory_mib(256 << 20, 0), 280);
        assert_eq!(memory_mib(256 << 20, 1), 281);
        assert_eq!(memory_mib((16 << 20) + 1, 40 << 20), 74);
    }
}
