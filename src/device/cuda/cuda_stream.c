/* Streams of a card: counting, waiting, launching. See cuda.h. */
#include "device/cuda/cuda.h"

void cuda_lock(struct cuda_device *c) {
  cuda_enter(c->context);
  pthread_mutex_lock(&c->lock);
  while (c->captured && !pthread_equal(c->capturer, pthread_self())) pthread_cond_wait(&c->released, &c->lock);
}

void cuda_unlock(struct cuda_device *c) { pthread_mutex_unlock(&c->lock); }

shoal_status cuda_streams_new(struct cuda_device *c) {
  for (int i = 0; i < CUDA_STREAMS; i++) {
    TRY(cuda_status(c->api->stream_new(&c->streams[i].stream, CU_STREAM_NON_BLOCKING), "a stream"));
    TRY(cuda_status(c->api->event_new(&c->streams[i].mark, CU_EVENT_DISABLE_TIMING), "an event"));
  }
  return NULL;
}

void cuda_streams_free(struct cuda_device *c) {
  for (int i = 0; i < CUDA_STREAMS; i++) {
    if (c->streams[i].mark) c->api->event_free(c->streams[i].mark);
    if (c->streams[i].stream) c->api->stream_free(c->streams[i].stream);
  }
}

/* The mark is where the other is now, which is later than was asked for: what was asked for later is covered too. */
shoal_status cuda_wait(struct cuda_device *c, enum cuda_stream_id on, enum cuda_stream_id other, uint64_t until) {
  struct cuda_stream *s = &c->streams[on], *o = &c->streams[other];
  if (until <= s->waited[other] || on == other) return NULL;
  TRY(cuda_status(c->api->event_record(o->mark, o->stream), "a mark on a stream"));
  TRY(cuda_status(c->api->stream_wait(s->stream, o->mark, 0), "a stream that waits"));
  s->waited[other] = o->queued;
  return NULL;
}

shoal_status cuda_use(struct cuda_device *c, const struct tensor *t) {
  if (!t->buffer || !t->buffer->device) return NULL;
  return cuda_wait(c, CUDA_COMPUTE, CUDA_IN, cuda_copied_in(t));
}

void cuda_count_computed(struct cuda_device *c) { atomic_store(&c->computed, ++c->streams[CUDA_COMPUTE].queued); }

shoal_status cuda_launch(struct cuda_device *c, CUfunction f, unsigned grid_x, unsigned grid_y, unsigned block,
                         void **args) {
  struct cuda_stream *s = &c->streams[CUDA_COMPUTE];
  cuda_count_computed(c);
  return cuda_status(c->api->launch(f, grid_x, grid_y, 1, block, 1, 1, 0, s->stream, args, NULL), "a kernel");
}

shoal_status cuda_launch_sharing(struct cuda_device *c, CUfunction f, unsigned grid, unsigned block, unsigned bytes,
                                 void **args) {
  struct cuda_stream *s = &c->streams[CUDA_COMPUTE];
  cuda_count_computed(c);
  return cuda_status(c->api->launch(f, grid, 1, 1, block, 1, 1, bytes, s->stream, args, NULL), "a kernel");
}

shoal_status cuda_let_share(struct cuda_device *c, CUfunction f, unsigned bytes) {
  enum { MOST_SHARED = 8 }; /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
  cuda_enter(c->context);
  return cuda_status(c->api->function_set(f, MOST_SHARED, (int)bytes), "a kernel's shared memory");
}
