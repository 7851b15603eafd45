/* The memory of devices: used again while work is queued that uses it, divided, and full. On the soft device
 * (src/device/soft). */
#include "unit.h"

#include <shoal/shoal.h>
#include <unistd.h>

#include "base/latch.h"
#include "device/device.h"
#include "device/memory.h"
#include "device/soft/soft.h"
#include "proto/config.wire.h"

static const char task[] = "/job:a/replica:0/task:0";

static void setup_gpus(const char *n) { assert_int_equal(setenv("SHOAL_SOFT_GPUS", n, 1), 0); }

/* ---- memory whose last reference goes while work that uses it is queued ---- */

static void hold(void *until) { latch_wait_until(until, DEADLINE_NEVER); }

struct job {
  struct soft_turn turn;
  float *data;
  float first; /* what a job that reads has seen */
};

static void write_sevens(void *arg) {
  struct job *j = arg;
  soft_turn_begin(&j->turn);
  for (int i = 0; i < 1000; i++) j->data[i] = 7;
  soft_turn_end(&j->turn);
}

static void read_first(void *arg) {
  struct job *j = arg;
  soft_turn_begin(&j->turn);
  j->first = j->data[0];
  soft_turn_end(&j->turn);
}

static void bring(struct device *d, float value, struct tensor *there) {
  struct tensor host;
  ASSERT_OK(tensor_new_dims(&host, SHOAL_FLOAT32, 1, (int64_t[]){1000}));
  for (int i = 0; i < 1000; i++) T_DATA(&host, float)[i] = value;
  ASSERT_OK(d->type->ops->from_host(d, "x", &host, there));
  tensor_release(&host);
}

/* The stream that computes has work with an address of x and no reference. x goes; what is brought next gets its
 * memory, on another stream, and is there whole: after that work. Nobody has waited. */
static void use_again(void (*work)(void *), struct soft_turn (*take_turn)(const struct tensor *), struct job *j) {
  setup_gpus("1");
  struct device *d;
  ASSERT_OK(device_new("GPU", task, 0, NULL, &d));
  struct soft_device *soft = d->impl;
  struct latch go, all;
  struct tensor x, y, back;
  bring(d, 1, &x);
  latch_init(&go, 1);
  pool_submit(soft->compute, hold, &go);
  *j = (struct job){.turn = take_turn(&x), .data = soft_data(&x)};
  pool_submit(soft->compute, work, j);
  tensor_release(&x);
  bring(d, 2, &y);
  assert_ptr_equal(soft_data(&y), j->data);
  usleep(20000); /* for who does not wait to go wrong */
  latch_init(&all, 1);
  latch_done(&go, NULL);
  d->type->ops->when_done(d, latch_done, &all);
  ASSERT_OK(latch_finish(&all));
  ASSERT_OK(device_to_host(&y, &back));
  for (int i = 0; i < 1000; i++) assert_float_equal(T_DATA(&back, float)[i], 2, 0);
  tensor_release(&y);
  tensor_release(&back);
  device_free(d);
  ASSERT_OK(latch_release(&go));
}

static void memory_is_written_after_those_who_write_it(void **state) {
  struct job j;
  use_again(write_sevens, soft_write, &j);
}

static void memory_is_written_after_those_who_read_it(void **state) {
  struct job j;
  use_again(read_first, soft_read, &j);
  assert_float_equal(j.first, 1, 0);
}

/* ---- how much there is ---- */

static void accounts_name_the_largest_users(void **state) {
  struct device_memory m;
  struct device_piece p[9], none;
  char longest[200];
  memset(longest, 'a', sizeof longest);
  strcpy(longest + 100, "/the/end");
  device_memory_init(&m, 1000);
  for (int i = 0; i < 7; i++) {
    char who[] = {'n', (char)('0' + i), 0};
    ASSERT_OK(device_memory_take(&m, "d", who, 10 + i, &p[i]));
  }
  ASSERT_OK(device_memory_take(&m, "d", "n0", 10, &p[7]));
  ASSERT_OK(device_memory_take(&m, "d", longest, 500, &p[8]));
  ASSERT_FAILS(device_memory_take(&m, "/device:GPU:0", "x", 500, &none), SHOAL_RESOURCE_EXHAUSTED,
               "OOM when allocating a tensor of 500 bytes on /device:GPU:0: 601 of 1000 bytes are in use; most by aaa");
  ASSERT_FAILS(device_memory_take(&m, "d", "x", 500, &none), SHOAL_RESOURCE_EXHAUSTED,
               "/the/end (500 bytes), n0 (20 bytes in 2 tensors), n6 (16 bytes), n5 (15 bytes), n4 (14 bytes)");
  device_memory_give(&m, &p[8]);
  ASSERT_OK(device_memory_take(&m, "d", "x", 899, &p[8]));
  for (int i = 8; i >= 0; i -= 2) device_memory_give(&m, &p[i]);
  for (int i = 1; i < 9; i += 2) device_memory_give(&m, &p[i]);
  ASSERT_OK(device_memory_take(&m, "d", "x", 1000, &none));
  device_memory_give(&m, &none);
  device_memory_release(&m);
}

#define TYPE(key, type) "attr { key: '" key "' value { type: " type " } } "
#define AT(device, name, op, rest) "node { name: '" name "' op: '" op "' device: '/device:" device "' " rest "} "
#define IN(name) "input: '" name "' "
#define FOUR                               \
  "node { name: 'four' op: 'Const' " TYPE( \
      "dtype",                             \
      "DT_FLOAT") "attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 4 } } } } "

/* ---- gpu_options ---- */

/* A ConfigProto: of each card the megabytes of its virtual devices, -1 between cards; and a fraction. */
static void configure(struct text *t, const float *mb, int n, double fraction) {
  size_t options = begin_ConfigProto_gpu_options(t);
  if (fraction > 0) put_GPUOptions_per_process_gpu_memory_fraction(t, fraction);
  size_t experimental = begin_GPUOptions_experimental(t);
  for (int i = 0; i < n; i++) {
    size_t card = begin_GPUOptions_Experimental_virtual_devices(t);
    for (; i < n && mb[i] >= 0; i++) put_GPUOptions_Experimental_VirtualDevices_memory_limit_mb(t, mb[i]);
    wire_end(t, card);
  }
  wire_end(t, experimental);
  wire_end(t, options);
}

static shoal_status open_with(const char *graph, const float *mb, int n, double fraction, shoal_session **s) {
  struct text t = {0};
  shoal_graph *g = shoal_graph_new();
  ASSERT_OK(shoal_graph_import_text(g, graph, strlen(graph), NULL));
  configure(&t, mb, n, fraction);
  shoal_status e = shoal_session_open(
      g, SHOAL_OPTIONS(shoal_session_options, .config = text_cstr(&t), .config_size = t.n, .rewrites_off = "all"), s);
  text_release(&t);
  shoal_graph_free(g);
  return e;
}

static void check_memory(shoal_session *s, const int64_t *limits, int n_limits) {
  shoal_device *devices;
  int n;
  ASSERT_OK(shoal_session_devices(s, &devices, &n));
  assert_int_equal(n, n_limits + 1);
  for (int i = 0; i < n_limits; i++) {
    char name[64];
    snprintf(name, sizeof name, "/job:localhost/replica:0/task:0/device:GPU:%d", i);
    assert_string_equal(devices[i + 1].name, name);
    assert_int_equal(devices[i + 1].memory, limits[i]);
  }
  free(devices);
  ASSERT_OK(shoal_session_close(s));
}

static void cards_are_divided(void **state) {
  shoal_session *s;
  setup_gpus("2");
  ASSERT_OK(open_with("", NULL, 0, 0.25, &s));
  check_memory(s, (int64_t[]){1 << 28, 1 << 28}, 2);
  ASSERT_OK(open_with("", (float[]){1, 2, -1, 4}, 4, 0, &s));
  check_memory(s, (int64_t[]){1 << 20, 2 << 20, 4 << 20}, 3);
  ASSERT_OK(open_with("", (float[]){-1, 4, 8}, 3, 0, &s)); /* the first stays whole */
  check_memory(s, (int64_t[]){1 << 30, 4 << 20, 8 << 20}, 3);
  ASSERT_FAILS(open_with("", (float[]){1}, 1, 0.5, &s), SHOAL_INVALID_ARGUMENT, "per_process_gpu_memory_fraction");
  ASSERT_FAILS(open_with("", NULL, 0, 1.5, &s), SHOAL_INVALID_ARGUMENT, "per_process_gpu_memory_fraction is 1.5");
  setup_gpus("0"); /* who has no card heeds no share of one */
  ASSERT_OK(open_with("", NULL, 0, 1.5, &s));
  ASSERT_OK(shoal_session_close(s));
  setup_gpus("2");
  ASSERT_FAILS(open_with("", (float[]){0.0f}, 1, 0, &s), SHOAL_INVALID_ARGUMENT, "memory_limit_mb is 0");
  ASSERT_FAILS(open_with("", (float[]){1, -1, 1, -1, 1}, 5, 0, &s), SHOAL_UNKNOWN, "Not enough GPUs");
}

/* 256 K floats, a megabyte. */
#define FILL(device, name, control) \
  AT(device, name, "Fill", IN("size") IN("four") control TYPE("T", "DT_FLOAT") TYPE("index_type", "DT_INT32"))
#define SIZE \
  "node { name: 'size' op: 'Const' " TYPE("dtype", "DT_INT32") "attr { key: 'value' value { tensor { dtype: DT_INT32 " \
  "tensor_shape { dim { size: 1 } } int_val: 262144 } } } } "

/* Two megabytes are there for three: the error has the op, the device, and who took the others. Then there is room
 * again: nothing was lost. */
static void no_room_is_explained(void **state) {
  static const char text[] = FOUR SIZE FILL("GPU:1", "a", "") FILL("GPU:1", "b", IN("^a"))
      AT("GPU:1", "sum", "AddV2", IN("a") IN("b") TYPE("T", "DT_FLOAT"))
          AT("GPU:1", "c", "AddN", IN("a") IN("b") IN("sum") TYPE("T", "DT_FLOAT") "attr { key: 'N' value { i: 3 } } ");
  setup_gpus("1");
  shoal_session *s;
  ASSERT_OK(open_with(text, (float[]){1, 2.5f}, 2, 0, &s));
  for (int i = 0; i < 3; i++) {
    const char *all = "c", *two = "b";
    shoal_status e = shoal_session_run(s, NULL, NULL, NULL, 0, NULL, NULL, 0, &all, 1, NULL);
    assert_int_equal(shoal_status_code(e), SHOAL_RESOURCE_EXHAUSTED);
    const char *why = shoal_status_message(e);
    assert_non_null(strstr(why, "OOM when allocating a tensor of 1048576 bytes on "));
    assert_non_null(strstr(why, "/device:GPU:1: 2097"));
    assert_non_null(strstr(why, " of 2621440 bytes are in use; most by a (1048576 bytes), b (1048576 bytes)"));
    assert_non_null(strstr(why, "{{node sum}}"));
    shoal_status_free(e);
    ASSERT_OK(shoal_session_run(s, NULL, NULL, NULL, 0, NULL, NULL, 0, &two, 1, NULL));
  }
  ASSERT_OK(shoal_session_close(s));
}

RUN_TESTS(cmocka_unit_test(memory_is_written_after_those_who_write_it),
          cmocka_unit_test(memory_is_written_after_those_who_read_it),
          cmocka_unit_test(accounts_name_the_largest_users), cmocka_unit_test(cards_are_divided),
          cmocka_unit_test(no_room_is_explained))
