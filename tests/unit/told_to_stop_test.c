/* Training told to stop while a dataset looks for an element that never comes: it ends at the first signal, with what
 * was trained so far saved. */
#include <limits.h>
#include <shoal/shoal.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "folder.h"
#include "unit.h"

enum { SMALL = 3, HANGS_SECONDS = 120 };

static shoal_out numbers(shoal_graph *g) { return shoal_dataset_range(g, 0, INT64_MAX, 1); }

static const shoal_function *is_small(shoal_graph *g, shoal_out d) {
  shoal_out x;
  shoal_graph *f = shoal_dataset_function(g, d, NULL, &x, 1);
  shoal_function_output(f, shoal_less(f, x, shoal_constant_int64(f, SMALL)), NULL);
  return shoal_function_end(f);
}

/* A dataset of x itself where that is small, else an empty one. */
static const shoal_function *one_or_none(shoal_graph *g, shoal_out d) {
  shoal_out x;
  shoal_graph *f = shoal_dataset_function(g, d, NULL, &x, 1);
  shoal_out one = shoal_dataset_from_tensors(f, &x, 1);
  shoal_function_output(f, shoal_dataset_filter(f, one, is_small(f, one)), NULL);
  return shoal_function_end(f);
}

static shoal_out filtered(shoal_graph *g) {
  shoal_out d = numbers(g);
  return shoal_dataset_filter(g, d, is_small(g, d));
}

static shoal_out batched(shoal_graph *g) {
  return shoal_dataset_unbatch(g, shoal_dataset_batch(g, filtered(g), SMALL - 1, false));
}

static shoal_out shuffled(shoal_graph *g) { return shoal_dataset_shuffle(g, filtered(g), 2, 1, NULL); }

static shoal_out ahead(shoal_graph *g) { return shoal_dataset_prefetch(g, filtered(g), 1); }

static shoal_out skipped(shoal_graph *g) {
  shoal_out few = shoal_dataset_range(g, 0, SMALL, 1);
  return shoal_dataset_concatenate(g, few, shoal_dataset_skip(g, numbers(g), INT64_MAX / 2));
}

static shoal_out repeated(shoal_graph *g) {
  shoal_out few = shoal_dataset_range(g, 0, SMALL, 1), large = shoal_dataset_range(g, SMALL, SMALL + 5, 1);
  large = shoal_dataset_repeat(g, large, -1);
  return shoal_dataset_concatenate(g, few, shoal_dataset_filter(g, large, is_small(g, large)));
}

static shoal_out flat(shoal_graph *g) {
  shoal_out d = numbers(g);
  return shoal_dataset_flat_map(g, d, one_or_none(g, d));
}

static shoal_out in_turn(shoal_graph *g) {
  shoal_out d = numbers(g);
  return shoal_dataset_interleave(g, d, one_or_none(g, d),
                                  SHOAL_OPTIONS(shoal_interleave_options, .cycle = 2, .parallel = 2));
}

/* Several at a time ask for several before they give one. */
static shoal_out mapped(shoal_graph *g) {
  shoal_out x, few = shoal_dataset_range(g, 0, SMALL, 1), large = shoal_dataset_range(g, SMALL, INT64_MAX, 1);
  shoal_out d = shoal_dataset_filter(g, large, is_small(g, large));
  shoal_graph *f = shoal_dataset_function(g, d, NULL, &x, 1);
  shoal_function_output(f, shoal_add(f, x, x), NULL);
  d = shoal_dataset_map(g, d, shoal_function_end(f), SHOAL_OPTIONS(shoal_map_options, .parallel = 2));
  return shoal_dataset_concatenate(g, few, d);
}

static shoal_out windows(shoal_graph *g) {
  shoal_out d = shoal_dataset_window(g, filtered(g), SMALL - 1, NULL), window;
  shoal_graph *f = shoal_dataset_function(g, d, NULL, &window, 1);
  shoal_function_output(f, window, NULL);
  return shoal_dataset_flat_map(g, d, shoal_function_end(f));
}

/* Trains in a process of its own, which tells of each step; ends as programs do. */
static void train(shoal_out (*data)(shoal_graph *g), const char *dir, int to) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x;
  shoal_dataset_next(g, data(g), &x, 1, SHOAL_OPTIONS(shoal_next_options, .saved = true));
  shoal_out v = shoal_variable(g, "v", shoal_constant_float(g, 1)).value;
  shoal_out loss = shoal_squared_difference(g, v, shoal_cast(g, x, SHOAL_FLOAT32));
  shoal_op *op = shoal_minimize(g, shoal_sgd(0.1), loss, shoal_global_step(g));
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(s, g, .checkpoint_dir = dir, .status = &error)
  while (!shoal_should_stop(s))
    if (shoal_run(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, op) && write(to, ".", 1) != 1) _exit(1);
  _exit(shoal_train_exit(error));
}

static const struct {
  const char *name;
  shoal_out (*data)(shoal_graph *g);
  int steps; /* before it finds no more */
} cases[] = {
    {"filter", filtered, SMALL},    {"batch", batched, SMALL - 1},  {"shuffle", shuffled, SMALL - 1},
    {"prefetch", ahead, SMALL},     {"skip", skipped, SMALL},       {"repeat", repeated, SMALL},
    {"flat_map", flat, SMALL},      {"interleave", in_turn, SMALL}, {"map", mapped, SMALL},
    {"window", windows, SMALL - 1},
};

enum { CASES = sizeof cases / sizeof *cases };

static int wait_for_steps(int from, int steps) {
  char dot;
  int n = 0;
  while (n < steps && read(from, &dot, 1) == 1) n++;
  return n;
}

static void check_saved(const char *name, int steps) {
  int64_t step;
  char *dir = in_dir(name), *latest = shoal_latest_checkpoint(dir);
  assert_non_null(latest);
  ASSERT_OK(shoal_checkpoint_int(latest, "global_step", &step));
  assert_int_equal(step, steps);
  free(latest);
  free(dir);
}

static void ends_at_the_first_signal(void **unused) {
#ifdef __SANITIZE_THREAD__
  skip(); /* it keeps a signal from a thread that waits for a condition until that is over */
#endif
  int ends[CASES][2], status;
  pid_t children[CASES];
  for (int i = 0; i < CASES; i++) {
    assert_int_equal(pipe(ends[i]), 0);
    children[i] = fork();
    assert_true(children[i] >= 0);
    if (children[i] == 0) {
      alarm(HANGS_SECONDS);
      train(cases[i].data, in_dir(cases[i].name), ends[i][1]);
    }
    close(ends[i][1]);
  }
  for (int i = 0; i < CASES; i++) assert_int_equal(wait_for_steps(ends[i][0], cases[i].steps), cases[i].steps);
  nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* they look for the next one */
  for (int i = 0; i < CASES; i++) kill(children[i], i % 2 ? SIGINT : SIGTERM);
  for (int i = 0; i < CASES; i++) {
    assert_int_equal(waitpid(children[i], &status, 0), children[i]);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != SHOAL_EXIT_RETRY) fail_msg("%s: status %d", cases[i].name, status);
    assert_int_equal(wait_for_steps(ends[i][0], INT_MAX), 0);
    close(ends[i][0]);
    check_saved(cases[i].name, cases[i].steps);
  }
}

RUN_TESTS_WITHIN(make_dir, drop_dir, cmocka_unit_test(ends_at_the_first_signal))
