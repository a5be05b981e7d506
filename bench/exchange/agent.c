/*
 * Obeys the player of `aegis test --frames` in a machine: sockets by order, on Aegis and on Linux alike.
 *
 *   agent           reads orders from standard input
 *   agent --init    the same as the first process of a Linux machine, which it gives its card and its addresses
 *
 * An order is a line `NUMBER ORDER WORDS...`, its answer a line `re NUMBER RESULT`: a count, text, or -ENAME. Sockets
 * are named by a letter and never wait; orders that need something of the network wait for it, LIMIT_MS or as long as
 * `limit MS` said.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "linux_network.h"

#define WORDS_MAX 12
#define LINE_MAX_BYTES 4096
#define LIMIT_MS 3000
#define SHOWN_MAX 48
#define BUFFER_BYTES (1 << 20)

static int sockets[26];
static int limit_ms = LIMIT_MS;
static unsigned char buffer[BUFFER_BYTES];
static char answer[LINE_MAX_BYTES];

struct option_name {
    const char *name;
    int level, option;
};

static const struct option_name options[] = {
    {"reuse", SOL_SOCKET, SO_REUSEADDR},       {"reuseport", SOL_SOCKET, SO_REUSEPORT},
    {"keepalive", SOL_SOCKET, SO_KEEPALIVE},   {"rcvbuf", SOL_SOCKET, SO_RCVBUF},
    {"sndbuf", SOL_SOCKET, SO_SNDBUF},         {"oobinline", SOL_SOCKET, SO_OOBINLINE},
    {"broadcast", SOL_SOCKET, SO_BROADCAST},   {"nodelay", IPPROTO_TCP, TCP_NODELAY},
    {"keepidle", IPPROTO_TCP, TCP_KEEPIDLE},   {"keepintvl", IPPROTO_TCP, TCP_KEEPINTVL},
    {"keepcnt", IPPROTO_TCP, TCP_KEEPCNT},     {"cork", IPPROTO_TCP, TCP_CORK},
    {"maxseg", IPPROTO_TCP, TCP_MAXSEG},       {"syncnt", IPPROTO_TCP, TCP_SYNCNT},
    {"quickack", IPPROTO_TCP, TCP_QUICKACK},   {"usertimeout", IPPROTO_TCP, TCP_USER_TIMEOUT},
    {"defer", IPPROTO_TCP, TCP_DEFER_ACCEPT},  {"linger2", IPPROTO_TCP, TCP_LINGER2},
    {"windowclamp", IPPROTO_TCP, TCP_WINDOW_CLAMP}, {"ttl", IPPROTO_IP, IP_TTL},
    {"tos", IPPROTO_IP, IP_TOS},               {"recverr", IPPROTO_IP, IP_RECVERR},
    {"mtudiscover", IPPROTO_IP, IP_MTU_DISCOVER}, {"mtu", IPPROTO_IP, IP_MTU},
    {"recverr6", IPPROTO_IPV6, IPV6_RECVERR},  {"v6only", IPPROTO_IPV6, IPV6_V6ONLY},
    {"hops", IPPROTO_IPV6, IPV6_UNICAST_HOPS}, {"mtu6", IPPROTO_IPV6, IPV6_MTU},
    {"mtudiscover6", IPPROTO_IPV6, IPV6_MTU_DISCOVER},
};

static int say(const char *text) {
    size_t length = strlen(text);
    while (length > 0) {
        ssize_t count = write(1, text, length);
        if (count <= 0) _exit(1);
        text += count, length -= count;
    }
    return 0;
}

static int number(long value) {
    if (value < 0) return snprintf(answer, sizeof answer, "-%s", strerrorname_np(errno));
    return snprintf(answer, sizeof answer, "%ld", value);
}

/* A count and the bytes themselves, or a sum of them if they are many or not printable. */
static int bytes(ssize_t count) {
    if (count <= 0) return number(count);
    int is_plain = count <= SHOWN_MAX;
    unsigned sum = 2166136261u;
    for (ssize_t i = 0; i < count; i++) {
        if (buffer[i] <= ' ' || buffer[i] > '~') is_plain = 0;
        sum = (sum ^ buffer[i]) * 16777619u;
    }
    if (is_plain) return snprintf(answer, sizeof answer, "%zd %.*s", count, (int)count, buffer);
    return snprintf(answer, sizeof answer, "%zd #%08x", count, sum);
}

static int *slot(const char *name) {
    static int none = -1;
    return name && name[0] >= 'a' && name[0] <= 'z' && !name[1] ? &sockets[name[0] - 'a'] : &none;
}

static int wait_for(int fd, int events, int wait_ms) {
    struct pollfd entry = {fd, events, 0};
    if (wait_ms > limit_ms) wait_ms = limit_ms;
    return poll(&entry, 1, wait_ms) > 0 ? entry.revents : 0;
}

static socklen_t address(struct sockaddr_storage *name, const char *text, const char *port) {
    struct sockaddr_in *v4 = (void *)name;
    struct sockaddr_in6 *v6 = (void *)name;
    memset(name, 0, sizeof *name);
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET, v4->sin_port = htons(atoi(port));
        return sizeof *v4;
    }
    char plain[64];
    snprintf(plain, sizeof plain, "%s", text);
    char *zone = strchr(plain, '%');
    if (zone) *zone++ = 0;
    inet_pton(AF_INET6, plain, &v6->sin6_addr);
    v6->sin6_family = AF_INET6, v6->sin6_port = htons(atoi(port));
    if (zone) v6->sin6_scope_id = if_nametoindex(zone);
    return sizeof *v6;
}

static void show_address(char *text, size_t room, const struct sockaddr_storage *name) {
    char host[64] = "?";
    const struct sockaddr_in *v4 = (const void *)name;
    const struct sockaddr_in6 *v6 = (const void *)name;
    if (name->ss_family == AF_INET) inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
    if (name->ss_family == AF_INET6) inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
    snprintf(text, room, "%s %d", host, ntohs(name->ss_family == AF_INET6 ? v6->sin6_port : v4->sin_port));
}

static int open_socket(const char *kind) {
    int flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
    if (!strcmp(kind, "tcp")) return socket(AF_INET, SOCK_STREAM | flags, 0);
    if (!strcmp(kind, "tcp6")) return socket(AF_INET6, SOCK_STREAM | flags, 0);
    if (!strcmp(kind, "udp")) return socket(AF_INET, SOCK_DGRAM | flags, 0);
    if (!strcmp(kind, "udp6")) return socket(AF_INET6, SOCK_DGRAM | flags, 0);
    if (!strcmp(kind, "ping")) return socket(AF_INET, SOCK_DGRAM | flags, IPPROTO_ICMP);
    if (!strcmp(kind, "ping6")) return socket(AF_INET6, SOCK_DGRAM | flags, IPPROTO_ICMPV6);
    errno = EINVAL;
    return -1;
}

static void fill(size_t count) {
    for (size_t i = 0; i < count; i++) buffer[i] = 'a' + i % 26;
}

static int show_events(int revents) {
    const struct { int bit; const char *name; } names[] = {{POLLIN, "IN"}, {POLLPRI, "PRI"}, {POLLOUT, "OUT"},
        {POLLRDHUP, "RDHUP"}, {POLLERR, "ERR"}, {POLLHUP, "HUP"}};
    answer[0] = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (revents & names[i].bit) strcat(strcat(answer, answer[0] ? "," : ""), names[i].name);
    if (!answer[0]) strcpy(answer, "none");
    return 0;
}

static int read_whole(int fd, size_t wanted) {
    size_t total = 0;
    ssize_t count = 0;
    while (total < wanted && wait_for(fd, POLLIN, limit_ms)) {
        count = recv(fd, buffer + total, wanted - total, 0);
        if (count <= 0) break;
        total += count;
    }
    return bytes(total ? (ssize_t)total : count);
}

static int option(int fd, char **words, int is_set) {
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (strcmp(options[i].name, words[3])) continue;
        int value = is_set ? atoi(words[4]) : 0;
        socklen_t length = sizeof value;
        if (is_set) return number(setsockopt(fd, options[i].level, options[i].option, &value, sizeof value));
        int result = getsockopt(fd, options[i].level, options[i].option, &value, &length);
        return number(result < 0 ? result : value);
    }
    errno = EINVAL;
    return number(-1);
}

static int linger(int fd, int seconds) {
    struct linger value = {1, seconds};
    return setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, sizeof value);
}

static int socket_error(int fd) {
    int value = 0;
    socklen_t length = sizeof value;
    wait_for(fd, POLLERR, 500);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &length) < 0) return number(-1);
    return snprintf(answer, sizeof answer, "%s", value ? strerrorname_np(value) : "0");
}

static int receive_from(int fd, size_t wanted) {
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    memset(&name, 0, sizeof name);
    wait_for(fd, POLLIN, limit_ms);
    ssize_t count = recvfrom(fd, buffer, wanted, 0, (void *)&name, &length);
    bytes(count);
    if (count < 0) return 0;
    size_t at = strlen(answer);
    memcpy(answer + at, " from ", 7);
    show_address(answer + at + 6, sizeof answer - at - 6, &name);
    return 0;
}

static int error_queue(int fd) {
    char control[512];
    struct sockaddr_storage name;
    struct iovec part = {buffer, sizeof buffer};
    struct msghdr message = {&name, sizeof name, &part, 1, control, sizeof control, 0};
    wait_for(fd, POLLERR, 1000);
    ssize_t count = recvmsg(fd, &message, MSG_ERRQUEUE);
    if (count < 0) return number(-1);
    for (struct cmsghdr *it = CMSG_FIRSTHDR(&message); it; it = CMSG_NXTHDR(&message, it)) {
        int is_error = (it->cmsg_level == SOL_IP && it->cmsg_type == IP_RECVERR) ||
                       (it->cmsg_level == SOL_IPV6 && it->cmsg_type == IPV6_RECVERR);
        if (!is_error) continue;
        struct sock_extended_err *error = (void *)CMSG_DATA(it);
        return snprintf(answer, sizeof answer, "%s origin %d type %d code %d info %u", strerrorname_np(error->ee_errno),
                        error->ee_origin, error->ee_type, error->ee_code, error->ee_info);
    }
    return snprintf(answer, sizeof answer, "no error");
}

/* Opens a socket, so that a card that starts when it is needed starts. */
static int up(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_storage name;
    socklen_t length = address(&name, "10.0.2.2", "9");
    int result = connect(fd, (void *)&name, length);
    number(result);
    close(fd);
    return 0;
}

static int reset(void) {
    for (int i = 0; i < 26; i++) {
        if (sockets[i] < 0) continue;
        linger(sockets[i], 0);
        close(sockets[i]);
        sockets[i] = -1;
    }
    return number(0);
}

static ssize_t send_to(int fd, char **words, size_t count) {
    struct sockaddr_storage name;
    socklen_t length = address(&name, words[3], words[4]);
    return sendto(fd, buffer, count, MSG_NOSIGNAL, (void *)&name, length);
}

static int transfer(int fd, const char *order, char **words) {
    size_t length = words[3] ? strlen(words[3]) : 0, count = words[3] ? strtoul(words[3], 0, 10) : 0;
    if (count > BUFFER_BYTES) count = BUFFER_BYTES;
    if (!strcmp(order, "write")) return number(send(fd, words[3], length, MSG_NOSIGNAL));
    if (!strcmp(order, "more")) return number(send(fd, words[3], length, MSG_NOSIGNAL | MSG_MORE));
    if (!strcmp(order, "oob")) return number(send(fd, words[3], length, MSG_NOSIGNAL | MSG_OOB));
    if (!strcmp(order, "fill")) return fill(count), number(send(fd, buffer, count, MSG_NOSIGNAL));
    if (!strcmp(order, "read")) return wait_for(fd, POLLIN, limit_ms), bytes(recv(fd, buffer, count, 0));
    if (!strcmp(order, "now")) return bytes(recv(fd, buffer, count, 0));
    if (!strcmp(order, "take")) return read_whole(fd, count);
    if (!strcmp(order, "readoob")) return wait_for(fd, POLLPRI, 1000), bytes(recv(fd, buffer, 1, MSG_OOB));
    if (!strcmp(order, "recvfrom")) return receive_from(fd, count);
    if (!strcmp(order, "sendto")) {
        snprintf((char *)buffer, sizeof buffer, "%s", words[5]);
        return number(send_to(fd, words, strlen(words[5])));
    }
    if (!strcmp(order, "sendn")) return fill(strtoul(words[5], 0, 10)), number(send_to(fd, words, strtoul(words[5], 0, 10)));
    if (!strcmp(order, "ping")) {
        int is_v6 = strchr(words[3], ':') != 0;
        memset(buffer, 0, 8), memcpy(buffer + 8, "ping", 4);
        buffer[0] = is_v6 ? 128 : 8, buffer[7] = 7;
        words[4] = "0";
        return number(send_to(fd, words, 12));
    }
    return snprintf(answer, sizeof answer, "no such order");
}

static int join(int fd, const char *group) {
    struct ip_mreqn v4 = {.imr_ifindex = if_nametoindex("eth0")};
    struct ipv6_mreq v6 = {.ipv6mr_interface = if_nametoindex("eth0")};
    if (inet_pton(AF_INET, group, &v4.imr_multiaddr) == 1)
        return setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &v4, sizeof v4);
    inet_pton(AF_INET6, group, &v6.ipv6mr_multiaddr);
    return setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &v6, sizeof v6);
}

static int obey(char **words, int count) {
    const char *order = words[1];
    struct sockaddr_storage name;
    int *it = slot(count > 2 ? words[2] : 0);
    if (!strcmp(order, "up")) return up();
    if (!strcmp(order, "reset")) return reset();
    if (count < 3) return snprintf(answer, sizeof answer, "no such order");
    if (!strcmp(order, "limit")) return number(limit_ms = atoi(words[2]));
    if (!strcmp(order, "socket")) return number((*it = open_socket(words[3])) < 0 ? -1 : 0);
    if (!strcmp(order, "accept")) {
        wait_for(*slot(words[3]), POLLIN, limit_ms);
        return number((*it = accept4(*slot(words[3]), 0, 0, SOCK_NONBLOCK)) < 0 ? -1 : 0);
    }
    if (!strcmp(order, "tryaccept")) return number((*it = accept4(*slot(words[3]), 0, 0, SOCK_NONBLOCK)) < 0 ? -1 : 0);
    if (!strcmp(order, "bind")) {
        socklen_t length = address(&name, count > 4 ? words[4] : "0.0.0.0", words[3]);
        return number(bind(*it, (void *)&name, length));
    }
    if (!strcmp(order, "listen")) return number(listen(*it, atoi(words[3])));
    if (!strcmp(order, "connect")) {
        socklen_t length = address(&name, words[3], words[4]);
        return number(connect(*it, (void *)&name, length));
    }
    if (!strcmp(order, "close")) {
        int result = close(*it);
        *it = -1;
        return number(result);
    }
    if (!strcmp(order, "shut"))
        return number(shutdown(*it, !strcmp(words[3], "rd") ? SHUT_RD : !strcmp(words[3], "wr") ? SHUT_WR : SHUT_RDWR));
    if (!strcmp(order, "linger")) return number(linger(*it, atoi(words[3])));
    if (!strcmp(order, "set") || !strcmp(order, "get")) return option(*it, words, order[0] == 's');
    if (!strcmp(order, "error")) return socket_error(*it);
    if (!strcmp(order, "errors")) return error_queue(*it);
    if (!strcmp(order, "join")) return number(join(*it, words[3]));
    if (!strcmp(order, "poll")) {
        int wanted = strchr(words[3], 'I') ? POLLIN : 0;
        wanted |= strchr(words[3], 'O') ? POLLOUT : 0, wanted |= strchr(words[3], 'R') ? POLLRDHUP : 0;
        wanted |= strchr(words[3], 'P') ? POLLPRI : 0;
        return show_events(wait_for(*it, wanted, atoi(words[4])));
    }
    if (!strcmp(order, "queued")) {
        int value = 0;
        return number(ioctl(*it, !strcmp(words[3], "out") ? TIOCOUTQ : FIONREAD, &value) < 0 ? -1 : value);
    }
    return transfer(*it, order, words);
}

int main(int argument_count, char **arguments) {
    int is_init = argument_count > 1 && !strcmp(arguments[argument_count - 1], "--init");
    struct termios mode;
    if (tcgetattr(0, &mode) == 0) cfmakeraw(&mode), tcsetattr(0, TCSANOW, &mode);
    for (int i = 0; i < 26; i++) sockets[i] = -1;
    if (is_init) prepare_network();
    say("ready\n");
    static char line[LINE_MAX_BYTES], reply[LINE_MAX_BYTES + 64];
    size_t held = 0;
    for (;;) {
        ssize_t count = read(0, line + held, sizeof line - 1 - held);
        if (count <= 0) break;
        held += count;
        line[held] = 0;
        for (char *end; (end = strchr(line, '\n'));) {
            char *words[WORDS_MAX + 1] = {0};
            int word_count = 0;
            *end = 0;
            for (char *word = strtok(line, " "); word && word_count < WORDS_MAX; word = strtok(NULL, " "))
                words[word_count++] = word;
            if (word_count > 1 && !strcmp(words[1], "end")) goto out;
            if (word_count > 1) {
                answer[0] = 0;
                obey(words, word_count);
                snprintf(reply, sizeof reply, "re %s %s\n", words[0], answer);
                say(reply);
            }
            held -= end + 1 - line;
            memmove(line, end + 1, held + 1);
        }
    }
out:
    if (is_init) {
        sync();
        reboot(RB_AUTOBOOT);
        for (;;) pause();
    }
    return 0;
}
