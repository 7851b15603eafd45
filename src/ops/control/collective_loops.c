#include "ops/control/collective_loops.h"

#include <string.h>

#include "base/mem.h"

static void merge(const struct collective_arithmetic *base, void *out, const void *x, const void *y, int64_t n) {
  binary_loop_run(&((const struct collective_loops *)base)->merge, out, x, y, n, VECTOR_VECTOR);
}

static bool is_real(shoal_dtype t) {
  return t == SHOAL_FLOAT32 || t == SHOAL_FLOAT64 || t == SHOAL_FLOAT16 || t == SHOAL_BFLOAT16;
}

static bool has_mean(shoal_dtype t) {
  return is_real(t) || t == SHOAL_INT32 || t == SHOAL_INT64 || t == SHOAL_COMPLEX64 || t == SHOAL_COMPLEX128;
}

/* To divide by a power of two, or to multiply by its inverse, which has all its bits, is the rounding of the same
 * number; but dividing takes as long as all the rest of a sum. */
static bool may_scale(const struct collective_loops *a, int members) {
  enum { MOST = 1024 }; /* its inverse is a normal number in every type */
  return is_real(a->dtype) && members <= MOST && (members & (members - 1)) == 0;
}

/* Divides by the number of members, in the values' own type. */
static void divide(const struct collective_arithmetic *base, void *sum, int members, int64_t n) {
  const struct collective_loops *a = (const struct collective_loops *)base;
  bool scales = may_scale(a, members);
  double real = scales ? 1.0 / members : members;
  union {
    float f[2];
    double d[2];
    int32_t i;
    int64_t l;
    uint16_t half;
  } by = {0}; /* of complex types the imaginary part stays so */
  switch (a->dtype) {
    case SHOAL_FLOAT64:
    case SHOAL_COMPLEX128: by.d[0] = real; break;
    case SHOAL_INT32: by.i = members; break;
    case SHOAL_INT64: by.l = members; break;
    case SHOAL_FLOAT16:
    case SHOAL_BFLOAT16: half_from_float(a->dtype, &by.half, &(float){(float)real}, 1); break;
    default: by.f[0] = (float)real;
  }
  binary_loop_run(scales ? &a->scale : &a->final, sum, sum, &by, n, VECTOR_SCALAR);
}

shoal_status collective_loops_init(struct collective_loops *a, const char *merge_op, const char *final_op,
                                   shoal_dtype dtype) {
  static const char *const loops[][2] = {[DEVICE_ADD] = {"Add", "Add"},
                                         [DEVICE_MUL] = {"Mul", "Mul"},
                                         [DEVICE_MAX] = {"Max", "Maximum"},
                                         [DEVICE_MIN] = {"Min", "Minimum"}};
  const char *loop = NULL;
  for (size_t i = 0; i < COUNT_OF(loops); i++)
    if (!strcmp(merge_op, loops[i][0])) {
      loop = loops[i][1];
      a->head.op = (enum device_merge)i;
    }
  if (!loop) return INVALID("merge_op must be one of {\"Add\", \"Mul\", \"Max\", \"Min\"} but got %s", merge_op);
  a->dtype = dtype;
  a->head.merge = merge;
  TRY(binary_loop_init(&a->merge, loop, dtype, dtype));
  if (strcmp(final_op, "Div")) return NULL;
  if (!has_mean(dtype)) return INVALID("final_op \"Div\" is not for values of type %s", dtype_tf_name(dtype));
  a->head.final = divide;
  if (is_real(dtype)) TRY(binary_loop_init(&a->scale, "Mul", dtype, dtype));
  return binary_loop_init(&a->final, "Div", dtype, dtype);
}
