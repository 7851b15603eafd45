/* The optimizers' formulas, those of the CPU (ops/state/training_rules.inc), a thread to an element. */
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

#define UPDATE_OF(T, name)                                                                     \
  extern "C" __global__ void name##_##T(update_memory m) {                                     \
    update_numbers h = numbers_of<T>(m);                                                       \
    EACH_ELEMENT(i, m.n) {                                                                     \
      void *x[UPDATE_VARS];                                                                    \
      for (int k = 0; k < UPDATE_VARS; k++) x[k] = (T *)m.x[k] + i;                            \
      rule_##name##_##T(x, (const T *)m.g + i, 1, &h);                                         \
    }                                                                                          \
  }
FLOATING(UPDATE_OF, gradient_descent)
FLOATING(UPDATE_OF, momentum)
FLOATING(UPDATE_OF, keras_momentum)
FLOATING(UPDATE_OF, adagrad)
FLOATING(UPDATE_OF, adagrad_v2)
FLOATING(UPDATE_OF, adadelta)
FLOATING(UPDATE_OF, rms_prop)
FLOATING(UPDATE_OF, centered_rms_prop)
FLOATING(UPDATE_OF, adam)
FLOATING(UPDATE_OF, adam_amsgrad)
FLOATING(UPDATE_OF, adamax)
FLOATING(UPDATE_OF, adagrad_da)
FLOATING(UPDATE_OF, ftrl)
FLOATING(UPDATE_OF, ftrl_v2)
FLOATING(UPDATE_OF, proximal_gradient_descent)
FLOATING(UPDATE_OF, proximal_adagrad)
FLOATING(UPDATE_OF, add_sign)
FLOATING(UPDATE_OF, power_sign)

/* Rows by index, sorted (rows.cu): a block to a row, its gradients in the order they were given. */
struct update_rows { /* as cuda_rows.h has it */
  const uint32_t *keys, *order;
  int64_t n, rows, width;
};
#define SPARSE_OF(T, name)                                                                               \
  extern "C" __global__ void sparse_##name##_##T(update_memory m, update_rows s) {                       \
    int64_t p = blockIdx.x;                                                                              \
    uint32_t row = s.keys[p];                                                                            \
    if (row >= s.rows || (p && s.keys[p - 1] == row)) return;                                            \
    update_numbers h = numbers_of<T>(m);                                                                 \
    h.sparse = true;                                                                                     \
    for (int64_t c = threadIdx.x; c < s.width; c += blockDim.x)                                          \
      for (int64_t q = p; q < s.n && s.keys[q] == row; q++) {                                            \
        void *x[UPDATE_VARS];                                                                            \
        for (int k = 0; k < UPDATE_VARS; k++) x[k] = (T *)m.x[k] + row * s.width + c;                    \
        rule_##name##_##T(x, (const T *)m.g + s.order[q] * s.width + c, 1, &h);                          \
      }                                                                                                  \
  }
FLOATING(SPARSE_OF, momentum)
FLOATING(SPARSE_OF, keras_momentum)
FLOATING(SPARSE_OF, adagrad)
FLOATING(SPARSE_OF, adagrad_v2)
FLOATING(SPARSE_OF, adadelta)
FLOATING(SPARSE_OF, rms_prop)
FLOATING(SPARSE_OF, centered_rms_prop)
FLOATING(SPARSE_OF, adagrad_da)
FLOATING(SPARSE_OF, ftrl)
FLOATING(SPARSE_OF, ftrl_v2)
FLOATING(SPARSE_OF, proximal_gradient_descent)
FLOATING(SPARSE_OF, proximal_adagrad)
