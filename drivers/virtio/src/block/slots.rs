//! What each request has in the driver's own memory: header, status, the range of a request that names no memory, and
//! the table of its pieces.
//!
//! | at | what | written by |
//! |---|---|---|
//! | 0 | header: what is asked, and where (section 5.2.6) | driver |
//! | 16 | status: one byte | device, over [`STATUS_OPEN`] |
//! | 32 | the range to discard, or to set to zeros | driver |
//! | 64 | the table: header, pieces, status | driver |
//!
//! The header's entry of each table is written once: it never changes, and a device that changes it misleads itself.

use aegis_hal::{AccessError, DeviceAddress, DmaBuffer};

use crate::queue::{DESCRIPTOR_BYTES, DESCRIPTOR_NEXT, DESCRIPTOR_WRITE};

/// Bytes of a request's header.
pub(super) const HEADER_BYTES: u32 = 16;
/// Bytes of a range.
pub(super) const RANGE_BYTES: u32 = 16;
/// What a status is before the device has written it: no status that there is.
pub(super) const STATUS_OPEN: u8 = 0xff;

const STATUS_OFFSET: usize = 16;
const RANGE_OFFSET: usize = 32;
const TABLE_OFFSET: usize = 64;
/// Entries of a table beside those of pieces: header and status.
pub(super) const FRAME_COUNT: usize = 2;

/// Bytes of a request that has at most so many pieces.
pub(super) const fn slot_bytes(segment_count_max: u16) -> usize {
    TABLE_OFFSET + DESCRIPTOR_BYTES * (segment_count_max as usize + FRAME_COUNT)
}

/// All requests' memory.
#[derive(Debug)]
pub(super) struct Slots<B> {
    memory: B,
    slot_bytes: usize,
    base: DeviceAddress,
}

/// The memory of one request.
#[derive(Debug)]
pub(super) struct Slot<'a, B> {
    memory: &'a mut B,
    place: usize,
    address: DeviceAddress,
}

impl<B: DmaBuffer> Slots<B> {
    /// Memory for `count` requests of at most so many pieces.
    pub(super) fn new(memory: B, segment_count_max: u16) -> Self {
        let base = memory.device_address();
        Self { memory, slot_bytes: slot_bytes(segment_count_max), base }
    }

    /// Writes what never changes.
    pub(super) fn prepare(&mut self, count: u16) -> Result<(), AccessError> {
        for tag in 0..count {
            let mut slot = self.slot(tag);
            let header = slot.address;
            slot.write_entry(0, header, u64::from(HEADER_BYTES), DESCRIPTOR_NEXT)?;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn slot(&mut self, tag: u16) -> Slot<'_, B> {
        let place = usize::from(tag) * self.slot_bytes;
        Slot { memory: &mut self.memory, place, address: self.base.offset(place) }
    }

    /// What the device says of a request.
    #[inline]
    pub(super) fn status(&self, tag: u16) -> Result<u8, AccessError> {
        self.memory.read_u8(usize::from(tag) * self.slot_bytes + STATUS_OFFSET)
    }

    pub(super) fn into_memory(self) -> B {
        self.memory
    }
}

impl<B: DmaBuffer> Slot<'_, B> {
    #[inline]
    pub(super) fn write_header(&mut self, kind: u32, first_sector: u64) -> Result<(), AccessError> {
        self.memory.write_u64(self.place, u64::from(kind))?;
        self.memory.write_u64(self.place + 8, first_sector)?;
        self.memory.write_u8(self.place + STATUS_OFFSET, STATUS_OPEN)
    }

    pub(super) fn write_range(&mut self, first_sector: u64, sector_count: u32) -> Result<(), AccessError> {
        self.memory.write_u64(self.place + RANGE_OFFSET, first_sector)?;
        self.memory.write_u64(self.place + RANGE_OFFSET + 8, u64::from(sector_count))
    }

    /// The entry of piece `position`.
    #[inline]
    pub(super) fn write_piece(
        &mut self,
        position: usize,
        (address, length_bytes): (DeviceAddress, u32),
        is_written: bool,
    ) -> Result<(), AccessError> {
        let flags = DESCRIPTOR_NEXT | if is_written { DESCRIPTOR_WRITE } else { 0 };
        self.write_entry(position + 1, address, u64::from(length_bytes), flags)
    }

    /// The last entry, behind `piece_count` pieces; the table's bytes.
    #[inline]
    pub(super) fn end(&mut self, piece_count: usize) -> Result<u32, AccessError> {
        self.write_entry(piece_count + 1, self.status_address(), 1, DESCRIPTOR_WRITE)?;
        Ok((DESCRIPTOR_BYTES * (piece_count + FRAME_COUNT)) as u32)
    }

    #[inline]
    fn write_entry(
        &mut self,
        index: usize,
        address: DeviceAddress,
        length_bytes: u64,
        flags: u64,
    ) -> Result<(), AccessError> {
        let offset = self.place + TABLE_OFFSET + DESCRIPTOR_BYTES * index;
        // Without the flag that there is a next one the device does not look at its number.
        let rest = length_bytes | flags << 32 | (index as u64 + 1) << 48;
        self.memory.write_u64(offset, address.0)?;
        self.memory.write_u64(offset + 8, rest)
    }

    pub(super) const fn header_address(&self) -> DeviceAddress {
        self.address
    }

    #[inline]
    pub(super) const fn status_address(&self) -> DeviceAddress {
        self.address.offset(STATUS_OFFSET)
    }

    pub(super) const fn range_address(&self) -> DeviceAddress {
        self.address.offset(RANGE_OFFSET)
    }

    #[inline]
    pub(super) const fn table_address(&self) -> DeviceAddress {
        self.address.offset(TABLE_OFFSET)
    }
}
