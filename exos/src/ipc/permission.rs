//! Access to objects of System V: owner, creator and mode, by the rules of Linux's `ipc/util.c`.

use crate::error::{Errno, Result};
use crate::task::capability::{Capability, CapabilitySet};

/// Permission to read, for all three classes; asked for, the class of the caller counts.
pub const READ: u32 = 0o444;
/// Permission to change.
pub const WRITE: u32 = 0o222;
/// Permission to execute.
pub const EXECUTE: u32 = 0o111;
/// The permission bits of a mode.
pub const MODE_BITS: u32 = 0o777;
/// No user, no group: what `chown` leaves alone, and no object can have.
const NOBODY: u32 = u32::MAX;

/// The caller's identity.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'a [u32],
    /// Effective capabilities.
    pub capabilities: CapabilitySet,
    /// Process.
    pub pid: u32,
    /// Realtime in seconds.
    pub now_s: u64,
}

impl Caller<'_> {
    /// Whether it has a capability.
    #[must_use]
    pub fn can(&self, capability: Capability) -> bool {
        self.capabilities.contains(capability)
    }
}

/// `struct ipc_perm` without what the table knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The key that it was made for; 0 for none.
    pub key: i32,
    /// Owner.
    pub uid: u32,
    /// Owner's group.
    pub gid: u32,
    /// Creator.
    pub creator_uid: u32,
    /// Creator's group.
    pub creator_gid: u32,
    /// Permission bits.
    pub mode: u32,
}

impl Ownership {
    /// Of an object that `caller` makes.
    #[must_use]
    pub fn of_new(caller: &Caller<'_>, key: i32, mode: u32) -> Self {
        let Caller { uid, gid, .. } = *caller;
        Self { key, uid, gid, creator_uid: uid, creator_gid: gid, mode: mode & MODE_BITS }
    }

    /// Whether what is `asked` for (bits of any class) may be done. `EACCES`.
    pub fn check(&self, caller: &Caller<'_>, asked: u32) -> Result<()> {
        let wanted = (asked | asked >> 3 | asked >> 6) & 7;
        let is_member = |group: u32| group == caller.gid || caller.groups.contains(&group);
        let granted = if caller.uid == self.creator_uid || caller.uid == self.uid {
            self.mode >> 6
        } else if is_member(self.creator_gid) || is_member(self.gid) {
            self.mode >> 3
        } else {
            self.mode
        };
        if wanted & !granted & 7 == 0 || caller.can(Capability::IPC_OWNER) { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Whether owner, mode and existence may be changed. `EPERM`.
    pub fn check_control(&self, caller: &Caller<'_>) -> Result<()> {
        let owns = caller.uid == self.creator_uid || caller.uid == self.uid;
        if owns || caller.can(Capability::SYS_ADMIN) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// `IPC_SET`. `EINVAL`: no user or group.
    pub fn set(&mut self, uid: u32, gid: u32, mode: u32) -> Result<()> {
        if uid == NOBODY || gid == NOBODY {
            return Err(Errno::EINVAL);
        }
        (self.uid, self.gid) = (uid, gid);
        self.mode = self.mode & !MODE_BITS | mode & MODE_BITS;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Caller, Ownership, READ, WRITE};
    use crate::error::Errno;
    use crate::task::capability::{Capability, CapabilitySet};

    fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller<'_> {
        Caller { uid, gid, groups, capabilities: CapabilitySet::EMPTY, pid: 1, now_s: 0 }
    }

    #[test]
    fn the_first_class_that_fits_decides_alone() {
        let owned = Ownership { key: 1, uid: 5, gid: 6, creator_uid: 7, creator_gid: 8, mode: 0o246 };
        assert_eq!(owned.check(&caller(5, 1, &[]), WRITE), Ok(()));
        assert_eq!(owned.check(&caller(5, 1, &[]), READ), Err(Errno::EACCES));
        assert_eq!(owned.check(&caller(7, 1, &[]), WRITE), Ok(()));
        assert_eq!(owned.check(&caller(1, 6, &[]), READ), Ok(()));
        assert_eq!(owned.check(&caller(1, 1, &[8]), READ | WRITE), Err(Errno::EACCES));
        assert_eq!(owned.check(&caller(1, 1, &[9]), READ | WRITE), Ok(()));
    }

    #[test]
    fn capabilities_count_for_what_they_are_for() {
        let owned = Ownership { key: 1, uid: 5, gid: 6, creator_uid: 7, creator_gid: 8, mode: 0 };
        let with = |bit: u32| Caller { capabilities: CapabilitySet(1 << bit), ..caller(1, 1, &[]) };
        assert!(with(15).can(Capability::IPC_OWNER));
        assert_eq!(owned.check(&with(15), READ), Ok(()));
        assert_eq!(owned.check_control(&with(15)), Err(Errno::EPERM));
        assert_eq!(owned.check_control(&with(21)), Ok(()));
        assert_eq!(owned.check(&with(21), READ), Err(Errno::EACCES));
    }
}
