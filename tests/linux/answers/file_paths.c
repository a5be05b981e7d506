// Walks of paths: loops, lengths, dots, trailing slashes, what is no directory; working directories and roots.
#include "files.h"

static char text[20000];
// A text of `count` times `piece`, and `end`.
static char *many(const char *piece, int count, const char *end) {
    text[0] = 0;
    for (char *at = text; count > 0; count--)
        at = stpcpy(at, piece);
    return strcat(text, end);
}

PROGRAM(path_loops) {
    put("f", "x"), symlink("f", "l0");
    for (int i = 1; i < 45; i++) {
        char from[20], to[20];
        sprintf(from, "l%d", i), sprintf(to, "l%d", i - 1), symlink(to, from);
    }
    W(open("l38", O_RDONLY)), W(open("l39", O_RDONLY)), W(open("l40", O_RDONLY)), W(open("l44", O_RDONLY)), W(open("l44", O_PATH | O_NOFOLLOW)), T(access("l39", F_OK)), T(access("l40", F_OK)), T(chmod("l40", 0600)), T(truncate("l40", 0)), T(link("l40", "hard")), T(unlink("hard"));
    T(unlink("l44")), T(rename("l43", "l44")), T(chdir("l44")), W(creat("l44", 0600)), T(mkdir("l44", 0700)), T(stat("l44", &(struct stat){0})), T(lstat("l44", &(struct stat){0})), T(statfs("l44", &(struct statfs){0})), T(chown("l44", 0, 0)), T(lchown("l44", 0, 0)), T(utimes("l44", NULL)), T(lutimes("l44", NULL));
    symlink(".", "dot"), T(access(many("dot/", 39, "f"), F_OK)), T(access(many("dot/", 40, "f"), F_OK)), T(access(many("dot/", 41, "f"), F_OK)), T(access(many("./", 2000, "f"), F_OK)), T(access(many("dot/", 40, "l0"), F_OK)), T(access(many("dot/", 39, "l0"), F_OK));
    symlink("me/x", "me"), T(access("me", F_OK)), symlink("", "empty"), T(access("empty", F_OK)), T(rename("me", "us")), T(unlink("us/")), T(unlink("us"));
    symlink("../../../../../../../../dev/null", "out"), W(open("out", O_RDWR)), symlink("/", "root"), W(open("root/dev/null", O_RDWR)), T(access("root/..", F_OK)), T(access("root/../../dev", F_OK));
}
PROGRAM(path_lengths) {
    char name[300];
    memset(name, 'n', sizeof name), name[255] = 0;
    W(creat(name, 0600)), T(access(name, F_OK)), T(unlink(name)), T(mkdir(name, 0700)), T(rmdir(name)), T(symlink("x", name)), T(rename(name, "short")), T(rename("short", name)), T(unlink(name)), T(mkfifo(name, 0600)), T(link(name, "l")), T(unlink(name));
    name[255] = 'n', name[256] = 0;
    W(creat(name, 0600)), W(open(name, O_RDONLY)), T(access(name, F_OK)), T(unlink(name)), T(mkdir(name, 0700)), T(rmdir(name)), T(symlink("x", name)), T(rename("l", name)), T(rename(name, "l")), T(link("l", name)), T(link(name, "k")), T(chmod(name, 0)), T(readlink(name, text, 10)), T(mkfifo(name, 0600)), T(chdir(name));
    mkdir("d", 0755);
    T(access(many("./", 2046, "l"), F_OK)), T(access(many("./", 2047, "l"), F_OK)), T(access(many("./", 2047, "d"), F_OK)), T(access(many("./", 2048, ""), F_OK)), T(access(many("/", 4095, ""), F_OK)), T(access(many("/", 4096, ""), F_OK)), T(access(many("/", 9000, ""), F_OK)), W(open(many("./", 2048, ""), O_RDONLY));
    T(symlink(many("x", 4095, ""), "long")), T(readlink("long", text, sizeof text)), T(length("long")), T(symlink(many("x", 4096, ""), "longer")), T(access("long", F_OK)), T(symlink("", "none")), T(symlink(many("./", 2046, "l"), "roundabout")), T(access("roundabout", F_OK)), T(mkdir(many("./", 2047, "e"), 0700)), T(rename(many("./", 2047, "e"), many("./", 2047, "e")));
    T(readlink("long", text, 10)), T(readlink("long", text, 0)), T(readlink("long", text, -1)), T(readlink("l", text, 10)), T(readlink("d", text, 10)), T(readlink("no", text, 10)), T(readlink("", text, 10)), T(readlink("l/", text, 10)), T(readlink("long/", text, 10)), T(readlink("l/x", text, 10)), T(readlink("none", text, 10)), T(readlink((void *)8, text, 10)), T(readlink("long", (void *)8, 10));
}
PROGRAM(path_depth) {
    char name[201];
    memset(name, 'd', 200), name[200] = 0;
    int depth = 0;
    for (; depth < 40 && mkdir(name, 0755) == 0 && chdir(name) == 0; depth++) {
    }
    tell("depth", depth), T(syscall(SYS_getcwd, text, 4096)), T(syscall(SYS_getcwd, text, 20000)), T(open(".", O_RDONLY) >= 0), T(put("f", "x")), T(access("f", F_OK));
    char *is = getcwd(NULL, 0);
    T(is != NULL);
    if (is)
        T(strlen(is) > 8000), T(chdir(is));
    for (int i = 0; i < 40; i++) {
        unlink("f"), chdir("..");
        if (i < depth)
            rmdir(name);
    }
    T(rmdir(name));
}
PROGRAM(path_dots) {
    mkdir("d", 0755), mkdir("d/e", 0755), put("f", "x");
    T(mkdir(".", 0700)), T(mkdir("..", 0700)), T(mkdir("d/.", 0700)), T(mkdir("d/..", 0700)), T(mkdir("new/.", 0700)), T(mkdir("/", 0700)), T(mkdir("", 0700)), T(mkdir("new/", 0700)), T(rmdir("new/")), T(mkdir("new//", 0700)), T(rmdir("new///"));
    T(rmdir(".")), T(rmdir("..")), T(rmdir("d/.")), T(rmdir("d/..")), T(rmdir("d/e/..")), T(rmdir("/")), T(rmdir("")), T(rmdir("f")), T(rmdir("f/")), T(rmdir("none")), T(rmdir("none/")), T(rmdir("d")), T(rmdir("d/"));
    T(unlink(".")), T(unlink("..")), T(unlink("d")), T(unlink("d/")), T(unlink("d/.")), T(unlink("f/")), T(unlink("f/.")), T(unlink("")), T(unlink("/")), T(unlink("none/")), T(unlinkat(AT_FDCWD, "d", AT_REMOVEDIR)), T(unlinkat(AT_FDCWD, "f", AT_REMOVEDIR)), T(unlinkat(AT_FDCWD, "f", 1)), T(unlinkat(AT_FDCWD, "d/e/", 0)), T(unlinkat(AT_FDCWD, ".", AT_REMOVEDIR));
    T(rename(".", "x")), T(rename("..", "x")), T(rename("d/.", "x")), T(rename("d/..", "x")), T(rename("d", ".")), T(rename("d", "..")), T(rename("d", "e/.")), T(rename("f", "d/.")), T(rename("f", "d/..")), T(rename("/", "x")), T(rename("f", "/")), T(rename("", "x")), T(rename("f", ""));
    T(link(".", "x")), T(link("d", "x")), T(link("f", ".")), T(link("f", "d/.")), T(link("f", "..")), T(link("f", "")), T(link("", "x")), T(link("f", "/")), T(symlink("x", ".")), T(symlink("x", "..")), T(symlink("x", "")), T(symlink("x", "d/.")), T(symlink("x", "s/")), T(symlink("x", "d/")), T(symlink("x", "f/"));
    T(mkfifo(".", 0600)), T(mkfifo("p/", 0600)), T(mkfifo("d/", 0600)), T(mkfifo("f/", 0600)), T(mkfifo("", 0600)), T(mkfifo("d/.", 0600)), T(mknod("n/", S_IFREG | 0600, 0)), T(mknod(".", S_IFREG | 0600, 0));
}
PROGRAM(path_slashes) {
    mkdir("d", 0755), put("f", "x"), symlink("d", "ld"), symlink("f", "lf"), symlink("none", "ln"), mkfifo("p", 0600);
    T(access("f/", F_OK)), T(access("d/", F_OK)), T(access("ld/", F_OK)), T(access("lf/", F_OK)), T(access("ln/", F_OK)), T(access("p/", F_OK)), T(access("//dev//null", F_OK)), T(access("d//.", F_OK)), T(access("d///", F_OK)), T(access("./", F_OK)), T(access("../", F_OK));
    struct stat s;
    T(lstat("ld/", &s)), IS(S_ISDIR(s.st_mode)), T(lstat("ld", &s)), IS(S_ISLNK(s.st_mode)), T(lstat("lf/", &s)), T(lstat("ln/", &s)), T(stat("f/", &s)), T(chmod("f/", 0644)), T(chown("f/", 0, 0)), T(lchown("lf/", 0, 0)), T(truncate("f/", 0)), T(utimes("f/", NULL)), T(statfs("f/", &(struct statfs){0}));
    T(rename("f/", "g")), T(rename("f", "g/")), T(rename("f/", "g/")), T(rename("f", "d/")), T(rename("d/", "e")), T(rename("e", "d/")), T(rename("d/", "e/")), T(rename("e/", "d")), T(rename("ld/", "x")), T(rename("ld", "x/")), T(rename("d", "ln/")), T(rename("d", "ld/")), T(rename("none/", "x")), T(rename("lf", "f/"));
    T(link("f/", "g")), T(link("f", "g/")), T(link("lf/", "g")), T(link("f", "d/")), T(mkdir("ln/", 0700)), T(mkdir("ln", 0700)), T(mkdir("ld/", 0700)), T(mkdir("f/", 0700)), T(mkdir("f/x", 0700)), T(rmdir("ld")), T(rmdir("ld/")), T(unlink("ld/")), T(unlink("lf/")), T(chdir("f/")), T(chdir("ld/")), T(chdir("..")), T(chdir("f")), T(chdir("lf")), T(chdir("ln"));
    T(access("f/..", F_OK)), T(access("f/.", F_OK)), T(access("p/..", F_OK)), T(access("lf/../f", F_OK)), T(access("d/../f", F_OK)), T(access("none/../f", F_OK)), T(access("ld/../f", F_OK)), T(access("f/x", F_OK)), T(access("f/x/y", F_OK)), T(access("none/x", F_OK)), T(access("ln/x", F_OK));
}
PROGRAM(path_empty) {
    struct stat s;
    struct statx x;
    put("f", "abc"), mkdir("d", 0755);
    int f = open("f", O_RDONLY), d = open("d", O_RDONLY);
    T(stat("", &s)), T(lstat("", &s)), T(fstatat(f, "", &s, 0)), T(fstatat(f, "", &s, AT_EMPTY_PATH)), T(s.st_size), T(fstatat(AT_FDCWD, "", &s, AT_EMPTY_PATH)), IS(S_ISDIR(s.st_mode)), T(fstatat(99, "", &s, AT_EMPTY_PATH)), T(fstatat(f, "x", &s, AT_EMPTY_PATH)), T(fstatat(d, "../f", &s, AT_EMPTY_PATH)), T(fstatat(f, "", &s, 0x8000)), T(fstatat(f, "", &s, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)), T(fstatat(f, "", &s, AT_NO_AUTOMOUNT | AT_EMPTY_PATH));
    T(syscall(SYS_newfstatat, f, NULL, &s, 0)), T(syscall(SYS_newfstatat, AT_FDCWD, (void *)8, &s, AT_EMPTY_PATH)), T(syscall(SYS_newfstatat, f, "", (void *)8, AT_EMPTY_PATH)), T(statx(f, "", AT_EMPTY_PATH, STATX_ALL, &x)), T(x.stx_size), T(statx(f, "", 0, STATX_ALL, &x)), T(statx(AT_FDCWD, "f", 0, 0x80000000, &x)), T(statx(AT_FDCWD, "f", 0x6000, STATX_ALL, &x)), T(statx(AT_FDCWD, "f", 0x8000, STATX_ALL, &x)), T(statx(AT_FDCWD, "f", 0, 0, &x)), T(statx(AT_FDCWD, "f", AT_STATX_DONT_SYNC, STATX_SIZE, &x)), T(statx(AT_FDCWD, "f", 0, STATX_ALL, (void *)8));
    T(fchownat(f, "", 1, 2, 0)), T(fchownat(f, "", 1, 2, AT_EMPTY_PATH)), T(about("f").st_uid), T(fchownat(AT_FDCWD, "", -1, -1, AT_EMPTY_PATH)), T(fchownat(f, "", 1, 1, 0x4)), T(utimensat(f, "", NULL, 0)), T(syscall(SYS_utimensat, f, "", NULL, AT_EMPTY_PATH)), T(syscall(SYS_utimensat, f, NULL, NULL, 0)), T(syscall(SYS_utimensat, f, NULL, NULL, AT_EMPTY_PATH)), T(syscall(SYS_utimensat, AT_FDCWD, NULL, NULL, 0)), T(syscall(SYS_utimensat, 99, NULL, NULL, 0)), T(syscall(SYS_utimensat, f, NULL, NULL, AT_SYMLINK_NOFOLLOW)), T(syscall(SYS_utimensat, f, "x", NULL, 0));
    T(syscall(SYS_faccessat2, f, "", R_OK, 0)), T(syscall(SYS_faccessat2, f, "", R_OK, AT_EMPTY_PATH)), T(syscall(SYS_faccessat2, d, "", X_OK, AT_EMPTY_PATH | AT_EACCESS)), T(syscall(SYS_faccessat2, AT_FDCWD, "f", 8, 0)), T(syscall(SYS_faccessat2, AT_FDCWD, "f", R_OK, 0x4000)), T(syscall(SYS_faccessat2, AT_FDCWD, "", R_OK, AT_EMPTY_PATH)), T(syscall(SYS_faccessat2, 99, "", R_OK, AT_EMPTY_PATH));
    T(syscall(452, f, "", 0600, 0)), T(syscall(452, f, "", 0600, AT_EMPTY_PATH)), T(mode("f")), T(syscall(452, AT_FDCWD, "f", 0644, AT_SYMLINK_NOFOLLOW)), T(syscall(452, AT_FDCWD, "f", 0644, 0x400)), symlink("f", "l"), T(syscall(452, AT_FDCWD, "l", 0644, AT_SYMLINK_NOFOLLOW)), T(fchmodat(AT_FDCWD, "l", 0600, 0)), T(mode("f")), T(syscall(SYS_fchmodat, AT_FDCWD, "l", 0644, 0x100)), T(mode("f"));
    T(linkat(f, "", AT_FDCWD, "h", 0)), T(linkat(f, "", AT_FDCWD, "h", AT_EMPTY_PATH)), T(linkat(d, "", AT_FDCWD, "h2", AT_EMPTY_PATH)), T(linkat(AT_FDCWD, "", AT_FDCWD, "h2", AT_EMPTY_PATH)), T(linkat(AT_FDCWD, "f", AT_FDCWD, "h2", 0x100)), T(unlinkat(f, "", 0)), T(unlinkat(d, "", AT_REMOVEDIR)), T(renameat(d, "", AT_FDCWD, "x")), T(mkdirat(d, "", 0700)), T(symlinkat("", d, "x")), T(symlinkat("x", d, "")), T(syscall(SYS_statfs, "", &(struct statfs){0}));
    USER(T(linkat(f, "", AT_FDCWD, "h3", AT_EMPTY_PATH)), T(syscall(SYS_faccessat2, f, "", W_OK, AT_EMPTY_PATH)), T(fchownat(f, "", 1000, 1000, AT_EMPTY_PATH)), T(syscall(SYS_utimensat, f, NULL, NULL, 0)), T(syscall(SYS_utimensat, f, NULL, &(struct timespec[2]){{1, 0}, {1, 0}}, 0)));
}
PROGRAM(path_working) {
    mkdir("a", 0755), mkdir("a/b", 0755), put("f", "x"), mkdir("closed", 0600), mkdir("unlisted", 0711);
    char at[4096], base[4096];
    getcwd(base, sizeof base), T(chdir("a/b")), T(getcwd(at, sizeof at) != NULL), IS(strcmp(at + strlen(base), "/a/b") == 0), T(syscall(SYS_getcwd, at, 3)), T(syscall(SYS_getcwd, at, 0)), T(syscall(SYS_getcwd, (void *)8, 100)), T(syscall(SYS_getcwd, NULL, 0)), T(syscall(SYS_getcwd, at, strlen(base) + 4)), T(syscall(SYS_getcwd, at, strlen(base) + 5) - strlen(base));
    rename("../b", "../c"), T(getcwd(at, sizeof at) != NULL), IS(strcmp(at + strlen(base), "/a/c") == 0), rename("../../a", "../../z"), T(getcwd(at, sizeof at) != NULL), IS(strcmp(at + strlen(base), "/z/c") == 0), rmdir("../c"), T(getcwd(at, sizeof at) ? 0 : -1), T(access("..", F_OK)), T(chdir("..")), T(getcwd(at, sizeof at) != NULL), IS(strcmp(at + strlen(base), "/z") == 0);
    T(chdir(base)), T(chdir("f")), T(chdir("none")), T(chdir("")), T(chdir((void *)8)), T(fchdir(open("f", O_RDONLY))), T(fchdir(99)), T(fchdir(open("z", O_PATH))), T(chdir("..")), T(chdir("/..")), T(getcwd(at, sizeof at) != NULL), IS(strcmp(at, "/") == 0), T(chdir(base));
    int closed = open("closed", O_RDONLY);
    USER(T(chdir("closed")), T(fchdir(closed)), T(chdir("unlisted")), T(chdir("unlisted")), T(access("..", F_OK)), T(chdir("..")));
    T(readlink("/proc/self/cwd", at, sizeof at) == strlen(base)), mkdir("gone", 0755), chdir("gone"), rmdir("../gone"), memset(at, 0, sizeof at), T(readlink("/proc/self/cwd", at, sizeof at) > 10), IS(strcmp(at + strlen(at) - 10, " (deleted)") == 0), T(open("/proc/self/cwd", O_RDONLY) >= 0), T(mkdir("/proc/self/cwd/x", 0700)), T(chdir("/proc/self/cwd"));
}
PROGRAM(path_roots) {
    mkdir("r", 0755), mkdir("r/in", 0755), put("r/in/f", "x"), symlink("/in/f", "r/abs"), symlink("../../../in", "r/up"), put("f", "y");
    int outside = open(".", O_RDONLY);
    CHILD("a root of its own", {
        char at[4096];
        T(chroot("none")), T(chroot("f")), T(chroot("")), T(chroot((void *)8)), T(chdir("r/in")), T(chroot("..")), T(syscall(SYS_getcwd, at, sizeof at)), IS(strcmp(at, "/in") == 0), T(chdir("/")), T(syscall(SYS_getcwd, at, sizeof at)), T(access("/in/f", F_OK)), T(access("/../in/f", F_OK)), T(access("../../in", F_OK)), T(access("abs", F_OK)), T(access("up/f", F_OK)), T(access("/proc", F_OK)), W(open("/dev/null", O_RDONLY));
        T(faccessat(outside, "f", F_OK, 0)), T(faccessat(outside, "../..", F_OK, 0)), T(fchdir(outside)), T(syscall(SYS_getcwd, at, sizeof at) > 0), IS(strncmp(at, "(unreachable)/", 14) == 0), T(access("r/in/f", F_OK)), T(access("/f", F_OK)), T(chroot(".")), T(access("/f", F_OK)), T(syscall(SYS_getcwd, at, sizeof at)), T(mkdir("/made", 0700));
    });
    T(access("made", F_OK));
    USER(T(chroot("r")), T(chroot("none")), T(chroot("f")));
    CHILD("without search", chmod("r", 0600); setfsuid(1000); T(chroot("r/in")), T(chroot("r")));
    T(access("/in", F_OK));
}
PROGRAM(path_search) {
    mkdir("a", 0755), mkdir("a/closed", 0644), mkdir("a/closed/in", 0777), put("a/closed/f", "x"), symlink("closed/f", "a/link"), mkdir("a/blind", 0311), put("a/blind/f", "x"), chmod("a/blind", 0311);
    USER(struct stat s; T(stat("a/closed", &s)), T(stat("a/closed/f", &s)), T(lstat("a/closed/f", &s)), T(stat("a/link", &s)), T(lstat("a/link", &s)), T(access("a/closed/f", F_OK)), T(stat("a/closed/.", &s)), T(stat("a/closed/..", &s)), T(stat("a/closed/none", &s)), T(stat("a/blind/f", &s)), T(stat("a/blind", &s)), W(open("a/blind", O_RDONLY)), T(chdir("a/closed")), T(chdir("a/blind")));
    USER(T(chmod("a/closed/f", 0600)), T(chown("a/closed/f", 1000, 1000)), T(unlink("a/closed/f")), T(rmdir("a/closed/in")), T(mkdir("a/closed/x", 0700)), T(rename("a/closed/f", "x")), T(link("a/closed/f", "x")), T(readlink("a/closed/f", (char[9]){0}, 9)), T(truncate("a/closed/f", 0)), T(utimes("a/closed/f", NULL)), T(symlink("x", "a/closed/x")), T(mkfifo("a/closed/p", 0600)), T(statfs("a/closed/f", &(struct statfs){0})), T(execl("a/closed/f", "f", NULL)));
    CHILD("with CAP_DAC_READ_SEARCH", {
        prctl(PR_SET_KEEPCAPS, 1), setresgid(1000, 1000, 1000), setresuid(1000, 1000, 1000);
        struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
        struct __user_cap_data_struct data[2] = {{1 << CAP_DAC_READ_SEARCH, 1 << CAP_DAC_READ_SEARCH, 0}};
        T(syscall(SYS_capset, &header, data)), W(open("a/closed/f", O_RDONLY)), W(open("a/closed/f", O_RDWR)), W(open("a/blind", O_RDONLY)), W(creat("a/closed/new", 0600)), T(unlink("a/closed/f")), T(access("a/closed/f", R_OK)), T(syscall(SYS_faccessat2, AT_FDCWD, "a/closed/f", R_OK, AT_EACCESS));
    });
}
PROGRAM(path_pointers) {
    char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + 4096, 4096);
    struct stat s;
    char *end = page + 4096 - 2;
    end[0] = 'f', end[1] = 0, T(put(end, "x")), T(stat(end, &s)), end[1] = 'f', T(stat(end, &s)), T(creat(end, 0600)), T(unlink(end)), T(rename(end, "x")), T(rename("f", end)), T(symlink(end, "y")), T(symlink("y", end)), T(mkdir(end, 0)), T(chdir(end)), T(access(end, 0)), T(truncate(end, 0));
    T(stat("f", (void *)8)), T(stat((void *)-1, &s)), T(stat((void *)-4096, &s)), T(stat((void *)(1ull << 63), &s)), T(stat(NULL, &s)), T(lstat("none", (void *)8)), T(fstat(0, (void *)8)), T(fstat(99, (void *)8)), T(statfs("f", (void *)8)), T(utimensat(AT_FDCWD, "f", (void *)8, 0)), T(pipe((void *)8)), T(read(0, (void *)8, 0)), T(access((void *)1, F_OK));
    memset(page, 'x', 4096), T(stat(page, &s)), T(open(page, O_RDONLY)), memset(page, '/', 4096), T(stat(page, &s)), page[4095] = 0, T(stat(page, &s)), mprotect(page, 4096, PROT_NONE), T(stat(page, &s)), T(open(page, O_CREAT | O_RDWR, 0600));
}
