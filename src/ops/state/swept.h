/* A kernel of the CPU for an op inside another node's: what nodes that stand for many updates run (sweep_updates.c,
 * join_updates.c). */
#ifndef OPS_STATE_SWEPT_H
#define OPS_STATE_SWEPT_H

#include "ops/state/state.h"

enum { SWEPT_INPUTS = 32 };

/* For an op without outputs; the node's attributes are the op's as well. types: of its inputs, kept by the caller. */
shoal_status swept_init(struct kernel_init *ki, const struct op *op, const uint8_t *types, struct kernel *out);
void swept_release(struct kernel *k);

#endif
