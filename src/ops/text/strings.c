/* Ops on whole strings: joining, splitting, lengths, case, parts, hashes, numbers. Regular expressions, conversions
 * and Unicode have files of their own (strings_regex.c, strings_convert.c, strings_unicode.c). */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fingerprint.h"
#include "base/text.h"
#include "graph/shape_fn.h"
#include "ops/text/string_in.h"

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
/* Not the second or later byte of a character. */
static bool begins_char(char c) { return ((unsigned char)c & 0xc0) != 0x80; }

static shoal_status like_input(struct kernel_ctx *ctx, struct tensor **out) {
  struct shape s = tensor_shape(ctx_in(ctx, 0));
  return ctx_out(ctx, 0, &s, out);
}

/* ---- StringJoin ---- */

struct separator {
  char *text;
  size_t n;
  bool keep_dims; /* ReduceJoin */
};

static shoal_status init_separator(struct kernel_init *ki, void *state) {
  struct separator *s = state;
  const struct attr *a = node_attr(ki->node, "separator");
  if (!a || a->kind != ATTR_STRING) return INVALID("separator must be a string");
  s->n = a->s.n;
  s->text = mem_alloc(s->n + 1);
  memcpy(s->text, a->s.data, s->n);
  if (node_attr(ki->node, "keep_dims")) TRY(node_get_bool(ki->node, "keep_dims", &s->keep_dims));
  return NULL;
}

static void release_separator(void *state) { free(((struct separator *)state)->text); }

static shoal_status run_join(struct kernel_ctx *ctx) {
  const struct separator *sep = ctx->state;
  struct shape shape = shape_scalar();
  bool found = false;
  for (int i = 0; i < ctx->kernel->n_in; i++) {
    const struct tensor *t = ctx_in(ctx, i);
    if (t->rank == 0) continue;
    struct shape s = tensor_shape(t);
    if (found && !shape_equal(&shape, &s))
      return INVALID("Input shapes do not match: %s vs. %s", shape_str(&shape), shape_str(&s));
    shape = s;
    found = true;
  }
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  struct text t = {0};
  for (int64_t k = 0; k < out->n; k++) {
    t.n = 0;
    for (int i = 0; i < ctx->kernel->n_in; i++) {
      const struct str *s = string_at(ctx_in(ctx, i), ctx_in(ctx, i)->rank ? k : 0);
      if (i) text_add(&t, sep->text, sep->n);
      text_add(&t, str_data(s), s->size);
    }
    str_set(&T_DATA(out, struct str)[k], t.at, t.n);
  }
  text_release(&t);
  return NULL;
}

static shoal_status shape_join(struct shape_ctx *c) {
  struct shape s = shape_scalar();
  for (int i = 0; i < c->node->n_in; i++) {
    if (c->in[i].rank < 0) return NULL;
    if (c->in[i].rank == 0) continue;
    if (s.rank == 0) s = c->in[i];
    else TRY(shape_merge(&s, &c->in[i], &s));
  }
  c->out[0] = s;
  return NULL;
}

/* ---- ReduceJoin ---- */

static shoal_status run_reduce_join(struct kernel_ctx *ctx) {
  const struct separator *sep = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *axes = ctx_in(ctx, 1);
  bool reduced[SHOAL_MAX_RANK] = {0};
  int order[SHOAL_MAX_RANK], n = 0; /* the reduced dimensions in the order given, the first varies fastest */
  for (int64_t i = 0; i < axes->n; i++) {
    int32_t a = T_DATA(axes, int32_t)[i], d = a < 0 ? a + x->rank : a;
    if (d < 0 || d >= x->rank)
      return STATUS(SHOAL_OUT_OF_RANGE, "Invalid reduction dimension %d for input with %d dimensions", a, x->rank);
    if (reduced[d]) return INVALID("Duplicate reduction dimension %d", a);
    reduced[d] = true;
    order[n++] = d;
  }
  int64_t stride[SHOAL_MAX_RANK], step = 1, parts = 1;
  for (int d = x->rank - 1; d >= 0; step *= x->dims[d--]) stride[d] = step;
  struct shape shape = {0};
  int kept[SHOAL_MAX_RANK], n_kept = 0;
  for (int d = 0; d < x->rank; d++) {
    if (reduced[d]) {
      parts *= x->dims[d];
      if (sep->keep_dims) shape.dims[shape.rank++] = 1;
    } else {
      shape.dims[shape.rank++] = x->dims[d];
      kept[n_kept++] = d;
    }
  }
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  struct text t = {0};
  for (int64_t k = 0; k < out->n; k++) {
    int64_t base = 0, rest = k;
    for (int i = n_kept - 1; i >= 0; i--) {
      base += rest % x->dims[kept[i]] * stride[kept[i]];
      rest /= x->dims[kept[i]];
    }
    t.n = 0;
    for (int64_t p = 0; p < parts; p++) {
      int64_t at = base;
      rest = p;
      for (int i = 0; i < n; i++) {
        at += rest % x->dims[order[i]] * stride[order[i]];
        rest /= x->dims[order[i]];
      }
      const struct str *s = string_at(x, at);
      if (p) text_add(&t, sep->text, sep->n);
      text_add(&t, str_data(s), s->size);
    }
    str_set(&T_DATA(out, struct str)[k], t.at, t.n);
  }
  text_release(&t);
  return NULL;
}

/* ---- UnsortedSegmentJoin ---- */

static shoal_status run_segment_join(struct kernel_ctx *ctx) {
  const struct separator *sep = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *ids = ctx_in(ctx, 1), *count = ctx_in(ctx, 2);
  int64_t segments;
  if (count->rank != 0) return INVALID("Number of segments should be a scalar, not a tensor of rank %d", count->rank);
  TRY(tensor_get_int(count, "num_segments", &segments));
  if (segments < 0) return INVALID("Number of segments must be non-negative but got %" PRId64, segments);
  if (ids->rank == 0) return INVALID("Segment_id cannot have rank 0");
  if (ids->rank > x->rank)
    return STATUS(SHOAL_OUT_OF_RANGE, "Invalid segment_id rank %d for input with %d dimension(s)", ids->rank, x->rank);
  struct shape shape = {.rank = 1, .dims = {segments}};
  for (int d = 0; d < x->rank; d++) {
    if (d < ids->rank && x->dims[d] != ids->dims[d])
      return INVALID("Segment dimension is %" PRId64 " while input dimension is %" PRId64 " in rank %d", ids->dims[d],
                     x->dims[d], d);
    if (d >= ids->rank) shape.dims[shape.rank++] = x->dims[d];
  }
  int64_t row = ids->n ? x->n / ids->n : 0;
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  if (!out->n) row = 0;
  struct text *parts = mem_zalloc((size_t)out->n + 1, sizeof *parts);
  bool *any = mem_zalloc((size_t)out->n + 1, sizeof *any);
  shoal_status e = NULL;
  for (int64_t i = 0; !e && i < ids->n; i++) {
    int64_t id = ids->dtype == SHOAL_INT32 ? T_DATA(ids, int32_t)[i] : T_DATA(ids, int64_t)[i];
    if (id < 0 || id >= segments)
      e = INVALID("segment_ids are not allowed to exceed num_segments or to have negative values.");
    for (int64_t k = 0; !e && k < row; k++) {
      struct text *t = &parts[id * row + k];
      const struct str *s = string_at(x, i * row + k);
      if (any[id * row + k]) text_add(t, sep->text, sep->n);
      any[id * row + k] = true;
      text_add(t, str_data(s), s->size);
    }
  }
  for (int64_t i = 0; i < out->n; i++) {
    if (!e) str_set(&T_DATA(out, struct str)[i], parts[i].at, parts[i].n);
    text_release(&parts[i]);
  }
  free(parts);
  free(any);
  return e;
}

/* ---- StringSplit, StringSplitV2: a sparse matrix of parts ---- */

struct string_part {
  const char *at;
  size_t n;
  int64_t row;
};
typedef VEC(struct string_part) parts;

static shoal_status put_parts(struct kernel_ctx *ctx, const parts *p, int64_t rows) {
  int64_t n = (int64_t)p->n, dims[2] = {n, 2}, two = 2, column = 0, widest = 0;
  struct tensor *indices, *values, *shape;
  TRY(ctx_out_dims(ctx, 0, 2, dims, &indices));
  TRY(ctx_out_dims(ctx, 1, 1, &n, &values));
  TRY(ctx_out_dims(ctx, 2, 1, &two, &shape));
  for (int64_t i = 0; i < n; i++) {
    column = i && p->at[i].row == p->at[i - 1].row ? column + 1 : 0;
    if (column + 1 > widest) widest = column + 1;
    T_DATA(indices, int64_t)[2 * i] = p->at[i].row;
    T_DATA(indices, int64_t)[2 * i + 1] = column;
    str_set(&T_DATA(values, struct str)[i], p->at[i].at, p->at[i].n);
  }
  T_DATA(shape, int64_t)[0] = rows;
  T_DATA(shape, int64_t)[1] = widest;
  return NULL;
}

struct split_state {
  bool skip_empty;
  int64_t max;
};

static shoal_status init_split(struct kernel_init *ki, void *state) {
  return node_get_bool(ki->node, "skip_empty", &((struct split_state *)state)->skip_empty);
}

static shoal_status init_split_v2(struct kernel_init *ki, void *state) {
  return node_get_int(ki->node, "maxsplit", &((struct split_state *)state)->max);
}

static shoal_status check_split(const struct kernel_ctx *ctx, const char *name) {
  struct shape s;
  if (ctx_in(ctx, 0)->rank != 1) {
    s = tensor_shape(ctx_in(ctx, 0));
    return INVALID("input must be a vector, got shape: %s", shape_str(&s));
  }
  if (ctx_in(ctx, 1)->rank != 0) {
    s = tensor_shape(ctx_in(ctx, 1));
    return INVALID("%s must be a scalar, got shape: %s", name, shape_str(&s));
  }
  return NULL;
}

/* At any character of the delimiter; at every character when there is none. */
static void split_at_set(parts *out, const struct str *s, const struct str *delimiters, bool skip_empty, int64_t row) {
  const char *text = str_data(s), *set = str_data(delimiters);
  if (!s->size) return;
  if (!delimiters->size) {
    for (size_t i = 0; i < s->size; i++) vec_push(out, (struct string_part){text + i, 1, row});
    return;
  }
  size_t start = 0;
  for (size_t i = 0; i <= s->size; i++) {
    if (i < s->size && !memchr(set, text[i], delimiters->size)) continue;
    if (i > start || !skip_empty) vec_push(out, (struct string_part){text + start, i - start, row});
    start = i + 1;
  }
}

static shoal_status run_split(struct kernel_ctx *ctx) {
  const struct split_state *st = ctx->state;
  TRY(check_split(ctx, "delimiter"));
  const struct tensor *x = ctx_in(ctx, 0);
  parts p = {0};
  for (int64_t i = 0; i < x->n; i++) split_at_set(&p, string_at(x, i), string_at(ctx_in(ctx, 1), 0), st->skip_empty, i);
  shoal_status s = put_parts(ctx, &p, x->n);
  vec_release(&p);
  return s;
}

/* As Python's str.split. */
static void split_at_text(parts *out, const struct str *s, const struct str *sep, int64_t max, int64_t row) {
  const char *at = str_data(s), *end = at + s->size;
  if (max == 0) {
    vec_push(out, (struct string_part){at, s->size, row});
    return;
  }
  int64_t done = 0;
  if (!sep->size) {
    for (;;) {
      while (at < end && is_space(*at)) at++;
      if (max > 0 && done == max) {
        vec_push(out, (struct string_part){at, (size_t)(end - at), row});
        return;
      }
      const char *stop = at;
      while (stop < end && !is_space(*stop)) stop++;
      if (stop == at) return;
      vec_push(out, (struct string_part){at, (size_t)(stop - at), row});
      at = stop;
      done++;
    }
  }
  const char *hit;
  while ((max < 0 || done < max) && (hit = memmem(at, (size_t)(end - at), str_data(sep), sep->size))) {
    vec_push(out, (struct string_part){at, (size_t)(hit - at), row});
    at = hit + sep->size;
    done++;
  }
  vec_push(out, (struct string_part){at, (size_t)(end - at), row});
}

static shoal_status run_split_v2(struct kernel_ctx *ctx) {
  const struct split_state *st = ctx->state;
  TRY(check_split(ctx, "sep"));
  const struct tensor *x = ctx_in(ctx, 0);
  parts p = {0};
  for (int64_t i = 0; i < x->n; i++) split_at_text(&p, string_at(x, i), string_at(ctx_in(ctx, 1), 0), st->max, i);
  shoal_status s = put_parts(ctx, &p, x->n);
  vec_release(&p);
  return s;
}

static shoal_status shape_split(struct shape_ctx *c) {
  struct shape s;
  TRY(shape_in_rank(c, 0, 1, &s));
  TRY(shape_in_rank(c, 1, 0, &s));
  c->out[0] = shape_matrix(-1, 2);
  c->out[1] = shape_vector(-1);
  c->out[2] = shape_vector(2);
  return NULL;
}

/* ---- lengths and parts ---- */

struct unit_state {
  bool chars;
};

static shoal_status init_unit(struct kernel_init *ki, void *state) {
  const char *unit;
  TRY(node_get_string(ki->node, "unit", &unit));
  ((struct unit_state *)state)->chars = strcmp(unit, "UTF8_CHAR") == 0;
  return NULL;
}

static int64_t char_count(const char *s, size_t n) {
  int64_t count = 0;
  for (size_t i = 0; i < n; i++) count += begins_char(s[i]);
  return count;
}

static shoal_status run_length(struct kernel_ctx *ctx) {
  const struct unit_state *st = ctx->state;
  struct tensor *out;
  TRY(like_input(ctx, &out));
  for (int64_t i = 0; i < out->n; i++) {
    const struct str *s = string_at(ctx_in(ctx, 0), i);
    T_DATA(out, int32_t)[i] = (int32_t)(st->chars ? char_count(str_data(s), s->size) : (int64_t)s->size);
  }
  return NULL;
}

/* Byte position of character k; n when there are fewer. */
static size_t char_at(const char *s, size_t n, int64_t k) {
  size_t i = 0;
  for (; i < n; i++)
    if (begins_char(s[i]) && k-- == 0) return i;
  return n;
}

static shoal_status substring(const struct str *in, int64_t pos, int64_t len, bool chars, int64_t index,
                              struct str *out) {
  const char *s = str_data(in);
  size_t n = in->size, begin, end;
  int64_t units = chars ? char_count(s, n) : (int64_t)n, at = pos < 0 ? pos + units : pos;
  if (at < 0 || at > units) {
    if (chars) return INVALID("pos %" PRId64 " out of range for string at index %" PRId64, pos, index);
    return INVALID("pos %" PRId64 " out of range for string b'%.*s' at index %" PRId64, pos, (int)n, s, index);
  }
  if (len < 0) len = chars ? 0 : units; /* a negative length of bytes takes all there are */
  int64_t stop = len > units - at ? units : at + len;
  begin = chars ? char_at(s, n, at) : (size_t)at;
  end = chars ? char_at(s, n, stop) : (size_t)stop;
  str_set(out, s + begin, end - begin);
  return NULL;
}

static int64_t int_at(const struct tensor *t, int64_t i) {
  return t->dtype == SHOAL_INT32 ? T_DATA(t, int32_t)[i] : T_DATA(t, int64_t)[i];
}

/* The element of t that stands at place k of the broadcast shape. */
static int64_t broadcast_at(const struct shape *shape, const struct tensor *t, int64_t k) {
  int64_t at = 0, stride = 1;
  for (int d = shape->rank - 1, e = t->rank - 1; e >= 0; d--, e--) {
    int64_t coord = k % shape->dims[d];
    k /= shape->dims[d];
    if (t->dims[e] != 1) at += coord * stride;
    stride *= t->dims[e];
  }
  return at;
}

static shoal_status run_substr(struct kernel_ctx *ctx) {
  const struct unit_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *pos = ctx_in(ctx, 1), *len = ctx_in(ctx, 2);
  struct shape a = tensor_shape(x), b = tensor_shape(pos), c = tensor_shape(len), shape;
  if (!shape_equal(&b, &c))
    return INVALID("pos and len should have the same shape, got: %s vs. %s", shape_str(&b), shape_str(&c));
  TRY(shape_broadcast(&a, &b, &shape));
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  for (int64_t i = 0; i < out->n; i++) {
    int64_t p = broadcast_at(&shape, pos, i);
    TRY(substring(string_at(x, broadcast_at(&shape, x, i)), int_at(pos, p), int_at(len, p), st->chars, i,
                  &T_DATA(out, struct str)[i]));
  }
  return NULL;
}

static shoal_status shape_substr(struct shape_ctx *c) {
  struct shape both;
  TRY(shape_merge(&c->in[1], &c->in[2], &both));
  return shape_broadcast(&c->in[0], &both, &c->out[0]);
}

static shoal_status run_strip(struct kernel_ctx *ctx) {
  struct tensor *out;
  TRY(like_input(ctx, &out));
  for (int64_t i = 0; i < out->n; i++) {
    const struct str *s = string_at(ctx_in(ctx, 0), i);
    const char *at = str_data(s), *end = at + s->size;
    while (at < end && is_space(*at)) at++;
    while (end > at && is_space(end[-1])) end--;
    str_set(&T_DATA(out, struct str)[i], at, (size_t)(end - at));
  }
  return NULL;
}

/* ---- hashes ---- */

struct hash_state {
  uint64_t buckets, key[2];
};

static shoal_status init_hash(struct kernel_init *ki, void *state) {
  struct hash_state *s = state;
  int64_t n;
  TRY(node_get_int(ki->node, "num_buckets", &n));
  if (n < 1) return INVALID("num_buckets must be at least 1, not %" PRId64, n);
  s->buckets = (uint64_t)n;
  if (!node_attr(ki->node, "key")) return NULL;
  int64_t key[2];
  int count;
  const struct attr *list;
  TRY(node_get_list(ki->node, "key", ATTR_INT, &list));
  if (list->list.n != 2) return INVALID("Key must have 2 elements");
  TRY(node_get_ints(ki->node, "key", key, 2, &count));
  s->key[0] = (uint64_t)key[0];
  s->key[1] = (uint64_t)key[1];
  return NULL;
}

static uint64_t hash_fast(const struct hash_state *st, const struct str *s) {
  return fingerprint64(str_data(s), s->size);
}
static uint64_t hash_strong(const struct hash_state *st, const struct str *s) {
  return siphash64(st->key[0], st->key[1], str_data(s), s->size);
}
static uint64_t hash_old(const struct hash_state *st, const struct str *s) {
  return murmur64(str_data(s), s->size, MURMUR64_SEED);
}

static shoal_status run_hash(struct kernel_ctx *ctx, uint64_t (*hash)(const struct hash_state *, const struct str *)) {
  const struct hash_state *st = ctx->state;
  struct tensor *out;
  TRY(like_input(ctx, &out));
  for (int64_t i = 0; i < out->n; i++)
    T_DATA(out, int64_t)[i] = (int64_t)(hash(st, string_at(ctx_in(ctx, 0), i)) % st->buckets);
  return NULL;
}
static shoal_status run_hash_fast(struct kernel_ctx *ctx) { return run_hash(ctx, hash_fast); }
static shoal_status run_hash_strong(struct kernel_ctx *ctx) { return run_hash(ctx, hash_strong); }
static shoal_status run_hash_old(struct kernel_ctx *ctx) { return run_hash(ctx, hash_old); }

/* Fingerprint: eight bytes for each row. A row of strings is hashed by the hashes of its strings. */
static shoal_status run_fingerprint(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *method = ctx_in(ctx, 1);
  struct shape s;
  if (method->rank != 0) {
    s = tensor_shape(method);
    return INVALID("`method` should be a scalar string: %s", shape_str(&s));
  }
  const struct str *name = string_at(method, 0);
  if (name->size != 10 || memcmp(str_data(name), "farmhash64", 10) != 0)
    return INVALID("Unsupported fingerprint method: %.*s", (int)name->size, str_data(name));
  if (x->rank < 1) {
    s = tensor_shape(x);
    return INVALID("`data` should have at least one dimension: %s", shape_str(&s));
  }
  if (!dtype_plain((shoal_dtype)x->dtype) && x->dtype != SHOAL_STRING)
    return INVALID("Data type not supported: %s", dtype_tf_name(x->dtype));
  int64_t dims[2] = {x->dims[0], 8}, row = x->dims[0] ? x->n / x->dims[0] : 0;
  size_t bytes = (size_t)row * dtype_size((shoal_dtype)x->dtype);
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 2, dims, &out));
  uint64_t *hashes = mem_zalloc((size_t)row + 1, sizeof *hashes);
  for (int64_t i = 0; i < dims[0]; i++) {
    uint64_t h;
    if (x->dtype != SHOAL_STRING) {
      h = fingerprint64((const char *)x->data + (size_t)i * bytes, bytes);
    } else {
      for (int64_t k = 0; k < row; k++) {
        const struct str *e = string_at(x, i * row + k);
        hashes[k] = fingerprint64(str_data(e), e->size);
      }
      h = x->rank == 1 ? hashes[0] : fingerprint64(hashes, (size_t)row * 8);
    }
    for (int b = 0; b < 8; b++) T_DATA(out, uint8_t)[8 * i + b] = (uint8_t)(h >> (8 * b));
  }
  free(hashes);
  return NULL;
}

static shoal_status shape_fingerprint(struct shape_ctx *c) {
  struct shape x;
  TRY(shape_in_rank_at_least(c, 0, 1, &x));
  TRY(shape_in_rank(c, 1, 0, &x));
  c->out[0] = shape_matrix(c->in[0].rank > 0 ? c->in[0].dims[0] : -1, 8);
  return NULL;
}

/* ---- StringToNumber ---- */

static bool to_integer(const char *s, int64_t max, int64_t *out) {
  bool negative = *s == '-';
  if (negative) s++;
  if (!isdigit((unsigned char)*s)) return false;
  uint64_t v = 0, limit = negative ? (uint64_t)max + 1 : (uint64_t)max;
  for (; isdigit((unsigned char)*s); s++) {
    uint64_t d = (uint64_t)(*s - '0');
    if (v > (limit - d) / 10) return false;
    v = v * 10 + d;
  }
  *out = negative ? (int64_t)(0 - v) : (int64_t)v;
  return *s == 0;
}

static bool to_float(const char *s, shoal_dtype type, void *out, int64_t i) {
  char *end;
  if (!*s || strchr(s, '(')) return false;
  if (type == SHOAL_FLOAT32) ((float *)out)[i] = strtof(s, &end);
  else ((double *)out)[i] = strtod(s, &end);
  return end != s && *end == 0;
}

bool string_to_number(const char *data, size_t n, shoal_dtype type, void *out, int64_t i) {
  char small[64], *s = small;
  while (n && is_space(*data)) data++, n--;
  while (n && is_space(data[n - 1])) n--;
  if (memchr(data, 0, n)) return false;
  if (n >= sizeof small) s = mem_alloc(n + 1);
  memcpy(s, data, n);
  s[n] = 0;
  int64_t v;
  bool ok;
  if (type == SHOAL_INT32) {
    ok = to_integer(s, INT32_MAX, &v);
    if (ok) ((int32_t *)out)[i] = (int32_t)v;
  } else if (type == SHOAL_INT64) {
    ok = to_integer(s, INT64_MAX, &v);
    if (ok) ((int64_t *)out)[i] = v;
  } else {
    ok = to_float(s, type, out, i);
  }
  if (s != small) free(s);
  return ok;
}

static shoal_status run_to_number(struct kernel_ctx *ctx) {
  struct tensor *out;
  TRY(like_input(ctx, &out));
  for (int64_t i = 0; i < out->n; i++) {
    const struct str *s = string_at(ctx_in(ctx, 0), i);
    if (!string_to_number(str_data(s), s->size, (shoal_dtype)out->dtype, out->data, i))
      return INVALID("StringToNumberOp could not correctly convert string: %.*s", (int)s->size, str_data(s));
  }
  return NULL;
}

/* ---- rows ---- */

#define RUN(fn)                         \
  (const struct kernel_def[]) {         \
    {.device = "CPU", .run = fn}, { 0 } \
  }
#define STATE(type, init_, release_, fn)                                                                \
  (const struct kernel_def[]) {                                                                         \
    {.device = "CPU", .state_size = sizeof(type), .init = init_, .release = release_, .run = fn}, { 0 } \
  }

static const struct op_row rows[] = {
    {.name = "StringJoin",
     .in = "inputs: N * string",
     .out = "output: string",
     .attrs = "N: int >= 0; separator: string = ''",
     .flags = OP_NO_GRADIENT,
     .shape = shape_join,
     .kernels = STATE(struct separator, init_separator, release_separator, run_join)},
    {.name = "ReduceJoin",
     .in = "inputs: string, reduction_indices: int32",
     .out = "output: string",
     .attrs = "keep_dims: bool = false; separator: string = ''",
     .flags = OP_NO_GRADIENT,
     .shape = shape_reduction,
     .kernels = STATE(struct separator, init_separator, release_separator, run_reduce_join)},
    {.name = "UnsortedSegmentJoin",
     .in = "inputs: string, segment_ids: Tindices, num_segments: Tnumsegments",
     .out = "output: string",
     .attrs = "separator: string = ''; Tindices: {int32, int64}; Tnumsegments: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .kernels = STATE(struct separator, init_separator, release_separator, run_segment_join)},
    {.name = "StringSplit",
     .in = "input: string, delimiter: string",
     .out = "indices: int64, values: string, shape: int64",
     .attrs = "skip_empty: bool = true",
     .flags = OP_NO_GRADIENT,
     .shape = shape_split,
     .kernels = STATE(struct split_state, init_split, NULL, run_split)},
    {.name = "StringSplitV2",
     .in = "input: string, sep: string",
     .out = "indices: int64, values: string, shape: int64",
     .attrs = "maxsplit: int = -1",
     .flags = OP_NO_GRADIENT,
     .shape = shape_split,
     .kernels = STATE(struct split_state, init_split_v2, NULL, run_split_v2)},
    {.name = "StringLength",
     .in = "input: string",
     .out = "output: int32",
     .attrs = "unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = STATE(struct unit_state, init_unit, NULL, run_length)},
    {.name = "Substr",
     .in = "input: string, pos: T, len: T",
     .out = "output: string",
     .attrs = "T: {int32, int64}; unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'",
     .flags = OP_NO_GRADIENT,
     .shape = shape_substr,
     .kernels = STATE(struct unit_state, init_unit, NULL, run_substr)},
    {.name = "StringStrip",
     .in = "input: string",
     .out = "output: string",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = RUN(run_strip)},
    {.name = "StringToHashBucket",
     .in = "string_tensor: string",
     .out = "output: int64",
     .attrs = "num_buckets: int >= 1",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = STATE(struct hash_state, init_hash, NULL, run_hash_old)},
    {.name = "StringToHashBucketFast",
     .in = "input: string",
     .out = "output: int64",
     .attrs = "num_buckets: int >= 1",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = STATE(struct hash_state, init_hash, NULL, run_hash_fast)},
    {.name = "StringToHashBucketStrong",
     .in = "input: string",
     .out = "output: int64",
     .attrs = "num_buckets: int >= 1; key: list(int)",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = STATE(struct hash_state, init_hash, NULL, run_hash_strong)},
    {.name = "Fingerprint",
     .in = "data: T, method: string",
     .out = "fingerprint: uint8",
     .attrs = "T: type",
     .flags = OP_NO_GRADIENT,
     .shape = shape_fingerprint,
     .kernels = RUN(run_fingerprint)},
    {.name = "StringToNumber",
     .in = "string_tensor: string",
     .out = "output: out_type",
     .attrs = "out_type: {float, double, int32, int64} = float",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = RUN(run_to_number)},
};
OP_FAMILY(strings, rows);
