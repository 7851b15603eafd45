/* SavedModels in sessions: loading them, asking their signatures; see shoal/saved_model.h.
 *
 * A model of TensorFlow 2 carries, beside its objects, what loaders of version 1 go by; so there is one way to read
 * both: import the graph, feed the saver the folder's variables, then run what initializes tables, each with the paths
 * of the assets fed. */
#include <string.h>

#include "base/file.h"
#include "base/given.h"
#include "base/suggest.h"
#include "graph/graph.h"
#include "saved_model/model.h"
#include "tensor/tensor.h"

static const char DEFAULT_TAGS[] = "serve", DEFAULT_SIGNATURE[] = "serving_default";

/* ---- loading ---- */

/* What is fed to the saver and to the op that initializes. */
struct load_feeds {
  VEC(const char *) names;
  VEC(shoal_tensor *) values;
};

/* "save/Const:0", as sessions have it. */
static shoal_status add_path(struct load_feeds *f, const char *tensor, char *path) {
  shoal_tensor *t = NULL;
  shoal_status s = shoal_tensor_from_string(path, strlen(path), &t);
  free(path);
  if (s) return s;
  vec_push(&f->names, tensor);
  vec_push(&f->values, t);
  return NULL;
}

static shoal_status add_assets(struct load_feeds *f, const shoal_saved_model *m) {
  for (size_t i = 0; i < m->meta->assets.n; i++) {
    const struct meta_asset *a = &m->meta->assets.at[i];
    TRY(add_path(f, a->tensor, mem_printf("%s/assets/%s", m->dir, a->filename)));
  }
  return NULL;
}

static void feeds_release(struct load_feeds *f) {
  for (size_t i = 0; i < f->values.n; i++) shoal_tensor_unref(f->values.at[i]);
  vec_release(&f->names);
  vec_release(&f->values);
}

/* An op, or a tensor whose op is meant: "init:0", "^init". */
static shoal_status run_op(const shoal_saved_model *m, const struct load_feeds *f, const char *op) {
  char *name = mem_strndup(op, strcspn(op, ":"));
  const char *target = name + (*name == '^');
  shoal_status s =
      shoal_session_run(m->session, NULL, f->names.at, f->values.at, (int)f->names.n, NULL, NULL, 0, &target, 1, NULL);
  free(name);
  return s;
}

static bool has_variables(const struct shoal_graph *g) {
  for (size_t i = 0; i < g->nodes.n; i++) {
    const struct shoal_node *n = g->nodes.at[i];
    if (n && (op_is(n->op, "VarHandleOp") || op_is(n->op, "VariableV2") || op_is(n->op, "Variable"))) return true;
  }
  return false;
}

static shoal_status restore(const shoal_saved_model *m, struct load_feeds *f) {
  const struct meta_model *meta = m->meta;
  char *index = mem_printf("%s/variables/variables.index", m->dir);
  bool there = file_exists(index);
  free(index);
  if (!meta->restore_op || !meta->filename_tensor) return NULL;
  if (!there && has_variables(m->graph)) /* it is being copied, or was not copied whole */
    return NOT_FOUND("it has variables, and there is no variables/variables.index");
  if (!there) return NULL;
  TRY(add_path(f, meta->filename_tensor, mem_printf("%s/variables/variables", m->dir)));
  return status_prefix(run_op(m, f, meta->restore_op), "its variables cannot be restored: ");
}

static shoal_status initialize(const shoal_saved_model *m) {
  struct load_feeds f = {0};
  shoal_status s = add_assets(&f, m);
  if (!s && m->meta->init_op) s = status_prefix(run_op(m, &f, m->meta->init_op), "it cannot be initialized: ");
  feeds_release(&f);
  return s;
}

static shoal_status fill_session(const shoal_saved_model *m) {
  struct load_feeds f = {0};
  shoal_status s = add_assets(&f, m);
  if (!s) s = restore(m, &f);
  feeds_release(&f);
  return s ? s : initialize(m);
}

static shoal_status load(shoal_saved_model *m, const char *tags, const shoal_session_options *options) {
  TRY(meta_file_read(&m->file, m->dir));
  TRY(meta_file_find(&m->file, m->dir, tags, &m->meta));
  TRY(shoal_graph_import(m->graph, m->meta->graph_def.at, wire_left(&m->meta->graph_def), NULL));
  TRY(shoal_session_open(m->graph, options, &m->session));
  return fill_session(m);
}

shoal_status shoal_saved_model_load(const char *dir, const char *tags, const shoal_session_options *options,
                                    shoal_saved_model **out) {
  GIVEN(dir);
  GIVEN(out);
  *out = NULL;
  shoal_saved_model *m = mem_zalloc(1, sizeof *m);
  m->dir = meta_folder(dir);
  m->graph = shoal_graph_new();
  shoal_status s = load(m, tags ? tags : DEFAULT_TAGS, options);
  if (s) {
    shoal_saved_model_free(m);
    return status_prefix(s, "the SavedModel '%s' cannot be loaded: ", dir);
  }
  *out = m;
  return NULL;
}

void shoal_saved_model_free(shoal_saved_model *m) {
  if (!m) return;
  if (m->session) shoal_status_free(shoal_session_close(m->session));
  shoal_graph_free(m->graph);
  meta_file_release(&m->file);
  free(m->dir);
  free(m);
}

shoal_graph *shoal_saved_model_graph(const shoal_saved_model *m) { return m->graph; }
shoal_session *shoal_saved_model_session(const shoal_saved_model *m) { return m->session; }

const shoal_signature *shoal_saved_model_signature_at(const shoal_saved_model *m, int i) {
  return i >= 0 && (size_t)i < m->meta->signatures.n ? &m->meta->signatures.at[i] : NULL;
}

const shoal_signature *shoal_saved_model_signature(const shoal_saved_model *m, const char *key) {
  return key ? meta_signature(m->meta, key) : NULL;
}

/* ---- asking ---- */

/* What is there, for errors: "'a', 'b'". */
static void add_keys(struct text *t, const shoal_signature_value *const *at, int n) {
  for (int i = 0; i < n; i++) text_addf(t, "%s'%s'", i ? ", " : "", at[i]->key);
  if (!n) text_adds(t, "none");
}

static shoal_status find_value(const shoal_signature *s, bool is_input, const char *key,
                               const shoal_signature_value **out) {
  const shoal_signature_value *const *at = is_input ? s->inputs : s->outputs;
  int n = is_input ? s->n_inputs : s->n_outputs;
  const char *what = is_input ? "input" : "output";
  for (int i = 0; i < n; i++)
    if (!strcmp(at[i]->key, key)) {
      *out = at[i];
      if (at[i]->tensor) return NULL;
      return UNIMPLEMENTED("%s '%s' of signature '%s' is made of several tensors", what, key, s->key);
    }
  struct text there = {0};
  add_keys(&there, at, n);
  shoal_status e = INVALID("signature '%s' has no %s '%s'; it has: %s", s->key, what, key, text_cstr(&there));
  text_release(&there);
  return e;
}

static shoal_status check_value(const shoal_signature *s, const shoal_signature_value *v, const shoal_tensor *given) {
  if (shoal_tensor_dtype(given) != v->dtype)
    return INVALID("input '%s' of signature '%s' is %s, not %s", v->key, s->key, shoal_dtype_name(v->dtype),
                   shoal_dtype_name(shoal_tensor_dtype(given)));
  struct shape want = shape_unknown_of_rank(v->rank), have = tensor_shape(&given->t);
  for (int i = 0; i < v->rank; i++) want.dims[i] = v->dims[i];
  if (!shape_compatible(&want, &have))
    return INVALID("input '%s' of signature '%s' is of shape %s, not %s", v->key, s->key, shape_str(&want),
                   shape_str(&have));
  return NULL;
}

static int times_given(const char *key, const char *const *keys, int n) {
  int times = 0;
  for (int k = 0; k < n; k++) times += !strcmp(keys[k], key);
  return times;
}

/* Whether the graph has a value of its own for this input: a PlaceholderWithDefault. */
static bool has_own_value(const shoal_graph *g, const shoal_signature_value *v) {
  if (!v->tensor) return false;
  char *name = mem_strndup(v->tensor, strcspn(v->tensor, ":"));
  const struct shoal_node *n = graph_find(g, name);
  free(name);
  return n && op_is(n->op, "PlaceholderWithDefault");
}

static shoal_status check_given(const shoal_graph *g, const shoal_signature *s, const char *const *keys, int n) {
  for (int i = 0; i < s->n_inputs; i++) {
    int times = times_given(s->inputs[i]->key, keys, n);
    if (times > 1 || (!times && !has_own_value(g, s->inputs[i])))
      return INVALID("input '%s' of signature '%s' is %s", s->inputs[i]->key, s->key,
                     times ? "given more than once" : "missing");
  }
  return NULL;
}

/* Names of the graph's tensors in the place of keys. */
static shoal_status look_up(const shoal_graph *g, const shoal_signature *s, const char *const *keys,
                            shoal_tensor *const *values, int n, const char *const *output_keys, int n_outputs,
                            const char **names) {
  const shoal_signature_value *v;
  for (int i = 0; i < n; i++) {
    TRY(find_value(s, true, keys[i], &v));
    if (!values[i]) return INVALID("input '%s' of signature '%s' is NULL", keys[i], s->key);
    TRY(check_value(s, v, values[i]));
    names[i] = v->tensor;
  }
  TRY(check_given(g, s, keys, n));
  for (int i = 0; i < n_outputs; i++) {
    TRY(find_value(s, false, output_keys[i], &v));
    names[n + i] = v->tensor;
  }
  return NULL;
}

shoal_status model_signature(const shoal_saved_model *m, const char *key, const shoal_signature **out) {
  if (!key) key = DEFAULT_SIGNATURE;
  *out = meta_signature(m->meta, key);
  if (*out) return NULL;
  const shoal_signature *first = m->meta->signatures.at;
  const char *meant = first ? suggest_name(key, strlen(key), &first->key, m->meta->signatures.n, sizeof *first) : NULL;
  return NOT_FOUND("the SavedModel '%s' has no signature '%s'%s%s%s", m->dir, key, meant ? "; did you mean '" : "",
                   meant ? meant : "", meant ? "'?" : "");
}

/* The value that stands for a tensor; NULL: it is to be computed. */
static shoal_tensor *fed_as(const char *tensor, const char *const *names, shoal_tensor *const *values, int n) {
  for (int i = 0; i < n; i++)
    if (!strcmp(names[i], tensor)) return values[i];
  return NULL;
}

/* An output may be an input of its signature: sessions do not fetch what is fed, so it is answered from there. */
static shoal_status run_step(const shoal_saved_model *m, const shoal_run_options *options, const char *const *names,
                             shoal_tensor *const *values, int n, const char *const *wanted, shoal_tensor **outputs,
                             int n_outputs) {
  const char **fetched = mem_zalloc((size_t)n_outputs + 1, sizeof *fetched);
  shoal_tensor **got = mem_zalloc((size_t)n_outputs + 1, sizeof(shoal_tensor *));
  shoal_status e = NULL;
  int n_fetched = 0;
  for (int i = 0; i < n_outputs; i++)
    if (!fed_as(wanted[i], names, values, n)) fetched[n_fetched++] = wanted[i];
  if (n_fetched || !n_outputs)
    e = shoal_session_run(m->session, options, names, values, n, fetched, got, n_fetched, NULL, 0, NULL);
  for (int i = 0, k = 0; i < n_outputs; i++) {
    shoal_tensor *fed = fed_as(wanted[i], names, values, n);
    outputs[i] = e ? NULL : fed ? shoal_tensor_ref(fed) : got[k++];
  }
  free((void *)fetched);
  free((void *)got);
  return e;
}

static shoal_status ask_given(const shoal_saved_model *m, const shoal_signature *s, const shoal_run_options *options,
                              const char *const *keys, shoal_tensor *const *values, int n,
                              const char *const *output_keys, shoal_tensor **outputs, int n_outputs) {
  const char **names = mem_zalloc((size_t)n + (size_t)n_outputs + 1, sizeof *names);
  shoal_status e = look_up(m->graph, s, keys, values, n, output_keys, n_outputs, names);
  if (!e) e = run_step(m, options, names, values, n, names + n, outputs, n_outputs);
  free((void *)names);
  return e;
}

/* Inputs that are left out have the signature's defaults, where it has some. */
shoal_status saved_model_ask(const shoal_saved_model *m, const shoal_signature *s, const shoal_run_options *options,
                             const char *const *keys, shoal_tensor *const *values, int n,
                             const char *const *output_keys, shoal_tensor **outputs, int n_outputs) {
  if (n >= s->n_inputs) return ask_given(m, s, options, keys, values, n, output_keys, outputs, n_outputs);
  VEC(const char *) all_keys = {0};
  VEC(shoal_tensor *) all = {0};
  for (int i = 0; i < n; i++) {
    vec_push(&all_keys, keys[i]);
    vec_push(&all, values[i]);
  }
  for (int i = 0; i < s->n_inputs; i++) {
    const shoal_signature_value *v = s->inputs[i];
    if (!v->default_value || times_given(v->key, keys, n)) continue;
    vec_push(&all_keys, v->key);
    vec_push(&all, v->default_value);
  }
  shoal_status e = ask_given(m, s, options, all_keys.at, all.at, (int)all.n, output_keys, outputs, n_outputs);
  vec_release(&all_keys);
  vec_release(&all);
  return e;
}

shoal_status shoal_saved_model_run(const shoal_saved_model *m, const char *signature, const char *const *keys,
                                   shoal_tensor *const *values, int n, const char *const *output_keys,
                                   shoal_tensor **outputs, int n_outputs) {
  GIVEN(m);
  GIVEN_NAMES(keys, n);
  GIVEN_ARRAY(values, n);
  GIVEN_NAMES(output_keys, n_outputs);
  GIVEN_ARRAY(outputs, n_outputs);
  const shoal_signature *s;
  TRY(model_signature(m, signature, &s));
  return saved_model_ask(m, s, NULL, keys, values, n, output_keys, outputs, n_outputs);
}
