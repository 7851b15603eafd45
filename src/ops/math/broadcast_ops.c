/* Ops about broadcasting itself: BroadcastTo, BroadcastArgs, BroadcastGradientArgs; and Cross. */
#include <inttypes.h>

#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/array/array_util.h"
#include "ops/math/broadcast.h"
#include "ops/math/grad_help.h"

/* ---- BroadcastTo ---- */

struct spread {
  const struct broadcast *plan;
  shoal_dtype dtype;
  int64_t size;
  char *out;
  const char *in;
  bool step;
};

static void spread_stretch(void *arg, int64_t at, const int64_t *in_at, int64_t n) {
  const struct spread *s = arg;
  char *to = s->out + at * s->size;
  const char *from = s->in + in_at[0] * s->size;
  if (s->step) elements_copy(s->dtype, to, from, n);
  else elements_fill(NULL, s->dtype, to, from, n);
}

static void spread_piece(void *arg, int64_t begin, int64_t end) {
  broadcast_each(((struct spread *)arg)->plan, begin, end, spread_stretch, arg);
}

static shoal_status broadcast_to_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *t = ctx_in(ctx, 1);
  if (t->rank != 1) return INVALID("shape must be a vector of {int32,int64}, got shape %s", tensor_shape_str(t));
  struct shape shapes[2] = {tensor_shape(x)};
  TRY(shape_from_values(t, &shapes[1]));
  if (x->rank > shapes[1].rank)
    return INVALID("Rank of input (%d) must be no greater than rank of output shape (%d).", x->rank, shapes[1].rank);
  struct broadcast plan;
  TRY(broadcast_plan_shapes(&plan, shapes, 2));
  if (!shape_equal(&plan.out, &shapes[1]))
    return INVALID("Unable to broadcast tensor of shape %s to tensor of shape %s", shape_str(&shapes[0]),
                   shape_str(&shapes[1]));
  if (shape_equal(&shapes[0], &shapes[1])) return ctx_forward(ctx, 0, 0, NULL);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &shapes[1], &y));
  struct spread s = {&plan,   (shoal_dtype)x->dtype,    (int64_t)dtype_size((shoal_dtype)x->dtype), y->data,
                     x->data, broadcast_inner(&plan, 0)};
  pool_for(ctx_pool(ctx), plan.n, copy_grain(s.size), spread_piece, &s);
  return NULL;
}

static shoal_status broadcast_to_shape(struct shape_ctx *c) {
  struct shape out, both;
  TRY(shape_in_value(c, 1, &out));
  c->out[0] = out;
  if (out.rank < 0 || c->in[0].rank < 0) return NULL;
  if (c->in[0].rank > out.rank)
    return INVALID("Rank of input (%d) must be no greater than rank of output shape (%d).", c->in[0].rank, out.rank);
  return shape_broadcast(&c->in[0], &out, &both);
}

static shoal_status broadcast_to_grad(struct grad_ctx *c) {
  grad_set(c, 0, grad_unbroadcast(c->g, grad_dy(c, 0), gin(c, 0), gout(c, 0), 0));
  return NULL;
}

/* ---- BroadcastArgs, BroadcastGradientArgs: on shapes as vectors ---- */

static shoal_status two_shapes(struct kernel_ctx *ctx, struct shape *s) {
  for (int i = 0; i < 2; i++) {
    const struct tensor *t = ctx_in(ctx, i);
    if (t->rank != 1) return INVALID("In[%d] must be a vector.%s", i, tensor_shape_str(t));
    TRY(tensor_get_shape(t, false, &s[i]));
  }
  return NULL;
}

static shoal_status broadcast_args_run(struct kernel_ctx *ctx) {
  struct shape s[2], both;
  TRY(two_shapes(ctx, s));
  TRY(shape_broadcast(&s[0], &s[1], &both));
  struct tensor *y;
  TRY(ctx_out_dims(ctx, 0, 1, &(int64_t){both.rank}, &y));
  for (int i = 0; i < both.rank; i++) int_put(y, i, both.dims[i]);
  return NULL;
}

/* Which axes of the output each operand was repeated along: where it has size 1, or no such axis. When the shapes are
 * the same there are none, not even those of size 1. */
static shoal_status broadcast_gradient_args_run(struct kernel_ctx *ctx) {
  struct shape s[2], both;
  TRY(two_shapes(ctx, s));
  TRY(shape_broadcast(&s[0], &s[1], &both));
  bool same = shape_equal(&s[0], &s[1]);
  for (int k = 0; k < 2; k++) {
    int64_t axes[SHOAL_MAX_RANK], n = 0;
    for (int i = 0; i < both.rank && !same; i++) {
      int at = i - (both.rank - s[k].rank);
      if (at < 0 || s[k].dims[at] == 1) axes[n++] = i;
    }
    struct tensor *y;
    TRY(ctx_out_dims(ctx, k, 1, &n, &y));
    for (int64_t i = 0; i < n; i++) int_put(y, i, axes[i]);
  }
  return NULL;
}

static shoal_status broadcast_args_shape(struct shape_ctx *c) {
  struct shape a, b;
  TRY(shape_in_rank(c, 0, 1, &a));
  TRY(shape_in_rank(c, 1, 1, &b));
  c->out[0] = shape_vector(a.dims[0] >= 0 && b.dims[0] >= 0 ? MAX(a.dims[0], b.dims[0]) : -1);
  return NULL;
}

static shoal_status broadcast_gradient_args_shape(struct shape_ctx *c) {
  c->out[0] = c->out[1] = shape_vector(-1);
  return NULL;
}

/* ---- Cross: products of vectors of three ---- */

#define CROSS(type, load, save)                                                             \
  {                                                                                         \
    const type *a = x->data, *b = y->data;                                                  \
    type *o = z->data;                                                                      \
    for (int64_t i = 0; i + 2 < x->n; i += 3)                                               \
      for (int k = 0; k < 3; k++) {                                                         \
        int p = (k + 1) % 3, q = (k + 2) % 3;                                               \
        o[i + k] = save(load(a[i + p]) * load(b[i + q]) - load(a[i + q]) * load(b[i + p])); \
      }                                                                                     \
    break;                                                                                  \
  }
#define AS_IS(v) (v)
#define WRAP (uint64_t)

static shoal_status cross_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *y = ctx_in(ctx, 1);
  if (!tensor_same_shape(x, y))
    return INVALID("Both inputs must be of same shape: %s vs. %s", tensor_shape_str(x), tensor_shape_str(y));
  if (x->rank < 1) return INVALID("Input must be at least 1D%s", tensor_shape_str(x));
  if (x->dims[x->rank - 1] != 3)
    return STATUS(SHOAL_FAILED_PRECONDITION, "Cross-products are only defined for 3-element vectors.");
  struct tensor *z;
  struct shape s = tensor_shape(x);
  TRY(ctx_out(ctx, 0, &s, &z));
  switch (x->dtype) { /* integers wrap: signed ones go as unsigned */
    case SHOAL_FLOAT32: CROSS(float, AS_IS, AS_IS)
    case SHOAL_FLOAT64: CROSS(double, AS_IS, AS_IS)
    case SHOAL_FLOAT16: CROSS(f16, f16_to_float, f16_from_float)
    case SHOAL_BFLOAT16: CROSS(bf16, bf16_to_float, bf16_from_float)
    case SHOAL_INT8:
    case SHOAL_UINT8: CROSS(uint8_t, WRAP, (uint8_t))
    case SHOAL_INT16:
    case SHOAL_UINT16: CROSS(uint16_t, WRAP, (uint16_t))
    case SHOAL_INT32:
    case SHOAL_UINT32: CROSS(uint32_t, WRAP, (uint32_t))
    default: CROSS(uint64_t, WRAP, (uint64_t))
  }
  return NULL;
}

static shoal_status cross_shape(struct shape_ctx *c) {
  struct shape s;
  TRY(shape_in_rank_at_least(c, 0, 1, &s));
  TRY(shape_merge(&c->in[0], &c->in[1], &c->out[0]));
  if (c->out[0].rank > 0 && c->out[0].dims[c->out[0].rank - 1] >= 0 && c->out[0].dims[c->out[0].rank - 1] != 3)
    return INVALID("Dimension must be 3 but is %" PRId64, c->out[0].dims[c->out[0].rank - 1]);
  return NULL;
}

static shoal_status cross_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0);
  grad_set(c, 0, g_op2(c, "Cross", gin(c, 1), dy));
  grad_set(c, 1, g_op2(c, "Cross", dy, gin(c, 0)));
  return NULL;
}

/* ---- rows ---- */

static const struct kernel_def broadcast_to_kernels[] = {{"CPU", "T", DT_ALL, .run = broadcast_to_run, .host_in = 2},
                                                         {0}};
static const struct kernel_def broadcast_args_kernels[] = {
    {"CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = broadcast_args_run, .host_in = 3, .host_out = 1}, {0}};
static const struct kernel_def broadcast_gradient_args_kernels[] = {
    {"CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = broadcast_gradient_args_run, .host_in = 3, .host_out = 3},
    {0}};
static const struct kernel_def cross_kernels[] = {{"CPU", "T", DT_REAL, .run = cross_run}, {0}};

static const struct op_row rows[] = {
    {.name = "BroadcastTo",
     .in = "input: T, shape: Tidx",
     .out = "output: T",
     .attrs = "T: type; Tidx: {int32, int64} = int32",
     .shape = broadcast_to_shape,
     .grad = broadcast_to_grad,
     .kernels = broadcast_to_kernels},
    {.name = "BroadcastArgs",
     .in = "s0: T, s1: T",
     .out = "r0: T",
     .attrs = "T: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = broadcast_args_shape,
     .kernels = broadcast_args_kernels},
    {.name = "BroadcastGradientArgs",
     .in = "s0: T, s1: T",
     .out = "r0: T, r1: T",
     .attrs = "T: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = broadcast_gradient_args_shape,
     .kernels = broadcast_gradient_args_kernels},
    {.name = "Cross",
     .in = "a: T, b: T",
     .out = "product: T",
     .attrs = "T: {realnumbertype}",
     .shape = cross_shape,
     .grad = cross_grad,
     .kernels = cross_kernels},
};
OP_FAMILY(broadcast_ops, rows);
