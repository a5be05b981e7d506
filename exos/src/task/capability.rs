//! What a process may do besides what its user may: the five sets of capabilities(7), as one user namespace has them.
//!
//! Pure bookkeeping with the rules of Linux's `security/commoncap.c`: what `capset` may ask for, what becomes of the
//! sets when identities change and when a program is executed. Invariant: the effective set lies in the permitted one,
//! the ambient one in both the permitted and the inheritable one. Files have no capabilities here.

use crate::error::{Errno, Result};

/// One capability, by Linux's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability(u8);

/// The highest number.
pub const CAPABILITY_LAST: u8 = 40;

#[expect(missing_docs, reason = "the names of capabilities(7), of those that exos asks for")]
impl Capability {
    pub const CHOWN: Self = Self(0);
    pub const DAC_OVERRIDE: Self = Self(1);
    pub const DAC_READ_SEARCH: Self = Self(2);
    pub const FOWNER: Self = Self(3);
    pub const FSETID: Self = Self(4);
    pub const KILL: Self = Self(5);
    pub const SETGID: Self = Self(6);
    pub const SETUID: Self = Self(7);
    pub const SETPCAP: Self = Self(8);
    pub const NET_BIND_SERVICE: Self = Self(10);
    pub const NET_BROADCAST: Self = Self(11);
    pub const NET_ADMIN: Self = Self(12);
    pub const NET_RAW: Self = Self(13);
    pub const IPC_LOCK: Self = Self(14);
    pub const IPC_OWNER: Self = Self(15);
    pub const SYS_CHROOT: Self = Self(18);
    pub const SYS_PTRACE: Self = Self(19);
    pub const SYS_ADMIN: Self = Self(21);
    pub const SYS_BOOT: Self = Self(22);
    pub const SYS_NICE: Self = Self(23);
    pub const SYS_RESOURCE: Self = Self(24);
    pub const SYS_TIME: Self = Self(25);
    pub const SYS_TTY_CONFIG: Self = Self(26);
    pub const MKNOD: Self = Self(27);
    pub const LEASE: Self = Self(28);
    pub const SYSLOG: Self = Self(34);
    pub const WAKE_ALARM: Self = Self(35);

    /// The one with this number; `EINVAL` if there is none.
    pub fn new(number: u64) -> Result<Self> {
        u8::try_from(number).ok().filter(|number| *number <= CAPABILITY_LAST).map(Self).ok_or(Errno::EINVAL)
    }

    const fn bit(self) -> u64 {
        1 << self.0
    }
}

/// Capabilities, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapabilitySet(pub u64);

impl CapabilitySet {
    /// No capability.
    pub const EMPTY: Self = Self(0);
    /// All that there are.
    pub const ALL: Self = Self((1 << (CAPABILITY_LAST + 1)) - 1);
    /// Those that `setfsuid` takes and gives: CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, LINUX_IMMUTABLE,
    /// MKNOD, MAC_OVERRIDE.
    const FILES: Self = Self(0x1f | 1 << 9 | 1 << 27 | 1 << 32);

    /// Whether it holds `capability`.
    #[must_use]
    pub const fn contains(self, capability: Capability) -> bool {
        self.0 & capability.bit() != 0
    }

    /// Whether it lets one search every directory and read every file.
    #[must_use]
    pub const fn may_search_all(self) -> bool {
        self.contains(Capability::DAC_READ_SEARCH) || self.contains(Capability::DAC_OVERRIDE)
    }

    /// Whether all of it is in `other`.
    #[must_use]
    pub const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    const fn with(self, capability: Capability) -> Self {
        Self(self.0 | capability.bit())
    }

    const fn without(self, capability: Capability) -> Self {
        Self(self.0 & !capability.bit())
    }
}

/// `SECBIT_NOROOT`: user 0 gets nothing by executing a program.
const BIT_NO_ROOT: u32 = 1;
/// `SECBIT_NO_SETUID_FIXUP`: sets do not follow the user.
const BIT_NO_FOLLOW: u32 = 1 << 2;
/// `SECBIT_KEEP_CAPS`: the permitted set stays when the last user 0 is given up.
const BIT_KEEP: u32 = 1 << 4;
/// `SECBIT_NO_CAP_AMBIENT_RAISE`.
const BIT_NO_AMBIENT: u32 = 1 << 6;
/// Each bit's lock is the next bit.
const BITS: u32 = BIT_NO_ROOT | BIT_NO_FOLLOW | BIT_KEEP | BIT_NO_AMBIENT;
const LOCKS: u32 = BITS << 1;

/// The sets of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Capabilities that checks look at.
    pub effective: CapabilitySet,
    /// What may be made effective.
    pub permitted: CapabilitySet,
    /// What `execve` keeps for files that ask for it.
    pub inheritable: CapabilitySet,
    /// What `execve` can give at most.
    pub bounding: CapabilitySet,
    /// What `execve` keeps for every file.
    pub ambient: CapabilitySet,
    secure_bits: u32,
}

/// What `PR_CAP_AMBIENT` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmbientChange {
    /// Adds one.
    Raise(Capability),
    /// Takes one away.
    Lower(Capability),
    /// Takes all away.
    Clear,
}

impl Capabilities {
    /// Those of a process that begins as this user: all for user 0, otherwise none.
    #[must_use]
    pub fn of_user(uid: u32) -> Self {
        let held = if uid == 0 { CapabilitySet::ALL } else { CapabilitySet::EMPTY };
        Self {
            effective: held,
            permitted: held,
            inheritable: CapabilitySet::EMPTY,
            bounding: CapabilitySet::ALL,
            ambient: CapabilitySet::EMPTY,
            secure_bits: 0,
        }
    }

    /// `capset`. `EPERM`: more than may be had.
    pub fn set(
        &mut self,
        effective: CapabilitySet,
        permitted: CapabilitySet,
        inheritable: CapabilitySet,
    ) -> Result<()> {
        let own = CapabilitySet(self.inheritable.0 | self.permitted.0);
        let bound = CapabilitySet(self.inheritable.0 | self.bounding.0);
        let may_inherit = self.effective.contains(Capability::SETPCAP) || inheritable.is_within(own);
        let is_allowed = may_inherit
            && inheritable.is_within(bound)
            && permitted.is_within(self.permitted)
            && effective.is_within(permitted);
        if !is_allowed {
            return Err(Errno::EPERM);
        }
        let ambient = CapabilitySet(self.ambient.0 & permitted.0 & inheritable.0);
        *self = Self { effective, permitted, inheritable, ambient, ..*self };
        Ok(())
    }

    /// What follows from new user identities: real, effective, saved, and the one for files.
    pub fn follow_user(&mut self, before: [u32; 4], after: [u32; 4]) {
        if self.secure_bits & BIT_NO_FOLLOW != 0 {
            return;
        }
        let is_root = |identity: [u32; 4]| identity[..3].contains(&0);
        if is_root(before) && !is_root(after) {
            if self.secure_bits & BIT_KEEP == 0 {
                self.permitted = CapabilitySet::EMPTY;
                self.effective = CapabilitySet::EMPTY;
            }
            self.ambient = CapabilitySet::EMPTY;
        }
        match (before[1] == 0, after[1] == 0) {
            (true, false) => self.effective = CapabilitySet::EMPTY,
            (false, true) => self.effective = self.permitted,
            _ => {}
        }
    }

    /// What counts where the real user is asked for instead of the effective one (`access`).
    #[must_use]
    pub fn of_real_user(&self, real: u32) -> CapabilitySet {
        match real {
            _ if self.secure_bits & BIT_NO_FOLLOW != 0 => self.effective,
            0 => self.permitted,
            _ => CapabilitySet::EMPTY,
        }
    }

    /// What follows from a new user for files alone (`setfsuid`).
    pub fn follow_file_user(&mut self, before: u32, after: u32) {
        if self.secure_bits & BIT_NO_FOLLOW != 0 {
            return;
        }
        let files = CapabilitySet::FILES.0;
        match (before == 0, after == 0) {
            (true, false) => self.effective.0 &= !files,
            (false, true) => self.effective.0 |= self.permitted.0 & files,
            _ => {}
        }
    }

    /// What a new program has, executed as these users (real, effective).
    pub fn follow_execution(&mut self, real: u32, effective: u32) {
        let is_root = self.secure_bits & BIT_NO_ROOT == 0;
        let is_given = is_root && (real == 0 || effective == 0);
        let given = if is_given { self.bounding.0 | self.inheritable.0 } else { 0 };
        self.permitted = CapabilitySet(given | self.ambient.0);
        self.effective = if is_root && effective == 0 { self.permitted } else { self.ambient };
        self.secure_bits &= !BIT_KEEP;
    }

    /// Takes one out of the bounding set for good. `EPERM`.
    pub fn drop_bound(&mut self, capability: Capability) -> Result<()> {
        if !self.effective.contains(Capability::SETPCAP) {
            return Err(Errno::EPERM);
        }
        self.bounding = self.bounding.without(capability);
        Ok(())
    }

    /// Changes the ambient set. `EPERM`: not both permitted and inheritable, or forbidden.
    pub fn change_ambient(&mut self, change: AmbientChange) -> Result<()> {
        match change {
            AmbientChange::Clear => self.ambient = CapabilitySet::EMPTY,
            AmbientChange::Lower(capability) => self.ambient = self.ambient.without(capability),
            AmbientChange::Raise(capability) => {
                let is_held = self.permitted.contains(capability) && self.inheritable.contains(capability);
                if !is_held || self.secure_bits & BIT_NO_AMBIENT != 0 {
                    return Err(Errno::EPERM);
                }
                self.ambient = self.ambient.with(capability);
            }
        }
        Ok(())
    }

    /// `PR_GET_SECUREBITS`.
    #[must_use]
    pub fn secure_bits(&self) -> u32 {
        self.secure_bits
    }

    /// `PR_SET_SECUREBITS`. `EPERM`: locked, unknown, or not allowed.
    pub fn set_secure_bits(&mut self, bits: u64) -> Result<()> {
        let before = self.secure_bits;
        let wanted = u32::try_from(bits).map_err(|_| Errno::EPERM)?;
        let changes_locked = (before & LOCKS) >> 1 & (before ^ wanted) != 0;
        let unlocks = before & LOCKS & !wanted != 0;
        let is_allowed = self.effective.contains(Capability::SETPCAP);
        if changes_locked || unlocks || wanted & !(BITS | LOCKS) != 0 || !is_allowed {
            return Err(Errno::EPERM);
        }
        self.secure_bits = wanted;
        Ok(())
    }

    /// `PR_GET_KEEPCAPS`.
    #[must_use]
    pub fn keeps(&self) -> bool {
        self.secure_bits & BIT_KEEP != 0
    }

    /// `PR_SET_KEEPCAPS`. `EPERM`: locked.
    pub fn set_keeps(&mut self, keeps: bool) -> Result<()> {
        if self.secure_bits & (BIT_KEEP << 1) != 0 {
            return Err(Errno::EPERM);
        }
        self.secure_bits = if keeps { self.secure_bits | BIT_KEEP } else { self.secure_bits & !BIT_KEEP };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{AmbientChange, Capabilities, Capability, CapabilitySet};
    use crate::error::Errno;

    const ALL: CapabilitySet = CapabilitySet::ALL;
    const NONE: CapabilitySet = CapabilitySet::EMPTY;
    const KILL: CapabilitySet = CapabilitySet(1 << 5);

    fn root() -> Capabilities {
        Capabilities::of_user(0)
    }

    #[test]
    fn what_was_given_up_does_not_come_back_but_by_executing() {
        let mut held = root();
        assert_eq!(held.set(KILL, KILL, NONE), Ok(()));
        assert!(held.effective.contains(Capability::KILL) && !held.effective.contains(Capability::SETUID));
        assert_eq!(held.set(ALL, ALL, NONE), Err(Errno::EPERM));
        assert_eq!(held.set(KILL, NONE, NONE), Err(Errno::EPERM), "effective lies in permitted");
        assert_eq!(held.set(NONE, KILL, ALL), Err(Errno::EPERM), "inheritable needs SETPCAP");
        assert_eq!(held.set(NONE, KILL, KILL), Ok(()));
        held.follow_execution(0, 0);
        assert_eq!((held.effective, held.permitted), (ALL, ALL));
    }

    #[test]
    fn sets_follow_the_user() {
        let mut held = root();
        held.follow_user([0; 4], [0, 7, 0, 7]);
        assert_eq!((held.effective, held.permitted), (NONE, ALL));
        held.follow_user([0, 7, 0, 7], [0; 4]);
        assert_eq!(held.effective, ALL);
        held.follow_user([0; 4], [7; 4]);
        assert_eq!((held.effective, held.permitted), (NONE, NONE));
        let mut held = root();
        assert_eq!(held.set_keeps(true), Ok(()));
        held.follow_user([0; 4], [7; 4]);
        assert_eq!((held.effective, held.permitted), (NONE, ALL));
        held.follow_execution(7, 7);
        assert_eq!((held.permitted, held.keeps()), (NONE, false));
    }

    #[test]
    fn the_user_for_files_has_a_part() {
        let mut held = root();
        held.follow_file_user(0, 7);
        assert!(held.effective.contains(Capability::KILL) && !held.effective.contains(Capability(1)));
        held.follow_file_user(7, 0);
        assert_eq!(held.effective, ALL);
    }

    #[test]
    fn ambient_ones_survive_executing_and_the_bounding_set_limits_it() {
        let mut held = root();
        assert_eq!(held.change_ambient(AmbientChange::Raise(Capability::KILL)), Err(Errno::EPERM));
        assert_eq!(held.set(ALL, ALL, KILL), Ok(()));
        assert_eq!(held.change_ambient(AmbientChange::Raise(Capability::KILL)), Ok(()));
        assert_eq!(held.drop_bound(Capability::SETUID), Ok(()));
        let mut root = held;
        root.follow_execution(0, 0);
        assert!(!root.permitted.contains(Capability::SETUID));
        let mut user = held;
        user.follow_execution(7, 7);
        assert_eq!((user.permitted, user.effective), (KILL, KILL));
        assert_eq!(held.set(NONE, NONE, KILL), Ok(()));
        assert_eq!((held.ambient, held.drop_bound(Capability::KILL)), (NONE, Err(Errno::EPERM)));
    }

    #[test]
    fn locked_bits_stay() {
        let mut held = root();
        assert_eq!(held.set_secure_bits(1 << 9), Err(Errno::EPERM));
        assert_eq!(held.set_secure_bits(0b11), Ok(()));
        assert_eq!(held.set_secure_bits(0b10), Err(Errno::EPERM));
        assert_eq!(held.set_secure_bits(0b01), Err(Errno::EPERM));
        held.follow_execution(0, 0);
        assert_eq!((held.secure_bits(), held.permitted), (0b11, NONE));
        assert_eq!(held.set_secure_bits(0b11), Err(Errno::EPERM));
        assert_eq!(Capability::new(41), Err(Errno::EINVAL));
    }
}
