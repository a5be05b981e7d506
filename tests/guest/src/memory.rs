//! Memory for cases: scratch frames and addresses that are given back when a case is over.

use aegis_abi::boot::{BUNDLE_MAGIC, BundleHeader, FlatHeader, PART_CONFIG, PART_INIT};
use aegis_abi::layout::{LIBOS_BASE, PAGE_SHIFT, PAGE_SIZE, PAGE_TABLE_WINDOW};
use aegis_abi::memory::{BIND_PAGE_COUNT_MAX, BindEntry, BindFlags};
use aegis_abi::types::{CapType, SLOT_BUNDLE, SLOT_SELF};
use aegis_abi::{CapSlot, FrameNumber, Status};
use aegis_rt::call::{self, Outcome};

use crate::suite::Machine;

/// Slots below this one are looked at by the leak check.
pub(crate) const SLOT_SCAN_COUNT: u32 = 256;
/// First slot that cases may use; the others up to `SLOT_SCAN_COUNT` follow. Cases that use neither children nor
/// threads use the first of them; [`free_slot`] has those that neither children nor threads use.
pub(crate) const SLOT_CASE_FIRST: u32 = 128;
/// Where cases map things: nothing else is there.
pub(crate) const SCRATCH_BASE: u64 = LIBOS_BASE + (200 << 30);
/// Pages that cases may map from `SCRATCH_BASE` on.
const CASE_PAGE_COUNT: u64 = 8192;
/// Where threads have their stacks.
pub(crate) const THREAD_BASE: u64 = SCRATCH_BASE + CASE_PAGE_COUNT * PAGE_SIZE;
/// Where the pages that are shared with children are.
pub(crate) const SHARED_BASE: u64 = THREAD_BASE + 496 * PAGE_SIZE;
/// Pages from `SCRATCH_BASE` that are unmapped after each case.
const SCRATCH_PAGE_COUNT: u64 = CASE_PAGE_COUNT + 512;
/// Where the bundle's head is mapped for reading.
const BUNDLE_BASE: u64 = LIBOS_BASE + (190 << 30);

/// Case slot number `index`.
pub(crate) const fn slot(index: u32) -> CapSlot {
    CapSlot(SLOT_CASE_FIRST + index)
}

/// Case slot that neither children nor threads use: 0..32.
pub(crate) const fn free_slot(index: u32) -> CapSlot {
    slot(96 + index)
}

/// Applies one entry, repeating bounded calls.
pub(crate) fn bind_in(environment: CapSlot, entry: BindEntry) -> Outcome {
    loop {
        // SAFETY: cases bind only in the scratch area and in children.
        match unsafe { call::bind(environment, &[entry]) } {
            Err(refusal) if refusal.status == Status::Again => {}
            outcome => return outcome,
        }
    }
}

/// Maps into our own space.
pub(crate) fn map(address: u64, frame: u64, page_count: u32, slot: CapSlot, flags: BindFlags) -> Outcome {
    bind_in(SLOT_SELF, BindEntry::map(address, frame, page_count, slot, flags))
}

/// Unmaps from our own space.
pub(crate) fn unmap(address: u64, page_count: u32) -> Outcome {
    bind_in(SLOT_SELF, BindEntry::unmap(address, page_count))
}

/// Changes the rights of mapped pages in our own space.
pub(crate) fn protect(address: u64, page_count: u32, slot: CapSlot, flags: BindFlags) -> Outcome {
    bind_in(SLOT_SELF, BindEntry::protect(address, page_count, slot, flags))
}

/// The page-table entry of an address in our own space, as the page-table window shows it.
pub(crate) fn table_entry(address: u64) -> u64 {
    let window = window_address(address);
    // SAFETY: the callers ask for addresses whose page tables exist.
    unsafe { (window as *const u64).read_volatile() }
}

/// Where the page-table window shows the entry of an address.
pub(crate) const fn window_address(address: u64) -> u64 {
    PAGE_TABLE_WINDOW + ((address & 0x0000_ffff_ffff_ffff) >> PAGE_SHIFT) * 8
}

/// Where it shows the page-directory entry of an address.
pub(crate) const fn directory_address(address: u64) -> u64 {
    window_address(window_address(address))
}

/// Takes `count` frames into a slot.
pub(crate) fn take(slot: CapSlot, count: u64) -> Result<FrameNumber, call::Refusal> {
    loop {
        match call::frame_allocate(slot, count, None, 0) {
            Err(refusal) if refusal.status == Status::Again => {}
            outcome => return outcome.map(FrameNumber),
        }
    }
}

/// Gives back everything that a case may have left behind: environments, processors, spaces, mappings, capabilities, in
/// this order.
pub(crate) fn release_scratch() {
    // SAFETY: all that this program runs on is in the window.
    let _ = unsafe { call::space_enter(SLOT_SELF) };
    for pass in 0..3 {
        for number in SLOT_CASE_FIRST..SLOT_SCAN_COUNT {
            release_running(CapSlot(number), pass);
        }
    }
    unmap_all(SCRATCH_BASE, SCRATCH_PAGE_COUNT);
    for number in SLOT_CASE_FIRST..SLOT_SCAN_COUNT {
        release(CapSlot(number));
    }
}

fn unmap_all(address: u64, page_count: u64) {
    for first in (0..page_count).step_by(BIND_PAGE_COUNT_MAX as usize) {
        let count = (page_count - first).min(u64::from(BIND_PAGE_COUNT_MAX)) as u32;
        let _ = unmap(address + first * PAGE_SIZE, count);
    }
}

fn type_of(slot: CapSlot) -> u64 {
    call::cap_read(slot, 0).map_or(CapType::Null as u64, |word| word & 0xffff_ffff)
}

/// Ends an environment (first pass), a processor (second pass) or a space (third pass).
fn release_running(slot: CapSlot, pass: u32) {
    // SAFETY: case slots name nothing that this program needs.
    unsafe {
        if pass == 0 && type_of(slot) == CapType::Environment as u64 {
            repeat(|| call::environment_destroy(slot));
        } else if pass == 1 && type_of(slot) == CapType::Processor as u64 {
            let _ = call::processor_stop(slot);
            repeat(|| call::processor_destroy(slot));
        } else if pass == 2 && type_of(slot) == CapType::Space as u64 {
            repeat(|| call::cap_revoke(slot));
            repeat(|| call::cap_drop(slot));
        }
    }
}

fn release(slot: CapSlot) {
    let kind = type_of(slot);
    if kind == CapType::Null as u64 {
        return;
    }
    // SAFETY: case slots name nothing that this program needs.
    unsafe {
        repeat(|| call::cap_revoke(slot));
        if kind == CapType::Frames as u64 {
            repeat(|| call::frame_free(slot));
        }
        if type_of(slot) != CapType::Null as u64 {
            repeat(|| call::cap_drop(slot));
        }
    }
}

/// Repeats a bounded call until it is done.
pub(crate) fn repeat(mut call: impl FnMut() -> Outcome) {
    while matches!(call(), Err(refusal) if refusal.status == Status::Again) {}
}

/// The first frame of the bundle's part of this kind, and its length in bytes.
pub(crate) fn part(machine: &Machine, kind: u32) -> Option<(u64, u64)> {
    map(BUNDLE_BASE, machine.info.bundle_frame, 1, SLOT_BUNDLE, BindFlags::empty()).ok()?;
    // SAFETY: just mapped; the bundle is never written.
    let header = unsafe { (BUNDLE_BASE as *const BundleHeader).read() };
    let _ = unmap(BUNDLE_BASE, 1);
    if header.magic != BUNDLE_MAGIC {
        return None;
    }
    let part = header.parts.iter().take(header.part_count as usize).find(|part| part.kind == kind)?;
    Some((machine.info.bundle_frame + part.offset_bytes / PAGE_SIZE, part.length_bytes))
}

/// The configuration part, mapped for good: names of suites, one a line.
pub(crate) fn configuration(machine: &Machine) -> &'static [u8] {
    const CONFIGURATION_BASE: u64 = BUNDLE_BASE + (1 << 30);
    let Some((frame, length)) = part(machine, PART_CONFIG) else {
        return &[];
    };
    if length == 0 || map(CONFIGURATION_BASE, frame, 1, SLOT_BUNDLE, BindFlags::empty()).is_err() {
        return &[];
    }
    let length = length.min(PAGE_SIZE) as usize;
    // SAFETY: mapped above and never unmapped; the bundle is never written.
    let text = unsafe { core::slice::from_raw_parts(CONFIGURATION_BASE as *const u8, length) };
    text.trim_ascii()
}

/// The header of this program's own flat image, and its first frame.
pub(crate) fn own_image(machine: &Machine) -> Option<(FlatHeader, u64)> {
    let (frame, _) = part(machine, PART_INIT)?;
    map(BUNDLE_BASE, frame, 1, SLOT_BUNDLE, BindFlags::empty()).ok()?;
    // SAFETY: just mapped; the bundle is never written.
    let header = unsafe { (BUNDLE_BASE as *const FlatHeader).read() };
    let _ = unmap(BUNDLE_BASE, 1);
    Some((header, frame))
}
