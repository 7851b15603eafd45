/* How Transformers learn, whatever they are for: gradients clipped together, AdamW, a rate that rises and falls. */
#ifndef EXAMPLES_LEARNING_H
#define EXAMPLES_LEARNING_H

#include "steps.h"

enum { MOST_VARIABLES = 4096 };

struct learning {
  double rate, weight_decay, clip, label_smoothing;
  int64_t warmup, last; /* last: where the rate has fallen */
};
#define LEARNING_FLAGS(l)                                                                                              \
  flag_real("learning_rate", "the highest", &(l).rate),                                                                \
      flag_number("warmup_steps", "it rises for so many steps, then falls to a tenth along a cosine", &(l).warmup, 0), \
      flag_real("weight_decay", "of matrices", &(l).weight_decay),                                                     \
      flag_real("clip", "the gradients' common norm; 0: none", &(l).clip),                                             \
      flag_real("label_smoothing", "of the loss", &(l).label_smoothing)

/* The mean loss of all labels. */
static inline shoal_out mean_cross_entropy(shoal_graph *g, shoal_out logits, shoal_out labels,
                                           const struct learning *l) {
  return shoal_reduce_mean(
      g, shoal_cross_entropy(g, logits, labels,
                             SHOAL_OPTIONS(shoal_cross_entropy_options, .label_smoothing = l->label_smoothing)));
}

/* Gradients, clipped together, and AdamW, which leaves vectors as they are. */
static inline shoal_op *apply_clipped(shoal_graph *g, const struct learning *l, const shoal_var *vars,
                                      shoal_gradient *grads, int n, shoal_var step, struct watched *w) {
  static bool no_decay[MOST_VARIABLES];
  int64_t dims[SHOAL_MAX_RANK];
  if (n > MOST_VARIABLES) refuse("so many --layers are more than this program can train");
  for (int i = 0; i < n; i++) no_decay[i] = shoal_out_shape(vars[i].value, dims) < 2;
  w->norm = shoal_clip_by_global_norm(g, grads, n, l->clip > 0 ? l->clip : 1e30);
  w->rate = rising_rate(g, l->rate, step, (double)l->warmup, (double)l->last, 0.1);
  shoal_optimizer adam = shoal_adamw(l->rate, l->weight_decay);
  adam.b = 0.95;
  adam.learning_rate_out = w->rate;
  return shoal_apply_gradients_with(g, adam, vars, grads, n, step,
                                    SHOAL_OPTIONS(shoal_apply_options, .no_decay = no_decay));
}

/* The op of a step, for w->loss. */
static inline shoal_op *minimize(shoal_graph *g, const struct learning *l, struct watched *w) {
  static shoal_var vars[MOST_VARIABLES];
  static shoal_gradient grads[MOST_VARIABLES];
  shoal_var step = shoal_global_step(g);
  int n = shoal_compute_gradients(g, w->loss, vars, grads, MOST_VARIABLES);
  return apply_clipped(g, l, vars, grads, n, step, w);
}

#endif
