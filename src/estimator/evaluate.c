/* Evaluation and predictions: a graph of their own, in a session of this process, with the variables of a checkpoint.
 * Whatever cluster trains the model, nothing of it is needed but the folder. */
#include "estimator/estimator.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/options.h"
#include "graph/given.h"

/* The checkpoint that is meant: a prefix, or a folder's latest. */
static shoal_status find_checkpoint(const char *where, char **prefix) {
  *prefix = file_is_directory(where) ? shoal_latest_checkpoint(where) : mem_strdup(where);
  return *prefix ? NULL : NOT_FOUND("there is no checkpoint in %s: the model was not trained yet", where);
}

shoal_status built_restore(struct built *b, struct shoal_estimator *e, const char *checkpoint, shoal_session **session,
                           struct scaffold *scaffold, char **prefix) {
  TRY(find_checkpoint(checkpoint ? checkpoint : e->model_dir, prefix));
  TRY(scaffold_complete(scaffold, b->g, NULL, true));
  if (graph_error(b->g)) return status_copy(graph_error(b->g));
  shoal_session_options o = {0};
  TRY(OPTIONS_TAKE(shoal_session_options, give_up, &o, e->config.session));
  o.size = sizeof o;
  o.target = NULL;
  TRY(shoal_session_open(b->g, &o, session));
  TRY(shoal_saver_restore(scaffold->use.saver, *session, *prefix));
  if (scaffold->use.local_init_op)
    TRY(shoal_session_step(*session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, scaffold->use.local_init_op));
  return NULL;
}

/* What built_restore left, after an error too. */
static void leave(struct built *b, shoal_session *session, struct scaffold *scaffold) {
  if (session) shoal_status_free(shoal_session_close(session));
  scaffold_release(scaffold);
  built_release(b);
}

/* ---- evaluation ---- */

shoal_status eval_spec_check_steps(const shoal_eval_spec *spec, const char *func) {
  if (spec->steps >= 0) return NULL;
  return INVALID("%s: steps of the evaluation must be > 0, or 0 for all of the input; given: %lld", func,
                 (long long)spec->steps);
}

/* Steps to the end of the input, or to the last one wanted. */
static shoal_status run_batches(shoal_session *session, const shoal_op *update, int64_t steps, int64_t *done) {
  for (*done = 0; !steps || *done < steps; ++*done) {
    shoal_status s = shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, update);
    if (shoal_status_code(s) == SHOAL_OUT_OF_RANGE) {
      shoal_status_free(s);
      break;
    }
    TRY(s);
  }
  return *done ? NULL : INVALID("the input of the evaluation is empty");
}

static shoal_status fetch_metrics(struct built *b, shoal_session *session, struct shoal_results *r) {
  for (size_t i = 0; i < b->spec.metrics.n; i++) {
    double value;
    TRY(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(b->spec.metrics.at[i].metric.value, &value), NULL));
    results_put(r, b->spec.metrics.at[i].name, value);
  }
  int64_t step;
  TRY(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(global_step_value(b->g), &step), NULL));
  results_put(r, "global_step", (double)step);
  return NULL;
}

/* All metrics, and the mean of the loss: one op that adds a batch. */
static shoal_op *all_updates(struct built *b) {
  shoal_spec_metric(&b->spec, "loss", shoal_metric_mean(b->g, b->spec.loss, (shoal_out){0}, "mean_loss"));
  VEC(shoal_op *) ops = {0};
  for (size_t i = 0; i < b->spec.metrics.n; i++)
    if (b->spec.metrics.at[i].metric.update) vec_push(&ops, b->spec.metrics.at[i].metric.update);
  shoal_op *all = shoal_group(b->g, ops.at, (int)ops.n, "eval_step");
  vec_release(&ops);
  return all;
}

static shoal_status evaluate(struct shoal_estimator *e, const shoal_eval_spec *spec, struct built *b,
                             shoal_session **session, struct scaffold *scaffold, const char *checkpoint, char **prefix,
                             struct shoal_results *r) {
  TRY(built_make(b, e, SHOAL_MODE_EVAL, spec->input, spec->arg));
  shoal_op *update = all_updates(b);
  TRY(built_restore(b, e, checkpoint, session, scaffold, prefix));
  int64_t done;
  TRY(run_batches(*session, update, spec->steps, &done));
  TRY(fetch_metrics(b, *session, r));
  char *dir = estimator_eval_dir(e, spec->name);
  shoal_status s = results_write(r, dir, (int64_t)shoal_results_value(r, "global_step"));
  free(dir);
  return s;
}

shoal_status estimator_evaluate(struct shoal_estimator *e, const shoal_eval_spec *spec, const char *checkpoint,
                                struct shoal_results **results, char **evaluated) {
  struct built b = {0};
  struct scaffold scaffold = {0};
  shoal_session *session = NULL;
  char *prefix = NULL;
  struct shoal_results *r = mem_zalloc(1, sizeof *r);
  shoal_status s = evaluate(e, spec, &b, &session, &scaffold, checkpoint, &prefix, r);
  leave(&b, session, &scaffold);
  if (!s && results) *results = r;
  else shoal_results_free(r);
  if (!s && evaluated) *evaluated = prefix;
  else free(prefix);
  return status_prefix(s, "evaluation: ");
}

shoal_status shoal_estimator_evaluate(shoal_estimator *e, const shoal_eval_spec *given, shoal_results **results) {
  shoal_eval_spec spec = {0};
  TRY(OPTIONS_TAKE(shoal_eval_spec, exporter_size, &spec, given));
  if (!spec.input) return INVALID("%s: there is no input function", __func__);
  TRY(eval_spec_check_steps(&spec, __func__));
  return estimator_evaluate(e, &spec, spec.checkpoint, results, NULL);
}

/* ---- predictions ---- */

static shoal_status predict_batches(struct built *b, shoal_session *session, const shoal_predict_spec *spec) {
  int n = (int)b->spec.predictions.n;
  const char **names = mem_zalloc((size_t)n, sizeof *names);
  shoal_fetch *fetches = mem_zalloc((size_t)n, sizeof *fetches);
  shoal_tensor **values = mem_zalloc((size_t)n, sizeof *values);
  for (int i = 0; i < n; i++) {
    names[i] = b->spec.predictions.at[i].key;
    fetches[i] = (shoal_fetch){b->spec.predictions.at[i].tensor, &values[i], SHOAL_DT_INVALID};
  }
  shoal_status s = NULL;
  for (bool over = false; !s && !over;) {
    s = shoal_session_step(session, SHOAL_NO_FEEDS, (shoal_fetches){fetches, n}, NULL);
    over = shoal_status_code(s) == SHOAL_OUT_OF_RANGE; /* of the input; the caller's own is an error */
    if (over) {
      shoal_status_free(s);
      s = NULL;
    } else if (!s) {
      s = spec->predicted(names, values, n, spec->predicted_arg);
    }
    for (int i = 0; i < n; i++) shoal_tensor_unref(values[i]);
    memset(values, 0, (size_t)n * sizeof *values);
  }
  free(names);
  free(fetches);
  free(values);
  return s;
}

shoal_status shoal_estimator_predict(shoal_estimator *e, const shoal_predict_spec *given) {
  shoal_predict_spec spec = {0};
  TRY(OPTIONS_TAKE(shoal_predict_spec, checkpoint, &spec, given));
  if (!spec.input || !spec.predicted)
    return INVALID("%s: there is no %s", __func__, spec.input ? "function for the answers" : "input function");
  struct built b = {0};
  struct scaffold scaffold = {0};
  shoal_session *session = NULL;
  char *prefix = NULL;
  shoal_status s = built_make(&b, e, SHOAL_MODE_PREDICT, spec.input, spec.arg);
  if (!s) s = built_restore(&b, e, spec.checkpoint, &session, &scaffold, &prefix);
  if (!s) s = predict_batches(&b, session, &spec);
  leave(&b, session, &scaffold);
  free(prefix);
  return status_prefix(s, "predictions: ");
}
