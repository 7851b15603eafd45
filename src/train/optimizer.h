/* What optimizers share with what stands around them: averages, accumulation, loss scaling, synchronisation. */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H

#include "graph/builder.h"
#include "shoal/train.h"

/* A variable "NAME/name" that belongs to v: placed with it, and saved as the same part when v is a part. Its initial
 * value: *initial, or else `fill` everywhere. */
shoal_var slot_variable(struct shoal_graph *g, shoal_var v, const char *name, const shoal_out *initial,
                        const struct shape *shape, double fill);

/* Is it one of Keras', which count their steps by the global step where they have it? */
bool optimizer_is_keras(const shoal_optimizer *o);

/* All trainable variables with their gradients. */
struct gradients {
  shoal_var *vars;
  shoal_gradient *grads;
  int n;
};
struct gradients gradients_of(struct shoal_graph *g, shoal_out loss);
void gradients_release(struct gradients *all);

#endif
