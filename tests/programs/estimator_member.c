/* A task of an estimator whose input ends, for tests/cluster/estimator_test.py: a model function of its own, y = w x.
 *
 *   estimator_member MODEL_DIR FIRST OTHERS
 *
 * Worker 0 has FIRST batches, others have OTHERS each; TF_CONFIG says which task it is. It prints the step at its end.
 */
#include <shoal/shoal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void input(shoal_graph *g, shoal_mode mode, shoal_inputs *in, void *arg) {
  const int64_t *batches = arg;
  const float xs[] = {1, 2, 3, 4};
  shoal_out x = shoal_constant_floats(g, SHOAL_SHAPE(4), xs), next[1];
  int64_t n = mode == SHOAL_MODE_TRAIN ? batches[shoal_inputs_worker(in) != 0] : 1;
  shoal_dataset_next(g, shoal_dataset_repeat(g, shoal_dataset_from_tensors(g, &x, 1), n), next, 1, NULL);
  shoal_inputs_feature(in, "x", next[0]);
  if (mode != SHOAL_MODE_PREDICT) shoal_inputs_labels(in, shoal_mul(g, next[0], shoal_constant_float(g, 2)));
}

static void model(shoal_graph *g, shoal_mode mode, const shoal_inputs *in, shoal_estimator_spec *spec, void *arg) {
  shoal_var w = shoal_variable(g, "w", shoal_constant_float(g, 0));
  shoal_out y = shoal_mul(g, shoal_inputs_feature_named(in, "x"), w.value);
  shoal_spec_prediction(spec, "y", y);
  if (mode == SHOAL_MODE_PREDICT) return;
  shoal_out loss = shoal_reduce_mean(g, shoal_square(g, shoal_sub(g, y, shoal_inputs_get_labels(in))));
  shoal_spec_loss(spec, loss);
  if (mode == SHOAL_MODE_TRAIN) shoal_spec_train(spec, shoal_minimize(g, shoal_sgd(0.01), loss, shoal_global_step(g)));
}

static void check(shoal_status s) {
  if (!s) return;
  fprintf(stderr, "%s\n", shoal_status_message(s));
  exit(1);
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  int64_t batches[2] = {atoll(argv[2]), atoll(argv[3])};
  shoal_estimator *e;
  check(shoal_estimator_new(
      model, NULL, SHOAL_OPTIONS(shoal_run_config, .model_dir = argv[1], .save_steps = 1000, .max_wait_secs = 60), &e));
  check(shoal_train_and_evaluate(e, SHOAL_OPTIONS(shoal_train_spec, .input = input, .arg = batches),
                                 SHOAL_OPTIONS(shoal_eval_spec, .input = input, .arg = batches)));
  shoal_estimator_free(e);
  return 0;
}
