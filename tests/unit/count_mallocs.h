/* Counts what a test's program takes from the system: by standing in for malloc, and what the cache of buffers takes.
 * With a sanitizer, which stands there itself, the buffers alone. */
#ifndef UNIT_COUNT_MALLOCS_H
#define UNIT_COUNT_MALLOCS_H

#include <malloc.h>
#include <stdatomic.h>

#include "tensor/buffer.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static long allocations(void) { return (long)buffer_system_allocs(); }
#else
static atomic_long mallocs;
static long allocations(void) { return mallocs + (long)buffer_system_allocs(); }

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);

void *malloc(size_t n) {
  atomic_fetch_add(&mallocs, 1);
  return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
  atomic_fetch_add(&mallocs, 1);
  return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
  atomic_fetch_add(&mallocs, 1);
  return __libc_realloc(p, n);
}
void *aligned_alloc(size_t alignment, size_t n) {
  atomic_fetch_add(&mallocs, 1);
  return __libc_memalign(alignment, n);
}
int posix_memalign(void **out, size_t alignment, size_t n) {
  atomic_fetch_add(&mallocs, 1);
  return (*out = __libc_memalign(alignment, n)) ? 0 : 12;
}
#endif

#endif
