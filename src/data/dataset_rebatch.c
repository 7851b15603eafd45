/* Batches of another size: cut for replicas, gathered anew to given sizes; and batches as sparse tensors. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/vec.h"
#include "data/dataset_rows.h"
#include "tensor/tensor_variant.h"

/* ---- cut for replicas ---- */

struct rebatch {
  struct dataset head;
  int64_t *sizes; /* [n] */
  int64_t n;
  bool drop;
  struct shape row; /* sparse batches */
};

struct rebatch_iter {
  struct data_iterator head;
  struct tensor *batch; /* [components] what is being cut; NULL: none yet */
  int64_t at;           /* rows of it that are gone; replicas: the next part */
  int64_t turn;         /* the size in turn */
  bool open;            /* there is a batch to cut */
  bool over;            /* the input has ended */
};

static void rebatch_free(struct dataset *d) { free(((struct rebatch *)d)->sizes); }

static void rebatch_iter_free(struct data_iterator *it) {
  struct rebatch_iter *r = (struct rebatch_iter *)it;
  if (r->batch) tensors_release(r->batch, it->of->n);
  free(r->batch);
}

/* Rows [begin, end) as a tensor of their own memory: kernels want it aligned. */
static shoal_status copy_rows(const struct tensor *t, int64_t begin, int64_t end, struct tensor *out) {
  struct tensor rows;
  tensor_rows(&rows, t, begin, end);
  shoal_status s = tensor_copy(out, &rows);
  tensor_release(&rows);
  return s;
}

static shoal_status next_batch(struct rebatch_iter *r, struct data_ctx *ctx, bool *end) {
  struct data_iterator *in;
  int n = r->head.of->n;
  TRY(iterator_input(&r->head, &in));
  if (!r->batch) r->batch = mem_zalloc((size_t)MAX(n, 1), sizeof *r->batch);
  tensors_release(r->batch, n);
  r->open = false;
  r->at = 0;
  TRY(iterator_next(in, ctx, r->batch, end));
  r->open = !*end;
  return NULL;
}

static shoal_status replicas_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct rebatch_iter *r = (struct rebatch_iter *)it;
  int64_t replicas = ((const struct rebatch *)it->of)->sizes[0];
  if (!r->open) {
    TRY(next_batch(r, ctx, end));
    if (*end) return NULL;
    for (int c = 0; c < it->of->n; c++) {
      if (r->batch[c].rank > 0) continue;
      r->open = false;
      return INVALID(
          "Cannot rebatch dataset: All components must have at least one dimension. Perhaps your input dataset is not "
          "batched? Component %d is scalar.",
          c);
    }
  }
  for (int c = 0; c < it->of->n; c++) { /* components may be batches of different sizes */
    int64_t rows = r->batch[c].dims[0], part = rows / replicas + (rows % replicas ? 1 : 0);
    int64_t begin = part && r->at > rows / part ? rows : MIN(part * r->at, rows), end_row = MIN(begin + part, rows);
    shoal_status s = copy_rows(&r->batch[c], begin, end_row, &out[c]);
    if (s) tensors_release(out, c);
    TRY(s);
  }
  r->open = ++r->at < replicas;
  return NULL;
}

static int64_t replicas_size(const struct dataset *d) {
  return size_times(dataset_size(d->inputs[0]), ((const struct rebatch *)d)->sizes[0]);
}

static const struct data_iterator_type replicas_iter = {sizeof(struct rebatch_iter), replicas_next, rebatch_iter_free};

static shoal_status replicas_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&replicas_iter, d);
  return NULL;
}

static const struct dataset_type replicas_type = {"Rebatch", replicas_iterate, replicas_size, rebatch_free};

static struct rebatch *rebatch_new(const struct dataset_type *type, struct dataset *in, const int64_t *sizes,
                                   int64_t n) {
  struct rebatch *d = (struct rebatch *)dataset_new(sizeof *d, type, in->n, in->types, in->shapes, &in, 1);
  d->sizes = mem_zalloc((size_t)n, sizeof *d->sizes);
  d->n = n;
  for (int64_t i = 0; i < n; i++) d->sizes[i] = sizes[i];
  for (int i = 0; i < in->n; i++)
    if (d->head.shapes[i].rank > 0) d->head.shapes[i].dims[0] = -1;
  return d;
}

struct dataset *dataset_rebatch(struct dataset *in, int64_t replicas) {
  struct rebatch *d = rebatch_new(&replicas_type, in, &replicas, 1);
  for (int i = 0; i < in->n; i++) {
    const struct shape *s = &in->shapes[i];
    if (s->rank > 0 && s->dims[0] >= 0 && s->dims[0] % replicas == 0) d->head.shapes[i].dims[0] = s->dims[0] / replicas;
  }
  return &d->head;
}

/* ---- gathered to given sizes ---- */

static shoal_status check_batch(const struct rebatch_iter *r) {
  for (int c = 0; c < r->head.of->n; c++) {
    if (r->batch[c].rank == 0) return INVALID("Input element must have a non-scalar value in each component.");
    if (r->batch[c].dims[0] != r->batch[0].dims[0])
      return INVALID("Input element must have the same batch size in each component.");
  }
  return NULL;
}

/* Pieces [n] of component c after one another. */
static shoal_status join(const struct tensor *pieces, int64_t n, int components, int c, int64_t rows,
                         struct tensor *out) {
  const struct tensor *first = &pieces[c];
  struct shape shape = tensor_shape(first);
  for (int64_t i = 1; i < n; i++) {
    const struct tensor *p = &pieces[i * components + c];
    bool fits = p->rank == first->rank;
    for (int k = 1; fits && k < p->rank; k++) fits = p->dims[k] == first->dims[k];
    if (!fits) return INVALID("Cannot join batches of elements of different shapes in component %d", c);
  }
  shape.dims[0] = rows;
  TRY(tensor_new(out, (shoal_dtype)first->dtype, &shape));
  char *to = out->data;
  for (int64_t i = 0; i < n; i++) {
    const struct tensor *p = &pieces[i * components + c];
    elements_copy((shoal_dtype)p->dtype, to, p->data, p->n);
    to += tensor_bytes(p);
  }
  return NULL;
}

/* A batch of no elements: dimensions that are not known are nothing, too. */
static shoal_status empty_batch(const struct dataset *d, struct tensor *out) {
  for (int c = 0; c < d->n; c++) {
    struct shape s = d->shapes[c].rank > 0 ? d->shapes[c] : shape_vector(0);
    s.dims[0] = 0;
    for (int k = 1; k < s.rank; k++) s.dims[k] = MAX(s.dims[k], 0);
    shoal_status bad = tensor_new(&out[c], d->types[c], &s);
    if (bad) tensors_release(out, c);
    TRY(bad);
  }
  return NULL;
}

static shoal_status sizes_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct rebatch_iter *r = (struct rebatch_iter *)it;
  const struct rebatch *d = (const struct rebatch *)it->of;
  int n = it->of->n;
  int64_t want = d->sizes[r->turn], have = 0, n_pieces = 0;
  *end = r->over && !r->open;
  if (*end) return NULL;
  VEC(struct tensor) pieces = {0};
  shoal_status s = NULL;
  while (!s && have < want) {
    if (!r->open) {
      s = next_batch(r, ctx, end);
      if (!s && !*end) s = check_batch(r);
      if (s) r->open = false;
      r->over = !s && *end;
      if (s || *end) break;
    }
    int64_t rows = n ? r->batch[0].dims[0] : 0, upto = MIN(r->at + want - have, rows);
    for (int c = 0; c < n; c++) {
      struct tensor piece;
      tensor_rows(&piece, &r->batch[c], r->at, upto);
      vec_push(&pieces, piece);
    }
    n_pieces++;
    have += upto - r->at;
    r->at = upto;
    r->open = upto < rows;
  }
  if (!s) {
    r->turn = (r->turn + 1) % d->n;
    *end = (have == 0 && want > 0) || (d->drop && have < want);
    if (!*end && want == 0) s = empty_batch(it->of, out);
    for (int c = 0; !*end && !s && want > 0 && c < n; c++) {
      s = join(pieces.at, n_pieces, n, c, have, &out[c]);
      if (s) tensors_release(out, c);
    }
  }
  tensors_release(pieces.at, (int)pieces.n);
  vec_release(&pieces);
  return s;
}

static int64_t sizes_size(const struct dataset *d) {
  int64_t n = dataset_size(d->inputs[0]);
  return n == SIZE_INFINITE ? n : SIZE_UNKNOWN;
}

static const struct data_iterator_type sizes_iter = {sizeof(struct rebatch_iter), sizes_next, rebatch_iter_free};

static shoal_status sizes_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&sizes_iter, d);
  return NULL;
}

static const struct dataset_type sizes_type = {"RebatchV2", sizes_iterate, sizes_size, rebatch_free};

struct dataset *dataset_rebatch_sizes(struct dataset *in, const int64_t *sizes, int64_t n, bool drop) {
  struct rebatch *d = rebatch_new(&sizes_type, in, sizes, n);
  d->drop = drop;
  bool same = drop;
  for (int64_t i = 1; i < n; i++) same = same && sizes[i] == sizes[0];
  for (int i = 0; same && i < in->n; i++)
    if (d->head.shapes[i].rank > 0) d->head.shapes[i].dims[0] = sizes[0];
  return &d->head;
}

/* ---- batches as sparse tensors ---- */

/* Every element of every row is a value of the sparse tensor, zeros too. */
static shoal_status sparse_parts(const struct tensor *rows, int64_t n_rows, const struct shape *row,
                                 struct tensor parts[3]) {
  int rank = row->rank;
  int64_t total = 0, dims[SHOAL_MAX_RANK + 1] = {n_rows}, columns = rank + 1;
  for (int k = 0; k < rank; k++) dims[k + 1] = MAX(row->dims[k], 0);
  for (int64_t r = 0; r < n_rows; r++) {
    struct shape s = tensor_shape(&rows[r]);
    if (rows[r].rank != rank)
      return INVALID("Input element had shape (%s) that is incompatible with the row shape (%s).", shape_str(&s),
                     shape_str(row));
    total += rows[r].n;
    for (int k = 0; k < rank; k++) {
      if (row->dims[k] < 0) dims[k + 1] = MAX(dims[k + 1], rows[r].dims[k]);
      else if (rows[r].dims[k] > row->dims[k])
        return STATUS(SHOAL_DATA_LOSS, "Input element had shape (%s) that is larger than the row shape (%s).",
                      shape_str(&s), shape_str(row));
    }
  }
  shoal_dtype type = (shoal_dtype)rows[0].dtype;
  TRY(tensor_new_dims(&parts[0], SHOAL_INT64, 2, (int64_t[]){total, columns}));
  TRY(tensor_new_dims(&parts[1], type, 1, &total));
  TRY(tensor_new_dims(&parts[2], SHOAL_INT64, 1, &columns));
  for (int k = 0; k <= rank; k++) T_DATA(&parts[2], int64_t)[k] = dims[k];
  int64_t *at = parts[0].data;
  char *values = parts[1].data;
  for (int64_t r = 0; r < n_rows; r++) {
    for (int64_t j = 0; j < rows[r].n; j++, at += columns) {
      int64_t rest = j;
      at[0] = r;
      for (int k = rank - 1; k >= 0; k--) {
        at[k + 1] = rest % rows[r].dims[k];
        rest /= rows[r].dims[k];
      }
    }
    elements_copy(type, values, rows[r].data, rows[r].n);
    values += tensor_bytes(&rows[r]);
  }
  return NULL;
}

static shoal_status sparse_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  const struct rebatch *d = (const struct rebatch *)it->of;
  struct tensor *rows, parts[3] = {tensor_none(), tensor_none(), tensor_none()};
  int64_t n_rows;
  TRY(rows_gather(it, ctx, d->sizes[0], &rows, &n_rows));
  *end = n_rows == 0;
  shoal_status s = NULL;
  if (!*end) s = sparse_parts(rows, n_rows, &d->row, parts);
  if (!s && !*end) s = tensor_new_dims(&out[0], SHOAL_VARIANT, 1, (int64_t[]){3});
  for (int i = 0; i < 3 && !s && !*end; i++) T_DATA(&out[0], struct variant *)[i] = tensor_variant_new(&parts[i]);
  tensors_release(parts, 3);
  rows_drop(rows, n_rows, it->of->inputs[0]->n);
  return s;
}

static int64_t sparse_size(const struct dataset *d) {
  int64_t n = dataset_size(d->inputs[0]), size = ((const struct rebatch *)d)->sizes[0];
  return n < 0 ? n : n / size + (n % size ? 1 : 0);
}

static const struct data_iterator_type sparse_iter = {sizeof(struct data_iterator), sparse_next, NULL};

static shoal_status sparse_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&sparse_iter, d);
  return NULL;
}

static const struct dataset_type sparse_type = {"DenseToSparseBatch", sparse_iterate, sparse_size, rebatch_free};

struct dataset *dataset_sparse_batch(struct dataset *in, int64_t size, const struct shape *row) {
  struct rebatch *d = rebatch_new(&sparse_type, in, &size, 1);
  d->row = *row;
  d->head.types[0] = SHOAL_VARIANT;
  d->head.shapes[0] = batch_shape(row, -1);
  return &d->head;
}
