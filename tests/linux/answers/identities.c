// Users, groups, capabilities and what a process says of itself.
#include "answers.h"
#include <sys/fsuid.h>
#include <linux/securebits.h>

static void told(void) {
    uid_t r, e, s;
    gid_t a, b, c;
    getresuid(&r, &e, &s), getresgid(&a, &b, &c);
    printf("%d %d %d, %d %d %d\n", r, e, s, a, b, c), fflush(stdout);
}
PROGRAM(users_without_rights) {
    T(setresuid(10, 20, 30)), told();
    T(setuid(10)), told(), T(setuid(30)), told(), T(setuid(20)), T(setuid(40)), T(seteuid(10)), told(), T(setreuid(-1, 30)), told(), T(setreuid(30, -1)), told(), T(setreuid(10, 10)), told(), T(setresuid(-1, 30, -1)), told(), T(setresuid(99, -1, -1)), T(setresuid(-1, -1, 10)), told(), T(setresuid(-1, -1, -1)), T(setuid(-1)), T(setfsuid(77)), T(setfsuid(-1)), T(setfsuid(10)), T(setfsuid(-1));
}
PROGRAM(groups_without_rights) {
    T(setresgid(10, 20, 30)), told(), T(setresuid(1000, 1000, 1000)), told();
    T(setgid(10)), told(), T(setgid(30)), told(), T(setgid(20)), T(setgid(40)), T(setregid(-1, 10)), told(), T(setregid(10, 10)), told(), T(setresgid(-1, 30, -1)), told(), T(setresgid(99, -1, -1)), T(setgid(-1)), T(setfsgid(77)), T(setfsgid(-1)), T(setgroups(0, NULL)), T(setgroups(1, &(gid_t){5}));
}
PROGRAM(rules_of_saved_users) {
    CHILD("setreuid takes the saved one along", (T(setreuid(5, 6)), told()));
    CHILD("but not for the effective alone", (T(setreuid(-1, 6)), told()));
    CHILD("nor if it becomes the real one", (T(setreuid(-1, 0)), told()));
    CHILD("setuid of root takes all", (T(setuid(7)), told()));
    CHILD("seteuid leaves a way back", (T(seteuid(7)), told(), T(setuid(0)), told(), T(setuid(8)), told()));
    CHILD("groups", (T(setregid(5, 6)), told(), T(setgid(7)), told(), T(setegid(9)), told()));
    CHILD("refused numbers", (T(setuid(-1)), T(setgid(-1)), T(setreuid(-1, -1)), T(syscall(SYS_getresuid, 8, 8, 8)), T(syscall(SYS_getresgid, 8, 8, 8))));
}
PROGRAM(lists_of_groups) {
    gid_t many[70000], got[10];
    for (int i = 0; i < 70000; i++)
        many[i] = i;
    T(setgroups(3, many)), T(getgroups(0, NULL)), T(getgroups(2, got)), T(getgroups(-1, got)), T(getgroups(10, got)), T(syscall(SYS_getgroups, 10, 8)), T(syscall(SYS_getgroups, 0, 8)), T(setgroups(65536, many)), T(getgroups(0, NULL)), T(setgroups(65537, many)), T(setgroups(-1, many)), T(syscall(SYS_setgroups, 3, 8)), many[1] = -1, T(setgroups(3, many)), T(setgroups(0, many)), T(getgroups(0, NULL));
}

struct header { uint32_t version; int pid; };
struct sets { uint32_t effective, permitted, inheritable; };
static long get_caps(struct header *header, void *sets) { return syscall(SYS_capget, header, sets); }
static long set_caps(struct header *header, void *sets) { return syscall(SYS_capset, header, sets); }
PROGRAM(capability_refusals) {
    struct header third = {0x20080522, 0}, first = {0x19980330, 0}, wrong = {77, 0}, other = {0x20080522, 999999}, negative = {0x20080522, -1}, parent = {0x20080522, getppid()};
    struct sets sets[2] = {0}, all[2];
    T(get_caps(&third, sets)), T(get_caps(&first, sets)), T(get_caps(&wrong, sets)), IS(wrong.version == 0x20080522), wrong.version = 0, T(get_caps(&wrong, NULL)), T(get_caps(&third, NULL)), T(get_caps(&other, sets)), T(get_caps(&negative, sets)), T(get_caps(&parent, sets)), T(get_caps((void *)8, sets)), T(get_caps(&third, (void *)8));
    get_caps(&third, all), memcpy(sets, all, sizeof sets), T(set_caps(&parent, sets)), T(set_caps(&other, sets)), wrong.version = 9, T(set_caps(&wrong, sets)), T(set_caps(&third, (void *)8)), sets[0].effective = -1, sets[0].permitted &= ~1u, T(set_caps(&third, sets)), sets[0].effective &= ~1u, T(set_caps(&third, sets)), sets[0].permitted |= 1, T(set_caps(&third, sets));
    T(prctl(PR_CAPBSET_READ, 99, 0, 0, 0)), T(prctl(PR_CAPBSET_DROP, 99, 0, 0, 0)), T(prctl(PR_CAPBSET_READ, 0, 0, 0, 0)), T(prctl(PR_CAPBSET_DROP, 12, 0, 0, 0)), T(prctl(PR_CAPBSET_READ, 12, 0, 0, 0));
}
PROGRAM(capabilities_that_change) {
    struct header header = {0x20080522, 0};
    struct sets sets[2];
#define SHOW() (get_caps(&header, sets), printf("%08x %08x %08x\n", sets[0].effective, sets[0].permitted, sets[0].inheritable), fflush(stdout))
    CHILD("another effective user", (seteuid(5), SHOW(), seteuid(0), IS((get_caps(&header, sets), sets[0].effective != 0))));
    CHILD("another user", (setuid(5), SHOW()));
    CHILD("that keeps", (T(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)), T(prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0)), setuid(5), IS((get_caps(&header, sets), sets[0].effective == 0 && sets[0].permitted != 0)), T(prctl(PR_SET_KEEPCAPS, 2, 0, 0, 0))));
    CHILD("secure bits", (T(prctl(PR_GET_SECUREBITS, 0, 0, 0, 0)), T(prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0)), setuid(5), IS((get_caps(&header, sets), sets[0].effective != 0)), T(prctl(PR_SET_SECUREBITS, 1 << 30, 0, 0, 0)), T(prctl(PR_SET_SECUREBITS, SECBIT_KEEP_CAPS_LOCKED, 0, 0, 0)), T(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)), T(prctl(PR_SET_SECUREBITS, 0, 0, 0, 0))));
    CHILD("without the right", (setuid(5), T(prctl(PR_SET_SECUREBITS, 1, 0, 0, 0)), T(prctl(PR_CAPBSET_DROP, 3, 0, 0, 0)), T(prctl(PR_CAPBSET_READ, 3, 0, 0, 0)), T(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0))));
}
PROGRAM(ambient_capabilities) {
    struct header header = {0x20080522, 0};
    struct sets sets[2];
    T(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 3, 0, 0)), T(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 3, 0, 0)), T(prctl(PR_CAP_AMBIENT, 9, 3, 0, 0)), T(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 99, 0, 0)), T(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 1, 0, 0)), T(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 3, 1, 0));
    get_caps(&header, sets), sets[0].inheritable |= 8, T(set_caps(&header, sets)), T(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 3, 0, 0)), T(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 3, 0, 0)), T(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_LOWER, 3, 0, 0)), T(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 3, 0, 0)), T(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
}
PROGRAM(controls_of_oneself) {
    char name[17] = {0};
    T(prctl(PR_SET_NAME, "a name that is much too long")), T(prctl(PR_GET_NAME, name)), printf("%s\n", name), T(prctl(PR_SET_NAME, 8)), T(prctl(PR_GET_NAME, 8)), T(prctl(9999, 0, 0, 0, 0)), T(prctl(-1, 0, 0, 0, 0));
    T(prctl(PR_GET_DUMPABLE)), T(prctl(PR_SET_DUMPABLE, 2)), T(prctl(PR_SET_DUMPABLE, 0)), T(prctl(PR_GET_DUMPABLE)), T(prctl(PR_SET_DUMPABLE, 1));
    T(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)), T(prctl(PR_SET_NO_NEW_PRIVS, 1, 1, 0, 0)), T(prctl(PR_GET_NO_NEW_PRIVS, 1, 0, 0, 0)), T(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)), T(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)), T(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    T(prctl(PR_GET_TIMERSLACK)), T(prctl(PR_SET_TIMERSLACK, 12345)), T(prctl(PR_GET_TIMERSLACK)), T(prctl(PR_SET_TIMERSLACK, 0)), T(prctl(PR_GET_TIMERSLACK)), T(prctl(PR_GET_TIMING)), T(prctl(PR_SET_TIMING, 1)), T(prctl(PR_SET_TIMING, 0)), T(prctl(PR_GET_SECCOMP)), T(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0)), T(prctl(PR_MCE_KILL_GET, 1, 0, 0, 0)), T(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0)), T(prctl(PR_GET_THP_DISABLE, 1, 0, 0, 0));
    int where = 7;
    T(prctl(PR_GET_TSC, &where)), T(where), T(prctl(PR_SET_TSC, 9)), T(prctl(PR_GET_UNALIGN, &where)), T(prctl(PR_GET_FPEMU, &where)), T(prctl(PR_GET_ENDIAN, &where)), T(prctl(PR_TASK_PERF_EVENTS_DISABLE)), T(prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0)), T(prctl(PR_GET_IO_FLUSHER, 1, 0, 0, 0));
}
PROGRAM(controls_of_places) {
    T(prctl(PR_SET_MM, 99, 0, 0, 0)), T(prctl(PR_SET_MM, PR_SET_MM_BRK, 8, 0, 0)), T(prctl(PR_SET_MM, PR_SET_MM_EXE_FILE, 99, 0, 0)), T(prctl(PR_SET_MM, PR_SET_MM_START_CODE, 0, 0, 1)), T(prctl(PR_SET_MM, PR_SET_MM_ARG_START, 8, 0, 0));
    unsigned size = 0;
    T(prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 0)), T(size), T(prctl(PR_SET_VMA, 9, 0, 0, 0)), T(prctl(PR_SET_VMA, 0, 1, 4096, 0));
    CHILD("nobody", (setuid(5), T(prctl(PR_SET_MM, PR_SET_MM_BRK, 8, 0, 0)), T(prctl(PR_SET_MM, 99, 0, 0, 0)), T(prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 0))));
    T(syscall(SYS_set_tid_address, 8) == getpid()), T(syscall(SYS_arch_prctl, 9999, 0)), T(syscall(SYS_arch_prctl, 0x1003, 8)), T(syscall(SYS_arch_prctl, 0x1002, 1ul << 63)), T(syscall(SYS_arch_prctl, 0x1011, 0)), T(syscall(SYS_personality, 0xffffffff));
}
PROGRAM(rights_over_others) {
    int line[2];
    pipe(line);
    pid_t child = fork();
    if (child == 0) {
        setresuid(1000, 1000, 1000), write(line[1], "x", 1), pause();
        _exit(0);
    }
    char byte;
    read(line[0], &byte, 1);
    CHILD("the same user", (setresuid(1000, 1000, 1000), T(kill(child, 0)), T(setpriority(PRIO_PROCESS, child, 1)), T(prlimit(child, 0, NULL, NULL))));
    CHILD("its real one", (setresuid(1000, 1001, 1001), T(kill(child, 0)), T(setpriority(PRIO_PROCESS, child, 2)), T(syscall(SYS_ioprio_set, 1, child, 2 << 13))));
    CHILD("another", (setresuid(1001, 1001, 1001), T(kill(child, 0)), T(kill(child, SIGCONT)), T(setpriority(PRIO_PROCESS, child, 3)), T(getpriority(PRIO_PROCESS, child)), T(getsid(child) > 0), T(prlimit(child, 0, NULL, NULL)), T(syscall(SYS_ioprio_set, 1, child, 2 << 13)), T(syscall(SYS_tgkill, child, child, 0)), T(kill(-1, 0)), T(syscall(SYS_get_robust_list, child, &byte, &byte)), T(syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, child, 0), 0, 0))));
    kill(child, SIGKILL), waitpid(child, NULL, 0);
}
