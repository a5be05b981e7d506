//! Pipes, named and not: a queue of bytes with counted ends (pipe(7)).
//!
//! A write of up to [`PIPE_BUFFER_BYTES`] bytes goes in whole or not at all. Nearly always bytes are copied under the
//! lock, by copies that end at a fault and are all or nothing. Where one ends so, and for longer transfers, room is
//! reserved before the bytes are taken from the program into a block of their own and the block put in afterwards,
//! because a fault of a program's memory is never handled under a lock (INV-F1); what a faulting reader could not take
//! goes back to the front.
//!
//! The first reader that finds nothing and waits is the pipe's *sleeper*: it lies under the same lock as the bytes, so
//! a writer finds it there and wakes it without the queue of all other waiters. Invariant: whatever may end a reader's
//! wait takes the sleeper out and wakes it.
//!
//! Differences from Linux that a program can see: capacity is counted in bytes, not in page slots, so many
//! small writes fit; memory is at most twice that.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::block_queue::{BLOCK_BYTES, BlockQueue};
use super::readiness::{Readiness, WaitQueue};
use super::step::Attempt;
use super::transfer::{Destination, Source};
use crate::error::{Errno, Result};
use crate::sync::{Mutex, MutexGuard};
use crate::task::futex::Sleeper;
use crate::task::schedule::Task;

pub use end::PipeEnd;
pub use taken::Taken;

mod end;
mod taken;

/// A write up to this many bytes is atomic (`PIPE_BUF`).
pub const PIPE_BUFFER_BYTES: usize = 4096;
/// Capacity of a new pipe.
pub const PIPE_CAPACITY_BYTES: usize = 64 * 1024;
/// Largest capacity that any caller can ask for, in bytes (`/proc/sys/fs/pipe-max-size`).
pub const PIPE_CAPACITY_BYTES_MAX: usize = 1024 * 1024;
/// Largest capacity that a caller with `CAP_SYS_RESOURCE` can ask for, in bytes; Linux ends where its memory does. The
/// memory is taken as bytes come in.
pub const PIPE_CAPACITY_BYTES_PRIVILEGED_MAX: usize = 16 << 20;

/// A pipe: bytes between writers and readers, at most its capacity.
pub struct Pipe {
    number: u64,
    state: Mutex<State>,
    waiters: Arc<WaitQueue>,
}

struct State {
    queue: BlockQueue,
    capacity: usize,
    /// Bytes of room promised to writers that are copying.
    reserved: usize,
    reader_count: u32,
    writer_count: u32,
    /// Ends ever opened: a named pipe's opener waits for this to move.
    reader_opens: u64,
    writer_opens: u64,
    sleeper: Option<Arc<Task>>,
}

impl State {
    /// A reader that comes back has been woken, by any event.
    #[inline(always)]
    fn wake_up(&mut self, task: &Arc<Task>) {
        if self.sleeper.as_ref().is_some_and(|sleeper| Arc::ptr_eq(sleeper, task)) {
            self.sleeper = None;
        }
    }

    fn room(&self) -> usize {
        self.capacity.saturating_sub(self.queue.length() + self.reserved)
    }
}

impl Pipe {
    /// A pipe without ends; `number` names it (`pipe:[number]`).
    pub fn new(number: u64) -> Arc<Self> {
        Arc::new(Self {
            number,
            state: Mutex::new(State {
                queue: BlockQueue::default(),
                capacity: PIPE_CAPACITY_BYTES,
                reserved: 0,
                reader_count: 0,
                writer_count: 0,
                reader_opens: 0,
                writer_opens: 0,
                sleeper: None,
            }),
            waiters: WaitQueue::new(),
        })
    }

    /// Inode number of the pipe.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Capacity in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.state.lock().capacity
    }

    /// Sets the capacity, rounded up to a power of two of pages; returns what it became.
    ///
    /// # Errors
    /// `EPERM`: above [`PIPE_CAPACITY_BYTES_MAX`] and not privileged. `EBUSY`: more is inside. `ENOMEM`: above
    /// [`PIPE_CAPACITY_BYTES_PRIVILEGED_MAX`].
    pub fn set_capacity_bytes(&self, wanted: usize, is_privileged: bool) -> Result<usize> {
        if wanted > PIPE_CAPACITY_BYTES_PRIVILEGED_MAX {
            return Err(if is_privileged { Errno::ENOMEM } else { Errno::EPERM });
        }
        let capacity = wanted.max(PIPE_BUFFER_BYTES).next_power_of_two();
        let mut state = self.state.lock();
        if capacity > state.capacity.max(PIPE_CAPACITY_BYTES_MAX) && !is_privileged {
            return Err(Errno::EPERM);
        }
        if state.queue.length() + state.reserved > capacity {
            return Err(Errno::EBUSY);
        }
        state.capacity = capacity;
        drop(state);
        self.waiters.notify(Readiness::WRITE);
        Ok(capacity)
    }

    /// Bytes that can be read now.
    pub fn readable_bytes(&self) -> usize {
        self.state.lock().queue.length()
    }

    /// Bytes that there is room for.
    pub fn room(&self) -> usize {
        self.state.lock().room()
    }

    /// Copies the first bytes without taking them; how many there were.
    pub fn peek(&self, into: &mut [u8]) -> usize {
        self.state.lock().queue.peek(into)
    }

    /// Reads what lies in one block, under the lock. `None`: that is not all that is wanted and there, or the copy
    /// ended early; nothing has been taken then.
    #[inline]
    fn read_nofault(&self, destination: &mut dyn Destination) -> Option<Result<usize>> {
        let state = self.state.lock();
        if state.queue.length() == 0 {
            return (destination.remaining() > 0 && state.writer_count > 0).then_some(Err(Errno::EAGAIN));
        }
        self.take_nofault(state, destination).map(Ok)
    }

    /// As [`Self::read`] where all is at hand, for `task`, which sleeps if nothing is there: it blocks then and
    /// comes again, or calls [`Pipe::leave`].
    #[inline(always)]
    pub fn read_or_sleep(&self, destination: &mut impl Destination, task: &Arc<Task>) -> Attempt {
        let mut state = self.state.lock();
        state.wake_up(task);
        if state.queue.length() > 0 {
            return self.take_nofault(state, destination).map_or(Attempt::Unknown, Attempt::Done);
        }
        if destination.remaining() == 0 || state.writer_count == 0 || state.sleeper.is_some() {
            return Attempt::Unknown;
        }
        // There is none, so none is let go of.
        core::mem::forget(state.sleeper.replace(task.clone()));
        Attempt::Asleep
    }

    /// `task` sleeps no more.
    pub fn leave(&self, task: &Arc<Task>) {
        self.state.lock().wake_up(task);
    }

    #[inline(always)]
    fn take_nofault<D: Destination + ?Sized>(
        &self,
        mut state: MutexGuard<'_, State>,
        destination: &mut D,
    ) -> Option<usize> {
        let makes_writable = state.room() < PIPE_BUFFER_BYTES;
        let count = state.queue.take_first(destination)?;
        drop(state);
        // With so much room nobody was refused before, so nobody waits.
        if makes_writable && count > 0 {
            self.waiters.notify(Readiness::WRITE);
        }
        Some(count)
    }

    /// Tells all waiters of `events`.
    fn tell(&self, events: Readiness) {
        let sleeper = self.state.lock().sleeper.take();
        self.waiters.notify(events);
        if let Some(sleeper) = sleeper {
            Sleeper::wake_up(&sleeper);
        }
    }

    /// Writes what goes in whole or not at all, under the lock. `None`: there is more, or the copy ended early; nothing
    /// has been put in then.
    #[inline(always)]
    pub fn write_nofault<S: Source + ?Sized>(&self, source: &mut S) -> Option<Result<usize>> {
        let wanted = source.remaining();
        if wanted == 0 || wanted > PIPE_BUFFER_BYTES {
            return None;
        }
        let mut state = self.state.lock();
        if state.reader_count == 0 {
            return Some(Err(Errno::EPIPE));
        }
        if state.room() < wanted {
            return Some(Err(Errno::EAGAIN));
        }
        match state.queue.append(wanted, source) {
            Err(error) => Some(Err(error)),
            Ok(false) => None,
            Ok(true) => {
                let sleeper = state.sleeper.take();
                drop(state);
                self.waiters.notify(Readiness::READ);
                if let Some(sleeper) = sleeper {
                    Sleeper::wake_up(&sleeper);
                }
                Some(Ok(wanted))
            }
        }
    }

    fn read(&self, destination: &mut dyn Destination) -> Result<usize> {
        match self.read_nofault(destination) {
            Some(outcome) => outcome,
            None => self.read_blocks(destination),
        }
    }

    fn write(&self, source: &mut dyn Source) -> Result<usize> {
        match self.write_nofault(source) {
            Some(outcome) => outcome,
            None => self.write_blocks(source),
        }
    }

    fn read_blocks(&self, destination: &mut dyn Destination) -> Result<usize> {
        let wanted = destination.remaining();
        if wanted == 0 {
            return Ok(0);
        }
        let mut taken = Taken::new(self, wanted)?;
        match taken.put_into(destination) {
            0 if taken.remaining() > 0 => Err(Errno::EFAULT),
            done => Ok(done),
        }
    }

    fn write_blocks(&self, source: &mut dyn Source) -> Result<usize> {
        let mut left = source.remaining();
        let is_atomic = left <= PIPE_BUFFER_BYTES;
        let (mut done, mut reserved) = (0, 0);
        let mut filled = Vec::new();
        let outcome = loop {
            let wanted = left.min(BLOCK_BYTES);
            let (mut block, count) = {
                let mut state = self.state.lock();
                if state.reader_count == 0 {
                    break Err(Errno::EPIPE);
                }
                if wanted == 0 {
                    break Ok(());
                }
                let room = state.room();
                if room == 0 || (is_atomic && room < wanted) {
                    break Err(Errno::EAGAIN);
                }
                if filled.try_reserve(1).is_err() {
                    break Err(Errno::ENOMEM);
                }
                let block = match state.queue.empty_block() {
                    Err(error) => break Err(error),
                    Ok(block) => block,
                };
                let count = wanted.min(room);
                state.reserved += count;
                (block, count)
            };
            reserved += count;
            let taken = block.fill(count, |bytes| source.take(bytes));
            if taken < count {
                // A block goes in whole or not at all, as Linux's pages do.
                block.skip(taken);
            }
            filled.push(block);
            if taken < count {
                break Err(Errno::EFAULT);
            }
            done += taken;
            left -= taken;
        };
        // All at once, as on Linux, whose readers never find half of a write that there was room for.
        {
            let mut state = self.state.lock();
            state.reserved -= reserved;
            for block in filled {
                state.queue.put(block);
            }
        }
        if done < reserved {
            // Another writer may have been refused the room that was kept for the rest.
            self.waiters.notify(Readiness::WRITE);
        }
        if done > 0 {
            self.tell(Readiness::READ);
            return Ok(done);
        }
        outcome.map(|()| 0)
    }
}

#[cfg(test)]
mod tests;
