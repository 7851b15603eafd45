/* Memory that two tasks of one host share, for tensors of some size.
 *
 * Reading the sender's memory (process_vm_readv) costs the system a third of a microsecond for each page, four times
 * what copying takes. So a sender has an arena for each connection, which the receiver maps once: a tensor is copied
 * into a block of it, by the sender, and stays there until the receiver has no more use for it. By the socket it would
 * be copied four times: to where frames are gathered, by the system twice, and out of what was read. Large tensors
 * would need large arenas, which nobody would give back; they are read by the receiver as before, and so is what finds
 * the arena full (less than 64 KB: by the socket). */
#ifndef RPC_FAST_FAST_SHARED_H
#define RPC_FAST_FAST_SHARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHARED_FROM = 1 << 10, SHARED_TO = 2 << 20 }; /* the tensors that are meant, in bytes */

/* Where an arena is, as the sender tells it. */
struct fast_place {
  uint64_t pid, fd, inode, size;
};
_Static_assert(sizeof(struct fast_place) == 32 && offsetof(struct fast_place, fd) == 8 &&
                   offsetof(struct fast_place, inode) == 16 && offsetof(struct fast_place, size) == 24,
               "it is sent as it is, see fast.h");

struct fast_arena;
/* NULL when the system has no such memory, or there are too many of them. */
struct fast_arena *fast_arena_new(void);
void fast_arena_free(struct fast_arena *a);
const struct fast_place *fast_arena_place(const struct fast_arena *a);
/* A block of so many bytes, or NULL; where it begins in *offset. One thread at a time. */
void *fast_arena_take(struct fast_arena *a, size_t bytes, uint64_t *offset);
/* What begins there. The receiver may have written there too. */
const void *fast_arena_at(const struct fast_arena *a, uint64_t offset);
void fast_arena_give(struct fast_arena *a, size_t bytes, uint64_t offset);

/* An arena as its receiver sees it. */
struct fast_view {
  uint8_t *at;
  size_t size;
  uint64_t inode;
};
/* False when it cannot be mapped, or is not what it is said to be. */
bool fast_view_open(struct fast_view *v, const struct fast_place *p);
void fast_view_close(struct fast_view *v);

#endif
