/* Products of small matrices by a warp's tensor cores, and how operands come from shared memory.
 *
 * A is 16 x 16, B is 16 x 8, C is 16 x 8 of float; of lane l, with g = l / 4 and t = l % 4:
 *   a[0], a[1]  row g, g + 8, columns 2t and 2t + 1;   a[2], a[3]  the same rows, columns 2t + 8 and 2t + 9
 *   b[0], b[1]  rows 2t, 2t + 1 and 2t + 8, 2t + 9 of column g
 *   c[0], c[1]  row g, columns 2t and 2t + 1;          c[2], c[3]  row g + 8
 * So two neighbouring C, rounded, are an A: what a product gave goes into the next without leaving the registers. */
#pragma once
#include "types.cuh"

__device__ inline uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* Four matrices of 8 x 8: lane l says where row l % 8 of matrix l / 8 lies, and gets of matrix i, in r[i], columns 2t
 * and 2t + 1 of row g; turned round, rows 2t and 2t + 1 of column g. */
__device__ inline void load_four(uint32_t (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}
__device__ inline void load_four_turned(uint32_t (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}

/* c += a b */
template <class T> struct mma;
template <> struct mma<bf16> {
  static __device__ inline void add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  static __device__ inline uint32_t two(float low, float high) {
    __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *(uint32_t *)&v;
  }
};
template <> struct mma<f16> {
  static __device__ inline void add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  static __device__ inline uint32_t two(float low, float high) {
    __half2 v = __floats2half2_rn(low, high);
    return *(uint32_t *)&v;
  }
};

/* 16 bytes to shared memory, or as many zeros, without waiting; and the wait for all but the last n groups of them. */
__device__ inline void copy_16(void *to, const void *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(there ? 16 : 0));
}
__device__ inline void end_group() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ inline void wait_groups() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
