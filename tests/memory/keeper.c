// Takes all memory that there is, for a file, and then neither sees that it is asked for some nor ever gives any. It
// runs in a page of its own beside the library OS, holds all upcalls back, yields by itself when its slice is over, and
// touches no memory. When it is told to end it does what nobody handles: keeper END_MS.
#include "attack.h"
#include <errno.h>
#include <sys/mman.h>

extern const char turn_begin[], turn_end[];

// r12: the control page. Its `masked` is kept set; bit 3 of what is pending is the slice's end. r13: the time stamp at
// which it ends.
__asm__("turn_begin:\n"
        "1: movl $1, 24(%r12)\n"
        "mov $200, %ecx\n"
        "2: dec %ecx\n"
        "jnz 2b\n"
        "testl $8, 28(%r12)\n"
        "jz 1b\n"
        "rdtsc\n"
        "shl $32, %rdx\n"
        "or %rdx, %rax\n"
        "cmp %r13, %rax\n"
        "ja 3f\n"
        "lock andl $~8, 28(%r12)\n"
        "xor %edi, %edi\n"
        "mov $21, %eax\n"
        "syscall\n"
        "jmp 1b\n"
        "3: ud2\n"
        "turn_end:\n");

static word time_stamp(void) {
    word low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return high << 32 | low;
}

int main(int argc, char **argv) {
    static char piece[1 << 16];
    int file = memfd_create("keeper", 0);
    begin();
    while (write(file, piece, sizeof piece) > 0) {
    }
    if (errno != ENOSPC)
        fail("file", errno);
    memcpy((void *)(OWN + 256), turn_begin, turn_end - turn_begin);
    printf("keeps\n");
    word before_ns = now_ns(), before = time_stamp();
    usleep(20000);
    word now = now_ns(), stamp = time_stamp(), end = end_ns(argc, argv);
    word last = stamp + (end > now ? end - now : 0) * (stamp - before) / (now - before_ns);
    // Its exceptions go nowhere: the kernel stops it at the first.
    CONTROL[4 + 1] = 0;
    CONTROL[4 + 3] = OWN + 256;
    __asm__ volatile("mov %0, %%r12\nmov %2, %%r13\njmp *%1"
                     : : "r"((word)CONTROL), "r"(OWN + 256), "r"(last) : "r12", "r13");
    __builtin_unreachable();
}
