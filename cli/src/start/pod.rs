//! One program and what belongs to it: found on the host, packed, and described to its library OS.
//!
//! `aegis run` has one, `aegis up` one for each pod of its file.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use aegis_launch::cache::Cache;
use aegis_launch::errors::{Doing, Error};
use aegis_launch::machine::disks::DiskImage;
use aegis_launch::machine::mounts::{RootChanges, Served, Volume, serve};
use aegis_launch::root::system::holds;
use aegis_launch::root::{Prepared, Source, is_directory, prepare, working_directory};
use aegis_link::config::{Config, Flags, MOUNT_COUNT_MAX, Tickets};
use aegis_link::drivers::{Drivers, Model, PART_DISK_DOMAIN, PART_NET_DOMAIN, Placement, Role};

use crate::options::drivers::drivers;
use crate::options::groups::{MachineOptions, PodOptions};
use crate::options::values::with_values;
use crate::start::Starter;
use crate::start::advice::{Shown, advice};
use crate::start::network::{PodNetwork, etc_files, names};
use crate::start::program::{absolute, locate, looks_around};

/// The program's PATH, and where a host program is looked for when this process has no PATH.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/sys/fs/lottery";
/// The wall-clock time of a run with `--icount`, the same as QEMU's `-rtc base=2026-01-01T00:00:00`.
const ICOUNT_REALTIME_NS: u64 = 1_767_225_600 * 1_000_000_000;
/// The random seed of a run with `--icount`.
const ICOUNT_SEED: [u8; 32] = [1; 32];

/// A program that was found.
#[derive(Debug)]
pub(crate) struct Pod<'a> {
    options: &'a PodOptions,
    words: &'a [OsString],
    program: ProgramPath,
    working_directory: PathBuf,
    /// Directories of this host that show where the root's image has nothing.
    layers: Vec<PathBuf>,
    /// Directories of this host that are mounted.
    volumes: Vec<Volume>,
    /// What its program is funded with.
    pub(crate) tickets: Option<Tickets>,
}

#[derive(Debug)]
pub(crate) struct PodFiles {
    /// Its root image, unless the root is served live.
    pub(crate) root: Option<Prepared>,
    /// Directories that are served live.
    pub(crate) mounts: Vec<Served>,
}

impl<'a> Pod<'a> {
    /// Finds the program `words[0]`; relative names are relative to `base`.
    pub(crate) fn find(options: &'a PodOptions, words: &'a [OsString], base: &Path) -> Result<Self, Error> {
        let here = options.view.volume(base)?;
        let is_at_base = here.is_some() || is_host_root(options);
        let default = if is_at_base { base } else { Path::new("/") };
        let working_directory = working_directory(options.working_directory.as_deref().unwrap_or(default))?;
        let mut layers = match &options.root {
            None => options.view.system(),
            Some(_) if is_host_root(options) && !options.pack && !options.with.is_empty() => vec!["/".into()],
            Some(_) => Vec::new(),
        };
        // What was asked for by name has its place first; a machine has so many.
        layers.truncate(MOUNT_COUNT_MAX.saturating_sub(options.volumes.len() + usize::from(here.is_some())));
        let program = find_program(options, words.first().map_or(OsStr::new(""), |name| name), base, &layers)?;
        let volumes = options.volumes.iter().cloned().chain(here).collect();
        Ok(Self { options, words, program, working_directory, layers, volumes, tickets: None })
    }

    /// Packs its root, or finds it in the cache.
    pub(crate) fn files(&self, cache: Option<&Cache>) -> Result<PodFiles, Error> {
        let live_root = live_root(self.options)?;
        let changes = if self.options.write_root { RootChanges::Written } else { RootChanges::InMemory };
        if self.options.write_root {
            match live_root {
                Some(root) if std::fs::canonicalize(root).is_ok_and(|root| root != Path::new("/")) => {}
                _ => return Err(Error::Usage("--write-root wants --root DIR, which is not / itself".into())),
            }
        }
        let mounts = serve(live_root.map(|root| (root, changes)), &self.layers, &self.volumes)?;
        let root = match live_root {
            Some(_) => None,
            None => Some(prepare(self.source(), &self.options.with, cache)?),
        };
        Ok(PodFiles { root, mounts })
    }

    /// Makes its network.
    pub(crate) fn network(&self, starter: &Starter<'_>) -> Result<Option<PodNetwork>, Error> {
        let machine = starter.options;
        let is_named = self.options.drivers.iter().any(|option| option.role == Role::Net);
        let model = is_named.then(|| self.drivers().net.model);
        PodNetwork::make(&self.options.network, machine, model, &chance(machine)?, &|| starter.has_user_network())
    }

    /// Its disks' images, which have been looked at, and what model they are.
    ///
    /// # Errors
    /// One that cannot be a disk.
    pub(crate) fn disks(&self) -> Result<(&'a [DiskImage], Model), Error> {
        let model = self.drivers().disk.model;
        self.options.disks.check(self.drivers().disk)?;
        Ok((&self.options.disks.disks, model))
    }

    /// Its drivers.
    pub(crate) fn drivers(&self) -> Drivers {
        Drivers {
            disk_fault: self.options.fault_disk_domain,
            net_fault: self.options.fault_net_domain,
            ..drivers(&self.options.drivers)
        }
    }

    /// The images of domains that its drivers are placed in, with their kinds of part.
    pub(crate) fn domains(&self, starter: &Starter<'_>) -> Result<Vec<(u32, Vec<u8>)>, Error> {
        let drivers = self.drivers();
        let mut images = Vec::new();
        if drivers.disk.placement == Placement::Domain {
            images.push((PART_DISK_DOMAIN, starter.artifacts.flat_disk_domain()?));
        }
        if drivers.net.placement == Placement::Domain {
            images.push((PART_NET_DOMAIN, starter.artifacts.flat_net_domain()?));
        }
        Ok(images)
    }

    fn source(&self) -> Source<'_> {
        let program = self.program.host.as_ref().unwrap_or(&self.program.guest);
        match &self.options.root {
            Some(_) if !self.layers.is_empty() => Source::OverHost,
            Some(path) => Source::Given(path),
            None if self.layers.is_empty() => Source::Program(program),
            None => Source::InSystem(program),
        }
    }

    /// A line about the words of a program that ended with an error, if there is something to say.
    pub(crate) fn advice(&self, current: &Path) -> Option<String> {
        let with = self.options.with.iter();
        let (elsewhere, same): (Vec<_>, Vec<_>) = with.partition(|with| with.guest.is_some());
        let shown = Shown {
            same: self
                .layers
                .iter()
                .cloned()
                .chain(same.into_iter().map(|with| absolute(&with.host, current)))
                .collect(),
            others: self
                .volumes
                .iter()
                .map(|volume| volume.guest.clone())
                .chain(elsewhere.into_iter().filter_map(|with| with.guest.clone()))
                .collect(),
            working_directory: self.working_directory.clone(),
            is_clear: self.options.root.is_some(),
        };
        advice(self.words, &shown, current)
    }

    fn environment(&self) -> Vec<Vec<u8>> {
        let list = environment(&inherited(self.options), &self.options.environment);
        list.into_iter().map(OsString::into_vec).collect()
    }

    /// What its library OS is told. `switches` are those of the run besides the machine's.
    pub(crate) fn config(
        &self,
        machine: &MachineOptions,
        switches: Flags,
        hostname: &[u8],
        files: &PodFiles,
        network: Option<&PodNetwork>,
    ) -> Result<Vec<u8>, Error> {
        let bytes = |text: &OsStr| text.as_bytes().to_vec();
        let hostname = self.options.network.hostname.as_ref().map_or(hostname, |name| name.as_bytes());
        let mut flags = switches | etc_files(self.options, hostname, network);
        flags.set(Flags::READ_ONLY_ROOT, self.options.read_only);
        let image = &self.options.image;
        flags.set(Flags::INIT, image.first_process || image.image.is_some() && !image.init);
        flags.set(Flags::VERBOSE, machine.verbose);
        flags.set(Flags::QUIET, machine.quiet);
        flags.set(Flags::STDERR_IS_STDOUT, are_one_file(std::io::stdout().as_fd(), std::io::stderr().as_fd()));
        let realtime_start_ns = if machine.icount.is_some() { ICOUNT_REALTIME_NS } else { realtime_ns() };
        let random_seed = chance(machine)?;
        let size = rustix::termios::tcgetwinsize(std::io::stdout())
            .or_else(|_| rustix::termios::tcgetwinsize(std::io::stdin()));
        let (terminal_rows, terminal_columns) = size.map_or((0, 0), |size| (size.ws_row, size.ws_col));
        let config = Config {
            program: bytes(self.program.guest.as_os_str()),
            arguments: self.words.iter().map(|word| bytes(word)).collect(),
            environment: self.environment(),
            working_directory: bytes(self.working_directory.as_os_str()),
            flags,
            memory_limit_bytes: self.options.memory,
            realtime_start_ns,
            random_seed,
            terminal_rows,
            terminal_columns,
            uid: self.options.image.identity.uid,
            gid: self.options.image.identity.gid,
            groups: self.options.image.identity.groups.clone(),
            hostname: hostname.to_vec(),
            temporaries: self.options.temporaries.clone(),
            rights: self.options.rights.clone(),
            mounts: files.mounts.iter().map(|served| served.mount.clone()).collect(),
            tickets: self.tickets.clone(),
            network: network.map(|network| network.config.clone()),
            names: names(self.options, network),
            drivers: self.drivers(),
            disks: self.options.disks.config(),
        };
        config.encode().map_err(|why| Error::Usage(why.to_string()))
    }
}

impl PodFiles {
    /// Tells the user what is in the root, as far as the options ask for it.
    pub(crate) fn report(&self, machine: &MachineOptions) {
        if machine.verbose {
            for served in &self.mounts {
                eprintln!("aegis: {} is served live", served.host.display());
            }
        }
        let Some(root) = &self.root else { return };
        if !machine.quiet {
            for warning in &root.warnings {
                eprintln!("aegis: {warning}");
            }
        }
        if machine.verbose {
            let how = if root.was_cached { "from the cache" } else { "written" };
            eprintln!("aegis: root image of {} KiB, {how}", root.image.size_bytes >> 10);
        }
    }
}

/// Which of the tool's standard streams are terminals.
pub(crate) fn terminal_flags() -> Flags {
    let mut flags = Flags::empty();
    flags.set(Flags::STDIN_IS_TERMINAL, std::io::stdin().is_terminal());
    flags.set(Flags::STDOUT_IS_TERMINAL, std::io::stdout().is_terminal());
    flags.set(Flags::STDERR_IS_TERMINAL, std::io::stderr().is_terminal());
    flags
}

#[derive(Debug, PartialEq, Eq)]
struct ProgramPath {
    /// On the host; `None` with `--root`.
    host: Option<PathBuf>,
    /// In the machine. A bare name is looked up there by exos.
    guest: PathBuf,
}

/// With `--root`, exos looks for PROGRAM in the root. Else it is a program of the host, by the path that it
/// has there or by the one that a `--with` or `-v` gives it.
fn find_program(options: &PodOptions, name: &OsStr, base: &Path, system: &[PathBuf]) -> Result<ProgramPath, Error> {
    if name.is_empty() {
        return Err(Error::Usage("PROGRAM is empty".into()));
    }
    if options.root.is_some() {
        return Ok(ProgramPath { host: None, guest: name.into() });
    }
    let search = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let with = options.with.iter().filter_map(|with| Some((&with.host, with.guest.as_ref()?)));
    let volumes = options.volumes.iter().map(|volume| (&volume.host, &volume.guest));
    for (from, guest) in with.chain(volumes) {
        if let Ok(rest) = Path::new(name).strip_prefix(guest) {
            // Joining an empty path would add a slash.
            let host = if rest == Path::new("") { from.clone() } else { from.join(rest) };
            let host = locate(absolute(&host, base).as_os_str(), &search, base)?;
            return Ok(ProgramPath { host: Some(host), guest: name.into() });
        }
    }
    let host = locate(name, &search, base)?;
    // A name for a program outside of the system, such as a version manager's: it finds nothing of what it came with.
    let is_lost = !system.is_empty() && !is_path(name) && !holds(system, &host) && looks_around(&host);
    let inside = || {
        let search = std::env::split_paths(&search).filter(|directory| holds(system, &absolute(directory, base)));
        locate(name, &std::env::join_paths(search).ok()?, base).ok()
    };
    let host = if is_lost { inside().unwrap_or(host) } else { host };
    Ok(ProgramPath { guest: host.clone(), host: Some(host) })
}

fn is_path(name: &OsStr) -> bool {
    name.as_bytes().contains(&b'/')
}

/// Whether the root is this host's own.
fn is_host_root(options: &PodOptions) -> bool {
    options.root.as_deref().is_some_and(|root| root == Path::new("/"))
}

/// The directory that is the root live. With `--pack` or `--with` it is packed into an image like every other root.
fn live_root(options: &PodOptions) -> Result<Option<&Path>, Error> {
    match &options.root {
        Some(path) if !options.pack && options.with.is_empty() && is_directory(path)? => Ok(Some(path)),
        _ => Ok(None),
    }
}

/// Whether what is written to both comes out in one order: two names of one file that was opened once, as far as
/// can be told from outside.
fn are_one_file(output: BorrowedFd<'_>, errors: BorrowedFd<'_>) -> bool {
    let identity = |file| rustix::fs::fstat(file).ok().map(|status| (status.st_dev, status.st_ino, status.st_rdev));
    let flags = |file| rustix::fs::fcntl_getfl(file).ok();
    identity(output).is_some() && identity(output) == identity(errors) && flags(output) == flags(errors)
}

/// Variables of the host that the program gets without asking: TERM, and where the root is the host's own also those
/// that say where its programs and texts are. Behind those come the commands that exos has itself.
fn inherited(options: &PodOptions) -> Vec<OsString> {
    let is_own_root = is_host_root(options) || (options.root.is_none() && !options.view.bare);
    let is_kept = |name: &OsStr| match name.as_bytes() {
        b"TERM" => true,
        b"PATH" | b"LANG" | b"LANGUAGE" | b"TZ" => is_own_root,
        name => is_own_root && name.starts_with(b"LC_"),
    };
    let kept = std::env::vars_os().filter(|(name, _)| is_kept(name));
    let variable = |(name, mut value): (OsString, OsString)| {
        if name == "PATH" {
            value.push(":/sys/fs/lottery");
        }
        [name, value].join(OsStr::new("="))
    };
    kept.map(variable).collect()
}

/// A small environment of its own, not the host's: PATH and HOME, then what is inherited, then `-e`. Of several values
/// of one variable the last counts.
fn environment(inherited: &[OsString], given: &[OsString]) -> Vec<OsString> {
    let mut list: Vec<OsString> = vec![format!("PATH={DEFAULT_PATH}").into(), "HOME=/root".into()];
    let given = with_values(given.to_vec(), std::env::vars_os());
    for variable in inherited.iter().chain(&given) {
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

/// What chance in the machine follows from: bytes that nobody can guess, or those that make a run repeatable.
pub(crate) fn chance(machine: &MachineOptions) -> Result<[u8; 32], Error> {
    let mut seed = [0; 32];
    if let Some(number) = machine.seed {
        seed[..8].copy_from_slice(&number.to_le_bytes());
        return Ok(seed);
    }
    if machine.icount.is_some() {
        return Ok(ICOUNT_SEED);
    }
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut seed))
        .doing("reading /dev/urandom")?;
    Ok(seed)
}

#[cfg(test)]
mod tests {
    use super::{are_one_file, environment};
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
}
