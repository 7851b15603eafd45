/* ParseExample in its three generations: of a batch with keys as inputs, of a batch or one example with ragged
 * features too, and of one example with keys as attributes. */
#include <inttypes.h>
#include <string.h>

#include "graph/shape_fn.h"
#include "ops/data/parsing_columns.h"

typedef VEC(shoal_dtype) type_list;
typedef VEC(struct attr) key_list; /* owned copies of string attributes */

struct parse_state {
  int n_sparse, n_dense, n_ragged;
  type_list sparse_types, dense_types, ragged_types, split_types;
  VEC(struct shape) shapes;
  key_list sparse_keys, dense_keys; /* ParseSingleExample */
};

static shoal_status read_types(const struct shoal_node *n, const char *name, type_list *out) {
  const struct attr *a;
  if (!node_attr(n, name)) return NULL;
  TRY(node_get_list(n, name, ATTR_TYPE, &a));
  for (size_t i = 0; i < a->list.n; i++) vec_push(out, (shoal_dtype)a->list.at[i].type);
  return NULL;
}

static shoal_status read_keys(const struct shoal_node *n, const char *name, key_list *out) {
  const struct attr *a = node_attr(n, name);
  if (!a || a->kind != ATTR_LIST) return NULL;
  TRY(node_get_list(n, name, ATTR_STRING, &a));
  for (size_t i = 0; i < a->list.n; i++) vec_push(out, attr_copy(&a->list.at[i]));
  return NULL;
}

static shoal_status init(struct kernel_init *ki, void *state) {
  struct parse_state *s = state;
  const struct attr *shapes;
  TRY(read_types(ki->node, "sparse_types", &s->sparse_types));
  TRY(read_types(ki->node, "Tdense", &s->dense_types));
  TRY(read_types(ki->node, "ragged_value_types", &s->ragged_types));
  TRY(read_types(ki->node, "ragged_split_types", &s->split_types));
  TRY(read_keys(ki->node, "sparse_keys", &s->sparse_keys));
  TRY(read_keys(ki->node, "dense_keys", &s->dense_keys));
  TRY(node_get_list(ki->node, "dense_shapes", ATTR_SHAPE, &shapes));
  for (size_t i = 0; i < shapes->list.n; i++) vec_push(&s->shapes, *shapes->list.at[i].shape);
  s->n_sparse = (int)s->sparse_types.n;
  s->n_dense = (int)s->dense_types.n;
  s->n_ragged = (int)s->ragged_types.n;
  if (s->shapes.n != s->dense_types.n) return INVALID("len(dense_keys) != len(dense_shapes)");
  if (s->split_types.n != s->ragged_types.n) return INVALID("len(ragged_value_types) != len(ragged_split_types)");
  int64_t n;
  const char *count = node_attr(ki->node, "Nsparse") ? "Nsparse" : "num_sparse";
  TRY(node_get_int(ki->node, count, &n));
  if (n != s->n_sparse) return INVALID("len(sparse_keys) != len(sparse_types)");
  if (node_attr(ki->node, "Ndense")) {
    TRY(node_get_int(ki->node, "Ndense", &n));
    if (n != s->n_dense) return INVALID("len(dense_keys) != len(dense_types)");
  }
  return NULL;
}

static void release(void *state) {
  struct parse_state *s = state;
  for (size_t i = 0; i < s->sparse_keys.n; i++) attr_release(&s->sparse_keys.at[i]);
  for (size_t i = 0; i < s->dense_keys.n; i++) attr_release(&s->dense_keys.at[i]);
  vec_release(&s->sparse_keys);
  vec_release(&s->dense_keys);
  vec_release(&s->sparse_types);
  vec_release(&s->dense_types);
  vec_release(&s->ragged_types);
  vec_release(&s->split_types);
  vec_release(&s->shapes);
}

/* ---- columns: sparse ones first, then dense, then ragged ---- */

static shoal_status add(struct columns *c, const struct parse_state *s, int kind, int i, const char *key, size_t n,
                        const struct tensor *dflt) {
  if (kind == 0) return columns_add(c, key, n, s->sparse_types.at[i], NULL, NULL);
  if (kind == 1) return columns_add(c, key, n, s->dense_types.at[i], &s->shapes.at[i], dflt);
  TRY(columns_add(c, key, n, s->ragged_types.at[i], NULL, NULL));
  vec_last(&c->at).splits = s->split_types.at[i];
  return NULL;
}

/* ParseExample: each key is an input of its own. */
static shoal_status columns_v1(struct kernel_ctx *ctx, struct columns *c) {
  const struct parse_state *s = ctx->state;
  for (int i = 0; i < s->n_sparse + s->n_dense; i++) {
    bool is_dense = i >= s->n_sparse;
    const struct tensor *key = ctx_in(ctx, 2 + i);
    if (key->n != 1) return INVALID("Expected %s key %d to be a scalar", is_dense ? "dense" : "sparse", i);
    const struct tensor *dflt = is_dense ? ctx_in(ctx, 2 + i + s->n_dense) : NULL;
    TRY(add(c, s, is_dense, is_dense ? i - s->n_sparse : i, str_data(string_at(key, 0)), string_at(key, 0)->size,
            dflt));
  }
  return NULL;
}

/* ParseExampleV2: keys are vectors. */
static shoal_status columns_v2(struct kernel_ctx *ctx, struct columns *c) {
  const struct parse_state *s = ctx->state;
  static const char *const names[] = {"sparse_keys", "dense_keys", "ragged_keys"};
  int counts[] = {s->n_sparse, s->n_dense, s->n_ragged};
  for (int kind = 0; kind < 3; kind++) {
    const struct tensor *keys = ctx_in(ctx, 2 + kind);
    if (keys->rank != 1 || keys->n != counts[kind])
      return INVALID("Expected len(%s) == %d, but got %" PRId64, names[kind], counts[kind], keys->n);
    for (int i = 0; i < counts[kind]; i++)
      TRY(add(c, s, kind, i, str_data(string_at(keys, i)), string_at(keys, i)->size,
              kind == 1 ? ctx_in(ctx, 5 + i) : NULL));
  }
  return NULL;
}

static shoal_status columns_single(struct kernel_ctx *ctx, struct columns *c) {
  const struct parse_state *s = ctx->state;
  if ((int)s->sparse_keys.n != s->n_sparse) return INVALID("len(sparse_keys) != len(sparse_types)");
  if ((int)s->dense_keys.n != s->n_dense) return INVALID("len(dense_keys) != len(dense_types)");
  for (int i = 0; i < s->n_sparse; i++)
    TRY(add(c, s, 0, i, s->sparse_keys.at[i].s.data, s->sparse_keys.at[i].s.n, NULL));
  for (int i = 0; i < s->n_dense; i++)
    TRY(add(c, s, 1, i, s->dense_keys.at[i].s.data, s->dense_keys.at[i].s.n, ctx_in(ctx, 1 + i)));
  return NULL;
}

/* ---- running ---- */

static shoal_status emit(struct kernel_ctx *ctx, const struct example_batch *b) {
  const struct parse_state *s = ctx->state;
  int ns = s->n_sparse, nd = s->n_dense, nr = s->n_ragged;
  struct pool *pool = ctx_pool(ctx);
  struct tensor *out = ctx->out, *dense = out + 3 * ns, *ragged = dense + nd;
  for (int i = 0; i < ns; i++) TRY(column_sparse(pool, b, (size_t)i, &out[i], &out[ns + i], &out[2 * ns + i]));
  for (int i = 0; i < nd; i++) TRY(column_dense(pool, b, (size_t)(ns + i), &dense[i]));
  for (int i = 0; i < nr; i++) TRY(column_ragged(pool, b, (size_t)(ns + nd + i), &ragged[i], &ragged[nr + i]));
  return NULL;
}

static shoal_status parse(struct kernel_ctx *ctx, const struct columns *columns, bool scalar,
                          const struct tensor *names) {
  const struct tensor *serialized = ctx_in(ctx, 0);
  struct example_batch b = {
      .columns = columns, .n = serialized->n, .scalar = scalar, .names = names && names->n ? names : NULL};
  shoal_status s = batch_scan(ctx_pool(ctx), serialized, &b);
  if (!s) s = emit(ctx, &b);
  free(b.slots);
  return s;
}

/* Names, where there are any, are one for each example; of the first op's a vector always. */
static shoal_status check_names(const struct kernel_ctx *ctx, bool v2) {
  const struct tensor *serialized = ctx_in(ctx, 0), *names = ctx_in(ctx, 1);
  if (!names->n) return NULL;
  struct shape n = tensor_shape(names), s = tensor_shape(serialized);
  if (v2 && !shape_equal(&n, &s))
    return INVALID("Expected names have the same shape as serialized: name.shape=%s, serialized.shape=%s",
                   shape_str(&n), shape_str(&s));
  if (!v2 && names->rank != 1) return INVALID("Expected names to be a vector, got shape: %s", shape_str(&n));
  if (names->n != serialized->n)
    return INVALID("Expected len(names) == len(serialized), but got: %" PRId64 " vs. %" PRId64, names->n,
                   serialized->n);
  return NULL;
}

static shoal_status run_with(struct kernel_ctx *ctx, shoal_status (*make)(struct kernel_ctx *, struct columns *),
                             bool scalar, const struct tensor *names) {
  struct columns c = {0};
  shoal_status s = make(ctx, &c);
  if (!s) s = parse(ctx, &c, scalar, names);
  columns_release(&c);
  return s;
}

static shoal_status run_v1(struct kernel_ctx *ctx) {
  if (ctx_in(ctx, 0)->rank != 1) {
    struct shape s = tensor_shape(ctx_in(ctx, 0));
    return INVALID("Expected serialized to be a vector, got shape: %s", shape_str(&s));
  }
  TRY(check_names(ctx, false));
  return run_with(ctx, columns_v1, false, ctx_in(ctx, 1));
}

static shoal_status run_v2(struct kernel_ctx *ctx) {
  if (ctx_in(ctx, 0)->rank > 1) {
    struct shape s = tensor_shape(ctx_in(ctx, 0));
    return INVALID("Expected serialized to be a scalar or vector, got shape: %s", shape_str(&s));
  }
  TRY(check_names(ctx, true));
  return run_with(ctx, columns_v2, ctx_in(ctx, 0)->rank == 0, ctx_in(ctx, 1));
}

static shoal_status run_single(struct kernel_ctx *ctx) {
  if (ctx_in(ctx, 0)->rank != 0) {
    struct shape s = tensor_shape(ctx_in(ctx, 0));
    return INVALID("Expected serialized to be a scalar, got shape: %s", shape_str(&s));
  }
  return run_with(ctx, columns_single, true, NULL);
}

/* ---- shapes ---- */

static shoal_status shapes_of(struct shape_ctx *c, int ns, bool batched, int64_t n) {
  const struct attr *shapes;
  TRY(node_get_list(c->node, "dense_shapes", ATTR_SHAPE, &shapes));
  int nd = (int)shapes->list.n, rank = batched ? 2 : 1;
  if (ns < 0 || ns > c->node->n_out / 3) return INVALID("len(sparse_keys) != len(sparse_types)");
  for (int i = 0; i < ns; i++) {
    c->out[i] = shape_matrix(-1, rank);
    c->out[ns + i] = shape_vector(-1);
    c->out[2 * ns + i] = shape_vector(rank);
  }
  for (int i = 0; i < nd && 3 * ns + i < c->node->n_out; i++) {
    const struct shape *s = shapes->list.at[i].shape;
    if (s->rank < 0 || s->rank == SHOAL_MAX_RANK) continue;
    struct shape *out = &c->out[3 * ns + i];
    *out = (struct shape){0};
    if (batched) out->dims[out->rank++] = n;
    for (int d = 0; d < s->rank; d++) out->dims[out->rank++] = s->dims[d];
  }
  for (int i = 3 * ns + nd; i < c->node->n_out; i++) c->out[i] = shape_vector(-1);
  return NULL;
}

static shoal_status shape_v1(struct shape_ctx *c) {
  struct shape s;
  int64_t ns;
  TRY(shape_in_rank(c, 0, 1, &s));
  TRY(node_get_int(c->node, "Nsparse", &ns));
  return shapes_of(c, (int)ns, true, s.dims[0]);
}

static shoal_status shape_v2(struct shape_ctx *c) {
  int64_t ns;
  TRY(node_get_int(c->node, "num_sparse", &ns));
  if (c->in[0].rank < 0) return NULL;
  return shapes_of(c, (int)ns, c->in[0].rank > 0, c->in[0].rank > 0 ? c->in[0].dims[0] : 0);
}

static shoal_status shape_single(struct shape_ctx *c) {
  int64_t ns;
  TRY(node_get_int(c->node, "num_sparse", &ns));
  return shapes_of(c, (int)ns, false, 0);
}

/* ---- rows ---- */

#define KERNEL(fn)                             \
  (const struct kernel_def[]) {                \
    {.device = "CPU",                          \
     .flags = KERNEL_EXPENSIVE,                \
     .state_size = sizeof(struct parse_state), \
     .init = init,                             \
     .release = release,                       \
     .run = fn},                               \
    {                                          \
      0                                        \
    }                                          \
  }
#define LIST "list({float, int64, string}) >= 0"

static const struct op_row rows[] = {
    {.name = "ParseExample",
     .in = "serialized: string, names: string, sparse_keys: Nsparse * string, dense_keys: Ndense * string, "
           "dense_defaults: Tdense",
     .out = "sparse_indices: Nsparse * int64, sparse_values: sparse_types, sparse_shapes: Nsparse * int64, "
            "dense_values: Tdense",
     .attrs = "Nsparse: int >= 0; Ndense: int >= 0; sparse_types: " LIST "; Tdense: " LIST
              "; dense_shapes: list(shape) >= 0",
     .flags = OP_NO_GRADIENT,
     .shape = shape_v1,
     .kernels = KERNEL(run_v1)},
    {.name = "ParseExampleV2",
     .in = "serialized: string, names: string, sparse_keys: string, dense_keys: string, ragged_keys: string, "
           "dense_defaults: Tdense",
     .out = "sparse_indices: num_sparse * int64, sparse_values: sparse_types, sparse_shapes: num_sparse * int64, "
            "dense_values: Tdense, ragged_values: ragged_value_types, ragged_row_splits: ragged_split_types",
     .attrs = "Tdense: " LIST "; num_sparse: int >= 0; sparse_types: " LIST "; ragged_value_types: " LIST
              "; ragged_split_types: list({int32, int64}) >= 0; dense_shapes: list(shape) >= 0",
     .flags = OP_NO_GRADIENT,
     .shape = shape_v2,
     .kernels = KERNEL(run_v2)},
    {.name = "ParseSingleExample",
     .in = "serialized: string, dense_defaults: Tdense",
     .out = "sparse_indices: num_sparse * int64, sparse_values: sparse_types, sparse_shapes: num_sparse * int64, "
            "dense_values: Tdense",
     .attrs = "num_sparse: int >= 0; sparse_keys: list(string) >= 0; dense_keys: list(string) >= 0; "
              "sparse_types: " LIST "; Tdense: " LIST "; dense_shapes: list(shape) >= 0",
     .flags = OP_NO_GRADIENT,
     .shape = shape_single,
     .kernels = KERNEL(run_single)},
};
OP_FAMILY(parsing, rows);
