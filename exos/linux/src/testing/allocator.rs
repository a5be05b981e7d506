//! The heap of this crate's tests: as the machine's behaves where memory comes to its end, from an allocation on that a
//! test chooses ([`Refusal`]). From then on exos's reserve is open (`exos::reserve`), so the first that asks is
//! refused; small blocks come out of it, one large one too, and nothing else.
//!
//! The level of the reserve is one for all threads, so a test that uses this runs alone in its process.

#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;

use exos::reserve::{self, BLOCK_BYTES, LARGE_BYTES, Level};

struct TestHeap;

#[global_allocator]
static HEAP: TestHeap = TestHeap;

std::thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    static IS_OPEN: Cell<bool> = const { Cell::new(false) };
    static TAKEN: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

/// Bytes that this thread allocated and nobody freed, or freed of others'.
pub(crate) fn live_bytes() -> i64 {
    LIVE_BYTES.get()
}

/// While it lives the heap has memory for so many allocations of this thread and no more.
pub(crate) struct Refusal;

impl Refusal {
    pub(crate) fn after(count: u64) -> Self {
        TAKEN.set((0, 0));
        LEFT.set(count);
        Self
    }

    /// Whether memory came to its end, and what was taken of the reserve then: bytes, and large blocks.
    pub(crate) fn taken(&self) -> Option<(usize, usize)> {
        IS_OPEN.get().then(|| TAKEN.get())
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        LEFT.set(u64::MAX);
        IS_OPEN.set(false);
        reserve::set_level(Level::Whole);
    }
}

/// Whether the heap gives a block.
fn gives(layout: Layout) -> bool {
    // The fake machine's frames are no part of the heap.
    if layout.size() == 4096 && layout.align() == 1 {
        return true;
    }
    match LEFT.get() {
        u64::MAX => return true,
        0 => {
            IS_OPEN.set(true);
            reserve::set_level(Level::Short);
        }
        left => {
            LEFT.set(left - 1);
            return true;
        }
    }
    let bytes = layout.size() + layout.align();
    let (small, large) = TAKEN.get();
    if bytes <= BLOCK_BYTES {
        TAKEN.set((small + layout.size(), large));
        return true;
    }
    TAKEN.set((small, large + 1));
    bytes <= LARGE_BYTES && large == 0
}

// SAFETY: blocks are the system's, or there is none.
unsafe impl GlobalAlloc for TestHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !gives(layout) {
            return core::ptr::null_mut();
        }
        LIVE_BYTES.set(LIVE_BYTES.get() + layout.size() as i64);
        // SAFETY: passed on to our caller.
        unsafe { std::alloc::System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE_BYTES.set(LIVE_BYTES.get() - layout.size() as i64);
        // SAFETY: passed on to our caller.
        unsafe { std::alloc::System.dealloc(block, layout) };
    }
}
