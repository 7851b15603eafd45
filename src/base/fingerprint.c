/* Stable hashes, from their published descriptions (FarmHash "na", SipHash-2-4, MurmurHash64A). Numbers are read
 * little-endian on any machine. */
#include "base/fingerprint.h"

#define K0 0xc3a5c85c97cb3127ull
#define K1 0xb492b66fbe98f273ull
#define K2 0x9ae16a3b2f90404full

static uint64_t load64(const uint8_t *p) {
  uint64_t v = 0;
  for (int i = 0; i < 8; i++) v |= (uint64_t)p[i] << (8 * i);
  return v;
}
static uint64_t load32(const uint8_t *p) {
  return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
}
static uint64_t rotate_right(uint64_t v, int n) { return v >> n | v << (64 - n); }
static uint64_t rotate_left(uint64_t v, int n) { return v << n | v >> (64 - n); }
static uint64_t mix(uint64_t v) { return v ^ v >> 47; }

static uint64_t join(uint64_t u, uint64_t v, uint64_t mul) {
  uint64_t a = mix((u ^ v) * mul);
  return mix((v ^ a) * mul) * mul;
}

static uint64_t short_hash(const uint8_t *s, size_t n) {
  uint64_t mul = K2 + n * 2;
  if (n >= 8) {
    uint64_t a = load64(s) + K2, b = load64(s + n - 8);
    return join(rotate_right(b, 37) * mul + a, (rotate_right(a, 25) + b) * mul, mul);
  }
  if (n >= 4) return join(n + (load32(s) << 3), load32(s + n - 4), mul);
  if (n == 0) return K2;
  uint32_t y = s[0] + ((uint32_t)s[n >> 1] << 8), z = (uint32_t)n + ((uint32_t)s[n - 1] << 2);
  return mix(y * K2 ^ z * K0) * K2;
}

static uint64_t hash_to_32(const uint8_t *s, size_t n) {
  uint64_t mul = K2 + n * 2, a = load64(s) * K1, b = load64(s + 8), c = load64(s + n - 8) * mul;
  uint64_t d = load64(s + n - 16) * K2;
  return join(rotate_right(a + b, 43) + rotate_right(c, 30) + d, a + rotate_right(b + K2, 18) + c, mul);
}

static uint64_t hash_to_64(const uint8_t *s, size_t n) {
  uint64_t mul = K2 + n * 2, a = load64(s) * K2, b = load64(s + 8), c = load64(s + n - 8) * mul;
  uint64_t d = load64(s + n - 16) * K2, y = rotate_right(a + b, 43) + rotate_right(c, 30) + d;
  uint64_t z = join(y, a + rotate_right(b + K2, 18) + c, mul);
  uint64_t e = load64(s + 16) * mul, f = load64(s + 24), g = (y + load64(s + n - 32)) * mul;
  uint64_t h = (z + load64(s + n - 24)) * mul;
  return join(rotate_right(e + f, 43) + rotate_right(g, 30) + h, e + rotate_right(f + a, 18) + g, mul);
}

struct pair {
  uint64_t a, b;
};

static struct pair weak(const uint8_t *s, uint64_t a, uint64_t b) {
  uint64_t w = load64(s), x = load64(s + 8), y = load64(s + 16), z = load64(s + 24), c;
  a += w;
  b = rotate_right(b + a + z, 21);
  c = a;
  a += x + y;
  b += rotate_right(a, 44);
  return (struct pair){a + z, b + c};
}

/* What both long hashes carry from one piece of 64 bytes to the next. */
struct long_hash {
  uint64_t x, y, z;
  struct pair v, w;
};

/* One piece. The last one of fingerprint64 has a multiplier of its own and weighs v.a and w.b by more than 1. */
static void mix_64(struct long_hash *h, const uint8_t *s, uint64_t mul, uint64_t weight) {
  uint64_t x = rotate_right(h->x + h->y + h->v.a + load64(s + 8), 37) * mul ^ h->w.b * weight;
  h->y = rotate_right(h->y + h->v.b + load64(s + 48), 42) * mul + h->v.a * weight + load64(s + 40);
  h->x = rotate_right(h->z + h->w.a, 33) * mul;
  h->v = weak(s, h->v.b * mul, x + h->w.a);
  h->w = weak(s + 32, h->x + h->w.b, h->y + load64(s + 16));
  h->z = x;
}

uint64_t fingerprint64(const void *data, size_t n) {
  const uint8_t *s = data;
  if (n <= 16) return short_hash(s, n);
  if (n <= 32) return hash_to_32(s, n);
  if (n <= 64) return hash_to_64(s, n);
  const uint64_t seed = 81;
  struct long_hash h = {.x = seed * K2 + load64(s), .y = seed * K1 + 113};
  h.z = mix(h.y * K2 + 113) * K2;
  size_t left = (n - 1) & 63;
  const uint8_t *end = s + (n - 1) / 64 * 64;
  for (; s != end; s += 64) mix_64(&h, s, K1, 1);
  uint64_t mul = K1 + ((h.z & 0xff) << 1);
  h.w.a += left;
  h.v.a += h.w.a;
  h.w.a += h.v.a;
  mix_64(&h, end + left - 63, mul, 9);
  return join(join(h.v.a, h.w.a, mul) + mix(h.y) * K0 + h.z, join(h.v.b, h.w.b, mul) + h.x, mul);
}

/* ---- 128 bits: CityHash's, which FarmHash kept ---- */

#define K_JOIN 0x9ddfea08eb382d69ull

static struct pair to_127(const uint8_t *s, size_t n, struct pair seed) {
  uint64_t a = seed.a, b = seed.b, c, d;
  if (n <= 16) {
    a = mix(a * K1) * K1;
    c = b * K1 + short_hash(s, n);
    d = mix(a + (n >= 8 ? load64(s) : c));
  } else {
    c = join(load64(s + n - 8) + K1, a, K_JOIN);
    d = join(b + n, c + load64(s + n - 16), K_JOIN);
    a += d;
    for (int64_t left = (int64_t)n - 16; left > 0; left -= 16, s += 16) {
      a = (a ^ mix(load64(s) * K1) * K1) * K1;
      b ^= a;
      c = (c ^ mix(load64(s + 8) * K1) * K1) * K1;
      d ^= c;
    }
  }
  a = join(a, c, K_JOIN);
  b = join(d, b, K_JOIN);
  return (struct pair){a ^ b, join(b, a, K_JOIN)};
}

static struct pair from_128(const uint8_t *s, size_t n, struct pair seed) {
  struct long_hash h = {.x = seed.a, .y = seed.b, .z = n * K1};
  h.v.a = rotate_right(h.y ^ K1, 49) * K1 + load64(s);
  h.v.b = rotate_right(h.v.a, 42) * K1 + load64(s + 8);
  h.w.a = rotate_right(h.y + h.z, 35) * K1 + h.x;
  h.w.b = rotate_right(h.x + load64(s + 88), 53) * K1;
  for (; n >= 128; n -= 128)
    for (int half = 0; half < 2; half++, s += 64) mix_64(&h, s, K1, 1);
  uint64_t x = h.x, y = h.y, z = h.z;
  struct pair v = h.v, w = h.w;
  x += rotate_right(v.a + z, 49) * K0;
  y = y * K0 + rotate_right(w.b, 37);
  z = z * K0 + rotate_right(w.a, 27);
  w.a *= 9;
  v.a *= K0;
  for (size_t done = 0; done < n;) { /* the rest, from its end: it reaches back into what was read */
    done += 32;
    const uint8_t *at = s + n - done;
    y = rotate_right(x + y, 42) * K0 + v.b;
    w.a += load64(at + 16);
    x = x * K0 + w.a;
    z += w.b + load64(at);
    w.b += v.a;
    v = weak(at, v.a + z, v.b);
    v.a *= K0;
  }
  x = join(x, v.a, K_JOIN);
  y = join(y + z, w.a, K_JOIN);
  return (struct pair){join(x + v.b, w.b, K_JOIN) + y, join(x + w.b, y + v.b, K_JOIN)};
}

void fingerprint128(const void *data, size_t n, uint64_t *low, uint64_t *high) {
  const uint8_t *s = data;
  struct pair seed = {K0, K1};
  if (n >= 16) {
    seed = (struct pair){load64(s), load64(s + 8) + K0};
    s += 16;
    n -= 16;
  }
  struct pair h = n < 128 ? to_127(s, n, seed) : from_128(s, n, seed);
  *low = h.a;
  *high = h.b;
}

static void sip_round(uint64_t v[4]) {
  v[0] += v[1];
  v[1] = rotate_left(v[1], 13) ^ v[0];
  v[0] = rotate_left(v[0], 32);
  v[2] += v[3];
  v[3] = rotate_left(v[3], 16) ^ v[2];
  v[0] += v[3];
  v[3] = rotate_left(v[3], 21) ^ v[0];
  v[2] += v[1];
  v[1] = rotate_left(v[1], 17) ^ v[2];
  v[2] = rotate_left(v[2], 32);
}

uint64_t siphash64(uint64_t key0, uint64_t key1, const void *data, size_t n) {
  uint64_t v[4] = {key0 ^ 0x736f6d6570736575ull, key1 ^ 0x646f72616e646f6dull, key0 ^ 0x6c7967656e657261ull,
                   key1 ^ 0x7465646279746573ull};
  const uint8_t *s = data;
  uint64_t last = (uint64_t)n << 56;
  for (; n >= 8; n -= 8, s += 8) {
    uint64_t m = load64(s);
    v[3] ^= m;
    sip_round(v);
    sip_round(v);
    v[0] ^= m;
  }
  for (size_t i = 0; i < n; i++) last |= (uint64_t)s[i] << (8 * i);
  v[3] ^= last;
  sip_round(v);
  sip_round(v);
  v[0] ^= last;
  v[2] ^= 0xff;
  for (int i = 0; i < 4; i++) sip_round(v);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t murmur64(const void *data, size_t n, uint64_t seed) {
  const uint64_t m = 0xc6a4a7935bd1e995ull;
  uint64_t h = seed ^ n * m;
  const uint8_t *s = data;
  for (; n >= 8; n -= 8, s += 8) {
    uint64_t k = load64(s) * m;
    h = (h ^ (k ^ k >> 47) * m) * m;
  }
  if (n) {
    uint64_t k = 0;
    for (size_t i = 0; i < n; i++) k |= (uint64_t)s[i] << (8 * i);
    h = (h ^ k) * m;
  }
  h = (h ^ h >> 47) * m;
  return h ^ h >> 47;
}
