//! Where rewritten system calls arrive: from a trampoline (`exos::rewrite`), without the kernel.
//!
//! On entry RCX is the return address in the program's text, R11 the address to go on at (the same, or the
//! trampoline's second part), every other register the program's. On return RCX is as it was and R11 holds the flags,
//! as `syscall` leaves them; all other registers and the flags are the program's.
//!
//! Calls that are one word of [`Facts`] are answered here. All others, some by their short way
//! ([`exos_linux::entry::fast_path`]), get an [`UpcallFrame`] as a trapped call would,
//! with asynchronous upcalls masked; the address to go on at is in the frame's fault address meanwhile. A short way has
//! a light frame: the registers that Rust code does not preserve, and what the end needs. The rest is put in only if
//! the short way does not know the answer, or if signals are to be looked at. A call after
//! which nothing but RAX is new leaves by the end of the short calls, with the few registers that Rust code does not
//! preserve taken from the frame; others leave by `aegis_rt`'s resume.
//!
//! Until the frame is complete, and from the end's unmasking to its last jump, upcalls are not masked. One that comes
//! then finds an address of this module in its frame: before the call looks at the word for that ([`WORD_ATTENTION`])
//! it sets it, and the call ends in [`super::entry::fast_end`], where signals are looked at; afterwards [`complete`]
//! ends the call in its stead. Invariant: nobody else runs on this processor in between, because handlers switch only
//! when a program was interrupted.

use aegis_abi::upcall::{ControlPage, USER_CODE_SELECTOR, USER_STACK_SELECTOR, UpcallFrame};
use aegis_rt::control;
use aegis_rt::upcall::{WORD_STACK_TOP, set_fault_handler};
use core::mem::offset_of;
use core::sync::atomic::Ordering;
use exos_linux::entry::table::{self, NUMBER_COUNT};
use exos_linux::task::facts::Facts;
use exos_linux::task::process::Process;
use syscalls::Sysno;

use super::call_words::{
    WORD_ATTENTION, WORD_CONTINUATION, WORD_COUNT, WORD_ENTRY, WORD_FACTS, WORD_LONG_COUNT, WORD_STACK_POINTER,
    WORD_THREAD, exos_fault_nofault, word,
};
use super::entry;

/// Where trampolines find the entry, from GS.
pub(crate) const ENTRY_OFFSET: u32 = word(WORD_ENTRY) as u32;

unsafe extern "C" {
    static exos_fast_entry: u8;
    static exos_fast_entry_long: u8;
    static exos_fast_decided: u8;
    static exos_fast_tail: u8;
    static exos_fast_tail_stack: u8;
    static exos_fast_tail_jump: u8;
}

/// Has the faults of a process that handles some itself offered to it first: on this processor from now on, on another
/// from the next time on that one of its threads comes there. Until then, and where it handles none any more, they take
/// the way of all others.
pub(crate) fn offer_faults(process: &Process) {
    process.has_handled_faults.store(true, Ordering::Relaxed);
    set_fault_handler(Some(exos_fault_nofault));
}

/// Makes rewritten calls answerable on this processor.
///
/// With `shows_all` every call takes the long way, so that all can be traced.
pub(crate) fn register(shows_all: bool) {
    control::set_library_word::<WORD_ATTENTION>(0);
    control::set_library_word::<WORD_COUNT>(0);
    control::set_library_word::<WORD_LONG_COUNT>(0);
    let entry = if shows_all { &raw const exos_fast_entry_long } else { &raw const exos_fast_entry };
    control::set_library_word::<WORD_ENTRY>(entry as u64);
}

/// Where the control page counts the short calls that its processor has answered.
pub(crate) const COUNT_OFFSET: u64 = word(WORD_COUNT) as u64;
/// Where it counts the other rewritten calls.
pub(crate) const LONG_COUNT_OFFSET: u64 = word(WORD_LONG_COUNT) as u64;

/// Whether RIP lies in this module's assembly.
pub(crate) fn contains(rip: u64) -> bool {
    (&raw const exos_fast_entry as u64..=&raw const exos_fast_tail_jump as u64).contains(&rip)
}

/// An upcall has interrupted a rewritten call: makes `frame` the program's if the call is as good as over, else sees to
/// it that the call looks for signals at its end.
pub(crate) fn complete(frame: &mut UpcallFrame) {
    if frame.rip < &raw const exos_fast_decided as u64 {
        control::set_library_word::<WORD_ATTENTION>(1);
        return;
    }
    if frame.rip <= &raw const exos_fast_tail as u64 {
        // SAFETY: from the look at the word on, the stack pointer is where the entry put the program's flags.
        frame.rflags = unsafe { (frame.rsp as *const u64).read() };
    }
    if frame.rip <= &raw const exos_fast_tail_stack as u64 {
        frame.rsp = control::library_word::<WORD_STACK_POINTER>();
    }
    frame.rip = control::library_word::<WORD_CONTINUATION>();
}

/// Nothing is to be looked at any more.
pub(crate) fn clear_attention() {
    control::set_library_word::<WORD_ATTENTION>(0);
}

/// The label of a short way, and what stands there.
macro_rules! stub {
    ($name:ident $kind:ident) => {
        concat!(
            ".global exos_fast_",
            stringify!($name),
            "\nexos_fast_",
            stringify!($name),
            ": EXOS_",
            stringify!($kind),
            " {",
            stringify!($name),
            "}"
        )
    };
}

/// The calls that have a way of their own from the entry: those of [`exos_linux::entry::fast_path`], with a light
/// frame, of which some are their handlers' by choice, then others, each with the assembler's macro of its kind and
/// what that works on. A call that is not in the table of all calls can have none.
macro_rules! short_ways {
    (LIGHT $($light:ident)*; CHOICE $($choice:ident)*; $($kind:ident $name:ident = $operand:tt $value:expr;)*) => {
        mod light {
            use aegis_abi::upcall::UpcallFrame;
            use exos_linux::entry::fast_path;

            use super::super::entry::{Ended, by_choice, by_fast_path};

            $(pub(super) extern "C" fn $light(frame: &mut UpcallFrame) -> Ended {
                by_fast_path(frame, fast_path::$light)
            })*
            $(pub(super) extern "C" fn $choice(frame: &mut UpcallFrame) -> Ended {
                by_choice(frame, fast_path::$choice)
            })*
        }

        mod label {
            unsafe extern "C" {
                pub(super) fn exos_fast_long();
                #[link_name = "exos_fast_gettid"]
                pub(super) fn gettid();
                $(#[link_name = concat!("exos_fast_", stringify!($light))]
                pub(super) fn $light();)*
                $(#[link_name = concat!("exos_fast_", stringify!($choice))]
                pub(super) fn $choice();)*
                $(#[link_name = concat!("exos_fast_", stringify!($name))]
                pub(super) fn $name();)*
            }
        }

        /// Where the entry goes on, by number.
        static TABLE: [unsafe extern "C" fn(); NUMBER_COUNT] = {
            let mut table: [unsafe extern "C" fn(); NUMBER_COUNT] = [label::exos_fast_long; NUMBER_COUNT];
            table[Sysno::gettid as usize] = label::gettid;
            $(assert!(table::has(Sysno::$light));
            table[Sysno::$light as usize] = label::$light;)*
            $(assert!(table::has(Sysno::$choice));
            table[Sysno::$choice as usize] = label::$choice;)*
            $(assert!(table::has(Sysno::$name));
            table[Sysno::$name as usize] = label::$name;)*
            table
        };

        // The frame is the one that `aegis_rt`'s `syscall_entry` builds.
        core::arch::global_asm!(
            ".macro EXOS_FRAME handler",
            "mov dword ptr gs:[{masked}], 1",
            "mov rsp, gs:[{stack_top}]",
            "push {user_stack}",
            "push qword ptr gs:[{stack_pointer}]",
            "push r11",
            "push {user_code}",
            "push rcx",
            "push qword ptr gs:[{continuation}]", // fault address
            "push 0",                             // error code
            "push 0",                             // vector
            "push 0",                             // kind Syscall, mask before 0
            "push rax",
            "push rcx",
            "push rdx",
            "push rbx",
            "push rbp",
            "push rsi",
            "push rdi",
            "push r8",
            "push r9",
            "push r10",
            "push r11",
            "push r12",
            "push r13",
            "push r14",
            "push r15",
            "push 2",
            "popfq",
            "mov rdi, rsp",
            "xor ebp, ebp",
            "call \\handler",
            ".endm",
            // What Rust code does not preserve, and what the end needs; the rest of the frame is left open.
            ".macro EXOS_LIGHT_FRAME",
            "pop rcx",
            "inc qword ptr gs:[{long_count}]",
            "mov dword ptr gs:[{masked}], 1",
            "sub rsp, {frame_ss}",
            "mov [rsp + {frame_rax}], rax",
            "mov [rsp + {frame_rip}], rcx",
            "mov [rsp + {frame_rflags}], r11",
            "mov [rsp + {frame_rdx}], rdx",
            "mov [rsp + {frame_rsi}], rsi",
            "mov [rsp + {frame_rdi}], rdi",
            "mov [rsp + {frame_r8}], r8",
            "mov [rsp + {frame_r9}], r9",
            "mov [rsp + {frame_r10}], r10",
            "mov rax, gs:[{stack_pointer}]",
            "mov [rsp + {frame_rsp}], rax",
            "mov rax, gs:[{continuation}]",
            "mov [rsp + {frame_continuation}], rax",
            "push 2",
            "popfq",
            ".endm",
            // The rest of a light frame.
            ".macro EXOS_REST_OF_FRAME",
            "mov [rsp + {frame_rbx}], rbx",
            "mov [rsp + {frame_rbp}], rbp",
            "mov [rsp + {frame_r12}], r12",
            "mov [rsp + {frame_r13}], r13",
            "mov [rsp + {frame_r14}], r14",
            "mov [rsp + {frame_r15}], r15",
            "mov rcx, [rsp + {frame_rip}]",
            "mov [rsp + {frame_rcx}], rcx",
            "mov rcx, [rsp + {frame_rflags}]",
            "mov [rsp + {frame_r11}], rcx",
            "mov qword ptr [rsp + {frame_kind}], 0", // kind Syscall, mask before 0
            "mov qword ptr [rsp + {frame_vector}], 0",
            "mov qword ptr [rsp + {frame_error_code}], 0",
            "mov qword ptr [rsp + {frame_cs}], {user_code}",
            "mov qword ptr [rsp + {frame_ss}], {user_stack}",
            "mov rdi, rsp",
            "xor ebp, ebp",
            ".endm",
            ".macro EXOS_LIGHT handler",
            "EXOS_LIGHT_FRAME",
            "mov rdi, rsp",
            "call \\handler",
            "jmp 9b",
            ".endm",
            // As above, for a handler that takes the program's arguments instead of the frame.
            ".macro EXOS_LEAF handler",
            "EXOS_LIGHT_FRAME",
            "call \\handler",
            "jmp 9b",
            ".endm",
            // For a handler that works on the whole frame.
            ".macro EXOS_WHOLE handler",
            "pop rcx",
            "inc qword ptr gs:[{long_count}]",
            "EXOS_FRAME \\handler",
            "jmp 8b",
            ".endm",
            ".macro EXOS_FACT offset",
            "mov rcx, gs:[{facts}]",
            "mov eax, [rcx + \\offset]",
            "jmp 5f",
            ".endm",
            ".balign 64",
            ".global exos_fast_entry",
            "exos_fast_entry:",
            "mov gs:[{stack_pointer}], rsp",
            "mov gs:[{continuation}], r11",
            "mov rsp, gs:[{stack_top}]",
            "pushfq",
            "mov r11, [rsp]",
            "cmp rax, {number_count}",
            "jae 2f",
            "push rcx",
            "lea rcx, [rip + {table}]",
            "jmp [rcx + rax*8]",
            ".global exos_fast_long",
            "exos_fast_long:",
            "pop rcx",
            "2: inc qword ptr gs:[{long_count}]",
            "EXOS_FRAME {rewritten}",
            // The result is in RAX. Usually the program's registers are as they were: what Rust code preserves is in
            // its place, the rest is in the frame, and the end is that of short calls.
            "8: test edx, edx",
            "jne 7f",
            "mov r11, [rsp + {frame_continuation}]",
            "mov gs:[{continuation}], r11",
            "mov r11, [rsp + {frame_rsp}]",
            "mov gs:[{stack_pointer}], r11",
            "mov r11, [rsp + {frame_r11}]",
            "mov r10, [rsp + {frame_r10}]",
            "mov r9, [rsp + {frame_r9}]",
            "mov r8, [rsp + {frame_r8}]",
            "mov rdi, [rsp + {frame_rdi}]",
            "mov rsi, [rsp + {frame_rsi}]",
            "mov rbp, [rsp + {frame_rbp}]",
            "mov rdx, [rsp + {frame_rdx}]",
            "mov rcx, [rsp + {frame_rcx}]",
            "add rsp, {frame_rflags}",
            "mov dword ptr gs:[{masked}], 0",
            "cmp dword ptr gs:[{pending}], 0",
            "je 6f",
            "jmp 3f",
            "7: mov rdi, rsp",
            "jmp upcall_resume",
            ".global exos_fast_entry_long",
            "exos_fast_entry_long:",
            "mov gs:[{stack_pointer}], rsp",
            "mov gs:[{continuation}], r11",
            "mov rsp, gs:[{stack_top}]",
            "pushfq",
            "mov r11, [rsp]",
            "inc qword ptr gs:[{long_count}]",
            "EXOS_FRAME {rewritten_shown}",
            "jmp 8b",
            // Behind a light frame: the result is in RAX, and RDX says whether that is all.
            "9: test edx, edx",
            "jne 4f",
            "mov r11, [rsp + {frame_continuation}]",
            "mov gs:[{continuation}], r11",
            "mov r11, [rsp + {frame_rsp}]",
            "mov gs:[{stack_pointer}], r11",
            "mov r11, [rsp + {frame_rflags}]",
            "mov r10, [rsp + {frame_r10}]",
            "mov r9, [rsp + {frame_r9}]",
            "mov r8, [rsp + {frame_r8}]",
            "mov rdi, [rsp + {frame_rdi}]",
            "mov rsi, [rsp + {frame_rsi}]",
            "mov rdx, [rsp + {frame_rdx}]",
            "mov rcx, [rsp + {frame_rip}]",
            "add rsp, {frame_rflags}",
            "mov dword ptr gs:[{masked}], 0",
            "cmp dword ptr gs:[{pending}], 0",
            "je 6f",
            "jmp 3f",
            // Either the handler of the table does it, or signals are to be looked at.
            "4: cmp edx, {unanswered}",
            "jne 12f",
            "EXOS_REST_OF_FRAME",
            "call {rewritten}",
            "jmp 8b",
            "12: mov rsi, rax",
            "EXOS_REST_OF_FRAME",
            "call {fast_path_end}",
            "jmp 8b",
            $(stub!($light LIGHT),)*
            $(stub!($choice LIGHT),)*
            $(stub!($name $kind),)*
            "3: EXOS_FRAME {fast_end}",
            "jmp 7b",
            ".global exos_fast_gettid",
            "exos_fast_gettid:",
            "mov eax, gs:[{thread}]",
            "5:",
            "inc qword ptr gs:[{count}]",
            "pop rcx",
            "6: cmp dword ptr gs:[{attention}], 0",
            ".global exos_fast_decided",
            "exos_fast_decided:",
            "jne 3b",
            ".global exos_fast_tail",
            "exos_fast_tail:",
            "popfq",
            ".global exos_fast_tail_stack",
            "exos_fast_tail_stack:",
            "mov rsp, gs:[{stack_pointer}]",
            ".global exos_fast_tail_jump",
            "exos_fast_tail_jump:",
            "jmp gs:[{continuation}]",
            masked = const offset_of!(ControlPage, masked),
            stack_top = const word(WORD_STACK_TOP),
            stack_pointer = const word(WORD_STACK_POINTER),
            continuation = const word(WORD_CONTINUATION),
            facts = const word(WORD_FACTS),
            thread = const word(WORD_THREAD),
            attention = const word(WORD_ATTENTION),
            count = const word(WORD_COUNT),
            long_count = const word(WORD_LONG_COUNT),
            pending = const offset_of!(ControlPage, pending),
            frame_continuation = const offset_of!(UpcallFrame, fault_address),
            frame_rsp = const offset_of!(UpcallFrame, rsp),
            frame_rflags = const offset_of!(UpcallFrame, rflags),
            frame_rip = const offset_of!(UpcallFrame, rip),
            frame_cs = const offset_of!(UpcallFrame, cs),
            frame_ss = const offset_of!(UpcallFrame, ss),
            frame_kind = const offset_of!(UpcallFrame, kind),
            frame_vector = const offset_of!(UpcallFrame, vector),
            frame_error_code = const offset_of!(UpcallFrame, error_code),
            frame_rax = const offset_of!(UpcallFrame, rax),
            frame_rbx = const offset_of!(UpcallFrame, rbx),
            frame_r12 = const offset_of!(UpcallFrame, r12),
            frame_r13 = const offset_of!(UpcallFrame, r13),
            frame_r14 = const offset_of!(UpcallFrame, r14),
            frame_r15 = const offset_of!(UpcallFrame, r15),
            frame_rcx = const offset_of!(UpcallFrame, rcx),
            frame_rdx = const offset_of!(UpcallFrame, rdx),
            frame_rbp = const offset_of!(UpcallFrame, rbp),
            frame_rsi = const offset_of!(UpcallFrame, rsi),
            frame_rdi = const offset_of!(UpcallFrame, rdi),
            frame_r8 = const offset_of!(UpcallFrame, r8),
            frame_r9 = const offset_of!(UpcallFrame, r9),
            frame_r10 = const offset_of!(UpcallFrame, r10),
            frame_r11 = const offset_of!(UpcallFrame, r11),
            number_count = const NUMBER_COUNT,
            user_stack = const USER_STACK_SELECTOR,
            user_code = const USER_CODE_SELECTOR,
            unanswered = const entry::UNANSWERED,
            fast_path_end = sym entry::fast_path_end,
            rewritten = sym entry::rewritten,
            rewritten_shown = sym entry::rewritten_shown,
            fast_end = sym entry::fast_end,
            table = sym TABLE,
            $($light = sym light::$light,)*
            $($choice = sym light::$choice,)*
            $($name = $operand $value,)*
        );
    };
}

short_ways! {
    LIGHT read write pread64 pwrite64 mprotect rt_sigaction epoll_wait epoll_pwait open close stat fstat lstat futex;
    CHOICE openat newfstatat fcntl getdents64;
    LEAF clock_gettime = sym entry::clock_gettime;
    WHOLE tkill = sym entry::thread_kill;
    WHOLE tgkill = sym entry::thread_kill;
    WHOLE rt_sigreturn = sym entry::rt_sigreturn;
    FACT getpid = const offset_of!(Facts, pid);
    FACT getppid = const offset_of!(Facts, parent);
    FACT getuid = const offset_of!(Facts, uid);
    FACT geteuid = const offset_of!(Facts, effective_uid);
    FACT getgid = const offset_of!(Facts, gid);
    FACT getegid = const offset_of!(Facts, effective_gid);
}
