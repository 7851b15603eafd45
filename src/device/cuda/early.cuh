/* Kernels that are launched while the one before them still runs (cuda_launch_early): so beginning a kernel, which
 * takes longer than a small one itself, is done in time. Such a kernel first lets the next one come, which waits in
 * turn, and then waits for all that was queued before it. Nothing of memory is touched until then. */
#pragma once

__device__ inline void begin_early() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
