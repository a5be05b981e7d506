/* Reading and writing another process's memory. Prints facts that are the same on every Linux. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAY(call) (errno = 0, say(#call, (long)(call)))
#define PAGE 4096

static void say(const char *call, long result) {
    printf("%s: %ld %s\n", call, result, result == -1 ? strerror(errno) : "");
    fflush(stdout);
}

static char *pages;
static char here[3 * PAGE];

static long move(ssize_t (*call)(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long, unsigned long),
                 pid_t child, void *local, size_t local_length, void *remote, size_t remote_length) {
    struct iovec one = {local, local_length}, other = {remote, remote_length};
    return call(child, &one, 1, &other, 1, 0);
}

static unsigned sum(const char *bytes, size_t length) {
    unsigned total = 0;
    for (size_t i = 0; i < length; i++) total = total * 31 + (unsigned char)bytes[i];
    return total;
}

int main(void) {
    int to[2], from[2];
    char byte;
    if (pipe(to) || pipe(from)) return 1;
    /* Four pages: two with contents, one that nobody touched, one without rights. */
    pages = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *shared = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 3 * PAGE, PAGE, PROT_NONE);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 2 * PAGE; i++) pages[i] = (char)(i * 7 + i / 251);
        write(from[1], "x", 1);
        read(to[0], &byte, 1);
        printf("the child sees %u\n", sum(pages, 3 * PAGE));
        fflush(stdout);
        _exit(0);
    }
    read(from[0], &byte, 1);
    SAY(move(process_vm_readv, child, here, 2 * PAGE, pages, 2 * PAGE));
    printf("%u, and here %u\n", sum(here, 2 * PAGE), sum(pages, 3 * PAGE));
    SAY(move(process_vm_readv, child, here, 100, pages + PAGE - 50, 100));
    printf("%u\n", sum(here, 100));
    SAY(move(process_vm_readv, child, here, 10, pages, 3 * PAGE));
    SAY(move(process_vm_readv, child, here, 3 * PAGE, pages, 10));
    SAY(move(process_vm_readv, child, here, PAGE, pages + 2 * PAGE, PAGE));
    printf("%u\n", sum(here, PAGE));
    SAY(move(process_vm_readv, child, here, 2 * PAGE, pages + 2 * PAGE, 2 * PAGE));
    SAY(move(process_vm_readv, child, here, PAGE, pages + 3 * PAGE, PAGE));
    SAY(move(process_vm_readv, child, here, PAGE, (void *)8, PAGE));
    SAY(move(process_vm_readv, child, (void *)8, PAGE, pages, PAGE));
    SAY(move(process_vm_readv, child, here, 0, (void *)8, PAGE));
    SAY(move(process_vm_readv, child, here, 8, (void *)8, 0));
    SAY(move(process_vm_readv, 1 << 22, here, 8, pages, 8));
    SAY(move(process_vm_readv, 1 << 22, here, 0, pages, 8));
    SAY(move(process_vm_readv, getpid(), here, 8, "exactly", 8));
    puts(here);
    struct iovec local[] = {{here, 5}, {NULL, 0}, {here + 100, 4000}}, remote[] = {{pages, 3}, {pages + PAGE, 2000}};
    SAY(process_vm_readv(child, local, 3, remote, 2, 0));
    printf("%u %u\n", sum(here, 5), sum(here + 100, 1998));
    SAY(process_vm_readv(child, local, 3, remote, 2, 1));
    SAY(process_vm_readv(child, local, 1025, remote, 2, 0));
    SAY(process_vm_readv(child, local, 3, remote, 1025, 0));
    SAY(process_vm_readv(child, (void *)8, 1, remote, 2, 0));
    SAY(process_vm_readv(child, local, 3, (void *)8, 1, 0));

    memset(here, 'w', sizeof here);
    SAY(move(process_vm_writev, child, here, PAGE, pages + PAGE / 2, PAGE));
    SAY(move(process_vm_writev, child, here, 8, pages + 2 * PAGE, 8));
    SAY(move(process_vm_writev, child, here, 8, shared, 8));
    SAY(move(process_vm_writev, child, here, PAGE, pages + 3 * PAGE - 6, 12));
    printf("here %u\n", sum(pages, 3 * PAGE));
    fflush(stdout);
    write(to[1], "x", 1);
    waitpid(child, NULL, 0);
    SAY(move(process_vm_readv, child, here, 8, pages, 8));
    if (geteuid() == 0) {
        child = fork();
        if (child == 0) {
            setgid(1000), setuid(1000);
            SAY(move(process_vm_readv, getppid(), here, 8, pages, 8));
            SAY(move(process_vm_readv, getpid(), here, 8, pages, 8));
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    return 0;
}
