//! exos's heap: a TLSF allocator over 2 MiB pages that are bound one at a time as it grows (over smaller pieces where
//! there is little memory), before it slabs of objects of usual sizes ([`super::slab`]), and before those the objects
//! that were freed last (`exos_linux::spare_blocks`).
//!
//! Growth calls the kernel directly and allocates nothing itself. The heap grows while it is no more than half of what
//! the pod may own, and leaves programs some frames beyond what they leave to it (`kernel::may_own_more`). Behind that
//! is the reserve (`exos::reserve`): blocks of the heap that are kept back, and opened one by one for small requests
//! that find nothing else. A call that makes something for a program is refused while one is open. So the last of them
//! is never used up; if it were, the allocation error handler would end the pod by name.
//!
//! What was much for a while goes back to the kernel ([`giving`]).

mod classes;
mod giving;
mod holes;

use aegis_abi::layout::{LARGE_PAGE_FRAMES, LARGE_PAGE_SIZE};
use aegis_abi::memory::{BindEntry, BindFlags};
use aegis_abi::types::SLOT_SELF;
use aegis_abi::{CapSlot, Status};
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use exos::platform::FrameGrant;
use exos::reserve::{self, BLOCK_BYTES, BLOCK_COUNT, LARGE_BYTES, Level, ReserveSize};
use exos::sync::SpinMutex;
use exos_linux::heap_chunks::{Chunks, PIECE_BYTES};
use exos_linux::spare_blocks::{SizeClass, SpareBlocks};

use self::classes::Tlsf;
use super::slab::{SLAB_ALIGNMENT, Slabs, least_slab_layout};
use super::{HEAP_BASE, HEAP_BYTES_MAX, kernel, shortage};

/// Frames of a large page's pieces where memory is in pieces, or scarce.
const PIECE_FRAMES: u64 = PIECE_BYTES / 4096;
/// With fewer free frames than these the heap grows by pieces: most of a large page would never be used.
const SCARCE_FRAMES: u64 = (16 << 20) / 4096;

/// A block of the reserve.
const RESERVED: Layout = layout_of(BLOCK_BYTES);
/// The large one.
const LARGE_RESERVED: Layout = layout_of(LARGE_BYTES);

const fn layout_of(bytes: usize) -> Layout {
    match Layout::from_size_align(bytes, 16) {
        Ok(layout) => layout,
        Err(_) => panic!("16 is a power of two, and there are fewer bytes than half of all"),
    }
}

/// A block of the heap that nobody uses.
#[derive(Clone, Copy)]
struct Block(NonNull<u8>);

// SAFETY: the memory behind it belongs to the block's owner, on any processor.
unsafe impl Send for Block {}

/// The allocator's state: bytes from [`HEAP_BASE`] on belong to `tlsf`, and holes are blocks in use. What has a class
/// is an object of `slabs`, also in `spare`; what has none is a block of `tlsf`, and so is a slab.
struct Heap {
    tlsf: Tlsf,
    slabs: Slabs,
    spare: SpareBlocks<Block>,
    /// Blocks of [`RESERVED`] that are kept back.
    reserve: [Option<Block>; BLOCK_COUNT],
    /// One of [`LARGE_RESERVED`].
    large: Option<Block>,
    /// What there is of both where nothing is opened.
    size: ReserveSize,
    /// Where the heap ends, counted from its beginning: bound but for holes.
    bound_bytes: u64,
    /// In blocks that somebody has.
    used_bytes: u64,
    chunks: Chunks,
    /// In holes.
    given_bytes: u64,
    /// With more free bytes than these some are given back.
    surplus_bytes: u64,
}

/// What `alloc` allocates from.
#[global_allocator]
pub(crate) static HEAP: GlobalHeap = GlobalHeap::new();

/// The global allocator of exos.
pub(crate) struct GlobalHeap {
    heap: SpinMutex<Heap>,
}

impl GlobalHeap {
    /// An empty heap; the first allocation binds memory.
    pub(crate) const fn new() -> Self {
        let (tlsf, slabs, spare, reserve) = (Tlsf::new(), Slabs::new(), SpareBlocks::new(), [None; BLOCK_COUNT]);
        let (large, size) = (None, ReserveSize::ALL);
        let (bound_bytes, used_bytes, given_bytes, surplus_bytes) = (0, 0, 0, giving::SURPLUS_BYTES);
        let chunks = Chunks::new();
        let heap = Heap {
            tlsf,
            slabs,
            spare,
            reserve,
            large,
            size,
            bound_bytes,
            used_bytes,
            chunks,
            given_bytes,
            surplus_bytes,
        };
        Self { heap: SpinMutex::new(heap) }
    }

    /// Bytes in use, the reserve apart.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.heap.lock().used_bytes
    }

    /// Bytes that the kernel has given it and that did not go back.
    pub(crate) fn bound_bytes(&self) -> u64 {
        let heap = self.heap.lock();
        heap.bound_bytes - heap.given_bytes
    }

    /// Keeps back what is missing of the reserve, as far as there is memory.
    pub(crate) fn fill_reserve(&self) {
        self.heap.lock().fill_reserve();
    }
}

impl Heap {
    /// A block for `layout`; `None` if there is no memory.
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let class = SizeClass::of(layout);
        let layout = class.map_or(layout, SizeClass::layout);
        let block = match class.and_then(|class| self.spare.take(class)) {
            Some(Block(block)) => block,
            None => self.allocate_anew(layout, class)?,
        };
        self.used_bytes += layout.size() as u64;
        Some(block)
    }

    /// What was not freed before: an object of a slab, or a block.
    #[inline(never)]
    fn allocate_anew(&mut self, layout: Layout, class: Option<SizeClass>) -> Option<NonNull<u8>> {
        let Some(class) = class else { return self.carve(layout).or_else(|| self.carve_at_end(layout)) };
        self.slabs.take(class).or_else(|| self.take_of_new_slab(class))
    }

    /// An object of a class that has no free one.
    #[cold]
    fn take_of_new_slab(&mut self, class: SizeClass) -> Option<NonNull<u8>> {
        let mut layout = self.slabs.next_layout(class);
        let mut block = self.carve(layout);
        if block.is_none() {
            // What is kept may leave a slab free, or be one of the class.
            self.free_spare();
            if let Some(object) = self.slabs.take(class) {
                return Some(object);
            }
            layout = least_slab_layout(class);
            block = self.carve_at_end(layout);
        }
        // SAFETY: the block was carved with this layout for the slab.
        unsafe { self.slabs.add(class, block?, layout.size()) };
        self.slabs.take(class)
    }

    /// A new block from the allocator, if the heap has one or can grow.
    fn carve(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        if let Some(block) = classes::take(&mut self.tlsf, layout) {
            return Some(block);
        }
        if self.grow(layout) { classes::take(&mut self.tlsf, layout) } else { None }
    }

    /// The same where the heap cannot grow: from what is kept for the next request of as many bytes, then from the
    /// reserve.
    #[cold]
    fn carve_at_end(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        shortage::note_heap_shortage();
        self.free_spare();
        if let Some(block) = classes::take(&mut self.tlsf, layout) {
            return Some(block);
        }
        let bytes = layout.size() + layout.align();
        if bytes > BLOCK_BYTES {
            let Block(opened) = if bytes <= LARGE_BYTES { self.large.take()? } else { return None };
            // SAFETY: it was carved with this layout, and nobody has it.
            unsafe { self.tlsf.deallocate(opened, LARGE_RESERVED.align()) };
            self.tell_level();
            return classes::take(&mut self.tlsf, layout);
        }
        while let Some(Block(opened)) = self.reserve.iter_mut().find_map(Option::take) {
            // SAFETY: it was carved with this layout, and nobody has it.
            unsafe { self.tlsf.deallocate(opened, RESERVED.align()) };
            self.tell_level();
            if let Some(block) = classes::take(&mut self.tlsf, layout) {
                return Some(block);
            }
        }
        None
    }

    fn fill_reserve(&mut self) {
        self.size = ReserveSize::of(kernel::program_frames_of(kernel::frame_quota()));
        let wanted = 0..self.size.block_count;
        while let Some(place) = self.reserve[wanted.clone()].iter().position(Option::is_none) {
            let Some(block) = self.keep_back(RESERVED) else { break };
            self.reserve[place] = Some(block);
        }
        if self.large.is_none() && self.size.has_large {
            self.large = self.keep_back(LARGE_RESERVED);
        }
        self.tell_level();
    }

    /// A block for the reserve.
    fn keep_back(&mut self, layout: Layout) -> Option<Block> {
        let mut block = classes::take(&mut self.tlsf, layout);
        if block.is_none() {
            self.free_spare();
            block = classes::take(&mut self.tlsf, layout);
        }
        if block.is_none() && self.grow(layout) {
            block = classes::take(&mut self.tlsf, layout);
        }
        block.map(Block)
    }

    fn tell_level(&self) {
        reserve::set_level(Level::of(self.size, self.reserve.iter().flatten().count(), self.large.is_some()));
    }

    /// Gives the objects of usual sizes back, so that slabs of which none is used can be joined.
    fn free_spare(&mut self) {
        while let Some((_, Block(object))) = self.spare.take_any() {
            // SAFETY: it has a class, and nobody has it.
            unsafe { self.free_object(object) };
        }
    }

    /// Takes an object of a class back.
    ///
    /// # Safety
    /// It came from `slabs`, and nobody uses it.
    #[inline(never)]
    unsafe fn free_object(&mut self, object: NonNull<u8>) {
        // SAFETY: by the contract.
        if let Some(slab) = unsafe { self.slabs.give(object) } {
            // SAFETY: slabs are carved with their alignment, and none of its objects is used.
            unsafe { self.tlsf.deallocate(slab, SLAB_ALIGNMENT) };
        }
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// It came from [`Self::allocate`] with this layout, and nobody uses it.
    unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) {
        let class = SizeClass::of(layout);
        let layout = class.map_or(layout, SizeClass::layout);
        self.used_bytes -= layout.size() as u64;
        if class.is_some_and(|class| self.spare.keep(class, Block(block))) {
            return;
        }
        // SAFETY: by the contract; what has a class is an object of a slab, anything else a block.
        unsafe {
            match class {
                Some(_) => self.free_object(block),
                None => self.tlsf.deallocate(block, layout.align()),
            }
        }
    }

    /// Binds enough large pages for `layout` and gives them to the allocator. False if there is no memory.
    fn grow(&mut self, layout: Layout) -> bool {
        let wanted = (layout.size() as u64).saturating_add(layout.align() as u64).saturating_add(4096);
        self.surplus_bytes = giving::SURPLUS_BYTES;
        // The allocator finds what is half as long for certain.
        if wanted <= LARGE_PAGE_SIZE / 2 && self.fill_hole() {
            return true;
        }
        // Once it has begun with pieces it goes on with them until a large page is full.
        let is_scarce = kernel::free_frame_count() < SCARCE_FRAMES;
        let by_pieces = is_scarce || !self.bound_bytes.is_multiple_of(LARGE_PAGE_SIZE);
        let step = if by_pieces { PIECE_BYTES } else { LARGE_PAGE_SIZE };
        let Some(length) = wanted.checked_next_multiple_of(step) else { return false };
        let end = self.bound_bytes.saturating_add(length);
        if end > HEAP_BYTES_MAX || !kernel::may_own_more((end - self.given_bytes) / 4096, length / 4096) {
            return false;
        }
        let start = HEAP_BASE + self.bound_bytes;
        // What was bound before the kernel had no more is the heap's all the same.
        let bound = self.bind_at_end(start, length, is_scarce);
        if bound == 0 {
            return false;
        }
        let is_all = bound == length;
        let (length, end) = (bound as usize, self.bound_bytes + bound);
        let Some(base) = NonNull::new(start as *mut u8) else { return false };
        let block = NonNull::slice_from_raw_parts(base, length);
        // SAFETY: the pages were just bound, are used by nothing else and stay bound but where a block in use that
        // nobody has keeps the allocator from them; they follow the last block.
        let added = unsafe {
            if self.bound_bytes == 0 {
                self.tlsf.insert_free_block_ptr(block).is_some()
            } else {
                self.tlsf.append_free_block_ptr(block) > 0
            }
        };
        self.bound_bytes = end;
        added && is_all
    }

    /// Takes frames from the kernel and binds them from `start` on, in large pages where they fit and there are any,
    /// unless memory is scarce; answers how many bytes of `length` have theirs.
    fn bind_at_end(&mut self, start: u64, length: u64, is_scarce: bool) -> u64 {
        let mut done = 0;
        while done < length {
            let address = start + done;
            let may_be_large =
                !is_scarce && address.is_multiple_of(LARGE_PAGE_SIZE) && length - done >= LARGE_PAGE_SIZE;
            let bind = |is_large| bind_frames(address, is_large, kernel::take_frames, kernel::return_frames);
            let (slot, is_large) = match may_be_large.then(|| bind(true)).flatten() {
                Some(slot) => (Some(slot), true),
                None => (bind(false), false),
            };
            let Some(slot) = slot else { break };
            self.chunks.add(address - HEAP_BASE, is_large, slot);
            done += if is_large { LARGE_PAGE_SIZE } else { PIECE_BYTES };
        }
        done
    }
}

/// Takes the frames of a chunk by `take` and binds them; the slot of their capability. `None`: no memory, and what was
/// taken is given back by `give`.
fn bind_frames(
    address: u64,
    is_large: bool,
    take: impl FnOnce(u64, u32) -> Result<FrameGrant, Status>,
    give: impl FnOnce(FrameGrant),
) -> Option<CapSlot> {
    let (count, alignment_log2, flags) = if is_large {
        (LARGE_PAGE_FRAMES, LARGE_PAGE_FRAMES.trailing_zeros(), BindFlags::WRITE | BindFlags::LARGE)
    } else {
        (PIECE_FRAMES, 0, BindFlags::WRITE)
    };
    let grant = take(count, alignment_log2).ok()?;
    let entry = BindEntry::map(address, grant.first.0, count as u32, grant.slot, flags);
    // SAFETY: the address lies in the heap's part of the window, above everything bound so far or in a hole.
    if unsafe { kernel::bind_all(SLOT_SELF, &[entry]) }.is_ok() {
        return Some(grant.slot);
    }
    let undone = BindEntry::unmap(address, count as u32);
    // SAFETY: as above; the heap does not know of the pages.
    let _ = unsafe { kernel::bind_all(SLOT_SELF, &[undone]) };
    give(grant);
    None
}

// SAFETY: the TLSF allocator hands out disjoint blocks of memory that stays bound; the mutex makes it exclusive.
unsafe impl GlobalAlloc for GlobalHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.heap.lock().allocate(layout).map_or(core::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(block) = NonNull::new(block) {
            // SAFETY: by `GlobalAlloc`'s contract the block came from `alloc` with this layout.
            unsafe { self.heap.lock().free(block, layout) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        let Ok(new_layout) = Layout::from_size_align(new_bytes, layout.align()) else { return core::ptr::null_mut() };
        let (class, new_class) = (SizeClass::of(layout), SizeClass::of(new_layout));
        if class.is_some() && class == new_class {
            return block;
        }
        // SAFETY: the new layout is a layout.
        let new = unsafe { self.alloc(new_layout) };
        if !new.is_null() {
            // SAFETY: both blocks are the caller's and as long; the old one is not used any more afterwards.
            unsafe {
                core::ptr::copy_nonoverlapping(block, new, layout.size().min(new_bytes));
                self.dealloc(block, layout);
            }
        }
        new
    }
}
