/* Ops that are loaded (runtime/own_ops.c), beside the built-in ones. */
#ifndef GRAPH_OP_REGISTER_H
#define GRAPH_OP_REGISTER_H

#include "graph/op.h"

/* All rows or none; they and their strings stay for ever. ALREADY_EXISTS: there is an op of that name;
 * INVALID_ARGUMENT: a row does not parse. */
shoal_status op_register(const struct op_row *const *rows, int n);

#endif
