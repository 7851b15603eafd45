/* Transforms of any length. n is cut by its prime factors (decimation in time, recursion as deep as there are
 * factors); a length with a prime factor above MAX_PRIME becomes a convolution of a power of two (Bluestein), so that
 * no length costs n squared. Everything is computed in double: a transform of floats then has the error of its
 * input alone. */
#include "ops/signal/fft_plan.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_PRIME = 31 };

static inline c128 mul(c128 a, c128 b) {
  double ar = __real__ a, ai = __imag__ a, br = __real__ b, bi = __imag__ b;
  c128 r;
  __real__ r = ar * br - ai * bi;
  __imag__ r = ar * bi + ai * br;
  return r;
}
static inline c128 conj_of(c128 a) {
  __imag__ a = -__imag__ a;
  return a;
}
/* e^(-pi i num / den) */
static c128 unit(int64_t num, int64_t den) {
  double angle = -M_PI * (double)(num % (2 * den)) / (double)den;
  c128 r;
  __real__ r = cos(angle);
  __imag__ r = sin(angle);
  return r;
}

static int factorize(int64_t n, int *factor) {
  int count = 0;
  while (n % 4 == 0) factor[count++] = 4, n /= 4;
  for (int p = 2; p <= MAX_PRIME && n > 1; p++)
    while (n % p == 0) factor[count++] = p, n /= p;
  return n == 1 ? count : -1;
}

/* out[0..n) from in[0], in[stride], ...; `step` is how far apart this level's roots stand in the table of total. */
static void transform(const c128 *in, int64_t stride, c128 *out, int64_t n, const int *factor, const c128 *twiddle,
                      int64_t total, int64_t step) {
  if (n == 1) {
    out[0] = in[0];
    return;
  }
  int p = *factor;
  int64_t m = n / p;
  for (int q = 0; q < p; q++)
    transform(in + q * stride, stride * p, out + q * m, m, factor + 1, twiddle, total, step * p);
  c128 t[MAX_PRIME];
  for (int64_t u = 0; u < m; u++) {
    for (int q = 0; q < p; q++) t[q] = q ? mul(out[u + q * m], twiddle[u * q * step]) : out[u];
    if (p == 2) {
      out[u] = t[0] + t[1];
      out[u + m] = t[0] - t[1];
    } else if (p == 4) {
      c128 a = t[0] + t[2], b = t[0] - t[2], c = t[1] + t[3], d = t[1] - t[3], r;
      __real__ r = __imag__ d; /* -i d */
      __imag__ r = -__real__ d;
      out[u] = a + c;
      out[u + m] = b + r;
      out[u + 2 * m] = a - c;
      out[u + 3 * m] = b - r;
    } else {
      for (int k = 0; k < p; k++) {
        c128 sum = t[0];
        int64_t at = 0, jump = m * step * k; /* k q m steps of the table, modulo its length */
        for (int q = 1; q < p; q++) {
          at = (at + jump) % total;
          sum += mul(t[q], twiddle[at]);
        }
        out[u + k * m] = sum;
      }
    }
  }
}

shoal_status fft_plan_init(struct fft_plan *p, int64_t n) {
  *p = (struct fft_plan){.n = n};
  p->n_factors = factorize(n, p->factor);
  if (p->n_factors < 0) {
    for (p->m = 1; p->m < 2 * n - 1; p->m *= 2) continue;
    p->n_factors = factorize(p->m, p->factor);
  }
  int64_t length = p->m ? p->m : n, total = length + (p->m ? n + 2 * p->m : 0);
  TRY(buffer_new((size_t)total * sizeof(c128), &p->tables));
  c128 *twiddle = p->tables->data, *chirp = twiddle + length, *wrapped = chirp + n;
  for (int64_t k = 0; k < length; k++) twiddle[k] = unit(2 * k, length);
  p->twiddle = twiddle;
  if (!p->m) return NULL;
  for (int64_t k = 0; k < n; k++) /* k^2 modulo 2n, which keeps the angle exact */
    chirp[k] = unit((int64_t)((unsigned __int128)k * (unsigned __int128)k % (unsigned __int128)(2 * n)), n);
  c128 *plain = wrapped + p->m;
  memset(plain, 0, (size_t)p->m * sizeof *plain);
  for (int64_t k = 0; k < n; k++) plain[k] = plain[(p->m - k) % p->m] = conj_of(chirp[k]);
  transform(plain, 1, wrapped, p->m, p->factor, twiddle, p->m, 1);
  p->chirp = chirp;
  p->chirp_fft = wrapped;
  return NULL;
}

void fft_plan_release(struct fft_plan *p) { buffer_unref(p->tables); }

int64_t fft_scratch(const struct fft_plan *p) { return p->m ? 2 * p->m : p->n; }

static void convolve(const struct fft_plan *p, c128 *x, c128 *scratch) {
  c128 *a = scratch, *b = scratch + p->m;
  memset(a, 0, (size_t)p->m * sizeof *a);
  for (int64_t k = 0; k < p->n; k++) a[k] = mul(x[k], p->chirp[k]);
  transform(a, 1, b, p->m, p->factor, p->twiddle, p->m, 1);
  for (int64_t k = 0; k < p->m; k++) b[k] = conj_of(mul(b[k], p->chirp_fft[k])); /* conjugates make it an inverse */
  transform(b, 1, a, p->m, p->factor, p->twiddle, p->m, 1);
  for (int64_t k = 0; k < p->n; k++) x[k] = mul(conj_of(a[k]), p->chirp[k]) / (double)p->m;
}

void fft_run(const struct fft_plan *p, c128 *x, bool inverse, c128 *scratch) {
  if (inverse)
    for (int64_t k = 0; k < p->n; k++) x[k] = conj_of(x[k]);
  if (p->m) {
    convolve(p, x, scratch);
  } else {
    transform(x, 1, scratch, p->n, p->factor, p->twiddle, p->n, 1);
    memcpy(x, scratch, (size_t)p->n * sizeof *x);
  }
  if (inverse)
    for (int64_t k = 0; k < p->n; k++) x[k] = conj_of(x[k]);
}
