/* DynamicPartition and DynamicStitch: rows dealt out into several tensors, and put together again. */
#include <stdlib.h>
#include <string.h>

#include "ops/array/array_util.h"

static bool starts_with(const struct tensor *whole, const struct tensor *prefix) {
  if (prefix->rank > whole->rank) return false;
  for (int i = 0; i < prefix->rank; i++)
    if (whole->dims[i] != prefix->dims[i]) return false;
  return true;
}

/* ---- DynamicPartition ---- */

static shoal_status partition_run(struct kernel_ctx *ctx) {
  const struct tensor *data = ctx_in(ctx, 0), *parts = ctx_in(ctx, 1);
  int n = ctx->kernel->n_out;
  if (!starts_with(data, parts))
    return INVALID("data.shape must start with partitions.shape, got data.shape = %s, partitions.shape = %s",
                   tensor_shape_str(data), tensor_shape_str(parts));
  const int32_t *p = parts->data;
  int64_t *counts = mem_zalloc((size_t)n, sizeof *counts);
  char **to = mem_zalloc((size_t)n, sizeof *to);
  shoal_status s = NULL;
  for (int64_t i = 0; i < parts->n && !s; i++) {
    if (p[i] >= 0 && p[i] < n) counts[p[i]]++;
    else if (parts->rank == 0) s = INVALID("partitions = %d is not in [0, %d)", p[i], n);
    else s = INVALID("partitions%s = %d is not in [0, %d)", place_str(parts->rank, parts->dims, i), p[i], n);
  }
  struct shape shape = {.rank = 1};
  for (int i = parts->rank; i < data->rank; i++) shape.dims[shape.rank++] = data->dims[i];
  for (int k = 0; k < n && !s; k++) {
    struct tensor *y;
    shape.dims[0] = counts[k];
    s = ctx_out(ctx, k, &shape, &y);
    if (!s) to[k] = y->data;
  }
  int64_t width = dims_product(data->dims, parts->rank, data->rank);
  size_t bytes = (size_t)width * dtype_size((shoal_dtype)data->dtype);
  const char *from = data->data;
  for (int64_t i = 0; i < parts->n && !s && bytes; i++, from += bytes) {
    elements_copy((shoal_dtype)data->dtype, to[p[i]], from, width);
    to[p[i]] += bytes;
  }
  free(counts);
  free(to);
  return s;
}

static shoal_status partition_shape(struct shape_ctx *c) {
  const struct shape *data = &c->in[0], *parts = &c->in[1];
  if (data->rank < 0 || parts->rank < 0) return NULL;
  if (parts->rank > data->rank)
    return INVALID("Shape must be at least rank %d but is rank %d", parts->rank, data->rank);
  struct shape s = {.rank = 1, .dims = {-1}};
  for (int i = parts->rank; i < data->rank; i++) s.dims[s.rank++] = data->dims[i];
  for (int i = 0; i < c->node->n_out; i++) c->out[i] = s;
  return NULL;
}

/* The row numbers are dealt out the same way, and say where each gradient row belongs. */
static shoal_status partition_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out data = gin(c, 0), parts = gin(c, 1);
  int n = c->node->n_out;
  shoal_out shape = array_shape(g, parts, SHOAL_INT32);
  int64_t zero = 0;
  shoal_out size = build_op2(g, "Prod", shape, build_const_ints(g, SHOAL_INT32, &zero, 1));
  shoal_out numbers = array_reshape(
      g, build_op3(g, "Range", build_const_int(g, SHOAL_INT32, 0), size, build_const_int(g, SHOAL_INT32, 1)), shape);
  struct build b = build_begin(g, "DynamicPartition", NULL);
  build_in(&b, numbers);
  build_in(&b, parts);
  build_attr_int(&b, "num_partitions", n);
  struct shoal_node *places = build_end(&b);
  b = build_begin(g, "DynamicStitch", NULL);
  for (int i = 0; i < n; i++) build_in(&b, node_out(places, i));
  for (int i = 0; i < n; i++) build_in(&b, grad_dy(c, i));
  build_attr_int(&b, "N", n);
  grad_set(c, 0, array_reshape_like(g, build_end_out(&b), data));
  return NULL;
}

static const struct kernel_def partition_kernels[] = {{.device = "CPU", .run = partition_run}, {0}};

/* ---- DynamicStitch ---- */

static shoal_status stitch_run(struct kernel_ctx *ctx) {
  int n = ctx->kernel->n_in / 2;
  const struct tensor *const *ix = ctx->in, *const *data = ctx->in + n;
  int64_t top = -1;
  for (int k = 0; k < n; k++) {
    if (!starts_with(data[k], ix[k]))
      return INVALID("data[%d].shape = %s does not start with indices[%d].shape = %s", k, tensor_shape_str(data[k]), k,
                     tensor_shape_str(ix[k]));
    bool same = data[k]->rank - ix[k]->rank == data[0]->rank - ix[0]->rank;
    for (int i = 0; same && i < data[0]->rank - ix[0]->rank; i++)
      same = data[k]->dims[ix[k]->rank + i] == data[0]->dims[ix[0]->rank + i];
    if (!same)
      return INVALID(
          "Need data[0].shape[%d:] = data[%d].shape[%d:], got data[0].shape = %s, data[%d].shape = %s, "
          "indices[0].shape = %s, indices[%d].shape = %s",
          ix[0]->rank, k, ix[k]->rank, tensor_shape_str(data[0]), k, tensor_shape_str(data[k]), tensor_shape_str(ix[0]),
          k, tensor_shape_str(ix[k]));
    for (int64_t i = 0; i < ix[k]->n; i++) {
      int32_t v = T_DATA(ix[k], const int32_t)[i];
      if (v < 0) return INVALID("indices%s is out of range", place_str(ix[k]->rank, ix[k]->dims, i));
      top = MAX(top, v);
    }
  }
  struct shape s = {.rank = 1, .dims = {top + 1}};
  for (int i = ix[0]->rank; i < data[0]->rank; i++) s.dims[s.rank++] = data[0]->dims[i];
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  tensor_zero(y); /* rows that no index names */
  shoal_dtype dtype = (shoal_dtype)y->dtype;
  int64_t width = dims_product(s.dims, 1, s.rank);
  size_t bytes = (size_t)width * dtype_size(dtype);
  for (int k = 0; k < n && bytes; k++)
    for (int64_t i = 0; i < ix[k]->n; i++)
      elements_copy(dtype, (char *)y->data + (size_t)T_DATA(ix[k], const int32_t)[i] * bytes,
                    (const char *)data[k]->data + (size_t)i * bytes, width);
  return NULL;
}

static shoal_status stitch_shape(struct shape_ctx *c) {
  int n = c->node->n_in / 2;
  struct shape rest = shape_unknown();
  int64_t top = -1;
  bool known = true;
  for (int k = 0; k < n; k++) {
    const struct shape *ix = &c->in[k], *data = &c->in[n + k];
    const struct tensor *v = c->values[k];
    if (v && v->dtype == SHOAL_INT32)
      for (int64_t i = 0; i < v->n; i++) top = MAX(top, T_DATA(v, const int32_t)[i]);
    else known = false;
    if (ix->rank < 0 || data->rank < 0) continue;
    if (data->rank < ix->rank) return INVALID("Shape must be at least rank %d but is rank %d", ix->rank, data->rank);
    struct shape tail = {.rank = data->rank - ix->rank};
    for (int i = 0; i < tail.rank; i++) tail.dims[i] = data->dims[ix->rank + i];
    TRY(shape_merge(&rest, &tail, &rest));
  }
  if (rest.rank < 0 || rest.rank == SHOAL_MAX_RANK) return NULL;
  c->out[0] = (struct shape){.rank = rest.rank + 1, .dims = {known ? top + 1 : -1}};
  for (int i = 0; i < rest.rank; i++) c->out[0].dims[i + 1] = rest.dims[i];
  return NULL;
}

static shoal_status stitch_grad(struct grad_ctx *c) {
  int n = c->node->n_in / 2;
  shoal_out dy = grad_dy(c, 0);
  for (int k = 0; k < n; k++) grad_set(c, n + k, array_gather(c->g, dy, gin(c, k), 0));
  return NULL;
}

static const struct kernel_def stitch_kernels[] = {{.device = "CPU", .run = stitch_run}, {0}};

static const struct op_row rows[] = {
    {.name = "DynamicPartition",
     .in = "data: T, partitions: int32",
     .out = "outputs: num_partitions * T",
     .attrs = "num_partitions: int >= 1; T: type",
     .shape = partition_shape,
     .grad = partition_grad,
     .kernels = partition_kernels},
    {.name = "DynamicStitch",
     .in = "indices: N * int32, data: N * T",
     .out = "merged: T",
     .attrs = "N: int >= 1; T: type",
     .shape = stitch_shape,
     .grad = stitch_grad,
     .kernels = stitch_kernels},
    {.name = "ParallelDynamicStitch",
     .in = "indices: N * int32, data: N * T",
     .out = "merged: T",
     .attrs = "N: int >= 1; T: type",
     .shape = stitch_shape,
     .grad = stitch_grad,
     .kernels = stitch_kernels},
};
OP_FAMILY(partition, rows);
