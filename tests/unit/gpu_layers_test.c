/* Layers of Transformers as one kernel each, beside the single ops they are built of: values and gradients, on the CPU
 * and on a GPU (without a card: the soft device), with odd sizes and in half precision. */
#include "gpu_case.h"

enum { MOST_FETCHES = 6, MOST_FEEDS = 6 };

struct layer_run {
  shoal_graph *g;
  shoal_dtype type;
  int n_feeds, n_fetches;
  char *feeds[MOST_FEEDS], *fetches[MOST_FETCHES];
  shoal_tensor *fed[MOST_FEEDS];
  const char *init; /* a node to run before; NULL: none */
  const char *gone; /* an op that is not there where layers are fused; NULL: any may be */
};

/* Numbers that are fed, so that nothing is folded: as float32, and as the tensor that a layer gets. */
static void feed(struct layer_run *r, const char *name, int rank, const int64_t *dims, double low, double high) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, rank, dims, &t));
  for (int64_t i = 0; i < shoal_tensor_elements(t); i++) ((float *)shoal_tensor_data(t))[i] = (float)number(low, high);
  r->feeds[r->n_feeds] = strdup(name);
  r->fed[r->n_feeds++] = t;
}

static shoal_out fed(struct layer_run *r, const char *name, int rank, const int64_t *dims) {
  char full[32];
  snprintf(full, sizeof full, "%s:0", name);
  feed(r, full, rank, dims, -2, 2);
  return shoal_cast(r->g, shoal_placeholder(r->g, SHOAL_FLOAT32, (shoal_dims){rank, dims}, name), r->type);
}

static void fetch(struct layer_run *r, shoal_out o) {
  o = shoal_cast(r->g, o, SHOAL_FLOAT32);
  assert_non_null(o.node);
  char full[256];
  snprintf(full, sizeof full, "%s:%d", shoal_op_name(o.node), o.index);
  r->fetches[r->n_fetches++] = strdup(full);
}

/* The result, and the gradients of a sum of it that counts each element differently. */
static void fetch_gradients(struct layer_run *r, shoal_out y, const shoal_out *of, int n, int rank,
                            const int64_t *dims) {
  shoal_gradient d[MOST_FETCHES];
  shoal_out loss = shoal_reduce_sum(r->g, shoal_mul(r->g, y, fed(r, "counts", rank, dims)));
  shoal_gradients(r->g, &loss, 1, of, n, NULL, d);
  fetch(r, y);
  for (int i = 0; i < n; i++) fetch(r, d[i].values);
}

/* ---- running ---- */

static bool has_op(const shoal_bytes *graphs, const char *op) {
  return memmem(graphs->data, graphs->size, op, strlen(op)) != NULL;
}

static void run(struct layer_run *r, const char *off, const char *op, bool there, shoal_tensor **out) {
  shoal_session *s;
  shoal_bytes graphs = {0};
  shoal_run_options o = {.output_partition_graphs = true};
  ASSERT_OK(shoal_graph_error(r->g));
  ASSERT_OK(shoal_session_open(
      r->g, SHOAL_OPTIONS(shoal_session_options, .rewrites_off = off, .allow_soft_placement = true), &s));
  if (r->init) ASSERT_OK(shoal_session_run(s, NULL, NULL, NULL, 0, NULL, NULL, 0, &r->init, 1, NULL));
  ASSERT_OK(shoal_session_run(s, &o, (const char *const *)r->feeds, r->fed, r->n_feeds, (const char *const *)r->fetches,
                              out, r->n_fetches, NULL, 0, &graphs));
  if (has_op(&graphs, op) != there) fail_msg("%s is %s the graph", op, there ? "not in" : "in");
  if (r->gone && has_op(&graphs, r->gone) == there) fail_msg("%s is %s the graph", r->gone, there ? "in" : "not in");
  shoal_bytes_free(&graphs);
  ASSERT_OK(shoal_session_close(s));
}

static void compare(const struct layer_run *r, const char *what, int i, const shoal_tensor *want,
                    const shoal_tensor *have) {
  const float *w = shoal_tensor_const_data(want), *h = shoal_tensor_const_data(have);
  int64_t n = shoal_tensor_elements(want);
  double top = largest(w, n), most = r->type == SHOAL_FLOAT32 ? 1e-5 : r->type == SHOAL_FLOAT16 ? 1e-2 : 6e-2;
  assert_int_equal(n, shoal_tensor_elements(have));
  for (int64_t k = 0; k < n; k++)
    if (!(fabs((double)(w[k] - h[k])) <= most * (1 + top)))
      fail_msg("%s of %s, fetch %d: element %d is %g, %g by single ops", what, shoal_dtype_name(r->type), i, (int)k,
               (double)h[k], (double)w[k]);
}

static void hold_up(struct layer_run *r, const char *op) {
  shoal_tensor *want[MOST_FETCHES], *have[MOST_FETCHES];
  run(r, "fuse_layers", op, false, want);
  run(r, NULL, op, true, have);
  for (int i = 0; i < r->n_fetches; i++) {
    compare(r, op, i, want[i], have[i]);
    shoal_tensor_unref(want[i]);
    shoal_tensor_unref(have[i]);
    free(r->fetches[i]);
  }
  for (int i = 0; i < r->n_feeds; i++) {
    free(r->feeds[i]);
    shoal_tensor_unref(r->fed[i]);
  }
  shoal_graph_free(r->g);
}

static int n_devices = 2;
typedef void (*layer_case)(struct layer_run *r, const int64_t *dims);

static void try_layer(layer_case build_it, const int64_t *dims, shoal_dtype type, const char *op) {
  for (int d = 0; d < n_devices; d++) {
    struct layer_run r = {.g = shoal_graph_new(), .type = type};
    seed = 1;
    shoal_push_device(r.g, devices[d]);
    build_it(&r, dims);
    shoal_pop_device(r.g);
    hold_up(&r, op);
  }
}

static const shoal_dtype types[] = {SHOAL_FLOAT32, SHOAL_BFLOAT16, SHOAL_FLOAT16};

/* ---- layers ---- */

static shoal_out norm_of(struct layer_run *r, const int64_t *dims, shoal_out *of) {
  of[0] = fed(r, "x", 3, dims);
  shoal_out y = shoal_layer_norm(r->g, of[0], "norm", NULL);
  of[1] = (shoal_out){shoal_graph_op(r->g, "norm/gamma/Read/ReadVariableOp"), 0};
  of[2] = (shoal_out){shoal_graph_op(r->g, "norm/beta/Read/ReadVariableOp"), 0};
  feed(r, "norm/gamma/Read/ReadVariableOp:0", 1, dims + 2, 0.5, 1.5);
  feed(r, "norm/beta/Read/ReadVariableOp:0", 1, dims + 2, -1, 1);
  return y;
}

static void norm(struct layer_run *r, const int64_t *dims) {
  shoal_out of[3], y = norm_of(r, dims, of);
  fetch_gradients(r, y, of, 3, 3, dims);
}

/* Without a gradient, shapes must be known. */
static void norm_alone(struct layer_run *r, const int64_t *dims) {
  const int32_t to[] = {(int32_t)dims[0], (int32_t)dims[1], (int32_t)dims[2]};
  shoal_out x = shoal_reshape(r->g, fed(r, "x", 3, dims), shoal_constant_ints(r->g, SHOAL_SHAPE(3), to));
  fetch(r, shoal_layer_norm(r->g, x, "norm", NULL));
  r->init = shoal_op_name(shoal_initialize(r->g));
}

/* What is normalised goes past the layer too, as it does in Transformers. */
static void norm_beside(struct layer_run *r, const int64_t *dims) {
  shoal_out of[3], y = norm_of(r, dims, of);
  fetch_gradients(r, shoal_add_v2(r->g, of[0], shoal_gelu(r->g, y)), of, 3, 3, dims);
}

/* Computed once more for the gradients: the first time has none, and shapes are known from the second. What a layer
 * passes on is added to what goes past it, and normalised again. */
static void norm_again(struct layer_run *r, const int64_t *dims) {
  const int32_t to[] = {(int32_t)dims[0], (int32_t)dims[1], (int32_t)dims[2]};
  shoal_out x = fed(r, "x", 3, dims);
  shoal_push_recompute(r->g);
  shoal_out y = shoal_tanh(r->g, shoal_layer_norm(r->g, x, "first", NULL));
  y = shoal_add_v2(r->g, x, shoal_reshape(r->g, y, shoal_constant_ints(r->g, SHOAL_SHAPE(3), to)));
  y = shoal_square(r->g, shoal_layer_norm(r->g, y, "second", NULL)); /* whose gradient reads it */
  shoal_pop_recompute(r->g);
  static const char *const reads[] = {"first/gamma", "first/beta", "second/gamma", "second/beta"};
  shoal_out of[5] = {x};
  for (int i = 0; i < 4; i++) {
    char name[64];
    snprintf(name, sizeof name, "%s/Read/ReadVariableOp", reads[i]);
    of[1 + i] = (shoal_out){shoal_graph_op(r->g, name), 0};
  }
  fetch_gradients(r, y, of, 5, 3, dims);
  r->init = shoal_op_name(shoal_initialize(r->g));
  r->gone = "Rsqrt";
}

static void gelu(struct layer_run *r, const int64_t *dims) {
  shoal_out x = fed(r, "x", 3, dims);
  fetch_gradients(r, shoal_gelu(r->g, x), &x, 1, 3, dims);
}

static void gelu_alone(struct layer_run *r, const int64_t *dims) { fetch(r, shoal_gelu(r->g, fed(r, "x", 3, dims))); }

static shoal_out labels_of(struct layer_run *r, const int64_t *dims) {
  shoal_out from = shoal_placeholder(r->g, SHOAL_FLOAT32, (shoal_dims){2, dims}, "labels");
  feed(r, "labels:0", 2, dims, 0, (double)dims[2] - 0.01);
  return shoal_cast(r->g, from, SHOAL_INT32);
}

static void entropy(struct layer_run *r, const int64_t *dims) {
  shoal_out x = fed(r, "x", 3, dims), labels = labels_of(r, dims);
  shoal_out loss = shoal_reduce_mean(r->g, shoal_cross_entropy(r->g, x, labels, NULL));
  shoal_gradient d;
  shoal_gradients(r->g, &loss, 1, &x, 1, NULL, &d);
  fetch(r, loss);
  fetch(r, d.values);
}

/* dims: batch, queries, keys, heads, width of a head */
static void attend(struct layer_run *r, const int64_t *dims, bool causal) {
  const int64_t q[] = {dims[0], dims[1], dims[3] * dims[4]}, k[] = {dims[0], dims[2], dims[3] * dims[4]};
  shoal_out of[] = {fed(r, "q", 3, q), fed(r, "k", 3, k), fed(r, "v", 3, k)};
  shoal_attention_options o = {.size = sizeof o};
  if (causal) o.mask = shoal_causal_mask(r->g, r->type, dims[1], dims[2]);
  fetch_gradients(r, shoal_attention(r->g, of[0], of[1], of[2], dims[3], &o), of, 3, 3, q);
}
static void attend_all(struct layer_run *r, const int64_t *dims) { attend(r, dims, false); }
static void attend_back(struct layer_run *r, const int64_t *dims) { attend(r, dims, true); }

/* Of one tensor with queries, keys and values side by side, as one product makes them. */
static void attend_split(struct layer_run *r, const int64_t *dims) {
  const int64_t x[] = {dims[0], dims[1], 3 * dims[3] * dims[4]}, y[] = {dims[0], dims[1], dims[3] * dims[4]};
  shoal_out of = fed(r, "x", 3, x);
  shoal_op *parts = shoal_split(r->g, shoal_constant_int(r->g, 2), of, 3);
  shoal_attention_options o = {.size = sizeof o, .mask = shoal_causal_mask(r->g, r->type, dims[1], dims[1])};
  shoal_out q = {parts, 0}, k = {parts, 1}, v = {parts, 2};
  fetch_gradients(r, shoal_attention(r->g, q, k, v, dims[3], &o), &of, 1, 3, y);
}

/* Keys behind the end of a text are hidden, and of one example all: a mask that only the step knows. */
static void attend_masked(struct layer_run *r, const int64_t *dims) {
  const int64_t q[] = {dims[0], dims[1], dims[3] * dims[4]}, k[] = {dims[0], dims[2], dims[3] * dims[4]},
                may[] = {dims[0], 1, 1, dims[2]};
  const int32_t to[] = {(int32_t)dims[0], 1, 1, (int32_t)dims[2]};
  shoal_out of[] = {fed(r, "q", 3, q), fed(r, "k", 3, k), fed(r, "v", 3, k)};
  shoal_out seen = shoal_placeholder(r->g, SHOAL_FLOAT32, (shoal_dims){4, may}, "seen");
  feed(r, "seen:0", 4, may, -1, 1);
  float *values = shoal_tensor_data(r->fed[r->n_feeds - 1]);
  for (int64_t i = 0; i < dims[2]; i++) values[i] = -1;
  seen = shoal_reshape(r->g, seen, shoal_constant_ints(r->g, SHOAL_SHAPE(4), to));
  shoal_out shown = shoal_greater(r->g, seen, shoal_constant_float(r->g, 0));
  shoal_attention_options o = {.size = sizeof o, .mask = shoal_attention_mask(r->g, r->type, shown)};
  fetch_gradients(r, shoal_attention(r->g, of[0], of[1], of[2], dims[3], &o), of, 3, 3, q);
}

static void attend_alone(struct layer_run *r, const int64_t *dims) {
  const int64_t q[] = {dims[0], dims[1], dims[3] * dims[4]}, k[] = {dims[0], dims[2], dims[3] * dims[4]};
  fetch(r, shoal_attention(r->g, fed(r, "q", 3, q), fed(r, "k", 3, k), fed(r, "v", 3, k), dims[3], NULL));
}

static void normalisation(void **state) {
  static const int64_t dims[][3] = {{2, 3, 64}, {3, 5, 7}, {1, 9, 768}, {2, 2, 1000}, {1, 3, 1030}, {4, 33, 96}};
  for (size_t i = 0; i < 3 * COUNT_OF(dims); i++) {
    try_layer(norm, dims[i / 3], types[i % 3], "_ShoalLayerNormGrad");
    try_layer(norm_alone, dims[i / 3], types[i % 3], "_ShoalLayerNorm");
    try_layer(norm_beside, dims[i / 3], types[i % 3], "_ShoalLayerNormGrad");
    try_layer(norm_again, dims[i / 3], types[i % 3], "_ShoalLayerNormGrad");
  }
}

static void activation(void **state) {
  static const int64_t dims[][3] = {{2, 3, 64}, {3, 5, 7}, {1, 1, 1}};
  for (size_t i = 0; i < 3 * COUNT_OF(dims); i++) {
    try_layer(gelu, dims[i / 3], types[i % 3], "_ShoalGeluGrad");
    try_layer(gelu_alone, dims[i / 3], types[i % 3], "_ShoalGelu");
  }
  try_layer(gelu, dims[1], SHOAL_FLOAT64, "_ShoalGeluGrad");
}

static void cross_entropy(void **state) {
  static const int64_t dims[][3] = {{2, 3, 64}, {3, 5, 7}, {1, 9, 5003}, {4, 2, 8200}, {1, 3, 20000}};
  for (size_t i = 0; i < 3 * COUNT_OF(dims); i++) try_layer(entropy, dims[i / 3], types[i % 3], "_ShoalCrossEntropy");
}

static void attention(void **state) {
  static const int64_t dims[][5] = {
      {2, 64, 64, 1, 64}, {1, 100, 100, 2, 64}, {2, 70, 130, 1, 64}, {1, 1, 65, 3, 64}, {2, 33, 40, 3, 12}};
  const char *why;
  for (size_t i = 0; i < 3 * COUNT_OF(dims); i++) {
    const int64_t *d = dims[i / 3];
    n_devices = cuda_api(&why) && (types[i % 3] == SHOAL_FLOAT32 || d[4] != 64) ? 1 : 2; /* a card has no other */
    try_layer(attend_all, d, types[i % 3], "_ShoalAttentionGrad");
    try_layer(attend_back, d, types[i % 3], "_ShoalAttentionGrad");
    try_layer(attend_split, d, types[i % 3], "_ShoalAttentionGrad");
    try_layer(attend_alone, d, types[i % 3], "_ShoalAttention");
    n_devices = cuda_api(&why) ? 1 : 2; /* a card has none with such a mask */
    try_layer(attend_masked, d, types[i % 3], "_ShoalMaskedAttentionGrad");
  }
  n_devices = 2;
}

/* ---- what must stay as it is ---- */

/* What is between is fetched too. */
static void read_by_others(void **state) {
  struct layer_run r = {.g = shoal_graph_new(), .type = SHOAL_FLOAT32};
  const int64_t dims[] = {2, 3, 8};
  shoal_tensor *out[MOST_FETCHES];
  shoal_out x = fed(&r, "x", 3, dims);
  shoal_out y = shoal_gelu(r.g, x);
  fetch(&r, y);
  fetch(&r, (shoal_out){shoal_graph_op(r.g, "Gelu/Sigmoid"), 0});
  run(&r, NULL, "_ShoalGelu", false, out);
  for (int i = 0; i < 2; i++) {
    free(r.fetches[i]);
    shoal_tensor_unref(out[i]);
  }
  free(r.feeds[0]);
  shoal_tensor_unref(r.fed[0]);
  shoal_graph_free(r.g);
}

/* The ops may be in anybody's graph: what does not go together is told. */
static shoal_out zeros(shoal_graph *g, int rank, int64_t a, int64_t b, int64_t c) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, rank, (int64_t[]){a, b, c}, &t));
  memset(shoal_tensor_data(t), 0, (size_t)shoal_tensor_elements(t) * sizeof(float));
  shoal_out o = shoal_constant(g, t);
  shoal_tensor_unref(t);
  return o;
}

static void refuse(shoal_graph *g, shoal_builder *b, const char *text) {
  shoal_session *s;
  shoal_op *op = shoal_build_end(b);
  ASSERT_OK(shoal_graph_error(g));
  const char *name = shoal_op_name(op);
  ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .rewrites_off = "all"), &s));
  ASSERT_FAILS(shoal_session_run(s, NULL, NULL, NULL, 0, NULL, NULL, 0, &name, 1, NULL), SHOAL_INVALID_ARGUMENT, text);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

static void what_does_not_fit(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_builder *b = shoal_build(g, "_ShoalGeluGrad", "a");
  shoal_build_input(b, zeros(g, 1, 3, 0, 0));
  shoal_build_input(b, zeros(g, 1, 4, 0, 0));
  refuse(g, b, "same size and shape");
  g = shoal_graph_new();
  b = shoal_build(g, "_ShoalLayerNorm", "a");
  for (int i = 0; i < 3; i++) shoal_build_input(b, zeros(g, i ? 1 : 2, 4, 5, 0));
  shoal_build_float(b, "epsilon", 1);
  refuse(g, b, "is not one of");
  for (int heads = 3; heads >= 0; heads -= 3) { /* 8 is no multiple of 3 */
    g = shoal_graph_new();
    shoal_out qkv[] = {zeros(g, 3, 1, 4, 8), zeros(g, 3, 1, 5, 8), zeros(g, 3, 1, heads ? 5 : 6, 8)};
    b = shoal_build(g, "_ShoalAttention", "a");
    shoal_build_inputs(b, qkv, 3);
    shoal_build_int(b, "heads", heads ? heads : 2);
    shoal_build_int(b, "depth", heads ? 2 : 4);
    shoal_build_float(b, "scale", 1);
    shoal_build_bool(b, "causal", true);
    refuse(g, b, heads ? "attention of 3 heads" : "same size and shape");
  }
}

int main(void) {
  if (!gpu_here()) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(normalisation),  cmocka_unit_test(activation),
                                     cmocka_unit_test(cross_entropy),  cmocka_unit_test(attention),
                                     cmocka_unit_test(read_by_others), cmocka_unit_test(what_does_not_fit)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
