//! What the first program may do and use besides what its user may, as records of the run configuration. Nothing said:
//! as every program of the library OS begins.

use alloc::vec::Vec;

use aegis_image::bytes::{u32_at, u64_at};
use bitflags::bitflags;

pub(crate) const TAG_CAPABILITIES: u32 = 22;
pub(crate) const TAG_LIMIT: u32 = 23;
pub(crate) const TAG_PROCESS: u32 = 24;

/// Most limits: each of Linux's once.
pub const LIMIT_COUNT_MAX: usize = 16;
/// An `oom_score_adj` lies between this and its negative.
const ADJUST_MAX: i32 = 1000;

/// Sets of capabilities, each capability a bit by Linux's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapabilitySets {
    /// What no program gets beyond.
    pub bounding: u64,
    /// What programs keep if their files say so.
    pub inheritable: u64,
    /// What programs keep.
    pub ambient: u64,
}

/// A resource's limits, as `setrlimit` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceLimit {
    /// `RLIMIT_*`.
    pub resource: u32,
    /// What counts.
    pub soft: u64,
    /// What the other may be raised to.
    pub hard: u64,
}

bitflags! {
    /// Switches of a process, and which numbers are said.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct ProcessFlags: u32 {
        const NO_NEW_PRIVILEGES = 1;
        const ADJUST = 1 << 1;
        const UMASK = 1 << 2;
        const _ = !0;
    }
}

/// What the first program may do and use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// `None`: all for user 0, none for others.
    pub capabilities: Option<CapabilitySets>,
    /// Those that are not the library OS's own.
    pub limits: Vec<ResourceLimit>,
    /// `PR_SET_NO_NEW_PRIVS`.
    pub no_new_privileges: bool,
    /// `oom_score_adj`.
    pub out_of_memory_adjust: Option<i32>,
    /// Permission bits that new files do not get.
    pub umask: Option<u32>,
}

impl Rights {
    /// Gives each record to `record`: its tag and value.
    pub(crate) fn write(&self, mut record: impl FnMut(u32, &[u8])) {
        if let Some(sets) = self.capabilities {
            let sets = [sets.bounding, sets.inheritable, sets.ambient].map(u64::to_le_bytes);
            record(TAG_CAPABILITIES, sets.as_flattened());
        }
        for limit in &self.limits {
            let mut value = limit.resource.to_le_bytes().to_vec();
            value.extend_from_slice(&limit.soft.to_le_bytes());
            value.extend_from_slice(&limit.hard.to_le_bytes());
            record(TAG_LIMIT, &value);
        }
        let mut flags = ProcessFlags::empty();
        flags.set(ProcessFlags::NO_NEW_PRIVILEGES, self.no_new_privileges);
        flags.set(ProcessFlags::ADJUST, self.out_of_memory_adjust.is_some());
        flags.set(ProcessFlags::UMASK, self.umask.is_some());
        if !flags.is_empty() {
            let adjust = self.out_of_memory_adjust.unwrap_or(0).cast_unsigned();
            let words = [flags.bits(), adjust, self.umask.unwrap_or(0)].map(u32::to_le_bytes);
            record(TAG_PROCESS, words.as_flattened());
        }
    }

    /// Takes one record over; `None` for a wrong length or a number that is none.
    pub(crate) fn take_record(&mut self, tag: u32, value: &[u8]) -> Option<()> {
        let exactly = |length: usize| (value.len() == length).then_some(());
        match tag {
            TAG_CAPABILITIES => {
                exactly(24)?;
                let (bounding, inheritable, ambient) = (u64_at(value, 0)?, u64_at(value, 8)?, u64_at(value, 16)?);
                self.capabilities = Some(CapabilitySets { bounding, inheritable, ambient });
            }
            TAG_LIMIT => {
                exactly(20)?;
                let (resource, soft, hard) = (u32_at(value, 0)?, u64_at(value, 4)?, u64_at(value, 12)?);
                self.limits.push(ResourceLimit { resource, soft, hard });
            }
            _ => {
                exactly(12)?;
                let flags = ProcessFlags::from_bits_retain(u32_at(value, 0)?);
                self.no_new_privileges = flags.contains(ProcessFlags::NO_NEW_PRIVILEGES);
                let (adjust, umask) = (u32_at(value, 4)?.cast_signed(), u32_at(value, 8)?);
                self.out_of_memory_adjust = flags.contains(ProcessFlags::ADJUST).then_some(adjust);
                self.umask = flags.contains(ProcessFlags::UMASK).then_some(umask);
            }
        }
        Some(())
    }

    /// Whether all numbers are in their ranges.
    pub(crate) fn is_valid(&self) -> bool {
        let is_limit = |limit: &ResourceLimit| (limit.resource as usize) < LIMIT_COUNT_MAX && limit.soft <= limit.hard;
        self.limits.len() <= LIMIT_COUNT_MAX
            && self.limits.iter().all(is_limit)
            && self.out_of_memory_adjust.is_none_or(|adjust| (-ADJUST_MAX..=ADJUST_MAX).contains(&adjust))
            && self.umask.is_none_or(|umask| umask <= 0o777)
    }
}

#[cfg(test)]
mod tests {
    use super::{CapabilitySets, ResourceLimit, Rights};
    use crate::config::{Config, ConfigError};

    #[test]
    fn rights_come_back_as_they_were_said() {
        let rights = Rights {
            capabilities: Some(CapabilitySets { bounding: 1 << 40, inheritable: 3, ambient: 1 }),
            limits: alloc::vec![ResourceLimit { resource: 7, soft: 1024, hard: u64::MAX }],
            no_new_privileges: true,
            out_of_memory_adjust: Some(-1000),
            umask: Some(0o077),
        };
        let umask = Rights { umask: Some(0), ..Rights::default() };
        for rights in [rights, umask, Rights::default()] {
            let config = Config { program: b"p".to_vec(), rights: rights.clone(), ..Config::default() };
            assert_eq!(Config::decode(&config.encode().expect("valid")).expect("its own").rights, rights);
        }
        let limit = |resource, soft, hard| alloc::vec![ResourceLimit { resource, soft, hard }];
        for rights in [
            Rights { limits: limit(16, 0, 0), ..Rights::default() },
            Rights { limits: limit(0, 2, 1), ..Rights::default() },
            Rights { out_of_memory_adjust: Some(1001), ..Rights::default() },
            Rights { umask: Some(0o1000), ..Rights::default() },
        ] {
            let config = Config { program: b"p".to_vec(), rights, ..Config::default() };
            assert_eq!(config.encode(), Err(ConfigError::Rights));
        }
    }
}
