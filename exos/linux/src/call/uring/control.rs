//! Requests about other requests, about the ring's files and buffers, and about files of its table.

use alloc::sync::Arc;

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::reserve;

use super::prepare::{POLL_UPDATE_EVENTS, POLL_UPDATE_USER_DATA, read_time};
use crate::abi::linux::O_CLOEXEC;
use crate::abi::uring::{Sqe, cancel, opcode, sqe_flag, timeout};
use crate::abi::user_memory::{Extent, read_array};
use crate::call::context::Context;
use crate::call::file_descriptor::{close as close_descriptor, openat, openat2};
use crate::file::uring::requests::{Kept, Marks};
use crate::file::uring::{ProvidedBuffer, Ring};

/// `IORING_FILE_INDEX_ALLOC`: any place that is free.
const ANY_PLACE: u32 = u32::MAX;

/// `TIMEOUT_REMOVE`: removes a timeout, or gives it another time.
pub(super) fn remove_timeout(context: &Context<'_>, ring: &Arc<Ring>, sqe: &Sqe) -> Result<u64> {
    if sqe.call_flags & timeout::UPDATE == 0 {
        let is_meant = |marks: &Marks| marks.opcode == opcode::TIMEOUT && marks.user_data == sqe.address;
        return if ring.cancel(is_meant, false) > 0 { Ok(0) } else { Err(Errno::ENOENT) };
    }
    let Kept::Time { ns, is_point } = read_time(context, sqe.offset, sqe.call_flags)? else {
        return Err(Errno::EINVAL);
    };
    let deadline_ns = if is_point { ns } else { context.now_ns().saturating_add(ns) };
    let is_linked = sqe.call_flags & timeout::LINK_UPDATE != 0;
    if !ring.update_timeout(sqe.address, deadline_ns, is_linked) {
        return Err(Errno::ENOENT);
    }
    context.system.platform.arm_timer(Some(deadline_ns));
    Ok(0)
}

/// `POLL_REMOVE`: ends a poll. To change one is not there.
pub(super) fn remove_poll(_: &Context<'_>, ring: &Arc<Ring>, sqe: &Sqe) -> Result<u64> {
    let is_meant = |marks: &Marks| marks.opcode == opcode::POLL_ADD && marks.user_data == sqe.address;
    if sqe.length & (POLL_UPDATE_EVENTS | POLL_UPDATE_USER_DATA) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if ring.cancel(is_meant, false) > 0 { Ok(0) } else { Err(Errno::ENOENT) }
}

/// `ASYNC_CANCEL`.
pub(super) fn cancel(context: &Context<'_>, ring: &Arc<Ring>, sqe: &Sqe) -> Result<u64> {
    let is_all = sqe.call_flags & (cancel::ALL | cancel::ANY) != 0;
    let count = if sqe.call_flags & cancel::FD != 0 {
        let is_fixed = sqe.call_flags & cancel::FD_FIXED != 0 || sqe.has(sqe_flag::FIXED_FILE);
        let file = if is_fixed {
            ring.file(sqe.descriptor).ok_or(Errno::EBADF)?
        } else {
            context.process.files.get(sqe.descriptor.into())?
        };
        ring.cancel(|marks| marks.file == Some(file.number()), is_all)
    } else if sqe.call_flags & cancel::ANY != 0 {
        ring.cancel(|_| true, true)
    } else {
        let is_meant = |marks: &Marks| marks.user_data == sqe.address;
        if ring.is_under_way(is_meant) {
            return Err(Errno::EALREADY);
        }
        ring.cancel(is_meant, is_all)
    };
    match count {
        count if is_all => Ok(count.into()),
        0 => Err(Errno::ENOENT),
        _ => Ok(0),
    }
}

/// `PROVIDE_BUFFERS`.
pub(super) fn provide(ring: &Arc<Ring>, sqe: &Sqe) -> Result<u64> {
    for index in 0..u64::from(sqe.descriptor) {
        let address = sqe.address + index * u64::from(sqe.length);
        let extent = Extent { address, length: sqe.length.into() };
        let provided = ring.provide(sqe.buffer, ProvidedBuffer { extent, number: (sqe.offset + index) as u16 });
        match provided {
            Err(error) if index == 0 => return Err(error),
            Err(_) => break,
            Ok(()) => {}
        }
    }
    Ok(0)
}

/// A file for a ring's table. `EBADF`: a ring has no place there, or it is none.
pub(super) fn file_for_table(context: &Context<'_>, descriptor: u32) -> Result<Arc<Description>> {
    let file = context.process.files.get(descriptor.into())?;
    if file.is_path_only() || file.extension::<Ring>().is_some() {
        return Err(Errno::EBADF);
    }
    Ok(file)
}

/// `FILES_UPDATE`, and `IORING_REGISTER_FILES_UPDATE`: how many places were changed.
pub(super) fn update_files(
    context: &Context<'_>,
    ring: &Arc<Ring>,
    first: u64,
    address: u64,
    count: u64,
) -> Result<u64> {
    /// `IORING_REGISTER_FILES_SKIP`.
    const SKIP: u32 = -2_i32 as u32;
    let file_count = ring.registered().files.as_ref().map(alloc::vec::Vec::len).ok_or(Errno::ENXIO)?;
    if first.checked_add(count).is_none_or(|end| end > file_count as u64) {
        return Err(Errno::EINVAL);
    }
    for index in 0..count {
        let outcome = read_array(context.memory, address.wrapping_add(index * 4)).map(u32::from_le_bytes);
        let outcome = outcome.and_then(|descriptor| match descriptor {
            SKIP => Ok(()),
            u32::MAX => set_place(ring, (first + index) as u32, None).map(drop),
            descriptor => {
                let file = file_for_table(context, descriptor)?;
                set_place(ring, (first + index) as u32, Some(file)).map(drop)
            }
        });
        match outcome {
            Ok(()) => {}
            Err(error) if index == 0 => return Err(error),
            Err(_) => return Ok(index),
        }
    }
    Ok(count)
}

/// Puts a file into a place of the table, or empties it; what was there is dropped by the caller.
fn set_place(ring: &Arc<Ring>, index: u32, file: Option<Arc<Description>>) -> Result<Option<Arc<Description>>> {
    let mut registered = ring.registered();
    let files = registered.files.as_mut().ok_or(Errno::ENXIO)?;
    let place = files.get_mut(index as usize).ok_or(Errno::EINVAL)?;
    Ok(core::mem::replace(place, file))
}

/// What was made goes to a place of the ring's table, if one is named (`file_index`: one more than the place).
pub(super) fn install_made(context: &Context<'_>, ring: &Arc<Ring>, made: u64, file_index: u32) -> Result<u64> {
    if file_index == 0 {
        return Ok(made);
    }
    let file = context.process.files.table().remove(made as u32)?;
    if file_index != ANY_PLACE {
        return set_place(ring, file_index - 1, Some(file)).map(|before| {
            drop(before);
            0
        });
    }
    let mut registered = ring.registered();
    let files = registered.files.as_mut().ok_or(Errno::ENXIO)?;
    let index = files.iter().position(Option::is_none).ok_or(Errno::ENFILE)?;
    files[index] = Some(file);
    Ok(index as u64)
}

/// `OPENAT` and `OPENAT2`.
pub(super) fn open(context: &mut Context<'_>, ring: &Arc<Ring>, sqe: &Sqe) -> Result<u64> {
    reserve::check()?;
    let (directory, length) = (u64::from(sqe.descriptor), u64::from(sqe.length));
    let made = if sqe.opcode == opcode::OPENAT2 {
        openat2(context, [directory, sqe.address, sqe.offset, length, 0, 0])?
    } else {
        if sqe.file_index != 0 && u64::from(sqe.call_flags) & O_CLOEXEC != 0 {
            return Err(Errno::EINVAL);
        }
        openat(context, [directory, sqe.address, sqe.call_flags.into(), length, 0, 0])?
    };
    install_made(context, ring, made, sqe.file_index)
}

/// `CLOSE`.
pub(super) fn close(context: &mut Context<'_>, ring: &Arc<Ring>, sqe: &Sqe) -> Result<u64> {
    if sqe.file_index != 0 {
        let before = set_place(ring, sqe.file_index - 1, None)?;
        return before.map(|_| 0).ok_or(Errno::EBADF);
    }
    let descriptor = u64::from(sqe.descriptor);
    if context.process.files.get(descriptor)?.extension::<Ring>().is_some() {
        return Err(Errno::EBADF);
    }
    close_descriptor(context, [descriptor, 0, 0, 0, 0, 0])
}
