//! `aegis run`: from the command line to the exit status.
//!
//! The order of the steps is the order in which a user wants to hear of problems: the program, the root, the
//! machine. Nothing is started before everything that can be known beforehand is known.

use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Instant;

use aegis_launch::errors::{Doing, Error, STATUS_TIMEOUT};
use aegis_launch::machine::boot;
use aegis_launch::machine::process::{GuestEnds, sockets};
use aegis_launch::machine::qemu::{Driver, function_count};
use aegis_launch::root::HOSTNAME;
use aegis_link::config::{Config, Flags};
use aegis_link::control::Mapping;

use crate::options::image::ImageOptions;
use crate::options::{RunOptions, StatsFormat};
use crate::profile::{self, Profile, RootFiles, Sources};
use crate::relay::Session;
use crate::relay::pump::input_is_empty;
use crate::remote::address::{Address, NameChoice};
use crate::remote::server::ControlServer;
use crate::remote::server::channel::Channel;
use crate::remote::server::payers::Payers;
use crate::remote::server::restart::Restart;
use crate::start::file_volumes::settle_files;
use crate::start::image::settle;
use crate::start::memory::memory_mib;
use crate::start::places::{VolumesFolder, settle_places};
use crate::start::pod::{Pod, PodFiles, terminal_flags};
use crate::start::{MachineSpec, Prepared, Starter};
use crate::verb::run_named::{hands_on, in_background, is_named, run_named};

/// Runs a program; the answer is the tool's exit status.
pub(crate) fn run(options: &RunOptions, start: Instant) -> Result<u8, Error> {
    run_attended(options, start, None)
}

/// Memory of the machine: what was asked for, or enough for the pod's and the bundle.
fn machine_memory_mib(options: &RunOptions, bundle_bytes: u64) -> u64 {
    match options.machine_memory {
        Some(bytes) => bytes.div_ceil(1 << 20),
        None => memory_mib(options.pod.memory, bundle_bytes),
    }
}

/// As [`run`], in a machine that other processes find by a name, if it has one: signals and further programs reach the
/// pod by its server.
pub(crate) fn run_attended(options: &RunOptions, start: Instant, name: Option<&str>) -> Result<u8, Error> {
    // Before anything is prepared, which is the other process's business then.
    if let Some(status) = in_background(options)? {
        return Ok(status);
    }
    let cwd = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let (mut pod_options, mut words) = (options.pod.clone(), options.program_words().to_vec());
    let makes = !options.machine.dry_run;
    settle_places(&mut pod_options, &options.engine_words, &VolumesFolder::of_user(), makes)?;
    settle_files(&mut pod_options, &cwd);
    pod_options.environment.splice(0..0, options.engine_words.variables()?);
    for warning in settle(&mut pod_options, &mut words, &cwd)?.iter().filter(|_| !options.machine.quiet) {
        eprintln!("aegis: {warning}");
    }
    // A terminal is the tool's own, which has no manager in between.
    let name = name.or(options.engine_words.name.as_deref().filter(|_| options.terminal));
    if name.is_none() && is_named(options) {
        return run_named(options, pod_options, words, &cwd, start);
    }
    let mut pod = Pod::find(&pod_options, &words, &cwd)?;
    pod.tickets.clone_from(&options.tickets);
    let mut starter = Starter::find(&options.machine)?;
    let files = pod.files(starter.cache.as_ref())?;
    files.report(&options.machine);
    let library_os = starter.artifacts.flat_library_os()?;
    let network = pod.network(&starter)?;
    let disks = pod.disks()?;
    let card = network.as_ref().map(|network| &network.card);
    let function_count = function_count(&files.mounts, card, disks.0);
    starter.fit(&[function_count], false, Driver::Pod, &[pod.drivers()])?;
    let config = pod.config(&options.machine, switches(options), HOSTNAME, &files, network.as_ref())?;
    let accelerator = starter.accelerator(&library_os)?;
    let domains = pod.domains(&starter)?;
    let root = files.root.as_ref().map(|root| &root.image);
    let bundle = boot::build(&library_os, &config, &domains, root)?;
    let (host, mut guest) = sockets(1)?;
    let attended = name.map(|name| Attended::prepare(name, &pod_options.image, &config, &mut guest)).transpose()?;
    let profiled = options.profile.as_deref().map(|path| Profiled::prepare(path, &mut guest)).transpose()?;
    let spec = MachineSpec {
        cpu_count: options.cpus,
        memory_mib: machine_memory_mib(options, bundle.size_bytes),
        slice_ms: None,
        bundle: &bundle,
        driver: Driver::Pod,
        mounts: vec![&files.mounts],
        networks: vec![network],
        disks: vec![disks],
        pool: None,
        orders: None,
        sessions: attended.iter().map(|attended| attended.sessions).collect(),
        debugger: profiled.as_ref().map(|profiled| profiled.debugger),
    };
    let Some(machine) = starter.prepare(spec, accelerator, host, guest)? else { return Ok(0) };
    drop(bundle);
    let (server, _orders) = attended.map(|attended| (attended.server, attended.orders)).unzip();
    let hands_on = hands_on(options);
    let has_terminal = options.terminal;
    let mut session = Session { names: &[], has_marks: false, server, has_terminal, hands_on, start, mappings: None };
    let Some(profiled) = profiled else {
        let status = run_machine(options, &starter, machine, session)?;
        // A signal's end says nothing about files.
        let has_failed = (1..STATUS_TIMEOUT).contains(&status) && !options.machine.quiet;
        has_failed.then(|| pod.advice(&cwd)).flatten().iter().for_each(|line| eprintln!("aegis: {line}"));
        return Ok(status);
    };
    let Profiling { profile, mappings, path } = profiled.start(options, &starter, &files)?;
    session.mappings = Some(mappings);
    let status = run_machine(options, &starter, machine, session);
    let line = profile.finish(&path, &shown_program(options));
    if !options.machine.quiet {
        eprintln!("aegis: {line}");
    }
    status
}

fn run_machine(
    options: &RunOptions,
    starter: &Starter<'_>,
    machine: Prepared,
    session: Session<'_>,
) -> Result<u8, Error> {
    let start = session.start;
    let (finished, mut stats) = starter.run(machine, session)?;
    let verdict = finished.ending.verdict();
    starter.report(&verdict, &finished.log);
    stats.times.wall = start.elapsed();
    stats.status = verdict.status;
    match options.stats {
        Some(StatsFormat::Text) => eprint!("{}", stats.table()),
        Some(StatsFormat::Json) => eprintln!("{}", stats.json()),
        None => {}
    }
    Ok(verdict.status)
}

/// What the library OS is told besides what belongs to the machine.
fn switches(options: &RunOptions) -> Flags {
    let mut flags = terminal_flags();
    flags.set(Flags::TRACE, options.trace);
    flags.set(Flags::STATS, options.stats.is_some());
    flags.set(Flags::NO_REWRITE, options.no_rewrite);
    flags.set(Flags::PROFILE, options.profile.is_some());
    flags.set(Flags::TERMINAL, options.terminal);
    flags.set(Flags::INPUT_IS_EMPTY, input_is_empty());
    flags
}

/// The server of a machine that has one pod and no manager.
struct Attended {
    server: ControlServer,
    /// The machine's end of the line of sessions.
    sessions: RawFd,
    /// The manager's end of the line of orders, where nobody listens; it stays open so that nobody has hung up.
    orders: UnixStream,
}

impl Attended {
    fn prepare(name: &str, image: &ImageOptions, config: &[u8], guest: &mut GuestEnds) -> Result<Self, Error> {
        let what = "making the machine's sockets";
        let address = Address::take(&NameChoice::Exactly(name.into())).map_err(|why| Error::Usage(why.to_string()))?;
        let (orders, manager) = UnixStream::pair().doing(what)?;
        let (ours, theirs) = UnixStream::pair().doing(what)?;
        orders.set_nonblocking(true).doing(what)?;
        ours.set_nonblocking(true).doing(what)?;
        let config = Config::decode(config).map_err(|why| Error::Usage(why.to_string()))?;
        let (names, restarts) = ([name.to_owned()], vec![Restart::NO]);
        let (payers, channels) = (Payers::new(&[], vec![None]), vec![Channel::new(ours, config)]);
        let server = ControlServer::new(Some(address), &names, restarts, payers, orders, channels);
        let server = server.with_images(std::iter::once(image));
        Ok(Self { server, sessions: guest.add(&theirs.into())?, orders: manager })
    }
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

    /// Begins to sample.
    fn start(self, options: &RunOptions, starter: &Starter<'_>, files: &PodFiles) -> Result<Profiling, Error> {
        let sources = Sources {
            kernel: &starter.artifacts.kernel(),
            library_os: &starter.artifacts.library_os(),
            root: match &files.root {
                Some(root) => {
                    let file = root.image.file.try_clone().doing("opening the root image")?;
                    RootFiles::image(file, root.image.size_bytes)
                }
                None => {
                    RootFiles::Directory(files.mounts.first().map(|served| served.host.clone()).unwrap_or_default())
                }
            },
            cpu_count: options.cpus,
            rate_hz: options.profile_rate,
        };
        let (profile, mappings) = Profile::start(self.socket, sources)?;
        Ok(Profiling { profile, mappings, path: self.path })
    }
}

/// A profile that is being taken.
struct Profiling {
    profile: Profile,
    mappings: Sender<Mapping>,
    path: PathBuf,
}

/// The program and its arguments as one line.
fn shown_program(options: &RunOptions) -> String {
    let words = options.program_words().iter().map(|word| word.to_string_lossy().into_owned());
    words.collect::<Vec<_>>().join(" ")
}
