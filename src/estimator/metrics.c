/* Metrics as sums that a step adds to. All are quotients of two sums, or of vectors of them (one for each threshold of
 * a curve), so there is one kind of state: `total` makes a local variable and the op that adds a batch's sum to it. */
#include "shoal/metrics.h"

#include <stdlib.h>

#include "base/options.h"
#include "estimator/estimator.h"
#include "graph/given.h"
#include "train/variables.h"

static const shoal_out none;

/* ---- small things ---- */

static shoal_out number(shoal_graph *g, double v) { return build_const_float(g, SHOAL_FLOAT32, v); }
static shoal_out flat(shoal_graph *g, shoal_out x) {
  return build_op2(g, "Reshape", x, build_const_ints(g, SHOAL_INT32, (const int64_t[]){-1}, 1));
}
static shoal_out logical(shoal_graph *g, shoal_out x) {
  if (out_type(x) == SHOAL_BOOL) return x;
  return build_op2(g, "NotEqual", x, build_const_float(g, out_type(x), 0));
}
static shoal_out floats(shoal_graph *g, shoal_out x) { return build_cast(g, x, SHOAL_FLOAT32); }

/* A sum over all batches, [n] or a scalar (n 0). */
struct total {
  shoal_var v;
  shoal_op *add;
};

static struct total total_new(shoal_graph *g, const char *name, shoal_out batch, int64_t n) {
  shoal_dims shape = {n ? 1 : 0, &n};
  struct total t = {shoal_variable_local(g, name, shoal_init_zeros(g, out_type(batch), shape)), NULL};
  if (!graph_error(g)) t.add = variable_update_op(g, "AssignAdd", t.v.handle, batch);
  return t;
}

static shoal_metric metric_of(shoal_graph *g, shoal_out value, const struct total *totals, int n) {
  shoal_op *adds[4];
  for (int i = 0; i < n; i++) adds[i] = totals[i].add;
  if (graph_error(g)) return (shoal_metric){none, NULL};
  return (shoal_metric){value, shoal_group(g, adds, n, "update_op")};
}

/* Weights for each of these values. Where ranks differ ([batch] beside [batch, 1]) both are taken as vectors. */
static shoal_out weights_for(shoal_graph *g, shoal_out *values, shoal_out weights) {
  if (graph_error(g)) return none;
  int rank = out_shape(*values).rank, own = out_shape(weights).rank;
  weights = floats(g, weights);
  if (own != 0 && (rank < 0 || own < 0 || rank != own)) {
    *values = flat(g, *values);
    weights = flat(g, weights);
  }
  return build_op2(g, "Mul", weights, floats(g, build_op1(g, "OnesLike", *values)));
}

/* total / count, 0 where nothing was counted. */
static shoal_out quotient(shoal_graph *g, shoal_out a, shoal_out b) { return build_op2(g, "DivNoNan", a, b); }

/* ---- means ---- */

static shoal_metric mean_of(shoal_graph *g, shoal_out values, shoal_out weights, struct total *totals) {
  values = floats(g, values);
  shoal_out count;
  if (weights.node) {
    shoal_out w = weights_for(g, &values, weights);
    values = build_op2(g, "Mul", values, w);
    count = shoal_reduce_sum(g, w);
  } else {
    count = floats(g, build_op1(g, "Size", values));
  }
  totals[0] = total_new(g, "total", shoal_reduce_sum(g, values), 0);
  if (graph_error(g)) return (shoal_metric){none, NULL};
  /* A number of values that is known beforehand must not be counted in a step that brings none. */
  graph_push_control(g, &values.node, 1);
  count = build_op1(g, "Identity", count);
  graph_pop_control(g);
  totals[1] = total_new(g, "count", count, 0);
  return metric_of(g, quotient(g, totals[0].v.value, totals[1].v.value), totals, 2);
}

static shoal_metric scoped_mean(shoal_graph *g, const char *scope, shoal_out values, shoal_out weights) {
  struct total totals[2];
  graph_push_scope(g, scope);
  shoal_metric m = mean_of(g, values, weights, totals);
  graph_pop_scope(g);
  return m;
}

shoal_metric shoal_metric_mean(shoal_graph *g, shoal_out values, shoal_out weights, const char *name) {
  return scoped_mean(g, name ? name : "mean", values, weights);
}

/* One as the other's type; [batch, 1] beside [batch] as vectors. */
static void matched(shoal_graph *g, shoal_out *labels, shoal_out *predictions) {
  if (graph_error(g)) return;
  if (out_shape(*labels).rank != out_shape(*predictions).rank || out_shape(*labels).rank < 0) {
    *labels = flat(g, *labels);
    *predictions = flat(g, *predictions);
  }
  if (out_type(*labels) != out_type(*predictions)) *predictions = build_cast(g, *predictions, out_type(*labels));
}

shoal_metric shoal_metric_accuracy(shoal_graph *g, shoal_out labels, shoal_out predictions, shoal_out weights,
                                   const char *name) {
  matched(g, &labels, &predictions);
  return scoped_mean(g, name ? name : "accuracy", build_op2(g, "Equal", predictions, labels), weights);
}

static shoal_metric error_mean(shoal_graph *g, const char *scope, const char *op, shoal_out labels,
                               shoal_out predictions, shoal_out weights) {
  labels = floats(g, labels);
  predictions = floats(g, predictions);
  matched(g, &labels, &predictions);
  return scoped_mean(g, scope, build_op1(g, op, build_op2(g, "Sub", predictions, labels)), weights);
}

shoal_metric shoal_metric_mean_squared_error(shoal_graph *g, shoal_out labels, shoal_out predictions, shoal_out weights,
                                             const char *name) {
  return error_mean(g, name ? name : "mean_squared_error", "Square", labels, predictions, weights);
}
shoal_metric shoal_metric_mean_absolute_error(shoal_graph *g, shoal_out labels, shoal_out predictions,
                                              shoal_out weights, const char *name) {
  return error_mean(g, name ? name : "mean_absolute_error", "Abs", labels, predictions, weights);
}
shoal_metric shoal_metric_root_mean_squared_error(shoal_graph *g, shoal_out labels, shoal_out predictions,
                                                  shoal_out weights, const char *name) {
  shoal_metric m = error_mean(g, name ? name : "root_mean_squared_error", "Square", labels, predictions, weights);
  if (!graph_error(g)) m.value = build_op1(g, "Sqrt", m.value);
  return m;
}

/* ---- precision and recall ---- */

/* How many (by weight) are `so` and `predicted`. */
static struct total count_both(shoal_graph *g, const char *name, shoal_out so, shoal_out predicted, shoal_out weights) {
  shoal_out both = floats(g, build_op2(g, "LogicalAnd", so, predicted));
  if (weights.node) {
    weights = weights_for(g, &both, weights); /* may change both's shape */
    both = build_op2(g, "Mul", both, weights);
  }
  graph_push_scope(g, name);
  struct total t = total_new(g, "count", shoal_reduce_sum(g, both), 0);
  graph_pop_scope(g);
  return t;
}

static shoal_metric share(shoal_graph *g, const char *scope, const char *wrong, bool of_predicted, shoal_out labels,
                          shoal_out predictions, shoal_out weights) {
  labels = logical(g, labels);
  predictions = logical(g, predictions);
  matched(g, &labels, &predictions);
  graph_push_scope(g, scope);
  struct total t[2] = {count_both(g, "true_positives", labels, predictions, weights)};
  t[1] = of_predicted ? count_both(g, wrong, build_op1(g, "LogicalNot", labels), predictions, weights)
                      : count_both(g, wrong, labels, build_op1(g, "LogicalNot", predictions), weights);
  shoal_out all = build_op2(g, "AddV2", t[0].v.value, t[1].v.value);
  shoal_metric m = metric_of(g, quotient(g, t[0].v.value, all), t, 2);
  graph_pop_scope(g);
  return m;
}

shoal_metric shoal_metric_precision(shoal_graph *g, shoal_out labels, shoal_out predictions, shoal_out weights,
                                    const char *name) {
  return share(g, name ? name : "precision", "false_positives", true, labels, predictions, weights);
}
shoal_metric shoal_metric_recall(shoal_graph *g, shoal_out labels, shoal_out predictions, shoal_out weights,
                                 const char *name) {
  return share(g, name ? name : "recall", "false_negatives", false, labels, predictions, weights);
}

/* ---- areas under curves ---- */

struct confusion {
  shoal_out tp, fn, tn, fp;
};

static shoal_out first_of(shoal_graph *g, shoal_out v, int64_t n) {
  return build_op3(g, "Slice", v, build_const_ints(g, SHOAL_INT32, (const int64_t[]){0}, 1),
                   build_const_ints(g, SHOAL_INT32, (const int64_t[]){n - 1}, 1));
}
static shoal_out rest_of(shoal_graph *g, shoal_out v) {
  return build_op3(g, "Slice", v, build_const_ints(g, SHOAL_INT32, (const int64_t[]){1}, 1),
                   build_const_ints(g, SHOAL_INT32, (const int64_t[]){-1}, 1));
}
static shoal_out add(shoal_graph *g, shoal_out a, shoal_out b) { return build_op2(g, "AddV2", a, b); }
static shoal_out sub(shoal_graph *g, shoal_out a, shoal_out b) { return build_op2(g, "Sub", a, b); }
static shoal_out mul(shoal_graph *g, shoal_out a, shoal_out b) { return build_op2(g, "Mul", a, b); }

/* Where precision falls between two points: the closed form that TensorFlow has of it. */
static shoal_out careful_area(shoal_graph *g, const struct confusion *c, int64_t n) {
  shoal_out zero = number(g, 0), tp = c->tp, p = add(g, tp, c->fp);
  shoal_out dtp = sub(g, first_of(g, tp, n), rest_of(g, tp)), p0 = first_of(g, p, n), p1 = rest_of(g, p);
  shoal_out slope = quotient(g, dtp, build_op2(g, "Maximum", sub(g, p0, p1), zero));
  shoal_out intercept = sub(g, rest_of(g, tp), mul(g, slope, p1));
  shoal_out both = build_op2(g, "LogicalAnd", build_op2(g, "Greater", p0, zero), build_op2(g, "Greater", p1, zero));
  shoal_out ratio = build_op3(g, "SelectV2", both, quotient(g, p0, build_op2(g, "Maximum", p1, zero)), number(g, 1));
  shoal_out gain = mul(g, slope, add(g, dtp, mul(g, intercept, build_op1(g, "Log", ratio))));
  shoal_out all = build_op2(g, "Maximum", add(g, rest_of(g, tp), rest_of(g, c->fn)), zero);
  return shoal_reduce_sum(g, quotient(g, gain, all));
}

static shoal_out area(shoal_graph *g, const struct confusion *c, int64_t n, const shoal_auc_options *o) {
  if (o->precision_recall && o->sum == SHOAL_AUC_CAREFUL) return careful_area(g, c, n);
  shoal_out little = number(g, 1e-6), tp = add(g, c->tp, little);
  shoal_out recall = build_op2(g, "RealDiv", tp, add(g, add(g, c->tp, c->fn), little)), x, y;
  if (o->precision_recall) {
    x = recall;
    y = build_op2(g, "RealDiv", tp, add(g, add(g, c->tp, c->fp), little));
  } else {
    x = build_op2(g, "RealDiv", c->fp, add(g, add(g, c->fp, c->tn), little));
    y = recall;
  }
  shoal_out width = sub(g, first_of(g, x, n), rest_of(g, x)), y0 = first_of(g, y, n), y1 = rest_of(g, y), height;
  if (o->sum == SHOAL_AUC_MINORING) height = build_op2(g, "Minimum", y0, y1);
  else if (o->sum == SHOAL_AUC_MAJORING) height = build_op2(g, "Maximum", y0, y1);
  else height = build_op2(g, "RealDiv", add(g, y0, y1), number(g, 2));
  return shoal_reduce_sum(g, mul(g, width, height));
}

shoal_out only_where(struct shoal_graph *g, shoal_out condition, const char *words, shoal_out x) {
  struct build b = build_begin(g, "Assert", NULL);
  build_in(&b, condition);
  build_in(&b, shoal_constant_string(g, words));
  build_in(&b, x);
  build_attr_types(&b, "T", (const shoal_dtype[]){SHOAL_STRING, out_type(x)}, 2);
  struct shoal_node *check = build_end(&b);
  if (!check) return x;
  graph_push_control(g, &check, 1);
  x = build_op1(g, "Identity", x);
  graph_pop_control(g);
  return x;
}

/* The step fails where a prediction is no chance. */
static shoal_out checked_chances(shoal_graph *g, shoal_out p) {
  shoal_out inside = build_op2(g, "LogicalAnd", build_op2(g, "GreaterEqual", p, number(g, 0)),
                               build_op2(g, "LessEqual", p, number(g, 1)));
  inside = build_op2(g, "All", inside, build_const_ints(g, SHOAL_INT32, (const int64_t[]){0}, 1));
  return only_where(g, inside, "predictions must be in [0, 1]", p);
}

static shoal_out threshold_column(shoal_graph *g, int64_t n) {
  float *at = mem_zalloc((size_t)n, sizeof *at);
  for (int64_t i = 1; i < n - 1; i++) at[i] = (float)((double)i / (double)(n - 1));
  at[0] = -1e-7f;
  at[n - 1] = 1.0f + 1e-7f;
  shoal_out column = shoal_constant_floats(g, SHOAL_SHAPE(n, 1), at);
  free(at);
  return column;
}

/* [thresholds] sums of a mark for each threshold and prediction. */
static struct total count_marks(shoal_graph *g, const char *name, shoal_out a, shoal_out b, shoal_out weights,
                                int64_t n) {
  shoal_out marks = floats(g, build_op2(g, "LogicalAnd", a, b));
  if (weights.node) marks = mul(g, marks, weights);
  return total_new(g, name, build_op2(g, "Sum", marks, build_const_ints(g, SHOAL_INT32, (const int64_t[]){1}, 1)), n);
}

shoal_metric shoal_metric_auc(shoal_graph *g, shoal_out labels, shoal_out predictions, shoal_out weights,
                              const char *name, const shoal_auc_options *options) {
  shoal_auc_options o = {0};
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_auc_options, sum, &o, options), (shoal_metric){none, NULL});
  int64_t n = o.thresholds ? o.thresholds : 200;
  if (n < 3 || n > 100000)
    graph_fail(g, INVALID("%s: %lld thresholds; 3 to 100,000 are possible", __func__, (long long)n));
  graph_push_scope(g, name ? name : "auc");
  shoal_out p = checked_chances(g, flat(g, floats(g, predictions))), w = none;
  if (weights.node) {
    w = weights_for(g, &predictions, weights);
    w = build_op2(g, "Reshape", w, build_const_ints(g, SHOAL_INT32, (const int64_t[]){1, -1}, 2));
  }
  shoal_out yes =
      build_op2(g, "Reshape", logical(g, labels), build_const_ints(g, SHOAL_INT32, (const int64_t[]){1, -1}, 2));
  shoal_out no = build_op1(g, "LogicalNot", yes);
  shoal_out above = build_op2(g, "Greater", build_op2(g, "ExpandDims", p, build_const_int(g, SHOAL_INT32, 0)),
                              threshold_column(g, n));
  shoal_out below = build_op1(g, "LogicalNot", above);
  struct total t[4] = {count_marks(g, "true_positives", yes, above, w, n)};
  t[1] = count_marks(g, "false_negatives", yes, below, w, n);
  t[2] = count_marks(g, "true_negatives", no, below, w, n);
  t[3] = count_marks(g, "false_positives", no, above, w, n);
  struct confusion c = {t[0].v.value, t[1].v.value, t[2].v.value, t[3].v.value};
  shoal_metric m = metric_of(g, graph_error(g) ? none : area(g, &c, n, &o), t, 4);
  graph_pop_scope(g);
  return m;
}

/* ---- the k largest ---- */

static shoal_metric at_k(shoal_graph *g, const char *scope, shoal_out labels, shoal_out predictions, int64_t k,
                         shoal_out weights, bool precision) {
  if (k < 1)
    graph_fail(g, INVALID("shoal_metric_%s: k is %lld", precision ? "precision_at_k" : "recall_at_k", (long long)k));
  graph_push_scope(g, scope);
  struct build b = build_begin(g, "TopKV2", NULL);
  build_in(&b, floats(g, predictions));
  build_in(&b, build_const_int(g, SHOAL_INT32, k));
  struct shoal_node *top = build_end(&b);
  shoal_metric m = {none, NULL};
  if (top) {
    shoal_out rows = build_op2(g, "Reshape", build_cast(g, labels, SHOAL_INT32),
                               build_const_ints(g, SHOAL_INT32, (const int64_t[]){-1, 1}, 2));
    shoal_out hit = build_op2(g, "Any", build_op2(g, "Equal", node_out(top, 1), rows),
                              build_const_ints(g, SHOAL_INT32, (const int64_t[]){1}, 1));
    shoal_out hits = floats(g, hit), each = build_op1(g, "OnesLike", hits);
    if (weights.node) each = weights_for(g, &hits, flat(g, weights));
    hits = build_cast(g, mul(g, hits, each), SHOAL_FLOAT64);
    each = build_cast(g, each, SHOAL_FLOAT64);
    if (precision) each = mul(g, each, build_const_float(g, SHOAL_FLOAT64, (double)k));
    struct total t[2] = {total_new(g, "true_positive", shoal_reduce_sum(g, hits), 0)};
    t[1] = total_new(g, "all", shoal_reduce_sum(g, each), 0);
    if (!graph_error(g)) m = metric_of(g, build_op2(g, "RealDiv", t[0].v.value, t[1].v.value), t, 2);
  }
  graph_pop_scope(g);
  return m;
}

shoal_metric shoal_metric_recall_at_k(shoal_graph *g, shoal_out labels, shoal_out predictions, int64_t k,
                                      shoal_out weights, const char *name) {
  return at_k(g, name ? name : "recall_at_k", labels, predictions, k, weights, false);
}
shoal_metric shoal_metric_precision_at_k(shoal_graph *g, shoal_out labels, shoal_out predictions, int64_t k,
                                         shoal_out weights, const char *name) {
  return at_k(g, name ? name : "precision_at_k", labels, predictions, k, weights, true);
}
