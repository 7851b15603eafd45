/* What did not fit, and who has been told so: a part of the leader (leader.h), under its lock.
 *
 * Members whose collectives differ are told when the second of them asks, and what they asked about is forgotten, so
 * that it can be asked anew. A member that comes after that begins to wait for the others. As a rule they come again,
 * or its step ends with theirs. But where each of them is a program of its own the others end with the error; the
 * leader goes with its program, and the late one would see a task that is lost and not that the programs differ. So the
 * leader remembers what it refused, and once it is about to go tells it to those who have not heard of it.
 *
 * To tell everybody who asks later was rejected: members of a step that was cancelled never come, and the next step,
 * whose shapes are right, would be told of the one before.
 *
 * There are few of these at a time, and for a moment only: the oldest makes room. */
#ifndef COLLECTIVE_REFUSALS_H
#define COLLECTIVE_REFUSALS_H

#include "base/status.h"
#include "base/vec.h"

/* For those who have not been told. */
#define REFUSAL_KEPT_NS 10000000000

struct told_member {
  char *device;
  uint64_t asker;
  int64_t when;
};

struct refusal {
  char *name; /* of the roll */
  shoal_status why;
  size_t size; /* how many are to be told */
  int64_t since;
  VEC(struct told_member) told;
};

struct refusals {
  VEC(struct refusal *) at; /* the oldest first */
  bool tells;               /* the leader is about to go */
};

void refusals_release(struct refusals *r);
/* NULL: a group too large to keep. `why` is copied. */
struct refusal *refusals_add(struct refusals *r, const char *name, size_t size, shoal_status why);
void refusal_tell(struct refusal *f, const char *device, uint64_t asker);
/* Was it refused not long ago? NULL: no. */
struct refusal *refusals_find(const struct refusals *r, const char *name);
/* All have met in it since. */
void refusals_forget(struct refusals *r, const char *name);
/* How many have yet to be told. And some of those who were, a moment ago, and may not have read it yet. */
size_t refusals_left(const struct refusals *r, uint64_t *told, size_t room, size_t *n_told);

#endif
