/* From class scores over time to label sequences: the greedy decoder and the beam search.
 *
 * The beam search keeps the best `width` prefixes. A prefix has the probability of ending in a blank and of ending in
 * its last label, apart, since a label that follows itself is the same label unless a blank stands between. Prefixes
 * form a tree; a node that falls out of the beam stays in it (it may come back), with probability zero. All is in
 * logarithms. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ops/nn/ctc.h"

struct ctc_decode_state {
  bool merge;
  int64_t blank, width, paths;
};

static shoal_status greedy_init(struct kernel_init *ki, void *state) {
  struct ctc_decode_state *st = state;
  st->paths = 1;
  TRY(node_get_bool(ki->node, "merge_repeated", &st->merge));
  return node_get_int(ki->node, "blank_index", &st->blank);
}

static shoal_status beam_init(struct kernel_init *ki, void *state) {
  struct ctc_decode_state *st = state;
  TRY(node_get_bool(ki->node, "merge_repeated", &st->merge));
  TRY(node_get_int(ki->node, "beam_width", &st->width));
  return node_get_int(ki->node, "top_paths", &st->paths);
}

/* ---- inputs and outputs of both ---- */

typedef VEC(int64_t) labels;

/* What was decoded: paths[b * n + p] is path p of sequence b. */
struct decoded {
  labels *paths;
  int64_t batch, n;
};

static shoal_status decoded_init(struct decoded *d, struct kernel_ctx *ctx, struct tensor **score) {
  const struct ctc_decode_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *len = ctx_in(ctx, 1);
  if (x->rank != 3) return INVALID("inputs is not a 3-Tensor");
  if (len->rank != 1) return INVALID("sequence_length is not a vector");
  if (!x->dims[0]) return INVALID("max_time is 0");
  if (!x->dims[2] || x->dims[2] > INT_MAX) return INVALID("num_classes cannot exceed max int");
  if (len->n != x->dims[1])
    return STATUS(SHOAL_FAILED_PRECONDITION,
                  "len(sequence_length) != batch_size.  len(sequence_length):  %" PRId64 " batch_size: %" PRId64,
                  len->n, x->dims[1]);
  for (int64_t b = 0; b < len->n; b++) {
    int32_t steps = T_DATA(len, const int32_t)[b];
    if (steps < 0 || steps > x->dims[0])
      return STATUS(SHOAL_FAILED_PRECONDITION, "sequence_length(%" PRId64 ") <= %" PRId64, b, x->dims[0]);
  }
  TRY(ctx_out_dims(ctx, (int)st->paths * 3, 2, (const int64_t[]){x->dims[1], st->paths}, score));
  *d = (struct decoded){.batch = x->dims[1], .n = st->paths};
  d->paths = mem_zalloc((size_t)(d->batch * d->n), sizeof *d->paths);
  return NULL;
}

static void decoded_release(struct decoded *d) {
  for (int64_t i = 0; i < d->batch * d->n; i++) vec_release(&d->paths[i]);
  free(d->paths);
}

/* Path p of all sequences as a sparse tensor: indices, values, shape are outputs p, n + p, 2n + p. */
static shoal_status put_path(struct kernel_ctx *ctx, const struct decoded *d, int64_t p) {
  int64_t total = 0, longest = 0, at = 0;
  for (int64_t b = 0; b < d->batch; b++) {
    int64_t n = (int64_t)d->paths[b * d->n + p].n;
    total += n;
    longest = MAX(longest, n);
  }
  struct tensor *indices, *values, *shape;
  TRY(ctx_out_dims(ctx, (int)p, 2, (const int64_t[]){total, 2}, &indices));
  TRY(ctx_out_dims(ctx, (int)(d->n + p), 1, &total, &values));
  TRY(ctx_out_dims(ctx, (int)(2 * d->n + p), 1, (const int64_t[]){2}, &shape));
  T_DATA(shape, int64_t)[0] = d->batch;
  T_DATA(shape, int64_t)[1] = longest;
  for (int64_t b = 0; b < d->batch; b++) {
    const labels *path = &d->paths[b * d->n + p];
    for (size_t k = 0; k < path->n; k++, at++) {
      T_DATA(indices, int64_t)[2 * at] = b;
      T_DATA(indices, int64_t)[2 * at + 1] = (int64_t)k;
      T_DATA(values, int64_t)[at] = path->at[k];
    }
  }
  return NULL;
}

static shoal_status put_paths(struct kernel_ctx *ctx, const struct decoded *d) {
  for (int64_t p = 0; p < d->n; p++) TRY(put_path(ctx, d, p));
  return NULL;
}

/* ---- greedy: the best class of each moment ---- */

static shoal_status greedy_run(struct kernel_ctx *ctx) {
  const struct ctc_decode_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct decoded d;
  struct tensor *score;
  TRY(decoded_init(&d, ctx, &score));
  int64_t batch = x->dims[1], classes = x->dims[2], blank = st->blank < 0 ? classes + st->blank : st->blank;
  shoal_status s = NULL;
  if (blank < 0 || blank >= classes)
    s = INVALID("blank_index expected to be between %" PRId64 " and %" PRId64 " but was %" PRId64, -classes,
                classes - 1, st->blank);
  for (int64_t b = 0; b < batch && !s; b++) {
    double sum = 0;
    int64_t last = -1;
    for (int64_t t = 0; t < T_DATA(ctx_in(ctx, 1), const int32_t)[b]; t++) {
      int64_t best = 0, from = (t * batch + b) * classes;
      for (int64_t c = 1; c < classes; c++)
        if (ctc_at(x, from + c) > ctc_at(x, from + best)) best = c;
      sum -= ctc_at(x, from + best);
      if (best != blank && !(st->merge && best == last)) vec_push(&d.paths[b], best);
      last = best;
    }
    ctc_put(score, b, sum);
  }
  if (!s) s = put_paths(ctx, &d);
  decoded_release(&d);
  return s;
}

/* ---- beam search ---- */

struct chance {
  double total, blank, label; /* ending in either, in a blank, in the last label */
};
static const struct chance never = {-INFINITY, -INFINITY, -INFINITY};

struct prefix {
  struct prefix *parent, *children, *sibling;
  struct prefix *made_before; /* all of a search, for freeing */
  int label;
  struct chance before, now; /* at the last moment, at this one */
};

struct beam_search {
  int64_t width, classes;
  struct prefix *made;   /* the newest */
  struct prefix **beam;  /* [width], n of them: a heap with the least likely first */
  struct prefix **old;   /* [width]: the beam of the last moment, most likely first */
  struct prefix **child; /* [classes]: of the prefix being extended; NULL: none yet */
  double *log_y;         /* [classes] */
  int64_t n;
};

static struct prefix *extend(struct beam_search *s, struct prefix *parent, int label) {
  struct prefix *p = mem_zalloc(1, sizeof *p);
  *p = (struct prefix){.parent = parent, .label = label, .made_before = s->made, .before = never, .now = never};
  s->made = p;
  if (parent) {
    p->sibling = parent->children;
    parent->children = p;
  }
  return p;
}

static void search_clear(struct beam_search *s) {
  for (struct prefix *p = s->made, *before; p; p = before) {
    before = p->made_before;
    free(p);
  }
  s->made = NULL;
  s->n = 0;
}

static void sift_down(struct beam_search *s, int64_t i) {
  struct prefix *p = s->beam[i];
  for (int64_t k; (k = 2 * i + 1) < s->n; i = k) {
    if (k + 1 < s->n && s->beam[k + 1]->now.total < s->beam[k]->now.total) k++;
    if (s->beam[k]->now.total >= p->now.total) break;
    s->beam[i] = s->beam[k];
  }
  s->beam[i] = p;
}

static void push(struct beam_search *s, struct prefix *p) {
  if (s->n == s->width) { /* the least likely goes */
    s->beam[0]->now = never;
    s->beam[0] = p;
    sift_down(s, 0);
    return;
  }
  int64_t i = s->n++;
  for (; i && s->beam[(i - 1) / 2]->now.total > p->now.total; i = (i - 1) / 2) s->beam[i] = s->beam[(i - 1) / 2];
  s->beam[i] = p;
}

static bool fits(const struct beam_search *s, const struct chance *c) {
  return c->total > -INFINITY && (s->n < s->width || c->total > s->beam[0]->now.total);
}

/* Empties the beam into old, most likely first; how many there were. */
static int64_t take_all(struct beam_search *s) {
  int64_t n = s->n;
  while (s->n) {
    s->old[s->n - 1] = s->beam[0];
    s->beam[0] = s->beam[--s->n];
    if (s->n) sift_down(s, 0);
  }
  return n;
}

static double last_of(const struct prefix *p, int label) {
  return label == p->label ? p->before.blank : p->before.total;
}

static void advance(struct beam_search *s) {
  int64_t n = take_all(s);
  double blank = s->log_y[s->classes - 1];
  for (int64_t i = 0; i < n; i++) s->old[i]->before = s->old[i]->now;
  for (int64_t i = 0; i < n; i++) { /* the same prefixes, a moment longer */
    struct prefix *p = s->old[i];
    if (p->parent) {
      if (p->parent->now.total != -INFINITY) p->now.label = ctc_log_add(p->now.label, last_of(p->parent, p->label));
      p->now.label += s->log_y[p->label];
    }
    p->now.blank = p->before.total + blank;
    p->now.total = ctc_log_add(p->now.blank, p->now.label);
    push(s, p);
  }
  for (int64_t i = 0; i < n; i++) { /* longer by a label */
    struct prefix *p = s->old[i];
    if (!fits(s, &p->before)) continue;
    for (struct prefix *c = p->children; c; c = c->sibling) s->child[c->label] = c;
    for (int label = 0; label < s->classes - 1; label++) {
      struct prefix *c = s->child[label];
      s->child[label] = NULL;
      if (c && c->now.total != -INFINITY) continue; /* was in the beam */
      double v = s->log_y[label] + last_of(p, label);
      struct chance now = {v, -INFINITY, v};
      if (!fits(s, &now)) {
        if (c) c->before = never; /* one that just fell out is not extended either, as in TensorFlow */
        continue;
      }
      if (!c) c = extend(s, p, label);
      c->now = now;
      push(s, c);
    }
  }
}

static void spell(const struct prefix *p, bool merge, labels *out) {
  int last = -1;
  for (; p->parent; last = p->label, p = p->parent)
    if (!merge || p->label != last) vec_push(out, p->label);
  for (size_t i = 0; i < out->n / 2; i++) {
    int64_t swap = out->at[i];
    out->at[i] = out->at[out->n - 1 - i];
    out->at[out->n - 1 - i] = swap;
  }
}

static shoal_status search_one(struct kernel_ctx *ctx, struct beam_search *s, int64_t b, const struct decoded *d,
                               struct tensor *score) {
  const struct ctc_decode_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct prefix *root = extend(s, NULL, -1);
  root->now.total = root->now.blank = 0;
  push(s, root);
  for (int64_t t = 0; t < T_DATA(ctx_in(ctx, 1), const int32_t)[b]; t++) {
    if (ctx->step->cancel && cancel_started(ctx->step->cancel)) return cancel_reason(ctx->step->cancel);
    ctc_log_softmax(x, (t * x->dims[1] + b) * s->classes, s->classes, s->log_y);
    advance(s);
  }
  if (st->paths > s->n) return INVALID("Less leaves in the beam search than requested.");
  take_all(s);
  for (int64_t p = 0; p < d->n; p++) {
    spell(s->old[p], st->merge, &d->paths[b * d->n + p]);
    ctc_put(score, b * d->n + p, s->old[p]->now.total);
  }
  return NULL;
}

static shoal_status beam_run(struct kernel_ctx *ctx) {
  const struct ctc_decode_state *st = ctx->state;
  struct decoded d;
  struct tensor *score;
  if (st->paths > st->width) return INVALID("requested more paths than the beam width.");
  TRY(decoded_init(&d, ctx, &score));
  int64_t classes = ctx_in(ctx, 0)->dims[2], room;
  struct buffer *memory = NULL;
  shoal_status s = NULL;
  if (mul_overflows(st->width, 2 * (int64_t)sizeof(void *), &room) || room > INT64_MAX / 2)
    s = INVALID("beam_width %" PRId64 " is too large", st->width);
  if (!s) s = buffer_new((size_t)room + (size_t)classes * (sizeof(void *) + sizeof(double)), &memory);
  if (!s) {
    struct beam_search se = {.width = st->width, .classes = classes, .beam = memory->data};
    se.old = se.beam + st->width;
    se.child = se.old + st->width;
    se.log_y = (double *)(se.child + classes);
    memset(se.child, 0, (size_t)classes * sizeof *se.child);
    for (int64_t b = 0; b < d.batch && !s; b++) {
      s = search_one(ctx, &se, b, &d, score);
      search_clear(&se);
    }
    buffer_unref(memory);
  }
  if (!s) s = put_paths(ctx, &d);
  decoded_release(&d);
  return s;
}

#define KERNELS(name, init_, run_)                                                         \
  static const struct kernel_def name[] = {{.device = "CPU",                               \
                                            .type_attr = "T",                              \
                                            .types = DT(FLOAT32) | DT(FLOAT64),            \
                                            .state_size = sizeof(struct ctc_decode_state), \
                                            .init = init_,                                 \
                                            .run = run_},                                  \
                                           {0}}
KERNELS(greedy_kernels, greedy_init, greedy_run);
KERNELS(beam_kernels, beam_init, beam_run);

static shoal_status decode_shape(struct shape_ctx *c) {
  struct shape x;
  TRY(shape_in_rank(c, 0, 3, &x));
  int n = (c->node->n_out - 1) / 3;
  for (int i = 0; i < n; i++) {
    c->out[i] = shape_matrix(-1, 2);
    c->out[n + i] = shape_vector(-1);
    c->out[2 * n + i] = shape_vector(2);
  }
  c->out[3 * n] = shape_matrix(x.dims[1], n);
  return NULL;
}

static const struct op_row rows[] = {
    {"CTCGreedyDecoder", .in = "inputs: T, sequence_length: int32",
     .out = "decoded_indices: int64, decoded_values: int64, decoded_shape: int64, log_probability: T",
     .attrs = "merge_repeated: bool = false; blank_index: int = -1; T: {float, double} = float",
     .flags = OP_NO_GRADIENT, .shape = decode_shape, .kernels = greedy_kernels},
    {"CTCBeamSearchDecoder", .in = "inputs: T, sequence_length: int32",
     .out = "decoded_indices: top_paths * int64, decoded_values: top_paths * int64, decoded_shape: top_paths * int64, "
            "log_probability: T",
     .attrs = "beam_width: int >= 1; top_paths: int >= 1; merge_repeated: bool = true; T: {float, double} = float",
     .flags = OP_NO_GRADIENT, .shape = decode_shape, .kernels = beam_kernels},
};
OP_FAMILY(ctc_decode, rows);
