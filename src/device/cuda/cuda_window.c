/* Windows of a card: memory that other processes of the host open by CUDA's IPC.
 *
 * The driver opens no memory of the process that asks; that is found in a list, and used where it is, by devices on the
 * same card. What another process's handle leads to may be smaller than was said: the driver knows how large it is. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/ref.h"
#include "device/cuda/cuda.h"

_Static_assert(sizeof(CUipcMemHandle) <= DEVICE_HANDLE, "there is room");

struct cuda_window {
  struct cuda_window *next; /* of this process's */
  struct ref refs;
  const struct cuda_api *api;
  CUdeviceptr at;
  size_t size;
  int card;
  bool own; /* of this process */
  struct device_handle handle;
};

static struct {
  pthread_mutex_t lock;
  struct cuda_window *first; /* lock */
} windows = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With the card of the device current. */
static void release(void *owner) {
  struct cuda_window *w = owner;
  pthread_mutex_lock(&windows.lock);
  bool last = ref_drop(&w->refs);
  struct cuda_window **at = &windows.first;
  while (last && w->own && *at && *at != w) at = &(*at)->next;
  if (last && w->own && *at) *at = w->next;
  pthread_mutex_unlock(&windows.lock);
  if (!last) return;
  if (w->own) w->api->memory_free(w->at);
  else w->api->shared_close(w->at);
  free(w);
}

/* The window, whose reference is taken over, as a tensor of the device. */
static shoal_status show(struct device *d, const char *who, struct cuda_window *w, size_t bytes, struct tensor *out) {
  struct buffer *b;
  shoal_status s = cuda_memory_wrap(d, who, w->at, bytes, release, w, &b);
  if (s) {
    release(w);
    return s;
  }
  *out = (struct tensor){
      .buffer = b, .data = b->data, .dtype = SHOAL_UINT8, .rank = 1, .n = (int64_t)bytes, .dims = {(int64_t)bytes}};
  return NULL;
}

static struct cuda_window *window_new(struct device *d, CUdeviceptr at, size_t size, bool own) {
  struct cuda_window *w = mem_zalloc(1, sizeof *w);
  ref_init(&w->refs, 1);
  w->api = cuda_of(d)->api;
  w->at = at;
  w->size = size;
  w->card = d->card;
  w->own = own;
  return w;
}

/* What the driver says: there is another way, and it is gone. */
static shoal_status refuse(shoal_status s) {
  shoal_status why = UNIMPLEMENTED("%s", shoal_status_message(s));
  shoal_status_free(s);
  return why;
}

shoal_status cuda_window_new(struct device *d, const char *who, size_t bytes, struct tensor *out,
                             struct device_handle *handle) {
  struct cuda_device *c = cuda_of(d);
  CUipcMemHandle h;
  CUdeviceptr at;
  TRY(cuda_open(c));
  cuda_enter(c->context);
  TRY(cuda_status(c->api->memory_new(&at, bytes), "memory of the card for other processes"));
  shoal_status s = cuda_status(c->api->share(&h, at), "memory that processes share");
  if (s) {
    c->api->memory_free(at);
    return refuse(s);
  }
  struct cuda_window *w = window_new(d, at, bytes, true);
  memset(handle, 0, sizeof *handle);
  memcpy(handle->bytes, &h, sizeof h);
  w->handle = *handle;
  pthread_mutex_lock(&windows.lock);
  w->next = windows.first;
  windows.first = w;
  pthread_mutex_unlock(&windows.lock);
  return show(d, who, w, bytes, out);
}

/* A reference; NULL: it is none of this process's. */
static struct cuda_window *find_own(const struct device_handle *handle) {
  pthread_mutex_lock(&windows.lock);
  struct cuda_window *w = windows.first;
  while (w && memcmp(&w->handle, handle, sizeof *handle) != 0) w = w->next;
  if (w) ref_take(&w->refs);
  pthread_mutex_unlock(&windows.lock);
  return w;
}

static shoal_status open_other(struct device *d, const struct device_handle *handle, struct cuda_window **out) {
  enum { LAZY_PEER_ACCESS = 1 };
  struct cuda_device *c = cuda_of(d);
  CUipcMemHandle h;
  CUdeviceptr at, base;
  size_t size = 0;
  memcpy(&h, handle->bytes, sizeof h);
  cuda_enter(c->context);
  TRY(cuda_status(c->api->shared_open(&at, h, LAZY_PEER_ACCESS), "memory of another process"));
  shoal_status s = cuda_status(c->api->memory_range(&base, &size, at), "memory of another process");
  if (s) c->api->shared_close(at);
  else *out = window_new(d, at, size, false);
  return s;
}

shoal_status cuda_window_open(struct device *d, const struct device_handle *handle, size_t bytes, struct tensor *out) {
  TRY(cuda_open(cuda_of(d)));
  struct cuda_window *w = find_own(handle);
  shoal_status s = w ? NULL : open_other(d, handle, &w);
  if (s) return refuse(s);
  if (w->size >= bytes && (!w->own || w->card == d->card)) return show(d, NULL, w, bytes, out);
  s = UNIMPLEMENTED("the window has %zu bytes, on card %d; %zu are wanted on card %d", w->size, w->card, bytes,
                    d->card);
  release(w);
  return s;
}
