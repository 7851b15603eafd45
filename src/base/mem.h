/* Memory for small things: mem_alloc() and its kin never return NULL. Where a size comes from outside (a tensor, a
 * message, a file), buffer_new() or the mem_try_ family is used, and RESOURCE_EXHAUSTED reported. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t size);                /* aborts with a message when the machine has no more */
void *mem_zalloc(size_t count, size_t size); /* zeroed; the product is checked */
void *mem_realloc(void *p, size_t count, size_t size);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);
char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* NULL when there is no memory; what was there before a failing mem_try_realloc() stays. */
void *mem_try_alloc(size_t size);
void *mem_try_zalloc(size_t count, size_t size);
void *mem_try_realloc(void *p, size_t count, size_t size);
char *mem_try_strndup(const char *s, size_t n);

/* For tests: the k-th attempt from now on to get memory that may fail does fail; 0: none. Returns whether the one asked
 * for before has come about. */
bool mem_fail_at(long k);
extern long mem_failing;
bool mem_fails_now(void);
/* Asked by whoever gives memory that may fail. */
static inline bool mem_fails(void) {
  return __builtin_expect(__atomic_load_n(&mem_failing, __ATOMIC_RELAXED) > 0, 0) && mem_fails_now();
}

static inline bool mul_overflows(int64_t a, int64_t b, int64_t *out) { return __builtin_mul_overflow(a, b, out); }

#define COUNT_OF(a) (sizeof(a) / sizeof *(a))

/* The smaller and the larger of two numbers, in the type that both convert to. Functions, so that an argument with
 * effects is evaluated once; for compile-time constants write the comparison out. */
#define LESSER_OF_(type, name)                                                                                     \
  static inline __attribute__((always_inline, const)) type min_##name##_(type a, type b) { return a < b ? a : b; } \
  static inline __attribute__((always_inline, const)) type max_##name##_(type a, type b) { return a > b ? a : b; }
LESSER_OF_(int, int)
LESSER_OF_(unsigned, unsigned)
LESSER_OF_(long, long)
LESSER_OF_(unsigned long, ulong)
LESSER_OF_(long long, llong)
LESSER_OF_(unsigned long long, ullong)
LESSER_OF_(float, float)
LESSER_OF_(double, double)
#undef LESSER_OF_
#define MIN(a, b) NUMBER_FUNCTION_(min, a, b)
#define MAX(a, b) NUMBER_FUNCTION_(max, a, b)
#define NUMBER_FUNCTION_(which, a, b)           \
  _Generic((a) + (b), int                       \
           : which##_int_, unsigned             \
           : which##_unsigned_, long            \
           : which##_long_, unsigned long       \
           : which##_ulong_, long long          \
           : which##_llong_, unsigned long long \
           : which##_ullong_, float             \
           : which##_float_, double             \
           : which##_double_)((a), (b))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#endif
