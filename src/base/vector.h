/* Loops that compilers turn into vector code.
 *
 * LOOP_FREE stands before a loop whose iterations do not depend on each other even when the output is one of the
 * inputs (in place): without it compilers test for overlap at run time and then take the scalar loop just when the
 * buffer was reused. VECTOR_CLONES before a function compiles it for several instruction sets, chosen when the
 * program starts; it is empty where the base instruction set has all we need. Multiplications and additions are never
 * joined into one rounding (-ffp-contract=off), so every clone gives the same bits. */
#ifndef BASE_VECTOR_H
#define BASE_VECTOR_H

#if defined(__clang__)
#define LOOP_FREE _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOOP_FREE _Pragma("GCC ivdep")
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTOR_CLONES
#endif

#endif
