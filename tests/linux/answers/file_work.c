// Longer work with files: many names, odd names, pages and holes, maps that are shared, streams through pipes.
#include "files.h"
#include <sys/inotify.h>

static char text[300000], again[300000];
static unsigned sum(const char *at, long count) {
    unsigned total = 1;
    for (long i = 0; i < count; i++)
        total = total * 31 + (unsigned char)at[i];
    return total;
}
static int count_in(const char *path) {
    DIR *d = opendir(path);
    int count = 0;
    while (d && readdir(d))
        count++;
    if (d)
        closedir(d);
    return count;
}

PROGRAM(work_many_names) {
    char at[64], to[64];
    mkdir("d", 0755), mkdir("e", 0755);
    for (int i = 0; i < 1500; i++)
        sprintf(at, "d/%d", i), close(open(at, O_CREAT | O_EXCL | O_WRONLY, 0600));
    T(count_in("d"));
    for (int i = 1; i < 1500; i += 2)
        sprintf(at, "d/%d", i), unlink(at);
    T(count_in("d")), T(rmdir("d"));
    for (int i = 0; i < 1500; i += 4)
        sprintf(at, "d/%d", i), sprintf(to, "e/%d", i), rename(at, to);
    T(count_in("d")), T(count_in("e")), T(access("d/2", F_OK)), T(access("d/4", F_OK)), T(access("e/4", F_OK)), T(access("d/3", F_OK));
    for (int i = 0; i < 1500; i++)
        sprintf(at, "d/%d", i), unlink(at), sprintf(at, "e/%d", i), unlink(at);
    T(rmdir("d")), T(rmdir("e"));
}
PROGRAM(work_odd_names) {
    static const char *const names[] = {"a b", "-n", "...", ".hidden", "new\nline", "\xff\xfe", "\x01", "a\\b", "*", "tab\t", "\xc3\xa4", "..a", "a..", "~", "%s", "(deleted)", "x (deleted)"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        printf("%u: %d %d %d %d\n", i, put(names[i], "x"), access(names[i], F_OK), (int)length(names[i]), link(names[i], "other")), unlink("other");
    T(count_in("."));
    char at[64], to[300];
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        int fd = open(names[i], O_RDONLY);
        sprintf(at, "/proc/self/fd/%d", fd);
        long count = readlink(at, to, sizeof to - 1);
        to[count < 0 ? 0 : count] = 0, printf("%u: %d\n", i, strcmp(strrchr(to, '/') + 1, names[i])), close(fd), unlink(names[i]);
    }
    T(count_in(".")), T(mkdir("...", 0700)), T(rmdir("...")), T(mkdir("a/", 0700)), T(rename("a", "..b")), T(chdir("..b")), T(chdir("..")), T(rmdir("..b")), T(symlink("\n", "nl")), T(readlink("nl", to, 9)), T(access("nl", F_OK));
}
PROGRAM(work_pages) {
    for (int i = 0; i < sizeof text; i++)
        text[i] = i * 7 + i / 4096;
    int fd = open("f", O_CREAT | O_RDWR, 0600);
    static const int places[][2] = {{0, 10}, {4090, 12}, {4096, 4096}, {8191, 2}, {100000, 1}, {65530, 70000}, {262143, 5000}, {12288, 0}, {4095, 1}, {135000, 4097}};
    for (int i = 0; i < 10; i++)
        T(pwrite(fd, text + i, places[i][1], places[i][0]));
    T(length("f")), T(pread(fd, again, sizeof again, 0)), T(sum(again, length("f"))), T(lseek(fd, 20000, SEEK_DATA)), T(lseek(fd, 20000, SEEK_HOLE)), T(ftruncate(fd, 66000)), T(ftruncate(fd, 140000)), T(pread(fd, again, sizeof again, 0)), T(sum(again, 140000)), T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4000, 5000)), T(pread(fd, again, sizeof again, 0)), T(sum(again, 140000));
    for (int i = 1; i < 20; i++)
        pread(fd, again, i * 997, i * 4096 - i * 13), printf("%u\n", sum(again, i * 997));
    lseek(fd, 4000, SEEK_SET);
    for (int i = 0; i < 5; i++)
        T(read(fd, again, 3001)), T(sum(again, 3001));
    struct iovec v[300];
    for (int i = 0; i < 300; i++)
        v[i] = (struct iovec){text + i * 37, i % 50};
    T(pwritev(fd, v, 300, 3000)), T(pread(fd, again, 10000, 2000)), T(sum(again, 10000)), memset(again, 0, sizeof again);
    for (int i = 0; i < 300; i++)
        v[i].iov_base = again + i * 50;
    T(preadv(fd, v, 300, 3000)), T(sum(again, 15000));
}
PROGRAM(work_maps) {
    int fd = open("f", O_CREAT | O_RDWR, 0600);
    ftruncate(fd, 40000);
    char *one = mmap(0, 40960, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *two = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096), *own = mmap(0, 40960, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    one[5000] = 'a', T(two[904]), two[0] = 'b', T(one[4096]), T(own[5000]), own[5000] = 'c', T(one[5000]), pwrite(fd, "d", 1, 5001), T(one[5001]), T(own[5001]), pwrite(fd, "e", 1, 9000), T(own[9000]);
    CHILD("writes both", one[0] = 'x'; own[1] = 'y'; two[1] = 'z'; pwrite(fd, "w", 1, 20000));
    T(one[0]), T(own[1]), T(one[4097]), T(own[20000]), T(pread(fd, text, 40000, 0)), T(sum(text, 40000)), unlink("f"), close(fd), one[39999] = 'l', T(own[39999]), T(munmap(two, 4096)), T(two[4097] == one[8193]), T(mprotect(one, 4096, PROT_READ)), T(one[0]);
    CHILD("may not write", one[0] = 1);
    fd = open("g", O_CREAT | O_RDWR, 0600), ftruncate(fd, 8192);
    char *g = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    memset(g, 'g', 8192), ftruncate(fd, 100), ftruncate(fd, 8192), T(g[99]), T(g[100]), T(g[5000]), g[5000] = 'h', T(pread(fd, text, 1, 5000)), T(text[0]), T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096)), T(g[5000]), T(mremap(g, 8192, 4096, 0) == g), T(mremap(g, 4096, 16384, MREMAP_MAYMOVE) != MAP_FAILED);
}
PROGRAM(work_pipes) {
    int p[2], q[2], status;
    pipe(p), pipe(q);
    for (int i = 0; i < sizeof text; i++)
        text[i] = i * 13 + i / 1000;
    fflush(stdout);
    if (fork() == 0) {
        close(p[1]), close(q[0]);
        long got;
        while ((got = read(p[0], again, 7777)) > 0)
            write(q[1], again, got);
        _exit(0);
    }
    close(p[0]), close(q[1]);
    if (fork() == 0) {
        close(q[0]);
        for (long done = 0; done < sizeof text; done += 30000)
            write(p[1], text + done, 30000);
        _exit(0);
    }
    close(p[1]);
    long total = 0, got;
    while ((got = read(q[0], again + total, sizeof again - total)) > 0)
        total += got;
    T(total), IS(memcmp(text, again, sizeof text) == 0);
    while (wait(&status) > 0) {
    }
    int f = open("f", O_CREAT | O_RDWR, 0600);
    write(f, text, sizeof text), pipe(p), fflush(stdout);
    if (fork() == 0) {
        close(p[0]);
        loff_t at = 0;
        while (splice(f, &at, p[1], NULL, 100000, 0) > 0) {
        }
        _exit(0);
    }
    close(p[1]);
    int g = open("g", O_CREAT | O_RDWR, 0600);
    while (splice(p[0], NULL, g, NULL, 50000, 0) > 0) {
    }
    T(length("g")), T(pread(g, again, sizeof again, 0)), IS(memcmp(text, again, sizeof text) == 0), T(copy_file_range(g, &(loff_t){1000}, f, &(loff_t){300000}, 200000, 0)), T(length("f")), T(pread(f, again, 200000, 300000)), T(sum(again, 200000)), T(sendfile(g, f, &(off_t){0}, 500000)), T(length("g"));
}
PROGRAM(work_locks) {
    int fd = open("f", O_CREAT | O_RDWR, 0600);
#define LOCKS(type, start, count) fcntl(fd, F_SETLK, &(struct flock){type, SEEK_SET, start, count})
#define SHOWS(what) CHILD(what, for (long at = 0, n = 0; n < 12; n++) { struct flock l = {F_WRLCK, SEEK_SET, at, 0}; fcntl(fd, F_GETLK, &l); if (l.l_type == F_UNLCK) break; printf("%d %ld+%ld\n", l.l_type, (long)l.l_start, (long)l.l_len); if (l.l_len == 0) break; at = l.l_start + l.l_len; })
    T(LOCKS(F_WRLCK, 0, 100)); SHOWS("one"); T(LOCKS(F_RDLCK, 40, 20)); SHOWS("three"); T(LOCKS(F_UNLCK, 45, 5)); SHOWS("four"); T(LOCKS(F_WRLCK, 45, 5)); SHOWS("five"); T(LOCKS(F_WRLCK, 30, 40)); SHOWS("joined"); T(LOCKS(F_WRLCK, 100, 50)); SHOWS("longer"); T(LOCKS(F_RDLCK, 200, 10)), T(LOCKS(F_RDLCK, 210, 10)); SHOWS("beside"); T(LOCKS(F_RDLCK, 190, 10)); SHOWS("before"); T(LOCKS(F_WRLCK, 1000, 0)); SHOWS("to the end"); T(LOCKS(F_UNLCK, 0, 0)); SHOWS("none"); T(LOCKS(F_RDLCK, 5, 1)), T(LOCKS(F_RDLCK, 7, 1)); SHOWS("apart"); T(LOCKS(F_RDLCK, 6, 1)); SHOWS("filled"); T(LOCKS(F_UNLCK, 6, 1)); SHOWS("split"); T(LOCKS(F_WRLCK, 0, 0)); SHOWS("all");
}
PROGRAM(work_together) {
    mkdir("d", 0755);
    fflush(stdout);
    for (int child = 0; child < 4; child++)
        if (fork() == 0) {
            char at[64];
            int made = 0;
            for (int i = 0; i < 200; i++) {
                sprintf(at, "d/%d", i);
                int fd = open(at, O_CREAT | O_EXCL | O_WRONLY | O_APPEND, 0600);
                made += fd >= 0, close(fd);
                sprintf(at, "d/own-%d-%d", child, i), mkdir(at, 0700);
            }
            sprintf(at, "made-%d", child);
            int fd = open("made", O_CREAT | O_WRONLY | O_APPEND, 0600);
            for (int i = 0; i < made; i++)
                write(fd, "x", 1);
            _exit(0);
        }
    while (wait(NULL) > 0) {
    }
    T(length("made")), T(count_in("d")), T(links("d")), fflush(stdout);
    for (int child = 0; child < 4; child++)
        if (fork() == 0) {
            char at[64];
            int fd = open("gone", O_CREAT | O_WRONLY | O_APPEND, 0600);
            for (int i = 0; i < 200; i++) {
                sprintf(at, "d/%d", i);
                if (unlink(at) == 0)
                    write(fd, "x", 1);
                sprintf(at, "d/own-%d-%d", child, i), rmdir(at);
            }
            _exit(0);
        }
    while (wait(NULL) > 0) {
    }
    T(length("gone")), T(count_in("d")), T(links("d")), T(rmdir("d"));
}
PROGRAM(work_again) {
    put("f", "0123456789");
    char at[64], byte;
    int fd = open("f", O_RDONLY);
    read(fd, &byte, 1), sprintf(at, "/proc/self/fd/%d", fd);
    int other = open(at, O_RDWR);
    T(lseek(other, 0, SEEK_CUR)), T(lseek(fd, 0, SEEK_CUR)), T(write(other, "x", 1)), T(pread(fd, &byte, 1, 0)), T(byte), sprintf(at, "/dev/fd/%d", fd), T(lseek(open(at, O_RDONLY), 0, SEEK_CUR)), unlink("f"), other = open(at, O_RDWR | O_APPEND), T(write(other, "more", 4)), T(about_fd(fd).st_size), W(open(at, O_RDWR | O_TRUNC)), T(about_fd(fd).st_size), W(open(at, O_CREAT | O_EXCL | O_RDWR, 0600)), W(open(at, O_NOFOLLOW)), W(open(at, O_DIRECTORY)), T(chmod(at, 0600)), T(chown(at, 5, 5)), T(about_fd(fd).st_uid), T(truncate(at, 7)), T(about_fd(fd).st_size), T(utimes(at, NULL)), T(access(at, W_OK)), T(statfs(at, &(struct statfs){0})), T(mkdir(at, 0700)), T(symlink("x", at)), T(rename("none", at)), put("g", "x"), T(rename("g", at)), T(link("g", at));
    int m = memfd_create("m", 0);
    write(m, "abc", 3), sprintf(at, "/proc/self/fd/%d", m), other = open(at, O_RDONLY), T(read(other, text, 9)), T(write(other, "x", 1)), T(lseek(m, 0, SEEK_CUR)), close(m), T(pread(other, text, 9, 0)), W(open(at, O_RDONLY));
    CHILD("less privilege", {
        int closed = open("closed", O_CREAT | O_RDWR, 0600);
        sprintf(at, "/proc/self/fd/%d", closed), setgroups(0, NULL), setresgid(1000, 1000, 1000), setresuid(1000, 1000, 1000), prctl(PR_SET_DUMPABLE, 1);
        T(write(closed, "x", 1)), W(open(at, O_RDWR)), W(open(at, O_RDONLY)), W(open(at, O_PATH)), T(fchmod(closed, 0666)), T(ftruncate(closed, 0)), T(futimens(closed, NULL)), T(flock(closed, LOCK_EX));
    });
}
PROGRAM(work_at_calls) {
    mkdir("d", 0755), put("d/f", "x"), put("g", "y"), symlink("../g", "d/up");
    int d = open("d", O_RDONLY), p = open("d", O_PATH), f = open("g", O_RDONLY), gone = (mkdir("x", 0755), open("x", O_RDONLY));
    rmdir("x");
    int at[] = {d, p, f, gone, 99, -1, AT_FDCWD};
    struct stat s;
    struct statx x;
    for (unsigned i = 0; i < sizeof at / sizeof *at; i++) {
        printf("-- %u\n", i);
        int a = at[i];
        W(openat(a, "f", O_RDONLY)), T(fstatat(a, "f", &s, 0)), T(fstatat(a, "up", &s, 0)), T(fstatat(a, "up", &s, AT_SYMLINK_NOFOLLOW)), T(statx(a, "f", 0, STATX_ALL, &x)), T(faccessat(a, "f", R_OK, 0)), T(fchmodat(a, "f", 0640, 0)), T(fchownat(a, "f", 1, 1, 0)), T(utimensat(a, "f", NULL, 0)), T(readlinkat(a, "up", text, 9)), T(mkdirat(a, "m", 0700)), T(symlinkat("t", a, "s")), T(mknodat(a, "n", S_IFREG | 0600, 0)), T(linkat(a, "f", a, "l", 0)), T(renameat(a, "l", a, "k")), T(unlinkat(a, "k", 0)), T(unlinkat(a, "n", 0)), T(unlinkat(a, "s", 0)), T(unlinkat(a, "m", AT_REMOVEDIR)), T(unlinkat(a, "none", 0)), T(inotify_add_watch(0, "x", IN_OPEN) == -1), T(fstatat(a, "/dev/null", &s, 0)), T(fstatat(a, "..", &s, 0)), T(fstatat(a, ".", &s, 0)), T(fstatat(a, "f/", &s, 0)), T(syscall(SYS_futimesat, a, "f", NULL)), T(syscall(SYS_execveat, a, "f", (char *[]){"f", NULL}, environ, 0));
    }
}
PROGRAM(work_overwritten) {
    put("old", "old contents"), put("new", "new");
    int old = open("old", O_RDWR), dir = (mkdir("a", 0755), mkdir("b", 0755), put("a/x", "x"), open("b", O_RDONLY));
    char *map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, old, 0);
    T(rename("new", "old")), IS(holds("old", "new")), T(map[0]), map[0] = 'O', T(pread(old, text, 12, 0)), T(text[0]), T(about_fd(old).st_nlink), T(rename("a", "b")), T(access("b/x", F_OK)), W(openat(dir, "x", O_RDONLY)), T(about_fd(dir).st_nlink), T(getdents64(dir, text, 1000)), put("f", "1"), link("f", "g"), T(rename("f", "g")), T(links("f")), T(unlink("f")), T(holds("g", "1")), put("h", "2"), T(rename("g", "h")), T(holds("h", "1")), T(link("h", "i")), T(rename("h", "b")), T(rename("b", "h")), T(rename("b/x", "h")), T(links("i")), T(chdir("b")), T(rename("../b", "../c")), T(access(".", F_OK)), T(syscall(SYS_getcwd, text, 4096) > 0), IS(strcmp(text + strlen(text) - 2, "/c") == 0), T(mkdir("in", 0755)), T(rename("../c", "../c/in/c")), T(rename("in", "../in")), T(rmdir("../in")), T(rmdir("../c"));
}
PROGRAM(work_groups) {
    put("f", "x"), chmod("f", 0660), chown("f", 0, 50), mkdir("d", 0770), chown("d", 0, 50), chmod("d", 0770), put("o", "x"), chmod("o", 0604), chown("o", 0, 50);
    CHILD("in the group", setgroups(3, (gid_t[]){40, 50, 60}); setresgid(7, 7, 7); setresuid(7, 7, 7); W(open("f", O_RDWR)), W(open("d/new", O_CREAT | O_RDWR, 0600)), T(about("d/new").st_gid), T(unlink("d/new")), W(open("o", O_RDONLY)), T(access("o", R_OK)), T(chmod("f", 0600)), T(getgroups(0, NULL)), T(chown("d", -1, 60)));
    CHILD("not in it", setgroups(1, (gid_t[]){40}); setresgid(7, 7, 7); setresuid(7, 7, 7); W(open("f", O_RDWR)), W(open("d/new", O_CREAT | O_RDWR, 0600)), W(open("o", O_RDONLY)), T(access("d", X_OK)), T(access("d/none", F_OK)));
    CHILD("by its first group", setgroups(0, NULL); setresgid(50, 50, 50); setresuid(7, 7, 7); W(open("f", O_RDONLY)), T(mkdir("d/in", 0700)), T(rmdir("d/in")));
    CHILD("the file system's group alone", setgroups(0, NULL); setfsgid(50); setfsuid(7); W(open("f", O_RDWR)), T(access("f", R_OK)), W(open("d/made", O_CREAT | O_RDWR, 0600)), T(about("d/made").st_uid), T(about("d/made").st_gid), T(chmod("f", 0600)), T(chown("d/made", -1, 51)));
    CHILD("root without capabilities", {
        struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
        struct __user_cap_data_struct data[2] = {0};
        setgroups(0, NULL), T(syscall(SYS_capset, &header, data)), put("mine", "x"), W(open("mine", O_RDWR)), T(chmod("mine", 0)), W(open("mine", O_RDONLY)), T(chown("mine", 5, 5)), T(chmod("mine", 0600)), T(chown("mine", -1, 50)), T(chown("mine", 0, 0)), T(mknod("dev", S_IFCHR | 0600, makedev(1, 3))), T(chroot(".")), T(unlink("mine"));
    });
}
