//! What a network domain is told by its maker.

use crate::layout::PLAN_WORD_COUNT_MAX;

/// Ranges that its card may reach: its own, and the session's bytes.
pub const DMA_RANGE_COUNT: u32 = 2;
/// Pages of the driver's memory: 256 buffers in each direction, and rings.
pub const DRIVER_PAGE_COUNT: u64 = 288;

/// What a domain is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// First frame of what the maker gave.
    pub memory_frame: u64,
    /// For tests: what it does wrong ([`crate::layout::MISDEED_FAULT`] and its like; 0: nothing), and after how many
    /// nanoseconds.
    pub fault: [u64; 2],
    /// Pages of the client's session, of which the words come first.
    pub session_page_count: u64,
    /// Pages of words.
    pub word_page_count: u64,
}

/// Words of a plan.
pub const PLAN_WORD_COUNT: usize = 6;
const _: () = assert!(PLAN_WORD_COUNT <= PLAN_WORD_COUNT_MAX);
const MAGIC: u64 = u64::from_le_bytes(*b"AEGISNET");

impl Plan {
    /// The plan's page.
    #[must_use]
    pub const fn to_words(&self) -> [u64; PLAN_WORD_COUNT] {
        let [kind, after_ns] = self.fault;
        [MAGIC, self.memory_frame, kind, after_ns, self.session_page_count, self.word_page_count]
    }

    /// What a page says; `None`: it is no plan.
    #[must_use]
    pub fn from_words(words: &[u64; PLAN_WORD_COUNT]) -> Option<Self> {
        let [magic, memory_frame, kind, after_ns, session_page_count, word_page_count] = *words;
        let plan = Self { memory_frame, fault: [kind, after_ns], session_page_count, word_page_count };
        (magic == MAGIC && word_page_count <= session_page_count).then_some(plan)
    }
}
