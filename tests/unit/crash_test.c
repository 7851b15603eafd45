/* Killed at every write: a trainer that saves checkpoints is killed before its first change to the file system, before
 * its second, and so on until it comes through. After each the newest checkpoint can be read, is of a step no earlier
 * than the one known before, and holds what belongs to that step; and a full disk at any point costs no checkpoint.
 *
 * Every trial runs in a process of its own, which forks from one without threads. */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <shoal/shoal.h>

#include "base/file.h"

enum { STEPS = 6, SIZE = 1000, MOST = 2000 };

static atomic_int changes;
static int fatal_change;
static bool disk_full;

static shoal_status fill_disk(void *state, const shoal_created *c);

static void kill_at(const char *what, const char *path) {
  (void)what, (void)path;
  if (atomic_fetch_add(&changes, 1) + 1 == fatal_change) kill(getpid(), SIGKILL);
}

/* Adds one to a vector and to the step counter. sharded: two logical devices, so that parts are merged. */
static int train(const char *dir, bool sharded) {
  shoal_graph *g = shoal_graph_new();
  shoal_var step = shoal_global_step(g), v[2];
  shoal_op *ops[3];
  for (int i = 0; i < 2; i++) {
    v[i] = shoal_variable(g, i ? "b" : "a", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(SIZE)));
    shoal_builder *b = shoal_build(g, "AssignAddVariableOp", NULL);
    shoal_build_input(b, v[i].handle);
    shoal_build_input(b, shoal_init_ones(g, SHOAL_FLOAT32, SHOAL_SHAPE(SIZE)));
    ops[i] = shoal_build_end(b);
  }
  shoal_builder *b = shoal_build(g, "AssignAddVariableOp", NULL);
  shoal_build_input(b, step.handle);
  shoal_build_input(b, shoal_constant_int64(g, 1));
  ops[2] = shoal_build_end(b);
  shoal_op *count = shoal_group(g, ops, 3, "count");
  shoal_out mean[2] = {shoal_reduce_mean(g, v[0].value), shoal_reduce_mean(g, v[1].value)};
  shoal_saver *saver = shoal_saver_new(
      g, &(shoal_saver_options){.max_to_keep = 2, .from = sharded ? SHOAL_SAVE_SHARDED : SHOAL_SAVE_GATHERED});
  shoal_status error = NULL;
  int64_t now = -1;
  float a = -1, c = -1;
  bool agrees = false;
  SHOAL_TRAIN_SESSION(s, g, .checkpoint_dir = dir, .save_steps = 2, .scaffold = &(shoal_scaffold){.saver = saver},
                      .hooks = (shoal_hook[]){shoal_stop_at_step_hook(STEPS, 0), {.after_create = fill_disk}},
                      .n_hooks = disk_full ? 2 : 1, .no_signals = true, .log_step_count_steps = -1,
                      .save_summaries_steps = -1, .status = &error) {
    shoal_status e = shoal_session_step(shoal_train_session_raw(s), SHOAL_NO_FEEDS,
                                        SHOAL_FETCH(step.value, &now, mean[0], &a, mean[1], &c), NULL);
    agrees = !e && (float)now == a && a == c;
    shoal_status_free(e);
    while (agrees && !shoal_should_stop(s)) shoal_run(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, count);
  }
  shoal_saver_free(saver);
  shoal_graph_free(g);
  if (error) fprintf(stderr, "%s\n", shoal_status_message(error));
  int code = !agrees ? 3 : error ? 4 : 0;
  shoal_status_free(error);
  return code;
}

/* From now on no file can have more than half of what a checkpoint takes: what a full disk is like. */
static shoal_status fill_disk(void *state, const shoal_created *c) {
  (void)state, (void)c;
  signal(SIGXFSZ, SIG_IGN);
  return setrlimit(RLIMIT_FSIZE, &(struct rlimit){SIZE * 4, SIZE * 4}) ? STATUS(SHOAL_INTERNAL, "setrlimit") : NULL;
}

/* One trial; its wait status. */
static int trial(const char *dir, int at, bool sharded) {
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    fatal_change = at;
    file_fault = at > 0 ? kill_at : NULL;
    disk_full = at < 0;
    _exit(train(dir, sharded));
  }
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return status;
}

static int64_t latest_step(const char *dir) {
  char *latest = shoal_latest_checkpoint(dir);
  if (!latest) return -1;
  int64_t step;
  ASSERT_OK(shoal_checkpoint_int(latest, "global_step", &step));
  free(latest);
  return step;
}

static void remove_all(const char *dir) {
  char command[200];
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  if (system(command)) print_error("cannot remove %s\n", dir);
}

static void killed_at_every_write(bool sharded) {
  char dir[] = "/tmp/shoal-crash-XXXXXX";
  assert_non_null(mkdtemp(dir));
  int status = trial(dir, 0, sharded);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  int64_t known = latest_step(dir);
  assert_int_equal(known, STEPS);
  int at = 1;
  for (; at < MOST; at++) {
    status = trial(dir, at, sharded);
    if (WIFEXITED(status)) break;
    int64_t step = latest_step(dir);
    if (step < known) print_error("killed at change %d: step %d after %d\n", at, (int)step, (int)known);
    assert_true(step >= known);
    known = step;
  }
  assert_int_equal(WEXITSTATUS(status), 0); /* the last one came through, with counters that agree */
  assert_true(at > 30);
  print_message("# killed %d times, at step %d\n", at - 1, (int)latest_step(dir));
  remove_all(dir);
}

static void full_disk(void **unused) {
  for (int sharded = 0; sharded < 2; sharded++) {
    char dir[] = "/tmp/shoal-full-XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_int_equal(trial(dir, 0, sharded), 0);
    int status = trial(dir, -1, sharded);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 4); /* the run ends with an error */
    assert_int_equal(latest_step(dir), STEPS);                  /* and the checkpoint before is the newest still */
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d));) assert_null(strstr(e->d_name, "temp"));
    closedir(d);
    status = trial(dir, 0, sharded);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(latest_step(dir), 2 * STEPS);
    remove_all(dir);
  }
}

static void gathered(void **unused) { killed_at_every_write(false); }
static void sharded(void **unused) { killed_at_every_write(true); }

RUN_TESTS(cmocka_unit_test(gathered), cmocka_unit_test(sharded), cmocka_unit_test(full_disk))
