/* Supervisors: a managed session, its threads, summaries, the ways to end, going on from a checkpoint. */
#include "unit.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include <shoal/shoal.h>

struct model {
  shoal_graph *g;
  shoal_var v, step;
  shoal_op *train;
  shoal_out summary;
};

static struct model build(void) {
  struct model m = {.g = shoal_graph_new()};
  m.step = shoal_global_step(m.g);
  m.v = shoal_variable(m.g, "v", shoal_constant_float(m.g, 0));
  shoal_out loss = shoal_squared_difference(m.g, m.v.value, shoal_constant_float(m.g, 3));
  m.train = shoal_minimize(m.g, shoal_sgd(0.1), loss, m.step);
  m.summary = shoal_scalar_summary(m.g, shoal_constant_string(m.g, "loss"), loss);
  return m;
}

static atomic_int calls;
static shoal_status call(void *arg) {
  (void)arg;
  atomic_fetch_add(&calls, 1);
  return NULL;
}
static shoal_status fails(void *arg) { return STATUS(SHOAL_INTERNAL, "the thread %s", (const char *)arg); }

static int64_t train_some(const char *dir, int steps) {
  struct model m = build();
  shoal_supervisor *sv;
  shoal_session *session;
  int64_t step = -1;
  shoal_tensor *summary;
  ASSERT_OK(shoal_supervisor_new(
      m.g, &(shoal_supervisor_options){.is_chief = true, .logdir = dir, .save_summaries_secs = 0.05}, &sv));
  ASSERT_OK(shoal_supervisor_managed_session(sv, "", NULL, &session));
  atomic_store(&calls, 0);
  ASSERT_OK(shoal_supervisor_loop(sv, 0.01, call, NULL));
  for (int i = 0; i < steps && !shoal_supervisor_should_stop(sv); i++) {
    ASSERT_OK(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, m.train));
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
  ASSERT_OK(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(m.step.value, &step, m.summary, &summary), NULL));
  ASSERT_OK(shoal_supervisor_summary_computed(sv, summary, -1));
  shoal_tensor_unref(summary);
  assert_non_null(shoal_supervisor_saver(sv));
  for (int i = 0; i < 6000 && atomic_load(&calls) < 2; i++) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  assert_true(atomic_load(&calls) > 1);
  shoal_supervisor_request_stop(sv, NULL);
  assert_true(shoal_supervisor_should_stop(sv));
  ASSERT_OK(shoal_supervisor_stop(sv));
  shoal_graph_free(m.g);
  return step;
}

static void goes_on(void **unused) {
  char dir[] = "/tmp/shoal-supervisor-XXXXXX", command[100];
  assert_non_null(mkdtemp(dir));
  assert_int_equal(train_some(dir, 10), 10);
  char *latest = shoal_latest_checkpoint(dir);
  assert_non_null(latest);
  assert_non_null(strstr(latest, "model.ckpt-10"));
  free(latest);
  assert_int_equal(train_some(dir, 5), 15);
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  assert_int_equal(system(command), 0);
}

static void an_error_in_a_thread_stops_all(void **unused) {
  struct model m = build();
  shoal_supervisor *sv;
  shoal_session *session;
  ASSERT_OK(shoal_supervisor_new(m.g, &(shoal_supervisor_options){.is_chief = true}, &sv));
  ASSERT_OK(shoal_supervisor_prepare_or_wait(sv, "", NULL, &session));
  ASSERT_OK(shoal_supervisor_loop(sv, 1, fails, "broke"));
  assert_true(shoal_coordinator_wait_for_stop(shoal_supervisor_coordinator(sv), 120));
  ASSERT_FAILS(shoal_supervisor_summary_computed(sv, NULL, 0), SHOAL_INVALID_ARGUMENT, "summary writer");
  ASSERT_FAILS(shoal_supervisor_stop(sv), SHOAL_INTERNAL, "the thread broke");
  shoal_graph_free(m.g);
}

static void only_the_chief_serves(void **unused) {
  struct model m = build();
  shoal_supervisor *sv;
  shoal_session *session;
  ASSERT_OK(shoal_supervisor_new(m.g, &(shoal_supervisor_options){.max_wait_secs = 0.3}, &sv));
  ASSERT_FAILS(shoal_supervisor_start_standard_services(sv), SHOAL_INVALID_ARGUMENT, "Only chief");
  ASSERT_FAILS(shoal_supervisor_managed_session(sv, "", NULL, &session), SHOAL_DEADLINE_EXCEEDED,
               "Variables not initialized: global_step, v");
  ASSERT_OK(shoal_supervisor_stop(sv));
  shoal_graph_free(m.g);
}

RUN_TESTS(cmocka_unit_test(goes_on), cmocka_unit_test(an_error_in_a_thread_stops_all),
          cmocka_unit_test(only_the_chief_serves))
