/* Tensor values as text. Two layouts, because TensorFlow has two: the old one of Assert and Print, which counts
 * elements from the beginning, and the one of tf.print, which shows both ends of every dimension. */
#include "tensor/summarize.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

static bool special(double v, struct text *out) {
  if (isnan(v)) text_adds(out, "nan");
  else if (isinf(v)) text_adds(out, v < 0 ? "-inf" : "inf");
  else return false;
  return true;
}

/* The shortest of 6 or 9 (15 or 17) digits that reads back as the same number. */
static void float_print(float v, struct text *out) {
  char s[32];
  if (special(v, out)) return;
  snprintf(s, sizeof s, "%.6g", (double)v);
  if (strtof(s, NULL) != v) snprintf(s, sizeof s, "%.9g", (double)v);
  text_adds(out, s);
}

static void double_print(double v, struct text *out) {
  char s[40];
  if (special(v, out)) return;
  snprintf(s, sizeof s, "%.15g", v);
  if (strtod(s, NULL) != v) snprintf(s, sizeof s, "%.17g", v);
  text_adds(out, s);
}

/* The bytes with C escapes: \n, \", \ooo for what is not printable ASCII; those of UTF-8 are kept. */
static void add_escaped(struct text *out, const char *data, size_t n) {
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)data[i];
    switch (c) {
      case '\n': text_adds(out, "\\n"); break;
      case '\r': text_adds(out, "\\r"); break;
      case '\t': text_adds(out, "\\t"); break;
      case '"': text_adds(out, "\\\""); break;
      case '\'': text_adds(out, "\\'"); break;
      case '\\': text_adds(out, "\\\\"); break;
      default:
        if ((c >= 32 && c < 127) || c >= 128) text_addc(out, (char)c);
        else text_addf(out, "\\%03o", c);
    }
  }
}

void element_print(shoal_dtype dtype, const void *at, struct text *out) {
  switch (dtype) {
    case SHOAL_FLOAT32: float_print(*(const float *)at, out); break;
    case SHOAL_FLOAT64: double_print(*(const double *)at, out); break;
    case SHOAL_FLOAT16: float_print(f16_to_float(*(const f16 *)at), out); break;
    case SHOAL_BFLOAT16: float_print(bf16_to_float(*(const bf16 *)at), out); break;
    case SHOAL_INT8:
    case SHOAL_QINT8: text_addf(out, "%d", *(const int8_t *)at); break;
    case SHOAL_UINT8:
    case SHOAL_QUINT8: text_addf(out, "%d", *(const uint8_t *)at); break;
    case SHOAL_INT16:
    case SHOAL_QINT16: text_addf(out, "%d", *(const int16_t *)at); break;
    case SHOAL_UINT16:
    case SHOAL_QUINT16: text_addf(out, "%d", *(const uint16_t *)at); break;
    case SHOAL_INT32: text_addf(out, "%" PRId32, *(const int32_t *)at); break;
    case SHOAL_UINT32: text_addf(out, "%" PRIu32, *(const uint32_t *)at); break;
    case SHOAL_INT64: text_addf(out, "%" PRId64, *(const int64_t *)at); break;
    case SHOAL_UINT64: text_addf(out, "%" PRIu64, *(const uint64_t *)at); break;
    case SHOAL_BOOL: text_addc(out, *(const bool *)at ? '1' : '0'); break;
    case SHOAL_STRING: {
      const struct str *s = at;
      add_escaped(out, str_data(s), s->size);
      break;
    }
    case SHOAL_VARIANT: {
      const struct variant *v = *(struct variant *const *)at;
      text_addf(out, "<%s>", v ? v->type->name : "empty");
      break;
    }
    default: text_addc(out, '?');
  }
}

static const void *element(const struct tensor *t, int64_t i) {
  return (const char *)t->data + (size_t)i * dtype_size((shoal_dtype)t->dtype);
}

static void print_dim(const struct tensor *t, int dim, int64_t limit, int64_t *at, struct text *out) {
  if (*at >= limit) return;
  if (dim == t->rank - 1) {
    for (int64_t i = 0; i < t->dims[dim]; i++) {
      if (*at >= limit) {
        if (dim) text_adds(out, "...");
        return;
      }
      if (i) text_addc(out, ' ');
      element_print((shoal_dtype)t->dtype, element(t, (*at)++), out);
    }
    return;
  }
  for (int64_t i = 0; i < t->dims[dim] && *at < limit; i++) {
    text_addc(out, '[');
    print_dim(t, dim + 1, limit, at, out);
    text_addc(out, ']');
  }
}

static void print_spacing(const struct tensor *t, int dim, struct text *out) {
  if (dim == t->rank - 1) {
    text_addc(out, ' ');
    return;
  }
  for (int i = dim; i < t->rank - 1; i++) text_addc(out, '\n');
  for (int i = 0; i <= dim; i++) text_addc(out, ' ');
}

static void print_edges(const struct tensor *t, int dim, int64_t ends, int64_t at, struct text *out) {
  if (dim == t->rank) {
    if (t->dtype == SHOAL_STRING) text_addc(out, '"');
    element_print((shoal_dtype)t->dtype, element(t, at), out);
    if (t->dtype == SHOAL_STRING) text_addc(out, '"');
    return;
  }
  int64_t n = t->dims[dim], inner = 1;
  for (int i = dim + 1; i < t->rank; i++) inner *= t->dims[i];
  text_addc(out, '[');
  for (int64_t i = 0; i < ends && i < n; i++) {
    if (i) print_spacing(t, dim, out);
    print_edges(t, dim + 1, ends, at + inner * i, out);
  }
  if (n > 2 * ends) {
    print_spacing(t, dim, out);
    text_adds(out, "...");
  }
  for (int64_t i = MAX(ends, n - ends); i < n; i++) {
    print_spacing(t, dim, out);
    print_edges(t, dim + 1, ends, at + inner * i, out);
  }
  text_addc(out, ']');
}

/* Types TensorFlow has no words for: one mark an element, in one line. */
static bool opaque(shoal_dtype t) {
  return dtype_complex(t) || t == SHOAL_RESOURCE || t == SHOAL_VARIANT || t == SHOAL_QINT32;
}

void tensor_summarize(const struct tensor *t, int64_t max, bool edges, struct text *out) {
  if (max < 0) max = t->n;
  int64_t limit = MIN(max, t->n), at = 0;
  if (opaque((shoal_dtype)t->dtype) || t->rank == 0) {
    bool brackets = edges && opaque((shoal_dtype)t->dtype);
    if (brackets) text_addc(out, '[');
    for (int64_t i = 0; i < limit; i++) {
      if (i) text_addc(out, ' ');
      if (edges && t->dtype == SHOAL_STRING) text_addc(out, '"');
      element_print((shoal_dtype)t->dtype, element(t, i), out);
      if (edges && t->dtype == SHOAL_STRING) text_addc(out, '"');
    }
    if (limit < t->n) text_adds(out, "...");
    if (brackets) text_addc(out, ']');
  } else if (edges) {
    print_edges(t, 0, limit, 0, out);
  } else {
    print_dim(t, 0, limit, &at, out);
    if (t->n > limit) text_adds(out, "...");
  }
}
