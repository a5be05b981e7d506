//! Virtual memory by the program itself: faults that it answers, page-table changes in one call, the dirty bit
//! without any, and an allocator for one size.

use core::hint::black_box;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aegis_abi::CapSlot;
use aegis_abi::layout::{PAGE_SHIFT, PAGE_SIZE};
use aegis_abi::memory::{BindEntry, BindFlags, entry};
use aegis_abi::upcall::UpcallFrame;
use aegis_rt::call;

use crate::harness::{Row, check_handled, count_handled, handle, now_ns, timed};
use crate::memory::{
    Frames, Measured, bind, bind_all, named, table_entry, take_addresses, take_frames, take_pages, take_slot,
};

pub(crate) const ROWS: &[Row] = &[
    ("native_fault_existing", fault_existing),
    ("native_fault_existing_batch", fault_existing_batch),
    ("native_map_unmap_1p", map_unmap),
    ("native_take_map_free_1p", take_map_free),
    ("native_dirty", dirty),
    ("native_prot1", prot1),
    ("native_prot100", prot100),
    ("native_unprot100", unprot100),
    ("native_trap_reprotect", trap_reprotect),
    ("native_appel1", appel1),
    ("native_appel2_perpage", appel2),
    ("native_malloc_free_64", malloc_free),
];

/// Pages that fault rows touch before they are taken away again.
const FAULT_PAGE_COUNT: u64 = 512;
/// Pages that one fault of the batch row maps.
const BATCH_PAGE_COUNT: u64 = 16;
const REGION_PAGE_COUNT: u32 = 128;
const HUNDRED: u32 = 100;

/// What the handlers know: the region's address, its first frame, its slot, the page to protect.
static BASE: AtomicU64 = AtomicU64::new(0);
static FRAME: AtomicU64 = AtomicU64::new(0);
static SLOT: AtomicU32 = AtomicU32::new(0);
static OTHER: AtomicU64 = AtomicU64::new(0);

fn slot() -> CapSlot {
    CapSlot(SLOT.load(Ordering::Relaxed))
}

fn set_region(address: u64, frames: Frames) {
    BASE.store(address, Ordering::Relaxed);
    FRAME.store(frames.first, Ordering::Relaxed);
    SLOT.store(frames.slot.0, Ordering::Relaxed);
}

#[inline(always)]
fn touch(address: u64) {
    // SAFETY: rows touch pages that they took, or whose faults their handler answers.
    unsafe { (address as *mut u8).write_volatile(1) };
}

/// Maps `count` pages from the one that was touched on; the frames are there and hold what they held.
#[inline(always)]
fn map_from(address: u64, count: u64) {
    let page = (address - BASE.load(Ordering::Relaxed)) >> PAGE_SHIFT;
    let page = page - page % count;
    let address = BASE.load(Ordering::Relaxed) + (page << PAGE_SHIFT);
    let frame = FRAME.load(Ordering::Relaxed) + page;
    if bind(BindEntry::map(address, frame, count as u32, slot(), BindFlags::WRITE)).is_ok() {
        count_handled();
    }
}

extern "C" fn map_one(frame: &mut UpcallFrame) {
    map_from(frame.fault_address, 1);
}

extern "C" fn map_batch(frame: &mut UpcallFrame) {
    map_from(frame.fault_address, BATCH_PAGE_COUNT);
}

/// First touches of pages whose frames are there.
fn faults(count: u64, pages_per_fault: u64) -> Measured {
    let frames = take_frames(FAULT_PAGE_COUNT)?;
    let base = take_addresses(FAULT_PAGE_COUNT);
    set_region(base, frames);
    handle(if pages_per_fault == 1 { map_one } else { map_batch });
    // The page table is there before, as it would be in a program's heap.
    bind(BindEntry::map(base, frames.first, FAULT_PAGE_COUNT as u32, frames.slot, BindFlags::WRITE))?;
    let mut elapsed_ns = 0;
    let mut done = 0;
    let mut expected = 0;
    while done < count {
        let pages = FAULT_PAGE_COUNT.min(count - done);
        bind(BindEntry::unmap(base, FAULT_PAGE_COUNT as u32))?;
        elapsed_ns += timed(|| (0..pages).for_each(|page| touch(base + (page << PAGE_SHIFT))));
        done += pages;
        expected += pages.div_ceil(pages_per_fault);
    }
    check_handled(expected)?;
    Ok(elapsed_ns)
}

fn fault_existing(count: u64) -> Measured {
    faults(count, 1)
}

fn fault_existing_batch(count: u64) -> Measured {
    faults(count, BATCH_PAGE_COUNT)
}

fn map_unmap(count: u64) -> Measured {
    let frames = take_frames(1)?;
    let address = take_addresses(1);
    let start_ns = now_ns();
    for _ in 0..count {
        bind(BindEntry::map(address, frames.first, 1, frames.slot, BindFlags::WRITE))?;
        bind(BindEntry::unmap(address, 1))?;
    }
    Ok(now_ns() - start_ns)
}

/// With a frame that nobody owned before and nobody owns afterwards.
fn take_map_free(count: u64) -> Measured {
    let slot = take_slot();
    let address = take_addresses(1);
    let start_ns = now_ns();
    for _ in 0..count {
        let frame = named(call::frame_allocate(slot, 1, None, 0), "FrameAllocate")?;
        bind(BindEntry::map(address, frame, 1, slot, BindFlags::WRITE))?;
        touch(address);
        bind(BindEntry::unmap(address, 1))?;
        named(call::frame_free(slot), "FrameFree")?;
    }
    Ok(now_ns() - start_ns)
}

/// Whether a page was written to: one load from the own page table.
#[inline(never)]
fn is_dirty(address: u64) -> bool {
    table_entry(address) & entry::DIRTY != 0
}

fn dirty(count: u64) -> Measured {
    let (base, _) = take_pages(HUNDRED)?;
    for page in (0..u64::from(HUNDRED)).step_by(2) {
        touch(base + (page << PAGE_SHIFT));
    }
    let mut dirty_count = 0;
    let mut page = 0;
    let elapsed_ns = timed(|| {
        for _ in 0..count {
            dirty_count += u64::from(is_dirty(base + (page << PAGE_SHIFT)));
            page = if page == u64::from(HUNDRED) - 1 { 0 } else { page + 1 };
        }
    });
    if dirty_count == count / 2 { Ok(elapsed_ns) } else { Err("the dirty bits are not those of the pages written") }
}

/// A region of pages that have been written.
fn region() -> Result<(u64, Frames), &'static str> {
    let (base, frames) = take_pages(REGION_PAGE_COUNT)?;
    (0..u64::from(REGION_PAGE_COUNT)).for_each(|page| touch(base + (page << PAGE_SHIFT)));
    set_region(base, frames);
    Ok((base, frames))
}

fn prot1(count: u64) -> Measured {
    let (base, frames) = region()?;
    let start_ns = now_ns();
    for _ in 0..count / 2 {
        bind(BindEntry::protect(base, 1, frames.slot, BindFlags::empty()))?;
        bind(BindEntry::protect(base, 1, frames.slot, BindFlags::WRITE))?;
    }
    Ok(now_ns() - start_ns)
}

/// Nanoseconds of both directions for 100 pages.
fn protect_hundred(count: u64) -> Result<[u64; 2], &'static str> {
    let (base, frames) = region()?;
    let mut total_ns = [0; 2];
    for _ in 0..count {
        let first_ns = now_ns();
        bind(BindEntry::protect(base, HUNDRED, frames.slot, BindFlags::empty()))?;
        let second_ns = now_ns();
        bind(BindEntry::protect(base, HUNDRED, frames.slot, BindFlags::WRITE))?;
        total_ns[0] += second_ns - first_ns;
        total_ns[1] += now_ns() - second_ns;
    }
    Ok(total_ns)
}

fn prot100(count: u64) -> Measured {
    Ok(protect_hundred(count)?[0])
}

fn unprot100(count: u64) -> Measured {
    Ok(protect_hundred(count)?[1])
}

fn page_of(address: u64) -> u64 {
    address & !(PAGE_SIZE - 1)
}

extern "C" fn unprotect(frame: &mut UpcallFrame) {
    if bind(BindEntry::protect(page_of(frame.fault_address), 1, slot(), BindFlags::WRITE)).is_ok() {
        count_handled();
    }
}

/// Both changes in one call.
extern "C" fn exchange(frame: &mut UpcallFrame) {
    let entries = [
        BindEntry::protect(page_of(frame.fault_address), 1, slot(), BindFlags::WRITE),
        BindEntry::protect(OTHER.load(Ordering::Relaxed), 1, slot(), BindFlags::empty()),
    ];
    if bind_all(&entries).is_ok() {
        count_handled();
    }
}

fn trap_reprotect(count: u64) -> Measured {
    let (base, frames) = region()?;
    let protect = || bind(BindEntry::protect(base, 1, frames.slot, BindFlags::empty()));
    protect()?;
    handle(unprotect);
    let start_ns = now_ns();
    for _ in 0..count {
        touch(base);
        protect()?;
    }
    let elapsed_ns = now_ns() - start_ns;
    check_handled(count)?;
    Ok(elapsed_ns)
}

/// A store to a protected page, whose handler makes it writable and protects another.
fn appel1(count: u64) -> Measured {
    let (base, frames) = region()?;
    bind(BindEntry::protect(base, HUNDRED, frames.slot, BindFlags::empty()))?;
    bind(BindEntry::protect(base, 1, frames.slot, BindFlags::WRITE))?;
    handle(exchange);
    let mut writable = 0;
    let elapsed_ns = timed(|| {
        for _ in 0..count {
            let next = (writable + 37) % u64::from(HUNDRED);
            OTHER.store(base + (writable << PAGE_SHIFT), Ordering::Relaxed);
            touch(base + (next << PAGE_SHIFT));
            writable = next;
        }
    });
    check_handled(count)?;
    Ok(elapsed_ns)
}

/// 100 pages protected in one call, then a store to each, whose handler makes it writable. For a page.
fn appel2(count: u64) -> Measured {
    let (base, frames) = region()?;
    handle(unprotect);
    let mut total_ns = 0;
    let mut pages = 0;
    while pages < count {
        let start_ns = now_ns();
        bind(BindEntry::protect(base, HUNDRED, frames.slot, BindFlags::empty()))?;
        for page in 0..u64::from(HUNDRED) {
            touch(base + ((page * 37 % u64::from(HUNDRED)) << PAGE_SHIFT));
        }
        total_ns += now_ns() - start_ns;
        pages += u64::from(HUNDRED);
    }
    check_handled(pages)?;
    Ok((u128::from(total_ns) * u128::from(count) / u128::from(pages)) as u64)
}

const BLOCK_BYTES: u64 = 64;

/// Blocks of one size: a list of free ones, each of which holds the address of the next.
struct Blocks {
    free: u64,
}

impl Blocks {
    /// All blocks of a page.
    fn new(page: u64) -> Self {
        let mut blocks = Self { free: 0 };
        (0..PAGE_SIZE / BLOCK_BYTES).for_each(|index| blocks.give_back(page + index * BLOCK_BYTES));
        blocks
    }

    /// A block, or 0.
    #[inline(always)]
    fn take(&mut self) -> u64 {
        let block = self.free;
        if block != 0 {
            // SAFETY: blocks on the list lie in the page and nobody uses them.
            self.free = unsafe { (block as *const u64).read() };
        }
        block
    }

    #[inline(always)]
    fn give_back(&mut self, block: u64) {
        // SAFETY: the block was taken from the page, and its user has finished with it.
        unsafe { (block as *mut u64).write(self.free) };
        self.free = block;
    }
}

fn malloc_free(count: u64) -> Measured {
    let (page, _) = take_pages(1)?;
    let mut blocks = Blocks::new(page);
    Ok(timed(|| {
        for _ in 0..count {
            let block = black_box(&mut blocks).take();
            black_box(block);
            black_box(&mut blocks).give_back(block);
        }
    }))
}
