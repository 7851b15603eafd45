/* Room for what a request becomes when it is unpacked, beside its own bytes: a few of these can stand for many (a
 * context is put before each example, a comma and two quotes are a string); and for its answer while that is made.
 * Counted with the requests that are held. */
#ifndef SERVING_UNPACK_H
#define SERVING_UNPACK_H

#include "base/cancel.h"
#include "base/status.h"

struct unpack_room {
  bool (*take)(void *arg, size_t bytes); /* false: there is none. NULL: without bounds */
  void *arg;
};

/* Who asks: until when, in how much room, and how it is heard that nobody waits for the answer any more. */
struct querier {
  int64_t deadline; /* of clock_ns() */
  struct unpack_room room;
  struct cancel *cancel; /* NULL: always somebody does */
};

static inline shoal_status unpack_take(const struct unpack_room *r, size_t bytes) {
  if (!r->take || r->take(r->arg, bytes)) return NULL;
  return STATUS(SHOAL_RESOURCE_EXHAUSTED, "there is no room for its %zu bytes beside what is held (--max_held_bytes)",
                bytes);
}

#endif
