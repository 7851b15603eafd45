/* _ShoalAttention and _ShoalMaskedAttention, and their gradients (made by the rewrite "fuse_layers"): attention whose
 * scores stay in the cache.
 *
 * q, k, v and y are [batch, time, heads * depth]; heads are read where they stand, nothing is transposed. One head of
 * one example is one piece of work. It goes by blocks of queries: scores against all keys that one of them sees,
 * softmax, and the product with the values. For the way back the logarithm of each row's sum is kept, and scores are
 * computed again: one product more than the single ops have, but for causal attention half of each is left out.
 *
 * A mask, [batch, heads, queries, keys] or what may be broadcast to that, is added to the scores. A row with nothing to
 * look at has scores so far below 0 that the logarithm of their sum says nothing: with a mask, the way back takes the
 * softmax anew.
 *
 * Products of bfloat16 are taken as they are, with sums in float, by the kernels that MatMul has for them: queries,
 * keys and values are read where they stand, weights (and the scores' gradients) are rounded for the product they go
 * into, as they would be in memory. All between the products is computed in float. Where there are few queries, as when
 * text is written token by token, and in half precision, for which no kernel multiplies, a head's rows are converted
 * before, and results behind. */
#include "ops/nn/attention.h"

#include <math.h>
#include <string.h>

#include "math/gemm.h"
#include "math/scratch.h"
#include "ops/math/vector_math.h"
#include "ops/nn/softmax.h"

enum {
  BLOCK = 64,
  NARROW_BLOCK = 128,    /* of bfloat16: its products take less time than the keys take to be packed for each block */
  MOST_SCORES = 1 << 22, /* of a block */
  LEAST_ROWS = 16,       /* queries, for products of bfloat16: with fewer, packing is most of the work */
};

shoal_status attention_state_init(struct attention_state *st, const struct shoal_node *n) {
  TRY(node_get_int(n, "heads", &st->heads));
  TRY(node_get_int(n, "depth", &st->depth));
  st->masked = op_is(n->op, "_ShoalMaskedAttention") || op_is(n->op, "_ShoalMaskedAttentionGrad");
  TRY(node_get_float(n, "scale", &st->scale));
  if (!(st->scale > 0 && st->scale < INFINITY)) return INVALID("scores are scaled by %g", (double)st->scale);
  return node_get_bool(n, "causal", &st->causal);
}

/* y and dy are like the queries, sums of each of their rows. */
static shoal_status check_back(const struct kernel_ctx *ctx, const struct attention_size *s, int64_t heads) {
  int first = s->packed ? 1 : 3;
  struct shape want = {.rank = 3, .dims = {s->batch, s->queries, s->width}}, y = tensor_shape(ctx_in(ctx, first)),
               dy = tensor_shape(ctx_in(ctx, first + 2));
  if (shape_equal(&want, &y) && shape_equal(&want, &dy) && ctx_in(ctx, first + 1)->n == s->batch * heads * s->queries)
    return NULL;
  return INVALID("attention of %s: its result is %s, the gradient %s, and sums %s", shape_str(&want), shape_str(&y),
                 shape_str(&dy), tensor_shape_str(ctx_in(ctx, first + 1)));
}

static bool fits(const struct attention_state *st, const struct tensor *q, const struct tensor *k, int64_t width) {
  return q->dims[0] == k->dims[0] && q->dims[2] == k->dims[2] && st->heads >= 1 && st->depth >= 1 &&
         width / st->heads == st->depth && width % st->heads == 0 && k->dims[1] >= 1 &&
         !(st->causal && k->dims[1] < q->dims[1]);
}

shoal_status attention_size(const struct kernel_ctx *ctx, const struct attention_state *st, bool back,
                            struct attention_size *out) {
  int n = ctx->kernel->n_in - (back ? 3 : 0) - st->masked;
  if (n != 1 && n != 3) return INVALID("attention of %d tensors", n);
  const struct tensor *q = ctx_in(ctx, 0), *k = ctx_in(ctx, n == 1 ? 0 : 1);
  int64_t width = q->rank == 3 ? q->dims[2] / (n == 1 ? 3 : 1) : 0;
  if (q->rank != 3 || k->rank != 3 || (n == 1 && q->dims[2] % 3) || !fits(st, q, k, width))
    return INVALID("attention of %" PRId64 " heads: queries %s, keys %s", st->heads, tensor_shape_str(q),
                   tensor_shape_str(k));
  if (n == 3) TRY(nn_check_same(ctx, 1, 2));
  *out = (struct attention_size){q->dims[0], q->dims[1], k->dims[1], width, st->depth, q->dims[2], n == 1};
  return back ? check_back(ctx, out, st->heads) : NULL;
}

shoal_status attention_make_y(struct kernel_ctx *ctx, const struct attention_size *s, struct tensor **out) {
  return ctx_out_dims(ctx, 0, 3, (int64_t[]){s->batch, s->queries, s->width}, out);
}

shoal_status attention_make_gradients(struct kernel_ctx *ctx, const struct attention_size *s) {
  struct tensor *d;
  for (int i = 0; i < (s->packed ? 1 : 3); i++) TRY(ctx_out_dims(ctx, i, 3, ctx_in(ctx, i)->dims, &d));
  return NULL;
}

/* ---- one head ---- */

struct head_rows { /* of one head; ld elements from one to the next */
  void *at;
  int64_t ld;
  shoal_dtype type;
};

/* One of the tensors: with the elements from one time to the next. */
struct head_tensor {
  void *at;
  int64_t times, step;
};

struct attending {
  struct attention_state st;
  struct attention_size size;
  shoal_dtype type;
  shoal_dtype in_products;            /* type, or float */
  struct head_tensor in[3], grads[3]; /* queries, keys, values */
  struct head_tensor y, dy;
  float *sums;
  const char *mask;     /* NULL: none */
  int64_t mask_step[3]; /* elements from one example, head, query to the next */
  shoal_status _Atomic failed;
};

/* Queries at a time: fewer where there are very many keys, so that a thread's room is no more than a few times what it
 * was given. */
static int64_t block_of(const struct attending *a) {
  int64_t most = a->in_products == SHOAL_FLOAT32 ? BLOCK : NARROW_BLOCK;
  return MAX(1, MIN(most, MOST_SCORES / a->size.keys));
}

/* Floats' room for a block's numbers in the type of products. */
static int64_t rounded_room(const struct attending *a) {
  return a->in_products == SHOAL_FLOAT32 ? 0 : (block_of(a) * a->size.keys + 1) / 2;
}

static int64_t seen(const struct attending *a, int64_t query) {
  return a->st.causal ? MIN(a->size.keys, query + 1 + a->size.keys - a->size.queries) : a->size.keys;
}

static char *place(const struct attending *a, struct head_tensor of, int64_t item) {
  int64_t b = item / a->st.heads, h = item % a->st.heads;
  return (char *)of.at + (size_t)(b * of.times * of.step + h * a->size.depth) * dtype_size(a->type);
}

/* A head's rows of this type: where they are, or in room that is used up. */
static struct head_rows make_room(const struct attending *a, struct head_tensor of, int64_t item, shoal_dtype type,
                                  float **room) {
  if (a->type == type) return (struct head_rows){place(a, of, item), of.step, type};
  struct head_rows r = {*room, a->size.depth, type};
  *room += of.times * a->size.depth;
  return r;
}

static struct head_rows from_row(struct head_rows r, int64_t i) {
  return (struct head_rows){(char *)r.at + (size_t)(i * r.ld) * dtype_size(r.type), r.ld, r.type};
}

/* The rows in the type of products. */
static struct head_rows take(const struct attending *a, struct head_tensor of, int64_t item, float **room) {
  const char *from = place(a, of, item);
  struct head_rows r = make_room(a, of, item, a->in_products, room);
  for (int64_t t = 0; a->type != r.type && t < of.times; t++)
    nn_to_float(a->type, from + (size_t)(t * of.step) * dtype_size(a->type), from_row(r, t).at, a->size.depth);
  return r;
}

static void give(const struct attending *a, struct head_tensor of, int64_t item, struct head_rows r) {
  char *to = place(a, of, item);
  for (int64_t t = 0; a->type != r.type && t < of.times; t++)
    nn_from_float(a->type, from_row(r, t).at, to + (size_t)(t * of.step) * dtype_size(a->type), a->size.depth);
}

/* c = a b, or c += a b, a of m rows; turned: stored the other way round. */
static void product(struct attending *a, struct head_rows x, bool turn_x, struct head_rows y, bool turn_y,
                    struct head_rows to, int64_t m, int64_t n, int64_t k, bool add) {
  struct gemm g = {.m = m,
                   .n = n,
                   .k = k,
                   .a = {.data = x.at, .type = x.type, .ld = x.ld, .trans = turn_x},
                   .b = {.data = y.at, .type = y.type, .ld = y.ld, .trans = turn_y},
                   .c = to.at,
                   .type = to.type,
                   .ldc = to.ld,
                   .accumulate = add};
  shoal_status s = gemm_run(NULL, &g), none = NULL;
  if (s && !atomic_compare_exchange_strong(&a->failed, &none, s)) shoal_status_free(s);
}

/* A block's numbers [queries][keys] as products take them: floats as they are, others rounded into room, row by row
 * while they are in the nearest cache. */
static struct head_rows as_factor(const struct attending *a, float *from, void *room, int64_t keys) {
  bool same = a->in_products == SHOAL_FLOAT32;
  return (struct head_rows){same ? (void *)from : room, keys, a->in_products};
}

static void round_row(const struct attending *a, const float *from, struct head_rows factor, int64_t row) {
  if (a->in_products != SHOAL_FLOAT32) nn_from_float(a->in_products, from, from_row(factor, row).at, factor.ld);
}

VECTOR_CLONES static void times_number(float *x, float by, int64_t n) {
  LOOP_FREE for (int64_t i = 0; i < n; i++) x[i] *= by;
}

/* ---- masks ---- */

static shoal_status take_mask(const struct kernel_ctx *ctx, struct attending *a) {
  const struct tensor *m = ctx_in(ctx, ctx->kernel->n_in - 1);
  const int64_t want[] = {a->size.batch, a->st.heads, a->size.queries};
  bool fits = m->rank >= 1 && m->rank <= 4 && m->dims[m->rank - 1] == a->size.keys;
  int64_t step = a->size.keys;
  for (int i = 2, k = m->rank - 2; fits && k >= 0; i--, k--) {
    fits = m->dims[k] == 1 || m->dims[k] == want[i];
    a->mask_step[i] = m->dims[k] == 1 ? 0 : step;
    step *= m->dims[k];
  }
  a->mask = m->data;
  return fits ? NULL : INVALID("a mask of %s for scores of %" PRId64 " keys", tensor_shape_str(m), a->size.keys);
}

VECTOR_CLONES static void add_numbers(float *x, const float *by, int64_t n) {
  LOOP_FREE for (int64_t i = 0; i < n; i++) x[i] += by[i];
}

/* In half precision the sum is rounded, as it would be in memory: where nothing may be seen, all weights are equal. */
static void add_mask(const struct attending *a, int64_t item, int64_t query, float *row, int64_t n) {
  enum { STRIP = 256 };
  float part[STRIP];
  uint16_t rounded[STRIP];
  int64_t at = item / a->st.heads * a->mask_step[0] + item % a->st.heads * a->mask_step[1] + query * a->mask_step[2];
  for (int64_t i = 0; i < n; i += STRIP) {
    int64_t some = MIN(STRIP, n - i);
    nn_to_float(a->type, a->mask + (size_t)(at + i) * dtype_size(a->type), part, some);
    add_numbers(row + i, part, some);
    if (a->type == SHOAL_FLOAT32) continue;
    nn_from_float(a->type, row + i, rounded, some);
    nn_to_float(a->type, rounded, row + i, some);
  }
}

/* ---- forward ---- */

/* Scores become e^(scale x - shift), whose sum is given. */
VECTOR_CLONES static float exp_scores(float *x, float scale, float shift, int64_t n) {
  float sum[VM_PARTS] = {0};
  int64_t i = 0;
  for (; i + VM_PARTS <= n; i += VM_PARTS) LOOP_FREE for (int l = 0; l < VM_PARTS; l++) {
      x[i + l] = vm_exp(x[i + l] * scale - shift);
      sum[l] += x[i + l];
    }
  for (int l = 0; i < n; i++, l++) sum[l] += x[i] = vm_exp(x[i] * scale - shift);
  return vm_total(sum);
}

/* Scores become weights, and what is not seen 0; the logarithm of their sum is given. */
static float weigh(const struct attending *a, int64_t item, float *row, int64_t query, int64_t n) {
  int64_t end = seen(a, query);
  float scale = a->st.scale;
  if (a->mask) {
    times_number(row, scale, end);
    add_mask(a, item, query, row, end);
    scale = 1;
  }
  float top = softmax_largest(row, end) * scale, sum = exp_scores(row, scale, top, end);
  times_number(row, 1 / sum, end);
  memset(row + end, 0, (size_t)(n - end) * sizeof *row);
  return top + logf(sum);
}

struct head_forward {
  struct head_rows q, k, v, y;
  float *scores;  /* of a block: [queries][keys] */
  float *rounded; /* room for as many in the type of products */
  int64_t item;
};

static void forward_block(struct attending *a, const struct head_forward *h, int64_t first, int64_t m) {
  float *sums = a->sums + h->item * a->size.queries;
  int64_t n = seen(a, first + m - 1), d = a->size.depth;
  struct head_rows weights = as_factor(a, h->scores, h->rounded, n);
  product(a, from_row(h->q, first), false, h->k, true, (struct head_rows){h->scores, n, SHOAL_FLOAT32}, m, n, d, false);
  for (int64_t i = 0; i < m; i++) {
    sums[first + i] = weigh(a, h->item, h->scores + i * n, first + i, n);
    round_row(a, h->scores + i * n, weights, i);
  }
  product(a, weights, false, h->v, false, from_row(h->y, first), m, d, n, false);
}

static void forward_heads(void *arg, int64_t begin, int64_t end) {
  struct attending *a = arg;
  int64_t tq = a->size.queries, tk = a->size.keys, d = a->size.depth, block = block_of(a);
  float *all = scratch_get(SCRATCH_PATCH, (size_t)(block * tk + rounded_room(a) + 2 * (tq + tk) * d) * sizeof *all);
  for (int64_t i = begin; i < end; i++) {
    struct head_forward h = {.scores = all, .rounded = all + block * tk, .item = i};
    float *room = h.rounded + rounded_room(a);
    h.q = take(a, a->in[0], i, &room);
    h.k = take(a, a->in[1], i, &room);
    h.v = take(a, a->in[2], i, &room);
    h.y = make_room(a, a->y, i, a->in_products, &room);
    for (int64_t at = 0; at < tq; at += block) forward_block(a, &h, at, MIN(block, tq - at));
    give(a, a->y, i, h.y);
  }
}

/* ---- back ---- */

/* Scores become weights, by the logarithm of their sum; the weights' gradients become the scores'. */
VECTOR_CLONES static void weights_again(float *w, float *ds, float scale, float sum, float delta, int64_t n) {
  LOOP_FREE for (int64_t i = 0; i < n; i++) {
    w[i] = vm_exp(w[i] * scale - sum);
    ds[i] = w[i] * (ds[i] - delta) * scale;
  }
}

/* Eight partial sums in a fixed order. */
VECTOR_CLONES static float dot_floats(const float *x, const float *y, int64_t n) {
  float s[8] = {0}, rest = 0;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int l = 0; l < 8; l++) s[l] += x[i + l] * y[i + l];
  for (; i < n; i++) rest += x[i] * y[i];
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])) + rest;
}

static float dot(struct head_rows x, struct head_rows y, int64_t n) {
  enum { STRIP = 256 };
  float sum = 0, floats[2][STRIP];
  if (x.type == SHOAL_FLOAT32) return dot_floats(x.at, y.at, n);
  for (int64_t i = 0; i < n; i += STRIP) {
    int64_t some = MIN(STRIP, n - i);
    nn_to_float(x.type, (const char *)x.at + (size_t)i * dtype_size(x.type), floats[0], some);
    nn_to_float(y.type, (const char *)y.at + (size_t)i * dtype_size(y.type), floats[1], some);
    sum += dot_floats(floats[0], floats[1], some);
  }
  return sum;
}

VECTOR_CLONES static void scores_grad(float *ds, const float *w, float delta, float scale, int64_t n) {
  LOOP_FREE for (int64_t i = 0; i < n; i++) ds[i] = w[i] * (ds[i] - delta) * scale;
}

struct head_back {
  struct head_rows q, k, v, y, dy, dq, dk, dv;
  float *weights, *grads;         /* of a block: [queries][keys] */
  float *rounded, *rounded_grads; /* room for as many in the type of products */
  int64_t item;
};

static void back_row(const struct attending *a, const struct head_back *h, int64_t query, float *w, float *ds,
                     int64_t n) {
  int64_t end = seen(a, query);
  float scale = a->st.scale, delta = dot(from_row(h->y, query), from_row(h->dy, query), a->size.depth);
  if (a->mask) {
    weigh(a, h->item, w, query, n);
    scores_grad(ds, w, delta, scale, end);
  } else {
    weights_again(w, ds, scale, a->sums[h->item * a->size.queries + query], delta, end);
  }
  memset(w + end, 0, (size_t)(n - end) * sizeof *w);
  memset(ds + end, 0, (size_t)(n - end) * sizeof *ds);
}

static void back_block(struct attending *a, const struct head_back *h, int64_t first, int64_t m) {
  int64_t n = seen(a, first + m - 1), d = a->size.depth;
  struct head_rows q = from_row(h->q, first), dy = from_row(h->dy, first);
  product(a, q, false, h->k, true, (struct head_rows){h->weights, n, SHOAL_FLOAT32}, m, n, d, false);
  product(a, dy, false, h->v, true, (struct head_rows){h->grads, n, SHOAL_FLOAT32}, m, n, d, false);
  struct head_rows w = as_factor(a, h->weights, h->rounded, n), ds = as_factor(a, h->grads, h->rounded_grads, n);
  for (int64_t i = 0; i < m; i++) {
    back_row(a, h, first + i, h->weights + i * n, h->grads + i * n, n);
    round_row(a, h->weights + i * n, w, i);
    round_row(a, h->grads + i * n, ds, i);
  }
  product(a, w, true, dy, false, h->dv, n, d, m, true);
  product(a, ds, true, q, false, h->dk, n, d, m, true);
  product(a, ds, false, h->k, false, from_row(h->dq, first), m, d, n, false);
}

static void clear(struct head_rows r, int64_t times, int64_t d) {
  for (int64_t t = 0; t < times; t++) memset(from_row(r, t).at, 0, (size_t)d * dtype_size(r.type));
}

static void back_head(struct attending *a, int64_t i, float *room) {
  int64_t tq = a->size.queries, tk = a->size.keys, block = block_of(a);
  struct head_back h = {.weights = room, .grads = room + block * tk, .item = i};
  h.rounded = room + 2 * block * tk;
  h.rounded_grads = h.rounded + rounded_room(a);
  room = h.rounded_grads + rounded_room(a);
  h.q = take(a, a->in[0], i, &room);
  h.k = take(a, a->in[1], i, &room);
  h.v = take(a, a->in[2], i, &room);
  h.y = take(a, a->y, i, &room);
  h.dy = take(a, a->dy, i, &room);
  h.dq = make_room(a, a->grads[0], i, a->in_products, &room);
  h.dk = make_room(a, a->grads[1], i, SHOAL_FLOAT32, &room); /* sums of several products */
  h.dv = make_room(a, a->grads[2], i, SHOAL_FLOAT32, &room);
  clear(h.dk, tk, a->size.depth);
  clear(h.dv, tk, a->size.depth);
  for (int64_t at = 0; at < tq; at += block) back_block(a, &h, at, MIN(block, tq - at));
  give(a, a->grads[0], i, h.dq);
  give(a, a->grads[1], i, h.dk);
  give(a, a->grads[2], i, h.dv);
}

static void back_heads(void *arg, int64_t begin, int64_t end) {
  struct attending *a = arg;
  int64_t tq = a->size.queries, tk = a->size.keys, d = a->size.depth;
  float *room =
      scratch_get(SCRATCH_PATCH, (size_t)(2 * (block_of(a) * tk + rounded_room(a)) + 4 * (tq + tk) * d) * sizeof *room);
  for (int64_t i = begin; i < end; i++) back_head(a, i, room);
}

/* ---- kernels ---- */

static shoal_status init(struct kernel_init *ki, void *state) { return attention_state_init(state, ki->node); }

static shoal_status begin(struct kernel_ctx *ctx, bool back, struct attending *a) {
  *a = (struct attending){.st = *(const struct attention_state *)ctx->state, .type = ctx_in_type(ctx, 0)};
  TRY(attention_size(ctx, &a->st, back, &a->size));
  a->in_products = a->type == SHOAL_BFLOAT16 && a->size.queries >= LEAST_ROWS ? a->type : SHOAL_FLOAT32;
  for (int i = 0; i < 3; i++)
    a->in[i] = (struct head_tensor){attention_in(ctx, &a->size, i), i ? a->size.keys : a->size.queries, a->size.step};
  return a->st.masked ? take_mask(ctx, a) : NULL;
}

static shoal_status run(struct kernel_ctx *ctx) {
  struct attending a;
  struct tensor *y, *sums;
  TRY(begin(ctx, false, &a));
  TRY(attention_make_y(ctx, &a.size, &y));
  TRY(ctx_out_dims(ctx, 1, 3, (int64_t[]){a.size.batch, a.st.heads, a.size.queries}, &sums));
  a.y = (struct head_tensor){y->data, a.size.queries, a.size.width};
  a.sums = sums->data;
  if (y->n) pool_for(ctx_pool(ctx), a.size.batch * a.st.heads, 1, forward_heads, &a);
  return a.failed;
}

static shoal_status grad_run(struct kernel_ctx *ctx) {
  struct attending a;
  TRY(begin(ctx, true, &a));
  TRY(attention_make_gradients(ctx, &a.size));
  int first = a.size.packed ? 1 : 3;
  for (int i = 0; i < 3; i++)
    a.grads[i] = (struct head_tensor){attention_out(ctx, &a.size, i), a.in[i].times, a.size.step};
  a.y = (struct head_tensor){ctx_in(ctx, first)->data, a.size.queries, a.size.width};
  a.sums = ctx_in(ctx, first + 1)->data;
  a.dy = (struct head_tensor){ctx_in(ctx, first + 2)->data, a.size.queries, a.size.width};
  for (int i = 0; i < ctx->kernel->n_out && !a.size.queries; i++) tensor_zero(&ctx->out[i]);
  if (a.size.queries) pool_for(ctx_pool(ctx), a.size.batch * a.st.heads, 1, back_heads, &a);
  return a.failed;
}

static shoal_status shape(struct shape_ctx *c) {
  int64_t n;
  TRY(node_get_int(c->node, "N", &n));
  if (n == 3) c->out[0] = c->in[0];
  return NULL;
}
static shoal_status grad_shape(struct shape_ctx *c) {
  for (int i = 0; i < c->node->n_out; i++) c->out[i] = c->in[i];
  return NULL;
}

#define KERNELS(run_)                                   \
  (const struct kernel_def[]) {                         \
    {.device = "CPU",                                   \
     .type_attr = "T",                                  \
     .types = DT(FLOAT32) | DT(FLOAT16) | DT(BFLOAT16), \
     .state_size = sizeof(struct attention_state),      \
     .init = init,                                      \
     .run = run_},                                      \
    {                                                   \
      0                                                 \
    }                                                   \
  }
#define ATTRS "N: int >= 1; T: {half, bfloat16, float}; heads: int >= 1; depth: int >= 1; scale: float; causal: bool"

static const struct op_row rows[] = {
    {"_ShoalAttention", .flags = OP_OWN, .in = "qkv: N * T", .out = "y: T, sums: float", .attrs = ATTRS, .shape = shape,
     .kernels = KERNELS(run)},
    {"_ShoalAttentionGrad", .flags = OP_OWN, .in = "qkv: N * T, y: T, sums: float, dy: T", .out = "grads: N * T",
     .attrs = ATTRS, .shape = grad_shape, .kernels = KERNELS(grad_run)},
    {"_ShoalMaskedAttention", .flags = OP_OWN, .in = "qkv: N * T, mask: T", .out = "y: T, sums: float", .attrs = ATTRS,
     .shape = shape, .kernels = KERNELS(run)},
    {"_ShoalMaskedAttentionGrad", .flags = OP_OWN, .in = "qkv: N * T, y: T, sums: float, dy: T, mask: T",
     .out = "grads: N * T", .attrs = ATTRS, .shape = grad_shape, .kernels = KERNELS(grad_run)},
};
OP_FAMILY(attention, rows);
