//! The run configuration: what the host tool asks the library OS to run, and how.
//!
//! The kernel does not read it. It is a part of the bundle (`abi::boot::PART_CONFIG`) in an encoding of its own,
//! because both ends are ours and a serialisation library would be the larger part of it: a 16-byte header (magic,
//! version, length), then records of tag (u32), length (u32) and value, all little-endian, without padding. List
//! fields are repeated records in order. Strings are bytes, as on Linux, not UTF-8.
//!
//! Extension: a decoder skips tags that it does not know, and a field whose record is missing has its default, so old
//! and new ends understand each other. [`VERSION`] changes only if that no longer holds.
//!
//! Limits: [`CONFIG_BYTES_MAX`] in all, [`STRING_BYTES_MAX`] for arguments and environment together (each counted with
//! the final NUL that the program will see), paths and host name as Linux has them. Encoder and decoder enforce the
//! same.

use alloc::vec::Vec;

use bitflags::bitflags;

use aegis_image::bytes::{slice, u16_at, u32_at, u64_at};
use aegis_image::tree::LINK_TARGET_BYTES_MAX;

use crate::disks::{Disks, TAG_DISK, TAG_REQUEST_ORDER};
use crate::drivers::{Drivers, TAG_DISK_FAULT, TAG_DRIVER, TAG_NET_FAULT};
use crate::network::{HostEntry, Network, TAG_NAME, TAG_NETWORK, TAG_NETWORK_ADDRESS};
use crate::rights::{Rights, TAG_CAPABILITIES, TAG_LIMIT, TAG_PROCESS};

/// First eight bytes of a configuration.
pub const MAGIC: u64 = u64::from_le_bytes(*b"AEGISCFG");
/// Version of the encoding.
pub const VERSION: u32 = 2;
/// Longest encoded configuration in bytes.
pub const CONFIG_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most bytes of arguments and environment together, with their final NULs.
pub const STRING_BYTES_MAX: usize = 1024 * 1024;
/// Longest path in bytes.
pub const PATH_BYTES_MAX: usize = LINK_TARGET_BYTES_MAX;
/// Longest host name in bytes (Linux `HOST_NAME_MAX`).
pub const HOSTNAME_BYTES_MAX: usize = 64;
/// Most further groups of the program.
pub const GROUP_COUNT_MAX: usize = 65_536;
/// Most host directories that are served live.
pub const MOUNT_COUNT_MAX: usize = 16;
/// Most directories in memory that are mounted.
pub const TEMPORARY_COUNT_MAX: usize = 16;
/// Bytes of the tag by which a mount finds its device: what the driver can read (`aegis_virtio::ninep`).
pub const MOUNT_TAG_BYTES: usize = 6;

const HEADER_BYTES: usize = 16;
const RECORD_HEADER_BYTES: usize = 8;

const TAG_PROGRAM: u32 = 1;
const TAG_ARGUMENT: u32 = 2;
const TAG_ENVIRONMENT: u32 = 3;
const TAG_WORKING_DIRECTORY: u32 = 4;
const TAG_FLAGS: u32 = 5;
const TAG_MEMORY_LIMIT: u32 = 6;
const TAG_REALTIME: u32 = 7;
const TAG_RANDOM_SEED: u32 = 8;
const TAG_IDENTITY: u32 = 9;
const TAG_HOSTNAME: u32 = 10;
const TAG_TERMINAL: u32 = 11;
const TAG_MOUNT: u32 = 12;
const TAG_TICKETS: u32 = 13;
const TAG_GROUP: u32 = 20;
const TAG_TEMPORARY: u32 = 21;

/// In a mount's record: its flags and tag stand before its path.
const MOUNT_HEADER_BYTES: usize = 4 + MOUNT_TAG_BYTES;
/// In a record of a file system in memory: its permissions and size stand before its path.
const TEMPORARY_HEADER_BYTES: usize = 4 + 4 + 8;

bitflags! {
    /// Switches of a run.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// Show each system call on standard error.
        const TRACE = 1;
        /// Report statistics at the end.
        const STATS = 1 << 1;
        /// Say more on the log.
        const VERBOSE = 1 << 2;
        /// Say nothing on the log but errors.
        const QUIET = 1 << 3;
        /// The host's standard input is a terminal.
        const STDIN_IS_TERMINAL = 1 << 4;
        /// The host's standard output is a terminal.
        const STDOUT_IS_TERMINAL = 1 << 5;
        /// The host's standard error is a terminal.
        const STDERR_IS_TERMINAL = 1 << 6;
        /// Tell the host what code programs map.
        const PROFILE = 1 << 7;
        /// Leave the program's system calls as they are.
        const NO_REWRITE = 1 << 8;
        /// All three are one terminal whose line discipline is the library OS's.
        const TERMINAL = 1 << 9;
        /// The host's standard error is its standard output (`2>&1`): what goes to both keeps its order.
        const STDERR_IS_STDOUT = 1 << 10;
        /// Of a process in a running pod (`crate::sessions`): its standard input is the caller's, else it is empty.
        const INPUT = 1 << 11;
        /// The host's standard input is empty, and nobody will say that it has ended.
        const INPUT_IS_EMPTY = 1 << 12;
        /// `/etc/hosts` is the pod's own, whatever the root has.
        const HOSTS = 1 << 13;
        /// `/etc/hostname` is the pod's own, whatever the root has.
        const HOSTNAME = 1 << 14;
        /// `/etc/resolv.conf` names the network's name servers, also if the root's names some that can be reached.
        const NAME_SERVERS = 1 << 15;
        /// `/etc/resolv.conf` is as the root has it.
        const KEEP_NAME_SERVERS = 1 << 16;
        /// Nothing changes in the root, but in what is mounted there.
        const READ_ONLY_ROOT = 1 << 17;
        /// The program is what Linux's process 1 is in a container: a signal that it has no handler for does nothing,
        /// but `SIGKILL` and `SIGSTOP` of the host's, and orphans are its children.
        const INIT = 1 << 18;
        // Flags of a later version are kept.
        const _ = !0;
    }
}

bitflags! {
    /// How a host directory is mounted.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct HostMountFlags: u32 {
        /// Nothing changes through it.
        const READ_ONLY = 1;
        /// It is the root: with `READ_ONLY` taken as unchanging, with a writable layer in memory over it; without,
        /// what is written is written to it.
        const ROOT = 1 << 1;
        /// It shows in the root, at `/` or at `/NAME`, where the root's image has nothing: taken as unchanging.
        const LAYER = 1 << 2;
        /// The served directory holds one file, and that is mounted, not the directory.
        const FILE = 1 << 3;
        // Flags of a later version are kept.
        const _ = !0;
    }
}

/// A directory of the host that is served live, by 9P.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMount {
    /// The mount tag of the device that serves it.
    pub tag: [u8; MOUNT_TAG_BYTES],
    /// Where it is mounted: an absolute path.
    pub path: Vec<u8>,
    /// Read-only or writable.
    pub flags: HostMountFlags,
}

/// A file system in memory that is mounted in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Temporary {
    /// Where: an absolute path.
    pub path: Vec<u8>,
    /// Permissions of its root.
    pub permissions: u32,
    /// Most that it holds, in bytes; 0 for what the pod has.
    pub size_max_bytes: u64,
    /// Its files can be executed.
    pub is_executable: bool,
}

impl Temporary {
    /// One as `mount -t tmpfs` makes it, where nothing is said.
    #[must_use]
    pub fn new(path: &[u8]) -> Self {
        Self { path: path.to_vec(), permissions: 0o1777, size_max_bytes: 0, is_executable: true }
    }
}

/// What the first program is funded with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tickets {
    /// Tickets, from 1 to 2^40 - 1.
    pub amount: u64,
    /// Of which currency, which is made for it; empty for the pod's own.
    pub currency: Vec<u8>,
}

/// The program to run, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Path of the program in the root image.
    pub program: Vec<u8>,
    /// The argument vector, the program's own name first.
    pub arguments: Vec<Vec<u8>>,
    /// The environment, each `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// Where the program starts.
    pub working_directory: Vec<u8>,
    /// Switches.
    pub flags: Flags,
    /// Most memory the program may use, in bytes; 0 for all the machine has.
    pub memory_limit_bytes: u64,
    /// Wall-clock time when the machine was started: nanoseconds since the epoch, UTC.
    pub realtime_start_ns: u64,
    /// Seed of all the program's randomness; secret.
    pub random_seed: [u8; 32],
    /// User that the program runs as.
    pub uid: u32,
    /// Group that it runs as.
    pub gid: u32,
    /// Further groups that it is in.
    pub groups: Vec<u32>,
    /// What `uname` calls the machine.
    pub hostname: Vec<u8>,
    /// Terminal height in characters; 0 if unknown.
    pub terminal_rows: u16,
    /// Terminal width in characters; 0 if unknown.
    pub terminal_columns: u16,
    /// File systems in memory, which are mounted below those of the host.
    pub temporaries: Vec<Temporary>,
    /// Host directories served live, mounted in this order.
    pub mounts: Vec<HostMount>,
    /// What the program is funded with; `None`: as whatever it starts.
    pub tickets: Option<Tickets>,
    /// What its card is connected to; `None`: it has none.
    pub network: Option<Network>,
    /// Names for `/etc/hosts`, besides its own and `localhost`.
    pub names: Vec<HostEntry>,
    /// The drivers of its card and of its disks.
    pub drivers: Drivers,
    /// Its disks.
    pub disks: Disks,
    /// What its first program may do and use.
    pub rights: Rights,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            program: Vec::new(),
            arguments: Vec::new(),
            environment: Vec::new(),
            working_directory: b"/".to_vec(),
            flags: Flags::empty(),
            memory_limit_bytes: 0,
            realtime_start_ns: 0,
            random_seed: [0; 32],
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            hostname: b"aegis".to_vec(),
            terminal_rows: 0,
            terminal_columns: 0,
            temporaries: Vec::new(),
            mounts: Vec::new(),
            tickets: None,
            network: None,
            names: Vec::new(),
            drivers: Drivers::default(),
            disks: Disks::default(),
            rights: Rights::default(),
        }
    }
}

/// What is wrong with a configuration: its maker's fault when encoding, the bundle's when decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// No configuration at all.
    NotConfig,
    /// An encoding that this version does not know.
    Version(u32),
    /// Lengths do not add up.
    Truncated,
    /// The record with this tag has a wrong length or comes twice.
    Record(u32),
    /// The program's path is missing, too long or holds NUL.
    Program,
    /// The working directory is not absolute, too long or holds NUL.
    WorkingDirectory,
    /// The host name is too long or holds NUL.
    Hostname,
    /// More than [`GROUP_COUNT_MAX`] groups.
    Groups,
    /// A mount's path is not absolute, too long or holds NUL, or there are more than [`MOUNT_COUNT_MAX`].
    Mount,
    /// The network has too many addresses or names, or a name that is none.
    Network,
    /// A limit, a umask or a permission that is none.
    Rights,
    /// An argument or environment string holds NUL.
    ZeroByte,
    /// Arguments and environment exceed [`STRING_BYTES_MAX`].
    StringsTooLong,
    /// More than [`CONFIG_BYTES_MAX`].
    TooLarge,
}

impl core::fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotConfig => formatter.write_str("no run configuration"),
            Self::Version(version) => write!(formatter, "run configuration of version {version}"),
            Self::Truncated => formatter.write_str("the run configuration is truncated"),
            Self::Record(tag) => write!(formatter, "bad record {tag} in the run configuration"),
            Self::Program => formatter.write_str("the program's path is empty or too long"),
            Self::WorkingDirectory => formatter.write_str("the working directory must be an absolute path"),
            Self::Hostname => write!(formatter, "a host name has 0 to {HOSTNAME_BYTES_MAX} bytes"),
            Self::Groups => write!(formatter, "at most {GROUP_COUNT_MAX} groups"),
            Self::Mount => write!(formatter, "at most {MOUNT_COUNT_MAX} shared directories, at absolute paths"),
            Self::Network => formatter.write_str("the network has too many addresses or names, or a name is none"),
            Self::Rights => formatter.write_str("a limit, a umask or a permission is none"),
            Self::ZeroByte => formatter.write_str("an argument or variable holds a zero byte"),
            Self::StringsTooLong => {
                write!(formatter, "arguments and environment are longer than {STRING_BYTES_MAX} bytes")
            }
            Self::TooLarge => formatter.write_str("the run configuration is too large"),
        }
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// Encodes; fields with default values are written too.
    ///
    /// # Errors
    /// `Program`, `WorkingDirectory`, `Hostname`, `Groups`, `Mount`, `Network`, `Rights`, `ZeroByte`,
    /// `StringsTooLong`, `TooLarge`.
    pub fn encode(&self) -> Result<Vec<u8>, ConfigError> {
        self.validate()?;
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let mut record = |tag: u32, value: &[u8]| {
            bytes.extend_from_slice(&tag.to_le_bytes());
            // Every value is shorter than STRING_BYTES_MAX.
            bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
            bytes.extend_from_slice(value);
        };
        record(TAG_PROGRAM, &self.program);
        self.arguments.iter().for_each(|argument| record(TAG_ARGUMENT, argument));
        self.environment.iter().for_each(|variable| record(TAG_ENVIRONMENT, variable));
        record(TAG_WORKING_DIRECTORY, &self.working_directory);
        record(TAG_FLAGS, &self.flags.bits().to_le_bytes());
        record(TAG_MEMORY_LIMIT, &self.memory_limit_bytes.to_le_bytes());
        record(TAG_REALTIME, &self.realtime_start_ns.to_le_bytes());
        record(TAG_RANDOM_SEED, &self.random_seed);
        record(TAG_IDENTITY, &pair(self.uid.to_le_bytes(), self.gid.to_le_bytes()));
        self.groups.iter().for_each(|group| record(TAG_GROUP, &group.to_le_bytes()));
        record(TAG_HOSTNAME, &self.hostname);
        let size = [self.terminal_rows.to_le_bytes(), self.terminal_columns.to_le_bytes()];
        record(TAG_TERMINAL, size.as_flattened());
        for temporary in &self.temporaries {
            let (permissions, size) = (temporary.permissions.to_le_bytes(), temporary.size_max_bytes.to_le_bytes());
            let is_executable = u32::from(temporary.is_executable).to_le_bytes();
            record(TAG_TEMPORARY, &[&permissions[..], &is_executable, &size, &temporary.path].concat());
        }
        for mount in &self.mounts {
            let mut value = mount.flags.bits().to_le_bytes().to_vec();
            value.extend_from_slice(&mount.tag);
            value.extend_from_slice(&mount.path);
            record(TAG_MOUNT, &value);
        }
        if let Some(tickets) = &self.tickets {
            record(TAG_TICKETS, &[&tickets.amount.to_le_bytes(), tickets.currency.as_slice()].concat());
        }
        if let Some(network) = &self.network {
            network.write(&mut record);
        }
        self.names.iter().for_each(|entry| record(TAG_NAME, &entry.value()));
        self.drivers.write(&mut record);
        self.disks.write(&mut record);
        self.rights.write(&mut record);
        if bytes.len() > CONFIG_BYTES_MAX {
            return Err(ConfigError::TooLarge);
        }
        let length = bytes.len() as u32;
        bytes[12..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
        Ok(bytes)
    }

    /// Decodes; bytes behind the encoded length (a page's padding) are ignored.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, ConfigError> {
        if u64_at(bytes, 0) != Some(MAGIC) {
            return Err(ConfigError::NotConfig);
        }
        let version = u32_at(bytes, 8).ok_or(ConfigError::Truncated)?;
        if version != VERSION {
            return Err(ConfigError::Version(version));
        }
        let length = u32_at(bytes, 12).ok_or(ConfigError::Truncated)? as usize;
        if length > CONFIG_BYTES_MAX {
            return Err(ConfigError::TooLarge);
        }
        let mut rest = bytes.get(HEADER_BYTES..length).ok_or(ConfigError::Truncated)?;
        let mut config = Self::default();
        let mut seen: u32 = 0;
        while !rest.is_empty() {
            let tag = u32_at(rest, 0).ok_or(ConfigError::Truncated)?;
            let value_bytes = u32_at(rest, 4).ok_or(ConfigError::Truncated)?;
            let value =
                slice(rest, RECORD_HEADER_BYTES as u64, u64::from(value_bytes)).ok_or(ConfigError::Truncated)?;
            rest = &rest[RECORD_HEADER_BYTES + value.len()..];
            let is_list = matches!(tag, TAG_ARGUMENT | TAG_ENVIRONMENT);
            if !is_list && (tag <= TAG_TERMINAL || matches!(tag, TAG_TICKETS | TAG_NETWORK)) {
                if seen & (1 << tag) != 0 {
                    return Err(ConfigError::Record(tag));
                }
                seen |= 1 << tag;
            }
            config.take_record(tag, value).ok_or(ConfigError::Record(tag))?;
        }
        config.validate()?;
        Ok(config)
    }

    /// Takes one record over; `None` for a wrong length.
    fn take_record(&mut self, tag: u32, value: &[u8]) -> Option<()> {
        let exactly = |length: usize| (value.len() == length).then_some(());
        match tag {
            TAG_PROGRAM => self.program = value.to_vec(),
            TAG_ARGUMENT => self.arguments.push(value.to_vec()),
            TAG_ENVIRONMENT => self.environment.push(value.to_vec()),
            TAG_WORKING_DIRECTORY => self.working_directory = value.to_vec(),
            TAG_FLAGS => {
                exactly(4)?;
                self.flags = Flags::from_bits_retain(u32_at(value, 0)?);
            }
            TAG_MEMORY_LIMIT => {
                exactly(8)?;
                self.memory_limit_bytes = u64_at(value, 0)?;
            }
            TAG_REALTIME => {
                exactly(8)?;
                self.realtime_start_ns = u64_at(value, 0)?;
            }
            TAG_RANDOM_SEED => self.random_seed = value.try_into().ok()?,
            TAG_IDENTITY => {
                exactly(8)?;
                (self.uid, self.gid) = (u32_at(value, 0)?, u32_at(value, 4)?);
            }
            TAG_GROUP => {
                exactly(4)?;
                self.groups.push(u32_at(value, 0)?);
            }
            TAG_HOSTNAME => self.hostname = value.to_vec(),
            TAG_TERMINAL => {
                exactly(4)?;
                self.terminal_rows = u16_at(value, 0)?;
                self.terminal_columns = u16_at(value, 2)?;
            }
            TAG_TEMPORARY => {
                let (header, path) = value.split_at_checked(TEMPORARY_HEADER_BYTES)?;
                let (permissions, size_max_bytes) = (u32_at(header, 0)?, u64_at(header, 8)?);
                let is_executable = u32_at(header, 4)? != 0;
                self.temporaries.push(Temporary { path: path.to_vec(), permissions, size_max_bytes, is_executable });
            }
            TAG_MOUNT => {
                let (header, path) = value.split_at_checked(MOUNT_HEADER_BYTES)?;
                self.mounts.push(HostMount {
                    tag: header[4..].try_into().ok()?,
                    path: path.to_vec(),
                    flags: HostMountFlags::from_bits_retain(u32_at(header, 0)?),
                });
            }
            TAG_TICKETS => {
                let (amount, currency) = value.split_at_checked(8)?;
                self.tickets = Some(Tickets { amount: u64_at(amount, 0)?, currency: currency.to_vec() });
            }
            TAG_NETWORK | TAG_NETWORK_ADDRESS => self.network.get_or_insert_default().take_record(tag, value)?,
            TAG_NAME => self.names.push(HostEntry::read(value)?),
            TAG_DRIVER => self.drivers.take_record(value)?,
            TAG_DISK_FAULT | TAG_NET_FAULT => self.drivers.take_fault(tag, value)?,
            TAG_DISK | TAG_REQUEST_ORDER => self.disks.take_record(tag, value)?,
            TAG_CAPABILITIES | TAG_LIMIT | TAG_PROCESS => self.rights.take_record(tag, value)?,
            _ => {}
        }
        Some(())
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let is_path = |path: &[u8]| (1..=PATH_BYTES_MAX).contains(&path.len()) && !path.contains(&0);
        if !is_path(&self.program) {
            return Err(ConfigError::Program);
        }
        if !is_path(&self.working_directory) || self.working_directory[0] != b'/' {
            return Err(ConfigError::WorkingDirectory);
        }
        if self.hostname.len() > HOSTNAME_BYTES_MAX || self.hostname.contains(&0) {
            return Err(ConfigError::Hostname);
        }
        if self.groups.len() > GROUP_COUNT_MAX {
            return Err(ConfigError::Groups);
        }
        let is_place = |path: &[u8]| is_path(path) && path[0] == b'/';
        let is_counted = self.mounts.len() <= MOUNT_COUNT_MAX && self.temporaries.len() <= TEMPORARY_COUNT_MAX;
        let temporaries = self.temporaries.iter();
        let has_modes = temporaries.clone().all(|temporary| temporary.permissions <= 0o7777);
        let places = self.mounts.iter().map(|mount| &mount.path);
        let mut places = places.chain(temporaries.map(|temporary| &temporary.path));
        if !is_counted || !has_modes || !places.all(|path| is_place(path)) {
            return Err(ConfigError::Mount);
        }
        if self.network.as_ref().is_some_and(|network| !network.is_valid()) || !HostEntry::are_valid(&self.names) {
            return Err(ConfigError::Network);
        }
        if !self.rights.is_valid() || self.temporaries.iter().any(|temporary| temporary.permissions > 0o7777) {
            return Err(ConfigError::Rights);
        }
        let mut string_bytes: usize = 0;
        for string in self.arguments.iter().chain(&self.environment) {
            if string.contains(&0) {
                return Err(ConfigError::ZeroByte);
            }
            string_bytes = string_bytes.saturating_add(string.len() + 1);
        }
        if string_bytes > STRING_BYTES_MAX {
            return Err(ConfigError::StringsTooLong);
        }
        Ok(())
    }
}

fn pair(first: [u8; 4], second: [u8; 4]) -> [u8; 8] {
    let mut both = [0; 8];
    both[..4].copy_from_slice(&first);
    both[4..].copy_from_slice(&second);
    both
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
