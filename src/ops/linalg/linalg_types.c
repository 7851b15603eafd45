/* The routines of linalg_one.inc for the four types that LAPACK has, and LAPACK's own declarations.
 *
 * OpenBLAS exports LAPACK by its Fortran names. Character arguments have hidden lengths at the end of the argument
 * list; leaving them out mostly works, and breaks the callee's stack where it makes a tail call: they are passed. */
#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ops/linalg/linalg.h"
#include "tensor/each_type.h"

#define STR size_t /* a hidden length */
typedef const char *CS;
typedef const int *CI;
#define DECLARE_COMMON(p, T)                                                                    \
  void p##potrf_(CS, CI, T *, CI, int *, STR);                                                  \
  void p##getrf_(CI, CI, T *, CI, int *, int *);                                                \
  void p##getri_(CI, T *, CI, CI, T *, CI, int *);                                              \
  void p##getrs_(CS, CI, CI, const T *, CI, CI, T *, CI, int *, STR);                           \
  void p##geqrf_(CI, CI, T *, CI, T *, T *, CI, int *);                                         \
  void p##trsm_(CS, CS, CS, CS, CI, CI, const T *, const T *, CI, T *, CI, STR, STR, STR, STR); \
  void p##gemm_(CS, CS, CI, CI, CI, const T *, const T *, CI, const T *, CI, const T *, T *, CI, STR, STR);
#define DECLARE_REAL(p, T)                                                                  \
  DECLARE_COMMON(p, T)                                                                      \
  void p##orgqr_(CI, CI, CI, T *, CI, const T *, T *, CI, int *);                           \
  void p##gesdd_(CS, CI, CI, T *, CI, T *, T *, CI, T *, CI, T *, CI, int *, int *, STR);   \
  void p##syevd_(CS, CS, CI, T *, CI, T *, T *, CI, int *, CI, int *, STR, STR);            \
  void p##geev_(CS, CS, CI, T *, CI, T *, T *, T *, CI, T *, CI, T *, CI, int *, STR, STR); \
  void p##gelsy_(CI, CI, CI, T *, CI, T *, CI, int *, const T *, int *, T *, CI, int *);
#define DECLARE_COMPLEX(p, T, R)                                                               \
  DECLARE_COMMON(p, T)                                                                         \
  void p##ungqr_(CI, CI, CI, T *, CI, const T *, T *, CI, int *);                              \
  void p##gesdd_(CS, CI, CI, T *, CI, R *, T *, CI, T *, CI, T *, CI, R *, int *, int *, STR); \
  void p##heevd_(CS, CS, CI, T *, CI, R *, T *, CI, R *, CI, int *, CI, int *, STR, STR);      \
  void p##geev_(CS, CS, CI, T *, CI, T *, T *, CI, T *, CI, T *, CI, R *, int *, STR, STR);    \
  void p##gelsy_(CI, CI, CI, T *, CI, T *, CI, int *, const R *, int *, T *, CI, R *, int *);  \
  void p##gees_(CS, CS, void *, CI, T *, CI, int *, T *, T *, CI, T *, CI, R *, int *, int *, STR, STR);
DECLARE_REAL(s, float)
DECLARE_REAL(d, double)
DECLARE_COMPLEX(c, c64, float)
DECLARE_COMPLEX(z, c128, double)

/* A square complex matrix by columns as U T U^H, T triangular: replaces a by T. Shared by square roots and logarithms
 * of all types, which are taken in double. */
static bool schur(int n, c128 *a, c128 *u) {
  int sdim, info, lwork = MAX(64 * n, 1);
  c128 *w = mem_zalloc((size_t)n, sizeof *w), *work = mem_zalloc((size_t)lwork, sizeof *work);
  double *rwork = mem_zalloc((size_t)n, sizeof *rwork);
  zgees_("V", "N", NULL, &n, a, &n, &sdim, w, u, &n, work, &lwork, rwork, NULL, &info, 1, 1);
  free(w);
  free(work);
  free(rwork);
  return info == 0;
}

/* c = op(a) op(b), square. */
static void multiply(int n, const char *ta, const char *tb, const c128 *a, const c128 *b, c128 *c) {
  const c128 one = 1, zero = 0;
  zgemm_(ta, tb, &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n, 1, 1);
}

/* The principal square root of a triangular matrix, column by column. */
static void triangular_root(int n, const c128 *t, c128 *r) {
  memset(r, 0, (size_t)n * (size_t)n * sizeof *r);
  for (int j = 0; j < n; j++) {
    r[j * n + j] = csqrt(t[j * n + j]);
    for (int i = j - 1; i >= 0; i--) {
      c128 s = t[j * n + i];
      for (int k = i + 1; k < j; k++) s -= r[k * n + i] * r[j * n + k];
      c128 d = r[i * n + i] + r[j * n + j];
      r[j * n + i] = s == 0 ? 0 : s / d;
    }
  }
}

/* u t u^H into a, through scratch. */
static void rotate_back(int n, const c128 *u, const c128 *t, c128 *scratch, c128 *a) {
  multiply(n, "N", "N", u, t, scratch);
  multiply(n, "N", "C", scratch, u, a);
}

#define TAG f32
#define SCALAR float
#define REAL float
#define IS_COMPLEX 0
#define LAPACK(f) s##f##_
#include "ops/linalg/linalg_one.inc"

#define TAG f64
#define SCALAR double
#define REAL double
#define IS_COMPLEX 0
#define LAPACK(f) d##f##_
#include "ops/linalg/linalg_one.inc"

#define TAG c64
#define SCALAR c64
#define REAL float
#define IS_COMPLEX 1
#define LAPACK(f) c##f##_
#include "ops/linalg/linalg_one.inc"

#define TAG c128
#define SCALAR c128
#define REAL double
#define IS_COMPLEX 1
#define LAPACK(f) z##f##_
#include "ops/linalg/linalg_one.inc"
