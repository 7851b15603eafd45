/* _ShoalGelu and _ShoalGeluGrad: the activation of Transformers, x times sigmoid(u), u = x (slope + cube x^2), in one
 * pass each (made by the rewrite "fuse_layers"; train/layer_norm.c says why a sigmoid).
 *
 * The plain loop is one long chain of products and sums an element. For AVX-512 there is one with fused multiply-adds,
 * on two vectors at a time: 0.8 ns an element where the other took 1.4. Its last bits are its own. */
#include "ops/nn/gelu.h"

#include <math.h>

#include "base/cpu.h"
#include "ops/math/vector_math.h"
#include "ops/nn/nn_util.h"

#define SLOPE 1.5957691216057307
#define CUBE (SLOPE * 0.044715)

enum { GRAIN = 1 << 13 };

VECTOR_CLONES static void gelu_plain(const float *x, float *y, int64_t n) {
  LOOP_FREE for (int64_t i = 0; i < n; i++) {
    float v = x[i];
    y[i] = v * vm_sigmoid(v * ((float)SLOPE + (float)CUBE * v * v));
  }
}

/* g + x g (1 - g) du/dx */
VECTOR_CLONES static void grad_plain(const float *x, const float *dy, float *dx, int64_t n) {
  LOOP_FREE for (int64_t i = 0; i < n; i++) {
    float v = x[i], square = (float)CUBE * v * v;
    float g = vm_sigmoid(v * ((float)SLOPE + square));
    dx[i] = dy[i] * (g + v * (g * (1 - g)) * ((float)SLOPE + 3 * square));
  }
}

#if defined(__x86_64__)
#include <immintrin.h>

#define VECTOR static inline __attribute__((always_inline, target("avx512f"))) __m512
#define ALL(x) _mm512_set1_ps((float)(x))

/* As vm_sigmoid, but for NaN, which what it is multiplied with keeps. */
VECTOR sigmoid_avx512(__m512 x) {
  const __m512 shift = ALL(12582912);
  __m512 a = _mm512_min_ps(_mm512_max_ps(_mm512_sub_ps(_mm512_setzero_ps(), x), ALL(-88)), ALL(89));
  __m512 t = _mm512_fmadd_ps(a, ALL(1.44269504f), shift), k = _mm512_sub_ps(t, shift);
  __m512 r = _mm512_fmadd_ps(k, ALL(2.12194440e-4f), _mm512_fmadd_ps(k, ALL(-0.693359375f), a));
  __m512 r2 = _mm512_mul_ps(r, r);
  __m512 p01 = _mm512_fmadd_ps(ALL(0.166666672f), r, ALL(0.5f));
  __m512 p23 = _mm512_fmadd_ps(ALL(8.3332583e-3f), r, ALL(4.16662358e-2f));
  __m512 p45 = _mm512_fmadd_ps(ALL(1.9921489e-4f), r, ALL(1.39483728e-3f));
  __m512 p = _mm512_fmadd_ps(_mm512_fmadd_ps(_mm512_fmadd_ps(p45, r2, p23), r2, p01), r2, r);
  __m512i power = _mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(127 - 0x4b400000)), 23);
  __m512 e = _mm512_mul_ps(_mm512_add_ps(p, ALL(1)), _mm512_castsi512_ps(power));
  return _mm512_div_ps(ALL(1), _mm512_add_ps(ALL(1), e));
}

VECTOR gelu_vector(__m512 x) {
  __m512 slope = _mm512_fmadd_ps(_mm512_mul_ps(ALL(CUBE), x), x, ALL(SLOPE));
  return _mm512_mul_ps(x, sigmoid_avx512(_mm512_mul_ps(x, slope)));
}

VECTOR grad_vector(__m512 x, __m512 dy) {
  __m512 square = _mm512_mul_ps(_mm512_mul_ps(ALL(CUBE), x), x);
  __m512 g = sigmoid_avx512(_mm512_mul_ps(x, _mm512_add_ps(ALL(SLOPE), square)));
  __m512 slope = _mm512_mul_ps(x, _mm512_fmadd_ps(ALL(3), square, ALL(SLOPE)));
  return _mm512_mul_ps(dy, _mm512_fmadd_ps(_mm512_fnmadd_ps(g, g, g), slope, g));
}

enum { LANES = 16, AT_ONCE = 2 * LANES };

__attribute__((target("avx512f"))) static void gelu_avx512(const float *x, float *y, int64_t n) {
  int64_t i = 0;
  for (; i + AT_ONCE <= n; i += AT_ONCE) {
    __m512 a = gelu_vector(_mm512_loadu_ps(x + i)), b = gelu_vector(_mm512_loadu_ps(x + i + LANES));
    _mm512_storeu_ps(y + i, a);
    _mm512_storeu_ps(y + i + LANES, b);
  }
  for (; i < n; i += LANES) {
    __mmask16 m = (__mmask16)((1u << MIN(n - i, LANES)) - 1);
    _mm512_mask_storeu_ps(y + i, m, gelu_vector(_mm512_maskz_loadu_ps(m, x + i)));
  }
}

__attribute__((target("avx512f"))) static void grad_avx512(const float *x, const float *dy, float *dx, int64_t n) {
  int64_t i = 0;
  for (; i + AT_ONCE <= n; i += AT_ONCE) {
    __m512 a = grad_vector(_mm512_loadu_ps(x + i), _mm512_loadu_ps(dy + i));
    __m512 b = grad_vector(_mm512_loadu_ps(x + i + LANES), _mm512_loadu_ps(dy + i + LANES));
    _mm512_storeu_ps(dx + i, a);
    _mm512_storeu_ps(dx + i + LANES, b);
  }
  for (; i < n; i += LANES) {
    __mmask16 m = (__mmask16)((1u << MIN(n - i, LANES)) - 1);
    __m512 d = grad_vector(_mm512_maskz_loadu_ps(m, x + i), _mm512_maskz_loadu_ps(m, dy + i));
    _mm512_mask_storeu_ps(dx + i, m, d);
  }
}

void gelu_floats(const float *x, float *y, int64_t n) {
  if (cpu_has(CPU_AVX512)) gelu_avx512(x, y, n);
  else gelu_plain(x, y, n);
}

void gelu_grad_floats(const float *x, const float *dy, float *dx, int64_t n) {
  if (cpu_has(CPU_AVX512)) grad_avx512(x, dy, dx, n);
  else grad_plain(x, dy, dx, n);
}
#else
void gelu_floats(const float *x, float *y, int64_t n) { gelu_plain(x, y, n); }
void gelu_grad_floats(const float *x, const float *dy, float *dx, int64_t n) { grad_plain(x, dy, dx, n); }
#endif

static void gelu_float(const float *x, const float *unused, float *y, int64_t n, const void *arg) {
  gelu_floats(x, y, n);
}

static void gelu_double(const double *x, const double *unused, double *y, int64_t n, const void *arg) {
  for (int64_t i = 0; i < n; i++) y[i] = x[i] / (1 + exp(-x[i] * (SLOPE + CUBE * x[i] * x[i])));
}

static void grad_float(const float *x, const float *dy, float *dx, int64_t n, const void *arg) {
  gelu_grad_floats(x, dy, dx, n);
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
