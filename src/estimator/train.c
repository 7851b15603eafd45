/* Training: the graph is placed as this task's part of the cluster wants it, and a training session does the rest.
 *
 * On parameter servers the input stays with the worker and variables go where the device setter says, as TensorFlow's
 * Estimator places them. Under a strategy the model function is called once for each replica, each with its part of the
 * batch; features must be dense then. */
#include "estimator/estimator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/options.h"
#include "base/regex.h"
#include "graph/given.h"
#include "strategy/strategy.h"
#include "train/hooks.h"
#include "train/variables.h"

struct train_run {
  struct shoal_estimator *e;
  const shoal_train_spec *spec;
  struct built b;
  shoal_strategy *strategy; /* NULL: none */
  shoal_var stop;           /* under a strategy, with early stopping: what tells of the end */
  shoal_saver *saver, *warm;
  char *warm_prefix;
  int64_t stop_at;
  VEC(shoal_hook) hooks;
};

static bool is_chief(const struct shoal_estimator *e) { return !e->cluster || shoal_cluster_is_chief(e->cluster); }

static shoal_status start_server(struct shoal_estimator *e) {
  if (!e->cluster || e->server) return NULL;
  return shoal_server_start(SHOAL_OPTIONS(shoal_server_options, .cluster = shoal_cluster_json(e->cluster),
                                          .job = shoal_cluster_job(e->cluster), .task = shoal_cluster_task(e->cluster)),
                            &e->server);
}

static shoal_status make_strategy(struct train_run *t) {
  struct shoal_estimator *e = t->e;
  int ps = e->cluster ? shoal_cluster_tasks(e->cluster, "ps") : 0;
  if (e->config.strategy == SHOAL_ESTIMATOR_MIRRORED) {
    if (e->cluster) return INVALID("replicas on the devices of one process, and TF_CONFIG has a cluster");
    return shoal_strategy_new_mirrored(NULL, e->config.devices ? e->config.devices : 2, NULL, &t->strategy);
  }
  bool together = e->config.strategy == SHOAL_ESTIMATOR_MULTI_WORKER;
  if (together && ps) return INVALID("a strategy of several workers has no parameter servers; TF_CONFIG has %d", ps);
  if (e->cluster && !ps && (together || estimator_workers(e) > 1))
    return shoal_strategy_new_multi_worker(e->cluster, e->server, NULL, &t->strategy);
  return NULL;
}

/* ---- the graph ---- */

static void build_model(struct train_run *t) { t->e->model(t->b.g, SHOAL_MODE_TRAIN, &t->b.in, &t->b.spec, t->e->arg); }

static shoal_status add_early_stopping(struct train_run *t, shoal_var stop, shoal_out told) {
  shoal_hook hook = {0};
  TRY(early_stopping_add(t->b.g, t->e, t->spec->early_stopping, is_chief(t->e), stop, told, &hook));
  vec_push(&t->hooks, hook);
  return NULL;
}

static shoal_status build_placed(struct train_run *t) {
  struct shoal_estimator *e = t->e;
  int ps = e->cluster ? shoal_cluster_tasks(e->cluster, "ps") : 0;
  char *here = e->cluster ? mem_printf("/job:%s/task:%d%s", estimator_job(e), shoal_cluster_task(e->cluster), e->device)
                          : mem_strdup(e->device);
  if (ps) shoal_push_replica_setter(t->b.g, SHOAL_OPTIONS(shoal_replica_setter, .ps_tasks = ps, .worker_device = here));
  else shoal_push_device(t->b.g, here);
  free(here);
  shoal_global_step(t->b.g);
  shoal_status s = built_input(&t->b, SHOAL_MODE_TRAIN, t->spec->input, t->spec->arg);
  if (!s) build_model(t);
  if (!s && t->spec->early_stopping) {
    shoal_var stop = early_stopping_variable(t->b.g);
    s = add_early_stopping(t, stop, stop.value);
  }
  shoal_pop_device(t->b.g);
  return s;
}

enum { LOSS, STOPS, REPLICA_OUTPUTS }; /* STOPS: does its copy say so? where there is early stopping */

/* One replica's model: its part of the batch is in[]. */
static shoal_op *replica(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  struct train_run *t = arg;
  struct shoal_inputs part = {.g = g, .worker = t->b.in.worker, .workers = t->b.in.workers};
  struct shoal_estimator_spec spec = {.g = g};
  int n = (int)t->b.in.features.n;
  for (int i = 0; i < n; i++) shoal_inputs_feature(&part, t->b.in.features.at[i].name, in[i]);
  part.labels = in[n];
  shoal_global_step(g);
  t->e->model(g, SHOAL_MODE_TRAIN, &part, &spec, t->e->arg);
  out[LOSS] = spec.loss;
  if (t->stop.handle.node) out[STOPS] = build_cast(g, shoal_replica_variable(r, t->stop).value, SHOAL_FLOAT32);
  shoal_op *op = spec.train;
  for (size_t i = 0; i < spec.hooks.n; i++) { /* those of the first replica are for all */
    if (shoal_replica_id(r) == shoal_strategy_first_replica(t->strategy)) vec_push(&t->b.spec.hooks, spec.hooks.at[i]);
    else if (spec.hooks.at[i].free) spec.hooks.at[i].free(spec.hooks.at[i].state);
  }
  vec_clear(&spec.hooks);
  inputs_release(&part);
  spec_release(&spec);
  return op;
}

static shoal_status build_replicas(struct train_run *t) {
  struct shoal_graph *g = t->b.g;
  shoal_push_strategy(g, t->strategy);
  shoal_global_step(g);
  if (t->spec->early_stopping) t->stop = early_stopping_variable(g);
  shoal_pop_strategy(g, t->strategy);
  TRY(built_input(&t->b, SHOAL_MODE_TRAIN, t->spec->input, t->spec->arg));
  int n = (int)t->b.in.features.n + 1, replicas = shoal_strategy_local_replicas(t->strategy);
  for (int i = 0; i < n - 1; i++)
    if (t->b.in.features.at[i].indices.node)
      return INVALID("feature '%s' is sparse: under a strategy batches are cut into parts, features must be dense",
                     t->b.in.features.at[i].name);
  int n_out = t->spec->early_stopping ? REPLICA_OUTPUTS : STOPS;
  shoal_out *given = mem_zalloc((size_t)n, sizeof *given); /* features and labels, of all of this task's replicas */
  for (int i = 0; i < n; i++) given[i] = i < n - 1 ? t->b.in.features.at[i].values : t->b.in.labels;
  if (t->strategy->tasks > 1) vec_push(&t->hooks, input_common_end(g, t->strategy, given, n));
  shoal_out *in = mem_zalloc((size_t)(n * replicas), sizeof *in);
  shoal_out *out = mem_zalloc((size_t)(n_out * replicas), sizeof *out), told = {0};
  for (int i = 0; i < n; i++) shoal_strategy_split(g, t->strategy, given[i], in + i, n);
  t->b.spec.train = shoal_strategy_run(g, t->strategy, replica, t, in, n, out, n_out);
  t->b.spec.loss = out[LOSS];
  if (t->stop.handle.node && !graph_error(g))
    told = shoal_strategy_reduce(g, t->strategy, SHOAL_REDUCE_SUM, out + STOPS, n_out);
  free(given);
  free(in);
  free(out);
  return told.node ? add_early_stopping(t, t->stop, told) : NULL;
}

static void add_loss_summary(struct shoal_graph *g, shoal_out loss) {
  struct build b = build_begin(g, "ScalarSummary", "loss_summary");
  build_in(&b, shoal_constant_string(g, "loss"));
  build_in(&b, loss);
  build_end(&b);
}

/* ---- warm start ---- */

static shoal_status warm_fn(void *arg, shoal_session *session) {
  struct train_run *t = arg;
  return status_prefix(shoal_saver_restore(t->warm, session, t->warm_prefix), "warm start: ");
}

static shoal_status prepare_warm_start(struct train_run *t, shoal_scaffold *scaffold) {
  struct shoal_estimator *e = t->e;
  if (!e->warm_start || !is_chief(e)) return NULL;
  t->warm_prefix =
      file_is_directory(e->warm_start) ? shoal_latest_checkpoint(e->warm_start) : mem_strdup(e->warm_start);
  if (!t->warm_prefix) return NOT_FOUND("warm start: there is no checkpoint in %s", e->warm_start);
  char *why = NULL;
  const char *pattern = e->warm_start_vars ? e->warm_start_vars : ".*";
  struct regex *names = regex_new(pattern, strlen(pattern), &why);
  if (!names) {
    shoal_status s = INVALID("warm start: '%s': %s", pattern, why ? why : "no regular expression");
    free(why);
    return s;
  }
  int n = shoal_variables(t->b.g, true, NULL, 0), kept = 0;
  shoal_var *vars = mem_zalloc((size_t)n + 1, sizeof *vars);
  shoal_variables(t->b.g, true, vars, n);
  struct regex_span spans[REGEX_MAX_GROUPS];
  for (int i = 0; i < n; i++) {
    const char *name = variable_save_name(vars[i]);
    if (regex_search(names, name, strlen(name), 0, spans) && spans[0].begin == 0) vars[kept++] = vars[i];
  }
  regex_free(names);
  if (kept) t->warm = shoal_saver_new(t->b.g, SHOAL_OPTIONS(shoal_saver_options, .vars = vars, .n_vars = kept));
  free(vars);
  if (!kept) return INVALID("warm start: no variable that is trained matches '%s'", pattern);
  scaffold->init_fn = warm_fn;
  scaffold->init_arg = t;
  return NULL;
}

/* ---- steps ---- */

static shoal_status run_steps(struct train_run *t, const shoal_train_session_options *o) {
  shoal_train_session *s;
  TRY(shoal_train_session_open(t->b.g, o, &s));
  int64_t steps = 0;
  while (!shoal_should_stop(s)) steps += shoal_run(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, t->b.spec.train);
  shoal_status e = shoal_train_session_close(s);
  if (!e && !steps && !shoal_preempted() && !t->e->cluster)
    e = INVALID("no step was made: the input of the training is empty");
  return e;
}

/* 0: no matter; -1: nothing is left to do. */
static shoal_status last_step(struct train_run *t) {
  const shoal_train_spec *spec = t->spec;
  int64_t at = 0;
  char *latest = shoal_latest_checkpoint(t->e->model_dir);
  shoal_status s = latest ? shoal_checkpoint_int(latest, "global_step", &at) : NULL;
  free(latest);
  if (s) return s;
  t->stop_at = spec->max_steps ? spec->max_steps : spec->steps ? at + spec->steps : 0;
  if (spec->max_steps && at >= spec->max_steps) t->stop_at = -1;
  return NULL;
}

static shoal_status train(struct train_run *t) {
  struct shoal_estimator *e = t->e;
  TRY(last_step(t));
  if (t->stop_at < 0 && !e->cluster) return NULL;
  TRY(start_server(e));
  TRY(make_strategy(t));
  built_begin(&t->b, e);
  TRY(t->strategy ? build_replicas(t) : build_placed(t));
  TRY(built_check(&t->b, SHOAL_MODE_TRAIN));
  add_loss_summary(t->b.g, t->b.spec.loss);
  if (is_chief(e)) /* who alone saves and restores; other tasks of a strategy have nothing to save */
    t->saver = shoal_saver_new(t->b.g, SHOAL_OPTIONS(shoal_saver_options, .max_to_keep = e->config.keep_checkpoints,
                                                     .keep_every_hours = e->config.keep_every_hours));
  shoal_scaffold scaffold = {.size = sizeof scaffold, .saver = t->saver};
  TRY(prepare_warm_start(t, &scaffold));
  if (graph_error(t->b.g)) return status_copy(graph_error(t->b.g));
  for (size_t i = 0; i < t->b.spec.hooks.n; i++) vec_push(&t->hooks, t->b.spec.hooks.at[i]);
  vec_clear(&t->b.spec.hooks);
  vec_push(&t->hooks, shoal_nan_tensor_hook(t->b.spec.loss, true));
  if (is_chief(e) && (e->config.save_steps < 0 || e->config.save_secs < 0)) /* the session then saves nothing */
    vec_push(&t->hooks, checkpoint_at_end_hook(e->model_dir, t->saver));
  shoal_progress progress = {0};
  if (e->config.progress) {
    TRY(OPTIONS_TAKE(shoal_progress, every_secs, &progress, e->config.progress));
    progress.size = sizeof progress;
    progress.loss = t->b.spec.loss;
    progress.last_step = MAX(t->stop_at, (int64_t)0);
  }
  shoal_train_session_options o = {.size = sizeof o,
                                   .server = e->server,
                                   .is_chief = is_chief(e),
                                   .checkpoint_dir = e->model_dir,
                                   .save_steps = e->config.save_steps,
                                   .save_secs = e->config.save_secs,
                                   .save_summaries_steps = e->config.summary_steps,
                                   .log_step_count_steps = e->config.log_steps,
                                   .stop_at_step = t->stop_at < 0 ? t->spec->max_steps : t->stop_at,
                                   .hooks = t->hooks.at,
                                   .n_hooks = (int)t->hooks.n,
                                   .scaffold = &scaffold,
                                   .progress = e->config.progress ? &progress : NULL,
                                   .max_wait_secs = e->config.max_wait_secs,
                                   .session = e->config.session,
                                   .strategy = t->strategy};
  t->hooks.n = 0; /* the session's now */
  return run_steps(t, &o);
}

static void free_hooks(const shoal_hook *hooks, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (hooks[i].free) hooks[i].free(hooks[i].state);
}

shoal_status estimator_train(struct shoal_estimator *e, const shoal_train_spec *spec, const shoal_hook *extra) {
  struct train_run t = {.e = e, .spec = spec};
  for (int i = 0; i < spec->n_hooks; i++) vec_push(&t.hooks, spec->hooks[i]);
  if (extra) vec_push(&t.hooks, *extra);
  shoal_status s = train(&t);
  free_hooks(t.hooks.at, t.hooks.n);
  vec_release(&t.hooks);
  shoal_saver_free(t.saver);
  shoal_saver_free(t.warm);
  free(t.warm_prefix);
  if (t.b.g) built_release(&t.b);
  shoal_strategy_free(t.strategy);
  return status_prefix(s, "training: ");
}

shoal_status shoal_estimator_train(shoal_estimator *e, const shoal_train_spec *given) {
  shoal_train_spec spec = {0};
  shoal_status s = OPTIONS_TAKE(shoal_train_spec, early_stopping, &spec, given);
  if (!s && !spec.input) s = INVALID("%s: there is no input function", __func__);
  if (!s && (spec.max_steps < 0 || spec.steps < 0 || (spec.max_steps && spec.steps)))
    s = INVALID("%s: max_steps %lld and steps %lld: one of them, or none", __func__, (long long)spec.max_steps,
                (long long)spec.steps);
  if (!s && !strcmp(estimator_job(e), "ps"))
    s = INVALID("%s: this task is a parameter server: shoal_train_and_evaluate serves", __func__);
  if (s) {
    free_hooks(spec.hooks, spec.hooks ? (size_t)spec.n_hooks : 0);
    return s;
  }
  return estimator_train(e, &spec, NULL);
}
