/* Softmax, LogSoftmax and the two cross entropies with logits. All work on rows of [batch, classes] that fit a
 * cache: the maximum is subtracted first, so that nothing overflows. Half and bfloat16 rows are computed in
 * float, block by block of scratch. */
#include <math.h>
#include <stdlib.h>

#include "math/scratch.h"
#include "ops/math/vector_math.h"
#include "ops/nn/softmax.h"
#include "tensor/summarize.h"

/* ---- rows ---- */

/* In lanes, which compilers make registers of; whether there is a NaN is looked for apart. */
VECTOR_CLONES float softmax_largest(const float *x, int64_t n) {
  enum { LANES = 16 };
  float lane[LANES], top = -INFINITY;
  int odd = 0;
  int64_t i = 0;
  for (int l = 0; l < LANES; l++) lane[l] = -INFINITY;
  for (; i + LANES <= n; i += LANES)
    for (int l = 0; l < LANES; l++) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
  for (; i < n; i++) top = x[i] > top ? x[i] : top;
  for (int l = 0; l < LANES; l++) top = lane[l] > top ? lane[l] : top;
  for (i = 0; i < n; i++) odd |= x[i] != x[i];
  return odd ? NAN : top;
}
VECTOR_CLONES float softmax_shift(const float *x, float *y, int64_t n) {
  float top = softmax_largest(x, n);
  LOOP_FREE for (int64_t i = 0; i < n; i++) y[i] = x[i] - top;
  return top;
}
VECTOR_CLONES float softmax_exp_sum(const float *x, float *e, int64_t n) {
  LOOP_FREE for (int64_t i = 0; i < n; i++) e[i] = vm_exp(x[i]);
  float s[8] = {0}, rest = 0;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int l = 0; l < 8; l++) s[l] += e[i + l];
  for (; i < n; i++) rest += e[i];
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])) + rest;
}
static void shift_double(const double *x, double *y, int64_t n) {
  double top = -INFINITY;
  for (int64_t i = 0; i < n; i++) top = x[i] > top || x[i] != x[i] ? x[i] : top;
  for (int64_t i = 0; i < n; i++) y[i] = x[i] - top;
}
static double exp_sum_double(const double *x, double *e, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += e[i] = exp(x[i]);
  return sum;
}

/* y = softmax(x), or its logarithm. x and y may be the same. */
static void softmax_float(const float *x, float *y, int64_t n, bool logarithm) {
  softmax_shift(x, y, n);
  if (!logarithm) {
    float scale = 1 / softmax_exp_sum(y, y, n);
    for (int64_t i = 0; i < n; i++) y[i] *= scale;
    return;
  }
  enum { STRIP = 256 };
  float e[STRIP], sum = 0;
  for (int64_t i = 0; i < n; i += STRIP) sum += softmax_exp_sum(y + i, e, MIN(STRIP, n - i));
  float log_sum = logf(sum);
  for (int64_t i = 0; i < n; i++) y[i] -= log_sum;
}
static void softmax_double(const double *x, double *y, int64_t n, bool logarithm) {
  shift_double(x, y, n);
  if (!logarithm) {
    double scale = 1 / exp_sum_double(y, y, n);
    for (int64_t i = 0; i < n; i++) y[i] *= scale;
    return;
  }
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += exp(y[i]);
  double log_sum = log(sum);
  for (int64_t i = 0; i < n; i++) y[i] -= log_sum;
}

/* ---- Softmax, LogSoftmax ---- */

struct softmax_rows {
  shoal_dtype type;
  const char *x, *labels;
  char *y, *loss;
  int64_t classes;
  bool logarithm;
  int64_t label_step, logit_step; /* elements between rows: 0 when one row serves all */
  int64_t label_each, logit_each; /* between classes: 0 when one value serves all */
  const struct tensor *sparse;    /* labels that are classes */
};

static void softmax_rows(void *arg, int64_t begin, int64_t end) {
  const struct softmax_rows *s = arg;
  int64_t n = s->classes;
  size_t es = dtype_size(s->type);
  bool narrow = s->type == SHOAL_FLOAT16 || s->type == SHOAL_BFLOAT16;
  float *row = narrow ? scratch_get(SCRATCH_PATCH, (size_t)n * sizeof *row) : NULL;
  for (int64_t r = begin; r < end; r++) {
    const char *x = s->x + (size_t)(r * n) * es;
    char *y = s->y + (size_t)(r * n) * es;
    if (s->type == SHOAL_FLOAT32) {
      softmax_float((const float *)x, (float *)y, n, s->logarithm);
    } else if (s->type == SHOAL_FLOAT64) {
      softmax_double((const double *)x, (double *)y, n, s->logarithm);
    } else {
      nn_to_float(s->type, x, row, n);
      softmax_float(row, row, n, s->logarithm);
      nn_from_float(s->type, row, y, n);
    }
  }
}

static shoal_status softmax_init(struct kernel_init *ki, void *state) {
  *(bool *)state = op_is(ki->node->op, "LogSoftmax");
  return NULL;
}

static shoal_status softmax_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  if (x->rank < 1) return INVALID("logits must have >= 1 dimension, got %s", tensor_shape_str(x));
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  if (!y->n) return NULL;
  struct softmax_rows s = {.type = ctx_in_type(ctx, 0),
                           .x = ctx_in(ctx, 0)->data,
                           .y = y->data,
                           .classes = y->dims[y->rank - 1],
                           .logarithm = *(const bool *)ctx->state};
  pool_for(ctx_pool(ctx), y->n / s.classes, nn_grain(s.classes * 4), softmax_rows, &s);
  return NULL;
}

/* ---- cross entropies ---- */

/* x: shifted logits, also room for the result. sum(labels * (log(sum e^x) - x)) and softmax - labels. */
static float cross_float(float *x, const float *labels, float *back, int64_t n) {
  float sum = softmax_exp_sum(x, back, n), log_sum = logf(sum), scale = 1 / sum, loss = 0;
  for (int64_t i = 0; i < n; i++) {
    loss += labels[i] * (log_sum - x[i]);
    back[i] = back[i] * scale - labels[i];
  }
  return loss;
}
static double cross_double(double *x, const double *labels, double *back, int64_t n) {
  double sum = exp_sum_double(x, back, n), log_sum = log(sum), scale = 1 / sum, loss = 0;
  for (int64_t i = 0; i < n; i++) {
    loss += labels[i] * (log_sum - x[i]);
    back[i] = back[i] * scale - labels[i];
  }
  return loss;
}

/* A row of a tensor that may be broadcast, as contiguous floats (or doubles). */
static void load_row(const struct softmax_rows *s, const char *base, int64_t at, int64_t each, void *to) {
  size_t es = dtype_size(s->type);
  const char *from = base + (size_t)at * es;
  if (s->type == SHOAL_FLOAT64) {
    for (int64_t i = 0; i < s->classes; i++) ((double *)to)[i] = ((const double *)from)[i * each];
  } else if (each) {
    nn_to_float(s->type, from, to, s->classes);
  } else {
    nn_to_float(s->type, from, to, 1);
    for (int64_t i = 1; i < s->classes; i++) ((float *)to)[i] = ((const float *)to)[0];
  }
}

static void dense_rows(void *arg, int64_t begin, int64_t end) {
  const struct softmax_rows *s = arg;
  int64_t n = s->classes;
  size_t es = dtype_size(s->type), acc = s->type == SHOAL_FLOAT64 ? 8 : 4;
  char *space = scratch_get(SCRATCH_PATCH, (size_t)n * acc * 3);
  void *x = space, *labels = space + (size_t)n * acc, *back = space + (size_t)(2 * n) * acc;
  for (int64_t r = begin; r < end; r++) {
    load_row(s, s->x, r * s->logit_step, s->logit_each, x);
    load_row(s, s->labels, r * s->label_step, s->label_each, labels);
    char *y = s->y + (size_t)(r * n) * es;
    if (s->type == SHOAL_FLOAT64) {
      shift_double(x, x, n);
      ((double *)s->loss)[r] = cross_double(x, labels, (double *)y, n);
    } else {
      softmax_shift(x, x, n);
      float loss = cross_float(x, labels, back, n);
      nn_from_float(s->type, back, y, n);
      nn_from_float(s->type, &loss, s->loss + (size_t)r * es, 1);
    }
  }
}

static shoal_status dense_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *labels = ctx_in(ctx, 1);
  struct shape a = tensor_shape(x), b = tensor_shape(labels), both;
  shoal_status bad = shape_broadcast(&a, &b, &both);
  if (bad) {
    shoal_status_free(bad);
    return INVALID("logits and labels must be broadcastable: logits_size=%s labels_size=%s", shape_str(&a),
                   shape_str(&b));
  }
  if (both.rank != 2)
    return INVALID("logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional");
  struct tensor *loss, *back;
  TRY(ctx_out_dims(ctx, 0, 1, both.dims, &loss));
  TRY(ctx_out(ctx, 1, &both, &back));
  if (!loss->n) return NULL;
  if (!both.dims[1]) {
    tensor_zero(loss);
    return NULL;
  }
  struct softmax_rows s = {.type = ctx_in_type(ctx, 0),
                           .x = x->data,
                           .labels = labels->data,
                           .y = back->data,
                           .loss = loss->data,
                           .classes = both.dims[1]};
  int64_t xc = a.rank ? a.dims[a.rank - 1] : 1, lc = b.rank ? b.dims[b.rank - 1] : 1;
  s.logit_each = xc == 1 && s.classes != 1 ? 0 : 1;
  s.label_each = lc == 1 && s.classes != 1 ? 0 : 1;
  s.logit_step = a.rank == 2 && a.dims[0] != 1 ? xc : 0;
  s.label_step = b.rank == 2 && b.dims[0] != 1 ? lc : 0;
  pool_for(ctx_pool(ctx), loss->n, nn_grain(s.classes * 4), dense_rows, &s);
  return NULL;
}

static void sparse_rows(void *arg, int64_t begin, int64_t end) {
  const struct softmax_rows *s = arg;
  int64_t n = s->classes;
  size_t es = dtype_size(s->type);
  bool narrow = es == 2;
  float *space = scratch_get(SCRATCH_PATCH, (size_t)n * sizeof(float));
  for (int64_t r = begin; r < end; r++) {
    int64_t label = label_of(s->sparse, r);
    const char *x = s->x + (size_t)(r * n) * es;
    char *y = s->y + (size_t)(r * n) * es;
    if (s->type == SHOAL_FLOAT64) {
      double *back = (double *)y;
      shift_double((const double *)x, back, n);
      double at = back[label], sum = exp_sum_double(back, back, n), scale = 1 / sum;
      ((double *)s->loss)[r] = log(sum) - at;
      for (int64_t i = 0; i < n; i++) back[i] *= scale;
      back[label] -= 1;
      continue;
    }
    float *back = narrow ? space : (float *)y;
    if (narrow) nn_to_float(s->type, x, back, n);
    softmax_shift(narrow ? back : (const float *)x, back, n);
    float at = back[label], sum = softmax_exp_sum(back, back, n), scale = 1 / sum, loss = logf(sum) - at;
    for (int64_t i = 0; i < n; i++) back[i] *= scale;
    back[label] -= 1;
    if (narrow) nn_from_float(s->type, back, y, n);
    nn_from_float(s->type, &loss, s->loss + (size_t)r * es, 1);
  }
}

shoal_status sparse_check_shapes(const struct tensor *x, const struct tensor *labels) {
  if (x->rank != 2) return INVALID("logits must be 2-D, but got shape %s", tensor_shape_str(x));
  if (labels->rank != 1) return INVALID("labels must be 1-D, but got shape %s", tensor_shape_str(labels));
  if (x->dims[0] != labels->dims[0])
    return INVALID("logits and labels must have the same first dimension, got logits shape %s and labels shape %s",
                   tensor_shape_str(x), tensor_shape_str(labels));
  if (x->dims[1] <= 0) return INVALID("Must have at least one class, but got logits shape %s", tensor_shape_str(x));
  return NULL;
}

shoal_status sparse_check_labels(const struct tensor *labels, int64_t classes) {
  int64_t low = 0, high = 0;
  for (int64_t i = 0; i < labels->n; i++) {
    int64_t label = label_of(labels, i);
    low = MIN(low, label);
    high = MAX(high, label);
  }
  if (low >= 0 && high < classes) return NULL;
  struct text t = {0};
  tensor_summarize(labels, -1, false, &t);
  shoal_status bad = INVALID("Received a label value of %" PRId64 " which is outside the valid range of [0, %" PRId64
                             ").  Label values: %s",
                             low < 0 ? low : high, classes, text_cstr(&t));
  text_release(&t);
  return bad;
}

static shoal_status sparse_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *labels = ctx_in(ctx, 1);
  TRY(sparse_check_shapes(x, labels));
  TRY(sparse_check_labels(labels, x->dims[1]));
  struct softmax_rows s = {.type = ctx_in_type(ctx, 0), .classes = x->dims[1], .sparse = labels};
  struct tensor *loss, *back;
  TRY(ctx_out_dims(ctx, 0, 1, x->dims, &loss));
  TRY(ctx_out_like(ctx, 1, 0, &back));
  s.x = ctx_in(ctx, 0)->data;
  s.y = back->data;
  s.loss = loss->data;
  if (loss->n) pool_for(ctx_pool(ctx), loss->n, nn_grain(s.classes * 4), sparse_rows, &s);
  return NULL;
}

static const struct kernel_def softmax_kernels[] = {{.device = "CPU",
                                                     .type_attr = "T",
                                                     .types = DT_FLOATING,
                                                     .state_size = sizeof(bool),
                                                     .init = softmax_init,
                                                     .run = softmax_run},
                                                    {0}};
static const struct kernel_def dense_kernels[] = {
    {.device = "CPU", .type_attr = "T", .types = DT_FLOATING, .run = dense_run}, {0}};
static const struct kernel_def sparse_kernels[] = {{.device = "CPU",
                                                    .type_attr = "T",
                                                    .types = DT_FLOATING,
                                                    .type_attr2 = "Tlabels",
                                                    .types2 = DT(INT32) | DT(INT64),
                                                    .run = sparse_run},
                                                   {0}};

/* ---- shapes ---- */

static shoal_status softmax_shape(struct shape_ctx *c) { return shape_in_rank_at_least(c, 0, 1, &c->out[0]); }

static shoal_status dense_shape(struct shape_ctx *c) {
  struct shape both;
  TRY(shape_broadcast(&c->in[0], &c->in[1], &both));
  if (both.rank >= 0 && both.rank != 2)
    return INVALID("Shape must be rank 2 but is rank %d for '%s' (op: '%s') with input shapes: %s, %s.", both.rank,
                   c->node->name, c->node->op->name, shape_str(&c->in[0]), shape_str(&c->in[1]));
  if (both.rank < 0) both = shape_unknown_of_rank(2);
  c->out[0] = shape_vector(both.dims[0]);
  c->out[1] = both;
  return NULL;
}

static shoal_status sparse_shape(struct shape_ctx *c) {
  struct shape x, labels;
  TRY(shape_in_rank(c, 0, 2, &x));
  TRY(shape_in_rank(c, 1, 1, &labels));
  TRY(nn_same_dim(c, x.dims[0], labels.dims[0]));
  if (x.dims[0] < 0) x.dims[0] = labels.dims[0];
  c->out[0] = shape_vector(x.dims[0]);
  c->out[1] = x;
  return NULL;
}

/* ---- gradients ---- */

static shoal_out sum_last(struct shoal_graph *g, shoal_out x) {
  return array_sum(g, x, build_const_int(g, SHOAL_INT32, -1), true);
}

static shoal_status softmax_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out dy = grad_dy(c, 0), y = gout(c, 0);
  shoal_out centred = build_op2(g, "Sub", dy, sum_last(g, build_op2(g, "Mul", dy, y)));
  grad_set(c, 0, build_op2(g, "Mul", centred, y));
  return NULL;
}

static shoal_status log_softmax_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out dy = grad_dy(c, 0), p = build_op1(g, "Exp", gout(c, 0));
  grad_set(c, 0, build_op2(g, "Sub", dy, build_op2(g, "Mul", sum_last(g, dy), p)));
  return NULL;
}

/* The logits' gradient: each row's loss gradient times output 1, and, when output 1 itself was used, the
 * derivative of softmax. */
static shoal_out logits_grad(struct grad_ctx *c, shoal_out *each) {
  struct shoal_graph *g = c->g;
  *each = array_expand(g, grad_dy(c, 0), -1);
  shoal_out dx = build_op2(g, "Mul", *each, gout(c, 1));
  if (grad_none(c->dy[1])) return dx;
  shoal_out dd = grad_dy(c, 1), p = build_op1(g, "Softmax", gin(c, 0));
  shoal_out centred = build_op2(g, "Sub", dd, sum_last(g, build_op2(g, "Mul", dd, p)));
  return build_op2(g, "AddV2", dx, build_op2(g, "Mul", centred, p));
}

static shoal_status dense_grad(struct grad_ctx *c) {
  shoal_out each, dx = logits_grad(c, &each);
  grad_set(c, 0, dx);
  shoal_out log_p = build_op1(c->g, "LogSoftmax", gin(c, 0));
  grad_set(c, 1, build_op2(c->g, "Mul", each, build_op1(c->g, "Neg", log_p)));
  return NULL;
}

static shoal_status sparse_grad(struct grad_ctx *c) {
  shoal_out each;
  grad_set(c, 0, logits_grad(c, &each));
  return NULL;
}

static const struct op_row rows[] = {
    {"Softmax", .in = "logits: T", .out = "softmax: T", .attrs = "T: {half, bfloat16, float, double}",
     .shape = softmax_shape, .grad = softmax_grad, .kernels = softmax_kernels},
    {"LogSoftmax", .in = "logits: T", .out = "logsoftmax: T", .attrs = "T: {half, bfloat16, float, double}",
     .shape = softmax_shape, .grad = log_softmax_grad, .kernels = softmax_kernels},
    {"SoftmaxCrossEntropyWithLogits", .in = "features: T, labels: T", .out = "loss: T, backprop: T",
     .attrs = "T: {half, bfloat16, float, double}", .shape = dense_shape, .grad = dense_grad, .kernels = dense_kernels},
    {"SparseSoftmaxCrossEntropyWithLogits", .in = "features: T, labels: Tlabels", .out = "loss: T, backprop: T",
     .attrs = "T: {half, bfloat16, float, double}; Tlabels: {int32, int64} = int64", .shape = sparse_shape,
     .grad = sparse_grad, .kernels = sparse_kernels},
};
OP_FAMILY(softmax, rows);
