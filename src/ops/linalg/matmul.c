/* Matrix products: MatMul, the three generations of BatchMatMul, SparseMatMul (sparse in name only: a hint about
 * zeros, which a dense kernel may ignore), and MatMul with what follows it fused in. All end in gemm_run. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ops/linalg/matmul.h"
#include "ops/nn/nn_util.h"

/* ---- shapes ---- */

/* TensorFlow's kernels take MatMul of higher rank too, as a batch; the shape function asks for matrices. */
static shoal_status onto_shape(struct shape_ctx *c) {
  struct shape product;
  TRY(node_get_shape(c->node, "shape", &product));
  return shape_broadcast(&product, &c->in[3], &c->out[0]);
}

shoal_status matmul_shape(struct shape_ctx *c) {
  struct shape a, b;
  bool ta, tb;
  TRY(shape_in_rank(c, 0, 2, &a));
  TRY(shape_in_rank(c, 1, 2, &b));
  TRY(node_get_bool(c->node, "transpose_a", &ta));
  TRY(node_get_bool(c->node, "transpose_b", &tb));
  int64_t inner_a = a.dims[ta ? 0 : 1], inner_b = b.dims[tb ? 1 : 0];
  TRY(nn_same_dim(c, inner_a, inner_b));
  c->out[0] = shape_matrix(a.dims[ta ? 1 : 0], b.dims[tb ? 0 : 1]);
  return NULL;
}

static shoal_status batch_shape(struct shape_ctx *c) {
  struct shape x, y, batch;
  bool ax, ay;
  TRY(shape_in_rank_at_least(c, 0, 2, &x));
  TRY(shape_in_rank_at_least(c, 1, 2, &y));
  TRY(node_get_bool(c->node, "adj_x", &ax));
  TRY(node_get_bool(c->node, "adj_y", &ay));
  if (x.rank < 0 || y.rank < 0) return NULL;
  int64_t rows = x.dims[x.rank - (ax ? 1 : 2)], inner_x = x.dims[x.rank - (ax ? 2 : 1)];
  int64_t inner_y = y.dims[y.rank - (ay ? 1 : 2)], cols = y.dims[y.rank - (ay ? 2 : 1)];
  TRY(nn_same_dim(c, inner_x, inner_y));
  x.rank -= 2;
  y.rank -= 2;
  TRY(shape_broadcast(&x, &y, &batch));
  if (batch.rank < 0) return NULL;
  batch.dims[batch.rank] = rows;
  batch.dims[batch.rank + 1] = cols;
  batch.rank += 2;
  c->out[0] = batch;
  return NULL;
}

/* ---- kernels ---- */

shoal_status matmul_init(struct kernel_init *ki, void *state) {
  struct matmul_state *st = state;
  TRY(node_get_bool(ki->node, "transpose_a", &st->trans_a));
  TRY(node_get_bool(ki->node, "transpose_b", &st->trans_b));
  st->legacy = true;
  st->sparse = op_is(ki->node->op, "SparseMatMul");
  return NULL;
}

static shoal_status batch_init(struct kernel_init *ki, void *state) {
  struct matmul_state *st = state;
  TRY(node_get_bool(ki->node, "adj_x", &st->trans_a));
  TRY(node_get_bool(ki->node, "adj_y", &st->trans_b));
  st->conj = true;
  st->legacy = op_is(ki->node->op, "BatchMatMul");
  return NULL;
}

static shoal_status fused_init(struct kernel_init *ki, void *state) {
  struct matmul_state *st = state;
  TRY(matmul_init(ki, state));
  const struct attr *list;
  TRY(node_get_list(ki->node, "fused_ops", ATTR_STRING, &list));
  TRY(node_get_float(ki->node, "leakyrelu_alpha", &st->epilogue.alpha));
  int64_t args, used = 0;
  TRY(node_get_int(ki->node, "num_args", &args));
  for (size_t i = 0; i < list->list.n; i++) {
    const char *name = list->list.at[i].s.data;
    if (i == 0 && !strcmp(name, "BiasAdd")) st->bias = true;
    else if (i == 1 && st->bias && !strcmp(name, "Add")) st->add = true;
    else if (i && i + 1 == list->list.n && gemm_act_from_name(name, &st->epilogue.act)) continue;
    else return UNIMPLEMENTED("Fusion is not implemented: fused_ops[%zu] = '%s' in %s", i, name, ki->node->name);
  }
  used = st->bias + st->add;
  if (!st->bias) return UNIMPLEMENTED("Fusion is not implemented: %s needs a BiasAdd in fused_ops", ki->node->name);
  if (args != used) return INVALID("Fused MatMul must have %" PRId64 " extra argument(s): got %" PRId64, used, args);
  return NULL;
}

/* Strides of a batch of matrices, 0 where a dimension is broadcast. */
static void batch_strides(const struct tensor *t, int rank, const int64_t *batch, int64_t *strides) {
  int64_t step = t->dims[t->rank - 1] * t->dims[t->rank - 2];
  int offset = rank - (t->rank - 2);
  for (int i = rank - 1; i >= 0; i--) {
    int64_t d = i < offset ? 1 : t->dims[i - offset];
    strides[i] = d == 1 && batch[i] != 1 ? 0 : step;
    step *= d;
  }
}

static shoal_status check_ranks(const struct matmul_state *st, const struct tensor *a, const struct tensor *b) {
  if (st->sparse) {
    if (a->rank != 2) return INVALID("a is not a matrix");
    if (b->rank != 2) return INVALID("b is not a matrix");
  }
  if (st->legacy && a->rank != b->rank)
    return INVALID("In[0] and In[1] has different ndims: %s vs. %s", tensor_shape_str(a), tensor_shape_str(b));
  if (a->rank < 2) return INVALID("In[0] ndims must be >= 2: %d", a->rank);
  if (b->rank < 2) return INVALID("In[1] ndims must be >= 2: %d", b->rank);
  if (!st->legacy) return NULL;
  for (int i = 0; i < a->rank - 2; i++)
    if (a->dims[i] != b->dims[i])
      return INVALID("In[0].dim(%d) and In[1].dim(%d) must be the same: %s vs %s", i, i, tensor_shape_str(a),
                     tensor_shape_str(b));
  return NULL;
}

/* Sums narrow types into their own accumulators, so operands must agree on one. */
static shoal_status check_types(const struct kernel_ctx *ctx) {
  shoal_dtype a = ctx_in_type(ctx, 0), b = ctx_in_type(ctx, 1), out = ctx_out_type(ctx, 0);
  if (a == b && a == out) return NULL;
  bool floats = dtype_floating(a) || dtype_floating(b);
  shoal_dtype acc = gemm_acc_type(out);
  if (gemm_acc_type(a) == acc && gemm_acc_type(b) == acc && (!floats || a == b)) return NULL;
  return UNIMPLEMENTED("%s of %s and %s to %s is not implemented", ctx->kernel->op->name, shoal_dtype_name(a),
                       shoal_dtype_name(b), shoal_dtype_name(out));
}

/* Many matrices: the pointers of each product, then all of them at once. */
static shoal_status run_batch(struct kernel_ctx *ctx, struct gemm *g, const struct tensor *a, const struct tensor *b,
                              struct tensor *c, int rank, const int64_t *batch) {
  int64_t count = dims_product(batch, 0, rank);
  if (!c->n) return NULL;
  int64_t sa[SHOAL_MAX_RANK], sb[SHOAL_MAX_RANK];
  batch_strides(a, rank, batch, sa);
  batch_strides(b, rank, batch, sb);
  struct buffer *pointers;
  TRY(buffer_new((size_t)count * 3 * sizeof(void *), &pointers));
  const void **pa = pointers->data, **pb = pa + count;
  void **pc = (void **)(pb + count);
  size_t ea = dtype_size(ctx_in_type(ctx, 0)), eb = dtype_size(ctx_in_type(ctx, 1)), ec = dtype_size(g->type);
  for (int64_t i = 0; i < count; i++) {
    int64_t at_a = 0, at_b = 0, rest = i;
    for (int d = rank - 1; d >= 0; d--) {
      int64_t at = rest % batch[d];
      rest /= batch[d];
      at_a += at * sa[d];
      at_b += at * sb[d];
    }
    pa[i] = (const char *)a->data + (size_t)at_a * ea;
    pb[i] = (const char *)b->data + (size_t)at_b * eb;
    pc[i] = (char *)c->data + (size_t)(i * g->m * g->n) * ec;
  }
  shoal_status s = gemm_batch(ctx_pool(ctx), g, count, pa, pb, pc);
  buffer_unref(pointers);
  return s;
}

shoal_status matmul_run_with(struct kernel_ctx *ctx, const struct gemm_epilogue *epilogue) {
  const struct matmul_state *st = ctx->state;
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1);
  TRY(check_ranks(st, a, b));
  TRY(check_types(ctx));
  struct shape batch_a = tensor_shape(a), batch_b = tensor_shape(b), shape;
  batch_a.rank -= 2;
  batch_b.rank -= 2;
  shoal_status bad = shape_broadcast(&batch_a, &batch_b, &shape);
  if (bad) {
    shoal_status_free(bad);
    return INVALID("In[0] and In[1] must have compatible batch dimensions: %s vs. %s", tensor_shape_str(a),
                   tensor_shape_str(b));
  }
  int64_t a0 = a->dims[a->rank - 2], a1 = a->dims[a->rank - 1], b0 = b->dims[b->rank - 2], b1 = b->dims[b->rank - 1];
  int64_t k = st->trans_a ? a0 : a1;
  if (k != (st->trans_b ? b1 : b0)) {
    if (st->sparse) return INVALID("Matrix size incompatible: a: %s, b: %s", tensor_shape_str(a), tensor_shape_str(b));
    return INVALID("Matrix size-incompatible: In[0]: %s, In[1]: %s %d %d", tensor_shape_str(a), tensor_shape_str(b),
                   st->trans_a, st->trans_b);
  }
  int rank = shape.rank;
  shape.dims[rank] = st->trans_a ? a1 : a0;
  shape.dims[rank + 1] = st->trans_b ? b0 : b1;
  shape.rank = rank + 2;
  struct gemm g = {
      .m = shape.dims[rank], .n = shape.dims[rank + 1], .k = k, .type = ctx_out_type(ctx, 0), .epilogue = epilogue};
  g.a = (struct gemm_operand){a->data, ctx_in_type(ctx, 0), a1, st->trans_a, st->conj && st->trans_a, NULL, NULL};
  g.b = (struct gemm_operand){b->data, ctx_in_type(ctx, 1), b1, st->trans_b, st->conj && st->trans_b, NULL, NULL};
  g.ldc = g.n;
  struct tensor *c;
  TRY(ctx_out(ctx, 0, &shape, &c));
  g.c = c->data;
  if (rank == 0) return gemm_run(ctx_pool(ctx), &g);
  return run_batch(ctx, &g, a, b, c, rank, shape.dims);
}

static shoal_status matmul_run(struct kernel_ctx *ctx) { return matmul_run_with(ctx, NULL); }

/* Of each product of a batch. */
static bool multiplies(const struct kernel_ctx *ctx, int64_t *m, int64_t *n) {
  const struct matmul_state *st = ctx->state;
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1);
  if (a->rank < 2 || b->rank < 2) return false;
  const int64_t *da = a->dims + a->rank - 2, *db = b->dims + b->rank - 2;
  *m = da[st->trans_a ? 1 : 0];
  *n = db[st->trans_b ? 0 : 1];
  return da[st->trans_a ? 0 : 1] == db[st->trans_b ? 1 : 0];
}

shoal_status matmul_sizes(const struct kernel_ctx *ctx, int64_t *m, int64_t *n) {
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1);
  if (multiplies(ctx, m, n) && a->rank == 2 && b->rank == 2) return NULL;
  const struct matmul_state *st = ctx->state;
  return INVALID("Matrix size-incompatible: In[0]: %s, In[1]: %s %d %d", tensor_shape_str(a), tensor_shape_str(b),
                 st->trans_a, st->trans_b);
}

shoal_status matmul_run_biased(struct kernel_ctx *ctx, const struct gemm_epilogue *epilogue) {
  struct gemm_epilogue e = *epilogue;
  const struct tensor *bias = ctx_in(ctx, 2);
  int64_t m, n;
  if (!multiplies(ctx, &m, &n)) return matmul_run_with(ctx, NULL); /* which says what is wrong */
  if (bias->rank != 1 || bias->dims[0] != n) {
    ctx->part = 1;
    if (bias->rank != 1) return INVALID("Biases must be 1D: %s", tensor_shape_str(bias));
    return INVALID("Must provide as many biases as the last dimension of the input tensor: %s vs. [%" PRId64 ",%" PRId64
                   "]",
                   tensor_shape_str(bias), m, n);
  }
  struct buffer *wide = NULL;
  e.bias = bias->data;
  if (bias->dtype != SHOAL_FLOAT32) {
    TRY(buffer_new((size_t)n * sizeof(float), &wide));
    nn_to_float((shoal_dtype)bias->dtype, bias->data, wide->data, n);
    e.bias = wide->data;
  }
  shoal_status s = matmul_run_with(ctx, &e);
  buffer_unref(wide);
  return s;
}

static shoal_status fused_run(struct kernel_ctx *ctx) {
  const struct matmul_state *st = ctx->state;
  struct gemm_epilogue e = st->epilogue;
  int64_t m, n;
  if (st->add) {
    const struct tensor *more = ctx_in(ctx, 3);
    TRY(matmul_sizes(ctx, &m, &n));
    if (more->rank != 2 || more->dims[0] != m || more->dims[1] != n)
      return INVALID("the matrix to add has shape %s instead of [%" PRId64 ",%" PRId64 "]", tensor_shape_str(more), m,
                     n);
    e.add = more->data;
    e.ld_add = n;
  }
  return matmul_run_biased(ctx, &e);
}

#define MATMUL_TYPES (DT_FLOATING | DT(INT32) | DT(INT64) | DT_UNSIGNED | DT_COMPLEX)
static const struct kernel_def matmul_kernels[] = {{.device = "CPU",
                                                    .type_attr = "T",
                                                    .types = MATMUL_TYPES,
                                                    .state_size = sizeof(struct matmul_state),
                                                    .init = matmul_init,
                                                    .run = matmul_run},
                                                   {0}};
static const struct kernel_def batch_kernels[] = {{.device = "CPU",
                                                   .type_attr = "T",
                                                   .types = MATMUL_TYPES | DT(INT16),
                                                   .state_size = sizeof(struct matmul_state),
                                                   .init = batch_init,
                                                   .run = matmul_run},
                                                  {0}};
static const struct kernel_def batch_v3_kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct matmul_state), .init = batch_init, .run = matmul_run}, {0}};
static const struct kernel_def fused_kernels[] = {{.device = "CPU",
                                                   .type_attr = "T",
                                                   .types = DT(FLOAT32) | DT(BFLOAT16) | DT(FLOAT16),
                                                   .state_size = sizeof(struct matmul_state),
                                                   .init = fused_init,
                                                   .run = fused_run},
                                                  {0}};

/* Of two types: both as float. */
static shoal_status widen(const struct tensor *t, struct tensor *out) {
  struct shape shape = tensor_shape(t);
  TRY(tensor_new(out, SHOAL_FLOAT32, &shape));
  for (int64_t i = 0; i < t->n; i++) T_DATA(out, float)[i] = bf16_to_float(T_DATA(t, const bf16)[i]);
  return NULL;
}

static shoal_status sparse_matmul_run(struct kernel_ctx *ctx) {
  if (ctx_in_type(ctx, 0) == ctx_in_type(ctx, 1)) return matmul_run_with(ctx, NULL);
  struct tensor wide;
  int which = ctx_in_type(ctx, 0) == SHOAL_BFLOAT16 ? 0 : 1;
  TRY(widen(ctx_in(ctx, which), &wide));
  const struct tensor *in[2] = {ctx_in(ctx, 0), ctx_in(ctx, 1)}, *const *before = ctx->in;
  in[which] = &wide;
  ctx->in = in;
  shoal_status s = matmul_run_with(ctx, NULL);
  ctx->in = before;
  tensor_release(&wide);
  return s;
}

static const struct kernel_def sparse_matmul_kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct matmul_state), .init = matmul_init, .run = sparse_matmul_run}, {0}};

/* ---- gradients ---- */

static shoal_out conj_of(struct shoal_graph *g, shoal_out x) {
  return dtype_complex(out_type(x)) ? build_op1(g, "Conj", x) : x;
}

static shoal_out product(struct shoal_graph *g, shoal_out a, shoal_out b, bool ta, bool tb) {
  struct build n = build_begin(g, "MatMul", NULL);
  build_in(&n, a);
  build_in(&n, b);
  build_attr_bool(&n, "transpose_a", ta);
  build_attr_bool(&n, "transpose_b", tb);
  return build_end_out(&n);
}

static shoal_status matmul_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out dy = grad_dy(c, 0), a = conj_of(g, gin(c, 0)), b = conj_of(g, gin(c, 1));
  bool ta, tb;
  TRY(node_get_bool(c->node, "transpose_a", &ta));
  TRY(node_get_bool(c->node, "transpose_b", &tb));
  grad_set(c, 0, ta ? product(g, b, dy, tb, true) : product(g, dy, b, false, !tb));
  grad_set(c, 1, tb ? product(g, dy, a, true, ta) : product(g, a, dy, !ta, false));
  return NULL;
}

static shoal_out sparse_product(struct shoal_graph *g, shoal_out a, bool sparse_a, bool ta, shoal_out b, bool sparse_b,
                                bool tb, shoal_dtype type) {
  struct build n = build_begin(g, "SparseMatMul", NULL);
  build_in(&n, a);
  build_in(&n, b);
  build_attr_bool(&n, "transpose_a", ta);
  build_attr_bool(&n, "transpose_b", tb);
  build_attr_bool(&n, "a_is_sparse", sparse_a);
  build_attr_bool(&n, "b_is_sparse", sparse_b);
  return build_cast(g, build_end_out(&n), type);
}

static shoal_status sparse_matmul_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out dy = grad_dy(c, 0), a = gin(c, 0), b = gin(c, 1);
  bool ta, tb, sa, sb;
  TRY(node_get_bool(c->node, "transpose_a", &ta));
  TRY(node_get_bool(c->node, "transpose_b", &tb));
  TRY(node_get_bool(c->node, "a_is_sparse", &sa));
  TRY(node_get_bool(c->node, "b_is_sparse", &sb));
  bool sdy = dy.node && (op_is(dy.node->op, "ReluGrad") || op_is(dy.node->op, "Relu"));
  shoal_dtype type_a = out_type(a), type_b = out_type(b);
  grad_set(
      c, 0,
      ta ? sparse_product(g, b, sb, tb, dy, sdy, true, type_a) : sparse_product(g, dy, sdy, false, b, sb, !tb, type_a));
  grad_set(
      c, 1,
      tb ? sparse_product(g, dy, sdy, true, a, sa, ta, type_b) : sparse_product(g, a, sa, !ta, dy, sdy, false, type_b));
  return NULL;
}

static shoal_out batch_product(struct grad_ctx *c, shoal_out x, shoal_out y, bool ax, bool ay, shoal_dtype type) {
  const char *op = c->node->op->name;
  struct build n = build_begin(c->g, op, NULL);
  build_in(&n, x);
  build_in(&n, y);
  build_attr_bool(&n, "adj_x", ax);
  build_attr_bool(&n, "adj_y", ay);
  if (!strcmp(op, "BatchMatMulV3")) build_attr_type(&n, "Tout", type);
  return build_end_out(&n);
}

/* Adds up dx over the batch dimensions that broadcasting gave to x. The last two never broadcast, so the shapes
 * compared are those without them. */
static shoal_out reduce_batch(struct grad_ctx *c, shoal_out dx, shoal_out x, shoal_out other, int which) {
  struct shape sx = out_shape(x), so = out_shape(other);
  if (sx.rank >= 2 && so.rank >= 2 && shape_known(&sx) && shape_known(&so) && sx.rank == so.rank &&
      !memcmp(sx.dims, so.dims, (size_t)(sx.rank - 2) * sizeof *sx.dims))
    return dx;
  struct shoal_graph *g = c->g;
  shoal_out shape_x = array_shape(g, x, SHOAL_INT32), shape_o = array_shape(g, other, SHOAL_INT32);
  struct build n = build_begin(g, "BroadcastGradientArgs", NULL);
  shoal_out batch_x = array_part(g, shape_x, 0, -2), batch_o = array_part(g, shape_o, 0, -2);
  build_in(&n, which ? batch_o : batch_x);
  build_in(&n, which ? batch_x : batch_o);
  struct shoal_node *args = build_end(&n);
  if (!args) return (shoal_out){NULL, 0};
  return array_reshape(g, array_sum(g, dx, node_out(args, which), false), shape_x);
}

static shoal_status batch_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0), x = gin(c, 0), y = gin(c, 1);
  bool ax, ay;
  TRY(node_get_bool(c->node, "adj_x", &ax));
  TRY(node_get_bool(c->node, "adj_y", &ay));
  shoal_dtype tx = out_type(x), ty = out_type(y);
  shoal_out dx = ax ? batch_product(c, y, dy, ay, true, tx) : batch_product(c, dy, y, false, !ay, tx);
  shoal_out d2 = ay ? batch_product(c, dy, x, true, ax, ty) : batch_product(c, x, dy, !ax, false, ty);
  if (strcmp(c->node->op->name, "BatchMatMul")) {
    dx = reduce_batch(c, dx, x, y, 0);
    d2 = reduce_batch(c, d2, y, x, 1);
  }
  grad_set(c, 0, dx);
  grad_set(c, 1, d2);
  return NULL;
}

static const struct op_row rows[] = {
    {"MatMul", .in = "a: T, b: T", .out = "product: T",
     .attrs = "transpose_a: bool = false; transpose_b: bool = false; T: {bfloat16, half, float, double, int32, int64, "
              "uint8, uint16, uint32, uint64, complex64, complex128}",
     .shape = matmul_shape, .grad = matmul_grad, .kernels = matmul_kernels},
    {"SparseMatMul", .in = "a: Ta, b: Tb", .out = "product: float",
     .attrs = "transpose_a: bool = false; transpose_b: bool = false; a_is_sparse: bool = false; b_is_sparse: bool = "
              "false; Ta: {float, bfloat16} = float; Tb: {float, bfloat16} = float",
     .shape = matmul_shape, .grad = sparse_matmul_grad, .kernels = sparse_matmul_kernels},
    {"BatchMatMul", .in = "x: T, y: T", .out = "output: T",
     .attrs = "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}; adj_x: bool = false; adj_y: "
              "bool = false",
     .shape = batch_shape, .grad = batch_grad, .kernels = batch_kernels},
    {"BatchMatMulV2", .in = "x: T, y: T", .out = "output: T",
     .attrs = "T: {bfloat16, half, float, double, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, "
              "complex128}; adj_x: bool = false; adj_y: bool = false",
     .shape = batch_shape, .grad = batch_grad, .kernels = batch_kernels},
    {"BatchMatMulV3", .in = "x: Ta, y: Tb", .out = "output: Tout",
     .attrs = "Ta: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128}; Tb: "
              "{bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128}; Tout: "
              "{bfloat16, half, float, double, int16, int32, int64, complex64, complex128}; adj_x: bool = false; "
              "adj_y: bool = false",
     .shape = batch_shape, .grad = batch_grad, .kernels = batch_v3_kernels},
    {"_FusedMatMul", .in = "a: T, b: T, args: num_args * T", .out = "product: T",
     .attrs = "transpose_a: bool = false; transpose_b: bool = false; T: {bfloat16, half, float}; num_args: int >= 0; "
              "fused_ops: list(string) = []; epsilon: float = 0.0001; leakyrelu_alpha: float = 0.2",
     .shape = matmul_shape, .kernels = fused_kernels},
    /* a * b and a bias, as `shape`, added to onto: made by a rewrite for cards, which alone have a kernel. */
    {"_MatMulOnto", .flags = OP_OWN, .in = "a: T, b: T, bias: T, onto: T", .out = "sum: T",
     .attrs = "transpose_a: bool = false; transpose_b: bool = false; T: {bfloat16, half, float}; shape: shape",
     .shape = onto_shape},
};
OP_FAMILY(matmul, rows);
