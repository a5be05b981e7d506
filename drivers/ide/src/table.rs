//! What the bus master reads: for each request a table of pieces, each of 32 bits of address, at most 64 KiB, and
//! across no line of 64 KiB ("Programming Interface for Bus Master IDE Controller", 1.0, clause 1.2).

use aegis_hal::{AccessError, DeviceAddress, DmaBuffer};

/// Bytes of an entry.
const ENTRY_BYTES: usize = 8;
/// The last entry says so.
const IS_LAST: u64 = 1 << 63;
/// What no piece may cross.
const LINE_BYTES: u64 = 1 << 16;
/// What is beyond is not reached.
const REACH_BYTES: u64 = 1 << 32;

/// Bytes of a table of so many pieces, each at most [`LINE_BYTES`] long: a power of two, so that no table crosses a
/// line, either.
pub(crate) const fn table_bytes(segment_count_max: u16) -> usize {
    (2 * segment_count_max as usize * ENTRY_BYTES).next_power_of_two()
}

/// The tables of all requests.
#[derive(Debug)]
pub(crate) struct Tables<B> {
    memory: B,
    table_bytes: usize,
    base: u32,
}

impl<B: DmaBuffer> Tables<B> {
    /// The buffer back, if the bus master does not reach it.
    pub(crate) fn new(memory: B, segment_count_max: u16) -> Result<Self, B> {
        let base = memory.device_address().0;
        match u32::try_from(base) {
            Ok(address) if base + memory.length_bytes() as u64 <= REACH_BYTES => {
                Ok(Self { memory, table_bytes: table_bytes(segment_count_max), base: address })
            }
            _ => Err(memory),
        }
    }

    /// Where the bus master finds a request's table.
    pub(crate) const fn address(&self, slot: usize) -> u32 {
        self.base + (slot * self.table_bytes) as u32
    }

    /// Writes a request's table; false: the bus master does not reach one of its pieces, which are above 4 GiB or not
    /// at even addresses.
    pub(crate) fn write(
        &mut self,
        slot: usize,
        pieces: impl Iterator<Item = (DeviceAddress, u32)>,
    ) -> Result<bool, AccessError> {
        let start = slot * self.table_bytes;
        let mut place = start;
        let mut last = 0;
        for (address, length_bytes) in pieces {
            let (mut from, mut left) = (address.0, u64::from(length_bytes));
            if from.checked_add(left).is_none_or(|end| end > REACH_BYTES) || (from | left) & 1 != 0 {
                return Ok(false);
            }
            while left > 0 {
                let count = left.min(LINE_BYTES - from % LINE_BYTES);
                if place + ENTRY_BYTES > start + self.table_bytes {
                    return Ok(false);
                }
                // A count of 0 is 64 KiB.
                last = from | (count & 0xffff) << 32;
                self.memory.write_u64(place, last)?;
                place += ENTRY_BYTES;
                from += count;
                left -= count;
            }
        }
        if place == start {
            return Ok(false);
        }
        self.memory.write_u64(place - ENTRY_BYTES, last | IS_LAST)?;
        Ok(true)
    }

    pub(crate) fn into_memory(self) -> B {
        self.memory
    }
}
