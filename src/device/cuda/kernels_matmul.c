/* Matrix products on a card. */
#include "device/cuda/cuda_blas.h"
#include "device/cuda/cuda_kernel.h"
#include "ops/array/array_util.h"
#include "ops/math/broadcast.h"

struct cuda_matmul {
  bool trans_a, trans_b;
};

static shoal_status there(void) {
  return cuda_blas_there() ? NULL : UNIMPLEMENTED("a matrix product on a card needs libcublasLt.so");
}

static shoal_status matmul_init(struct kernel_init *ki, void *state) {
  struct cuda_matmul *st = state;
  TRY(there());
  TRY(node_get_bool(ki->node, "transpose_a", &st->trans_a));
  return node_get_bool(ki->node, "transpose_b", &st->trans_b);
}

static shoal_status batch_init(struct kernel_init *ki, void *state) {
  struct cuda_matmul *st = state;
  TRY(there());
  TRY(node_get_bool(ki->node, "adj_x", &st->trans_a));
  return node_get_bool(ki->node, "adj_y", &st->trans_b);
}

shoal_status cuda_product_of(const struct tensor *a, const struct tensor *b, bool trans_a, bool trans_b,
                             struct cuda_product *out) {
  const int64_t *da = a->dims + a->rank - 2, *db = b->dims + b->rank - 2;
  *out = (struct cuda_product){.dtype = (shoal_dtype)a->dtype,
                               .trans_a = trans_a,
                               .trans_b = trans_b,
                               .m = da[trans_a],
                               .k = da[!trans_a],
                               .n = db[!trans_b],
                               .batch = 1};
  if (out->k != db[trans_b])
    return INVALID("Matrix size-incompatible: In[0]: %s, In[1]: %s", tensor_shape_str(a), tensor_shape_str(b));
  return NULL;
}

static shoal_status queue(struct kernel_ctx *ctx, const struct cuda_product *p, size_t at_a, size_t at_b, size_t at_c) {
  struct cuda_device *c = cuda_ctx(ctx);
  size_t size = dtype_size(p->dtype);
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1), *out = &ctx->out[0];
  TRY(cuda_use(c, a));
  TRY(cuda_use(c, b));
  TRY(cuda_use(c, out));
  return cuda_blas_run(c, p, (const char *)a->data + at_a * size, (const char *)b->data + at_b * size,
                       (char *)out->data + at_c * size);
}

static shoal_status run_one(struct kernel_ctx *ctx, const struct cuda_product *p, int64_t at_a, int64_t at_b,
                            int64_t at_c) {
  struct cuda_device *c = cuda_ctx(ctx);
  cuda_lock(c);
  shoal_status s = queue(ctx, p, (size_t)at_a, (size_t)at_b, (size_t)at_c);
  cuda_unlock(c);
  return s;
}

/* Nothing summed is zeros. */
static bool is_empty(struct kernel_ctx *ctx, const struct cuda_product *p) {
  struct device *d = ctx->kernel->device;
  if (p->k == 0) d->type->ops->zero(d, &ctx->out[0]);
  return p->k == 0 || ctx->out[0].n == 0;
}

static shoal_status matmul_run(struct kernel_ctx *ctx) {
  const struct cuda_matmul *st = ctx->state;
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1);
  struct cuda_product p;
  struct tensor *out;
  if (a->rank != 2 || b->rank != 2)
    return INVALID("In[0] and In[1] has different ndims: %s vs. %s", tensor_shape_str(a), tensor_shape_str(b));
  TRY(cuda_product_of(a, b, st->trans_a, st->trans_b, &p));
  TRY(ctx_out_dims(ctx, 0, 2, (int64_t[]){p.m, p.n}, &out));
  return is_empty(ctx, &p) ? NULL : run_one(ctx, &p, 0, 0, 0);
}

/* The dimensions before the last two. */
static struct shape batch_shape(const struct tensor *t) {
  struct shape s = tensor_shape(t);
  s.rank -= 2;
  return s;
}

/* All at once where each operand's matrices follow one another, or there is only one; else one after the other. */
struct cuda_batches {
  struct kernel_ctx *ctx;
  struct cuda_product p;
  shoal_status s;
};

static void batch_stretch(void *arg, int64_t out_at, const int64_t *in_at, int64_t n) {
  struct cuda_batches *b = arg;
  int64_t a_size = b->p.m * b->p.k, b_size = b->p.k * b->p.n, c_size = b->p.m * b->p.n;
  b->p.batch = n;
  if (!b->s) b->s = run_one(b->ctx, &b->p, in_at[0] * a_size, in_at[1] * b_size, out_at * c_size);
}

static shoal_status batch_run(struct kernel_ctx *ctx) {
  const struct cuda_matmul *st = ctx->state;
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1);
  struct cuda_batches all = {.ctx = ctx};
  struct broadcast spread;
  struct tensor *out;
  if (a->rank < 2 || b->rank < 2)
    return INVALID("In[0] and In[1] ndims must be >= 2: %s, %s", tensor_shape_str(a), tensor_shape_str(b));
  TRY(cuda_product_of(a, b, st->trans_a, st->trans_b, &all.p));
  TRY(broadcast_plan_shapes(&spread, (struct shape[]){batch_shape(a), batch_shape(b)}, 2));
  struct shape shape = spread.out;
  shape.dims[shape.rank++] = all.p.m;
  shape.dims[shape.rank++] = all.p.n;
  TRY(ctx_out(ctx, 0, &shape, &out));
  if (is_empty(ctx, &all.p)) return NULL;
  all.p.step_a = broadcast_inner(&spread, 0) ? all.p.m * all.p.k : 0;
  all.p.step_b = broadcast_inner(&spread, 1) ? all.p.k * all.p.n : 0;
  all.p.step_c = all.p.m * all.p.n;
  broadcast_each(&spread, 0, spread.n, batch_stretch, &all);
  return all.s;
}

#define KERNEL(id, attr, init_, run_)                                               \
  static const struct kernel_def id[] = {{.device = "GPU",                          \
                                          .type_attr = attr,                        \
                                          .types = CUDA_FLOATING,                   \
                                          .state_size = sizeof(struct cuda_matmul), \
                                          .init = init_,                            \
                                          .run = run_},                             \
                                         {0}};
KERNEL(matmul, "T", matmul_init, matmul_run)
KERNEL(batch, "T", batch_init, batch_run)

const struct device_kernels cuda_matmul_kernels[] = {
    {"MatMul", matmul}, {"BatchMatMul", batch}, {"BatchMatMulV2", batch}, {0}};
