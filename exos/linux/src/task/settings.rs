//! Values below `/proc/sys` that are kept as they are set, and change nothing here.
//!
//! They steer what exos does not do: writing pages back to a disk, paging out, core files, panics of the kernel. What
//! would change something is no number of this table: it is read-only, or belongs to the part that acts on it; but for
//! `aio-max-nr`, which `io_setup` asks for.

use alloc::collections::BTreeMap;
use core::ops::RangeInclusive;

use exos::error::{Errno, Result};
use exos::fs::proc_fs::SystemText;
use exos::sync::Mutex;

/// Longest number that is read, with blanks around it.
const NUMBER_BYTES_MAX: usize = 64;

/// What a setting is at first, and what it may be.
pub(crate) fn default_of(text: SystemText) -> Option<(i64, RangeInclusive<i64>)> {
    const ANY: RangeInclusive<i64> = i32::MIN as i64..=i32::MAX as i64;
    const NATURAL: RangeInclusive<i64> = 0..=i32::MAX as i64;
    const LONG: RangeInclusive<i64> = 0..=i64::MAX;
    Some(match text {
        SystemText::AsyncCountMax => (1 << 16, LONG),
        SystemText::CorePipes => (0, ANY),
        SystemText::CoreNames | SystemText::RestartKeys => (0, ANY),
        SystemText::Panic | SystemText::PanicOnOops | SystemText::FatalSignals => (0, ANY),
        SystemText::PointersHidden | SystemText::RightsOfDumps => (0, 0..=2),
        SystemText::DirtyBackgroundBytes | SystemText::DirtyBytes => (0, LONG),
        SystemText::DirtyBackgroundRatio => (10, 0..=100),
        SystemText::DirtyRatio => (20, 0..=100),
        SystemText::DirtyExpire => (3000, NATURAL),
        SystemText::DirtyWriteback => (500, NATURAL),
        SystemText::LaptopMode => (0, NATURAL),
        SystemText::DumpOfTasks => (1, ANY),
        SystemText::SwapCluster => (3, 0..=31),
        SystemText::PanicOnExhaustion => (0, 0..=2),
        SystemText::Swappiness => (60, 0..=200),
        SystemText::CachePressure => (100, NATURAL),
        _ => return None,
    })
}

/// The settings of a pod.
#[derive(Default)]
pub(crate) struct Settings {
    /// Those that were set, by their place in `SystemText`.
    set: Mutex<BTreeMap<usize, i64>>,
}

impl Settings {
    /// What a setting is now; `None`: it is none of these.
    pub(crate) fn get(&self, text: SystemText) -> Option<i64> {
        let (default, _) = default_of(text)?;
        Some(self.set.lock().get(&(text as usize)).copied().unwrap_or(default))
    }

    /// Takes what a program wrote. `EINVAL`: no number, or none that it may be.
    pub(crate) fn set(&self, text: SystemText, value: &[u8]) -> Result<()> {
        let (_, range) = default_of(text).ok_or(Errno::EPERM)?;
        let value = &value[..value.len().min(NUMBER_BYTES_MAX)];
        let number = core::str::from_utf8(value).ok().and_then(|value| value.trim().parse::<i64>().ok());
        let number = number.filter(|number| range.contains(number)).ok_or(Errno::EINVAL)?;
        self.set.lock().insert(text as usize, number);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Settings;
    use exos::error::Errno;
    use exos::fs::proc_fs::SystemText;

    #[test]
    fn what_was_written_is_read_and_nothing_else_is_taken() {
        let settings = Settings::default();
        assert_eq!(settings.get(SystemText::Swappiness), Some(60));
        for wrong in [&b"201"[..], b"-1", b"x", b"", b"1 2", &[0xff]] {
            assert_eq!(settings.set(SystemText::Swappiness, wrong), Err(Errno::EINVAL), "{wrong:?}");
        }
        assert_eq!(settings.set(SystemText::Swappiness, b" 33\n"), Ok(()));
        assert_eq!((settings.get(SystemText::Swappiness), settings.get(SystemText::DirtyRatio)), (Some(33), Some(20)));
        assert_eq!(settings.set(SystemText::Taints, b"1"), Err(Errno::EPERM));
    }
}
