//! The program's memory as the personality sees it: allegations that are copied.
//!
//! [`UserMemory`] is the one way to it; the glue implements it with faulting copies, tests with a map of pages. A
//! structure is copied whole and decoded from the copy; a buffer is moved in chunks by [`UserReader`] and
//! [`UserWriter`]. Nothing borrows program memory.

use alloc::vec::Vec;

use aegis_abi::FrameNumber;
use aegis_abi::layout::PROGRAM_END;
use exos::error::{Errno, Result};
use exos::fs::permission::Credentials;
use exos::mem::pinned::PinnedMemory;
use exos::platform::FrameBytes;
use exos::reserve;

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
    /// As [`Self::copy_in`], but ends at the first fault, whether it could be resolved or not: locks may be held. How
    /// many bytes are left.
    fn copy_in_nofault(&self, address: u64, into: &mut [u8]) -> usize {
        let _ = address;
        into.len()
    }
    /// The word at `address`, unless its page cannot be had at once.
    fn word_nofault(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        (self.copy_in_nofault(address, &mut bytes) == 0).then(|| u32::from_le_bytes(bytes))
    }
    /// As [`Self::copy_out`], but ends at the first fault. How many bytes are left.
    fn copy_out_nofault(&self, address: u64, from: &[u8]) -> usize {
        let _ = address;
        from.len()
    }
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
    /// As [`Self::copy_frame_out`], but ends at the first fault, whether it could be resolved or not.
    fn copy_frame_out_nofault(
        &self,
        address: u64,
        frames: &dyn FrameBytes,
        frame: FrameNumber,
        offset: usize,
        length: usize,
    ) -> usize {
        let _ = (address, frames, frame, offset, length);
        0
    }
    /// Copies `length` bytes from the program into a frame, up to the first fault.
    fn copy_frame_in_nofault(
        &self,
        address: u64,
        frames: &dyn FrameBytes,
        frame: FrameNumber,
        offset: usize,
        length: usize,
    ) -> usize {
        let _ = (address, frames, frame, offset, length);
        0
    }
    /// Copies whole words to the program; how many went.
    fn copy_words_out(&self, address: u64, from: &[u64]) -> Result<usize> {
        let bytes: Vec<u8> = from.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(self.copy_out(address, &bytes)? / 8)
    }
    /// As [`Self::copy_words_out`], but ends at the first fault, whether it could be resolved or not.
    fn copy_words_out_nofault(&self, address: u64, from: &[u64]) -> usize {
        let bytes: Vec<u8> = from.iter().flat_map(|word| word.to_le_bytes()).collect();
        (bytes.len() - self.copy_out_nofault(address, &bytes)) / 8
    }
    /// Copies whole words from the program; how many came.
    fn copy_words_in(&self, address: u64, into: &mut [u64]) -> Result<usize> {
        let mut bytes = alloc::vec![0; into.len() * 8];
        let count = self.copy_in(address, &mut bytes)? / 8;
        for (word, bytes) in into.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Ok(count)
    }
    /// Saves the processor's vector state to `address`, a multiple of 64, as signal frames have it: XSAVE's standard
    /// format, what it is in the software-reserved bytes, the second magic word behind it. `format` is XCR0 and the
    /// bytes that go with it. `EFAULT`.
    fn save_vector(&self, address: u64, format: (u64, usize)) -> Result<()>;
    /// Loads what [`Self::save_vector`] left there, as the handler changed it; state in FXSAVE's format where the
    /// program says nothing of more. `EFAULT`: it is not there, or the processor refuses it; what is loaded then is
    /// any state of the program's.
    fn load_vector(&self, address: u64, format: (u64, usize)) -> Result<()>;
    /// Adds `length` bytes from `address` on to `memory`, for a device to write, or to read; how many are there.
    ///
    /// # Errors
    /// `EINVAL`: there are no frames of a program's here. `ENOMEM`.
    fn pin(&self, address: u64, length: u64, is_written: bool, memory: &mut PinnedMemory) -> Result<u64> {
        let _ = (address, length, is_written, memory);
        Err(Errno::EINVAL)
    }
    /// The credentials of the call that copies, as files see them; `None` where no call does.
    fn caller(&self) -> Option<Credentials> {
        None
    }
    /// Writes up to `length` zero bytes to the program; how many, fewer where its memory ended.
    fn zero_out(&self, address: u64, length: usize) -> usize {
        self.copy_out(address, &alloc::vec![0; length]).unwrap_or(0)
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

/// Most bytes that a call reads of the program without asking for memory: half of what it may take of the reserve.
const SMALL_BYTES: usize = reserve::CALL_BYTES_MAX / 2;

/// Reads a length that is the program's word, with a limit: `EINVAL` beyond it. `ENOMEM`.
pub fn read_vec(memory: &dyn UserMemory, address: u64, length: u64, limit: usize) -> Result<Vec<u8>> {
    let length = usize::try_from(length).ok().filter(|length| *length <= limit).ok_or(Errno::EINVAL)?;
    let mut bytes = if length <= SMALL_BYTES { Vec::with_capacity(length) } else { reserve::vector(length)? };
    bytes.resize(length, 0);
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

/// Reads exactly `N` words.
#[inline]
pub fn read_words<const N: usize>(memory: &dyn UserMemory, address: u64) -> Result<[u64; N]> {
    let mut words = [0; N];
    match memory.copy_words_in(address, &mut words)? {
        count if count == N => Ok(words),
        _ => Err(Errno::EFAULT),
    }
}

/// Writes all of the words.
#[inline]
pub fn write_words(memory: &dyn UserMemory, address: u64, from: &[u64]) -> Result<()> {
    match memory.copy_words_out(address, from)? {
        count if count == from.len() => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

/// Bytes of a string that are read at a time: most paths are shorter.
pub const STRING_STEP_BYTES: usize = 64;

/// A string of the program's: nearly always one that needs no memory of its own.
#[derive(Clone, Debug)]
pub struct Text {
    short: [u8; STRING_STEP_BYTES],
    length: usize,
    /// All of it, if it is not short.
    long: Option<Vec<u8>>,
}

impl Default for Text {
    fn default() -> Self {
        Self { short: [0; STRING_STEP_BYTES], length: 0, long: None }
    }
}

impl core::ops::Deref for Text {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.long {
            None => &self.short[..self.length],
            Some(long) => long,
        }
    }
}

/// As [`read_string`], for strings that are short and used for the length of a call: `text` is an empty one.
pub fn read_text(memory: &dyn UserMemory, address: u64, limit: usize, too_long: Errno, text: &mut Text) -> Result<()> {
    let room = (CHUNK_BYTES - (address as usize % CHUNK_BYTES)).min(STRING_STEP_BYTES);
    let count = memory.copy_in(address, &mut text.short[..room])?;
    match zero_byte_of(&text.short).filter(|end| *end < count) {
        Some(end) if end <= limit => text.length = end,
        _ => text.long = Some(read_string(memory, address, limit, too_long)?),
    }
    Ok(())
}

/// Reads a string that is short, into `bytes`; `None`: it is not, or its memory ends.
#[inline]
pub fn read_short<'a>(
    memory: &dyn UserMemory,
    address: u64,
    bytes: &'a mut [u8; STRING_STEP_BYTES],
) -> Option<&'a [u8]> {
    let room = (CHUNK_BYTES - (address as usize % CHUNK_BYTES)).min(STRING_STEP_BYTES);
    let count = memory.copy_in(address, &mut bytes[..room]).ok()?;
    let end = zero_byte_of(bytes)?;
    if end < count { Some(&bytes[..end]) } else { None }
}

/// Where the first zero byte is.
#[inline]
fn zero_byte_of(bytes: &[u8; STRING_STEP_BYTES]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    for (index, chunk) in bytes.as_chunks::<8>().0.iter().enumerate() {
        let word = u64::from_le_bytes(*chunk);
        // The lowest bit that stays is the top bit of the first byte that is zero.
        let zeros = word.wrapping_sub(ONES) & !word & (ONES << 7);
        if zeros != 0 {
            return Some(index * 8 + zeros.trailing_zeros() as usize / 8);
        }
    }
    None
}

/// Reads a string up to its zero byte, at most `limit` bytes long without it.
pub fn read_string(memory: &dyn UserMemory, address: u64, limit: usize, too_long: Errno) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut chunk = [0; STRING_STEP_BYTES];
    let mut position = address;
    loop {
        // Up to the end of a page at most, so that a string that ends before an unmapped page is not refused.
        let room = (CHUNK_BYTES - (position as usize % CHUNK_BYTES)).min(chunk.len());
        let count = memory.copy_in(position, &mut chunk[..room])?;
        if let Some(end) = zero_byte_of(&chunk).filter(|end| *end < count) {
            if text.is_empty() {
                // Nearly always, and exactly as much memory as it needs.
                text = chunk[..end].to_vec();
            } else {
                text.extend_from_slice(&chunk[..end]);
            }
            return if text.len() > limit { Err(too_long) } else { Ok(text) };
        }
        if count < room {
            return Err(Errno::EFAULT);
        }
        reserve::reserve(&mut text, count)?;
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
    /// Length in bytes.
    pub length: u64,
}

/// Most entries of an iovec array (`UIO_MAXIOV`).
pub const EXTENT_COUNT_MAX: u64 = 1024;
/// Most bytes that one read or write moves (Linux's `MAX_RW_COUNT`).
pub const MAX_RW_COUNT: u64 = 0x7fff_f000;

/// Reads an iovec array; the total is cut at [`MAX_RW_COUNT`]. `EINVAL`: too many entries or a negative length.
pub fn read_extents(memory: &dyn UserMemory, address: u64, count: u64) -> Result<Vec<Extent>> {
    if count > EXTENT_COUNT_MAX {
        return Err(Errno::EINVAL);
    }
    let bytes = read_vec(memory, address, count * 16, EXTENT_COUNT_MAX as usize * 16)?;
    let mut room = MAX_RW_COUNT;
    let mut bad = false;
    let mut extents = Vec::with_capacity(count as usize);
    for entry in bytes.chunks_exact(16) {
        let start = crate::abi::bytes::get::u64(entry, 0);
        let length = crate::abi::bytes::get::u64(entry, 8);
        if length > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        // Linux too says so of each buffer before it touches the first.
        if start.checked_add(length).is_none_or(|end| end > PROGRAM_END) {
            bad = true;
        }
        let length = length.min(room);
        room -= length;
        extents.push(Extent { address: start, length });
    }
    if bad { Err(Errno::EFAULT) } else { Ok(extents) }
}

/// Where one is in program buffers that are gone through in a row.
struct Cursor<'a> {
    /// What is left of the current buffer; not empty unless all are.
    current: Extent,
    rest: &'a [Extent],
    /// Bytes left in all.
    left: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn new(extents: &'a [Extent]) -> Self {
        match extents {
            [only] => Self { current: *only, rest: &[], left: only.length as usize },
            extents => Self::of_many(extents),
        }
    }

    #[cold]
    fn of_many(extents: &'a [Extent]) -> Self {
        let left = extents.iter().map(|extent| extent.length).sum::<u64>() as usize;
        let mut cursor = Self { current: Extent { address: 0, length: 0 }, rest: extents, left };
        cursor.skip_empty();
        cursor
    }

    #[cold]
    fn skip_empty(&mut self) {
        while self.current.length == 0
            && let Some((next, rest)) = self.rest.split_first()
        {
            (self.current, self.rest) = (*next, rest);
        }
    }

    /// Moves the next `count` bytes piece by piece: `copy` gets an address, how far that is, and a length, and answers
    /// how many bytes it could move. Ends where it could not move all.
    #[inline]
    fn advance(&mut self, count: usize, mut copy: impl FnMut(u64, usize, usize) -> Result<usize>) -> usize {
        // One piece, nearly always.
        if count as u64 <= self.current.length {
            let copied = copy(self.current.address, 0, count).unwrap_or(0);
            self.step(copied);
            return copied;
        }
        self.advance_by_pieces(count, &mut copy)
    }

    /// Moves on in the current buffer.
    #[inline(always)]
    fn step(&mut self, copied: usize) {
        self.current.address = self.current.address.wrapping_add(copied as u64);
        self.current.length -= copied as u64;
        self.left -= copied;
        if self.current.length == 0 && !self.rest.is_empty() {
            self.skip_empty();
        }
    }

    /// Moves on behind bytes that `pin` could add, of the next `count`.
    fn pin(&mut self, count: u64, mut pin: impl FnMut(u64, u64) -> Result<u64>) -> Result<u64> {
        let mut done = 0;
        while done < count && self.current.length > 0 {
            let length = self.current.length.min(count - done);
            let held = match pin(self.current.address, length) {
                Err(error) if done == 0 => return Err(error),
                held => held.unwrap_or(0),
            };
            self.step(held as usize);
            done += held;
            if held < length {
                break;
            }
        }
        Ok(done)
    }

    #[cold]
    fn advance_by_pieces(&mut self, count: usize, copy: &mut dyn FnMut(u64, usize, usize) -> Result<usize>) -> usize {
        let mut done = 0;
        while done < count && self.current.length > 0 {
            let length = self.current.length.min((count - done) as u64) as usize;
            let copied = copy(self.current.address, done, length).unwrap_or(0);
            self.step(copied);
            done += copied;
            if copied < length {
                break;
            }
        }
        done
    }
}

/// Program buffers as a place to read into.
pub struct UserWriter<'a> {
    memory: &'a dyn UserMemory,
    cursor: Cursor<'a>,
}

impl<'a> UserWriter<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub fn new(memory: &'a dyn UserMemory, extents: &'a [Extent]) -> Self {
        Self { memory, cursor: Cursor::new(extents) }
    }
}

impl exos::fs::transfer::Destination for UserWriter<'_> {
    fn remaining(&self) -> usize {
        self.cursor.left
    }

    fn put(&mut self, bytes: &[u8]) -> usize {
        let memory = self.memory;
        self.cursor.advance(bytes.len(), |address, done, length| memory.copy_out(address, &bytes[done..done + length]))
    }

    #[inline(always)]
    fn put_nofault(&mut self, bytes: &[u8]) -> bool {
        let Extent { address, length } = self.cursor.current;
        let is_done = bytes.len() as u64 <= length && self.memory.copy_out_nofault(address, bytes) == 0;
        if is_done {
            self.cursor.step(bytes.len());
        }
        is_done
    }

    fn put_frame(&mut self, frames: &dyn FrameBytes, frame: FrameNumber, offset: usize, count: usize) -> usize {
        let memory = self.memory;
        self.cursor.advance(count, |address, done, length| {
            memory.copy_frame_out(address, frames, frame, offset + done, length)
        })
    }

    fn put_frame_nofault(&mut self, frames: &dyn FrameBytes, frame: FrameNumber, offset: usize, count: usize) -> usize {
        let memory = self.memory;
        self.cursor.advance(count, |address, done, length| {
            Ok(memory.copy_frame_out_nofault(address, frames, frame, offset + done, length))
        })
    }

    fn pin(&mut self, count: u64, memory: &mut PinnedMemory) -> Result<u64> {
        let program = self.memory;
        self.cursor.pin(count, |address, length| program.pin(address, length, true, memory))
    }

    fn put_zeros(&mut self, count: usize) -> usize {
        let memory = self.memory;
        self.cursor.advance(count, |address, _, length| Ok(memory.zero_out(address, length)))
    }
}

/// How many of the first `room` bytes lie in front of the first page that cannot be read.
pub fn readable_bytes<'a>(
    memory: &dyn UserMemory,
    extents: impl IntoIterator<Item = &'a Extent>,
    room: usize,
) -> usize {
    const PAGE_BYTES: u64 = 4096;
    let (mut done, mut byte) = (0, [0]);
    for extent in extents {
        let mut at = extent.address;
        let end = extent.address.saturating_add(extent.length.min((room - done) as u64));
        while at < end {
            if memory.copy_in(at, &mut byte).unwrap_or(0) == 0 {
                return done;
            }
            let next = (at / PAGE_BYTES + 1).saturating_mul(PAGE_BYTES).min(end);
            done += (next - at) as usize;
            at = next;
        }
    }
    done
}

/// Program buffers as a place to write from.
pub struct UserReader<'a> {
    memory: &'a dyn UserMemory,
    cursor: Cursor<'a>,
}

impl<'a> UserReader<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub fn new(memory: &'a dyn UserMemory, extents: &'a [Extent]) -> Self {
        Self { memory, cursor: Cursor::new(extents) }
    }
}

impl exos::fs::transfer::Source for UserReader<'_> {
    fn remaining(&self) -> usize {
        self.cursor.left
    }

    fn writer(&self) -> Option<Credentials> {
        self.memory.caller()
    }

    fn can_take(&mut self, count: usize) -> bool {
        let extents = core::iter::once(&self.cursor.current).chain(self.cursor.rest);
        readable_bytes(self.memory, extents, count) == count
    }

    fn pin(&mut self, count: u64, memory: &mut PinnedMemory) -> Result<u64> {
        let program = self.memory;
        self.cursor.pin(count, |address, length| program.pin(address, length, false, memory))
    }

    fn pass_over(&mut self) -> usize {
        core::mem::take(&mut self.cursor.left)
    }

    fn take(&mut self, into: &mut [u8]) -> usize {
        let memory = self.memory;
        self.cursor.advance(into.len(), |address, done, length| memory.copy_in(address, &mut into[done..done + length]))
    }

    #[inline(always)]
    fn take_nofault(&mut self, into: &mut [u8]) -> bool {
        let Extent { address, length } = self.cursor.current;
        let is_done = into.len() as u64 <= length && self.memory.copy_in_nofault(address, into) == 0;
        if is_done {
            self.cursor.step(into.len());
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
        let memory = self.memory;
        self.cursor.advance(count, |address, done, length| {
            Ok(memory.copy_frame_in_nofault(address, frames, frame, offset + done, length))
        })
    }
}
