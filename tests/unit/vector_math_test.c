/* The vector functions are as exact as they say, over all of float. */
#include "unit.h"

#include "ops/math/vector_math.h"

/* How far got is from want, in units of want's last place. */
static double units(float got, double want) {
  if (isnan(want)) return isnan(got) ? 0 : INFINITY;
  if (fabs(want) > 3.4028236e38) return isinf(got) && (got > 0) == (want > 0) ? 0 : INFINITY;
  if (!isfinite(got)) return INFINITY;
  int e;
  frexp(want, &e);
  return fabs(got - want) / ldexp(1, (e < -125 ? -125 : e) - 24);
}

/* Walks through the bit patterns with a step that is prime to their number. */
#define WORST(name, f, library, low, high, limit)                                             \
  static void name(void **state) {                                                            \
    double worst = 0;                                                                         \
    float at = 0;                                                                             \
    for (uint64_t i = 0; i < 1ull << 32; i += 4099) {                                         \
      float x = vm_float((uint32_t)i);                                                        \
      if (!(x >= (low) && x <= (high)) && !isnan(x)) continue;                                \
      double u = units(f(x), library((double)x));                                             \
      if (u > worst) {                                                                        \
        worst = u;                                                                            \
        at = x;                                                                               \
      }                                                                                       \
    }                                                                                         \
    if (worst > (limit)) print_error("%s is off by %g units at %a\n", #f, worst, (double)at); \
    assert_true(worst <= (limit));                                                            \
  }

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

WORST(exp_is_exact, vm_exp, exp, -INFINITY, INFINITY, 1.1)
WORST(expm1_is_exact, vm_expm1, expm1, -INFINITY, INFINITY, 1.6)
WORST(log_is_exact, vm_log, log, -INFINITY, INFINITY, 1.0)
WORST(log1p_is_exact, vm_log1p, log1p, -INFINITY, INFINITY, 1.6)
WORST(tanh_is_exact, vm_tanh, tanh, -INFINITY, INFINITY, 2.5)
WORST(sigmoid_is_exact, vm_sigmoid, sigmoid, -87, INFINITY, 2.5)
WORST(erf_is_exact, vm_erf, erf, -INFINITY, INFINITY, 1.5)
WORST(sin_is_exact, vm_sin, sin, -VM_TRIG_MAX, VM_TRIG_MAX, 2.5)
WORST(cos_is_exact, vm_cos, cos, -VM_TRIG_MAX, VM_TRIG_MAX, 2.5)

static void ends_are_right(void **state) {
  assert_true(vm_exp(-INFINITY) == 0 && vm_exp(INFINITY) == INFINITY && isnan(vm_exp(NAN)));
  assert_true(vm_log(0) == -INFINITY && vm_log(INFINITY) == INFINITY && isnan(vm_log(-1)));
  assert_true(vm_sigmoid(-INFINITY) == 0 && vm_sigmoid(INFINITY) == 1 && isnan(vm_sigmoid(NAN)));
  assert_true(vm_tanh(-INFINITY) == -1 && vm_tanh(INFINITY) == 1 && isnan(vm_tanh(NAN)));
  assert_true(vm_erf(-INFINITY) == -1 && vm_erf(INFINITY) == 1 && vm_erf(0) == 0);
  assert_true(vm_expm1(-INFINITY) == -1 && vm_expm1(0) == 0 && vm_log1p(-1) == -INFINITY);
}

RUN_TESTS(cmocka_unit_test(exp_is_exact), cmocka_unit_test(expm1_is_exact), cmocka_unit_test(log_is_exact),
          cmocka_unit_test(log1p_is_exact), cmocka_unit_test(tanh_is_exact), cmocka_unit_test(sigmoid_is_exact),
          cmocka_unit_test(erf_is_exact), cmocka_unit_test(sin_is_exact), cmocka_unit_test(cos_is_exact),
          cmocka_unit_test(ends_are_right))
