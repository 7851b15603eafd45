/* Choice between two tensors, element by element: Select, SelectV2, ClipByValue.
 *
 * Choosing moves bytes: one loop for each element size serves every plain type. */
#include <string.h>

#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/array/array_util.h"
#include "ops/math/broadcast.h"
#include "ops/math/elementwise.h"
#include "ops/math/grad_help.h"
#include "ops/math/vector_math.h"

/* ---- loops ---- */

struct wide {
  uint64_t a, b;
};

#define T uint8_t
#define NAME choose_1
#include "ops/math/select_loop.inc"
#define T uint16_t
#define NAME choose_2
#include "ops/math/select_loop.inc"
#define T uint32_t
#define NAME choose_4
#include "ops/math/select_loop.inc"
#define T uint64_t
#define NAME choose_8
#include "ops/math/select_loop.inc"
#define T struct wide
#define NAME choose_16
#include "ops/math/select_loop.inc"

struct choose_task {
  const struct broadcast *plan;
  shoal_dtype dtype;
  bool plain;
  size_t size;
  char *out;
  const uint8_t *c;
  const char *t, *e;
  int64_t sc, st, se; /* steps in the innermost dimension */
};

static void choose(const struct choose_task *k, char *o, const uint8_t *c, const char *t, const char *e, int64_t n,
                   int64_t sc, int64_t st, int64_t se) {
  if (!k->plain) {
    for (int64_t i = 0; i < n; i++)
      elements_copy(k->dtype, o + i * (int64_t)k->size,
                    c[i * sc] ? t + i * st * (int64_t)k->size : e + i * se * (int64_t)k->size, 1);
    return;
  }
  switch (k->size) {
    case 1: choose_1((uint8_t *)o, c, (const uint8_t *)t, (const uint8_t *)e, n, sc, st, se); break;
    case 2: choose_2((uint16_t *)o, c, (const uint16_t *)t, (const uint16_t *)e, n, sc, st, se); break;
    case 4: choose_4((uint32_t *)o, c, (const uint32_t *)t, (const uint32_t *)e, n, sc, st, se); break;
    case 8: choose_8((uint64_t *)o, c, (const uint64_t *)t, (const uint64_t *)e, n, sc, st, se); break;
    default: choose_16((struct wide *)o, c, (const struct wide *)t, (const struct wide *)e, n, sc, st, se); break;
  }
}

static void choose_stretch(void *arg, int64_t at, const int64_t *in_at, int64_t n) {
  const struct choose_task *k = arg;
  int64_t size = (int64_t)k->size;
  choose(k, k->out + at * size, k->c + in_at[0], k->t + in_at[1] * size, k->e + in_at[2] * size, n, k->sc, k->st,
         k->se);
}

static void choose_piece(void *arg, int64_t begin, int64_t end) {
  const struct choose_task *k = arg;
  broadcast_each(k->plan, begin, end, choose_stretch, arg);
}

enum { CHOOSE_GRAIN = 32768 };

/* A plan over condition, t and e is there: makes the output and fills it. */
static shoal_status choose_planned(struct kernel_ctx *ctx, const struct broadcast *plan) {
  const struct tensor *c = ctx_in(ctx, 0), *t = ctx_in(ctx, 1), *e = ctx_in(ctx, 2);
  struct shape st = tensor_shape(t), se = tensor_shape(e);
  bool t_fits = shape_equal(&st, &plan->out), e_fits = shape_equal(&se, &plan->out);
  if (c->n == 1) { /* one choice for all: no copy where the chosen tensor has the right shape */
    bool first = *T_DATA(c, uint8_t) != 0;
    if (first ? t_fits : e_fits) return ctx_forward(ctx, 0, first ? 1 : 2, NULL);
  }
  struct tensor *z;
  if (t_fits && (ctx->steal >> 1 & 1)) TRY(ctx_out_like(ctx, 0, 1, &z));
  else if (e_fits) TRY(ctx_out_like(ctx, 0, 2, &z));
  else TRY(ctx_out(ctx, 0, &plan->out, &z));
  shoal_dtype dtype = (shoal_dtype)t->dtype;
  struct choose_task k = {.plan = plan,
                          .dtype = dtype,
                          .plain = dtype_plain(dtype),
                          .size = dtype_size(dtype),
                          .out = z->data,
                          .c = c->data,
                          .t = t->data,
                          .e = e->data,
                          .sc = broadcast_inner(plan, 0),
                          .st = broadcast_inner(plan, 1),
                          .se = broadcast_inner(plan, 2)};
  pool_for(ctx_pool(ctx), plan->n, CHOOSE_GRAIN, choose_piece, &k);
  return NULL;
}

static shoal_status select_v2_run(struct kernel_ctx *ctx) {
  struct broadcast plan;
  shoal_status s = broadcast_plan(&plan, ctx->in, 3);
  if (s) {
    shoal_status_free(s);
    return INVALID("condition %s, then %s, and else %s must be broadcastable", tensor_shape_str(ctx_in(ctx, 0)),
                   tensor_shape_str(ctx_in(ctx, 1)), tensor_shape_str(ctx_in(ctx, 2)));
  }
  return choose_planned(ctx, &plan);
}

shoal_status select_plan(const struct tensor *const *in, struct broadcast *out) {
  const struct tensor *c = in[0], *t = in[1], *e = in[2];
  if (!tensor_same_shape(t, e))
    return INVALID("'then' and 'else' must have the same size.  but received: %s vs. %s", tensor_shape_str(t),
                   tensor_shape_str(e));
  struct shape shapes[3] = {tensor_shape(c), tensor_shape(t), tensor_shape(e)};
  if (c->rank == 1 && t->rank > 1) {
    if (c->n != t->dims[0])
      return INVALID("Number of batches of 'then' must match size of 'cond', but saw: %" PRId64 " vs. %" PRId64,
                     t->dims[0], c->n);
    shapes[0].rank = t->rank;
    for (int i = 1; i < t->rank; i++) shapes[0].dims[i] = 1;
  } else if (c->rank != 0 && !tensor_same_shape(c, t)) {
    if (c->rank != 1) return INVALID("'cond' must be a vector, but saw shape: %s", tensor_shape_str(c));
    if (t->rank == 0) return INVALID("'then' must be at least a vector, but saw shape: %s", tensor_shape_str(t));
    return INVALID("Number of batches of 'then' must match size of 'cond', but saw: %" PRId64 " vs. %" PRId64,
                   t->dims[0], c->n);
  }
  return broadcast_plan_shapes(out, shapes, 3);
}

static shoal_status select_run(struct kernel_ctx *ctx) {
  struct broadcast plan;
  TRY(select_plan(ctx->in, &plan));
  return choose_planned(ctx, &plan);
}

static shoal_status select_v2_shape(struct shape_ctx *c) {
  struct shape s;
  TRY(shape_broadcast(&c->in[1], &c->in[2], &s));
  TRY(shape_broadcast(&c->in[0], &s, &c->out[0]));
  shape_pass_handle(c, 0, 1);
  return NULL;
}

static shoal_status select_shape(struct shape_ctx *c) {
  struct shape data, cond = c->in[0];
  TRY(shape_merge(&c->in[1], &c->in[2], &data));
  if (cond.rank > 1 || (cond.rank == 1 && data.rank == 0)) TRY(shape_merge(&data, &cond, &data));
  else if (cond.rank == 1 && data.rank > 0) {
    struct shape first = shape_vector(data.dims[0]);
    TRY(shape_merge(&cond, &first, &cond));
    data.dims[0] = cond.dims[0];
  }
  c->out[0] = data;
  shape_pass_handle(c, 0, 1);
  return NULL;
}

static shoal_status select_grad(struct grad_ctx *c) {
  shoal_out cond = gin(c, 0), dy = grad_dy(c, 0), zeros = g_zeros_like(c, gin(c, 1));
  grad_set(c, 1, build_op3(c->g, "Select", cond, dy, zeros));
  grad_set(c, 2, build_op3(c->g, "Select", cond, zeros, dy));
  return NULL;
}

static shoal_status select_v2_grad(struct grad_ctx *c) {
  shoal_out cond = gin(c, 0), dy = grad_dy(c, 0), zero = g_num(c, dy, 0);
  shoal_out gx = build_op3(c->g, "SelectV2", cond, dy, zero), gy = build_op3(c->g, "SelectV2", cond, zero, dy);
  grad_set(c, 1, grad_unbroadcast(c->g, gx, gin(c, 1), gout(c, 0), 0));
  grad_set(c, 2, grad_unbroadcast(c->g, gy, gin(c, 2), gout(c, 0), 0));
  return NULL;
}

/* ---- ClipByValue: the smaller of t and max, then the larger of that and min ----
 *
 * Of complex numbers the real and the imaginary parts are clipped, each by its own bounds: elements are then pairs. */

struct clip {
  struct binary_loop smaller, larger;
  int parts; /* numbers in an element */
};

static shoal_status clip_init(struct kernel_init *ki, void *state) {
  struct clip *k = state;
  shoal_dtype t = dtype_base(ki->kernel->in_types[0]);
  k->parts = dtype_complex(t) ? 2 : 1;
  if (k->parts == 2) t = t == SHOAL_COMPLEX64 ? SHOAL_FLOAT32 : SHOAL_FLOAT64;
  TRY(binary_loop_init(&k->smaller, "Minimum", t, t));
  return binary_loop_init(&k->larger, "Maximum", t, t);
}

struct clip_task {
  const struct clip *k;
  char *out;
  const char *t, *min, *max;
  bool min_scalar, max_scalar;
};

enum { CLIP_BLOCK = 2048 };

/* out = loop(t, bound) for n numbers; one bound that is a pair is first laid out as often as needed. */
static void clip_block(const struct clip *k, const struct binary_loop *loop, char *out, const char *t,
                       const char *bound, bool scalar, int64_t n) {
  char pairs[CLIP_BLOCK * sizeof(double)];
  bool spread = scalar && k->parts == 2;
  size_t size = loop->in_size * 2;
  for (int64_t i = 0; spread && i < n / 2; i++) memcpy(pairs + (size_t)i * size, bound, size);
  binary_loop_run(loop, out, t, spread ? pairs : bound, n, scalar && !spread ? VECTOR_SCALAR : VECTOR_VECTOR);
}

static void clip_piece(void *arg, int64_t begin, int64_t end) {
  const struct clip_task *c = arg;
  const struct clip *k = c->k;
  int64_t size = k->smaller.in_size;
  end *= k->parts;
  for (int64_t i = begin * k->parts; i < end; i += CLIP_BLOCK) {
    int64_t n = MIN(end - i, CLIP_BLOCK), at = i * size;
    clip_block(k, &k->smaller, c->out + at, c->t + at, c->max + (c->max_scalar ? 0 : at), c->max_scalar, n);
    clip_block(k, &k->larger, c->out + at, c->out + at, c->min + (c->min_scalar ? 0 : at), c->min_scalar, n);
  }
}

static shoal_status clip_run(struct kernel_ctx *ctx) {
  const struct tensor *t = ctx_in(ctx, 0), *min = ctx_in(ctx, 1), *max = ctx_in(ctx, 2);
  bool min_scalar = min->rank == 0, max_scalar = max->rank == 0;
  if ((!min_scalar && !tensor_same_shape(t, min)) || (!max_scalar && !tensor_same_shape(t, max)))
    return INVALID(
        "clip_value_min and clip_value_max must be either of the same shape as input, or a scalar. "
        "input shape: %sclip_value_min shape: %sclip_value_max shape: %s",
        tensor_shape_str(t), tensor_shape_str(min), tensor_shape_str(max));
  struct tensor *z;
  TRY(ctx_out_like(ctx, 0, 0, &z));
  const struct clip *k = ctx->state;
  struct clip_task c = {k, z->data, t->data, min->data, max->data, min_scalar, max_scalar};
  pool_for(ctx_pool(ctx), t->n, k->smaller.grain, clip_piece, &c);
  return NULL;
}

static shoal_status clip_grad(struct grad_ctx *c) {
  shoal_out t = gin(c, 0), lo = gin(c, 1), hi = gin(c, 2), dy = grad_dy(c, 0), zero = g_num(c, dy, 0);
  shoal_out below = g_op2(c, "Less", t, lo), above = g_op2(c, "Greater", t, hi);
  grad_set(c, 0, build_op3(c->g, "SelectV2", g_op2(c, "LogicalOr", below, above), zero, dy));
  shoal_out g_lo = build_op3(c->g, "SelectV2", below, dy, zero), g_hi = build_op3(c->g, "SelectV2", above, dy, zero);
  grad_set(c, 1, grad_unbroadcast(c->g, g_lo, lo, t, 0));
  grad_set(c, 2, grad_unbroadcast(c->g, g_hi, hi, t, 0));
  return NULL;
}

/* ---- rows ---- */

static const struct kernel_def select_kernels[] = {{"CPU", "T", DT_ALL, .run = select_run}, {0}};
static const struct kernel_def select_v2_kernels[] = {{"CPU", "T", DT_ALL, .run = select_v2_run}, {0}};
static const struct kernel_def clip_kernels[] = {
    {"CPU", "T", DT_NUMBER, .state_size = sizeof(struct clip), .init = clip_init, .run = clip_run}, {0}};

static const struct op_row rows[] = {
    {.name = "Select",
     .in = "condition: bool, t: T, e: T",
     .out = "output: T",
     .attrs = "T: type",
     .shape = select_shape,
     .grad = select_grad,
     .kernels = select_kernels},
    {.name = "SelectV2",
     .in = "condition: bool, t: T, e: T",
     .out = "output: T",
     .attrs = "T: type",
     .shape = select_v2_shape,
     .grad = select_v2_grad,
     .kernels = select_v2_kernels},
    {.name = "ClipByValue",
     .in = "t: T, clip_value_min: T, clip_value_max: T",
     .out = "output: T",
     .attrs = "T: {numbertype}",
     .shape = shape_unchanged,
     .grad = clip_grad,
     .kernels = clip_kernels},
};
OP_FAMILY(select, rows);
