/* Element types as the cards' kernels see them: each is loaded into the type one computes in, and stored again. Names
 * of functions end with the name of the type: AddV2_f32. */
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

typedef float f32;
typedef double f64;
typedef __half f16;
typedef __nv_bfloat16 bf16;
typedef int8_t i8;
typedef int32_t i32;
typedef int64_t i64;
typedef uint8_t u8;

/* What one computes in. */
template <class T> struct computed { typedef T type; };
template <> struct computed<f16> { typedef float type; };
template <> struct computed<bf16> { typedef float type; };
template <> struct computed<bool> { typedef int type; };

template <class T> __device__ inline typename computed<T>::type load(T v) { return v; }
__device__ inline float load(f16 v) { return __half2float(v); }
__device__ inline float load(bf16 v) { return __bfloat162float(v); }
template <class T> struct stored {
  template <class C> static __device__ inline T of(C v) { return (T)v; }
};
template <> struct stored<f16> {
  template <class C> static __device__ inline f16 of(C v) { return __float2half_rn((float)v); }
};
template <> struct stored<bf16> {
  template <class C> static __device__ inline bf16 of(C v) { return __float2bfloat16_rn((float)v); }
};

#define LOG2E 1.4426950408889634f

/* 2^x, to a few units in the last place; what is too small for a float is 0. */
__device__ inline float two_to(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* Neighbours that are loaded and stored at once. */
template <class T, int V> struct alignas(sizeof(T) * V) pack_of {
  T v[V];
};
enum { PACK_BYTES = 16 };
template <class T> __device__ inline bool is_packed(const T *p, int n) {
  return (uintptr_t)p % (sizeof(T) * n) == 0;
}

/* Each element once, with any number of threads. */
#define EACH_ELEMENT(i, n) \
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < (n); i += (int64_t)gridDim.x * blockDim.x)

#define FLOATING(X, ...) X(f32, __VA_ARGS__) X(f64, __VA_ARGS__) X(f16, __VA_ARGS__) X(bf16, __VA_ARGS__)
#define WITH_INTEGERS(X, ...) FLOATING(X, __VA_ARGS__) X(i32, __VA_ARGS__) X(i64, __VA_ARGS__)
#define WITH_BYTES(X, ...) WITH_INTEGERS(X, __VA_ARGS__) X(u8, __VA_ARGS__) X(i8, __VA_ARGS__) X(bool, __VA_ARGS__)
