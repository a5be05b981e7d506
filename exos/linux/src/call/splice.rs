//! `splice`, `tee`, `vmsplice`: bytes between pipes and other descriptors. They are copied; nothing here is faster than
//! `read` and `write`, but programs that use them run.
//!
//! Bytes leave their pipe only when the other side has taken them, so none are lost when that waits or fails.

use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::fs::description::{Description, StatusFlags};
use exos::fs::metadata::FileKind;
use exos::fs::pipe::{PIPE_BUFFER_BYTES, Taken};
use exos::fs::readiness::Readiness;
use exos::fs::transfer::Buffer;
use exos::reserve;

use super::file_copy::is_nameless;
use super::file_transfer::{Capped, read_offset, readable, readv, writable, write_from_source, write_offset};
use super::waiting::until_ready;
use crate::abi::linux::SPLICE_F_NONBLOCK;
use crate::abi::user_memory::{MAX_RW_COUNT, UserReader, read_extents, readable_bytes};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::paths::now;

entries! {
    splice;
    tee;
    vmsplice: "copies: pages given are not kept";
}

/// `SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT`.
const FLAGS: u64 = 0xf;

/// Waits until the pipe that `input` reads has bytes; false at its end.
fn wait_for_bytes(context: &mut Context<'_>, input: &Arc<Description>, waits: bool) -> Result<bool> {
    wait_until(context, input, Readiness::READ, waits, |ready| match ready {
        ready if ready.contains(Readiness::READ) => Some(Ok(true)),
        ready if ready.contains(Readiness::HANG_UP) => Some(Ok(false)),
        _ => None,
    })
}

/// Waits until the pipe that `output` writes has room. `EPIPE`: nobody reads it.
fn wait_for_room(context: &mut Context<'_>, output: &Arc<Description>, waits: bool) -> Result<()> {
    wait_until(context, output, Readiness::WRITE, waits, |ready| match ready {
        ready if ready.contains(Readiness::ERROR) => Some(Err(Errno::EPIPE)),
        ready if ready.contains(Readiness::WRITE) => Some(Ok(())),
        _ => None,
    })
}

fn wait_until<T>(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    interest: Readiness,
    waits: bool,
    look: impl Fn(Readiness) -> Option<Result<T>>,
) -> Result<T> {
    if !waits {
        return look(description.readiness()).unwrap_or(Err(Errno::EAGAIN));
    }
    until_ready(context, description, interest, |_| look(description.readiness()).unwrap_or(Err(Errno::EAGAIN)))
}

/// `splice(2)`.
pub fn splice(context: &mut Context<'_>, [input, from, output, to, length, flags]: Arguments) -> Result<u64> {
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    let (input, output) = (readable(context, input)?, writable(context, output)?);
    let length = length.min(MAX_RW_COUNT);
    let waits = flags & SPLICE_F_NONBLOCK == 0;
    if (input.pipe().is_some() && from != 0) || (output.pipe().is_some() && to != 0) {
        return Err(Errno::ESPIPE);
    }
    let is_same = match (input.pipe(), output.pipe()) {
        (Some(first), Some(second)) => Arc::ptr_eq(first, second),
        (None, None) => true,
        _ => false,
    };
    let appends = output.pipe().is_none() && output.status().contains(StatusFlags::APPEND);
    if is_same || appends || is_nameless(&output) || input.inode().kind() == FileKind::Directory {
        return Err(Errno::EINVAL);
    }
    if output.pipe().is_some() && input.pipe().is_none() {
        let offset = read_offset(context, from)?;
        let count = fill(context, (&input, offset), &output, length as usize, waits)?;
        write_offset(context, from, offset.map(|offset| offset + count))?;
        return Ok(count);
    }
    let offset = read_offset(context, to)?;
    let count = drain(context, &input, (&output, offset), length as usize, waits)?;
    write_offset(context, to, offset.map(|offset| offset + count))?;
    Ok(count)
}

/// From a pipe to whatever takes bytes.
fn drain(
    context: &mut Context<'_>,
    input: &Arc<Description>,
    (output, offset): (&Arc<Description>, Option<u64>),
    length: usize,
    waits: bool,
) -> Result<u64> {
    if !wait_for_bytes(context, input, waits)? {
        return Ok(0);
    }
    if output.pipe().is_some() {
        wait_for_room(context, output, waits)?;
    }
    let pipe = input.pipe().ok_or(Errno::EINVAL)?;
    // A pipe takes what it has room for without waiting.
    let room = output.pipe().map_or(usize::MAX, |pipe| pipe.room());
    let take = || Taken::new(pipe, length.min(room));
    // Another reader may have been faster.
    let mut taken = if waits { until_ready(context, input, Readiness::READ, |_| take()) } else { take() }?;
    write_from_source(context, output, &mut taken, offset)
}

/// From a file, a socket or a device to a pipe.
fn fill(
    context: &mut Context<'_>,
    (input, mut offset): (&Arc<Description>, Option<u64>),
    output: &Arc<Description>,
    length: usize,
    waits: bool,
) -> Result<u64> {
    wait_for_room(context, output, waits)?;
    let room = output.pipe().map_or(0, |pipe| pipe.room());
    let mut left = length.min(room);
    let mut done = 0;
    while left > 0 {
        let mut buffer = Buffer::with_limit(left.min(PIPE_BUFFER_BYTES));
        let attempt = |context: &mut Context<'_>| match offset {
            None => input.read(&mut buffer, || now(context)),
            Some(offset) => input.read_at(offset, &mut buffer, || now(context)),
        };
        // Only the first bytes are worth waiting for.
        let mut attempt = attempt;
        let outcome = match done {
            0 => until_ready(context, input, Readiness::READ, &mut attempt),
            _ => attempt(context),
        };
        let count = match outcome {
            Ok(0) => break,
            Ok(count) => count,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        let mut source = &buffer.bytes[..];
        write_from_source(context, output, &mut source, None)?;
        offset = offset.map(|offset| offset + count as u64);
        done += count as u64;
        left -= count;
    }
    Ok(done)
}

/// `tee(2)`.
pub fn tee(context: &mut Context<'_>, [input, output, length, flags, ..]: Arguments) -> Result<u64> {
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    let (input, output) = (readable(context, input)?, writable(context, output)?);
    let (Some(from), Some(to)) = (input.pipe().cloned(), output.pipe().cloned()) else { return Err(Errno::EINVAL) };
    if Arc::ptr_eq(&from, &to) {
        return Err(Errno::EINVAL);
    }
    let waits = flags & SPLICE_F_NONBLOCK == 0;
    if !wait_for_bytes(context, &input, waits)? {
        return Ok(0);
    }
    wait_for_room(context, &output, waits)?;
    let length = length.min(MAX_RW_COUNT) as usize;
    let mut bytes: Vec<u8> = Vec::new();
    let count = length.min(from.readable_bytes()).min(to.room());
    reserve::reserve(&mut bytes, count)?;
    bytes.resize(count, 0);
    let count = from.peek(&mut bytes);
    let mut source = &bytes[..count];
    write_from_source(context, &output, &mut Capped::new(context, &mut source, count), None)
}

/// `vmsplice(2)`: to a pipe as much as there is room for; from one as `readv`.
pub fn vmsplice(context: &mut Context<'_>, [descriptor, extents, count, flags, ..]: Arguments) -> Result<u64> {
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let description = context.process.files.get(descriptor)?;
    let buffers = read_extents(context.memory, extents, count)?;
    if buffers.iter().all(|buffer| buffer.length == 0) {
        return if description.is_path_only() { Err(Errno::EBADF) } else { Ok(0) };
    }
    if description.pipe().is_none() {
        return Err(Errno::EBADF);
    }
    if description.is_writable() {
        wait_for_room(context, &description, flags & SPLICE_F_NONBLOCK == 0)?;
        // What there is room for, as on Linux: the reader may be the writer.
        let room = description.pipe().map_or(0, |pipe| pipe.room());
        let memory = context.memory;
        let room = match readable_bytes(memory, &buffers, room) {
            // The write tells of the fault. Pages are handed over one by one.
            0 => room,
            readable => readable,
        };
        let mut source = UserReader::new(memory, &buffers);
        return write_from_source(context, &description, &mut Capped::new(context, &mut source, room), None);
    }
    if flags & SPLICE_F_NONBLOCK != 0 {
        wait_for_bytes(context, &description, false)?;
    }
    readv(context, [descriptor, extents, count, 0, 0, 0])
}
