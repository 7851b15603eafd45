/* What a program must give to a function of the public API: what is NULL, or of less than no elements, is
 * INVALID_ARGUMENT under the function's name and the argument's. The object that a function is of is taken to be there;
 * an array may be NULL where it has no elements. Only in functions of the API itself: __func__ is what was called. */
#ifndef BASE_GIVEN_H
#define BASE_GIVEN_H

#include <stdint.h>

#include "base/status.h"

#define GIVEN(arg)                                                \
  do {                                                            \
    if (!(arg)) return INVALID("%s: %s is NULL", __func__, #arg); \
  } while (0)
#define GIVEN_ARRAY(array, n) TRY(given_array(__func__, #array, array, n))
#define GIVEN_NAMES(array, n) TRY(given_names(__func__, #array, array, n))

static inline shoal_status given_array(const char *func, const char *arg, const void *array, int64_t n) {
  if (n < 0) return INVALID("%s: %s is of %lld elements", func, arg, (long long)n);
  return n && !array ? INVALID("%s: %s is NULL", func, arg) : NULL;
}

static inline shoal_status given_names(const char *func, const char *arg, const char *const *names, int64_t n) {
  TRY(given_array(func, arg, names, n));
  for (int64_t i = 0; i < n; i++)
    if (!names[i]) return INVALID("%s: %s[%lld] is NULL", func, arg, (long long)i);
  return NULL;
}

#endif
