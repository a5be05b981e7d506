//! Doing what may fault, and living on: every touch of a doubtful address goes through here.
//!
//! [`enter`] calls a function after noting its stack pointer in the control page; the exception handler of this
//! module goes back there when a fault comes. All state is in the control page's library words, so it works on every
//! virtual processor and in child environments, which have no writable statics. An exception that nobody probes for
//! ends the environment with `NoHandler`: the handler takes itself away and lets the exception happen again.

use aegis_abi::upcall::{ControlPage, UpcallFrame, UpcallKind};
use aegis_rt::control;
use aegis_rt::upcall::{self, Handler, KIND_HELD_BACK, UpcallHandlers, WORD_FREE_FIRST};
use core::mem::offset_of;

/// Library word: the stack pointer to go back to; 0 while nobody probes.
const WORD_STACK: usize = WORD_FREE_FIRST;
/// Library words: vector, error code, fault address, instruction pointer of the last caught exception.
const WORD_VECTOR: usize = WORD_FREE_FIRST + 1;
const WORD_ERROR: usize = WORD_FREE_FIRST + 2;
const WORD_ADDRESS: usize = WORD_FREE_FIRST + 3;
const WORD_RIP: usize = WORD_FREE_FIRST + 4;

/// Page fault error code: the page was present.
pub(crate) const PRESENT: u64 = 1 << 0;
/// Page fault error code: a store.
pub(crate) const WRITE: u64 = 1 << 1;
/// Page fault error code: user mode.
pub(crate) const USER: u64 = 1 << 2;
/// Page fault error code: an instruction fetch.
pub(crate) const FETCH: u64 = 1 << 4;
/// Vector of general protection faults.
pub(crate) const GENERAL_PROTECTION: u64 = 13;
/// Vector of page faults.
pub(crate) const PAGE_FAULT: u64 = 14;

/// An exception that was caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) vector: u64,
    pub(crate) error_code: u64,
    pub(crate) address: u64,
    pub(crate) rip: u64,
}

impl Fault {
    /// Whether it is a page fault at `address` with this error code.
    pub(crate) fn is_page_fault(&self, address: u64, error_code: u64) -> bool {
        (self.vector, self.address, self.error_code) == (PAGE_FAULT, address, error_code)
    }
}

unsafe extern "C" {
    fn probe_enter(function: u64, first: u64, second: u64) -> Entered;
    fn probe_fault();
    fn probe_load();
    fn probe_store();
}

#[repr(C)]
struct Entered {
    value: u64,
    has_faulted: u64,
}

core::arch::global_asm!(
    // probe_enter(function, first, second): calls function(first, second); RDX tells whether it faulted.
    "probe_enter:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 8",
    "mov gs:[{stack}], rsp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "call rax",
    "xor edx, edx",
    "2:",
    "mov rsp, gs:[{stack}]",
    "mov qword ptr gs:[{stack}], 0",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    "probe_fault:",
    "mov edx, 1",
    "jmp 2b",
    "probe_load:",
    "mov rax, [rdi]",
    "ret",
    "probe_store:",
    "mov [rdi], rsi",
    "ret",
    stack = const offset_of!(ControlPage, library) + 8 * WORD_STACK,
);

/// Registers the handlers of this module on this virtual processor.
pub(crate) fn install() {
    install_with(on_upcall, &[]);
}

/// Registers `other` for exceptions and for `kinds`; program system calls are unexpected.
pub(crate) fn install_with(other: Handler, kinds: &[UpcallKind]) {
    upcall::register(UpcallHandlers { syscall: on_unexpected_syscall, other }, kinds);
}

/// Back to the state in which a case finds its processor: exceptions are caught, nothing else comes.
pub(crate) fn reset() {
    for kind in [
        UpcallKind::SliceBegin,
        UpcallKind::SliceEnd,
        UpcallKind::Bell,
        UpcallKind::Revocation,
        UpcallKind::Repossession,
    ] {
        control::set_entry(kind, 0);
    }
    install();
    control::set_library_word::<WORD_STACK>(0);
    control::set_masked(false);
    let _ = control::take_pending();
}

extern "C" fn on_unexpected_syscall(_: &mut UpcallFrame) {
    control::set_entry(UpcallKind::Syscall, 0);
}

/// Catches what is probed for.
pub(crate) extern "C" fn on_upcall(frame: &mut UpcallFrame) {
    if frame.kind == KIND_HELD_BACK {
        let _ = control::take_pending();
        return;
    }
    if frame.kind == UpcallKind::Exception as u32 {
        catch(frame);
    }
}

/// Leaves the probed function, or lets an unexpected exception end the environment.
pub(crate) fn catch(frame: &mut UpcallFrame) {
    let stack = control::library_word::<WORD_STACK>();
    if stack == 0 {
        control::set_entry(UpcallKind::Exception, 0);
        return;
    }
    control::set_library_word::<WORD_VECTOR>(frame.vector);
    control::set_library_word::<WORD_ERROR>(frame.error_code);
    control::set_library_word::<WORD_ADDRESS>(frame.fault_address);
    control::set_library_word::<WORD_RIP>(frame.rip);
    frame.rip = probe_fault as *const () as u64;
    frame.rsp = stack;
    // Only the flags that a function may expect at its return.
    frame.rflags = 0x202;
}

/// Calls the code at `function` with two arguments.
pub(crate) fn enter(function: u64, first: u64, second: u64) -> Result<u64, Fault> {
    // SAFETY: the routine keeps the calling convention, also when the function faults; what the function does is the
    // caller's doing, and every caller's purpose is to see the kernel's protection at work.
    let entered = unsafe { probe_enter(function, first, second) };
    if entered.has_faulted == 0 {
        return Ok(entered.value);
    }
    Err(Fault {
        vector: control::library_word::<WORD_VECTOR>(),
        error_code: control::library_word::<WORD_ERROR>(),
        address: control::library_word::<WORD_ADDRESS>(),
        rip: control::library_word::<WORD_RIP>(),
    })
}

/// Calls a routine that is written in assembly.
pub(crate) fn run(routine: unsafe extern "C" fn(), first: u64, second: u64) -> Result<u64, Fault> {
    enter(routine as *const () as u64, first, second)
}

/// Loads a word.
pub(crate) fn read(address: u64) -> Result<u64, Fault> {
    run(probe_load, address, 0)
}

/// Stores a word.
pub(crate) fn write(address: u64, value: u64) -> Result<(), Fault> {
    run(probe_store, address, value).map(|_| ())
}

/// Calls the code at an address.
pub(crate) fn execute(address: u64) -> Result<u64, Fault> {
    enter(address, 0, 0)
}

/// Whether a load faults because nothing is mapped there for us.
pub(crate) fn is_unmapped(address: u64) -> bool {
    matches!(read(address), Err(fault) if fault.vector == PAGE_FAULT && fault.error_code & PRESENT == 0)
}
