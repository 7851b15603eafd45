/* Checked allocation for small control structures. */
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *checked(void *p, size_t size) {
  if (!p && size) {
    fprintf(stderr, "shoal: out of memory (%zu bytes)\n", size);
    abort();
  }
  return p;
}

void *mem_alloc(size_t size) { return checked(malloc(size ? size : 1), size); }

/* calloc() does not use the blocks that the thread itself has freed; for what a step takes and gives back it is several
 * times slower than clearing by hand. */
void *mem_zalloc(size_t count, size_t size) {
  enum { SMALL = 1024 };
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || bytes > SMALL)
    return checked(calloc(count ? count : 1, size ? size : 1), size);
  void *p = mem_alloc(bytes);
  return memset(p, 0, bytes);
}

void *mem_realloc(void *p, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX;
  return checked(realloc(p, bytes ? bytes : 1), bytes);
}

char *mem_strdup(const char *s) { return checked(strdup(s), 1); }

char *mem_strndup(const char *s, size_t n) {
  char *copy = mem_alloc(n + 1);
  memcpy(copy, s, n);
  copy[n] = 0;
  return copy;
}

char *mem_printf(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  char *text = NULL;
  int n = vasprintf(&text, fmt, ap);
  va_end(ap);
  return checked(n < 0 ? NULL : text, 1);
}
