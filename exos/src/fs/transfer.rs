//! Bytes to and from a program's memory, without ever borrowing it.
//!
//! A program's pages can change or vanish at any moment, so the personality copies; file systems only hand it bytes. A
//! caller of [`Destination::put`] or [`Source::take`] holds no lock (INV-F1): copying may fault, and the fault may need
//! the same file's pages. What is called "nofault" ends at a fault instead of having it handled, so locks may be held;
//! its caller goes on in the other way where it ended early. A short answer is a fault in the program's memory; what
//! was copied before it counts.

use alloc::vec::Vec;

use aegis_abi::FrameNumber;

use super::permission::Credentials;
use crate::error::{Errno, Result};
use crate::mem::pinned::PinnedMemory;
use crate::platform::FrameBytes;
use crate::preempt::{self, PIECE_BYTES};

/// Where a read puts its bytes: one buffer or several in a row.
pub trait Destination {
    /// Bytes that can still be put.
    fn remaining(&self) -> usize;

    /// Copies `bytes` (at most [`Self::remaining`]) to the program and moves on behind them. Returns how
    /// many were copied; fewer than given means that the memory behind them cannot be written.
    fn put(&mut self, bytes: &[u8]) -> usize;

    /// Puts `count` bytes of a frame from `offset` on. Returns as [`Self::put`] does.
    fn put_frame(&mut self, frames: &dyn FrameBytes, frame: FrameNumber, offset: usize, count: usize) -> usize {
        let mut bounce = [0; 512];
        let mut done = 0;
        while done < count {
            let step = (count - done).min(bounce.len());
            frames.read(frame, offset + done, &mut bounce[..step]);
            let copied = self.put(&bounce[..step]);
            done += copied;
            if copied < step {
                break;
            }
        }
        done
    }

    /// As [`Self::put_frame`], but ends where a fault would have to be handled, and does nothing where that cannot be
    /// told: what a caller that holds a lock may use.
    fn put_frame_nofault(&mut self, frames: &dyn FrameBytes, frame: FrameNumber, offset: usize, count: usize) -> usize {
        let _ = (frames, frame, offset, count);
        0
    }

    /// Copies all of `bytes` and moves on behind them, or says `false` and does not move: where a fault would have to
    /// be handled, where there are several buffers, and where that cannot be told. A caller that holds a lock may use
    /// it.
    fn put_nofault(&mut self, bytes: &[u8]) -> bool {
        let _ = bytes;
        false
    }

    /// Adds the memory of the next bytes, at most `count`, to `memory` for a device to write, and moves on behind them;
    /// how many bytes.
    ///
    /// # Errors
    /// `EINVAL`: it is no memory that a device could write. `ENOMEM`.
    fn pin(&mut self, count: u64, memory: &mut PinnedMemory) -> Result<u64> {
        let _ = (count, memory);
        Err(Errno::EINVAL)
    }

    /// Puts `count` zero bytes. Returns as [`Self::put`] does.
    fn put_zeros(&mut self, count: usize) -> usize {
        const ZEROS: [u8; 512] = [0; 512];
        let mut done = 0;
        while done < count {
            let step = (count - done).min(ZEROS.len());
            let copied = self.put(&ZEROS[..step]);
            done += copied;
            if copied < step {
                break;
            }
        }
        done
    }
}

/// Where a write takes its bytes from: one buffer or several in a row.
pub trait Source {
    /// Bytes that can still be taken.
    fn remaining(&self) -> usize;

    /// Copies the next `into.len()` bytes (at most [`Self::remaining`]) from the program and moves on
    /// behind them. Returns how many were copied; fewer than asked means that the memory behind them cannot
    /// be read.
    fn take(&mut self, into: &mut [u8]) -> usize;

    /// The writer to a file, which decides whether that keeps its set-ID bits. `None`: exos, which keeps them.
    fn writer(&self) -> Option<Credentials> {
        None
    }

    /// Moves on behind all that is left, which nobody wants to see; how much that was.
    fn pass_over(&mut self) -> usize {
        take_unseen(self)
    }

    /// As [`Destination::pin`], for a device to read.
    ///
    /// # Errors
    /// `EINVAL`: it is no memory that a device could read. `ENOMEM`.
    fn pin(&mut self, count: u64, memory: &mut PinnedMemory) -> Result<u64> {
        let _ = (count, memory);
        Err(Errno::EINVAL)
    }

    /// Whether the next `count` bytes (at most [`Self::remaining`]) are there now, as far as that can be told without
    /// taking them.
    fn can_take(&mut self, count: usize) -> bool {
        count <= self.remaining()
    }

    /// Fills all of `into` and moves on, or says `false` and does not move, as [`Destination::put_nofault`] does.
    fn take_nofault(&mut self, into: &mut [u8]) -> bool {
        let _ = into;
        false
    }

    /// Copies the next `count` bytes into a frame from `offset` on. Ends where a fault would have to be handled, and
    /// does nothing where that cannot be told: what a caller that holds a lock may use.
    fn take_frame_nofault(
        &mut self,
        frames: &dyn FrameBytes,
        frame: FrameNumber,
        offset: usize,
        count: usize,
    ) -> usize {
        let _ = (frames, frame, offset, count);
        0
    }
}

/// Takes all that is left and keeps none of it, or as much as a signal lets it; how many bytes could be read.
pub fn take_unseen<S: Source + ?Sized>(source: &mut S) -> usize {
    let (mut unseen, mut done) = ([0; UNSEEN_STEP_BYTES], 0);
    while source.remaining() > 0 {
        let step = source.remaining().min(unseen.len());
        let taken = source.take(&mut unseen[..step]);
        done += taken;
        if taken < step || (done.is_multiple_of(PIECE_BYTES) && preempt::unless_signalled().is_err()) {
            break;
        }
    }
    done
}

/// Bytes that are taken unseen at a time.
const UNSEEN_STEP_BYTES: usize = 256;

/// What a transfer returns that stopped after `done` bytes: the count if there is one, else the error.
pub fn partial(done: usize, error: Errno) -> Result<usize> {
    if done > 0 { Ok(done) } else { Err(error) }
}

/// A destination in exos's own memory, with a limit.
#[derive(Debug)]
pub struct Buffer {
    /// Bytes that have been put.
    pub bytes: Vec<u8>,
    limit_bytes: usize,
}

impl Buffer {
    /// Takes up to `limit_bytes` bytes.
    pub fn with_limit(limit_bytes: usize) -> Self {
        Self { bytes: Vec::new(), limit_bytes }
    }
}

impl Destination for Buffer {
    fn remaining(&self) -> usize {
        self.limit_bytes - self.bytes.len()
    }

    fn put(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.remaining());
        self.bytes.extend_from_slice(&bytes[..count]);
        count
    }
}

/// Fills a slice of exos's own memory.
#[derive(Debug)]
pub struct SliceDestination<'a> {
    slice: &'a mut [u8],
    done: usize,
}

impl<'a> SliceDestination<'a> {
    /// Starts at the slice's beginning.
    pub fn new(slice: &'a mut [u8]) -> Self {
        Self { slice, done: 0 }
    }
}

impl Destination for SliceDestination<'_> {
    fn remaining(&self) -> usize {
        self.slice.len() - self.done
    }

    fn put(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.remaining());
        self.slice[self.done..self.done + count].copy_from_slice(&bytes[..count]);
        self.done += count;
        count
    }

    fn put_nofault(&mut self, bytes: &[u8]) -> bool {
        bytes.len() <= self.remaining() && self.put(bytes) == bytes.len()
    }

    fn put_frame_nofault(&mut self, frames: &dyn FrameBytes, frame: FrameNumber, offset: usize, count: usize) -> usize {
        let count = count.min(self.remaining());
        frames.read(frame, offset, &mut self.slice[self.done..self.done + count]);
        self.done += count;
        count
    }
}

/// A source in exos's own memory: what is left of the slice.
impl Source for &[u8] {
    fn remaining(&self) -> usize {
        self.len()
    }

    fn take(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.len());
        let (head, tail) = self.split_at(count);
        into[..count].copy_from_slice(head);
        *self = tail;
        count
    }

    fn take_nofault(&mut self, into: &mut [u8]) -> bool {
        into.len() <= self.len() && self.take(into) == into.len()
    }

    fn take_frame_nofault(
        &mut self,
        frames: &dyn FrameBytes,
        frame: FrameNumber,
        offset: usize,
        count: usize,
    ) -> usize {
        let (head, tail) = self.split_at(count.min(self.len()));
        frames.write(frame, offset, head);
        *self = tail;
        head.len()
    }
}

/// A destination that ends earlier than the one behind it.
pub struct Limited<'a> {
    inner: &'a mut dyn Destination,
    left: usize,
}

impl<'a> Limited<'a> {
    /// Lets at most `limit_bytes` through.
    pub fn new(inner: &'a mut dyn Destination, limit_bytes: usize) -> Self {
        let left = inner.remaining().min(limit_bytes);
        Self { inner, left }
    }
}

impl Destination for Limited<'_> {
    fn remaining(&self) -> usize {
        self.left
    }

    fn put(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.left);
        let copied = self.inner.put(&bytes[..count]);
        self.left -= copied;
        copied
    }

    fn put_frame(&mut self, frames: &dyn FrameBytes, frame: FrameNumber, offset: usize, count: usize) -> usize {
        let copied = self.inner.put_frame(frames, frame, offset, count.min(self.left));
        self.left -= copied;
        copied
    }

    fn put_frame_nofault(&mut self, frames: &dyn FrameBytes, frame: FrameNumber, offset: usize, count: usize) -> usize {
        let copied = self.inner.put_frame_nofault(frames, frame, offset, count.min(self.left));
        self.left -= copied;
        copied
    }

    fn put_zeros(&mut self, count: usize) -> usize {
        let copied = self.inner.put_zeros(count.min(self.left));
        self.left -= copied;
        copied
    }
}

/// Puts the part of `bytes` that starts at `offset` and fits: a read from contents that are all at hand.
///
/// # Errors
/// `EFAULT` if nothing could be copied though there was something to copy.
pub fn put_from(bytes: &[u8], offset: u64, destination: &mut dyn Destination) -> Result<usize> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let count = (bytes.len() - start).min(destination.remaining());
    if count == 0 {
        return Ok(0);
    }
    let mut done = 0;
    for piece in bytes[start..start + count].chunks(PIECE_BYTES) {
        let copied = destination.put(piece);
        done += copied;
        if copied < piece.len() {
            return partial(done, Errno::EFAULT);
        }
        if done < count && preempt::unless_killed().is_err() {
            break;
        }
    }
    Ok(done)
}
