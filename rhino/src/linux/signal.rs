//! Faults: which region an address is in, and which transaction the thread is in; by SIGSEGV, or on Aegis by
//! [`super::native`].
//!
//! The handler takes locks and allocates. It may, because the signal is synchronous: it comes from a load or store of
//! the program into a region, and neither this crate nor an allocator touches regions while it holds a lock.
#![allow(unsafe_code, reason = "installs a signal handler, and reads what the kernel gives it")]

use core::cell::Cell;
use core::ffi::c_int;
use std::io;
use std::sync::{Once, OnceLock, RwLock, Weak};
use std::vec::Vec;

use super::native;
use crate::memory::{Access, PAGE_BYTES};
use crate::store::RegionId;

/// What takes the faults of a region.
pub(super) trait Faults: Send + Sync {
    /// Takes a fault of a thread in this transaction; false if it is the program's mistake.
    fn fault(&self, transaction: u64, region: RegionId, page: usize, want: Access) -> bool;
    /// Which one it is: a thread's transaction belongs to one.
    fn identity(&self) -> usize;
}

/// A mapped region of this process.
pub(super) struct Range {
    pub start: usize,
    pub length: usize,
    pub region: RegionId,
    /// Whoever has the region keeps it: what is left of a range here keeps no database open.
    pub shared: Weak<dyn Faults>,
}

static RANGES: RwLock<Vec<Range>> = RwLock::new(Vec::new());
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
static INSTALLED: Once = Once::new();

std::thread_local! {
    /// The thread's transaction, with the address of its database's shared part.
    static CURRENT: Cell<Option<(usize, u64)>> = const { Cell::new(None) };
}

/// The thread is in this transaction from now on.
pub(super) fn set_current(current: Option<(usize, u64)>) {
    CURRENT.set(current);
}

/// The transaction that the thread is in.
pub(super) fn current() -> Option<(usize, u64)> {
    CURRENT.get()
}

/// Faults in the range are the region's.
pub(super) fn add(range: Range) -> io::Result<()> {
    let mut result = Ok(());
    if native::is_there() {
        result = native::add(range.start, range.length);
    } else {
        INSTALLED.call_once(|| result = install());
    }
    RANGES.write().map_err(|_| io::ErrorKind::Other)?.push(range);
    result
}

/// The range's region has ended.
pub(super) fn remove(start: usize) {
    if let Ok(mut ranges) = RANGES.write() {
        let gone = ranges.extract_if(.., |range| range.start == start);
        gone.filter(|_| native::is_there()).for_each(|range| native::remove(range.start, range.length));
    }
}

fn install() -> io::Result<()> {
    // SAFETY: the structures are plain; the handler is a function for the life of the program.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        // On the thread's own stack, which is no region: alternative ones are too small for what is done here.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        let mut before: libc::sigaction = core::mem::zeroed();
        if libc::sigaction(libc::SIGSEGV, &action, &mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        let _ = BEFORE.set(before);
    }
    Ok(())
}

extern "C" fn handle(signal: c_int, information: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives both with SA_SIGINFO. Bit 1 of the error code says that it was a store (Intel SDM vol.
    // 3, 4.7).
    let (address, is_store) = unsafe {
        let machine = &(*context.cast::<libc::ucontext_t>()).uc_mcontext;
        ((*information).si_addr() as usize, machine.gregs[libc::REG_ERR as usize] & 2 != 0)
    };
    if !take(address, is_store) {
        forward(signal, information, context);
    }
}

/// Takes a fault of this thread; false if it is in no region, or the program's mistake.
pub(super) fn take(address: usize, is_store: bool) -> bool {
    // SAFETY: the thread's own error number, which the interrupted code may be about to read.
    let error_number = unsafe { *libc::__errno_location() };
    let place = RANGES.read().ok().and_then(|ranges| {
        let range = ranges.iter().find(|range| address.wrapping_sub(range.start) < range.length)?;
        Some((range.shared.upgrade()?, range.region, (address - range.start) / PAGE_BYTES))
    });
    let is_handled = place.is_some_and(|(shared, region, page)| {
        let want = if is_store { Access::Write } else { Access::Read };
        let transaction = current().filter(|current| current.0 == shared.identity());
        transaction.is_some_and(|(_, transaction)| shared.fault(transaction, region, page, want))
    });
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error_number };
    is_handled
}

/// Does what would have been done without this handler.
fn forward(signal: c_int, information: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.get().filter(|before| before.sa_sigaction > libc::SIG_IGN);
    // SAFETY: what was installed before is called as the kernel would; else the default ends the process when the
    // instruction is repeated.
    unsafe {
        match before {
            Some(before) if before.sa_flags & libc::SA_SIGINFO != 0 => {
                let function: extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    core::mem::transmute(before.sa_sigaction);
                function(signal, information, context);
            }
            Some(before) => {
                let function: extern "C" fn(c_int) = core::mem::transmute(before.sa_sigaction);
                function(signal);
            }
            None => {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}
