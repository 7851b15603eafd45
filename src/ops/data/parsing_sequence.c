/* ParseSequenceExample: of a batch with keys as attributes, of a batch with keys as inputs and ragged features, and of
 * one example with keys as inputs. */
#include <inttypes.h>
#include <string.h>

#include "graph/shape_fn.h"
#include "ops/data/parsing_columns.h"

enum generation { BATCH, BATCH_V2, SINGLE };
enum group { CONTEXT_SPARSE, CONTEXT_DENSE, CONTEXT_RAGGED, LIST_SPARSE, LIST_DENSE, LIST_RAGGED, GROUPS };

/* Names of attributes and inputs by group; NULL: it has none. */
static const struct {
  const char *keys, *types, *splits, *shapes, *count;
} groups[GROUPS] = {
    {"context_sparse_keys", "context_sparse_types", NULL, NULL, "Ncontext_sparse"},
    {"context_dense_keys", "Tcontext_dense", NULL, "context_dense_shapes", "Ncontext_dense"},
    {"context_ragged_keys", "context_ragged_value_types", "context_ragged_split_types", NULL, NULL},
    {"feature_list_sparse_keys", "feature_list_sparse_types", NULL, NULL, "Nfeature_list_sparse"},
    {"feature_list_dense_keys", "feature_list_dense_types", NULL, "feature_list_dense_shapes", "Nfeature_list_dense"},
    {"feature_list_ragged_keys", "feature_list_ragged_value_types", "feature_list_ragged_split_types", NULL, NULL},
};

typedef VEC(struct attr) attr_vec;

struct sequence_state {
  enum generation generation;
  attr_vec types[GROUPS], splits[GROUPS], shapes[GROUPS], keys[GROUPS], assumed_empty; /* owned copies */
};

static shoal_status copy_list(const struct shoal_node *n, const char *name, enum attr_kind of, attr_vec *out) {
  const struct attr *a = name ? node_attr(n, name) : NULL;
  if (!a) return NULL;
  TRY(node_get_list(n, name, of, &a));
  for (size_t i = 0; i < a->list.n; i++) vec_push(out, attr_copy(&a->list.at[i]));
  return NULL;
}

/* How many inputs and outputs there are goes by a number in places, and by types in others. */
static shoal_status check_count(const struct shoal_node *n, int g, size_t types) {
  int64_t count = (int64_t)types;
  if (groups[g].count && node_attr(n, groups[g].count)) TRY(node_get_int(n, groups[g].count, &count));
  if (count == (int64_t)types) return NULL;
  return INVALID("%s (%" PRId64 ") must match the size of %s (%zu)", groups[g].count, count, groups[g].types, types);
}

static shoal_status init_as(struct kernel_init *ki, struct sequence_state *s, enum generation generation) {
  s->generation = generation;
  for (int g = 0; g < GROUPS; g++) {
    TRY(copy_list(ki->node, groups[g].types, ATTR_TYPE, &s->types[g]));
    TRY(copy_list(ki->node, groups[g].splits, ATTR_TYPE, &s->splits[g]));
    TRY(copy_list(ki->node, groups[g].shapes, ATTR_SHAPE, &s->shapes[g]));
    if (generation == BATCH) TRY(copy_list(ki->node, groups[g].keys, ATTR_STRING, &s->keys[g]));
    TRY(check_count(ki->node, g, s->types[g].n));
    if (groups[g].shapes && s->shapes[g].n != s->types[g].n)
      return INVALID("len(%s) != len(%s)", groups[g].types, groups[g].shapes);
    if (groups[g].splits && s->splits[g].n != s->types[g].n)
      return INVALID("len(%s) != len(%s)", groups[g].types, groups[g].splits);
    if (generation == BATCH && s->keys[g].n != s->types[g].n)
      return INVALID("The size of %s (%zu) must match the size of %s (%zu)", groups[g].keys, s->keys[g].n,
                     groups[g].types, s->types[g].n);
  }
  if (generation == BATCH)
    TRY(copy_list(ki->node, "feature_list_dense_missing_assumed_empty", ATTR_STRING, &s->assumed_empty));
  return NULL;
}
static shoal_status init_batch(struct kernel_init *ki, void *state) { return init_as(ki, state, BATCH); }
static shoal_status init_v2(struct kernel_init *ki, void *state) { return init_as(ki, state, BATCH_V2); }
static shoal_status init_single(struct kernel_init *ki, void *state) { return init_as(ki, state, SINGLE); }

static void free_list(attr_vec *v) {
  for (size_t i = 0; i < v->n; i++) attr_release(&v->at[i]);
  vec_release(v);
}

static void release(void *state) {
  struct sequence_state *s = state;
  for (int g = 0; g < GROUPS; g++) {
    free_list(&s->types[g]);
    free_list(&s->splits[g]);
    free_list(&s->shapes[g]);
    free_list(&s->keys[g]);
  }
  free_list(&s->assumed_empty);
}

/* ---- inputs by generation ---- */

/* Key i of a group. */
static shoal_status key_at(struct kernel_ctx *ctx, int g, int i, const char **key, size_t *n) {
  const struct sequence_state *s = ctx->state;
  if (s->generation == BATCH) {
    *key = s->keys[g].at[i].s.data;
    *n = s->keys[g].at[i].s.n;
    return NULL;
  }
  const struct tensor *t;
  int64_t at = i;
  if (s->generation == BATCH_V2) {
    t = ctx_in(ctx, 2 + g);
    if (t->n != (int64_t)s->types[g].n)
      return INVALID("Expected len(%s) == %zu, but got %" PRId64, groups[g].keys, s->types[g].n, t->n);
  } else { /* one input a key: context sparse and dense, then lists sparse and dense */
    static const int order[] = {CONTEXT_SPARSE, CONTEXT_DENSE, LIST_SPARSE, LIST_DENSE};
    int first = 2;
    for (int k = 0; order[k] != g; k++) first += (int)s->types[order[k]].n;
    t = ctx_in(ctx, first + i);
    at = 0;
    if (t->rank != 0) {
      struct shape shape = tensor_shape(t);
      return INVALID("Expected %s[%d] to be a scalar, got shape: %s", groups[g].keys, i, shape_str(&shape));
    }
  }
  *key = str_data(string_at(t, at));
  *n = string_at(t, at)->size;
  return NULL;
}

static const struct tensor *context_default(struct kernel_ctx *ctx, int i) {
  const struct sequence_state *s = ctx->state;
  if (s->generation == BATCH) return ctx_in(ctx, 2 + i);
  if (s->generation == BATCH_V2) return ctx_in(ctx, 9 + i);
  int first = 2;
  for (int g = 0; g < GROUPS; g++) first += (int)s->types[g].n;
  return ctx_in(ctx, first + i);
}

static bool in_tensor(const struct tensor *t, const char *key, size_t n) {
  for (int64_t i = 0; i < t->n; i++)
    if (string_at(t, i)->size == n && memcmp(str_data(string_at(t, i)), key, n) == 0) return true;
  return false;
}

static bool assumed_empty(struct kernel_ctx *ctx, int i, const char *key, size_t n) {
  const struct sequence_state *s = ctx->state;
  if (s->generation == BATCH_V2) return i < ctx_in(ctx, 8)->n && T_DATA(ctx_in(ctx, 8), bool)[i];
  if (s->generation == SINGLE) return in_tensor(ctx_in(ctx, 1), key, n);
  for (size_t k = 0; k < s->assumed_empty.n; k++)
    if (s->assumed_empty.at[k].s.n == n && memcmp(s->assumed_empty.at[k].s.data, key, n) == 0) return true;
  return false;
}

static shoal_status add_columns(struct kernel_ctx *ctx, struct columns *context, struct columns *lists) {
  const struct sequence_state *s = ctx->state;
  for (int g = 0; g < GROUPS; g++) {
    struct columns *c = g < LIST_SPARSE ? context : lists;
    for (int i = 0; i < (int)s->types[g].n; i++) {
      const char *key;
      size_t n;
      TRY(key_at(ctx, g, i, &key, &n));
      TRY(columns_add(c, key, n, (shoal_dtype)s->types[g].at[i].type,
                      groups[g].shapes ? s->shapes[g].at[i].shape : NULL,
                      g == CONTEXT_DENSE ? context_default(ctx, i) : NULL));
      if (groups[g].splits) vec_last(&c->at).splits = (shoal_dtype)s->splits[g].at[i].type;
      if (g == LIST_DENSE) vec_last(&c->at).missing_ok = assumed_empty(ctx, i, key, n);
    }
  }
  return NULL;
}

/* ---- running ---- */

static shoal_status emit(struct kernel_ctx *ctx, const struct example_batch *context,
                         const struct example_batch *lists) {
  const struct sequence_state *s = ctx->state;
  int n[GROUPS], out = 0;
  for (int g = 0; g < GROUPS; g++) n[g] = (int)s->types[g].n;
  size_t c = 0;
  for (int i = 0; i < n[CONTEXT_SPARSE]; i++)
    TRY(column_sparse(ctx_pool(ctx), context, c++, &ctx->out[i], &ctx->out[n[CONTEXT_SPARSE] + i],
                      &ctx->out[2 * n[CONTEXT_SPARSE] + i]));
  out = 3 * n[CONTEXT_SPARSE];
  for (int i = 0; i < n[CONTEXT_DENSE]; i++) TRY(column_dense(ctx_pool(ctx), context, c++, &ctx->out[out + i]));
  out += n[CONTEXT_DENSE];
  for (int i = 0; i < n[CONTEXT_RAGGED]; i++)
    TRY(column_ragged(ctx_pool(ctx), context, c++, &ctx->out[out + i], &ctx->out[out + n[CONTEXT_RAGGED] + i]));
  out += 2 * n[CONTEXT_RAGGED];
  c = 0;
  for (int i = 0; i < n[LIST_SPARSE]; i++)
    TRY(column_list_sparse(ctx, out + i, out + n[LIST_SPARSE] + i, out + 2 * n[LIST_SPARSE] + i, lists, c++));
  out += 3 * n[LIST_SPARSE];
  for (int i = 0; i < n[LIST_DENSE]; i++)
    TRY(column_list_dense(ctx, out + i, s->generation == SINGLE ? -1 : out + n[LIST_DENSE] + i, lists, c++));
  out += (s->generation == SINGLE ? 1 : 2) * n[LIST_DENSE];
  int nr = n[LIST_RAGGED];
  for (int i = 0; i < nr; i++) TRY(column_list_ragged(ctx, out + i, out + nr + i, out + 2 * nr + i, lists, c++));
  return NULL;
}

static shoal_status parse(struct kernel_ctx *ctx, const struct columns *context_columns,
                          const struct columns *list_columns, bool scalar, const struct tensor *names) {
  const struct tensor *serialized = ctx_in(ctx, 0);
  struct example_batch context = {.columns = context_columns, .n = serialized->n, .scalar = scalar};
  struct example_batch lists = {.columns = list_columns, .n = serialized->n, .scalar = scalar};
  context.names = lists.names = names->n ? names : NULL;
  size_t n = (size_t)serialized->n, nc = context_columns->at.n, nl = list_columns->at.n;
  context.slots = mem_try_zalloc(n * nc + 1, sizeof *context.slots);
  lists.slots = mem_try_zalloc(n * nl + 1, sizeof *lists.slots);
  shoal_status s = NULL;
  if (!context.slots || !lists.slots) s = STATUS(SHOAL_RESOURCE_EXHAUSTED, "no memory to parse %zu examples", n);
  for (size_t i = 0; !s && i < n; i++) {
    const struct str *m = string_at(serialized, (int64_t)i);
    if (sequence_example_scan(str_data(m), m->size, &context_columns->index, context.slots + i * nc,
                              &list_columns->index, lists.slots + i * nl))
      continue;
    int name_n;
    const char *name = batch_name(&context, (int64_t)i, &name_n);
    s = INVALID("Invalid protocol message input, example id: %.*s", name_n, name);
  }
  if (!s) s = emit(ctx, &context, &lists);
  free(context.slots);
  free(lists.slots);
  return s;
}

static shoal_status run_with(struct kernel_ctx *ctx, bool scalar, const struct tensor *names) {
  struct columns context = {0}, lists = {0};
  shoal_status s = add_columns(ctx, &context, &lists);
  if (!s) s = parse(ctx, &context, &lists, scalar, names);
  columns_release(&context);
  columns_release(&lists);
  return s;
}

static shoal_status run_batch(struct kernel_ctx *ctx) {
  const struct sequence_state *st = ctx->state;
  const struct tensor *serialized = ctx_in(ctx, 0), *names = ctx_in(ctx, 1);
  struct shape s = tensor_shape(serialized);
  bool scalar = serialized->rank == 0 && st->generation == BATCH_V2;
  if (serialized->rank != 1 && !scalar)
    return INVALID("Expected serialized to be a vector, got shape: %s", shape_str(&s));
  if (names->n && names->n != serialized->n)
    return INVALID("Expected len(debug_name) == len(serialized), but got: %" PRId64 " vs. %" PRId64, names->n,
                   serialized->n);
  return run_with(ctx, scalar, names);
}

static shoal_status run_single(struct kernel_ctx *ctx) {
  struct shape s = tensor_shape(ctx_in(ctx, 0));
  if (s.rank != 0) return INVALID("Expected serialized to be a scalar, got shape: %s", shape_str(&s));
  const struct tensor *name = ctx_in(ctx, ctx->kernel->n_in - 1), *empty = ctx_in(ctx, 1);
  if (empty->rank != 1) {
    s = tensor_shape(empty);
    return INVALID("Expected feature_list_dense_missing_assumed_empty to be a vector, got shape: %s", shape_str(&s));
  }
  return run_with(ctx, true, name);
}

/* ---- rows ---- */

#define KERNEL(init_, fn)                         \
  (const struct kernel_def[]) {                   \
    {.device = "CPU",                             \
     .flags = KERNEL_EXPENSIVE,                   \
     .state_size = sizeof(struct sequence_state), \
     .init = init_,                               \
     .release = release,                          \
     .run = fn},                                  \
    {                                             \
      0                                           \
    }                                             \
  }
#define LIST "list({float, int64, string}) >= 0 = []"
#define SHAPES "list(shape) >= 0 = []"
#define SPLITS "list({int32, int64}) >= 0 = []"
#define COUNT ": int >= 0 = 0; "
#define SPARSE(p)                                                                                               \
  p "_sparse_indices: N" p "_sparse * int64, " p "_sparse_values: " p "_sparse_types, " p "_sparse_shapes: N" p \
    "_sparse * int64"
#define TYPES                                                                                 \
  "context_sparse_types: " LIST "; Tcontext_dense: " LIST "; feature_list_dense_types: " LIST \
  "; context_dense_shapes: " SHAPES "; feature_list_sparse_types: " LIST "; feature_list_dense_shapes: " SHAPES

static const struct op_row rows[] = {
    {.name = "ParseSequenceExample",
     .in = "serialized: string, debug_name: string, context_dense_defaults: Tcontext_dense",
     .out = SPARSE("context") ", context_dense_values: Tcontext_dense, " SPARSE(
         "feature_list") ", feature_list_dense_values: feature_list_dense_types, "
                         "feature_list_dense_lengths: Nfeature_list_dense * int64",
     .attrs = "feature_list_dense_missing_assumed_empty: list(string) >= 0; context_sparse_keys: list(string) >= 0; "
              "context_dense_keys: list(string) >= 0; feature_list_sparse_keys: list(string) >= 0; "
              "feature_list_dense_keys: list(string) >= 0; Ncontext_sparse" COUNT "Ncontext_dense" COUNT
              "Nfeature_list_sparse" COUNT "Nfeature_list_dense" COUNT TYPES,
     .flags = OP_NO_GRADIENT,
     .kernels = KERNEL(init_batch, run_batch)},
    {.name = "ParseSequenceExampleV2",
     .in = "serialized: string, debug_name: string, context_sparse_keys: string, context_dense_keys: string, "
           "context_ragged_keys: string, feature_list_sparse_keys: string, feature_list_dense_keys: string, "
           "feature_list_ragged_keys: string, feature_list_dense_missing_assumed_empty: bool, "
           "context_dense_defaults: Tcontext_dense",
     .out = SPARSE("context") ", context_dense_values: Tcontext_dense, "
                              "context_ragged_values: context_ragged_value_types, context_ragged_row_splits: "
                              "context_ragged_split_types, " SPARSE(
                                  "feature_list") ", feature_list_dense_values: feature_list_dense_types, "
                                                  "feature_list_dense_lengths: Nfeature_list_dense * int64, "
                                                  "feature_list_ragged_values: feature_list_ragged_value_types, "
                                                  "feature_list_ragged_outer_splits: feature_list_ragged_split_types, "
                                                  "feature_list_ragged_inner_splits: feature_list_ragged_split_types",
     .attrs =
         "Ncontext_sparse" COUNT "Tcontext_dense: " LIST "; context_sparse_types: " LIST
         "; context_ragged_value_types: " LIST "; context_ragged_split_types: " SPLITS "; context_dense_shapes: " SHAPES
         "; Nfeature_list_sparse" COUNT "Nfeature_list_dense" COUNT "feature_list_dense_types: " LIST
         "; feature_list_sparse_types: " LIST "; feature_list_ragged_value_types: " LIST
         "; feature_list_ragged_split_types: " SPLITS "; feature_list_dense_shapes: " SHAPES,
     .flags = OP_NO_GRADIENT,
     .kernels = KERNEL(init_v2, run_batch)},
    {.name = "ParseSingleSequenceExample",
     .in = "serialized: string, feature_list_dense_missing_assumed_empty: string, "
           "context_sparse_keys: Ncontext_sparse * string, context_dense_keys: Ncontext_dense * string, "
           "feature_list_sparse_keys: Nfeature_list_sparse * string, "
           "feature_list_dense_keys: Nfeature_list_dense * string, context_dense_defaults: Tcontext_dense, "
           "debug_name: string",
     .out = SPARSE("context") ", context_dense_values: Tcontext_dense, " SPARSE(
         "feature_list") ", feature_list_dense_values: feature_list_dense_types",
     .attrs =
         "Ncontext_sparse" COUNT "Ncontext_dense" COUNT "Nfeature_list_sparse" COUNT "Nfeature_list_dense" COUNT TYPES,
     .flags = OP_NO_GRADIENT,
     .kernels = KERNEL(init_single, run_single)},
};
OP_FAMILY(parsing_sequence, rows);
