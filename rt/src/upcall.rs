//! Upcall entries and resume.
//!
//! Two entries serve all kinds. [`syscall_entry`] builds an [`UpcallFrame`] at the top of the current stack from what
//! the kernel left in the control page, then calls the registered handler; [`upcall_entry`] finds the frame that the
//! kernel pushed. Both resume without the kernel.
//!
//! The stack is the save area, unless the library OS has named another one ([`set_stack_top`]): one that has threads
//! gives each its own, so that a thread can block in the middle of a handler. Then [`upcall_entry`] moves the frame
//! there: to the stack's top if a program was interrupted, else below the stack pointer of what was. So the save area
//! is empty again whenever a handler runs. The exceptions of a program may be looked at before that
//! ([`set_fault_handler`]): what ends there is resumed from the save area.
//!
//! Resume is a restartable sequence instead of `iretq`: QEMU before 9.1 makes the stack accesses of a user-mode
//! `iretq` as a supervisor, which SMAP refuses (`docs/adr/0003-resume-without-iretq.md`); the sequence is cheaper
//! too. After unmasking, another upcall may interrupt it. Until RSP is replaced the frame lies untouched at RSP, so
//! [`upcall_entry`] forgets the interrupted resume and hands the frame to the handler again, as if the upcall had been
//! held back: the handler sees the program's registers, not those of the resume. Afterwards only one jump through the
//! control page is left, which [`upcall_entry`] completes on its behalf. So nothing is lost at any instruction.
//!
//! Handlers are called through two words of the control page's library part, so that library OSes need no link-time
//! symbols.
#![allow(unsafe_code, reason = "entries are assembly; handlers are called from it")]

use aegis_abi::upcall::{ControlPage, USER_CODE_SELECTOR, USER_STACK_SELECTOR, UpcallFrame, UpcallKind};
use core::mem::offset_of;

use crate::control;

/// Library word that holds the system-call handler.
pub const WORD_SYSCALL_HANDLER: usize = 0;
/// Library word that holds the handler of all other upcalls.
pub const WORD_UPCALL_HANDLER: usize = 1;
/// Library word with the top of the stack that handlers run on.
pub const WORD_STACK_TOP: usize = 4;
/// Library word through which a resume jumps.
const WORD_RESUME_RIP: usize = 3;
/// Library word that holds the handler of a program's exceptions on the save area, 0 for none.
const WORD_FAULT_HANDLER: usize = 5;
/// First library word that a library OS may use for itself.
pub const WORD_FREE_FIRST: usize = 6;

/// `frame.kind` of a call to the second handler that no upcall made: something was held back while a handler ran. Not
/// a kind of the kernel's.
pub const KIND_HELD_BACK: u32 = u32::MAX;

/// Handles one upcall. It may change the frame; it returns to resume it.
///
/// Held-back upcalls arrive at the second handler with [`KIND_HELD_BACK`] in `frame.kind`, so that the upcall that
/// the frame was made for is not handled twice; the bits to look for are still in `control::take_pending`, which the
/// handler must call.
pub type Handler = extern "C" fn(frame: &mut UpcallFrame);

/// Looks at an exception of a program on the save area, before its frame is moved to the stack that handlers run on;
/// true resumes the frame. It must not wait, nor let another thread run on this processor.
pub type FaultHandler = extern "C" fn(frame: &mut UpcallFrame) -> bool;

/// What a library OS does for its upcalls.
#[derive(Clone, Copy)]
pub struct UpcallHandlers {
    /// Program `syscall` instructions.
    pub syscall: Handler,
    /// Exceptions, slices, bells, revocation; also called with held-back upcalls pending.
    pub other: Handler,
}

/// Registers handlers for this virtual processor and enters every kind in `kinds`, plus system calls and exceptions.
///
/// Handlers run on the save area until [`set_stack_top`] says otherwise.
pub fn register(handlers: UpcallHandlers, kinds: &[UpcallKind]) {
    set_stack_top(control::save_area_top());
    set_fault_handler(None);
    control::set_library_word::<WORD_SYSCALL_HANDLER>(handlers.syscall as usize as u64);
    control::set_library_word::<WORD_UPCALL_HANDLER>(handlers.other as usize as u64);
    control::set_entry(UpcallKind::Syscall, syscall_entry as *const () as u64);
    control::set_entry(UpcallKind::Exception, upcall_entry as *const () as u64);
    for kind in kinds {
        control::set_entry(*kind, upcall_entry as *const () as u64);
    }
}

/// Names the stack that handlers of this virtual processor run on from the next upcall on: one past its last byte, a
/// multiple of 16. It has to be mapped for as long as it is the current one, and holds nothing while a program runs.
pub fn set_stack_top(top: u64) {
    control::set_library_word::<WORD_STACK_TOP>(top);
}

/// Sets the function that looks at a program's exceptions first, where handlers have a stack of their own; none at the
/// start.
#[inline]
pub fn set_fault_handler(handler: Option<FaultHandler>) {
    control::set_library_word::<WORD_FAULT_HANDLER>(handler.map_or(0, |handler| handler as usize as u64));
}

unsafe extern "C" {
    /// Entry for [`UpcallKind::Syscall`].
    pub fn syscall_entry();
    /// Entry for every other kind.
    pub fn upcall_entry();
    /// Leaves for the context in `frame`, which lies on the current stack or in the save area, with nothing of value
    /// below it.
    ///
    /// # Safety
    /// The frame must be a complete context of this processor.
    #[link_name = "upcall_resume"]
    pub fn resume(frame: *const UpcallFrame) -> !;
}

core::arch::global_asm!(
    ".balign 16",
    ".global syscall_entry",
    "syscall_entry:",
    "mov rsp, gs:[{stack_top}]",
    "push {user_stack}",
    "push qword ptr gs:[{syscall_rsp}]",
    "push qword ptr gs:[{syscall_rflags}]",
    "push {user_code}",
    "push qword ptr gs:[{syscall_rip}]",
    "push 0", // fault address
    "push 0", // error code
    "push 0", // vector
    "push 0", // kind Syscall, mask before 0
    "push rax",
    "push qword ptr gs:[{syscall_rip}]", // RCX as `syscall` leaves it
    "push rdx",
    "push rbx",
    "push rbp",
    "push rsi",
    "push rdi",
    "push r8",
    "push r9",
    "push r10",
    "push qword ptr gs:[{syscall_rflags}]", // R11 as `syscall` leaves it
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov rdi, rsp",
    "xor ebp, ebp",
    "call qword ptr gs:[{syscall_handler}]",
    "jmp 2f",
    ".balign 16",
    ".global upcall_entry",
    "upcall_entry:",
    // Was a resume interrupted? Then complete its jump, or do as if the upcall had come just before it: it becomes
    // one that was held back, of the context that was about to be resumed.
    "mov rax, [rdi + {rip}]",
    "lea rcx, [rip + 7f]",
    "cmp rax, rcx",
    "je 8f",
    "ja 9f",
    "lea rdx, [rip + 2f]",
    "cmp rax, rdx",
    "jb 9f",
    "mov ecx, [rdi + {kind}]",
    "mov eax, 1",
    "shl eax, cl",
    "lock or gs:[{pending}], eax",
    "mov rsp, [rdi + {rsp}]",
    "jmp 4f",
    "8:",
    "mov rax, gs:[{resume_rip}]",
    "mov [rdi + {rip}], rax",
    "9:",
    "xor ebp, ebp",
    // Does the frame belong on another stack than the save area?
    "mov rax, gs:[{stack_top}]",
    "mov rcx, gs:[{save_area_top}]",
    "cmp rax, rcx",
    "je 11f",
    "mov rdx, [rdi + {rsp}]",
    "cmp rdx, rcx",
    "ja 10f",
    "cmp rdx, gs:[{save_area_base}]",
    "jae 11f",
    "10:",
    // A program, or code of ours that had the program's stack pointer: the top. Else below the stack pointer.
    "cmp qword ptr [rdi + {rip}], 0",
    "jge 13f",
    "test rdx, rdx",
    "cmovs rax, rdx",
    "12:",
    "and rax, -16",
    "sub rax, {frame_bytes}",
    "mov rsi, rdi",
    "mov rdi, rax",
    "mov ecx, {frame_bytes} / 8",
    "rep movsq",
    "mov rdi, rax",
    "mov rsp, rax",
    "11:",
    "call qword ptr gs:[{upcall_handler}]",
    "jmp 2f",
    // A program. Is somebody to look at its exceptions first?
    "13:",
    "mov rcx, gs:[{fault_handler}]",
    "jrcxz 12b",
    "cmp dword ptr [rdi + {kind}], {exception}",
    "jne 12b",
    "call rcx",
    "test al, al",
    "jnz 2f",
    "mov rdi, rsp",
    "mov rax, gs:[{stack_top}]",
    "jmp 12b",
    ".global upcall_resume",
    "upcall_resume:",
    "mov rsp, rdi",
    // From here to the jump at 7: restartable, with RSP at the frame whenever asynchronous upcalls are not masked.
    "2:",
    "mov dword ptr gs:[{masked}], 1",
    "test dword ptr [rsp + {rflags}], {trap_flag}",
    "jnz 3f",
    "mov rax, [rsp + {rip}]",
    "mov gs:[{resume_rip}], rax",
    "push qword ptr [rsp + {rflags}]",
    "popfq", // nothing below changes flags
    "mov ecx, [rsp + {masked_before}]",
    "mov dword ptr gs:[{masked}], ecx",
    "jrcxz 5f",
    "jmp 6f",
    "5:",
    "mov ecx, gs:[{pending}]",
    "jrcxz 6f",
    "jmp 4f",
    "6:",
    "mov r15, [rsp]",
    "mov r14, [rsp + 8]",
    "mov r13, [rsp + 16]",
    "mov r12, [rsp + 24]",
    "mov r11, [rsp + 32]",
    "mov r10, [rsp + 40]",
    "mov r9, [rsp + 48]",
    "mov r8, [rsp + 56]",
    "mov rdi, [rsp + 64]",
    "mov rsi, [rsp + 72]",
    "mov rbp, [rsp + 80]",
    "mov rbx, [rsp + 88]",
    "mov rdx, [rsp + 96]",
    "mov rcx, [rsp + 104]",
    "mov rax, [rsp + 112]",
    "mov rsp, [rsp + {rsp}]",
    "7:",
    "jmp qword ptr gs:[{resume_rip}]",
    "4:", // something was held back: mask again and look
    "mov dword ptr gs:[{masked}], 1",
    "push 2",
    "popfq",
    "mov dword ptr [rsp + {kind}], {held_back}",
    "mov rdi, rsp",
    // One that is still in the save area is moved as if it had come now.
    "cmp rdi, gs:[{save_area_top}]",
    "jae 14f",
    "cmp rdi, gs:[{save_area_base}]",
    "jae 9b",
    "14:",
    "call qword ptr gs:[{upcall_handler}]",
    "jmp 2b",
    // A program that single-steps itself: the flag must not be set before its first instruction, which only `iretq`
    // can do.
    "3:",
    "mov eax, [rsp + {masked_before}]",
    "mov dword ptr gs:[{masked}], eax",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop r11",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdi",
    "pop rsi",
    "pop rbp",
    "pop rbx",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "lea rsp, [rsp + 32]",
    "iretq",
    save_area_top = const offset_of!(ControlPage, save_area_top),
    save_area_base = const offset_of!(ControlPage, save_area_base),
    stack_top = const offset_of!(ControlPage, library) + 8 * WORD_STACK_TOP,
    frame_bytes = const size_of::<UpcallFrame>(),
    syscall_rip = const offset_of!(ControlPage, syscall_rip),
    syscall_rflags = const offset_of!(ControlPage, syscall_rflags),
    syscall_rsp = const offset_of!(ControlPage, syscall_rsp),
    masked = const offset_of!(ControlPage, masked),
    pending = const offset_of!(ControlPage, pending),
    syscall_handler = const offset_of!(ControlPage, library) + 8 * WORD_SYSCALL_HANDLER,
    upcall_handler = const offset_of!(ControlPage, library) + 8 * WORD_UPCALL_HANDLER,
    fault_handler = const offset_of!(ControlPage, library) + 8 * WORD_FAULT_HANDLER,
    exception = const UpcallKind::Exception as i32,
    masked_before = const offset_of!(UpcallFrame, masked_before),
    rip = const offset_of!(UpcallFrame, rip),
    rflags = const offset_of!(UpcallFrame, rflags),
    rsp = const offset_of!(UpcallFrame, rsp),
    resume_rip = const offset_of!(ControlPage, library) + 8 * WORD_RESUME_RIP,
    trap_flag = const 0x100,
    kind = const offset_of!(UpcallFrame, kind),
    held_back = const KIND_HELD_BACK as i32,
    user_stack = const USER_STACK_SELECTOR,
    user_code = const USER_CODE_SELECTOR,
);

/// Defines `_start` of a library OS: the kernel enters it with RSP at the top of the save area and RDI at the boot
/// information.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        core::arch::global_asm!(
            ".global _start",
            "_start:",
            "xor ebp, ebp",
            "and rsp, -16",
            "call {main}",
            "ud2",
            main = sym $main,
        );
    };
}
