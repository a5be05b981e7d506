// Extended attributes, what a process may keep about itself, and what the system's own files tell.
#include "answers.h"
#include <sys/personality.h>
#include <sys/xattr.h>

static void extended(void) {
    int fd = open("file", O_CREAT | O_RDWR, 0644);
    char bytes[70000], names[256];
    mkdir("folder", 0755), symlink("file", "link"), mkfifo("fifo", 0644);
    memset(bytes, 'v', sizeof bytes);
    T(getxattr("file", "user.a", bytes, 10)), T(listxattr("file", names, 0)), T(setxattr("file", "user.a", "value", 5, 0)), T(getxattr("file", "user.a", NULL, 0)), T(getxattr("file", "user.a", bytes, 10));
    IS(memcmp(bytes, "value", 5) == 0), T(getxattr("file", "user.a", bytes, 4)), T(listxattr("file", NULL, 0)), T(listxattr("file", names, 3)), T(listxattr("file", names, sizeof names)), IS(memcmp(names, "user.a", 7) == 0);
    T(setxattr("file", "user.a", "x", 1, XATTR_CREATE)), T(setxattr("file", "user.b", "x", 1, XATTR_REPLACE)), T(setxattr("file", "user.b", "", 0, XATTR_CREATE)), T(setxattr("file", "user.a", "x", 1, XATTR_REPLACE)), T(fgetxattr(fd, "user.a", bytes, 10));
    T(fgetxattr(fd, "user.b", bytes, 10)), T(setxattr("file", "user.a", "x", 1, 99)), T(setxattr("file", "", "x", 1, 0)), T(setxattr("file", "user.", "x", 1, 0)), T(setxattr("file", "wrong", "x", 1, 0)), T(setxattr("file", "wrong.a", "x", 1, 0)), T(getxattr("file", "wrong.a", bytes, 1));
    memset(names, 'n', sizeof names), memcpy(names, "user.", 5), names[255] = 0;
    T(setxattr("file", names, "x", 1, 0)), T(removexattr("file", names)), T(setxattr("file", "user.c", bytes, 65537, 0)), T(setxattr("file", "user.c", (void *)8, 1, 0)), T(setxattr("file", (void *)8, "x", 1, 0)), T(getxattr("file", "user.a", (void *)8, 10)), T(listxattr("file", (void *)8, 200));
    T(removexattr("file", "user.a")), T(removexattr("file", "user.a")), T(fremovexattr(fd, "user.b")), T(flistxattr(fd, names, sizeof names)), T(setxattr("nothing", "user.a", "x", 1, 0)), T(fsetxattr(99, "user.a", "x", 1, 0)), T(fsetxattr(open("file", O_PATH), "user.a", "x", 1, 0));
    T(lsetxattr("link", "user.a", "x", 1, 0)), T(lgetxattr("link", "user.a", bytes, 1)), T(setxattr("link", "user.a", "x", 1, 0)), T(getxattr("file", "user.a", bytes, 1)), T(lsetxattr("link", "trusted.a", "x", 1, 0)), T(llistxattr("link", names, sizeof names)), T(setxattr("fifo", "user.a", "x", 1, 0));
    T(setxattr("folder", "user.a", "x", 1, 0)), T(setxattr("file", "trusted.t", "secret", 6, 0)), T(getxattr("file", "trusted.t", bytes, 10)), T(listxattr("file", names, sizeof names)), T(setxattr("file", "security.own", "x", 1, 0));
    CHILD("another user", {
        setresgid(1000, 1000, 1000), setresuid(1000, 1000, 1000);
        T(getxattr("file", "user.a", bytes, 10)), T(setxattr("file", "user.a", "y", 1, 0)), T(getxattr("file", "trusted.t", bytes, 10)), T(setxattr("file", "trusted.t", "y", 1, 0)), T(removexattr("file", "user.a")), T(setxattr("file", "security.own", "y", 1, 0)), T(getxattr("file", "security.own", bytes, 10));
    });
    chmod("file", 0600);
    CHILD("another user who may not read", { setresgid(1000, 1000, 1000), setresuid(1000, 1000, 1000); T(getxattr("file", "user.a", bytes, 10)), T(listxattr("file", names, sizeof names) > 0); });
    T(rename("file", "moved")), T(getxattr("moved", "user.a", bytes, 10)), T(link("moved", "second")), T(getxattr("second", "user.a", bytes, 10)), T(fsetxattr(open("moved", O_RDONLY), "user.d", "x", 1, 0));
}

static int reads(const char *path) {
    char bytes[4096];
    int fd = open(path, O_RDONLY), count = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);
    if (fd >= 0)
        close(fd);
    return count < 0 ? -1 : count > 0;
}
static void personalities(void) {
    T(personality(0xffffffff)), T(personality(ADDR_NO_RANDOMIZE)), T(personality(0xffffffff));
    CHILD("inherited", T(personality(0xffffffff)));
    char bytes[32];
    int fd = open("/proc/self/personality", O_RDONLY);
    T(read(fd, bytes, sizeof bytes)), IS(memcmp(bytes, "00040000\n", 9) == 0), T(personality(0)), T(personality(0xffffffff));
}
static void own_files(void) {
    static const char *const names[] = {"auxv", "cgroup", "cmdline", "comm", "environ", "gid_map", "io", "limits", "loginuid", "maps", "mountinfo", "mounts", "oom_score", "oom_score_adj",
                                        "sessionid", "setgroups", "smaps_rollup", "stat", "statm", "status", "timerslack_ns", "uid_map", "wchan"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        char at[64];
        sprintf(at, "/proc/self/%s", names[i]);
        tell(names[i], reads(at));
    }
    char bytes[64];
    int fd = open("/proc/self/uid_map", O_RDONLY);
    T(read(fd, bytes, sizeof bytes));
    prctl(PR_SET_TIMERSLACK, 12345);
    fd = open("/proc/self/timerslack_ns", O_RDONLY);
    T(read(fd, bytes, sizeof bytes)), IS(memcmp(bytes, "12345\n", 6) == 0);
}
PROGRAM(attributes) {
    CHILD("extended attributes", extended());
    CHILD("personalities", personalities());
    CHILD("own files", own_files());
}
