/* String map: the entries lie in the order they came, beside them an index with open addressing and linear probing, at
 * most 3/4 full; removal shifts the index back, so that there are no tombstones, and leaves a hole among the entries,
 * which goes when there is no more room.
 *
 * Many of the keys are strangers' (names of nodes, functions, resources, values of a step): the hash has a key that
 * they do not know, or all could be made to lie in one place and each look-up would walk past all others. Since that
 * key differs from run to run, the order of a walk must not depend on it: hence the entries in a row. */
#include "base/strmap.h"

#include <stdlib.h>
#include <string.h>

#include "base/keyed_hash.h"
#include "base/mem.h"

/* Where in the index an entry is; false: where it would be. */
static bool find(const struct strmap *m, const char *key, size_t n, uint64_t hash, size_t *at) {
  *at = 0;
  if (!m->cap) return false;
  size_t i = hash & (m->cap - 1);
  for (; m->index[i]; i = (i + 1) & (m->cap - 1)) {
    const struct strmap_entry *e = &m->at[m->index[i] - 1];
    if (e->hash == hash && strncmp(e->key, key, n) == 0 && e->key[n] == 0) break;
  }
  *at = i;
  return m->index[i];
}

/* Room for one more: the holes go, and if there were few, it doubles. */
static void make_room(struct strmap *m) {
  struct strmap old = *m;
  if (m->n * 2 >= m->room) {
    m->cap = old.cap ? old.cap * 2 : 16;
    m->room = m->cap / 4 * 3;
    m->at = mem_realloc(m->at, m->room, sizeof *m->at);
    free(m->index);
    m->index = mem_zalloc(m->cap, sizeof *m->index);
  } else {
    memset(m->index, 0, m->cap * sizeof *m->index);
  }
  m->used = 0;
  for (size_t k = 0; k < old.used; k++) {
    if (!m->at[k].key) continue;
    size_t i = m->at[k].hash & (m->cap - 1);
    while (m->index[i]) i = (i + 1) & (m->cap - 1);
    m->at[m->used] = m->at[k];
    m->index[i] = (uint32_t)++m->used;
  }
}

void *strmap_getn(const struct strmap *m, const char *key, size_t n) {
  size_t at;
  return find(m, key, n, hash_keyed(key, n, 0), &at) ? m->at[m->index[at] - 1].value : NULL;
}

void *strmap_get(const struct strmap *m, const char *key) { return strmap_getn(m, key, strlen(key)); }

bool strmap_has(const struct strmap *m, const char *key) {
  size_t n = strlen(key), at;
  return find(m, key, n, hash_keyed(key, n, 0), &at);
}

void *strmap_put(struct strmap *m, const char *key, void *value) {
  size_t n = strlen(key), at;
  uint64_t hash = hash_keyed(key, n, 0);
  if (find(m, key, n, hash, &at)) {
    struct strmap_entry *e = &m->at[m->index[at] - 1];
    void *before = e->value;
    e->value = value;
    return before;
  }
  if (m->used == m->room) {
    make_room(m);
    find(m, key, n, hash, &at);
  }
  m->at[m->used] = (struct strmap_entry){mem_strdup(key), value, hash};
  m->index[at] = (uint32_t)++m->used;
  m->n++;
  return NULL;
}

void *strmap_remove(struct strmap *m, const char *key) {
  size_t n = strlen(key), hole;
  if (!find(m, key, n, hash_keyed(key, n, 0), &hole)) return NULL;
  struct strmap_entry *e = &m->at[m->index[hole] - 1];
  void *value = e->value;
  free(e->key);
  e->key = NULL;
  for (size_t i = (hole + 1) & (m->cap - 1); m->index[i]; i = (i + 1) & (m->cap - 1)) {
    size_t home = m->at[m->index[i] - 1].hash & (m->cap - 1);
    if (((i - home) & (m->cap - 1)) < ((i - hole) & (m->cap - 1))) continue;
    m->index[hole] = m->index[i];
    hole = i;
  }
  m->index[hole] = 0;
  m->n--;
  while (m->used && !m->at[m->used - 1].key) m->used--; /* what came last often goes first */
  return value;
}

bool strmap_next(const struct strmap *m, size_t *i, const char **key, void **value) {
  while (*i < m->used) {
    struct strmap_entry *e = &m->at[(*i)++];
    if (!e->key) continue;
    if (key) *key = e->key;
    if (value) *value = e->value;
    return true;
  }
  return false;
}

void strmap_release(struct strmap *m) {
  for (size_t i = 0; i < m->used; i++) free(m->at[i].key);
  free(m->at);
  free(m->index);
  *m = (struct strmap){0};
}
