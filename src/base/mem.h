/* Memory for small things: these calls never return NULL. Where a size comes from outside (a tensor, a
 * message), use buffer_new() or malloc and report RESOURCE_EXHAUSTED instead. */
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

static inline bool mul_overflows(int64_t a, int64_t b, int64_t *out) { return __builtin_mul_overflow(a, b, out); }

#define COUNT_OF(a) (sizeof(a) / sizeof *(a))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#endif
