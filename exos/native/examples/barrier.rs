//! A write barrier by page protection, as generational collectors use it: the old generation is protected in one batch,
//! the first store to each page of it lands in a remembered set, and the next collection looks only there.
//!
//! Run it on Aegis: `./aegis run target/debug/examples/barrier`. On Linux it says that there is no native interface.
#![allow(unsafe_code, reason = "the heap is raw pages, and the handler is told of stores to them")]

use std::alloc::{Layout, alloc_zeroed};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use exos_native::abi::CHANGE_PROTECT;
use exos_native::call::{Change, apply, version};
use exos_native::fault::{Fault, Registers, handle_faults};

const PAGE_BYTES: usize = 4096;
const PAGE_COUNT: usize = 1000;
const READ: u32 = 1;
const READ_WRITE: u32 = 3;

static REMEMBERED: [AtomicBool; PAGE_COUNT] = [const { AtomicBool::new(false) }; PAGE_COUNT];

fn protect(address: usize, length: usize, protection: u32) {
    let change = Change { address, length, kind: CHANGE_PROTECT, protection };
    // SAFETY: only the heap's pages, and they stay readable.
    let made = unsafe { apply(&[change]) };
    assert_eq!(made, Ok(1));
}

/// The first store to an old page since the last collection.
extern "C" fn remember(fault: &mut Fault) {
    let page = (fault.address - fault.argument) / PAGE_BYTES;
    REMEMBERED[page].store(true, Ordering::Relaxed);
    protect(fault.argument + page * PAGE_BYTES, PAGE_BYTES, READ_WRITE);
}

/// The pages that were stored to since the last collection.
fn collect(heap: usize) -> Vec<usize> {
    let found = (0..PAGE_COUNT).filter(|&page| REMEMBERED[page].swap(false, Ordering::Relaxed)).collect();
    protect(heap, PAGE_COUNT * PAGE_BYTES, READ);
    found
}

fn main() -> ExitCode {
    if version().is_err() {
        eprintln!("barrier: this system has no native interface of exos");
        return ExitCode::from(2);
    }
    let layout = Layout::from_size_align(PAGE_COUNT * PAGE_BYTES, PAGE_BYTES).expect("a thousand pages");
    // SAFETY: the layout is not empty.
    let heap = unsafe { alloc_zeroed(layout) };
    let address = heap as usize;
    // SAFETY: the handler holds nothing, and touches no page of the heap.
    let handled = unsafe { handle_faults(address, layout.size(), Some((remember, address)), Registers::All) };
    handled.expect("the range is whole pages");
    for round in 0..10 {
        collect(address);
        let stores: Vec<usize> = (0..100).map(|index| (index * index * 7 + round) % PAGE_COUNT).collect();
        for &page in &stores {
            // SAFETY: within the heap, which nobody else uses; the handler makes the page writable.
            unsafe { heap.add(page * PAGE_BYTES + round).write_volatile(1) };
        }
        let mut expected = stores;
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(collect(address), expected, "round {round}");
    }
    println!("10 collections looked only where stores had been");
    ExitCode::SUCCESS
}
