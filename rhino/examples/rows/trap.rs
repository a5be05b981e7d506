//! What of a fault is trap: from the touch of a closed page until the handler runs, where it runs for Rhino.
//!
//! The pages are closed as Rhino closes them, and the handler is entered as Rhino's is: by exos's watched memory, or by
//! SIGSEGV. It closes the window as the first thing it does.
#![allow(unsafe_code, reason = "installs handlers of faults, and touches memory of its own")]

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::env;

use exos_native::abi;
use exos_native::call::{Change, apply, version};
use exos_native::fault::{Fault, Registers, handle_faults};
use rhino::{Error, MemoryError, PAGE_BYTES};

use crate::meter::{Meter, Name, start, stop};
use crate::micro::BATCH;

/// The first version of exos's interface that watches.
const VERSION_MIN: usize = 3;
const BYTES: usize = BATCH * PAGE_BYTES;

/// Only faults of this module's touches are answered.
static IS_TOUCHING: AtomicBool = AtomicBool::new(false);

/// Pages in a memory file, as a region's.
struct Pages {
    address: usize,
    is_native: bool,
}

fn failed() -> Error {
    Error::Memory(MemoryError::Refused)
}

extern "C" fn told(_: &mut Fault) {
    stop();
}

extern "C" fn on_signal(_: c_int, information: *mut libc::siginfo_t, _: *mut c_void) {
    stop();
    if !IS_TOUCHING.load(Ordering::Relaxed) {
        // SAFETY: ends the program when the access is repeated.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
        return;
    }
    // SAFETY: the kernel gives it; the page is this module's.
    unsafe {
        let page = (*information).si_addr() as usize & !(PAGE_BYTES - 1);
        libc::mprotect(page as *mut c_void, PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE);
    }
}

impl Pages {
    fn new(is_native: bool) -> Result<Self, Error> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new file and a new mapping of it.
        let address = unsafe {
            let file = libc::memfd_create(c"trap".as_ptr(), libc::MFD_CLOEXEC);
            let is_sized = libc::ftruncate(file, BYTES as libc::off_t) == 0;
            let address = libc::mmap(ptr::null_mut(), BYTES, protection, libc::MAP_SHARED, file, 0);
            libc::close(file);
            if !is_sized || address == libc::MAP_FAILED {
                return Err(failed());
            }
            address as usize
        };
        if is_native {
            // SAFETY: the handler touches nothing.
            unsafe { handle_faults(address, BYTES, Some((told, 0)), Registers::All) }.map_err(|_| failed())?;
        }
        Ok(Self { address, is_native })
    }

    fn close(&self) -> Result<(), Error> {
        if self.is_native {
            let change =
                Change { address: self.address, length: BYTES, kind: abi::CHANGE_WATCH_ACCESSES, protection: 0 };
            // SAFETY: pages of this mapping keep their contents and rights.
            return unsafe { apply(&[change]) }.map(|_| ()).map_err(|_| failed());
        }
        // SAFETY: pages of this mapping.
        let result = unsafe { libc::mprotect(self.address as *mut c_void, BYTES, libc::PROT_NONE) };
        if result == 0 { Ok(()) } else { Err(failed()) }
    }

    /// Touches every page; a window is open from the touch until the handler runs.
    fn touch(&self, is_store: bool) {
        IS_TOUCHING.store(true, Ordering::Relaxed);
        for number in 0..BATCH {
            let place = (self.address + number * 37 % BATCH * PAGE_BYTES) as *mut u8;
            start();
            // SAFETY: inside the mapping.
            unsafe {
                if is_store {
                    place.write_volatile(1);
                } else {
                    place.read_volatile();
                }
            }
        }
        IS_TOUCHING.store(false, Ordering::Relaxed);
    }

    fn fill(&self) {
        // SAFETY: all of the mapping, which is open.
        unsafe { ptr::write_bytes(self.address as *mut u8, 1, BYTES) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this one's mapping.
        unsafe {
            if self.is_native {
                let _ = handle_faults(self.address, BYTES, None, Registers::All);
            }
            libc::munmap(self.address as *mut c_void, BYTES);
        }
    }
}

/// Says what is trap in a row. A warm page has its frame.
pub(crate) fn row(meter: &mut Meter, row: &str, is_store: bool, is_warm: bool) -> Result<(), Error> {
    let is_native = env::var_os("RHINO_SIGNALS").is_none() && version().is_ok_and(|version| version >= VERSION_MIN);
    // SAFETY: plain structures; what Rhino has installed comes back below.
    let before = unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        let mut before: libc::sigaction = core::mem::zeroed();
        libc::sigaction(libc::SIGSEGV, &action, &mut before);
        before
    };
    let name = Name { row, series: "diff", param: "trap" };
    let result = meter.row(name, BATCH, &[], || {
        let pages = Pages::new(is_native)?;
        if is_warm {
            pages.fill();
        }
        pages.close()?;
        pages.touch(is_store);
        Ok(())
    });
    // SAFETY: as above.
    unsafe { libc::sigaction(libc::SIGSEGV, &before, ptr::null_mut()) };
    result.map(|_| ())
}
