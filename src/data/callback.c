/* The program's functions by number; see data/callback.h. */
#include "data/callback.h"

#include <pthread.h>

#include "base/keyed_hash.h"
#include "base/vec.h"

struct callback_entry {
  int64_t number;
  struct callback is;
};

static struct {
  pthread_mutex_t lock;
  VEC(struct callback_entry) all;
} callbacks = {.lock = PTHREAD_MUTEX_INITIALIZER};

int64_t callback_add(struct callback c) {
  pthread_mutex_lock(&callbacks.lock);
  uint64_t drawn = hash_keyed(&callbacks.all.n, sizeof callbacks.all.n, 0x5ca11bac);
  struct callback_entry e = {(int64_t)(drawn >> 1), c};
  vec_push(&callbacks.all, e);
  pthread_mutex_unlock(&callbacks.lock);
  return e.number;
}

shoal_status callback_find(int64_t number, struct callback *out) {
  *out = (struct callback){0};
  pthread_mutex_lock(&callbacks.lock);
  for (size_t i = 0; i < callbacks.all.n; i++)
    if (callbacks.all.at[i].number == number) *out = callbacks.all.at[i].is;
  pthread_mutex_unlock(&callbacks.lock);
  if (out->fill) return NULL;
  return STATUS(SHOAL_NOT_FOUND,
                "a dataset's elements come from a function of another process: it can be walked in that one alone");
}
