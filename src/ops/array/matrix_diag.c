/* Diagonals: Diag and DiagPart of tensors, and the MatrixDiag family on the last two dimensions, with MatrixBandPart.
 *
 * A band of diagonals lower..upper is held as rows, the uppermost first, each as long as the longest; shorter ones
 * are aligned to the left or to the right of their row, super- and subdiagonals each in their way (V3; V1 and V2
 * align all to the left). */
#include <stdlib.h>
#include <string.h>

#include "ops/array/array_util.h"

/* ---- Diag, DiagPart ---- */

static shoal_status diag_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  if (x->rank < 1) return INVALID("Input must be at least rank 1, got 0");
  if (x->rank * 2 > SHOAL_MAX_RANK) return INVALID("A tensor has at most %d dimensions", SHOAL_MAX_RANK);
  struct shape s = {.rank = 2 * x->rank};
  for (int i = 0; i < x->rank; i++) s.dims[i] = s.dims[i + x->rank] = x->dims[i];
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  tensor_zero(y);
  size_t size = dtype_size((shoal_dtype)x->dtype);
  for (int64_t i = 0; i < x->n; i++)
    memcpy((char *)y->data + (size_t)(i * x->n + i) * size, (const char *)x->data + (size_t)i * size, size);
  return NULL;
}

static shoal_status diag_shape(struct shape_ctx *c) {
  struct shape x;
  TRY(shape_in_rank_at_least(c, 0, 1, &x));
  if (x.rank < 0 || 2 * x.rank > SHOAL_MAX_RANK) return NULL;
  c->out[0].rank = 2 * x.rank;
  for (int i = 0; i < x.rank; i++) c->out[0].dims[i] = c->out[0].dims[i + x.rank] = x.dims[i];
  return NULL;
}

static shoal_status diag_part_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  if (x->rank == 0 || x->rank % 2)
    return INVALID(
        "The rank of the tensor should be                                          even and positive, got "
        "shape %s",
        tensor_shape_str(x));
  struct shape s = {.rank = x->rank / 2};
  for (int i = 0; i < s.rank; i++) {
    if (x->dims[i] != x->dims[i + s.rank])
      return INVALID("Invalid shape %s: dimensions %d and %d do not match.", tensor_shape_str(x), i, i + s.rank);
    s.dims[i] = x->dims[i];
  }
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  size_t size = dtype_size((shoal_dtype)x->dtype);
  for (int64_t i = 0; i < y->n; i++)
    memcpy((char *)y->data + (size_t)i * size, (const char *)x->data + (size_t)(i * y->n + i) * size, size);
  return NULL;
}

static shoal_status diag_part_shape(struct shape_ctx *c) {
  const struct shape *x = &c->in[0];
  if (x->rank < 0) return NULL;
  if (x->rank == 0 || x->rank % 2) return INVALID("Input must have even and non-zero rank, input rank is %d", x->rank);
  struct shape a = {.rank = x->rank / 2}, b = a;
  for (int i = 0; i < a.rank; i++) {
    a.dims[i] = x->dims[i];
    b.dims[i] = x->dims[i + a.rank];
  }
  return shape_merge(&a, &b, &c->out[0]);
}

static shoal_status diag_grad(struct grad_ctx *c) {
  grad_set(c, 0, build_op1(c->g, op_is(c->node->op, "Diag") ? "DiagPart" : "Diag", grad_dy(c, 0)));
  return NULL;
}

/* ---- bands ---- */

struct band {
  int64_t lower, upper;
  int64_t rows, cols; /* of the matrix */
  int64_t longest;
  bool left_super, left_sub;
};

struct align_state {
  bool left_super, left_sub;
};

static shoal_status align_get(const struct shoal_node *n, struct align_state *st) {
  st->left_super = st->left_sub = true;
  if (!node_attr(n, "align")) return NULL;
  const char *align;
  TRY(node_get_string(n, "align", &align));
  st->left_super = str_starts(align, "LEFT_");
  st->left_sub = str_ends(align, "_LEFT");
  return NULL;
}

static shoal_status align_init(struct kernel_init *ki, void *state) { return align_get(ki->node, state); }

static int64_t diag_length(const struct band *b, int64_t d) { return MIN(b->rows + MIN(0, d), b->cols - MAX(0, d)); }

/* Where diagonal d begins in its row. */
static int64_t diag_offset(const struct band *b, int64_t d) {
  bool left = (d >= 0 && b->left_super) || (d <= 0 && b->left_sub);
  return left ? 0 : b->longest - diag_length(b, d);
}

static shoal_status read_k(const struct tensor *k, struct band *b) {
  if (k->rank > 1) return INVALID("diag_index must be a scalar or vector, received shape: %s", tensor_shape_str(k));
  if (k->n != 1 && k->n != 2)
    return INVALID("diag_index must have only one or two elements, received %" PRId64 " elements.", k->n);
  b->lower = int_at(k, 0);
  b->upper = int_at(k, k->n - 1);
  if (b->lower > b->upper)
    return INVALID("lower_diag_index must not be larger than upper_diag_index: %" PRId64 " > %" PRId64, b->lower,
                   b->upper);
  return NULL;
}

/* For ops that are given the matrix. */
static shoal_status check_band(struct band *b) {
  if (b->lower != 0 && (b->lower <= -b->rows || b->lower >= b->cols))
    return INVALID("lower_diag_index is out of bound: %" PRId64 ". It must be between %" PRId64 " and %" PRId64,
                   b->lower, -b->rows, b->cols);
  if (b->upper != 0 && (b->upper <= -b->rows || b->upper >= b->cols))
    return INVALID("upper_diag_index is out of bound: %" PRId64 " It must be between %" PRId64 " and %" PRId64,
                   b->upper, -b->rows, b->cols);
  b->longest = MIN(b->rows + MIN(b->upper, 0), b->cols - MAX(b->lower, 0));
  return NULL;
}

/* Copies the band of every matrix from or to its rows; to_matrix says which way. */
static void copy_band(shoal_dtype t, const struct band *b, int64_t batch, char *matrix, char *rows, bool to_matrix) {
  size_t size = dtype_size(t);
  int64_t diags = b->upper - b->lower + 1;
  for (int64_t m = 0; m < batch; m++) {
    char *x = matrix + (size_t)(m * b->rows * b->cols) * size;
    char *r = rows + (size_t)(m * diags * b->longest) * size;
    for (int64_t d = b->upper; d >= b->lower; d--, r += (size_t)b->longest * size) {
      int64_t n = diag_length(b, d);
      char *row = r + (size_t)diag_offset(b, d) * size;
      char *at = x + (size_t)(d >= 0 ? d : -d * b->cols) * size;
      for (int64_t i = 0; i < n; i++) {
        if (to_matrix) elements_copy(t, at, row, 1);
        else elements_copy(t, row, at, 1);
        row += size;
        at += (size_t)(b->cols + 1) * size;
      }
    }
  }
}

static struct band band_new(struct kernel_ctx *ctx) {
  const struct align_state *st = ctx->state;
  return (struct band){.left_super = st->left_super, .left_sub = st->left_sub};
}

static shoal_status fill_with(struct kernel_ctx *ctx, struct tensor *y, int input) {
  if (ctx->kernel->n_in <= input) {
    tensor_zero(y);
    return NULL;
  }
  const struct tensor *v = ctx_in(ctx, input);
  if (v->n != 1) return INVALID("padding_value must be a scalar, received shape: %s", tensor_shape_str(v));
  elements_fill(ctx_pool(ctx), (shoal_dtype)y->dtype, y->data, v->data, y->n);
  return NULL;
}

/* ---- MatrixDiag ---- */

/* The matrix's size from what is given (-1: not) and what the band needs. */
static shoal_status matrix_size(struct band *b, int64_t rows, int64_t cols) {
  int64_t need_rows = b->longest - MIN(b->upper, 0), need_cols = b->longest + MAX(b->lower, 0);
  if (rows != -1 && rows < need_rows) return INVALID("The number of rows is too small.");
  if (cols != -1 && cols < need_cols) return INVALID("The number of columns is too small.");
  if (rows == -1 && cols == -1) rows = cols = MAX(need_rows, need_cols);
  if (rows == -1) rows = need_rows;
  else if (cols == -1) cols = need_cols;
  if (rows != need_rows && cols != need_cols)
    return INVALID(
        "The number of rows or columns is not consistent with the specified d_lower, d_upper, and "
        "diagonal.");
  b->rows = rows;
  b->cols = cols;
  return NULL;
}

static shoal_status scalar_of(const struct tensor *t, const char *what, int64_t *out) {
  if (t->n != 1) return INVALID("%s must be a scalar, received shape: %s", what, tensor_shape_str(t));
  *out = int_at(t, 0);
  return NULL;
}

static shoal_status matrix_diag_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  struct band b = band_new(ctx);
  int64_t rows = -1, cols = -1;
  if (x->rank < 1) return INVALID("diagonal must be at least 1-dim, received shape: %s", tensor_shape_str(x));
  if (ctx->kernel->n_in > 1) {
    TRY(read_k(ctx_in(ctx, 1), &b));
    TRY(scalar_of(ctx_in(ctx, 2), "num_rows", &rows));
    TRY(scalar_of(ctx_in(ctx, 3), "num_cols", &cols));
  }
  int used = 1;
  if (b.lower != b.upper) {
    used = 2;
    if (x->rank < 2 || x->dims[x->rank - 2] != b.upper - b.lower + 1)
      return INVALID(
          "The number of diagonals provided in the input does not match the lower_diag_index and "
          "upper_diag_index range.");
  }
  b.longest = x->dims[x->rank - 1];
  TRY(matrix_size(&b, rows, cols));
  struct shape s = {.rank = x->rank - used + 2};
  if (s.rank > SHOAL_MAX_RANK) return INVALID("A tensor has at most %d dimensions", SHOAL_MAX_RANK);
  for (int i = 0; i < x->rank - used; i++) s.dims[i] = x->dims[i];
  s.dims[s.rank - 2] = b.rows;
  s.dims[s.rank - 1] = b.cols;
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  TRY(fill_with(ctx, y, 4));
  if (y->n && x->n) copy_band((shoal_dtype)x->dtype, &b, dims_product(s.dims, 0, s.rank - 2), y->data, x->data, true);
  return NULL;
}

static shoal_status matrix_diag_shape(struct shape_ctx *c) {
  struct shape x;
  TRY(shape_in_rank_at_least(c, 0, 1, &x));
  if (x.rank < 0 || x.rank == SHOAL_MAX_RANK) return NULL;
  struct band b = {0};
  int64_t rows = -1, cols = -1;
  if (c->node->n_in > 1) {
    if (!c->values[1] || !c->values[2] || !c->values[3]) return NULL;
    TRY(read_k(c->values[1], &b));
    TRY(scalar_of(c->values[2], "num_rows", &rows));
    TRY(scalar_of(c->values[3], "num_cols", &cols));
  }
  int used = b.lower != b.upper ? 2 : 1;
  if (x.rank < used) return INVALID("Shape must be at least rank %d but is rank %d", used, x.rank);
  b.longest = x.dims[x.rank - 1];
  struct shape *s = &c->out[0];
  s->rank = x.rank - used + 2;
  for (int i = 0; i < x.rank - used; i++) s->dims[i] = x.dims[i];
  if (b.longest >= 0) TRY(matrix_size(&b, rows, cols));
  else b.rows = rows, b.cols = cols;
  s->dims[s->rank - 2] = b.rows;
  s->dims[s->rank - 1] = b.cols;
  return NULL;
}

/* ---- MatrixDiagPart ---- */

static shoal_status diag_part_of(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  struct band b = band_new(ctx);
  if (x->rank < 2) return INVALID("input must be at least 2-dim, received shape: %s", tensor_shape_str(x));
  b.rows = x->dims[x->rank - 2];
  b.cols = x->dims[x->rank - 1];
  if (ctx->kernel->n_in > 1) TRY(read_k(ctx_in(ctx, 1), &b));
  TRY(check_band(&b));
  struct shape s = {.rank = x->rank - 2};
  for (int i = 0; i < s.rank; i++) s.dims[i] = x->dims[i];
  int64_t batch = dims_product(s.dims, 0, s.rank);
  if (b.lower != b.upper) s.dims[s.rank++] = b.upper - b.lower + 1;
  s.dims[s.rank++] = MAX(b.longest, 0);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  TRY(fill_with(ctx, y, 2));
  if (y->n) copy_band((shoal_dtype)x->dtype, &b, batch, x->data, y->data, false);
  return NULL;
}

static shoal_status diag_part_of_shape(struct shape_ctx *c) {
  struct shape x;
  TRY(shape_in_rank_at_least(c, 0, 2, &x));
  if (x.rank < 0) return NULL;
  struct band b = {.rows = x.dims[x.rank - 2], .cols = x.dims[x.rank - 1]};
  if (c->node->n_in > 1) {
    if (!c->values[1]) return NULL;
    TRY(read_k(c->values[1], &b));
  }
  b.longest = -1;
  if (b.rows >= 0 && b.cols >= 0) TRY(check_band(&b));
  struct shape *s = &c->out[0];
  s->rank = x.rank - 2;
  for (int i = 0; i < s->rank; i++) s->dims[i] = x.dims[i];
  if (b.lower != b.upper) s->dims[s->rank++] = b.upper - b.lower + 1;
  s->dims[s->rank++] = b.longest;
  return NULL;
}

/* ---- MatrixSetDiag ---- */

static shoal_status set_diag_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *d = ctx_in(ctx, 1);
  struct band b = band_new(ctx);
  if (x->rank < 2) return INVALID("input must be at least 2-dim, received shape: %s", tensor_shape_str(x));
  if (d->rank < 1) return INVALID("diagonal must be at least 1-dim, received shape: %s", tensor_shape_str(d));
  b.rows = x->dims[x->rank - 2];
  b.cols = x->dims[x->rank - 1];
  if (ctx->kernel->n_in > 2) TRY(read_k(ctx_in(ctx, 2), &b));
  TRY(check_band(&b));
  struct shape want = {.rank = x->rank - 2}, have = tensor_shape(d);
  for (int i = 0; i < want.rank; i++) want.dims[i] = x->dims[i];
  if (b.lower != b.upper) {
    if (d->rank < 2 || d->dims[d->rank - 2] != b.upper - b.lower + 1)
      return INVALID(
          "The number of diagonals provided in `diag` is not consistent with `lower_diag_index` and "
          "`upper_diag_index`");
    want.dims[want.rank++] = b.upper - b.lower + 1;
  }
  want.dims[want.rank++] = b.longest;
  if (!shape_equal(&want, &have))
    return INVALID(
        "Either first dimensions of diagonal don't match input.shape[:-2], or diagonal.shape[:-1] is not equal "
        "to the longests diagonal in range [lower_diag_index:upper_diag_index].\nInput shape: %s\nDiagonal "
        "shape: %s\nExpected diagonal shape: %s",
        tensor_shape_str(x), shape_str(&have), shape_str(&want));
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  if (y->data != x->data) elements_copy_parallel(ctx_pool(ctx), (shoal_dtype)x->dtype, y->data, x->data, x->n);
  if (y->n && d->n) copy_band((shoal_dtype)x->dtype, &b, dims_product(x->dims, 0, x->rank - 2), y->data, d->data, true);
  return NULL;
}

static shoal_status set_diag_shape(struct shape_ctx *c) { return shape_in_rank_at_least(c, 0, 2, &c->out[0]); }

/* ---- gradients: the family turns into itself ---- */

/* "", "V2" or "V3": which generation the node is of. */
static const char *generation(const struct shoal_node *n) {
  return str_ends(n->op->name, "V3") ? "V3" : str_ends(n->op->name, "V2") ? "V2" : "";
}

static void copy_align(struct build *b, const struct shoal_node *from) {
  const char *align;
  if (!node_attr(from, "align")) return;
  shoal_status s = node_get_string(from, "align", &align);
  MUST(!s);
  build_attr_string(b, "align", align);
}

static shoal_out part_of(struct grad_ctx *c, shoal_out x, int k_in) {
  const char *v = generation(c->node);
  char *name = mem_printf("MatrixDiagPart%s", v);
  struct build b = build_begin(c->g, name, NULL);
  build_in(&b, x);
  if (*v) {
    build_in(&b, gin(c, k_in));
    build_in(&b, build_const_float(c->g, out_type(x), 0));
  }
  copy_align(&b, c->node);
  shoal_out y = build_end_out(&b);
  free(name);
  return y;
}

static shoal_out set_in(struct grad_ctx *c, shoal_out x, shoal_out diagonal, int k_in) {
  const char *v = generation(c->node);
  char *name = mem_printf("MatrixSetDiag%s", v);
  struct build b = build_begin(c->g, name, NULL);
  build_in(&b, x);
  build_in(&b, diagonal);
  if (*v) build_in(&b, gin(c, k_in));
  copy_align(&b, c->node);
  shoal_out y = build_end_out(&b);
  free(name);
  return y;
}

static shoal_status matrix_diag_grad(struct grad_ctx *c) {
  grad_set(c, 0, part_of(c, grad_dy(c, 0), 1));
  return NULL;
}

static shoal_status diag_part_of_grad(struct grad_ctx *c) {
  grad_set(c, 0, set_in(c, array_zeros_like(c->g, gin(c, 0)), grad_dy(c, 0), 1));
  return NULL;
}

static shoal_status set_diag_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0);
  grad_set(c, 0, set_in(c, dy, array_zeros_like(c->g, gin(c, 1)), 2));
  grad_set(c, 1, part_of(c, dy, 2));
  return NULL;
}

/* ---- MatrixBandPart ---- */

static shoal_status band_part_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *lower_t = ctx_in(ctx, 1), *upper_t = ctx_in(ctx, 2);
  if (x->rank < 2) return INVALID("input must be at least 2-dim, received shape: %s", tensor_shape_str(x));
  if (lower_t->rank) return INVALID("num_lower must be scalar, got shape %s", tensor_shape_str(lower_t));
  if (upper_t->rank) return INVALID("num_upper must be scalar, got shape %s", tensor_shape_str(upper_t));
  int64_t lower = int_at(lower_t, 0), upper = int_at(upper_t, 0);
  int64_t rows = x->dims[x->rank - 2], cols = x->dims[x->rank - 1];
  if (lower > rows)
    return INVALID("num_lower must be negative or less or equal to number of rows (%" PRId64 ") got: %" PRId64, rows,
                   lower);
  if (upper > cols)
    return INVALID("num_upper must be negative or less or equal to number of columns (%" PRId64 ") got: %" PRId64, cols,
                   upper);
  if ((lower < 0 || lower == rows) && (upper < 0 || upper == cols)) return ctx_forward(ctx, 0, 0, NULL);
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  if (!y->n) return NULL;
  size_t size = dtype_size((shoal_dtype)x->dtype);
  for (int64_t m = 0; m < x->n / cols; m++) {
    int64_t r = m % rows;
    int64_t from = lower < 0 ? 0 : MIN(cols, MAX(0, r - lower)), to = upper < 0 ? cols : MIN(cols, r + upper + 1);
    if (to < from) to = from;
    char *row = (char *)y->data + (size_t)(m * cols) * size;
    const char *source = (const char *)x->data + (size_t)(m * cols) * size;
    if (row != source) memcpy(row + (size_t)from * size, source + (size_t)from * size, (size_t)(to - from) * size);
    memset(row, 0, (size_t)from * size);
    memset(row + (size_t)to * size, 0, (size_t)(cols - to) * size);
  }
  return NULL;
}

static shoal_status band_part_grad(struct grad_ctx *c) {
  grad_set(c, 0, build_op3(c->g, "MatrixBandPart", grad_dy(c, 0), gin(c, 1), gin(c, 2)));
  return NULL;
}

#define DIAG_KERNEL(name, fn)                                                         \
  static const struct kernel_def name[] = {{.device = "CPU",                          \
                                            .type_attr = "T",                         \
                                            .types = DT_PLAIN,                        \
                                            .state_size = sizeof(struct align_state), \
                                            .init = align_init,                       \
                                            .run = fn},                               \
                                           {0}}
DIAG_KERNEL(diag_kernels, diag_run);
DIAG_KERNEL(diag_part_kernels, diag_part_run);
DIAG_KERNEL(matrix_diag_kernels, matrix_diag_run);
DIAG_KERNEL(matrix_part_kernels, diag_part_of);
DIAG_KERNEL(set_diag_kernels, set_diag_run);
DIAG_KERNEL(band_kernels, band_part_run);

static const struct op_row rows[] = {
    {.name = "Diag",
     .in = "diagonal: T",
     .out = "output: T",
     .attrs = "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}",
     .shape = diag_shape,
     .grad = diag_grad,
     .kernels = diag_kernels},
    {.name = "DiagPart",
     .in = "input: T",
     .out = "diagonal: T",
     .attrs = "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}",
     .shape = diag_part_shape,
     .grad = diag_grad,
     .kernels = diag_part_kernels},
    {.name = "MatrixDiag",
     .in = "diagonal: T",
     .out = "output: T",
     .attrs = "T: type",
     .shape = matrix_diag_shape,
     .grad = matrix_diag_grad,
     .kernels = matrix_diag_kernels},
    {.name = "MatrixDiagV2",
     .in = "diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T",
     .out = "output: T",
     .attrs = "T: type",
     .shape = matrix_diag_shape,
     .grad = matrix_diag_grad,
     .kernels = matrix_diag_kernels},
    {.name = "MatrixDiagV3",
     .in = "diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T",
     .out = "output: T",
     .attrs = "T: type; align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'",
     .shape = matrix_diag_shape,
     .grad = matrix_diag_grad,
     .kernels = matrix_diag_kernels},
    {.name = "MatrixDiagPart",
     .in = "input: T",
     .out = "diagonal: T",
     .attrs = "T: type",
     .shape = diag_part_of_shape,
     .grad = diag_part_of_grad,
     .kernels = matrix_part_kernels},
    {.name = "MatrixDiagPartV2",
     .in = "input: T, k: int32, padding_value: T",
     .out = "diagonal: T",
     .attrs = "T: type",
     .shape = diag_part_of_shape,
     .grad = diag_part_of_grad,
     .kernels = matrix_part_kernels},
    {.name = "MatrixDiagPartV3",
     .in = "input: T, k: int32, padding_value: T",
     .out = "diagonal: T",
     .attrs = "T: type; align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'",
     .shape = diag_part_of_shape,
     .grad = diag_part_of_grad,
     .kernels = matrix_part_kernels},
    {.name = "MatrixSetDiag",
     .in = "input: T, diagonal: T",
     .out = "output: T",
     .attrs = "T: type",
     .shape = set_diag_shape,
     .grad = set_diag_grad,
     .kernels = set_diag_kernels},
    {.name = "MatrixSetDiagV2",
     .in = "input: T, diagonal: T, k: int32",
     .out = "output: T",
     .attrs = "T: type",
     .shape = set_diag_shape,
     .grad = set_diag_grad,
     .kernels = set_diag_kernels},
    {.name = "MatrixSetDiagV3",
     .in = "input: T, diagonal: T, k: int32",
     .out = "output: T",
     .attrs = "T: type; align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'",
     .shape = set_diag_shape,
     .grad = set_diag_grad,
     .kernels = set_diag_kernels},
    {.name = "MatrixBandPart",
     .in = "input: T, num_lower: Tindex, num_upper: Tindex",
     .out = "band: T",
     .attrs = "T: type; Tindex: {int32, int64} = int64",
     .shape = set_diag_shape,
     .grad = band_part_grad,
     .kernels = band_kernels},
    {.name = "BatchMatrixDiag",
     .in = "diagonal: T",
     .out = "output: T",
     .attrs = "T: type",
     .shape = matrix_diag_shape,
     .kernels = matrix_diag_kernels},
    {.name = "BatchMatrixDiagPart",
     .in = "input: T",
     .out = "diagonal: T",
     .attrs = "T: type",
     .shape = diag_part_of_shape,
     .kernels = matrix_part_kernels},
    {.name = "BatchMatrixSetDiag",
     .in = "input: T, diagonal: T",
     .out = "output: T",
     .attrs = "T: type",
     .shape = set_diag_shape,
     .kernels = set_diag_kernels},
    {.name = "BatchMatrixBandPart",
     .in = "input: T, num_lower: int64, num_upper: int64",
     .out = "band: T",
     .attrs = "T: type",
     .shape = set_diag_shape,
     .kernels = band_kernels},
};
OP_FAMILY(matrix_diag, rows);
