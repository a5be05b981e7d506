//! Calls on memory that few programs make: advice on another process's pages (`process_madvise`, `process_mrelease`),
//! and pages of a shared mapping in another order (`remap_file_pages`), which is several mappings, as on Linux.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::mem::{AddressSpace, Advice, Area, AreaFlags, MapBacking, MapRequest, Placement};
use exos::preempt;
use exos::task::capability::Capability;

use super::pidfd;
use crate::abi::user_memory::read_extents;
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::process::Process;
use crate::task::tracing::{Rights, may_trace_by};

entries! {
    process_madvise: "hints have no effect";
    process_mrelease;
    remap_file_pages;
}

const PAGE_BYTES: u64 = 4096;
/// `MADV_WILLNEED`, `MADV_COLD`, `MADV_PAGEOUT`, `MADV_COLLAPSE`: what one may say of another's memory.
const ADVICE_TO_OTHERS: [u64; 4] = [3, 20, 21, 25];

/// The process that a descriptor names, whose memory is still there. `EBADF`, `ESRCH`.
fn with_memory(context: &Context<'_>, descriptor: u64) -> Result<Arc<Process>> {
    let (_, process) = pidfd::named(context, descriptor)?;
    if process.is_zombie.load(Ordering::Acquire) { Err(Errno::ESRCH) } else { Ok(process) }
}

/// `process_madvise(2)`: what is said is looked at, and changes nothing. Ranges before one that is wrong count.
pub fn process_madvise(
    context: &mut Context<'_>,
    [descriptor, extents, count, advice, flags, _]: Arguments,
) -> Result<u64> {
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let extents = read_extents(context.memory, extents, count)?;
    let process = with_memory(context, descriptor)?;
    if !ADVICE_TO_OTHERS.contains(&u64::from(advice as u32)) {
        return Err(Errno::EINVAL);
    }
    if !may_trace_by((context.process, context.thread), Rights::ForFiles, &process) {
        return Err(Errno::EACCES);
    }
    if !context.can(Capability::SYS_NICE) {
        return Err(Errno::EPERM);
    }
    let space = process.space();
    let mut done = 0;
    for extent in &extents {
        match space.lock().advise(extent.address, extent.length, Advice::Hint) {
            Ok(()) => done += extent.length,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        if preempt::unless_killed().is_err() {
            break;
        }
    }
    Ok(done)
}

/// `process_mrelease(2)`: the memory of a process that is ending goes by itself.
pub fn process_mrelease(context: &mut Context<'_>, [descriptor, flags, ..]: Arguments) -> Result<u64> {
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let process = with_memory(context, descriptor)?;
    if process.has_ended() { Ok(0) } else { Err(Errno::EINVAL) }
}

/// The shared mapping that covers a range, which may be several that lie end to end and show the same file alike.
/// `EINVAL`.
fn shared_over(space: &AddressSpace, start: u64, end: u64) -> Result<Area> {
    let first = space.area_at(start).filter(|area| area.is_shared()).ok_or(Errno::EINVAL)?;
    let mut covered = first.end();
    for next in space.areas_from(covered) {
        if covered >= end {
            break;
        }
        let is_alike = next.is_shared()
            && next.identity() == first.identity()
            && next.protection() == first.protection()
            && next.flags() == first.flags();
        if next.start() != covered || !is_alike {
            return Err(Errno::EINVAL);
        }
        covered = next.end();
    }
    if covered >= end { Ok(first.clone()) } else { Err(Errno::EINVAL) }
}

/// `remap_file_pages(2)`.
pub fn remap_file_pages(
    context: &mut Context<'_>,
    [address, length, protection, first_page, _, _]: Arguments,
) -> Result<u64> {
    let (start, length) = (address & !(PAGE_BYTES - 1), length & !(PAGE_BYTES - 1));
    let end = start.checked_add(length).filter(|end| *end > start).ok_or(Errno::EINVAL)?;
    let is_too_far = first_page.checked_add(length / PAGE_BYTES).is_none_or(|last| last > i64::MAX as u64 / PAGE_BYTES);
    if protection != 0 || is_too_far {
        return Err(Errno::EINVAL);
    }
    let memory = context.process.space();
    let mut space = memory.lock();
    let area = shared_over(&space, start, end)?;
    let source = area.file().map(|file| Arc::clone(&file.source)).ok_or(Errno::EINVAL)?;
    space.map(MapRequest {
        placement: Placement::Fixed(start),
        length,
        protection: area.protection(),
        is_shared: true,
        flags: area.flags() & (AreaFlags::LOCKED | AreaFlags::NO_RESERVE),
        populate: true,
        backing: MapBacking::File {
            source,
            offset_bytes: first_page * PAGE_BYTES,
            is_readable: true,
            is_writable: area.takes_stores(),
        },
        label: area.label(),
    })?;
    Ok(0)
}
