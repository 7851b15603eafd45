/* Philox 4x32-10: random numbers as a function of a 128-bit counter and a 64-bit key, so that any part of a stream
 * can be made by any thread. The same seeds give the numbers TensorFlow gives, bit for bit. */
#ifndef BASE_PHILOX_H
#define BASE_PHILOX_H

#include <math.h>
#include <stdint.h>
#include <string.h>

struct philox {
  uint32_t counter[4]; /* [0] is the least significant */
  uint32_t key[2];
};

/* The generator of an op with attributes seed and seed2. */
static inline struct philox philox_from_seeds(uint64_t seed, uint64_t seed2) {
  return (struct philox){{0, 0, (uint32_t)seed2, (uint32_t)(seed2 >> 32)}, {(uint32_t)seed, (uint32_t)(seed >> 32)}};
}
/* The generator of a stateless op: key and counter are drawn from the pair by Philox itself. */
struct philox philox_from_pair(uint64_t seed0, uint64_t seed1);

/* Steps over n blocks of four numbers. */
void philox_skip(struct philox *p, uint64_t n);
/* The block at the counter; the counter moves on by one. */
void philox_next(struct philox *p, uint32_t out[4]);
/* n blocks, many at once; the counter moves on by n. */
void philox_blocks(struct philox *p, uint32_t *out, size_t n);

/* Numbers taken one by one. */
struct philox_stream {
  struct philox p;
  uint32_t block[4];
  int used; /* of block; 4: empty */
};
static inline struct philox_stream philox_stream(struct philox p) { return (struct philox_stream){.p = p, .used = 4}; }
static inline uint32_t philox_u32(struct philox_stream *s) {
  if (s->used == 4) {
    philox_next(&s->p, s->block);
    s->used = 0;
  }
  return s->block[s->used++];
}
static inline uint64_t philox_u64(struct philox_stream *s) {
  uint64_t lo = philox_u32(s), hi = philox_u32(s);
  return lo | hi << 32;
}

/* Bits to a number in [0, 1): the mantissa of a number in [1, 2). */
static inline float philox_float(uint32_t x) {
  uint32_t bits = 127u << 23 | (x & 0x7fffffu);
  float f;
  memcpy(&f, &bits, 4);
  return f - 1.0f;
}
static inline double philox_double(uint32_t x0, uint32_t x1) {
  uint64_t bits = (uint64_t)1023 << 52 | (uint64_t)(x0 & 0xfffffu) << 32 | x1;
  double d;
  memcpy(&d, &bits, 8);
  return d - 1.0;
}
static inline float philox_stream_float(struct philox_stream *s) { return philox_float(philox_u32(s)); }
static inline double philox_stream_double(struct philox_stream *s) {
  uint32_t x0 = philox_u32(s), x1 = philox_u32(s);
  return philox_double(x0, x1);
}

/* A number in [0, n) without bias: what would favour small ones is drawn again. */
static inline uint32_t philox_below32(struct philox_stream *s, uint32_t n) {
  if ((n & (n - 1)) == 0) return philox_u32(s) & (n - 1);
  uint32_t least = UINT32_MAX % n + 1, v;
  do v = philox_u32(s);
  while (v < least);
  return v % n;
}
static inline uint64_t philox_below64(struct philox_stream *s, uint64_t n) {
  if ((n & (n - 1)) == 0) return philox_u64(s) & (n - 1);
  uint64_t least = UINT64_MAX % n + 1, v;
  do v = philox_u64(s);
  while (v < least);
  return v % n;
}

/* Two normal numbers from two uniform ones (Box and Muller). */
static inline void philox_normal_float(uint32_t x0, uint32_t x1, float out[2]) {
  float u = philox_float(x0);
  if (u < 1e-7f) u = 1e-7f;
  float angle = (float)(2.0 * M_PI * (double)philox_float(x1)), r = sqrtf(-2.0f * logf(u)), s, c;
  sincosf(angle, &s, &c);
  out[0] = s * r;
  out[1] = c * r;
}
static inline void philox_normal_double(const uint32_t x[4], double out[2]) {
  double u = philox_double(x[0], x[1]);
  if (u < 1e-7) u = 1e-7;
  double angle = 2.0 * M_PI * philox_double(x[2], x[3]), r = sqrt(-2.0 * log(u)), s, c;
  sincos(angle, &s, &c);
  out[0] = s * r;
  out[1] = c * r;
}

#endif
