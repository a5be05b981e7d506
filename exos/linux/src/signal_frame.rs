//! The stack frame of a signal handler, exactly as Linux builds it (`struct rt_sigframe`,
//! `arch/x86/kernel/signal_64.c`).
//!
//! From high to low addresses: vector state (XSAVE format with the software-reserved bytes that tell its size),
//! `siginfo_t`, `ucontext_t`, the restorer's address. Handlers of glibc, Go and JVMs read and change it; [`restore`]
//! takes back what they may change and forces the rest. Neighbours: `exos::task::signal` decides which; the glue
//! saves and loads vector state.

use alloc::vec::Vec;

use aegis_abi::layout::{PROGRAM_BASE, PROGRAM_END};
use aegis_abi::upcall::{USER_CODE_SELECTOR, USER_STACK_SELECTOR, UpcallFrame};
use exos::error::{Errno, Result};
use exos::task::signal::{Disposition, Signal, SignalInfo, SignalPayload, SignalSet};

use crate::abi::bytes::{Encoder, get};
use crate::user::{UserMemory, read_array, read_exact, write_all};

/// `SA_ONSTACK`.
pub const FLAG_ON_STACK: u64 = 0x0800_0000;
/// `SA_RESTORER`; x86-64 demands it.
pub const FLAG_RESTORER: u64 = 0x0400_0000;
/// `SS_DISABLE`.
pub const STACK_DISABLE: u32 = 2;
/// `SS_ONSTACK`.
pub const STACK_ON: u32 = 1;
/// `SS_AUTODISARM`.
pub const STACK_AUTO_DISARM: u32 = 1 << 31;
/// `MINSIGSTKSZ`, what `sigaltstack` accepts at least.
pub const STACK_BYTES_MIN: u64 = 2048;

/// Bytes of `ucontext_t` in the frame.
const CONTEXT_BYTES: usize = 304;
/// Bytes of `siginfo_t`.
const INFO_BYTES: usize = 128;
/// Restorer, `ucontext_t`, `siginfo_t`.
const FRAME_BYTES: usize = 8 + CONTEXT_BYTES + INFO_BYTES;
/// Offset of `uc_mcontext` in `ucontext_t`.
const MACHINE_CONTEXT_OFFSET: usize = 40;
/// Offset of `uc_sigmask`.
const MASK_OFFSET: usize = 296;
/// Offset of the pointer to the vector state in `ucontext_t`.
const VECTOR_POINTER_OFFSET: usize = MACHINE_CONTEXT_OFFSET + 23 * 8;
/// `UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS`.
const CONTEXT_FLAGS: u64 = 0b111;
/// The area below RSP that leaf functions use (x86-64 psABI 3.2.2).
const RED_ZONE_BYTES: u64 = 128;
/// Flags that a handler may change: carry, parity, adjust, zero, sign, trap, direction, overflow, resume, alignment
/// check.
const FLAGS_CHANGEABLE: u64 = 0x1_0000 | 0x4_0000 | 0xdd5;
/// First byte of the software-reserved bytes in the legacy area (Intel SDM vol. 1, 10.5.1; Linux `_fpx_sw_bytes`).
const SOFTWARE_BYTES_OFFSET: usize = 464;
const VECTOR_MAGIC_1: u32 = 0x4650_5853;
const VECTOR_MAGIC_2: u32 = 0x4650_5845;
/// Most bytes of vector state; exos saves at most a page.
pub const VECTOR_BYTES_MAX: usize = 4096;

/// The alternate signal stack of a thread (`stack_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlternateStack {
    /// Lowest address.
    pub base: u64,
    /// `SS_*`.
    pub flags: u32,
    /// Bytes.
    pub length: u64,
}

impl Default for AlternateStack {
    fn default() -> Self {
        Self { base: 0, flags: STACK_DISABLE, length: 0 }
    }
}

impl AlternateStack {
    /// Whether `rsp` is on it.
    #[must_use]
    pub fn contains(&self, rsp: u64) -> bool {
        self.flags & STACK_DISABLE == 0 && rsp > self.base && rsp - self.base <= self.length
    }

    /// Its `stack_t`, with the flags as `sigaltstack` reports them.
    #[must_use]
    pub fn encode(&self, rsp: u64) -> Vec<u8> {
        let on = if self.contains(rsp) { STACK_ON } else { 0 };
        Encoder::new().u64(self.base).u32(self.flags | on).zero_to(16).u64(self.length).finish()
    }
}

/// What a handler is entered with, besides the program's registers.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Which signal.
    pub signal: Signal,
    /// With what.
    pub info: SignalInfo,
    /// How.
    pub disposition: Disposition,
    /// The mask to put back on return.
    pub mask_before: SignalSet,
    /// The thread's alternate stack.
    pub stack: AlternateStack,
    /// Vector state in XSAVE's standard format, with the feature mask that it was saved with.
    pub vector_state: &'a [u8],
    /// XCR0.
    pub vector_mask: u64,
}

/// Encodes a `siginfo_t`.
#[must_use]
pub fn encode_info(signal: Signal, info: &SignalInfo) -> Vec<u8> {
    let head = Encoder::new().i32(i32::from(signal.number())).i32(info.errno).i32(info.code).zero_to(16);
    match info.payload {
        SignalPayload::None => head,
        SignalPayload::Sender { pid, uid, value } => head.u32(pid).u32(uid).u64(value),
        SignalPayload::Fault { address } => head.u64(address),
        SignalPayload::Child { pid, uid, status } => head.u32(pid).u32(uid).i32(status),
        SignalPayload::Timer { id, overrun, value } => head.i32(id).i32(overrun).u64(value),
    }
    .zero_to(INFO_BYTES)
    .finish()
}

/// Builds the frame on the program's stack and changes `frame` so that the program enters its handler.
///
/// `EFAULT`: the stack cannot hold it; the caller then ends the process by SIGSEGV, as Linux does.
pub fn build(memory: &dyn UserMemory, frame: &mut UpcallFrame, entry: &Entry<'_>) -> Result<()> {
    if entry.disposition.flags & FLAG_RESTORER == 0 {
        return Err(Errno::EFAULT);
    }
    let uses_alternate = entry.disposition.flags & FLAG_ON_STACK != 0
        && entry.stack.flags & STACK_DISABLE == 0
        && !entry.stack.contains(frame.rsp);
    let top = if uses_alternate {
        entry.stack.base.wrapping_add(entry.stack.length)
    } else {
        frame.rsp.wrapping_sub(RED_ZONE_BYTES)
    };
    let vector_bytes = vector_with_trailer(entry.vector_state, entry.vector_mask);
    let vector_address = top.wrapping_sub(vector_bytes.len() as u64) & !63;
    let frame_address = (vector_address.wrapping_sub(FRAME_BYTES as u64) & !15).wrapping_sub(8);
    if uses_alternate && frame_address < entry.stack.base {
        return Err(Errno::EFAULT);
    }
    write_all(memory, vector_address, &vector_bytes)?;
    let bytes = Encoder::new()
        .u64(entry.disposition.restorer)
        .raw(&encode_context(frame, entry, vector_address))
        .raw(&encode_info(entry.signal, &entry.info))
        .finish();
    write_all(memory, frame_address, &bytes)?;

    frame.rdi = u64::from(entry.signal.number());
    frame.rsi = frame_address + 8 + CONTEXT_BYTES as u64;
    frame.rdx = frame_address + 8;
    frame.rax = 0;
    frame.rsp = frame_address;
    frame.rip = entry.disposition.handler;
    // Direction, resume and trap flags are clear in a handler.
    frame.rflags &= !(0x400 | 0x1_0000 | 0x100);
    Ok(())
}

/// The vector state with the software-reserved bytes filled in and the second magic word behind it.
fn vector_with_trailer(state: &[u8], mask: u64) -> Vec<u8> {
    let mut bytes = state.to_vec();
    let software = Encoder::new()
        .u32(VECTOR_MAGIC_1)
        .u32(state.len() as u32 + 4)
        .u64(mask)
        .u32(state.len() as u32)
        .zero_to(48)
        .finish();
    if let Some(area) = bytes.get_mut(SOFTWARE_BYTES_OFFSET..SOFTWARE_BYTES_OFFSET + 48) {
        area.copy_from_slice(&software);
    }
    bytes.extend_from_slice(&VECTOR_MAGIC_2.to_le_bytes());
    bytes
}

/// Encodes `ucontext_t`.
fn encode_context(frame: &UpcallFrame, entry: &Entry<'_>, vector_address: u64) -> Vec<u8> {
    let segments = frame.cs & 0xffff | (frame.ss & 0xffff) << 48;
    Encoder::new()
        .u64(CONTEXT_FLAGS)
        .u64(0)
        .raw(&entry.stack.encode(frame.rsp))
        .u64(frame.r8)
        .u64(frame.r9)
        .u64(frame.r10)
        .u64(frame.r11)
        .u64(frame.r12)
        .u64(frame.r13)
        .u64(frame.r14)
        .u64(frame.r15)
        .u64(frame.rdi)
        .u64(frame.rsi)
        .u64(frame.rbp)
        .u64(frame.rbx)
        .u64(frame.rdx)
        .u64(frame.rax)
        .u64(frame.rcx)
        .u64(frame.rsp)
        .u64(frame.rip)
        .u64(frame.rflags)
        .u64(segments)
        .u64(frame.error_code)
        .u64(frame.vector)
        .u64(entry.mask_before.0)
        .u64(frame.fault_address)
        .u64(vector_address)
        .zero_to(MASK_OFFSET)
        .u64(entry.mask_before.0)
        .finish()
}

/// What `rt_sigreturn` puts back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The signal mask.
    pub mask: SignalSet,
    /// The alternate stack as the handler left it in the context.
    pub stack: AlternateStack,
    /// Vector state to load, checked in size but not in content; `None`: initial state.
    pub vector_state: Option<Vec<u8>>,
}

/// Takes the frame back that the program's RSP points behind (the restorer popped its address) and puts its registers
/// into `frame`.
///
/// Registers are forced to be ones that a program may have; a context that cannot be continued is `EFAULT`, and the
/// caller ends the process by SIGSEGV. `vector_mask` and `vector_length` are those of this machine.
pub fn restore(
    memory: &dyn UserMemory,
    frame: &mut UpcallFrame,
    vector_mask: u64,
    vector_length: usize,
) -> Result<Restored> {
    let context: [u8; CONTEXT_BYTES] = read_array(memory, frame.rsp)?;
    let register = |index: usize| get::u64(&context, MACHINE_CONTEXT_OFFSET + index * 8);
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

    let vector_address = get::u64(&context, VECTOR_POINTER_OFFSET);
    let vector_state = match vector_address {
        0 => None,
        address => Some(read_vector(memory, address, vector_mask, vector_length)?),
    };
    Ok(Restored {
        mask: SignalSet(get::u64(&context, MASK_OFFSET)),
        stack: AlternateStack {
            base: get::u64(&context, 16),
            flags: get::u32(&context, 24) & !STACK_ON,
            length: get::u64(&context, 32),
        },
        vector_state,
    })
}

/// Copies the vector state back and makes its header one that XRSTOR takes: no unknown features, no compaction,
/// reserved bytes zero.
fn read_vector(memory: &dyn UserMemory, address: u64, mask: u64, length: usize) -> Result<Vec<u8>> {
    const LEGACY_BYTES: usize = 512;
    const HEADER_BYTES: usize = 64;
    let mut bytes = alloc::vec![0; length.clamp(LEGACY_BYTES + HEADER_BYTES, VECTOR_BYTES_MAX)];
    read_exact(memory, address, &mut bytes[..LEGACY_BYTES])?;
    let is_extended = get::u32(&bytes, SOFTWARE_BYTES_OFFSET) == VECTOR_MAGIC_1
        && get::u32(&bytes, SOFTWARE_BYTES_OFFSET + 16) as usize == length;
    if is_extended {
        read_exact(memory, address, &mut bytes)?;
    }
    let features = if is_extended { get::u64(&bytes, LEGACY_BYTES) & mask } else { 0b11 };
    bytes[LEGACY_BYTES..LEGACY_BYTES + HEADER_BYTES].fill(0);
    bytes[LEGACY_BYTES..LEGACY_BYTES + 8].copy_from_slice(&features.to_le_bytes());
    // MXCSR bits above 15 are reserved and would fault (Intel SDM vol. 1, 10.2.3).
    let control = get::u32(&bytes, 24) & 0xffff;
    bytes[24..28].copy_from_slice(&control.to_le_bytes());
    Ok(bytes)
}

#[cfg(test)]
#[path = "signal_frame_tests.rs"]
mod tests;
