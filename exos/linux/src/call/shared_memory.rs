//! System V shared memory: `shmget`, `shmat`, `shmdt`, `shmctl`.
//!
//! An attachment is an area (`exos::ipc::shared_memory`), so only the times of attaching and detaching are noted here.

use alloc::vec::Vec;
use core::ops::Range;

use exos::error::{Errno, Result};
use exos::ipc::shared_memory::{Attachment, Look};
use exos::mem::{AddressSpace, Placement};
use exos::task::limits::Resource;

use super::ipc_object::{
    Asker, IPC_INFO, IPC_RMID, IPC_SET, IPC_STAT, encode_ownership, id_of, making, read_ownership,
};
use crate::abi::bytes::Encoder;
use crate::abi::user_memory::write_all;
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;

entries! {
    shmget: "no huge pages";
    shmat;
    shmdt;
    shmctl;
}

/// `SHM_HUGETLB`.
const SHM_HUGETLB: u64 = 0o4000;

/// `shmget(2)`.
pub fn shmget(context: &mut Context<'_>, [key, bytes, flags, ..]: Arguments) -> Result<u64> {
    let asker = Asker::new(context);
    if flags & SHM_HUGETLB != 0 {
        // No pages are set aside for huge mappings, which is what this error says.
        return Err(Errno::ENOMEM);
    }
    let segments = &context.system.ipc.segments;
    let id = segments.get(&asker.caller(), key as u32 as i32, bytes, making(flags), flags as u32)?;
    Ok(id as u64)
}

/// `shmat(2)`.
pub fn shmat(context: &mut Context<'_>, [id, address, flags, ..]: Arguments) -> Result<u64> {
    const SHM_RDONLY: u64 = 0o10_000;
    const SHM_RND: u64 = 0o20_000;
    const SHM_REMAP: u64 = 0o40_000;
    const SHM_EXEC: u64 = 0o100_000;
    let asker = Asker::new(context);
    let (id, segments) = (id_of(id)?, &context.system.ipc.segments);
    let flags = Attachment {
        reads_only: flags & SHM_RDONLY != 0,
        rounds: flags & SHM_RND != 0,
        replaces: flags & SHM_REMAP != 0,
        executes: flags & SHM_EXEC != 0,
    };
    let caller = asker.caller();
    let request = segments.attach(&caller, id, address, flags)?;
    let (placement, length) = (request.placement, request.length);
    let mapped = context.process.space().lock().map(request).map_err(|error| match (placement, error) {
        (Placement::FixedNoReplace(_), Errno::EEXIST) => Errno::EINVAL,
        (Placement::FixedNoReplace(start), _) if start.checked_add(length).is_none() => Errno::EINVAL,
        (_, error) => error,
    })?;
    segments.note_attached(id, caller.pid, caller.now_s);
    Ok(mapped)
}

/// `shmdt(2)`.
pub fn shmdt(context: &mut Context<'_>, [address, ..]: Arguments) -> Result<u64> {
    if !address.is_multiple_of(4096) {
        return Err(Errno::EINVAL);
    }
    let asker = Asker::new(context);
    let id = {
        let space = context.process.space();
        let mut space = space.lock();
        let (id, ranges) = attachment_at(&space, address).ok_or(Errno::EINVAL)?;
        for range in ranges {
            space.unmap(range.start, range.end - range.start)?;
        }
        id
    };
    let caller = asker.caller();
    context.system.ipc.segments.note_detached(id, caller.pid, caller.now_s);
    Ok(0)
}

/// The segment that was attached at `address`, and what is left of that.
fn attachment_at(space: &AddressSpace, address: u64) -> Option<(i32, Vec<Range<u64>>)> {
    let parts = space.areas().filter_map(|area| {
        let is_there = area.start() >= address && area.start() - address == area.offset_bytes();
        let id = area.file().filter(|_| is_there)?.source.segment()?;
        Some((id, area.start()..area.end()))
    });
    let mut ranges = Vec::new();
    let mut first = None;
    for (id, range) in parts {
        if *first.get_or_insert(id) == id {
            ranges.push(range);
        }
    }
    first.map(|id| (id, ranges))
}

/// `shmctl(2)`.
pub fn shmctl(context: &mut Context<'_>, [id, command, buffer, ..]: Arguments) -> Result<u64> {
    const SHM_LOCK: u32 = 11;
    const SHM_UNLOCK: u32 = 12;
    const SHM_STAT: u32 = 13;
    const SHM_INFO: u32 = 14;
    const SHM_STAT_ANY: u32 = 15;
    let asker = Asker::new(context);
    let (id, caller, segments) = (id_of(id)?, asker.caller(), &context.system.ipc.segments);
    match command as u32 {
        IPC_RMID => segments.remove(&caller, id)?,
        IPC_SET => {
            let (uid, gid, mode) = read_ownership(context.memory, buffer)?;
            segments.set_owner(&caller, id, uid, gid, mode)?;
        }
        IPC_STAT => return status(context, id, Look::Number, buffer),
        SHM_STAT => return status(context, id, Look::Index, buffer),
        SHM_STAT_ANY => return status(context, id, Look::Any, buffer),
        IPC_INFO | SHM_INFO => return figures(context, command as u32 == IPC_INFO, buffer),
        SHM_LOCK | SHM_UNLOCK => {
            let may_lock = context.process.limits.lock().soft(Resource::LockedMemory) > 0;
            segments.set_locked(&caller, id, command as u32 == SHM_LOCK, may_lock)?;
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// `struct shmid64_ds`. Looked up by index, the number is the answer.
fn status(context: &Context<'_>, id: i32, look: Look, buffer: u64) -> Result<u64> {
    let asker = Asker::new(context);
    let status = context.system.ipc.segments.status(&asker.caller(), id, look)?;
    let bytes = encode_ownership(&status.ownership, status.id)
        .u64(status.bytes)
        .u64(status.attached_s)
        .u64(status.detached_s)
        .u64(status.changed_s)
        .u32(status.creator_pid)
        .u32(status.last_pid)
        .u64(status.attached_count)
        .zero_to(112)
        .finish();
    write_all(context.memory, buffer, &bytes)?;
    Ok(if look == Look::Number { 0 } else { status.id as u64 })
}

/// `struct shminfo64` or `struct shm_info`; the highest index in use.
fn figures(context: &Context<'_>, is_limits: bool, buffer: u64) -> Result<u64> {
    let figures = context.system.ipc.segments.figures();
    let limits = figures.limits;
    let bytes = if is_limits {
        let count = u64::from(limits.segment_count_max);
        let encoder = Encoder::new().u64(limits.segment_bytes_max).u64(1).u64(count).u64(count);
        encoder.u64(limits.page_count_max).zero_to(72).finish()
    } else {
        let encoder = Encoder::new().u32(figures.segment_count).u32(0).u64(figures.page_count);
        encoder.u64(figures.resident_count).zero_to(48).finish()
    };
    write_all(context.memory, buffer, &bytes)?;
    Ok(u64::from(figures.index_last))
}
