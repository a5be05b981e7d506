// Memory: what maps, moves and changes, and every refusal on the way.
#include "answers.h"
#include <sys/uio.h>
#include <linux/membarrier.h>

static long map(void *at, size_t length, int protection, int flags, int fd, long offset) { return (long)mmap(at, length, protection, flags, fd, offset); }
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define BOTH (PROT_READ | PROT_WRITE)
static char *pages(int count) { return mmap(NULL, count * 4096, BOTH, PRIVATE, -1, 0); }
static int file_of(const char *name, int length) {
    int fd = open(name, O_CREAT | O_RDWR, 0600);
    ftruncate(fd, length);
    return fd;
}

PROGRAM(map_refusals) {
    int fd = file_of("plain", 8192), line[2];
    pipe(line);
    T(map(NULL, 0, BOTH, PRIVATE, -1, 0)), T(map(NULL, 4096, BOTH, MAP_ANONYMOUS, -1, 0)), T(map(NULL, 4096, BOTH, MAP_PRIVATE | MAP_SHARED | MAP_ANONYMOUS | 0x8, -1, 0)), T(map(NULL, 4096, BOTH, MAP_PRIVATE, 99, 0)), T(map(NULL, 4096, BOTH, MAP_PRIVATE, -1, 0)), T(map(NULL, 4096, BOTH, MAP_PRIVATE, fd, 1)), T(map(NULL, 4096, BOTH, MAP_PRIVATE, fd, -4096)), T(map(NULL, -1, BOTH, PRIVATE, -1, 0)), T(map(NULL, 1ul << 48, BOTH, PRIVATE, -1, 0)), T(map(NULL, 4096, BOTH, MAP_SHARED, line[0], 0)), T(map(NULL, 4096, BOTH, MAP_PRIVATE, line[0], 0));
    T(map(NULL, 4096, PROT_READ, MAP_SHARED, open("/", O_RDONLY), 0)), T(map(NULL, 4096, BOTH, MAP_SHARED, open("plain", O_RDONLY), 0)), T(map(NULL, 4096, PROT_READ, MAP_SHARED, open("plain", O_WRONLY), 0)), T(map(NULL, 4096, PROT_READ, MAP_PRIVATE, open("plain", O_WRONLY), 0)), W(map(NULL, 4096, BOTH, MAP_PRIVATE, open("plain", O_RDONLY), 0)), T(map(NULL, 4096, PROT_READ, MAP_PRIVATE, open("plain", O_PATH), 0)), W(map(NULL, 1 << 20, BOTH, MAP_SHARED, fd, 0)), W(map(NULL, 4096, BOTH, MAP_SHARED, fd, 1l << 40)), T(map(NULL, 8192, BOTH, MAP_SHARED, fd, 0x7ffffffffffff000));
    T(map((void *)1, 4096, BOTH, PRIVATE | MAP_FIXED, -1, 0)), T(map((void *)0x7ffffffff000, 8192, BOTH, PRIVATE | MAP_FIXED, -1, 0)), T(map((void *)(1ul << 47), 4096, BOTH, PRIVATE | MAP_FIXED, -1, 0)), T(map((void *)-4096, 4096, BOTH, PRIVATE | MAP_FIXED, -1, 0)), W(map((void *)-4096, 4096, BOTH, PRIVATE, -1, 0)), W(map((void *)123, 4096, BOTH, PRIVATE, -1, 0));
    T(map(NULL, 4096, BOTH, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1, 0)), W(map(NULL, 4096, BOTH, MAP_SHARED | 0x4000000, fd, 0)), T(map(NULL, 4096, BOTH, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0)), W(map(NULL, 4096, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, 99, 0)), T(map(NULL, 4096, BOTH, MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0)), T(map(NULL, 4096, BOTH, MAP_PRIVATE | MAP_GROWSDOWN, fd, 0)), W(map(NULL, 4096, 0x100 | PROT_READ, PRIVATE, -1, 0));
}

PROGRAM(map_places) {
    char *at = pages(4);
    T(map(at, 4096, BOTH, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0)), munmap(at + 4096, 4096), IS(map(at + 4096, 4096, BOTH, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0) == (long)at + 4096), T(map(at + 4096, 8192, BOTH, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0)), T(map(at + 1, 4096, BOTH, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0)), munmap(at + 4096, 4096), IS(map(at + 4096, 4096, BOTH, PRIVATE, -1, 0) == (long)at + 4096), IS(map(at + 4097, 4096, BOTH, PRIVATE, -1, 0) != (long)at + 4096), at[0] = 7, IS(map(at, 4096, BOTH, PRIVATE | MAP_FIXED, -1, 0) == (long)at), T(at[0]);
    long low = map(NULL, 4096, BOTH, PRIVATE | MAP_32BIT, -1, 0);
    IS(low > 0 && low < 1l << 31), IS(map(NULL, 4096, BOTH, PRIVATE | MAP_NORESERVE | MAP_POPULATE | MAP_STACK | MAP_LOCKED, -1, 0) > 0);
}

PROGRAM(unmap_refusals) {
    char *at = pages(8);
    T(munmap(at, 0)), T(munmap(at + 1, 4096)), T(munmap(at, -1)), T(munmap((void *)(1ul << 47), 4096)), T(munmap((void *)0x7ffffffff000, 8192)), T(munmap(at + 4096, 100)), T(munmap(at + 4096, 4096)), T(munmap(at, 8 * 4096)), T(munmap(at, 8 * 4096)), T(munmap((void *)4096, 4096));
}

PROGRAM(protect_refusals) {
    char *at = pages(4);
    int fd = file_of("plain", 8192), reader = open("plain", O_RDONLY);
    char *shared = mmap(NULL, 8192, PROT_READ, MAP_SHARED, reader, 0), *copied = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, reader, 0);
    T(mprotect(at, 0, PROT_READ)), T(mprotect(at + 1, 4096, PROT_READ)), T(mprotect(at, 4097, PROT_READ)), T(mprotect(at, -1, PROT_READ)), T(mprotect(at, 4096, 0x100)), T(mprotect(at, 4096, PROT_GROWSDOWN)), T(mprotect(at, 4096, PROT_GROWSDOWN | PROT_GROWSUP | PROT_READ)), T(mprotect(at, 4096, PROT_GROWSUP | PROT_READ)), T(mprotect(at, 4096, 8 | PROT_READ)), T(mprotect(shared, 4096, BOTH)), T(mprotect(copied, 4096, BOTH)), munmap(at + 4096, 4096), T(mprotect(at, 4 * 4096, PROT_NONE)), T(mprotect((void *)4096, 4096, PROT_READ)), T(mprotect((void *)-4096, 4096, PROT_READ)), T(mprotect((void *)(1ul << 47), 4096, PROT_READ));
    CHILD("what came before the hole was changed", at[0] = 1);
    CHILD("and what came after was not", at[8192] = 1);
    CHILD("execution only", (mprotect(at + 8192, 4096, PROT_EXEC), mprotect(at + 8192, 4096, PROT_WRITE), at[8192] = 3, T(at[8192])));
}

PROGRAM(move_refusals) {
    char *at = pages(8), *other = pages(8);
    int fd = file_of("plain", 8192);
    T((long)mremap(at, 4096, 0, 0)), T((long)mremap(at + 1, 4096, 8192, 0)), T((long)mremap(at, 4096, 8192, 8)), T((long)mremap(at, 4096, 8192, MREMAP_FIXED, other)), T((long)mremap(at, 4096, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, other + 1)), T((long)mremap(at, 4096, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, at)), T((long)mremap(at, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, at + 4096)), T((long)mremap((void *)4096, 4096, 8192, MREMAP_MAYMOVE)), T((long)mremap(at, 9 * 4096, 20 * 4096, MREMAP_MAYMOVE));
    T((long)mremap(at, 0, 4096, MREMAP_MAYMOVE));
    char *shared = mmap(NULL, 8192, BOTH, MAP_SHARED, fd, 0), *twin = mremap(shared, 0, 8192, MREMAP_MAYMOVE);
    shared[0] = 9, T(twin[0]), T((long)mremap(shared, 0, 8192, 0)), T((long)mremap(at, 4096, 4096, 4)), T((long)mremap(at, 4096, 8192, 4 | MREMAP_MAYMOVE)), at[0] = 5;
    char *kept = mremap(at, 4096, 4096, 4 | MREMAP_MAYMOVE);
    T(kept[0]), T(at[0]), T((long)mremap(shared, 8192, 8192, 4 | MREMAP_MAYMOVE) == -1);
    munmap(other + 4096, 4096), T((long)mremap(other, 3 * 4096, 5 * 4096, MREMAP_MAYMOVE)), T((long)mremap(other, 3 * 4096, 4096, 0) == (long)other);
}

PROGRAM(advice_refusals) {
    char *at = pages(4), *shared = mmap(NULL, 8192, BOTH, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int fd = file_of("plain", 8192);
    char *filed = mmap(NULL, 8192, BOTH, MAP_SHARED, fd, 0), *copied = mmap(NULL, 8192, BOTH, MAP_PRIVATE, fd, 0);
    T(madvise(at, 4096, 999)), T(madvise(at, 4096, -1)), T(madvise(at + 1, 4096, MADV_DONTNEED)), T(madvise(at, 0, MADV_DONTNEED)), T(madvise(at, 0, 999)), T(madvise(at, -1, MADV_DONTNEED)), T(madvise((void *)4096, 4096, MADV_DONTNEED)), T(madvise((void *)-4096, 8192, MADV_DONTNEED)), at[0] = 5, T(madvise(at, 1, MADV_DONTNEED)), T(at[0]), T(madvise(at, 4096, MADV_FREE)), T(madvise(filed, 4096, MADV_FREE)), T(madvise(copied, 4096, MADV_FREE)), T(madvise(shared, 4096, MADV_FREE));
    shared[0] = 6, T(madvise(shared, 4096, MADV_DONTNEED)), T(shared[0]), T(madvise(shared, 4096, MADV_REMOVE)), T(shared[0]), T(madvise(at, 4096, MADV_REMOVE)), T(madvise(copied, 4096, MADV_REMOVE)), filed[0] = 3, T(madvise(filed, 4096, MADV_REMOVE)), T(filed[0]), copied[0] = 8, T(madvise(copied, 4096, MADV_DONTNEED)), T(copied[0]);
    T(madvise(at, 4096, MADV_DONTFORK)), T(madvise(at, 4096, MADV_DOFORK)), T(madvise(at, 4096, MADV_WIPEONFORK)), T(madvise(shared, 4096, MADV_WIPEONFORK)), T(madvise(copied, 4096, MADV_WIPEONFORK)), T(madvise(at, 4096, MADV_KEEPONFORK)), T(madvise(at, 4096, MADV_DONTDUMP)), T(madvise(at, 4096, MADV_DODUMP)), T(madvise(at, 4096, MADV_NORMAL)), T(madvise(at, 4096, MADV_RANDOM)), T(madvise(at, 4096, MADV_SEQUENTIAL)), T(madvise(at, 4096, MADV_WILLNEED)), T(madvise(at, 4096, MADV_COLD)), T(madvise(at, 4096, MADV_PAGEOUT)), T(madvise(at, 4096, MADV_POPULATE_READ)), T(madvise(at, 4096, MADV_POPULATE_WRITE));
    T(mlock(at, 4096)), T(madvise(at, 4096, MADV_DONTNEED)), T(madvise(at, 4096, MADV_FREE)), T(madvise(at, 4096, MADV_COLD)), T(munlock(at, 4096)), mprotect(at, 4096, PROT_READ), T(madvise(at, 4096, MADV_POPULATE_WRITE)), mprotect(at, 4096, PROT_NONE), T(madvise(at, 4096, MADV_POPULATE_READ)), munmap(at + 4096, 4096), T(madvise(at, 3 * 4096, MADV_DONTNEED)), T(madvise(at, 3 * 4096, MADV_POPULATE_READ)), T(madvise(at, 3 * 4096, MADV_WILLNEED));
}

PROGRAM(forks_and_advice) {
    char *at = pages(3), *mine = at + 4096, *wiped = at + 8192;
    at[0] = mine[0] = wiped[0] = 7, madvise(mine, 4096, MADV_DONTFORK), madvise(wiped, 4096, MADV_WIPEONFORK);
    CHILD("copied", T(at[0]));
    CHILD("not copied", T(mine[0]));
    CHILD("wiped", T(wiped[0]));
    CHILD("wiped in a grandchild too", (wiped[0] = 3, fork() == 0 ? (T(wiped[0]), _exit(0)) : (void)wait(NULL)));
    madvise(mine, 4096, MADV_DOFORK), madvise(wiped, 4096, MADV_KEEPONFORK);
    CHILD("as before", (T(mine[0]), T(wiped[0])));
}

PROGRAM(pages_in_memory) {
    unsigned char there[16];
    char *at = pages(4), *hole = pages(3);
    at[0] = 1, T(mincore(at, 4 * 4096, there)), T(there[0] & 1), T(there[1] & 1), T(mincore(at + 1, 4096, there)), T(mincore(at, 0, there)), T(mincore(at, 4096, (void *)8)), T(mincore((void *)4096, 4096, there)), munmap(hole + 4096, 4096), T(mincore(hole, 3 * 4096, there)), T(mincore(at, -1, there)), T(mincore(at, 1, there)), T(mincore((void *)-4096, 4096, there)), T(mincore(at, 1ul << 50, there));
}

PROGRAM(locked_pages) {
    char *at = pages(4);
    T(mlock(at, 0)), T(mlock(at + 1, 1)), T(munlock(at + 5000, 0)), T(mlock(at, -1)), T(mlock((void *)4096, 4096)), T(munlock((void *)4096, 4096)), T(syscall(SYS_mlock2, at, 4096, 2)), T(syscall(SYS_mlock2, at, 4096, 1)), T(mlockall(0)), T(mlockall(8)), T(mlockall(MCL_ONFAULT)), T(mlockall(MCL_CURRENT | MCL_ONFAULT)), T(munlockall()), T(mlock(at, 4 * 4096)), munmap(at + 4096, 4096), T(munlock(at, 4 * 4096)), T(mlock(at, 4 * 4096)), mprotect(at, 4096, PROT_NONE), T(mlock(at, 4096)), T(mlock((void *)-4096, 4096)), T(munlockall());
}

PROGRAM(synced_pages) {
    char *at = pages(4);
    int fd = file_of("plain", 8192);
    char *filed = mmap(NULL, 8192, BOTH, MAP_SHARED, fd, 0);
    T(msync(at, 4096, MS_SYNC)), T(msync(at, 4096, MS_ASYNC | MS_SYNC)), T(msync(at, 4096, 8)), T(msync(at + 1, 4096, MS_SYNC)), T(msync(at, 0, MS_SYNC)), T(msync(at, 0, 77)), T(msync(at, 4096, 0)), T(msync(filed, 8192, MS_SYNC | MS_INVALIDATE)), T(msync((void *)4096, 4096, MS_SYNC)), munmap(at + 4096, 4096), T(msync(at, 3 * 4096, MS_SYNC)), T(msync(at, 3 * 4096, MS_ASYNC)), T(msync(at, -1, MS_SYNC)), mlock(filed, 4096), T(msync(filed, 4096, MS_INVALIDATE)), T(munlock(filed, 4096)), T(msync(filed, 4096, MS_INVALIDATE));
}

PROGRAM(the_break) {
    long now = syscall(SYS_brk, 0);
    IS(syscall(SYS_brk, 1) == now), IS(syscall(SYS_brk, now + 5000) == now + 5000), T(*(char *)(now + 4999)), IS(syscall(SYS_brk, 1ul << 47) == now + 5000), IS(syscall(SYS_brk, now) == now), IS(syscall(SYS_brk, now + 5000) == now + 5000);
    char *blocker = mmap((void *)((now + 0x20000) & -4096), 4096, PROT_READ, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0);
    IS(syscall(SYS_brk, now + 0x40000) == now + 5000), munmap((void *)((now + 4095) & -4096), 4096), IS(syscall(SYS_brk, now) == now), T(munmap(blocker, 4096));
}

PROGRAM(files_of_memory) {
    char long_name[300];
    memset(long_name, 'a', 299), long_name[299] = 0;
    T(memfd_create(long_name, 0)), long_name[249] = 0, W(memfd_create(long_name, 0)), T(memfd_create("x", 0x100)), T(memfd_create((void *)8, 0)), T(syscall(SYS_memfd_create, "", 0x18)), T(memfd_create("x", MFD_ALLOW_SEALING | MFD_HUGETLB | 0x20));
    int fd = memfd_create("x", MFD_ALLOW_SEALING), plain = memfd_create("x", 0);
    T(fcntl(fd, F_GET_SEALS)), T(fcntl(plain, F_GET_SEALS)), T(fcntl(plain, F_ADD_SEALS, F_SEAL_WRITE)), T(fcntl(0, F_GET_SEALS)), T(fcntl(fd, F_ADD_SEALS, 0x100)), ftruncate(fd, 8192);
    char *shared = mmap(NULL, 8192, BOTH, MAP_SHARED, fd, 0), byte[8];
    T(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)), T(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)), T(ftruncate(fd, 4096)), T(ftruncate(fd, 12288)), T(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW)), T(ftruncate(fd, 16384)), T(pwrite(fd, "x", 1, 12288)), T(pwrite(fd, "xyz", 3, 12286)), T(fallocate(fd, 0, 0, 20000)), T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096)), T(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE)), T(pwrite(fd, "x", 1, 0)), shared[0] = 4, T(pread(fd, byte, 1, 0)), T(byte[0]), T(map(NULL, 4096, BOTH, MAP_SHARED, fd, 0)), W(map(NULL, 4096, BOTH, MAP_PRIVATE, fd, 0));
    char *reader = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    T(mprotect(reader, 4096, BOTH)), T(munmap(shared, 8192)), T(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)), T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096)), T(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL)), T(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)), printf("%x\n", fcntl(fd, F_GET_SEALS)), T(fcntl(open("/proc/self/fd/0", O_RDONLY), F_ADD_SEALS, 1));
    char name[50];
    sprintf(name, "/proc/self/fd/%d", fd), T(fcntl(open(name, O_RDONLY), F_ADD_SEALS, F_SEAL_SHRINK));
}

PROGRAM(memory_of_others) {
    char here[64] = "here", there[64] = "there", *at = pages(2);
    struct iovec mine = {here, 64}, theirs = {there, 64}, wrong = {(void *)8, 64}, huge = {here, -1}, none = {here, 0}, edge = {at + 4090, 64}, many[1025];
    for (int i = 0; i < 1025; i++)
        many[i] = (struct iovec){here, 1};
    munmap(at + 4096, 4096);
#define READ(...) process_vm_readv(getpid(), __VA_ARGS__)
    T(READ(&mine, 1, &theirs, 1, 0)), T(READ(&mine, 1, &theirs, 1, 1)), T(READ(&wrong, 1, &theirs, 1, 0)), T(READ(&mine, 1, &wrong, 1, 0)), T(READ(&huge, 1, &theirs, 1, 0)), T(READ(&mine, 1, &huge, 1, 0)), T(READ(&none, 1, &theirs, 1, 0)), T(READ(&mine, 1, &none, 1, 0)), T(READ(&mine, 0, &theirs, 1, 0)), T(READ(NULL, 1, &theirs, 1, 0)), T(READ(&mine, 1, NULL, 1, 0)), T(READ(&mine, 1025, &theirs, 1, 0)), T(READ(many, 1025, &theirs, 1, 0)), T(READ(many, 1024, &theirs, 1, 0)), T(READ(&mine, 1, many, 1025, 0)), T(READ(&mine, 1, &edge, 1, 0)), T(READ(&edge, 1, &theirs, 1, 0));
    T(process_vm_readv(999999, &mine, 1, &theirs, 1, 0)), T(process_vm_readv(-1, &mine, 1, &theirs, 1, 0)), T(process_vm_readv(0, &mine, 1, &theirs, 1, 0)), T(process_vm_writev(getpid(), &mine, 1, (struct iovec[]){{(void *)0x800000000000, 8}}, 1, 0)), mprotect(at, 4096, PROT_READ), T(process_vm_writev(getpid(), &mine, 1, &edge, 1, 0)), mprotect(at, 4096, PROT_NONE), T(READ(&mine, 1, &edge, 1, 0));
    CHILD("of another user", (setresuid(1001, 1001, 1001), T(process_vm_readv(getppid(), &mine, 1, &theirs, 1, 0)), T(process_vm_readv(getppid(), NULL, 0, NULL, 0, 0))));
}

PROGRAM(barriers_of_memory) {
    long all = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    IS((all & 0x19) == 0x19), T(syscall(SYS_membarrier, 0, 1, 0)), T(syscall(SYS_membarrier, 1 << 20, 0, 0)), T(syscall(SYS_membarrier, 3, 0, 0)), T(syscall(SYS_membarrier, -1, 0, 0)), T(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0)), T(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0)), T(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0)), T(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 2, 0)), T(syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0));
}

PROGRAM(growing_down) {
    char *at = mmap(NULL, 64 * 4096, BOTH, PRIVATE, -1, 0);
    munmap(at, 64 * 4096);
    char *low = mmap(at + 60 * 4096, 4096, BOTH, PRIVATE | MAP_GROWSDOWN | MAP_FIXED, -1, 0);
    CHILD("one page below", (low[-1] = 1, T(low[-1])));
    CHILD("and on", (low[-1] = 1, low[-4097] = 2, T(low[-4097])));
    mmap(at + 10 * 4096, 4096, BOTH, PRIVATE | MAP_FIXED, -1, 0);
    CHILD("not into another's gap", ({ for (char *p = low; p > at; p -= 4096) p[-1] = 1; }));
}
