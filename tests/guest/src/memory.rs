//! Memory for cases: scratch frames and addresses that are given back when a case is over.

use aegis_abi::boot::{BUNDLE_MAGIC, BundleHeader, FlatHeader, PART_CONFIG, PART_INIT};
use aegis_abi::layout::{LIBOS_BASE, PAGE_SIZE};
use aegis_abi::memory::{BindEntry, BindFlags, BindOperation};
use aegis_abi::types::{SLOT_BUNDLE, SLOT_SELF};
use aegis_abi::{CapSlot, FrameNumber, Status};
use aegis_rt::call::{self, Outcome};

use crate::suite::Machine;

/// Slots below this one are looked at by the leak check.
pub(crate) const SLOT_SCAN_COUNT: u32 = 256;
/// First slot that cases may use; the others up to `SLOT_SCAN_COUNT` follow.
pub(crate) const SLOT_CASE_FIRST: u32 = 128;
/// Where cases map things: nothing else is there.
pub(crate) const SCRATCH_BASE: u64 = LIBOS_BASE + (200 << 30);
/// Pages from `SCRATCH_BASE` that are unmapped after each case.
const SCRATCH_PAGE_COUNT: u32 = 2048;
/// Where the bundle's head is mapped for reading.
const BUNDLE_BASE: u64 = LIBOS_BASE + (190 << 30);

/// Case slot number `index`.
pub(crate) const fn slot(index: u32) -> CapSlot {
    CapSlot(SLOT_CASE_FIRST + index)
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

/// A map entry.
pub(crate) fn map_entry(address: u64, frame: u64, page_count: u32, slot: CapSlot, flags: BindFlags) -> BindEntry {
    BindEntry {
        operation: BindOperation::Map as u32,
        flags: flags.bits(),
        virtual_address: address,
        frame,
        page_count,
        slot: slot.0,
    }
}

/// Maps into our own space.
pub(crate) fn map(address: u64, frame: u64, page_count: u32, slot: CapSlot, flags: BindFlags) -> Outcome {
    bind_in(SLOT_SELF, map_entry(address, frame, page_count, slot, flags))
}

/// Unmaps from our own space.
pub(crate) fn unmap(address: u64, page_count: u32) -> Outcome {
    bind_in(
        SLOT_SELF,
        BindEntry {
            operation: BindOperation::Unmap as u32,
            virtual_address: address,
            page_count,
            ..BindEntry::default()
        },
    )
}

/// Takes `count` frames into a slot.
pub(crate) fn take(slot: CapSlot, count: u64) -> Result<FrameNumber, call::Refusal> {
    call::frame_allocate(slot, count, None, 0).map(FrameNumber)
}

/// Gives back everything that a case may have left behind: scratch mappings, then its slots.
pub(crate) fn release_scratch() {
    let _ = unmap(SCRATCH_BASE, SCRATCH_PAGE_COUNT);
    for pass in 0..3 {
        for number in SLOT_CASE_FIRST..SLOT_SCAN_COUNT {
            release(CapSlot(number), pass);
        }
    }
}

/// Gives back one slot. First pass: environments and processors end; later passes: the rest goes.
fn release(slot: CapSlot, pass: u32) {
    let Ok(word) = call::cap_read(slot, 0) else { return };
    // SAFETY: case slots name nothing that this program needs.
    unsafe {
        match (word & 0xffff_ffff, pass) {
            (0, _) => return,
            (2, 0) => repeat(|| call::environment_destroy(slot)),
            (3, 1) => {
                let _ = call::processor_stop(slot);
                let _ = call::processor_destroy(slot);
            }
            (1, 2) => {
                repeat(|| call::cap_revoke(slot));
                let _ = call::frame_free(slot);
            }
            _ => {}
        }
        if pass == 2 {
            repeat(|| call::cap_revoke(slot));
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
    let Some((frame, length)) = part(machine, PART_CONFIG) else { return &[] };
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
