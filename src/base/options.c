#include "base/options.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"

enum { LARGEST = 65536 }; /* a size above it is none: nothing that far may be read */

/* What comes after what is known here must be zero. */
static shoal_status unknown_are_zero(const uint8_t *bytes, size_t size, size_t given, const char *type) {
  for (size_t i = size; i < given; i++)
    if (bytes[i])
      return INVALID(
          "%s has %zu bytes, of which this version of Shoal knows %zu, and byte %zu is not zero: the program "
          "was compiled for a newer version and uses what that one added",
          type, given, size, i);
  return NULL;
}

shoal_status options_take(void *to, size_t size, size_t first, const void *from, const char *type) {
  if (!from) return NULL;
  size_t given;
  memcpy(&given, from, sizeof given);
  if (!given && !first) return INVALID("%s has no size: start from its defaults, the macro beside it", type);
  bool odd = given % sizeof given; /* they begin with a size_t, and end where another could begin */
  if (!given) given = first;
  if (odd || given < sizeof given || given > LARGEST)
    return INVALID("%s has the size %zu, which no version of it has: fill it with SHOAL_OPTIONS, or with zeros", type,
                   given);
  memcpy(to, from, given < size ? given : size);
  memcpy(to, &size, sizeof size);
  return unknown_are_zero(from, size, given, type);
}

shoal_status options_take_array(void *to, size_t size, size_t first, const void *from, int n, size_t given,
                                const char *type) {
  uint8_t *own = NULL;
  memcpy(to, &own, sizeof own);
  if (!given) given = first;
  if (given < first || given > LARGEST)
    return INVALID("%s has the size %zu, which no version of it has: say sizeof(%s), or 0", type, given, type);
  if (n < 1) return NULL;
  own = mem_zalloc((size_t)n, size);
  memcpy(to, &own, sizeof own);
  for (int i = 0; i < n; i++) {
    const uint8_t *one = (const uint8_t *)from + (size_t)i * given;
    memcpy(own + (size_t)i * size, one, given < size ? given : size);
    TRY(unknown_are_zero(one, size, given, type));
  }
  return NULL;
}
