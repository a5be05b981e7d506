// What calls on sockets refuse, page by page of the manual: lengths, ends that are shut, urgent bytes, names, options.
#include "answers.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#define BAD ((void *)8)
#define S(name, ...) tell(#name "(" #__VA_ARGS__ ")", (errno = 0, syscall(SYS_##name, ##__VA_ARGS__)))

static char page[4096] __attribute__((aligned(4096)));
static char much[1 << 20];

static struct sockaddr_in at(int port) {
    return (struct sockaddr_in){AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}};
}

// A socket of datagrams on loopback, and its address.
static int bound(int kind, struct sockaddr_in *name) {
    int fd = socket(AF_INET, kind | SOCK_NONBLOCK, 0);
    socklen_t length = sizeof *name;
    *name = at(0), bind(fd, (void *)name, sizeof *name), getsockname(fd, (void *)name, &length);
    return fd;
}

static void poll_of(const char *text, int fd) {
    struct pollfd wish = {fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI};
    poll(&wish, 1, 0), printf("%s: ready for %x\n", text, wish.revents);
}

PROGRAM(datagram_ends_shut) {
    int pair[2], lone = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0), again[2], third[2];
    socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair), socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, again), socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, third);
    signal(SIGPIPE, SIG_IGN);
    S(shutdown, lone, SHUT_RD), S(shutdown, lone, SHUT_WR), S(shutdown, lone, 3), S(recvfrom, lone, page, 1L, 0, NULL, NULL);
    T(send(pair[1], "one", 3, 0)), S(shutdown, pair[0], SHUT_RD), T(recv(pair[0], page, 10, 0)), T(recv(pair[0], page, 10, 0)), T(send(pair[1], "two", 3, 0)), T(send(pair[0], "back", 4, 0)), T(recv(pair[1], page, 10, 0)), poll_of("shut for reading", pair[0]), poll_of("its peer", pair[1]);
    T(send(again[0], "one", 3, 0)), S(shutdown, again[0], SHUT_WR), T(send(again[0], "two", 3, 0)), T(recv(again[1], page, 10, 0)), T(recv(again[1], page, 10, 0)), T(send(again[1], "back", 4, 0)), T(recv(again[0], page, 10, 0)), poll_of("shut for writing", again[0]), poll_of("its peer", again[1]);
    T(send(third[0], "one", 3, 0)), S(shutdown, third[0], SHUT_RDWR), T(send(third[0], "two", 3, 0)), T(send(third[1], "two", 3, 0)), T(recv(third[1], page, 10, 0)), T(recv(third[1], page, 10, 0)), T(recv(third[0], page, 10, 0)), poll_of("shut for both", third[0]), poll_of("its peer", third[1]), close(third[0]), T(send(third[1], "x", 1, 0)), T(recv(third[1], page, 10, 0)), poll_of("alone", third[1]);
}

PROGRAM(datagram_ends_shut_of_inet) {
    struct sockaddr_in name, other;
    int fd = bound(SOCK_DGRAM, &name), peer = bound(SOCK_DGRAM, &other), lone = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    signal(SIGPIPE, SIG_IGN);
    S(shutdown, lone, SHUT_RD), S(shutdown, lone, 9), S(recvfrom, lone, page, 1L, 0, NULL, NULL), connect(fd, (void *)&other, sizeof other), connect(peer, (void *)&name, sizeof name);
    poll_of("open", fd);
    T(send(peer, "one", 3, 0)), S(shutdown, fd, SHUT_RD), T(recv(fd, page, 10, 0)), T(recv(fd, page, 10, 0)), T(send(peer, "two", 3, 0)), T(recv(fd, page, 10, 0)), poll_of("shut for reading", fd), S(shutdown, fd, SHUT_WR), T(send(fd, "x", 1, 0)), poll_of("shut for both", fd), T(sendto(fd, "x", 1, 0, (void *)&other, sizeof other));
    S(shutdown, fd, 9), S(shutdown, fd, SHUT_RD);
}

PROGRAM(lengths_before_names) {
    struct sockaddr_in name, none = at(1), zero = at(0);
    struct sockaddr_un local = {AF_UNIX, "nothing"};
    int fd = bound(SOCK_DGRAM, &name), unix_fd = socket(AF_UNIX, SOCK_DGRAM, 0), stream = socket(AF_UNIX, SOCK_STREAM, 0), pair[2], six = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 loop = {AF_INET6, htons(1), 0, IN6ADDR_LOOPBACK_INIT};
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    T(sendto(fd, much, 65508, 0, (void *)&name, sizeof name)), T(sendto(fd, much, 65536, 0, (void *)&name, sizeof name)), T(sendto(fd, much, 70000, 0, NULL, 0)), T(sendto(fd, much, 70000, 0, (void *)&zero, sizeof zero)), T(sendto(fd, much, 70000, 0, (void *)&name, 3)), T(sendto(fd, much, 65507, 0, (void *)&name, 3)), T(sendto(fd, much, 1, 0, (void *)&zero, sizeof zero)), T(sendto(fd, much, 1, 0, NULL, 0)), T(sendto(fd, NULL, 70000, 0, (void *)&name, sizeof name)), T(sendto(fd, much, 65535, 0, NULL, 0)), T(sendto(fd, much, 65508, 0, (void *)&zero, sizeof zero)), T(sendto(fd, much, 65508, 0, (void *)&none, sizeof none));
    T(sendto(six, much, 70000, 0, (void *)&loop, sizeof loop)), T(sendto(six, much, 70000, 0, NULL, 0)), T(sendto(six, much, 65528, 0, (void *)&loop, sizeof loop)), T(sendto(six, much, 10, 0, (void *)&loop, 5)), T(sendto(six, much, 70000, 0, (void *)&loop, 5));
    int size = 4096;
    setsockopt(unix_fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size), setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    T(sendto(unix_fd, much, 100000, 0, (void *)&local, sizeof local)), T(sendto(unix_fd, much, 1, 0, (void *)&local, sizeof local)), T(sendto(unix_fd, much, 100000, 0, (void *)&local, 1)), T(sendto(unix_fd, much, 100000, 0, (void *)&name, sizeof name)), T(send(pair[0], much, 100000, 0)), T(send(pair[0], NULL, 100000, 0)), T(sendto(stream, much, 100000, 0, (void *)&local, sizeof local)), T(sendto(stream, much, 1, 0, (void *)&local, 1));
}

PROGRAM(lite_datagrams) {
    int one = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, IPPROTO_UDPLITE), two = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, IPPROTO_UDPLITE), plain = socket(AF_INET, SOCK_DGRAM, 0), six = socket(AF_INET6, SOCK_DGRAM, IPPROTO_UDPLITE), value = 0;
    struct sockaddr_in name = at(0), udp;
    socklen_t length = sizeof name, size = sizeof value;
    IS(one >= 0), IS(six >= 0), W(socket(AF_INET, SOCK_STREAM, IPPROTO_UDPLITE));
    T(bind(one, (void *)&name, sizeof name)), getsockname(one, (void *)&name, &length);
    T(getsockopt(one, SOL_SOCKET, SO_PROTOCOL, &value, &size)), T(value), T(getsockopt(one, SOL_SOCKET, SO_TYPE, &value, &size)), T(value);
    // The same port of UDP is another's.
    T(bind(plain, (void *)&name, sizeof name)), T(sendto(two, "abc", 3, 0, (void *)&name, sizeof name)), T(recv(one, page, 10, 0)), T(recv(plain, page, 10, MSG_DONTWAIT)), T(sendto(plain, "abc", 3, 0, (void *)&name, sizeof name)), T(recv(one, page, 10, 0)), T(recv(plain, page, 10, MSG_DONTWAIT));
    T(getsockopt(one, IPPROTO_UDPLITE, 10, &value, &size)), T(value), T(getsockopt(one, IPPROTO_UDPLITE, 11, &value, &size)), T(value), value = 20, T(setsockopt(two, IPPROTO_UDPLITE, 10, &value, size)), T(getsockopt(two, IPPROTO_UDPLITE, 10, &value, &size)), T(value), value = 3, T(setsockopt(two, IPPROTO_UDPLITE, 10, &value, size)), T(getsockopt(two, IPPROTO_UDPLITE, 10, &value, &size)), T(value), value = 9, T(setsockopt(one, IPPROTO_UDPLITE, 11, &value, size)), T(getsockopt(one, IPPROTO_UDPLITE, 11, &value, &size)), T(value), value = -1, T(setsockopt(one, IPPROTO_UDPLITE, 10, &value, size)), value = 100000, T(setsockopt(one, IPPROTO_UDPLITE, 11, &value, size)), T(getsockopt(one, IPPROTO_UDPLITE, 11, &value, &size)), T(value), T(setsockopt(plain, IPPROTO_UDPLITE, 10, &value, size)), T(getsockopt(plain, IPPROTO_UDPLITE, 10, &value, &size)), T(getsockopt(one, IPPROTO_UDPLITE, 77, &value, &size)), T(setsockopt(one, IPPROTO_UDPLITE, 10, &value, 2));
    // Covered are eight bytes; the receiver wants none, then more than that.
    value = 8, T(setsockopt(two, IPPROTO_UDPLITE, 10, &value, size)), value = 0, T(setsockopt(one, IPPROTO_UDPLITE, 11, &value, size)), T(sendto(two, "partly", 6, 0, (void *)&name, sizeof name)), T(recv(one, page, 10, 0)), value = 12, T(setsockopt(one, IPPROTO_UDPLITE, 11, &value, size)), T(sendto(two, "partly", 6, 0, (void *)&name, sizeof name)), T(recv(one, page, 10, 0)), value = 12, T(setsockopt(two, IPPROTO_UDPLITE, 10, &value, size)), T(sendto(two, "partly", 6, 0, (void *)&name, sizeof name)), T(recv(one, page, 10, 0));
    close(one), T(connect(two, (void *)&name, sizeof name)), T(send(two, "x", 1, 0)), T(send(two, "x", 1, 0));
    struct sockaddr_in6 loop = {AF_INET6, 0, 0, IN6ADDR_LOOPBACK_INIT};
    length = sizeof loop, T(bind(six, (void *)&loop, length)), getsockname(six, (void *)&loop, &length), T(sendto(six, "six", 3, 0, (void *)&loop, length)), T(recv(six, page, 10, 0));
}

PROGRAM(names_refused) {
    struct sockaddr_in name, any = {AF_INET}, elsewhere = {AF_INET, htons(5), {htonl(0x01020304)}}, unspecified = {AF_UNSPEC}, wrong = {AF_UNIX};
    int fd = bound(SOCK_DGRAM, &name), stream = bound(SOCK_STREAM, &any), more = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), six = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 mapped = {AF_INET6, 0, 0, {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 127, 0, 0, 1}}}};
    socklen_t length = sizeof name;
    S(bind, fd, &name, sizeof name), S(bind, socket(AF_INET, SOCK_DGRAM, 0), &name, sizeof name), S(bind, more, &elsewhere, sizeof elsewhere), S(bind, more, &unspecified, sizeof unspecified), S(bind, more, &wrong, sizeof wrong), S(bind, more, &name, 7), S(bind, more, &name, 129), S(bind, more, NULL, 0), S(bind, six, &name, sizeof name), S(bind, six, &mapped, 20), S(bind, six, &mapped, sizeof mapped), S(listen, fd, 1), S(listen, stream, -1), S(listen, stream, 5), S(bind, stream, &any, sizeof any), S(accept4, stream, NULL, NULL, 0), S(accept4, fd, NULL, NULL, 0), S(connect, stream, &name, sizeof name), S(connect, more, &unspecified, sizeof unspecified), S(connect, more, &wrong, sizeof wrong), S(connect, more, &name, 5), S(connect, fd, &wrong, sizeof wrong), S(connect, fd, &unspecified, sizeof unspecified), S(connect, fd, &name, 7), S(getpeername, fd, page, &length), S(getpeername, more, page, &length), S(getpeername, stream, page, &length), S(getsockname, fd, page, NULL), S(getsockname, 99, page, &length), S(accept, more, NULL, NULL), S(accept, stream, page, &(socklen_t){-1});
    T(connect(fd, (void *)&(struct sockaddr_in){AF_INET, htons(9), {INADDR_BROADCAST}}, sizeof name)), T(sendto(fd, "x", 1, 0, (void *)&(struct sockaddr_in){AF_INET, htons(9), {INADDR_BROADCAST}}, sizeof name));
    CHILD("low ports", setresuid(1000, 1000, 1000), T(bind(socket(AF_INET, SOCK_STREAM, 0), (void *)&(struct sockaddr_in){AF_INET, htons(80)}, sizeof name)), W(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)), W(socket(AF_PACKET, SOCK_RAW, 0)));
}

PROGRAM(socket_kinds_refused) {
    W(socket(AF_INET, SOCK_RAW, 0)), W(socket(AF_INET, SOCK_SEQPACKET, 0)), W(socket(AF_INET, SOCK_RDM, 0)), W(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP)), W(socket(AF_INET, SOCK_STREAM, -1)), W(socket(AF_INET, SOCK_STREAM, 256)), W(socket(AF_INET, SOCK_STREAM, 300)), W(socket(AF_INET6, SOCK_SEQPACKET, 0)), W(socket(AF_INET6, SOCK_DGRAM, 256)), W(socket(AF_UNIX, SOCK_STREAM, AF_UNIX)), W(socket(AF_UNIX, SOCK_RAW, 0)), W(socket(AF_UNIX, SOCK_DCCP, 0)), W(socket(AF_INET, 0, 0)), W(socket(AF_INET, 11, 0)), W(socket(0, SOCK_STREAM, 0)), W(socket(46, SOCK_STREAM, 0)), W(socket(AF_NETLINK, SOCK_STREAM, 0)), W(socket(AF_NETLINK, SOCK_RAW, 99)), W(socket(AF_NETLINK, SOCK_RAW, -1)), W(socket(AF_NETLINK, SOCK_SEQPACKET, 0)), W(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)), W(socket(AF_INET, SOCK_STREAM | 0x10, 0));
    int pair[2];
    W(socketpair(AF_INET, SOCK_DGRAM, 0, pair)), W(socketpair(AF_UNIX, SOCK_RAW, 0, pair)), W(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair)), W(socketpair(AF_NETLINK, SOCK_RAW, 0, pair)), W(socketpair(99, SOCK_RAW, 0, pair)), W(socketpair(AF_UNIX, SOCK_STREAM, 2, pair)), W(socketpair(AF_UNIX, SOCK_STREAM, 1, pair)), W(socketpair(AF_UNIX, 0x1000 | SOCK_STREAM, 0, pair));
}

PROGRAM(messages_refused) {
    int pair[2], datagrams[2];
    struct iovec some = {page, 4}, wrong = {BAD, 4}, endless = {page, -1};
    struct mmsghdr two[2] = {{{.msg_iov = &some, .msg_iovlen = 1}}, {{.msg_iov = BAD, .msg_iovlen = 1}}};
    struct {
        struct cmsghdr head;
        int fds[300];
    } control = {{CMSG_LEN(4), SOL_SOCKET, SCM_RIGHTS}, {99}};
    struct timespec late = {0, 1000000000}, soon = {0, 0};
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, datagrams), signal(SIGPIPE, SIG_IGN);
    S(sendmsg, pair[0], &((struct msghdr){.msg_iov = &wrong, .msg_iovlen = 1}), 0), S(sendmsg, pair[0], &((struct msghdr){.msg_iov = &endless, .msg_iovlen = 1}), 0), S(sendmsg, pair[0], &((struct msghdr){.msg_iov = &some, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(4)}), 0), control.fds[0] = pair[0], control.head.cmsg_level = 99, S(sendmsg, pair[0], &((struct msghdr){.msg_iov = &some, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(4)}), 0), control.head.cmsg_level = SOL_SOCKET, control.head.cmsg_type = 99, S(sendmsg, pair[0], &((struct msghdr){.msg_iov = &some, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(4)}), 0), control.head.cmsg_type = SCM_RIGHTS, control.head.cmsg_len = 3, S(sendmsg, pair[0], &((struct msghdr){.msg_iov = &some, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(4)}), 0), control.head.cmsg_len = 500, S(sendmsg, pair[0], &((struct msghdr){.msg_iov = &some, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(4)}), 0);
    for (int i = 0; i < 300; i++)
        control.fds[i] = pair[0];
    control.head.cmsg_len = CMSG_LEN(4 * 254), S(sendmsg, pair[0], &((struct msghdr){.msg_iov = &some, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(4 * 254)}), 0);
    S(sendmmsg, pair[0], two, 2, 0), S(sendmmsg, datagrams[0], two, 2, 0), S(sendmmsg, datagrams[0], two + 1, 1, 0), S(sendmmsg, 99, two, 1, 0), S(recvmmsg, datagrams[1], two, 2, 0, &late), S(recvmmsg, datagrams[1], two, 1, 0, BAD), S(recvmmsg, datagrams[1], two, 1, 0, &soon), S(recvmmsg, datagrams[1], two, 0, 0, NULL), S(recvmmsg, 99, two, 1, 0, NULL), S(recvmmsg, datagrams[1], two, 1, 0, NULL), S(recvmmsg, datagrams[1], two, 1, 0x80000000, NULL), S(sendmsg, datagrams[0], &two[0].msg_hdr, 0x80000000);
    S(recvfrom, datagrams[1], page, 1L, MSG_ERRQUEUE, NULL, NULL), S(recvfrom, datagrams[1], page, 1L, 0, page, BAD), S(recvfrom, datagrams[1], BAD, 1L, 0, NULL, NULL), S(recvfrom, pair[1], page, -1L, MSG_DONTWAIT, NULL, NULL), S(recvfrom, 99, page, 1L, 0, NULL, NULL), S(sendto, 99, page, 1L, 0, NULL, 0), S(sendto, datagrams[0], page, 1L, MSG_DONTROUTE, NULL, 0), S(sendto, datagrams[0], page, 1L, 0, BAD, 16), S(sendto, datagrams[0], page, 1L, 0, page, -1), S(sendto, datagrams[0], page, 1L, 0, page, 200), close(pair[1]), S(sendto, pair[0], page, 1L, MSG_NOSIGNAL, NULL, 0), S(write, pair[0], page, 1L), S(sendto, pair[0], page, 0L, MSG_NOSIGNAL, NULL, 0), S(write, pair[0], page, 0L);
}

PROGRAM(options_refused) {
    int stream = socket(AF_INET, SOCK_STREAM, 0), datagram = socket(AF_INET, SOCK_DGRAM, 0), local = socket(AF_UNIX, SOCK_STREAM, 0), value = -1, number;
    socklen_t size = sizeof value;
    struct timeval wrong = {0, 1000000}, before = {-1, 0}, got;
    T(setsockopt(stream, SOL_SOCKET, SO_RCVTIMEO, &wrong, sizeof wrong)), T(setsockopt(stream, SOL_SOCKET, SO_RCVTIMEO, &before, sizeof before)), size = sizeof got, T(getsockopt(stream, SOL_SOCKET, SO_RCVTIMEO, &got, &size)), T(got.tv_sec);
    int options[] = {SO_DEBUG, SO_REUSEADDR, SO_TYPE, SO_ERROR, SO_DONTROUTE, SO_BROADCAST, SO_SNDBUF, SO_RCVBUF, SO_KEEPALIVE, SO_OOBINLINE, SO_NO_CHECK, SO_PRIORITY, SO_REUSEPORT, SO_RCVLOWAT, SO_SNDLOWAT, SO_ACCEPTCONN, SO_PROTOCOL, SO_DOMAIN, SO_NOFCS, SO_BUSY_POLL, SO_INCOMING_CPU, SO_PREFER_BUSY_POLL, SO_RXQ_OVFL, SO_SELECT_ERR_QUEUE, SO_LOCK_FILTER, SO_TIMESTAMP, SO_RESERVE_MEM, SO_COOKIE, SO_MEMINFO, SO_DETACH_FILTER, 99};
    for (int i = 0; i < sizeof options / sizeof *options; i++) {
        char text[64];
        size = sizeof number, number = 0, sprintf(text, "get %d of stream", options[i]), tell(text, getsockopt(stream, SOL_SOCKET, options[i], &number, &size));
        size = sizeof number, number = 0, sprintf(text, "get %d of datagram", options[i]), tell(text, getsockopt(datagram, SOL_SOCKET, options[i], &number, &size));
        size = sizeof number, number = 0, sprintf(text, "get %d of local", options[i]), tell(text, getsockopt(local, SOL_SOCKET, options[i], &number, &size));
        sprintf(text, "set %d of stream", options[i]), tell(text, setsockopt(stream, SOL_SOCKET, options[i], &(int){1}, sizeof number)), sprintf(text, "set %d of local", options[i]), tell(text, setsockopt(local, SOL_SOCKET, options[i], &(int){1}, sizeof number)), sprintf(text, "set %d of datagram", options[i]), tell(text, setsockopt(datagram, SOL_SOCKET, options[i], &(int){1}, sizeof number));
        sprintf(text, "set %d too short", options[i]), tell(text, setsockopt(stream, SOL_SOCKET, options[i], &(int){1}, 3));
    }
}

PROGRAM(options_of_tcp_refused) {
    int stream = socket(AF_INET, SOCK_STREAM, 0), number;
    socklen_t size;
    for (int option = 0; option <= 35; option++) {
        char text[64];
        if (option == TCP_INFO || option == TCP_CC_INFO || option == TCP_ULP || option == TCP_ZEROCOPY_RECEIVE || option == TCP_MD5SIG || option == TCP_MD5SIG_EXT || option == TCP_FASTOPEN_KEY || option == TCP_SAVED_SYN || option == TCP_REPAIR || option == TCP_REPAIR_QUEUE || option == TCP_QUEUE_SEQ || option == TCP_REPAIR_OPTIONS || option == TCP_REPAIR_WINDOW || option == TCP_TIMESTAMP || option == TCP_CONGESTION)
            continue;
        size = sizeof number, number = 0, sprintf(text, "get %d", option), tell(text, getsockopt(stream, IPPROTO_TCP, option, &number, &size));
        sprintf(text, "set %d to -1", option), tell(text, setsockopt(stream, IPPROTO_TCP, option, &(int){-1}, sizeof number)), sprintf(text, "set %d to 0", option), tell(text, setsockopt(stream, IPPROTO_TCP, option, &(int){0}, sizeof number)), sprintf(text, "set %d to 1", option), tell(text, setsockopt(stream, IPPROTO_TCP, option, &(int){1}, sizeof number)), sprintf(text, "set %d to 100000", option), tell(text, setsockopt(stream, IPPROTO_TCP, option, &(int){100000}, sizeof number)), sprintf(text, "set %d too short", option), tell(text, setsockopt(stream, IPPROTO_TCP, option, &(int){1}, 3));
        size = sizeof number, number = 0, sprintf(text, "get %d after", option), tell(text, getsockopt(stream, IPPROTO_TCP, option, &number, &size));
    }
}
