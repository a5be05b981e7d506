//! Rights to files: POSIX permission bits as Linux checks them (path_resolution(7), capabilities(7)).
//!
//! The bits are asked first and capabilities then: with `CAP_DAC_OVERRIDE` one may do everything, except execute a file
//! that nobody may execute; with `CAP_DAC_READ_SEARCH` read files and search directories. Being user 0 gives nothing by
//! itself: user 0 with no capability is a user like another.

use alloc::vec::Vec;

use bitflags::bitflags;

use super::metadata::{FileKind, Metadata, Protection};
use crate::error::{Errno, Result};
use crate::task::capability::{Capability, CapabilitySet};

/// Sticky bit.
pub const MODE_STICKY: u32 = 0o1000;
/// Set-group-ID bit.
pub const MODE_SET_GID: u32 = 0o2000;
/// Set-user-ID bit.
pub const MODE_SET_UID: u32 = 0o4000;

bitflags! {
    /// What one wants to do with an inode. The bits are those of one `rwx` triple.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct AccessMask: u32 {
        /// Execute a file, search a directory.
        const EXECUTE = 1;
        /// Write a file, change names in a directory.
        const WRITE = 2;
        /// Read a file, list a directory.
        const READ = 4;
    }
}

/// A process, as the other side of a socket is told of it (`struct ucred`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Process.
    pub pid: u32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

impl Identity {
    /// What is told of a sender that told nothing.
    pub const UNKNOWN: Self = Self { pid: 0, uid: 65_534, gid: 65_534 };
}

/// The caller: the identity that file access is checked with (`fsuid`, `fsgid`, supplementary groups), and the
/// effective capabilities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// What it may do besides.
    pub capabilities: CapabilitySet,
}

/// Who a file belongs to that its maker gave no other owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// The permission bits of a file after a write by a caller that may not keep set-ID bits; `is_in_group`: the caller is
/// in its group. A set-group-ID bit without the group's right to execute meant mandatory locks and stays for the group.
pub fn without_set_ids(permissions: u32, is_in_group: bool) -> u32 {
    let group_runs = permissions & 0o010 != 0 || !is_in_group;
    permissions & !MODE_SET_UID & if group_runs { !MODE_SET_GID } else { !0 }
}

impl Credentials {
    /// User and group 0 with every capability.
    pub const ROOT: Self = Self { uid: 0, gid: 0, groups: Vec::new(), capabilities: CapabilitySet::ALL };

    /// A user with all capabilities if it is user 0, and no further groups.
    pub fn of_user(uid: u32, gid: u32) -> Self {
        let capabilities = if uid == 0 { CapabilitySet::ALL } else { CapabilitySet::EMPTY };
        Self { uid, gid, groups: Vec::new(), capabilities }
    }

    /// Whether a capability is there.
    pub fn can(&self, capability: Capability) -> bool {
        self.capabilities.contains(capability)
    }

    /// Whether every directory may be searched.
    pub fn may_search_all(&self) -> bool {
        self.capabilities.may_search_all()
    }

    /// Whether `gid` is among the groups.
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// The permission bits of a file that is changed by these: without those that make a program run with the file's
    /// rights, unless they may keep them (inode(7); Linux's `file_remove_privs`). `None`: as they are.
    pub(super) fn permissions_after_change(&self, file: Protection) -> Option<u32> {
        let kept = without_set_ids(file.permissions, self.is_in_group(file.gid));
        (kept != file.permissions && !self.can(Capability::FSETID)).then_some(kept)
    }

    /// Whether this user owns the file or may act as if.
    pub fn is_owner(&self, metadata: &Metadata) -> bool {
        self.owns(metadata.protection())
    }

    /// As [`Self::is_owner`].
    pub fn owns(&self, file: Protection) -> bool {
        self.uid == file.uid || self.can(Capability::FOWNER)
    }

    /// Checks permission bits.
    ///
    /// # Errors
    /// `EACCES`.
    pub fn check(&self, inode: Protection, mask: AccessMask) -> Result<()> {
        let triple = if self.uid == inode.uid {
            inode.permissions >> 6
        } else if self.is_in_group(inode.gid) {
            inode.permissions >> 3
        } else {
            inode.permissions
        };
        let is_allowed = AccessMask::from_bits_truncate(triple).contains(mask) || self.overrides(inode, mask);
        if is_allowed { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Whether capabilities allow what permission bits do not.
    fn overrides(&self, inode: Protection, mask: AccessMask) -> bool {
        let is_directory = inode.kind == FileKind::Directory;
        let only_looks = if is_directory { !mask.contains(AccessMask::WRITE) } else { mask == AccessMask::READ };
        if only_looks && self.may_search_all() {
            return true;
        }
        let nobody_executes = !is_directory && inode.permissions & 0o111 == 0;
        self.can(Capability::DAC_OVERRIDE) && !(mask.contains(AccessMask::EXECUTE) && nobody_executes)
    }

    /// Whether a name that leads to `victim` may be taken out of `directory`, which one may write.
    ///
    /// # Errors
    /// `EPERM`: the directory is sticky and neither of the two is one's own.
    pub fn check_sticky(&self, directory: Protection, victim: impl FnOnce() -> Protection) -> Result<()> {
        let is_free = directory.permissions & MODE_STICKY == 0 || self.can(Capability::FOWNER);
        if is_free || self.uid == directory.uid || self.uid == victim().uid { Ok(()) } else { Err(Errno::EPERM) }
    }
}
