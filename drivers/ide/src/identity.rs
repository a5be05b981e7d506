//! What a disk says of itself (ATA/ATAPI-6, clause 8.15).

/// Bytes of it.
pub(crate) const IDENTITY_BYTES: usize = 512;
/// Sectors that a command without the extension reaches.
pub(crate) const LBA28_SECTOR_COUNT: u64 = 1 << 28;
/// Sectors that 48 bits reach.
const LBA48_SECTOR_COUNT: u64 = 1 << 48;
/// Sectors of a block of "multiple" that the driver uses at most.
const MULTIPLE_MAX: u8 = 16;
/// Ultra modes above this need a cable that is not looked at.
const ULTRA_MODE_MAX: u8 = 2;

/// The low byte of the last word, when its high byte is a checksum.
const CHECKSUM_SIGNATURE: u8 = 0xa5;
/// Word 106 and others are there when their two highest bits are these.
const IS_VALID: u16 = 1;

/// What a disk is and can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Sectors of 512 bytes.
    pub sector_count: u64,
    /// Bytes of what it writes without reading first.
    pub physical_block_bytes: u32,
    /// Sectors of a block of "multiple"; 0: it has none.
    pub multiple_sectors: u8,
    /// It has commands with 48 bits of place.
    pub has_lba48: bool,
    /// The transfer mode to set for DMA; `None`: it has none.
    pub dma_mode: Option<u8>,
    /// It flushes; with 48 bits, too.
    pub has_flush: bool,
    /// The same with the extended command.
    pub has_flush_ext: bool,
    /// Its write cache is on.
    pub has_write_cache: bool,
}

impl Identity {
    /// `None`: it cannot be, or the disk is one that the driver is not for.
    pub(crate) fn parse(bytes: &[u8; IDENTITY_BYTES]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<2>();
        let word = |index: usize| words.get(index).map_or(0, |word| u16::from_le_bytes(*word));
        let long = |index: usize| u32::from(word(index)) | u32::from(word(index + 1)) << 16;
        let sum = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        if word(255) as u8 == CHECKSUM_SIGNATURE && sum != 0 {
            return None;
        }
        // Bit 15: not an ATA device. Bit 9 of word 49: it has LBA.
        if word(0) & 1 << 15 != 0 || word(49) & 1 << 9 == 0 {
            return None;
        }
        let features = if word(83) >> 14 == IS_VALID { word(83) } else { 0 };
        let has_lba48 = features & 1 << 10 != 0;
        let long_count = u64::from(long(100)) | u64::from(long(102)) << 32;
        let sector_count = match has_lba48 && long_count > 0 {
            true => Some(long_count).filter(|count| *count <= LBA48_SECTOR_COUNT)?,
            false => u64::from(long(60)).min(LBA28_SECTOR_COUNT),
        };
        let sizes = if word(106) >> 14 == IS_VALID { word(106) } else { 0 };
        // Bit 12: sectors are longer than 512 bytes.
        if sector_count == 0 || sizes & 1 << 12 != 0 {
            return None;
        }
        let exponent = if sizes & 1 << 13 != 0 { u32::from(sizes & 0xf) } else { 0 };
        Some(Self {
            sector_count,
            physical_block_bytes: 512 << exponent,
            multiple_sectors: largest_multiple(word(47) as u8),
            has_lba48,
            dma_mode: if word(49) & 1 << 8 != 0 { dma_mode(word(53), word(63), word(88)) } else { None },
            has_flush: features & 1 << 12 != 0,
            has_flush_ext: has_lba48 && features & 1 << 13 != 0,
            has_write_cache: word(85) & 1 << 5 != 0,
        })
    }
}

/// A power of two, as devices want it.
fn largest_multiple(most: u8) -> u8 {
    most.min(MULTIPLE_MAX).checked_ilog2().map_or(0, |log2| 1 << log2)
}

/// The fastest mode of those that each word says with a bit.
fn dma_mode(validity: u16, multiword: u16, ultra: u16) -> Option<u8> {
    let fastest = |modes: u16| (modes as u8).checked_ilog2().map(|mode| mode as u8);
    let ultra = if validity & 1 << 2 != 0 { fastest(ultra) } else { None };
    let ultra = ultra.map(|mode| crate::registers::MODE_ULTRA | mode.min(ULTRA_MODE_MAX));
    ultra.or_else(|| fastest(multiword & 0x7).map(|mode| crate::registers::MODE_MULTIWORD | mode))
}
