/* CRC-32C (Castagnoli), the checksum of records, event files and checkpoints, and the mask they store it under. */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what had checksum crc, followed by n more bytes. Begin with 0. */
uint32_t crc32c_extend(uint32_t crc, const void *data, size_t n);
static inline uint32_t crc32c(const void *data, size_t n) { return crc32c_extend(0, data, n); }

/* That of bytes with checksum a, followed by n bytes with checksum b: parts may be summed side by side. */
uint32_t crc32c_join(uint32_t a, uint32_t b, uint64_t n);

/* A checksum stored next to what it checks is masked, so that a checksum over checksums stays meaningful. */
static inline uint32_t crc32c_mask(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }
static inline uint32_t crc32c_unmask(uint32_t masked) {
  uint32_t r = masked - 0xa282ead8u;
  return (r >> 17) | (r << 15);
}

#endif
