/* Numbers too small to be normal count as zero while kernels run: the processor's flag for it is set on the threads of
 * every pool and around the steps that run on a caller's thread, and put back for the caller.
 *
 * TensorFlow does the same, so the numbers agree; and the slots of an optimizer fill with such numbers once a model has
 * learnt its batch, which makes an x86_64 processor ten times slower on them. */
#ifndef BASE_DENORMALS_H
#define BASE_DENORMALS_H

#include <stdint.h>

/* Sets the flag and returns the thread's state before. */
static inline uint64_t denormals_flush(void) {
#if defined(__x86_64__)
  enum { TO_ZERO = 1 << 15, ARE_ZERO = 1 << 6 }; /* results, operands */
  uint32_t old = __builtin_ia32_stmxcsr();
  if ((old & (TO_ZERO | ARE_ZERO)) != (TO_ZERO | ARE_ZERO)) __builtin_ia32_ldmxcsr(old | TO_ZERO | ARE_ZERO);
  return old;
#elif defined(__aarch64__)
  uint64_t old, flush = (uint64_t)1 << 24;
  __asm__ volatile("mrs %0, fpcr" : "=r"(old));
  if (!(old & flush)) __asm__ volatile("msr fpcr, %0" : : "r"(old | flush));
  return old;
#else
  return 0;
#endif
}

static inline void denormals_restore(uint64_t old) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr((uint32_t)old);
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"(old));
#endif
}

#endif
