/* Groups whose members are processes of one host, in memory that they share (collective/shared_group.h): each worker
 * has one home, and is in a group with each member of its own. Those that were used last are kept, as a step's
 * collectives are the next step's, too; a member that could not share is remembered, and its group goes by messages. So
 * does a group whose identity is another's: who is in it says so much of itself that it can choose that. */
#include "cluster/collective_memory.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/fingerprint.h"
#include "base/inside.h"
#include "base/mem.h"
#include "base/vec.h"

enum { MOST_KEPT = SHARED_AREAS - 4, MOST_KNOWN = 256 };

struct memory_member { /* this task's part in a group */
  uint64_t identity;
  int rank;
  struct collective_group *of; /* a reference */
  struct shared_group *group;  /* NULL: it cannot be had */
  int users;
  uint64_t used; /* when it last was, by count */
};

struct collective_memory {
  struct shared_home *home; /* NULL: none */
  pthread_mutex_t lock;
  VEC(struct memory_member *) members; /* lock */
  uint64_t uses;                       /* lock */
  struct inside burials;
};

struct collective_memory *collective_memory_new(bool wanted) {
  struct collective_memory *m = mem_zalloc(1, sizeof *m);
  pthread_mutex_init(&m->lock, NULL);
  inside_init(&m->burials);
  if (wanted) m->home = shared_home_new();
  return m;
}

static void member_free(struct memory_member *e) {
  if (!e) return;
  shared_group_free(e->group);
  collective_group_unref(e->of);
  free(e);
}

void collective_memory_free(struct collective_memory *m) {
  if (!m) return;
  inside_wait(&m->burials);
  for (size_t i = 0; i < m->members.n; i++) member_free(m->members.at[i]);
  vec_release(&m->members);
  shared_home_free(m->home);
  pthread_mutex_destroy(&m->lock);
  free(m);
}

struct shared_place collective_memory_place(const struct collective_memory *m) {
  return m->home ? shared_home_place(m->home) : (struct shared_place){0};
}

/* ---- what is not needed any more ---- */

struct burial {
  struct collective_memory *memory;
  struct memory_member *member;
};

/* It waits a moment for those who read what it has shown. */
static void bury(void *arg) {
  struct burial *b = arg;
  struct collective_memory *m = b->memory;
  member_free(b->member);
  free(b);
  inside_leave(&m->burials);
}

/* With the lock held: the member that was not used for longest, of those with a group or of those without. */
static struct memory_member *take_oldest(struct collective_memory *m, bool has_group) {
  size_t n = 0, oldest = SIZE_MAX;
  for (size_t i = 0; i < m->members.n; i++) {
    struct memory_member *e = m->members.at[i];
    if ((e->group != NULL) != has_group) continue;
    n++;
    if (!e->users && (oldest == SIZE_MAX || e->used < m->members.at[oldest]->used)) oldest = i;
  }
  if (n < (has_group ? MOST_KEPT : MOST_KNOWN) || oldest == SIZE_MAX) return NULL;
  struct memory_member *e = m->members.at[oldest];
  m->members.at[oldest] = m->members.at[--m->members.n];
  return e;
}

/* With the lock held. */
static void make_room(struct collective_memory *m, struct pool *pool) {
  member_free(take_oldest(m, false));
  struct memory_member *e = take_oldest(m, true);
  if (!e) return;
  struct burial *b = mem_zalloc(1, sizeof *b);
  *b = (struct burial){m, e};
  inside_enter(&m->burials);
  pool_submit(pool, bury, b);
}

/* ---- joining ---- */

static void end_list(void *list) { collective_runs_end(list); }

/* On the group's own thread, which others may wait for, or on the pool's. */
static void over(void *pool, struct collective_run *list) {
  if (pool_is_mine(pool)) end_list(list);
  else pool_submit(pool, end_list, list);
}

/* A group in devices' memory is another one than the same members have in the host's. */
static uint64_t identity_of(const struct collective_group *g, const struct device *device) {
  return device ? fingerprint_cat64(g->identity, DEVICE_HANDLE) : g->identity;
}

static struct shared_group *join(struct collective_memory *m, const struct collective_group *g, int rank,
                                 struct device *device, struct pool *pool) {
  struct shared_place places[SHARED_RANKS];
  const char *names[SHARED_RANKS];
  for (int i = 0; i < g->size; i++) {
    places[i] = g->places[i].memory;
    names[i] = g->places[i].device;
  }
  return shared_group_new(&(struct shared_group_request){.home = m->home,
                                                         .identity = identity_of(g, device),
                                                         .rank = rank,
                                                         .size = g->size,
                                                         .places = places,
                                                         .names = names,
                                                         .device = device,
                                                         .over = over,
                                                         .arg = pool});
}

/* With the lock held. */
static struct memory_member *find(struct collective_memory *m, uint64_t identity, int rank) {
  for (size_t i = 0; i < m->members.n; i++) {
    struct memory_member *e = m->members.at[i];
    if (e->identity == identity && e->rank == rank) return e;
  }
  return NULL;
}

struct memory_member *collective_memory_join(struct collective_memory *m, struct collective_group *g, int rank,
                                             struct device *device, struct pool *pool) {
  uint64_t identity = identity_of(g, device);
  if (!m->home || !g->could_share) return NULL;
  pthread_mutex_lock(&m->lock);
  struct memory_member *e = find(m, identity, rank);
  if (!e) {
    make_room(m, pool);
    e = mem_zalloc(1, sizeof *e);
    *e = (struct memory_member){
        .identity = identity, .rank = rank, .of = collective_group_ref(g), .group = join(m, g, rank, device, pool)};
    vec_push(&m->members, e);
  }
  bool same = collective_group_equal(e->of, g);
  if (same) e->used = ++m->uses;
  else shared_group_refuse(m->home, identity, rank);
  bool usable = same && e->group && !shared_group_is_refused(e->group) && !shared_group_is_dead(e->group);
  if (usable) e->users++;
  pthread_mutex_unlock(&m->lock);
  return usable ? e : NULL;
}

void collective_memory_leave(struct collective_memory *m, struct memory_member *e) {
  pthread_mutex_lock(&m->lock);
  e->users--;
  pthread_mutex_unlock(&m->lock);
}

struct shared_group *memory_member_group(struct memory_member *e) {
  return e->group;
}
