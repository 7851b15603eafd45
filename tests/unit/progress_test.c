/* Progress lines: what is written is read back; what only looks alike is none; the time left does not jump. */
#include <math.h>

#include "train/progress.h"
#include "unit.h"

static char *line_of(struct progress_line l) {
  struct text t = {0};
  progress_put(&t, &l);
  return text_take(&t);
}

static void test_written_and_read(void **state) {
  struct progress_line all = {.task = "worker 1",
                              .step = 1200,
                              .last = 5000,
                              .has_loss = true,
                              .loss = 0.4312,
                              .examples_per_sec = 51200,
                              .eta_secs = 3723,
                              .staleness = 1.5};
  char *line = line_of(all);
  assert_string_equal(line, "worker 1  step 1200/5000  loss 0.4312  51200 examples/s  eta 1:02:03  staleness 1.5");
  struct progress_line got;
  assert_true(progress_parse(line, &got));
  free(line);
  assert_string_equal(got.task, "worker 1");
  assert_int_equal(got.step, 1200);
  assert_int_equal(got.last, 5000);
  assert_true(got.has_loss && fabs(got.loss - 0.4312) < 1e-9);
  assert_true(got.examples_per_sec == 51200 && got.eta_secs == 3723 && got.staleness == 1.5);

  struct progress_line none = {.step = 7, .examples_per_sec = -1, .eta_secs = -1, .staleness = -1};
  line = line_of(none);
  assert_string_equal(line, "step 7");
  assert_true(progress_parse(line, &got));
  assert_true(got.step == 7 && !got.last && !got.has_loss && got.eta_secs < 0 && got.staleness < 0 && !*got.task);
  free(line);

  none.has_loss = true;
  none.loss = NAN;
  line = line_of(none);
  assert_true(progress_parse(line, &got) && got.has_loss && isnan(got.loss));
  free(line);
}

static void test_never_past_the_end(void **state) {
  char *line = line_of(
      (struct progress_line){.step = 10002, .last = 10000, .examples_per_sec = -1, .eta_secs = -1, .staleness = -1});
  assert_string_equal(line, "step 10000/10000");
  free(line);
}

static void test_what_is_none(void **state) {
  static const char *const lines[] = {"",
                                      "step",
                                      "step ",
                                      "step x",
                                      "a step 5",
                                      "step 5/",
                                      "step 5  loss",
                                      "step 5 and on",
                                      "step 5  loss 0.1  eta 5",
                                      "worker 0: 5 local steps",
                                      "  step 5",
                                      "step -1",
                                      "step 5  eta 1:2:3:4",
                                      "step 5  loss  0.1"};
  struct progress_line got;
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    if (progress_parse(lines[i], &got)) fail_msg("taken for progress: '%s'", lines[i]);
  }
  char wide[200];
  memset(wide, 'w', sizeof wide);
  memcpy(wide + 100, "  step 5", 9);
  assert_false(progress_parse(wide, &got));
  assert_true(progress_parse("step 99999999999999999999999999/5\n", &got)); /* clamped, not undefined */
}

static void test_time_left(void **state) {
  struct progress_rate r = {0};
  assert_true(progress_rate_eta(&r, 100) < 0);
  for (int i = 0; i < 60; i++) progress_rate_add(&r, 10, 1);
  double steady = progress_rate_eta(&r, 1000);
  assert_true(fabs(steady - 100) < 1);
  progress_rate_add(&r, 0, 1); /* a second in which nothing came, and one with twice as much */
  assert_true(progress_rate_eta(&r, 1000) < steady * 1.1);
  progress_rate_add(&r, 20, 1);
  assert_true(fabs(progress_rate_eta(&r, 1000) - steady) < steady * 0.1);
}

RUN_TESTS(cmocka_unit_test(test_written_and_read), cmocka_unit_test(test_never_past_the_end),
          cmocka_unit_test(test_what_is_none), cmocka_unit_test(test_time_left))
