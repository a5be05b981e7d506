//! The same back end on Aegis: exos tells of the first touch of watched pages (ADR 0076), in place of SIGSEGV.
//!
//! Pages have all rights, and are watched. A touch has its page opened by exos, which then enters [`told`] on the
//! thread's stack; that asks the store as the signal handler does, and returns to the access without a system call.
//! So to open a page costs no call at all; to close one is a change of exos's batch, that keeps the mapping in one
//! piece.
#![allow(unsafe_code, reason = "installs a handler of faults, and changes memory of the program")]

use std::io;
use std::sync::OnceLock;

use exos_native::abi;
use exos_native::call::{Change, apply, pages, version};
use exos_native::fault::{Fault, Registers, handle_faults};

use super::signal;
use crate::memory::{Access, MemoryError, PAGE_BYTES};

/// The first version of the interface that watches.
const VERSION_MIN: usize = 3;

/// Set to anything, this has signals used on Aegis too: to compare.
const SIGNALS_VARIABLE: &str = "RHINO_SIGNALS";

/// Whether this is Aegis, and new enough, and nobody asked for signals.
pub(super) fn is_there() -> bool {
    static IS_THERE: OnceLock<bool> = OnceLock::new();
    *IS_THERE.get_or_init(|| {
        std::env::var_os(SIGNALS_VARIABLE).is_none() && version().is_ok_and(|version| version >= VERSION_MIN)
    })
}

/// Has faults in a range of pages told.
pub(super) fn add(start: usize, length: usize) -> io::Result<()> {
    // SAFETY: the handler asks the store, which touches no region through the program's mapping.
    unsafe { handle_faults(start, length, Some((told, 0)), Registers::All) }.map_err(of_errno)
}

/// Nobody is told any more.
pub(super) fn remove(start: usize, length: usize) {
    // SAFETY: takes a handler away.
    let _ = unsafe { handle_faults(start, length, None, Registers::All) };
}

/// Takes rights away until the next touch.
pub(super) fn close(start: usize, length: usize, access: Access) -> Result<(), MemoryError> {
    let kind = match access {
        Access::None => abi::CHANGE_WATCH_ACCESSES,
        Access::Read => abi::CHANGE_WATCH_STORES,
        // It is opened by the touch itself.
        Access::Write => return Ok(()),
    };
    // SAFETY: pages of the program's mapping keep their contents and rights.
    unsafe { apply(&[Change { address: start, length, kind, protection: 0 }]) }
        .map(|_| ())
        .map_err(|_| MemoryError::NoMemory)
}

/// Sets bit *n* of `bits` if page *n* was stored to; clears what it read if asked to.
pub(super) fn dirty(start: usize, page_count: usize, bits: &mut [u64], clears: bool) -> Result<(), MemoryError> {
    const PART: usize = 512;
    let mut part = [0; PART];
    for first in (0..page_count).step_by(PART) {
        let part = &mut part[..PART.min(page_count - first)];
        pages(start + first * PAGE_BYTES, part, clears).map_err(|_| MemoryError::Refused)?;
        for (page, state) in (first..).zip(part.iter()) {
            let word = bits.get_mut(page / 64).ok_or(MemoryError::Refused)?;
            let bit = 1 << (page % 64);
            *word = if state & abi::PAGE_DIRTY == 0 { *word & !bit } else { *word | bit };
        }
    }
    Ok(())
}

extern "C" fn told(fault: &mut Fault) {
    if signal::take(fault.address, fault.cause & abi::CAUSE_STORE != 0) {
        return;
    }
    // The program's mistake, which it hears of as anywhere: the repeated access is a SIGSEGV.
    let page = fault.address & !(PAGE_BYTES - 1);
    remove(page, PAGE_BYTES);
    // SAFETY: a page of the program's mapping.
    unsafe { libc::mprotect(page as *mut _, PAGE_BYTES, libc::PROT_NONE) };
}

fn of_errno(errno: exos_native::call::Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.0)
}
