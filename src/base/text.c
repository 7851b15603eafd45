/* Growing text and string helpers. */
#include "base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/mem.h"

static void reserve(struct text *t, size_t extra) {
  size_t want = t->n + extra + 1;
  if (want <= t->cap) return;
  t->cap = MAX(want, t->cap ? t->cap * 2 : 64);
  t->at = (t->in_block ? block_realloc : mem_realloc)(t->at, t->cap, 1);
}

bool text_try_reserve(struct text *t, size_t extra) {
  size_t want;
  if (__builtin_add_overflow(t->n, extra, &want) || __builtin_add_overflow(want, 1, &want)) return false;
  if (want <= t->cap) return true;
  size_t cap = MAX(want, t->cap ? t->cap * 2 : 64);
  char *at = (t->in_block ? block_try_realloc : mem_try_realloc)(t->at, cap, 1);
  if (!at) return false;
  t->at = at;
  t->cap = cap;
  return true;
}

bool text_try_add(struct text *t, const char *data, size_t n) {
  if (!text_try_reserve(t, n)) return false;
  text_add(t, data, n);
  return true;
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

/* The length of the UTF-8 character at s, which is *out; 0: there is none. */
static size_t utf8_length(const unsigned char *s, size_t n, uint32_t *out) {
  *out = s[0];
  if (s[0] < 0x80) return 1;
  size_t length = s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : s[0] >= 0xe0 ? 3 : 2;
  if (s[0] < 0xc2 || s[0] >= 0xf5 || length > n) return 0;
  uint32_t c = s[0] & (0xff >> (length + 1));
  for (size_t i = 1; i < length; i++) {
    if ((s[i] & 0xc0) != 0x80) return 0;
    c = c << 6 | (s[i] & 0x3f);
  }
  *out = c;
  bool longer = (length == 3 && c < 0x800) || (length == 4 && (c < 0x10000 || c > 0x10ffff));
  return longer || (c >= 0xd800 && c < 0xe000) ? 0 : length;
}

/* The same for one that may be shown. */
static size_t shown_length(const unsigned char *s, size_t n) {
  uint32_t c;
  size_t length = utf8_length(s, n, &c);
  bool turns = (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0x2028 || c == 0x2029;
  return turns || c < ' ' || (c >= 0x7f && c < 0xa0) ? 0 : length;
}

bool str_is_utf8(const char *s, size_t n) {
  uint32_t c;
  size_t i = 0;
  for (size_t length; i < n && (length = utf8_length((const unsigned char *)s + i, n - i, &c)) != 0;) i += length;
  return i == n;
}

void text_add_utf8(struct text *t, const char *s, size_t n) {
  uint32_t c;
  for (size_t i = 0; i < n;) {
    size_t length = utf8_length((const unsigned char *)s + i, n - i, &c);
    if (length) text_add(t, s + i, length);
    else text_addf(t, "\\x%02x", (unsigned char)s[i]);
    i += length ? length : 1;
  }
}

void text_add_shown(struct text *t, const char *s, size_t n, bool lines) {
  for (size_t i = 0; i < n;) {
    size_t length = lines && (s[i] == '\n' || s[i] == '\t') ? 1 : shown_length((const unsigned char *)s + i, n - i);
    if (length) text_add(t, s + i, length);
    else text_addf(t, "\\x%02x", (unsigned char)s[i]);
    i += length ? length : 1;
  }
}

void text_add_json(struct text *t, const char *s) {
  text_addc(t, '"');
  for (size_t n = strlen(s); n;) {
    size_t length = shown_length((const unsigned char *)s, n);
    if (*s == '"' || *s == '\\') text_addf(t, "\\%c", *s);
    else if (length) text_add(t, s, length);
    else text_addf(t, "\\u%04x", (unsigned char)*s);
    length = length ? length : 1;
    s += length;
    n -= length;
  }
  text_addc(t, '"');
}

const char *text_cstr(const struct text *t) { return t->at ? t->at : ""; }

char *text_take(struct text *t) {
  char *s = t->at && !t->in_block ? t->at : mem_strndup(t->at, t->n);
  if (t->in_block) block_free(t->at);
  *t = (struct text){0};
  return s;
}

void text_release(struct text *t) {
  if (t->in_block) block_free(t->at);
  else free(t->at);
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
