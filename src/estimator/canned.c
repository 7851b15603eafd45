/* Canned models: linear, a network of dense layers, both, or a bias alone.
 *
 * Names of variables and of their slots are tf.compat.v1.estimator's, so that checkpoints go both ways, with the oddity
 * that rename_slots tells of; with Keras' optimizers they are those of tf.estimator. */
#include "estimator/canned.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "base/text.h"
#include "columns/column.h"
#include "graph/given.h"
#include "train/optimizer.h"
#include "train/variables.h"

static const shoal_out none;

/* ---- bodies ---- */

/* Of the two halves of DNN_LINEAR, those that have columns. */
static bool has_linear(const struct canned *c) {
  return c->kind == SHOAL_CANNED_LINEAR || (c->kind == SHOAL_CANNED_DNN_LINEAR && c->n_linear);
}
static bool has_dnn(const struct canned *c) {
  return c->kind == SHOAL_CANNED_DNN || (c->kind == SHOAL_CANNED_DNN_LINEAR && c->n_dnn);
}

/* Tables of 64 MiB and more are shared out to parameter servers. */
static shoal_partitioner table_partitioner(const struct canned *c) {
  return shoal_min_bytes_partitioner(64 << 20, 0, MAX(c->ps, 1));
}

static shoal_out initial_kernel(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, void *arg) {
  return shoal_init_glorot_uniform(g, dtype, shape);
}
static shoal_out initial_bias(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, void *arg) {
  return shoal_init_zeros(g, dtype, shape);
}

static shoal_out layer_variable(struct shoal_graph *g, const struct canned *c, const char *name, shoal_dims shape,
                                shoal_part_init *init) {
  shoal_partitioner by = shoal_min_bytes_partitioner(256 << 10, 0, MAX(c->ps, 1));
  shoal_partitioned v = shoal_partitioned_variable(g, name, SHOAL_FLOAT32, shape, &by, init, NULL);
  shoal_out value = graph_error(g) ? none : shoal_partitioned_value(g, &v);
  shoal_partitioned_free(&v);
  return value;
}

static shoal_out layer(struct shoal_graph *g, const struct canned *c, shoal_out x, int64_t units, const char *name) {
  int64_t width = graph_error(g) ? 1 : out_shape(x).dims[1];
  graph_push_scope(g, name);
  shoal_out kernel = layer_variable(g, c, "kernel", SHOAL_SHAPE(width, units), initial_kernel);
  shoal_out bias = layer_variable(g, c, "bias", SHOAL_SHAPE(units), initial_bias);
  shoal_out y = graph_error(g) ? none : build_op2(g, "BiasAdd", build_op2(g, "MatMul", x, kernel), bias);
  graph_pop_scope(g);
  return y;
}

static shoal_out dnn_logits(const struct canned *c, struct shoal_graph *g, shoal_mode mode,
                            const shoal_named_feature *features, int n) {
  shoal_partitioner by = table_partitioner(c);
  graph_push_scope(g, "dnn");
  shoal_out x = shoal_input_layer(
      g, features, n, c->dnn, c->n_dnn,
      SHOAL_OPTIONS(shoal_column_layer_options, .scope = "input_from_feature_columns/input_layer", .partitioner = &by));
  for (int i = 0; i < c->n_hidden && !graph_error(g); i++) {
    char name[40];
    snprintf(name, sizeof name, "hiddenlayer_%d", i);
    x = build_op1(g, "Relu", layer(g, c, x, c->hidden[i], name));
    if (c->dropout > 0 && mode == SHOAL_MODE_TRAIN) x = shoal_dropout(g, x, c->dropout, NULL);
  }
  shoal_out logits = graph_error(g) ? none : layer(g, c, x, c->logits, "logits");
  graph_pop_scope(g);
  return logits;
}

static shoal_out linear_logits(const struct canned *c, struct shoal_graph *g, const shoal_named_feature *features,
                               int n) {
  shoal_partitioner by = table_partitioner(c);
  graph_push_scope(g, "linear");
  shoal_out logits = shoal_linear_model(
      g, features, n, c->linear, c->n_linear,
      SHOAL_OPTIONS(shoal_column_layer_options, .partitioner = &by, .units = c->logits, .combiner = c->combiner));
  graph_pop_scope(g);
  return logits;
}

/* A bias for each row of a feature. */
static shoal_out baseline_logits(const struct canned *c, struct shoal_graph *g, const shoal_named_feature *features) {
  graph_push_scope(g, "baseline");
  shoal_out bias = shoal_variable(g, "bias", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(c->logits))).value;
  shoal_out shape = features[0].indices.node ? build_cast(g, features[0].dense_shape, SHOAL_INT32)
                                             : build_op1(g, "Shape", features[0].values);
  shoal_out rows = build_op3(g, "Slice", shape, build_const_ints(g, SHOAL_INT32, (const int64_t[]){0}, 1),
                             build_const_ints(g, SHOAL_INT32, (const int64_t[]){1}, 1));
  struct build b = build_begin(g, "ConcatV2", NULL);
  build_in(&b, rows);
  build_in(&b, build_const_ints(g, SHOAL_INT32, &c->logits, 1));
  build_in(&b, build_const_int(g, SHOAL_INT32, 0));
  shoal_out ones = build_op2(g, "Fill", build_end_out(&b), build_const_float(g, SHOAL_FLOAT32, 1));
  shoal_out logits = build_op2(g, "Mul", bias, ones);
  graph_pop_scope(g);
  return logits;
}

static shoal_out make_logits(const struct canned *c, struct shoal_graph *g, shoal_mode mode,
                             const struct shoal_inputs *in) {
  const shoal_named_feature *f = in->features.at;
  int n = (int)in->features.n;
  if (c->kind == SHOAL_CANNED_BASELINE) return baseline_logits(c, g, f);
  shoal_out dnn = has_dnn(c) ? dnn_logits(c, g, mode, f, n) : none;
  shoal_out linear = has_linear(c) ? linear_logits(c, g, f, n) : none;
  if (graph_error(g) || !dnn.node) return linear;
  return linear.node ? build_op2(g, "AddV2", dnn, linear) : dnn;
}

/* ---- training ---- */

/* Slots of parts get the names that TensorFlow's have in such a model. It cuts as many letters off a slot's name as its
 * variable's name has, forgetting that the slot was made inside the scope once more: what is left has so many letters
 * of the variable's as the scope has. kernel/part_0/Adagrad is saved as kernel/t_0/Adagrad under "dnn/". */
static void rename_slots(struct shoal_graph *g, const char *scope) {
  int n = shoal_variables(g, false, NULL, 0);
  shoal_var *vars = mem_zalloc((size_t)n + 1, sizeof *vars);
  shoal_variables(g, false, vars, n);
  for (int i = 0; i < n; i++) {
    const char *name = vars[i].handle.node->name, *part = strstr(name, "/part_");
    const char *slot = part ? strchr(part + 1, '/') : NULL;
    if (!slot || (size_t)(slot + 1 - name) < strlen(scope)) continue;
    char *saved = mem_printf("%.*s/%s", (int)(part - name), name, slot + 1 - strlen(scope));
    char *slice = mem_strdup(variable_save_slice(vars[i]));
    variable_set_slice(vars[i], saved, slice);
    free(saved);
    free(slice);
  }
  free(vars);
}

/* The variables under a scope follow their gradients by an optimizer. */
static shoal_op *apply_to(struct shoal_graph *g, shoal_optimizer optimizer, const char *scope, const shoal_var *vars,
                          const shoal_gradient *grads, int n, shoal_var step) {
  shoal_var *mine = mem_zalloc((size_t)n + 1, sizeof *mine);
  shoal_gradient *of = mem_zalloc((size_t)n + 1, sizeof *of);
  int k = 0;
  for (int i = 0; i < n; i++)
    if (str_starts(vars[i].handle.node->name, scope)) {
      mine[k] = vars[i];
      of[k++] = grads[i];
    }
  shoal_op *op = shoal_apply_gradients(g, optimizer, mine, of, k, step);
  free(mine);
  free(of);
  return op;
}

/* Adds 1 to the step after the ops. */
static shoal_op *count_step(struct shoal_graph *g, shoal_var step, shoal_op *const *after, int n) {
  graph_push_control(g, after, n);
  graph_push_colocation(g, step.handle.node);
  shoal_op *counted = variable_update_op(g, "AssignAdd", step.handle, build_const_int(g, SHOAL_INT64, 1));
  graph_pop_colocation(g);
  graph_pop_control(g);
  return counted;
}

/* Each half that is there by its optimizer. The first counts the steps where it is one of Keras', as in TensorFlow. */
static shoal_op *train_halves(const struct canned *c, struct shoal_graph *g, shoal_out loss) {
  const struct {
    bool is;
    const char *scope;
    shoal_optimizer optimizer;
  } halves[2] = {{has_dnn(c), "dnn/", c->dnn_optimizer}, {has_linear(c), "linear/", c->linear_optimizer}};
  int n = shoal_variables(g, true, NULL, 0), done = 0;
  shoal_var *vars = mem_zalloc((size_t)n + 1, sizeof *vars);
  shoal_gradient *grads = mem_zalloc((size_t)n + 1, sizeof *grads);
  shoal_compute_gradients(g, loss, vars, grads, n);
  shoal_op *ops[2] = {0}, *trained = NULL;
  shoal_var step = shoal_global_step(g);
  bool counts = optimizer_is_keras(&halves[!has_dnn(c)].optimizer);
  for (int i = 0; i < 2 && !graph_error(g); i++) {
    if (!halves[i].is) continue;
    shoal_var counter = counts && !done ? step : (shoal_var){0};
    ops[done++] = apply_to(g, halves[i].optimizer, halves[i].scope, vars, grads, n, counter);
  }
  if (!graph_error(g)) trained = counts ? shoal_group(g, ops, done, NULL) : count_step(g, step, ops, done);
  free(vars);
  free(grads);
  return trained;
}

static void model(shoal_graph *g, shoal_mode mode, const shoal_inputs *in, shoal_estimator_spec *spec, void *arg) {
  const struct canned *c = arg;
  shoal_out logits = make_logits(c, g, mode, in);
  if (graph_error(g)) return;
  head_apply(c, g, mode, in, logits, spec);
  if (mode != SHOAL_MODE_TRAIN || graph_error(g)) return;
  if (c->kind == SHOAL_CANNED_DNN_LINEAR) {
    shoal_spec_train(spec, train_halves(c, g, spec->loss));
    return;
  }
  shoal_optimizer o = c->kind == SHOAL_CANNED_DNN ? c->dnn_optimizer : c->linear_optimizer;
  shoal_spec_train(spec, shoal_minimize(g, o, spec->loss, shoal_global_step(g)));
  if (!graph_error(g) && !optimizer_is_keras(&o)) rename_slots(g, c->kind == SHOAL_CANNED_DNN ? "dnn/" : "linear/");
}

/* ---- making one ---- */

static void canned_free(void *arg) {
  struct canned *c = arg;
  free(c->linear);
  free(c->dnn);
  free(c->hidden);
  free(c->weight_feature);
  free(c);
}

static void *copied(const void *from, size_t n, size_t size) {
  void *to = mem_zalloc(n + 1, size);
  if (n) memcpy(to, from, n * size);
  return to;
}

static shoal_status check_dnn(const shoal_canned_options *o) {
  TRY(given_array("shoal_canned_new", "hidden_units", o->hidden_units, o->n_hidden_units));
  for (int i = 0; i < o->n_hidden_units; i++)
    if (o->hidden_units[i] < 1)
      return INVALID("shoal_canned_new: hidden_units[%d] is %lld", i, (long long)o->hidden_units[i]);
  return NULL;
}

/* That the kind has the columns that it is made of. */
static shoal_status check_columns(shoal_canned kind, const shoal_canned_options *o) {
  TRY(given_array("shoal_canned_new", "linear_columns", o->linear_columns, o->n_linear_columns));
  TRY(given_array("shoal_canned_new", "dnn_columns", o->dnn_columns, o->n_dnn_columns));
  if (kind == SHOAL_CANNED_DNN_LINEAR && !o->n_linear_columns && !o->n_dnn_columns)
    return INVALID("shoal_canned_new: there are neither linear_columns nor dnn_columns");
  if (kind == SHOAL_CANNED_LINEAR && !o->n_linear_columns)
    return INVALID("shoal_canned_new: there are no linear_columns");
  if (kind == SHOAL_CANNED_DNN && !o->n_dnn_columns) return INVALID("shoal_canned_new: there are no dnn_columns");
  return NULL;
}

static shoal_status check(shoal_canned kind, const shoal_canned_options *o) {
  if ((int)kind < 0 || kind > SHOAL_CANNED_BASELINE) return INVALID("shoal_canned_new: kind %d", (int)kind);
  TRY(check_columns(kind, o));
  if (kind == SHOAL_CANNED_DNN || kind == SHOAL_CANNED_DNN_LINEAR) TRY(check_dnn(o));
  if (o->classes < 0 || o->classes == 1 || o->classes > INT32_MAX || o->label_dimension < 0 ||
      (o->classes && o->label_dimension > 1))
    return INVALID(
        "shoal_canned_new: %lld classes, %lld numbers a label: a classifier has 2 classes or more, a "
        "regressor none",
        (long long)o->classes, (long long)o->label_dimension);
  if (o->linear_combiner && !column_combiner(o->linear_combiner))
    return INVALID("shoal_canned_new: linear_combiner is \"%s\"; mean, sqrtn and sum are known", o->linear_combiner);
  if (!(o->dropout >= 0 && o->dropout < 1)) return INVALID("shoal_canned_new: dropout is %g", o->dropout);
  return NULL;
}

/* What TensorFlow takes: Ftrl at a rate by the number of columns, Adagrad. */
static shoal_optimizer default_linear(shoal_canned kind, int columns, bool keras) {
  double rate = kind == SHOAL_CANNED_LINEAR ? 0.2 : kind == SHOAL_CANNED_BASELINE ? 0.3 : 0.005;
  if (kind != SHOAL_CANNED_BASELINE) rate = fmin(rate, 1 / sqrt((double)columns));
  return keras ? shoal_keras_ftrl(rate) : shoal_ftrl(rate);
}
static shoal_optimizer default_dnn(shoal_canned kind, bool keras) {
  if (keras) return shoal_keras_adagrad(0.001);
  return shoal_adagrad(kind == SHOAL_CANNED_DNN ? 0.05 : 0.001);
}

shoal_status shoal_canned_new(shoal_canned kind, const shoal_canned_options *options, const shoal_run_config *config,
                              shoal_estimator **out) {
  shoal_canned_options o = {0};
  TRY(OPTIONS_TAKE(shoal_canned_options, keras, &o, options));
  TRY(check(kind, &o));
  GIVEN(out);
  struct canned *c = mem_zalloc(1, sizeof *c);
  c->kind = kind;
  c->classes = o.classes;
  c->logits = o.classes == 2 ? 1 : o.classes ? o.classes : MAX(o.label_dimension, (int64_t)1);
  c->linear = copied(o.linear_columns, (size_t)o.n_linear_columns, sizeof *c->linear);
  c->n_linear = o.n_linear_columns;
  c->dnn = copied(o.dnn_columns, (size_t)o.n_dnn_columns, sizeof *c->dnn);
  c->n_dnn = o.n_dnn_columns;
  c->hidden = copied(o.hidden_units, (size_t)o.n_hidden_units, sizeof *c->hidden);
  c->n_hidden = o.n_hidden_units;
  c->linear_optimizer = o.linear_optimizer ? *o.linear_optimizer : default_linear(kind, o.n_linear_columns, o.keras);
  c->dnn_optimizer = o.dnn_optimizer ? *o.dnn_optimizer : default_dnn(kind, o.keras);
  c->dropout = o.dropout;
  c->weight_feature = o.weight_feature ? mem_strdup(o.weight_feature) : NULL;
  c->combiner = column_combiner(o.linear_combiner ? o.linear_combiner : "sum");
  c->mean_loss = o.mean_loss || o.keras;
  shoal_status s = shoal_estimator_new(model, c, config, out);
  if (s) {
    canned_free(c);
    return s;
  }
  (*out)->release = canned_free;
  c->ps = (*out)->cluster ? shoal_cluster_tasks((*out)->cluster, "ps") : 0;
  return NULL;
}
