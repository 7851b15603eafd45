/* Datasets of given elements (windows, lists), and slices of sparse tensors. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/vec.h"
#include "data/dataset_rows.h"

struct elements {
  struct dataset head;
  VEC(struct tensor) at; /* component i of element k is at[k * n + i] */
};

struct elements_iter {
  struct data_iterator head;
  size_t at;
};

int64_t elements_count(const struct dataset *d) {
  return d->n ? (int64_t)((const struct elements *)d)->at.n / d->n : 0;
}

static shoal_status elements_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  const struct elements *e = (const struct elements *)it->of;
  size_t *at = &((struct elements_iter *)it)->at;
  *end = *at + (size_t)it->of->n > e->at.n;
  for (int i = 0; !*end && i < it->of->n; i++) tensor_ref(&out[i], &e->at.at[(*at)++]);
  return NULL;
}

static const struct data_iterator_type elements_iter_type = {sizeof(struct elements_iter), elements_next, NULL};

static shoal_status elements_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&elements_iter_type, d);
  return NULL;
}

static void elements_free(struct dataset *d) {
  struct elements *e = (struct elements *)d;
  for (size_t i = 0; i < e->at.n; i++) tensor_release(&e->at.at[i]);
  vec_release(&e->at);
}

static const struct dataset_type elements_type = {"Window", elements_iterate, elements_count, elements_free};

struct dataset *elements_new(int n, const shoal_dtype *types, const struct shape *shapes) {
  return dataset_new(sizeof(struct elements), &elements_type, n, types, shapes, NULL, 0);
}

void elements_add(struct dataset *d, struct tensor *component) {
  vec_push(&((struct elements *)d)->at, *component);
  *component = tensor_none();
}

/* ---- slices of a sparse tensor along its first dimension ---- */

struct sparse_slices {
  struct dataset head;
  struct tensor indices, values, shape;
};

struct sparse_iter {
  struct data_iterator head;
  int64_t row, at; /* the next slice, and the first value that is not before it */
};

static void sparse_free(struct dataset *d) {
  struct sparse_slices *s = (struct sparse_slices *)d;
  tensor_release(&s->indices);
  tensor_release(&s->values);
  tensor_release(&s->shape);
}

static int64_t sparse_size(const struct dataset *d) {
  return T_DATA(&((const struct sparse_slices *)d)->shape, const int64_t)[0];
}

static shoal_status sparse_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct sparse_iter *p = (struct sparse_iter *)it;
  const struct sparse_slices *s = (const struct sparse_slices *)it->of;
  int64_t rank = s->shape.n, total = s->values.n;
  const int64_t *indices = s->indices.data;
  *end = p->row >= sparse_size(it->of);
  if (*end) return NULL;
  int64_t first = p->at;
  while (p->at < total && indices[p->at * rank] == p->row) p->at++;
  int64_t n = p->at - first;
  shoal_dtype type = it->of->types[1];
  shoal_status bad = tensor_new_dims(&out[0], SHOAL_INT64, 2, (int64_t[]){n, rank - 1});
  if (!bad) bad = tensor_new_dims(&out[1], type, 1, &n);
  if (!bad) bad = tensor_new_dims(&out[2], SHOAL_INT64, 1, (int64_t[]){rank - 1});
  if (bad) {
    tensors_release(out, 3);
    return bad;
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 1; k < rank; k++)
      T_DATA(&out[0], int64_t)[i * (rank - 1) + k - 1] = indices[(first + i) * rank + k];
  elements_copy(type, out[1].data, (const char *)s->values.data + (size_t)first * dtype_size(type), n);
  for (int64_t k = 1; k < rank; k++) T_DATA(&out[2], int64_t)[k - 1] = T_DATA(&s->shape, const int64_t)[k];
  p->row++;
  return NULL;
}

static const struct data_iterator_type sparse_iter_type = {sizeof(struct sparse_iter), sparse_next, NULL};

static shoal_status sparse_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&sparse_iter_type, d);
  return NULL;
}

static const struct dataset_type sparse_type = {"SparseTensorSlice", sparse_iterate, sparse_size, sparse_free};

shoal_status dataset_sparse_slices(const struct tensor *indices, const struct tensor *values,
                                   const struct tensor *shape, struct dataset **out) {
  if (indices->rank != 2) return INVALID("Input indices must be a matrix.");
  if (values->rank != 1) return INVALID("Input values must be a vector.");
  if (shape->rank != 1) return INVALID("Input shape must be a vector.");
  if (indices->dims[0] != values->n)
    return INVALID("Number of values must match first dimension of indices. Got %" PRId64 " values, indices of %" PRId64
                   " rows",
                   values->n, indices->dims[0]);
  if (indices->dims[1] != shape->n)
    return INVALID("Number of dimensions must match second dimension of indices. Got %" PRId64
                   " dimensions, indices of %" PRId64 " columns",
                   shape->n, indices->dims[1]);
  if (shape->n < 1) return INVALID("The shape argument requires at least one element.");
  const int64_t *at = indices->data, *dims = shape->data;
  for (int64_t k = 0; k < shape->n; k++)
    if (dims[k] < 0) return INVALID("Dimension %" PRId64 " of the shape is negative", k);
  for (int64_t i = 0, before = 0; i < values->n; i++) {
    int64_t row = at[i * shape->n];
    if (row < before)
      return UNIMPLEMENTED(
          "The SparseTensor must be ordered in the batch dimension; handling "
          "arbitrarily ordered input is not currently supported.");
    if (row >= dims[0])
      return INVALID("Index %" PRId64 " of value %" PRId64 " is out of bounds: the first dimension is %" PRId64, row, i,
                     dims[0]);
    before = row;
  }
  shoal_dtype types[] = {SHOAL_INT64, (shoal_dtype)values->dtype, SHOAL_INT64};
  struct shape shapes[] = {shape_matrix(-1, shape->n - 1), shape_vector(-1), shape_vector(shape->n - 1)};
  struct sparse_slices *d = (struct sparse_slices *)dataset_new(sizeof *d, &sparse_type, 3, types, shapes, NULL, 0);
  tensor_ref(&d->indices, indices);
  tensor_ref(&d->values, values);
  tensor_ref(&d->shape, shape);
  *out = &d->head;
  return NULL;
}
