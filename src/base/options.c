#include "base/options.h"

#include <stdint.h>
#include <string.h>

enum { LARGEST = 65536 }; /* a size above it is none: nothing that far may be read */

shoal_status options_take(void *to, size_t size, size_t first, const void *from, const char *type) {
  if (!from) return NULL;
  size_t given;
  memcpy(&given, from, sizeof given);
  if (!given && !first) return INVALID("%s has no size: start from its defaults, the macro beside it", type);
  if (!given) given = first;
  if (given < sizeof given || given > LARGEST)
    return INVALID("%s has the size %zu, which no version of it has: fill it with SHOAL_OPTIONS, or with zeros", type,
                   given);
  memcpy(to, from, given < size ? given : size);
  memcpy(to, &size, sizeof size);
  const uint8_t *bytes = from;
  for (size_t i = size; i < given; i++)
    if (bytes[i])
      return INVALID(
          "%s has %zu bytes, of which this version of Shoal knows %zu, and byte %zu is not zero: the program "
          "was compiled for a newer version and uses what that one added",
          type, given, size, i);
  return NULL;
}
