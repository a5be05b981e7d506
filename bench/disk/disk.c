/*
 * The rows of suite disk: reads of a whole disk past every cache, one after another in blocks of 1 KiB to 1 MiB, and
 * 4 KiB at random places with 1 to 64 of them under way (Linux's asynchronous interface); and 64 of them within 1 MiB,
 * asked for at once and waited for together, whose order is the system's affair.
 *
 *   disk [--init] MODEL timed|counted ROW,ROW...
 *
 * For each row it says `begin ROW`, does it, and says `row ROW COUNT NANOSECONDS`, or `no ROW WHY`. Counted, a row is
 * shorter, comes twice, and the second time is between marks for the plugin of QEMU's translator (bench/trace/trace.c).
 * `--init` says that it is the first process of a Linux: then it loads the drivers of MODEL, which is `virtio`, `ide`
 * or `pio` (IDE without DMA).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SEQUENTIAL_BYTES (64 << 20)
#define BLOCK_BYTES_MAX (1 << 20)
#define RANDOM_BYTES 4096
#define RANDOM_COUNT 4096
#define COUNTED_MAX 256
#define ASYNC_SPAN_BYTES (1 << 20)
#define DEPTH_MAX 64
#define WAIT_TRIES 1000
#define MARK(kind)                                                                                                     \
    __asm__ volatile(".pushsection aegis_marks, \"\", @progbits\n\t.quad 1f, " #kind "\n\t.popsection\n1:" ::: "memory")

static char *const devices[] = {"/dev/vda", "/dev/sda", "/dev/hda"};
static char *const virtio_modules[] = {"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev",
                                       "virtio_pci", "virtio_blk", NULL};
static char *const ide_modules[] = {"scsi_common", "scsi_mod", "libata", "ata_piix", "sd_mod", NULL};

static char *memory;
static uint64_t disk_bytes;
static uint64_t seed = 1;

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * UINT64_C(1000000000) + time.tv_nsec;
}

/* Random places are below this. */
static uint64_t span_bytes;

static uint64_t random_place(void) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % (span_bytes / RANDOM_BYTES) * RANDOM_BYTES;
}

static void prepare_linux(const char *model) {
    mkdir("/proc", 0755), mkdir("/sys", 0755), mkdir("/dev", 0755);
    mount("proc", "/proc", "proc", 0, NULL);
    mount("sysfs", "/sys", "sysfs", 0, NULL);
    mount("dev", "/dev", "devtmpfs", 0, NULL);
    char *const *name = strcmp(model, "virtio") ? ide_modules : virtio_modules;
    for (; *name; name++) {
        char path[64];
        snprintf(path, sizeof path, "/modules/%s.ko", *name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        int is_without_dma = !strcmp(model, "pio") && !strcmp(*name, "libata");
        if (fd < 0 || syscall(SYS_finit_module, fd, is_without_dma ? "dma=0" : "", 0))
            dprintf(1, "disk: %s: %s\n", path, strerror(errno));
        close(fd);
    }
}

static int open_disk(void) {
    for (int try = 0; try < WAIT_TRIES; try++, usleep(10000))
        for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
            int fd = open(devices[i], O_RDONLY | O_DIRECT | O_CLOEXEC);
            if (fd >= 0) return fd;
        }
    return -1;
}

/* How many blocks were read; -1: errno says why not. */
static long sequential(int fd, size_t bytes, long count) {
    uint64_t place = 0;
    for (long i = 0; i < count; i++, place = (place + bytes) % disk_bytes)
        if (pread(fd, memory, bytes, place) != (ssize_t)bytes) return -1;
    return count;
}

/* `least` of them are waited for at a time. */
static long at_random(int fd, int depth, int least, long count) {
    aio_context_t context = 0;
    struct iocb blocks[DEPTH_MAX], *given[DEPTH_MAX];
    struct io_event events[DEPTH_MAX];
    long submitted = 0, done = 0;
    int ready = depth;
    if (syscall(SYS_io_setup, depth, &context)) return -1;
    for (int i = 0; i < depth; i++) given[i] = &blocks[i];
    while (done < count) {
        int now = 0;
        for (; now < ready && submitted + now < count; now++) {
            struct iocb *block = given[now];
            memset(block, 0, sizeof *block);
            block->aio_lio_opcode = IOCB_CMD_PREAD, block->aio_fildes = fd, block->aio_nbytes = RANDOM_BYTES;
            block->aio_buf = (uintptr_t)memory + (block - blocks) * RANDOM_BYTES, block->aio_offset = random_place();
            block->aio_data = (uintptr_t)block;
        }
        for (int gone = 0; gone < now;) {
            long result = syscall(SYS_io_submit, context, now - gone, given + gone);
            if (result <= 0) return -1;
            gone += result;
        }
        submitted += now;
        ready = syscall(SYS_io_getevents, context, least, depth, events, NULL);
        if (ready <= 0) return -1;
        for (int i = 0; i < ready; i++) {
            given[i] = (struct iocb *)(uintptr_t)events[i].data;
            if (events[i].res != RANDOM_BYTES) {
                errno = events[i].res < 0 ? -events[i].res : EIO;
                return -1;
            }
        }
        done += ready;
    }
    syscall(SYS_io_destroy, context);
    return done;
}

/* `seq_4096`, `rand_16` or `async_64`. */
static long perform(int fd, const char *row, int is_counted) {
    long number = atol(strchr(row, '_') + 1), count;
    int is_async = !strncmp(row, "async_", 6);
    if (is_async || !strncmp(row, "rand_", 5)) {
        if (number <= 0 || number > DEPTH_MAX) return errno = EINVAL, -1;
        count = is_counted || is_async ? COUNTED_MAX : RANDOM_COUNT;
        span_bytes = is_async ? ASYNC_SPAN_BYTES : disk_bytes;
        return at_random(fd, number, is_async ? number : 1, count);
    }
    if (number <= 0 || number > BLOCK_BYTES_MAX) return errno = EINVAL, -1;
    count = SEQUENTIAL_BYTES / number;
    return sequential(fd, number, is_counted && count > COUNTED_MAX ? COUNTED_MAX : count);
}

static void run(int fd, const char *row, int is_counted) {
    if (is_counted && perform(fd, row, 1) < 0) {
        dprintf(1, "no %s %s\n", row, strerror(errno));
        return;
    }
    dprintf(1, "begin %s\n", row);
    uint64_t start = now_ns();
    if (is_counted) {
        MARK(1);
        MARK(0);
    }
    long count = perform(fd, row, is_counted);
    if (is_counted) {
        MARK(0);
        MARK(2);
    }
    uint64_t end = now_ns();
    if (count < 0)
        dprintf(1, "no %s %s\n", row, strerror(errno));
    else
        dprintf(1, "row %s %ld %llu\n", row, count, (unsigned long long)(end - start));
    /* For the host to read what was counted before the next row is. */
    if (is_counted) usleep(200000);
}

int main(int argc, char **argv) {
    /* A kernel's words that it does not know stand before. */
    int first = 1;
    while (first < argc && strcmp(argv[first], "--init")) first++;
    int is_init = first < argc;
    if (!is_init) first = 0;
    char **words = argv + first + 1;
    if (argc < first + 4) return 2;
    if (is_init) prepare_linux(words[0]);
    int fd = open_disk();
    memory = mmap(NULL, BLOCK_BYTES_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (fd >= 0) disk_bytes = lseek(fd, 0, SEEK_END);
    if (fd < 0 || memory == MAP_FAILED || disk_bytes + 1 <= SEQUENTIAL_BYTES) {
        dprintf(1, "disk: there is none: %s\n", strerror(errno));
    } else {
        for (char *row = strtok(words[2], ","); row; row = strtok(NULL, ",")) run(fd, row, !strcmp(words[1], "counted"));
        dprintf(1, "end\n");
    }
    if (is_init) {
        sync();
        reboot(RB_AUTOBOOT);
    }
    return 0;
}
