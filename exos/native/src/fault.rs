//! Handlers of faults and of shortages, and the code through which exos enters them.
//!
//! exos resumes the faulting thread at an entry, with all registers but RSP and RIP as they were; at RSP lies the
//! record ([`Fault`]), below the red zone of the interrupted function. The entry saves what a C function may change,
//! calls the function, and goes back by `popfq` and `ret`: the return needs neither exos nor the kernel.
//!
//! A handler is like a signal handler that is never blocked: it must not wait for what the interrupted code holds, and
//! may fault itself, also into another call of a handler. It has no stack of its own, so the stack cannot be in a
//! handled range.
#![allow(unsafe_code, reason = "entries are naked functions; handlers run between any two instructions")]

use core::arch::naked_asm;

use crate::abi;
use crate::call::{Errno, system_call};

/// What happened, and where to go on.
#[derive(Debug)]
#[repr(C)]
pub struct Fault {
    function: usize,
    /// What the handler was installed with.
    pub argument: usize,
    /// The address that was touched.
    pub address: usize,
    /// [`abi`]'s `CAUSE_*`.
    pub cause: u64,
    /// Flags of the interrupted code.
    pub rflags: u64,
    /// The instruction that is executed next: the one that faulted, unless the handler changes it.
    pub rip: usize,
}

const _: () = assert!(size_of::<Fault>() == 8 * abi::RECORD_WORD_COUNT);

/// Handles a fault; it is repeated afterwards.
pub type Function = extern "C" fn(&mut Fault);

/// What of the interrupted code's registers the handler may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registers {
    /// Those of every C function: vector and floating-point state is saved for it.
    All,
    /// The handler was compiled not to use vector or floating-point registers, nor does what it calls.
    Integer,
}

impl Registers {
    fn entry(self) -> usize {
        match self {
            Self::All => entry_all as *const () as usize,
            Self::Integer => entry_integer as *const () as usize,
        }
    }
}

/// Has `function` handle faults of this process in a range that exos has no answer to, in place of SIGSEGV and SIGBUS;
/// `None` is nobody. A later call counts for the pages that it names.
///
/// # Errors
/// `EINVAL` no range of whole pages; `ENOSPC` too many ranges.
///
/// # Safety
/// The function may run between any two instructions that touch the range.
pub unsafe fn handle_faults(
    address: usize,
    length: usize,
    function: Option<(Function, usize)>,
    registers: Registers,
) -> Result<(), Errno> {
    let [entry, function, argument] = words(function, registers);
    // SAFETY: by contract; the entries are this module's.
    unsafe { system_call(abi::CALL_HANDLE_FAULTS, [address, length, entry, function, argument]) }.map(|_| ())
}

/// Has `function` give memory back, by [`crate::call::apply`] or as on Linux, when a page that a thread touches has no
/// frame; `None` is nobody. If it gives nothing back, the process ends as without it. What it works on has to be in
/// memory before.
///
/// # Errors
/// None but `ENOSYS`.
///
/// # Safety
/// The function may run between any two instructions that touch memory for the first time.
pub unsafe fn handle_shortage(function: Option<(Function, usize)>, registers: Registers) -> Result<(), Errno> {
    let [entry, function, argument] = words(function, registers);
    // SAFETY: by contract; the entries are this module's.
    unsafe { system_call(abi::CALL_HANDLE_SHORTAGE, [entry, function, argument, 0, 0]) }.map(|_| ())
}

fn words(function: Option<(Function, usize)>, registers: Registers) -> [usize; 3] {
    function.map_or([0; 3], |(function, argument)| [registers.entry(), function as usize, argument])
}

/// An entry: `$call` calls the function of the record at RBX + 80, with RSP below RBX and as it pleases.
macro_rules! entry {
    ($(#[$meta:meta])* $name:ident, $($call:literal),*) => {
        $(#[$meta])*
        #[unsafe(naked)]
        extern "C" fn $name() {
            naked_asm!(
                "push rax", "push rcx", "push rdx", "push rsi", "push rdi", "push r8", "push r9", "push r10",
                "push r11",
                "push rbx",
                "mov rbx, rsp",
                "cld",
                $($call,)*
                "mov rsp, rbx",
                "pop rbx", "pop r11", "pop r10", "pop r9", "pop r8", "pop rdi", "pop rsi", "pop rdx", "pop rcx",
                "pop rax",
                "lea rsp, [rsp + 32]",
                "popfq",
                "ret {red_zone}",
                red_zone = const abi::RED_ZONE_BYTES,
            );
        }
    };
}

entry!(
    /// For handlers that keep vector state.
    entry_integer,
    "lea rdi, [rbx + 80]",
    "and rsp, -16",
    "call [rdi]"
);

entry!(
    /// For all others. 0xe7 is x87, SSE, AVX and AVX-512 state, 2688 bytes in the standard format (Intel SDM vol. 1,
    /// 13.4).
    entry_all,
    "and rsp, -64",
    "sub rsp, 2688",
    "xor eax, eax",
    "mov ecx, 8",
    "lea rdi, [rsp + 512]",
    "rep stosq",
    "mov eax, 0xe7",
    "xor edx, edx",
    "xsave64 [rsp]",
    "lea rdi, [rbx + 80]",
    "call [rdi]",
    "mov eax, 0xe7",
    "xor edx, edx",
    "xrstor64 [rsp]"
);
