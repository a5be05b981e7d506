//! Copies between exos and the program's memory.
//!
//! A copy may fault: the upcall handler then resolves the page (demand zero, copy on write) and the copy goes on, or
//! it cannot, and the copy ends early. [`fixup`] tells the handler whether an address inside exos is such a copy. No
//! lock that the fault handler takes may be held across a copy. Addresses outside the program's half are refused
//! without a try, so exos's own memory is out of reach of a program's pointers.

use aegis_abi::FrameNumber;
use aegis_abi::layout::{PROGRAM_BASE, PROGRAM_END};
use exos::error::Errno;

use super::direct;

unsafe extern "C" {
    fn exos_user_copy(to: *mut u8, from: *const u8, length: usize) -> usize;
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
    ".global exos_user_copy_end",
    "exos_user_copy_end:",
    ".global exos_user_copy_stop",
    "exos_user_copy_stop:",
    "mov rax, rcx",
    "mov rcx, r8",
    "shl rax, cl",
    "add rax, r9",
    "ret",
);

/// Where a faulting copy at `rip` goes on when its page cannot be had; `None` if `rip` is no copy.
pub(crate) fn fixup(rip: u64) -> Option<u64> {
    let start = &raw const exos_user_copy_start as u64;
    let end = &raw const exos_user_copy_end as u64;
    (start..end).contains(&rip).then_some(&raw const exos_user_copy_stop as u64)
}

/// Whether `length` bytes at `address` lie in the program's half.
fn check(address: u64, length: usize) -> Result<(), Errno> {
    match address.checked_add(length as u64) {
        Some(end) if length == 0 || (address >= PROGRAM_BASE && end <= PROGRAM_END) => Ok(()),
        _ => Err(Errno::EFAULT),
    }
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
