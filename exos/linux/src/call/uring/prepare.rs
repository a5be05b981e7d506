//! What a request may say: what Linux checks before it begins one (`io_init_req` and the `prep` of each operation). An
//! error here ends the submission with the request that has it; what goes wrong later is its completion's alone.
//!
//! What is read of the program's memory here, the program may change as soon as the call has returned.

use alloc::sync::Arc;

use exos::error::{Errno, Result};

use crate::abi::time::read_timespec;
use crate::abi::uring::{Sqe, cancel, opcode, sqe_flag, timeout};
use crate::call::context::Context;
use crate::file::uring::Ring;
use crate::file::uring::requests::{Kept, Request};

/// `IORING_POLL_ADD_MULTI`, `IORING_POLL_UPDATE_EVENTS`, `IORING_POLL_UPDATE_USER_DATA`.
pub(super) const POLL_MULTI: u32 = 1;
/// See above.
pub(super) const POLL_UPDATE_EVENTS: u32 = 2;
/// See above.
pub(super) const POLL_UPDATE_USER_DATA: u32 = 4;
/// `IORING_ACCEPT_MULTISHOT`.
pub(super) const ACCEPT_MULTI: u16 = 1;
/// `IORING_RECVSEND_POLL_FIRST`, `IORING_RECV_MULTISHOT`.
pub(super) const POLL_FIRST: u16 = 1;
/// See above.
pub(super) const RECEIVE_MULTI: u16 = 2;

/// Whether an operation is about an open file.
pub(super) fn has_file(operation: u8) -> bool {
    matches!(
        operation,
        opcode::READV
            | opcode::WRITEV
            | opcode::FSYNC
            | opcode::READ_FIXED
            | opcode::WRITE_FIXED
            | opcode::POLL_ADD
            | opcode::SYNC_FILE_RANGE
            | opcode::SENDMSG
            | opcode::RECVMSG
            | opcode::ACCEPT
            | opcode::CONNECT
            | opcode::FALLOCATE
            | opcode::READ
            | opcode::WRITE
            | opcode::FADVISE
            | opcode::SEND
            | opcode::RECV
            | opcode::SHUTDOWN
    )
}

/// Checks a request. `EINVAL`: it says what means nothing; and what Linux says of each operation.
pub(super) fn prepare(context: &Context<'_>, ring: &Arc<Ring>, request: &mut Request) -> Result<()> {
    let sqe = &request.sqe;
    if !opcode::ALL.contains(&sqe.opcode) || sqe.has(!sqe_flag::ALL) || sqe.personality != 0 {
        return Err(Errno::EINVAL);
    }
    let selects = matches!(sqe.opcode, opcode::READ | opcode::RECV | opcode::READV | opcode::RECVMSG);
    if sqe.has(sqe_flag::BUFFER_SELECT) && !selects {
        return Err(Errno::EOPNOTSUPP);
    }
    if sqe.has(sqe_flag::CQE_SKIP_SUCCESS) && sqe.has(sqe_flag::DRAIN) {
        return Err(Errno::EINVAL);
    }
    check_fields(ring, sqe)?;
    if matches!(sqe.opcode, opcode::TIMEOUT | opcode::LINK_TIMEOUT) {
        request.kept = read_time(context, sqe.address, sqe.call_flags)?;
    }
    Ok(())
}

/// A time and what it is by `flags`.
pub(super) fn read_time(context: &Context<'_>, address: u64, flags: u32) -> Result<Kept> {
    let ns = read_timespec(context.memory, address)?;
    if flags & timeout::ABS == 0 {
        return Ok(Kept::Time { ns, is_point: false });
    }
    let ns = match flags & timeout::REALTIME {
        0 => ns,
        _ => context.now_ns().saturating_add(ns.saturating_sub(context.system.realtime_ns())),
    };
    Ok(Kept::Time { ns, is_point: true })
}

/// Refuses fields that are not the operation's.
fn none_of(fields: &[u64]) -> Result<()> {
    if fields.iter().all(|field| *field == 0) { Ok(()) } else { Err(Errno::EINVAL) }
}

fn check_fields(ring: &Arc<Ring>, sqe: &Sqe) -> Result<()> {
    let (offset, address, length) = (sqe.offset, sqe.address, u64::from(sqe.length));
    let (buffer, file_index, call_flags) =
        (u64::from(sqe.buffer), u64::from(sqe.file_index), u64::from(sqe.call_flags));
    let is_fixed = sqe.has(sqe_flag::FIXED_FILE);
    match sqe.opcode {
        opcode::READ_FIXED | opcode::WRITE_FIXED => {
            let registered = ring.registered();
            let count = registered.buffers.as_ref().map_or(0, |buffers| buffers.len());
            if (buffer as usize) < count { Ok(()) } else { Err(Errno::EFAULT) }
        }
        opcode::FSYNC => none_of(&[address, buffer, file_index, call_flags & !1]),
        opcode::SYNC_FILE_RANGE => none_of(&[address, buffer, file_index]),
        opcode::POLL_ADD => {
            none_of(&[buffer, offset, address, length & !u64::from(POLL_MULTI)])?;
            let is_multi = sqe.length & POLL_MULTI != 0;
            if is_multi && sqe.has(sqe_flag::CQE_SKIP_SUCCESS) { Err(Errno::EINVAL) } else { Ok(()) }
        }
        opcode::POLL_REMOVE => check_poll_update(sqe),
        opcode::TIMEOUT | opcode::LINK_TIMEOUT => check_timeout(sqe),
        opcode::TIMEOUT_REMOVE => {
            none_of(&[buffer, length, file_index])?;
            let is_update = sqe.call_flags & timeout::UPDATE != 0;
            let known = timeout::UPDATE | timeout::ABS | timeout::CLOCKS | timeout::LINK_UPDATE;
            match sqe.call_flags {
                0 => Ok(()),
                flags if is_update && flags & !known == 0 && flags & timeout::CLOCKS != timeout::CLOCKS => Ok(()),
                _ => Err(Errno::EINVAL),
            }
        }
        opcode::ACCEPT => {
            none_of(&[length, buffer, u64::from(sqe.priority & !ACCEPT_MULTI)])?;
            let is_multi = sqe.priority & ACCEPT_MULTI != 0;
            if is_multi && file_index != 0 { Err(Errno::EINVAL) } else { Ok(()) }
        }
        opcode::CONNECT => none_of(&[length, buffer, call_flags, file_index]),
        opcode::ASYNC_CANCEL => {
            none_of(&[offset, length, file_index, call_flags & !u64::from(15_u32)])?;
            let both = cancel::FD | cancel::ANY;
            if sqe.call_flags & both == both { Err(Errno::EINVAL) } else { Ok(()) }
        }
        opcode::FALLOCATE => none_of(&[buffer, call_flags, file_index]),
        opcode::OPENAT
        | opcode::OPENAT2
        | opcode::STATX
        | opcode::RENAMEAT
        | opcode::UNLINKAT
        | opcode::MKDIRAT
        | opcode::SYMLINKAT
        | opcode::LINKAT => check_path(sqe),
        opcode::CLOSE if is_fixed => Err(Errno::EBADF),
        opcode::CLOSE => {
            let both = if file_index != 0 { u64::from(sqe.descriptor) } else { 0 };
            none_of(&[offset, address, length, call_flags, buffer, both])
        }
        opcode::FILES_UPDATE => {
            none_of(&[call_flags, file_index])?;
            if is_fixed || length == 0 { Err(Errno::EINVAL) } else { Ok(()) }
        }
        opcode::FADVISE => none_of(&[buffer, file_index]),
        opcode::MADVISE => none_of(&[buffer, offset, file_index]),
        opcode::EPOLL_CTL => none_of(&[buffer, file_index]),
        opcode::SEND => none_of(&[u64::from(sqe.priority & !POLL_FIRST)]),
        opcode::SENDMSG => none_of(&[offset, file_index, u64::from(sqe.priority & !POLL_FIRST)]),
        opcode::RECV | opcode::RECVMSG => check_receive(sqe),
        opcode::PROVIDE_BUFFERS | opcode::REMOVE_BUFFERS => check_provided(sqe),
        opcode::SHUTDOWN => none_of(&[offset, address, call_flags, buffer, file_index]),
        opcode::SOCKET => none_of(&[address, call_flags, buffer]),
        _ => Ok(()),
    }
}

/// Of operations on paths, none of which takes a registered file.
fn check_path(sqe: &Sqe) -> Result<()> {
    let (buffer, file_index, call_flags) =
        (u64::from(sqe.buffer), u64::from(sqe.file_index), u64::from(sqe.call_flags));
    if sqe.has(sqe_flag::FIXED_FILE) {
        return Err(Errno::EBADF);
    }
    match sqe.opcode {
        opcode::OPENAT | opcode::OPENAT2 => none_of(&[buffer]),
        opcode::UNLINKAT => none_of(&[sqe.offset, sqe.length.into(), buffer, file_index]),
        opcode::MKDIRAT => none_of(&[sqe.offset, call_flags, buffer, file_index]),
        opcode::SYMLINKAT => none_of(&[sqe.length.into(), call_flags, buffer, file_index]),
        _ => none_of(&[buffer, file_index]),
    }
}

fn check_poll_update(sqe: &Sqe) -> Result<()> {
    none_of(&[sqe.buffer.into(), sqe.file_index.into()])?;
    let changes = POLL_UPDATE_EVENTS | POLL_UPDATE_USER_DATA;
    let (is_update, is_multi) = (sqe.length & changes != 0, sqe.length & POLL_MULTI != 0);
    if sqe.length & !(changes | POLL_MULTI) != 0 || (is_multi && !is_update) {
        return Err(Errno::EINVAL);
    }
    let has_no_data = sqe.length & POLL_UPDATE_USER_DATA == 0 && sqe.offset != 0;
    let has_no_events = sqe.length & POLL_UPDATE_EVENTS == 0 && sqe.call_flags != 0;
    if has_no_data || has_no_events { Err(Errno::EINVAL) } else { Ok(()) }
}

fn check_timeout(sqe: &Sqe) -> Result<()> {
    let is_link = sqe.opcode == opcode::LINK_TIMEOUT;
    none_of(&[sqe.buffer.into(), sqe.file_index.into(), if is_link { sqe.offset } else { 0 }])?;
    let known = timeout::ABS | timeout::CLOCKS | timeout::ETIME_SUCCESS;
    let has_both = sqe.call_flags & timeout::CLOCKS == timeout::CLOCKS;
    if sqe.length != 1 || sqe.call_flags & !known != 0 || has_both { Err(Errno::EINVAL) } else { Ok(()) }
}

fn check_receive(sqe: &Sqe) -> Result<()> {
    let is_multi = sqe.priority & RECEIVE_MULTI != 0;
    none_of(&[sqe.offset, sqe.file_index.into(), u64::from(sqe.priority & !(POLL_FIRST | RECEIVE_MULTI))])?;
    // Of a message only one at a time is taken.
    if is_multi && (sqe.opcode == opcode::RECVMSG || !sqe.has(sqe_flag::BUFFER_SELECT)) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

fn check_provided(sqe: &Sqe) -> Result<()> {
    const COUNT_MAX: u64 = u16::MAX as u64;
    let count = u64::from(sqe.descriptor);
    if sqe.opcode == opcode::REMOVE_BUFFERS {
        let is_many = count == 0 || count > COUNT_MAX;
        none_of(&[sqe.address, sqe.length.into(), sqe.offset, sqe.call_flags.into(), sqe.file_index.into()])?;
        return if is_many { Err(Errno::EINVAL) } else { Ok(()) };
    }
    none_of(&[sqe.call_flags.into(), sqe.file_index.into()])?;
    if count == 0 || count > COUNT_MAX || sqe.offset > COUNT_MAX {
        return Err(Errno::E2BIG);
    }
    if sqe.offset + count > COUNT_MAX + 1 {
        return Err(Errno::EINVAL);
    }
    let end = count.checked_mul(sqe.length.into()).and_then(|byte_count| sqe.address.checked_add(byte_count));
    match end {
        None => Err(Errno::EOVERFLOW),
        Some(end) if end > aegis_abi::layout::PROGRAM_END => Err(Errno::EFAULT),
        Some(_) => Ok(()),
    }
}
