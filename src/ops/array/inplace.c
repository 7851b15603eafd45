/* InplaceUpdate, InplaceAdd, InplaceSub: rows of a tensor replaced, added to, subtracted from.
 *
 * TensorFlow writes into the input's buffer whoever else sees it, and asks its users to take care. Here the input is
 * written to only when nobody else needs it; else it is copied first, so that what was read never changes. */
#include <string.h>

#include "ops/array/array_util.h"
#include "ops/state/state.h"

static shoal_status update_rows(struct kernel_ctx *ctx, enum update how) {
  const struct tensor *x = ctx_in(ctx, 0), *rows = ctx_in(ctx, 1), *v = ctx_in(ctx, 2);
  if (rows->rank != 1) return INVALID("i must be a vector. %s", tensor_shape_str(rows));
  if (x->rank != v->rank || !x->rank)
    return INVALID("x and v shape doesn't match (ranks differ): %s vs. %s", tensor_shape_str(x), tensor_shape_str(v));
  for (int i = 1; i < x->rank; i++)
    if (x->dims[i] != v->dims[i])
      return INVALID("x and v shape doesn't match at index %d : %s vs. %s", i, tensor_shape_str(x),
                     tensor_shape_str(v));
  if (rows->dims[0] != v->dims[0])
    return INVALID("i and x shape doesn't match at index 0: %s vs. %s", tensor_shape_str(rows), tensor_shape_str(v));
  shoal_dtype t = (shoal_dtype)x->dtype;
  update_fn fn = how == UPDATE_SET ? NULL : update_find(how, t);
  if (how != UPDATE_SET && !fn) return INVALID("Unsupported data type: %s", dtype_tf_name(x->dtype));
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  if (y->data != x->data) elements_copy_parallel(ctx_pool(ctx), t, y->data, x->data, x->n);
  if (!x->n || !v->n) return NULL;
  int64_t n = x->dims[0], width = x->n / n;
  size_t size = dtype_size(t);
  for (int64_t j = 0; j < rows->n; j++) {
    int64_t r = (int_at(rows, j) % n + n) % n; /* any number names a row */
    char *to = (char *)y->data + (size_t)(r * width) * size;
    const char *by = (const char *)v->data + (size_t)(j * width) * size;
    if (fn) fn(t, to, by, width);
    else elements_copy(t, to, by, width);
  }
  return NULL;
}

static shoal_status set_run(struct kernel_ctx *ctx) { return update_rows(ctx, UPDATE_SET); }
static shoal_status add_run(struct kernel_ctx *ctx) { return update_rows(ctx, UPDATE_ADD); }
static shoal_status sub_run(struct kernel_ctx *ctx) { return update_rows(ctx, UPDATE_SUB); }

static const struct kernel_def set_kernels[] = {{.device = "CPU", .run = set_run}, {0}};
static const struct kernel_def add_kernels[] = {{.device = "CPU", .run = add_run}, {0}};
static const struct kernel_def sub_kernels[] = {{.device = "CPU", .run = sub_run}, {0}};

#define ROW(name_, kernels_)                                                                                  \
  {                                                                                                           \
    .name = name_, .in = "x: T, i: int32, v: T", .out = "y: T", .attrs = "T: type", .shape = shape_unchanged, \
    .kernels = kernels_                                                                                       \
  }

static const struct op_row rows[] = {
    ROW("InplaceUpdate", set_kernels),
    ROW("InplaceAdd", add_kernels),
    ROW("InplaceSub", sub_kernels),
};
OP_FAMILY(inplace, rows);
