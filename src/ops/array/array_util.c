/* ops/array: tensors made, joined, cut, moved, looked up and searched; nothing is computed from what they hold. */

/* Helpers of the array families: see the header. */
#include "ops/array/array_util.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

shoal_status shape_pass(struct shape_ctx *c) {
  for (int i = 0; i < c->node->n_out; i++) {
    int j = i < c->node->n_in ? i : 0;
    c->out[i] = c->in[j];
    shape_pass_handle(c, i, j);
  }
  return NULL;
}

double real_at(const struct tensor *t, int64_t i) {
  switch (t->dtype) {
    case SHOAL_FLOAT32: return T_DATA(t, const float)[i];
    case SHOAL_FLOAT64: return T_DATA(t, const double)[i];
    case SHOAL_FLOAT16: return f16_to_float(T_DATA(t, const f16)[i]);
    case SHOAL_BFLOAT16: return bf16_to_float(T_DATA(t, const bf16)[i]);
    case SHOAL_UINT32: return T_DATA(t, const uint32_t)[i];
    case SHOAL_UINT64: return (double)T_DATA(t, const uint64_t)[i];
    case SHOAL_BOOL: return T_DATA(t, const bool)[i];
    default: return (double)int_at(t, i);
  }
}

void real_put(struct tensor *t, int64_t i, double v) {
  switch (t->dtype) {
    case SHOAL_FLOAT32: T_DATA(t, float)[i] = (float)v; break;
    case SHOAL_FLOAT64: T_DATA(t, double)[i] = v; break;
    case SHOAL_FLOAT16: T_DATA(t, f16)[i] = f16_from_float((float)v); break;
    case SHOAL_BFLOAT16: T_DATA(t, bf16)[i] = bf16_from_float((float)v); break;
    case SHOAL_UINT8: T_DATA(t, uint8_t)[i] = (uint8_t)v; break;
    case SHOAL_INT8: T_DATA(t, int8_t)[i] = (int8_t)v; break;
    case SHOAL_UINT16: T_DATA(t, uint16_t)[i] = (uint16_t)v; break;
    case SHOAL_INT16: T_DATA(t, int16_t)[i] = (int16_t)v; break;
    case SHOAL_UINT32: T_DATA(t, uint32_t)[i] = (uint32_t)v; break;
    case SHOAL_UINT64: T_DATA(t, uint64_t)[i] = (uint64_t)v; break;
    default: int_put(t, i, (int64_t)v); break;
  }
}

double real_rounded(shoal_dtype t, double v) {
  switch (t) {
    case SHOAL_FLOAT32: return (double)(float)v;
    case SHOAL_FLOAT16: return (double)f16_to_float(f16_from_float((float)v));
    case SHOAL_BFLOAT16: return (double)bf16_to_float(bf16_from_float((float)v));
    default: return v;
  }
}

shoal_status shape_from_values(const struct tensor *sizes, struct shape *out) {
  for (int64_t i = 0; i < sizes->n; i++)
    if (int_at(sizes, i) < 0) return INVALID("Dimension %" PRId64 " must be >= 0", int_at(sizes, i));
  return tensor_get_shape(sizes, false, out);
}

/* ---- copying and filling ---- */

struct row_copy {
  shoal_dtype dtype;
  size_t size;
  char *to;
  const char *from;
};

static void copy_piece(void *arg, int64_t begin, int64_t end) {
  struct row_copy *c = arg;
  elements_copy(c->dtype, c->to + (size_t)begin * c->size, c->from + (size_t)begin * c->size, end - begin);
}

void elements_copy_parallel(struct pool *p, shoal_dtype dtype, void *to, const void *from, int64_t n) {
  struct row_copy c = {dtype, dtype_size(dtype), to, from};
  pool_for(p, n, copy_grain((int64_t)c.size), copy_piece, &c);
}

static void fill_piece(void *arg, int64_t begin, int64_t end) {
  struct row_copy *c = arg;
  char *to = c->to + (size_t)begin * c->size;
  size_t n = (size_t)(end - begin);
  if (!n) return;
  if (!dtype_plain(c->dtype)) {
    for (size_t i = 0; i < n; i++) elements_copy(c->dtype, to + i * c->size, c->from, 1);
    return;
  }
  if (c->size == 1) {
    memset(to, *(const unsigned char *)c->from, n);
    return;
  }
  /* Doubling copies, up to a block that stays in the cache. */
  size_t have = 1, block = MIN(n, (size_t)8192 / c->size);
  memcpy(to, c->from, c->size);
  while (have < block) {
    size_t more = MIN(have, block - have);
    memcpy(to + have * c->size, to, more * c->size);
    have += more;
  }
  for (; have < n; have += MIN(block, n - have)) memcpy(to + have * c->size, to, MIN(block, n - have) * c->size);
}

void elements_fill(struct pool *p, shoal_dtype dtype, void *to, const void *value, int64_t n) {
  struct row_copy c = {dtype, dtype_size(dtype), to, value};
  pool_for(p, n, copy_grain((int64_t)c.size), fill_piece, &c);
}

/* ---- words for errors ---- */

static char *text_ring(void) {
  static _Thread_local char buffers[4][512];
  static _Thread_local unsigned next;
  return buffers[next++ % 4];
}

const char *place_str(int rank, const int64_t *dims, int64_t i) {
  int64_t at[SHOAL_MAX_RANK];
  for (int d = rank; d-- > 0; i = dims[d] ? i / dims[d] : 0) at[d] = dims[d] ? i % dims[d] : 0;
  char *out = text_ring();
  int n = snprintf(out, 512, "[");
  for (int d = 0; d < rank; d++) n += snprintf(out + n, (size_t)(512 - n), "%s%" PRId64, d ? "," : "", at[d]);
  snprintf(out + n, (size_t)(512 - n), "]");
  return out;
}

const char *ints_str(const struct tensor *t, int64_t first, int64_t n, const char *between) {
  char *out = text_ring();
  int at = snprintf(out, 512, "[");
  for (int64_t i = 0; i < n && at < 480; i++)
    at += snprintf(out + at, (size_t)(512 - at), "%s%" PRId64, i ? between : "", int_at(t, first + i));
  snprintf(out + at, (size_t)(512 - at), "]");
  return out;
}

/* ---- rows of a table ---- */

static void rows_piece(void *arg, int64_t begin, int64_t end) {
  const struct row_update *u = arg;
  size_t bytes = (size_t)u->width * dtype_size(u->dtype);
  for (int64_t i = 0; i < u->n; i++) {
    int64_t r = int_at(u->ids, i);
    if (r >= begin && r < end) u->fn(u->dtype, u->to + (size_t)r * bytes, u->by + (size_t)i * bytes, u->width);
  }
}

/* A thread owns a range of rows and looks at all the ids: each row sees its updates in order. */
void rows_update(struct pool *p, const struct row_update *u) {
  int64_t bytes = u->n * u->width * (int64_t)dtype_size(u->dtype);
  int64_t parts = MIN(p ? pool_threads(p) : 1, bytes / COPY_GRAIN);
  if (u->width < 4) parts = 1; /* looking at the ids would cost more than the work */
  if (parts <= 1 || u->rows < parts) rows_piece((void *)(uintptr_t)u, 0, u->rows);
  else pool_for(p, u->rows, (u->rows + parts - 1) / parts, rows_piece, (void *)(uintptr_t)u);
}

void ctx_forward_part(struct kernel_ctx *ctx, int i, int j, int64_t offset, const struct shape *shape) {
  const struct tensor *x = ctx_in(ctx, j);
  struct tensor t;
  tensor_ref(&t, x);
  t.rank = (uint8_t)shape->rank;
  t.n = 1;
  for (int k = 0; k < shape->rank; k++) t.n *= t.dims[k] = shape->dims[k];
  if (t.n) t.data = (char *)x->data + (size_t)offset * dtype_size((shoal_dtype)x->dtype);
  ctx_set(ctx, i, &t);
}

/* ---- graph pieces ---- */

shoal_out array_shape(struct shoal_graph *g, shoal_out x, shoal_dtype type) {
  if (!x.node) return x;
  struct shape s = out_shape(x);
  if (shape_known(&s)) return build_const_ints(g, type, s.dims, s.rank);
  struct build b = build_begin(g, "Shape", NULL);
  build_in(&b, x);
  build_attr_type(&b, "out_type", type);
  return build_end_out(&b);
}

shoal_out array_rank(struct shoal_graph *g, shoal_out x) {
  if (!x.node) return x;
  struct shape s = out_shape(x);
  return s.rank >= 0 ? build_const_int(g, SHOAL_INT32, s.rank) : build_op1(g, "Rank", x);
}

shoal_out array_axes(struct shoal_graph *g, shoal_out x) {
  if (!x.node) return x;
  struct shape s = out_shape(x);
  if (s.rank < 0)
    return build_op3(g, "Range", build_const_int(g, SHOAL_INT32, 0), build_op1(g, "Rank", x),
                     build_const_int(g, SHOAL_INT32, 1));
  int64_t axes[SHOAL_MAX_RANK];
  for (int i = 0; i < s.rank; i++) axes[i] = i;
  return build_const_ints(g, SHOAL_INT32, axes, s.rank);
}

shoal_out array_sum(struct shoal_graph *g, shoal_out x, shoal_out axes, bool keep) {
  struct build b = build_begin(g, "Sum", NULL);
  build_in(&b, x);
  build_in(&b, axes);
  build_attr_bool(&b, "keep_dims", keep);
  return build_end_out(&b);
}

shoal_out array_sum_all(struct shoal_graph *g, shoal_out x) { return array_sum(g, x, array_axes(g, x), false); }

shoal_out array_reshape(struct shoal_graph *g, shoal_out x, shoal_out shape) {
  return build_op2(g, "Reshape", x, shape);
}

shoal_out array_reshape_like(struct shoal_graph *g, shoal_out x, shoal_out like) {
  return array_reshape(g, x, array_shape(g, like, SHOAL_INT32));
}

shoal_out array_zeros_like(struct shoal_graph *g, shoal_out x) { return build_op1(g, "ZerosLike", x); }

shoal_out array_transpose(struct shoal_graph *g, shoal_out x, shoal_out perm) {
  return build_op2(g, "Transpose", x, perm);
}

shoal_out array_slice(struct shoal_graph *g, shoal_out x, shoal_out begin, shoal_out size) {
  return build_op3(g, "Slice", x, begin, size);
}

shoal_out array_concat(struct shoal_graph *g, const shoal_out *values, int n, int axis) {
  if (n == 1) return values[0];
  struct build b = build_begin(g, "ConcatV2", NULL);
  build_in_list(&b, values, n);
  build_in(&b, build_const_int(g, SHOAL_INT32, axis));
  return build_end_out(&b);
}

shoal_out array_part(struct shoal_graph *g, shoal_out x, int begin, int end) {
  int64_t b = begin, e = end, one = 1;
  struct build n = build_begin(g, "StridedSlice", NULL);
  build_in(&n, x);
  build_in(&n, build_const_ints(g, SHOAL_INT32, &b, 1));
  build_in(&n, build_const_ints(g, SHOAL_INT32, &e, 1));
  build_in(&n, build_const_ints(g, SHOAL_INT32, &one, 1));
  if (end == INT_MAX) build_attr_int(&n, "end_mask", 1);
  return build_end_out(&n);
}

shoal_out array_at(struct shoal_graph *g, shoal_out x, int i) {
  int64_t b = i, e = i + 1, one = 1;
  struct build n = build_begin(g, "StridedSlice", NULL);
  build_in(&n, x);
  build_in(&n, build_const_ints(g, SHOAL_INT32, &b, 1));
  build_in(&n, build_const_ints(g, SHOAL_INT32, &e, 1));
  build_in(&n, build_const_ints(g, SHOAL_INT32, &one, 1));
  build_attr_int(&n, "shrink_axis_mask", 1);
  if (i == -1) build_attr_int(&n, "end_mask", 1);
  return build_end_out(&n);
}

shoal_out array_expand(struct shoal_graph *g, shoal_out x, int axis) {
  return build_op2(g, "ExpandDims", x, build_const_int(g, SHOAL_INT32, axis));
}

bool array_const_int(shoal_out o, int64_t *value) {
  if (!o.node || !op_is(o.node->op, "Const")) return false;
  const struct attr *a = node_attr(o.node, "value");
  if (!a || a->kind != ATTR_TENSOR || a->tensor->n != 1) return false;
  if (a->tensor->dtype != SHOAL_INT32 && a->tensor->dtype != SHOAL_INT64) return false;
  *value = int_at(a->tensor, 0);
  return true;
}

shoal_out array_gather(struct shoal_graph *g, shoal_out x, shoal_out indices, int axis) {
  return build_op3(g, "GatherV2", x, indices, build_const_int(g, SHOAL_INT32, axis));
}
