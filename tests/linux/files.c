/* Files: what calls answer and leave behind. Every claim is checked here; on success only headings are printed. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define CHECK(claim) ((claim) ? (void)0 : (void)printf("line %d: not so: %s (errno %d)\n", __LINE__, #claim, errno))
#define FAILS(call, number) (errno = 0, CHECK((long)(call) == -1), CHECK(errno == number))

static char base[64] = "/tmp/files-XXXXXX";

static void opening(void) {
    int file = open("a", O_CREAT | O_EXCL | O_RDWR, 0640), other;
    CHECK(file >= 0);
    FAILS(open("a", O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST);
    struct stat s;
    CHECK(fstat(file, &s) == 0 && S_ISREG(s.st_mode) && (s.st_mode & 07777) == 0640 && s.st_nlink == 1 && s.st_size == 0);
    FAILS(open("nope", O_RDONLY), ENOENT);
    FAILS(open("a/b", O_RDONLY), ENOTDIR);
    FAILS(open(".", O_WRONLY), EISDIR);
    FAILS(open("a", O_DIRECTORY | O_RDONLY), ENOTDIR);
    FAILS(open("", O_RDONLY), ENOENT);
    FAILS(open((char *)0x10, O_RDONLY), EFAULT);
    CHECK(symlink("loop2", "loop1") == 0 && symlink("loop1", "loop2") == 0);
    FAILS(open("loop1", O_RDONLY), ELOOP);
    CHECK(symlink("a", "link") == 0);
    FAILS(open("link", O_NOFOLLOW | O_RDONLY), ELOOP);
    CHECK((other = open("link", O_PATH | O_NOFOLLOW)) >= 0);
    char text[100];
    CHECK(readlinkat(other, "", text, 100) == 1 && text[0] == 'a');
    FAILS(read(other, text, 1), EBADF);
    close(other);
    CHECK(write(file, "0123456789", 10) == 10 && lseek(file, 2, SEEK_SET) == 2);
    CHECK(read(file, text, 3) == 3 && !memcmp(text, "234", 3));
    CHECK(lseek(file, -2, SEEK_END) == 8 && lseek(file, 1, SEEK_CUR) == 9);
    FAILS(lseek(file, -20, SEEK_CUR), EINVAL);
    FAILS(lseek(file, 0, 77), EINVAL);
    CHECK((other = open("a", O_WRONLY | O_APPEND)) >= 0);
    CHECK(write(other, "AB", 2) == 2 && lseek(other, 0, SEEK_CUR) == 12);
    CHECK(lseek(other, 0, SEEK_SET) == 0 && write(other, "C", 1) == 1 && lseek(other, 0, SEEK_CUR) == 13);
    FAILS(read(other, text, 1), EBADF);
    close(other);
    CHECK((other = open("a", O_RDONLY)) >= 0);
    FAILS(write(other, "x", 1), EBADF);
    FAILS(ftruncate(other, 1), EINVAL);
    close(other);
    CHECK((other = open("a", O_WRONLY | O_TRUNC)) >= 0 && fstat(file, &s) == 0 && s.st_size == 0);
    close(other);
    int twin = dup(file), third = dup2(file, 77);
    CHECK(twin >= 0 && third == 77 && lseek(twin, 5, SEEK_SET) == 5 && lseek(file, 0, SEEK_CUR) == 5);
    CHECK(fcntl(file, F_DUPFD, 100) == 100 && fcntl(100, F_GETFD) == 0);
    CHECK(fcntl(file, F_DUPFD_CLOEXEC, 100) == 101 && fcntl(101, F_GETFD) == FD_CLOEXEC);
    CHECK((fcntl(file, F_GETFL) & O_ACCMODE) == O_RDWR);
    CHECK(fcntl(file, F_SETFL, O_APPEND | O_NONBLOCK) == 0 && (fcntl(twin, F_GETFL) & (O_APPEND | O_NONBLOCK)) == (O_APPEND | O_NONBLOCK));
    FAILS(dup2(file, 1 << 20), EBADF);
    FAILS(dup(999), EBADF);
    FAILS(close(999), EBADF);
    FAILS(dup3(file, file, 0), EINVAL);
    close(77), close(100), close(101), close(twin), close(file);
    CHECK((file = open(".", O_TMPFILE | O_RDWR, 0600)) >= 0 || errno == EOPNOTSUPP);
    if (file >= 0) CHECK(write(file, "x", 1) == 1 && fstat(file, &s) == 0 && s.st_nlink == 0), close(file);
    CHECK(umask(027) == 022 && (file = creat("masked", 0666)) >= 0 && fstat(file, &s) == 0 && (s.st_mode & 0777) == 0640);
    umask(022), close(file), unlink("masked"), unlink("loop1"), unlink("loop2"), unlink("link"), unlink("a");
}

static void names(void) {
    CHECK(mkdir("d", 0755) == 0 && mkdir("d/e", 0700) == 0);
    FAILS(mkdir("d", 0755), EEXIST);
    FAILS(mkdir("x/y", 0755), ENOENT);
    FAILS(rmdir("d"), ENOTEMPTY);
    FAILS(unlink("d"), EISDIR);
    int file = creat("f", 0644);
    CHECK(write(file, "f", 1) == 1);
    close(file);
    FAILS(rmdir("f"), ENOTDIR);
    FAILS(rename("d", "d/e/x"), EINVAL);
    FAILS(rename("f", "d"), EISDIR);
    FAILS(rename("d", "f"), ENOTDIR);
    FAILS(rename("nope", "x"), ENOENT);
    CHECK(mkdir("empty", 0755) == 0 && rename("d", "empty") == 0 && access("empty/e", F_OK) == 0);
    FAILS(access("d", F_OK), ENOENT);
    CHECK(rename("empty", "d") == 0 && rename("f", "d/f") == 0);
    struct stat s, t;
    CHECK(link("d/f", "hard") == 0 && stat("hard", &s) == 0 && s.st_nlink == 2 && stat("d/f", &t) == 0 && t.st_ino == s.st_ino);
    CHECK(rename("hard", "d/f") == 0 && access("hard", F_OK) == 0);
    FAILS(link("d", "hard2"), EPERM);
    FAILS(link("d/f", "hard"), EEXIST);
    CHECK(unlink("hard") == 0 && stat("d/f", &s) == 0 && s.st_nlink == 1);
    file = creat("g", 0644);
    CHECK(write(file, "gg", 2) == 2);
    close(file);
    FAILS(syscall(SYS_renameat2, AT_FDCWD, "g", AT_FDCWD, "d/f", 1), EEXIST);
    CHECK(syscall(SYS_renameat2, AT_FDCWD, "g", AT_FDCWD, "d/f", 2) == 0 && stat("g", &s) == 0 && s.st_size == 1);
    file = open("d/f", O_RDONLY);
    char byte;
    CHECK(rename("g", "d/f") == 0 && read(file, &byte, 1) == 1 && byte == 'g');
    CHECK(fstat(file, &s) == 0 && s.st_nlink == 0);
    close(file);
    CHECK(symlink("/nowhere/at/all", "dangling") == 0 && lstat("dangling", &s) == 0 && S_ISLNK(s.st_mode) && s.st_size == 15);
    FAILS(stat("dangling", &s), ENOENT);
    FAILS(symlink("x", "dangling"), EEXIST);
    char target[100];
    CHECK(readlink("dangling", target, 5) == 5);
    FAILS(readlink("d", target, 100), EINVAL);
    FAILS(unlink("d/"), EISDIR);
    FAILS(rmdir("d/."), EINVAL);
    FAILS(rmdir("/"), EBUSY);
    char name[300];
    memset(name, 'n', 256), name[256] = 0;
    FAILS(creat(name, 0644), ENAMETOOLONG);
    name[255] = 0;
    file = creat(name, 0644);
    CHECK(file >= 0 && close(file) == 0 && unlink(name) == 0);
    char path[5000];
    memset(path, '/', 4999), path[4999] = 0;
    FAILS(stat(path, &s), ENAMETOOLONG);
    path[4095] = 0;
    CHECK(stat(path, &s) == 0);
    unlink("dangling"), unlink("d/f"), rmdir("d/e"), rmdir("d");
}

static void depth(void) {
    char path[PATH_MAX + 10], segment[60];
    memset(segment, 's', 50), segment[50] = 0;
    for (int i = 0; i < 100; i++) CHECK(mkdir(segment, 0755) == 0 && chdir(segment) == 0);
    FAILS(syscall(SYS_getcwd, path, 4096), ENAMETOOLONG);
    for (int i = 0; i < 60; i++) CHECK(chdir("..") == 0);
    CHECK(syscall(SYS_getcwd, path, 4096) > 40 * 51);
    FAILS(syscall(SYS_getcwd, path, 100), ERANGE);
    for (int i = 0; i < 40; i++) CHECK(chdir("..") == 0);
    CHECK(getcwd(path, sizeof path) && !strcmp(path, base));
    for (int i = 0; i < 40; i++) CHECK(chdir(segment) == 0);
    for (int i = 0; i < 60; i++) CHECK(chdir(segment) == 0);
    for (int i = 0; i < 100; i++) CHECK(chdir("..") == 0 && rmdir(segment) == 0);
    CHECK(mkdir("gone", 0755) == 0 && chdir("gone") == 0 && rmdir("../gone") == 0);
    FAILS(open("x", O_CREAT | O_WRONLY, 0644), ENOENT);
    FAILS(syscall(SYS_getcwd, path, 4096), ENOENT);
    CHECK(chdir(base) == 0);
    int here = open(".", O_RDONLY | O_DIRECTORY);
    CHECK(chdir("/") == 0 && fchdir(here) == 0 && getcwd(path, sizeof path) && !strcmp(path, base));
    close(here);
}

static void directories(void) {
    enum { COUNT = 10000 };
    char name[32];
    static char seen[COUNT];
    CHECK(mkdir("many", 0755) == 0 && chdir("many") == 0);
    for (int i = 0; i < COUNT; i++) {
        sprintf(name, "file-%d", i);
        close(creat(name, 0644));
    }
    DIR *directory = opendir(".");
    int entries = 0, dots = 0, number;
    for (struct dirent *entry; (entry = readdir(directory)); entries++) {
        if (entry->d_name[0] == '.') dots++, CHECK(entry->d_type == DT_DIR);
        else if (sscanf(entry->d_name, "file-%d", &number) == 1) {
            CHECK(!seen[number]++ && entry->d_type == DT_REG);
            if (number % 2) unlink(entry->d_name);
        }
    }
    CHECK(entries == COUNT + 2 && dots == 2);
    rewinddir(directory);
    entries = 0;
    long place = 0;
    char there[256] = "";
    for (struct dirent *entry; (entry = readdir(directory)); entries++)
        if (entries == 3000) {
            place = telldir(directory);
            entry = readdir(directory), strcpy(there, entry->d_name), entries++;
        }
    CHECK(entries == COUNT / 2 + 2);
    seekdir(directory, place);
    struct dirent *entry = readdir(directory);
    CHECK(entry && !strcmp(entry->d_name, there));
    rewinddir(directory);
    while ((entry = readdir(directory))) unlink(entry->d_name);
    closedir(directory);
    CHECK(chdir("..") == 0 && rmdir("many") == 0);
    char small[10];
    int file = open(".", O_RDONLY);
    FAILS(syscall(SYS_getdents64, file, small, sizeof small), EINVAL);
    close(file);
}

static void contents(void) {
    int file = open("sparse", O_CREAT | O_RDWR, 0644);
    struct stat s;
    char text[64];
    CHECK(pwrite(file, "end", 3, 1ul << 32) == 3 && fstat(file, &s) == 0 && s.st_size == (1l << 32) + 3 && s.st_blocks < 1000);
    CHECK(pread(file, text, 4, 1 << 20) == 4 && !memcmp(text, "\0\0\0\0", 4));
    long hole = lseek(file, 0, SEEK_DATA);
    CHECK(hole > 1 << 20 && hole <= 1l << 32 && lseek(file, 0, SEEK_HOLE) == 0);
    CHECK(pread(file, text, 10, (1ul << 32) + 3) == 0);
    CHECK(ftruncate(file, 5) == 0 && ftruncate(file, 10) == 0 && pwrite(file, "abc", 3, 0) == 3);
    CHECK(pread(file, text, 64, 0) == 10 && !memcmp(text, "abc\0\0\0\0\0\0\0", 10));
    FAILS(pread(file, text, 1, -1), EINVAL);
    FAILS(ftruncate(file, -1), EINVAL);
    CHECK(posix_fallocate(file, 0, 100) == 0 && fstat(file, &s) == 0 && s.st_size == 100);
    CHECK(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2) == 0 && pread(file, text, 3, 0) == 3 && !memcmp(text, "\0\0c", 3));
    struct timespec times[2] = {{1000, 5}, {2000, 7}};
    CHECK(futimens(file, times) == 0 && fstat(file, &s) == 0 && s.st_mtim.tv_sec == 2000 && s.st_mtim.tv_nsec == 7 && s.st_atim.tv_sec == 1000);
    CHECK(write(file, "x", 1) == 1 && fstat(file, &s) == 0 && s.st_mtim.tv_sec > 1000000);
    CHECK(fchmod(file, 04711) == 0 && fstat(file, &s) == 0 && (s.st_mode & 07777) == 04711);
    CHECK(fchown(file, 7, 8) == 0 && fstat(file, &s) == 0 && s.st_uid == 7 && s.st_gid == 8 && (s.st_mode & 07777) == 0711);
    int other = open("copy", O_CREAT | O_RDWR, 0644);
    CHECK(ftruncate(file, 100000) == 0 && lseek(file, 0, SEEK_SET) == 0 && sendfile(other, file, 0, 1 << 20) == 100000);
    long from = 10, to = 5;
    CHECK(copy_file_range(file, &from, other, &to, 100, 0) == 100 && from == 110);
    // What cannot seek is not sent from.
    int terminal = posix_openpt(O_RDWR | O_NOCTTY), ends[2], zeros = open("/dev/zero", O_RDONLY);
    CHECK(terminal >= 0 && pipe(ends) == 0 && sendfile(ends[1], zeros, 0, 9) == 9 && sendfile(ends[1], zeros, &from, 9) == 9);
    FAILS(sendfile(other, terminal, 0, 9), EINVAL), FAILS(sendfile(other, terminal, &from, 9), ESPIPE);
    FAILS(sendfile(other, ends[0], 0, 9), EINVAL), FAILS(sendfile(other, ends[0], &from, 9), ESPIPE);
    close(terminal), close(ends[0]), close(ends[1]), close(zeros);
    CHECK(fsync(file) == 0 && fdatasync(file) == 0);
    CHECK(flock(file, LOCK_EX | LOCK_NB) == 0 && flock(file, LOCK_UN) == 0);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10};
    CHECK(fcntl(file, F_SETLK, &lock) == 0 && fcntl(file, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK);
    struct statfs fs;
    CHECK(fstatfs(file, &fs) == 0 && fs.f_bsize == 4096 && fs.f_namelen == 255);
    int left;
    CHECK(lseek(file, 40, SEEK_SET) == 40 && ioctl(file, FIONREAD, &left) == 0 && left == 100000 - 40);
    FAILS(ioctl(file, TCGETS, text), ENOTTY);
    FAILS(write(file, (void *)0x10, 5), EFAULT);
    close(file), close(other), unlink("sparse"), unlink("copy");
    file = creat("readonly", 0444), close(file);
    CHECK(access("readonly", W_OK) == 0 && access("readonly", X_OK) == -1 && errno == EACCES);
    CHECK(truncate("readonly", 3) == 0 && unlink("readonly") == 0);
}

static void pipes(void) {
    int ends[2];
    char text[100000] = "";
    CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0 && fcntl(ends[0], F_GETFD) == FD_CLOEXEC);
    FAILS(read(ends[0], text, 1), EAGAIN);
    CHECK(write(ends[1], text, sizeof text) == 65536);
    FAILS(write(ends[1], text, 1), EAGAIN);
    int left;
    CHECK(ioctl(ends[0], FIONREAD, &left) == 0 && left == 65536);
    struct pollfd p[3] = {{ends[0], POLLIN | POLLOUT, 0}, {ends[1], POLLIN | POLLOUT, 0}, {999, POLLIN, 0}};
    CHECK(poll(p, 3, 0) == 2 && p[0].revents == POLLIN && p[1].revents == 0 && p[2].revents == POLLNVAL);
    CHECK(read(ends[0], text, sizeof text) == 65536);
    CHECK(poll(p, 2, 0) == 1 && p[1].revents == POLLOUT);
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(ends[0], &readable);
    struct timeval brief = {0, 1000};
    CHECK(select(ends[0] + 1, &readable, 0, 0, &brief) == 0 && !FD_ISSET(ends[0], &readable));
    FAILS(lseek(ends[0], 0, SEEK_SET), ESPIPE);
    FAILS(pread(ends[0], text, 1, 0), ESPIPE);
    CHECK(write(ends[1], "last", 4) == 4 && close(ends[1]) == 0);
    CHECK(poll(p, 1, 0) == 1 && p[0].revents == (POLLIN | POLLHUP));
    CHECK(read(ends[0], text, 100) == 4 && read(ends[0], text, 100) == 0);
    CHECK(poll(p, 1, 0) == 1 && p[0].revents == POLLHUP);
    close(ends[0]);
    CHECK(mkfifo("fifo", 0600) == 0);
    FAILS(open("fifo", O_WRONLY | O_NONBLOCK), ENXIO);
    int reader = open("fifo", O_RDONLY | O_NONBLOCK), writer = open("fifo", O_WRONLY);
    CHECK(reader >= 0 && writer >= 0 && write(writer, "abc", 3) == 3 && read(reader, text, 9) == 3);
    close(reader), close(writer), unlink("fifo");
}

static void devices(void) {
    char text[64] = "x";
    struct stat s;
    int file = open("/dev/null", O_RDWR);
    CHECK(file >= 0 && read(file, text, 9) == 0 && write(file, text, 9) == 9);
    CHECK(fstat(file, &s) == 0 && S_ISCHR(s.st_mode) && s.st_rdev == 0x103);
    close(file), file = open("/dev/zero", O_RDWR);
    CHECK(read(file, text, 9) == 9 && text[0] == 0 && write(file, text, 9) == 9);
    char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    CHECK(page != MAP_FAILED && page[17] == 0 && (page[17] = 1));
    close(file), file = open("/dev/full", O_RDWR);
    CHECK(read(file, text, 9) == 9);
    FAILS(write(file, text, 9), ENOSPC);
    close(file), file = open("/dev/urandom", O_RDONLY);
    char more[64];
    CHECK(read(file, text, 64) == 64 && read(file, more, 64) == 64 && memcmp(text, more, 64));
    close(file);
    CHECK(getentropy(more, 64) == 0 && syscall(SYS_getrandom, text, 64, 1) == 64 && memcmp(text, more, 64));
    CHECK(readlink("/proc/self/fd/0", text, 64) > 0 && readlink("/proc/self/exe", text, 64) > 0);
    CHECK(stat("/dev/fd/0", &s) == 0 && stat("/dev/stdin", &s) == 0);
    FAILS(open("/proc/self/nothing", O_RDONLY), ENOENT);
    FAILS(mkdir("/proc/x", 0755), ENOENT);
    FILE *maps = fopen("/proc/self/maps", "r");
    int stack = 0, here = 0;
    char line[500];
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        sscanf(line, "%lx-%lx", &from, &to);
        stack |= strstr(line, "[stack]") && (unsigned long)&s >= from && (unsigned long)&s < to;
        here |= (unsigned long)devices >= from && (unsigned long)devices < to && strstr(line, "r-xp");
    }
    fclose(maps);
    CHECK(stack && here);
}

/* Transfers with memory that is not there yet, that ends, or that is the file's own. */
static void borders(void) {
    enum { PAGE = 4096 };
    char *memory = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *hole = memory + 2 * PAGE, pattern[3 * PAGE], found[3 * PAGE];
    CHECK(munmap(hole, PAGE) == 0);
    for (int i = 0; i < 3 * PAGE; i++) pattern[i] = i % 251;
    int file = open("border", O_CREAT | O_RDWR, 0600), zero = open("/dev/zero", O_RDWR);
    CHECK(write(file, pattern, 3 * PAGE) == 3 * PAGE);
    CHECK(pread(file, memory, 2 * PAGE, 5) == 2 * PAGE && !memcmp(memory, pattern + 5, 2 * PAGE));
    CHECK(madvise(memory, 2 * PAGE, MADV_DONTNEED) == 0);
    CHECK(pread(file, hole - 512, PAGE, 16) == 512 && !memcmp(hole - 512, pattern + 16, 512));
    FAILS(pread(file, hole, 1, 0), EFAULT);
    CHECK(read(zero, hole - 512, PAGE) == 512 && hole[-1] == 0 && hole[-512] == 0);
    FAILS(read(zero, hole, 1), EFAULT);
    struct iovec parts[3] = {{memory, 3}, {memory, 0}, {hole - 2, 2}};
    memset(memory, 1, 3);
    CHECK(readv(zero, parts, 3) == 5 && memory[0] == 0 && memory[2] == 0);
    /* A page that was never touched is zeros, and a write from nowhere leaves the file as it is. */
    CHECK(madvise(memory, 2 * PAGE, MADV_DONTNEED) == 0 && pwrite(file, memory, PAGE, PAGE / 2) == PAGE);
    memset(pattern + PAGE / 2, 0, PAGE);
    FAILS(pwrite(file, hole, 10, 0), EFAULT);
    CHECK(pread(file, found, 3 * PAGE, 0) == 3 * PAGE && !memcmp(found, pattern, 3 * PAGE));
    /* From the file onto itself, by a mapping that nobody has touched. */
    char *own = mmap(0, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(pwrite(file, own + 2 * PAGE, PAGE, 100) == PAGE);
    memcpy(found, pattern + 2 * PAGE, PAGE);
    memcpy(pattern + 100, found, PAGE);
    CHECK(!memcmp(own, pattern, 3 * PAGE));
    CHECK(pread(file, own + PAGE, 50, 0) == 50 && !memcmp(own + PAGE, pattern, 50));
    CHECK(mprotect(memory, PAGE, PROT_READ) == 0);
    FAILS(pread(file, memory, 8, 0), EFAULT);
    /* Over the end, and behind it. */
    CHECK(pwrite(file, "0123456789", 10, 3 * PAGE - 5) == 10 && lseek(file, 0, SEEK_END) == 3 * PAGE + 5);
    CHECK(pread(file, found, 100, 3 * PAGE - 5) == 10 && !memcmp(found, "0123456789", 10));
    CHECK(pread(file, found, 100, 3 * PAGE + 5) == 0);
    munmap(memory, 2 * PAGE), munmap(memory + 3 * PAGE, PAGE), munmap(own, 3 * PAGE);
    CHECK(close(file) == 0 && close(zero) == 0 && unlink("border") == 0);
}

int main(void) {
    setvbuf(stdout, 0, _IONBF, 0);
    if (!mkdtemp(base) || chdir(base)) return 1;
    opening(), puts("opening");
    names(), puts("names");
    depth(), puts("depth");
    directories(), puts("directories");
    contents(), puts("contents");
    pipes(), puts("pipes");
    devices(), puts("devices");
    /* Often, so that the calls are made in every way that there is. */
    for (int i = 0; i < 50; i++) borders();
    puts("borders");
    CHECK(chdir("/") == 0 && rmdir(base) == 0);
    return 0;
}
