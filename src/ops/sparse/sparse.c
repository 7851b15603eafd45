/* Sparse tensors: checks, order and outputs. See the header. */
#include "ops/sparse/sparse.h"

#include <stdlib.h>
#include <string.h>

shoal_status sparse_check(struct sparse *s) {
  if (s->indices->rank != 2) return INVALID("Sparse indices must be rank 2 but is rank %d", s->indices->rank);
  if (s->values->rank != 1) return INVALID("Sparse values must be rank 1 but is rank %d", s->values->rank);
  if (s->shape->rank != 1) return INVALID("Sparse shape must be rank 1 but is rank %d", s->shape->rank);
  if (s->indices->dims[0] != s->values->n)
    return INVALID("Number of elements in indices (%" PRId64 ") and values (%" PRId64 ") do not match",
                   s->indices->dims[0], s->values->n);
  if (s->indices->dims[1] != s->shape->n)
    return INVALID("Index rank (%" PRId64 ") and shape rank (%" PRId64 ") do not match", s->indices->dims[1],
                   s->shape->n);
  if (s->shape->n > SHOAL_MAX_RANK)
    return INVALID("Sparse tensors of more than %d dimensions are not supported", SHOAL_MAX_RANK);
  s->n = s->values->n;
  s->rank = (int)s->shape->n;
  return NULL;
}

shoal_status sparse_get(const struct kernel_ctx *ctx, int i, struct sparse *out) {
  *out = (struct sparse){.indices = ctx_in(ctx, i), .values = ctx_in(ctx, i + 1), .shape = ctx_in(ctx, i + 2)};
  return sparse_check(out);
}

shoal_status sparse_dims(const struct tensor *shape, int64_t *dims, int64_t *product) {
  *product = 1;
  for (int i = 0; i < shape->n; i++) {
    dims[i] = int_at(shape, i);
    if (dims[i] < 0) return INVALID("Dimension %" PRId64 " must be >= 0", dims[i]);
    if (mul_overflows(*product, dims[i], product))
      return INVALID("Shape %s has more elements than fit in 63 bits", ints_str(shape, 0, shape->n, ","));
  }
  return NULL;
}

shoal_status sparse_in_bounds(const struct sparse *s) {
  for (int64_t i = 0; i < s->n; i++)
    for (int k = 0; k < s->rank; k++) {
      int64_t v = sparse_index(s, i, k);
      if (v < 0 || v >= int_at(s->shape, k))
        return INVALID("Sparse index tuple indices[%" PRId64 ", :] = %s is out of bounds", i,
                       ints_str(s->indices, i * s->rank, s->rank, ", "));
    }
  return NULL;
}

int sparse_compare(const int64_t *a, const int64_t *b, int rank) {
  for (int k = 0; k < rank; k++)
    if (a[k] != b[k]) return a[k] < b[k] ? -1 : 1;
  return 0;
}

/* Merge sort: stable, and n log n whatever the input. */
static void sort_range(const int64_t *x, int rank, int64_t *order, int64_t *scratch, int64_t n) {
  if (n < 2) return;
  int64_t half = n / 2, a = 0, b = half, k = 0;
  sort_range(x, rank, order, scratch, half);
  sort_range(x, rank, order + half, scratch, n - half);
  while (a < half && b < n)
    scratch[k++] = sparse_compare(x + order[b] * rank, x + order[a] * rank, rank) < 0 ? order[b++] : order[a++];
  while (a < half) scratch[k++] = order[a++];
  while (b < n) scratch[k++] = order[b++];
  memcpy(order, scratch, (size_t)n * sizeof *order);
}

int64_t *sparse_order(const int64_t *indices, int64_t n, int rank) {
  int64_t *order = malloc(2 * sizeof *order * (size_t)(n + 1));
  if (!order) return NULL;
  bool sorted = true;
  for (int64_t i = 0; i < n; i++) {
    order[i] = i;
    if (i && sparse_compare(indices + (i - 1) * rank, indices + i * rank, rank) > 0) sorted = false;
  }
  if (!sorted) sort_range(indices, rank, order, order + n + 1, n);
  return order;
}

shoal_status sparse_out(struct kernel_ctx *ctx, int i, int64_t n, int rank, struct tensor **indices,
                        struct tensor **values, struct tensor **shape) {
  struct shape matrix = shape_matrix(n, rank), vector = shape_vector(n), dims = shape_vector(rank);
  TRY(ctx_out(ctx, i, &matrix, indices));
  TRY(ctx_out(ctx, i + 1, &vector, values));
  return shape ? ctx_out(ctx, i + 2, &dims, shape) : NULL;
}

void sparse_out_shapes(struct shape_ctx *c, int i, int64_t n, int64_t rank) {
  c->out[i] = shape_matrix(n, rank);
  c->out[i + 1] = shape_vector(n);
  if (i + 2 < c->node->n_out) c->out[i + 2] = shape_vector(rank);
}

int64_t sparse_in_rank(const struct shape_ctx *c, int i) {
  if (c->in[i].rank == 2 && c->in[i].dims[1] >= 0) return c->in[i].dims[1];
  return c->in[i + 2].rank == 1 ? c->in[i + 2].dims[0] : -1;
}
