/* Generators that come in as inputs, for the files of random ops that share them. */
#ifndef OPS_RANDOM_RANDOM_VARIABLE_H
#define OPS_RANDOM_RANDOM_VARIABLE_H

#include "ops/random/random_fill.h"

/* From inputs 1, 2 and 3: key, counter, algorithm. */
shoal_status random_from_key(struct kernel_ctx *ctx, struct philox *out);
/* From the variable behind input 0, which moves on by what `outputs` elements take. tagged: its first element is the
 * algorithm. before (optional, [3]): the state as it was. */
shoal_status random_from_variable(struct kernel_ctx *ctx, int64_t alg, bool tagged, uint64_t outputs,
                                  struct philox *out, int64_t *before);
/* A scalar input of exactly this type (int32, int64 or uint64's bits). */
shoal_status random_scalar_in(struct kernel_ctx *ctx, int i, shoal_dtype dtype, int64_t *out);

#endif
