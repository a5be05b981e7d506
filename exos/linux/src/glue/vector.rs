//! Vector state: between the processor and a thread's buffer, and between the processor and signal frames.
//!
//! exos is soft-float code, so the processor holds the program's vector state whenever exos runs for it. A signal frame
//! gets it by one XSAVE on the program's stack, and gives it back by one XRSTOR from there, as Linux does
//! (`arch/x86/kernel/fpu/signal.c`). Both may fault like a copy: the page is resolved and the instruction repeated, or
//! the routine ends. XRSTOR also refuses what is no state (a general protection fault); that ends it too. The features
//! that can be loaded are those of XCR0, all the program's own, so nothing in a forged frame does harm.

use exos::error::{Errno, Result};
use exos_linux::task::signal_frame::{
    FP_XSTATE_MAGIC1, FP_XSTATE_MAGIC2, HEADER_BYTES, LEGACY_BYTES, SOFTWARE_BYTES_OFFSET, VECTOR_TRAILER_BYTES,
};
use exos_linux::task::vector_buffer::{VECTOR_BYTES_MAX, VectorBuffer};

use super::user;

/// Features that FXSAVE's format has: x87 and SSE.
const LEGACY_FEATURES: u64 = 0b11;
/// What the loading routine answers for state in FXSAVE's format.
const IS_LEGACY: u64 = 2;

unsafe extern "C" {
    fn exos_vector_save(to: *mut u8, length: usize, mask: u64) -> u64;
    fn exos_vector_load(from: *const u8, length: usize, mask: u64, initial: *const u8) -> u64;
    fn exos_vector_load_legacy(from: *const u8, others: u64, initial: *const u8) -> u64;
    static exos_vector_end: u8;
    static exos_vector_stop: u8;
}

// They answer 0, 1 after a fault, and the loading one also `IS_LEGACY`.
core::arch::global_asm!(
    ".balign 16",
    ".global exos_vector_save",
    "exos_vector_save:",
    "mov r8, rdx",
    "xor eax, eax",
    "mov [rdi + {header}], rax",
    "mov [rdi + {header} + 8], rax",
    "mov [rdi + {header} + 16], rax",
    "mov [rdi + {header} + 24], rax",
    "mov [rdi + {header} + 32], rax",
    "mov [rdi + {header} + 40], rax",
    "mov [rdi + {header} + 48], rax",
    "mov [rdi + {header} + 56], rax",
    "dec eax",
    "mov edx, eax",
    "xsave64 [rdi]",
    "mov dword ptr [rdi + {software}], {magic_1}",
    "lea eax, [rsi + {trailer}]",
    "mov [rdi + {software} + 4], eax",
    "mov [rdi + {software} + 8], r8",
    "mov [rdi + {software} + 16], rsi",
    "xor eax, eax",
    "mov [rdi + {software} + 24], rax",
    "mov [rdi + {software} + 32], rax",
    "mov [rdi + {software} + 40], rax",
    "mov dword ptr [rdi + rsi], {magic_2}",
    "ret",
    ".balign 16",
    ".global exos_vector_load",
    "exos_vector_load:",
    "cmp dword ptr [rdi + {software}], {magic_1}",
    "jne 2f",
    "mov eax, [rdi + {software} + 16]",
    "cmp rax, rsi",
    "ja 2f",
    "cmp eax, {extended}",
    "jb 2f",
    "cmp eax, [rdi + {software} + 4]",
    "ja 2f",
    "cmp dword ptr [rdi + rax], {magic_2}",
    "jne 2f",
    "mov r8, [rdi + {software} + 8]",
    "and r8, rdx",
    "xor rdx, r8",
    "mov r9, rdx", // features that go back to their initial state
    "mov eax, r8d",
    "mov rdx, r8",
    "shr rdx, 32",
    "xrstor64 [rdi]",
    "test r9, r9",
    "jne 3f",
    "xor eax, eax",
    "ret",
    "2: mov eax, {is_legacy}",
    "ret",
    "3: mov eax, r9d",
    "mov rdx, r9",
    "shr rdx, 32",
    "xrstor64 [rcx]",
    "xor eax, eax",
    "ret",
    ".balign 16",
    ".global exos_vector_load_legacy",
    "exos_vector_load_legacy:",
    "mov rcx, rdx",
    "mov eax, esi",
    "mov rdx, rsi",
    "shr rdx, 32",
    "xrstor64 [rcx]",
    "fxrstor64 [rdi]",
    "xor eax, eax",
    "ret",
    ".global exos_vector_end",
    "exos_vector_end:",
    ".global exos_vector_stop",
    "exos_vector_stop:",
    "mov eax, 1",
    "ret",
    header = const LEGACY_BYTES,
    extended = const LEGACY_BYTES + HEADER_BYTES,
    software = const SOFTWARE_BYTES_OFFSET,
    trailer = const VECTOR_TRAILER_BYTES,
    magic_1 = const FP_XSTATE_MAGIC1,
    magic_2 = const FP_XSTATE_MAGIC2,
    is_legacy = const IS_LEGACY,
);

/// Where a routine for signal frames goes on that faults at `rip`; `None` if none is there.
pub(crate) fn stop_of(rip: u64) -> Option<u64> {
    let is_in = (exos_vector_save as *const () as u64..&raw const exos_vector_end as u64).contains(&rip);
    is_in.then_some(&raw const exos_vector_stop as u64)
}

/// As `UserMemory::save_vector`.
pub(crate) fn save_in_frame(address: u64, (mask, length): (u64, usize)) -> Result<()> {
    user::check(address, length + VECTOR_TRAILER_BYTES)?;
    // SAFETY: the destination is in the program's half, which holds no Rust object; `length` is what XSAVE writes with
    // all of XCR0; a fault is handled by the fixup.
    match unsafe { exos_vector_save(address as *mut u8, length, mask) } {
        0 => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

/// As `UserMemory::load_vector`.
pub(crate) fn load_from_frame(address: u64, (mask, length): (u64, usize)) -> Result<()> {
    user::check(address, length + VECTOR_TRAILER_BYTES)?;
    let initial = INITIAL_STATE.0.as_ptr();
    let from = address as *const u8;
    // SAFETY: the source is in the program's half, where faults, also of XRSTOR, are handled by the fixup; no more than
    // `length` bytes and the trailer are read. exos is soft-float code and loses nothing.
    let outcome = match unsafe { exos_vector_load(from, length, mask, initial) } {
        // SAFETY: as above; FXRSTOR reads 512 bytes.
        IS_LEGACY => unsafe { exos_vector_load_legacy(from, mask & !LEGACY_FEATURES, initial) },
        outcome => outcome,
    };
    if outcome == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Saves the processor's vector state.
#[inline]
pub(crate) fn save(into: &mut VectorBuffer) {
    // SAFETY: the area is 64-byte aligned and a page long, which the kernel keeps XCR0's state below; its header is
    // zero or XSAVE's own.
    unsafe {
        core::arch::asm!("xsave64 [{}]", in(reg) core::ptr::from_mut(into), in("eax") u32::MAX, in("edx") u32::MAX,
            options(nostack, preserves_flags));
    }
}

/// Loads what [`save`] saved.
#[inline]
pub(crate) fn load(from: &VectorBuffer) {
    // SAFETY: a buffer's header is zero or XSAVE's own.
    unsafe { load_area(core::ptr::from_ref(from).cast()) };
}

/// Loads the initial state.
pub(crate) fn reset() {
    // SAFETY: the header is zero.
    unsafe { load_area(&raw const INITIAL_STATE) };
}

/// Loads an area.
///
/// # Safety
/// Its header is zero or XSAVE's own, so that XRSTOR does not fault.
#[inline]
unsafe fn load_area(area: *const Area) {
    // SAFETY: aligned and long enough, and as above; exos is soft-float code and loses nothing.
    unsafe {
        core::arch::asm!("xrstor64 [{}]", in(reg) area, in("eax") u32::MAX, in("edx") u32::MAX,
            options(nostack, readonly, preserves_flags));
    }
}

/// An XSAVE area.
#[repr(C, align(64))]
struct Area([u8; VECTOR_BYTES_MAX]);

/// The initial state: an empty header, the x87 control word and MXCSR as at reset.
static INITIAL_STATE: Area = {
    let mut bytes = [0; VECTOR_BYTES_MAX];
    [bytes[0], bytes[1]] = 0x37f_u16.to_le_bytes();
    [bytes[24], bytes[25]] = 0x1f80_u16.to_le_bytes();
    Area(bytes)
};
