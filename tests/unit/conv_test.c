/* Convolutions and both gradients against plain loops, in every way their patches may lie: taps that touch and that do
 * not, one channel and many, what is cut at edges, groups, strides; and the same bits whatever the number of threads.
 */
#include "unit.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "math/conv.h"

static uint32_t state = 1;
static float draw(void) {
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / (1 << 23) - 1;
}

static float *drawn(int64_t n) {
  float *x = mem_alloc((size_t)n * sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = draw();
  return x;
}

static int64_t volume(const int64_t *d) { return d[0] * d[1] * d[2]; }

/* Calls fn(arg, x, w, y) with the indices of each product of the convolution. */
static void each_product(const struct conv *c, void (*fn)(double *const *, int64_t, int64_t, int64_t),
                         double *const *at) {
  int64_t ci = c->ci / c->groups, co = c->co / c->groups;
  for (int64_t p = 0; p < c->batch * volume(c->out); p++)
    for (int64_t t = 0; t < volume(c->filter); t++) {
      int64_t o[3] = {p / (c->out[1] * c->out[2]) % c->out[0], p / c->out[2] % c->out[1], p % c->out[2]};
      int64_t f[3] = {t / (c->filter[1] * c->filter[2]), t / c->filter[2] % c->filter[1], t % c->filter[2]};
      int64_t pixel = p / volume(c->out);
      bool inside = true;
      for (int d = 0; d < 3; d++) {
        int64_t x = o[d] * c->stride[d] + f[d] * c->dilation[d] - c->pad[d];
        inside = inside && x >= 0 && x < c->in[d];
        pixel = pixel * c->in[d] + x;
      }
      for (int64_t i = 0; inside && i < ci; i++)
        for (int64_t k = 0; k < c->co; k++)
          fn(at, pixel * c->ci + k / co * ci + i, (t * ci + i) * c->co + k, p * c->co + k);
    }
}

enum { X, W, Y, SUM };
static void forward(double *const *at, int64_t x, int64_t w, int64_t y) { at[SUM][y] += at[X][x] * at[W][w]; }
static void backward_input(double *const *at, int64_t x, int64_t w, int64_t y) { at[SUM][x] += at[Y][y] * at[W][w]; }
static void backward_filter(double *const *at, int64_t x, int64_t w, int64_t y) { at[SUM][w] += at[Y][y] * at[X][x]; }

static double *widened(const float *x, int64_t n) {
  double *to = mem_alloc((size_t)n * sizeof *to);
  for (int64_t i = 0; i < n; i++) to[i] = (double)x[i];
  return to;
}

static void compare(const char *what, const float *got, const float *again, const double *want, int64_t n) {
  assert_memory_equal(got, again, (size_t)n * sizeof *got);
  for (int64_t i = 0; i < n; i++)
    if (!(fabs((double)got[i] - want[i]) <= 2e-4 * (1 + fabs(want[i]))))
      fail_msg("%s: element %ld is %g instead of %g", what, (long)i, (double)got[i], want[i]);
}

static void check(struct pool *pool, const struct conv *c) {
  int64_t n[3] = {c->batch * volume(c->in) * c->ci, volume(c->filter) * c->ci / c->groups * c->co,
                  c->batch * volume(c->out) * c->co};
  float *x = drawn(n[X]), *w = drawn(n[W]), *y = drawn(n[Y]);
  double *at[4] = {widened(x, n[X]), widened(w, n[W]), widened(y, n[Y])};
  for (int which = 0; which < 3; which++) {
    int64_t size = n[which == 0 ? Y : which == 1 ? X : W];
    float *got[2] = {drawn(size), drawn(size)};
    at[SUM] = mem_zalloc((size_t)size, sizeof(double));
    for (int threads = 0; threads < 2; threads++) {
      struct pool *by = threads ? pool : NULL;
      if (which == 0) ASSERT_OK(conv_forward(by, c, SHOAL_FLOAT32, x, w, got[threads], NULL));
      if (which == 1) ASSERT_OK(conv_backward_input(by, c, SHOAL_FLOAT32, w, y, got[threads]));
      if (which == 2) ASSERT_OK(conv_backward_filter(by, c, SHOAL_FLOAT32, x, y, got[threads]));
    }
    each_product(c, which == 0 ? forward : which == 1 ? backward_input : backward_filter, at);
    compare(which == 0 ? "forward" : which == 1 ? "input gradient" : "filter gradient", got[0], got[1], at[SUM], size);
    free(at[SUM]);
    free(got[0]);
    free(got[1]);
  }
  for (int i = 0; i < 3; i++) free(at[i]);
  free(x);
  free(w);
  free(y);
}

/* Height, width, filter, stride, dilation and padding are the same in both dimensions. */
static struct conv square(int64_t batch, int64_t in, int64_t ci, int64_t co, int64_t filter, int64_t stride,
                          int64_t dilation, int64_t pad, int64_t groups) {
  int64_t out = (in + 2 * pad - (filter - 1) * dilation - 1) / stride + 1;
  return (struct conv){.batch = batch,
                       .in = {1, in, in},
                       .out = {1, out, out},
                       .filter = {1, filter, filter},
                       .stride = {1, stride, stride},
                       .dilation = {1, dilation, dilation},
                       .pad = {0, pad, pad},
                       .ci = ci,
                       .co = co,
                       .groups = groups};
}

static void convolutions(void **unused) {
  const struct conv cases[] = {
      square(3, 9, 1, 7, 5, 1, 1, 2, 1),    /* one channel */
      square(2, 11, 32, 16, 5, 1, 1, 2, 1), /* taps that touch; their lanes are whole tiles */
      square(2, 7, 16, 64, 3, 1, 1, 1, 1),  square(2, 7, 64, 5, 3, 1, 1, 0, 1),
      square(2, 9, 12, 8, 3, 1, 2, 2, 1),                                        /* dilated: taps apart */
      square(2, 9, 32, 32, 3, 2, 1, 1, 1),                                       /* phases */
      square(2, 8, 8, 12, 3, 1, 1, 1, 4),   square(2, 6, 64, 64, 3, 1, 1, 1, 2), /* pixels wider than what is taken */
      square(1, 4, 512, 3, 3, 1, 1, 1, 1),                                       /* pixels a power of two apart */
      square(1, 5, 67, 9, 3, 1, 1, 1, 1),                                        /* runs without a good divisor */
      square(2, 6, 20, 33, 1, 1, 1, 0, 1),  square(1, 3, 4, 4, 5, 1, 1, 2, 1),   /* a product; more filter than image */
      square(30, 17, 1, 3, 3, 1, 1, 1, 1),                                       /* many positions: k is cut */
  };
  struct pool *pool = pool_new(3, "conv");
  for (size_t i = 0; i < COUNT_OF(cases); i++) check(pool, &cases[i]);
  struct conv deep = square(1, 5, 6, 10, 3, 1, 1, 1, 1);
  deep.in[0] = deep.out[0] = 4;
  deep.filter[0] = 3;
  deep.pad[0] = 1;
  check(pool, &deep);
  pool_free(pool);
}

RUN_TESTS(cmocka_unit_test(convolutions))
