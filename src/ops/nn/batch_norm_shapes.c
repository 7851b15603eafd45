/* Attributes and shapes of batch normalisation, with TensorFlow's words for what does not fit. */
#include <string.h>

#include "ops/nn/batch_norm.h"

/* What stands behind the normalisation. */
static shoal_status fused_init(struct norm_state *st, const struct shoal_node *n) {
  const char *text;
  int64_t sides;
  TRY(node_get_int(n, "num_side_inputs", &sides));
  if (sides > 1) return INVALID("FusedBatchNorm accepts at most one side input.");
  st->side_inputs = (int)sides;
  if (!node_attr(n, "activation_mode")) return NULL;
  TRY(node_get_string(n, "activation_mode", &text));
  st->relu = !strcmp(text, "Relu");
  return st->relu || !strcmp(text, "Identity") ? NULL : UNIMPLEMENTED("%s: activation_mode %s", n->name, text);
}

shoal_status norm_state_init(struct norm_state *st, const struct shoal_node *n) {
  const char *text;
  TRY(node_get_float(n, "epsilon", &st->epsilon));
  TRY(node_get_bool(n, "is_training", &st->training));
  st->factor = 1;
  if (node_attr(n, "exponential_avg_factor")) TRY(node_get_float(n, "exponential_avg_factor", &st->factor));
  TRY(node_get_string(n, "data_format", &text));
  st->channels_first = text[1] == 'C';
  st->wide_rank = strlen(text) == 5;
  st->sum = op_is(n->op, "_BatchNormReluGradOfSum");
  st->relu = st->sum || op_is(n->op, "_BatchNormReluGrad");
  st->side_inputs = st->sum;
  return node_attr(n, "num_side_inputs") ? fused_init(st, n) : NULL;
}

static shoal_status check_vector(const struct tensor *t, const char *name, int64_t n) {
  if (t->rank != 1) return INVALID("%s must be 1-dimensional%s", name, tensor_shape_str(t));
  if (t->n != n)
    return INVALID("%s must have the same number of elements as the channels of x, got %" PRId64 " and %" PRId64, name,
                   t->n, n);
  return NULL;
}

static shoal_status check_image(const struct norm_state *st, const struct tensor *x, struct norm_matrix *m) {
  int rank = st->wide_rank ? 5 : 4;
  if (x->rank != rank) return INVALID("input must be %d-dimensional%s", rank, tensor_shape_str(x));
  m->channels = x->dims[st->channels_first ? 1 : rank - 1];
  m->rows = m->channels ? x->n / m->channels : 0;
  return NULL;
}

static shoal_status check_statistics(const struct kernel_ctx *ctx, const struct norm_state *st, int64_t channels) {
  const char *when = !st->training ? "When is_training=false, " : "When exponential_avg_factor != 1, ";
  if (st->training && st->factor == 1) return NULL;
  for (int i = 3; i < 5; i++)
    if (ctx_in(ctx, i)->rank != 1 || ctx_in(ctx, i)->n != channels)
      return INVALID("%s%s must have the same number of elements as the channels of x, got %" PRId64 " and %" PRId64,
                     when, i == 3 ? "mean" : "variance", ctx_in(ctx, i)->n, channels);
  return NULL;
}

shoal_status norm_check(const struct kernel_ctx *ctx, const struct norm_state *st, struct norm_matrix *m) {
  TRY(check_image(st, ctx_in(ctx, 0), m));
  TRY(check_vector(ctx_in(ctx, 1), "scale", m->channels));
  TRY(check_vector(ctx_in(ctx, 2), "offset", m->channels));
  return check_statistics(ctx, st, m->channels);
}

shoal_status norm_check_back(const struct kernel_ctx *ctx, const struct norm_state *st, struct norm_matrix *m) {
  const struct tensor *dy = ctx_in(ctx, 0), *x = ctx_in(ctx, 1);
  TRY(check_image(st, x, m));
  if (!tensor_same_shape(x, dy))
    return INVALID("x and y_backprop must have same shape, but x has shape %s and y_backprop has shape %s",
                   tensor_shape_str(x), tensor_shape_str(dy));
  TRY(check_vector(ctx_in(ctx, 2), "scale", m->channels));
  TRY(check_vector(ctx_in(ctx, 3), "mean", m->channels));
  TRY(check_vector(ctx_in(ctx, 4), "variance", m->channels));
  if (!st->relu) return NULL;
  TRY(check_vector(ctx_in(ctx, 6), "offset", m->channels));
  for (int i = 7; i < 8 + st->sum; i++)
    if (!tensor_same_shape(x, ctx_in(ctx, i)))
      return INVALID("x and y must have same shape, but x has shape %s and y has shape %s", tensor_shape_str(x),
                     tensor_shape_str(ctx_in(ctx, i)));
  return NULL;
}
