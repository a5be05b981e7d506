//! How many pages one fault resolves: one, unless the program walks through memory.
//!
//! A fault right behind (or, for stacks, right below) what the last one resolved doubles the number
//! up to [`WINDOW_PAGES_MAX`]; any other fault resets it. Kept per area, so that a copy from one
//! area to another is seen as two walks; where several go through one area (threads whose mappings
//! were joined), [`Walks`] has the others. Pages that were resolved but are never touched cost
//! memory, hence the slow start.

use core::ops::Range;

use crate::mem::page_map::blocks::BLOCK_PAGES;

/// Most pages resolved at once for a program that walks.
pub const WINDOW_PAGES_MAX: u64 = 64;

/// File pages mapped around a fault: an aligned block of 64 KiB, as Linux does.
pub const FAULT_AROUND_PAGES: u64 = 16;

/// Pages after which a walk is long.
const LONG_WALK_PAGES: u64 = BLOCK_PAGES;

/// The state of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FaultWindow {
    next_up: u64,
    next_down: u64,
    pages: u64,
    /// Pages that this walk has resolved so far.
    walked: u64,
}

impl FaultWindow {
    /// A walk is expected to begin at the first page, or for a stack at the last.
    pub(crate) fn new(pages: &Range<u64>, grows_down: bool) -> Self {
        let next_down = if grows_down { pages.end } else { 0 };
        Self { next_up: if grows_down { u64::MAX } else { pages.start }, next_down, pages: 1, walked: 0 }
    }

    /// The pages to resolve for a fault at `page`; contains it, may reach beyond the area. A long walk stops at each
    /// block, so that it can go on with the whole of it ([`Self::is_at_block`]).
    pub(crate) fn plan(&mut self, page: u64) -> Range<u64> {
        let is_long = self.walked >= LONG_WALK_PAGES - WINDOW_PAGES_MAX;
        if page == self.next_up {
            self.pages = (self.pages * 2).min(WINDOW_PAGES_MAX);
            let end = page + self.pages;
            page..if is_long { end.min((page / BLOCK_PAGES + 1) * BLOCK_PAGES) } else { end }
        } else if page + 1 == self.next_down {
            self.pages = (self.pages * 2).min(WINDOW_PAGES_MAX);
            let start = (page + 1).saturating_sub(self.pages);
            (if is_long { start.max(page / BLOCK_PAGES * BLOCK_PAGES) } else { start })..page + 1
        } else {
            (self.pages, self.walked) = (1, 0);
            page..page + 1
        }
    }

    /// Whether a fault at `page` goes on with this walk.
    #[inline]
    pub(crate) fn expects(&self, page: u64) -> bool {
        page == self.next_up || page + 1 == self.next_down
    }

    /// Whether a long walk has come to the first page of a block, or to its last from above.
    pub(crate) fn is_at_block(&self, page: u64, block: &Range<u64>) -> bool {
        let is_up = page == self.next_up && page == block.start;
        let is_down = page + 1 == self.next_down && page + 1 == block.end;
        self.walked >= LONG_WALK_PAGES && (is_up || is_down)
    }

    pub(crate) fn resolved(&mut self, range: &Range<u64>) {
        self.next_up = range.end;
        self.next_down = range.start;
        self.walked += range.end - range.start;
    }
}

/// A walk that no page goes on with.
const NOWHERE: FaultWindow = FaultWindow { next_up: u64::MAX, next_down: 0, pages: 1, walked: 0 };
/// Walks beside those that areas have.
const WALK_COUNT: usize = 8;

/// Walks that another took the place of in their area, the latest of them: each may go on where it is. A program with
/// one thread has none: its next jump tells more about it than what it left.
pub(crate) struct Walks {
    windows: [FaultWindow; WALK_COUNT],
    next: usize,
}

impl Walks {
    pub(crate) const fn new() -> Self {
        Self { windows: [NOWHERE; WALK_COUNT], next: 0 }
    }

    /// Keeps a walk, in the place of the one that was kept first.
    pub(crate) fn keep(&mut self, window: FaultWindow) {
        if window != NOWHERE {
            self.windows[self.next] = window;
            self.next = (self.next + 1) % WALK_COUNT;
        }
    }

    /// Gives an area that does not expect a fault at `page` the walk that does, if there is one; its own is kept.
    #[cold]
    #[inline(never)]
    pub(crate) fn exchange(&mut self, window: &mut FaultWindow, page: u64) {
        match self.windows.iter_mut().find(|kept| kept.expects(page)) {
            Some(kept) => core::mem::swap(kept, window),
            None => self.keep(core::mem::replace(window, NOWHERE)),
        }
    }
}
