// Locks, events, futexes and pipes: what waits for what, and what is refused.
#include "answers.h"
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/file.h>
#include <sys/uio.h>
#include <sys/select.h>

static char big[256 * 1024] __attribute__((aligned(4096)));
static void splices(void) {
    int line[2], status, plain = open("/dev/null", O_RDWR);
    pipe(line);
    struct iovec all = {big, sizeof big}, half = {big, 40000}, wrong = {(void *)8, 10}, none = {big, 0};
    T(vmsplice(line[1], &all, 1, 0)), T(vmsplice(line[1], &half, 1, SPLICE_F_NONBLOCK)), T(read(line[0], big, sizeof big));
    T(vmsplice(line[1], &half, 1, 0)), T(vmsplice(line[0], &all, 1, 0)), T(vmsplice(line[1], &wrong, 1, 0)), T(vmsplice(line[1], &none, 1, 0));
    T(vmsplice(line[1], &half, 1, 99)), T(vmsplice(plain, &half, 1, 0)), T(vmsplice(99, &half, 1, 0)), T(vmsplice(line[1], &half, -1, 0)), T(vmsplice(line[1], NULL, 0, 0));
    int fd = open("spliced", O_CREAT | O_RDWR, 0600), other[2];
    pipe(other);
    loff_t at = 0, wrong_at = -1;
    write(fd, big, 1000);
    T(splice(fd, &at, line[1], NULL, 500, 0)), T(at), T(splice(line[0], NULL, other[1], NULL, 200, 0)), T(tee(line[0], other[1], 100, 0)), T(tee(line[0], line[1], 10, 0));
    T(splice(fd, NULL, fd, NULL, 10, 0)), T(splice(line[0], &at, fd, NULL, 10, 0)), T(splice(fd, &wrong_at, line[1], NULL, 10, 0)), T(splice(line[1], NULL, fd, NULL, 10, 0)), T(splice(fd, NULL, line[0], NULL, 10, 0));
    T(splice(line[0], NULL, line[1], NULL, 10, 0)), T(tee(fd, line[1], 10, 0)), T(splice(99, NULL, line[1], NULL, 1, 0)), T(splice(fd, NULL, line[1], NULL, 1, 99)), T(splice(fd, NULL, line[1], NULL, 0, 0));
    T(splice(open("spliced", O_RDONLY), NULL, line[1], NULL, 10, 0)), T(splice(line[0], NULL, open("spliced", O_WRONLY | O_APPEND), NULL, 10, 0)), T(splice(line[0], NULL, open("spliced", O_RDONLY), NULL, 10, 0));
}

static int lock_record(int fd, int how, int kind, off_t start, off_t length) {
    struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    return fcntl(fd, how, &lock);
}
static void record_locks(void) {
    int fd = open("locked", O_CREAT | O_RDWR, 0600), to_parent[2], to_child[2];
    char byte;
    pipe(to_parent), pipe(to_child);
    T(lock_record(fd, F_SETLK, F_WRLCK, 0, 1));
    pid_t child = fork();
    if (child == 0) {
        lock_record(fd, F_SETLK, F_WRLCK, 10, 1);
        write(to_parent[1], "x", 1);
        // The parent waits for byte 10 by now, nearly.
        pause_ms(300);
        T(lock_record(fd, F_SETLKW, F_WRLCK, 0, 1));
        _exit(0);
    }
    read(to_parent[0], &byte, 1);
    T(lock_record(fd, F_SETLKW, F_WRLCK, 10, 1));
    waitpid(child, NULL, 0);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = 9};
    T(fcntl(fd, F_SETLK, &lock)), T(lock_record(fd, F_SETLK, 9, 0, 1)), T(lock_record(fd, F_SETLK, F_WRLCK, -1, 1)), T(lock_record(fd, F_SETLK, F_WRLCK, 5, -5)), T(lock_record(fd, F_SETLK, F_WRLCK, 5, -6));
    T(lock_record(open("locked", O_RDONLY), F_SETLK, F_WRLCK, 0, 1)), T(lock_record(open("locked", O_WRONLY), F_SETLK, F_RDLCK, 0, 1)), T(fcntl(fd, F_SETLK, 8)), T(fcntl(fd, F_GETLK, 8)), T(lock_record(fd, F_GETLK, F_UNLCK, 0, 1));
    T(lock_record(fd, F_SETLK, F_WRLCK, 0x7fffffffffffffff, 1)), T(lock_record(fd, F_SETLK, F_WRLCK, 0x7fffffffffffffff, 2)), T(lock_record(to_child[0], F_SETLK, F_RDLCK, 0, 1));
    T(flock(fd, LOCK_EX)), T(flock(open("locked", O_RDONLY), LOCK_SH | LOCK_NB)), T(flock(fd, LOCK_UN)), T(flock(to_child[0], LOCK_EX | LOCK_NB));
}

static void *reads_soon(void *fd) {
    uint64_t value;
    pause_ms(100);
    read((int)(intptr_t)fd, &value, 8);
    return NULL;
}
static void events(void) {
    int fd = eventfd(0, EFD_NONBLOCK);
    uint64_t value = UINT64_MAX - 1, one = 1, most = UINT64_MAX;
    struct pollfd wait = {fd, POLLIN | POLLOUT};
    T(write(fd, &value, 8)), T(poll(&wait, 1, 0)), T(wait.revents), T(write(fd, &one, 8)), T(write(fd, &most, 8)), T(write(fd, &one, 4)), T(read(fd, &value, 4));
    T(read(fd, &value, 16)), IS(value == UINT64_MAX - 1), T(read(fd, &value, 8)), T(poll(&wait, 1, 0)), T(wait.revents), T(write(fd, &one, 8)), T(poll(&wait, 1, 0)), T(wait.revents);
    T(eventfd(0, 99)), T(write(fd, (void *)8, 8)), T(read(fd, (void *)8, 8));
    int blocking = eventfd(0, 0);
    value = UINT64_MAX - 1;
    write(blocking, &value, 8);
    pthread_t thread;
    pthread_create(&thread, NULL, reads_soon, (void *)(intptr_t)blocking);
    T(write(blocking, &one, 8));
    pthread_join(thread, NULL);
    T(read(blocking, &value, 8)), T(value);
    int semaphore = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK);
    T(read(semaphore, &value, 8)), T(value), T(read(semaphore, &value, 8)), T(read(semaphore, &value, 8));
}

static void epolls(void) {
    int set = epoll_create1(0), fd = eventfd(0, 0), line[2];
    pipe(line);
    struct epoll_event event = {EPOLLIN, {0}}, got[4];
    T(epoll_create(0)), T(epoll_create1(99)), T(epoll_ctl(set, EPOLL_CTL_ADD, set, &event)), T(epoll_ctl(set, EPOLL_CTL_ADD, 99, &event)), T(epoll_ctl(99, EPOLL_CTL_ADD, fd, &event)), T(epoll_ctl(fd, EPOLL_CTL_ADD, line[0], &event));
    T(epoll_ctl(set, EPOLL_CTL_ADD, open("/dev/shm", O_RDONLY), &event)), T(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event)), T(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL)), T(epoll_ctl(set, 9, fd, &event)), T(epoll_ctl(set, EPOLL_CTL_ADD, fd, (void *)8));
    T(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)), T(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)), T(epoll_wait(set, got, 0, 0)), T(epoll_wait(set, got, -1, 0)), T(epoll_wait(fd, got, 1, 0)), T(epoll_wait(99, got, 1, 0)), T(epoll_wait(set, got, 1, 0));
    event.events = EPOLLEXCLUSIVE | EPOLLIN;
    T(epoll_ctl(set, EPOLL_CTL_ADD, line[0], &event)), T(epoll_ctl(set, EPOLL_CTL_MOD, line[0], &event)), T(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    event.events = EPOLLEXCLUSIVE | EPOLLONESHOT;
    T(epoll_ctl(set, EPOLL_CTL_ADD, line[1], &event)), event.events = EPOLLIN, T(epoll_ctl(set, EPOLL_CTL_MOD, line[0], &event));
    int outer = epoll_create1(0);
    event.events = EPOLLEXCLUSIVE | EPOLLIN;
    T(epoll_ctl(outer, EPOLL_CTL_ADD, set, &event)), event.events = EPOLLIN, T(epoll_ctl(outer, EPOLL_CTL_ADD, set, &event)), T(epoll_ctl(set, EPOLL_CTL_ADD, outer, &event));
    T(write(fd, &(uint64_t){1}, 8)), T(epoll_wait(outer, got, 4, 0)), T(epoll_wait(set, (void *)8, 1, 0)), T(epoll_wait(set, got, 0x40000000, 0)), T(syscall(SYS_epoll_pwait, set, got, 1, 0, 8, 8)), T(syscall(SYS_epoll_pwait, set, got, 1, 0, got, 4));
    struct timespec wrong = {0, 1000000000};
    struct pollfd many[2] = {{fd, POLLIN}, {-5, POLLIN}};
    T(poll(many, 2, 0)), T(many[1].revents), many[1].fd = 99, T(poll(many, 2, 0)), T(many[1].revents), T(poll((void *)8, 1, 0)), T(poll(NULL, 0, 0)), T(ppoll(many, 1, &wrong, NULL)), T(poll(many, -1, 0));
    struct timeval negative = {-1, 0}, none = {0, 0};
    T(select(-1, NULL, NULL, NULL, &none)), T(select(0, NULL, NULL, NULL, &negative)), T(select(1, (void *)8, NULL, NULL, &none)), T(syscall(SYS_pselect6, 0, 0, 0, 0, &wrong, 0));
    T(inotify_init1(99)), T(inotify_add_watch(set, ".", IN_OPEN)), T(inotify_add_watch(99, ".", IN_OPEN)), T(inotify_rm_watch(set, 1));
    int notify = inotify_init1(IN_NONBLOCK);
    T(inotify_add_watch(notify, ".", 0)), T(inotify_add_watch(notify, "nothing", IN_OPEN)), T(inotify_add_watch(notify, "", IN_OPEN)), T(inotify_rm_watch(notify, 99)), T(read(notify, big, 8)), T(read(notify, big, 100)), T(inotify_add_watch(notify, ".", IN_OPEN | IN_MASK_ADD | IN_MASK_CREATE));
}

static int futex(void *word, int operation, int value, void *timeout, void *second, int third) { return syscall(SYS_futex, word, operation, value, timeout, second, third); }
static uint32_t word, other_word;
static uint32_t *shared_word;
static void *waits_shared(void *unused) {
    struct timespec limit = {0, 300000000};
    T(futex(&word, FUTEX_WAIT, 0, &limit, NULL, 0));
    return unused;
}
static void *waits_private(void *unused) {
    struct timespec limit = {0, 300000000};
    T(futex(&word, FUTEX_WAIT_PRIVATE, 0, &limit, NULL, 0));
    return unused;
}
static void *waits_long(void *unused) {
    futex(&other_word, FUTEX_WAIT, 0, NULL, NULL, 0);
    return unused;
}
static void futexes(void) {
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + 4096, 4096);
    char *hidden = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct timespec none = {0, 1}, wrong = {0, 1000000000}, negative = {-1, 0};
    T(futex(page + 4096, FUTEX_WAKE, 1, NULL, NULL, 0)), T(futex(page + 4096, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0)), T(futex(hidden, FUTEX_WAKE, 1, NULL, NULL, 0)), T(futex(NULL, FUTEX_WAKE, 1, NULL, NULL, 0)), T(futex(NULL, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
    T(futex((void *)-8, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0)), T(futex((void *)-8, FUTEX_WAKE, 1, NULL, NULL, 0)), T(futex(page + 1, FUTEX_WAKE, 1, NULL, NULL, 0)), T(futex(page + 2, FUTEX_WAIT, 0, NULL, NULL, 0)), T(futex(page + 4096, FUTEX_WAIT, 0, &none, NULL, 0));
    T(futex(page + 4096, FUTEX_WAIT_PRIVATE, 0, &none, NULL, 0)), T(futex(page, FUTEX_WAIT, 1, NULL, NULL, 0)), T(futex(page, FUTEX_WAIT, 0, &none, NULL, 0)), T(futex(page, FUTEX_WAIT, 0, &wrong, NULL, 0)), T(futex(page, FUTEX_WAIT, 0, &negative, NULL, 0)), T(futex(page, FUTEX_WAIT, 0, (void *)8, NULL, 0));
    T(futex(page, FUTEX_WAIT_BITSET, 0, NULL, NULL, 0)), T(futex(page, FUTEX_WAKE_BITSET, 1, NULL, NULL, 0)), T(futex(page, FUTEX_REQUEUE, -1, NULL, page, 0)), T(futex(page, FUTEX_REQUEUE, 0, (void *)-1l, page, 0)), T(futex(page, FUTEX_CMP_REQUEUE, 0, NULL, page, 5)), T(futex(page, FUTEX_REQUEUE, 0, NULL, page + 4096, 0));
    T(futex(page, 99, 0, NULL, NULL, 0)), T(futex(page, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0)), T(futex(page, FUTEX_WAKE_OP, 1, NULL, page + 4096, 0)), T(futex(page, FUTEX_WAKE_OP, 1, NULL, page, FUTEX_OP(9, 0, 0, 0))), T(futex(page, FUTEX_WAKE_OP, 1, NULL, page, FUTEX_OP(0, 0, 9, 0)));
    pthread_t thread, more[3];
    pthread_create(&thread, NULL, waits_shared, NULL), pause_ms(100);
    T(futex(&word, FUTEX_WAKE_PRIVATE, 9, NULL, NULL, 0)), pthread_join(thread, NULL);
    pthread_create(&thread, NULL, waits_private, NULL), pause_ms(100);
    T(futex(&word, FUTEX_WAKE, 9, NULL, NULL, 0)), pthread_join(thread, NULL);
    for (int i = 0; i < 3; i++)
        pthread_create(&more[i], NULL, waits_long, NULL);
    pause_ms(150);
    T(futex(&other_word, FUTEX_WAKE, 0, NULL, NULL, 0)), T(futex(&other_word, FUTEX_WAKE, -1, NULL, NULL, 0)), T(futex(&other_word, FUTEX_WAKE, 9, NULL, NULL, 0)), T(futex(&other_word, FUTEX_WAKE, 0, NULL, NULL, 0));
    for (int i = 0; i < 3; i++)
        pthread_join(more[i], NULL);
    shared_word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (child == 0) {
        struct timespec limit = {5, 0};
        // Told by the exit status: whose line comes first is not said, as both run once it is woken.
        _exit(futex(shared_word, FUTEX_WAIT, 0, &limit, NULL, 0) == 0 ? 0 : errno);
    }
    pause_ms(150);
    T(futex(shared_word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0)), T(futex(shared_word, FUTEX_WAKE, 1, NULL, NULL, 0));
    int woken;
    waitpid(child, &woken, 0);
    T(WEXITSTATUS(woken)), T(syscall(SYS_set_robust_list, page, 8)), T(syscall(SYS_get_robust_list, 999999, page, page)), T(syscall(SYS_get_robust_list, 0, 8, page)), T(syscall(SYS_futex_waitv, page, 0, 0, 0, 0)), T(syscall(SYS_futex_waitv, page, 129, 0, 0, 0)), T(syscall(SYS_futex_waitv, page, 1, 9, 0, 0));
}

static void sockets(void) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), pair[2];
    struct linger linger = {1, 7};
    socklen_t length = sizeof linger;
    T(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length)), T(linger.l_onoff), T(linger.l_linger), linger.l_onoff = 5, linger.l_linger = 9;
    T(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger)), T(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length)), T(linger.l_onoff), T(linger.l_linger), T(length);
    T(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, 4)), linger.l_onoff = 0, linger.l_linger = 3, T(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger)), T(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length)), T(linger.l_onoff), T(linger.l_linger);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    struct sockaddr_un name = {AF_UNIX, "socket"}, wrong = {AF_INET, "x"};
    T(bind(fd, (void *)&wrong, sizeof wrong)), T(bind(fd, (void *)&name, 1)), T(bind(fd, (void *)&name, 200)), T(bind(fd, (void *)8, sizeof name)), T(bind(99, (void *)&name, sizeof name)), T(bind(0, (void *)&name, sizeof name)), T(listen(fd, 1));
    T(bind(fd, (void *)&name, sizeof name)), T(bind(fd, (void *)&name, sizeof name)), T(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&name, sizeof name)), T(connect(pair[0], (void *)&name, sizeof name)), T(accept(fd, NULL, NULL)), T(accept(pair[0], NULL, NULL));
    T(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&name, sizeof name)), T(connect(socket(AF_UNIX, SOCK_DGRAM, 0), (void *)&name, sizeof name)), T(listen(fd, 1)), T(listen(pair[0], 1)), T(listen(99, 1)), T(accept4(fd, NULL, NULL, 99)), T(fcntl(fd, F_SETFL, O_NONBLOCK)), T(accept(fd, NULL, NULL));
    T(shutdown(pair[0], 9)), T(shutdown(fd, SHUT_RDWR)), T(shutdown(99, 0)), T(shutdown(socket(AF_UNIX, SOCK_STREAM, 0), SHUT_RD)), T(getpeername(fd, (void *)&name, &length)), T(getsockname(99, (void *)&name, &length)), T(send(socket(AF_UNIX, SOCK_STREAM, 0), "x", 1, 0));
    T(recv(socket(AF_UNIX, SOCK_STREAM, 0), big, 1, 0)), T(recv(fd, big, 1, 0)), T(socket(AF_UNIX, 99, 0)), T(socket(AF_UNIX, SOCK_STREAM, 99)), T(socket(999, SOCK_STREAM, 0)), T(socketpair(AF_UNIX, SOCK_STREAM, 0, (void *)8)), T(socketpair(AF_UNIX, SOCK_RAW, 0, (int[2]){0}));
    length = -1, T(getsockopt(fd, SOL_SOCKET, SO_TYPE, big, &length)), length = 4, T(getsockopt(fd, SOL_SOCKET, 9999, big, &length)), T(getsockopt(fd, SOL_SOCKET, SO_TYPE, (void *)8, &length)), T(getsockopt(fd, 99, SO_TYPE, big, &length)), T(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, big, 1)), T(setsockopt(fd, SOL_SOCKET, SO_TYPE, big, 4));
    signal(SIGPIPE, SIG_IGN), close(pair[1]);
    T(send(pair[0], "x", 1, 0)), T(send(pair[0], "x", 1, MSG_NOSIGNAL)), T(recv(pair[0], big, 1, 0)), T(send(pair[0], (void *)8, 1, 0)), T(sendto(pair[0], "x", 1, 0, (void *)&name, sizeof name)), T(sendmsg(pair[0], (void *)8, 0)), T(recvmsg(pair[0], (void *)8, 0));
}

PROGRAM(waiting) {
    CHILD("splices", splices());
    CHILD("record locks", record_locks());
    CHILD("events", events());
    CHILD("epolls", epolls());
    CHILD("futexes", futexes());
    CHILD("sockets", sockets());
}

static void *waits_for_inner(void *set) {
    struct epoll_event event;
    T(epoll_wait((int)(intptr_t)set, &event, 1, 10000));
    return NULL;
}
// The first of two sets that watch alone is itself watched; nobody waits for it, so the second's waiter is woken.
PROGRAM(alone_and_watched) {
    int event = eventfd(0, EFD_NONBLOCK), first = epoll_create1(0), second = epoll_create1(0), outer = epoll_create1(0);
    struct epoll_event alone = {.events = EPOLLIN | EPOLLEXCLUSIVE}, plain = {.events = EPOLLIN};
    struct pollfd polled = {.fd = first, .events = POLLIN};
    pthread_t thread;
    T(epoll_ctl(first, EPOLL_CTL_ADD, event, &alone)), T(epoll_ctl(second, EPOLL_CTL_ADD, event, &alone)), T(epoll_ctl(outer, EPOLL_CTL_ADD, first, &plain));
    pthread_create(&thread, NULL, waits_for_inner, (void *)(intptr_t)second);
    pause_ms(100), T(write(event, &(uint64_t){1}, 8)), pthread_join(thread, NULL), T(epoll_wait(outer, &plain, 1, 0)), T(poll(&polled, 1, 0));
}
