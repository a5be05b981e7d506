//! What every verb that starts a machine does: finds its parts, decides on the accelerator, makes QEMU's command line,
//! lets it run, and says what came of it.

pub(crate) mod advice;
mod drivers;
pub(crate) mod file_volumes;
pub(crate) mod image;
pub(crate) mod memory;
pub(crate) mod network;
pub(crate) mod places;
pub(crate) mod pod;
mod port_owner;
mod port_relay;
pub(crate) mod program;
mod tap;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use aegis_launch::cache::Cache;
use aegis_launch::errors::{Doing, Error};
use aegis_launch::machine::accel::{AccelChoice, Trial, choose, firmware_for};
use aegis_launch::machine::artifacts::{Artifacts, find_qemu};
use aegis_launch::machine::boot::BootBundle;
use aegis_launch::machine::disks::DiskImage;
use aegis_launch::machine::mounts::Served;
use aegis_launch::machine::network::has_user_network;
use aegis_launch::machine::process::{GuestEnds, HostEnds, Machine};
use aegis_launch::machine::qemu::{Accelerator, Driver, MachineKind, MachineLine, PodDevices};
use aegis_launch::symbols::{Line, Symbols};
use aegis_link::drivers::{Drivers, KERNEL_MEMORY_NAME, KERNEL_WORD, Model};
use clap::ValueEnum;

use crate::options::groups::{MachineOptions, WatchPlacement};
use crate::relay::ending::Verdict;
use crate::relay::signals::Signals;
use crate::relay::stats::Stats;
use crate::relay::terminal::RawTerminal;
use crate::relay::{Finished, Session, printable_lines, relay};
use crate::start::drivers::{machine_for, names_in_kernel};
use crate::start::network::{PodNetwork, Port, Relayed};
use crate::start::pod::chance;

/// What machines are started from.
pub(crate) struct Starter<'a> {
    options: &'a MachineOptions,
    kind: MachineKind,
    /// The kernel of this machine.
    kernel: PathBuf,
    /// Names of what is placed in it.
    kernel_names: Vec<&'static str>,
    /// The kernels and what runs on them.
    pub(crate) artifacts: Artifacts,
    /// Root images that were made before.
    pub(crate) cache: Option<Cache>,
    qemu: PathBuf,
}

/// A machine.
pub(crate) struct MachineSpec<'a> {
    /// Processors.
    pub(crate) cpu_count: u8,
    pub(crate) memory_mib: u64,
    /// Length of a slice, if not the kernel's choice.
    pub(crate) slice_ms: Option<u8>,
    pub(crate) bundle: &'a BootBundle,
    /// The side that drives the devices of several pods.
    pub(crate) driver: Driver,
    /// Each pod's directories.
    pub(crate) mounts: Vec<&'a [Served]>,
    /// Each pod's network, if it has one.
    pub(crate) networks: Vec<Option<PodNetwork>>,
    /// Each pod's disks, and their model.
    pub(crate) disks: Vec<(&'a [DiskImage], Model)>,
    /// The disk of which pods have parts.
    pub(crate) pool: Option<&'a DiskImage>,
    /// The line to the manager.
    pub(crate) orders: Option<RawFd>,
    /// Each pod's line of sessions; none where there are none.
    pub(crate) sessions: Vec<RawFd>,
    /// The port of a debugger.
    pub(crate) debugger: Option<RawFd>,
}

/// A machine that is about to run.
pub(crate) struct Prepared {
    words: Vec<OsString>,
    host: HostEnds,
    guest: GuestEnds,
    accelerator: Accelerator,
    /// Ports of the host, held until QEMU takes them.
    ports: Vec<Port>,
}

impl<'a> Starter<'a> {
    /// Finds everything, or says what is missing.
    pub(crate) fn find(options: &'a MachineOptions) -> Result<Self, Error> {
        let kind = options.kind.unwrap_or(MachineKind::Microvm);
        let artifacts = Artifacts::find();
        artifacts.check()?;
        let qemu = match (find_qemu(), options.dry_run) {
            (Err(Error::QemuMissing(name)), true) => name.into(),
            (found, _) => found?,
        };
        let kernel = artifacts.kernel();
        Ok(Self { options, kind, artifacts, kernel, kernel_names: Vec::new(), cache: Cache::open(), qemu })
    }

    /// Decides on a machine type with room for pods that have so many device functions, with these drivers, and
    /// perhaps for the disk of their pool.
    ///
    /// # Errors
    /// The one that was asked for has none, or none has.
    pub(crate) fn fit(
        &mut self,
        function_counts: &[usize],
        has_pool: bool,
        driver: Driver,
        drivers: &[Drivers],
    ) -> Result<(), Error> {
        self.kernel_names = names_in_kernel(drivers);
        if self.options.watch == WatchPlacement::Kernel {
            self.kernel_names.push(KERNEL_MEMORY_NAME);
        }
        self.kernel = self.artifacts.kernel_for(!self.kernel_names.is_empty())?;
        if let ([_], false) = (function_counts, has_pool) {
            self.kind = machine_for(drivers, self.options.kind, MachineKind::Microvm)?;
            return Ok(());
        }
        let usual = MachineKind::for_pods(function_counts, has_pool, driver);
        self.kind = machine_for(drivers, self.options.kind, usual)?;
        if self.kind.has_room(function_counts, has_pool, driver) {
            return Ok(());
        }
        let (beside, guarded, trusted, placed) = if has_pool { (" and a pool", 15, 2, 27) } else { ("", 23, 3, 28) };
        let microvm = match driver {
            Driver::Guard => format!("{guarded} pods, served directories and network cards together"),
            Driver::Pod => {
                format!("{trusted} that are trusted with their devices, with 6 to 7 served directories and cards each")
            }
        };
        let name = self.kind.name();
        Err(Error::Usage(format!(
            "-M {name} has no room for these pods{beside}: microvm holds {microvm}, pc and q35 {placed} together"
        )))
    }

    /// Whether QEMU can be a network.
    pub(crate) fn has_user_network(&self) -> bool {
        has_user_network(&self.qemu, self.cache.as_ref().filter(|_| !self.options.dry_run))
    }

    /// Decides what executes the machine's instructions.
    pub(crate) fn accelerator(&self, library_os: &[u8]) -> Result<Accelerator, Error> {
        let trial = Trial {
            qemu: &self.qemu,
            artifacts: &self.artifacts,
            library_os,
            machine: self.kind,
            cache: self.cache.as_ref().filter(|_| !self.options.dry_run),
        };
        let choice = choose(wanted_accelerator(self.options.accel)?, self.options.icount.is_some(), &trial)?;
        // A script's errors are its program's: the news is for somebody who looks.
        let is_news = choice.is_new && !self.options.quiet && std::io::stderr().is_terminal();
        if self.options.verbose || is_news {
            eprintln!("aegis: --accel {}: {}", choice.accelerator.name(), choice.reason);
        }
        Ok(choice.accelerator)
    }

    /// Makes QEMU's command line and shows it where that is wanted; `None` if that is all that is wanted.
    pub(crate) fn prepare(
        &self,
        spec: MachineSpec<'_>,
        accelerator: Accelerator,
        host: HostEnds,
        mut guest: GuestEnds,
    ) -> Result<Option<Prepared>, Error> {
        let bundle_path = format!("/proc/self/fd/{}", guest.add(&spec.bundle.file)?);
        let sessions = spec.sessions.iter().copied().map(Some).chain(std::iter::repeat(None));
        let cards = spec.networks.iter().map(|network| network.as_ref().map(|network| &network.card));
        let devices =
            |((((ports, mounts), sessions), card), disks)| PodDevices { ports, sessions, mounts, card, disks };
        let disks = spec.disks.iter().copied();
        let ports = guest.port_fds().into_iter();
        let pods = ports.zip(spec.mounts.iter().copied()).zip(sessions).zip(cards).zip(disks).map(devices);
        let pods: Vec<PodDevices<'_>> = pods.collect();
        let line = MachineLine {
            qemu: &self.qemu,
            machine: self.kind,
            accelerator,
            icount_shift: self.options.icount,
            cpu_count: spec.cpu_count,
            memory_mib: spec.memory_mib,
            kernel: &self.kernel,
            kernel_words: &kernel_words(self.options, spec.slice_ms, &self.kernel_names)?,
            bundle: Path::new(&bundle_path),
            firmware: firmware_for(self.kind),
            log: guest.log_fd(),
            pods: &pods,
            pool: spec.pool,
            driver: spec.driver,
            orders: spec.orders,
            debugger: spec.debugger,
            more: &self.options.qemu_words,
        };
        if self.options.dry_run {
            println!("{}", line.shell_line());
            return Ok(None);
        }
        if self.options.verbose {
            eprintln!("aegis: {}", line.shell_line());
        }
        let words = line.arguments();
        let ports = spec.networks.into_iter().flatten().flat_map(|network| network.ports).collect();
        Ok(Some(Prepared { words, host, guest, accelerator, ports }))
    }

    /// Runs the machine; the answer comes when it has ended.
    pub(crate) fn run(&self, machine: Prepared, session: Session<'_>) -> Result<(Finished, Stats), Error> {
        let Prepared { words, host, guest, accelerator, ports } = machine;
        let mut signals = Signals::block().doing("preparing for signals")?;
        ports.iter().filter(|port| port.is_chosen).for_each(|port| eprintln!("aegis: {port}"));
        let listening: Vec<_> = ports.iter().filter_map(Port::listening).collect();
        let relayed: Vec<_> = ports.into_iter().filter_map(Port::release).collect();
        let machine = Machine::start(&self.qemu, &words, guest)?;
        machine.widen_backlogs(listening);
        relayed.into_iter().try_for_each(Relayed::start)?;
        let mut stats = Stats::new(accelerator.name());
        stats.times.machine_started = Some(session.start.elapsed());
        let raw = session.has_terminal.then(|| RawTerminal::enter().doing("preparing the terminal")).transpose()?;
        let finished = relay(machine, host, self.options, session, &mut signals, &mut stats);
        // Before anything is said.
        drop(raw);
        Ok((finished?, stats))
    }

    /// Says what a verdict has to say.
    pub(crate) fn report(&self, verdict: &Verdict, log: &[u8]) {
        if verdict.shows_log && !log.is_empty() {
            let kernel = std::fs::read(&self.kernel).unwrap_or_default();
            let named = Symbols::of_elf(&kernel, 0).name_addresses(&printable_lines(log));
            // What was shown as it came is not shown again but for what has got a name.
            let is_new = |line: &&Line| !self.options.verbose || line.is_named;
            for line in named.iter().filter(is_new) {
                eprintln!("{}", line.text);
            }
        }
        if let Some(line) = &verdict.line {
            eprintln!("aegis: {line}");
        }
    }
}

/// What was asked for on the command line, or else by `AEGIS_ACCEL`.
fn wanted_accelerator(option: AccelChoice) -> Result<AccelChoice, Error> {
    match std::env::var_os("AEGIS_ACCEL").filter(|_| option == AccelChoice::Auto) {
        Some(text) if !text.is_empty() => {
            let choice = text.to_str().and_then(|text| AccelChoice::from_str(text, false).ok());
            choice.ok_or_else(|| Error::Usage(format!("AEGIS_ACCEL={}: one of auto, kvm and tcg", text.display())))
        }
        _ => Ok(option),
    }
}

/// The kernel's command line. With `--icount` the draws are those of the kernel's fixed key or of `--seed`, so that a
/// run is repeatable.
fn kernel_words(options: &MachineOptions, slice_ms: Option<u8>, names: &[&str]) -> Result<String, Error> {
    let mut words = Vec::new();
    if options.verbose {
        words.push("log=info".to_owned());
    }
    if options.icount.is_none() || options.seed.is_some() {
        let digits = chance(options)?[..16].iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        words.push(format!("lottery={digits}"));
    }
    words.extend(slice_ms.map(|slice_ms| format!("slice_ms={slice_ms}")));
    if !names.is_empty() {
        words.push(format!("{KERNEL_WORD}={}", names.join(",")));
    }
    Ok(words.join(" "))
}
