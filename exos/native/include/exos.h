/*
 * The native interface of exos: what a Linux program on Aegis may decide about its own memory and its
 * own part of the processor.
 *
 * Include it in one program for Linux on x86-64 (GCC 8 or Clang); there is nothing to link. Where exos is not there, as
 * on Linux, exos_version() answers -ENOSYS. Functions answer 0 or a count, or a negative error number, as the kernel
 * does. The Rust crate beside this file (exos/native) is the same interface and says more about it.
 */
#ifndef EXOS_H
#define EXOS_H

#include <stddef.h>
#include <stdint.h>

#define EXOS_VERSION 4

#define EXOS_CALL_VERSION 0x45580000
#define EXOS_CALL_HANDLE_FAULTS 0x45580001
#define EXOS_CALL_HANDLE_SHORTAGE 0x45580002
#define EXOS_CALL_APPLY 0x45580003
#define EXOS_CALL_PAGES 0x45580004
#define EXOS_CALL_TICKETS 0x45580005
#define EXOS_CALL_COMMAND 0x45580006
#define EXOS_CALL_WATCH 0x45580007

/* Most changes in one exos_apply(), most pages in one exos_pages(). */
#define EXOS_CHANGE_COUNT_MAX 512
#define EXOS_PAGE_COUNT_MAX 65536

/* Most tickets of a thread. */
#define EXOS_TICKETS_MAX 1048576

/*
 * Kinds of changes: fresh zeros in place of what is there; other rights; nothing there; contents given back. Since
 * version 3: the handler of the range is entered (EXOS_CAUSE_WATCHED) at the next store to each page, or at its next
 * access and the next store after a load, and the access goes through when it returns; no longer.
 */
#define EXOS_CHANGE_MAP 0
#define EXOS_CHANGE_PROTECT 1
#define EXOS_CHANGE_UNMAP 2
#define EXOS_CHANGE_DISCARD 3
#define EXOS_CHANGE_WATCH_STORES 4
#define EXOS_CHANGE_WATCH_ACCESSES 5
#define EXOS_CHANGE_UNWATCH 6

/*
 * Operations of exos_watch(), since version 4: touches of a watched range are answered in the kernel, if its extension
 * does that (-ENOSYS else); no longer; at most EXOS_CLOSE_PAGE_COUNT_MAX pages of it are closed to stores, or to loads
 * too.
 */
#define EXOS_WATCH_PLACE 0
#define EXOS_WATCH_FORGET 1
#define EXOS_WATCH_CLOSE_STORES 2
#define EXOS_WATCH_CLOSE_ACCESSES 3
#define EXOS_CLOSE_PAGE_COUNT_MAX 512

/*
 * Words of the page of notes: the thread pointer (FS base) whose touches are answered; touches that stand there;
 * shadows in use; the first touch: page of the range << 16 | shadow + 1, or 0, << 1 | store. What cannot be answered
 * so goes to the handler of the range.
 */
#define EXOS_NOTES_OWNER 0
#define EXOS_NOTES_TOUCH_COUNT 1
#define EXOS_NOTES_SHADOW_COUNT 2
#define EXOS_NOTES_TOUCH_FIRST 8
#define EXOS_NOTES_TOUCH_COUNT_MAX 504

/* What exos_pages() says of a page. */
#define EXOS_PAGE_PRESENT 1
#define EXOS_PAGE_WRITABLE 2
#define EXOS_PAGE_ACCESSED 4
#define EXOS_PAGE_DIRTY 8

/* Flag of exos_pages(): clear the accessed and dirty bits after reading them. */
#define EXOS_PAGES_CLEAR 1

/* What happened: an access (none of the two: a load), and why it cannot go on. */
#define EXOS_CAUSE_STORE 1
#define EXOS_CAUSE_FETCH 2
#define EXOS_CAUSE_NOT_MAPPED 0x100
#define EXOS_CAUSE_NOT_ALLOWED 0x200
#define EXOS_CAUSE_BEYOND_FILE 0x300
#define EXOS_CAUSE_SHORTAGE 0x400
#define EXOS_CAUSE_WATCHED 0x500

/* What a handler is told; the interrupted code goes on at rip, which the handler may change. */
struct exos_fault {
    uint64_t function;
    uint64_t argument;
    uint64_t address;
    uint64_t cause;
    uint64_t rflags;
    uint64_t rip;
};

struct exos_change {
    void *address;
    size_t length;
    uint32_t kind;
    uint32_t protection; /* PROT_READ, PROT_WRITE, PROT_EXEC */
};

/*
 * Like a signal handler that is never blocked, on the stack of the thread that faulted. It must not wait for what the
 * interrupted code holds.
 */
typedef void exos_handler(struct exos_fault *fault);

static inline long exos_call(long number, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e) {
    register uintptr_t r10 __asm__("r10") = d;
    register uintptr_t r8 __asm__("r8") = e;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}

#define EXOS_SAVE \
    "push %rax\n push %rcx\n push %rdx\n push %rsi\n push %rdi\n push %r8\n push %r9\n push %r10\n push %r11\n" \
    "push %rbx\n mov %rsp, %rbx\n cld\n"
#define EXOS_RETURN \
    "mov %rbx, %rsp\n pop %rbx\n pop %r11\n pop %r10\n pop %r9\n pop %r8\n pop %rdi\n pop %rsi\n pop %rdx\n" \
    "pop %rcx\n pop %rax\n lea 32(%rsp), %rsp\n popfq\n ret $128\n"

/* How exos enters a handler that uses no vector or floating-point registers. */
__attribute__((naked, noinline, unused)) static void exos_entry_integer(void) {
    __asm__(EXOS_SAVE "lea 80(%rsp), %rdi\n and $-16, %rsp\n call *(%rdi)\n" EXOS_RETURN);
}

/* How exos enters any other handler: x87, SSE, AVX and AVX-512 state is saved for it. */
__attribute__((naked, noinline, unused)) static void exos_entry_all(void) {
    __asm__(EXOS_SAVE "and $-64, %rsp\n sub $2688, %rsp\n xor %eax, %eax\n mov $8, %ecx\n lea 512(%rsp), %rdi\n"
                      "rep stosq\n mov $0xe7, %eax\n xor %edx, %edx\n xsave64 (%rsp)\n lea 80(%rbx), %rdi\n"
                      "call *(%rdi)\n mov $0xe7, %eax\n xor %edx, %edx\n xrstor64 (%rsp)\n" EXOS_RETURN);
}

/* The version of the interface. */
static inline long exos_version(void) {
    return exos_call(EXOS_CALL_VERSION, 0, 0, 0, 0, 0);
}

/*
 * Has a handler asked about faults in a range of whole pages that would be SIGSEGV or SIGBUS; NULL is nobody. A later
 * call counts for the pages that it names. -EINVAL, -ENOSPC (too many ranges).
 */
static inline long exos_handle_faults(void *start, size_t length, exos_handler *handler, void *argument) {
    return exos_call(EXOS_CALL_HANDLE_FAULTS, (uintptr_t)start, length, handler ? (uintptr_t)exos_entry_all : 0,
                     (uintptr_t)handler, (uintptr_t)argument);
}

/* The same for a handler that is compiled with -mgeneral-regs-only, and so is all that it calls. */
static inline long exos_handle_faults_integer(void *start, size_t length, exos_handler *handler, void *argument) {
    return exos_call(EXOS_CALL_HANDLE_FAULTS, (uintptr_t)start, length, handler ? (uintptr_t)exos_entry_integer : 0,
                     (uintptr_t)handler, (uintptr_t)argument);
}

/*
 * Has a handler asked to give memory back, when there is none left for a page that a thread touches; NULL is nobody.
 * If it gives nothing back, the process ends as without it. What it works on has to be in memory before.
 */
static inline long exos_handle_shortage(exos_handler *handler, void *argument) {
    return exos_call(EXOS_CALL_HANDLE_SHORTAGE, handler ? (uintptr_t)exos_entry_all : 0, (uintptr_t)handler,
                     (uintptr_t)argument, 0, 0);
}

/* Makes changes in their order, with one change of page tables; how many were made, or the first one's error. */
static inline long exos_apply(const struct exos_change *changes, size_t count) {
    return exos_call(EXOS_CALL_APPLY, (uintptr_t)changes, count, 0, 0, 0);
}

/* Writes EXOS_PAGE_* bits for each page of a range. -EINVAL. */
static inline long exos_pages(void *start, size_t length, unsigned char *bits, unsigned flags) {
    return exos_call(EXOS_CALL_PAGES, (uintptr_t)start, length, (uintptr_t)bits, flags, 0);
}

/* Where the kernel writes what it has answered: memory of the program's that it has stored to before. */
struct exos_placement {
    void *notes;  /* one page of words, EXOS_NOTES_* */
    void *shadow; /* pages as they were before their first store */
    size_t shadow_count;
};

/* An EXOS_WATCH_* operation; placement is for EXOS_WATCH_PLACE alone. -ENOSYS, -EINVAL. */
static inline long exos_watch(unsigned operation, void *start, size_t length, const struct exos_placement *placement) {
    return exos_call(EXOS_CALL_WATCH, operation, (uintptr_t)start, length, (uintptr_t)placement, 0);
}

/*
 * Sets how many tickets the calling thread has against the others of its control group, until its nice value or policy
 * is set; how many it had. A thread with nice 0 has 1024. -EINVAL (none, too many), -EPERM (more than it has and than
 * RLIMIT_NICE allows, without CAP_SYS_NICE). Since version 2.
 */
static inline long exos_set_tickets(unsigned long amount) {
    return exos_call(EXOS_CALL_TICKETS, amount, 0, 0, 0, 0);
}

/*
 * A command of the lottery, as the programs mktkt, fundx and so on make it: its words, the first of which names it, and
 * a null pointer behind the last. Writes what the program prints to reply, at most so many bytes. The exit status in the
 * high half and the length of the text in the low one; what fundx starts does not come back. -EINVAL (no such command),
 * -EFAULT. Since version 2.
 */
static inline long exos_lottery(char *const words[], char *const environment[], char *reply, size_t bytes) {
    return exos_call(EXOS_CALL_COMMAND, (uintptr_t)words, (uintptr_t)environment, (uintptr_t)reply, bytes, 0);
}

#endif
