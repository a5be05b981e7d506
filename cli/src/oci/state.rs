//! What is known of a container: a directory of its own under the runtime's root.
//!
//! | file | what |
//! |---|---|
//! | `config.json` | the bundle's configuration as it was at `create`; later edits count for nothing |
//! | `state.json` | identifier, bundle, monitor |
//! | `creation` | locked while `create` runs |
//! | `created` | there once `create` has done all |
//! | `start` | the socket at which the monitor waits for `start` |
//! | `started` | there once `start` was heard |
//! | `aegis/container.sock` | the machine's own socket (`remote`) |
//!
//! Whether a container runs is asked of its monitor's process: its number and when it started.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::oci::errors::{OciError, Result, WhileDoing};
use crate::oci::spec::Spec;

/// Longest configuration that is read.
const CONFIG_BYTES_MAX: u64 = 4 << 20;
/// Longest identifier.
const ID_BYTES_MAX: usize = 128;
/// The machine's name at its socket, and the pod's.
pub(crate) const MACHINE: &str = "container";

/// The file that is locked while `create` runs, and the one that it writes last.
const CREATION: &str = "creation";
pub(crate) const CREATED: &str = "created";

/// The directory of a container.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) id: String,
    pub(crate) directory: PathBuf,
}

/// What is written down.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) oci_version: String,
    pub(crate) bundle: PathBuf,
    pub(crate) rootfs: PathBuf,
    pub(crate) pid: u32,
    /// When the monitor started, in ticks since the host's start.
    pid_start: u64,
    created: String,
    pub(crate) annotations: BTreeMap<String, String>,
    /// It holds a pod's namespaces and has no machine.
    pub(crate) is_sandbox: bool,
}

/// Where in its life a container is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Created,
    Running,
    Stopped,
}

impl Status {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Stopped => "stopped",
        }
    }
}

/// The runtime's root where nobody says one.
pub(crate) fn default_root() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !rustix::process::geteuid().is_root());
    runtime.map_or_else(|| "/run/aegis-oci".into(), |path| PathBuf::from(path).join("aegis-oci"))
}

impl Place {
    /// The place of an identifier, which becomes part of a path.
    pub(crate) fn new(root: &Path, id: &str) -> Result<Self> {
        let is_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-.".contains(&byte);
        let is_id = (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_byte) && !matches!(id, "." | "..");
        if !is_id {
            return Err(OciError::Usage(format!("{id:?}: an identifier is letters, digits, and any of _+-.")));
        }
        Ok(Self { id: id.into(), directory: root.join(id) })
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Makes the directory.
    pub(crate) fn make(&self) -> Result<()> {
        if let Some(root) = self.directory.parent() {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o700).create(root).while_doing(|| root.display().to_string())?;
        }
        match fs::DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(OciError::State(self.id.clone(), "exists already"))
            }
            made => made.while_doing(|| self.directory.display().to_string()),
        }
    }

    pub(crate) fn remove(&self) -> Result<()> {
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(OciError::Io(self.directory.display().to_string(), error))
            }
            _ => Ok(()),
        }
    }

    /// Locks the creation, until the answer is dropped or this process ends.
    pub(crate) fn hold(&self) -> Result<OwnedFd> {
        self.lock(FlockOperation::LockExclusive)
    }

    /// Waits until the creation is over; whether all of it was done.
    pub(crate) fn wait_for_creation(&self) -> Result<bool> {
        self.lock(FlockOperation::LockShared).map(|_| self.file(CREATED).exists())
    }

    fn lock(&self, operation: FlockOperation) -> Result<OwnedFd> {
        let path = self.file(CREATION);
        let file = fs::File::options().append(true).create(true).open(&path);
        let file = file.while_doing(|| path.display().to_string())?;
        loop {
            match flock(&file, operation) {
                Err(Errno::INTR) => {}
                locked => break locked.while_doing(|| path.display().to_string())?,
            }
        }
        Ok(file.into())
    }

    /// A file that appears whole.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        write_whole(&self.file(name), bytes)
    }

    pub(crate) fn load(&self) -> Result<State> {
        let path = self.file("state.json");
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(OciError::DoesNotExist(self.id.clone()));
            }
            read => read.while_doing(|| path.display().to_string())?,
        };
        serde_json::from_slice(&bytes).map_err(|error| OciError::Document(path, error.to_string()))
    }

    pub(crate) fn store(&self, state: &State) -> Result<()> {
        self.write("state.json", json!(state).to_string().as_bytes())
    }

    /// The configuration as it was.
    pub(crate) fn spec(&self) -> Result<Spec> {
        let path = self.file("config.json");
        Spec::parse(&path, &read_bounded(&path)?)
    }

    pub(crate) fn status(&self, state: &State) -> Status {
        if !state.is_alive() {
            Status::Stopped
        } else if self.file("started").exists() {
            Status::Running
        } else {
            Status::Created
        }
    }

    /// The document that the specification calls the state.
    pub(crate) fn shown(&self, state: &State, status: &str) -> Value {
        json!({
            "ociVersion": state.oci_version,
            "id": self.id,
            "status": status,
            "pid": if status == "stopped" { 0 } else { state.pid },
            "bundle": state.bundle,
            "annotations": state.annotations,
            "rootfs": state.rootfs,
            "created": state.created,
            "owner": "",
        })
    }
}

impl State {
    pub(crate) fn new(spec: &Spec, bundle: &Path, pid: u32) -> Result<Self> {
        Ok(Self {
            oci_version: spec.oci_version.clone(),
            bundle: bundle.into(),
            rootfs: spec.root(bundle)?,
            pid,
            pid_start: start_of(pid).unwrap_or(0),
            created: now(),
            annotations: spec.annotations.clone(),
            is_sandbox: spec.is_sandbox(),
        })
    }

    /// Whether the monitor is the process that it was, and has not ended.
    pub(crate) fn is_alive(&self) -> bool {
        start_of(self.pid).is_some_and(|start| start == self.pid_start)
    }

    /// Signals the monitor.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| self.is_alive()) {
            // A failure means that it has just ended.
            let _ = kill_process(pid, signal);
        }
    }
}

/// When a process started; `None` if there is none, or it only waits to be buried.
fn start_of(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let is_over = matches!(fields.next()?, "Z" | "X");
    // Field 22 of all; three stand before.
    fields.nth(18)?.parse().ok().filter(|_| !is_over)
}

/// The time as RFC 3339 has it, to the second.
fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    rfc_3339(since.as_secs())
}

/// Days to dates as Howard Hinnant's `civil_from_days` does it.
pub(crate) fn rfc_3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * shifted + 2) / 5 + 1, (shifted + 2) % 12 + 1);
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}

/// Writes a file that appears whole.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let write = || {
        fs::File::create(&temporary)?.write_all(bytes)?;
        fs::rename(&temporary, path)
    };
    write().while_doing(|| path.display().to_string())
}

/// Reads a document of an engine's.
pub(crate) fn read_bounded(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = fs::File::open(path).while_doing(|| path.display().to_string())?;
    file.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes).while_doing(|| path.display().to_string())?;
    if bytes.len() as u64 > CONFIG_BYTES_MAX {
        return Err(OciError::Document(path.into(), format!("more than {CONFIG_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{Place, rfc_3339, start_of};
    use std::path::Path;

    #[test]
    fn identifiers_stay_below_the_root() {
        for id in ["", ".", "..", "a/b", "../x", "a\0b", &"x".repeat(129)] {
            assert!(Place::new(Path::new("/r"), id).is_err(), "{id:?}");
        }
        assert_eq!(Place::new(Path::new("/r"), "a-b_c.1+2").expect("an id").directory, Path::new("/r/a-b_c.1+2"));
    }

    #[test]
    fn a_process_is_known_by_its_start() {
        assert!(start_of(std::process::id()).is_some_and(|start| start > 0));
        assert_eq!(start_of(u32::MAX), None);
    }

    #[test]
    fn times_are_dates() {
        assert_eq!(rfc_3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc_3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc_3339(1_700_000_000), "2023-11-14T22:13:20Z");
    }
}
