//! Stacks of exos: one for each thread, so that a thread can block in the middle of a call, and one for each idle
//! processor.
//!
//! A stack lies in the window in a slot of its own, with an unmapped guard below it, so that one that runs over faults
//! instead of writing into another. Stacks are bound in groups, never unbound, and used again.

use aegis_abi::memory::{BindEntry, BindFlags};
use aegis_abi::types::SLOT_SELF;
use alloc::vec::Vec;
use exos::error::{Errno, Result};
use exos::sync::SpinMutex;

use super::{STACK_BASE, kernel};

/// Bytes of a stack.
pub(crate) const STACK_BYTES: u64 = 64 << 10;
/// From one stack to the next; what is not stack is guard.
const STRIDE_BYTES: u64 = 2 * STACK_BYTES;
/// Stacks that are bound at a time.
const GROUP_COUNT: u64 = 8;
/// Most stacks: every thread of a pod, and every processor.
const COUNT_MAX: u64 = 17_408;

struct Stacks {
    free: Vec<u64>,
    made_count: u64,
}

static STACKS: SpinMutex<Stacks> = SpinMutex::new(Stacks { free: Vec::new(), made_count: 0 });

/// A stack that is its holder's until it is dropped.
pub(crate) struct Stack {
    top: u64,
}

impl Stack {
    /// A stack with nothing of value on it. `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let mut stacks = STACKS.lock();
        if stacks.free.is_empty() {
            make_group(&mut stacks)?;
        }
        stacks.free.pop().map(|top| Self { top }).ok_or(Errno::ENOMEM)
    }

    /// One past its last byte.
    pub(crate) fn top(&self) -> u64 {
        self.top
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        STACKS.lock().free.push(self.top);
    }
}

/// Bytes of the stacks that somebody has.
pub(crate) fn used_bytes() -> u64 {
    let stacks = STACKS.lock();
    (stacks.made_count - stacks.free.len() as u64) * STACK_BYTES
}

fn make_group(stacks: &mut Stacks) -> Result<()> {
    if stacks.made_count + GROUP_COUNT > COUNT_MAX {
        return Err(Errno::ENOMEM);
    }
    stacks.free.try_reserve(COUNT_MAX as usize).map_err(|_| Errno::ENOMEM)?;
    let frame_count = STACK_BYTES / 4096;
    let grant = kernel::take_stack_frames(GROUP_COUNT * frame_count).map_err(|_| Errno::ENOMEM)?;
    for index in 0..GROUP_COUNT {
        let top = STACK_BASE + (stacks.made_count + 1) * STRIDE_BYTES;
        let frame = grant.first.0 + index * frame_count;
        let entry = BindEntry::map(top - STACK_BYTES, frame, frame_count as u32, grant.slot, BindFlags::WRITE);
        // SAFETY: this part of the window is used only here, and each slot once.
        unsafe { kernel::bind_all(SLOT_SELF, &[entry]) }.map_err(|_| Errno::ENOMEM)?;
        stacks.made_count += 1;
        stacks.free.push(top);
    }
    Ok(())
}
