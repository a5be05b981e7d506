//! Copies between exos and the program's memory.
//!
//! A copy may fault: the upcall handler then resolves the page (demand zero, copy on write) and the copy goes on, or
//! it cannot, and the copy ends early. [`faulted`] tells the handler whether an address inside exos is such a copy. No
//! lock that the fault handler takes may be held across a copy, but across one "at once", which ends at any fault.
//! Addresses outside the program's half are refused without a try, so exos's own memory is out of reach of a program's
//! pointers.

use aegis_abi::FrameNumber;
use aegis_abi::layout::{PAGE_SIZE, PROGRAM_BASE, PROGRAM_END};
use aegis_abi::upcall::UpcallFrame;
use core::arch::x86_64::__cpuid_count;
use core::sync::atomic::{AtomicBool, Ordering};
use exos::error::Errno;
use exos::preempt::{self, PIECE_BYTES};
use exos_linux::task::exception::{VECTOR_PAGE_FAULT, VECTOR_PROTECTION};

use super::{direct, vector};

/// Bytes from which on a copy goes by 32: one turn of its loop, a power of two. Below it, keeping and putting back YMM0
/// costs as much as it saves.
const WIDE_BYTES_MIN: usize = 1024;
/// What one step of that loop moves.
const WIDE_STEP_BYTES: usize = 32;

unsafe extern "C" {
    fn exos_user_copy(to: *mut u8, from: *const u8, length: usize) -> usize;
    fn exos_user_zero(to: *mut u8, length: usize) -> usize;
    fn exos_user_put_pair(to: *mut u64, first: u64, second: u64) -> bool;
    fn exos_user_get_word(from: *const u32) -> u64;
    static exos_user_get_word_stop: u8;
    fn exos_user_copy_byte(to: *mut u8, from: *const u8) -> usize;
    static exos_user_copy_byte_stop: u8;
    fn exos_user_copy_nofault(to: *mut u8, from: *const u8, length: usize) -> usize;
    static exos_user_zero_start: u8;
    static exos_user_zero_end: u8;
    static exos_user_copy_start: u8;
    static exos_user_copy_end: u8;
    static exos_user_copy_nofault_start: u8;
    static exos_user_copy_nofault_end: u8;
    static exos_user_copy_stop: u8;
    static exos_user_copy_nofault_stop: u8;
    static exos_user_zero_stop: u8;
    static exos_user_put_pair_stop: u8;
    static exos_user_copy_wide_start: u8;
    static exos_user_copy_wide_end: u8;
    static exos_user_copy_wide_stop: u8;
    static exos_user_copy_nofault_wide_start: u8;
    static exos_user_copy_nofault_wide_end: u8;
    static exos_user_copy_nofault_wide_stop: u8;
}

/// Whether long copies go by 32 bytes, which assembly reads.
static IS_WIDE: AtomicBool = AtomicBool::new(false);

/// Finds out how this machine copies best, of whose vector state the kernel keeps `vector_mask`; before that, copies go
/// by words.
pub(crate) fn choose_copies(vector_mask: u64) {
    const OSXSAVE_AVX: u32 = 1 << 27 | 1 << 28;
    const IN_USE_MASK: u32 = 1 << 2;
    const SSE_AVX: u64 = 0b110;
    let is_wide = __cpuid_count(1, 0).ecx & OSXSAVE_AVX == OSXSAVE_AVX
        && __cpuid_count(13, 1).eax & IN_USE_MASK != 0
        && vector_mask & SSE_AVX == SSE_AVX;
    IS_WIDE.store(is_wide, Ordering::Relaxed);
}

// A copy answers how many bytes are left. Whole words first: the tail is shorter than a word. When it cannot go on,
// execution continues at its stop with RCX words left and R9 bytes to come after them (R8 is not 0), or with RCX bytes.
//
// A long copy is an island of vector code, where the machine has it: it goes by 32 bytes through YMM0, which it puts
// back, and leaves the rest (or, at a fault, what comes from the faulting block on) to the words. Upper halves that
// were in their initial state (XGETBV of 1, bit 2) are so again afterwards: a program that uses no AVX would pay for
// others.
core::arch::global_asm!(
    ".macro EXOS_COPY name",
    ".balign 16",
    ".global \\name",
    "\\name:",
    "cmp rdx, {wide_bytes_min}",
    "jb 2f",
    "cmp byte ptr [rip + {is_wide}], 0",
    "jne 3f",
    "2: mov r9, rdx",
    "and r9, 7",
    "mov rcx, rdx",
    "shr rcx, 3",
    "mov r8d, 3",
    ".global \\name\\()_start",
    "\\name\\()_start:",
    "rep movsq",
    "mov rcx, r9",
    "xor r9d, r9d",
    "xor r8d, r8d",
    "7: rep movsb",
    "xor eax, eax",
    "ret",
    ".global \\name\\()_end",
    "\\name\\()_end:",
    // A word that cannot be had whole: its bytes, up to the one that cannot be had.
    ".global \\name\\()_stop",
    "\\name\\()_stop:",
    "mov rax, rcx",
    "test r8d, r8d",
    "je 8f",
    "lea rcx, [r9 + rcx*8]",
    "xor r8d, r8d",
    "jmp 7b",
    "8: ret",
    // RSI and RDI at the end of the whole blocks, RCX up to there from below zero, R9 what comes behind them.
    "3: mov ecx, 1",
    "mov r9, rdx",
    "xgetbv",
    "mov rcx, r9",
    "and r9d, {wide_bytes_min} - 1",
    "sub rcx, r9",
    "add rsi, rcx",
    "add rdi, rcx",
    "neg rcx",
    "sub rsp, 32",
    "vmovups [rsp], ymm0",
    ".global \\name\\()_wide_start",
    "\\name\\()_wide_start:",
    ".set place, 0",
    ".rept {wide_step_count}",
    "vmovups ymm0, [rsi + rcx + place]",
    "vmovups [rdi + rcx + place], ymm0",
    ".set place, place + {wide_step_bytes}",
    ".endr",
    "add rcx, {wide_bytes_min}",
    "jne \\name\\()_wide_start",
    ".global \\name\\()_wide_end",
    "\\name\\()_wide_end:",
    ".global \\name\\()_wide_stop",
    "\\name\\()_wide_stop:",
    "add rsi, rcx",
    "add rdi, rcx",
    "sub r9, rcx",
    "test al, 4",
    "jne 5f",
    "vzeroupper",
    "movups xmm0, [rsp]",
    "jmp 6f",
    "5: vmovups ymm0, [rsp]",
    "6: add rsp, 32",
    "mov rdx, r9",
    "jmp 2b",
    ".endm",
    "EXOS_COPY exos_user_copy_nofault",
    "EXOS_COPY exos_user_copy",
    is_wide = sym IS_WIDE,
    wide_bytes_min = const WIDE_BYTES_MIN,
    wide_step_bytes = const WIDE_STEP_BYTES,
    wide_step_count = const WIDE_BYTES_MIN / WIDE_STEP_BYTES,
);

core::arch::global_asm!(
    ".balign 16",
    ".global exos_user_zero",
    "exos_user_zero:",
    "mov r9, rsi",
    "and r9, 7",
    "mov rcx, rsi",
    "shr rcx, 3",
    "mov r8d, 3",
    "xor eax, eax",
    ".global exos_user_zero_start",
    "exos_user_zero_start:",
    "rep stosq",
    "mov rcx, r9",
    "xor r9d, r9d",
    "xor r8d, r8d",
    "2: rep stosb",
    "ret",
    ".global exos_user_zero_end",
    "exos_user_zero_end:",
    ".global exos_user_zero_stop",
    "exos_user_zero_stop:",
    "test r8d, r8d",
    "je 3f",
    "lea rcx, [r9 + rcx*8]",
    "xor r8d, r8d",
    "jmp 2b",
    "3: mov rax, rcx",
    "ret",
    ".balign 16",
    ".global exos_user_put_pair",
    "exos_user_put_pair:",
    "mov [rdi], rsi",
    "mov [rdi + 8], rdx",
    "mov eax, 1",
    "ret",
    ".global exos_user_put_pair_stop",
    "exos_user_put_pair_stop:",
    "xor eax, eax",
    "ret",
    ".balign 16",
    ".global exos_user_copy_byte",
    "exos_user_copy_byte:",
    "movzx eax, byte ptr [rsi]",
    "mov [rdi], al",
    "xor eax, eax",
    "ret",
    ".global exos_user_copy_byte_stop",
    "exos_user_copy_byte_stop:",
    "mov eax, 1",
    "ret",
    ".balign 16",
    ".global exos_user_get_word",
    "exos_user_get_word:",
    "mov eax, [rdi]",
    "ret",
    ".global exos_user_get_word_stop",
    "exos_user_get_word_stop:",
    "mov rax, -1",
    "ret",
);

/// A copy that has faulted.
pub(crate) struct Faulted {
    /// Where it goes on when its page cannot be had.
    pub(crate) stop: u64,
    /// Its page is not to be resolved: locks may be held.
    pub(crate) is_nofault: bool,
    /// It moves vector state, which the processor may refuse.
    is_vector: bool,
}

impl Faulted {
    /// Whether the fault that `frame` tells is one that such a copy may meet.
    pub(crate) fn expects(&self, frame: &UpcallFrame) -> bool {
        match frame.vector {
            VECTOR_PAGE_FAULT => frame.fault_address < PROGRAM_END,
            VECTOR_PROTECTION => self.is_vector,
            _ => false,
        }
    }
}

/// The copy at `rip`; `None` if that is no copy.
pub(crate) fn faulted(rip: u64) -> Option<Faulted> {
    let put_pair = exos_user_put_pair as *const u8;
    let get_word = exos_user_get_word as *const u8;
    let copy_byte = exos_user_copy_byte as *const u8;
    [
        (&raw const exos_user_copy_start, &raw const exos_user_copy_end, &raw const exos_user_copy_stop, false),
        (&raw const exos_user_zero_start, &raw const exos_user_zero_end, &raw const exos_user_zero_stop, false),
        (put_pair, &raw const exos_user_put_pair_stop, &raw const exos_user_put_pair_stop, false),
        (get_word, &raw const exos_user_get_word_stop, &raw const exos_user_get_word_stop, true),
        (copy_byte, &raw const exos_user_copy_byte_stop, &raw const exos_user_copy_byte_stop, true),
        (
            &raw const exos_user_copy_nofault_start,
            &raw const exos_user_copy_nofault_end,
            &raw const exos_user_copy_nofault_stop,
            true,
        ),
        (
            &raw const exos_user_copy_wide_start,
            &raw const exos_user_copy_wide_end,
            &raw const exos_user_copy_wide_stop,
            false,
        ),
        (
            &raw const exos_user_copy_nofault_wide_start,
            &raw const exos_user_copy_nofault_wide_end,
            &raw const exos_user_copy_nofault_wide_stop,
            true,
        ),
    ]
    .into_iter()
    .find(|(start, end, ..)| (*start as u64..*end as u64).contains(&rip))
    .map(|(_, _, stop, is_nofault)| Faulted { stop: stop as u64, is_nofault, is_vector: false })
    .or_else(|| vector::stop_of(rip).map(|stop| Faulted { stop, is_nofault: false, is_vector: true }))
}

/// Whether `length` bytes at `address` lie in the program's half.
#[inline]
pub(super) fn check(address: u64, length: usize) -> Result<(), Errno> {
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

/// Writes two words to the program; false if its memory cannot be had: then one of them may have been written.
#[inline]
pub(crate) fn put_pair(address: u64, [first, second]: [u64; 2]) -> bool {
    // SAFETY: the destination is in the program's half, which holds no Rust object, and a fault is handled by the
    // fixup.
    check(address, 16).is_ok() && unsafe { exos_user_put_pair(address as *mut u64, first, second) }
}

/// Copies whole words from the program; gives how many.
pub(crate) fn copy_words_in(address: u64, into: &mut [u64]) -> Result<usize, Errno> {
    let length = size_of_val(into);
    check(address, length)?;
    // SAFETY: as in `copy_in`; any bytes are words.
    let left = unsafe { exos_user_copy(into.as_mut_ptr().cast(), address as *const u8, length) };
    Ok((length - left) / 8)
}

/// Copies whole words to the program; gives how many.
pub(crate) fn copy_words_out(address: u64, from: &[u64]) -> Result<usize, Errno> {
    let length = size_of_val(from);
    check(address, length)?;
    // SAFETY: as in `copy_out`.
    let left = unsafe { exos_user_copy(address as *mut u8, from.as_ptr().cast(), length) };
    Ok((length - left) / 8)
}

/// As [`copy_in`], but ends at the first fault; gives the bytes that are left.
#[inline]
pub(crate) fn copy_in_nofault(address: u64, into: &mut [u8]) -> usize {
    if check(address, into.len()).is_err() {
        return into.len();
    }
    let (to, from) = (into.as_mut_ptr(), address as *const u8);
    // SAFETY: as in `copy_in`. A byte alone is what one process most often tells another by.
    unsafe {
        if into.len() == 1 { exos_user_copy_byte(to, from) } else { exos_user_copy_nofault(to, from, into.len()) }
    }
}

/// The word at `address`; `None` where it is not the program's, or would fault.
#[inline]
pub(crate) fn word_nofault(address: u64) -> Option<u32> {
    check(address, 4).ok()?;
    // SAFETY: the source is in the program's half, where a fault is handled by the fixup.
    u32::try_from(unsafe { exos_user_get_word(address as *const u32) }).ok()
}

/// As [`copy_out`], but ends at the first fault; gives the bytes that are left.
#[inline]
pub(crate) fn copy_out_nofault(address: u64, from: &[u8]) -> usize {
    if check(address, from.len()).is_err() {
        return from.len();
    }
    let (to, length) = (address as *mut u8, from.len());
    // SAFETY: as in `copy_out`.
    unsafe {
        if length == 1 {
            exos_user_copy_byte(to, from.as_ptr())
        } else {
            exos_user_copy_nofault(to, from.as_ptr(), length)
        }
    }
}

/// As [`copy_words_out`], but ends at the first fault.
pub(crate) fn copy_words_out_nofault(address: u64, from: &[u64]) -> usize {
    let length = size_of_val(from);
    if check(address, length).is_err() {
        return 0;
    }
    // SAFETY: as in `copy_out`.
    let left = unsafe { exos_user_copy_nofault(address as *mut u8, from.as_ptr().cast(), length) };
    (length - left) / 8
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
pub(crate) fn copy_frame_out_nofault(address: u64, frame: FrameNumber, offset: usize, length: usize) -> usize {
    if check(address, length).is_err() {
        return 0;
    }
    let from = direct::at(frame, offset, length);
    // SAFETY: as in `copy_frame_out`.
    let left = unsafe { exos_user_copy_nofault(address as *mut u8, from, length) };
    length - left
}

/// Copies from the program into a frame up to the first fault; gives the bytes copied.
pub(crate) fn copy_frame_in_nofault(address: u64, frame: FrameNumber, offset: usize, length: usize) -> usize {
    if check(address, length).is_err() {
        return 0;
    }
    let to = direct::at(frame, offset, length);
    // SAFETY: the destination lies inside one frame of the direct view, which is shown writable and where no Rust
    // object is; the source is in the program's half, where a fault is handled by the fixup.
    let left = unsafe { exos_user_copy_nofault(to, address as *const u8, length) };
    length - left
}

/// Copies a page of the direct view to another.
///
/// # Safety
/// Both are whole pages that exos may use, and no Rust object lives in `to`.
pub(super) unsafe fn copy_page(from: *const u8, to: *mut u8) {
    // SAFETY: by contract; neither faults, so nothing is left.
    unsafe { exos_user_copy(to, from, PAGE_SIZE as usize) };
}

/// Whether islands of vector code may use YMM registers.
#[inline]
pub(super) fn is_wide() -> bool {
    IS_WIDE.load(Ordering::Relaxed)
}

/// Writes zero bytes to the program; gives how many, fewer than asked if memory ended, or if a signal came where they
/// were many.
#[inline]
pub(crate) fn zero_out(address: u64, length: usize) -> usize {
    const ROOM: u64 = PROGRAM_END - PROGRAM_BASE - PIECE_BYTES as u64;
    if address.wrapping_sub(PROGRAM_BASE) > ROOM || length > PIECE_BYTES {
        return zero_out_in_pieces(address, length);
    }
    // SAFETY: the destination is in the program's half, which holds no Rust object, and the fixup handles a fault.
    let left = unsafe { exos_user_zero(address as *mut u8, length) };
    length - left
}

#[cold]
fn zero_out_in_pieces(address: u64, length: usize) -> usize {
    if check(address, length).is_err() {
        return 0;
    }
    let mut done = 0;
    while done < length {
        let step = (length - done).min(PIECE_BYTES);
        // SAFETY: as in `zero_out`.
        let left = unsafe { exos_user_zero((address + done as u64) as *mut u8, step) };
        done += step - left;
        if left > 0 || (done < length && preempt::unless_signalled().is_err()) {
            break;
        }
    }
    done
}
