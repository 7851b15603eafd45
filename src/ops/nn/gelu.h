/* GELU of floats in its tanh form, as _ShoalGelu has it: for that op, and for products that have it behind them. */
#ifndef OPS_NN_GELU_H
#define OPS_NN_GELU_H

#include <stdint.h>

/* y may be x. */
void gelu_floats(const float *x, float *y, int64_t n);
/* dx = dy times the derivative at x; dx may be dy. */
void gelu_grad_floats(const float *x, const float *dy, float *dx, int64_t n);

#endif
