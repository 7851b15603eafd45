/* Characters that somebody else has: a name inside a message, a part of a line. No NUL follows them. */
#ifndef BASE_CHARS_H
#define BASE_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct chars {
  const char *at;
  size_t n;
};

static inline bool slice_is(struct chars s, const char *text) {
  return strlen(text) == s.n && (!s.n || memcmp(s.at, text, s.n) == 0);
}

static inline bool slice_has_nul(struct chars s) { return s.n && memchr(s.at, 0, s.n); }

/* In a message, cut where it is long. */
enum { SLICE_SHOWN = 201 };
static inline const char *slice_shown(struct chars s, char out[SLICE_SHOWN]) {
  size_t n = s.n < SLICE_SHOWN ? s.n : SLICE_SHOWN - 1;
  if (n) memcpy(out, s.at, n);
  out[n] = 0;
  return out;
}
#define SLICE_CSTR(s) slice_shown((s), (char[SLICE_SHOWN]){0})

#endif
