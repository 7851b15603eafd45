/* Steps that are put together from several, and steps that may be left out: gradient accumulation, and loss scaling for
 * half precision. Both stand around an optimizer. */
#ifndef SHOAL_ACCUMULATE_H
#define SHOAL_ACCUMULATE_H

#include <shoal/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Like shoal_minimize, but each run takes one micro-batch: every n-th run applies the mean of the last n gradients and
 * counts one step, so n runs do what one does on the n micro-batches joined. The sums are local variables of this
 * worker (shoal_initialize_local). Where step is the graph's step counter, the number of batches in it is kept beside
 * it as batches_used, which input by the step counter goes on from. */
SHOAL_API shoal_op *shoal_minimize_accumulated(shoal_graph *g, shoal_optimizer optimizer, shoal_out loss,
                                               shoal_var step, int n);

/* Zero-filled is the default: dynamic, as TensorFlow's DynamicLossScale. */
typedef struct shoal_loss_scale {
  size_t size; /* shoal/options.h */
  double initial;           /* 0: 32768 */
  int64_t increment_period; /* 0: 2000 steps with finite gradients double it */
  double multiplier;        /* 0: 2 */
  bool fixed;               /* it never changes, and every gradient is applied */
} shoal_loss_scale;

/* Like shoal_minimize, with gradients of loss * scale, so that small ones are not lost in half precision, divided by
 * scale again. When one is not finite, nothing is applied or counted and the scale is divided by the multiplier. The
 * batch is used all the same, and counted in batches_used (unless the scale is fixed). */
SHOAL_API shoal_op *shoal_minimize_scaled(shoal_graph *g, shoal_optimizer optimizer, shoal_out loss, shoal_var step,
                                          const shoal_loss_scale *scale);

#ifdef __cplusplus
}
#endif
#endif
