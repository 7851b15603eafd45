/* Local response normalization, and the old BatchNormWithGlobalNormalization, whose statistics are given. (The fused
 * batch norm of today's models is in batch_norm.c.) */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "ops/nn/nn_util.h"

/* ---- LRN ---- */

struct lrn_state {
  int64_t radius;
  float bias, alpha, beta;
};

static shoal_status lrn_init(struct kernel_init *ki, void *state) {
  struct lrn_state *st = state;
  TRY(node_get_int(ki->node, "depth_radius", &st->radius));
  TRY(node_get_float(ki->node, "bias", &st->bias));
  TRY(node_get_float(ki->node, "alpha", &st->alpha));
  TRY(node_get_float(ki->node, "beta", &st->beta));
  if (st->radius < 0 || st->radius > INT_MAX)
    return INVALID("depth_radius = %" PRId64 " larger than int max", st->radius);
  return NULL;
}

struct lrn {
  const struct lrn_state *st;
  const float *x, *y, *dy;
  float *out;
  int64_t depth;
};

/* bias + alpha * the sum of squares around channel c. */
static float norm_at(const struct lrn *p, const float *x, int64_t c) {
  float sum = 0;
  for (int64_t k = MAX(0, c - p->st->radius); k < MIN(p->depth, c + p->st->radius + 1); k++) sum += x[k] * x[k];
  return p->st->bias + p->st->alpha * sum;
}

static void lrn_rows(void *arg, int64_t begin, int64_t end) {
  const struct lrn *p = arg;
  for (int64_t r = begin; r < end; r++) {
    const float *x = p->x + r * p->depth;
    for (int64_t c = 0; c < p->depth; c++) p->out[r * p->depth + c] = x[c] * powf(norm_at(p, x, c), -p->st->beta);
  }
}

static void lrn_grad_rows(void *arg, int64_t begin, int64_t end) {
  const struct lrn *p = arg;
  for (int64_t r = begin; r < end; r++) {
    const float *x = p->x + r * p->depth, *y = p->y + r * p->depth, *dy = p->dy + r * p->depth;
    float *dx = p->out + r * p->depth;
    memset(dx, 0, (size_t)p->depth * sizeof *dx);
    for (int64_t c = 0; c < p->depth; c++) {
      float norm = norm_at(p, x, c), slope = -2 * p->st->alpha * p->st->beta * y[c] / norm;
      dx[c] += powf(norm, -p->st->beta) * dy[c];
      for (int64_t k = MAX(0, c - p->st->radius); k < MIN(p->depth, c + p->st->radius + 1); k++)
        dx[k] += x[k] * slope * dy[c];
    }
  }
}

/* A floating tensor as float: itself, or a copy. */
static shoal_status as_float(const struct tensor *t, struct tensor *out) {
  if (t->dtype == SHOAL_FLOAT32) {
    tensor_ref(out, t);
    return NULL;
  }
  struct shape s = tensor_shape(t);
  TRY(tensor_new(out, SHOAL_FLOAT32, &s));
  nn_to_float((shoal_dtype)t->dtype, t->data, out->data, t->n);
  return NULL;
}

static shoal_status lrn(struct kernel_ctx *ctx, int n_in, void (*rows)(void *, int64_t, int64_t)) {
  const struct lrn_state *st = ctx->state;
  struct tensor in[3] = {{0}}, work = {0}, *out;
  const struct tensor *x = ctx_in(ctx, 0);
  if (x->rank != 4) return INVALID("in must be 4-dimensional");
  struct shape shape = tensor_shape(x);
  for (int i = 1; i < n_in; i++) {
    struct shape more = tensor_shape(ctx_in(ctx, i));
    if (!shape_equal(&shape, &more))
      return INVALID("input_grads, input_image, and out_image should have the same shape");
  }
  shoal_status s = NULL;
  for (int i = 0; i < n_in; i++) TRY_GOTO(s, as_float(ctx_in(ctx, i), &in[i]), done);
  TRY_GOTO(s, tensor_new(&work, SHOAL_FLOAT32, &shape), done);
  TRY_GOTO(s, ctx_out(ctx, 0, &shape, &out), done);
  if (!out->n) goto done;
  struct lrn p = {.st = st, .out = work.data, .depth = shape.dims[3]};
  p.x = in[n_in == 3 ? 1 : 0].data;
  p.dy = in[0].data;
  p.y = in[2].data;
  int64_t cost = p.depth * MIN(2 * st->radius + 1, p.depth);
  pool_for(ctx_pool(ctx), out->n / p.depth, nn_grain(cost), rows, &p);
  nn_from_float(ctx_out_type(ctx, 0), work.data, out->data, out->n);
done:
  for (int i = 0; i < 3; i++) tensor_release(&in[i]);
  tensor_release(&work);
  return s;
}

static shoal_status lrn_run(struct kernel_ctx *ctx) { return lrn(ctx, 1, lrn_rows); }
static shoal_status lrn_grad_run(struct kernel_ctx *ctx) { return lrn(ctx, 3, lrn_grad_rows); }

#define LRN_TYPES (DT(FLOAT32) | DT(FLOAT16) | DT(BFLOAT16))
static const struct kernel_def lrn_kernels[] = {{.device = "CPU",
                                                 .type_attr = "T",
                                                 .types = LRN_TYPES,
                                                 .state_size = sizeof(struct lrn_state),
                                                 .init = lrn_init,
                                                 .run = lrn_run},
                                                {0}};
static const struct kernel_def lrn_grad_kernels[] = {{.device = "CPU",
                                                      .type_attr = "T",
                                                      .types = LRN_TYPES,
                                                      .state_size = sizeof(struct lrn_state),
                                                      .init = lrn_init,
                                                      .run = lrn_grad_run},
                                                     {0}};

static shoal_status lrn_shape(struct shape_ctx *c) { return shape_in_rank(c, 0, 4, &c->out[0]); }

static shoal_status lrn_grad(struct grad_ctx *c) {
  struct build n = build_begin(c->g, "LRNGrad", NULL);
  build_in(&n, grad_dy(c, 0));
  build_in(&n, gin(c, 0));
  build_in(&n, gout(c, 0));
  static const char *const attrs[] = {"depth_radius", "bias", "alpha", "beta"};
  for (size_t i = 0; i < COUNT_OF(attrs); i++) build_attr(&n, attrs[i], attr_copy(node_attr(c->node, attrs[i])));
  grad_set(c, 0, build_end_out(&n));
  return NULL;
}

/* ---- given statistics ---- */

struct global_state {
  float epsilon;
  bool scaled; /* gamma counts */
};

static shoal_status global_init(struct kernel_init *ki, void *state) {
  struct global_state *st = state;
  TRY(node_get_float(ki->node, "variance_epsilon", &st->epsilon));
  return node_get_bool(ki->node, "scale_after_normalization", &st->scaled);
}

static shoal_status check_depth(const struct tensor *t, const char *name, int64_t depth) {
  if (t->rank != 1) return INVALID("%s must be 1-dimensional%s", name, tensor_shape_str(t));
  if (t->n != depth) return INVALID("%s has %" PRId64 " elements instead of %" PRId64, name, t->n, depth);
  return NULL;
}

/* t, m, v, beta, gamma -> (t - m) / sqrt(v + epsilon) * gamma + beta */
#define GLOBAL(E, T, C)                                                                     \
  case E:                                                                                   \
    for (int64_t i = 0; i < x->n; i++) {                                                    \
      int64_t c = i % depth;                                                                \
      C inv = 1 / (C)sqrt((double)(LOAD_##T(T_DATA(in[2], const T)[c]) + (C)st->epsilon));  \
      if (st->scaled) inv *= LOAD_##T(T_DATA(in[4], const T)[c]);                           \
      C y = (LOAD_##T(T_DATA(x, const T)[i]) - LOAD_##T(T_DATA(in[1], const T)[c])) * inv + \
            LOAD_##T(T_DATA(in[3], const T)[c]);                                            \
      T_DATA(out, T)[i] = STORE_##T(y);                                                     \
    }                                                                                       \
    break;

static shoal_status global_run(struct kernel_ctx *ctx) {
  const struct global_state *st = ctx->state;
  static const char *const names[] = {"input", "mean", "var", "beta", "gamma"};
  const struct tensor *in[5], *x = ctx_in(ctx, 0);
  if (x->rank != 4) return INVALID("input must be 4-dimensional%s", tensor_shape_str(x));
  int64_t depth = x->dims[3];
  for (int i = 0; i < 5; i++) {
    in[i] = ctx_in(ctx, i);
    if (i) TRY(check_depth(in[i], names[i], depth));
  }
  struct shape s = tensor_shape(x);
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &s, &out));
  switch (ctx_in_type(ctx, 0)) {
    NN_FLOATING(GLOBAL)
    default: return UNIMPLEMENTED("%s of %s", ctx->kernel->op->name, shoal_dtype_name(ctx_in_type(ctx, 0)));
  }
  return NULL;
}

/* t, m, v, gamma, dy -> dx, dm, dv, db, dg. Sums are kept in double. */
#define GLOBAL_GRAD(E, T, C)                                                                                 \
  case E:                                                                                                    \
    for (int64_t i = 0; i < x->n; i++) {                                                                     \
      int64_t c = i % depth;                                                                                 \
      double g = (double)LOAD_##T(T_DATA(in[4], const T)[i]);                                                \
      sum[c] += g;                                                                                           \
      sum[depth + c] += g * (double)(LOAD_##T(T_DATA(x, const T)[i]) - LOAD_##T(T_DATA(in[1], const T)[c])); \
    }                                                                                                        \
    for (int64_t c = 0; c < depth; c++) {                                                                    \
      double v = (double)LOAD_##T(T_DATA(in[2], const T)[c]) + (double)st->epsilon, inv = 1 / sqrt(v);       \
      double gamma = st->scaled ? (double)LOAD_##T(T_DATA(in[3], const T)[c]) : 1;                           \
      T_DATA(out[1], T)[c] = STORE_##T((C)(-sum[c] * inv * gamma));                                          \
      T_DATA(out[2], T)[c] = STORE_##T((C)(sum[depth + c] * inv * -0.5 / v * gamma));                        \
      T_DATA(out[3], T)[c] = STORE_##T((C)sum[c]);                                                           \
      T_DATA(out[4], T)[c] = STORE_##T((C)(st->scaled ? sum[depth + c] * inv : 0));                          \
      sum[c] = inv * gamma;                                                                                  \
    }                                                                                                        \
    for (int64_t i = 0; i < x->n; i++)                                                                       \
      T_DATA(out[0], T)[i] = STORE_##T((C)((double)LOAD_##T(T_DATA(in[4], const T)[i]) * sum[i % depth]));   \
    break;

static shoal_status global_grad_run(struct kernel_ctx *ctx) {
  const struct global_state *st = ctx->state;
  static const char *const names[] = {"input", "mean", "var", "gamma"};
  const struct tensor *in[5], *x = ctx_in(ctx, 0);
  if (x->rank != 4) return INVALID("input must be 4-dimensional%s", tensor_shape_str(x));
  int64_t depth = x->dims[3];
  struct shape s = tensor_shape(x), vector = shape_vector(depth);
  struct tensor *out[5];
  for (int i = 0; i < 5; i++) {
    in[i] = ctx_in(ctx, i);
    if (i && i < 4) TRY(check_depth(in[i], names[i], depth));
    TRY(ctx_out(ctx, i, i ? &vector : &s, &out[i]));
  }
  struct shape sb = tensor_shape(in[4]);
  if (!shape_equal(&sb, &s)) return INVALID("backprop has shape %s instead of %s", shape_str(&sb), shape_str(&s));
  struct tensor sums;
  struct shape two = shape_matrix(2, depth);
  TRY(tensor_new(&sums, SHOAL_FLOAT64, &two));
  tensor_zero(&sums);
  double *sum = sums.data;
  switch (ctx_in_type(ctx, 0)) {
    NN_FLOATING(GLOBAL_GRAD)
    default: break;
  }
  tensor_release(&sums);
  return NULL;
}

static const struct kernel_def global_kernels[] = {{.device = "CPU",
                                                    .type_attr = "T",
                                                    .types = DT_FLOATING,
                                                    .state_size = sizeof(struct global_state),
                                                    .init = global_init,
                                                    .run = global_run},
                                                   {0}};
static const struct kernel_def global_grad_kernels[] = {{.device = "CPU",
                                                         .type_attr = "T",
                                                         .types = DT_FLOATING,
                                                         .state_size = sizeof(struct global_state),
                                                         .init = global_init,
                                                         .run = global_grad_run},
                                                        {0}};

static shoal_status global_shape(struct shape_ctx *c) {
  struct shape x;
  TRY(shape_in_rank(c, 0, 4, &x));
  c->out[0] = x;
  for (int i = 1; i < c->node->n_out; i++) c->out[i] = shape_vector(x.dims[3]);
  return NULL;
}

static shoal_status global_grad(struct grad_ctx *c) {
  struct build n = build_begin(c->g, "BatchNormWithGlobalNormalizationGrad", NULL);
  build_in(&n, gin(c, 0));
  build_in(&n, gin(c, 1));
  build_in(&n, gin(c, 2));
  build_in(&n, gin(c, 4));
  build_in(&n, grad_dy(c, 0));
  static const char *const attrs[] = {"variance_epsilon", "scale_after_normalization"};
  for (size_t i = 0; i < COUNT_OF(attrs); i++) build_attr(&n, attrs[i], attr_copy(node_attr(c->node, attrs[i])));
  struct shoal_node *back = build_end(&n);
  for (int i = 0; back && i < 5; i++) grad_set(c, i, node_out(back, i));
  return NULL;
}

static const struct op_row rows[] = {
    {"LRN", .in = "input: T", .out = "output: T",
     .attrs = "depth_radius: int = 5; bias: float = 1.0; alpha: float = 1.0; beta: float = 0.5; T: {half, bfloat16, "
              "float} = float",
     .shape = lrn_shape, .grad = lrn_grad, .kernels = lrn_kernels},
    {"LRNGrad", .in = "input_grads: T, input_image: T, output_image: T", .out = "output: T",
     .attrs = "depth_radius: int = 5; bias: float = 1.0; alpha: float = 1.0; beta: float = 0.5; T: {half, bfloat16, "
              "float} = float",
     .shape = lrn_shape, .kernels = lrn_grad_kernels},
    {"BatchNormWithGlobalNormalization", .in = "t: T, m: T, v: T, beta: T, gamma: T", .out = "result: T",
     .attrs = "T: numbertype; variance_epsilon: float; scale_after_normalization: bool", .shape = global_shape,
     .grad = global_grad, .kernels = global_kernels},
    {"BatchNormWithGlobalNormalizationGrad", .in = "t: T, m: T, v: T, gamma: T, backprop: T",
     .out = "dx: T, dm: T, dv: T, db: T, dg: T",
     .attrs = "T: numbertype; variance_epsilon: float; scale_after_normalization: bool", .shape = global_shape,
     .kernels = global_grad_kernels},
};
OP_FAMILY(normalization, rows);
