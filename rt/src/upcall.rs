//! Upcall entries and resume.
//!
//! Two entries serve all kinds. [`syscall_entry`] builds an [`UpcallFrame`] at the top of the save area from what the kernel left in the
//! control page, then calls the registered handler; [`upcall_entry`] finds the frame that the kernel pushed. Both resume without the kernel:
//! the mask goes back to what it was, registers are popped, `iretq` does the rest. Between unmasking and `iretq` another
//! upcall may come: it is pushed below RSP, so nothing that is still to be popped is touched.
//!
//! Handlers are called through two words of the control page's library part, so that library OSes need no link-time symbols.
#![allow(
    unsafe_code,
    reason = "entries are assembly; handlers are called from it"
)]

use aegis_abi::upcall::{
    ControlPage, USER_CODE_SELECTOR, USER_STACK_SELECTOR, UpcallFrame, UpcallKind,
};
use core::mem::offset_of;

use crate::control;

/// Library word that holds the system-call handler.
pub const WORD_SYSCALL_HANDLER: usize = 0;
/// Library word that holds the handler of all other upcalls.
pub const WORD_UPCALL_HANDLER: usize = 1;
/// First library word that a library OS may use for itself.
pub const WORD_FREE_FIRST: usize = 4;

/// Handles one upcall. It may change the frame; it returns to resume it.
///
/// Held-back upcalls arrive at the second handler with `frame.kind` as interrupted and the bits to look for still in
/// `control::take_pending`.
pub type Handler = extern "C" fn(frame: &mut UpcallFrame);

/// What a library OS does for its upcalls.
#[derive(Clone, Copy)]
pub struct UpcallHandlers {
    /// Program `syscall` instructions.
    pub syscall: Handler,
    /// Exceptions, slices, bells, revocation; also called with held-back upcalls pending.
    pub other: Handler,
}

/// Registers handlers for this virtual processor and enters every kind in `kinds`, plus system calls and exceptions.
pub fn register(handlers: UpcallHandlers, kinds: &[UpcallKind]) {
    control::set_library_word(WORD_SYSCALL_HANDLER, handlers.syscall as usize as u64);
    control::set_library_word(WORD_UPCALL_HANDLER, handlers.other as usize as u64);
    control::set_entry(UpcallKind::Syscall, syscall_entry as *const () as u64);
    control::set_entry(UpcallKind::Exception, upcall_entry as *const () as u64);
    for kind in kinds {
        control::set_entry(*kind, upcall_entry as *const () as u64);
    }
}

unsafe extern "C" {
    /// Entry for [`UpcallKind::Syscall`].
    pub fn syscall_entry();
    /// Entry for every other kind.
    pub fn upcall_entry();
    /// Leaves for the context in `frame`, which lies in the save area with nothing of value below it.
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
    "mov rsp, gs:[{save_area_top}]",
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
    "xor ebp, ebp",
    "call qword ptr gs:[{upcall_handler}]",
    "jmp 2f",
    ".global upcall_resume",
    "upcall_resume:",
    "mov rsp, rdi",
    "2:",
    "mov eax, [rsp + {masked_before}]",
    "mov dword ptr gs:[{masked}], eax",
    "test eax, eax",
    "jnz 3f",
    "cmp dword ptr gs:[{pending}], 0",
    "jne 4f",
    "3:",
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
    "4:", // something was held back: mask again and look
    "mov dword ptr gs:[{masked}], 1",
    "mov rdi, rsp",
    "call qword ptr gs:[{upcall_handler}]",
    "jmp 2b",
    save_area_top = const offset_of!(ControlPage, save_area_top),
    syscall_rip = const offset_of!(ControlPage, syscall_rip),
    syscall_rflags = const offset_of!(ControlPage, syscall_rflags),
    syscall_rsp = const offset_of!(ControlPage, syscall_rsp),
    masked = const offset_of!(ControlPage, masked),
    pending = const offset_of!(ControlPage, pending),
    syscall_handler = const offset_of!(ControlPage, library) + 8 * WORD_SYSCALL_HANDLER,
    upcall_handler = const offset_of!(ControlPage, library) + 8 * WORD_UPCALL_HANDLER,
    masked_before = const offset_of!(UpcallFrame, masked_before),
    user_stack = const USER_STACK_SELECTOR,
    user_code = const USER_CODE_SELECTOR,
);

/// Defines `_start` of a library OS: the kernel enters it with RSP at the top of the save area and RDI at the boot information.
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
