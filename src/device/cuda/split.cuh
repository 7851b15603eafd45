/* Products of float32 on tensor cores: numbers are multiplied as sums of two TF32 numbers each, in three products,
 * which is float32 but for the last bits. */
#pragma once
#include "types.cuh"

/* v is high + low, to 21 bits behind the point: the card reads the upper 10 of each. What is infinite, or no number,
 * makes no number in every product that it is in. */
__device__ inline void split(float v, uint32_t &high, uint32_t &low) {
  high = __float_as_uint(v) & 0xffffe000u;
  low = __float_as_uint(v - __uint_as_float(high));
}

/* c += a b: 16 by 8 times 8 by 8. Of lane l, with g = l / 4 and t = l % 4: a is rows g, g + 8 of column t, then of
 * column t + 4; b rows t, t + 4 of column g; c row g, columns 2t and 2t + 1, then row g + 8. */
__device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
               "{%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <int N> __device__ inline void multiply_split(float (&c)[N][4], const float (&a)[4], const float (&b)[N][2]) {
  uint32_t high[4], low[4];
  for (int i = 0; i < 4; i++) split(a[i], high[i], low[i]);
  for (int n = 0; n < N; n++) {
    uint32_t b_high[2], b_low[2];
    for (int i = 0; i < 2; i++) split(b[n][i], b_high[i], b_low[i]);
    multiply(c[n], low, b_high);
    multiply(c[n], high, b_low);
    multiply(c[n], high, b_high);
  }
}
