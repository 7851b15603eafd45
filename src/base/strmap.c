/* String map: open addressing with linear probing, at most 3/4 full; removal shifts entries back, so that
 * there are no tombstones. */
#include "base/strmap.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

enum { HASH_SEED = 0x5ea1 };

static struct strmap_entry *find(const struct strmap *m, const char *key, size_t n, uint64_t hash) {
  if (!m->cap) return NULL;
  for (size_t i = hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
    struct strmap_entry *e = &m->at[i];
    if (!e->key) return NULL;
    if (e->hash == hash && strncmp(e->key, key, n) == 0 && e->key[n] == 0) return e;
  }
}

static void insert(struct strmap *m, struct strmap_entry e) {
  size_t i = e.hash & (m->cap - 1);
  while (m->at[i].key) i = (i + 1) & (m->cap - 1);
  m->at[i] = e;
}

static void grow(struct strmap *m) {
  struct strmap old = *m;
  m->cap = old.cap ? old.cap * 2 : 16;
  m->at = mem_zalloc(m->cap, sizeof *m->at);
  for (size_t i = 0; i < old.cap; i++)
    if (old.at[i].key) insert(m, old.at[i]);
  free(old.at);
}

void *strmap_getn(const struct strmap *m, const char *key, size_t n) {
  struct strmap_entry *e = find(m, key, n, hash_bytes(key, n, HASH_SEED));
  return e ? e->value : NULL;
}

void *strmap_get(const struct strmap *m, const char *key) { return strmap_getn(m, key, strlen(key)); }

bool strmap_has(const struct strmap *m, const char *key) {
  size_t n = strlen(key);
  return find(m, key, n, hash_bytes(key, n, HASH_SEED)) != NULL;
}

void *strmap_put(struct strmap *m, const char *key, void *value) {
  size_t n = strlen(key);
  uint64_t hash = hash_bytes(key, n, HASH_SEED);
  struct strmap_entry *e = find(m, key, n, hash);
  if (e) {
    void *before = e->value;
    e->value = value;
    return before;
  }
  if ((m->n + 1) * 4 > m->cap * 3) grow(m);
  insert(m, (struct strmap_entry){mem_strdup(key), value, hash});
  m->n++;
  return NULL;
}

void *strmap_remove(struct strmap *m, const char *key) {
  size_t n = strlen(key);
  struct strmap_entry *e = find(m, key, n, hash_bytes(key, n, HASH_SEED));
  if (!e) return NULL;
  void *value = e->value;
  free(e->key);
  size_t hole = (size_t)(e - m->at);
  for (size_t i = (hole + 1) & (m->cap - 1); m->at[i].key; i = (i + 1) & (m->cap - 1)) {
    size_t home = m->at[i].hash & (m->cap - 1);
    if (((i - home) & (m->cap - 1)) < ((i - hole) & (m->cap - 1))) continue;
    m->at[hole] = m->at[i];
    hole = i;
  }
  m->at[hole].key = NULL;
  m->n--;
  return value;
}

bool strmap_next(const struct strmap *m, size_t *i, const char **key, void **value) {
  for (; *i < m->cap; ++*i) {
    struct strmap_entry *e = &m->at[*i];
    if (!e->key) continue;
    if (key) *key = e->key;
    if (value) *value = e->value;
    ++*i;
    return true;
  }
  return false;
}

void strmap_release(struct strmap *m) {
  for (size_t i = 0; i < m->cap; i++) free(m->at[i].key);
  free(m->at);
  *m = (struct strmap){0};
}
