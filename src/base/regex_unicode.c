/* Properties of code points that patterns name: \pL, \p{Lu}, \p{Greek}. The tables are RE2's (tools/regex_unicode.py).
 */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/regex_internal.h"

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
