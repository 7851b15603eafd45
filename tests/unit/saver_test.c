/* Savers: which checkpoints are kept, what happens to values while they are written, other partitions. */
#include "unit.h"

#include <dirent.h>
#include <unistd.h>

#include <shoal/shoal.h>

#include "checkpoint/state.h"

static char *fresh_dir(void) {
  char name[] = "/tmp/shoal-saver-XXXXXX";
  assert_non_null(mkdtemp(name));
  return strdup(name);
}

static void remove_dir(char *dir) {
  char command[200];
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  assert_int_equal(system(command), 0);
  free(dir);
}

static int count(const char *dir, const char *ending) {
  DIR *d = opendir(dir);
  int n = 0;
  for (struct dirent *e; (e = readdir(d));) {
    size_t have = strlen(e->d_name), want = strlen(ending);
    n += have >= want && !strcmp(e->d_name + have - want, ending);
  }
  closedir(d);
  return n;
}

static shoal_op *init_session(shoal_graph *g, shoal_session **s) {
  shoal_op *init = shoal_initialize(g);
  if (shoal_graph_error(g)) shoal_report(g);
  assert_null(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(g, NULL, s));
  ASSERT_OK(shoal_session_step(*s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  return init;
}

static void keeps(int max, double hours, int expected) {
  shoal_graph *g = shoal_graph_new();
  shoal_variable(g, "v", shoal_constant_float(g, 1));
  shoal_saver *saver = shoal_saver_new(g, &(shoal_saver_options){.max_to_keep = max, .keep_every_hours = hours});
  shoal_session *s;
  init_session(g, &s);
  char *dir = fresh_dir(), prefix[200], *path;
  snprintf(prefix, sizeof prefix, "%s/m", dir);
  for (int i = 0; i < 8; i++) {
    ASSERT_OK(shoal_saver_save(saver, s, prefix, i, &path));
    free(path);
    usleep(3000);
  }
  assert_int_equal(count(dir, ".index"), expected);
  assert_int_equal(count(dir, "-of-00001"), expected);
  path = shoal_latest_checkpoint(dir);
  assert_non_null(strstr(path, "/m-7"));
  free(path);
  /* A second saver goes on with the list. */
  shoal_saver *second = shoal_saver_new(g, &(shoal_saver_options){.max_to_keep = max, .keep_every_hours = hours});
  ASSERT_OK(shoal_session_extend(s, g));
  ASSERT_OK(shoal_saver_recover(second, dir));
  ASSERT_OK(shoal_saver_save(second, s, prefix, 8, NULL));
  struct checkpoint_state state;
  ASSERT_OK(checkpoint_state_read(dir, NULL, &state));
  assert_int_equal(state.all.n, max > 0 ? max : 9);
  assert_int_equal(state.timestamps.n, state.all.n);
  checkpoint_state_release(&state);
  shoal_saver_free(saver);
  shoal_saver_free(second);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
  remove_dir(dir);
}

static void the_last_ones_are_kept(void **unused) {
  keeps(3, 0, 3);
  keeps(-1, 0, 8);
  keeps(2, 1e-9,
        7); /* every hour that passes keeps one for good: here each, but the one made before the first passed */
}

/* The snapshot is of the moment it was taken, however long writing takes. */
static void training_goes_on_behind(void **unused) {
  enum { N = 1 << 20 };
  shoal_graph *g = shoal_graph_new();
  shoal_var v = shoal_variable(g, "v", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(N)));
  shoal_builder *b = shoal_build(g, "AssignAddVariableOp", NULL);
  shoal_build_input(b, v.handle);
  shoal_build_input(b, shoal_init_ones(g, SHOAL_FLOAT32, SHOAL_SHAPE(N)));
  shoal_op *add = shoal_build_end(b);
  shoal_out mean = shoal_reduce_mean(g, v.value);
  shoal_saver *saver = shoal_saver_new(g, NULL);
  shoal_session *s;
  init_session(g, &s);
  char *dir = fresh_dir(), prefix[200];
  snprintf(prefix, sizeof prefix, "%s/m", dir);
  for (int i = 0; i < 4; i++) {
    ASSERT_OK(shoal_saver_save_behind(saver, s, prefix, i));
    for (int k = 0; k < 5; k++) ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, add));
  }
  ASSERT_OK(shoal_saver_wait(saver));
  for (int i = 0; i < 4; i++) {
    char path[240];
    float value;
    snprintf(path, sizeof path, "%s-%d", prefix, i);
    ASSERT_OK(shoal_saver_restore(saver, s, path));
    ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(mean, &value), NULL));
    assert_true(value == (float)(5 * i));
  }
  shoal_saver_free(saver);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
  remove_dir(dir);
}

enum { ROWS = 10, COLUMNS = 3 };

/* Row r of a part is filled with what the part's rows are called: counted over the parts as they are made. */
static shoal_out numbered(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, void *arg) {
  float values[ROWS * COLUMNS], *next = arg;
  (void)dtype;
  for (int64_t i = 0; i < shape.at[0] * shape.at[1]; i++) values[i] = (*next)++;
  return shoal_constant_floats(g, shape, values);
}

static shoal_out zeros(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, void *arg) {
  (void)arg;
  return shoal_init_zeros(g, dtype, shape);
}

/* Saves, or restores, the table in so many parts (0: not partitioned), and looks at its values. */
static void through_parts(const char *prefix, int parts, bool restore) {
  shoal_graph *g = shoal_graph_new();
  float next = 0;
  shoal_out whole;
  if (parts == 0) {
    whole =
        shoal_variable(g, "table", (restore ? zeros : numbered)(g, SHOAL_FLOAT32, SHOAL_SHAPE(ROWS, COLUMNS), &next))
            .value;
  } else {
    shoal_partitioner p = shoal_fixed_partitioner(parts, 0);
    shoal_partitioned t = shoal_partitioned_variable(g, "table", SHOAL_FLOAT32, SHOAL_SHAPE(ROWS, COLUMNS), &p,
                                                     restore ? zeros : numbered, &next);
    whole = shoal_partitioned_value(g, &t);
    shoal_partitioned_free(&t);
  }
  shoal_saver *saver = shoal_saver_new(g, NULL);
  shoal_session *s;
  init_session(g, &s);
  if (restore) ASSERT_OK(shoal_saver_restore(saver, s, prefix));
  else ASSERT_OK(shoal_saver_save(saver, s, prefix, -1, NULL));
  shoal_tensor *got;
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(whole, &got), NULL));
  const float *at = shoal_tensor_const_data(got);
  assert_int_equal(shoal_tensor_elements(got), ROWS * COLUMNS);
  for (int i = 0; i < ROWS * COLUMNS; i++) assert_true(at[i] == (float)i);
  shoal_tensor_unref(got);
  shoal_saver_free(saver);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

static void other_partitions(void **unused) {
  char *dir = fresh_dir(), prefix[200];
  for (int from = 0; from <= 4; from++) {
    snprintf(prefix, sizeof prefix, "%s/m-%d", dir, from);
    through_parts(prefix, from, false);
    for (int to = 0; to <= 5; to++) through_parts(prefix, to, true);
  }
  remove_dir(dir);
}

static void nothing_to_save(void **unused) {
  shoal_graph *g = shoal_graph_new();
  shoal_saver *saver = shoal_saver_new(g, NULL);
  assert_string_equal(shoal_status_message(shoal_graph_error(g)), "No variables to save");
  shoal_saver_free(saver);
  shoal_graph_free(g);
}

RUN_TESTS(cmocka_unit_test(the_last_ones_are_kept), cmocka_unit_test(training_goes_on_behind),
          cmocka_unit_test(other_partitions), cmocka_unit_test(nothing_to_save))
