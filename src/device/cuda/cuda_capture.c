/* Steps that a card keeps: CUDA's graphs.
 *
 * Between its begin and its end all that is put on the stream that computes becomes a part of the graph, by whatever
 * library; copies in and at the end go there too, from and to pinned memory of the graph's own. The stream is captured
 * itself, not another in its place, since libraries were told of it. Other threads wait for the device's lock until
 * that is over: steps are kept away by the gate, but not those that look after the device.
 *
 * Memory that is taken meanwhile is cut from a region of the graph's own, where each value has the place that was
 * planned for it (device/memory_plan.h), or from further regions, so that what was given back serves again inside the
 * graph, and nobody else gets it as long as the graph is there. */
#include <stdlib.h>

#include "base/mem.h"
#include "device/cuda/cuda.h"
#include "device/memory_plan.h"

struct cuda_capture {
  struct device_capture head;
  struct cuda_device *c;
  struct cuda_memory *memory;
  CUgraphExec exec;
};

static _Thread_local struct cuda_capture *capturing; /* by this thread, now */

struct cuda_capture *cuda_capturing(const struct cuda_device *c) {
  return capturing && capturing->c == c ? capturing : NULL;
}

struct cuda_memory *cuda_capture_memory(const struct cuda_capture *k) {
  return k->memory;
}

void cuda_capture_feed(struct cuda_capture *k, struct buffer *b) { vec_push(&k->head.feeds, buffer_ref(b)); }
void cuda_capture_fetch(struct cuda_capture *k, struct buffer *b) { vec_push(&k->head.fetches, buffer_ref(b)); }

/* With the lock held. What copies in have queued comes before: nothing in the graph waits for another stream. */
static shoal_status begin(struct cuda_device *c) {
  enum { RELAXED = 2 }; /* memory may be taken from the driver meanwhile */
  struct cuda_stream *s = &c->streams[CUDA_COMPUTE];
  TRY(cuda_wait(c, CUDA_COMPUTE, CUDA_IN, c->streams[CUDA_IN].queued));
  return cuda_status(c->api->capture_begin(s->stream, RELAXED), "a graph");
}

shoal_status cuda_capture_begin(struct device *d, struct device_capture **out) {
  struct cuda_device *c = cuda_of(d);
  TRY(cuda_open(c));
  struct cuda_capture *k = mem_zalloc(1, sizeof *k);
  *out = &k->head;
  k->c = c;
  k->memory = cuda_memory_within(d, memory_plan_used(d));
  cuda_lock(c);
  shoal_status s = begin(c);
  if (!s) {
    c->captured = true;
    c->capturer = pthread_self();
    capturing = k;
  }
  cuda_unlock(c);
  return s;
}

shoal_status cuda_capture_end(struct device *d, struct device_capture *of) {
  struct cuda_device *c = cuda_of(d);
  struct cuda_capture *k = (struct cuda_capture *)of;
  CUgraph graph = NULL;
  cuda_lock(c);
  shoal_status s = cuda_status(c->api->capture_end(c->streams[CUDA_COMPUTE].stream, &graph), "a graph");
  if (!s) s = cuda_status(c->api->graph_make(&k->exec, graph, 0), "a graph");
  if (graph) c->api->graph_free(graph);
  capturing = NULL;
  c->captured = false;
  pthread_cond_broadcast(&c->released);
  cuda_unlock(c);
  struct memory_plan *planned = memory_plan_used(d);
  if (planned) planned->has = cuda_memory_taken(k->memory);
  return s;
}

shoal_status cuda_replay(struct device *d, struct device_capture *of) {
  struct cuda_device *c = cuda_of(d);
  cuda_lock(c);
  shoal_status s = cuda_wait(c, CUDA_COMPUTE, CUDA_IN, c->streams[CUDA_IN].queued);
  cuda_count_computed(c);
  if (!s)
    s = cuda_status(c->api->graph_launch(((struct cuda_capture *)of)->exec, c->streams[CUDA_COMPUTE].stream),
                    "a captured step");
  cuda_unlock(c);
  return s;
}

static void release(struct buffer **at, size_t n) {
  for (size_t i = 0; i < n; i++) buffer_unref(at[i]);
  free(at);
}

void cuda_capture_free(struct device *d, struct device_capture *of) {
  struct cuda_capture *k = (struct cuda_capture *)of;
  cuda_enter(k->c->context);
  if (k->exec) k->c->api->graph_drop(k->exec);
  release(k->head.feeds.at, k->head.feeds.n);
  release(k->head.fetches.at, k->head.fetches.n);
  cuda_memory_free(k->memory);
  free(k);
}
