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
    static const char *names[] = {"core/somaxconn", "core/rmem_default", "core/wmem_default", "core/default_qdisc", "core/netdev_max_backlog", "core/message_burst", "core/dev_weight", "ipv4/ip_local_port_range", "ipv4/ip_forward", "ipv4/ip_default_ttl", "ipv4/ip_unprivileged_port_start", "ipv4/ping_group_range", "ipv4/tcp_fin_timeout", "ipv4/tcp_keepalive_time", "ipv4/tcp_keepalive_intvl", "ipv4/tcp_keepalive_probes", "ipv4/tcp_retries1", "ipv4/tcp_retries2", "ipv4/tcp_syn_retries", "ipv4/tcp_synack_retries", "ipv4/tcp_syncookies", "ipv4/tcp_timestamps", "ipv4/tcp_sack", "ipv4/tcp_window_scaling", "ipv4/tcp_tw_reuse", "ipv4/tcp_abort_on_overflow", "ipv4/tcp_ecn", "ipv4/tcp_notsent_lowat", "ipv4/tcp_orphan_retries", "ipv4/ip_nonlocal_bind", "ipv4/ipfrag_time", "ipv4/icmp_echo_ignore_all", "ipv4/icmp_echo_ignore_broadcasts", "ipv4/icmp_ratelimit", "ipv4/conf/lo/forwarding", "ipv4/conf/all/forwarding", "ipv4/udp_rmem_min", "ipv4/ip_local_reserved_ports", "ipv6/bindv6only", "ipv6/conf/all/disable_ipv6", "ipv6/conf/lo/disable_ipv6", "ipv6/conf/default/disable_ipv6", "ipv6/conf/lo/mtu", "ipv6/conf/all/forwarding", "ipv4/none"};
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
