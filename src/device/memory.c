/* Accounts of devices' memory; see memory.h. */
#include "device/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/vec.h"

enum { TOLD = 5 }; /* users that an error names */

struct user {
  char who[PIECE_NAME];
  int64_t bytes, pieces;
};
typedef VEC(struct user) users;

void device_memory_init(struct device_memory *m, int64_t limit) {
  *m = (struct device_memory){.limit = limit};
  pthread_mutex_init(&m->lock, NULL);
}

void device_memory_release(struct device_memory *m) { pthread_mutex_destroy(&m->lock); }

static int by_name(const void *a, const void *b) {
  return strcmp(((const struct user *)a)->who, ((const struct user *)b)->who);
}

static int by_bytes(const void *a, const void *b) {
  const struct user *x = a, *y = b;
  return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : by_name(a, b);
}

/* Each name once, the largest first. */
static void add_up(users *all) {
  size_t n = 0;
  if (!all->n) return;
  qsort(all->at, all->n, sizeof *all->at, by_name);
  for (size_t i = 1; i < all->n; i++) {
    if (strcmp(all->at[i].who, all->at[n].who) != 0) {
      all->at[++n] = all->at[i];
      continue;
    }
    all->at[n].bytes += all->at[i].bytes;
    all->at[n].pieces += all->at[i].pieces;
  }
  all->n = n + 1;
  qsort(all->at, all->n, sizeof *all->at, by_bytes);
}

static shoal_status no_room(const struct device_memory *m, const char *device, int64_t bytes, int64_t used,
                            const char *why, users *all) {
  struct text t = {0};
  add_up(all);
  for (size_t i = 0; i < MIN(all->n, (size_t)TOLD); i++) {
    const struct user *u = &all->at[i];
    text_addf(&t, "%s%s (%" PRId64 " bytes", i ? ", " : "; most by ", u->who, u->bytes);
    if (u->pieces > 1) text_addf(&t, " in %" PRId64 " tensors", u->pieces);
    text_addc(&t, ')');
  }
  shoal_status s =
      STATUS(SHOAL_RESOURCE_EXHAUSTED,
             "OOM when allocating a tensor of %" PRId64 " bytes on %s: %" PRId64 " of %" PRId64 " bytes are in use%s%s",
             bytes, device, used, m->limit, why, all->n ? text_cstr(&t) : "");
  text_release(&t);
  return s;
}

/* Call with the lock held. */
static void enter(struct device_memory *m, const char *who, int64_t bytes, struct device_piece *piece) {
  size_t n = strlen(who), most = sizeof piece->who - 1;
  memcpy(piece->who, who + (n > most ? n - most : 0), MIN(n, most) + 1);
  piece->bytes = bytes;
  LIST_ADD(m->pieces, piece);
  m->used += bytes;
}

/* Call with the lock held. */
static void list(const struct device_memory *m, users *out) {
  for (const struct device_piece *p = m->pieces; p; p = p->next) {
    struct user u = {.bytes = p->bytes, .pieces = 1};
    memcpy(u.who, p->who, sizeof u.who);
    vec_push(out, u);
  }
}

void device_memory_enter(struct device_memory *m, const char *who, int64_t bytes, struct device_piece *piece) {
  pthread_mutex_lock(&m->lock);
  enter(m, who, bytes, piece);
  pthread_mutex_unlock(&m->lock);
}

shoal_status device_memory_take(struct device_memory *m, const char *device, const char *who, int64_t bytes,
                                struct device_piece *piece) {
  users all = {0};
  pthread_mutex_lock(&m->lock);
  int64_t used = m->used;
  bool fits = bytes <= m->limit - used;
  if (fits) enter(m, who, bytes, piece);
  else list(m, &all);
  pthread_mutex_unlock(&m->lock);
  shoal_status s = fits ? NULL : no_room(m, device, bytes, used, "", &all);
  vec_release(&all);
  return s;
}

bool device_memory_fits(struct device_memory *m, int64_t bytes) {
  pthread_mutex_lock(&m->lock);
  bool fits = bytes <= m->limit - m->used;
  pthread_mutex_unlock(&m->lock);
  return fits;
}

shoal_status device_memory_none(struct device_memory *m, const char *device, int64_t bytes, const char *why) {
  users all = {0};
  pthread_mutex_lock(&m->lock);
  int64_t used = m->used;
  list(m, &all);
  pthread_mutex_unlock(&m->lock);
  shoal_status s = no_room(m, device, bytes, used, why, &all);
  vec_release(&all);
  return s;
}

void device_memory_give(struct device_memory *m, struct device_piece *piece) {
  pthread_mutex_lock(&m->lock);
  LIST_REMOVE(m->pieces, piece);
  m->used -= piece->bytes;
  pthread_mutex_unlock(&m->lock);
}
