/* shoal_train_and_evaluate: what each task does, by TF_CONFIG.
 *
 * Alone, a hook evaluates after each checkpoint, in between two steps. In a cluster the evaluator is a process beside
 * it: it looks at the folder's list of checkpoints, evaluates the newest as soon as it appears, and ends with that of
 * the last step, or of an early stop. Nothing tells it that trainers are gone but that no checkpoint comes: after
 * max_wait_secs it ends with an error. */
#include "estimator/estimator.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/options.h"
#include "graph/given.h"

struct evaluating {
  struct shoal_estimator *e;
  shoal_eval_spec spec;
  shoal_exporter *exporters;
  char *evaluated;        /* the checkpoint that was evaluated last */
  int64_t last_time;      /* when that was done; 0: never */
  struct timespec listed; /* when the list of checkpoints changed, as far as it was looked at */
  struct shoal_results *results;
};

static void evaluating_release(struct evaluating *v) {
  free(v->exporters);
  free(v->evaluated);
  shoal_results_free(v->results);
}

/* Evaluates a checkpoint, and exports. prefix is taken over. */
static shoal_status evaluate_one(struct evaluating *v, char *prefix, bool last) {
  struct shoal_results *results = NULL;
  shoal_status s = estimator_evaluate(v->e, &v->spec, prefix, &results, NULL);
  if (!s) s = exporters_run(v->e, v->exporters, v->spec.n_exporters, prefix, results, v->spec.name, last);
  v->last_time = clock_ns();
  free(v->evaluated);
  v->evaluated = prefix;
  shoal_results_free(v->results);
  v->results = results;
  return s;
}

static bool throttled(const struct evaluating *v) {
  return v->last_time && clock_ns() < v->last_time + (int64_t)(v->spec.throttle_secs * 1e9);
}

/* ---- alone ---- */

/* The newest checkpoint, if it is another than the last one that was evaluated. */
static char *new_checkpoint(const struct evaluating *v) {
  char *latest = shoal_latest_checkpoint(v->e->model_dir);
  if (latest && v->evaluated && !strcmp(latest, v->evaluated)) {
    free(latest);
    latest = NULL;
  }
  return latest;
}

/* Asked after every step: one call of the system. */
static bool list_changed(struct evaluating *v) {
  struct stat st;
  char *list = mem_printf("%s/checkpoint", v->e->model_dir);
  bool there = !stat(list, &st);
  free(list);
  if (!there || (st.st_mtim.tv_sec == v->listed.tv_sec && st.st_mtim.tv_nsec == v->listed.tv_nsec)) return false;
  v->listed = st.st_mtim;
  return true;
}

static shoal_status after_run(void *state, shoal_run_context *step) {
  struct evaluating *v = state;
  if (throttled(v) || !list_changed(v)) return NULL;
  char *latest = new_checkpoint(v);
  return latest ? evaluate_one(v, latest, false) : NULL;
}

/* A run finds a checkpoint of its beginning: it is of no model that was trained. */
static shoal_status after_create(void *state, const shoal_created *created) {
  struct evaluating *v = state;
  if (!v->evaluated) v->evaluated = shoal_latest_checkpoint(v->e->model_dir);
  return NULL;
}

/* The last one is exported as such, also where it was evaluated already. */
static shoal_status finish(struct evaluating *v) {
  char *latest = new_checkpoint(v);
  if (latest) return evaluate_one(v, latest, true);
  if (!v->evaluated) return NULL;
  if (!v->results) return evaluate_one(v, mem_strdup(v->evaluated), true);
  for (int i = 0; i < v->spec.n_exporters; i++)
    if (v->exporters[i].kind == SHOAL_EXPORT_FINAL)
      TRY(exporters_run(v->e, &v->exporters[i], 1, v->evaluated, v->results, v->spec.name, true));
  return NULL;
}

static shoal_status train_alone(struct evaluating *v, const shoal_train_spec *train) {
  shoal_hook hook = shoal_hook_of(SHOAL_OPTIONS(shoal_hook_functions, .name = "evaluation", .state = v,
                                                .after_create = after_create, .after_run = after_run));
  TRY(estimator_train(v->e, train, &hook));
  return shoal_preempted() ? NULL : finish(v);
}

/* ---- the evaluator ---- */

static void rest(double secs) {
  struct timespec t = {(time_t)secs, (long)((secs - (double)(time_t)secs) * 1e9)};
  nanosleep(&t, NULL);
}

/* Has training ended with this checkpoint? */
static shoal_status is_last(const char *prefix, int64_t max_steps, bool *last) {
  int64_t step;
  TRY(shoal_checkpoint_int(prefix, "global_step", &step));
  *last = (max_steps && step >= max_steps) || early_stopped(prefix);
  return NULL;
}

static shoal_status follow(struct evaluating *v, const shoal_train_spec *train) {
  double wait = v->e->config.max_wait_secs > 0 ? v->e->config.max_wait_secs : 7200;
  int64_t heard = clock_ns();
  bool last = false;
  if (v->spec.start_delay_secs > 0) rest(v->spec.start_delay_secs);
  while (!last) {
    if (shoal_preempted()) return STATUS(SHOAL_CANCELLED, "the evaluator was told to stop");
    char *latest = throttled(v) ? NULL : new_checkpoint(v);
    if (!latest) {
      if (clock_ns() > heard + (int64_t)(wait * 1e9))
        return STATUS(SHOAL_DEADLINE_EXCEEDED, "no new checkpoint in %s for %.0f seconds: is somebody training?",
                      v->e->model_dir, wait);
      rest(0.2);
      continue;
    }
    shoal_status s = is_last(latest, train->max_steps, &last);
    bool gone = shoal_status_code(s) == SHOAL_NOT_FOUND; /* it was removed meanwhile: there is a newer one */
    if (s) free(latest);
    else s = evaluate_one(v, latest, last);
    if (gone || (shoal_status_code(s) == SHOAL_NOT_FOUND && !last)) {
      shoal_status_free(s);
      s = NULL;
    }
    TRY(s);
    heard = clock_ns();
  }
  return NULL;
}

/* ---- parameter servers ---- */

static shoal_status serve(struct shoal_estimator *e) {
  TRY(shoal_server_start(SHOAL_OPTIONS(shoal_server_options, .cluster = shoal_cluster_json(e->cluster), .job = "ps",
                                       .task = shoal_cluster_task(e->cluster)),
                         &e->server));
  shoal_server *server = e->server;
  e->server = NULL;
  int code = shoal_server_serve(server);
  return code ? STATUS(SHOAL_CANCELLED, "the parameter server was told to stop") : NULL;
}

static shoal_status by_role(struct evaluating *v, const shoal_train_spec *train) {
  const char *job = estimator_job(v->e);
  if (!strcmp(job, "ps")) return serve(v->e);
  if (!strcmp(job, "evaluator")) return follow(v, train);
  return *job ? estimator_train(v->e, train, NULL) : train_alone(v, train);
}

static shoal_status check_specs(shoal_train_spec *train, const shoal_train_spec *given, struct evaluating *v,
                                const shoal_eval_spec *eval) {
  TRY(OPTIONS_TAKE(shoal_train_spec, early_stopping, train, given));
  TRY(OPTIONS_TAKE(shoal_eval_spec, exporter_size, &v->spec, eval));
  TRY(OPTIONS_TAKE_ARRAY(shoal_exporter, larger, &v->exporters, v->spec.exporters, v->spec.n_exporters,
                         v->spec.exporter_size));
  if (!train->input || !v->spec.input)
    return INVALID("shoal_train_and_evaluate: there is no input function for the %s",
                   train->input ? "evaluation" : "training");
  TRY(eval_spec_check_steps(&v->spec, "shoal_train_and_evaluate"));
  if (train->steps || train->max_steps < 0)
    return INVALID("shoal_train_and_evaluate: training ends at max_steps; steps is for shoal_estimator_train");
  if (!train->max_steps && !train->early_stopping && !strcmp(estimator_job(v->e), "evaluator"))
    return INVALID("shoal_train_and_evaluate: without max_steps or early stopping an evaluator would never end");
  return NULL;
}

shoal_status shoal_train_and_evaluate(shoal_estimator *e, const shoal_train_spec *given, const shoal_eval_spec *eval) {
  shoal_train_spec train = {0};
  struct evaluating v = {.e = e};
  shoal_status s = check_specs(&train, given, &v, eval);
  bool trains = strcmp(estimator_job(e), "ps") && strcmp(estimator_job(e), "evaluator");
  if ((s || !trains) && train.hooks) /* nobody else takes them over */
    for (int i = 0; i < train.n_hooks; i++)
      if (train.hooks[i].free) train.hooks[i].free(train.hooks[i].state);
  if (!s) s = by_role(&v, &train);
  evaluating_release(&v);
  return s;
}
