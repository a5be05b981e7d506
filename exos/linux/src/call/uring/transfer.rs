//! Bytes in and out of files and sockets, for requests of a ring.

use alloc::boxed::Box;
use alloc::sync::Arc;

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::readiness::Readiness;

use super::control::install_made;
use super::issue::Outcome;
use super::prepare::{ACCEPT_MULTI, RECEIVE_MULTI};
use crate::abi::linux::{MSG_DONTWAIT, MSG_NOSIGNAL, MSG_WAITALL};
use crate::abi::socket::{SOCK_CLOEXEC, SOCK_NONBLOCK};
use crate::abi::uring::{cqe_flag, opcode, sqe_flag};
use crate::abi::user_memory::{Extent, MAX_RW_COUNT, read_extents};
use crate::call::context::Context;
use crate::call::direct::prepare;
use crate::call::file_transfer::{How, one, read_as, write_as};
use crate::call::message::{read_header, receive_as, receive_by, send_as, send_by};
use crate::call::socket::{accept_by, connect_by, read_address, socket_of};
use crate::file::uring::requests::{Kept, Request};
use crate::file::uring::{ProvidedBuffer, Ring};

/// `RWF_NOWAIT`.
const NOWAIT: u32 = 8;

/// A provided buffer for a request that takes one, as long as it asks for. `ENOBUFS`.
fn selected(ring: &Arc<Ring>, request: &Request) -> Result<Option<ProvidedBuffer>> {
    if !request.sqe.has(sqe_flag::BUFFER_SELECT) {
        return Ok(None);
    }
    ring.take_buffer(request.sqe.buffer).map(Some).ok_or(Errno::ENOBUFS)
}

/// The part of a provided buffer that is asked for.
fn part_of(buffer: &ProvidedBuffer, wanted: u32) -> Extent {
    let length = if wanted == 0 { buffer.extent.length } else { buffer.extent.length.min(wanted.into()) };
    Extent { length, ..buffer.extent }
}

/// The one buffer of a request. `EFAULT`.
fn single(ring: &Arc<Ring>, request: &Request) -> Result<[Extent; 1]> {
    let sqe = &request.sqe;
    let extent = one(sqe.address, sqe.length.into())?;
    if matches!(sqe.opcode, opcode::READ_FIXED | opcode::WRITE_FIXED) {
        let buffer = ring.registered().buffers.as_ref().and_then(|buffers| buffers.get(sqe.buffer as usize).copied());
        let buffer = buffer.flatten().ok_or(Errno::EFAULT)?;
        let end = sqe.address + u64::from(sqe.length);
        if sqe.address < buffer.address || end > buffer.address + buffer.length {
            return Err(Errno::EFAULT);
        }
    }
    Ok(extent)
}

/// A read or a write.
pub(super) fn transfer(
    context: &mut Context<'_>,
    ring: &Arc<Ring>,
    request: &mut Request,
    file: &Arc<Description>,
    is_read: bool,
) -> Outcome {
    Outcome::of_outcome(try_transfer(context, ring, request, file, is_read))
}

fn try_transfer(
    context: &mut Context<'_>,
    ring: &Arc<Ring>,
    request: &mut Request,
    file: &Arc<Description>,
    is_read: bool,
) -> Result<Outcome> {
    let sqe = request.sqe;
    let place;
    let buffer = selected(ring, request)?;
    let kept = core::mem::take(&mut request.kept);
    let extents = match (&buffer, sqe.opcode, &kept) {
        (Some(buffer), ..) => {
            place = [part_of(buffer, sqe.length)];
            &place[..]
        }
        (None, opcode::READV | opcode::WRITEV, Kept::Extents(extents)) => &extents[..],
        (None, opcode::READV | opcode::WRITEV, _) => {
            request.kept = Kept::Extents(read_extents(context.memory, sqe.address, sqe.length.into())?);
            return try_transfer(context, ring, request, file, is_read);
        }
        _ => {
            place = single(ring, request)?;
            &place[..]
        }
    };
    let offset = if sqe.offset == u64::MAX || file.is_stream() { None } else { Some(sqe.offset) };
    if offset.is_some_and(|offset| offset > i64::MAX as u64) {
        return Err(Errno::EINVAL);
    }
    if let (Some(offset), 0, None) = (offset, sqe.call_flags, &buffer)
        && let Some(direct) = prepare(context, file, extents, offset, is_read)?
    {
        return Ok(Outcome::Device(direct));
    }
    let wanted = extents.iter().map(|extent| extent.length).sum::<u64>().min(MAX_RW_COUNT);
    let how = How { offset, flags: sqe.call_flags.into(), may_wait: false };
    let (answer, interest) = if is_read {
        (read_as(context, file, extents, how), Readiness::READ)
    } else {
        (write_as(context, file, extents, how), Readiness::WRITE)
    };
    let may_wait = !file.is_non_blocking() && sqe.call_flags & NOWAIT == 0 && file.wait_queue().is_some();
    if let (Some(buffer), Err(_)) = (buffer, &answer) {
        ring.put_buffer_back(sqe.buffer, buffer);
    }
    Ok(match answer {
        Err(Errno::EAGAIN) if may_wait => {
            request.kept = kept;
            Outcome::Wait(interest)
        }
        Ok(count) => Outcome::Done { result: count as i32, flags: flags_of(buffer), is_failure: count != wanted },
        failed => Outcome::of(failed),
    })
}

/// What is told of a provided buffer.
fn flags_of(buffer: Option<ProvidedBuffer>) -> u32 {
    buffer.map_or(0, |buffer| cqe_flag::BUFFER | u32::from(buffer.number) << 16)
}

/// `SEND` and `RECV`.
pub(super) fn bytes(
    context: &mut Context<'_>,
    ring: &Arc<Ring>,
    request: &mut Request,
    file: &Arc<Description>,
) -> Outcome {
    Outcome::of_outcome(try_bytes(context, ring, request, file))
}

fn try_bytes(
    context: &mut Context<'_>,
    ring: &Arc<Ring>,
    request: &mut Request,
    file: &Arc<Description>,
) -> Result<Outcome> {
    let sqe = request.sqe;
    let socket = socket_of(file)?;
    let flags = u64::from(sqe.call_flags) | MSG_DONTWAIT;
    if sqe.opcode == opcode::SEND {
        let extents = one(sqe.address, u64::from(sqe.length).min(MAX_RW_COUNT))?;
        let name_bytes = u64::from(sqe.file_index as u16);
        let answer = send_by(context, (file, &socket), &extents, [flags | MSG_NOSIGNAL, sqe.offset, name_bytes]);
        return Ok(moved(request, file, answer, Readiness::WRITE));
    }
    let buffer = selected(ring, request)?;
    let extent = match &buffer {
        Some(buffer) => part_of(buffer, sqe.length),
        None => one(sqe.address, u64::from(sqe.length).min(MAX_RW_COUNT))?[0],
    };
    let answer = receive_by(context, (file, &socket), &[extent], [flags, 0, 0]);
    let Some(buffer) = buffer else { return Ok(moved(request, file, answer, Readiness::READ)) };
    let flags = flags_of(Some(buffer));
    Ok(match answer {
        Ok(count @ 1..) if sqe.priority & RECEIVE_MULTI != 0 => {
            Outcome::Shot { result: count as i32, flags, interest: None }
        }
        Ok(count) => Outcome::Done { result: count as i32, flags, is_failure: false },
        Err(error) => {
            ring.put_buffer_back(sqe.buffer, buffer);
            moved(request, file, Err(error), Readiness::READ)
        }
    })
}

/// What a transfer over a socket came to; one that is to be whole goes on with the rest.
fn moved(request: &mut Request, file: &Arc<Description>, answer: Result<u64>, interest: Readiness) -> Outcome {
    let sqe = &mut request.sqe;
    let is_whole = u64::from(sqe.call_flags) & MSG_WAITALL != 0;
    let may_wait = !file.is_non_blocking() && u64::from(sqe.call_flags) & MSG_DONTWAIT == 0;
    match answer {
        Err(Errno::EAGAIN) if may_wait => Outcome::Wait(interest),
        Ok(count) if is_whole && may_wait && count > 0 && count < u64::from(sqe.length) => {
            sqe.address += count;
            sqe.length -= count as u32;
            request.done += count as u32;
            Outcome::Wait(interest)
        }
        Ok(count) => {
            let result = (count as u32).wrapping_add(request.done) as i32;
            Outcome::Done { result, flags: 0, is_failure: is_whole && count < u64::from(sqe.length) }
        }
        Err(_) if request.done > 0 => Outcome::Done { result: request.done as i32, flags: 0, is_failure: true },
        failed => Outcome::of(failed),
    }
}

/// `SENDMSG` and `RECVMSG`.
pub(super) fn message(context: &mut Context<'_>, request: &mut Request, file: &Arc<Description>) -> Outcome {
    Outcome::of_outcome(try_message(context, request, file))
}

fn try_message(context: &mut Context<'_>, request: &mut Request, file: &Arc<Description>) -> Result<Outcome> {
    let sqe = request.sqe;
    let socket = socket_of(file)?;
    let kept = match core::mem::take(&mut request.kept) {
        Kept::Message(kept) => kept,
        _ => Box::new(read_header(context, sqe.address)?),
    };
    let (header, extents) = &*kept;
    let flags = u64::from(sqe.call_flags) | MSG_DONTWAIT;
    let (answer, interest) = if sqe.opcode == opcode::SENDMSG {
        let answer = send_as(context, (file, &socket), (header, extents), flags | MSG_NOSIGNAL);
        (answer, Readiness::WRITE)
    } else {
        (receive_as(context, (file, &socket), (sqe.address, header, extents), flags), Readiness::READ)
    };
    let may_wait = !file.is_non_blocking() && u64::from(sqe.call_flags) & MSG_DONTWAIT == 0;
    Ok(match answer {
        Err(Errno::EAGAIN) if may_wait => {
            request.kept = Kept::Message(kept);
            Outcome::Wait(interest)
        }
        answer => Outcome::of(answer),
    })
}

/// `ACCEPT`.
pub(super) fn accept(
    context: &mut Context<'_>,
    ring: &Arc<Ring>,
    request: &mut Request,
    file: &Arc<Description>,
) -> Outcome {
    let sqe = request.sqe;
    let flags = u64::from(sqe.call_flags);
    if flags & !(SOCK_NONBLOCK | SOCK_CLOEXEC) != 0 {
        return Outcome::of(Err(Errno::EINVAL));
    }
    let accepted = socket_of(file)
        .and_then(|socket| accept_by(context, (file, &socket), [sqe.address, sqe.offset, flags], false))
        .and_then(|made| install_made(context, ring, made, sqe.file_index));
    match accepted {
        Err(Errno::EAGAIN) if !file.is_non_blocking() => Outcome::Wait(Readiness::READ),
        Ok(made) if sqe.priority & ACCEPT_MULTI != 0 => Outcome::Shot { result: made as i32, flags: 0, interest: None },
        accepted => Outcome::of(accepted),
    }
}

/// `CONNECT`.
pub(super) fn connect(context: &mut Context<'_>, request: &mut Request, file: &Arc<Description>) -> Outcome {
    Outcome::of_outcome(try_connect(context, request, file))
}

fn try_connect(context: &mut Context<'_>, request: &mut Request, file: &Arc<Description>) -> Result<Outcome> {
    let socket = socket_of(file)?;
    let name = match core::mem::take(&mut request.kept) {
        Kept::Name(name) => name,
        _ => read_address(context, request.sqe.address, request.sqe.offset)?,
    };
    Ok(match connect_by(context, (file, &socket), &name, false) {
        Err(Errno::EAGAIN | Errno::EINPROGRESS | Errno::EALREADY) => {
            request.kept = Kept::Name(name);
            Outcome::Wait(Readiness::WRITE)
        }
        connected => Outcome::of(connected),
    })
}
