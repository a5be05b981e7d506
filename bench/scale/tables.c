/* The scale suite: what an operation costs as there is more of something around it, and with a second thread beside it. */
#include "micro.h"

extern const struct row control_rows[], name_rows[], map_rows[], descriptor_rows[], task_rows[], pair_rows[];

const struct row *const row_tables[] = {control_rows, name_rows, map_rows, descriptor_rows, task_rows, pair_rows, NULL};
