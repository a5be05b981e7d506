# From the monitor's 32-bit entry, and from a processor's 16-bit start, to Rust in the higher half.
#
# Boot tables: one level-4 table whose slots 0, 384 and 511 share one level-3 table, whose slots 0 and 510 share one
# page directory that maps the first GiB by 2 MiB pages. So the same bytes are seen at the physical address, in the
# direct map and at the image's address. They are dropped by the boot processor as soon as the final tables stand;
# starting processors pass through them the same way.

.macro CLAC
771:    clac
        .pushsection .smap_sites, "a", @progbits
        .quad 771b
        .popsection
.endm

# The PVH note: QEMU reads the entry address as 8 bytes from a 64-bit image.
        .section .note.pvh, "a", @note
        .balign 4
        .long 4, 8, 18
        .asciz "Xen"
        .quad pvh_entry

        .section .bss.boot_tables, "aw", @nobits
        .balign 4096
        .global boot_tables
boot_tables:
        .skip 4 * 4096                  # level 4, level 3, directory, and a stack for the 32-bit code

        .section .boot, "awx", @progbits
        .balign 16
boot_gdt:
        .quad 0
        .quad 0x00af9b000000ffff        # 0x08: 64-bit code
        .quad 0x00cf9b000000ffff        # 0x10: 32-bit code
        .quad 0x00cf93000000ffff        # 0x18: data
boot_gdt_pointer:
        .word 31
        .quad boot_gdt

        .balign 16
        .global pvh_entry
        .code32
pvh_entry:
        cli
        cld
        rdtsc
        mov esi, eax
        mov ebp, edx
        mov esp, offset boot_stack_physical
        mov edi, offset boot_tables_physical
        lea eax, [edi + 0x1003]
        mov [edi], eax
        mov [edi + 384 * 8], eax
        mov [edi + 511 * 8], eax
        lea eax, [edi + 0x2003]
        mov [edi + 0x1000], eax
        mov [edi + 0x1000 + 510 * 8], eax
        mov eax, 0x83
        xor ecx, ecx
2:      mov [edi + 0x2000 + ecx * 8], eax
        add eax, 0x200000
        inc ecx
        cmp ecx, 512
        jne 2b
        mov eax, cr4
        or eax, 0x20                    # PAE
        mov cr4, eax
        mov cr3, edi
        mov ecx, 0xc0000080             # EFER
        rdmsr
        or eax, 0x900                   # LME, NXE
        wrmsr
        mov eax, cr0
        or eax, 0x80010001              # PG, WP, PE
        mov cr0, eax
        lgdt [boot_gdt_pointer]
        push 8
        lea eax, [pvh_entry_64]
        push eax
        retf

        .code64
pvh_entry_64:
        xor eax, eax
        mov ds, eax
        mov es, eax
        mov ss, eax
        mov fs, eax
        mov gs, eax
        movabs rsp, offset {stacks} + {kernel_stack_end}
        mov edi, ebx                    # the start structure
        shl rbp, 32
        mov esi, esi
        or rsi, rbp                     # the time-stamp counter at entry
        xor ebp, ebp
        movabs rax, offset {start}
        call rax
        ud2

# Copied to processor_start_page (below 1 MiB) and run there in real mode; only position-independent or absolute
# references. All processors may be in here at once, so it has no stack and writes no memory until each has its
# number: two that shared one once met as one pushed a word where the other's far return looked for its selector.
        .section .rodata.processor_start, "a", @progbits
        .global processor_start_begin
        .global processor_start_end
        .set START, {start_page}
        .balign 16
        .code16
processor_start_begin:
        cli
        cld
        xor ax, ax
        mov ds, ax
        mov ss, ax
        lgdt [START_GDT]
        mov eax, cr0
        or al, 1
        mov cr0, eax
        .byte 0xea                      # jmp 0x10:start_32
        .word START + start_32 - processor_start_begin, 0x10
        .code32
start_32:
        mov ax, 0x18
        mov ds, ax
        mov ss, ax
        mov eax, cr4
        or eax, 0x20
        mov cr4, eax
        mov eax, offset boot_tables_physical
        mov cr3, eax
        mov ecx, 0xc0000080
        rdmsr
        or eax, 0x900
        wrmsr
        mov eax, cr0
        or eax, 0x80010001
        mov cr0, eax
        .byte 0xea                      # jmp 0x08:start_64
        .long START + start_64 - processor_start_begin
        .word 0x08
        .code64
start_64:
        xor eax, eax
        mov ds, eax
        mov es, eax
        mov ss, eax
        mov fs, eax
        mov gs, eax
        mov edi, 1
        movabs rax, offset {started_count}
        lock xadd [rax], edi            # this processor's index; the boot processor is 0
        cmp edi, {processor_count_max}
        jae 3f
        mov eax, edi
        imul rax, rax, {stacks_bytes}
        movabs rsp, offset {stacks} + {kernel_stack_end}
        add rsp, rax
        xor ebp, ebp
        movabs rax, offset {start_processor}
        call rax
3:      cli
        hlt
        jmp 3b
        .balign 16
start_gdt:
        .quad 0
        .quad 0x00af9b000000ffff
        .quad 0x00cf9b000000ffff
        .quad 0x00cf93000000ffff
start_gdt_pointer:
        .word 31
        .long START + start_gdt - processor_start_begin
processor_start_end:
        .set START_GDT, START + (start_gdt_pointer - processor_start_begin)
        .code64
