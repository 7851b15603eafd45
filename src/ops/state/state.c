/* Shared by the families of stateful ops. */
#include "ops/state/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/variable_copy.h"
#include "runtime/variable_notes.h"

/* ---- variables as inputs ---- */

shoal_status state_vars_get(struct kernel_ctx *ctx, int n, const char *missing, struct state_vars *out) {
  out->n = 0;
  out->locked = false;
  for (int i = 0; i < n; i++) {
    struct variable *v;
    if (state_is_ref(ctx, i)) {
      v = ctx_ref(ctx, i);
      if (!v) {
        state_vars_release(out);
        return INVALID("Input %d of %s must be a reference to a variable", i, ctx->kernel->name);
      }
      resource_ref(&v->head);
    } else {
      struct resource *r;
      shoal_status s = resource_from_handle(ctx->kernel->resources, ctx_in(ctx, i), &variable_type, &r);
      if (s) {
        state_vars_release(out);
        if (!missing || shoal_status_code(s) != SHOAL_NOT_FOUND) return s;
        shoal_status_free(s);
        return INTERNAL("%s", missing);
      }
      v = (struct variable *)r;
    }
    out->v[out->n++] = v;
  }
  return NULL;
}

void state_vars_lock(struct state_vars *s) {
  struct variable *order[STATE_MAX_VARS];
  int n = 0;
  for (int i = 0; i < s->n; i++) { /* insertion sort that leaves out doubles */
    int at = n;
    while (at > 0 && order[at - 1] > s->v[i]) at--;
    if (at > 0 && order[at - 1] == s->v[i]) continue;
    memmove(&order[at + 1], &order[at], (size_t)(n - at) * sizeof *order);
    order[at] = s->v[i];
    n++;
  }
  for (int i = 0; i < n; i++) {
    pthread_rwlock_wrlock(&order[i]->lock);
    variable_note(order[i], true);
  }
  s->locked = true;
}

void state_vars_release(struct state_vars *s) {
  if (s->locked) {
    for (int i = 0; i < s->n; i++) {
      bool seen = false;
      for (int j = 0; j < i; j++) seen |= s->v[j] == s->v[i];
      if (!seen) pthread_rwlock_unlock(&s->v[i]->lock);
    }
  }
  for (int i = 0; i < s->n; i++) variable_unref(s->v[i]);
  s->n = 0;
  s->locked = false;
}

shoal_status state_sparse_access(struct kernel_ctx *ctx, int input, struct variable *v) {
  TRY(variable_make_writable_on(v, ctx_pool(ctx)));
  if (!state_is_ref(ctx, input)) atomic_store_explicit(&v->copy_on_read, true, memory_order_relaxed);
  return NULL;
}

/* A small value on a device is copied to where the one before it is: a captured step finds it there (runtime/replay.h).
 * False: it is not, or cannot be. */
static bool set_in_place(struct variable *v, const struct tensor *value) {
  enum { SMALL = 64 << 10 }; /* bytes; a larger one is taken over, which costs nothing */
  struct device *d = value->buffer->device;
  if (!d || !tensor_valid(&v->value) || v->value.buffer->device != d || !tensor_writable(&v->value)) return false;
  if (v->value.dtype != value->dtype || !tensor_same_shape(&v->value, value) || tensor_bytes(value) > SMALL)
    return false;
  d->type->ops->copy(d, value, &v->value, 0);
  return true;
}

shoal_status state_set_value(struct variable *v, const struct tensor *value) {
  struct tensor fresh;
  if (set_in_place(v, value)) return NULL;
  TRY(variable_may_move(v));
  bool small_view = value->buffer->size > 2 * tensor_bytes(value) + 256;
  bool foreign = value->buffer->release != NULL;
  bool own = small_view || foreign || atomic_load_explicit(&v->copy_on_read, memory_order_relaxed);
  if (own && !value->buffer->device) {
    if (tensor_valid(&v->value) && tensor_writable(&v->value) && v->value.dtype == value->dtype &&
        tensor_same_shape(&v->value, value)) {
      elements_copy((shoal_dtype)value->dtype, v->value.data, value->data, value->n);
      return NULL;
    }
    TRY(tensor_copy(&fresh, value));
  } else {
    tensor_ref(&fresh, value);
  }
  tensor_release(&v->value);
  tensor_move(&v->value, &fresh);
  return NULL;
}

/* ---- arithmetic in place ---- */

/* One loop for each (operation, type). Integers are computed in unsigned 64 bits, so that overflow wraps. */
#define DEFINE(op, e, T, expr)                                                   \
  static void op##_##e(shoal_dtype dtype, void *to, const void *by, int64_t n) { \
    T *restrict a = to;                                                          \
    const T *restrict b = by;                                                    \
    for (int64_t i = 0; i < n; i++) a[i] = (T)(expr);                            \
  }
#define DEFINE_VIA(op, e, T, get, put, expr)                                     \
  static void op##_##e(shoal_dtype dtype, void *to, const void *by, int64_t n) { \
    T *restrict ta = to;                                                         \
    const T *restrict tb = by;                                                   \
    for (int64_t i = 0; i < n; i++) {                                            \
      float x = get(ta[i]), y = get(tb[i]);                                      \
      ta[i] = put(expr);                                                         \
    }                                                                            \
  }
#define FLOATS(X) X(SHOAL_FLOAT32, float) X(SHOAL_FLOAT64, double)
#define INTS(X)           \
  X(SHOAL_INT8, int8_t)   \
  X(SHOAL_INT16, int16_t) \
  X(SHOAL_INT32, int32_t) \
  X(SHOAL_INT64, int64_t) \
  X(SHOAL_UINT8, uint8_t) X(SHOAL_UINT16, uint16_t) X(SHOAL_UINT32, uint32_t) X(SHOAL_UINT64, uint64_t)
#define COMPLEXES(X) X(SHOAL_COMPLEX64, c64) X(SHOAL_COMPLEX128, c128)

#define PLAIN_OPS(e, T)          \
  DEFINE(add, e, T, a[i] + b[i]) \
  DEFINE(sub, e, T, a[i] - b[i]) \
  DEFINE(mul, e, T, a[i] * b[i]) \
  DEFINE(div, e, T, a[i] / b[i])
#define WRAP_OPS(e, T)                               \
  DEFINE(add, e, T, (uint64_t)a[i] + (uint64_t)b[i]) \
  DEFINE(sub, e, T, (uint64_t)a[i] - (uint64_t)b[i]) \
  DEFINE(mul, e, T, (uint64_t)a[i] * (uint64_t)b[i]) \
  DEFINE(div, e, T, (T)-1 <= 1 && b[i] == (T)-1 ? (T)(0 - (uint64_t)a[i]) : b[i] ? (T)(a[i] / b[i]) : (T)0)
#define ORDER_OPS(e, T)                        \
  DEFINE(min, e, T, b[i] < a[i] ? b[i] : a[i]) \
  DEFINE(max, e, T, a[i] < b[i] ? b[i] : a[i])
FLOATS(PLAIN_OPS)
FLOATS(ORDER_OPS)
INTS(WRAP_OPS)
INTS(ORDER_OPS)
COMPLEXES(PLAIN_OPS)
#define HALF_OPS(e, T, get, put)                 \
  DEFINE_VIA(add, e, T, get, put, x + y)         \
  DEFINE_VIA(sub, e, T, get, put, x - y)         \
  DEFINE_VIA(mul, e, T, get, put, x *y)          \
  DEFINE_VIA(div, e, T, get, put, x / y)         \
  DEFINE_VIA(min, e, T, get, put, y < x ? y : x) \
  DEFINE_VIA(max, e, T, get, put, x < y ? y : x)
HALF_OPS(SHOAL_FLOAT16, f16, f16_to_float, f16_from_float)
HALF_OPS(SHOAL_BFLOAT16, bf16, bf16_to_float, bf16_from_float)

static void set_any(shoal_dtype dtype, void *to, const void *by, int64_t n) { elements_copy(dtype, to, by, n); }

update_fn update_find(enum update op, shoal_dtype dtype) {
#define AT(e, T) [e] = {set_any, add_##e, sub_##e, mul_##e, div_##e, min_##e, max_##e},
#define AT_COMPLEX(e, T) [e] = {set_any, add_##e, sub_##e, mul_##e, div_##e, NULL, NULL},
  static const update_fn table[DTYPE_COUNT][UPDATE_COUNT] = {FLOATS(AT) INTS(AT) COMPLEXES(AT_COMPLEX)
                                                                 AT(SHOAL_FLOAT16, f16) AT(SHOAL_BFLOAT16, bf16)};
  if (op == UPDATE_SET) return dtype_valid(dtype) ? set_any : NULL;
  return dtype_valid(dtype) ? table[dtype][op] : NULL;
}

struct update_loop {
  update_fn fn;
  shoal_dtype dtype;
  char *to;
  const char *by;
  size_t size;
};

static void update_piece(void *arg, int64_t begin, int64_t end) {
  struct update_loop *l = arg;
  l->fn(l->dtype, l->to + (size_t)begin * l->size, l->by + (size_t)begin * l->size, end - begin);
}

void update_run(struct pool *p, update_fn fn, shoal_dtype dtype, void *to, const void *by, int64_t n) {
  enum { GRAIN = 32768 };
  if (n <= GRAIN) {
    fn(dtype, to, by, n);
    return;
  }
  struct update_loop l = {fn, dtype, to, by, dtype_size(dtype)};
  pool_for(p, n, GRAIN, update_piece, &l);
}

struct join_loop {
  const struct tensor *from;
  char *to;
  const int64_t *offset;
  int64_t each;
  size_t size;
};

static void join_piece(void *arg, int64_t begin, int64_t end) {
  const struct join_loop *l = arg;
  for (int64_t i = begin; i < end; i++) {
    if (!tensor_valid(&l->from[i])) continue;
    int64_t at = l->offset ? l->offset[i] : i * l->each;
    elements_copy((shoal_dtype)l->from[i].dtype, l->to + (size_t)at * l->size, l->from[i].data, l->from[i].n);
  }
}

void tensors_join(struct pool *p, const struct tensor *from, int64_t n, const int64_t *offset, struct tensor *out) {
  if (!out->n) return;
  struct device *d = out->buffer->device;
  if (d) {
    size_t size = dtype_size((shoal_dtype)out->dtype);
    for (int64_t i = 0; i < n; i++)
      if (tensor_valid(&from[i]))
        d->type->ops->copy(d, &from[i], out, (size_t)(offset ? offset[i] : out->n / n * i) * size);
    return;
  }
  struct join_loop l = {from, out->data, offset, out->n / n, dtype_size((shoal_dtype)out->dtype)};
  pool_for(p, n, MAX(1, 32768 / MAX(l.each, 1)), join_piece, &l);
}

/* ---- places and values in errors ---- */

static char *ring_buffer(void) {
  static _Thread_local char ring[4][SHOAL_MAX_RANK * 22 + 8];
  static _Thread_local unsigned turn;
  return ring[turn++ % 4];
}

const char *index_place(const struct tensor *t, int64_t i) {
  int64_t at[SHOAL_MAX_RANK];
  for (int d = t->rank - 1; d >= 0; d--) {
    at[d] = t->dims[d] ? i % t->dims[d] : 0;
    i = t->dims[d] ? i / t->dims[d] : 0;
  }
  char *out = ring_buffer(), *p = out;
  *p = 0;
  if (t->rank) *p++ = '[';
  for (int d = 0; d < t->rank; d++) p += sprintf(p, "%s%" PRId64, d ? "," : "", at[d]);
  if (t->rank) strcpy(p, "]");
  return out;
}

const char *index_values(const struct tensor *t, int64_t first, int64_t n) {
  char *out = ring_buffer(), *p = out;
  *p++ = '[';
  for (int64_t i = 0; i < n && i < SHOAL_MAX_RANK; i++)
    p += sprintf(p, "%s%" PRId64, i ? ", " : "", index_at(t, first + i));
  strcpy(p, "]");
  return out;
}

/* ---- names ---- */

static bool container_valid(const char *s) {
  for (const char *p = s; *p; p++) {
    bool word = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || *p == '.';
    if (!word && (p == s || (*p != '-' && *p != '/'))) return false;
  }
  return true;
}

/* Private names in use. Two plans of one session hold two kernels for the same queue node: both must find the same
 * queue, and a node of that name in another session another. */
struct private_name {
  char *name;
  int users;
};
static struct {
  pthread_mutex_t lock;
  struct strmap by_node; /* "session node" -> struct private_name * */
  struct strmap by_name; /* name -> its key in by_node */
  uint64_t next;
} privates = {.lock = PTHREAD_MUTEX_INITIALIZER};

static char *take_private_name(uint64_t session, const char *node) {
  pthread_mutex_lock(&privates.lock);
  uint64_t number = privates.next;
  char *key = session ? mem_printf("%llu %s", (unsigned long long)session, node)
                      : mem_printf("- %llu", (unsigned long long)number);
  struct private_name *p = strmap_get(&privates.by_node, key);
  if (!p) {
    p = mem_zalloc(1, sizeof *p);
    p->name = mem_printf("_%llu_%s", (unsigned long long)number, node);
    privates.next++;
    strmap_put(&privates.by_node, key, p);
    strmap_put(&privates.by_name, p->name, key);
  } else {
    free(key);
  }
  p->users++;
  char *name = mem_strdup(p->name);
  pthread_mutex_unlock(&privates.lock);
  return name;
}

bool state_name_drop(const char *name) {
  bool last = false;
  pthread_mutex_lock(&privates.lock);
  char *key = strmap_get(&privates.by_name, name);
  struct private_name *p = key ? strmap_get(&privates.by_node, key) : NULL;
  if (p && --p->users == 0) {
    last = true;
    strmap_remove(&privates.by_node, key);
    strmap_remove(&privates.by_name, name);
    free(p->name);
    free(p);
    free(key);
  }
  pthread_mutex_unlock(&privates.lock);
  return last;
}

shoal_status state_name(const struct kernel_init *ki, bool private_name, char **container, char **name,
                        bool *is_private) {
  const char *in, *shared;
  TRY(node_get_string(ki->node, "container", &in));
  TRY(node_get_string(ki->node, "shared_name", &shared));
  if (!container_valid(in)) return INVALID("container contains invalid characters: %s", in);
  if (*shared == '_') return INVALID("shared_name cannot start with '_':%s", shared);
  *is_private = private_name && !*shared;
  *container = mem_strdup(*in ? in : resource_mgr_default_container(ki->resources));
  if (*shared) *name = mem_strdup(shared);
  else *name = private_name ? take_private_name(ki->session, ki->node->name) : mem_strdup(ki->node->name);
  return NULL;
}

/* ---- handles ---- */

shoal_status state_maker_init(struct state_maker *m, struct kernel_init *ki, const struct resource_type *type,
                              bool private_name) {
  m->type = type;
  TRY(state_name(ki, private_name, &m->container, &m->name, &m->is_private));
  m->entry = resource_entry_get(ki->resources, m->container, type, m->name);
  m->mgr = resource_mgr_ref(ki->resources);
  if (!dtype_is_ref(ki->kernel->out_types[0]))
    return resource_handle_tensor(ki->resources, ki->device->name, m->container, m->name, type, &m->handle);
  struct shape two = shape_vector(2);
  m->ref = variable_new(ki->node->name, SHOAL_STRING, &two);
  TRY(tensor_new(&m->ref->value, SHOAL_STRING, &two));
  str_set(&T_DATA(&m->ref->value, struct str)[0], m->container, strlen(m->container));
  str_set(&T_DATA(&m->ref->value, struct str)[1], m->name, strlen(m->name));
  return NULL;
}

void state_maker_release(struct state_maker *m) {
  if (m->is_private && state_name_drop(m->name))
    shoal_status_free(resource_remove(m->mgr, m->container, m->type, m->name));
  resource_entry_unref(m->entry);
  if (m->mgr) resource_mgr_unref(m->mgr);
  if (m->ref) variable_unref(m->ref);
  if (tensor_valid(&m->handle)) tensor_release(&m->handle);
  free(m->container);
  free(m->name);
}

shoal_status state_maker_run(struct state_maker *m, struct kernel_ctx *ctx,
                             shoal_status (*make)(void *arg, struct resource **out), void *arg, struct resource **out) {
  struct resource *r;
  TRY(resource_entry_find_or_make(m->entry, make, arg, &r));
  if (out) *out = r;
  else resource_unref(r);
  if (m->ref) {
    ctx_set_ref(ctx, 0, m->ref);
  } else {
    struct tensor t;
    tensor_ref(&t, &m->handle);
    ctx_set(ctx, 0, &t);
  }
  return NULL;
}

shoal_status state_from_handle(struct kernel_ctx *ctx, int i, const struct resource_type *type, struct resource **out) {
  if (!state_is_ref(ctx, i)) return resource_from_handle(ctx->kernel->resources, ctx_in(ctx, i), type, out);
  struct variable *v = ctx_ref(ctx, i);
  if (!v) return INVALID("Input %d of %s must be a reference to a handle", i, ctx->kernel->name);
  struct tensor t;
  variable_read(v, &t);
  if (!tensor_valid(&t) || t.dtype != SHOAL_STRING || t.n != 2) {
    if (tensor_valid(&t)) tensor_release(&t);
    return INVALID("Resource handle must have 2 elements, but had shape: %s", shape_str(&v->shape));
  }
  const struct str *s = T_DATA(&t, const struct str);
  char *container = mem_strndup(str_data(&s[0]), s[0].size), *name = mem_strndup(str_data(&s[1]), s[1].size);
  shoal_status st = resource_find(ctx->kernel->resources, container, type, name, out);
  free(container);
  free(name);
  tensor_release(&t);
  return st;
}

shoal_status state_merge_shapes(const struct shape *a, const struct shape *b, struct shape *out) {
  if (a->rank >= 0 && b->rank >= 0 && a->rank != b->rank)
    return INVALID("Incompatible ranks during merge: %d vs. %d", a->rank, b->rank);
  if (!shape_compatible(a, b))
    return INVALID("Incompatible shapes during merge: %s vs. %s", shape_str(a), shape_str(b));
  return shape_merge(a, b, out);
}

shoal_status shape_handle_v1(struct shape_ctx *c) {
  c->out[0] = shape_vector(2);
  return NULL;
}
