/* Numbers of files that are written in the other order of bytes. */
#ifndef DATA_BYTE_ORDER_H
#define DATA_BYTE_ORDER_H

#include <stddef.h>
#include <stdint.h>

/* Each of n elements of that size. */
static inline void swap_bytes(void *elements, int64_t n, size_t size) {
  unsigned char *at = elements;
  for (int64_t i = 0; i < n; i++, at += size)
    for (size_t k = 0; k < size / 2; k++) {
      unsigned char c = at[k];
      at[k] = at[size - 1 - k];
      at[size - 1 - k] = c;
    }
}

#endif
