//! The program's memory as the personality sees it: allegations that are copied.
//!
//! [`UserMemory`] is the one way to it; the glue implements it with faulting copies, tests with a map of pages. A
//! structure is copied whole and decoded from the copy; a buffer is moved in chunks by [`UserReader`] and
//! [`UserWriter`]. Nothing borrows program memory.

use alloc::vec::Vec;

use aegis_abi::FrameNumber;
use exos::error::{Errno, Result};
use exos::platform::FrameBytes;

/// Bytes moved at a time between a file and the program.
pub const CHUNK_BYTES: usize = 4096;
/// Longest string that a call takes.
pub const STRING_BYTES_MAX: usize = 128 * 1024;

/// Copies to and from the program.
pub trait UserMemory {
    /// Copies from the program; how many bytes came, fewer where memory ended. `EFAULT`: the range is not the
    /// program's at all.
    fn copy_in(&self, address: u64, into: &mut [u8]) -> Result<usize>;
    /// Copies to the program; how many bytes went, fewer where memory ended. `EFAULT` as above.
    fn copy_out(&self, address: u64, from: &[u8]) -> Result<usize>;
    /// Copies `length` bytes of a frame to the program, as [`Self::copy_out`] does.
    fn copy_frame_out(
        &self,
        address: u64,
        frames: &dyn FrameBytes,
        frame: FrameNumber,
        offset: usize,
        length: usize,
    ) -> Result<usize> {
        let mut bytes = alloc::vec![0; length];
        frames.read(frame, offset, &mut bytes);
        self.copy_out(address, &bytes)
    }
}

/// Reads exactly `N` bytes.
pub fn read_array<const N: usize>(memory: &dyn UserMemory, address: u64) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    read_exact(memory, address, &mut bytes)?;
    Ok(bytes)
}

/// Fills `into`; `EFAULT` if not all of it could be read.
pub fn read_exact(memory: &dyn UserMemory, address: u64, into: &mut [u8]) -> Result<()> {
    match memory.copy_in(address, into)? {
        count if count == into.len() => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

/// Reads a length that is the program's word, with a limit: `EINVAL` beyond it.
pub fn read_vec(memory: &dyn UserMemory, address: u64, length: u64, limit: usize) -> Result<Vec<u8>> {
    let length = usize::try_from(length).ok().filter(|length| *length <= limit).ok_or(Errno::EINVAL)?;
    let mut bytes = alloc::vec![0; length];
    read_exact(memory, address, &mut bytes)?;
    Ok(bytes)
}

/// Writes all of `from`; `EFAULT` if not all of it could be written.
pub fn write_all(memory: &dyn UserMemory, address: u64, from: &[u8]) -> Result<()> {
    match memory.copy_out(address, from)? {
        count if count == from.len() => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

/// Reads a string up to its zero byte, at most `limit` bytes long without it.
pub fn read_string(memory: &dyn UserMemory, address: u64, limit: usize, too_long: Errno) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut chunk = [0; 256];
    let mut position = address;
    loop {
        // Up to the end of a page at most, so that a string that ends before an unmapped page is not refused.
        let room = (CHUNK_BYTES - (position as usize % CHUNK_BYTES)).min(chunk.len());
        let count = memory.copy_in(position, &mut chunk[..room])?;
        if let Some(end) = chunk[..count].iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&chunk[..end]);
            return if text.len() > limit { Err(too_long) } else { Ok(text) };
        }
        if count < room {
            return Err(Errno::EFAULT);
        }
        text.extend_from_slice(&chunk[..count]);
        if text.len() > limit {
            return Err(too_long);
        }
        position = position.checked_add(count as u64).ok_or(Errno::EFAULT)?;
    }
}

/// One `struct iovec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

/// Most entries of an iovec array (`UIO_MAXIOV`).
pub const EXTENT_COUNT_MAX: u64 = 1024;
/// Most bytes that one read or write moves (Linux's `MAX_RW_COUNT`).
pub const TRANSFER_BYTES_MAX: u64 = 0x7fff_f000;

/// Reads an iovec array; the total is cut at [`TRANSFER_BYTES_MAX`]. `EINVAL`: too many entries or a negative length.
pub fn read_extents(memory: &dyn UserMemory, address: u64, count: u64) -> Result<Vec<Extent>> {
    if count > EXTENT_COUNT_MAX {
        return Err(Errno::EINVAL);
    }
    let bytes = read_vec(memory, address, count * 16, EXTENT_COUNT_MAX as usize * 16)?;
    let mut room = TRANSFER_BYTES_MAX;
    let mut extents = Vec::with_capacity(count as usize);
    for entry in bytes.chunks_exact(16) {
        let start = crate::abi::bytes::get::u64(entry, 0);
        let length = crate::abi::bytes::get::u64(entry, 8);
        if length > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        let length = length.min(room);
        room -= length;
        extents.push(Extent { address: start, length });
    }
    Ok(extents)
}

/// Program buffers as a place to read into.
pub struct UserWriter<'a> {
    memory: &'a dyn UserMemory,
    extents: &'a [Extent],
    index: usize,
    offset: u64,
    /// Bytes left in all extents.
    left: usize,
}

/// Program buffers as a place to write from.
pub struct UserReader<'a> {
    memory: &'a dyn UserMemory,
    extents: &'a [Extent],
    index: usize,
    offset: u64,
    /// Bytes left in all extents.
    left: usize,
}

/// Bytes in `extents`.
fn total(extents: &[Extent]) -> usize {
    extents.iter().map(|extent| extent.length).sum::<u64>() as usize
}

/// The next piece of at most `limit` bytes: address and length; moves over empty buffers.
fn next_piece(extents: &[Extent], index: &mut usize, offset: &mut u64, limit: usize) -> Option<(u64, usize)> {
    while let Some(extent) = extents.get(*index) {
        if *offset < extent.length {
            let length = (extent.length - *offset).min(limit as u64) as usize;
            return Some((extent.address.wrapping_add(*offset), length));
        }
        *index += 1;
        *offset = 0;
    }
    None
}

impl<'a> UserWriter<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub fn new(memory: &'a dyn UserMemory, extents: &'a [Extent]) -> Self {
        Self { memory, extents, index: 0, offset: 0, left: total(extents) }
    }
}

impl UserWriter<'_> {
    /// Fills the next `count` bytes: `copy` gets the memory, an address in it, how far it is, and a length, and answers
    /// as [`UserMemory::copy_out`] does.
    #[inline]
    fn fill(&mut self, count: usize, copy: impl Fn(&dyn UserMemory, u64, usize, usize) -> Result<usize>) -> usize {
        let mut done = 0;
        while done < count {
            let Some((address, length)) = next_piece(self.extents, &mut self.index, &mut self.offset, count - done)
            else {
                break;
            };
            let copied = copy(self.memory, address, done, length).unwrap_or(0);
            self.offset += copied as u64;
            self.left -= copied;
            done += copied;
            if copied < length {
                break;
            }
        }
        done
    }
}

impl exos::fs::transfer::Destination for UserWriter<'_> {
    fn remaining(&self) -> usize {
        self.left
    }

    fn put(&mut self, bytes: &[u8]) -> usize {
        self.fill(bytes.len(), |memory, address, done, length| memory.copy_out(address, &bytes[done..done + length]))
    }

    fn put_frame(&mut self, frames: &dyn FrameBytes, frame: FrameNumber, offset: usize, count: usize) -> usize {
        self.fill(count, |memory, address, done, length| {
            memory.copy_frame_out(address, frames, frame, offset + done, length)
        })
    }
}

impl<'a> UserReader<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub fn new(memory: &'a dyn UserMemory, extents: &'a [Extent]) -> Self {
        Self { memory, extents, index: 0, offset: 0, left: total(extents) }
    }
}

impl exos::fs::transfer::Source for UserReader<'_> {
    fn remaining(&self) -> usize {
        self.left
    }

    fn take(&mut self, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            let left = into.len() - done;
            let Some((address, length)) = next_piece(self.extents, &mut self.index, &mut self.offset, left) else {
                break;
            };
            let count = self.memory.copy_in(address, &mut into[done..done + length]).unwrap_or(0);
            self.offset += count as u64;
            self.left -= count;
            done += count;
            if count < length {
                break;
            }
        }
        done
    }
}
