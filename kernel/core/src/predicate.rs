//! Sleeping until a wakeup predicate holds.
//!
//! A predicate is copied from the caller when the sleep begins and evaluated by the kernel on
//! words, bells and the clock. Invariants: the frames of its words are pinned from the beginning of
//! the sleep to its end, whatever ends it, so that a word is read only while its frame is still
//! what the capability named; each bell knows how many terms wait for it.

use aegis_abi::Status;
use aegis_abi::call::ProcessorState;
use aegis_abi::sleep::{PREDICATE_TERM_COUNT_MAX, TermOperator};

use crate::id::{BellId, EnvironmentId, Id, Named, ProcessorId};
use crate::object::{CheckedTerm, Predicate, Source};
use crate::{Machine, State};

/// How often an idle processor looks at the words that sleepers wait for, and any processor at many of them.
pub(crate) const WORD_POLL_NS: u64 = 200_000;
/// Terms of sleepers that wait for words which a scheduling decision looks at.
const LOOK_TERM_COUNT: usize = 8;
/// As many once in `WORD_POLL_NS`.
const LONG_LOOK_TERM_COUNT: usize = 256;
/// What the look at a term is charged with.
const TERM_NS: u64 = 10;

fn compare(operator: TermOperator, source: u64, value: u64) -> bool {
    match operator {
        TermOperator::Equal => source == value,
        TermOperator::NotEqual => source != value,
        TermOperator::AtLeast => source >= value,
        TermOperator::Less => source < value,
    }
}

impl<M: Machine> State<'_, M> {
    fn term_holds(&self, term: &CheckedTerm, now_ns: u64) -> bool {
        let source = match term.source {
            Source::Word { frame, word_index, shift, mask } => {
                self.machine.load(frame, usize::from(word_index)) >> shift & mask
            }
            Source::Bell(named) => self.live_bell(named).map_or(0, |b| self.bells[b].count),
            Source::Clock => now_ns,
            Source::Never => return false,
        };
        compare(term.operator, source, term.value)
    }

    /// The number of the first product that holds.
    pub(crate) fn evaluate(&self, predicate: &Predicate, now_ns: u64) -> Option<u32> {
        let mut terms = predicate.checked()?;
        if let [term] = terms {
            return self.term_holds(term, now_ns).then_some(term.product);
        }
        while let Some(first) = terms.first() {
            let (product, rest) = terms.split_at(terms.partition_point(|term| term.product == first.product));
            if product.iter().all(|term| self.term_holds(term, now_ns)) {
                return Some(first.product);
            }
            terms = rest;
        }
        None
    }

    /// Puts a processor to sleep; its registers are saved and its predicate is built already. False
    /// if a word's frame cannot be pinned.
    pub(crate) fn begin_sleep(&mut self, processor: ProcessorId) -> bool {
        let mut done = 0;
        while let Some(term) = self.processors[processor].predicate.term(done) {
            let pinned = match term.source {
                Source::Word { frame, .. } => self.frames.pin(frame),
                Source::Bell(named) => {
                    if let Some(bell) = self.live_bell(named) {
                        self.bells[bell].waiter_count += 1;
                    }
                    true
                }
                Source::Clock | Source::Never => true,
            };
            if !pinned {
                self.let_go_of(processor, done);
                return false;
            }
            done += 1;
        }
        let predicate = &self.processors[processor].predicate;
        let (has_words, clock_ns) = (predicate.has_words(), predicate.clock_min_ns());
        if self.clock_min_ns != 0 && clock_ns < self.clock_min_ns {
            self.clock_min_ns = clock_ns;
        }
        if clock_ns != u64::MAX
            && let Some(cpu) = self.this_cpu
        {
            self.cpus[cpu].is_deadline_stale = true;
        }
        self.note_asleep(processor);
        if has_words {
            self.word_sleeper_count += 1;
            self.word_sleepers.push(&mut self.links, processor);
        } else {
            self.sleepers.push(&mut self.links, processor);
        }
        true
    }

    /// Puts a processor to sleep until a bell, which is there, is rung; its registers are saved.
    #[inline(always)]
    pub(crate) fn begin_wait(&mut self, processor: ProcessorId, bell: Named<BellId>) {
        self.processors[processor].predicate.wait_for(bell);
        self.bells[bell.id].waiter_count += 1;
        self.note_asleep(processor);
        self.sleepers.push(&mut self.links, processor);
    }

    fn note_asleep(&mut self, processor: ProcessorId) {
        self.processors[processor].fall_asleep();
        self.note_presence(self.processors[processor].environment_id());
    }

    /// Releases what the first `count` terms of a predicate hold.
    fn let_go_of(&mut self, processor: ProcessorId, count: usize) {
        for index in 0..count {
            match self.processors[processor].predicate.term(index).map(|term| term.source) {
                Some(Source::Word { frame, .. }) => self.frames.unpin(frame),
                Some(Source::Bell(named)) => {
                    if let Some(bell) = self.live_bell(named) {
                        debug_assert_ne!(self.bells[bell].waiter_count, 0, "every term was counted");
                        self.bells[bell].waiter_count -= 1;
                    }
                }
                _ => {}
            }
        }
    }

    /// Releases what a sleeper held. The caller sets its next state.
    pub(crate) fn end_sleep(&mut self, processor: ProcessorId) {
        if self.processors[processor].predicate.has_words() {
            self.word_sleepers.remove(&mut self.links, processor);
            debug_assert_ne!(self.word_sleeper_count, 0, "every sleeper was counted");
            self.word_sleeper_count -= 1;
        } else {
            self.sleepers.remove(&mut self.links, processor);
        }
        self.let_go_of(processor, self.processors[processor].predicate.term_count());
        let predicate = &mut self.processors[processor].predicate;
        if predicate.clock_min_ns() != u64::MAX {
            self.clock_min_ns = 0;
        }
        predicate.clear();
    }

    /// Ends a sleep with the call's outcome.
    pub(crate) fn wake(&mut self, processor: ProcessorId, status: Status, value: u64) {
        self.end_sleep(processor);
        self.processors[processor].set_result(status, value);
        self.make_ready_at_once(processor);
    }

    fn wake_where(&mut self, now_ns: u64, concerns: impl Fn(&CheckedTerm) -> bool) {
        for queue in [self.sleepers, self.word_sleepers] {
            let mut next = queue.first();
            while let Some(processor) = next {
                next = self.links.after(processor);
                if self.processors[processor].predicate.terms().any(|t| concerns(&t)) {
                    self.wake_if_due(processor, now_ns);
                }
            }
        }
    }

    /// What a predicate that holds answers: its product, or the count of the bell that it waits for, which it takes.
    pub(crate) fn take_what_holds(&mut self, processor: ProcessorId, now_ns: u64) -> Option<u64> {
        let predicate = &self.processors[processor].predicate;
        let product = self.evaluate(predicate, now_ns)?;
        let taken = predicate.awaited.map(|bell| core::mem::take(&mut self.bells[bell].count));
        Some(taken.unwrap_or(u64::from(product)))
    }

    fn wake_if_due(&mut self, processor: ProcessorId, now_ns: u64) {
        match self.take_what_holds(processor, now_ns) {
            Some(value) => self.wake(processor, Status::Ok, value),
            None => self.charge_clock(processor),
        }
    }

    /// A bell was rung: nearly always one waits for it, for nothing else, and as the first.
    pub(crate) fn wake_first(&mut self, bell: BellId) {
        let named = Named { id: bell, serial: self.bells[bell].serial };
        if let Some(processor) = self.sleepers.first()
            && self.processors[processor].predicate.awaits(named)
        {
            debug_assert_ne!(self.bells[bell].waiter_count, 0, "every term was counted");
            self.bells[bell].waiter_count -= 1;
            self.sleepers.pop(&mut self.links);
            self.processors[processor].predicate.clear();
            let count = core::mem::take(&mut self.bells[bell].count);
            self.processors[processor].set_result(Status::Ok, count);
            self.make_ready_at_once(processor);
        }
    }

    /// Bells were rung: looks at the sleepers that wait for them.
    pub(crate) fn wake_for_bells(&mut self, is_rung: impl Fn(BellId) -> bool) {
        let now_ns = self.machine.now_ns();
        self.wake_where(now_ns, |term| matches!(term.source, Source::Bell(named) if is_rung(named.id)));
    }

    /// Looks at sleepers that wait for words, in turn: at few terms, and once in a while at more, for which they are
    /// charged. So no processor pays for what others wait for, and each one that waits is looked at.
    pub(crate) fn wake_for_words(&mut self, now_ns: u64) {
        let is_long_look = now_ns >= self.word_look_ns;
        let mut term_count = if is_long_look { LONG_LOOK_TERM_COUNT } else { LOOK_TERM_COUNT };
        for _ in 0..self.word_sleeper_count {
            let Some(processor) = self.word_sleepers.first() else { break };
            let count = self.processors[processor].predicate.term_count();
            if count > term_count {
                break;
            }
            term_count -= count;
            self.word_sleepers.pop(&mut self.links);
            self.word_sleepers.push(&mut self.links, processor);
            if is_long_look {
                self.word_look_ns = now_ns.saturating_add(WORD_POLL_NS);
                self.processors[processor].funding.unpaid_ns += count as u64 * TERM_NS;
            }
            self.wake_if_due(processor, now_ns);
        }
    }

    /// A scheduling decision: looks at the sleepers that wait for words, and for a time that has
    /// come.
    pub(crate) fn wake_due(&mut self, now_ns: u64) {
        self.wake_for_words(now_ns);
        if self.next_clock_ns() <= now_ns {
            self.wake_where(now_ns, |term| term.source == Source::Clock && term.value <= now_ns);
            (self.clock_checked_ns, self.clock_min_ns) = (now_ns, 0);
        }
    }

    /// The earliest time that a sleeper waits for and that was not looked at yet.
    pub(crate) fn next_clock_ns(&mut self) -> u64 {
        if self.clock_min_ns == 0 {
            let checked_ns = self.clock_checked_ns;
            self.clock_min_ns = self
                .sleepers
                .members(&self.links)
                .chain(self.word_sleepers.members(&self.links))
                .flat_map(|processor| self.processors[processor].predicate.terms())
                .filter(|term| term.source == Source::Clock && term.value > checked_ns)
                .map(|term| term.value)
                .min()
                .unwrap_or(u64::MAX);
        }
        self.clock_min_ns
    }

    /// Interrupts the sleepers of an environment that read words of a frame range, because its
    /// authority for the range ends.
    pub(crate) fn interrupt_word_sleepers(&mut self, environment: EnvironmentId, first: u64, count: u64) {
        if self.word_sleeper_count != 0 {
            let range = first..first.saturating_add(count);
            self.interrupt_sleepers(
                environment,
                |source| matches!(source, Source::Word { frame, .. } if range.contains(&frame.0)),
            );
        }
    }

    /// Interrupts the sleepers of an environment that wait for a source that concerns.
    pub(crate) fn interrupt_sleepers(&mut self, environment: EnvironmentId, concerns: impl Fn(&Source) -> bool) {
        self.spend(ProcessorId::COUNT);
        for processor in self.processors.ids() {
            let object = &self.processors[processor];
            if object.environment == Some(environment) && object.state() == ProcessorState::Asleep {
                let is_concerned = object.predicate.terms().any(|term| concerns(&term.source));
                self.spend(PREDICATE_TERM_COUNT_MAX);
                if is_concerned {
                    self.wake(processor, Status::Interrupted, 0);
                }
            }
        }
    }
}
