/* Staging areas: Stage puts a tuple in, Unstage takes the oldest out; by key with MapStage and OrderedMapStage, where a
 * tuple may come in parts and leave in parts. Bounded by a number of tuples and by bytes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ops/state/wait_list.h"

struct tuple {
  int64_t key;
  int n;
  int missing; /* parts that have not come yet */
  int64_t bytes;
  struct tensor at[]; /* [n]; invalid: not here (yet, or any more) */
};
typedef VEC(struct tuple *) tuple_list;

struct area {
  struct resource head;
  struct wait_list waits;
  int64_t capacity, memory_limit; /* 0: none */
  /* waits.lock: */
  int64_t bytes;
  tuple_list ready;   /* in order of arrival; by key in an ordered map */
  tuple_list partial; /* maps only */
};

static void free_tuple(struct tuple *t) {
  for (int i = 0; i < t->n; i++)
    if (tensor_valid(&t->at[i])) tensor_release(&t->at[i]);
  free(t);
}

static void clear(struct area *a) {
  for (size_t i = 0; i < a->ready.n; i++) free_tuple(a->ready.at[i]);
  for (size_t i = 0; i < a->partial.n; i++) free_tuple(a->partial.at[i]);
  a->ready.n = a->partial.n = 0;
  a->bytes = 0;
}

static void free_area(struct resource *r) {
  struct area *a = (struct area *)r;
  clear(a);
  vec_release(&a->ready);
  vec_release(&a->partial);
  wait_list_release(&a->waits);
  free(a);
}

static const struct resource_type stage_type = {"N10tensorflow12_GLOBAL__N_16BufferE", "staging area", free_area};
static const struct resource_type map_type = {"N10tensorflow12_GLOBAL__N_110StagingMapE", "staging map", free_area};

struct staging_state {
  struct resource_entry *entry;
  int64_t capacity, memory_limit;
  int n; /* parts of a tuple */
  bool ordered;
  char *container, *name;
};

static shoal_status init(struct kernel_init *ki, struct staging_state *st, const struct resource_type *type) {
  bool is_private;
  const struct attr *types;
  TRY(node_get_int(ki->node, "capacity", &st->capacity));
  TRY(node_get_int(ki->node, "memory_limit", &st->memory_limit));
  TRY(node_get_list(ki->node, "dtypes", ATTR_TYPE, &types));
  st->n = (int)types->list.n;
  st->ordered = str_starts(ki->node->op->name, "Ordered");
  TRY(state_name(ki, false, &st->container, &st->name, &is_private));
  st->entry = resource_entry_get(ki->resources, st->container, type, st->name);
  return NULL;
}
static shoal_status stage_init(struct kernel_init *ki, void *state) { return init(ki, state, &stage_type); }
static shoal_status map_init(struct kernel_init *ki, void *state) { return init(ki, state, &map_type); }

static void release(void *state) {
  struct staging_state *st = state;
  resource_entry_unref(st->entry);
  free(st->container);
  free(st->name);
}

static shoal_status make(const struct staging_state *st, const struct resource_type *type, struct resource **out) {
  struct area *a = mem_zalloc(1, sizeof *a);
  resource_init(&a->head, type);
  wait_list_init(&a->waits);
  a->capacity = st->capacity;
  a->memory_limit = st->memory_limit;
  *out = &a->head;
  return NULL;
}
static shoal_status make_stage(void *arg, struct resource **out) { return make(arg, &stage_type, out); }
static shoal_status make_map(void *arg, struct resource **out) { return make(arg, &map_type, out); }

static shoal_status find(struct kernel_ctx *ctx, bool map, struct resource **out) {
  struct staging_state *st = ctx->state;
  return resource_entry_find_or_make(st->entry, map ? make_map : make_stage, st, out);
}

static void start(struct kernel_ctx *ctx, bool map, wait_try attempt) {
  struct resource *r;
  shoal_status s = find(ctx, map, &r);
  if (s) {
    ctx_done(ctx, s);
    return;
  }
  wait_start(&((struct area *)r)->waits, r, ctx, attempt);
  resource_unref(r);
}

static int64_t bytes_of(const struct kernel_ctx *ctx, int first) {
  int64_t n = 0;
  for (int i = first; i < ctx->kernel->n_in; i++) n += (int64_t)tensor_bytes(ctx_in(ctx, i));
  return n;
}

/* No room for so many more bytes yet; *s when there never will be. */
static bool full(const struct area *a, int64_t bytes, bool new_tuple, shoal_status *s) {
  if (a->memory_limit && bytes > a->memory_limit) {
    *s = STATUS(SHOAL_RESOURCE_EXHAUSTED,
                "Attempted to insert tensors with combined size of '%" PRId64
                "' bytes into Staging Area with a memory limit "
                "of '%" PRId64 "'.",
                bytes, a->memory_limit);
    return false;
  }
  return (new_tuple && a->capacity && (int64_t)a->ready.n >= a->capacity) ||
         (a->memory_limit && a->bytes + bytes > a->memory_limit);
}

static struct tuple *tuple_new(int64_t key, int n) {
  struct tuple *t = mem_zalloc(1, sizeof *t + (size_t)n * sizeof *t->at);
  t->key = key;
  t->n = t->missing = n;
  return t;
}

static void take_out(tuple_list *of, size_t i) {
  memmove(&of->at[i], &of->at[i + 1], (of->n - i - 1) * sizeof *of->at);
  of->n--;
}

/* ---- first in, first out ---- */

static bool try_stage(struct kernel_ctx *ctx, struct resource *r, shoal_status *s) {
  struct area *a = (struct area *)r;
  int64_t bytes = bytes_of(ctx, 0);
  if (full(a, bytes, true, s)) return false;
  if (*s) return true;
  struct tuple *t = tuple_new(0, ctx->kernel->n_in);
  t->missing = 0;
  t->bytes = bytes;
  for (int i = 0; i < t->n; i++) tensor_ref(&t->at[i], ctx_in(ctx, i));
  a->bytes += bytes;
  vec_push(&a->ready, t);
  return true;
}

static shoal_status give(struct kernel_ctx *ctx, const struct tuple *t) {
  if (t->n != ctx->kernel->n_out) return INVALID("Mismatch stage/unstage: %d vs. %d", t->n, ctx->kernel->n_out);
  for (int i = 0; i < t->n; i++) {
    if ((shoal_dtype)t->at[i].dtype != ctx_out_type(ctx, i))
      return INVALID("Mismatch stage/unstage: component %d is of type %s, not %s", i, dtype_tf_name(t->at[i].dtype),
                     dtype_tf_name(ctx_out_type(ctx, i)));
    struct tensor out;
    tensor_ref(&out, &t->at[i]);
    ctx_set(ctx, i, &out);
  }
  return NULL;
}

static bool try_unstage(struct kernel_ctx *ctx, struct resource *r, shoal_status *s) {
  struct area *a = (struct area *)r;
  if (!a->ready.n) return false;
  struct tuple *t = a->ready.at[0];
  *s = give(ctx, t);
  take_out(&a->ready, 0);
  a->bytes -= t->bytes;
  free_tuple(t);
  return true;
}

static bool try_peek(struct kernel_ctx *ctx, struct resource *r, shoal_status *s) {
  struct area *a = (struct area *)r;
  if (ctx_in(ctx, 0)->n != 1 || *T_DATA(ctx_in(ctx, 0), const int32_t) < 0) {
    *s = INVALID("index must be a scalar that is not negative");
    return true;
  }
  size_t i = (size_t)*T_DATA(ctx_in(ctx, 0), const int32_t);
  if (i >= a->ready.n) return false;
  *s = give(ctx, a->ready.at[i]);
  return true;
}

/* ---- by key ---- */

/* The key is a scalar, the indices rise; how far they may is up to the tuple. */
static shoal_status check_key(const struct kernel_ctx *ctx, int key, int indices) {
  if (key >= 0 && ctx_in(ctx, key)->rank != 0) return INVALID("key must be an int64 scalar");
  TRY(ctx_check_vector(ctx, indices, "indices"));
  const struct tensor *t = ctx_in(ctx, indices);
  for (int64_t i = 0; i < t->n; i++) {
    int64_t at = index_at(t, i);
    if (at < 0) return INVALID("Index '%" PRId64 "' is out of bounds.", at);
    if (i && at <= index_at(t, i - 1)) return INVALID("Indices are not strictly ordered");
  }
  return NULL;
}

static shoal_status check_bound(const struct tensor *indices, int n) {
  if (!indices->n || index_at(indices, indices->n - 1) < n) return NULL;
  return INVALID("Index '%" PRId64 "' is out of bounds '%d'.", index_at(indices, indices->n - 1), n);
}

/* Where the tuple of that key is; of->n: nowhere. */
static size_t place_of(const tuple_list *of, int64_t key) {
  size_t i = 0;
  while (i < of->n && of->at[i]->key != key) i++;
  return i;
}

static void add_ready(struct area *a, struct tuple *t, bool ordered) {
  vec_push(&a->ready, t);
  for (size_t i = a->ready.n - 1; ordered && i > 0 && a->ready.at[i - 1]->key > t->key; i--) {
    a->ready.at[i] = a->ready.at[i - 1];
    a->ready.at[i - 1] = t;
  }
}

static bool try_map_stage(struct kernel_ctx *ctx, struct resource *r, shoal_status *s) {
  struct area *a = (struct area *)r;
  const struct staging_state *st = ctx->state;
  *s = check_key(ctx, 0, 1);
  if (!*s && ctx_in(ctx, 1)->n != ctx->kernel->n_in - 2)
    *s = INVALID("There are %" PRId64 " indices for %d values", ctx_in(ctx, 1)->n, ctx->kernel->n_in - 2);
  if (!*s) *s = check_bound(ctx_in(ctx, 1), st->n);
  if (*s) return true;
  int64_t key = *T_DATA(ctx_in(ctx, 0), const int64_t), bytes = bytes_of(ctx, 2);
  const struct tensor *indices = ctx_in(ctx, 1);
  size_t at = place_of(&a->partial, key);
  struct tuple *t = at < a->partial.n ? a->partial.at[at] : NULL;
  bool completes = (t ? t->missing : st->n) == (int)indices->n;
  if (full(a, bytes, completes, s)) return false;
  for (int64_t i = 0; t && i < indices->n && !*s; i++)
    if (tensor_valid(&t->at[index_at(indices, i)]))
      *s = INVALID("The tensor for index '%" PRId64 "' for key '%" PRId64 "' was already initialized '%d'.",
                   index_at(indices, i), key, st->n);
  if (*s) return true;
  if (!t) {
    t = tuple_new(key, st->n);
    vec_push(&a->partial, t);
    at = a->partial.n - 1;
  }
  for (int64_t i = 0; i < indices->n; i++) tensor_ref(&t->at[index_at(indices, i)], ctx_in(ctx, (int)i + 2));
  t->missing -= (int)indices->n;
  t->bytes += bytes;
  a->bytes += bytes;
  if (!t->missing) {
    take_out(&a->partial, at);
    add_ready(a, t, st->ordered);
  }
  return true;
}

/* Outputs from `first` on are the parts that the indices name; take removes them. */
static shoal_status give_parts(struct kernel_ctx *ctx, struct area *a, size_t at, const struct tensor *indices,
                               int first, bool take) {
  struct tuple *t = a->ready.at[at];
  TRY(check_bound(indices, t->n));
  if (indices->n != ctx->kernel->n_out - first)
    return INVALID("There are %" PRId64 " indices for %d outputs", indices->n, ctx->kernel->n_out - first);
  for (int64_t i = 0; i < indices->n; i++) {
    struct tensor *part = &t->at[index_at(indices, i)], out;
    if (!tensor_valid(part))
      return INVALID("Tensor at index '%" PRId64 "' for key '%" PRId64 "' has already been removed.",
                     index_at(indices, i), t->key);
    if ((shoal_dtype)part->dtype != ctx_out_type(ctx, first + (int)i))
      return INVALID("Part %" PRId64 " is of type %s, not %s", index_at(indices, i), dtype_tf_name(part->dtype),
                     dtype_tf_name(ctx_out_type(ctx, first + (int)i)));
    tensor_ref(&out, part);
    ctx_set(ctx, first + (int)i, &out);
  }
  if (!take) return NULL;
  bool empty = true;
  for (int64_t i = 0; i < indices->n; i++) {
    struct tensor *part = &t->at[index_at(indices, i)];
    int64_t bytes = (int64_t)tensor_bytes(part);
    t->bytes -= bytes;
    a->bytes -= bytes;
    tensor_release(part);
  }
  for (int i = 0; i < t->n; i++) empty &= !tensor_valid(&t->at[i]);
  if (empty) {
    take_out(&a->ready, at);
    free_tuple(t);
  }
  return NULL;
}

static bool try_by_key(struct kernel_ctx *ctx, struct area *a, bool take, shoal_status *s) {
  *s = check_key(ctx, 0, 1);
  if (*s) return true;
  size_t at = place_of(&a->ready, *T_DATA(ctx_in(ctx, 0), const int64_t));
  if (at == a->ready.n) return false;
  *s = give_parts(ctx, a, at, ctx_in(ctx, 1), 0, take);
  return true;
}
static bool try_map_unstage(struct kernel_ctx *ctx, struct resource *r, shoal_status *s) {
  return try_by_key(ctx, (struct area *)r, true, s);
}
static bool try_map_peek(struct kernel_ctx *ctx, struct resource *r, shoal_status *s) {
  return try_by_key(ctx, (struct area *)r, false, s);
}

static bool try_map_any(struct kernel_ctx *ctx, struct resource *r, shoal_status *s) {
  struct area *a = (struct area *)r;
  *s = check_key(ctx, -1, 0);
  if (*s) return true;
  if (!a->ready.n) return false;
  struct tensor *key;
  int64_t k = a->ready.at[0]->key;
  *s = ctx_out_dims(ctx, 0, 0, NULL, &key);
  if (!*s) *T_DATA(key, int64_t) = k;
  if (!*s) *s = give_parts(ctx, a, 0, ctx_in(ctx, 0), 1, true);
  return true;
}

/* ---- asking, clearing ---- */

static bool is_map(const struct kernel_ctx *ctx) { return strstr(ctx->kernel->op->name, "Map") != NULL; }

static shoal_status size_run(struct kernel_ctx *ctx) {
  struct resource *r;
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  TRY(find(ctx, is_map(ctx), &r));
  struct area *a = (struct area *)r;
  bool partial = strstr(ctx->kernel->op->name, "Incomplete") != NULL;
  pthread_mutex_lock(&a->waits.lock);
  *T_DATA(out, int32_t) = (int32_t)(partial ? a->partial.n : a->ready.n);
  pthread_mutex_unlock(&a->waits.lock);
  resource_unref(r);
  return NULL;
}

static shoal_status clear_run(struct kernel_ctx *ctx) {
  struct resource *r;
  TRY(find(ctx, is_map(ctx), &r));
  struct area *a = (struct area *)r;
  pthread_mutex_lock(&a->waits.lock);
  clear(a);
  pthread_mutex_unlock(&a->waits.lock);
  wait_changed(&a->waits);
  resource_unref(r);
  return NULL;
}

static void stage_start(struct kernel_ctx *ctx) { start(ctx, false, try_stage); }
static void unstage_start(struct kernel_ctx *ctx) { start(ctx, false, try_unstage); }
static void peek_start(struct kernel_ctx *ctx) { start(ctx, false, try_peek); }
static void map_stage_start(struct kernel_ctx *ctx) { start(ctx, true, try_map_stage); }
static void map_unstage_start(struct kernel_ctx *ctx) { start(ctx, true, try_map_unstage); }
static void map_peek_start(struct kernel_ctx *ctx) { start(ctx, true, try_map_peek); }
static void map_any_start(struct kernel_ctx *ctx) { start(ctx, true, try_map_any); }

/* ---- rows ---- */

#define KERNEL(id, init_, ...)                                                                                       \
  static const struct kernel_def id[] = {                                                                            \
      {.device = "CPU", .state_size = sizeof(struct staging_state), .init = init_, .release = release, __VA_ARGS__}, \
      {0}}
KERNEL(stage_kernels, stage_init, .start = stage_start);
KERNEL(unstage_kernels, stage_init, .start = unstage_start);
KERNEL(peek_kernels, stage_init, .start = peek_start);
KERNEL(stage_size_kernels, stage_init, .run = size_run);
KERNEL(stage_clear_kernels, stage_init, .run = clear_run);
KERNEL(map_stage_kernels, map_init, .start = map_stage_start);
KERNEL(map_unstage_kernels, map_init, .start = map_unstage_start);
KERNEL(map_peek_kernels, map_init, .start = map_peek_start);
KERNEL(map_any_kernels, map_init, .start = map_any_start);
KERNEL(map_size_kernels, map_init, .run = size_run);
KERNEL(map_clear_kernels, map_init, .run = clear_run);

#define BOUNDS "capacity: int >= 0 = 0; memory_limit: int >= 0 = 0; "
#define PLACE "; container: string = ''; shared_name: string = ''"
#define SOME BOUNDS "dtypes: list(type) >= 1" PLACE
#define ANY BOUNDS "dtypes: list(type)" PLACE
#define ROW(op, in_, out_, attrs_, kernels_) \
  { .name = op, .in = in_, .out = out_, .attrs = attrs_, .flags = OP_STATEFUL, .kernels = kernels_ }
#define MAP(prefix)                                                                                      \
  ROW(prefix "Stage", "key: int64, indices: int32, values: fake_dtypes", NULL,                           \
      BOUNDS "dtypes: list(type); fake_dtypes: list(type) >= 1" PLACE, map_stage_kernels),               \
      ROW(prefix "Unstage", "key: int64, indices: int32", "values: dtypes", SOME, map_unstage_kernels),  \
      ROW(prefix "UnstageNoKey", "indices: int32", "key: int64, values: dtypes", SOME, map_any_kernels), \
      ROW(prefix "Peek", "key: int64, indices: int32", "values: dtypes", SOME, map_peek_kernels),        \
      ROW(prefix "Size", NULL, "size: int32", ANY, map_size_kernels),                                    \
      ROW(prefix "IncompleteSize", NULL, "size: int32", ANY, map_size_kernels),                          \
      ROW(prefix "Clear", NULL, NULL, ANY, map_clear_kernels)
static const struct op_row rows[] = {
    ROW("Stage", "values: dtypes", NULL, SOME, stage_kernels),
    ROW("Unstage", NULL, "values: dtypes", SOME, unstage_kernels),
    ROW("StagePeek", "index: int32", "values: dtypes", SOME, peek_kernels),
    ROW("StageSize", NULL, "size: int32", ANY, stage_size_kernels),
    ROW("StageClear", NULL, NULL, ANY, stage_clear_kernels),
    MAP("Map"),
    MAP("OrderedMap"),
};
OP_FAMILY(staging, rows);
