/* What the loss and the decoders of connectionist temporal classification share: values as double, logarithms. */
#ifndef OPS_NN_CTC_H
#define OPS_NN_CTC_H

#include <math.h>

#include "ops/nn/nn_util.h"

/* Element i of a float or double tensor. */
static inline double ctc_at(const struct tensor *t, int64_t i) {
  return t->dtype == SHOAL_FLOAT64 ? T_DATA(t, const double)[i] : (double)T_DATA(t, const float)[i];
}
static inline void ctc_put(struct tensor *t, int64_t i, double v) {
  if (t->dtype == SHOAL_FLOAT64) T_DATA(t, double)[i] = v;
  else T_DATA(t, float)[i] = (float)v;
}

/* log(e^a + e^b) */
static inline double ctc_log_add(double a, double b) {
  if (a == -INFINITY) return b;
  if (b == -INFINITY) return a;
  return a > b ? a + log1p(exp(b - a)) : b + log1p(exp(a - b));
}

/* The logarithms of the softmax of x's n elements from `from` on. */
static inline void ctc_log_softmax(const struct tensor *x, int64_t from, int64_t n, double *out) {
  double top = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++) top = MAX(top, ctc_at(x, from + i));
  for (int64_t i = 0; i < n; i++) sum += exp(ctc_at(x, from + i) - top);
  for (int64_t i = 0; i < n; i++) out[i] = ctc_at(x, from + i) - top - log(sum);
}

#endif
