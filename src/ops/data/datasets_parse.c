/* ParseExampleDataset: batches of serialized Examples in, their features out, one component for each key.
 *
 * Components stand in the order of their keys, whatever the order of the attributes: dense features as they are, a
 * sparse one as three variants that hold indices, values and shape, a ragged one as a variant of splits and values.
 * The parsing is that of ParseExample (parsing_columns.h). Several elements at once, as num_parallel_calls asks for,
 * would change nothing in what comes out: the examples of one element are shared out instead. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ops/data/dataset_state.h"
#include "ops/data/parsing_columns.h"
#include "ops/sparse/ragged_variant.h"
#include "tensor/tensor_variant.h"

enum { DENSE, SPARSE, RAGGED, KINDS };
static const char *const key_attrs[] = {"dense_keys", "sparse_keys", "ragged_keys"};
static const char *const type_attrs[] = {"Tdense", "sparse_types", "ragged_value_types"};

struct parse_key {
  char *key;
  size_t n; /* of its bytes */
  int kind;
  shoal_dtype type, splits; /* splits: ragged */
  struct shape shape;       /* dense */
  int dflt;                 /* dense: which of dense_defaults */
};

struct parse_dataset_state {
  struct dataset_state base;  /* must be first: dataset_give and its kin read it */
  VEC(struct parse_key) keys; /* in order of their names: as the components are */
};

struct parse {
  struct dataset head;
  struct columns columns; /* column i is component i */
  int *kinds;             /* [head.n] */
  struct tensor *defaults;
  int n_defaults;
  struct pool *pool; /* the device's, as of a dataset's functions */
};

/* ---- elements ---- */

static shoal_status sparse_component(struct pool *pool, const struct example_batch *b, size_t c, struct tensor *out) {
  struct tensor part[3] = {{0}};
  shoal_status s = column_sparse(pool, b, c, &part[0], &part[1], &part[2]);
  if (!s) s = tensor_new_dims(out, SHOAL_VARIANT, 1, (int64_t[]){3});
  for (int i = 0; !s && i < 3; i++) T_DATA(out, struct variant *)[i] = tensor_variant_new(&part[i]);
  tensors_release(part, 3);
  return s;
}

static shoal_status ragged_component(struct pool *pool, const struct example_batch *b, size_t c, struct tensor *out) {
  struct tensor part[2] = {{0}};
  shoal_status s = column_ragged(pool, b, c, &part[0], &part[1]);
  if (!s) s = tensor_new_scalar(out, SHOAL_VARIANT);
  if (!s) *T_DATA(out, struct variant *) = ragged_variant_new(&part[1], &part[0]);
  tensors_release(part, 2);
  return s;
}

static shoal_status make_component(const struct parse *d, const struct example_batch *b, int i, struct tensor *out) {
  switch (d->kinds[i]) {
    case DENSE: TRY(column_dense(d->pool, b, (size_t)i, out)); break;
    case SPARSE: TRY(sparse_component(d->pool, b, (size_t)i, out)); break;
    default: TRY(ragged_component(d->pool, b, (size_t)i, out));
  }
  struct shape have = tensor_shape(out);
  if (out->dtype != d->head.types[i])
    return INVALID("Got wrong type for FastParseExample return value %d (expected %s, got %s).", i,
                   dtype_tf_name(d->head.types[i]), dtype_tf_name((shoal_dtype)out->dtype));
  if (!shape_compatible(&d->head.shapes[i], &have))
    return INVALID("Got wrong shape for FastParseExample return value %d (expected %s, got %s).", i,
                   shape_str(&d->head.shapes[i]), shape_str(&have));
  return NULL;
}

/* All strings of an element in one vector: TensorFlow takes them together whatever the components. */
static shoal_status join(const struct tensor *t, int n, struct tensor *out) {
  int64_t total = 0, at = 0;
  for (int i = 0; i < n; i++) {
    if (t[i].dtype != SHOAL_STRING) return INVALID("Serialized examples must be strings");
    if (__builtin_add_overflow(total, t[i].n, &total)) return INVALID("Too many examples");
  }
  TRY(tensor_new_dims(out, SHOAL_STRING, 1, &total));
  for (int i = 0; i < n; at += t[i++].n) elements_copy(SHOAL_STRING, T_DATA(out, struct str) + at, t[i].data, t[i].n);
  return NULL;
}

static shoal_status parse_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  const struct parse *d = (const struct parse *)it->of;
  struct data_iterator *in;
  TRY(iterator_input(it, &in));
  int n = in->of->n;
  struct tensor *element = mem_zalloc((size_t)MAX(n, 1), sizeof *element), all = tensor_none();
  shoal_status s = iterator_next(in, ctx, element, end);
  if (!s && !*end) s = join(element, n, &all);
  tensors_release(element, n);
  free(element);
  if (s || *end) return s;
  struct example_batch b = {.columns = &d->columns, .n = all.n};
  s = batch_scan(d->pool, &all, &b);
  for (int i = 0; !s && i < d->head.n; i++) s = make_component(d, &b, i, &out[i]);
  if (s) tensors_release(out, d->head.n);
  free(b.slots);
  tensor_release(&all);
  return s;
}

static shoal_status parse_skip(struct data_iterator *it, struct data_ctx *ctx, bool *end) {
  struct data_iterator *in;
  TRY(iterator_input(it, &in));
  return iterator_skip(in, ctx, end);
}

static const struct data_iterator_type parse_iter = {sizeof(struct data_iterator), parse_next, NULL, parse_skip};

static shoal_status parse_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&parse_iter, d);
  return NULL;
}

static void parse_free(struct dataset *head) {
  struct parse *d = (struct parse *)head;
  columns_release(&d->columns);
  tensors_release(d->defaults, d->n_defaults);
  free(d->defaults);
  free(d->kinds);
}

static const struct dataset_type parse_type = {"ParseExample", parse_iterate, NULL, parse_free};

/* ---- the op ---- */

static int by_key(const void *x, const void *y) {
  const struct parse_key *a = x, *b = y;
  int order = memcmp(a->key, b->key, MIN(a->n, b->n));
  return order ? order : a->n < b->n ? -1 : a->n > b->n;
}

static shoal_status read_keys(const struct shoal_node *node, int kind, struct parse_dataset_state *s) {
  const struct attr *keys, *types, *splits = NULL, *shapes = NULL;
  if (!node_attr(node, key_attrs[kind])) return NULL;
  TRY(node_get_list(node, key_attrs[kind], ATTR_STRING, &keys));
  TRY(node_get_list(node, type_attrs[kind], ATTR_TYPE, &types));
  if (kind == RAGGED) TRY(node_get_list(node, "ragged_split_types", ATTR_TYPE, &splits));
  if (kind == DENSE) TRY(node_get_list(node, "dense_shapes", ATTR_SHAPE, &shapes));
  size_t n = keys->list.n;
  if (types->list.n != n || (splits && splits->list.n != n) || (shapes && shapes->list.n != n))
    return INVALID("len(%s) != len(%s)", key_attrs[kind], type_attrs[kind]);
  for (size_t i = 0; i < n; i++) {
    const struct attr *k = &keys->list.at[i];
    struct parse_key key = {.kind = kind, .type = (shoal_dtype)types->list.at[i].type, .dflt = (int)i, .n = k->s.n};
    if (splits) key.splits = (shoal_dtype)splits->list.at[i].type;
    if (shapes) key.shape = *shapes->list.at[i].shape;
    key.key = mem_strndup(k->s.data, k->s.n);
    vec_push(&s->keys, key);
    bool known = kind != DENSE || key.shape.rank >= 0;
    for (int d = 1; d < key.shape.rank; d++) known = known && key.shape.dims[d] >= 0;
    if (!known)
      return INVALID("dense_shapes[%zu] has unknown rank or unknown inner dimensions: %s", i, shape_str(&key.shape));
  }
  return NULL;
}

static shoal_status parse_init(struct kernel_init *ki, void *state) {
  struct parse_dataset_state *s = state;
  TRY(dataset_state_init(ki, &s->base));
  for (int kind = 0; kind < KINDS; kind++) TRY(read_keys(ki->node, kind, s));
  if (s->keys.n) qsort(s->keys.at, s->keys.n, sizeof *s->keys.at, by_key);
  if (s->keys.n != (size_t)s->base.spec.n)
    return INVALID("There are %zu keys, but elements of %d components", s->keys.n, s->base.spec.n);
  return NULL;
}

static void parse_release(void *state) {
  struct parse_dataset_state *s = state;
  for (size_t i = 0; i < s->keys.n; i++) free(s->keys.at[i].key);
  vec_release(&s->keys);
  dataset_state_release(&s->base);
}

static shoal_status add_columns(const struct parse_dataset_state *s, struct parse *d) {
  for (size_t i = 0; i < s->keys.n; i++) {
    const struct parse_key *k = &s->keys.at[i];
    if (i && !by_key(k, k - 1)) return INVALID("Duplicate key not allowed: %s", k->key);
    d->kinds[i] = k->kind;
    TRY(columns_add(&d->columns, k->key, k->n, k->type, k->kind == DENSE ? &k->shape : NULL,
                    k->kind == DENSE ? &d->defaults[k->dflt] : NULL));
    vec_last(&d->columns.at).splits = k->splits;
    if (k->kind == DENSE) TRY(column_check_default(&vec_last(&d->columns.at)));
  }
  return NULL;
}

static shoal_status parse_run(struct kernel_ctx *ctx) {
  const struct parse_dataset_state *s = ctx->state;
  struct dataset *in;
  int64_t calls;
  TRY(dataset_in(ctx, 0, &in));
  TRY(dataset_in_int(ctx, 1, "num_parallel_calls", &calls));
  if (calls < 1 && calls != -1) return INVALID("num_parallel_calls must be greater than zero.");
  int n = s->base.spec.n, n_defaults = ctx->kernel->n_in - 2;
  struct parse *d =
      (struct parse *)dataset_new(sizeof *d, &parse_type, n, s->base.spec.types, s->base.spec.shapes, &in, 1);
  d->kinds = mem_zalloc((size_t)n, sizeof *d->kinds);
  d->pool = ctx_pool(ctx);
  d->n_defaults = n_defaults;
  d->defaults = mem_zalloc((size_t)n_defaults, sizeof *d->defaults);
  for (int i = 0; i < n_defaults; i++) tensor_ref(&d->defaults[i], ctx_in(ctx, 2 + i));
  shoal_status bad = add_columns(s, d);
  if (bad) dataset_unref(&d->head);
  TRY(bad);
  return dataset_give(ctx, &d->head);
}

#define LIST "list({float, int64, string}) >= 0"
#define KEYS                                                                                             \
  "sparse_keys: list(string) >= 0; dense_keys: list(string) >= 0; sparse_types: " LIST "; Tdense: " LIST \
  "; dense_shapes: list(shape) >= 0; " DATASET_SPEC
#define RAGGED_KEYS                                                  \
  "; ragged_keys: list(string) >= 0 = []; ragged_value_types: " LIST \
  " = []; ragged_split_types: list({int32, int64}) >= 0 = []"
#define IN "input_dataset: variant, num_parallel_calls: int64, dense_defaults: Tdense"
#define KERNEL                                         \
  (const struct kernel_def[]) {                        \
    {.device = "CPU",                                  \
     .state_size = sizeof(struct parse_dataset_state), \
     .init = parse_init,                               \
     .release = parse_release,                         \
     .run = parse_run},                                \
    {                                                  \
      0                                                \
    }                                                  \
  }

static const struct op_row rows[] = {
    DATASET_ROW("ParseExampleDataset", IN, KEYS "; sloppy: bool = false" RAGGED_KEYS, 0, KERNEL),
    DATASET_ROW("ExperimentalParseExampleDataset", IN, KEYS "; sloppy: bool = false", 0, KERNEL),
    DATASET_ROW("ParseExampleDatasetV2", IN, KEYS "; deterministic: string = 'default'" RAGGED_KEYS, 0, KERNEL),
};
OP_FAMILY(datasets_parse, rows);
