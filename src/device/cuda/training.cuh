/* The optimizers' formulas, those of the CPU (ops/state/training_rules.inc), for each type: rule_NAME_TYPE. */
#pragma once
#include "types.cuh"

enum { UPDATE_VARS = 4, UPDATE_SCALARS = 8 };
struct update_numbers {
  double s[UPDATE_SCALARS];
  int64_t global_step;
  bool nesterov, update_slots, multiply_linear_by_lr, sparse;
};
struct update_memory { /* as kernels_training.c fills it; the scalars are the card's */
  void *x[UPDATE_VARS];
  const void *g, *scalars[UPDATE_SCALARS];
  int64_t n, global_step;
  int32_t n_scalars;
  bool nesterov, update_slots, multiply_linear_by_lr;
};

template <class T> __device__ inline update_numbers numbers_of(const update_memory &m) {
  update_numbers h = {{0}, m.global_step, m.nesterov, m.update_slots, m.multiply_linear_by_lr, false};
  for (int k = 0; k < UPDATE_SCALARS; k++)
    if (k < m.n_scalars) h.s[k] = (double)load(*(const T *)m.scalars[k]);
  return h;
}

#define hyper update_numbers
#define restrict __restrict__
#define RULE_HELPER static __device__ inline
#define RULE_CLONES __device__ inline

#define T float
#define C float
#define LD
#define ST
#define S(i) ((float)h->s[i])
#define SQRT sqrtf
#define POW powf
#define EXP expf
#define ABS fabsf
#define RULE_NAME(name) rule_##name##_f32
#include "ops/state/training_rules.inc"

#define RULE_CLONES __device__ inline
#define T double
#define C double
#define LD
#define ST
#define S(i) (h->s[i])
#define SQRT sqrt
#define POW pow
#define EXP exp
#define ABS fabs
#define RULE_NAME(name) rule_##name##_f64
#include "ops/state/training_rules.inc"

#define RULE_CLONES __device__ inline
#define T __half
#define C float
#define LD __half2float
#define ST __float2half_rn
#define S(i) ((float)h->s[i])
#define SQRT sqrtf
#define POW powf
#define EXP expf
#define ABS fabsf
#define RULE_NAME(name) rule_##name##_f16
#include "ops/state/training_rules.inc"

#define RULE_CLONES __device__ inline
#define T __nv_bfloat16
#define C float
#define LD __bfloat162float
#define ST __float2bfloat16_rn
#define S(i) ((float)h->s[i])
#define SQRT sqrtf
#define POW powf
#define EXP expf
#define ABS fabsf
#define RULE_NAME(name) rule_##name##_bf16
#include "ops/state/training_rules.inc"
