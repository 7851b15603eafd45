/* Where in the program a mistake is: the call that made it, in whatever function of the program it stands; and what is
 * printed of it. */
#undef SHOAL_NO_PLACES
#include <pthread.h>
#include <shoal/shoal.h>
#include <unistd.h>

#include "base/log.h"
#include "unit.h"

static int bad_line;

/* A layer of the program's own. */
static shoal_out layer(shoal_graph *g, shoal_out x, bool wrong) {
  shoal_out w = shoal_constant_float(g, 1);
  if (wrong) {
    bad_line = __LINE__ + 1;
    x = shoal_mat_mul(g, x, w);
  }
  return shoal_relu(g, x);
}

static void assert_where(shoal_status s, int line) {
  char want[512];
  snprintf(want, sizeof want, "%s:%d", __FILE__, line);
  assert_string_equal(shoal_status_where(s), want);
}

static void test_building(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, 4), "x");
  /* The mistake is inside, calls around it and after it do not take it over. */
  x = shoal_softmax(g, shoal_relu(g, layer(g, layer(g, x, false), true)));
  shoal_reduce_mean(g, x);
  assert_non_null(shoal_graph_error(g));
  assert_where(shoal_graph_error(g), bad_line);
  shoal_graph_free(g);
}

static void test_every_kind_of_call(void **state) {
  int line = 0;
#define EXPECT(...)                           \
  do {                                        \
    shoal_graph *g = shoal_graph_new();       \
    line = __LINE__, (__VA_ARGS__);           \
    assert_where(shoal_graph_error(g), line); \
    shoal_graph_free(g);                      \
  } while (0)
  shoal_out none = {0};
  EXPECT((void)shoal_relu(g, none));                                   /* an output */
  EXPECT((void)shoal_no_op(g), shoal_pop_scope(g));                    /* nothing */
  EXPECT((void)shoal_variable(g, "v", none));                          /* a variable */
  EXPECT((void)shoal_minimize(g, shoal_sgd(1), none, (shoal_var){0})); /* an op */
  EXPECT((void)shoal_unique(g, none));                                 /* several outputs */
  EXPECT((void)shoal_build_end(shoal_build(g, "NoSuchOp", NULL)));     /* an op by name */
#undef EXPECT
}

static void test_returned(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_session *session;
  int line = __LINE__ + 1;
  shoal_status s = shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .target = "nowhere://"), &session);
  assert_non_null(s);
  assert_where(s, line);
  shoal_status_free(s);
  shoal_graph_free(g);
}

/* What a training session keeps to its end is told with the step that made it. */
static void test_training(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(2), "x");
  shoal_global_step(g);
  shoal_status error = NULL;
  int line = 0;
  SHOAL_TRAIN_SESSION(s, g, .no_signals = true, .status = &error) {
    shoal_tensor *value;
    line = __LINE__ + 1;
    shoal_run(s, SHOAL_NO_FEEDS, SHOAL_FETCH(x, &value), NULL);
  }
  assert_non_null(error);
  assert_where(error, line);
  shoal_status_free(error);
  shoal_graph_free(g);
}

/* Errors kept in two threads at once do not get each other's place; one that goes before it has a place is no harm. */
static void *other_thread(void *arg) {
  shoal_graph *g = arg;
  (shoal_relu)(g, (shoal_out){0}); /* by the function: nobody gives it a place */
  return NULL;
}

static void test_threads(void **state) {
  shoal_graph *a = shoal_graph_new(), *b = shoal_graph_new();
  pthread_t t;
  assert_int_equal(pthread_create(&t, NULL, other_thread, a), 0);
  pthread_join(t, NULL);
  int line = __LINE__ + 1;
  shoal_relu(b, (shoal_out){0});
  assert_string_equal(shoal_status_where(shoal_graph_error(a)), "");
  assert_where(shoal_graph_error(b), line);
  shoal_graph_free(a);
  shoal_graph *c = shoal_graph_new();
  (shoal_relu)(c, (shoal_out){0});
  shoal_graph_free(c);
  shoal_relu(b, (shoal_out){0});
  assert_where(shoal_graph_error(b), line);
  shoal_graph_free(b);
}

static char *printed(shoal_status s) {
  fflush(stderr);
  FILE *to = tmpfile();
  int kept = dup(STDERR_FILENO);
  dup2(fileno(to), STDERR_FILENO);
  shoal_status_print(s);
  fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(kept);
  rewind(to);
  char *text = calloc(1, 4096);
  size_t n = fread(text, 1, 4095, to);
  text[n] = 0;
  fclose(to);
  return text;
}

static void test_printed(void **state) {
  shoal_status s = shoal_placed_status_(INVALID("no \x1b[31mred\x07\nsecond line"), "train.c", 30);
  log_set_level(LOG_WARNING);
  char *text = printed(s);
  assert_string_equal(text, "train.c:30: INVALID_ARGUMENT: no \\x1b[31mred\\x07\nsecond line\n");
  free(text);
  log_set_level(LOG_DEBUG); /* and then our own places as well */
  text = printed(s);
  assert_non_null(strstr(text, "places_test.c"));
  free(text);
  log_set_level(LOG_WARNING);
  shoal_status_free(s);
}

RUN_TESTS(cmocka_unit_test(test_building), cmocka_unit_test(test_every_kind_of_call), cmocka_unit_test(test_returned),
          cmocka_unit_test(test_training), cmocka_unit_test(test_threads), cmocka_unit_test(test_printed))
