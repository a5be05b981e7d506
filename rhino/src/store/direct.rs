//! Loads and stores that the program has the store do: no page is opened for them, so there is no fault, nothing to
//! close, and no shadow. They mix with the program's own: a page may have both in one transaction.
//!
//! What is stored so is known by its range, as after `set_range`: old bytes are kept, the range is logged at commit.
//! Page-grain logging alone logs pages, here too.
#![forbid(unsafe_code)]

use super::fault::Outcome;
use super::{RegionId, Store, TransactionId};
use crate::Detector;
use crate::error::Error;
use crate::lock::Mode;
use crate::medium::Medium;
use crate::memory::{Memory, PAGE_BYTES};

/// The parts of so many bytes at an offset that lie in one page each: page, offset in it, and where in the bytes.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, core::ops::Range<usize>)> {
    let page_bytes = PAGE_BYTES as u64;
    let mut done = 0;
    core::iter::from_fn(move || {
        let at = offset + done as u64;
        let inside = (at % page_bytes) as usize;
        let count = (length - done).min(PAGE_BYTES - inside);
        let part = (at / page_bytes, inside, done..done + count);
        done += count;
        (count > 0).then_some(part)
    })
}

impl<M: Medium, P: Memory> Store<M, P> {
    /// Loads bytes of a region, counted from its beginning.
    ///
    /// # Errors
    /// As [`Store::fault`]. After [`Outcome::Wait`] the same call is made again.
    pub fn read(
        &mut self,
        transaction: TransactionId,
        region: RegionId,
        offset: u64,
        into: &mut [u8],
    ) -> Result<Outcome, Error> {
        self.check_range(region, offset, into.len() as u64)?;
        self.take_touched(transaction.0)?;
        for (page, inside, place) in parts(offset, into.len()) {
            let name = self.name(transaction, region, page as usize)?;
            let result = self.acquire(transaction.0, region.0, name, Mode::Read);
            if self.remember_failure(transaction.0, result)? == Outcome::Wait {
                return Ok(Outcome::Wait);
            }
            if let Some(known) = self.regions.get(&region.0) {
                known.memory.read_part(page as usize, inside, &mut into[place]);
            }
        }
        Ok(Outcome::Done)
    }

    /// Stores bytes into a region; nothing has to be declared for them.
    ///
    /// # Errors
    /// As [`Store::fault`]. After [`Outcome::Wait`] the same call is made again.
    pub fn write(
        &mut self,
        transaction: TransactionId,
        region: RegionId,
        offset: u64,
        from: &[u8],
    ) -> Result<Outcome, Error> {
        self.check_range(region, offset, from.len() as u64)?;
        self.take_touched(transaction.0)?;
        for (page, inside, place) in parts(offset, from.len()) {
            let name = self.name(transaction, region, page as usize)?;
            let range = (inside, inside + place.len());
            let result = match self.regions.get(&region.0).map(|known| known.detector) {
                Some(Detector::Page) => self.prepare_page(transaction.0, region.0, name),
                _ => self.declare(transaction.0, region.0, name, range),
            };
            if self.remember_failure(transaction.0, result)? == Outcome::Wait {
                return Ok(Outcome::Wait);
            }
            if let Some(known) = self.regions.get_mut(&region.0) {
                known.memory.write(page as usize, inside, &from[place]);
            }
        }
        Ok(Outcome::Done)
    }

    /// Page-grain logging: the page will be logged whole.
    fn prepare_page(&mut self, transaction: u64, region: u32, name: crate::lock::PageName) -> Result<Outcome, Error> {
        if self.acquire(transaction, region, name, Mode::Write)? == Outcome::Wait {
            return Ok(Outcome::Wait);
        }
        if self.touch_of(transaction, name).is_some_and(|touch| !touch.is_logged) {
            self.log_old_page(transaction, region, name)?;
        }
        if let Some(touch) = self.touch_of(transaction, name) {
            touch.is_stored = true;
        }
        Ok(Outcome::Done)
    }

    fn check_range(&self, region: RegionId, offset: u64, length: u64) -> Result<(), Error> {
        let known = self.regions.get(&region.0).ok_or(Error::NoRegion)?;
        let end = offset.checked_add(length).ok_or(Error::OutOfRange)?;
        if end > known.page_count * PAGE_BYTES as u64 { Err(Error::OutOfRange) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn parts_lie_in_one_page_each_and_are_all() {
        for (offset, length) in [(0, 0), (0, 1), (4095, 1), (4095, 2), (100, 9000), (8192, 4096), (1, 12_287)] {
            let parts: Vec<_> = parts(offset, length).collect();
            let mut at = offset;
            for (page, inside, place) in &parts {
                assert_eq!(page * PAGE_BYTES as u64 + *inside as u64, at);
                assert_eq!(place.start as u64, at - offset);
                assert!(!place.is_empty() && inside + place.len() <= PAGE_BYTES);
                at += place.len() as u64;
            }
            assert_eq!(at, offset + length as u64);
        }
    }
}
