//! `config.json` of a bundle, and what of it a machine can keep: the words of an `aegis run`.
//!
//! Pure but for looking at the root. What protects a kernel that containers share (seccomp, masked paths, labels) has
//! nothing to protect here and is passed over; what a program would notice and a machine cannot give is refused by
//! name.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use aegis_launch::images::accounts::Identity;
use aegis_launch::machine::mounts::RootChanges;
use aegis_link::rights::Rights;
use rustix::fs::{Dir, Mode, OFlags, ResolveFlags, openat2};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::oci::errors::{OciError, Result};
use crate::oci::rights::{NamedCapabilities, NamedLimit, Said};
use crate::oci::view::Bound;
use crate::options::values::parse_temporary;

/// The annotation that names ports of the program, as engines write them: `80,53/udp,9000-9010`. An engine that
/// publishes ports says so to nobody but its own network, which leads to the namespace.
const PORTS: &str = "aegis.ports";
/// The annotation that says what becomes of what the program writes into its root: `written` to it, or in `memory` and
/// gone at the end.
const ROOT: &str = "aegis.root";
/// Least memory of a machine.
const MEMORY_BYTES_MIN: u64 = 8 << 20;
/// Where the machine has its own file systems, whatever the engine would mount.
const OWN_PLACES: [&str; 7] = ["/proc", "/sys", "/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/sys/fs/cgroup"];
/// Files that the machine makes itself, with names and addresses that are right in it.
const OWN_FILES: [&str; 3] = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];
/// Files that engines leave as marks.
const MARKS: [&str; 2] = ["/run/.containerenv", "/.dockerenv"];
/// Devices that every machine has.
const OWN_DEVICES: [&str; 8] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/console", "/dev/ptmx"];
/// Largest number of a user or group, as `accounts` has it.
const IDENTITY_MAX: u32 = i32::MAX as u32;
/// Most processors of a machine.
const CPU_COUNT_MAX: i64 = 8;
/// `cpu.shares` of a container that says nothing.
const SHARES_DEFAULT: u64 = 1024;

/// A container's configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Spec {
    pub(crate) oci_version: String,
    pub(crate) process: Option<Process>,
    root: Option<Root>,
    hostname: Option<String>,
    #[serde(default)]
    mounts: Vec<Mount>,
    #[serde(default)]
    pub(crate) hooks: Hooks,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
    linux: Option<Linux>,
}

/// A program.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Process {
    #[serde(default)]
    pub(crate) terminal: bool,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    #[serde(default)]
    env: Vec<String>,
    cwd: String,
    #[serde(default)]
    pub(crate) user: User,
    capabilities: Option<NamedCapabilities>,
    #[serde(default)]
    rlimits: Vec<NamedLimit>,
    #[serde(default)]
    no_new_privileges: bool,
    oom_score_adj: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct User {
    uid: u32,
    gid: u32,
    additional_gids: Vec<u32>,
    umask: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
struct Root {
    path: PathBuf,
    #[serde(default)]
    readonly: bool,
}

#[derive(Clone, Debug, Deserialize)]
struct Mount {
    destination: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    source: Option<PathBuf>,
    #[serde(default)]
    options: Vec<String>,
}

/// Programs of the host that an engine wants run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Hooks {
    pub(crate) prestart: Vec<Hook>,
    pub(crate) create_runtime: Vec<Hook>,
    pub(crate) create_container: Vec<Hook>,
    start_container: Vec<Hook>,
    pub(crate) poststart: Vec<Hook>,
    pub(crate) poststop: Vec<Hook>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Hook {
    pub(crate) path: PathBuf,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    pub(crate) env: Option<Vec<String>>,
    pub(crate) timeout: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Linux {
    namespaces: Vec<Namespace>,
    uid_mappings: Vec<Value>,
    devices: Vec<Device>,
    resources: Option<Resources>,
    sysctl: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Namespace {
    #[serde(rename = "type")]
    kind: String,
    path: Option<PathBuf>,
}

#[derive(Clone, Debug, Deserialize)]
struct Device {
    path: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    memory: Option<Memory>,
    cpu: Option<Cpu>,
}

#[derive(Clone, Debug, Deserialize)]
struct Memory {
    limit: Option<i64>,
}

#[derive(Clone, Debug, Deserialize)]
struct Cpu {
    shares: Option<u64>,
    quota: Option<i64>,
    period: Option<u64>,
}

/// Where a container's host name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostNaming<'a> {
    /// In a namespace of its own.
    Own(&'a str),
    /// In a pod's, at this path.
    Joined(&'a Path),
    /// As the configuration says, if it does.
    Plain,
}

/// What a machine's card is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// Nothing.
    None,
    /// What the tool reaches where it is.
    Host,
    /// What is reached from the network namespace at this path.
    Joined(PathBuf),
}

/// The program, said as `aegis run` is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The command line.
    pub(crate) words: Vec<OsString>,
    /// The program's user, which is numbers and no name that a root could give another meaning.
    pub(crate) identity: Identity,
    pub(crate) rights: Rights,
    pub(crate) network: Network,
    pub(crate) has_terminal: bool,
    /// What was passed over that a program might notice.
    pub(crate) warnings: Vec<String>,
}

fn cannot(text: impl Into<String>) -> OciError {
    OciError::Cannot(text.into())
}

impl Spec {
    /// Reads a configuration.
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let spec: Self =
            serde_json::from_slice(bytes).map_err(|error| OciError::Document(path.into(), error.to_string()))?;
        if !spec.oci_version.starts_with("1.") {
            return Err(OciError::Document(path.into(), format!("ociVersion {}: 1.x is known", spec.oci_version)));
        }
        Ok(spec)
    }

    /// The root directory, as an absolute path.
    pub(crate) fn root(&self, bundle: &Path) -> Result<PathBuf> {
        let root = self.root.as_ref().ok_or_else(|| cannot("config.json has no root"))?;
        Ok(bundle.join(&root.path))
    }

    /// Whether it only holds a pod's namespaces, as engines of Kubernetes start one before the others.
    pub(crate) fn is_sandbox(&self) -> bool {
        self.annotations.get("io.kubernetes.cri.container-type").is_some_and(|kind| kind == "sandbox")
    }

    /// The UTS namespace that the container is in: one of its own, with its name, or one at a path.
    pub(crate) fn host_naming(&self) -> HostNaming<'_> {
        let linux = self.linux.as_ref();
        let of_names = linux.and_then(|linux| linux.namespaces.iter().find(|it| it.kind == "uts"));
        let name = self.hostname.as_deref().filter(|name| !name.is_empty());
        match (of_names, name) {
            (Some(Namespace { path: Some(path), .. }), None) => HostNaming::Joined(path),
            (Some(Namespace { path: None, .. }), Some(name)) => HostNaming::Own(name),
            _ => HostNaming::Plain,
        }
    }

    /// What is bound in the root, in order.
    pub(crate) fn bound(&self, bundle: &Path) -> Vec<Bound> {
        let is_shown = |mount: &&Mount| {
            let place = mount.destination.as_str();
            mount.is_bind() && !OWN_PLACES.contains(&place) && !OWN_FILES.contains(&place) && !MARKS.contains(&place)
        };
        let bound = |mount: &Mount| {
            let host = bundle.join(mount.source.as_ref()?);
            Some(Bound { host, place: PathBuf::from(&mount.destination), is_read_only: mount.is_read_only() })
        };
        self.mounts.iter().filter(is_shown).filter_map(bound).collect()
    }

    /// Whether something is mounted over a path or above it.
    pub(crate) fn is_mounted(&self, path: &str) -> bool {
        self.mounts.iter().any(|mount| Path::new(path).starts_with(&mount.destination))
    }

    /// What is to be published where the tool is, which is the container's network namespace: each port as itself.
    fn ports(&self, network: &Network) -> Result<Vec<OsString>> {
        let Some(text) = self.annotations.get(PORTS) else { return Ok(Vec::new()) };
        let wrong = |why: &str| cannot(format!("annotations: {PORTS}: {why}"));
        if *network == Network::None {
            return Err(wrong("this container has no network"));
        }
        let one = |item: &str| {
            let (ports, protocol) = item.split_once('/').unwrap_or((item, "tcp"));
            let is_range = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit() || it == b'-');
            let suffix = match protocol {
                "tcp" => "",
                "udp" => "/udp",
                _ => return Err(wrong("each is PORT, PORT/udp or FIRST-LAST")),
            };
            if !is_range(ports) {
                return Err(wrong("each is PORT, PORT/udp or FIRST-LAST"));
            }
            Ok(format!("0.0.0.0:{ports}:{ports}{suffix}").into())
        };
        text.split(',').map(|item| one(item.trim())).collect()
    }

    fn network(&self, linux: &Linux) -> Result<Network> {
        let of_network = linux.namespaces.iter().find(|it| it.kind == "network");
        if linux.namespaces.iter().any(|it| it.kind == "user") || !linux.uid_mappings.is_empty() {
            return Err(cannot("linux.namespaces: user: a machine has its own users; run without user namespaces"));
        }
        Ok(match of_network {
            None => Network::Host,
            Some(Namespace { path: None, .. }) => Network::None,
            Some(Namespace { path: Some(path), .. }) => Network::Joined(path.clone()),
        })
    }

    /// What becomes of what the program writes into its root. If nobody says so, it is written to it where files can be
    /// given to their owners.
    fn root_changes(&self, rootfs: &Path, is_privileged: bool) -> Result<RootChanges> {
        // A root that is sealed is taken as unchanging, and whatever is mounted needs a place over it.
        let is_possible = !self.root.as_ref().is_some_and(|root| root.readonly) && rootfs != Path::new("/");
        match self.annotations.get(ROOT).map(String::as_str) {
            Some("memory") => Ok(RootChanges::InMemory),
            Some("written") if !is_possible => {
                Err(cannot(format!("annotations: {ROOT}: this root is read-only, or the host's own")))
            }
            Some("written") => Ok(RootChanges::Written),
            None if is_possible && is_privileged => Ok(RootChanges::Written),
            None => Ok(RootChanges::InMemory),
            Some(other) => Err(cannot(format!("annotations: {ROOT}: {other}: written or memory"))),
        }
    }

    /// What to run, and how.
    ///
    /// # Errors
    /// `Cannot`, `Document`.
    pub(crate) fn plan(&self, bundle: &Path, is_privileged: bool) -> Result<Plan> {
        let process = self.process.as_ref().ok_or_else(|| cannot("config.json has no process"))?;
        let linux = self.linux.clone().unwrap_or_default();
        if process.args.first().is_none_or(String::is_empty) {
            return Err(cannot("process.args is empty"));
        }
        if !process.cwd.starts_with('/') {
            return Err(cannot(format!("process.cwd {}: an absolute path is wanted", process.cwd)));
        }
        if !self.hooks.start_container.is_empty() {
            return Err(cannot("hooks.startContainer: programs of the host cannot run in a machine"));
        }
        if let Some(device) = linux.devices.iter().find(|it| !OWN_DEVICES.contains(&it.path.as_str())) {
            return Err(cannot(format!("linux.devices: {}: a machine has no devices of the host", device.path)));
        }
        let network = self.network(&linux)?;
        let mut warnings: Vec<String> =
            linux.sysctl.keys().map(|key| format!("linux.sysctl: {key} is passed over")).collect();
        let mut words: Vec<OsString> =
            ["aegis", "run", "--quiet", "--first-process", "--root"].map(Into::into).to_vec();
        let rootfs = self.root(bundle)?;
        let changes = self.root_changes(&rootfs, is_privileged)?;
        words.push(rootfs.clone().into());
        if changes == RootChanges::Written {
            words.push("--write-root".into());
        }
        let mut add = |option: &str, value: OsString| words.extend([option.into(), value]);
        let is_read_only = self.root.as_ref().is_some_and(|root| root.readonly);
        for mount in &self.mounts {
            if let Some((option, value)) = mount.words(bundle, (&rootfs, is_read_only), &mut warnings)? {
                add(option, value);
            }
        }
        add("-w", process.cwd.clone().into());
        add("--network", if network == Network::None { "none" } else { "user" }.into());
        for value in self.ports(&network)? {
            add("-p", value);
        }
        if let Some(hostname) = self.hostname.as_ref().filter(|name| !name.is_empty()) {
            add("--hostname", hostname.into());
        }
        for variable in process.env.iter().filter(|it| it.contains('=')) {
            add("-e", variable.into());
        }
        let resources = linux.resources.unwrap_or_default();
        if let Some(limit) = resources.memory.and_then(|memory| memory.limit).filter(|limit| *limit > 0) {
            add("-m", limit.unsigned_abs().max(MEMORY_BYTES_MIN).to_string().into());
        }
        if let Some(cpu) = resources.cpu {
            cpu.words(&mut add);
        }
        if process.terminal {
            words.push("-t".into());
        }
        if is_read_only {
            words.push("--read-only".into());
        }
        words.push("--".into());
        words.extend(process.args.iter().map(OsString::from));
        let rights = process.said().rights(&mut warnings).map_err(OciError::Cannot)?;
        let identity = process.user.identity()?;
        Ok(Plan { words, identity, rights, network, has_terminal: process.terminal, warnings })
    }
}

impl Cpu {
    /// A quota becomes processors, shares become tickets.
    fn words(&self, add: &mut impl FnMut(&str, OsString)) {
        let period = i64::try_from(self.period.unwrap_or(100_000)).unwrap_or(i64::MAX).max(1);
        if let Some(quota) = self.quota.filter(|quota| *quota > 0) {
            let whole = quota / period + i64::from(quota % period != 0);
            add("--cpus", whole.clamp(1, CPU_COUNT_MAX).to_string().into());
        }
        if let Some(shares) = self.shares.filter(|shares| *shares > 0 && *shares != SHARES_DEFAULT) {
            add("--tickets", shares.to_string().into());
        }
    }
}

impl Mount {
    /// An option and its value: for one of the host's directories or files that is to be shown, or one in memory.
    fn words(
        &self,
        bundle: &Path,
        (rootfs, is_root_read_only): (&Path, bool),
        warnings: &mut Vec<String>,
    ) -> Result<Option<(&'static str, OsString)>> {
        let place = self.destination.as_str();
        let kind = self.kind.as_deref().unwrap_or("bind");
        if !Path::new(place).is_absolute() || Path::new(place).components().any(|it| it == Component::ParentDir) {
            return Err(cannot(format!("mounts: {place}: an absolute path without .. is wanted")));
        }
        if OWN_PLACES.contains(&place) || OWN_FILES.contains(&place) {
            return Ok(None);
        }
        if MARKS.contains(&place) {
            warnings.push(format!("mounts: {place}: a mark of the engine's is passed over"));
            return Ok(None);
        }
        if self.is_bind() {
            let source = self.source.as_ref().ok_or_else(|| cannot(format!("mounts: {place}: no source")))?;
            let mut text = bundle.join(source).into_os_string();
            text.push(":");
            text.push(place);
            text.push(if self.is_read_only() { ":ro" } else { "" });
            return Ok(Some(("-v", text)));
        }
        match kind {
            // What the root has there is to be seen.
            "tmpfs" if !is_root_read_only && self.copies_something(rootfs) => {
                warnings
                    .push(format!("mounts: {place}: what the root has there is shown, and written to as the root is"));
                Ok(None)
            }
            "tmpfs" | "ramfs" => Ok(Some(("--tmpfs", self.in_memory(warnings)?.into()))),
            "proc" | "sysfs" | "devpts" | "mqueue" | "cgroup" | "cgroup2" => {
                Err(cannot(format!("mounts: {kind} at {place}: a machine has it at its usual place alone")))
            }
            other => {
                Err(cannot(format!("mounts: {place}: a file system of type {other} cannot be shown in a machine")))
            }
        }
    }
}

impl Mount {
    fn is_bind(&self) -> bool {
        let kind = self.kind.as_deref().unwrap_or("bind");
        kind == "bind" || self.options.iter().any(|it| it == "bind" || it == "rbind")
    }

    fn is_read_only(&self) -> bool {
        self.options.iter().any(|it| it == "ro" || it == "rro")
    }

    /// Whether the mount is to begin with what the root has there, and it has something.
    fn copies_something(&self, rootfs: &Path) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let is_filled = || {
            let root = rustix::fs::open(rootfs, flags, Mode::empty()).ok()?;
            let place = self.destination.trim_start_matches('/');
            let there = openat2(&root, place, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
            let mut entries = Dir::read_from(&there).ok()?.flatten();
            Some(entries.any(|entry| !matches!(entry.file_name().to_bytes(), b"." | b"..")))
        };
        self.options.iter().any(|it| it == "tmpcopyup") && is_filled() == Some(true)
    }

    /// The value of `--tmpfs`.
    fn in_memory(&self, warnings: &mut Vec<String>) -> Result<String> {
        let place = self.destination.trim_end_matches('/');
        let mut said = Vec::new();
        for option in &self.options {
            match option.split_once('=') {
                Some(("size", size)) if size.ends_with('%') => {
                    warnings.push(format!("mounts: {place}: size={size} is passed over"));
                }
                Some(("size" | "mode", _)) => said.push(option.as_str()),
                _ => {}
            }
        }
        let text = format!("{place}{}{}", if said.is_empty() { "" } else { ":" }, said.join(","));
        parse_temporary(&text).map(|_| text).map_err(|why| cannot(format!("mounts: {place}: {why}")))
    }
}

impl User {
    /// The numbers.
    ///
    /// # Errors
    /// `Cannot`: one that is none of a user or group.
    pub(crate) fn identity(&self) -> Result<Identity> {
        let mut all = [self.uid, self.gid].into_iter().chain(self.additional_gids.iter().copied());
        match all.find(|number| *number > IDENTITY_MAX) {
            Some(number) => Err(cannot(format!("process.user: {number}: more than {IDENTITY_MAX}"))),
            None => Ok(Identity { uid: self.uid, gid: self.gid, groups: self.additional_gids.clone(), home: None }),
        }
    }
}

impl Process {
    /// The words of an `aegis exec` for a further program.
    ///
    /// # Errors
    /// `Cannot`.
    pub(crate) fn exec_words(&self, container: &str) -> Result<Vec<OsString>> {
        if self.args.first().is_none_or(String::is_empty) {
            return Err(cannot("process.args is empty"));
        }
        let mut words: Vec<OsString> = ["aegis", "exec", "-i"].map(Into::into).to_vec();
        if self.terminal {
            words.push("-t".into());
        }
        let cwd = if self.cwd.is_empty() { "/" } else { &self.cwd };
        words.extend(["-w".into(), cwd.into()]);
        let Identity { uid, gid, .. } = self.user.identity()?;
        words.extend(["-u".into(), format!("{uid}:{gid}").into()]);
        for variable in self.env.iter().filter(|it| it.contains('=')) {
            words.extend(["-e".into(), variable.into()]);
        }
        words.push(container.into());
        words.extend(self.args.iter().map(OsString::from));
        Ok(words)
    }

    fn said(&self) -> Said<'_> {
        Said {
            capabilities: self.capabilities.as_ref(),
            limits: &self.rlimits,
            no_new_privileges: self.no_new_privileges,
            out_of_memory_adjust: self.oom_score_adj,
            umask: self.user.umask,
        }
    }

    /// Directories in which the program is looked for.
    pub(crate) fn path(&self) -> &str {
        self.env.iter().find_map(|it| it.strip_prefix("PATH=")).unwrap_or("/usr/local/bin:/usr/bin:/bin")
    }
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
