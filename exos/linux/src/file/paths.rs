//! Paths of a program: read from its memory, and walked as the caller.
//!
//! [`Access`] is what a handler makes to work on paths: it holds the caller's identity and directories for one call,
//! so that no lock is held while the walk goes on.

use alloc::borrow::Cow;
use alloc::sync::Arc;

use exos::error::{Errno, Result};
use exos::fs::location::Location;
use exos::fs::metadata::Timestamp;
use exos::fs::namespace::Namespace;
use exos::fs::permission::Credentials;
use exos::fs::walk::{self, LookupFlags};

use crate::abi::linux::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW};
use crate::abi::user_memory::{Text, read_text};
use crate::task::caller::Caller;
use crate::task::process::Process;
use crate::task::system::System;

/// Longest path without its end.
const PATH_BYTES_MAX: usize = 4095;

/// Everything that one call needs to work on paths.
pub struct Access {
    namespace: Arc<Namespace>,
    credentials: Credentials,
    root: Location,
    umask: u32,
    now: Timestamp,
}

impl Access {
    /// With the identity that files are checked with.
    #[must_use]
    pub fn new(caller: &Caller<'_>) -> Self {
        let credentials = caller.thread.identities.lock().for_files();
        Self::with_credentials(caller.system, caller.process, credentials)
    }

    /// With the real identity, for `access(2)`.
    #[must_use]
    pub fn with_real_identity(caller: &Caller<'_>) -> Self {
        let credentials = caller.thread.identities.lock().for_access();
        Self::with_credentials(caller.system, caller.process, credentials)
    }

    /// For a process outside of any call.
    #[must_use]
    pub fn for_process(system: &System, process: &Process) -> Self {
        let credentials = process.identities.lock().for_files();
        Self::with_credentials(system, process, credentials)
    }

    #[inline(always)]
    fn with_credentials(system: &System, process: &Process, credentials: Credentials) -> Self {
        Self {
            namespace: system.files.namespace.clone(),
            credentials,
            root: process.files.root(),
            umask: process.files.umask(),
            now: Timestamp::from_ns(system.realtime_ns()),
        }
    }

    /// The name space.
    #[must_use]
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    /// The caller, as the name space wants it.
    #[must_use]
    pub fn caller(&self) -> walk::Caller<'_> {
        walk::Caller { root: &self.root, credentials: &self.credentials, umask: self.umask, now: self.now }
    }

    /// Time of day, as file times are set.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Where a path starts, as [`start_of`] says. An absolute one starts at the root, wherever one is.
    #[inline]
    pub fn start(&self, caller: &Caller<'_>, directory: u64, path: &[u8]) -> Result<Cow<'_, Location>> {
        if path.first() == Some(&b'/') {
            return Ok(Cow::Borrowed(&self.root));
        }
        start_of(caller, directory, path).map(Cow::Owned)
    }

    /// What `path` leads to from `start`; an empty path is `start` itself if `allows_empty`.
    pub fn find(&self, start: &Location, path: &[u8], follow: bool, allows_empty: bool) -> Result<Location> {
        if path.is_empty() && allows_empty {
            return Ok(start.clone());
        }
        self.namespace.lookup(&self.caller(), start, path, LookupFlags { follow, directory: false })
    }
}

/// The time that files are stamped with.
#[must_use]
pub fn now(caller: &Caller<'_>) -> Timestamp {
    Timestamp::from_ns(caller.system.realtime_ns())
}

/// Copies a path from the program, at most `PATH_MAX` bytes with its NUL.
pub fn read_path(caller: &Caller<'_>, address: u64) -> Result<Text> {
    let mut text = Text::default();
    read_path_into(caller, address, &mut text)?;
    Ok(text)
}

/// As [`read_path`], to where it stays.
pub fn read_path_into(caller: &Caller<'_>, address: u64, text: &mut Text) -> Result<()> {
    read_text(caller.memory, address, PATH_BYTES_MAX, Errno::ENAMETOOLONG, text)
}

/// Where a path starts: the working directory, or the location of a descriptor. Absolute paths do not look at the
/// descriptor.
pub fn start_of(caller: &Caller<'_>, directory: u64, path: &[u8]) -> Result<Location> {
    if directory as i32 == AT_FDCWD || path.first() == Some(&b'/') {
        return Ok(caller.process.files.current());
    }
    Ok(caller.process.files.get(directory)?.location().clone())
}

/// Reads a path of an `…at` call and finds what it leads to. `flags` are `AT_*`; those outside `allowed` are `EINVAL`.
pub fn find_at(
    caller: &Caller<'_>,
    access: &Access,
    directory: u64,
    path: u64,
    flags: u64,
    allowed: u64,
) -> Result<Location> {
    if flags & !allowed != 0 {
        return Err(Errno::EINVAL);
    }
    let allows_empty = flags & AT_EMPTY_PATH != 0;
    let (address, mut path) = (path, Text::default());
    if address != 0 || !allows_empty {
        read_path_into(caller, address, &mut path)?;
    }
    let path = &*path;
    if path.is_empty() && !allows_empty {
        return Err(Errno::ENOENT);
    }
    let start = start_of(caller, directory, path)?;
    let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
    if directory as i32 == AT_FDCWD || path.is_empty() {
        return access.find(&start, path, follow, allows_empty);
    }
    access.namespace.lookup_once(&access.caller(), &start, path, LookupFlags { follow, directory: false })
}
