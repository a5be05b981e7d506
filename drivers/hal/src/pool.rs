//! Two ready-made [`Dma`]s for a placement that reserves its memory once: [`DmaPool`], a fixed table
//! of single pages, and [`DmaRun`], for a driver that asks for a few long pieces and keeps them.
//!
//! Most drivers ask for single pages nearly always, so a stack of pages serves them; a run is looked
//! for only when one is wanted. There is no translation to undo: the donor of the pages made them
//! reachable for the device, for as long as the pool lives. So `release` only makes a page
//! available to the same device again.

use crate::{Dma, DmaBuffer, DmaError, DmaRegion, PAGE_BYTES, Volatile};

/// At most `PAGE_COUNT` pages, all for the same device.
///
/// Invariant: the first `page_count` slots hold one page each, ascending by device address; the
/// others are empty.
#[derive(Debug)]
pub struct DmaPool<const PAGE_COUNT: usize> {
    pages: [Option<DmaRegion>; PAGE_COUNT],
    page_count: usize,
}

impl<const PAGE_COUNT: usize> DmaPool<PAGE_COUNT> {
    /// A pool without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { pages: [const { None }; PAGE_COUNT], page_count: 0 }
    }

    /// Adds pages to the pool.
    ///
    /// # Errors
    /// The region comes back if the pool has no slot for each of its pages.
    pub fn donate(&mut self, region: DmaRegion) -> Result<(), DmaRegion> {
        if region.length_bytes() / PAGE_BYTES > PAGE_COUNT - self.page_count {
            return Err(region);
        }
        let mut rest = Some(region);
        while let Some((page, next)) = rest.and_then(DmaRegion::split_first_page) {
            self.insert(page);
            rest = next;
        }
        Ok(())
    }

    /// Pages that can be allocated now, though perhaps not in one piece.
    #[must_use]
    pub const fn available_page_count(&self) -> usize {
        self.page_count
    }

    /// Puts a page in its place. There is a slot for every page that was ever donated.
    fn insert(&mut self, page: DmaRegion) {
        let address = page.device_address();
        let position = self.pages[..self.page_count]
            .iter()
            .position(|slot| slot.as_ref().is_some_and(|other| other.device_address() > address))
            .unwrap_or(self.page_count);
        if self.page_count == PAGE_COUNT {
            // A page that is not ours was released into a full pool: leaking it is the safe answer
            // (HAL-4).
            return;
        }
        self.pages[self.page_count] = Some(page);
        self.page_count += 1;
        self.pages[position..self.page_count].rotate_right(1);
    }

    /// Takes the `count` pages from slot `first` on, which follow each other, as one region.
    fn take_run(&mut self, first: usize, count: usize) -> Option<DmaRegion> {
        let mut run: Option<DmaRegion> = None;
        for slot in &mut self.pages[first..first + count] {
            run = match (run.take(), slot.take()) {
                (None, page) => page,
                (Some(run), Some(page)) => run.join(page).ok(),
                (Some(_), None) => None,
            };
        }
        self.pages[first..self.page_count].rotate_left(count);
        self.page_count -= count;
        run
    }

    /// Whether the `count` slots from `first` on follow each other.
    fn is_run(&self, first: usize, count: usize) -> bool {
        self.pages[first..first + count].windows(2).all(|pair| match pair {
            [Some(page), Some(next)] => page.is_followed_by(next),
            _ => false,
        })
    }
}

impl<const PAGE_COUNT: usize> Default for DmaPool<PAGE_COUNT> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const PAGE_COUNT: usize> Dma for DmaPool<PAGE_COUNT> {
    type Buffer = DmaRegion;

    fn allocate(&mut self, page_count: usize) -> Result<DmaRegion, DmaError> {
        if page_count == 0 || page_count > PAGE_COUNT {
            return Err(DmaError::PageCount);
        }
        if page_count > self.page_count {
            return Err(DmaError::Exhausted);
        }
        // From the end, so that a single page is the last slot and nothing moves.
        let first = (0..=self.page_count - page_count)
            .rev()
            .find(|&first| self.is_run(first, page_count))
            .ok_or(DmaError::Exhausted)?;
        self.take_run(first, page_count).ok_or(DmaError::Exhausted)
    }

    fn release(&mut self, buffer: DmaRegion) {
        let mut rest = Some(buffer);
        while let Some((page, next)) = rest.and_then(DmaRegion::split_first_page) {
            self.insert(page);
            rest = next;
        }
    }
}

/// Memory in one piece, of which pieces are taken from the front and none comes back.
#[derive(Debug, Default)]
pub struct DmaRun {
    rest: Option<DmaRegion>,
}

impl DmaRun {
    /// All of `region`.
    #[must_use]
    pub const fn new(region: DmaRegion) -> Self {
        Self { rest: Some(region) }
    }
}

impl Dma for DmaRun {
    type Buffer = DmaRegion;

    fn allocate(&mut self, page_count: usize) -> Result<DmaRegion, DmaError> {
        if page_count == 0 {
            return Err(DmaError::PageCount);
        }
        match self.rest.take().ok_or(DmaError::Exhausted)?.split_first(page_count) {
            Ok((first, rest)) => {
                self.rest = rest;
                Ok(first)
            }
            Err(all) => {
                self.rest = Some(all);
                Err(DmaError::Exhausted)
            }
        }
    }

    fn release(&mut self, _: DmaRegion) {
        // HAL-4: dropping frees nothing.
    }
}
