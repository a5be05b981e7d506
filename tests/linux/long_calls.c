// Long calls, each beside a ticker: a process that sleeps 10 ms at a time and measures by the clock how late it is.
//
//     long_calls LATE_MS ENDS_MS VARIANT…
//
// For each variant one line: its name and "ok", or what was wrong: a tick that was later than LATE_MS, or a signal that
// ended the call later than ENDS_MS. The call is made until SIGKILL ends its process; where Linux ends it early for any
// signal, first until an alarm has a handler run. With the environment variable SHOW the figures are printed instead.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024 * 1024L)
#define BIG (64 * MIB)

struct shared {
    volatile long latest_ns, begun_ns, handled_ns, answer, tick_count;
    volatile int is_over;
};
static struct shared *shared;
static char folder[64];
static char *buffer;

static long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void fail(const char *what) {
    printf("%s: %s\n", what, strerror(errno));
    fflush(stdout);
    _exit(1);
}

static char *path(const char *name) {
    static char text[4][256];
    static int which;
    char *to = text[which++ % 4];
    snprintf(to, 256, "%s/%s", folder, name);
    return to;
}

static int file(const char *name, long bytes) {
    int fd = open(path(name), O_RDWR | O_CREAT, 0600);
    if (fd < 0) fail("open");
    for (long at = 0; at < bytes; at += 4 * MIB)
        if (pwrite(fd, buffer, 4 * MIB, at) != 4 * MIB) fail("pwrite");
    return fd;
}

static void *fresh(long bytes, int flags) {
    void *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (at == MAP_FAILED) fail("mmap");
    return at;
}

static void touch(char *at, long bytes) {
    for (long i = 0; i < bytes; i += 4096) at[i] = 1;
}

// What a variant works on, made by its preparation.
static int fd[2], pipes[2];
static char *area;
static pid_t helper;
static pthread_t *threads;
static int word;

// --- bytes
static void none(void) {}
static void big_file(void) { fd[0] = file("big", BIG); }
static long do_getrandom(void) { return getrandom(buffer, BIG, 0); }
static void open_zero(void) { fd[0] = open("/dev/zero", O_RDWR); }
static void open_urandom(void) { fd[0] = open("/dev/urandom", O_RDWR); }
static long do_read(void) { return read(fd[0], buffer, BIG); }
static long do_write(void) { return write(fd[0], buffer, BIG); }
static long do_pread(void) { return pread(fd[0], buffer, BIG, 0); }
static long do_pwrite(void) { return pwrite(fd[0], buffer, BIG, 0); }
static void new_file(void) { fd[0] = open(path("new"), O_RDWR | O_CREAT | O_TRUNC, 0600); }
static void append_file(void) { fd[0] = open(path("new"), O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600); }
static struct iovec pieces[1024];
static void cut(void) {
    for (int i = 0; i < 1024; i++) pieces[i] = (struct iovec){ buffer + i * (BIG / 1024), BIG / 1024 };
}
static void cut_new(void) { cut(), new_file(); }
static void cut_big(void) { cut(), big_file(); }
static long do_readv(void) { return readv(fd[0], pieces, 1024); }
static long do_writev(void) { return writev(fd[0], pieces, 1024); }
static void holes(void) {
    new_file();
    if (ftruncate(fd[0], BIG)) fail("ftruncate");
}
// The other end that takes or gives what goes through a pipe or a socket.
static void drainer(int from) {
    helper = fork();
    if (helper == 0) {
        static char bytes[MIB];
        close(pipes[1]);
        while (read(from, bytes, sizeof bytes) > 0) {}
        _exit(0);
    }
    close(from);
}
static void feeder(int to) {
    helper = fork();
    if (helper == 0) {
        signal(SIGPIPE, SIG_IGN);
        close(pipes[0]);
        while (write(to, buffer, BIG) > 0) {}
        _exit(0);
    }
    close(to);
}
static void pipe_drained(void) {
    if (pipe(pipes)) fail("pipe");
    fcntl(pipes[1], F_SETPIPE_SZ, MIB);
    drainer(pipes[0]);
    fd[0] = pipes[1];
}
static void pipe_fed(void) {
    if (pipe(pipes)) fail("pipe");
    fcntl(pipes[1], F_SETPIPE_SZ, MIB);
    feeder(pipes[1]);
    fd[0] = pipes[0];
}
static long do_read_pipe(void) {
    long sum = 0, got;
    while (sum < BIG && (got = read(fd[0], buffer, BIG)) > 0) sum += got;
    return sum;
}
static void socket_drained(void) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pipes)) fail("socketpair");
    drainer(pipes[0]);
    fd[0] = pipes[1];
}
static void own_memory(void) {
    fd[0] = open("/proc/self/mem", O_RDWR);
    area = fresh(BIG, 0);
    touch(area, BIG);
}
static long do_read_mem(void) { return fd[0] < 0 ? 0 : pread(fd[0], buffer, BIG, (off_t)area); }
static long do_write_mem(void) { return fd[0] < 0 ? 0 : pwrite(fd[0], buffer, BIG, (off_t)area); }
static void itself(void) {
    big_file();
    fd[1] = open(path("big"), O_RDWR);
    lseek(fd[1], 0, SEEK_END);
}
static long do_sendfile(void) {
    off_t from = 0;
    return sendfile(fd[1], fd[0], &from, 1024 * MIB);
}
static void two_files(void) { big_file(), fd[1] = open(path("new"), O_RDWR | O_CREAT | O_TRUNC, 0600); }
static long do_copy_range(void) {
    loff_t from = 0, to = 0;
    return copy_file_range(fd[0], &from, fd[1], &to, BIG, 0);
}
static void splice_ready(void) {
    big_file();
    pipe_drained();
    fd[1] = pipes[1], fd[0] = open(path("big"), O_RDONLY);
}
static long do_splice(void) {
    long sum = 0, got;
    while (sum < BIG && (got = splice(fd[0], 0, fd[1], 0, BIG, 0)) > 0) sum += got;
    return sum;
}
static int other[2];
static void tee_ready(void) {
    if (pipe(other)) fail("pipe");
    fcntl(other[1], F_SETPIPE_SZ, MIB);
    if (write(other[1], buffer, MIB) < 0) fail("write");
    pipe_drained();
}
static long do_tee(void) {
    long sum = 0, got;
    while (sum < BIG && (got = tee(other[0], pipes[1], MIB, 0)) > 0) sum += got;
    return sum;
}
static long do_vmsplice(void) {
    struct iovec one = { buffer, BIG };
    return vmsplice(fd[0], &one, 1, 0);
}

// --- memory
static long do_populate(void) {
    area = fresh(BIG, MAP_POPULATE);
    return area == MAP_FAILED ? -1 : BIG;
}
static void touched(void) {
    area = fresh(BIG, 0);
    touch(area, BIG);
}
static void shared_area(void) {
    area = mmap(0, BIG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) fail("mmap");
    touch(area, BIG);
}
// So much that nothing of it is there.
static void vast(void) {
    area = mmap(0, 1L << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) fail("mmap");
}
static long do_mincore_vast(void) { return mincore(area, 1L << 37, (unsigned char *)buffer); }
static void stripes(void) {
    touched();
    // Every second page of its own, so that there are many areas.
    for (long i = 0; i < BIG; i += 8192)
        if (mprotect(area + i, 4096, PROT_READ)) fail("mprotect");
}
static long do_munmap(void) { return munmap(area, BIG); }
static long do_mprotect(void) { return mprotect(area, BIG, PROT_READ); }
static long do_mremap(void) {
    char *to = mremap(area, BIG, BIG + MIB, MREMAP_MAYMOVE | MREMAP_FIXED, area + 512 * MIB);
    if (to == MAP_FAILED) return -1;
    area = to;
    return 0;
}
static long do_madvise(void) { return madvise(area, BIG, MADV_DONTNEED); }
static long do_mlock(void) { return mlock(area, BIG); }
static void unlimited(void) {
    struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
    setrlimit(RLIMIT_MEMLOCK, &all);
    area = fresh(BIG, 0);
}
static void mapped_file(void) {
    big_file();
    area = mmap(0, BIG, PROT_READ | PROT_WRITE, MAP_SHARED, fd[0], 0);
    if (area == MAP_FAILED) fail("mmap");
    touch(area, BIG);
}
static long do_msync(void) { return msync(area, BIG, MS_SYNC); }
static long do_mincore(void) { return mincore(area, BIG, (unsigned char *)buffer); }
static long do_fork(void) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    return waitpid(child, 0, 0) == child ? 0 : -1;
}
static long do_exit(void) {
    // A child that has much to give back, and its parent waits.
    pid_t child = fork();
    if (child == 0) {
        touch(area, BIG);
        _exit(0);
    }
    return waitpid(child, 0, 0) == child ? 0 : -1;
}
static long do_exec(void) {
    pid_t child = fork();
    if (child == 0) {
        touch(area, BIG);
        execl("/proc/self/exe", "long_calls", "nothing", (char *)0);
        _exit(1);
    }
    return waitpid(child, 0, 0) == child ? 0 : -1;
}
static long do_readv_process(void) {
    struct iovec here = { buffer, BIG }, there = { area, BIG };
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0);
}
static long read_all(const char *name) {
    int from = open(name, O_RDONLY);
    long sum = 0, got;
    while ((got = read(from, buffer, BIG)) > 0) sum += got;
    close(from);
    return sum;
}
static long do_maps(void) { return read_all("/proc/self/maps"); }
static long do_smaps(void) { return read_all("/proc/self/smaps"); }
static long do_pagemap(void) {
    int from = open("/proc/self/pagemap", O_RDONLY);
    if (from < 0) return 0;
    long got = pread(from, buffer, BIG / 4096 * 8, (off_t)area / 4096 * 8);
    close(from);
    return got;
}

// --- files and names
static long do_fallocate(void) { return fallocate(fd[0], 0, 0, BIG); }
static long do_punch(void) { return fallocate(fd[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BIG); }
static long do_truncate(void) { return ftruncate(fd[0], 0); }
static void closed_file(void) { big_file(), close(fd[0]); }
static long do_unlink(void) { return unlink(path("big")); }
static long do_fsync(void) { return fsync(fd[0]), sync(), 0; }
#define NAME_COUNT 20000
static void many_names(void) {
    char name[32];
    mkdir(path("names"), 0700);
    for (int i = 0; i < NAME_COUNT; i++) {
        snprintf(name, sizeof name, "names/%d", i);
        int made = open(path(name), O_CREAT | O_WRONLY, 0600);
        if (made < 0) fail("open");
        close(made);
    }
    fd[0] = open(path("names"), O_RDONLY | O_DIRECTORY);
}
static long do_getdents(void) {
    long sum = 0, got;
    while ((got = syscall(SYS_getdents64, fd[0], buffer, BIG)) > 0) sum += got;
    return sum;
}
static void chain(void) {
    char name[32], to[4096];
    // Forty links, each through a long path of its own.
    mkdir(path("here"), 0700);
    for (int i = 0; i < 40; i++) {
        to[0] = 0;
        for (int k = 0; k < 800; k++) strcat(to, "./");
        snprintf(to + strlen(to), 32, i == 0 ? "target" : "link%d", i - 1);
        snprintf(name, sizeof name, "link%d", i);
        if (symlink(to, path(name)) && errno != EEXIST) fail("symlink");
    }
    close(open(path("target"), O_CREAT | O_WRONLY, 0600));
}
static long do_chain(void) {
    struct stat status;
    for (int i = 0; i < 400; i++)
        if (stat(path("link39"), &status)) return -1;
    return 0;
}
static long do_components(void) {
    static char long_path[4096];
    struct stat status;
    strcpy(long_path, folder);
    while (strlen(long_path) < 4000) strcat(long_path, "/here/..");
    for (int i = 0; i < 1000; i++)
        if (stat(long_path, &status)) return -1;
    return 0;
}

// --- tables
#define DESCRIPTOR_COUNT 4000
static void many_descriptors(void) {
    struct rlimit all = { DESCRIPTOR_COUNT + 100, DESCRIPTOR_COUNT + 100 };
    setrlimit(RLIMIT_NOFILE, &all);
    if (pipe(pipes)) fail("pipe");
    for (int i = 100; i < DESCRIPTOR_COUNT; i++)
        if (dup2(pipes[0], i) < 0) fail("dup2");
}
static long do_poll(void) {
    static struct pollfd set[DESCRIPTOR_COUNT];
    for (int i = 100; i < DESCRIPTOR_COUNT; i++) set[i] = (struct pollfd){ i, POLLIN, 0 };
    for (int i = 0; i < 20; i++)
        if (poll(set + 100, DESCRIPTOR_COUNT - 100, 0) != 0) return -1;
    return 0;
}
static long do_select(void) {
    fd_set set;
    for (int i = 0; i < 200; i++) {
        struct timeval zero = { 0, 0 };
        FD_ZERO(&set);
        for (int k = 100; k < FD_SETSIZE; k++) FD_SET(k, &set);
        if (select(FD_SETSIZE, &set, 0, 0, &zero) != 0) return -1;
    }
    return 0;
}
static void epoll_ready(void) {
    many_descriptors();
    fd[0] = epoll_create1(0);
    for (int i = 100; i < DESCRIPTOR_COUNT; i++) {
        struct epoll_event event = { EPOLLOUT | EPOLLIN, { .fd = i } };
        if (epoll_ctl(fd[0], EPOLL_CTL_ADD, i, &event)) fail("epoll_ctl");
    }
    if (write(pipes[1], "x", 1) != 1) fail("write");
}
static long do_epoll(void) {
    static struct epoll_event events[DESCRIPTOR_COUNT];
    for (int i = 0; i < 20; i++)
        if (epoll_wait(fd[0], events, DESCRIPTOR_COUNT, 0) < 0) return -1;
    return 0;
}
static long do_close_range(void) { return syscall(SYS_close_range, 100, ~0U, 0); }
static long do_exit_files(void) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    return waitpid(child, 0, 0) == child ? 0 : -1;
}
static void *sleeper(void *unused) {
    for (;;) syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0);
    return 0;
}
static void sleepers(void) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    for (int i = 0; i < 300; i++) {
        pthread_t made;
        if (pthread_create(&made, &small, sleeper, 0)) fail("pthread_create");
    }
    usleep(20000);
}
static long do_futex_wake(void) {
    for (int i = 0; i < 20; i++) syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 100000, 0, 0, 0);
    return 0;
}
static long do_futex_requeue(void) {
    static int second;
    for (int i = 0; i < 20; i++) {
        syscall(SYS_futex, &word, FUTEX_REQUEUE_PRIVATE, 0, 100000L, &second, 0);
        syscall(SYS_futex, &second, FUTEX_REQUEUE_PRIVATE, 0, 100000L, &word, 0);
    }
    return 0;
}
static void group(void) {
    signal(SIGUSR1, SIG_IGN);
    for (int i = 0; i < 100; i++) {
        pid_t made = fork();
        if (made == 0) {
            signal(SIGUSR2, SIG_DFL);
            for (;;) pause();
        }
        if (made < 0) fail("fork");
    }
}
static long do_kill_group(void) {
    for (int i = 0; i < 20; i++)
        if (kill(0, SIGUSR1)) return -1;
    return 0;
}

static struct variant {
    const char *name;
    void (*prepare)(void);
    long (*call)(void);
    int ends_for_any_signal;
} variants[] = {
    { "getrandom", none, do_getrandom, 1 }, { "read_zero", open_zero, do_read, 1 }, { "read_urandom", open_urandom, do_read, 1 },
    { "write_urandom", open_urandom, do_write, 1 }, { "read_file", big_file, do_read }, { "write_file", new_file, do_write },
    { "overwrite_file", big_file, do_write }, { "append_file", append_file, do_write },
    { "pread_file", big_file, do_pread }, { "pwrite_file", big_file, do_pwrite }, { "readv_file", cut_big, do_readv },
    { "writev_file", cut_new, do_writev }, { "read_hole", holes, do_read }, { "write_pipe", pipe_drained, do_write },
    { "read_pipe", pipe_fed, do_read_pipe }, { "write_socket", socket_drained, do_write },
    { "read_mem", own_memory, do_read_mem }, { "write_mem", own_memory, do_write_mem },
    { "sendfile", itself, do_sendfile, 1 }, { "copy_file_range", two_files, do_copy_range, 1 },
    { "splice", splice_ready, do_splice }, { "tee", tee_ready, do_tee }, { "vmsplice", pipe_drained, do_vmsplice },
    { "populate", none, do_populate }, { "munmap", touched, do_munmap }, { "munmap_shared", shared_area, do_munmap },
    { "mincore_vast", vast, do_mincore_vast }, { "munmap_stripes", stripes, do_munmap },
    { "mprotect", touched, do_mprotect }, { "mprotect_stripes", stripes, do_mprotect },
    { "mremap", touched, do_mremap }, { "madvise", touched, do_madvise }, { "mlock", unlimited, do_mlock },
    { "msync", mapped_file, do_msync }, { "mincore", touched, do_mincore }, { "fork", touched, do_fork },
    { "fork_stripes", stripes, do_fork }, { "exit", touched, do_exit }, { "exec", touched, do_exec },
    { "process_vm_readv", touched, do_readv_process }, { "maps", stripes, do_maps }, { "smaps", stripes, do_smaps },
    { "pagemap", touched, do_pagemap }, { "fallocate", new_file, do_fallocate }, { "punch", big_file, do_punch },
    { "truncate", big_file, do_truncate }, { "unlink", closed_file, do_unlink }, { "fsync", mapped_file, do_fsync },
    { "getdents", many_names, do_getdents }, { "symlinks", chain, do_chain }, { "components", chain, do_components },
    { "poll", many_descriptors, do_poll }, { "select", many_descriptors, do_select }, { "epoll", epoll_ready, do_epoll },
    { "close_range", many_descriptors, do_close_range }, { "exit_files", many_descriptors, do_exit_files },
    { "futex_wake", sleepers, do_futex_wake }, { "futex_requeue", sleepers, do_futex_requeue },
    { "kill_group", group, do_kill_group },
};

#define VARIANT_COUNT (sizeof variants / sizeof *variants)

static void ticker(void) {
    const struct timespec step = { 0, 10000000 };
    for (;;) {
        long due_ns = now_ns() + step.tv_nsec;
        nanosleep(&step, 0);
        long late_ns = now_ns() - due_ns;
        if (late_ns > shared->latest_ns) shared->latest_ns = late_ns;
        shared->tick_count++;
    }
}

static void handler(int number) { shared->handled_ns = now_ns(); }

// Works in a group of its own, of which nothing is left afterwards. With `alarm_us` a handler is to run so much later.
static pid_t worker(struct variant *variant, long alarm_us) {
    memset(shared, 0, sizeof *shared);
    pid_t made = fork();
    if (made != 0) return made;
    setpgid(0, 0);
    buffer = fresh(BIG, 0);
    touch(buffer, BIG);
    variant->prepare();
    struct sigaction action = { .sa_handler = handler };
    sigaction(SIGALRM, &action, 0);
    struct itimerval alarm = { { 0, 0 }, { 0, alarm_us } };
    shared->begun_ns = now_ns();
    setitimer(ITIMER_REAL, &alarm, 0);
    do shared->answer = variant->call();
    while (alarm_us && !shared->handled_ns);
    shared->is_over = 1;
    // What the call cannot do twice it does once.
    while (!variant->ends_for_any_signal && shared->answer > 0) shared->answer = variant->call();
    for (;;) pause();
}

static long end_group(pid_t pid) {
    long from_ns = now_ns();
    kill(-pid, SIGKILL);
    if (waitpid(pid, 0, 0) != pid) fail("waitpid");
    long took_ns = now_ns() - from_ns;
    while (waitpid(-1, 0, WNOHANG) > 0) {}
    return took_ns;
}

static void clean(void) {
    static char command[128];
    pid_t made = fork();
    if (made == 0) {
        // Names that variants leave.
        char name[32];
        const char *names[] = { "big", "new", "target" };
        for (int i = 0; i < 3; i++) unlink(path(names[i]));
        for (int i = 0; i < 40; i++) snprintf(name, 32, "link%d", i), unlink(path(name));
        for (int i = 0; i < NAME_COUNT; i++) {
            snprintf(name, 32, "names/%d", i);
            if (unlink(path(name))) break;
        }
        rmdir(path("names")), rmdir(path("here"));
        _exit(0);
    }
    waitpid(made, 0, 0);
}

static int run(struct variant *variant, long late_ms, long ends_ms) {
    const struct timespec moment = { 0, 1000000 };
    long latest_ns = 0, handled_ns = 0, took_ns, tick_count = 0;
    pid_t ticking = fork();
    if (ticking == 0) ticker();
    for (int with_alarm = variant->ends_for_any_signal; with_alarm >= 0; with_alarm--) {
        pid_t pid = worker(variant, with_alarm ? 15000 : 0);
        while (shared->begun_ns == 0) {
            nanosleep(&moment, 0);
            if (waitpid(pid, 0, WNOHANG) == pid) return printf("%s did not begin\n", variant->name), 1;
        }
        if (with_alarm) {
            long due_ns = shared->begun_ns + 15000000L;
            while (shared->handled_ns == 0) nanosleep(&moment, 0);
            handled_ns = shared->handled_ns - due_ns;
        } else {
            for (int i = 0; i < 60; i++) nanosleep(&moment, 0);
        }
        took_ns = end_group(pid);
        if (shared->answer == -1) printf("%s answered -1\n", variant->name);
        if (shared->latest_ns > latest_ns) latest_ns = shared->latest_ns;
        tick_count += shared->tick_count;
    }
    kill(ticking, SIGKILL);
    waitpid(ticking, 0, 0);
    clean();
    if (getenv("SHOW"))
        printf("%-18s %4ld ticks, latest %8.3f ms, handled after %8.3f ms, ended after %8.3f ms\n", variant->name,
               tick_count, latest_ns / 1e6, handled_ns / 1e6, took_ns / 1e6);
    else if (latest_ns > late_ms * 1000000L)
        printf("%s: a tick was %ld us late\n", variant->name, latest_ns / 1000);
    else if (handled_ns > ends_ms * 1000000L)
        printf("%s: a handler ran after %ld us\n", variant->name, handled_ns / 1000);
    else if (took_ns > ends_ms * 1000000L)
        printf("%s: it ended after %ld us\n", variant->name, took_ns / 1000);
    else
        printf("%s ok\n", variant->name);
    fflush(stdout);
    return 0;
}

int main(int count, char **words) {
    if (count == 2) return 0;
    if (count < 3) return 2;
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(folder, sizeof folder, "/tmp/long_calls.%d", getpid());
    if (mkdir(folder, 0700)) fail("mkdir");
    for (size_t i = 0; i < VARIANT_COUNT; i++) {
        int is_wanted = count == 3;
        for (int k = 3; k < count; k++) is_wanted |= !strcmp(words[k], variants[i].name);
        if (is_wanted) run(&variants[i], atol(words[1]), atol(words[2]));
    }
    rmdir(folder);
    return 0;
}
