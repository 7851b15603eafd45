/* How collectives merge their members' values: by the loops of the elementwise ops. */
#ifndef OPS_CONTROL_COLLECTIVE_LOOPS_H
#define OPS_CONTROL_COLLECTIVE_LOOPS_H

#include "collective/arithmetic.h"
#include "ops/math/elementwise.h"

struct collective_loops {
  struct collective_arithmetic head;
  struct binary_loop merge, final;
  struct binary_loop scale; /* in place of final, where that is the same to the last bit */
  shoal_dtype dtype;
};

/* merge_op: Add, Mul, Max or Min; final_op: Div, by the number of members, or Id. a is zero-filled. */
shoal_status collective_loops_init(struct collective_loops *a, const char *merge_op, const char *final_op,
                                   shoal_dtype dtype);

#endif
