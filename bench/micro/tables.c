/* The micro suite: what the primitives of an operating system cost. */
#include "micro.h"

extern const struct row control_rows[], call_rows[], memory_rows[], fault_rows[], file_rows[], process_rows[],
    channel_rows[], exos_rows[];

const struct row *const row_tables[] = {control_rows, call_rows,    memory_rows,  fault_rows, file_rows,
                                        process_rows, channel_rows, exos_rows,    NULL};
