/* _DenseCrossEntropy and _DenseGrads, made by the rewrite fuse_dense for devices that have kernels of their own for
 * them (device/cuda/kernels_small.c). The kernels here say what they compute, in plain loops; the soft device borrows
 * them.
 *
 *   _DenseCrossEntropy: logits = x w + bias; the loss of each row with its label, their mean, the gradient of the
 *                       logits (`each` says what a row's loss counts for), and that of x, led back through the Relu
 *                       that x came of (relu); w is `width` by `classes`, for kernels that must know beforehand
 *   _DenseGrads:        the gradients of dense layers' kernels and biases: x' g, and the sums of g's columns */
#include "ops/nn/small_dense.h"

#include <math.h>
#include <string.h>

#include "ops/nn/softmax.h"

shoal_status dense_classifier_begin(struct kernel_ctx *ctx, struct dense_classifier *out) {
  struct dense_classifier c = {ctx_in(ctx, 0), ctx_in(ctx, 1), ctx_in(ctx, 2), ctx_in(ctx, 3), ctx_in(ctx, 4)};
  if (c.x->rank != 2 || c.w->rank != 2 || c.x->dims[1] != c.w->dims[0])
    return INVALID("Matrix size-incompatible: In[0]: %s, In[1]: %s", tensor_shape_str(c.x), tensor_shape_str(c.w));
  c.rows = c.x->dims[0], c.width = c.x->dims[1], c.classes = c.w->dims[1];
  if (c.bias->rank != 1 || c.bias->dims[0] != c.classes)
    return INVALID("Must provide as many biases as the last dimension of the input tensor: %s vs. %s",
                   tensor_shape_str(c.bias), tensor_shape_str(c.w));
  if (c.labels->rank != 1 || c.labels->n != c.rows || c.each->n != c.rows || !c.classes)
    return INVALID("%" PRId64 " rows of %" PRId64 " classes have labels %s, and count for %s", c.rows, c.classes,
                   tensor_shape_str(c.labels), tensor_shape_str(c.each));
  TRY(ctx_out_dims(ctx, 0, 1, (int64_t[]){c.rows}, &c.loss));
  TRY(ctx_out_dims(ctx, 1, 2, (int64_t[]){c.rows, c.classes}, &c.grad));
  TRY(ctx_out_dims(ctx, 2, 2, (int64_t[]){c.rows, c.width}, &c.back));
  TRY(ctx_out_dims(ctx, 3, 0, NULL, &c.mean));
  *out = c;
  return NULL;
}

shoal_status dense_pair_begin(struct kernel_ctx *ctx, int i, struct dense_pair *out) {
  int n = ctx->kernel->n_in / 2;
  struct dense_pair p = {ctx_in(ctx, i), ctx_in(ctx, n + i)};
  if (p.x->rank != 2 || p.g->rank != 2 || p.x->dims[0] != p.g->dims[0])
    return INVALID("Matrix size-incompatible: In[0]: %s, In[1]: %s", tensor_shape_str(p.x), tensor_shape_str(p.g));
  p.rows = p.x->dims[0], p.m = p.x->dims[1], p.n = p.g->dims[1];
  TRY(ctx_out_dims(ctx, i, 2, (int64_t[]){p.m, p.n}, &p.product));
  TRY(ctx_out_dims(ctx, n + i, 1, (int64_t[]){p.n}, &p.sums));
  *out = p;
  return NULL;
}

/* ---- the host's kernels ---- */

static void logits_of(const struct dense_classifier *c, int64_t row, float *z) {
  const float *x = T_DATA(c->x, const float) + row * c->width, *w = c->w->data;
  memcpy(z, c->bias->data, (size_t)c->classes * sizeof *z);
  for (int64_t k = 0; k < c->width; k++)
    for (int64_t n = 0; n < c->classes; n++) z[n] += x[k] * w[k * c->classes + n];
}

static float entropy_of(const struct dense_classifier *c, int64_t row, float *z) {
  int64_t label = label_of(c->labels, row);
  float each = T_DATA(c->each, const float)[row];
  softmax_shift(z, z, c->classes);
  float at = z[label], sum = softmax_exp_sum(z, z, c->classes);
  for (int64_t n = 0; n < c->classes; n++) z[n] *= each / sum;
  z[label] -= each;
  return logf(sum) - at;
}

static void back_of(const struct dense_classifier *c, int64_t row, const float *z, bool relu) {
  const float *x = T_DATA(c->x, const float) + row * c->width, *w = c->w->data;
  float *back = T_DATA(c->back, float) + row * c->width;
  for (int64_t k = 0; k < c->width; k++) {
    back[k] = 0;
    for (int64_t n = 0; n < c->classes; n++) back[k] += z[n] * w[k * c->classes + n];
    if (relu && !(x[k] > 0)) back[k] = 0;
  }
}

static shoal_status classifier_init(struct kernel_init *ki, void *state) {
  return node_get_bool(ki->node, "relu", state);
}

static shoal_status classifier_run(struct kernel_ctx *ctx) {
  struct dense_classifier c;
  double sum = 0;
  TRY(dense_classifier_begin(ctx, &c));
  TRY(sparse_check_labels(c.labels, c.classes));
  for (int64_t r = 0; r < c.rows; r++) {
    float *z = T_DATA(c.grad, float) + r * c.classes;
    logits_of(&c, r, z);
    float loss = T_DATA(c.loss, float)[r] = entropy_of(&c, r, z);
    back_of(&c, r, z, *(const bool *)ctx->state);
    sum += (double)loss;
  }
  *T_DATA(c.mean, float) = (float)(sum / (double)c.rows);
  return NULL;
}

static void add_pair(const struct dense_pair *p) {
  float *product = p->product->data, *sums = p->sums->data;
  memset(product, 0, tensor_bytes(p->product));
  memset(sums, 0, tensor_bytes(p->sums));
  for (int64_t r = 0; r < p->rows; r++) {
    const float *x = T_DATA(p->x, const float) + r * p->m, *g = T_DATA(p->g, const float) + r * p->n;
    for (int64_t i = 0; i < p->m; i++)
      for (int64_t k = 0; k < p->n; k++) product[i * p->n + k] += x[i] * g[k];
    for (int64_t k = 0; k < p->n; k++) sums[k] += g[k];
  }
}

static shoal_status grads_run(struct kernel_ctx *ctx) {
  for (int i = 0; i < ctx->kernel->n_in / 2; i++) {
    struct dense_pair p;
    TRY(dense_pair_begin(ctx, i, &p));
    add_pair(&p);
  }
  return NULL;
}

/* ---- shapes ---- */

static shoal_status classifier_shape(struct shape_ctx *c) {
  struct shape w;
  TRY(shape_in_rank(c, 0, 2, &c->out[2]));
  TRY(shape_in_rank(c, 1, 2, &w));
  c->out[0] = shape_vector(c->out[2].dims[0]);
  c->out[1] = (struct shape){.rank = 2, .dims = {c->out[2].dims[0], w.dims[1]}};
  c->out[3] = (struct shape){.rank = 0};
  return NULL;
}

static shoal_status grads_shape(struct shape_ctx *c) {
  int n = c->node->n_in / 2;
  for (int i = 0; i < n; i++) {
    struct shape x, g;
    TRY(shape_in_rank(c, i, 2, &x));
    TRY(shape_in_rank(c, n + i, 2, &g));
    c->out[i] = (struct shape){.rank = 2, .dims = {x.dims[1], g.dims[1]}};
    c->out[n + i] = shape_vector(g.dims[1]);
  }
  return NULL;
}

static const struct kernel_def classifier_kernels[] = {{.device = "CPU",
                                                        .type_attr = "Tlabels",
                                                        .types = DT(INT32) | DT(INT64),
                                                        .state_size = sizeof(bool),
                                                        .init = classifier_init,
                                                        .run = classifier_run},
                                                       {0}};
static const struct kernel_def grads_kernels[] = {{.device = "CPU", .run = grads_run}, {0}};

static const struct op_row rows[] = {
    {"_DenseCrossEntropy", .flags = OP_OWN, .in = "x: float, w: float, bias: float, labels: Tlabels, each: float",
     .out = "loss: float, grad: float, back: float, mean: float",
     .attrs = "relu: bool; width: int; classes: int; Tlabels: {int32, int64}", .shape = classifier_shape,
     .kernels = classifier_kernels},
    {"_DenseGrads", .flags = OP_OWN, .in = "values: N * float, grads: N * float",
     .out = "products: N * float, sums: N * float", .attrs = "N: int >= 1", .shape = grads_shape,
     .kernels = grads_kernels},
};
OP_FAMILY(small_dense, rows);
