/* A group whose members are known: devices of one task or of several, in order of rank, as their leader told them
 * (CompleteGroupResponse, which is what travels between tasks). */
#ifndef COLLECTIVE_GROUP_H
#define COLLECTIVE_GROUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/ref.h"
#include "base/status.h"
#include "base/text.h"
#include "base/wire.h"
#include "collective/shared_memory.h"

/* What Shoal's tasks say of their devices, in physical_device_desc, when they join a group, and behind it which rank
 * they claim and where the memory is that they share, if any: where all members do, they may use other algorithms than
 * TensorFlow's. */
#define COLLECTIVE_OURS "shoal"

struct collective_group {
  struct ref refs;
  int key, size;
  bool all_ours;
  bool could_share;   /* memory, as far as members say */
  uint64_t identity;  /* of its members, in any task: a hash, and no proof against whoever wants two to be the same */
  atomic_uint looked; /* after how many failed steps its members were last looked at (cluster/collective_others.h) */
  int *tasks;         /* [size], of each rank: 0, 1, ... in the order of ranks */
  struct collective_place {
    char *device;
    uint64_t incarnation;
    bool is_ours;
    struct shared_place memory;
  } places[]; /* [size] */
};

/* wanted: how many members it must have. */
shoal_status collective_group_read(const void *data, size_t n, int wanted, struct collective_group **out);
/* Have they the same members, who say the same? */
bool collective_group_equal(const struct collective_group *a, const struct collective_group *b);
struct collective_group *collective_group_ref(struct collective_group *g);
void collective_group_unref(struct collective_group *g);
/* Are all members devices of one task? */
bool collective_group_is_one_task(const struct collective_group *g);
/* Puts it down in a DeviceAttributes message. rank -1: none is claimed. */
void collective_put_claim(struct text *attributes, int rank, const struct shared_place *memory);
/* The rank that a DeviceAttributes message claims; -1: none. */
int collective_claimed_rank(struct wire attributes);
/* The rank of a device; -1: it is no member. */
int collective_group_rank(const struct collective_group *g, const char *device);
/* The bytes of "/job:worker/replica:0/task:0" in a device's full name. */
size_t device_task_length(const char *device);

#endif
