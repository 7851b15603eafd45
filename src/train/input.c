/* Positions in the input; see shoal/input.h.
 *
 * One vector with a place for every worker there may be, rather than a variable for each: a run that goes on with more
 * or fewer workers finds the same variable in its checkpoint. Saving the state of iterators was rejected: it depends on
 * how a pipeline is made, and prefetching is ahead of what was trained on. */
#include "shoal/input.h"

#include <inttypes.h>
#include <string.h>

#include "base/philox.h"
#include "graph/across.h"
#include "train/batches_used.h"
#include "train/step_request.h"
#include "train/variables.h"

shoal_input shoal_input_position(shoal_graph *g, int worker) {
  if (worker < 0 || worker >= SHOAL_MAX_INPUT_WORKERS) {
    graph_fail(g, INVALID("worker %d: there are positions for workers 0 to %d", worker, SHOAL_MAX_INPUT_WORKERS - 1));
    return (shoal_input){0};
  }
  struct shoal_node *there = graph_find(g, "input_position");
  shoal_var v = {there ? node_out(there, 0) : (shoal_out){0}};
  bool refs = graph_ref_variables(g); /* ours alone: no program of TensorFlow 1 has it */
  graph_set_ref_variables(g, false);
  if (!there)
    v = shoal_variable_untrained(g, "input_position",
                                 shoal_init_zeros(g, SHOAL_INT64, SHOAL_SHAPE(SHOAL_MAX_INPUT_WORKERS)));
  graph_set_ref_variables(g, refs);
  if (graph_error(g)) return (shoal_input){0};
  shoal_input in = {0};
  graph_push_control(g, NULL, -1);
  graph_push_colocation(g, v.handle.node);
  shoal_out index = build_const_int(g, SHOAL_INT32, worker);
  struct build b = build_begin(g, "ResourceGather", "input_position_of_worker");
  build_in(&b, v.handle);
  build_in(&b, index);
  build_attr_type(&b, "dtype", SHOAL_INT64);
  in.position = build_end_out(&b);
  struct build a = build_begin(g, "ResourceScatterAdd", "advance_input");
  build_in(&a, v.handle);
  build_in(&a, index);
  build_in(&a, build_const_int(g, SHOAL_INT64, 1));
  in.advance = build_end(&a);
  graph_pop_colocation(g);
  graph_pop_control(g);
  return in;
}

shoal_out shoal_step_seed(shoal_graph *g, shoal_var step) {
  int64_t seed, seed2;
  struct across *copy = across_on(g);
  graph_next_seeds(g, &seed, &seed2);
  if (copy) seed2 = across_seed(copy);
  struct build b = build_begin(g, "Pack", "step_seed");
  build_in(&b, build_const_int(g, SHOAL_INT64, seed * 1000003 + seed2));
  build_in(&b, build_cast(g, step.value, SHOAL_INT64));
  build_attr_int(&b, "N", 2);
  return build_end_out(&b);
}

/* ---- the hook ---- */

struct input_hook {
  shoal_input in;
  shoal_out *to;
  shoal_tensor **values; /* of the step that runs */
  int n;
  shoal_input_fill *fill;
  void *arg;
  int64_t position;
};

static void drop_values(struct input_hook *s) {
  for (int i = 0; i < s->n; i++) {
    shoal_tensor_unref(s->values[i]);
    s->values[i] = NULL;
  }
}

static shoal_status after_create(void *state, const shoal_created *c) {
  struct input_hook *s = state;
  if (!s->fill) return INVALID("shoal_input_hook: fill is NULL");
  if (s->n > 0 && !s->to) return INVALID("shoal_input_hook: to is NULL");
  return session_get_int(c->session, batches_used_value(c->graph, s->in.position), &s->position);
}

static void feed(struct input_hook *s, shoal_run_context *step, int64_t k) {
  for (int i = 0; i < s->n; i++)
    if (shoal_context_steps(step) == 1) shoal_context_feed(step, s->to[i], s->values[i]);
    else shoal_context_feed_at(step, k, s->to[i], s->values[i]);
}

static shoal_status before_run(void *state, shoal_run_context *step) {
  struct input_hook *s = state;
  for (int64_t k = 0; k < shoal_context_steps(step); k++) {
    drop_values(s);
    shoal_status e = s->fill(s->arg, s->position + k, s->values);
    if (k && shoal_status_code(e) == SHOAL_OUT_OF_RANGE) { /* the run after this one finds nothing more */
      shoal_status_free(e);
      shoal_context_limit_steps(step, k);
      break;
    }
    TRY(e);
    feed(s, step, k);
  }
  shoal_context_target(step, s->in.advance);
  return NULL;
}

static shoal_status after_run(void *state, shoal_run_context *step) {
  struct input_hook *s = state;
  drop_values(s);
  s->position += shoal_context_steps(step);
  return NULL;
}

static void release(void *state) {
  struct input_hook *s = state;
  drop_values(s);
  free(s->values);
  free(s->to);
  free(s);
}

shoal_hook shoal_input_hook(shoal_input in, const shoal_out *to, int n, shoal_input_fill *fill, void *arg) {
  struct input_hook *s = mem_zalloc(1, sizeof *s);
  *s = (struct input_hook){.in = in, .n = n, .fill = fill, .arg = arg};
  if (to) s->to = mem_zalloc((size_t)n + 1, sizeof *s->to);
  s->values = mem_zalloc((size_t)n + 1, sizeof *s->values);
  if (to) memcpy(s->to, to, (size_t)n * sizeof *to);
  return (shoal_hook){s, .after_create = after_create, .before_run = before_run, .after_run = after_run,
                      .free = release};
}

/* ---- batches ---- */

struct shoal_batches {
  int64_t examples, batch;
  uint64_t seed;
  int worker, workers;
  int64_t epoch; /* whose order is in rows; -1: none */
  int64_t rows[];
};

shoal_status shoal_batches_new(int64_t examples, int64_t batch, uint64_t seed, int worker, int workers,
                               shoal_batches **out) {
  if (batch < 1 || examples < batch || examples > INT32_MAX)
    return INVALID("%" PRId64 " examples in batches of %" PRId64
                   ": there must be at least one batch, and at most "
                   "2^31 - 1 examples",
                   examples, batch);
  if (workers < 1 || worker < 0 || worker >= workers) return INVALID("worker %d of %d", worker, workers);
  shoal_batches *b = mem_alloc(sizeof *b + (size_t)examples * sizeof *b->rows);
  *b = (shoal_batches){examples, batch, seed, worker, workers, -1};
  *out = b;
  return NULL;
}

/* Fisher and Yates, with numbers of Philox under (seed, epoch). */
static void shuffle(shoal_batches *b, int64_t epoch) {
  for (int64_t i = 0; i < b->examples; i++) b->rows[i] = i;
  struct philox_stream p = philox_stream(philox_from_pair(b->seed, (uint64_t)epoch));
  for (int64_t i = b->examples - 1; i > 0; i--) {
    int64_t other = philox_below32(&p, (uint32_t)i + 1), t = b->rows[i];
    b->rows[i] = b->rows[other];
    b->rows[other] = t;
  }
  b->epoch = epoch;
}

const int64_t *shoal_batches_at(shoal_batches *b, int64_t position) {
  int64_t per_epoch = b->examples / b->batch, number = position * b->workers + b->worker;
  if (number / per_epoch != b->epoch) shuffle(b, number / per_epoch);
  return b->rows + number % per_epoch * b->batch;
}

void shoal_batches_free(shoal_batches *b) { free(b); }
