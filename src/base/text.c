/* Growing text and string helpers. */
#include "base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static void reserve(struct text *t, size_t extra) {
  size_t want = t->n + extra + 1;
  if (want <= t->cap) return;
  t->cap = MAX(want, t->cap ? t->cap * 2 : 64);
  t->at = mem_realloc(t->at, t->cap, 1);
}

void text_add(struct text *t, const char *data, size_t n) {
  reserve(t, n);
  if (n) memcpy(t->at + t->n, data, n);
  t->n += n;
  t->at[t->n] = 0;
}

void text_adds(struct text *t, const char *s) { text_add(t, s, strlen(s)); }

void text_addc(struct text *t, char c) { text_add(t, &c, 1); }

void text_addf(struct text *t, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  va_list again;
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  if (n > 0) {
    reserve(t, (size_t)n);
    vsnprintf(t->at + t->n, (size_t)n + 1, fmt, again);
    t->n += (size_t)n;
  }
  va_end(again);
}

const char *text_cstr(const struct text *t) { return t->at ? t->at : ""; }

char *text_take(struct text *t) {
  char *s = t->at ? t->at : mem_strdup("");
  *t = (struct text){0};
  return s;
}

void text_release(struct text *t) {
  free(t->at);
  *t = (struct text){0};
}

bool str_starts(const char *s, const char *prefix) { return strncmp(s, prefix, strlen(prefix)) == 0; }

bool str_ends(const char *s, const char *suffix) {
  size_t n = strlen(s), k = strlen(suffix);
  return n >= k && memcmp(s + n - k, suffix, k) == 0;
}

bool str_to_int64(const char *s, int64_t *out) {
  if (!*s || *s == ' ' || *s == '+') return false;
  char *end;
  errno = 0;
  long long v = strtoll(s, &end, 10);
  if (errno || *end) return false;
  *out = v;
  return true;
}

uint64_t hash_bytes(const void *data, size_t n, uint64_t seed) {
  const unsigned char *p = data;
  uint64_t h = seed ^ (n * 0x9e3779b97f4a7c15ull);
  while (n >= 8) {
    uint64_t w;
    memcpy(&w, p, 8);
    h = (h ^ w) * 0xff51afd7ed558ccdull;
    h ^= h >> 32;
    p += 8;
    n -= 8;
  }
  uint64_t w = 0;
  if (n) memcpy(&w, p, n);
  h = (h ^ w) * 0xc4ceb9fe1a85ec53ull;
  return h ^ (h >> 29);
}

uint64_t hash64_stable(const void *data, size_t n) {
  const uint64_t m = 0xc6a4a7935bd1e995ull;
  const unsigned char *p = data;
  uint64_t h = 0xDECAFCAFFEull ^ (n * m);
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t k;
    memcpy(&k, p, 8);
    k *= m;
    k ^= k >> 47;
    h = (h ^ (k * m)) * m;
  }
  if (n) {
    uint64_t k = 0;
    memcpy(&k, p, n);
    h = (h ^ k) * m;
  }
  h = (h ^ (h >> 47)) * m;
  return h ^ (h >> 47);
}
