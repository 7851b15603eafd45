/* Products of small matrices by a warp's tensor cores, and how operands come from shared memory.
 *
 * A is 16 x 16, B is 16 x 8, C is 16 x 8 of float; of lane l, with g = l / 4 and t = l % 4:
 *   a[0], a[1]  row g, g + 8, columns 2t and 2t + 1;   a[2], a[3]  the same rows, columns 2t + 8 and 2t + 9
 *   b[0], b[1]  rows 2t, 2t + 1 and 2t + 8, 2t + 9 of column g
 *   c[0], c[1]  row g, columns 2t and 2t + 1;          c[2], c[3]  row g + 8
 * So two neighbouring C, rounded, are an A: what a product gave goes into the next without leaving the registers. */
#pragma once
#include "shared.cuh"
#include "types.cuh"

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

/* ---- products of a group of four warps, which read B where it lies in shared memory (sm_90a) ----
 *
 * C is 64 x 64, of which each warp has 16 rows, in the order above; A is those rows times 16 columns, in registers or
 * of a tile. B is 16 of the rows of a tile, or 16 of its columns turned round. A tile is 64 rows of 128 bytes, 1,024
 * bytes aligned, in which piece c of row r (16 bytes) stands at c ^ r % 8: that is what the hardware calls a swizzle of
 * 128 bytes. Products are queued; from begin until they were waited for nobody touches their C. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define MMA_BY_GROUPS

__device__ inline uint64_t describe_tile(const void *at) {
  const uint64_t eight_rows = 1024 >> 4, swizzle_128 = 1;
  return (uint64_t)(shared_address(at) >> 4 & 0x3fff) | eight_rows << 16 | eight_rows << 32 | swizzle_128 << 62;
}
/* The next 16 columns of a tile, the next 16 rows. */
enum { DESCRIBED_COLUMNS = 32 >> 4, DESCRIBED_ROWS = 2048 >> 4 };
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* All but the last n that were ended are done. */
template <int N> __device__ inline void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* What was copied to shared memory is seen by products that come behind the next barrier. */
__device__ inline void show_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#define FOUR_OF(v, i) "+f"(v[i][0]), "+f"(v[i][1]), "+f"(v[i][2]), "+f"(v[i][3])
/* Registers of a C are not looked at before this. */
__device__ inline void settle(float (&c)[8][4]) {
  asm volatile("" : FOUR_OF(c, 0), FOUR_OF(c, 1), FOUR_OF(c, 2), FOUR_OF(c, 3)::"memory");
  asm volatile("" : FOUR_OF(c, 4), FOUR_OF(c, 5), FOUR_OF(c, 6), FOUR_OF(c, 7)::"memory");
}

#define GROUP_PRODUCT(type, from_a, turned, ...)                                                                  \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %33, 0;"                                                           \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10," \
               "%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, " from_a    \
               ", %32, p, 1, 1, " turned "; }"                                                                    \
               : FOUR_OF(c, 0), FOUR_OF(c, 1), FOUR_OF(c, 2), FOUR_OF(c, 3), FOUR_OF(c, 4), FOUR_OF(c, 5),        \
                 FOUR_OF(c, 6), FOUR_OF(c, 7)                                                                     \
               : "l"(b), "r"((int)add), __VA_ARGS__)
#define FOUR_REGISTERS "{%34,%35,%36,%37}"
#define THE_FOUR "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])

/* c = a b or, with add, c += a b. rows: b's 16 rows are a tile's. columns: they are 16 columns of one. a is registers,
 * or 16 columns of a tile. */
template <class T> struct group_mma;
template <> struct group_mma<bf16> {
  static __device__ inline void rows(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, bool add) {
    GROUP_PRODUCT("bf16", FOUR_REGISTERS, "1", THE_FOUR);
  }
  static __device__ inline void columns(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, bool add) {
    GROUP_PRODUCT("bf16", FOUR_REGISTERS, "0", THE_FOUR);
  }
  static __device__ inline void columns(float (&c)[8][4], uint64_t a, uint64_t b, bool add) {
    GROUP_PRODUCT("bf16", "%34", "0, 0", "l"(a));
  }
};
template <> struct group_mma<f16> {
  static __device__ inline void rows(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, bool add) {
    GROUP_PRODUCT("f16", FOUR_REGISTERS, "1", THE_FOUR);
  }
  static __device__ inline void columns(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, bool add) {
    GROUP_PRODUCT("f16", FOUR_REGISTERS, "0", THE_FOUR);
  }
  static __device__ inline void columns(float (&c)[8][4], uint64_t a, uint64_t b, bool add) {
    GROUP_PRODUCT("f16", "%34", "0, 0", "l"(a));
  }
};
#else
__device__ inline void begin_products() {}
__device__ inline void end_products() {}
template <int N> __device__ inline void wait_products() {}
__device__ inline void show_products() {}
__device__ inline void settle(float (&c)[8][4]) {}
#endif
