/* Snappy; see snappy.h. The encoder looks for what begins with the same four bytes in the 64 KB before, by a table of
 * the last place of each hash, and takes longer steps the longer it finds nothing: bytes that do not repeat cost one
 * look in many. */
#include "base/snappy.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/wire.h"

static shoal_status lost(void) { return STATUS(SHOAL_DATA_LOSS, "corrupted compressed block contents"); }

uint64_t snappy_length(const void *data, size_t n) {
  struct wire w = wire_from(data, n);
  uint64_t length;
  return wire_get_varint(&w, &length) && length / SNAPPY_MOST <= n ? length : 0;
}

shoal_status snappy_decode(const void *data, size_t n, char **out, size_t *out_n) {
  struct wire w = wire_from(data, n);
  uint64_t length;
  if (!wire_get_varint(&w, &length) || length / SNAPPY_MOST > n) return lost();
  char *at = mem_try_alloc(length + 1);
  if (!at) return NO_MEMORY(length, "packed bytes");
  size_t made = 0;
  while (w.at < w.end) {
    unsigned tag = *w.at++, kind = tag & 3;
    size_t len, back = 0, extra;
    if (kind == 0) {
      len = (tag >> 2) + 1;
      extra = len > 60 ? len - 60 : 0;
      if (extra > wire_left(&w)) goto bad;
      if (extra) {
        len = 0;
        for (size_t i = 0; i < extra; i++) len |= (size_t)*w.at++ << (8 * i);
        len++;
      }
      if (len > wire_left(&w) || len > length - made) goto bad;
      memcpy(at + made, w.at, len);
      w.at += len;
      made += len;
      continue;
    }
    extra = kind == 3 ? 4 : kind;
    if (extra > wire_left(&w)) goto bad;
    len = kind == 1 ? (tag >> 2 & 7) + 4 : (tag >> 2) + 1;
    for (size_t i = 0; i < extra; i++) back |= (size_t)*w.at++ << (8 * i);
    if (kind == 1) back |= (size_t)(tag >> 5) << 8;
    if (back == 0 || back > made || len > length - made) goto bad;
    for (; len; len--, made++) at[made] = at[made - back];
  }
  if (made != length) goto bad;
  *out = at;
  *out_n = made;
  return NULL;
bad:
  free(at);
  return lost();
}

/* ---- encoding ---- */

enum { HASH_BITS = 14, LEAST = 4, REACH = 65535, MOST_COPIED = 64 };

static uint32_t load32(const uint8_t *p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return v;
}

static uint32_t hash(uint32_t v) { return v * 0x1e35a7bdu >> (32 - HASH_BITS); }

static uint8_t *put_literal(uint8_t *to, const uint8_t *from, size_t n) {
  if (!n) return to;
  size_t v = n - 1;
  if (v < 60) {
    *to++ = (uint8_t)(v << 2);
  } else {
    uint8_t *tag = to++;
    int bytes = 0;
    for (size_t rest = v; rest; rest >>= 8, bytes++) *to++ = (uint8_t)rest;
    *tag = (uint8_t)((59 + bytes) << 2);
  }
  memcpy(to, from, n);
  return to + n;
}

static uint8_t *put_copy(uint8_t *to, size_t back, size_t n) {
  while (n) {
    /* What is left over must still be worth a copy of its own. */
    size_t len = n <= MOST_COPIED ? n : n < MOST_COPIED + LEAST ? MOST_COPIED - LEAST : MOST_COPIED;
    *to++ = (uint8_t)((len - 1) << 2 | 2);
    *to++ = (uint8_t)back;
    *to++ = (uint8_t)(back >> 8);
    n -= len;
  }
  return to;
}

bool snappy_encode(const void *data, size_t n, struct text *out) {
  const uint8_t *in = data;
  size_t had = out->n;
  uint32_t *places = mem_try_zalloc((size_t)1 << HASH_BITS, sizeof *places); /* place + 1 */
  /* A literal's header is 5 bytes at most, and a copy is never longer than what it stands for. */
  if (!places || !text_try_reserve(out, n + n / 6 + 32)) {
    free(places);
    return false;
  }
  wire_put_varint(out, n);
  uint8_t *start = (uint8_t *)out->at + out->n, *to = start;
  size_t done = 0, at = 0, misses = 0;
  while (at + LEAST <= n) {
    uint32_t v = load32(in + at), *place = &places[hash(v)];
    size_t before = *place;
    *place = (uint32_t)(at + 1);
    if (!before || at + 1 - before > REACH || load32(in + before - 1) != v) {
      at += 1 + (misses++ >> 5);
      continue;
    }
    size_t from = before - 1, len = LEAST;
    while (at + len < n && in[from + len] == in[at + len]) len++;
    to = put_literal(to, in + done, at - done);
    to = put_copy(to, at - from, len);
    at += len;
    done = at;
    misses = 0;
  }
  to = put_literal(to, in + done, n - done);
  out->n += (size_t)(to - start);
  out->at[out->n] = 0;
  free(places);
  return out->n > had;
}
