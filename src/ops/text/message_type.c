/* Types of messages: looked up, and read from a FileDescriptorSet (descriptor.proto), whose fields are these:
 *
 *   set     1 file*
 *   file    1 name, 2 package, 3 dependency*, 4 message*, 5 enum*, 7 extension*, 12 syntax
 *   message 1 name, 2 field*, 3 message*, 4 enum*, 6 extension*, 8 oneof*
 *   field   1 name, 2 extendee, 3 number, 4 label (2 required, 3 repeated), 5 type, 6 type name, 7 default, 8 options
 *           (2 packed), 9 oneof index, 17 optional of proto3
 *   enum    1 name, 2 value* (1 name, 2 number)
 *
 * First all messages and enums are declared, with their bytes kept; then fields are made, which may name any of them.
 */
#include "ops/text/message_type.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "base/wire.h"
#include "proto/descriptor.wire.h"

/* What a stranger's set may have: memory for names and fields stays within some hundred MiB. */
enum { NESTING_MAX = 32, NAME_MAX_BYTES = 512, TYPES_MAX = 1 << 16, FIELDS_MAX = 1 << 18 };
enum { NUMBER_MAX = (1 << 29) - 1 };

const char *field_type_name(enum field_type t) {
  static const char *const names[] = {"",        "double",   "float",    "int64",  "uint64",  "int32", "fixed64",
                                      "fixed32", "bool",     "string",   "group",  "message", "bytes", "uint32",
                                      "enum",    "sfixed32", "sfixed64", "sint32", "sint64"};
  return names[t];
}

int field_wire(enum field_type t) {
  switch (t) {
    case FIELD_DOUBLE:
    case FIELD_FIXED64:
    case FIELD_SFIXED64: return 1;
    case FIELD_FLOAT:
    case FIELD_FIXED32:
    case FIELD_SFIXED32: return 5;
    case FIELD_STRING:
    case FIELD_BYTES:
    case FIELD_MESSAGE: return 2;
    case FIELD_GROUP: return 3;
    default: return 0;
  }
}

static int by_number(const void *a, const void *b) {
  uint32_t x = ((const struct message_field *)a)->number, y = ((const struct message_field *)b)->number;
  return (x > y) - (x < y);
}

bool message_type_finish(struct message_type *m) {
  bool sound = true;
  if (m->fields.n) qsort(m->fields.at, m->fields.n, sizeof *m->fields.at, by_number);
  for (size_t i = 0; i < m->fields.n; i++) {
    struct message_field *f = &m->fields.at[i];
    sound = sound && !strmap_put(&m->by_name, f->name, f) && (!i || f->number != f[-1].number);
    m->n_required += f->required;
  }
  return sound;
}

const struct message_field *message_field_named(const struct message_type *m, const char *name, size_t n) {
  return strmap_getn(&m->by_name, name, n);
}

/* A group's field has the name of its type in small letters. */
const struct message_field *message_group_named(const struct message_type *m, const char *name, size_t n) {
  char *small = mem_strndup(name, n);
  for (size_t i = 0; i < n; i++) small[i] = (char)tolower((unsigned char)small[i]);
  const struct message_field *f = strmap_getn(&m->by_name, small, n);
  free(small);
  if (!f || f->type != FIELD_GROUP) return NULL;
  size_t all = strlen(f->message->name);
  return all >= n && !memcmp(f->message->name + all - n, name, n) ? f : NULL;
}

const struct message_field *message_field_numbered(const struct message_type *m, uint32_t number) {
  for (size_t low = 0, high = m->fields.n; low < high;) {
    size_t mid = low + (high - low) / 2;
    if (m->fields.at[mid].number == number) return &m->fields.at[mid];
    if (m->fields.at[mid].number < number) low = mid + 1;
    else high = mid;
  }
  return NULL;
}

const struct message_type *message_pool_find(const struct message_pool *p, const char *name) {
  return strmap_get(&p->by_name, name);
}

void message_pool_release(struct message_pool *p) {
  for (size_t i = 0; i < p->types.n; i++) {
    struct message_type *m = p->types.at[i];
    for (size_t k = 0; k < m->fields.n; k++) {
      free(m->fields.at[k].name);
      free(m->fields.at[k].text);
    }
    vec_release(&m->fields);
    strmap_release(&m->by_name);
    free(m->name);
    free(m);
  }
  for (size_t i = 0; i < p->enums.n; i++) {
    for (size_t k = 0; k < p->enums.at[i]->values.n; k++) free(p->enums.at[i]->values.at[k].name);
    vec_release(&p->enums.at[i]->values);
    free(p->enums.at[i]);
  }
  vec_release(&p->types);
  vec_release(&p->enums);
  strmap_release(&p->by_name);
  strmap_release(&p->enums_by_name);
}

/* ---- declarations ---- */

/* A message (or a file, whose fields are extensions alone) whose fields are still to be made. */
struct declared {
  struct message_type *type; /* NULL: a file */
  struct wire body;
  char *scope;
  bool proto3;
};

struct reading {
  struct message_pool *pool;
  VEC(struct declared) declared;
  struct strmap files;
  size_t n_fields;
};

static shoal_status broken(void) { return INVALID("Source does not represent serialized file descriptor set proto."); }

_Static_assert((int)DescriptorProto_name == (int)EnumDescriptorProto_name, "names of types are read alike");

#define EACH(w, f, step) while (((step) = wire_next(&(w), &(f))) == WIRE_FIELD)

/* A name of letters, digits and underscores (dots: where it may be a path), the last field of that tag. */
static shoal_status name_of(struct wire w, uint32_t tag, bool path, char **out) {
  struct wire v;
  if (!wire_find_tag(w, tag, &v) || !wire_left(&v)) return INVALID("A descriptor without a name");
  if (wire_left(&v) > NAME_MAX_BYTES) return INVALID("A descriptor's name is too long");
  for (const uint8_t *p = v.at; p < v.end; p++)
    if (!isalnum(*p) && *p != '_' && !(path && *p == '.')) return INVALID("A descriptor's name is no identifier");
  *out = mem_strndup((const char *)v.at, wire_left(&v));
  return NULL;
}

static char *joined(const char *scope, const char *name) {
  return *scope ? mem_printf("%s.%s", scope, name) : mem_strndup(name, strlen(name));
}

static shoal_status declare_name(struct reading *r, struct wire w, const char *scope, char **full) {
  char *name;
  TRY(name_of(w, DescriptorProto_name, false, &name));
  if (r->pool->types.n + r->pool->enums.n >= TYPES_MAX || strlen(scope) + strlen(name) > NAME_MAX_BYTES) {
    free(name);
    return INVALID("The set has too many types, or a name that is too long");
  }
  *full = joined(scope, name);
  free(name);
  if (!strmap_has(&r->pool->by_name, *full) && !strmap_has(&r->pool->enums_by_name, *full)) return NULL;
  shoal_status s = INVALID("\"%s\" is already defined.", *full);
  free(*full);
  return s;
}

static shoal_status declare_enum(struct reading *r, struct wire w, const char *scope, bool proto3) {
  char *full;
  TRY(declare_name(r, w, scope, &full));
  struct enum_type *e = mem_zalloc(1, sizeof *e);
  e->closed = !proto3;
  vec_push(&r->pool->enums, e);
  strmap_put(&r->pool->enums_by_name, full, e);
  free(full);
  struct wire_field f, g;
  enum wire_step step;
  EACH(w, f, step) {
    if (f.tag != EnumDescriptorProto_value) continue;
    struct enum_value v = {0};
    TRY(name_of(wire_inside(&f), EnumValueDescriptorProto_name, false, &v.name));
    struct wire inside = wire_inside(&f);
    EACH(inside, g, step) if (g.tag == EnumValueDescriptorProto_number) v.number = (int32_t)g.value;
    vec_push(&e->values, v);
  }
  if (step == WIRE_BROKEN) return broken();
  return e->values.n ? NULL : INVALID("Enums must contain at least one value.");
}

static shoal_status declare_message(struct reading *r, struct wire w, const char *scope, bool proto3, int depth) {
  char *full;
  if (depth > NESTING_MAX) return INVALID("Messages are declared within messages too deep");
  TRY(declare_name(r, w, scope, &full));
  struct message_type *m = mem_zalloc(1, sizeof *m);
  m->name = full;
  vec_push(&r->pool->types, m);
  strmap_put(&r->pool->by_name, full, m);
  vec_push(&r->declared, (struct declared){m, w, mem_strndup(full, strlen(full)), proto3});
  struct wire_field f;
  enum wire_step step;
  EACH(w, f, step) {
    if (f.tag == DescriptorProto_nested_type) TRY(declare_message(r, wire_inside(&f), full, proto3, depth + 1));
    if (f.tag == DescriptorProto_enum_type) TRY(declare_enum(r, wire_inside(&f), full, proto3));
    m->n_oneofs += f.tag == DescriptorProto_oneof_decl;
  }
  return step == WIRE_BROKEN ? broken() : NULL;
}

static shoal_status declare_file(struct reading *r, struct wire w) {
  struct wire v;
  struct wire_field f;
  enum wire_step step;
  if (!find_FileDescriptorProto_name(w, &v)) v = (struct wire){w.at, w.at};
  char *name = mem_strndup((const char *)v.at, wire_left(&v)), *package = NULL;
  bool again = strmap_put(&r->files, name, r->pool) != NULL;
  free(name);
  if (again) return INVALID("Failed to load FileDescriptorProto: a file is there twice");
  if (!find_FileDescriptorProto_package(w, &v) || !wire_left(&v)) package = mem_strndup("", 0);
  else TRY(name_of(w, FileDescriptorProto_package, true, &package));
  bool proto3 = find_FileDescriptorProto_syntax(w, &v) && wire_left(&v) == 6 && !memcmp(v.at, "proto3", 6);
  vec_push(&r->declared, (struct declared){NULL, w, package, proto3});
  EACH(w, f, step) {
    if (f.tag == FileDescriptorProto_dependency && !strmap_getn(&r->files, (const char *)f.data, f.size))
      return INVALID("Failed to load FileDescriptorProto: a file imports one that is not before it in the set");
    if (f.tag == FileDescriptorProto_message_type) TRY(declare_message(r, wire_inside(&f), package, proto3, 1));
    if (f.tag == FileDescriptorProto_enum_type) TRY(declare_enum(r, wire_inside(&f), package, proto3));
  }
  return step == WIRE_BROKEN ? broken() : NULL;
}

/* ---- fields ---- */

/* What a type's name stands for: from the root when it begins with a dot, else in the scope and those around it. */
static void *resolve(const struct strmap *names, struct wire name, const char *scope) {
  if (wire_left(&name) && *name.at == '.') return strmap_getn(names, (const char *)name.at + 1, wire_left(&name) - 1);
  for (size_t n = strlen(scope);; n--) {
    if (n == 0) return strmap_getn(names, (const char *)name.at, wire_left(&name));
    if (scope[n] && scope[n] != '.') continue;
    struct text full = {0};
    text_add(&full, scope, n);
    text_addc(&full, '.');
    text_add(&full, (const char *)name.at, wire_left(&name));
    void *found = strmap_getn(names, full.at, full.n);
    text_release(&full);
    if (found) return found;
  }
}

/* Bytes are given with the escapes of C. */
static bool unescape(const char *s, size_t n, struct message_field *to) {
  struct text t = {0};
  static const char from[] = "nrtabfv\\'\"?", simple[] = "\n\r\t\a\b\f\v\\'\"?";
  bool sound = true;
  for (size_t i = 0; sound && i < n; i++) {
    if (s[i] != '\\') {
      text_addc(&t, s[i]);
      continue;
    }
    const char *at = ++i < n && s[i] ? strchr(from, s[i]) : NULL;
    if (at) text_addc(&t, simple[at - from]);
    else if (i < n && s[i] >= '0' && s[i] <= '7') {
      int v = 0, k = 0;
      for (; k < 3 && i + (size_t)k < n && s[i + (size_t)k] >= '0' && s[i + (size_t)k] <= '7'; k++)
        v = v * 8 + s[i + (size_t)k] - '0';
      text_addc(&t, (char)v);
      i += (size_t)k - 1;
    } else if (i + 1 < n && (s[i] == 'x' || s[i] == 'X') && isxdigit((unsigned char)s[i + 1])) {
      char hex[3] = {s[i + 1], i + 2 < n && isxdigit((unsigned char)s[i + 2]) ? s[i + 2] : 0};
      text_addc(&t, (char)strtol(hex, NULL, 16));
      i += strlen(hex);
    } else sound = false;
  }
  to->text_n = t.n;
  to->text = text_take(&t);
  return sound;
}

/* A default as the file writes it. */
static bool default_read(struct message_field *f, const char *s, size_t n) {
  char *text = mem_strndup(s, n), *end = text;
  bool sound = strlen(text) == n || f->type == FIELD_STRING;
  errno = 0;
  switch (f->type) {
    case FIELD_DOUBLE:
    case FIELD_FLOAT: f->real = strtod(text, &end); break;
    case FIELD_BOOL:
      f->bits = str_equal(text, "true");
      end = f->bits || str_equal(text, "false") ? text + n : text;
      break;
    case FIELD_STRING:
      f->text = mem_strndup(s, n);
      f->text_n = n;
      end = text + n;
      break;
    case FIELD_BYTES: sound = unescape(s, n, f) && sound, end = text + n; break;
    case FIELD_ENUM:
      sound = false;
      for (size_t i = 0; i < f->enums->values.n && !sound; i++) {
        sound = str_equal(f->enums->values.at[i].name, text);
        if (sound) f->bits = (uint64_t)(int64_t)f->enums->values.at[i].number;
      }
      end = text + n;
      break;
    case FIELD_GROUP:
    case FIELD_MESSAGE: sound = false; break;
    case FIELD_UINT32:
    case FIELD_UINT64:
    case FIELD_FIXED32:
    case FIELD_FIXED64:
      f->bits = strtoull(text, &end, 0);
      sound = sound && *text != '-';
      break;
    default: f->bits = (uint64_t)strtoll(text, &end, 0);
  }
  sound = sound && end == text + n && (n || f->type == FIELD_STRING || f->type == FIELD_BYTES) &&
          (errno == 0 || f->type == FIELD_DOUBLE || f->type == FIELD_FLOAT);
  free(text);
  return sound;
}

struct field_says {
  struct wire type_name, dflt, extendee;
  uint64_t label;
  int64_t number, oneof;
  bool packed, packed_given, optional3;
};

static shoal_status options_read(struct wire w, struct field_says *to) {
  struct wire_field f;
  enum wire_step step;
  EACH(w, f, step) if (f.tag == FieldOptions_packed) to->packed_given = true, to->packed = f.value != 0;
  return step == WIRE_BROKEN ? broken() : NULL;
}

static shoal_status says_read(struct wire w, struct message_field *f, struct field_says *to) {
  struct wire_field g;
  enum wire_step step;
  *to = (struct field_says){.oneof = -1};
  EACH(w, g, step) {
    if (g.tag == FieldDescriptorProto_extendee) to->extendee = wire_inside(&g);
    if (g.tag == FieldDescriptorProto_number) to->number = (int64_t)g.value;
    if (g.tag == FieldDescriptorProto_label) to->label = g.value;
    if (g.tag == FieldDescriptorProto_type) f->type = g.value <= FIELD_SINT64 ? (enum field_type)g.value : 0;
    if (g.tag == FieldDescriptorProto_type_name) to->type_name = wire_inside(&g);
    if (g.tag == FieldDescriptorProto_default_value) to->dflt = wire_inside(&g);
    if (g.tag == FieldDescriptorProto_options) TRY(options_read(wire_inside(&g), to));
    if (g.tag == FieldDescriptorProto_oneof_index) to->oneof = (int64_t)g.value;
    if (g.tag == FieldDescriptorProto_proto3_optional) to->optional3 = g.value != 0;
  }
  return step == WIRE_BROKEN ? broken() : NULL;
}

static shoal_status field_fill(struct reading *r, const struct declared *d, struct wire w, struct message_field *f,
                               struct message_type **owner) {
  struct field_says says;
  TRY(says_read(w, f, &says));
  if (says.number < 1 || says.number > NUMBER_MAX)
    return INVALID("\"%s\": Field numbers must be positive integers.", f->name);
  f->number = (uint32_t)says.number;
  f->repeated = says.label == 3;
  f->required = says.label == 2;
  if (says.type_name.at) {
    f->message = f->type == FIELD_ENUM ? NULL : resolve(&r->pool->by_name, says.type_name, d->scope);
    if (!f->message) f->enums = resolve(&r->pool->enums_by_name, says.type_name, d->scope);
    if (!f->type) f->type = f->message ? FIELD_MESSAGE : f->enums ? FIELD_ENUM : 0; /* to be found out, says the file */
  }
  bool within = f->type == FIELD_MESSAGE || f->type == FIELD_GROUP;
  if (!f->type || (f->type == FIELD_ENUM && !f->enums) || (within && !f->message))
    return INVALID("\"%s\": its type is not defined.", f->name);
  bool scalar = field_wire(f->type) != 2 && field_wire(f->type) != 3;
  f->packed_said = says.packed && f->repeated;
  f->packed = f->repeated && scalar && (says.packed_given ? says.packed : d->proto3);
  if (says.packed && !(f->repeated && scalar))
    return INVALID("\"%s\": [packed = true] can only be specified for repeated primitive fields.", f->name);
  f->oneof = says.oneof < 0 || !d->type || f->extension ? -1 : (int)MIN(says.oneof, INT32_MAX);
  if (f->oneof >= 0 && (f->oneof >= d->type->n_oneofs || f->repeated))
    return INVALID("\"%s\": oneof_index is out of range.", f->name);
  f->implicit = d->proto3 && !f->repeated && !within && f->oneof < 0 && !says.optional3 && !f->extension;
  if (f->type == FIELD_ENUM) f->bits = (uint64_t)(int64_t)f->enums->values.at[0].number;
  if (says.dflt.at && !default_read(f, (const char *)says.dflt.at, wire_left(&says.dflt)))
    return INVALID("\"%s\": Couldn't parse default value.", f->name);
  if (!f->extension) return NULL;
  *owner = says.extendee.at ? resolve(&r->pool->by_name, says.extendee, d->scope) : NULL;
  return *owner ? NULL : INVALID("\"%s\": what it extends is not defined.", f->name);
}

static shoal_status field_read(struct reading *r, const struct declared *d, struct wire w, bool extension) {
  struct message_field f = {.extension = extension};
  struct message_type *owner = d->type;
  if (++r->n_fields > FIELDS_MAX) return INVALID("The set has too many fields");
  TRY(name_of(w, FieldDescriptorProto_name, false, &f.name));
  if (extension) {
    char *full = joined(d->scope, f.name);
    free(f.name);
    f.name = full;
  }
  shoal_status s = field_fill(r, d, w, &f, &owner);
  if (!s) {
    vec_push(&owner->fields, f);
    return NULL;
  }
  free(f.name);
  free(f.text);
  return s;
}

static shoal_status fields_make(struct reading *r) {
  struct wire_field f;
  enum wire_step step;
  for (size_t i = 0; i < r->declared.n; i++) {
    const struct declared *d = &r->declared.at[i];
    struct wire w = d->body;
    EACH(w, f, step) {
      bool extension = f.tag == (d->type ? DescriptorProto_extension : FileDescriptorProto_extension);
      if (extension || (d->type && f.tag == DescriptorProto_field)) TRY(field_read(r, d, wire_inside(&f), extension));
    }
    if (step == WIRE_BROKEN) return broken();
  }
  for (size_t i = 0; i < r->pool->types.n; i++) {
    struct message_type *m = r->pool->types.at[i];
    if (!message_type_finish(m)) return INVALID("\"%s\" has two fields of one name or number.", m->name);
  }
  return NULL;
}

shoal_status message_pool_read(struct message_pool *p, const void *data, size_t size) {
  struct reading r = {.pool = p};
  struct wire w = wire_from(data, size);
  struct wire_field f;
  enum wire_step step = WIRE_END;
  shoal_status s = size > MESSAGE_SET_MAX ? INVALID("A FileDescriptorSet of %zu bytes is too large", size) : NULL;
  while (!s && (step = wire_next(&w, &f)) == WIRE_FIELD)
    if (f.tag == FileDescriptorSet_file) s = declare_file(&r, wire_inside(&f));
  if (!s && step == WIRE_BROKEN) s = broken();
  if (!s) s = fields_make(&r);
  for (size_t i = 0; i < r.declared.n; i++) free(r.declared.at[i].scope);
  vec_release(&r.declared);
  strmap_release(&r.files);
  return s;
}
