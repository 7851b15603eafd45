/* What the families of quantized numbers share: integers of a type as the floats of a range [lo, hi] that they stand
 * for, and back. The lowest integer stands for lo, the highest for hi; lo is rounded to a step so that zero is exact.
 * Results are TensorFlow's to the bit, which is why what looks alike here is computed now in floats and now in doubles.
 */
#ifndef OPS_QUANTIZED_QUANTIZED_H
#define OPS_QUANTIZED_QUANTIZED_H

#include <math.h>

#include "ops/nn/nn_util.h"

/* A quantized type: how many integers there are, and the lowest. */
struct levels {
  double steps;
  int64_t lowest, highest;
};
static const struct levels levels_quint8 = {256, 0, 255}, levels_qint8 = {256, -128, 127},
                           levels_qint32 = {4294967296.0, INT32_MIN, INT32_MAX};
static inline const struct levels *levels_of(shoal_dtype t) {
  return t == SHOAL_QUINT8 ? &levels_quint8 : t == SHOAL_QINT8 ? &levels_qint8 : &levels_qint32;
}

/* Element i of a tensor of such a type. */
static inline int32_t level_at(const struct tensor *t, int64_t i) {
  if (t->dtype == SHOAL_QUINT8) return T_DATA(t, const uint8_t)[i];
  return t->dtype == SHOAL_QINT8 ? T_DATA(t, const int8_t)[i] : T_DATA(t, const int32_t)[i];
}
static inline void level_put(struct tensor *t, int64_t i, int64_t v) {
  if (t->dtype == SHOAL_QUINT8) T_DATA(t, uint8_t)[i] = (uint8_t)v;
  else if (t->dtype == SHOAL_QINT8) T_DATA(t, int8_t)[i] = (int8_t)v;
  else T_DATA(t, int32_t)[i] = (int32_t)v;
}

/* What a double is as an integer; nothing, where it is none (ranges come from outside). */
static inline int64_t level_int(double v) { return v > -9e18 && v < 9e18 ? (int64_t)v : 0; }

static inline int32_t level_clamped(int64_t v) { return (int32_t)MAX(INT32_MIN, MIN(v, INT32_MAX)); }

/* The integer for a float, perhaps past the type's. */
static inline int64_t level_of(const struct levels *l, float x, float lo, float hi) {
  if (lo == hi) return l->lowest;
  double range = (double)(hi - lo) * (l->steps / (l->steps - 1.0)), scale = l->steps / range;
  return level_int(round((double)x * scale) - round((double)lo * scale)) + l->lowest;
}

static inline float level_value(const struct levels *l, int32_t q, float lo, float hi) {
  if (lo == hi) return lo;
  double scale = (double)(hi - lo) * (l->steps / (l->steps - 1.0)) / l->steps;
  float least = roundf(lo / (float)scale) * (float)scale;
  return (float)((double)least + ((double)q - (double)l->lowest) * scale);
}

/* The same in floats throughout: value = base + q * scale, and q = round(x * scale) - base within [least, most]. */
struct level_line {
  float scale, base, least, most;
};
static inline struct level_line line_to_float(const struct levels *l, float lo, float hi) {
  float scale = (float)((double)(hi - lo) / (l->steps - 1.0));
  float rounded = lo == hi ? lo : roundf(lo / scale) * scale;
  return (struct level_line){scale, rounded - (float)l->lowest * scale, 0, 0};
}
static inline struct level_line line_from_float(const struct levels *l, float lo, float hi) {
  float scale = lo == hi ? 0 : (float)((l->steps - 1.0) / (double)(hi - lo));
  return (struct level_line){scale, roundf(lo * scale) - (float)l->lowest, fmaxf((float)l->lowest, -2147483648.0f),
                             fminf((float)l->highest, 2147483520.0f)};
}
static inline float line_value(const struct level_line *to, int32_t q) { return to->base + (float)q * to->scale; }
static inline int32_t line_level(const struct level_line *from, float x) {
  float v = roundf(x * from->scale) - from->base;
  v = v > from->least ? v : from->least; /* what is no number becomes the least */
  return (int32_t)(v < from->most ? v : from->most);
}

/* The float that one step of a product of two stands for. */
static inline float product_level(const struct levels *a, float a_lo, float a_hi, const struct levels *b, float b_lo,
                                  float b_hi) {
  return (a_hi - a_lo) / (float)(a->highest - a->lowest) * ((b_hi - b_lo) / (float)(b->highest - b->lowest));
}

/* The integer that stands for zero. */
static inline int32_t zero_of(const struct levels *l, float lo, float hi) {
  return (int32_t)(uint32_t)(uint64_t)level_of(l, 0, lo, hi);
}

/* A range's end, which must be one number. */
static inline shoal_status range_in(const struct kernel_ctx *ctx, int i, const char *name, float *out) {
  if (ctx_in(ctx, i)->n != 1)
    return INVALID("%s must be a scalar, but got %" PRId64 " elements", name, ctx_in(ctx, i)->n);
  *out = *T_DATA(ctx_in(ctx, i), const float);
  return NULL;
}
static inline shoal_status range_out(struct kernel_ctx *ctx, int i, float v) {
  struct tensor *t;
  TRY(ctx_out_dims(ctx, i, 0, NULL, &t));
  *T_DATA(t, float) = v;
  return NULL;
}

/* Shapes of outputs 1 and 2, a range's ends; and of output 0, where it is that of input 0. */
static inline shoal_status ranges_shape(struct shape_ctx *c) {
  c->out[1] = c->out[2] = shape_scalar();
  return NULL;
}
static inline shoal_status like_shape(struct shape_ctx *c) {
  c->out[0] = c->in[0];
  return ranges_shape(c);
}

/* ---- rows ---- */

#define Q "{quantizedtype}"
#define ONE_KERNEL(...)                   \
  (const struct kernel_def[]) {           \
    {.device = "CPU", __VA_ARGS__}, { 0 } \
  }
/* Attributes of types that are both bytes. */
#define BYTES(a, b) .type_attr = a, .types = DT(QUINT8), .type_attr2 = b, .types2 = DT(QUINT8)

#endif
