/* Elementary functions of float that compilers turn into vector code.
 *
 * Every function is straight-line: no branches, no table, no call, only selects that become masks. A plain loop over
 * one of them is vectorised for whatever the machine has. Each is within 2.5 units in the last place of the true value
 * over its whole range, subnormals, infinities and NaN included; tests/unit/vector_math_test.c holds them to that.
 * The polynomials are minimax fits made for these intervals. */
#ifndef OPS_MATH_VECTOR_MATH_H
#define OPS_MATH_VECTOR_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/vector.h"

#define VM static inline __attribute__((always_inline))

/* a * b + c: in one rounding where that is an instruction of every machine of the kind. */
VM float vm_fma(float a, float b, float c) {
#if defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

VM uint32_t vm_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  return u;
}
VM float vm_float(uint32_t u) {
  float x;
  memcpy(&x, &u, 4);
  return x;
}
VM float vm_copysign(float magnitude, float sign) {
  return vm_float((vm_bits(magnitude) & 0x7fffffffu) | (vm_bits(sign) & 0x80000000u));
}

/* Splits x into k * ln 2 + r, |r| <= ln 2 / 2; gives r and, in *t, 1.5 * 2^23 + k, whose low bits hold k. */
VM float vm_reduce_ln2(float x, float *t) {
  *t = x * 1.44269504f + 12582912.0f;
  float k = *t - 12582912.0f;
  float r = vm_fma(k, -0.693359375f, x);
  return vm_fma(k, 2.12194440e-4f, r);
}
VM int32_t vm_reduced_k(float t) { return (int32_t)vm_bits(t) - 0x4b400000; }

/* x held between low and high in two instructions. NaN becomes a bound: callers put it back with vm_keep_nan, which is
 * cheaper than selects that let it through. */
VM float vm_clamp(float x, float low, float high) {
#if defined(__aarch64__)
  return __builtin_fmaxf(__builtin_fminf(x, high), low);
#else
  float c = x < high ? x : high;
  return c > low ? c : low;
#endif
}
VM float vm_keep_nan(float x, float y) { return x != x ? x : y; }

/* e^r - 1 for |r| <= ln 2 / 2; in pairs, so that the chain of dependent steps is short. */
VM float vm_expm1_poly(float r) {
  float r2 = r * r;
  float p01 = vm_fma(0.166666672f, r, 0.5f), p23 = vm_fma(8.3332583e-3f, r, 4.16662358e-2f);
  float p45 = vm_fma(1.9921489e-4f, r, 1.39483728e-3f);
  return vm_fma(vm_fma(vm_fma(p45, r2, p23), r2, p01), r2, r);
}
/* 2^k for -127 (which gives 0) <= k <= 128 (infinity). */
VM float vm_power_of_2(int32_t k) { return vm_float((uint32_t)(k + 127) << 23); }

VM float vm_exp(float x) {
  float t, r = vm_reduce_ln2(vm_clamp(x, -105.0f, 89.0f), &t);
  int32_t k = vm_reduced_k(t), half = k >> 1; /* two factors: 2^k itself may be subnormal or too large */
  float y = vm_expm1_poly(r) + 1.0f;
  return vm_keep_nan(x, y * vm_power_of_2(half) * vm_power_of_2(k - half));
}
/* The same where neither x nor the result leaves the ordinary: -87 < x < 88. */
VM float vm_exp_moderate(float x) {
  float t, r = vm_reduce_ln2(x, &t);
  return (vm_expm1_poly(r) + 1.0f) * vm_power_of_2(vm_reduced_k(t));
}

VM float vm_expm1(float x) {
  float t, r = vm_reduce_ln2(vm_clamp(x, -40.0f, 89.0f), &t);
  float s = vm_power_of_2(vm_reduced_k(t) - 1);
  return vm_keep_nan(x, 2.0f * vm_fma(s, vm_expm1_poly(r), s - 0.5f));
}

VM float vm_log(float x) {
  uint32_t bits = vm_bits(x);
  float scaled = x * 8388608.0f;
  uint32_t u = bits < 0x00800000u ? vm_bits(scaled) : bits; /* subnormal */
  int32_t bias = bits < 0x00800000u ? 23 : 0;
  /* Move the cut between exponents to sqrt(1/2), so that m is near 1. */
  u -= 0x3f3504f3u;
  float e = (float)(((int32_t)u >> 23) - bias);
  float f = vm_float((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  float z = f * f;
  float p01 = vm_fma(-0.250000089f, f, 0.333333135f), p23 = vm_fma(-0.166679963f, f, 0.200021192f);
  float p45 = vm_fma(-0.124055892f, f, 0.142195523f), p67 = vm_fma(-0.116756521f, f, 0.11888162f);
  float p = vm_fma(vm_fma(vm_fma(vm_fma(6.7466408e-2f, z, p67), z, p45), z, p23), z, p01);
  p = p * f * z;
  p = vm_fma(e, -2.12194440e-4f, p);
  p = vm_fma(z, -0.5f, p);
  float y = vm_fma(e, 0.693359375f, f + p);
  float special = x > 0.0f ? x : NAN; /* infinity, or what has no logarithm */
  special = x == 0.0f ? -INFINITY : special;
  return bits - 1u < 0x7f7fffffu ? y : special;
}

VM float vm_log1p(float x) {
  float u = 1.0f + x;
  float lost = x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x); /* what rounding took from 1 + x */
  float y = vm_log(u) + lost / u;
  y = u == 0.0f ? -INFINITY : y;
  return x >= INFINITY || x == 0.0f ? x : y;
}

VM float vm_sigmoid(float x) {
  return vm_keep_nan(x, 1.0f / (1.0f + vm_exp_moderate(vm_clamp(-x, -88.0f, 89.0f)))); /* e^89 comes out infinite */
}

/* From e^2x - 1, which keeps its digits near 0. */
VM float vm_tanh(float x) {
  float a = vm_clamp(vm_float(vm_bits(x) & 0x7fffffffu), 0.0f, 10.0f);
  float t, r = vm_reduce_ln2(2.0f * a, &t);
  float s = vm_power_of_2(vm_reduced_k(t)), e = vm_fma(s, vm_expm1_poly(r), s - 1.0f);
  return vm_keep_nan(x, vm_copysign(e / (e + 2.0f), x));
}

VM float vm_erf(float x) {
  float a = vm_float(vm_bits(x) & 0x7fffffffu), s = x * x;
  float p = 7.85386146e-5f;
  p = vm_fma(p, s, -8.01019371e-4f);
  p = vm_fma(p, s, 5.18832775e-3f);
  p = vm_fma(p, s, -2.68538129e-2f);
  p = vm_fma(p, s, 0.112835854f);
  p = vm_fma(p, s, -0.37612626f);
  p = vm_fma(p, s, 0.128379166f);
  float near = vm_fma(p, x, x);
  float t = vm_clamp(a, 0.0f, 4.0f); /* erf is 1 from there on */
  float q = 1.98219655e-4f;
  q = vm_fma(q, t, -3.06549016e-3f);
  q = vm_fma(q, t, 2.23152135e-2f);
  q = vm_fma(q, t, -0.104113676f);
  q = vm_fma(q, t, -0.636976063f);
  q = vm_fma(q, t, -0.127797246f);
  q = vm_fma(q, t, -1.66447775e-4f);
  float far = vm_copysign(1.0f - vm_exp_moderate(q - t), x);
  return vm_keep_nan(x, a < 1.0f ? near : far);
}

/* Sine and cosine where |x| <= VM_TRIG_MAX: beyond it the reduction by three parts of pi/2 loses bits, and callers
 * take the library's functions. quadrant 0 gives the sine, 1 the cosine. */
#define VM_TRIG_MAX 8192.0f
VM float vm_trig(float x, uint32_t quadrant) {
  float t = x * 0.636619772f + 12582912.0f;
  float k = t - 12582912.0f;
  float r = vm_fma(k, -1.5703125f, x);
  r = vm_fma(k, -4.83751297e-4f, r);
  r = vm_fma(k, -7.54953362e-8f, r);
  r = vm_fma(k, -2.56334403e-12f, r);
  quadrant += vm_bits(t);
  float z = r * r;
  float s = 2.71756812e-6f;
  s = vm_fma(s, z, -1.98392576e-4f);
  s = vm_fma(s, z, 8.33332911e-3f);
  s = vm_fma(s, z, -0.166666672f);
  s = vm_fma(s * z, r, r);
  float c = -2.72033390e-7f;
  c = vm_fma(c, z, 2.47994376e-5f);
  c = vm_fma(c, z, -1.38888834e-3f);
  c = vm_fma(c, z, 4.16666679e-2f);
  c = vm_fma(c, z * z, vm_fma(z, -0.5f, 1.0f));
  float y = quadrant & 1 ? c : s;
  return vm_float(vm_bits(y) ^ ((quadrant & 2) << 30));
}
VM float vm_sin(float x) { return vm_trig(x, 0); }
VM float vm_cos(float x) { return vm_trig(x, 1); }

/* Sums of a row are taken in so many partial ones, which do not wait for each other's additions, and these are joined
 * in a fixed order. */
enum { VM_PARTS = 32 };
static inline float vm_total(float parts[VM_PARTS]) {
  for (int half = VM_PARTS / 2; half; half /= 2)
    for (int i = 0; i < half; i++) parts[i] += parts[half + i];
  return parts[0];
}

#endif
