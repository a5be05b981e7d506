//! Child environments for cases: same code, own memory.
//!
//! A child runs a function of this program in an environment of its own: the image's read-only segments are mapped there, writable ones
//! are not, so child code uses its stack and its argument only. Slots 0..[`CHILD_SLOT_COUNT`] of the case slots from `base` on are used.

use aegis_abi::boot::{FLAT_EXECUTE, FLAT_WRITE};
use aegis_abi::layout::{FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE, PAGE_SIZE};
use aegis_abi::memory::BindFlags;
use aegis_abi::types::{SLOT_BUNDLE, SLOT_MACHINE};
use aegis_abi::{CapSlot, Rights};
use aegis_rt::call::{self, Refusal};

use crate::memory::{bind_in, map_entry, own_image, slot, take};
use crate::suite::Machine;

/// Case slots that one child uses.
pub(crate) const CHILD_SLOT_COUNT: u32 = 5;
/// Slot in the child: the machine, to write to the log.
pub(crate) const CHILD_LOG: CapSlot = SLOT_MACHINE;
/// First slot in the child's table that the parent may fill.
pub(crate) const CHILD_SLOT_FREE: CapSlot = CapSlot(8);
/// Frames of a child's save area.
const SAVE_AREA_FRAME_COUNT: u32 = 4;
/// Frames that pay for a child's tables.
const TABLE_FRAME_COUNT: u64 = 48;

/// A child that was made.
#[derive(Clone, Copy)]
pub(crate) struct Child {
    /// Its environment.
    pub(crate) environment: CapSlot,
    /// Its processor.
    pub(crate) processor: CapSlot,
    /// The frames of its control page and save area.
    pub(crate) frames: CapSlot,
    /// The first of those frames.
    pub(crate) control_frame: u64,
}

/// Makes a child environment with `frame_quota`, ready to be started. Uses the case slots `base..base + CHILD_SLOT_COUNT`.
pub(crate) fn make(machine: &Machine, base: u32, frame_quota: u64) -> Result<Child, Refusal> {
    let child = Child {
        environment: slot(base),
        processor: slot(base + 1),
        frames: slot(base + 2),
        control_frame: 0,
    };
    let tables = slot(base + 3);
    take(tables, TABLE_FRAME_COUNT)?;
    call::environment_create(child.environment, tables, frame_quota)?;
    let first = take(child.frames, u64::from(1 + SAVE_AREA_FRAME_COUNT))?.0;
    let writable = BindFlags::WRITE;
    bind_in(child.environment, map_entry(FIRST_CONTROL_BASE, first, 1, child.frames, writable))?;
    bind_in(
        child.environment,
        map_entry(FIRST_SAVE_AREA_BASE, first + 1, SAVE_AREA_FRAME_COUNT, child.frames, writable),
    )?;
    if let Some((header, image_frame)) = own_image(machine) {
        for segment in header.segments.iter().take(header.segment_count as usize) {
            if segment.flags & FLAT_WRITE != 0 {
                continue;
            }
            let flags =
                if segment.flags & FLAT_EXECUTE != 0 { BindFlags::EXECUTE } else { BindFlags::empty() };
            let frame = image_frame + u64::from(segment.page_offset);
            let entry = map_entry(segment.virtual_address, frame, segment.page_count, SLOT_BUNDLE, flags);
            bind_in(child.environment, entry)?;
        }
    }
    call::processor_create(
        child.processor,
        child.environment,
        child.frames,
        SAVE_AREA_FRAME_COUNT,
        FIRST_CONTROL_BASE,
        FIRST_SAVE_AREA_BASE,
    )?;
    call::cap_grant(SLOT_MACHINE, child.environment, CHILD_LOG, Rights::LOG)?;
    Ok(Child { control_frame: first, ..child })
}

/// Starts the child at `entry` with `argument` in RDI.
pub(crate) fn start(child: &Child, entry: extern "C" fn(u64) -> !, argument: u64) -> call::Outcome {
    let top = FIRST_SAVE_AREA_BASE + u64::from(SAVE_AREA_FRAME_COUNT) * PAGE_SIZE;
    // The entry is a function that was not called: its stack is misaligned by the missing return address.
    // SAFETY: the child has memory of its own.
    unsafe { call::processor_start(child.processor, entry as usize as u64, top - 8, argument) }
}
