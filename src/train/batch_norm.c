/* Batch normalisation: y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, channel by channel.
 *
 * The moments of a batch are those of all replicas' batches as one: each brings its sums, its sums of squares and its
 * number of rows, and they are added in one collective, whose gradient is one more. So replicas do what one does on the
 * whole batch, and their moving averages, mirrored variables that all move by the same, stay equal. Keras has that as
 * BatchNormalization(synchronized=True).
 *
 * Squares are taken of x less the moving mean: E[x^2] - E[x]^2 of numbers far from zero has few digits left, and the
 * moving mean, which is the same on all replicas, comes close to the batch's after a while. (Two passes, the mean
 * first, would be exact from the first step on, and wait for two collectives after each other, twice a step.) */
#include "base/options.h"
#include "graph/across.h"
#include "graph/given.h"
#include "shoal/layers.h"
#include "train/variables.h"

struct norm_layer {
  struct shoal_graph *g;
  shoal_out x;       /* in the type of the moments */
  shoal_dtype dtype; /* of variables and moments: float32 beside half-precision inputs */
  int rank;
  int64_t channels;
  shoal_var moving_mean, moving_variance;
  shoal_out mean, variance, rows; /* of the batch; rows: how many numbers each channel has */
};

static shoal_out number(const struct norm_layer *n, double v) { return build_const_float(n->g, n->dtype, v); }

/* ---- moments ---- */

/* Over all dimensions but the last. */
static shoal_out sum_rows(const struct norm_layer *n, shoal_out x) {
  int64_t axes[SHOAL_MAX_RANK];
  for (int i = 0; i < n->rank - 1; i++) axes[i] = i;
  return build_op2(n->g, "Sum", x, build_const_ints(n->g, SHOAL_INT32, axes, n->rank - 1));
}

/* The number of rows, as a vector of one. */
static shoal_out count_rows(const struct norm_layer *n) {
  struct build b = build_begin(n->g, "Size", NULL);
  build_in(&b, n->x);
  build_attr_type(&b, "out_type", SHOAL_INT64);
  shoal_out rows = build_op2(n->g, "FloorDiv", build_end_out(&b), build_const_int(n->g, SHOAL_INT64, n->channels));
  return build_op2(n->g, "Reshape", build_cast(n->g, rows, n->dtype),
                   build_const_ints(n->g, SHOAL_INT32, (const int64_t[]){1}, 1));
}

/* Three vectors, added up over all replicas: a node with three outputs. */
static struct shoal_node *add_up(const struct norm_layer *n, const shoal_out sums[3]) {
  struct across *a = across_on(n->g);
  struct build b = build_begin(n->g, "ConcatV2", NULL);
  build_in_list(&b, sums, 3);
  build_in(&b, build_const_int(n->g, SHOAL_INT32, 0));
  shoal_out all = build_end_out(&b);
  if (a) all = a->sum(a, all);
  struct build cut = build_begin(n->g, "SplitV", NULL);
  build_in(&cut, all);
  build_in(&cut, build_const_ints(n->g, SHOAL_INT64, (const int64_t[]){n->channels, n->channels, 1}, 3));
  build_in(&cut, build_const_int(n->g, SHOAL_INT32, 0));
  build_attr_int(&cut, "num_split", 3);
  return build_end(&cut);
}

static void take_moments(struct norm_layer *n) {
  struct shoal_graph *g = n->g;
  shoal_out shift = build_op1(g, "StopGradient", n->moving_mean.value);
  shoal_out moved = build_op2(g, "Sub", n->x, shift);
  shoal_out sums[3] = {sum_rows(n, moved)};
  sums[1] = sum_rows(n, build_op1(g, "Square", moved));
  sums[2] = count_rows(n);
  struct shoal_node *all = add_up(n, sums);
  if (!all) return;
  n->rows = build_op1(g, "StopGradient", node_out(all, 2));
  shoal_out off = build_op2(g, "DivNoNan", node_out(all, 0), n->rows);
  shoal_out squares = build_op2(g, "DivNoNan", node_out(all, 1), n->rows);
  n->mean = build_op2(g, "AddV2", off, shift);
  /* Rounding may take a variance of nearly nothing below zero. */
  n->variance = build_op2(g, "Maximum", build_op2(g, "Sub", squares, build_op1(g, "Square", off)), number(n, 0));
}

/* ---- moving averages ---- */

/* A moving average comes closer to the batch's by that share. */
static struct shoal_node *move(const struct norm_layer *n, shoal_var moving, shoal_out batch, shoal_out share) {
  struct shoal_graph *g = n->g;
  graph_push_colocation(g, moving.handle.node);
  shoal_out change = build_op2(g, "Mul", build_op2(g, "Sub", moving.value, batch), share);
  struct shoal_node *moved = variable_update_op(g, "AssignSub", moving.handle, change);
  graph_pop_colocation(g);
  return moved;
}

/* How far they move: by nothing when nobody had a row, or when it is no training. */
static shoal_out share_of(const struct norm_layer *n, shoal_out training, double momentum) {
  struct shoal_graph *g = n->g;
  if (graph_error(g)) return (shoal_out){0};
  shoal_out any = build_op2(g, "Greater", n->rows, number(n, 0));
  if (training.node) any = build_op2(g, "LogicalAnd", any, training);
  return build_op3(g, "SelectV2", any, number(n, 1 - momentum), number(n, 0));
}

/* y, once both averages have moved. */
static shoal_out move_before(const struct norm_layer *n, shoal_out share, shoal_out y) {
  struct shoal_graph *g = n->g;
  if (graph_error(g)) return y;
  struct build b = build_begin(g, "Identity", NULL);
  build_in(&b, y);
  build_control(&b, move(n, n->moving_mean, n->mean, share));
  build_control(&b, move(n, n->moving_variance, n->variance, share));
  return build_end_out(&b);
}

/* ---- the layer ---- */

/* What a constant says; -1: a step says it. */
static int known(shoal_out training) {
  const struct tensor *t;
  if (!training.node || !op_is(training.node->op, "Const")) return -1;
  shoal_status e = node_get_tensor(training.node, "value", &t);
  if (!e && t->dtype == SHOAL_BOOL && t->n == 1) return *T_DATA(t, bool);
  shoal_status_free(e);
  return -1;
}

static shoal_out normalize(struct norm_layer *n, shoal_out gamma, shoal_out beta, shoal_out training, double momentum,
                           double epsilon) {
  struct shoal_graph *g = n->g;
  shoal_out mean = n->moving_mean.value, variance = n->moving_variance.value;
  int trains = known(training);
  if (trains) take_moments(n);
  if (trains > 0) {
    mean = n->mean;
    variance = n->variance;
  } else if (trains < 0) {
    mean = build_op3(g, "SelectV2", training, n->mean, mean);
    variance = build_op3(g, "SelectV2", training, n->variance, variance);
  }
  shoal_out by = build_op1(g, "Rsqrt", build_op2(g, "AddV2", variance, number(n, epsilon)));
  shoal_out y = build_op2(g, "Mul", build_op2(g, "Sub", n->x, mean), build_op2(g, "Mul", by, gamma));
  y = build_op2(g, "AddV2", y, beta);
  if (!trains) return y;
  return move_before(n, share_of(n, trains < 0 ? training : (shoal_out){0}, momentum), y);
}

/* The same as one op. In training it takes no averages, and says the moments. */
static shoal_out normalize_fused(struct norm_layer *n, shoal_out x, shoal_out gamma, shoal_out beta, bool trains,
                                 double momentum, double epsilon) {
  struct shoal_graph *g = n->g;
  shoal_out none = shoal_init_zeros(g, n->dtype, SHOAL_SHAPE(0));
  struct build b = build_begin(g, "FusedBatchNormV3", NULL);
  build_in(&b, x);
  build_in(&b, gamma);
  build_in(&b, beta);
  build_in(&b, trains ? none : n->moving_mean.value);
  build_in(&b, trains ? none : n->moving_variance.value);
  build_attr_float(&b, "epsilon", (float)epsilon);
  build_attr_bool(&b, "is_training", trains);
  struct shoal_node *fused = build_end(&b);
  if (!fused || !trains) return node_out(fused, 0);
  n->mean = node_out(fused, 1);
  n->variance = node_out(fused, 2);
  return move_before(n, number(n, 1 - momentum), node_out(fused, 0));
}

static shoal_status check(shoal_out x, shoal_out training, const shoal_batch_norm_options *o) {
  struct shape s = out_shape(x), scalar = out_shape(training);
  if (s.rank < 2 || s.dims[s.rank - 1] < 1)
    return INVALID("shoal_batch_norm takes a tensor of rank 2 or more whose last dimension is known; this one has %s",
                   shape_str(&s));
  if (out_type(training) != SHOAL_BOOL || scalar.rank > 0)
    return INVALID("shoal_batch_norm: training is one bool, a constant or what a step feeds");
  if (!(o->momentum >= 0 && o->momentum <= 1) || !(o->epsilon >= 0))
    return INVALID("shoal_batch_norm: momentum %g, epsilon %g", o->momentum, o->epsilon);
  if (o->fused && (s.rank != 4 || known(training) < 0 || out_type(x) == SHOAL_FLOAT64))
    return INVALID(
        "shoal_batch_norm: fused it takes floats [batch, rows, columns, channels], and training is a constant");
  return NULL;
}

static void make_moving(struct norm_layer *n, shoal_dims shape) {
  shoal_out zeros = shoal_init_zeros(n->g, n->dtype, shape), ones = shoal_init_ones(n->g, n->dtype, shape);
  n->moving_mean = shoal_variable_untrained(n->g, "moving_mean", zeros);
  n->moving_variance = shoal_variable_untrained(n->g, "moving_variance", ones);
}

shoal_out shoal_batch_norm(shoal_graph *g, shoal_out x, shoal_out training, const char *name,
                           const shoal_batch_norm_options *options) {
  shoal_batch_norm_options o = {0};
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_batch_norm_options, zero_gamma, &o, options), (shoal_out){0});
  if (graph_error(g)) return (shoal_out){0};
  GRAPH_TRY(g, check(x, training, &o), (shoal_out){0});
  struct shape s = out_shape(x);
  bool half = out_type(x) == SHOAL_FLOAT16 || out_type(x) == SHOAL_BFLOAT16;
  struct norm_layer n = {g, .dtype = half ? SHOAL_FLOAT32 : out_type(x), .rank = s.rank,
                         .channels = s.dims[s.rank - 1]};
  shoal_dims shape = SHOAL_SHAPE(n.channels);
  shoal_push_scope(g, name ? name : "batch_normalization");
  shoal_out gamma = shoal_variable(g, "gamma", shoal_init_constant(g, n.dtype, shape, o.zero_gamma ? 0 : 1)).value;
  shoal_out beta = shoal_variable(g, "beta", shoal_init_zeros(g, n.dtype, shape)).value;
  make_moving(&n, shape);
  double momentum = o.momentum > 0 ? o.momentum : 0.99, epsilon = o.epsilon > 0 ? o.epsilon : 0.001;
  shoal_out y;
  if (o.fused) y = normalize_fused(&n, x, gamma, beta, known(training) > 0, momentum, epsilon);
  else {
    n.x = build_cast(g, x, n.dtype);
    y = build_cast(g, normalize(&n, gamma, beta, training, momentum, epsilon), out_type(x));
  }
  shoal_pop_scope(g);
  return y;
}
