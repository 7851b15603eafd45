/* The op registry: rows of all families, their signatures parsed at the first look-up.
 *
 * The signature language is described in op.h. A row that does not parse is a mistake in our own tables, so it
 * aborts at start with the row's name: a test that looks up any op finds it. */
#include "graph/op_register.h"

#include <ctype.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/strmap.h"
#include "base/vec.h"

extern const struct op_family *const op_families[]; /* made by the build */

/* ---- the parser ---- */

struct signature_scan {
  const char *at;
  const char *op;
};

static void skip(struct signature_scan *s) {
  while (isspace((unsigned char)*s->at)) s->at++;
}

static bool eat(struct signature_scan *s, const char *word) {
  skip(s);
  size_t n = strlen(word);
  if (strncmp(s->at, word, n)) return false;
  s->at += n;
  return true;
}

static shoal_status expect(struct signature_scan *s, const char *word) {
  if (eat(s, word)) return NULL;
  return INTERNAL("op %s: expected '%s' at '%.30s'", s->op, word, s->at);
}

static char *word(struct signature_scan *s) {
  skip(s);
  const char *from = s->at;
  while (isalnum((unsigned char)*s->at) || *s->at == '_') s->at++;
  return mem_strndup(from, (size_t)(s->at - from));
}

static shoal_status quoted(struct signature_scan *s, char **out) {
  skip(s);
  const char *from = s->at;
  char mark = *from;
  if (mark != '\'' && mark != '"') return INTERNAL("op %s: expected a string in quotes at '%.30s'", s->op, from);
  s->at++;
  struct text t = {0};
  for (; *s->at && *s->at != mark; s->at++) {
    if (*s->at == '\\' && s->at[1]) {
      s->at++;
      text_addc(&t, *s->at == 'n' ? '\n' : *s->at == 't' ? '\t' : *s->at);
    } else {
      text_addc(&t, *s->at);
    }
  }
  *out = text_take(&t);
  if (!*s->at) return INTERNAL("op %s: the string at '%.30s' does not end", s->op, from);
  s->at++;
  return NULL;
}

static bool kind_from_word(const char *w, enum attr_kind *out) {
  static const struct {
    const char *word;
    enum attr_kind kind;
  } kinds[] = {{"string", ATTR_STRING}, {"int", ATTR_INT},     {"float", ATTR_FLOAT},   {"bool", ATTR_BOOL},
               {"type", ATTR_TYPE},     {"shape", ATTR_SHAPE}, {"tensor", ATTR_TENSOR}, {"func", ATTR_FUNC}};
  for (size_t i = 0; i < COUNT_OF(kinds); i++) {
    if (strcmp(w, kinds[i].word)) continue;
    *out = kinds[i].kind;
    return true;
  }
  return false;
}

#define BIT(t) (1ull << SHOAL_##t)
#define REAL_BITS                                                                                              \
  (BIT(FLOAT32) | BIT(FLOAT64) | BIT(INT64) | BIT(INT32) | BIT(UINT8) | BIT(UINT16) | BIT(INT16) | BIT(INT8) | \
   BIT(FLOAT16) | BIT(BFLOAT16) | BIT(UINT32) | BIT(UINT64))
#define QUANTIZED_BITS (BIT(QINT8) | BIT(QUINT8) | BIT(QINT32) | BIT(QINT16) | BIT(QUINT16))

static uint64_t set_bits(const char *w) {
  if (!strcmp(w, "numbertype")) return REAL_BITS | BIT(COMPLEX64) | BIT(COMPLEX128) | QUANTIZED_BITS;
  if (!strcmp(w, "realnumbertype")) return REAL_BITS;
  if (!strcmp(w, "quantizedtype")) return QUANTIZED_BITS;
  shoal_dtype t = dtype_from_name(w, strlen(w));
  return t && !dtype_is_ref(t) ? 1ull << t : 0;
}

/* {float, double} or {'SAME', 'VALID'}: the brace is eaten already. */
static shoal_status parse_set(struct signature_scan *s, struct op_attr *a, enum attr_kind *element) {
  *element = ATTR_TYPE;
  do {
    skip(s);
    if (*s->at == '}') break;
    if (*s->at == '\'' || *s->at == '"') {
      *element = ATTR_STRING;
      a->strings = mem_realloc(a->strings, (size_t)a->n_strings + 1, sizeof *a->strings);
      a->strings[a->n_strings++] = NULL;
      TRY(quoted(s, &a->strings[a->n_strings - 1]));
      continue;
    }
    char *w = word(s);
    uint64_t bits = set_bits(w);
    shoal_status bad = bits ? NULL : INTERNAL("op %s: '%s' is not a type", s->op, w);
    free(w);
    TRY(bad);
    a->types |= bits;
  } while (eat(s, ","));
  return expect(s, "}");
}

static shoal_status parse_value(struct signature_scan *s, enum attr_kind kind, struct attr *out);

static shoal_status parse_shape(struct signature_scan *s, struct attr *out) {
  struct shape shape = {.rank = 0};
  if (eat(s, "{") || eat(s, "<unknown>")) { /* {} or {unknown_rank: true}: any shape */
    while (*s->at && *s->at != '}' && *s->at != ';') s->at++;
    if (*s->at == '}') s->at++;
    shape.rank = -1;
  } else {
    TRY(expect(s, "["));
    while (!eat(s, "]")) {
      if (shape.rank == SHOAL_MAX_RANK) return INTERNAL("op %s: shape too long", s->op);
      skip(s);
      char *end;
      if (eat(s, "?")) shape.dims[shape.rank++] = -1;
      else {
        shape.dims[shape.rank++] = strtoll(s->at, &end, 10);
        if (end == s->at) return INTERNAL("op %s: bad shape at '%.20s'", s->op, s->at);
        s->at = end;
      }
      eat(s, ",");
    }
  }
  *out = attr_shape(&shape);
  return NULL;
}

/* {int32 0}, {float 1.5}, {uint8 [255, 0, 0, 255]}: a scalar, or a vector. */
static shoal_status parse_tensor(struct signature_scan *s, struct attr *out) {
  TRY(expect(s, "{"));
  char *w = word(s);
  shoal_dtype t = dtype_from_name(w, strlen(w));
  free(w);
  bool vector = eat(s, "[");
  double values[16];
  int n = 0;
  do {
    char *end;
    values[n] = strtod(s->at, &end);
    if (end == s->at) return INTERNAL("op %s: bad tensor at '%.20s'", s->op, s->at);
    s->at = end;
    n++;
  } while (vector && n < 16 && eat(s, ","));
  if (vector) TRY(expect(s, "]"));
  TRY(expect(s, "}"));
  struct tensor value;
  TRY(tensor_new_dims(&value, t, vector, (int64_t[]){n}));
  for (int i = 0; i < n; i++) {
    switch (t) {
      case SHOAL_FLOAT32: T_DATA(&value, float)[i] = (float)values[i]; break;
      case SHOAL_INT32: T_DATA(&value, int32_t)[i] = (int32_t)values[i]; break;
      case SHOAL_INT64: T_DATA(&value, int64_t)[i] = (int64_t)values[i]; break;
      case SHOAL_UINT8: T_DATA(&value, uint8_t)[i] = (uint8_t)values[i]; break;
      default: tensor_release(&value); return INTERNAL("op %s: tensor default of this type", s->op);
    }
  }
  *out = attr_tensor(&value);
  tensor_release(&value);
  return NULL;
}

static shoal_status parse_list(struct signature_scan *s, enum attr_kind of, struct attr *out) {
  TRY(expect(s, "["));
  *out = attr_list(of);
  while (!eat(s, "]")) {
    struct attr element;
    TRY(parse_value(s, of, &element));
    attr_list_add(out, element);
    eat(s, ",");
  }
  return NULL;
}

static shoal_status parse_value(struct signature_scan *s, enum attr_kind kind, struct attr *out) {
  skip(s);
  char *end;
  switch (kind) {
    case ATTR_STRING: {
      char *q = NULL;
      shoal_status bad = quoted(s, &q);
      *out = attr_string(q ? q : "", q ? strlen(q) : 0);
      free(q);
      return bad;
    }
    case ATTR_INT: *out = attr_int(strtoll(s->at, &end, 10)); break;
    case ATTR_FLOAT: *out = attr_float(strtof(s->at, &end)); break;
    case ATTR_BOOL: {
      bool v = eat(s, "true");
      if (!v) TRY(expect(s, "false"));
      *out = attr_bool(v);
      return NULL;
    }
    case ATTR_TYPE: {
      char *w = word(s);
      *out = attr_type(dtype_from_name(w, strlen(w)));
      shoal_status bad = out->type ? NULL : INTERNAL("op %s: '%s' is not a type", s->op, w);
      free(w);
      return bad;
    }
    case ATTR_SHAPE: return parse_shape(s, out);
    case ATTR_TENSOR: return parse_tensor(s, out);
    default: return INTERNAL("op %s: this kind of attribute has no default", s->op);
  }
  if (end == s->at) return INTERNAL("op %s: bad number at '%.20s'", s->op, s->at);
  s->at = end;
  return NULL;
}

static shoal_status parse_attr(struct signature_scan *s, struct op_attr *a) {
  a->name = word(s);
  TRY(expect(s, ":"));
  bool list = eat(s, "list(");
  enum attr_kind kind = ATTR_NONE;
  if (eat(s, "{")) {
    TRY(parse_set(s, a, &kind));
  } else {
    char *w = word(s);
    bool known = kind_from_word(w, &kind);
    if (!known && set_bits(w)) { /* a bare type set: "T: realnumbertype" */
      kind = ATTR_TYPE;
      a->types = set_bits(w);
      known = true;
    }
    shoal_status bad = known ? NULL : INTERNAL("op %s: '%s' is no kind of attribute", s->op, w);
    free(w);
    TRY(bad);
  }
  if (list) TRY(expect(s, ")"));
  a->kind = list ? ATTR_LIST : kind;
  a->of = list ? kind : ATTR_NONE;
  if (eat(s, ">=")) {
    char *end;
    skip(s);
    a->minimum = strtoll(s->at, &end, 10);
    a->has_minimum = true;
    s->at = end;
  }
  if (eat(s, "=")) {
    a->has_default = true;
    TRY(list ? parse_list(s, kind, &a->dflt) : parse_value(s, kind, &a->dflt));
  }
  return NULL;
}

static const struct op_attr *find_attr(const struct op *op, const char *name) {
  for (int i = 0; i < op->n_attrs; i++)
    if (!strcmp(op->attrs[i].name, name)) return &op->attrs[i];
  return NULL;
}

/* A type by name: an attribute's, or a dtype. */
static shoal_status resolve_type(struct op *op, struct op_arg *arg, const char *w) {
  const struct op_attr *a = find_attr(op, w);
  if (a && a->kind == ATTR_TYPE) arg->type_attr = a->name;
  else if (a && a->kind == ATTR_LIST && a->of == ATTR_TYPE) arg->list_attr = a->name;
  else if (!a && dtype_from_name(w, strlen(w))) arg->type = dtype_from_name(w, strlen(w));
  else return INTERNAL("op %s: argument %s has unknown type '%s'", op->name, arg->name, w);
  return NULL;
}

static shoal_status parse_arg(struct signature_scan *s, struct op *op, struct op_arg *arg) {
  arg->name = word(s);
  TRY(expect(s, ":"));
  arg->is_ref = eat(s, "Ref(");
  char *w = word(s);
  shoal_status status = NULL;
  if (eat(s, "*")) {
    const struct op_attr *n = find_attr(op, w);
    if (!n || n->kind != ATTR_INT) status = INTERNAL("op %s: '%s' is not an int attribute", op->name, w);
    else arg->number_attr = n->name;
    free(w);
    w = word(s);
  }
  if (!status) status = resolve_type(op, arg, w);
  free(w);
  TRY(status);
  if (arg->is_ref) TRY(expect(s, ")"));
  return NULL;
}

static shoal_status parse_args(struct op *op, const char *text, struct op_arg **args, int *n) {
  struct signature_scan s = {text ? text : "", op->name};
  VEC(struct op_arg) v = {0};
  skip(&s);
  shoal_status status = NULL;
  while (!status && *s.at) {
    vec_push(&v, (struct op_arg){0});
    status = parse_arg(&s, op, &vec_last(&v));
    if (!status && !eat(&s, ",") && *s.at) status = INTERNAL("op %s: left over: '%.30s'", op->name, s.at);
    skip(&s);
  }
  *args = v.at;
  *n = (int)v.n;
  return status;
}

static shoal_status parse_attrs(struct op *op, const char *text) {
  struct signature_scan s = {text ? text : "", op->name};
  VEC(struct op_attr) v = {0};
  skip(&s);
  shoal_status status = NULL;
  while (!status && *s.at) {
    vec_push(&v, (struct op_attr){0});
    status = parse_attr(&s, &vec_last(&v));
    if (!status && !eat(&s, ";") && *s.at) status = INTERNAL("op %s: left over: '%.30s'", op->name, s.at);
    skip(&s);
  }
  op->attrs = v.at;
  op->n_attrs = (int)v.n;
  return status;
}

shoal_status op_parse(const struct op_row *row, const char *family, struct op **out) {
  struct op *op = mem_zalloc(1, sizeof *op);
  op->row = row;
  op->name = row->name;
  op->family = family;
  op->flags = row->flags;
  shoal_status s = parse_attrs(op, row->attrs);
  if (!s) s = parse_args(op, row->in, &op->in, &op->n_in);
  if (!s) s = parse_args(op, row->out, &op->out, &op->n_out);
  if (s) {
    op_free(op);
    return s;
  }
  *out = op;
  return NULL;
}

void op_free(struct op *op) {
  if (!op) return;
  for (int i = 0; i < op->n_in; i++) free(op->in[i].name);
  for (int i = 0; i < op->n_out; i++) free(op->out[i].name);
  for (int i = 0; i < op->n_attrs; i++) {
    struct op_attr *a = &op->attrs[i];
    free(a->name);
    attr_release(&a->dflt);
    for (int k = 0; k < a->n_strings; k++) free(a->strings[k]);
    free(a->strings);
  }
  free(op->in);
  free(op->out);
  free(op->attrs);
  free(op);
}

/* ---- the registry ---- */

static struct {
  pthread_once_t once;
  struct strmap by_name;
  const struct op **sorted;
  int n;
} registry = {.once = PTHREAD_ONCE_INIT};

static int by_name(const void *a, const void *b) {
  return strcmp((*(const struct op *const *)a)->name, (*(const struct op *const *)b)->name);
}

static void registry_build(void) {
  VEC(const struct op *) all = {0};
  for (const struct op_family *const *f = op_families; *f; f++) {
    for (int i = 0; i < (*f)->n_rows; i++) {
      struct op *op;
      shoal_status s = op_parse(&(*f)->rows[i], (*f)->name, &op);
      if (s) must_failed(shoal_status_message(s), (*f)->name, i, "op row");
      if (strmap_put(&registry.by_name, op->name, op)) must_failed("an op stands in two rows", op->name, i, "op row");
      vec_push(&all, op);
    }
  }
  if (all.n) qsort(all.at, all.n, sizeof *all.at, by_name);
  registry.sorted = all.at;
  registry.n = (int)all.n;
}

/* Loaded ops, a map for each library: once it can be seen it stays as it is, so that ops are found without a lock. They
 * are looked for wherever graphs are made, under whatever lock that is. */
struct loaded_ops {
  struct strmap by_name;
  struct loaded_ops *before;
};
static struct {
  pthread_mutex_t lock;                /* of whoever adds */
  _Atomic(struct loaded_ops *) newest; /* NULL: none are loaded */
} loaded = {.lock = PTHREAD_MUTEX_INITIALIZER};

const struct op *op_find(const char *name) {
  pthread_once(&registry.once, registry_build);
  const struct op *op = strmap_get(&registry.by_name, name);
  const struct loaded_ops *l = op ? NULL : atomic_load_explicit(&loaded.newest, memory_order_acquire);
  for (; l && !op; l = l->before) op = strmap_get(&l->by_name, name);
  return op;
}

static shoal_status check_new(const struct op_row *const *rows, int i) {
  bool there = op_find(rows[i]->name) != NULL;
  for (int k = 0; k < i && !there; k++) there = !strcmp(rows[i]->name, rows[k]->name);
  return there ? STATUS(SHOAL_ALREADY_EXISTS, "there is an op %s already", rows[i]->name) : NULL;
}

/* The same name for the second time? */
static bool seen(struct strmap *names, char *name) { return strmap_put(names, name, name) != NULL; }

/* Arguments and attributes of an op all have names of their own, as with TensorFlow. */
static shoal_status check_names(const struct op *op) {
  struct strmap names = {0};
  const char *twice = NULL;
  for (int i = 0; i < op->n_attrs; i++) twice = seen(&names, op->attrs[i].name) ? op->attrs[i].name : twice;
  for (int i = 0; i < op->n_in; i++) twice = seen(&names, op->in[i].name) ? op->in[i].name : twice;
  for (int i = 0; i < op->n_out; i++) twice = seen(&names, op->out[i].name) ? op->out[i].name : twice;
  strmap_release(&names);
  return twice ? INVALID("op %s: two arguments or attributes are named '%s'", op->name, twice) : NULL;
}

/* Call with loaded.lock held. */
static void add_loaded(struct op *const *ops, int n) {
  struct loaded_ops *l = mem_zalloc(1, sizeof *l);
  for (int i = 0; i < n; i++) strmap_put(&l->by_name, ops[i]->name, ops[i]);
  l->before = atomic_load_explicit(&loaded.newest, memory_order_relaxed);
  atomic_store_explicit(&loaded.newest, l, memory_order_release);
}

shoal_status op_register(const struct op_row *const *rows, int n) {
  pthread_once(&registry.once, registry_build);
  struct op **ops = mem_zalloc((size_t)n, sizeof *ops);
  shoal_status s = NULL;
  for (int i = 0; i < n && !s; i++) {
    shoal_status wrong = op_parse(rows[i], "loaded", &ops[i]);
    s = wrong ? INVALID("%s", shoal_status_message(wrong)) : check_names(ops[i]);
    shoal_status_free(wrong);
  }
  pthread_mutex_lock(&loaded.lock);
  for (int i = 0; i < n && !s; i++) s = check_new(rows, i);
  if (!s) add_loaded(ops, n);
  pthread_mutex_unlock(&loaded.lock);
  for (int i = 0; i < n && s; i++) op_free(ops[i]);
  free(ops);
  return s;
}

const struct op *const *op_all(int *n) {
  pthread_once(&registry.once, registry_build);
  *n = registry.n;
  return registry.sorted;
}

const struct op_attr *op_attr_find(const struct op *op, const char *name) { return find_attr(op, name); }

/* ---- printing ---- */

static void print_args(const struct op_arg *args, int n, struct text *out) {
  for (int i = 0; i < n; i++) {
    const struct op_arg *a = &args[i];
    text_addf(out, "%s%s:", i ? ", " : "", a->name);
    if (a->is_ref) text_adds(out, "Ref(");
    if (a->number_attr) text_addf(out, "%s*", a->number_attr);
    text_adds(out, a->type_attr ? a->type_attr : a->list_attr ? a->list_attr : dtype_tf_name(a->type));
    if (a->is_ref) text_addc(out, ')');
  }
}

void op_print(const struct op *op, struct text *out) {
  text_addf(out, "Op<name=%s; signature=", op->name);
  print_args(op->in, op->n_in, out);
  text_adds(out, " -> ");
  print_args(op->out, op->n_out, out);
  for (int i = 0; i < op->n_attrs; i++) {
    const struct op_attr *a = &op->attrs[i];
    struct attr kind = {.kind = a->kind, .of = a->of};
    text_addf(out, "; attr=%s:%s", a->name, attr_kind_name(&kind));
    if (a->has_default) {
      text_adds(out, ",default=");
      attr_print(&a->dflt, out);
    }
    if (a->has_minimum) text_addf(out, ",min=%" PRId64, a->minimum);
    if (a->types || a->strings) {
      const char *comma = "";
      text_adds(out, ",allowed=[");
      for (int t = 1; t < DTYPE_COUNT; t++) {
        if (!(a->types >> t & 1)) continue;
        struct attr type = attr_type(t);
        text_adds(out, comma);
        attr_print(&type, out);
        comma = ", ";
      }
      for (int k = 0; k < a->n_strings; k++) {
        text_addf(out, "%s\"%s\"", comma, a->strings[k]);
        comma = ", ";
      }
      text_addc(out, ']');
    }
  }
  if (op->flags & OP_STATEFUL) text_adds(out, "; is_stateful=true");
  text_addc(out, '>');
}
