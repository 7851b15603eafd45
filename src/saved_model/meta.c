/* Reading a SavedModel's meta graphs; see meta.h.
 *
 * Whoever wrote the file is not trusted: it is walked by a reader that never leaves it, and names are only looked up
 * later, in the graph. Of two entries of a map with one key the last counts, as protobuf has it. */
#include "saved_model/meta.h"

#include <string.h>

#include "base/file.h"
#include "graph/text_format.h"
#include "proto/graph.wire.h"
#include "proto/meta_graph.pb-c.h"
#include "proto/any.wire.h"
#include "proto/meta_graph.wire.h"
#include "proto/proto_check.h"
#include "tensor/tensor_proto.h"

/* How TensorFlow names what is run when a model is loaded: a signature, or a collection. */
static const char INIT_SIGNATURE[] = "__saved_model_init_op";
static const char ASSETS[] = "saved_model_assets"; /* a collection, too */
static const char MAIN_OP[] = "saved_model_main_op", LEGACY_INIT_OP[] = "legacy_init_op";

/* Bytes that defaults of inputs take by repetition of a few: of all of a file. */
static const size_t MOST_REPEATED = 64 << 20;
enum { MOST_ENTRIES = 10000 }; /* of a map: looking for a key goes through all */

static shoal_status damaged(const char *what) { return STATUS(SHOAL_DATA_LOSS, "%s is damaged", what); }

static char *text_of(const struct wire_field *f) { return mem_strndup((const char *)f->data, f->size); }

static void set_text(char **to, const struct wire_field *f) {
  free(*to);
  *to = text_of(f);
}

static bool is_called(struct wire key, const char *name) {
  return wire_left(&key) == strlen(name) && !memcmp(key.at, name, strlen(name));
}

/* ---- signatures ---- */

/* With its dimensions behind it, in one piece of memory. */
struct value_room {
  shoal_signature_value v;
  int64_t dims[SHOAL_MAX_RANK];
};

static void free_text(const char *s) { free((void *)(uintptr_t)s); }

static void free_value(const shoal_signature_value *v) {
  if (!v) return;
  free_text(v->key);
  free_text(v->tensor);
  shoal_tensor_unref(v->default_value);
  free((void *)(uintptr_t)v);
}

static void free_values(const shoal_signature_value *const *at, int n) {
  for (int i = 0; i < n; i++) free_value(at[i]);
  free((void *)(uintptr_t)at);
}

static void signature_release(shoal_signature *s) {
  free_text(s->key);
  free_text(s->method);
  free_values(s->inputs, s->n_inputs);
  free_values(s->outputs, s->n_outputs);
}

static shoal_status read_shape(const struct wire_field *f, struct value_room *to) {
  struct shape shape;
  TRY(shape_proto_decode(f->data, f->size, &shape));
  to->v.rank = shape.rank;
  for (int i = 0; i < shape.rank; i++) to->dims[i] = shape.dims[i];
  return NULL;
}

static shoal_status read_tensor_info(struct wire w, struct value_room *to) {
  struct wire_field f;
  enum wire_step step;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) switch (f.tag) {
      case TensorInfo_name:
        free_text(to->v.tensor);
        to->v.tensor = text_of(&f);
        break;
      case TensorInfo_dtype: to->v.dtype = (shoal_dtype)f.value; break;
      case TensorInfo_tensor_shape: TRY(read_shape(&f, to)); break;
    }
  return step == WIRE_BROKEN ? damaged("a signature") : NULL;
}

/* An entry of a map from keys to tensors: inputs' and outputs' have the same fields. */
static shoal_status read_value(struct wire w, struct value_room *to) {
  struct wire_field f;
  enum wire_step step;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) switch (f.tag) {
      case SignatureDef_InputsEntry_key:
        free_text(to->v.key);
        to->v.key = text_of(&f);
        break;
      case SignatureDef_InputsEntry_value: TRY(read_tensor_info(wire_inside(&f), to)); break;
    }
  return step == WIRE_BROKEN ? damaged("a signature") : NULL;
}

typedef VEC(const shoal_signature_value *) value_list;

static shoal_status add_value(struct wire w, value_list *to) {
  if (to->n == MOST_ENTRIES) return INVALID("a signature of more than %d inputs or outputs", MOST_ENTRIES);
  struct value_room *v = mem_zalloc(1, sizeof *v);
  v->v.rank = -1;
  v->v.dims = v->dims;
  shoal_status s = read_value(w, v);
  if (!v->v.key) v->v.key = mem_strdup("");
  for (size_t i = 0; i < to->n; i++)
    if (!strcmp(to->at[i]->key, v->v.key)) {
      free_value(to->at[i]);
      to->at[i] = &v->v;
      return s;
    }
  vec_push(to, &v->v);
  return s;
}

/* An entry of the map of defaults: the input has been read. One that is of no input is left. */
static shoal_status add_default(struct wire w, const value_list *in, size_t *budget) {
  struct wire key = {0}, value = {0};
  find_SignatureDef_DefaultsEntry_key(w, &key);
  find_SignatureDef_DefaultsEntry_value(w, &value);
  for (size_t i = 0; i < in->n; i++) {
    struct value_room *v = (struct value_room *)(uintptr_t)in->at[i];
    struct tensor t;
    if (!is_called(key, v->v.key)) continue;
    TRY(status_prefix(tensor_proto_decode_within(value.at, wire_left(&value), budget, &t),
                      "the default of input '%s' of a signature: ", v->v.key));
    shoal_tensor_unref(v->v.default_value);
    v->v.default_value = tensor_handle_take(&t);
  }
  return NULL;
}

static shoal_status read_defaults(struct wire w, const value_list *in, size_t *budget) {
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
    if (f.tag == SignatureDef_defaults) TRY(add_default(wire_inside(&f), in, budget));
  return NULL;
}

static int by_value_key(const void *a, const void *b) {
  return strcmp((*(const shoal_signature_value *const *)a)->key, (*(const shoal_signature_value *const *)b)->key);
}

static shoal_status read_values(struct wire w, shoal_signature *to, value_list *in, value_list *out) {
  struct wire_field f;
  enum wire_step step;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) switch (f.tag) {
      case SignatureDef_inputs: TRY(add_value(wire_inside(&f), in)); break;
      case SignatureDef_outputs: TRY(add_value(wire_inside(&f), out)); break;
      case SignatureDef_method_name:
        free_text(to->method);
        to->method = text_of(&f);
        break;
    }
  return step == WIRE_BROKEN ? damaged("a signature") : NULL;
}

static shoal_status read_signature(struct wire w, shoal_signature *to, size_t *budget) {
  value_list in = {0}, out = {0};
  shoal_status s = read_values(w, to, &in, &out);
  if (!s) s = read_defaults(w, &in, budget);
  if (in.n) qsort(in.at, in.n, sizeof *in.at, by_value_key);
  if (out.n) qsort(out.at, out.n, sizeof *out.at, by_value_key);
  to->inputs = in.at, to->n_inputs = (int)in.n;
  to->outputs = out.at, to->n_outputs = (int)out.n;
  return s;
}

static shoal_status add_signature(struct wire w, struct meta_model *m) {
  if (m->signatures.n == MOST_ENTRIES) return INVALID("a graph of more than %d signatures", MOST_ENTRIES);
  shoal_signature sig = {0};
  struct wire key = {0}, value = {0};
  find_MetaGraphDef_SignatureDefEntry_key(w, &key);
  find_MetaGraphDef_SignatureDefEntry_value(w, &value);
  shoal_status s = read_signature(value, &sig, &m->repeated);
  sig.key = mem_strndup((const char *)key.at, wire_left(&key));
  if (!sig.method) sig.method = mem_strdup("");
  for (size_t i = 0; i < m->signatures.n; i++)
    if (!strcmp(m->signatures.at[i].key, sig.key)) {
      signature_release(&m->signatures.at[i]);
      m->signatures.at[i] = sig;
      return s;
    }
  vec_push(&m->signatures, sig);
  return s;
}

static int by_key(const void *a, const void *b) {
  return strcmp(((const shoal_signature *)a)->key, ((const shoal_signature *)b)->key);
}

const shoal_signature *meta_signature(const struct meta_model *m, const char *key) {
  for (size_t i = 0; i < m->signatures.n; i++)
    if (!strcmp(m->signatures.at[i].key, key)) return &m->signatures.at[i];
  return NULL;
}

/* ---- the rest of a meta graph ---- */

static shoal_status read_info(struct wire w, struct meta_model *m) {
  struct wire_field f;
  enum wire_step step;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD)
    if (f.tag == MetaGraphDef_MetaInfoDef_tags) vec_push(&m->tags, text_of(&f));
  return step == WIRE_BROKEN ? damaged("what a graph says of itself") : NULL;
}

static shoal_status read_saver(struct wire w, struct meta_model *m) {
  struct wire_field f;
  enum wire_step step;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) switch (f.tag) {
      case SaverDef_filename_tensor_name: set_text(&m->filename_tensor, &f); break;
      case SaverDef_restore_op_name: set_text(&m->restore_op, &f); break;
    }
  return step == WIRE_BROKEN ? damaged("the saver") : NULL;
}

static void free_asset(struct meta_asset *a) {
  free(a->tensor);
  free(a->filename);
}

/* A file that is listed twice is fed once; of two for one tensor the last counts. */
static void drop_asset_of(struct meta_model *m, const char *tensor) {
  for (size_t i = 0; i < m->assets.n; i++) {
    if (strcmp(m->assets.at[i].tensor, tensor)) continue;
    free_asset(&m->assets.at[i]);
    m->assets.at[i] = vec_last(&m->assets);
    m->assets.n--;
    return;
  }
}

static shoal_status read_asset(struct wire w, struct meta_model *m) {
  struct wire info = {0}, tensor = {0}, name = {0};
  find_AssetFileDef_tensor_info(w, &info);
  find_AssetFileDef_filename(w, &name);
  find_TensorInfo_name(info, &tensor);
  struct meta_asset a = {mem_strndup((const char *)tensor.at, wire_left(&tensor)),
                         mem_strndup((const char *)name.at, wire_left(&name))};
  drop_asset_of(m, a.tensor);
  vec_push(&m->assets, a);
  if (strchr(a.filename, '/') || !*a.filename)
    return INVALID("asset '%s' of a SavedModel is no file of its folder", a.filename);
  return NULL;
}

/* As models of version 1 have them: messages in a collection. */
static shoal_status read_listed_assets(struct wire list, struct meta_model *m) {
  struct wire_field f;
  struct wire asset;
  enum wire_step step;
  while ((step = wire_next(&list, &f)) == WIRE_FIELD)
    if (f.tag == CollectionDef_AnyList_value && find_Any_value(wire_inside(&f), &asset)) TRY(read_asset(asset, m));
  return step == WIRE_BROKEN ? damaged("the collection of assets") : NULL;
}

/* One node that is run when the model is loaded, the main op before the older one; or the assets, which are told. */
static void read_collection(struct wire w, struct meta_model *m, struct wire *assets) {
  struct wire key = {0}, value = {0}, list = {0}, node = {0};
  find_MetaGraphDef_CollectionDefEntry_key(w, &key);
  find_MetaGraphDef_CollectionDefEntry_value(w, &value);
  if (is_called(key, ASSETS)) find_CollectionDef_any_list(value, assets);
  bool is_main = is_called(key, MAIN_OP), is_legacy = is_called(key, LEGACY_INIT_OP);
  if ((!is_main && !is_legacy) || (is_legacy && m->init_op)) return;
  if (!find_CollectionDef_node_list(value, &list) || !find_CollectionDef_NodeList_value(list, &node)) return;
  free(m->init_op);
  m->init_op = mem_strndup((const char *)node.at, wire_left(&node));
}

static shoal_status read_model(struct wire w, struct meta_model *m) {
  struct wire_field f;
  enum wire_step step;
  struct wire assets = wire_from("", 0); /* of a collection */
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) switch (f.tag) {
      case MetaGraphDef_meta_info_def: TRY(read_info(wire_inside(&f), m)); break;
      case MetaGraphDef_graph_def: m->graph_def = wire_inside(&f); break;
      case MetaGraphDef_saver_def: TRY(read_saver(wire_inside(&f), m)); break;
      case MetaGraphDef_collection_def: read_collection(wire_inside(&f), m, &assets); break;
      case MetaGraphDef_signature_def: TRY(add_signature(wire_inside(&f), m)); break;
      case MetaGraphDef_asset_file_def: TRY(read_asset(wire_inside(&f), m)); break;
      case MetaGraphDef_object_graph_def:
        m->has_objects = true;
        m->objects = wire_inside(&f);
        break;
    }
  if (step == WIRE_BROKEN) return damaged("a graph");
  return m->assets.n ? NULL : read_listed_assets(assets, m);
}

/* TensorFlow 2's way to name the op: a signature with the op as its output. */
static void take_init_signature(struct meta_model *m) {
  const shoal_signature *s = meta_signature(m, INIT_SIGNATURE);
  if (!s || !s->n_outputs || !s->outputs[0]->tensor) return;
  free(m->init_op);
  m->init_op = mem_strdup(s->outputs[0]->tensor);
}

static void model_release(struct meta_model *m) {
  for (size_t i = 0; i < m->tags.n; i++) free(m->tags.at[i]);
  for (size_t i = 0; i < m->signatures.n; i++) signature_release(&m->signatures.at[i]);
  for (size_t i = 0; i < m->assets.n; i++) free_asset(&m->assets.at[i]);
  vec_release(&m->tags);
  vec_release(&m->signatures);
  vec_release(&m->assets);
  free(m->filename_tensor);
  free(m->restore_op);
  free(m->init_op);
}

/* ---- the file ---- */

static shoal_status read_models(struct meta_file *file) {
  struct wire w = wire_from(file->data, file->size);
  size_t repeated = MOST_REPEATED;
  struct wire_field f;
  enum wire_step step;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag != SavedModel_meta_graphs) continue;
    vec_push(&file->models, (struct meta_model){0});
    struct meta_model *m = &vec_last(&file->models);
    m->message = wire_inside(&f);
    m->repeated = repeated;
    TRY(read_model(m->message, m));
    repeated = m->repeated;
    take_init_signature(m);
    if (m->signatures.n) qsort(m->signatures.at, m->signatures.n, sizeof *m->signatures.at, by_key);
  }
  return step == WIRE_BROKEN ? damaged("the file") : NULL;
}

/* The same message, read as text. */
static shoal_status pack_text(struct meta_file *f) {
  Tensorflow__SavedModel *m;
  TRY(text_format_parse(&tensorflow__saved_model__descriptor, f->data, f->size, &m));
  free(f->data);
  f->size = tensorflow__saved_model__get_packed_size(m);
  f->data = mem_alloc(f->size + 1);
  tensorflow__saved_model__pack(m, (uint8_t *)f->data);
  proto_free(m);
  return NULL;
}

char *meta_folder(const char *dir) {
  size_t n = strlen(dir);
  while (n > 1 && dir[n - 1] == '/') n--;
  return mem_strndup(dir, n);
}

shoal_status meta_file_read(struct meta_file *f, const char *dir) {
  char *packed = mem_printf("%s/saved_model.pb", dir), *text = mem_printf("%s/saved_model.pbtxt", dir);
  bool is_text = !file_exists(packed) && file_exists(text);
  const char *path = is_text ? text : packed;
  *f = (struct meta_file){0};
  shoal_status s = is_text || file_exists(packed) ? file_read(path, 0, &f->data, &f->size)
                                                  : NOT_FOUND("there is no SavedModel in '%s': neither %s nor %s", dir,
                                                              "saved_model.pb", "saved_model.pbtxt");
  if (!s && is_text) s = pack_text(f);
  if (!s) s = status_prefix(read_models(f), "%s: ", path);
  free(packed);
  free(text);
  return s;
}

void meta_file_release(struct meta_file *f) {
  for (size_t i = 0; i < f->models.n; i++) model_release(&f->models.at[i]);
  vec_release(&f->models);
  free(f->data);
  f->data = NULL;
}

/* ---- by tags ---- */

static bool has_tag(const struct meta_model *m, const char *tag, size_t n) {
  for (size_t i = 0; i < m->tags.n; i++)
    if (strlen(m->tags.at[i]) == n && !memcmp(m->tags.at[i], tag, n)) return true;
  return false;
}

static bool has_tags(const struct meta_model *m, const char *tags) {
  size_t count = 0;
  for (const char *at = tags; *at; count++) {
    size_t n = strcspn(at, ",");
    if (!has_tag(m, at, n)) return false;
    at += n + (at[n] == ',');
  }
  return count == m->tags.n;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

void meta_tags_print(const struct meta_model *m, struct text *out) {
  VEC(char *) sorted = {0};
  for (size_t i = 0; i < m->tags.n; i++) vec_push(&sorted, m->tags.at[i]);
  if (sorted.n) qsort(sorted.at, sorted.n, sizeof *sorted.at, by_text);
  for (size_t i = 0; i < sorted.n; i++) text_addf(out, "%s%s", i ? ", " : "", sorted.at[i]);
  vec_release(&sorted);
}

shoal_status meta_file_find(const struct meta_file *f, const char *dir, const char *tags,
                            const struct meta_model **out) {
  struct text there = {0};
  for (size_t i = 0; i < f->models.n; i++) {
    *out = &f->models.at[i];
    if (has_tags(*out, tags)) {
      text_release(&there);
      return NULL;
    }
    text_adds(&there, i ? "; '" : "'");
    meta_tags_print(*out, &there);
    text_adds(&there, "'");
  }
  shoal_status s = NOT_FOUND("the SavedModel in '%s' has no graph with the tags '%s'; there %s: %s", dir, tags,
                             f->models.n == 1 ? "is one" : "are", there.n ? text_cstr(&there) : "none");
  text_release(&there);
  return s;
}
