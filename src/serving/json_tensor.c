/* Reading tensors from JSON; json_write.c has the other half. See json_tensor.h.
 *
 * A tensor's shape is that of its first elements, as TensorFlow Serving finds it; its memory is taken at once, and only
 * where the text is long enough to hold so many values: what has its size from outside is bounded by what came. */
#include "serving/json_tensor.h"

#include <math.h>
#include <string.h>

#include "tensor/tensor.h"

/* One tensor that is filled, value by value. */
struct json_filling {
  struct tensor t;
  int rank; /* of what is filled at a time: all, or a row */
  int64_t dims[SHOAL_MAX_RANK];
  int64_t next; /* element */
};

/* ---- errors ---- */

static shoal_status type_error(json_value v, shoal_dtype dtype) {
  struct text t = {0};
  json_show(v, &t);
  shoal_status s = INVALID("JSON Value: %s Type: %s is not of expected type: %s", text_cstr(&t),
                           json_type_name(json_type_of(v)), dtype_tf_name((int)dtype));
  text_release(&t);
  return s;
}

static shoal_status lossy(json_value v, const char *what) {
  struct text t = {0};
  json_show(v, &t);
  shoal_status s = INVALID("Cannot convert JSON value: %s to %s without loss of precision.", text_cstr(&t), what);
  text_release(&t);
  return s;
}

static shoal_status format_error(json_value v, const char *words) {
  struct text t = {0};
  json_show(v, &t);
  shoal_status s = INVALID("JSON Value: %s %s", text_cstr(&t), words);
  text_release(&t);
  return s;
}

/* ---- base64 ---- */

bool json_is_base64(json_value v) {
  json_value key, value;
  if (json_type_of(v) != JSON_OBJECT) return false;
  struct json_walk w = json_inside(v);
  if (!json_next(&w, &key, &value) || !json_string_is(key, "b64") || json_type_of(value) != JSON_STRING) return false;
  return !json_next(&w, &key, &value);
}

static int digit64(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static bool decode64(const char *at, size_t n, struct text *out) {
  uint32_t bits = 0;
  int have = 0, pad = 0;
  size_t digits = 0;
  for (size_t i = 0; i < n; i++) {
    char c = at[i];
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
    if (c == '=') {
      pad++;
      continue;
    }
    int d = digit64(c);
    if (d < 0 || pad) return false;
    bits = bits << 6 | (uint32_t)d;
    have += 6;
    digits++;
    if (have < 8) continue;
    have -= 8;
    text_addc(out, (char)(bits >> have & 255));
  }
  if (bits & ((1u << have) - 1)) return false; /* bits behind the last byte */
  return digits % 4 != 1 && pad <= 2 && (!pad || (digits + (size_t)pad) % 4 == 0);
}

shoal_status json_base64(json_value v, struct text *out) {
  if (!json_is_base64(v)) return format_error(v, "not formatted correctly for base64 data");
  struct text coded = {0};
  json_string(json_member(v, "b64"), &coded);
  bool well = decode64(text_cstr(&coded), coded.n, out);
  text_release(&coded);
  return well ? NULL : INVALID("Unable to base64 decode");
}

/* ---- values ---- */

static shoal_status set_string(struct str *to, json_value v) {
  struct text t = {0};
  shoal_status s = NULL;
  if (json_type_of(v) == JSON_STRING) json_string(v, &t);
  else if (json_type_of(v) == JSON_OBJECT) s = json_base64(v, &t);
  else s = type_error(v, SHOAL_STRING);
  if (!s) str_set(to, text_cstr(&t), t.n);
  text_release(&t);
  return s;
}

/* Whole numbers beyond what the type tells apart are no numbers of it. */
static shoal_status set_decimal(struct tensor *t, int64_t i, json_value v) {
  bool single = t->dtype == SHOAL_FLOAT32;
  struct json_number n = json_number_of(v);
  double most = single ? 16777215.0 : 9007199254740991.0;
  if (n.kind != JSON_DECIMAL && fabs(n.d) > most) return lossy(v, single ? "float" : "double");
  if (single && isfinite(n.d) && fabs(n.d) > 3.40282346638528859811704183484516925e+38) return lossy(v, "float");
  if (single) T_DATA(t, float)[i] = (float)n.d;
  else T_DATA(t, double)[i] = n.d;
  return NULL;
}

static shoal_status set_integer(struct tensor *t, int64_t i, json_value v) {
  static const struct {
    int64_t least;
    uint64_t most;
  } ranges[] = {[SHOAL_INT8] = {INT8_MIN, INT8_MAX},    [SHOAL_UINT8] = {0, UINT8_MAX},
                [SHOAL_INT16] = {INT16_MIN, INT16_MAX}, [SHOAL_UINT16] = {0, UINT16_MAX},
                [SHOAL_INT32] = {INT32_MIN, INT32_MAX}, [SHOAL_UINT32] = {0, UINT32_MAX},
                [SHOAL_INT64] = {INT64_MIN, INT64_MAX}, [SHOAL_UINT64] = {0, UINT64_MAX}};
  shoal_dtype d = (shoal_dtype)t->dtype;
  struct json_number n = json_number_of(v);
  uint64_t bits = n.kind == JSON_UNSIGNED ? n.u : (uint64_t)n.i;
  bool negative = n.kind == JSON_SIGNED && n.i < 0;
  if (n.kind == JSON_DECIMAL || (negative ? n.i < ranges[d].least : bits > ranges[d].most)) return type_error(v, d);
  switch (dtype_size(d)) {
    case 1: T_DATA(t, uint8_t)[i] = (uint8_t)bits; break;
    case 2: T_DATA(t, uint16_t)[i] = (uint16_t)bits; break;
    case 4: T_DATA(t, uint32_t)[i] = (uint32_t)bits; break;
    default: T_DATA(t, uint64_t)[i] = bits;
  }
  return NULL;
}

static shoal_status set_value(struct tensor *t, int64_t i, json_value v) {
  shoal_dtype d = (shoal_dtype)t->dtype;
  enum json_type is = json_type_of(v);
  switch (d) {
    case SHOAL_STRING: return set_string(&T_DATA(t, struct str)[i], v);
    case SHOAL_BOOL:
      if (is != JSON_TRUE && is != JSON_FALSE) return type_error(v, d);
      T_DATA(t, bool)[i] = is == JSON_TRUE;
      return NULL;
    case SHOAL_FLOAT32:
    case SHOAL_FLOAT64: return is == JSON_NUMBER ? set_decimal(t, i, v) : type_error(v, d);
    case SHOAL_INT8:
    case SHOAL_UINT8:
    case SHOAL_INT16:
    case SHOAL_UINT16:
    case SHOAL_INT32:
    case SHOAL_UINT32:
    case SHOAL_INT64:
    case SHOAL_UINT64: return is == JSON_NUMBER ? set_integer(t, i, v) : type_error(v, d);
    default: return UNIMPLEMENTED("Conversion of JSON Value to type: %s", dtype_tf_name((int)d));
  }
}

/* ---- lists ---- */

static shoal_status fill(struct json_filling *f, json_value v, int level) {
  if (json_type_of(v) != JSON_ARRAY) {
    if (level != f->rank)
      return INVALID("JSON Value found at incorrect level: %d in the JSON DOM. Expected at level: %d", level + 1,
                     f->rank);
    return set_value(&f->t, f->next++, v);
  }
  if (level >= f->rank) return INVALID("Encountered list at unexpected level: %d expected < %d", level, f->rank);
  json_value key, value;
  int64_t n = 0;
  for (struct json_walk w = json_inside(v); json_next(&w, &key, &value); n++)
    if (n < f->dims[level]) TRY(fill(f, value, level + 1));
  if (n != f->dims[level])
    return INVALID("Encountered list at unexpected size: %lld at level: %d expected size: %lld", (long long)n, level,
                   (long long)f->dims[level]);
  return NULL;
}

/* The shape of the first elements. */
static shoal_status find_shape(json_value v, int *rank, int64_t *dims) {
  json_value key;
  for (*rank = 0; json_type_of(v) == JSON_ARRAY;) {
    if (*rank == SHOAL_MAX_RANK - 1) return INVALID("a list is nested more than %d times", SHOAL_MAX_RANK - 1);
    dims[(*rank)++] = json_count(v);
    struct json_walk w = json_inside(v);
    if (!json_next(&w, &key, &v)) return NULL;
  }
  return NULL;
}

/* Memory for rows (-1: none, it is one value) of what v looks like. */
static shoal_status start(struct json_filling *f, shoal_dtype dtype, const struct unpack_room *room, json_value v,
                          int64_t rows, size_t text) {
  struct shape shape = {0};
  TRY(find_shape(v, &f->rank, f->dims));
  if (rows >= 0) shape.dims[shape.rank++] = rows;
  for (int i = 0; i < f->rank; i++) shape.dims[shape.rank++] = f->dims[i];
  int64_t n;
  TRY(shape_elements(&shape, &n));
  if (n > (int64_t)text)
    return INVALID("a list is not as long as the first one: Expecting tensor size: %lld", (long long)n);
  if (!dtype_plain(dtype) && dtype != SHOAL_STRING)
    return UNIMPLEMENTED("Conversion of JSON Value to type: %s", dtype_tf_name((int)dtype));
  TRY(unpack_take(room, (size_t)n * dtype_size(dtype)));
  return tensor_new(&f->t, dtype, &shape);
}

shoal_status json_read_tensor(json_value v, size_t text, shoal_dtype dtype, const struct unpack_room *room,
                              struct tensor *out) {
  struct json_filling f = {0};
  shoal_status s = start(&f, dtype, room, v, -1, text);
  if (!s) s = fill(&f, v, 0);
  if (s) tensor_release(&f.t);
  else *out = f.t;
  return s;
}

static shoal_status give(struct query *q, int input, struct json_filling *f) {
  query_give(q, input, tensor_handle_take(&f->t));
  return NULL;
}

/* ---- columns ---- */

static shoal_status read_column(struct query *q, int input, json_value v, size_t text) {
  struct json_filling f = {0};
  shoal_status s = json_read_tensor(v, text, q->signature->inputs[input]->dtype, &q->room, &f.t);
  return s ? status_prefix(s, "input '%s': ", q->keys[input]) : give(q, input, &f);
}

static shoal_status read_columns(struct query *q, json_value v, size_t text) {
  int n = q->signature->n_inputs;
  if (json_type_of(v) != JSON_OBJECT || json_is_base64(v)) {
    if (n > 1)
      return INVALID(
          "inputs is a plain value/list, but expecting an object as multiple input tensors required as per "
          "tensorinfo_map");
    return read_column(q, 0, v, text);
  }
  for (int i = 0; i < n; i++) {
    json_value item = json_member(v, q->keys[i]);
    if (!item) return INVALID("Missing named input: %s in 'inputs' object.", q->keys[i]);
    TRY(read_column(q, i, item, text));
  }
  return NULL;
}

/* ---- rows ---- */

struct rows {
  struct query *q;
  struct json_filling *fill; /* [n_inputs] */
  int64_t n;                 /* rows */
  size_t text;
};

static bool is_named(json_value v) { return json_type_of(v) == JSON_OBJECT && !json_is_base64(v); }

/* One input's part of a row. */
static shoal_status add_part(struct rows *r, int input, int64_t row, json_value v) {
  struct json_filling *f = &r->fill[input];
  if (!row && tensor_valid(&f->t)) return INVALID("it is given twice");
  if (!row) TRY(start(f, r->q->signature->inputs[input]->dtype, &r->q->room, v, r->n, r->text));
  int64_t each = r->n ? f->t.n / r->n : 0;
  if (f->next != each * row) return INVALID("it is given twice");
  int rank;
  int64_t dims[SHOAL_MAX_RANK];
  TRY(find_shape(v, &rank, dims));
  struct shape have = {.rank = rank}, want = {.rank = f->rank};
  memcpy(have.dims, dims, sizeof dims);
  memcpy(want.dims, f->dims, sizeof want.dims);
  if (!shape_equal(&have, &want)) return INVALID("Expecting shape %s but got: %s", shape_str(&want), shape_str(&have));
  return fill(f, v, 0);
}

static shoal_status wrong_keys(const struct rows *r, int64_t row) {
  struct text keys = {0};
  for (int i = 0; i < r->q->signature->n_inputs; i++) text_addf(&keys, "%s%s", i ? "," : "", r->q->keys[i]);
  shoal_status s =
      INVALID("Failed to process element: %lld of 'instances' list. JSON object: keys must be equal to: %s",
              (long long)row, text_cstr(&keys));
  text_release(&keys);
  return s;
}

static shoal_status add_named_part(struct rows *r, int64_t row, json_value key, json_value value) {
  struct text name = {0};
  json_string(key, &name);
  int input = query_input(r->q, (struct chars){text_cstr(&name), name.n});
  shoal_status s = input < 0 ? INVALID("JSON object: does not have named input: %s", text_cstr(&name))
                             : add_part(r, input, row, value);
  s = status_prefix(s, "Failed to process element: %lld key: %s of 'instances' list. Error: ", (long long)row,
                    text_cstr(&name));
  text_release(&name);
  return s;
}

static shoal_status add_named(struct rows *r, int64_t row, json_value v) {
  json_value key, value;
  if (!is_named(v)) return INVALID("Expecting object but got list at item %lld of input list", (long long)row);
  int n = 0;
  for (struct json_walk w = json_inside(v); json_next(&w, &key, &value); n++) TRY(add_named_part(r, row, key, value));
  return n == r->q->signature->n_inputs ? NULL : wrong_keys(r, row);
}

static shoal_status add_unnamed(struct rows *r, int64_t row, json_value v) {
  if (is_named(v)) return INVALID("Expecting value/list but got object at item %lld of input list", (long long)row);
  return status_prefix(add_part(r, 0, row, v),
                       "Failed to process element: %lld of 'instances' list. Error: ", (long long)row);
}

static shoal_status add_rows(struct rows *r, json_value list) {
  json_value key, value;
  int64_t row = 0;
  bool named = false;
  for (struct json_walk w = json_inside(list); json_next(&w, &key, &value); row++) {
    if (!row) {
      named = is_named(value);
      if (!named && r->q->signature->n_inputs > 1)
        return INVALID(
            "instances is a plain list, but expecting list of objects as multiple input tensors required as "
            "per tensorinfo_map");
    }
    TRY(named ? add_named(r, row, value) : add_unnamed(r, row, value));
  }
  return NULL;
}

static shoal_status read_rows(struct query *q, json_value list, size_t text) {
  int n = q->signature->n_inputs;
  if (json_type_of(list) != JSON_ARRAY) return INVALID("Excepting 'instances' to be an list/array");
  struct rows r = {q, mem_zalloc((size_t)n + 1, sizeof *r.fill), json_count(list), text};
  shoal_status s = r.n ? add_rows(&r, list) : INVALID("No values in 'instances' array");
  for (int i = 0; i < n; i++) {
    if (!s && tensor_valid(&r.fill[i].t)) s = give(q, i, &r.fill[i]);
    else tensor_release(&r.fill[i].t);
  }
  free(r.fill);
  return s;
}

shoal_status json_read_inputs(struct query *q, json_value document, size_t n, enum json_format *format) {
  json_value rows = json_member(document, "instances"), columns = json_member(document, "inputs");
  if (!q->signature->n_inputs) return INVALID("Failed to get input map for signature: %s", q->signature->key);
  if (rows && columns)
    return INVALID("Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist ");
  if (!rows && !columns) return INVALID("Missing 'inputs' or 'instances' key");
  *format = rows ? JSON_ROWS : JSON_COLUMNS;
  return rows ? read_rows(q, rows, n) : read_columns(q, columns, n);
}
