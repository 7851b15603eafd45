/* See json_examples.h. A feature's kind is that of its first value: true and whole numbers are int64, other numbers
 * float, strings bytes. */
#include "serving/json_examples.h"

#include <math.h>
#include <string.h>

#include "proto/example.wire.h"
#include "serving/json_tensor.h"
#include "tensor/tensor.h"

enum feature_kind { FEATURE_NONE, FEATURE_BYTES, FEATURE_FLOAT, FEATURE_INT64 };

static shoal_status kind_of(json_value v, const char *name, enum feature_kind *out) {
  enum json_type t = json_type_of(v);
  if (t == JSON_TRUE || t == JSON_FALSE) *out = FEATURE_INT64;
  else if (t == JSON_STRING || json_is_base64(v)) *out = FEATURE_BYTES;
  else if (t == JSON_NUMBER) *out = json_number_of(v).kind == JSON_DECIMAL ? FEATURE_FLOAT : FEATURE_INT64;
  else return INVALID("Feature: %s has element with unexpected JSON type: %s", name, json_type_name(t));
  return NULL;
}

static shoal_status put_bytes(json_value v, struct text *out) {
  struct text bytes = {0};
  shoal_status s = NULL;
  if (json_type_of(v) == JSON_STRING) json_string(v, &bytes);
  else s = json_base64(v, &bytes);
  if (!s) put_BytesList_value_n(out, text_cstr(&bytes), bytes.n);
  text_release(&bytes);
  return s;
}

/* One value of a feature of that kind. */
static shoal_status put_value(json_value v, const char *name, enum feature_kind kind, struct text *out) {
  static const char *const names[] = {"UNKNOWN", "bytes", "float", "int64"};
  enum feature_kind mine;
  TRY(kind_of(v, name, &mine));
  if (mine != kind) return INVALID("Unexpected element type in feature: %s expecting type: %s", name, names[kind]);
  if (kind == FEATURE_BYTES) return put_bytes(v, out);
  if (json_type_of(v) != JSON_NUMBER) {
    put_Int64List_value(out, json_type_of(v) == JSON_TRUE);
    return NULL;
  }
  struct json_number n = json_number_of(v);
  if (n.kind == JSON_UNSIGNED) return INVALID("Feature: %s has uint64 element. Only int64 is supported.", name);
  if (kind == FEATURE_INT64) put_Int64List_value(out, n.i);
  else if (isfinite(n.d) && fabs(n.d) > 3.40282346638528859811704183484516925e+38)
    return INVALID("Feature: %s: a number does not fit into a float", name);
  else put_FloatList_value(out, (float)n.d);
  return NULL;
}

static shoal_status put_list(json_value v, const char *name, enum feature_kind kind, struct text *out) {
  if (json_type_of(v) != JSON_ARRAY) return put_value(v, name, kind, out);
  json_value key, value;
  for (struct json_walk w = json_inside(v); json_next(&w, &key, &value);) TRY(put_value(value, name, kind, out));
  return NULL;
}

static shoal_status put_feature(json_value v, const char *name, struct text *out) {
  enum feature_kind kind = FEATURE_NONE;
  json_value key, first = v;
  if (json_type_of(v) == JSON_ARRAY) {
    struct json_walk w = json_inside(v);
    if (!json_next(&w, &key, &first)) return NULL;
  }
  TRY(kind_of(first, name, &kind));
  size_t at = kind == FEATURE_BYTES   ? begin_Feature_bytes_list(out)
              : kind == FEATURE_FLOAT ? begin_Feature_float_list(out)
                                      : begin_Feature_int64_list(out);
  TRY(put_list(v, name, kind, out));
  wire_end(out, at);
  return NULL;
}

/* Appends an Example. */
static shoal_status put_example(json_value v, struct text *out) {
  if (json_type_of(v) != JSON_OBJECT)
    return INVALID("Example must be JSON object but got JSON %s", json_type_name(json_type_of(v)));
  json_value key, value;
  size_t features = begin_Example_features(out);
  shoal_status s = NULL;
  for (struct json_walk w = json_inside(v); !s && json_next(&w, &key, &value);) {
    struct text name = {0};
    json_string(key, &name);
    size_t entry = begin_Features_feature(out);
    put_Features_FeatureEntry_key_n(out, text_cstr(&name), name.n);
    size_t feature = begin_Features_FeatureEntry_value(out);
    s = put_feature(value, text_cstr(&name), out);
    if (!s) wire_end(out, feature);
    if (!s) wire_end(out, entry);
    text_release(&name);
  }
  if (!s) wire_end(out, features);
  return s;
}

static shoal_status fill(struct tensor *t, json_value list, json_value context, const struct unpack_room *room) {
  json_value key, value;
  struct text before = {0};
  shoal_status s = context ? put_example(context, &before) : NULL;
  size_t each = sizeof(struct str) + before.n, all; /* beside the examples' own, little more than their text */
  if (!s && __builtin_mul_overflow((size_t)t->n, each, &all)) s = NO_MEMORY(SIZE_MAX, "examples");
  if (!s) s = unpack_take(room, all);
  int64_t i = 0;
  for (struct json_walk w = json_inside(list); !s && json_next(&w, &key, &value); i++) {
    struct text example = {0};
    text_add(&example, text_cstr(&before), before.n);
    s = status_prefix(put_example(value, &example), "example %lld: ", (long long)i);
    if (!s && !str_try_set(&T_DATA(t, struct str)[i], text_cstr(&example), example.n))
      s = NO_MEMORY(example.n, "an example");
    text_release(&example);
  }
  text_release(&before);
  return s;
}

shoal_status json_read_examples(json_value document, const struct unpack_room *room, shoal_tensor **out) {
  json_value list = json_member(document, "examples"), context = json_member(document, "context");
  struct tensor t;
  if (!list) return INVALID("When method is classify, key 'examples' is expected and was not found");
  if (json_type_of(list) != JSON_ARRAY) return INVALID("Expecting 'examples' value to be an list/array");
  int64_t n = json_count(list);
  if (!n) return INVALID("'examples' value is an empty array");
  TRY(tensor_new_dims(&t, SHOAL_STRING, 1, &n));
  shoal_status s = fill(&t, list, context, room);
  if (s) tensor_release(&t);
  else *out = tensor_handle_take(&t);
  return s;
}

/* ---- answers ---- */

static shoal_status write_classes(const struct query *q, struct json_room *room, int64_t row, struct text *out) {
  enum { MOST = 6 }; /* characters that a byte becomes */
  const shoal_tensor *classes = inference_classes(q), *scores = inference_scores(q);
  int64_t n = (classes ? classes : scores)->t.dims[1];
  text_addc(out, '[');
  for (int64_t i = 0; i < n; i++) {
    const struct str *label = classes ? &T_DATA(&classes->t, struct str)[row * n + i] : NULL;
    struct text shown = {0};
    TRY(json_room_for(room, out, label ? label->size * MOST : 0));
    if (label) text_add_utf8(&shown, str_data(label), label->size);
    text_adds(out, i ? ", [" : "[");
    json_write_string(out, text_cstr(&shown), shown.n);
    text_adds(out, ", ");
    json_write_float(out, scores ? T_DATA(&scores->t, float)[row * n + i] : 0);
    text_addc(out, ']');
    text_release(&shown);
  }
  text_addc(out, ']');
  return NULL;
}

shoal_status json_write_inference(const struct query *q, enum inference kind, struct text *out) {
  const struct tensor *t = &q->answers[0]->t;
  struct json_room room = {.room = &q->room};
  text_adds(out, "{\n    \"results\": [");
  for (int64_t i = 0; i < t->dims[0]; i++) {
    TRY(json_room_for(&room, out, 0));
    if (i) text_adds(out, ", ");
    if (kind == INFERENCE_CLASSIFY) TRY(write_classes(q, &room, i, out));
    else json_write_float(out, T_DATA(t, float)[i]);
  }
  text_adds(out, "\n    ]\n}");
  return NULL;
}
