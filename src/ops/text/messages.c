/* DecodeProtoV2 and EncodeProto: fields of serialized messages as tensors, and back.
 *
 * The message's type comes from a FileDescriptorSet, in the attribute itself ("bytes://...") or in a file, or is one
 * of those that are linked in ("local://": message_linked.c). It is looked up at the first run, where the kernel knows
 * which files it may read. Decoding goes over each message twice: it counts, and then it fills tensors as wide as the
 * largest count, with defaults where there is nothing. What TensorFlow 2.15.1 does to rare input is done here too:
 * defaults of unsigned integers lose all but 8 bits, those of strings end at a zero; a negative int32 in a packed list
 * becomes a large int64; a packed list of a field that is not repeated counts, and is not read. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/wire.h"
#include "graph/shape_fn.h"
#include "ops/array/array_util.h"
#include "ops/text/message_type.h"
#include "ops/text/message_wire.h"
#include "ops/text/string_in.h"

/* ---- fields of the attributes ---- */

struct message_column {
  const struct message_field *f;
  shoal_dtype type;
  int at; /* the output or input */
};

struct messages_state {
  /* The attributes. */
  char *source, *type_name, **names;
  size_t source_n;
  int n_names;
  bool decodes, text, sanitize;
  pthread_mutex_t lock;
  bool looked_up; /* lock; what follows does not change after it */
  struct message_pool pool;
  const struct message_type *type;
  struct message_column *columns; /* by field number */
  int n;
};

static shoal_status init(struct kernel_init *ki, void *state) {
  struct messages_state *st = state;
  const struct attr *names, *source = node_attr(ki->node, "descriptor_source");
  const char *text;
  pthread_mutex_init(&st->lock, NULL);
  st->decodes = op_is(ki->node->op, "DecodeProtoV2");
  TRY(node_get_string(ki->node, "message_type", &text));
  TRY(node_get_list(ki->node, "field_names", ATTR_STRING, &names));
  st->type_name = mem_strndup(text, strlen(text));
  st->source_n = source->s.n;
  st->source = mem_strndup("", 0);
  if (source->s.n) {
    free(st->source);
    st->source = mem_alloc(source->s.n + 1);
    memcpy(st->source, source->s.data, source->s.n + 1);
  }
  st->names = mem_zalloc(names->list.n + 1, sizeof *st->names);
  for (size_t i = 0; i < names->list.n; i++)
    st->names[st->n_names++] = mem_strndup(names->list.at[i].s.data, names->list.at[i].s.n);
  int given = (st->decodes ? ki->kernel->n_out : ki->kernel->n_in) - 1;
  if (st->n_names != given)
    return INVALID("%s", st->decodes ? "field_names and output_types attributes must have the same length"
                                     : "Length of inputs list must match field_names");
  if (!st->decodes) return NULL;
  TRY(node_get_string(ki->node, "message_format", &text));
  st->text = str_equal(text, "text");
  if (!st->text && !str_equal(text, "binary")) return INVALID("format must be one of binary or text");
  return node_get_bool(ki->node, "sanitize", &st->sanitize);
}

static void release(void *state) {
  struct messages_state *st = state;
  message_pool_release(&st->pool);
  for (int i = 0; i < st->n_names; i++) free(st->names[i]);
  free(st->names);
  free(st->source);
  free(st->type_name);
  free(st->columns);
  pthread_mutex_destroy(&st->lock);
}

/* Whether a field's values can be elements of that type. */
static bool fits(enum field_type f, shoal_dtype t) {
  switch (f) {
    case FIELD_DOUBLE: return t == SHOAL_FLOAT64;
    case FIELD_FLOAT: return t == SHOAL_FLOAT32 || t == SHOAL_FLOAT64;
    case FIELD_INT64:
    case FIELD_SFIXED64:
    case FIELD_SINT64: return t == SHOAL_INT64;
    case FIELD_UINT64:
    case FIELD_FIXED64: return t == SHOAL_UINT64;
    case FIELD_INT32:
    case FIELD_SFIXED32:
    case FIELD_SINT32: return t == SHOAL_INT32 || t == SHOAL_INT64;
    case FIELD_UINT32:
    case FIELD_FIXED32: return t == SHOAL_UINT32 || t == SHOAL_UINT64;
    case FIELD_BOOL: return t == SHOAL_BOOL;
    case FIELD_ENUM: return t == SHOAL_INT32;
    default: return t == SHOAL_STRING;
  }
}

static shoal_status pool_make(const struct messages_state *st, struct message_pool *p) {
  static const char prefix[] = "bytes://";
  const size_t n = sizeof prefix - 1;
  if (st->source_n == 0 || str_equal(st->source, "local://")) {
    message_pool_linked(p);
    return NULL;
  }
  if (st->source_n >= n && !memcmp(st->source, prefix, n))
    return message_pool_read(p, st->source + n, st->source_n - n);
  char *data;
  size_t size;
  shoal_status s = strlen(st->source) == st->source_n ? file_read(st->source, MESSAGE_SET_MAX, &data, &size)
                                                      : INVALID("its name holds a zero");
  if (s) { /* TensorFlow says the same whatever is wrong with the file */
    shoal_status told = INVALID("Source does not represent serialized file descriptor set proto, and as a file: %s",
                                shoal_status_message(s));
    shoal_status_free(s);
    return told;
  }
  s = message_pool_read(p, data, size);
  free(data);
  return s;
}

static int by_number(const void *a, const void *b) {
  const struct message_column *x = a, *y = b;
  if (x->f->number != y->f->number) return x->f->number < y->f->number ? -1 : 1;
  return x->at - y->at;
}

static shoal_status columns_make(struct kernel_ctx *ctx, struct messages_state *st) {
  TRY(pool_make(st, &st->pool));
  st->type = message_pool_find(&st->pool, st->type_name);
  if (!st->type) return INVALID("No descriptor found for message type %s", st->type_name);
  st->columns = mem_zalloc((size_t)st->n_names + 1, sizeof *st->columns);
  for (int i = 0; i < st->n_names; i++) {
    struct message_column *c = &st->columns[i];
    c->f = message_field_named(st->type, st->names[i], strlen(st->names[i]));
    if (!c->f || (c->f->extension && !st->decodes))
      return INVALID("Unknown field: %s in message type %s", st->names[i], st->type_name);
    c->at = i + 1;
    c->type = st->decodes ? ctx_out_type(ctx, i + 1) : (shoal_dtype)ctx_in(ctx, i + 1)->dtype;
    if (fits(c->f->type, c->type)) continue;
    if (st->decodes)
      return INVALID("Unexpected output type for %s.%s: %s to %s", st->type_name, c->f->name,
                     field_type_name(c->f->type), dtype_tf_name(c->type));
    return INVALID("Incompatible type for field %s.  Saw dtype: %s but field type is: %s", c->f->name,
                   dtype_tf_name(c->type), field_type_name(c->f->type));
  }
  st->n = st->n_names;
  if (st->n) qsort(st->columns, (size_t)st->n, sizeof *st->columns, by_number);
  return NULL;
}

static shoal_status look_up(struct kernel_ctx *ctx) {
  struct messages_state *st = ctx->state;
  pthread_mutex_lock(&st->lock);
  shoal_status s = st->looked_up ? NULL : columns_make(ctx, st);
  st->looked_up = !s;
  if (s) { /* a file may be there the next time */
    message_pool_release(&st->pool);
    st->pool = (struct message_pool){0};
    free(st->columns);
    st->columns = NULL;
  }
  pthread_mutex_unlock(&st->lock);
  return s;
}

/* ---- decoding ---- */

static struct message_column *column_of(const struct messages_state *st, uint32_t number) {
  for (int i = 0; i < st->n; i++)
    if (st->columns[i].f->number == number) return &st->columns[i];
  return NULL;
}

static bool is_packed(const struct raw_field *r, const struct message_field *f) {
  return r->wire == WIRE_BYTES && field_wire(f->type) != WIRE_BYTES;
}

/* The next value of a packed list. */
static bool next_packed(struct wire *w, enum field_type t, uint64_t *bits) {
  if (field_wire(t) == WIRE_VARINT) return wire_get_varint(w, bits);
  size_t n = field_wire(t) == WIRE_FIXED64 ? 8 : 4;
  *bits = 0;
  if (wire_left(w) < n) return false;
  memcpy(bits, w->at, n); /* little endian, as both architectures are */
  w->at += n;
  return true;
}

/* How many values of each column a message has, into counts [n]. */
static shoal_status count(const struct messages_state *st, struct wire w, int32_t *counts) {
  struct raw_field r;
  enum wire_step step;
  while ((step = raw_next(&w, &r)) == WIRE_FIELD) {
    struct message_column *c = column_of(st, r.number);
    if (!c) continue;
    int32_t *n = &counts[c - st->columns];
    int64_t more = r.wire == field_wire(c->f->type);
    if (is_packed(&r, c->f)) {
      if (field_wire(c->f->type) == WIRE_GROUP) return LOST("TYPE_GROUP encountered as packed");
      struct wire list = r.body;
      for (uint64_t bits; wire_left(&list); more++)
        if (!next_packed(&list, c->f->type, &bits)) return LOST("Corrupt packed list of field %s", c->f->name);
    }
    if (more + *n > INT32_MAX) return LOST("Field %s has too many values", c->f->name);
    *n = c->f->repeated ? (int32_t)(*n + more) : MIN((int32_t)1, (int32_t)(*n + more));
  }
  return step == WIRE_BROKEN ? LOST("CountFields: Failed to consume entire buffer") : NULL;
}

static void put_bits(struct tensor *t, int64_t at, enum field_type type, uint64_t bits, bool packed) {
  uint32_t low = (uint32_t)bits;
  switch (type) {
    case FIELD_FLOAT:
      if (t->dtype == SHOAL_FLOAT64) {
        float v;
        memcpy(&v, &low, 4);
        T_DATA(t, double)[at] = (double)v;
        return;
      }
      break;
    case FIELD_INT32: bits = packed && t->dtype == SHOAL_INT64 ? low : (uint64_t)(int64_t)(int32_t)low; break;
    case FIELD_SFIXED32:
    case FIELD_ENUM: bits = (uint64_t)(int64_t)(int32_t)low; break;
    case FIELD_UINT32:
    case FIELD_FIXED32: bits = low; break;
    case FIELD_SINT32: bits = (uint64_t)(int64_t)(int32_t)(low >> 1 ^ (0u - (low & 1))); break;
    case FIELD_SINT64: bits = bits >> 1 ^ (0 - (bits & 1)); break;
    case FIELD_BOOL: bits = bits != 0; break;
    default: break;
  }
  low = (uint32_t)bits;
  switch (dtype_size((shoal_dtype)t->dtype)) {
    case 1: T_DATA(t, uint8_t)[at] = (uint8_t)bits; break;
    case 4: T_DATA(t, uint32_t)[at] = low; break;
    default: T_DATA(t, uint64_t)[at] = bits;
  }
}

static void put_default(struct tensor *t, int64_t at, const struct message_field *f) {
  switch ((int)t->dtype) {
    case SHOAL_STRING:
      str_set(&T_DATA(t, struct str)[at], f->text ? f->text : "", f->text ? strlen(f->text) : 0);
      break;
    case SHOAL_FLOAT32: T_DATA(t, float)[at] = (float)f->real; break;
    case SHOAL_FLOAT64: T_DATA(t, double)[at] = f->type == FIELD_FLOAT ? (double)(float)f->real : f->real; break;
    case SHOAL_BOOL: T_DATA(t, uint8_t)[at] = f->bits != 0; break;
    case SHOAL_INT32: T_DATA(t, int32_t)[at] = (int32_t)f->bits; break;
    case SHOAL_INT64: T_DATA(t, int64_t)[at] = (int64_t)f->bits; break;
    case SHOAL_UINT32: T_DATA(t, uint32_t)[at] = (uint8_t)f->bits; break; /* eight bits, as TensorFlow has it */
    default: T_DATA(t, uint64_t)[at] = (uint8_t)f->bits;
  }
}

/* Fills row m of each column's tensor; used [n] is room for as many counters. */
static shoal_status fill(struct kernel_ctx *ctx, struct wire w, int64_t m, int32_t *used) {
  const struct messages_state *st = ctx->state;
  struct raw_field r;
  while (raw_next(&w, &r) == WIRE_FIELD) {
    struct message_column *c = column_of(st, r.number);
    if (!c) continue;
    struct tensor *t = &ctx->out[c->at];
    int64_t most = t->dims[t->rank - 1];
    int32_t *n = &used[c - st->columns];
    if (is_packed(&r, c->f)) {
      if (*n >= most)
        return LOST(
            "ReadPackedValues: Tried to write more entries than allowed.  Field tag: %u, Max entries "
            "allowed: %" PRId64,
            c->f->number, most);
      struct wire list = r.body;
      for (uint64_t bits; c->f->repeated && wire_left(&list) && next_packed(&list, c->f->type, &bits);)
        put_bits(t, m * most + (*n)++, c->f->type, bits, true);
    } else if (r.wire == field_wire(c->f->type)) {
      int64_t at = m * most + (c->f->repeated ? *n : 0);
      *n = c->f->repeated ? *n + 1 : 1;
      if (r.wire == WIRE_BYTES) str_set(&T_DATA(t, struct str)[at], (const char *)r.body.at, wire_left(&r.body));
      else if (r.wire == WIRE_GROUP) str_set(&T_DATA(t, struct str)[at], (const char *)r.tag, (size_t)(r.end - r.tag));
      else put_bits(t, at, c->f->type, r.bits, false);
    }
  }
  for (int i = 0; i < st->n; i++) {
    struct tensor *t = &ctx->out[st->columns[i].at];
    int64_t most = t->dims[t->rank - 1];
    for (int64_t k = used[i]; k < most; k++) put_default(t, m * most + k, st->columns[i].f);
  }
  return NULL;
}

/* The messages as bytes of the wire: those given, or the same written anew. */
static shoal_status bodies_make(const struct messages_state *st, const struct tensor *in, struct text *written,
                                struct wire *bodies) {
  for (int64_t i = 0; i < in->n; i++) {
    const struct str *s = string_at(in, i);
    bodies[i] = wire_from(str_data(s), s->size);
    if (!st->text && !st->sanitize) continue;
    TRY(st->text ? message_read_text(st->type, str_data(s), s->size, &written[i])
                 : message_rewrite(st->type, bodies[i], &written[i]));
    bodies[i] = wire_from(text_cstr(&written[i]), written[i].n);
  }
  return NULL;
}

static shoal_status decode(struct kernel_ctx *ctx, const struct wire *bodies, int32_t *counts, int64_t *most) {
  const struct messages_state *st = ctx->state;
  const struct tensor *in = ctx_in(ctx, 0);
  struct shape s = tensor_shape(in);
  if (s.rank >= SHOAL_MAX_RANK) return INVALID("A tensor has at most %d dimensions", SHOAL_MAX_RANK);
  s.dims[s.rank++] = st->n;
  struct tensor *sizes, *t;
  TRY(ctx_out(ctx, 0, &s, &sizes));
  for (int c = 0; c < st->n; c++) most[c] = 1; /* at least a default */
  for (int64_t i = 0; i < in->n; i++) {
    memset(counts, 0, (size_t)st->n * sizeof *counts);
    TRY(count(st, bodies[i], counts));
    for (int c = 0; c < st->n; c++) {
      T_DATA(sizes, int32_t)[i * st->n + st->columns[c].at - 1] = counts[c];
      most[c] = MAX(most[c], counts[c]);
    }
  }
  for (int c = 0; c < st->n; c++) {
    s.dims[s.rank - 1] = most[c];
    TRY(ctx_out(ctx, st->columns[c].at, &s, &t));
  }
  for (int64_t i = 0; i < in->n; i++) {
    memset(counts, 0, (size_t)st->n * sizeof *counts);
    TRY(fill(ctx, bodies[i], i, counts));
  }
  return NULL;
}

static shoal_status decode_run(struct kernel_ctx *ctx) {
  const struct messages_state *st = ctx->state;
  const struct tensor *in = ctx_in(ctx, 0);
  TRY(look_up(ctx));
  if (in->n < 1) return INVALID("Bufs argument must contain at least one value");
  struct wire *bodies = mem_try_zalloc((size_t)in->n, sizeof *bodies);
  struct text *written = mem_try_zalloc((size_t)in->n, sizeof *written);
  int32_t *counts = mem_zalloc((size_t)st->n + 1, sizeof *counts);
  int64_t *most = mem_zalloc((size_t)st->n + 1, sizeof *most);
  shoal_status s = bodies && written ? bodies_make(st, in, written, bodies) : NO_MEMORY(in->n * 16, "messages");
  if (!s) s = decode(ctx, bodies, counts, most);
  for (int64_t i = 0; written && i < in->n; i++) text_release(&written[i]);
  free(bodies);
  free(written);
  free(counts);
  free(most);
  return s;
}

static shoal_status decode_shape(struct shape_ctx *c) {
  if (c->in[0].rank < 0) return NULL;
  for (int i = 0; i < c->node->n_out && c->in[0].rank < SHOAL_MAX_RANK; i++) {
    c->out[i] = c->in[0];
    c->out[i].dims[c->out[i].rank++] = i == 0 ? c->node->n_out - 1 : -1;
  }
  return NULL;
}

/* ---- encoding ---- */

static uint64_t bits_at(const struct tensor *t, int64_t at, enum field_type type) {
  uint64_t v = 0;
  switch (dtype_size((shoal_dtype)t->dtype)) {
    case 1: v = T_DATA(t, const uint8_t)[at] != 0; break;
    case 4: v = T_DATA(t, const uint32_t)[at]; break;
    default: v = T_DATA(t, const uint64_t)[at];
  }
  if (type == FIELD_FLOAT && t->dtype == SHOAL_FLOAT64) {
    float f = (float)T_DATA(t, const double)[at];
    uint32_t low;
    memcpy(&low, &f, 4);
    return low;
  }
  switch (type) {
    case FIELD_INT32:
    case FIELD_ENUM: return (uint64_t)(int64_t)(int32_t)v;
    case FIELD_UINT32: return (uint32_t)v;
    case FIELD_SINT32: return (uint32_t)v << 1 ^ (0u - ((uint32_t)v >> 31));
    case FIELD_SINT64: return v << 1 ^ (0 - (v >> 63));
    default: return v;
  }
}

static void encode_field(const struct message_field *f, const struct tensor *t, int64_t first, int64_t n,
                         struct text *out) {
  int wire = field_wire(f->type);
  size_t begun = 0;
  if (f->packed_said) begun = wire_open(out, wire_tag(f->number, WIRE_BYTES));
  for (int64_t i = first; i < first + n; i++) {
    if (!f->packed_said) wire_put_varint(out, (uint64_t)f->number << 3 | (uint64_t)wire);
    if (wire == WIRE_BYTES || wire == WIRE_GROUP) {
      const struct str *s = string_at(t, i);
      if (wire == WIRE_BYTES) wire_put_varint(out, s->size);
      text_add(out, str_data(s), s->size);
      if (wire == WIRE_GROUP) wire_put_varint(out, (uint64_t)f->number << 3 | WIRE_GROUP_END);
    } else {
      message_put_bits(out, wire, bits_at(t, i, f->type));
    }
  }
  if (f->packed_said) wire_end(out, begun);
}

static shoal_status encode_check(struct kernel_ctx *ctx, struct shape *prefix) {
  const struct messages_state *st = ctx->state;
  for (int i = 0; i < st->n; i++) {
    const struct tensor *t = ctx_in(ctx, i + 1);
    struct shape s = tensor_shape(t);
    if (s.rank < 2)
      return INVALID("Invalid shape for field %s.  Saw shape %s but it should be at least a matrix.", st->names[i],
                     shape_str(&s));
    s.rank--;
    if (i == 0) *prefix = s;
    else if (!shape_equal(&s, prefix)) return INVALID("Values must match up to the last dimension");
  }
  const struct tensor *sizes = ctx_in(ctx, 0);
  struct shape want = *prefix, have = tensor_shape(sizes);
  want.dims[want.rank++] = st->n;
  if (!shape_equal(&want, &have))
    return INVALID("sizes should be batch_size + [len(field_names)].  Saw: %s but expected: %s", shape_str(&have),
                   shape_str(&want));
  for (int64_t i = 0; i < sizes->n; i++) {
    const struct tensor *t = ctx_in(ctx, 1 + (int)(i % st->n));
    int32_t n = T_DATA(sizes, const int32_t)[i];
    if (n > t->dims[t->rank - 1])
      return INVALID("Size to write must not be larger than value tensor; but saw: %d > %" PRId64 " at message %" PRId64
                     " field %d",
                     n, t->dims[t->rank - 1], i / st->n, (int)(i % st->n));
  }
  return NULL;
}

static shoal_status encode_run(struct kernel_ctx *ctx) {
  const struct messages_state *st = ctx->state;
  struct shape prefix;
  struct tensor *out;
  TRY(look_up(ctx));
  TRY(encode_check(ctx, &prefix));
  TRY(ctx_out(ctx, 0, &prefix, &out));
  struct text body = {0};
  for (int64_t m = 0; m < out->n; m++) {
    body.n = 0;
    for (int i = 0; i < st->n; i++) {
      const struct message_column *c = &st->columns[i];
      const struct tensor *t = ctx_in(ctx, c->at);
      int32_t n = T_DATA(ctx_in(ctx, 0), const int32_t)[m * st->n + c->at - 1];
      if (n > 0) encode_field(c->f, t, m * t->dims[t->rank - 1], n, &body);
    }
    str_set(&T_DATA(out, struct str)[m], text_cstr(&body), body.n);
  }
  text_release(&body);
  return NULL;
}

static shoal_status encode_shape(struct shape_ctx *c) {
  for (int i = 1; i < c->node->n_in; i++) {
    if (c->in[i].rank < 0) continue;
    if (c->in[i].rank < 2) return INVALID("Shape must be at least rank 2 but is rank %d", c->in[i].rank);
    c->out[0] = c->in[i];
    c->out[0].rank--;
  }
  return NULL;
}

/* ---- rows ---- */

#define KERNEL(run_)                              \
  (const struct kernel_def[]) {                   \
    {.device = "CPU",                             \
     .flags = KERNEL_EXPENSIVE,                   \
     .state_size = sizeof(struct messages_state), \
     .init = init,                                \
     .release = release,                          \
     .run = run_},                                \
    {                                             \
      0                                           \
    }                                             \
  }

static const struct op_row rows[] = {
    {.name = "DecodeProtoV2",
     .in = "bytes: string",
     .out = "sizes: int32, values: output_types",
     .attrs = "message_type: string; field_names: list(string); output_types: list(type) >= 0; "
              "descriptor_source: string = 'local://'; message_format: string = 'binary'; sanitize: bool = false",
     .flags = OP_LOCAL | OP_NO_GRADIENT,
     .shape = decode_shape,
     .kernels = KERNEL(decode_run)},
    {.name = "EncodeProto",
     .in = "sizes: int32, values: Tinput_types",
     .out = "bytes: string",
     .attrs = "field_names: list(string); message_type: string; descriptor_source: string = 'local://'; "
              "Tinput_types: list(type) >= 1",
     .flags = OP_LOCAL | OP_NO_GRADIENT,
     .shape = encode_shape,
     .kernels = KERNEL(encode_run)},
};
OP_FAMILY(messages, rows);
