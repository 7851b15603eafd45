/* An estimator, and what its two functions fill in. The cluster is TF_CONFIG's, looked at once; the server of this task
 * starts with the first training, so that evaluating and exporting need no port. */
#include "estimator/estimator.h"

#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/options.h"
#include "graph/given.h"

/* ---- inputs ---- */

static void add_feature(shoal_inputs *in, const char *func, const char *name, shoal_named_feature f) {
  if (!name || !f.values.node) {
    graph_fail(in->g, INVALID("%s: a feature without %s", func, name ? "values" : "a name"));
    return;
  }
  for (size_t i = 0; i < in->features.n; i++)
    if (!strcmp(in->features.at[i].name, name))
      graph_fail(in->g, INVALID("%s: feature '%s' is given twice", func, name));
  f.name = mem_strdup(name);
  vec_push(&in->features, f);
}

void shoal_inputs_feature(shoal_inputs *in, const char *name, shoal_out values) {
  add_feature(in, __func__, name, (shoal_named_feature){.values = values});
}
void shoal_inputs_sparse_feature(shoal_inputs *in, const char *name, shoal_out indices, shoal_out values,
                                 shoal_out dense_shape) {
  add_feature(in, __func__, name, (shoal_named_feature){NULL, values, indices, dense_shape});
}
void shoal_inputs_labels(shoal_inputs *in, shoal_out labels) { in->labels = labels; }
void shoal_inputs_receiver(shoal_inputs *in, const char *name, shoal_out tensor) {
  if (name && tensor.node) vec_push(&in->receivers, (shoal_export_value){mem_strdup(name), tensor});
  else graph_fail(in->g, INVALID("%s: an input without %s", __func__, name ? "a tensor" : "a name"));
}
int shoal_inputs_worker(const shoal_inputs *in) { return in->worker; }
int shoal_inputs_workers(const shoal_inputs *in) { return in->workers; }
const shoal_named_feature *shoal_inputs_features(const shoal_inputs *in, int *n) {
  *n = (int)in->features.n;
  return in->features.at;
}
shoal_out shoal_inputs_feature_named(const shoal_inputs *in, const char *name) {
  for (size_t i = 0; name && i < in->features.n; i++)
    if (!strcmp(in->features.at[i].name, name)) return in->features.at[i].values;
  graph_fail(in->g, INVALID("%s: feature '%s' is not among those given", __func__, name ? name : "(NULL)"));
  return (shoal_out){0};
}
shoal_out shoal_inputs_get_labels(const shoal_inputs *in) { return in->labels; }

void inputs_release(struct shoal_inputs *in) {
  for (size_t i = 0; i < in->features.n; i++) free((char *)in->features.at[i].name);
  for (size_t i = 0; i < in->receivers.n; i++) free((char *)in->receivers.at[i].key);
  vec_release(&in->features);
  vec_release(&in->receivers);
}

/* ---- specs ---- */

void shoal_spec_loss(shoal_estimator_spec *spec, shoal_out loss) { spec->loss = loss; }
void shoal_spec_train(shoal_estimator_spec *spec, shoal_op *op) { spec->train = op; }
void shoal_spec_hook(shoal_estimator_spec *spec, shoal_hook hook) { vec_push(&spec->hooks, hook); }

void shoal_spec_metric(shoal_estimator_spec *spec, const char *name, shoal_metric metric) {
  if (!name) graph_fail(spec->g, INVALID("%s: the name is NULL", __func__));
  else vec_push(&spec->metrics, (struct spec_metric){mem_strdup(name), metric});
}

void shoal_spec_prediction(shoal_estimator_spec *spec, const char *name, shoal_out value) {
  if (!name) graph_fail(spec->g, INVALID("%s: the name is NULL", __func__));
  else vec_push(&spec->predictions, (shoal_export_value){mem_strdup(name), value});
}

void shoal_spec_signature(shoal_estimator_spec *spec, const char *key, const char *method,
                          const shoal_export_value *outputs, int n) {
  GRAPH_GIVEN_ARRAY(spec->g, outputs, n);
  struct spec_signature s = {.key = key ? mem_strdup(key) : NULL, .method = method ? mem_strdup(method) : NULL, .n = n};
  s.outputs = mem_zalloc((size_t)n + 1, sizeof *s.outputs);
  for (int i = 0; i < n; i++)
    s.outputs[i] = (shoal_export_value){mem_strdup(outputs[i].key ? outputs[i].key : ""), outputs[i].tensor};
  vec_push(&spec->signatures, s);
}

void spec_release(struct shoal_estimator_spec *s) {
  for (size_t i = 0; i < s->metrics.n; i++) free(s->metrics.at[i].name);
  for (size_t i = 0; i < s->predictions.n; i++) free((char *)s->predictions.at[i].key);
  for (size_t i = 0; i < s->signatures.n; i++) {
    struct spec_signature *g = &s->signatures.at[i];
    for (int k = 0; k < g->n; k++) free((char *)g->outputs[k].key);
    free(g->outputs);
    free(g->key);
    free(g->method);
  }
  for (size_t i = 0; i < s->hooks.n; i++)
    if (s->hooks.at[i].free) s->hooks.at[i].free(s->hooks.at[i].state);
  vec_release(&s->metrics);
  vec_release(&s->predictions);
  vec_release(&s->signatures);
  vec_release(&s->hooks);
}

/* ---- graphs ---- */

void built_begin(struct built *b, struct shoal_estimator *e) {
  *b = (struct built){.g = shoal_graph_new()};
  b->in.g = b->spec.g = b->g;
  b->in.worker = estimator_worker(e);
  b->in.workers = estimator_workers(e);
  if (e->config.seed) shoal_set_random_seed(b->g, e->config.seed);
}

shoal_status built_input(struct built *b, shoal_mode mode, shoal_input_fn *input, void *arg) {
  input(b->g, mode, &b->in, arg);
  if (graph_error(b->g)) return status_copy(graph_error(b->g));
  if (!b->in.features.n) return INVALID("the input function gave no features");
  if (mode != SHOAL_MODE_PREDICT && !b->in.labels.node) return INVALID("the input function gave no labels");
  return NULL;
}

shoal_status built_check(struct built *b, shoal_mode mode) {
  if (graph_error(b->g)) return status_copy(graph_error(b->g));
  if (mode != SHOAL_MODE_PREDICT && !b->spec.loss.node) return INVALID("the model function gave no loss");
  if (mode == SHOAL_MODE_TRAIN && !b->spec.train) return INVALID("the model function gave no op that trains");
  if (mode == SHOAL_MODE_PREDICT && !b->spec.predictions.n) return INVALID("the model function gave no predictions");
  return NULL;
}

shoal_status built_make(struct built *b, struct shoal_estimator *e, shoal_mode mode, shoal_input_fn *input, void *arg) {
  built_begin(b, e);
  shoal_push_device(b->g, e->device);
  shoal_global_step(b->g);
  shoal_status s = built_input(b, mode, input, arg);
  if (!s) e->model(b->g, mode, &b->in, &b->spec, e->arg);
  shoal_pop_device(b->g);
  return s ? s : built_check(b, mode);
}

void built_release(struct built *b) {
  inputs_release(&b->in);
  spec_release(&b->spec);
  shoal_graph_free(b->g);
}

/* ---- the cluster ---- */

const char *estimator_job(const struct shoal_estimator *e) { return e->cluster ? shoal_cluster_job(e->cluster) : ""; }

static int trainers(const struct shoal_estimator *e, const char *job) {
  return e->cluster ? shoal_cluster_tasks(e->cluster, job) : 0;
}

int estimator_workers(const struct shoal_estimator *e) {
  int n = trainers(e, "chief") + trainers(e, "master") + trainers(e, "worker");
  return n ? n : 1;
}

int estimator_worker(const struct shoal_estimator *e) {
  if (strcmp(estimator_job(e), "worker")) return 0;
  return trainers(e, "chief") + trainers(e, "master") + shoal_cluster_task(e->cluster);
}

/* TF_CONFIG's text: as given, or a file's; NULL: there is none. */
static const char *config_text(const shoal_run_config *c) {
  const char *text = c->tf_config ? c->tf_config : getenv("TF_CONFIG");
  return text && *text ? text : NULL;
}

/* "model_dir" of a TF_CONFIG that is JSON; NULL: there is none. The caller frees it. */
static char *config_model_dir(const char *text) {
  cJSON *json = cJSON_Parse(text);
  const cJSON *dir = cJSON_GetObjectItemCaseSensitive(json, "model_dir");
  char *found = cJSON_IsString(dir) && *dir->valuestring ? mem_strdup(dir->valuestring) : NULL;
  cJSON_Delete(json);
  return found;
}

/* Is there a description of a cluster in it? One without is a process alone. */
static bool has_cluster(const char *text) {
  if (*text != '{') return true;
  cJSON *json = cJSON_Parse(text);
  const cJSON *cluster = cJSON_GetObjectItemCaseSensitive(json, "cluster");
  bool has = !json || (cJSON_IsObject(cluster) && cJSON_GetArraySize(cluster) > 0);
  cJSON_Delete(json);
  return has;
}

static shoal_status take_config(struct shoal_estimator *e, const shoal_run_config *given) {
  TRY(OPTIONS_TAKE(shoal_run_config, device, &e->config, given));
  const char *text = config_text(&e->config);
  char *dir = text && *text == '{' ? config_model_dir(text) : NULL;
  if (e->config.model_dir && dir && strcmp(dir, e->config.model_dir)) {
    shoal_status s = INVALID("model_dir is %s, but TF_CONFIG says %s", e->config.model_dir, dir);
    free(dir);
    return s;
  }
  e->model_dir = dir ? dir : e->config.model_dir ? mem_strdup(e->config.model_dir) : NULL;
  if (!e->model_dir) return INVALID("an estimator needs a model_dir, in its config or in TF_CONFIG");
  if (e->config.warm_start) e->warm_start = mem_strdup(e->config.warm_start);
  if (e->config.warm_start_vars) e->warm_start_vars = mem_strdup(e->config.warm_start_vars);
  e->device = mem_strdup(e->config.device ? e->config.device : "");
  if (text && has_cluster(text)) TRY(shoal_cluster_from_config(text, &e->cluster));
  if (e->config.strategy == SHOAL_ESTIMATOR_MULTI_WORKER && !e->cluster)
    return INVALID("a strategy of several workers needs a cluster: TF_CONFIG is not there");
  return NULL;
}

shoal_status shoal_estimator_new(shoal_model_fn *model, void *arg, const shoal_run_config *config,
                                 shoal_estimator **out) {
  GIVEN(model);
  GIVEN(out);
  struct shoal_estimator *e = mem_zalloc(1, sizeof *e);
  e->model = model;
  e->arg = arg;
  shoal_status s = take_config(e, config);
  if (s) shoal_estimator_free(e);
  else *out = e;
  return s;
}

void shoal_estimator_free(shoal_estimator *e) {
  if (!e) return;
  shoal_server_stop(e->server);
  shoal_cluster_free(e->cluster);
  if (e->release) e->release(e->arg);
  free(e->model_dir);
  free(e->warm_start);
  free(e->warm_start_vars);
  free(e->device);
  free(e);
}

const char *shoal_estimator_model_dir(const shoal_estimator *e) { return e->model_dir; }

char *estimator_eval_dir(const struct shoal_estimator *e, const char *name) {
  return name && *name ? mem_printf("%s/eval_%s", e->model_dir, name) : mem_printf("%s/eval", e->model_dir);
}
