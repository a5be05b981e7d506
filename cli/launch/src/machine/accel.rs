//! Which accelerator a run gets, and the trial that `--accel auto` rests on.
//!
//! A machine can have `/dev/kvm` and still not run this kernel (nested virtualisation, missing processor
//! features), so the device proves nothing. The trial boots the kernel and exos once under KVM and waits for
//! a line on the control port. The verdict holds for this build, this machine type and this boot of the host,
//! and is remembered; later runs read a file.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ChildStderr;
use std::time::{Duration, Instant};

use aegis_link::config::Config;
use aegis_link::control::FromGuest;
use aegis_link::frame::FrameBuffer;
use clap::ValueEnum;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use aegis_link::drivers::Model;

use crate::cache::{Cache, KeyHasher};
use crate::errors::Error;
use crate::machine::artifacts;
use crate::machine::artifacts::Artifacts;
use crate::machine::boot;
use crate::machine::process::{Machine, sockets};
use crate::machine::qemu::{Accelerator, Driver, MachineKind, MachineLine, PodDevices};

/// `--accel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AccelChoice {
    /// KVM if a tiny guest has really run under it here, else TCG
    Auto,
    /// The processor itself; needs /dev/kvm
    Kvm,
    /// QEMU's translator; works everywhere
    Tcg,
}

/// The longest time that the trial may take.
const TRIAL_LIMIT: Duration = Duration::from_secs(2);
/// Why KVM is not tried where it is nested.
pub const NESTED: &str =
    "this host is a virtual machine, where KVM is not tried unasked (AEGIS_ACCEL=kvm, --accel kvm)";
/// Name of the remembered verdict.
const NOTE: &str = "accel";
/// The host's device.
pub const KVM_DEVICE: &str = "/dev/kvm";

/// A decision.
#[derive(Debug)]
pub struct Choice {
    /// The accelerator that the machine is started with.
    pub accelerator: Accelerator,
    /// Why, in a few words.
    pub reason: String,
    /// It was tried just now, so the user should hear of it once.
    pub is_new: bool,
}

impl Choice {
    fn known(accelerator: Accelerator, reason: &str) -> Self {
        Self { accelerator, reason: reason.to_string(), is_new: false }
    }
}

/// Decides for a run.
pub fn choose(wanted: AccelChoice, counts_instructions: bool, trial: &Trial<'_>) -> Result<Choice, Error> {
    match wanted {
        AccelChoice::Tcg => Ok(Choice::known(Accelerator::Tcg, "asked for")),
        AccelChoice::Kvm if counts_instructions => Err(Error::Usage("--icount needs --accel tcg".into())),
        AccelChoice::Kvm => match open_device() {
            Ok(()) => Ok(Choice::known(Accelerator::Kvm, "asked for")),
            Err(why) => Err(Error::KvmUnusable(why)),
        },
        AccelChoice::Auto if counts_instructions => Ok(Choice::known(Accelerator::Tcg, "--icount needs it")),
        AccelChoice::Auto => Ok(choose_by_trial(trial)),
    }
}

/// What a trial needs.
#[derive(Debug)]
pub struct Trial<'a> {
    /// QEMU's binary.
    pub qemu: &'a Path,
    /// Kernel and exos.
    pub artifacts: &'a Artifacts,
    /// exos, flat.
    pub library_os: &'a [u8],
    /// Machine type.
    pub machine: MachineKind,
    /// Where verdicts are kept.
    pub cache: Option<&'a Cache>,
}

/// Whether this host is itself a virtual machine, as the processor says (`hypervisor` among the flags).
pub fn is_nested() -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines().find(|line| line.starts_with("flags")).is_some_and(|line| line.split(' ').any(|it| it == "hypervisor"))
}

fn choose_by_trial(trial: &Trial<'_>) -> Choice {
    if let Err(why) = open_device() {
        return Choice::known(Accelerator::Tcg, &why);
    }
    // A trial boots a machine, which nested virtualisation may not survive, and nobody has asked for it.
    if is_nested() {
        return Choice::known(Accelerator::Tcg, NESTED);
    }
    // Without a memory of the verdict every run would pay for a trial.
    let Some(cache) = trial.cache else {
        return Choice::known(Accelerator::Tcg, "no cache directory to remember a KVM trial in");
    };
    let key = trial.key();
    let notes = cache.note(NOTE).unwrap_or_default();
    if let Some(works) = verdict_in(&notes, &key) {
        return Choice::known(
            if works { Accelerator::Kvm } else { Accelerator::Tcg },
            if works { "KVM was tried and works" } else { "KVM was tried and does not work" },
        );
    }
    let works = trial.run();
    cache.set_note(NOTE, &with_verdict(&notes, &key, works.is_ok()));
    match works {
        Ok(()) => {
            Choice { accelerator: Accelerator::Kvm, reason: "KVM was tried here, and works".into(), is_new: true }
        }
        Err(Error::KvmUnusable(why)) => {
            Choice { accelerator: Accelerator::Tcg, reason: format!("KVM was tried here, and {why}"), is_new: true }
        }
        Err(error) => {
            Choice { accelerator: Accelerator::Tcg, reason: format!("KVM could not be tried: {error}"), is_new: true }
        }
    }
}

/// Opens and closes `/dev/kvm`; the error is for people.
pub fn open_device() -> Result<(), String> {
    match File::options().read(true).write(true).open(KVM_DEVICE) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(format!("there is no {KVM_DEVICE}")),
        Err(error) => Err(format!("{KVM_DEVICE}: {error}; are you in the group kvm?")),
    }
}

/// How many verdicts are kept: a few builds and machine types.
const VERDICT_COUNT_MAX: usize = 16;

fn verdict_in(notes: &str, key: &str) -> Option<bool> {
    notes.lines().find_map(|line| match line.split_once(' ') {
        Some((known, "kvm")) if known == key => Some(true),
        Some((known, "tcg")) if known == key => Some(false),
        _ => None,
    })
}

fn with_verdict(notes: &str, key: &str, works: bool) -> String {
    let verdict = if works { "kvm" } else { "tcg" };
    let old = notes.lines().take(VERDICT_COUNT_MAX - 1).map(|line| format!("{line}\n"));
    format!("{key} {verdict}\n{}", old.collect::<String>())
}

impl Trial<'_> {
    /// Names the build by its files, not by their bytes, which would take longer than the machine's start.
    fn key(&self) -> String {
        let mut hasher = KeyHasher::default();
        for path in [self.artifacts.kernel(), self.artifacts.library_os(), self.qemu.into()] {
            hasher.add(path.as_os_str().as_encoded_bytes());
            if let Ok(metadata) = std::fs::metadata(&path) {
                hasher.add_u64(metadata.len()).add(&metadata.mtime().to_le_bytes());
                hasher.add(&metadata.mtime_nsec().to_le_bytes());
            }
        }
        hasher.add(format!("{:?}", self.machine).as_bytes());
        let boot_id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        format!("{:032x}", hasher.add(&boot_id).key())
    }

    /// Boots once. exos says `hello` before it looks for the program, and there is none.
    fn run(&self) -> Result<(), Error> {
        let config = Config { program: b"/".to_vec(), ..Config::default() }
            .encode()
            .map_err(|why| Error::Usage(why.to_string()))?;
        let bundle = boot::build(self.library_os, &config, &[], None)?;
        let (host, mut guest) = sockets(1)?;
        let bundle_path = format!("/proc/self/fd/{}", guest.add(&bundle.file)?);
        let pods: Vec<_> = guest
            .port_fds()
            .into_iter()
            .map(|ports| PodDevices { ports, sessions: None, mounts: &[], card: None, disks: (&[], Model::Virtio) })
            .collect();
        let line = MachineLine {
            qemu: self.qemu,
            machine: self.machine,
            accelerator: Accelerator::Kvm,
            icount_shift: None,
            cpu_count: 1,
            memory_mib: 64,
            kernel: &self.artifacts.kernel(),
            kernel_words: "",
            bundle: Path::new(&bundle_path),
            firmware: firmware_for(self.machine),
            log: guest.log_fd(),
            pods: &pods,
            pool: None,
            driver: Driver::Pod,
            orders: None,
            debugger: None,
            more: &[],
        };
        // Dropping it at the end of this function ends the trial's machine.
        let mut machine = Machine::start(self.qemu, &line.arguments(), guest)?;
        let errors = machine.take_errors();
        match host.pods.first().and_then(|pod| first_line(&pod.control, errors.as_ref())) {
            Some(line) if FromGuest::parse(&line).is_ok() => Ok(()),
            _ => Err(Error::KvmUnusable("the machine did not come up".into())),
        }
    }
}

/// The first line on the control port; `None` if it does not come in time, or QEMU says that KVM has failed:
/// then QEMU stops the machine and lives on.
fn first_line(control: &UnixStream, errors: Option<&ChildStderr>) -> Option<Vec<u8>> {
    let deadline = Instant::now() + TRIAL_LIMIT;
    let mut line: Option<Vec<u8>> = None;
    let mut frames = FrameBuffer::new();
    let mut complaints = Vec::new();
    let mut buffer = [0; 4096];
    while line.is_none() {
        let left = deadline.checked_duration_since(Instant::now())?;
        let timeout = Timespec::try_from(left).ok()?;
        let mut fds = vec![PollFd::new(control, PollFlags::IN)];
        fds.extend(errors.map(|errors| PollFd::new(errors, PollFlags::IN)));
        poll(&mut fds, Some(&timeout)).ok()?;
        let has_news = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        let (spoke, complained) = (has_news(0), has_news(1));
        if spoke {
            let length = rustix::io::read(control, &mut buffer).ok().filter(|length| *length > 0)?;
            frames.push(&buffer[..length]);
            line = frames.next_frame().ok()?.map(|frame| frame.contents.to_vec());
        }
        if let (true, Some(errors)) = (complained, errors) {
            let length = rustix::io::read(errors, &mut buffer).ok().filter(|length| *length > 0)?;
            complaints.extend_from_slice(&buffer[..length]);
            if is_kvm_failure(&complaints) {
                return None;
            }
        }
    }
    line
}

/// QEMU's words when KVM can go no further with a machine.
pub fn is_kvm_failure(qemu_errors: &[u8]) -> bool {
    String::from_utf8_lossy(qemu_errors).contains("KVM internal error")
}

/// The firmware option for a machine type; microvm starts through qboot by itself.
pub fn firmware_for(machine: MachineKind) -> Option<&'static Path> {
    match machine {
        MachineKind::Microvm => None,
        MachineKind::Pc | MachineKind::Q35 => artifacts::find_qboot(),
    }
}

#[cfg(test)]
mod tests {
    use super::{VERDICT_COUNT_MAX, verdict_in, with_verdict};

    #[test]
    fn verdicts_are_remembered_by_key() {
        let notes = with_verdict("", "a", true);
        let notes = with_verdict(&notes, "b", false);
        assert_eq!(verdict_in(&notes, "a"), Some(true));
        assert_eq!(verdict_in(&notes, "b"), Some(false));
        assert_eq!(verdict_in(&notes, "c"), None);
        assert_eq!(verdict_in("a maybe\nrubbish", "a"), None);
    }

    #[test]
    fn old_verdicts_are_forgotten() {
        let mut notes = String::new();
        for n in 0..3 * VERDICT_COUNT_MAX {
            notes = with_verdict(&notes, &n.to_string(), true);
        }
        assert_eq!(notes.lines().count(), VERDICT_COUNT_MAX);
        assert_eq!(verdict_in(&notes, "0"), None);
        assert_eq!(verdict_in(&notes, &(3 * VERDICT_COUNT_MAX - 1).to_string()), Some(true));
    }
}
