/* Slices: Slice, and StridedSlice with its gradient and its assignments.
 *
 * A strided slice comes as Python's x[a:b:c, ..., newaxis, i], coded in three vectors and five bit masks. It is
 * first made dense: one begin, end and stride for each dimension of the input, and a plan of what the result's
 * dimensions are (a dimension of the input, a new one, or none where an index took it away). */
#include <string.h>

#include "ops/array/array_util.h"
#include "ops/array/strided.h"

/* ---- the parsed slice ---- */

struct masks {
  int64_t begin, end, ellipsis, new_axis, shrink;
};

struct slice_plan {
  int64_t begin[SHOAL_MAX_RANK], stride[SHOAL_MAX_RANK], count[SHOAL_MAX_RANK]; /* for each input dimension */
  struct shape out;
};

enum { FROM_NEW_AXIS = -1, FROM_SHRUNK = -2 };

static shoal_status masks_get(const struct shoal_node *n, struct masks *m) {
  TRY(node_get_int(n, "begin_mask", &m->begin));
  TRY(node_get_int(n, "end_mask", &m->end));
  TRY(node_get_int(n, "ellipsis_mask", &m->ellipsis));
  TRY(node_get_int(n, "new_axis_mask", &m->new_axis));
  TRY(node_get_int(n, "shrink_axis_mask", &m->shrink));
  if ((uint64_t)m->ellipsis & ((uint64_t)m->ellipsis - 1))
    return INVALID("Multiple ellipses in slice spec not allowed");
  return NULL;
}

/* How many elements of [begin, end) by stride, in a dimension of size dim; begin is made absolute. */
static int64_t clamp_range(int64_t dim, int64_t stride, bool no_begin, bool no_end, int64_t *begin, int64_t end) {
  int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? dim : dim - 1;
  if (no_begin) *begin = stride > 0 ? low : high;
  else {
    if (*begin < 0) *begin += dim;
    *begin = *begin < low ? low : *begin > high ? high : *begin;
  }
  if (no_end) end = stride > 0 ? high : low;
  else {
    if (end < 0) end += dim;
    end = end < low ? low : end > high ? high : end;
  }
  int64_t length = end - *begin;
  if (length == 0 || (length < 0) != (stride < 0)) return 0;
  return length / stride + (length % stride != 0);
}

/* in may have unknown dimensions; b and e may be NULL (not known yet). Counts are then -1 where unknown. */
static shoal_status plan_make(const struct masks *m, const struct shape *in, const struct tensor *b,
                              const struct tensor *e, const struct tensor *strides, int n, struct slice_plan *p) {
  if (n > 32) return INVALID("Slice specs of more than 32 parts are not supported");
  int from[SHOAL_MAX_RANK + 33], n_from = 0, at = 0, new_after = 0;
  bool seen = false;
  for (int i = 0; i < n; i++) {
    if (seen && (m->new_axis >> i & 1)) new_after++;
    if (m->ellipsis >> i & 1) seen = true;
  }
  int parts = seen ? n : n + 1; /* an ellipsis stands at the end when there is none */
  for (int i = 0; i < parts; i++) {
    if (i == n || (m->ellipsis >> i & 1)) {
      int next = MIN(in->rank - (parts - i) + 1 + new_after, in->rank);
      for (; at < next; at++) {
        p->begin[at] = 0;
        p->stride[at] = 1;
        p->count[at] = in->dims[at];
        from[n_from++] = at;
      }
      continue;
    }
    if (m->new_axis >> i & 1) {
      from[n_from++] = FROM_NEW_AXIS;
      continue;
    }
    if (in->rank == 0) return INVALID("Attempting to slice scalar input.");
    if (at >= in->rank) return INVALID("Index out of range using input dim %d; input has only %d dims", at, in->rank);
    bool shrink = m->shrink >> i & 1, no_begin = m->begin >> i & 1, no_end = m->end >> i & 1;
    int64_t dim = in->dims[at], stride = strides ? int_at(strides, i) : 1;
    if (stride == 0) return INVALID("strides[%d] must be non-zero", at);
    if (shrink && stride <= 0) return INVALID("only stride 1 allowed on non-range indexing.");
    p->stride[at] = stride;
    p->begin[at] = b ? int_at(b, i) : 0;
    if (shrink) {
      p->stride[at] = p->count[at] = 1;
      if (no_begin) p->begin[at] = 0;
      if (b && dim >= 0) {
        if (p->begin[at] < 0) p->begin[at] += dim;
        if (p->begin[at] < 0 || p->begin[at] >= dim)
          return INVALID("slice index %" PRId64 " of dimension %d out of bounds.", p->begin[at], at);
      }
      from[n_from++] = FROM_SHRUNK;
    } else {
      bool known = dim >= 0 && strides && (b || no_begin) && (e || no_end);
      p->count[at] = known ? clamp_range(dim, stride, no_begin, no_end, &p->begin[at], e ? int_at(e, i) : 0) : -1;
      from[n_from++] = at;
    }
    at++;
  }
  p->out.rank = 0;
  for (int i = 0; i < n_from; i++) {
    if (from[i] == FROM_SHRUNK) continue;
    if (p->out.rank == SHOAL_MAX_RANK) return INVALID("A slice has at most %d dimensions", SHOAL_MAX_RANK);
    p->out.dims[p->out.rank++] = from[i] == FROM_NEW_AXIS ? 1 : p->count[from[i]];
  }
  return NULL;
}

/* The plan from inputs b, b + 1, b + 2 of a kernel. */
static shoal_status plan_from(struct kernel_ctx *ctx, const struct shape *in, int b, struct slice_plan *p) {
  const struct tensor *begin = ctx_in(ctx, b), *end = ctx_in(ctx, b + 1), *strides = ctx_in(ctx, b + 2);
  if (begin->rank != 1 || end->rank != 1 || strides->rank != 1 || begin->n != end->n || begin->n != strides->n)
    return INVALID(
        "Expected begin, end, and strides to be 1D equal size tensors, but got shapes %s, %s, and %s "
        "instead.",
        tensor_shape_str(begin), tensor_shape_str(end), tensor_shape_str(strides));
  if (begin->n > 32) return INVALID("Slice specs of more than 32 parts are not supported");
  return plan_make(ctx->state, in, begin, end, strides, (int)begin->n, p);
}

static void plan_strided(const struct slice_plan *p, int rank, const int64_t *whole, int64_t *offset, int64_t *steps) {
  *offset = 0;
  for (int i = 0; i < rank; i++) {
    *offset += p->begin[i] * whole[i];
    steps[i] = p->stride[i] * whole[i];
  }
}

/* How the part of `whole` that p names lies there and in a dense tensor; false: it has no elements. */
static bool part_view(const struct slice_plan *p, const struct tensor *whole, bool out, struct strided *s,
                      int64_t *offset) {
  int64_t strides[SHOAL_MAX_RANK], steps[SHOAL_MAX_RANK], dense[SHOAL_MAX_RANK];
  if (dims_product(p->count, 0, whole->rank) == 0) return false;
  strides_of(whole->rank, whole->dims, strides);
  strides_of(whole->rank, p->count, dense);
  plan_strided(p, whole->rank, strides, offset, steps);
  *s = (struct strided){0};
  for (int i = 0; i < whole->rank; i++)
    strided_add(s, p->count[i], out ? dense[i] : steps[i], out ? steps[i] : dense[i]);
  return true;
}

static shoal_status take_part(struct kernel_ctx *ctx, const struct slice_plan *p, const struct tensor *whole,
                              struct tensor *part) {
  struct strided s;
  int64_t offset;
  return part_view(p, whole, true, &s, &offset) ? ctx_copy_view(ctx, &s, part, 0, whole, offset) : NULL;
}

static shoal_status put_part(struct kernel_ctx *ctx, const struct slice_plan *p, struct tensor *whole,
                             const struct tensor *part) {
  struct strided s;
  int64_t offset;
  return part_view(p, whole, false, &s, &offset) ? ctx_copy_view(ctx, &s, whole, offset, part, 0) : NULL;
}

/* The part is one run of memory; *offset is where it begins. */
static bool contiguous(const struct slice_plan *p, const struct tensor *x, int64_t *offset) {
  int64_t strides[SHOAL_MAX_RANK], steps[SHOAL_MAX_RANK];
  int i = 0;
  while (i < x->rank && p->count[i] == 1) i++;
  if (i < x->rank && p->stride[i] != 1) return false;
  for (int k = i + 1; k < x->rank; k++)
    if (p->count[k] != x->dims[k] || p->stride[k] != 1) return false;
  strides_of(x->rank, x->dims, strides);
  plan_strided(p, x->rank, strides, offset, steps);
  return true;
}

static shoal_status take(struct kernel_ctx *ctx, const struct slice_plan *p) {
  const struct tensor *x = ctx_in(ctx, 0);
  int64_t n = dims_product(p->out.dims, 0, p->out.rank), offset;
  if (n && contiguous(p, x, &offset)) {
    ctx_forward_part(ctx, 0, 0, offset, &p->out);
    return NULL;
  }
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &p->out, &y));
  return take_part(ctx, p, x, y);
}

/* ---- StridedSlice ---- */

static shoal_status masks_init(struct kernel_init *ki, void *state) { return masks_get(ki->node, state); }

static shoal_status strided_slice_run(struct kernel_ctx *ctx) {
  struct shape in = tensor_shape(ctx_in(ctx, 0));
  struct slice_plan p;
  TRY(plan_from(ctx, &in, 1, &p));
  return take(ctx, &p);
}

static shoal_status strided_slice_shape(struct shape_ctx *c) {
  struct masks m;
  TRY(masks_get(c->node, &m));
  int64_t n = -1;
  for (int i = 1; i < 4; i++) {
    struct shape s;
    TRY(shape_in_rank(c, i, 1, &s));
    if (s.rank == 1 && s.dims[0] >= 0) n = s.dims[0];
  }
  if (n < 0 || n > 32 || c->in[0].rank < 0) return NULL;
  for (int i = 1; i < 4; i++)
    if (c->values[i] && (c->values[i]->rank != 1 || c->values[i]->n != n))
      return INVALID("Expected begin, end, and strides to be 1D equal size tensors");
  struct slice_plan p;
  TRY(plan_make(&m, &c->in[0], c->values[1], c->values[2], c->values[3], (int)n, &p));
  c->out[0] = p.out;
  return NULL;
}

static void copy_masks(struct build *b, const struct shoal_node *from) {
  static const char *const names[] = {"begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"};
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    int64_t v;
    shoal_status s = node_get_int(from, names[i], &v);
    MUST(!s);
    build_attr_int(b, names[i], v);
  }
}

static shoal_status strided_slice_grad(struct grad_ctx *c) {
  struct build b = build_begin(c->g, "StridedSliceGrad", NULL);
  build_in(&b, array_shape(c->g, gin(c, 0), out_type(gin(c, 1))));
  for (int i = 1; i < 4; i++) build_in(&b, gin(c, i));
  build_in(&b, grad_dy(c, 0));
  copy_masks(&b, c->node);
  grad_set(c, 0, build_end_out(&b));
  return NULL;
}

KERNELS_ANYWHERE(strided_slice_kernels, 14, .state_size = sizeof(struct masks), .init = masks_init,
                 .run = strided_slice_run);

/* ---- StridedSliceGrad ---- */

static shoal_status check_part(const char *what, const struct tensor *part, const struct slice_plan *p) {
  struct shape s = tensor_shape(part);
  if (!shape_equal(&s, &p->out))
    return INVALID("shape of %s was %s instead of %s", what, shape_str(&s), shape_str(&p->out));
  return NULL;
}

static shoal_status slice_grad_run(struct kernel_ctx *ctx) {
  struct shape s;
  struct slice_plan p;
  if (ctx_in(ctx, 0)->rank != 1)
    return INVALID("shape must be 1-D, got shape.shape = %s", tensor_shape_str(ctx_in(ctx, 0)));
  TRY(tensor_get_shape(ctx_in(ctx, 0), false, &s));
  TRY(plan_from(ctx, &s, 1, &p));
  TRY(check_part("dy", ctx_in(ctx, 4), &p));
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  ctx_zero(ctx, y);
  return put_part(ctx, &p, y, ctx_in(ctx, 4));
}

static shoal_status slice_grad_shape(struct shape_ctx *c) { return shape_in_value(c, 0, &c->out[0]); }

static shoal_status slice_grad_grad(struct grad_ctx *c) {
  struct build b = build_begin(c->g, "StridedSlice", NULL);
  build_in(&b, grad_dy(c, 0));
  for (int i = 1; i < 4; i++) build_in(&b, gin(c, i));
  copy_masks(&b, c->node);
  grad_set(c, 4, build_end_out(&b));
  return NULL;
}

KERNELS_ANYWHERE(slice_grad_kernels, 15, .state_size = sizeof(struct masks), .init = masks_init, .run = slice_grad_run);

/* ---- assigning to a slice ---- */

static shoal_status update_run(struct kernel_ctx *ctx) {
  struct shape s = tensor_shape(ctx_in(ctx, 0));
  struct slice_plan p;
  TRY(plan_from(ctx, &s, 1, &p));
  TRY(check_part("value", ctx_in(ctx, 4), &p));
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  const struct tensor *x = ctx_in(ctx, 0);
  if (y->data != x->data) elements_copy_parallel(ctx_pool(ctx), (shoal_dtype)x->dtype, y->data, x->data, x->n);
  return put_part(ctx, &p, y, ctx_in(ctx, 4));
}

static shoal_status update_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0);
  struct build b = build_begin(c->g, "TensorStridedSliceUpdate", NULL);
  build_in(&b, dy);
  for (int i = 1; i < 4; i++) build_in(&b, gin(c, i));
  build_in(&b, array_zeros_like(c->g, gin(c, 4)));
  copy_masks(&b, c->node);
  grad_set(c, 0, build_end_out(&b));
  b = build_begin(c->g, "StridedSlice", NULL);
  build_in(&b, dy);
  for (int i = 1; i < 4; i++) build_in(&b, gin(c, i));
  copy_masks(&b, c->node);
  grad_set(c, 4, build_end_out(&b));
  return NULL;
}

static shoal_status assign_part(struct kernel_ctx *ctx, struct variable *v) {
  pthread_rwlock_wrlock(&v->lock);
  shoal_status s = NULL;
  struct slice_plan p;
  if (!tensor_valid(&v->value))
    s = STATUS(SHOAL_FAILED_PRECONDITION, "Attempting to assign to a slice of uninitialized variable %s", v->name);
  if (!s && v->value.dtype != ctx_in_type(ctx, 4))
    s = INVALID("The variable holds %s, but the value is %s", dtype_tf_name(v->value.dtype),
                dtype_tf_name(ctx_in_type(ctx, 4)));
  struct shape whole = s ? shape_scalar() : tensor_shape(&v->value);
  if (!s) s = plan_from(ctx, &whole, 1, &p);
  if (!s) s = check_part("value", ctx_in(ctx, 4), &p);
  if (!s) s = variable_make_writable(v);
  if (!s) s = put_part(ctx, &p, &v->value, ctx_in(ctx, 4));
  pthread_rwlock_unlock(&v->lock);
  return s;
}

static shoal_status ref_assign_run(struct kernel_ctx *ctx) {
  TRY(assign_part(ctx, ctx_ref(ctx, 0)));
  ctx_set_ref(ctx, 0, ctx_ref(ctx, 0));
  return NULL;
}

static shoal_status resource_assign_run(struct kernel_ctx *ctx) {
  struct resource *r;
  TRY(resource_from_handle(ctx->kernel->resources, ctx_in(ctx, 0), &variable_type, &r));
  shoal_status s = assign_part(ctx, (struct variable *)r);
  resource_unref(r);
  return s;
}

#define SLICE_KERNEL(fn, ...) \
  { .device = "CPU", .state_size = sizeof(struct masks), .init = masks_init, .run = fn, .host_in = 14, __VA_ARGS__ }
#define SLICE_ASSIGN_KERNELS(fn)                                                                       \
  {                                                                                                    \
    SLICE_KERNEL(fn, .type_attr = "T", .types = DT_PLAIN, .borrowable = true), SLICE_KERNEL(fn), { 0 } \
  }
static const struct kernel_def update_kernels[] = {SLICE_KERNEL(update_run), {0}},
                               ref_assign_kernels[] = SLICE_ASSIGN_KERNELS(ref_assign_run),
                               resource_assign_kernels[] = SLICE_ASSIGN_KERNELS(resource_assign_run);

/* ---- Slice ---- */

static shoal_status slice_plan(const struct shape *x, const struct tensor *begin, const struct tensor *size,
                               struct slice_plan *p) {
  if (begin->rank != 1 || size->rank != 1 || begin->n != x->rank || size->n != x->rank)
    return INVALID("Expected begin and size arguments to be 1-D tensors of size %d, but got shapes %s and %s instead.",
                   x->rank, tensor_shape_str(begin), tensor_shape_str(size));
  p->out.rank = x->rank;
  for (int i = 0; i < x->rank; i++) {
    int64_t b = int_at(begin, i), n = int_at(size, i), dim = x->dims[i];
    if (b < 0 || (dim >= 0 && b > dim))
      return INVALID("Expected begin[%d] in [0, %" PRId64 "], but got %" PRId64, i, dim, b);
    if (n == -1 && dim >= 0) n = dim - b;
    else if (n < -1 || (dim >= 0 && n > dim - b))
      return INVALID("Expected size[%d] in [0, %" PRId64 "], but got %" PRId64, i, dim - b, n);
    p->begin[i] = b;
    p->stride[i] = 1;
    p->count[i] = p->out.dims[i] = n;
  }
  return NULL;
}

static shoal_status slice_run(struct kernel_ctx *ctx) {
  struct shape x = tensor_shape(ctx_in(ctx, 0));
  struct slice_plan p;
  TRY(slice_plan(&x, ctx_in(ctx, 1), ctx_in(ctx, 2), &p));
  return take(ctx, &p);
}

static shoal_status slice_shape(struct shape_ctx *c) {
  struct shape x = c->in[0], vector;
  TRY(shape_in_rank(c, 1, 1, &vector));
  TRY(shape_in_rank(c, 2, 1, &vector));
  if (x.rank < 0 && vector.rank == 1 && vector.dims[0] >= 0 && vector.dims[0] <= SHOAL_MAX_RANK)
    x = shape_unknown_of_rank((int)vector.dims[0]);
  if (x.rank < 0) return NULL;
  if (c->values[1] && c->values[2]) {
    struct slice_plan p;
    TRY(slice_plan(&x, c->values[1], c->values[2], &p));
    c->out[0] = p.out;
    return NULL;
  }
  c->out[0] = shape_unknown_of_rank(x.rank);
  struct shape sizes;
  if (!c->values[2]) {
    TRY(shape_in_value(c, 2, &sizes));
    if (sizes.rank == x.rank) c->out[0] = sizes;
    return NULL;
  }
  for (int i = 0; i < x.rank && i < c->values[2]->n; i++) c->out[0].dims[i] = MAX(-1, int_at(c->values[2], i));
  return NULL;
}

/* The gradient padded back to the input's shape. */
static shoal_status slice_op_grad(struct grad_ctx *c) {
  shoal_out x = gin(c, 0), dy = grad_dy(c, 0), begin = gin(c, 1);
  shoal_dtype index = out_type(begin);
  shoal_out after = build_op2(
      c->g, "Sub", build_op2(c->g, "Sub", array_shape(c->g, x, index), array_shape(c->g, gout(c, 0), index)), begin);
  shoal_out columns[2] = {array_expand(c->g, begin, 1), array_expand(c->g, after, 1)};
  grad_set(c, 0, build_op2(c->g, "Pad", dy, array_concat(c->g, columns, 2, 1)));
  return NULL;
}

KERNELS_ANYWHERE(slice_kernels, 6, .run = slice_run);

static const struct op_row rows[] = {
    {.name = "Slice",
     .in = "input: T, begin: Index, size: Index",
     .out = "output: T",
     .attrs = "T: type; Index: {int32, int64}",
     .shape = slice_shape,
     .grad = slice_op_grad,
     .kernels = slice_kernels},
    {.name = "StridedSlice",
     .in = "input: T, begin: Index, end: Index, strides: Index",
     .out = "output: T",
     .attrs = "T: type; Index: {int16, int32, int64}; begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = 0; "
              "new_axis_mask: int = 0; shrink_axis_mask: int = 0",
     .shape = strided_slice_shape,
     .grad = strided_slice_grad,
     .kernels = strided_slice_kernels},
    {.name = "StridedSliceGrad",
     .in = "shape: Index, begin: Index, end: Index, strides: Index, dy: T",
     .out = "output: T",
     .attrs = "T: type; Index: {int32, int64}; begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = 0; "
              "new_axis_mask: int = 0; shrink_axis_mask: int = 0",
     .shape = slice_grad_shape,
     .grad = slice_grad_grad,
     .kernels = slice_grad_kernels},
    {.name = "TensorStridedSliceUpdate",
     .in = "input: T, begin: Index, end: Index, strides: Index, value: T",
     .out = "output: T",
     .attrs = "T: type; Index: {int32, int64}; begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = 0; "
              "new_axis_mask: int = 0; shrink_axis_mask: int = 0",
     .shape = shape_unchanged,
     .grad = update_grad,
     .kernels = update_kernels},
    {.name = "StridedSliceAssign",
     .in = "ref: Ref(T), begin: Index, end: Index, strides: Index, value: T",
     .out = "output_ref: Ref(T)",
     .attrs = "T: type; Index: {int32, int64}; begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = 0; "
              "new_axis_mask: int = 0; shrink_axis_mask: int = 0",
     .shape = shape_unchanged,
     .kernels = ref_assign_kernels},
    {.name = "ResourceStridedSliceAssign",
     .in = "ref: resource, begin: Index, end: Index, strides: Index, value: T",
     .attrs = "T: type; Index: {int32, int64}; begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = 0; "
              "new_axis_mask: int = 0; shrink_axis_mask: int = 0",
     .flags = OP_STATEFUL,
     .shape = shape_no_outputs,
     .kernels = resource_assign_kernels},
};
OP_FAMILY(slice, rows);
