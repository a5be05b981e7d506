//! The stack frame of a signal handler, exactly as Linux builds it (`struct rt_sigframe`,
//! `arch/x86/kernel/signal_64.c`).
//!
//! From high to low addresses: vector state (XSAVE format with the software-reserved bytes that tell its size),
//! `siginfo_t`, `ucontext_t`, the restorer's address. Handlers of glibc, Go and JVMs read and change it; [`restore`]
//! takes back what they may change and forces the rest. Neighbours: `exos::task::signal` decides which; the glue
//! saves and loads vector state.

use aegis_abi::layout::{PROGRAM_BASE, PROGRAM_END};
use aegis_abi::upcall::{USER_CODE_SELECTOR, USER_STACK_SELECTOR, UpcallFrame};
use exos::error::{Errno, Result};
use exos::task::signal::{Disposition, Signal, SignalInfo, SignalPayload, SignalSet};

use crate::abi::bytes::get;
use crate::user::{UserMemory, read_array, write_all};
use crate::vector_buffer::{VECTOR_BYTES_MAX, VectorBuffer};

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
/// The part of an XSAVE area that FXSAVE has, and its header (Intel SDM vol. 1, 13.4).
const LEGACY_BYTES: usize = 512;
const HEADER_BYTES: usize = 64;
/// Bytes of `stack_t`.
const STACK_BYTES: usize = 24;

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
    pub fn encode(&self, rsp: u64) -> [u8; STACK_BYTES] {
        let on = if self.contains(rsp) { STACK_ON } else { 0 };
        let mut bytes = [0; STACK_BYTES];
        put(&mut bytes, 0, self.base.to_le_bytes());
        put(&mut bytes, 8, (self.flags | on).to_le_bytes());
        put(&mut bytes, 16, self.length.to_le_bytes());
        bytes
    }
}

/// What a handler is entered with, besides the program's registers.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
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
    /// XCR0, which the vector state was saved with, and the bytes that go with it.
    pub vector_format: (u64, usize),
}

/// Stores a field at an offset that is a constant of a layout.
#[inline(always)]
fn put<const N: usize>(bytes: &mut [u8], offset: usize, value: [u8; N]) {
    bytes[offset..offset + N].copy_from_slice(&value);
}

/// Encodes a `siginfo_t`.
#[must_use]
pub fn encode_info(signal: Signal, info: &SignalInfo) -> [u8; INFO_BYTES] {
    let mut bytes = [0; INFO_BYTES];
    put_info(&mut bytes, signal, info);
    bytes
}

/// The same into `bytes`, which are zero.
fn put_info(bytes: &mut [u8; INFO_BYTES], signal: Signal, info: &SignalInfo) {
    put(bytes, 0, i32::from(signal.number()).to_le_bytes());
    put(bytes, 4, info.errno.to_le_bytes());
    put(bytes, 8, info.code.to_le_bytes());
    match info.payload {
        SignalPayload::None => {}
        SignalPayload::Sender { pid, uid, value } => {
            put(bytes, 16, pid.to_le_bytes());
            put(bytes, 20, uid.to_le_bytes());
            put(bytes, 24, value.to_le_bytes());
        }
        SignalPayload::Fault { address } => put(bytes, 16, address.to_le_bytes()),
        SignalPayload::Child { pid, uid, status } => {
            put(bytes, 16, pid.to_le_bytes());
            put(bytes, 20, uid.to_le_bytes());
            put(bytes, 24, status.to_le_bytes());
        }
        SignalPayload::Timer { id, overrun, value } => {
            put(bytes, 16, id.to_le_bytes());
            put(bytes, 20, overrun.to_le_bytes());
            put(bytes, 24, value.to_le_bytes());
        }
    }
}

/// Builds the frame on the program's stack and changes `frame` so that the program enters its handler. `vector` holds
/// the program's vector state in XSAVE's standard format.
///
/// `EFAULT`: the stack cannot hold it; the caller then ends the process by SIGSEGV, as Linux does.
pub fn build(memory: &dyn UserMemory, frame: &mut UpcallFrame, entry: &Entry, vector: &mut VectorBuffer) -> Result<()> {
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
    let vector_bytes = with_trailer(vector, entry.vector_format);
    let vector_address = top.wrapping_sub(vector_bytes.len() as u64) & !63;
    let frame_address = (vector_address.wrapping_sub(FRAME_BYTES as u64) & !15).wrapping_sub(8);
    if uses_alternate && frame_address < entry.stack.base {
        return Err(Errno::EFAULT);
    }
    write_all(memory, vector_address, vector_bytes)?;
    let mut bytes = [0; FRAME_BYTES];
    put(&mut bytes, 0, entry.disposition.restorer.to_le_bytes());
    let (head, info) = bytes.split_at_mut(8 + CONTEXT_BYTES);
    put_context(&mut head[8..], frame, entry, vector_address);
    if let Some(info) = info.first_chunk_mut() {
        put_info(info, entry.signal, &entry.info);
    }
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
fn with_trailer(vector: &mut VectorBuffer, (mask, length): (u64, usize)) -> &[u8] {
    let length = length.clamp(LEGACY_BYTES + HEADER_BYTES, VECTOR_BYTES_MAX);
    let bytes = vector.bytes();
    bytes[SOFTWARE_BYTES_OFFSET..LEGACY_BYTES].fill(0);
    put(bytes, SOFTWARE_BYTES_OFFSET, VECTOR_MAGIC_1.to_le_bytes());
    put(bytes, SOFTWARE_BYTES_OFFSET + 4, (length as u32 + 4).to_le_bytes());
    put(bytes, SOFTWARE_BYTES_OFFSET + 8, mask.to_le_bytes());
    put(bytes, SOFTWARE_BYTES_OFFSET + 16, (length as u32).to_le_bytes());
    put(bytes, length, VECTOR_MAGIC_2.to_le_bytes());
    &bytes[..length + 4]
}

/// Encodes `ucontext_t` into bytes that are zero.
fn put_context(bytes: &mut [u8], frame: &UpcallFrame, entry: &Entry, vector_address: u64) {
    let Some(bytes) = bytes.first_chunk_mut::<CONTEXT_BYTES>() else { return };
    let segments = frame.cs & 0xffff | (frame.ss & 0xffff) << 48;
    put(bytes, 0, CONTEXT_FLAGS.to_le_bytes());
    put(bytes, 16, entry.stack.encode(frame.rsp));
    let words = [
        frame.r8,
        frame.r9,
        frame.r10,
        frame.r11,
        frame.r12,
        frame.r13,
        frame.r14,
        frame.r15,
        frame.rdi,
        frame.rsi,
        frame.rbp,
        frame.rbx,
        frame.rdx,
        frame.rax,
        frame.rcx,
        frame.rsp,
        frame.rip,
        frame.rflags,
        segments,
        frame.error_code,
        frame.vector,
        entry.mask_before.0,
        frame.fault_address,
        vector_address,
    ];
    for (index, word) in words.into_iter().enumerate() {
        put(bytes, MACHINE_CONTEXT_OFFSET + index * 8, word.to_le_bytes());
    }
    put(bytes, MASK_OFFSET, entry.mask_before.0.to_le_bytes());
}

/// What `rt_sigreturn` puts back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The signal mask.
    pub mask: SignalSet,
    /// The alternate stack as the handler left it in the context.
    pub stack: AlternateStack,
    /// Whether the buffer holds vector state to load, with a header that XRSTOR takes; else the initial state is meant.
    pub has_vector: bool,
}

/// Takes the frame back that the program's RSP points behind (the restorer popped its address) and puts its registers
/// into `frame`.
///
/// Registers are forced to be ones that a program may have; a context that cannot be continued is `EFAULT`, and the
/// caller ends the process by SIGSEGV. `vector_format` is this machine's; the vector state goes to `vector`.
pub fn restore(
    memory: &dyn UserMemory,
    frame: &mut UpcallFrame,
    vector_format: (u64, usize),
    vector: &mut VectorBuffer,
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
    if vector_address != 0 {
        read_vector(memory, vector_address, vector_format, vector)?;
    }
    Ok(Restored {
        mask: SignalSet(get::u64(&context, MASK_OFFSET)),
        stack: AlternateStack {
            base: get::u64(&context, 16),
            flags: get::u32(&context, 24) & !STACK_ON,
            length: get::u64(&context, 32),
        },
        has_vector: vector_address != 0,
    })
}

/// Copies the vector state back and makes its header one that XRSTOR takes: no unknown features, no compaction,
/// reserved bytes zero.
fn read_vector(
    memory: &dyn UserMemory,
    address: u64,
    (mask, length): (u64, usize),
    vector: &mut VectorBuffer,
) -> Result<()> {
    let bytes = vector.bytes();
    let length = length.clamp(LEGACY_BYTES + HEADER_BYTES, VECTOR_BYTES_MAX);
    // All at once, as it nearly always is there; what follows says how much of it counts.
    let count = memory.copy_in(address, &mut bytes[..length])?;
    if count < LEGACY_BYTES {
        return Err(Errno::EFAULT);
    }
    let is_extended = get::u32(bytes, SOFTWARE_BYTES_OFFSET) == VECTOR_MAGIC_1
        && get::u32(bytes, SOFTWARE_BYTES_OFFSET + 16) as usize == length;
    if is_extended && count < length {
        return Err(Errno::EFAULT);
    }
    let features = if is_extended { get::u64(bytes, LEGACY_BYTES) & mask } else { 0b11 };
    bytes[LEGACY_BYTES..LEGACY_BYTES + HEADER_BYTES].fill(0);
    put(bytes, LEGACY_BYTES, features.to_le_bytes());
    // MXCSR bits above 15 are reserved and would fault (Intel SDM vol. 1, 10.2.3).
    let control = get::u32(bytes, 24) & 0xffff;
    put(bytes, 24, control.to_le_bytes());
    Ok(())
}

#[cfg(test)]
#[path = "signal_frame_tests.rs"]
mod tests;
