/* Ragged tensors as single values: RaggedTensorToVariant packs splits and values into a variant (or one variant for
 * each row), RaggedTensorFromVariant takes them out and stacks them. The gradient of such a value is a value of the
 * same splits; RaggedTensorToVariantGradient takes its numbers out. */
#include <stdlib.h>
#include <string.h>

#include "ops/array/array_util.h"
#include "ops/sparse/ragged_variant.h"
#include "ops/state/tensor_list.h"
#include "tensor/tensor_proto.h"

struct ragged_variant {
  struct variant head;
  int ragged;             /* number of splits */
  struct tensor *tensors; /* [ragged + 1]: splits, outermost first, then values */
};

static void ragged_free(struct variant *v) {
  struct ragged_variant *r = (struct ragged_variant *)v;
  for (int i = 0; i <= r->ragged; i++) tensor_release(&r->tensors[i]);
  free(r->tensors);
  free(r);
}

static shoal_status ragged_encode(const struct variant *v, struct text *metadata, struct tensor **tensors, int *n) {
  const struct ragged_variant *r = (const struct ragged_variant *)v;
  *n = r->ragged + 1;
  *tensors = mem_zalloc((size_t)*n, sizeof **tensors);
  for (int i = 0; i < *n; i++) tensor_ref(&(*tensors)[i], &r->tensors[i]);
  return NULL;
}

static struct ragged_variant *ragged_new(int ragged);

static shoal_status ragged_decode(const void *metadata, size_t size, const struct tensor *tensors, int n,
                                  struct variant **out) {
  if (n < 1) return INVALID("A ragged tensor variant without values");
  struct ragged_variant *r = ragged_new(n - 1);
  for (int i = 0; i < n; i++) tensor_ref(&r->tensors[i], &tensors[i]);
  *out = &r->head;
  return NULL;
}

static struct variant *ragged_zeros(const struct variant *v) {
  const struct ragged_variant *r = (const struct ragged_variant *)v;
  struct ragged_variant *z = ragged_new(r->ragged);
  for (int i = 0; i < r->ragged; i++) tensor_ref(&z->tensors[i], &r->tensors[i]);
  shoal_status s = tensor_copy(&z->tensors[r->ragged], &r->tensors[r->ragged]);
  if (s) {
    shoal_status_free(s);
    ragged_free(&z->head);
    return NULL;
  }
  tensor_zero(&z->tensors[r->ragged]);
  return &z->head;
}

static shoal_status ragged_add(const struct variant *va, const struct variant *vb, struct variant **out) {
  const struct ragged_variant *a = (const struct ragged_variant *)va, *b = (const struct ragged_variant *)vb;
  if (a->ragged != b->ragged)
    return INVALID("Can only add RaggedTensorVariants of same rank. Got %d and %d splits.", a->ragged, b->ragged);
  const struct tensor *x = &a->tensors[a->ragged], *y = &b->tensors[b->ragged];
  if (x->dtype != y->dtype || x->n != y->n)
    return INVALID("Can only add RaggedTensorVariants of the same values' type and number: %s %s and %s %s",
                   dtype_tf_name(x->dtype), tensor_shape_str(x), dtype_tf_name(y->dtype), tensor_shape_str(y));
  struct ragged_variant *sum = ragged_new(a->ragged);
  for (int i = 0; i < a->ragged; i++) tensor_ref(&sum->tensors[i], &a->tensors[i]);
  shoal_status s = tensors_add(x, y, &sum->tensors[a->ragged]);
  if (s) {
    sum->tensors[a->ragged] = tensor_none();
    ragged_free(&sum->head);
    return s;
  }
  *out = &sum->head;
  return NULL;
}

static const struct variant_type ragged_type = {.name = "RaggedTensorVariant",
                                                .free = ragged_free,
                                                .encode = ragged_encode,
                                                .decode = ragged_decode,
                                                .zeros_like = ragged_zeros,
                                                .add = ragged_add};

__attribute__((constructor)) static void register_type(void) { variant_type_register(&ragged_type); }

static struct ragged_variant *ragged_new(int ragged) {
  struct ragged_variant *r = mem_zalloc(1, sizeof *r);
  variant_init(&r->head, &ragged_type);
  r->ragged = ragged;
  r->tensors = mem_zalloc((size_t)ragged + 1, sizeof *r->tensors);
  return r;
}

struct variant *ragged_variant_new(const struct tensor *splits, const struct tensor *values) {
  struct ragged_variant *r = ragged_new(1);
  tensor_ref(&r->tensors[0], splits);
  tensor_ref(&r->tensors[1], values);
  return &r->head;
}

/* ---- RaggedTensorToVariant ---- */

struct batched_state {
  bool batched;
};

static shoal_status to_init(struct kernel_init *ki, void *state) {
  return node_get_bool(ki->node, "batched_input", &((struct batched_state *)state)->batched);
}

static shoal_status check_splits(struct kernel_ctx *ctx, int ragged) {
  const struct tensor *values = ctx_in(ctx, ragged);
  for (int d = 0; d < ragged; d++) {
    const struct tensor *s = ctx_in(ctx, d);
    if (s->rank != 1 || s->n < 1) return INVALID("Invalid ragged splits: shape %s", tensor_shape_str(s));
    if (d + 1 == ragged && values->rank < 1) return INVALID("Ragged values must be at least a vector");
    int64_t last = d + 1 < ragged ? ctx_in(ctx, d + 1)->n - 1 : values->dims[0];
    if (int_at(s, 0) != 0) return INVALID("First value of ragged splits must be 0.");
    for (int64_t i = 1; i < s->n; i++)
      if (int_at(s, i) < int_at(s, i - 1)) return INVALID("Ragged splits must be sorted");
    if (int_at(s, s->n - 1) != last) return INVALID("Ragged splits must end at the number of values");
  }
  return NULL;
}

/* Row `row` of the outermost dimension, as a ragged tensor of one dimension less. */
static shoal_status take_row(struct kernel_ctx *ctx, int ragged, int64_t row, struct ragged_variant **out) {
  const struct tensor *outer = ctx_in(ctx, 0), *values = ctx_in(ctx, ragged);
  int64_t begin = int_at(outer, row), end = int_at(outer, row + 1);
  struct ragged_variant *r = ragged_new(ragged - 1);
  shoal_status s = NULL;
  for (int d = 1; d < ragged && !s; d++) {
    const struct tensor *from = ctx_in(ctx, d);
    int64_t n = end - begin + 1, base = int_at(from, begin);
    s = tensor_new_dims(&r->tensors[d - 1], (shoal_dtype)from->dtype, 1, &n);
    for (int64_t i = 0; !s && i < n; i++) int_put(&r->tensors[d - 1], i, int_at(from, begin + i) - base);
    end = int_at(from, end);
    begin = base;
  }
  if (!s) {
    struct tensor rows; /* a copy: a row must not keep the whole batch alive */
    tensor_rows(&rows, values, begin, end);
    s = tensor_copy(&r->tensors[ragged - 1], &rows);
    tensor_release(&rows);
  }
  if (s) {
    ragged_free(&r->head);
    return s;
  }
  *out = r;
  return NULL;
}

static shoal_status to_run(struct kernel_ctx *ctx) {
  bool batched = ((struct batched_state *)ctx->state)->batched;
  int ragged = ctx->kernel->n_in - 1;
  TRY(check_splits(ctx, ragged));
  const struct tensor *values = ctx_in(ctx, ragged);
  struct tensor *y;
  if (!batched) {
    TRY(ctx_out_dims(ctx, 0, 0, NULL, &y));
    struct ragged_variant *r = ragged_new(ragged);
    for (int i = 0; i <= ragged; i++) tensor_ref(&r->tensors[i], ctx_in(ctx, i));
    *T_DATA(y, struct variant *) = &r->head;
    return NULL;
  }
  if (ragged == 0 && values->rank < 1) return INVALID("A batch of values must be at least a vector");
  int64_t n = ragged ? ctx_in(ctx, 0)->n - 1 : values->dims[0];
  TRY(ctx_out_dims(ctx, 0, 1, &n, &y));
  for (int64_t i = 0; i < n; i++) {
    struct ragged_variant *r;
    if (ragged) TRY(take_row(ctx, ragged, i, &r));
    else {
      struct tensor row;
      r = ragged_new(0);
      tensor_rows(&row, values, i, i + 1);
      struct shape s = {.rank = row.rank - 1};
      for (int k = 0; k < s.rank; k++) s.dims[k] = row.dims[k + 1];
      shoal_status bad = tensor_reshape(&r->tensors[0], &row, &s);
      tensor_release(&row);
      if (bad) {
        ragged_free(&r->head);
        return bad;
      }
    }
    T_DATA(y, struct variant *)[i] = &r->head;
  }
  return NULL;
}

static shoal_status to_shape(struct shape_ctx *c) {
  bool batched;
  TRY(node_get_bool(c->node, "batched_input", &batched));
  c->out[0] = batched ? shape_vector(-1) : shape_scalar();
  return NULL;
}

static const struct kernel_def to_kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct batched_state), .init = to_init, .run = to_run}, {0}};

/* ---- RaggedTensorFromVariant ---- */

struct from_state {
  int64_t in_rank, out_rank;
  shoal_dtype splits, values;
};

static shoal_status from_init(struct kernel_init *ki, void *state) {
  struct from_state *st = state;
  TRY(node_get_int(ki->node, "input_ragged_rank", &st->in_rank));
  TRY(node_get_int(ki->node, "output_ragged_rank", &st->out_rank));
  TRY(node_get_type(ki->node, "Tsplits", &st->splits));
  return node_get_type(ki->node, "Tvalues", &st->values);
}

static shoal_status component(const struct from_state *st, const struct tensor *x, int64_t i, int64_t ragged,
                              const struct ragged_variant **out) {
  const struct variant *v = T_DATA(x, struct variant *const)[i];
  if (!v || v->type != &ragged_type)
    return INVALID("Input Variant element at index %" PRId64 " doesn't hold a RaggedTensorVariant", i);
  const struct ragged_variant *r = (const struct ragged_variant *)v;
  if (r->ragged != ragged)
    return INVALID("Encoded input RaggedTensorVariant has ragged_rank=%d.  Expected ragged_rank=%" PRId64 ".",
                   r->ragged, ragged);
  for (int k = 0; k < r->ragged; k++)
    if (r->tensors[k].dtype != st->splits || r->tensors[k].rank != 1 || r->tensors[k].n < 1)
      return INVALID("Expected row_splits Tensor dtype: %s, found: %s", dtype_tf_name(st->splits),
                     dtype_tf_name(r->tensors[k].dtype));
  const struct tensor *values = &r->tensors[r->ragged];
  if (values->dtype != st->values)
    return INVALID("Expected values Tensor dtype: %s, found: %s", dtype_tf_name(st->values),
                   dtype_tf_name(values->dtype));
  if (values->rank < 1 && r->ragged) return INVALID("Ragged values must have rank >= 1");
  *out = r;
  return NULL;
}

/* One variant: its parts are the outputs. */
static shoal_status from_one(struct kernel_ctx *ctx, const struct from_state *st) {
  const struct ragged_variant *r;
  TRY(component(st, ctx_in(ctx, 0), 0, st->out_rank, &r));
  for (int i = 0; i <= r->ragged; i++) {
    struct tensor t;
    tensor_ref(&t, &r->tensors[i]);
    ctx_set(ctx, i, &t);
  }
  return NULL;
}

/* The values of all components joined along their first dimension. */
static shoal_status join_values(struct kernel_ctx *ctx, const struct from_state *st, int64_t ragged) {
  const struct tensor *x = ctx_in(ctx, 0);
  const struct ragged_variant *r;
  struct shape s = shape_vector(0);
  for (int64_t i = 0; i < x->n; i++) {
    TRY(component(st, x, i, ragged, &r));
    const struct tensor *v = &r->tensors[ragged];
    if (v->rank < 1) return INVALID("Ragged values must have rank >= 1");
    struct shape vs = tensor_shape(v);
    vs.dims[0] += i ? s.dims[0] : 0;
    int64_t rows = vs.dims[0];
    if (i) {
      vs.dims[0] = s.dims[0];
      if (!shape_equal(&vs, &s))
        return INVALID("Shape of values does not match: %s, %s", tensor_shape_str(v), shape_str(&s));
    }
    s = vs;
    s.dims[0] = rows;
  }
  struct tensor *y;
  TRY(ctx_out(ctx, (int)st->out_rank, &s, &y));
  char *to = y->data;
  for (int64_t i = 0; i < x->n; i++) {
    TRY(component(st, x, i, ragged, &r));
    elements_copy(st->values, to, r->tensors[ragged].data, r->tensors[ragged].n);
    to += tensor_bytes(&r->tensors[ragged]);
  }
  return NULL;
}

/* Output d of the splits that lie inside the components, level k: joined, each moved on by what came before. */
static shoal_status join_splits(struct kernel_ctx *ctx, const struct from_state *st, int64_t ragged, int k, int d) {
  const struct tensor *x = ctx_in(ctx, 0);
  const struct ragged_variant *r;
  int64_t n = 1;
  for (int64_t i = 0; i < x->n; i++) {
    TRY(component(st, x, i, ragged, &r));
    n += r->tensors[k].n - 1;
  }
  struct tensor *y;
  TRY(ctx_out_dims(ctx, d, 1, &n, &y));
  int_put(y, 0, 0);
  int64_t at = 1, base = 0;
  for (int64_t i = 0; i < x->n; i++) {
    TRY(component(st, x, i, ragged, &r));
    const struct tensor *s = &r->tensors[k];
    for (int64_t j = 1; j < s->n; j++) int_put(y, at++, base + int_at(s, j));
    base += int_at(s, s->n - 1);
  }
  return NULL;
}

static shoal_status from_run(struct kernel_ctx *ctx) {
  const struct from_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  int64_t ragged = st->in_rank;
  if (ragged == -1) {
    ragged = st->out_rank - x->rank;
    if (ragged < 0)
      return INVALID(
          "Inferred input_ragged_rank (output_ragged_rank - encoded_variant.dims()) must be >= 0, found "
          "output_ragged_rank: %" PRId64 ", encoded_variant.dims(): %d, inferred input_ragged_rank: %" PRId64,
          st->out_rank, x->rank, ragged);
  }
  if (st->out_rank != x->rank + ragged)
    return INVALID(
        "output_ragged_rank must be equal to input_ragged_rank + encoded_ragged.dims(): output_ragged_rank: "
        "%" PRId64 ", input_ragged_rank: %" PRId64 ", encoded_ragged.dims(): %d.",
        st->out_rank, ragged, x->rank);
  if (x->rank == 0) return from_one(ctx, st);
  struct tensor *y;
  for (int d = 0; d + 1 < x->rank; d++) { /* the encoded tensor's own dimensions: rows of one length */
    int64_t rows = dims_product(x->dims, 0, d + 1), n = rows + 1;
    TRY(ctx_out_dims(ctx, d, 1, &n, &y));
    for (int64_t i = 0; i <= rows; i++) int_put(y, i, i * x->dims[d + 1]);
  }
  int64_t n = x->n + 1, base = 0;
  TRY(ctx_out_dims(ctx, x->rank - 1, 1, &n, &y));
  int_put(y, 0, 0);
  for (int64_t i = 0; i < x->n; i++) {
    const struct ragged_variant *r;
    TRY(component(st, x, i, ragged, &r));
    if (!ragged && r->tensors[0].rank < 1) return INVALID("Ragged values must have rank >= 1");
    base += ragged ? r->tensors[0].n - 1 : r->tensors[0].dims[0];
    int_put(y, i + 1, base);
  }
  for (int k = 0; k < ragged; k++) TRY(join_splits(ctx, st, ragged, k, x->rank + k));
  return join_values(ctx, st, ragged);
}

static shoal_status from_shape(struct shape_ctx *c) {
  for (int i = 0; i + 1 < c->node->n_out; i++) c->out[i] = shape_vector(-1);
  return NULL;
}

static const struct kernel_def from_kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct from_state), .init = from_init, .run = from_run}, {0}};

/* ---- RaggedTensorToVariantGradient ---- */

static shoal_status values_init(struct kernel_init *ki, void *state) {
  return node_get_type(ki->node, "Tvalues", (shoal_dtype *)state);
}

/* The values of variant i; NULL when it is empty: that row has no part in what is differentiated. */
static shoal_status values_at(const struct tensor *x, int64_t i, shoal_dtype dtype, const struct tensor **out) {
  const struct variant *v = T_DATA(x, struct variant *const)[i];
  *out = NULL;
  if (!v) return NULL;
  if (v->type != &ragged_type)
    return INVALID("Input Variant element at index %" PRId64 " doesn't hold a RaggedTensorVariant", i);
  const struct ragged_variant *r = (const struct ragged_variant *)v;
  *out = &r->tensors[r->ragged];
  if ((*out)->dtype == dtype) return NULL;
  return INVALID("Expected values Tensor dtype: %s, found: %s", dtype_tf_name(dtype), dtype_tf_name((*out)->dtype));
}

static shoal_status values_run(struct kernel_ctx *ctx) {
  shoal_dtype dtype = *(const shoal_dtype *)ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *splits = ctx_in(ctx, 1), *values;
  struct shape s;
  TRY(shape_from_values(ctx_in(ctx, 2), &s));
  if (x->n == 1) {
    TRY(values_at(x, 0, dtype, &values));
    if (values) {
      struct tensor t;
      tensor_ref(&t, values);
      ctx_set(ctx, 0, &t);
      return NULL;
    }
  }
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  tensor_zero(y);
  int64_t at = 0, row = s.rank ? dims_product(s.dims, 1, s.rank) : 1;
  for (int64_t i = 0; i < x->n; i++) {
    TRY(values_at(x, i, dtype, &values));
    if (!values && splits->n != x->n + 1 && splits->n)
      return INVALID("row_splits has %" PRId64 " elements for %" PRId64 " rows", splits->n, x->n);
    int64_t rows = values || !splits->rank ? 1 : int_at(splits, i + 1) - int_at(splits, i);
    int64_t n = values ? values->n : 0;
    if (rows < 0 || (!values && __builtin_mul_overflow(rows, row, &n)) || n > y->n - at)
      return INVALID("The gradients of the rows have more values than the shape %s", shape_str(&s));
    if (values) elements_copy(dtype, (char *)y->data + (size_t)at * dtype_size(dtype), values->data, n);
    at += n;
  }
  if (at != y->n)
    return INVALID("The gradients of the rows have %" PRId64 " values, the shape %s has %" PRId64, at, shape_str(&s),
                   y->n);
  return NULL;
}

static shoal_status values_shape(struct shape_ctx *c) { return shape_in_value(c, 2, &c->out[0]); }

static const struct kernel_def values_kernels[] = {
    {.device = "CPU", .state_size = sizeof(shoal_dtype), .init = values_init, .run = values_run}, {0}};

static shoal_status to_grad(struct grad_ctx *c) {
  int values = c->node->n_in - 1;
  struct build b = build_begin(c->g, "RaggedTensorToVariantGradient", NULL);
  build_in(&b, grad_dy(c, 0));
  build_in(&b, values ? gin(c, 0) : build_const_int(c->g, SHOAL_INT32, 0));
  build_in(&b, build_op1(c->g, "Shape", gin(c, values)));
  build_attr_type(&b, "Tvalues", out_type(gin(c, values)));
  grad_set(c, values, build_end_out(&b));
  return NULL;
}

static shoal_status from_grad(struct grad_ctx *c) {
  struct shape in = out_shape(gin(c, 0));
  int64_t out_rank;
  shoal_dtype splits;
  TRY(node_get_int(c->node, "output_ragged_rank", &out_rank));
  TRY(node_get_type(c->node, "Tsplits", &splits));
  if (in.rank > 1)
    return UNIMPLEMENTED(
        "Unable to compute gradient: RaggedTensorToVariant can currently only generate 0D or 1D output.");
  int n = c->node->n_out - 1;
  shoal_out *outs = mem_zalloc((size_t)n, sizeof *outs);
  for (int i = 0; i < n; i++) outs[i] = gout(c, i);
  struct build b = build_begin(c->g, "RaggedTensorToVariant", NULL);
  build_in_list(&b, outs, n);
  build_in(&b, grad_dy(c, n));
  build_attr_type(&b, "Tsplits", splits);
  build_attr_bool(&b, "batched_input", in.rank < 0 ? out_rank > 0 : in.rank == 1);
  grad_set(c, 0, build_end_out(&b));
  free(outs);
  return NULL;
}

static const struct op_row rows[] = {
    {.name = "RaggedTensorToVariant",
     .in = "rt_nested_splits: RAGGED_RANK * Tsplits, rt_dense_values: Tvalues",
     .out = "encoded_ragged: variant",
     .attrs = "RAGGED_RANK: int >= 0; Tvalues: type; Tsplits: {int32, int64} = int64; batched_input: bool",
     .shape = to_shape,
     .grad = to_grad,
     .kernels = to_kernels},
    {.name = "RaggedTensorFromVariant",
     .in = "encoded_ragged: variant",
     .out = "output_nested_splits: output_ragged_rank * Tsplits, output_dense_values: Tvalues",
     .attrs = "input_ragged_rank: int >= -1; output_ragged_rank: int >= 0; Tvalues: type; Tsplits: {int32, int64} = "
              "int64",
     .shape = from_shape,
     .grad = from_grad,
     .kernels = from_kernels},
    {.name = "RaggedTensorToVariantGradient",
     .in = "encoded_ragged_grad: variant, row_splits: Tsplits, dense_values_shape: int32",
     .out = "dense_values_grad: Tvalues",
     .attrs = "Tvalues: type; Tsplits: {int32, int64} = int64",
     .shape = values_shape,
     .kernels = values_kernels},
};
OP_FAMILY(ragged_variant, rows);
