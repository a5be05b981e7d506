//! Slots, frames and addresses for rows. A row takes what it needs and gives nothing back: [`release`] does, after it.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aegis_abi::boot::{BUNDLE_MAGIC, BundleHeader, FlatHeader, PART_CONFIG, PART_INIT};
use aegis_abi::layout::{LIBOS_BASE, PAGE_SHIFT, PAGE_SIZE, PAGE_TABLE_WINDOW};
use aegis_abi::memory::{BIND_PAGE_COUNT_MAX, BindEntry, BindFlags};
use aegis_abi::types::{CapType, SLOT_BUNDLE, SLOT_SELF};
use aegis_abi::{CapSlot, Status};
use aegis_rt::call::{self, Outcome, Refusal};

/// What a row measured in nanoseconds, or the operation that did not work.
pub(crate) type Measured = Result<u64, &'static str>;

/// First slot that rows take.
const SLOT_FIRST: u32 = 128;
/// One past the last.
const SLOT_END: u32 = 256;
/// Where rows map things: nothing else is there.
const SCRATCH_BASE: u64 = LIBOS_BASE + (200 << 30);
/// Where the bundle's head is mapped for reading.
const BUNDLE_BASE: u64 = LIBOS_BASE + (190 << 30);
/// Where the configuration stays mapped.
const CONFIGURATION_BASE: u64 = LIBOS_BASE + (191 << 30);
/// Where a row's program is, in the program's half.
pub(crate) const PROGRAM_ADDRESS: u64 = 0x40_0000;

static SLOTS_TAKEN: AtomicU32 = AtomicU32::new(0);
static SLOTS_KEPT: AtomicU32 = AtomicU32::new(0);
static PAGES_TAKEN: AtomicU64 = AtomicU64::new(0);
static PAGES_KEPT: AtomicU64 = AtomicU64::new(0);
static BUNDLE_FRAME: AtomicU64 = AtomicU64::new(0);

/// Names a failed operation.
pub(crate) fn named<T>(result: Result<T, Refusal>, what: &'static str) -> Result<T, &'static str> {
    result.map_err(|_| what)
}

/// Remembers where the bundle is.
pub(crate) fn set_bundle(frame: u64) {
    BUNDLE_FRAME.store(frame, Ordering::Relaxed);
}

/// A slot that is empty.
pub(crate) fn take_slot() -> CapSlot {
    CapSlot(SLOT_FIRST + SLOTS_TAKEN.fetch_add(1, Ordering::Relaxed) % (SLOT_END - SLOT_FIRST))
}

/// Addresses for `page_count` pages, nothing mapped there, and a page of nothing after them.
pub(crate) fn take_addresses(page_count: u64) -> u64 {
    SCRATCH_BASE + (PAGES_TAKEN.fetch_add(page_count + 1, Ordering::Relaxed) << PAGE_SHIFT)
}

/// Frames that were taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames {
    pub(crate) slot: CapSlot,
    pub(crate) first: u64,
}

/// Takes frames.
pub(crate) fn take_frames(count: u64) -> Result<Frames, &'static str> {
    let slot = take_slot();
    loop {
        match call::frame_allocate(slot, count, None, 0) {
            Ok(first) => return Ok(Frames { slot, first }),
            Err(refusal) if refusal.status == Status::Again => {}
            Err(_) => return Err("FrameAllocate"),
        }
    }
}

/// Takes frames and maps them, writable.
pub(crate) fn take_pages(count: u32) -> Result<(u64, Frames), &'static str> {
    let frames = take_frames(u64::from(count))?;
    let address = take_addresses(u64::from(count));
    bind(BindEntry::map(address, frames.first, count, frames.slot, BindFlags::WRITE))?;
    Ok((address, frames))
}

/// Applies entries to our own space, in one call.
pub(crate) fn bind_all(entries: &[BindEntry]) -> Outcome {
    // SAFETY: rows bind only at addresses that they took.
    unsafe { call::bind(SLOT_SELF, entries) }
}

/// Applies one entry to our own space.
pub(crate) fn bind(entry: BindEntry) -> Measured {
    // SAFETY: as for `bind_all`.
    named(unsafe { call::bind_one(SLOT_SELF, &entry) }, "BindOne")
}

/// Applies one entry to another's space, repeating bounded calls.
pub(crate) fn bind_in(environment: CapSlot, entry: BindEntry) -> Measured {
    loop {
        // SAFETY: the other environment runs nothing yet.
        match unsafe { call::bind(environment, &[entry]) } {
            Err(refusal) if refusal.status == Status::Again => {}
            outcome => return named(outcome, "Bind in a peer"),
        }
    }
}

/// Where the page-table window shows the entry of an address.
pub(crate) const fn table_entry_address(address: u64) -> u64 {
    PAGE_TABLE_WINDOW + ((address & 0x0000_ffff_ffff_ffff) >> PAGE_SHIFT) * 8
}

/// The page-table entry of an address whose page table exists, without a call.
pub(crate) fn table_entry(address: u64) -> u64 {
    // SAFETY: the page table exists, so its window is mapped, read-only and always up to date.
    unsafe { (table_entry_address(address) as *const u64).read_volatile() }
}

/// Keeps for good what was taken so far.
pub(crate) fn keep() {
    SLOTS_KEPT.store(SLOTS_TAKEN.load(Ordering::Relaxed), Ordering::Relaxed);
    PAGES_KEPT.store(PAGES_TAKEN.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Gives back everything that a row took: environments, processors, mappings, capabilities, in this order.
pub(crate) fn release() {
    let kept = SLOTS_KEPT.load(Ordering::Relaxed);
    let slots = || (SLOT_FIRST + kept..SLOT_END).map(CapSlot);
    // SAFETY: these slots name nothing that this program needs.
    unsafe {
        for slot in slots().filter(|slot| is_a(*slot, CapType::Environment)) {
            repeat(|| call::environment_destroy(slot));
        }
        for slot in slots().filter(|slot| is_a(*slot, CapType::Processor)) {
            let _ = call::processor_stop(slot);
            repeat(|| call::processor_destroy(slot));
        }
    }
    let kept_pages = PAGES_KEPT.load(Ordering::Relaxed);
    let pages = PAGES_TAKEN.swap(kept_pages, Ordering::Relaxed);
    for first in (kept_pages..pages).step_by(BIND_PAGE_COUNT_MAX as usize) {
        let count = (pages - first).min(u64::from(BIND_PAGE_COUNT_MAX)) as u32;
        let _ = bind(BindEntry::unmap(SCRATCH_BASE + (first << PAGE_SHIFT), count));
    }
    let _ = bind(BindEntry::unmap(PROGRAM_ADDRESS, 1));
    for slot in slots() {
        release_slot(slot);
    }
    SLOTS_TAKEN.store(kept, Ordering::Relaxed);
}

fn is_a(slot: CapSlot, kind: CapType) -> bool {
    call::cap_read(slot, 0).is_ok_and(|word| word & 0xffff_ffff == kind as u64)
}

fn release_slot(slot: CapSlot) {
    if call::cap_read(slot, 0).is_err() {
        return;
    }
    // SAFETY: as above.
    unsafe {
        repeat(|| call::cap_revoke(slot));
        if is_a(slot, CapType::Frames) {
            repeat(|| call::frame_free(slot));
        }
        repeat(|| call::cap_drop(slot));
    }
}

fn repeat(mut call: impl FnMut() -> Outcome) {
    while matches!(call(), Err(refusal) if refusal.status == Status::Again) {}
}

/// The first frame of the bundle's part of this kind, and its length in bytes.
fn part(kind: u32) -> Option<(u64, u64)> {
    let bundle_frame = BUNDLE_FRAME.load(Ordering::Relaxed);
    bind(BindEntry::map(BUNDLE_BASE, bundle_frame, 1, SLOT_BUNDLE, BindFlags::empty())).ok()?;
    // SAFETY: just mapped; the bundle is never written.
    let header = unsafe { (BUNDLE_BASE as *const BundleHeader).read() };
    let _ = bind(BindEntry::unmap(BUNDLE_BASE, 1));
    let part = header.parts.iter().take(header.part_count as usize).find(|part| part.kind == kind)?;
    (header.magic == BUNDLE_MAGIC).then_some((bundle_frame + part.offset_bytes / PAGE_SIZE, part.length_bytes))
}

/// The configuration part, mapped for good; only its first page.
pub(crate) fn configuration() -> Option<&'static str> {
    let (frame, length) = part(PART_CONFIG)?;
    bind(BindEntry::map(CONFIGURATION_BASE, frame, 1, SLOT_BUNDLE, BindFlags::empty())).ok()?;
    // SAFETY: mapped above and never unmapped; the bundle is never written.
    let text = unsafe { core::slice::from_raw_parts(CONFIGURATION_BASE as *const u8, length.min(PAGE_SIZE) as usize) };
    core::str::from_utf8(text.trim_ascii()).ok()
}

/// The frames of the configuration part behind its first page, and its bytes there.
pub(crate) fn behind_configuration() -> Option<(u64, u64)> {
    let (frame, length) = part(PART_CONFIG)?;
    Some((frame + 1, length.checked_sub(PAGE_SIZE)?))
}

/// The header of this program's own flat image, and its first frame.
pub(crate) fn own_image() -> Option<(FlatHeader, u64)> {
    let (frame, _) = part(PART_INIT)?;
    bind(BindEntry::map(BUNDLE_BASE, frame, 1, SLOT_BUNDLE, BindFlags::empty())).ok()?;
    // SAFETY: just mapped; the bundle is never written.
    let header = unsafe { (BUNDLE_BASE as *const FlatHeader).read() };
    let _ = bind(BindEntry::unmap(BUNDLE_BASE, 1));
    Some((header, frame))
}
