//! What the device says of itself (section 5.2.4), checked before it becomes [`BlockLimits`].
//!
//! The configuration has no generation that all transports show, so a value of two words is read until its halves
//! belong together. Words are read at four bytes: the shortest configuration that a device has is longer than any of
//! them that its features let the driver read.

use aegis_hal::block::{BlockLimits, RangeLimits, SECTOR_BYTES};

use super::Limits;
use crate::{DeviceFault, Transport, VirtioError};

/// Feature: the configuration says the longest piece.
pub(crate) const FEATURE_SIZE_MAX: u64 = 1 << 1;
/// Feature: the configuration says the most pieces.
pub(crate) const FEATURE_SEGMENT_MAX: u64 = 1 << 2;
/// Feature: nothing can be written.
pub(crate) const FEATURE_READ_ONLY: u64 = 1 << 5;
/// Feature: the configuration says the size of a block.
pub(crate) const FEATURE_BLOCK_SIZE: u64 = 1 << 6;
/// Feature: what completed can be flushed.
pub(crate) const FEATURE_FLUSH: u64 = 1 << 9;
/// Feature: the configuration says what is written without being read first.
pub(crate) const FEATURE_TOPOLOGY: u64 = 1 << 10;
/// Feature: the configuration says whether there is a write cache.
pub(crate) const FEATURE_CACHE_MODE: u64 = 1 << 11;
/// Feature: there are several queues.
pub(crate) const FEATURE_QUEUES: u64 = 1 << 12;
/// Feature: it discards.
pub(crate) const FEATURE_DISCARD: u64 = 1 << 13;
/// Feature: it writes zeros by itself.
pub(crate) const FEATURE_WRITE_ZEROES: u64 = 1 << 14;
/// What a disk may be asked for, besides what all devices have.
pub(crate) const FEATURES: u64 = FEATURE_SIZE_MAX
    | FEATURE_SEGMENT_MAX
    | FEATURE_READ_ONLY
    | FEATURE_BLOCK_SIZE
    | FEATURE_FLUSH
    | FEATURE_TOPOLOGY
    | FEATURE_CACHE_MODE
    | FEATURE_QUEUES
    | FEATURE_DISCARD
    | FEATURE_WRITE_ZEROES;

/// Places of the configuration's words.
mod word {
    pub(super) const CAPACITY: usize = 0x00;
    pub(super) const SIZE_MAX: usize = 0x08;
    pub(super) const SEGMENT_MAX: usize = 0x0c;
    pub(super) const BLOCK_SIZE: usize = 0x14;
    pub(super) const TOPOLOGY: usize = 0x18;
    /// The cache's mode in the first byte, the number of queues in the upper half.
    pub(super) const CACHE_AND_QUEUES: usize = 0x20;
    pub(super) const DISCARD: usize = 0x24;
    pub(super) const DISCARD_ALIGNMENT: usize = 0x2c;
    pub(super) const WRITE_ZEROES: usize = 0x30;
}

/// A block that is longer is not believed: the unit of memory that is given to devices.
const BLOCK_BYTES_MAX: u32 = 4096;
/// Sectors of the longest request, whatever its pieces hold: what QEMU takes, and a multiple of every block.
const SECTOR_COUNT_MAX: u32 = 0x3f_fff8;
/// Times that a value of two words is read before its device counts as one that plays with it.
const READ_COUNT_MAX: u32 = 8;

/// Its size in sectors.
pub(super) fn sector_count(transport: &impl Transport) -> Result<u64, VirtioError> {
    let mut high = transport.config_u32(word::CAPACITY + 4)?;
    for _ in 0..READ_COUNT_MAX {
        let low = transport.config_u32(word::CAPACITY)?;
        let again = core::mem::replace(&mut high, transport.config_u32(word::CAPACITY + 4)?);
        if again == high {
            return Ok(u64::from(high) << 32 | u64::from(low));
        }
    }
    Err(DeviceFault::DiskLayout.into())
}

/// What the device is and takes, as far as its configuration says it; `depth` is for its queues to say.
pub(super) fn read(transport: &impl Transport, features: u64, limits: &Limits) -> Result<BlockLimits, VirtioError> {
    let has = |feature: u64| features & feature != 0;
    let word_if = |feature: u64, offset: usize, otherwise: u32| match has(feature) {
        true => transport.config_u32(offset),
        false => Ok(otherwise),
    };
    let logical_block_bytes = word_if(FEATURE_BLOCK_SIZE, word::BLOCK_SIZE, SECTOR_BYTES)?;
    if !logical_block_bytes.is_power_of_two() || !(SECTOR_BYTES..=BLOCK_BYTES_MAX).contains(&logical_block_bytes) {
        return Err(DeviceFault::DiskLayout.into());
    }
    let segment_bytes_max = word_if(FEATURE_SIZE_MAX, word::SIZE_MAX, u32::MAX)?;
    // Pieces of less than a block would be a disk that takes nothing.
    if segment_bytes_max < logical_block_bytes {
        return Err(DeviceFault::DiskLayout.into());
    }
    // Without the feature a request has one piece (section 5.2.5).
    let segment_count_max = word_if(FEATURE_SEGMENT_MAX, word::SEGMENT_MAX, 1)?.max(1);
    let segment_count_max = u16::try_from(segment_count_max).unwrap_or(u16::MAX).min(limits.segment_count_max);
    let physical_exponent = word_if(FEATURE_TOPOLOGY, word::TOPOLOGY, 0)? as u8;
    let physical_block_bytes = logical_block_bytes.checked_shl(u32::from(physical_exponent)).unwrap_or(0);
    let cache_and_queues = word_if(FEATURE_CACHE_MODE | FEATURE_QUEUES, word::CACHE_AND_QUEUES, 0)?;
    let queue_count = if has(FEATURE_QUEUES) { (cache_and_queues >> 16) as u16 } else { 1 };
    let range = |feature: u64, offset: usize, alignment: u32| -> Result<Option<RangeLimits>, VirtioError> {
        let sector_count_max = word_if(feature, offset, 0)?;
        let block_sectors = logical_block_bytes / SECTOR_BYTES;
        let range = RangeLimits { sector_count_max, alignment_sectors: alignment.max(block_sectors) };
        Ok((sector_count_max >= block_sectors).then_some(range))
    };
    let discard_alignment = word_if(FEATURE_DISCARD, word::DISCARD_ALIGNMENT, 1)?;
    let pieces_sectors = u64::from(segment_bytes_max) * u64::from(segment_count_max) / u64::from(SECTOR_BYTES);
    let block_mask = logical_block_bytes / SECTOR_BYTES - 1;
    Ok(BlockLimits {
        sector_count: sector_count(transport)?,
        logical_block_bytes,
        // A device that says nonsense is not asked to be believed in what is only advice.
        physical_block_bytes: if physical_block_bytes == 0 { logical_block_bytes } else { physical_block_bytes },
        segment_count_max,
        segment_bytes_max,
        sector_count_max: pieces_sectors.min(u64::from(SECTOR_COUNT_MAX)) as u32 & !block_mask,
        depth: 0,
        queue_count: queue_count.clamp(1, limits.queue_count_max.max(1)),
        has_write_cache: match has(FEATURE_CACHE_MODE) {
            true => cache_and_queues as u8 != 0,
            false => has(FEATURE_FLUSH),
        },
        is_read_only: has(FEATURE_READ_ONLY),
        is_rotational: false,
        discard: range(FEATURE_DISCARD, word::DISCARD, discard_alignment)?,
        write_zeroes: range(FEATURE_WRITE_ZEROES, word::WRITE_ZEROES, 1)?,
    })
}
