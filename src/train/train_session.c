/* Training sessions; see shoal/train_session.h.
 *
 * Three layers, which are three classes in TensorFlow, are three functions here: run_hooked (one step, hooks around
 * it), shoal_train_session_run (again with a new session when a task was lost), and shoal_run (errors kept for the
 * end). */
#include "train/train_session.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/device_name.h"
#include "base/given.h"
#include "base/log.h"
#include "base/options.h"
#include "base/stop.h"
#include "base/strmap.h"
#include "base/text.h"
#include "graph/builder.h"
#include "runtime/session_config.h"
#include "runtime/session_ops.h"
#include "train/claim.h"
#include "train/progress.h"
#include "train/run_marks.h"
#include "train/saver.h"
#include "train/stop_together.h"

/* Not there in a build without the network's libraries, which has no servers to ask. */
#pragma weak shoal_server_target
#pragma weak shoal_server_task

struct shoal_train_session {
  shoal_graph *graph;
  VEC(shoal_hook) hooks;
  bool hooks_taken; /* those of the program are among them */
  struct scaffold scaffold;
  struct session_manager manager;
  shoal_queue_runner *runners;
  int n_runners;
  double stop_grace_secs;
  int64_t stop_at_step;
  int64_t steps_each; /* of a run */
  int64_t done;       /* of the run that is under way */
  bool signals, keep_cluster;
  bool meets;                              /* other tasks in every step: struct session_rules */
  bool ends_with_tasks;                    /* likewise */
  shoal_status (*explain)(shoal_status e); /* likewise; NULL: nothing to say */
  char *task;                              /* by whose name progress speaks; NULL: it does not */
  int64_t known_step;                      /* the last that the step counter was seen at, when it speaks */
  shoal_status *status;                    /* where SHOAL_TRAIN_SESSION leaves the error */

  shoal_session *session; /* NULL: to be made */
  shoal_created created;
  shoal_run_context context; /* reused from step to step */
  bool stop;
  shoal_status error; /* kept for the end */
  int64_t step_ns;    /* how long the last step took */

  struct stop_together watch;
};

/* ---- hooks ---- */

int shoal_context_fetch(shoal_run_context *c, shoal_out what) { return step_fetch(&c->step, what); }
void shoal_context_target(shoal_run_context *c, shoal_op *op) { step_target(&c->step, op); }
void shoal_context_feed(shoal_run_context *c, shoal_out to, shoal_tensor *value) {
  shoal_status e = step_feed(&c->step, to, value);
  if (!e) vec_push(&c->fed, shoal_tensor_ref(value));
  if (c->error) shoal_status_free(e);
  else c->error = e;
}
void shoal_context_trace(shoal_run_context *c) { c->step.options.trace_level = 3; }
const shoal_tensor *shoal_context_value(const shoal_run_context *c, int fetch) {
  return fetch >= 0 && (size_t)fetch < c->step.values.n ? c->step.values.at[fetch] : NULL;
}
double shoal_context_number(const shoal_run_context *c, int fetch) {
  return tensor_number(shoal_context_value(c, fetch));
}
shoal_bytes shoal_context_metadata(const shoal_run_context *c) { return c->step.metadata; }
shoal_session *shoal_context_session(const shoal_run_context *c) { return c->session; }
void shoal_context_request_stop(shoal_run_context *c) { c->stop = true; }
bool shoal_context_stop_requested(const shoal_run_context *c) { return c->stop; }

/* ---- making sessions ---- */

/* why: it is given up before its end; NULL: that was its end. */
static void close_session(struct shoal_train_session *s, shoal_status why) {
  if (!s->session) return;
  for (size_t i = 0; i < s->hooks.n; i++)
    if (s->hooks.at[i].before_close) s->hooks.at[i].before_close(s->hooks.at[i].state);
  shoal_coordinator_request_stop(s->created.coordinator, NULL);
  shoal_status e = shoal_coordinator_join(s->created.coordinator, s->stop_grace_secs);
  if (shoal_status_code(e) == SHOAL_DEADLINE_EXCEEDED) LOGW("%s", shoal_status_message(e));
  shoal_status_free(e);
  /* A lost one cannot be closed properly. */
  shoal_status_free(why ? session_give_up(s->session, shoal_status_message(why)) : shoal_session_close(s->session));
  shoal_coordinator_free(s->created.coordinator);
  s->created.coordinator = NULL;
  s->created.session = s->session = NULL;
}

/* What a person wants to know whenever a session was made: from where training goes on, and what was lost. */
static void say_how_made(struct shoal_train_session *s) {
  const shoal_created *c = &s->created;
  if (!s->task || !c->is_chief) return;
  if (c->made == SHOAL_MADE_RESTORED) progress_say(s->task, "restored %s", c->checkpoint);
  if (c->made == SHOAL_MADE_INITIALIZED && s->manager.checkpoint_dir && !s->known_step) {
    char *why = saver_files_why_none(s->manager.checkpoint_dir);
    progress_say(s->task, "starts anew: %s", why);
    free(why);
  }
  if (c->made == SHOAL_MADE_REJOINED && !s->known_step)
    progress_say(s->task, "goes on from step %" PRId64 ": the run is alive on its servers", c->global_step);
  /* Others may have trained on since the model was made, and before it was lost, unseen from here. */
  bool anew = c->made == SHOAL_MADE_RESTORED || c->made == SHOAL_MADE_INITIALIZED;
  int64_t from = c->made == SHOAL_MADE_RESTORED ? checkpoint_step(c->checkpoint) : anew ? 0 : c->global_step;
  int64_t lost = s->known_step - MAX(from, 0);
  if (s->known_step > 0 && lost > 0)
    progress_say(s->task, "goes on from step %" PRId64 ": with a task at least %" PRId64 " steps were lost", from,
                 lost);
  else if (s->known_step > 0)
    progress_say(s->task, "goes on from step %" PRId64 "%s", from, anew ? "" : ": no step was lost");
  s->known_step = MAX(c->global_step, 0);
}

static shoal_status after_create(struct shoal_train_session *s) {
  shoal_created *c = &s->created;
  c->global_step = -1;
  if (s->scaffold.global_step.node) TRY(session_get_int(s->session, s->scaffold.global_step, &c->global_step));
  say_how_made(s);
  if (s->signals) TRY(stop_together_start(&s->watch, s->manager.marks, s->session, c->coordinator, c->is_chief));
  TRY(shoal_queue_runners_start(s->runners, s->n_runners, sizeof *s->runners, s->session, c->coordinator));
  for (size_t i = 0; i < s->hooks.n; i++)
    if (s->hooks.at[i].after_create) TRY(s->hooks.at[i].after_create(s->hooks.at[i].state, c));
  return NULL;
}

static shoal_status make_session(struct shoal_train_session *s) {
  for (;;) {
    shoal_made made;
    shoal_status e = session_manager_create(&s->manager, &s->session, &made);
    TRY(e && s->explain ? s->explain(e) : e);
    s->created = (shoal_created){.session = s->session,
                                 .coordinator = shoal_coordinator_new(),
                                 .graph = s->graph,
                                 .is_chief = s->manager.is_chief,
                                 .made = made,
                                 .stop_at_step = s->stop_at_step,
                                 .checkpoint = s->manager.restored,
                                 .options = &s->manager.session,
                                 .max_wait_secs = session_manager_max_wait(&s->manager)};
    e = after_create(s);
    if (!e) return NULL;
    close_session(s, status_is_lost_task(e) ? e : NULL); /* else the others are told the same, each by itself */
    if (!status_is_lost_task(e)) return e;
    LOGW("a task was lost while the session was being made: %s", shoal_status_message(e));
    shoal_status_free(e);
  }
}

/* ---- opening ---- */

/* Sessions of a worker should not need tasks that its graph does not: the devices' names in the graph, and the worker's
 * own, are what the session is confined to. */
static void add_filters(struct text *config, const shoal_graph *g, const char *own_task) {
  struct strmap seen = {0};
  char name[192];
  struct device_spec spec;
  for (size_t i = 0; i <= g->nodes.n; i++) {
    const char *device = i == g->nodes.n ? own_task : g->nodes.at[i] ? g->nodes.at[i]->device : "";
    if (!*device) continue;
    shoal_status e = device_spec_parse(device, &spec);
    bool named = !e && spec.has_job;
    shoal_status_free(e);
    if (!named) continue;
    spec.has_type = spec.has_id = spec.has_replica = false;
    device_spec_print(&spec, name, sizeof name);
    if (!strmap_put(&seen, name, (void *)1)) session_config_add_filter(name, config);
  }
  strmap_release(&seen);
}

static shoal_status set_up_manager(struct shoal_train_session *s, const shoal_train_session_options *o) {
  struct session_manager *m = &s->manager;
  const char *target = o->server ? shoal_server_target(o->server) : o->master ? o->master : "";
  *m = (struct session_manager){.graph = s->graph,
                                .scaffold = &s->scaffold,
                                .target = mem_strdup(target),
                                .is_chief = o->is_chief || !*target,
                                .checkpoint_dir = o->checkpoint_dir ? mem_strdup(o->checkpoint_dir) : NULL,
                                .max_wait_secs = o->max_wait_secs,
                                .give_up = o->no_signals ? NULL : stop_told};
  TRY(OPTIONS_TAKE(shoal_session_options, give_up, &m->session, o->session));
  m->session.target = m->target;
  if (!m->give_up) m->give_up = m->session.give_up;
  const struct session_rules *rules = (const struct session_rules *)o->strategy;
  if (rules && !m->session.cpu_devices) m->session.cpu_devices = rules->cpu_devices;
  if (*target && !s->meets) m->marks = run_marks_build(s->graph);
  struct text config = {0};
  text_add(&config, m->session.config, m->session.config_size);
  if (o->server) add_filters(&config, s->graph, shoal_server_task(o->server));
  for (char **task = rules ? rules->tasks : NULL; task && *task; task++) session_config_add_filter(*task, &config);
  m->session.config_size = config.n;
  m->session.config = m->config = text_take(&config);
  return NULL;
}

/* What MonitoredTrainingSession adds by itself. */
static void add_own_hooks(struct shoal_train_session *s, const shoal_train_session_options *o, bool chief) {
  const char *logs = o->log_dir ? o->log_dir : o->checkpoint_dir;
  bool counts = global_step_value(s->graph).node != NULL;
  if (chief && logs && counts && o->log_step_count_steps >= 0)
    vec_push(&s->hooks, shoal_step_counter_hook(o->log_step_count_steps, 0, logs));
  if (chief && logs && counts && o->save_summaries_steps >= 0 && o->save_summaries_secs >= 0)
    vec_push(&s->hooks, shoal_summary_saver_hook(o->save_summaries_steps, o->save_summaries_secs, logs,
                                                 s->scaffold.use.summary_op));
  if (chief && o->checkpoint_dir && o->save_steps >= 0 && o->save_secs >= 0)
    vec_push(&s->hooks,
             shoal_checkpoint_saver_hook(o->checkpoint_dir, o->save_steps, o->save_secs, s->scaffold.use.saver));
}

/* Trained so far already: not one step more. (TensorFlow's hook looks only after a step.) */
static void stop_if_done(struct shoal_train_session *s) {
  const shoal_created *c = &s->created;
  if (s->stop_at_step <= 0 || c->global_step < s->stop_at_step) return;
  s->stop = true;
  if (s->task)
    progress_say(s->task, "has nothing to train: step %" PRId64 " is reached, and training ends at %" PRId64,
                 c->global_step, s->stop_at_step);
}

/* What the strategy says stands in for what the program did not. */
static void follow(struct shoal_train_session *s, shoal_train_session_options *o) {
  struct session_rules *rules = (struct session_rules *)o->strategy;
  if (!rules || !rules->server) return;
  rules->steps_each = s->steps_each;
  rules->stop_at_step = s->stop_at_step;
  s->explain = rules->explain;
  if (!o->server) o->server = rules->server;
  o->is_chief = rules->is_chief;
  s->meets = s->watch.meets = rules->meet != NULL;
  s->ends_with_tasks = rules->ends_with_tasks;
}

static void take_hooks(struct shoal_train_session *s, const shoal_train_session_options *o) {
  for (int i = 0; o->hooks && i < o->n_hooks; i++) vec_push(&s->hooks, o->hooks[i]);
  s->hooks_taken = true;
}

static shoal_status set_up(struct shoal_train_session *s, const shoal_train_session_options *o) {
  shoal_graph *g = s->graph;
  const struct session_rules *rules = (const struct session_rules *)o->strategy;
  bool chief = o->is_chief || (!o->server && !(o->master && *o->master));
  TRY(saver_files_check_name("checkpoint_dir", o->checkpoint_dir));
  TRY(saver_files_check_name("log_dir", o->log_dir));
  /* Others need the saver's ops as little as they need its files. */
  TRY(scaffold_complete(&s->scaffold, g, o->scaffold, chief && o->checkpoint_dir));
  if (rules && rules->stay) vec_push(&s->hooks, rules->stay(o->strategy));
  add_own_hooks(s, o, chief);
  take_hooks(s, o);
  if (o->stop_at_step > 0) vec_push(&s->hooks, shoal_stop_at_step_hook(0, o->stop_at_step));
  if (o->progress) {
    shoal_progress p = {0};
    TRY(OPTIONS_TAKE(shoal_progress, every_secs, &p, o->progress));
    s->task = mem_strdup(p.label ? p.label : "");
    if (s->scaffold.use.saver) saver_talk(s->scaffold.use.saver, s->task);
    if (!p.last_step) p.last_step = o->stop_at_step;
    vec_push(&s->hooks, shoal_progress_hook(&p));
  }
  if (s->meets) vec_push(&s->hooks, rules->meet(o->strategy));
  if (graph_error(g)) return status_copy(graph_error(g));
  for (size_t i = 0; i < s->hooks.n; i++)
    if (s->hooks.at[i].begin) TRY(s->hooks.at[i].begin(s->hooks.at[i].state, g));
  TRY(set_up_manager(s, o));
  if (graph_error(g)) return status_copy(graph_error(g));
  if (s->manager.is_chief && o->checkpoint_dir && s->scaffold.use.saver) {
    TRY(saver_check_room(s->scaffold.use.saver, o->checkpoint_dir));
    TRY(claim_take(o->checkpoint_dir, s->manager.give_up, &s->manager.claim));
    TRY(shoal_saver_recover(s->scaffold.use.saver, o->checkpoint_dir));
  }
  TRY(make_session(s));
  stop_if_done(s);
  return NULL;
}

static void drop_fed(shoal_run_context *c) {
  execution_clear(c);
  while (c->fed.n) shoal_tensor_unref(vec_pop(&c->fed));
}

/* e: what it ends with. */
static void free_all(struct shoal_train_session *s, shoal_status e) {
  close_session(s, e);
  for (size_t i = 0; i < s->hooks.n; i++)
    if (s->hooks.at[i].free) s->hooks.at[i].free(s->hooks.at[i].state);
  vec_release(&s->hooks);
  free(s->runners);
  step_release(&s->context.step);
  drop_fed(&s->context);
  vec_release(&s->context.fed);
  vec_release(&s->context.each);
  scaffold_release(&s->scaffold);
  session_manager_release(&s->manager);
  if (s->signals) stop_signals_leave();
  free(s->task);
  shoal_status_free(s->error);
  free(s);
}

shoal_status shoal_train_session_open(shoal_graph *g, const shoal_train_session_options *options,
                                      shoal_train_session **out) {
  shoal_train_session_options o = {0};
  shoal_status e = OPTIONS_TAKE(shoal_train_session_options, status, &o, options);
  if (!e && !(g && out)) e = INVALID("%s: %s is NULL", __func__, g ? "out" : "g");
  if (!e) e = given_array(__func__, "options->queue_runners", o.queue_runners, o.n_queue_runners);
  if (!e) e = given_array(__func__, "options->hooks", o.hooks, o.n_hooks);
  struct shoal_train_session *s = mem_zalloc(1, sizeof *s);
  s->graph = g;
  s->stop_grace_secs = o.stop_grace_secs;
  s->stop_at_step = o.stop_at_step;
  s->steps_each = MAX(o.steps_per_execution, 1);
  if (!e && o.steps_per_execution < 0) e = INVALID("steps_per_execution is %" PRId64, o.steps_per_execution);
  s->signals = !o.no_signals;
  s->keep_cluster = o.keep_cluster;
  s->status = o.status;
  follow(s, &o);
  s->n_runners = o.n_queue_runners;
  if (!e)
    e = OPTIONS_TAKE_ARRAY(shoal_queue_runner, cancel, &s->runners, o.queue_runners, s->n_runners, o.queue_runner_size);
  if (s->signals) stop_signals_take();
  if (!e) e = set_up(s, &o);
  if (e && !s->hooks_taken) take_hooks(s, &o);
  if (e) free_all(s, e);
  else *out = s;
  return e;
}

/* ---- steps ---- */

/* What the program asks for comes first, so that its numbers are known; the same fetch twice shares a number. */
static shoal_status ask(shoal_run_context *c, shoal_feeds feeds, shoal_fetches fetches, const shoal_op *target) {
  TRY(step_ask(&c->step, "shoal_train_session_run", feeds, fetches, target));
  c->own_feeds = (int)c->step.feeds.n;
  c->own_fetches = (int)c->step.fetches.n;
  return NULL;
}

static shoal_status run_hooked(struct shoal_train_session *s, shoal_feeds feeds, shoal_fetches fetches,
                               const shoal_op *target) {
  shoal_run_context *c = &s->context;
  step_clear(&c->step);
  drop_fed(c); /* of a step that failed */
  c->session = s->session;
  c->stop = s->stop;
  c->whole = s->steps_each;
  c->first = s->done;
  c->steps = c->whole - c->first;
  TRY(ask(c, feeds, fetches, target));
  int counted = s->task && s->scaffold.global_step.node ? step_fetch(&c->step, s->scaffold.global_step) : -1;
  for (size_t i = 0; i < s->hooks.n; i++)
    if (s->hooks.at[i].before_run) TRY(s->hooks.at[i].before_run(s->hooks.at[i].state, c));
  if (c->error) {
    shoal_status e = c->error;
    c->error = NULL;
    return e;
  }
  int64_t began = clock_ns();
  stop_together_step(&s->watch, began, s->step_ns);
  shoal_status e = execution_run(c, &s->done);
  stop_together_step(&s->watch, 0, 0);
  bool ended = shoal_status_code(e) == SHOAL_OUT_OF_RANGE; /* the input */
  if (e && s->meets && counted >= 0 && !ended) status_suffix(e, ", after training step %" PRId64, s->known_step);
  TRY(e);
  drop_fed(c);
  s->step_ns = clock_ns() - began;
  for (size_t i = 0; i < s->hooks.n; i++)
    if (s->hooks.at[i].after_run) TRY(s->hooks.at[i].after_run(s->hooks.at[i].state, c));
  s->stop = s->stop || c->stop;
  if (counted >= 0) s->known_step = (int64_t)shoal_context_number(c, counted);
  return step_store(&c->step, fetches);
}

/* What a thread of the session died of, if anything: more telling than what the step ran into because of it. */
static void prefer_thread_error(struct shoal_train_session *s, shoal_status *e) {
  shoal_status other = s->created.coordinator ? shoal_coordinator_error(s->created.coordinator) : NULL;
  if (!other) return;
  shoal_status_free(*e);
  *e = other;
}

/* Did a step that failed end the training as it should? Its input has ended; or it found nothing, and no more was
 * looked for once the process was told to stop: the model is that of the step before, which is saved. */
static bool input_ended(struct shoal_train_session *s, shoal_status e) {
  if (shoal_status_code(e) == SHOAL_OUT_OF_RANGE) return true;
  if (shoal_status_code(e) != SHOAL_CANCELLED || s->meets || !stop_hurried() || !s->created.coordinator) return false;
  shoal_status other = shoal_coordinator_error(s->created.coordinator);
  shoal_status_free(other);
  return !other;
}

shoal_status shoal_train_session_run(shoal_train_session *s, shoal_feeds feeds, shoal_fetches fetches,
                                     const shoal_op *target) {
  if (s->stop) return STATUS(SHOAL_FAILED_PRECONDITION, "Run called even after should_stop requested.");
  for (s->done = 0;;) {
    if (!s->session) TRY(make_session(s));
    shoal_status e = run_hooked(s, feeds, fetches, target);
    prefer_thread_error(s, &e);
    if (!status_is_lost_task(e)) return e;
    if (s->ends_with_tasks) return status_prefix(e, "a task was lost, and all are to be run again: ");
    LOGW("a task was lost, the session is made anew: %s", shoal_status_message(e));
    close_session(s, e);
    shoal_status_free(e);
    if (s->meets) s->done = 0; /* all tasks go back to the checkpoint, and meet in runs of the same steps from there */
    if (s->signals && stop_told()) return STATUS(SHOAL_CANCELLED, "told to stop after a task was lost");
  }
}

bool shoal_run(shoal_train_session *s, shoal_feeds feeds, shoal_fetches fetches, const shoal_op *target) {
  if (s->error) return false;
  shoal_status e = shoal_train_session_run(s, feeds, fetches, target);
  if (!e) return true;
  s->stop = true;
  if (input_ended(s, e)) shoal_status_free(e);
  else s->error = status_kept(e);
  return false;
}

bool shoal_should_stop(shoal_train_session *s) {
  if (s->signals && !s->meets && stop_told()) s->stop = true;
  if (s->stop || !s->session || !shoal_coordinator_should_stop(s->created.coordinator)) return s->stop;
  shoal_status e = shoal_coordinator_error(s->created.coordinator);
  if (status_is_lost_task(e)) { /* the next step makes a new session */
    close_session(s, e);
    shoal_status_free(e);
    return false;
  }
  if (e && !s->error) s->error = e;
  else shoal_status_free(e);
  s->stop = true;
  return true;
}

void shoal_request_stop(shoal_train_session *s) { s->stop = true; }
shoal_status shoal_train_session_error(const shoal_train_session *s) { return s->error; }
shoal_session *shoal_train_session_raw(shoal_train_session *s) { return s->session; }
const shoal_created *shoal_train_session_created(const shoal_train_session *s) { return &s->created; }

/* ---- the end ---- */

/* The chief has nothing more to do with the model: that was the end, or it was told to stop and is to be run again. */
static void say_goodbye(struct shoal_train_session *s) {
  int64_t step = -1;
  bool told = s->signals && stop_told(), saves = s->manager.checkpoint_dir != NULL;
  if (told && s->task && s->scaffold.global_step.node)
    shoal_status_free(session_get_int(s->session, s->scaffold.global_step, &step));
  if (told && step >= 0)
    progress_say(s->task, "stopped at step %" PRId64 "%s%s", step,
                 saves ? "; the same command again goes on from " : "; nothing was saved, for want of a checkpoint_dir",
                 saves ? s->manager.checkpoint_dir : "");
  if (!told && s->stop && !s->keep_cluster && s->manager.marks)
    shoal_status_free(run_marks_done(s->manager.marks, s->session, true)); /* whoever is gone needs no word */
}

shoal_status shoal_train_session_close(shoal_train_session *s) {
  if (!s) return NULL;
  if (!s->error && s->session) {
    if (s->signals && stop_told()) stop_together_settle(&s->watch, s->scaffold.global_step, s->step_ns);
    /* From the last to the first: the checkpoint comes after whatever the program's own hooks still do. */
    for (size_t i = s->hooks.n; i-- > 0;) {
      if (!s->hooks.at[i].end) continue;
      shoal_status e = s->hooks.at[i].end(s->hooks.at[i].state, s->session);
      if (s->error) shoal_status_free(e);
      else s->error = e;
    }
    if (!s->error && s->manager.is_chief) say_goodbye(s);
  }
  shoal_status e = s->error;
  s->error = NULL;
  free_all(s, e);
  return e;
}

shoal_train_session *shoal_train_session_begin(shoal_graph *g, const shoal_train_session_options *options) {
  shoal_train_session *s = NULL;
  shoal_train_session_options o = {0};
  shoal_status e = OPTIONS_TAKE(shoal_train_session_options, status, &o, options);
  shoal_status_free(e); /* opening says it again */
  e = shoal_train_session_open(g, options, &s);
  if (!e) return s;
  if (o.status) *o.status = e;
  else {
    shoal_status_print(e);
    shoal_status_free(e);
  }
  return NULL;
}

shoal_train_session *shoal_train_session_finish(shoal_train_session *s) {
  shoal_status *to = s->status, e = shoal_train_session_close(s);
  if (to) *to = e;
  else {
    shoal_status_print(e);
    shoal_status_free(e);
  }
  return NULL;
}
