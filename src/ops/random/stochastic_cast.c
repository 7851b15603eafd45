/* StochasticCastToInt: numbers to integers, rounded up or down by chance, the nearer the likelier, so that the mean
 * stays. The chance is that of a key and a counter: the same ones give the same integers.
 *
 * Each element has a number of its own from the stream. TensorFlow gives the elements of a vector register numbers of
 * one block, as many as its build's registers hold, so which way it rounds differs between its own builds; what is
 * certain (integers, limits, NaN) is as there. */
#include <math.h>

#include "ops/array/array_util.h"
#include "ops/random/random_fill.h"
#include "ops/random/random_variable.h"

enum { BLOCK = 1024 };

static double round_by(double v, double random, double least, double most) {
  if (isnan(v)) return 0;
  if (v >= most) return most;
  if (v <= least) return least;
  if (floor(v) == v) return v;
  return v < 0 ? floor(v + random) : floor(v + 1 - random);
}

static shoal_status run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape s = tensor_shape(x);
  struct philox p;
  struct tensor *y;
  TRY(random_from_key(ctx, &p));
  TRY(ctx_out(ctx, 0, &s, &y));
  size_t size = dtype_size((shoal_dtype)y->dtype);
  double least = size == 1 ? INT8_MIN : size == 2 ? INT16_MIN : INT32_MIN, most = -least - 1;
  float random[BLOCK];
  for (int64_t at = 0; at < x->n; at += BLOCK) {
    int64_t n = MIN(BLOCK, x->n - at);
    random_fill(NULL, p, RANDOM_UNIFORM, SHOAL_FLOAT32, random, n);
    philox_skip(&p, BLOCK / 4);
    for (int64_t i = 0; i < n; i++) real_put(y, at + i, round_by(real_at(x, at + i), (double)random[i], least, most));
  }
  return NULL;
}

static const struct op_row rows[] = {
    {.name = "StochasticCastToInt",
     .in = "input: Tin, key: uint64, counter: uint64, alg: int32",
     .out = "output: Tout",
     .attrs = "Tin: {half, bfloat16, float, double}; Tout: {int8, int16, int32}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = (const struct kernel_def[]){{.device = "CPU", .run = run}, {0}}},
};
OP_FAMILY(stochastic_cast, rows);
