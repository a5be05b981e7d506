//! What a sleeping processor waits for, as data: `predicate.rs` above evaluates it.

use aegis_abi::sleep::{PREDICATE_TERM_COUNT_MAX, TermOperator};
use aegis_abi::types::FrameNumber;

use crate::id::{BellId, Named};

/// A predicate looks at words.
const WORDS: u8 = 1;
/// It looks at the clock.
const CLOCK: u8 = 2;

/// What a checked term looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// No term. First, so that an empty predicate is all zero bits.
    Never,
    /// Part of a 64-bit word: `shift` 0 or 32, `mask` 32 or 64 ones.
    Word {
        frame: FrameNumber,
        word_index: u16,
        shift: u8,
        mask: u64,
    },
    Bell(Named<BellId>),
    Clock,
}

/// A checked term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckedTerm {
    pub(crate) product: u32,
    pub(crate) source: Source,
    pub(crate) operator: TermOperator,
    pub(crate) value: u64,
}

begins! {
    /// The predicate of a sleeping processor; empty while it does not sleep. It is large, so it is built where it
    /// stays, and emptied without writing the terms.
    pub(crate) struct Predicate {
        terms: [CheckedTerm; PREDICATE_TERM_COUNT_MAX] =
            [CheckedTerm { product: 0, source: Source::Never, operator: TermOperator::Equal, value: 0 };
                PREDICATE_TERM_COUNT_MAX],
        count: u8 = 0,
        /// What its terms look at, of words and the clock.
        kinds: u8 = 0,
        /// The bell whose count the sleeper takes when it wakes.
        pub(crate) awaited: Option<BellId> = None,
    }
}

impl Predicate {
    /// Waits for a bell alone.
    pub(crate) fn wait_for(&mut self, bell: Named<BellId>) {
        self.terms[0] =
            CheckedTerm { product: 0, source: Source::Bell(bell), operator: TermOperator::AtLeast, value: 1 };
        (self.count, self.awaited) = (1, Some(bell.id));
    }

    /// Whether it waits for this bell alone, and takes its count.
    #[inline(always)]
    pub(crate) fn awaits(&self, bell: Named<BellId>) -> bool {
        self.awaited == Some(bell.id) && self.terms[0].source == Source::Bell(bell)
    }

    /// Adds a term behind those of its product, so that one look at each term evaluates all products; false if there
    /// is no room.
    pub(crate) fn push(&mut self, term: CheckedTerm) -> bool {
        let count = usize::from(self.count);
        let before = self.terms.iter().take(count).rposition(|it| it.product == term.product);
        let Some(places) = self.terms.get_mut(before.map_or(count, |last| last + 1)..=count) else { return false };
        places.rotate_right(1);
        places[0] = term;
        self.count += 1;
        self.kinds |= match term.source {
            Source::Word { .. } => WORDS,
            Source::Clock => CLOCK,
            Source::Bell(_) | Source::Never => 0,
        };
        true
    }

    pub(crate) fn clear(&mut self) {
        (self.count, self.kinds, self.awaited) = (0, 0, None);
    }

    /// Its terms, those of a product together.
    #[inline(always)]
    pub(crate) fn checked(&self) -> Option<&[CheckedTerm]> {
        self.terms.get(..self.term_count())
    }

    #[inline(always)]
    pub(crate) fn term_count(&self) -> usize {
        self.count.into()
    }

    pub(crate) fn has_words(&self) -> bool {
        self.kinds & WORDS != 0
    }

    pub(crate) fn has_clock(&self) -> bool {
        self.kinds & CLOCK != 0
    }

    pub(crate) fn term(&self, index: usize) -> Option<&CheckedTerm> {
        self.checked()?.get(index)
    }

    pub(crate) fn terms(&self) -> impl Iterator<Item = CheckedTerm> + '_ {
        self.terms.iter().take(usize::from(self.count)).copied()
    }

    /// The earliest time after one that a term names; `u64::MAX`: none.
    pub(crate) fn next_clock_ns(&self, after_ns: u64) -> u64 {
        let is_next = |term: &CheckedTerm| term.source == Source::Clock && term.value > after_ns;
        self.terms().filter(is_next).map(|term| term.value).min().unwrap_or(u64::MAX)
    }
}
