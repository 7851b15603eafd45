/* Shared memory of the fast path; see fast_shared.h.
 *
 * The memory is sealed (base/sealed.h). What the receiver writes into a block (it may, a consumer
 * reuses its input's memory) the sender gives to nobody else.
 *
 * Blocks are whole units, found from the start: in the steady state the same few pages serve every step. */
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
  int fd;
  uint64_t inode;
  uint8_t *at;
  bool used[UNITS];
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
  a->fd = fd;
  a->inode = inode;
  a->at = at;
  return a;
}

void fast_arena_free(struct fast_arena *a) {
  if (!a) return;
  munmap(a->at, ARENA);
  close(a->fd);
  free(a);
  budget_give(rpc_budget(RPC_MAX_FAST_ARENAS), 1);
}

struct fast_place fast_arena_place(const struct fast_arena *a) {
  return (struct fast_place){.pid = (uint64_t)getpid(), .fd = (uint64_t)a->fd, .inode = a->inode, .size = ARENA};
}

static size_t units_of(size_t bytes) { return (bytes + UNIT - 1) / UNIT; }

void *fast_arena_take(struct fast_arena *a, size_t bytes, uint64_t *offset) {
  size_t need = units_of(bytes), run = 0;
  for (size_t i = 0; i < UNITS; i++) {
    run = a->used[i] ? 0 : run + 1;
    if (run < need) continue;
    size_t first = i + 1 - need;
    memset(a->used + first, true, need);
    *offset = first * UNIT;
    return a->at + first * UNIT;
  }
  return NULL;
}

const void *fast_arena_at(const struct fast_arena *a, uint64_t offset) { return a->at + offset; }

void fast_arena_give(struct fast_arena *a, size_t bytes, uint64_t offset) {
  memset(a->used + offset / UNIT, false, units_of(bytes));
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
