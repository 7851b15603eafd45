/* Hashes whose values are part of a contract: the same bytes give the same number in every version and on every
 * machine, and the number that TensorFlow gives. For tables in memory use hash_bytes() of base/text.h. */
#ifndef BASE_FINGERPRINT_H
#define BASE_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

/* FarmHash's Fingerprint64. */
uint64_t fingerprint64(const void *data, size_t n);
/* FarmHash's Fingerprint128. */
void fingerprint128(const void *data, size_t n, uint64_t *low, uint64_t *high);
/* The fingerprint of two fingerprints side by side, as feature crosses use it. */
static inline uint64_t fingerprint_cat64(uint64_t a, uint64_t b) {
  const uint64_t mul = 0xc6a4a7935bd1e995ull;
  uint64_t h = a ^ mul;
  h ^= ((b * mul) ^ ((b * mul) >> 47)) * mul;
  h *= mul;
  h = (h ^ (h >> 47)) * mul;
  return h ^ (h >> 47);
}
/* SipHash-2-4. */
uint64_t siphash64(uint64_t key0, uint64_t key1, const void *data, size_t n);
/* TensorFlow's Hash64 (a Murmur hash) with its usual seed, 0xDECAFCAFFE. */
uint64_t murmur64(const void *data, size_t n, uint64_t seed);
#define MURMUR64_SEED 0xdecafcaffeull

#endif
