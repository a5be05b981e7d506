//! The device model as a disk: its content in memory, requests checked as QEMU checks them, completions in the order of
//! the test's choice.

extern crate alloc;

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use aegis_hal::fake::FakeBus;

use super::{DeviceQueue, DriverFault, FakeSerial, Piece, SharedSerial};
use crate::block::{DEVICE_TYPE_BLOCK, FEATURES};
use crate::device::{FEATURE_ACCESS_PLATFORM, FEATURE_VERSION_1};
use crate::queue::{FEATURE_EVENT_INDEX, FEATURE_INDIRECT};

const HEADER_BYTES: usize = 16;
const SECTOR_BYTES: usize = 512;
/// Features that only some disks have; the test adds them.
const FEATURES_RARE: u64 = 1 << 1 | 1 << 5;

/// What makes the model a disk.
#[derive(Clone, Debug)]
pub struct DiskHost {
    /// Its bytes.
    pub content: Vec<u8>,
    /// Content of the configuration's size, in sectors.
    pub capacity: u64,
    /// Content of the configuration's longest piece.
    pub size_max: u32,
    /// Content of the configuration's most pieces.
    pub segment_max: u32,
    /// Content of the configuration's block.
    pub block_bytes: u32,
    /// Content of the configuration's first byte of topology.
    pub physical_exponent: u8,
    /// Content of the configuration's mode of the cache.
    pub cache_mode: u8,
    /// Content of the configuration's number of queues.
    pub queue_count: u16,
    /// Content of the configuration's most sectors to discard, and to set to zeros.
    pub range_sectors_max: u32,
    /// Requests that touch these sectors end in this status.
    pub bad: Vec<(Range<u64>, u8)>,
    /// Every request ends in this status, without an effect.
    pub status_forced: Option<u8>,
    /// Requests are taken and not finished.
    pub holds: bool,
    /// The newest of those that were taken is finished first.
    pub is_reversed: bool,
    /// Operations and first sectors, in the order in which they were seen.
    pub history: Vec<(u32, u64)>,
    held: Vec<(u16, u16, Vec<Piece>)>,
}

impl DiskHost {
    fn config(&self) -> Vec<u8> {
        let mut bytes = self.capacity.to_le_bytes().to_vec();
        bytes.extend(self.size_max.to_le_bytes());
        bytes.extend(self.segment_max.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.block_bytes.to_le_bytes());
        bytes.extend([self.physical_exponent, 0, 0, 0, 0, 0, 0, 0, self.cache_mode, 0]);
        bytes.extend(self.queue_count.to_le_bytes());
        for _ in 0..2 {
            bytes.extend(self.range_sectors_max.to_le_bytes());
            bytes.extend(1u32.to_le_bytes());
            bytes.extend(8u32.to_le_bytes());
        }
        bytes
    }
}

impl FakeSerial {
    /// A disk of `sector_count` sectors on `bus` with `queue_count` queues and all features but those of a disk that is
    /// only read, or whose pieces are limited; its queue sizes are QEMU's.
    #[must_use]
    pub fn disk(bus: &FakeBus, sector_count: u64, queue_count: u16) -> SharedSerial {
        let device = Self::new(bus, 1, Vec::new());
        {
            let mut device = device.borrow_mut();
            device.offered = FEATURE_VERSION_1
                | FEATURE_ACCESS_PLATFORM
                | FEATURE_EVENT_INDEX
                | FEATURE_INDIRECT
                | FEATURES & !FEATURES_RARE;
            let queue = DeviceQueue { size_max: 256, ..DeviceQueue::default() };
            device.queues = vec![queue; usize::from(queue_count)];
            device.disk = Some(DiskHost {
                content: vec![0; sector_count as usize * SECTOR_BYTES],
                capacity: sector_count,
                size_max: 0x10000,
                segment_max: 254,
                block_bytes: 512,
                physical_exponent: 3,
                cache_mode: 1,
                queue_count,
                range_sectors_max: 0x3f_ffff,
                bad: Vec::new(),
                status_forced: None,
                holds: false,
                is_reversed: false,
                history: Vec::new(),
                held: Vec::new(),
            });
        }
        device
    }

    /// What makes it a disk.
    ///
    /// # Panics
    /// If the model is no disk.
    pub fn medium(&mut self) -> &mut DiskHost {
        self.disk.as_mut().expect("a disk of the test")
    }

    /// The host changes the disk's size.
    pub fn resize(&mut self, sector_count: u64) {
        let disk = self.medium();
        disk.capacity = sector_count;
        disk.content.resize(sector_count as usize * SECTOR_BYTES, 0);
        self.raise(2);
    }

    pub(super) fn block_type(&self) -> Option<u32> {
        self.disk.as_ref().map(|_| DEVICE_TYPE_BLOCK)
    }

    pub(super) fn block_config(&self, offset: usize) -> Option<u64> {
        let bytes = self.disk.as_ref()?.config();
        let word = bytes.get(offset..offset + 4).and_then(|word| word.try_into().ok());
        Some(u64::from(word.map_or(u32::MAX, u32::from_le_bytes)))
    }

    /// What was taken and not finished is forgotten.
    pub(super) fn reset_block(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.held.clear();
        }
    }

    /// Takes all requests of a queue, and finishes what it may.
    pub(super) fn serve_block(&mut self, queue: u16) {
        while let Some((head, pieces)) = self.pop_available(queue) {
            self.medium().held.push((queue, head, pieces));
        }
        self.finish_block();
    }

    /// Finishes what was taken, if it may.
    pub(super) fn finish_block(&mut self) {
        let Some(disk) = self.disk.as_mut().filter(|disk| !disk.holds) else { return };
        let mut held = core::mem::take(&mut disk.held);
        if disk.is_reversed {
            held.reverse();
        }
        for (queue, head, pieces) in held {
            self.finish_one(queue, head, &pieces);
            self.interrupt_for(queue);
        }
    }

    fn finish_one(&mut self, queue: u16, head: u16, pieces: &[Piece]) {
        let out = self.gather(pieces);
        let writable: usize =
            pieces.iter().filter(|piece| piece.writable).map(|piece| piece.length_bytes as usize).sum();
        let header = out.first_chunk::<HEADER_BYTES>();
        let (Some(header), Some(data_bytes)) = (header, writable.checked_sub(1)) else {
            self.driver_faults.push(DriverFault::Chain { queue });
            return;
        };
        let [kind_bytes @ .., _, _, _, _, _, _, _, _, _, _, _, _] = *header;
        let sector_bytes = header.last_chunk::<8>().copied().unwrap_or_default();
        let (kind, sector) = (u32::from_le_bytes(kind_bytes), u64::from_le_bytes(sector_bytes));
        let (status, data) = self.perform_block((kind, sector), &out[HEADER_BYTES..], data_bytes);
        let status = self.medium().status_forced.unwrap_or(status);
        let mut answer = data;
        answer.resize(data_bytes, 0xee);
        answer.push(status);
        self.scatter(pieces, &answer);
        self.push_used(queue, u32::from(head), answer.len() as u32);
    }

    /// The status, and the bytes of a read.
    fn perform_block(&mut self, (kind, sector): (u32, u64), out: &[u8], in_bytes: usize) -> (u8, Vec<u8>) {
        let disk = self.medium();
        disk.history.push((kind, sector));
        let (first, byte_count) = match kind {
            0 => (sector, in_bytes),
            1 => (sector, out.len()),
            4 => return (0, Vec::new()),
            11 | 13 => {
                let Some((first, rest)) = out.split_first_chunk::<8>() else { return (1, Vec::new()) };
                let Some((count, rest)) = rest.split_first_chunk::<4>() else { return (1, Vec::new()) };
                let count = u32::from_le_bytes(*count);
                if rest != [0; 4] || count > disk.range_sectors_max {
                    return (2, Vec::new());
                }
                (u64::from_le_bytes(*first), count as usize * SECTOR_BYTES)
            }
            _ => return (2, Vec::new()),
        };
        let block_sectors = u64::from(disk.block_bytes) / SECTOR_BYTES as u64;
        let end = first.saturating_add((byte_count / SECTOR_BYTES) as u64);
        let is_whole = byte_count.is_multiple_of(disk.block_bytes as usize) && first.is_multiple_of(block_sectors);
        if end > disk.capacity || !is_whole {
            return (1, Vec::new());
        }
        if let Some((_, status)) = disk.bad.iter().find(|(bad, _)| bad.start < end && first < bad.end) {
            return (*status, Vec::new());
        }
        let start = first as usize * SECTOR_BYTES;
        let Some(place) = disk.content.get_mut(start..start + byte_count) else { return (1, Vec::new()) };
        match kind {
            0 => return (0, place.to_vec()),
            1 => place.copy_from_slice(out),
            _ => place.fill(0),
        }
        (0, Vec::new())
    }
}
