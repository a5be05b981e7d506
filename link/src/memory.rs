//! The page by which a pod tells the manager how it is with its memory, and the manager what is granted to it.
//!
//! One frame of the manager's for each pod whose memory may change, mapped in the pod at [`MEMORY_PAGE_BASE`], which
//! both write: the pod what it wants, the manager what it may have. Each believes the other no further than that: a
//! pod that lies harms its own share, and the manager's words change nothing that the kernel does not enforce. Words
//! are read and written whole, in no order.

use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::CapSlot;
use aegis_abi::layout::LIBOS_BASE;

/// Slot of a pod's own table: the bell by which it has the manager look at its page.
pub const SLOT_POD_MEMORY_BELL: CapSlot = CapSlot(10);
/// Slot of a pod's own table: the page's frame.
pub const SLOT_POD_MEMORY: CapSlot = CapSlot(11);
/// Where the page is in a pod.
pub const MEMORY_PAGE_BASE: u64 = LIBOS_BASE + 0x8000;

/// Frames that are moved at a time: what exos takes and gives at a time.
pub const UNIT_FRAME_COUNT: u64 = 512;

/// One part in so many of a program's memory is added for what describes it: page tables, exos's page maps.
const DESCRIBING_SHARE: u64 = 32;
/// Frames of a MiB.
pub const FRAMES_PER_MIB: u64 = 256;

/// A program's memory with what describes it.
#[must_use]
pub const fn described_mib(program_mib: u64) -> u64 {
    program_mib + program_mib.div_ceil(DESCRIBING_SHARE)
}

/// The reverse in frames: those of the program, of so many frames with what describes it.
#[must_use]
pub const fn program_frame_count(described_frame_count: u64) -> u64 {
    let mib = described_frame_count / FRAMES_PER_MIB;
    mib * DESCRIBING_SHARE / (DESCRIBING_SHARE + 1) * FRAMES_PER_MIB + described_frame_count % FRAMES_PER_MIB
}

/// What a pod and the manager tell each other.
#[derive(Debug, Default)]
#[repr(C)]
pub struct MemoryPage {
    /// By the pod: grows whenever it had to give up memory that it will want again.
    pub pressure: AtomicU64,
    /// By the pod: frames without which it cannot go on; 0: none.
    pub needed: AtomicU64,
    /// By the pod: frames that it owns and can give without harm.
    pub spare: AtomicU64,
    /// By the manager: frames that the pod keeps whatever others want.
    pub guaranteed: AtomicU64,
    /// By the manager: frames that the pod may own at most.
    pub limit: AtomicU64,
    /// By the manager: needs that were looked at and could not be met.
    pub refused: AtomicU64,
}

impl MemoryPage {
    /// A word.
    #[must_use]
    pub fn read(word: &AtomicU64) -> u64 {
        word.load(Ordering::Relaxed)
    }

    /// Writes a word.
    pub fn write(word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{described_mib, program_frame_count};

    #[test]
    fn what_describes_memory_is_taken_off_as_it_was_added() {
        for mib in 1..5000 {
            assert_eq!(program_frame_count(described_mib(mib) * 256), mib * 256);
        }
        assert_eq!((program_frame_count(0), program_frame_count(255), program_frame_count(256)), (0, 255, 0));
    }
}
