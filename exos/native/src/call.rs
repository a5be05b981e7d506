//! The calls, but for handlers: version, changes by batch, and the bits of pages.
#![allow(unsafe_code, reason = "system calls are made by hand, and change memory")]

use core::arch::asm;

use crate::abi;

/// An error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// One change of memory. The kinds are [`abi`]'s `CHANGE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Change {
    /// First byte, page-aligned.
    pub address: usize,
    /// Length in bytes, whole pages.
    pub length: usize,
    /// `CHANGE_*`.
    pub kind: u32,
    /// `PROT_*` bits, for `CHANGE_MAP` and `CHANGE_PROTECT`.
    pub protection: u32,
}

const _: () = assert!(size_of::<Change>() == abi::CHANGE_BYTES);

/// Makes a system call.
///
/// # Safety
/// What the call does to memory must be right.
pub(crate) unsafe fn system_call(number: u64, arguments: [usize; 5]) -> Result<usize, Errno> {
    let [first, second, third, fourth, fifth] = arguments;
    let result: isize;
    // SAFETY: by contract; RCX and R11 are what `syscall` clobbers.
    unsafe {
        asm!("syscall", inlateout("rax") number as usize => result, in("rdi") first, in("rsi") second,
            in("rdx") third, in("r10") fourth, in("r8") fifth, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}

/// The version of the interface; `ENOSYS` where there is none, as on Linux.
///
/// # Errors
/// `ENOSYS`.
pub fn version() -> Result<usize, Errno> {
    // SAFETY: reads and changes no memory.
    unsafe { system_call(abi::CALL_VERSION, [0; 5]) }
}

/// Sets how many tickets the calling thread has against the others of its control group, until its nice value or policy
/// is set; answers how many it had. A thread with nice 0 has 1024.
///
/// # Errors
/// `EINVAL` none, or more than [`abi::TICKETS_MAX`]. `EPERM` more than it has and than `RLIMIT_NICE` allows, without
/// `CAP_SYS_NICE`. `ENOSYS` before version 2.
pub fn set_tickets(amount: u64) -> Result<usize, Errno> {
    // SAFETY: reads and changes no memory.
    unsafe { system_call(abi::CALL_TICKETS, [amount as usize, 0, 0, 0, 0]) }
}

/// Makes changes in their order, at most [`abi::CHANGE_COUNT_MAX`]; answers how many were made. Page tables change in
/// one kernel call.
///
/// # Errors
/// The first change's: as `mmap` at a fixed address, `mprotect`, `munmap` or `madvise(MADV_DONTNEED)`. `EINVAL` an
/// unknown kind, too many.
///
/// # Safety
/// Nothing that Rust relies on lies in the ranges.
pub unsafe fn apply(changes: &[Change]) -> Result<usize, Errno> {
    // SAFETY: by contract; exos only reads the changes.
    unsafe { system_call(abi::CALL_APPLY, [changes.as_ptr() as usize, changes.len(), 0, 0, 0]) }
}

/// Writes a byte of `PAGE_*` bits for each page from `address` on, and clears accessed and dirty bits if asked to.
///
/// # Errors
/// `EINVAL` a misaligned address, more than [`abi::PAGE_COUNT_MAX`] pages.
pub fn pages(address: usize, bits: &mut [u8], clears: bool) -> Result<(), Errno> {
    let flags = if clears { abi::PAGES_CLEAR as usize } else { 0 };
    let length = bits.len() << 12;
    // SAFETY: exos writes as many bytes as there are pages, to `bits` alone.
    unsafe { system_call(abi::CALL_PAGES, [address, length, bits.as_mut_ptr() as usize, flags, 0]) }.map(|_| ())
}

/// Where the kernel's extension writes what it has answered: a page of notes ([`abi`]'s `NOTES_*`), and shadows of
/// pages as they were before their first store. All of it is the program's own memory, which it must have stored to
/// once: what is not mapped is not written to, and the touch goes to the handler of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct WatchPlacement {
    /// Address of the page of notes.
    pub notes: usize,
    /// Address of the first shadow, if there are any.
    pub shadow: usize,
    /// Shadows, at most [`abi::NOTES_TOUCH_COUNT_MAX`]; 0: a page is opened to stores without one.
    pub shadow_count: usize,
}

const _: () = assert!(size_of::<WatchPlacement>() == 8 * abi::PLACEMENT_WORD_COUNT);

/// Has touches of a watched range answered in the kernel from the next close on.
///
/// # Errors
/// `ENOSYS` no extension of the kernel does that, or before version 4. `EINVAL` no range of whole pages that are
/// watched and of a shared mapping; too many shadows.
///
/// # Safety
/// Notes and shadows are memory that Rust relies on for nothing else, until [`forget_watch`].
pub unsafe fn place_watch(address: usize, length: usize, placement: &WatchPlacement) -> Result<(), Errno> {
    let placement = core::ptr::from_ref(placement) as usize;
    // SAFETY: by contract.
    unsafe { system_call(abi::CALL_WATCH, [abi::WATCH_PLACE as usize, address, length, placement, 0]) }.map(|_| ())
}

/// Touches of the range that begins there are the handler's again. Pages that are closed stay so until their next
/// touch.
///
/// # Errors
/// `EINVAL` no such range.
pub fn forget_watch(address: usize) -> Result<(), Errno> {
    // SAFETY: takes nothing from memory that the program has not itself closed.
    unsafe { system_call(abi::CALL_WATCH, [abi::WATCH_FORGET as usize, address, 0, 0, 0]) }.map(|_| ())
}

/// Closes pages of a placed range to stores, and to loads if `loads`.
///
/// # Errors
/// `EINVAL` no whole pages of such a range, more than [`abi::CLOSE_PAGE_COUNT_MAX`].
///
/// # Safety
/// As for [`apply`] with a change that watches.
pub unsafe fn close_watched(address: usize, length: usize, loads: bool) -> Result<(), Errno> {
    let operation = if loads { abi::WATCH_CLOSE_ACCESSES } else { abi::WATCH_CLOSE_STORES };
    // SAFETY: by contract.
    unsafe { system_call(abi::CALL_WATCH, [operation as usize, address, length, 0, 0]) }.map(|_| ())
}
