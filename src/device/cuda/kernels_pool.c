/* Max and average pooling on a card: pool.cu. Either order of channels is read as it lies. */
#include <stdio.h>
#include <string.h>

#include "device/cuda/cuda_kernel.h"
#include "ops/nn/pooling_shapes.h"

struct cuda_pool {
  struct pool_state of;
  CUfunction one, wide; /* channels that a thread serves: one, or 16 bytes of them */
  CUfunction line;      /* of largest ones: 16 bytes, windows of 3 x 3; NULL: averages */
};

static shoal_status find(struct kernel_init *ki, const char *name, bool wide, shoal_dtype second, CUfunction *out) {
  char full[32];
  snprintf(full, sizeof full, "%s_%s", name, wide ? "wide" : "one");
  return cuda_function(cuda_of(ki->device), "pool", full, dtype_base(ki->kernel->out_types[0]), second, out);
}

static shoal_status find_line(struct kernel_init *ki, const char *name, CUfunction *out) {
  return cuda_function(cuda_of(ki->device), "pool", name, dtype_base(ki->kernel->out_types[0]), 0, out);
}

static shoal_status pool_init(struct kernel_init *ki, void *state) {
  struct cuda_pool *st = state;
  const char *op = ki->node->op->name;
  const char *name = op[0] == 'M' ? "max_pool" : strstr(op, "Grad") ? "avg_pool_grad" : "avg_pool";
  TRY(pool_state_init(&st->of, ki->node));
  TRY(find(ki, name, false, 0, &st->one));
  if (op[0] == 'M') TRY(find_line(ki, "max_line", &st->line));
  return find(ki, name, true, 0, &st->wide);
}

struct cuda_pool_shape { /* as pool.cu has it */
  int64_t batch, depth, in[3], out[3], size[3], stride[3], pad[3];
  int32_t channels_first;
};

static struct cuda_pool_shape shape_of(const struct window *w, const struct pooling *p) {
  struct cuda_pool_shape s = {.batch = p->batch, .depth = p->depth, .channels_first = w->channels_first};
  for (int d = 0; d < 3; d++) {
    s.in[d] = p->in[d];
    s.out[d] = p->out[d];
    s.size[d] = p->size[d];
    s.stride[d] = p->stride[d];
    s.pad[d] = p->pad[d];
  }
  return s;
}

/* How many channels a thread can serve, of at most n elements at those addresses. */
static int64_t channels_each(const struct cuda_pool_shape *s, shoal_dtype type, int64_t n, uintptr_t addresses) {
  enum { BYTES = 16 };
  int64_t each = BYTES / (int64_t)dtype_size(type);
  bool wide = !s->channels_first && s->depth % each == 0 && addresses % BYTES == 0 && n / each < UINT32_MAX;
  return wide ? each : 1;
}

/* Flat images, channels last, several channels to a thread: blocks may go by lines, of which there are not too many. */
static bool is_flat(const struct cuda_pool_shape *s, int64_t each) {
  return each > 1 && !s->channels_first && s->in[0] == 1 && s->out[0] == 1 && s->size[0] == 1 &&
         s->batch * MAX(s->in[1], s->out[1]) < INT32_MAX && s->in[1] * s->in[2] * s->depth < INT32_MAX;
}

static bool is_three(const struct cuda_pool_shape *s, int64_t each) {
  return is_flat(s, each) && s->size[1] == 3 && s->size[2] == 3 && s->batch * s->out[1] > 0;
}

static shoal_status run_lines(struct kernel_ctx *ctx, CUfunction f, int64_t lines, void **args) {
  return cuda_run(ctx, f, (unsigned)lines, 1, CUDA_BLOCK, args);
}

static shoal_status run(struct kernel_ctx *ctx, const struct cuda_pool_shape *s, const struct tensor *out,
                        uintptr_t addresses, void **args) {
  const struct cuda_pool *st = ctx->state;
  int64_t each = channels_each(s, (shoal_dtype)out->dtype, out->n, addresses);
  if (st->line && is_three(s, each)) return run_lines(ctx, st->line, s->batch * s->out[1], args);
  return cuda_run_each(ctx, each > 1 ? st->wide : st->one, out->n / each, args);
}

static shoal_status find_window(struct kernel_ctx *ctx, const struct pool_state *of, struct window *w) {
  TRY(pool_window(ctx, of, w));
  if (ctx->kernel->op->name[0] == 'M' && w->size_depth != 1)
    return UNIMPLEMENTED("Depthwise max pooling is currently only implemented for CPU devices.");
  return pool_check_depth(ctx, w);
}

static shoal_status forward_run(struct kernel_ctx *ctx) {
  const struct cuda_pool *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape sx = tensor_shape(x);
  struct pooling p = {0};
  struct window w;
  struct tensor *y;
  TRY(find_window(ctx, &st->of, &w));
  TRY(pool_geometry(&w, &sx, "tensor_in", &p));
  struct shape sy = window_shape(&w, p.batch, p.out, p.depth);
  TRY(ctx_out(ctx, 0, &sy, &y));
  struct cuda_pool_shape s = shape_of(&w, &p);
  return run(ctx, &s, y, (uintptr_t)x->data | (uintptr_t)y->data, (void *[]){(void *)&x->data, &y->data, &s});
}

/* ---- max pooling's gradient: the place that each window takes, then what each pixel is given ---- */

struct cuda_max_grad {
  struct pool_state of;
  CUfunction where[2][2], back[2][2]; /* one channel or several; places in a byte or four */
  CUfunction line;                    /* several channels, places in a byte, flat images channels last */
};

static shoal_status max_grad_init(struct kernel_init *ki, void *state) {
  static const shoal_dtype places[] = {SHOAL_UINT8, SHOAL_INT32};
  struct cuda_max_grad *st = state;
  TRY(pool_state_init(&st->of, ki->node));
  for (int wide = 0; wide < 2; wide++)
    for (int large = 0; large < 2; large++) {
      TRY(find(ki, "max_where", wide, places[large], &st->where[wide][large]));
      TRY(find(ki, "max_back", wide, places[large], &st->back[wide][large]));
    }
  return find_line(ki, "max_back_line", &st->line);
}

/* Windows lie over a pixel two by two at most. */
static bool by_line(const struct cuda_pool_shape *s, int64_t each, bool large) {
  return is_flat(s, each) && !large && s->size[1] <= 2 * s->stride[1] && s->size[2] <= 2 * s->stride[2] &&
         s->batch * s->in[1] > 0;
}

static shoal_status give_back(struct kernel_ctx *ctx, struct cuda_pool_shape *s, int64_t each, bool large,
                              void **args) {
  const struct cuda_max_grad *st = ctx->state;
  if (by_line(s, each, large)) return run_lines(ctx, st->line, s->batch * s->in[1], args);
  return cuda_run_each(ctx, st->back[each > 1][large], ctx->out[0].n / each, args);
}

static shoal_status max_back(struct kernel_ctx *ctx, struct cuda_pool_shape *s, const struct tensor *x,
                             const struct tensor *dy, const struct tensor *dx) {
  enum { BYTE = 255 }; /* the last one is none */
  bool large = s->size[0] * s->size[1] * s->size[2] > BYTE;
  uintptr_t addresses = (uintptr_t)x->data | (uintptr_t)dy->data | (uintptr_t)dx->data;
  int64_t each = channels_each(s, (shoal_dtype)x->dtype, MAX(x->n, dy->n), addresses);
  struct shape shape = shape_vector(dy->n);
  struct tensor where;
  TRY(cuda_temp(ctx, large ? SHOAL_INT32 : SHOAL_UINT8, &shape, &where));
  const struct cuda_max_grad *st = ctx->state;
  shoal_status e =
      cuda_run_each(ctx, st->where[each > 1][large], dy->n / each, (void *[]){(void *)&x->data, &where.data, s});
  if (!e) e = give_back(ctx, s, each, large, (void *[]){&where.data, (void *)&dy->data, (void *)&dx->data, s});
  tensor_release(&where);
  return e;
}

static shoal_status max_grad_run(struct kernel_ctx *ctx) {
  const struct cuda_max_grad *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *dy = ctx_in(ctx, 2);
  struct shape sx = tensor_shape(x);
  struct pooling p = {0};
  struct window w;
  struct tensor *dx;
  TRY(find_window(ctx, &st->of, &w));
  TRY(pool_geometry(&w, &sx, "tensor_in", &p));
  struct shape sy = window_shape(&w, p.batch, p.out, p.depth);
  TRY(pool_check_shape(ctx_in(ctx, 1), &sy, "orig_output"));
  TRY(pool_check_shape(dy, &sy, "grad"));
  TRY(ctx_out(ctx, 0, &sx, &dx));
  struct cuda_pool_shape s = shape_of(&w, &p);
  return max_back(ctx, &s, x, dy, dx);
}

static shoal_status avg_grad_run(struct kernel_ctx *ctx) {
  const struct cuda_pool *st = ctx->state;
  const struct window *w = &st->of.w;
  const struct tensor *sizes = ctx_in(ctx, 0), *dy = ctx_in(ctx, 1);
  int rank = w->spatial + 2;
  struct shape sx;
  struct pooling p = {0};
  struct tensor *dx;
  TRY(pool_check_depth(ctx, w));
  if (sizes->rank != 1 || sizes->n != rank) return INVALID("out_backprop must be 1-dimensional and %d elements", rank);
  TRY(tensor_get_shape(sizes, false, &sx));
  TRY(pool_geometry(w, &sx, "orig_input_shape", &p));
  if (dy->rank != rank) return INVALID("out_backprop must be %d-dimensional", rank);
  struct shape sy = window_shape(w, p.batch, p.out, p.depth);
  TRY(pool_check_shape(dy, &sy, "grad"));
  TRY(ctx_out(ctx, 0, &sx, &dx));
  struct cuda_pool_shape s = shape_of(w, &p);
  return run(ctx, &s, dx, (uintptr_t)dy->data | (uintptr_t)dx->data, (void *[]){(void *)&dy->data, &dx->data, &s});
}

#define KERNEL(id, state_, init_, run_, host)                                  \
  static const struct kernel_def id[] = {{.device = "GPU",                     \
                                          .type_attr = "T",                    \
                                          .types = CUDA_FLOATING,              \
                                          .state_size = sizeof(struct state_), \
                                          .init = init_,                       \
                                          .run = run_,                         \
                                          .host_in = host},                    \
                                         {0}};
KERNEL(forward, cuda_pool, pool_init, forward_run, 0)
KERNEL(forward_v2, cuda_pool, pool_init, forward_run, 2 | 4)
KERNEL(max_grad, cuda_max_grad, max_grad_init, max_grad_run, 0)
KERNEL(max_grad_v2, cuda_max_grad, max_grad_init, max_grad_run, 8 | 16)
KERNEL(avg_grad, cuda_pool, pool_init, avg_grad_run, 1)

const struct device_kernels cuda_pool_kernels[] = {{"MaxPool", forward},           {"MaxPoolV2", forward_v2},
                                                   {"MaxPool3D", forward},         {"MaxPoolGrad", max_grad},
                                                   {"MaxPoolGradV2", max_grad_v2}, {"AvgPool", forward},
                                                   {"AvgPool3D", forward},         {"AvgPoolGrad", avg_grad},
                                                   {"AvgPool3DGrad", avg_grad},    {0}};
