/* Clustering: NearestNeighbors, the k centers nearest to each point, and KMC2ChainInitialization, a Markov chain that
 * picks one of a list by distance. */
#include <math.h>
#include <stdlib.h>

#include "base/philox.h"
#include "ops/array_util.h"

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

static const struct op_row rows[] = {
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
