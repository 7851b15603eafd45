/* What a gather along an axis is, for the kernels of every device. */
#ifndef OPS_ARRAY_GATHER_H
#define OPS_ARRAY_GATHER_H

#include "ops/array/array_util.h"

struct gather_sizes {
  struct shape out;
  int64_t n;     /* indices in a batch entry */
  int64_t outer; /* slices of params in a batch entry */
  int64_t dim;   /* size of the gathered dimension */
  int64_t inner; /* elements of a row */
};
/* No element is looked at. */
shoal_status gather_sizes_find(const struct tensor *params, const struct tensor *indices, int64_t axis, int64_t batch,
                               struct gather_sizes *out);

#endif
