//! Memory that a device works on: frames that are held, whatever becomes of the mappings that a program knows them by.
//!
//! [`PinnedMemory`] holds a reference to each of its frames, so none is anybody else's until it is dropped. It is
//! filled from a program's buffers ([`AddressSpace::pin`]): a page that is to be written is made the program's own
//! first, as a store would; one that exos only borrows (the boot bundle's) is copied, because devices do not reach it.
//!
//! As on Linux, a fork while a device writes leaves it open which of the two processes sees what was read.

use alloc::sync::Arc;
use alloc::vec::Vec;

use aegis_abi::FrameNumber;
use aegis_abi::layout::PAGE_SIZE;

use crate::error::{Errno, Result};
use crate::mem::area::Access;
use crate::mem::frames::FramePool;
use crate::mem::source::Wait;
use crate::mem::space::AddressSpace;

/// A piece of memory: bytes of frames that lie one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramePiece {
    /// The frame with the first byte.
    pub first: FrameNumber,
    /// Where in it that is.
    pub offset_bytes: u32,
    /// Bytes, also beyond the first frame.
    pub length_bytes: u32,
}

/// Memory of a request. Nearly always one piece, which needs no memory of its own.
#[derive(Clone, Debug, Default)]
pub enum Pieces {
    /// It names none.
    #[default]
    None,
    /// One.
    One(FramePiece),
    /// Several.
    Many(Vec<FramePiece>),
}

impl Pieces {
    /// All of them.
    #[must_use]
    pub fn as_slice(&self) -> &[FramePiece] {
        match self {
            Self::None => &[],
            Self::One(piece) => core::slice::from_ref(piece),
            Self::Many(pieces) => pieces,
        }
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.as_slice().len()
    }

    /// Bytes of all.
    #[must_use]
    pub fn byte_count(&self) -> u64 {
        self.as_slice().iter().map(|piece| u64::from(piece.length_bytes)).sum()
    }
}

/// Frames that are held, with a reference each, as the bytes that are transferred.
pub struct PinnedMemory {
    pool: Arc<FramePool>,
    pieces: Pieces,
}

impl PinnedMemory {
    /// Nothing yet.
    #[must_use]
    pub fn new(pool: Arc<FramePool>) -> Self {
        Self { pool, pieces: Pieces::None }
    }

    /// Bytes of all pieces.
    #[must_use]
    pub fn byte_count(&self) -> u64 {
        self.pieces.byte_count()
    }

    /// The pieces.
    #[must_use]
    pub fn pieces(&self) -> &[FramePiece] {
        self.pieces.as_slice()
    }

    /// Adds bytes of one frame, of which it takes over a reference. `ENOMEM`: the reference has been given up.
    pub fn push(&mut self, frame: FrameNumber, offset_bytes: u32, length_bytes: u32) -> Result<()> {
        let piece = FramePiece { first: frame, offset_bytes, length_bytes };
        let last = match &mut self.pieces {
            Pieces::None => {
                self.pieces = Pieces::One(piece);
                return Ok(());
            }
            Pieces::One(last) => last,
            Pieces::Many(pieces) => match pieces.last_mut() {
                Some(last) => last,
                None => return Err(Errno::EINVAL),
            },
        };
        let end = last.first.address() + u64::from(last.offset_bytes) + u64::from(last.length_bytes);
        let length = last.length_bytes.checked_add(length_bytes);
        if let Some(length) = length.filter(|_| frame.address() + u64::from(offset_bytes) == end) {
            last.length_bytes = length;
            if offset_bytes > 0 {
                // The frame was held already.
                self.pool.release(frame);
            }
            return Ok(());
        }
        let added = self.add(piece);
        if added.is_err() {
            self.pool.release(frame);
        }
        added
    }

    fn add(&mut self, piece: FramePiece) -> Result<()> {
        if let Pieces::One(first) = self.pieces {
            let mut pieces = Vec::new();
            pieces.try_reserve(4).map_err(|_| Errno::ENOMEM)?;
            pieces.push(first);
            self.pieces = Pieces::Many(pieces);
        }
        let Pieces::Many(pieces) = &mut self.pieces else { return Err(Errno::EINVAL) };
        pieces.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        pieces.push(piece);
        Ok(())
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        for piece in self.pieces.as_slice() {
            let bytes = u64::from(piece.offset_bytes) + u64::from(piece.length_bytes);
            (0..bytes.div_ceil(PAGE_SIZE)).for_each(|index| self.pool.release(FrameNumber(piece.first.0 + index)));
        }
    }
}

impl AddressSpace {
    /// Adds `length` bytes from `address` on to `memory`, to be read or written by a device; how many of them are
    /// there: none of watched memory of which the program is still to be told. `ENOMEM`: not one is, for want of
    /// memory.
    pub fn pin(&mut self, address: u64, length: u64, access: Access, memory: &mut PinnedMemory) -> Result<u64> {
        let mut done = 0;
        while done < length {
            let Some(next) = address.checked_add(done) else { break };
            let offset = next % PAGE_SIZE;
            let count = (PAGE_SIZE - offset).min(length - done);
            if self.is_untold(next, access) {
                break;
            }
            let Ok(frame) = self.frame_for(next, access, Wait::Allowed) else { break };
            let held = self.pool.hold(frame, access == Access::Write);
            match held.and_then(|frame| memory.push(frame, offset as u32, count as u32)) {
                Ok(()) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}

impl FramePool {
    /// One more reference to a frame of the pool's, or one to a copy of another's that is only to be read.
    fn hold(&self, frame: FrameNumber, is_written: bool) -> Result<FrameNumber> {
        if !self.is_immutable(frame) {
            self.retain(frame);
            return Ok(frame);
        }
        if is_written { Err(Errno::EFAULT) } else { self.allocate_copy(frame) }
    }
}
