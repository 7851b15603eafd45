/* Capturing and replaying steps; see replay.h. */
#include "runtime/replay.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/stream_copy.h"
#include "device/gate.h"
#include "device/memory_plan.h"
#include "runtime/plan_internal.h"
#include "runtime/variable_notes.h"

enum { MOST_AHEAD = 64 }; /* replays queued before one waits for the device: a cancellation is heeded between them */
enum { WARM_UP = 3, LONGEST_PAUSE = 1024, SETTLED = 100, MOST_FAILURES = 3 };

enum replay_state {
  REPLAY_COUNTS, /* runs as always, a few times: kernels choose their ways, memory is found */
  REPLAY_NOTES,  /* the next run takes notes of variables */
  REPLAY_CAPTURES,
  REPLAY_READY,
  REPLAY_NEVER
};

struct replay {
  struct plan *plan; /* no reference: it is the plan's */
  struct replay_map map;
  atomic_bool busy; /* all below is its who set this: the step that notes, captures or replays */
  enum replay_state state;
  int runs;     /* until so many as a warm up takes */
  int pause;    /* how many more it takes when something has moved: twice as many each time */
  int replayed; /* since the capture */
  int failures; /* to capture, in a row */
  struct variable_notes notes;
  struct memory_plan memory;
  struct device_capture *capture;
  struct tensor *args; /* [n_args] their types and shapes; no memory */
  int n_args;
  struct tensor *rets; /* [n_rets] fetches: type and shape; what is kept: the value */
};

static atomic_int_fast64_t replays, bytes;
int64_t replay_count(void) { return atomic_load(&replays); }
int64_t replay_bytes(void) { return atomic_load(&bytes); }

static _Thread_local int64_t *more_wanted;
void replay_more(int64_t *more) { more_wanted = more; }
int64_t *replay_more_take(void) {
  int64_t *more = more_wanted;
  more_wanted = NULL;
  return more;
}

static const struct device_ops *ops_of(const struct replay *r) { return r->plan->device->type->ops; }

/* ---- its memory ---- */

static bool is_off(void) {
  const char *set = getenv("SHOAL_REPLAY");
  return set && !strcmp(set, "0");
}

struct replay *replay_new(struct plan *p, struct shoal_node *const *nodes) {
  struct replay *r = mem_zalloc(1, sizeof *r);
  char *why = NULL;
  if (is_off() || !replay_map_init(&r->map, p, nodes, &why)) {
    if (why && *why) LOGD("a step on %s is not captured: %s", p->device->name, why);
    replay_map_release(&r->map);
    free(why);
    free(r);
    return NULL;
  }
  r->plan = p;
  atomic_init(&r->busy, false);
  return r;
}

static void drop(struct replay *r) {
  if (r->capture) {
    atomic_fetch_sub(&bytes, (int64_t)r->memory.has);
    ops_of(r)->capture_free(r->plan->device, r->capture);
  }
  r->capture = NULL;
  for (int i = 0; r->rets && i < r->map.n_rets; i++) tensor_release(&r->rets[i]);
  free(r->rets);
  free(r->args);
  r->rets = r->args = NULL;
  variable_notes_release(&r->notes);
  memory_plan_release(&r->memory);
  r->notes = (struct variable_notes){0};
}

void replay_free(struct replay *r) {
  if (!r) return;
  drop(r);
  replay_map_release(&r->map);
  free(r);
}

/* From the beginning, after a while that grows where it happens all the time. */
static void begin_again(struct replay *r) {
  drop(r);
  if (r->replayed >= SETTLED || !r->pause) r->pause = 1;
  r->replayed = 0;
  r->state = REPLAY_COUNTS;
  r->runs = WARM_UP - r->pause;
  r->pause = MIN(2 * r->pause, LONGEST_PAUSE);
}

static void has_moved(struct replay *r, const char *variable) {
  LOGD("a captured step on %s begins again: %s has moved", r->plan->device->name, variable);
  begin_again(r);
}

/* The step may have had a mistake of its own, or the device cannot do it. */
static void has_failed(struct replay *r, shoal_status why) {
  LOGD("a step on %s was not captured: %s", r->plan->device->name, shoal_status_message(why));
  shoal_status_free(why);
  begin_again(r);
  if (++r->failures == MOST_FAILURES) r->state = REPLAY_NEVER;
}

/* ---- running the nodes ---- */

static void keep_status(void *arg, shoal_status s) { *(shoal_status *)arg = s; }

/* The plan is one run of nodes: it is over when this returns. */
static shoal_status run_nodes(struct replay *r, struct step *step) {
  shoal_status s = NULL;
  straight_run(r->plan, step, keep_status, &s);
  return s;
}

/* ---- ends ---- */

/* A run whose end the device tells. */
struct replay_end {
  struct replay *r;
  struct step *step;
  shoal_status status;
  shoal_status (*after)(struct replay *r, struct step *step, shoal_status s);
  void (*done)(void *arg, shoal_status s);
  void *arg;
};

static shoal_status with_late(struct step *step, shoal_status s, shoal_status queued) {
  shoal_status late = step->late ? atomic_exchange(step->late, NULL) : NULL;
  if (queued) status_merge(&s, queued);
  if (late) status_merge(&s, late);
  return s;
}

static void told(void *arg, shoal_status queued) {
  struct replay_end e = *(struct replay_end *)arg;
  struct device *d = e.r->plan->device;
  free(arg);
  shoal_status s = e.after(e.r, e.step, with_late(e.step, e.status, queued));
  atomic_store_explicit(&e.r->busy, false, memory_order_release);
  device_gate_leave(d->gate);
  e.done(e.arg, s);
}

/* All is queued: `after` makes of how that ended how the step did. */
static enum replay_outcome end(const struct replay_end *e, shoal_status *out) {
  struct device *d = e->r->plan->device;
  if (e->step->here) {
    *out = e->after(e->r, e->step, with_late(e->step, e->status, d->type->ops->finish(d)));
    return REPLAY_OVER;
  }
  struct replay_end *kept = mem_alloc(sizeof *kept);
  *kept = *e;
  d->type->ops->when_done(d, told, kept);
  return REPLAY_BEGUN;
}

/* ---- notes ---- */

static shoal_status noted(struct replay *r, struct step *step, shoal_status s) {
  if (s) drop(r); /* the next one takes them */
  else r->state = REPLAY_CAPTURES;
  return s;
}

/* A run as always, but for the notes. */
static enum replay_outcome take_notes(struct replay_end *e, shoal_status *out) {
  struct replay *r = e->r;
  variable_notes_begin(&r->notes);
  memory_plan_begin(&r->memory, r->plan->device);
  e->status = run_nodes(r, e->step);
  memory_plan_end();
  variable_notes_end();
  e->after = noted;
  return end(e, out);
}

/* ---- capturing ---- */

static void remember(struct replay *r, const struct step *step) {
  r->n_args = step->n_args;
  r->args = mem_zalloc((size_t)step->n_args + 1, sizeof *r->args);
  r->rets = mem_zalloc((size_t)r->map.n_rets + 1, sizeof *r->rets);
  for (int i = 0; i < step->n_args; i++) {
    tensor_move(&r->args[i], &step->args[i]);
    r->args[i].buffer = NULL;
  }
  for (int i = 0; i < r->map.n_rets; i++) {
    struct tensor *t = &step->rets[i];
    if (r->map.rets[i].from == REPLAY_KEPT) {
      tensor_ref(&r->rets[i], t);
    } else {
      tensor_move(&r->rets[i], t);
      r->rets[i].buffer = NULL;
    }
    tensor_release(t);
  }
}

static bool is_as_mapped(const struct replay *r) {
  return (int)r->capture->feeds.n == r->map.n_feeds && (int)r->capture->fetches.n == r->map.n_fetches;
}

static shoal_status run_and_keep(struct replay *r, struct step *step) {
  shoal_status s = run_nodes(r, step);
  shoal_status ended = ops_of(r)->capture_end(r->plan->device, r->capture);
  if (ended) status_merge(&s, ended);
  return s;
}

/* With the gate shut. On an error the step has done nothing, and variables are as they were. */
static shoal_status capture(struct replay *r, struct step *step) {
  struct device *d = r->plan->device;
  memory_plan_use(&r->memory);
  variables_stay(true);
  shoal_status s = ops_of(r)->capture_begin(d, &r->capture);
  if (!s) s = run_and_keep(r, step);
  variables_stay(false);
  memory_plan_use(NULL);
  atomic_fetch_add(&bytes, (int64_t)r->memory.has);
  if (!s && !is_as_mapped(r)) s = INTERNAL("copies were captured that nobody knows of");
  if (s)
    for (int i = 0; i < step->n_rets; i++) tensor_release(&step->rets[i]);
  return s;
}

/* With the gate shut: nobody comes to share a value that was looked at. True: it was captured. */
static bool capture_unmoved(struct replay *r, struct step *step) {
  const char *moved = variable_notes_lock(&r->notes);
  if (moved) {
    has_moved(r, moved);
    return false;
  }
  variable_notes_unlock(&r->notes);
  shoal_status s = capture(r, step);
  if (s) has_failed(r, s);
  return !s;
}

/* True: it is ready. */
static bool try_capture(struct replay *r, struct step *step) {
  struct device_gate *gate = r->plan->device->gate;
  if (step->n_rets < r->map.n_rets || !device_gate_shut(gate)) return false; /* another time */
  bool captured = capture_unmoved(r, step);
  device_gate_open(gate);
  if (!captured) return false;
  r->failures = 0;
  remember(r, step);
  r->state = REPLAY_READY;
  LOGD("a step on %s of %d nodes was captured; its values take %zu bytes at the most, and have %zu",
       r->plan->device->name, r->plan->n_nodes - r->plan->n_once, r->memory.most, r->memory.has);
  return true;
}

/* ---- replaying ---- */

static bool same_args(const struct replay *r, const struct step *step) {
  if (step->n_args != r->n_args || step->n_rets < r->map.n_rets) return false;
  for (int i = 0; i < r->n_args; i++)
    if (step->args[i].dtype != r->args[i].dtype || !tensor_same_shape(&step->args[i], &r->args[i])) return false;
  return true;
}

/* By one thread: helpers that wake up for it gain nothing. */
static void feed(const struct replay *r, const struct step *step) {
  for (int i = 0; i < r->map.n_feeds; i++) {
    const struct tensor *t = r->map.feed_args[i] >= 0 ? &step->args[r->map.feed_args[i]] : NULL;
    struct buffer *to = r->capture->feeds.at[i];
    if (!t || !t->n) continue;
    if ((uintptr_t)to->data % 16) memcpy(to->data, t->data, tensor_bytes(t));
    else stream_copy(to->data, t->data, tensor_bytes(t));
  }
}

static shoal_status fetch_one(const struct replay *r, struct step *step, int i) {
  const struct tensor *like = &r->rets[i];
  struct replay_ret from = r->map.rets[i];
  struct shape shape = tensor_shape(like);
  tensor_release(&step->rets[i]);
  if (from.from != REPLAY_FETCH) {
    tensor_ref(&step->rets[i], from.from == REPLAY_ARG ? &step->args[from.i] : like);
    return NULL;
  }
  TRY(tensor_new(&step->rets[i], (shoal_dtype)like->dtype, &shape));
  if (like->n) memcpy(step->rets[i].data, r->capture->fetches.at[from.i]->data, tensor_bytes(like));
  return NULL;
}

static shoal_status fetch(const struct replay *r, struct step *step) {
  for (int i = 0; i < r->map.n_rets; i++) TRY(fetch_one(r, step, i));
  return NULL;
}

static shoal_status queue(struct replay *r) {
  atomic_fetch_add(&replays, 1);
  return ops_of(r)->replay(r->plan->device, r->capture);
}

static shoal_status replayed(struct replay *r, struct step *step, shoal_status s) {
  r->replayed++;
  return s ? s : fetch(r, step);
}

/* With variables locked: what changes them is queued when they are let go. */
static enum replay_outcome replay(struct replay_end *e, shoal_status *out) {
  int64_t *more = e->step->more;
  e->status = queue(e->r);
  for (int i = 1; more && *more > 0 && i < MOST_AHEAD && !e->status; i++, --*more) e->status = queue(e->r);
  variable_notes_unlock(&e->r->notes);
  e->after = replayed;
  return end(e, out);
}

static enum replay_outcome try_replay(struct replay_end *e, shoal_status *out) {
  struct replay *r = e->r;
  if (!same_args(r, e->step)) return REPLAY_NOT;
  feed(r, e->step);
  const char *moved = variable_notes_lock(&r->notes);
  if (!moved) return replay(e, out);
  has_moved(r, moved);
  return REPLAY_NOT;
}

static enum replay_outcome run(struct replay_end *e, shoal_status *out) {
  struct replay *r = e->r;
  switch (r->state) {
    case REPLAY_COUNTS:
      if (++r->runs == WARM_UP) r->state = REPLAY_NOTES;
      return REPLAY_NOT;
    case REPLAY_NOTES: return take_notes(e, out);
    case REPLAY_CAPTURES: return try_capture(r, e->step) ? try_replay(e, out) : REPLAY_NOT;
    case REPLAY_READY: return try_replay(e, out);
    case REPLAY_NEVER: return REPLAY_NOT;
  }
  return REPLAY_NOT;
}

enum replay_outcome replay_run(struct replay *r, struct step *step, void (*done)(void *arg, shoal_status s), void *arg,
                               shoal_status *out) {
  if (step->stats || cancel_started(step->cancel)) return REPLAY_NOT;
  if (atomic_exchange_explicit(&r->busy, true, memory_order_acquire)) return REPLAY_NOT;
  enum replay_outcome how = run(&(struct replay_end){.r = r, .step = step, .done = done, .arg = arg}, out);
  if (how != REPLAY_BEGUN) atomic_store_explicit(&r->busy, false, memory_order_release);
  return how;
}
