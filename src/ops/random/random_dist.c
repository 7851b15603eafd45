/* Distributions that draw until a number is accepted, and sampling from given weights: gamma, Poisson, binomial,
 * the normal between bounds, multinomial. Computed in double; output element i begins at block 256 i of the
 * generator, so its value does not depend on who computes it. */
#include <complex.h>
#include <inttypes.h>
#include <math.h>

#include "base/mem.h"
#include "graph/gradient.h"
#include "graph/shape_fn.h"
#include "ops/array/array_util.h"
#include "ops/random/random_fill.h"
#include "ops/random/random_variable.h"

static void put(const struct tensor *t, int64_t i, double v) {
  switch (t->dtype) {
    case SHOAL_FLOAT32: T_DATA(t, float)[i] = (float)v; break;
    case SHOAL_FLOAT64: T_DATA(t, double)[i] = v; break;
    case SHOAL_FLOAT16: T_DATA(t, f16)[i] = f16_from_float((float)v); break;
    case SHOAL_BFLOAT16: T_DATA(t, bf16)[i] = bf16_from_float((float)v); break;
    case SHOAL_INT32: T_DATA(t, int32_t)[i] = isnan(v) ? 0 : (int32_t)v; break;
    default: T_DATA(t, int64_t)[i] = isnan(v) ? 0 : (int64_t)v;
  }
}

static double highest(shoal_dtype t) {
  switch (t) {
    case SHOAL_FLOAT16: return 65504.0;
    case SHOAL_FLOAT32: return 3.4028234663852886e38;
    case SHOAL_INT32: return (double)INT32_MAX;
    case SHOAL_INT64: return (double)INT64_MAX;
    default: return 1.7976931348623157e308;
  }
}

/* Uniform doubles two to a block, the second first. */
struct uniforms {
  struct philox *p;
  double v[2];
  int left;
};

static double uniform(struct uniforms *u) {
  if (!u->left) {
    uint32_t x[4];
    philox_next(u->p, x);
    u->v[0] = philox_double(x[0], x[1]);
    u->v[1] = philox_double(x[2], x[3]);
    u->left = 2;
  }
  return u->v[--u->left];
}

/* ---- samples of parameters: output [sample dims..., parameter dims...] ---- */

struct drawing;
typedef double draw_fn(const struct drawing *s, double a, double b, int64_t output);

struct drawing {
  struct philox p;
  const struct tensor *a, *b;       /* parameters; b (optional) is broadcast with a */
  const int64_t *a_index, *b_index; /* NULL: element i itself */
  struct tensor *out;
  int64_t params, samples;
  draw_fn *draw;
  /* Drawing again and again, which may have no end, ends with the step; NULL: it does not. */
  const struct cancel *cancel;
};

static bool is_over(const struct drawing *s) { return s->cancel && cancel_started(s->cancel); }

static void draw_range(void *arg, int64_t begin, int64_t end) {
  const struct drawing *s = arg;
  for (int64_t i = begin; i < end; i++) {
    int64_t param = i / s->samples, sample = i % s->samples;
    double a = real_at(s->a, s->a_index ? s->a_index[param] : param);
    double b = s->b ? real_at(s->b, s->b_index ? s->b_index[param] : param) : 0;
    put(s->out, sample * s->params + param, s->draw(s, a, b, i));
  }
}

static void draw_all(struct kernel_ctx *ctx, struct drawing *s) {
  s->cancel = ctx->step->cancel;
  if (s->out->n) pool_for(ctx_pool(ctx), s->out->n, 256, draw_range, s);
}

static struct philox at_output(const struct drawing *s, int64_t output, uint64_t blocks) {
  struct philox p = s->p;
  philox_skip(&p, blocks * (uint64_t)output);
  return p;
}

static double draw_gamma(const struct drawing *s, double alpha, double unused, int64_t output) {
  struct philox p = at_output(s, output, RANDOM_BLOCKS_PER_OUTPUT);
  struct uniforms u = {.p = &p};
  if (alpha == 1.0) return -log(1.0 - uniform(&u));
  if (isnan(alpha)) return NAN;
  /* Marsaglia and Tsang; an alpha below one is raised by one and the result scaled down. */
  bool small = alpha < 1;
  double d = alpha + (small ? 2.0 / 3 : -1.0 / 3), c = 1.0 / 3 / sqrt(d), normals[2];
  int left = 0;
  while (!is_over(s)) {
    if (!left) {
      uint32_t x[4];
      philox_next(&p, x);
      philox_normal_double(x, normals);
      left = 2;
    }
    double x = normals[--left], v = 1 + c * x;
    if (v <= 0 || isnan(v)) {
      if (isnan(v)) return NAN;
      continue;
    }
    v = v * v * v;
    double t = uniform(&u);
    if (t < 1 - 0.0331 * (x * x) * (x * x) || log(t) < 0.5 * x * x + d * (1 - v + log(v))) {
      double result = d * v;
      return small ? result * pow(uniform(&u), 1 / alpha) : result;
    }
  }
  return 0;
}

static double draw_poisson(const struct drawing *s, double rate, double unused, int64_t output) {
  struct philox p = at_output(s, output, RANDOM_BLOCKS_PER_OUTPUT);
  struct uniforms u = {.p = &p};
  double limit = highest((shoal_dtype)s->out->dtype);
  if (!isfinite(rate) || rate < 0) return NAN;
  if (rate < 10) { /* Knuth: multiply until below exp(-rate) */
    double floor_at = exp(-rate), product = 1, x = 0;
    while (!is_over(s)) {
      product *= uniform(&u);
      if (product <= floor_at && x <= limit) return x;
      x += 1;
    }
  }
  /* Hörmann's transformed rejection. */
  double log_rate = log(rate), b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b;
  double inv_alpha = 1.1239 + 1.1328 / (b - 3.4);
  while (!is_over(s)) { /* as in TensorFlow, what the type does not hold is drawn again: for ever where nothing fits */
    double x = uniform(&u) - 0.5, v = uniform(&u), us = 0.5 - fabs(x);
    double k = floor((2 * a / us + b) * x + rate + 0.43);
    if (k > limit) continue;
    if (us >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2)) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    int sign;
    if (log(v * inv_alpha / (a / (us * us) + b)) <= -rate + k * log_rate - lgamma_r(k + 1, &sign)) return k;
  }
  return 0;
}

/* Differences between log k! and Stirling's formula. */
static double stirling_tail(double k) {
  static const double small[] = {0.0810614667953272,  0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
                                 0.0166446911898211,  0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
                                 0.00925546218271273, 0.00833056343336287};
  if (k <= 9) return small[k < 0 ? 0 : (int)k];
  double sq = (k + 1) * (k + 1);
  return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / sq) / sq) / (k + 1);
}

static double binomial_by_geometric(const struct drawing *s, double count, double prob, struct philox *p) {
  struct uniforms u = {.p = p};
  double sum = 0, n = 0;
  for (; !is_over(s); n++) {
    sum += ceil(log(uniform(&u)) / log1p(-prob));
    if (sum > count) return n;
  }
  return 0;
}

static double binomial_by_rejection(const struct drawing *s, double count, double prob, struct philox *p) {
  struct uniforms u = {.p = p};
  double dev = sqrt(count * prob * (1 - prob)), b = 1.15 + 2.53 * dev, a = -0.0873 + 0.0248 * b + 0.01 * prob;
  double c = count * prob + 0.5, v_r = 0.92 - 4.2 / b, r = prob / (1 - prob), alpha = (2.83 + 5.1 / b) * dev;
  double m = floor((count + 1) * prob);
  while (!is_over(s)) {
    double x = uniform(&u), v = uniform(&u);
    x -= 0.5;
    double us = 0.5 - fabs(x), k = floor((2 * a / us + b) * x + c);
    if (us >= 0.07 && v <= v_r) return k;
    if (k < 0 || k > count) continue;
    v = log(v * alpha / (a / (us * us) + b));
    double bound = (m + 0.5) * log((m + 1) / (r * (count - m + 1))) +
                   (count + 1) * log((count - m + 1) / (count - k + 1)) +
                   (k + 0.5) * log(r * (count - k + 1) / (k + 1)) + stirling_tail(m) + stirling_tail(count - m) -
                   stirling_tail(k) - stirling_tail(count - k);
    if (v <= bound) return k;
  }
  return 0;
}

static double draw_binomial(const struct drawing *s, double count, double prob, int64_t output) {
  enum { GEOMETRIC_BLOCKS = 42 };
  shoal_dtype t = (shoal_dtype)s->a->dtype;
  if (isnan(prob) || isnan(count)) return NAN;
  if (count <= 0 || prob <= 0) return 0;
  if (prob >= 1) return count;
  if (isinf(count)) return NAN;
  bool flip = prob > 0.5;
  double q = flip ? real_rounded(t, 1 - prob) : prob, v;
  struct philox p;
  if (real_rounded(t, count * q) >= 10) {
    p = at_output(s, output, RANDOM_BLOCKS_PER_OUTPUT);
    v = binomial_by_rejection(s, count, q, &p);
  } else {
    p = at_output(s, output, GEOMETRIC_BLOCKS);
    v = binomial_by_geometric(s, count, q, &p);
  }
  return flip ? count - v : v;
}

/* ---- the shapes of samples ---- */

static shoal_status append(struct shape *s, const struct tensor *t) {
  if (s->rank + t->rank > SHOAL_MAX_RANK)
    return INVALID("The output would have more than %d dimensions", SHOAL_MAX_RANK);
  for (int i = 0; i < t->rank; i++) s->dims[s->rank++] = t->dims[i];
  return NULL;
}

/* Stateful: shape is that of the samples, the parameters' follows. */
static shoal_status run_appended(struct kernel_ctx *ctx, draw_fn *draw) {
  struct shape shape;
  const struct tensor *param = ctx_in(ctx, 1);
  TRY(random_shape(ctx_in(ctx, 0), &shape));
  int64_t samples;
  TRY(shape_elements(&shape, &samples));
  TRY(append(&shape, param));
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  if (out->n == 0) return NULL;
  struct drawing s = {.a = param, .out = out, .params = param->n, .samples = samples, .draw = draw};
  s.p = random_reserve(ctx->state, (uint64_t)out->n * RANDOM_BLOCKS_PER_OUTPUT);
  draw_all(ctx, &s);
  return NULL;
}
static shoal_status run_gamma(struct kernel_ctx *ctx) { return run_appended(ctx, draw_gamma); }
static shoal_status run_poisson(struct kernel_ctx *ctx) { return run_appended(ctx, draw_poisson); }

static bool ends_with(const struct shape *s, const struct shape *tail) {
  if (s->rank < tail->rank) return false;
  for (int i = 0; i < tail->rank; i++)
    if (s->dims[s->rank - tail->rank + i] != tail->dims[i]) return false;
  return true;
}

/* Stateless: shape is the output's and ends with the parameters'. */
static shoal_status run_ending(struct kernel_ctx *ctx, struct philox p, const struct tensor *param, draw_fn *draw) {
  struct shape shape, tail = tensor_shape(param);
  TRY(random_shape(ctx_in(ctx, 0), &shape));
  if (!ends_with(&shape, &tail)) return INVALID("Shape passed in must end with broadcasted shape.");
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  if (out->n == 0) return NULL;
  struct drawing s = {.p = p, .a = param, .out = out, .params = param->n, .samples = out->n / param->n, .draw = draw};
  draw_all(ctx, &s);
  return NULL;
}

static shoal_status run_seed_gamma(struct kernel_ctx *ctx) {
  struct philox p;
  TRY(random_from_seed_tensor(ctx_in(ctx, 1), &p));
  return run_ending(ctx, p, ctx_in(ctx, 2), draw_gamma);
}
static shoal_status run_key_gamma(struct kernel_ctx *ctx) {
  struct philox p;
  TRY(random_from_key(ctx, &p));
  return run_ending(ctx, p, ctx_in(ctx, 4), draw_gamma);
}
static shoal_status run_seed_poisson(struct kernel_ctx *ctx) {
  struct philox p;
  TRY(random_from_seed_tensor(ctx_in(ctx, 1), &p));
  return run_ending(ctx, p, ctx_in(ctx, 2), draw_poisson);
}

/* ---- binomial ---- */

static void broadcast_index(const struct shape *out, const struct tensor *t, int64_t *index, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = i, at = 0, stride = 1;
    for (int d = out->rank - 1, k = t->rank - 1; d >= 0; d--, k--) {
      int64_t coord = rest % out->dims[d];
      rest /= out->dims[d];
      if (k < 0) continue;
      if (t->dims[k] != 1) at += coord * stride;
      stride *= t->dims[k];
    }
    index[i] = at;
  }
}

static shoal_status binomial(struct kernel_ctx *ctx, int shape_in, int counts_in, bool from_seed) {
  const struct tensor *counts = ctx_in(ctx, counts_in), *probs = ctx_in(ctx, counts_in + 1);
  struct shape a = tensor_shape(counts), b = tensor_shape(probs), both, shape;
  shoal_status s = shape_broadcast(&a, &b, &both);
  if (s) {
    shoal_status_free(s);
    return INVALID("counts and probs must have compatible batch dimensions: %s vs. %s", shape_str(&a), shape_str(&b));
  }
  TRY(random_shape(ctx_in(ctx, shape_in), &shape));
  if (!ends_with(&shape, &both)) return INVALID("Shape passed in must end with broadcasted shape.");
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  int64_t params = 1, samples = 1;
  for (int i = 0; i < shape.rank; i++)
    if (i < shape.rank - both.rank) samples *= shape.dims[i];
    else params *= shape.dims[i];
  struct philox p;
  if (from_seed) {
    TRY(random_from_seed_tensor(ctx_in(ctx, 1), &p));
  } else {
    int64_t alg;
    TRY(random_scalar_in(ctx, 1, SHOAL_INT64, &alg));
    TRY(random_from_variable(ctx, alg, false, (uint64_t)(params * 2 * 100 * (samples + 3) / 4), &p, NULL));
  }
  if (out->n == 0) return NULL;
  struct tensor index;
  struct shape index_shape = shape_matrix(2, params);
  TRY(ctx_temp(ctx, SHOAL_INT64, &index_shape, &index));
  int64_t *at = index.data;
  broadcast_index(&both, counts, at, params);
  broadcast_index(&both, probs, at + params, params);
  struct drawing sampler = {.p = p,
                            .a = counts,
                            .b = probs,
                            .a_index = at,
                            .b_index = at + params,
                            .out = out,
                            .params = params,
                            .samples = samples,
                            .draw = draw_binomial};
  draw_all(ctx, &sampler);
  tensor_release(&index);
  return NULL;
}
static shoal_status run_seed_binomial(struct kernel_ctx *ctx) { return binomial(ctx, 0, 2, true); }
static shoal_status run_state_binomial(struct kernel_ctx *ctx) { return binomial(ctx, 2, 3, false); }

/* ---- multinomial: indices drawn by weights exp(logits) ---- */

static shoal_status multinomial(struct kernel_ctx *ctx, struct philox p, struct random_state *state) {
  const struct tensor *logits = ctx_in(ctx, 0), *count = ctx_in(ctx, 1);
  struct shape s;
  if (logits->rank != 2) {
    s = tensor_shape(logits);
    return INVALID("logits should be a matrix, got shape %s", shape_str(&s));
  }
  if (count->rank != 0) {
    s = tensor_shape(count);
    return INVALID("num_samples should be a scalar, got shape %s", shape_str(&s));
  }
  int64_t n = *T_DATA(count, int32_t), batch = logits->dims[0], classes = logits->dims[1];
  if (n < 0) return INVALID("num_samples should be nonnegative, got %" PRId64, n);
  if (classes <= 0) return INVALID("num_classes should be positive, got %" PRId64, classes);
  int64_t dims[2] = {batch, n};
  struct tensor *out, cdf_t;
  TRY(ctx_out_dims(ctx, 0, 2, dims, &out));
  if (out->n == 0) return NULL;
  if (state) p = random_reserve(state, (uint64_t)(batch * ((n + 3) / 4 * 4 * 2)) * RANDOM_BLOCKS_PER_OUTPUT);
  struct shape cdf_shape = shape_vector(classes);
  TRY(ctx_temp(ctx, SHOAL_FLOAT64, &cdf_shape, &cdf_t));
  double *cdf = cdf_t.data;
  struct philox_stream stream = philox_stream(p);
  for (int64_t b = 0; b < batch; b++) {
    double max = -INFINITY, total = 0;
    for (int64_t j = 0; j < classes; j++) {
      cdf[j] = real_at(logits, b * classes + j);
      if (isfinite(cdf[j]) && cdf[j] > max) max = cdf[j];
    }
    for (int64_t j = 0; j < classes; j++) {
      if (isfinite(cdf[j])) total += exp(cdf[j] - max);
      cdf[j] = total;
    }
    for (int64_t i = 0; i < n; i++) {
      double want = philox_stream_double(&stream) * total;
      int64_t lo = 0, hi = classes; /* the first class whose sum is past `want` */
      while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (cdf[mid] > want) hi = mid;
        else lo = mid + 1;
      }
      put(out, b * n + i, (double)lo);
    }
  }
  tensor_release(&cdf_t);
  return NULL;
}

static shoal_status run_multinomial(struct kernel_ctx *ctx) { return multinomial(ctx, (struct philox){0}, ctx->state); }

static shoal_status run_seed_multinomial(struct kernel_ctx *ctx) {
  struct philox p;
  TRY(random_from_seed_tensor(ctx_in(ctx, 2), &p));
  return multinomial(ctx, p, NULL);
}

/* ---- the gradient of gamma samples: alpha gets unit dimensions in front, the samples' dimensions are summed ---- */

static shoal_out pack_first(struct shoal_graph *g, shoal_out scalar) {
  shoal_out dims[] = {scalar};
  struct build b = build_begin(g, "Pack", NULL);
  build_in_list(&b, dims, 1);
  build_attr_int(&b, "axis", 0);
  return build_end_out(&b);
}

static shoal_status grad_alpha(struct grad_ctx *c, int at, shoal_out sample_dims) {
  struct shoal_graph *g = c->g;
  shoal_out alpha = gin(c, at), sample = gout(c, 0), zero = build_const_int(g, SHOAL_INT32, 0);
  shoal_out ones = build_op2(g, "Fill", pack_first(g, sample_dims), build_const_int(g, SHOAL_INT32, 1));
  shoal_out parts[] = {ones, build_op1(g, "Shape", alpha)};
  struct build b = build_begin(g, "ConcatV2", NULL);
  build_in_list(&b, parts, 2);
  build_in(&b, zero);
  shoal_out wide = build_op2(g, "Reshape", alpha, build_end_out(&b));
  shoal_out moved = build_op2(g, "Mul", grad_dy(c, 0), build_op2(g, "RandomGammaGrad", wide, sample));
  shoal_out axes = build_op3(g, "Range", zero, sample_dims, build_const_int(g, SHOAL_INT32, 1));
  grad_set(c, at, build_op2(g, "Sum", moved, axes));
  return NULL;
}

static shoal_status grad_gamma(struct grad_ctx *c) { return grad_alpha(c, 1, build_op1(c->g, "Size", gin(c, 0))); }

/* The shape of the stateless ones ends with alpha's own. */
static shoal_status grad_stateless_gamma(struct grad_ctx *c) {
  int at = c->node->n_in - 1;
  shoal_out dims = build_op2(c->g, "Sub", build_op1(c->g, "Size", gin(c, 0)), build_op1(c->g, "Rank", gin(c, at)));
  return grad_alpha(c, at, dims);
}

/* ---- shape functions ---- */

static shoal_status shape_appended(struct shape_ctx *c) {
  struct shape s;
  TRY(shape_in_value(c, 0, &s));
  const struct shape *param = &c->in[1];
  if (s.rank < 0 || param->rank < 0 || s.rank + param->rank > SHOAL_MAX_RANK) return NULL;
  for (int i = 0; i < param->rank; i++) s.dims[s.rank++] = param->dims[i];
  c->out[0] = s;
  return NULL;
}

static shoal_status shape_first(struct shape_ctx *c) { return shape_in_value(c, 0, &c->out[0]); }
static shoal_status shape_third(struct shape_ctx *c) { return shape_in_value(c, 2, &c->out[0]); }

static shoal_status shape_multinomial(struct shape_ctx *c) {
  struct shape logits;
  TRY(shape_in_rank(c, 0, 2, &logits));
  int64_t n;
  c->out[0] = shape_matrix(logits.dims[0], shape_in_int(c, 1, &n) && n >= 0 ? n : -1);
  return NULL;
}

/* ---- rows ---- */

#define PLAIN(fn)                                                                      \
  (const struct kernel_def[]) {                                                        \
    {.device = "CPU", .borrowable = true, .flags = KERNEL_EXPENSIVE, .run = fn}, { 0 } \
  }
#define SEEDS "seed: int = 0; seed2: int = 0; "
#define REALS "{float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}"
#define FIVE "{half, float, double, int32, int64}"

static const struct op_row rows[] = {
    {.name = "RandomGamma",
     .in = "shape: S, alpha: T",
     .out = "output: T",
     .attrs = SEEDS "S: {int32, int64}; T: {half, float, double}",
     .flags = OP_STATEFUL,
     .shape = shape_appended,
     .grad = grad_gamma,
     .kernels = RANDOM_KERNEL("T", DT(FLOAT16) | DT(FLOAT32) | DT(FLOAT64), run_gamma)},
    {.name = "RandomPoisson",
     .in = "shape: S, rate: dtype",
     .out = "output: dtype",
     .attrs = SEEDS "S: {int32, int64}; dtype: {half, float, double}",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_appended,
     .kernels = RANDOM_KERNEL("dtype", DT(FLOAT16) | DT(FLOAT32) | DT(FLOAT64), run_poisson)},
    {.name = "RandomPoissonV2",
     .in = "shape: S, rate: R",
     .out = "output: dtype",
     .attrs = SEEDS "S: {int32, int64}; R: " FIVE " = double; dtype: " FIVE " = int64",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_appended,
     .kernels = RANDOM_KERNEL(NULL, 0, run_poisson)},
    {.name = "Multinomial",
     .in = "logits: T, num_samples: int32",
     .out = "output: output_dtype",
     .attrs = SEEDS "T: " REALS "; output_dtype: {int32, int64} = int64",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_multinomial,
     .kernels = RANDOM_KERNEL(NULL, 0, run_multinomial)},
    {.name = "StatelessMultinomial",
     .in = "logits: T, num_samples: int32, seed: Tseed",
     .out = "output: output_dtype",
     .attrs = "T: " REALS "; Tseed: {int32, int64} = int64; output_dtype: {int32, int64} = int64",
     .flags = OP_NO_GRADIENT,
     .shape = shape_multinomial,
     .kernels = PLAIN(run_seed_multinomial)},
    {.name = "StatelessRandomBinomial",
     .in = "shape: S, seed: Tseed, counts: T, probs: T",
     .out = "output: dtype",
     .attrs = "S: {int32, int64}; Tseed: {int32, int64} = int64; T: " FIVE " = double; dtype: " FIVE " = int64",
     .flags = OP_NO_GRADIENT,
     .shape = shape_first,
     .kernels = PLAIN(run_seed_binomial)},
    {.name = "StatefulRandomBinomial",
     .in = "resource: resource, algorithm: int64, shape: S, counts: T, probs: T",
     .out = "output: dtype",
     .attrs = "S: {int32, int64}; T: " FIVE " = double; dtype: " FIVE " = int64",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_third,
     .kernels = PLAIN(run_state_binomial)},
    {.name = "StatelessRandomGammaV2",
     .in = "shape: T, seed: Tseed, alpha: dtype",
     .out = "output: dtype",
     .attrs = "dtype: {half, float, double}; T: {int32, int64}; Tseed: {int32, int64} = int64",
     .shape = shape_first,
     .grad = grad_stateless_gamma,
     .kernels = PLAIN(run_seed_gamma)},
    {.name = "StatelessRandomGammaV3",
     .in = "shape: shape_dtype, key: uint64, counter: uint64, alg: int32, alpha: dtype",
     .out = "output: dtype",
     .attrs = "dtype: {half, float, double}; shape_dtype: {int32, int64} = int32",
     .shape = shape_first,
     .grad = grad_stateless_gamma,
     .kernels = PLAIN(run_key_gamma)},
    {.name = "StatelessRandomPoisson",
     .in = "shape: T, seed: Tseed, lam: Rtype",
     .out = "output: dtype",
     .attrs = "Rtype: " FIVE "; dtype: " FIVE "; T: {int32, int64}; Tseed: {int32, int64} = int64",
     .flags = OP_NO_GRADIENT,
     .shape = shape_first,
     .kernels = PLAIN(run_seed_poisson)},
};
OP_FAMILY(random_dist, rows);
