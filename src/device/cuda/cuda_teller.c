/* A thread that waits for the card and tells who asked: in the order of asking, which is that of the work. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/pool.h"
#include "device/cuda/cuda.h"

struct cuda_told {
  struct cuda_teller *of;
  struct cuda_told *next; /* of those free */
  CUevent event;
  struct tensor tensor;
  struct buffer *buffer;
  device_done done;
  void *arg;
};

struct cuda_teller {
  struct cuda_device *c;
  struct pool *thread;
  struct cuda_told *free; /* the device's lock */
};

struct cuda_teller *cuda_teller_new(struct cuda_device *c) {
  struct cuda_teller *t = mem_zalloc(1, sizeof *t);
  t->c = c;
  t->thread = pool_new(1, "cuda-events");
  return t;
}

void cuda_teller_free(struct cuda_teller *t) {
  if (!t) return;
  pool_free(t->thread);
  for (struct cuda_told *w = t->free, *next; w; w = next) {
    next = w->next;
    t->c->api->event_free(w->event);
    free(w);
  }
  free(t);
}

static void give(struct cuda_told *w) {
  cuda_lock(w->of->c);
  w->next = w->of->free;
  w->of->free = w;
  cuda_unlock(w->of->c);
}

static void wait_and_tell(void *arg) {
  struct cuda_told *w = arg;
  struct cuda_device *c = w->of->c;
  cuda_enter(c->context);
  shoal_status s = cuda_status(c->api->event_wait(w->event), "work on the card");
  device_done done = w->done;
  void *told = w->arg;
  tensor_release(&w->tensor);
  buffer_unref(w->buffer);
  give(w);
  done(told, s);
}

static shoal_status take(struct cuda_teller *t, struct cuda_told **out) {
  struct cuda_told *w = t->free;
  if (w) {
    t->free = w->next;
  } else {
    w = mem_zalloc(1, sizeof *w);
    w->of = t;
    shoal_status s = cuda_status(t->c->api->event_new(&w->event, CU_EVENT_DISABLE_TIMING), "an event");
    if (s) free(w);
    TRY(s);
  }
  *out = w;
  return NULL;
}

shoal_status cuda_tell(struct cuda_teller *t, enum cuda_stream_id after, const struct tensor *hold, struct buffer *held,
                       device_done done, void *arg) {
  struct cuda_told *w;
  TRY(take(t, &w));
  w->done = done;
  w->arg = arg;
  w->tensor = tensor_none();
  if (hold) tensor_ref(&w->tensor, hold);
  w->buffer = buffer_ref(held);
  shoal_status s = cuda_status(t->c->api->event_record(w->event, t->c->streams[after].stream), "an event");
  if (!s) {
    pool_submit(t->thread, wait_and_tell, w);
    return NULL;
  }
  buffer_unref(w->buffer);
  tensor_release(&w->tensor); /* not the last reference: the caller has one */
  w->next = t->free;
  t->free = w;
  return s;
}
