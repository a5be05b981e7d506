//! Bytes in and out of descriptors.
//!
//! Blocking is here: a description that would wait says `EAGAIN`, and unless it was opened not to, the call waits and tries again.

use alloc::sync::Arc;

use exos::error::{Errno, Result};
use exos::fs::description::{Description, SeekFrom};
use exos::fs::transfer::{Buffer, Source};
use exos::fs::vnode::{Allocate, FileKind};
use exos::task::signal::{Signal, SignalInfo, SignalPayload};
use syscalls::Sysno;

use crate::context::{Arguments, Context, Restart};
use crate::files::{Access, now, read_path};
use crate::table::{Entry, full, partial};
use crate::user::{
    CHUNK_BYTES, Extent, TRANSFER_BYTES_MAX, UserReader, UserWriter, read_array, read_extents,
    write_all,
};

/// This family's part of the table.
pub const ENTRIES: &[Entry] = &[
    full(Sysno::read, read),
    full(Sysno::write, write),
    full(Sysno::readv, readv),
    full(Sysno::writev, writev),
    full(Sysno::pread64, pread64),
    full(Sysno::pwrite64, pwrite64),
    full(Sysno::preadv, preadv),
    full(Sysno::pwritev, pwritev),
    partial(Sysno::preadv2, "no flags", preadv2),
    partial(Sysno::pwritev2, "no flags", pwritev2),
    full(Sysno::lseek, lseek),
    full(Sysno::sendfile, sendfile),
    full(Sysno::copy_file_range, copy_file_range),
    full(Sysno::ftruncate, ftruncate),
    full(Sysno::truncate, truncate),
    full(Sysno::fallocate, fallocate),
    full(Sysno::fsync, fsync),
    full(Sysno::fdatasync, fsync),
    full(Sysno::syncfs, fsync),
    full(Sysno::sync, sync),
    full(Sysno::sync_file_range, fsync),
    full(Sysno::fadvise64, fadvise64),
    full(Sysno::readahead, readahead),
];

/// Repeats `attempt` until it does not answer `EAGAIN`, waiting in between, unless the description does not wait.
pub(crate) fn until_ready<T>(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    mut attempt: impl FnMut(&mut Context<'_>) -> Result<T>,
) -> Result<T> {
    context.restart = Restart::UnlessHandlerForbids;
    loop {
        match attempt(context) {
            Err(Errno::EAGAIN) if !description.is_non_blocking() => context.wait(None)?,
            outcome => return outcome,
        }
    }
}

/// Reads into program buffers; `offset` as in `pread`.
fn read_into(
    context: &mut Context<'_>,
    descriptor: u64,
    extents: &[Extent],
    offset: Option<u64>,
) -> Result<u64> {
    let description = context.process.files.get(descriptor)?;
    until_ready(context, &description.clone(), |context| {
        let mut writer = UserWriter::new(context.memory, extents);
        let count = match offset {
            None => description.read(&mut writer, now(context))?,
            Some(offset) => description.read_at(offset, &mut writer, now(context))?,
        };
        Ok(count as u64)
    })
}

/// Writes from program buffers; `offset` as in `pwrite`.
fn write_from(
    context: &mut Context<'_>,
    descriptor: u64,
    extents: &[Extent],
    offset: Option<u64>,
) -> Result<u64> {
    let description = context.process.files.get(descriptor)?;
    if !description.is_writable() || description.is_path_only() {
        return Err(Errno::EBADF);
    }
    check_size_limit(context, &description, offset)?;
    let memory = context.memory;
    let mut reader = UserReader::new(memory, extents);
    write_from_source(context, &description, &mut reader, offset)
}

/// Writes what `source` has, all of it where the description is a pipe or stream.
fn write_from_source(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    source: &mut dyn Source,
    offset: Option<u64>,
) -> Result<u64> {
    let mut done = 0;
    loop {
        let attempt = until_ready(context, description, |context| match offset {
            None => description.write(source, now(context)),
            Some(offset) => description.write_at(offset, source, now(context)),
        });
        match attempt {
            Ok(count) => {
                done += count as u64;
                if count == 0 || source.remaining() == 0 || !description.writes_all() {
                    return Ok(done);
                }
            }
            Err(_) if done > 0 => return Ok(done),
            Err(Errno::EPIPE) => {
                let info = SignalInfo {
                    code: 0,
                    errno: 0,
                    payload: SignalPayload::Sender {
                        pid: context.process.pid,
                        uid: 0,
                        value: 0,
                    },
                };
                context.process.raise(Signal::PIPE, info);
                return Err(Errno::EPIPE);
            }
            Err(error) => return Err(error),
        }
    }
}

/// `RLIMIT_FSIZE`: a write that begins beyond it raises `SIGXFSZ`.
fn check_size_limit(
    context: &Context<'_>,
    description: &Description,
    offset: Option<u64>,
) -> Result<()> {
    let limit = context.process.files.size_limit_bytes();
    if limit == u64::MAX || description.inode().kind() != FileKind::Regular {
        return Ok(());
    }
    if offset.unwrap_or_else(|| description.offset()) >= limit {
        context.process.raise(Signal::XFSZ, SignalInfo::default());
        return Err(Errno::EFBIG);
    }
    Ok(())
}

fn one(address: u64, length: u64) -> Result<[Extent; 1]> {
    if length > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    Ok([Extent {
        address,
        length: length.min(TRANSFER_BYTES_MAX),
    }])
}

fn offset_of(word: u64) -> Result<Option<u64>> {
    if word > i64::MAX as u64 {
        Err(Errno::EINVAL)
    } else {
        Ok(Some(word))
    }
}

/// `read(2)`.
pub fn read(
    context: &mut Context<'_>,
    [descriptor, address, length, ..]: Arguments,
) -> Result<u64> {
    context.process.files.get(descriptor)?;
    read_into(context, descriptor, &one(address, length)?, None)
}

/// `write(2)`.
pub fn write(
    context: &mut Context<'_>,
    [descriptor, address, length, ..]: Arguments,
) -> Result<u64> {
    context.process.files.get(descriptor)?;
    write_from(context, descriptor, &one(address, length)?, None)
}

/// `readv(2)`.
pub fn readv(
    context: &mut Context<'_>,
    [descriptor, extents, count, ..]: Arguments,
) -> Result<u64> {
    context.process.files.get(descriptor)?;
    let extents = read_extents(context.memory, extents, count)?;
    read_into(context, descriptor, &extents, None)
}

/// `writev(2)`.
pub fn writev(
    context: &mut Context<'_>,
    [descriptor, extents, count, ..]: Arguments,
) -> Result<u64> {
    context.process.files.get(descriptor)?;
    let extents = read_extents(context.memory, extents, count)?;
    write_from(context, descriptor, &extents, None)
}

/// `pread64(2)`.
pub fn pread64(
    context: &mut Context<'_>,
    [descriptor, address, length, offset, ..]: Arguments,
) -> Result<u64> {
    let offset = offset_of(offset)?;
    read_into(context, descriptor, &one(address, length)?, offset)
}

/// `pwrite64(2)`.
pub fn pwrite64(
    context: &mut Context<'_>,
    [descriptor, address, length, offset, ..]: Arguments,
) -> Result<u64> {
    let offset = offset_of(offset)?;
    write_from(context, descriptor, &one(address, length)?, offset)
}

/// `preadv(2)`.
pub fn preadv(
    context: &mut Context<'_>,
    [descriptor, extents, count, offset, ..]: Arguments,
) -> Result<u64> {
    let offset = offset_of(offset)?;
    let extents = read_extents(context.memory, extents, count)?;
    read_into(context, descriptor, &extents, offset)
}

/// `pwritev(2)`.
pub fn pwritev(
    context: &mut Context<'_>,
    [descriptor, extents, count, offset, ..]: Arguments,
) -> Result<u64> {
    let offset = offset_of(offset)?;
    let extents = read_extents(context.memory, extents, count)?;
    write_from(context, descriptor, &extents, offset)
}

/// `preadv2(2)`: an offset of -1 is the current one.
pub fn preadv2(
    context: &mut Context<'_>,
    [descriptor, extents, count, offset, high, flags]: Arguments,
) -> Result<u64> {
    match (flags, offset) {
        (0, u64::MAX) => readv(context, [descriptor, extents, count, 0, 0, 0]),
        (0, _) => preadv(context, [descriptor, extents, count, offset, high, 0]),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// `pwritev2(2)`.
pub fn pwritev2(
    context: &mut Context<'_>,
    [descriptor, extents, count, offset, high, flags]: Arguments,
) -> Result<u64> {
    match (flags, offset) {
        (0, u64::MAX) => writev(context, [descriptor, extents, count, 0, 0, 0]),
        (0, _) => pwritev(context, [descriptor, extents, count, offset, high, 0]),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// `lseek(2)`.
pub fn lseek(
    context: &mut Context<'_>,
    [descriptor, distance, whence, ..]: Arguments,
) -> Result<u64> {
    let description = context.process.files.get(descriptor)?;
    let distance = distance as i64;
    description.seek(match whence {
        0 => SeekFrom::Start(distance),
        1 => SeekFrom::Current(distance),
        2 => SeekFrom::End(distance),
        3 => SeekFrom::Data(distance),
        4 => SeekFrom::Hole(distance),
        _ => return Err(Errno::EINVAL),
    })
}

/// Copies `length` bytes from one description to another through a buffer of exos's own. `from` and `to` are offsets to use and
/// to move, or the descriptions' own.
fn copy(
    context: &mut Context<'_>,
    input: &Arc<Description>,
    output: &Arc<Description>,
    [mut from, mut to]: [Option<u64>; 2],
    length: u64,
) -> Result<(u64, [Option<u64>; 2])> {
    let mut done = 0;
    while done < length {
        let step = (length - done).min(16 * CHUNK_BYTES as u64) as usize;
        let mut buffer = Buffer::with_limit(step);
        let start = input.offset();
        let read = until_ready(context, input, |context| match from {
            None => input.read(&mut buffer, now(context)),
            Some(offset) => input.read_at(offset, &mut buffer, now(context)),
        });
        let count = match read {
            Ok(0) => break,
            Ok(count) => count,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        let mut source = &buffer.bytes[..count];
        let written = match write_from_source(context, output, &mut source, to) {
            Ok(written) => written,
            Err(error) => {
                rewind(input, from, start, 0);
                if done > 0 {
                    break;
                }
                return Err(error);
            }
        };
        rewind(input, from, start, written);
        done += written;
        from = from.map(|offset| offset + written);
        to = to.map(|offset| offset + written);
        if (written as usize) < count {
            break;
        }
    }
    Ok((done, [from, to]))
}

/// Leaves a description that was read at its own offset behind what was really used.
fn rewind(input: &Description, explicit: Option<u64>, start: u64, used: u64) {
    if explicit.is_none() {
        // Streams cannot be moved back; what was read of them is lost, as with Linux's splice to a full target.
        let _ = input.seek(SeekFrom::Start((start + used) as i64));
    }
}

/// Reads an optional `loff_t`.
fn read_offset(context: &Context<'_>, address: u64) -> Result<Option<u64>> {
    match address {
        0 => Ok(None),
        address => offset_of(u64::from_le_bytes(read_array(context.memory, address)?)),
    }
}

/// Writes an optional `loff_t` back.
fn write_offset(context: &Context<'_>, address: u64, offset: Option<u64>) -> Result<()> {
    match offset {
        Some(offset) if address != 0 => write_all(context.memory, address, &offset.to_le_bytes()),
        _ => Ok(()),
    }
}

/// `sendfile(2)`.
pub fn sendfile(
    context: &mut Context<'_>,
    [output, input, offset, length, ..]: Arguments,
) -> Result<u64> {
    let input = context.process.files.get(input)?;
    let output = context.process.files.get(output)?;
    if !input.is_readable() || !output.is_writable() {
        return Err(Errno::EBADF);
    }
    if !matches!(
        input.inode().kind(),
        FileKind::Regular | FileKind::CharacterDevice
    ) {
        return Err(Errno::EINVAL);
    }
    let from = read_offset(context, offset)?;
    let (done, [from, _]) = copy(
        context,
        &input,
        &output,
        [from, None],
        length.min(TRANSFER_BYTES_MAX),
    )?;
    write_offset(context, offset, from)?;
    Ok(done)
}

/// `copy_file_range(2)`.
pub fn copy_file_range(
    context: &mut Context<'_>,
    [input, from, output, to, length, flags]: Arguments,
) -> Result<u64> {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let input = context.process.files.get(input)?;
    let output = context.process.files.get(output)?;
    if !input.is_readable() || !output.is_writable() {
        return Err(Errno::EBADF);
    }
    match (input.inode().kind(), output.inode().kind()) {
        (FileKind::Regular, FileKind::Regular) => {}
        (FileKind::Directory, _) | (_, FileKind::Directory) => return Err(Errno::EISDIR),
        _ => return Err(Errno::EINVAL),
    }
    let offsets = [read_offset(context, from)?, read_offset(context, to)?];
    let (done, after) = copy(
        context,
        &input,
        &output,
        offsets,
        length.min(TRANSFER_BYTES_MAX),
    )?;
    write_offset(context, from, after[0])?;
    write_offset(context, to, after[1])?;
    Ok(done)
}

/// `ftruncate(2)`.
pub fn ftruncate(context: &mut Context<'_>, [descriptor, length, ..]: Arguments) -> Result<u64> {
    if length > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    context
        .process
        .files
        .get(descriptor)?
        .truncate(length, now(context))?;
    Ok(0)
}

/// `truncate(2)`.
pub fn truncate(context: &mut Context<'_>, [path, length, ..]: Arguments) -> Result<u64> {
    if length > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let access = Access::new(context);
    let path = read_path(context, path)?;
    access.namespace().truncate(
        &access.caller(),
        &context.process.files.current(),
        &path,
        length,
    )?;
    Ok(0)
}

/// `fallocate(2)`.
pub fn fallocate(
    context: &mut Context<'_>,
    [descriptor, mode, offset, length, ..]: Arguments,
) -> Result<u64> {
    const KEEP_SIZE: u64 = 1;
    const PUNCH_HOLE: u64 = 2;
    const ZERO_RANGE: u64 = 0x10;
    let description = context.process.files.get(descriptor)?;
    let mode = match mode {
        0 => Allocate::Extend,
        KEEP_SIZE => Allocate::KeepSize,
        m if m == KEEP_SIZE | PUNCH_HOLE => Allocate::PunchHole,
        ZERO_RANGE => Allocate::ZeroRange,
        m if m == KEEP_SIZE | ZERO_RANGE => Allocate::ZeroRangeKeepSize,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    description.allocate(mode, offset as i64, length as i64, now(context))?;
    Ok(0)
}

/// `fsync(2)` and its kin: nothing is behind memory yet, so everything is as durable as it gets.
pub fn fsync(context: &mut Context<'_>, [descriptor, ..]: Arguments) -> Result<u64> {
    let description = context.process.files.get(descriptor)?;
    if description.is_path_only() {
        return Err(Errno::EBADF);
    }
    match description.inode().kind() {
        FileKind::Regular | FileKind::Directory | FileKind::BlockDevice => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `sync(2)`.
pub fn sync(_: &mut Context<'_>, _: Arguments) -> Result<u64> {
    Ok(0)
}

/// `fadvise64(2)`: checked; everything is in memory already.
pub fn fadvise64(
    context: &mut Context<'_>,
    [descriptor, _, length, advice, ..]: Arguments,
) -> Result<u64> {
    let description = context.process.files.get(descriptor)?;
    if description.inode().kind() == FileKind::Fifo {
        return Err(Errno::ESPIPE);
    }
    if advice > 5 || length as i64 <= -1 {
        return Err(Errno::EINVAL);
    }
    Ok(0)
}

/// `readahead(2)`.
pub fn readahead(context: &mut Context<'_>, [descriptor, ..]: Arguments) -> Result<u64> {
    let description = context.process.files.get(descriptor)?;
    if !description.is_readable() {
        return Err(Errno::EBADF);
    }
    if description.inode().kind() == FileKind::Regular {
        Ok(0)
    } else {
        Err(Errno::EINVAL)
    }
}
