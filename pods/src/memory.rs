//! Frames of the bundle and of pods to be, shown in the manager's own window while they are looked at or filled.
//!
//! Two places: [`BUNDLE_BASE`], where the parts that are read stay mapped at their offsets, and [`WORK_BASE`], where
//! new frames are mapped for writing and unmapped again, so that nothing of a running pod can be reached from here.
#![allow(unsafe_code, reason = "the manager maps its own memory")]

use aegis_abi::layout::{LIBOS_BASE, PAGE_SIZE};
use aegis_abi::memory::{BIND_PAGE_COUNT_MAX, BindEntry, BindFlags};
use aegis_abi::types::{SLOT_BUNDLE, SLOT_SELF};
use aegis_abi::{CapSlot, Status};
use aegis_rt::call::{self, Outcome, Refusal};
use core::sync::atomic::{AtomicBool, Ordering};

/// Where the bundle's parts are shown.
const BUNDLE_BASE: u64 = LIBOS_BASE + (1 << 32);
/// Where frames are shown that are being filled.
const WORK_BASE: u64 = LIBOS_BASE + (2 << 40);

/// Our slot for frames on their way to our tables.
const SLOT_DONATION: CapSlot = CapSlot(102);
/// Frames given at a time.
const DONATION_FRAME_COUNT: u64 = 32;

/// Repeats a call for as long as only a bounded part of it is done, or our tables have no room for what it makes.
pub(crate) fn repeat(mut call: impl FnMut() -> Outcome) -> Outcome {
    loop {
        match call() {
            Err(refusal) if refusal.status == Status::Again => {}
            Err(refusal) if refusal.status == Status::NoTables => {
                call::frame_allocate(SLOT_DONATION, DONATION_FRAME_COUNT, None, 0)?;
                call::frame_donate(SLOT_DONATION, SLOT_SELF)?;
            }
            other => return other,
        }
    }
}

/// Maps a range in `environment`, which is ours or does not run yet.
pub(crate) fn map(
    environment: CapSlot,
    address: u64,
    frame: u64,
    page_count: u64,
    slot: CapSlot,
    flags: BindFlags,
) -> Result<(), Refusal> {
    let step = u64::from(BIND_PAGE_COUNT_MAX);
    for first in (0..page_count).step_by(step as usize) {
        let count = (page_count - first).min(step) as u32;
        let entry = BindEntry::map(address + first * PAGE_SIZE, frame + first, count, slot, flags);
        // SAFETY: addresses of another environment are none of Rust's; ours are in the two places above, where no
        // reference lives longer than its mapping.
        repeat(|| unsafe { call::bind(environment, &[entry]) })?;
    }
    Ok(())
}

/// The bundle, as far as it is looked at.
#[derive(Clone, Copy)]
pub(crate) struct Bundle {
    pub(crate) frame: u64,
    pub(crate) frame_count: u64,
}

impl Bundle {
    /// The bytes at an offset of whole pages, mapped for good.
    pub(crate) fn bytes(&self, offset_bytes: u64, length_bytes: u64) -> Result<&'static [u8], Refusal> {
        let address = BUNDLE_BASE + offset_bytes;
        let page_count = length_bytes.div_ceil(PAGE_SIZE);
        map(SLOT_SELF, address, self.frame + offset_bytes / PAGE_SIZE, page_count, SLOT_BUNDLE, BindFlags::empty())?;
        // SAFETY: just mapped, never unmapped, and nobody writes these parts: the manager itself runs in another, and
        // pods have copies of what they write.
        Ok(unsafe { core::slice::from_raw_parts(address as *const u8, length_bytes as usize) })
    }
}

/// Frames of ours have become free: those that are taken now may have been a pod's to write, and the kernel clears only
/// what comes from somebody else.
static HAS_FREED: AtomicBool = AtomicBool::new(false);

/// Takes frames that hold nothing: the first.
pub(crate) fn take_clear(slot: CapSlot, count: u64) -> Outcome {
    let first = repeat(|| call::frame_allocate(slot, count, None, 0))?;
    if HAS_FREED.load(Ordering::Relaxed) {
        fill(slot, first, count, |bytes| bytes.fill(0))?;
    }
    Ok(first)
}

/// Drops a capability of ours that nothing is mapped by any more, if there is one.
pub(crate) fn drop_slot(slot: CapSlot) -> Result<(), Refusal> {
    if call::cap_read(slot, 0).is_ok() {
        HAS_FREED.store(true, Ordering::Relaxed);
        // SAFETY: the caller's promise; so nothing of ours goes.
        repeat(|| unsafe { call::cap_drop(slot) })?;
    }
    Ok(())
}

/// Fills frames that `slot` covers: `write` gets them as bytes.
pub(crate) fn fill<T>(
    slot: CapSlot,
    frame: u64,
    page_count: u64,
    write: impl FnOnce(&mut [u8]) -> T,
) -> Result<T, Refusal> {
    map(SLOT_SELF, WORK_BASE, frame, page_count, slot, BindFlags::WRITE)?;
    // SAFETY: just mapped, the only mapping of frames that are new, and the reference ends with the closure.
    let bytes = unsafe { core::slice::from_raw_parts_mut(WORK_BASE as *mut u8, (page_count * PAGE_SIZE) as usize) };
    let value = write(bytes);
    unmap(WORK_BASE, page_count)?;
    Ok(value)
}

/// Unmaps a range of ours that nothing refers to any more.
pub(crate) fn unmap(address: u64, page_count: u64) -> Result<(), Refusal> {
    for first in (0..page_count).step_by(BIND_PAGE_COUNT_MAX as usize) {
        let count = (page_count - first).min(u64::from(BIND_PAGE_COUNT_MAX)) as u32;
        // SAFETY: the caller's promise; there is no Rust object in the places of this module and of `guard`.
        repeat(|| unsafe { call::bind(SLOT_SELF, &[BindEntry::unmap(address + first * PAGE_SIZE, count)]) })?;
    }
    Ok(())
}
