//! Bytes in and out of descriptors.
//!
//! A transfer is done in steps ([`Description::read_step`], [`Description::write_step`]): the file says for what its
//! readers and writers wait, the loop around that is [`super::waiting`]'s.

use alloc::sync::Arc;

use aegis_abi::FrameNumber;
use aegis_abi::layout::PROGRAM_END;
use exos::error::{Errno, Result};
use exos::fs::description::{Description, SeekFrom, StatusFlags};
use exos::fs::metadata::{FileKind, Metadata};
use exos::fs::permission::Credentials;
use exos::fs::readiness::Readiness;
use exos::fs::step::Transfer;
use exos::fs::transfer::{Source, take_unseen};
use exos::fs::vnode::Allocate;
use exos::mem::pinned::PinnedMemory;
use exos::platform::FrameBytes;
use exos::task::signal::Signal;

use super::file_cut;
use super::waiting::{in_steps, raise_own};
use crate::abi::linux::{FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE, RWF_APPEND, RWF_NOWAIT};
use crate::abi::user_memory::{
    Extent, MAX_RW_COUNT, UserMemory, UserReader, UserWriter, read_array, read_extents, write_all,
};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::paths::{Access, now, read_path};

entries! {
    read(Descriptor, BufferOut, Size);
    write(Descriptor, BufferIn(2), Size);
    readv(Descriptor, VectorOut(2), Size);
    writev(Descriptor, VectorIn(2), Size);
    pread64(Descriptor, BufferOut, Size, Long);
    pwrite64(Descriptor, BufferIn(2), Size, Long);
    preadv(Descriptor, VectorOut(2), Size, Long);
    pwritev(Descriptor, VectorIn(2), Size, Long);
    preadv2: "of RWF flags HIPRI, DSYNC, SYNC, NOWAIT, APPEND, NOAPPEND";
    pwritev2: "of RWF flags HIPRI, DSYNC, SYNC, NOWAIT, APPEND, NOAPPEND";
    lseek(Descriptor, Long, Word(SEEK_ORIGINS));
    ftruncate(Descriptor, Long);
    truncate(Path, Long);
    fallocate(Descriptor, Hex, Long, Long);
}

/// Reads into program buffers; `offset` as in `pread`.
fn read_into(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    extents: &[Extent],
    offset: Option<u64>,
) -> Result<u64> {
    read_by(context, description, extents, offset, !description.is_non_blocking())
}

fn read_by(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    extents: &[Extent],
    offset: Option<u64>,
    may_wait: bool,
) -> Result<u64> {
    let mut writer = UserWriter::new(context.memory, extents);
    in_steps(context, description, Transfer::new(Readiness::READ, may_wait), |context, transfer| {
        description.read_step(offset, &mut writer, transfer, &context.caller, || now(context))
    })
}

/// Writes from program buffers; `offset` as in `pwrite`.
fn write_from(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    extents: &[Extent],
    offset: Option<u64>,
) -> Result<u64> {
    let memory = context.memory;
    write_from_source(context, description, &mut UserReader::new(memory, extents), offset)
}

/// A source of which no more than so many bytes are used.
pub(super) struct Capped<'a> {
    inner: &'a mut dyn Source,
    left: usize,
    /// Whose call writes it, wherever it is from.
    memory: &'a dyn UserMemory,
}

impl<'a> Capped<'a> {
    /// At most `left` bytes of `inner`, for the call of `context`.
    pub(super) fn new(context: &Context<'a>, inner: &'a mut dyn Source, left: usize) -> Self {
        Self { inner, left, memory: context.memory }
    }
}

impl Source for Capped<'_> {
    fn remaining(&self) -> usize {
        self.inner.remaining().min(self.left)
    }

    fn writer(&self) -> Option<Credentials> {
        self.memory.caller()
    }

    fn take(&mut self, into: &mut [u8]) -> usize {
        let count = self.inner.take(into);
        self.left -= count;
        count
    }

    fn pass_over(&mut self) -> usize {
        if self.inner.remaining() > self.left {
            return take_unseen(self);
        }
        self.left = 0;
        self.inner.pass_over()
    }

    fn pin(&mut self, count: u64, memory: &mut PinnedMemory) -> Result<u64> {
        let held = self.inner.pin(count.min(self.left as u64), memory)?;
        self.left -= held as usize;
        Ok(held)
    }

    fn can_take(&mut self, count: usize) -> bool {
        self.inner.can_take(count)
    }

    fn take_nofault(&mut self, into: &mut [u8]) -> bool {
        let is_done = into.len() <= self.left && self.inner.take_nofault(into);
        if is_done {
            self.left -= into.len();
        }
        is_done
    }

    fn take_frame_nofault(
        &mut self,
        frames: &dyn FrameBytes,
        frame: FrameNumber,
        offset: usize,
        count: usize,
    ) -> usize {
        let count = self.inner.take_frame_nofault(frames, frame, offset, count.min(self.left));
        self.left -= count;
        count
    }
}

/// Writes what `source` has, all of it where the description is a pipe or stream.
pub(crate) fn write_from_source(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    source: &mut dyn Source,
    offset: Option<u64>,
) -> Result<u64> {
    let room = if source.remaining() == 0 { usize::MAX } else { size_limit_room(context, description, offset)? };
    let mut source = Capped::new(context, source, room);
    write_by(context, description, &mut source, offset, !description.is_non_blocking())
}

/// The same without a limit to what is written.
pub(crate) fn write_by(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    source: &mut dyn Source,
    offset: Option<u64>,
    may_wait: bool,
) -> Result<u64> {
    in_steps(context, description, Transfer::new(Readiness::WRITE, may_wait), |context, transfer| {
        description.write_step(offset, source, transfer, &context.caller, || now(context))
    })
}

/// How many bytes `RLIMIT_FSIZE` lets a write to a file have. One that begins at the limit or beyond raises `SIGXFSZ`.
fn size_limit_room(context: &Context<'_>, description: &Description, offset: Option<u64>) -> Result<usize> {
    let is_unlimited = context.process.files.size_limit_bytes() == u64::MAX;
    if is_unlimited || !description.is_writable() || description.inode().kind() != FileKind::Regular {
        return Ok(usize::MAX);
    }
    let start = if description.status().contains(StatusFlags::APPEND) {
        description.metadata().size_bytes
    } else {
        offset.unwrap_or_else(|| description.offset())
    };
    size_limit_room_at(context, description, start)
}

/// The same for a write that begins at `start`.
fn size_limit_room_at(context: &Context<'_>, description: &Description, start: u64) -> Result<usize> {
    let limit = context.process.files.size_limit_bytes();
    if limit == u64::MAX || description.inode().kind() != FileKind::Regular {
        return Ok(usize::MAX);
    }
    match limit.checked_sub(start) {
        None | Some(0) => {
            raise_own(context, Signal::XFSZ);
            Err(Errno::EFBIG)
        }
        Some(room) => Ok(usize::try_from(room).unwrap_or(usize::MAX)),
    }
}

/// The same for a new size of a file.
fn check_new_size(context: &Context<'_>, metadata: &Metadata, size_bytes: u64) -> Result<()> {
    let limit = context.process.files.size_limit_bytes();
    if metadata.kind == FileKind::Regular && size_bytes > limit.max(metadata.size_bytes) {
        raise_own(context, Signal::XFSZ);
        return Err(Errno::EFBIG);
    }
    Ok(())
}

/// The description of a descriptor that is open for reading.
pub(super) fn readable(context: &Context<'_>, descriptor: u64) -> Result<Arc<Description>> {
    let description = context.process.files.get(descriptor)?;
    if description.is_readable() { Ok(description) } else { Err(Errno::EBADF) }
}

/// The description of a descriptor that is open for writing.
pub(super) fn writable(context: &Context<'_>, descriptor: u64) -> Result<Arc<Description>> {
    let description = context.process.files.get(descriptor)?;
    if description.is_writable() { Ok(description) } else { Err(Errno::EBADF) }
}

/// One buffer. `EFAULT`: it cannot be the program's, as it does not end below the end of a program's half.
pub(crate) fn one(address: u64, length: u64) -> Result<[Extent; 1]> {
    match address.checked_add(length) {
        Some(end) if end <= PROGRAM_END => Ok([Extent { address, length: length.min(MAX_RW_COUNT) }]),
        _ => Err(Errno::EFAULT),
    }
}

fn offset_of(word: u64) -> Result<Option<u64>> {
    if word > i64::MAX as u64 { Err(Errno::EINVAL) } else { Ok(Some(word)) }
}

/// Checks that a transfer ends where a file can (`rw_verify_area` of Linux). `EINVAL`.
#[inline]
pub(super) fn check_end(offset: Option<u64>, length: u64) -> Result<()> {
    match offset {
        // No program has so much memory that two of these could make up for each other.
        Some(offset) if offset.wrapping_add(length) > i64::MAX as u64 => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

fn length_of(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| extent.length).sum()
}

/// `read(2)`.
pub fn read(context: &mut Context<'_>, [descriptor, address, length, ..]: Arguments) -> Result<u64> {
    let description = readable(context, descriptor)?;
    read_into(context, &description, &one(address, length)?, None)
}

/// `write(2)`.
pub fn write(context: &mut Context<'_>, [descriptor, address, length, ..]: Arguments) -> Result<u64> {
    let description = writable(context, descriptor)?;
    write_from(context, &description, &one(address, length)?, None)
}

/// `readv(2)`.
pub fn readv(context: &mut Context<'_>, [descriptor, extents, count, ..]: Arguments) -> Result<u64> {
    context.process.files.get(descriptor)?;
    let extents = read_extents(context.memory, extents, count)?;
    let description = readable(context, descriptor)?;
    if extents.len() > 1 && description.reads_records() {
        return one_by_one(&extents, |extent| read_into(context, &description, extent, None));
    }
    read_into(context, &description, &extents, None)
}

/// Moves buffer by buffer, as Linux does where a file knows only one: until one is not moved whole. An empty one is too
/// small for all of these files, unless nothing follows it.
fn one_by_one(extents: &[Extent], mut act: impl FnMut(&[Extent]) -> Result<u64>) -> Result<u64> {
    let mut done = 0;
    let last = extents.iter().rposition(|extent| extent.length > 0);
    for extent in &extents[..last.map_or(0, |last| last + 1)] {
        let outcome = if extent.length == 0 { Err(Errno::EINVAL) } else { act(core::slice::from_ref(extent)) };
        match outcome {
            Ok(count) => {
                done += count;
                if count < extent.length {
                    break;
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// `writev(2)`.
pub fn writev(context: &mut Context<'_>, [descriptor, extents, count, ..]: Arguments) -> Result<u64> {
    context.process.files.get(descriptor)?;
    let extents = read_extents(context.memory, extents, count)?;
    let description = writable(context, descriptor)?;
    if extents.len() > 1 && description.takes_whole() {
        return one_by_one(&extents, |extent| write_from(context, &description, extent, None));
    }
    write_from(context, &description, &extents, None)
}

/// `pread64(2)`.
pub fn pread64(context: &mut Context<'_>, [descriptor, address, length, offset, ..]: Arguments) -> Result<u64> {
    let offset = offset_of(offset)?;
    let description = context.process.files.get(descriptor)?;
    let buffer = one(address, length)?;
    if description.is_readable() {
        check_end(offset, length)?;
    }
    read_into(context, &description, &buffer, offset)
}

/// `pwrite64(2)`.
pub fn pwrite64(context: &mut Context<'_>, [descriptor, address, length, offset, ..]: Arguments) -> Result<u64> {
    let offset = offset_of(offset)?;
    let description = context.process.files.get(descriptor)?;
    let buffer = one(address, length)?;
    if description.is_writable() {
        check_end(offset, length)?;
    }
    write_from(context, &description, &buffer, offset)
}

/// `preadv(2)`.
pub fn preadv(context: &mut Context<'_>, [descriptor, extents, count, offset, ..]: Arguments) -> Result<u64> {
    let offset = offset_of(offset)?;
    let description = context.process.files.get(descriptor)?;
    let extents = read_extents(context.memory, extents, count)?;
    check_end(offset, length_of(&extents))?;
    read_into(context, &description, &extents, offset)
}

/// `pwritev(2)`.
pub fn pwritev(context: &mut Context<'_>, [descriptor, extents, count, offset, ..]: Arguments) -> Result<u64> {
    let offset = offset_of(offset)?;
    let description = context.process.files.get(descriptor)?;
    let extents = read_extents(context.memory, extents, count)?;
    check_end(offset, length_of(&extents))?;
    write_from(context, &description, &extents, offset)
}

/// `RWF_HIPRI`, `RWF_DSYNC`, `RWF_SYNC`: nothing here could be done sooner or more durably.
const TRANSFER_FLAGS: u64 = 1 | 2 | 4;
/// `RWF_NOAPPEND`: to the offset, though the description appends.
const RWF_NOAPPEND: u64 = 0x20;

/// What a transfer says besides its buffers.
#[derive(Clone, Copy)]
pub(super) struct How {
    /// Where; `None`: from the description's offset on.
    pub(super) offset: Option<u64>,
    /// `RWF_*`.
    pub(super) flags: u64,
    /// Whether the caller waits where there is nothing, or no room.
    pub(super) may_wait: bool,
}

/// Checks `RWF_*` flags for a description; whether the transfer may wait then.
fn check_flags(description: &Description, how: &How) -> Result<bool> {
    let both = RWF_APPEND | RWF_NOAPPEND;
    if how.flags & !(TRANSFER_FLAGS | RWF_NOWAIT | both) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if how.flags & both == both {
        return Err(Errno::EINVAL);
    }
    // Files whose bytes may have to be waited for cannot promise not to.
    if how.flags & RWF_NOWAIT != 0 && description.inode().may_wait() {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(how.may_wait && how.flags & RWF_NOWAIT == 0)
}

/// Reads from a description as flags and offset say.
pub(super) fn read_as(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    extents: &[Extent],
    how: How,
) -> Result<u64> {
    let may_wait = how.flags == 0 && how.may_wait || check_flags(description, &how)?;
    check_end(how.offset, length_of(extents))?;
    read_by(context, description, extents, how.offset, may_wait)
}

/// Writes to a description as flags and offset say.
pub(super) fn write_as(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    extents: &[Extent],
    how: How,
) -> Result<u64> {
    let How { offset, flags, .. } = how;
    let may_wait = flags == 0 && how.may_wait || check_flags(description, &how)?;
    check_end(offset, length_of(extents))?;
    if !description.is_writable() {
        return Err(Errno::EBADF);
    }
    let mut reader = UserReader::new(context.memory, extents);
    let is_file = description.inode().kind() == FileKind::Regular && description.is_plain();
    if is_file && flags & (RWF_APPEND | RWF_NOAPPEND) != 0 {
        let size_bytes = description.metadata().size_bytes;
        let start = match offset {
            _ if flags & RWF_APPEND != 0 => size_bytes,
            Some(offset) => offset,
            None => description.offset(),
        };
        let room = size_limit_room_at(context, description, start)?;
        let mut source = Capped::new(context, &mut reader, room);
        let now = now(context);
        let count = match flags & RWF_APPEND {
            0 => description.write_here(start, &mut source, offset.is_none(), now)?,
            _ => description.write_end(&mut source, offset.is_none(), now)?,
        };
        return Ok(count as u64);
    }
    if flags & RWF_NOWAIT != 0 && offset.is_none() {
        return write_by(context, description, &mut reader, None, false);
    }
    let room = if reader.remaining() == 0 { usize::MAX } else { size_limit_room(context, description, offset)? };
    let mut source = Capped::new(context, &mut reader, room);
    write_by(context, description, &mut source, offset, may_wait)
}

/// `preadv2` and `pwritev2`. As on Linux, where nothing is to be moved the flags are not looked at.
fn flagged(
    context: &mut Context<'_>,
    [descriptor, extents, count, offset, _, flags]: Arguments,
    (is_open, transfer): (fn(&Description) -> bool, FlaggedTransfer),
) -> Result<u64> {
    let offset = if offset == u64::MAX { None } else { offset_of(offset)? };
    let description = context.process.files.get(descriptor)?;
    if offset.is_some() && !description.has_offsets() {
        return Err(if description.is_path_only() { Errno::EBADF } else { Errno::ESPIPE });
    }
    let extents = read_extents(context.memory, extents, count)?;
    if !is_open(&description) {
        return Err(Errno::EBADF);
    }
    if length_of(&extents) == 0 {
        return Ok(0);
    }
    // An `int`.
    let how = How { offset, flags: u64::from(flags as u32), may_wait: !description.is_non_blocking() };
    transfer(context, &description, &extents, how)
}

/// [`read_as`] or [`write_as`].
type FlaggedTransfer = fn(&mut Context<'_>, &Arc<Description>, &[Extent], How) -> Result<u64>;

/// `preadv2(2)`: an offset of -1 is the current one.
pub fn preadv2(context: &mut Context<'_>, arguments: Arguments) -> Result<u64> {
    let [descriptor, extents, count, offset, _, flags] = arguments;
    match offset {
        u64::MAX if flags & !TRANSFER_FLAGS == 0 => readv(context, [descriptor, extents, count, 0, 0, 0]),
        _ => flagged(context, arguments, (Description::is_readable, read_as)),
    }
}

/// `pwritev2(2)`.
pub fn pwritev2(context: &mut Context<'_>, arguments: Arguments) -> Result<u64> {
    let [descriptor, extents, count, offset, _, flags] = arguments;
    match offset {
        u64::MAX if flags & !TRANSFER_FLAGS == 0 => writev(context, [descriptor, extents, count, 0, 0, 0]),
        _ => flagged(context, arguments, (Description::is_writable, write_as)),
    }
}

/// `lseek(2)`.
pub fn lseek(context: &mut Context<'_>, [descriptor, distance, whence, ..]: Arguments) -> Result<u64> {
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

/// Reads an optional `loff_t`.
pub(super) fn read_offset(context: &Context<'_>, address: u64) -> Result<Option<u64>> {
    match address {
        0 => Ok(None),
        address => offset_of(u64::from_le_bytes(read_array(context.memory, address)?)),
    }
}

/// Writes an optional `loff_t` back.
pub(super) fn write_offset(context: &Context<'_>, address: u64, offset: Option<u64>) -> Result<()> {
    match offset {
        Some(offset) if address != 0 => write_all(context.memory, address, &offset.to_le_bytes()),
        _ => Ok(()),
    }
}

/// With what the caller's rights to files are looked at.
fn credentials_of(context: &Context<'_>) -> Credentials {
    context.thread.identities.lock().for_files()
}

/// `ftruncate(2)`.
pub fn ftruncate(context: &mut Context<'_>, [descriptor, length, ..]: Arguments) -> Result<u64> {
    if length > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let description = context.process.files.get(descriptor)?;
    if description.wait_queue().is_some() {
        // A pipe, a socket, or something without a name: nothing that has a size.
        return Err(if description.is_path_only() { Errno::EBADF } else { Errno::EINVAL });
    }
    if description.is_writable() {
        check_new_size(context, &description.metadata(), length)?;
    }
    description.truncate(&credentials_of(context), length, now(context))?;
    file_cut::cut(context.system, description.inode(), length);
    Ok(0)
}

/// `truncate(2)`.
pub fn truncate(context: &mut Context<'_>, [path, length, ..]: Arguments) -> Result<u64> {
    if length > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let access = Access::new(context);
    let path = read_path(context, path)?;
    let start = context.process.files.current();
    if context.process.files.size_limit_bytes() != u64::MAX {
        let location = access.find(&start, &path, true, false)?;
        check_new_size(context, &location.inode().metadata(), length)?;
    }
    if !access.namespace().locks().is_idle() {
        let location = access.find(&start, &path, true, false)?;
        let caller = access.caller();
        super::file_descriptor::after_leases(context, || {
            access.namespace().break_leases(&caller, location.inode(), true)
        })?;
    }
    let location = access.namespace().truncate(&access.caller(), &start, &path, length)?;
    file_cut::cut(context.system, location.inode(), length);
    Ok(0)
}

/// `fallocate(2)`.
pub fn fallocate(context: &mut Context<'_>, [descriptor, mode, offset, length, ..]: Arguments) -> Result<u64> {
    let description = context.process.files.get(descriptor)?;
    allocate(context, &description, [mode, offset, length])
}

/// The same of a description.
pub(super) fn allocate(
    context: &Context<'_>,
    description: &Description,
    [mode, offset, length]: [u64; 3],
) -> Result<u64> {
    let mode = match mode {
        0 => Allocate::Extend,
        FALLOC_FL_KEEP_SIZE => Allocate::KeepSize,
        m if m == FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE => Allocate::PunchHole,
        FALLOC_FL_ZERO_RANGE => Allocate::ZeroRange,
        m if m == FALLOC_FL_KEEP_SIZE | FALLOC_FL_ZERO_RANGE => Allocate::ZeroRangeKeepSize,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    // As on Linux's tmpfs, one that keeps its size too.
    let grows = matches!(mode, Allocate::Extend | Allocate::ZeroRange | Allocate::KeepSize);
    if grows && description.is_writable() && (offset | length) as i64 >= 0 {
        check_new_size(context, &description.metadata(), offset + length)?;
    }
    description.allocate(&credentials_of(context), mode, offset as i64, length as i64, now(context))?;
    if !matches!(mode, Allocate::Extend | Allocate::KeepSize) {
        file_cut::punch(context.system, description.inode(), offset, length);
    }
    Ok(0)
}
