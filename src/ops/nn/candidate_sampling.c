/* Samplers of candidate classes for losses over many classes (NCE, sampled softmax): the same draws as TensorFlow's
 * for the same seeds. A sampler says how to draw one class and how probable a class is; what is common (drawing
 * without repetition, expected counts) is above it.
 *
 * Expected counts are those of the published rule: with n distinct classes found in t tries, a class of
 * probability p was expected 1 - (1-p)^t times; with repetition, n p times. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "graph/shape_fn.h"
#include "ops/random/random_fill.h"
#include "ops/text/string_in.h"

struct candidate_sampler;
struct sampler_type {
  int64_t (*draw)(const struct candidate_sampler *s, struct philox_stream *r);
  float (*probability)(const struct candidate_sampler *s, int64_t value);
};

struct candidate_sampler {
  struct random_state random;      /* first: random_reserve's */
  const struct sampler_type *type; /* NULL: all classes, in order */
  int64_t num_true, num_sampled, range;
  bool unique;
  float inv_range;
  double log_range;
  struct buffer *room; /* of tree, or of keep and other: attributes say how large it is, it is counted as tensors are */
  /* Learned unigrams: a tree of sums, the root at 1, class i at leaves + i. */
  pthread_mutex_t lock;
  int32_t *tree;
  int64_t leaves;
  /* Fixed unigrams: weights, and Walker's table of alternatives. */
  float *weights, *keep;
  int *other;
  float total;
};

/* ---- uniform, log-uniform ---- */

static int64_t uniform_draw(const struct candidate_sampler *s, struct philox_stream *r) {
  return (int64_t)philox_below64(r, (uint64_t)s->range);
}
static float uniform_probability(const struct candidate_sampler *s, int64_t value) { return s->inv_range; }
static const struct sampler_type uniform = {uniform_draw, uniform_probability};

static int64_t log_uniform_draw(const struct candidate_sampler *s, struct philox_stream *r) {
  return ((int64_t)exp(philox_stream_double(r) * s->log_range) - 1) % s->range;
}
static float log_uniform_probability(const struct candidate_sampler *s, int64_t value) {
  double v = (double)value;
  return (float)(log((v + 2.0) / (v + 1.0)) / s->log_range);
}
static const struct sampler_type log_uniform = {log_uniform_draw, log_uniform_probability};

/* ---- learned unigrams: as often as seen so far, plus one ---- */

static int64_t learned_draw(const struct candidate_sampler *s, struct philox_stream *r) {
  int32_t place = (int32_t)philox_below32(r, (uint32_t)s->tree[1]);
  int64_t at = 1;
  while (at < s->leaves) {
    at *= 2;
    if (place >= s->tree[at]) place -= s->tree[at++];
  }
  return at - s->leaves;
}
static float learned_probability(const struct candidate_sampler *s, int64_t value) {
  if (value < 0 || value >= s->range) return 0;
  return (float)s->tree[s->leaves + value] / (float)s->tree[1];
}
static const struct sampler_type learned = {learned_draw, learned_probability};

static void learn(struct candidate_sampler *s, const int64_t *values, int64_t n) {
  n = MIN(n, (int64_t)INT32_MAX - s->tree[1]);
  for (int64_t i = 0; i < n; i++) {
    if (values[i] < 0 || values[i] >= s->range) continue;
    for (int64_t at = s->leaves + values[i]; at; at /= 2) s->tree[at]++;
  }
}

/* ---- fixed unigrams ---- */

static int64_t fixed_draw(const struct candidate_sampler *s, struct philox_stream *r) {
  float v = philox_stream_float(r);
  uint32_t i = philox_below32(r, (uint32_t)s->range);
  return v < s->keep[i] ? (int64_t)i : s->other[i];
}
static float fixed_probability(const struct candidate_sampler *s, int64_t value) {
  return value < 0 || value >= s->range ? 0 : s->weights[value] / s->total;
}
static const struct sampler_type fixed = {fixed_draw, fixed_probability};

enum { ALTERNATIVES_BYTES = 8 + 4 * 4 }; /* for a class: share, low, high, other, keep */

/* Walker's method: every class keeps its own share of 1/n and gives the rest of the place to a richer one. */
static void make_alternatives(struct candidate_sampler *s) {
  size_t n = (size_t)s->range;
  double sum = 0, *share = s->room->data;
  int *low = (int *)(share + n), *high = low + n;
  size_t n_low = 0, n_high = 0;
  s->other = high + n;
  s->keep = (float *)(s->other + n);
  for (size_t i = 0; i < n; i++) sum += (double)s->weights[i];
  for (size_t i = 0; i < n; i++) {
    share[i] = (double)(s->weights[i] * (float)n) / sum;
    if (share[i] < 1) low[n_low++] = (int)i;
    else high[n_high++] = (int)i;
  }
  while (n_low && n_high) {
    int l = low[--n_low], h = high[--n_high];
    s->other[l] = h;
    share[h] -= 1 - share[l];
    if (share[h] < 1) low[n_low++] = h;
    else high[n_high++] = h;
  }
  for (size_t i = 0; i < n; i++) s->keep[i] = (float)share[i];
  while (n_low || n_high) { /* rounding left these near 1 */
    int i = n_low ? low[--n_low] : high[--n_high];
    s->keep[i] = 1;
    s->other[i] = i;
  }
}

/* ---- making them ---- */

static shoal_status init_common(struct kernel_init *ki, struct candidate_sampler *s) {
  TRY(random_state_init(ki, &s->random));
  pthread_mutex_init(&s->lock, NULL);
  TRY(node_get_int(ki->node, "num_true", &s->num_true));
  TRY(node_get_int(ki->node, "num_sampled", &s->num_sampled));
  TRY(node_get_bool(ki->node, "unique", &s->unique));
  s->range = s->num_sampled;
  if (node_attr(ki->node, "range_max")) TRY(node_get_int(ki->node, "range_max", &s->range));
  if (s->num_true < 1 || s->num_sampled < 1 || s->range < 1 || s->num_sampled > INT32_MAX)
    return INVALID("num_true, num_sampled and range_max must be positive and num_sampled below 2^31");
  s->inv_range = (float)(1.0 / (double)s->range);
  s->log_range = log1p((double)s->range);
  return NULL;
}

static shoal_status init_all(struct kernel_init *ki, void *state) { return init_common(ki, state); }

static shoal_status init_uniform(struct kernel_init *ki, void *state) {
  ((struct candidate_sampler *)state)->type = &uniform;
  return init_common(ki, state);
}

static shoal_status init_log_uniform(struct kernel_init *ki, void *state) {
  ((struct candidate_sampler *)state)->type = &log_uniform;
  return init_common(ki, state);
}

static shoal_status init_learned(struct kernel_init *ki, void *state) {
  struct candidate_sampler *s = state;
  s->type = &learned;
  TRY(init_common(ki, s));
  if (s->range >= INT32_MAX / 2) return INVALID("range_max must be below 2^30, not %" PRId64, s->range);
  s->leaves = 1;
  while (s->leaves < s->range) s->leaves *= 2;
  TRY(buffer_new((size_t)s->leaves * 2 * sizeof *s->tree, &s->room));
  s->tree = memset(s->room->data, 0, (size_t)s->leaves * 2 * sizeof *s->tree);
  for (int64_t i = 0; i < s->range; i++) s->tree[s->leaves + i] = 1;
  for (int64_t i = s->leaves - 1; i > 0; i--) s->tree[i] = s->tree[2 * i] + s->tree[2 * i + 1];
  return NULL;
}

struct weights {
  VEC(float) list;
  float total;
  int64_t shards, shard, id;
  float distortion;
};

static void add_weight(struct weights *w, float v) {
  if (w->id++ % w->shards != w->shard) return;
  v = powf(v, w->distortion);
  w->total += v;
  vec_push(&w->list, v);
}

/* One class a line, its weight after the last comma. */
static shoal_status load_weights(struct weights *w, const char *path) {
  char *data;
  size_t n;
  TRY(file_read(path, 0, &data, &n));
  shoal_status s = NULL;
  for (char *at = data, *end = data + n; !s && at < end;) {
    char *stop = memchr(at, '\n', (size_t)(end - at));
    if (!stop) stop = end;
    char *comma = memrchr(at, ',', (size_t)(stop - at)), *number = comma ? comma + 1 : at;
    float v = 0;
    bool mine = w->id % w->shards == w->shard;
    if (mine && !string_to_number(number, (size_t)(stop - number), SHOAL_FLOAT32, &v, 0))
      s = INVALID("Wrong vocabulary format at line: %.*s", (int)(stop - at), at);
    else add_weight(w, v);
    at = stop + 1;
  }
  free(data);
  return s;
}

static shoal_status init_fixed(struct kernel_init *ki, void *state) {
  struct candidate_sampler *s = state;
  s->type = &fixed;
  TRY(init_common(ki, s));
  const char *file;
  const struct attr *unigrams;
  int64_t reserved;
  struct weights w = {0};
  TRY(node_get_string(ki->node, "vocab_file", &file));
  TRY(node_get_list(ki->node, "unigrams", ATTR_FLOAT, &unigrams));
  TRY(node_get_float(ki->node, "distortion", &w.distortion));
  TRY(node_get_int(ki->node, "num_reserved_ids", &reserved));
  TRY(node_get_int(ki->node, "num_shards", &w.shards));
  TRY(node_get_int(ki->node, "shard", &w.shard));
  if (!*file && !unigrams->list.n) return INVALID("Must provide either vocab_file or unigrams.");
  if (*file && unigrams->list.n) return INVALID("Must only provide one of vocab_file and unigrams.");
  if (w.shards < 1 || w.shard < 0 || w.shard >= w.shards)
    return INVALID("shard must be in [0, num_shards), but is %" PRId64 " of %" PRId64, w.shard, w.shards);
  int64_t zeros = reserved > w.shard ? (reserved - w.shard - 1) / w.shards + 1 : 0; /* of this shard */
  if (reserved < 0 || zeros > s->range)
    return INVALID("num_reserved_ids must be in [0, range_max], not %" PRId64, reserved);
  if (s->range > INT32_MAX) return INVALID("range_max must be below 2^31");
  TRY(buffer_new((size_t)s->range * ALTERNATIVES_BYTES, &s->room));
  while ((int64_t)w.list.n < zeros) vec_push(&w.list, 0.0f);
  w.id = zeros;
  shoal_status e = NULL;
  if (*file) e = load_weights(&w, file);
  for (size_t i = 0; !*file && i < unigrams->list.n; i++) add_weight(&w, unigrams->list.at[i].f);
  if (!e && (int64_t)w.list.n != s->range)
    e = INVALID("range_max is %" PRId64 ", but %zu weights are given", s->range, w.list.n);
  s->weights = w.list.at;
  s->total = w.total;
  if (!e) make_alternatives(s);
  return e;
}

static void release(void *state) {
  struct candidate_sampler *s = state;
  buffer_unref(s->room);
  free(s->weights);
  pthread_mutex_destroy(&s->lock);
  random_state_release(&s->random);
}

/* ---- drawing ---- */

/* A set of classes; open addressing. */
struct set {
  int64_t *at; /* -1: free */
  size_t mask;
};

static bool set_add(struct set *set, int64_t v) {
  size_t i = (size_t)((uint64_t)v * 0x9e3779b97f4a7c15ull >> 20) & set->mask;
  for (; set->at[i] != -1; i = (i + 1) & set->mask)
    if (set->at[i] == v) return false;
  set->at[i] = v;
  return true;
}

static shoal_status set_init(struct set *set, int64_t most, struct buffer **room) {
  set->mask = 15;
  while (set->mask < (size_t)most * 2) set->mask = set->mask * 2 + 1;
  TRY(buffer_new((set->mask + 1) * sizeof *set->at, room));
  set->at = memset((*room)->data, 0xff, (set->mask + 1) * sizeof *set->at);
  return NULL;
}

/* Fills out with classes and returns how many were drawn for that. The last ones of all there are may never come: then
 * it ends with the step. */
static int64_t draw_distinct(const struct candidate_sampler *s, struct set *set, const struct cancel *cancel,
                             struct philox_stream *r, int64_t *out) {
  int64_t tries = 0, n = 0;
  for (; n < s->num_sampled && tries < INT32_MAX; tries++) {
    int64_t v = s->type->draw(s, r);
    if (set_add(set, v)) out[n++] = v;
    else if (cancel && cancel_started(cancel)) break;
  }
  while (n < s->num_sampled) out[n++] = 0;
  return tries;
}

static float expected(float p, int64_t drawn, int64_t tries) {
  return tries == drawn ? p * (float)drawn : -expm1f((float)tries * log1pf(-p));
}

/* How many classes can come up at all: drawing more distinct ones would never end. */
static int64_t possible(const struct candidate_sampler *s) {
  if (s->type != &fixed) return s->range;
  int64_t n = 0;
  for (int64_t i = 0; i < s->range; i++) n += s->weights[i] > 0;
  return n;
}

static shoal_status run(struct kernel_ctx *ctx) {
  struct candidate_sampler *s = ctx->state;
  const struct tensor *classes = ctx_in(ctx, 0);
  if (classes->rank != 2) return INVALID("true_classes must be a matrix");
  if (classes->dims[1] != s->num_true)
    return INVALID("true_classes must have num_true columns, expected: %" PRId64 " was: %" PRId64, classes->dims[1],
                   s->num_true);
  if (s->type && s->unique && s->num_sampled > possible(s)) return INVALID("Sampler's range is too small.");
  struct tensor *sampled, *true_count, *sampled_count;
  TRY(ctx_out_dims(ctx, 0, 1, &s->num_sampled, &sampled));
  TRY(ctx_out_dims(ctx, 1, 2, classes->dims, &true_count));
  TRY(ctx_out_dims(ctx, 2, 1, &s->num_sampled, &sampled_count));
  int64_t *out = sampled->data;
  float *counts = sampled_count->data, *true_counts = true_count->data;
  struct philox_stream r = philox_stream(random_reserve(&s->random, (2048 * (uint64_t)s->num_sampled + 3) / 4));
  if (!s->type) {
    for (int64_t i = 0; i < s->num_sampled; i++) out[i] = i, counts[i] = 1;
    for (int64_t i = 0; i < classes->n; i++) true_counts[i] = 1;
    return NULL;
  }
  struct set set = {0};
  struct buffer *room = NULL;
  if (s->unique) TRY(set_init(&set, s->num_sampled, &room));
  pthread_mutex_lock(&s->lock);
  int64_t tries = s->num_sampled;
  if (s->unique) tries = draw_distinct(s, &set, ctx->step->cancel, &r, out);
  else
    for (int64_t i = 0; i < s->num_sampled; i++) out[i] = s->type->draw(s, &r);
  for (int64_t i = 0; i < s->num_sampled; i++)
    counts[i] = expected(s->type->probability(s, out[i]), s->num_sampled, tries);
  for (int64_t i = 0; i < classes->n; i++)
    true_counts[i] = expected(s->type->probability(s, T_DATA(classes, int64_t)[i]), s->num_sampled, tries);
  if (s->tree) learn(s, classes->data, classes->n);
  pthread_mutex_unlock(&s->lock);
  buffer_unref(room);
  return NULL;
}

static shoal_status shape_sampler(struct shape_ctx *c) {
  int64_t sampled, num_true;
  TRY(node_get_int(c->node, "num_sampled", &sampled));
  TRY(node_get_int(c->node, "num_true", &num_true));
  struct shape classes;
  TRY(shape_in_rank(c, 0, 2, &classes));
  c->out[0] = c->out[2] = shape_vector(sampled);
  c->out[1] = shape_matrix(classes.dims[0], num_true);
  return NULL;
}

/* ---- ComputeAccidentalHits: which true classes were drawn as well ---- */

struct hits_state {
  int64_t num_true;
};

static shoal_status init_hits(struct kernel_init *ki, void *state) {
  return node_get_int(ki->node, "num_true", &((struct hits_state *)state)->num_true);
}

/* Candidates in order, for search; of equal ones the last position counts. */
struct candidate_place {
  int64_t candidate, position;
};

static int by_candidate(const void *a, const void *b) {
  const struct candidate_place *x = a, *y = b;
  if (x->candidate != y->candidate) return x->candidate < y->candidate ? -1 : 1;
  return x->position < y->position ? -1 : x->position > y->position;
}

static int64_t find_last(const struct candidate_place *at, int64_t n, int64_t candidate) {
  int64_t lo = 0, hi = n; /* the first past the candidate */
  while (lo < hi) {
    int64_t mid = lo + (hi - lo) / 2;
    if (at[mid].candidate <= candidate) lo = mid + 1;
    else hi = mid;
  }
  return lo && at[lo - 1].candidate == candidate ? at[lo - 1].position : -1;
}

static shoal_status run_hits(struct kernel_ctx *ctx) {
  const struct tensor *classes = ctx_in(ctx, 0), *sampled = ctx_in(ctx, 1);
  if (classes->rank != 2 || classes->dims[1] != ((const struct hits_state *)ctx->state)->num_true)
    return INVALID("true_candidates must be a batch_size * num_true matrix");
  if (sampled->rank != 1)
    return INVALID("sampled_candidates must be a vector, which is typically an output from CandidateSampler");
  struct candidate_place *places = mem_zalloc((size_t)sampled->n + 1, sizeof *places);
  for (int64_t i = 0; i < sampled->n; i++) places[i] = (struct candidate_place){T_DATA(sampled, int64_t)[i], i};
  qsort(places, (size_t)sampled->n, sizeof *places, by_candidate);
  VEC(struct candidate_place) hits = {0}; /* row, position */
  for (int64_t i = 0; i < classes->n; i++) {
    int64_t at = find_last(places, sampled->n, T_DATA(classes, int64_t)[i]);
    if (at >= 0) vec_push(&hits, (struct candidate_place){i / classes->dims[1], at});
  }
  free(places);
  int64_t n = (int64_t)hits.n;
  struct tensor *rows, *ids, *weights;
  shoal_status s = ctx_out_dims(ctx, 0, 1, &n, &rows);
  if (!s) s = ctx_out_dims(ctx, 1, 1, &n, &ids);
  if (!s) s = ctx_out_dims(ctx, 2, 1, &n, &weights);
  for (int64_t i = 0; !s && i < n; i++) {
    T_DATA(rows, int32_t)[i] = (int32_t)hits.at[i].candidate;
    T_DATA(ids, int64_t)[i] = hits.at[i].position;
    T_DATA(weights, float)[i] = -FLT_MAX;
  }
  vec_release(&hits);
  return s;
}

static shoal_status shape_hits(struct shape_ctx *c) {
  for (int i = 0; i < 3; i++) c->out[i] = shape_vector(-1);
  return NULL;
}

/* ---- rows ---- */

#define KERNEL(init_)                                                                                                 \
  (const struct kernel_def[]) {                                                                                       \
    {.device = "CPU", .state_size = sizeof(struct candidate_sampler), .init = init_, .release = release, .run = run}, \
    {                                                                                                                 \
      0                                                                                                               \
    }                                                                                                                 \
  }
#define SAMPLER(op, extra, init_)                                                                               \
  {                                                                                                             \
    .name = op, .in = "true_classes: int64",                                                                    \
    .out = "sampled_candidates: int64, true_expected_count: float, sampled_expected_count: float",              \
    .attrs = "num_true: int >= 1; num_sampled: int >= 1; unique: bool; " extra "seed: int = 0; seed2: int = 0", \
    .flags = OP_STATEFUL | OP_NO_GRADIENT, .shape = shape_sampler, .kernels = KERNEL(init_)                     \
  }
#define RANGE "range_max: int >= 1; "

static const struct op_row rows[] = {
    SAMPLER("UniformCandidateSampler", RANGE, init_uniform),
    SAMPLER("LogUniformCandidateSampler", RANGE, init_log_uniform),
    SAMPLER("LearnedUnigramCandidateSampler", RANGE, init_learned),
    SAMPLER("ThreadUnsafeUnigramCandidateSampler", RANGE, init_learned),
    SAMPLER("FixedUnigramCandidateSampler",
            RANGE "vocab_file: string = ''; distortion: float = 1.0; num_reserved_ids: int = 0; "
                  "num_shards: int >= 1 = 1; shard: int >= 0 = 0; unigrams: list(float) = []; ",
            init_fixed),
    SAMPLER("AllCandidateSampler", "", init_all),
    {.name = "ComputeAccidentalHits",
     .in = "true_classes: int64, sampled_candidates: int64",
     .out = "indices: int32, ids: int64, weights: float",
     .attrs = "num_true: int; seed: int = 0; seed2: int = 0",
     .flags = OP_NO_GRADIENT,
     .shape = shape_hits,
     .kernels =
         (const struct kernel_def[]){
             {.device = "CPU", .state_size = sizeof(struct hits_state), .init = init_hits, .run = run_hits}, {0}}},
};
OP_FAMILY(candidate_sampling, rows);
