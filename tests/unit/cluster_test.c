/* Servers, and the client in C, in one process: three tasks that talk to each other over loopback. */
#include "unit.h"
#include "ports.h"

#include <shoal/cluster.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "cluster/cluster_spec.h"
#include "cluster/collectives.h"
#include "cluster/step_rendezvous.h"
#include "cluster/worker.h"
#include "tensor/buffer.h"

struct trio {
  char spec[256];
  shoal_server *server[3]; /* ps 0, worker 0, worker 1 */
};

static void ok(shoal_status s) {
  if (s) fail_msg("%s: %s", shoal_code_name(shoal_status_code(s)), shoal_status_message(s));
}

static void expect_error(shoal_status s, shoal_code code, const char *text) {
  if (shoal_status_code(s) != code || !strstr(shoal_status_message(s), text))
    fail_msg("expected %s \"%s\", got %s \"%s\"", shoal_code_name(code), text, shoal_code_name(shoal_status_code(s)),
             shoal_status_message(s));
  shoal_status_free(s);
}

static int start_trio(void **state) {
  struct trio *t = calloc(1, sizeof *t);
  snprintf(t->spec, sizeof t->spec, "{\"ps\": [\"127.0.0.1:%d\"], \"worker\": [\"127.0.0.1:%d\", \"127.0.0.1:%d\"]}",
           free_port(), free_port(), free_port());
  for (int i = 0; i < 3; i++)
    ok(shoal_server_start(
        &(shoal_server_options){.cluster = t->spec, .job = i ? "worker" : "ps", .task = i ? i - 1 : 0}, &t->server[i]));
  *state = t;
  return 0;
}

static int stop_trio(void **state) {
  struct trio *t = *state;
  for (int i = 0; i < 3; i++) shoal_server_stop(t->server[i]);
  free(t);
  return 0;
}

static shoal_out scalar(shoal_graph *g, const char *name, float v) {
  shoal_tensor *t;
  ok(shoal_tensor_from(SHOAL_FLOAT32, 0, NULL, &v, sizeof v, &t));
  shoal_builder *b = shoal_build(g, "Const", name);
  shoal_build_type(b, "dtype", SHOAL_FLOAT32);
  shoal_build_tensor(b, "value", t);
  shoal_tensor_unref(t);
  return shoal_build_end_out(b);
}

static shoal_out binary(shoal_graph *g, const char *op, const char *name, shoal_out x, shoal_out y) {
  shoal_builder *b = shoal_build(g, op, name);
  shoal_build_input(b, x);
  shoal_build_input(b, y);
  return shoal_build_end_out(b);
}

static shoal_out placeholder(shoal_graph *g, const char *name) {
  shoal_builder *b = shoal_build(g, "Placeholder", name);
  shoal_build_type(b, "dtype", SHOAL_FLOAT32);
  return shoal_build_end_out(b);
}

/* x on the master, doubled by worker 1, plus three on ps. */
static shoal_graph *across(void) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = placeholder(g, "x");
  shoal_push_device(g, "/job:worker/task:1");
  shoal_out y = binary(g, "Mul", "y", x, scalar(g, "two", 2));
  shoal_pop_device(g);
  shoal_push_device(g, "/job:ps/task:0");
  binary(g, "Add", "z", y, scalar(g, "three", 3));
  shoal_pop_device(g);
  if (shoal_graph_error(g)) fail_msg("%s", shoal_status_message(shoal_graph_error(g)));
  return g;
}

static shoal_session *open_session(struct trio *t, shoal_graph *g, int server) {
  shoal_session *s;
  ok(shoal_session_open(
      g, &(shoal_session_options){.target = shoal_server_target(t->server[server]), .operation_timeout_ms = 120000},
      &s));
  return s;
}

static float run1(shoal_session *s, float x, const char *fetch) {
  shoal_tensor *feed, *out = NULL;
  ok(shoal_tensor_from(SHOAL_FLOAT32, 0, NULL, &x, sizeof x, &feed));
  const char *names[] = {"x:0"}, *fetches[] = {fetch};
  ok(shoal_session_run(s, NULL, names, &feed, 1, fetches, &out, 1, NULL, 0, NULL));
  float v = *(const float *)shoal_tensor_const_data(out);
  shoal_tensor_unref(feed);
  shoal_tensor_unref(out);
  return v;
}

static void runs_across_tasks(void **state) {
  struct trio *t = *state;
  for (int master = 0; master < 3; master++) {
    shoal_graph *g = across();
    shoal_session *s = open_session(t, g, master);
    for (int i = 0; i < 50; i++) assert_true(run1(s, (float)i, "z:0") == (float)i * 2 + 3);
    char *names;
    ok(shoal_session_list_devices(s, &names));
    assert_non_null(strstr(names, "/job:worker/replica:0/task:1/device:CPU:0"));
    free(names);
    ok(shoal_session_close(s));
    shoal_graph_free(g);
  }
}

static void extends(void **state) {
  struct trio *t = *state;
  shoal_graph *g = across();
  shoal_session *s = open_session(t, g, 1);
  assert_true(run1(s, 1, "z:0") == 5);
  binary(g, "Mul", "w", shoal_graph_out(g, "z:0"), shoal_graph_out(g, "y:0"));
  ok(shoal_session_extend(s, g));
  assert_true(run1(s, 1, "w:0") == 10);
  ok(shoal_session_close(s));
  shoal_graph_free(g);
}

static void calls(void **state) {
  struct trio *t = *state;
  shoal_graph *g = across();
  shoal_session *s = open_session(t, g, 1);
  const char *feeds[] = {"x:0"}, *fetches[] = {"z:0", "y:0"};
  int64_t callable;
  ok(shoal_session_make_callable(s, feeds, 1, fetches, 2, NULL, 0, &callable));
  float v = 4;
  shoal_tensor *x, *out[2];
  ok(shoal_tensor_from(SHOAL_FLOAT32, 0, NULL, &v, sizeof v, &x));
  ok(shoal_session_run_callable(s, callable, NULL, &x, 1, out, 2, NULL));
  assert_true(*(const float *)shoal_tensor_const_data(out[0]) == 11);
  assert_true(*(const float *)shoal_tensor_const_data(out[1]) == 8);
  shoal_tensor_unref(out[0]);
  shoal_tensor_unref(out[1]);
  expect_error(shoal_session_run_callable(s, callable, NULL, NULL, 0, out, 2, NULL), SHOAL_INVALID_ARGUMENT,
               "Expected 1");
  ok(shoal_session_release_callable(s, callable));
  shoal_tensor_unref(x);
  ok(shoal_session_close(s));
  shoal_graph_free(g);
}

static void partial(void **state) {
  struct trio *t = *state;
  shoal_graph *g = across();
  shoal_session *s = open_session(t, g, 1);
  const char *feeds[] = {"x:0"}, *fetches[] = {"y:0", "z:0"};
  char *handle;
  ok(shoal_session_partial_setup(s, feeds, 1, fetches, 2, NULL, 0, &handle));
  float v = 4;
  shoal_tensor *x, *out;
  ok(shoal_tensor_from(SHOAL_FLOAT32, 0, NULL, &v, sizeof v, &x));
  expect_error(shoal_session_partial_run(s, handle, NULL, NULL, 0, fetches, &out, 1), SHOAL_INVALID_ARGUMENT,
               "can't be computed from the feeds that have been fed so far");
  ok(shoal_session_partial_run(s, handle, feeds, &x, 1, fetches, &out, 1));
  assert_true(*(const float *)shoal_tensor_const_data(out) == 8);
  shoal_tensor_unref(out);
  ok(shoal_session_partial_run(s, handle, NULL, NULL, 0, fetches + 1, &out, 1));
  assert_true(*(const float *)shoal_tensor_const_data(out) == 11);
  shoal_tensor_unref(out);
  expect_error(shoal_session_partial_run(s, handle, NULL, NULL, 0, fetches, &out, 1), SHOAL_INVALID_ARGUMENT,
               "Must run PartialRunSetup");
  free(handle);
  shoal_tensor_unref(x);
  ok(shoal_session_close(s));
  shoal_graph_free(g);
}

static void errors(void **state) {
  struct trio *t = *state;
  shoal_graph *g = across();
  shoal_session *s = open_session(t, g, 1);
  shoal_tensor *out;
  const char *fetch[] = {"z:0"}, *unknown[] = {"nothing:0"};
  expect_error(shoal_session_run(s, NULL, NULL, NULL, 0, fetch, &out, 1, NULL, 0, NULL), SHOAL_INVALID_ARGUMENT,
               "You must feed a value for placeholder tensor 'x'");
  expect_error(shoal_session_run(s, NULL, NULL, NULL, 0, unknown, &out, 1, NULL, 0, NULL), SHOAL_NOT_FOUND,
               "nothing:0");
  expect_error(shoal_session_run(s, NULL, NULL, NULL, 0, NULL, NULL, 0, NULL, 0, NULL), SHOAL_INVALID_ARGUMENT,
               "at least one target");
  ok(shoal_session_close(s));
  shoal_graph_free(g);
  shoal_session *none;
  shoal_graph *h = across();
  expect_error(shoal_session_open(
                   h, &(shoal_session_options){.target = "grpc://127.0.0.1:1", .operation_timeout_ms = 300}, &none),
               SHOAL_DEADLINE_EXCEEDED, "127.0.0.1:1");
  shoal_graph_free(h);
}

static void tells_and_stops(void **state) {
  struct trio *t = *state;
  char *text;
  ok(shoal_server_remote_status(shoal_server_target(t->server[2]), 120000, &text));
  assert_non_null(strstr(text, "/job:worker/replica:0/task:1"));
  free(text);
  ok(shoal_cluster_stop(t->spec, 120000));
  for (int i = 0; i < 3; i++) shoal_server_join(t->server[i]); /* returns */
}

static void port_in_use(void **state) {
  struct trio *t = *state;
  shoal_server *again;
  expect_error(shoal_server_start(&(shoal_server_options){.cluster = t->spec, .job = "ps"}, &again), SHOAL_UNKNOWN,
               "Could not start gRPC server");
}

/* Two servers of one process, each with its own root: a file of one is refused by the other. */
static void roots_are_the_servers(void **state) {
  char dirs[2][40] = {"/tmp/shoal_cluster_test_a.XXXXXX", "/tmp/shoal_cluster_test_b.XXXXXX"}, spec[64], path[128];
  for (int i = 0; i < 2; i++) {
    assert_non_null(mkdtemp(dirs[i]));
    snprintf(path, sizeof path, "%s/file", dirs[i]);
    ok(file_write(path, dirs[i], strlen(dirs[i])));
  }
  shoal_server *servers[2];
  for (int i = 0; i < 2; i++) {
    snprintf(spec, sizeof spec, "{\"w\": [\"127.0.0.1:%d\"]}", free_port());
    ok(shoal_server_start(&(shoal_server_options){.cluster = spec, .job = "w", .file_root = dirs[i]}, &servers[i]));
  }
  for (int i = 0; i < 4; i++) {
    int server = i / 2, file = i % 2;
    snprintf(path, sizeof path, "%s/file", dirs[file]);
    shoal_tensor *name, *out = NULL;
    const char *bytes;
    size_t size;
    ok(shoal_tensor_from_string(path, strlen(path), &name));
    shoal_graph *g = shoal_graph_new();
    shoal_builder *b = shoal_build(g, "Const", "name");
    shoal_build_type(b, "dtype", SHOAL_STRING);
    shoal_build_tensor(b, "value", name);
    shoal_out in = shoal_build_end_out(b);
    b = shoal_build(g, "ReadFile", "read");
    shoal_build_input(b, in);
    shoal_build_end_out(b);
    shoal_session *s;
    ok(shoal_session_open(g, &(shoal_session_options){.target = shoal_server_target(servers[server])}, &s));
    const char *fetch[] = {"read:0"};
    shoal_status st = shoal_session_run(s, NULL, NULL, NULL, 0, fetch, &out, 1, NULL, 0, NULL);
    if (server == file) {
      ok(st);
      bytes = shoal_tensor_string(out, 0, &size);
      assert_memory_equal(bytes, dirs[file], size);
    } else {
      expect_error(st, SHOAL_PERMISSION_DENIED, "--file_root");
    }
    shoal_tensor_unref(name);
    shoal_tensor_unref(out);
    ok(shoal_session_close(s));
    shoal_graph_free(g);
  }
  for (int i = 0; i < 2; i++) {
    shoal_server_stop(servers[i]);
    snprintf(path, sizeof path, "%s/file", dirs[i]);
    ok(file_remove(path));
    ok(directory_remove(dirs[i]));
  }
}

static bool no_more(void *arg, uint64_t connection) { return connection != *(const uint64_t *)arg; }

/* A value that a step sent and nobody took is kept for as long as its master is there, one of a step that did not begin
 * is not. */
static void values_nobody_takes(void **state) {
  static const char key[] =
      "/job:a/replica:0/task:0/device:CPU:0;0000000000000001;/job:b/replica:0/task:0/"
      "device:CPU:0;edge;0:0";
  struct steps *all = steps_new(100, 100);
  struct step_names names = {.task = "/job:a/replica:0/task:0", .session = 5};
  uint64_t gone = 8;
  struct rendezvous *r[3];
  size_t before = buffer_bytes_in_use(), one = 0;
  for (int i = 0; i < 3; i++) {
    struct tensor t;
    r[i] = steps_get(all, 100 + i);
    ok(tensor_new_dims(&t, SHOAL_FLOAT32, 1, (const int64_t[]){1 << 20}));
    if (!i) one = buffer_bytes_in_use() - before;
    ok(rendezvous_send(r[i], key, rendezvous_hash(key), &t, false));
    if (i == 2) continue;
    ok(step_rendezvous_bind(r[i], &names, (uint64_t)(7 + i), NULL));
    step_rendezvous_unbind(r[i]);
  }
  assert_int_equal(buffer_bytes_in_use() - before, 3 * one);
  steps_not_begun(all, r[0]); /* it has */
  assert_int_equal(buffer_bytes_in_use() - before, 3 * one);
  steps_not_begun(all, r[2]);
  assert_int_equal(buffer_bytes_in_use() - before, 2 * one);
  steps_sweep(all, 3600000, no_more, &gone); /* somebody was at work on it within the hour */
  assert_int_equal(buffer_bytes_in_use() - before, 2 * one);
  steps_sweep(all, -1, no_more, &gone);
  assert_int_equal(buffer_bytes_in_use() - before, 1 * one);
  for (int i = 0; i < 3; i++) rendezvous_unref(r[i]);
  steps_free(all);
  assert_int_equal(buffer_bytes_in_use(), before);
}

static void bad_specs(void **state) {
  static const struct {
    const char *json, *job;
    int task;
    const char *text;
  } cases[] = {
      {"{\"a\": [\"localhost\"]}", "a", 0, "is no address"},
      {"{\"a\": [\"localhost:99999\"]}", "a", 0, "no valid port"},
      {"{\"a\": [\"grpc://localhost:1\"]}", "a", 0, "contains a '/'"},
      {"{\"a\": [\"h:1\", \"h:1\"]}", "a", 0, "given to two tasks"},
      {"{\"a b\": [\"h:1\"]}", "a", 0, "is no job name"},
      {"{\"a\": [\"127.0.0.1:1\"]}", "b", 0, "which has \"a\""},
      {"{\"a\": [\"127.0.0.1:1\"]}", "a", 1, "task_index: 1 is out of range"},
      {"{\"a\": {\"x\": \"h:1\"}}", "a", 0, "is no task index"},
      {"{\"a\": 3}", "a", 0, "expected a list of addresses"},
      {"{\"a\": [", "a", 0, "ends too early"},
      {"{\"a\": }", "a", 0, "not valid JSON at character 6"},
      {"{\"a\": [\"h:1h:2\"]}", "a", 0, "is a comma missing"},
      {"{}", "a", 0, "the cluster has no tasks"},
      {"{\"a\": [\"203.0.113.1:4000\"]}", "a", 0, "is not on loopback"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    shoal_server *s;
    expect_error(shoal_server_start(
                     &(shoal_server_options){.cluster = cases[i].json, .job = cases[i].job, .task = cases[i].task}, &s),
                 SHOAL_INVALID_ARGUMENT, cases[i].text);
  }
}

static void reads_tf_config(void **state) {
  struct cluster_spec c = {0};
  char *job = NULL;
  int task = 0;
  ok(cluster_spec_from_tf_config(&c, "TF_CONFIG",
                                 "{\"cluster\": {\"worker\": {\"3\": \"h:1\"}, \"ps\": [\"p:2\", \"q:3\"]},"
                                 " \"task\": {\"type\": \"worker\", \"index\": \"3\"}, \"environment\": \"cloud\"}",
                                 &job, &task));
  assert_string_equal(job, "worker");
  assert_int_equal(task, 3);
  assert_string_equal(cluster_spec_find(&c, "worker", 3), "h:1");
  assert_string_equal(cluster_spec_find(&c, "ps", 1), "q:3");
  assert_null(cluster_spec_find(&c, "worker", 0));
  struct text bytes = {0};
  struct cluster_spec copy = {0};
  cluster_spec_to_proto(&c, &bytes);
  ok(cluster_spec_from_proto(&copy, bytes.at, bytes.n, 1000));
  assert_string_equal(cluster_spec_find(&copy, "ps", 0), "p:2");
  cluster_spec_release(&copy);
  cluster_spec_release(&c);
  text_release(&bytes);
  free(job);
}

/* Jobs, tasks of all jobs together, and the length of a description have a bound; what passes it is told so. */
static void large_clusters(void **state) {
  enum { JOBS = 1000, TASKS = 50001 };
  struct cluster_spec c = {0};
  char name[16];
  for (int i = 0; i < JOBS; i++) {
    snprintf(name, sizeof name, "j%04d", JOBS - i);
    ok(cluster_spec_add(&c, "c", name, 0, "a:1"));
  }
  expect_error(cluster_spec_add(&c, "c", "more", 0, "a:1"), SHOAL_INVALID_ARGUMENT, "more than 1000 jobs");
  ok(cluster_spec_add(&c, "c", name, 1, "a:1")); /* a job that is there */
  cluster_spec_release(&c);
  c = (struct cluster_spec){0};
  for (int i = 0; i < 2 * TASKS; i++) ok(cluster_spec_add(&c, "c", i % 2 ? "a" : "b", i / 2, "a:0"));
  expect_error(cluster_spec_check(&c), SHOAL_INVALID_ARGUMENT, "has 100002 tasks: 100000 are the most");
  cluster_spec_release(&c);
  c = (struct cluster_spec){0};
  char path[] = "/tmp/shoal-cluster-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0 && ftruncate(fd, (16 << 20) + 1) == 0);
  close(fd);
  expect_error(cluster_spec_from_json(&c, "--cluster_spec", path), SHOAL_INVALID_ARGUMENT, "more than 16777216 bytes");
  unlink(path);
  cluster_spec_release(&c);
}

/* Whoever asks a leader for sequences of steps by ever new keys pushes out the oldest that were only asked for. */
static void sequences_have_a_bound(void **state) {
  enum { MOST = 1024 };
  struct collectives c = {0};
  collectives_init(&c, NULL, 0, false);
  int64_t first = collective_sequence(&c, 1, 0);
  assert_true(collective_sequence(&c, 1, 0) == first); /* the same until its step is over */
  for (int i = 2; i < 2 * MOST; i++) collective_sequence(&c, i, 0);
  assert_int_equal(c.sequences.n, MOST);
  assert_true(strmap_has(&c.sequences, "2047") && !strmap_has(&c.sequences, "1"));
  collectives_release(&c);
}

/* A step that failed is of the sessions that were there: who comes to it is told, once. Whose failure it was is asked
 * whether it stands, or the next number is had. */
static void failures_are_of_their_time(void **state) {
  struct collectives c = {0};
  bool of_session;
  collectives_init(&c, NULL, 0, false);
  int64_t old = clock_ns(), first = collective_sequence(&c, 1, old), missed = -1;
  assert_true(
      failed_steps_add(&c.failed, 1, first, FAILED_MISSED, "/job:a/task:1", STATUS(SHOAL_ABORTED, "it has failed")));
  int64_t later = clock_ns() + 1;
  assert_true(collective_sequence(&c, 1, old) == first);
  assert_false(failed_steps_are_past(&c.failed, first, old));
  assert_true(failed_steps_are_past(&c.failed, first, later));
  assert_false(failed_steps_are_past(&c.failed, first + 1, later));
  assert_true(collective_sequence(&c, 1, later) == ((first + 1) & ((INT64_C(1) << 57) - 1)));
  char *whom = failed_steps_missed(&c.failed, 1, old, &missed, &of_session);
  assert_string_equal(whom, "/job:a/task:1");
  assert_true(missed == first && of_session);
  free(whom);
  missed = -1;
  assert_null(failed_steps_missed(&c.failed, 1, old, &missed, &of_session));
  assert_true(missed == -1);
  assert_true(failed_steps_add(&c.failed, 2, first + 7, FAILED_MISSED, NULL, STATUS(SHOAL_ABORTED, "another has")));
  assert_null(failed_steps_missed(&c.failed, 2, clock_ns() + 1, &missed, &of_session));
  assert_true(missed == -1);
  assert_true(
      failed_steps_add(&c.failed, 3, first + 9, FAILED_MISSED, "/job:a/task:2", STATUS(SHOAL_ABORTED, "a third has")));
  whom = failed_steps_missed(&c.failed, 3, clock_ns() + 1, &missed, &of_session);
  assert_string_equal(whom, "/job:a/task:2");
  assert_true(missed == first + 9 && !of_session);
  free(whom);
  collectives_release(&c);
}

/* A failure is past for who has been met since: in a step that was begun after it, and went well in both. */
static void failures_are_past_for_who_was_met_since(void **state) {
  struct worker w = {0};
  struct collectives *c = &w.collectives;
  collectives_init(c, NULL, 0, false);
  int64_t before = clock_ns();
  assert_true(failed_steps_add(&c->failed, 1, 70, FAILED_MET, NULL, STATUS(SHOAL_ABORTED, "it has failed")));
  int64_t after = clock_ns() + 1;
  collective_step_over(&w, 2, 30, 1, before, NULL); /* it ends later, and was begun before */
  assert_true(c->met.key == 2 && c->met.id == 30);
  assert_true(collective_met(c, (struct met_step){2, 30}) == before);
  assert_false(failed_steps_are_past(&c->failed, 70, collective_met(c, c->met)));
  collective_step_over(&w, 2, 31, 1, after, NULL);
  assert_true(failed_steps_are_past(&c->failed, 70, collective_met(c, c->met)));
  const struct met_step others[] = {{2, 30}, {2, 32}, {3, 31}, {2, 0}, {0, 0}};
  for (size_t i = 0; i < COUNT_OF(others); i++) assert_true(collective_met(c, others[i]) == 0);
  char *why = failed_steps_why(&c->failed, 70, before);
  assert_string_equal(why, "it has failed");
  assert_null(failed_steps_why(&c->failed, 70, collective_met(c, c->met)));
  free(why);
  collectives_release(c);
}

/* It is met by its first step: no other session is ended, before or after. What is under way in it ends, and is past
 * for sessions that were there before. */
static void sessions_are_given_up_by_their_first_step(void **state) {
  struct cluster_spec none = {0};
  struct worker w = {.spec = &none, .task = (char *)"/job:a/task:1"};
  struct collectives *c = &w.collectives;
  collectives_init(c, NULL, 0, false);
  int64_t before = clock_ns();
  for (int64_t session = 1; session <= 3; session++)
    assert_null(met_session_step(&c->sessions, session, 1, 100 * session));
  assert_null(met_session_step(&c->sessions, 2, 5, 77));
  met_session_step_over(&c->sessions, 2, 200);
  met_session_given_up(&w, 1, 200, "/job:a/task:0", "it saves");
  met_session_given_up(&w, 5, 77, "/job:a/task:0", "not the first");
  met_session_given_up(&w, 1, 400, "/job:a/task:0", "not here yet");
  assert_true(failed_steps_has(&c->failed, 77) && failed_steps_are_past(&c->failed, 77, before));
  assert_null(failed_steps_why(&c->failed, 77, before));
  for (int64_t id = 100; id <= 400; id += 100) assert_false(failed_steps_has(&c->failed, id));
  shoal_status over = met_session_step(&c->sessions, 2, 5, 78);
  assert_int_equal(shoal_status_code(over), SHOAL_ABORTED);
  assert_string_equal(shoal_status_message(over),
                      "/job:a/task:0 has given up the session in which it met this task, and does not come: it saves");
  shoal_status_free(over);
  met_session_give_up(&w, 2, "it was told, and tells nobody");
  met_session_over(&c->sessions, 2);
  assert_null(met_session_step(&c->sessions, 2, 5, 79)); /* another, that begins with that one */
  for (int64_t session = 1; session <= 4; session++) assert_null(met_session_step(&c->sessions, session, 5, 80));
  collectives_release(c);
}

/* Until its session ends, or has come to another step of those graphs. */
static void failures_stand_for_a_while(void **state) {
  struct collectives c = {0};
  collectives_init(&c, NULL, 0, false);
  for (int64_t id = 1; id <= 3; id++) {
    assert_true(failed_steps_add(&c.failed, id, id, FAILED_MET, NULL, STATUS(SHOAL_ABORTED, "it has failed")));
    assert_false(failed_steps_stands(&c.failed, id));
    failed_steps_stand(&c.failed, id, 10 + id);
  }
  failed_steps_end_session(&c.failed, 11);
  failed_steps_go_on(&c.failed, 2);
  assert_false(failed_steps_stands(&c.failed, 1));
  assert_false(failed_steps_stands(&c.failed, 2));
  assert_true(failed_steps_stands(&c.failed, 3));
  assert_false(failed_steps_stands(&c.failed, 4));
  collectives_release(&c);
}

static int64_t own_time(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct rpc_origin connection(uint64_t number) { return (struct rpc_origin){.connection = number}; }

/* Who asks for a step that finds no room costs next to nothing, however many there are: to refuse a few takes less than
 * to note all of the others took. */
static void steps_beyond_the_limit(void **state) {
  enum { MOST = 100000, MORE = 2000 };
  struct steps *all = steps_new(MOST, MOST);
  struct rendezvous **r = calloc(MOST, sizeof *r), *none;
  int64_t began = own_time();
  for (int i = 0; i < MOST; i++) ok(steps_get_for_request(all, 1 + i, connection(7), &r[i]));
  int64_t noting = own_time() - began;
  began = own_time();
  for (int i = 0; i < MORE; i++)
    expect_error(steps_get_for_request(all, MOST + 1 + i, connection(9), &none), SHOAL_RESOURCE_EXHAUSTED,
                 "--max_steps");
  int64_t refusing = own_time() - began;
  if (refusing > 3 * noting) fail_msg("%lld ns to note, %lld to refuse", (long long)noting, (long long)refusing);
  for (int i = 0; i < MOST; i++) {
    steps_request_over(all, r[i]);
    rendezvous_unref(r[i]);
  }
  ok(steps_get_for_request(all, MOST + 1, connection(7), &none)); /* there is room again */
  steps_request_over(all, none);
  rendezvous_unref(none);
  free(r);
  steps_free(all);
}

/* Values of steps that nobody runs are asked for by one connection up to its share, and the rest is there for others;
 * those that are run here then, or asked for no more, count no longer. */
static void steps_of_one_connection(void **state) {
  enum { SHARE = 10 };
  struct steps *all = steps_new(100, SHARE);
  struct step_names names = {.task = "/job:a/replica:0/task:0", .session = 5};
  struct rendezvous *r[SHARE], *other, *again, *run, *next, *last, *none;
  for (int i = 0; i < SHARE; i++) ok(steps_get_for_request(all, 1 + i, connection(7), &r[i]));
  expect_error(steps_get_for_request(all, 50, connection(7), &none), SHOAL_RESOURCE_EXHAUSTED,
               "--max_connection_steps");
  ok(steps_get_for_request(all, 1, connection(7), &again)); /* one that is known */
  ok(steps_get_for_request(all, 50, connection(9), &other));
  run = steps_get(all, 2);
  ok(step_rendezvous_bind(run, &names, 7, NULL));
  ok(steps_get_for_request(all, 51, connection(7), &next));
  expect_error(steps_get_for_request(all, 52, connection(7), &none), SHOAL_RESOURCE_EXHAUSTED,
               "--max_connection_steps");
  steps_request_over(all, next);
  rendezvous_unref(next);
  ok(steps_get_for_request(all, 53, connection(7), &next));
  step_rendezvous_unbind(run);
  rendezvous_unref(run);
  steps_cleanup(all, 3);
  ok(steps_get_for_request(all, 54, connection(7), &last));
  rendezvous_unref(last); /* the table goes with what it has */
  rendezvous_unref(next);
  rendezvous_unref(again);
  rendezvous_unref(other);
  for (int i = 0; i < SHARE; i++) rendezvous_unref(r[i]);
  steps_free(all);
}

/* Nor does an address that has many connections take all of it: a quarter is left, and what it had is given back. */
static void steps_of_one_address(void **state) {
  enum { MOST = 100, SHARE = 75, EACH = 25 };
  struct steps *all = steps_new(MOST, EACH);
  struct rendezvous *r[SHARE], *more, *other, *none;
  for (int i = 0; i < SHARE; i++)
    ok(steps_get_for_request(all, 1 + i, (struct rpc_origin){.connection = 1 + i / EACH, .address = 5}, &r[i]));
  struct rpc_origin fourth = {.connection = 4, .address = 5}, elsewhere = {.connection = 5, .address = 6};
  expect_error(steps_get_for_request(all, 200, fourth, &none), SHOAL_RESOURCE_EXHAUSTED, "one address");
  ok(steps_get_for_request(all, 201, elsewhere, &other));
  steps_request_over(all, r[0]);
  ok(steps_get_for_request(all, 200, fourth, &more));
  rendezvous_unref(more);
  rendezvous_unref(other);
  for (int i = 0; i < SHARE; i++) rendezvous_unref(r[i]);
  steps_free(all);
}

static void ignore_value(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  shoal_status_free(s);
  tensor_release(value);
}

/* However many steps are waited for, what is told of them ends. */
static void told_of_many_steps(void **state) {
  enum { MANY = 5000 };
  struct steps *all = steps_new(MANY, MANY);
  for (int i = 0; i < MANY; i++) {
    struct rendezvous *r;
    ok(steps_get_for_request(all, 1 + i, connection(7), &r));
    step_rendezvous_recv_local(r, "key", NULL, ignore_value, NULL);
    rendezvous_unref(r);
  }
  struct text t = {0};
  steps_describe(all, &t);
  int lines = 0;
  for (size_t i = 0; i < t.n; i++) lines += t.at[i] == '\n';
  assert_in_range(lines, 100, 1000);
  assert_non_null(strstr(text_cstr(&t), "... and of 4800 more steps"));
  text_release(&t);
  steps_free(all);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(runs_across_tasks, start_trio, stop_trio),
      cmocka_unit_test_setup_teardown(extends, start_trio, stop_trio),
      cmocka_unit_test_setup_teardown(calls, start_trio, stop_trio),
      cmocka_unit_test_setup_teardown(partial, start_trio, stop_trio),
      cmocka_unit_test_setup_teardown(errors, start_trio, stop_trio),
      cmocka_unit_test_setup_teardown(tells_and_stops, start_trio, stop_trio),
      cmocka_unit_test_setup_teardown(port_in_use, start_trio, stop_trio),
      cmocka_unit_test(values_nobody_takes),
      cmocka_unit_test(steps_beyond_the_limit),
      cmocka_unit_test(large_clusters),
      cmocka_unit_test(sequences_have_a_bound),
      cmocka_unit_test(failures_are_of_their_time),
      cmocka_unit_test(failures_are_past_for_who_was_met_since),
      cmocka_unit_test(sessions_are_given_up_by_their_first_step),
      cmocka_unit_test(failures_stand_for_a_while),
      cmocka_unit_test(steps_of_one_connection),
      cmocka_unit_test(steps_of_one_address),
      cmocka_unit_test(told_of_many_steps),
      cmocka_unit_test(bad_specs),
      cmocka_unit_test(roots_are_the_servers),
      cmocka_unit_test(reads_tf_config),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
