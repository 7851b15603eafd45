/* Exports: the model as it answers, with the variables of a checkpoint, as a SavedModel of its own number. And
 * exporters, which do so after evaluations and keep the newest. */
#include "estimator/estimator.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/options.h"
#include "graph/given.h"
#include "saved_model/meta.h"

/* ---- one model ---- */

/* Files of words, which tables are initialized from: they go along. */
static int find_assets(const struct shoal_graph *g, shoal_export_asset **out) {
  VEC(shoal_export_asset) found = {0};
  for (size_t i = 0; i < g->nodes.n; i++) {
    const struct shoal_node *n = g->nodes.at[i];
    if (!n || !op_is(n->op, "InitializeTableFromTextFileV2")) continue;
    shoal_out path = node_out(n->in[1].node, n->in[1].index);
    const struct tensor *value;
    if (!op_is(path.node->op, "Const") || node_get_tensor(path.node, "value", &value)) continue;
    const struct str *text = T_DATA(value, struct str);
    vec_push(&found, (shoal_export_asset){mem_strndup(str_data(text), text->size), path});
  }
  *out = found.at;
  return (int)found.n;
}

typedef VEC(shoal_export_signature) export_signatures;

/* What a client gives: what the receiver said, else all dense features. */
static void signature_inputs(struct built *b, shoal_export_value **at, int *n) {
  if (b->in.receivers.n) {
    *n = (int)b->in.receivers.n;
    *at = mem_zalloc((size_t)*n, sizeof **at);
    memcpy(*at, b->in.receivers.at, (size_t)*n * sizeof **at);
    return;
  }
  *at = mem_zalloc(b->in.features.n, sizeof **at);
  *n = 0;
  for (size_t i = 0; i < b->in.features.n; i++)
    if (!b->in.features.at[i].indices.node)
      (*at)[(*n)++] = (shoal_export_value){b->in.features.at[i].name, b->in.features.at[i].values};
}

/* Classify and Regress ask with Examples: their signatures have one input, of strings, which is called "inputs",
 * whatever the receiver calls it. */
static bool takes_examples(const struct spec_signature *s) {
  return s->method && (!strcmp(s->method, METHOD_CLASSIFY) || !strcmp(s->method, METHOD_REGRESS));
}

/* The signatures as TensorFlow's Estimator exports them: those that cannot be asked, since what the receiver wants are
 * no Examples, are left out. What is asked without a name gives the predictions then. */
static void all_signatures(const struct built *b, const shoal_export_value *inputs, int n_inputs,
                           shoal_export_value *examples, export_signatures *out) {
  bool by_examples = n_inputs == 1 && shoal_out_dtype(inputs[0].tensor) == SHOAL_STRING, has_default = false;
  if (by_examples) *examples = (shoal_export_value){"inputs", inputs[0].tensor};
  for (size_t i = 0; i < b->spec.signatures.n; i++) {
    const struct spec_signature *s = &b->spec.signatures.at[i];
    if (takes_examples(s) && !by_examples) continue;
    const shoal_export_value *in = takes_examples(s) ? examples : inputs;
    vec_push(out, (shoal_export_signature){s->key, s->method, in, s->outputs, n_inputs, s->n});
    has_default = has_default || !s->key || !strcmp(s->key, "serving_default");
  }
  if (!has_default)
    vec_push(out, (shoal_export_signature){NULL, NULL, inputs, b->spec.predictions.at, n_inputs,
                                           (int)b->spec.predictions.n});
}

static shoal_status save_as(struct built *b, shoal_session *session, const struct scaffold *scaffold, const char *dir) {
  shoal_export_value *inputs;
  int n_inputs;
  signature_inputs(b, &inputs, &n_inputs);
  export_signatures signatures = {0};
  shoal_export_value examples;
  all_signatures(b, inputs, n_inputs, &examples, &signatures);
  shoal_export_asset *assets;
  int n_assets = find_assets(b->g, &assets);
  shoal_status s = shoal_saved_model_save(
      b->g, session, dir,
      SHOAL_OPTIONS(shoal_export_options, .signatures = signatures.at, .n_signatures = (int)signatures.n,
                    .signature_size = sizeof(shoal_export_signature), .assets = assets, .n_assets = n_assets,
                    .asset_size = sizeof(shoal_export_asset), .main_op = scaffold->use.local_init_op,
                    .saver = scaffold->use.saver));
  for (int i = 0; i < n_assets; i++) free((char *)assets[i].path);
  free(assets);
  free(inputs);
  vec_release(&signatures);
  return s;
}

/* ---- the numbers in a folder ---- */

struct export_numbers {
  VEC(int64_t) all; /* from the oldest to the newest */
};

static int by_number(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

/* A folder that is not there has none. */
static struct export_numbers numbers_in(const char *base) {
  enum { DIGITS = 18 }; /* that int64 has room for in any case */
  struct export_numbers n = {0};
  struct path_list names = {0};
  shoal_status_free(directory_list(base, &names));
  for (size_t i = 0; i < names.paths.n; i++) {
    const char *name = names.paths.at[i];
    size_t size = strlen(name);
    if (size && size <= DIGITS && strspn(name, "0123456789") == size) vec_push(&n.all, strtoll(name, NULL, 10));
  }
  path_list_release(&names);
  if (n.all.n) qsort(n.all.at, n.all.n, sizeof *n.all.at, by_number);
  return n;
}

/* BASE/SECONDS, or one more than the newest there is where several come within a second: numbers rise, so that whoever
 * serves the largest, or drops the smallest, is right. */
static char *next_name(const char *base) {
  struct export_numbers n = numbers_in(base);
  int64_t at = (int64_t)time(NULL);
  if (n.all.n) at = MAX(at, n.all.at[n.all.n - 1] + 1);
  vec_release(&n.all);
  return mem_printf("%s/%" PRId64, base, at);
}

shoal_status estimator_export(struct shoal_estimator *e, const char *base, shoal_input_fn *receiver, void *arg,
                              const char *checkpoint, char **path) {
  struct built b = {0};
  struct scaffold scaffold = {0};
  shoal_session *session = NULL;
  char *prefix = NULL, *dir = NULL;
  shoal_status s = built_make(&b, e, SHOAL_MODE_PREDICT, receiver, arg);
  if (!s) s = built_restore(&b, e, checkpoint, &session, &scaffold, &prefix);
  if (!s) s = directory_make(base);
  if (!s) {
    dir = next_name(base);
    s = save_as(&b, session, &scaffold, dir);
  }
  if (session) shoal_status_free(shoal_session_close(session));
  scaffold_release(&scaffold);
  if (b.g) built_release(&b);
  free(prefix);
  if (!s && path) *path = dir;
  else free(dir);
  return status_prefix(s, "export: ");
}

shoal_status shoal_estimator_export(shoal_estimator *e, const char *base, shoal_input_fn *receiver, void *arg,
                                    char **path) {
  GIVEN(base);
  GIVEN(receiver);
  return estimator_export(e, base, receiver, arg, NULL, path);
}

void shoal_example_receiver(shoal_graph *g, shoal_mode mode, shoal_inputs *in, void *arg) {
  const shoal_column_list *columns = arg;
  GRAPH_GIVEN(g, columns);
  shoal_feature spec[SHOAL_MAX_COMPONENTS];
  shoal_out parts[SHOAL_MAX_COMPONENTS];
  shoal_named_feature named[SHOAL_MAX_COMPONENTS];
  shoal_out examples = shoal_placeholder(g, SHOAL_STRING, SHOAL_SHAPE(-1), "input_example_tensor");
  int n = shoal_columns_parse_spec(g, columns->at, columns->n, spec, SHOAL_MAX_COMPONENTS);
  if (n > SHOAL_MAX_COMPONENTS)
    graph_fail(g, INVALID("%s: %d features; at most %d are possible", __func__, n, SHOAL_MAX_COMPONENTS));
  if (graph_error(g)) return;
  shoal_parse_example_features(g, examples, spec, n, parts);
  if (!graph_error(g)) shoal_features_of(g, spec, n, parts, named);
  for (int i = 0; i < n && !graph_error(g); i++) {
    if (named[i].indices.node)
      shoal_inputs_sparse_feature(in, named[i].name, named[i].indices, named[i].values, named[i].dense_shape);
    else shoal_inputs_feature(in, named[i].name, named[i].values);
  }
  shoal_inputs_receiver(in, "examples", examples);
}

/* ---- exporters ---- */

static void remove_tree(const char *path) {
  struct path_list names = {0};
  if (file_is_directory(path)) {
    shoal_status_free(directory_list(path, &names));
    for (size_t i = 0; i < names.paths.n; i++) {
      char *inner = mem_printf("%s/%s", path, names.paths.at[i]);
      remove_tree(inner);
      free(inner);
    }
    path_list_release(&names);
    shoal_status_free(directory_remove(path));
  } else {
    shoal_status_free(file_remove(path));
  }
}

/* The oldest ones go. */
static void keep_newest(const char *base, int keep) {
  if (keep < 0) return;
  struct export_numbers n = numbers_in(base);
  for (size_t i = 0; i + (size_t)(keep ? keep : 5) < n.all.n; i++) {
    char *old = mem_printf("%s/%" PRId64, base, n.all.at[i]);
    remove_tree(old);
    free(old);
  }
  vec_release(&n.all);
}

struct best {
  bool larger, any;
  double value;
  int64_t before; /* values of this step and later ones do not count */
};

static void best_so_far(void *arg, int64_t step, double value) {
  struct best *b = arg;
  if (step >= b->before || isnan(value)) return;
  if (!b->any || (b->larger ? value > b->value : value < b->value)) b->value = value;
  b->any = true;
}

/* Is this the best of all that were found, of runs before too? */
static shoal_status is_best(struct shoal_estimator *e, const shoal_exporter *x, const struct shoal_results *r,
                            const char *eval_name, bool *best) {
  struct best b = {.larger = x->larger, .before = (int64_t)shoal_results_value(r, "global_step")};
  const char *metric = x->metric ? x->metric : "loss";
  double now = shoal_results_value(r, metric);
  if (!results_has(r, metric)) return INVALID("exporter '%s': the evaluation has no '%s'", x->name, metric);
  char *dir = estimator_eval_dir(e, eval_name);
  shoal_status s = results_read(dir, metric, best_so_far, &b);
  free(dir);
  *best = !isnan(now) && (!b.any || (x->larger ? now > b.value : now < b.value));
  return s;
}

static shoal_status run_one(struct shoal_estimator *e, const shoal_exporter *x, const char *checkpoint,
                            const struct shoal_results *results, const char *eval_name, bool last) {
  bool now = x->kind == SHOAL_EXPORT_LATEST || (x->kind == SHOAL_EXPORT_FINAL && last);
  if (!x->name || !x->receiver) return INVALID("an exporter without a %s", x->name ? "receiver" : "name");
  if (x->kind == SHOAL_EXPORT_BEST) TRY(is_best(e, x, results, eval_name, &now));
  if (!now) return NULL;
  char *base = mem_printf("%s/export/%s", e->model_dir, x->name);
  shoal_status s = estimator_export(e, base, x->receiver, x->arg, checkpoint, NULL);
  if (!s) keep_newest(base, x->keep);
  free(base);
  return s;
}

shoal_status exporters_run(struct shoal_estimator *e, const shoal_exporter *exporters, int n, const char *checkpoint,
                           const struct shoal_results *results, const char *eval_name, bool last) {
  for (int i = 0; i < n; i++) TRY(run_one(e, &exporters[i], checkpoint, results, eval_name, last));
  return NULL;
}
