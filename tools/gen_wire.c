/* Writes proto/NAME.wire.h from each NAME.proto: the messages of src/proto as names for reading and writing them in
 * place, field by field (base/wire.h).
 *
 *   gen_wire FOLDER FILE.proto...
 *
 * A field's name in C is the schema's own spelling, joined by underscores, so that one search finds a field in the
 * schema, in the code and in TensorFlow's documents. For `message NodeDef { string name = 1; }` there are
 *
 *   NodeDef_name                       what a field of that number and declared type has as its tag: a `case`, or
 *                                      compared with wire_field.tag. A field of another type than declared is thereby
 *                                      an unknown one, as protobuf has it, and nobody can forget to look
 *   put_NodeDef_name(t, "x")           appends the field; put_..._n takes bytes and their number
 *   find_NodeDef_name(w, &out)         the last of that field in a message
 *   begin_..., wire_end                an embedded message written in place
 *   ..._packed                         the same three for a list of numbers in one field
 *   TensorShapeProto_Dim_size          nested messages; NodeDef_AttrEntry_key: what protobuf calls a map's entry
 *   RunOptions_TraceLevel_FULL_TRACE   values of enumerations
 *
 * Functions rather than one macro or a number handed to wire_put_str: a number put where a string belongs does not
 * compile. What is read is not unpacked into structures: bytes stay where they arrived, and nothing is allocated.
 *
 * Of the language there is what src/proto uses: proto3, no options, no services. Types must be declared in one of the
 * files; all files are read before the first header is written. */
#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 256, DEPTH = 16 };
enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static const char *path, *at;
static int line;
static FILE *to; /* NULL while types are collected */

static void fail(const char *why, ...) {
  va_list args;
  va_start(args, why);
  fprintf(stderr, "%s:%d: ", path, line);
  vfprintf(stderr, why, args);
  fputc('\n', stderr);
  va_end(args);
  exit(1);
}

static char *read_file(const char *name) {
  FILE *f = fopen(name, "rb");
  char *text = NULL;
  size_t n = 0, got;
  do {
    char *larger = realloc(text, n + 65536);
    if (!f || !larger) {
      perror(name);
      exit(1);
    }
    text = larger;
    got = fread(text + n, 1, 65535, f);
    n += got;
  } while (got);
  text[n] = 0;
  fclose(f);
  return text;
}

/* ---- words: a name with its dots, a number, a string, or one other character ---- */
static char word[NAME];

static void next(void) {
  for (;; at++) {
    if (at[0] == '/' && at[1] == '/') at += strcspn(at, "\n");
    if (*at == '\n') line++;
    else if (!isspace((unsigned char)*at)) break;
  }
  size_t n = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-");
  if (*at == '"') n = strcspn(at + 1, "\"\n") + 2;
  if (!n && *at) n = 1;
  if (n >= sizeof word) fail("a word of %zu characters", n);
  memcpy(word, at, n);
  word[n] = 0;
  at += n;
}

static bool is(const char *what) { return !strcmp(word, what); }

static void want(const char *what) {
  if (!is(what)) fail("%s expected, not %s", what, word);
  next();
}

static void take(char *name) {
  if (!isalpha((unsigned char)*word)) fail("a name expected, not %s", word);
  memcpy(name, word, sizeof word);
  next();
}

static long take_number(void) {
  char *end;
  long n = strtol(word, &end, 0);
  if (end == word || *end) fail("a number expected, not %s", word);
  next();
  return n;
}

/* ---- types, by full name ---- */
static struct type {
  char name[NAME];
  bool is_enum;
} * types;
static size_t n_types;

static const struct type *type_named(const char *name) {
  for (size_t i = 0; i < n_types; i++)
    if (!strcmp(types[i].name, name)) return &types[i];
  return NULL;
}

static void declare(const char *name, bool is_enum) {
  if (type_named(name)) fail("%s is declared twice", name);
  types = realloc(types, (n_types + 1) * sizeof *types);
  if (!types) abort();
  snprintf(types[n_types].name, NAME, "%s", name);
  types[n_types++].is_enum = is_enum;
}

static void join(char *out, const char *scope, const char *name) {
  if (snprintf(out, NAME, "%s%s%s", scope, *scope ? "." : "", name) >= NAME) fail("%s is too long", name);
}

/* As protobuf does: in the scope itself, then in those around it. */
static const struct type *resolve(const char *scope, const char *name) {
  char around[NAME], full[NAME];
  snprintf(around, NAME, "%s", scope);
  for (;;) {
    join(full, around, name);
    const struct type *t = type_named(full);
    if (t) return t;
    char *dot = strrchr(around, '.');
    if (!*around) fail("%s is not declared", name);
    *(dot ? dot : around) = 0;
  }
}

static const struct scalar {
  const char *name;
  enum wire wire;
  const char *c, *put, *cast; /* NULL: read only */
} scalars[] = {{"int32", VARINT, "int32_t", "uint", "(uint64_t)"},
               {"int64", VARINT, "int64_t", "uint", "(uint64_t)"},
               {"uint32", VARINT, "uint32_t", "uint", ""},
               {"uint64", VARINT, "uint64_t", "uint", ""},
               {"bool", VARINT, "bool", "uint", ""},
               {"sint64", VARINT, NULL, NULL, NULL},
               {"float", FIXED32, "float", "float", ""},
               {"fixed32", FIXED32, "uint32_t", "fixed32", ""},
               {"double", FIXED64, "double", "double", ""},
               {"fixed64", FIXED64, "uint64_t", "fixed64", ""},
               {"string", BYTES, NULL, NULL, NULL},
               {"bytes", BYTES, NULL, NULL, NULL}};
static const struct scalar enumeration = {"", VARINT, "int", "uint", "(uint64_t)"};
static const struct scalar message = {"", BYTES, NULL, NULL, NULL};

/* ---- headers ---- */

/* The name in C of something in a scope, of which the package is left out. */
static const char *c_name(const char *package, const char *scope, const char *name) {
  static char out[2 * NAME];
  const char *within = scope + strlen(package);
  within += *within == '.';
  snprintf(out, sizeof out, "%s%s%s", within, *within ? "_" : "", name);
  for (char *p = out; *p; p++)
    if (*p == '.') *p = '_';
  return out;
}

static void function(const char *body, ...) {
  va_list args;
  va_start(args, body);
  fputs("static inline ", to);
  vfprintf(to, body, args);
  fputc('\n', to);
  va_end(args);
}

static void bytes_functions(const char *c, const char *of, long tag, bool in_place) {
  function("void put_%s%s_n(struct text *t, const void *data, size_t n) { wire_add_bytes(t, %ld, data, n); }", c, of,
           tag);
  function("bool find_%s%s(struct wire w, struct wire *out) { return wire_find_tag(w, %ld, out); }", c, of, tag);
  if (in_place) function("size_t begin_%s%s(struct text *t) { return wire_open(t, %ld); }", c, of, tag);
}

static void field(const char *package, const char *scope, const char *type, const char *name, long number, bool list) {
  if (number < 1 || number > (1 << 29) - 1) fail("%s cannot be numbered %ld", name, number);
  if (!to) return;
  const struct scalar *s = NULL;
  for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++)
    if (!strcmp(scalars[i].name, type)) s = &scalars[i];
  bool within = !s;
  if (!s) s = resolve(scope, type)->is_enum ? &enumeration : &message;
  within = within && s == &message;
  const char *c = c_name(package, scope, name);
  long tag = number << 3 | s->wire;
  fprintf(to, "enum { %s = %ld }; /* %ld */\n", c, tag, number);
  if (s->wire == BYTES) {
    bytes_functions(c, "", tag, within);
    if (!within) function("void put_%s(struct text *t, const char *s) { wire_add_str(t, %ld, s); }", c, tag);
    return;
  }
  if (s->put)
    function("void put_%s(struct text *t, %s v) { wire_add_%s(t, %ld, %sv); }", c, s->c, s->put, tag, s->cast);
  if (!list) return;
  tag = number << 3 | BYTES;
  fprintf(to, "enum { %s_packed = %ld };\n", c, tag);
  bytes_functions(c, "_packed", tag, true);
  if (s->wire == FIXED64 && !strcmp(s->c, "double"))
    function("void put_%s_packed(struct text *t, const double *v, size_t n) { wire_add_doubles(t, %ld, v, n); }", c,
             tag);
}

/* map<K, V> name: a list of messages of two fields, whose type is named after it. */
static void map(const char *package, const char *scope) {
  char key[NAME], value[NAME], name[NAME], entry[NAME + 8], inner[NAME];
  next();
  want("<");
  take(key);
  want(",");
  take(value);
  want(">");
  take(name);
  size_t n = 0;
  for (const char *p = name; *p; p++) {
    bool first = p == name || p[-1] == '_';
    if (*p != '_') entry[n++] = (char)(first ? toupper((unsigned char)*p) : *p);
  }
  memcpy(entry + n, "Entry", 6);
  join(inner, scope, entry);
  if (!to) declare(inner, false);
  want("=");
  field(package, scope, entry, name, take_number(), true);
  field(package, inner, key, "key", 1, false);
  field(package, inner, value, "value", 2, false);
  want(";");
}

static void enumeration_body(const char *package, const char *scope) {
  char name[NAME];
  want("{");
  while (!is("}")) {
    take(name);
    want("=");
    long v = take_number();
    want(";");
    if (to) fprintf(to, "enum { %s = %ld };\n", c_name(package, scope, name), v);
  }
  next();
}

static void declarations(const char *package, const char *scope, int depth);

static void message_body(const char *package, const char *scope, int depth) {
  if (depth > DEPTH) fail("nested too deeply");
  want("{");
  declarations(package, scope, depth);
  want("}");
}

/* What stands in a message, a oneof or a file, to the end of it. */
static void declarations(const char *package, const char *scope, int depth) {
  char type[NAME], name[NAME], inner[NAME];
  while (!is("}") && *word) {
    bool is_enum = is("enum");
    if (is_enum || is("message")) {
      next();
      take(name);
      join(inner, scope, name);
      if (!to) declare(inner, is_enum);
      if (to) fprintf(to, "\n/* %s */\n", inner);
      if (is_enum) enumeration_body(package, inner);
      else message_body(package, inner, depth + 1);
    } else if (depth == 0) {
      fail("a message or an enum expected, not %s", word);
    } else if (is("oneof")) {
      next();
      take(name);
      message_body(package, scope, depth + 1); /* members are fields of the message around it */
    } else if (is("map")) {
      map(package, scope);
    } else {
      bool list = is("repeated");
      if (list) next();
      take(type);
      take(name);
      want("=");
      field(package, scope, type, name, take_number(), list);
      want(";");
    }
  }
}

static void file(const char *name) {
  char package[NAME] = "";
  char *text = read_file(name);
  path = name;
  at = text;
  line = 1;
  for (next(); is("syntax") || is("package") || is("import");) {
    bool named = is("package");
    next();
    if (is("=")) next();
    if (named) memcpy(package, word, sizeof word);
    next();
    want(";");
  }
  declarations(package, package, 0);
  if (*word) fail("%s has nothing to end", word);
  free(text);
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: gen_wire FOLDER FILE.proto...\n");
    return 2;
  }
  for (int i = 2; i < argc; i++) file(argv[i]);
  for (int i = 2; i < argc; i++) {
    char out[4096], guard[NAME];
    const char *slash = strrchr(argv[i], '/'), *base = slash ? slash + 1 : argv[i];
    snprintf(guard, sizeof guard, "%.*s", (int)strcspn(base, "."), base);
    snprintf(out, sizeof out, "%s/%s.wire.h", argv[1], guard);
    if (!(to = fopen(out, "wb"))) {
      perror(out);
      return 1;
    }
    for (char *p = guard; *p; p++) *p = (char)toupper((unsigned char)*p);
    fprintf(
        to,
        "/* Written by tools/gen_wire.c from %s: do not edit. */\n#ifndef PROTO_%s_WIRE_H\n#define PROTO_%s_WIRE_H\n\n"
        "#include \"base/wire.h\"\n",
        base, guard, guard);
    file(argv[i]);
    fputs("\n#endif\n", to);
    if (ferror(to) || fclose(to)) {
      perror(out);
      return 1;
    }
  }
  free(types);
  return 0;
}
