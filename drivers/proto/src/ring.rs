//! The ring: one producer, one consumer, slots of `W` words.
//!
//! Counters run freely and wrap at 2^32; the slot of a counter is its low bits. There are as many slots as the power of
//! two that is not below the capacity. Each side has a line of its own with its counter and with the counter of the
//! other side at which it wants to be woken.

use crate::SharedWords;

/// Words before the slots: a line for each side.
pub const RING_WORD_COUNT: usize = 16;
/// Slots that one visit takes, at most.
pub const VISIT_SLOT_COUNT_MAX: u32 = 64;
/// Most slots under way.
const CAPACITY_MAX: u32 = 4096;

const PRODUCED: usize = 0;
const PRODUCER_WAKE: usize = 1;
const CONSUMED: usize = 8;
/// Words of a ring that whoever makes it sets.
pub(crate) const FIRST_PRODUCED_WORD: usize = PRODUCED;
pub(crate) const FIRST_CONSUMED_WORD: usize = CONSUMED;
const CONSUMER_WAKE: usize = 9;

/// The other side said something that cannot be; the queue is not used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// Why a slot was not put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutError {
    /// There is no room.
    Full,
    /// As [`Broken`].
    Broken,
}

/// Where a ring is, and how many slots can be under way in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlace {
    first_word: usize,
    capacity: u32,
}

impl RingPlace {
    /// A ring from a word on. `None`: no such capacity (1 to 4,096), or the end of memory is too near.
    #[must_use]
    pub fn new<const W: usize>(first_word: usize, capacity: u32, memory: &(impl SharedWords + ?Sized)) -> Option<Self> {
        if capacity == 0 || capacity > CAPACITY_MAX {
            return None;
        }
        let end = first_word.checked_add(Self::word_count::<W>(capacity))?;
        (end <= memory.word_count()).then_some(Self { first_word, capacity })
    }

    /// Words of a ring of this capacity.
    #[must_use]
    pub const fn word_count<const W: usize>(capacity: u32) -> usize {
        RING_WORD_COUNT + capacity.next_power_of_two() as usize * W
    }

    /// A word of it.
    pub(crate) const fn word(self, offset: usize) -> usize {
        self.first_word + offset
    }

    /// The first word of a slot.
    pub(crate) fn slot_word<const W: usize>(self, counter: u32) -> usize {
        let mask = self.capacity.next_power_of_two() - 1;
        self.first_word + RING_WORD_COUNT + (counter & mask) as usize * W
    }
}

/// Whether a counter that goes from `old` to `new` comes by `wake`: whoever wrote that wants the slot of that number.
fn crosses(wake: u32, old: u32, new: u32) -> bool {
    new.wrapping_sub(wake).wrapping_sub(1) < new.wrapping_sub(old)
}

/// The side that fills slots.
#[derive(Clone, Copy, Debug)]
pub struct Producer<const W: usize> {
    place: RingPlace,
    mine: u32,
    published: u32,
    others: u32,
    is_broken: bool,
}

impl<const W: usize> Producer<W> {
    /// The side of a ring that is empty, with both counters at `start`.
    #[must_use]
    pub const fn new(place: RingPlace, start: u32) -> Self {
        Self { place, mine: start, published: start, others: start, is_broken: false }
    }

    /// The side of a ring in which everything from `others` to `mine` was put and published before.
    #[must_use]
    pub const fn resume(place: RingPlace, mine: u32, others: u32) -> Self {
        Self { place, mine, published: mine, others, is_broken: false }
    }

    /// Its own counter: the number of the slot that is put next.
    #[must_use]
    pub const fn counter(&self) -> u32 {
        self.mine
    }

    /// Slots that were put and not given back, as of the last look.
    #[must_use]
    pub const fn under_way_count(&self) -> u32 {
        self.mine.wrapping_sub(self.others)
    }

    /// Slots that can be put.
    ///
    /// # Errors
    /// [`Broken`].
    #[inline]
    pub fn room(&mut self, memory: &(impl SharedWords + ?Sized)) -> Result<u32, Broken> {
        if self.is_broken {
            return Err(Broken);
        }
        let others = memory.load_acquire(self.place.first_word + CONSUMED) as u32;
        // Not behind what it was, and not before what it can have seen.
        if others.wrapping_sub(self.others) > self.published.wrapping_sub(self.others) {
            self.is_broken = true;
            return Err(Broken);
        }
        self.others = others;
        Ok(self.place.capacity - self.mine.wrapping_sub(others))
    }

    /// Fills the next slot. The other side sees it with [`Self::publish`].
    ///
    /// # Errors
    /// There is no room, or the other side is broken; nothing is written then.
    #[inline]
    pub fn put(&mut self, memory: &(impl SharedWords + ?Sized), words: &[u64; W]) -> Result<(), PutError> {
        let used = self.mine.wrapping_sub(self.others);
        if (used >= self.place.capacity || self.is_broken) && self.room(memory).map_err(|_| PutError::Broken)? == 0 {
            return Err(PutError::Full);
        }
        let slot = self.place.slot_word::<W>(self.mine);
        memory.store_run(slot, words);
        self.mine = self.mine.wrapping_add(1);
        Ok(())
    }

    /// Shows the other side what was put. `true`: it wants to be woken for it.
    #[inline]
    #[must_use]
    pub fn publish(&mut self, memory: &(impl SharedWords + ?Sized)) -> bool {
        if self.published == self.mine {
            return false;
        }
        let before = core::mem::replace(&mut self.published, self.mine);
        memory.store_release(self.place.first_word + PRODUCED, u64::from(self.mine));
        memory.fence();
        crosses(memory.load(self.place.first_word + CONSUMER_WAKE) as u32, before, self.mine)
    }

    /// Asks to be woken when there is room again. `true`: there is already, so look again before you sleep.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn ask_for_room(&mut self, memory: &(impl SharedWords + ?Sized)) -> Result<bool, Broken> {
        memory.store(self.place.first_word + PRODUCER_WAKE, u64::from(self.others));
        memory.fence();
        Ok(self.room(memory)? > 0)
    }
}

/// The side that empties slots.
#[derive(Clone, Copy, Debug)]
pub struct Consumer<const W: usize> {
    place: RingPlace,
    mine: u32,
    released: u32,
    others: u32,
    is_broken: bool,
}

impl<const W: usize> Consumer<W> {
    /// The side of a ring from which everything before `start` was taken.
    #[must_use]
    pub const fn new(place: RingPlace, start: u32) -> Self {
        Self { place, mine: start, released: start, others: start, is_broken: false }
    }

    /// Its own counter: the number of the slot that is taken next.
    #[must_use]
    pub const fn counter(&self) -> u32 {
        self.mine
    }

    /// Whether the other side has put something: one look at memory, which judges nothing.
    #[inline]
    pub fn has_any(&self, memory: &(impl SharedWords + ?Sized)) -> bool {
        self.is_broken || memory.load(self.place.first_word + PRODUCED) as u32 != self.mine
    }

    /// Slots that a visit may take now: each is there, and they are at most [`VISIT_SLOT_COUNT_MAX`].
    ///
    /// # Errors
    /// [`Broken`].
    #[inline]
    pub fn visit(&mut self, memory: &(impl SharedWords + ?Sized)) -> Result<u32, Broken> {
        if self.is_broken {
            return Err(Broken);
        }
        let others = memory.load_acquire(self.place.first_word + PRODUCED) as u32;
        let count = others.wrapping_sub(self.mine);
        if count > self.place.capacity || count < self.others.wrapping_sub(self.mine) {
            self.is_broken = true;
            return Err(Broken);
        }
        self.others = others;
        Ok(count.min(VISIT_SLOT_COUNT_MAX))
    }

    /// Takes a slot, by value, if the last visit saw one.
    #[inline]
    pub fn take(&mut self, memory: &(impl SharedWords + ?Sized)) -> Option<[u64; W]> {
        if self.is_broken || self.mine == self.others {
            return None;
        }
        let slot = self.place.slot_word::<W>(self.mine);
        self.mine = self.mine.wrapping_add(1);
        Some(memory.load_run(slot))
    }

    /// A slot by its number, by value: for whoever may look at one again that was taken before.
    #[inline]
    pub fn read(&self, memory: &(impl SharedWords + ?Sized), counter: u32) -> [u64; W] {
        let slot = self.place.slot_word::<W>(counter);
        memory.load_run(slot)
    }

    /// Gives the slots that were taken back. `true`: the other side wants to be woken for it.
    #[inline]
    #[must_use]
    pub fn release(&mut self, memory: &(impl SharedWords + ?Sized)) -> bool {
        self.release_to(memory, self.mine)
    }

    /// As [`Self::release`], of the slots before `counter` alone: those behind are still looked at. A counter that was
    /// not taken yet, or was given back already, gives nothing back.
    #[inline]
    #[must_use]
    pub fn release_to(&mut self, memory: &(impl SharedWords + ?Sized), counter: u32) -> bool {
        let held = self.mine.wrapping_sub(self.released);
        if counter == self.released || counter.wrapping_sub(self.released) > held {
            return false;
        }
        let before = core::mem::replace(&mut self.released, counter);
        memory.store_release(self.place.first_word + CONSUMED, u64::from(counter));
        memory.fence();
        crosses(memory.load(self.place.first_word + PRODUCER_WAKE) as u32, before, counter)
    }

    /// Whether the other side wants to be woken when one of the slots that were taken is given back.
    pub fn is_release_awaited(&self, memory: &(impl SharedWords + ?Sized)) -> bool {
        crosses(memory.load(self.place.first_word + PRODUCER_WAKE) as u32, self.released, self.mine)
    }

    /// Slots that were taken and not given back.
    #[must_use]
    pub const fn held_count(&self) -> u32 {
        self.mine.wrapping_sub(self.released)
    }

    /// Asks to be woken when the next slot is there. `true`: it is already, so look again before you sleep.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn ask(&mut self, memory: &(impl SharedWords + ?Sized)) -> Result<bool, Broken> {
        memory.store(self.place.first_word + CONSUMER_WAKE, u64::from(self.mine));
        memory.fence();
        Ok(self.visit(memory)? > 0)
    }

    /// Takes back that it wants to be woken.
    pub fn forget(&self, memory: &(impl SharedWords + ?Sized)) {
        memory.store(self.place.first_word + CONSUMER_WAKE, u64::from(self.mine.wrapping_sub(1)));
    }
}
