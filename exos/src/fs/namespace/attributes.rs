//! Changing metadata: the right to, and what follows from it.

use super::Namespace;
use crate::error::{Errno, Result};
use crate::fs::location::{Location, MountFlags};
use crate::fs::metadata::{Decision, FileKind, FileSystemStatistics, Protection, SetAttributes, Timestamp};
use crate::fs::page::check_not_run;
use crate::fs::permission::{AccessMask, MODE_SET_GID, without_set_ids};
use crate::fs::walk::{Caller, LookupFlags};
use crate::fs::watch::event;
use crate::task::capability::Capability;

/// A new owner (`chown`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerChange {
    /// User, `None` to keep.
    pub uid: Option<u32>,
    /// Group, `None` to keep.
    pub gid: Option<u32>,
}

/// What to do with one of a file's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeChange {
    /// `UTIME_OMIT`.
    Keep,
    /// `UTIME_NOW`.
    Now,
    /// That time.
    Set(Timestamp),
}

/// New times (`utimensat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimesChange {
    /// Change of the time of last access.
    pub accessed: TimeChange,
    /// Change of the time of last modification.
    pub modified: TimeChange,
}

/// What becomes of a file whose owner or group is changed.
///
/// # Errors
/// `EPERM`: the caller may not.
fn after_owner_change(caller: &Caller<'_>, file: Protection, change: OwnerChange) -> Result<SetAttributes> {
    let credentials = caller.credentials;
    let owns = credentials.uid == file.uid;
    let uid_allowed = change.uid.is_none_or(|uid| owns && uid == file.uid);
    let gid_allowed = change.gid.is_none_or(|gid| owns && (gid == file.gid || credentials.is_in_group(gid)));
    let is_allowed = credentials.can(Capability::CHOWN) || (uid_allowed && gid_allowed);
    if !is_allowed {
        return Err(Errno::EPERM);
    }
    let permissions = match file.kind {
        FileKind::Directory => file.permissions,
        _ => {
            let keeps = credentials.can(Capability::FSETID) || credentials.is_in_group(file.gid);
            without_set_ids(file.permissions, keeps)
        }
    };
    let permissions = Some(permissions).filter(|permissions| *permissions != file.permissions);
    if permissions.is_some() && !credentials.owns(file) {
        return Err(Errno::EPERM);
    }
    Ok(SetAttributes { permissions, uid: change.uid, gid: change.gid, ..Default::default() })
}

impl Namespace {
    /// Sets permission bits (`chmod`).
    ///
    /// # Errors
    /// `EPERM`: not the owner. `EROFS`. `EOPNOTSUPP`: a link.
    pub fn set_permissions(&self, caller: &Caller<'_>, location: &Location, permissions: u32) -> Result<()> {
        location.mount().check_writable()?;
        let credentials = caller.credentials;
        let mut decide = |file: Protection| {
            if file.kind == FileKind::Symlink {
                return Err(Errno::EOPNOTSUPP);
            }
            if !credentials.owns(file) {
                return Err(Errno::EPERM);
            }
            let mut permissions = permissions & 0o7777;
            if !credentials.can(Capability::FSETID) && !credentials.is_in_group(file.gid) {
                permissions &= !MODE_SET_GID;
            }
            Ok(Some(SetAttributes { permissions: Some(permissions), ..Default::default() }))
        };
        self.set_protection(location, &mut decide, caller.now)?;
        self.watches.tell(location, event::ATTRIB, false);
        Ok(())
    }

    /// Sets what decides about access; the right to search a directory is part of walks that are known.
    fn set_protection(&self, location: &Location, decide: &mut Decision<'_>, now: Timestamp) -> Result<()> {
        let outcome = location.inode().decide_attributes(decide, now);
        if location.is_directory() {
            self.walks.forget_all();
        }
        outcome.map(|_| ())
    }

    /// Sets owner and group (`chown`); what runs with the owner's rights loses them.
    ///
    /// # Errors
    /// `EPERM`, `EROFS`.
    pub fn set_owner(&self, caller: &Caller<'_>, location: &Location, change: OwnerChange) -> Result<()> {
        location.mount().check_writable()?;
        let mut decide = |file| after_owner_change(caller, file, change).map(Some);
        self.set_protection(location, &mut decide, caller.now)?;
        self.watches.tell(location, event::ATTRIB, false);
        Ok(())
    }

    /// Sets times (`utimensat`).
    ///
    /// # Errors
    /// `EACCES`: not the owner, nor may one write. `EPERM`: not the owner, and not both times are now. `EROFS`.
    pub fn set_times(&self, caller: &Caller<'_>, location: &Location, change: TimesChange) -> Result<()> {
        if change.accessed == TimeChange::Keep && change.modified == TimeChange::Keep {
            return Ok(());
        }
        location.mount().check_writable()?;
        let time = |change| match change {
            TimeChange::Keep => None,
            TimeChange::Now => Some(caller.now),
            TimeChange::Set(time) => Some(time),
        };
        let attributes =
            SetAttributes { accessed: time(change.accessed), modified: time(change.modified), ..Default::default() };
        let mut decide = |file| {
            if !caller.credentials.owns(file) {
                if change.accessed != TimeChange::Now || change.modified != TimeChange::Now {
                    return Err(Errno::EPERM);
                }
                caller.credentials.check(file, AccessMask::WRITE)?;
            }
            Ok(Some(attributes))
        };
        location.inode().decide_attributes(&mut decide, caller.now)?;
        // Both times are what `utime` sets; one alone is as if the file was read or written.
        let mask = match (attributes.accessed, attributes.modified) {
            (Some(_), None) => event::ACCESS,
            (None, Some(_)) => event::MODIFY,
            _ => event::ATTRIB,
        };
        self.watches.tell(location, mask, false);
        Ok(())
    }

    /// Sets the size of the file at a path (`truncate`); where that is.
    ///
    /// # Errors
    /// `ETXTBSY`, `EISDIR`, `EINVAL`: not a regular file. `EACCES`, `EROFS`, `EFBIG`, `EPERM`, those of a lookup.
    pub fn truncate(&self, caller: &Caller<'_>, start: &Location, path: &[u8], size_bytes: u64) -> Result<Location> {
        let location = self.lookup(caller, start, path, LookupFlags::FOLLOW)?;
        match location.inode().kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        location.mount().check_writable()?;
        caller.check(&location, AccessMask::WRITE)?;
        check_not_run(location.inode())?;
        location.inode().truncate(size_bytes, caller.now)?;
        self.drop_set_ids(caller, &location)?;
        self.watches.tell(&location, event::MODIFY, false);
        Ok(location)
    }

    /// Takes set-ID bits from a file that the caller changes.
    ///
    /// # Errors
    /// Those of setting permissions.
    pub(super) fn drop_set_ids(&self, caller: &Caller<'_>, location: &Location) -> Result<()> {
        location.inode().end_set_ids(caller.credentials, caller.now).map(|_| ())
    }

    /// Checks what a caller may do with a file (`access`; the caller passes real or effective identity).
    ///
    /// # Errors
    /// `EACCES`. `EROFS`: writing to a file on a read-only mount.
    pub fn check_access(&self, caller: &Caller<'_>, location: &Location, mask: AccessMask) -> Result<()> {
        let kind = location.inode().kind();
        let flags = location.mount().flags();
        let is_regular = kind == FileKind::Regular;
        if mask.contains(AccessMask::EXECUTE) && is_regular && flags.contains(MountFlags::NO_EXECUTE) {
            return Err(Errno::EACCES);
        }
        caller.check(location, mask)?;
        let is_stored = matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
        if mask.contains(AccessMask::WRITE) && is_stored {
            location.mount().check_writable()?;
        }
        Ok(())
    }

    /// The totals of the file system at a location (`statfs`).
    pub fn statistics(&self, location: &Location) -> FileSystemStatistics {
        location.inode().statistics()
    }
}
