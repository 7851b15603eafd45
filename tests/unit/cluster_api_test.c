/* Descriptions of clusters for programs: from host lists, from TF_CONFIG; and steps of a client in its server's own
 * process, which go by a call. */
#include "unit.h"
#include "ports.h"

#include <shoal/shoal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void ok(shoal_status s) {
  if (s) fail_msg("%s: %s", shoal_code_name(shoal_status_code(s)), shoal_status_message(s));
}

static void expect_error(shoal_status s, const char *text) {
  if (!s || !strstr(shoal_status_message(s), text))
    fail_msg("expected \"%s\", got \"%s\"", text, shoal_status_message(s));
  shoal_status_free(s);
}

static void from_hosts(void **state) {
  shoal_cluster *c;
  ok(shoal_cluster_from_hosts("a:1,b:2", "c:3", "ps", 1, &c));
  assert_int_equal(shoal_cluster_tasks(c, "ps"), 2);
  assert_int_equal(shoal_cluster_tasks(c, "worker"), 1);
  assert_int_equal(shoal_cluster_tasks(c, "chief"), 0);
  assert_string_equal(shoal_cluster_address(c, "ps", 1), "b:2");
  assert_null(shoal_cluster_address(c, "ps", 2));
  assert_string_equal(shoal_cluster_job(c), "ps");
  assert_int_equal(shoal_cluster_task(c), 1);
  assert_false(shoal_cluster_is_chief(c));
  assert_string_equal(shoal_cluster_json(c),
                      "{\"ps\": {\"0\": \"a:1\", \"1\": \"b:2\"}, \"worker\": {\"0\": \"c:3\"}}");
  shoal_cluster_free(c);
  ok(shoal_cluster_from_hosts(NULL, "c:3", "worker", 0, &c));
  assert_true(shoal_cluster_is_chief(c));
  shoal_cluster_free(c);
  ok(shoal_cluster_from_hosts_with_chief("d:4", "a:1", "c:3", "chief", 0, &c));
  assert_string_equal(shoal_cluster_address(c, "chief", 0), "d:4");
  assert_true(shoal_cluster_is_chief(c));
  shoal_cluster_free(c);
  expect_error(shoal_cluster_from_hosts_with_chief("d", "a:1", "c:3", "worker", 0, &c), "--chief_hosts");
  expect_error(shoal_cluster_from_hosts("a:1", "c:3", NULL, 0, &c), "--job_name");
  expect_error(shoal_cluster_from_hosts("a:1", "c:3", "worker", 1, &c), "worker");
  expect_error(shoal_cluster_from_hosts("a", "c:3", "worker", 0, &c), "--ps_hosts");
  expect_error(shoal_cluster_from_hosts("c:3", "c:3", "worker", 0, &c), "c:3");
}

static void from_config(void **state) {
  shoal_cluster *c;
  ok(
      shoal_cluster_from_config("{\"cluster\": {\"chief\": [\"a:1\"], \"worker\": [\"b:2\"]}, "
                                "\"task\": {\"type\": \"worker\", \"index\": 0}}",
                                &c));
  assert_false(shoal_cluster_is_chief(c)); /* there is one by that name */
  shoal_cluster_free(c);
  ok(shoal_cluster_from_config(
      "{\"cluster\": {\"worker\": [\"b:2\"]}, \"task\": {\"type\": \"evaluator\", \"index\": 0}}", &c));
  assert_string_equal(shoal_cluster_job(c), "evaluator"); /* outside of the cluster */
  shoal_cluster_free(c);
  expect_error(shoal_cluster_from_config("{\"cluster\": {\"worker\": [\"b:2\"]}}", &c), "\"task\" is missing");
  expect_error(shoal_cluster_from_config("{", &c), "TF_CONFIG");
  unsetenv("TF_CONFIG");
  expect_error(shoal_cluster_from_config(NULL, &c), "TF_CONFIG is not set: it says what the cluster is");
}

/* What makes no sense ends a program with 2, as flags do; what goes wrong later with 1. */
static void exit_codes(void **state) {
  shoal_cluster *c;
  shoal_server *server;
  unsetenv("TF_CONFIG");
  assert_int_equal(shoal_train_exit(shoal_cluster_from_config(NULL, &c)), 2);
  assert_int_equal(shoal_train_exit(shoal_cluster_from_config("{", &c)), 2);
  assert_int_equal(shoal_train_exit(shoal_cluster_from_config("/no/such/file", &c)), 2);
  assert_int_equal(shoal_train_exit(shoal_cluster_from_hosts("a:1", "c:3", "worker", 1, &c)), 2);
  shoal_server_options o = {.cluster = "{\"worker\": [\"192.0.2.1:1\"]}", .job = "worker"};
  assert_int_equal(shoal_train_exit(shoal_server_start(&o, &server)), 2);
  o.insecure_bind_all = true;
  o.tls_ca = "ca.pem";
  assert_int_equal(shoal_train_exit(shoal_server_start(&o, &server)), 2);
  o = (shoal_server_options){.cluster = "{\"ps\": [\"127.0.0.1:1\"], \"worker\": [\"127.0.0.1:2\"]}", .job = "ps"};
  o.coordination_service = 1;
  o.size = sizeof o;
  assert_int_equal(shoal_train_exit(shoal_server_start(&o, &server)), 2); /* it is for workers */
  shoal_strategy *strategy;
  ok(shoal_cluster_from_hosts("a:1", "c:3", "worker", 0, &c));
  shoal_status refused = shoal_strategy_new_multi_worker(c, (const shoal_server *)c, NULL, &strategy); /* it has a ps */
  assert_int_equal(shoal_train_exit(refused), 2);
  shoal_cluster_free(c);
  char taken[64];
  snprintf(taken, sizeof taken, "{\"worker\": [\"127.0.0.1:%d\"]}", free_port());
  o = (shoal_server_options){.cluster = taken, .job = "worker"};
  ok(shoal_server_start(&o, &server));
  shoal_server *second;
  assert_int_equal(shoal_train_exit(shoal_server_start(&o, &second)), 1); /* the port is taken */
  shoal_server_stop(server);
}

/* A task that is not there holds up sessions that may use it, and no others; state is shared unless asked otherwise. */
static void session_options(void **state) {
  char hosts[64];
  snprintf(hosts, sizeof hosts, "127.0.0.1:%d,127.0.0.1:%d", free_port(), free_port());
  shoal_cluster *c;
  shoal_server *server;
  ok(shoal_cluster_from_hosts(NULL, hosts, "worker", 0, &c));
  ok(shoal_server_start(&(shoal_server_options){.cluster = shoal_cluster_json(c), .job = "worker"}, &server));
  shoal_graph *g = shoal_graph_new();
  shoal_push_device(g, "/job:worker/task:0");
  shoal_var v = shoal_variable(g, "v", shoal_constant_float(g, 3));
  shoal_op *init = shoal_initialize(g);
  shoal_pop_device(g);
  ok(shoal_graph_error(g));
  shoal_session_options o = {.target = shoal_server_target(server), .create_timeout_ms = 8000};
  shoal_session *s, *alone;
  expect_error(shoal_session_open(g, &o, &s), "/job:worker/replica:0/task:1");
  o.create_timeout_ms = 120000;
  o.device_filters = (const char *[]){"/job:worker/task:0", NULL};
  ok(shoal_session_open(g, &o, &s));
  ok(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  o.isolate_session_state = true;
  o.rewrites_off = "all";
  ok(shoal_session_open(g, &o, &alone));
  float value = 0;
  ok(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(v.value, &value), NULL));
  assert_float_equal(value, 3, 0);
  expect_error(shoal_session_step(alone, SHOAL_NO_FEEDS, SHOAL_FETCH(v.value, &value), NULL), "v");
  ok(shoal_session_close(alone));
  o.rewrites_off = "fold";
  expect_error(shoal_session_open(g, &o, &alone), "a cluster does all rewrites, or none");
  ok(shoal_session_close(s));
  shoal_graph_free(g);
  shoal_server_stop(server);
  shoal_cluster_free(c);
}

/* Feeds, fetches by short names, the same fetch twice, errors, time-outs, a server that stops under its session. */
static void near_steps(void **state) {
  char hosts[64];
  snprintf(hosts, sizeof hosts, "127.0.0.1:%d", free_port());
  shoal_cluster *c;
  shoal_server *server;
  ok(shoal_cluster_from_hosts(NULL, hosts, "worker", 0, &c));
  ok(shoal_server_start(&(shoal_server_options){.cluster = shoal_cluster_json(c), .job = "worker"}, &server));
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1), "x");
  shoal_out y = shoal_add_v2(g, x, x);
  shoal_out wrong = shoal_check_numerics(g, x, "found it");
  shoal_op *queue = shoal_build_end(shoal_build(g, "NoOp", "nothing"));
  ok(shoal_graph_error(g));
  shoal_session *s;
  ok(shoal_session_open(g, &(shoal_session_options){.target = shoal_server_target(server)}, &s));
  float values[] = {1, 2, 3};
  shoal_tensor *in, *out[2];
  ok(shoal_tensor_from(SHOAL_FLOAT32, 1, (const int64_t[]){3}, values, sizeof values, &in));
  const char *feed = "x", *fetches[] = {shoal_op_name(y.node), shoal_op_name(y.node)};
  ok(shoal_session_run(s, NULL, &feed, &in, 1, fetches, out, 2, NULL, 0, NULL));
  for (int i = 0; i < 2; i++) {
    assert_float_equal(((const float *)shoal_tensor_const_data(out[i]))[2], 6, 0);
    shoal_tensor_unref(out[i]);
  }
  assert_float_equal(((const float *)shoal_tensor_const_data(in))[2], 3, 0); /* what was fed stays as it was */
  ok(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, queue));
  shoal_bytes metadata = {0};
  ok(shoal_session_run(s, &(shoal_run_options){.trace_level = 3}, &feed, &in, 1, fetches, out, 1, NULL, 0, &metadata));
  assert_true(metadata.size > 0);
  shoal_bytes_free(&metadata);
  shoal_tensor_unref(out[0]);
  ((float *)shoal_tensor_data(in))[0] = 0.0f / (float)(values[0] - 1);
  const char *check = shoal_op_name(wrong.node), *missing = "no_such_op";
  expect_error(shoal_session_run(s, NULL, &feed, &in, 1, &check, out, 1, NULL, 0, NULL), "found it");
  expect_error(shoal_session_run(s, NULL, &feed, &in, 1, &missing, out, 1, NULL, 0, NULL), "no_such_op");
  shoal_tensor *none = NULL;
  expect_error(shoal_session_run(s, NULL, &feed, &none, 1, fetches, out, 1, NULL, 0, NULL), "NULL");
  shoal_server_stop(server);
  shoal_status gone = shoal_session_run(s, NULL, &feed, &in, 1, fetches, out, 1, NULL, 0, NULL);
  assert_non_null(gone);
  shoal_status_free(gone);
  shoal_status_free(shoal_session_close(s));
  shoal_tensor_unref(in);
  shoal_graph_free(g);
  shoal_cluster_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(from_hosts),      cmocka_unit_test(from_config), cmocka_unit_test(exit_codes),
      cmocka_unit_test(session_options), cmocka_unit_test(near_steps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
