/* Clustering: NearestNeighbors, the k centers nearest to each point; KMC2ChainInitialization, a Markov chain that picks
 * one of a list by distance; KmeansPlusPlusInitialization, points to begin with that lie far from one another. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "ops/array/array_util.h"

struct neighbor {
  float distance;
  int64_t center;
};

static int by_distance(const void *x, const void *y) {
  const struct neighbor *a = x, *b = y;
  if (a->distance != b->distance) return a->distance < b->distance ? -1 : 1;
  return a->center < b->center ? -1 : a->center > b->center;
}

static float dot(const float *a, const float *b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

static shoal_status run_nearest(struct kernel_ctx *ctx) {
  const struct tensor *points = ctx_in(ctx, 0), *centers = ctx_in(ctx, 1), *wanted = ctx_in(ctx, 2);
  if (points->rank != 2) return INVALID("Input points should be a matrix.");
  if (centers->rank != 2) return INVALID("Input centers should be a matrix.");
  if (wanted->rank) return INVALID("Input k should be a scalar.");
  if (points->dims[0] <= 0) return INVALID("Expected points.rows() > 0.");
  int64_t n = points->dims[0], m = centers->dims[0], width = points->dims[1];
  if (width != centers->dims[1])
    return INVALID("Expected point_dimensions == center_dimensions: %" PRId64 " vs %" PRId64 ".", width,
                   centers->dims[1]);
  int64_t k = MIN(m, int_at(wanted, 0));
  if (k < 0) return INVALID("Expected k >= 0.");
  struct tensor *indices, *distances, memory;
  TRY(ctx_out_dims(ctx, 0, 2, (int64_t[]){n, k}, &indices));
  TRY(ctx_out_dims(ctx, 1, 2, (int64_t[]){n, k}, &distances));
  if (k == 0) return NULL;
  struct shape room = shape_matrix(m, 2);
  TRY(ctx_temp(ctx, SHOAL_INT64, &room, &memory));
  struct neighbor *near = memory.data;
  for (int64_t i = 0; i < n; i++) {
    const float *p = T_DATA(points, const float) + i * width;
    float half = 0.5f * dot(p, p, width);
    for (int64_t j = 0; j < m; j++) {
      const float *c = T_DATA(centers, const float) + j * width;
      near[j] = (struct neighbor){2 * (half - dot(p, c, width) + 0.5f * dot(c, c, width)), j};
    }
    qsort(near, (size_t)m, sizeof *near, by_distance);
    for (int64_t j = 0; j < k; j++) {
      T_DATA(indices, int64_t)[i * k + j] = near[j].center;
      T_DATA(distances, float)[i * k + j] = near[j].distance;
    }
  }
  tensor_release(&memory);
  return NULL;
}

static shoal_status run_chain(struct kernel_ctx *ctx) {
  const struct tensor *distances = ctx_in(ctx, 0), *seed = ctx_in(ctx, 1);
  if (distances->rank != 1) return INVALID("Input distances should be a vector.");
  if (seed->rank) return INVALID("Input seed should be a scalar.");
  if (distances->n == 0) return INVALID("Expected distances_tensor.size() > 0.");
  struct philox_stream random = philox_stream(philox_from_seeds((uint64_t)int_at(seed, 0), 0));
  const float *d = distances->data;
  int64_t chosen = 0;
  for (int64_t i = 1; i < distances->n; i++)
    if (d[i] > philox_stream_float(&random) * d[chosen]) chosen = i;
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  *T_DATA(out, int64_t) = chosen;
  return NULL;
}

/* ---- k-means++ ---- */

struct seeding {
  const float *points, *norms;        /* norms: half the square of each point's length */
  float *least, *best, *trial, *sums; /* [n]: half squared distances to the nearest sample, and their running sums */
  bool *taken;
  int64_t n, width;
  struct philox_stream random;
};

/* A point that is no sample yet, by its distance from the samples there are; any, as long as there are none. */
static shoal_status draw_point(struct seeding *s, bool first, int64_t *out) {
  enum { TRIES = 1 << 20 }; /* points that are all the same have no distance to be drawn by */
  for (int i = 0; i < TRIES; i++) {
    int64_t low = 0, high = s->n;
    if (first) low = (int64_t)philox_below64(&s->random, (uint64_t)s->n);
    else
      for (float v = philox_stream_float(&s->random) * s->sums[s->n - 1]; low < high;) { /* the first sum above v */
        int64_t middle = low + (high - low) / 2;
        if (v < s->sums[middle]) high = middle;
        else low = middle + 1;
      }
    *out = MIN(low, s->n - 1);
    if (!s->taken[*out]) return NULL;
  }
  return INVALID("The points are too much alike to draw as many samples");
}

/* The distances there would be with a further sample, in s->trial; their sum. */
static float distances_with(struct seeding *s, int64_t sample) {
  const float *y = s->points + sample * s->width;
  float sum = 0;
  for (int64_t i = 0; i < s->n; i++) {
    float d = s->norms[i] - dot(s->points + i * s->width, y, s->width) + s->norms[sample];
    s->trial[i] = d < s->least[i] ? d : s->least[i];
    sum += s->trial[i];
  }
  return sum;
}

static void swap(float **a, float **b) {
  float *t = *a;
  *a = *b;
  *b = t;
}

/* The best of several draws: that which leaves the points nearest to a sample. */
static shoal_status next_sample(struct seeding *s, int64_t retries, bool first, int64_t *out) {
  float best = INFINITY;
  *out = 0;
  for (int64_t i = 0; i <= retries; i++) {
    int64_t sample;
    TRY(draw_point(s, first, &sample));
    float sum = distances_with(s, sample);
    if (i && !(sum < best)) continue;
    best = sum;
    *out = sample;
    swap(&s->best, &s->trial);
  }
  swap(&s->least, &s->best);
  s->taken[*out] = true;
  s->sums[0] = s->least[0];
  for (int64_t i = 1; i < s->n; i++) s->sums[i] = s->sums[i - 1] + s->least[i];
  return NULL;
}

static shoal_status run_seeding(struct kernel_ctx *ctx) {
  static const char *const names[] = {"points", "num_to_sample", "seed", "num_retries_per_sample"};
  const struct tensor *points = ctx_in(ctx, 0);
  if (points->rank != 2) return INVALID("Input points should be a matrix.");
  for (int i = 1; i < 4; i++)
    if (ctx_in(ctx, i)->rank) return INVALID("Input %s should be a scalar.", names[i]);
  int64_t n = points->dims[0], width = points->dims[1], want = int_at(ctx_in(ctx, 1), 0);
  int64_t retries = int_at(ctx_in(ctx, 3), 0);
  if (n <= 0) return INVALID("Expected points.rows() > 0.");
  if (want <= 0) return INVALID("Expected num_to_sample > 0.");
  if (want > n) return INVALID("Expected num_to_sample <= points.rows(). %" PRId64 " vs %" PRId64 ".", want, n);
  if (retries < 0) retries = 2 + (int64_t)log((double)want);
  if (retries >= INT32_MAX) return INVALID("num_retries_per_sample is too large: %" PRId64, retries);
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 2, (int64_t[]){want, width}, &out));
  float *memory = mem_try_zalloc((size_t)n * 5, sizeof *memory);
  bool *taken = mem_try_zalloc((size_t)n, sizeof *taken);
  shoal_status s = memory && taken ? NULL : NO_MEMORY((size_t)n * 21, "distances");
  struct seeding k = {.points = points->data, .norms = memory, .taken = taken, .n = n, .width = width};
  k.random = philox_stream(philox_from_seeds((uint64_t)int_at(ctx_in(ctx, 2), 0), 0));
  if (!s) k.least = memory + n, k.best = memory + 2 * n, k.trial = memory + 3 * n, k.sums = memory + 4 * n;
  for (int64_t i = 0; !s && i < n; i++) {
    memory[i] = 0.5f * dot(k.points + i * width, k.points + i * width, width);
    k.least[i] = INFINITY;
  }
  for (int64_t i = 0; !s && i < want; i++) {
    int64_t sample;
    s = next_sample(&k, retries, i == 0, &sample);
    if (!s && width) memcpy(T_DATA(out, float) + i * width, k.points + sample * width, (size_t)width * sizeof(float));
  }
  free(memory);
  free(taken);
  return s;
}

static const struct op_row rows[] = {
    {.name = "KmeansPlusPlusInitialization",
     .in = "points: float, num_to_sample: int64, seed: int64, num_retries_per_sample: int64",
     .out = "samples: float",
     .flags = OP_NO_GRADIENT,
     .kernels = (const struct kernel_def[]){{.device = "CPU", .run = run_seeding, .flags = KERNEL_EXPENSIVE}, {0}}},
    {.name = "NearestNeighbors",
     .in = "points: float, centers: float, k: int64",
     .out = "nearest_center_indices: int64, nearest_center_distances: float",
     .flags = OP_NO_GRADIENT,
     .kernels = (const struct kernel_def[]){{.device = "CPU", .run = run_nearest, .host_in = 4}, {0}}},
    {.name = "KMC2ChainInitialization",
     .in = "distances: float, seed: int64",
     .out = "index: int64",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = (const struct kernel_def[]){{.device = "CPU", .run = run_chain, .host_in = 2}, {0}}},
};
OP_FAMILY(clustering, rows);
