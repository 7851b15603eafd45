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
  uint64_t held; /* let go up to there */
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

/* Errors of the card itself come to light here. */
static shoal_status wait_for(struct cuda_device *c, CUevent event) {
  int error = c->api->event_wait(event);
  if (cuda_is_lost(error)) atomic_store(c->lost, true);
  return cuda_status(error, "work on the card");
}

static void wait_and_tell(void *arg) {
  struct cuda_told *w = arg;
  struct cuda_device *c = w->of->c;
  cuda_enter(c->context);
  shoal_status s = wait_for(c, w->event);
  device_done done = w->done;
  void *told = w->arg;
  tensor_release(&w->tensor);
  buffer_unref(w->buffer);
  cuda_let_go(c, w->held);
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

static shoal_status tell(struct cuda_teller *t, enum cuda_stream_id after, const struct tensor *hold,
                         struct buffer *held, uint64_t last, device_done done, void *arg) {
  struct cuda_told *w;
  TRY(take(t, &w));
  w->held = last;
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

shoal_status cuda_tell(struct cuda_teller *t, enum cuda_stream_id after, const struct tensor *hold, struct buffer *held,
                       device_done done, void *arg) {
  return tell(t, after, hold, held, 0, done, arg);
}

shoal_status cuda_tell_end(struct cuda_teller *t, device_done done, void *arg) {
  return tell(t, CUDA_OUT, NULL, NULL, cuda_held_last(t->c), done, arg);
}

/* ---- waiting without the thread ---- */

/* The stream that computes comes after the two others. */
static shoal_status mark_end(struct cuda_device *c, struct cuda_told **out) {
  TRY(cuda_wait(c, CUDA_COMPUTE, CUDA_IN, c->streams[CUDA_IN].queued));
  TRY(cuda_wait(c, CUDA_COMPUTE, CUDA_OUT, c->streams[CUDA_OUT].queued));
  TRY(take(c->teller, out));
  (*out)->held = cuda_held_last(c);
  return cuda_status(c->api->event_record((*out)->event, c->streams[CUDA_COMPUTE].stream), "an event");
}

shoal_status cuda_finish(struct device *d) {
  struct cuda_device *c = cuda_of(d);
  struct cuda_told *w = NULL;
  if (!cuda_is_open(c)) return NULL;
  cuda_lock(c);
  shoal_status s = mark_end(c, &w);
  cuda_unlock(c);
  if (!s) s = wait_for(c, w->event);
  if (!w) return s;
  cuda_let_go(c, w->held);
  give(w);
  return s;
}
