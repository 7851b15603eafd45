/* Special functions in double that the C library lacks. Relative error about 1e-13 away from zeros. */
#ifndef OPS_MATH_SPECIAL_MATH_H
#define OPS_MATH_SPECIAL_MATH_H

#include <stdbool.h>

double special_lgamma(double x);         /* log |gamma(x)|; without the library's global sign */
double special_digamma(double x);        /* NaN at 0, -1, ... */
double special_zeta(double x, double q); /* Hurwitz: sum over k >= 0 of (q + k)^-x */
double special_polygamma(double n, double x);
double special_erfinv(double x);
double special_ndtri(double p); /* the normal distribution's quantile */

double special_igamma(double a, double x);  /* regularized lower incomplete gamma function */
double special_igammac(double a, double x); /* 1 minus it */
double special_igamma_grad_a(double a, double x);
/* d sample / d alpha of a gamma(alpha, 1) variate: -(dP/da) / (dP/dx). */
double special_random_gamma_grad(double alpha, double sample);
double special_betainc(double a, double b, double x); /* regularized incomplete beta function */

/* Modified Bessel functions of order 0 or 1; scaled: times e^-|x| (I) or e^x (K). */
double special_bessel_i(int order, double x, bool scaled);
double special_bessel_k(int order, double x, bool scaled);
double special_dawsn(double x);
double special_expint(double x); /* Ei */
double special_fresnel(double x, bool cosine);
double special_spence(double x); /* dilogarithm: integral of -log(t)/(t-1) from 1 to x */

#endif
