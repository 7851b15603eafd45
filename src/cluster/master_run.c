/* One step: every partition is started, the last to end gives the answer.
 *
 * A partition that fails cancels the others; of several errors the one that is no consequence of another is told. The
 * step's remains are cleaned up on all workers, whatever the outcome (by a call only where a worker does not do so by
 * itself); nobody waits for that. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/block.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/ref.h"
#include "cluster/listing.h"
#include "cluster/master.h"
#include "proto/config.wire.h"
#include "rpc/fast/fast.h"
#include "runtime/run_cancel.h"
#include "runtime/run_metadata.h"

/* What one worker does of it. */
struct step_part {
  struct graph_run run;
  struct step_run *of;
};

struct step_run {
  struct ref refs;              /* the run's own, the handle's, and a closer's */
  struct step_run *prev, *next; /* session->lock */
  struct master_session *session;
  struct compiled *compiled;
  int64_t id, started, deadline;
  int64_t key;                         /* its number is one that other masters' steps have, too; 0: it is its own */
  struct step_run *after, *after_next; /* session->lock: the first that begins when this one has ended; the next such */
  struct alarm alarm;                  /* at the deadline, where the call itself does not end then */
  struct cancel cancel;
  struct tensor *args, *rets;
  struct rendezvous *rendezvous; /* partial runs */
  struct join join;              /* the parts, and the starter */
  shoal_status status;           /* when they have ended: how */
  struct step_stats *stats;
  struct join logging; /* traced: workers that are asked about their logs, and the asker */
  bool partition_graphs;
  bool is_timed; /* by a time-out of its own */
  step_done done;
  void *arg;
  struct step_part parts[]; /* [compiled->parts.n] */
};

void step_run_unref(struct step_run *r) {
  if (!r || !ref_drop(&r->refs)) return;
  rendezvous_unref(r->rendezvous);
  cancel_release(&r->cancel);
  block_free(r);
}

/* What is cancelled may end the run on this very thread: it stays until the cancellation is through. */
void step_run_cancel(struct step_run *r, shoal_status why) {
  ref_take(&r->refs);
  cancel_start(&r->cancel, why);
  step_run_unref(r);
}

struct cancel *step_run_cancellation(struct step_run *r) {
  return &r->cancel;
}

void step_run_cleanup(struct step_run *r, struct master_session *s) {
  home_end_rendezvous(s->master->server.home, r->id);
}

struct rendezvous *step_run_rendezvous(struct step_run *r) {
  return r->rendezvous;
}

/* Those that begin now that it is gone. */
static struct step_run *unlink_run(struct step_run *r) {
  struct master_session *s = r->session;
  pthread_mutex_lock(&s->lock);
  LIST_REMOVE(s->running, r);
  struct step_run *after = r->after;
  pthread_mutex_unlock(&s->lock);
  return after;
}

/* Whoever waits for the last step to end goes on. */
static void tell_idle(struct master_session *s) {
  pthread_mutex_lock(&s->lock);
  void (*then)(struct master_session *, void *) = s->running ? NULL : s->idle;
  if (then) s->idle = NULL;
  pthread_mutex_unlock(&s->lock);
  if (!then) return;
  home_session_over(s->master->server.home, s->number);
  then(s, s->idle_arg);
}

static void put_metadata(struct step_run *r, struct text *out) {
  if (r->stats) {
    size_t at = begin_RunMetadata_step_stats(out);
    step_stats_encode(r->stats, out);
    for (size_t i = 0; i < r->compiled->parts.n; i++)
      text_add(out, text_cstr(&r->parts[i].run.step_stats), r->parts[i].run.step_stats.n);
    wire_end(out, at);
  }
  int64_t every = r->session->config.said.cost_every;
  if (every > 0 && (atomic_fetch_add(&r->compiled->runs, 1) + 1) % every == 0) put_RunMetadata_cost_graph_n(out, "", 0);
  if (r->partition_graphs) text_add(out, text_cstr(&r->compiled->partition_graphs), r->compiled->partition_graphs.n);
}

/* A worker's own clock may end its part of a step that is out of time, as cancelled, before ours does. */
static shoal_status late(const struct step_run *r, shoal_status err) {
  enum { SKEW_NS = 20 * 1000000 };
  if (shoal_status_code(err) != SHOAL_CANCELLED || r->deadline == DEADLINE_NEVER || clock_ns() < r->deadline - SKEW_NS)
    return err;
  shoal_status s = STATUS(SHOAL_DEADLINE_EXCEEDED, "Deadline Exceeded\n%s", shoal_status_message(err));
  shoal_status_free(err);
  return s;
}

static void on_deadline(void *arg) {
  step_run_cancel(arg, STATUS(SHOAL_DEADLINE_EXCEEDED, "Deadline Exceeded: the step's own time-out"));
}

static void ask_number(struct step_run *r);

static void conclude(struct step_run *r) {
  alarm_clear(&r->alarm);
  struct master_session *s = r->session;
  struct compiled *c = r->compiled;
  if (r->key && r->id) home_step_over(s->master->server.home, r->key, r->id, s->number, r->started, r->status);
  shoal_status err = late(r, run_cancel_outcome(&r->cancel, r->status));
  for (size_t i = 0; i < c->fetches.n && !err && r->rets; i++)
    if (!tensor_valid(&r->rets[i]))
      err = INTERNAL(
          "Failed to fetch outputs for step %lld. (Original error message: The tensor returned for %s was not valid.)",
          (long long)r->id, c->fetches.at[i]);
  struct text metadata = {0};
  if (!err) put_metadata(r, &metadata);
  for (struct step_run *w = unlink_run(r), *next; w; w = next) {
    next = w->after_next;
    ask_number(w);
  }
  r->done(r->arg, err, r->rets, &metadata);
  text_release(&metadata);
  for (size_t i = 0; r->args && i < c->feeds.n; i++) tensor_release(&r->args[i]);
  for (size_t i = 0; r->rets && i < c->fetches.n; i++) tensor_release(&r->rets[i]);
  for (size_t i = 0; i < c->parts.n; i++) text_release(&r->parts[i].run.step_stats);
  block_free(r->args);
  block_free(r->rets);
  step_stats_free(r->stats);
  compiled_unref(c);
  step_run_unref(r);
  tell_idle(s);
  master_session_unref(s);
}

/* ---- traced steps: the workers' logs of transfers ---- */

static void start_parts(struct step_run *r);

static void log_answered(void *arg, shoal_status err) {
  shoal_status_free(err); /* a trace may lack them */
  join_part(arg, NULL);
}

static void logging_begun(void *arg, shoal_status none) { start_parts(arg); }

static void logging_over(void *arg, shoal_status none) { conclude(arg); }

/* Before the step, and after it, when what they have comes to their part's stats. */
static void ask_about_logs(struct step_run *r, bool is_over) {
  enum { PATIENCE_MS = 5000 };
  size_t n = r->compiled->parts.n;
  join_init(&r->logging, n + 1, is_over ? logging_over : logging_begun, r);
  for (size_t i = 0; i < n; i++) {
    struct worker_link *w = &r->session->workers.at[r->compiled->parts.at[i].worker];
    w->ops->log_transfers(w, !is_over, r->id, MIN(r->deadline, deadline_after_ms(PATIENCE_MS)),
                          is_over ? &r->parts[i].run.step_stats : NULL, log_answered, &r->logging);
  }
  join_part(&r->logging, NULL);
}

/* ---- the parts ---- */

static void finish(void *arg, shoal_status err) {
  struct step_run *r = arg;
  struct compiled *c = r->compiled;
  r->status = err;
  for (size_t i = 0; i < c->parts.n; i++) {
    struct worker_link *w = &r->session->workers.at[c->parts.at[i].worker];
    const struct graph_run *run = &r->parts[i].run;
    /* A partial run's values may not have been asked for yet: step_run_cleanup() comes later. */
    if (r->id && !run->leaves_step && (!run->cleans_up || err)) w->ops->cleanup_graph(w, r->id);
  }
  /* Who has cancelled the step does not wait for its trace. */
  if (r->stats && !cancel_started(&r->cancel)) ask_about_logs(r, true);
  else conclude(r);
}

static void part_done(void *arg, shoal_status err) {
  struct step_part *p = arg;
  struct step_run *r = p->of;
  if (err) {
    const char *task = r->session->workers.at[r->compiled->parts.at[p - r->parts].worker].task;
    /* "From": once, by the master nearest to the failure. */
    if (!str_starts(shoal_status_message(err), "From /job:")) status_prefix(err, "From %s:\n", task);
    if (join_has_others(&r->join)) cancel_start(&r->cancel, status_mark_derived(status_copy(err)));
  }
  join_part(&r->join, err);
}

struct step_run *step_run_new(struct master_session *s, struct compiled *c, const struct run_options *o,
                              int64_t call_deadline, struct tensor *args, step_done done, void *arg) {
  struct step_run *r = block_zalloc(sizeof *r + c->parts.n * sizeof *r->parts);
  ref_init(&r->refs, 2); /* the run's own, and the caller's */
  r->session = s;
  master_session_ref(s);
  r->compiled = c;
  signature_ref(&c->head);
  bool partial = c->pruned != NULL; /* of many calls, each with its own time */
  if (c->collectives.any && !partial && cluster_spec_count(s->master->server.spec) > 1) {
    if (o->collective_key) r->key = o->collective_key;
    else if (!c->collectives.whole) r->key = c->collectives.key;
  }
  if (!r->key) r->id = (int64_t)(random_bits() >> 7);
  r->started = clock_ns();
  cancel_init(&r->cancel);
  r->args = args;
  r->done = done;
  r->arg = arg;
  r->partition_graphs = o->partition_graphs;
  if (o->trace) r->stats = step_stats_new(false);
  int64_t limit_ms = o->timeout_ms > 0 ? o->timeout_ms : s->config.said.operation_timeout_ms;
  r->deadline = limit_ms > 0 && !partial ? MIN(call_deadline, deadline_after_ms(limit_ms)) : call_deadline;
  r->is_timed = r->deadline < call_deadline;
  if (partial) r->rendezvous = home_rendezvous(s->master->server.home, r->id);
  else r->rets = block_zalloc(c->fetches.n * sizeof *r->rets);
  return r;
}

static void start(struct step_run *r) {
  shoal_status wrong = r->compiled->collectives.wrong;
  if (wrong) finish(r, status_copy(wrong));
  else if (r->stats) ask_about_logs(r, false);
  else start_parts(r);
}

/* One that was cancelled, or is out of time, ends soon: its client, too, may think that it has. */
static bool is_ending(struct step_run *r) { return cancel_started(&r->cancel) || clock_ns() >= r->deadline; }

enum number { NUMBER_TAKEN, NUMBER_AWAITED, NUMBER_IN_USE };

/* Two steps at a time would have one number, and take each other's values. It is r's now, or r begins when the step
 * that has it has ended, or that one is at work. */
static enum number take_number(struct step_run *r, int64_t id) {
  struct master_session *s = r->session;
  struct step_run *ending = NULL;
  enum number outcome = NUMBER_TAKEN;
  pthread_mutex_lock(&s->lock);
  for (struct step_run *o = s->running; o && outcome != NUMBER_IN_USE; o = o->next) {
    if (o == r || o->key != r->key || o->id != id) continue;
    outcome = is_ending(o) ? NUMBER_AWAITED : NUMBER_IN_USE;
    ending = o;
  }
  if (outcome == NUMBER_TAKEN) r->id = id;
  if (outcome == NUMBER_AWAITED) {
    r->after_next = ending->after;
    ending->after = r;
  }
  pthread_mutex_unlock(&s->lock);
  return outcome;
}

static void have_number(void *arg, shoal_status err, int64_t id) {
  struct step_run *r = arg;
  struct master_session *s = r->session;
  if (!err) err = home_step_begins(s->master->server.home, r->key, id, s->number);
  enum number outcome = err ? NUMBER_TAKEN : take_number(r, id);
  if (outcome == NUMBER_IN_USE)
    err = STATUS(SHOAL_FAILED_PRECONDITION,
                 "A step with collectives between tasks is under way in this session: such steps run one at a time");
  if (err) finish(r, err);
  else if (outcome == NUMBER_TAKEN) start(r);
}

static void ask_number(struct step_run *r) {
  struct master_session *s = r->session;
  home_next_step(s->master->server.home, r->key, s->config.leader, s->began, &r->cancel, have_number, r);
}

void step_run_begin(struct step_run *r) {
  struct master_session *s = r->session;
  join_init(&r->join, r->compiled->parts.n + 1, finish, r);
  pthread_mutex_lock(&s->lock);
  bool closed = s->closed;
  LIST_ADD(s->running, r);
  pthread_mutex_unlock(&s->lock);
  if (closed) {
    finish(r, STATUS(SHOAL_CANCELLED, "Session has been closed."));
    return;
  }
  if (r->is_timed) alarm_set(&r->alarm, r->deadline, on_deadline, r);
  if (r->id) start(r);
  else ask_number(r);
}

static void start_parts(struct step_run *r) {
  struct master_session *s = r->session;
  struct compiled *c = r->compiled;
  bool partial = c->pruned != NULL;
  /* This process' own part, the first, is begun last: the others run while this thread works on it, and its requests
   * travel with theirs. */
  fast_hold();
  for (size_t i = c->parts.n; i-- > 0;) {
    struct worker_link *w = &s->workers.at[c->parts.at[i].worker];
    struct step_part *p = &r->parts[i];
    p->of = r;
    p->run = (struct graph_run){.run.step = {.id = r->id,
                                             .deadline = r->deadline,
                                             .cancel = &r->cancel,
                                             .args = r->args,
                                             .n_args = partial ? 0 : (int)c->feeds.n,
                                             .rets = r->rets,
                                             .n_rets = partial ? 0 : (int)c->fetches.n,
                                             .stats = r->stats,
                                             .rendezvous = r->rendezvous},
                                .session_handle = s->half,
                                .graph_handle = c->parts.at[i].graph,
                                .done = part_done,
                                .arg = p};
    w->ops->run_graph(w, &p->run);
  }
  fast_release();
  join_part(&r->join, NULL);
}

void step_runs_stop(struct master_session *s, shoal_status why, void (*then)(struct master_session *s, void *arg),
                    void *arg) {
  VEC(struct step_run *) runs = {0};
  pthread_mutex_lock(&s->lock);
  s->closed = true;
  for (struct step_run *r = s->running; r; r = r->next) {
    ref_take(&r->refs);
    vec_push(&runs, r);
  }
  pthread_mutex_unlock(&s->lock);
  cancel_start(&s->ending, STATUS(SHOAL_CANCELLED, "Session has been closed."));
  for (size_t i = 0; i < runs.n; i++) {
    cancel_start(&runs.at[i]->cancel, status_copy(why));
    step_run_unref(runs.at[i]);
  }
  shoal_status_free(why);
  vec_release(&runs);
  /* The last step may end as soon as `then` is there, and `then` gives the session back: it stays until we looked. */
  ref_take(&s->refs);
  pthread_mutex_lock(&s->lock);
  s->idle = then;
  s->idle_arg = arg;
  pthread_mutex_unlock(&s->lock);
  tell_idle(s);
  master_session_unref(s);
}

void master_describe(struct master *m, struct text *out) {
  pthread_mutex_lock(&m->lock);
  text_addf(out, "%zu master sessions\n", m->sessions.n);
  int64_t now = clock_ns();
  void *value;
  struct listing sessions = {.out = out}, steps = {.out = out};
  for (size_t i = 0; strmap_next(&m->sessions, &i, NULL, &value) && listing_line(&sessions);) {
    struct master_session *s = value;
    pthread_mutex_lock(&s->lock);
    text_addf(out, " session %" PRId64 ": %zu tasks, %zu compiled steps\n", s->number, s->workers.n,
              signatures_count(&s->compiled));
    for (struct step_run *r = s->running; r && listing_line(&steps); r = r->next)
      text_addf(out, "  step %" PRId64 ": running since %.1f s, %d of %zu partitions not ended\n", listing_step(r->id),
                (double)(now - r->started) * 1e-9, atomic_load(&r->join.left), r->compiled->parts.n);
    pthread_mutex_unlock(&s->lock);
  }
  if (sessions.full || steps.full)
    text_addf(out, " ... and more: %" PRId64 " steps are under way\n", limits_used(m->server.limits, LIMIT_STEPS));
  pthread_mutex_unlock(&m->lock);
}
