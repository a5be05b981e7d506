//! How many pages one fault resolves: one, unless the program walks through memory.
//!
//! A fault right behind (or, for stacks, right below) what the last one resolved doubles the number
//! up to [`WINDOW_PAGES_MAX`]; any other fault resets it. Kept per area, so that a copy from one
//! area to another is seen as two walks. Pages that were resolved but are never touched cost
//! memory, hence the slow start.

use core::ops::Range;

/// Most pages resolved at once for a program that walks.
pub const WINDOW_PAGES_MAX: u64 = 64;

/// The state of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FaultWindow {
    next_up: u64,
    next_down: u64,
    pages: u64,
}

impl FaultWindow {
    /// A walk is expected to begin at the first page, or for a stack at the last.
    pub(crate) fn new(pages: &Range<u64>, grows_down: bool) -> Self {
        let next_down = if grows_down { pages.end } else { 0 };
        Self { next_up: if grows_down { u64::MAX } else { pages.start }, next_down, pages: 1 }
    }

    /// The pages to resolve for a fault at `page`; contains it, may reach beyond the area.
    pub(crate) fn plan(&mut self, page: u64) -> Range<u64> {
        if page == self.next_up {
            self.pages = (self.pages * 2).min(WINDOW_PAGES_MAX);
            page..page + self.pages
        } else if page + 1 == self.next_down {
            self.pages = (self.pages * 2).min(WINDOW_PAGES_MAX);
            (page + 1).saturating_sub(self.pages)..page + 1
        } else {
            self.pages = 1;
            page..page + 1
        }
    }

    /// What was resolved.
    pub(crate) fn resolved(&mut self, range: &Range<u64>) {
        self.next_up = range.end;
        self.next_down = range.start;
    }
}
