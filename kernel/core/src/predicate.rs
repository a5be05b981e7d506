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
            Source::Bell(named) => self.live_bell(named).map_or(0, |b| self.bells[b].count()),
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
                        self.bells[bell].begin_wait();
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
        if self.sleepers.add(&mut self.links, processor, &self.processors[processor].predicate) {
            self.note_deadline();
        }
        self.note_asleep(processor);
        true
    }

    /// Puts a processor to sleep until a bell, which is there, is rung; its registers are saved.
    #[inline(always)]
    pub(crate) fn begin_wait(&mut self, processor: ProcessorId, bell: Named<BellId>) {
        self.processors[processor].predicate.wait_for(bell);
        self.bells[bell.id].begin_wait();
        self.note_asleep(processor);
        self.sleepers.add_wordless(&mut self.links, processor);
    }

    fn note_asleep(&mut self, processor: ProcessorId) {
        self.processors[processor].fall_asleep();
        self.note_presence(self.processors[processor].environment_id());
    }

    /// Releases what the first `count` terms of a predicate hold.
    fn let_go_of(&mut self, processor: ProcessorId, count: usize) {
        for term in self.processors[processor].predicate.terms().take(count) {
            match term.source {
                Source::Word { frame, .. } => self.frames.unpin(frame),
                Source::Bell(named) => {
                    if let Some(bell) = self.live_bell(named) {
                        self.bells[bell].end_wait();
                    }
                }
                Source::Clock | Source::Never => {}
            }
        }
    }

    /// Releases what a sleeper held. The caller sets its next state.
    pub(crate) fn end_sleep(&mut self, processor: ProcessorId) {
        self.sleepers.remove(&mut self.links, processor, &self.processors[processor].predicate);
        self.let_go_of(processor, self.processors[processor].predicate.term_count());
        self.processors[processor].predicate.clear();
    }

    /// Ends a sleep with the call's outcome.
    pub(crate) fn wake(&mut self, processor: ProcessorId, status: Status, value: u64) {
        self.end_sleep(processor);
        self.processors[processor].set_result(status, value);
        self.make_ready_at_once(processor);
    }

    fn wake_where(&mut self, now_ns: u64, concerns: impl Fn(&CheckedTerm) -> bool) {
        for mut next in self.sleepers.firsts() {
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
        let taken = predicate.awaited.map(|bell| self.bells[bell].take());
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
            self.bells[bell].end_wait();
            self.sleepers.remove_first(&self.links);
            self.processors[processor].predicate.clear();
            let count = self.bells[bell].take();
            self.processors[processor].set_result(Status::Ok, count);
            self.make_ready_at_once(processor);
        }
    }

    /// Bells were rung: looks at the sleepers that wait for them.
    pub(crate) fn wake_for_bells(&mut self, is_rung: impl Fn(BellId) -> bool) {
        let now_ns = self.machine.now_ns();
        self.wake_where(now_ns, |term| matches!(term.source, Source::Bell(named) if is_rung(named.id)));
    }

    /// Looks at sleepers that wait for words, if there are any: nearly never, and each scheduling decision asks.
    #[inline(never)]
    pub(crate) fn wake_for_words(&mut self, now_ns: u64) {
        if self.sleepers.count_for_words() != 0 {
            self.look_at_words(now_ns);
        }
    }

    /// Looks at them in turn: at few terms, and once in a while at more, for which they are charged. So no processor
    /// pays for what others wait for, and each one that waits is looked at.
    #[inline(never)]
    fn look_at_words(&mut self, now_ns: u64) {
        let is_long_look = self.sleepers.begin_look(now_ns);
        let mut term_count = if is_long_look { LONG_LOOK_TERM_COUNT } else { LOOK_TERM_COUNT };
        for _ in 0..self.sleepers.count_for_words() {
            let fits = |it: ProcessorId| self.processors[it].predicate.term_count() <= term_count;
            let Some(processor) = self.sleepers.next_look(&mut self.links, fits) else { break };
            let count = self.processors[processor].predicate.term_count();
            term_count -= count;
            if is_long_look {
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
            self.sleepers.clock_looked_at(now_ns);
        }
    }

    /// The earliest time that a sleeper waits for and that was not looked at yet.
    pub(crate) fn next_clock_ns(&mut self) -> u64 {
        let next_of = |sleeper, after_ns| self.processors[sleeper].predicate.next_clock_ns(after_ns);
        self.sleepers.next_clock_ns(&self.links, next_of)
    }

    /// Interrupts the sleepers of an environment that read words of a frame range, because its
    /// authority for the range ends.
    pub(crate) fn interrupt_word_sleepers(&mut self, environment: EnvironmentId, first: u64, count: u64) {
        if self.sleepers.count_for_words() != 0 {
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
