/* The transport of a group whose ranks are processes of one host: collectives in memory that all of them map.
 *
 * Whole collectives, one exchange after another: a rank posts what it has come to; rank 0 sees what all have posted and
 * says what is next for all, one collective or several that are done as one (shared_order.h); then it is done turn by
 * turn (shared_work.h). Nothing is begun before all have come to it, so it does not matter in which order each of them
 * does, and nobody is waited for who has something else to do first. What was started together is posted together.
 *
 * It is driven by one thread of the process at a time: whoever starts a collective, for a moment, if it may wait, else
 * the group's keeper, a thread of its own. Who waits spins for as long as others are likely to be at work on another
 * core, then sleeps until a bell is rung (a futex in its own area).
 *
 * Epochs. A collective that is given up in the middle leaves counters and slots as they are. The one who gives up says
 * that the epoch is over; who is in the middle fails, what was only posted is posted again, and when all are in the
 * next epoch everything counts from zero. So does whoever comes (again) to a group. A slot is not written in an epoch
 * that not all have reached: nobody reads numbers of another one. */
#ifndef COLLECTIVE_SHARED_GROUP_H
#define COLLECTIVE_SHARED_GROUP_H

#include "collective/run.h"
#include "collective/shared_memory.h"

struct shared_group;

struct shared_group_request {
  struct shared_home *home; /* outlives the group */
  uint64_t identity;        /* the same for all ranks, and for no other group */
  int rank, size;
  const struct shared_place *places; /* [size] */
  const char *const *names;          /* [size], for errors */
  struct device *device; /* values are in its memory, which is shared by windows (device.h); NULL: in the host's. All
                            ranks say the same. It outlives the group */
  /* (optional) Gets what has ended together, linked by next, to call `done` of each, with its status. */
  void (*over)(void *arg, struct collective_run *list);
  void *arg;
};

/* Can they share memory, as far as their places say? All ranks come to the same. */
bool shared_group_could(const struct shared_place *places, int size);
/* NULL: it cannot be had here, and the others are told. */
struct shared_group *shared_group_new(const struct shared_group_request *r);
/* The other ranks are told that this one comes to no group of that identity. */
void shared_group_refuse(struct shared_home *home, uint64_t identity, int rank);
/* Nothing is under way in it any more. */
void shared_group_free(struct shared_group *g);
/* Runs over it end with UNIMPLEMENTED, before anything has happened, where it is refused: some rank cannot share. */
struct collective_transport *shared_group_transport(struct shared_group *g);
bool shared_group_is_refused(const struct shared_group *g);
/* A member is gone: it will not work again. */
bool shared_group_is_dead(const struct shared_group *g);
/* Are its sums made by a library of the device's type (bonded.h)? For tests: nothing is under way. */
bool shared_group_is_bonded(const struct shared_group *g);
/* Is nothing under way? Then it may be freed, by a thread that no run has ended on. */
bool shared_group_is_idle(struct shared_group *g);
/* Whom a collective waits for; -1: nobody in particular. */
int shared_group_missing(struct shared_group *g, const struct collective_id *id);

#endif
