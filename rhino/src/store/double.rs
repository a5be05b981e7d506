//! Pages on their way to segments, for media that may spoil a block which is being written: a batch is written to an
//! area of its own first, and flushed; then in place. A crash finds the batch whole in one of the two.
//!
//! # Invariants
//!
//! - DOUBLE-1 No page of a batch is written in place before the area has all of the batch, flushed.
//! - DOUBLE-2 The area is written again only when the batch in it is in place, flushed.
//! - DOUBLE-3 Everything that is written to a segment goes this way, so that the area never has an older version of a
//!   page than its segment: to write a batch in place again changes nothing that was whole.
#![forbid(unsafe_code)]

use alloc::vec::Vec;

use super::Segment;
use crate::bytes::{put, u32_at, u64_at};
use crate::error::Error;
use crate::lock::PageName;
use crate::log::hash;
use crate::medium::{Medium, MediumError};
use crate::memory::{PAGE_BYTES, Page};

/// Most pages of a batch.
const AREA_PAGE_COUNT_MAX: usize = 64;
/// Bytes of the largest area that is of use, and of the smallest.
pub const AREA_BYTES_MAX: u64 = ((1 + AREA_PAGE_COUNT_MAX) * PAGE_BYTES) as u64;
/// As above.
pub const AREA_BYTES_MIN: u64 = 2 * PAGE_BYTES as u64;

const MAGIC: u64 = u64::from_le_bytes(*b"rhinodbl");
const COUNT_AT: usize = 8;
const HASH_AT: usize = 16;
const NAMES_AT: usize = 32;
const NAME_BYTES: usize = 16;

/// The area.
#[derive(Debug)]
pub(super) struct Area<M> {
    medium: M,
    page_count_max: usize,
    /// The last batch: head and pages, as they are in the area.
    batch: Vec<u8>,
    /// It may not be in place yet, flushed.
    is_pending: bool,
}

impl<M: Medium> Area<M> {
    /// Over a medium that has at least [`AREA_BYTES_MIN`].
    pub(super) fn new(medium: M) -> Result<Self, Error> {
        let page_count = (medium.capacity_bytes() / PAGE_BYTES as u64).min(AREA_BYTES_MAX / PAGE_BYTES as u64);
        let page_count_max = (page_count as usize).checked_sub(1).filter(|&count| count > 0).ok_or(Error::Shape)?;
        Ok(Self { medium, page_count_max, batch: Vec::new(), is_pending: false })
    }

    /// Has no batch in it: for a new store.
    pub(super) fn clear(&mut self) -> Result<(), MediumError> {
        self.medium.write(0, &[0; PAGE_BYTES])?;
        self.medium.flush()
    }

    /// Recovery: writes the batch in place again if there is one.
    pub(super) fn restore(&mut self, segments: &[Segment<M>]) -> Result<(), Error> {
        self.batch.clear();
        self.batch.resize(PAGE_BYTES, 0);
        // What cannot be read was being written: its pages are whole in place.
        if self.medium.read(0, &mut self.batch).is_err() || u64_at(&self.batch, 0) != MAGIC {
            return Ok(());
        }
        let count = u64_at(&self.batch, COUNT_AT) as usize;
        if count == 0 || count > self.page_count_max {
            return Ok(());
        }
        self.batch.resize((1 + count) * PAGE_BYTES, 0);
        if self.medium.read(0, &mut self.batch).is_err() {
            return Ok(());
        }
        let sealed = u64_at(&self.batch, HASH_AT);
        put(&mut self.batch, HASH_AT, &[0; 8]);
        if hash(&self.batch) == sealed {
            self.is_pending = true;
            self.finish(segments)?;
        }
        Ok(())
    }

    /// The batch is in place afterwards, flushed.
    fn finish(&mut self, segments: &[Segment<M>]) -> Result<(), Error> {
        if self.is_pending {
            self.write_in_place(segments)?;
            segments.iter().try_for_each(|segment| segment.medium.flush())?;
            self.is_pending = false;
        }
        Ok(())
    }

    fn write_in_place(&self, segments: &[Segment<M>]) -> Result<(), Error> {
        let mut pages = self.batch.chunks_exact(PAGE_BYTES);
        let Some(head) = pages.next() else { return Ok(()) };
        for (index, page) in pages.enumerate() {
            let at = NAMES_AT + index * NAME_BYTES;
            let (segment, number) = (u32_at(head, at), u64_at(head, at + 8));
            let segment = segments.get(segment as usize).filter(|segment| number < segment.page_count);
            let place = number * PAGE_BYTES as u64;
            segment.ok_or(Error::OutOfRange)?.medium.write(place, page)?;
        }
        Ok(())
    }

    fn write(&mut self, segments: &[Segment<M>], pages: &[(PageName, &Page)]) -> Result<(), Error> {
        for pages in pages.chunks(self.page_count_max) {
            // After a write in place that failed this does it again.
            self.finish(segments)?;
            self.batch.clear();
            self.batch.resize((1 + pages.len()) * PAGE_BYTES, 0);
            put(&mut self.batch, 0, &MAGIC.to_le_bytes());
            put(&mut self.batch, COUNT_AT, &(pages.len() as u64).to_le_bytes());
            for (index, (name, page)) in pages.iter().enumerate() {
                let at = NAMES_AT + index * NAME_BYTES;
                put(&mut self.batch, at, &name.0.to_le_bytes());
                put(&mut self.batch, at + 8, &name.1.to_le_bytes());
                put(&mut self.batch, (1 + index) * PAGE_BYTES, &page[..]);
            }
            let sealed = hash(&self.batch);
            put(&mut self.batch, HASH_AT, &sealed.to_le_bytes());
            self.medium.write(0, &self.batch)?;
            self.medium.flush()?;
            self.is_pending = true;
            self.write_in_place(segments)?;
        }
        Ok(())
    }
}

/// Writes pages to their segments, by way of the area if there is one.
pub(super) fn write_pages<M: Medium>(
    area: &mut Option<Area<M>>,
    segments: &[Segment<M>],
    pages: &[(PageName, &Page)],
) -> Result<(), Error> {
    match area {
        Some(area) => area.write(segments, pages),
        None => Ok(pages.iter().try_for_each(|(name, page)| segments[name.0 as usize].write(name.1, page))?),
    }
}
