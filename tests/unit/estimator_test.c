/* Estimators over a model function of one's own: what is called in which mode, hooks, what a run config says of
 * checkpoints, warm starts, exporters, early stopping, answers.
 *
 * The model is y = w x, and w, which begins at 0, comes nearer to 2 with each step. Its metric "score" goes by the
 * step of the checkpoint alone: it rises to 0 at step 10, and falls from there on. */
#include "unit.h"
#include "folder.h"

#include <math.h>
#include <shoal/shoal.h>

#include "base/file.h"
#include "estimator/estimator.h"

enum { BATCH = 4, BATCHES = 3 };

/* What a model function was called for, and how. */
struct asked {
  int modes[3];
  int freed; /* hooks that it gave */
  bool nan;  /* "score" is none in evaluations */
};

static void input(shoal_graph *g, shoal_mode mode, shoal_inputs *in, void *arg) {
  const float xs[BATCH] = {1, 2, 3, 4}, ys[BATCH] = {2, 4, 6, 8};
  shoal_out parts[2] = {shoal_constant_floats(g, SHOAL_SHAPE(BATCH), xs),
                        shoal_constant_floats(g, SHOAL_SHAPE(BATCH), ys)};
  shoal_out d = shoal_dataset_from_tensors(g, parts, 2), out[2];
  shoal_dataset_next(g, shoal_dataset_repeat(g, d, mode == SHOAL_MODE_TRAIN ? -1 : BATCHES), out, 2, NULL);
  shoal_inputs_feature(in, "x", out[0]);
  if (mode != SHOAL_MODE_PREDICT) shoal_inputs_labels(in, out[1]);
}

static void receiver(shoal_graph *g, shoal_mode mode, shoal_inputs *in, void *arg) {
  shoal_inputs_feature(in, "x", shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1), "x"));
}

static void count_freed(void *state) { ++*(int *)state; }

static void model(shoal_graph *g, shoal_mode mode, const shoal_inputs *in, shoal_estimator_spec *spec, void *arg) {
  struct asked *asked = arg;
  asked->modes[mode]++;
  shoal_var w = shoal_variable(g, "w", shoal_constant_float(g, 0)), step = shoal_global_step(g);
  shoal_var other = shoal_variable(g, "other/w", shoal_constant_float(g, 0));
  shoal_out y = shoal_mul(g, shoal_inputs_feature_named(in, "x"), w.value);
  shoal_out twice = shoal_mul(g, y, shoal_constant_float(g, 2));
  shoal_spec_prediction(spec, "y", y);
  shoal_spec_prediction(spec, "twice", twice);
  shoal_spec_signature(spec, "serving_default", NULL, &(shoal_export_value){"y", y}, 1);
  shoal_spec_signature(spec, "double", NULL, &(shoal_export_value){"z", twice}, 1);
  if (mode == SHOAL_MODE_PREDICT) return;
  shoal_out off = shoal_square(g, shoal_sub(g, y, shoal_inputs_get_labels(in)));
  shoal_out loss = shoal_add_v2(g, shoal_reduce_mean(g, off), shoal_square(g, other.value));
  shoal_spec_loss(spec, loss);
  if (mode == SHOAL_MODE_TRAIN) {
    shoal_spec_train(spec, shoal_minimize(g, shoal_sgd(0.001), loss, step));
    shoal_spec_hook(spec,
                    shoal_hook_of(SHOAL_OPTIONS(shoal_hook_functions, .state = &asked->freed, .free = count_freed)));
    return;
  }
  shoal_out away = shoal_sub(g, shoal_cast(g, step.value, SHOAL_FLOAT32), shoal_constant_float(g, 10));
  shoal_out score = asked->nan ? shoal_constant_float(g, NAN) : shoal_neg(g, shoal_square(g, away));
  shoal_spec_metric(spec, "score", shoal_metric_mean(g, score, (shoal_out){0}, "score"));
  shoal_spec_metric(spec, "mse",
                    shoal_metric_mean_squared_error(g, shoal_inputs_get_labels(in), y, (shoal_out){0}, NULL));
}

static shoal_estimator *made(struct asked *asked, const shoal_run_config *config) {
  shoal_estimator *e;
  ASSERT_OK(shoal_estimator_new(model, asked, config, &e));
  return e;
}

/* w of a checkpoint, by what its model answers to x = 1. */
static shoal_status keep_first(const char *const *names, shoal_tensor *const *values, int n, void *arg) {
  assert_int_equal(n, 2);
  assert_string_equal(names[0], "y");
  *(float *)arg = *(const float *)shoal_tensor_const_data(values[0]);
  return NULL;
}
static float w_of(shoal_estimator *e, const char *checkpoint) {
  float w = NAN;
  ASSERT_OK(shoal_estimator_predict(e, SHOAL_OPTIONS(shoal_predict_spec, .input = input, .predicted = keep_first,
                                                     .predicted_arg = &w, .checkpoint = checkpoint)));
  return w;
}

/* The same of an exported model. */
static float w_exported(const char *dir) {
  shoal_saved_model *m;
  shoal_tensor *x, *y;
  const float one = 1;
  ASSERT_OK(shoal_saved_model_load(dir, NULL, NULL, &m));
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 1, &(int64_t){1}, &one, sizeof one, &x));
  ASSERT_OK(shoal_saved_model_run(m, NULL, &(const char *){"x"}, &x, 1, &(const char *){"y"}, &y, 1));
  float w = *(const float *)shoal_tensor_const_data(y);
  shoal_tensor_unref(x);
  shoal_tensor_unref(y);
  shoal_saved_model_free(m);
  return w;
}

/* ---- what is in folders ---- */

/* Those with this end, and the last of them by the order of numbers before it; for the caller to free. */
static int count_in(const char *dir, const char *end, char **last) {
  struct path_list names = {0};
  int n = 0;
  int64_t most = -1;
  if (last) *last = NULL;
  ASSERT_OK(directory_list(dir, &names));
  for (size_t i = 0; i < names.paths.n; i++) {
    const char *at = names.paths.at[i];
    size_t size = strlen(at), of = strlen(end);
    if (size < of || strcmp(at + size - of, end)) continue;
    n++;
    int64_t number = atoll(strrchr(at, '-') ? strrchr(at, '-') + 1 : at);
    if (!last || number <= most) continue;
    most = number;
    free(*last);
    *last = mem_printf("%s/%s", dir, at);
  }
  path_list_release(&names);
  return n;
}

struct seen {
  int64_t steps[1000];
  double values[1000];
  int n;
};
static void see(void *arg, int64_t step, double value) {
  struct seen *s = arg;
  assert_true(s->n < 1000);
  s->steps[s->n] = step;
  s->values[s->n++] = value;
}
static void evaluations(shoal_estimator *e, const char *name, struct seen *s) {
  char *dir = estimator_eval_dir(e, name);
  s->n = 0;
  ASSERT_OK(results_read(dir, "score", see, s));
  free(dir);
}

/* ---- hooks ---- */

struct calls {
  int begin, after_create, before_run, after_run, end, before_close, freed;
  int64_t stop_after;
};
static shoal_status on_begin(void *state, shoal_graph *g) { return ((struct calls *)state)->begin++, NULL; }
static shoal_status on_create(void *state, const shoal_created *c) {
  return ((struct calls *)state)->after_create++, NULL;
}
static shoal_status on_before(void *state, shoal_run_context *c) { return ((struct calls *)state)->before_run++, NULL; }
static shoal_status on_after(void *state, shoal_run_context *c) {
  struct calls *calls = state;
  if (++calls->after_run == calls->stop_after) shoal_context_request_stop(c);
  return NULL;
}
static shoal_status on_end(void *state, shoal_session *s) { return ((struct calls *)state)->end++, NULL; }
static void on_close(void *state) { ((struct calls *)state)->before_close++; }
static void on_free(void *state) { ((struct calls *)state)->freed++; }
static shoal_hook counting(struct calls *calls) {
  return (shoal_hook){calls, on_begin, on_create, on_before, on_after, on_end, on_close, on_free};
}

/* ---- tests ---- */

/* Each mode calls the model once, and gets of it what it is for; what is trained is evaluated, answers, is exported. */
static void modes(void **unused) {
  char *dir = in_dir("modes"), *base = in_dir("modes_export"), *path;
  struct asked asked = {0};
  shoal_estimator *e = made(&asked, SHOAL_OPTIONS(shoal_run_config, .model_dir = dir));
  assert_string_equal(shoal_estimator_model_dir(e), dir);
  ASSERT_OK(shoal_estimator_train(e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 20)));
  assert_int_equal(asked.modes[SHOAL_MODE_TRAIN], 1);
  assert_int_equal(asked.freed, 1);
  shoal_results *r;
  ASSERT_OK(shoal_estimator_evaluate(e, SHOAL_OPTIONS(shoal_eval_spec, .input = input, .name = "own"), &r));
  assert_int_equal(asked.modes[SHOAL_MODE_EVAL], 1);
  assert_int_equal(shoal_results_count(r), 4);
  assert_true(shoal_results_value(r, "global_step") == 20 && shoal_results_value(r, "score") == -100);
  assert_true(fabs(shoal_results_value(r, "loss") - shoal_results_value(r, "mse")) < 1e-5);
  assert_true(isnan(shoal_results_value(r, "none")));
  shoal_results_free(r);
  struct seen found;
  evaluations(e, "own", &found);
  assert_true(found.n == 1 && found.steps[0] == 20 && found.values[0] == -100);
  float w = w_of(e, NULL);
  assert_int_equal(asked.modes[SHOAL_MODE_PREDICT], 1);
  assert_true(w > 0.2 && w < 0.6);
  ASSERT_OK(shoal_estimator_export(e, base, receiver, NULL, &path));
  assert_true(w_exported(path) == w);
  shoal_saved_model *m;
  ASSERT_OK(shoal_saved_model_load(path, NULL, NULL, &m));
  assert_non_null(shoal_saved_model_signature(m, "double"));
  assert_null(shoal_saved_model_signature_at(m, 2));
  shoal_saved_model_free(m);
  ASSERT_OK(shoal_estimator_train(e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .steps = 5)));
  ASSERT_OK(shoal_estimator_evaluate(e, SHOAL_OPTIONS(shoal_eval_spec, .input = input, .steps = 1), &r));
  assert_true(shoal_results_value(r, "global_step") == 25);
  shoal_results_free(r);
  shoal_estimator_free(e);
  free(path);
  free(base);
  free(dir);
}

static void hooks_are_called(void **unused) {
  char *dir = in_dir("hooks");
  struct asked asked = {0};
  struct calls all = {0}, stopping = {.stop_after = 7};
  const shoal_hook both[] = {counting(&all), counting(&stopping)};
  shoal_estimator *e = made(&asked, SHOAL_OPTIONS(shoal_run_config, .model_dir = dir));
  ASSERT_OK(shoal_estimator_train(
      e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 12, .hooks = both, .n_hooks = 1)));
  assert_true(all.begin == 1 && all.after_create == 1 && all.before_run == 12 && all.after_run == 12);
  assert_true(all.end == 1 && all.before_close == 1 && all.freed == 1);
  ASSERT_OK(shoal_estimator_train(
      e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 50, .hooks = both, .n_hooks = 2)));
  assert_true(stopping.after_run == 7 && all.after_run == 19 && stopping.freed == 1 && all.freed == 2);
  ASSERT_FAILS(shoal_estimator_train(e, SHOAL_OPTIONS(shoal_train_spec, .max_steps = 50, .hooks = both, .n_hooks = 2)),
               SHOAL_INVALID_ARGUMENT, "no input function");
  assert_true(stopping.freed == 2 && all.freed == 3); /* taken over all the same */
  shoal_estimator_free(e);
  free(dir);
}

/* One rule for checkpoints: how many are there after 20 steps. */
static void saved(const char *name, int wanted, const shoal_run_config *config) {
  char *dir = in_dir(name), *last;
  struct asked asked = {0};
  shoal_run_config c = *config;
  c.model_dir = dir;
  shoal_estimator *e = made(&asked, &c);
  ASSERT_OK(shoal_estimator_train(e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 20)));
  int n = count_in(dir, ".index", &last);
  if (n != wanted) fail_msg("%s: %d checkpoints, not %d", name, n, wanted);
  assert_non_null(strstr(last, "model.ckpt-20.index"));
  free(last);
  shoal_results *r;
  ASSERT_OK(shoal_estimator_evaluate(e, SHOAL_OPTIONS(shoal_eval_spec, .input = input), &r));
  assert_true(shoal_results_value(r, "global_step") == 20);
  shoal_results_free(r);
  ASSERT_OK(shoal_estimator_train(e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .steps = 10)));
  last = shoal_latest_checkpoint(dir);
  assert_non_null(strstr(last, "model.ckpt-30"));
  free(last);
  shoal_estimator_free(e);
  free(dir);
}

static void rules_of_checkpoints(void **unused) {
  saved("every", 3, SHOAL_OPTIONS(shoal_run_config, .save_steps = 1, .keep_checkpoints = 3));
  saved("all", 5, SHOAL_OPTIONS(shoal_run_config, .save_steps = 5, .keep_checkpoints = -1));
  saved("hourly", 4,
        SHOAL_OPTIONS(shoal_run_config, .save_steps = 5, .keep_checkpoints = 1, .keep_every_hours = 1e-12));
  saved("default", 2, SHOAL_OPTIONS(shoal_run_config, .keep_checkpoints = 0)); /* at the start and at the end */
  saved("seldom", 2, SHOAL_OPTIONS(shoal_run_config, .save_secs = 1000));
  saved("often", 2, SHOAL_OPTIONS(shoal_run_config, .save_secs = 1e-6, .keep_checkpoints = 2));
  saved("end", 1, SHOAL_OPTIONS(shoal_run_config, .save_steps = -1));
  saved("end_too", 1, SHOAL_OPTIONS(shoal_run_config, .save_secs = -1));
}

/* Without checkpoints in between there is one evaluation, of the last. */
static void evaluates_at_the_end_alone(void **unused) {
  char *dir = in_dir("end_alone");
  struct asked asked = {0};
  struct seen found;
  shoal_estimator *e = made(&asked, SHOAL_OPTIONS(shoal_run_config, .model_dir = dir, .save_steps = -1));
  ASSERT_OK(shoal_train_and_evaluate(e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 20),
                                     SHOAL_OPTIONS(shoal_eval_spec, .input = input)));
  evaluations(e, NULL, &found);
  assert_true(found.n == 1 && found.steps[0] == 20);
  shoal_estimator_free(e);
  free(dir);
}

/* Checkpoints are many within a second: exports have rising numbers, the newest is of the last checkpoint, and the best
 * are those whose score was above all before. */
static void exporters(void **unused) {
  char *dir = in_dir("exporters"), *last;
  struct asked asked = {0};
  struct seen found;
  shoal_estimator *e =
      made(&asked, SHOAL_OPTIONS(shoal_run_config, .model_dir = dir, .save_steps = 2, .keep_checkpoints = -1));
  const shoal_exporter x[] = {{SHOAL_EXPORT_LATEST, "latest", receiver, NULL, 3, NULL, false},
                              {SHOAL_EXPORT_BEST, "best", receiver, NULL, -1, "score", true},
                              {SHOAL_EXPORT_BEST, "least", receiver, NULL, 2, "score", false},
                              {SHOAL_EXPORT_FINAL, "final", receiver, NULL, 0, NULL, false}};
  ASSERT_OK(shoal_train_and_evaluate(
      e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 24),
      SHOAL_OPTIONS(shoal_eval_spec, .input = input, .exporters = x, .n_exporters = 4, .exporter_size = sizeof x[0])));
  float w = w_of(e, NULL);
  evaluations(e, NULL, &found);
  assert_true(found.n >= 6 && found.steps[found.n - 1] == 24);
  int better = 0;
  int64_t best_step = 0;
  double best = -INFINITY;
  for (int i = 0; i < found.n; i++)
    if (found.values[i] > best) {
      best = found.values[i];
      best_step = found.steps[i];
      better++;
    }
  char *of = mem_printf("%s/export/latest", dir);
  assert_int_equal(count_in(of, "", &last), 3);
  assert_true(w_exported(last) == w);
  free(last);
  free(of);
  of = mem_printf("%s/export/final", dir);
  assert_int_equal(count_in(of, "", &last), 1);
  assert_true(w_exported(last) == w);
  free(last);
  free(of);
  of = mem_printf("%s/export/best", dir);
  char *checkpoint = mem_printf("%s/model.ckpt-%lld", dir, (long long)best_step);
  assert_int_equal(count_in(of, "", &last), better);
  assert_true(w_exported(last) == w_of(e, checkpoint));
  free(checkpoint);
  free(last);
  free(of);
  of = mem_printf("%s/export/least", dir);
  assert_int_equal(count_in(of, "", &last), 2);
  assert_true(w_exported(last) == w); /* the score falls to the end */
  free(last);
  free(of);
  shoal_estimator_free(e);
  free(dir);
}

/* What is no number is no better than anything; training goes on. One that nobody gave is a mistake. */
static void exporters_of_no_number(void **unused) {
  char *dir = in_dir("no_number"), *of = mem_printf("%s/export/best", dir);
  struct asked asked = {.nan = true};
  shoal_estimator *e = made(&asked, SHOAL_OPTIONS(shoal_run_config, .model_dir = dir, .save_steps = 5));
  shoal_exporter x = {SHOAL_EXPORT_BEST, "best", receiver, NULL, 0, "score", true};
  ASSERT_OK(shoal_train_and_evaluate(
      e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 20),
      SHOAL_OPTIONS(shoal_eval_spec, .input = input, .exporters = &x, .n_exporters = 1, .exporter_size = sizeof x)));
  assert_false(file_exists(of));
  x.metric = "other";
  ASSERT_FAILS(shoal_train_and_evaluate(e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 30),
                                        SHOAL_OPTIONS(shoal_eval_spec, .input = input, .exporters = &x,
                                                      .n_exporters = 1, .exporter_size = sizeof x)),
               SHOAL_INVALID_ARGUMENT, "exporter 'best': the evaluation has no 'other'");
  shoal_estimator_free(e);
  free(of);
  free(dir);
}

static int64_t stopped_at(const char *name, const shoal_early_stopping *rule) {
  char *dir = in_dir(name), *latest;
  struct asked asked = {0};
  int64_t step;
  shoal_estimator *e = made(&asked, SHOAL_OPTIONS(shoal_run_config, .model_dir = dir, .save_steps = 5));
  ASSERT_OK(shoal_train_and_evaluate(
      e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 60, .early_stopping = rule),
      SHOAL_OPTIONS(shoal_eval_spec, .input = input)));
  latest = shoal_latest_checkpoint(dir);
  ASSERT_OK(shoal_checkpoint_int(latest, "global_step", &step));
  assert_int_equal(early_stopped(latest), step < 60);
  free(latest);
  shoal_estimator_free(e);
  free(dir);
  return step;
}

/* As TensorFlow's hooks do: evaluations before min_steps count for nothing, a target is to be passed. */
static void early_stopping(void **unused) {
  int64_t at =
      stopped_at("no_increase", SHOAL_OPTIONS(shoal_early_stopping, .rule = SHOAL_STOP_NO_INCREASE, .metric = "score",
                                              .patience = 10, .min_steps = 20, .every_secs = -1));
  assert_true(at > 30 && at < 60);
  at = stopped_at("no_decrease", SHOAL_OPTIONS(shoal_early_stopping, .rule = SHOAL_STOP_NO_DECREASE, .metric = "score",
                                               .patience = 20, .every_secs = -1));
  assert_int_equal(at, 60); /* it falls and falls, but for the first few */
  at = stopped_at("above", SHOAL_OPTIONS(shoal_early_stopping, .rule = SHOAL_STOP_ABOVE, .metric = "score", .target = 0,
                                         .every_secs = -1));
  assert_int_equal(at, 60); /* 0 is its most */
  at = stopped_at("below", SHOAL_OPTIONS(shoal_early_stopping, .rule = SHOAL_STOP_BELOW, .metric = "score",
                                         .target = -400, .every_secs = -1));
  assert_true(at > 30 && at < 60);
}

/* Evaluations of a run that went back to an older checkpoint: by steps, each as it was found last. */
static void early_stopping_reads_by_steps(void **unused) {
  char *dir = in_dir("by_steps"), *eval = mem_printf("%s/eval", dir);
  const struct {
    int64_t step;
    float value;
  } told[] = {{10, 5}, {30, 9}, {20, 6}, {30, 7}};
  shoal_events *events;
  ASSERT_OK(shoal_events_open(eval, &events));
  for (size_t i = 0; i < COUNT_OF(told); i++)
    ASSERT_OK(shoal_events_scalar(events, told[i].step, "score", told[i].value));
  ASSERT_OK(shoal_events_close(events));
  struct asked asked = {0};
  struct calls calls = {0};
  const shoal_hook counter = counting(&calls);
  shoal_estimator *e = made(&asked, SHOAL_OPTIONS(shoal_run_config, .model_dir = dir));
  /* 5, 6, 7 rise; 5, 9, 6, 7 would not have for 10 steps or 0. */
  ASSERT_OK(shoal_estimator_train(
      e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 20, .hooks = &counter, .n_hooks = 1,
                       .early_stopping = SHOAL_OPTIONS(shoal_early_stopping, .rule = SHOAL_STOP_ABOVE,
                                                       .metric = "score", .target = 8, .every_secs = -1))));
  assert_int_equal(calls.after_run, 20);
  ASSERT_OK(shoal_estimator_train(
      e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 40,
                       .early_stopping = SHOAL_OPTIONS(shoal_early_stopping, .rule = SHOAL_STOP_ABOVE,
                                                       .metric = "score", .target = 6.5, .every_secs = -1))));
  char *latest = shoal_latest_checkpoint(dir);
  assert_true(early_stopped(latest));
  free(latest);
  shoal_estimator_free(e);
  free(eval);
  free(dir);
}

/* throttle_secs: the first checkpoint and the last, however many there are in between. */
static void evaluations_are_throttled(void **unused) {
  char *dir = in_dir("throttled");
  struct asked asked = {0};
  struct seen found;
  shoal_estimator *e = made(&asked, SHOAL_OPTIONS(shoal_run_config, .model_dir = dir, .save_steps = 2));
  ASSERT_OK(
      shoal_train_and_evaluate(e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 60),
                               SHOAL_OPTIONS(shoal_eval_spec, .input = input, .throttle_secs = 1000, .name = "slow")));
  evaluations(e, "slow", &found);
  assert_true(found.n == 2 && found.steps[0] < 60 && found.steps[1] == 60);
  shoal_estimator_free(e);
  free(dir);
}

/* Names match from their beginning, as they do in TensorFlow. */
static void warm_starts(void **unused) {
  char *from = in_dir("warm_from"), *to = in_dir("warm_to"), *none = in_dir("warm_none");
  struct asked asked = {0};
  shoal_estimator *e = made(&asked, SHOAL_OPTIONS(shoal_run_config, .model_dir = from));
  ASSERT_OK(shoal_estimator_train(e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 100)));
  float w = w_of(e, NULL);
  shoal_estimator_free(e);
  e = made(&asked, SHOAL_OPTIONS(shoal_run_config, .model_dir = to, .warm_start = from, .warm_start_vars = "w"));
  ASSERT_OK(shoal_estimator_train(e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 1)));
  assert_true(w_of(e, NULL) > w);
  shoal_estimator_free(e);
  e = made(&asked, SHOAL_OPTIONS(shoal_run_config, .model_dir = none, .warm_start = from, .warm_start_vars = "ther"));
  ASSERT_FAILS(shoal_estimator_train(e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 1)),
               SHOAL_INVALID_ARGUMENT, "no variable that is trained matches 'ther'");
  shoal_estimator_free(e);
  free(from);
  free(to);
  free(none);
}

static shoal_status had_enough(const char *const *names, shoal_tensor *const *values, int n, void *arg) {
  return ++*(int *)arg == 2 ? shoal_status_new(SHOAL_OUT_OF_RANGE, "enough") : NULL;
}

/* The end of the input is the end; an error of whoever gets the answers is an error, whatever its code. */
static void answers_end(void **unused) {
  char *dir = in_dir("answers");
  struct asked asked = {0};
  int got = 0;
  float w;
  shoal_estimator *e = made(&asked, SHOAL_OPTIONS(shoal_run_config, .model_dir = dir));
  ASSERT_OK(shoal_estimator_train(e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 2)));
  ASSERT_FAILS(shoal_estimator_predict(e, SHOAL_OPTIONS(shoal_predict_spec, .input = input, .predicted = had_enough,
                                                        .predicted_arg = &got)),
               SHOAL_OUT_OF_RANGE, "enough");
  assert_int_equal(got, 2);
  w = w_of(e, NULL);
  assert_true(w > 0);
  shoal_estimator_free(e);
  free(dir);
}

/* An evaluator alone: of a folder that was trained to the end it evaluates the last checkpoint, and is done; of one
 * where nobody trains it says so. */
static void an_evaluator_alone(void **unused) {
  char *dir = in_dir("evaluator"), *empty = in_dir("evaluator_empty");
  const char *config =
      "{\"cluster\": {\"chief\": [\"localhost:1\"]}, \"task\": {\"type\": \"evaluator\", \"index\": 0}}";
  struct asked asked = {0};
  struct seen found;
  shoal_estimator *e = made(&asked, SHOAL_OPTIONS(shoal_run_config, .model_dir = dir, .tf_config = ""));
  ASSERT_OK(shoal_estimator_train(e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 8)));
  shoal_estimator_free(e);
  const shoal_train_spec *train = SHOAL_OPTIONS(shoal_train_spec, .input = input, .max_steps = 8);
  e = made(&asked, SHOAL_OPTIONS(shoal_run_config, .model_dir = dir, .tf_config = config));
  ASSERT_OK(
      shoal_train_and_evaluate(e, train, SHOAL_OPTIONS(shoal_eval_spec, .input = input, .start_delay_secs = 0.1)));
  evaluations(e, NULL, &found);
  assert_true(found.n == 1 && found.steps[0] == 8);
  shoal_estimator_free(e);
  e = made(&asked, SHOAL_OPTIONS(shoal_run_config, .model_dir = empty, .tf_config = config, .max_wait_secs = 0.3));
  ASSERT_FAILS(shoal_train_and_evaluate(e, train, SHOAL_OPTIONS(shoal_eval_spec, .input = input)),
               SHOAL_DEADLINE_EXCEEDED, "is somebody training?");
  shoal_estimator_free(e);
  free(dir);
  free(empty);
}

RUN_TESTS_WITHIN(make_dir, drop_dir, cmocka_unit_test(modes), cmocka_unit_test(hooks_are_called),
                 cmocka_unit_test(rules_of_checkpoints), cmocka_unit_test(evaluates_at_the_end_alone),
                 cmocka_unit_test(exporters), cmocka_unit_test(exporters_of_no_number),
                 cmocka_unit_test(early_stopping), cmocka_unit_test(early_stopping_reads_by_steps),
                 cmocka_unit_test(evaluations_are_throttled), cmocka_unit_test(warm_starts),
                 cmocka_unit_test(answers_end), cmocka_unit_test(an_evaluator_alone))
