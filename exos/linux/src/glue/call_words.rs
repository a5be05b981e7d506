//! The library words that rewritten calls are answered by (`fast.rs`), and whose they are when a thread comes to a
//! processor.

use aegis_abi::upcall::{ControlPage, UpcallFrame};
use aegis_rt::control;
use aegis_rt::upcall::set_fault_handler;
use core::mem::offset_of;
use core::sync::atomic::Ordering;
use exos_linux::task::facts::Facts;
use exos_linux::task::process::{Process, Thread};

/// The words, by their numbers.
pub(super) const WORD_ENTRY: usize = 40;
pub(super) const WORD_STACK_POINTER: usize = 41;
pub(super) const WORD_CONTINUATION: usize = 42;
pub(super) const WORD_FACTS: usize = 43;
pub(super) const WORD_THREAD: usize = 44;
pub(super) const WORD_ATTENTION: usize = 45;
pub(super) const WORD_COUNT: usize = 46;
pub(super) const WORD_LONG_COUNT: usize = 47;

pub(super) const fn word(index: usize) -> usize {
    offset_of!(ControlPage, library) + 8 * index
}

unsafe extern "C" {
    /// What a fault of a program that handles some itself is offered to first. It stands above this, in `entry.rs`.
    pub(super) safe fn exos_fault_nofault(frame: &mut UpcallFrame) -> bool;
    /// The entry of calls that all take the long way. It stands above this, in `fast.rs`.
    static exos_fast_entry_long: u8;
}

/// Has every call that comes to this processor take the long way from now on.
pub(crate) fn show_calls() {
    control::set_library_word::<WORD_ENTRY>(&raw const exos_fast_entry_long as u64);
}

/// Says whose calls this processor answers from now on: while the thread runs on it, so its facts stay.
#[inline]
pub(crate) fn set_thread(process: &Process, thread: &Thread) {
    control::set_library_word::<WORD_FACTS>(core::ptr::from_ref::<Facts>(&thread.facts) as u64);
    control::set_library_word::<WORD_THREAD>(u64::from(thread.tid()));
    let has_handled_faults = process.has_handled_faults.load(Ordering::Relaxed);
    set_fault_handler(has_handled_faults.then_some(exos_fault_nofault));
}

/// The thread that runs here may have another number than when it came.
pub(crate) fn renumber(thread: &Thread) {
    control::set_library_word::<WORD_THREAD>(u64::from(thread.tid()));
}
