# Every way into the kernel and every way out of it.
#
# In: `syscall` (fast upcall, or kernel call), 256 interrupt vectors. All but the two fast upcalls build a TrapFrame on
# the processor's kernel stack (NMI, double fault and machine check on their own) and call Rust. Out: `trap_exit`
# resumes whatever context the frame on the stack then describes; it trusts no field of it.
#
# GS: in ring 3 it is the user's, in ring 0 the processor's. The stacks of NMI, double fault and machine check hold a
# pointer to the processor's state in their last word, so that those entries need not know which of the two is loaded.

        .section .text.traps, "ax", @progbits

.macro PUSH_REGISTERS
        .irp register, rax, rcx, rdx, rbx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15
        push \register
        .endr
.endm

.macro POP_REGISTERS
        .irp register, r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax
        pop \register
        .endr
.endm

# The end of a frame, of a `syscall` instruction.
.macro PUSH_CALL vector
        push {user_data}
        push qword ptr gs:[{user_rsp}]
        push r11
        push {user_code}
        push rcx
        push 0
        push 0
        push \vector
.endm

# The rest of it, and the handler for it.
.macro HANDLE handler
        push 0
        PUSH_REGISTERS
        mov rdi, rsp
        xor ebp, ebp
        mov rcx, [rip + {handlers}]
        call [rcx + \handler]
.endm

# Fields that the entry pushes in the wrong place: the stub's vector and the processor's error code each move one word
# down.
.macro SORT_FRAME
        mov rax, [rsp + {frame_error_code}]
        mov rcx, [rsp + {frame_fault_address}]
        mov [rsp + {frame_vector}], rax
        mov [rsp + {frame_error_code}], rcx
        mov qword ptr [rsp + {frame_fault_address}], 0
.endm

        .balign 64
        .global syscall_entry
syscall_entry:
        swapgs
        mov gs:[{user_rsp}], rsp
        test rcx, rcx
        js 2f
# The fast upcall: a program's system call, told to its library OS by changing RIP. No lock, no stack, no other
# register.
        mov rsp, gs:[{control}]
        mov [rsp + {syscall_rip}], rcx
        mov [rsp + {syscall_rflags}], r11
        mov r11, gs:[{user_rsp}]
        mov [rsp + {syscall_rsp}], r11
        mov dword ptr [rsp + {masked}], 1
        inc dword ptr gs:[{syscall_upcall_count}]
        mov rcx, [rsp + {syscall_entry_point}]
        mov r11, rcx
        sar r11, 47
        inc r11                         # zero: canonical and in the upper half
        jnz 3f
        mov rsp, gs:[{user_rsp}]
        mov r11d, 0x202
        swapgs
        sysretq
# Call 0 does nothing: status 0, value 0. It came from an instruction in the upper half, so RCX is canonical.
5:      inc dword ptr gs:[{short_call_count}]
        xor edx, edx
        swapgs
        sysretq
# Entering another space, which nearly always is all that happens: what Rust code does not preserve is kept, and no
# more. If it is not so, it is a call like any other.
9:      .irp register, rcx, r11, rdi, rsi, r8, r9, r10, rbp
        push \register
        .endr
        xor ebp, ebp
        mov rcx, [rip + {handlers}]
        call [rcx + {handlers_space_enter}]
        .irp register, rbp, r10, r9, r8, rsi, rdi, r11, rcx
        pop \register
        .endr
        test eax, eax                   # its number still: nothing has been done
        jnz 8f
        mov rsp, gs:[{user_rsp}]
        jmp 5b
# No entry point: undo (the two words come from user memory, and like every user register they are believed about
# nothing).
3:      mov rcx, [rsp + {syscall_rip}]
        mov r11, [rsp + {syscall_rflags}]
        dec dword ptr gs:[{syscall_upcall_count}]
        mov rsp, gs:[{kernel_stack_top}]
        PUSH_CALL {vector_program_syscall}
        jmp 4f
2:      test rax, rax
        jz 5b
        movabs rsp, {special}           # a bit for each number; what has only its last bits goes on from there
        bt rsp, rax
        mov rsp, gs:[{kernel_stack_top}]
        jc 7f
8:      PUSH_CALL {vector_kernel_call}
4:      HANDLE {handlers_syscall}
        jmp trap_exit
7:      cmp rax, {space_enter}
        je 9b
        PUSH_CALL {vector_kernel_call}
        HANDLE {handlers_transfer}

# Resumes the context in the frame at RSP.
        .global trap_exit
trap_exit:
        test byte ptr [rsp + {frame_cs}], 3
        jz 5f
        mov rcx, [rsp + {frame_rip}]
        mov rax, rcx
        shl rax, 16
        sar rax, 16
        cmp rax, rcx
        jne 6f                          # not canonical: the jump there faults, in the context, as it would have
        mov r11, [rsp + {frame_rflags}]
        and r11d, {user_flags}
        or r11d, 0x202
        cmp qword ptr [rsp + {frame_vector}], {vector_kernel_call}
        jne 1f
        .set place, {frame_r15}
        .irp register, r15, r14, r13, r12, none, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, none, rax
        .ifnc \register, none
        mov \register, [rsp + place]
        .endif
        .set place, place + 8
        .endr
        mov rsp, [rsp + {frame_rsp}]
        swapgs
        sysretq
1:      mov [rsp + {frame_rflags}], r11
        mov qword ptr [rsp + {frame_cs}], {user_code}
        mov qword ptr [rsp + {frame_ss}], {user_data}
        POP_REGISTERS
        add rsp, 32
        swapgs
        iretq
# Any frame of ring 0 means: nothing to run. Each interrupt starts over at the top of the stack.
5:      mov rsp, gs:[{kernel_stack_top}]
        xor ebp, ebp
7:      sti
        hlt
        jmp 7b
6:      mov qword ptr [rsp + {frame_vector}], 13
        mov qword ptr [rsp + {frame_error_code}], 0
        mov rdi, rsp
        xor ebp, ebp
        call {dispatch_noncanonical}
        jmp trap_exit

# Resumes the frame at RSI after moving it to the top of the kernel stack (the first entry of a processor). The frame
# may lie just below that place, so it is moved from its end on.
        .global enter_context
enter_context:
        mov rdi, gs:[{kernel_stack_top}]
        lea rsp, [rdi - {frame_bytes}]
        sub rdi, 8
        add rsi, {frame_bytes} - 8
        mov ecx, {frame_bytes} / 8
        std
        rep movsq
        cld
        jmp trap_exit

        .balign 16
# An exception of user mode, told to the library OS: its frame is written straight to the save area, whose frames stay
# pinned and lie side by side, so no lock is needed and nothing here can fault. Registers that are not written on the
# way out are those of the code that was interrupted. `Pages::push` of the core is the same with all its outcomes;
# what this refuses goes there, as does one whose stack is the save area itself.
trap_exception:
        test byte ptr [rsp + 24], 3     # the stack: vector, error code, RIP, CS, RFLAGS, RSP, SS
        jz trap_common
        swapgs
        CLAC
        push rax
        push rcx
        push rdx
        mov rdx, gs:[{control}]
        mov rcx, [rdx + {exception_entry_point}]
        mov rax, rcx
        shr rax, {libos_shift}
        cmp eax, {libos_number}
        jne 8f                          # not in the window
        mov rax, [rsp + 64]
        sub rax, gs:[{save_area}]       # from a page below it
        cmp rax, gs:[{save_area} + 8]
        jbe 8f                          # an upcall that did not get far: the core's business
        mov rax, gs:[{save_area} + 16]
        .set place, {frame_r15}
        .irp register, r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx
        mov [rax + place], \register
        .set place, place + 8
        .endr
        .rept 3                         # RDX, RCX, RAX
        pop qword ptr [rax + place]
        .set place, place + 8
        .endr
        mov esi, [rdx + {masked}]
        mov dword ptr [rdx + {masked}], 1
        mov dword ptr [rax + {frame_kind}], {kind_exception}
        mov [rax + {frame_kind} + 4], esi
        xor edx, edx
        cmp dword ptr [rsp], {vector_page_fault}
        jne 2f
        mov rdx, cr2
2:      mov [rax + {frame_fault_address}], rdx
        .irp place, {frame_vector}, {frame_error_code}, {frame_rip}, {frame_cs}, {frame_rflags}, {frame_rsp}, {frame_ss}
        pop qword ptr [rax + \place]
        .endr
        inc dword ptr gs:[{exception_upcall_count}]
        mov rdi, rax
        sub rdi, gs:[{save_area} + 24]
        xor eax, eax
        xor edx, edx
        mov rsp, rdi
        mov r11d, 0x202
        swapgs
        sysretq
8:      pop rdx
        pop rcx
        pop rax
        swapgs

trap_common:
        sub rsp, 16
        PUSH_REGISTERS
        cld
        CLAC
        SORT_FRAME
        mov rdi, rsp
        test byte ptr [rsp + {frame_cs}], 3
        jz 1f
        swapgs
        xor ebp, ebp
1:      call {dispatch_trap}
        jmp trap_exit

        .balign 16
trap_own_stack:
        sub rsp, 16
        PUSH_REGISTERS
        cld
        CLAC
        SORT_FRAME
        mov ecx, 0xc0000101             # the current GS base, whosever it is
        rdmsr
        mov r12d, eax
        mov r13d, edx
        mov rax, rsp
        or rax, {interrupt_stack_bytes} - 1
        mov rax, [rax - 7]
        mov rdx, rax
        shr rdx, 32
        wrmsr
        mov rdi, rsp
        call {dispatch_own_stack}
        mov ecx, 0xc0000101
        mov eax, r12d
        mov edx, r13d
        wrmsr
        POP_REGISTERS
        add rsp, 32
        iretq

# One stub of 16 bytes per vector. Vectors 8, 10-14, 17, 21, 29 and 30 push an error code themselves.
        .balign 16
        .global trap_stubs
trap_stubs:
        .set vector, 0
        .rept 256
        .balign 16
        .set has_code, (vector == 8) || (vector >= 10 && vector <= 14) || (vector == 17)
        .if (has_code || (vector == 21) || (vector == 29) || (vector == 30)) == 0
        push 0
        .endif
        .byte 0x68                      # push imm32 (a symbol would be read as a memory operand)
        .long vector
        .if (vector == 2) || (vector == 8) || (vector == 18)
        jmp trap_own_stack
        .elseif vector < {vector_interrupt_first}
        jmp trap_exception
        .else
        jmp trap_common
        .endif
        .set vector, vector + 1
        .endr
# A page fault, for Rust in any case: see `hear_page_faults`.
        .balign 16
        .byte 0x68
        .long {vector_page_fault}
        jmp trap_common
