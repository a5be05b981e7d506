//! More virtual processors of this environment: they share all memory with the case, statics included.
//!
//! Thread `n` of a case uses the two case slots from `THREAD_SLOT_FIRST + 2 * n` on and a stretch of the scratch
//! area: control page, save area, and a stack outside the save area, as a program has.

use aegis_abi::CapSlot;
use aegis_abi::call::{ProcessorField, ProcessorState};
use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::memory::BindFlags;
use aegis_abi::types::SLOT_SELF;
use aegis_rt::call::{self, Outcome, Refusal};

use crate::memory::{THREAD_BASE, map, slot, take};
use crate::wait;

/// First case slot of threads; children are below.
const THREAD_SLOT_FIRST: u32 = 64;
const SAVE_AREA_FRAME_COUNT: u32 = 4;
const STACK_FRAME_COUNT: u32 = 4;
/// Pages of one thread: control page, gap, save area, gap, stack.
const STRETCH_PAGE_COUNT: u64 = 16;
const SAVE_AREA_PAGE: u64 = 2;
const STACK_PAGE: u64 = 8;

/// A virtual processor of this environment.
#[derive(Clone, Copy)]
pub(crate) struct Thread {
    pub(crate) processor: CapSlot,
    pub(crate) frames: CapSlot,
    base: u64,
}

impl Thread {
    /// Address of its control page.
    pub(crate) fn control_address(&self) -> u64 {
        self.base
    }

    /// One past its stack.
    pub(crate) fn stack_top(&self) -> u64 {
        self.base + (STACK_PAGE + u64::from(STACK_FRAME_COUNT)) * PAGE_SIZE
    }

    /// What it is doing, as [`ProcessorState`].
    pub(crate) fn state(&self) -> u64 {
        call::processor_read(self.processor, ProcessorField::State).unwrap_or(u64::MAX)
    }

    /// Waits until it is in a state.
    pub(crate) fn await_state(&self, state: ProcessorState) -> bool {
        wait::until(|| self.state() == state as u64)
    }
}

/// Makes thread number `number`.
pub(crate) fn make(number: u32) -> Result<Thread, Refusal> {
    let processor = slot(THREAD_SLOT_FIRST + 2 * number);
    let frames = slot(THREAD_SLOT_FIRST + 2 * number + 1);
    let base = THREAD_BASE + u64::from(number) * STRETCH_PAGE_COUNT * PAGE_SIZE;
    let first = take(frames, u64::from(1 + SAVE_AREA_FRAME_COUNT + STACK_FRAME_COUNT))?.0;
    let write = BindFlags::WRITE;
    let save_area_base = base + SAVE_AREA_PAGE * PAGE_SIZE;
    map(base, first, 1, frames, write)?;
    map(save_area_base, first + 1, SAVE_AREA_FRAME_COUNT, frames, write)?;
    let stack_frame = first + 1 + u64::from(SAVE_AREA_FRAME_COUNT);
    map(base + STACK_PAGE * PAGE_SIZE, stack_frame, STACK_FRAME_COUNT, frames, write)?;
    call::processor_create(processor, SLOT_SELF, frames, SAVE_AREA_FRAME_COUNT, base, save_area_base)?;
    Ok(Thread { processor, frames, base })
}

/// Starts a thread at `entry` on its own stack.
pub(crate) fn start(thread: &Thread, entry: extern "C" fn(u64) -> !, argument: u64) -> Outcome {
    // The entry is a function that was not called: its stack is misaligned by the missing return address.
    let rsp = thread.stack_top() - 8;
    // SAFETY: the thread has a stack of its own and runs a function of this program.
    unsafe { call::processor_start(thread.processor, entry as usize as u64, rsp, argument) }
}

/// Makes and starts a thread.
pub(crate) fn spawn(number: u32, entry: extern "C" fn(u64) -> !, argument: u64) -> Result<Thread, Refusal> {
    let thread = make(number)?;
    start(&thread, entry, argument)?;
    Ok(thread)
}
