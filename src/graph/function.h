/* The function library of a graph. */
#ifndef GRAPH_FUNCTION_H
#define GRAPH_FUNCTION_H

#include <stdatomic.h>

struct function_def {
  atomic_int refs;
};

struct function_def *function_def_ref(struct function_def *f);
void function_def_unref(struct function_def *f);

#endif
