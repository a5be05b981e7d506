//! Marks that memory is short or was taken, set where nothing can be done about it: in upcalls, and with locks held.
//!
//! [`super::memory`] looks at them where no lock is held, and acts.

use aegis_abi::upcall::UpcallKind;
use core::sync::atomic::{AtomicBool, Ordering};

/// Kinds of upcalls that say that something happened to the pod's frames.
const KINDS: u32 = 1 << UpcallKind::Revocation as u32 | 1 << UpcallKind::Repossession as u32;
/// There is something to do.
pub(crate) static IS_ASKED: AtomicBool = AtomicBool::new(false);
/// Somebody found no frames since a call looked last.
pub(crate) static IS_SHORT: AtomicBool = AtomicBool::new(false);
/// The heap could not grow since a call looked last.
pub(crate) static IS_HEAP_SHORT: AtomicBool = AtomicBool::new(false);

/// Notes upcalls: bit n for kind n.
#[inline]
pub(crate) fn note(kinds: u32) {
    if kinds & KINDS != 0 {
        IS_ASKED.store(true, Ordering::Relaxed);
    }
}

/// Whether [`super::memory::answer`] has something to do.
#[inline]
pub(crate) fn is_asked() -> bool {
    IS_ASKED.load(Ordering::Relaxed)
}

/// Somebody found no frames. The caller may hold locks.
pub(crate) fn note_shortage() {
    IS_SHORT.store(true, Ordering::Relaxed);
}

/// The heap cannot grow. The caller may hold locks.
pub(crate) fn note_heap_shortage() {
    IS_HEAP_SHORT.store(true, Ordering::Relaxed);
    note_shortage();
}
