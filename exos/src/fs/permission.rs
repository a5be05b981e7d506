//! Who may do what: POSIX permission bits as Linux checks them (path_resolution(7), capabilities(7)).
//!
//! User 0 stands for the capabilities `CAP_DAC_OVERRIDE`, `CAP_FOWNER`, `CAP_CHOWN` and `CAP_FSETID`: it
//! may do everything, except execute a file that nobody may execute.

use alloc::vec::Vec;

use bitflags::bitflags;

use super::vnode::{FileKind, Metadata, Protection};
use crate::error::{Errno, Result};

/// Sticky bit.
pub const MODE_STICKY: u32 = 0o1000;
/// Set-group-ID bit.
pub const MODE_SET_GID: u32 = 0o2000;
/// Set-user-ID bit.
pub const MODE_SET_UID: u32 = 0o4000;

bitflags! {
    /// What one wants to do with an inode. The bits are those of one `rwx` triple.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Wish: u32 {
        /// Execute a file, search a directory.
        const EXECUTE = 1;
        /// Write a file, change names in a directory.
        const WRITE = 2;
        /// Read a file, list a directory.
        const READ = 4;
    }
}

/// Who asks: the identity that file access is checked with (`fsuid`, `fsgid`, supplementary groups).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// User and group 0.
    pub const ROOT: Self = Self { uid: 0, gid: 0, groups: Vec::new() };

    /// Whether this is the user who may do everything.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether `gid` is among the groups.
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether this user owns the file or may act as if.
    pub fn is_owner(&self, metadata: &Metadata) -> bool {
        self.is_root() || self.uid == metadata.uid
    }

    /// Checks permission bits.
    ///
    /// # Errors
    /// `EACCES`.
    pub fn check(&self, inode: Protection, wish: Wish) -> Result<()> {
        if self.is_root() {
            let nobody_executes = inode.kind != FileKind::Directory && inode.permissions & 0o111 == 0;
            return if wish.contains(Wish::EXECUTE) && nobody_executes { Err(Errno::EACCES) } else { Ok(()) };
        }
        let triple = if self.uid == inode.uid {
            inode.permissions >> 6
        } else if self.is_in_group(inode.gid) {
            inode.permissions >> 3
        } else {
            inode.permissions
        };
        if Wish::from_bits_truncate(triple).contains(wish) { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Whether a name that leads to `victim` may be taken out of `directory`, which one may write.
    ///
    /// # Errors
    /// `EPERM`: the directory is sticky and neither of the two is one's own.
    pub fn check_sticky(&self, directory: &Metadata, victim: &Metadata) -> Result<()> {
        let is_restricted = directory.permissions & MODE_STICKY != 0;
        if is_restricted && !self.is_owner(victim) && !self.is_owner(directory) {
            return Err(Errno::EPERM);
        }
        Ok(())
    }
}
