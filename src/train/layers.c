/* Building blocks of models over single ops: constants, initial values, layers and losses of shoal/layers.h. (Variables
 * are in variables.c.) */
#include "shoal/layers.h"

#include <math.h>
#include <string.h>

#include "graph/builder.h"
#include "graph/given.h"
#include "train/layers.h"
#include "train/variables.h"

static struct shape to_shape(struct shoal_graph *g, shoal_dims d) {
  struct shape s = shape_unknown();
  if (d.rank > SHOAL_MAX_RANK) {
    graph_fail(g, INVALID("a shape of rank %d; at most %d are possible", d.rank, SHOAL_MAX_RANK));
  } else if (d.rank >= 0) {
    s.rank = d.rank;
    for (int i = 0; i < d.rank; i++) s.dims[i] = d.at[i];
    int64_t n;
    shoal_status e = shape_elements(&s, &n);
    if (e) graph_fail(g, e);
  }
  return s;
}

shoal_out shoal_placeholder(shoal_graph *g, shoal_dtype dtype, shoal_dims dims, const char *name) {
  struct build b = build_begin(g, "Placeholder", name);
  struct shape shape = to_shape(g, dims);
  build_attr_type(&b, "dtype", dtype);
  build_attr_shape(&b, "shape", &shape);
  return build_end_out(&b);
}

/* ---- constants ---- */

shoal_out shoal_constant(shoal_graph *g, const shoal_tensor *value) {
  GRAPH_GIVEN(g, value, (shoal_out){0});
  return build_const(g, &value->t, "Const");
}
shoal_out shoal_constant_of(shoal_graph *g, shoal_dtype dtype, double v) { return build_const_float(g, dtype, v); }
shoal_out shoal_constant_float(shoal_graph *g, float v) { return build_const_float(g, SHOAL_FLOAT32, (double)v); }
shoal_out shoal_constant_double(shoal_graph *g, double v) { return build_const_float(g, SHOAL_FLOAT64, v); }
shoal_out shoal_constant_int(shoal_graph *g, int32_t v) { return build_const_int(g, SHOAL_INT32, v); }
shoal_out shoal_constant_int64(shoal_graph *g, int64_t v) { return build_const_int(g, SHOAL_INT64, v); }

/* A constant with a copy of data; plain dtypes. */
static shoal_out constant_from(shoal_graph *g, shoal_dtype dtype, shoal_dims dims, const void *data) {
  struct shape shape = to_shape(g, dims);
  struct tensor t;
  shoal_status s = graph_error(g) ? NULL : tensor_new(&t, dtype, &shape);
  if (s) graph_fail(g, s);
  if (graph_error(g)) return (shoal_out){0};
  memcpy(t.data, data, tensor_bytes(&t));
  shoal_out out = build_const(g, &t, "Const");
  tensor_release(&t);
  return out;
}

shoal_out shoal_constant_bool(shoal_graph *g, bool v) { return constant_from(g, SHOAL_BOOL, SHOAL_SCALAR, &v); }
shoal_out shoal_constant_floats(shoal_graph *g, shoal_dims shape, const float *v) {
  GRAPH_GIVEN(g, v, (shoal_out){0});
  return constant_from(g, SHOAL_FLOAT32, shape, v);
}
shoal_out shoal_constant_ints(shoal_graph *g, shoal_dims shape, const int32_t *v) {
  GRAPH_GIVEN(g, v, (shoal_out){0});
  return constant_from(g, SHOAL_INT32, shape, v);
}

static shoal_out strings(shoal_graph *g, shoal_dims dims, const char *const *v, int n) {
  struct shape shape = to_shape(g, dims);
  struct tensor t;
  shoal_status s = tensor_new(&t, SHOAL_STRING, &shape);
  if (s) {
    graph_fail(g, s);
    return (shoal_out){0};
  }
  for (int i = 0; i < n; i++) {
    if (!v[i]) graph_fail(g, INVALID("string %d of a constant is NULL", i));
    else str_set(&T_DATA(&t, struct str)[i], v[i], strlen(v[i]));
  }
  shoal_out out = build_const(g, &t, "Const");
  tensor_release(&t);
  return out;
}

shoal_out shoal_constant_string(shoal_graph *g, const char *v) { return strings(g, SHOAL_SCALAR, &v, 1); }
shoal_out shoal_constant_strings(shoal_graph *g, const char *const *v, int n) {
  GRAPH_GIVEN_NAMES(g, v, n, (shoal_out){0});
  return strings(g, SHOAL_SHAPE(n), v, n);
}

/* ---- initial values ---- */

static shoal_out shape_constant(shoal_graph *g, shoal_dims shape) {
  int rank = MAX(shape.rank, 0);
  shoal_dtype type = SHOAL_INT32; /* as TensorFlow's, but for a dimension that does not fit */
  for (int i = 0; i < rank; i++)
    if (shape.at[i] > INT32_MAX) type = SHOAL_INT64;
  return build_const_ints(g, type, shape.at, rank);
}

shoal_out shoal_init_constant(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, double v) {
  return build_op2(g, "Fill", shape_constant(g, shape), build_const_float(g, dtype, v));
}
shoal_out shoal_init_zeros(shoal_graph *g, shoal_dtype dtype, shoal_dims shape) {
  return shoal_init_constant(g, dtype, shape, 0);
}
shoal_out shoal_init_ones(shoal_graph *g, shoal_dtype dtype, shoal_dims shape) {
  return shoal_init_constant(g, dtype, shape, 1);
}

/* scale * op(shape) + shift. */
static shoal_out drawn(shoal_graph *g, const char *op, shoal_dtype dtype, shoal_dims shape, double scale,
                       double shift) {
  struct build b = build_begin(g, op, NULL);
  build_in(&b, shape_constant(g, shape));
  int64_t seed, seed2;
  graph_next_seeds(g, &seed, &seed2);
  build_attr_int(&b, "seed", seed);
  build_attr_int(&b, "seed2", seed2);
  build_attr_type(&b, "dtype", dtype);
  shoal_out x = build_op2(g, "Mul", build_end_out(&b), build_const_float(g, dtype, scale));
  return shift == 0 ? x : build_op2(g, "AddV2", x, build_const_float(g, dtype, shift));
}

shoal_out shoal_init_uniform(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, double low, double high) {
  return drawn(g, "RandomUniform", dtype, shape, high - low, low);
}
shoal_out shoal_init_normal(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, double mean, double stddev) {
  return drawn(g, "RandomStandardNormal", dtype, shape, stddev, mean);
}
shoal_out shoal_init_truncated_normal(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, double mean, double stddev) {
  return drawn(g, "TruncatedNormal", dtype, shape, stddev, mean);
}

/* How many inputs and outputs one weight has: convolution windows count on both sides. */
static void fans(shoal_dims shape, double *in, double *out) {
  double window = 1;
  for (int i = 0; i < shape.rank - 2; i++) window *= (double)shape.at[i];
  *in = shape.rank < 1 ? 1 : window * (double)shape.at[shape.rank < 2 ? 0 : shape.rank - 2];
  *out = shape.rank < 1 ? 1 : window * (double)shape.at[shape.rank - 1];
}

shoal_out shoal_init_glorot_uniform(shoal_graph *g, shoal_dtype dtype, shoal_dims shape) {
  double in, out;
  fans(shape, &in, &out);
  double limit = sqrt(6 / (in + out));
  return shoal_init_uniform(g, dtype, shape, -limit, limit);
}

shoal_out shoal_init_he_normal(shoal_graph *g, shoal_dtype dtype, shoal_dims shape) {
  double in, out;
  fans(shape, &in, &out);
  /* Truncation at two deviations takes away this much of the deviation. */
  return shoal_init_truncated_normal(g, dtype, shape, 0, sqrt(2 / in) / 0.87962566103423978);
}

/* ---- layers ---- */

shoal_out shoal_dense(shoal_graph *g, shoal_out x, int64_t units, const char *name) {
  layer_check(g, x, 2, "shoal_dense");
  return shoal_dense_with(g, x, units, name, NULL);
}

shoal_out shoal_pool_layer(shoal_graph *g, shoal_out images) {
  struct build b = build_begin(g, "MaxPool", NULL);
  build_in(&b, images);
  build_attr_ints(&b, "ksize", (const int64_t[]){1, 2, 2, 1}, 4);
  build_attr_ints(&b, "strides", (const int64_t[]){1, 2, 2, 1}, 4);
  build_attr_string(&b, "padding", "SAME");
  return build_end_out(&b);
}

shoal_out shoal_flatten(shoal_graph *g, shoal_out x) {
  struct shape s = out_shape(x);
  int64_t n = 1;
  for (int i = 1; i < s.rank; i++) n = s.dims[i] < 0 || n < 0 ? -1 : n * s.dims[i];
  /* The batch is what a step brings; all else must be known for the layers that follow. */
  if (s.rank < 1 || n < 0) {
    graph_fail(g,
               INVALID("shoal_flatten: only the first dimension may be unknown, but the shape is %s", shape_str(&s)));
    return (shoal_out){0};
  }
  return build_op2(g, "Reshape", x, build_const_ints(g, SHOAL_INT32, (const int64_t[]){-1, n}, 2));
}

/* ---- reductions and losses ---- */

static shoal_out reduce_all(shoal_graph *g, const char *op, shoal_out x) {
  struct shape s = out_shape(x);
  if (s.rank >= 0) {
    int64_t axes[SHOAL_MAX_RANK];
    for (int i = 0; i < s.rank; i++) axes[i] = i;
    return build_op2(g, op, x, build_const_ints(g, SHOAL_INT32, axes, s.rank));
  }
  shoal_out axes = build_op3(g, "Range", build_const_int(g, SHOAL_INT32, 0), build_op1(g, "Rank", x),
                             build_const_int(g, SHOAL_INT32, 1));
  return build_op2(g, op, x, axes);
}

shoal_out shoal_reduce_mean(shoal_graph *g, shoal_out x) { return reduce_all(g, "Mean", x); }
shoal_out shoal_reduce_sum(shoal_graph *g, shoal_out x) { return reduce_all(g, "Sum", x); }

shoal_out shoal_sparse_softmax_xent(shoal_graph *g, shoal_out logits, shoal_out labels) {
  return build_op2(g, "SparseSoftmaxCrossEntropyWithLogits", logits, labels);
}

shoal_out shoal_accuracy(shoal_graph *g, shoal_out logits, shoal_out labels) {
  struct build b = build_begin(g, "ArgMax", NULL);
  build_in(&b, logits);
  build_in(&b, build_const_int(g, SHOAL_INT32, 1));
  build_attr_type(&b, "output_type", out_type(labels));
  shoal_out hit = build_op2(g, "Equal", build_end_out(&b), labels);
  return shoal_reduce_mean(g, build_cast(g, hit, SHOAL_FLOAT32));
}
