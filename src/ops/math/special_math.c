/* Special functions: series where they converge fast, continued fractions or asymptotic series elsewhere.
 *
 * Tables of rational coefficients would be faster; these ops are rare, and what is here can be checked against the
 * definitions by eye. */
#include "ops/math/special_math.h"

#include <float.h>
#include <math.h>

enum { MAX_TERMS = 2000 };

double special_lgamma(double x) {
  int sign;
  return lgamma_r(x, &sign);
}

/* Bernoulli numbers B2, B4, ... */
static const double bernoulli[] = {1.0 / 6,       -1.0 / 30,       1.0 / 42,       -1.0 / 30,
                                   5.0 / 66,      -691.0 / 2730,   7.0 / 6,        -3617.0 / 510,
                                   43867.0 / 798, -174611.0 / 330, 854513.0 / 138, -236364091.0 / 2730};
enum { BERNOULLIS = sizeof bernoulli / sizeof *bernoulli };

double special_digamma(double x) {
  if (isnan(x)) return x;
  if (x <= 0) {
    if (x == floor(x)) return NAN;
    return special_digamma(1 - x) - M_PI / tan(M_PI * (x - rint(x))); /* near 0 all digits of x count */
  }
  if (isinf(x)) return x;
  double r = 0;
  for (; x < 12; x++) r -= 1 / x;
  double inv2 = 1 / (x * x), power = inv2;
  r += log(x) - 0.5 / x;
  for (int k = 0; k < 8; k++, power *= inv2) r -= bernoulli[k] / (2 * (k + 1)) * power;
  return r;
}

/* Euler-Maclaurin after the first terms. */
double special_zeta(double x, double q) {
  if (x == 1) return INFINITY;
  if (isnan(x) || isnan(q) || x < 1) return NAN;
  if (q <= 0) {
    if (q == floor(q)) return isinf(x) || fmod(x, 2) == 0 ? INFINITY : NAN;
    if (x != floor(x)) return NAN;
  }
  if (isinf(q) || (isinf(x) && q > 1)) return 0;
  double s = 0, a = q;
  int n = 0;
  for (; n < 10 || a < 10; n++, a++) {
    double t = pow(a, -x);
    s += t;
    if (fabs(t) < fabs(s) * DBL_EPSILON * 0.01 && a > 1) return s;
    if (n > 100000) return NAN; /* q so far below 0 that the sum is not worth its time */
  }
  double w = pow(a, -x);
  s += w * a / (x - 1) + 0.5 * w;
  double factor = x * w / a, factorial = 2;
  for (int k = 0; k < BERNOULLIS; k++) {
    double t = bernoulli[k] / factorial * factor;
    s += t;
    if (fabs(t) < fabs(s) * DBL_EPSILON) break;
    factor *= (x + 2 * k + 1) * (x + 2 * k + 2) / (a * a);
    factorial *= (2.0 * k + 3) * (2.0 * k + 4);
  }
  return s;
}

double special_polygamma(double n, double x) {
  if (n != floor(n) || n < 0) return NAN;
  if (n == 0) return special_digamma(x);
  double factorial = exp(special_lgamma(n + 1));
  return (fmod(n, 2) == 0 ? -1 : 1) * factorial * special_zeta(n + 1, x);
}

/* ---- inverses of the normal distribution: a start good to some digits, then Halley steps ---- */

static double normal_cdf(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }

double special_ndtri(double p) {
  if (isnan(p) || p < 0 || p > 1) return NAN;
  if (p == 0) return -INFINITY;
  if (p == 1) return INFINITY;
  if (p == 0.5) return 0;
  if (p > 0.5) { /* the lower tail keeps its digits; 1 - p is exact here */
    double x = special_ndtri(1 - p);
    return -x;
  }
  double t = sqrt(-2 * log(p));
  double x = -(t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))));
  for (int i = 0; i < 4; i++) {
    double e = normal_cdf(x) - p;
    double u = e * sqrt(2 * M_PI) * exp(0.5 * x * x);
    if (!isfinite(u)) break;
    double d = u / (1 + 0.5 * x * u);
    x -= d;
    if (fabs(d) < fabs(x) * 1e-16) break;
  }
  return x;
}

double special_erfinv(double y) {
  if (isnan(y) || y < -1 || y > 1) return NAN;
  if (y == 1 || y == -1) return y * INFINITY;
  double a = fabs(y);
  if (a < 0.5) { /* Newton on erf itself, which keeps the relative error near 0 */
    double x = y / M_2_SQRTPI;
    for (int i = 0; i < 8; i++) {
      double d = (erf(x) - y) / (M_2_SQRTPI * exp(-x * x));
      d /= 1 + x * d;
      x -= d;
      if (fabs(d) <= fabs(x) * 1e-16) break;
    }
    return x;
  }
  double x = -special_ndtri(0.5 * (1 - a)) * M_SQRT1_2;
  return y < 0 ? -x : x;
}

/* ---- incomplete gamma functions ---- */

/* x^a e^-x / gamma(a + 1), without overflow. */
static double gamma_scale(double a, double x) {
  double l = a * log(x) - x - special_lgamma(a + 1);
  return l < -745 ? 0 : exp(l);
}

static double igamma_series(double a, double x) {
  double scale = gamma_scale(a, x);
  if (scale == 0) return 0;
  double term = 1, sum = 1, r = a;
  for (int i = 0; i < MAX_TERMS * 10; i++) {
    r += 1;
    term *= x / r;
    sum += term;
    if (term <= sum * 1e-17) break;
  }
  return sum * scale;
}

/* Lentz's algorithm. */
static double igammac_fraction(double a, double x) {
  double scale = gamma_scale(a, x) * a;
  if (scale == 0) return 0;
  double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int i = 1; i < MAX_TERMS * 10; i++) {
    double an = -i * (i - a);
    b += 2;
    d = an * d + b;
    if (fabs(d) < 1e-300) d = 1e-300;
    c = b + an / c;
    if (fabs(c) < 1e-300) c = 1e-300;
    d = 1 / d;
    double delta = d * c;
    h *= delta;
    if (fabs(delta - 1) < 1e-16) break;
  }
  return scale * h;
}

double special_igamma(double a, double x) {
  if (x == 0) return 0; /* whatever a is: TensorFlow asks for it first */
  if (isnan(a) || isnan(x) || x < 0 || a <= 0) return NAN;
  if (isinf(a)) return 0;
  if (isinf(x)) return 1;
  return x > 1 && x > a ? 1 - igammac_fraction(a, x) : igamma_series(a, x);
}

double special_igammac(double a, double x) {
  if (isnan(a) || isnan(x) || x < 0 || a <= 0) return NAN;
  if (x == 0) return 1;
  if (isinf(a)) return isinf(x) ? 0 : 1;
  if (isinf(x)) return 0;
  return x < 1 || x < a ? 1 - igamma_series(a, x) : igammac_fraction(a, x);
}

/* d/da of the series x^a e^-x / gamma(a+1) * sum of x^n / ((a+1)...(a+n)), term by term. */
static double igamma_series_da(double a, double x) {
  double scale = gamma_scale(a, x);
  double term = 1, sum = 1, dterm = 0, dsum = 0, r = a;
  for (int i = 0; i < MAX_TERMS * 10; i++) {
    r += 1;
    double f = x / r;
    dterm = f * dterm - f * term / r;
    term *= f;
    sum += term;
    dsum += dterm;
    if (fabs(dterm) <= fabs(dsum) * 1e-16 && term <= sum * 1e-17) break;
  }
  double dlog = log(x) - special_digamma(a + 1);
  return scale * (dlog * sum + dsum);
}

/* The same of the continued fraction for 1 - P, carried through its recurrence (forward form, rescaled). */
static double igammac_fraction_da(double a, double x) {
  double scale = gamma_scale(a, x) * a; /* x^a e^-x / gamma(a) */
  if (scale == 0) return 0;
  double y = 1 - a, z = x + y + 1, n = 0;
  double p2 = 1, q2 = x, p1 = x + 1, q1 = z * x;
  double dp2 = 0, dq2 = 0, dp1 = 0, dq1 = -x;
  double value = p1 / q1, slope = (dp1 - value * dq1) / q1;
  for (int i = 0; i < MAX_TERMS; i++) {
    n += 1;
    y += 1;
    z += 2;
    double m = y * n;
    double p = p1 * z - p2 * m, q = q1 * z - q2 * m;
    double dp = dp1 * z - p1 - dp2 * m + p2 * n;
    double dq = dq1 * z - q1 - dq2 * m + q2 * n;
    p2 = p1, p1 = p, q2 = q1, q1 = q;
    dp2 = dp1, dp1 = dp, dq2 = dq1, dq1 = dq;
    if (q != 0) {
      double v = p / q, s = (dp - v * dq) / q;
      double change = fabs(s - slope);
      bool still = fabs(v - value) <= 1e-16 * fabs(v);
      value = v;
      slope = s;
      if (still && change <= 1e-15 * fabs(s)) break;
    }
    if (fabs(p) > 1e100) {
      p2 *= 1e-100, p1 *= 1e-100, q2 *= 1e-100, q1 *= 1e-100;
      dp2 *= 1e-100, dp1 *= 1e-100, dq2 *= 1e-100, dq1 *= 1e-100;
    }
  }
  return scale * (value * (log(x) - special_digamma(a)) + slope);
}

double special_igamma_grad_a(double a, double x) {
  if (x == 0) return 0;
  if (isnan(a) || isnan(x) || x < 0 || a <= 0) return NAN;
  if (isinf(a) || isinf(x)) return 0;
  return x > 1 && x > a ? -igammac_fraction_da(a, x) : igamma_series_da(a, x);
}

double special_random_gamma_grad(double alpha, double sample) {
  if (sample == 0) return 0;
  if (isnan(alpha) || isnan(sample) || sample < 0 || alpha <= 0) return NAN;
  if (isinf(alpha) || isinf(sample)) return 0;
  double density = exp((alpha - 1) * log(sample) - sample - special_lgamma(alpha));
  if (density == 0) return 0; /* so far out that nothing moves there; TensorFlow says the same */
  return -special_igamma_grad_a(alpha, sample) / density;
}

/* ---- incomplete beta function ---- */

static double beta_fraction(double a, double b, double x) {
  double qab = a + b, qap = a + 1, qam = a - 1;
  double c = 1, d = 1 - qab * x / qap;
  if (fabs(d) < 1e-300) d = 1e-300;
  d = 1 / d;
  double h = d;
  for (int m = 1; m < MAX_TERMS * 5; m++) {
    int m2 = 2 * m;
    double aa = m * (b - m) * x / ((qam + m2) * (a + m2));
    d = 1 + aa * d;
    if (fabs(d) < 1e-300) d = 1e-300;
    c = 1 + aa / c;
    if (fabs(c) < 1e-300) c = 1e-300;
    d = 1 / d;
    h *= d * c;
    aa = -(a + m) * (qab + m) * x / ((a + m2) * (qap + m2));
    d = 1 + aa * d;
    if (fabs(d) < 1e-300) d = 1e-300;
    c = 1 + aa / c;
    if (fabs(c) < 1e-300) c = 1e-300;
    d = 1 / d;
    double delta = d * c;
    h *= delta;
    if (fabs(delta - 1) < 1e-16) break;
  }
  return h;
}

double special_betainc(double a, double b, double x) {
  if (isnan(a) || isnan(b) || isnan(x) || a <= 0 || b <= 0 || x < 0 || x > 1) return NAN;
  if (x == 0 || x == 1) return x;
  double front = exp(special_lgamma(a + b) - special_lgamma(a) - special_lgamma(b) + a * log(x) + b * log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

/* ---- Bessel functions ---- */

double special_bessel_i(int order, double x, bool scaled) {
  if (isnan(x)) return x;
  double a = fabs(x), r;
  if (a < 20) {
    double h = a / 2, term = order ? h : 1, sum = term;
    for (int k = 1; k < MAX_TERMS; k++) {
      term *= h * h / (k * (double)(k + order));
      sum += term;
      if (term < sum * 1e-17) break;
    }
    r = scaled ? sum * exp(-a) : sum;
  } else {
    double mu = 4.0 * order * order, term = 1, sum = 1;
    for (int k = 1; k < 60; k++) {
      double f = (mu - (2.0 * k - 1) * (2.0 * k - 1)) / (8.0 * k * a);
      if (fabs(f) >= 1) break; /* the series is asymptotic: stop where it would grow */
      term *= -f;
      sum += term;
      if (fabs(term) < fabs(sum) * 1e-17) break;
    }
    r = sum / sqrt(2 * M_PI * a);
    if (!scaled) r *= exp(a);
    if (isinf(a)) r = scaled ? 0 : INFINITY;
  }
  return order && x < 0 ? -r : r;
}

/* Infinity below 0, too, where TensorFlow has it. */
double special_bessel_k(int order, double x, bool scaled) {
  if (isnan(x)) return NAN;
  if (x <= 0) return INFINITY;
  if (isinf(x)) return 0;
  if (x <= 2) {
    double h2 = x * x / 4, gamma = 0.57721566490153286061, r;
    if (order == 0) {
      double term = 1, harmonic = 0;
      r = -(log(x / 2) + gamma) * special_bessel_i(0, x, false);
      for (int k = 1; k < 40; k++) {
        term *= h2 / (k * (double)k);
        harmonic += 1.0 / k;
        r += term * harmonic;
      }
    } else {
      double term = x / 2, psi = 1 - 2 * gamma, sum = term * psi; /* psi(1) + psi(2) */
      for (int k = 1; k < 40; k++) {
        term *= h2 / (k * (double)(k + 1));
        psi += 1.0 / k + 1.0 / (k + 1);
        sum += term * psi;
      }
      r = 1 / x + log(x / 2) * special_bessel_i(1, x, false) - sum / 2;
    }
    return scaled ? r * exp(x) : r;
  }
  if (x > 50) { /* its asymptotic series, to the last digit from here on */
    double mu = 4.0 * order * order, term = 1, sum = 1;
    for (int k = 1; k < 30 && fabs(term) > 1e-17; k++) {
      term *= (mu - (2.0 * k - 1) * (2.0 * k - 1)) / (8.0 * k * x);
      sum += term;
    }
    return sqrt(M_PI / 2 / x) * sum * (scaled ? 1 : exp(-x));
  }
  /* Integral of exp(-x (cosh t - 1)) cosh(order t) over t >= 0: the trapezoidal rule converges exponentially. */
  double step = 1.0 / 64, sum = 0.5;
  for (int k = 1; k < 2000; k++) {
    double t = k * step, sh = sinh(t / 2), w = exp(-2 * x * sh * sh);
    double term = w * (order ? cosh(t) : 1);
    sum += term;
    if (term < sum * 1e-18) break;
  }
  double r = sum * step;
  return scaled ? r : r * exp(-x);
}

/* ---- integrals ---- */

/* Rybicki's sum: exp(-x^2) integral by an exponentially accurate sampling. */
double special_dawsn(double x) {
  double a = fabs(x);
  if (isnan(x)) return x;
  if (a < 0.2) {
    double x2 = x * x, term = x, sum = x;
    for (int k = 1; k < 30; k++) {
      term *= -2 * x2 / (2 * k + 1);
      sum += term;
      if (fabs(term) < fabs(sum) * 1e-17) break;
    }
    return sum;
  }
  if (a > 50) {
    double i2 = 1 / (2 * x * x);
    return (1 + i2 * (1 + 3 * i2 * (1 + 5 * i2 * (1 + 7 * i2)))) / (2 * x);
  }
  const double h = 0.2;
  int n0 = 2 * (int)(0.5 * a / h + 0.5);
  double xp = a - n0 * h, sum = 0;
  for (int i = -41; i <= 41; i += 2) {
    int n = n0 + i;
    double d = xp - i * h;
    sum += exp(-d * d) / n;
  }
  return copysign(sum / sqrt(M_PI), x);
}

double special_expint(double x) {
  if (isnan(x) || x < 0) return NAN;
  if (x == 0) return -INFINITY;
  if (isinf(x)) return x;
  if (x < 40) {
    double term = 1, sum = 0;
    for (int k = 1; k < MAX_TERMS; k++) {
      term *= x / k;
      sum += term / k;
      if (term / k < sum * 1e-17) break;
    }
    return 0.57721566490153286061 + log(x) + sum;
  }
  double term = 1, sum = 1;
  for (int k = 1; k < 100 && k < x; k++) {
    term *= k / x;
    sum += term;
    if (term < sum * 1e-17) break;
  }
  return exp(x) / x * sum;
}

/* The power series near 0; further out the complementary error function at (1 - i) x sqrt(pi) / 2 by its continued
 * fraction, of which both integrals are parts. */
double special_fresnel(double x, bool cosine) {
  double a = fabs(x), r;
  if (isnan(x)) return x;
  if (isinf(x)) return copysign(0.5, x);
  if (a < 1.8) {
    double t = M_PI_2 * a * a, t2 = t * t;
    double term = cosine ? a : a * t, sum = cosine ? a : term / 3;
    for (int k = 1; k < 60; k++) {
      int n = cosine ? 2 * k : 2 * k + 1;
      term *= -t2 / (n * (double)(n - 1));
      double add = term / (2 * n + 1);
      sum += add;
      if (fabs(add) < fabs(sum) * 1e-17) break;
    }
    r = sum;
  } else {
    /* erfc(z) for z = (1 - i) x sqrt(pi) / 2 by Lentz's continued fraction, in pairs of reals. */
    double pix2 = M_PI * a * a;
    double br = 1, bi = -pix2, dr, di, cr = 1e300, ci = 0, hr, hi;
    double norm = br * br + bi * bi;
    dr = br / norm, di = -bi / norm;
    hr = dr, hi = di;
    for (int k = 1, n = -1; k < MAX_TERMS; k++) {
      n += 2;
      double an = -n * (n + 1.0);
      br += 4;
      double er = br + an * dr, ei = bi + an * di;
      norm = er * er + ei * ei;
      dr = er / norm, di = -ei / norm;
      double cn = cr * cr + ci * ci;
      cr = br + an * cr / cn, ci = bi - an * (cn > 1e200 ? 0 : ci / cn);
      double delr = cr * dr - ci * di, deli = cr * di + ci * dr;
      double nr = hr * delr - hi * deli, ni = hr * deli + hi * delr;
      hr = nr, hi = ni;
      if (fabs(delr - 1) + fabs(deli) < 1e-16) break;
    }
    double tr = a * hr + a * hi, ti = a * hi - a * hr; /* times (x - i x) */
    double c = cos(0.5 * pix2), s = sin(0.5 * pix2);
    double ur = 1 - (c * tr - s * ti), ui = -(c * ti + s * tr);
    /* times (1 + i) / 2 */
    r = cosine ? 0.5 * (ur - ui) : 0.5 * (ur + ui);
  }
  return x < 0 ? -r : r;
}

double special_spence(double x) {
  if (isnan(x) || x < 0) return NAN;
  if (x == 0) return M_PI * M_PI / 6;
  if (x == 1) return 0;
  if (isinf(x)) return -INFINITY;
  if (x > 2) {
    double l = log(x);
    return -0.5 * l * l - special_spence(1 / x);
  }
  if (x < 0.5) return M_PI * M_PI / 6 - log(x) * log1p(-x) - special_spence(1 - x);
  /* Li2(z) for z = 1 - x in [-1, 1/2]: by u = -log(1 - z) and Bernoulli numbers. */
  double u = -log(x), u2 = u * u, sum = u - u2 / 4, power = u, factorial = 1;
  for (int k = 0; k < BERNOULLIS; k++) {
    power *= u2;
    factorial *= (2.0 * k + 2) * (2.0 * k + 3);
    sum += bernoulli[k] * power / factorial;
  }
  return sum;
}
