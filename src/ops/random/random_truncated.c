/* Normal numbers between bounds of one's own: ParameterizedTruncatedNormal, and from a pair of seeds
 * StatelessParameterizedTruncatedNormal, whose parameters are broadcast.
 *
 * Three methods, by where the bounds are: reject normal numbers when most of the curve is inside;
 * reject uniform ones when the bounds are close together; reject exponential ones in a tail. Batches go one after
 * another through the random stream, which is how TensorFlow does it on one thread. */
#include <inttypes.h>
#include <math.h>

#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/array/array_util.h"
#include "ops/math/broadcast.h"
#include "ops/random/random_fill.h"

enum { MAX_TRIES = 1000, COMMON_BATCH = 100 };

/* ---- arithmetic of the element type, held in doubles ---- */

static double exp_in(shoal_dtype t, double v) {
  return t == SHOAL_FLOAT64 ? exp(v) : real_rounded(t, (double)expf((float)v));
}
static double log_in(shoal_dtype t, double v) {
  return t == SHOAL_FLOAT64 ? log(v) : real_rounded(t, (double)logf((float)v));
}

static double get(const struct tensor *t, int64_t i) { return real_at(t, t->n == 1 ? 0 : i); }

/* Where numbers go: left of them, from element at on, each so many further than the one before. */
struct drawing_target {
  struct tensor *out;
  int64_t at, left, step;
};

static void put(struct drawing_target *to, double v) {
  real_put(to->out, to->at, v);
  to->at += to->step;
  to->left--;
}

/* A group of numbers from one block: four, or two doubles. */
static int group(struct philox *p, shoal_dtype t, bool normal, double out[4]) {
  uint32_t x[4];
  philox_next(p, x);
  if (t == SHOAL_FLOAT64) {
    if (normal) philox_normal_double(x, out);
    else
      for (int i = 0; i < 2; i++) out[i] = philox_double(x[2 * i], x[2 * i + 1]);
    return 2;
  }
  float v[4];
  for (int i = 0; normal && i < 4; i += 2) philox_normal_float(x[i], x[i + 1], v + i);
  for (int i = 0; i < 4; i++) {
    f16 half = {(uint16_t)(15u << 10 | (x[i] & 0x3ffu))};
    out[i] = normal               ? real_rounded(t, (double)v[i])
             : t == SHOAL_FLOAT16 ? (double)(f16_to_float(half) - 1.0f)
                                  : (double)philox_float(x[i]);
  }
  return 4;
}

struct truncation {
  shoal_dtype t;
  double mean, dev, lo, hi; /* lo and hi in deviations from the mean */
};

static double back(const struct truncation *b, double v) {
  return real_rounded(b->t, real_rounded(b->t, v * b->dev) + b->mean);
}

static shoal_status gave_up(const char *method) {
  return INTERNAL("TruncatedNormal %s rejection sampler failed to accept a sample.", method);
}

static shoal_status by_normal(const struct truncation *b, struct philox *p, struct drawing_target *to) {
  for (int tries = 0; to->left;) {
    double v[4];
    int n = group(p, b->t, true, v);
    for (int i = 0; i < n && to->left; i++) {
      if (v[i] >= b->lo && v[i] <= b->hi) {
        put(to, back(b, v[i]));
        tries = 0;
      } else if (++tries > MAX_TRIES) {
        return gave_up("randn");
      }
    }
  }
  return NULL;
}

static shoal_status by_uniform(const struct truncation *b, struct philox *p, struct drawing_target *to) {
  shoal_dtype t = b->t;
  double width = real_rounded(t, b->hi - b->lo), plus = b->lo < 0 ? 0 : real_rounded(t, b->lo * b->lo);
  for (int tries = 0; to->left;) {
    double r[4], u[4];
    int n = group(p, t, false, r);
    group(p, t, false, u);
    for (int i = 0; i < n && to->left; i++) {
      double z = real_rounded(t, real_rounded(t, r[i] * width) + b->lo);
      double g = real_rounded(t, real_rounded(t, plus - real_rounded(t, z * z)) / 2);
      if (u[i] <= exp_in(t, g)) {
        put(to, back(b, z));
        tries = 0;
      } else if (++tries >= MAX_TRIES) {
        return gave_up("uniform");
      }
    }
  }
  return NULL;
}

static shoal_status by_exponential(const struct truncation *b, struct philox *p, struct drawing_target *to) {
  shoal_dtype t = b->t;
  double alpha = real_rounded(
      t, real_rounded(t, b->lo + real_rounded(t, sqrt(real_rounded(t, real_rounded(t, b->lo * b->lo) + 4)))) / 2);
  for (int tries = 0; to->left;) {
    double r[4];
    int n = group(p, t, false, r);
    for (int i = 0; i < n && to->left; i += 2) {
      double z = real_rounded(t, real_rounded(t, -log_in(t, r[i]) / alpha) + b->lo);
      double x = real_rounded(t, b->lo < alpha ? alpha - z : b->lo - alpha),
             g = exp_in(t, real_rounded(t, real_rounded(t, -x * x) / 2));
      if (r[i + 1] <= g && z < b->hi) {
        put(to, back(b, z));
        tries = 0;
      } else if (++tries >= MAX_TRIES) {
        return gave_up("exponential distribution");
      }
    }
  }
  return NULL;
}

/* The numbers of one set of parameters, which are at those places of four inputs. */
static shoal_status fill_batch(struct kernel_ctx *ctx, struct philox *p, struct drawing_target *to, int first,
                               const int64_t at[4]) {
  shoal_dtype t = (shoal_dtype)to->out->dtype;
  struct truncation b = {.t = t, .mean = get(ctx_in(ctx, first), at[0]), .dev = get(ctx_in(ctx, first + 1), at[1])};
  double lo = get(ctx_in(ctx, first + 2), at[2]), hi = get(ctx_in(ctx, first + 3), at[3]);
  if (!(b.dev > 0 && lo < hi && (isfinite(lo) || isfinite(hi)))) return INVALID("Invalid parameters");
  if ((isinf(lo) && lo < 0) || hi < b.mean) { /* a bound on one side becomes the lower one */
    double swap = lo;
    lo = hi;
    hi = swap;
    b.dev = -b.dev;
  }
  b.lo = real_rounded(t, real_rounded(t, lo - b.mean) / b.dev);
  b.hi = real_rounded(t, real_rounded(t, hi - b.mean) / b.dev);
  const double inside = real_rounded(t, 1.3);
  if ((b.lo < -inside && b.hi >= 0) || (b.hi > inside && b.lo <= 0)) return by_normal(&b, p, to);
  double root = real_rounded(t, sqrt(real_rounded(t, real_rounded(t, b.lo * b.lo) + 4)));
  double exponent = real_rounded(t, 0.5 + real_rounded(t, real_rounded(t, b.lo * real_rounded(t, b.lo - root)) / 4));
  double cutoff = real_rounded(t, real_rounded(t, 2 * exp_in(t, exponent)) / real_rounded(t, b.lo + root));
  if (real_rounded(t, b.hi - b.lo) < cutoff) return by_uniform(&b, p, to);
  return by_exponential(&b, p, to);
}

static shoal_status run_truncated(struct kernel_ctx *ctx) {
  static const char *const names[] = {"", "means", "stddevs", "minvals", "maxvals"};
  struct shape shape;
  TRY(random_shape(ctx_in(ctx, 0), &shape));
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  if (shape.rank < 1) return INVALID("Shape tensor must not be empty, got [0]");
  int64_t batches = shape.dims[0], per_batch = batches ? out->n / batches : 0;
  bool common = true;
  for (int i = 1; i < 5; i++) {
    const struct tensor *t = ctx_in(ctx, i);
    struct shape s = tensor_shape(t);
    if (t->rank > 1) return INVALID("Input %s should be a scalar or vector, got shape: %s", names[i], shape_str(&s));
    if (t->rank == 1 && t->n != 1 && t->n != batches)
      return INVALID("Input %s should have length 1 or shape[0], got shape: %s", names[i], shape_str(&s));
    if (i < 3 ? t->n != 1 : t->rank != 0) common = false;
  }
  if (out->n == 0) return NULL;
  if (common) {
    per_batch = COMMON_BATCH;
    batches = (out->n + per_batch - 1) / per_batch;
  }
  struct philox p = random_reserve(ctx->state, (uint64_t)batches * 2 * MAX_TRIES * (uint64_t)(per_batch + 3) / 4);
  for (int64_t b = 0; b < batches; b++) {
    struct drawing_target to = {out, b * per_batch, MIN(per_batch, out->n - b * per_batch), 1};
    TRY(fill_batch(ctx, &p, &to, 1, (int64_t[]){b, b, b, b}));
  }
  return NULL;
}

/* ---- from a pair of seeds: [samples, batches], batches being the parameters' shape ---- */

struct seeded {
  struct kernel_ctx *ctx;
  struct philox p;
  struct drawing_target all;
  int64_t batches;
  bool step[4];
  shoal_status s;
};

static void fill_stretch(void *arg, int64_t at, const int64_t *in_at, int64_t n) {
  struct seeded *d = arg;
  for (int64_t i = 0; !d->s && i < n; i++) {
    struct drawing_target to = {d->all.out, at + i, d->all.left, d->batches};
    int64_t places[4];
    for (int k = 0; k < 4; k++) places[k] = in_at[k] + (d->step[k] ? i : 0);
    d->s = fill_batch(d->ctx, &d->p, &to, 2, places);
  }
}

static shoal_status run_seeded(struct kernel_ctx *ctx) {
  const struct tensor *in[4];
  struct seeded d = {.ctx = ctx};
  struct broadcast plan;
  struct shape shape;
  for (int i = 0; i < 4; i++) in[i] = ctx_in(ctx, 2 + i);
  TRY(random_from_seed_tensor(ctx_in(ctx, 1), &d.p));
  TRY(broadcast_plan(&plan, in, 4));
  TRY(random_shape(ctx_in(ctx, 0), &shape));
  int more = shape.rank - plan.out.rank;
  bool ends = more >= 0;
  for (int i = 0; ends && i < plan.out.rank; i++) ends = shape.dims[more + i] == plan.out.dims[i];
  if (!ends) return INVALID("Shape passed in must end with broadcasted shape.");
  TRY(ctx_out(ctx, 0, &shape, &d.all.out));
  if (!d.all.out->n) return NULL;
  d.batches = plan.n;
  d.all.left = d.all.out->n / plan.n;
  for (int i = 0; i < 4; i++) d.step[i] = broadcast_inner(&plan, i);
  broadcast_each(&plan, 0, plan.n, fill_stretch, &d);
  return d.s;
}

static shoal_status shape_first(struct shape_ctx *c) { return shape_in_value(c, 0, &c->out[0]); }

static const struct op_row rows[] = {
    {.name = "ParameterizedTruncatedNormal",
     .in = "shape: T, means: dtype, stdevs: dtype, minvals: dtype, maxvals: dtype",
     .out = "output: dtype",
     .attrs = "seed: int = 0; seed2: int = 0; dtype: {half, bfloat16, float, double}; T: {int32, int64}",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_first,
     .kernels = (const struct kernel_def[]){{.device = "CPU",
                                             .borrowable = true,
                                             .type_attr = "dtype",
                                             .types = DT(FLOAT16) | DT(FLOAT32) | DT(FLOAT64),
                                             .flags = KERNEL_EXPENSIVE,
                                             .state_size = sizeof(struct random_state),
                                             .init = random_state_init,
                                             .release = random_state_release,
                                             .run = run_truncated},
                                            {0}}},
    {.name = "StatelessParameterizedTruncatedNormal",
     .in = "shape: S, seed: Tseed, means: dtype, stddevs: dtype, minvals: dtype, maxvals: dtype",
     .out = "output: dtype",
     .attrs = "S: {int32, int64}; Tseed: {int32, int64} = int64; dtype: {half, float, double}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_first,
     .kernels = (const struct kernel_def[]){{.device = "CPU",
                                             .borrowable = true,
                                             .type_attr = "dtype",
                                             .types = DT(FLOAT16) | DT(FLOAT32) | DT(FLOAT64),
                                             .flags = KERNEL_EXPENSIVE,
                                             .run = run_seeded},
                                            {0}}},
};
OP_FAMILY(random_truncated, rows);
