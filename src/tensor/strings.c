/* Counted texts; see strings.h. */
#include "tensor/strings.h"

bool counted_text_reserve(struct text *t, size_t extra) {
  size_t want;
  if (__builtin_add_overflow(t->n, extra, &want)) return false;
  if (want >= t->cap && !strings_have_room(want)) return false;
  size_t before = t->cap;
  if (!text_try_reserve(t, extra)) return false;
  if (t->cap != before) strings_count((int64_t)(t->cap - before));
  return true;
}

bool counted_text_add(struct text *t, const char *data, size_t n) {
  if (!counted_text_reserve(t, n)) return false;
  text_add(t, data, n);
  return true;
}

void counted_text_release(struct text *t) {
  strings_count(-(int64_t)t->cap);
  text_release(t);
}
