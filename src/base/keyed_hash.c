/* SipHash-1-3 (Aumasson and Bernstein): one round a word, three at the end, as the dictionaries of other languages use
 * it. Faster keyed hashes are known, but of most of them somebody has found keys that collide whatever the secret. */
#include "base/keyed_hash.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t key[3]; /* two words of SipHash's, and an odd number */

static void draw(void) {
  if (getrandom(key, sizeof key, 0) != sizeof key) { /* no such call here: what an outsider knows least */
    key[0] = (uint64_t)clock_ns() * 0x9e3779b97f4a7c15u;
    key[1] = (uint64_t)(uintptr_t)&key ^ key[0] << 21;
    key[2] = key[0] ^ key[1] >> 7;
  }
  key[2] |= 1;
}

static uint64_t left(uint64_t v, int by) { return v << by | v >> (64 - by); }

struct sip {
  uint64_t a, b, c, d;
};

static void turn(struct sip *s) {
  s->a += s->b;
  s->b = left(s->b, 13) ^ s->a;
  s->a = left(s->a, 32);
  s->c += s->d;
  s->d = left(s->d, 16) ^ s->c;
  s->a += s->d;
  s->d = left(s->d, 21) ^ s->a;
  s->c += s->b;
  s->b = left(s->b, 17) ^ s->c;
  s->c = left(s->c, 32);
}

static void word(struct sip *s, uint64_t w) {
  s->d ^= w;
  turn(s);
  s->a ^= w;
}

uint64_t hash_keyed(const void *data, size_t n, uint64_t seed) {
  pthread_once(&once, draw);
  struct sip s = {0x736f6d6570736575u ^ key[0], 0x646f72616e646f6du ^ key[1], 0x6c7967656e657261u ^ key[0],
                  0x7465646279746573u ^ key[1]};
  const unsigned char *p = data;
  uint64_t last = (uint64_t)n << 56, w;
  if (seed) word(&s, seed);
  for (; n >= 8; p += 8, n -= 8) {
    memcpy(&w, p, 8);
    word(&s, w);
  }
  w = 0;
  if (n) memcpy(&w, p, n);
  word(&s, last | w);
  s.c ^= 0xff;
  for (int i = 0; i < 3; i++) turn(&s);
  return s.a ^ s.b ^ s.c ^ s.d;
}

uint64_t hash_keyed_number(uint64_t v) {
  pthread_once(&once, draw);
  return v * key[2];
}
