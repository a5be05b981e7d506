//! Which frames the heap's memory is made of: a row of chunks, each a large page or a piece of one, in the order of
//! their addresses, each with the capability of its own.
//!
//! Invariants: chunks are bound for ever, so the row only grows. It lies in the heap itself, where only whoever has the
//! heap's lock looks at it.

use aegis_abi::FrameNumber;
use core::alloc::Layout;
use core::ptr::NonNull;
use exos::platform::FrameGrant;

/// First-level classes: blocks up to 2^(5 + 28) bytes.
pub(super) type Tlsf = rlsf::Tlsf<'static, u32, u32, 28, 32>;

/// Chunks that the first row has room for.
const COUNT_MIN: usize = 64;

/// Frames that were bound together.
#[derive(Clone, Copy)]
struct Chunk {
    address: u64,
    grant: FrameGrant,
    /// Whether the direct view shows them.
    is_shown: bool,
}

/// All of them.
pub(super) struct Chunks {
    row: Option<NonNull<Chunk>>,
    room: usize,
    count: usize,
}

// SAFETY: the row belongs to whoever has this, on any processor.
unsafe impl Send for Chunks {}

impl Chunks {
    pub(super) const fn new() -> Self {
        Self { row: None, room: 0, count: 0 }
    }

    fn all(&mut self) -> &mut [Chunk] {
        match self.row {
            // SAFETY: the row has room for `room` chunks, of which the first `count` were written, and is ours.
            Some(row) => unsafe { core::slice::from_raw_parts_mut(row.as_ptr(), self.count) },
            None => &mut [],
        }
    }

    /// Notes a chunk behind all others, in memory of `tlsf`. One that there is no room for, or that is not aligned, is
    /// never lent.
    pub(super) fn push(&mut self, tlsf: &mut Tlsf, address: u64, grant: FrameGrant) {
        if !grant.first.0.is_multiple_of(grant.count) {
            return;
        }
        if self.count == self.room && !self.grow(tlsf) {
            return;
        }
        if let Some(row) = self.row {
            // SAFETY: there is room for one more.
            unsafe { row.add(self.count).write(Chunk { address, grant, is_shown: false }) };
            self.count += 1;
        }
    }

    fn grow(&mut self, tlsf: &mut Tlsf) -> bool {
        let room = (2 * self.room).max(COUNT_MIN);
        let Ok(layout) = Layout::array::<Chunk>(room) else { return false };
        let Some(row) = tlsf.allocate(layout).map(NonNull::cast::<Chunk>) else { return false };
        if let Some(before) = self.row {
            // SAFETY: two rows, the second longer; the first came from `tlsf` with this alignment and is left.
            unsafe {
                core::ptr::copy_nonoverlapping(before.as_ptr(), row.as_ptr(), self.count);
                tlsf.deallocate(before.cast(), layout.align());
            }
        }
        (self.row, self.room) = (Some(row), room);
        true
    }

    /// The frames behind `count` pages of the heap, of which `show` has made visible what it gets; `None` if they are
    /// not of one chunk, or cannot be shown.
    pub(super) fn show(
        &mut self,
        address: u64,
        count: u64,
        show: impl FnOnce(FrameGrant) -> bool,
    ) -> Option<FrameGrant> {
        let chunks = self.all();
        let index = chunks.partition_point(|chunk| chunk.address <= address).checked_sub(1)?;
        let chunk = chunks.get_mut(index)?;
        let first = (address - chunk.address) / 4096;
        if first + count > chunk.grant.count {
            return None;
        }
        if !chunk.is_shown {
            if !show(chunk.grant) {
                return None;
            }
            chunk.is_shown = true;
        }
        Some(FrameGrant { slot: chunk.grant.slot, first: FrameNumber(chunk.grant.first.0 + first), count })
    }
}
