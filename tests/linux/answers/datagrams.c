// How a datagram is to be sent, and how it came: control messages both ways, scopes of IPv6, sockets of one interface.
#include "answers.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>

static int bound_to(int family, void *name, socklen_t length) {
    int fd = socket(family, SOCK_DGRAM, 0);
    bind(fd, name, length), getsockname(fd, name, &length);
    return fd;
}
// Sends with a control message.
static long send_with(int fd, void *name, socklen_t name_length, int level, int type, const void *data, size_t length) {
    char control[128] = {0};
    struct iovec part = {"x", 1};
    struct msghdr head = {.msg_name = name, .msg_namelen = name_length, .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(length)};
    struct cmsghdr *first = CMSG_FIRSTHDR(&head);
    first->cmsg_level = level, first->cmsg_type = type, first->cmsg_len = CMSG_LEN(length), memcpy(CMSG_DATA(first), data, length);
    return sendmsg(fd, &head, MSG_NOSIGNAL);
}
// Receives one and says what came with it.
static void receive(int fd) {
    char control[512], bytes[8], text[64];
    struct sockaddr_storage from;
    struct iovec part = {bytes, 8};
    struct msghdr head = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t count = recvmsg(fd, &head, MSG_DONTWAIT);
    if (count < 0) {
        printf("nothing: %s\n", strerrorname_np(errno));
        return;
    }
    inet_ntop(from.ss_family, from.ss_family == AF_INET ? (void *)&((struct sockaddr_in *)&from)->sin_addr : (void *)&((struct sockaddr_in6 *)&from)->sin6_addr, text, sizeof text), printf("%zd from %s:", count, text);
    for (struct cmsghdr *told = CMSG_FIRSTHDR(&head); told; told = CMSG_NXTHDR(&head, told)) {
        unsigned char *data = CMSG_DATA(told);
        printf(" [%d %d %zu", told->cmsg_level, told->cmsg_type, told->cmsg_len);
        for (size_t i = 0; i < told->cmsg_len - CMSG_LEN(0); i++)
            printf(" %d", data[i]);
        printf("]");
    }
    printf("\n"), fflush(stdout);
}
#define ON(fd, level, name) setsockopt(fd, level, name, &(int){1}, 4)
#define SET(fd, level, name, value) setsockopt(fd, level, name, &(int){value}, 4)
PROGRAM(datagrams_as_they_are_told_to_go) {
    struct sockaddr_in to = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
    struct in_pktinfo info = {0};
    int in = bound_to(AF_INET, &to, sizeof to), out = socket(AF_INET, SOCK_DGRAM, 0), tcp = socket(AF_INET, SOCK_STREAM, 0), value;
    ON(in, IPPROTO_IP, IP_PKTINFO), ON(in, IPPROTO_IP, IP_RECVTTL), ON(in, IPPROTO_IP, IP_RECVTOS);
    sendto(out, "x", 1, 0, (void *)&to, sizeof to), receive(in);
    T(SET(out, IPPROTO_IP, IP_TTL, 7)), T(SET(out, IPPROTO_IP, IP_TOS, 0x48)), sendto(out, "x", 1, 0, (void *)&to, sizeof to), receive(in);
    value = 33, T(send_with(out, &to, sizeof to, IPPROTO_IP, IP_TTL, &value, 4)), receive(in), value = 0, T(send_with(out, &to, sizeof to, IPPROTO_IP, IP_TTL, &value, 4)), value = 256, T(send_with(out, &to, sizeof to, IPPROTO_IP, IP_TTL, &value, 4)), T(send_with(out, &to, sizeof to, IPPROTO_IP, IP_TTL, &value, 1));
    value = 0x10, T(send_with(out, &to, sizeof to, IPPROTO_IP, IP_TOS, &value, 4)), receive(in), value = 0x20, T(send_with(out, &to, sizeof to, IPPROTO_IP, IP_TOS, &value, 1)), receive(in), T(send_with(out, &to, sizeof to, IPPROTO_IP, IP_TOS, &value, 2)), value = -1, T(send_with(out, &to, sizeof to, IPPROTO_IP, IP_TOS, &value, 4));
    info.ipi_spec_dst.s_addr = htonl(0x7f000063), T(send_with(out, &to, sizeof to, IPPROTO_IP, IP_PKTINFO, &info, sizeof info)), receive(in), info.ipi_spec_dst.s_addr = 0, info.ipi_addr.s_addr = htonl(0x0a636363), T(send_with(out, &to, sizeof to, IPPROTO_IP, IP_PKTINFO, &info, sizeof info)), receive(in), info.ipi_ifindex = 1, T(send_with(out, &to, sizeof to, IPPROTO_IP, IP_PKTINFO, &info, sizeof info)), receive(in), info.ipi_ifindex = 999, T(send_with(out, &to, sizeof to, IPPROTO_IP, IP_PKTINFO, &info, sizeof info)), T(send_with(out, &to, sizeof to, IPPROTO_IP, IP_PKTINFO, &info, 8)), receive(in);
    value = 1, T(send_with(out, &to, sizeof to, IPPROTO_IP, 99, &value, 4)), T(send_with(out, &to, sizeof to, SOL_SOCKET, 99, &value, 4)), T(send_with(out, &to, sizeof to, SOL_SOCKET, SCM_RIGHTS, &value, 4)), receive(in), T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_HOPLIMIT, &value, 4)), receive(in), T(send_with(out, &to, sizeof to, 77, 1, &value, 4)), receive(in), T(send_with(out, &to, sizeof to, SOL_SOCKET, SO_TIMESTAMPING, &value, 4)), receive(in);
    connect(out, (void *)&to, sizeof to), value = 44, T(send_with(out, NULL, 0, IPPROTO_IP, IP_TTL, &value, 4)), receive(in), T(getsockopt(out, IPPROTO_IP, IP_TTL, &value, &(socklen_t){4})), T(value);
    T(send_with(tcp, NULL, 0, SOL_SOCKET, 99, &value, 4));
    CHILD("nobody", (setresuid(7, 7, 7), T(send_with(out, NULL, 0, SOL_SOCKET, SO_MARK, &value, 4))));
    struct sockaddr_in own = {AF_INET, 0, {htonl(0x7f000005)}};
    int fixed = bound_to(AF_INET, &own, sizeof own);
    sendto(fixed, "x", 1, 0, (void *)&to, sizeof to), receive(in), info.ipi_ifindex = 0, info.ipi_spec_dst.s_addr = htonl(0x7f000007), T(send_with(fixed, &to, sizeof to, IPPROTO_IP, IP_PKTINFO, &info, sizeof info)), receive(in);
}
PROGRAM(datagrams_of_ipv6_as_they_are_told_to_go) {
    struct sockaddr_in6 to = {AF_INET6, 0, 0, IN6ADDR_LOOPBACK_INIT}, mapped = {AF_INET6}, any = {AF_INET6};
    struct in6_pktinfo info = {IN6ADDR_ANY_INIT};
    int in = bound_to(AF_INET6, &to, sizeof to), out = socket(AF_INET6, SOCK_DGRAM, 0), both = bound_to(AF_INET6, &any, sizeof any), value;
    ON(in, IPPROTO_IPV6, IPV6_RECVPKTINFO), ON(in, IPPROTO_IPV6, IPV6_RECVHOPLIMIT), ON(in, IPPROTO_IPV6, IPV6_RECVTCLASS);
    sendto(out, "x", 1, 0, (void *)&to, sizeof to), receive(in);
    T(SET(out, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 9)), T(SET(out, IPPROTO_IPV6, IPV6_TCLASS, 0x28)), sendto(out, "x", 1, 0, (void *)&to, sizeof to), receive(in);
    value = 33, T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_HOPLIMIT, &value, 4)), receive(in), value = -1, T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_HOPLIMIT, &value, 4)), receive(in), value = 256, T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_HOPLIMIT, &value, 4)), value = -2, T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_HOPLIMIT, &value, 4)), T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_HOPLIMIT, &value, 1));
    value = 0x30, T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_TCLASS, &value, 4)), receive(in), T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_TCLASS, &value, 1)), value = 256, T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_TCLASS, &value, 4)), value = -1, T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_TCLASS, &value, 4)), receive(in);
    T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info)), receive(in), info.ipi6_ifindex = 1, info.ipi6_addr = in6addr_loopback, T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info)), receive(in), info.ipi6_ifindex = 999, T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info)), info.ipi6_ifindex = 0, inet_pton(AF_INET6, "2001:db8::1", &info.ipi6_addr), T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info)), inet_pton(AF_INET6, "fe80::77", &info.ipi6_addr), T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info)), T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_PKTINFO, &info, 16));
    value = 1, T(send_with(out, &to, sizeof to, IPPROTO_IPV6, 99, &value, 4)), T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_DONTFRAG, &value, 4)), receive(in), value = 2, T(send_with(out, &to, sizeof to, IPPROTO_IPV6, IPV6_DONTFRAG, &value, 4)), T(send_with(out, &to, sizeof to, IPPROTO_IP, IP_TTL, &value, 4)), receive(in);
    // Mapped addresses.
    ON(both, IPPROTO_IPV6, IPV6_RECVPKTINFO), ON(both, IPPROTO_IPV6, IPV6_RECVHOPLIMIT), ON(both, IPPROTO_IP, IP_RECVTTL), inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr), mapped.sin6_port = any.sin6_port, value = 21, T(send_with(out, &mapped, sizeof mapped, IPPROTO_IP, IP_TTL, &value, 4)), receive(both), T(send_with(out, &mapped, sizeof mapped, IPPROTO_IPV6, IPV6_HOPLIMIT, &value, 4)), receive(both), inet_pton(AF_INET6, "::ffff:127.0.0.9", &info.ipi6_addr), T(send_with(out, &mapped, sizeof mapped, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info)), receive(both), info.ipi6_addr = in6addr_loopback, T(send_with(out, &mapped, sizeof mapped, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info));
}
PROGRAM(scopes) {
    struct sockaddr_in6 name = {AF_INET6, htons(9), 0, IN6ADDR_LOOPBACK_INIT, 1}, told = {0};
    socklen_t length = sizeof told;
    int udp = socket(AF_INET6, SOCK_DGRAM, 0), tcp = socket(AF_INET6, SOCK_STREAM, 0);
    T(connect(udp, (void *)&name, sizeof name)), T(getpeername(udp, (void *)&told, &length)), T(told.sin6_scope_id), T(getsockname(udp, (void *)&told, &length)), T(told.sin6_scope_id), name.sin6_scope_id = 999, T(connect(udp, (void *)&name, sizeof name));
    inet_pton(AF_INET6, "fe80::1234", &name.sin6_addr), name.sin6_scope_id = 0, T(connect(udp, (void *)&name, sizeof name)), T(connect(tcp, (void *)&name, sizeof name)), T(bind(socket(AF_INET6, SOCK_DGRAM, 0), (void *)&name, sizeof name)), T(bind(tcp, (void *)&name, sizeof name)), name.sin6_scope_id = 1, T(bind(tcp, (void *)&name, sizeof name)), name.sin6_scope_id = 999, T(bind(tcp, (void *)&name, sizeof name)), T(bind(socket(AF_INET6, SOCK_DGRAM, 0), (void *)&name, sizeof name)), T(connect(tcp, (void *)&name, sizeof name));
}
PROGRAM(sockets_of_one_interface) {
    struct sockaddr_in to = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}}, again;
    int in = bound_to(AF_INET, &to, sizeof to), out = socket(AF_INET, SOCK_DGRAM, 0), listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), both = socket(AF_INET, SOCK_DGRAM, 0);
    char name[16];
    socklen_t length = sizeof again;
    T(setsockopt(in, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3)), T(setsockopt(out, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2)), T(sendto(out, "x", 1, 0, (void *)&to, sizeof to)), receive(in);
    again = to, ON(both, SOL_SOCKET, SO_REUSEADDR), T(bind(both, (void *)&again, sizeof again));
    T(setsockopt(listener, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3)), again.sin_port = 0, bind(listener, (void *)&again, sizeof again), listen(listener, 1), getsockname(listener, (void *)&again, &length), T(setsockopt(client, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3)), T(connect(client, (void *)&again, sizeof again)), W(client = accept(listener, NULL, NULL)), length = 16, T(getsockopt(client, SOL_SOCKET, SO_BINDTODEVICE, name, &length)), T(length), length = 2, T(getsockopt(client, SOL_SOCKET, SO_BINDTODEVICE, name, &length));
    CHILD("nobody", (setresuid(7, 7, 7), T(setsockopt(out, SOL_SOCKET, SO_BINDTODEVICE, "", 0)), T(setsockopt(socket(AF_INET, SOCK_DGRAM, 0), SOL_SOCKET, SO_BINDTODEVICE, "lo", 3)), T(setsockopt(socket(AF_INET, SOCK_DGRAM, 0), SOL_SOCKET, SO_BINDTODEVICE, "lo", 3))));
    T(setsockopt(out, SOL_SOCKET, SO_BINDTODEVICE, "abcdefghijklmnopqrstuvw", 22)), T(setsockopt(out, SOL_SOCKET, SO_BINDTODEVICE, (void *)8, 3));
}

// One datagram of several sends, and several of one.
static void receive_all(int fd) {
    char bytes[70000];
    ssize_t count;
    while ((count = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) >= 0)
        printf(" %zd:%.*s", count, (int)(count < 8 ? count : 8), bytes);
    printf(" %s\n", strerrorname_np(errno)), fflush(stdout);
}
#define READ(what) (fflush(stdout), soon_read(what))
static void soon_read(int fd) {
    struct pollfd wish = {fd, POLLIN};
    poll(&wish, 1, 20), receive_all(fd);
}
PROGRAM(datagrams_in_parts) {
    struct sockaddr_in to = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}}, elsewhere = {AF_INET, htons(9), {htonl(INADDR_LOOPBACK)}};
    int in = bound_to(AF_INET, &to, sizeof to), out = socket(AF_INET, SOCK_DGRAM, 0), value;
    static char bytes[70000];
    unsigned short size;
    socklen_t length = 4;
    memset(bytes, 'b', sizeof bytes);
    T(sendto(out, "ab", 2, MSG_MORE, (void *)&to, sizeof to)), soon_read(in), T(sendto(out, "cd", 2, MSG_MORE, (void *)&elsewhere, sizeof elsewhere)), T(send(out, "ef", 2, 0)), soon_read(in), T(send(out, "x", 1, MSG_MORE)), T(sendto(out, "", 0, MSG_MORE, (void *)&to, sizeof to)), T(sendto(out, "", 0, 0, (void *)&to, sizeof to)), soon_read(in);
    T(sendto(out, bytes, 40000, MSG_MORE, (void *)&to, sizeof to)), T(sendto(out, bytes, 40000, 0, (void *)&to, sizeof to)), T(sendto(out, "after", 5, 0, (void *)&to, sizeof to)), soon_read(in), T(sendto(out, "ok", 2, MSG_MORE, (void *)&to, sizeof to)), T(sendto(out, (void *)8, 2, 0, (void *)&to, sizeof to)), T(sendto(out, "then", 4, 0, (void *)&to, sizeof to)), soon_read(in);
    T(getsockopt(out, IPPROTO_UDP, UDP_CORK, &value, &length)), T(value), T(SET(out, IPPROTO_UDP, UDP_CORK, 1)), T(sendto(out, "one", 3, 0, (void *)&to, sizeof to)), T(sendto(out, "two", 3, 0, (void *)&to, sizeof to)), soon_read(in), T(SET(out, IPPROTO_UDP, UDP_CORK, 0)), soon_read(in), T(SET(out, IPPROTO_UDP, UDP_CORK, 5)), T(getsockopt(out, IPPROTO_UDP, UDP_CORK, &value, &length)), T(value), T(sendto(out, "left", 4, 0, (void *)&to, sizeof to)), T(close(out)), soon_read(in), out = socket(AF_INET, SOCK_DGRAM, 0);
    // Cut into several.
    T(getsockopt(out, IPPROTO_UDP, UDP_SEGMENT, &value, &length)), T(value), T(SET(out, IPPROTO_UDP, UDP_SEGMENT, -1)), T(SET(out, IPPROTO_UDP, UDP_SEGMENT, 65536)), T(SET(out, IPPROTO_UDP, UDP_SEGMENT, 4)), T(getsockopt(out, IPPROTO_UDP, UDP_SEGMENT, &value, &length)), T(value), T(sendto(out, "aaaabbbbcc", 10, 0, (void *)&to, sizeof to)), soon_read(in), T(sendto(out, "abc", 3, 0, (void *)&to, sizeof to)), soon_read(in), T(sendto(out, bytes, 4 * 200, 0, (void *)&to, sizeof to)), soon_read(in), T(sendto(out, "", 0, 0, (void *)&to, sizeof to)), soon_read(in);
    size = 3, T(send_with(out, &to, sizeof to, IPPROTO_UDP, UDP_SEGMENT, &size, 2)), soon_read(in), value = 3, T(send_with(out, &to, sizeof to, IPPROTO_UDP, UDP_SEGMENT, &value, 4)), T(send_with(out, &to, sizeof to, IPPROTO_UDP, 99, &size, 2)), soon_read(in);
    T(SET(in, IPPROTO_UDP, UDP_GRO, 1)), T(getsockopt(in, IPPROTO_UDP, UDP_GRO, &value, &length)), T(value), T(SET(in, IPPROTO_UDP, 101, 1)), T(SET(in, IPPROTO_UDP, 102, 1)), T(getsockopt(in, IPPROTO_UDP, 101, &value, &length)), T(value), T(setsockopt(in, IPPROTO_UDP, UDP_CORK, &value, 1)), T(setsockopt(in, IPPROTO_UDP, 77, &value, 4)), T(getsockopt(in, IPPROTO_UDP, 77, &value, &length));
}
