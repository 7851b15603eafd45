/* Heads: from logits to losses, predictions and metrics, as tf.compat.v1.estimator's have them. Two classes have one
 * logit, whose sigmoid is the chance of the second; more have one each; a regressor's are its predictions. */
#include "estimator/canned.h"
#include "saved_model/meta.h"

static const shoal_out none;

static shoal_out rows_of(struct shoal_graph *g, shoal_out x, int64_t width) {
  return build_op2(g, "Reshape", x, build_const_ints(g, SHOAL_INT32, (const int64_t[]){-1, width}, 2));
}

/* ---- labels and weights ---- */

/* The step fails where a label is no class. */
static shoal_out checked_classes(struct shoal_graph *g, shoal_out labels, int64_t classes) {
  shoal_dtype type = out_type(labels);
  shoal_out inside = build_op2(g, "LogicalAnd", build_op2(g, "GreaterEqual", labels, build_const_float(g, type, 0)),
                               build_op2(g, "Less", labels, build_const_float(g, type, (double)classes)));
  inside = build_op2(g, "All", inside, build_const_ints(g, SHOAL_INT32, (const int64_t[]){0, 1}, 2));
  char *text = mem_printf("labels must be at least 0 and less than %lld, the number of classes", (long long)classes);
  labels = only_where(g, inside, text, labels);
  free(text);
  return labels;
}

static shoal_out take_labels(const struct canned *c, struct shoal_graph *g, const struct shoal_inputs *in) {
  shoal_dtype type = out_type(in->labels);
  if (graph_error(g)) return none;
  if (type == SHOAL_STRING || type == SHOAL_BOOL || (c->classes > 2 && type != SHOAL_INT64 && type != SHOAL_INT32)) {
    graph_fail(g, INVALID("labels are of type %s; %s are wanted", shoal_dtype_name(type),
                          c->classes > 2 ? "integers" : "numbers"));
    return none;
  }
  shoal_out labels = rows_of(g, in->labels, c->classes > 2 ? 1 : c->logits);
  if (c->classes > 2) return checked_classes(g, labels, c->classes);
  labels = build_cast(g, labels, SHOAL_FLOAT32);
  return c->classes ? checked_classes(g, labels, 2) : labels;
}

static shoal_out take_weights(const struct canned *c, struct shoal_graph *g, const struct shoal_inputs *in) {
  if (!c->weight_feature) return none;
  shoal_out w = shoal_inputs_feature_named(in, c->weight_feature);
  return graph_error(g) ? none : rows_of(g, build_cast(g, w, SHOAL_FLOAT32), 1);
}

/* ---- losses ---- */

/* max(x, 0) - x * z + log(1 + exp(-|x|)). By selections, as TensorFlow has it, not by Relu and Abs: those have no slope
 * at 0, where models begin. */
static shoal_out sigmoid_loss(struct shoal_graph *g, shoal_out logits, shoal_out labels) {
  shoal_out zero = build_op1(g, "ZerosLike", logits), above = build_op2(g, "GreaterEqual", logits, zero);
  shoal_out most = build_op3(g, "SelectV2", above, logits, zero), product = build_op2(g, "Mul", logits, labels);
  shoal_out less = build_op3(g, "SelectV2", above, build_op1(g, "Neg", logits), logits);
  return build_op2(g, "AddV2", build_op2(g, "Sub", most, product), build_op1(g, "Log1p", build_op1(g, "Exp", less)));
}

static shoal_out each_loss(const struct canned *c, struct shoal_graph *g, shoal_out logits, shoal_out labels) {
  if (!c->classes) return build_op2(g, "SquaredDifference", logits, labels);
  if (c->classes == 2) return sigmoid_loss(g, logits, labels);
  shoal_out flat = build_op2(g, "Reshape", labels, build_const_ints(g, SHOAL_INT32, (const int64_t[]){-1}, 1));
  return rows_of(g, shoal_sparse_softmax_xent(g, logits, flat), 1);
}

/* Their sum; or their mean over the batch, as SUM_OVER_BATCH_SIZE has it. */
static shoal_out reduced_loss(const struct canned *c, struct shoal_graph *g, shoal_out each, shoal_out weights) {
  if (weights.node) each = build_op2(g, "Mul", each, weights);
  return c->mean_loss ? shoal_reduce_mean(g, each) : shoal_reduce_sum(g, each);
}

/* ---- predictions ---- */

static shoal_out largest(struct shoal_graph *g, shoal_out logits) {
  struct build b = build_begin(g, "ArgMax", NULL);
  build_in(&b, logits);
  build_in(&b, build_const_int(g, SHOAL_INT32, -1));
  build_attr_type(&b, "output_type", SHOAL_INT64);
  return build_op2(g, "ExpandDims", build_end_out(&b), build_const_int(g, SHOAL_INT32, -1));
}

/* 0, 1, ... for each row. */
static shoal_out all_class_ids(struct shoal_graph *g, shoal_out logits, int64_t classes) {
  int64_t *ids = mem_zalloc((size_t)classes, sizeof *ids);
  for (int64_t i = 0; i < classes; i++) ids[i] = i;
  shoal_out row = build_op2(g, "ExpandDims", build_const_ints(g, SHOAL_INT32, ids, (int)classes),
                            build_const_int(g, SHOAL_INT32, 0));
  free(ids);
  shoal_out rows =
      build_op3(g, "Slice", build_op1(g, "Shape", logits), build_const_ints(g, SHOAL_INT32, (const int64_t[]){0}, 1),
                build_const_ints(g, SHOAL_INT32, (const int64_t[]){1}, 1));
  struct build b = build_begin(g, "ConcatV2", NULL);
  build_in(&b, rows);
  build_in(&b, build_const_ints(g, SHOAL_INT32, (const int64_t[]){1}, 1));
  build_in(&b, build_const_int(g, SHOAL_INT32, 0));
  return build_op2(g, "Tile", row, build_end_out(&b));
}

struct answers {
  shoal_out logistic, probabilities, class_ids;
};

static void add_signatures(struct shoal_estimator_spec *spec, bool classifier, shoal_out scores, shoal_out names,
                           shoal_out value) {
  const shoal_export_value classify[] = {{"classes", names}, {"scores", scores}}, regress[] = {{"outputs", value}};
  const char *const methods[] = {METHOD_CLASSIFY, METHOD_REGRESS};
  shoal_spec_signature(spec, "serving_default", methods[!classifier], classifier ? classify : regress,
                       classifier ? 2 : 1);
  if (classifier) shoal_spec_signature(spec, "classification", methods[0], classify, 2);
  if (value.node) shoal_spec_signature(spec, "regression", methods[1], regress, 1);
  shoal_spec_signature(spec, "predict", NULL, spec->predictions.at, (int)spec->predictions.n);
}

static struct answers add_predictions(const struct canned *c, struct shoal_graph *g, shoal_out logits,
                                      struct shoal_estimator_spec *spec) {
  struct answers a = {0};
  if (!c->classes) {
    shoal_spec_prediction(spec, "predictions", logits);
    if (!graph_error(g)) add_signatures(spec, false, none, none, logits);
    return a;
  }
  shoal_out each = logits;
  shoal_spec_prediction(spec, "logits", logits);
  if (c->classes == 2) {
    a.logistic = build_op1(g, "Sigmoid", logits);
    shoal_spec_prediction(spec, "logistic", a.logistic);
    struct build b = build_begin(g, "ConcatV2", NULL);
    build_in(&b, build_op1(g, "ZerosLike", logits));
    build_in(&b, logits);
    build_in(&b, build_const_int(g, SHOAL_INT32, -1));
    each = build_end_out(&b);
  }
  a.probabilities = build_op1(g, "Softmax", each);
  a.class_ids = largest(g, each);
  shoal_out all = all_class_ids(g, logits, c->classes), names = build_op1(g, "AsString", all);
  shoal_spec_prediction(spec, "probabilities", a.probabilities);
  shoal_spec_prediction(spec, "class_ids", a.class_ids);
  shoal_spec_prediction(spec, "classes", build_op1(g, "AsString", a.class_ids));
  shoal_spec_prediction(spec, "all_class_ids", all);
  shoal_spec_prediction(spec, "all_classes", names);
  if (!graph_error(g)) add_signatures(spec, true, a.probabilities, names, a.logistic);
  return a;
}

/* ---- metrics ---- */

static void add_binary_metrics(struct shoal_graph *g, struct shoal_estimator_spec *spec, const struct answers *a,
                               shoal_out labels, shoal_out weights) {
  shoal_metric mean = shoal_metric_mean(g, labels, weights, "label/mean");
  shoal_spec_metric(spec, "precision", shoal_metric_precision(g, labels, a->class_ids, weights, NULL));
  shoal_spec_metric(spec, "recall", shoal_metric_recall(g, labels, a->class_ids, weights, NULL));
  shoal_spec_metric(spec, "prediction/mean", shoal_metric_mean(g, a->logistic, weights, "prediction/mean"));
  shoal_spec_metric(spec, "label/mean", mean);
  if (graph_error(g)) return;
  shoal_out other = build_op2(g, "Sub", build_const_float(g, SHOAL_FLOAT32, 1), mean.value);
  shoal_spec_metric(spec, "accuracy_baseline", (shoal_metric){build_op2(g, "Maximum", mean.value, other), NULL});
  const shoal_auc_options pr = {.size = sizeof pr, .precision_recall = true};
  shoal_spec_metric(spec, "auc", shoal_metric_auc(g, labels, a->logistic, weights, "auc", NULL));
  shoal_spec_metric(spec, "auc_precision_recall",
                    shoal_metric_auc(g, labels, a->logistic, weights, "auc_precision_recall", &pr));
}

static void add_metrics(const struct canned *c, struct shoal_graph *g, struct shoal_estimator_spec *spec,
                        const struct answers *a, shoal_out logits, shoal_out labels, shoal_out each,
                        shoal_out weights) {
  shoal_spec_metric(spec, "average_loss", shoal_metric_mean(g, each, weights, "average_loss"));
  if (!c->classes) {
    shoal_spec_metric(spec, "label/mean", shoal_metric_mean(g, labels, weights, "label/mean"));
    shoal_spec_metric(spec, "prediction/mean", shoal_metric_mean(g, logits, weights, "prediction/mean"));
    return;
  }
  shoal_spec_metric(spec, "accuracy", shoal_metric_accuracy(g, labels, a->class_ids, weights, NULL));
  if (c->classes == 2) add_binary_metrics(g, spec, a, labels, weights);
}

void head_apply(const struct canned *c, struct shoal_graph *g, shoal_mode mode, const struct shoal_inputs *in,
                shoal_out logits, struct shoal_estimator_spec *spec) {
  struct answers a = add_predictions(c, g, logits, spec);
  if (mode == SHOAL_MODE_PREDICT || graph_error(g)) return;
  shoal_out labels = take_labels(c, g, in), weights = take_weights(c, g, in);
  if (graph_error(g)) return;
  shoal_out each = each_loss(c, g, logits, labels);
  shoal_spec_loss(spec, reduced_loss(c, g, each, weights));
  if (mode == SHOAL_MODE_EVAL) add_metrics(c, g, spec, &a, logits, labels, each, weights);
}
