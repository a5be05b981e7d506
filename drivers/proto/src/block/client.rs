//! The client's side of a session.

use core::sync::atomic::{Ordering, fence};

use super::words::{
    COMPLETION_WORD_COUNT, GIVEN_UP, MAGIC, REQUEST_WORD_COUNT, WORD_GENERATION, WORD_MAGIC, WORD_OLDEST, WORD_SHAPE,
    WORD_STATE,
};
use super::{Buffer, Completion, DEPTH_MAX, Description, Extent, Outcome, Request, Segment, Shape, State};
use crate::ring::{FIRST_CONSUMED_WORD, FIRST_PRODUCED_WORD};
use crate::{Broken, Consumer, Producer, PutError, RingPlace, SharedWords};

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// There is no room.
    Full,
    /// A number in it is too large for the slot.
    Refused,
    /// The service has broken the protocol.
    Broken,
}

/// A session, as its client sees it.
#[derive(Clone, Debug)]
pub struct Client {
    shape: Shape,
    generation: u32,
    places: [RingPlace; 2],
    requests: Producer<REQUEST_WORD_COUNT>,
    completions: Consumer<COMPLETION_WORD_COUNT>,
    /// The oldest slot whose completion was not consumed.
    oldest: u32,
    /// Bit n of word m: what is in slot 64 m + n is under way.
    under_way: [u64; DEPTH_MAX as usize / 64],
    /// Its name.
    tags: [u64; DEPTH_MAX as usize],
    under_way_count: u32,
}

impl Client {
    /// Makes a session of memory, which nobody serves yet. `None`: it does not have this shape.
    #[must_use]
    pub fn new(memory: &(impl SharedWords + ?Sized), shape: Shape, generation: u32) -> Option<Self> {
        let places = shape.rings(memory)?;
        let mut client = Self {
            shape,
            generation,
            places,
            requests: Producer::new(places[0], 0),
            completions: Consumer::new(places[1], 0),
            oldest: 0,
            under_way: [0; DEPTH_MAX as usize / 64],
            tags: [0; DEPTH_MAX as usize],
            under_way_count: 0,
        };
        client.restart(memory, generation);
        Some(client)
    }

    /// Begins anew with nothing under way, as an even generation; whoever served it before does not write any more.
    pub fn restart(&mut self, memory: &(impl SharedWords + ?Sized), generation: u32) {
        for index in 0..super::BUFFER_COUNT_MAX {
            Buffer::default().store(memory, index);
        }
        self.under_way = [0; DEPTH_MAX as usize / 64];
        self.under_way_count = 0;
        self.oldest = self.requests.counter();
        self.recover(memory, generation);
    }

    /// Leaves what is under way to the next who serves it; whoever did so before does not write any more, and what it
    /// told was consumed.
    pub fn recover(&mut self, memory: &(impl SharedWords + ?Sized), generation: u32) {
        let (produced, consumed) = (self.requests.counter(), self.completions.counter());
        self.generation = generation;
        // A service that looks for sessions does not take what is half written.
        memory.store_release(WORD_GENERATION, u64::from(generation | 1));
        fence(Ordering::Release);
        self.requests = Producer::resume(self.places[0], produced, self.oldest);
        self.completions = Consumer::new(self.places[1], consumed);
        memory.store(WORD_MAGIC, MAGIC);
        memory.store(WORD_SHAPE, self.shape.to_word());
        memory.store(WORD_OLDEST, u64::from(self.oldest));
        memory.store(WORD_STATE, State::Down.to_word(generation));
        memory.store(self.places[0].word(FIRST_PRODUCED_WORD), u64::from(produced));
        memory.store(self.places[0].word(FIRST_CONSUMED_WORD), u64::from(self.oldest));
        memory.store(self.places[1].word(FIRST_PRODUCED_WORD), u64::from(consumed));
        memory.store(self.places[1].word(FIRST_CONSUMED_WORD), u64::from(consumed));
        self.completions.forget(memory);
        memory.store_release(WORD_GENERATION, u64::from(generation));
    }

    /// The generation before the one that a client of this memory begins with, whoever had it before.
    #[must_use]
    pub fn generation_before(memory: &(impl SharedWords + ?Sized)) -> u32 {
        memory.load_acquire(WORD_GENERATION) as u32 & !1
    }

    /// Whether what was offered was taken away before a service took it.
    pub fn is_withdrawn(memory: &(impl SharedWords + ?Sized)) -> bool {
        memory.load_acquire(WORD_MAGIC) != MAGIC
    }

    /// Whether nobody will serve a session of this memory any more.
    pub fn is_given_up(memory: &(impl SharedWords + ?Sized)) -> bool {
        memory.load_acquire(WORD_STATE) == GIVEN_UP
    }

    /// How it stands.
    pub fn state(&self, memory: &(impl SharedWords + ?Sized)) -> State {
        State::from_word(memory.load_acquire(WORD_STATE), self.generation)
    }

    /// What the service says of the disk, not checked.
    pub fn description(&self, memory: &(impl SharedWords + ?Sized)) -> Description {
        Description::load(memory)
    }

    /// What the service says of one of the client's extents.
    pub fn extent(&self, memory: &(impl SharedWords + ?Sized), index: usize) -> Extent {
        Extent::load(memory, index)
    }

    /// Says which capability a buffer is; 0 pages for none.
    pub fn set_buffer(&self, memory: &(impl SharedWords + ?Sized), index: usize, buffer: Buffer) {
        buffer.store(memory, index);
    }

    /// Writes segment `index` of the list on `page`. False: there is no such place, or a number is too large.
    pub fn set_listed(&self, memory: &(impl SharedWords + ?Sized), page: u32, index: usize, segment: Segment) -> bool {
        let Some(word) = segment.to_word() else { return false };
        let is_there = page < self.shape.indirect_page_count && index < super::SEGMENT_COUNT_MAX;
        if is_there {
            memory.store(self.shape.list_word(page, index), word);
        }
        is_there
    }

    /// Requests under way.
    #[must_use]
    pub const fn under_way_count(&self) -> u32 {
        self.under_way_count
    }

    fn bit(position: u32) -> (usize, u64) {
        let slot = position % DEPTH_MAX;
        (slot as usize / 64, 1 << (slot % 64))
    }

    /// Puts a request. The service sees it with [`Self::publish`].
    ///
    /// # Errors
    /// [`SubmitError`]; nothing is written then.
    #[inline]
    pub fn submit(&mut self, memory: &(impl SharedWords + ?Sized), request: &Request) -> Result<(), SubmitError> {
        let position = self.requests.counter();
        if position.wrapping_sub(self.oldest) >= self.shape.depth {
            return Err(SubmitError::Full);
        }
        let words = request.to_words().ok_or(SubmitError::Refused)?;
        self.requests.put(memory, &words).map_err(|error| match error {
            PutError::Full => SubmitError::Full,
            PutError::Broken => SubmitError::Broken,
        })?;
        let (word, bit) = Self::bit(position);
        self.under_way[word] |= bit;
        self.tags[(position % DEPTH_MAX) as usize] = request.tag;
        self.under_way_count += 1;
        Ok(())
    }

    /// Shows the service what was put. `true`: it wants to be woken.
    #[inline]
    #[must_use]
    pub fn publish(&mut self, memory: &(impl SharedWords + ?Sized)) -> bool {
        self.requests.publish(memory)
    }

    /// Whether there is a completion: a look that judges nothing.
    #[inline]
    pub fn has_completed(&self, memory: &(impl SharedWords + ?Sized)) -> bool {
        self.completions.has_any(memory)
    }

    /// Consumes completions, at most as many as a visit takes; how many.
    ///
    /// # Errors
    /// The service says something that cannot be: what was told before stays told.
    pub fn poll(
        &mut self,
        memory: &(impl SharedWords + ?Sized),
        done: &mut impl FnMut(u64, Outcome),
    ) -> Result<u32, Broken> {
        let count = self.completions.visit(memory)?;
        for _ in 0..count {
            let Some(words) = self.completions.take(memory) else { break };
            let Completion { position, tag, outcome } = Completion::from_words(words).ok_or(Broken)?;
            let (word, bit) = Self::bit(position);
            let is_one_of_ours = position.wrapping_sub(self.oldest) < self.requests.counter().wrapping_sub(self.oldest);
            let is_under_way = is_one_of_ours && self.under_way[word] & bit != 0;
            if !is_under_way || self.tags[(position % DEPTH_MAX) as usize] != tag {
                return Err(Broken);
            }
            self.under_way[word] &= !bit;
            self.under_way_count -= 1;
            self.mark_done(memory, position);
            done(tag, outcome);
        }
        if count > 0 {
            let _ = self.completions.release(memory);
        }
        Ok(count)
    }

    /// Marks a slot, so that nobody begins it again, and goes on with the oldest.
    #[inline]
    fn mark_done(&mut self, memory: &(impl SharedWords + ?Sized), position: u32) {
        memory.store(self.places[0].slot_word::<REQUEST_WORD_COUNT>(position), 0);
        if position != self.oldest {
            return;
        }
        while self.oldest != self.requests.counter() {
            let (word, bit) = Self::bit(self.oldest);
            if self.under_way[word] & bit != 0 {
                break;
            }
            self.oldest = self.oldest.wrapping_add(1);
        }
        memory.store(WORD_OLDEST, u64::from(self.oldest));
    }

    /// Asks to be woken at the next completion. `true`: there is one already.
    ///
    /// # Errors
    /// The service says something that cannot be.
    pub fn ask(&mut self, memory: &(impl SharedWords + ?Sized)) -> Result<bool, Broken> {
        self.completions.ask(memory)
    }
}
