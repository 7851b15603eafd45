/* Values of the coordination service by key; see coordination.h. They stand in one array by their keys, so that a
 * directory is a range of it. A key has no slash at its ends and single ones inside, however it was written. */
#include <stdlib.h>
#include <string.h>

#include "cluster/coordination.h"

struct coordination_want { /* a key that is waited for */
  char *key;
  struct coordination_wait *waiting;
};

/* The caller frees it. */
static char *plain_key(const char *key) {
  char *plain = mem_strdup(key), *to = plain;
  for (const char *from = key; *from; from++)
    if (*from != '/' || (to > plain && to[-1] != '/')) *to++ = *from;
  if (to > plain && to[-1] == '/') to--;
  *to = 0;
  return plain;
}

/* With the lock held, as in what follows: the first whose key is not before this one. */
static size_t lower_bound(const struct coordination *c, const char *key) {
  size_t low = 0, high = c->values.n;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (strcmp(c->values.at[middle]->key, key) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

static struct coordination_value *find(const struct coordination *c, const char *plain) {
  size_t i = lower_bound(c, plain);
  return i < c->values.n && !strcmp(c->values.at[i]->key, plain) ? c->values.at[i] : NULL;
}

/* Those under a directory: [*from, *to). */
static void range_of(const struct coordination *c, const char *plain, size_t *from, size_t *to) {
  char *prefix = mem_printf("%s/", plain);
  *from = lower_bound(c, prefix);
  for (*to = *from; *to < c->values.n && str_starts(c->values.at[*to]->key, prefix); ++*to) continue;
  free(prefix);
}

static void remove_range(struct coordination *c, size_t from, size_t to) {
  if (from == to) return;
  for (size_t i = from; i < to; i++) coordination_value_unref(c->values.at[i]);
  memmove(c->values.at + from, c->values.at + to, (c->values.n - to) * sizeof *c->values.at);
  c->values.n -= to - from;
}

void coordination_want_drop(struct coordination *c, struct coordination_want *want) {
  if (want->waiting) return;
  strmap_remove(&c->wants, want->key);
  free(want->key);
  free(want);
}

static shoal_status put(struct coordination *c, const char *key, struct coordination_value *v,
                        struct coordination_wait **told) {
  size_t i = lower_bound(c, v->key);
  if (c->stopped) return coordination_error(STATUS(SHOAL_CANCELLED, "Coordination service is shutting down"));
  if (i < c->values.n && !strcmp(c->values.at[i]->key, v->key))
    return coordination_error(STATUS(SHOAL_ALREADY_EXISTS, "Config key %s already exists.", key));
  vec_push(&c->values, NULL);
  memmove(c->values.at + i + 1, c->values.at + i, (c->values.n - 1 - i) * sizeof *c->values.at);
  c->values.at[i] = coordination_value_ref(v);
  struct coordination_want *want = strmap_get(&c->wants, v->key);
  if (!want) return NULL;
  while (want->waiting) coordination_tell(told, want->waiting, NULL, coordination_value_ref(v));
  coordination_want_drop(c, want);
  return NULL;
}

shoal_status coordination_insert(struct coordination *c, const char *key, const void *data, size_t n,
                                 struct account *a) {
  struct coordination_wait *told = NULL;
  struct coordination_value *v = NULL;
  char *plain = plain_key(key);
  shoal_status s = coordination_value_new(a, plain, data, n, 0, &v);
  free(plain);
  TRY(s);
  pthread_mutex_lock(&c->lock);
  s = put(c, key, v, &told);
  coordination_unlock(c, told);
  coordination_value_unref(v);
  return s;
}

void coordination_get(struct coordination *c, const char *key, struct coordination_wait *w) {
  struct coordination_wait *told = NULL;
  char *plain = plain_key(key);
  pthread_mutex_lock(&c->lock);
  struct coordination_value *v = find(c, plain);
  if (c->stopped) {
    coordination_tell(&told, w, STATUS(SHOAL_CANCELLED, "Coordination service is shutting down"), NULL);
  } else if (v) {
    coordination_tell(&told, w, NULL, coordination_value_ref(v));
  } else {
    struct coordination_want *want = strmap_get(&c->wants, plain);
    if (!want) {
      want = mem_zalloc(1, sizeof *want);
      want->key = mem_strdup(plain);
      strmap_put(&c->wants, plain, want);
    }
    w->want = want;
    coordination_link(&want->waiting, w, &told);
    coordination_want_drop(c, want); /* it was given up before */
  }
  coordination_unlock(c, told);
  free(plain);
}

shoal_status coordination_try_get(struct coordination *c, const char *key, struct coordination_value **out) {
  char *plain = plain_key(key);
  pthread_mutex_lock(&c->lock);
  struct coordination_value *v = find(c, plain);
  if (v) *out = coordination_value_ref(v);
  pthread_mutex_unlock(&c->lock);
  free(plain);
  return v ? NULL : coordination_error(NOT_FOUND("Config key %s not found.", key));
}

void coordination_directory(struct coordination *c, const char *directory, coordination_list *out) {
  size_t from, to;
  char *plain = plain_key(directory);
  pthread_mutex_lock(&c->lock);
  range_of(c, plain, &from, &to);
  for (; from < to; from++) vec_push(out, coordination_value_ref(c->values.at[from]));
  pthread_mutex_unlock(&c->lock);
  free(plain);
}

void coordination_delete(struct coordination *c, const char *key) {
  size_t from, to;
  char *plain = plain_key(key);
  pthread_mutex_lock(&c->lock);
  range_of(c, plain, &from, &to);
  remove_range(c, from, to);
  from = lower_bound(c, plain);
  if (from < c->values.n && !strcmp(c->values.at[from]->key, plain)) remove_range(c, from, from + 1);
  pthread_mutex_unlock(&c->lock);
  free(plain);
}

void coordination_forget_values(struct coordination *c, struct coordination_wait **told) {
  void *want;
  for (size_t i = 0; strmap_next(&c->wants, &i, NULL, &want);) {
    struct coordination_want *w = want;
    while (w->waiting)
      coordination_tell(told, w->waiting, STATUS(SHOAL_CANCELLED, "Coordination service is shutting down"), NULL);
    free(w->key);
    free(w);
  }
  strmap_release(&c->wants);
  remove_range(c, 0, c->values.n);
  vec_release(&c->values);
}
