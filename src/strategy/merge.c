/* How the replicas of a run wait for each other while they are built.
 *
 * A replica that merges needs what the others bring, and their functions have not come so far yet. So each function
 * runs on a thread of its own, as in TensorFlow, and one at a time: the run gives the turn to a replica, which gives it
 * back when it waits or has ended. A graph is still built by one thread at any time; the scopes of a replica that waits
 * are set aside. With one replica there is nothing to wait for, and no thread.
 *
 * A collective in the function that merges has its keys from the strategy, behind those that replicas have used. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "graph/given.h"
#include "strategy/strategy.h"

static void wait_for(sem_t *s) {
  while (sem_wait(s) && errno == EINTR) continue;
}

/* ---- a replica's side ---- */

static void merge_alone(struct shoal_replica *r, const struct merge_call *c) {
  variable_maker_end(&r->maker, "shoal_replica_merge_call");
  across_end();
  int before = r->strategy->next_key;
  r->strategy->next_key = r->key;
  c->fn(r->maker.g, r->strategy, c->in, c->out, c->arg);
  r->key = r->strategy->next_key;
  r->strategy->next_key = before;
  across_begin(&r->across);
  variable_maker_begin(&r->maker, "shoal_replica_merge_call");
}

void shoal_replica_merge_call(shoal_replica *r, shoal_merge_fn *fn, void *arg, const shoal_out *in, int n_in,
                              shoal_out *out, int n_out) {
  struct shoal_graph *g = r->maker.g;
  GRAPH_GIVEN(g, fn);
  GRAPH_GIVEN_ARRAY(g, in, n_in);
  GRAPH_GIVEN_ARRAY(g, out, n_out);
  struct merge_call call = {fn, arg, in, out, n_in, n_out};
  for (int i = 0; i < n_out; i++) out[i] = (shoal_out){0};
  if (r->strategy->local == 1) {
    merge_alone(r, &call);
    return;
  }
  struct graph_aside *aside = graph_set_aside(g, r->run->depth);
  r->merges = &call;
  sem_post(&r->run->back);
  wait_for(&r->turn);
  r->merges = NULL;
  graph_put_back(g, aside);
}

static void *build_in_turn(void *arg) {
  struct shoal_replica *r = arg;
  wait_for(&r->turn);
  replica_build(r);
  sem_post(&r->run->back);
  return NULL;
}

/* ---- the run's side ---- */

/* How many replicas wait to merge. */
static int count_merging(const struct replica_run *run, int n) {
  int merging = 0;
  for (int i = 0; i < n; i++) merging += run->replicas[i].merges != NULL;
  return merging;
}

static bool are_alike(struct shoal_graph *g, const struct replica_run *run, int n) {
  const struct merge_call *first = run->replicas[0].merges;
  bool alike = count_merging(run, n) == n;
  for (int i = 0; i < n && alike; i++) {
    const struct merge_call *c = run->replicas[i].merges;
    alike = c->fn == first->fn && c->n_in == first->n_in && c->n_out == first->n_out &&
            run->replicas[i].key == run->replicas[0].key;
  }
  if (!alike && !graph_error(g))
    graph_fail(
        g, INVALID("shoal_replica_merge_call: not all replicas have come to the same call: every replica must do the "
                   "same, in the same order"));
  return alike;
}

/* One call of the function for all who wait, if they wait for the same. */
static void merge(struct replica_run *run, int n) {
  struct shoal_strategy *s = run->replicas[0].strategy;
  struct shoal_graph *g = run->replicas[0].maker.g;
  if (!are_alike(g, run, n)) return;
  const struct merge_call *c = run->replicas[0].merges;
  shoal_out *in = mem_zalloc((size_t)(n * c->n_in) + 1, sizeof *in),
            *out = mem_zalloc((size_t)(n * c->n_out) + 1, sizeof *out);
  for (int i = 0; i < n && c->n_in; i++)
    memcpy(in + i * c->n_in, run->replicas[i].merges->in, (size_t)c->n_in * sizeof *in);
  int before = s->next_key;
  s->next_key = run->replicas[0].key;
  c->fn(g, s, in, out, c->arg);
  for (int i = 0; i < n; i++) {
    run->replicas[i].key = s->next_key;
    if (c->n_out) memcpy(run->replicas[i].merges->out, out + i * c->n_out, (size_t)c->n_out * sizeof *out);
  }
  s->next_key = before;
  free(in);
  free(out);
}

/* The turn goes to a replica, and comes back when that waits or has ended. */
static void go_on(struct replica_run *run, int i) {
  sem_post(&run->replicas[i].turn);
  wait_for(&run->back);
}

void replicas_build(struct replica_run *run, int n) {
  struct shoal_graph *g = run->replicas[0].maker.g;
  if (n == 1) {
    replica_build(&run->replicas[0]);
    return;
  }
  pthread_t *threads = mem_zalloc((size_t)n, sizeof *threads);
  int started = 0;
  run->depth = graph_depth(g);
  sem_init(&run->back, 0, 0);
  for (int i = 0; i < n; i++) sem_init(&run->replicas[i].turn, 0, 0);
  for (int err = 0; started < n && !err; started += !err) {
    err = pthread_create(&threads[started], NULL, build_in_turn, &run->replicas[started]);
    if (err) graph_fail(g, ERRNO_STATUS(err, "cannot start a thread for replica %d", started));
  }
  for (int i = 0; i < started; i++) go_on(run, i);
  while (count_merging(run, started)) {
    merge(run, started);
    for (int i = 0; i < started; i++)
      if (run->replicas[i].merges) go_on(run, i);
  }
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < n; i++) sem_destroy(&run->replicas[i].turn);
  sem_destroy(&run->back);
  free(threads);
}
