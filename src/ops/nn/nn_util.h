/* What the neural-network families share: element types as they are computed with, data formats, windows. */
#ifndef OPS_NN_NN_UTIL_H
#define OPS_NN_NN_UTIL_H

#include "ops/array/array_util.h"

/* Elements a piece of a parallel loop should have when each costs about a nanosecond. */
enum { NN_GRAIN = 1 << 14 };
static inline int64_t nn_grain(int64_t row) { return MAX(1, NN_GRAIN / MAX(row, 1)); }

/* Half and bfloat16 are computed with as float. LOAD_x and STORE_x convert one element. */
#define LOAD_float(v) (v)
#define LOAD_double(v) (v)
#define LOAD_f16(v) f16_to_float(v)
#define LOAD_bf16(v) bf16_to_float(v)
#define STORE_float(v) (v)
#define STORE_double(v) (v)
#define STORE_f16(v) f16_from_float(v)
#define STORE_bf16(v) bf16_from_float(v)

/* X(enumerator, C type, type computed in) for the four floating types. */
#define NN_FLOATING(X)             \
  X(SHOAL_FLOAT32, float, float)   \
  X(SHOAL_FLOAT64, double, double) \
  X(SHOAL_FLOAT16, f16, float)     \
  X(SHOAL_BFLOAT16, bf16, float)

/* X(enumerator, C type, the unsigned type that wraps as it does). */
#define NN_INTEGERS(X)                \
  X(SHOAL_INT8, int8_t, uint8_t)      \
  X(SHOAL_UINT8, uint8_t, uint8_t)    \
  X(SHOAL_INT16, int16_t, uint16_t)   \
  X(SHOAL_UINT16, uint16_t, uint16_t) \
  X(SHOAL_INT32, int32_t, uint32_t)   \
  X(SHOAL_UINT32, uint32_t, uint32_t) \
  X(SHOAL_INT64, int64_t, uint64_t)   \
  X(SHOAL_UINT64, uint64_t, uint64_t)

/* n elements of a floating type as float, and back. */
void nn_to_float(shoal_dtype type, const void *from, float *to, int64_t n);
void nn_from_float(shoal_dtype type, const float *from, void *to, int64_t n);

/* Runs fn over n elements of inputs a and b (b may be NULL) into out, in parallel. fn_f sees floats whatever the
 * type: half and bfloat16 are converted block by block; fn_d is for double. out may be a or b. */
typedef void (*nn_map_float)(const float *a, const float *b, float *out, int64_t n, const void *arg);
typedef void (*nn_map_double)(const double *a, const double *b, double *out, int64_t n, const void *arg);
void nn_map(struct pool *pool, shoal_dtype type, const void *a, const void *b, void *out, int64_t n, int64_t grain,
            nn_map_float fn_f, nn_map_double fn_d, const void *arg);

/* For shape functions: two dimensions, where known, must be the same; the error is TensorFlow's. */
shoal_status nn_same_dim(struct shape_ctx *c, int64_t a, int64_t b);

/* ReluGrad and its kin: "Inputs to operation NAME of type OP must have the same size and shape." */
shoal_status nn_check_same(const struct kernel_ctx *ctx, int i, int j);

#endif
