/* Batches: elements stacked, with or without padding, and taken apart again. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/vec.h"
#include "data/dataset_rows.h"

struct batch_dataset {
  struct dataset head;
  int64_t size;
  bool drop;
  bool padded;
  struct shape *pad_shapes;  /* [n] of one element; -1: as large as the largest in the batch */
  struct tensor *pad_values; /* [n] scalars */
};

static int64_t batch_size(const struct dataset *d) {
  const struct batch_dataset *b = (const struct batch_dataset *)d;
  int64_t n = dataset_size(d->inputs[0]);
  if (n < 0) return n;
  return n / b->size + (!b->drop && n % b->size ? 1 : 0);
}

shoal_status rows_gather(struct data_iterator *it, struct data_ctx *ctx, int64_t count, struct tensor **rows,
                         int64_t *n_rows) {
  struct data_iterator *in;
  int n = it->of->inputs[0]->n;
  TRY(iterator_input(it, &in));
  VEC(struct tensor) v = {0};
  *n_rows = 0;
  shoal_status s = NULL;
  bool end = false;
  while (!s && *n_rows < count) {
    vec_reserve(&v, v.n + (size_t)MAX(n, 1));
    for (int i = 0; i < n; i++) v.at[v.n + (size_t)i] = tensor_none();
    s = iterator_next(in, ctx, v.at + v.n, &end);
    if (s || end) break;
    v.n += (size_t)n;
    ++*n_rows;
  }
  if (s) {
    tensors_release(v.at, (int)v.n);
    vec_release(&v);
  }
  *rows = v.at;
  return s;
}

void rows_drop(struct tensor *rows, int64_t n_rows, int n) {
  for (int64_t i = 0; i < n_rows * n; i++) tensor_release(&rows[i]);
  free(rows);
}

shoal_status rows_stack(const struct tensor *rows, int64_t n_rows, int n, int c, struct tensor *out) {
  const struct tensor *first = &rows[c];
  struct shape s = {.rank = first->rank + 1, .dims = {n_rows}};
  if (s.rank > SHOAL_MAX_RANK) return INVALID("A batch of rank %d is not supported", s.rank);
  for (int k = 0; k < first->rank; k++) s.dims[k + 1] = first->dims[k];
  for (int64_t r = 1; r < n_rows; r++)
    if (!tensor_same_shape(first, &rows[r * n + c])) {
      struct shape a = tensor_shape(first), b = tensor_shape(&rows[r * n + c]);
      return INVALID(
          "Cannot batch tensors with different shapes in component %d. First element had shape %s and element "
          "%" PRId64 " had shape %s.",
          c, shape_str(&a), r, shape_str(&b));
    }
  TRY(tensor_new(out, (shoal_dtype)first->dtype, &s));
  size_t bytes = (size_t)first->n * dtype_size((shoal_dtype)first->dtype);
  for (int64_t r = 0; r < n_rows; r++)
    elements_copy((shoal_dtype)first->dtype, (char *)out->data + (size_t)r * bytes, rows[r * n + c].data, first->n);
  return NULL;
}

/* Copies a block into the corner of a larger one, dimension by dimension. */
static void place(shoal_dtype type, char *to, const int64_t *to_dims, const char *from, const int64_t *dims, int rank) {
  size_t size = dtype_size(type);
  if (rank == 0) {
    elements_copy(type, to, from, 1);
    return;
  }
  if (rank == 1) {
    elements_copy(type, to, from, dims[0]);
    return;
  }
  size_t to_row = size, from_row = size;
  for (int k = 1; k < rank; k++) to_row *= (size_t)to_dims[k], from_row *= (size_t)dims[k];
  for (int64_t i = 0; i < dims[0]; i++)
    place(type, to + (size_t)i * to_row, to_dims + 1, from + (size_t)i * from_row, dims + 1, rank - 1);
}

static shoal_status stack_padded(const struct batch_dataset *b, const struct tensor *rows, int64_t n_rows, int n, int c,
                                 struct tensor *out) {
  struct shape s = {.rank = b->pad_shapes[c].rank + 1, .dims = {n_rows}};
  const struct shape *want = &b->pad_shapes[c];
  for (int k = 0; k < want->rank; k++) s.dims[k + 1] = want->dims[k];
  for (int64_t r = 0; r < n_rows; r++) {
    const struct tensor *t = &rows[r * n + c];
    if (t->rank != want->rank)
      return INVALID(
          "All elements in a batch must have the same rank as the padded shape for component%d: expected rank "
          "%d but got element with rank %d",
          c, want->rank, t->rank);
    for (int k = 0; k < t->rank; k++) {
      if (want->dims[k] < 0) s.dims[k + 1] = MAX(s.dims[k + 1], t->dims[k]);
      else if (t->dims[k] > want->dims[k])
        return STATUS(SHOAL_DATA_LOSS, "Attempted to pad to a smaller size than the input element.");
    }
  }
  for (int k = 1; k < s.rank; k++) s.dims[k] = MAX(s.dims[k], 0);
  shoal_dtype type = (shoal_dtype)rows[c].dtype;
  TRY(tensor_new(out, type, &s));
  size_t size = dtype_size(type);
  for (int64_t i = 0; i < out->n; i++)
    elements_copy(type, (char *)out->data + (size_t)i * size, b->pad_values[c].data, 1);
  size_t row = n_rows ? (size_t)(out->n / n_rows) * size : 0;
  for (int64_t r = 0; r < n_rows; r++) {
    const struct tensor *t = &rows[r * n + c];
    if (t->n) place(type, (char *)out->data + (size_t)r * row, s.dims + 1, t->data, t->dims, t->rank);
  }
  return NULL;
}

static shoal_status batch_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  const struct batch_dataset *b = (const struct batch_dataset *)it->of;
  int n = it->of->n;
  struct tensor *rows;
  int64_t n_rows;
  TRY(rows_gather(it, ctx, b->size, &rows, &n_rows));
  *end = n_rows == 0 || (b->drop && n_rows < b->size);
  shoal_status s = NULL;
  for (int c = 0; c < n && !*end && !s; c++) {
    s = b->padded ? stack_padded(b, rows, n_rows, n, c, &out[c]) : rows_stack(rows, n_rows, n, c, &out[c]);
    if (s) tensors_release(out, c);
  }
  rows_drop(rows, n_rows, n);
  return s;
}

static shoal_status batch_skip(struct data_iterator *it, struct data_ctx *ctx, bool *end) {
  const struct batch_dataset *b = (const struct batch_dataset *)it->of;
  struct data_iterator *in;
  int64_t rows = 0;
  TRY(iterator_input(it, &in));
  while (rows < b->size && !*end) {
    TRY(iterator_skip(in, ctx, end));
    rows += !*end;
  }
  *end = rows == 0 || (b->drop && rows < b->size);
  return NULL;
}

static void batch_free(struct dataset *d) {
  struct batch_dataset *b = (struct batch_dataset *)d;
  if (b->pad_values) tensors_release(b->pad_values, d->n);
  free(b->pad_values);
  free(b->pad_shapes);
}

static const struct data_iterator_type batch_iter = {sizeof(struct data_iterator), batch_next, NULL, batch_skip};

static shoal_status batch_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&batch_iter, d);
  return NULL;
}

static const struct dataset_type batch_type = {"Batch", batch_iterate, batch_size, batch_free};

int64_t dataset_batch_rows(const struct dataset *d) {
  return d->type == &batch_type ? ((const struct batch_dataset *)d)->size : -1;
}

static struct batch_dataset *batch_new(struct dataset *in, int64_t size, bool drop) {
  struct batch_dataset *b =
      (struct batch_dataset *)dataset_new(sizeof *b, &batch_type, in->n, in->types, in->shapes, &in, 1);
  b->size = size;
  b->drop = drop;
  return b;
}

struct shape batch_shape(const struct shape *s, int64_t rows) {
  if (s->rank < 0 || s->rank == SHOAL_MAX_RANK) return shape_unknown();
  struct shape r = {.rank = s->rank + 1, .dims = {rows}};
  for (int k = 0; k < s->rank; k++) r.dims[k + 1] = s->dims[k];
  return r;
}

struct dataset *dataset_batch(struct dataset *in, int64_t size, bool drop) {
  struct batch_dataset *b = batch_new(in, size, drop);
  for (int i = 0; i < in->n; i++) b->head.shapes[i] = batch_shape(&in->shapes[i], drop ? size : -1);
  return &b->head;
}

shoal_status dataset_padded_batch(struct dataset *in, int64_t size, bool drop, const struct shape *pad_shapes,
                                  const struct tensor *pad_values, struct dataset **out) {
  for (int i = 0; i < in->n; i++) {
    if (pad_values[i].rank != 0) return INVALID("All padding values must be scalars");
    if (pad_values[i].dtype != in->types[i])
      return INVALID("Mismatched type between padding value %d and input dataset's component %d: %s vs. %s", i, i,
                     dtype_tf_name(pad_values[i].dtype), dtype_tf_name(in->types[i]));
  }
  struct batch_dataset *b = batch_new(in, size, drop);
  b->padded = true;
  b->pad_shapes = mem_zalloc((size_t)in->n, sizeof *b->pad_shapes);
  b->pad_values = mem_zalloc((size_t)in->n, sizeof *b->pad_values);
  for (int i = 0; i < in->n; i++) {
    b->pad_shapes[i] = pad_shapes[i];
    tensor_ref(&b->pad_values[i], &pad_values[i]);
    b->head.shapes[i] = batch_shape(&pad_shapes[i], drop ? size : -1);
  }
  *out = &b->head;
  return NULL;
}

/* ---- unbatch ---- */

struct unbatch_iter {
  struct data_iterator head;
  struct tensor *rows; /* [n] the batch being taken apart */
  int64_t at, n_rows;
};

static void unbatch_free(struct data_iterator *it) {
  struct unbatch_iter *u = (struct unbatch_iter *)it;
  if (u->rows) tensors_release(u->rows, it->of->n);
  free(u->rows);
}

static shoal_status next_batch(struct unbatch_iter *u, struct data_ctx *ctx, bool *end) {
  struct data_iterator *it = &u->head, *in;
  int n = it->of->n;
  TRY(iterator_input(it, &in));
  if (!u->rows) u->rows = mem_zalloc((size_t)n, sizeof *u->rows);
  tensors_release(u->rows, n);
  u->at = u->n_rows = 0;
  TRY(iterator_next(in, ctx, u->rows, end));
  if (*end) return NULL;
  for (int i = 0; i < n; i++) {
    if (u->rows[i].rank < 1) return INVALID("Input element must have a non-zero rank to be unbatched.");
    if (u->rows[i].dims[0] != u->rows[0].dims[0])
      return INVALID("Input element must have the same batch size in each component. Component 0 had size %" PRId64
                     " but component %d had size %" PRId64 ".",
                     u->rows[0].dims[0], i, u->rows[i].dims[0]);
  }
  u->n_rows = n ? u->rows[0].dims[0] : 0;
  return NULL;
}

static shoal_status unbatch_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct unbatch_iter *u = (struct unbatch_iter *)it;
  while (u->at >= u->n_rows) {
    TRY(next_batch(u, ctx, end));
    if (*end) return NULL;
  }
  for (int i = 0; i < it->of->n; i++) {
    const struct tensor *t = &u->rows[i];
    shoal_status s = tensor_new_dims(&out[i], (shoal_dtype)t->dtype, t->rank - 1, t->dims + 1);
    if (s) {
      tensors_release(out, i);
      return s;
    }
    size_t bytes = (size_t)out[i].n * dtype_size((shoal_dtype)t->dtype);
    elements_copy((shoal_dtype)t->dtype, out[i].data, (const char *)t->data + (size_t)u->at * bytes, out[i].n);
  }
  u->at++;
  return NULL;
}

static int64_t unbatch_size(const struct dataset *d) {
  int64_t n = dataset_size(d->inputs[0]);
  const struct shape *s = d->n ? &d->inputs[0]->shapes[0] : NULL;
  if (n <= 0) return n;
  return s && s->rank > 0 && s->dims[0] >= 0 ? size_times(n, s->dims[0]) : SIZE_UNKNOWN;
}

static const struct data_iterator_type unbatch_iter_type = {sizeof(struct unbatch_iter), unbatch_next, unbatch_free};

static shoal_status unbatch_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&unbatch_iter_type, d);
  return NULL;
}

static const struct dataset_type unbatch_type = {"Unbatch", unbatch_iterate, unbatch_size, NULL};

shoal_status dataset_unbatch(struct dataset *in, struct dataset **out) {
  struct dataset *d = dataset_new(sizeof *d, &unbatch_type, in->n, in->types, in->shapes, &in, 1);
  for (int i = 0; i < d->n; i++) {
    struct shape *s = &d->shapes[i];
    if (s->rank == 0) {
      dataset_unref(d);
      return INVALID("Cannot unbatch an input with scalar components.");
    }
    for (int k = 1; k < s->rank; k++) s->dims[k - 1] = s->dims[k];
    if (s->rank > 0) s->rank--;
  }
  *out = d;
  return NULL;
}
