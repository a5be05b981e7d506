// Makes objects of one kind until it is refused, gives them up, and does it once more: what it could make the second
// time says whether all came back. A process beside it wakes every 10 ms and must live to the end.
//
// `exhaust KIND [COUNT_MAX]` prints a line for each round, "KIND COUNT ERROR", and what became of the ticker: "ticker
// lives, N us late at most". Status 0: every error was one that the call may give, the second round was as long as the
// first but for a tenth, and the ticker lives. Kinds are the names in `kinds` at the end; `all` is the first ALL_COUNT.
//
// `exhaust after KIND [COUNT_MAX]` has a child touch all the memory that there is after each round, and prints "left N of M
// MiB": at least half must be there, and the second round must be as long as the first.
//
// `exhaust neighbour COUNT` only wakes every 10 ms, so often, and says how late that was at worst.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static long count_max = 10000000;
static char name[4200];
static char bytes[65536];
static int descriptors[70000];
static long descriptor_count;

static void close_all(void)
{
    while (descriptor_count > 0)
        close(descriptors[--descriptor_count]);
}

static int keep(int descriptor)
{
    if (descriptor_count == 70000) {
        close(descriptor);
        errno = EMFILE;
        return -1;
    }
    descriptors[descriptor_count++] = descriptor;
    return 0;
}

// Each kind: make number `n` (0 or -1 with errno), and give up all `count` of them.

static void long_target(long n)
{
    snprintf(name, sizeof name, "l%ld", n);
}
static int make_symlink(long n)
{
    static char target[4001];
    if (target[0] == 0)
        memset(target, 't', 4000);
    long_target(n);
    return symlink(target, name);
}
static void unlink_all(long count)
{
    for (long n = 0; n < count; n++) {
        long_target(n);
        if (unlink(name) != 0 && rmdir(name) != 0)
            perror("unlink");
    }
}
static int make_entry(long n)
{
    snprintf(name, sizeof name, "l%ld", n);
    return mknod(name, S_IFREG | 0600, 0);
}
static int make_directory(long n)
{
    snprintf(name, sizeof name, "l%ld", n);
    return mkdir(name, 0700);
}
static int make_hard_link(long n)
{
    if (n == 0 && mknod("first", S_IFREG | 0600, 0) != 0)
        return -1;
    snprintf(name, sizeof name, "l%ld", n);
    return link("first", name);
}
static void drop_hard_links(long count)
{
    unlink_all(count);
    unlink("first");
}

static void fill(int descriptor)
{
    fcntl(descriptor, F_SETFL, O_NONBLOCK);
    while (write(descriptor, bytes, sizeof bytes) > 0) {
    }
}
static int make_pair(long n)
{
    (void)n;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return -1;
    if (keep(pair[0]) != 0 || keep(pair[1]) != 0)
        return -1;
    fill(pair[0]);
    return 0;
}
static int make_datagram_pair(long n)
{
    (void)n;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0)
        return -1;
    if (keep(pair[0]) != 0 || keep(pair[1]) != 0)
        return -1;
    fill(pair[0]);
    return 0;
}
static int make_pipe(long n)
{
    (void)n;
    int pair[2];
    if (pipe(pair) != 0)
        return -1;
    if (keep(pair[0]) != 0 || keep(pair[1]) != 0)
        return -1;
    fill(pair[1]);
    return 0;
}
static int make_large_pipe(long n)
{
    (void)n;
    int pair[2];
    if (pipe(pair) != 0)
        return -1;
    if (keep(pair[0]) != 0 || keep(pair[1]) != 0)
        return -1;
    fcntl(pair[1], F_SETPIPE_SZ, 1 << 20);
    fill(pair[1]);
    return 0;
}
static int made(int descriptor)
{
    return descriptor < 0 ? -1 : keep(descriptor);
}
static int make_eventfd(long n)
{
    (void)n;
    return made(eventfd(0, 0));
}
static int make_epoll(long n)
{
    (void)n;
    return made(epoll_create1(0));
}
static int make_timerfd(long n)
{
    (void)n;
    int descriptor = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec when = { .it_value = { .tv_sec = 3600 } };
    if (descriptor >= 0)
        timerfd_settime(descriptor, 0, &when, NULL);
    return made(descriptor);
}
static int make_signalfd(long n)
{
    (void)n;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    return made(signalfd(-1, &set, 0));
}
static int make_inotify(long n)
{
    (void)n;
    return made(inotify_init1(0));
}
static int make_open(long n)
{
    (void)n;
    return made(open("/", O_RDONLY | O_DIRECTORY));
}
static int make_socket(long n)
{
    (void)n;
    return made(socket(AF_UNIX, SOCK_STREAM, 0));
}
static void drop_descriptors(long count)
{
    (void)count;
    close_all();
}

// One epoll set, watched by many others: entries without descriptors of their own.
static int make_epoll_entry(long n)
{
    enum { SETS = 200 };
    if (n == 0) {
        for (int i = 0; i < SETS; i++)
            if (made(epoll_create1(0)) != 0)
                return -1;
        for (int i = 0; i < 300; i++)
            if (made(eventfd(0, 0)) != 0)
                return -1;
    }
    if (n / 300 >= SETS) {
        // As many as there are descriptors to combine.
        errno = ENOSPC;
        return -1;
    }
    struct epoll_event event = { .events = EPOLLIN };
    return epoll_ctl(descriptors[n / 300], EPOLL_CTL_ADD, descriptors[SETS + n % 300], &event);
}

static int make_watch(long n)
{
    if (n == 0 && made(inotify_init1(IN_NONBLOCK)) != 0)
        return -1;
    snprintf(name, sizeof name, "w%ld", n);
    if (mkdir(name, 0700) != 0)
        return -1;
    int watch = inotify_add_watch(descriptors[0], name, IN_ALL_EVENTS);
    return watch < 0 ? -1 : 0;
}
static void drop_watches(long count)
{
    close_all();
    for (long n = 0; n <= count; n++) {
        snprintf(name, sizeof name, "w%ld", n);
        rmdir(name);
    }
}

// Events of inotify that nobody reads: names are long.
static int make_event(long n)
{
    if (n == 0) {
        if (made(inotify_init1(IN_NONBLOCK)) != 0 || inotify_add_watch(descriptors[0], ".", IN_ALL_EVENTS) < 0)
            return -1;
    }
    memset(name, 'e', 250);
    snprintf(name + 240, 10, "%ld", n % 10);
    int descriptor = open(name, O_CREAT | O_RDWR, 0600);
    if (descriptor < 0)
        return -1;
    close(descriptor);
    unlink(name);
    if (n == 30000) {
        errno = ENOSPC;
        return -1;
    }
    return 0;
}

static char *map_base;
static int make_map(long n)
{
    // Every other page writable, so that no two are one area.
    void *at = mmap(NULL, 4096, n % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return -1;
    if (map_base == NULL || (char *)at < map_base)
        map_base = at;
    return 0;
}
static void drop_maps(long count)
{
    if (count > 0)
        munmap(map_base, (size_t)count * 4096);
    map_base = NULL;
}
static int make_touched_map(long n)
{
    enum { STEP = 2 << 20 };
    if (n == 0) {
        map_base = mmap(NULL, (size_t)STEP * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map_base == MAP_FAILED)
            return -1;
    }
    if (n == 4096) {
        errno = ENOMEM;
        return -1;
    }
    // A page table each, and a frame of zeros.
    volatile char *at = map_base + n * STEP;
    (void)*at;
    return 0;
}
static void drop_touched_maps(long count)
{
    (void)count;
    munmap(map_base, (size_t)(2 << 20) * 4096);
    map_base = NULL;
}

static pid_t children[70000];
static int make_fork(long n)
{
    if (n == 70000) {
        errno = EAGAIN;
        return -1;
    }
    pid_t child = fork();
    if (child == 0) {
        for (;;)
            pause();
    }
    if (child < 0)
        return -1;
    children[n] = child;
    return 0;
}
static void drop_forks(long count)
{
    for (long n = 0; n < count; n++)
        kill(children[n], SIGKILL);
    for (long n = 0; n < count; n++)
        if (waitpid(children[n], NULL, 0) != children[n])
            perror("waitpid");
}
static int make_zombie(long n)
{
    if (n == 70000) {
        errno = EAGAIN;
        return -1;
    }
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    if (child < 0)
        return -1;
    children[n] = child;
    return 0;
}

static pthread_t threads[70000];
static int doors[2];
static void *wait_at_door(void *unused)
{
    char byte;
    (void)unused;
    while (read(doors[0], &byte, 1) < 0) {
    }
    return NULL;
}
static int make_thread(long n)
{
    if (n == 70000) {
        errno = EAGAIN;
        return -1;
    }
    if (n == 0 && pipe(doors) != 0)
        return -1;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16384);
    int error = pthread_create(&threads[n], &attributes, wait_at_door, NULL);
    if (error != 0) {
        errno = error;
        return -1;
    }
    return 0;
}
static void drop_threads(long count)
{
    close(doors[1]);
    for (long n = 0; n < count; n++)
        pthread_join(threads[n], NULL);
    close(doors[0]);
}

static int make_file(long n)
{
    if (n == 0 && made(open("file", O_CREAT | O_RDWR | O_TRUNC, 0600)) != 0)
        return -1;
    return write(descriptors[0], bytes, sizeof bytes) > 0 ? 0 : -1;
}
static void drop_file(long count)
{
    (void)count;
    close_all();
    unlink("file");
}
static int make_sparse_file(long n)
{
    if (n == 0 && made(open("file", O_CREAT | O_RDWR | O_TRUNC, 0600)) != 0)
        return -1;
    return pwrite(descriptors[0], bytes, 1, n * (1L << 30)) > 0 ? 0 : -1;
}
static int make_memfd(long n)
{
    (void)n;
    int descriptor = memfd_create("m", 0);
    if (made(descriptor) != 0)
        return -1;
    return write(descriptor, bytes, sizeof bytes) > 0 ? 0 : -1;
}

static int make_lock(long n)
{
    if (n == 0 && made(open("file", O_CREAT | O_RDWR, 0600)) != 0)
        return -1;
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2 * n, .l_len = 1 };
    return fcntl(descriptors[0], F_SETLK, &lock);
}

// Connections of both ends, whose bytes nobody reads.
static int make_tcp(long n)
{
    static struct sockaddr_in address;
    socklen_t length = sizeof address;
    if (n == 0) {
        memset(&address, 0, sizeof address);
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        if (made(listener) != 0 || bind(listener, (void *)&address, length) != 0 || listen(listener, 4096) != 0)
            return -1;
        getsockname(listener, (void *)&address, &length);
    }
    int client = socket(AF_INET, SOCK_STREAM, 0);
    if (made(client) != 0 || connect(client, (void *)&address, length) != 0 ||
        made(accept(descriptors[0], NULL, NULL)) != 0)
        return -1;
    fcntl(client, F_SETFL, O_NONBLOCK);
    ssize_t done;
    while ((done = write(client, bytes, sizeof bytes)) > 0)
        ;
    return errno == EAGAIN ? 0 : -1;
}
// Datagrams without a reader. What does not fit is lost, so each socket is sent more than it keeps.
static int make_udp(long n)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int receiver = socket(AF_INET, SOCK_DGRAM, 0);
    if (made(receiver) != 0 || bind(receiver, (void *)&address, length) != 0)
        return -1;
    getsockname(receiver, (void *)&address, &length);
    for (int i = 0; i < 300; i++)
        if (sendto(receiver, bytes, i % 2 * 1000, 0, (void *)&address, length) < 0)
            return -1;
    return 0;
}
static int make_connection(long n)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (n % 4000 == 0) {
        int listener = socket(AF_UNIX, SOCK_STREAM, 0);
        if (made(listener) != 0)
            return -1;
        snprintf(name, sizeof name, "%cexhaust%ld", 0, n / 4000);
        memcpy(address.sun_path, "\0exhaust", 8);
        address.sun_path[8] = 'a' + n / 4000;
        if (bind(listener, (void *)&address, sizeof(sa_family_t) + 9) != 0 || listen(listener, 4096) != 0)
            return -1;
    }
    memcpy(address.sun_path, "\0exhaust", 8);
    address.sun_path[8] = 'a' + n / 4000;
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    if (made(client) != 0)
        return -1;
    fcntl(client, F_SETFL, O_NONBLOCK);
    if (connect(client, (void *)&address, sizeof(sa_family_t) + 9) != 0)
        return -1;
    return write(client, bytes, 1000) > 0 ? 0 : -1;
}

static int make_signal(long n)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    if (n == 0)
        sigprocmask(SIG_BLOCK, &set, NULL);
    return sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = (int)n });
}
static void drop_signals(long count)
{
    sigset_t set;
    struct timespec none = { 0, 0 };
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    for (long n = 0; n < count; n++)
        if (sigtimedwait(&set, NULL, &none) < 0)
            perror("sigtimedwait");
}

static timer_t timers[70000];
static int make_timer(long n)
{
    if (n == 70000) {
        errno = EAGAIN;
        return -1;
    }
    struct sigevent event = { .sigev_notify = SIGEV_NONE };
    return timer_create(CLOCK_MONOTONIC, &event, &timers[n]);
}
static void drop_timers(long count)
{
    for (long n = 0; n < count; n++)
        timer_delete(timers[n]);
}

static int make_attribute(long n)
{
    if (n % 100 == 0) {
        snprintf(name, sizeof name, "l%ld", n / 100);
        if (mknod(name, S_IFREG | 0600, 0) != 0)
            return -1;
    }
    char attribute[64];
    snprintf(name, sizeof name, "l%ld", n / 100);
    snprintf(attribute, sizeof attribute, "user.a%ld", n % 100);
    return setxattr(name, attribute, bytes, 500, 0);
}
static void drop_attributes(long count)
{
    for (long n = 0; n <= count / 100; n++) {
        snprintf(name, sizeof name, "l%ld", n);
        unlink(name);
    }
}

static int make_names_in_flight(long n)
{
    // Sockets that hold each other's descriptors.
    (void)n;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0)
        return -1;
    if (keep(pair[0]) != 0 || keep(pair[1]) != 0)
        return -1;
    int sent[100];
    for (int i = 0; i < 100; i++)
        sent[i] = pair[1];
    char control[CMSG_SPACE(sizeof sent)];
    struct iovec vector = { bytes, 1 };
    struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control,
                              .msg_controllen = sizeof control };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof sent);
    memcpy(CMSG_DATA(header), sent, sizeof sent);
    return sendmsg(pair[0], &message, MSG_DONTWAIT) < 0 ? -1 : 0;
}

// Objects of System V by their numbers, and of POSIX by names.
static int numbers[70000];
static int keep_number(long n, int number)
{
    if (number < 0 || n == 70000)
        return -1;
    numbers[n] = number;
    return 0;
}
static int make_segment(long n)
{
    if (keep_number(n, shmget(IPC_PRIVATE, sizeof bytes, IPC_CREAT | 0600)) != 0)
        return -1;
    char *at = shmat(numbers[n], NULL, 0);
    // It goes with its last attachment, which is the process's or this one.
    if (at == (void *)-1) {
        int error = errno;
        shmctl(numbers[n], IPC_RMID, NULL);
        errno = error;
        return -1;
    }
    // Pages that are touched are nobody's to refuse: there Linux's killer comes, too.
    for (unsigned i = 0; n < 16 && i < sizeof bytes; i += 4096)
        at[i] = 1;
    shmdt(at);
    return 0;
}
static void drop_segments(long count)
{
    for (long n = 0; n < count; n++)
        if (shmctl(numbers[n], IPC_RMID, NULL) != 0)
            perror("shmctl");
}
static int make_queue(long n)
{
    struct {
        long type;
        char text[8000];
    } message = { 1, { 0 } };
    if (keep_number(n, msgget(IPC_PRIVATE, IPC_CREAT | 0600)) != 0)
        return -1;
    while (msgsnd(numbers[n], &message, sizeof message.text, IPC_NOWAIT) == 0) {
    }
    return 0;
}
static void drop_queues(long count)
{
    for (long n = 0; n < count; n++)
        if (msgctl(numbers[n], IPC_RMID, NULL) != 0)
            perror("msgctl");
}
static int make_semaphores(long n)
{
    return keep_number(n, semget(IPC_PRIVATE, 250, IPC_CREAT | 0600));
}
static void drop_semaphores(long count)
{
    for (long n = 0; n < count; n++)
        if (semctl(numbers[n], 0, IPC_RMID) != 0)
            perror("semctl");
}
static int make_posix_queue(long n)
{
    snprintf(name, sizeof name, "/exhaust%ld", n);
    int queue = mq_open(name, O_CREAT | O_RDWR | O_NONBLOCK, 0600, NULL);
    if (made(queue) != 0)
        return -1;
    while (mq_send(queue, bytes, 8192, 1) == 0) {
    }
    return 0;
}
static void drop_posix_queues(long count)
{
    close_all();
    for (long n = 0; n <= count; n++) {
        snprintf(name, sizeof name, "/exhaust%ld", n);
        mq_unlink(name);
    }
}
static int make_terminal(long n)
{
    (void)n;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (made(master) != 0 || unlockpt(master) != 0)
        return -1;
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    if (made(terminal) != 0)
        return -1;
    fill(terminal);
    return 0;
}
static int make_process_file(long n)
{
    (void)n;
    return made(syscall(SYS_pidfd_open, getpid(), 0));
}
static int make_lease(long n)
{
    long_target(n);
    int file = open(name, O_CREAT | O_RDONLY, 0600);
    if (made(file) != 0)
        return -1;
    return fcntl(file, F_SETLEASE, F_RDLCK);
}
static void drop_leases(long count)
{
    close_all();
    unlink_all(count);
    long_target(count);
    unlink(name);
}

// Each directory in the one before.
static int make_nested(long n)
{
    (void)n;
    return mkdir("n", 0700) != 0 ? -1 : chdir("n");
}
static void drop_nested(long count)
{
    for (long n = 0; n < count; n++)
        if (chdir("..") != 0 || rmdir("n") != 0)
            perror("rmdir");
    // One that could be made and not entered.
    rmdir("n");
}

// Areas of a file, of which no two are one.
static int make_file_map(long n)
{
    if (n == 0 && (made(open("file", O_CREAT | O_RDWR, 0600)) != 0 || write(descriptors[0], bytes, 8192) != 8192))
        return -1;
    void *at = mmap(NULL, 4096, PROT_READ, n % 3 ? MAP_SHARED : MAP_PRIVATE, descriptors[0], n % 2 * 4096);
    if (at == MAP_FAILED)
        return -1;
    if (map_base == NULL || (char *)at < map_base)
        map_base = at;
    return *(volatile char *)at == 'b' ? 0 : -1;
}
static void drop_file_maps(long count)
{
    drop_maps(count);
    drop_file(count);
}
// One area in ever more pieces.
static int make_area_piece(long n)
{
    enum { PAGES = 1 << 20 };
    if (n == 0) {
        map_base = mmap(NULL, (size_t)PAGES * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map_base == MAP_FAILED)
            return -1;
    }
    return mprotect(map_base + 2 * n * 4096, 4096, PROT_READ);
}
static void drop_area_pieces(long count)
{
    (void)count;
    munmap(map_base, (size_t)(1 << 20) * 4096);
    map_base = NULL;
}

// A program with ever more words.
static int make_long_start(long n)
{
    enum { WORD_BYTES = 30000 };
    static char word[WORD_BYTES + 1], *words[4096];
    memset(word, 'w', WORD_BYTES);
    words[0] = "exhaust";
    words[1] = "nothing";
    for (long i = 0; i <= n; i++)
        words[2 + i] = word;
    words[3 + n] = NULL;
    int tells[2], error = 0;
    if (pipe2(tells, O_CLOEXEC) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        execv("/proc/self/exe", words);
        error = errno;
        _exit(write(tells[1], &error, sizeof error) != sizeof error);
    }
    if (child < 0)
        error = errno;
    close(tells[1]);
    if (read(tells[0], &error, sizeof error) < 0)
        error = EIO;
    close(tells[0]);
    int status = 0;
    if (child > 0 && (waitpid(child, &status, 0) != child || status != 0))
        error = ECHILD;
    errno = error;
    return error == 0 ? 0 : -1;
}
static void drop_nothing(long count)
{
    (void)count;
}

struct kind {
    const char *name;
    int (*make)(long n);
    void (*drop)(long count);
    int errors[6];
};

static const struct kind kinds[] = {
    { "symlinks", make_symlink, unlink_all, { ENOMEM, ENOSPC } },
    { "entries", make_entry, unlink_all, { ENOMEM, ENOSPC } },
    { "directories", make_directory, unlink_all, { ENOMEM, ENOSPC } },
    { "links", make_hard_link, drop_hard_links, { ENOMEM, ENOSPC, EMLINK } },
    { "pairs", make_pair, drop_descriptors, { ENOMEM, ENOBUFS, EMFILE, ENFILE } },
    { "datagrams", make_datagram_pair, drop_descriptors, { ENOMEM, ENOBUFS, EMFILE, ENFILE } },
    { "pipes", make_pipe, drop_descriptors, { ENOMEM, EMFILE, ENFILE } },
    { "large_pipes", make_large_pipe, drop_descriptors, { ENOMEM, EMFILE, ENFILE } },
    { "eventfds", make_eventfd, drop_descriptors, { ENOMEM, EMFILE, ENFILE } },
    { "epolls", make_epoll, drop_descriptors, { ENOMEM, EMFILE, ENFILE } },
    { "epoll_entries", make_epoll_entry, drop_descriptors, { ENOMEM, ENOSPC } },
    { "timerfds", make_timerfd, drop_descriptors, { ENOMEM, EMFILE, ENFILE } },
    { "signalfds", make_signalfd, drop_descriptors, { ENOMEM, EMFILE, ENFILE } },
    { "inotifies", make_inotify, drop_descriptors, { ENOMEM, EMFILE, ENFILE } },
    { "opens", make_open, drop_descriptors, { ENOMEM, EMFILE, ENFILE } },
    { "sockets", make_socket, drop_descriptors, { ENOMEM, ENOBUFS, EMFILE, ENFILE } },
    { "watches", make_watch, drop_watches, { ENOMEM, ENOSPC } },
    { "events", make_event, drop_descriptors, { ENOMEM, ENOSPC } },
    { "maps", make_map, drop_maps, { ENOMEM } },
    { "tables", make_touched_map, drop_touched_maps, { ENOMEM } },
    { "forks", make_fork, drop_forks, { ENOMEM, EAGAIN } },
    { "zombies", make_zombie, drop_forks, { ENOMEM, EAGAIN } },
    { "threads", make_thread, drop_threads, { ENOMEM, EAGAIN } },
    { "files", make_file, drop_file, { ENOSPC } },
    { "sparse_files", make_sparse_file, drop_file, { ENOSPC, EFBIG, EINVAL, ENOMEM } },
    { "memfds", make_memfd, drop_descriptors, { ENOMEM, ENOSPC, EMFILE, ENFILE } },
    { "locks", make_lock, drop_file, { ENOLCK, ENOMEM } },
    { "connections", make_connection, drop_descriptors, { ENOMEM, ENOBUFS, EMFILE, ENFILE, EAGAIN } },
    { "rights", make_names_in_flight, drop_descriptors, { ENOMEM, ENOBUFS, EMFILE, ENFILE, ETOOMANYREFS } },
    { "signals", make_signal, drop_signals, { EAGAIN } },
    { "timers", make_timer, drop_timers, { EAGAIN, ENOMEM } },
    { "attributes", make_attribute, drop_attributes, { ENOMEM, ENOSPC, EOPNOTSUPP } },
    { "segments", make_segment, drop_segments, { ENOMEM, ENOSPC } },
    { "queues", make_queue, drop_queues, { ENOMEM, ENOSPC } },
    { "semaphores", make_semaphores, drop_semaphores, { ENOMEM, ENOSPC } },
    { "posix_queues", make_posix_queue, drop_posix_queues, { ENOMEM, ENOSPC, EMFILE, ENFILE } },
    { "terminals", make_terminal, drop_descriptors, { ENOMEM, ENOSPC, EMFILE, ENFILE } },
    { "process_files", make_process_file, drop_descriptors, { ENOMEM, EMFILE, ENFILE } },
    { "tcp", make_tcp, drop_descriptors, { ENOMEM, ENOBUFS, EMFILE, ENFILE } },
    { "udp", make_udp, drop_descriptors, { ENOMEM, ENOBUFS, EMFILE, ENFILE } },
    { "leases", make_lease, drop_leases, { ENOMEM, ENOSPC, EMFILE, ENFILE } },
    { "nested", make_nested, drop_nested, { ENOMEM, ENOSPC, ENAMETOOLONG } },
    { "file_maps", make_file_map, drop_file_maps, { ENOMEM } },
    { "area_pieces", make_area_piece, drop_area_pieces, { ENOMEM } },
    { "long_starts", make_long_start, drop_nothing, { ENOMEM, E2BIG } },
};

// How often the ticker woke, and by how much it was late at worst.
static volatile long *ticks, *worst_us;

static long now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}
static void tick(long count)
{
    enum { TICK_US = 10000 };
    while (count < 0 || *ticks < count) {
        struct timespec time = { 0, TICK_US * 1000 };
        long due = now_us() + TICK_US;
        nanosleep(&time, NULL);
        long late = now_us() - due;
        if (late > *worst_us)
            *worst_us = late;
        ++*ticks;
    }
}

// How many MiB a child can touch until it is refused more or killed.
static long touchable(void)
{
    int tells[2];
    long count = 0, told;
    if (pipe(tells) != 0)
        return 0;
    pid_t child = fork();
    if (child == 0) {
        for (;;) {
            char *at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (at == MAP_FAILED)
                _exit(0);
            memset(at, 1, 1 << 20);
            count++;
            if (write(tells[1], &count, sizeof count) != sizeof count)
                _exit(1);
        }
    }
    close(tells[1]);
    while (read(tells[0], &told, sizeof told) == sizeof told)
        count = told;
    close(tells[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    return count;
}
// Whether half of the memory is there.
static int is_half_left(void)
{
    struct sysinfo all;
    sysinfo(&all);
    long total = (long)(all.totalram * all.mem_unit >> 20), left = touchable();
    printf("left %ld of %ld MiB\n", left, total);
    return left >= total / 2;
}

static long one_round(const struct kind *kind, int *is_wrong)
{
    long n = 0;
    while (n < count_max && kind->make(n) == 0)
        n++;
    int error = errno;
    int is_right = n == count_max;
    for (int i = 0; i < 6; i++)
        is_right |= kind->errors[i] == error && error != 0;
    *is_wrong |= !is_right;
    kind->drop(n);
    printf("%s %ld %s\n", kind->name, n, n == count_max ? "enough" : strerrorname_np(error));
    return n;
}

int main(int argument_count, char **arguments)
{
    setvbuf(stdout, NULL, _IOLBF, 1024);
    int looks_after = argument_count > 2 && strcmp(arguments[1], "after") == 0;
    arguments += looks_after;
    argument_count -= looks_after;
    if (argument_count > 2)
        count_max = atol(arguments[2]);
    if (argument_count > 1 && strcmp(arguments[1], "nothing") == 0)
        return 0;
    ticks = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *ticks = 0;
    worst_us = ticks + 1;
    *worst_us = 0;
    if (argument_count > 2 && strcmp(arguments[1], "neighbour") == 0) {
        tick(count_max);
        printf("neighbour lives, %ld us late at most\n", *worst_us);
        return 0;
    }
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max > 65536 ? 65536 : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    // What is made is in a directory of its own, and touched memory is touched before.
    if (mkdir("/tmp/exhaust", 0700) != 0 && errno != EEXIST)
        mkdir("/exhaust", 0700);
    if (chdir("/tmp/exhaust") != 0 && chdir("/exhaust") != 0)
        return 2;
    memset(bytes, 'b', sizeof bytes);
    memset(descriptors, 0, sizeof descriptors);
    memset(children, 0, sizeof children);
    memset(threads, 0, sizeof threads);
    memset(timers, 0, sizeof timers);
    pid_t ticker = fork();
    if (ticker == 0)
        tick(-1);
    int is_wrong = 0;
    enum { ALL_COUNT = 32 };
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int is_in_all = i < ALL_COUNT && strcmp(arguments[1], "all") == 0;
        if (argument_count > 1 && !is_in_all && strcmp(kinds[i].name, arguments[1]) != 0)
            continue;
        long first = one_round(&kinds[i], &is_wrong);
        is_wrong |= looks_after && !is_half_left();
        long second = one_round(&kinds[i], &is_wrong);
        is_wrong |= looks_after && !is_half_left();
        is_wrong |= second < first - first / 10 - 10;
    }
    struct timespec time = { 0, 50000000 };
    nanosleep(&time, NULL);
    int is_alive = waitpid(ticker, NULL, WNOHANG) == 0 && *ticks > 0;
    printf(is_alive ? "ticker lives, %ld us late at most\n" : "ticker is gone\n", *worst_us);
    if (is_alive) {
        kill(ticker, SIGKILL);
        waitpid(ticker, NULL, 0);
    }
    return is_wrong || !is_alive;
}
