/*
 * A QEMU plugin that counts how often each guest instruction is executed inside a program's measured windows.
 *
 * `aegis bench --trace-row` compiles it and gives it the program's marks: addresses of instructions that say where a window is
 * (bench/micro/micro.h). Arming starts over with nothing counted; while armed, each clock mark opens a window or closes the open one;
 * disarming writes what was counted, so that only the last batch remains, and a machine that dies leaves the batch before.
 *
 * What a system executes while it looks for something to come is counted apart where it says so: a look begins at a mark, and is
 * in vain unless a mark says that it has found something.
 *
 * With sums=FILE it adds a line to that file instead, how many instructions were executed in the windows: so nothing is lost of a
 * program that is armed again and again, however late FILE is read.
 *
 * Arguments: out=FILE or sums=FILE, and any number of mark=KIND:ADDRESS (in hexadecimal). The FILE of out= holds, one a line:
 *
 *   count ADDRESS EXECUTIONS      for each instruction
 *   step ADDRESS                  the last PATH_STEPS_MAX instructions in their order
 *   vain EXECUTIONS               of all, those of looks in vain
 *   end WINDOWS LOST              last; LOST executions had no room in the table
 *
 * Declared here because Debian has no package with qemu-plugin.h; these are the calls of its version 1, unchanged in later ones.
 * One thread at a time runs: with -icount, QEMU takes the processors in turn.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*translated_callback)(uint64_t plugin, struct qemu_plugin_tb *block);
typedef void (*executed_callback)(unsigned processor, void *argument);

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t plugin, translated_callback callback);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *instruction);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *instruction, executed_callback callback, int registers,
                                            void *argument);

#define EXPORTED __attribute__((visibility("default")))
#define USES_NO_REGISTERS 0

/* Instructions of the kernel, the library OS and the program together that a window may run through. */
#define SITE_BITS 18
#define SITES_MAX (1u << SITE_BITS)
/* A power of two. */
#define PATH_STEPS_MAX (1u << 19)
#define MARKS_MAX 512

enum kind { CLOCK = 0, ARM = 1, DISARM = 2, LOOK = 3, FOUND = 4, IN_VAIN = 5 };

static struct {
    uint64_t address, executions;
} sites[SITES_MAX];
static uint64_t path[PATH_STEPS_MAX], path_length;
static struct {
    uint64_t address;
    intptr_t kind;
} marks[MARKS_MAX];
static unsigned mark_count;
static uint64_t windows, lost, sum, look_began, vain;
static int is_armed, is_open, is_looking;
static const char *output_path, *sums_path;

EXPORTED int qemu_plugin_version = PLUGIN_VERSION;

static void count(unsigned processor, void *argument) {
    if (!is_open) return;
    sum++;
    if (sums_path) return;
    uint64_t address = (uintptr_t)argument;
    path[path_length++ % PATH_STEPS_MAX] = address;
    uint32_t index = address * UINT64_C(0x9e3779b97f4a7c15) >> (64 - SITE_BITS);
    for (uint32_t tried = 0; tried < SITES_MAX; tried++, index = (index + 1) % SITES_MAX) {
        if (!sites[index].executions) sites[index].address = address;
        if (sites[index].address == address) {
            sites[index].executions++;
            return;
        }
    }
    lost++;
}

static void report_sum(void) {
    FILE *file = fopen(sums_path, "a");
    if (!file) return;
    fprintf(file, "%" PRIu64 "\n", sum);
    fclose(file);
}

static void report(void) {
    FILE *file = fopen(output_path, "w");
    if (!file) return;
    for (uint32_t i = 0; i < SITES_MAX; i++)
        if (sites[i].executions) fprintf(file, "count %" PRIx64 " %" PRIu64 "\n", sites[i].address, sites[i].executions);
    uint64_t kept = path_length < PATH_STEPS_MAX ? path_length : PATH_STEPS_MAX;
    for (uint64_t i = path_length - kept; i < path_length; i++)
        fprintf(file, "step %" PRIx64 "\n", path[i % PATH_STEPS_MAX]);
    fprintf(file, "vain %" PRIu64 "\n", vain);
    fprintf(file, "end %" PRIu64 " %" PRIu64 "\n", windows, lost);
    fclose(file);
}

static void end_look(int was_in_vain) {
    if (is_looking && was_in_vain) vain += sum - look_began;
    is_looking = 0;
}

static void mark(unsigned processor, void *kind) {
    switch ((intptr_t)kind) {
    case CLOCK:
        if (!is_armed) return;
        is_open = !is_open;
        windows += is_open;
        return;
    case ARM:
        memset(sites, 0, sizeof sites);
        windows = lost = path_length = sum = vain = 0;
        is_open = is_looking = 0;
        is_armed = 1;
        return;
    case DISARM:
        if (is_armed) sums_path ? report_sum() : report();
        is_armed = is_open = 0;
        return;
    case LOOK:
        end_look(1);
        is_looking = is_open;
        look_began = sum;
        return;
    case FOUND:
    case IN_VAIN:
        end_look((intptr_t)kind == IN_VAIN);
        return;
    }
}

/* The mark first: an instruction that opens a window is in it, one that closes it is not. */
static void translated(uint64_t plugin, struct qemu_plugin_tb *block) {
    size_t length = qemu_plugin_tb_n_insns(block);
    for (size_t i = 0; i < length; i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        uint64_t address = qemu_plugin_insn_vaddr(instruction);
        for (unsigned m = 0; m < mark_count; m++)
            if (marks[m].address == address)
                qemu_plugin_register_vcpu_insn_exec_cb(instruction, mark, USES_NO_REGISTERS, (void *)marks[m].kind);
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, count, USES_NO_REGISTERS, (void *)(uintptr_t)address);
    }
}

EXPORTED int qemu_plugin_install(uint64_t plugin, const void *machine, int argument_count, char **arguments) {
    for (int i = 0; i < argument_count; i++) {
        char *end;
        if (!strncmp(arguments[i], "out=", 4)) {
            output_path = strdup(arguments[i] + 4);
        } else if (!strncmp(arguments[i], "sums=", 5)) {
            sums_path = strdup(arguments[i] + 5);
        } else if (!strncmp(arguments[i], "mark=", 5) && mark_count < MARKS_MAX) {
            marks[mark_count].kind = strtol(arguments[i] + 5, &end, 10);
            marks[mark_count++].address = *end == ':' ? strtoull(end + 1, NULL, 16) : 0;
        } else {
            fprintf(stderr, "trace: cannot take %s\n", arguments[i]);
            return 1;
        }
    }
    if (!output_path && !sums_path) return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated);
    return 0;
}
