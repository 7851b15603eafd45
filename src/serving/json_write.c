/* Tensors written as JSON; see json_tensor.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serving/json_tensor.h"
#include "tensor/tensor.h"

/* ---- values ---- */

/* A fraction for whole numbers too, so that a reader who goes by the text finds one type in a list. */
static void add_decimal(struct text *out, const char *s) {
  text_adds(out, s);
  if (!strpbrk(s, ".e")) text_adds(out, ".0");
}

static bool add_odd(struct text *out, double v) {
  if (isfinite(v)) return false;
  text_adds(out, isnan(v) ? "NaN" : v < 0 ? "-Infinity" : "Infinity");
  return true;
}

void json_write_float(struct text *out, float v) {
  char s[32];
  if (add_odd(out, v)) return;
  snprintf(s, sizeof s, "%.6g", (double)v);
  if (strtof(s, NULL) != v) snprintf(s, sizeof s, "%.9g", (double)v);
  add_decimal(out, s);
}

void json_write_double(struct text *out, double v) {
  char s[40];
  if (add_odd(out, v)) return;
  snprintf(s, sizeof s, "%.6g", v);
  if (strtod(s, NULL) != v) snprintf(s, sizeof s, "%.17g", v);
  add_decimal(out, s);
}

void json_write_string(struct text *out, const char *s, size_t n) {
  text_addc(out, '"');
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)s[i];
    if (c == '"' || c == '\\') text_addc(out, '\\');
    if (c >= 0x20) text_addc(out, (char)c);
    else text_addf(out, "\\u%04X", c);
  }
  text_addc(out, '"');
}

void json_write_base64(struct text *out, const char *s, size_t n) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  text_adds(out, "{\"b64\": \"");
  for (size_t i = 0; i < n; i += 3) {
    uint32_t v = 0;
    size_t have = n - i < 3 ? n - i : 3;
    for (size_t k = 0; k < 3; k++) v = v << 8 | (k < have ? (unsigned char)s[i + k] : 0);
    for (size_t k = 0; k < 4; k++) text_addc(out, k <= have ? digits[v >> (18 - 6 * k) & 63] : '=');
  }
  text_adds(out, "\"}");
}

/* Strings under a key that ends so are bytes, as TensorFlow Serving has it; what is no UTF-8 could not be a string. */
static void write_text(struct text *out, const char *key, const struct str *s) {
  const char *at = str_data(s);
  if (str_ends(key, "_bytes") || !str_is_utf8(at, s->size)) json_write_base64(out, at, s->size);
  else json_write_string(out, at, s->size);
}

static void write_value(struct text *out, const char *key, const struct tensor *t, int64_t i) {
  switch ((shoal_dtype)t->dtype) {
    case SHOAL_FLOAT32: json_write_float(out, T_DATA(t, float)[i]); break;
    case SHOAL_FLOAT64: json_write_double(out, T_DATA(t, double)[i]); break;
    case SHOAL_FLOAT16: json_write_float(out, f16_to_float(T_DATA(t, f16)[i])); break;
    case SHOAL_BFLOAT16: json_write_float(out, bf16_to_float(T_DATA(t, bf16)[i])); break;
    case SHOAL_INT8: text_addf(out, "%d", T_DATA(t, int8_t)[i]); break;
    case SHOAL_UINT8: text_addf(out, "%d", T_DATA(t, uint8_t)[i]); break;
    case SHOAL_INT16: text_addf(out, "%d", T_DATA(t, int16_t)[i]); break;
    case SHOAL_UINT16: text_addf(out, "%d", T_DATA(t, uint16_t)[i]); break;
    case SHOAL_INT32: text_addf(out, "%" PRId32, T_DATA(t, int32_t)[i]); break;
    case SHOAL_UINT32: text_addf(out, "%" PRIu32, T_DATA(t, uint32_t)[i]); break;
    case SHOAL_INT64: text_addf(out, "%" PRId64, T_DATA(t, int64_t)[i]); break;
    case SHOAL_UINT64: text_addf(out, "%" PRIu64, T_DATA(t, uint64_t)[i]); break;
    case SHOAL_BOOL: text_adds(out, T_DATA(t, bool)[i] ? "true" : "false"); break;
    default: write_text(out, key, &T_DATA(t, struct str)[i]);
  }
}

static bool can_write(shoal_dtype d) {
  return d == SHOAL_STRING || (dtype_plain(d) && d != SHOAL_COMPLEX64 && d != SHOAL_COMPLEX128 &&
                               (d < SHOAL_QINT8 || d > SHOAL_QUINT16 || d == SHOAL_BFLOAT16));
}

shoal_status json_room_for(struct json_room *r, const struct text *out, size_t n) {
  enum { STEP = 256 << 10, A_BIT = 4 << 10 };
  if (out->n + n + A_BIT <= r->counted) return NULL;
  size_t more = MAX(MAX(r->counted, (size_t)STEP), n + A_BIT);
  TRY(status_prefix(unpack_take(r->room, more), "the answer: "));
  r->counted += more;
  return NULL;
}

/* What the text of a string takes beyond a bit: its characters with their escapes, or base64's. */
static size_t longest(const struct tensor *t, int64_t i) {
  if (t->dtype != SHOAL_STRING) return 0;
  const struct str *s = &T_DATA(t, struct str)[i];
  const char *at = str_data(s);
  size_t all = s->size;
  for (size_t k = 0; k < s->size; k++) {
    unsigned char c = (unsigned char)at[k];
    all += c < 0x20 ? 5 : c == '"' || c == '\\';
  }
  return MAX(all, s->size / 3 * 4 + 4);
}

/* The elements from *next on, from a dimension on. */
static shoal_status write_list(struct json_room *room, struct text *out, const char *key, const struct tensor *t,
                               int dim, int64_t *next) {
  if (dim >= t->rank) {
    TRY(json_room_for(room, out, longest(t, *next)));
    write_value(out, key, t, (*next)++);
    return NULL;
  }
  text_addc(out, '[');
  for (int64_t i = 0; i < t->dims[dim]; i++) {
    if (i) text_adds(out, ", ");
    TRY(write_list(room, out, key, t, dim + 1, next));
  }
  TRY(json_room_for(room, out, 0));
  text_addc(out, ']');
  return NULL;
}

/* ---- answers ---- */

static void write_key(struct text *out, const char *key) {
  json_write_string(out, key, strlen(key));
  text_adds(out, ": ");
}

static shoal_status check_rows(const struct query *q) {
  for (int i = 0; i < q->n_outputs; i++) {
    const struct tensor *t = &q->answers[i]->t, *first = &q->answers[0]->t;
    if (!t->rank) return INVALID("Tensor name: %s has no shape information ", q->outputs[i]);
    if (t->dims[0] != first->dims[0])
      return INVALID("Tensor name: %s has inconsistent batch size: %" PRId64 " expecting: %" PRId64, q->outputs[i],
                     t->dims[0], first->dims[0]);
  }
  return NULL;
}

static shoal_status write_row(const struct query *q, struct json_room *room, int64_t *next, struct text *out) {
  if (q->n_outputs > 1) text_adds(out, "\n        {\n");
  for (int i = 0; i < q->n_outputs; i++) {
    if (q->n_outputs > 1) {
      TRY(json_room_for(room, out, strlen(q->outputs[i]) * 2));
      text_adds(out, i ? ",\n            " : "            ");
      write_key(out, q->outputs[i]);
    }
    TRY(write_list(room, out, q->outputs[i], &q->answers[i]->t, 1, &next[i]));
  }
  if (q->n_outputs > 1) text_adds(out, "\n        }");
  return NULL;
}

static shoal_status write_rows(const struct query *q, struct json_room *room, struct text *out) {
  int64_t *next = mem_zalloc((size_t)q->n_outputs + 1, sizeof *next);
  shoal_status s = NULL;
  text_adds(out, "{\n    \"predictions\": [");
  for (int64_t row = 0; row < q->answers[0]->t.dims[0] && !s; row++) {
    if (row) text_adds(out, ", ");
    s = write_row(q, room, next, out);
  }
  text_adds(out, "\n    ]\n}");
  free(next);
  return s;
}

static shoal_status write_columns(const struct query *q, struct json_room *room, struct text *out) {
  text_adds(out, "{\n    \"outputs\": ");
  if (q->n_outputs > 1) text_adds(out, "{\n");
  for (int i = 0; i < q->n_outputs; i++) {
    int64_t next = 0;
    if (q->n_outputs > 1) {
      text_adds(out, i ? ",\n        " : "        ");
      write_key(out, q->outputs[i]);
    }
    TRY(write_list(room, out, q->outputs[i], &q->answers[i]->t, 0, &next));
  }
  if (q->n_outputs > 1) text_adds(out, "\n    }");
  text_adds(out, "\n}");
  return NULL;
}

shoal_status json_write_answers(const struct query *q, enum json_format format, struct text *out) {
  if (!q->n_outputs) return INVALID("Cannot convert empty tensor map to JSON");
  for (int i = 0; i < q->n_outputs; i++)
    if (!can_write((shoal_dtype)q->answers[i]->t.dtype))
      return INVALID("Failed to write JSON value for tensor type: %s", dtype_tf_name(q->answers[i]->t.dtype));
  struct json_room room = {.room = &q->room};
  if (format == JSON_ROWS) TRY(check_rows(q));
  return format == JSON_ROWS ? write_rows(q, &room, out) : write_columns(q, &room, out);
}
