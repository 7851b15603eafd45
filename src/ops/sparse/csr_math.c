/* Arithmetic on matrices in compressed rows: transposes, products with dense and with sparse matrices, orderings and
 * Cholesky factors.
 *
 * A product of sparse matrices gathers the terms of a row and sorts them by column: what it needs grows with the terms,
 * never with a width that a matrix of a few entries may claim. The factor is made row by row ("up-looking"): the
 * elimination tree says which columns of row k are filled, in ascending order they are solved for with the columns that
 * are there already. The arithmetic is in complex doubles for all types but in products with dense matrices.
 *
 * SparseMatrixOrderingAMD gives rows in ascending order of their entries, which is a minimum degree ordering without
 * the updates: a valid permutation, which TensorFlow's (Eigen's AMD) is too, but not the same one. */
#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ops/sparse/csr.h"
#include "ops/math/grad_help.h"

/* a transposed, and conjugated. */
static shoal_status transposed(const struct csr *a, bool conjugate, struct csr **out) {
  struct csr *t;
  TRY(csr_new(a->dtype, a->rank, a->batch, a->cols, a->rows, csr_entries(a), &t));
  memcpy(t->batch_start.data, a->batch_start.data, tensor_bytes(&a->batch_start));
  const int32_t *columns = a->columns.data;
  for (int64_t b = 0; b < a->batch; b++) {
    int32_t *start = T_DATA(&t->row_start, int32_t) + b * (t->rows + 1);
    int64_t first = csr_offset(a, b), end = csr_offset(a, b + 1);
    const int32_t *from = csr_rows(a, b);
    for (int64_t i = first; i < end; i++) start[columns[i] + 1]++;
    for (int64_t r = 0; r < t->rows; r++) start[r + 1] += start[r];
    for (int64_t r = 0; r < a->rows; r++)
      for (int64_t i = first + from[r]; i < first + from[r + 1]; i++) {
        int64_t at = first + start[columns[i]]++; /* the pointers move, and are moved back below */
        c128 v = csr_get(&a->values, i);
        T_DATA(&t->columns, int32_t)[at] = (int32_t)r;
        csr_put(&t->values, at, conjugate ? conj(v) : v);
      }
    memmove(start + 1, start, (size_t)t->rows * sizeof *start);
    start[0] = 0;
  }
  *out = t;
  return NULL;
}

struct flags {
  bool transpose_a, transpose_b, adjoint_a, adjoint_b, transpose_output, conjugate_output;
};

static shoal_status init_flags(struct kernel_init *ki, void *state) {
  struct flags *f = state;
  const struct shoal_node *n = ki->node;
  TRY(node_get_bool(n, "transpose_a", &f->transpose_a));
  TRY(node_get_bool(n, "transpose_b", &f->transpose_b));
  TRY(node_get_bool(n, "adjoint_a", &f->adjoint_a));
  TRY(node_get_bool(n, "adjoint_b", &f->adjoint_b));
  if (node_attr(n, "transpose_output")) {
    TRY(node_get_bool(n, "transpose_output", &f->transpose_output));
    TRY(node_get_bool(n, "conjugate_output", &f->conjugate_output));
  }
  if (f->transpose_a && f->adjoint_a) return INVALID("Only one of adjoint_a and transpose_a may be true.");
  if (f->transpose_b && f->adjoint_b) return INVALID("Only one of adjoint_b and transpose_b may be true.");
  return NULL;
}

/* a, or what the flags make of it; *own is to be released when not NULL. */
static shoal_status turned(const struct csr *a, bool transpose, bool adjoint, const struct csr **out,
                           struct csr **own) {
  *own = NULL;
  *out = a;
  if (!transpose && !adjoint) return NULL;
  TRY(transposed(a, adjoint, own));
  *out = *own;
  return NULL;
}

static void drop(struct csr *m) {
  if (m) variant_unref(&m->head);
}

/* ---- SparseMatrixTranspose ---- */

static shoal_status init_transpose(struct kernel_init *ki, void *state) {
  return node_get_bool(ki->node, "conjugate", state);
}

static shoal_status run_transpose(struct kernel_ctx *ctx) {
  const struct csr *a;
  struct csr *t;
  TRY(csr_in(ctx, 0, SHOAL_DT_INVALID, &a));
  TRY(transposed(a, *(bool *)ctx->state, &t));
  return csr_out(ctx, t);
}

/* ---- SparseMatrixMatMul ---- */

/* One matrix of the batch: out[i, j] += a[i, k] * b[k, j], with steps between rows and columns for what is turned. */
struct csr_product {
  const struct csr *a;
  int64_t batch, width;
  const void *b;
  int64_t b_row, b_column;
  bool conjugate_b, conjugate_out;
  void *out;
  int64_t out_row, out_column;
};

#define T float
#define NAME multiply_float
#define CONJ(x) (x)
#include "ops/sparse/csr_multiply.inc"
#define T double
#define NAME multiply_double
#define CONJ(x) (x)
#include "ops/sparse/csr_multiply.inc"
#define T c64
#define NAME multiply_c64
#define CONJ(x) conjf(x)
#include "ops/sparse/csr_multiply.inc"
#define T c128
#define NAME multiply_c128
#define CONJ(x) conj(x)
#include "ops/sparse/csr_multiply.inc"

static void multiply(const struct csr_product *p) {
  switch (p->a->dtype) {
    case SHOAL_FLOAT32: multiply_float(p); break;
    case SHOAL_FLOAT64: multiply_double(p); break;
    case SHOAL_COMPLEX64: multiply_c64(p); break;
    default: multiply_c128(p); break;
  }
}

static shoal_status multiply_all(struct kernel_ctx *ctx, const struct csr *a, const struct tensor *b) {
  const struct flags *f = ctx->state;
  bool turn_b = f->transpose_b || f->adjoint_b;
  const int64_t *dims = b->dims + b->rank - 2;
  int64_t inner = dims[turn_b], width = dims[!turn_b];
  if (inner != a->cols)
    return INVALID("Inner product dimensions of A and B do not agree.  Shapes are: [%" PRId64 ",%" PRId64 "] vs. %s",
                   a->rows, a->cols, tensor_shape_str(b));
  int64_t out_dims[3] = {a->batch, a->rows, width};
  if (f->transpose_output) {
    out_dims[1] = width;
    out_dims[2] = a->rows;
  }
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, a->rank, out_dims + (3 - a->rank), &out));
  tensor_zero(out);
  size_t size = dtype_size(a->dtype);
  for (int64_t k = 0; k < a->batch; k++) {
    struct csr_product p = {.a = a,
                            .batch = k,
                            .width = width,
                            .b = (const char *)b->data + (size_t)(k * inner * width) * size,
                            .b_row = turn_b ? 1 : width,
                            .b_column = turn_b ? inner : 1,
                            .conjugate_b = f->adjoint_b,
                            .conjugate_out = f->conjugate_output,
                            .out = (char *)out->data + (size_t)(k * a->rows * width) * size,
                            .out_row = f->transpose_output ? 1 : width,
                            .out_column = f->transpose_output ? a->rows : 1};
    multiply(&p);
  }
  return NULL;
}

static shoal_status run_matmul(struct kernel_ctx *ctx) {
  const struct flags *f = ctx->state;
  const struct tensor *b = ctx_in(ctx, 1);
  const struct csr *given, *a;
  struct csr *own;
  TRY(csr_in(ctx, 0, SHOAL_DT_INVALID, &given));
  if (given->dtype != b->dtype)
    return INVALID("Input types don't match.  a.dtype == %s vs. b.dtype == %s", dtype_tf_name(given->dtype),
                   dtype_tf_name((shoal_dtype)b->dtype));
  if (given->rank != b->rank) return INVALID("Ranks of a and b must match, saw: %d vs. %d.", given->rank, b->rank);
  if (given->rank == 3 && given->batch != b->dims[0])
    return INVALID("Batch sizes of a and b must match, saw: %" PRId64 " vs. %" PRId64 ".", given->batch, b->dims[0]);
  TRY(turned(given, f->transpose_a, f->adjoint_a, &a, &own));
  shoal_status s = multiply_all(ctx, a, b);
  drop(own);
  return s;
}

/* ---- SparseMatrixSparseMatMul ---- */

struct term {
  int32_t column;
  uint32_t at; /* keeps the order of terms of one column */
  c128 v;
};
struct terms {
  VEC(struct term) row;
};

static int by_column(const void *x, const void *y) {
  const struct term *a = x, *b = y;
  if (a->column != b->column) return a->column < b->column ? -1 : 1;
  return a->at < b->at ? -1 : a->at > b->at;
}

/* Row r of matrix k of the product, sorted and added up; its length. */
static size_t product_row(const struct csr *a, const struct csr *b, int64_t k, int64_t r, struct terms *t) {
  const int32_t *start = csr_rows(a, k), *inner = csr_rows(b, k);
  t->row.n = 0;
  for (int64_t i = csr_offset(a, k) + start[r]; i < csr_offset(a, k) + start[r + 1]; i++) {
    int32_t mid = T_DATA(&a->columns, const int32_t)[i];
    c128 v = csr_get(&a->values, i);
    for (int64_t j = csr_offset(b, k) + inner[mid]; j < csr_offset(b, k) + inner[mid + 1]; j++)
      vec_push(&t->row,
               (struct term){T_DATA(&b->columns, const int32_t)[j], (uint32_t)t->row.n, v * csr_get(&b->values, j)});
  }
  if (t->row.n) qsort(t->row.at, t->row.n, sizeof *t->row.at, by_column);
  size_t n = 0;
  for (size_t i = 0; i < t->row.n; i++) {
    if (n && t->row.at[n - 1].column == t->row.at[i].column) t->row.at[n - 1].v += t->row.at[i].v;
    else t->row.at[n++] = t->row.at[i];
  }
  return n;
}

static shoal_status product_of(const struct csr *a, const struct csr *b, struct csr **out) {
  struct terms t = {0};
  int64_t entries = 0;
  for (int64_t k = 0; k < a->batch; k++)
    for (int64_t r = 0; r < a->rows; r++) entries += (int64_t)product_row(a, b, k, r, &t);
  shoal_status s = csr_new(a->dtype, a->rank, a->batch, a->rows, b->cols, entries, out);
  int64_t at = 0;
  for (int64_t k = 0; !s && k < a->batch; k++) {
    int64_t first = at;
    for (int64_t r = 0; r < a->rows; r++) {
      size_t n = product_row(a, b, k, r, &t);
      for (size_t i = 0; i < n; i++, at++) {
        T_DATA(&(*out)->columns, int32_t)[at] = t.row.at[i].column;
        csr_put(&(*out)->values, at, t.row.at[i].v);
      }
      T_DATA(&(*out)->row_start, int32_t)[k * (a->rows + 1) + r + 1] = (int32_t)(at - first);
    }
    T_DATA(&(*out)->batch_start, int32_t)[k + 1] = (int32_t)at;
  }
  vec_release(&t.row);
  return s;
}

static shoal_status run_sparse_matmul(struct kernel_ctx *ctx) {
  const struct flags *f = ctx->state;
  const struct csr *given[2], *a, *b;
  struct csr *own[2] = {NULL, NULL}, *product = NULL;
  TRY(csr_in(ctx, 0, SHOAL_DT_INVALID, &given[0]));
  TRY(csr_in(ctx, 1, given[0]->dtype, &given[1]));
  if (given[0]->rank != given[1]->rank)
    return INVALID("Ranks of a and b must match, saw: %d vs. %d.", given[0]->rank, given[1]->rank);
  if (given[0]->batch != given[1]->batch)
    return INVALID("Batch sizes of a and b must match, saw: %" PRId64 " vs. %" PRId64 ".", given[0]->batch,
                   given[1]->batch);
  TRY(turned(given[0], f->transpose_a, f->adjoint_a, &a, &own[0]));
  shoal_status s = turned(given[1], f->transpose_b, f->adjoint_b, &b, &own[1]);
  if (!s && a->cols != b->rows)
    s = INVALID("Inner product dimensions of A and B do not agree.  Shapes are: [%" PRId64 ",%" PRId64 "] vs. [%" PRId64
                ",%" PRId64 "]",
                a->rows, a->cols, b->rows, b->cols);
  if (!s) s = product_of(a, b, &product);
  drop(own[0]);
  drop(own[1]);
  return s ? s : csr_out(ctx, product);
}

/* ---- SparseMatrixOrderingAMD ---- */

static int by_degree(const void *x, const void *y, void *start) {
  int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
  const int32_t *at = start;
  int32_t n = at[a + 1] - at[a], m = at[b + 1] - at[b];
  if (n != m) return n < m ? -1 : 1;
  return a < b ? -1 : a > b;
}

static shoal_status run_ordering(struct kernel_ctx *ctx) {
  const struct csr *a;
  TRY(csr_in(ctx, 0, SHOAL_DT_INVALID, &a));
  if (a->rows != a->cols)
    return INVALID("sparse matrix must be square; got: %" PRId64 " != %" PRId64, a->rows, a->cols);
  struct tensor *out;
  int64_t dims[2] = {a->batch, a->rows};
  TRY(ctx_out_dims(ctx, 0, a->rank - 1, dims + (3 - a->rank), &out));
  for (int64_t b = 0; b < a->batch; b++) {
    int32_t *order = T_DATA(out, int32_t) + b * a->rows;
    for (int64_t r = 0; r < a->rows; r++) order[r] = (int32_t)r;
    if (a->rows) qsort_r(order, (size_t)a->rows, sizeof *order, by_degree, (void *)csr_rows(a, b));
  }
  return NULL;
}

/* ---- SparseMatrixSparseCholesky ---- */

struct csr_entry {
  int64_t row, column;
  c128 v;
};

/* One matrix being factored. Lists of ints in one allocation, n each. */
struct factor {
  int64_t n;
  VEC(struct csr_entry) a; /* the lower triangle, permuted, by rows */
  int64_t *first;          /* [n + 1] where the rows of a begin */
  int64_t *parent, *ancestor, *mark, *reach, *column, *filled;
  c128 *x; /* [n] the row being solved */
  VEC(struct csr_entry)
  l; /* the factor's columns, without the diagonal: column[j] + filled[j] is the next place of j */
  double *diagonal;
  VEC(struct csr_entry) rows; /* the result, by rows */
};

static int by_row(const void *x, const void *y) {
  const struct csr_entry *a = x, *b = y;
  if (a->row != b->row) return a->row < b->row ? -1 : 1;
  return a->column < b->column ? -1 : a->column > b->column;
}

static int ascending(const void *x, const void *y) {
  int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
  return a < b ? -1 : a > b;
}

static void factor_load(struct factor *f, const struct csr *a, int64_t b, const int32_t *inverse) {
  const int32_t *start = csr_rows(a, b);
  f->a.n = 0;
  for (int64_t r = 0; r < a->rows; r++)
    for (int64_t e = csr_offset(a, b) + start[r]; e < csr_offset(a, b) + start[r + 1]; e++) {
      int32_t c = T_DATA(&a->columns, const int32_t)[e];
      if (c > r) continue; /* the upper triangle follows from the lower */
      int64_t i = inverse[r], j = inverse[c];
      c128 v = csr_get(&a->values, e);
      if (i >= j) vec_push(&f->a, (struct csr_entry){i, j, v});
      else vec_push(&f->a, (struct csr_entry){j, i, conj(v)});
    }
  if (f->a.n) qsort(f->a.at, f->a.n, sizeof *f->a.at, by_row);
  memset(f->first, 0, ((size_t)f->n + 1) * sizeof *f->first);
  for (size_t i = 0; i < f->a.n; i++) f->first[f->a.at[i].row + 1]++;
  for (int64_t r = 0; r < f->n; r++) f->first[r + 1] += f->first[r];
}

static void factor_tree(struct factor *f) {
  for (int64_t k = 0; k < f->n; k++) {
    f->parent[k] = f->ancestor[k] = -1;
    for (int64_t e = f->first[k]; e < f->first[k + 1]; e++)
      for (int64_t i = f->a.at[e].column, next; i != -1 && i < k; i = next) {
        next = f->ancestor[i];
        f->ancestor[i] = k;
        if (next == -1) f->parent[i] = k;
      }
  }
}

/* The columns of row k that are filled, in ascending order; how many. */
static int64_t factor_reach(struct factor *f, int64_t k) {
  int64_t n = 0;
  f->mark[k] = k;
  for (int64_t e = f->first[k]; e < f->first[k + 1]; e++)
    for (int64_t i = f->a.at[e].column; f->mark[i] != k; i = f->parent[i]) {
      f->reach[n++] = i;
      f->mark[i] = k;
    }
  if (n) qsort(f->reach, (size_t)n, sizeof *f->reach, ascending);
  return n;
}

/* Counts what is filled, and gives every column its place. */
static shoal_status factor_places(struct factor *f) {
  int64_t total = 0;
  for (int64_t k = 0; k < f->n; k++) f->mark[k] = -1, f->filled[k] = 0;
  for (int64_t k = 0; k < f->n; k++) {
    int64_t n = factor_reach(f, k);
    for (int64_t i = 0; i < n; i++) f->filled[f->reach[i]]++;
    if ((total += n + 1) > INT32_MAX) return INVALID("The Cholesky factor has more entries than fit 32 bits");
  }
  total = 0;
  for (int64_t k = 0; k < f->n; k++) {
    f->column[k] = total;
    total += f->filled[k];
    f->filled[k] = 0;
    f->mark[k] = -1;
  }
  vec_reserve(&f->l, (size_t)total + 1);
  return NULL;
}

/* False: not positive definite. */
static bool factor_row(struct factor *f, int64_t k) {
  int64_t n = factor_reach(f, k);
  double d = 0;
  for (int64_t i = 0; i < n; i++) f->x[f->reach[i]] = 0;
  for (int64_t e = f->first[k]; e < f->first[k + 1]; e++) {
    if (f->a.at[e].column == k) d += creal(f->a.at[e].v);
    else f->x[f->a.at[e].column] += f->a.at[e].v;
  }
  for (int64_t i = 0; i < n; i++) {
    int64_t j = f->reach[i];
    c128 v = f->x[j] / f->diagonal[j];
    struct csr_entry *column = f->l.at + f->column[j];
    for (int64_t e = 0; e < f->filled[j]; e++) f->x[column[e].row] -= v * conj(column[e].v);
    column[f->filled[j]++] = (struct csr_entry){k, j, v};
    d -= creal(v * conj(v));
    vec_push(&f->rows, (struct csr_entry){k, j, v});
  }
  if (!(d > 0)) return false;
  f->diagonal[k] = sqrt(d);
  vec_push(&f->rows, (struct csr_entry){k, k, f->diagonal[k]});
  return true;
}

static shoal_status factor_one(struct factor *f, const struct csr *a, int64_t b, const int32_t *inverse) {
  factor_load(f, a, b, inverse);
  factor_tree(f);
  TRY(factor_places(f));
  for (int64_t k = 0; k < f->n; k++)
    if (!factor_row(f, k))
      return INVALID("Sparse Cholesky factorization failed for batch index %" PRId64 ". The input might not be valid.",
                     b);
  return NULL;
}

static shoal_status invert(const int32_t *permutation, int64_t n, int32_t *inverse) {
  for (int64_t i = 0; i < n; i++) inverse[i] = -1;
  for (int64_t i = 0; i < n; i++) {
    int32_t to = permutation[i];
    if (to < 0 || to >= n || inverse[to] >= 0) return INVALID("permutation is not one of [0, %" PRId64 ")", n);
    inverse[to] = (int32_t)i;
  }
  return NULL;
}

/* The factors of all matrices one after the other in f->rows, ends[b] after that of b. */
static shoal_status factor_all(struct factor *f, const struct csr *a, const struct tensor *permutation,
                               int32_t *inverse, int64_t *ends) {
  for (int64_t b = 0; b < a->batch; b++) {
    TRY(invert(T_DATA(permutation, const int32_t) + b * f->n, f->n, inverse));
    TRY(factor_one(f, a, b, inverse));
    ends[b] = (int64_t)f->rows.n;
  }
  return NULL;
}

static void put_factors(const struct factor *f, const int64_t *ends, struct csr *m) {
  int64_t at = 0;
  for (int64_t b = 0; b < m->batch; b++) {
    int32_t *start = T_DATA(&m->row_start, int32_t) + b * (m->rows + 1);
    for (; at < ends[b]; at++) {
      start[f->rows.at[at].row + 1]++;
      T_DATA(&m->columns, int32_t)[at] = (int32_t)f->rows.at[at].column;
      csr_put(&m->values, at, f->rows.at[at].v);
    }
    for (int64_t r = 0; r < m->rows; r++) start[r + 1] += start[r];
    T_DATA(&m->batch_start, int32_t)[b + 1] = (int32_t)ends[b];
  }
}

static shoal_status check_cholesky(const struct csr *a, const struct tensor *p) {
  if (a->rows != a->cols)
    return INVALID("sparse matrix must be square; got: %" PRId64 " != %" PRId64, a->rows, a->cols);
  if (p->rank + 1 != a->rank)
    return INVALID("sparse matrix must have the same rank as permutation; got: %d != %d + 1.", a->rank, p->rank);
  if (p->dims[p->rank - 1] != a->rows || p->n != a->batch * a->rows)
    return INVALID(
        "permutation must have the same number of elements in each batch as the number of rows in sparse "
        "matrix, and as many batches; got: %s",
        tensor_shape_str(p));
  return NULL;
}

static shoal_status run_cholesky(struct kernel_ctx *ctx) {
  const struct csr *a;
  const struct tensor *permutation = ctx_in(ctx, 1);
  TRY(csr_in(ctx, 0, SHOAL_DT_INVALID, &a));
  TRY(check_cholesky(a, permutation));
  int64_t n = a->rows;
  struct shape room = shape_vector(7 * (n + 1) + 2 * n + n + n + a->batch);
  struct tensor memory;
  TRY(ctx_temp(ctx, SHOAL_INT64, &room, &memory));
  int64_t *at = memory.data;
  struct factor f = {.n = n, .x = (c128 *)at, .diagonal = (double *)(at + 2 * n)};
  int32_t *inverse = (int32_t *)(at + 3 * n);
  int64_t **lists[] = {&f.first, &f.parent, &f.ancestor, &f.mark, &f.reach, &f.column, &f.filled};
  for (size_t i = 0; i < COUNT_OF(lists); i++) *lists[i] = at + 4 * n + (int64_t)i * (n + 1);
  int64_t *ends = at + 4 * n + 7 * (n + 1);
  struct csr *m = NULL;
  shoal_status s = factor_all(&f, a, permutation, inverse, ends);
  if (!s) s = csr_new(a->dtype, a->rank, a->batch, n, n, (int64_t)f.rows.n, &m);
  if (!s) put_factors(&f, ends, m);
  vec_release(&f.a);
  vec_release(&f.l);
  vec_release(&f.rows);
  tensor_release(&memory);
  return s ? s : csr_out(ctx, m);
}

/* ---- gradients ---- */

static bool has(const struct grad_ctx *c, const char *attr) {
  bool v = false;
  shoal_status_free(node_get_bool(c->node, attr, &v));
  return v;
}

/* A matrix as a product takes it: conjugated, and then turned and conjugated. What is only turned is both. */
struct operand {
  shoal_out x;
  bool conj, adjoint;
};
static struct operand operand_turned(struct operand o) { return (struct operand){o.x, !o.conj, !o.adjoint}; }
static struct operand operand_adjoint(struct operand o) { return (struct operand){o.x, o.conj, !o.adjoint}; }
static struct operand operand_conjugate(struct operand o) { return (struct operand){o.x, !o.conj, o.adjoint}; }
static struct operand operand_in(const struct grad_ctx *c, int i, const char *transpose, const char *adj) {
  struct operand o = {gin(c, i), false, false};
  return has(c, transpose) ? operand_turned(o) : has(c, adj) ? operand_adjoint(o) : o;
}

static shoal_status grad_transpose(struct grad_ctx *c) {
  shoal_dtype type;
  TRY(node_get_type(c->node, "type", &type));
  struct build b = build_begin(c->g, "SparseMatrixTranspose", NULL);
  build_in(&b, c->dy[0].values);
  build_attr_bool(&b, "conjugate", has(c, "conjugate"));
  build_attr_type(&b, "type", type);
  grad_set(c, 0, build_end_out(&b));
  return NULL;
}

/* d(op(a)) = dy op(b)*, and d(op(b)) = op(a)* dy, each turned back. */
static shoal_status grad_matmul(struct grad_ctx *c) {
  struct operand b = operand_in(c, 1, "transpose_b", "adjoint_b"), dy = {grad_dy(c, 0), false, false};
  shoal_dtype type = out_type(gin(c, 1));
  bool turn_a = has(c, "transpose_a"), adjoint_a = has(c, "adjoint_a"), turn_b = has(c, "transpose_b");
  if (has(c, "transpose_output")) dy = operand_turned(dy);
  if (has(c, "conjugate_output")) dy = operand_conjugate(dy);
  struct operand x = turn_a ? operand_turned(operand_adjoint(b)) : adjoint_a ? b : dy;
  struct operand y = turn_a ? operand_turned(dy) : adjoint_a ? operand_adjoint(dy) : operand_adjoint(b);
  struct build da = build_begin(c->g, "BatchMatMulV2", NULL);
  build_in(&da, x.conj ? g_conj(c, x.x) : x.x);
  build_in(&da, y.conj ? g_conj(c, y.x) : y.x);
  build_attr_bool(&da, "adj_x", x.adjoint);
  build_attr_bool(&da, "adj_y", y.adjoint);
  shoal_out entries = node_out(csr_pattern(c, gin(c, 0), type), 0);
  grad_set(c, 0, build_op2(c->g, "DenseToCSRSparseMatrix", build_end_out(&da), entries));
  /* A sparse matrix cannot be conjugated alone: conj(a) dy is conj(a conj(dy)). */
  if (turn_a) dy = operand_conjugate(dy);
  bool alone = dy.conj && !dy.adjoint;
  struct build db = build_begin(c->g, "SparseMatrixMatMul", NULL);
  build_in(&db, gin(c, 0));
  build_in(&db, alone ? g_conj(c, dy.x) : dy.x);
  build_attr_bool(&db, "adjoint_a", !turn_a && !adjoint_a);
  build_attr_bool(&db, "transpose_b", dy.adjoint && dy.conj);
  build_attr_bool(&db, "adjoint_b", dy.adjoint && !dy.conj);
  build_attr_bool(&db, "transpose_output", b.adjoint);
  build_attr_bool(&db, "conjugate_output", turn_a != (b.adjoint && !turn_b));
  grad_set(c, 1, build_end_out(&db));
  return NULL;
}

/* A sparse operand: what is conjugated and not turned is turned twice. */
static void sparse_in(struct grad_ctx *c, struct build *p, const struct operand *o, shoal_dtype type) {
  if (!o->conj || o->adjoint) {
    build_in(p, o->x);
    return;
  }
  struct build t = build_begin(c->g, "SparseMatrixTranspose", NULL);
  build_in(&t, o->x);
  build_attr_bool(&t, "conjugate", true);
  build_attr_type(&t, "type", type);
  build_in(p, build_end_out(&t));
}

/* x times y at the entries of like alone. */
static shoal_out product_like(struct grad_ctx *c, struct operand x, struct operand y, shoal_out like,
                              shoal_dtype type) {
  struct build p = build_begin(c->g, "SparseMatrixSparseMatMul", NULL);
  sparse_in(c, &p, &x, type);
  sparse_in(c, &p, &y, type);
  build_attr_type(&p, "type", type);
  build_attr_bool(&p, "transpose_a", x.conj);
  build_attr_bool(&p, "transpose_b", y.conj);
  build_attr_bool(&p, "adjoint_a", x.adjoint && !x.conj);
  build_attr_bool(&p, "adjoint_b", y.adjoint && !y.conj);
  struct build d = build_begin(c->g, "CSRSparseMatrixToDense", NULL);
  build_in(&d, build_end_out(&p));
  build_attr_type(&d, "type", type);
  return build_op2(c->g, "DenseToCSRSparseMatrix", build_end_out(&d), node_out(csr_pattern(c, like, type), 0));
}

static shoal_status grad_sparse_matmul(struct grad_ctx *c) {
  struct operand a = operand_in(c, 0, "transpose_a", "adjoint_a"), b = operand_in(c, 1, "transpose_b", "adjoint_b");
  struct operand dy = {c->dy[0].values, false, false}, x = dy, y = operand_adjoint(b);
  shoal_dtype type;
  TRY(node_get_type(c->node, "type", &type));
  if (has(c, "transpose_a")) x = operand_turned(operand_adjoint(b)), y = operand_turned(dy);
  else if (has(c, "adjoint_a")) x = b, y = operand_adjoint(dy);
  grad_set(c, 0, product_like(c, x, y, gin(c, 0), type));
  x = operand_adjoint(a), y = dy;
  if (has(c, "transpose_b")) x = operand_turned(dy), y = operand_turned(operand_adjoint(a));
  else if (has(c, "adjoint_b")) x = operand_adjoint(dy), y = a;
  grad_set(c, 1, product_like(c, x, y, gin(c, 1), type));
  return NULL;
}

/* ---- rows ---- */

#define TYPE "type: {float, double, complex64, complex128}"
#define TURNS "transpose_a: bool = false; transpose_b: bool = false; adjoint_a: bool = false; adjoint_b: bool = false"

static const struct op_row rows[] = {
    {.name = "SparseMatrixTranspose",
     .in = "input: variant",
     .out = "output: variant",
     .attrs = "conjugate: bool = false; " TYPE,
     .shape = shape_scalar_out,
     .grad = grad_transpose,
     .kernels =
         (const struct kernel_def[]){
             {.device = "CPU", .state_size = sizeof(bool), .init = init_transpose, .run = run_transpose}, {0}}},
    {.name = "SparseMatrixMatMul",
     .in = "a: variant, b: T",
     .out = "output: T",
     .attrs = "T: type; " TURNS "; transpose_output: bool = false; conjugate_output: bool = false",
     .grad = grad_matmul,
     .kernels = (const struct kernel_def[]){{.device = "CPU",
                                             .type_attr = "T",
                                             .types = CSR_TYPES,
                                             .state_size = sizeof(struct flags),
                                             .init = init_flags,
                                             .run = run_matmul},
                                            {0}}},
    {.name = "SparseMatrixSparseMatMul",
     .in = "a: variant, b: variant",
     .out = "c: variant",
     .attrs = TYPE "; " TURNS,
     .shape = shape_scalar_out,
     .grad = grad_sparse_matmul,
     .kernels = (const struct kernel_def[]){{.device = "CPU",
                                             .type_attr = "type",
                                             .types = CSR_TYPES,
                                             .state_size = sizeof(struct flags),
                                             .init = init_flags,
                                             .run = run_sparse_matmul},
                                            {0}}},
    {.name = "SparseMatrixOrderingAMD",
     .in = "input: variant",
     .out = "output: int32",
     .flags = OP_NO_GRADIENT,
     .kernels = (const struct kernel_def[]){{.device = "CPU", .run = run_ordering}, {0}}},
    {.name = "SparseMatrixSparseCholesky",
     .in = "input: variant, permutation: int32",
     .out = "output: variant",
     .attrs = TYPE,
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels =
         (const struct kernel_def[]){{.device = "CPU", .type_attr = "type", .types = CSR_TYPES, .run = run_cholesky},
                                     {0}}},
};
OP_FAMILY(csr_math, rows);
