/* Stochastic dual coordinate ascent for linear models with L1 and L2: SdcaOptimizer (V2 differs in the spelling of an
 * attribute), SdcaShrinkL1 and SdcaFprint.
 *
 * One run takes a batch of examples in random order, or in one drawn by how much each has to gain ("adaptive"). For
 * each the dual variable that is best with all others fixed has a closed form, or a few steps of Newton's; the weights
 * that follow from it are the deltas that come out. Sums are in the precision that TensorFlow has them in: the logits
 * of dense features in float, all else in double. TensorFlow draws its order anew from the system each time, and so do
 * we: with examples that share features two runs differ. */
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/fingerprint.h"
#include "ops/array/array_util.h"
#include "ops/state/state.h"

/* ---- losses ---- */

/* Of one example: its label and weight, its dual before, its logit, and its norm over lambda, times the partitions. */
struct point {
  double label, weight, dual, wx, norm;
};

struct loss {
  const char *name;
  bool binary;       /* labels are 0 and 1, and count as -1 and 1 */
  double smoothness; /* of the loss's derivative, for adaptive sampling */
  double (*updated_dual)(const struct point *p);
  double (*dual_loss)(double dual, double label);
  double (*primal_loss)(double wx, double label);
  double (*derivative)(double wx, double label);
};

enum { NEWTON_STEPS = 10 };

static double logistic_dual(const struct point *p) {
  double x = 0, scale = p->norm * p->weight;
  for (int i = 0; i < NEWTON_STEPS; i++) {
    double t = tanh(x), numerator = -2 * p->label * x - p->wx - scale * (0.5 * (1 + t) / p->label - p->dual);
    x -= numerator / (-2 * p->label - scale * (1 - t * t) * 0.5 / p->label);
  }
  return 0.5 * (1 + tanh(x)) / p->label;
}
static double logistic_dual_loss(double dual, double label) {
  double ay = dual * label, rest = 1 - ay;
  return ay * (ay > 0 ? log(ay) : 0) + rest * (rest > 0 ? log(rest) : 0);
}
static double logistic_loss(double wx, double label) {
  double y = label * wx;
  return y > 0 ? log1p(exp(-y)) : log1p(exp(y)) - y;
}
static double logistic_derivative(double wx, double label) {
  double y = label * wx;
  return -(y > 0 ? exp(-y) / (1 + exp(-y)) : 1 / (1 + exp(y))) * label;
}

static double squared_dual(const struct point *p) {
  return p->dual + (p->label - p->dual - p->wx) / (1 + p->norm * p->weight);
}
static double squared_dual_loss(double dual, double label) { return dual * (0.5 * dual - label); }
static double squared_loss(double wx, double label) { return (wx - label) * (wx - label) * 0.5; }
static double squared_derivative(double wx, double label) { return wx - label; }

static double clipped(double candidate, double label) {
  return label * candidate < 0 ? 0 : label * candidate > 1 ? label : candidate;
}
static double hinge_dual(const struct point *p) {
  return clipped(p->dual + (p->label - p->wx) / (p->norm * p->weight), p->label);
}
static double hinge_dual_loss(double dual, double label) {
  double y = dual * label;
  return y < 0 || y > 1 ? DBL_MAX : -y;
}
static double hinge_loss(double wx, double label) { return fmax(0, 1 - label * wx); }
static double hinge_derivative(double wx, double label) { return label * wx < 1 ? -label : 0; }

static double smooth_dual(const struct point *p) {
  return clipped(p->dual + (p->label - p->wx - p->dual) / (p->norm * p->weight + 1), p->label);
}
static double smooth_dual_loss(double dual, double label) {
  double y = dual * label;
  return y < 0 || y > 1 ? DBL_MAX : -y + 0.5 * dual * dual;
}
static double smooth_loss(double wx, double label) {
  double y = label * wx;
  return y >= 1 ? 0 : y <= 0 ? 0.5 - y : (1 - y) * (1 - y) * 0.5;
}
static double smooth_derivative(double wx, double label) {
  return label * wx >= 1 ? 0 : label * wx <= 0 ? -label : wx - label;
}

static double poisson_dual(const struct point *p) {
  double x = p->label - p->dual > 0 ? log(p->label - p->dual) : 0, scale = p->norm * p->weight;
  for (int i = 0; i < NEWTON_STEPS; i++) {
    double e = exp(x);
    x -= (x - p->wx - scale * (p->label - p->dual - e)) / (1 + scale * e);
  }
  return p->label - exp(x);
}
static double poisson_dual_loss(double dual, double label) {
  double rest = label - dual;
  return rest == 0 ? 0 : rest < 0 ? DBL_MAX : rest * (log(rest) - 1);
}
static double poisson_loss(double wx, double label) { return exp(wx) - wx * label; }
static double poisson_derivative(double wx, double label) { return exp(wx) - label; }

static const struct loss losses[] = {
    {"logistic_loss", true, 4, logistic_dual, logistic_dual_loss, logistic_loss, logistic_derivative},
    {"squared_loss", false, 1, squared_dual, squared_dual_loss, squared_loss, squared_derivative},
    {"hinge_loss", true, 0, hinge_dual, hinge_dual_loss, hinge_loss, hinge_derivative},
    {"smooth_hinge_loss", true, 1, smooth_dual, smooth_dual_loss, smooth_loss, smooth_derivative},
    {"poisson_loss", false, 1, poisson_dual, poisson_dual_loss, poisson_loss, poisson_derivative},
};

/* A weighted loss; what is infinite stays so whatever the weight. */
static double weighed(double loss, double weight) { return loss == DBL_MAX ? loss : loss * weight; }

/* ---- the optimizer's attributes ---- */

struct sdca_state {
  const struct loss *loss;
  bool adaptive;
  int n_sparse, n_values, n_dense;
  double partitions;
  float l1, l2;
  _Atomic uint64_t draws; /* of random numbers: never the same order twice */
};

static shoal_status init_shrink(struct kernel_init *ki, void *state) {
  struct sdca_state *st = state;
  TRY(node_get_float(ki->node, "l1", &st->l1));
  return node_get_float(ki->node, "l2", &st->l2);
}

static shoal_status init(struct kernel_init *ki, void *state) {
  struct sdca_state *st = state;
  const struct shoal_node *n = ki->node;
  const char *loss;
  int64_t sparse, values, dense, partitions;
  TRY(init_shrink(ki, state));
  TRY(node_get_string(n, "loss_type", &loss));
  for (size_t i = 0; i < COUNT_OF(losses); i++)
    if (!strcmp(losses[i].name, loss)) st->loss = &losses[i];
  if (!st->loss) return INVALID("Unsupported loss type: %s", loss);
  TRY(node_get_bool(n, node_attr(n, "adaptive") ? "adaptive" : "adaptative", &st->adaptive));
  TRY(node_get_int(n, "num_sparse_features", &sparse));
  TRY(node_get_int(n, "num_sparse_features_with_values", &values));
  TRY(node_get_int(n, "num_dense_features", &dense));
  TRY(node_get_int(n, "num_loss_partitions", &partitions));
  if (sparse + dense <= 0) return INVALID("Requires at least one feature to train.");
  if (values > sparse) return INVALID("There are more sparse features with values than sparse features");
  st->n_sparse = (int)sparse;
  st->n_values = (int)values;
  st->n_dense = (int)dense;
  st->partitions = (double)partitions;
  atomic_init(&st->draws, ki->random_seed);
  return NULL;
}

/* SplitMix64: no two calls of a kernel see the same numbers. */
static uint64_t draw(struct sdca_state *st) {
  uint64_t z = atomic_fetch_add(&st->draws, 0x9e3779b97f4a7c15ull);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}
static double draw_unit(struct sdca_state *st) { return (double)(draw(st) >> 11) * 0x1p-53; }

/* ---- examples and weights ---- */

/* One group of sparse features. The entries of example e are [end[e - 1], end[e]). */
struct sparse_group {
  const float *values; /* NULL: all one */
  int64_t *end;        /* [examples] */
  int64_t *slot;       /* [entries] which weight */
  const float *weights;
  float *deltas;
};

struct dense_features {
  const float *features, *weights;
  float *deltas;
  int64_t width, n_weights;
};

struct model {
  struct sdca_state *st;
  int64_t n; /* examples */
  struct sparse_group *groups;
  struct dense_features *dense;
  const float *weights, *labels;
  float *states; /* [n, 4] dual, primal loss, dual loss, weight */
  double shrinkage;
};

struct sparse_feature {
  int64_t index, slot;
};

static int by_index(const void *x, const void *y) {
  const struct sparse_feature *a = x, *b = y;
  if (a->index != b->index) return a->index < b->index ? -1 : 1;
  return a->slot < b->slot ? -1 : a->slot > b->slot;
}

/* The last slot of an index counts; -1 when there is none. */
static int64_t find_slot(const struct sparse_feature *known, int64_t n, int64_t index) {
  int64_t low = 0, high = n;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (known[middle].index <= index) low = middle + 1;
    else high = middle;
  }
  return low && known[low - 1].index == index ? known[low - 1].slot : -1;
}

/* Finds the weights of a group's entries and cuts them by examples. memory: 2 * weights + entries + n + weights. */
static shoal_status load_group(struct sparse_group *g, const struct tensor *examples, const struct tensor *features,
                               const struct tensor *indices, int64_t n, int64_t *memory) {
  struct sparse_feature *known = (struct sparse_feature *)memory;
  int64_t *seen = memory + 2 * indices->n;
  g->end = seen + indices->n;
  g->slot = g->end + n;
  for (int64_t i = 0; i < indices->n; i++) {
    known[i] = (struct sparse_feature){int_at(indices, i), i};
    seen[i] = -1;
  }
  if (indices->n) qsort(known, (size_t)indices->n, sizeof *known, by_index);
  int64_t at = 0;
  for (int64_t e = 0; e < n; e++) {
    for (; at < examples->n && int_at(examples, at) == e; at++) {
      int64_t slot = find_slot(known, indices->n, int_at(features, at));
      if (slot < 0) return INVALID("Found sparse feature indices out of valid range: %" PRId64, int_at(features, at));
      if (seen[slot] == e) return INVALID("Duplicate index in sparse vector.");
      seen[slot] = e;
      g->slot[at] = slot;
    }
    g->end[e] = at;
  }
  return NULL;
}

static double group_value(const struct sparse_group *g, int64_t i) { return g->values ? (double)g->values[i] : 1.0; }
static int64_t group_begin(const struct sparse_group *g, int64_t e) { return e ? g->end[e - 1] : 0; }

static double shrink(const struct model *m, double w) {
  double s = fmax(fabs(w) - m->shrinkage, 0.0);
  return s > 0 ? copysign(s, w) : 0;
}
static float shrink_float(const struct model *m, float w) {
  float s = fmaxf(fabsf(w) - (float)m->shrinkage, 0.0f);
  return w > 0 ? s : w < 0 ? -s : 0;
}

static double squared_norm(const struct model *m, int64_t e) {
  double sum = 0;
  for (int j = 0; j < m->st->n_sparse; j++)
    for (int64_t i = group_begin(&m->groups[j], e); i < m->groups[j].end[e]; i++) {
      double v = group_value(&m->groups[j], i);
      sum += v * v;
    }
  for (int j = 0; j < m->st->n_dense; j++) {
    const struct dense_features *d = &m->dense[j];
    float part = 0;
    for (int64_t k = 0; k < d->width; k++) part += d->features[e * d->width + k] * d->features[e * d->width + k];
    sum += (double)part;
  }
  return sum;
}

/* The logits of example e with the weights as they are now, and as they came in. */
static void logits(const struct model *m, int64_t e, double *wx, double *before) {
  *wx = *before = 0;
  for (int j = 0; j < m->st->n_sparse; j++) {
    const struct sparse_group *g = &m->groups[j];
    for (int64_t i = group_begin(g, e); i < g->end[e]; i++) {
      float w = g->weights[g->slot[i]], now = w + g->deltas[g->slot[i]] * (float)m->st->partitions;
      *before += group_value(g, i) * shrink(m, (double)w);
      *wx += group_value(g, i) * shrink(m, (double)now);
    }
  }
  for (int j = 0; j < m->st->n_dense; j++) {
    const struct dense_features *d = &m->dense[j];
    const float *x = d->features + e * d->width;
    float was = 0, now = 0;
    for (int64_t k = 0; k < d->width; k++) {
      was += x[k] * shrink_float(m, d->weights[k]);
      now += x[k] * shrink_float(m, d->weights[k] + d->deltas[k] * (float)m->st->partitions);
    }
    *before += (double)was;
    *wx += (double)now;
  }
}

static void add_deltas(struct model *m, int64_t e, double by) {
  for (int j = 0; j < m->st->n_sparse; j++) {
    struct sparse_group *g = &m->groups[j];
    for (int64_t i = group_begin(g, e); i < g->end[e]; i++) {
      float *d = &g->deltas[g->slot[i]];
      *d = (float)((double)*d + group_value(g, i) * by);
    }
  }
  for (int j = 0; j < m->st->n_dense; j++) {
    struct dense_features *d = &m->dense[j];
    for (int64_t k = 0; k < d->width; k++) d->deltas[k] += d->features[e * d->width + k] * (float)by;
  }
}

static shoal_status label_of(const struct model *m, int64_t e, double *label) {
  *label = (double)m->labels[e];
  if (m->st->loss->binary) {
    if (*label != 0 && *label != 1)
      return INVALID("Only labels of 0.0 or 1.0 are supported right now. Found example with label: %g", *label);
    *label = *label == 0 ? -1 : 1;
  } else if (m->st->loss->derivative == poisson_derivative && *label < 0) {
    return INVALID("Only non-negative labels can be used with the Poisson log loss. Found example with label: %g",
                   *label);
  }
  return NULL;
}

static shoal_status train_one(struct model *m, int64_t e) {
  const struct loss *loss = m->st->loss;
  float *state = m->states + 4 * e;
  struct point p = {.weight = (double)m->weights[e], .dual = (double)state[0]};
  double before, l2 = (double)m->st->l2;
  TRY(label_of(m, e, &p.label));
  logits(m, e, &p.wx, &before);
  p.norm = m->st->partitions * (squared_norm(m, e) / l2);
  double dual = loss->updated_dual(&p);
  add_deltas(m, e, (dual - p.dual) * p.weight / l2);
  state[0] = (float)dual;
  state[1] = (float)weighed(loss->primal_loss(before, p.label), p.weight);
  state[2] = (float)weighed(loss->dual_loss(p.dual, p.label), p.weight);
  state[3] = m->weights[e];
  return NULL;
}

/* ---- the order ---- */

static void shuffled(struct sdca_state *st, int64_t *order, int64_t n) {
  for (int64_t i = 0; i < n; i++) order[i] = i;
  for (int64_t i = n - 1; i > 0; i--) {
    int64_t k = (int64_t)(draw(st) % (uint64_t)(i + 1)), t = order[i];
    order[i] = order[k];
    order[k] = t;
  }
}

/* By what each example has to gain; one that was picked k times is kept with probability 10^-k. After as many refusals
 * as there are examples those not seen yet fill the rest. */
static shoal_status by_gain(struct model *m, int64_t *order, double *upto, int64_t *picked) {
  double sum = 0;
  for (int64_t e = 0; e < m->n; e++) {
    double label, wx, before;
    TRY(label_of(m, e, &label));
    logits(m, e, &wx, &before);
    double gap = fabs((double)m->states[4 * e] + m->st->loss->derivative(wx, label));
    double gain = (double)m->weights[e] * sqrt(squared_norm(m, e) + (double)m->st->l2 * m->st->loss->smoothness) * gap;
    sum += gain > 0 && isfinite(gain) ? gain : 0;
    upto[e] = sum;
    picked[e] = 0;
  }
  int64_t n = 0;
  for (int64_t refused = 0; sum > 0 && n < m->n && refused < m->n;) {
    double at = draw_unit(m->st) * sum;
    int64_t low = 0, high = m->n - 1;
    while (low < high) {
      int64_t middle = low + (high - low) / 2;
      if (upto[middle] > at) high = middle;
      else low = middle + 1;
    }
    if (draw_unit(m->st) > pow(0.1, (double)picked[low])) {
      refused++;
      continue;
    }
    picked[low]++;
    order[n++] = low;
  }
  for (int64_t e = 0; e < m->n && n < m->n; e++)
    if (!picked[e]) order[n++] = e;
  for (int64_t e = 0; n < m->n; e++) order[n++] = e; /* all were seen: from the first on once more */
  return NULL;
}

/* ---- the kernel ---- */

/* Inputs: sparse_example_indices, sparse_feature_indices [s each], values [v], dense_features [d], example_weights,
 * example_labels, sparse_indices, sparse_weights [s each], dense_weights [d], example_state_data. */
static shoal_status check(const struct kernel_ctx *ctx, const struct sdca_state *st) {
  int s = st->n_sparse, v = st->n_values, d = st->n_dense, weights = 2 * s + v + d;
  int64_t n = ctx_in(ctx, weights)->n;
  if (ctx_in(ctx, weights + 1)->n != n)
    return INVALID("Expected %" PRId64 " example labels but got %" PRId64, n, ctx_in(ctx, weights + 1)->n);
  for (int j = 0; j < d; j++) {
    const struct tensor *x = ctx_in(ctx, 2 * s + v + j), *w = ctx_in(ctx, weights + 2 + 2 * s + j);
    if (x->rank != 2) return INVALID("Dense features at index %d must be rank 2 but is rank %d", j, x->rank);
    if (x->dims[0] != n) return INVALID("Dense features at index %d are of %" PRId64 " examples", j, x->dims[0]);
    if (x->dims[1] > w->n || x->dims[1] == 0)
      return INVALID("More dense features than we have parameters for: %" PRId64, x->dims[1]);
  }
  for (int j = 0; j < s; j++) {
    const struct tensor *e = ctx_in(ctx, j), *f = ctx_in(ctx, s + j);
    if (e->n != f->n) return INVALID("Found mismatched example_indices and feature_indices");
    if (j < v && ctx_in(ctx, 2 * s + j)->n != f->n) return INVALID("Found mismatched feature_indices and values");
    if (ctx_in(ctx, weights + 2 + j)->n != ctx_in(ctx, weights + 2 + s + j)->n)
      return INVALID("sparse_indices and sparse_weights must have the same length");
  }
  const struct tensor *state = ctx_in(ctx, ctx->kernel->n_in - 1);
  if (state->rank != 2) return INVALID("example_state_data must be rank 2 but is rank %d", state->rank);
  if (state->dims[0] != n || state->dims[1] != 4)
    return INVALID("Expected shape [%" PRId64 ",4] for example_state_data, got %s", n, tensor_shape_str(state));
  return NULL;
}

static shoal_status train(struct kernel_ctx *ctx, struct model *m, int64_t *memory) {
  struct sdca_state *st = m->st;
  int s = st->n_sparse, v = st->n_values, weights = 2 * s + v + st->n_dense;
  int64_t *order = memory, *next = memory + 3 * m->n;
  for (int j = 0; j < s; j++) {
    const struct tensor *indices = ctx_in(ctx, weights + 2 + j);
    TRY(load_group(&m->groups[j], ctx_in(ctx, j), ctx_in(ctx, s + j), indices, m->n, next));
    next += 3 * indices->n + m->n + ctx_in(ctx, j)->n;
  }
  if (st->adaptive) TRY(by_gain(m, order, (double *)(memory + m->n), memory + 2 * m->n));
  else shuffled(st, order, m->n);
  for (int64_t i = 0; i < m->n; i++) TRY(train_one(m, order[i]));
  return NULL;
}

static shoal_status set_up(struct kernel_ctx *ctx, struct model *m) {
  struct sdca_state *st = m->st;
  int s = st->n_sparse, v = st->n_values, d = st->n_dense, weights = 2 * s + v + d;
  struct tensor *out;
  for (int j = 0; j < s + d; j++) {
    const struct tensor *w = ctx_in(ctx, weights + 2 + s + j);
    struct shape shape = tensor_shape(w);
    TRY(ctx_out(ctx, 1 + j, &shape, &out));
    tensor_zero(out);
    if (j < s) {
      m->groups[j].weights = w->data;
      m->groups[j].deltas = out->data;
      m->groups[j].values = j < v ? ctx_in(ctx, 2 * s + j)->data : NULL;
    } else {
      const struct tensor *x = ctx_in(ctx, 2 * s + v + j - s);
      m->dense[j - s] = (struct dense_features){x->data, w->data, out->data, x->dims[1], w->n};
    }
  }
  struct tensor states;
  TRY(tensor_copy(&states, ctx_in(ctx, ctx->kernel->n_in - 1)));
  m->states = states.data;
  ctx_set(ctx, 0, &states);
  return NULL;
}

static shoal_status run(struct kernel_ctx *ctx) {
  struct sdca_state *st = ctx->state;
  TRY(check(ctx, st));
  int s = st->n_sparse, weights = 2 * s + st->n_values + st->n_dense;
  struct model m = {.st = st,
                    .n = ctx_in(ctx, weights)->n,
                    .weights = ctx_in(ctx, weights)->data,
                    .labels = ctx_in(ctx, weights + 1)->data,
                    .shrinkage = (double)(st->l1 / st->l2)};
  int64_t room = 3 * m.n;
  for (int j = 0; j < s; j++) room += 3 * ctx_in(ctx, weights + 2 + j)->n + m.n + ctx_in(ctx, j)->n;
  struct shape shape = shape_vector(room);
  struct tensor memory;
  TRY(ctx_temp(ctx, SHOAL_INT64, &shape, &memory));
  m.groups = mem_zalloc((size_t)s + 1, sizeof *m.groups);
  m.dense = mem_zalloc((size_t)st->n_dense + 1, sizeof *m.dense);
  shoal_status bad = set_up(ctx, &m);
  if (!bad) bad = train(ctx, &m, memory.data);
  free(m.groups);
  free(m.dense);
  tensor_release(&memory);
  return bad;
}

static shoal_status shape_optimizer(struct shape_ctx *c) {
  int first = 0, n = 0, dense_first = 0, dense_n = 0;
  node_in_range(c->node, "sparse_weights", &first, &n);
  node_in_range(c->node, "dense_weights", &dense_first, &dense_n);
  c->out[0] = shape_matrix(-1, 4);
  for (int i = 0; i < n; i++) c->out[1 + i] = c->in[first + i];
  for (int i = 0; i < dense_n; i++) c->out[1 + n + i] = c->in[dense_first + i];
  return NULL;
}

/* ---- SdcaShrinkL1, SdcaFprint ---- */

static shoal_status run_shrink(struct kernel_ctx *ctx) {
  const struct sdca_state *st = ctx->state;
  struct model m = {.shrinkage = (double)(st->l1 / st->l2)};
  for (int i = 0; i < ctx->kernel->n_in; i++) {
    struct variable *v = ctx_ref(ctx, i);
    pthread_rwlock_wrlock(&v->lock);
    shoal_status s = tensor_valid(&v->value) ? state_sparse_access(ctx, i, v)
                                             : STATUS(SHOAL_FAILED_PRECONDITION, "weights are not initialized");
    float *w = s ? NULL : v->value.data;
    for (int64_t k = 0; !s && k < v->value.n; k++) w[k] = shrink_float(&m, w[k]);
    pthread_rwlock_unlock(&v->lock);
    if (s) return s;
  }
  return NULL;
}

static shoal_status run_fprint(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  if (x->rank != 1) return INVALID("Input must be a vector, got shape %s", tensor_shape_str(x));
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 2, (int64_t[]){x->n, 2}, &out));
  uint64_t *to = out->data;
  for (int64_t i = 0; i < x->n; i++, to += 2) {
    const struct str *s = &T_DATA(x, const struct str)[i];
    fingerprint128(str_data(s), s->size, &to[0], &to[1]);
    if (to[0] < 2) to[0] += ~UINT64_C(1); /* 0 and 1 mark empty places of tables */
  }
  return NULL;
}

static shoal_status shape_fprint(struct shape_ctx *c) {
  struct shape s;
  TRY(shape_in_rank(c, 0, 1, &s));
  c->out[0] = shape_matrix(s.dims[0], 2);
  return NULL;
}

/* ---- rows ---- */

static const struct kernel_def kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct sdca_state), .init = init, .run = run}, {0}};

#define OPTIMIZER(spelling)                                                                                          \
  .in =                                                                                                              \
      "sparse_example_indices: num_sparse_features * int64, sparse_feature_indices: num_sparse_features * int64, "   \
      "sparse_feature_values: num_sparse_features_with_values * float, dense_features: num_dense_features * float, " \
      "example_weights: float, example_labels: float, sparse_indices: num_sparse_features * int64, sparse_weights: " \
      "num_sparse_features * float, dense_weights: num_dense_features * float, example_state_data: float",           \
  .out =                                                                                                             \
      "out_example_state_data: float, out_delta_sparse_weights: num_sparse_features * float, "                       \
      "out_delta_dense_weights: num_dense_features * float",                                                         \
  .attrs =                                                                                                           \
      "loss_type: {'logistic_loss', 'squared_loss', 'hinge_loss', 'smooth_hinge_loss', 'poisson_loss'}; " spelling   \
      ": bool = false; num_sparse_features: int >= 0; num_sparse_features_with_values: int >= 0; "                   \
      "num_dense_features: int >= 0; l1: float; l2: float; num_loss_partitions: int >= 1; num_inner_iterations: "    \
      "int >= 1",                                                                                                    \
  .flags = OP_NO_GRADIENT, .shape = shape_optimizer, .kernels = kernels

static const struct op_row rows[] = {
    {.name = "SdcaOptimizer", OPTIMIZER("adaptative")},
    {.name = "SdcaOptimizerV2", OPTIMIZER("adaptive")},
    {.name = "SdcaShrinkL1",
     .in = "weights: Ref(num_features * float)",
     .attrs = "num_features: int >= 0; l1: float; l2: float",
     .flags = OP_NO_GRADIENT,
     .shape = shape_no_outputs,
     .kernels =
         (const struct kernel_def[]){
             {.device = "CPU", .state_size = sizeof(struct sdca_state), .init = init_shrink, .run = run_shrink}, {0}}},
    {.name = "SdcaFprint",
     .in = "input: string",
     .out = "output: int64",
     .flags = OP_NO_GRADIENT,
     .shape = shape_fprint,
     .kernels = (const struct kernel_def[]){{.device = "CPU", .run = run_fprint}, {0}}},
};
OP_FAMILY(sdca, rows);
