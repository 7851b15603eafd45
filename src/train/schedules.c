/* Learning-rate schedules: shoal/schedules.h, in float32 and in the order of operations that TensorFlow's have, so that
 * rates are equal to the last bit or so. */
#include "shoal/schedules.h"

#include <math.h>

#include "graph/builder.h"
#include "graph/given.h"

static shoal_out num(struct shoal_graph *g, double v) { return build_const_float(g, SHOAL_FLOAT32, v); }
static shoal_out real(struct shoal_graph *g, shoal_out step) { return build_cast(g, step, SHOAL_FLOAT32); }

/* step / steps, or the whole part of it. */
static shoal_out progress(struct shoal_graph *g, shoal_out step, double steps, bool staircase) {
  shoal_out p = build_op2(g, "RealDiv", real(g, step), num(g, steps));
  return staircase ? build_op1(g, "Floor", p) : p;
}

/* Opens the scope; false when the numbers make no schedule. */
static bool begin(struct shoal_graph *g, const char *name, double steps) {
  if (!(steps > 0) && !graph_error(g)) graph_fail(g, INVALID("%s: %g steps; there must be more than 0", name, steps));
  graph_push_scope(g, name);
  return !graph_error(g);
}

static shoal_out end(struct shoal_graph *g, shoal_out rate) {
  graph_pop_scope(g);
  return graph_error(g) ? (shoal_out){0} : rate;
}

shoal_out shoal_exponential_decay(shoal_graph *g, double rate, shoal_out step, double steps, double decay,
                                  bool staircase) {
  if (!begin(g, "ExponentialDecay", steps)) return end(g, step);
  shoal_out p = progress(g, step, steps, staircase);
  return end(g, build_op2(g, "Mul", num(g, rate), build_op2(g, "Pow", num(g, decay), p)));
}

shoal_out shoal_natural_exp_decay(shoal_graph *g, double rate, shoal_out step, double steps, double decay,
                                  bool staircase) {
  return shoal_exponential_decay(g, rate, step, steps, exp(-decay), staircase);
}

shoal_out shoal_inverse_time_decay(shoal_graph *g, double rate, shoal_out step, double steps, double decay,
                                   bool staircase) {
  if (!begin(g, "InverseTimeDecay", steps)) return end(g, step);
  shoal_out p = progress(g, step, steps, staircase);
  shoal_out below = build_op2(g, "AddV2", num(g, 1), build_op2(g, "Mul", num(g, decay), p));
  return end(g, build_op2(g, "RealDiv", num(g, rate), below));
}

shoal_out shoal_polynomial_decay(shoal_graph *g, double rate, shoal_out step, double steps, double last, double power,
                                 bool cycle) {
  if (!begin(g, "PolynomialDecay", steps)) return end(g, step);
  shoal_out at = real(g, step), over = num(g, steps);
  if (cycle) {
    shoal_out rounds = build_op1(g, "Ceil", build_op2(g, "RealDiv", at, over));
    rounds = build_op3(g, "SelectV2", build_op2(g, "Equal", at, num(g, 0)), num(g, 1), rounds);
    over = build_op2(g, "Mul", over, rounds);
  } else {
    at = build_op2(g, "Minimum", at, over);
  }
  shoal_out left = build_op2(g, "Sub", num(g, 1), build_op2(g, "RealDiv", at, over));
  shoal_out drop =
      build_op2(g, "Mul", num(g, (double)((float)rate - (float)last)), build_op2(g, "Pow", left, num(g, power)));
  return end(g, build_op2(g, "AddV2", drop, num(g, last)));
}

/* (1 + cos(pi * part)) / 2 */
static shoal_out half_cosine(struct shoal_graph *g, shoal_out part) {
  shoal_out c = build_op1(g, "Cos", build_op2(g, "Mul", num(g, M_PI), part));
  return build_op2(g, "Mul", num(g, 0.5), build_op2(g, "AddV2", num(g, 1), c));
}

static shoal_out between_alpha(struct shoal_graph *g, double rate, shoal_out decayed, double alpha) {
  shoal_out d = build_op2(g, "AddV2", build_op2(g, "Mul", num(g, 1 - alpha), decayed), num(g, alpha));
  return build_op2(g, "Mul", num(g, rate), d);
}

shoal_out shoal_cosine_decay(shoal_graph *g, double rate, shoal_out step, double steps, double alpha) {
  if (!begin(g, "CosineDecay", steps)) return end(g, step);
  shoal_out at = build_op2(g, "Minimum", real(g, step), num(g, steps));
  return end(g, between_alpha(g, rate, half_cosine(g, build_op2(g, "RealDiv", at, num(g, steps))), alpha));
}

shoal_out shoal_cosine_decay_restarts(shoal_graph *g, double rate, shoal_out step, double first, double t_mul,
                                      double m_mul, double alpha) {
  if (!begin(g, "SGDRDecay", first)) return end(g, step);
  shoal_out part = progress(g, step, first, false), round;
  if (t_mul == 1) {
    round = build_op1(g, "Floor", part);
    part = build_op2(g, "Sub", part, round);
  } else {
    shoal_out t = num(g, t_mul), one = num(g, 1), short_of_one = build_op2(g, "Sub", one, t);
    shoal_out grown = build_op2(g, "Sub", one, build_op2(g, "Mul", part, short_of_one));
    round = build_op1(g, "Floor", build_op2(g, "RealDiv", build_op1(g, "Log", grown), build_op1(g, "Log", t)));
    shoal_out power = build_op2(g, "Pow", t, round);
    shoal_out before = build_op2(g, "RealDiv", build_op2(g, "Sub", one, power), short_of_one);
    part = build_op2(g, "RealDiv", build_op2(g, "Sub", part, before), power);
  }
  shoal_out high = build_op2(g, "Pow", num(g, m_mul), round);
  return end(g, between_alpha(g, rate, build_op2(g, "Mul", high, half_cosine(g, part)), alpha));
}

shoal_out shoal_piecewise_constant(shoal_graph *g, shoal_out step, const int64_t *boundaries, const double *values,
                                   int n) {
  GRAPH_GIVEN_ARRAY(g, boundaries, n, (shoal_out){0});
  GRAPH_GIVEN(g, values, (shoal_out){0});
  for (int i = 1; i < n; i++)
    if (boundaries[i] <= boundaries[i - 1] && !graph_error(g))
      graph_fail(g, INVALID("shoal_piecewise_constant: boundaries must increase"));
  if (!begin(g, "PiecewiseConstant", 1)) return end(g, step);
  shoal_out at = build_cast(g, step, SHOAL_INT64), rate = num(g, values[n]);
  for (int i = n; i-- > 0;) {
    shoal_out before = build_op2(g, "LessEqual", at, build_const_int(g, SHOAL_INT64, boundaries[i]));
    rate = build_op3(g, "SelectV2", before, num(g, values[i]), rate);
  }
  return end(g, rate);
}

shoal_out shoal_warmup(shoal_graph *g, shoal_out rate, shoal_out step, double warmup_steps) {
  if (!begin(g, "Warmup", warmup_steps)) return end(g, step);
  shoal_out done = build_op2(g, "Minimum", progress(g, step, warmup_steps, false), num(g, 1));
  return end(g, build_op2(g, "Mul", rate, done));
}
