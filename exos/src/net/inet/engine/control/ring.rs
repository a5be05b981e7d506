//! Bytes of one direction of a connection: a ring whose memory grows with what it holds.
//!
//! What is sent waits here until it is acknowledged; what came in, until it is read. Bytes that came before others are
//! put where they belong behind a gap ([`Ring::put`]), so they are copied once. A ring without bytes can give its
//! memory back. Invariant: `length <= bytes.len()`, and `start < bytes.len()` unless there is no memory.

use alloc::vec::Vec;

use crate::error::Result;
use crate::reserve;

/// Memory of a ring at least.
const BYTES_MIN: usize = 1024;

/// A ring.
#[derive(Default)]
pub(super) struct Ring {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Ring {
    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn has_memory(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Makes room for `byte_count` bytes from the front on, of at most `most` that are ever wanted.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn reserve(&mut self, byte_count: usize, most: usize) -> Result<()> {
        let had = self.bytes.len();
        if byte_count <= had {
            return Ok(());
        }
        let wanted = byte_count.max((had * 2).min(most)).max(BYTES_MIN.min(most));
        let mut bytes = reserve::vector(wanted)?;
        bytes.extend_from_slice(&self.bytes[self.start..]);
        bytes.extend_from_slice(&self.bytes[..self.start]);
        bytes.resize(wanted, 0);
        (self.bytes, self.start) = (bytes, 0);
        Ok(())
    }

    /// Where the byte `offset` behind the front lies.
    fn index(&self, offset: usize) -> usize {
        let index = self.start + offset;
        if index >= self.bytes.len() { index - self.bytes.len() } else { index }
    }

    /// Free memory behind the bytes, as far as it lies in a row.
    pub(super) fn room(&mut self) -> &mut [u8] {
        let free = self.bytes.len() - self.length;
        if free == 0 {
            return &mut [];
        }
        let from = self.index(self.length);
        let count = free.min(self.bytes.len() - from);
        &mut self.bytes[from..from + count]
    }

    /// Writes bytes `offset` behind the front, where there is memory for them.
    pub(super) fn put(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let from = self.index(offset);
        let count = bytes.len().min(self.bytes.len() - from);
        self.bytes[from..from + count].copy_from_slice(&bytes[..count]);
        self.bytes[..bytes.len() - count].copy_from_slice(&bytes[count..]);
    }

    /// `byte_count` more bytes behind the last are there.
    pub(super) fn extend(&mut self, byte_count: usize) {
        self.length = (self.length + byte_count).min(self.bytes.len());
    }

    /// The bytes from `offset` on, at most `most`, in the two pieces in which they lie.
    pub(super) fn pieces(&self, offset: usize, most: usize) -> [&[u8]; 2] {
        let count = most.min(self.length.saturating_sub(offset));
        if count == 0 {
            return [&[], &[]];
        }
        let from = self.index(offset);
        let first = count.min(self.bytes.len() - from);
        [&self.bytes[from..from + first], &self.bytes[..count - first]]
    }

    /// Takes bytes away from the front.
    pub(super) fn consume(&mut self, byte_count: usize) {
        let count = byte_count.min(self.length);
        (self.start, self.length) = (if count == 0 { self.start } else { self.index(count) }, self.length - count);
    }

    /// Gives its memory back if it holds nothing.
    pub(super) fn release(&mut self) {
        if self.length == 0 {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::Ring;

    #[derive(Clone, Debug)]
    enum Step {
        Fill(Vec<u8>),
        Ahead(usize, Vec<u8>),
        Take(usize),
        Release,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..6000);
        prop_oneof![
            bytes().prop_map(Step::Fill),
            (0usize..3000, bytes()).prop_map(|(gap, bytes)| Step::Ahead(gap, bytes)),
            (0usize..9000).prop_map(Step::Take),
            Just(Step::Release),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_queue(steps in prop::collection::vec(any_step(), 1..40)) {
            const MOST: usize = 40_000;
            let (mut ring, mut model) = (Ring::default(), VecDeque::new());
            for step in steps {
                match step {
                    Step::Fill(bytes) => {
                        let fits = bytes.len().min(MOST - model.len());
                        ring.reserve(model.len() + fits, MOST).unwrap();
                        let mut left = &bytes[..fits];
                        while !left.is_empty() {
                            let room = ring.room();
                            let count = room.len().min(left.len());
                            room[..count].copy_from_slice(&left[..count]);
                            ring.extend(count);
                            left = &left[count..];
                        }
                        model.extend(&bytes[..fits]);
                    }
                    Step::Ahead(gap, bytes) if model.len() + gap + bytes.len() <= MOST => {
                        ring.reserve(model.len() + gap + bytes.len(), MOST).unwrap();
                        ring.put(model.len() + gap, &bytes);
                        ring.put(model.len(), &alloc::vec![0; gap]);
                        ring.extend(gap + bytes.len());
                        model.extend(core::iter::repeat_n(0, gap));
                        model.extend(&bytes);
                    }
                    Step::Ahead(..) => {}
                    Step::Take(count) => {
                        ring.consume(count);
                        model.drain(..count.min(model.len()));
                    }
                    Step::Release => ring.release(),
                }
                prop_assert_eq!(ring.length(), model.len());
                let [first, second] = ring.pieces(0, usize::MAX);
                prop_assert!(first.iter().chain(second).eq(model.iter()));
                let [first, second] = ring.pieces(7, 100);
                prop_assert!(first.iter().chain(second).eq(model.iter().skip(7).take(100)));
            }
        }
    }
}
