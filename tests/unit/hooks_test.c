/* Hooks beside other workers, whose steps are counted meanwhile, and in sessions that are made anew; files of events.
 */
#include "unit.h"
#include "folder.h"

#include <shoal/shoal.h>
#include <stdio.h>
#include <string.h>

/* A step that reads the counter first and then counts so many, as if all but one of them were others' steps. */
static shoal_op *count(shoal_graph *g, shoal_var step, int64_t many) {
  shoal_push_control(g, &step.value.node, 1);
  shoal_builder *b = shoal_build(g, "AssignAddVariableOp", "count");
  shoal_build_input(b, step.handle);
  shoal_build_input(b, shoal_constant_int64(g, many));
  shoal_op *op = shoal_build_end(b);
  shoal_pop_control(g);
  return op;
}

static void ends_beside_others(void **unused) {
  for (int64_t others = 0; others < 8; others++) {
    shoal_graph *g = shoal_graph_new();
    shoal_var step = shoal_global_step(g);
    shoal_op *train = count(g, step, 1 + others);
    int64_t last = 10 * (1 + others), at = 0;
    shoal_status error = NULL;
    SHOAL_TRAIN_SESSION(s, g, .stop_at_step = last, .status = &error) {
      while (!shoal_should_stop(s)) shoal_run(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, train);
      ASSERT_OK(shoal_session_step(shoal_train_session_raw(s), SHOAL_NO_FEEDS, SHOAL_FETCH(step.value, &at), NULL));
    }
    ASSERT_OK(error);
    assert_int_equal(at, last);
    shoal_graph_free(g);
  }
}

/* Runs that follow each other within a second, and writers side by side, have files of their own. */
static void event_files_of_one_second(void **unused) {
  enum { FILES = 5 };
  char *dir = in_dir("second"), *count_files = mem_printf("exit $(ls %s | grep -c tfevents)", dir);
  for (int i = 0; i < FILES; i++) {
    shoal_events *a, *b;
    ASSERT_OK(shoal_events_open(dir, &a));
    ASSERT_OK(shoal_events_open(dir, &b));
    ASSERT_OK(shoal_events_scalar(a, i, "x", 1));
    ASSERT_OK(shoal_events_scalar(b, i, "x", 1));
    ASSERT_OK(shoal_events_close(a));
    ASSERT_OK(shoal_events_close(b));
  }
  assert_int_equal(WEXITSTATUS(system(count_files)), 2 * FILES);
  free(count_files);
  free(dir);
}

/* How often a file of events has the mark of a start: field 7, a message whose field 1 is 1. */
static int starts(const char *dir) {
  char *command = mem_printf("cat %s/events.out.tfevents.*", dir);
  FILE *f = popen(command, "r");
  int found = 0;
  unsigned last = 0;
  for (int c; (c = fgetc(f)) != EOF;) {
    last = last << 8 | (unsigned)c;
    found += last == 0x3a020801;
  }
  pclose(f);
  free(command);
  return found;
}

/* A session that was made anew, from an older step or from one that is alive: the first is marked. */
static void events_begin_again(void **unused) {
  const struct {
    shoal_made made;
    const char *name;
    int starts;
  } cases[] = {{SHOAL_MADE_RESTORED, "restored", 2}, {SHOAL_MADE_REJOINED, "rejoined", 1}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    shoal_graph *g = shoal_graph_new();
    shoal_var step = shoal_global_step(g);
    shoal_op *train = count(g, step, 1);
    shoal_scalar_summary(g, shoal_constant_string(g, "two"), shoal_constant_float(g, 2));
    char *dir = in_dir(cases[i].name);
    shoal_hook hooks[] = {shoal_summary_saver_hook(1000000, 0, dir, (shoal_out){0})};
    const shoal_hook saver = hooks[0];
    shoal_status error = NULL;
    SHOAL_TRAIN_SESSION(s, g, .hooks = hooks, .n_hooks = 1, .stop_at_step = 10, .status = &error)
    for (int k = 0; !shoal_should_stop(s); k++) {
      shoal_created again = *shoal_train_session_created(s);
      again.made = cases[i].made;
      if (k == 5) ASSERT_OK(saver.after_create ? saver.after_create(saver.state, &again) : NULL);
      shoal_run(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, train);
    }
    ASSERT_OK(error);
    assert_int_equal(starts(dir), cases[i].starts);
    shoal_graph_free(g);
    free(dir);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ends_beside_others), cmocka_unit_test(event_files_of_one_second),
                                     cmocka_unit_test(events_begin_again)};
  return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
