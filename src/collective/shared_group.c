#include "collective/shared_group.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fingerprint.h"
#include "base/log.h"
#include "base/mem.h"
#include "collective/shared_order.h"
#include "collective/shared_work.h"
#include "collective/window_work.h"

enum {
  SPIN_NS = 2000,        /* another core answers within this */
  YIELD_NS = 100000,     /* others on this core do something for us within this */
  LOOK_NS = 100000000,   /* then: how often those who are waited for are looked at */
  LEAVE_NS = 1000000000, /* how long who leaves waits for those who read what it has shown */
  RETRIES = 16,          /* epochs that end before anything has happened, one right after another */
  REST_US = 1000,        /* then: between two of them */
};
/* No group lives to see it: whoever says so writes nonsense, and counting on from there would begin at 0 again. */
static const uint64_t LAST_EPOCH = UINT64_MAX / 2;

struct shared_group {
  struct collective_transport head;
  struct shared_home *home;
  uint64_t identity;
  int rank, size;
  bool crowded; /* there are more ranks than cores: spinning only keeps others from work */
  struct shared_area *own;
  struct shared_member {
    char *name;
    pid_t pid;
    int process; /* a descriptor of it; -1: the system has none */
    struct shared_memory *view;
    struct device_handle handle; /* of the window that was opened */
  } * members;                   /* [size] */
  struct device *device;         /* NULL: values are in the host's memory */
  struct tensor *windows;        /* [size], of each rank: the own one, and the driver's: those that were opened */
  struct device_bond *bond;      /* the driver's: makes the sums of this epoch; NULL: windows do */
  uint64_t bond_epoch;           /* the driver's: that it was settled in */
  char *spare;
  void (*over)(void *arg, struct collective_run *list);
  void *arg;

  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct collective_run *first, *last; /* lock: begun, not ended; the oldest first */
  struct collective_run *unposted;     /* lock: the first of them that is; so are those after it */
  bool driven;                         /* lock: some thread drives it */
  bool closing, has_keeper;            /* lock */
  pthread_t keeper;
  atomic_int begun; /* how many there are in that list */
  atomic_bool stop; /* what is being executed is given up */
  atomic_bool refused, dead;

  /* the driver's own */
  struct shared_area *areas[SHARED_RANKS]; /* NULL: has not come */
  _Atomic(struct shared_area *) leader;    /* areas[0], for everybody */
  uint64_t epoch;                          /* lock to write: others may post */
  uint64_t turn, next;                     /* of this epoch: turns ended, collectives ended */
  struct shared_order order;               /* rank 0's */
  shoal_status death;                      /* lock to write, once dead is set it stays */
  struct shared_part parts[SHARED_POSTS];  /* of the exchange under way */
};

static uint64_t key_of(uint64_t identity, int rank) { return fingerprint_cat64(identity, (uint64_t)rank + 1) | 2; }

static void ring_all(struct shared_group *g) {
  for (int r = 0; r < g->size; r++)
    if (r != g->rank && g->areas[r]) shared_ring(g->areas[r]);
}

/* ---- the epoch ---- */

static void end_epoch(struct shared_group *g, uint64_t epoch) {
  uint64_t was = atomic_load(&g->own->broken);
  while (was < epoch && !atomic_compare_exchange_weak(&g->own->broken, &was, epoch)) continue;
}

/* Somebody who has ended this epoch; -1: nobody has. */
static int who_broke(const struct shared_group *g) {
  for (int r = 0; r < g->size; r++) {
    struct shared_area *a = g->areas[r];
    if (!a || atomic_load(&a->broken) >= g->epoch || atomic_load(&a->key) != key_of(g->identity, r)) return r;
  }
  return -1;
}

/* With the lock held: what there is room for, all of it at once for those who look. */
static void post(struct shared_group *g) {
  uint64_t at = atomic_load(&g->own->posted);
  if (atomic_load(&g->own->epoch) == 0) return;
  for (struct collective_run *r; (r = g->unposted) && at - g->next < SHARED_POSTS; g->unposted = r->next)
    g->own->posts[at++ % SHARED_POSTS] = (struct shared_post){.id = r->id,
                                                              .n = r->request->n,
                                                              .operation = (uint32_t)r->request->operation,
                                                              .element = (uint32_t)r->element,
                                                              .root = r->request->root,
                                                              .arithmetic = collective_arithmetic_code(r->arithmetic)};
  atomic_store(&g->own->posted, at);
}

static void enter_epoch(struct shared_group *g, uint64_t epoch) {
  struct shared_area *a = g->own;
  pthread_mutex_lock(&g->lock);
  g->epoch = epoch;
  g->turn = g->next = 0;
  shared_order_clear(&g->order);
  atomic_store(&a->posted, 0);
  atomic_store(&a->ordered, 0);
  atomic_store(&a->turn, 0);
  atomic_store(&a->epoch, epoch);
  g->unposted = g->first;
  post(g);
  pthread_mutex_unlock(&g->lock);
  ring_all(g);
}

/* What rank r says makes no sense: nothing more happens in this group. */
static void distrust(struct shared_group *g, int r) {
  pthread_mutex_lock(&g->lock);
  if (!g->death) g->death = INTERNAL("the shared memory of %s (rank %d) says what cannot be", g->members[r].name, r);
  pthread_mutex_unlock(&g->lock);
  atomic_store(&g->dead, true);
}

/* Looks for the areas of those who have not come. Whoever is found anew may be in an epoch that this rank was no part
 * of, and this one in another: that one is over. False: somebody will not come. */
static bool find_areas(struct shared_group *g) {
  for (int r = 0; r < g->size; r++) {
    uint64_t key = key_of(g->identity, r);
    if (g->areas[r] && atomic_load(&g->areas[r]->key) == key) continue;
    g->areas[r] = shared_view_find(g->members[r].view, key);
    uint64_t epoch = g->areas[r] ? atomic_load(&g->areas[r]->epoch) : 0;
    if (epoch > LAST_EPOCH) distrust(g, r);
    else if (g->areas[r]) end_epoch(g, epoch);
    else if (shared_view_refuses(g->members[r].view, key)) return false;
  }
  atomic_store(&g->leader, g->areas[0]);
  return true;
}

/* Of groups in devices' memory: opens the windows of those who have told of theirs. False: some have not, or one cannot
 * be had, and then the group is refused. */
static bool find_windows(struct shared_group *g) {
  bool all = true;
  for (int r = 0; r < g->size && g->device; r++) {
    if (r == g->rank) continue;
    struct device_handle handle;
    if (!g->areas[r] || !atomic_load(&g->areas[r]->has_window)) {
      all = false;
      continue;
    }
    memcpy(&handle, &g->areas[r]->window, sizeof handle); /* once: it may change */
    if (tensor_valid(&g->windows[r]) && !memcmp(&handle, &g->members[r].handle, sizeof handle)) continue;
    tensor_release(&g->windows[r]);
    g->members[r].handle = handle;
    shoal_status s = g->device->type->ops->window_open(g->device, &handle, WINDOW_BYTES, &g->windows[r]);
    if (!s) continue;
    LOGI("collectives of %s and %s go by way of the host: %s", g->members[g->rank].name, g->members[r].name,
         shoal_status_message(s));
    shoal_status_free(s);
    shared_home_refuse(g->home, key_of(g->identity, g->rank));
    atomic_store(&g->refused, true);
    return false;
  }
  return all;
}

/* Whether all are in one epoch, this rank too. It enters none before it has found all: it might find the last when the
 * others have begun, and end it. */
static bool is_ready(struct shared_group *g) {
  uint64_t over = atomic_load(&g->own->broken);
  bool all = true;
  if (!find_areas(g)) {
    atomic_store(&g->refused, true);
    return false;
  }
  for (int r = 0; r < g->size; r++) {
    uint64_t broken = g->areas[r] ? atomic_load(&g->areas[r]->broken) : 0;
    if (!g->areas[r]) all = false;
    if (broken > LAST_EPOCH) distrust(g, r);
    over = MAX(over, broken);
  }
  over = MAX(over, atomic_load(&g->own->broken));
  if (over > LAST_EPOCH) distrust(g, g->rank); /* by whoever wrote there */
  if (atomic_load(&g->dead)) return false;
  all = all && find_windows(g);
  if (all && g->epoch != over + 1) enter_epoch(g, over + 1);
  for (int r = 0; r < g->size && all; r++) all = atomic_load(&g->areas[r]->epoch) == g->epoch;
  return all;
}

/* ---- waiting ---- */

static bool is_gone(const struct shared_member *m) {
  struct pollfd p = {.fd = m->process, .events = POLLIN};
  if (m->process >= 0) return poll(&p, 1, 0) > 0;
  return kill(m->pid, 0) != 0 && errno == ESRCH;
}

static void look_at_members(struct shared_group *g) {
  for (int r = 0; r < g->size; r++) {
    if (g->members[r].pid == getpid() || !is_gone(&g->members[r])) continue;
    pthread_mutex_lock(&g->lock);
    if (!g->death)
      g->death = STATUS(SHOAL_UNAVAILABLE, "the process of %s (rank %d), %d, is gone", g->members[r].name, r,
                        (int)g->members[r].pid);
    pthread_mutex_unlock(&g->lock);
    atomic_store(&g->dead, true);
  }
}

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

typedef bool (*condition)(struct shared_group *g);

/* Until it is so, or something is wrong (look at what was waited for), or nobody waits any more for a collective, or
 * `patience` ns have passed. */
static bool wait_for(struct shared_group *g, condition is_so, int64_t patience) {
  int64_t began = 0;
  for (unsigned i = 0;; i++) {
    if (is_so(g)) return true;
    if (i % 64 && !g->crowded) {
      relax();
      continue;
    }
    if (atomic_load(&g->stop) || atomic_load(&g->dead) || atomic_load(&g->refused) || !atomic_load(&g->begun))
      return false;
    int64_t now = clock_ns();
    if (!began) began = now;
    if (now - began > patience) return false;
    if (!g->crowded && now - began < SPIN_NS) continue;
    if (now - began < YIELD_NS) {
      sched_yield();
      continue;
    }
    uint32_t bell = atomic_load(&g->own->bell);
    atomic_store(&g->own->asleep, 1);
    if (!is_so(g) && !atomic_load(&g->stop) && atomic_load(&g->begun)) shared_sleep(g->own, bell, LOOK_NS);
    atomic_store(&g->own->asleep, 0);
    if (clock_ns() - now >= LOOK_NS) look_at_members(g);
  }
}

/* ---- a collective ---- */

static bool all_turned(struct shared_group *g) {
  for (int r = 0; r < g->size; r++)
    if (atomic_load(&g->areas[r]->turn) < g->turn) return who_broke(g) >= 0;
  return true;
}

static bool turned(const struct shared_group *g) {
  for (int r = 0; r < g->size; r++)
    if (atomic_load(&g->areas[r]->turn) < g->turn) return false;
  return true;
}

static shoal_status why_not(struct shared_group *g) {
  look_at_members(g); /* who has given up may have seen that another is gone */
  if (atomic_load(&g->dead)) return status_copy(g->death);
  int r = who_broke(g);
  shoal_status s = STATUS(SHOAL_UNAVAILABLE, "%s (rank %d) has given up this collective, or another of the group",
                          r >= 0 ? g->members[r].name : "a member", r);
  return r == g->rank ? status_mark_derived(s) : s; /* who gave up here has a reason, and that is to be told */
}

/* ---- sums by the type's library: bonded.h ---- */

static void drop_bond(struct shared_group *g) {
  if (g->bond) device_bonds(g->device)->free(g->bond);
  g->bond = NULL;
}

static bool has_failed(const struct shared_group *g) {
  for (int r = 0; r < g->size; r++)
    if (atomic_load(&g->areas[r]->bond.failed) == g->epoch) return true;
  return false;
}

static bool is_lost(struct shared_group *g) {
  return atomic_load(&g->stop) || atomic_load(&g->dead) || who_broke(g) >= 0;
}

/* Asked by who is in the library: processes that are gone are looked for now and then. */
struct bond_wait {
  struct shared_group *g;
  int64_t looked;
  bool joins; /* it ends too where another rank cannot */
};

static bool wait_is_over(void *arg) {
  struct bond_wait *w = arg;
  int64_t now = clock_ns();
  if (now - w->looked > LOOK_NS) {
    look_at_members(w->g);
    w->looked = now;
  }
  return is_lost(w->g) || (w->joins && has_failed(w->g));
}

static bool is_named(struct shared_group *g) {
  return atomic_load(&g->areas[0]->bond.named) == g->epoch || who_broke(g) >= 0;
}

static bool all_settled(struct shared_group *g) {
  for (int r = 0; r < g->size; r++) {
    const struct bond_word *w = &g->areas[r]->bond;
    if (atomic_load(&w->joined) != g->epoch && atomic_load(&w->failed) != g->epoch) return who_broke(g) >= 0;
  }
  return true;
}

static void tell_refusal(const struct shared_group *g, int r, int with) {
  if (with >= 0)
    LOGW("sums of %s and %s go by windows: they are on one card, and collective_nccl is for ranks each on their own",
         g->members[with].name, g->members[r].name);
  else if (g->device->across)
    LOGW("sums of %s and %s go by windows: that one does not ask for collective_nccl", g->members[g->rank].name,
         g->members[r].name);
}

/* Rank 0 says by which name they join, before anybody can. */
static shoal_status name_bond(struct shared_group *g) {
  struct bond_word *own = &g->own->bond;
  shoal_status s = device_bonds(g->device)->name(g->device, &own->name);
  if (s) atomic_store(&own->failed, g->epoch);
  atomic_store(&own->named, g->epoch);
  ring_all(g);
  return s;
}

static shoal_status join_bond(struct shared_group *g) {
  struct bond_wait wait = {.g = g, .looked = clock_ns(), .joins = true};
  struct device_bond_name name = g->areas[0]->bond.name;
  if (has_failed(g)) return UNIMPLEMENTED("another rank cannot");
  return device_bonds(g->device)->join(g->device, &name, g->rank, g->size, &(struct device_watch){wait_is_over, &wait},
                                       &g->bond);
}

/* All ranks come here with the first sum of an epoch. An error: the epoch is over. */
static shoal_status settle_bond(struct shared_group *g) {
  const struct bond_word *words[SHARED_RANKS];
  int with, refused;
  drop_bond(g);
  for (int r = 0; r < g->size; r++) words[r] = &g->areas[r]->bond;
  g->bond_epoch = g->epoch;
  if ((refused = bond_refused(words, g->size, &with)) >= 0) {
    tell_refusal(g, refused, with);
    return NULL;
  }
  shoal_status s = g->rank == 0 ? name_bond(g) : NULL;
  if (!s && (!wait_for(g, is_named, INT64_MAX) || is_lost(g))) return why_not(g);
  if (!s) s = join_bond(g);
  if (s) LOGW("sums of %s go by windows: %s", g->members[g->rank].name, shoal_status_message(s));
  atomic_store(s ? &g->own->bond.failed : &g->own->bond.joined, g->epoch);
  shoal_status_free(s);
  ring_all(g);
  if (!wait_for(g, all_settled, INT64_MAX) || is_lost(g)) return why_not(g);
  if (has_failed(g)) drop_bond(g);
  return NULL;
}

/* Are all that is to be done sums that the library has? The same on all ranks. */
static bool is_for_bond(const struct shared_group *g, int n) {
  const struct device_bonds *bonds = device_bonds(g->device);
  bool can = bonds != NULL;
  for (int i = 0; i < n && can; i++) {
    const struct collective_run *r = g->parts[i].run;
    can = r->request->operation == OPERATION_ALL_REDUCE &&
          bonds->can(r->arithmetic->op, r->arithmetic->final != NULL, (shoal_dtype)r->device_in->dtype);
  }
  return can;
}

static shoal_status execute_by_bond(struct shared_group *g, int n) {
  struct bond_wait wait = {.g = g, .looked = clock_ns()};
  struct device_merging *sums = mem_zalloc((size_t)n, sizeof *sums);
  for (int i = 0; i < n; i++) {
    const struct collective_run *r = g->parts[i].run;
    sums[i] = (struct device_merging){.merge = r->arithmetic->op,
                                      .mean_of = r->arithmetic->final ? r->members : 0,
                                      .n_in = 1,
                                      .n_out = 1,
                                      .in = &r->device_in,
                                      .out = &r->device_out};
  }
  shoal_status s = device_bonds(g->device)->sum(g->bond, sums, n, &(struct device_watch){wait_is_over, &wait});
  free(sums);
  if (shoal_status_code(s) != SHOAL_CANCELLED) return s;
  shoal_status_free(s);
  return why_not(g);
}

static shoal_status execute(struct shared_group *g, int n) {
  if (g->device && is_for_bond(g, n)) {
    if (g->bond_epoch != g->epoch) TRY(settle_bond(g));
    if (g->bond) return execute_by_bond(g, n);
  }
  struct shared_work w = {
      .parts = g->parts, .n_parts = n, .areas = g->areas, .rank = g->rank, .size = g->size, .spare = g->spare};
  struct window_work on_device = {
      .parts = g->parts, .n_parts = n, .device = g->device, .windows = g->windows, .rank = g->rank, .size = g->size};
  int64_t turns = g->device ? window_work_init(&on_device) : shared_work_init(&w);
  for (int64_t k = 0; k < turns; k++) {
    if (!wait_for(g, all_turned, INT64_MAX) || !turned(g)) return why_not(g);
    if (g->device) TRY(window_work_turn(&on_device, k, g->turn));
    else shared_work_turn(&w, k, g->turn);
    atomic_store(&g->own->turn, ++g->turn);
    ring_all(g);
  }
  return NULL;
}

/* ---- what was begun ---- */

/* With the lock held: out of the list. */
static void unlink_run(struct shared_group *g, struct collective_run *r) {
  struct collective_run **at = &g->first, *before = NULL;
  while (*at != r) before = *at, at = &(*at)->next;
  *at = r->next;
  if (g->last == r) g->last = before;
  if (g->unposted == r) g->unposted = r->next;
  r->next = NULL;
  atomic_fetch_sub(&g->begun, 1);
}

/* With the lock held: from one that is begun on, and then from the first. */
static struct collective_run *find_run(struct shared_group *g, struct collective_run *near,
                                       const struct collective_id *id) {
  for (struct collective_run *r = near; r; r = r->next)
    if (collective_id_equal(&r->id, id)) return r;
  for (struct collective_run *r = g->first; r != near; r = r->next)
    if (collective_id_equal(&r->id, id)) return r;
  return NULL;
}

/* ---- driving ---- */

static bool has_order(struct shared_group *g) {
  if (g->rank == 0) {
    int broke = who_broke(g);
    if (broke < 0 && shared_order_look(&g->order, g->areas, g->size, g->own)) ring_all(g);
    if (g->order.wrong) end_epoch(g, g->epoch);
  }
  return !g->areas[0] || atomic_load(&g->areas[0]->ordered) > g->next || who_broke(g) >= 0;
}

static bool ready_or_refused(struct shared_group *g) { return is_ready(g) || atomic_load(&g->refused); }

/* The epoch was over before anything had happened, for the round-th time: is there more to do? Others have the core
 * meanwhile where that does not end. */
static bool tries_again(struct shared_group *g, unsigned round) {
  if (round > RETRIES) {
    usleep(REST_US);
    look_at_members(g);
  }
  return atomic_load(&g->begun) && !atomic_load(&g->dead) && !atomic_load(&g->refused);
}

/* With the lock held: the places of an exchange of n collectives, of which the first is the next; false: rank 0 says
 * what cannot be. *missing: one of them was given up just now. */
static bool place_parts(struct shared_group *g, uint64_t n, bool *missing) {
  struct collective_run *near = g->first;
  size_t at = 0, room;
  for (uint64_t i = 0; i < n; i++) {
    struct collective_id id = g->areas[0]->order[(g->next + i) % SHARED_POSTS].id;
    struct collective_run *r = find_run(g, near, &id);
    *missing |= !r;
    if (!r) continue;
    if (r->under_way) return false;
    bool joins = shared_work_joins(r->request->operation, r->request->n, r->element, &room);
    if (n > 1 && (!joins || at + room > SHARED_JOINED)) return false;
    g->parts[i] = (struct shared_part){r, at, (size_t)r->request->n * r->element};
    r->under_way = true;
    at += room;
    near = r->next;
  }
  return true;
}

/* The next exchange: how many collectives it has; 0: there is none after all, and the epoch or the group is over. */
static int begin_exchange(struct shared_group *g, int64_t *differs) {
  const struct shared_turn_of *first = &g->areas[0]->order[g->next % SHARED_POSTS];
  uint64_t n = first->joined, ordered = atomic_load(&g->areas[0]->ordered);
  bool missing = false, sane = n > 0 && n <= ordered - g->next && n <= SHARED_POSTS;
  *differs = first->differs;
  pthread_mutex_lock(&g->lock);
  if (sane) sane = place_parts(g, n, &missing);
  for (struct collective_run *r = g->first; r && (!sane || missing); r = r->next) r->under_way = false;
  pthread_mutex_unlock(&g->lock);
  if (sane && !missing) return (int)n;
  if (!sane) distrust(g, 0);
  end_epoch(g, g->epoch);
  ring_all(g);
  return 0;
}

/* Takes its collectives out of the list of what was begun; they are linked by next. s is consumed. */
static struct collective_run *end_exchange(struct shared_group *g, int n, shoal_status s, bool broken) {
  struct collective_run *list = NULL, **last = &list;
  pthread_mutex_lock(&g->lock);
  atomic_store(&g->stop, false);
  for (int i = 0; i < n; i++) {
    struct collective_run *r = g->parts[i].run;
    unlink_run(g, r);
    if (!r->status && s) r->status = status_copy(s); /* what was given up says why itself */
    *last = r;
    last = &r->next;
  }
  g->next += (uint64_t)n;
  post(g);
  pthread_mutex_unlock(&g->lock);
  if (broken) atomic_store(&g->own->given_up, g->epoch);
  if (broken) end_epoch(g, g->epoch);
  if (broken) ring_all(g);
  shoal_status_free(s);
  return list;
}

static shoal_status they_differ(const struct shared_group *g, int64_t rank) {
  return INVALID("%s (rank %d) has come to it with another operation, type or shape",
                 g->members[(uint64_t)rank % (uint64_t)g->size].name, (int)rank);
}

/* What has ended, out of the list; NULL: nothing, and `patience` has passed or all are to end (dead, refused). */
static struct collective_run *drive(struct shared_group *g, int64_t patience) {
  int64_t end = patience == INT64_MAX ? patience : clock_ns() + patience;
  for (unsigned round = 0; tries_again(g, round); round++) {
    int64_t left = end == INT64_MAX ? end : end - clock_ns(), differs;
    if (left < 0) return NULL;
    if (!wait_for(g, ready_or_refused, left) || atomic_load(&g->refused)) return NULL;
    left = end == INT64_MAX ? end : MAX(end - clock_ns(), 0);
    if (!wait_for(g, has_order, left)) return NULL;
    if (who_broke(g) >= 0 || atomic_load(&g->areas[0]->ordered) <= g->next) continue;
    int n = begin_exchange(g, &differs);
    if (!n) continue;
    bool executed = differs < 0;
    shoal_status s = executed ? execute(g, n) : they_differ(g, differs);
    return end_exchange(g, n, s, s && executed);
  }
  return NULL;
}

static void end_runs(const struct shared_group *g, struct collective_run *list) {
  if (!list) return;
  if (g->over) g->over(g->arg, list);
  else collective_runs_end(list);
}

/* Why what was begun in a group ends in which nothing more will happen. */
static void mark_all(struct shared_group *g, struct collective_run *list) {
  bool dead = atomic_load(&g->dead);
  for (struct collective_run *r = list; r; r = r->next)
    status_merge(&r->status, dead ? status_copy(g->death)
                                  : UNIMPLEMENTED("a member of the group shares no memory with the others"));
}

/* By whoever has made it driven. */
static void drive_once(struct shared_group *g, int64_t patience) {
  struct collective_run *ended = drive(g, patience), *others = NULL;
  pthread_mutex_lock(&g->lock);
  g->driven = false;
  if (atomic_load(&g->dead) || atomic_load(&g->refused)) {
    others = g->first;
    g->first = g->last = g->unposted = NULL;
    atomic_store(&g->begun, 0);
  }
  if (g->first || g->closing) pthread_cond_broadcast(&g->changed);
  pthread_mutex_unlock(&g->lock);
  struct collective_run **last = &ended;
  if (others) mark_all(g, others);
  while (*last) last = &(*last)->next;
  *last = others;
  end_runs(g, ended); /* with the last that ends the group may go */
}

static void *keep(void *arg) {
  struct shared_group *g = arg;
  pthread_mutex_lock(&g->lock);
  while (!g->closing) {
    if (g->driven || !g->first) {
      pthread_cond_wait(&g->changed, &g->lock);
      continue;
    }
    g->driven = true;
    pthread_mutex_unlock(&g->lock);
    drive_once(g, INT64_MAX);
    pthread_mutex_lock(&g->lock);
  }
  pthread_mutex_unlock(&g->lock);
  return NULL;
}

/* ---- the transport ---- */

/* With the lock held: those that were not given up before, to the end of the list; the others are returned. */
static struct collective_run *append(struct shared_group *g, struct collective_run *list) {
  struct collective_run *failed = NULL;
  for (struct collective_run *r = list, *next; r; r = next) {
    next = r->next;
    r->next = NULL;
    r->under_way = false;
    r->status = NULL;
    if (!g->has_keeper) r->status = STATUS(SHOAL_RESOURCE_EXHAUSTED, "no thread can be had for a group of collectives");
    else if (atomic_load(&r->failed)) r->status = STATUS(SHOAL_CANCELLED, "it was given up");
    if (r->status) {
      r->next = failed;
      failed = r;
      continue;
    }
    if (g->last) g->last->next = r;
    else g->first = r;
    g->last = r;
    if (!g->unposted) g->unposted = r;
    atomic_fetch_add(&g->begun, 1);
  }
  return failed;
}

static void shared_start(struct collective_transport *t, struct collective_run *list) {
  struct shared_group *g = (struct shared_group *)t;
  int64_t patience = list->patience_ns;
  pthread_mutex_lock(&g->lock);
  if (!g->has_keeper && pthread_create(&g->keeper, NULL, keep, g) == 0) g->has_keeper = true;
  struct collective_run *failed = append(g, list);
  bool any = g->first, mine = any && !g->driven && patience > 0;
  post(g);
  if (mine) g->driven = true;
  else pthread_cond_broadcast(&g->changed);
  struct shared_area *leader = atomic_load(&g->leader);
  if (leader) shared_ring(leader);
  pthread_mutex_unlock(&g->lock); /* now they may end at any moment, and where it is not mine, g may go */
  collective_runs_end(failed);
  if (mine) drive_once(g, patience);
}

static void shared_abandon(struct collective_transport *t, const struct collective_id *id, shoal_status why) {
  struct shared_group *g = (struct shared_group *)t;
  pthread_mutex_lock(&g->lock);
  struct collective_run *r = find_run(g, g->first, id);
  if (r) status_merge(&r->status, status_copy(why));
  bool under_way = r && r->under_way;
  if (r && !under_way) unlink_run(g, r);
  if (under_way) atomic_store(&g->stop, true);
  end_epoch(g, r ? g->epoch : 0);
  pthread_mutex_unlock(&g->lock);
  shared_ring(g->own);
  if (r && !under_way) end_runs(g, r);
}

struct collective_transport *shared_group_transport(struct shared_group *g) {
  return &g->head;
}
bool shared_group_is_refused(const struct shared_group *g) { return atomic_load(&g->refused); }
bool shared_group_is_dead(const struct shared_group *g) { return atomic_load(&g->dead); }
bool shared_group_is_bonded(const struct shared_group *g) { return g->bond; }

bool shared_group_is_idle(struct shared_group *g) {
  pthread_mutex_lock(&g->lock);
  bool idle = !g->first;
  pthread_mutex_unlock(&g->lock);
  return idle;
}

/* The first rank of which it is so, of those whose areas are there. */
static int find_rank(struct shared_group *g,
                     bool (*is_so)(const struct shared_area *a, const struct shared_area *own)) {
  for (int r = 0; r < g->size; r++) {
    struct shared_area *a = shared_view_find(g->members[r].view, key_of(g->identity, r));
    if (!a || is_so(a, g->own)) return r;
  }
  return -1;
}

static bool is_in_an_older_epoch(const struct shared_area *a, const struct shared_area *own) {
  return atomic_load(&a->epoch) < atomic_load(&own->epoch);
}

static bool is_turns_behind(const struct shared_area *a, const struct shared_area *own) {
  return atomic_load(&a->turn) < atomic_load(&own->turn);
}

/* Has rank 0 not said yet what is next? */
static bool is_to_order(struct shared_group *g) {
  struct shared_area *a = shared_view_find(g->members[0].view, key_of(g->identity, 0));
  pthread_mutex_lock(&g->lock);
  bool none = !a || atomic_load(&a->ordered) <= g->next;
  pthread_mutex_unlock(&g->lock);
  return none;
}

int shared_group_missing(struct shared_group *g, const struct collective_id *id) {
  for (int r = 0; r < g->size; r++) {
    struct shared_area *a = shared_view_find(g->members[r].view, key_of(g->identity, r));
    if (!a || !shared_order_has(a, id)) return r;
  }
  int rank = find_rank(g, is_in_an_older_epoch);
  if (rank < 0) rank = find_rank(g, is_turns_behind);
  return rank < 0 && is_to_order(g) ? 0 : rank;
}

/* ---- joining ---- */

bool shared_group_could(const struct shared_place *places, int size) {
  bool all = size > 1 && size <= SHARED_RANKS;
  for (int r = 0; r < size && all; r++) all = places[r].boot && places[r].boot == places[0].boot;
  return all;
}

static bool open_views(struct shared_group *g, const struct shared_group_request *q) {
  bool all = true;
  for (int r = 0; r < g->size; r++) {
    g->members[r].name = mem_strdup(q->names[r]);
    g->members[r].pid = (pid_t)q->places[r].pid;
    g->members[r].process = (int)syscall(SYS_pidfd_open, g->members[r].pid, 0);
    g->members[r].view = all ? shared_view_open(&q->places[r]) : NULL;
    all = g->members[r].view;
  }
  return all;
}

/* False: the device has no memory to share. */
static bool tell_window(struct shared_group *g) {
  struct device_handle handle;
  const struct device_ops *ops = g->device->type->ops;
  if (!ops->window_new || !ops->merge || !ops->finish) return false;
  shoal_status s =
      ops->window_new(g->device, "collectives with other processes", WINDOW_BYTES, &g->windows[g->rank], &handle);
  if (s) LOGI("collectives of %s go by way of the host: %s", g->device->name, shoal_status_message(s));
  bool told = !s;
  shoal_status_free(s);
  if (!told) return false;
  g->own->window = handle;
  bond_word_tell(&g->own->bond, g->device);
  atomic_store(&g->own->has_window, 1);
  return true;
}

void shared_group_refuse(struct shared_home *home, uint64_t identity, int rank) {
  shared_home_refuse(home, key_of(identity, rank));
}

struct shared_group *shared_group_new(const struct shared_group_request *q) {
  static const struct collective_transport_ops ops = {
      .name = "shared memory", .abandon = shared_abandon, .whole = shared_start};
  uint64_t key = key_of(q->identity, q->rank);
  struct shared_group *g = mem_zalloc(1, sizeof *g);
  g->head.ops = &ops;
  g->home = q->home;
  g->identity = q->identity;
  g->rank = q->rank;
  g->size = q->size;
  g->crowded = q->size > sysconf(_SC_NPROCESSORS_ONLN);
  g->spare = mem_alloc(SHARED_SPARE);
  g->over = q->over;
  g->arg = q->arg;
  g->members = mem_zalloc((size_t)q->size, sizeof *g->members);
  pthread_mutex_init(&g->lock, NULL);
  pthread_cond_init(&g->changed, NULL);
  bool ok = open_views(g, q);
  g->own = ok ? shared_home_take(q->home, key) : NULL;
  g->device = q->device;
  if (q->device) g->windows = mem_zalloc((size_t)q->size, sizeof *g->windows);
  if (g->own && (!q->device || tell_window(g))) return g;
  shared_home_refuse(q->home, key);
  shared_group_free(g);
  return NULL;
}

/* Nobody reads what this rank has shown any more, or writes sums there. Where this one gave up, another may have found
 * that all had ended the turn before, and be in one to which this rank has not come. */
static bool are_past(struct shared_group *g) {
  bool gave_up = atomic_load(&g->own->given_up) == g->epoch;
  for (int r = 0; r < g->size; r++) {
    struct shared_area *a = g->areas[r];
    if (a && atomic_load(&a->key) == key_of(g->identity, r) && atomic_load(&a->epoch) == g->epoch &&
        atomic_load(&a->given_up) != g->epoch && atomic_load(&a->turn) < g->turn + gave_up)
      return false;
  }
  return true;
}

/* An area in which somebody may be yet is not used again. */
static void leave(struct shared_group *g) {
  int64_t end = clock_ns() + LEAVE_NS;
  bool past = are_past(g);
  while (!past && clock_ns() < end) {
    usleep(100);
    past = are_past(g);
  }
  end_epoch(g, g->epoch);
  if (past) shared_home_give(g->home, g->own);
  else atomic_store(&g->own->key, SHARED_LOST);
  ring_all(g);
}

void shared_group_free(struct shared_group *g) {
  if (!g) return;
  pthread_mutex_lock(&g->lock);
  g->closing = true;
  pthread_cond_broadcast(&g->changed);
  while (g->driven) pthread_cond_wait(&g->changed, &g->lock); /* by one who does not know that all have ended */
  pthread_mutex_unlock(&g->lock);
  if (g->has_keeper) pthread_join(g->keeper, NULL);
  drop_bond(g);
  if (g->own) leave(g);
  for (int r = 0; r < g->size; r++) {
    shared_view_close(g->members[r].view);
    if (g->members[r].process >= 0) close(g->members[r].process);
    free(g->members[r].name);
  }
  for (int r = 0; r < g->size && g->windows; r++) tensor_release(&g->windows[r]);
  free(g->windows);
  shared_order_release(&g->order);
  pthread_mutex_destroy(&g->lock);
  pthread_cond_destroy(&g->changed);
  shoal_status_free(g->death);
  free(g->members);
  free(g->spare);
  free(g);
}
