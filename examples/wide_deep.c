/* Wide and deep: a linear model over categories and their crosses beside a network over numbers and embeddings, on a
 * table like that of a census (census.h makes it up). In one process, or as every task of a cluster:
 *
 *   wide_deep --model_dir=/tmp/wd
 *   shoal launch --ps=1 --workers=2 --evaluator -- wide_deep --model_dir=/tmp/wd
 *
 * which task this is says TF_CONFIG. Each checkpoint is evaluated (model_dir/eval); the best model is exported for
 * serving (model_dir/export/best). */
#include "census.h"
#include "device.h"

/* What a client of the exported model gives. */
static void receiver(shoal_graph *g, shoal_mode mode, shoal_inputs *in, void *arg) {
  (void)mode;
  (void)arg;
  static const char *const numbers[] = {"age", "hours", NULL}, *const words[] = {"education", "relation", "occupation",
                                                                                 NULL};
  for (int i = 0; numbers[i]; i++)
    shoal_inputs_feature(in, numbers[i], shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, 1), numbers[i]));
  for (int i = 0; words[i]; i++)
    shoal_inputs_feature(in, words[i], shoal_placeholder(g, SHOAL_STRING, SHOAL_SHAPE(-1, 1), words[i]));
}

int main(int argc, char **argv) {
  const char *model_dir = NULL, *device = NULL, *unused = NULL;
  double target = 0;
  int64_t train_steps = 2000, batch_size = 100, rows = 100000, test_rows = 5000, save_steps = 500, task = 0;
  const struct flag flags[] = {
      flag_path("model_dir", "checkpoints, event files, exports; none: TF_CONFIG's", &model_dir),
      flag_number("train_steps", "global steps to end at", &train_steps, 1),
      flag_number("batch_size", "examples a step, of each worker", &batch_size, 1),
      flag_number("rows", "of the table that is trained on", &rows, 1),
      flag_number("test_rows", "of the table that is evaluated", &test_rows, 1),
      flag_number("save_steps", "a checkpoint, and an evaluation, every so many", &save_steps, 1),
      flag_real("target", "stop early, when an evaluation finds this accuracy; 0: never", &target),
      DEVICE_FLAG(device),
      flag_text("ps_hosts", "of the parameter servers: as shoal launch gives it; TF_CONFIG's are taken", &unused),
      flag_text("worker_hosts", "of the workers: likewise", &unused),
      flag_text("chief_hosts", "of the chief: likewise", &unused),
      flag_text("job_name", "what this task is: likewise", &unused),
      flag_number("task_index", "which of them: likewise", &task, 0),
      flags_end(),
  };
  read_flags(argc, argv, "wide_deep: a linear model and a network over a table, trained and evaluated", flags);

  const char *config = getenv("TF_CONFIG");
  if (!model_dir && (!config || !strstr(config, "model_dir")))
    refuse("--model_dir=DIR is missing: where checkpoints, event files and exports go");
  char device_name[DEVICE_NAME];
  shoal_cluster *cluster = NULL; /* an evaluator is in none */
  shoal_status_free(shoal_cluster_from_config(NULL, &cluster));
  check_task_device(cluster, device, 1);
  shoal_cluster_free(cluster);
  name_device(device, "", 0, device_name);
  struct census_columns columns = census_columns_new();
  const int64_t hidden[] = {64, 32};
  shoal_estimator *e = NULL;
  const shoal_progress *progress = SHOAL_OPTIONS(shoal_progress, .examples_per_step = batch_size);
  shoal_status error = shoal_canned_new(
      SHOAL_CANNED_DNN_LINEAR,
      SHOAL_OPTIONS(shoal_canned_options, .classes = 2, .linear_columns = columns.wide, .n_linear_columns = WIDE,
                    .dnn_columns = columns.deep, .n_dnn_columns = DEEP, .hidden_units = hidden, .n_hidden_units = 2),
      SHOAL_OPTIONS(shoal_run_config, .model_dir = model_dir, .save_steps = save_steps, .seed = 1,
                    .session = device_session(device), .progress = progress, .device = device_name),
      &e);

  struct census training = {(uint64_t)test_rows, rows, batch_size, 0, 1, true}, test = {0, test_rows, 500, 0, 1, false};
  const shoal_exporter best[] = {{SHOAL_EXPORT_BEST, "best", receiver, NULL, 0, NULL, false}};
  const shoal_early_stopping *early = SHOAL_OPTIONS(shoal_early_stopping, .rule = SHOAL_STOP_ABOVE,
                                                    .metric = "accuracy", .target = target, .every_secs = 1);
  if (!error)
    error = shoal_train_and_evaluate(
        e,
        SHOAL_OPTIONS(shoal_train_spec, .input = census_input, .arg = &training, .max_steps = train_steps,
                      .early_stopping = target > 0 ? early : NULL),
        SHOAL_OPTIONS(shoal_eval_spec, .input = census_input, .arg = &test, .exporters = best, .n_exporters = 1));

  bool tells = !config || !strstr(config, "cluster") || strstr(config, "evaluator");
  if (!error && tells && !shoal_preempted()) { /* who has evaluated tells how well it went */
    shoal_results *r = NULL;
    error = shoal_estimator_evaluate(
        e, SHOAL_OPTIONS(shoal_eval_spec, .input = census_input, .arg = &test, .name = "last"), &r);
    if (!error)
      printf("step %.0f: accuracy %.3f (%.3f by the larger class), auc %.3f, loss %.3f\n",
             shoal_results_value(r, "global_step"), shoal_results_value(r, "accuracy"),
             shoal_results_value(r, "accuracy_baseline"), shoal_results_value(r, "auc"),
             shoal_results_value(r, "average_loss"));
    if (r) shoal_results_free(r);
  }
  shoal_estimator_free(e);
  shoal_columns_free(columns.set);
  return shoal_train_exit(error);
}
