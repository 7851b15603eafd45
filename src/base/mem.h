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
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#endif
