/* The order of locks, and its check; see lock_check.h.
 *
 * A table by address says of what kind each lock is; a thread keeps a list of those that it holds. To take one is to
 * compare its place in the order with theirs. Finding cycles among what was seen so far, as the kernel's lockdep does,
 * needs no list, but speaks only when both directions have been taken; and nobody could read the order anywhere.
 *
 * SHOAL_LOCKS=FILE in the environment has what breaks the order added to a file, a line for each two places, in place
 * of ending the program: for whoever changes the list. */
#ifdef SHOAL_CHECK_LOCKS
#define LOCK_CHECK_ITSELF
#undef pthread_mutex_init
#undef pthread_mutex_destroy
#undef pthread_mutex_lock
#undef pthread_mutex_trylock
#undef pthread_mutex_unlock
#undef pthread_rwlock_init
#undef pthread_rwlock_destroy
#undef pthread_rwlock_rdlock
#undef pthread_rwlock_tryrdlock
#undef pthread_rwlock_wrlock
#undef pthread_rwlock_unlock
#undef pthread_cond_wait
#undef pthread_cond_timedwait
#include "base/lock_check.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From the outermost to the innermost: the file that makes the lock, and its name there. Those of programs (tests,
 * examples) come before all, those that are not here after all. */
static const struct lock_kind {
  const char *file, *name;
  bool waits; /* one may wait for a condition while it is held */
} order[] = {
    {"train/sync_strict_graph.c", "s->strict->lock", true}, /* the chief invites workers, by steps of its own */
    {"train/hooks_common.c", "files.lock"},
    {"data/event_writer.c", "w->lock"},
    {"runtime/own_ops.c", "lock"},                 /* a library's ops are added by one at a time */
    {"cluster/remote_session.c", "s->lock", true}, /* a graph is extended, by a call, for one client at a time */
    {"cluster/master_create.c", "k->lock"},
    {"cluster/master.c", "m->lock"},
    {"cluster/master.c", "s->lock"},
    {"cluster/worker.c", "w->lock"},
    {"cluster/worker.c", "s->lock"},
    {"cluster/coordination.c", "c->lock"},
    {"cluster/coordination_agent.c", "a->lock"},
    {"cluster/step_rendezvous.c", "s->lock"},
    {"cluster/collective_memory.c", "m->lock"},
    {"cluster/collectives.c", "c->lock"},
    {"cluster/collective_failed.c", "f->lock"},
    {"cluster/cancellable.c", "c->lock"},
    {"cluster/peer.c", "p->lock"},
    {"cluster/peer.c", "e->lock"},
    {"cluster/roll_call.c", "r->lock"}, /* what is asked is cancelled under it */
    {"rpc/connect.c", "c->lock"},
    {"rpc/fast/fast_client.c", "s->lock"},
    {"rpc/fast/fast_client.c", "c->lock"},
    {"rpc/fast/fast_server.c", "s->lock"},
    {"rpc/fast/fast_wire.c", "c->lock"},
    {"rpc/door.c", "doors.lock"},
    {"rpc/http2/http2.c", "c->lock"},
    {"rpc/room.c", "room.lock"},
    {"rpc/loop.c", "loop.lock"},
    {"runtime/local_session.c", "s->graph_lock", true}, /* constants are folded under it, in parallel */
    {"runtime/function.c", "f->lock", true},            /* a body is compiled once; constants are folded, in parallel */
    {"runtime/plan.c", "c->lock"},
    {"ops/control/device_copy.c", "st->lock"},
    {"ops/state/tensor_array.c", "a->lock"}, /* one for gradients is made beside it */
    {"runtime/rendezvous.c", "r->lock"},
    {"collective/meeting.c", "m->lock"},
    {"runtime/dataflow.c", "f->verdict.lock"},
    {"ops/state/barrier.c", "b->lock"},
    {"ops/state/queue.c", "q->lock"},
    {"ops/state/batch_queue.c", "q->lock"},
    {"ops/state/wait_list.c", "l->lock", true}, /* accumulators add large gradients in parallel */
    {"ops/data/readers.c", "r->lock"},
    {"ops/data/multi_device_iterator.c", "m->lock"},
    {"ops/state/lookup.c", "t->lock"},
    {"runtime/variable.c", "v->lock", true},              /* updates of large variables compute in parallel */
    {"device/soft/soft_variables.c", "open->lock", true}, /* of what stands in for one */
    {"runtime/resource.c", "m->lock"},
};

/* Memory's stores: taken as malloc's own are, under whatever lock. (Under a sanitizer they are not used.) */
static const struct lock_kind memory[] = {{"base/block.c", "lists[c].lock"}, {"tensor/buffer.c", "shared.lock"}};

enum { OUTERMOST = -1, INNERMOST = sizeof order / sizeof *order, MEMORY, LOCKS = 1 << 18, DEEPEST = 64 };

struct lock_entry {
  const void *at;
  struct lock_kind kind;
  int rank; /* greater: further in */
};
static struct {
  pthread_mutex_t lock;
  struct lock_entry locks[LOCKS]; /* by address, open addressing */
  size_t n;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread struct {
  struct lock_entry lock;
  const char *file;
  int line;
} held[DEEPEST];
static __thread int n_held;

/* What comes after the last src/ of a path, which may have another above the tree; NULL: a program's. */
static const char *after_src(const char *path) {
  const char *last = NULL;
  for (const char *at = path; (at = strstr(at, "src/")); at += 4) last = at + 4;
  bool program = last && (strstr(last, "tests/") || strstr(last, "examples/") || strstr(last, "bench/"));
  return program ? NULL : last;
}

/* "cluster/worker.c" of a path; a file that is not in src/ as it is. */
static const char *in_tree(const char *file) {
  const char *at = after_src(file);
  return at ? at : file;
}

static int rank_of(const char *path, struct lock_kind k) {
  if (!after_src(path)) return OUTERMOST;
  for (int i = 0; i < INNERMOST; i++)
    if (!strcmp(order[i].file, k.file) && !strcmp(order[i].name, k.name)) return i;
  for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
    if (!strcmp(memory[i].file, k.file) && !strcmp(memory[i].name, k.name)) return MEMORY;
  return INNERMOST;
}

/* ---- the table; call with its lock held ---- */

static size_t home(const void *at) { return (size_t)((uintptr_t)at / 8 * 0x9e3779b97f4a7c15ull >> 40) % LOCKS; }

static struct lock_entry *find(const void *at) {
  size_t i = home(at);
  while (known.locks[i].at && known.locks[i].at != at) i = (i + 1) % LOCKS;
  return &known.locks[i];
}

static void forget(const void *at) {
  struct lock_entry *e = find(at);
  if (!e->at) return;
  known.n--;
  size_t hole = (size_t)(e - known.locks);
  for (size_t k = (hole + 1) % LOCKS; known.locks[k].at; k = (k + 1) % LOCKS) { /* so that probing finds the rest */
    if ((k - home(known.locks[k].at)) % LOCKS < (k - hole) % LOCKS) continue;
    known.locks[hole] = known.locks[k];
    hole = k;
  }
  known.locks[hole].at = NULL;
}

static struct lock_entry look_up(const void *at, const char *path, const char *name, bool anew) {
  pthread_mutex_lock(&known.lock);
  struct lock_entry *e = find(at);
  if (!e->at || anew) {
    if (!e->at && ++known.n > LOCKS / 2) abort();
    struct lock_kind k = {in_tree(path), name + (*name == '&'), false};
    int rank = rank_of(path, k);
    *e = (struct lock_entry){at, rank >= 0 && rank < INNERMOST ? order[rank] : k, rank};
  }
  struct lock_entry found = *e;
  pthread_mutex_unlock(&known.lock);
  return found;
}

static void drop(const void *at) {
  pthread_mutex_lock(&known.lock);
  forget(at);
  pthread_mutex_unlock(&known.lock);
}

/* ---- what a thread holds ---- */

static void tell(FILE *to, const char *what, const struct lock_entry *l, const char *file, int line, int outer) {
  fprintf(to, "locks: %s (%s) -> %s (%s): %s:%d, then %s:%d%s\n", held[outer].lock.kind.file,
          held[outer].lock.kind.name, l->kind.file, l->kind.name, in_tree(held[outer].file), held[outer].line,
          in_tree(file), line, what);
}

/* A lock was about to be taken inside another, or waited with, which should not have been. */
static void broken(const char *what, const struct lock_entry *l, const char *file, int line, int outer) {
  const char *to = getenv("SHOAL_LOCKS");
  if (!to) {
    tell(stderr, what, l, file, line, outer);
    fprintf(stderr, "locks: this is not the order of base/lock_check.c\n");
    abort();
  }
  enum { TOLD = 4096 };
  static atomic_uint_fast64_t told[TOLD];
  uint64_t places = ((uintptr_t)held[outer].file + (unsigned)held[outer].line) * 0x9e3779b97f4a7c15ull +
                    (uintptr_t)file + (unsigned)line;
  if (atomic_exchange(&told[places % TOLD], places) == places) return;
  FILE *f = fopen(to, "a");
  if (!f) return;
  tell(f, what, l, file, line, outer);
  fclose(f);
}

static bool in_order(const struct lock_entry *outer, const struct lock_entry *inner) {
  if (outer->rank == OUTERMOST || outer->rank < inner->rank) return true;
  bool same = !strcmp(outer->kind.file, inner->kind.file) && !strcmp(outer->kind.name, inner->kind.name);
  return same && (uintptr_t)outer->at < (uintptr_t)inner->at;
}

static void check(const struct lock_entry *l, const char *file, int line) {
  for (int i = 0; i < n_held; i++)
    if (!in_order(&held[i].lock, l)) broken("", l, file, line, i);
}

static void push(const struct lock_entry *l, const char *file, int line) {
  if (n_held == DEEPEST) return; /* so many of one kind */
  held[n_held].lock = *l;
  held[n_held].file = file;
  held[n_held++].line = line;
}

static void pop(const void *at) {
  for (int i = n_held; i-- > 0;)
    if (held[i].lock.at == at) {
      memmove(&held[i], &held[i + 1], (size_t)(n_held - i - 1) * sizeof *held);
      n_held--;
      return;
    }
}

static void check_wait(const pthread_mutex_t *m, const char *name, const char *file, int line) {
  if (n_held < 2) return;
  struct lock_entry l = look_up(m, file, name, false);
  for (int i = 0; i < n_held; i++)
    if (held[i].lock.at != m && held[i].lock.rank != OUTERMOST && !held[i].lock.kind.waits)
      broken(", which waits", &l, file, line, i);
}

/* ---- pthread's functions ---- */

int lock_check_init(pthread_mutex_t *m, const pthread_mutexattr_t *a, const char *name, const char *file) {
  look_up(m, file, name, true);
  return pthread_mutex_init(m, a);
}

int lock_check_destroy(pthread_mutex_t *m) {
  drop(m);
  return pthread_mutex_destroy(m);
}

int lock_check_lock(pthread_mutex_t *m, const char *name, const char *file, int line) {
  struct lock_entry l = look_up(m, file, name, false);
  check(&l, file, line);
  int r = pthread_mutex_lock(m);
  push(&l, file, line);
  return r;
}

/* Whoever only tries waits for nobody: in any order. */
int lock_check_trylock(pthread_mutex_t *m, const char *name, const char *file, int line) {
  struct lock_entry l = look_up(m, file, name, false);
  int r = pthread_mutex_trylock(m);
  if (r == 0) push(&l, file, line);
  return r;
}

int lock_check_unlock(pthread_mutex_t *m) {
  pop(m);
  return pthread_mutex_unlock(m);
}

int lock_check_rw_init(pthread_rwlock_t *l, const pthread_rwlockattr_t *a, const char *name, const char *file) {
  look_up(l, file, name, true);
  return pthread_rwlock_init(l, a);
}

int lock_check_rw_destroy(pthread_rwlock_t *l) {
  drop(l);
  return pthread_rwlock_destroy(l);
}

int lock_check_read(pthread_rwlock_t *l, const char *name, const char *file, int line) {
  struct lock_entry e = look_up(l, file, name, false);
  check(&e, file, line);
  int r = pthread_rwlock_rdlock(l);
  push(&e, file, line);
  return r;
}

int lock_check_try_read(pthread_rwlock_t *l, const char *name, const char *file, int line) {
  struct lock_entry e = look_up(l, file, name, false);
  int r = pthread_rwlock_tryrdlock(l);
  if (r == 0) push(&e, file, line);
  return r;
}

int lock_check_write(pthread_rwlock_t *l, const char *name, const char *file, int line) {
  struct lock_entry e = look_up(l, file, name, false);
  check(&e, file, line);
  int r = pthread_rwlock_wrlock(l);
  push(&e, file, line);
  return r;
}

int lock_check_rw_unlock(pthread_rwlock_t *l) {
  pop(l);
  return pthread_rwlock_unlock(l);
}

int lock_check_wait(pthread_cond_t *c, pthread_mutex_t *m, const char *name, const char *file, int line) {
  check_wait(m, name, file, line);
  return pthread_cond_wait(c, m);
}

int lock_check_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until, const char *name,
                         const char *file, int line) {
  check_wait(m, name, file, line);
  return pthread_cond_timedwait(c, m, until);
}
#endif
