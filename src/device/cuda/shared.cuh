/* A block's shared memory, and copies to it that arrive while the block works on something else. */
#pragma once
#include <stdint.h>

__device__ inline uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* A block's shared memory, as much as it was launched with. */
__device__ inline void *shared_room() {
  extern __shared__ __align__(1024) unsigned char room[];
  return room;
}

/* 16 bytes to shared memory, or as many zeros, for which nothing is read, without waiting; and the wait for all but the
 * last n groups of them. */
__device__ inline void copy_16(void *to, const void *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(there ? 16 : 0));
}
__device__ inline void end_group() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ inline void wait_groups() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
