//! The client's side of a session.

use super::words::{
    MAGIC, RECEIVE_WORD_COUNT, TRANSMIT_WORD_COUNT, WORD_DROPPED, WORD_GENERATION, WORD_LINK, WORD_MAGIC, WORD_SHAPE,
    WORD_STATE,
};
use super::{Description, RING_CAPACITY_MAX, Received, Shape, State, Transmission};
use crate::ring::{FIRST_CONSUMED_WORD, FIRST_PRODUCED_WORD};
use crate::{Broken, Consumer, Producer, PutError, RingPlace, SharedWords};

/// Frames begin at multiples of this: lines are not shared.
const ALIGNMENT_BYTES: u64 = 64;

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// There is no room now.
    Full,
    /// It is empty, or longer than the session has room for.
    Refused,
    /// The service has broken the protocol.
    Broken,
}

impl From<Broken> for SendError {
    fn from(_: Broken) -> Self {
        Self::Broken
    }
}

/// Room for a frame that goes out, until the next is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Its first byte among those of the session.
    pub offset_bytes: u32,
    length_bytes: u32,
    start: u64,
}

/// A session, as its client sees it.
#[derive(Clone, Debug)]
pub struct Client {
    shape: Shape,
    generation: u32,
    places: [RingPlace; 2],
    transmit: Producer<TRANSMIT_WORD_COUNT>,
    receive: Consumer<RECEIVE_WORD_COUNT>,
    /// Frames that the last look at the ring saw and that were not taken.
    seen_count: u32,
    /// The bytes of frames that go out are used in a circle: where the next begins, and where the oldest does that was
    /// not given back. Both run freely.
    head: u64,
    tail: u64,
    /// Where the frame of each slot begins.
    starts: [u64; RING_CAPACITY_MAX as usize],
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
            transmit: Producer::new(places[0], 0),
            receive: Consumer::new(places[1], 0),
            seen_count: 0,
            head: 0,
            tail: 0,
            starts: [0; RING_CAPACITY_MAX as usize],
        };
        client.restart(memory, generation);
        Some(client)
    }

    /// Begins anew with nothing under way; whoever served it before does not write any more.
    pub fn restart(&mut self, memory: &(impl SharedWords + ?Sized), generation: u32) {
        self.generation = generation;
        self.transmit = Producer::new(self.places[0], 0);
        self.receive = Consumer::new(self.places[1], 0);
        (self.seen_count, self.head, self.tail) = (0, 0, 0);
        memory.store(WORD_MAGIC, MAGIC);
        memory.store(WORD_SHAPE, self.shape.to_word());
        memory.store(WORD_STATE, State::Down.to_word(generation));
        for place in self.places {
            memory.store(place.word(FIRST_PRODUCED_WORD), 0);
            memory.store(place.word(FIRST_CONSUMED_WORD), 0);
        }
        self.receive.forget(memory);
        memory.store_release(WORD_GENERATION, u64::from(generation));
    }

    /// How it stands.
    pub fn state(&self, memory: &(impl SharedWords + ?Sized)) -> State {
        State::from_word(memory.load_acquire(WORD_STATE), self.generation)
    }

    /// What the service says of the card, not checked.
    pub fn description(&self, memory: &(impl SharedWords + ?Sized)) -> Description {
        Description::load(memory)
    }

    /// Whether the service says that the card has a link.
    pub fn has_link(&self, memory: &(impl SharedWords + ?Sized)) -> bool {
        memory.load(WORD_LINK) != 0
    }

    /// Frames that the service has dropped, as it says.
    pub fn dropped_count(&self, memory: &(impl SharedWords + ?Sized)) -> u64 {
        memory.load(WORD_DROPPED)
    }

    /// Frames that went out and were not given back, as of the last look.
    #[must_use]
    pub const fn has_under_way(&self) -> bool {
        self.head != self.tail
    }

    /// How many there are.
    #[must_use]
    pub const fn under_way_count(&self) -> u32 {
        self.transmit.under_way_count()
    }

    /// Takes in what was given back; how many slots are free.
    fn collect(&mut self, memory: &(impl SharedWords + ?Sized)) -> Result<u32, Broken> {
        let free_count = self.transmit.room(memory)?;
        let under_way_count = self.shape.capacity - free_count;
        if under_way_count == 0 {
            // Where nothing is under way the same lines are used again.
            (self.head, self.tail) = (0, 0);
        } else {
            let oldest = self.transmit.counter().wrapping_sub(under_way_count);
            self.tail = self.starts[(oldest % RING_CAPACITY_MAX) as usize];
        }
        Ok(free_count)
    }

    /// Frames of usual length that there is room for.
    ///
    /// # Errors
    /// The service says something that cannot be.
    pub fn room(&mut self, memory: &(impl SharedWords + ?Sized)) -> Result<usize, Broken> {
        let free_count = self.collect(memory)? as usize;
        let free_bytes = u64::from(self.shape.transmit_bytes()) - (self.head - self.tail);
        Ok(free_count.min(free_bytes as usize / Shape::RECEIVE_BYTES))
    }

    /// Room for a frame, which is to be filled and sent before another is asked for.
    ///
    /// # Errors
    /// [`SendError`].
    #[inline]
    pub fn reserve(&mut self, memory: &(impl SharedWords + ?Sized), length_bytes: u32) -> Result<Room, SendError> {
        let size = u64::from(self.shape.transmit_bytes());
        if length_bytes == 0 || u64::from(length_bytes) > size / 2 {
            return Err(SendError::Refused);
        }
        if let Some(room) = self.find(length_bytes, size) {
            return Ok(room);
        }
        self.collect(memory)?;
        self.find(length_bytes, size).ok_or(SendError::Full)
    }

    fn find(&self, length_bytes: u32, size: u64) -> Option<Room> {
        let offset = self.head % size;
        let start = if offset + u64::from(length_bytes) > size { self.head + size - offset } else { self.head };
        let fits = start + u64::from(length_bytes) - self.tail <= size;
        fits.then_some(Room { offset_bytes: (start % size) as u32, length_bytes, start })
    }

    /// Sends what was put into a room; place and length are the room's. The service sees it with [`Self::publish`].
    ///
    /// # Errors
    /// [`SendError`]; the room is free again then.
    #[inline]
    pub fn send(
        &mut self,
        memory: &(impl SharedWords + ?Sized),
        room: Room,
        mut transmission: Transmission,
    ) -> Result<(), SendError> {
        (transmission.offset_bytes, transmission.length_bytes) = (room.offset_bytes, room.length_bytes);
        let words = transmission.to_words().ok_or(SendError::Refused)?;
        let slot = (self.transmit.counter() % RING_CAPACITY_MAX) as usize;
        self.transmit.put(memory, &words).map_err(|error| match error {
            PutError::Full => SendError::Full,
            PutError::Broken => SendError::Broken,
        })?;
        self.starts[slot] = room.start;
        self.head = (room.start + u64::from(room.length_bytes)).next_multiple_of(ALIGNMENT_BYTES);
        Ok(())
    }

    /// Shows the service what was sent. `true`: it wants to be woken.
    #[inline]
    #[must_use]
    pub fn publish(&mut self, memory: &(impl SharedWords + ?Sized)) -> bool {
        self.transmit.publish(memory)
    }

    /// Whether a frame has come in: a look that judges nothing.
    #[inline]
    pub fn has_received(&self, memory: &(impl SharedWords + ?Sized)) -> bool {
        self.receive.has_any(memory)
    }

    /// The next frame that has come in, which stays until [`Self::release`].
    ///
    /// # Errors
    /// The service says something that cannot be.
    #[inline]
    pub fn receive(&mut self, memory: &(impl SharedWords + ?Sized)) -> Result<Option<Received>, Broken> {
        if self.seen_count == 0 {
            self.seen_count = self.receive.visit(memory)?;
        }
        let place = self.shape.receive_place(self.receive.counter());
        let Some(words) = self.receive.take(memory) else { return Ok(None) };
        self.seen_count = self.seen_count.saturating_sub(1);
        Received::from_words(words, place).map(Some).ok_or(Broken)
    }

    /// Frames that were taken and not given back.
    #[must_use]
    pub const fn held_count(&self) -> u32 {
        self.receive.held_count()
    }

    /// Gives the frames that were taken back. `true`: the service wants to be woken for it.
    #[inline]
    #[must_use]
    pub fn release(&mut self, memory: &(impl SharedWords + ?Sized)) -> bool {
        self.receive.release(memory)
    }

    /// Asks to be woken at the next frame that comes in. `true`: there is one already.
    ///
    /// # Errors
    /// The service says something that cannot be.
    pub fn ask(&mut self, memory: &(impl SharedWords + ?Sized)) -> Result<bool, Broken> {
        self.receive.ask(memory)
    }

    /// Asks to be woken when a slot is given back next. `true`: one was, since the last look.
    ///
    /// # Errors
    /// The service says something that cannot be.
    pub fn ask_for_room(&mut self, memory: &(impl SharedWords + ?Sized)) -> Result<bool, Broken> {
        let before = self.transmit.room(memory)?;
        self.transmit.ask_for_room(memory)?;
        Ok(self.transmit.room(memory)? > before)
    }
}
