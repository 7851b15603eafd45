/* Datasets of the graph, dealt out to tasks and their replicas.
 *
 * A task's part is cut by AutoShardDataset; of that each replica takes an element in turn. Elements leave the graph and
 * are fed as batches are (feed.c), so all that holds for batches holds for datasets: tasks whose data has ended have
 * empty ones while others go on, all end together, and a run that goes on from a checkpoint, or without a lost task,
 * skips what was used. (Elements taken inside of the step would save their way out and in, which is a reference in one
 * process and a copy to a server. But that there is no more would be known only by a step that fails, in some tasks,
 * while others wait in it for values of theirs.) */
#include <stdlib.h>

#include "feed/order.h"
#include "graph/given.h"
#include "strategy/strategy.h"
#include "train/hooks.h"
#include "train/step_request.h"

struct dealt {
  shoal_hook feed; /* what batches do; this hook stands around it */
  int local, n;    /* replicas of this task, components of an element */
  shoal_out skip, used;
  struct shoal_node *make, *next;
  shoal_session *session;
};

/* ---- elements ---- */

/* The next element: n values. */
static shoal_status take_one(struct dealt *d, shoal_tensor **values) {
  struct step_request r = {0};
  for (int i = 0; i < d->n; i++) step_fetch(&r, node_out(d->next, i));
  shoal_status e = step_run(&r, d->session);
  for (int i = 0; i < d->n && !e; i++) values[i] = shoal_tensor_ref(r.values.at[i]);
  step_release(&r);
  return e;
}

/* One for each replica; those behind the last element have none, and are fed nothing but its shape. */
static shoal_status fill(void *arg, int64_t position, shoal_tensor **values) {
  struct dealt *d = arg;
  for (int i = 0; i < d->local; i++) {
    shoal_status e = take_one(d, values + (ptrdiff_t)i * d->n);
    if (!i || shoal_status_code(e) != SHOAL_OUT_OF_RANGE) {
      TRY(e);
      continue;
    }
    shoal_status_free(e);
    return NULL;
  }
  return NULL;
}

/* ---- the hook ---- */

static shoal_status begin(void *state, shoal_graph *g) {
  struct dealt *d = state;
  TRY(d->feed.begin(d->feed.state, g));
  return hook_input_position(g, "shoal_strategy_dataset_hook", &d->used);
}

static shoal_status after_create(void *state, const shoal_created *c) {
  struct dealt *d = state;
  int64_t at;
  shoal_tensor *skip;
  d->session = c->session;
  TRY(session_get_int(c->session, d->used, &at));
  at *= d->local;
  TRY(shoal_tensor_from(SHOAL_INT64, 0, NULL, &at, sizeof at, &skip));
  shoal_status e = shoal_session_step(c->session, SHOAL_FEED(d->skip, skip), SHOAL_NO_FETCHES, d->make);
  shoal_tensor_unref(skip);
  return e ? e : d->feed.after_create(d->feed.state, c);
}

static shoal_status before_run(void *state, shoal_run_context *c) {
  struct dealt *d = state;
  return d->feed.before_run(d->feed.state, c);
}

static shoal_status after_run(void *state, shoal_run_context *c) {
  struct dealt *d = state;
  return d->feed.after_run(d->feed.state, c);
}

static void release(void *state) {
  struct dealt *d = state;
  d->feed.free(d->feed.state);
  free(d);
}

/* ---- building ---- */

static shoal_status check(const struct shoal_strategy *s, shoal_out dataset, shoal_auto_shard shard, int n,
                          struct feed_element *e) {
  if (s->ps_tasks)
    return INVALID(
        "shoal_strategy_dataset_hook: workers of parameter servers count their steps together: there is no "
        "telling which batches were used");
  if (shard < SHOAL_SHARD_OFF || shard > SHOAL_SHARD_DATA)
    return INVALID("shoal_strategy_dataset_hook: %d is no way to shard", (int)shard);
  TRY(element_of("shoal_strategy_dataset_hook", dataset, e));
  if (n != e->n)
    return INVALID("shoal_strategy_dataset_hook: an element of '%s' has %d components, and there are %d places for it",
                   dataset.node->name, e->n, n);
  for (int i = 0; i < n; i++)
    if (e->shapes[i].rank < 1)
      return INVALID("shoal_strategy_dataset_hook: elements of '%s' are to be batches, which have rows",
                     dataset.node->name);
  return NULL;
}

/* This task's part. */
static shoal_out deal(struct shoal_graph *g, const struct shoal_strategy *s, shoal_out dataset, shoal_auto_shard shard,
                      const struct feed_element *e) {
  if (s->tasks == 1 || shard == SHOAL_SHARD_OFF) return dataset;
  struct build b = build_begin(g, "AutoShardDataset", NULL);
  build_in(&b, dataset);
  build_in(&b, build_const_int(g, SHOAL_INT64, s->tasks));
  build_in(&b, build_const_int(g, SHOAL_INT64, s->first / s->local));
  build_attr_int(&b, "auto_shard_policy", shard);
  build_attr_int(&b, "num_replicas", s->replicas);
  return dataset_end(&b, e);
}

static void build_iterator(struct shoal_graph *g, struct dealt *d, shoal_out dataset, const struct feed_element *e) {
  d->skip = shoal_placeholder(g, SHOAL_INT64, SHOAL_SCALAR, "skip");
  shoal_out from = feed_skip(g, dataset, e, d->skip);
  struct build i = build_begin(g, "IteratorV2", NULL);
  build_attr_string(&i, "shared_name", "");
  build_attr_string(&i, "container", "");
  shoal_out iterator = dataset_end(&i, e);
  struct build make = build_begin(g, "MakeIterator", NULL);
  build_in(&make, from);
  build_in(&make, iterator);
  d->make = build_end(&make);
  struct build next = build_begin(g, "IteratorGetNext", NULL);
  build_in(&next, iterator);
  d->next = dataset_end(&next, e).node;
}

/* Where a replica gets its elements: as many rows as come. */
static void build_places(struct shoal_graph *g, const struct shoal_strategy *s, const struct feed_element *e, int n,
                         shoal_out *in) {
  for (int i = 0; i < s->local; i++) {
    strategy_push_device(g, s, i);
    for (int k = 0; k < n; k++) {
      struct shape shape = e->shapes[k];
      shape.dims[0] = -1;
      in[(ptrdiff_t)i * n + k] = shoal_placeholder(g, e->types[k], (shoal_dims){shape.rank, shape.dims}, "element");
    }
    graph_pop_device(g);
  }
}

/* What a program gets that made a mistake; the graph has the error, and no session opens on it. */
static shoal_hook none(void) { return (shoal_hook){0}; }

shoal_hook shoal_strategy_dataset_hook(shoal_graph *g, shoal_strategy *s, shoal_out dataset, shoal_auto_shard shard,
                                       shoal_out *in, int n_in) {
  GRAPH_GIVEN(g, s, none());
  GRAPH_GIVEN(g, in, none());
  if (graph_error(g)) return none();
  struct feed_element e;
  GRAPH_TRY(g, check(s, dataset, shard, n_in, &e), none());
  struct dealt *d = mem_zalloc(1, sizeof *d);
  *d = (struct dealt){.local = s->local, .n = n_in};
  graph_push_scope(g, "dataset");
  graph_push_control(g, NULL, -1);
  strategy_push_device(g, s, 0);
  build_iterator(g, d, deal(g, s, dataset, shard, &e), &e);
  graph_pop_device(g);
  build_places(g, s, &e, n_in, in);
  graph_pop_control(g);
  graph_pop_scope(g);
  d->feed = shoal_strategy_input_hook(s, in, s->local * n_in, fill, d);
  return (shoal_hook){d,
                      .begin = begin,
                      .after_create = after_create,
                      .before_run = before_run,
                      .after_run = after_run,
                      .free = release};
}
