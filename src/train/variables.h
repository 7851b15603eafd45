/* Variables of a graph, as optimizers and savers want them. */
#ifndef TRAIN_VARIABLES_H
#define TRAIN_VARIABLES_H

#include "graph/builder.h"

/* A node that reads the variable now (after the control scope's ops). */
struct out variable_read_op(struct graph *g, struct out handle, shoal_dtype dtype, const char *name);

#endif
