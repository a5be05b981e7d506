//! The service's side of a session.

use super::words::{
    MAGIC, RECEIVE_WORD_COUNT, TRANSMIT_WORD_COUNT, WORD_DROPPED, WORD_GENERATION, WORD_LINK, WORD_MAGIC, WORD_SHAPE,
    WORD_STATE,
};
use super::{Description, RING_CAPACITY_MAX, Received, Shape, State, Transmission};
use crate::{Broken, Consumer, Producer, PutError, SharedWords};

/// What a client did that ends its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offence {
    /// The memory is no session.
    Memory,
    /// A counter cannot be.
    Counter,
    /// A slot is no frame, or names bytes outside of the session.
    Slot,
}

impl From<Broken> for Offence {
    fn from(_: Broken) -> Self {
        Self::Counter
    }
}

/// A client's session, as the service sees it: everything that is believed is here, not in the memory.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    shape: Shape,
    generation: u32,
    transmit: Consumer<TRANSMIT_WORD_COUNT>,
    receive: Producer<RECEIVE_WORD_COUNT>,
    /// The oldest slot that was not given back.
    oldest: u32,
    /// Bit n of word m: the card is done with slot 64 m + n.
    done: [u64; RING_CAPACITY_MAX as usize / 64],
}

impl Session {
    /// Takes a session over with nothing under way.
    ///
    /// # Errors
    /// The memory is none.
    pub fn attach(memory: &(impl SharedWords + ?Sized), byte_count: usize) -> Result<Self, Offence> {
        if memory.load_acquire(WORD_MAGIC) != MAGIC {
            return Err(Offence::Memory);
        }
        let shape = Shape::from_word(memory.load(WORD_SHAPE));
        let [transmit, receive] = shape.rings(memory).ok_or(Offence::Memory)?;
        if shape.byte_page_count() * 4096 > byte_count {
            return Err(Offence::Memory);
        }
        Ok(Self {
            shape,
            generation: memory.load(WORD_GENERATION) as u32,
            transmit: Consumer::new(transmit, 0),
            receive: Producer::new(receive, 0),
            oldest: 0,
            done: [0; RING_CAPACITY_MAX as usize / 64],
        })
    }

    /// Pages of words that the memory's own shape names, before which no byte of a frame is; `None`: it is no session.
    pub fn word_page_count(memory: &(impl SharedWords + ?Sized)) -> Option<usize> {
        let shape = Shape::from_word(memory.load(WORD_SHAPE));
        shape.rings(memory).map(|_| shape.word_page_count())
    }

    /// Says what the card is, and that the session is served.
    pub fn announce(&self, memory: &(impl SharedWords + ?Sized), card: &Description) {
        card.store(memory);
        memory.store_release(WORD_STATE, State::Up.to_word(self.generation));
    }

    /// Says whether the card has a link, and how many frames were dropped.
    pub fn tell(&self, memory: &(impl SharedWords + ?Sized), has_link: bool, dropped_count: u64) {
        memory.store(WORD_LINK, u64::from(has_link));
        memory.store(WORD_DROPPED, dropped_count);
    }

    /// Says that the session has ended.
    pub fn end(&self, memory: &(impl SharedWords + ?Sized)) {
        memory.store_release(WORD_STATE, State::Ended.to_word(self.generation));
    }

    /// Frames that can be taken now, in one visit: never more than the session has slots, however many were taken and
    /// not given back.
    ///
    /// # Errors
    /// A counter that cannot be.
    #[inline]
    pub fn visit(&mut self, memory: &(impl SharedWords + ?Sized)) -> Result<u32, Offence> {
        let left_count = self.shape.capacity - self.transmit.held_count();
        Ok(self.transmit.visit(memory)?.min(left_count))
    }

    /// Whether there is a frame to take: a look that judges nothing.
    #[inline]
    pub fn has_any(&self, memory: &(impl SharedWords + ?Sized)) -> bool {
        self.transmit.has_any(memory)
    }

    /// Takes the next frame that the last visit saw, with the number of its slot.
    ///
    /// # Errors
    /// A slot that is no frame.
    #[inline]
    pub fn take(&mut self, memory: &(impl SharedWords + ?Sized)) -> Result<Option<(u32, Transmission)>, Offence> {
        let position = self.transmit.counter();
        let Some(words) = self.transmit.take(memory) else { return Ok(None) };
        Transmission::from_words(words, self.shape).map(|frame| Some((position, frame))).ok_or(Offence::Slot)
    }

    /// The card is done with the frame of a slot that was taken.
    #[inline]
    pub fn mark_done(&mut self, position: u32) {
        let slot = position % RING_CAPACITY_MAX;
        self.done[slot as usize / 64] |= 1 << (slot % 64);
    }

    /// Gives slots back, in order, with whose frames the card is done. `true`: the client wants to be woken.
    #[inline]
    #[must_use]
    pub fn release_done(&mut self, memory: &(impl SharedWords + ?Sized)) -> bool {
        while self.oldest != self.transmit.counter() {
            let slot = self.oldest % RING_CAPACITY_MAX;
            let (word, bit) = (&mut self.done[slot as usize / 64], 1 << (slot % 64));
            if *word & bit == 0 {
                break;
            }
            *word &= !bit;
            self.oldest = self.oldest.wrapping_add(1);
        }
        self.transmit.release_to(memory, self.oldest)
    }

    /// Slots that were taken and not given back.
    #[must_use]
    pub const fn held_count(&self) -> u32 {
        self.transmit.held_count()
    }

    /// Frames that the client has room for.
    ///
    /// # Errors
    /// A counter that cannot be.
    #[inline]
    pub fn room(&mut self, memory: &(impl SharedWords + ?Sized)) -> Result<u32, Offence> {
        Ok(self.receive.room(memory)?)
    }

    /// Where the next frame that comes in is put: its first byte among those of the session.
    #[must_use]
    pub const fn next_place(&self) -> usize {
        self.shape.receive_place(self.receive.counter())
    }

    /// Tells of a frame that was put at [`Self::next_place`]. The client sees it with [`Self::publish`].
    ///
    /// # Errors
    /// There is no room, or a counter cannot be.
    #[inline]
    pub fn deliver(
        &mut self,
        memory: &(impl SharedWords + ?Sized),
        length_bytes: usize,
        is_checksum_valid: bool,
    ) -> Result<(), PutError> {
        let frame = Received { offset_bytes: self.next_place(), length_bytes, is_checksum_valid };
        self.receive.put(memory, &frame.to_words())
    }

    /// Shows the client what has come in. `true`: it wants to be woken.
    #[inline]
    #[must_use]
    pub fn publish(&mut self, memory: &(impl SharedWords + ?Sized)) -> bool {
        self.receive.publish(memory)
    }

    /// Whether the client waits for a slot that was taken to be given back.
    pub fn is_room_awaited(&self, memory: &(impl SharedWords + ?Sized)) -> bool {
        self.transmit.is_release_awaited(memory)
    }

    /// Asks to be woken at the next frame that goes out, where one can be taken, and, where there is no room for one
    /// that comes in, at that. `true`: there is one, or room, already.
    ///
    /// # Errors
    /// A counter that cannot be.
    pub fn ask(&mut self, memory: &(impl SharedWords + ?Sized), can_take: bool) -> Result<bool, Offence> {
        let can_take = can_take && self.held_count() < self.shape.capacity;
        let has_frames = can_take && self.transmit.ask(memory)?;
        let was_full = self.receive.room(memory)? == 0;
        let has_room = was_full && self.receive.ask_for_room(memory)?;
        Ok(has_frames || has_room)
    }
}
