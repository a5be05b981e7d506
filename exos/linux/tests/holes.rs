//! Holes of exos's heap against the allocator that they are blocks of: whatever is allocated, freed and filled again,
//! not a byte of a hole is written, and nothing that is allocated lies in one. And lengths of blocks: what is freed is
//! found again.

#![allow(unsafe_code, reason = "allocates from memory, parts of which are holes, and looks at it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

use aegis_abi::layout::LARGE_PAGE_SIZE;
use classes::{Tlsf, take};
use holes::{cut, shorten};
use proptest::collection::vec;
use proptest::prelude::*;

#[path = "../src/glue/heap/classes.rs"]
mod classes;
#[path = "../src/glue/heap/holes.rs"]
mod holes;

const PAGE: usize = LARGE_PAGE_SIZE as usize;
const PAGE_COUNT: usize = 12;
/// What a hole is full of.
const MARK: u64 = 0x5eed_face_0dd5_ca1e;

/// Memory of its own, freed at the end.
struct Memory(NonNull<u8>);

impl Memory {
    fn layout() -> Layout {
        Layout::from_size_align(PAGE_COUNT * PAGE, PAGE).unwrap()
    }

    fn new() -> Self {
        // SAFETY: the layout is not empty.
        Self(NonNull::new(unsafe { alloc(Self::layout()) }).unwrap())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and what was made of it is gone.
        unsafe { dealloc(self.0.as_ptr(), Self::layout()) }
    }
}

/// The words of a large page, which is part of a hole.
fn words<'a>(start: NonNull<u8>, page: usize) -> &'a mut [u64] {
    // SAFETY: a hole's pages are nobody's, and a word's alignment is less than theirs.
    unsafe { std::slice::from_raw_parts_mut(start.as_ptr().add(page * PAGE).cast(), PAGE / 8) }
}

#[derive(Clone, Debug)]
enum Step {
    Take(usize),
    Free(usize),
    Cut(u32),
    Fill,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_usize..3 * PAGE / 2).prop_map(Step::Take),
        4 => (1_usize..2000).prop_map(Step::Take),
        6 => any::<usize>().prop_map(Step::Free),
        3 => (0_u32..4).prop_map(Step::Cut),
        2 => Just(Step::Fill),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn nothing_of_a_hole_is_touched(steps in vec(step(), 1..60)) {
        let memory = Memory::new();
        let mut tlsf = Tlsf::new();
        // SAFETY: the memory is the allocator's alone and outlives it.
        unsafe { tlsf.insert_free_block_ptr(NonNull::slice_from_raw_parts(memory.0, PAGE_COUNT * PAGE)) }.unwrap();
        let mut blocks: Vec<(NonNull<u8>, usize)> = Vec::new();
        let mut holes: Vec<(NonNull<u8>, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Take(bytes) => {
                    if let Some(block) = take(&mut tlsf, Layout::from_size_align(bytes, 16).unwrap()) {
                        // SAFETY: the block was just allocated with so many bytes.
                        unsafe { block.as_ptr().write_bytes(0xa5, bytes) };
                        blocks.push((block, bytes));
                    }
                }
                Step::Free(index) if !blocks.is_empty() => {
                    let (block, _) = blocks.swap_remove(index % blocks.len());
                    // SAFETY: it was allocated with this alignment and is freed once.
                    unsafe { tlsf.deallocate(block, 16) };
                }
                Step::Free(_) => {}
                Step::Cut(most_log2) => {
                    if let Some((start, count)) = cut(&mut tlsf, most_log2) {
                        prop_assert!((start.as_ptr() as usize).is_multiple_of(PAGE) && count <= 1 << most_log2);
                        (0..count as usize).for_each(|page| words(start, page).fill(MARK));
                        holes.push((start, count));
                    }
                }
                Step::Fill => {
                    if let Some((start, count)) = holes.pop() {
                        prop_assert!(words(start, count as usize - 1).iter().all(|word| *word == MARK));
                        // SAFETY: the hole has one page more, and all of this memory is bound.
                        unsafe { shorten(&mut tlsf, start, count - 1) };
                        if count > 1 {
                            holes.push((start, count - 1));
                        }
                    }
                }
            }
            for (start, count) in &holes {
                let hole = start.as_ptr() as usize..start.as_ptr() as usize + *count as usize * PAGE;
                let is_apart = |(block, bytes): &(NonNull<u8>, usize)| {
                    let block = block.as_ptr() as usize;
                    block + bytes <= hole.start || hole.end <= block
                };
                prop_assert!(blocks.iter().all(is_apart));
                for page in 0..*count as usize {
                    let (first, last) = (words(*start, page)[0], words(*start, page)[PAGE / 8 - 1]);
                    prop_assert!(first == MARK && last == MARK);
                }
            }
        }
        for (start, count) in holes {
            for page in 0..count as usize {
                prop_assert!(words(start, page).iter().all(|word| *word == MARK));
            }
        }
    }
}

proptest! {
    #[test]
    fn a_long_block_that_was_freed_is_found_by_the_next_request(bytes in PAGE / 32..PAGE) {
        let memory = Memory::new();
        let mut tlsf = Tlsf::new();
        let layout = Layout::from_size_align(bytes, 16).unwrap();
        // SAFETY: the memory is the allocator's alone and outlives it.
        unsafe { tlsf.insert_free_block_ptr(NonNull::slice_from_raw_parts(memory.0, PAGE_COUNT * PAGE)) }.unwrap();
        // Something is in use on both of its sides, so that it is no part of a longer one.
        let neighbour = Layout::new::<[u64; 4]>();
        let _ = tlsf.allocate(neighbour).unwrap();
        let block = take(&mut tlsf, layout).unwrap();
        let _ = tlsf.allocate(neighbour).unwrap();
        while take(&mut tlsf, layout).is_some() {}
        // SAFETY: it was allocated with this alignment, and nobody uses it.
        unsafe { tlsf.deallocate(block, 16) };
        prop_assert_eq!(take(&mut tlsf, layout), Some(block));
    }
}

/// Queues of bytes that grow by doubling, as those of sockets do, with a small block between, for ever: nine tenths of
/// the memory is theirs.
#[test]
fn blocks_that_grow_by_doubling_leave_little_behind() {
    const LAST: usize = 256 << 10;
    for small_layout in [Layout::new::<[u64; 8]>(), Layout::new::<[u64; 126]>()] {
        let memory = Memory::new();
        let mut tlsf = Tlsf::new();
        // SAFETY: the memory is the allocator's alone and outlives it.
        unsafe { tlsf.insert_free_block_ptr(NonNull::slice_from_raw_parts(memory.0, PAGE_COUNT * PAGE)) }.unwrap();
        let mut grow = || {
            let mut last: Option<NonNull<u8>> = None;
            for bytes in [LAST / 4, LAST / 2, LAST] {
                let block = take(&mut tlsf, Layout::from_size_align(bytes, 16).unwrap())?;
                if let Some(shorter) = last.replace(block) {
                    // SAFETY: it was allocated with this alignment, and nobody uses it.
                    unsafe { tlsf.deallocate(shorter, 16) };
                }
                let _ = tlsf.allocate(small_layout)?;
            }
            last
        };
        let count = std::iter::from_fn(&mut grow).count();
        assert!(count * LAST >= PAGE_COUNT * PAGE * 9 / 10, "{count}");
    }
}
