/* How the messages of a collective get from rank to rank: the table that every transport implements.
 *
 * A message is known on both sides by the collective it belongs to (collective_id) and by which of the pair's it is
 * (transfer: peer, number), so neither side announces anything. A transport moves bytes between the memory that the two
 * sides name and keeps no more of them than it needs to have some under way. */
#ifndef COLLECTIVE_TRANSPORT_H
#define COLLECTIVE_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/buffer.h"

/* One operation of a group in one step: the same on all ranks. */
struct collective_id {
  int64_t step;
  int group_key, instance_key;
  uint64_t frame, iter;
};

static inline bool collective_id_equal(const struct collective_id *a, const struct collective_id *b) {
  return a->step == b->step && a->instance_key == b->instance_key && a->group_key == b->group_key &&
         a->frame == b->frame && a->iter == b->iter;
}

struct collective_transfer {
  int peer;             /* rank */
  const int *label;     /* [3], which the other side has too: schedule.h */
  void *data;           /* a send only reads it */
  size_t bytes;         /* both sides agree */
  struct buffer *owner; /* of data, where it has one: whoever takes a reference may read data for as long */
  /* (optional, of receives) Is given the bytes in order, whole elements at a time, from memory of the transport's own;
   * data stays untouched. */
  void (*take)(struct collective_transfer *t, const void *piece, size_t at, size_t bytes);
  /* Called exactly once, from any thread, with no lock of the transport held; s is to be taken over. After it data may
   * be used again. */
  void (*done)(struct collective_transfer *t, shoal_status s);

  struct collective_transfer *next; /* the transport's own */
};

struct collective_transport;
struct collective_run;

struct collective_transport_ops {
  const char *name;
  /* Both may call done before they return. */
  void (*send)(struct collective_transport *t, const struct collective_id *id, struct collective_transfer *x);
  void (*recv)(struct collective_transport *t, const struct collective_id *id, struct collective_transfer *x);
  /* Every transfer of this collective that has not ended does so, now or soon, with a copy of why. */
  void (*abandon)(struct collective_transport *t, const struct collective_id *id, shoal_status why);
  /* (optional, and then the only one beside abandon) Does a whole collective, by the run's request, and those behind
   * it (run.h). */
  void (*whole)(struct collective_transport *t, struct collective_run *r);
};

/* The head of a transport's own struct; each rank of a group has its own. */
struct collective_transport {
  const struct collective_transport_ops *ops;
};

#endif
