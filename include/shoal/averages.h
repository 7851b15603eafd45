/* Exponential moving averages of variables, as tf.train.ExponentialMovingAverage: each in a variable
 * "NAME/ExponentialMovingAverage" beside its own. */
#ifndef SHOAL_AVERAGES_H
#define SHOAL_AVERAGES_H

#include <shoal/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An op that, after `after` (or NULL), moves the averages of n variables (vars NULL: all trainable ones) towards them:
 * average -= (1 - decay) * (average - variable). num_updates (node NULL: none), such as the step, makes decay smaller
 * at first: min(decay, (1 + num_updates) / (10 + num_updates)). */
SHOAL_API shoal_op *shoal_average_variables(shoal_graph *g, double decay, shoal_out num_updates, const shoal_var *vars,
                                            int n, shoal_op *after);
/* The average of v; handle.node NULL: it has none. */
SHOAL_API shoal_var shoal_average_of(const shoal_graph *g, shoal_var v);
/* An op that reads trainable variables from their averages in a checkpoint, all others from themselves: what
 * variables_to_restore is for. prefix: a string scalar. */
SHOAL_API shoal_op *shoal_restore_averages(shoal_graph *g, shoal_out prefix);

#ifdef __cplusplus
}
#endif
#endif
