/* What patterns ask of code points: properties (\pL, \p{Lu}, \p{Greek}), and others that differ by their case alone.
 * The tables are RE2's (tools/regex_unicode.py). */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/regex_internal.h"

struct regex_fold { /* every step-th code point from lo to hi has another case, delta further on */
  uint32_t lo, hi;
  int32_t delta;
  uint32_t step;
};
#include "base/regex_unicode.inc"

/* Runs whose name fits; the last one ends with the last code point. */
static void add_runs(const uint32_t *runs, size_t n, const bool *fits, regex_add_range add, void *arg) {
  for (size_t i = 0; i < n; i++)
    if (fits[runs[i] & 255]) add(arg, runs[i] >> 8, i + 1 < n ? (runs[i + 1] >> 8) - 1 : RX_MAX_RUNE);
}

/* Those of the names that are, or begin with, the one that was asked for; false: none. names[0] has place 1. */
static bool find(const char *const *names, size_t n_names, const char *name, size_t n, bool begins, bool *fits) {
  bool any = false;
  for (size_t i = 0; i < n_names; i++) {
    fits[i + 1] = strncmp(names[i], name, n) == 0 && (begins || !names[i][n]);
    any |= fits[i + 1];
  }
  return any;
}

bool regex_property(const char *name, size_t n, regex_add_range add, void *arg) {
  bool fits[256] = {false};
  if (n == 3 && memcmp(name, "Any", 3) == 0) add(arg, 0, RX_MAX_RUNE);
  else if (n && n <= 2 && find(category_names, COUNT_OF(category_names), name, n, n == 1, fits))
    add_runs(category_runs, COUNT_OF(category_runs), fits, add, arg);
  else if (n && find(script_names, COUNT_OF(script_names), name, n, false, fits))
    add_runs(script_runs, COUNT_OF(script_runs), fits, add, arg);
  else return false;
  return true;
}

/* ---- other cases ---- */

/* The first run that c may be in: the last that begins before it, or the one before that, since neighbours take turns
 * (one has the even, one the odd). */
static size_t first_fold(uint32_t c) {
  size_t from = 0, to = COUNT_OF(folds);
  while (from < to) {
    size_t middle = (from + to) / 2;
    if (folds[middle].lo <= c) from = middle + 1;
    else to = middle;
  }
  return from > 1 ? from - 2 : 0;
}

static uint32_t next_case(uint32_t c) {
  for (size_t i = first_fold(c); i < COUNT_OF(folds) && folds[i].lo <= c; i++)
    if (c <= folds[i].hi && (c - folds[i].lo) % folds[i].step == 0) return (uint32_t)((int32_t)c + folds[i].delta);
  return c;
}

void regex_other_cases(uint32_t lo, uint32_t hi, regex_add_range add, void *arg) {
  for (size_t i = first_fold(lo); i < COUNT_OF(folds) && folds[i].lo <= hi; i++) {
    const struct regex_fold *f = &folds[i];
    uint32_t behind = lo > f->lo ? (lo - f->lo + f->step - 1) / f->step * f->step : 0;
    for (uint32_t c = f->lo + behind; c <= MIN(f->hi, hi); c += f->step)
      for (uint32_t other = next_case(c); other != c; other = next_case(other)) add(arg, other, other);
  }
}
