//! Assembly for the upcall suite: code that raises exceptions, and code that shows what a resume gave back.

/// Declares assembly routines that raise one exception each.
macro_rules! exceptions {
    ($($name:ident $vector:literal $error:literal $kind:ident: $($text:literal),+;)*) => {
        unsafe extern "C" { $( pub(crate) fn $name(); )* }
        core::arch::global_asm!($( concat!(stringify!($name), ":"), $($text,)+ "ret", )*);
        /// Routine, vector, error code.
        pub(crate) const EXCEPTIONS: &[(unsafe extern "C" fn(), u64, u64)] = &[$( ($name, $vector, $error), )*];
    };
}

// The vectors and error codes are those of the Intel SDM, vol. 3, 6.15.
exceptions! {
    raise_divide 0 0 fault: "xor ecx, ecx", "xor edx, edx", "mov eax, 1", "div ecx";
    raise_overflowing_divide 0 0 fault: "mov eax, 0x80000000", "mov edx, -1", "mov ecx, -1", "idiv ecx";
    raise_single_step 1 0 trap: "pushfq", "or qword ptr [rsp], 0x100", "popfq", "nop";
    raise_breakpoint 3 0 trap: "int3";
    raise_invalid_opcode 6 0 fault: "ud2";
    raise_invalid_in_64_bit_mode 6 0 fault: ".byte 0x06";
    raise_stack_fault 12 0 fault:
        "mov rax, 0x5555000000000000", "push rbp", "mov rbp, rax", "mov rax, [rbp]", "pop rbp";
    raise_general_protection 13 0 fault: "hlt";
    raise_noncanonical 13 0 fault: "mov rax, 0x5555000000000000", "mov rax, [rax]";
    raise_null_selector 13 0 fault: "mov eax, 0x18", "mov ss, ax";
    raise_selector 13 0x1230 fault: "mov eax, 0x1233", "mov ds, ax";
    raise_interrupt_gate 13 0 fault: "int 0x20";
    raise_page_fault 14 4 fault: "mov rax, [0x10]";
    raise_x87 16 0 fault: "fninit", "push 0x360", "fldcw [rsp]", "pop rax", "fld1", "fldz", "fdivp", "fwait";
    raise_simd 19 0 fault:
        "push 0x1d80", "ldmxcsr [rsp]", "pop rax", "xorps xmm1, xmm1", "mov eax, 0x3f800000", "movd xmm0, eax",
        "divss xmm0, xmm1";
}

unsafe extern "C" {
    /// Sets the alignment-check flag and loads a misaligned word.
    pub(crate) fn misaligned_load();
    /// Loads registers from patterns, faults, stores what they are afterwards.
    pub(crate) fn registers_check(patterns: *const [u64; 15], found: *mut [u64; 15]);
    pub(crate) fn registers_check_fault();
    /// A breakpoint.
    pub(crate) fn breakpoint_once();
    /// A breakpoint; RAX is CS << 16 | SS after it.
    pub(crate) fn breakpoint_selectors();
    /// A breakpoint; RAX is the flags after it.
    pub(crate) fn resume_with_flags();
    /// An instruction that user mode may not use.
    pub(crate) fn cli_probe();
    /// A program that makes system calls.
    pub(crate) fn program_code();
    pub(crate) fn program_code_end();
    /// Calls a function on another stack.
    pub(crate) fn other_stack_call(stack: u64, function: u64, argument: u64) -> u64;
}

core::arch::global_asm!(
    // Sets the alignment-check flag and loads a misaligned word. RAX: the word.
    "misaligned_load:",
    "pushfq",
    "or qword ptr [rsp], 0x40000",
    "popfq",
    "lea rcx, [rip + misaligned_load + 1]",
    "mov rax, [rcx]",
    "pushfq",
    "and qword ptr [rsp], ~0x40000",
    "popfq",
    "ret",
    // registers_check(patterns, found): loads 15 registers (in the order of UpcallFrame), faults, stores what they
    // are afterwards.
    "registers_check:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "push rsi",
    "mov rax, rdi",
    "mov r15, [rax]",
    "mov r14, [rax + 8]",
    "mov r13, [rax + 16]",
    "mov r12, [rax + 24]",
    "mov r11, [rax + 32]",
    "mov r10, [rax + 40]",
    "mov r9, [rax + 48]",
    "mov r8, [rax + 56]",
    "mov rdi, [rax + 64]",
    "mov rsi, [rax + 72]",
    "mov rbp, [rax + 80]",
    "mov rbx, [rax + 88]",
    "mov rdx, [rax + 96]",
    "mov rcx, [rax + 104]",
    "mov rax, [rax + 112]",
    "stc",
    "std",
    "registers_check_fault:",
    "ud2",
    "cld",
    "push rax",
    "mov rax, [rsp + 8]",
    "mov [rax], r15",
    "mov [rax + 8], r14",
    "mov [rax + 16], r13",
    "mov [rax + 24], r12",
    "mov [rax + 32], r11",
    "mov [rax + 40], r10",
    "mov [rax + 48], r9",
    "mov [rax + 56], r8",
    "mov [rax + 64], rdi",
    "mov [rax + 72], rsi",
    "mov [rax + 80], rbp",
    "mov [rax + 88], rbx",
    "mov [rax + 96], rdx",
    "mov [rax + 104], rcx",
    "pop rcx",
    "mov [rax + 112], rcx",
    "pop rsi",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    "breakpoint_once:",
    "int3",
    "ret",
    // RAX: the selectors after the breakpoint.
    "breakpoint_selectors:",
    "int3",
    "mov eax, cs",
    "shl eax, 16",
    "mov ecx, ss",
    "or eax, ecx",
    "cld",
    "ret",
    // What the handler resumes with other flags: RAX is the flags then.
    "resume_with_flags:",
    "int3",
    "pushfq",
    "pop rax",
    "ret",
    "cli_probe:",
    "cli",
    "ret",
    // A program: RDI system calls with a pattern in the registers; RAX: how many came back with what the handler
    // promises.
    ".balign 16",
    "program_code:",
    "push rbx",
    "push r12",
    "push r13",
    "xor r12, r12",
    "mov r13, rdi",
    "2:",
    "mov eax, 39",
    "mov edi, 1",
    "mov esi, 2",
    "mov edx, 3",
    "mov r10d, 4",
    "mov r8d, 5",
    "mov r9d, 6",
    "mov ebx, 7",
    "stc",
    "syscall",
    "jnc 3f",
    "cmp rax, 1039",
    "jne 3f",
    "add rdi, rsi",
    "add rdi, rdx",
    "add rdi, r10",
    "add rdi, r8",
    "add rdi, r9",
    "add rdi, rbx",
    "cmp rdi, 28",
    "jne 3f",
    "inc r12",
    "3:",
    "dec r13",
    "jnz 2b",
    "mov rax, r12",
    "pop r13",
    "pop r12",
    "pop rbx",
    "ret",
    "program_code_end:",
    // other_stack_call(stack, function, argument)
    "other_stack_call:",
    "push rbp",
    "mov rbp, rsp",
    "mov rsp, rdi",
    "mov rdi, rdx",
    "call rsi",
    "mov rsp, rbp",
    "pop rbp",
    "ret",
);
