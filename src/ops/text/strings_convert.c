/* Strings from values and values from strings: AsString, StringFormat, base64, raw bytes, compressed bytes, n-grams. */
#include <complex.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/text.h"
#include "graph/shape_fn.h"
#include "ops/text/string_in.h"
#include "tensor/strings.h"
#include "tensor/summarize.h"

static shoal_status like_input(struct kernel_ctx *ctx, struct tensor **out) {
  struct shape s = tensor_shape(ctx_in(ctx, 0));
  return ctx_out(ctx, 0, &s, out);
}

/* An attribute's string, as a copy; NUL-terminated beyond its n bytes. */
static shoal_status dup_attr(const struct shoal_node *n, const char *name, char **out, size_t *size) {
  const struct attr *a = node_attr(n, name);
  if (!a || a->kind != ATTR_STRING) return INVALID("%s must be a string", name);
  *out = mem_alloc(a->s.n + 1);
  memcpy(*out, a->s.data, a->s.n);
  (*out)[a->s.n] = 0;
  *size = a->s.n;
  return NULL;
}

/* ---- AsString: printf's forms. The format is made from the attributes at the start, never taken from outside. ---- */

struct as_string {
  char format[48]; /* of one number, without its conversion */
  char conversion; /* of floating numbers: f, e or g */
};

static shoal_status init_as_string(struct kernel_init *ki, void *state) {
  struct as_string *s = state;
  shoal_dtype dtype;
  int64_t precision, width;
  bool scientific, shortest;
  char *fill;
  size_t fill_n;
  TRY(node_get_type(ki->node, "T", &dtype));
  TRY(node_get_int(ki->node, "precision", &precision));
  TRY(node_get_int(ki->node, "width", &width));
  TRY(node_get_bool(ki->node, "scientific", &scientific));
  TRY(node_get_bool(ki->node, "shortest", &shortest));
  TRY(dup_attr(ki->node, "fill", &fill, &fill_n));
  char flag = fill_n ? fill[0] : 0;
  free(fill);
  bool floats = dtype_floating(dtype) || dtype_complex(dtype);
  if (!floats && (scientific || shortest))
    return INVALID("scientific and shortest format not supported for datatype %s", dtype_tf_name(dtype));
  if (!floats && precision >= 0) return INVALID("precision not supported for datatype %s", dtype_tf_name(dtype));
  if (fill_n > 1) return INVALID("Fill string must be one or fewer characters");
  if (scientific && shortest) return INVALID("Cannot select both scientific and shortest notation");
  if (flag && !strchr(" +-0#", flag)) return INVALID("Fill argument not supported: \"%c\"", flag);
  if (width > 100000 || precision > 100000) return INVALID("width and precision must be at most 100000");
  int n = snprintf(s->format, sizeof s->format, "%%%.1s", flag ? (char[]){flag, 0} : "");
  if (width > -1) n += snprintf(s->format + n, sizeof s->format - (size_t)n, "%d", (int)width);
  if (precision > -1) snprintf(s->format + n, sizeof s->format - (size_t)n, ".%d", (int)precision);
  s->conversion = shortest ? 'g' : scientific ? 'e' : 'f';
  return NULL;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void put_number(struct text *t, const char *format, double v) { text_addf(t, format, v); }
static void put_signed(struct text *t, const char *format, int64_t v) { text_addf(t, format, v); }
static void put_unsigned(struct text *t, const char *format, uint64_t v) { text_addf(t, format, v); }
#pragma GCC diagnostic pop

static shoal_status run_as_string(struct kernel_ctx *ctx) {
  const struct as_string *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  shoal_dtype dtype = (shoal_dtype)x->dtype;
  if (dtype == SHOAL_STRING) return ctx_forward(ctx, 0, 0, NULL);
  struct tensor *out;
  TRY(like_input(ctx, &out));
  char number[64], whole[64], natural[64];
  snprintf(number, sizeof number, "%s%c", st->format, st->conversion);
  snprintf(whole, sizeof whole, "%s" PRId64, st->format);
  snprintf(natural, sizeof natural, "%s" PRIu64, st->format);
  struct text t = {0};
  for (int64_t i = 0; i < x->n; i++) {
    t.n = 0;
    switch (dtype) {
#define CASE(type, ctype, fn, format) \
  case type: fn(&t, format, T_DATA(x, ctype)[i]); break
      CASE(SHOAL_INT8, int8_t, put_signed, whole);
      CASE(SHOAL_INT16, int16_t, put_signed, whole);
      CASE(SHOAL_INT32, int32_t, put_signed, whole);
      CASE(SHOAL_INT64, int64_t, put_signed, whole);
      CASE(SHOAL_UINT8, uint8_t, put_unsigned, natural);
      CASE(SHOAL_UINT16, uint16_t, put_unsigned, natural);
      CASE(SHOAL_UINT32, uint32_t, put_unsigned, natural);
      CASE(SHOAL_UINT64, uint64_t, put_unsigned, natural);
#undef CASE
      case SHOAL_FLOAT32: put_number(&t, number, (double)T_DATA(x, float)[i]); break;
      case SHOAL_FLOAT64: put_number(&t, number, T_DATA(x, double)[i]); break;
      case SHOAL_FLOAT16: put_number(&t, number, (double)f16_to_float(T_DATA(x, f16)[i])); break;
      case SHOAL_BFLOAT16: put_number(&t, number, (double)bf16_to_float(T_DATA(x, bf16)[i])); break;
      case SHOAL_BOOL: text_adds(&t, T_DATA(x, bool)[i] ? "true" : "false"); break;
      case SHOAL_COMPLEX64:
      case SHOAL_COMPLEX128: {
        c128 v = dtype == SHOAL_COMPLEX64 ? (c128)T_DATA(x, c64)[i] : T_DATA(x, c128)[i];
        text_addc(&t, '(');
        put_number(&t, number, creal(v));
        text_addc(&t, ',');
        put_number(&t, number, cimag(v));
        text_addc(&t, ')');
        break;
      }
      default: text_release(&t); return INVALID("Type not supported: %s", dtype_tf_name(dtype));
    }
    str_set(&T_DATA(out, struct str)[i], t.at, t.n);
  }
  text_release(&t);
  return NULL;
}

/* ---- StringFormat ---- */

struct format_state {
  char *template, *placeholder;
  size_t template_n, placeholder_n;
  int64_t summarize;
};

static shoal_status init_format(struct kernel_init *ki, void *state) {
  struct format_state *s = state;
  TRY(dup_attr(ki->node, "template", &s->template, &s->template_n));
  TRY(dup_attr(ki->node, "placeholder", &s->placeholder, &s->placeholder_n));
  TRY(node_get_int(ki->node, "summarize", &s->summarize));
  if (!s->placeholder_n) return INVALID("placeholder must not be empty");
  int64_t n = 0;
  const char *at = s->template, *end = at + s->template_n;
  while ((at = memmem(at, (size_t)(end - at), s->placeholder, s->placeholder_n))) {
    at += s->placeholder_n;
    n++;
  }
  if (n != ki->node->n_in)
    return INVALID("num placeholders in template and num inputs must match: %" PRId64 " vs. %d", n, ki->node->n_in);
  return NULL;
}

static void release_format(void *state) {
  struct format_state *s = state;
  free(s->template);
  free(s->placeholder);
}

static shoal_status run_format(struct kernel_ctx *ctx) {
  const struct format_state *s = ctx->state;
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  struct text t = {0};
  const char *at = s->template, *end = at + s->template_n;
  for (int i = 0; i < ctx->kernel->n_in; i++) {
    const char *hit = memmem(at, (size_t)(end - at), s->placeholder, s->placeholder_n);
    text_add(&t, at, (size_t)(hit - at));
    tensor_summarize(ctx_in(ctx, i), s->summarize, true, &t);
    at = hit + s->placeholder_n;
  }
  text_add(&t, at, (size_t)(end - at));
  str_set(out->data, t.at, t.n);
  text_release(&t);
  return NULL;
}

/* ---- base64, the variant safe for addresses of web pages ---- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

struct base64_state {
  bool pad;
};

static shoal_status init_base64(struct kernel_init *ki, void *state) {
  return node_get_bool(ki->node, "pad", &((struct base64_state *)state)->pad);
}

static shoal_status run_encode_base64(struct kernel_ctx *ctx) {
  const struct base64_state *st = ctx->state;
  struct tensor *out;
  TRY(like_input(ctx, &out));
  for (int64_t i = 0; i < out->n; i++) {
    const struct str *s = string_at(ctx_in(ctx, 0), i);
    const unsigned char *p = (const unsigned char *)str_data(s);
    size_t rest = s->size % 3, n = s->size / 3 * 4 + (rest ? st->pad ? 4 : rest + 1 : 0);
    char *o = str_resize(&T_DATA(out, struct str)[i], n);
    if (!o) return NO_MEMORY(n, "a string");
    for (size_t k = 0; k < s->size; k += 3) {
      size_t have = MIN(s->size - k, (size_t)3);
      uint32_t v = (uint32_t)p[k] << 16 | (have > 1 ? (uint32_t)p[k + 1] << 8 : 0) | (have > 2 ? p[k + 2] : 0);
      for (size_t c = 0; c < 4; c++) {
        if (c <= have) *o++ = digits[v >> (18 - 6 * c) & 63];
        else if (st->pad) *o++ = '=';
      }
    }
  }
  return NULL;
}

static int digit_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '-' ? 62 : c == '_' ? 63 : -1;
}

static shoal_status decode_one(const struct str *s, struct str *out) {
  const char *p = str_data(s);
  size_t n = s->size;
  if (n && n % 4 == 0 && p[n - 1] == '=') n -= p[n - 2] == '=' ? 2 : 1;
  if (n % 4 == 1) return INVALID("Base64 string length cannot be 1 modulo 4.");
  char *o = str_resize(out, n / 4 * 3 + (n % 4 ? n % 4 - 1 : 0));
  if (!o) return NO_MEMORY(n, "a string");
  for (size_t k = 0; k < n; k += 4) {
    size_t have = MIN(n - k, (size_t)4);
    uint32_t v = 0;
    for (size_t c = 0; c < 4; c++) {
      int d = c < have ? digit_value(p[k + c]) : 0;
      if (d < 0) {
        str_clear(out);
        return INVALID("Invalid character found in base64.");
      }
      v = v << 6 | (uint32_t)d;
    }
    for (size_t c = 0; c + 1 < have; c++) *o++ = (char)(v >> (16 - 8 * c));
  }
  return NULL;
}

static shoal_status run_decode_base64(struct kernel_ctx *ctx) {
  struct tensor *out;
  TRY(like_input(ctx, &out));
  for (int64_t i = 0; i < out->n; i++) TRY(decode_one(string_at(ctx_in(ctx, 0), i), &T_DATA(out, struct str)[i]));
  return NULL;
}

/* ---- raw bytes ---- */

struct raw_state {
  bool swap; /* the bytes are in the other order than the machine's */
};

static shoal_status init_raw(struct kernel_init *ki, void *state) {
  bool little;
  TRY(node_get_bool(ki->node, "little_endian", &little));
  ((struct raw_state *)state)->swap = little != (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  return NULL;
}

/* Numbers of width bytes each; a complex one is two. */
static void copy_numbers(char *to, const char *from, size_t bytes, size_t width, bool swap) {
  if (!swap || width == 1) {
    if (bytes) memcpy(to, from, bytes);
    return;
  }
  for (size_t i = 0; i < bytes; i += width)
    for (size_t k = 0; k < width; k++) to[i + k] = from[i + width - 1 - k];
}

static shoal_status run_decode_raw(struct kernel_ctx *ctx) {
  const struct raw_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape shape = tensor_shape(x);
  if (shape.rank == SHOAL_MAX_RANK) return INVALID("DecodeRaw's input has too many dimensions");
  shoal_dtype dtype = ctx_out_type(ctx, 0);
  size_t size = dtype_size(dtype), bytes = x->n ? string_at(x, 0)->size : 0;
  for (int64_t i = 0; i < x->n; i++)
    if (string_at(x, i)->size != bytes)
      return INVALID("DecodeRaw requires input strings to all be the same size, but element %" PRId64
                     " has size %zu != %zu",
                     i, bytes, string_at(x, i)->size);
  if (bytes % size)
    return INVALID("Input to DecodeRaw has length %zu that is not a multiple of %zu, the size of %s", bytes, size,
                   dtype_tf_name(dtype));
  shape.dims[shape.rank++] = (int64_t)(bytes / size);
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  size_t width = dtype_complex(dtype) ? size / 2 : size;
  for (int64_t i = 0; i < x->n; i++)
    copy_numbers((char *)out->data + (size_t)i * bytes, str_data(string_at(x, i)), bytes, width, st->swap);
  return NULL;
}

static shoal_status shape_decode_raw(struct shape_ctx *c) {
  if (c->in[0].rank < 0 || c->in[0].rank == SHOAL_MAX_RANK) return NULL;
  c->out[0] = c->in[0];
  c->out[0].dims[c->out[0].rank++] = -1;
  return NULL;
}

static shoal_status run_decode_padded(struct kernel_ctx *ctx) {
  const struct raw_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *length = ctx_in(ctx, 1);
  struct shape shape;
  if (length->rank != 0) {
    shape = tensor_shape(length);
    return INVALID("k must be scalar, got shape %s", shape_str(&shape));
  }
  int64_t fixed = *T_DATA(length, int32_t);
  shoal_dtype dtype = ctx_out_type(ctx, 0);
  size_t size = dtype_size(dtype);
  if (fixed <= 0) return INVALID("fixed_length (%" PRId64 ") must be greater than zero.", fixed);
  if ((size_t)fixed % size)
    return INVALID("fixed_length (%" PRId64 ") must be a multiple of the size of out_type (%zu)", fixed, size);
  shape = tensor_shape(x);
  if (shape.rank == SHOAL_MAX_RANK) return INVALID("DecodePaddedRaw's input has too many dimensions");
  shape.dims[shape.rank++] = fixed / (int64_t)size;
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  if (out->n) memset(out->data, 0, tensor_bytes(out));
  char *part = mem_zalloc((size_t)fixed, 1);
  for (int64_t i = 0; i < x->n; i++) {
    const struct str *s = string_at(x, i);
    size_t n = MIN(s->size, (size_t)fixed);
    memcpy(part, str_data(s), n);
    memset(part + n, 0, (size_t)fixed - n);
    copy_numbers((char *)out->data + (size_t)(i * fixed), part, (size_t)fixed, size, st->swap);
  }
  free(part);
  return NULL;
}

/* ---- compressed bytes ---- */

struct compressed_state {
  int window; /* of zlib; 0: not compressed */
};

static shoal_status init_compressed(struct kernel_init *ki, void *state) {
  enum { ZLIB = 15, GZIP = 15 + 16 };
  const char *type;
  TRY(node_get_string(ki->node, "compression_type", &type));
  int *window = &((struct compressed_state *)state)->window;
  if (!strcmp(type, "ZLIB")) *window = ZLIB;
  else if (!strcmp(type, "GZIP")) *window = GZIP;
  else if (*type) return INVALID("Only ZLIB, GZIP or NONE are supported compressions");
  return NULL;
}

static shoal_status inflate_one(int window, const struct str *s, struct text *out) {
  z_stream z = {0};
  if (inflateInit2(&z, window) != Z_OK) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "no memory to unpack a string");
  z.next_in = (unsigned char *)(uintptr_t)str_data(s);
  z.avail_in = (unsigned)MIN(s->size, (size_t)UINT32_MAX);
  unsigned char chunk[16384];
  int rc = Z_OK;
  while (rc == Z_OK) {
    z.next_out = chunk;
    z.avail_out = sizeof chunk;
    rc = inflate(&z, Z_NO_FLUSH);
    if (!counted_text_add(out, (char *)chunk, sizeof chunk - z.avail_out)) rc = Z_MEM_ERROR;
    if (rc == Z_OK && z.avail_in == 0 && z.avail_out) break; /* cut short: what there was is the result */
  }
  shoal_status e = NULL;
  if (rc == Z_MEM_ERROR) e = NO_MEMORY(out->n, "an unpacked string");
  else if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
    e = STATUS(SHOAL_DATA_LOSS, "inflate() failed with error %d: %s", rc, z.msg ? z.msg : "");
  inflateEnd(&z);
  return e;
}

static shoal_status run_compressed(struct kernel_ctx *ctx) {
  const struct compressed_state *st = ctx->state;
  if (!st->window) return ctx_forward(ctx, 0, 0, NULL);
  struct tensor *out;
  TRY(like_input(ctx, &out));
  struct text t = {0};
  shoal_status e = NULL;
  for (int64_t i = 0; !e && i < out->n; i++) {
    t.n = 0;
    if (ctx->step->cancel && cancel_started(ctx->step->cancel)) e = cancel_reason(ctx->step->cancel);
    if (e) break;
    e = inflate_one(st->window, string_at(ctx_in(ctx, 0), i), &t);
    if (!e) str_set(&T_DATA(out, struct str)[i], t.at, t.n);
  }
  counted_text_release(&t);
  return e;
}

/* ---- StringNGrams over rows of a ragged vector ---- */

struct ngrams {
  char *separator, *left, *right;
  size_t separator_n, left_n, right_n;
  VEC(int64_t) widths;
  int64_t pad_width;
  bool preserve_short;
};

static shoal_status init_ngrams(struct kernel_init *ki, void *state) {
  struct ngrams *s = state;
  TRY(dup_attr(ki->node, "separator", &s->separator, &s->separator_n));
  TRY(dup_attr(ki->node, "left_pad", &s->left, &s->left_n));
  TRY(dup_attr(ki->node, "right_pad", &s->right, &s->right_n));
  TRY(node_get_int(ki->node, "pad_width", &s->pad_width));
  TRY(node_get_bool(ki->node, "preserve_short_sequences", &s->preserve_short));
  const struct attr *list;
  TRY(node_get_list(ki->node, "ngram_widths", ATTR_INT, &list));
  for (size_t i = 0; i < list->list.n; i++) vec_push(&s->widths, list->list.at[i].i);
  return NULL;
}

static void release_ngrams(void *state) {
  struct ngrams *s = state;
  free(s->separator);
  free(s->left);
  free(s->right);
  vec_release(&s->widths);
}

static int64_t pads_for(const struct ngrams *s, int64_t width) {
  return MIN(s->pad_width < 0 ? width - 1 : s->pad_width, width - 1);
}

/* Words [from, from + width) of a row with `pads` paddings on either side. */
static void put_ngram(const struct ngrams *s, const struct tensor *data, int64_t first, int64_t length, int64_t from,
                      int64_t width, int64_t pads, struct text *t, struct str *out) {
  t->n = 0;
  for (int64_t i = from; i < from + width; i++) {
    if (i > from) text_add(t, s->separator, s->separator_n);
    if (i < pads) text_add(t, s->left, s->left_n);
    else if (i >= pads + length) text_add(t, s->right, s->right_n);
    else text_add(t, str_data(string_at(data, first + i - pads)), string_at(data, first + i - pads)->size);
  }
  str_set(out, t->at, t->n);
}

static int64_t split_at(const struct tensor *t, int64_t i) {
  return t->dtype == SHOAL_INT32 ? T_DATA(t, int32_t)[i] : T_DATA(t, int64_t)[i];
}
static void set_split(struct tensor *t, int64_t i, int64_t v) {
  if (t->dtype == SHOAL_INT32) T_DATA(t, int32_t)[i] = (int32_t)v;
  else T_DATA(t, int64_t)[i] = v;
}

static int64_t count_ngrams(const struct ngrams *s, int64_t length) {
  int64_t n = 0;
  for (size_t w = 0; w < s->widths.n; w++) {
    int64_t width = s->widths.at[w];
    n += MAX(length + 2 * pads_for(s, width) - width + 1, 0);
  }
  return n == 0 && s->preserve_short && length > 0 ? 1 : n;
}

static shoal_status check_ngrams(const struct ngrams *s, const struct tensor *data, const struct tensor *splits) {
  for (size_t w = 0; w < s->widths.n; w++)
    if (s->widths.at[w] <= 0 || s->widths.at[w] > INT32_MAX)
      return INVALID("ngram_widths must contain positive values");
  for (int64_t i = 0; i < splits->n; i++) {
    int64_t v = split_at(splits, i), before = i ? split_at(splits, i - 1) : 0;
    if (i == 0 && v != 0) return INVALID("First split value must be 0, got %" PRId64, v);
    if (v < before) return INVALID("Invalid split value %" PRId64 ", must be >= %" PRId64, v, before);
    if (v > data->n) return INVALID("Invalid split value %" PRId64 ", must be <= %" PRId64, v, data->n);
  }
  if (splits->n && split_at(splits, splits->n - 1) != data->n)
    return INVALID("Last split value must be data size. Expected %" PRId64 ", got %" PRId64, data->n,
                   split_at(splits, splits->n - 1));
  return NULL;
}

static shoal_status run_ngrams(struct kernel_ctx *ctx) {
  const struct ngrams *s = ctx->state;
  const struct tensor *data = ctx_in(ctx, 0), *splits = ctx_in(ctx, 1);
  TRY(check_ngrams(s, data, splits));
  struct tensor *out, *out_splits;
  struct shape shape = tensor_shape(splits);
  TRY(ctx_out(ctx, 1, &shape, &out_splits));
  int64_t total = 0;
  for (int64_t i = 0; i < splits->n; i++) {
    if (i && data->n) total += count_ngrams(s, split_at(splits, i) - split_at(splits, i - 1));
    set_split(out_splits, i, total);
  }
  TRY(ctx_out_dims(ctx, 0, 1, &total, &out));
  if (!data->n) return NULL;
  struct text t = {0};
  int64_t at = 0;
  for (int64_t i = 0; i + 1 < splits->n; i++) {
    int64_t first = split_at(splits, i), length = split_at(splits, i + 1) - first, begun = at;
    for (size_t w = 0; w < s->widths.n; w++) {
      int64_t width = s->widths.at[w], pads = pads_for(s, width);
      for (int64_t from = 0; from < length + 2 * pads - width + 1; from++)
        put_ngram(s, data, first, length, from, width, pads, &t, &T_DATA(out, struct str)[at++]);
    }
    if (at == begun && s->preserve_short && length > 0) { /* all there is, with paddings when they were asked for */
      int64_t pads = s->pad_width < 0 ? 0 : s->pad_width;
      put_ngram(s, data, first, length, 0, length + 2 * pads, pads, &t, &T_DATA(out, struct str)[at++]);
    }
  }
  text_release(&t);
  return NULL;
}

static shoal_status shape_ngrams(struct shape_ctx *c) {
  c->out[0] = shape_vector(-1);
  c->out[1] = c->in[1];
  return NULL;
}

/* ---- rows ---- */

#define STATE(type, init_, release_, fn)                                                                \
  (const struct kernel_def[]) {                                                                         \
    {.device = "CPU", .state_size = sizeof(type), .init = init_, .release = release_, .run = fn}, { 0 } \
  }

static const struct op_row rows[] = {
    {.name = "AsString",
     .in = "input: T",
     .out = "output: string",
     .attrs = "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, complex64, "
              "complex128, bool, variant, string}; precision: int = -1; scientific: bool = false; "
              "shortest: bool = false; width: int = -1; fill: string = ''",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = (const struct kernel_def[]){{.device = "CPU",
                                             .type_attr = "T",
                                             .types = DT_NUMBER | DT(BOOL) | DT(STRING),
                                             .state_size = sizeof(struct as_string),
                                             .init = init_as_string,
                                             .run = run_as_string},
                                            {0}}},
    {.name = "StringFormat",
     .in = "inputs: T",
     .out = "output: string",
     .attrs = "T: list(type) >= 0; template: string = '%s'; placeholder: string = '%s'; summarize: int = 3",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = STATE(struct format_state, init_format, release_format, run_format)},
    {.name = "EncodeBase64",
     .in = "input: string",
     .out = "output: string",
     .attrs = "pad: bool = false",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = STATE(struct base64_state, init_base64, NULL, run_encode_base64)},
    {.name = "DecodeBase64",
     .in = "input: string",
     .out = "output: string",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = (const struct kernel_def[]){{.device = "CPU", .run = run_decode_base64}, {0}}},
    {.name = "DecodeRaw",
     .in = "bytes: string",
     .out = "output: out_type",
     .attrs = "out_type: {half, float, double, int32, uint16, uint8, int16, int8, int64, complex64, complex128, bool, "
              "bfloat16}; little_endian: bool = true",
     .flags = OP_NO_GRADIENT,
     .shape = shape_decode_raw,
     .kernels = STATE(struct raw_state, init_raw, NULL, run_decode_raw)},
    {.name = "DecodePaddedRaw",
     .in = "input_bytes: string, fixed_length: int32",
     .out = "output: out_type",
     .attrs = "out_type: {half, float, double, int32, uint16, uint8, int16, int8, int64, bfloat16}; "
              "little_endian: bool = true",
     .flags = OP_NO_GRADIENT,
     .shape = shape_decode_raw,
     .kernels = STATE(struct raw_state, init_raw, NULL, run_decode_padded)},
    {.name = "DecodeCompressed",
     .in = "bytes: string",
     .out = "output: string",
     .attrs = "compression_type: string = ''",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = STATE(struct compressed_state, init_compressed, NULL, run_compressed)},
    {.name = "StringNGrams",
     .in = "data: string, data_splits: Tsplits",
     .out = "ngrams: string, ngrams_splits: Tsplits",
     .attrs = "separator: string; ngram_widths: list(int) >= 0; left_pad: string; right_pad: string; pad_width: int; "
              "preserve_short_sequences: bool; Tsplits: {int32, int64} = int64",
     .flags = OP_NO_GRADIENT,
     .shape = shape_ngrams,
     .kernels = STATE(struct ngrams, init_ngrams, release_ngrams, run_ngrams)},
};
OP_FAMILY(strings_convert, rows);
