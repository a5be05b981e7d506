//! exos's heap: a TLSF allocator over 2 MiB pages that are bound one at a time as it grows.
//!
//! Growth calls the kernel directly and allocates nothing itself. A failed growth is a failed allocation; exos's own
//! structures are bounded, so that means the machine has no memory left, and the allocation error handler ends the
//! program by name.

use aegis_abi::layout::{LARGE_PAGE_FRAMES, LARGE_PAGE_SIZE};
use aegis_abi::memory::{BindEntry, BindFlags};
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use exos::sync::Mutex;

use super::{HEAP_BASE, HEAP_BYTES_MAX, kernel};

/// First-level classes: blocks up to 2^(5 + 28) bytes.
type Tlsf = rlsf::Tlsf<'static, u32, u32, 28, 32>;

/// The allocator's state: bound bytes from [`HEAP_BASE`] on belong to `tlsf`.
struct Heap {
    tlsf: Tlsf,
    bound_bytes: u64,
}

/// The global allocator of exos.
pub(crate) struct GlobalHeap {
    heap: Mutex<Heap>,
}

impl GlobalHeap {
    /// An empty heap; the first allocation binds memory.
    pub(crate) const fn new() -> Self {
        Self { heap: Mutex::new(Heap { tlsf: Tlsf::new(), bound_bytes: 0 }) }
    }
}

impl Heap {
    /// Binds enough large pages for `layout` and gives them to the allocator. False if there is no memory.
    fn grow(&mut self, layout: Layout) -> bool {
        let wanted = (layout.size() as u64).saturating_add(layout.align() as u64).saturating_add(4096);
        let page_count = wanted.div_ceil(LARGE_PAGE_SIZE);
        let Some(end) = page_count.checked_mul(LARGE_PAGE_SIZE).and_then(|b| b.checked_add(self.bound_bytes)) else {
            return false;
        };
        if end > HEAP_BYTES_MAX {
            return false;
        }
        let start = HEAP_BASE + self.bound_bytes;
        for index in 0..page_count {
            if !bind_heap_page(start + index * LARGE_PAGE_SIZE) {
                return false;
            }
        }
        let length = (page_count * LARGE_PAGE_SIZE) as usize;
        let Some(base) = NonNull::new(start as *mut u8) else { return false };
        let block = NonNull::slice_from_raw_parts(base, length);
        // SAFETY: the pages were just bound, are used by nothing else and stay bound for ever; they follow the last
        // block.
        let added = unsafe {
            if self.bound_bytes == 0 {
                self.tlsf.insert_free_block_ptr(block).is_some()
            } else {
                self.tlsf.append_free_block_ptr(block) > 0
            }
        };
        self.bound_bytes = end;
        added
    }
}

/// Takes a large page from the kernel and binds it at `address`.
fn bind_heap_page(address: u64) -> bool {
    let Ok(grant) = kernel::take_frames(LARGE_PAGE_FRAMES, LARGE_PAGE_FRAMES.trailing_zeros()) else { return false };
    let flags = BindFlags::WRITE | BindFlags::LARGE;
    let entry = BindEntry::map(address, grant.first.0, LARGE_PAGE_FRAMES as u32, grant.slot, flags);
    // SAFETY: the address lies in the heap's part of the window, above everything bound so far.
    unsafe { kernel::bind_all(aegis_abi::types::SLOT_SELF, &[entry]) }.is_ok()
}

// SAFETY: the TLSF allocator hands out disjoint blocks of memory that stays bound; the mutex makes it exclusive.
unsafe impl GlobalAlloc for GlobalHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mut heap = self.heap.lock();
        if let Some(block) = heap.tlsf.allocate(layout) {
            return block.as_ptr();
        }
        if !heap.grow(layout) {
            return core::ptr::null_mut();
        }
        heap.tlsf.allocate(layout).map_or(core::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(block) = NonNull::new(block) {
            // SAFETY: by `GlobalAlloc`'s contract the block came from `alloc` with this layout.
            unsafe { self.heap.lock().tlsf.deallocate(block, layout.align()) };
        }
    }
}
