//! Bytes that wait in blocks of a page each: what a pipe keeps between its writers and its readers.
//!
//! A block moves as a whole. A writer fills one that is nobody else's and puts it in; a reader takes one out and
//! empties it. Neither needs the queue meanwhile, so bytes are copied once on each side though a program's memory is
//! never touched under a lock (INV-F1). What fits behind the last bytes is copied there, so small writes share a block.
//!
//! Invariants: two neighbours' bytes never fit into one block when they are put in, so the blocks hold at least half of
//! what they could, but for the first and the last. A block without bytes stays in the row only if it is the only one,
//! for the next bytes that are appended. Other emptied blocks wait for the next writer, at most [`SPARE_COUNT_MAX`] of
//! them. A plain structure; code that shares it locks it and limits it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::transfer::{Destination, Source};
use crate::error::Result;
use crate::reserve;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;
/// Most empty blocks that are kept: as many as a new pipe fills.
pub const SPARE_COUNT_MAX: usize = 16;

/// A page of memory and the bytes in it.
pub struct Block {
    /// [`BLOCK_BYTES`] of them.
    memory: Vec<u8>,
    start: usize,
    end: usize,
}

impl Block {
    fn new() -> Result<Self> {
        let mut memory = reserve::vector(BLOCK_BYTES)?;
        memory.resize(BLOCK_BYTES, 0);
        Ok(Self { memory, start: 0, end: 0 })
    }

    /// Bytes that were not taken yet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Number of bytes.
    pub fn length(&self) -> usize {
        self.end - self.start
    }

    /// Replaces the bytes: `fill` gets room for `count` (at most [`BLOCK_BYTES`]) and says how many it put there.
    pub fn fill(&mut self, count: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> usize {
        (self.start, self.end) = (0, fill(&mut self.memory[..count]).min(count));
        self.end
    }

    /// Forgets the first `count` bytes.
    pub fn skip(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Appends bytes if there is room behind those that are there.
    fn append(&mut self, bytes: &[u8]) -> bool {
        let Some(room) = self.memory.get_mut(self.end..self.end + bytes.len()) else { return false };
        room.copy_from_slice(bytes);
        self.end += bytes.len();
        true
    }
}

/// Blocks in a row.
#[derive(Default)]
pub struct BlockQueue {
    blocks: VecDeque<Block>,
    length: usize,
    spare: Vec<Block>,
}

impl BlockQueue {
    /// Number of bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// A block to be filled.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn empty_block(&mut self) -> Result<Block> {
        self.spare.pop().map_or_else(Block::new, Ok)
    }

    /// Takes back a block that is not needed.
    pub fn give_back(&mut self, block: Block) {
        if self.spare.len() < SPARE_COUNT_MAX {
            self.spare.push(block);
        }
    }

    /// Puts the bytes of a block behind all others.
    pub fn put(&mut self, block: Block) {
        self.drop_empty();
        self.length += block.length();
        let is_gathered = self.blocks.back_mut().is_some_and(|last| last.append(block.bytes()));
        if is_gathered || block.length() == 0 {
            self.give_back(block);
        } else {
            self.blocks.push_back(block);
        }
    }

    /// Takes the first bytes out, at most `limit` of them and as many as lie in one block.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn take(&mut self, limit: usize) -> Result<Block> {
        self.drop_empty();
        let block = match self.blocks.pop_front() {
            None => self.empty_block()?,
            Some(first) if first.length() <= limit => first,
            Some(mut first) => {
                let part = self.empty_block().map(|mut part| {
                    part.fill(limit, |room| {
                        room.copy_from_slice(&first.bytes()[..limit]);
                        limit
                    });
                    first.skip(limit);
                    part
                });
                self.blocks.push_front(first);
                part?
            }
        };
        self.length -= block.length();
        Ok(block)
    }

    /// Puts `count` bytes (at most [`BLOCK_BYTES`]) of `source` behind all others; false: it gave them not at once, and
    /// nothing has changed.
    ///
    /// # Errors
    /// `ENOMEM`.
    #[inline(always)]
    pub fn append(&mut self, count: usize, source: &mut (impl Source + ?Sized)) -> Result<bool> {
        let has_room = |last: &Block| last.memory.len() - last.end >= count;
        if !self.blocks.back().is_some_and(has_room) {
            self.add_block()?;
        }
        let Some(last) = self.blocks.back_mut() else { return Ok(false) };
        let Some(room) = last.memory.get_mut(last.end..last.end + count) else { return Ok(false) };
        if !source.take_nofault(room) {
            self.drop_last_if_empty();
            return Ok(false);
        }
        last.end += count;
        self.length += count;
        Ok(true)
    }

    /// Puts an empty block behind all others.
    #[inline(never)]
    fn add_block(&mut self) -> Result<()> {
        let mut block = self.empty_block()?;
        (block.start, block.end) = (0, 0);
        self.blocks.push_back(block);
        Ok(())
    }

    /// Takes the last block out of the row if nothing is in it.
    #[cold]
    fn drop_last_if_empty(&mut self) {
        if let Some(block) = self.blocks.pop_back_if(|block| block.length() == 0) {
            self.give_back(block);
        }
    }

    /// Takes the block without bytes out of the row, if there is one.
    fn drop_empty(&mut self) {
        if self.length == 0
            && let Some(block) = self.blocks.pop_front()
        {
            self.give_back(block);
        }
    }

    /// Takes the first bytes out, as many as are wanted, if what is wanted and there lies in one block: how many.
    /// `destination` gets them, and has to take all at once. `None`: it did not, or they do not; nothing has changed
    /// then.
    #[inline(always)]
    pub fn take_first(&mut self, destination: &mut (impl Destination + ?Sized)) -> Option<usize> {
        let limit = destination.remaining();
        let is_alone = self.blocks.len() == 1;
        let first = self.blocks.front_mut()?;
        let bytes = first.bytes();
        let count = bytes.len().min(limit);
        if count < limit && !is_alone || !destination.put_nofault(&bytes[..count]) {
            return None;
        }
        first.start += count;
        self.length -= count;
        if first.start == first.end {
            if is_alone {
                (first.start, first.end) = (0, 0);
            } else {
                self.drop_first();
            }
        }
        Some(count)
    }

    /// Takes the first block out of the row, of several.
    #[cold]
    fn drop_first(&mut self) {
        if let Some(block) = self.blocks.pop_front() {
            self.give_back(block);
        }
    }

    /// Puts what is left of the bytes that were taken last back to the front.
    pub fn put_back(&mut self, block: Block) {
        self.drop_empty();
        self.length += block.length();
        match block.length() {
            0 => self.give_back(block),
            _ => self.blocks.push_front(block),
        }
    }

    /// Copies the first bytes without taking them; how many there were.
    pub fn peek(&self, into: &mut [u8]) -> usize {
        let mut done = 0;
        for block in &self.blocks {
            let count = block.length().min(into.len() - done);
            into[done..done + count].copy_from_slice(&block.bytes()[..count]);
            done += count;
        }
        done
    }

    /// Forgets everything, and the memory.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Blocks that hold bytes.
    pub fn block_count(&self) -> usize {
        if self.length == 0 { 0 } else { self.blocks.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_BYTES, BlockQueue, SPARE_COUNT_MAX};
    use crate::fs::transfer::{Buffer, SliceDestination};
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    /// Appends as a writer that copies under a lock does.
    fn append(queue: &mut BlockQueue, bytes: &[u8]) {
        let length = queue.length();
        assert_eq!(queue.append(bytes.len(), &mut &bytes[1..]), Ok(false));
        assert_eq!(queue.length(), length);
        assert_eq!(queue.append(bytes.len(), &mut &*bytes), Ok(true));
    }

    fn put(queue: &mut BlockQueue, bytes: &[u8]) {
        let mut block = queue.empty_block().unwrap();
        assert_eq!(
            block.fill(bytes.len(), |room| {
                room.copy_from_slice(bytes);
                bytes.len()
            }),
            bytes.len()
        );
        queue.put(block);
    }

    #[test]
    fn a_whole_block_is_handed_on_and_its_memory_used_again() {
        let mut queue = BlockQueue::default();
        put(&mut queue, &[1; BLOCK_BYTES]);
        put(&mut queue, &[2; 10]);
        let first = queue.take(BLOCK_BYTES).unwrap();
        assert_eq!((first.bytes(), queue.length()), (&[1; BLOCK_BYTES][..], 10));
        let memory = first.bytes().as_ptr();
        queue.give_back(first);
        assert_eq!(queue.empty_block().unwrap().memory.as_ptr(), memory);
        for _ in 0..2 * SPARE_COUNT_MAX {
            let block = super::Block::new().unwrap();
            queue.give_back(block);
        }
        assert_eq!(queue.spare.len(), SPARE_COUNT_MAX);
    }

    proptest! {
        /// Against a queue of bytes, with the bound on memory.
        #[test]
        fn bytes_stay_in_order_and_blocks_are_half_full(
            steps in proptest::collection::vec((0_u8..5, 0_usize..=BLOCK_BYTES), 1..80),
        ) {
            let (mut queue, mut model, mut next) = (BlockQueue::default(), VecDeque::new(), 0_u8);
            for (kind, count) in steps {
                match kind {
                    0 | 3 => {
                        let bytes: Vec<u8> = (0..count).map(|_| { next = next.wrapping_add(1); next }).collect();
                        if kind == 0 {
                            put(&mut queue, &bytes);
                        } else if count > 0 {
                            append(&mut queue, &bytes);
                        }
                        model.extend(&bytes);
                    }
                    4 => {
                        prop_assert_eq!(queue.take_first(&mut Buffer::with_limit(count)), None);
                        let mut room = vec![0; count];
                        let done = queue.take_first(&mut SliceDestination::new(&mut room));
                        // All that is wanted and there, unless it lies in several blocks.
                        match done {
                            Some(done) => prop_assert_eq!(done, count.min(model.len())),
                            None => prop_assert!(queue.block_count() != 1),
                        }
                        let taken = &room[..done.unwrap_or(0)];
                        prop_assert!(taken.iter().copied().eq(model.drain(..taken.len())));
                    }
                    1 => {
                        let mut peeked = vec![0; count];
                        let there = queue.peek(&mut peeked);
                        prop_assert_eq!(there, count.min(model.len()));
                        prop_assert!(peeked[..there].iter().eq(model.iter().take(there)));
                    }
                    _ => {
                        let mut block = queue.take(count).unwrap();
                        prop_assert!(block.length() <= count);
                        prop_assert!(block.length() > 0 || count == 0 || model.is_empty());
                        // Half of it comes back, as from a reader that faulted.
                        let half = block.length() / 2;
                        prop_assert!(block.bytes()[..half].iter().eq(model.iter().take(half)));
                        block.skip(half);
                        model.drain(..half);
                        queue.put_back(block);
                    }
                }
                prop_assert_eq!(queue.length(), model.len());
            }
            while !model.is_empty() {
                let block = queue.take(BLOCK_BYTES).unwrap();
                prop_assert!(block.bytes().iter().copied().eq(model.drain(..block.length())));
            }
            prop_assert_eq!((queue.length(), queue.block_count()), (0, 0));
        }

        #[test]
        fn what_is_only_put_in_fills_its_blocks_by_half(
            lengths in proptest::collection::vec(1_usize..=BLOCK_BYTES, 1..80),
        ) {
            let mut queue = BlockQueue::default();
            for length in lengths {
                put(&mut queue, &vec![0; length]);
            }
            prop_assert!(queue.block_count() * BLOCK_BYTES <= 2 * queue.length() + BLOCK_BYTES);
        }
    }
}
