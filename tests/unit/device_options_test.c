/* gpu_options: which cards a task uses and how, of sessions and of servers. On the soft device (src/device/soft). */
#include "unit.h"
#include "ports.h"

#include <shoal/shoal.h>

#include "device/device.h"
#include "proto/config.wire.h"

static const char task[] = "/job:a/replica:0/task:0";

static void setup_gpus(const char *n) { assert_int_equal(setenv("SHOAL_SOFT_GPUS", n, 1), 0); }

/* The cards of the GPUs that a task has with these, as digits. */
static const char *cards_of(const struct device_options *o, int asked, char out[MOST_CARDS]) {
  int n, k = 0;
  struct device_count count = {"GPU", asked};
  ASSERT_OK(device_options_check(o, &count, asked >= 0));
  struct device **d = devices_new(task, &count, asked >= 0, o, NULL, &n);
  for (int i = 1; i < n; i++) {
    assert_int_equal(d[i]->ordinal, i - 1);
    out[k++] = (char)('0' + d[i]->card);
  }
  for (int i = 0; i < n; i++) device_free(d[i]);
  free(d);
  out[k] = '\0';
  return out;
}

static void cards_are_those_that_are_visible(void **state) {
  char cards[MOST_CARDS];
  setup_gpus("4");
  assert_string_equal(cards_of(&(struct device_options){0}, -1, cards), "0123");
  assert_string_equal(cards_of(&(struct device_options){.visible = "1,0"}, -1, cards), "10");
  assert_string_equal(cards_of(&(struct device_options){.visible = "3, 0 ,2"}, 2, cards), "30");
  assert_string_equal(cards_of(&(struct device_options){.visible = "2"}, 0, cards), "");
  struct device_options divided = {
      .visible = "3,1", .virtual_devices = {{0, 1 << 20}, {0, 1 << 20}}, .n_virtual = 2, .n_cards = 2};
  assert_string_equal(cards_of(&divided, -1, cards), "331");
}

static shoal_status check(const char *visible, int n_cards, double fraction) {
  struct device_options o = {.n_cards = n_cards, .memory_fraction = fraction};
  snprintf(o.visible, sizeof o.visible, "%s", visible);
  return device_options_check(&o, NULL, 0);
}

static void mistakes_are_tensorflows(void **state) {
  setup_gpus("2");
  ASSERT_FAILS(check("1,x", 0, 0), SHOAL_INVALID_ARGUMENT,
               "Could not parse entry in 'visible_device_list': 'x'. visible_device_list = 1,x");
  ASSERT_FAILS(check("1,", 0, 0), SHOAL_INVALID_ARGUMENT, "entry in 'visible_device_list': ''");
  ASSERT_FAILS(check("1234567890123456", 0, 0), SHOAL_INVALID_ARGUMENT, "Could not parse");
  ASSERT_FAILS(check("0,2", 0, 0), SHOAL_INVALID_ARGUMENT,
               "'visible_device_list' listed an invalid Device id '2' but visible device count is 2");
  ASSERT_FAILS(check("-1", 0, 0), SHOAL_INVALID_ARGUMENT, "invalid Device id '-1'");
  ASSERT_FAILS(check("0,0", 0, 0), SHOAL_INVALID_ARGUMENT, "contained duplicate entries: 0,0");
  ASSERT_FAILS(check("", 2, 0.5), SHOAL_INVALID_ARGUMENT, "It's invalid to set per_process_gpu_memory_fraction");
  ASSERT_FAILS(check("", 3, 0), SHOAL_UNKNOWN, "Not enough GPUs to create virtual devices. num_gpus_to_use: 2");
  ASSERT_FAILS(check("", 1, 0), SHOAL_UNKNOWN, "#valid GPUs: 2 virtual_devices.size(): 1");
  ASSERT_FAILS(check("1,0", 1, 0), SHOAL_INVALID_ARGUMENT, "#GPUs in visible_device_list: 2 virtual_devices.size(): 1");
  ASSERT_OK(check("1", 1, 0));
}

static void without_cards_nothing_is_heeded(void **state) {
  unsetenv("SHOAL_SOFT_GPUS");
  ASSERT_OK(check("7,x", 3, 0.5));
}

/* ---- by a ConfigProto ---- */

static void configure(struct text *t, const char *visible, double fraction) {
  size_t options = begin_ConfigProto_gpu_options(t);
  put_GPUOptions_visible_device_list(t, visible);
  put_GPUOptions_per_process_gpu_memory_fraction(t, fraction);
  put_GPUOptions_allow_growth(t, true);
  wire_end(t, options);
}

/* One GPU with so much memory. */
static void check_one(shoal_session *s, int64_t memory) {
  shoal_device *devices;
  int n;
  ASSERT_OK(shoal_session_devices(s, &devices, &n));
  assert_int_equal(n, 2);
  assert_non_null(strstr(devices[1].name, "/device:GPU:0"));
  assert_int_equal(devices[1].memory, memory);
  free(devices);
}

static void sessions_heed_it(void **state) {
  struct text t = {0};
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  setup_gpus("2");
  configure(&t, "1", 0.5);
  ASSERT_OK(
      shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .config = text_cstr(&t), .config_size = t.n), &s));
  check_one(s, 1 << 29);
  ASSERT_OK(shoal_session_close(s));
  t.n = 0;
  configure(&t, "2", 0.5);
  ASSERT_FAILS(
      shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .config = text_cstr(&t), .config_size = t.n), &s),
      SHOAL_INVALID_ARGUMENT, "invalid Device id '2'");
  shoal_graph_free(g);
  text_release(&t);
}

static shoal_status start(const struct text *config, shoal_server **out) {
  char cluster[96];
  snprintf(cluster, sizeof cluster, "{\"a\": [\"127.0.0.1:%d\"]}", free_port());
  return shoal_server_start(SHOAL_OPTIONS(shoal_server_options, .cluster = cluster, .job = "a",
                                          .config = text_cstr((struct text *)config), .config_size = config->n),
                            out);
}

/* A node on a device that is not there runs elsewhere if it may. */
static shoal_status run_on_gpu_9(const char *target, const struct text *config) {
  static const char text[] =
      "node { name: 'x' op: 'Const' device: '/device:GPU:9' attr { key: 'dtype' value { type: DT_FLOAT } } "
      "attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 4 } } } }";
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  const char *name = "x:0";
  shoal_tensor *value = NULL;
  ASSERT_OK(shoal_graph_import_text(g, text, strlen(text), NULL));
  ASSERT_OK(shoal_session_open(g,
                               SHOAL_OPTIONS(shoal_session_options, .target = target,
                                             .config = text_cstr((struct text *)config), .config_size = config->n),
                               &s));
  check_one(s, 1 << 29);
  shoal_status e = shoal_session_run(s, NULL, NULL, NULL, 0, &name, &value, 1, NULL, 0, NULL);
  shoal_tensor_unref(value);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
  return e;
}

/* Devices are the server's: what a session says of them changes nothing. The rest stands where a session does not say
 * otherwise. */
static void servers_heed_their_own(void **state) {
  struct text t = {0}, of_session = {0}, none = {0};
  shoal_server *server;
  setup_gpus("2");
  configure(&t, "1", 0.5);
  put_ConfigProto_allow_soft_placement(&t, true);
  ASSERT_OK(start(&t, &server));
  configure(&of_session, "0,1", 0.25);
  ASSERT_OK(run_on_gpu_9(shoal_server_target(server), &of_session));
  ASSERT_OK(run_on_gpu_9(shoal_server_target(server), &none));
  text_add(&of_session, "\x38\x00", 2); /* allow_soft_placement: false, which writers leave out */
  ASSERT_FAILS(run_on_gpu_9(shoal_server_target(server), &of_session), SHOAL_INVALID_ARGUMENT, "GPU:9");
  shoal_server_stop(server);
  t.n = 0;
  configure(&t, "1,1", 0.5);
  ASSERT_FAILS(start(&t, &server), SHOAL_INVALID_ARGUMENT, "duplicate entries");
  t.n = 0;
  configure(&t, "1", 2);
  ASSERT_FAILS(start(&t, &server), SHOAL_INVALID_ARGUMENT, "per_process_gpu_memory_fraction is 2");
  text_release(&t);
  text_release(&of_session);
  text_release(&none);
}

static void a_type_is_counted_once(void **state) {
  struct device_count counts[4];
  int n;
  setup_gpus("2");
  ASSERT_OK(device_counts_parse("GPU=1,CPU=2", counts, 4, &n));
  assert_int_equal(n, 2);
  ASSERT_FAILS(device_counts_parse("GPU=1,CPU=2,GPU=2", counts, 4, &n), SHOAL_INVALID_ARGUMENT,
               "names devices of type GPU twice");
}

RUN_TESTS(cmocka_unit_test(a_type_is_counted_once), cmocka_unit_test(cards_are_those_that_are_visible),
          cmocka_unit_test(mistakes_are_tensorflows), cmocka_unit_test(without_cards_nothing_is_heeded),
          cmocka_unit_test(sessions_heed_it), cmocka_unit_test(servers_heed_their_own))
