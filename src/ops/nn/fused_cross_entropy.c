/* _ShoalCrossEntropy: losses of logits with sparse labels, and the gradient of the logits, in one pass (made by the
 * rewrite "fuse_layers"). Logits are of any type, losses float; `each` says what a row's loss counts for. */
#include <math.h>

#include "math/scratch.h"
#include "ops/nn/softmax.h"

struct entropy_rows {
  shoal_dtype type;
  const struct tensor *labels;
  const char *x;
  const float *each;
  float *loss;
  char *dx;
  int64_t classes;
};

/* The row as float, which becomes softmax - label, times what it counts for. */
static float one_row(float *row, int64_t n, int64_t label, float each) {
  softmax_shift(row, row, n);
  float at = row[label], sum = softmax_exp_sum(row, row, n), scale = each / sum;
  for (int64_t i = 0; i < n; i++) row[i] *= scale;
  row[label] -= each;
  return logf(sum) - at;
}

static void some_rows(void *arg, int64_t begin, int64_t end) {
  const struct entropy_rows *s = arg;
  size_t size = dtype_size(s->type) * (size_t)s->classes;
  float *row = scratch_get(SCRATCH_PATCH, (size_t)s->classes * sizeof *row);
  for (int64_t r = begin; r < end; r++) {
    nn_to_float(s->type, s->x + (size_t)r * size, row, s->classes);
    s->loss[r] = one_row(row, s->classes, label_of(s->labels, r), s->each[r]);
    nn_from_float(s->type, row, s->dx + (size_t)r * size, s->classes);
  }
}

static shoal_status run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *labels = ctx_in(ctx, 1), *each = ctx_in(ctx, 2);
  struct tensor *loss, *dx;
  TRY(sparse_check_shapes(x, labels));
  if (each->n != x->dims[0]) return INVALID("a loss counts for one number, not %s", tensor_shape_str(each));
  TRY(sparse_check_labels(labels, x->dims[1]));
  TRY(ctx_out_dims(ctx, 0, 1, x->dims, &loss));
  TRY(ctx_out_like(ctx, 1, 0, &dx));
  struct entropy_rows s = {.type = ctx_in_type(ctx, 0),
                           .labels = labels,
                           .x = x->data,
                           .each = each->data,
                           .loss = loss->data,
                           .dx = dx->data,
                           .classes = x->dims[1]};
  if (loss->n) pool_for(ctx_pool(ctx), loss->n, nn_grain(s.classes * 4), some_rows, &s);
  return NULL;
}

static shoal_status shape(struct shape_ctx *c) {
  TRY(shape_in_rank(c, 0, 2, &c->out[1]));
  c->out[0] = shape_vector(c->out[1].dims[0]);
  return NULL;
}

static const struct kernel_def kernels[] = {{.device = "CPU",
                                             .type_attr = "T",
                                             .types = DT(FLOAT32) | DT(FLOAT16) | DT(BFLOAT16),
                                             .type_attr2 = "Tlabels",
                                             .types2 = DT(INT32) | DT(INT64),
                                             .run = run},
                                            {0}};

static const struct op_row rows[] = {
    {"_ShoalCrossEntropy", .flags = OP_OWN, .in = "features: T, labels: Tlabels, each: float",
     .out = "loss: float, backprop: T", .attrs = "T: {half, bfloat16, float}; Tlabels: {int32, int64}", .shape = shape,
     .kernels = kernels},
};
OP_FAMILY(fused_cross_entropy, rows);
