//! The words of program memory that threads wait on: their keys, and what a thread that ends does with those it holds.
//!
//! The queues are `exos::task::futex`, the calls `crate::call::futex`.

use alloc::sync::Arc;

use aegis_abi::layout::PROGRAM_END;
use exos::error::{Errno, Result};
use exos::mem::{Access, Wait};
use exos::task::futex::{FutexKey, MATCH_ANY};
use exos::task::lock::{OWNER, OWNER_DIED, WAITERS};

use crate::abi::user_memory::read_array;
use crate::task::caller::Caller;
use crate::task::process::Process;
use crate::task::system::System;

/// Robust mutexes that one thread's end looks at (`ROBUST_LIST_LIMIT`).
const ROBUST_COUNT_MAX: usize = 2048;

/// The word at `address`, which only this process uses.
#[inline]
pub(crate) fn private_key(process: &Process, address: u64) -> Result<FutexKey> {
    if !address.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    if address >= PROGRAM_END {
        return Err(Errno::EFAULT);
    }
    Ok(FutexKey::private(process.space_number(), address))
}

/// The word at `address`; shared if its memory is, unless the program says that nobody else uses it. `EFAULT`.
pub(crate) fn key_of(process: &Process, address: u64, is_private: bool) -> Result<FutexKey> {
    let private = private_key(process, address)?;
    if is_private {
        return Ok(private);
    }
    let space = process.space();
    let mut inner = space.lock();
    let area = inner.area_at(address).filter(|area| !area.protection().is_empty()).ok_or(Errno::EFAULT)?;
    if !area.is_shared() {
        // A waiter on a private word does not meet one on the same word as a shared one, on Linux either. No word has
        // an odd address.
        return Ok(FutexKey::private(process.space_number(), address | 1));
    }
    let frame = inner.frame_for(address, Access::Read, Wait::Allowed).map_err(|_| Errno::EFAULT)?;
    Ok(FutexKey::shared(frame.address() + address % 4096))
}

/// Wakes waiters of the word at `address`, private or shared.
pub fn wake_address(system: &Arc<System>, process: &Process, address: u64, count: usize) {
    for is_private in [true, false] {
        if let Ok(key) = key_of(process, address, is_private) {
            system.futexes.wake(key, count, MATCH_ANY);
        }
    }
}

/// Marks the robust mutexes of a thread that ends, and wakes a waiter of each. Whatever the program left there is
/// believed only as far as it can be read.
pub fn release_robust(target: &Caller<'_>) {
    let (head, _) = core::mem::take(&mut *target.thread.robust_list.lock());
    if head != 0 {
        let _ = walk_robust(target, head);
    }
}

fn walk_robust(target: &Caller<'_>, head: u64) -> Result<()> {
    let word = |address: u64| Ok::<u64, Errno>(u64::from_le_bytes(read_array(target.memory, address)?));
    let offset = word(head.wrapping_add(8))?;
    let pending = word(head.wrapping_add(16))?;
    let mut entry = word(head)?;
    for _ in 0..ROBUST_COUNT_MAX {
        if entry & !1 == head {
            break;
        }
        // Read before the mutex is given away: its memory is somebody else's then.
        let next = word(entry & !1)?;
        if entry != pending {
            release_one(target, (entry & !1).wrapping_add(offset))?;
        }
        entry = next;
    }
    if pending != 0 { release_one(target, (pending & !1).wrapping_add(offset)) } else { Ok(()) }
}

fn release_one(target: &Caller<'_>, address: u64) -> Result<()> {
    let tid = target.thread.tid();
    let before = target
        .process
        .space()
        .update_u32(address, |word| Ok(if word & OWNER == tid { word & WAITERS | OWNER_DIED } else { word }))?;
    if before & OWNER == tid && before & WAITERS != 0 {
        wake_address(target.system, target.process, address, 1);
    }
    Ok(())
}
