//! Bytes from one description to another, through a buffer of exos's own: `sendfile` and `copy_file_range`.

use alloc::sync::Arc;

use exos::error::{Errno, Result};
use exos::fs::description::{Description, SeekFrom, StatusFlags};
use exos::fs::metadata::FileKind;
use exos::fs::readiness::Readiness;
use exos::fs::transfer::{Buffer, Source};
use exos::fs::vnode::is_same;
use exos::preempt;
use exos::task::signal::Signal;

use super::file_transfer::{check_end, read_offset, readable, writable, write_from_source, write_offset};
use super::waiting::{raise_own, until_ready};
use crate::abi::user_memory::{CHUNK_BYTES, MAX_RW_COUNT, read_array};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::paths::now;

entries! {
    sendfile(Descriptor, Descriptor, Pointer, Size);
    copy_file_range(Descriptor, Pointer, Descriptor, Pointer, Size, Hex);
}

/// Writes to a pipe what it has room for once it has some, as `sendfile` does: the sender may be the reader.
fn write_what_fits(context: &mut Context<'_>, output: &Arc<Description>, source: &mut dyn Source) -> Result<u64> {
    let attempt = until_ready(context, output, Readiness::WRITE, |context| output.write(source, || now(context)));
    if attempt == Err(Errno::EPIPE) {
        raise_own(context, Signal::PIPE);
    }
    attempt.map(|count| count as u64)
}

/// Copies `length` bytes from one description to another through a buffer of exos's own. `from` and `to` are offsets
/// to use and to move, or the descriptions' own.
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
        let read = until_ready(context, input, Readiness::READ, |context| match from {
            None => input.read(&mut buffer, || now(context)),
            Some(offset) => input.read_at(offset, &mut buffer, || now(context)),
        });
        let count = match read {
            Ok(0) => break,
            Ok(count) => count,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        let mut source = &buffer.bytes[..count];
        let written = if output.pipe().is_some() {
            write_what_fits(context, output, &mut source)
        } else {
            write_from_source(context, output, &mut source, to)
        };
        let written = match written {
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
        if (written as usize) < count
            || output.pipe().is_some()
            || (done < length && preempt::unless_signalled().is_err())
        {
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

/// Reads an optional `loff_t`, whatever its sign.
fn read_place(context: &Context<'_>, address: u64) -> Result<Option<u64>> {
    match address {
        0 => Ok(None),
        address => Ok(Some(u64::from_le_bytes(read_array(context.memory, address)?))),
    }
}

/// Whether it is an eventfd or the like: what that holds is no file's bytes, and may never come.
pub(super) fn is_nameless(description: &Description) -> bool {
    description.inode().kind() == FileKind::Regular && description.wait_queue().is_some()
}

/// `sendfile(2)`.
pub fn sendfile(context: &mut Context<'_>, [output, input, offset, length, ..]: Arguments) -> Result<u64> {
    let input = readable(context, input)?;
    let output = writable(context, output)?;
    let cannot_seek = input.seek(SeekFrom::Current(0)) == Err(Errno::ESPIPE);
    if cannot_seek && offset != 0 {
        return Err(Errno::ESPIPE);
    }
    if cannot_seek
        || is_nameless(&input)
        || !matches!(input.inode().kind(), FileKind::Regular | FileKind::CharacterDevice)
    {
        return Err(Errno::EINVAL);
    }
    if output.status().contains(StatusFlags::APPEND) {
        return Err(Errno::EINVAL);
    }
    let from = read_offset(context, offset)?;
    check_end(Some(from.unwrap_or_else(|| input.offset())), length)?;
    let (done, [from, _]) = copy(context, &input, &output, [from, None], length.min(MAX_RW_COUNT))?;
    write_offset(context, offset, from)?;
    Ok(done)
}

/// `copy_file_range(2)`.
pub fn copy_file_range(context: &mut Context<'_>, [input, from, output, to, length, flags]: Arguments) -> Result<u64> {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let input = context.process.files.get(input)?;
    let output = context.process.files.get(output)?;
    match (input.inode().kind(), output.inode().kind()) {
        (FileKind::Regular, FileKind::Regular) if !is_nameless(&input) && !is_nameless(&output) => {}
        _ if input.is_path_only() || output.is_path_only() => return Err(Errno::EBADF),
        (FileKind::Directory, _) | (_, FileKind::Directory) => return Err(Errno::EISDIR),
        _ => return Err(Errno::EINVAL),
    }
    if !input.is_readable() || !output.is_writable() || output.status().contains(StatusFlags::APPEND) {
        return Err(Errno::EBADF);
    }
    if input.inode().device() != output.inode().device() {
        return Err(Errno::EXDEV);
    }
    let offsets = [read_place(context, from)?, read_place(context, to)?];
    let starts = [offsets[0].unwrap_or_else(|| input.offset()), offsets[1].unwrap_or_else(|| output.offset())];
    if starts.iter().any(|start| start.checked_add(length).is_none()) {
        return Err(Errno::EOVERFLOW);
    }
    if starts.iter().any(|start| *start > i64::MAX as u64) {
        return Err(Errno::EINVAL);
    }
    if starts[1] == i64::MAX as u64 {
        return Err(Errno::EFBIG);
    }
    let length = length.min(i64::MAX as u64 - starts[1]);
    // What would be read after it was written has no meaning.
    if is_same(input.inode(), output.inode()) && starts[0].abs_diff(starts[1]) < length {
        return Err(Errno::EINVAL);
    }
    let (done, after) = copy(context, &input, &output, offsets, length.min(MAX_RW_COUNT))?;
    write_offset(context, from, after[0])?;
    write_offset(context, to, after[1])?;
    Ok(done)
}
