/* A worker's part in groups whose members share memory: see the head of the file. */
#ifndef CLUSTER_COLLECTIVE_MEMORY_H
#define CLUSTER_COLLECTIVE_MEMORY_H

#include "base/pool.h"
#include "collective/group.h"
#include "collective/shared_group.h"

struct collective_memory; /* of one worker */
struct memory_member;     /* its part in one group */

/* wanted: else all groups go by messages. */
struct collective_memory *collective_memory_new(bool wanted);
/* Nobody uses a member any more. */
void collective_memory_free(struct collective_memory *m);
/* What its members say of themselves (group.h). */
struct shared_place collective_memory_place(const struct collective_memory *m);

/* NULL: the group goes by messages. device: values are in its memory; NULL: in the host's. The pool is given what takes
 * a while, and what has ended: it is the one that all of the worker's steps have. */
struct memory_member *collective_memory_join(struct collective_memory *m, struct collective_group *g, int rank,
                                             struct device *device, struct pool *pool);
/* The collective has ended. */
void collective_memory_leave(struct collective_memory *m, struct memory_member *e);
struct shared_group *memory_member_group(struct memory_member *e);

#endif
