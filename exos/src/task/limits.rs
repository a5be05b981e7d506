//! Resource limits: sixteen pairs of soft and hard values, numbered as in POSIX and Linux (`RLIMIT_*`).

use crate::error::{Errno, Result};

/// "No limit".
pub const UNLIMITED: u64 = u64::MAX;
/// Limits in all.
pub const RESOURCE_COUNT: usize = 16;
/// Most open files of a process that a limit can say (`/proc/sys/fs/nr_open`).
pub const OPEN_FILES_MAX: u64 = 1 << 20;

/// A limited resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[expect(missing_docs, reason = "POSIX names")]
pub enum Resource {
    Cpu = 0,
    FileSize = 1,
    Data = 2,
    Stack = 3,
    Core = 4,
    ResidentSet = 5,
    Processes = 6,
    OpenFiles = 7,
    LockedMemory = 8,
    AddressSpace = 9,
    Locks = 10,
    PendingSignals = 11,
    MessageQueue = 12,
    Nice = 13,
    RealTimePriority = 14,
    RealTimeTime = 15,
}

/// Soft and hard value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Value that is enforced.
    pub soft: u64,
    /// How far the soft value may be raised.
    pub hard: u64,
}

/// All limits of a process.
#[derive(Clone, Debug)]
pub struct Limits {
    values: [Limit; RESOURCE_COUNT],
}

impl Default for Limits {
    /// Linux's defaults for a first process, with core files off and many open files.
    fn default() -> Self {
        let unlimited = Limit { soft: UNLIMITED, hard: UNLIMITED };
        let mut values = [unlimited; RESOURCE_COUNT];
        values[Resource::Stack as usize].soft = 8 << 20;
        values[Resource::Core as usize].soft = 0;
        values[Resource::OpenFiles as usize] = Limit { soft: 1024, hard: 65_536 };
        values[Resource::LockedMemory as usize] = Limit { soft: 8 << 20, hard: 8 << 20 };
        values[Resource::Processes as usize] = Limit { soft: 4096, hard: 4096 };
        values[Resource::PendingSignals as usize] = Limit { soft: 4096, hard: 4096 };
        values[Resource::MessageQueue as usize] = Limit { soft: 819_200, hard: 819_200 };
        values[Resource::Nice as usize] = Limit { soft: 0, hard: 0 };
        values[Resource::RealTimePriority as usize] = Limit { soft: 0, hard: 0 };
        Self { values }
    }
}

impl Limits {
    /// The limit numbered `resource`; `EINVAL` if there is none.
    pub fn get(&self, resource: usize) -> Result<Limit> {
        self.values.get(resource).copied().ok_or(Errno::EINVAL)
    }

    /// The soft value of a known resource.
    #[must_use]
    pub fn soft(&self, resource: Resource) -> u64 {
        self.values[resource as usize].soft
    }

    /// Sets a limit. `EINVAL`: no such resource, or soft above hard; `EPERM`: raises the hard value without privilege,
    /// or lets more files be open than a table can have.
    pub fn set(&mut self, resource: usize, limit: Limit, is_privileged: bool) -> Result<()> {
        let old = self.values.get_mut(resource).ok_or(Errno::EINVAL)?;
        if limit.soft > limit.hard {
            return Err(Errno::EINVAL);
        }
        let is_beyond = resource == Resource::OpenFiles as usize && limit.hard > OPEN_FILES_MAX;
        if (limit.hard > old.hard && !is_privileged) || is_beyond {
            return Err(Errno::EPERM);
        }
        *old = limit;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Limit, Limits, Resource};
    use crate::error::Errno;

    #[test]
    fn soft_above_hard_is_refused() {
        let mut limits = Limits::default();
        let bad = Limit { soft: 2, hard: 1 };
        assert_eq!(limits.set(Resource::Cpu as usize, bad, true), Err(Errno::EINVAL));
    }

    #[test]
    fn raising_the_hard_value_needs_privilege() {
        let mut limits = Limits::default();
        let low = Limit { soft: 1, hard: 1 };
        assert_eq!(limits.set(3, low, false), Ok(()));
        let high = Limit { soft: 1, hard: 2 };
        assert_eq!(limits.set(3, high, false), Err(Errno::EPERM));
        assert_eq!(limits.set(3, high, true), Ok(()));
        assert_eq!(limits.get(3), Ok(high));
        assert_eq!(limits.get(16), Err(Errno::EINVAL));
    }
}
