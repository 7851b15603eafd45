/* The function library of a graph. */
#include "graph/function.h"

#include <stdlib.h>

struct function_def *function_def_ref(struct function_def *f) {
  atomic_fetch_add(&f->refs, 1);
  return f;
}

void function_def_unref(struct function_def *f) {
  if (f && atomic_fetch_sub(&f->refs, 1) == 1) free(f);
}
