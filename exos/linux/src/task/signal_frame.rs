//! The stack frame of a signal handler, exactly as Linux builds it (`struct rt_sigframe`,
//! `arch/x86/kernel/signal_64.c`).
//!
//! From high to low addresses: vector state (XSAVE format with the software-reserved bytes that tell its size),
//! `siginfo_t`, `ucontext_t`, the restorer's address. Handlers of glibc, Go and JVMs read and change it; [`restore`]
//! takes back what they may change and forces the rest. Vector state goes from the processor straight to the stack and
//! back, as on Linux ([`UserMemory::save_vector`]); the rest is built as words and copied once. Neighbours:
//! `exos::task::signal` decides which; `glue/vector.rs`.

use aegis_abi::layout::{PROGRAM_BASE, PROGRAM_END};
use aegis_abi::upcall::{USER_CODE_SELECTOR, USER_STACK_SELECTOR, UpcallFrame};
use exos::error::{Errno, Result};
use exos::task::signal::{Disposition, Signal, SignalInfo, SignalPayload, SignalSet};

use crate::abi::linux::{SA_ONSTACK, SA_RESTORER, SS_DISABLE, SS_ONSTACK};
use crate::abi::user_memory::{UserMemory, write_words};
use crate::task::exception::VECTOR_PAGE_FAULT;

/// Words of `ucontext_t` in the frame.
const CONTEXT_WORD_COUNT: usize = 38;
/// Bytes of `siginfo_t`.
const INFO_BYTES: usize = 128;
/// Words of the frame: restorer, `ucontext_t`, `siginfo_t`.
const FRAME_WORD_COUNT: usize = 1 + CONTEXT_WORD_COUNT + INFO_BYTES / 8;
/// Word of `ucontext_t` at which `uc_stack` begins.
const STACK_WORD: usize = 2;
/// Word at which `uc_mcontext` begins.
const MACHINE_CONTEXT_WORD: usize = 5;
/// Word with the pointer to the vector state.
const VECTOR_POINTER_WORD: usize = MACHINE_CONTEXT_WORD + 23;
/// Word of `uc_sigmask`.
const MASK_WORD: usize = 37;
/// `UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS`.
const CONTEXT_FLAGS: u64 = 0b111;
/// The area below RSP that leaf functions use (x86-64 psABI 3.2.2).
const RED_ZONE_BYTES: u64 = 128;
/// Flags that a handler may change: carry, parity, adjust, zero, sign, trap, direction, overflow, resume, alignment
/// check.
const FLAGS_CHANGEABLE: u64 = 0x1_0000 | 0x4_0000 | 0xdd5;
/// First byte of the software-reserved bytes in the legacy area (Intel SDM vol. 1, 10.5.1; Linux `_fpx_sw_bytes`): the
/// first magic word, the bytes with trailer, the features, the bytes without.
pub const SOFTWARE_BYTES_OFFSET: usize = 464;
/// `FP_XSTATE_MAGIC1`.
pub const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
/// `FP_XSTATE_MAGIC2`, which stands behind the state.
pub const FP_XSTATE_MAGIC2: u32 = 0x4650_5845;
/// Bytes of the second magic word.
pub const VECTOR_TRAILER_BYTES: usize = 4;
/// The part of an XSAVE area that FXSAVE has (Intel SDM vol. 1, 13.4).
pub const LEGACY_BYTES: usize = 512;
/// The header behind it.
pub const HEADER_BYTES: usize = 64;
/// Bytes of `stack_t`.
const STACK_BYTES: usize = 24;

/// The alternate signal stack of a thread (`stack_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlternateStack {
    /// Lowest address.
    pub base: u64,
    /// `SS_*`.
    pub flags: u32,
    /// Length in bytes.
    pub length: u64,
}

impl Default for AlternateStack {
    fn default() -> Self {
        Self { base: 0, flags: SS_DISABLE, length: 0 }
    }
}

impl AlternateStack {
    /// Whether `rsp` is on it.
    #[must_use]
    pub fn contains(&self, rsp: u64) -> bool {
        self.flags & SS_DISABLE == 0 && rsp > self.base && rsp - self.base <= self.length
    }

    /// Its `stack_t`, with the flags as `sigaltstack` reports them.
    #[must_use]
    pub fn encode(&self, rsp: u64) -> [u8; STACK_BYTES] {
        let mut bytes = [0; STACK_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.words(rsp)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[inline]
    fn words(&self, rsp: u64) -> [u64; 3] {
        let on = if self.contains(rsp) { SS_ONSTACK } else { 0 };
        [self.base, u64::from(self.flags | on), self.length]
    }
}

/// What a handler is entered with, besides the program's registers.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The signal that is delivered.
    pub signal: Signal,
    /// What the handler gets as `siginfo_t`.
    pub info: &'a SignalInfo,
    /// Handler, flags and mask.
    pub disposition: Disposition,
    /// The mask to put back on return.
    pub mask_before: SignalSet,
    /// The thread's alternate stack.
    pub stack: AlternateStack,
    /// XCR0, which the vector state was saved with, and the bytes that go with it.
    pub vector_format: (u64, usize),
}

/// Encodes a `siginfo_t`.
#[must_use]
pub fn encode_info(signal: Signal, info: &SignalInfo) -> [u8; INFO_BYTES] {
    let mut bytes = [0; INFO_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(info_words(signal, info)) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The words of a `siginfo_t` that are not zero.
#[inline]
fn info_words(signal: Signal, info: &SignalInfo) -> [u64; 4] {
    let (first, second) = match info.payload {
        SignalPayload::None => (0, 0),
        SignalPayload::Sender { pid, uid, value } => (pair(pid, uid), value),
        SignalPayload::Fault { address } => (address, 0),
        SignalPayload::Child { pid, uid, status } => (pair(pid, uid), u64::from(status as u32)),
        SignalPayload::File { band, descriptor } => (u64::from(band), u64::from(descriptor as u32)),
        SignalPayload::Timer { id, overrun, value } => (pair(id as u32, overrun as u32), value),
    };
    [pair(u32::from(signal.number()), info.errno as u32), u64::from(info.code as u32), first, second]
}

/// A word of two fields.
#[inline]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Builds the frame on the program's stack, with the processor's vector state, and changes `frame` so that the program
/// enters its handler.
///
/// `EFAULT`: the stack cannot hold it; the caller then ends the process by SIGSEGV, as Linux does.
#[inline(always)]
pub fn build(memory: &dyn UserMemory, frame: &mut UpcallFrame, entry: &Entry<'_>) -> Result<()> {
    if entry.disposition.flags & SA_RESTORER == 0 {
        return Err(Errno::EFAULT);
    }
    let uses_alternate = entry.disposition.flags & SA_ONSTACK != 0
        && entry.stack.flags & SS_DISABLE == 0
        && !entry.stack.contains(frame.rsp.wrapping_sub(RED_ZONE_BYTES));
    // A thread that is on it already stays on it, or has no stack left.
    let stays_on_alternate = uses_alternate || entry.stack.contains(frame.rsp);
    let top = if uses_alternate {
        entry.stack.base.wrapping_add(entry.stack.length)
    } else {
        frame.rsp.wrapping_sub(RED_ZONE_BYTES)
    };
    let (_, vector_bytes) = entry.vector_format;
    let vector_address = top.wrapping_sub((vector_bytes + VECTOR_TRAILER_BYTES) as u64) & !63;
    let frame_address = (vector_address.wrapping_sub(8 * FRAME_WORD_COUNT as u64) & !15).wrapping_sub(8);
    if stays_on_alternate && !entry.stack.contains(frame_address) {
        return Err(Errno::EFAULT);
    }
    memory.save_vector(vector_address, entry.vector_format)?;
    write_words(memory, frame_address, &frame_words(frame, entry, vector_address))?;

    frame.rdi = u64::from(entry.signal.number());
    frame.rsi = frame_address + 8 * (1 + CONTEXT_WORD_COUNT) as u64;
    frame.rdx = frame_address + 8;
    frame.rax = 0;
    frame.rsp = frame_address;
    frame.rip = entry.disposition.handler;
    // Direction, resume and trap flags are clear in a handler.
    frame.rflags &= !(0x400 | 0x1_0000 | 0x100);
    Ok(())
}

/// The frame below the vector state, word by word in its order: each is stored once.
#[rustfmt::skip]
#[inline(always)]
fn frame_words(frame: &UpcallFrame, entry: &Entry<'_>, vector_address: u64) -> [u64; FRAME_WORD_COUNT] {
    let stack = entry.stack.words(frame.rsp);
    let segments = frame.cs & 0xffff | (frame.ss & 0xffff) << 48;
    let mask = entry.mask_before.0;
    let info = info_words(entry.signal, entry.info);
    // As on Linux, where nothing tells which of the library OS's pages are there.
    let is_hidden = frame.vector == VECTOR_PAGE_FAULT && frame.fault_address >= PROGRAM_END;
    let error_code = frame.error_code | u64::from(is_hidden);
    // Not a constant to the compiler, which else clears all words by a call before it stores most of them.
    let zero = core::hint::black_box(0);
    [
        entry.disposition.restorer,
        CONTEXT_FLAGS, zero, stack[0], stack[1], stack[2],
        frame.r8, frame.r9, frame.r10, frame.r11, frame.r12, frame.r13, frame.r14, frame.r15,
        frame.rdi, frame.rsi, frame.rbp, frame.rbx, frame.rdx, frame.rax, frame.rcx, frame.rsp,
        frame.rip, frame.rflags, segments, error_code, frame.vector, mask, frame.fault_address,
        vector_address, zero, zero, zero, zero, zero, zero, zero, zero,
        mask,
        info[0], info[1], info[2], info[3], zero, zero, zero, zero,
        zero, zero, zero, zero, zero, zero, zero, zero,
    ]
}

/// What `rt_sigreturn` puts back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The signal mask.
    pub mask: SignalSet,
    /// The alternate stack as the handler left it in the context.
    pub stack: AlternateStack,
    /// Whether the vector state was loaded; else the initial state is meant.
    pub has_vector: bool,
}

/// Takes the frame back that the program's RSP points behind (the restorer popped its address): its registers go to
/// `frame`, its vector state to the processor.
///
/// Registers are forced to be ones that a program may have; a context that cannot be continued is `EFAULT`, and the
/// caller ends the process by SIGSEGV. `vector_format` is this machine's.
#[inline(always)]
pub fn restore(memory: &dyn UserMemory, frame: &mut UpcallFrame, vector_format: (u64, usize)) -> Result<Restored> {
    let mut context = [0; CONTEXT_WORD_COUNT];
    if memory.copy_words_in(frame.rsp, &mut context)? != context.len() {
        return Err(Errno::EFAULT);
    }
    let register = |index: usize| context[MACHINE_CONTEXT_WORD + index];
    let rip = register(16);
    if !(PROGRAM_BASE..PROGRAM_END).contains(&rip) {
        return Err(Errno::EFAULT);
    }
    frame.r8 = register(0);
    frame.r9 = register(1);
    frame.r10 = register(2);
    frame.r11 = register(3);
    frame.r12 = register(4);
    frame.r13 = register(5);
    frame.r14 = register(6);
    frame.r15 = register(7);
    frame.rdi = register(8);
    frame.rsi = register(9);
    frame.rbp = register(10);
    frame.rbx = register(11);
    frame.rdx = register(12);
    frame.rax = register(13);
    frame.rcx = register(14);
    frame.rsp = register(15);
    frame.rip = rip;
    frame.rflags = frame.rflags & !FLAGS_CHANGEABLE | register(17) & FLAGS_CHANGEABLE | 0x202;
    frame.cs = USER_CODE_SELECTOR;
    frame.ss = USER_STACK_SELECTOR;

    let vector_address = context[VECTOR_POINTER_WORD];
    if vector_address != 0 {
        memory.load_vector(vector_address, vector_format)?;
    }
    Ok(Restored {
        mask: SignalSet(context[MASK_WORD]),
        stack: AlternateStack {
            base: context[STACK_WORD],
            flags: context[STACK_WORD + 1] as u32 & !SS_ONSTACK,
            length: context[STACK_WORD + 2],
        },
        has_vector: vector_address != 0,
    })
}

#[cfg(test)]
#[path = "signal_frame_tests.rs"]
mod tests;
