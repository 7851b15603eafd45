/* Shared memory of the fast path; see fast_shared.h.
 *
 * The memory is sealed (base/sealed.h). What the receiver writes into a block (it may, a consumer
 * reuses its input's memory) the sender gives to nobody else.
 *
 * Blocks are whole units, the first that are free: in the steady state the same few pages serve every step. Hundreds of
 * small blocks are taken one after another, so it is known before which unit nothing is free, and those that are used
 * or free are passed over by memchr. */
#include "rpc/fast/fast_shared.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/sealed.h"
#include "rpc/limits.h"

enum { ARENA = 8 << 20, UNIT = SHARED_FROM, UNITS = ARENA / UNIT };

struct fast_arena {
  struct fast_place place;
  uint8_t *at;
  size_t first;        /* no unit before it is free */
  uint8_t used[UNITS]; /* 1, or 0 */
};

struct fast_arena *fast_arena_new(void) {
  if (!rpc_limit_take(RPC_MAX_FAST_ARENAS)) return NULL;
  int fd;
  uint64_t inode;
  void *at = sealed_new("shoal", ARENA, &fd, &inode);
  if (!at) {
    budget_give(rpc_budget(RPC_MAX_FAST_ARENAS), 1);
    return NULL;
  }
  struct fast_arena *a = mem_zalloc(1, sizeof *a);
  a->place = (struct fast_place){.pid = (uint64_t)getpid(), .fd = (uint64_t)fd, .inode = inode, .size = ARENA};
  a->at = at;
  return a;
}

void fast_arena_free(struct fast_arena *a) {
  if (!a) return;
  munmap(a->at, ARENA);
  close((int)a->place.fd);
  free(a);
  budget_give(rpc_budget(RPC_MAX_FAST_ARENAS), 1);
}

const struct fast_place *fast_arena_place(const struct fast_arena *a) { return &a->place; }

static size_t units_of(size_t bytes) { return (bytes + UNIT - 1) / UNIT; }

void *fast_arena_take(struct fast_arena *a, size_t bytes, uint64_t *offset) {
  size_t need = units_of(bytes);
  for (size_t at = a->first, next; at + need <= UNITS; at = next) {
    const uint8_t *from = memchr(a->used + at, 0, UNITS - at);
    if (!from) return NULL;
    if (at == a->first) a->first = (size_t)(from - a->used);
    at = (size_t)(from - a->used);
    const uint8_t *end = at + need <= UNITS ? memchr(from, 1, need) : from;
    next = end ? (size_t)(end - a->used) + 1 : at + need;
    if (end) continue;
    memset(a->used + at, 1, need);
    if (at == a->first) a->first = next;
    *offset = at * UNIT;
    return a->at + at * UNIT;
  }
  return NULL;
}

const void *fast_arena_at(const struct fast_arena *a, uint64_t offset) { return a->at + offset; }

void fast_arena_give(struct fast_arena *a, size_t bytes, uint64_t offset) {
  memset(a->used + offset / UNIT, 0, units_of(bytes));
  a->first = MIN(a->first, (size_t)offset / UNIT);
}

/* ---- the receiver's side ---- */

bool fast_view_open(struct fast_view *v, const struct fast_place *p) {
  void *at = p->size == ARENA ? sealed_open(p->pid, p->fd, p->inode, ARENA) : NULL;
  if (!at) return false;
  *v = (struct fast_view){.at = at, .size = ARENA, .inode = p->inode};
  return true;
}

void fast_view_close(struct fast_view *v) {
  if (v->at) munmap(v->at, v->size);
  *v = (struct fast_view){0};
}
