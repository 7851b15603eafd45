/* Scales and zero points: attributes, inputs, ratios. */
#include "ops/quantized/quantized_scale.h"

#include <stdlib.h>

shoal_status side_read(const struct shoal_node *n, const char *prefix, struct side *out) {
  static const char *const names[] = {"axis", "min_val", "max_val"};
  int64_t *to[] = {&out->axis, &out->least, &out->most};
  for (int i = 0; i < 3; i++) {
    char *name = mem_printf("%squantization_%s", prefix, names[i]);
    shoal_status s = node_attr(n, name) ? node_get_int(n, name, to[i]) : NULL;
    free(name);
    TRY(s);
  }
  if (out->axis < -1) return INVALID("quantization_axis must be at least -1, given: %" PRId64, out->axis);
  if (out->least < INT32_MIN || out->most > INT32_MAX)
    return INVALID("quantization_min_val or _max_val is out of range");
  return NULL;
}

shoal_status scale_in(const struct kernel_ctx *ctx, int i, const struct shape *s, int64_t axis, struct scale *out) {
  const struct tensor *scales = ctx_in(ctx, i), *zeros = ctx_in(ctx, i + 1);
  if (axis < -1 || axis >= s->rank)
    return INVALID("quantization_axis %" PRId64 " is out of range for rank %d", axis, s->rank);
  int rank = axis < 0 ? 0 : 1;
  *out = (struct scale){scales->data, zeros->data, axis < 0 ? 1 : s->dims[axis],
                        axis < 0 ? 1 : dims_product(s->dims, (int)axis + 1, s->rank)};
  if (scales->rank != rank || zeros->rank != rank || scales->n != out->n || zeros->n != out->n)
    return INVALID("scales and zero_points must be %s: %s, %s", rank ? "vectors, of the axis' dimension" : "scalars",
                   tensor_shape_str(scales), tensor_shape_str(zeros));
  for (int64_t k = 0; k < out->n; k++)
    if (!(out->scales[k] > 0)) return INVALID("scales elements must be all positive.");
  return NULL;
}

shoal_status ratio_of(double v, struct ratio *out) {
  if (!isfinite(v) || v <= 0) return INVALID("The ratio of scales must be a positive finite number, given %g", v);
  int shift;
  int64_t fraction = (int64_t)round(frexp(v, &shift) * 2147483648.0);
  if (fraction == (int64_t)1 << 31) {
    fraction /= 2;
    shift++;
  }
  if (shift < -31) shift = 0, fraction = 0; /* nothing is left of any number */
  if (shift > 30) shift = 30, fraction = INT32_MAX;
  *out = (struct ratio){(int32_t)fraction, shift};
  return NULL;
}

int32_t requantized(struct ratio r, int32_t x, int32_t zero_in, int32_t zero_out, const struct side *to) {
  int by = 31 - r.shift;
  int32_t less = (int32_t)((uint32_t)x - (uint32_t)zero_in);
  int32_t v = level_clamped(((int64_t)less * r.fraction + ((int64_t)1 << (by - 1))) >> by);
  v = (int32_t)((uint32_t)v + (uint32_t)zero_out);
  return (int32_t)MAX(to->least, MIN((int64_t)v, to->most));
}

struct byte_line byte_line_of(float least, float most) {
  double lo = (double)least, hi = (double)most;
  float inverse = hi - lo != 0 ? (float)(255.0 / (hi - lo)) : 0, scale = (float)((hi - lo) / 255.0);
  if (scale == 0 || !isfinite(inverse)) return (struct byte_line){1, 0, 0};
  double from_lo = -128.0 - lo / (double)scale, from_hi = 127.0 - hi / (double)scale;
  double error_lo = 128.0 + fabs(lo / (double)scale), error_hi = 127.0 + fabs(hi / (double)scale);
  double z = error_lo < error_hi ? from_lo : from_hi;
  if (isnan(z)) z = 0; /* values without an end */
  return (struct byte_line){scale, inverse, z <= -128 ? -128 : z >= 127 ? 127 : (int32_t)round(z)};
}
