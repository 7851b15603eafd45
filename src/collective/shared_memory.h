/* Memory that processes of one host share for their collectives.
 *
 *   home   a process's own: one sealed memfd, which every rank it has writes to and the others map
 *   area   the part of a home that is one rank's of one group: posts, counters, slots
 *   view   another process's home, as it is seen from here
 *
 * Others find a home by its place, which travels with the description of a group's members (group.h): process,
 * descriptor, inode, and the host's boot (base/sealed.h says how it is opened, and why nobody can be made to touch
 * pages that are gone). Whatever lies in it may change at any moment under whoever reads it, and
 * be anything: numbers are read once, compared, and never used as an index or a length.
 *
 * A home takes memory as it is used: what is never touched is never there. */
#ifndef COLLECTIVE_SHARED_MEMORY_H
#define COLLECTIVE_SHARED_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collective/bonded.h"
#include "collective/transport.h"
#include "device/device.h"

enum {
  SHARED_AREAS = 16,        /* of a home: the groups, times the ranks here, that use it at a time */
  SHARED_CHUNK = 128 << 10, /* bytes that a rank shows in one turn; two turns at a time */
  SHARED_POSTS = 1024,      /* collectives that a rank has begun in a group at a time; more wait */
  SHARED_JOINED = 1 << 20,  /* bytes of sums that are done as one, where they are several */
  SHARED_RANKS = 64,        /* of a group */
  SHARED_REFUSED = 64,      /* groups that could not be joined: the last ones */
  SHARED_LOST = 1,          /* the key of an area that is nobody's, and not to be used again */
  SHARED_FORM = 3,          /* another whenever turns change, or what is shown in them: two builds go by messages */
};

/* Where a home is; boot 0: nowhere. */
struct shared_place {
  uint64_t boot, pid, fd, inode;
};

/* What a rank tells of a collective that it has come to: all must say the same. */
struct shared_post {
  struct collective_id id;
  int64_t n;
  uint32_t operation, element;
  int64_t root, arithmetic; /* its code */
};

/* The next collective of all, as rank 0 says. */
struct shared_turn_of {
  struct collective_id id;
  int64_t differs; /* the rank that says something else of it; -1: none */
  uint64_t joined; /* of the first: how many, this one and those after it, are done as one */
};

/* Written by its owner alone, but for the bell and, of what is shown to be summed, the sums. */
struct shared_area {
  _Alignas(64) _Atomic uint64_t key; /* of whom; 0: of nobody */
  _Atomic uint64_t epoch;            /* what follows is of this epoch; 0: nothing yet */
  _Atomic uint64_t broken;           /* epochs up to this are over */
  _Alignas(64) _Atomic uint32_t bell;
  _Atomic uint32_t asleep; /* it waits for the bell */
  _Alignas(64) _Atomic uint64_t posted;
  _Alignas(64) _Atomic uint64_t ordered;    /* rank 0's */
  _Alignas(64) _Atomic uint64_t turn;       /* turns that it has ended */
  _Atomic uint64_t given_up;                /* the epoch in which it has given one up, and begins no turn more */
  _Alignas(64) _Atomic uint32_t has_window; /* it is told: of groups in devices' memory */
  struct device_handle window;
  struct bond_word bond; /* of groups in devices' memory: see bonded.h */
  _Alignas(64) struct shared_post posts[SHARED_POSTS];
  struct shared_turn_of order[SHARED_POSTS];  /* rank 0's */
  _Alignas(4096) char slots[2][SHARED_CHUNK]; /* of the turns with an even and an odd number */
};

struct shared_memory {
  _Atomic uint64_t refused[SHARED_REFUSED]; /* keys of those who will not come */
  struct shared_area areas[SHARED_AREAS];
};

struct shared_home;
/* NULL where the system has no such memory. */
struct shared_home *shared_home_new(void);
void shared_home_free(struct shared_home *h);
struct shared_place shared_home_place(const struct shared_home *h);
/* NULL: there are as many as there may be. */
struct shared_area *shared_home_take(struct shared_home *h, uint64_t key);
void shared_home_give(struct shared_home *h, struct shared_area *a);
/* Tells the others that `key` does not come. */
void shared_home_refuse(struct shared_home *h, uint64_t key);

/* NULL: it is not there, or not what it is said to be. */
struct shared_memory *shared_view_open(const struct shared_place *p);
void shared_view_close(struct shared_memory *m);
/* NULL: it has not come (yet). */
struct shared_area *shared_view_find(struct shared_memory *m, uint64_t key);
bool shared_view_refuses(struct shared_memory *m, uint64_t key);
/* This host since it was started, for those who share memory in the same form; 0: unknown. */
uint64_t shared_boot(void);

/* Waits for the area's bell, for so long at most, unless it has rung since it was at `seen`. */
void shared_sleep(struct shared_area *a, uint32_t seen, int64_t ns);
/* Wakes the area's owner, if it sleeps. */
void shared_ring(struct shared_area *a);

#endif
