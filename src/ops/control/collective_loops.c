#include "ops/control/collective_loops.h"

#include <string.h>

#include "base/mem.h"

static void merge(const struct collective_arithmetic *base, void *out, const void *x, const void *y, int64_t n) {
  binary_loop_run(&((const struct collective_loops *)base)->merge, out, x, y, n, VECTOR_VECTOR);
}

/* Divides by the number of members, in the values' own type. */
static void divide(const struct collective_arithmetic *base, void *sum, int members, int64_t n) {
  const struct collective_loops *a = (const struct collective_loops *)base;
  union {
    float f;
    double d;
    int32_t i;
    int64_t l;
    uint16_t half;
  } by;
  switch (a->dtype) {
    case SHOAL_FLOAT64: by.d = members; break;
    case SHOAL_INT32: by.i = members; break;
    case SHOAL_INT64: by.l = members; break;
    case SHOAL_FLOAT16:
    case SHOAL_BFLOAT16: half_from_float(a->dtype, &by.half, &(float){(float)members}, 1); break;
    default: by.f = (float)members;
  }
  binary_loop_run(&a->final, sum, sum, &by, n, VECTOR_SCALAR);
}

shoal_status collective_loops_init(struct collective_loops *a, const char *merge_op, const char *final_op,
                                   shoal_dtype dtype) {
  static const char *const loops[][2] = {{"Add", "Add"}, {"Mul", "Mul"}, {"Max", "Maximum"}, {"Min", "Minimum"}};
  const char *loop = NULL;
  for (size_t i = 0; i < COUNT_OF(loops); i++)
    if (!strcmp(merge_op, loops[i][0])) loop = loops[i][1];
  if (!loop) return INVALID("merge_op must be one of {\"Add\", \"Mul\", \"Max\", \"Min\"} but got %s", merge_op);
  a->dtype = dtype;
  a->head.merge = merge;
  TRY(binary_loop_init(&a->merge, loop, dtype, dtype));
  if (strcmp(final_op, "Div")) return NULL;
  a->head.final = divide;
  return binary_loop_init(&a->final, "Div", dtype, dtype);
}
