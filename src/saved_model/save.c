/* Writing SavedModels; see shoal/saved_model.h.
 *
 * All is written into a folder beside, DIR.tempstate..., which gets its name at the end: who watches for new versions
 * of a model finds whole ones alone.
 *
 * Where there are no variables there is no saver, and as one of version 1 no checkpoint. Objects need one all the same,
 * in which they are found; loaders of version 1 that see it ask for it to be restored, by an op that does nothing. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/given.h"
#include "base/log.h"
#include "base/options.h"
#include "checkpoint/bundle.h"
#include "graph/builder.h"
#include "graph/given.h"
#include "proto/meta_graph.wire.h"
#include "saved_model/meta.h"
#include "saved_model/objects.h"
#include "tensor/tensor_proto.h"
#include "train/meta_graph.h"
#include "train/saver.h"

enum { SCHEMA_VERSION = 1 };

struct export {
  shoal_graph *graph;
  shoal_session *session;
  shoal_export_options o; /* of this version, arrays too */
  shoal_export_signature *signatures;
  shoal_export_asset *assets;
  char **asset_names; /* of their copies */
  const char *dir;
  char *temporary;               /* the folder that becomes dir */
  shoal_saver *saver, *made;     /* saver NULL: there is nothing to save */
  struct shoal_graph *functions; /* the graph with signatures as functions, where it has objects; else NULL */
  struct object_result objects;
};

/* ---- the message ---- */

static void put_tensor_info(struct text *t, shoal_out o) {
  struct shape shape = {0};
  meta_graph_put_out(t, TensorInfo_name, o);
  put_TensorInfo_dtype(t, (int)shoal_out_dtype(o));
  shape.rank = shoal_out_shape(o, shape.dims);
  size_t at = begin_TensorInfo_tensor_shape(t);
  shape_proto_encode(&shape, t);
  wire_end(t, at);
}

/* Of inputs or of outputs: their entries have the same fields. */
static void put_values(struct text *t, uint32_t tag, const shoal_export_value *v, int n) {
  for (int i = 0; i < n; i++) {
    size_t entry = wire_open(t, tag);
    put_SignatureDef_InputsEntry_key(t, v[i].key);
    size_t value = begin_SignatureDef_InputsEntry_value(t);
    put_tensor_info(t, v[i].tensor);
    wire_end(t, value);
    wire_end(t, entry);
  }
}

static const char *signature_key(const shoal_export_signature *s) { return s->key ? s->key : "serving_default"; }

static void put_signature(struct text *t, const shoal_export_signature *s) {
  size_t entry = begin_MetaGraphDef_signature_def(t);
  put_MetaGraphDef_SignatureDefEntry_key(t, signature_key(s));
  size_t value = begin_MetaGraphDef_SignatureDefEntry_value(t);
  put_values(t, SignatureDef_inputs, s->inputs, s->n_inputs);
  put_values(t, SignatureDef_outputs, s->outputs, s->n_outputs);
  put_SignatureDef_method_name(t, s->method ? s->method : "tensorflow/serving/predict");
  wire_end(t, value);
  wire_end(t, entry);
}

static const char *file_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static void put_asset(struct text *t, const shoal_export_asset *a, const char *name) {
  size_t at = begin_MetaGraphDef_asset_file_def(t), info = begin_AssetFileDef_tensor_info(t);
  meta_graph_put_out(t, TensorInfo_name, a->tensor);
  wire_end(t, info);
  put_AssetFileDef_filename(t, name);
  wire_end(t, at);
}

static void put_main_op(struct text *t, const char *name) {
  size_t entry = begin_MetaGraphDef_collection_def(t);
  put_MetaGraphDef_CollectionDefEntry_key(t, "saved_model_main_op");
  size_t value = begin_MetaGraphDef_CollectionDefEntry_value(t), list = begin_CollectionDef_node_list(t);
  put_CollectionDef_NodeList_value(t, name);
  wire_end(t, list);
  wire_end(t, value);
  wire_end(t, entry);
}

static void put_tags(struct text *t, const char *tags) {
  size_t info = begin_MetaGraphDef_meta_info_def(t);
  for (const char *at = tags; *at;) {
    size_t n = strcspn(at, ",");
    put_MetaGraphDef_MetaInfoDef_tags_n(t, at, n);
    at += n + (at[n] == ',');
  }
  wire_end(t, info);
}

/* With objects, and without variables. */
static shoal_status put_restoring_nothing(struct shoal_graph *g, struct text *out) {
  struct meta_saver none = {0};
  graph_push_scope(g, "save");
  none.filename = shoal_placeholder(g, SHOAL_STRING, SHOAL_SCALAR, "prefix");
  none.save = build_op1(g, "Identity", none.filename);
  none.restore = shoal_group(g, NULL, 0, "restore_all");
  graph_pop_scope(g);
  if (graph_error(g)) return status_copy(graph_error(g));
  return meta_graph_encode(g, &none, out);
}

static shoal_status put_meta_graph(const struct export *e, struct text *out) {
  const struct text *meta;
  if (e->functions)
    return e->saver ? saver_meta_graph_of(e->saver, e->functions, out) : put_restoring_nothing(e->functions, out);
  if (!e->saver) return meta_graph_encode(e->graph, NULL, out);
  TRY(saver_meta_graph(e->saver, &meta));
  text_add(out, meta->at, meta->n);
  return NULL;
}

static shoal_status encode(const struct export *e, struct text *out) {
  put_SavedModel_saved_model_schema_version(out, SCHEMA_VERSION);
  size_t at = begin_SavedModel_meta_graphs(out);
  put_tags(out, e->o.tags ? e->o.tags : "serve");
  TRY(put_meta_graph(e, out));
  for (int i = 0; i < e->o.n_signatures; i++) put_signature(out, &e->signatures[i]);
  for (int i = 0; i < e->o.n_assets; i++) put_asset(out, &e->assets[i], e->asset_names[i]);
  if (e->o.main_op) put_main_op(out, shoal_op_name(e->o.main_op));
  if (e->functions) put_MetaGraphDef_object_graph_def_n(out, e->objects.graph.at, e->objects.graph.n);
  wire_end(out, at);
  return NULL;
}

/* ---- mistakes ---- */

static shoal_status check_values(const struct export *e, const char *signature, const char *what,
                                 const shoal_export_value *v, int n) {
  if (n < 0 || (n && !v)) return INVALID("signature '%s': its %ss are NULL", signature, what);
  for (int i = 0; i < n; i++) {
    if (!v[i].key) return INVALID("signature '%s': %s %d has no key", signature, what, i);
    if (!v[i].tensor.node || !graph_has(e->graph, v[i].tensor.node))
      return INVALID("signature '%s': %s '%s' is no tensor of the graph", signature, what, v[i].key);
    for (int k = 0; k < i; k++)
      if (!strcmp(v[i].key, v[k].key)) return INVALID("signature '%s': two %ss '%s'", signature, what, v[i].key);
  }
  return NULL;
}

static shoal_status check_signatures(const struct export *e) {
  for (int i = 0; i < e->o.n_signatures; i++) {
    const shoal_export_signature *s = &e->signatures[i];
    TRY(check_values(e, signature_key(s), "input", s->inputs, s->n_inputs));
    TRY(check_values(e, signature_key(s), "output", s->outputs, s->n_outputs));
    for (int k = 0; k < i; k++)
      if (!strcmp(signature_key(s), signature_key(&e->signatures[k])))
        return INVALID("two signatures '%s'", signature_key(s));
  }
  return NULL;
}

static shoal_status check_assets(const struct export *e) {
  for (int i = 0; i < e->o.n_assets; i++) {
    const shoal_export_asset *a = &e->assets[i];
    if (!a->path || !*file_name(a->path)) return INVALID("asset %d has no path", i);
    if (!a->tensor.node || !graph_has(e->graph, a->tensor.node))
      return INVALID("asset '%s': its tensor is none of the graph", a->path);
  }
  return NULL;
}

static shoal_status check_folder(const char *dir) {
  struct path_list there = {0};
  if (!*dir) return INVALID("a SavedModel's folder has no name");
  if (!file_exists(dir)) return NULL;
  shoal_status s = directory_list(dir, &there);
  if (!s && there.paths.n)
    s = STATUS(SHOAL_ALREADY_EXISTS, "'%s' is there already, and not empty: give a folder of its own", dir);
  path_list_release(&there);
  return s;
}

/* ---- the folder ---- */

static shoal_status copy_file(const char *from, const char *to) {
  char *data;
  size_t n;
  TRY(file_read(from, 0, &data, &n));
  shoal_status s = file_write(to, data, n);
  free(data);
  return s;
}

/* Is this the name of another file before this one? */
static bool is_taken(const struct export *e, int asset, const char *name) {
  for (int k = 0; k < asset; k++)
    if (!strcmp(e->asset_names[k], name) && strcmp(e->assets[k].path, e->assets[asset].path)) return true;
  return false;
}

/* Files of one name from several folders get numbers, as TensorFlow gives them: "words", "words_1". */
static void name_assets(struct export *e) {
  e->asset_names = mem_zalloc((size_t)e->o.n_assets + 1, sizeof *e->asset_names);
  for (int i = 0; i < e->o.n_assets; i++) {
    const char *own = file_name(e->assets[i].path);
    e->asset_names[i] = mem_strdup(own);
    for (int n = 1; is_taken(e, i, e->asset_names[i]); n++) {
      free(e->asset_names[i]);
      e->asset_names[i] = mem_printf("%s_%d", own, n);
    }
  }
}

static shoal_status write_assets(const struct export *e) {
  if (!e->o.n_assets) return NULL;
  char *dir = mem_printf("%s/assets", e->temporary);
  shoal_status s = directory_make(dir);
  for (int i = 0; i < e->o.n_assets && !s; i++) {
    char *to = mem_printf("%s/%s", dir, e->asset_names[i]);
    s = copy_file(e->assets[i].path, to);
    free(to);
  }
  free(dir);
  return s;
}

static shoal_status write_model(const struct export *e) {
  struct text model = {0};
  char *path = mem_printf("%s/saved_model.pb", e->temporary);
  shoal_status s = encode(e, &model);
  if (!s) s = file_write(path, model.at, model.n);
  text_release(&model);
  free(path);
  return s;
}

/* A checkpoint of the objects alone. */
static shoal_status write_objects(const struct export *e, const char *prefix) {
  struct bundle_writer w;
  shoal_tensor *t;
  TRY(shoal_tensor_from_string(e->objects.checkpoint.at, e->objects.checkpoint.n, &t));
  shoal_status s = bundle_writer_open(&w, prefix);
  if (!s) {
    s = bundle_writer_add(&w, OBJECTS_KEY, strlen(OBJECTS_KEY), &t->t);
    if (s) bundle_writer_abort(&w);
    else s = bundle_writer_finish(&w);
  }
  shoal_tensor_unref(t);
  return s;
}

/* Values have two names then: the saver's, and that under which objects look for them. */
static shoal_status join(const struct export *e, const char *const parts[2], const char *prefix) {
  const struct saver_nodes *saved = saver_nodes_of(e->saver);
  struct bundle_alias *also = mem_zalloc((size_t)saved->n_values + 1, sizeof *also);
  char **keys = mem_zalloc((size_t)saved->n_values + 1, sizeof *keys);
  for (int i = 0; i < saved->n_values; i++) {
    keys[i] = objects_value_key(i);
    also[i] = (struct bundle_alias){saved_name(&saved->values[i]), saved_slice(&saved->values[i]), keys[i]};
  }
  shoal_status s = bundle_merge_named(parts, 2, prefix, false, NULL, also, saved->n_values);
  for (int i = 0; i < saved->n_values; i++) free(keys[i]);
  free(keys);
  free(also);
  return s;
}

/* The values as the saver writes them, wherever they are, and where objects find them, as one. */
static shoal_status write_joined(const struct export *e, const char *prefix) {
  char *values = mem_printf("%s_values", prefix), *objects = mem_printf("%s_objects", prefix);
  shoal_status s = saver_write(e->saver, e->session, values);
  if (!s) s = write_objects(e, objects);
  if (!s) s = join(e, (const char *const[]){values, objects}, prefix);
  free(values);
  free(objects);
  return s;
}

static shoal_status write_variables(const struct export *e) {
  char *prefix = mem_printf("%s/variables/variables", e->temporary), *dir = path_directory(prefix);
  shoal_status s = directory_make(dir);
  if (!s && e->saver) s = e->functions ? write_joined(e, prefix) : saver_write(e->saver, e->session, prefix);
  else if (!s && e->functions) s = write_objects(e, prefix);
  free(prefix);
  free(dir);
  return s;
}

static shoal_status write_folder(const struct export *e) {
  TRY(write_variables(e));
  TRY(write_assets(e));
  TRY(write_model(e));
  if (file_exists(e->dir)) TRY(directory_remove(e->dir));
  return file_rename(e->temporary, e->dir);
}

static void remove_all(const char *dir) {
  struct path_list there = {0};
  shoal_status_free(directory_list(dir, &there));
  for (size_t i = 0; i < there.paths.n; i++) {
    char *path = mem_printf("%s/%s", dir, there.paths.at[i]);
    if (file_is_directory(path)) remove_all(path);
    else shoal_status_free(file_remove(path));
    free(path);
  }
  shoal_status_free(directory_remove(dir));
  path_list_release(&there);
}

/* ---- all of it ---- */

static shoal_status take_options(struct export *e, const shoal_export_options *options) {
  TRY(OPTIONS_TAKE(shoal_export_options, saver, &e->o, options));
  TRY(OPTIONS_TAKE_ARRAY(shoal_export_signature, n_outputs, &e->signatures, e->o.signatures, e->o.n_signatures,
                         e->o.signature_size));
  TRY(OPTIONS_TAKE_ARRAY(shoal_export_asset, tensor, &e->assets, e->o.assets, e->o.n_assets, e->o.asset_size));
  TRY(check_signatures(e));
  TRY(check_assets(e));
  name_assets(e);
  return check_folder(e->dir);
}

/* Of a graph from elsewhere, which has a variable without the nodes that one made here is known by: its value would be
 * lost without a word. */
static shoal_status check_no_variables(struct shoal_graph *g) {
  int n = shoal_local_variables(g, NULL, 0);
  shoal_var *local = mem_zalloc((size_t)n + 1, sizeof *local);
  const struct shoal_node *unknown = NULL;
  shoal_local_variables(g, local, n);
  for (size_t i = 0; i < g->nodes.n && !unknown; i++) {
    const struct shoal_node *v = g->nodes.at[i];
    if (!v || !(op_is(v->op, "VarHandleOp") || op_is(v->op, "VariableV2") || op_is(v->op, "Variable"))) continue;
    unknown = v;
    for (int k = 0; k < n; k++)
      if (local[k].handle.node == v) unknown = NULL;
  }
  free(local);
  return unknown ? INVALID("{{node %s}} is a variable that was not made here: give a saver of it", unknown->name)
                 : NULL;
}

/* A saver of all variables becomes a part of the graph where none is given and there are some. */
static shoal_status find_saver(struct export *e) {
  e->saver = e->o.saver;
  if (e->saver) return NULL;
  bool any = shoal_variables(e->graph, false, NULL, 0) > 0;
  if (any) e->saver = e->made = shoal_saver_new(e->graph, NULL);
  if (shoal_graph_error(e->graph)) return status_copy(shoal_graph_error(e->graph));
  return any ? shoal_session_extend(e->session, e->graph) : check_no_variables(e->graph);
}

static shoal_status make_objects(struct export *e) {
  const struct saver_nodes *saved = e->saver ? saver_nodes_of(e->saver) : NULL;
  struct object_source from = {.graph = e->graph,
                               .values = saved ? saved->values : NULL,
                               .n_values = saved ? saved->n_values : 0,
                               .signatures = e->signatures,
                               .n_signatures = e->o.n_signatures,
                               .assets = e->assets,
                               .n_assets = e->o.n_assets,
                               .main_op = e->o.main_op};
  e->functions = graph_copy(e->graph, NULL);
  shoal_status s = objects_make(&from, e->functions, &e->objects);
  if (!s) return NULL;
  graph_free(e->functions);
  e->functions = NULL;
  if (shoal_status_code(s) != SHOAL_UNIMPLEMENTED) return s;
  LOGI("the SavedModel '%s' is written without objects, as one of version 1: %s", e->dir, shoal_status_message(s));
  shoal_status_free(s);
  return NULL;
}

static shoal_status export_model(struct export *e, const shoal_export_options *options) {
  TRY(take_options(e, options));
  TRY(find_saver(e));
  TRY(make_objects(e));
  shoal_status s = directory_make(e->temporary);
  if (!s) s = write_folder(e);
  if (s) remove_all(e->temporary);
  return s;
}

shoal_status shoal_saved_model_save(shoal_graph *g, shoal_session *session, const char *dir,
                                    const shoal_export_options *options) {
  GIVEN(g);
  GIVEN(session);
  GIVEN(dir);
  struct export e = {.graph = g, .session = session};
  char *folder = meta_folder(dir);
  e.dir = folder;
  e.temporary = mem_printf("%s.tempstate-%d-%" PRId64, folder, (int)getpid(), wall_nanos());
  shoal_status s = export_model(&e, options);
  if (e.functions) graph_free(e.functions);
  object_result_release(&e.objects);
  shoal_saver_free(e.made);
  free(e.signatures);
  for (int i = 0; e.asset_names && i < e.o.n_assets; i++) free(e.asset_names[i]);
  free(e.asset_names);
  free(e.assets);
  free(e.temporary);
  free(folder);
  return status_prefix(s, "the SavedModel '%s' was not written: ", dir);
}
