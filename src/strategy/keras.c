/* Beside Keras' fit, in processes of TensorFlow 2's MultiWorkerMirroredStrategy, one of which may be the first worker.
 *
 * What fit runs, as it was seen (TensorFlow 2.15's Keras, one optimizer, no metric but "loss"):
 *
 *   initial values     three counters (int64); the weights; the optimizer's iterations (int64) and learning rate; total
 *                      and count of the metric; steps_per_execution (int64); then the optimizer's slots, weight by
 *                      weight: one for SGD, two for Adam
 *   a step             the gradients in one pack; the sums of total and count; the sum of their quotient
 *   an epoch's end     the sums of total and count, each a single number
 *   the next's begin   the same, of what has been set to zero
 *
 * All but the weights is received here and not used: the optimizer is C's own, and must do the same. Where the first
 * worker is a C program it sends what fit's process begins with, and its optimizer's learning rate. */
#include "strategy/tensorflow.h"

#include <stdlib.h>

#include "train/pieces.h"

enum { COUNTERS = 3 };

/* ---- initial values ---- */

/* What is sent, or received and not used. It makes a local variable, so that it goes with the others. */
static void pass(struct shoal_graph *g, struct shoal_strategy *s, shoal_out value) {
  shoal_out got = tensorflow_initial(g, s, value);
  struct shoal_node *node = got.node;
  graph_push_control(g, &node, node ? 1 : 0);
  shoal_out yes = build_op1(g, "Identity", build_const_int(g, SHOAL_BOOL, 1));
  graph_pop_control(g);
  variable_make(g, "taken", yes, VARIABLE_LOCAL);
}

static void begin(struct shoal_graph *g, struct shoal_strategy *s) {
  graph_push_scope_root(g);
  graph_push_scope(g, "keras");
  graph_push_control(g, NULL, -1);
  strategy_push_device(g, s, 0);
}

static void end(struct shoal_graph *g) {
  graph_pop_device(g);
  graph_pop_control(g);
  graph_pop_scope(g);
  graph_pop_scope(g);
}

void keras_before_weights(struct shoal_graph *g, struct shoal_strategy *s) {
  if (s->initial_values) return;
  begin(g, s);
  for (int i = 0; i < COUNTERS; i++) pass(g, s, build_const_int(g, SHOAL_INT64, 0));
  end(g);
}

void keras_after_weights(struct shoal_graph *g, struct shoal_strategy *s) {
  if (s->tensorflow != SHOAL_TENSORFLOW_KERAS || !s->weights.n || graph_error(g)) return;
  if (s->rules.is_chief && !s->keras_rate)
    graph_fail(g,
               UNIMPLEMENTED("the first worker beside Keras' fit tells it the learning rate, which has to be a number "
                             "other than 0 of an optimizer that a replica applies"));
  begin(g, s);
  pass(g, s, build_const_int(g, SHOAL_INT64, 0)); /* iterations */
  pass(g, s, build_const_float(g, SHOAL_FLOAT32, s->keras_rate));
  for (int i = 0; i < 2; i++) pass(g, s, build_const_float(g, SHOAL_FLOAT32, 0)); /* total and count */
  pass(g, s, build_const_int(g, SHOAL_INT64, 1));                                 /* steps_per_execution */
  for (size_t i = 0; i < s->weights.n; i++) {
    struct shape shape = out_shape(s->weights.at[i].value);
    shoal_out slot = shoal_init_zeros(g, out_type(s->weights.at[i].value), (shoal_dims){shape.rank, shape.dims});
    for (int k = 0; k < s->keras_slots; k++) pass(g, s, slot);
  }
  end(g);
  vec_clear(&s->weights);
}

shoal_status keras_begins(const struct shoal_strategy *s, const shoal_created *c) {
  bool goes_on = c->is_chief && c->checkpoint && c->global_step > 0;
  if (s->tensorflow != SHOAL_TENSORFLOW_KERAS || !goes_on || !s->keras_has_state) return NULL;
  return UNIMPLEMENTED(
      "%s is of step %lld: fit's optimizer begins anew, and one with state of its own would go on here, "
      "so that the weights would not stay the same",
      c->checkpoint, (long long)c->global_step);
}

/* ---- the metric ---- */

static shoal_out add_to(struct shoal_graph *g, shoal_var v, shoal_out value) {
  struct shoal_node *added = variable_update_op(g, "AssignAdd", v.handle, value);
  graph_push_control(g, &added, added ? 1 : 0);
  shoal_out now = variable_read_op(g, v.handle, SHOAL_FLOAT32, NULL);
  graph_pop_control(g);
  return now;
}

shoal_out shoal_replica_keras_loss(shoal_replica *r, shoal_out loss, shoal_out rows) {
  struct shoal_graph *g = r->maker.g;
  struct shoal_strategy *s = r->strategy;
  graph_push_scope(g, "keras_loss");
  shoal_out zero = build_const_float(g, SHOAL_FLOAT32, 0), n = build_cast(g, rows, SHOAL_FLOAT32);
  s->keras_metric[0] = variable_make(g, "total", zero, VARIABLE_LOCAL);
  s->keras_metric[1] = variable_make(g, "count", zero, VARIABLE_LOCAL);
  shoal_out total =
      shoal_replica_reduce(r, SHOAL_REDUCE_SUM, add_to(g, s->keras_metric[0], build_op2(g, "Mul", loss, n)));
  shoal_out count = shoal_replica_reduce(r, SHOAL_REDUCE_SUM, add_to(g, s->keras_metric[1], n));
  shoal_out mean = build_op2(g, "DivNoNan", total, count);
  shoal_replica_reduce(r, SHOAL_REDUCE_SUM, mean); /* what fit logs; here nobody reads it */
  graph_pop_scope(g);
  return mean;
}

/* ---- epochs ---- */

static struct shoal_node *set_to_zero(struct shoal_graph *g, shoal_var v) {
  return variable_update_op(g, "Assign", v.handle, build_const_float(g, SHOAL_FLOAT32, 0));
}

void keras_build(struct shoal_graph *g, struct shoal_strategy *s, struct keras_epoch *e) {
  if (s->tensorflow != SHOAL_TENSORFLOW_KERAS || !s->keras_metric[0].handle.node || graph_error(g)) return;
  begin(g, s);
  for (int i = 0; i < 2; i++) {
    shoal_var v = s->keras_metric[i];
    e->last[i] = tensorflow_number(g, s, i, variable_read_op(g, v.handle, SHOAL_FLOAT32, NULL));
    struct shoal_node *zero = set_to_zero(g, v);
    graph_push_control(g, &zero, zero ? 1 : 0);
    e->first[i] = tensorflow_number(g, s, i, variable_read_op(g, v.handle, SHOAL_FLOAT32, NULL));
    graph_pop_control(g);
  }
  e->built = !graph_error(g);
  end(g);
}

shoal_status keras_sums(const struct shoal_strategy *s, const shoal_out *sums, shoal_session *session, int32_t key) {
  shoal_tensor *t;
  float total, count;
  TRY(shoal_tensor_from(SHOAL_INT32, 0, NULL, &key, sizeof key, &t));
  shoal_status e =
      shoal_session_step(session, SHOAL_FEED(s->first_key, t), SHOAL_FETCH(sums[0], &total, sums[1], &count), NULL);
  shoal_tensor_unref(t);
  return e;
}
