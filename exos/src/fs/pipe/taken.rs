//! Bytes on their way out of a pipe.
//!
//! They leave the queue all at once, and their room comes back all at once when it is known what of them was used: so
//! neither a reader nor a writer ever finds a transfer in the middle, though the bytes are copied without the pipe's
//! lock. What was not used goes back to the front.

use alloc::vec::Vec;

use super::{PIPE_BUFFER_BYTES, Pipe};
use crate::error::{Errno, Result};
use crate::fs::block_queue::Block;
use crate::fs::readiness::Readiness;
use crate::fs::transfer::{Destination, Source};

/// Bytes that were taken out of a pipe. When it is dropped, what is left of them goes back.
pub struct Taken<'a> {
    pipe: &'a Pipe,
    /// The first one to be used is the last.
    blocks: Vec<Block>,
    /// Bytes that were taken: their room stays reserved.
    length: usize,
    used: usize,
}

impl<'a> Taken<'a> {
    /// The first bytes of a pipe, at most `limit`, fewer where memory for a part of a block is short. None at the end
    /// of a pipe that nobody writes.
    ///
    /// # Errors
    /// `EAGAIN`: the pipe is empty. `ENOMEM`.
    pub fn new(pipe: &'a Pipe, limit: usize) -> Result<Self> {
        let mut taken = Self { pipe, blocks: Vec::new(), length: 0, used: 0 };
        let mut state = pipe.state.lock();
        if state.queue.length() == 0 && state.writer_count > 0 {
            return Err(Errno::EAGAIN);
        }
        while taken.length < limit && state.queue.length() > 0 {
            let space = taken.blocks.try_reserve(1).map_err(|_| Errno::ENOMEM);
            match space.and_then(|()| state.queue.take(limit - taken.length)) {
                Err(error) if taken.length == 0 => return Err(error),
                Err(_) => break,
                Ok(block) => {
                    taken.length += block.length();
                    taken.blocks.push(block);
                }
            }
        }
        state.reserved += taken.length;
        drop(state);
        taken.blocks.reverse();
        Ok(taken)
    }

    /// Copies what is left to `destination`, as far as that takes whole blocks, as Linux does; how many bytes.
    pub fn put_into(&mut self, destination: &mut dyn Destination) -> usize {
        let before = self.used;
        let mut blocks = self.blocks.iter_mut().rev();
        while let Some(block) = blocks.next().filter(|_| self.used < self.length) {
            let count = block.length();
            if destination.put(block.bytes()) < count {
                break;
            }
            block.skip(count);
            self.used += count;
        }
        self.used - before
    }
}

impl Source for Taken<'_> {
    fn remaining(&self) -> usize {
        self.length - self.used
    }

    fn take(&mut self, into: &mut [u8]) -> usize {
        let mut done = 0;
        for block in self.blocks.iter_mut().rev() {
            let count = block.length().min(into.len() - done);
            into[done..done + count].copy_from_slice(&block.bytes()[..count]);
            block.skip(count);
            done += count;
        }
        self.used += done;
        done
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.length == 0 {
            return;
        }
        let makes_writable = {
            let mut state = self.pipe.state.lock();
            let makes_writable = self.used > 0 && state.room() < PIPE_BUFFER_BYTES;
            state.reserved -= self.length;
            for block in self.blocks.drain(..) {
                state.queue.put_back(block);
            }
            makes_writable
        };
        if self.used < self.length {
            // Another reader may have found nothing meanwhile.
            self.pipe.tell(Readiness::READ);
        }
        if makes_writable {
            self.pipe.waiters.notify(Readiness::WRITE);
        }
    }
}
