/* Attribute values: making, copying, comparing, printing. */
#include "graph/attr.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/keyed_hash.h"
#include "base/mem.h"

struct attr attr_string(const char *data, size_t n) {
  return (struct attr){.kind = ATTR_STRING, .s = {mem_strndup(data, n), n}};
}

struct attr attr_int(int64_t v) {
  return (struct attr){.kind = ATTR_INT, .i = v};
}
struct attr attr_float(float v) {
  return (struct attr){.kind = ATTR_FLOAT, .f = v};
}
struct attr attr_bool(bool v) {
  return (struct attr){.kind = ATTR_BOOL, .b = v};
}
struct attr attr_type(int type) {
  return (struct attr){.kind = ATTR_TYPE, .type = type};
}

struct attr attr_shape(const struct shape *s) {
  struct attr a = {.kind = ATTR_SHAPE, .shape = mem_alloc(sizeof *s)};
  *a.shape = *s;
  return a;
}

struct attr attr_tensor(const struct tensor *t) {
  struct attr a = {.kind = ATTR_TENSOR, .tensor = mem_zalloc(1, sizeof *t)};
  tensor_ref(a.tensor, t);
  return a;
}

struct attr attr_func(const char *name) {
  struct attr a = {.kind = ATTR_FUNC, .func = mem_zalloc(1, sizeof *a.func)};
  a.func->name = mem_strdup(name);
  return a;
}

struct attr attr_list(enum attr_kind of) {
  return (struct attr){.kind = ATTR_LIST, .of = of};
}

void attr_list_add(struct attr *list, struct attr element) {
  size_t n = list->list.n;
  if ((n & (n - 1)) == 0) list->list.at = mem_realloc(list->list.at, n ? n * 2 : 1, sizeof *list->list.at);
  list->list.at[list->list.n++] = element;
  if (list->of == ATTR_NONE) list->of = element.kind;
}

static struct named_attr *copy_named(const struct named_attr *from, int n) {
  struct named_attr *to = mem_zalloc((size_t)n, sizeof *to);
  for (int i = 0; i < n; i++) to[i] = (struct named_attr){mem_strdup(from[i].name), attr_copy(&from[i].value)};
  return to;
}

bool attr_names_function(const struct attr *a) {
  return a->kind == ATTR_FUNC || (a->kind == ATTR_LIST && a->of == ATTR_FUNC);
}

struct attr attr_copy(const struct attr *a) {
  struct attr c = *a;
  switch (a->kind) {
    case ATTR_STRING:
    case ATTR_PLACEHOLDER: c.s.data = mem_strndup(a->s.data, a->s.n); break;
    case ATTR_SHAPE: return attr_shape(a->shape);
    case ATTR_TENSOR: return attr_tensor(a->tensor);
    case ATTR_FUNC:
      c = attr_func(a->func->name);
      c.func->attrs = copy_named(a->func->attrs, a->func->n_attrs);
      c.func->n_attrs = a->func->n_attrs;
      break;
    case ATTR_LIST:
      c = attr_list(a->of);
      for (size_t i = 0; i < a->list.n; i++) attr_list_add(&c, attr_copy(&a->list.at[i]));
      break;
    default: break;
  }
  return c;
}

static void func_attr_free(struct func_attr *f) {
  if (!f) return;
  for (int i = 0; i < f->n_attrs; i++) {
    free(f->attrs[i].name);
    attr_release(&f->attrs[i].value);
  }
  free(f->attrs);
  free(f->name);
  free(f);
}

void attr_release(struct attr *a) {
  switch (a->kind) {
    case ATTR_STRING:
    case ATTR_PLACEHOLDER: free(a->s.data); break;
    case ATTR_SHAPE: free(a->shape); break;
    case ATTR_TENSOR:
      tensor_release(a->tensor);
      free(a->tensor);
      break;
    case ATTR_FUNC: func_attr_free(a->func); break;
    case ATTR_LIST:
      for (size_t i = 0; i < a->list.n; i++) attr_release(&a->list.at[i]);
      free(a->list.at);
      break;
    default: break;
  }
  *a = (struct attr){0};
}

static bool tensor_equal(const struct tensor *a, const struct tensor *b) {
  if (a->dtype != b->dtype || !tensor_same_shape(a, b)) return false;
  if (a->data == b->data) return true;
  if (a->dtype == SHOAL_STRING) {
    const struct str *x = a->data, *y = b->data;
    for (int64_t i = 0; i < a->n; i++)
      if (x[i].size != y[i].size || memcmp(str_data(&x[i]), str_data(&y[i]), x[i].size)) return false;
    return true;
  }
  return dtype_plain((shoal_dtype)a->dtype) && memcmp(a->data, b->data, tensor_bytes(a)) == 0;
}

static bool func_equal(const struct func_attr *a, const struct func_attr *b) {
  if (strcmp(a->name, b->name) || a->n_attrs != b->n_attrs) return false;
  for (int i = 0; i < a->n_attrs; i++) {
    struct attr *other = named_attr_find(b->attrs, b->n_attrs, a->attrs[i].name);
    if (!other || !attr_equal(&a->attrs[i].value, other)) return false;
  }
  return true;
}

bool attr_equal(const struct attr *a, const struct attr *b) {
  if (a->kind != b->kind) return false;
  switch (a->kind) {
    case ATTR_NONE: return true;
    case ATTR_STRING:
    case ATTR_PLACEHOLDER: return a->s.n == b->s.n && memcmp(a->s.data, b->s.data, a->s.n) == 0;
    case ATTR_INT: return a->i == b->i;
    case ATTR_FLOAT: return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    case ATTR_BOOL: return a->b == b->b;
    case ATTR_TYPE: return a->type == b->type;
    case ATTR_SHAPE: return shape_equal(a->shape, b->shape);
    case ATTR_TENSOR: return tensor_equal(a->tensor, b->tensor);
    case ATTR_FUNC: return func_equal(a->func, b->func);
    case ATTR_LIST:
      if (a->list.n != b->list.n) return false;
      for (size_t i = 0; i < a->list.n; i++)
        if (!attr_equal(&a->list.at[i], &b->list.at[i])) return false;
      return true;
  }
  return false;
}

uint64_t attr_hash(const struct attr *a, uint64_t seed) {
  uint64_t h = hash_keyed(&a->kind, sizeof a->kind, seed);
  switch (a->kind) {
    case ATTR_STRING:
    case ATTR_PLACEHOLDER: return hash_keyed(a->s.data, a->s.n, h);
    case ATTR_INT: return hash_keyed(&a->i, sizeof a->i, h);
    case ATTR_FLOAT: return hash_keyed(&a->f, sizeof a->f, h);
    case ATTR_BOOL: return hash_keyed(&a->b, sizeof a->b, h);
    case ATTR_TYPE: return hash_keyed(&a->type, sizeof a->type, h);
    case ATTR_SHAPE:
      h = hash_keyed(&a->shape->rank, sizeof a->shape->rank, h);
      return a->shape->rank > 0 ? hash_keyed(a->shape->dims, (size_t)a->shape->rank * 8, h) : h;
    case ATTR_TENSOR: {
      const struct tensor *t = a->tensor;
      h = hash_keyed(t->dims, t->rank * sizeof *t->dims, h ^ t->dtype);
      if (dtype_plain((shoal_dtype)t->dtype)) return hash_keyed(t->data, tensor_bytes(t), h);
      for (int64_t i = 0; t->dtype == SHOAL_STRING && i < t->n; i++) {
        const struct str *one = &T_DATA(t, struct str)[i];
        h = hash_keyed(str_data(one), one->size, h);
      }
      return h;
    }
    case ATTR_FUNC: return hash_keyed(a->func->name, strlen(a->func->name), h);
    case ATTR_LIST:
      for (size_t i = 0; i < a->list.n; i++) h = attr_hash(&a->list.at[i], h);
      return h;
    default: return h;
  }
}

static const char *const kind_names[] = {"nothing", "string", "int",  "float",       "bool",   "type",
                                         "shape",   "tensor", "func", "placeholder", "list(?)"};
static const char *const list_names[] = {"list(any)",  "list(string)", "list(int)",   "list(float)",
                                         "list(bool)", "list(type)",   "list(shape)", "list(tensor)",
                                         "list(func)", "list(?)",      "list(?)"};

const char *attr_kind_name(const struct attr *a) {
  return a->kind == ATTR_LIST ? list_names[a->of] : kind_names[a->kind];
}

void attr_print(const struct attr *a, struct text *out) {
  enum { MOST = 12 };
  switch (a->kind) {
    case ATTR_NONE: text_adds(out, "<unset>"); break;
    case ATTR_STRING: text_addf(out, "\"%.*s\"%s", (int)MIN(a->s.n, 80), a->s.data, a->s.n > 80 ? "..." : ""); break;
    case ATTR_INT: text_addf(out, "%" PRId64, a->i); break;
    case ATTR_FLOAT: text_addf(out, "%g", (double)a->f); break;
    case ATTR_BOOL: text_adds(out, a->b ? "true" : "false"); break;
    case ATTR_TYPE: {
      const char *name = dtype_tf_name(a->type);
      text_adds(out, "DT_");
      for (; *name; name++) text_addc(out, (char)(*name >= 'a' && *name <= 'z' ? *name - 32 : *name));
      break;
    }
    case ATTR_SHAPE: shape_print(a->shape, out); break;
    case ATTR_TENSOR: {
      struct shape s = tensor_shape(a->tensor);
      text_addf(out, "Tensor<type: %s shape: %s>", dtype_tf_name(a->tensor->dtype), shape_str(&s));
      break;
    }
    case ATTR_FUNC: text_addf(out, "%s[]", a->func->name); break;
    case ATTR_PLACEHOLDER: text_addf(out, "$%s", a->s.data); break;
    case ATTR_LIST:
      text_addc(out, '[');
      for (size_t i = 0; i < a->list.n && i < MOST; i++) {
        if (i) text_adds(out, ", ");
        attr_print(&a->list.at[i], out);
      }
      text_adds(out, a->list.n > MOST ? ", ...]" : "]");
      break;
  }
}

struct attr *named_attr_find(struct named_attr *attrs, int n, const char *name) {
  for (int i = 0; i < n; i++)
    if (strcmp(attrs[i].name, name) == 0) return &attrs[i].value;
  return NULL;
}
