//! Copies between exos and the program's memory.
//!
//! A copy may fault: the upcall handler then resolves the page (demand zero, copy on write) and the copy goes on, or
//! it cannot, and the copy ends early. [`faulted`] tells the handler whether an address inside exos is such a copy. No
//! lock that the fault handler takes may be held across a copy, but across one "at once", which ends at any fault.
//! Addresses outside the program's half are refused without a try, so exos's own memory is out of reach of a program's
//! pointers.

use aegis_abi::FrameNumber;
use aegis_abi::layout::{PROGRAM_BASE, PROGRAM_END};
use exos::error::Errno;

use super::direct;

unsafe extern "C" {
    fn exos_user_copy(to: *mut u8, from: *const u8, length: usize) -> usize;
    fn exos_user_zero(to: *mut u8, length: usize) -> usize;
    fn exos_user_copy_at_once(to: *mut u8, from: *const u8, length: usize) -> usize;
    static exos_user_copy_at_once_start: u8;
    static exos_user_copy_at_once_end: u8;
    static exos_user_copy_start: u8;
    static exos_user_copy_end: u8;
    static exos_user_copy_stop: u8;
}

// The routine answers how many bytes are left. Whole words first: the tail is shorter than a word. When a copy cannot
// go on, execution continues at `stop` with RCX words (RDX = 0) or RCX bytes left, and R9 the bytes still to come
// after the words.
core::arch::global_asm!(
    ".balign 16",
    ".global exos_user_copy",
    "exos_user_copy:",
    "mov r9, rdx",
    "and r9, 7",
    "mov rcx, rdx",
    "shr rcx, 3",
    "mov r8d, 3",
    ".global exos_user_copy_start",
    "exos_user_copy_start:",
    "rep movsq",
    "mov rcx, r9",
    "xor r9d, r9d",
    "xor r8d, r8d",
    "rep movsb",
    "xor eax, eax",
    "ret",
    ".balign 16",
    ".global exos_user_zero",
    "exos_user_zero:",
    "mov r9, rsi",
    "and r9, 7",
    "mov rcx, rsi",
    "shr rcx, 3",
    "mov r8d, 3",
    "xor eax, eax",
    "rep stosq",
    "mov rcx, r9",
    "xor r9d, r9d",
    "xor r8d, r8d",
    "rep stosb",
    "ret",
    ".global exos_user_copy_end",
    "exos_user_copy_end:",
    ".global exos_user_copy_stop",
    "exos_user_copy_stop:",
    "mov rax, rcx",
    "mov rcx, r8",
    "shl rax, cl",
    "add rax, r9",
    "ret",
    ".balign 16",
    ".global exos_user_copy_at_once",
    "exos_user_copy_at_once:",
    "mov r9, rdx",
    "and r9, 7",
    "mov rcx, rdx",
    "shr rcx, 3",
    "mov r8d, 3",
    ".global exos_user_copy_at_once_start",
    "exos_user_copy_at_once_start:",
    "rep movsq",
    "mov rcx, r9",
    "xor r9d, r9d",
    "xor r8d, r8d",
    "rep movsb",
    "xor eax, eax",
    "ret",
    ".global exos_user_copy_at_once_end",
    "exos_user_copy_at_once_end:",
);

/// A copy that has faulted.
pub(crate) struct Faulted {
    /// Where it goes on when its page cannot be had.
    pub(crate) stop: u64,
    /// Its page is not to be resolved: locks may be held.
    pub(crate) is_at_once: bool,
}

/// The copy at `rip`; `None` if that is no copy.
pub(crate) fn faulted(rip: u64) -> Option<Faulted> {
    let is_in = |start: *const u8, end: *const u8| (start as u64..end as u64).contains(&rip);
    let is_at_once = is_in(&raw const exos_user_copy_at_once_start, &raw const exos_user_copy_at_once_end);
    let is_copy = is_at_once || is_in(&raw const exos_user_copy_start, &raw const exos_user_copy_end);
    is_copy.then_some(Faulted { stop: &raw const exos_user_copy_stop as u64, is_at_once })
}

/// Whether `length` bytes at `address` lie in the program's half.
#[inline]
fn check(address: u64, length: usize) -> Result<(), Errno> {
    const ROOM: u64 = PROGRAM_END - PROGRAM_BASE;
    let offset = address.wrapping_sub(PROGRAM_BASE);
    let is_inside = offset <= ROOM && length as u64 <= ROOM - offset;
    if is_inside || length == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Copies from the program; gives the bytes copied, fewer than asked if memory ended.
pub(crate) fn copy_in(address: u64, into: &mut [u8]) -> Result<usize, Errno> {
    check(address, into.len())?;
    // SAFETY: the destination is ours; the source is in the program's half, where a fault is handled by the fixup.
    let left = unsafe { exos_user_copy(into.as_mut_ptr(), address as *const u8, into.len()) };
    Ok(into.len() - left)
}

/// Copies to the program; gives the bytes copied, fewer than asked if memory ended.
pub(crate) fn copy_out(address: u64, from: &[u8]) -> Result<usize, Errno> {
    check(address, from.len())?;
    // SAFETY: the source is ours; the destination is in the program's half, which holds no Rust object, and a fault
    // is handled by the fixup.
    let left = unsafe { exos_user_copy(address as *mut u8, from.as_ptr(), from.len()) };
    Ok(from.len() - left)
}

/// Copies from a frame to the program; gives the bytes copied, fewer than asked if memory ended.
pub(crate) fn copy_frame_out(address: u64, frame: FrameNumber, offset: usize, length: usize) -> Result<usize, Errno> {
    check(address, length)?;
    let from = direct::at(frame, offset, length);
    // SAFETY: the source lies inside one frame of the direct view, where no Rust object is; the destination is in the
    // program's half, where a fault is handled by the fixup.
    let left = unsafe { exos_user_copy(address as *mut u8, from, length) };
    Ok(length - left)
}

/// As [`copy_frame_out`], but ends at the first fault.
pub(crate) fn copy_frame_out_at_once(address: u64, frame: FrameNumber, offset: usize, length: usize) -> usize {
    if check(address, length).is_err() {
        return 0;
    }
    let from = direct::at(frame, offset, length);
    // SAFETY: as in `copy_frame_out`.
    let left = unsafe { exos_user_copy_at_once(address as *mut u8, from, length) };
    length - left
}

/// Copies from the program into a frame up to the first fault; gives the bytes copied.
pub(crate) fn copy_frame_in_at_once(address: u64, frame: FrameNumber, offset: usize, length: usize) -> usize {
    if check(address, length).is_err() {
        return 0;
    }
    let to = direct::at(frame, offset, length);
    // SAFETY: the destination lies inside one frame of the direct view, which is shown writable and where no Rust
    // object is; the source is in the program's half, where a fault is handled by the fixup.
    let left = unsafe { exos_user_copy_at_once(to, address as *const u8, length) };
    length - left
}

/// Writes zero bytes to the program; gives how many, fewer than asked if memory ended.
pub(crate) fn zero_out(address: u64, length: usize) -> usize {
    if check(address, length).is_err() {
        return 0;
    }
    // SAFETY: the destination is in the program's half, which holds no Rust object, and the fixup handles a fault.
    let left = unsafe { exos_user_zero(address as *mut u8, length) };
    length - left
}
