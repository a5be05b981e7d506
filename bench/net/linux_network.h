/*
 * What the first process of a Linux machine does to have a network card: loads the drivers of its card from
 * /modules, as far as they are there, and gives `eth0` the addresses that Aegis has on QEMU's user network.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char *const modules[] = {"/modules/virtio_ring.ko", "/modules/virtio.ko", "/modules/virtio_pci_legacy_dev.ko",
                                "/modules/virtio_pci_modern_dev.ko", "/modules/virtio_pci.ko", "/modules/failover.ko",
                                "/modules/net_failover.ko", "/modules/virtio_net.ko", "/modules/e1000.ko",
                                "/modules/e1000e.ko"};

static void set_address(void *place, const char *text) {
    struct sockaddr_in name = {.sin_family = AF_INET};
    inet_pton(AF_INET, text, &name.sin_addr);
    memcpy(place, &name, sizeof name);
}

static void put(const char *path, const char *value) {
    int fd = open(path, O_WRONLY);
    if (fd < 0 || write(fd, value, strlen(value)) < 0) dprintf(1, "network: %s: %s\n", path, strerror(errno));
    close(fd);
}

static void prepare_network(void) {
    mkdir("/proc", 0755), mkdir("/sys", 0755);
    mount("proc", "/proc", "proc", 0, NULL);
    mount("sysfs", "/sys", "sysfs", 0, NULL);
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        int fd = open(modules[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT) continue;
        if (fd < 0 || syscall(SYS_finit_module, fd, "", 0)) dprintf(1, "network: %s: %s\n", modules[i], strerror(errno));
        close(fd);
    }
    struct ifreq request = {.ifr_name = "eth0"};
    int fd = socket(AF_INET, SOCK_DGRAM, 0), fd6 = socket(AF_INET6, SOCK_DGRAM, 0);
    for (int i = 0; i < 500 && ioctl(fd, SIOCGIFINDEX, &request); i++) usleep(10000);
    int index = request.ifr_ifindex;
    set_address(&request.ifr_addr, "10.0.2.15");
    if (ioctl(fd, SIOCSIFADDR, &request)) dprintf(1, "network: address: %s\n", strerror(errno));
    set_address(&request.ifr_netmask, "255.255.255.0");
    ioctl(fd, SIOCSIFNETMASK, &request);
    strcpy(request.ifr_name, "lo"), request.ifr_flags = IFF_UP | IFF_RUNNING;
    ioctl(fd, SIOCSIFFLAGS, &request);
    strcpy(request.ifr_name, "eth0"), request.ifr_flags = IFF_UP | IFF_RUNNING;
    ioctl(fd, SIOCSIFFLAGS, &request);
    struct in6_ifreq { struct in6_addr address; uint32_t prefix; int index; } six = {.prefix = 64, .index = index};
    inet_pton(AF_INET6, "fec0::15", &six.address);
    if (ioctl(fd6, SIOCSIFADDR, &six)) dprintf(1, "network: address: %s\n", strerror(errno));
    struct rtentry4 {
        unsigned long pad1; struct sockaddr to, gateway, mask; unsigned short flags; short pad2; unsigned long pad3;
        void *pad4; short metric; char *device; unsigned long mtu, window; unsigned short irtt;
    } route = {.flags = 3, .to.sa_family = AF_INET, .mask.sa_family = AF_INET};
    set_address(&route.gateway, "10.0.2.2");
    if (ioctl(fd, SIOCADDRT, &route)) dprintf(1, "network: route: %s\n", strerror(errno));
    struct in6_rtmsg { struct in6_addr to, from, gateway; uint32_t type; uint16_t to_len, from_len; uint32_t metric;
        unsigned long info; uint32_t flags; int index; } route6 = {.metric = 1, .flags = 3, .index = index};
    inet_pton(AF_INET6, "fec0::2", &route6.gateway);
    if (ioctl(fd6, SIOCADDRT, &route6)) dprintf(1, "network: route: %s\n", strerror(errno));
    put("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
    close(fd), close(fd6);
}
