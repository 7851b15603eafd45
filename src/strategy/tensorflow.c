/* In one group with TensorFlow 2's MultiWorkerMirroredStrategy.
 *
 * Its workers agree on nothing but an order: all of a strategy's collectives are of group 1, and their instance keys
 * count from 100, in the order in which a program comes to them. First the variables made in its scope are sent by the
 * first worker, one after the other; then every call of a step takes as many keys as it has collectives. No key is used
 * twice.
 *
 * So here the trainable variables are sent, in the order in which they are made; and a step's collectives have the
 * numbers 0, 1, ... in the order in which a replica's function makes them, behind a number that is fed: the first key
 * of this step. A step must therefore run all collectives that were built: a value that is reduced is fetched in each.
 *
 * Sums are TensorFlow's, a mean is their quotient, gradients go in its packs (gradients.c), and in a tf.function every
 * value is a pack, laid out flat. What its strategies make of
 * several collectives (gathers, rows) is refused; so is what they have not (minimum, maximum). There are no questions
 * among the tasks beside the program's own: a task that is lost ends the run. */
#include "strategy/tensorflow.h"

#include "base/stop.h"
#include "train/pieces.h"

enum { TENSORFLOW_GROUP = 1, FIRST_KEY = 100 };

/* ---- keys ---- */

/* The first key of a step; fed. */
static shoal_out first_key(struct shoal_graph *g, struct shoal_strategy *s) {
  if (s->keys_of == g) return s->first_key;
  graph_push_scope_root(g);
  graph_push_control(g, NULL, -1);
  strategy_push_device(g, s, 0);
  s->first_key = shoal_placeholder(g, SHOAL_INT32, SHOAL_SCALAR, "tensorflow/first_key");
  graph_pop_device(g);
  graph_pop_control(g);
  graph_pop_scope(g);
  s->keys_of = g;
  return s->first_key;
}

static void add_keys(struct build *b, const struct shoal_strategy *s, shoal_out key) {
  build_in(b, build_const_int(b->g, SHOAL_INT32, s->tasks));
  build_in(b, build_const_int(b->g, SHOAL_INT32, TENSORFLOW_GROUP));
  build_in(b, key);
}

/* ---- collectives ---- */

shoal_out tensorflow_refuse(struct shoal_graph *g, const char *what) {
  if (!graph_error(g))
    graph_fail(g, UNIMPLEMENTED("%s with TensorFlow's workers in the group: sums and means alone are theirs", what));
  return (shoal_out){0};
}

shoal_out tensorflow_number(struct shoal_graph *g, struct shoal_strategy *s, int number, shoal_out value) {
  shoal_out key = build_op2(g, "AddV2", first_key(g, s), build_const_int(g, SHOAL_INT32, number));
  struct build b = build_begin(g, "CollectiveReduceV2", NULL);
  build_in(&b, value);
  add_keys(&b, s, key);
  build_attr_string(&b, "merge_op", "Add");
  build_attr_string(&b, "final_op", "Id");
  return build_end_out(&b);
}

shoal_out tensorflow_reduce(struct shoal_graph *g, struct shoal_strategy *s, int number, shoal_reduction how,
                            shoal_out value) {
  if (how != SHOAL_REDUCE_SUM && how != SHOAL_REDUCE_MEAN) return tensorflow_refuse(g, "a minimum or maximum");
  bool in_function = s->tensorflow != SHOAL_TENSORFLOW_EACH;
  bool flat = in_function && out_shape(value).rank != 1; /* a pack of one is a list, too */
  shoal_out sum = tensorflow_number(g, s, number, flat ? flat_of(g, value) : value);
  if (flat) sum = build_op2(g, "Reshape", sum, build_op1(g, "Shape", value));
  if (how == SHOAL_REDUCE_SUM) return sum;
  /* In a function TensorFlow makes a product of a quotient by a constant. */
  if (in_function) return build_op2(g, "Mul", sum, build_const_float(g, out_type(value), 1.0 / s->tasks));
  return build_op2(g, "RealDiv", sum, build_const_float(g, out_type(value), s->tasks));
}

shoal_out tensorflow_initial(struct shoal_graph *g, struct shoal_strategy *s, shoal_out value) {
  struct shape shape = out_shape(value);
  bool sends = s->rules.is_chief;
  shoal_out key = build_const_int(g, SHOAL_INT32, FIRST_KEY + s->initial_values++);
  struct build b = build_begin(g, sends ? "CollectiveBcastSendV2" : "CollectiveBcastRecvV2", NULL);
  if (sends) build_in(&b, value);
  add_keys(&b, s, key);
  if (!sends) build_in(&b, build_const_ints(g, SHOAL_INT32, shape.dims, shape.rank));
  build_attr_type(&b, "T", out_type(value));
  return flat_shaped(g, build_end_out(&b), &shape);
}

/* ---- the hook ---- */

struct tensorflow_keys {
  struct shoal_strategy *strategy;
  int32_t next;
  struct keras_epoch keras;
  int64_t in_epoch; /* steps */
};

static shoal_status build(void *state, shoal_graph *g) {
  struct tensorflow_keys *k = state;
  keras_build(g, k->strategy, &k->keras);
  return NULL;
}

/* The sums of an epoch's beginning or end. */
static shoal_status sum_epoch(struct tensorflow_keys *k, const shoal_out *sums, shoal_run_context *c) {
  TRY(keras_sums(k->strategy, sums, shoal_context_session(c), k->next));
  k->next += KERAS_SUMS;
  return NULL;
}

static shoal_status after_create(void *state, const shoal_created *c) {
  struct tensorflow_keys *k = state;
  k->next = FIRST_KEY + k->strategy->initial_values;
  return keras_begins(k->strategy, c);
}

static shoal_status before_run(void *state, shoal_run_context *c) {
  struct tensorflow_keys *k = state;
  if (!k->strategy->keys_of) return NULL;
  if (k->keras.built) shoal_context_limit_steps(c, 1);
  if (k->keras.built && k->in_epoch == k->strategy->keras_steps) {
    TRY(sum_epoch(k, k->keras.first, c));
    k->in_epoch = 0;
  }
  for (int64_t i = 0; i < shoal_context_steps(c); i++) {
    shoal_tensor *t;
    int32_t first = k->next + (int32_t)i * k->strategy->next_key;
    TRY(shoal_tensor_from(SHOAL_INT32, 0, NULL, &first, sizeof first, &t));
    shoal_context_feed_at(c, i, k->strategy->first_key, t);
    shoal_tensor_unref(t);
  }
  return NULL;
}

static shoal_status after_run(void *state, shoal_run_context *c) {
  struct tensorflow_keys *k = state;
  k->next += (int32_t)shoal_context_steps(c) * k->strategy->next_key;
  if (stop_told()) shoal_context_request_stop(c);
  k->in_epoch += shoal_context_steps(c);
  return k->keras.built && k->in_epoch == k->strategy->keras_steps ? sum_epoch(k, k->keras.last, c) : NULL;
}

shoal_hook tensorflow_hook(struct shoal_strategy *s) {
  struct tensorflow_keys *k = mem_zalloc(1, sizeof *k);
  k->strategy = s;
  return (shoal_hook){
      k, .begin = build, .after_create = after_create, .before_run = before_run, .after_run = after_run, .free = free};
}
