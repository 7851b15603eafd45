#include "base/words.h"

#include <stdlib.h>
#include <string.h>

#include "base/keyed_hash.h"
#include "base/mem.h"

enum { FIRST_SLOTS = 1024, FIRST_BYTES = 16384 };

void words_release(struct words *w) {
  free(w->at);
  free(w->index);
  free(w->bytes);
  *w = (struct words){0};
}

size_t words_memory(const struct words *w) {
  return w->room * sizeof *w->at + w->cap * sizeof *w->index + w->bytes_room;
}

static uint32_t hash_word(const char *text, size_t n) {
  uint64_t h = hash_keyed(text, n, 0);
  return (uint32_t)(h ^ h >> 32);
}

/* The slot of a word, or the free one where it would be. */
static size_t slot_of(const struct words *w, const char *text, size_t n, uint32_t hash) {
  size_t mask = w->cap - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const struct words_slot *s = &w->index[i];
    if (!s->id) return i;
    const struct word *x = &w->at[s->id - 1];
    if (s->hash == hash && x->n == n && !memcmp(w->bytes + x->at, text, n)) return i;
  }
}

int64_t words_find(const struct words *w, const char *text, size_t n) {
  if (!w->cap) return -1;
  return (int64_t)w->index[slot_of(w, text, n, hash_word(text, n))].id - 1;
}

/* Enters all words again, into an index that is empty. */
static void fill(struct words *w) {
  size_t mask = w->cap - 1;
  for (size_t id = 0; id < w->n; id++) {
    size_t i = w->at[id].hash & mask;
    while (w->index[i].id) i = (i + 1) & mask;
    w->index[i] = (struct words_slot){w->at[id].hash, (uint32_t)id + 1};
  }
}

static void index_again(struct words *w) {
  if (w->cap) memset(w->index, 0, w->cap * sizeof *w->index);
  fill(w);
}

static bool within(const struct words *w, size_t more, size_t limit) {
  return !limit || words_memory(w) + more <= limit;
}

/* Twice as much room for entries, and four slots for each two of them. */
static bool grow_entries(struct words *w, size_t limit) {
  size_t cap = w->cap ? w->cap * 2 : FIRST_SLOTS, room = cap / 2;
  size_t more = (room - w->room) * sizeof *w->at + (cap - w->cap) * sizeof *w->index;
  if (room >= UINT32_MAX || !within(w, more, limit)) return false;
  struct word *at = mem_try_realloc(w->at, room, sizeof *at);
  if (!at) return false;
  w->at = at;
  struct words_slot *index = mem_try_zalloc(cap, sizeof *index);
  if (!index) return false;
  free(w->index);
  w->index = index;
  w->room = room;
  w->cap = cap;
  fill(w);
  return true;
}

static bool grow_bytes(struct words *w, size_t n, size_t limit) {
  size_t room = MAX(w->bytes_room ? w->bytes_room * 2 : FIRST_BYTES, w->used + n);
  if (!within(w, room - w->bytes_room, limit)) return false;
  char *bytes = mem_try_realloc(w->bytes, room, 1);
  if (!bytes) return false;
  w->bytes = bytes;
  w->bytes_room = room;
  return true;
}

bool words_count(struct words *w, const char *text, size_t n, int64_t count, size_t limit) {
  uint32_t hash = hash_word(text, n);
  size_t i = 0;
  if (w->cap && w->index[i = slot_of(w, text, n, hash)].id) {
    w->at[w->index[i].id - 1].count += count;
    return true;
  }
  if (w->used + n + 1 > w->bytes_room && !grow_bytes(w, n + 1, limit)) return false;
  if (w->n == w->room) {
    if (!grow_entries(w, limit)) return false;
    i = slot_of(w, text, n, hash);
  }
  memcpy(w->bytes + w->used, text, n);
  w->bytes[w->used + n] = 0;
  w->at[w->n++] = (struct word){w->used, count, hash, (uint32_t)n};
  w->index[i] = (struct words_slot){hash, (uint32_t)w->n};
  w->used += n + 1;
  return true;
}

void words_drop_rare(struct words *w, int64_t least) {
  size_t kept = 0, used = 0;
  for (size_t i = 0; i < w->n; i++) { /* texts lie in the order of entries, so none is written over before its turn */
    struct word x = w->at[i];
    if (x.count < least) continue;
    memmove(w->bytes + used, w->bytes + x.at, x.n + 1);
    x.at = used;
    used += x.n + 1;
    w->at[kept++] = x;
  }
  w->n = kept;
  w->used = used;
  index_again(w);
}

static int by_count(const void *a, const void *b, void *bytes) {
  const struct word *x = a, *y = b;
  if (x->count != y->count) return x->count < y->count ? 1 : -1;
  int c = memcmp((char *)bytes + x->at, (char *)bytes + y->at, MIN(x->n, y->n));
  return c ? c : x->n < y->n ? -1 : x->n > y->n;
}

void words_sort(struct words *w, size_t fixed) {
  if (w->n <= fixed) return;
  qsort_r(w->at + fixed, w->n - fixed, sizeof *w->at, by_count, w->bytes);
  index_again(w);
}
