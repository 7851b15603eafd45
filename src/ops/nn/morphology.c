/* Dilation2D of grey-scale images: the largest sum of image and filter under a window, and its two gradients, which go
 * to the first place where the largest sum stands. */
#include <string.h>

#include "ops/nn/window.h"

struct dilate {
  int64_t batch, in[2], out[2], filter[2], stride[2], rate[2], pad[2], depth;
  const void *x, *f, *dy;
  void *result;
};

enum dilate_kind { FORWARD, BACK_INPUT, BACK_FILTER };
struct dilate_state {
  struct window w;
  enum dilate_kind kind;
};

static shoal_status dilate_init(struct kernel_init *ki, void *state) {
  struct dilate_state *st = state;
  const char *name = ki->node->op->name;
  st->kind = strstr(name, "Input") ? BACK_INPUT : strstr(name, "Filter") ? BACK_FILTER : FORWARD;
  return window_init(&st->w, ki->node, 2);
}

#define LOOPS "ops/nn/morphology_loops.inc"
#include "tensor/each_floating.inc"
#include "tensor/each_integer.inc"
#undef LOOPS

static shoal_status dilate_run(struct kernel_ctx *ctx) {
  const struct dilate_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *f = ctx_in(ctx, 1), *dy = st->kind == FORWARD ? NULL : ctx_in(ctx, 2);
  if (x->rank != 4) return INVALID("input must be 4-dimensional%s", tensor_shape_str(x));
  if (f->rank != 3) return INVALID("filter must be 3-dimensional: %s", tensor_shape_str(f));
  struct dilate p = {.batch = x->dims[0], .depth = x->dims[3]};
  if (p.depth != f->dims[2])
    return INVALID("input and filter must have the same depth: %" PRId64 " vs %" PRId64, p.depth, f->dims[2]);
  for (int d = 0; d < 2; d++) {
    int64_t after;
    p.in[d] = x->dims[d + 1];
    p.filter[d] = f->dims[d];
    p.stride[d] = st->w.stride[d + 1];
    p.rate[d] = st->w.dilation[d + 1];
    TRY(window_out(&st->w, d + 1, p.in[d], p.filter[d], &p.out[d], &p.pad[d], &after));
  }
  struct shape sy = {.rank = 4, .dims = {p.batch, p.out[0], p.out[1], p.depth}};
  struct shape shape = st->kind == FORWARD ? sy : tensor_shape(st->kind == BACK_INPUT ? x : f);
  if (dy) {
    struct shape have = tensor_shape(dy);
    if (!shape_equal(&have, &sy)) return INVALID("out_backprop has incompatible size.");
  }
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  tensor_zero(out);
  p.x = x->data;
  p.f = f->data;
  p.dy = dy ? dy->data : NULL;
  p.result = out->data;
  switch (ctx_in_type(ctx, 0)) {
#define CASE(E, T, C) \
  case E: dilate_##E(&p, st->kind); break;
    NN_FLOATING(CASE)
    NN_INTEGERS(CASE)
    default: return UNIMPLEMENTED("%s of %s", ctx->kernel->op->name, shoal_dtype_name(ctx_in_type(ctx, 0)));
  }
  return NULL;
}

static const struct kernel_def dilate_kernels[] = {{.device = "CPU",
                                                    .type_attr = "T",
                                                    .types = DT_REAL,
                                                    .state_size = sizeof(struct dilate_state),
                                                    .init = dilate_init,
                                                    .run = dilate_run},
                                                   {0}};

static shoal_status dilate_shape(struct shape_ctx *c) {
  struct window w;
  struct shape x, f;
  int64_t out[3] = {1, -1, -1}, before, after;
  TRY(window_init(&w, c->node, 2));
  TRY(shape_in_rank(c, 0, 4, &x));
  TRY(shape_in_rank(c, 1, 3, &f));
  TRY(nn_same_dim(c, x.dims[3], f.dims[2]));
  for (int d = 1; d < 3; d++) TRY(window_out(&w, d, x.dims[d], f.dims[d - 1], &out[d], &before, &after));
  c->out[0] = window_shape(&w, x.dims[0], out, x.dims[3] >= 0 ? x.dims[3] : f.dims[2]);
  return NULL;
}

static shoal_status like_filter_shape(struct shape_ctx *c) {
  c->out[0] = c->in[1];
  return NULL;
}

static shoal_out back(struct grad_ctx *c, const char *op) {
  struct build n = build_begin(c->g, op, NULL);
  build_in(&n, gin(c, 0));
  build_in(&n, gin(c, 1));
  build_in(&n, grad_dy(c, 0));
  window_copy_attrs(&n, c->node);
  return build_end_out(&n);
}

static shoal_status dilate_grad(struct grad_ctx *c) {
  grad_set(c, 0, back(c, "Dilation2DBackpropInput"));
  grad_set(c, 1, back(c, "Dilation2DBackpropFilter"));
  return NULL;
}

static const struct op_row rows[] = {
    {"Dilation2D", .in = "input: T, filter: T", .out = "output: T",
     .attrs = "T: realnumbertype; strides: list(int) >= 4; rates: list(int) >= 4; padding: {'SAME', 'VALID'}",
     .shape = dilate_shape, .grad = dilate_grad, .kernels = dilate_kernels},
    {"Dilation2DBackpropInput", .in = "input: T, filter: T, out_backprop: T", .out = "in_backprop: T",
     .attrs = "T: realnumbertype; strides: list(int) >= 4; rates: list(int) >= 4; padding: {'SAME', 'VALID'}",
     .shape = shape_unchanged, .kernels = dilate_kernels},
    {"Dilation2DBackpropFilter", .in = "input: T, filter: T, out_backprop: T", .out = "filter_backprop: T",
     .attrs = "T: realnumbertype; strides: list(int) >= 4; rates: list(int) >= 4; padding: {'SAME', 'VALID'}",
     .shape = like_filter_shape, .kernels = dilate_kernels},
};
OP_FAMILY(morphology, rows);
