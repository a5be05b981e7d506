//! How memory of exos's heap goes back to the kernel, and comes again.
//!
//! What a pod had much of for a while (descriptors, names, threads) leaves free memory behind. Where there is much of
//! it, or where programs find no frames, whole blocks of it ([`exos_linux::heap_chunks`]) go back.
//!
//! A hole is a block of the TLSF allocator that is in use ([`holes`]), and no page of it is bound. When the heap has to
//! grow, a hole's last large page is bound again first and the hole made shorter by it. Several pages are in one hole,
//! as each hole keeps a page before it. Objects that are still in use keep the large page that they are in: exos's
//! objects do not move.

use aegis_abi::layout::{LARGE_PAGE_FRAMES, LARGE_PAGE_SIZE};
use aegis_abi::memory::BindEntry;
use aegis_abi::types::SLOT_SELF;
use core::ptr::NonNull;
use exos::reserve::{BLOCK_BYTES, LARGE_BYTES};
use exos_linux::heap_chunks::{Chunk, Hole};

use super::super::{HEAP_BASE, kernel};
use super::{GlobalHeap, Heap, bind_frames, holes};

/// With more free bytes than these, memory goes back though nobody wants it.
pub(super) const SURPLUS_BYTES: u64 = 12 << 20;
/// Free bytes that are kept then: less than the surplus, so that a heap which shrinks and grows by a large page does
/// not ask the kernel each time.
const KEPT_BYTES: u64 = 6 << 20;
/// The same where programs find no frames.
const SHORTAGE_KEPT_BYTES: u64 = 1 << 20;

/// Large pages that go at a time: each is some 10,000 instructions with the heap's lock held.
const BLOCK_COUNT_AT_ONCE: u64 = 8;

fn address_of(block: u32) -> u64 {
    HEAP_BASE + u64::from(block) * LARGE_PAGE_SIZE
}

impl GlobalHeap {
    /// Gives the kernel what is free in whole blocks, as programs find no frames. False: nothing is.
    pub(crate) fn give_free(&self) -> bool {
        let mut heap = self.heap.lock();
        heap.free_spare();
        heap.give_back(SHORTAGE_KEPT_BYTES) > 0
    }

    /// Gives the kernel some of what is free, if it is much. False: it is not, or is in use by parts. Asked by a
    /// processor that has nothing to do, so that what frees objects need not look.
    pub(crate) fn give_surplus(&self) -> bool {
        self.heap.try_lock().is_some_and(|mut heap| heap.give_surplus())
    }
}

impl Heap {
    /// Bytes that are bound and that nobody has; some of them are in slabs that are in use.
    fn free_bytes(&self) -> u64 {
        let reserve_bytes = self.reserve.iter().flatten().count() * BLOCK_BYTES;
        let large_bytes = if self.large.is_some() { LARGE_BYTES } else { 0 };
        let had = self.used_bytes + (reserve_bytes + large_bytes) as u64;
        (self.bound_bytes - self.given_bytes).saturating_sub(had)
    }

    fn give_surplus(&mut self) -> bool {
        if self.free_bytes() <= self.surplus_bytes {
            return false;
        }
        self.free_spare();
        let has_given = self.give_back(KEPT_BYTES) > 0;
        // What is in use by parts is looked at again when there is much more of it.
        self.surplus_bytes = if has_given { SURPLUS_BYTES } else { self.free_bytes() + LARGE_PAGE_SIZE };
        has_given
    }

    /// Gives some blocks back if more than `kept_bytes` are free; how many bytes went.
    fn give_back(&mut self, kept_bytes: u64) -> u64 {
        let most = self.free_bytes().saturating_sub(kept_bytes) / LARGE_PAGE_SIZE;
        let before = self.given_bytes;
        if let Some(most_log2) = most.min(BLOCK_COUNT_AT_ONCE).checked_ilog2()
            && self.chunks.has_room_for_hole()
            && let Some(hole) = self.cut_hole(most_log2)
        {
            self.unbind_hole(hole);
        }
        self.given_bytes - before
    }

    /// A free part of whole large pages, of at most 2^`most_log2`: a block in use now.
    fn cut_hole(&mut self, most_log2: u32) -> Option<Hole> {
        let (start, count) = holes::cut(&mut self.tlsf, most_log2)?;
        let first = (start.as_ptr() as u64 - HEAP_BASE) / LARGE_PAGE_SIZE;
        Some(Hole { first: first as u32, count: count as u32 })
    }

    /// Has the kernel have a hole's memory, and notes the hole. What does not go is free memory again.
    fn unbind_hole(&mut self, hole: Hole) {
        let gone = (hole.first..hole.first + hole.count).take_while(|block| self.unbind_block(*block)).count() as u32;
        self.given_bytes += u64::from(gone) * LARGE_PAGE_SIZE;
        if gone < hole.count {
            // SAFETY: the hole is a block that nobody uses, and its page number `gone` is bound.
            unsafe { self.shorten(hole, gone) };
        }
        if gone > 0 {
            self.chunks.add_hole(Hole { count: gone, ..hole });
        }
    }

    /// Unbinds a large page's block and gives its frames back. False: it is bound as before.
    fn unbind_block(&self, block: u32) -> bool {
        let chunks = self.chunks.of_block(block);
        let entry = BindEntry::unmap(address_of(block), LARGE_PAGE_FRAMES as u32);
        // SAFETY: the pages are of a block of the allocator that nobody uses, and no header lies in them.
        if chunks.is_empty() || unsafe { kernel::bind_all(SLOT_SELF, &[entry]) }.is_err() {
            return false;
        }
        // What the kernel does not take back stays with its capability, and the block cannot be filled again.
        chunks.iter().for_each(|chunk| kernel::free_kept_slot(chunk.slot));
        true
    }

    /// Binds the last large page of the hole that was made last, and gives it to the allocator. False: there is none,
    /// or no memory.
    pub(super) fn fill_hole(&mut self) -> bool {
        let Some(hole) = self.chunks.last_hole() else { return false };
        let owned_count = (self.bound_bytes - self.given_bytes + LARGE_PAGE_SIZE) / 4096;
        let left = hole.count - 1;
        if !kernel::may_own_more(owned_count, LARGE_PAGE_FRAMES) || !self.bind_block(hole.first + left) {
            return false;
        }
        self.given_bytes -= LARGE_PAGE_SIZE;
        self.chunks.note_filled();
        // SAFETY: the hole is a block that nobody uses, and its page number `left` has just been bound.
        unsafe { self.shorten(hole, left) };
        true
    }

    /// Takes frames for a block's chunks and binds them. False: none of it is bound.
    fn bind_block(&self, block: u32) -> bool {
        let chunks = self.chunks.of_block(block);
        let bind = |chunk: &&Chunk| {
            let take = |count, alignment_log2| kernel::take_frames_at(chunk.slot, count, alignment_log2);
            let give = |_| kernel::free_kept_slot(chunk.slot);
            bind_frames(HEAP_BASE + chunk.offset_bytes(), chunk.is_large, take, give).is_some()
        };
        let bound_count = chunks.iter().take_while(bind).count();
        if bound_count == chunks.len() && bound_count > 0 {
            return true;
        }
        let bound = chunks.iter().take(bound_count);
        let bytes: u64 = bound.clone().map(|chunk| chunk.bytes()).sum();
        if bytes > 0 {
            let undone = BindEntry::unmap(address_of(block), (bytes / 4096) as u32);
            // SAFETY: the pages are of a hole; nobody knows of them.
            let _ = unsafe { kernel::bind_all(SLOT_SELF, &[undone]) };
        }
        bound.for_each(|chunk| kernel::free_kept_slot(chunk.slot));
        false
    }

    /// Leaves `count` large pages of a hole, from its first on: the others are free memory.
    ///
    /// # Safety
    /// The hole is a block of the allocator that nobody uses, longer than that, and bound from its page number `count`
    /// on.
    unsafe fn shorten(&mut self, hole: Hole, count: u32) {
        if let Some(start) = NonNull::new(address_of(hole.first) as *mut u8) {
            // SAFETY: by the contract.
            unsafe { holes::shorten(&mut self.tlsf, start, u64::from(count)) };
        }
    }
}
