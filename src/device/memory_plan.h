/* Where the values of a step lie in a device's memory, planned from a run of it.
 *
 * A step that is the same every time takes the same pieces of memory in the same order, and gives them back at the same
 * moments. So one run of it is noted, and each piece gets its place beforehand: two that are somebody's at the same
 * time do not overlap, and all together take hardly more than what is in use at the most (GPT-2's step exactly that),
 * where an allocator that does not know what comes takes a quarter more. Pieces are placed by size, the largest first,
 * each at the lowest place that is free for all of its time.
 *
 * What is served by a plan need not be as it was noted: a request of another size, or one whose place somebody still
 * has, is refused, and served otherwise. */
#ifndef DEVICE_MEMORY_PLAN_H
#define DEVICE_MEMORY_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"

struct device;

enum { MEMORY_PLAN_ALIGN = 256 };

struct memory_span {
  size_t size, at;
  int64_t from, to; /* moments: it is somebody's from the first to before the second */
};

struct memory_plan {
  uint64_t id; /* of the run that was noted last */
  const struct device *device;
  int64_t now;
  VEC(struct memory_span) spans; /* in the order in which they are taken */
  size_t in_use, most;           /* bytes: now, and at the most */
  size_t total;                  /* that all of it takes; 0: there is no plan */
  size_t has;                    /* what was taken for a step that was captured with it */
};

/* From begin to end what this thread takes and gives back of the device's memory is noted; at the end places are given.
 */
void memory_plan_begin(struct memory_plan *p, const struct device *d);
void memory_plan_end(void);
void memory_plan_release(struct memory_plan *p);
/* What this thread captures from now on is to lie as planned; NULL: no more. */
void memory_plan_use(struct memory_plan *p);

/* For types of devices: the plan for what is captured; NULL: none. They tell it what they took (`has`). */
struct memory_plan *memory_plan_used(const struct device *d);
/* A piece, as it is in the notes. */
struct memory_note {
  uint64_t of; /* 0: it is in none */
  size_t i;
};
struct memory_note memory_note_take(const struct device *d, size_t size);
void memory_note_give(struct memory_note n);

/* Pieces in the places that a plan has for them. Not for several threads at once. */
struct memory_serving {
  VEC(struct memory_span) spans;
  VEC(size_t) out; /* those that are somebody's now */
  size_t next;
};
void memory_serving_init(struct memory_serving *s, const struct memory_plan *p);
void memory_serving_release(struct memory_serving *s);
/* Which span the next request is; false: none. */
bool memory_serving_take(struct memory_serving *s, size_t size, size_t *span);
void memory_serving_give(struct memory_serving *s, size_t span);

#endif
