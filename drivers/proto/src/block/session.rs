//! The service's side of a session.

use super::State;
use super::words::MAGIC;
use super::words::{
    COMPLETION_WORD_COUNT, GIVEN_UP, REQUEST_WORD_COUNT, WORD_GENERATION, WORD_MAGIC, WORD_OLDEST, WORD_PROGRESS,
    WORD_SHAPE, WORD_STATE,
};
use super::{Buffer, Completion, Description, Extent, Request, Segment, Shape};
use crate::ring::FIRST_CONSUMED_WORD;
use crate::{Broken, Consumer, Producer, PutError, SharedWords};

/// What a client did that ends its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offence {
    /// The memory is no session.
    Memory,
    /// A counter cannot be.
    Counter,
    /// A slot is no request.
    Slot,
    /// It does not consume its completions, or has more under way than its session has room for.
    Depth,
    /// It names an extent that it does not have.
    Extent,
    /// It names a buffer that it did not give, or bytes outside of it.
    Buffer,
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
    requests: Consumer<REQUEST_WORD_COUNT>,
    completions: Producer<COMPLETION_WORD_COUNT>,
    progress: u64,
}

impl Session {
    /// Takes a session over where its client says that it stands, whoever served it before.
    ///
    /// # Errors
    /// The memory is none.
    pub fn attach(memory: &(impl SharedWords + ?Sized)) -> Result<Self, Offence> {
        if memory.load_acquire(WORD_MAGIC) != MAGIC {
            return Err(Offence::Memory);
        }
        let shape = Shape::from_word(memory.load(WORD_SHAPE));
        let [requests, completions] = shape.rings(memory).ok_or(Offence::Memory)?;
        let generation = memory.load(WORD_GENERATION) as u32;
        let oldest = memory.load(WORD_OLDEST) as u32;
        let consumed = memory.load(completions.word(FIRST_CONSUMED_WORD)) as u32;
        Ok(Self {
            shape,
            generation,
            requests: Consumer::new(requests, oldest),
            completions: Producer::new(completions, consumed),
            progress: 0,
        })
    }

    /// The generation of a session that a client offers. `None`: there is none, or it is being made.
    #[must_use]
    pub fn offered(memory: &(impl SharedWords + ?Sized)) -> Option<u32> {
        let generation = memory.load_acquire(WORD_GENERATION) as u32;
        let is_whole = memory.load_acquire(WORD_MAGIC) == MAGIC && generation.is_multiple_of(2);
        is_whole.then_some(generation)
    }

    /// The generation that was taken.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// Takes away what nobody serves any more: its client begins anew, and until then nobody takes it. Not where it was
    /// given up for good.
    pub fn withdraw(memory: &(impl SharedWords + ?Sized), is_given_up: bool) {
        memory.store(WORD_MAGIC, 0);
        memory.store_release(WORD_STATE, if is_given_up { GIVEN_UP } else { 0 });
    }

    /// Says what the disk and the client's extents are, and that the session is served.
    pub fn announce(&self, memory: &(impl SharedWords + ?Sized), disk: &Description, extents: &[Extent]) {
        disk.store(memory);
        for index in 0..super::EXTENT_COUNT_MAX {
            extents.get(index).copied().unwrap_or_default().store(memory, index);
        }
        memory.store_release(WORD_STATE, State::Up.to_word(self.generation));
    }

    /// Says that the session has ended.
    pub fn end(&self, memory: &(impl SharedWords + ?Sized)) {
        memory.store_release(WORD_STATE, State::Ended.to_word(self.generation));
    }

    /// Requests that can be under way.
    #[must_use]
    pub const fn depth(&self) -> u32 {
        self.shape.depth
    }

    /// Requests that can be taken now, in one visit.
    ///
    /// # Errors
    /// A counter that cannot be.
    #[inline]
    pub fn visit(&mut self, memory: &(impl SharedWords + ?Sized)) -> Result<u32, Offence> {
        Ok(self.requests.visit(memory)?)
    }

    /// Whether there is a request: a look that judges nothing.
    #[inline]
    pub fn has_any(&self, memory: &(impl SharedWords + ?Sized)) -> bool {
        self.requests.has_any(memory)
    }

    /// Takes the next request, with the number of its slot; `None` for one that the client has marked as done.
    ///
    /// # Errors
    /// A slot that is no request.
    #[inline]
    pub fn take(&mut self, memory: &(impl SharedWords + ?Sized)) -> Result<Option<(u32, Request)>, Offence> {
        let position = self.requests.counter();
        let Some(words) = self.requests.take(memory) else { return Ok(None) };
        if words[0] == 0 {
            return Ok(None);
        }
        Request::from_words(&words).map(|request| Some((position, request))).ok_or(Offence::Slot)
    }

    /// A request that was taken before, again (BQ-2); it is judged as if it came for the first time.
    ///
    /// # Errors
    /// A slot that is no request.
    pub fn retake(&self, memory: &(impl SharedWords + ?Sized), position: u32) -> Result<Request, Offence> {
        Request::from_words(&self.requests.read(memory, position)).ok_or(Offence::Slot)
    }

    /// Segment `index` of the list on `page`, copied.
    ///
    /// # Errors
    /// There is no such page.
    pub fn listed(&self, memory: &(impl SharedWords + ?Sized), page: u32, index: usize) -> Result<Segment, Offence> {
        if page >= self.shape.indirect_page_count || index >= super::SEGMENT_COUNT_MAX {
            return Err(Offence::Slot);
        }
        Ok(Segment::from_word(memory.load(self.shape.list_word(page, index))))
    }

    /// What the client says of a buffer, copied.
    #[must_use]
    pub fn buffer(&self, memory: &(impl SharedWords + ?Sized), index: u16) -> Buffer {
        Buffer::load(memory, usize::from(index))
    }

    /// Tells of a request's end. The client sees it with [`Self::publish`].
    ///
    /// # Errors
    /// There is no room, which an honest client always leaves; or a counter cannot be.
    #[inline]
    pub fn complete(&mut self, memory: &(impl SharedWords + ?Sized), completion: Completion) -> Result<(), Offence> {
        self.completions.put(memory, &completion.to_words()).map_err(|error| match error {
            PutError::Full => Offence::Depth,
            PutError::Broken => Offence::Counter,
        })
    }

    /// Shows the client what was taken and what has ended. `true`: it wants to be woken.
    #[inline]
    #[must_use]
    pub fn publish(&mut self, memory: &(impl SharedWords + ?Sized)) -> bool {
        let _ = self.requests.release(memory);
        let before = self.progress;
        self.progress = u64::from(self.completions.counter());
        if self.progress != before {
            memory.store(WORD_PROGRESS, self.progress);
        }
        self.completions.publish(memory)
    }

    /// Asks to be woken at the next request. `true`: there is one already.
    ///
    /// # Errors
    /// A counter that cannot be.
    pub fn ask(&mut self, memory: &(impl SharedWords + ?Sized)) -> Result<bool, Offence> {
        Ok(self.requests.ask(memory)?)
    }
}
