/* One-dimensional discrete Fourier transforms of any length, in double. */
#ifndef OPS_SIGNAL_FFT_PLAN_H
#define OPS_SIGNAL_FFT_PLAN_H

#include "base/status.h"
#include "tensor/buffer.h"
#include "tensor/dtype.h"

struct fft_plan {
  int64_t n;
  int n_factors;
  int factor[64]; /* of n, or of m where n has a large prime factor */
  int64_t m;      /* 0, or the power of two that Bluestein's convolution runs in */
  struct buffer *tables;
  const c128 *twiddle;   /* e^(-2 pi i k / n) (or / m) */
  const c128 *chirp;     /* [n] e^(-pi i k^2 / n) */
  const c128 *chirp_fft; /* [m] the transform of its conjugate, wrapped round */
};

/* n >= 1. Shared by threads once made. */
shoal_status fft_plan_init(struct fft_plan *p, int64_t n);
void fft_plan_release(struct fft_plan *p);
/* Elements of scratch that a run needs. */
int64_t fft_scratch(const struct fft_plan *p);
/* x in place, n contiguous elements; inverse: the other sign, without the factor 1/n. */
void fft_run(const struct fft_plan *p, c128 *x, bool inverse, c128 *scratch);

#endif
