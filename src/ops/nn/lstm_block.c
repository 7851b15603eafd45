/* Recurrent cells as one op: LSTMBlockCell, a step of an LSTM; BlockLSTM, all steps of a sequence; GRUBlockCell; and
 * their gradients. Half is computed with as float.
 *
 * Gates stand side by side in one product [x, h] w + b: input, cell, forget, output; BlockLSTMV2 has cell and forget
 * exchanged, and no forget bias. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "math/gemm.h"
#include "ops/image/image.h"
#include "ops/nn/nn_util.h"

/* ---- memory: every operand as floats ---- */

enum { MAX_ARGS = 18 };

struct floats {
  struct tensor in[MAX_ARGS];
  struct buffer *scratch; /* all that a kernel needs besides */
};

/* n zeros, counted as tensors are: there are as many of them as of results. */
static shoal_status zeros(int64_t n, struct buffer **out) {
  TRY(buffer_new((size_t)n * sizeof(float), out));
  memset((*out)->data, 0, (size_t)n * sizeof(float));
  return NULL;
}

static void release(struct floats *f) {
  for (int i = 0; i < MAX_ARGS; i++)
    if (tensor_valid(&f->in[i])) tensor_release(&f->in[i]);
  buffer_unref(f->scratch);
}

/* Inputs from `first` on, in their places; and scratch. */
static shoal_status load(const struct kernel_ctx *ctx, int first, int64_t scratch, struct floats *f) {
  *f = (struct floats){0};
  shoal_status s = zeros(scratch, &f->scratch);
  for (int i = first; !s && i < ctx->kernel->n_in; i++) s = image_floats(ctx_in(ctx, i), &f->in[i]);
  if (s) release(f);
  return s;
}

static const float *in_at(const struct floats *f, int i) { return f->in[i].data; }

/* Outputs are made as floats and stored at the end. */
static void store(struct kernel_ctx *ctx, int n, float *const *from) {
  for (int i = 0; i < n; i++) image_store(from[i], &ctx->out[i]);
}

/* c = a b (+ c): a is [m, k] or, transposed, [k, m]; likewise b. */
static shoal_status multiply(struct pool *pool, const float *a, bool ta, const float *b, bool tb, float *c, int64_t m,
                             int64_t n, int64_t k, bool add) {
  struct gemm g = {.m = m,
                   .n = n,
                   .k = k,
                   .a = {.data = a, .type = SHOAL_FLOAT32, .ld = ta ? m : k, .trans = ta},
                   .b = {.data = b, .type = SHOAL_FLOAT32, .ld = tb ? k : n, .trans = tb},
                   .c = c,
                   .type = SHOAL_FLOAT32,
                   .ldc = n,
                   .accumulate = add};
  return gemm_run(pool, &g);
}

static float sigmoid(float v) { return 1 / (1 + expf(-v)); }

/* ---- LSTM ---- */

struct lstm {
  float forget_bias, clip;
  bool peephole, swapped; /* swapped: cell and forget */
  int64_t steps, batch, inputs, cells;
};

static shoal_status lstm_init(struct kernel_init *ki, void *state) {
  struct lstm *l = state;
  if (node_attr(ki->node, "forget_bias")) TRY(node_get_float(ki->node, "forget_bias", &l->forget_bias));
  if (node_attr(ki->node, "cell_clip")) TRY(node_get_float(ki->node, "cell_clip", &l->clip));
  l->swapped = op_is(ki->node->op, "BlockLSTMV2") || op_is(ki->node->op, "BlockLSTMGradV2");
  return node_get_bool(ki->node, "use_peephole", &l->peephole);
}

static shoal_status want(const struct kernel_ctx *ctx, int i, const char *name, int rank, int64_t a, int64_t b,
                         int64_t c) {
  const struct tensor *t = ctx_in(ctx, i);
  struct shape s = {.rank = rank, .dims = {a, b, c}};
  struct shape have = tensor_shape(t);
  if (!shape_equal(&s, &have)) return INVALID("%s must have shape %s, has %s", name, shape_str(&s), shape_str(&have));
  return NULL;
}

/* x, cs_prev, h_prev, w, wci, wcf, wco, b from input `at` on. */
static shoal_status lstm_sizes(const struct kernel_ctx *ctx, int at, struct lstm *l) {
  const struct tensor *x = ctx_in(ctx, at), *cs = ctx_in(ctx, at + 1);
  int rank = at ? 3 : 2; /* a sequence has its length first */
  if (x->rank != rank) return INVALID("x must be %dD", rank);
  if (cs->rank != 2) return INVALID("cs_prev must be 2D");
  l->steps = at ? x->dims[0] : 1;
  l->batch = x->dims[rank - 2];
  l->inputs = x->dims[rank - 1];
  l->cells = cs->dims[1];
  TRY(want(ctx, at + 1, "cs_prev", 2, l->batch, l->cells, 0));
  TRY(want(ctx, at + 2, "h_prev", 2, l->batch, l->cells, 0));
  TRY(want(ctx, at + 3, "w", 2, l->inputs + l->cells, 4 * l->cells, 0));
  TRY(want(ctx, at + 7, "b", 1, 4 * l->cells, 0, 0));
  for (int i = 4; l->peephole && i < 7; i++) TRY(want(ctx, at + i, "A peephole's weights", 1, l->cells, 0, 0));
  return NULL;
}

/* [x, h] side by side. */
static void join(const struct lstm *l, const float *x, const float *h, float *xh) {
  for (int64_t b = 0; b < l->batch; b++, xh += l->inputs + l->cells) {
    memcpy(xh, x + b * l->inputs, (size_t)l->inputs * sizeof *xh);
    memcpy(xh + l->inputs, h + b * l->cells, (size_t)l->cells * sizeof *xh);
  }
}

/* out: i, cs, f, o, ci, co, h of one step. p: wci, wcf, wco. */
static shoal_status lstm_step(struct pool *pool, const struct lstm *l, const float *x, const float *cs_prev,
                              const float *h_prev, const float *w, const float *const p[3], const float *bias,
                              float *xh, float *gates, float *const out[7]) {
  int64_t n = l->cells;
  join(l, x, h_prev, xh);
  TRY(multiply(pool, xh, false, w, false, gates, l->batch, 4 * n, l->inputs + n, false));
  for (int64_t b = 0; b < l->batch; b++)
    for (int64_t k = 0; k < n; k++) {
      const float *g = gates + b * 4 * n + k;
      int64_t at = b * n + k, c_at = l->swapped ? 2 * n : n, f_at = l->swapped ? n : 2 * n;
      float before = cs_prev[at], gi = g[0] + bias[k], gf = g[f_at] + bias[f_at + k] + l->forget_bias;
      float go = g[3 * n] + bias[3 * n + k];
      if (l->peephole) gi += before * p[0][k], gf += before * p[1][k];
      float i = sigmoid(gi), ci = tanhf(g[c_at] + bias[c_at + k]), f = sigmoid(gf), cs = i * ci + f * before;
      if (l->clip > 0) cs = fmaxf(fminf(cs, l->clip), -l->clip);
      if (l->peephole) go += cs * p[2][k];
      float o = sigmoid(go), co = tanhf(cs);
      out[0][at] = i, out[1][at] = cs, out[2][at] = f, out[3][at] = o, out[4][at] = ci, out[5][at] = co;
      out[6][at] = o * co;
    }
  return NULL;
}

/* How many steps there are to make. */
static shoal_status sequence_length(const struct kernel_ctx *ctx, int64_t steps, int64_t *n) {
  if (ctx_in(ctx, 0)->rank) return INVALID("`seq_len_max` must be rank 0 but is rank %d", ctx_in(ctx, 0)->rank);
  *n = int_at(ctx_in(ctx, 0), 0);
  if (*n < 0 || *n > steps) return INVALID("seq_len_max is %" PRId64 ", x has %" PRId64 " steps", *n, steps);
  return NULL;
}

/* at: 0 for a cell, 1 for a sequence. */
static shoal_status lstm_forward(struct kernel_ctx *ctx, int at) {
  struct lstm l = *(const struct lstm *)ctx->state;
  int64_t n = 1;
  TRY(lstm_sizes(ctx, at, &l));
  if (at) TRY(sequence_length(ctx, l.steps, &n));
  struct tensor *y;
  for (int i = 0; i < 7; i++) TRY(ctx_out_dims(ctx, i, at ? 3 : 2, &(int64_t[]){l.steps, l.batch, l.cells}[!at], &y));
  struct floats f;
  int64_t one = l.batch * l.cells, all = l.steps * one, row = l.batch * (l.inputs + 5 * l.cells);
  TRY(load(ctx, at, 7 * all + row, &f));
  float *out[7], *scratch = f.scratch->data, *xh = scratch + 7 * all, *gates = xh + l.batch * (l.inputs + l.cells);
  for (int i = 0; i < 7; i++) out[i] = scratch + i * all;
  const float *p[3] = {in_at(&f, at + 4), in_at(&f, at + 5), in_at(&f, at + 6)};
  shoal_status s = NULL;
  for (int64_t t = 0; t < n && !s && one; t++) {
    float *step[7];
    for (int i = 0; i < 7; i++) step[i] = out[i] + t * one;
    s = lstm_step(ctx_pool(ctx), &l, in_at(&f, at) + t * l.batch * l.inputs, t ? step[1] - one : in_at(&f, at + 1),
                  t ? step[6] - one : in_at(&f, at + 2), in_at(&f, at + 3), p, in_at(&f, at + 7), xh, gates, step);
  }
  if (!s) store(ctx, 7, out);
  release(&f);
  return s;
}

static shoal_status cell_run(struct kernel_ctx *ctx) { return lstm_forward(ctx, 0); }
static shoal_status sequence_run(struct kernel_ctx *ctx) { return lstm_forward(ctx, 1); }

/* One step back: the gates' gradients, and what goes to the cell state before. v: i, cs, f, o, ci, co of the step. */
static void lstm_step_back(const struct lstm *l, const float *cs_prev, const float *const p[3], const float *const v[6],
                           const float *dcs_in, const float *dh, float *dgates, float *dcs_prev, float *const dp[3]) {
  int64_t n = l->cells;
  for (int64_t b = 0; b < l->batch; b++)
    for (int64_t k = 0; k < n; k++) {
      int64_t at = b * n + k;
      float i = v[0][at], f = v[2][at], o = v[3][at], ci = v[4][at], co = v[5][at];
      float d_o = o * (1 - o) * dh[at] * co, dcs = (1 - co * co) * dh[at] * o + dcs_in[at];
      if (l->peephole) dcs += d_o * p[2][k];
      float dci = (1 - ci * ci) * dcs * i, df = f * (1 - f) * dcs * cs_prev[at], di = i * (1 - i) * dcs * ci;
      float *g = dgates + b * 4 * n + k, back = dcs * f;
      g[0] = di, g[l->swapped ? 2 * n : n] = dci, g[l->swapped ? n : 2 * n] = df, g[3 * n] = d_o;
      if (l->peephole) {
        back += di * p[0][k] + df * p[1][k];
        dp[0][k] += di * cs_prev[at], dp[1][k] += df * cs_prev[at], dp[2][k] += d_o * v[1][at];
      }
      dcs_prev[at] = back;
    }
}

static shoal_status cell_grad_run(struct kernel_ctx *ctx) {
  struct lstm l = *(const struct lstm *)ctx->state;
  TRY(lstm_sizes(ctx, 0, &l));
  for (int i = 8; i < 16; i++)
    TRY(want(ctx, i, "Each of i, cs, f, o, ci, co and their gradients", 2, l.batch, l.cells, 0));
  struct tensor *y;
  TRY(ctx_out_dims(ctx, 0, 2, (int64_t[]){l.batch, l.cells}, &y));
  TRY(ctx_out_dims(ctx, 1, 2, (int64_t[]){l.batch, 4 * l.cells}, &y));
  for (int i = 2; i < 5; i++) {
    struct shape s = tensor_shape(ctx_in(ctx, i + 2));
    TRY(ctx_out(ctx, i, &s, &y));
    tensor_zero(y);
  }
  struct floats f;
  int64_t one = l.batch * l.cells;
  TRY(load(ctx, 0, 5 * one + 3 * l.cells, &f));
  float *scratch = f.scratch->data, *out[5] = {scratch, scratch + one};
  for (int i = 2; i < 5; i++) out[i] = scratch + 5 * one + (i - 2) * l.cells;
  const float *p[3] = {in_at(&f, 4), in_at(&f, 5), in_at(&f, 6)}, *v[6];
  for (int i = 0; i < 6; i++) v[i] = in_at(&f, 8 + i);
  lstm_step_back(&l, in_at(&f, 1), p, v, in_at(&f, 14), in_at(&f, 15), out[1], out[0], &out[2]);
  store(ctx, l.peephole ? 5 : 2, out);
  release(&f);
  return NULL;
}

/* Outputs: x, cs_prev, h_prev, w, wci, wcf, wco, b. */
static shoal_status sequence_grad_run(struct kernel_ctx *ctx) {
  struct lstm l = *(const struct lstm *)ctx->state;
  int64_t n;
  TRY(lstm_sizes(ctx, 1, &l));
  TRY(sequence_length(ctx, l.steps, &n));
  for (int i = 9; i < 18; i++)
    TRY(want(ctx, i, "Each of i, cs, f, o, ci, co, h and their gradients", 3, l.steps, l.batch, l.cells));
  struct tensor *y;
  int64_t total = 0, sizes[8], one = l.batch * l.cells, wide = l.inputs + l.cells, gates = 4 * l.cells;
  for (int i = 0; i < 8; i++) {
    struct shape s = tensor_shape(ctx_in(ctx, i + 1));
    TRY(ctx_out(ctx, i, &s, &y));
    total += sizes[i] = y->n;
  }
  struct floats f;
  TRY(load(ctx, 1, total + l.batch * (2 * wide + gates) + 2 * one, &f));
  float *out[8], *at = f.scratch->data;
  for (int i = 0; i < 8; i++) out[i] = at, at += sizes[i];
  float *xh = at, *dxh = xh + l.batch * wide, *dgates = dxh + l.batch * wide, *dh = dgates + l.batch * gates,
        *dcs = dh + one;
  const float *p[3] = {in_at(&f, 5), in_at(&f, 6), in_at(&f, 7)};
  shoal_status s = NULL;
  for (int64_t t = n - 1; t >= 0 && !s && one; t--) {
    const float *v[6], *cs_prev = t ? in_at(&f, 10) + (t - 1) * one : in_at(&f, 2);
    const float *h_prev = t ? in_at(&f, 15) + (t - 1) * one : in_at(&f, 3);
    for (int i = 0; i < 6; i++) v[i] = in_at(&f, 9 + i) + t * one;
    /* out[1] and out[2] carry what comes from the step after. */
    for (int64_t k = 0; k < one; k++) {
      dcs[k] = in_at(&f, 16)[t * one + k] + out[1][k];
      dh[k] = in_at(&f, 17)[t * one + k] + out[2][k];
    }
    lstm_step_back(&l, cs_prev, p, v, dcs, dh, dgates, out[1], &out[4]);
    const float *x = in_at(&f, 1) + t * l.batch * l.inputs;
    join(&l, x, h_prev, xh);
    s = multiply(ctx_pool(ctx), dgates, false, in_at(&f, 4), true, dxh, l.batch, wide, gates, false);
    if (!s) s = multiply(ctx_pool(ctx), xh, true, dgates, false, out[3], wide, gates, l.batch, true);
    for (int64_t b = 0; b < l.batch; b++) {
      memcpy(out[0] + (t * l.batch + b) * l.inputs, dxh + b * wide, (size_t)l.inputs * sizeof *dxh);
      memcpy(out[2] + b * l.cells, dxh + b * wide + l.inputs, (size_t)l.cells * sizeof *dxh);
      for (int64_t k = 0; k < gates; k++) out[7][k] += dgates[b * gates + k];
    }
  }
  if (!s) store(ctx, 8, out);
  release(&f);
  return s;
}

/* TensorFlow's Python takes the first op's gradient for V2 too, which mistakes its gates; here each has its own. */
static shoal_status lstm_grad(struct grad_ctx *c) {
  bool v2 = op_is(c->node->op, "BlockLSTMV2"), peephole;
  TRY(node_get_bool(c->node, "use_peephole", &peephole));
  struct build b = build_begin(c->g, v2 ? "BlockLSTMGradV2" : "BlockLSTMGrad", NULL);
  for (int i = 0; i < 9; i++) build_in(&b, gin(c, i));
  for (int i = 0; i < 7; i++) build_in(&b, gout(c, i));
  build_in(&b, grad_dy(c, 1));
  build_in(&b, grad_dy(c, 6));
  build_attr_bool(&b, "use_peephole", peephole);
  struct shoal_node *n = build_end(&b);
  for (int i = 0; n && i < 8; i++) grad_set(c, i + 1, node_out(n, i));
  return NULL;
}

static shoal_status cell_shape(struct shape_ctx *c) {
  int sequence = c->node->n_in == 9;
  struct shape x, h;
  TRY(shape_in_rank(c, sequence, sequence ? 3 : 2, &x));
  TRY(shape_in_rank(c, sequence + 1, 2, &h));
  for (int i = 0; i < c->node->n_out; i++) {
    c->out[i] = x;
    c->out[i].dims[x.rank - 1] = h.dims[1];
  }
  return NULL;
}

static shoal_status cell_grad_shape(struct shape_ctx *c) {
  struct shape h;
  TRY(shape_in_rank(c, 1, 2, &h));
  c->out[0] = c->out[1] = h;
  c->out[1].dims[1] = h.dims[1] < 0 ? -1 : 4 * h.dims[1];
  for (int i = 2; i < 5; i++) c->out[i] = c->in[i + 2];
  return NULL;
}

static shoal_status sequence_grad_shape(struct shape_ctx *c) {
  for (int i = 0; i < 8; i++) c->out[i] = c->in[i + 1];
  return NULL;
}

/* ---- GRU ---- */

struct gru {
  int64_t batch, inputs, cells;
};

static shoal_status gru_sizes(const struct kernel_ctx *ctx, struct gru *g) {
  const struct tensor *x = ctx_in(ctx, 0), *h = ctx_in(ctx, 1);
  if (x->rank != 2) return INVALID("Rank of x must be 2, got %d", x->rank);
  if (h->rank != 2) return INVALID("Rank of h_prev must be 2, got %d", h->rank);
  *g = (struct gru){x->dims[0], x->dims[1], h->dims[1]};
  TRY(want(ctx, 1, "h_prev", 2, g->batch, g->cells, 0));
  TRY(want(ctx, 2, "w_ru", 2, g->inputs + g->cells, 2 * g->cells, 0));
  TRY(want(ctx, 3, "w_c", 2, g->inputs + g->cells, g->cells, 0));
  TRY(want(ctx, 4, "b_ru", 1, 2 * g->cells, 0, 0));
  return want(ctx, 5, "b_c", 1, g->cells, 0, 0);
}

static shoal_status gru_run(struct kernel_ctx *ctx) {
  struct gru g;
  TRY(gru_sizes(ctx, &g));
  struct tensor *y[4];
  for (int i = 0; i < 4; i++) TRY(ctx_out_dims(ctx, i, 2, (int64_t[]){g.batch, g.cells}, &y[i]));
  const float *x = ctx_in(ctx, 0)->data, *h = ctx_in(ctx, 1)->data, *b_ru = ctx_in(ctx, 4)->data;
  const float *b_c = ctx_in(ctx, 5)->data;
  float *r = y[0]->data, *u = y[1]->data, *c = y[2]->data;
  int64_t wide = g.inputs + g.cells, n = g.cells;
  if (!g.batch || !n) return NULL;
  struct buffer *scratch;
  TRY(zeros(g.batch * (wide + 2 * n), &scratch));
  float *xh = scratch->data, *ru = xh + g.batch * wide;
  struct lstm l = {.batch = g.batch, .inputs = g.inputs, .cells = n};
  join(&l, x, h, xh);
  shoal_status s = multiply(ctx_pool(ctx), xh, false, ctx_in(ctx, 2)->data, false, ru, g.batch, 2 * n, wide, false);
  for (int64_t b = 0; b < g.batch && !s; b++)
    for (int64_t k = 0; k < n; k++) {
      int64_t at = b * n + k;
      r[at] = sigmoid(ru[b * 2 * n + k] + b_ru[k]);
      u[at] = sigmoid(ru[b * 2 * n + n + k] + b_ru[n + k]);
      xh[b * wide + g.inputs + k] = h[at] * r[at];
    }
  if (!s) s = multiply(ctx_pool(ctx), xh, false, ctx_in(ctx, 3)->data, false, c, g.batch, n, wide, false);
  for (int64_t at = 0; at < g.batch * n && !s; at++) {
    c[at] = tanhf(c[at] + b_c[at % n]);
    T_DATA(y[3], float)[at] = u[at] * (h[at] - c[at]) + c[at];
  }
  buffer_unref(scratch);
  return s;
}

static shoal_status gru_grad_run(struct kernel_ctx *ctx) {
  struct gru g;
  TRY(gru_sizes(ctx, &g));
  for (int i = 6; i < 10; i++) TRY(want(ctx, i, "Each of r, u, c and d_h", 2, g.batch, g.cells, 0));
  int64_t wide = g.inputs + g.cells, n = g.cells;
  struct tensor *d_x, *d_h, *d_c, *d_ru;
  TRY(ctx_out_dims(ctx, 0, 2, (int64_t[]){g.batch, g.inputs}, &d_x));
  TRY(ctx_out_dims(ctx, 1, 2, (int64_t[]){g.batch, n}, &d_h));
  TRY(ctx_out_dims(ctx, 2, 2, (int64_t[]){g.batch, n}, &d_c));
  TRY(ctx_out_dims(ctx, 3, 2, (int64_t[]){g.batch, 2 * n}, &d_ru));
  if (!g.batch || !n) return NULL;
  const float *h = ctx_in(ctx, 1)->data, *r = ctx_in(ctx, 6)->data, *u = ctx_in(ctx, 7)->data;
  const float *c = ctx_in(ctx, 8)->data, *dh = ctx_in(ctx, 9)->data;
  float *dc = d_c->data, *dru = d_ru->data;
  struct buffer *scratch;
  TRY(zeros(2 * g.batch * wide, &scratch));
  float *first = scratch->data, *second = first + g.batch * wide;
  for (int64_t at = 0; at < g.batch * n; at++) dc[at] = dh[at] * (1 - u[at]) * (1 - c[at] * c[at]);
  shoal_status s = multiply(ctx_pool(ctx), dc, false, ctx_in(ctx, 3)->data, true, second, g.batch, wide, n, false);
  for (int64_t b = 0; b < g.batch && !s; b++)
    for (int64_t k = 0; k < n; k++) {
      int64_t at = b * n + k;
      float dhr = second[b * wide + g.inputs + k];
      dru[b * 2 * n + k] = dhr * h[at] * r[at] * (1 - r[at]);
      dru[b * 2 * n + n + k] = dh[at] * (h[at] - c[at]) * u[at] * (1 - u[at]);
    }
  if (!s) s = multiply(ctx_pool(ctx), dru, false, ctx_in(ctx, 2)->data, true, first, g.batch, wide, 2 * n, false);
  for (int64_t b = 0; b < g.batch && !s; b++) {
    for (int64_t k = 0; k < g.inputs; k++)
      T_DATA(d_x, float)[b * g.inputs + k] = first[b * wide + k] + second[b * wide + k];
    for (int64_t k = 0; k < n; k++) {
      int64_t at = b * n + k, in = b * wide + g.inputs + k;
      T_DATA(d_h, float)[at] = first[in] + second[in] * r[at] + dh[at] * u[at];
    }
  }
  buffer_unref(scratch);
  return s;
}

static shoal_status gru_shape(struct shape_ctx *c) {
  struct shape x, h;
  TRY(shape_in_rank(c, 0, 2, &x));
  TRY(shape_in_rank(c, 1, 2, &h));
  for (int i = 0; i < 4; i++) c->out[i] = h;
  if (c->node->n_in > 6) c->out[0] = x;
  if (c->node->n_in > 6) c->out[3].dims[1] = h.dims[1] < 0 ? -1 : 2 * h.dims[1];
  return NULL;
}

/* ---- rows ---- */

#define KERNEL(id, run_)                                                      \
  static const struct kernel_def id[] = {{.device = "CPU",                    \
                                          .type_attr = "T",                   \
                                          .types = DT(FLOAT32) | DT(FLOAT16), \
                                          .state_size = sizeof(struct lstm),  \
                                          .init = lstm_init,                  \
                                          .run = run_},                       \
                                         {0}}
KERNEL(cell_kernels, cell_run);
KERNEL(cell_grad_kernels, cell_grad_run);
KERNEL(sequence_kernels, sequence_run);
KERNEL(sequence_grad_kernels, sequence_grad_run);
static const struct kernel_def gru_kernels[] = {{.device = "CPU", .run = gru_run}, {0}};
static const struct kernel_def gru_grad_kernels[] = {{.device = "CPU", .run = gru_grad_run}, {0}};

#define WEIGHTS "x: T, cs_prev: T, h_prev: T, w: T, wci: T, wcf: T, wco: T, b: T"
#define STATES "i: T, cs: T, f: T, o: T, ci: T, co: T, h: T"
#define PEEPHOLE "use_peephole: bool = false; T: {half, float}"
#define SEQUENCE_GRADS \
  "x_grad: T, cs_prev_grad: T, h_prev_grad: T, w_grad: T, wci_grad: T, wcf_grad: T, wco_grad: T, b_grad: T"

static const struct op_row rows[] = {
    {.name = "LSTMBlockCell",
     .in = WEIGHTS,
     .out = STATES,
     .attrs = "forget_bias: float = 1; cell_clip: float = 3; " PEEPHOLE,
     .shape = cell_shape,
     .kernels = cell_kernels},
    {.name = "LSTMBlockCellGrad",
     .in = WEIGHTS ", i: T, cs: T, f: T, o: T, ci: T, co: T, cs_grad: T, h_grad: T",
     .out = "cs_prev_grad: T, dicfo: T, wci_grad: T, wcf_grad: T, wco_grad: T",
     .attrs = "use_peephole: bool; T: {half, float}",
     .shape = cell_grad_shape,
     .kernels = cell_grad_kernels},
    {.name = "BlockLSTM",
     .in = "seq_len_max: int64, " WEIGHTS,
     .out = STATES,
     .attrs = "forget_bias: float = 1; cell_clip: float = 3; " PEEPHOLE,
     .shape = cell_shape,
     .grad = lstm_grad,
     .kernels = sequence_kernels},
    {.name = "BlockLSTMV2",
     .in = "seq_len_max: int64, " WEIGHTS,
     .out = STATES,
     .attrs = "cell_clip: float = 0; " PEEPHOLE,
     .shape = cell_shape,
     .grad = lstm_grad,
     .kernels = sequence_kernels},
    {.name = "BlockLSTMGrad",
     .in = "seq_len_max: int64, " WEIGHTS ", " STATES ", cs_grad: T, h_grad: T",
     .out = SEQUENCE_GRADS,
     .attrs = "use_peephole: bool; T: {half, float}",
     .shape = sequence_grad_shape,
     .kernels = sequence_grad_kernels},
    {.name = "BlockLSTMGradV2",
     .in = "seq_len_max: int64, " WEIGHTS ", " STATES ", cs_grad: T, h_grad: T",
     .out = SEQUENCE_GRADS,
     .attrs = "use_peephole: bool; T: {half, float}",
     .shape = sequence_grad_shape,
     .kernels = sequence_grad_kernels},
    {.name = "GRUBlockCell",
     .in = "x: T, h_prev: T, w_ru: T, w_c: T, b_ru: T, b_c: T",
     .out = "r: T, u: T, c: T, h: T",
     .attrs = "T: {float}",
     .shape = gru_shape,
     .kernels = gru_kernels},
    {.name = "GRUBlockCellGrad",
     .in = "x: T, h_prev: T, w_ru: T, w_c: T, b_ru: T, b_c: T, r: T, u: T, c: T, d_h: T",
     .out = "d_x: T, d_h_prev: T, d_c_bar: T, d_r_bar_u_bar: T",
     .attrs = "T: {float}",
     .shape = gru_shape,
     .kernels = gru_grad_kernels},
};
OP_FAMILY(lstm_block, rows);
