/* Training: optimizers as graph builders, the step counter, checkpoints, event files. */
#ifndef SHOAL_TRAIN_H
#define SHOAL_TRAIN_H

#include <shoal/layers.h>
#include <shoal/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How variables follow their gradients. Made by the functions below; fields may be changed before use. */
typedef struct shoal_optimizer {
  const struct shoal_optimizer_row *row; /* which one */
  double learning_rate;
  shoal_out learning_rate_out; /* a tensor instead of the number, for schedules; node NULL: none */
  double a, b, c, d;           /* its other numbers, in the order of the function's parameters */
  bool nesterov;
} shoal_optimizer;

SHOAL_API shoal_optimizer shoal_sgd(double learning_rate);
SHOAL_API shoal_optimizer shoal_momentum(double learning_rate, double momentum);
SHOAL_API shoal_optimizer shoal_nesterov(double learning_rate, double momentum);
SHOAL_API shoal_optimizer shoal_adam(double learning_rate); /* beta1 0.9, beta2 0.999, epsilon 1e-8: a, b, c */
/* Adam that also takes learning_rate * weight_decay of each variable away (d). */
SHOAL_API shoal_optimizer shoal_adamw(double learning_rate, double weight_decay);
SHOAL_API shoal_optimizer shoal_adagrad(double learning_rate);                          /* initial accumulator 0.1 */
SHOAL_API shoal_optimizer shoal_adagrad_da(double learning_rate, double l1, double l2); /* needs a step */
SHOAL_API shoal_optimizer shoal_adadelta(double learning_rate); /* rho 0.95, epsilon 1e-8: a, b */
SHOAL_API shoal_optimizer shoal_rmsprop(double learning_rate);  /* rho 0.9, momentum 0, epsilon 1e-10: a, b, c */
SHOAL_API shoal_optimizer shoal_centered_rmsprop(double learning_rate);
SHOAL_API shoal_optimizer shoal_ftrl(double learning_rate); /* l1 0, l2 0, power -0.5: a, b, c */
SHOAL_API shoal_optimizer shoal_proximal_sgd(double learning_rate, double l1, double l2);
SHOAL_API shoal_optimizer shoal_proximal_adagrad(double learning_rate, double l1, double l2);
/* Keras' (of TensorFlow 2.15: tf.keras.optimizers.legacy), as tf.estimator has them: their formulas, and in checkpoints
 * their names: slots are training/NAME/VARIABLE/SLOT, numbers training/NAME/NUMBER. The learning rate of a checkpoint
 * that is restored counts, not the one given here. */
SHOAL_API shoal_optimizer shoal_keras_sgd(double learning_rate, double momentum); /* a */
SHOAL_API shoal_optimizer shoal_keras_adam(double learning_rate);    /* beta1 0.9, beta2 0.999, epsilon 1e-7: a, b, c */
SHOAL_API shoal_optimizer shoal_keras_adagrad(double learning_rate); /* epsilon 1e-7: a; initial accumulator 0.1 */
SHOAL_API shoal_optimizer shoal_keras_ftrl(double learning_rate);    /* l1 0, l2 0, power -0.5: a, b, c */

/* The step counter: an int64 variable "global_step", made at the first call. */
SHOAL_API shoal_var shoal_global_step(shoal_graph *g);

/* What is made between the two is computed once more when gradients go back through it, instead of being kept until
 * then: less memory for more arithmetic, with the same results (tf.recompute_grad). For layers one after the other,
 * each in a scope of its own. Random numbers that are drawn, and what the model reads behind the scope, are kept. */
SHOAL_API void shoal_push_recompute(shoal_graph *g);
SHOAL_API void shoal_pop_recompute(shoal_graph *g);

/* One op that changes every trainable variable that loss depends on, then adds one to step (step.handle.node NULL: to
 * nothing). Slots are named and placed as TensorFlow names and places them ("hidden/kernel/Adam_1"). */
SHOAL_API shoal_op *shoal_minimize(shoal_graph *g, shoal_optimizer optimizer, shoal_out loss, shoal_var step);
/* The first half of it: the trainable variables and their gradients (values.node NULL: loss does not depend on it).
 * Returns how many variables there are; above max, nothing else is done. */
SHOAL_API int shoal_compute_gradients(shoal_graph *g, shoal_out loss, shoal_var *vars, shoal_gradient *grads, int max);
/* The second half of it, for gradients that were changed in between. grads[i] belongs to vars[i]. */
SHOAL_API shoal_op *shoal_apply_gradients(shoal_graph *g, shoal_optimizer optimizer, const shoal_var *vars,
                                          const shoal_gradient *grads, int n, shoal_var step);
/* The same, told more. */
typedef struct shoal_apply_options {
  size_t size;          /* shoal/options.h */
  const bool *no_decay; /* [n] true: the optimizer's weight decay leaves this variable alone. NULL: none */
} shoal_apply_options;
SHOAL_API shoal_op *shoal_apply_gradients_with(shoal_graph *g, shoal_optimizer optimizer, const shoal_var *vars,
                                               const shoal_gradient *grads, int n, shoal_var step,
                                               const shoal_apply_options *options);
/* Gradient clipping. Each element between low and high; each gradient scaled to a norm of at most clip; all of them
 * scaled together so that their common norm is at most clip (the norm before is returned; if it is not finite, the
 * results are NaN). Of sparse gradients the values are clipped as they are, duplicate rows apart. */
SHOAL_API void shoal_clip_gradients_by_value(shoal_graph *g, shoal_gradient *grads, int n, double low, double high);
SHOAL_API void shoal_clip_gradients_by_norm(shoal_graph *g, shoal_gradient *grads, int n, double clip);
SHOAL_API shoal_out shoal_clip_by_global_norm(shoal_graph *g, shoal_gradient *grads, int n, double clip);

/* Ops that write all variables to a checkpoint (TensorFlow's V2 format), and read them back. prefix: a string scalar.
 */
SHOAL_API shoal_op *shoal_save_variables(shoal_graph *g, shoal_out prefix);
SHOAL_API shoal_op *shoal_restore_variables(shoal_graph *g, shoal_out prefix);

/* Event files, which TensorBoard shows: DIR/events.out.tfevents.TIME.HOST. Several threads may share one. */
typedef struct shoal_events shoal_events;
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_events_open(const char *dir, shoal_events **out);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_events_scalar(shoal_events *w, int64_t step, const char *tag,
                                                            float value);
/* The value of a summary op (MergeSummary): a serialized Summary. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_events_summary(shoal_events *w, int64_t step, const void *summary,
                                                             size_t size);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_events_graph(shoal_events *w, const shoal_graph *g);
/* NULL before the first event. */
SHOAL_API const char *shoal_events_path(const shoal_events *w);
/* Writes what is left and frees w. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_events_close(shoal_events *w);

#ifdef __cplusplus
}
#endif
#endif
