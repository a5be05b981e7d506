//! The two seams of exos: the kernel below, and the bytes of frames. Implemented over `aegis-rt` in
//! the machine and by [`crate::fake`] on the host.

use aegis_abi::memory::BindEntry;
use aegis_abi::{CapSlot, FrameNumber, Status};

/// What policies ask of the kernel.
pub trait Kernel: Send + Sync {
    /// Takes `count` contiguous free frames aligned to `1 << alignment_log2` frames. The capability
    /// allows everything.
    fn allocate_frames(&self, count: u64, alignment_log2: u32) -> Result<FrameGrant, Status>;

    /// Gives a whole grant back; nothing of it is mapped any more.
    fn free_frames(&self, grant: FrameGrant) -> Result<(), Status>;

    /// Applies a batch to the address space of environment `space` (a capability slot; `SLOT_SELF`
    /// for one's own), repeating bounded calls and donating table frames as needed. Entries before
    /// the failing one are done.
    fn bind(&self, space: CapSlot, entries: &[BindEntry]) -> Result<(), BindFault>;

    /// Makes an empty address space of this environment: a slot for [`Kernel::bind`].
    fn create_space(&self) -> Result<CapSlot, Status>;

    /// Ends an address space that [`Kernel::create_space`] made, and all mappings in it. `Busy`: a processor is still
    /// in it; it is ended later, and until then its mappings stay.
    fn destroy_space(&self, space: CapSlot) -> Result<(), Status>;

    /// Address spaces that there are now, and how many there may be at most; `None`: nobody counts them.
    fn space_counts(&self) -> Option<(u64, u64)> {
        None
    }

    /// Whether an address space that has at most `table_count` page tables more than when it was made or this was asked
    /// last may be another process's, with its tables. False: the caller ends the space.
    fn keep_space(&self, _space: CapSlot, _table_count: u64) -> bool {
        false
    }

    /// Frames that the pod's pool may hold now; `None`: as many as at the start.
    fn frame_limit(&self) -> Option<u64> {
        None
    }

    /// Frames that the pod's pool may ever hold, while the pod is allowed more where it needs more; `None`: as many as
    /// [`Kernel::frame_limit`].
    fn frame_limit_at_most(&self) -> Option<u64> {
        None
    }

    /// Frames that the pod may still take, for its pool and for all else; `None`: as many as the limit says.
    fn frame_count_free(&self) -> Option<u64> {
        None
    }

    /// Somebody wanted frames and there were none.
    fn note_shortage(&self) {}

    /// Asks for more frames, and waits until there may be some; false: none will come. Called where nothing is held
    /// that may not be held over a wait.
    fn await_frames(&self) -> bool {
        false
    }

    /// The pod gave up cached frames, because there were no others, that it may want again.
    fn note_pressure(&self, _frame_count: u64) {}

    /// Which frames of a grant are left, from its first on; fewer than there were if some were taken by force.
    fn frames_left(&self, grant: FrameGrant) -> u64 {
        grant.count
    }

    /// Nanoseconds since the kernel's start.
    fn now_ns(&self) -> u64;

    /// Fills `bytes` with unpredictable bytes (or, in a deterministic run, from the run's seed).
    fn random(&self, bytes: &mut [u8]);

    /// One line for the host's log (a missing system call, a repaired state). Never data of the program.
    fn log(&self, level: LogLevel, text: core::fmt::Arguments<'_>);
}

/// A range of frames that the kernel gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameGrant {
    /// The capability.
    pub slot: CapSlot,
    /// First frame.
    pub first: FrameNumber,
    /// Frames.
    pub count: u64,
}

/// A bind batch that stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindFault {
    /// The entry that was refused.
    pub entry_index: usize,
    /// The kernel's status.
    pub status: Status,
}

/// How loud a log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Shown unless `-q`.
    Warning,
    /// Shown with `--verbose`.
    Info,
}

/// The bytes of the frames that this pod owns or may read, through the library OS's direct view of
/// them.
///
/// Programs may hold the same frames mapped and change them at any time; so bytes are copied, never
/// borrowed. Offsets are in bytes; `offset + length` stays inside the frame, which is the caller's
/// duty and asserted.
pub trait FrameBytes: Send + Sync {
    /// Makes a new grant visible here; called once for each, before any of its frames is used.
    fn attach(&self, grant: FrameGrant) -> Result<(), Status>;
    /// Ends what `attach` began; called before the grant is given back.
    fn detach(&self, grant: FrameGrant) -> Result<(), Status>;
    /// Copies from a frame.
    fn read(&self, frame: FrameNumber, offset: usize, into: &mut [u8]);
    /// Copies into a frame.
    fn write(&self, frame: FrameNumber, offset: usize, from: &[u8]);
    /// Fills whole neighbouring frames with zeros.
    fn zero(&self, first: FrameNumber, count: usize);
    /// Copies a whole frame.
    fn copy(&self, from: FrameNumber, to: FrameNumber);
    /// Atomically replaces the naturally aligned 32-bit word at `offset` by `new` if it is
    /// `current`. The answer is the word that was there, as `Ok` if it was replaced. Sequentially
    /// consistent; for futexes.
    fn compare_exchange_u32(&self, frame: FrameNumber, offset: usize, current: u32, new: u32) -> Result<u32, u32>;

    /// The naturally aligned 32-bit word at `offset`, whole. What is read afterwards was there then, or came later.
    fn load_u32(&self, frame: FrameNumber, offset: usize) -> u32 {
        self.compare_exchange_u32(frame, offset, 0, 0).unwrap_or_else(|seen| seen)
    }

    /// Replaces the naturally aligned 32-bit word at `offset`, whole. A reader that sees it sees what was written
    /// before.
    fn store_u32(&self, frame: FrameNumber, offset: usize, word: u32) {
        let mut seen = self.load_u32(frame, offset);
        while let Err(other) = self.compare_exchange_u32(frame, offset, seen, word) {
            seen = other;
        }
    }
}
