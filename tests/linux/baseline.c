// Many of everything, and what is left of it: forks, pipes, threads, and processes that are killed at any moment while
// they hold locks, descriptors, pipes and sockets. Prints what every Linux prints. In Aegis, where nobody else runs, it
// also demands that processes are after each round what they were before it, and memory and exos's own structures after one.
// Arguments: how many hundredths of the full number to do of each, and how many rounds to compare after a first, short one.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) printf("line %d: not so: %s (errno %d)\n", __LINE__, #x, errno), fflush(stdout); } while (0)

static unsigned seed = 1;
static unsigned drawn(unsigned below) { seed = seed * 1103515245 + 12345; return (seed >> 16) % below; }

static void forks(int count) {
    int sum = 0, expected = 0;
    for (int i = 0; i < count; i += 10) {
        for (int j = 0; j < 10; j++) {
            expected += (i + j) % 100;
            if (fork()) continue;
            char *memory = malloc(20000);
            memset(memory, i, 20000);
            int file = open("/dev/null", O_WRONLY);
            if (write(file, memory, 20000) != 20000) _exit(101);
            _exit((i + j) % 100);
        }
        for (int j = 0; j < 10; j++) { int status = -1; CHECK(wait(&status) > 0); sum += WEXITSTATUS(status); }
    }
    printf("forks %d %d\n", sum == expected, waitpid(-1, 0, 0) == -1 && errno == ECHILD);
}

static void pipes(int count) {
    int good = 0;
    for (int i = 0; i < count; i++) {
        int ends[2];
        char c = i, got = 0;
        CHECK(pipe(ends) == 0);
        good += write(ends[1], &c, 1) == 1 && (i & 1 || (read(ends[0], &got, 1) == 1 && got == c));
        close(ends[0]), close(ends[1]);
    }
    printf("pipes %d\n", good == count);
}

static __thread int own;
static void *thread_body(void *argument) {
    own = (int)(intptr_t)argument;
    char *memory = malloc(5000);
    memset(memory, 1, 5000);
    int event = eventfd(0, EFD_CLOEXEC);
    uint64_t value = own + 1;
    CHECK(write(event, &value, 8) == 8 && read(event, &value, 8) == 8);
    close(event), free(memory);
    return (void *)(intptr_t)(value == (uint64_t)own + 1 ? own : -1);
}

static void threads(int count) {
    int good = 0;
    for (int i = 0; i < count; i += 20) {
        pthread_t made[20];
        for (int j = 0; j < 20; j++) CHECK(pthread_create(&made[j], 0, thread_body, (void *)(intptr_t)(i + j)) == 0);
        for (int j = 0; j < 20; j++) { void *result = 0; CHECK(pthread_join(made[j], &result) == 0); good += result == (void *)(intptr_t)(i + j); }
    }
    printf("threads %d\n", good == count);
}

static struct shared { pthread_mutex_t mutex; long held; } *shared;
static int lock_file, stream[2], started[2];

static void *holds_mutexes(void *unused) {
    for (;;) {
        int result = pthread_mutex_lock(&shared->mutex);
        if (result == EOWNERDEAD) result = pthread_mutex_consistent(&shared->mutex);
        if (result) _exit(102);
        shared->held++;
        pthread_mutex_unlock(&shared->mutex);
    }
}

static void *talks(void *unused) {
    char buffer[3000] = {0};
    for (;;) {
        // Both ways through one socket that all have: what one sends another receives.
        send(stream[0], buffer, 1 + drawn(sizeof buffer - 1), MSG_DONTWAIT);
        recv(stream[1], buffer, sizeof buffer, MSG_DONTWAIT);
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) continue;
        union { struct cmsghdr header; char bytes[CMSG_SPACE(sizeof(int))]; } control = {0};
        struct iovec piece = {buffer, 1};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        control.header.cmsg_level = SOL_SOCKET, control.header.cmsg_type = SCM_RIGHTS, control.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.header), &pair[1], sizeof(int));
        sendmsg(pair[0], &message, 0);
        close(pair[0]), close(pair[1]);
    }
}

static void *uses_files(void *unused) {
    for (;;) {
        int ends[2], epoll = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
        struct itimerspec soon = {.it_value.tv_nsec = 100000};
        timerfd_settime(timer, 0, &soon, 0);
        if (pipe(ends)) continue;
        struct epoll_event event = {.events = EPOLLIN};
        epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event), epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event);
        struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = drawn(10), .l_len = 1};
        fcntl(lock_file, F_SETLKW, &range);
        char name[32];
        snprintf(name, sizeof name, "/proc/self/fd/%d", lock_file);
        int own = open(name, O_RDWR);
        flock(own, LOCK_EX);
        char *mapped = mmap(0, 16384, PROT_READ | PROT_WRITE, drawn(2) ? MAP_SHARED : MAP_PRIVATE, lock_file, 0);
        if (mapped != MAP_FAILED) mapped[drawn(16384)]++, munmap(mapped, 16384);
        epoll_wait(epoll, &event, 1, 1);
        range.l_type = F_UNLCK;
        fcntl(lock_file, F_SETLK, &range);
        close(own), close(ends[0]), close(ends[1]), close(epoll), close(timer);
    }
}

static void victim(unsigned number) {
    seed = number;
    pthread_t thread;
    pthread_create(&thread, 0, holds_mutexes, 0);
    pthread_create(&thread, 0, talks, 0);
    if (write(started[1], "", 1) != 1) _exit(103);
    if (number % 3 == 0) for (;;) { pid_t pid = fork(); if (!pid) _exit(0); if (pid > 0) waitpid(pid, 0, 0); }
    if (number % 3 == 1) for (;;) own++;
    uses_files(0);
}

static void victims(int count) {
    int killed = 0;
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->mutex, &attributes);
    lock_file = memfd_create("locks", 0);
    CHECK(ftruncate(lock_file, 16384) == 0 && pipe(started) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, stream) == 0);
    for (int i = 0; i < count; i += 20) {
        pid_t pids[20];
        for (int j = 0; j < 20; j++) if (!(pids[j] = fork())) { victim(i + j + 1); _exit(104); }
        // Half are killed as they begin, half when all run.
        for (int j = 0; j < 10; j++) { usleep(drawn(500)); kill(pids[2 * j], SIGKILL); }
        for (int j = 0; j < 10; j++) { char c; CHECK(read(started[0], &c, 1) == 1); }
        for (int j = 0; j < 10; j++) { usleep(drawn(2000)); kill(pids[2 * j + 1], SIGKILL); }
        for (int j = 0; j < 20; j++) { int status = 0; CHECK(waitpid(pids[j], &status, 0) == pids[j]); killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }
    }
    // No process is left that could hold anything.
    int result = pthread_mutex_lock(&shared->mutex);
    CHECK(result == 0 || result == EOWNERDEAD && pthread_mutex_consistent(&shared->mutex) == 0);
    CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(fcntl(lock_file, F_SETLK, &all) == 0 && flock(lock_file, LOCK_EX | LOCK_NB) == 0);
    close(started[1]);
    char c;
    while (read(started[0], &c, 1) == 1);
    close(started[0]), close(lock_file), close(stream[0]), close(stream[1]);
    munmap(shared, 4096);
    printf("killed %d\n", killed == count);
}

static int entries(const char *folder) {
    int count = 0;
    DIR *open_folder = opendir(folder);
    for (struct dirent *entry; (entry = readdir(open_folder));) count += entry->d_name[0] >= '0' && entry->d_name[0] <= '9';
    closedir(open_folder);
    return count;
}

static char *text_of(const char *name) {
    static char text[8192];
    int file = open(name, O_RDONLY);
    long length = read(file, text, sizeof text - 1);
    text[length < 0 ? 0 : length] = 0;
    close(file);
    return text;
}

static struct left { long free_kib, slab_kib, stack_kib; int descriptors, processes; } look(void) {
    struct left left = {.descriptors = entries("/proc/self/fd"), .processes = entries("/proc")};
    char *text = text_of("/proc/meminfo");
    sscanf(strstr(text, "MemFree:") + 8, "%ld", &left.free_kib);
    sscanf(strstr(text, "Slab:") + 5, "%ld", &left.slab_kib);
    sscanf(strstr(text, "KernelStack:") + 12, "%ld", &left.stack_kib);
    return left;
}

// Room for lists that grew a little more this time: less than 80 bytes for each thread and process of half a round.
static int is_back(struct left now, struct left before) {
    return now.descriptors == before.descriptors && now.processes == before.processes && now.stack_kib <= before.stack_kib
        && now.free_kib + 64 >= before.free_kib && now.slab_kib <= before.slab_kib + 64;
}

static void show(struct left left) {
    fprintf(stderr, "free %ld KiB, slab %ld KiB, stacks %ld KiB, descriptors %d, processes %d\n", left.free_kib, left.slab_kib,
            left.stack_kib, left.descriptors, left.processes);
}

int main(int count, char **arguments) {
    int part = count > 1 ? atoi(arguments[1]) : 100, rounds = count > 2 ? atoi(arguments[2]) : 2, full = part;
    int is_alone = strstr(text_of("/proc/version"), "aegis") != 0;
    struct left before = look();
    int was_back = 0;
    setvbuf(stdout, 0, _IOLBF, 0);
    for (int i = 0; i <= rounds; i++) {
        part = i ? full : full / 5;
        forks(500 * part / 100 / 10 * 10);
        pipes(10000 * part / 100);
        threads(1000 * part / 100 / 20 * 20);
        victims(200 * part / 100 / 20 * 20);
        // The last to end may just be about to let go.
        struct left left = look();
        for (int j = 0; is_alone && j < 100 && !(i ? is_back(left, before) : left.processes == before.processes); j++)
            usleep(10000), left = look();
        if (getenv("SHOW")) show(left);
        if (i > 0) CHECK(left.descriptors == before.descriptors && (!is_alone || left.processes == before.processes));
        // Caches and tables grow to what ever was needed at once, which is chance. What stays behind grows in every round.
        if (i > 0 && is_back(left, before)) was_back = 1;
        before = left;
        printf("round %d\n", i);
    }
    if (is_alone && !was_back) show(before), puts("every round left something");
    return 0;
}
