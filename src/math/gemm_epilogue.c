/* What happens to sums before they are stored: scale, bias, a matrix added, an activation, rounding to the type
 * of C. Runs on rows that are still in the first-level cache. */
#include "math/gemm_epilogue.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/vector.h"
#include "math/narrow.h"

static const struct {
  const char *name;
  enum gemm_act act;
} names[] = {
    {"Relu", GEMM_RELU},
    {"Relu6", GEMM_RELU6},
    {"Elu", GEMM_ELU},
    {"LeakyRelu", GEMM_LEAKY_RELU},
    {"Tanh", GEMM_TANH},
    {"Sigmoid", GEMM_SIGMOID},
    {"GeluExact", GEMM_GELU_EXACT},
    {"GeluApproximate", GEMM_GELU_APPROXIMATE},
    {"_MklSwish", GEMM_SWISH},
    {"Swish", GEMM_SWISH},
};

bool gemm_act_from_name(const char *name, enum gemm_act *out) {
  for (size_t i = 0; i < COUNT_OF(names); i++)
    if (!strcmp(names[i].name, name)) {
      *out = names[i].act;
      return true;
    }
  return false;
}

#define T float
#define NAME gemm_activate
#define EXP expf
#define EXPM1 expm1f
#define TANH tanhf
#define ERF erff
#include "math/gemm_activate.inc"
#define T double
#define NAME gemm_activate_double
#define EXP exp
#define EXPM1 expm1
#define TANH tanh
#define ERF erf
#include "math/gemm_activate.inc"

VECTOR_CLONES static void finish_float(const struct gemm_epilogue *e, float *x, int64_t row, int64_t j0, int64_t n,
                                       shoal_dtype type) {
  if (e->scale) {
    const float *s = (const float *)e->scale + j0;
    for (int64_t j = 0; j < n; j++) x[j] *= s[j];
  }
  if (e->bias) {
    const float *b = (const float *)e->bias + j0;
    for (int64_t j = 0; j < n; j++) x[j] += b[j];
  }
  if (e->add) {
    int64_t at = row * e->ld_add + j0;
    if (type == SHOAL_FLOAT32)
      for (int64_t j = 0; j < n; j++) x[j] += ((const float *)e->add)[at + j];
    else if (type == SHOAL_FLOAT16)
      for (int64_t j = 0; j < n; j++) x[j] += f16_to_float(((const f16 *)e->add)[at + j]);
    else
      for (int64_t j = 0; j < n; j++) x[j] += bf16_to_float(((const bf16 *)e->add)[at + j]);
  }
  gemm_activate(x, n, e->act, e->alpha);
  if (e->last) e->last(e->arg, x, row, j0, n);
}

static void finish_double(const struct gemm_epilogue *e, double *x, int64_t row, int64_t j0, int64_t n) {
  for (int64_t j = 0; j < n; j++) {
    if (e->scale) x[j] *= ((const double *)e->scale)[j0 + j];
    if (e->bias) x[j] += ((const double *)e->bias)[j0 + j];
    if (e->add) x[j] += ((const double *)e->add)[row * e->ld_add + j0 + j];
  }
  gemm_activate_double(x, n, e->act, (double)e->alpha);
}

VECTOR_CLONES static void round_f16(f16 *to, const float *x, int64_t n) {
  for (int64_t j = 0; j < n; j++) to[j] = f16_from_float(x[j]);
}

#define NARROW(type, wide)                                              \
  {                                                                     \
    type *to = (type *)g->c + row * g->ldc + j0;                        \
    for (int64_t j = 0; j < n; j++) to[j] = (type)((const wide *)x)[j]; \
    break;                                                              \
  }

void gemm_finish_row(const struct gemm *g, void *x, int64_t row, int64_t j0, int64_t n) {
  shoal_dtype acc = gemm_acc_type(g->type);
  if (g->epilogue) {
    if (acc == SHOAL_FLOAT32) finish_float(g->epilogue, x, row, j0, n, g->type);
    else if (acc == SHOAL_FLOAT64) finish_double(g->epilogue, x, row, j0, n);
  }
  switch (g->type) {
    case SHOAL_FLOAT16: round_f16((f16 *)g->c + row * g->ldc + j0, x, n); break;
    case SHOAL_BFLOAT16: bf16_from_floats(x, (bf16 *)g->c + row * g->ldc + j0, n); break;
    case SHOAL_INT8:
    case SHOAL_UINT8: NARROW(uint8_t, uint32_t)
    case SHOAL_INT16:
    case SHOAL_UINT16: NARROW(uint16_t, uint32_t)
    default: {
      size_t es = dtype_size(g->type);
      char *to = (char *)g->c + (size_t)(row * g->ldc + j0) * es;
      if (to != (char *)x) memcpy(to, x, (size_t)n * es);
    }
  }
}
