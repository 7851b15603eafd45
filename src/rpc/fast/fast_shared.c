/* Shared memory of the fast path; see fast_shared.h.
 *
 * The memory is sealed against shrinking, and is of the plain kind: a receiver that maps it cannot be made to touch
 * pages that are gone, or huge ones that never were there. What the receiver writes into a block (it may, a consumer
 * reuses its input's memory) the sender never reads.
 *
 * Blocks are whole units, found from the start: in the steady state the same few pages serve every step. */
#include "rpc/fast/fast_shared.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/mem.h"
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
  int fd = memfd_create("shoal", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  struct stat st;
  void *at = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, ARENA) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0 &&
      fstat(fd, &st) == 0)
    at = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) {
    if (fd >= 0) close(fd);
    budget_give(rpc_budget(RPC_MAX_FAST_ARENAS), 1);
    return NULL;
  }
  struct fast_arena *a = mem_zalloc(1, sizeof *a);
  a->fd = fd;
  a->inode = (uint64_t)st.st_ino;
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

void fast_arena_give(struct fast_arena *a, size_t bytes, uint64_t offset) {
  memset(a->used + offset / UNIT, false, units_of(bytes));
}

/* ---- the receiver's side ---- */

bool fast_view_open(struct fast_view *v, const struct fast_place *p) {
  char path[64];
  struct stat st;
  struct statfs where;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)p->pid, (int)p->fd);
  /* Looked at before it is opened: what a wrong number leads to might not like it. */
  if (p->size != ARENA || stat(path, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_ino != p->inode) return false;
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK), seals = fd >= 0 ? fcntl(fd, F_GET_SEALS) : -1;
  void *at = MAP_FAILED;
  if (seals >= 0 && seals & F_SEAL_SHRINK && fstatfs(fd, &where) == 0 && where.f_type == TMPFS_MAGIC &&
      fstat(fd, &st) == 0 && st.st_size == ARENA && (uint64_t)st.st_ino == p->inode)
    at = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  if (at == MAP_FAILED) return false;
  *v = (struct fast_view){.at = at, .size = ARENA, .inode = p->inode};
  return true;
}

void fast_view_close(struct fast_view *v) {
  if (v->at) munmap(v->at, v->size);
  *v = (struct fast_view){0};
}
