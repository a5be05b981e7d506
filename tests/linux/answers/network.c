// The network as programs ask for it: netlink, ioctl, /proc/net, /sys/class/net. Only of the loopback interface, which
// is the same everywhere.
#include "answers.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

#define REQUEST(name, what) (strcpy(wish.ifr_name, name), ioctl(fd, what, &wish))
PROGRAM(interface_requests) {
    struct ifreq wish = {0};
    int fd = socket(AF_INET, SOCK_DGRAM, 0), local = socket(AF_UNIX, SOCK_STREAM, 0), six = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in *address = (void *)&wish.ifr_addr;
    T(REQUEST("lo", SIOCGIFFLAGS)), T(wish.ifr_flags), T(REQUEST("lo", SIOCGIFMTU)), T(wish.ifr_mtu), T(REQUEST("lo", SIOCGIFINDEX)), T(wish.ifr_ifindex), T(REQUEST("lo", SIOCGIFTXQLEN)), T(wish.ifr_qlen), T(REQUEST("lo", SIOCGIFMETRIC)), T(wish.ifr_metric), T(REQUEST("lo", SIOCGIFHWADDR)), T(wish.ifr_hwaddr.sa_family), IS(memcmp(wish.ifr_hwaddr.sa_data, "\0\0\0\0\0", 6) == 0);
    wish.ifr_addr.sa_family = 0, T(REQUEST("lo", SIOCGIFADDR)), T(address->sin_family), printf("%s\n", inet_ntoa(address->sin_addr)), T(REQUEST("lo", SIOCGIFNETMASK)), printf("%d %s\n", address->sin_family, inet_ntoa(address->sin_addr)), T(REQUEST("lo", SIOCGIFBRDADDR)), printf("%d %s\n", address->sin_family, inet_ntoa(address->sin_addr)), T(REQUEST("lo", SIOCGIFDSTADDR)), printf("%d %s\n", address->sin_family, inet_ntoa(address->sin_addr));
    T(REQUEST("none", SIOCGIFFLAGS)), T(REQUEST("none", SIOCGIFADDR)), T(REQUEST("", SIOCGIFMTU)), T(REQUEST("lo:1", SIOCGIFMTU)), T(REQUEST("lo:1", SIOCGIFADDR)), wish.ifr_ifindex = 1, T(ioctl(fd, SIOCGIFNAME, &wish)), puts(wish.ifr_name), wish.ifr_ifindex = 0, T(ioctl(fd, SIOCGIFNAME, &wish)), wish.ifr_ifindex = 999, T(ioctl(fd, SIOCGIFNAME, &wish)), wish.ifr_ifindex = -1, T(ioctl(fd, SIOCGIFNAME, &wish));
    strcpy(wish.ifr_name, "lo"), T(ioctl(local, SIOCGIFINDEX, &wish)), T(wish.ifr_ifindex), T(ioctl(local, SIOCGIFADDR, &wish)), T(ioctl(six, SIOCGIFMTU, &wish)), T(ioctl(six, SIOCGIFADDR, &wish)), T(ioctl(fd, SIOCGIFMTU, (void *)8)), T(ioctl(fd, SIOCGIFADDR, NULL)), T(ioctl(0, SIOCGIFMTU, &wish)), T(ioctl(open("/dev/null", O_RDONLY), SIOCGIFMTU, &wish));
    T(if_nametoindex("lo")), T(if_nametoindex("none")), IS(strcmp(if_indextoname(1, wish.ifr_name), "lo") == 0), T(REQUEST("lo", SIOCGIFSLAVE)), T(REQUEST("lo", SIOCGIFMAP));
}
PROGRAM(interface_list) {
    char bytes[4096];
    struct ifconf list = {.ifc_len = 0, .ifc_buf = NULL};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    T(ioctl(fd, SIOCGIFCONF, &list)), IS(list.ifc_len >= (int)sizeof(struct ifreq)), list.ifc_buf = bytes, list.ifc_len = 39, T(ioctl(fd, SIOCGIFCONF, &list)), T(list.ifc_len), list.ifc_len = sizeof(struct ifreq), T(ioctl(fd, SIOCGIFCONF, &list)), T(list.ifc_len);
    printf("%s %d %s\n", list.ifc_req->ifr_name, list.ifc_req->ifr_addr.sa_family, inet_ntoa(((struct sockaddr_in *)&list.ifc_req->ifr_addr)->sin_addr));
    T(ioctl(fd, SIOCGIFCONF, NULL)), list.ifc_buf = (void *)8, list.ifc_len = 400, T(ioctl(fd, SIOCGIFCONF, &list)), list.ifc_buf = bytes, list.ifc_len = -5, T(ioctl(fd, SIOCGIFCONF, &list)), T(ioctl(socket(AF_UNIX, SOCK_DGRAM, 0), SIOCGIFCONF, &list));
}
PROGRAM(interface_changes) {
    struct ifreq wish = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct rtentry route = {0};
    CHILD("nobody", (setresuid(7, 7, 7), T(ioctl(fd, SIOCSIFFLAGS, &wish)), T(ioctl(fd, SIOCSIFADDR, &wish)), T(ioctl(fd, SIOCSIFMTU, &wish)), T(ioctl(fd, SIOCSIFNETMASK, &wish)), T(ioctl(fd, SIOCSIFHWADDR, &wish)), T(ioctl(fd, SIOCADDRT, &route)), T(ioctl(fd, SIOCDELRT, &route)), T(ioctl(fd, SIOCSIFTXQLEN, &wish)), T(ioctl(fd, SIOCSIFNAME, &wish)), strcpy(wish.ifr_name, "none"), T(ioctl(fd, SIOCSIFFLAGS, &wish)), T(ioctl(fd, SIOCSIFMTU, (void *)8))));
    T(ioctl(fd, SIOCGIFFLAGS, &wish)), T(ioctl(fd, SIOCSIFFLAGS, &wish)), T(REQUEST("none", SIOCSIFFLAGS)), T(REQUEST("none", SIOCSIFMTU));
    struct ethtool_value value = {ETHTOOL_GLINK};
    strcpy(wish.ifr_name, "lo"), wish.ifr_data = (void *)&value, T(ioctl(fd, SIOCETHTOOL, &wish)), T(value.data), value.cmd = ETHTOOL_GSET, T(ioctl(fd, SIOCETHTOOL, &wish)), wish.ifr_data = (void *)8, T(ioctl(fd, SIOCETHTOOL, &wish)), value.cmd = ETHTOOL_GLINK, wish.ifr_data = (void *)&value, T(REQUEST("none", SIOCETHTOOL));
}
PROGRAM(addresses_of_interfaces) {
    struct ifaddrs *all, *one;
    T(getifaddrs(&all));
    for (one = all; one; one = one->ifa_next) {
        char text[64] = "", mask[64] = "";
        if (strcmp(one->ifa_name, "lo"))
            continue;
        int family = one->ifa_addr ? one->ifa_addr->sa_family : -1;
        if (family == AF_INET)
            inet_ntop(family, &((struct sockaddr_in *)one->ifa_addr)->sin_addr, text, 64), inet_ntop(family, &((struct sockaddr_in *)one->ifa_netmask)->sin_addr, mask, 64);
        if (family == AF_INET6)
            inet_ntop(family, &((struct sockaddr_in6 *)one->ifa_addr)->sin6_addr, text, 64), inet_ntop(family, &((struct sockaddr_in6 *)one->ifa_netmask)->sin6_addr, mask, 64);
        printf("%s %d %x %s %s %d\n", one->ifa_name, family, one->ifa_flags, text, mask, one->ifa_data != NULL);
    }
    freeifaddrs(all);
    struct if_nameindex *names = if_nameindex();
    printf("%d %s\n", names[0].if_index, names[0].if_name);
}

// Prints the lines of a file that are of the loopback interface, or all of the first ones.
static void lines_of(const char *path, const char *part, int first) {
    char line[4096];
    FILE *file = fopen(path, "r");
    printf("-- %s: %s\n", path, file ? "open" : strerrorname_np(errno));
    for (int number = 0; file && fgets(line, sizeof line, file); number++)
        if (number < first || (part && strstr(line, part)))
            fputs(line, stdout);
    if (file)
        fclose(file);
}
PROGRAM(network_files) {
    lines_of("/proc/net/if_inet6", "      lo", 0), lines_of("/proc/net/route", NULL, 1), lines_of("/proc/net/arp", NULL, 1), lines_of("/proc/net/igmp", NULL, 3), lines_of("/proc/net/igmp6", "1    lo", 0), lines_of("/proc/net/raw", NULL, 1), lines_of("/proc/net/raw6", NULL, 1), lines_of("/proc/net/icmp", NULL, 1), lines_of("/proc/net/icmp6", NULL, 1), lines_of("/proc/net/udplite", NULL, 1), lines_of("/proc/net/udplite6", NULL, 1), lines_of("/proc/net/packet", NULL, 1), lines_of("/proc/net/netlink", NULL, 1), lines_of("/proc/net/unix", NULL, 1), lines_of("/proc/net/tcp", NULL, 1), lines_of("/proc/net/tcp6", NULL, 1), lines_of("/proc/net/udp", NULL, 1), lines_of("/proc/net/udp6", NULL, 1), lines_of("/proc/net/dev", NULL, 2), lines_of("/proc/net/protocols", NULL, 1);
    char line[512], device[64];
    FILE *file = fopen("/proc/net/ipv6_route", "r");
    while (fgets(line, sizeof line, file))
        if (strncmp(line, "00000000000000000000000000000001", 32) == 0 || strstr(line, "ffffffff"))
            printf("%.113s%s", line, line + 131);
    file = fopen("/proc/net/dev", "r");
    while (fgets(line, sizeof line, file))
        if (strncmp(line, "    lo:", 7) == 0) {
            int columns = 0;
            for (char *word = strtok(line, " "); word; word = strtok(NULL, " "))
                columns++;
            T(columns);
        }
    // What is counted differs; the names do not, as far as the oldest has them.
    file = fopen("/proc/net/snmp", "r");
    while (fgets(line, sizeof line, file))
        if (strncmp(line, "Tcp: Rto", 8) == 0 || strncmp(line, "Udp: In", 7) == 0 || strncmp(line, "UdpLite: In", 11) == 0)
            fputs(line, stdout);
    file = fopen("/proc/net/sockstat6", "r");
    while (fgets(line, sizeof line, file))
        if (strncmp(line, "UDPLITE6", 8) == 0 || strncmp(line, "FRAG6", 5) == 0)
            fputs(line, stdout);
}
PROGRAM(settings_of_the_network) {
    static const char *names[] = {"core/somaxconn", "core/rmem_default", "core/wmem_default", "core/default_qdisc", "core/netdev_max_backlog", "core/message_burst", "core/dev_weight", "ipv4/ip_local_port_range", "ipv4/ip_forward", "ipv4/ip_default_ttl", "ipv4/ip_unprivileged_port_start", "ipv4/tcp_fin_timeout", "ipv4/tcp_keepalive_time", "ipv4/tcp_keepalive_intvl", "ipv4/tcp_keepalive_probes", "ipv4/tcp_retries1", "ipv4/tcp_retries2", "ipv4/tcp_syn_retries", "ipv4/tcp_synack_retries", "ipv4/tcp_syncookies", "ipv4/tcp_timestamps", "ipv4/tcp_sack", "ipv4/tcp_window_scaling", "ipv4/tcp_tw_reuse", "ipv4/tcp_abort_on_overflow", "ipv4/tcp_ecn", "ipv4/tcp_notsent_lowat", "ipv4/tcp_orphan_retries", "ipv4/ip_nonlocal_bind", "ipv4/ipfrag_time", "ipv4/icmp_echo_ignore_all", "ipv4/icmp_echo_ignore_broadcasts", "ipv4/icmp_ratelimit", "ipv4/conf/lo/forwarding", "ipv4/conf/all/forwarding", "ipv4/udp_rmem_min", "ipv4/ip_local_reserved_ports", "ipv6/bindv6only", "ipv6/conf/all/disable_ipv6", "ipv6/conf/lo/disable_ipv6", "ipv6/conf/default/disable_ipv6", "ipv6/conf/lo/mtu", "ipv6/conf/all/forwarding", "ipv4/none"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        snprintf(path, sizeof path, "/proc/sys/net/%s", names[i]), lines_of(path, NULL, 9);
    }
}
PROGRAM(interfaces_as_files) {
    static const char *names[] = {"addr_assign_type", "addr_len", "address", "broadcast", "carrier", "carrier_changes", "dev_id", "dev_port", "dormant", "flags", "ifalias", "ifindex", "iflink", "link_mode", "mtu", "netdev_group", "operstate", "tx_queue_len", "type", "uevent", "none"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        snprintf(path, sizeof path, "/sys/class/net/lo/%s", names[i]), lines_of(path, NULL, 9);
    }
    int fd = open("/sys/class/net/lo/speed", O_RDONLY);
    T(read(fd, (char[64]){0}, 64)), fd = open("/sys/class/net/lo/duplex", O_RDONLY), T(read(fd, (char[64]){0}, 64));
    struct stat about;
    char link[256] = "";
    T(lstat("/sys/class/net/lo", &about)), IS(S_ISLNK(about.st_mode)), T(readlink("/sys/class/net/lo", link, 255)), puts(link), T(stat("/sys/class/net/lo/statistics/rx_bytes", &about)), printf("%o %ld\n", about.st_mode, about.st_size), T(access("/sys/class/net/lo/statistics/tx_packets", R_OK)), T(stat("/sys/class/net/none", &about)), T(readlink("/sys/class/net/lo/subsystem", link, 255));
}

// Netlink.
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#ifndef NETLINK_GET_STRICT_CHK
#define NETLINK_GET_STRICT_CHK 12
#endif

struct question {
    struct nlmsghdr head;
    char body[256];
};
static int opened(int protocol) {
    struct sockaddr_nl name = {AF_NETLINK};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
    bind(fd, (void *)&name, sizeof name);
    return fd;
}
static int ask(int fd, int type, int flags, const void *body, int size) {
    struct question question = {{NLMSG_LENGTH(size), type, flags, 7}};
    memcpy(question.body, body, size);
    return send(fd, &question, NLMSG_ALIGN(question.head.nlmsg_len), 0);
}
// Attributes that are the same on every Linux, by the type of the message.
static int is_shown(int type, int kind) {
    if (type == RTM_NEWLINK)
        return kind == IFLA_ADDRESS || kind == IFLA_BROADCAST || kind == IFLA_IFNAME || kind == IFLA_MTU || kind == IFLA_QDISC || kind == IFLA_TXQLEN || kind == IFLA_OPERSTATE || kind == IFLA_LINKMODE || kind == IFLA_CARRIER || kind == IFLA_GROUP;
    return kind != IFA_CACHEINFO || type != RTM_NEWADDR;
}
static void hex(const unsigned char *bytes, int count) {
    while (count-- > 0)
        printf("%02x", *bytes++);
}
static void tell_message(struct nlmsghdr *head, unsigned port) {
    printf("type %d flags %x seq %d own %d", head->nlmsg_type, head->nlmsg_flags, head->nlmsg_seq, head->nlmsg_pid == port);
    int fixed = head->nlmsg_type == RTM_NEWLINK ? 16 : head->nlmsg_type == RTM_NEWADDR ? 8 : 12;
    if (head->nlmsg_type == NLMSG_ERROR || head->nlmsg_type == NLMSG_DONE)
        fixed = head->nlmsg_len - 16;
    unsigned char *at = NLMSG_DATA(head), *end = (unsigned char *)head + head->nlmsg_len;
    printf(" "), hex(at, head->nlmsg_type == NLMSG_ERROR && fixed > 20 ? 20 : fixed), at += NLMSG_ALIGN(fixed);
    // Their order is another in every few versions.
    for (int kind = 0; kind < 80; kind++)
        for (unsigned char *next = at; next + 4 <= end; next += NLMSG_ALIGN(((struct rtattr *)next)->rta_len))
            if (((struct rtattr *)next)->rta_type == kind && is_shown(head->nlmsg_type, kind))
                printf(" %d:", kind), hex(next + 4, ((struct rtattr *)next)->rta_len - 4);
    printf("\n");
}
// Whether a message is about the loopback interface, or about none.
static int is_local(struct nlmsghdr *head) {
    unsigned char *body = NLMSG_DATA(head);
    if (head->nlmsg_type == RTM_NEWLINK || head->nlmsg_type == RTM_NEWADDR)
        return *(int *)(body + 4) == 1;
    if (head->nlmsg_type != RTM_NEWROUTE)
        return head->nlmsg_type < 16 || head->nlmsg_type == RTM_NEWRULE;
    for (unsigned char *at = body + 12; at + 4 <= (unsigned char *)head + head->nlmsg_len; at += NLMSG_ALIGN(((struct rtattr *)at)->rta_len))
        if (((struct rtattr *)at)->rta_type == RTA_OIF)
            return *(int *)(at + 4) == 1;
    return 0;
}
static void hear(int fd) {
    static char bytes[65536];
    struct sockaddr_nl own, from;
    socklen_t length = sizeof own;
    getsockname(fd, (void *)&own, &length);
    for (int is_over = 0; !is_over;) {
        length = sizeof from;
        ssize_t count = recvfrom(fd, bytes, sizeof bytes, MSG_DONTWAIT, (void *)&from, &length);
        if (count <= 0) {
            T(count);
            return;
        }
        if (length != sizeof from || from.nl_pid != 0)
            printf("from %d %u\n", length, from.nl_pid);
        for (struct nlmsghdr *head = (void *)bytes; NLMSG_OK(head, count); head = NLMSG_NEXT(head, count)) {
            if (is_local(head))
                tell_message(head, own.nl_pid);
            is_over |= head->nlmsg_type == NLMSG_DONE || head->nlmsg_type == NLMSG_ERROR || !(head->nlmsg_flags & NLM_F_MULTI);
        }
    }
}
static void tell_all(const char *what, int fd, int type, int flags, const void *body, int size) {
    printf("-- %s\n", what), W(ask(fd, type, flags, body, size)), hear(fd);
}
#define DUMP (NLM_F_REQUEST | NLM_F_DUMP)
PROGRAM(netlink_dumps) {
    int fd = opened(NETLINK_ROUTE);
    struct rtmsg four = {AF_INET}, six = {AF_INET6};
    tell_all("links", fd, RTM_GETLINK, DUMP, "", 1), tell_all("links", fd, RTM_GETLINK, DUMP, &(struct ifinfomsg){0}, 16), tell_all("addresses", fd, RTM_GETADDR, DUMP, "", 1), tell_all("addresses of IPv4", fd, RTM_GETADDR, DUMP, "\2", 1), tell_all("addresses of IPv6", fd, RTM_GETADDR, DUMP, "\12", 1), tell_all("routes of IPv4", fd, RTM_GETROUTE, DUMP, &four, sizeof four), tell_all("rules", fd, RTM_GETRULE, DUMP, &four, sizeof four), tell_all("rules of IPv6", fd, RTM_GETRULE, DUMP, &six, sizeof six), tell_all("root alone", fd, RTM_GETADDR, NLM_F_REQUEST | NLM_F_ROOT, "\2", 1), tell_all("with acknowledgement", fd, RTM_GETADDR, DUMP | NLM_F_ACK, "\2", 1);
}
PROGRAM(netlink_single) {
    int fd = opened(NETLINK_ROUTE);
    struct ifinfomsg link = {.ifi_index = 1};
    struct { struct ifinfomsg head; struct rtattr name; char text[8]; } named = {{0}, {7, IFLA_IFNAME}, "lo"};
    struct { struct rtmsg head; struct rtattr name; char address[4]; } way = {{AF_INET, 32}, {8, RTA_DST}, {127, 0, 0, 1}};
    struct { struct ifaddrmsg head; struct rtattr name; char address[16]; } six = {{AF_INET6, 128}, {20, IFA_ADDRESS}, {[15] = 1}};
    tell_all("by index", fd, RTM_GETLINK, NLM_F_REQUEST, &link, sizeof link), tell_all("by name", fd, RTM_GETLINK, NLM_F_REQUEST, &named, sizeof named), link.ifi_index = 999, tell_all("none", fd, RTM_GETLINK, NLM_F_REQUEST, &link, sizeof link), link.ifi_index = 0, tell_all("neither", fd, RTM_GETLINK, NLM_F_REQUEST, &link, sizeof link), strcpy(named.text, "zz"), tell_all("no name", fd, RTM_GETLINK, NLM_F_REQUEST, &named, sizeof named), tell_all("short", fd, RTM_GETLINK, NLM_F_REQUEST, "", 1);
    tell_all("address of IPv4", fd, RTM_GETADDR, NLM_F_REQUEST, &(struct ifaddrmsg){AF_INET}, 8), tell_all("address of IPv6", fd, RTM_GETADDR, NLM_F_REQUEST, &six, sizeof six), six.address[0] = 9, tell_all("no address", fd, RTM_GETADDR, NLM_F_REQUEST, &six, sizeof six), tell_all("unnamed", fd, RTM_GETADDR, NLM_F_REQUEST, &six, 8);
    ask(fd, RTM_GETROUTE, NLM_F_REQUEST, &way, sizeof way);
    char bytes[512];
    T(recv(fd, bytes, sizeof bytes, 0)), hex((void *)(bytes + 16), 52), puts("");
    tell_all("neighbour", fd, RTM_GETNEIGH, NLM_F_REQUEST, &(struct ndmsg){AF_INET, .ndm_ifindex = 1}, 12);
}
PROGRAM(netlink_refusals) {
    int fd = opened(NETLINK_ROUTE);
    tell_all("type 200", fd, 200, NLM_F_REQUEST, "\0\0\0", 4), tell_all("type 3", fd, 3, NLM_F_REQUEST | NLM_F_ACK, "\0\0\0", 4), tell_all("no request", fd, RTM_GETLINK, NLM_F_ACK, "\0\0\0", 4), tell_all("no request", fd, RTM_GETLINK, 0, "\0\0\0", 4), tell_all("empty", fd, RTM_GETLINK, NLM_F_REQUEST | NLM_F_ACK, "", 0), tell_all("empty", fd, RTM_GETLINK, NLM_F_REQUEST, "", 0);
    CHILD("nobody", (setresuid(7, 7, 7), fd = opened(NETLINK_ROUTE), tell_all("new address", fd, RTM_NEWADDR, NLM_F_REQUEST, &(struct ifaddrmsg){AF_INET, 8, .ifa_index = 1}, 8), tell_all("delete route", fd, RTM_DELROUTE, NLM_F_REQUEST, &(struct rtmsg){AF_INET}, 12), tell_all("set link", fd, RTM_SETLINK, NLM_F_REQUEST | NLM_F_ACK, &(struct ifinfomsg){.ifi_index = 1}, 16), tell_all("addresses", fd, RTM_GETADDR, DUMP, "\2", 1)));
    struct ifinfomsg up = {.ifi_index = 1, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    struct { struct ifaddrmsg head; struct rtattr name; char address[4]; } own = {{AF_INET, 8, 0, 0, 1}, {8, IFA_LOCAL}, {127, 0, 0, 1}};
    tell_all("lo up", fd, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, &up, sizeof up), tell_all("own address", fd, RTM_NEWADDR, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &own, sizeof own), up.ifi_index = 999, tell_all("none up", fd, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, &up, sizeof up);
    struct question two[2] = {{{17, RTM_GETADDR, DUMP, 1}, "\2"}, {{17, RTM_GETADDR, DUMP, 2}, "\2"}};
    memmove((char *)two + 20, &two[1], 17);
    T(send(fd, two, 40, 0)), hear(fd), hear(fd), T(send(fd, two, 15, 0)), T(send(fd, "\377\377\377\377aaaabbbbccccdddd", 20, 0)), T(send(fd, "", 0, 0)), hear(fd);
}
PROGRAM(netlink_options) {
    int fd = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_ROUTE), value;
    socklen_t length;
#define NGET(option) (length = 4, value = -1, getsockopt(fd, SOL_NETLINK, option, &value, &length) ? -1 : value)
#define NSET(option, what) (value = what, setsockopt(fd, SOL_NETLINK, option, &value, 4))
    T(NGET(NETLINK_PKTINFO)), T(NSET(NETLINK_PKTINFO, 5)), T(NGET(NETLINK_PKTINFO)), T(NSET(NETLINK_EXT_ACK, 1)), T(NGET(NETLINK_EXT_ACK)), T(NSET(NETLINK_CAP_ACK, 1)), T(NGET(NETLINK_CAP_ACK)), T(NSET(NETLINK_GET_STRICT_CHK, 1)), T(NGET(NETLINK_GET_STRICT_CHK)), T(NGET(NETLINK_NO_ENOBUFS)), T(NSET(NETLINK_NO_ENOBUFS, 1)), T(NSET(NETLINK_BROADCAST_ERROR, 1)), T(NSET(99, 1)), T(NGET(99)), T(NSET(NETLINK_ADD_MEMBERSHIP, RTNLGRP_LINK)), T(NSET(NETLINK_ADD_MEMBERSHIP, 0)), T(NSET(NETLINK_ADD_MEMBERSHIP, 500)), T(NSET(NETLINK_DROP_MEMBERSHIP, RTNLGRP_LINK)), length = 2, T(getsockopt(fd, SOL_NETLINK, NETLINK_PKTINFO, &value, &length)), T(setsockopt(fd, SOL_NETLINK, NETLINK_PKTINFO, (void *)8, 4)), T(setsockopt(fd, 6, 1, &value, 4)), T(getsockopt(fd, 0, 1, &value, &length));
#define SGET(option) (length = 4, value = -1, getsockopt(fd, SOL_SOCKET, option, &value, &length) ? -1 : value)
    T(SGET(SO_TYPE)), T(SGET(SO_DOMAIN)), T(SGET(SO_PROTOCOL)), T(SGET(SO_ERROR)), T(SGET(SO_RCVBUF)), T(SGET(SO_SNDBUF)), T(SGET(SO_ACCEPTCONN)), T(SGET(SO_PASSCRED)), value = 1, T(setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &value, 4)), T(SGET(SO_PASSCRED)), value = 1000, T(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, 4)), T(SGET(SO_RCVBUF));
}
PROGRAM(netlink_names) {
    struct sockaddr_nl name = {AF_NETLINK}, got;
    socklen_t length = sizeof got;
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), other = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), third = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_ROUTE);
    T(getsockname(fd, (void *)&got, &length)), T(length), T(got.nl_pid), T(bind(fd, (void *)&name, 11)), T(bind(fd, (void *)&name, 12)), T(getsockname(fd, (void *)&got, &length)), IS(got.nl_pid == getpid()), T(bind(fd, (void *)&name, 12)), name.nl_pid = getpid(), T(bind(fd, (void *)&name, 12)), T(bind(other, (void *)&name, 12)), name.nl_pid = 0, T(bind(other, (void *)&name, 12)), T(getsockname(other, (void *)&got, &length)), IS((int)got.nl_pid < 0), name.nl_groups = RTMGRP_LINK, T(bind(third, (void *)&name, 12)), T(getsockname(third, (void *)&got, &length)), T(got.nl_groups), name.nl_family = AF_INET, T(bind(third, (void *)&name, 12));
    T(getpeername(fd, (void *)&got, &length)), T(got.nl_pid), name.nl_family = AF_NETLINK, name.nl_groups = 0, T(connect(fd, (void *)&name, 12)), T(connect(fd, (void *)&name, 5)), T(connect(fd, (void *)&(struct sockaddr){AF_UNSPEC}, 2)), T(listen(fd, 1)), T(accept(fd, NULL, NULL)), T(shutdown(fd, SHUT_RDWR)), T(socketpair(AF_NETLINK, SOCK_RAW, 0, (int[2]){0}));
    T(socket(AF_NETLINK, SOCK_STREAM, 0)), T(socket(AF_NETLINK, SOCK_RAW, 31)), T(socket(AF_NETLINK, SOCK_RAW, 32)), T(socket(AF_NETLINK, SOCK_RAW, -1)), W(socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT)), W(socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC)), W(socket(AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK));
    name.nl_pid = 4711, T(sendto(fd, "x", 1, 0, (void *)&name, 12)), T(sendto(fd, "x", 1, 0, (void *)&name, 11));
    CHILD("nobody", (setresuid(7, 7, 7), T(sendto(fd, "x", 1, 0, (void *)&name, 12)), T(connect(fd, (void *)&name, 12))));
    struct pollfd wish = {fd, POLLIN | POLLOUT};
    T(poll(&wish, 1, 0)), T(wish.revents), ask(fd, RTM_GETLINK, DUMP, "", 1), T(poll(&wish, 1, 0)), T(wish.revents);
    char bytes[64];
    struct iovec part = {bytes, 10};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t whole = recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC);
    IS(whole > 1000), IS(recvmsg(fd, &head, MSG_PEEK | MSG_TRUNC) == whole), T(head.msg_flags), T(recvmsg(fd, &head, 0)), T(head.msg_flags), T(recv(fd, bytes, 64, MSG_OOB)), T(send(fd, bytes, 64, MSG_OOB));
    // Through read and write.
    struct question question = {{17, RTM_GETADDR, DUMP, 3}, "\2"};
    while (recv(fd, bytes, 64, MSG_DONTWAIT) >= 0) {
    }
    T(write(fd, &question, 20)), IS(read(fd, bytes, 64) == 64), T(((struct nlmsghdr *)bytes)->nlmsg_type);
}
PROGRAM(netlink_strict) {
    int fd = opened(NETLINK_ROUTE), one = 1;
    setsockopt(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, &one, 4), setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &one, 4);
    struct { struct ifaddrmsg head; struct rtattr name; int value; } address = {{AF_INET}, {8, 77}, 1};
    struct { struct rtmsg head; struct rtattr name; int value; } route = {{AF_INET}, {8, RTA_TABLE}, 255};
    tell_all("short", fd, RTM_GETADDR, DUMP, "\2", 1), tell_all("unknown", fd, RTM_GETADDR, DUMP, &address, sizeof address), address.name.rta_type = IFA_LABEL, tell_all("not taken", fd, RTM_GETADDR, DUMP, &address, sizeof address), address.head.ifa_index = 1, tell_all("of an interface", fd, RTM_GETADDR, DUMP, &address, 8), address.head.ifa_index = 999, tell_all("of none", fd, RTM_GETADDR, DUMP, &address, 8), address.head.ifa_index = 0, address.head.ifa_prefixlen = 3, tell_all("with a prefix", fd, RTM_GETADDR, DUMP, &address, 8);
    tell_all("table local", fd, RTM_GETROUTE, DUMP, &route, sizeof route), route.value = 77, tell_all("no table", fd, RTM_GETROUTE, DUMP, &route, sizeof route), route.value = 254, tell_all("table main", fd, RTM_GETROUTE, DUMP, &route, sizeof route);
    tell_all("links", fd, RTM_GETLINK, DUMP, &(struct ifinfomsg){.ifi_index = 1}, 16), tell_all("links", fd, RTM_GETLINK, DUMP, "", 1), tell_all("neighbours", fd, RTM_GETNEIGH, DUMP, &(struct ndmsg){AF_INET, .ndm_state = 1}, 12);
    setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &one, 4), tell_all("capped", fd, 200, NLM_F_REQUEST, "aaaabbbb", 8);
}
PROGRAM(socket_diagnosis) {
    int fd = opened(NETLINK_SOCK_DIAG), server = socket(AF_INET, SOCK_STREAM, 0), local = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_in name = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_un path = {AF_UNIX, "diagnosed"};
    socklen_t length = sizeof name;
    struct stat about;
    bind(server, (void *)&name, sizeof name), listen(server, 17), getsockname(server, (void *)&name, &length), fstat(server, &about);
    struct inet_diag_req_v2 wish = {AF_INET, IPPROTO_TCP, .idiag_states = 1 << 10};
    static char bytes[65536];
    T(ask(fd, SOCK_DIAG_BY_FAMILY, DUMP, &wish, sizeof wish));
    for (int is_over = 0, found = 0; !is_over;) {
        ssize_t count = recv(fd, bytes, sizeof bytes, 0);
        for (struct nlmsghdr *head = (void *)bytes; NLMSG_OK(head, count); head = NLMSG_NEXT(head, count)) {
            struct inet_diag_msg *one = NLMSG_DATA(head);
            is_over |= head->nlmsg_type == NLMSG_DONE;
            if (head->nlmsg_type == SOCK_DIAG_BY_FAMILY && one->id.idiag_sport == name.sin_port)
                printf("%d %d %d %d %x %d %d %d inode %d\n", one->idiag_family, one->idiag_state, one->idiag_timer, one->id.idiag_dport, one->id.idiag_src[0], one->idiag_rqueue, one->idiag_wqueue, one->idiag_uid, one->idiag_inode == about.st_ino), found++;
        }
        if (is_over)
            T(found);
    }
    wish.idiag_states = 1 << 1, wish.id.idiag_sport = name.sin_port, T(ask(fd, SOCK_DIAG_BY_FAMILY, DUMP, &wish, sizeof wish)), hear(fd);
    bind(local, (void *)&path, sizeof path), listen(local, 3), fstat(local, &about);
    struct unix_diag_req unix_wish = {AF_UNIX, .udiag_states = -1, .udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_RQLEN};
    T(ask(fd, SOCK_DIAG_BY_FAMILY, DUMP, &unix_wish, sizeof unix_wish));
    for (int is_over = 0; !is_over;) {
        ssize_t count = recv(fd, bytes, sizeof bytes, 0);
        for (struct nlmsghdr *head = (void *)bytes; NLMSG_OK(head, count); head = NLMSG_NEXT(head, count)) {
            struct unix_diag_msg *one = NLMSG_DATA(head);
            is_over |= head->nlmsg_type == NLMSG_DONE;
            if (head->nlmsg_type == SOCK_DIAG_BY_FAMILY && one->udiag_ino == about.st_ino)
                printf("%d %d %d %.9s\n", one->udiag_family, one->udiag_type, one->udiag_state, (char *)(one + 1) + 4);
        }
    }
    tell_all("short", fd, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, "", 1), wish.sdiag_family = 77, tell_all("family", fd, SOCK_DIAG_BY_FAMILY, DUMP, &wish, sizeof wish), tell_all("type", fd, 99, NLM_F_REQUEST, &wish, sizeof wish), wish.sdiag_family = AF_INET, wish.id.idiag_sport = 1, wish.id.idiag_src[0] = 5, wish.id.idiag_cookie[0] = wish.id.idiag_cookie[1] = -1, tell_all("no socket", fd, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, &wish, sizeof wish);
}
PROGRAM(local_sockets_as_text) {
    struct sockaddr_un name = {AF_UNIX, "shown"}, hidden = {AF_UNIX, "\0hid\0den"};
    int first = socket(AF_UNIX, SOCK_STREAM, 0), second = socket(AF_UNIX, SOCK_DGRAM, 0), pair[2];
    struct stat about[4];
    bind(first, (void *)&name, sizeof name), listen(first, 5), bind(second, (void *)&hidden, 2 + 8), socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair);
    fstat(first, &about[0]), fstat(second, &about[1]), fstat(pair[0], &about[2]), fstat(socket(AF_UNIX, SOCK_DGRAM, 0), &about[3]);
    for (int i = 0; i < 4; i++) {
        char line[256], wanted[32];
        sprintf(wanted, " %lu", about[i].st_ino);
        FILE *file = fopen("/proc/net/unix", "r");
        while (fgets(line, sizeof line, file)) {
            char *found = strstr(line, wanted);
            if (found && strchr(" \n", found[strlen(wanted)]))
                printf("%.*s...%s", 34, line + 18, found + strlen(wanted));
        }
        fclose(file);
    }
}

// Options: what they are at first, what they take and what is told back.
#include <netinet/tcp.h>
static void option(const char *what, int fd, int level, int name) {
    static const int values[] = {1, 0, -1, 1000000};
    int value = -7;
    socklen_t length = 4;
    printf("%s:", what);
    int outcome = getsockopt(fd, level, name, &value, &length);
    outcome ? printf(" %s", strerrorname_np(errno)) : printf(" %d/%d", value, length);
    for (int i = 0; i < 4; i++) {
        value = values[i], outcome = setsockopt(fd, level, name, &value, 4);
        printf(", %d %s", values[i], outcome ? strerrorname_np(errno) : "taken"), length = 4, value = -7;
        if (!getsockopt(fd, level, name, &value, &length) && length == 4)
            printf(" %d", value);
    }
    value = 0, outcome = setsockopt(fd, level, name, &value, 1);
    printf(", byte %s\n", outcome ? strerrorname_np(errno) : "taken"), fflush(stdout);
}
#define OPTION(fd, level, name) option(#name " of " #fd, fd, level, name)
PROGRAM(options_of_the_network) {
    int tcp = socket(AF_INET, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0), tcp6 = socket(AF_INET6, SOCK_STREAM, 0), udp6 = socket(AF_INET6, SOCK_DGRAM, 0);
    OPTION(tcp, SOL_SOCKET, SO_DEBUG), OPTION(tcp, SOL_SOCKET, SO_DONTROUTE), OPTION(udp, SOL_SOCKET, SO_NO_CHECK), OPTION(tcp, SOL_SOCKET, SO_BSDCOMPAT), OPTION(udp, SOL_SOCKET, SO_TIMESTAMP), OPTION(udp, SOL_SOCKET, SO_TIMESTAMPNS), OPTION(udp, SOL_SOCKET, SO_RXQ_OVFL), OPTION(udp, SOL_SOCKET, SO_SELECT_ERR_QUEUE), OPTION(tcp, SOL_SOCKET, SO_BUSY_POLL), OPTION(tcp, SOL_SOCKET, SO_MAX_PACING_RATE), OPTION(tcp, SOL_SOCKET, SO_BPF_EXTENSIONS), OPTION(tcp, SOL_SOCKET, SO_INCOMING_CPU), OPTION(tcp, SOL_SOCKET, SO_CNX_ADVICE), OPTION(tcp, SOL_SOCKET, SO_INCOMING_NAPI_ID), OPTION(tcp, SOL_SOCKET, SO_COOKIE), OPTION(udp, SOL_SOCKET, SO_DETACH_FILTER), OPTION(tcp, SOL_SOCKET, SO_MARK), OPTION(tcp, SOL_SOCKET, SO_PRIORITY), OPTION(tcp, SOL_SOCKET, SO_SNDLOWAT), OPTION(tcp, SOL_SOCKET, SO_PROTOCOL);
    OPTION(tcp, IPPROTO_TCP, TCP_DEFER_ACCEPT), OPTION(tcp, IPPROTO_TCP, TCP_WINDOW_CLAMP), OPTION(tcp, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS), OPTION(tcp, IPPROTO_TCP, TCP_THIN_DUPACK), OPTION(tcp, IPPROTO_TCP, TCP_FASTOPEN), OPTION(tcp, IPPROTO_TCP, TCP_SAVE_SYN), OPTION(tcp, IPPROTO_TCP, TCP_SYNCNT), OPTION(tcp, IPPROTO_TCP, TCP_USER_TIMEOUT), OPTION(tcp, IPPROTO_TCP, TCP_LINGER2), OPTION(tcp, IPPROTO_TCP, TCP_NOTSENT_LOWAT), OPTION(tcp, IPPROTO_TCP, TCP_KEEPIDLE), OPTION(tcp, IPPROTO_TCP, TCP_MAXSEG), OPTION(tcp, IPPROTO_TCP, TCP_QUICKACK), OPTION(udp, IPPROTO_TCP, TCP_NODELAY);
    OPTION(udp, IPPROTO_IP, IP_RECVOPTS), OPTION(udp, IPPROTO_IP, IP_RETOPTS), OPTION(udp, IPPROTO_IP, IP_ROUTER_ALERT), OPTION(udp, IPPROTO_IP, IP_RECVORIGDSTADDR), OPTION(udp, IPPROTO_IP, IP_MINTTL), OPTION(udp, IPPROTO_IP, IP_NODEFRAG), OPTION(udp, IPPROTO_IP, IP_CHECKSUM), OPTION(udp, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT), OPTION(udp, IPPROTO_IP, IP_MULTICAST_IF), OPTION(tcp, IPPROTO_IP, IP_MULTICAST_IF), OPTION(udp, IPPROTO_IP, IP_MULTICAST_TTL), OPTION(tcp, IPPROTO_IP, IP_MULTICAST_TTL), OPTION(udp, IPPROTO_IP, IP_MULTICAST_LOOP), OPTION(tcp, IPPROTO_IP, IP_MULTICAST_LOOP), OPTION(udp, IPPROTO_IP, IP_MULTICAST_ALL), OPTION(udp, IPPROTO_IP, IP_UNICAST_IF), OPTION(udp, IPPROTO_IP, IP_TRANSPARENT), OPTION(udp, IPPROTO_IP, IP_FREEBIND), OPTION(udp, IPPROTO_IP, IP_TOS), OPTION(tcp, IPPROTO_IP, IP_TOS), OPTION(udp, IPPROTO_IP, IP_TTL), OPTION(udp, IPPROTO_IP, IP_MTU_DISCOVER), OPTION(udp, IPPROTO_IP, IP_MTU), OPTION(udp, IPPROTO_IP, IP_RECVERR), OPTION(udp, IPPROTO_IP, IP_PKTINFO), OPTION(tcp, IPPROTO_IP, IP_ADD_MEMBERSHIP), OPTION(udp, IPPROTO_IP, IP_ADD_MEMBERSHIP), OPTION(udp, IPPROTO_IP, IP_HDRINCL), OPTION(udp, IPPROTO_IP, 59);
    OPTION(udp6, IPPROTO_IPV6, IPV6_UNICAST_HOPS), OPTION(udp6, IPPROTO_IPV6, IPV6_MULTICAST_IF), OPTION(tcp6, IPPROTO_IPV6, IPV6_MULTICAST_IF), OPTION(udp6, IPPROTO_IPV6, IPV6_MULTICAST_HOPS), OPTION(tcp6, IPPROTO_IPV6, IPV6_MULTICAST_HOPS), OPTION(udp6, IPPROTO_IPV6, IPV6_MULTICAST_LOOP), OPTION(udp6, IPPROTO_IPV6, IPV6_MULTICAST_ALL), OPTION(udp6, IPPROTO_IPV6, IPV6_MTU_DISCOVER), OPTION(udp6, IPPROTO_IPV6, IPV6_MTU), OPTION(udp6, IPPROTO_IPV6, IPV6_RECVERR), OPTION(udp6, IPPROTO_IPV6, IPV6_V6ONLY), OPTION(udp6, IPPROTO_IPV6, IPV6_RECVPKTINFO), OPTION(udp6, IPPROTO_IPV6, IPV6_RECVHOPLIMIT), OPTION(udp6, IPPROTO_IPV6, IPV6_RECVHOPOPTS), OPTION(udp6, IPPROTO_IPV6, IPV6_RECVRTHDR), OPTION(udp6, IPPROTO_IPV6, IPV6_RECVDSTOPTS), OPTION(udp6, IPPROTO_IPV6, IPV6_RECVPATHMTU), OPTION(udp6, IPPROTO_IPV6, IPV6_DONTFRAG), OPTION(udp6, IPPROTO_IPV6, IPV6_RECVTCLASS), OPTION(udp6, IPPROTO_IPV6, IPV6_TCLASS), OPTION(tcp6, IPPROTO_IPV6, IPV6_TCLASS), OPTION(udp6, IPPROTO_IPV6, IPV6_AUTOFLOWLABEL), OPTION(udp6, IPPROTO_IPV6, IPV6_MINHOPCOUNT), OPTION(udp6, IPPROTO_IPV6, IPV6_UNICAST_IF), OPTION(udp6, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP), OPTION(udp, IPPROTO_IPV6, IPV6_V6ONLY);
}
PROGRAM(options_with_other_values) {
    int tcp = socket(AF_INET, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0), value;
    char text[32] = "reno";
    socklen_t length = sizeof text;
    T(setsockopt(tcp, IPPROTO_TCP, TCP_CONGESTION, "reno", 4)), T(getsockopt(tcp, IPPROTO_TCP, TCP_CONGESTION, text, &length)), T(length), puts(text), T(setsockopt(tcp, IPPROTO_TCP, TCP_CONGESTION, "nonesuch", 8)), T(setsockopt(tcp, IPPROTO_TCP, TCP_CONGESTION, "", 0)), length = 3, T(getsockopt(tcp, IPPROTO_TCP, TCP_CONGESTION, text, &length)), T(length), T(setsockopt(tcp, IPPROTO_TCP, TCP_ULP, "nonesuch", 8));
    for (value = 1; value < 200; value = value * 2 + 1) {
        int got;
        length = 4, setsockopt(tcp, IPPROTO_TCP, TCP_DEFER_ACCEPT, &value, 4), getsockopt(tcp, IPPROTO_TCP, TCP_DEFER_ACCEPT, &got, &length), printf("%d: %d\n", value, got);
    }
    T(setsockopt(tcp, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3)), length = sizeof text, T(getsockopt(tcp, SOL_SOCKET, SO_BINDTODEVICE, text, &length)), T(length), puts(text), length = 4, T(getsockopt(tcp, SOL_SOCKET, SO_BINDTOIFINDEX, &value, &length)), T(value), T(setsockopt(tcp, SOL_SOCKET, SO_BINDTODEVICE, "none", 5)), T(setsockopt(tcp, SOL_SOCKET, SO_BINDTODEVICE, "", 0)), length = sizeof text, T(getsockopt(tcp, SOL_SOCKET, SO_BINDTODEVICE, text, &length)), T(length), value = 1, T(setsockopt(udp, SOL_SOCKET, SO_BINDTOIFINDEX, &value, 4)), value = -1, T(setsockopt(udp, SOL_SOCKET, SO_BINDTOIFINDEX, &value, 4));
    value = 1, setsockopt(udp, SOL_SOCKET, SO_TIMESTAMP, &value, 4), setsockopt(udp, SOL_SOCKET, SO_TIMESTAMPNS, &value, 4), length = 4, T(getsockopt(udp, SOL_SOCKET, SO_TIMESTAMP, &value, &length)), T(value), T(getsockopt(udp, SOL_SOCKET, SO_TIMESTAMPNS, &value, &length)), T(value), value = 0, T(setsockopt(udp, SOL_SOCKET, SO_TIMESTAMP, &value, 4)), T(getsockopt(udp, SOL_SOCKET, SO_TIMESTAMPNS, &value, &length)), T(value);
    char cookie[8], other[8];
    length = 8, T(getsockopt(udp, SOL_SOCKET, SO_COOKIE, cookie, &length)), T(length), length = 8, T(getsockopt(tcp, SOL_SOCKET, SO_COOKIE, other, &length)), IS(memcmp(cookie, other, 8) != 0);
    CHILD("nobody", (setresuid(7, 7, 7), value = 1, T(setsockopt(udp, SOL_SOCKET, SO_DEBUG, &value, 4)), T(setsockopt(udp, SOL_SOCKET, SO_MARK, &value, 4)), value = 7, T(setsockopt(udp, SOL_SOCKET, SO_PRIORITY, &value, 4)), T(setsockopt(udp, IPPROTO_IP, IP_TRANSPARENT, &value, 4)), T(setsockopt(udp, SOL_SOCKET, SO_RCVBUFFORCE, &value, 4))));
}
PROGRAM(datagrams_say_when_they_came) {
    struct sockaddr_in name = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof name;
    char bytes[8], control[128];
    int fd = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
    bind(fd, (void *)&name, sizeof name), getsockname(fd, (void *)&name, &length);
    for (int kind = 0; kind < 3; kind++) {
        struct iovec part = {bytes, 8};
        struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        if (kind)
            setsockopt(fd, SOL_SOCKET, kind == 1 ? SO_TIMESTAMP : SO_TIMESTAMPNS, &one, 4);
        sendto(fd, "x", 1, 0, (void *)&name, sizeof name), T(recvmsg(fd, &head, 0)), T(head.msg_controllen);
        struct cmsghdr *told = CMSG_FIRSTHDR(&head);
        if (told) {
            long *when = (void *)CMSG_DATA(told);
            printf("%d %d %zu\n", told->cmsg_level, told->cmsg_type, told->cmsg_len), IS(when[0] - time(NULL) <= 1 && time(NULL) - when[0] <= 1), IS(when[1] >= 0 && when[1] < (kind == 1 ? 1000000 : 1000000000));
        }
    }
}

// What ICMP says of datagrams, one by one.
#include <linux/errqueue.h>
PROGRAM(errors_of_datagrams) {
    struct sockaddr_in name = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}}, to;
    struct sockaddr_in6 name6 = {AF_INET6, 0, 0, IN6ADDR_LOOPBACK_INIT}, to6;
    socklen_t length = sizeof name;
    char bytes[64], control[256];
    int gone = socket(AF_INET, SOCK_DGRAM, 0), fd = socket(AF_INET, SOCK_DGRAM, 0), six = socket(AF_INET6, SOCK_DGRAM, 0), one = 1;
    bind(gone, (void *)&name, sizeof name), getsockname(gone, (void *)&name, &length), close(gone), name6.sin6_port = name.sin_port;
    struct pollfd wish = {fd, POLLIN | POLLOUT};
    T(recv(fd, bytes, 64, MSG_ERRQUEUE)), T(setsockopt(fd, IPPROTO_IP, IP_RECVERR, &one, 4)), T(sendto(fd, "hello", 5, 0, (void *)&name, sizeof name)), T(poll(&wish, 1, 1000)), T(wish.revents), T(sendto(fd, "again", 5, 0, (void *)&name, sizeof name)), T(sendto(fd, "again", 5, 0, (void *)&name, sizeof name));
    for (int i = 0; i < 3; i++) {
        struct iovec part = {bytes, i ? 64 : 3};
        struct msghdr head = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        pause_ms(5);
        T(recvmsg(fd, &head, MSG_ERRQUEUE));
        if (head.msg_flags == 0)
            continue;
        struct cmsghdr *told = CMSG_FIRSTHDR(&head);
        struct sock_extended_err *error = (void *)CMSG_DATA(told);
        printf("%.3s %x, %d %d, %d %d %zu: %d %d %d %d %d %d, %d %x\n", bytes, head.msg_flags, head.msg_namelen, to.sin_port == name.sin_port, told->cmsg_level, told->cmsg_type, told->cmsg_len, error->ee_errno, error->ee_origin, error->ee_type, error->ee_code, error->ee_info, error->ee_data, SO_EE_OFFENDER(error)->sa_family, ((struct sockaddr_in *)SO_EE_OFFENDER(error))->sin_addr.s_addr);
    }
    T(poll(&wish, 1, 0)), T(wish.revents), T(recv(fd, bytes, 64, MSG_DONTWAIT));
    setsockopt(six, IPPROTO_IPV6, IPV6_RECVERR, &one, 4), T(sendto(six, "hello", 5, 0, (void *)&name6, sizeof name6)), wish.fd = six, T(poll(&wish, 1, 1000)), T(wish.revents);
    struct iovec part = {bytes, 64};
    struct msghdr head = {.msg_name = &to6, .msg_namelen = sizeof to6, .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    T(recvmsg(six, &head, MSG_ERRQUEUE));
    struct cmsghdr *told = CMSG_FIRSTHDR(&head);
    struct sock_extended_err *error = (void *)CMSG_DATA(told);
    printf("%.3s %x, %d %d, %d %d %zu: %d %d %d %d, %d\n", bytes, head.msg_flags, head.msg_namelen, to6.sin6_port == name.sin_port, told->cmsg_level, told->cmsg_type, told->cmsg_len, error->ee_errno, error->ee_origin, error->ee_type, error->ee_code, SO_EE_OFFENDER(error)->sa_family);
    T(recv(socket(AF_INET, SOCK_STREAM, 0), bytes, 1, MSG_ERRQUEUE));
}
