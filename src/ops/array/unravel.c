/* UnravelIndex: flat indices to coordinates. */
#include <limits.h>

#include "ops/array/array_util.h"

static shoal_status unravel_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *dims = ctx_in(ctx, 1);
  if (x->rank > 1) return INVALID("The indices can only be scalar or vector, got \"%s\"", tensor_shape_str(x));
  if (dims->rank != 1) return INVALID("The indices can only be 1-D, got \"%s\"", tensor_shape_str(dims));
  int64_t total = 1, limit = x->dtype == SHOAL_INT32 ? INT32_MAX : INT64_MAX;
  for (int64_t i = 0; i < dims->n; i++) {
    int64_t d = int_at(dims, i);
    if (d == 0) return INVALID("Input dims cannot contain a dim of zero, but dims contains zero at index %" PRId64, i);
    if (d < 0) return INVALID("Input dims cannot be negative. Got dim = %" PRId64 " at index %" PRId64, d, i);
    if (total > limit / d)
      return INVALID("Input dims product is causing integer overflow: (%s)", ints_str(dims, 0, dims->n, ", "));
    total *= d;
  }
  for (int64_t i = 0; i < x->n; i++) /* negative ones pass, as in TensorFlow */
    if (int_at(x, i) >= total) return INVALID("index is out of bound as with dims");
  struct tensor *y;
  TRY(ctx_out_dims(ctx, 0, x->rank + 1, (int64_t[]){dims->n, x->n}, &y));
  for (int64_t i = 0; i < x->n; i++) {
    int64_t rest = int_at(x, i);
    for (int64_t k = dims->n - 1; k >= 0; k--) {
      int64_t d = int_at(dims, k);
      int_put(y, k * x->n + i, rest % d);
      rest /= d;
    }
  }
  return NULL;
}

static shoal_status unravel_shape(struct shape_ctx *c) {
  if (c->in[0].rank < 0 || c->in[0].rank > 1) return NULL;
  struct shape *y = &c->out[0];
  *y = shape_unknown_of_rank(c->in[0].rank + 1);
  if (c->in[1].rank == 1) y->dims[0] = c->in[1].dims[0];
  if (y->rank == 2) y->dims[1] = c->in[0].dims[0];
  return NULL;
}

static const struct kernel_def unravel_kernels[] = {
    {.device = "CPU", .type_attr = "Tidx", .types = DT(INT32) | DT(INT64), .run = unravel_run}, {0}};

static const struct op_row rows[] = {
    {.name = "UnravelIndex",
     .in = "indices: Tidx, dims: Tidx",
     .out = "output: Tidx",
     .attrs = "Tidx: {int32, int64} = int32",
     .shape = unravel_shape,
     .kernels = unravel_kernels},
};
OP_FAMILY(unravel, rows);
