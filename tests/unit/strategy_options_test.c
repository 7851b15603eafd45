/* Options and devices of strategies: what makes no sense is refused by name when the strategy is made. And what layers
 * and replicas draw: each its own. */
#include "unit.h"

#include <shoal/shoal.h>

/* The only worker of a cluster, with a parameter server that is not started, or none. */
static void open_cluster(int servers, shoal_cluster **cluster, shoal_server **server) {
  ASSERT_OK(shoal_cluster_from_hosts(servers ? "127.0.0.1:1" : NULL, "127.0.0.1:0", "worker", 0, cluster));
  ASSERT_OK(shoal_server_start(
      SHOAL_OPTIONS(shoal_server_options, .cluster = shoal_cluster_json(*cluster), .job = "worker"), server));
}

static void messages_make_sense(void **state) {
  shoal_cluster *cluster;
  shoal_server *server;
  shoal_strategy *s;
  open_cluster(0, &cluster, &server);
  ASSERT_FAILS(shoal_strategy_new_multi_worker(cluster, server,
                                               SHOAL_OPTIONS(shoal_strategy_options, .messages = SHOAL_BFLOAT16), &s),
               SHOAL_INVALID_ARGUMENT, "messages of bfloat16 in a strategy of one task");
  ASSERT_FAILS(shoal_strategy_new_multi_worker(cluster, server,
                                               SHOAL_OPTIONS(shoal_strategy_options, .messages = SHOAL_FLOAT64), &s),
               SHOAL_INVALID_ARGUMENT, "messages of double");
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
}

/* None is parsed and dropped: each strategy refuses, by name, those that it would do nothing with. */
static void options_are_of_their_strategy(void **state) {
#define ONLY(...) SHOAL_OPTIONS(shoal_strategy_options, __VA_ARGS__)
  const struct {
    const char *name;
    const shoal_strategy_options *options;
    bool of_replicas, of_servers; /* do these take it? */
  } all[] = {{"gradients", ONLY(.gradients = SHOAL_REDUCE_SUM), true, false},
             {"bucket_kib", ONLY(.bucket_kib = 64), true, false},
             {"shard_state", ONLY(.shard_state = true), true, false},
             {"task_devices", ONLY(.task_devices = 1), false, false},
             {"task_device", ONLY(.task_device = "/cpu:0"), false, true},
             {"messages", ONLY(.messages = SHOAL_BFLOAT16), false, false},
             {"tensorflow", ONLY(.tensorflow = SHOAL_TENSORFLOW_PACKS), false, false},
             {"keras_slots", ONLY(.keras_slots = 1), false, false},
             {"keras_steps_per_epoch", ONLY(.keras_steps_per_epoch = 1), false, false}};
  shoal_cluster *cluster;
  shoal_server *server;
  open_cluster(1, &cluster, &server);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    for (int kind = 0; kind < 3; kind++) {
      static const char *const kinds[] = {"one_device", "mirrored", "parameter_server"};
      shoal_strategy *s = NULL;
      shoal_status e = kind == 0   ? shoal_strategy_new_one_device(NULL, all[i].options, &s)
                       : kind == 1 ? shoal_strategy_new_mirrored(NULL, 2, all[i].options, &s)
                                   : shoal_strategy_new_parameter_server(cluster, server, all[i].options, &s);
      if (kind < 2 ? all[i].of_replicas : all[i].of_servers) {
        ASSERT_OK(e);
        shoal_strategy_free(s);
        continue;
      }
      char said[128];
      snprintf(said, sizeof said, "%s: a %s strategy has no use for this option", all[i].name, kinds[kind]);
      ASSERT_FAILS(e, SHOAL_INVALID_ARGUMENT, said);
      assert_null(s);
    }
  }
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
  open_cluster(0, &cluster, &server);
  const struct {
    const char *part;
    const shoal_strategy_options *options;
  } more[] = {{"keras_slots is for a strategy beside Keras' fit", ONLY(.keras_slots = 1)},
              {"keras_steps_per_epoch is for", ONLY(.tensorflow = SHOAL_TENSORFLOW_EACH, .keras_steps_per_epoch = 1)},
              {"bucket_kib: with SHOAL_TENSORFLOW_EACH", ONLY(.tensorflow = SHOAL_TENSORFLOW_EACH, .bucket_kib = 1)}};
  for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
    shoal_strategy *s;
    ASSERT_FAILS(shoal_strategy_new_multi_worker(cluster, server, more[i].options, &s), SHOAL_INVALID_ARGUMENT,
                 more[i].part);
  }
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
#undef ONLY
}

static void refuse(const char *const *devices, int n, const char *part) {
  shoal_strategy *s = NULL;
  shoal_status e = shoal_strategy_new_mirrored(devices, n, NULL, &s);
  ASSERT_FAILS(e, SHOAL_INVALID_ARGUMENT, part);
  assert_null(s);
}

static void devices_must_be_there(void **state) {
  refuse((const char *[]){"/cpu:0", "/device:ABACUS:1"}, 2, "'/device:ABACUS:1': there are no devices of type ABACUS");
  refuse((const char *[]){"/cpu:0", "/device:CPU:0"}, 2, "given twice");
  refuse((const char *[]){"/cpu:0", "nonsense"}, 2, "nonsense");
  refuse((const char *[]){"/cpu:0", "/cpu"}, 2, "which one?");
  refuse((const char *[]){"/job:worker/task:1/cpu:0"}, 1, "without job and task");
  refuse((const char *[]){"/cpu:0", NULL}, 2, "NULL");
  refuse((const char *[]){"/cpu:0", "/cpu:3000"}, 2,
         "'/device:CPU:3000': a session has at most 1024 devices of type CPU");
  refuse(NULL, 1025, "'/device:CPU:1024': a session has at most 1024");
  refuse(NULL, 0, "0 devices");
  refuse(NULL, -3, "-3 devices");
  shoal_strategy *s;
  shoal_status e =
      shoal_strategy_new_one_device(NULL, SHOAL_OPTIONS(shoal_strategy_options, .gradients = SHOAL_REDUCE_MAX), &s);
  ASSERT_FAILS(e, SHOAL_INVALID_ARGUMENT, "SHOAL_REDUCE_MEAN or SHOAL_REDUCE_SUM");
  shoal_cluster *cluster;
  shoal_server *server;
  open_cluster(0, &cluster, &server);
  for (int i = 0; i < 2; i++) {
    const char *wrong = i ? "/job:worker/gpu:0" : "/gpu";
    ASSERT_FAILS(shoal_strategy_new_multi_worker(cluster, server,
                                                 SHOAL_OPTIONS(shoal_strategy_options, .task_device = wrong), &s),
                 SHOAL_INVALID_ARGUMENT, "type and number are expected");
  }
  ASSERT_FAILS(shoal_strategy_new_multi_worker(
                   cluster, server, SHOAL_OPTIONS(shoal_strategy_options, .task_device = "/device:CPU:64"), &s),
               SHOAL_INVALID_ARGUMENT, "task_device '/device:CPU:64': /job:worker/replica:0/task:0 has ");
  ASSERT_FAILS(
      shoal_strategy_new_multi_worker(cluster, server, SHOAL_OPTIONS(shoal_strategy_options, .task_devices = 64), &s),
      SHOAL_INVALID_ARGUMENT, "task_device '/device:CPU:0', and those behind it: ");
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
  shoal_strategy_free(NULL);
}

static void scalars_are_not_cut(void **state) {
  for (int n = 1; n < 3; n++) {
    shoal_strategy *s;
    ASSERT_OK(shoal_strategy_new_mirrored(NULL, n, NULL, &s));
    shoal_graph *g = shoal_graph_new();
    shoal_out parts[2];
    shoal_strategy_split(g, s, shoal_constant_float(g, 1), parts, 1);
    assert_string_equal(shoal_status_message(shoal_graph_error(g)),
                        "shoal_strategy_split: 'Const' is a scalar, and has no rows to be cut along");
    shoal_graph_free(g);
    shoal_strategy_free(s);
  }
}

/* Two layers by one seed, and noise by the seed itself. */
static shoal_op *drawing(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  shoal_out seed = shoal_step_seed(g, shoal_global_step(g)), ones = shoal_init_ones(g, SHOAL_FLOAT32, SHOAL_SHAPE(64));
  for (int i = 0; i < 2; i++)
    out[i] = shoal_dropout(g, ones, 0.5, SHOAL_OPTIONS(shoal_dropout_options, .seed = i ? in[0] : seed));
  out[2] = shoal_dropout(g, ones, 0.5, SHOAL_OPTIONS(shoal_dropout_options, .seed = seed));
  const int32_t shape[] = {64};
  out[3] = shoal_stateless_random_uniform(g, shoal_constant_ints(g, SHOAL_SHAPE(1), shape), seed);
  return NULL;
}

static void layers_and_replicas_draw_each_its_own(void **state) {
  enum { N = 3, EACH = 4 };
  shoal_strategy *s;
  ASSERT_OK(shoal_strategy_new_mirrored(NULL, N, NULL, &s));
  shoal_graph *g = shoal_graph_new();
  shoal_out in[N], out[N * EACH];
  shoal_tensor *drawn[N * EACH];
  shoal_status error = NULL;
  const int32_t seed[] = {3, 4};
  shoal_set_random_seed(g, 3);
  for (int i = 0; i < N; i++) in[i] = shoal_constant_ints(g, SHOAL_SHAPE(2), seed);
  shoal_strategy_run(g, s, drawing, NULL, in, 1, out, EACH);
  SHOAL_TRAIN_SESSION(session, g, .no_signals = true, .status = &error, .strategy = s)
  for (int i = 0; i < N * EACH; i++)
    assert_true(shoal_run(session, SHOAL_NO_FEEDS, SHOAL_FETCH(out[i], &drawn[i]), NULL));
  ASSERT_OK(error);
  for (int i = 0; i < N * EACH; i++)
    for (int k = 0; k < i; k++)
      if (!memcmp(shoal_tensor_const_data(drawn[i]), shoal_tensor_const_data(drawn[k]), 64 * sizeof(float)))
        fail_msg("%d of replica %d is %d of replica %d", i % EACH, i / EACH, k % EACH, k / EACH);
  for (int i = 0; i < N * EACH; i++) shoal_tensor_unref(drawn[i]);
  shoal_graph_free(g);
  shoal_strategy_free(s);
}

RUN_TESTS(cmocka_unit_test(messages_make_sense), cmocka_unit_test(options_are_of_their_strategy),
          cmocka_unit_test(devices_must_be_there), cmocka_unit_test(scalars_are_not_cut),
          cmocka_unit_test(layers_and_replicas_draw_each_its_own))
