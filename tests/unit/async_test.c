/* Steps in the background, on every kind of session: in this process, at a server of this process, and at one that is
 * reached through the network. Nothing here rests on time: a step that must not have ended waits for a queue into which
 * nobody puts anything. */
#include "unit.h"

#include <pthread.h>
#include <time.h>

#include <shoal/shoal.h>

enum { PATIENCE_MS = 120000 };

struct model {
  shoal_graph *g;
  shoal_out x, twice, taken, never;
  shoal_op *put;
};

static struct model build(void) {
  struct model m = {.g = shoal_graph_new()};
  shoal_graph *g = m.g;
  m.x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SCALAR, "x");
  m.twice = shoal_add_v2(g, m.x, m.x);
  const shoal_dtype type = SHOAL_FLOAT32;
  shoal_out queue = shoal_fifo_queue_v2(g, &type, 1);
  m.taken = (shoal_out){shoal_queue_dequeue_v2(g, queue, &type, 1), 0};
  m.never = (shoal_out){shoal_queue_dequeue_v2(g, shoal_fifo_queue_v2(g, &type, 1), &type, 1), 0};
  m.put = shoal_queue_enqueue_v2(g, queue, &m.x, 1);
  if (shoal_report(g)) fail();
  return m;
}

static shoal_tensor *number(float v) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 0, NULL, &v, sizeof v, &t));
  return t;
}

static void goes_well(const struct model *m, shoal_session *s) {
  shoal_tensor *x = number(21);
  float y = 0;
  shoal_async *a;
  ASSERT_OK(shoal_run_async(s, SHOAL_OPTIONS(shoal_run_options, .timeout_ms = INT64_MAX), SHOAL_FEED(m->x, x),
                            SHOAL_FETCH(m->twice, &y), NULL, &a)); /* as good as none */
  shoal_tensor_unref(x);                                           /* the step has its own reference */
  assert_true(shoal_async_done(a, INT64_MAX));
  assert_true(y == 0); /* stored by whoever waits */
  ASSERT_OK(shoal_async_wait(a));
  assert_true(y == 42);
  ASSERT_OK(shoal_async_wait(a));
  shoal_async_cancel(a); /* too late: nothing changes */
  ASSERT_OK(shoal_async_wait(a));
  shoal_async_free(a);
}

/* The server, where there is one: a step that was cancelled here ends there, too. */
static shoal_server *server;

static void ends_there(void) {
  for (bool busy = server != NULL; busy; nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL)) {
    char *text = shoal_server_status(server);
    busy = !strstr(text, "graphs run so far, 0 now");
    free(text);
  }
}

static void is_cancelled(const struct model *m, shoal_session *s) {
  float y = 7;
  shoal_async *a;
  ASSERT_OK(shoal_run_async(s, NULL, SHOAL_NO_FEEDS, SHOAL_FETCH(m->never, &y), NULL, &a));
  assert_false(shoal_async_done(a, 0));
  assert_false(shoal_async_done(a, 100));
  shoal_async_cancel(a);
  assert_true(shoal_async_done(a, PATIENCE_MS));
  ASSERT_FAILS(shoal_async_wait(a), SHOAL_CANCELLED, "cancelled by shoal_async_cancel");
  ASSERT_FAILS(shoal_async_wait(a), SHOAL_CANCELLED, "cancelled by shoal_async_cancel");
  assert_true(y == 7);
  shoal_async_free(a);
  ends_there();
  /* At once, perhaps before it began; and by freeing. */
  ASSERT_OK(shoal_run_async(s, NULL, SHOAL_NO_FEEDS, SHOAL_FETCH(m->never, &y), NULL, &a));
  shoal_async_cancel(a);
  ASSERT_FAILS(shoal_async_wait(a), SHOAL_CANCELLED, "cancelled by shoal_async_cancel");
  shoal_async_free(a);
  ASSERT_OK(shoal_run_async(s, NULL, SHOAL_NO_FEEDS, SHOAL_FETCH(m->never, &y), NULL, &a));
  shoal_async_free(a);
}

/* Two that wait for what other steps bring. (A step that was cancelled above may still be there at its server, and take
 * one: more are brought until both have theirs.) */
static void side_by_side(const struct model *m, shoal_session *s) {
  shoal_async *a[2];
  float y[2];
  for (int i = 0; i < 2; i++)
    ASSERT_OK(shoal_run_async(s, NULL, SHOAL_NO_FEEDS, SHOAL_FETCH(m->taken, &y[i]), NULL, &a[i]));
  shoal_tensor *x = number(5);
  while (!shoal_async_done(a[0], 20) || !shoal_async_done(a[1], 20))
    ASSERT_OK(shoal_session_step(s, SHOAL_FEED(m->x, x), SHOAL_NO_FETCHES, m->put));
  shoal_tensor_unref(x);
  for (int i = 0; i < 2; i++) {
    ASSERT_OK(shoal_async_wait(a[i]));
    assert_true(y[i] == 5);
    shoal_async_free(a[i]);
  }
}

static void fails(const struct model *m, shoal_session *s) {
  shoal_async *a;
  float y;
  ASSERT_OK(shoal_run_async(s, SHOAL_OPTIONS(shoal_run_options, .timeout_ms = 200), SHOAL_NO_FEEDS,
                            SHOAL_FETCH(m->never, &y), NULL, &a));
  ASSERT_FAILS(shoal_async_wait(a), SHOAL_DEADLINE_EXCEEDED, "");
  shoal_async_free(a);
  ASSERT_OK(shoal_run_async(s, NULL, SHOAL_NO_FEEDS, SHOAL_FETCH(m->twice, &y), NULL, &a));
  ASSERT_FAILS(shoal_async_wait(a), SHOAL_INVALID_ARGUMENT, "x");
  shoal_async_free(a);
  size_t odd = 3;
  ASSERT_FAILS(shoal_run_async(s, (const void *)&odd, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, NULL, &a),
               SHOAL_INVALID_ARGUMENT, "shoal_run_options");
  shoal_async_free(NULL);
}

static void devices(shoal_session *s, const char *task) {
  shoal_device *list;
  int n;
  char name[128];
  ASSERT_OK(shoal_session_devices(s, &list, &n));
  assert_int_equal(n, 2);
  for (int i = 0; i < n; i++) {
    snprintf(name, sizeof name, "%s/device:CPU:%d", task, i);
    assert_string_equal(list[i].name, name);
    assert_string_equal(list[i].type, "CPU");
    assert_true(list[i].incarnation != 0 && list[i].memory > 0);
  }
  assert_true(list[0].incarnation != list[1].incarnation);
  free(list);
  char *names;
  ASSERT_OK(shoal_session_list_devices(s, &names));
  snprintf(name, sizeof name, "%s/device:CPU:0\n%s/device:CPU:1\n", task, task);
  assert_string_equal(names, name);
  free(names);
}

/* What another thread is in when its session is closed. */
struct caller {
  const struct model *m;
  shoal_session *s;
  shoal_status said;
};

static void *waits_for_ever(void *arg) {
  struct caller *c = arg;
  float y;
  c->said = shoal_session_step(c->s, SHOAL_NO_FEEDS, SHOAL_FETCH(c->m->never, &y), NULL);
  return NULL;
}

/* Steps that run, one that may not have begun, and a thread that waits in a call: all end, and are told why. */
static void closed_under_them(const struct model *m, shoal_session *s) {
  enum { STEPS = 6 };
  shoal_async *a[STEPS];
  float y[STEPS];
  struct caller caller = {m, s, NULL};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, waits_for_ever, &caller), 0);
  for (int i = 0; i < STEPS; i++) {
    ASSERT_OK(shoal_run_async(s, NULL, SHOAL_NO_FEEDS, SHOAL_FETCH(m->never, &y[i]), NULL, &a[i]));
    if (i == STEPS - 2) assert_false(shoal_async_done(a[i], 200)); /* the last has hardly been started */
  }
  ASSERT_OK(shoal_session_close(s));
  for (int i = 0; i < STEPS; i++) {
    assert_true(shoal_async_done(a[i], PATIENCE_MS));
    ASSERT_FAILS(shoal_async_wait(a[i]), SHOAL_CANCELLED, "lose");
    shoal_async_cancel(a[i]);
    shoal_async_free(a[i]);
  }
  pthread_join(thread, NULL);
  ASSERT_FAILS(caller.said, SHOAL_CANCELLED, "lose");
}

/* A server that stops ends the steps in it, and says so: nobody has closed their session. */
static void stopped_under_it(const char *target) {
  struct model m = build();
  shoal_session *s;
  shoal_async *a;
  float y;
  ASSERT_OK(shoal_session_open(m.g, SHOAL_OPTIONS(shoal_session_options, .target = target), &s));
  ASSERT_OK(shoal_run_async(s, NULL, SHOAL_NO_FEEDS, SHOAL_FETCH(m.never, &y), NULL, &a));
  assert_false(shoal_async_done(a, 200));
  shoal_server_stop(server);
  assert_true(shoal_async_done(a, PATIENCE_MS));
  ASSERT_FAILS(shoal_async_wait(a), SHOAL_UNAVAILABLE, "the server /job:w/replica:0/task:0 is stopping");
  shoal_async_free(a);
  shoal_status_free(shoal_session_close(s));
  shoal_graph_free(m.g);
}

static void all(const char *target, const char *task) {
  struct model m = build();
  shoal_session *s;
  ASSERT_OK(shoal_session_open(m.g, SHOAL_OPTIONS(shoal_session_options, .target = target, .cpu_devices = 2), &s));
  goes_well(&m, s);
  is_cancelled(&m, s);
  side_by_side(&m, s);
  fails(&m, s);
  goes_well(&m, s);
  devices(s, task);
  closed_under_them(&m, s);
  shoal_graph_free(m.g);
}

static void in_this_process(void **state) { all("", "/job:localhost/replica:0/task:0"); }

static void at_servers(void **state) {
  ASSERT_OK(shoal_server_start(
      SHOAL_OPTIONS(shoal_server_options, .cluster = "{\"w\": [\"127.0.0.1:0\"]}", .job = "w", .cpu_devices = 2),
      &server));
  const char *target = shoal_server_target(server), *port = strrchr(target, ':');
  all(target, "/job:w/replica:0/task:0");
  char other[64]; /* not known as a server of this process by this name */
  snprintf(other, sizeof other, "grpc://localhost%s", port);
  assert_string_not_equal(target, other);
  all(other, "/job:w/replica:0/task:0");
  stopped_under_it(target);
}

RUN_TESTS(cmocka_unit_test(in_this_process), cmocka_unit_test(at_servers))
