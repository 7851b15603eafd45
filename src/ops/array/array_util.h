/* What the array families share: small readers of tensor values, and the graph pieces their gradients are
 * made of. */
#ifndef OPS_ARRAY_ARRAY_UTIL_H
#define OPS_ARRAY_ARRAY_UTIL_H

#include <inttypes.h>

#include "base/mem.h"
#include "graph/gradient.h"
#include "graph/shape_fn.h"
#include "runtime/kernel.h"

/* Bytes a piece of a parallel copy should have: large enough to pay for a thread, small enough to share. */
enum { COPY_GRAIN = 1 << 17 };

/* How many units of `bytes` each make a piece; at least one. */
static inline int64_t copy_grain(int64_t bytes) { return bytes >= COPY_GRAIN ? 1 : COPY_GRAIN / MAX(bytes, 1); }

/* Element i of a tensor of any integer type that indices come in. */
static inline int64_t int_at(const struct tensor *t, int64_t i) {
  switch (t->dtype) {
    case SHOAL_INT32: return T_DATA(t, const int32_t)[i];
    case SHOAL_INT64: return T_DATA(t, const int64_t)[i];
    case SHOAL_INT16: return T_DATA(t, const int16_t)[i];
    case SHOAL_UINT16: return T_DATA(t, const uint16_t)[i];
    case SHOAL_UINT8: return T_DATA(t, const uint8_t)[i];
    default: return T_DATA(t, const int8_t)[i];
  }
}
/* What Reshape makes of x by the sizes it is given, one of which may be -1. */
shoal_status reshape_size(const struct tensor *x, const struct tensor *sizes, struct shape *out);
/* v fits the integer type of t, or the caller has checked. */
static inline void int_put(struct tensor *t, int64_t i, int64_t v) {
  if (t->dtype == SHOAL_INT32) T_DATA(t, int32_t)[i] = (int32_t)v;
  else T_DATA(t, int64_t)[i] = v;
}

/* Element i of a tensor of any real type, bool included, as a double; and a double rounded into one. */
double real_at(const struct tensor *t, int64_t i);
void real_put(struct tensor *t, int64_t i, double v);
/* What arithmetic in a floating type would have given. */
double real_rounded(shoal_dtype t, double v);

static inline const char *tensor_shape_str(const struct tensor *t) {
  struct shape s = tensor_shape(t);
  return shape_str(&s);
}

/* The shape that a vector of sizes (or one size alone) asks for; a negative one is INVALID_ARGUMENT. */
shoal_status shape_from_values(const struct tensor *sizes, struct shape *out);

/* The product of dims [from, to). */
static inline int64_t dims_product(const int64_t *dims, int from, int to) {
  int64_t n = 1;
  for (int i = from; i < to; i++) n *= dims[i];
  return n;
}

/* Shapes behind handles pass from input j to output i. */
static inline void shape_pass_handle(struct shape_ctx *c, int i, int j) {
  if (c->handle_in && c->handle_out) c->handle_out[i] = c->handle_in[j];
}
/* Every output i has input i's shape (or input 0's, when there are more outputs), handles too. */
shoal_status shape_pass(struct shape_ctx *c);

/* Copies n elements from `from` to `to`, in parallel when there are many; for any type. */
void elements_copy_parallel(struct pool *p, shoal_dtype dtype, void *to, const void *from, int64_t n);
/* Sets n elements to the one at `value`. */
void elements_fill(struct pool *p, shoal_dtype dtype, void *to, const void *value, int64_t n);

/* "[1,0]" (where flat element i is in dims), for errors; one of a few thread-local buffers. */
const char *place_str(int rank, const int64_t *dims, int64_t i);
/* "[3, 1]" or, with between ",", "[3,1]": n integers of t from element `first` on. */
const char *ints_str(const struct tensor *t, int64_t first, int64_t n, const char *between);

/* Rows of a table added, multiplied... by other rows: out[ids[i]] op= by[i], in the order of i for each row whatever
 * the number of threads. Negative ids are skipped; ids below `rows` must have been checked. */
struct row_update {
  shoal_dtype dtype;
  void (*fn)(shoal_dtype dtype, void *to, const void *by, int64_t n);
  char *to;
  const char *by;
  const struct tensor *ids;
  int64_t n, rows, width; /* how many updates, rows of out, elements of a row */
};
void rows_update(struct pool *p, const struct row_update *u);

/* Output i is a part of input j's buffer that begins at element `offset`: no copy. */
void ctx_forward_part(struct kernel_ctx *ctx, int i, int j, int64_t offset, const struct shape *shape);

/* ---- graph pieces ---- */
/* The shape of x as a vector of type: a constant where it is known. */
shoal_out array_shape(struct shoal_graph *g, shoal_out x, shoal_dtype type);
/* The rank of x as an int32 scalar: a constant where it is known. */
shoal_out array_rank(struct shoal_graph *g, shoal_out x);
/* 0, 1, ... rank - 1. */
shoal_out array_axes(struct shoal_graph *g, shoal_out x);
/* The sum of all elements. */
shoal_out array_sum_all(struct shoal_graph *g, shoal_out x);
shoal_out array_sum(struct shoal_graph *g, shoal_out x, shoal_out axes, bool keep);
shoal_out array_reshape(struct shoal_graph *g, shoal_out x, shoal_out shape);
/* x reshaped as like is. */
shoal_out array_reshape_like(struct shoal_graph *g, shoal_out x, shoal_out like);
shoal_out array_zeros_like(struct shoal_graph *g, shoal_out x);
shoal_out array_transpose(struct shoal_graph *g, shoal_out x, shoal_out perm);
shoal_out array_slice(struct shoal_graph *g, shoal_out x, shoal_out begin, shoal_out size);
/* values joined along a constant axis. */
shoal_out array_concat(struct shoal_graph *g, const shoal_out *values, int n, int axis);
/* x[begin:end] of a vector; INT_MAX as end means all that is left. */
shoal_out array_part(struct shoal_graph *g, shoal_out x, int begin, int end);
/* x[i] of a vector. */
shoal_out array_at(struct shoal_graph *g, shoal_out x, int i);
/* x[..., with a dimension of 1 put in at axis */
shoal_out array_expand(struct shoal_graph *g, shoal_out x, int axis);
/* A constant's value; false when o is none. */
bool array_const_int(shoal_out o, int64_t *value);
shoal_out array_gather(struct shoal_graph *g, shoal_out x, shoal_out indices, int axis);

#endif
