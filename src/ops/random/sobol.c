/* SobolSample: points of Sobol's low-discrepancy sequence, after Joe and Kuo ("Notes on generating Sobol sequences").
 *
 * A coordinate is the sum, without carry, of direction numbers chosen by the bits of the point's Gray code, so a point
 * differs from the one before it by one of them. Dimension 1 has direction numbers of 1; of another, a primitive
 * polynomial of degree s and s odd numbers make all the rest. Those are kept as a stream of bits, six to a character
 * (from '0' on): 14 bits of polynomial, then number k (k = 1 to s - 1; number 0 is 1) without its last bit, in k bits.
 *
 * Results are TensorFlow's to the bit, also past 2^30 points, where a shift of its overflows and they are negative.
 * TensorFlow has numbers for 21,200 dimensions; here are the first 1,111, and more are refused by name. */
#include "graph/shape_fn.h"
#include "ops/array/array_util.h"

#include "ops/random/sobol_numbers.inc"

enum { DIGITS = 31, THEIR_DIMS = 21200 };

struct bit_stream {
  int64_t at;
};

static uint32_t next_bits(struct bit_stream *s, int n) {
  uint32_t v = 0;
  for (; n > 0; n--, s->at++) v = v << 1 | ((uint32_t)(sobol_bits[s->at / 6] - '0') >> (5 - s->at % 6) & 1);
  return v;
}

/* The direction numbers of the next dimension, as fractions of so many digits. */
static void next_directions(struct bit_stream *s, bool first, int digits, uint32_t *v) {
  uint32_t m[DIGITS];
  uint32_t polynomial = first ? 1 : next_bits(s, 14);
  int degree = 31 - __builtin_clz(polynomial);
  for (int k = 0; k < DIGITS; k++) {
    if (k < degree || degree == 0) {
      m[k] = degree == 0 || k == 0 ? 1 : next_bits(s, k) << 1 | 1;
      continue;
    }
    m[k] = m[k - degree];
    for (int i = 1; i <= degree; i++)
      if (polynomial >> (degree - i) & 1) m[k] ^= m[k - i] << i;
  }
  for (int k = 0; k < digits; k++) v[k] = m[k] << (digits - k - 1);
}

struct sampling {
  int32_t skip, n, dims;
  int digits;
  struct tensor *out;
};

static void put(const struct sampling *a, int64_t row, int64_t column, uint32_t v) {
  double unit = 1.0 / (double)(int32_t)(1u << a->digits); /* of 31 digits: negative */
  int64_t at = row * a->dims + column;
  if (a->out->dtype == SHOAL_FLOAT64) T_DATA(a->out, double)[at] = (double)(int32_t)v * unit;
  else T_DATA(a->out, float)[at] = (float)(int32_t)v * (float)unit;
}

static void sample(const struct sampling *a) {
  struct bit_stream bits = {0};
  uint32_t v[DIGITS];
  for (int32_t d = 0; d < a->dims; d++) {
    next_directions(&bits, d == 0, a->digits, v);
    uint32_t first = (uint32_t)a->skip + 1, gray = first ^ first >> 1, x = 0;
    for (int k = 0; k < a->digits; k++)
      if (gray >> k & 1) x ^= v[k];
    put(a, 0, d, x);
    for (int32_t i = 1; i < a->n; i++) {
      x ^= v[__builtin_ctz(~((uint32_t)i + (uint32_t)a->skip))]; /* by the last zero */
      put(a, i, d, x);
    }
  }
}

static shoal_status run(struct kernel_ctx *ctx) {
  static const char *const names[] = {"dim", "num_results", "skip"};
  int32_t v[3];
  for (int i = 0; i < 3; i++) {
    if (ctx_in(ctx, i)->rank) return INVALID("%s must be a scalar", names[i]);
    v[i] = *T_DATA(ctx_in(ctx, i), const int32_t);
  }
  struct sampling a = {.dims = v[0], .n = v[1], .skip = v[2]};
  if (a.dims < 1) return INVALID("dim must be at least one");
  if (a.dims > THEIR_DIMS) return INVALID("dim must be at most %d", THEIR_DIMS);
  if (a.dims > SOBOL_DIMS)
    return UNIMPLEMENTED("SobolSample of %d dimensions: there are direction numbers for %d", a.dims, SOBOL_DIMS);
  if (a.n < 1) return INVALID("num_results must be at least one");
  if (a.skip < 0) return INVALID("skip must be non-negative");
  if (a.n >= INT32_MAX - a.skip) return INVALID("num_results+skip must be less than %d", INT32_MAX);
  a.digits = 32 - __builtin_clz((uint32_t)a.skip + (uint32_t)a.n + 1);
  TRY(ctx_out_dims(ctx, 0, 2, (int64_t[]){a.n, a.dims}, &a.out));
  sample(&a);
  return NULL;
}

static shoal_status shape(struct shape_ctx *c) {
  int64_t n[2];
  for (int i = 0; i < 2; i++) n[i] = c->values[1 - i] && c->values[1 - i]->n == 1 ? int_at(c->values[1 - i], 0) : -1;
  c->out[0] = shape_matrix(MAX(n[0], -1), MAX(n[1], -1));
  return NULL;
}

static const struct op_row rows[] = {
    {.name = "SobolSample",
     .flags = OP_NO_GRADIENT,
     .shape = shape,
     .in = "dim: int32, num_results: int32, skip: int32",
     .out = "samples: dtype",
     .attrs = "dtype: {float, double} = float",
     .kernels = (const struct kernel_def[]){{.device = "CPU",
                                             .type_attr = "dtype",
                                             .types = DT(FLOAT32) | DT(FLOAT64),
                                             .flags = KERNEL_EXPENSIVE,
                                             .run = run},
                                            {0}}},
};
OP_FAMILY(sobol, rows);
