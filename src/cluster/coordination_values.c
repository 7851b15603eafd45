/* Values of the coordination service by key; see coordination.h. A key has no slash at its ends and single ones inside,
 * however it was written.
 *
 * They stand in a search tree, so that a directory is a range of it. Its shape is that of a treap: whoever has the
 * larger height stands above, and heights are hashes with a key that nobody is shown, so that no choice of keys makes
 * it deep. (An array by keys was shorter, and each value that came before all others moved it: a million of them took
 * minutes.) */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/keyed_hash.h"
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

/* ---- the tree; with the lock held ---- */

static struct coordination_value *find(const struct coordination *c, const char *plain) {
  struct coordination_value *v = c->values;
  for (int order; v && (order = strcmp(plain, v->key)) != 0;) v = order < 0 ? v->left : v->right;
  return v;
}

/* A tree becomes two: of the keys before this one, and of the others. */
static void split(struct coordination_value *t, const char *key, struct coordination_value **before,
                  struct coordination_value **others) {
  while (t) {
    if (strcmp(t->key, key) < 0) {
      *before = t;
      before = &t->right;
      t = t->right;
    } else {
      *others = t;
      others = &t->left;
      t = t->left;
    }
  }
  *before = *others = NULL;
}

/* One tree of two: all keys of the first are before those of the second. */
static struct coordination_value *join(struct coordination_value *a, struct coordination_value *b) {
  struct coordination_value *whole = NULL, **at = &whole;
  while (a && b) {
    if (a->height > b->height) {
      *at = a;
      at = &a->right;
      a = a->right;
    } else {
      *at = b;
      at = &b->left;
      b = b->left;
    }
  }
  *at = a ? a : b;
  return whole;
}

static void add(struct coordination *c, struct coordination_value *v) {
  struct coordination_value *before, *after;
  v->height = hash_keyed(v->key, strlen(v->key), 0);
  v->left = v->right = NULL;
  split(c->values, v->key, &before, &after);
  c->values = join(join(before, v), after);
}

/* Out of the tree: those whose keys are not before `from`, and before `to`. */
static struct coordination_value *cut(struct coordination *c, const char *from, const char *to) {
  struct coordination_value *before, *found, *after;
  split(c->values, from, &before, &found);
  split(found, to, &found, &after);
  c->values = join(before, after);
  return found;
}

/* References to those of a range, by key, until there are so many. */
static void collect(struct coordination_value *t, const char *from, const char *to, size_t most,
                    coordination_list *out) {
  if (!t || out->n == most) return;
  bool is_after = strcmp(t->key, from) >= 0, is_before = strcmp(t->key, to) < 0;
  if (is_after) collect(t->left, from, to, most, out);
  if (is_after && is_before && out->n < most) vec_push(out, coordination_value_ref(t));
  if (is_before) collect(t->right, from, to, most, out);
}

/* A tree that nobody else knows; no lock is needed. */
static void let_go(struct coordination_value *t) {
  if (!t) return;
  let_go(t->left);
  let_go(t->right);
  coordination_value_unref(t);
}

/* No key is between this one and that. The caller frees it. */
static char *right_after(const char *plain) { return mem_printf("%s\1", plain); }

/* What is under a directory is before this, and not before "DIRECTORY/". The caller frees it. */
static char *behind(const char *plain) { return mem_printf("%s%c", plain, '/' + 1); }

/* ---- who waits ---- */

void coordination_want_drop(struct coordination *c, struct coordination_want *want) {
  if (want->waiting) return;
  strmap_remove(&c->wants, want->key);
  free(want->key);
  free(want);
}

static shoal_status put(struct coordination *c, const char *key, struct coordination_value *v,
                        struct coordination_wait **told) {
  if (c->stopped) return coordination_error(STATUS(SHOAL_CANCELLED, "Coordination service is shutting down"));
  if (find(c, v->key)) return coordination_error(STATUS(SHOAL_ALREADY_EXISTS, "Config key %s already exists.", key));
  add(c, coordination_value_ref(v));
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

/* Some at a time: beats and barriers, which want the same lock, do not wait for a million. Between two it is left for
 * as long as whoever waits takes to wake up. */
void coordination_directory(struct coordination *c, const char *directory, coordination_list *out) {
  enum { AT_ONCE = 4000, PAUSE_US = 100 };
  char *plain = plain_key(directory), *from = mem_printf("%s/", plain), *to = behind(plain);
  for (size_t most = 0; out->n == most;) {
    if (most) {
      free(from);
      from = right_after(vec_last(out)->key);
      usleep(PAUSE_US);
    }
    most += AT_ONCE;
    pthread_mutex_lock(&c->lock);
    collect(c->values, from, to, most, out);
    pthread_mutex_unlock(&c->lock);
  }
  free(plain);
  free(from);
  free(to);
}

void coordination_delete(struct coordination *c, const char *key) {
  char *plain = plain_key(key), *from = mem_printf("%s/", plain), *to = behind(plain);
  char *next = right_after(plain);
  pthread_mutex_lock(&c->lock);
  struct coordination_value *under = cut(c, from, to), *own = cut(c, plain, next);
  pthread_mutex_unlock(&c->lock);
  let_go(under);
  let_go(own);
  free(plain);
  free(from);
  free(to);
  free(next);
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
  let_go(c->values);
  c->values = NULL;
}
