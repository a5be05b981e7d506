//! The disks of a pod, as records of the run configuration: one for each, in the order of their names, and one for the
//! order in which their requests go.
//!
//! A disk's device is found by looking at the functions that there are; the tool makes them in the order of the
//! records. Extents of the machine's pool have none: they are the pod's in the manager's plan, in the same order. A
//! byte of a later version is left out.

use alloc::vec::Vec;
use bitflags::bitflags;

/// Most disks of a pod.
pub const DISK_COUNT_MAX: usize = 16;
/// Most that an extended kernel drives in a machine.
pub const KERNEL_DISK_COUNT_MAX: usize = 4;
/// Most of them at a PC's own controller: one for each channel.
pub const IDE_DISK_COUNT_MAX: usize = 2;

bitflags! {
    /// What is said of a disk.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct DiskFlags: u8 {
        /// Nothing is written to it.
        const READ_ONLY = 1 << 0;
        /// It is an extent of the machine's pool, and no device of the pod's.
        const POOLED = 1 << 1;
    }
}

/// In what order requests go. 0 is the usual one of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOrder {
    /// As they came.
    Fifo = 1,
    /// Upwards over the disk.
    Elevator = 2,
    /// Upwards, but none waits for long.
    Deadline = 3,
    /// As they came, neighbours joined.
    Program = 4,
}

impl RequestOrder {
    /// All.
    pub const ALL: [Self; 4] = [Self::Fifo, Self::Elevator, Self::Deadline, Self::Program];

    /// As users write it, and exos calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Elevator => "elevator",
            Self::Deadline => "deadline",
            Self::Program => "program",
        }
    }
}

/// The disks of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disks {
    /// Each.
    pub disks: Vec<DiskFlags>,
    /// The order of their requests; `None`: the usual one.
    pub order: Option<RequestOrder>,
}

pub(crate) const TAG_DISK: u32 = 18;
pub(crate) const TAG_REQUEST_ORDER: u32 = 19;

impl Disks {
    /// Gives each record to `record`: its tag and value.
    pub(crate) fn write(&self, mut record: impl FnMut(u32, &[u8])) {
        self.disks.iter().for_each(|disk| record(TAG_DISK, &[disk.bits()]));
        if let Some(order) = self.order {
            record(TAG_REQUEST_ORDER, &[order as u8]);
        }
    }

    /// Takes one record over; `None` for a wrong length, or a disk too many.
    pub(crate) fn take_record(&mut self, tag: u32, value: &[u8]) -> Option<()> {
        let [value] = *<&[u8; 1]>::try_from(value).ok()?;
        match tag {
            TAG_DISK if self.disks.len() < DISK_COUNT_MAX => self.disks.push(DiskFlags::from_bits_truncate(value)),
            TAG_DISK => return None,
            _ => self.order = RequestOrder::ALL.into_iter().find(|order| *order as u8 == value),
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::{DISK_COUNT_MAX, DiskFlags, Disks, RequestOrder, TAG_DISK, TAG_REQUEST_ORDER};

    #[test]
    fn records_come_back() {
        for order in [None].into_iter().chain(RequestOrder::ALL.map(Some)) {
            let disks = Disks { disks: [DiskFlags::empty(), DiskFlags::READ_ONLY].into(), order };
            let mut read = Disks::default();
            disks.write(|tag, value| assert_eq!(read.take_record(tag, value), Some(())));
            assert_eq!(read, disks);
        }
    }

    #[test]
    fn there_are_not_too_many_and_lengths_are_looked_at() {
        let mut disks = Disks::default();
        for _ in 0..DISK_COUNT_MAX {
            assert_eq!(disks.take_record(TAG_DISK, &[0xfc]), Some(()));
        }
        assert_eq!(disks.take_record(TAG_DISK, &[0]), None);
        assert_eq!(disks.take_record(TAG_REQUEST_ORDER, &[]), None);
        assert_eq!(disks.take_record(TAG_REQUEST_ORDER, &[9]), Some(()));
        assert!(disks.order.is_none() && disks.disks.iter().all(DiskFlags::is_empty));
    }
}
