/* Serialized messages: walked, and rewritten.
 *
 * Rewriting is what protobuf's library does that parses a message and serializes it: fields in order, the last value of
 * one that is not repeated, messages merged, lists packed as the file says, numbers cut to their width, zeros left out
 * where they mean nothing; what is not known goes behind the rest. It sorts records that point into the bytes. */
#include "ops/text/message_wire.h"

#include <stdlib.h>
#include <string.h>

#include "ops/text/message_rewrite.h"

/* ---- walking ---- */

static bool skip_value(struct wire *w, struct raw_field *f, int depth);

/* Up to the end of a group, whose tag it leaves behind; *last is where that begins. */
static bool skip_group(struct wire *w, uint32_t number, const uint8_t **last, int depth) {
  struct raw_field f;
  if (depth > MESSAGE_MAX_DEPTH) return false;
  for (uint64_t tag;;) {
    *last = w->at;
    if (!wire_get_varint(w, &tag) || tag > UINT32_MAX) return false;
    f = (struct raw_field){.number = (uint32_t)tag >> 3, .wire = (int)(tag & 7)};
    if (f.wire == WIRE_GROUP_END) return f.number == number;
    if (!f.number || !skip_value(w, &f, depth + 1)) return false;
  }
}

static bool skip_value(struct wire *w, struct raw_field *f, int depth) {
  size_t n = f->wire == WIRE_FIXED64 ? 8 : 4;
  uint64_t size;
  switch (f->wire) {
    case WIRE_VARINT: return wire_get_varint(w, &f->bits);
    case WIRE_FIXED64:
    case WIRE_FIXED32:
      if (wire_left(w) < n) return false;
      memcpy(&f->bits, w->at, n); /* little endian, as all machines are that this runs on */
      w->at += n;
      return true;
    case WIRE_BYTES:
      if (!wire_get_varint(w, &size) || size > wire_left(w)) return false;
      f->body = wire_from(w->at, (size_t)size);
      w->at += size;
      return true;
    case WIRE_GROUP: f->body.at = w->at; return skip_group(w, f->number, &f->body.end, depth);
    default: return false;
  }
}

enum wire_step raw_next(struct wire *w, struct raw_field *f) {
  uint64_t tag;
  if (!wire_left(w)) return WIRE_END;
  *f = (struct raw_field){.tag = w->at};
  if (!wire_get_varint(w, &tag) || tag > UINT32_MAX) return WIRE_BROKEN;
  f->number = (uint32_t)tag >> 3;
  f->wire = (int)(tag & 7);
  if (!f->number || !skip_value(w, f, 1)) return WIRE_BROKEN;
  f->end = w->at;
  return WIRE_FIELD;
}

void message_put_bits(struct text *t, int wire, uint64_t bits) {
  if (wire == WIRE_VARINT) wire_put_varint(t, bits);
  else text_add(t, (const char *)&bits, wire == WIRE_FIXED64 ? 8 : 4);
}

/* ---- rewriting ---- */

struct field_record {
  const struct message_field *f; /* NULL: not known */
  size_t order;
  struct raw_field r;
};
/* A member of a oneof that was there. */
struct choice {
  const struct message_field *f;
  size_t order;
};
struct field_records {
  VEC(struct field_record) all;
  VEC(struct choice) choices; /* by oneof, and in order */
};

static int by_field(const void *a, const void *b) {
  const struct field_record *x = a, *y = b;
  uint32_t m = x->f ? x->f->number : UINT32_MAX, n = y->f ? y->f->number : UINT32_MAX;
  if (m != n) return m < n ? -1 : 1;
  return x->order < y->order ? -1 : 1;
}

static int by_oneof(const void *a, const void *b) {
  const struct choice *x = a, *y = b;
  if (x->f->oneof != y->f->oneof) return x->f->oneof < y->f->oneof ? -1 : 1;
  return x->order < y->order ? -1 : 1;
}

/* The member of a oneof that came last. */
static const struct message_field *chosen(const struct field_records *r, int oneof) {
  size_t low = 0, high = r->choices.n;
  while (high - low > 1) {
    size_t mid = low + (high - low) / 2;
    if (r->choices.at[mid].f->oneof <= oneof) low = mid;
    else high = mid;
  }
  return r->choices.at[low].f;
}

static uint64_t in_width(enum field_type t, uint64_t bits) {
  switch (t) {
    case FIELD_INT32:
    case FIELD_ENUM: return (uint64_t)(int64_t)(int32_t)bits;
    case FIELD_UINT32:
    case FIELD_SINT32: return (uint32_t)bits;
    case FIELD_BOOL: return bits != 0;
    default: return bits;
  }
}

static bool enum_has(const struct enum_type *e, int32_t v) {
  for (size_t i = 0; i < e->values.n; i++)
    if (e->values.at[i].number == v) return true;
  return !e->closed;
}

/* The field that these bytes are a value of; NULL when they are of another type. */
static const struct message_field *known(const struct message_type *m, const struct raw_field *r) {
  const struct message_field *f = message_field_numbered(m, r->number);
  if (!f) return NULL;
  int wire = field_wire(f->type);
  if (r->wire != wire && !(f->repeated && r->wire == WIRE_BYTES && wire != WIRE_GROUP)) return NULL;
  if (f->type == FIELD_ENUM && r->wire == wire && !enum_has(f->enums, (int32_t)r->bits)) return NULL;
  return f;
}

static void put_tag(struct text *out, uint32_t number, int wire) {
  wire_put_varint(out, (uint64_t)number << 3 | (uint64_t)wire);
}

static shoal_status put_message(const struct message_field *f, struct wire body, bool strict, int depth,
                                struct text *out) {
  struct text inner = {0};
  shoal_status s = message_rewrite_at(f->message, body, strict, depth + 1, &inner);
  if (!s && f->type == FIELD_MESSAGE) wire_add_bytes(out, wire_tag(f->number, WIRE_BYTES), inner.at, inner.n);
  if (!s && f->type == FIELD_GROUP) {
    put_tag(out, f->number, WIRE_GROUP);
    text_add(out, text_cstr(&inner), inner.n);
    put_tag(out, f->number, WIRE_GROUP_END);
  }
  text_release(&inner);
  return s;
}

/* All numbers of a repeated field, packed ones among them; those that its enum lacks are strays. */
static shoal_status put_numbers(const struct field_record *at, size_t n, struct text *out, struct text *strays) {
  const struct message_field *f = at->f;
  int wire = field_wire(f->type);
  size_t before = out->n, begun = f->packed ? wire_open(out, wire_tag(f->number, WIRE_BYTES)) : 0;
  for (size_t i = 0; i < n; i++) {
    struct wire list = at[i].r.body;
    bool packed = at[i].r.wire != wire;
    for (uint64_t bits = at[i].r.bits; !packed || wire_left(&list);) {
      size_t size = wire == WIRE_FIXED64 ? 8 : 4;
      if (packed && wire == WIRE_VARINT && !wire_get_varint(&list, &bits)) return LOST("A packed list is broken");
      if (packed && wire != WIRE_VARINT) {
        if (wire_left(&list) < size) return LOST("A packed list is broken");
        bits = 0;
        memcpy(&bits, list.at, size);
        list.at += size;
      }
      bool stray = f->type == FIELD_ENUM && !enum_has(f->enums, (int32_t)bits);
      struct text *to = stray ? strays : out;
      if (stray || !f->packed) put_tag(to, f->number, wire);
      message_put_bits(to, wire, in_width(f->type, bits));
      if (!packed) break;
    }
  }
  if (f->packed && out->n == begun) out->n = before; /* nothing in any list: no field */
  else if (f->packed) wire_end(out, begun);
  return NULL;
}

/* The n values of one field. */
static shoal_status put_field(const struct field_record *at, size_t n, bool strict, int depth, struct text *out,
                              struct text *strays) {
  const struct message_field *f = at->f;
  const struct raw_field *last = &at[n - 1].r;
  int wire = field_wire(f->type);
  if (f->type == FIELD_MESSAGE || f->type == FIELD_GROUP) {
    if (f->repeated) {
      for (size_t i = 0; i < n; i++) TRY(put_message(f, at[i].r.body, strict, depth, out));
      return NULL;
    }
    struct text merged = {0};
    for (size_t i = 0; i < n; i++) text_add(&merged, (const char *)at[i].r.body.at, wire_left(&at[i].r.body));
    shoal_status s = put_message(f, wire_from(text_cstr(&merged), merged.n), strict, depth, out);
    text_release(&merged);
    return s;
  }
  if (wire == WIRE_BYTES) {
    for (size_t i = f->repeated ? 0 : n - 1; i < n; i++)
      if (f->repeated || !f->implicit || wire_left(&last->body))
        wire_add_bytes(out, wire_tag(f->number, WIRE_BYTES), at[i].r.body.at, wire_left(&at[i].r.body));
    return NULL;
  }
  if (f->repeated) return put_numbers(at, n, out, strays);
  uint64_t bits = in_width(f->type, last->bits);
  if (f->implicit && !bits) return NULL;
  put_tag(out, f->number, wire);
  message_put_bits(out, wire, bits);
  return NULL;
}

/* Known fields into out, all others into strays. */
static shoal_status put_records(const struct message_type *m, const struct field_records *r, bool strict, int depth,
                                struct text *out, struct text *strays) {
  const struct field_record *at = r->all.at;
  size_t required = 0;
  for (size_t i = 1; strict && i < r->choices.n; i++)
    if (r->choices.at[i].f->oneof == r->choices.at[i - 1].f->oneof && r->choices.at[i].f != r->choices.at[i - 1].f)
      return LOST("Field \"%s\" is specified along with another member of its oneof.", r->choices.at[i].f->name);
  for (size_t i = 0, n; i < r->all.n; i += n) {
    const struct message_field *f = at[i].f;
    for (n = 1; f && i + n < r->all.n && at[i + n].f == f;) n++;
    if (!f) {
      text_add(strays, (const char *)at[i].r.tag, (size_t)(at[i].r.end - at[i].r.tag));
      continue;
    }
    if (strict && n > 1 && !f->repeated) return LOST("Non-repeated field \"%s\" is specified multiple times.", f->name);
    required += f->required;
    if (f->oneof < 0 || chosen(r, f->oneof) == f) TRY(put_field(at + i, n, strict, depth, out, strays));
  }
  return required < m->n_required ? LOST("A required field of %s is missing", m->name) : NULL;
}

shoal_status message_rewrite_at(const struct message_type *m, struct wire w, bool strict, int depth, struct text *out) {
  struct field_records r = {0};
  struct text strays = {0};
  struct raw_field f;
  enum wire_step step;
  if (depth > MESSAGE_MAX_DEPTH) return LOST("Messages are within messages too deep");
  while ((step = raw_next(&w, &f)) == WIRE_FIELD) {
    struct field_record one = {known(m, &f), r.all.n, f};
    if (one.f && one.f->oneof >= 0) vec_push(&r.choices, (struct choice){one.f, one.order});
    vec_push(&r.all, one);
  }
  if (r.all.n) qsort(r.all.at, r.all.n, sizeof *r.all.at, by_field);
  if (r.choices.n) qsort(r.choices.at, r.choices.n, sizeof *r.choices.at, by_oneof);
  shoal_status s =
      step == WIRE_BROKEN ? LOST("Unable to parse binary protobuf") : put_records(m, &r, strict, depth, out, &strays);
  text_add(out, text_cstr(&strays), strays.n);
  text_release(&strays);
  vec_release(&r.all);
  vec_release(&r.choices);
  return s;
}

shoal_status message_rewrite(const struct message_type *m, struct wire w, struct text *out) {
  return message_rewrite_at(m, w, false, 1, out);
}
