/* Shared work; see shoal/work.h. The hook gets elements between the steps and feeds them, so that the end of an item is
 * no end of the training: then the item is marked as done and the next one is asked for.
 *
 * A worker has one item at a time. What it finds when its session begins is what the variables say: an item with its
 * name is its own, and goes on where it was left. When all are handed out workers leave, but for the chief, which stays
 * until all are done. An item at which nothing changes for as long as a lease lasts, by the chief's own clock, has lost
 * its worker: the chief takes it. (That only one looks for them is what makes it simple: nobody else competes for
 * them.) A worker that was silent for half a lease looks first whether its item is its own still. What no check can
 * see is one that stands still for a whole lease in the middle of a step, and then goes on. */
#include "feed/work.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "base/stop.h"
#include "graph/given.h"
#include "train/step_request.h"

enum { LOOK_AGAIN_US = 50000, FIT_SECS = 60 };

/* What the chief saw of an item, and since when nothing changed there. */
struct work_seen {
  int64_t owner, used, since_ns;
};

struct shoal_work {
  struct work_graph graph;
  int64_t items, lease_ns;
  int worker;
  shoal_session *session;
  bool chief, fresh; /* fresh: the session was just made */
  int64_t item;      /* -1: none */
  int64_t last_ns;   /* when it last trained, or looked */
  struct work_seen *seen;
};

/* ---- asking the graph ---- */

static shoal_status number(int64_t v, shoal_tensor **out) {
  return shoal_tensor_from(SHOAL_INT64, 0, NULL, &v, sizeof v, out);
}

/* Runs an op that is about an item. */
static shoal_status run_with(struct shoal_work *w, const shoal_op *op, int64_t item, int64_t skip) {
  shoal_tensor *i, *s;
  TRY(number(item, &i));
  shoal_status e = number(skip, &s);
  if (!e) {
    bool begins = op == w->graph.begin;
    shoal_feeds feeds = {(const shoal_feed[]){{w->graph.item, i}, {w->graph.skip, s}}, begins ? 2 : 1};
    e = shoal_session_step(w->session, feeds, SHOAL_NO_FETCHES, op);
    shoal_tensor_unref(s);
  }
  shoal_tensor_unref(i);
  return e;
}

/* Calls look for each item until it says that it is enough. */
typedef bool work_look(struct shoal_work *w, int64_t item, int64_t owner, int64_t used);

static shoal_status look_at_all(struct shoal_work *w, work_look *look) {
  struct step_request r = {0};
  for (int i = 0; i < 2; i++) step_fetch(&r, w->graph.items[i].value);
  shoal_status e = step_run(&r, w->session);
  for (int64_t i = 0; i < w->items && !e; i++) {
    const int64_t *owners = shoal_tensor_const_data(r.values.at[0]), *used = shoal_tensor_const_data(r.values.at[1]);
    if (look(w, i, owners[i], used[i])) break;
  }
  step_release(&r);
  return e;
}

/* ---- items ---- */

static shoal_status begin_item(struct shoal_work *w, int64_t item, int64_t used) {
  TRY(run_with(w, w->graph.begin, item, used));
  w->item = item;
  w->last_ns = clock_ns();
  return NULL;
}

/* What a look found goes here: `item` is -1 before. */
static bool is_mine(struct shoal_work *w, int64_t item, int64_t owner, int64_t used) {
  if (owner != w->worker + 1) return false;
  w->item = item;
  w->seen[item].used = used;
  return true;
}

/* An item that has this worker's name. */
static shoal_status resume(struct shoal_work *w) {
  w->item = -1;
  TRY(look_at_all(w, is_mine));
  return w->item < 0 ? NULL : begin_item(w, w->item, w->seen[w->item].used);
}

/* One that nobody ever had. */
static shoal_status take_new(struct shoal_work *w) {
  int64_t item;
  shoal_status e = session_get_int(w->session, w->graph.ticket, &item);
  if (shoal_status_code(e) == SHOAL_OUT_OF_RANGE) {
    shoal_status_free(e);
    return NULL;
  }
  TRY(e);
  TRY(run_with(w, w->graph.own, item, 0));
  return begin_item(w, item, 0);
}

/* Is it left, and by whom? w->item: -2 while all that were looked at are done, -1 when some are not, or the one. */
static bool is_left(struct shoal_work *w, int64_t item, int64_t owner, int64_t used) {
  struct work_seen *s = &w->seen[item];
  if (owner == WORK_DONE) return false;
  if (!s->since_ns || s->owner != owner || s->used != used) *s = (struct work_seen){owner, used, clock_ns()};
  w->item = clock_ns() - s->since_ns > w->lease_ns ? item : -1;
  return w->item >= 0;
}

/* The chief: until all are done, or one is left. */
static shoal_status take_back(struct shoal_work *w) {
  memset(w->seen, 0, (size_t)w->items * sizeof *w->seen);
  for (bool told = false;; told = true) {
    w->item = -2;
    TRY(look_at_all(w, is_left));
    if (w->item >= 0) break;
    if (w->item == -2 || stop_told()) {
      w->item = -1;
      return NULL;
    }
    if (!told) LOGI("all work is handed out: the chief waits for what other workers have");
    usleep(LOOK_AGAIN_US);
  }
  int64_t item = w->item, used = w->seen[item].used;
  LOGW("item %lld was not gone on with for %g s by worker %lld, after %lld elements: the chief finishes it",
       (long long)item, (double)w->lease_ns * 1e-9, (long long)w->seen[item].owner - 1, (long long)used);
  w->item = -1;
  TRY(run_with(w, w->graph.own, item, 0));
  return begin_item(w, item, used);
}

static shoal_status find_item(struct shoal_work *w) {
  bool fresh = w->fresh;
  w->fresh = false;
  if (fresh) TRY(resume(w));
  if (w->item < 0) TRY(take_new(w));
  if (w->item < 0 && w->chief) TRY(take_back(w));
  return w->item < 0 ? STATUS(SHOAL_OUT_OF_RANGE, "all work is handed out") : NULL;
}

/* ---- how many there are ---- */

static shoal_status count_items(struct shoal_work *w, int64_t n[2]) {
  struct step_request r = {0};
  for (int i = 0; i < 2; i++) step_fetch(&r, w->graph.items[i].value);
  shoal_status e = step_run(&r, w->session);
  for (int i = 0; i < 2 && !e; i++) n[i] = shoal_tensor_elements(r.values.at[i]);
  step_release(&r);
  return e;
}

static shoal_status lengthen(struct shoal_work *w, const struct work_items *items, int64_t by) {
  int64_t *none = mem_zalloc((size_t)by, sizeof *none);
  shoal_tensor *more = NULL;
  shoal_status e = shoal_tensor_from(SHOAL_INT64, 1, &by, none, (size_t)by * sizeof *none, &more);
  free(none);
  if (!e)
    e = shoal_session_step(w->session, (shoal_feeds){(const shoal_feed[]){{w->graph.more, more}}, 1}, SHOAL_NO_FETCHES,
                           items->lengthen);
  shoal_tensor_unref(more);
  return e;
}

/* A run may go on with more items than it had: the chief sees to it, the others wait for that. */
static shoal_status fit_items(struct shoal_work *w) {
  for (int64_t until = deadline_after_ms(FIT_SECS * 1000);; usleep(LOOK_AGAIN_US)) {
    int64_t n[2];
    TRY(count_items(w, n));
    if ((n[0] == w->items && n[1] == w->items) || stop_told()) return NULL;
    if (MAX(n[0], n[1]) > w->items)
      return INVALID("shared work of this run has %lld items already, more than the %lld of this program",
                     (long long)MAX(n[0], n[1]), (long long)w->items);
    for (int i = 0; i < 2 && w->chief; i++)
      if (n[i] < w->items) TRY(lengthen(w, &w->graph.items[i], w->items - n[i]));
    if (clock_ns() > until)
      return INVALID("shared work of this run has %lld items, less than the %lld of this program", (long long)n[0],
                     (long long)w->items);
  }
}

/* ---- the hook ---- */

static shoal_status after_create(void *state, const shoal_created *c) {
  struct shoal_work *w = state;
  w->session = c->session;
  w->chief = c->is_chief;
  w->fresh = true;
  w->item = -1;
  return fit_items(w);
}

/* The next element of this item, or of the next that there is. */
static shoal_status next_element(struct shoal_work *w, struct step_request *r) {
  for (;;) {
    if (w->item < 0) TRY(find_item(w));
    step_clear(r);
    for (int i = 0; i < w->graph.n; i++) step_fetch(r, (shoal_out){w->graph.next, i});
    shoal_status e = step_run(r, w->session);
    if (shoal_status_code(e) != SHOAL_OUT_OF_RANGE) return e;
    shoal_status_free(e);
    TRY(run_with(w, w->graph.done, w->item, 0));
    w->item = -1;
  }
}

static shoal_status before_run(void *state, shoal_run_context *c) {
  struct shoal_work *w = state;
  struct step_request r = {0};
  shoal_tensor *item = NULL;
  if (w->item >= 0 && clock_ns() - w->last_ns > w->lease_ns / 2) TRY(resume(w));
  shoal_status e = next_element(w, &r);
  if (!e) e = number(w->item, &item);
  for (int i = 0; i < w->graph.n && !e; i++) shoal_context_feed(c, w->graph.in[i], r.values.at[i]);
  if (!e) shoal_context_feed(c, w->graph.item, item);
  shoal_tensor_unref(item);
  step_release(&r);
  TRY(e);
  shoal_context_limit_steps(c, 1);
  shoal_context_target(c, w->graph.advance);
  return NULL;
}

static shoal_status after_run(void *state, shoal_run_context *c) {
  ((struct shoal_work *)state)->last_ns = clock_ns();
  return NULL;
}

static void release(void *state) { shoal_work_free(state); }

/* After what a group stands for, not the group: that is on the worker, which may be killed between the updates and the
 * note of them. So one server does both, or two tell each other. */
static void put_after(struct shoal_node *advance, struct shoal_node *n) {
  if (!op_is(n->op, "NoOp") || !n->control.n) graph_add_control(advance, n);
  else
    for (size_t i = 0; i < n->control.n; i++) put_after(advance, n->control.at[i]);
}

shoal_hook shoal_work_hook(shoal_work *w, shoal_op *train) {
  if (!w) return (shoal_hook){0}; /* a mistake that the graph knows */
  if (train && w->graph.advance) put_after(w->graph.advance, train);
  return (shoal_hook){w, .after_create = after_create, .before_run = before_run, .after_run = after_run,
                      .free = release};
}

shoal_work *shoal_work_new(shoal_graph *g, const shoal_work_options *options, shoal_out *in, int n) {
  shoal_work_options o = {0};
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_work_options, lease_secs, &o, options), NULL);
  GRAPH_GIVEN_ARRAY(g, in, n, NULL);
  struct shoal_work *w = mem_zalloc(1, sizeof *w);
  shoal_status e = work_graph_build(g, &o, n, &w->graph);
  if (e) graph_fail(g, e);
  if (graph_error(g)) {
    free(w);
    return NULL;
  }
  for (int i = 0; i < n; i++) in[i] = build_op1(g, "Identity", w->graph.in[i]); /* which may be fetched, too */
  w->items = o.items;
  w->worker = o.worker;
  w->lease_ns = (int64_t)((o.lease_secs > 0 ? o.lease_secs : 60) * 1e9);
  w->item = -1;
  w->seen = mem_zalloc((size_t)o.items, sizeof *w->seen);
  return w;
}

void shoal_work_free(shoal_work *w) {
  if (!w) return;
  free(w->seen);
  free(w);
}
