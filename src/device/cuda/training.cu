/* Updates by the optimizers' formulas (training.cuh), a thread to an element. */
#include "training.cuh"

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
