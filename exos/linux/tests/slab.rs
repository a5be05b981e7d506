//! The slabs of exos's heap against a model: objects never overlap, keep what is written into them, and every slab goes
//! back when the last of its objects does.

#![allow(unsafe_code, reason = "allocates and writes the blocks that slabs are made of")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;

use exos_linux::spare_blocks::SizeClass;
use proptest::collection::vec;
use proptest::prelude::*;
use slab::{SLAB_ALIGNMENT, Slabs, least_slab_layout};

#[path = "../src/glue/slab.rs"]
mod slab;

/// Blocks that slabs were made of, and objects that are used, by address.
#[derive(Default)]
struct Model {
    blocks: BTreeMap<usize, Layout>,
    objects: Vec<(NonNull<u8>, usize, u8)>,
}

impl Model {
    fn take(&mut self, slabs: &mut Slabs, bytes: usize, is_short: bool, pattern: u8) {
        let class = SizeClass::of(Layout::from_size_align(bytes, 16).unwrap()).unwrap();
        let object = slabs.take(class).unwrap_or_else(|| {
            let layout = if is_short { least_slab_layout(class) } else { slabs.next_layout(class) };
            assert_eq!(layout.align(), SLAB_ALIGNMENT);
            // SAFETY: the layout is not empty.
            let block = NonNull::new(unsafe { alloc(layout) }).unwrap();
            self.blocks.insert(block.as_ptr() as usize, layout);
            // SAFETY: the block was just allocated with the layout.
            unsafe { slabs.add(class, block, layout.size()) };
            slabs.take(class).expect("a slab has an object")
        });
        let start = object.as_ptr() as usize;
        assert!(start.is_multiple_of(16));
        let (block, layout) = self.blocks.range(..=start).next_back().expect("it lies in a block");
        assert!(start + bytes <= block + layout.size(), "an object ends within its slab");
        // SAFETY: it lies in a block that is allocated.
        unsafe { object.write_bytes(pattern, bytes) };
        self.objects.push((object, bytes, pattern));
    }

    fn give(&mut self, slabs: &mut Slabs, choice: usize) {
        if self.objects.is_empty() {
            return;
        }
        let (object, bytes, pattern) = self.objects.swap_remove(choice % self.objects.len());
        // SAFETY: the object is used and was written.
        let found = unsafe { std::slice::from_raw_parts(object.as_ptr(), bytes) };
        assert!(found.iter().all(|byte| *byte == pattern), "somebody else wrote into an object");
        // SAFETY: it came from `take`, and is forgotten.
        let Some(block) = (unsafe { slabs.give(object) }) else { return };
        let layout = self.blocks.remove(&(block.as_ptr() as usize)).expect("it was a block");
        let (start, end) = (block.as_ptr() as usize, block.as_ptr() as usize + layout.size());
        let is_within = |object: NonNull<u8>| (start..end).contains(&(object.as_ptr() as usize));
        assert!(self.objects.iter().all(|(object, ..)| !is_within(*object)), "an object of it is used");
        // SAFETY: it was allocated with the layout, and nobody uses it.
        unsafe { dealloc(block.as_ptr(), layout) };
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take(usize, bool),
    Give(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1_usize..=1008, prop::bool::weighted(0.2)).prop_map(|(bytes, is_short)| Step::Take(bytes, is_short)),
        2 => (1_usize..=64).prop_map(|bytes| Step::Take(bytes, false)),
        4 => any::<usize>().prop_map(Step::Give),
    ]
}

proptest! {
    #[test]
    fn objects_keep_what_is_theirs_and_slabs_go_back(steps in vec(step(), 0..600)) {
        let (mut slabs, mut model) = (Slabs::new(), Model::default());
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Take(bytes, is_short) => model.take(&mut slabs, *bytes, *is_short, number as u8),
                Step::Give(choice) => model.give(&mut slabs, *choice),
            }
        }
        while !model.objects.is_empty() {
            model.give(&mut slabs, 0);
        }
        prop_assert!(model.blocks.is_empty(), "a slab without objects was kept");
    }
}

#[test]
fn slabs_of_a_class_grow_up_to_a_limit() {
    for (bytes, most) in [(16, 30), (112, 7), (304, 3), (1008, 3)] {
        let class = SizeClass::of(Layout::from_size_align(bytes, 8).unwrap()).unwrap();
        let (mut slabs, mut blocks, mut counts) = (Slabs::new(), Vec::new(), Vec::new());
        for _ in 0..10 {
            let layout = slabs.next_layout(class);
            // SAFETY: the layout is not empty.
            let block = NonNull::new(unsafe { alloc(layout) }).unwrap();
            // SAFETY: the block was just allocated with the layout.
            unsafe { slabs.add(class, block, layout.size()) };
            blocks.push((block, layout));
            counts.push(std::iter::from_fn(|| slabs.take(class)).count());
        }
        let expected: Vec<usize> = (0..10).map(|number| most.min(2 << number)).collect();
        assert_eq!(counts, expected, "objects of {bytes} bytes");
        for (block, layout) in blocks {
            // SAFETY: it was allocated with the layout, and nothing of it is used any more.
            unsafe { dealloc(block.as_ptr(), layout) };
        }
    }
}
