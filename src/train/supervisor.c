/* Supervisors; see shoal/supervisor.h. Of the same parts as training sessions: scaffold, session manager, coordinator,
 * saver; what is its own are threads that act by the clock instead of hooks that act by the step. */
#include "shoal/supervisor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/given.h"
#include "base/log.h"
#include "graph/graph.h"
#include "train/claim.h"
#include "train/hooks.h"
#include "train/saver.h"
#include "base/options.h"
#include "base/stop.h"
#include "train/stop_together.h"
#include "train/train_session.h"

enum { DEFAULT_MODEL_SECS = 600, DEFAULT_SUMMARIES_SECS = 120 };

struct shoal_supervisor {
  shoal_graph *graph;
  struct scaffold scaffold;
  struct session_manager manager;
  shoal_queue_runner *runners;
  int n_runners;
  char *prefix; /* of checkpoints; NULL: no logdir */
  double model_secs, summaries_secs, stop_grace_secs;
  bool signals;
  struct shoal_events *events;
  shoal_coordinator *coordinator; /* of the session that is open */
  shoal_session *session;
  struct stop_together watch;
  shoal_status error;                           /* of a session that was closed */
  int64_t counted_step, counted_ns, saved_step; /* of the step counter's thread; the last checkpoint's */
};

/* ---- making ---- */

static shoal_status set_up(struct shoal_supervisor *sv, const shoal_supervisor_options *o) {
  shoal_graph *g = sv->graph;
  TRY(saver_files_check_name("logdir", o->logdir));
  TRY(scaffold_complete(&sv->scaffold, g, o->scaffold, o->logdir && o->is_chief));
  if (!sv->scaffold.use.summary_op.node && o->logdir && o->is_chief) sv->scaffold.use.summary_op = summaries_merged(g);
  sv->manager = (struct session_manager){.graph = g,
                                         .scaffold = &sv->scaffold,
                                         .is_chief = o->is_chief,
                                         .checkpoint_dir = o->logdir ? mem_strdup(o->logdir) : NULL,
                                         .max_wait_secs = o->max_wait_secs,
                                         .give_up = o->no_signals ? NULL : stop_told,
                                         .target = mem_strdup(""),
                                         .marks = run_marks_build(g)};
  if (shoal_graph_error(g)) return status_copy(shoal_graph_error(g));
  if (!o->logdir || !o->is_chief) return NULL;
  sv->prefix = mem_printf("%s/%s", o->logdir, o->checkpoint_basename ? o->checkpoint_basename : "model.ckpt");
  if (sv->scaffold.use.saver) {
    TRY(saver_check_room(sv->scaffold.use.saver, o->logdir));
    TRY(claim_take(o->logdir, sv->manager.give_up, &sv->manager.claim));
    TRY(shoal_saver_recover(sv->scaffold.use.saver, o->logdir));
  }
  return events_shared_get(o->logdir, &sv->events);
}

static void release(struct shoal_supervisor *sv) {
  scaffold_release(&sv->scaffold);
  session_manager_release(&sv->manager);
  free(sv->runners);
  events_shared_release(sv->events);
  if (sv->signals) stop_signals_leave();
  shoal_coordinator_free(sv->coordinator);
  shoal_status_free(sv->error);
  free(sv->prefix);
  free(sv);
}

shoal_status shoal_supervisor_new(shoal_graph *g, const shoal_supervisor_options *options, shoal_supervisor **out) {
  GIVEN(g);
  GIVEN(out);
  shoal_supervisor_options o = {0};
  TRY(OPTIONS_TAKE(shoal_supervisor_options, no_signals, &o, options));
  TRY(given_array(__func__, "options->queue_runners", o.queue_runners, o.n_queue_runners));
  struct shoal_supervisor *sv = mem_zalloc(1, sizeof *sv);
  sv->graph = g;
  sv->model_secs = o.save_model_secs == 0 ? DEFAULT_MODEL_SECS : o.save_model_secs;
  sv->summaries_secs = o.save_summaries_secs == 0 ? DEFAULT_SUMMARIES_SECS : o.save_summaries_secs;
  sv->stop_grace_secs = o.stop_grace_secs;
  sv->signals = !o.no_signals;
  sv->saved_step = -1;
  sv->coordinator = shoal_coordinator_new();
  sv->n_runners = o.n_queue_runners;
  shoal_status e =
      OPTIONS_TAKE_ARRAY(shoal_queue_runner, cancel, &sv->runners, o.queue_runners, sv->n_runners, o.queue_runner_size);
  if (sv->signals) stop_signals_take();
  if (!e) e = set_up(sv, &o);
  if (e) release(sv);
  else *out = sv;
  return e;
}

/* ---- sessions ---- */

/* Threads first, then the session they use. Keeps the error that stopped the threads, but for lost tasks. */
static void close_session(struct shoal_supervisor *sv) {
  shoal_coordinator_request_stop(sv->coordinator, NULL);
  shoal_status e = shoal_coordinator_join(sv->coordinator, sv->stop_grace_secs);
  if (sv->scaffold.use.saver) shoal_status_free(shoal_saver_wait(sv->scaffold.use.saver));
  if (sv->session) shoal_status_free(shoal_session_close(sv->session));
  sv->session = NULL;
  if (e && !status_is_lost_task(e) && !sv->error) sv->error = e;
  else shoal_status_free(e);
}

shoal_status shoal_supervisor_prepare_or_wait(shoal_supervisor *sv, const char *target,
                                              const shoal_session_options *options, shoal_session **session) {
  shoal_session_options o = {0};
  TRY(OPTIONS_TAKE(shoal_session_options, give_up, &o, options));
  if (sv->session) {
    close_session(sv);
    shoal_coordinator_free(sv->coordinator);
    sv->coordinator = shoal_coordinator_new();
  }
  free(sv->manager.target);
  sv->manager.target = mem_strdup(target ? target : "");
  sv->manager.session = o;
  if (!sv->manager.give_up) sv->manager.give_up = o.give_up;
  shoal_made made;
  TRY(session_manager_create(&sv->manager, &sv->session, &made));
  if (sv->signals) {
    struct run_marks *marks = *sv->manager.target ? sv->manager.marks : NULL;
    TRY(stop_together_start(&sv->watch, marks, sv->session, sv->coordinator, sv->manager.is_chief));
  }
  *session = sv->session;
  return NULL;
}

shoal_status shoal_supervisor_start_queue_runners(shoal_supervisor *sv) {
  return shoal_queue_runners_start(sv->runners, sv->n_runners, sizeof *sv->runners, sv->session, sv->coordinator);
}

shoal_status shoal_supervisor_managed_session(shoal_supervisor *sv, const char *target,
                                              const shoal_session_options *options, shoal_session **session) {
  TRY(shoal_supervisor_prepare_or_wait(sv, target, options, session));
  if (sv->manager.is_chief) TRY(shoal_supervisor_start_standard_services(sv));
  return shoal_supervisor_start_queue_runners(sv);
}

/* ---- threads by the clock ---- */

struct supervisor_loop {
  shoal_coordinator *c;
  double seconds;
  shoal_status (*fn)(void *arg);
  void *arg;
};

static shoal_status run_loop(void *arg) {
  struct supervisor_loop l = *(struct supervisor_loop *)arg;
  free(arg);
  int64_t next = clock_ns();
  while (!shoal_coordinator_should_stop(l.c)) {
    TRY(l.fn(l.arg));
    next += (int64_t)(l.seconds * 1e9); /* by the clock, however long fn takes */
    double left = (double)(next - clock_ns()) * 1e-9;
    if (left < 0) next = clock_ns();
    if (shoal_coordinator_wait_for_stop(l.c, left < 0 ? 0 : left)) break;
  }
  return NULL;
}

shoal_status shoal_supervisor_loop(shoal_supervisor *sv, double seconds, shoal_status (*fn)(void *arg), void *arg) {
  GIVEN(fn);
  struct supervisor_loop *l = mem_zalloc(1, sizeof *l);
  *l = (struct supervisor_loop){sv->coordinator, seconds > 0 ? seconds : 0, fn, arg};
  shoal_status e = shoal_coordinator_start(sv->coordinator, run_loop, l);
  if (e) free(l);
  return e;
}

static shoal_status step_now(struct shoal_supervisor *sv, int64_t *step) {
  *step = -1;
  return sv->scaffold.global_step.node ? session_get_int(sv->session, sv->scaffold.global_step, step) : NULL;
}

static shoal_status save(void *arg) {
  struct shoal_supervisor *sv = arg;
  int64_t step;
  TRY(step_now(sv, &step));
  if (step >= 0 && step == sv->saved_step) return NULL;
  TRY(shoal_saver_save(sv->scaffold.use.saver, sv->session, sv->prefix, step, NULL));
  sv->saved_step = step;
  events_told(event_write_session_log(sv->events, MAX(step, 0), 3, sv->prefix));
  return NULL;
}

static shoal_status summarise(void *arg) {
  struct shoal_supervisor *sv = arg;
  int64_t step;
  shoal_tensor *summary;
  TRY(shoal_session_step(sv->session, SHOAL_NO_FEEDS, SHOAL_FETCH(sv->scaffold.use.summary_op, &summary), NULL));
  shoal_status e = step_now(sv, &step);
  if (!e) e = shoal_supervisor_summary_computed(sv, summary, step);
  shoal_tensor_unref(summary);
  return e;
}

static shoal_status count(void *arg) {
  struct shoal_supervisor *sv = arg;
  int64_t step, now = clock_ns();
  TRY(step_now(sv, &step));
  if (sv->counted_ns && step > sv->counted_step) {
    double rate = (double)(step - sv->counted_step) / ((double)(now - sv->counted_ns) * 1e-9);
    events_told(event_write_scalar(sv->events, step, "global_step/sec", (float)rate));
  }
  sv->counted_step = step;
  sv->counted_ns = now;
  return NULL;
}

shoal_status shoal_supervisor_start_standard_services(shoal_supervisor *sv) {
  if (!sv->manager.is_chief)
    return INVALID(
        "Only chief supervisor can start standard services. Because only chief supervisors can write events.");
  if (!sv->events) {
    LOGW("Standard services need a 'logdir' passed to the supervisor");
    return NULL;
  }
  int64_t step;
  TRY(step_now(sv, &step));
  TRY(graph_write(sv->graph, sv->manager.checkpoint_dir, sv->events, MAX(step, 0), sv->scaffold.use.saver));
  TRY(event_write_session_log(sv->events, MAX(step, 0), 1, NULL));
  if (sv->summaries_secs > 0 && sv->scaffold.use.summary_op.node)
    TRY(shoal_supervisor_loop(sv, sv->summaries_secs, summarise, sv));
  if (sv->summaries_secs > 0 && sv->scaffold.global_step.node)
    TRY(shoal_supervisor_loop(sv, sv->summaries_secs, count, sv));
  if (sv->model_secs > 0 && sv->scaffold.use.saver) TRY(shoal_supervisor_loop(sv, sv->model_secs, save, sv));
  return NULL;
}

shoal_status shoal_supervisor_summary_computed(shoal_supervisor *sv, const shoal_tensor *summary, int64_t step) {
  if (!sv->events) return INVALID("Writing a summary requires a summary writer: a chief with a logdir.");
  GIVEN(summary);
  if (shoal_tensor_dtype(summary) != SHOAL_STRING || shoal_tensor_elements(summary) != 1)
    return INVALID("a summary is one string");
  if (step < 0) TRY(step_now(sv, &step));
  size_t n;
  const char *data = shoal_tensor_string(summary, 0, &n);
  events_told(event_write_summary(sv->events, MAX(step, 0), data, n));
  return NULL;
}

/* ---- the end ---- */

bool shoal_supervisor_should_stop(shoal_supervisor *sv) {
  return (sv->signals && stop_told()) || shoal_coordinator_should_stop(sv->coordinator);
}

void shoal_supervisor_request_stop(shoal_supervisor *sv, shoal_status error) {
  shoal_coordinator_request_stop(sv->coordinator, error);
}

shoal_coordinator *shoal_supervisor_coordinator(shoal_supervisor *sv) { return sv->coordinator; }
shoal_saver *shoal_supervisor_saver(shoal_supervisor *sv) { return sv->scaffold.use.saver; }

static shoal_status save_last(struct shoal_supervisor *sv) {
  if (!sv->session || !sv->events || !sv->scaffold.use.saver || sv->model_secs < 0) return NULL;
  if (sv->signals && stop_told()) stop_together_settle(&sv->watch, sv->scaffold.global_step, 0);
  return save(sv);
}

shoal_status shoal_supervisor_stop(shoal_supervisor *sv) {
  if (!sv) return NULL;
  shoal_coordinator_request_stop(sv->coordinator, NULL);
  shoal_status e = shoal_coordinator_join(sv->coordinator, sv->stop_grace_secs);
  if (!e && !sv->error) e = save_last(sv);
  if (!sv->error) sv->error = e;
  else shoal_status_free(e);
  if (sv->events) shoal_status_free(event_write_session_log(sv->events, 0, 2, NULL));
  bool told = sv->signals && stop_told();
  if (sv->session && !sv->error && !told && sv->manager.is_chief && *sv->manager.target)
    shoal_status_free(run_marks_done(sv->manager.marks, sv->session, true));
  if (sv->session) shoal_status_free(shoal_session_close(sv->session));
  e = sv->error;
  sv->error = NULL;
  release(sv);
  return e;
}
