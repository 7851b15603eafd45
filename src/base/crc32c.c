/* CRC-32C by the processor's instruction where it has one (looked up once, at run time), by tables otherwise.
 *
 * One stream of the instruction does 8 bytes in two or three cycles, more than memory or a disk delivers; folding
 * three streams together was not worth its tables. The portable form takes eight bytes a step ("slicing by 8"). */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#include "base/cpu.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

enum { POLYNOMIAL = 0x82f63b78 };

static uint32_t tables[8][256];

static uint32_t load32(const uint8_t *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t extend_by_tables(uint32_t c, const uint8_t *p, size_t n) {
  for (; n >= 8; n -= 8, p += 8) {
    uint32_t a = c ^ load32(p), b = load32(p + 4);
    c = tables[7][a & 255] ^ tables[6][a >> 8 & 255] ^ tables[5][a >> 16 & 255] ^ tables[4][a >> 24] ^
        tables[3][b & 255] ^ tables[2][b >> 8 & 255] ^ tables[1][b >> 16 & 255] ^ tables[0][b >> 24];
  }
  while (n--) c = c >> 8 ^ tables[0][(c ^ *p++) & 255];
  return c;
}

static void make_tables(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ (uint32_t)POLYNOMIAL : c >> 1;
    tables[0][i] = c;
  }
  for (uint32_t i = 0; i < 256; i++)
    for (int t = 1; t < 8; t++) tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 255];
}

#if defined(__aarch64__)
/* In assembly: compilers disagree on how a function asks for one instruction set more. */
static uint32_t extend_by_instruction(uint32_t c, const uint8_t *p, size_t n) {
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t w;
    memcpy(&w, p, 8);
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(c) : "r"(w));
  }
  for (; n; n--, p++) __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(c) : "r"((uint32_t)*p));
  return c;
}
static bool has_instruction(void) { return cpu_has(CPU_CRC32); }
#elif defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t extend_by_instruction(uint32_t c, const uint8_t *p, size_t n) {
  uint64_t wide = c;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t w;
    memcpy(&w, p, 8);
    wide = _mm_crc32_u64(wide, w);
  }
  c = (uint32_t)wide;
  while (n--) c = _mm_crc32_u8(c, *p++);
  return c;
}
static bool has_instruction(void) { return cpu_has(CPU_SSE42); }
#else
#define extend_by_instruction extend_by_tables
static bool has_instruction(void) { return false; }
#endif

static uint32_t (*extend)(uint32_t, const uint8_t *, size_t);

static void choose(void) {
  if (has_instruction()) {
    extend = extend_by_instruction;
  } else {
    make_tables();
    extend = extend_by_tables;
  }
}

uint32_t crc32c_extend(uint32_t crc, const void *data, size_t n) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, choose);
  return ~extend(~crc, data, n);
}

/* ---- joining ---- */

/* What a zero bit, or a number of zero bytes, makes of a checksum is linear over its bits: 32 words, one for each. */
static uint32_t apply(const uint32_t *op, uint32_t v) {
  uint32_t sum = 0;
  for (; v; v >>= 1, op++)
    if (v & 1) sum ^= *op;
  return sum;
}

static void twice(uint32_t *to, const uint32_t *op) {
  for (int i = 0; i < 32; i++) to[i] = apply(op, op[i]);
}

uint32_t crc32c_join(uint32_t a, uint32_t b, uint64_t n) {
  uint32_t op[32], next[32];
  op[0] = POLYNOMIAL; /* one zero bit */
  for (int i = 1; i < 32; i++) op[i] = 1u << (i - 1);
  for (int i = 0; i < 3; i++) { /* two, four, eight bits: a byte */
    twice(next, op);
    memcpy(op, next, sizeof op);
  }
  for (; n; n >>= 1) {
    if (n & 1) a = apply(op, a);
    twice(next, op);
    memcpy(op, next, sizeof op);
  }
  return a ^ b;
}
