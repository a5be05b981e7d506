/*
 * What suites micro and scale have in common: finds the rows of a program (`row_tables`) and measures them, on Aegis and
 * on Linux alike.
 *
 *   micro --list REGEX                      prints the names that the extended regular expression finds, one a line
 *   micro --run NAME,NAME… TARGET_US BATCHES quietly|aloud
 *   micro --init …                          the same as the first process of a Linux machine, which then ends
 *   micro --symbols                         as such a process: prints the kernel's functions as /proc/kallsyms has them, then `done COUNT`
 *
 * What it prints is read by `aegis bench`:
 *
 *   start NAME                a row begins; a machine that dies in it has said which
 *   row NAME NS COUNT         median nanoseconds for one operation, and how many were in a batch
 *   na NAME ERRNO WHAT        the row cannot run here: this call failed with this errno, or signal if ERRNO is -N
 *   done COUNT                so many rows were reported: without this line the output is not whole
 *
 * Quietly, all that comes at the end, so that no row is disturbed; aloud, each line comes at once.
 *
 * Rows run in this process, without a fork around them, because a system under test need not have fork. A signal that a
 * row did not ask for is caught and becomes its `na`.
 */
#include "micro.h"

#include <linux/if.h>
#include <poll.h>
#include <regex.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define BATCHES_MAX 64
#define COUNT_MAX 50000000L
#define SETTLE_NS 30000000
#define SETTLE_ROUNDS_MAX 100

char own_path[512];

long row_size, row_parts;

static const char *failed_what = "";
static int failed_errno;
static sigjmp_buf row_guard;
static enum place row_place;
static int says_all;

int64_t failed(const char *what) {
    failed_errno = errno;
    failed_what = what;
    return -1;
}

static int allow(int first, int last) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = first; cpu <= last; cpu++) CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set);
}

/* A system may accept the call without acting on it. */
static int move_to(int cpu) {
    if (allow(cpu, cpu)) return -1;
    errno = ENOSYS;
    return sched_getcpu() == cpu ? 0 : -1;
}

int take_place(int side) {
    if (row_place == ANYWHERE) return 0;
    /* By way of the second one, so that a system that has everybody on the first is found out. */
    return move_to(1) || move_to(row_place == DIFFERENT ? side : 0) ? -1 : 0;
}

static void leave_row(int signal_number) {
    siglongjmp(row_guard, signal_number);
}

static const int guarded[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGPIPE, 0};

static void guard_signals(void) {
    for (const int *number = guarded; *number; number++) {
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_handler = leave_row;
        action.sa_flags = SA_NODEFER;
        sigaction(*number, &action, NULL);
    }
}

static int compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

/* The median batch of a row, with as many operations in a batch as take the target time; 0 if the row failed. */
static int measure(const struct row *row, int64_t target_ns, int batches, double *median_ns, long *count) {
    double batch_ns[BATCHES_MAX];
    long operations = 2;
    for (;;) {
        int64_t elapsed_ns = row->measure(operations);
        if (elapsed_ns < 0) return 0;
        if (elapsed_ns >= target_ns / 2 || operations >= COUNT_MAX) break;
        double growth = elapsed_ns ? (double)target_ns / elapsed_ns : 16;
        operations = operations * (growth > 16 ? 16 : growth < 2 ? 2 : growth);
        operations += operations & 1; /* some rows go by pairs */
    }
    for (int batch = 0; batch < batches; batch++) {
        MARK(1);
        int64_t elapsed_ns = row->measure(operations);
        MARK(2);
        if (elapsed_ns < 0) return 0;
        batch_ns[batch] = (double)elapsed_ns / operations;
    }
    qsort(batch_ns, batches, sizeof *batch_ns, compare);
    *median_ns = batch_ns[batches / 2] / row_parts;
    *count = operations * row_parts;
    return 1;
}

/*
 * Waits busily. The host talks to a machine for a while after the program's start, and it takes the program's lines when
 * it likes; each tells the machine by an interrupt, which would make two runs under -icount differ if it fell into a row.
 * On Aegis the host's last word is that the input has ended: until it came, the time to wait starts over, so that a busy
 * host does not change the figures. Waiting ends by the clock alone, so that the rows begin at the same instruction.
 */
static void settle(int hears_host) {
    struct pollfd input = {0, POLLIN, 0};
    for (int round = 0; round < SETTLE_ROUNDS_MAX; round++) {
        int64_t start = now_ns();
        while (hears_host && poll(&input, 1, 0) == 0 && now_ns() - start < SETTLE_NS / 2) {
        }
        hears_host = hears_host && !input.revents;
        while (now_ns() - start < SETTLE_NS) {
        }
        if (!hears_host) return;
    }
}

static void run_row(const struct row *row, const char *name, int64_t target_ns, int batches) {
    double median_ns;
    long count;
    printf("start %s\n", name);
    if (says_all) fflush(stdout);
    guard_signals();
    row_size = row->size;
    row_parts = 1;
    int signal_number = sigsetjmp(row_guard, 1);
    if (signal_number)
        printf("na %s -%d %s\n", name, signal_number, strsignal(signal_number));
    else if (measure(row, target_ns, batches, &median_ns, &count))
        printf("row %s %.3f %ld\n", name, median_ns, count);
    else
        printf("na %s %d %s\n", name, failed_errno, failed_what);
    if (says_all) fflush(stdout);
    if (row_place != ANYWHERE) allow(0, 1);
}

static const char *const place_names[] = {"", "@same", "@diff"};

/* A row's name in a place, or NULL if it is not measured there. */
static const char *name_in_place(const struct row *row, enum place place) {
    static char name[80];
    int is_there = place == ANYWHERE ? !row->only_placed : row->places >> place & 1;
    snprintf(name, sizeof name, "%s%s", row->name, place_names[place]);
    return is_there ? name : NULL;
}

/* Finds a row by its name and sets `row_place`. */
static const struct row *find_row(const char *wanted) {
    for (row_place = ANYWHERE; row_place <= DIFFERENT; row_place++)
        for (const struct row *const *table = row_tables; *table; table++)
            for (const struct row *row = *table; row->name; row++) {
                const char *name = name_in_place(row, row_place);
                if (name && !strcmp(name, wanted)) return row;
            }
    return NULL;
}

static int run_rows(const char *names, int64_t target_ns, int batches, int hears_host) {
    int done = 0;
    settle(hears_host);
    while (*names) {
        char name[80];
        size_t length = strcspn(names, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, names);
        const struct row *row = find_row(name);
        if (!row) {
            printf("unknown %s\n", name);
            return 2;
        }
        run_row(row, name, target_ns, batches);
        done++;
        names += length + (names[length] == ',');
    }
    printf("done %d\n", done);
    fflush(stdout);
    return 0;
}

static int list_rows(const char *expression) {
    regex_t regex;
    int error = regcomp(&regex, expression, REG_EXTENDED | REG_NOSUB);
    if (error) {
        char text[128];
        regerror(error, &regex, text, sizeof text);
        printf("%s\n", text);
        return 2;
    }
    for (enum place place = ANYWHERE; place <= DIFFERENT; place++)
        for (const struct row *const *table = row_tables; *table; table++)
            for (const struct row *row = *table; row->name; row++) {
                const char *name = name_in_place(row, place);
                if (name && !regexec(&regex, name, 0, NULL, 0)) printf("%s\n", name);
            }
    return 0;
}

/* What a distribution's first process does before a program would run: the file systems, and the loopback device. */
static void prepare_linux(void) {
    static const char *const systems[][2] = {
        {"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}};
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        mkdir(systems[i][1], 0755);
        mount(systems[i][0], systems[i][1], systems[i][0], 0, NULL);
    }
    struct ifreq loopback;
    memset(&loopback, 0, sizeof loopback);
    strcpy(loopback.ifr_name, "lo");
    int socket_fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (socket_fd >= 0 && !ioctl(socket_fd, SIOCGIFFLAGS, &loopback)) {
        loopback.ifr_flags |= IFF_UP;
        ioctl(socket_fd, SIOCSIFFLAGS, &loopback);
    }
    close(socket_fd);
    /* The kernel's own late work is over after that. */
    usleep(1500000);
}

static int run_as_init(const char *names, int64_t target_ns, int batches) {
    prepare_linux();
    fflush(stdout);
    /* The rows run in a second process: the first one has signal rules of its own. */
    pid_t child = fork();
    if (child == 0) _exit(run_rows(names, target_ns, batches, 0));
    int status = 0;
    while (waitpid(child, &status, 0) != child) {
    }
    printf("ended %d\n", status);
    fflush(stdout);
    sync();
    reboot(RB_AUTOBOOT);
    for (;;) pause();
}

/* Without the module's column: what is loaded in this machine has none. */
static int print_symbols(void) {
    prepare_linux();
    FILE *file = fopen("/proc/kallsyms", "r");
    char line[512], name[256], type;
    unsigned long address;
    int count = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%lx %c %255s", &address, &type, name) == 3 && strchr("tTwW", type)) {
            printf("%lx %c %s\n", address, type, name);
            count++;
        }
    printf("done %d\n", count);
    fflush(stdout);
    reboot(RB_AUTOBOOT);
    for (;;) pause();
}

int main(int argument_count, char **arguments) {
    /* Linux puts the words of its command line that it does not know in front of the program's. */
    while (argument_count > 1 && strncmp(arguments[1], "--", 2)) {
        arguments++;
        argument_count--;
    }
    const char *verb = argument_count > 1 ? arguments[1] : "";
    if (!strcmp(verb, "--noop")) _exit(0);
    if (!strcmp(verb, "--list") && argument_count == 3) return list_rows(arguments[2]);
    /* Only where it may end the machine. */
    if (!strcmp(verb, "--symbols")) return getpid() == 1 ? print_symbols() : 2;
    int is_init = !strcmp(verb, "--init");
    if ((!is_init && strcmp(verb, "--run")) || argument_count != 6) {
        fputs("usage: micro --list REGEX | --run NAMES TARGET_US BATCHES quietly|aloud\n", stderr);
        return 2;
    }
    static char output[65536];
    setvbuf(stdout, output, _IOFBF, sizeof output);
    says_all = !strcmp(arguments[5], "aloud");
    int64_t target_ns = atoll(arguments[3]) * 1000;
    int batches = atoi(arguments[4]);
    batches = batches < 1 ? 1 : batches > BATCHES_MAX ? BATCHES_MAX : batches;
    ssize_t length = is_init ? -1 : readlink("/proc/self/exe", own_path, sizeof own_path - 1);
    if (length > 0) own_path[length] = 0;
    else strncpy(own_path, is_init ? "/init" : arguments[0], sizeof own_path - 1);
    return is_init ? run_as_init(arguments[2], target_ns, batches) : run_rows(arguments[2], target_ns, batches, 1);
}
