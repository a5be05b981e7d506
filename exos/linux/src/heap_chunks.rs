//! What exos's heap is made of: the chunks of frames that it took, and the holes where they went back to the kernel.
//!
//! The heap grows at its end, by large pages or by pieces where memory is scarce; each is one capability, a *chunk*.
//! Memory goes back in *blocks* of a large page, all chunks of one together. Blocks that went back one beside the other
//! are a *hole*: addresses that belong to nobody until a hole's last block is filled again, with frames behind the same
//! capabilities.
//!
//! Limits: [`CHUNK_COUNT_MAX`] chunks are known, what is beyond never goes back; [`HOLE_COUNT_MAX`] holes, then no more
//! is given. Neighbour: `exos/linux/src/glue/heap.rs`, which locks it and knows what is free.

use aegis_abi::CapSlot;
use aegis_abi::layout::LARGE_PAGE_SIZE;

/// Bytes of a large page's pieces.
pub const PIECE_BYTES: u64 = 128 << 10;
/// Chunks that are known: 2 GiB in large pages.
pub const CHUNK_COUNT_MAX: usize = 1024;
/// Most holes.
pub const HOLE_COUNT_MAX: usize = 64;
/// Most chunks of a block.
pub const BLOCK_CHUNK_COUNT_MAX: usize = BLOCK_PIECES as usize;

const BLOCK_PIECES: u32 = (LARGE_PAGE_SIZE / PIECE_BYTES) as u32;

/// Frames of one capability, bound one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    piece: u32,
    /// Where its capability is, or was.
    pub slot: CapSlot,
    /// A whole block, bound as one large page.
    pub is_large: bool,
}

/// Blocks that the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The first, counted from the heap's beginning.
    pub first: u32,
    /// How many: at least one.
    pub count: u32,
}

/// The chunks and the holes.
pub struct Chunks {
    /// Ascending, `count` of them.
    list: [Chunk; CHUNK_COUNT_MAX],
    count: usize,
    holes: [Hole; HOLE_COUNT_MAX],
    hole_count: usize,
}

impl Chunk {
    const NONE: Self = Self { piece: 0, slot: CapSlot(0), is_large: false };

    /// Bytes from the heap's beginning.
    #[must_use]
    pub fn offset_bytes(&self) -> u64 {
        u64::from(self.piece) * PIECE_BYTES
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        if self.is_large { LARGE_PAGE_SIZE } else { PIECE_BYTES }
    }
}

impl Chunks {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        let (list, holes) = ([Chunk::NONE; CHUNK_COUNT_MAX], [Hole { first: 0, count: 0 }; HOLE_COUNT_MAX]);
        Self { list, count: 0, holes, hole_count: 0 }
    }

    /// Notes a chunk that was bound behind all others.
    pub fn add(&mut self, offset_bytes: u64, is_large: bool, slot: CapSlot) {
        if let Some(place) = self.list.get_mut(self.count) {
            *place = Chunk { piece: (offset_bytes / PIECE_BYTES) as u32, slot, is_large };
            self.count += 1;
        }
    }

    /// The chunks of a block, ascending; none if not all of it is of known ones.
    #[must_use]
    pub fn of_block(&self, block: u32) -> &[Chunk] {
        let known = self.list.get(..self.count).unwrap_or_default();
        let place = |piece: u32| known.partition_point(|chunk| chunk.piece < piece);
        let first = block.saturating_mul(BLOCK_PIECES);
        let found = known.get(place(first)..place(first.saturating_add(BLOCK_PIECES))).unwrap_or_default();
        let bytes: u64 = found.iter().map(Chunk::bytes).sum();
        if bytes == LARGE_PAGE_SIZE { found } else { &[] }
    }

    /// Whether one more hole can be noted.
    #[must_use]
    pub fn has_room_for_hole(&self) -> bool {
        self.hole_count < HOLE_COUNT_MAX
    }

    /// Notes a hole, if there is room for it.
    pub fn add_hole(&mut self, hole: Hole) {
        if let Some(place) = self.holes.get_mut(self.hole_count) {
            *place = hole;
            self.hole_count += 1;
        }
    }

    /// The hole that is filled next: its last block.
    #[must_use]
    pub fn last_hole(&self) -> Option<Hole> {
        self.holes.get(self.hole_count.checked_sub(1)?).copied()
    }

    /// The last block of [`Self::last_hole`] was filled.
    pub fn note_filled(&mut self) {
        if let Some(index) = self.hole_count.checked_sub(1)
            && let Some(hole) = self.holes.get_mut(index)
        {
            hole.count -= 1;
            self.hole_count -= usize::from(hole.count == 0);
        }
    }
}

impl Default for Chunks {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_COUNT_MAX, Chunks, HOLE_COUNT_MAX, Hole, PIECE_BYTES};
    use aegis_abi::CapSlot;
    use aegis_abi::layout::LARGE_PAGE_SIZE;

    /// Two large blocks, one of pieces, and a piece of the next.
    fn some() -> Chunks {
        let mut chunks = Chunks::new();
        chunks.add(0, true, CapSlot(100));
        chunks.add(LARGE_PAGE_SIZE, true, CapSlot(99));
        for piece in 0..17 {
            chunks.add(2 * LARGE_PAGE_SIZE + piece * PIECE_BYTES, false, CapSlot(98 - piece as u32));
        }
        chunks
    }

    #[test]
    fn a_block_is_its_chunks_if_all_are_there() {
        let chunks = some();
        let slots = |block| chunks.of_block(block).iter().map(|chunk| chunk.slot.0).collect::<Vec<_>>();
        assert_eq!((slots(0), slots(1)), (vec![100], vec![99]));
        assert_eq!(slots(2), (83..=98).rev().collect::<Vec<_>>());
        assert!(chunks.of_block(2).iter().all(|chunk| chunk.bytes() == PIECE_BYTES));
        assert_eq!(chunks.of_block(2)[1].offset_bytes(), 2 * LARGE_PAGE_SIZE + PIECE_BYTES);
        assert!(slots(3).is_empty(), "it is not full");
        assert!(slots(4).is_empty() && slots(u32::MAX).is_empty(), "nothing is there");
    }

    #[test]
    fn what_is_beyond_the_limit_is_not_known() {
        let mut chunks = Chunks::new();
        for block in 0..CHUNK_COUNT_MAX as u64 + 2 {
            chunks.add(block * LARGE_PAGE_SIZE, true, CapSlot(7));
        }
        assert_eq!(chunks.of_block(CHUNK_COUNT_MAX as u32 - 1).len(), 1);
        assert!(chunks.of_block(CHUNK_COUNT_MAX as u32).is_empty());
    }

    #[test]
    fn holes_are_filled_from_their_ends_the_latest_first() {
        let mut chunks = some();
        assert_eq!(chunks.last_hole(), None);
        chunks.note_filled();
        chunks.add_hole(Hole { first: 1, count: 2 });
        chunks.add_hole(Hole { first: 9, count: 1 });
        assert_eq!(chunks.last_hole(), Some(Hole { first: 9, count: 1 }));
        chunks.note_filled();
        assert_eq!(chunks.last_hole(), Some(Hole { first: 1, count: 2 }));
        chunks.note_filled();
        assert_eq!(chunks.last_hole(), Some(Hole { first: 1, count: 1 }));
        chunks.note_filled();
        assert_eq!(chunks.last_hole(), None);
        for first in 0..HOLE_COUNT_MAX as u32 {
            assert!(chunks.has_room_for_hole());
            chunks.add_hole(Hole { first, count: 1 });
        }
        assert!(!chunks.has_room_for_hole());
    }
}
