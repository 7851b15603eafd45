/* ops/image: pictures: codecs, resizing, colours, crops, boxes. */

/* Pixels as floats, for the image families. */
#include "ops/image/image.h"

shoal_status image_floats(const struct tensor *x, struct tensor *out) {
  if (x->dtype == SHOAL_FLOAT32) {
    tensor_ref(out, x);
    return NULL;
  }
  TRY(tensor_new_dims(out, SHOAL_FLOAT32, x->rank, x->dims));
  float *y = out->data;
#define CONVERT(e, type, name, group) CONVERT_##group(e, type)
#define CONVERT_I(e, type)                                                     \
  case e:                                                                      \
    for (int64_t i = 0; i < x->n; i++) y[i] = (float)T_DATA(x, const type)[i]; \
    break;
#define CONVERT_U(e, type) CONVERT_I(e, type)
#define CONVERT_B(e, type)
#define CONVERT_C(e, type)
#define CONVERT_Q(e, type)
#define CONVERT_F(e, type)
  switch (x->dtype) {
    DTYPE_PLAIN(CONVERT)
    case SHOAL_FLOAT64:
      for (int64_t i = 0; i < x->n; i++) y[i] = (float)T_DATA(x, const double)[i];
      break;
    case SHOAL_FLOAT16:
      for (int64_t i = 0; i < x->n; i++) y[i] = f16_to_float(T_DATA(x, const f16)[i]);
      break;
    case SHOAL_BFLOAT16:
      for (int64_t i = 0; i < x->n; i++) y[i] = bf16_to_float(T_DATA(x, const bf16)[i]);
      break;
    default: tensor_release(out); return UNIMPLEMENTED("Images of type %s", dtype_tf_name(x->dtype));
  }
  return NULL;
}

void image_store(const float *from, struct tensor *y) {
  for (int64_t i = 0; i < y->n; i++) switch (y->dtype) {
      case SHOAL_FLOAT32: T_DATA(y, float)[i] = from[i]; break;
      case SHOAL_FLOAT64: T_DATA(y, double)[i] = from[i]; break;
      case SHOAL_FLOAT16: T_DATA(y, f16)[i] = f16_from_float(from[i]); break;
      default: T_DATA(y, bf16)[i] = bf16_from_float(from[i]);
    }
}

shoal_status image_size(const struct kernel_ctx *ctx, int i, int64_t *height, int64_t *width) {
  const struct tensor *s = ctx_in(ctx, i);
  if (s->rank != 1) return INVALID("shape_t must be 1-dimensional%s", tensor_shape_str(s));
  if (s->n != 2) return INVALID("shape_t must have two elements%s", tensor_shape_str(s));
  *height = int_at(s, 0);
  *width = int_at(s, 1);
  if (*height <= 0 || *width <= 0) return INVALID("output dimensions must be positive");
  return NULL;
}
