//! Copies between the kernel and the mapped memory of the environment whose tables are active.
//!
//! A page that is not there, or not allowed, ends the copy with an error: `trap.s` lists its four accesses in the
//! exception table. The range is checked here against the two windows that user mode can have, so no argument reaches
//! the kernel's own half.
#![allow(unsafe_code, reason = "accesses memory that user mode controls")]

use aegis_abi::layout::{LIBOS_BASE, LIBOS_END, PROGRAM_BASE, PROGRAM_END};

unsafe extern "C" {
    fn user_copy(to: u64, from: u64, count: usize) -> u32;
}

/// The range is outside user memory, or some page of it is not accessible as needed. Part of the copy may have been
/// done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserFault;

/// Copies from user memory.
pub fn copy_from_user(to: &mut [u8], from: u64) -> Result<(), UserFault> {
    check(from, to.len())?;
    // SAFETY: `to` is ours and long enough; `from` is user memory, whose faults are caught.
    match unsafe { user_copy(to.as_mut_ptr() as u64, from, to.len()) } {
        0 => Ok(()),
        _ => Err(UserFault),
    }
}

/// Copies to user memory.
pub fn copy_to_user(to: u64, from: &[u8]) -> Result<(), UserFault> {
    check(to, from.len())?;
    // SAFETY: `from` is readable; `to` is user memory, which holds nothing of Rust's and whose faults are caught.
    match unsafe { user_copy(to, from.as_ptr() as u64, from.len()) } {
        0 => Ok(()),
        _ => Err(UserFault),
    }
}

fn check(address: u64, length: usize) -> Result<(), UserFault> {
    let end = address.checked_add(length as u64).ok_or(UserFault)?;
    let program = address >= PROGRAM_BASE && end <= PROGRAM_END;
    let library = address >= LIBOS_BASE && end <= LIBOS_END;
    if program || library { Ok(()) } else { Err(UserFault) }
}
