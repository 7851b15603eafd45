/* ops/math: arithmetic element by element, with broadcasting; reductions, scans, segments, sorting. */

/* AddN and AccumulateNV2: the sum of any number of tensors of one shape.
 *
 * One pass over the output: block by block, all inputs are added to it while it is in the cache, always in the order of
 * the inputs. */
#include "base/mem.h"
#include "graph/gradient.h"
#include "graph/shape_fn.h"
#include "ops/array/array_util.h"
#include "ops/math/elementwise.h"

enum { BLOCK = 4096, MAX_HALF_BLOCK = 512 };

struct add_n {
  const struct binary_loop *add;
  shoal_dtype half; /* 0, or the half type: sums are kept in float until the end */
  char *out;
  const struct tensor *const *in;
  int n_in;
};

static void add_halves(const struct add_n *a, int64_t begin, int64_t end) {
  float sum[MAX_HALF_BLOCK], x[MAX_HALF_BLOCK];
  for (int64_t i = begin; i < end; i += MAX_HALF_BLOCK) {
    int64_t n = MIN(end - i, MAX_HALF_BLOCK);
    half_to_float(a->half, sum, T_DATA(a->in[0], const char) + 2 * i, n);
    for (int k = 1; k < a->n_in; k++) {
      half_to_float(a->half, x, T_DATA(a->in[k], const char) + 2 * i, n);
      a->add->fn(sum, sum, x, n, VECTOR_VECTOR);
    }
    half_from_float(a->half, a->out + 2 * i, sum, n);
  }
}

static void add_piece(void *arg, int64_t begin, int64_t end) {
  const struct add_n *a = arg;
  if (a->half) {
    add_halves(a, begin, end);
    return;
  }
  int64_t size = a->add->in_size;
  for (int64_t i = begin; i < end; i += BLOCK) {
    int64_t n = MIN(end - i, BLOCK);
    const char *first = T_DATA(a->in[0], const char);
    for (int k = 1; k < a->n_in; k++) {
      const char *left = k == 1 ? first + i * size : a->out + i * size;
      a->add->fn(a->out + i * size, left, T_DATA(a->in[k], const char) + i * size, n, VECTOR_VECTOR);
    }
  }
}

static shoal_status add_n_init(struct kernel_init *ki, void *state) {
  shoal_dtype t = dtype_base(ki->kernel->in_types[0]);
  return binary_loop_init(state, "AddV2", t, t);
}

static shoal_status add_n_run(struct kernel_ctx *ctx) {
  const struct binary_loop *add = ctx->state;
  const struct tensor *first = ctx_in(ctx, 0);
  int n_in = ctx->kernel->n_in;
  for (int k = 1; k < n_in; k++)
    if (!tensor_same_shape(first, ctx_in(ctx, k)))
      return INVALID(
          "Inputs to operation %s of type %s must have the same size and shape.  "
          "Input 0: %s != input %d: %s",
          ctx->kernel->name, ctx->kernel->op->name, tensor_shape_str(first), k, tensor_shape_str(ctx_in(ctx, k)));
  if (n_in == 1) return ctx_forward(ctx, 0, 0, NULL);
  struct tensor *z;
  /* Only the first two inputs are read before the output is first written. */
  TRY(ctx_out_like(ctx, 0, n_in == 2 && (ctx->steal & 3) == 2 ? 1 : 0, &z));
  struct add_n a = {add, (shoal_dtype)add->half, z->data, ctx->in, n_in};
  pool_for(ctx_pool(ctx), first->n, MAX(add->grain / n_in, 2048), add_piece, &a);
  return NULL;
}

/* Lists of tensors and the like add up as their type says; an empty element is zero. */
static shoal_status add_variants_run(struct kernel_ctx *ctx) {
  struct tensor sum;
  TRY(tensor_copy(&sum, ctx_in(ctx, 0)));
  shoal_status s = NULL;
  for (int k = 1; k < ctx->kernel->n_in && !s; k++) {
    const struct tensor *x = ctx_in(ctx, k);
    if (!tensor_same_shape(&sum, x)) s = INVALID("Inputs to operation %s must have the same shape", ctx->kernel->name);
    for (int64_t i = 0; i < x->n && !s; i++) {
      struct variant **to = &T_DATA(&sum, struct variant *)[i], *by = T_DATA(x, struct variant *)[i], *now = NULL;
      if (!by) continue;
      if (!*to) now = variant_ref(by);
      else if (!by->type->add || (*to)->type != by->type)
        s = UNIMPLEMENTED("%s: variants of type %s cannot be added", ctx->kernel->name, by->type->name);
      else s = by->type->add(*to, by, &now);
      if (s) break;
      variant_unref(*to);
      *to = now;
    }
  }
  if (s) tensor_release(&sum);
  else ctx_set(ctx, 0, &sum);
  return s;
}

static shoal_status add_n_grad(struct grad_ctx *c) {
  for (int i = 0; i < c->node->n_in; i++) c->dx[i] = c->dy[0]; /* slices stay slices */
  return NULL;
}

static const struct kernel_def add_n_kernels[] = {
    {"CPU", "T", DT_NUMBER, .state_size = sizeof(struct binary_loop), .init = add_n_init, .run = add_n_run},
    {"CPU", "T", DT(VARIANT), .flags = KERNEL_ANYWHERE, .run = add_variants_run},
    {0}};

static const struct op_row rows[] = {
    {.name = "AddN",
     .in = "inputs: N * T",
     .out = "sum: T",
     .attrs = "N: int >= 1; T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, "
              "qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, variant}",
     .flags = OP_COMMUTATIVE | OP_AGGREGATE,
     .shape = shape_merge_all,
     .grad = add_n_grad,
     .kernels = add_n_kernels},
    {.name = "AccumulateNV2",
     .in = "inputs: N * T",
     .out = "sum: T",
     .attrs = "N: int >= 1; T: {numbertype}; shape: shape",
     .flags = OP_COMMUTATIVE | OP_AGGREGATE,
     .shape = shape_explicit,
     .grad = add_n_grad,
     .kernels = add_n_kernels},
};
OP_FAMILY(add_n, rows);
