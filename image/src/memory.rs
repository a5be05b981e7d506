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
