/* Small all-reduces of one group in one step, by messages, those that come together as one: what a rank has for another
 * goes in parcels (parcel.h), whichever collectives it has come to by then, and the receiver finds in them what it has
 * come to itself. Nothing is agreed upon and nothing waits for more to come, so ranks may come to them in any order and
 * in other company; 200 that all come to at one moment are one message each way. All is added in the order of pairs
 * (schedule.h):
 *
 *   rounds    among a power of two of ranks: each sends its neighbour all it brings, and has the sum of both; then that
 *             to one of the next pair, and so on: every rank adds everything, in the same order
 *   direct    among others: each sends every other that one's piece of what it brings, sums its own piece of all, and
 *             sends the sum to all others
 *
 * A rank asks another for the next parcel as long as it misses something of it, and for no more: when all have ended
 * nothing is under way. A collective ends when what it has sent was taken: with its step go the values of that.
 *
 * Messages of float32 may be bfloat16 (run.h: wire): what each rank brings is rounded, its own too, summed in float32,
 * and the sum is rounded. So all ranks have the same bits, whoever sums what. Sums of some ranks would be rounded on
 * their way as well: these go directly, of two ranks all of it to the other, and both add it.
 *
 * Rejected: to agree on a list first, as ranks that share memory do (shared_order.h), is a message there and back
 * before anything moves; to join without agreeing wants all ranks to come to the same ones at one moment, and they do
 * not. */
#ifndef COLLECTIVE_PARCELS_H
#define COLLECTIVE_PARCELS_H

#include "base/cancel.h"
#include "collective/meeting.h"
#include "collective/run.h"

struct parcels;
struct parcel_out; /* one that is on its way */

/* How parcels travel: the layers above say. Both know a parcel by its two ranks and its number. */
struct parcels_wire {
  /* The parcel is taken over. Ends in one parcels_taken(), now or later, when nobody will read it any more. */
  shoal_status (*send)(struct parcels_wire *w, int peer, uint64_t number, struct tensor *parcel,
                       struct parcel_out *out);
  /* Ends in one parcels_came(), now or later; early, when the cancel is started. */
  void (*recv)(struct parcels_wire *w, int peer, uint64_t number, struct parcels *b, struct cancel *cancel);
  /* Runs that have ended, with no lock held: collective_runs_end() for them, here or elsewhere. */
  void (*over)(struct parcels_wire *w, struct collective_run *list);
  /* They live as long as somebody holds them. */
  void (*hold)(struct parcels_wire *w);
  void (*let_go)(struct parcels_wire *w);
  const char *(*name)(const struct parcels_wire *w, int peer); /* for errors */
};

enum {
  PARCELLED_BYTES = 64 << 10,         /* larger ones go by themselves */
  PARCELLED_BYTES_OF_MANY = 16 << 10, /* among more than two, where others carry fewer bytes */
  PARCELLED_RANKS = 32,               /* in larger groups a message to each is more than a tree's */
};

/* Whether such a collective is one of these: the same on all ranks. algorithm: that it asks for; -1: none. Those that
 * want messages of another type are, of any size. */
bool parcels_takes(enum collective_operation operation, int64_t n, size_t element, int size, int algorithm,
                   shoal_dtype wire);

struct parcels *parcels_new(struct parcels_wire *wire, int rank, int size);
/* Nothing is under way. */
void parcels_free(struct parcels *b);
/* Does whole collectives, of those that it takes. What one of them ends with, all do, and all to come. */
struct collective_transport *parcels_transport(struct parcels *b);
/* A parcel, which is taken over, or why there is none. From any thread; merges are done on it. */
void parcels_came(struct parcels *b, int peer, shoal_status s, struct tensor *parcel);
/* From any thread. */
void parcels_taken(struct parcel_out *out);
/* A rank that is waited for; -1: none. */
int parcels_missing(struct parcels *b);

#endif
