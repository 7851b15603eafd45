/* A hash map from strings to pointers. Keys are copied; values belong to the caller. Not locked.
 *
 *   struct strmap m = {0};
 *   strmap_put(&m, "a", p);
 *   void *v = strmap_get(&m, "a");            NULL when absent
 *   for (size_t i = 0; strmap_next(&m, &i, &key, &value);) ...
 *   strmap_release(&m);
 */
#ifndef BASE_STRMAP_H
#define BASE_STRMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct strmap_entry {
  char *key; /* NULL: removed */
  void *value;
  uint64_t hash;
};

struct strmap {
  struct strmap_entry *at; /* in the order they came, [used] of [room] */
  uint32_t *index;         /* [cap]: 1 + the place of an entry in at, 0: free */
  size_t n, used, room;
  size_t cap; /* a power of two, or 0 */
};

void *strmap_get(const struct strmap *m, const char *key);
void *strmap_getn(const struct strmap *m, const char *key, size_t n);
bool strmap_has(const struct strmap *m, const char *key);
/* Sets key's value and returns the one before (NULL if none). */
void *strmap_put(struct strmap *m, const char *key, void *value);
/* Removes key and returns its value (NULL if none). */
void *strmap_remove(struct strmap *m, const char *key);
/* Visits entries in the order in which they came; start with *i = 0. The map must not change meanwhile. */
bool strmap_next(const struct strmap *m, size_t *i, const char **key, void **value);
void strmap_release(struct strmap *m);

#endif
