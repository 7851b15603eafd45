/* Connectionist temporal classification: the loss with its gradient. ctc_decode.c has the decoders.
 *
 * Labels are seen with blanks between them, before and after: l' of 2U + 1 places. Forward and backward variables are
 * kept as logarithms in double. The blank is the last class. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/nn/ctc.h"

struct ctc_state {
  bool collapse, merge, ignore_longer;
};

static shoal_status loss_init(struct kernel_init *ki, void *state) {
  struct ctc_state *st = state;
  TRY(node_get_bool(ki->node, "preprocess_collapse_repeated", &st->collapse));
  TRY(node_get_bool(ki->node, "ctc_merge_repeated", &st->merge));
  return node_get_bool(ki->node, "ignore_longer_outputs_than_inputs", &st->ignore_longer);
}

/* ---- one sequence ---- */

struct ctc_sequence {
  const struct ctc_state *st;
  int64_t time, classes, places; /* places of l' */
  const int *label;              /* l' */
  const double *log_y;           /* [time][classes] */
  double *alpha, *beta;          /* [time][places] */
};

/* Place u may be reached from u - 2: it is no blank, and not the same label again (which would be merged). */
static bool skips(const struct ctc_sequence *s, int64_t u, int blank) {
  return u > 1 && s->label[u] != blank && !(s->st->merge && s->label[u] == s->label[u - 2]);
}
/* A place may last: blanks always, labels only where repetitions are merged. */
static bool stays(const struct ctc_sequence *s, int64_t u, int blank) { return s->st->merge || s->label[u] == blank; }

static double forward_backward(const struct ctc_sequence *s, int blank) {
  int64_t n = s->places;
  for (int64_t i = 0; i < s->time * n; i++) s->alpha[i] = s->beta[i] = -INFINITY;
  for (int64_t u = 0; u < MIN(2, n); u++) s->alpha[u] = s->log_y[s->label[u]];
  for (int64_t t = 1; t < s->time; t++)
    for (int64_t u = 0; u < n; u++) {
      const double *before = s->alpha + (t - 1) * n;
      double sum = stays(s, u, blank) ? before[u] : -INFINITY;
      if (u > 0) sum = ctc_log_add(sum, before[u - 1]);
      if (skips(s, u, blank)) sum = ctc_log_add(sum, before[u - 2]);
      s->alpha[t * n + u] = sum + s->log_y[t * s->classes + s->label[u]];
    }
  for (int64_t u = MAX(0, n - 2); u < n; u++) s->beta[(s->time - 1) * n + u] = 0;
  for (int64_t t = s->time - 2; t >= 0; t--)
    for (int64_t u = 0; u < n; u++) {
      const double *after = s->beta + (t + 1) * n, *y = s->log_y + (t + 1) * s->classes;
      double sum = stays(s, u, blank) ? after[u] + y[s->label[u]] : -INFINITY;
      if (u + 1 < n) sum = ctc_log_add(sum, after[u + 1] + y[s->label[u + 1]]);
      if (u + 2 < n && skips(s, u + 2, blank)) sum = ctc_log_add(sum, after[u + 2] + y[s->label[u + 2]]);
      s->beta[t * n + u] = sum;
    }
  double p = -INFINITY;
  for (int64_t u = 0; u < n; u++) p = ctc_log_add(p, s->alpha[u] + s->beta[u]);
  return p;
}

/* ---- the loss ---- */

static shoal_status check_loss(const struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *at = ctx_in(ctx, 1), *v = ctx_in(ctx, 2), *len = ctx_in(ctx, 3);
  if (x->rank != 3) return INVALID("inputs is not a 3-Tensor");
  if (len->rank != 1) return INVALID("sequence_length is not a vector");
  if (at->rank != 2) return INVALID("labels_indices is not a matrix");
  if (at->dims[1] <= 1) return INVALID("labels_indices second dimension must be >= 1. Received %" PRId64, at->dims[1]);
  if (v->rank != 1) return INVALID("labels_values is not a vector");
  if (!x->dims[0]) return INVALID("Max time or first dimension of input cannot be 0.");
  if (x->dims[2] < 1 || x->dims[2] > INT_MAX) return INVALID("num_classes cannot exceed max int");
  if (x->dims[1] != len->dims[0])
    return INVALID("len(sequence_length) != batch_size.  len(sequence_length):  %" PRId64 " batch_size: %" PRId64,
                   len->dims[0], x->dims[1]);
  if (at->dims[0] != v->dims[0])
    return INVALID("labels_indices and labels_values must contain the same number of rows, but saw shapes: %s vs. %s",
                   tensor_shape_str(at), tensor_shape_str(v));
  if (!x->dims[1]) return INVALID("batch_size must not be 0");
  for (int64_t b = 0; b < x->dims[1]; b++) {
    int32_t n = T_DATA(len, const int32_t)[b];
    if (n < 0 || n > x->dims[0]) return INVALID("sequence_length(%" PRId64 ") <= %" PRId64, b, x->dims[0]);
  }
  int64_t last = 0;
  for (int64_t i = 0; i < at->dims[0]; i++) {
    int64_t b = T_DATA(at, const int64_t)[i * at->dims[1]];
    int32_t label = T_DATA(v, const int32_t)[i];
    if (b < 0 || b >= x->dims[1])
      return INVALID("labels batch index must be between 0 and %" PRId64 " but saw: %" PRId64, x->dims[1], b);
    if (b < last) return INVALID("label SparseTensor is not valid: indices[%" PRId64 "] is out of order", i);
    last = b;
    if (label < 0 || label >= x->dims[2] - 1)
      return INVALID("Saw a non-null label (index >= num_classes - 1) following a null label, batch: %" PRId64
                     " num_classes: %" PRId64 " labels: %d",
                     b, x->dims[2], label);
  }
  return NULL;
}

/* l' of sequence b, into out (room for 2n + 1); gives its length and the least time it needs, repetitions
 * not counted: where they do not fit, no path is possible and the loss is infinite. */
static int64_t with_blanks(const struct ctc_state *st, const int32_t *label, int64_t n, int blank, int *out,
                           int64_t *need) {
  int64_t k = 0;
  *need = 0;
  out[k++] = blank;
  for (int64_t i = 0; i < n; i++) {
    if (st->collapse && i && label[i] == label[i - 1]) continue;
    ++*need;
    out[k++] = label[i];
    out[k++] = blank;
  }
  return k;
}

/* Loss and gradient of sequence b, whose labels are given. */
static shoal_status run_one(struct kernel_ctx *ctx, int64_t b, const int32_t *label, int64_t n, struct tensor *loss,
                            struct tensor *grad) {
  const struct ctc_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  int64_t time = T_DATA(ctx_in(ctx, 3), const int32_t)[b], batch = x->dims[1], classes = x->dims[2], need;
  int blank = (int)classes - 1;
  if (!time) return NULL;
  struct buffer *places, *room;
  TRY(buffer_new((size_t)(2 * n + 1) * sizeof(int), &places));
  int *all = places->data;
  struct ctc_sequence s = {.st = st, .time = time, .classes = classes, .label = all};
  s.places = with_blanks(st, label, n, blank, all, &need);
  if (need > time) {
    buffer_unref(places);
    if (st->ignore_longer) return NULL;
    return INVALID("Not enough time for target transition sequence (required: %" PRId64 ", available: %" PRId64
                   ")%" PRId64
                   "You can turn this error into a warning by using the flag ignore_longer_outputs_than_inputs",
                   need, time, b);
  }
  int64_t doubles;
  if (mul_overflows(time, classes + 2 * s.places, &doubles) || doubles > INT64_MAX / 16) {
    buffer_unref(places);
    return INVALID("CTC labels are too long: %" PRId64, n);
  }
  shoal_status bad = buffer_new((size_t)(doubles + classes) * sizeof(double), &room);
  if (bad) {
    buffer_unref(places);
    return bad;
  }
  double *log_y = room->data, *sum = log_y + doubles;
  for (int64_t t = 0; t < time; t++) ctc_log_softmax(x, (t * batch + b) * classes, classes, log_y + t * classes);
  s.log_y = log_y;
  s.alpha = log_y + time * classes;
  s.beta = s.alpha + time * s.places;
  double p = forward_backward(&s, blank);
  ctc_put(loss, b, -p);
  for (int64_t t = 0; t < time; t++) {
    for (int64_t c = 0; c < classes; c++) sum[c] = -INFINITY;
    for (int64_t u = 0; u < s.places; u++)
      sum[all[u]] = ctc_log_add(sum[all[u]], s.alpha[t * s.places + u] + s.beta[t * s.places + u]);
    for (int64_t c = 0; c < classes; c++) {
      double y = exp(log_y[t * classes + c]), used = p == -INFINITY ? 0 : exp(sum[c] - p);
      ctc_put(grad, (t * batch + b) * classes + c, y - used);
    }
  }
  buffer_unref(room);
  buffer_unref(places);
  return NULL;
}

static shoal_status loss_run(struct kernel_ctx *ctx) {
  TRY(check_loss(ctx));
  const struct tensor *x = ctx_in(ctx, 0), *at = ctx_in(ctx, 1), *v = ctx_in(ctx, 2);
  struct shape s = tensor_shape(x);
  struct tensor *loss, *grad;
  TRY(ctx_out_dims(ctx, 0, 1, &x->dims[1], &loss));
  TRY(ctx_out(ctx, 1, &s, &grad));
  tensor_zero(loss);
  tensor_zero(grad);
  int64_t i = 0;
  for (int64_t b = 0; b < x->dims[1]; b++) {
    int64_t first = i;
    while (i < at->dims[0] && T_DATA(at, const int64_t)[i * at->dims[1]] == b) i++;
    TRY(run_one(ctx, b, T_DATA(v, const int32_t) + first, i - first, loss, grad));
  }
  return NULL;
}

static const struct kernel_def loss_kernels[] = {{.device = "CPU",
                                                  .type_attr = "T",
                                                  .types = DT(FLOAT32) | DT(FLOAT64),
                                                  .state_size = sizeof(struct ctc_state),
                                                  .init = loss_init,
                                                  .run = loss_run},
                                                 {0}};

static shoal_status loss_shape(struct shape_ctx *c) {
  struct shape x, len;
  TRY(shape_in_rank(c, 0, 3, &x));
  TRY(shape_in_rank(c, 3, 1, &len));
  TRY(nn_same_dim(c, x.dims[1], len.dims[0]));
  if (x.dims[1] < 0) x.dims[1] = len.dims[0];
  c->out[0] = shape_vector(x.dims[1]);
  c->out[1] = x;
  return NULL;
}

/* Each sequence's loss gradient times the gradient made with the loss: [batch] against [time, batch, classes]. */
static shoal_status loss_grad(struct grad_ctx *c) {
  shoal_out each = array_expand(c->g, grad_dy(c, 0), -1);
  grad_set(c, 0, build_op2(c->g, "Mul", each, gout(c, 1)));
  return NULL;
}

static const struct op_row rows[] = {
    {"CTCLoss", .in = "inputs: T, labels_indices: int64, labels_values: int32, sequence_length: int32",
     .out = "loss: T, gradient: T",
     .attrs = "preprocess_collapse_repeated: bool = false; ctc_merge_repeated: bool = true; "
              "ignore_longer_outputs_than_inputs: bool = false; T: {float, double} = float",
     .shape = loss_shape, .grad = loss_grad, .kernels = loss_kernels},
};
OP_FAMILY(ctc, rows);
