//! The processors that are asleep, and when the clock concerns one of them. `predicate.rs` above wakes them.
//!
//! Those that wait for words are apart: nothing tells of a word, so they are looked at in turn.

use super::predicate::Predicate;
use super::queue::{Links, Queue};
use crate::id::ProcessorId;

/// How often an idle processor looks at the words that sleepers wait for, and any processor at many of them.
pub(crate) const WORD_POLL_NS: u64 = 200_000;

begins! {
    /// The sleepers, each in one of the two queues.
    pub(crate) struct Sleepers {
        /// Those that wait for no words, in the order in which they fell asleep.
        wordless: Queue = Queue::EMPTY,
        /// Those that do, in the order in which they are looked at.
        for_words: Queue = Queue::EMPTY,
        for_words_count: u32 = 0,
        /// When many of these may be looked at again.
        look_ns: u64 = 0,
        /// Earliest clock term of any sleeper; `u64::MAX` means none, 0 that it must be computed.
        clock_min_ns: u64 = 0,
        /// Clock terms up to then have been looked at.
        clock_checked_ns: u64 = 0,
    }
}

impl Sleepers {
    /// A processor fell asleep. Whether the clock concerns it.
    pub(crate) fn add(&mut self, links: &mut Links, processor: ProcessorId, predicate: &Predicate) -> bool {
        let clock_ns = predicate.next_clock_ns(self.clock_checked_ns);
        self.clock_min_ns = self.clock_min_ns.min(clock_ns);
        if predicate.has_words() {
            self.for_words_count += 1;
            self.for_words.push(links, processor);
        } else {
            self.add_wordless(links, processor);
        }
        clock_ns != u64::MAX
    }

    /// A processor fell asleep that waits for neither words nor the clock.
    pub(crate) fn add_wordless(&mut self, links: &mut Links, processor: ProcessorId) {
        self.wordless.push(links, processor);
    }

    /// A processor wakes, whose predicate is still there.
    pub(crate) fn remove(&mut self, links: &mut Links, processor: ProcessorId, predicate: &Predicate) {
        if predicate.has_words() {
            debug_assert_ne!(self.for_words_count, 0, "every sleeper was counted");
            self.for_words_count -= 1;
            self.for_words.remove(links, processor);
        } else {
            self.wordless.remove(links, processor);
        }
        if predicate.has_clock() {
            self.clock_min_ns = 0;
        }
    }

    /// The first of those that wait for no words.
    pub(crate) fn first(&self) -> Option<ProcessorId> {
        self.wordless.first()
    }

    /// That one wakes, for which the clock meant nothing.
    pub(crate) fn remove_first(&mut self, links: &Links) {
        self.wordless.pop(links);
    }

    /// The first of each kind; the others follow by `Links::after`.
    pub(crate) fn firsts(&self) -> [Option<ProcessorId>; 2] {
        [self.wordless, self.for_words].map(|queue| queue.first())
    }

    pub(crate) fn count_for_words(&self) -> u32 {
        self.for_words_count
    }

    /// Those that wait for words, of which there are some, are looked at: whether at many. Then that is not so again
    /// for a while.
    pub(crate) fn begin_look(&mut self, now_ns: u64) -> bool {
        let is_long = now_ns >= self.look_ns;
        if is_long {
            self.look_ns = now_ns.saturating_add(WORD_POLL_NS);
        }
        is_long
    }

    /// The next one to look at, if it is wanted; it goes behind the others.
    pub(crate) fn next_look(
        &mut self,
        links: &mut Links,
        wants: impl FnOnce(ProcessorId) -> bool,
    ) -> Option<ProcessorId> {
        let first = self.for_words.first().filter(|first| wants(*first))?;
        self.for_words.pop(links);
        self.for_words.push(links, first);
        Some(first)
    }

    /// The earliest time that a sleeper waits for and that was not looked at yet; `next_of` says it of one, after
    /// what has been looked at.
    pub(crate) fn next_clock_ns(&mut self, links: &Links, next_of: impl Fn(ProcessorId, u64) -> u64) -> u64 {
        if self.clock_min_ns == 0 {
            let all = self.wordless.members(links).chain(self.for_words.members(links));
            self.clock_min_ns = all.map(|sleeper| next_of(sleeper, self.clock_checked_ns)).min().unwrap_or(u64::MAX);
        }
        self.clock_min_ns
    }

    /// All clock terms up to now have been looked at.
    pub(crate) fn clock_looked_at(&mut self, now_ns: u64) {
        (self.clock_checked_ns, self.clock_min_ns) = (now_ns, 0);
    }

    /// Those for words and the others, for tests.
    #[cfg(test)]
    pub(crate) fn all(&self, links: &Links) -> [std::vec::Vec<ProcessorId>; 2] {
        [self.for_words, self.wordless].map(|queue| queue.members(links).collect())
    }
}
