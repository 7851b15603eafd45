/* Floating numbers to integers, also where C leaves it undefined: one outside the integer type's range goes to the
 * nearest bound, NaN to 0. */
#ifndef OPS_MATH_TO_INTEGER_H
#define OPS_MATH_TO_INTEGER_H

#include <stdint.h>

#include "ops/math/vector_math.h"

#define SATURATE(name, from, to, low, high, max) \
  VM to name(from x) { return x != x ? 0 : x >= (high) ? (max) : x < (low) ? (to)(low) : (to)x; }
SATURATE(float_to_i32, float, int32_t, -0x1p31f, 0x1p31f, INT32_MAX)
SATURATE(float_to_u32, float, uint32_t, 0.0f, 0x1p32f, UINT32_MAX)
SATURATE(float_to_i64, float, int64_t, -0x1p63f, 0x1p63f, INT64_MAX)
SATURATE(float_to_u64, float, uint64_t, 0.0f, 0x1p64f, UINT64_MAX)
SATURATE(double_to_i32, double, int32_t, -0x1p31, 0x1p31, INT32_MAX)
SATURATE(double_to_u32, double, uint32_t, 0.0, 0x1p32, UINT32_MAX)
SATURATE(double_to_i64, double, int64_t, -0x1p63, 0x1p63, INT64_MAX)
SATURATE(double_to_u64, double, uint64_t, 0.0, 0x1p64, UINT64_MAX)
#define TO_I32(v) _Generic((v), float : float_to_i32, double : double_to_i32)(v)
#define TO_U32(v) _Generic((v), float : float_to_u32, double : double_to_u32)(v)
#define TO_I64(v) _Generic((v), float : float_to_i64, double : double_to_i64)(v)
#define TO_U64(v) _Generic((v), float : float_to_u64, double : double_to_u64)(v)

#endif
