/* Snappy's block format: a length, then literals and copies from what is already out. Written by hand because it is
 * small, and tables, records and dataset elements of TensorFlow's need no more of the library than this.
 *
 *   block    varint length of the plain bytes, then elements; an element begins with a tag byte whose low bits say
 *     00     a literal: tag >> 2 is its length - 1; 60 to 63: that many - 59 bytes follow which hold it
 *     01     a copy: length - 4 in bits 2 to 4, how far back in bits 5 to 7 (high part) and the byte that follows
 *     10 11  a copy: length - 1 in tag >> 2, how far back in the two (four) bytes that follow */
#ifndef BASE_SNAPPY_H
#define BASE_SNAPPY_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

/* The most plain bytes that one packed byte can stand for (64 of 3), rounded up. */
enum { SNAPPY_MOST = 22 };

/* How many plain bytes a block says it holds; 0 when it could not hold so many. */
uint64_t snappy_length(const void *data, size_t n);
/* The plain bytes, which the caller frees. DATA_LOSS when the block is broken: no memory is taken for a length that it
 * could not hold. */
shoal_status snappy_decode(const void *data, size_t n, char **out, size_t *out_n);
/* Adds data as a block. False, and out is as before, when there is no memory. n: below 2^32. */
bool snappy_encode(const void *data, size_t n, struct text *out);

#endif
