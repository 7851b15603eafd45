/* How the inputs of a _JoinedUpdates lie (join_updates.c): for the kernels of devices that have their own. */
#ifndef OPS_STATE_JOINED_H
#define OPS_STATE_JOINED_H

#include "graph/graph.h"

enum { JOINED_SHRINKS = 1, JOINED_FITS = 2 }; /* bits of `how`, for each update */

struct joined_layout {
  const struct op *op; /* of each update */
  int count;           /* of them */
  int n_vars, grad;    /* of each: variables, which come first, and which input of the op the gradient is */
  int n_scalars;       /* behind all of that */
  bool scaled, shrunk; /* and behind those */
  uint8_t *how;        /* [count] */
};
/* Release it, found or not. */
shoal_status joined_layout_find(const struct shoal_node *n, struct joined_layout *out);
void joined_layout_release(struct joined_layout *l);

#endif
