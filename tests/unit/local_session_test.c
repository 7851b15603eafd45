/* Sessions in this process: what a ConfigProto says is heeded, a call of a partial run that is refused takes nothing
 * with it, and steps that were forgotten are compiled again. */
#include "unit.h"

#include <shoal/shoal.h>

#include "proto/config.wire.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/wire.h"

static shoal_tensor *scalar(float value) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 0, NULL, &t));
  *(float *)shoal_tensor_data(t) = value;
  return t;
}

static float take(shoal_tensor *t) {
  float value = *(const float *)shoal_tensor_const_data(t);
  shoal_tensor_unref(t);
  return value;
}

static const char *name(shoal_out out, char *room) {
  snprintf(room, 64, "%s:%d", shoal_op_name(out.node), out.index);
  return room;
}

static void refused_call_feeds_nothing(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out a = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SCALAR, "a");
  shoal_out b = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SCALAR, "b");
  char first[64], second[64];
  shoal_out twice = shoal_add(g, a, a);
  const char *fetches[] = {name(twice, first), name(shoal_mul(g, twice, b), second)}, *feeds[] = {"a:0", "b:0"};
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  char *handle;
  ASSERT_OK(shoal_session_partial_setup(s, feeds, 2, fetches, 2, NULL, 0, &handle));
  shoal_tensor *in[] = {scalar(3), scalar(5)}, *out[2];
  ASSERT_FAILS(shoal_session_partial_run(s, handle, feeds, in, 1, fetches + 1, out, 1), SHOAL_INVALID_ARGUMENT,
               "can't be computed from the feeds");
  ASSERT_FAILS(shoal_session_partial_run(s, handle, feeds, (shoal_tensor *[]){NULL}, 1, fetches, out, 1),
               SHOAL_INVALID_ARGUMENT, "feed a:0 was NULL");
  ASSERT_OK(shoal_session_partial_run(s, handle, feeds, in, 1, fetches, out, 1));
  assert_true(take(out[0]) == 6);
  ASSERT_FAILS(shoal_session_partial_run(s, handle, feeds, in, 1, fetches + 1, out, 1), SHOAL_INVALID_ARGUMENT,
               "has already been fed");
  ASSERT_OK(shoal_session_partial_run(s, handle, feeds + 1, in + 1, 1, fetches + 1, out, 1));
  assert_true(take(out[0]) == 30);
  ASSERT_FAILS(shoal_session_partial_run(s, handle, NULL, NULL, 0, fetches, out, 1), SHOAL_INVALID_ARGUMENT,
               "Must run 'setup'");
  free(handle);
  for (int i = 0; i < 2; i++) shoal_tensor_unref(in[i]);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* Pools that a step names are those that the config has, as TensorFlow checks it. */
static void pools_that_there_are(void **state) {
  shoal_graph *g = shoal_graph_new();
  char room[64];
  const char *fetch = name(shoal_constant_float(g, 2), room);
  static const struct {
    int pools, named;
    bool there;
  } cases[] = {{0, 0, true},   {0, -1, true}, {0, 1, false}, {0, 77, false},
               {0, -2, false}, {2, 1, true},  {2, -1, true}, {2, 2, false}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct text config = {0};
    for (int k = 0; k < cases[i].pools; k++) wire_add_bytes(&config, ConfigProto_session_inter_op_thread_pool, "", 0);
    shoal_session *s;
    ASSERT_OK(
        shoal_session_open(g, &(shoal_session_options){.config = text_cstr(&config), .config_size = config.n}, &s));
    shoal_tensor *t = NULL;
    const shoal_run_options o = {.inter_op_thread_pool = cases[i].named};
    shoal_status e = shoal_session_run(s, &o, NULL, NULL, 0, &fetch, &t, 1, NULL, 0, NULL);
    if (cases[i].there) {
      ASSERT_OK(e);
      assert_true(take(t) == 2);
    } else {
      ASSERT_FAILS(e, SHOAL_INVALID_ARGUMENT, "Invalid inter_op_thread_pool: ");
    }
    ASSERT_OK(shoal_session_close(s));
    text_release(&config);
  }
  shoal_graph_free(g);
}

/* Are these bytes (NodeDef's op, with its tag and length) in what was run? */
static bool ran(shoal_graph *g, const struct text *config, const char *fetch, const char *op) {
  shoal_session *s;
  shoal_session_options o = {.config = text_cstr(config), .config_size = config->n};
  ASSERT_OK(shoal_session_open(g, &o, &s));
  shoal_bytes metadata;
  shoal_tensor *out;
  shoal_run_options run = {.output_partition_graphs = true};
  ASSERT_OK(shoal_session_run(s, &run, NULL, NULL, 0, &fetch, &out, 1, NULL, 0, &metadata));
  assert_true(take(out) == 5);
  bool found = memmem(metadata.data, metadata.size, op, strlen(op)) != NULL;
  shoal_bytes_free(&metadata);
  ASSERT_OK(shoal_session_close(s));
  return found;
}

static void config_may_forbid_rewrites(void **state) {
  shoal_graph *g = shoal_graph_new();
  char room[64];
  const char *sum = name(shoal_add(g, shoal_constant_float(g, 2), shoal_constant_float(g, 3)), room);
  struct text config = {0};
  assert_false(ran(g, &config, sum, "\022\003Add"));
  size_t graph_options = begin_ConfigProto_graph_options(&config);
  size_t rewriter = begin_GraphOptions_rewrite_options(&config);
  put_RewriterConfig_disable_meta_optimizer(&config, true);
  wire_end(&config, rewriter);
  wire_end(&config, graph_options);
  assert_true(ran(g, &config, sum, "\022\003Add"));
  text_release(&config);
  shoal_graph_free(g);
}

/* More signatures than are kept; those that are held by a callable stay whatever happens. */
static void forgotten_steps_come_again(void **state) {
  enum { NODES = 50, SIGNATURES = NODES * NODES };
  shoal_graph *g = shoal_graph_new();
  char names[NODES][64];
  for (int i = 0; i < NODES; i++) name(shoal_constant_float(g, (float)i), names[i]);
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  int64_t callable;
  const char *held[] = {names[7], names[7], names[9]};
  ASSERT_OK(shoal_session_make_callable(s, NULL, 0, held, 3, NULL, 0, &callable));
  shoal_tensor *out[3];
  for (int i = 0; i <= SIGNATURES; i++) {
    const char *fetches[] = {names[i % NODES], names[i / NODES % NODES]};
    ASSERT_OK(shoal_session_run(s, NULL, NULL, NULL, 0, fetches, out, 2, NULL, 0, NULL));
    assert_true(take(out[0]) == (float)(i % NODES));
    assert_true(take(out[1]) == (float)(i / NODES % NODES));
  }
  ASSERT_OK(shoal_session_run_callable(s, callable, NULL, NULL, 0, out, 3, NULL));
  assert_true(take(out[0]) == 7 && take(out[1]) == 7 && take(out[2]) == 9);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* A chain of elementwise ops, however long, is fused piece by piece: its length is neither the stack's depth nor a
 * square of time. */
static void long_chains(void **state) {
  enum { LINKS = 200000, WIDE = 4 };
  shoal_graph *g = shoal_graph_new();
  shoal_out one = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(WIDE), "one"), sum = one;
  for (int i = 0; i < LINKS; i++) sum = shoal_add(g, sum, one);
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  shoal_tensor *in, *out;
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 1, (const int64_t[]){WIDE}, (const float[]){1, 1, 1, 1},
                              WIDE * sizeof(float), &in));
  ASSERT_OK(shoal_session_step(s, SHOAL_FEED(one, in), SHOAL_FETCH(sum, &out), NULL));
  assert_true(((const float *)shoal_tensor_const_data(out))[WIDE - 1] == LINKS + 1);
  shoal_tensor_unref(in);
  shoal_tensor_unref(out);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* Pieces of a chain read each other, and nothing of what they stand for is left; of scalars too. */
static void pieces_of_chains_follow_each_other(void **state) {
  enum { LINKS = 100 };
  for (int rank = 0; rank < 2; rank++) {
    shoal_graph *g = shoal_graph_new();
    shoal_out one = shoal_placeholder(g, SHOAL_FLOAT32, rank ? SHOAL_SHAPE(1) : SHOAL_SCALAR, "one"), sum = one;
    for (int i = 0; i < LINKS; i++) sum = shoal_add(g, sum, one);
    shoal_session *s;
    ASSERT_OK(shoal_session_open(g, NULL, &s));
    shoal_tensor *in, *out;
    ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, rank, (const int64_t[]){1}, &(float){1}, sizeof(float), &in));
    char room[64];
    const char *feed = "one:0", *fetch = name(sum, room);
    shoal_bytes metadata;
    shoal_run_options run = {.output_partition_graphs = true};
    ASSERT_OK(shoal_session_run(s, &run, &feed, &in, 1, &fetch, &out, 1, NULL, 0, &metadata));
    assert_true(take(out) == LINKS + 1);
    assert_null(memmem(metadata.data, metadata.size, "\022\003Add\032", 6)); /* an op, and its inputs */
    int pieces = 0;
    const char *at = metadata.data, *end = at + metadata.size;
    while ((at = memmem(at, (size_t)(end - at), "\022\014_Elementwise", 14))) pieces++, at++;
    assert_int_equal(pieces, (LINKS + 15) / 16);
    shoal_bytes_free(&metadata);
    shoal_tensor_unref(in);
    ASSERT_OK(shoal_session_close(s));
    shoal_graph_free(g);
  }
}

/* A step that computes on the caller's thread looks at the clock between its nodes; and what ends too late is late. */
static void late_steps(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out value = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(300, 300), "x");
  for (int i = 0; i < 2000; i++) value = shoal_mat_mul(g, value, value);
  shoal_out loss = shoal_l2_loss(g, value);
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .intra_op_threads = 1), &s));
  shoal_tensor *x, *out;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 2, (int64_t[]){300, 300}, &x));
  memset(shoal_tensor_data(x), 0, 300 * 300 * sizeof(float));
  const char *feed = "x:0";
  char fetch[64];
  name(loss, fetch);
  ASSERT_FAILS(shoal_session_run(s, SHOAL_OPTIONS(shoal_run_options, .timeout_ms = 20), &feed, &x, 1,
                                 (const char *[]){fetch}, &out, 1, NULL, 0, NULL),
               SHOAL_DEADLINE_EXCEEDED, "Timed out");
  shoal_tensor_unref(x);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

RUN_TESTS(cmocka_unit_test(refused_call_feeds_nothing), cmocka_unit_test(late_steps),
          cmocka_unit_test(pools_that_there_are), cmocka_unit_test(config_may_forbid_rewrites),
          cmocka_unit_test(forgotten_steps_come_again), cmocka_unit_test(long_chains),
          cmocka_unit_test(pieces_of_chains_follow_each_other))
