/* Checked allocation for small control structures, and memory that may be refused. */
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

/* ---- what may fail ---- */

long mem_failing; /* atomic; how many attempts are left until one fails */

bool mem_fails_now(void) { return __atomic_sub_fetch(&mem_failing, 1, __ATOMIC_RELAXED) == 0; }

bool mem_fail_at(long k) { return __atomic_exchange_n(&mem_failing, k, __ATOMIC_RELAXED) <= 0; }

void *mem_try_alloc(size_t size) { return mem_fails() ? NULL : malloc(size ? size : 1); }

void *mem_try_zalloc(size_t count, size_t size) {
  return mem_fails() ? NULL : calloc(count ? count : 1, size ? size : 1);
}

void *mem_try_realloc(void *p, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || mem_fails()) return NULL;
  return realloc(p, bytes ? bytes : 1);
}

/* s may be NULL where n is 0: an empty string that came from a message has no place. */
static char *copy_text(char *to, const char *s, size_t n) {
  if (n) memcpy(to, s, n);
  to[n] = 0;
  return to;
}

char *mem_try_strndup(const char *s, size_t n) {
  char *copy = n < SIZE_MAX ? mem_try_alloc(n + 1) : NULL;
  return copy ? copy_text(copy, s, n) : NULL;
}

/* ---- what may not ---- */

char *mem_strdup(const char *s) { return checked(strdup(s), 1); }

char *mem_strndup(const char *s, size_t n) { return copy_text(mem_alloc(n + 1), s, n); }

char *mem_printf(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  char *text = NULL;
  int n = vasprintf(&text, fmt, ap);
  va_end(ap);
  return checked(n < 0 ? NULL : text, 1);
}
