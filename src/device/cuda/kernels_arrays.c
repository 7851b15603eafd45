/* OneHot, PadV2, scans, TopK and InTopK on a card: arrays.cu. */
#include <stdio.h>
#include <string.h>

#include "device/cuda/cuda_kernel.h"
#include "ops/array/array_util.h"
#include "ops/array/pad.h"

enum { WARP = 32 };

/* NAME_BYTES, for elements that are moved as they are. */
static shoal_status find_by_size(struct kernel_init *ki, const char *name, shoal_dtype type, shoal_dtype index,
                                 CUfunction *out) {
  char full[32];
  snprintf(full, sizeof full, "%s_%zu", name, dtype_size(type));
  return cuda_function(cuda_of(ki->device), "arrays", full, index, 0, out);
}

static unsigned blocks_of_warps(int64_t lines) {
  return (unsigned)((lines + CUDA_BLOCK / WARP - 1) / (CUDA_BLOCK / WARP));
}

/* ---- OneHot ---- */

struct cuda_one_hot {
  CUfunction f;
  int64_t axis;
};

static shoal_status one_hot_init(struct kernel_init *ki, void *state) {
  struct cuda_one_hot *st = state;
  TRY(node_get_int(ki->node, "axis", &st->axis));
  return find_by_size(ki, "one_hot", dtype_base(ki->kernel->out_types[0]), dtype_base(ki->kernel->in_types[0]), &st->f);
}

static shoal_status one_hot_shape(struct kernel_ctx *ctx, int64_t axis, int64_t *depth, int *at, struct shape *out) {
  const struct tensor *ix = ctx_in(ctx, 0);
  if (axis != -1 && (axis < 0 || axis > ix->rank))
    return INVALID("Expected axis to be -1 or between [0, %d).  But received: %" PRId64, ix->rank + 1, axis);
  TRY(ctx_check_scalar(ctx, 1, "depth"));
  TRY(ctx_check_scalar(ctx, 2, "on_value"));
  TRY(ctx_check_scalar(ctx, 3, "off_value"));
  *depth = int_at(ctx_in(ctx, 1), 0);
  if (*depth < 0) return INVALID("depth must be non-negative, got: %" PRId64, *depth);
  if (ix->rank == SHOAL_MAX_RANK) return INVALID("A tensor has at most %d dimensions", SHOAL_MAX_RANK);
  *at = axis < 0 ? ix->rank : (int)axis;
  *out = (struct shape){.rank = ix->rank + 1};
  for (int i = 0; i < out->rank; i++) out->dims[i] = i < *at ? ix->dims[i] : i == *at ? *depth : ix->dims[i - 1];
  return NULL;
}

static shoal_status one_hot_run(struct kernel_ctx *ctx) {
  const struct cuda_one_hot *st = ctx->state;
  const struct tensor *ix = ctx_in(ctx, 0), *on = ctx_in(ctx, 2), *off = ctx_in(ctx, 3);
  struct shape shape;
  struct tensor *y;
  int64_t depth;
  int at;
  TRY(one_hot_shape(ctx, st->axis, &depth, &at, &shape));
  TRY(ctx_out(ctx, 0, &shape, &y));
  int64_t n = y->n, inner = dims_product(ix->dims, at, ix->rank);
  return cuda_run_each(
      ctx, st->f, n,
      (void *[]){(void *)&ix->data, (void *)&on->data, (void *)&off->data, &y->data, &n, &depth, &inner});
}

/* ---- PadV2 ---- */

static shoal_status pad_init(struct kernel_init *ki, void *state) {
  struct cuda_fn *st = state;
  return find_by_size(ki, "fill_from", dtype_base(ki->kernel->out_types[0]), 0, &st->f);
}

static shoal_status fill_padding(struct kernel_ctx *ctx, struct tensor *y) {
  const struct cuda_fn *st = ctx->state;
  int64_t n = y->n;
  return cuda_run_each(ctx, st->f, n, (void *[]){(void *)&ctx_in(ctx, 2)->data, &y->data, &n});
}

static shoal_status pad_run(struct kernel_ctx *ctx) { return pad_filled(ctx, fill_padding); }

/* ---- Cumsum, Cumprod ---- */

struct cuda_scan_of { /* as arrays.cu has it */
  int64_t outer, length, inner;
  int32_t exclusive, reverse;
};
struct cuda_scan {
  CUfunction lines, rows;
  bool exclusive, reverse;
};

static shoal_status scan_init(struct kernel_init *ki, void *state) {
  struct cuda_scan *st = state;
  bool sum = op_is(ki->node->op, "Cumsum");
  shoal_dtype type = dtype_base(ki->kernel->in_types[0]);
  TRY(node_get_bool(ki->node, "exclusive", &st->exclusive));
  TRY(node_get_bool(ki->node, "reverse", &st->reverse));
  TRY(cuda_function(cuda_of(ki->device), "arrays", sum ? "sum_lines" : "prod_lines", type, 0, &st->lines));
  return cuda_function(cuda_of(ki->device), "arrays", sum ? "sum_rows" : "prod_rows", type, 0, &st->rows);
}

static shoal_status scan_run(struct kernel_ctx *ctx) {
  const struct cuda_scan *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *a = ctx_in(ctx, 1);
  struct tensor *y;
  if (a->rank != 0) return INVALID("ScanOp: axis must be a scalar, not %s", tensor_shape_str(a));
  int64_t d = int_at(a, 0), axis = d < 0 ? d + x->rank : d;
  if (axis < 0 || axis >= x->rank)
    return INVALID("ScanOp: Expected scan axis in the range [%d, %d), but got %" PRId64, -x->rank, x->rank, d);
  TRY(ctx_out_like(ctx, 0, 0, &y));
  if (!x->n) return NULL;
  struct cuda_scan_of s = {dims_product(x->dims, 0, (int)axis), x->dims[axis],
                           dims_product(x->dims, (int)axis + 1, x->rank), st->exclusive, st->reverse};
  void **args = (void *[]){(void *)&x->data, &y->data, &s};
  if (s.inner > 1) return cuda_run_each(ctx, st->lines, s.outer * s.inner, args);
  return cuda_run(ctx, st->rows, blocks_of_warps(s.outer), 1, CUDA_BLOCK, args);
}

/* ---- TopK, InTopK ---- */

struct cuda_top {
  CUfunction f;
  int64_t k; /* -1: an input */
};

static shoal_status top_init(struct kernel_init *ki, void *state) {
  struct cuda_top *st = state;
  st->k = -1;
  if (node_attr(ki->node, "k")) TRY(node_get_int(ki->node, "k", &st->k));
  return cuda_function(cuda_of(ki->device), "arrays", "top", dtype_base(ki->kernel->in_types[0]),
                       dtype_base(ki->kernel->out_types[1]), &st->f);
}

static shoal_status find_k(struct kernel_ctx *ctx, int64_t *k) {
  const struct cuda_top *st = ctx->state;
  *k = st->k;
  if (*k >= 0) return NULL;
  TRY(ctx_check_scalar(ctx, 1, "k"));
  const struct tensor *given = ctx_in(ctx, 1);
  *k = given->dtype == SHOAL_INT16 ? T_DATA(given, const int16_t)[0] : int_at(given, 0);
  return *k < 0 ? INVALID("Need k >= 0, got %" PRId64, *k) : NULL;
}

static shoal_status top_run(struct kernel_ctx *ctx) {
  const struct cuda_top *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *values, *indices;
  int64_t k;
  TRY(find_k(ctx, &k));
  if (x->rank < 1) return INVALID("input must be >= 1-D, got shape %s", tensor_shape_str(x));
  int64_t columns = x->dims[x->rank - 1];
  if (columns < k) return INVALID("input must have at least k columns. Had %" PRId64 ", needed %" PRId64, columns, k);
  struct shape shape = tensor_shape(x);
  shape.dims[shape.rank - 1] = k;
  TRY(ctx_out(ctx, 0, &shape, &values));
  TRY(ctx_out(ctx, 1, &shape, &indices));
  if (!values->n) return NULL;
  return cuda_run(ctx, st->f, (unsigned)(values->n / k), 1, CUDA_BLOCK,
                  (void *[]){(void *)&x->data, &values->data, &indices->data, &columns, &k});
}

static shoal_status in_top_init(struct kernel_init *ki, void *state) {
  struct cuda_top *st = state;
  st->k = -1;
  if (node_attr(ki->node, "k")) TRY(node_get_int(ki->node, "k", &st->k));
  return cuda_function(cuda_of(ki->device), "arrays", "in_top", dtype_base(ki->kernel->in_types[1]), 0, &st->f);
}

static shoal_status in_top_run(struct kernel_ctx *ctx) {
  const struct cuda_top *st = ctx->state;
  const struct tensor *p = ctx_in(ctx, 0), *targets = ctx_in(ctx, 1);
  struct tensor *out;
  if (p->rank != 2) return INVALID("predictions must be 2-dimensional");
  if (targets->rank != 1) return INVALID("targets must be 1-dimensional");
  if (p->dims[0] != targets->dims[0])
    return INVALID("First dimension of predictions %" PRId64 " must match length of targets %" PRId64, p->dims[0],
                   targets->dims[0]);
  if (ctx->kernel->n_in == 3) TRY(ctx_check_scalar(ctx, 2, "k"));
  int64_t k = ctx->kernel->n_in == 3 ? int_at(ctx_in(ctx, 2), 0) : st->k, rows = p->dims[0], columns = p->dims[1];
  TRY(ctx_out_dims(ctx, 0, 1, &rows, &out));
  if (!rows) return NULL;
  return cuda_run(ctx, st->f, blocks_of_warps(rows), 1, CUDA_BLOCK,
                  (void *[]){(void *)&p->data, (void *)&targets->data, &out->data, &rows, &columns, &k});
}

/* ---- the table ---- */

#define INDICES (DT(INT32) | DT(INT64))
#define KERNEL(id, attr, types_, state_, init_, run_, ...)                     \
  static const struct kernel_def id[] = {{.device = "GPU",                     \
                                          .type_attr = attr,                   \
                                          .types = types_,                     \
                                          .state_size = sizeof(struct state_), \
                                          .init = init_,                       \
                                          .run = run_,                         \
                                          __VA_ARGS__},                        \
                                         {0}};
KERNEL(one_hot, "T", CUDA_PLAIN, cuda_one_hot, one_hot_init, one_hot_run, .type_attr2 = "TI",
       .types2 = INDICES | DT(UINT8), .host_in = 2)
KERNEL(pad, "T", CUDA_PLAIN, cuda_fn, pad_init, pad_run, .host_in = 2)
KERNEL(scan, "T", CUDA_ARITHMETIC, cuda_scan, scan_init, scan_run, .host_in = 2)
KERNEL(top, "T", CUDA_NUMBERS, cuda_top, top_init, top_run)
KERNEL(top_v2, "T", CUDA_NUMBERS, cuda_top, top_init, top_run, .type_attr2 = "index_type", .types2 = INDICES,
       .host_in = 2)
KERNEL(in_top, "T", INDICES, cuda_top, in_top_init, in_top_run, .host_in = 4)

const struct device_kernels cuda_arrays_kernels[] = {{"OneHot", one_hot}, {"PadV2", pad},       {"Cumsum", scan},
                                                     {"Cumprod", scan},   {"TopK", top},        {"TopKV2", top_v2},
                                                     {"InTopK", in_top},  {"InTopKV2", in_top}, {0}};
