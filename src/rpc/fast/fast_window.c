/* Windows of the two sides; see fast_window.h. */
#include "rpc/fast/fast_window.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { ALIGNED = 256 };
static const size_t LEAST = 32 << 20;

/* ---- the sender's ---- */

int fast_windows_take(struct fast_windows *w, const struct device *d, size_t bytes, uint64_t *offset) {
  for (int i = 0; i < w->n; i++) {
    struct fast_window *x = &w->at[i];
    if (x->device != d || bytes > x->size - x->top) continue;
    *offset = x->top;
    x->top = MIN((x->top + bytes + ALIGNED - 1) / ALIGNED * ALIGNED, x->size);
    x->parts++;
    return i;
  }
  return -1;
}

void fast_windows_give(struct fast_windows *w, int i) {
  if (--w->at[i].parts == 0) w->at[i].top = 0;
}

size_t fast_windows_more(const struct fast_windows *w, struct device *d, size_t bytes) {
  size_t size = MAX(bytes, MIN(LEAST, d->windows.most));
  return w->n < MOST_WINDOWS && budget_take(&d->windows, size) ? size : 0;
}

void fast_window_release(struct fast_window *w) {
  tensor_release(&w->memory);
  budget_give(&w->device->windows, w->size);
}

void fast_windows_release(struct fast_windows *w) {
  for (int i = 0; i < w->n; i++) fast_window_release(&w->at[i]);
  w->n = 0;
}

/* ---- the receiver's ---- */

static bool wanted;
static void read_wish(void) {
  const char *text = getenv("SHOAL_WINDOWS");
  wanted = !text || strcmp(text, "0") != 0;
}

bool fast_views_wanted(const struct device *d) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_wish);
  return wanted && d->type->ops->window_open;
}

void fast_views_init(struct fast_views *v) { pthread_mutex_init(&v->lock, NULL); }

void fast_views_release(struct fast_views *v) {
  fast_views_close(v);
  pthread_mutex_destroy(&v->lock);
}

/* One that was opened before: a reference. *room: there may be more. */
static bool find(struct fast_views *v, const struct device *d, const struct device_handle *handle, struct tensor *out,
                 bool *room) {
  pthread_mutex_lock(&v->lock);
  int i = 0;
  while (i < v->n && (v->at[i].device != d || memcmp(&v->at[i].handle, handle, sizeof *handle) != 0)) i++;
  bool found = i < v->n;
  if (found) tensor_ref(out, &v->at[i].memory);
  *room = !v->closed && v->n < MOST_WINDOWS;
  pthread_mutex_unlock(&v->lock);
  return found;
}

/* Keeps a reference of it, if there is room. */
static void keep(struct fast_views *v, const struct device *d, const struct device_handle *handle,
                 const struct tensor *memory) {
  pthread_mutex_lock(&v->lock);
  if (!v->closed && v->n < MOST_WINDOWS) {
    v->at[v->n].device = d;
    v->at[v->n].handle = *handle;
    tensor_ref(&v->at[v->n++].memory, memory);
  }
  pthread_mutex_unlock(&v->lock);
}

bool fast_views_find(struct fast_views *v, struct device *d, const struct fast_window_place *p, struct tensor *out) {
  bool room;
  if (find(v, d, &p->handle, out, &room)) return true;
  if (!room || !d->type->ops->window_open) return false;
  shoal_status s = d->type->ops->window_open(d, &p->handle, (size_t)p->size, out);
  if (s) LOGD("values of another task come to %s by way of the host: %s", d->name, shoal_status_message(s));
  shoal_status_free(s);
  if (s) return false;
  keep(v, d, &p->handle, out);
  atomic_store(&v->any, true);
  return true;
}

void fast_views_close(struct fast_views *v) {
  struct tensor gone[MOST_WINDOWS];
  pthread_mutex_lock(&v->lock);
  int n = v->n;
  for (int i = 0; i < n; i++) tensor_move(&gone[i], &v->at[i].memory);
  v->n = 0;
  v->closed = true;
  pthread_mutex_unlock(&v->lock);
  for (int i = 0; i < n; i++) tensor_release(&gone[i]);
}

struct tensor fast_window_part(const struct tensor *memory, uint64_t offset, const struct tensor *like) {
  struct tensor t = *like;
  t.buffer = memory->buffer;
  t.data = (char *)memory->data + offset;
  return t;
}
