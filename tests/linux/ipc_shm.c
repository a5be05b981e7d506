/* System V shared memory: made, attached, inherited, removed, refused. Prints the same on every Linux. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

static int failed(long result) { return result == -1 ? errno : 0; }
static const char *name(int error) { return error ? strerrorname_np(error) : "ok"; }
#define SAY(what, call) printf("%s: %s\n", what, name(failed((long)(call))))

static key_t fresh_key(void) {
    static int count;
    return (key_t)(0x51000000 ^ (getpid() << 8) ^ ++count);
}

static int attached(int id) {
    struct shmid_ds status;
    return shmctl(id, IPC_STAT, &status) ? -errno : (int)status.shm_nattch;
}

static void keys(void) {
    key_t key = fresh_key();
    SAY("get of nothing", shmget(key, 100, 0600));
    int id = shmget(key, 5000, IPC_CREAT | 0640);
    SAY("make", id);
    printf("same by key: %d\n", shmget(key, 0, 0) == id && shmget(key, 5000, IPC_CREAT) == id);
    SAY("exclusive", shmget(key, 5000, IPC_CREAT | IPC_EXCL));
    SAY("larger", shmget(key, 5001, 0));
    SAY("empty", shmget(fresh_key(), 0, IPC_CREAT | 0600));
    SAY("too large", shmget(IPC_PRIVATE, (size_t)1 << 60, IPC_CREAT | 0600));
    struct shmid_ds status;
    SAY("status", shmctl(id, IPC_STAT, &status));
    printf("size %zu mode %o key %d cpid %d lpid %d attached %d times %d %d %d\n", status.shm_segsz, status.shm_perm.mode,
           status.shm_perm.__key == key, status.shm_cpid == getpid(), status.shm_lpid, (int)status.shm_nattch,
           status.shm_atime != 0, status.shm_dtime != 0, status.shm_ctime != 0);
    status.shm_perm.mode = 0604;
    SAY("set", shmctl(id, IPC_SET, &status));
    shmctl(id, IPC_STAT, &status);
    printf("mode %o\n", status.shm_perm.mode);
    status.shm_perm.uid = -1;
    SAY("set nobody", shmctl(id, IPC_SET, &status));
    SAY("bad buffer", shmctl(id, IPC_STAT, (void *)8));
    SAY("bad command", shmctl(id, 77, &status));
    SAY("negative number", shmctl(-1, IPC_STAT, &status));
    SAY("other number", shmctl(id + 32768 * 5, IPC_STAT, &status));
    SAY("remove", shmctl(id, IPC_RMID, 0));
    SAY("removed twice", shmctl(id, IPC_RMID, 0));
    SAY("key is free", shmget(key, 1, 0));
    SAY("attach of what is gone", shmat(id, 0, 0));
    struct shminfo limits;
    SAY("limits", shmctl(0, IPC_INFO, (void *)&limits) < 0 ? -1 : 0);
    printf("min %lu mni %d\n", limits.shmmin, limits.shmmni >= 128);
    struct shm_info info;
    printf("info %d\n", shmctl(0, SHM_INFO, (void *)&info) >= 0);
}

static void attaching(void) {
    int id = shmget(IPC_PRIVATE, 3 * 4096 - 5, IPC_CREAT | 0600);
    char *first = shmat(id, 0, 0), *second = shmat(id, 0, SHM_RDONLY);
    printf("two places %d, attached %d\n", first != second, attached(id));
    strcpy(first + 5000, "hello");
    printf("seen %s, tail %d\n", second + 5000, second[3 * 4096 - 1]);
    SAY("make writable", mprotect(second, 4096, PROT_READ | PROT_WRITE));
    SAY("odd place", shmat(id, first + 1, 0));
    SAY("occupied", shmat(id, first, 0));
    SAY("occupied, rounded", shmat(id, first + 77, SHM_RND));
    SAY("replace nothing", shmat(id, 0, SHM_REMAP));
    char *room = mmap(0, 8 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("replaced %d\n", shmat(id, room + 4096, SHM_REMAP) == room + 4096);
    printf("seen there %s\n", room + 4096 + 5000);
    munmap(room + 5 * 4096, 3 * 4096);
    SAY("rounded", shmat(id, room + 5 * 4096 + 9, SHM_RND) == room + 5 * 4096 ? 0 : -1);
    printf("attached %d\n", attached(id));
    SAY("detach odd", shmdt(first + 1));
    SAY("detach middle", shmdt(first + 4096));
    SAY("detach", shmdt(first));
    SAY("detach again", shmdt(first));
    munmap(room + 2 * 4096, 4096);
    printf("cut %d\n", attached(id));
    SAY("detach both parts", shmdt(room + 4096));
    printf("attached %d\n", attached(id));
    mprotect(second, 4096, PROT_NONE);
    printf("split %d\n", attached(id));
    SAY("detach split", shmdt(second));
    printf("attached %d\n", attached(id));
    char *grown = mremap(shmat(id, 0, 0), 4096 * 3, 4096 * 5, MREMAP_MAYMOVE);
    printf("grown %s\n", grown + 5000);
    SAY("remove attached", shmctl(id, IPC_RMID, 0));
    struct shmid_ds status;
    shmctl(id, IPC_STAT, &status);
    printf("mode %o key %d attached %d\n", status.shm_perm.mode, status.shm_perm.__key, (int)status.shm_nattch);
    SAY("remove again", shmctl(id, IPC_RMID, 0));
    char *late = shmat(id, 0, 0);
    printf("late attach %s\n", late == (char *)-1 ? "no" : late + 5000);
    shmdt(late);
    munmap(grown, 5 * 4096);
    SAY("still there", shmctl(id, IPC_STAT, &status));
    munmap(room, 8 * 4096);
    SAY("gone", shmctl(id, IPC_STAT, &status));
}

static void processes(char *self) {
    int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    volatile int *word = shmat(id, 0, 0);
    struct shmid_ds status;
    for (int index = 0; index < 4; index++) {
        if (fork() == 0) {
            __sync_fetch_and_add(word, attached(id) > 1 ? 1 : 100);
            _exit(0);
        }
    }
    while (wait(0) > 0) {
    }
    printf("four children %d, attached %d\n", *word, attached(id));
    pid_t child = fork();
    if (child == 0) {
        char number[20], *arguments[] = {self, "exec", number, 0};
        sprintf(number, "%d", id);
        execv("/proc/self/exe", arguments);
        _exit(1);
    }
    waitpid(child, 0, 0);
    shmctl(id, IPC_STAT, &status);
    printf("last was the child %d, detached %d\n", status.shm_lpid == child, status.shm_dtime != 0);
    child = vfork();
    if (child == 0) _exit(0);
    waitpid(child, 0, 0);
    printf("after vfork %d\n", attached(id));
    child = fork();
    if (child == 0) {
        shmctl(id, IPC_RMID, 0);
        *word = 77;
        _exit(0);
    }
    waitpid(child, 0, 0);
    printf("removed by a child, still %d, attached %d\n", *word, attached(id));
    shmdt((void *)word);
    SAY("gone", shmctl(id, IPC_STAT, &status));
    if (getuid() == 0) {
        id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0640);
        child = fork();
        if (child == 0) {
            setgid(12345);
            setuid(54321);
            SAY("stranger attaches", shmat(id, 0, SHM_RDONLY));
            SAY("stranger looks", shmctl(id, IPC_STAT, &status));
            SAY("stranger removes", shmctl(id, IPC_RMID, 0));
            SAY("stranger locks", shmctl(id, SHM_LOCK, 0));
            SAY("stranger sets", shmctl(id, IPC_SET, &status));
            fflush(stdout);
            _exit(0);
        }
        waitpid(child, 0, 0);
        SAY("lock", shmctl(id, SHM_LOCK, 0));
        shmctl(id, IPC_STAT, &status);
        printf("mode %o\n", status.shm_perm.mode);
        SAY("unlock", shmctl(id, SHM_UNLOCK, 0));
        shmctl(id, IPC_RMID, 0);
    }
}

static void listed(void) {
    int id = shmget(IPC_PRIVATE, 8192, IPC_CREAT | 0600), found = 0, columns = 0, by_index = 0;
    char line[400];
    FILE *file = fopen("/proc/sysvipc/shm", "r");
    fgets(line, sizeof line, file);
    printf("%s", line);
    while (fgets(line, sizeof line, file)) {
        int key, number, mode;
        long size;
        sscanf(line, "%d %d %o %ld", &key, &number, &mode, &size);
        if (number == id) {
            found = 1;
            columns = strlen(line);
            printf("mode %o size %ld\n", mode, size);
        }
    }
    fclose(file);
    struct shmid_ds status;
    struct shm_info info;
    int last = shmctl(0, SHM_INFO, (void *)&info);
    for (int index = 0; index <= last; index++) by_index += shmctl(index, SHM_STAT, &status) == id;
    printf("found %d columns %d by index %d any %d\n", found, columns, by_index, shmctl(id & 32767, 15, &status) == id);
    char *place = shmat(id, 0, 0), path[64];
    unsigned long inode = 0;
    file = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, file)) {
        unsigned long start;
        if (sscanf(line, "%lx-%*x %*s %*x %*s %lu %63s", &start, &inode, path) == 3 && start == (unsigned long)place) {
            printf("in maps: %s, inode %d\n", path, inode == (unsigned long)id);
        }
    }
    fclose(file);
    shmctl(id, IPC_RMID, 0);
    shmdt(place);
}

static void many(void) {
    enum { COUNT = 200 };
    int ids[COUNT], distinct = 1;
    for (int index = 0; index < COUNT; index++) {
        ids[index] = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
        for (int other = 0; other < index; other++) distinct &= ids[index] != ids[other];
        if (shmat(ids[index], 0, 0) == (void *)-1) printf("attach %d: %s\n", index, name(errno));
    }
    for (int index = 0; index < COUNT; index++) shmctl(ids[index], IPC_RMID, 0);
    printf("distinct %d, last attached %d\n", distinct, attached(ids[COUNT - 1]));
    int id = ids[0];
    for (int child = 0; child < 8; child++) {
        if (fork() == 0) {
            for (int round = 0; round < 100; round++) shmat(id, 0, 0);
            raise(9);
        }
    }
    while (wait(0) > 0) {
    }
    printf("attached after all were killed: %d\n", attached(id));
}

int main(int argc, char **argv) {
    if (argc == 3) {
        printf("after exec, attached %d\n", attached(atoi(argv[2])));
        return 0;
    }
    setvbuf(stdout, 0, _IOLBF, 0);
    keys();
    attaching();
    processes(argv[0]);
    listed();
    many();
    return 0;
}
