/* _ShoalGelu and _ShoalGeluGrad: the activation of Transformers, x times sigmoid(u), u = x (slope + cube x^2), in one
 * pass each (made by the rewrite "fuse_layers"; train/layer_norm.c says why a sigmoid). */
#include <math.h>

#include "ops/math/vector_math.h"
#include "ops/nn/nn_util.h"

#define SLOPE 1.5957691216057307
#define CUBE (SLOPE * 0.044715)

enum { GRAIN = 1 << 13 };

VECTOR_CLONES static void gelu_float(const float *x, const float *unused, float *y, int64_t n, const void *arg) {
  LOOP_FREE for (int64_t i = 0; i < n; i++) {
    float v = x[i];
    y[i] = v * vm_sigmoid(v * ((float)SLOPE + (float)CUBE * v * v));
  }
}

static void gelu_double(const double *x, const double *unused, double *y, int64_t n, const void *arg) {
  for (int64_t i = 0; i < n; i++) y[i] = x[i] / (1 + exp(-x[i] * (SLOPE + CUBE * x[i] * x[i])));
}

/* g + x g (1 - g) du/dx */
VECTOR_CLONES static void grad_float(const float *x, const float *dy, float *dx, int64_t n, const void *arg) {
  LOOP_FREE for (int64_t i = 0; i < n; i++) {
    float v = x[i], square = (float)CUBE * v * v;
    float g = vm_sigmoid(v * ((float)SLOPE + square));
    dx[i] = dy[i] * (g + v * (g * (1 - g)) * ((float)SLOPE + 3 * square));
  }
}

static void grad_double(const double *x, const double *dy, double *dx, int64_t n, const void *arg) {
  for (int64_t i = 0; i < n; i++) {
    double v = x[i], square = CUBE * v * v, g = 1 / (1 + exp(-v * (SLOPE + square)));
    dx[i] = dy[i] * (g + v * (g * (1 - g)) * (SLOPE + 3 * square));
  }
}

static shoal_status gelu_run(struct kernel_ctx *ctx) {
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  nn_map(ctx_pool(ctx), ctx_in_type(ctx, 0), ctx_in(ctx, 0)->data, NULL, y->data, y->n, GRAIN, gelu_float, gelu_double,
         NULL);
  return NULL;
}

static shoal_status grad_run(struct kernel_ctx *ctx) {
  struct tensor *dx;
  TRY(nn_check_same(ctx, 0, 1));
  TRY(ctx_out_like(ctx, 0, 1, &dx));
  nn_map(ctx_pool(ctx), ctx_in_type(ctx, 0), ctx_in(ctx, 0)->data, ctx_in(ctx, 1)->data, dx->data, dx->n, GRAIN,
         grad_float, grad_double, NULL);
  return NULL;
}

#define KERNELS(run_)                                                             \
  (const struct kernel_def[]) {                                                   \
    {.device = "CPU", .type_attr = "T", .types = DT_FLOATING, .run = run_}, { 0 } \
  }

static const struct op_row rows[] = {
    {"_ShoalGelu", .flags = OP_OWN, .in = "x: T", .out = "y: T", .attrs = "T: {half, bfloat16, float, double}",
     .shape = shape_unchanged, .kernels = KERNELS(gelu_run)},
    {"_ShoalGeluGrad", .flags = OP_OWN, .in = "x: T, dy: T", .out = "dx: T",
     .attrs = "T: {half, bfloat16, float, double}", .shape = shape_unchanged, .kernels = KERNELS(grad_run)},
};
OP_FAMILY(gelu, rows);
