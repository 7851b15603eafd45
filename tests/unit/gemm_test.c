/* Matrix products of every type against a plain triple loop: odd sizes, transposes, strides, epilogues; and the same
 * bits whatever the number of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "math/gemm_kernel.h"
#include "math/narrow.h"

static uint32_t state = 1;
static double draw(void) {
  state = state * 1664525u + 1013904223u;
  return (double)(state >> 8) / (1 << 23) - 1;
}

static void put(shoal_dtype t, void *at, int64_t i, double v) {
  if (t == SHOAL_FLOAT32) ((float *)at)[i] = (float)v;
  else if (t == SHOAL_FLOAT64) ((double *)at)[i] = v;
  else if (t == SHOAL_BFLOAT16) ((bf16 *)at)[i] = bf16_from_float((float)v);
  else if (t == SHOAL_FLOAT16) ((f16 *)at)[i] = f16_from_float((float)v);
  else ((int32_t *)at)[i] = (int32_t)(v * 100);
}
static double get(shoal_dtype t, const void *at, int64_t i) {
  if (t == SHOAL_FLOAT32) return (double)((const float *)at)[i];
  if (t == SHOAL_FLOAT64) return ((const double *)at)[i];
  if (t == SHOAL_BFLOAT16) return (double)bf16_to_float(((const bf16 *)at)[i]);
  if (t == SHOAL_FLOAT16) return (double)f16_to_float(((const f16 *)at)[i]);
  return ((const int32_t *)at)[i];
}

/* A last step that knows where it is: it comes to each element once. */
struct visits {
  int64_t columns;
  uint8_t *seen;
};
static double extra(int64_t place) { return (double)(place % 7); }
static void visit(const void *arg, float *sums, int64_t row, int64_t j0, int64_t n) {
  const struct visits *v = arg;
  for (int64_t j = 0, at = row * v->columns + j0; j < n; j++, at++) {
    sums[j] += (float)extra(at);
    v->seen[at]++;
  }
}

static void check(struct pool *pool, shoal_dtype type, int64_t m, int64_t n, int64_t k, bool ta, bool tb, bool bias) {
  size_t na = (size_t)(m * k), nb = (size_t)(k * n), nc = (size_t)(m * n);
  void *a = malloc(na * 8 + 8), *b = malloc(nb * 8 + 8), *c = malloc(nc * 8 + 8), *again = malloc(nc * 8 + 8);
  double *add = malloc((size_t)n * 8 + 8);
  for (size_t i = 0; i < na; i++) put(type, a, (int64_t)i, draw());
  for (size_t i = 0; i < nb; i++) put(type, b, (int64_t)i, draw());
  float *add_f = malloc((size_t)n * 4 + 4);
  for (int64_t j = 0; j < n; j++) add_f[j] = (float)(add[j] = (double)(float)draw());
  bool last = bias && type != SHOAL_FLOAT64;
  struct visits visits = {.columns = n, .seen = calloc(nc + 1, 1)};
  struct gemm_epilogue e = {.bias = type == SHOAL_FLOAT64 ? (void *)add : add_f, .act = GEMM_RELU};
  if (last) {
    e.last = visit;
    e.arg = &visits;
  }
  struct gemm g = {.m = m, .n = n, .k = k, .c = c, .type = type, .ldc = n, .epilogue = bias ? &e : NULL};
  g.a = (struct gemm_operand){.data = a, .type = type, .ld = ta ? m : k, .trans = ta};
  g.b = (struct gemm_operand){.data = b, .type = type, .ld = tb ? k : n, .trans = tb};
  assert_null(gemm_run(NULL, &g));
  g.c = again;
  assert_null(gemm_run(pool, &g));
  size_t es = dtype_size(type);
  assert_memory_equal(c, again, nc * es);
  double tol = type == SHOAL_FLOAT64 ? 1e-12 : type == SHOAL_FLOAT32 ? 1e-5 : type == SHOAL_FLOAT16 ? 1e-3 : 8e-3;
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      double want = 0, size = 1;
      for (int64_t p = 0; p < k; p++) {
        double v = get(type, a, ta ? p * m + i : i * k + p) * get(type, b, tb ? j * k + p : p * n + j);
        want += v;
        size += fabs(v);
      }
      if (bias) want = fmax(want + add[j], 0);
      if (last) {
        want += extra(i * n + j);
        size += extra(i * n + j);
      }
      assert_int_equal(visits.seen[i * n + j], last ? 2 : 0);
      if (fabs(get(type, c, i * n + j) - want) > tol * size)
        fail_msg("%s %ldx%ldx%ld: (%ld,%ld) is %g instead of %g", gemm_kernel_name(type, m, n), (long)m, (long)n,
                 (long)k, (long)i, (long)j, get(type, c, i * n + j), want);
    }
  free(a);
  free(b);
  free(c);
  free(again);
  free(add);
  free(add_f);
  free(visits.seen);
}

static void products(void **unused) {
  struct pool *pool = pool_new(3, "gemm");
  const shoal_dtype types[] = {SHOAL_FLOAT32, SHOAL_FLOAT64, SHOAL_BFLOAT16, SHOAL_FLOAT16, SHOAL_INT32};
  const int64_t sizes[][3] = {{1, 1, 1},     {1, 40, 30},    {40, 1, 30},    {3, 5, 7},    {8, 8, 8},     {33, 65, 17},
                              {37, 12, 129}, {100, 10, 784}, {130, 100, 33}, {5, 9, 9000}, {64, 400, 70}, {2, 3, 0},
                              {64, 40, 96},  {320, 70, 64},  {32, 500, 32},  {32, 9, 1120}};
  for (size_t t = 0; t < 5; t++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
      for (int f = 0; f < 4; f++)
        check(pool, types[t], sizes[s][0], sizes[s][1], sizes[s][2], f & 1, f & 2,
              types[t] != SHOAL_INT32 && f % 3 == 0);
  pool_free(pool);
}

/* Several blocks of rows and of columns, and of k where sums of half precision go on in another pass. */
static void blocks_both_ways(void **unused) {
  struct pool *pool = pool_new(3, "gemm");
  const int64_t sizes[][3] = {{330, 800, 33}, {130, 420, 1100}, {70, 900, 64}, {600, 33, 40}};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int f = 0; f < 4; f++)
      check(pool, SHOAL_BFLOAT16, sizes[s][0], sizes[s][1], sizes[s][2], f & 1, f & 2, f % 3 == 0);
  pool_free(pool);
}

/* All upper halves, with lower ones on every side of the middle: NaN, infinities and what is subnormal included. */
static void rounding(void **unused) {
  enum { N = 65536 };
  static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  float *x = malloc(N * sizeof *x);
  bf16 *y = malloc(N * sizeof *y);
  for (size_t k = 0; k < sizeof low / sizeof *low; k++) {
    for (uint32_t i = 0; i < N; i++) {
      uint32_t bits = i << 16 | low[k];
      memcpy(x + i, &bits, sizeof bits);
    }
    for (int64_t from = 0, n = N; from < 8; from++, n = N - 3 * from) { /* also where vectors do not fit */
      memset(y, 0, N * sizeof *y);
      bf16_from_floats(x + from, y + from, n - from);
      for (int64_t i = from; i < n; i++) assert_int_equal(y[i].bits, bf16_from_float(x[i]).bits);
    }
  }
  free(x);
  free(y);
}

static void nothing_to_do(void **unused) {
  struct gemm g = {.m = 0, .n = 5, .k = 3, .type = SHOAL_FLOAT32, .ldc = 5};
  g.a.type = g.b.type = SHOAL_FLOAT32;
  assert_null(gemm_run(NULL, &g));
}

/* Says what is tested; tools/kernels.sh reads it. A kernel that this machine has and that failed its proof is a defect,
 * which products() would not see: another took its place. */
static void kernels(void **unused) {
  for (int f = 0; f < CPU_FEATURES; f++)
    if (cpu_has(f)) printf("# has %s\n", cpu_feature_name(f));
  const struct gemm_kernel *const tables[] = {
#if defined(__aarch64__)
    gemm_kernels_neon,
#elif defined(__x86_64__)
    gemm_kernels_x86,
#endif
    gemm_kernels_generic
  };
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
    for (const struct gemm_kernel *k = tables[t]; k->name; k++)
      if (!k->usable || k->usable()) {
        printf("# kernel %s\n", k->name);
        assert_true(gemm_kernel_trusted(k));
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(kernels), cmocka_unit_test(products),
                                     cmocka_unit_test(blocks_both_ways), cmocka_unit_test(rounding),
                                     cmocka_unit_test(nothing_to_do)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
