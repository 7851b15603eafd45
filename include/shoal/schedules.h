/* Learning rates that change with the step, by TensorFlow's formulas: scalars for shoal_optimizer.learning_rate_out.
 * step is the step counter's value (any number type); the result is float32. */
#ifndef SHOAL_SCHEDULES_H
#define SHOAL_SCHEDULES_H

#include <shoal/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* rate * decay ^ (step / steps); staircase: of whole step / steps. */
SHOAL_API shoal_out shoal_exponential_decay(shoal_graph *g, double rate, shoal_out step, double steps, double decay,
                                            bool staircase);
/* rate * exp(-decay * step / steps). */
SHOAL_API shoal_out shoal_natural_exp_decay(shoal_graph *g, double rate, shoal_out step, double steps, double decay,
                                            bool staircase);
/* rate / (1 + decay * step / steps). */
SHOAL_API shoal_out shoal_inverse_time_decay(shoal_graph *g, double rate, shoal_out step, double steps, double decay,
                                             bool staircase);
/* From rate to end over steps, as (1 - step / steps) ^ power; cycle: and again, each time over longer. */
SHOAL_API shoal_out shoal_polynomial_decay(shoal_graph *g, double rate, shoal_out step, double steps, double end,
                                           double power, bool cycle);
/* From rate to alpha * rate over steps, along half a cosine. */
SHOAL_API shoal_out shoal_cosine_decay(shoal_graph *g, double rate, shoal_out step, double steps, double alpha);
/* The same, again and again: each time t_mul times as long and from m_mul times as high. */
SHOAL_API shoal_out shoal_cosine_decay_restarts(shoal_graph *g, double rate, shoal_out step, double first_steps,
                                                double t_mul, double m_mul, double alpha);
/* values[0] up to and including boundaries[0], values[1] up to boundaries[1], ...; n boundaries, n + 1 values. */
SHOAL_API shoal_out shoal_piecewise_constant(shoal_graph *g, shoal_out step, const int64_t *boundaries,
                                             const double *values, int n);
/* Before warmup_steps: from 0 in a straight line to what rate has been set to; from then on rate itself. */
SHOAL_API shoal_out shoal_warmup(shoal_graph *g, shoal_out rate, shoal_out step, double warmup_steps);

#ifdef __cplusplus
}
#endif
#endif
