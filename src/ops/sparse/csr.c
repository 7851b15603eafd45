/* Matrices in compressed rows: the value, how it travels, and the ways in and out: from and to COO and dense tensors.
 *
 * It travels as TensorFlow has it: metadata of 8 bytes (a bool that says it was checked, three bytes of nothing, the
 * dtype as an int32) and the five tensors shape, batch_start, row_start, columns, values. */
#include "ops/sparse/csr.h"

#include <stdlib.h>
#include <string.h>

#include "ops/state/state.h"
#include "tensor/tensor_proto.h"

enum { METADATA = 8, TENSORS = 5 };
static const struct variant_type csr_type;

/* ---- the value ---- */

static void release(struct csr *m) {
  struct tensor *parts[] = {&m->shape, &m->batch_start, &m->row_start, &m->columns, &m->values};
  for (size_t i = 0; i < COUNT_OF(parts); i++)
    if (tensor_valid(parts[i])) tensor_release(parts[i]);
  free(m);
}

static void csr_free(struct variant *v) { release((struct csr *)v); }

static shoal_status allocate(struct csr *m, int64_t entries) {
  int64_t n_shape = m->rank, n_batch, n_rows;
  if (entries > INT32_MAX || m->rows >= INT32_MAX || m->cols > INT32_MAX || m->batch >= INT32_MAX ||
      mul_overflows(m->batch, m->rows + 1, &n_rows))
    return INVALID("A CSRSparseMatrix of %" PRId64 " matrices [%" PRId64 ",%" PRId64 "] with %" PRId64
                   " entries does not fit 32 bits",
                   m->batch, m->rows, m->cols, entries);
  n_batch = m->batch + 1;
  TRY(tensor_new_dims(&m->shape, SHOAL_INT64, 1, &n_shape));
  TRY(tensor_new_dims(&m->batch_start, SHOAL_INT32, 1, &n_batch));
  TRY(tensor_new_dims(&m->row_start, SHOAL_INT32, 1, &n_rows));
  TRY(tensor_new_dims(&m->columns, SHOAL_INT32, 1, &entries));
  TRY(tensor_new_dims(&m->values, m->dtype, 1, &entries));
  tensor_zero(&m->batch_start);
  tensor_zero(&m->row_start);
  int64_t *dims = m->shape.data;
  if (m->rank == 3) *dims++ = m->batch;
  dims[0] = m->rows;
  dims[1] = m->cols;
  return NULL;
}

shoal_status csr_new(shoal_dtype dtype, int rank, int64_t batch, int64_t rows, int64_t cols, int64_t entries,
                     struct csr **out) {
  struct csr *m = mem_zalloc(1, sizeof *m);
  variant_init(&m->head, &csr_type);
  m->dtype = dtype;
  m->rank = rank;
  m->batch = batch;
  m->rows = rows;
  m->cols = cols;
  shoal_status s = allocate(m, entries);
  if (s) release(m);
  else *out = m;
  return s;
}

c128 csr_get(const struct tensor *t, int64_t i) {
  switch (t->dtype) {
    case SHOAL_FLOAT32: return T_DATA(t, const float)[i];
    case SHOAL_FLOAT64: return T_DATA(t, const double)[i];
    case SHOAL_COMPLEX64: return T_DATA(t, const c64)[i];
    default: return T_DATA(t, const c128)[i];
  }
}

void csr_put(struct tensor *t, int64_t i, c128 v) {
  switch (t->dtype) {
    case SHOAL_FLOAT32: T_DATA(t, float)[i] = (float)__real__ v; break;
    case SHOAL_FLOAT64: T_DATA(t, double)[i] = __real__ v; break;
    case SHOAL_COMPLEX64: T_DATA(t, c64)[i] = (c64)v; break;
    default: T_DATA(t, c128)[i] = v; break;
  }
}

/* ---- on the wire ---- */

static shoal_status csr_encode(const struct variant *v, struct text *metadata, struct tensor **tensors, int *n) {
  const struct csr *m = (const struct csr *)v;
  char head[METADATA] = {1};
  int32_t dtype = (int32_t)m->dtype;
  memcpy(head + 4, &dtype, sizeof dtype);
  text_add(metadata, head, sizeof head);
  const struct tensor *parts[TENSORS] = {&m->shape, &m->batch_start, &m->row_start, &m->columns, &m->values};
  *n = TENSORS;
  *tensors = mem_zalloc(TENSORS, sizeof **tensors);
  for (int i = 0; i < TENSORS; i++) tensor_ref(&(*tensors)[i], parts[i]);
  return NULL;
}

/* Every pointer rises from 0 to the number of entries it covers, every column is in range. */
static bool well_formed(const struct csr *m) {
  const int32_t *batch = m->batch_start.data, *columns = m->columns.data;
  if (batch[0] != 0 || batch[m->batch] != csr_entries(m)) return false;
  for (int64_t b = 0; b < m->batch; b++) {
    const int32_t *start = csr_rows(m, b);
    if (batch[b + 1] < batch[b] || start[0] != 0 || start[m->rows] != batch[b + 1] - batch[b]) return false;
    for (int64_t r = 0; r < m->rows; r++)
      if (start[r + 1] < start[r]) return false;
  }
  for (int64_t i = 0; i < csr_entries(m); i++)
    if (columns[i] < 0 || columns[i] >= m->cols) return false;
  return true;
}

static bool fits(const struct tensor *t, shoal_dtype dtype, int64_t n) {
  return t->dtype == dtype && t->rank == 1 && t->n == n;
}

static bool is_csr_type(int dtype) { return dtype > 0 && dtype < DTYPE_COUNT && (CSR_TYPES >> dtype & 1); }

static shoal_status csr_decode(const void *metadata, size_t size, const struct tensor *t, int n, struct variant **out) {
  int32_t dtype;
  if (size != METADATA || n != TENSORS || t[0].dtype != SHOAL_INT64 || t[0].rank != 1 || (t[0].n != 2 && t[0].n != 3))
    return INVALID("Malformed CSRSparseMatrix");
  memcpy(&dtype, (const char *)metadata + 4, sizeof dtype);
  const int64_t *dims = t[0].data;
  int rank = (int)t[0].n;
  int64_t batch = rank == 3 ? dims[0] : 1, rows = dims[rank - 2], cols = dims[rank - 1], n_rows;
  if (!is_csr_type(dtype) || batch < 0 || rows < 0 || cols < 0 || rows >= INT32_MAX || cols > INT32_MAX ||
      batch >= INT32_MAX || mul_overflows(batch, rows + 1, &n_rows) || !fits(&t[1], SHOAL_INT32, batch + 1) ||
      !fits(&t[2], SHOAL_INT32, n_rows) || t[3].rank != 1 || !fits(&t[3], SHOAL_INT32, t[3].n) ||
      !fits(&t[4], (shoal_dtype)dtype, t[3].n))
    return INVALID("Malformed CSRSparseMatrix");
  struct csr *m = mem_zalloc(1, sizeof *m);
  variant_init(&m->head, &csr_type);
  m->dtype = (shoal_dtype)dtype;
  m->rank = rank;
  m->batch = batch;
  m->rows = rows;
  m->cols = cols;
  struct tensor *parts[TENSORS] = {&m->shape, &m->batch_start, &m->row_start, &m->columns, &m->values};
  for (int i = 0; i < TENSORS; i++) tensor_ref(parts[i], &t[i]);
  if (!well_formed(m)) {
    release(m);
    return INVALID("Malformed CSRSparseMatrix: its pointers do not fit together");
  }
  *out = &m->head;
  return NULL;
}

/* A matrix of the same shape without entries. */
static struct variant *csr_zeros_like(const struct variant *v) {
  const struct csr *m = (const struct csr *)v;
  struct csr *z;
  shoal_status s = csr_new(m->dtype, m->rank, m->batch, m->rows, m->cols, 0, &z);
  shoal_status_free(s);
  return s ? NULL : &z->head;
}

static const struct variant_type csr_type = {.name = "tensorflow::CSRSparseMatrix",
                                             .free = csr_free,
                                             .encode = csr_encode,
                                             .decode = csr_decode,
                                             .zeros_like = csr_zeros_like};

__attribute__((constructor)) static void register_type(void) { variant_type_register(&csr_type); }

/* ---- as input and output ---- */

shoal_status csr_in(const struct kernel_ctx *ctx, int i, shoal_dtype dtype, const struct csr **out) {
  const struct tensor *t = ctx_in(ctx, i);
  struct variant *v = t->rank == 0 ? *T_DATA(t, struct variant *) : NULL;
  if (!v || v->type != &csr_type)
    return INVALID("Expected input %d to be a CSRSparseMatrix, but saw %s", i,
                   t->rank ? tensor_shape_str(t)
                   : v     ? v->type->name
                           : "<empty>");
  *out = (const struct csr *)v;
  if (dtype && (*out)->dtype != dtype)
    return INVALID("Asked for a CSRSparseMatrix of type %s but saw dtype: %s", dtype_tf_name(dtype),
                   dtype_tf_name((*out)->dtype));
  return NULL;
}

shoal_status csr_out(struct kernel_ctx *ctx, struct csr *m) {
  struct tensor *out;
  shoal_status s = ctx_out_dims(ctx, 0, 0, NULL, &out);
  if (s) variant_unref(&m->head);
  else *T_DATA(out, struct variant *) = &m->head;
  return s;
}

/* ---- in ---- */

struct coo {
  const struct tensor *indices; /* int64 [n, rank] */
  int64_t n, dims[3];
  int rank;
};

/* Entries come by batch and row; inside a row in any order, as TensorFlow has it. */
static shoal_status check_coo(const struct coo *c) {
  const int64_t *ix = c->indices->data;
  int64_t before = -1;
  for (int64_t i = 0; i < c->n; i++) {
    int64_t row = 0;
    for (int k = 0; k < c->rank; k++) {
      int64_t v = ix[i * c->rank + k];
      if (v < 0 || v >= c->dims[k])
        return INVALID("Index %s is not in the shape [%" PRId64 ",%" PRId64 "%s]",
                       ints_str(c->indices, i * c->rank, c->rank, ","), c->dims[0], c->dims[1],
                       c->rank == 3 ? ",..." : "");
      if (k < c->rank - 1) row = row * c->dims[k] + v;
    }
    if (row < before) return INVALID("The indices of a CSRSparseMatrix must be in order of rows");
    before = row;
  }
  return NULL;
}

static shoal_status from_coo(struct kernel_ctx *ctx, const struct coo *c, shoal_dtype dtype, struct csr **out) {
  int64_t n_rows;
  bool batched = c->rank == 3;
  for (int k = 0; k < c->rank; k++)
    if (c->dims[k] < 0) return INVALID("Dimension %" PRId64 " must be >= 0", c->dims[k]);
  if (batched && mul_overflows(c->dims[0], c->dims[1], &n_rows)) return INVALID("The shape has too many rows");
  TRY(check_coo(c));
  struct csr *m;
  TRY(csr_new(dtype, c->rank, batched ? c->dims[0] : 1, c->dims[c->rank - 2], c->dims[c->rank - 1], c->n, &m));
  int32_t *batch = m->batch_start.data, *row = m->row_start.data;
  for (int64_t i = 0; i < c->n; i++) {
    const int64_t *at = T_DATA(c->indices, const int64_t) + i * c->rank;
    int64_t b = batched ? *at++ : 0;
    batch[b + 1]++;
    row[b * (m->rows + 1) + at[0] + 1]++;
    T_DATA(&m->columns, int32_t)[i] = (int32_t)at[1];
  }
  for (int64_t b = 0; b < m->batch; b++) {
    batch[b + 1] += batch[b];
    for (int64_t r = 0; r < m->rows; r++) row[b * (m->rows + 1) + r + 1] += row[b * (m->rows + 1) + r];
  }
  *out = m;
  return NULL;
}

static shoal_status run_from_sparse(struct kernel_ctx *ctx) {
  const struct tensor *ix = ctx_in(ctx, 0), *v = ctx_in(ctx, 1), *shape = ctx_in(ctx, 2);
  if (shape->rank != 1 || (shape->n != 2 && shape->n != 3))
    return INVALID("SparseTensor must have rank 2 or 3; but indices has rank: %" PRId64, shape->n);
  if (ix->rank != 2 || v->rank != 1 || ix->dims[0] != v->n || ix->dims[1] != shape->n)
    return INVALID("indices %s and values %s do not fit a shape of rank %" PRId64, tensor_shape_str(ix),
                   tensor_shape_str(v), shape->n);
  struct coo c = {.indices = ix, .n = v->n, .rank = (int)shape->n};
  for (int k = 0; k < c.rank; k++) c.dims[k] = int_at(shape, k);
  struct csr *m;
  TRY(from_coo(ctx, &c, (shoal_dtype)v->dtype, &m));
  if (v->n) memcpy(m->values.data, v->data, tensor_bytes(v));
  return csr_out(ctx, m);
}

static shoal_status run_from_dense(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *ix = ctx_in(ctx, 1);
  if (x->rank != 2 && x->rank != 3) return INVALID("dense input must have rank 2 or 3, saw %s", tensor_shape_str(x));
  if (ix->rank != 2 || ix->dims[1] != x->rank)
    return INVALID("indices must be a matrix with as many columns as the input has dimensions, saw %s",
                   tensor_shape_str(ix));
  struct coo c = {.indices = ix, .n = ix->dims[0], .rank = x->rank};
  memcpy(c.dims, x->dims, (size_t)x->rank * sizeof *c.dims);
  struct csr *m;
  TRY(from_coo(ctx, &c, (shoal_dtype)x->dtype, &m));
  size_t size = dtype_size(m->dtype);
  for (int64_t i = 0; i < c.n; i++) {
    int64_t at = 0;
    for (int k = 0; k < c.rank; k++) at = at * c.dims[k] + int_at(ix, i * c.rank + k);
    memcpy((char *)m->values.data + (size_t)i * size, (const char *)x->data + (size_t)at * size, size);
  }
  return csr_out(ctx, m);
}

/* ---- out ---- */

static shoal_status run_to_dense(struct kernel_ctx *ctx) {
  const struct csr *m;
  TRY(csr_in(ctx, 0, ctx_out_type(ctx, 0), &m));
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, m->rank, m->shape.data, &out));
  tensor_zero(out);
  size_t size = dtype_size(m->dtype);
  for (int64_t b = 0; b < m->batch; b++)
    for (int64_t r = 0; r < m->rows; r++) {
      const int32_t *start = csr_rows(m, b);
      char *row = (char *)out->data + (size_t)((b * m->rows + r) * m->cols) * size;
      for (int64_t i = csr_offset(m, b) + start[r]; i < csr_offset(m, b) + start[r + 1]; i++)
        memcpy(row + (size_t)T_DATA(&m->columns, const int32_t)[i] * size,
               (const char *)m->values.data + (size_t)i * size, size);
    }
  return NULL;
}

static shoal_status run_to_sparse(struct kernel_ctx *ctx) {
  const struct csr *m;
  TRY(csr_in(ctx, 0, ctx_out_type(ctx, 1), &m));
  int64_t rank = m->rank;
  struct tensor *ix, t;
  TRY(ctx_out_dims(ctx, 0, 2, (int64_t[]){csr_entries(m), rank}, &ix));
  int64_t *to = ix->data;
  for (int64_t b = 0; b < m->batch; b++)
    for (int64_t r = 0; r < m->rows; r++) {
      const int32_t *start = csr_rows(m, b);
      for (int64_t i = csr_offset(m, b) + start[r]; i < csr_offset(m, b) + start[r + 1]; i++) {
        if (rank == 3) *to++ = b;
        *to++ = r;
        *to++ = T_DATA(&m->columns, const int32_t)[i];
      }
    }
  tensor_ref(&t, &m->values);
  ctx_set(ctx, 1, &t);
  tensor_ref(&t, &m->shape);
  ctx_set(ctx, 2, &t);
  return NULL;
}

static shoal_status run_components(struct kernel_ctx *ctx) {
  const struct csr *m;
  TRY(csr_in(ctx, 0, ctx_out_type(ctx, 2), &m));
  TRY(ctx_check_scalar(ctx, 1, "index"));
  int64_t b = int_at(ctx_in(ctx, 1), 0);
  if (b < 0 || b >= m->batch)
    return INVALID("index (%" PRId64 ") not in [0, batch_size) where batch_size is %" PRId64, b, m->batch);
  struct tensor *rows, t;
  TRY(ctx_out_dims(ctx, 0, 1, (int64_t[]){m->rows + 1}, &rows));
  memcpy(rows->data, csr_rows(m, b), tensor_bytes(rows));
  for (int i = 0; i < 2; i++) {
    tensor_rows(&t, i ? &m->values : &m->columns, csr_offset(m, b), csr_offset(m, b + 1));
    ctx_set(ctx, 1 + i, &t);
  }
  return NULL;
}

static shoal_status run_count(struct kernel_ctx *ctx) {
  const struct csr *m;
  TRY(csr_in(ctx, 0, SHOAL_DT_INVALID, &m));
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, m->rank - 2, &m->batch, &out));
  for (int64_t b = 0; b < m->batch; b++) T_DATA(out, int32_t)[b] = (int32_t)(csr_offset(m, b + 1) - csr_offset(m, b));
  return NULL;
}

/* ---- gradients: of a matrix, a matrix with the same entries ---- */

struct shoal_node *csr_pattern(struct grad_ctx *c, shoal_out matrix, shoal_dtype type) {
  struct build b = build_begin(c->g, "CSRSparseMatrixToSparseTensor", NULL);
  build_in(&b, matrix);
  build_attr_type(&b, "type", type);
  return build_end(&b);
}

static shoal_status grad_from_sparse(struct grad_ctx *c) {
  grad_set(c, 1, node_out(csr_pattern(c, c->dy[0].values, out_type(gin(c, 1))), 1));
  return NULL;
}

static shoal_status grad_to_sparse(struct grad_ctx *c) {
  grad_set(c, 0, build_op3(c->g, "SparseTensorToCSRSparseMatrix", gout(c, 0), grad_dy(c, 1), gout(c, 2)));
  return NULL;
}

static shoal_status grad_from_dense(struct grad_ctx *c) {
  struct build b = build_begin(c->g, "CSRSparseMatrixToDense", NULL);
  build_in(&b, c->dy[0].values);
  build_attr_type(&b, "type", out_type(gin(c, 0)));
  grad_set(c, 0, build_end_out(&b));
  return NULL;
}

static shoal_status grad_to_dense(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0);
  struct shoal_node *pattern = csr_pattern(c, gin(c, 0), out_type(dy));
  grad_set(c, 0, build_op2(c->g, "DenseToCSRSparseMatrix", dy, node_out(pattern, 0)));
  return NULL;
}

#define KERNELS(attr, run_)                                                      \
  (const struct kernel_def[]) {                                                  \
    {.device = "CPU", .type_attr = attr, .types = CSR_TYPES, .run = run_}, { 0 } \
  }
#define TYPE "type: {float, double, complex64, complex128}"
#define T_TYPE "T: {float, double, complex64, complex128}"

static const struct op_row rows[] = {
    {.name = "SparseTensorToCSRSparseMatrix",
     .in = "indices: int64, values: T, dense_shape: int64",
     .out = "sparse_matrix: variant",
     .attrs = T_TYPE,
     .shape = shape_scalar_out,
     .grad = grad_from_sparse,
     .kernels = KERNELS("T", run_from_sparse)},
    {.name = "DenseToCSRSparseMatrix",
     .in = "dense_input: T, indices: int64",
     .out = "sparse_output: variant",
     .attrs = T_TYPE,
     .shape = shape_scalar_out,
     .grad = grad_from_dense,
     .kernels = KERNELS("T", run_from_dense)},
    {.name = "CSRSparseMatrixToSparseTensor",
     .in = "sparse_matrix: variant",
     .out = "indices: int64, values: type, dense_shape: int64",
     .attrs = TYPE,
     .grad = grad_to_sparse,
     .kernels = KERNELS("type", run_to_sparse)},
    {.name = "CSRSparseMatrixToDense",
     .in = "sparse_input: variant",
     .out = "dense_output: type",
     .attrs = TYPE,
     .grad = grad_to_dense,
     .kernels = KERNELS("type", run_to_dense)},
    {.name = "CSRSparseMatrixComponents",
     .in = "csr_sparse_matrix: variant, index: int32",
     .out = "row_ptrs: int32, col_inds: int32, values: type",
     .attrs = TYPE,
     .flags = OP_NO_GRADIENT,
     .kernels = KERNELS("type", run_components)},
    {.name = "SparseMatrixNNZ",
     .in = "sparse_matrix: variant",
     .out = "nnz: int32",
     .flags = OP_NO_GRADIENT,
     .kernels = (const struct kernel_def[]){{.device = "CPU", .run = run_count}, {0}}},
};
OP_FAMILY(csr, rows);
