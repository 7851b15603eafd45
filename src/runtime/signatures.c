/* The table of compiled steps; see signatures.h. */
#include "runtime/signatures.h"

#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/mem.h"

/* A callable. */
struct held_step {
  struct signature *s;
  size_t n;
  char options[];
};

void signatures_init(struct signatures *t, size_t most, void (*forget)(void *owner, struct signature *s), void *owner) {
  *t = (struct signatures){.most = most, .forget = forget, .owner = owner};
  pthread_mutex_init(&t->lock, NULL);
}

void signatures_release(struct signatures *t, void (*let_go)(struct signature *s)) {
  INVARIANT(11, !t->making.n);
  void *s;
  for (size_t i = 0; strmap_next(&t->kept, &i, NULL, &s);) let_go(s);
  struct held_step *h;
  for (size_t i = 0; (h = numbered_next(&t->callables, &i));) {
    let_go(h->s);
    free(h);
  }
  numbered_release(&t->callables);
  strmap_release(&t->kept);
  strmap_release(&t->making);
  pthread_mutex_destroy(&t->lock);
}

enum { COUNT_DIGITS = 7 }; /* of a number of names, with the line's end */

static size_t names_size(const char *const *names, int n) {
  size_t bytes = COUNT_DIGITS;
  for (int i = 0; i < n; i++) bytes += strlen(names[i]) + 1;
  return bytes;
}

/* The count first, in base 64 and without printf: this is done for every step. */
static char *put_names(char *at, const char *const *names, int n) {
  unsigned count = (unsigned)n;
  do *at++ = (char)('0' + count % 64);
  while (count /= 64);
  *at++ = '\n';
  for (int i = 0; i < n; i++) {
    at = stpcpy(at, names[i]);
    *at++ = ';';
  }
  return at;
}

char *signature_key(char style, const struct step_signature *sig) {
  char *key = block_alloc(2 + names_size(sig->feeds, sig->n_feeds) + names_size(sig->fetches, sig->n_fetches) +
                          names_size(sig->targets, sig->n_targets));
  char *at = key;
  *at++ = style;
  at = put_names(at, sig->feeds, sig->n_feeds);
  at = put_names(at, sig->fetches, sig->n_fetches);
  at = put_names(at, sig->targets, sig->n_targets);
  *at = 0;
  return key;
}

enum signature_state signatures_find(struct signatures *t, const char *key, struct signature_work *fresh,
                                     struct signature_asker *a, struct signature **out) {
  enum signature_state state = SIGNATURE_ABSENT;
  pthread_mutex_lock(&t->lock);
  struct signature *s = strmap_get(&t->kept, key);
  struct signature_work *w = s ? NULL : strmap_get(&t->making, key);
  if (s) {
    signature_ref(s);
    s->last_used = ++t->uses;
    *out = s;
    state = SIGNATURE_KEPT;
  } else if (w) {
    state = SIGNATURE_AWAITED;
  } else if (fresh) {
    *fresh = (struct signature_work){.key = mem_strdup(key)};
    fresh->last = &fresh->askers;
    strmap_put(&t->making, key, fresh);
    w = fresh;
  }
  if (w && a) {
    a->next = NULL;
    *w->last = a;
    w->last = &a->next;
  }
  pthread_mutex_unlock(&t->lock);
  return state;
}

/* Call with the lock held; NULL: all are in use. */
static struct signature *take_oldest(struct signatures *t) {
  struct signature *old = NULL;
  const char *key, *old_key = NULL;
  void *value;
  for (size_t i = 0; strmap_next(&t->kept, &i, &key, &value);) {
    struct signature *s = value;
    if (ref_count(&s->refs) != 1 || (old && old->last_used <= s->last_used)) continue;
    old = s;
    old_key = key;
  }
  if (old) strmap_remove(&t->kept, old_key);
  return old;
}

bool signatures_make_room(struct signatures *t) {
  pthread_mutex_lock(&t->lock);
  struct signature *old = take_oldest(t);
  pthread_mutex_unlock(&t->lock);
  if (old) t->forget(t->owner, old);
  return old != NULL;
}

void signatures_end(struct signatures *t, struct signature_work *w, struct signature *s, shoal_status err) {
  pthread_mutex_lock(&t->lock);
  struct signature_work *entered = w->deserted ? w : strmap_remove(&t->making, w->key);
  INVARIANT(11, entered == w);
  for (struct signature_asker *a = w->askers; !err && a; a = a->next) signature_ref(s);
  /* One that was deserted too late to be broken off may have been made again meanwhile. */
  bool keep = !err && !w->deserted;
  if (keep) {
    s->last_used = ++t->uses;
    strmap_put(&t->kept, w->key, s);
  }
  struct signature *old = t->kept.n > t->most ? take_oldest(t) : NULL;
  pthread_mutex_unlock(&t->lock);
  if (old) t->forget(t->owner, old);
  for (struct signature_asker *a = w->askers, *next; a; a = next) {
    next = a->next;
    a->tell(a, err ? status_copy(err) : NULL, err ? NULL : s);
  }
  if (!err && !keep) t->forget(t->owner, s);
  free(w->key);
  shoal_status_free(err);
}

bool signatures_deserted(struct signatures *t, struct signature_work *w, bool closed) {
  pthread_mutex_lock(&t->lock);
  bool waits = false;
  for (struct signature_asker *a = w->askers; a && !closed; a = a->next)
    waits = waits || !a->gone || !atomic_load(a->gone);
  if (!waits && !w->deserted) {
    w->deserted = true;
    strmap_remove(&t->making, w->key);
  }
  bool deserted = w->deserted;
  pthread_mutex_unlock(&t->lock);
  return deserted;
}

size_t signatures_count(struct signatures *t) {
  pthread_mutex_lock(&t->lock);
  size_t n = t->kept.n;
  pthread_mutex_unlock(&t->lock);
  return n;
}

int64_t signatures_hold(struct signatures *t, struct signature *s, const void *options, size_t n) {
  struct held_step *h = mem_alloc(sizeof *h + n);
  *h = (struct held_step){s, n};
  if (n) memcpy(h->options, options, n);
  pthread_mutex_lock(&t->lock);
  int64_t callable = numbered_add(&t->callables, h);
  pthread_mutex_unlock(&t->lock);
  return callable;
}

struct signature *signatures_held(struct signatures *t, int64_t callable, void *options) {
  pthread_mutex_lock(&t->lock);
  const struct held_step *h = numbered_get(&t->callables, callable);
  struct signature *s = h ? h->s : NULL;
  if (s) signature_ref(s);
  if (s && h->n) memcpy(options, h->options, h->n);
  pthread_mutex_unlock(&t->lock);
  return s;
}

struct signature *signatures_let_go(struct signatures *t, int64_t callable) {
  pthread_mutex_lock(&t->lock);
  struct held_step *h = numbered_remove(&t->callables, callable);
  pthread_mutex_unlock(&t->lock);
  struct signature *s = h ? h->s : NULL;
  free(h);
  return s;
}
