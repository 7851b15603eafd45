/* Records that are text (DecodeCSV, DecodeJSONExample) and tensors as serialized messages. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "base/wire.h"
#include "graph/shape_fn.h"
#include "ops/text/string_in.h"
#include "proto/example.wire.h"
#include "proto/tensor.wire.h"
#include "tensor/tensor_proto.h"

/* ---- DecodeCSV ---- */

struct csv_state {
  char delim;
  bool quotes;
  char *na;
  size_t na_n;
  VEC(int64_t) select;
  int fields;
};

static shoal_status init_csv(struct kernel_init *ki, void *state) {
  struct csv_state *s = state;
  const struct attr *types, *cols, *delim = node_attr(ki->node, "field_delim"), *na = node_attr(ki->node, "na_value");
  TRY(node_get_list(ki->node, "OUT_TYPE", ATTR_TYPE, &types));
  TRY(node_get_list(ki->node, "select_cols", ATTR_INT, &cols));
  TRY(node_get_bool(ki->node, "use_quote_delim", &s->quotes));
  s->fields = (int)types->list.n;
  for (size_t i = 0; i < cols->list.n; i++) {
    if (i && cols->list.at[i].i <= cols->list.at[i - 1].i)
      return INVALID("select_cols should be strictly increasing indices");
    vec_push(&s->select, cols->list.at[i].i);
  }
  if (s->select.n && s->select.n != types->list.n) return INVALID("select_cols should match output size");
  if (s->select.n && s->select.at[0] < 0) return INVALID("select_cols should be non-negative indices");
  if (!delim || delim->kind != ATTR_STRING || delim->s.n != 1) return INVALID("field_delim should be only 1 char");
  s->delim = delim->s.data[0];
  if (!na || na->kind != ATTR_STRING) return INVALID("na_value must be a string");
  s->na_n = na->s.n;
  s->na = mem_alloc(s->na_n + 1);
  memcpy(s->na, na->s.data, s->na_n);
  return NULL;
}

static void release_csv(void *state) {
  struct csv_state *s = state;
  free(s->na);
  vec_release(&s->select);
}

/* One record while it is read: `field` holds the field just read. */
struct csv_record {
  const char *at, *end;
  struct text field;
};

static shoal_status plain_field(const struct csv_state *s, struct csv_record *r) {
  const char *start = r->at;
  for (; r->at < r->end && *r->at != s->delim; r->at++)
    if ((s->quotes && *r->at == '"') || *r->at == '\n' || *r->at == '\r')
      return INVALID("Unquoted fields cannot have quotes/CRLFs inside");
  text_add(&r->field, start, (size_t)(r->at - start));
  r->at++;
  return NULL;
}

/* Up to a quote that a delimiter or the end follows; two quotes stand for one. */
static shoal_status quoted_field(const struct csv_state *s, struct csv_record *r) {
  r->at++;
  while (r->at + 1 < r->end && !(r->at[0] == '"' && r->at[1] == s->delim)) {
    if (*r->at != '"') {
      text_addc(&r->field, *r->at++);
      continue;
    }
    if (r->at[1] != '"') return INVALID("Quote inside a string has to be escaped by another quote");
    text_addc(&r->field, '"');
    r->at += 2;
  }
  if (!(r->at < r->end && *r->at == '"' && (r->at + 1 == r->end || r->at[1] == s->delim)))
    return INVALID("Quoted field has to end with quote followed by delim or end");
  r->at += 2;
  return NULL;
}

static shoal_status store(struct kernel_ctx *ctx, const struct csv_state *s, const struct text *field, int f, int64_t i,
                          struct tensor *out) {
  bool missing = !field->n || (field->n == s->na_n && memcmp(field->at, s->na, s->na_n) == 0);
  shoal_dtype type = (shoal_dtype)out->dtype;
  if (missing) {
    const struct tensor *dflt = ctx_in(ctx, 1 + f);
    if (dflt->n != 1) return INVALID("Field %d is required but missing in record %" PRId64 "!", f, i);
    elements_copy(type, (char *)out->data + (size_t)i * dtype_size(type), dflt->data, 1);
    return NULL;
  }
  if (type == SHOAL_STRING) {
    str_set(&T_DATA(out, struct str)[i], field->at, field->n);
    return NULL;
  }
  if (string_to_number(field->at, field->n, type, out->data, i)) return NULL;
  return INVALID("Field %d in record %" PRId64 " is not a valid %s: %.*s", f, i, dtype_tf_name(type), (int)field->n,
                 field->at);
}

static shoal_status decode_record(struct kernel_ctx *ctx, const struct csv_state *s, struct csv_record *r, int64_t i,
                                  struct tensor **outs) {
  int64_t column = 0;
  int taken = 0;
  bool ends_with_delim = r->end > r->at && r->end[-1] == s->delim;
  while (r->at < r->end) {
    if (*r->at == '\n' || *r->at == '\r') {
      r->at++;
      continue;
    }
    bool wanted = !s->select.n || s->select.at[taken] == column;
    r->field.n = 0;
    TRY(s->quotes && *r->at == '"' ? quoted_field(s, r) : plain_field(s, r));
    column++;
    if (!wanted) continue;
    if (taken < s->fields) TRY(store(ctx, s, &r->field, taken, i, outs[taken]));
    taken++;
    if (s->select.n && taken == s->fields) return NULL;
  }
  if (ends_with_delim && (!s->select.n || s->select.at[taken] == column)) { /* the last field is there, but empty */
    r->field.n = 0;
    if (taken < s->fields) TRY(store(ctx, s, &r->field, taken, i, outs[taken]));
    taken++;
  }
  if (taken != s->fields) return INVALID("Expect %d fields but have %d in record %" PRId64, s->fields, taken, i);
  return NULL;
}

static shoal_status run_csv(struct kernel_ctx *ctx) {
  const struct csv_state *s = ctx->state;
  const struct tensor *records = ctx_in(ctx, 0);
  for (int f = 0; f < s->fields; f++) {
    const struct tensor *d = ctx_in(ctx, 1 + f);
    if (d->rank > 1) return INVALID("Each record default should be at most rank 1");
    if (d->n > 1) return INVALID("There should only be 1 default per field but field %d has %" PRId64, f, d->n);
  }
  struct tensor **outs = mem_zalloc((size_t)s->fields + 1, sizeof *outs);
  struct shape shape = tensor_shape(records);
  shoal_status e = NULL;
  for (int f = 0; !e && f < s->fields; f++) e = ctx_out(ctx, f, &shape, &outs[f]);
  struct csv_record r = {0};
  for (int64_t i = 0; !e && i < records->n; i++) {
    const struct str *t = string_at(records, i);
    r.at = str_data(t);
    r.end = r.at + t->size;
    e = decode_record(ctx, s, &r, i, outs);
  }
  text_release(&r.field);
  free(outs);
  return e;
}

static shoal_status shape_csv(struct shape_ctx *c) {
  for (int i = 1; i < c->node->n_in; i++) {
    if (c->in[i].rank > 1) return INVALID("Shape of a default must be a length-0 or length-1 vector, or a scalar.");
    if (c->in[i].rank == 1 && c->in[i].dims[0] > 1)
      return INVALID("Shape of a default must be a length-0 or length-1 vector, or a scalar.");
  }
  for (int i = 0; i < c->node->n_out; i++) c->out[i] = c->in[0];
  return NULL;
}

/* ---- DecodeJSONExample: protocol buffers' JSON form of Example ---- */

enum { MAX_JSON = 1 << 28 };

static const cJSON *member(const cJSON *o, const char *camel, const char *snake) {
  const cJSON *m = cJSON_GetObjectItemCaseSensitive(o, camel);
  return m ? m : cJSON_GetObjectItemCaseSensitive(o, snake);
}

static int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

static bool put_base64(const char *s, struct text *out) {
  uint32_t v = 0;
  int bits = 0;
  for (; *s && *s != '='; s++) {
    int d = base64_digit(*s);
    if (d < 0) return false;
    v = v << 6 | (uint32_t)d;
    bits += 6;
    if (bits >= 8) text_addc(out, (char)(v >> (bits -= 8)));
  }
  return true;
}

/* The kind of a list is its tag in a Feature. */
static bool put_value(uint32_t kind, const cJSON *v, struct text *list) {
  if (kind == Feature_bytes_list) {
    struct text bytes = {0};
    bool ok = cJSON_IsString(v) && put_base64(v->valuestring, &bytes);
    if (ok) put_BytesList_value_n(list, bytes.at, bytes.n);
    text_release(&bytes);
    return ok;
  }
  if (kind == Feature_float_list) {
    float f = 0;
    if (cJSON_IsNumber(v)) f = (float)v->valuedouble;
    else if (!cJSON_IsString(v) || !string_to_number(v->valuestring, strlen(v->valuestring), SHOAL_FLOAT32, &f, 0))
      return false;
    text_add(list, (const char *)&f, 4);
    return true;
  }
  int64_t n = 0;
  if (cJSON_IsNumber(v) && v->valuedouble == floor(v->valuedouble) && fabs(v->valuedouble) < 9.3e18)
    n = (int64_t)v->valuedouble;
  else if (!cJSON_IsString(v) || !string_to_number(v->valuestring, strlen(v->valuestring), SHOAL_INT64, &n, 0))
    return false;
  wire_put_varint(list, (uint64_t)n);
  return true;
}

static bool put_feature(const cJSON *feature, struct text *out) {
  static const struct {
    uint32_t tag, packed;
    const char *camel, *snake;
  } kinds[] = {{Feature_bytes_list, 0, "bytesList", "bytes_list"},
               {Feature_float_list, FloatList_value_packed, "floatList", "float_list"},
               {Feature_int64_list, Int64List_value_packed, "int64List", "int64_list"}};
  for (size_t i = 0; i < COUNT_OF(kinds); i++) {
    const cJSON *list = member(feature, kinds[i].camel, kinds[i].snake), *v;
    if (!list) continue;
    const cJSON *values = cJSON_GetObjectItemCaseSensitive(list, "value");
    size_t at = wire_open(out, kinds[i].tag);
    size_t packed = kinds[i].packed && cJSON_GetArraySize(values) ? wire_open(out, kinds[i].packed) : 0;
    cJSON_ArrayForEach(v, values) if (!put_value(kinds[i].tag, v, out)) return false;
    if (packed) wire_end(out, packed);
    wire_end(out, at);
  }
  return true;
}

static bool put_example(const cJSON *root, struct text *out) {
  const cJSON *features = cJSON_GetObjectItemCaseSensitive(root, "features"), *f;
  if (!cJSON_IsObject(root)) return false;
  if (!features) return true;
  size_t all = begin_Example_features(out);
  cJSON_ArrayForEach(f, cJSON_GetObjectItemCaseSensitive(features, "feature")) {
    if (!f->string) return false;
    size_t entry = begin_Features_feature(out);
    put_Features_FeatureEntry_key(out, f->string);
    size_t value = begin_Features_FeatureEntry_value(out);
    if (!put_feature(f, out)) return false;
    wire_end(out, value);
    wire_end(out, entry);
  }
  wire_end(out, all);
  return true;
}

static shoal_status run_json(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape shape = tensor_shape(x);
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  struct text t = {0};
  shoal_status s = NULL;
  for (int64_t i = 0; !s && i < x->n; i++) {
    const struct str *json = string_at(x, i);
    cJSON *root = json->size <= MAX_JSON ? cJSON_ParseWithLength(str_data(json), json->size) : NULL;
    t.n = 0;
    if (!root || !put_example(root, &t)) s = INVALID("Error while parsing JSON: element %" PRId64 " is no Example", i);
    else str_set(&T_DATA(out, struct str)[i], t.at, t.n);
    cJSON_Delete(root);
  }
  text_release(&t);
  return s;
}

/* ---- ParseTensor, SerializeTensor ---- */

static shoal_status run_parse_tensor(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  if (x->rank != 0) {
    struct shape s = tensor_shape(x);
    return INVALID("Expected `serialized` to be a scalar, got shape: %s", shape_str(&s));
  }
  const struct str *m = string_at(x, 0);
  struct tensor t;
  shoal_status s = tensor_proto_decode(str_data(m), m->size, &t);
  if (s) {
    shoal_status e = INVALID("Could not parse `serialized` as TensorProto: %s", shoal_status_message(s));
    shoal_status_free(s);
    return e;
  }
  if ((shoal_dtype)t.dtype != ctx_out_type(ctx, 0)) {
    s = INVALID("Type mismatch between parsed tensor (%s) and dtype (%s)", dtype_tf_name(t.dtype),
                dtype_tf_name(ctx_out_type(ctx, 0)));
    tensor_release(&t);
    return s;
  }
  ctx_set(ctx, 0, &t);
  return NULL;
}

/* Type, shape (also when it is that of a scalar), raw content or strings: the bytes TensorFlow writes. */
static shoal_status put_tensor(const struct tensor *x, struct text *t) {
  if (!dtype_plain((shoal_dtype)x->dtype) && x->dtype != SHOAL_STRING) return tensor_proto_encode(x, t);
  struct shape shape = tensor_shape(x);
  put_TensorProto_dtype(t, x->dtype);
  size_t at = begin_TensorProto_tensor_shape(t);
  shape_proto_encode(&shape, t);
  wire_end(t, at);
  if (x->dtype == SHOAL_STRING)
    for (int64_t i = 0; i < x->n; i++)
      put_TensorProto_string_val_n(t, str_data(string_at(x, i)), string_at(x, i)->size);
  else if (x->n) put_TensorProto_tensor_content_n(t, x->data, tensor_bytes(x));
  return NULL;
}

static shoal_status run_serialize_tensor(struct kernel_ctx *ctx) {
  struct tensor *out;
  struct text t = {0};
  shoal_status s = put_tensor(ctx_in(ctx, 0), &t);
  if (!s) s = ctx_out_dims(ctx, 0, 0, NULL, &out);
  if (!s) str_set(out->data, t.at, t.n);
  text_release(&t);
  return s;
}

/* ---- rows ---- */

#define RUN(fn)                         \
  (const struct kernel_def[]) {         \
    {.device = "CPU", .run = fn}, { 0 } \
  }

static const struct op_row rows[] = {
    {.name = "DecodeCSV",
     .in = "records: string, record_defaults: OUT_TYPE",
     .out = "output: OUT_TYPE",
     .attrs = "OUT_TYPE: list({float, double, int32, int64, string}) >= 1; field_delim: string = ','; "
              "use_quote_delim: bool = true; na_value: string = ''; select_cols: list(int) = []",
     .flags = OP_NO_GRADIENT,
     .shape = shape_csv,
     .kernels = (const struct kernel_def[]){{.device = "CPU",
                                             .flags = KERNEL_EXPENSIVE,
                                             .state_size = sizeof(struct csv_state),
                                             .init = init_csv,
                                             .release = release_csv,
                                             .run = run_csv},
                                            {0}}},
    {.name = "DecodeJSONExample",
     .in = "json_examples: string",
     .out = "binary_examples: string",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = RUN(run_json)},
    {.name = "ParseTensor",
     .in = "serialized: string",
     .out = "output: out_type",
     .attrs = "out_type: type",
     .flags = OP_NO_GRADIENT,
     .kernels = RUN(run_parse_tensor)},
    {.name = "SerializeTensor",
     .in = "tensor: T",
     .out = "serialized: string",
     .attrs = "T: type",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = RUN(run_serialize_tensor)},
};
OP_FAMILY(parsing_text, rows);
