/* Working memory of a thread: blocks that kernels use inside one call and that stay for the next. Each slot is
 * a separate block, so that code that holds one may call code that uses another. */
#ifndef MATH_SCRATCH_H
#define MATH_SCRATCH_H

#include <stddef.h>

enum scratch_slot { SCRATCH_PACK, SCRATCH_SUMS, SCRATCH_PANELS, SCRATCH_SHARED, SCRATCH_PATCH, SCRATCH_SLOTS };

/* At least size bytes, 64-byte aligned, undefined contents; never NULL. For sizes bounded by
 * the code, or by a tensor that is in memory already. */
void *scratch_get(enum scratch_slot slot, size_t size);

#endif
