/*
 * The first process of a Linux machine of suite rhino: loads the drivers of virtio's disks, runs a program as its child,
 * and ends the machine.
 *
 *   init KERNEL_WORDS... --init [--mount] PROGRAM WORDS...
 *
 * With --mount it mounts the first disk on /db before, as ext4. What the program says is read by `aegis bench`; this
 * says `init: WHAT: WHY` of what fails, and `init: status STATUS` of a program that does.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_TRIES 1000

/* ext4 is built in. */
static char *const modules[] = {"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev",
                                "virtio_pci", "virtio_blk", NULL};

static void say(const char *what) {
    dprintf(1, "init: %s: %s\n", what, strerror(errno));
}

static void load_modules(void) {
    for (char *const *name = modules; *name; name++) {
        char path[64];
        snprintf(path, sizeof path, "/modules/%s.ko", *name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || syscall(SYS_finit_module, fd, "", 0)) say(path);
        close(fd);
    }
}

static void mount_disk(void) {
    mkdir("/db", 0755);
    if (mount("/dev/vda", "/db", "ext4", 0, NULL)) say("mounting the disk");
}

int main(int argc, char **argv) {
    int first = 1;
    while (first < argc && strcmp(argv[first], "--init")) first++;
    char **words = argv + first + 1;
    if (first + 1 >= argc) return 2;
    mkdir("/proc", 0755), mkdir("/sys", 0755), mkdir("/dev", 0755), mkdir("/tmp", 01777);
    mount("proc", "/proc", "proc", 0, NULL);
    mount("sysfs", "/sys", "sysfs", 0, NULL);
    mount("dev", "/dev", "devtmpfs", 0, NULL);
    load_modules();
    for (int try = 0; try < WAIT_TRIES && access("/dev/vda", F_OK); try++) usleep(10000);
    if (!strcmp(*words, "--mount")) {
        mount_disk();
        words++;
    }
    pid_t child = fork();
    if (child < 0) say("fork");
    if (!child) {
        execv(*words, words);
        say(*words);
        _exit(127);
    }
    int status = 0;
    if (child > 0 && waitpid(child, &status, 0) == child && status) dprintf(1, "init: status %d\n", status);
    sync();
    umount("/db");
    reboot(RB_AUTOBOOT);
    return 0;
}
