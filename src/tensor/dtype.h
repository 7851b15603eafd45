/* Element types: sizes, names, and the C types that hold elements.
 *
 * float16 and bfloat16 are held as their bit patterns; arithmetic on them goes through float. */
#ifndef TENSOR_DTYPE_H
#define TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <shoal/tensor.h>

typedef struct {
  uint16_t bits;
} f16;
typedef struct {
  uint16_t bits;
} bf16;
typedef float _Complex c64;
typedef double _Complex c128;

/* X(enumerator, C type, name, group): every type whose elements can be copied as bytes.
 * Groups: F real floating, I signed integer, U unsigned integer, B bool, C complex, Q quantized (opaque). */
#define DTYPE_PLAIN(X)                       \
  X(SHOAL_FLOAT32, float, "float32", F)      \
  X(SHOAL_FLOAT64, double, "float64", F)     \
  X(SHOAL_INT32, int32_t, "int32", I)        \
  X(SHOAL_UINT8, uint8_t, "uint8", U)        \
  X(SHOAL_INT16, int16_t, "int16", I)        \
  X(SHOAL_INT8, int8_t, "int8", I)           \
  X(SHOAL_COMPLEX64, c64, "complex64", C)    \
  X(SHOAL_INT64, int64_t, "int64", I)        \
  X(SHOAL_BOOL, bool, "bool", B)             \
  X(SHOAL_QINT8, int8_t, "qint8", Q)         \
  X(SHOAL_QUINT8, uint8_t, "quint8", Q)      \
  X(SHOAL_QINT32, int32_t, "qint32", Q)      \
  X(SHOAL_BFLOAT16, bf16, "bfloat16", F)     \
  X(SHOAL_QINT16, int16_t, "qint16", Q)      \
  X(SHOAL_QUINT16, uint16_t, "quint16", Q)   \
  X(SHOAL_UINT16, uint16_t, "uint16", U)     \
  X(SHOAL_COMPLEX128, c128, "complex128", C) \
  X(SHOAL_FLOAT16, f16, "float16", F)        \
  X(SHOAL_UINT32, uint32_t, "uint32", U)     \
  X(SHOAL_UINT64, uint64_t, "uint64", U)

enum { DTYPE_REF_OFFSET = 100, DTYPE_COUNT = 24 };

static inline bool dtype_is_ref(int t) { return t > DTYPE_REF_OFFSET; }
static inline shoal_dtype dtype_base(int t) { return (shoal_dtype)(t > DTYPE_REF_OFFSET ? t - DTYPE_REF_OFFSET : t); }
static inline shoal_dtype dtype_ref(shoal_dtype t) { return (shoal_dtype)((int)t + DTYPE_REF_OFFSET); }

bool dtype_valid(int t);            /* a known base type (not a reference) */
size_t dtype_size(shoal_dtype t);   /* bytes of an element as held in memory, strings and handles included */
bool dtype_plain(shoal_dtype t);    /* elements can be copied as bytes */
bool dtype_floating(shoal_dtype t); /* half, bfloat16, float, double */
bool dtype_integer(shoal_dtype t);  /* signed or unsigned; not bool, not quantized */
bool dtype_complex(shoal_dtype t);
/* TensorFlow's names as they stand in errors and op signatures: "float", "int32", "float_ref", ... */
const char *dtype_tf_name(int t);
/* Reads either spelling ("float" or "float32", "half" or "float16", "..._ref"); SHOAL_DT_INVALID if unknown. */
shoal_dtype dtype_from_name(const char *name, size_t n);

static inline float bf16_to_float(bf16 v) {
  uint32_t u = (uint32_t)v.bits << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

/* Rounds to nearest, ties to even; NaN stays NaN. */
static inline bf16 bf16_from_float(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (bf16){(uint16_t)((u >> 16) | 0x40)};
  return (bf16){(uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16)};
}

static inline float f16_to_float(f16 v) {
#if defined(__aarch64__)
  __fp16 h;
  memcpy(&h, &v.bits, 2);
  return (float)h;
#else
  /* Exponent and mantissa shifted into place, the exponent's bias made float's. A subnormal half gets the exponent that
   * would stand there if it were normal, and the one that was added is taken off again: no step of it is subnormal in
   * float, since those count as zero while kernels run (base/denormals.h). */
  uint32_t sign = (uint32_t)(v.bits & 0x8000) << 16, rest = (uint32_t)(v.bits & 0x7fff) << 13;
  uint32_t exponent = rest & 0x0f800000u, shifted = rest + 0x38800000u;
  float f, least = 0x1p-14f;
  memcpy(&f, &shifted, 4);
  f -= least;
  memcpy(&shifted, &f, 4);
  if (exponent == 0x0f800000u) rest |= 0x7f800000u; /* infinity or NaN */
  else rest = exponent == 0 ? shifted : rest + 0x38000000u;
  rest |= sign;
  memcpy(&f, &rest, 4);
  return f;
#endif
}

/* Rounds to nearest, ties to even. */
static inline f16 f16_from_float(float f) {
#if defined(__aarch64__)
  __fp16 h = (__fp16)f;
  f16 r;
  memcpy(&r.bits, &h, 2);
  return r;
#else
  uint32_t u;
  memcpy(&u, &f, 4);
  uint16_t sign = (uint16_t)((u >> 16) & 0x8000);
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return (f16){(uint16_t)(sign | 0x7e00)};
  if (u >= 0x477ff000u) return (f16){(uint16_t)(sign | 0x7c00)};
  if (u < 0x38800000u) { /* subnormal: adding 0.5 leaves the rounded mantissa in the low bits */
    float a;
    memcpy(&a, &u, 4);
    a += 0.5f;
    memcpy(&u, &a, 4);
    return (f16){(uint16_t)(sign | (u - 0x3f000000u))};
  }
  u += 0xc8000fffu + ((u >> 13) & 1);
  return (f16){(uint16_t)(sign | (u >> 13))};
#endif
}

#endif
