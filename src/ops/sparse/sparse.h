/* Sparse tensors as TensorFlow has them: three tensors, indices [n, rank], values [n] and shape [rank]. What the
 * families of sparse ops share. */
#ifndef OPS_SPARSE_SPARSE_H
#define OPS_SPARSE_SPARSE_H

#include "ops/array/array_util.h"

struct sparse {
  const struct tensor *indices, *values, *shape;
  int64_t n;
  int rank;
};

/* Inputs i, i + 1 and i + 2 as one, their shapes checked against each other (not the indices against the shape). */
shoal_status sparse_get(const struct kernel_ctx *ctx, int i, struct sparse *out);
shoal_status sparse_check(struct sparse *s);
/* The shape's values are not negative, and their product is no overflow. */
shoal_status sparse_dims(const struct tensor *shape, int64_t *dims, int64_t *product);
static inline int64_t sparse_index(const struct sparse *s, int64_t i, int k) {
  return int_at(s->indices, i * s->rank + k);
}
static inline const void *sparse_value(const struct sparse *s, int64_t i) {
  return (const char *)s->values->data + (size_t)i * dtype_size((shoal_dtype)s->values->dtype);
}
/* Every index is inside [0, shape). */
shoal_status sparse_in_bounds(const struct sparse *s);
/* -1, 0, 1: rows a and b of two int64 matrices of that many columns, dimension by dimension. */
int sparse_compare(const int64_t *a, const int64_t *b, int rank);
/* The order of entries by index, stable; NULL when there is no memory. Freed by the caller. */
int64_t *sparse_order(const int64_t *indices, int64_t n, int rank);

/* Outputs of a sparse result: indices [n, rank], values [n] and, unless i + 2 is beyond the outputs, shape [rank]. */
shoal_status sparse_out(struct kernel_ctx *ctx, int i, int64_t n, int rank, struct tensor **indices,
                        struct tensor **values, struct tensor **shape);
/* Shape function's part: outputs i.. are a sparse tensor of that rank (-1: unknown). */
void sparse_out_shapes(struct shape_ctx *c, int i, int64_t n, int64_t rank);
/* The rank of the sparse tensor at input i as far as known. */
int64_t sparse_in_rank(const struct shape_ctx *c, int i);

#endif
