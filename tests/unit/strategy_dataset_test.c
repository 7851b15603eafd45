/* Datasets under strategies of one process: who gets which batch, the end of the data, going on, mistakes. (Over tasks:
 * tests/cluster/strategy_test.py.) */
#include "unit.h"

#include <shoal/shoal.h>

#include "folder.h"

enum { EXAMPLES = 13, BATCH = 2, MOST = 3 };

/* Batches of two of the numbers 1 to 13. */
static shoal_out numbers(shoal_graph *g) {
  float v[EXAMPLES];
  for (int i = 0; i < EXAMPLES; i++) v[i] = (float)i + 1;
  shoal_out all = shoal_constant_floats(g, SHOAL_SHAPE(EXAMPLES), v);
  return shoal_dataset_batch(g, shoal_dataset_tensor_slices(g, &all, 1), BATCH, false);
}

/* The sum of this replica's batch, and of all that all have seen. */
static shoal_op *see(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  shoal_var total = shoal_variable_untrained(g, "total", shoal_constant_float(g, 0));
  out[0] = shoal_reduce_sum(g, in[0]);
  shoal_out all = shoal_replica_reduce(r, SHOAL_REDUCE_SUM, out[0]);
  shoal_op *parts[] = {shoal_assign_add_variable_op(g, total.handle, all),
                       shoal_assign_add_variable_op(g, shoal_global_step(g).handle, shoal_constant_int64(g, 1))};
  out[1] = total.value;
  return shoal_group(g, parts, 2, "see");
}

/* sums[step][replica] of the steps that ran, from the step that the run went on from. */
static int run(int n, const char *dir, int64_t stop_at, float sums[][MOST], float *total) {
  shoal_strategy *s;
  shoal_graph *g = shoal_graph_new();
  shoal_out in[MOST], out[2 * MOST];
  shoal_status error = NULL;
  int steps = 0;
  ASSERT_OK(shoal_strategy_new_mirrored(NULL, n, NULL, &s));
  shoal_push_strategy(g, s);
  shoal_out data = numbers(g);
  shoal_pop_strategy(g, s);
  shoal_hook hook = shoal_strategy_dataset_hook(g, s, data, SHOAL_SHARD_AUTO, in, 1);
  shoal_op *op = shoal_strategy_run(g, s, see, NULL, in, 1, out, 2);
  if (shoal_report(g)) fail();
  SHOAL_TRAIN_SESSION(session, g, .checkpoint_dir = dir, .stop_at_step = stop_at, .hooks = &hook, .n_hooks = 1,
                      .no_signals = true, .status = &error, .strategy = s) {
    while (!shoal_should_stop(session)) {
      float *at = sums[steps];
      shoal_out last = out[n > 2 ? 4 : 0];
      steps +=
          shoal_run(session, SHOAL_NO_FEEDS, SHOAL_FETCH(out[0], &at[0], out[n > 1 ? 2 : 0], &at[1], last, &at[2]), op);
    }
    ASSERT_OK(shoal_session_step(shoal_train_session_raw(session), SHOAL_NO_FEEDS, SHOAL_FETCH(out[1], total), NULL));
  }
  ASSERT_OK(error);
  shoal_graph_free(g);
  shoal_strategy_free(s);
  return steps;
}

static void replicas_take_turns(void **state) {
  float sums[16][MOST], total;
  assert_int_equal(run(1, NULL, 0, sums, &total), 7);
  assert_true(total == 91 && sums[0][0] == 3 && sums[6][0] == 13);
  /* Seven batches for three replicas: two have none in the last step. */
  assert_int_equal(run(3, NULL, 0, sums, &total), 3);
  assert_true(total == 91);
  assert_true(sums[0][0] == 3 && sums[0][1] == 7 && sums[0][2] == 11);
  assert_true(sums[2][0] == 13 && sums[2][1] == 0 && sums[2][2] == 0);
}

static void goes_on_behind_what_was_used(void **state) {
  char *dir = in_dir("run");
  float sums[16][MOST], total;
  assert_int_equal(run(2, dir, 2, sums, &total), 2);
  assert_true(total == 36);
  assert_int_equal(run(2, dir, 0, sums, &total), 2);
  assert_true(total == 91 && sums[0][0] == 19 && sums[0][1] == 23 && sums[1][0] == 13 && sums[1][1] == 0);
  assert_int_equal(run(2, dir, 0, sums, &total), 0);
  free(dir);
}

static void refuse(shoal_graph *g, shoal_strategy *s, shoal_out data, int shard, int n, const char *part) {
  shoal_out in[4];
  shoal_hook hook = shoal_strategy_dataset_hook(g, s, data, (shoal_auto_shard)shard, in, n);
  assert_null(hook.state);
  assert_non_null(shoal_graph_error(g));
  if (!strstr(shoal_status_message(shoal_graph_error(g)), part))
    fail_msg("'%s' is not in: %s", part, shoal_status_message(shoal_graph_error(g)));
  shoal_graph_free(g);
}

static void mistakes(void **state) {
  shoal_strategy *s;
  ASSERT_OK(shoal_strategy_new_mirrored(NULL, 2, NULL, &s));
  shoal_graph *g = shoal_graph_new();
  refuse(g, s, shoal_constant_float(g, 1), SHOAL_SHARD_AUTO, 1, "'Const' is no dataset");
  g = shoal_graph_new();
  refuse(g, s, numbers(g), SHOAL_SHARD_AUTO, 2, "has 1 components, and there are 2 places");
  g = shoal_graph_new();
  refuse(g, s, numbers(g), 7, 1, "7 is no way to shard");
  g = shoal_graph_new();
  shoal_out all = shoal_constant_floats(g, SHOAL_SHAPE(1), (float[]){1});
  shoal_dims one = SHOAL_SCALAR;
  refuse(g, s, shoal_tensor_slice_dataset(g, &all, 1, &one, 1), SHOAL_SHARD_AUTO, 1, "are to be batches");
  shoal_strategy_free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(replicas_take_turns),
      cmocka_unit_test(goes_on_behind_what_was_used),
      cmocka_unit_test(mistakes),
  };
  return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
