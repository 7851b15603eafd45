/* Quantized numbers with a scale and a zero point (value = scale * (integer - zero point)), one pair for a tensor or
 * one for each slice along an axis: what the Uniform ops share.
 *
 * A ratio of scales is a 31-bit fraction and a power of two, so that the rest is integers: x * fraction, rounded once,
 * shifted. */
#ifndef OPS_QUANTIZED_QUANTIZED_SCALE_H
#define OPS_QUANTIZED_QUANTIZED_SCALE_H

#include "ops/quantized/quantized.h"

/* Attributes of an operand or result: the axis of its slices (-1: none), and its least and highest integer. */
struct side {
  int64_t axis, least, most;
};
/* Reads PREFIXquantization_axis, _min_val and _max_val, as far as the op has them. */
shoal_status side_read(const struct shoal_node *n, const char *prefix, struct side *out);

/* Scales and zero points of a tensor, by slice. */
struct scale {
  const float *scales;
  const int32_t *zeros;
  int64_t n, inner; /* how many, and how many elements a slice has */
};
/* Inputs i and i + 1, for a tensor of that shape: as many as the axis is long, all positive. */
shoal_status scale_in(const struct kernel_ctx *ctx, int i, const struct shape *s, int64_t axis, struct scale *out);
static inline int64_t slice_of(const struct scale *s, int64_t i) { return s->n == 1 ? 0 : i / MAX(s->inner, 1) % s->n; }

/* A number's multiplier: x * fraction / 2^(31 - shift). */
struct ratio {
  int32_t fraction;
  int shift;
};
shoal_status ratio_of(double v, struct ratio *out);
/* (x - zero_in) * r + zero_out, within to. */
int32_t requantized(struct ratio r, int32_t x, int32_t zero_in, int32_t zero_out, const struct side *to);

/* How floats within [least, most] (zero included) become bytes: round(x * inverse) + zero; a byte stands for
 * scale * (byte - zero). inverse is 0 where nothing but zeros can be told apart. */
struct byte_line {
  float scale, inverse;
  int32_t zero;
};
struct byte_line byte_line_of(float least, float most);
static inline int8_t byte_of(const struct byte_line *b, float x) {
  if (b->inverse == 0) return 0;
  int64_t q = level_int((double)floorf(x * b->inverse + 0.5f)) + b->zero;
  return (int8_t)MAX(-128, MIN(q, 127));
}

/* ---- rows ---- */

#define UNIFORM_SIDE(name) \
  name "quantization_axis: int = -1; " name "quantization_min_val: int; " name "quantization_max_val: int"
#define UNIFORM_SCALES(name) name "scales: float, " name "zero_points: int32"

#endif
