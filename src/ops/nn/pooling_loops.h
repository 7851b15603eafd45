/* The loops of pooling, on channels-last tensors of any element type. */
#ifndef OPS_NN_POOLING_LOOPS_H
#define OPS_NN_POOLING_LOOPS_H

#include "ops/nn/nn_util.h"

struct pooling {
  shoal_dtype type;
  int64_t batch, depth;
  int64_t in[3], out[3], size[3], stride[3], pad[3];
  const void *x;  /* [batch, in, depth] */
  const void *y;  /* [batch, out, depth]: the forward result, where the gradient compares with it */
  const void *dy; /* [batch, out, depth]; of a gradient's gradient: [batch, in, depth] */
  void *result;
  void *argmax;                   /* [batch, out, depth] int32 or int64 */
  bool argmax_wide, argmax_batch; /* int64; the index counts over the whole batch */
};

static inline int64_t window_low(const struct pooling *p, int d, int64_t o) {
  return MAX(0, o * p->stride[d] - p->pad[d]);
}
static inline int64_t window_high(const struct pooling *p, int d, int64_t o) {
  return MIN(p->in[d], o * p->stride[d] - p->pad[d] + p->size[d]);
}

void pooling_max(struct pool *pool, const struct pooling *p);
/* Each output's gradient goes to the first of the largest elements of its window. */
void pooling_max_grad(struct pool *pool, const struct pooling *p);
/* To every element that is the largest within 1e-5 (MaxPool3DGrad; floating types). */
void pooling_max_grad_all(struct pool *pool, const struct pooling *p);
/* The element of dy that stands where the window's first largest one does. */
void pooling_max_grad_grad(struct pool *pool, const struct pooling *p);
void pooling_argmax(struct pool *pool, const struct pooling *p);
/* The mean over the part of the window that is inside; floating types. */
void pooling_avg(struct pool *pool, const struct pooling *p);
void pooling_avg_grad(struct pool *pool, const struct pooling *p);

#endif
