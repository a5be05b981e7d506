//! Bytes in a circle: what a stream socket keeps between a writer and a reader.
//!
//! A plain structure; code that shares it locks it. It grows when told to and never shrinks, and it never decides how
//! much it may hold: its owner's limit does, and counts room before it pushes.

use alloc::vec::Vec;

use crate::error::Result;
use crate::reserve;

/// Smallest memory that [`Ring::reserve`] takes.
const CAPACITY_BYTES_MIN: usize = 4096;

/// Bytes in a circle.
#[derive(Default)]
pub struct Ring {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Ring {
    /// Bytes in the ring.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Bytes that there is memory for.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Takes memory for `capacity` bytes at least, keeping what is inside.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn resize(&mut self, capacity: usize) -> Result<()> {
        if capacity <= self.bytes.len() {
            return Ok(());
        }
        let mut bytes = reserve::vector(capacity)?;
        bytes.resize(capacity, 0);
        let length = self.length;
        self.pop(&mut bytes[..length]);
        *self = Self { bytes, start: 0, length };
        Ok(())
    }

    /// Takes memory for `count` more bytes, by doubling.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn reserve(&mut self, count: usize) -> Result<()> {
        let needed = self.length + count;
        if needed <= self.bytes.len() {
            return Ok(());
        }
        self.resize(needed.next_power_of_two().max(CAPACITY_BYTES_MIN))
    }

    /// Appends bytes; there is room.
    pub fn push(&mut self, from: &[u8]) {
        let capacity = self.bytes.len();
        let at = (self.start + self.length) % capacity.max(1);
        let head = from.len().min(capacity - at);
        self.bytes[at..at + head].copy_from_slice(&from[..head]);
        self.bytes[..from.len() - head].copy_from_slice(&from[head..]);
        self.length += from.len();
    }

    /// Appends `count` bytes that `fill` puts into their place; there is room. False if they do not lie in a row there,
    /// or if `fill` says so: then nothing has been appended.
    pub fn push_with(&mut self, count: usize, fill: impl FnOnce(&mut [u8]) -> bool) -> bool {
        let capacity = self.bytes.len();
        let end = self.start + self.length;
        let at = if end >= capacity { end - capacity } else { end };
        let is_done = self.bytes.get_mut(at..at + count).is_some_and(fill);
        if is_done {
            self.length += count;
        }
        is_done
    }

    /// Bytes that lie in a row from the first one on.
    #[inline]
    pub fn front_length(&self) -> usize {
        self.length.min(self.bytes.len() - self.start)
    }

    /// Bytes that there is room for in a row behind the last one.
    #[inline]
    pub fn back_room(&self) -> usize {
        let end = self.start + self.length;
        if end < self.bytes.len() { self.bytes.len() - end } else { self.bytes.len() - self.length }
    }

    /// Shows the first `count` bytes, if they are there and lie in a row.
    pub fn front(&self, count: usize) -> Option<&[u8]> {
        if count > self.length {
            return None;
        }
        self.bytes.get(self.start..self.start + count)
    }

    /// Drops the first `count` bytes; there are as many.
    pub fn skip(&mut self, count: usize) {
        self.length -= count;
        let start = self.start + count;
        self.start = if self.length == 0 || start == self.bytes.len() { 0 } else { start % self.bytes.len() };
    }

    /// Copies bytes that lie `offset` behind the front; there are as many.
    pub fn peek(&self, offset: usize, into: &mut [u8]) {
        let capacity = self.bytes.len();
        let at = (self.start + offset) % capacity.max(1);
        let head = into.len().min(capacity - at);
        let tail = into.len() - head;
        into[..head].copy_from_slice(&self.bytes[at..at + head]);
        into[head..].copy_from_slice(&self.bytes[..tail]);
    }

    /// Takes bytes from the front; there are as many.
    pub fn pop(&mut self, into: &mut [u8]) {
        self.peek(0, into);
        self.length -= into.len();
        self.start = if self.length == 0 { 0 } else { (self.start + into.len()) % self.bytes.len() };
    }

    /// Gives the last popped bytes back to the front; there is room.
    pub fn unpop(&mut self, from: &[u8]) {
        let capacity = self.bytes.len();
        self.start = (self.start + capacity - from.len()) % capacity.max(1);
        self.length += from.len();
        let head = from.len().min(capacity - self.start);
        self.bytes[self.start..self.start + head].copy_from_slice(&from[..head]);
        self.bytes[..from.len() - head].copy_from_slice(&from[head..]);
    }
}
