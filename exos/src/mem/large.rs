//! Large pages for large private memory: blocks of 2 MiB that the page table maps by one entry.
//!
//! A program that walks through untouched memory gets a block at once where the walk has been as long as a block
//! already ([`super::window`]), the next block lies in the area as a whole, nothing of it is known, and there is plenty
//! of memory: so what is taken before it is touched is no more than what was touched before it. `MADV_HUGEPAGE` asks
//! for blocks at every first store, `MADV_NOHUGEPAGE` and `PR_SET_THP_DISABLE` for none.
//!
//! What is known of the pages is the same as of all others ([`super::page_map::blocks`]): code that counts, copies or
//! shares pages does not meet the difference. A change of how a part of a block is mapped splits it first: small pages
//! take the large one's place in the same batch, with the same frames. A whole block goes, loses rights and gets them
//! back as one.
//!
//! After a fork a block is mapped read-only. The first store to it, when nobody else has anything of it any more, gives
//! it its rights back as a whole; before that it is split, and the page is copied.

use core::ops::Range;

use aegis_abi::FrameNumber;
use aegis_abi::layout::PROGRAM_END;
use aegis_abi::memory::BindFlags;

use crate::error::Result;
use crate::mem::area::{Area, AreaFlags};
use crate::mem::page_map::blocks::{BLOCK_PAGES, Whole, pages_of};
use crate::mem::space::{AddressSpace, rights};
use crate::mem::window::FaultWindow;
use crate::preempt;

/// Of how many parts of the limit one has to be left when a block is taken.
const LEFT_SHARE: u64 = 4;
/// Frames that have to be left in any case: 4 MiB.
const LEFT_FRAMES_MIN: u64 = 1024;
/// Blocks that are changed between two preemption points.
const PIECE_BLOCKS: usize = 256;

impl AddressSpace {
    /// Gives untouched private memory at `page` a block, if that is worth it: how many pages.
    pub(crate) fn fill_large(&mut self, area: &Area, page: u64) -> Option<u32> {
        let block = page / BLOCK_PAGES;
        let (pages, bounds) = (pages_of(block), area.pages());
        let is_at_block = |window: &FaultWindow| window.is_at_block(page, &pages);
        let wants = area.flags.contains(AreaFlags::LARGE)
            || is_at_block(&area.window)
            || (self.areas.may_have_walk(area, page)
                && self.areas.find_walked(page).is_some_and(|live| is_at_block(&live.window)));
        if !wants
            || area.flags.intersects(AreaFlags::NO_LARGE.union(AreaFlags::WATCHED))
            || self.has_no_large_pages
            || pages.start < bounds.start
            || bounds.end < pages.end
            || !self.pages.is_block_unknown(block)
        {
            return None;
        }
        let left = self.pool.frames_available().checked_sub(BLOCK_PAGES)?;
        if left < LEFT_FRAMES_MIN.max(self.pool.limit_at_last() / LEFT_SHARE) {
            return None;
        }
        let first = self.pool.allocate_block()?;
        self.pool.bytes().zero(first, BLOCK_PAGES as usize);
        if let Some(live) = self.areas.find_walked(page) {
            live.window.resolved(&pages);
        }
        let flags = rights(true, area.protection);
        self.pages.fill_block(block, first, flags);
        self.bind_large(block, flags);
        Some(BLOCK_PAGES as u32)
    }

    /// Queues the mapping of a block as it is noted.
    fn bind_large(&mut self, block: u64, flags: BindFlags) {
        if let Some(first) = self.pages.block_frame(block) {
            let slot = self.pool.slot_of(first);
            self.binder.map_run(pages_of(block), first, slot, flags | BindFlags::LARGE);
        }
    }

    /// A fault at a page of a block that is mapped as it has to be: another thread was faster, or the processor's view
    /// was old. False: there is no such block.
    pub(crate) fn repeat_large(&mut self, page: u64) -> bool {
        let Some(flags) = self.pages.large_at(page) else { return false };
        self.bind_large(page / BLOCK_PAGES, flags);
        true
    }

    /// A store to a page of a block that is mapped read-only, and is this space's alone: stores go through again.
    pub(crate) fn reclaim_large(&mut self, area: &Area, page: u64) -> bool {
        let block = page / BLOCK_PAGES;
        let is_reclaimed = self.pages.large_at(page).is_some() && self.is_block_exclusive(block);
        if is_reclaimed {
            self.set_block_rights(block, rights(true, area.protection));
        }
        is_reclaimed
    }

    fn is_block_exclusive(&self, block: u64) -> bool {
        let frames = self.pool.lock();
        self.pages.is_block_alone(block)
            && self.pages.block_frame(block).is_some_and(|first| frames.is_block_exclusive(first))
    }

    fn set_block_rights(&mut self, block: u64, flags: BindFlags) {
        let Some(first) = self.pages.block_frame(block) else { return };
        self.binder.protect_run(pages_of(block), self.pool.slot_of(first), flags);
        self.pages.set_large(block, flags);
    }

    /// Before the mappings of `pages` are changed: no block is left of which only a part is changed.
    #[inline]
    pub(crate) fn settle_large(&mut self, pages: &Range<u64>, whole: Whole) {
        if self.pages.has_large() {
            self.settle_blocks(pages, whole);
        }
    }

    #[cold]
    fn settle_blocks(&mut self, pages: &Range<u64>, whole: Whole) {
        let mut from = 0;
        while let Some((block, flags)) = self.pages.next_large(from, pages) {
            from = block + 1;
            let own = pages_of(block);
            let is_inside = pages.start <= own.start && own.end <= pages.end;
            match whole {
                Whole::Unmap if is_inside => {
                    self.binder.unmap_run(own);
                    self.pages.unmap_large(block);
                }
                Whole::Keep(rights)
                    if is_inside && (flags.contains(rights & BindFlags::WRITE) || self.is_block_exclusive(block)) =>
                {
                    self.pages.set_large(block, rights);
                }
                _ => self.split_block(block, flags),
            }
        }
    }

    /// Unmaps and forgets the blocks that lie in `pages` as a whole; no block is left of which a part does.
    #[inline]
    pub(crate) fn drop_large(&mut self, pages: &Range<u64>) {
        if self.pages.has_large() {
            self.drop_blocks(pages);
        }
    }

    #[cold]
    fn drop_blocks(&mut self, pages: &Range<u64>) {
        let mut from = 0;
        while let Some((block, _)) = self.pages.next_large(from, pages) {
            from = block + 1;
            let own = pages_of(block);
            let is_inside = pages.start <= own.start && own.end <= pages.end;
            // Another holder of a leaf may let go of it at any moment: see `own` in the page map.
            let frames = self.pool.lock();
            let taken = if is_inside && self.pages.is_block_alone(block) { self.pages.take_block(block) } else { None };
            drop(frames);
            match taken {
                Some(run) => {
                    self.binder.unmap_run(own);
                    self.binder.release_run(run);
                }
                None => self.settle_blocks(&(own.start.max(pages.start)..own.end.min(pages.end)), Whole::Unmap),
            }
        }
    }

    /// Small pages in a block's place.
    fn split_block(&mut self, block: u64, flags: BindFlags) {
        self.binder.unmap_run(pages_of(block));
        if let Some(first) = self.pages.block_frame(block) {
            let slot = self.pool.slot_of(first);
            self.binder.map_run(pages_of(block), first, slot, flags);
        }
        self.pages.forget_large(block);
    }

    /// The blocks become read-only, some at a time: a copy of this space is about to share them.
    pub(crate) fn protect_blocks_for_fork(&mut self) -> Result<()> {
        let mut from = 0;
        let mut count = 0;
        while let Some((block, flags)) = self.pages.next_large(from, &(0..PROGRAM_END)) {
            from = block + 1;
            if flags.contains(BindFlags::WRITE) {
                self.set_block_rights(block, flags - BindFlags::WRITE);
                count += 1;
                if count % PIECE_BLOCKS == 0 {
                    self.flush()?;
                    preempt::unless_killed()?;
                }
            }
        }
        self.flush()
    }

    /// Frames were taken by force, ascending: the blocks that had some are mapped no more.
    pub(crate) fn unmap_taken_blocks(&mut self, taken: &[FrameNumber]) {
        let mut from = 0;
        while let Some((block, _)) = self.pages.next_large(from, &(0..PROGRAM_END)) {
            from = block + 1;
            let Some(first) = self.pages.block_frame(block) else { continue };
            let index = taken.partition_point(|frame| *frame < first);
            if taken.get(index).is_some_and(|frame| frame.0 < first.0 + BLOCK_PAGES) {
                self.settle_large(&pages_of(block), Whole::Unmap);
            }
        }
    }

    /// No large pages from now on, whatever is touched or advised, or as ever.
    pub fn set_no_large_pages(&mut self, has_none: bool) {
        self.has_no_large_pages = has_none;
    }
}
