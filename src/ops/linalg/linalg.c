/* Linear algebra ops: batches, shapes, errors. The work on one matrix is LAPACK's, through linalg_types.c.
 *
 * The last two dimensions are matrices, the others count them; matrices of a batch are spread over threads. halves are
 * computed in float. */
#include "ops/linalg/linalg.h"

#include <pthread.h>

#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/array/array_util.h"
#include "ops/math/broadcast.h"
#include "ops/math/elementwise.h"

/* Larger sides would overflow the library's 32-bit sizes. */
enum { MAX_SIDE = 30000 };

static const struct {
  const char *op; /* "Batch" before it is an older name of the same */
  enum linalg_op kind;
  int n_in, n_out;
} kinds[] = {{"Cholesky", LINALG_CHOLESKY, 1, 1},
             {"CholeskyGrad", LINALG_CHOLESKY_GRAD, 2, 1},
             {"MatrixInverse", LINALG_INVERSE, 1, 1},
             {"MatrixDeterminant", LINALG_DETERMINANT, 1, 1},
             {"LogMatrixDeterminant", LINALG_LOG_DETERMINANT, 1, 2},
             {"MatrixSolve", LINALG_SOLVE, 2, 1},
             {"MatrixTriangularSolve", LINALG_TRIANGULAR_SOLVE, 2, 1},
             {"MatrixSolveLs", LINALG_LEAST_SQUARES, 2, 1},
             {"Qr", LINALG_QR, 1, 2},
             {"Svd", LINALG_SVD, 1, 3},
             {"SelfAdjointEigV2", LINALG_SELF_ADJOINT_EIG, 1, 2},
             {"SelfAdjointEig", LINALG_SELF_ADJOINT_EIG, 1, 1},
             {"Eig", LINALG_EIG, 1, 2},
             {"Lu", LINALG_LU, 1, 2},
             {"MatrixExponential", LINALG_EXPONENTIAL, 1, 1},
             {"MatrixLogarithm", LINALG_LOGARITHM, 1, 1},
             {"MatrixSquareRoot", LINALG_SQUARE_ROOT, 1, 1},
             {"BandedTriangularSolve", LINALG_BANDED_SOLVE, 2, 1},
             {"TridiagonalSolve", LINALG_TRIDIAGONAL_SOLVE, 2, 1},
             {"TridiagonalMatMul", LINALG_TRIDIAGONAL_MULTIPLY, 4, 1}};

struct linalg_state {
  struct linalg k;
  linalg_fn fn;
  int n_in, n_out;
  shoal_dtype compute; /* float for halves, else the input's type */
};

/* An attribute that not every op has. */
static shoal_status optional_bool(const struct shoal_node *n, const char *name, bool absent, bool *out) {
  *out = absent;
  return node_attr(n, name) ? node_get_bool(n, name, out) : NULL;
}

static int find_kind(const char *op) {
  if (str_starts(op, "Batch")) op += strlen("Batch");
  for (size_t i = 0; i < COUNT_OF(kinds); i++)
    if (str_equal(op, kinds[i].op)) return (int)i;
  return -1;
}

static shoal_status read_attrs(const struct shoal_node *n, struct linalg *k) {
  TRY(optional_bool(n, "adjoint", false, &k->adjoint));
  TRY(optional_bool(n, "lower", true, &k->lower));
  TRY(optional_bool(n, "full_matrices", false, &k->full));
  TRY(optional_bool(n, "fast", true, &k->fast));
  TRY(optional_bool(n, "partial_pivoting", true, &k->pivoting));
  TRY(optional_bool(n, "perturb_singular", false, &k->perturb));
  TRY(optional_bool(n, k->op == LINALG_SVD ? "compute_uv" : "compute_v", true, &k->vectors));
  return NULL;
}

static shoal_status linalg_init(struct kernel_init *ki, void *state) {
  struct linalg_state *st = state;
  int kind = find_kind(ki->kernel->op->name);
  if (kind < 0) return INTERNAL("%s is no matrix operation", ki->kernel->op->name);
  st->k.op = kinds[kind].kind;
  st->n_in = kinds[kind].n_in;
  st->n_out = kinds[kind].n_out;
  st->k.together = st->k.op == LINALG_SELF_ADJOINT_EIG && st->n_out == 1;
  TRY(read_attrs(ki->node, &st->k));
  if (st->k.perturb) return UNIMPLEMENTED("%s with perturb_singular is not supported", ki->kernel->op->name);
  shoal_dtype t = dtype_base(ki->kernel->in_types[0]);
  st->compute = t == SHOAL_FLOAT16 ? SHOAL_FLOAT32 : t;
  st->k.wide_index = st->k.op == LINALG_LU && dtype_base(ki->kernel->out_types[1]) == SHOAL_INT64;
  const linalg_fn *table = st->compute == SHOAL_FLOAT32     ? linalg_f32
                           : st->compute == SHOAL_FLOAT64   ? linalg_f64
                           : st->compute == SHOAL_COMPLEX64 ? linalg_c64
                                                            : linalg_c128;
  st->fn = table[st->k.op];
  return st->fn ? NULL : UNIMPLEMENTED("%s has no CPU kernel for %s", ki->kernel->op->name, dtype_tf_name(t));
}

/* ---- sizes ---- */

static bool broadcasts(enum linalg_op op) { return op == LINALG_TRIANGULAR_SOLVE || op == LINALG_BANDED_SOLVE; }

static bool square_input(enum linalg_op op) {
  return op != LINALG_LEAST_SQUARES && op != LINALG_QR && op != LINALG_SVD && op != LINALG_BANDED_SOLVE &&
         op != LINALG_TRIDIAGONAL_SOLVE && op != LINALG_TRIDIAGONAL_MULTIPLY;
}

static int64_t rows_of(const struct shape *s) { return s->dims[s->rank - 2]; }
static int64_t cols_of(const struct shape *s) { return s->dims[s->rank - 1]; }

/* The matrix part of output i; rank 0 to 2. Unknown sizes are -1. */
static struct shape matrix_out(const struct linalg *k, int i, int64_t rows, int64_t cols, int64_t rhs) {
  int64_t least = rows < 0 || cols < 0 ? -1 : MIN(rows, cols);
  switch (k->op) {
    case LINALG_DETERMINANT:
    case LINALG_LOG_DETERMINANT: return shape_scalar();
    case LINALG_SOLVE:
    case LINALG_TRIANGULAR_SOLVE: return shape_matrix(rows, rhs);
    case LINALG_LEAST_SQUARES:
    case LINALG_BANDED_SOLVE:
    case LINALG_TRIDIAGONAL_SOLVE:
    case LINALG_TRIDIAGONAL_MULTIPLY: return shape_matrix(cols, rhs);
    case LINALG_QR: return i ? shape_matrix(k->full ? rows : least, cols) : shape_matrix(rows, k->full ? rows : least);
    case LINALG_SVD:
      if (i == 0) return shape_vector(least);
      if (!k->vectors) return shape_scalar();
      return i == 1 ? shape_matrix(rows, k->full ? rows : least) : shape_matrix(cols, k->full ? cols : least);
    case LINALG_SELF_ADJOINT_EIG:
      if (k->together) return shape_matrix(rows < 0 ? -1 : rows + 1, rows);
      /* fall through */
    case LINALG_EIG: return i == 0 ? shape_vector(rows) : k->vectors ? shape_matrix(rows, cols) : shape_scalar();
    case LINALG_LU: return i ? shape_vector(rows) : shape_matrix(rows, cols);
    default: return shape_matrix(rows, cols);
  }
}

/* batch + matrix. */
static shoal_status join(const struct shape *batch, const struct shape *matrix, struct shape *out) {
  *out = *batch;
  if (batch->rank < 0) return NULL;
  if (batch->rank + matrix->rank > SHOAL_MAX_RANK) return INVALID("The result would have too many dimensions");
  for (int i = 0; i < matrix->rank; i++) out->dims[out->rank++] = matrix->dims[i];
  return NULL;
}

static struct shape batch_of(struct shape s) {
  s.rank -= 2;
  return s;
}

/* Checks that all inputs fit together, and that the sizes are sane. */
static shoal_status check_inputs(const struct linalg_state *st, const struct shape *s) {
  const struct linalg *k = &st->k;
  int last = st->n_in - 1; /* the right-hand side, where there is one */
  for (int i = 0; i < st->n_in; i++) {
    if (s[i].rank < 2) {
      if (k->op == LINALG_TRIANGULAR_SOLVE) return INVALID("In[%d] ndims must be >= 2: %d", i, s[i].rank);
      if (last == 0 || s[0].rank == s[i].rank || i == 0)
        return INVALID("Input tensor %d must have rank >= 2, got %d", i, s[i].rank);
      return INVALID("All input tensors must have the same rank.");
    }
    if (MAX(rows_of(&s[i]), cols_of(&s[i])) > MAX_SIDE)
      return INVALID("Matrices of more than %d rows or columns are not supported: %s", MAX_SIDE, shape_str(&s[i]));
  }
  if (!broadcasts(k->op))
    for (int i = 1; i <= last; i++) {
      if (s[i].rank != s[0].rank) return INVALID("All input tensors must have the same rank.");
      struct shape a = batch_of(s[0]), b = batch_of(s[i]);
      if (!shape_equal(&a, &b)) return INVALID("All input tensors must have the same outer dimensions.");
    }
  int64_t rows = rows_of(&s[0]), cols = cols_of(&s[0]);
  if (square_input(k->op) && rows != cols) {
    if (k->op == LINALG_SOLVE) return INVALID("First input (lhs) must be a square matrix.");
    if (k->op == LINALG_TRIANGULAR_SOLVE)
      return INVALID("In[0] matrices in the last dimensions must be square (%" PRId64 " =/= %" PRId64 ")", cols, rows);
    return INVALID("Input matrix must be square.");
  }
  switch (k->op) {
    case LINALG_SOLVE:
    case LINALG_LEAST_SQUARES:
      if (rows != rows_of(&s[1])) return INVALID("Input matrix and rhs are incompatible.");
      return NULL;
    case LINALG_TRIANGULAR_SOLVE:
      if (rows != rows_of(&s[1]))
        return INVALID("In[0] mismatch In[1] shape: %" PRId64 " vs. %" PRId64 ": %s %s %d %d", cols, rows_of(&s[1]),
                       shape_str(&s[0]), shape_str(&s[1]), k->lower, k->adjoint);
      return NULL;
    case LINALG_CHOLESKY_GRAD:
      if (!shape_equal(&s[0], &s[1])) return INVALID("Inputs must have the same shape.");
      return NULL;
    case LINALG_BANDED_SOLVE:
      if (rows == 0) return INVALID("Bands (rows of the first input) must be positive.");
      if (cols != rows_of(&s[1]))
        return INVALID("In[0] mismatch In[1] shape: %" PRId64 " vs. %" PRId64 ": %s %s %d %d", cols, rows_of(&s[1]),
                       shape_str(&s[0]), shape_str(&s[1]), k->lower, k->adjoint);
      return NULL;
    case LINALG_TRIDIAGONAL_SOLVE:
      if (rows != 3) return INVALID("Expected diagonals to have 3 rows, got %" PRId64, rows);
      if (cols != rows_of(&s[1]))
        return INVALID("The length of diagonals does not fit the rows of the right-hand side.");
      return NULL;
    case LINALG_TRIDIAGONAL_MULTIPLY:
      for (int i = 0; i < 3; i++)
        if (rows_of(&s[i]) != 1 || cols_of(&s[i]) != rows_of(&s[3]))
          return INVALID("Input %d should have one row and as many columns as the right-hand side has rows, got %s", i,
                         shape_str(&s[i]));
      return NULL;
    default: return NULL;
  }
}

/* ---- running ---- */

struct linalg_task {
  const struct linalg_state *st;
  struct linalg k;
  const char *in[LINALG_MAX_ARGS];
  char *out[LINALG_MAX_ARGS];
  int64_t in_step[LINALG_MAX_ARGS], out_step[LINALG_MAX_ARGS]; /* bytes from matrix to matrix */
  const struct broadcast *plan;                                /* of batches; NULL: all alike */
  pthread_mutex_t lock;
  shoal_status error; /* lock */
  int64_t error_at;   /* lock: of the first matrix that failed */
};

static void work_one(struct linalg_task *t, int64_t i, const int64_t *at) {
  const void *in[LINALG_MAX_ARGS];
  void *out[LINALG_MAX_ARGS];
  for (int a = 0; a < t->st->n_in; a++) in[a] = t->in[a] + (at ? at[a] : i) * t->in_step[a];
  for (int a = 0; a < t->st->n_out; a++) out[a] = t->out[a] + i * t->out_step[a];
  shoal_status s = t->st->fn(&t->k, in, out);
  if (!s) return;
  pthread_mutex_lock(&t->lock);
  if (!t->error || i < t->error_at) {
    shoal_status_free(t->error);
    t->error = s;
    t->error_at = i;
    s = NULL;
  }
  pthread_mutex_unlock(&t->lock);
  shoal_status_free(s);
}

static void work_stretch(void *arg, int64_t at, const int64_t *in_at, int64_t n) {
  struct linalg_task *t = arg;
  for (int64_t i = 0; i < n; i++) {
    int64_t from[2];
    for (int k = 0; k < 2; k++) from[k] = in_at[k] + (broadcast_inner(t->plan, k) ? i : 0);
    work_one(t, at + i, from);
  }
}

static void work_range(void *arg, int64_t begin, int64_t end) {
  struct linalg_task *t = arg;
  if (t->plan) broadcast_each(t->plan, begin, end, work_stretch, t);
  else
    for (int64_t i = begin; i < end; i++) work_one(t, i, NULL);
}

/* A half tensor as float. */
static shoal_status widen(struct kernel_ctx *ctx, const struct tensor *t, struct tensor *out) {
  struct shape s = tensor_shape(t);
  TRY(ctx_temp(ctx, SHOAL_FLOAT32, &s, out));
  half_to_float(SHOAL_FLOAT16, out->data, t->data, t->n);
  return NULL;
}

static shoal_status linalg_run(struct kernel_ctx *ctx) {
  const struct linalg_state *st = ctx->state;
  struct linalg_task t = {.st = st, .k = st->k};
  struct shape s[LINALG_MAX_ARGS], batch;
  for (int i = 0; i < st->n_in; i++) s[i] = tensor_shape(ctx_in(ctx, i));
  TRY(check_inputs(st, s));
  struct broadcast plan;
  batch = batch_of(s[0]);
  if (broadcasts(st->k.op)) {
    struct shape batches[2] = {batch, batch_of(s[1])};
    shoal_status bad = broadcast_plan_shapes(&plan, batches, 2);
    if (bad) {
      shoal_status_free(bad);
      return INVALID("In[0] and In[1] must have compatible batch dimensions: %s vs. %s", shape_str(&s[0]),
                     shape_str(&s[1]));
    }
    batch = plan.out;
    t.plan = &plan;
  }
  if (st->k.op == LINALG_LEAST_SQUARES) {
    const struct tensor *l2 = ctx_in(ctx, 2);
    if (l2->rank != 0) return INVALID("l2_regularizer must be scalar, got shape %s", tensor_shape_str(l2));
    t.k.regularizer = *T_DATA(l2, double);
    if (!(t.k.regularizer >= 0)) return INVALID("l2_regularizer must be >= 0.");
  }
  t.k.rows = (int)rows_of(&s[0]);
  t.k.cols = (int)cols_of(&s[0]);
  t.k.rhs = st->n_in > 1 ? (int)cols_of(&s[st->n_in - 1]) : 0;
  bool half = ctx_in_type(ctx, 0) == SHOAL_FLOAT16;
  struct tensor wide_in[LINALG_MAX_ARGS] = {0}, wide_out[LINALG_MAX_ARGS] = {0}, *out[LINALG_MAX_ARGS] = {0};
  shoal_status status = NULL;
  for (int i = 0; i < st->n_in && !status; i++) {
    const struct tensor *in = ctx_in(ctx, i);
    if (half) {
      status = widen(ctx, in, &wide_in[i]);
      in = &wide_in[i];
    }
    t.in[i] = in->data;
    t.in_step[i] = rows_of(&s[i]) * cols_of(&s[i]) * (int64_t)dtype_size(st->compute);
  }
  int64_t count = 0;
  for (int i = 0; i < st->n_out && !status; i++) {
    struct shape matrix = matrix_out(&t.k, i, t.k.rows, t.k.cols, t.k.rhs), full;
    status = join(&batch, &matrix, &full);
    if (!status) status = ctx_out(ctx, i, &full, &out[i]);
    bool widened = half && !status && out[i]->dtype == SHOAL_FLOAT16;
    if (widened) status = ctx_temp(ctx, SHOAL_FLOAT32, &full, &wide_out[i]);
    if (status) break;
    struct tensor *to = widened ? &wide_out[i] : out[i];
    tensor_zero(to);
    t.out[i] = to->data;
    int64_t n;
    status = shape_elements(&matrix, &n);
    t.out_step[i] = n * (int64_t)dtype_size((shoal_dtype)to->dtype);
    if (!status) status = shape_elements(&batch, &count);
  }
  if (!status && count) {
    pthread_mutex_init(&t.lock, NULL);
    int64_t side = MAX(MAX(t.k.rows, t.k.cols), 1), effort = side * side * MIN(side, 1000);
    pool_for(ctx_pool(ctx), count, MAX(20000 / effort, 1), work_range, &t);
    pthread_mutex_destroy(&t.lock);
    status = t.error;
  }
  for (int i = 0; i < LINALG_MAX_ARGS; i++) {
    if (tensor_valid(&wide_out[i]) && !status)
      half_from_float(SHOAL_FLOAT16, out[i]->data, wide_out[i].data, wide_out[i].n);
    tensor_release(&wide_in[i]);
    tensor_release(&wide_out[i]);
  }
  return status;
}

/* ---- shapes of graphs ---- */

static shoal_status linalg_shape(struct shape_ctx *c) {
  struct linalg_state st = {0};
  int kind = find_kind(c->node->op->name);
  if (kind < 0) return NULL;
  st.k.op = kinds[kind].kind;
  st.n_in = kinds[kind].n_in;
  st.k.together = st.k.op == LINALG_SELF_ADJOINT_EIG && kinds[kind].n_out == 1;
  TRY(read_attrs(c->node, &st.k));
  struct shape s;
  for (int i = 0; i < st.n_in; i++) TRY(shape_in_rank_at_least(c, i, 2, &s));
  const struct shape *a = &c->in[0], *rhs = st.n_in > 1 ? &c->in[st.n_in - 1] : NULL;
  if (a->rank < 0 || (rhs && rhs->rank < 0)) return NULL;
  int64_t rows = rows_of(a), cols = cols_of(a);
  if (square_input(st.k.op)) {
    if (rows >= 0 && cols >= 0 && rows != cols)
      return INVALID("Dimensions must be equal, but are %" PRId64 " and %" PRId64, rows, cols);
    if (rows < 0) rows = cols;
    cols = rows;
  }
  struct shape batch = batch_of(*a);
  if (rhs && broadcasts(st.k.op)) {
    struct shape other = batch_of(*rhs);
    TRY(shape_broadcast(&batch, &other, &batch));
  } else if (rhs && st.k.op != LINALG_TRIDIAGONAL_MULTIPLY) {
    struct shape other = batch_of(*rhs);
    TRY(shape_merge(&batch, &other, &batch));
  }
  for (int i = 0; i < kinds[kind].n_out; i++) {
    struct shape matrix = matrix_out(&st.k, i, rows, cols, rhs ? cols_of(rhs) : 0);
    TRY(join(&batch, &matrix, &c->out[i]));
  }
  return NULL;
}

/* ---- rows ---- */

#define MATRIX_KERNEL(types_)                                                                                      \
  {                                                                                                                \
    "CPU", "T", types_, .flags = KERNEL_EXPENSIVE, .state_size = sizeof(struct linalg_state), .init = linalg_init, \
                        .run = linalg_run                                                                          \
  }
#define REALS (DT(FLOAT32) | DT(FLOAT64) | DT(FLOAT16))
static const struct kernel_def any_kernels[] = {MATRIX_KERNEL(REALS | DT_COMPLEX), {0}};
static const struct kernel_def real_kernels[] = {MATRIX_KERNEL(REALS), {0}};
static const struct kernel_def eig_kernels[] = {
    {"CPU", "T", DT(FLOAT32) | DT(COMPLEX64), "Tout", DT(COMPLEX64), .flags = KERNEL_EXPENSIVE,
     .state_size = sizeof(struct linalg_state), .init = linalg_init, .run = linalg_run},
    {"CPU", "T", DT(FLOAT64) | DT(COMPLEX128), "Tout", DT(COMPLEX128), .flags = KERNEL_EXPENSIVE,
     .state_size = sizeof(struct linalg_state), .init = linalg_init, .run = linalg_run},
    {0}};

static const struct op_row rows[] = {
    {.name = "Cholesky",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: {double, float, half, complex64, complex128}",
     .shape = linalg_shape,
     .grad = linalg_cholesky_grad,
     .kernels = any_kernels},
    {.name = "BatchCholesky",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: {double, float}",
     .shape = linalg_shape,
     .grad = linalg_cholesky_grad,
     .kernels = any_kernels},
    {.name = "CholeskyGrad",
     .in = "l: T, grad: T",
     .out = "output: T",
     .attrs = "T: {half, float, double}",
     .shape = linalg_shape,
     .kernels = real_kernels},
    {.name = "BatchCholeskyGrad",
     .in = "l: T, grad: T",
     .out = "output: T",
     .attrs = "T: {float, double}",
     .shape = linalg_shape,
     .kernels = real_kernels},
    {.name = "MatrixInverse",
     .in = "input: T",
     .out = "output: T",
     .attrs = "adjoint: bool = false; T: {double, float, half, complex64, complex128}",
     .shape = linalg_shape,
     .grad = linalg_inverse_grad,
     .kernels = any_kernels},
    {.name = "BatchMatrixInverse",
     .in = "input: T",
     .out = "output: T",
     .attrs = "adjoint: bool = false; T: {double, float}",
     .shape = linalg_shape,
     .grad = linalg_inverse_grad,
     .kernels = any_kernels},
    {.name = "MatrixDeterminant",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: {half, float, double, complex64, complex128}",
     .shape = linalg_shape,
     .grad = linalg_determinant_grad,
     .kernels = any_kernels},
    {.name = "BatchMatrixDeterminant",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: {float, double, complex64, complex128}",
     .shape = linalg_shape,
     .grad = linalg_determinant_grad,
     .kernels = any_kernels},
    {.name = "LogMatrixDeterminant",
     .in = "input: T",
     .out = "sign: T, log_abs_determinant: T",
     .attrs = "T: {half, float, double, complex64, complex128}",
     .shape = linalg_shape,
     .grad = linalg_log_determinant_grad,
     .kernels = any_kernels},
    {.name = "MatrixSolve",
     .in = "matrix: T, rhs: T",
     .out = "output: T",
     .attrs = "adjoint: bool = false; T: {double, float, half, complex64, complex128}",
     .shape = linalg_shape,
     .grad = linalg_solve_grad,
     .kernels = any_kernels},
    {.name = "BatchMatrixSolve",
     .in = "matrix: T, rhs: T",
     .out = "output: T",
     .attrs = "adjoint: bool = false; T: {double, float}",
     .shape = linalg_shape,
     .grad = linalg_solve_grad,
     .kernels = any_kernels},
    {.name = "MatrixTriangularSolve",
     .in = "matrix: T, rhs: T",
     .out = "output: T",
     .attrs = "lower: bool = true; adjoint: bool = false; T: {bfloat16, double, float, half, complex64, "
              "complex128}",
     .shape = linalg_shape,
     .grad = linalg_triangular_solve_grad,
     .kernels = any_kernels},
    {.name = "BatchMatrixTriangularSolve",
     .in = "matrix: T, rhs: T",
     .out = "output: T",
     .attrs = "lower: bool = true; adjoint: bool = false; T: {double, float}",
     .shape = linalg_shape,
     .grad = linalg_triangular_solve_grad,
     .kernels = any_kernels},
    {.name = "MatrixSolveLs",
     .in = "matrix: T, rhs: T, l2_regularizer: double",
     .out = "output: T",
     .attrs = "T: {double, float, half, complex64, complex128}; fast: bool = true",
     .shape = linalg_shape,
     .grad = linalg_least_squares_grad,
     .kernels = any_kernels},
    {.name = "BatchMatrixSolveLs",
     .in = "matrix: T, rhs: T, l2_regularizer: double",
     .out = "output: T",
     .attrs = "T: {double, float}; fast: bool = true",
     .shape = linalg_shape,
     .grad = linalg_least_squares_grad,
     .kernels = any_kernels},
    {.name = "Qr",
     .in = "input: T",
     .out = "q: T, r: T",
     .attrs = "full_matrices: bool = false; T: {double, float, half, complex64, complex128}",
     .shape = linalg_shape,
     .grad = linalg_qr_grad,
     .kernels = any_kernels},
    {.name = "Svd",
     .in = "input: T",
     .out = "s: T, u: T, v: T",
     .attrs = "compute_uv: bool = true; full_matrices: bool = false; T: {double, float, half, complex64, "
              "complex128}",
     .shape = linalg_shape,
     .grad = linalg_svd_grad,
     .kernels = any_kernels},
    {.name = "BatchSvd",
     .in = "input: T",
     .out = "s: T, u: T, v: T",
     .attrs = "compute_uv: bool = true; full_matrices: bool = false; T: {double, float, complex64, complex128}",
     .shape = linalg_shape,
     .grad = linalg_svd_grad,
     .kernels = any_kernels},
    {.name = "SelfAdjointEigV2",
     .in = "input: T",
     .out = "e: T, v: T",
     .attrs = "compute_v: bool = true; T: {double, float, half, complex64, complex128}",
     .shape = linalg_shape,
     .grad = linalg_self_adjoint_eig_grad,
     .kernels = any_kernels},
    {.name = "BatchSelfAdjointEigV2",
     .in = "input: T",
     .out = "e: T, v: T",
     .attrs = "compute_v: bool = true; T: {double, float}",
     .shape = linalg_shape,
     .grad = linalg_self_adjoint_eig_grad,
     .kernels = any_kernels},
    {.name = "SelfAdjointEig",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: {double, float, half}",
     .shape = linalg_shape,
     .kernels = real_kernels},
    {.name = "BatchSelfAdjointEig",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: {double, float}",
     .shape = linalg_shape,
     .kernels = real_kernels},
    {.name = "Eig",
     .in = "input: T",
     .out = "e: Tout, v: Tout",
     .attrs = "compute_v: bool = true; T: {float, double, complex64, complex128}; Tout: {complex64, complex128}",
     .shape = linalg_shape,
     .grad = linalg_eig_grad,
     .kernels = eig_kernels},
    {.name = "Lu",
     .in = "input: T",
     .out = "lu: T, p: output_idx_type",
     .attrs = "T: {double, float, half, complex64, complex128}; output_idx_type: {int32, int64} = int32",
     .shape = linalg_shape,
     .kernels = any_kernels},
    {.name = "MatrixExponential",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: {double, float, half, complex64, complex128}",
     .shape = linalg_shape,
     .kernels = any_kernels},
    {.name = "MatrixLogarithm",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: {complex64, complex128}",
     .shape = linalg_shape,
     .kernels = any_kernels},
    {.name = "MatrixSquareRoot",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: {double, float, half, complex64, complex128}",
     .shape = linalg_shape,
     .grad = linalg_square_root_grad,
     .kernels = any_kernels},
    {.name = "BandedTriangularSolve",
     .in = "matrix: T, rhs: T",
     .out = "output: T",
     .attrs = "lower: bool = true; adjoint: bool = false; T: {double, float, half, complex64, complex128}",
     .shape = linalg_shape,
     .grad = linalg_banded_solve_grad,
     .kernels = any_kernels},
    {.name = "TridiagonalSolve",
     .in = "diagonals: T, rhs: T",
     .out = "output: T",
     .attrs = "partial_pivoting: bool = true; perturb_singular: bool = false; T: {double, float, complex64, "
              "complex128}",
     .shape = linalg_shape,
     .grad = linalg_tridiagonal_solve_grad,
     .kernels = any_kernels},
    {.name = "TridiagonalMatMul",
     .in = "superdiag: T, maindiag: T, subdiag: T, rhs: T",
     .out = "output: T",
     .attrs = "T: {double, float, complex64, complex128}",
     .shape = linalg_shape,
     .grad = linalg_tridiagonal_multiply_grad,
     .kernels = any_kernels},
};
OP_FAMILY(linalg, rows);
