// Connections over loopback, where programs seldom look: a socket that connects to itself, urgent data, waiting in
// `close`, buffers that end in nothing, connections that are there when their data is, data with the first segment.
#include "answers.h"
#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>

static int listener_of(struct sockaddr_in *name, int defer) {
    socklen_t length = sizeof *name;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    *name = (struct sockaddr_in){AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
    bind(fd, (void *)name, sizeof *name), getsockname(fd, (void *)name, &length);
    if (defer)
        setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &defer, 4);
    listen(fd, 5);
    return fd;
}
static void pair_of(int fd[2]) {
    struct sockaddr_in name;
    int listener = listener_of(&name, 0);
    fd[0] = socket(AF_INET, SOCK_STREAM, 0), connect(fd[0], (void *)&name, sizeof name), fd[1] = accept(listener, NULL, NULL), close(listener);
}
static int events_of(int fd) {
    struct pollfd wish = {fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDBAND};
    poll(&wish, 1, 20);
    return wish.revents;
}
// Linux sends what is urgent on its way at once, but a reader may be quicker.
static int soon(int fd, int wanted) {
    struct pollfd wish = {fd, wanted};
    poll(&wish, 1, 2000);
    return wish.revents;
}
static int error_of(int fd) {
    int value = -1;
    socklen_t length = 4;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &length);
    return value;
}
static int state_of(int fd) {
    unsigned char about[256] = {0};
    socklen_t length = sizeof about;
    getsockopt(fd, IPPROTO_TCP, TCP_INFO, about, &length);
    return about[0];
}
static long since_ms(struct timespec from) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000;
}
static const char *roughly(long ms, long wanted) {
    return ms < wanted - 30 ? "sooner" : ms > wanted + 700 ? "later" : "as long";
}

PROGRAM(a_socket_connects_to_itself) {
    char bytes[64];
    struct sockaddr_in own = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}}, other;
    socklen_t length = sizeof own;
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, again;
    T(bind(fd, (void *)&own, sizeof own)), getsockname(fd, (void *)&own, &length);
    T(connect(fd, (void *)&own, sizeof own)), T(getpeername(fd, (void *)&other, &length)), IS(other.sin_port == own.sin_port), T(state_of(fd)), T(events_of(fd));
    T(connect(fd, (void *)&own, sizeof own)), T(send(fd, "hello", 5, 0)), T(events_of(fd)), T(ioctl(fd, FIONREAD, &one)), T(one), T(recv(fd, bytes, 64, 0)), printf("%.5s\n", bytes), T(recv(fd, bytes, 64, MSG_DONTWAIT)), T(listen(fd, 5));
    again = socket(AF_INET, SOCK_STREAM, 0), T(bind(again, (void *)&own, sizeof own)), T(connect(again, (void *)&own, sizeof own));
    T(send(fd, "rest", 4, 0)), T(shutdown(fd, SHUT_WR)), T(state_of(fd)), T(events_of(fd)), T(send(fd, "x", 1, MSG_NOSIGNAL)), T(recv(fd, bytes, 64, 0)), T(recv(fd, bytes, 64, 0)), T(error_of(fd)), T(close(fd));
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), own.sin_port = 0, bind(fd, (void *)&own, sizeof own), length = sizeof own, getsockname(fd, (void *)&own, &length);
    T(connect(fd, (void *)&own, sizeof own)), T(soon(fd, POLLOUT)), T(connect(fd, (void *)&own, sizeof own)), T(connect(fd, (void *)&own, sizeof own)), T(send(fd, "left", 4, 0)), T(shutdown(fd, SHUT_RD)), T(events_of(fd)), T(recv(fd, bytes, 64, 0)), T(recv(fd, bytes, 64, 0)), T(send(fd, "left", 4, 0)), T(shutdown(fd, SHUT_RDWR)), T(events_of(fd)), T(close(fd));
    struct sockaddr_in6 six = {AF_INET6, 0, 0, IN6ADDR_LOOPBACK_INIT};
    fd = socket(AF_INET6, SOCK_STREAM, 0), length = sizeof six, T(bind(fd, (void *)&six, sizeof six)), getsockname(fd, (void *)&six, &length), T(connect(fd, (void *)&six, sizeof six)), T(send(fd, "six", 3, 0)), T(recv(fd, bytes, 64, 0)), T(send(fd, "unread", 6, 0)), T(close(fd));
    fd = socket(AF_INET, SOCK_STREAM, 0), own.sin_port = 0, own.sin_addr.s_addr = INADDR_ANY, length = sizeof own, bind(fd, (void *)&own, sizeof own), getsockname(fd, (void *)&own, &length), T(connect(fd, (void *)&own, sizeof own)), getsockname(fd, (void *)&own, &length), puts(inet_ntoa(own.sin_addr)), T(state_of(fd));
}

static volatile int urgent_count, alarm_count;
static void on_urgent(int number) {
    urgent_count++;
}
static void on_alarm(int number) {
    alarm_count++;
}
static int mark_of(int fd) {
    int is_there = -1;
    return ioctl(fd, SIOCATMARK, &is_there) ? -1 : is_there;
}
static int waiting_of(int fd) {
    int count = -1;
    return ioctl(fd, FIONREAD, &count) ? -1 : count;
}
PROGRAM(urgent_data) {
    char bytes[64];
    int fd[2], one = 1;
    pair_of(fd);
    T(recv(fd[1], bytes, 1, MSG_OOB)), T(mark_of(fd[1])), T(send(fd[0], "ab", 2, 0)), T(send(fd[0], "c", 1, MSG_OOB)), T(send(fd[0], "de", 2, 0)), T(soon(fd[1], POLLPRI)), T(events_of(fd[1])), T(waiting_of(fd[1])), T(mark_of(fd[1]));
    T(recv(fd[1], bytes, 64, 0)), T(mark_of(fd[1])), T(waiting_of(fd[1])), T(events_of(fd[1])), T(recv(fd[1], bytes, 64, MSG_OOB | MSG_PEEK)), T(recv(fd[1], bytes, 64, MSG_OOB)), printf("%c\n", bytes[0]), T(recv(fd[1], bytes, 64, MSG_OOB)), T(events_of(fd[1])), T(mark_of(fd[1])), T(recv(fd[1], bytes, 64, 0)), printf("%.2s\n", bytes), T(mark_of(fd[1])), T(recv(fd[1], bytes, 1, MSG_OOB));
    // Of several bytes the last is urgent.
    T(send(fd[0], "xyz", 3, MSG_OOB)), soon(fd[1], POLLPRI), T(recv(fd[1], bytes, 64, MSG_OOB)), printf("%c\n", bytes[0]), T(recv(fd[1], bytes, 64, 0)), printf("%.2s\n", bytes), T(waiting_of(fd[1])), T(recv(fd[1], bytes, 64, MSG_DONTWAIT));
    // What was urgent before is not any more when another byte is; the next one to be read is lost.
    T(send(fd[0], "1", 1, MSG_OOB)), T(send(fd[0], "2", 1, MSG_OOB)), pause_ms(20), T(recv(fd[1], bytes, 64, MSG_OOB)), printf("%c\n", bytes[0]), T(recv(fd[1], bytes, 64, MSG_DONTWAIT));
    T(send(fd[0], "a", 1, 0)), T(send(fd[0], "1", 1, MSG_OOB)), T(send(fd[0], "2", 1, MSG_OOB)), pause_ms(20), T(waiting_of(fd[1])), T(recv(fd[1], bytes, 64, MSG_OOB)), printf("%c\n", bytes[0]), T(recv(fd[1], bytes, 64, MSG_DONTWAIT)), printf("%.2s\n", bytes), T(recv(fd[1], bytes, 64, MSG_DONTWAIT));
    // A reader passes over it unread.
    T(send(fd[0], "pq", 2, MSG_OOB)), T(send(fd[0], "r", 1, 0)), soon(fd[1], POLLPRI), pause_ms(20), T(recv(fd[1], bytes, 64, MSG_PEEK)), T(recv(fd[1], bytes, 64, 0)), T(recv(fd[1], bytes, 64, 0)), printf("%c\n", bytes[0]), T(recv(fd[1], bytes, 64, MSG_OOB)), T(events_of(fd[1]));
    // It stays among the others.
    T(setsockopt(fd[1], SOL_SOCKET, SO_OOBINLINE, &one, 4)), T(send(fd[0], "in", 2, MSG_OOB)), T(send(fd[0], "e", 1, 0)), soon(fd[1], POLLPRI), pause_ms(20), T(recv(fd[1], bytes, 64, MSG_OOB)), T(waiting_of(fd[1])), T(events_of(fd[1])), T(recv(fd[1], bytes, 64, 0)), T(mark_of(fd[1])), T(waiting_of(fd[1])), T(recv(fd[1], bytes, 64, 0)), printf("%.2s\n", bytes), T(mark_of(fd[1])), T(events_of(fd[1]));
    T(send(fd[0], "", 0, MSG_OOB)), T(events_of(fd[1]));
    fd_set reading = {0}, others = {0};
    struct timeval soon_enough = {1, 0};
    send(fd[0], "s", 1, MSG_OOB), soon(fd[1], POLLPRI), FD_SET(fd[1], &reading), FD_SET(fd[1], &others), T(select(fd[1] + 1, &reading, NULL, &others, &soon_enough)), IS(FD_ISSET(fd[1], &reading)), IS(FD_ISSET(fd[1], &others)), T(recv(fd[1], bytes, 64, 0));
}
PROGRAM(urgent_data_alone) {
    char bytes[64];
    int fd[2];
    pair_of(fd);
    // Nothing but it.
    T(send(fd[0], "u", 1, MSG_OOB)), T(soon(fd[1], POLLPRI)), T(events_of(fd[1])), T(waiting_of(fd[1])), T(mark_of(fd[1])), T(recv(fd[1], bytes, 64, MSG_DONTWAIT)), T(mark_of(fd[1])), T(recv(fd[1], bytes, 64, MSG_OOB)), T(recv(fd[1], bytes, 64, MSG_DONTWAIT)), T(waiting_of(fd[1])), T(mark_of(fd[1])), T(events_of(fd[1]));
    T(send(fd[0], "v", 1, MSG_OOB)), soon(fd[1], POLLPRI), T(recv(fd[1], bytes, 0, MSG_OOB)), T(recv(fd[1], bytes, 1, MSG_OOB)), T(send(fd[0], "w", 1, MSG_OOB)), soon(fd[1], POLLPRI), pause_ms(20), T(recv(fd[1], (void *)8, 1, MSG_OOB)), T(recv(fd[1], bytes, 1, MSG_OOB));
    T(send(fd[0], "ab", 2, 0)), T(send(fd[0], "c", 1, MSG_OOB)), T(send(fd[0], "de", 2, 0)), soon(fd[1], POLLPRI), pause_ms(20), T(recv(fd[1], bytes, 5, MSG_WAITALL)), T(recv(fd[1], bytes, 2, MSG_WAITALL));
    struct iovec part = {bytes, 64};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};
    send(fd[0], "m", 1, MSG_OOB), soon(fd[1], POLLPRI), pause_ms(20), T(recvmsg(fd[1], &head, MSG_OOB)), T(head.msg_flags & MSG_OOB), T(read(fd[1], bytes, 0)), send(fd[0], "ab", 2, 0), soon(fd[1], POLLIN), send(fd[0], "n", 1, MSG_OOB), soon(fd[1], POLLPRI), pause_ms(20), T(read(fd[1], bytes, 64)), send(fd[0], "o", 1, MSG_OOB), close(fd[0]), pause_ms(20), T(events_of(fd[1])), T(recv(fd[1], bytes, 64, MSG_OOB)), T(recv(fd[1], bytes, 64, 0)), T(recv(fd[1], bytes, 64, MSG_OOB)), T(recv(fd[1], bytes, 64, 0)), T(events_of(fd[1]));
    int listener = socket(AF_INET, SOCK_STREAM, 0), fresh = socket(AF_INET, SOCK_STREAM, 0);
    listen(listener, 1), T(recv(listener, bytes, 1, MSG_OOB)), T(recv(fresh, bytes, 1, MSG_OOB)), T(send(fresh, bytes, 1, MSG_OOB | MSG_NOSIGNAL)), T(mark_of(listener)), T(mark_of(fresh)), T(mark_of(socket(AF_INET, SOCK_DGRAM, 0))), pair_of(fd), T(send(fd[0], "a", 1, MSG_OOB)), soon(fd[1], POLLPRI), T(recv(fd[1], bytes, 64, MSG_TRUNC | MSG_DONTWAIT)), T(send(fd[0], "bc", 2, 0)), soon(fd[1], POLLIN), pause_ms(20), T(recv(fd[1], bytes, 64, MSG_TRUNC | MSG_DONTWAIT)), T(shutdown(fd[0], SHUT_WR)), T(send(fd[0], "a", 1, MSG_OOB | MSG_NOSIGNAL));
}
PROGRAM(urgent_data_signals_its_owner) {
    char bytes[64];
    int fd[2];
    struct sigaction act = {.sa_handler = on_urgent};
    struct epoll_event event = {EPOLLPRI | EPOLLET};
    pair_of(fd), sigaction(SIGURG, &act, NULL);
    T(send(fd[0], "n", 1, MSG_OOB)), soon(fd[1], POLLPRI), pause_ms(20), T(urgent_count), T(fcntl(fd[1], F_GETOWN)), T(fcntl(fd[1], F_SETOWN, getpid())), T(send(fd[0], "o", 1, MSG_OOB)), pause_ms(50), T(urgent_count), T(send(fd[0], "p", 1, 0)), pause_ms(50), T(urgent_count), T(send(fd[0], "q", 1, MSG_OOB)), pause_ms(50), T(urgent_count), T(recv(fd[1], bytes, 64, MSG_OOB)), T(fcntl(fd[1], F_SETOWN, 0)), T(send(fd[0], "r", 1, MSG_OOB)), pause_ms(50), T(urgent_count);
    int set = epoll_create1(0);
    while (recv(fd[1], bytes, 64, MSG_DONTWAIT) > 0) {
    }
    recv(fd[1], bytes, 64, MSG_OOB), epoll_ctl(set, EPOLL_CTL_ADD, fd[1], &event), T(epoll_wait(set, &event, 1, 20)), send(fd[0], "s", 1, MSG_OOB), T(epoll_wait(set, &event, 1, 1000)), T(event.events), T(epoll_wait(set, &event, 1, 20)), send(fd[0], "t", 1, 0), T(epoll_wait(set, &event, 1, 20)), send(fd[0], "u", 1, MSG_OOB), T(epoll_wait(set, &event, 1, 1000)), T(event.events);
}

// A connection whose reader takes no more for now.
static void full_pair_of(int fd[2], struct linger *wish) {
    static char bytes[1 << 16];
    int small = 65536;
    pair_of(fd), setsockopt(fd[1], SOL_SOCKET, SO_RCVBUF, &small, 4), setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &small, 4), setsockopt(fd[0], SOL_SOCKET, SO_LINGER, wish, sizeof *wish);
    while (send(fd[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
}
PROGRAM(closing_waits) {
    static char bytes[1 << 20];
    int fd[2];
    struct linger wish = {1, 1}, told;
    struct timespec from;
    socklen_t length = sizeof told;
    // Nothing is on its way.
    pair_of(fd), setsockopt(fd[0], SOL_SOCKET, SO_LINGER, &wish, sizeof wish), T(getsockopt(fd[0], SOL_SOCKET, SO_LINGER, &told, &length)), T(told.l_onoff), T(told.l_linger), clock_gettime(CLOCK_MONOTONIC, &from), T(close(fd[0])), IS(since_ms(from) < 300), T(recv(fd[1], bytes, 1, 0)), close(fd[1]);
    // Nobody reads.
    for (int is_ready = 0; is_ready < 2; is_ready++) {
        full_pair_of(fd, &wish);
        if (is_ready)
            fcntl(fd[0], F_SETFL, O_NONBLOCK);
        clock_gettime(CLOCK_MONOTONIC, &from), T(close(fd[0])), puts(roughly(since_ms(from), 1000)), IS(recv(fd[1], bytes, 100, 0) == 100), close(fd[1]);
    }
    // Somebody reads after a while.
    wish.l_linger = 5, full_pair_of(fd, &wish);
    int ready[2];
    pipe(ready);
    pid_t reader = fork();
    if (reader == 0) {
        close(fd[0]), write(ready[1], "x", 1), pause_ms(300);
        while (recv(fd[1], bytes, sizeof bytes, 0) > 0) {
        }
        _exit(0);
    }
    close(fd[1]), read(ready[0], bytes, 1), clock_gettime(CLOCK_MONOTONIC, &from), T(close(fd[0])), IS(since_ms(from) >= 250 && since_ms(from) < 3000), waitpid(reader, NULL, 0);
    // A signal ends it.
    full_pair_of(fd, &wish);
    struct itimerval soon_enough = {{0, 0}, {0, 200000}};
    struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &act, NULL), setitimer(ITIMER_REAL, &soon_enough, NULL), clock_gettime(CLOCK_MONOTONIC, &from), T(close(fd[0])), puts(roughly(since_ms(from), 200)), T(alarm_count), T(fcntl(fd[0], F_GETFD));
    // The end of a process, and the last of two descriptors.
    full_pair_of(fd, &wish);
    clock_gettime(CLOCK_MONOTONIC, &from), reader = dup(fd[0]), T(close(fd[0])), IS(since_ms(from) < 300);
    if ((reader = fork()) == 0)
        _exit(0);
    waitpid(reader, NULL, 0), IS(since_ms(from) < 300);
}

PROGRAM(buffers_that_end_in_nothing) {
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), bytes[64];
    int fd[2], udp = socket(AF_INET, SOCK_DGRAM, 0), local[2];
    memset(page, 'x', 8192), mprotect(page + 4096, 4096, PROT_NONE);
    struct sockaddr_in name = {AF_INET, htons(9), {htonl(INADDR_LOOPBACK)}};
    struct iovec parts[3] = {{bytes, 10}, {page + 4096, 10}, {bytes, 10}}, late[2] = {{page + 4090, 6}, {page + 4090, 20}};
    struct msghdr head = {.msg_iov = parts, .msg_iovlen = 3};
    pair_of(fd);
    T(send(fd[0], page + 4096, 1, 0)), T(send(fd[0], page + 4090, 20, 0)), T(write(fd[0], page + 4090, 20)), T(sendmsg(fd[0], &head, 0)), T(writev(fd[0], parts, 2)), T(writev(fd[0], late, 2)), T(recv(fd[1], bytes, 64, MSG_DONTWAIT));
    T(sendto(udp, page + 4090, 20, 0, (void *)&name, sizeof name)), head.msg_name = &name, head.msg_namelen = sizeof name, T(sendmsg(udp, &head, 0)), parts[1].iov_len = 0, T(sendmsg(udp, &head, 0)), parts[1].iov_base = (void *)-1L, T(sendmsg(udp, &head, 0)), parts[1].iov_len = -1L, T(sendmsg(udp, &head, 0));
    T(send(fd[0], (void *)-4096L, 4, 0)), T(send(fd[0], page, 0, 0)), T(send(fd[0], (void *)8, 0, 0)), T(sendmsg(fd[0], (void *)8, 0)), T(send(fd[0], "0123456789", 10, 0)), pause_ms(20);
    // Into such.
    T(recv(fd[1], page + 4096, 4, 0)), T(recv(fd[1], page + 4092, 10, 0)), T(recv(fd[1], bytes, 64, MSG_DONTWAIT)), T(send(fd[0], "0123456789", 10, 0)), pause_ms(20), parts[0] = (struct iovec){page + 4092, 4}, parts[1] = (struct iovec){page + 4096, 10}, T(readv(fd[1], parts, 2)), T(recv(fd[1], bytes, 64, MSG_DONTWAIT));
    T(send(fd[0], "ab", 2, 0)), T(send(fd[0], "cd", 2, MSG_OOB)), pause_ms(20), T(recv(fd[1], page + 4096, 1, MSG_PEEK)), T(recv(fd[1], (void *)8, 64, MSG_TRUNC));
}

PROGRAM(connections_with_their_data) {
    char bytes[64];
    struct sockaddr_in name;
    struct timespec from;
    int listener = listener_of(&name, 1), client = socket(AF_INET, SOCK_STREAM, 0), other, fd;
    struct pollfd wish = {listener, POLLIN};
    fcntl(listener, F_SETFL, O_NONBLOCK);
    T(connect(client, (void *)&name, sizeof name)), T(state_of(client)), T(events_of(client)), T(accept(listener, NULL, NULL)), T(poll(&wish, 1, 100)), T(send(client, "hi", 2, 0)), T(poll(&wish, 1, 1000)), W(fd = accept(listener, NULL, NULL)), T(recv(fd, bytes, 64, MSG_DONTWAIT)), close(fd), close(client);
    // After the time it is there without.
    client = socket(AF_INET, SOCK_STREAM, 0), clock_gettime(CLOCK_MONOTONIC, &from), T(connect(client, (void *)&name, sizeof name)), T(poll(&wish, 1, 5000)), IS(since_ms(from) > 700 && since_ms(from) < 3000), W(fd = accept(listener, NULL, NULL)), T(recv(fd, bytes, 64, MSG_DONTWAIT)), T(events_of(fd)), close(fd), close(client);
    // The end of the other side is as good as data.
    client = socket(AF_INET, SOCK_STREAM, 0), T(connect(client, (void *)&name, sizeof name)), T(poll(&wish, 1, 50)), T(shutdown(client, SHUT_WR)), T(poll(&wish, 1, 500)), W(fd = accept(listener, NULL, NULL)), T(recv(fd, bytes, 64, 0)), close(fd), close(client);
    // A reset ends it.
    struct linger hard = {1, 0};
    client = socket(AF_INET, SOCK_STREAM, 0), T(connect(client, (void *)&name, sizeof name)), setsockopt(client, SOL_SOCKET, SO_LINGER, &hard, sizeof hard), T(close(client)), T(poll(&wish, 1, 100));
    // Those that wait do not keep others out.
    other = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), T(connect(other, (void *)&name, sizeof name)), T(connect(client, (void *)&name, sizeof name)), T(send(client, "abc", 3, 0)), T(poll(&wish, 1, 500)), W(fd = accept(listener, NULL, NULL)), T(recv(fd, bytes, 64, MSG_DONTWAIT)), T(accept(listener, NULL, NULL));
    T(close(listener)), pause_ms(20), T(send(other, "x", 1, MSG_NOSIGNAL)), pause_ms(20), T(events_of(other)), T(recv(other, bytes, 1, 0)), T(recv(client, bytes, 1, MSG_DONTWAIT));
}

PROGRAM(data_with_the_first_segment) {
    char bytes[64];
    struct sockaddr_in name, nobody;
    int listener = listener_of(&name, 0), gone = listener_of(&nobody, 0), fd = socket(AF_INET, SOCK_STREAM, 0), other, one = 1, two = 2, value;
    socklen_t length = 4;
    close(gone);
    T(sendto(fd, "hello", 5, MSG_FASTOPEN, (void *)&name, sizeof name)), W(other = accept(listener, NULL, NULL)), T(recv(other, bytes, 64, 0)), T(sendto(fd, "again", 5, MSG_FASTOPEN, (void *)&name, sizeof name)), T(sendto(fd, "again", 5, 0, (void *)&name, sizeof name)), T(recv(other, bytes, 64, 0)), close(fd), close(other);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), T(sendto(fd, "hello", 5, MSG_FASTOPEN, (void *)&name, sizeof name)), T(soon(fd, POLLOUT)), W(other = accept(listener, NULL, NULL)), T(recv(other, bytes, 64, MSG_DONTWAIT)), T(send(fd, "now", 3, 0)), T(recv(other, bytes, 64, 0)), close(fd), close(other);
    fd = socket(AF_INET, SOCK_STREAM, 0), T(sendto(fd, "hello", 5, MSG_FASTOPEN, (void *)&nobody, sizeof nobody)), T(error_of(fd)), T(send(fd, "x", 1, MSG_FASTOPEN)), T(sendto(fd, "hello", 5, MSG_FASTOPEN, (void *)&name, 4)), T(sendto(fd, "hello", 5, MSG_FASTOPEN, (void *)&name, sizeof name)), W(accept(listener, NULL, NULL)), T(close(fd));
    fd = socket(AF_INET, SOCK_STREAM, 0), name.sin_family = AF_UNSPEC, T(sendto(fd, "hello", 5, MSG_FASTOPEN, (void *)&name, sizeof name)), name.sin_family = AF_INET6, T(sendto(fd, "hello", 5, MSG_FASTOPEN, (void *)&name, sizeof name)), name.sin_family = AF_INET, T(sendto(fd, "", 0, MSG_FASTOPEN, (void *)&name, sizeof name)), T(state_of(fd)), W(accept(listener, NULL, NULL)), T(sendto(socket(AF_INET, SOCK_DGRAM, 0), "x", 1, MSG_FASTOPEN, (void *)&name, sizeof name)), T(send(socket(AF_INET, SOCK_STREAM, 0), "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL));
    // A connection that begins with the first bytes.
    fd = socket(AF_INET, SOCK_STREAM, 0), T(getsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &value, &length)), T(value), T(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &two, 4)), T(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, 4)), T(getsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &value, &length)), T(value), T(connect(fd, (void *)&name, sizeof name)), T(state_of(fd)), T(send(fd, "hello", 5, 0)), W(other = accept(listener, NULL, NULL)), T(recv(other, bytes, 64, 0)), T(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, 4)), T(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, &one, 4)), T(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN, &one, 4)), T(setsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, 4)), T(setsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, &one, 4)), T(setsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, &two, 4)), length = 4, T(getsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, &value, &length)), T(value);
    char key[32] = "0123456789abcdef";
    length = 32, T(getsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN_KEY, key, &length)), T(length), T(setsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN_KEY, key, 4)), T(setsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN_KEY, key, 16)), T(setsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN_KEY, key, 32)), T(setsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN_KEY, key, 33));
}
