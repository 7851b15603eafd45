/* Fractional pooling: windows of two neighbouring sizes in a random order, so that an image shrinks by a factor that is
 * not whole. The edges of the windows come from Philox as TensorFlow draws them, and are outputs, so that the
 * gradients see the same windows. */
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "ops/nn/nn_util.h"

struct fraction_state {
  float ratio[4];
  bool pseudo_random, overlapping, average, fixed; /* fixed: the seeds are given */
  uint64_t seed, seed2;
};

static shoal_status fraction_init(struct kernel_init *ki, void *state) {
  struct fraction_state *st = state;
  const struct shoal_node *n = ki->node;
  st->average = strstr(n->op->name, "Avg") != NULL;
  TRY(node_get_bool(n, "overlapping", &st->overlapping));
  if (!node_attr(n, "pooling_ratio")) return NULL; /* a gradient */
  const struct attr *list;
  bool deterministic;
  int64_t seed, seed2;
  TRY(node_get_list(n, "pooling_ratio", ATTR_FLOAT, &list));
  TRY(node_get_bool(n, "pseudo_random", &st->pseudo_random));
  TRY(node_get_bool(n, "deterministic", &deterministic));
  TRY(node_get_int(n, "seed", &seed));
  TRY(node_get_int(n, "seed2", &seed2));
  if (list->list.n != 4) return INVALID("pooling_ratio field must specify 4 dimensions");
  for (int i = 0; i < 4; i++) {
    st->ratio[i] = list->list.at[i].f;
    if (!(st->ratio[i] >= 1)) return INVALID("pooling_ratio cannot be smaller than 1, got: %g", (double)st->ratio[i]);
  }
  if (st->ratio[0] != 1 || st->ratio[3] != 1)
    return UNIMPLEMENTED("Fractional %s pooling is not yet supported on the batch nor channel dimension.",
                         st->average ? "average" : "max");
  if (!deterministic && (seed || seed2)) return INVALID("Both seed and seed2 should be 0 if deterministic is false.");
  st->fixed = deterministic;
  st->seed = (uint64_t)seed;
  st->seed2 = (uint64_t)seed2;
  if (deterministic && !seed && !seed2) st->seed = ki->random_seed;
  return NULL;
}

/* ---- edges ---- */

/* n + 1 edges from 0 to length: sizes k and k + 1 shuffled, or a_i = ceil(alpha (i + u)) for one random u. */
static void draw_edges(struct philox *p, bool pseudo_random, int64_t length, int64_t n, int64_t *edge) {
  int64_t k = length / n, spare = length % n;
  struct philox_stream s = philox_stream(*p);
  if (pseudo_random) {
    double alpha = (double)length / (double)n;
    double most = fmin((double)(k + 2) / alpha - 1, (double)(length + 1 - k) / alpha - (double)(n - 1));
    uint32_t x0 = philox_u32(&s), x1 = philox_u32(&s);
    double u = philox_double(x0, x1) * most;
    for (int64_t i = 1; i < n; i++) edge[i] = (int64_t)(int)ceil(alpha * ((double)i + u)) - 1;
    philox_skip(p, 1);
  } else {
    int64_t *size = edge + 1;
    for (int64_t i = 0; i < n; i++) size[i] = k + (i < spare);
    for (int64_t i = 0; i + 1 < n; i++) {
      int64_t other = i + philox_u32(&s) % (uint32_t)(n - i), t = size[i];
      size[i] = size[other];
      size[other] = t;
    }
    philox_skip(p, (uint64_t)((n + 3) / 4));
    for (int64_t i = 1; i < n; i++) size[i] += size[i - 1];
  }
  edge[0] = 0;
  edge[n] = length;
}

/* The window of result i: [*low, *high). */
static void window_of(const int64_t *edge, int64_t i, bool overlapping, int64_t length, int64_t *low, int64_t *high) {
  *low = edge[i];
  *high = MIN(overlapping ? edge[i + 1] + 1 : edge[i + 1], length);
}

/* ---- loops ---- */

struct fraction {
  int64_t batch, in[2], out[2], depth;
  const int64_t *edge[2];
  bool overlapping, average;
  const void *x, *dy;
  void *result;
};

#define T float
#define PLUS(a, b) ((a) + (b))
#define LOWEST (-FLT_MAX)
#define NAME(x) x##_float
#include "ops/nn/fractional_loops.inc"
#define T double
#define PLUS(a, b) ((a) + (b))
#define LOWEST (-DBL_MAX)
#define NAME(x) x##_double
#include "ops/nn/fractional_loops.inc"
#define T int32_t
#define PLUS(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define LOWEST INT32_MIN
#define NAME(x) x##_int32_t
#include "ops/nn/fractional_loops.inc"
#define T int64_t
#define PLUS(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define LOWEST INT64_MIN
#define NAME(x) x##_int64_t
#include "ops/nn/fractional_loops.inc"

/* ---- kernels ---- */

static shoal_status fraction_run(struct kernel_ctx *ctx) {
  const struct fraction_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  if (x->rank != 4) return INVALID("tensor_in must be 4-dimensional");
  struct fraction p = {.batch = x->dims[0],
                       .in = {x->dims[1], x->dims[2]},
                       .depth = x->dims[3],
                       .overlapping = st->overlapping,
                       .average = st->average,
                       .x = x->data};
  for (int i = 0; i < 4; i++) {
    if (x->dims[i] > INT_MAX) return INVALID("tensor_in is too large: %s", tensor_shape_str(x));
    if ((float)x->dims[i] < st->ratio[i])
      return INVALID("Pooling ratio is higher than input dimension size for dimension %d. Input dim size: %" PRId64
                     " pooling ratio: %g",
                     i, x->dims[i], (double)st->ratio[i]);
  }
  for (int i = 0; i < 2; i++) p.out[i] = (int64_t)floorf((float)p.in[i] / st->ratio[i + 1]);
  struct shape s = {.rank = 4, .dims = {p.batch, p.out[0], p.out[1], p.depth}};
  struct tensor *y, *edges;
  TRY(ctx_out(ctx, 0, &s, &y));
  uint64_t seed = st->seed, seed2 = st->seed2;
  if (!st->fixed) { /* other windows at each run */
    static _Atomic uint64_t runs;
    seed = (uint64_t)ctx->step->id ^ (uint64_t)(uintptr_t)ctx->kernel;
    seed2 = 0x9e3779b97f4a7c15u * ++runs;
  }
  struct philox g = philox_from_seeds(seed, seed2);
  for (int i = 0; i < 2; i++) {
    int64_t n = p.out[i] + 1;
    TRY(ctx_out_dims(ctx, 1 + i, 1, &n, &edges));
    draw_edges(&g, st->pseudo_random, p.in[i], p.out[i], edges->data);
    p.edge[i] = edges->data;
  }
  p.result = y->data;
  switch (ctx_in_type(ctx, 0)) {
    case SHOAL_FLOAT32: forward_float(&p); break;
    case SHOAL_FLOAT64: forward_double(&p); break;
    case SHOAL_INT32: forward_int32_t(&p); break;
    default: forward_int64_t(&p);
  }
  return NULL;
}

/* Edges come from outside here. */
static shoal_status check_edges(const struct tensor *t, const char *name, int64_t n, int64_t length) {
  const int64_t *e = t->data;
  for (int64_t i = 0; i < t->n; i++)
    if (e[i] < 0) return INVALID("%s values must not be negative, got %" PRId64, name, e[i]);
  if (t->rank != 1 || t->n != n + 1)
    return INVALID("%s must have %" PRId64 " elements, has shape %s", name, n + 1, tensor_shape_str(t));
  for (int64_t i = 0; i <= n; i++) {
    if (e[i] > length || (i && e[i] <= e[i - 1]))
      return INVALID("%s must grow and stay within %" PRId64 ", got %" PRId64 " at %" PRId64, name, length, e[i], i);
  }
  return NULL;
}

static shoal_status fraction_grad_run(struct kernel_ctx *ctx) {
  const struct fraction_state *st = ctx->state;
  int at = st->average ? 1 : 2;
  const struct tensor *dy = ctx_in(ctx, at), *x = st->average ? NULL : ctx_in(ctx, 0);
  struct shape sx;
  if (st->average) {
    const struct tensor *sizes = ctx_in(ctx, 0);
    if (sizes->rank != 1 || sizes->n != 4)
      return INVALID("original input tensor shape must be1-dimensional and 4 elements");
    TRY(tensor_get_shape(sizes, false, &sx));
  } else {
    sx = tensor_shape(x);
    struct shape so = tensor_shape(ctx_in(ctx, 1)), sd = tensor_shape(dy);
    if (!shape_equal(&so, &sd))
      return INVALID("orig_output %s and out_backprop %s differ in shape", shape_str(&so), shape_str(&sd));
  }
  if (sx.rank != 4 || dy->rank != 4) return INVALID("out_backprop and the original input must be 4-dimensional");
  struct fraction p = {.batch = sx.dims[0],
                       .in = {sx.dims[1], sx.dims[2]},
                       .out = {dy->dims[1], dy->dims[2]},
                       .depth = sx.dims[3],
                       .overlapping = st->overlapping,
                       .average = st->average,
                       .dy = dy->data};
  static const char *const names[2] = {"Row sequence tensor", "Column sequence tensor"};
  for (int i = 0; i < 2; i++) {
    TRY(check_edges(ctx_in(ctx, at + 1 + i), names[i], p.out[i], p.in[i]));
    p.edge[i] = ctx_in(ctx, at + 1 + i)->data;
  }
  if (dy->dims[0] != sx.dims[0] || dy->dims[3] != sx.dims[3])
    return INVALID("out_backprop %s does not fit an input of shape %s", tensor_shape_str(dy), shape_str(&sx));
  struct tensor *dx, shares = {0};
  TRY(ctx_out(ctx, 0, &sx, &dx));
  if (!dx->n) return NULL;
  tensor_zero(dx);
  if (st->average) {
    TRY(tensor_new(&shares, SHOAL_FLOAT64, &sx));
    tensor_zero(&shares);
  }
  p.x = x ? x->data : NULL;
  p.result = dx->data;
#define CASE(E, T)                                                                                       \
  case E:                                                                                                \
    backward_##T(&p, shares.data);                                                                       \
    for (int64_t i = 0; st->average && i < dx->n; i++) T_DATA(dx, T)[i] = (T)T_DATA(&shares, double)[i]; \
    break;
  switch (ctx_in_type(ctx, at)) {
    CASE(SHOAL_FLOAT32, float)
    CASE(SHOAL_FLOAT64, double)
    CASE(SHOAL_INT32, int32_t)
    default:
      backward_int64_t(&p, shares.data);
      for (int64_t i = 0; st->average && i < dx->n; i++) T_DATA(dx, int64_t)[i] = (int64_t)T_DATA(&shares, double)[i];
  }
  tensor_release(&shares);
  return NULL;
}

#define TYPES (DT(FLOAT32) | DT(FLOAT64) | DT(INT32) | DT(INT64))
static const struct kernel_def fraction_kernels[] = {{.device = "CPU",
                                                      .type_attr = "T",
                                                      .types = TYPES,
                                                      .state_size = sizeof(struct fraction_state),
                                                      .init = fraction_init,
                                                      .run = fraction_run},
                                                     {0}};
static const struct kernel_def fraction_grad_kernels[] = {{.device = "CPU",
                                                           .type_attr = "T",
                                                           .types = TYPES,
                                                           .state_size = sizeof(struct fraction_state),
                                                           .init = fraction_init,
                                                           .run = fraction_grad_run},
                                                          {0}};

static shoal_status fraction_shape(struct shape_ctx *c) {
  struct shape x;
  const struct attr *list;
  TRY(shape_in_rank(c, 0, 4, &x));
  TRY(node_get_list(c->node, "pooling_ratio", ATTR_FLOAT, &list));
  if (list->list.n != 4) return INVALID("pooling_ratio field must specify 4 dimensions");
  for (int i = 0; i < 4; i++) {
    float ratio = list->list.at[i].f;
    if (!(ratio >= 1)) return INVALID("pooling_ratio cannot be smaller than 1, got: %g", (double)ratio);
    if (x.dims[i] >= 0) x.dims[i] = (int64_t)floorf((float)x.dims[i] / ratio);
  }
  c->out[0] = x;
  for (int i = 1; i < 3; i++) c->out[i] = shape_vector(x.dims[i] < 0 ? -1 : x.dims[i] + 1);
  return NULL;
}

static shoal_status avg_grad_shape(struct shape_ctx *c) { return shape_in_value(c, 0, &c->out[0]); }

static shoal_status fraction_grad(struct grad_ctx *c) {
  bool average = op_is(c->node->op, "FractionalAvgPool");
  struct build n = build_begin(c->g, average ? "FractionalAvgPoolGrad" : "FractionalMaxPoolGrad", NULL);
  if (average) {
    build_in(&n, array_shape(c->g, gin(c, 0), SHOAL_INT64));
  } else {
    build_in(&n, gin(c, 0));
    build_in(&n, gout(c, 0));
  }
  build_in(&n, grad_dy(c, 0));
  build_in(&n, gout(c, 1));
  build_in(&n, gout(c, 2));
  build_attr(&n, "overlapping", attr_copy(node_attr(c->node, "overlapping")));
  grad_set(c, 0, build_end_out(&n));
  return NULL;
}

static const struct op_row rows[] = {
    {"FractionalMaxPool", .in = "value: T",
     .out = "output: T, row_pooling_sequence: int64, col_pooling_sequence: int64",
     .attrs = "pooling_ratio: list(float) >= 4; pseudo_random: bool = false; overlapping: bool = false; deterministic: "
              "bool = false; seed: int = 0; seed2: int = 0; T: {float, double, int32, int64}",
     .shape = fraction_shape, .grad = fraction_grad, .kernels = fraction_kernels},
    {"FractionalMaxPoolGrad",
     .in = "orig_input: T, orig_output: T, out_backprop: T, row_pooling_sequence: int64, col_pooling_sequence: int64",
     .out = "output: T", .attrs = "overlapping: bool = false; T: {float, double, int32, int64}",
     .shape = shape_unchanged, .kernels = fraction_grad_kernels},
    {"FractionalAvgPool", .in = "value: T",
     .out = "output: T, row_pooling_sequence: int64, col_pooling_sequence: int64",
     .attrs = "pooling_ratio: list(float) >= 4; pseudo_random: bool = false; overlapping: bool = false; deterministic: "
              "bool = false; seed: int = 0; seed2: int = 0; T: {float, double, int32, int64}",
     .shape = fraction_shape, .grad = fraction_grad, .kernels = fraction_kernels},
    {"FractionalAvgPoolGrad",
     .in = "orig_input_tensor_shape: int64, out_backprop: T, row_pooling_sequence: int64, col_pooling_sequence: "
           "int64",
     .out = "output: T", .attrs = "overlapping: bool = false; T: {float, double, int32, int64}",
     .shape = avg_grad_shape, .kernels = fraction_grad_kernels},
};
OP_FAMILY(fractional_pool, rows);
