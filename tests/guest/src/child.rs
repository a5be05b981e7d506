//! Child environments for cases: same code, own memory.
//!
//! A child runs a function of this program in an environment of its own. The image is mapped there, its writable
//! segments read-only (they hold relocated tables), so child code writes only to its stack and to the page that it
//! shares with its parent. Child `n` of a case uses the case slots from `n * CHILD_SLOT_COUNT` on.

use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::boot::FLAT_EXECUTE;
use aegis_abi::call::EnvironmentField;
use aegis_abi::layout::{FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE, LIBOS_BASE, PAGE_SIZE};
use aegis_abi::memory::{BindEntry, BindFlags};
use aegis_abi::types::{SLOT_BUNDLE, SLOT_MACHINE};
use aegis_abi::{CapSlot, Rights};
use aegis_rt::call::{self, Outcome, Refusal};

use crate::memory::{bind_in, map, own_image, slot, take};
use crate::suite::Machine;
use crate::wait;

/// Case slots that one child uses.
pub(crate) const CHILD_SLOT_COUNT: u32 = 5;
/// Slot in the child: the frames of its control page and save area.
pub(crate) const CHILD_FRAMES: CapSlot = CapSlot(4);
/// Slot in the child: the bundle.
const CHILD_BUNDLE: CapSlot = CapSlot(5);
/// Slot in the child: the frame that it shares with its parent.
pub(crate) const CHILD_SHARED: CapSlot = CapSlot(6);
/// First slot in the child's table that the parent may fill.
pub(crate) const CHILD_SLOT_FREE: CapSlot = CapSlot(8);
/// Where the child sees the shared page.
pub(crate) const CHILD_SHARED_BASE: u64 = LIBOS_BASE + (1 << 30);
/// Where child code may map things.
pub(crate) const CHILD_SCRATCH_BASE: u64 = LIBOS_BASE + (2 << 30);
/// Frames of a child's save area, which is its stack.
const SAVE_AREA_FRAME_COUNT: u32 = 8;
/// Frames that pay for a child's tables.
const TABLE_FRAME_COUNT: u64 = 32;

/// The page that parent and child share: words with meanings that each case gives them.
#[repr(C)]
pub(crate) struct Shared {
    pub(crate) words: [AtomicU64; 512],
}

impl Shared {
    /// Word `index`.
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::SeqCst)
    }

    /// Sets word `index`.
    pub(crate) fn set(&self, index: usize, value: u64) {
        self.words[index].store(value, Ordering::SeqCst);
    }

    /// Adds one to word `index`.
    pub(crate) fn increment(&self, index: usize) -> u64 {
        self.words[index].fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// A child that was made.
#[derive(Clone, Copy)]
pub(crate) struct Child {
    pub(crate) environment: CapSlot,
    pub(crate) processor: CapSlot,
    /// The frames of its control page and save area.
    pub(crate) frames: CapSlot,
    /// The frame that is shared with it.
    pub(crate) shared_slot: CapSlot,
    /// The first of the frames in `frames`.
    pub(crate) control_frame: u64,
    /// The shared page, as the parent sees it.
    pub(crate) shared: &'static Shared,
}

/// Makes child number `number` with `frame_quota`, ready to be started, and lets it write to the log.
pub(crate) fn make(machine: &Machine, number: u32, frame_quota: u64) -> Result<Child, Refusal> {
    let child = make_silent(machine, number, frame_quota)?;
    call::cap_grant(SLOT_MACHINE, child.environment, SLOT_MACHINE, Rights::LOG)?;
    Ok(child)
}

/// As [`make`], without the log.
pub(crate) fn make_silent(machine: &Machine, number: u32, frame_quota: u64) -> Result<Child, Refusal> {
    let base = number * CHILD_SLOT_COUNT;
    let [environment, processor, frames, tables, shared_slot] = core::array::from_fn(|index| slot(base + index as u32));
    take(tables, TABLE_FRAME_COUNT)?;
    call::environment_create(environment, tables, frame_quota)?;
    let control_frame = take(frames, u64::from(1 + SAVE_AREA_FRAME_COUNT))?.0;
    let shared_frame = take(shared_slot, 1)?.0;
    let shared_address = crate::memory::SHARED_BASE + u64::from(number) * PAGE_SIZE;
    map(shared_address, shared_frame, 1, shared_slot, BindFlags::WRITE)?;
    let writable = Rights::READ | Rights::WRITE;
    call::cap_grant(frames, environment, CHILD_FRAMES, writable)?;
    call::cap_grant(shared_slot, environment, CHILD_SHARED, writable)?;
    call::cap_grant(SLOT_BUNDLE, environment, CHILD_BUNDLE, Rights::READ | Rights::EXECUTE)?;
    let write = BindFlags::WRITE;
    bind_in(environment, BindEntry::map(FIRST_CONTROL_BASE, control_frame, 1, frames, write))?;
    bind_in(
        environment,
        BindEntry::map(FIRST_SAVE_AREA_BASE, control_frame + 1, SAVE_AREA_FRAME_COUNT, frames, write),
    )?;
    bind_in(environment, BindEntry::map(CHILD_SHARED_BASE, shared_frame, 1, shared_slot, write))?;
    map_image(machine, environment)?;
    call::processor_create(
        processor,
        environment,
        frames,
        SAVE_AREA_FRAME_COUNT,
        FIRST_CONTROL_BASE,
        FIRST_SAVE_AREA_BASE,
    )?;
    // SAFETY: mapped above, for as long as the case lasts; zeroed frames are valid words.
    let shared = unsafe { &*(shared_address as *const Shared) };
    Ok(Child { environment, processor, frames, shared_slot, control_frame, shared })
}

fn map_image(machine: &Machine, environment: CapSlot) -> Result<(), Refusal> {
    let Some((header, image_frame)) = own_image(machine) else {
        return Ok(());
    };
    for segment in header.segments.iter().take(header.segment_count as usize) {
        let executable = segment.flags & FLAT_EXECUTE != 0;
        let flags = if executable { BindFlags::EXECUTE } else { BindFlags::empty() };
        let frame = image_frame + u64::from(segment.page_offset);
        let address = segment.virtual_address;
        bind_in(environment, BindEntry::map(address, frame, segment.page_count, SLOT_BUNDLE, flags))?;
    }
    Ok(())
}

/// What child code runs: the argument comes from [`start`].
pub(crate) type ChildMain = extern "C" fn(u64) -> !;

/// Starts the child at `entry` with `argument` in RDI.
pub(crate) fn start(child: &Child, entry: ChildMain, argument: u64) -> Outcome {
    // The entry is a function that was not called: its stack is misaligned by the missing return address.
    start_at(child, entry as usize as u64, stack_top() - 8, argument)
}

/// Starts the child anywhere.
pub(crate) fn start_at(child: &Child, rip: u64, rsp: u64, argument: u64) -> Outcome {
    // SAFETY: the child has memory of its own.
    unsafe { call::processor_start(child.processor, rip, rsp, argument) }
}

/// One past the child's save area.
pub(crate) const fn stack_top() -> u64 {
    FIRST_SAVE_AREA_BASE + SAVE_AREA_FRAME_COUNT as u64 * PAGE_SIZE
}

/// Waits until the kernel has stopped the child; the reason, 0 if that does not happen.
pub(crate) fn await_stop(child: &Child) -> u64 {
    let read = || call::environment_read(child.environment, EnvironmentField::Stopped);
    wait::until(|| read() != Ok(0));
    read().unwrap_or(0)
}

/// Waits until word `index` of the shared page is at least `value`.
pub(crate) fn await_word(child: &Child, index: usize, value: u64) -> bool {
    wait::until(|| child.shared.get(index) >= value)
}

/// In the child: the shared page.
pub(crate) fn shared() -> &'static Shared {
    // SAFETY: the parent mapped the page before it started the child; cases that take it away do not use it
    // afterwards.
    unsafe { &*(CHILD_SHARED_BASE as *const Shared) }
}
