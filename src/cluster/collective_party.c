/* A party is open on one thread (base/together.h) until no more is about to be started there; then it begins, and what
 * ends together is ended together. Nothing waits for the whole of it: another task may need the result of one to come
 * to the next.
 *
 * Members that cannot share memory after all (UNIMPLEMENTED, before anything has happened) go by messages. */
#include "cluster/collective_party.h"

#include <string.h>

#include "base/block.h"
#include "base/clock.h"
#include "base/join.h"
#include "base/together.h"
#include "cluster/collective_parcels.h"
#include "cluster/collectives.h"
#include "cluster/worker.h"
#include "collective/staged.h"
#include "ops/control/communicator.h"

enum { LOOK_MS = 250, PATIENCE_NS = 50000, SLAB = 16 };

struct party_run {
  struct collective_run run; /* first */
  struct schedule_request request;
  struct party *party;
  struct collective_member *member;
  struct tensor out;
  atomic_bool ended;
  struct party_run *after; /* in the party */
};

/* Memory for several of them. */
struct party_slab {
  struct party_slab *next;
  int n;
  struct party_run runs[SLAB];
};

struct party {
  struct collective_guard guard; /* first */
  struct together together;
  struct session_collectives *site;
  struct step *step;
  const struct device *device;
  bool on_device; /* values are in its memory */
  double timeout_s;
  struct collective_group *group; /* a reference */
  int rank;
  struct memory_member *shared;      /* NULL: in parcels */
  struct rendezvous *parcelled;      /* the step's, that they are values of; NULL: in memory */
  struct step_parcels *parcels;      /* of it */
  bool memory_missed;                /* parcels: who would rather share memory cannot, either */
  const struct party_run *disclosed; /* parcels: what others were told of that may have another shape */
  struct party_run *first, *last;
  struct party_run one;     /* where the first is */
  struct party_slab *slabs; /* and the others */
  int n;
  struct join join;             /* their ends */
  struct cancel_hook breaking;  /* of our cancellation */
  struct alarm look;            /* when to see for whom it waits */
  struct collective_wire wire;  /* the look's, from here on */
  uint64_t watched;             /* ranks, by bit */
  struct cancel watching;       /* ends the watch over them */
  _Atomic(struct watch *) lost; /* one that has something to tell; the look's to take */
};

static __thread struct party *open_party; /* this thread's */

_Static_assert(SHARED_RANKS <= 64, "a bit for each");

static struct collectives *collectives_of(const struct party *p) { return &p->site->session->worker->collectives; }

/* ---- watching ---- */

/* Over a member that is waited for. */
struct watch {
  struct party *party;
  int rank;
  shoal_status told; /* why it does not come */
};

static void watch_free(struct watch *w) {
  if (!w) return;
  shoal_status_free(w->told);
  free(w);
}

/* Has the step ended there, or is it gone? By now it may have done its part, and be past it: the look sees. */
static void watch_ended(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  struct watch *w = arg;
  struct party *p = w->party;
  tensor_release(value);
  w->told = s;
  if (s && !cancel_started(&p->watching)) w = atomic_exchange(&p->lost, w);
  watch_free(w);
  guard_unref(&p->guard);
}

/* The oldest that has not ended; NULL: all have. */
static struct party_run *oldest(const struct party *p) {
  struct party_run *x = p->first;
  while (x && atomic_load(&x->ended)) x = x->after;
  return x;
}

static int missing(const struct party *p) {
  if (p->parcels) return parcels_missing(collective_parcels_run(p->parcels));
  struct party_run *x = oldest(p);
  return x ? shared_group_missing(memory_member_group(p->shared), &x->run.id) : -1;
}

static void watch(struct party *p, int rank) {
  struct party_run *x = oldest(p);
  if (!x) return;
  if (!p->wire.rendezvous) {
    collective_wire_init(&p->wire);
    p->wire.rendezvous = steps_get(p->site->session->worker->steps, p->step->id);
    p->wire.group = p->group;
    p->wire.rank = p->rank;
  }
  struct watch *w = mem_zalloc(1, sizeof *w);
  *w = (struct watch){p, rank};
  p->watched |= (uint64_t)1 << rank;
  guard_ref(&p->guard);
  collective_wire_watch(&p->wire, &x->run.id, rank, &p->watching, watch_ended, w);
}

/* Parcels are asked for, and who is asked is watched. */
static void look_at_parcels(struct party *p) {
  struct party_run *x = oldest(p);
  if (!x || p->disclosed) return;
  p->disclosed = x;
  collective_parcels_disclose(p->parcels, &x->run.id);
}

/* A process that is stopped is there, and does nothing, and one whose step was given up does not come: the network
 * knows. */
static void on_look(void *arg) {
  struct party *p = arg;
  int rank = missing(p);
  bool elsewhere = rank >= 0 && p->group->tasks[rank] != p->group->tasks[p->rank];
  alarm_set(&p->look, deadline_after_ms(LOOK_MS), on_look, p);
  if (p->parcels) look_at_parcels(p);
  if (!elsewhere || p->parcels) return;
  /* What follows may end it there and then. */
  if (p->watched >> rank & 1) {
    struct watch *lost = atomic_exchange(&p->lost, NULL);
    if (lost && lost->rank == rank) guard_stop(&p->guard, status_copy(lost->told));
    watch_free(lost);
  } else watch(p, rank);
}

/* ---- ending ---- */

static void release(struct collective_guard *g) {
  struct party *p = (struct party *)g;
  for (struct party_slab *b = p->slabs, *next; b; b = next) {
    next = b->next;
    block_free(b);
  }
  collective_group_unref(p->group);
  cancel_release(&p->watching);
  watch_free(atomic_load(&p->lost));
  block_free(p);
}

static void leave(struct party *p) {
  if (p->disclosed) collective_parcels_retract(p->parcels, &p->disclosed->run.id);
  rendezvous_unref(p->parcelled);
  if (p->shared) collective_memory_leave(collectives_of(p)->memory, p->shared);
}

/* The last of it has ended. */
static void close_party(void *arg, shoal_status none) {
  struct party *p = arg;
  cancel_deregister(&p->guard.cancel, &p->breaking);
  alarm_clear(&p->look);
  cancel_start(&p->watching, NULL);
  guard_end(&p->guard, collectives_of(p));
  rendezvous_unref(p->wire.rendezvous);
  leave(p);
}

static void tell(struct party *p, struct party_run *x, shoal_status s) {
  bool stopped = cancel_started(&p->guard.cancel);
  if (p->shared && shoal_status_code(s) == SHOAL_UNIMPLEMENTED && !stopped) { /* nothing has happened */
    shoal_status_free(s);
    if (p->on_device) {
      tensor_release(&x->out);
      collective_stage(p->step, x->member, collective_meet);
    } else collectives_by_messages(p->site, p->step, x->member, &x->out);
    return;
  }
  if (s && stopped) { /* what follows from it says less */
    shoal_status_free(s);
    s = cancel_reason(&p->guard.cancel);
  }
  collectives_tell(p->site, x->member, s, &x->out);
}

static void run_over(struct collective_run *r, shoal_status s) {
  struct party_run *x = (struct party_run *)r;
  struct party *p = x->party;
  atomic_store_explicit(&x->ended, true, memory_order_release);
  join_part(&p->join, NULL);
  tell(p, x, s);
  guard_unref(&p->guard);
}

/* Who has ended is past the reach of its transport, which may be gone when all have. */
static void on_break(void *arg) {
  struct party *p = arg;
  for (struct party_run *x = p->first; x; x = x->after)
    if (!atomic_load(&x->ended)) collective_run_fail(&x->run, cancel_reason(&p->guard.cancel));
}

static shoal_status late(struct collective_guard *g) {
  struct party *p = (struct party *)g;
  int rank = missing(p);
  return collectives_late(rank >= 0 ? p->group->places[rank].device : NULL);
}

/* ---- beginning ---- */

static void fail_all(struct party *p) {
  for (struct party_run *x = p->first, *next; x; x = next) {
    next = x->after; /* with the last of them p goes */
    run_over(&x->run, cancel_reason(&p->guard.cancel));
  }
}

static void begin(struct together *t) {
  struct party *p = (struct party *)((char *)t - offsetof(struct party, together));
  if (open_party == p) open_party = NULL;
  join_init(&p->join, (size_t)p->n, close_party, p);
  ref_take_n(&p->guard.refs, p->n - 1); /* each has one */
  struct collectives *c = collectives_of(p);
  atomic_fetch_add(p->on_device ? &c->in_windows : p->shared ? &c->in_memory : &c->by_messages, p->n);
  atomic_fetch_add(&c->parties, 1);
  struct cancel *step = p->first->member->cancel;
  if (!guard_begin(&p->guard, c, step, p->step->id) || !cancel_register(&p->guard.cancel, &p->breaking, on_break, p)) {
    fail_all(p);
    return;
  }
  alarm_set(&p->look, deadline_after_ms(LOOK_MS), on_look, p);
  if (pool_is_mine(p->step->inter) && !p->on_device) p->first->run.patience_ns = PATIENCE_NS;
  collective_run_start(&p->first->run);
}

/* Does it go in parcels where it goes by messages? The same on all ranks. */
static bool is_parcelled(const struct collective_member *m, const struct collective_group *g) {
  return g->all_ours && !m->on_device && m->kind == COLLECTIVE_REDUCE &&
         parcels_takes(OPERATION_ALL_REDUCE, m->in->n, dtype_size(m->dtype), g->size, m->algorithm, m->wire);
}

/* Windows cost two waits for the device, which small values take longer for than by way of the host's memory. The same
 * on all ranks: all get the same shape, or are refused. */
static bool is_for_windows(const struct collective_member *m) {
  enum { LEAST = 512 << 10 };
  int64_t n = 0;
  shoal_status s = shape_elements(&m->shape, &n);
  shoal_status_free(s);
  return n >= LEAST / (int64_t)dtype_size(m->dtype);
}

static bool fits(const struct party *p, const struct session_collectives *site, const struct step *step,
                 const struct collective_member *m) {
  if (p->shared ? m->algorithm >= 0 : !is_parcelled(m, p->group)) return false;
  if (!p->shared && m->algorithm < 0 && !p->memory_missed) return false; /* wherever it is, whatever came before it */
  if (m->on_device && !is_for_windows(m)) return false;
  return p->site == site && p->step == step && p->device == m->device && p->on_device == m->on_device &&
         p->group->key == m->group_key && p->group->size == m->group_size && (m->rank < 0 || m->rank == p->rank) &&
         p->timeout_s == m->timeout_s && p->first->member->cancel == m->cancel;
}

/* NULL: it goes by messages of its own. */
static struct party *party_new(struct session_collectives *site, struct step *step, const struct collective_member *m,
                               struct collective_group *g, int rank, bool by_messages) {
  struct collectives *c = &site->session->worker->collectives;
  struct memory_member *shared = NULL;
  if (!by_messages && m->algorithm < 0 && (!m->on_device || is_for_windows(m)))
    shared = collective_memory_join(c->memory, g, rank, m->on_device ? m->device : NULL, step->inter);
  if (!shared && !is_parcelled(m, g)) return NULL;
  struct party *p = block_zalloc(sizeof *p);
  guard_init(&p->guard, c, m->timeout_s, late, release);
  cancel_init(&p->watching);
  p->together.begin = begin;
  p->site = site;
  p->step = step;
  p->device = m->device;
  p->on_device = m->on_device;
  p->timeout_s = m->timeout_s;
  p->group = collective_group_ref(g);
  p->rank = rank;
  p->shared = shared;
  if (shared) return p;
  p->memory_missed = m->algorithm < 0;
  p->parcelled = steps_get(site->session->worker->steps, step->id);
  p->parcels = collective_parcels(p->parcelled, g, rank, step->inter);
  return p;
}

static struct collective_transport *transport_of(const struct party *p) {
  return p->parcels ? parcels_transport(collective_parcels_run(p->parcels))
                    : shared_group_transport(memory_member_group(p->shared));
}

static struct party_run *room(struct party *p) {
  struct party_slab *b = p->slabs;
  if (!p->n++) return &p->one;
  if (!b || b->n == SLAB) {
    b = block_alloc(sizeof *b);
    b->next = p->slabs;
    b->n = 0;
    p->slabs = b;
  }
  return &b->runs[b->n++];
}

static void add(struct party *p, struct collective_member *m, int source, struct tensor *out) {
  struct party_run *x = room(p);
  x->party = p;
  x->member = m;
  x->after = NULL;
  tensor_move(&x->out, out);
  atomic_init(&x->ended, false);
  x->request = collectives_request(m, p->group, p->rank, source, x->out.n);
  x->run = (struct collective_run){.request = &x->request,
                                   .id = {p->step->id, m->group_key, m->instance_key, m->frame, m->iter},
                                   .transport = transport_of(p),
                                   .arithmetic = m->arithmetic,
                                   .members = p->group->size,
                                   .element = dtype_size(m->dtype),
                                   .wire = p->parcels ? m->wire : 0,
                                   .in = m->in ? m->in->data : NULL,
                                   .out = x->out.data,
                                   .device_in = p->on_device ? m->in : NULL,
                                   .device_out = p->on_device ? &x->out : NULL,
                                   .done = run_over};
  if (p->last) {
    p->last->after = x;
    p->last->run.next = &x->run;
  } else p->first = x;
  p->last = x;
}

struct party *party_find(struct session_collectives *site, struct step *step, const struct collective_member *m,
                         struct collective_group *g, int rank, bool by_messages) {
  struct party *p = open_party;
  if (p && !(by_messages && p->shared) && fits(p, site, step, m)) return p;
  return party_new(site, step, m, g, rank, by_messages);
}

/* Nobody came to it. */
static void drop(struct party *p) {
  leave(p);
  guard_unref(&p->guard);
}

void party_add(struct party *p, struct collective_member *m, int source, struct tensor *made) {
  bool fresh = !p->first;
  struct tensor out = {0};
  if (made) tensor_move(&out, made);
  shoal_status s = made ? NULL : m->make(m, &out);
  if (s) {
    struct session_collectives *site = p->site;
    if (fresh) drop(p);
    collectives_tell(site, m, s, &out);
    return;
  }
  add(p, m, source, &out);
  if (!fresh) return;
  if (together_leave(&p->together)) open_party = p;
  else begin(&p->together);
}

bool party_take_known(struct session_collectives *site, struct step *step, struct collective_member *m) {
  struct party *p = open_party;
  if (m->kind == COLLECTIVE_JOIN) return false;
  bool near = p && fits(p, site, step, m);
  struct collective_group *g = near ? p->group : collectives_known_group(site, m);
  int source = 0, rank = near ? p->rank : g ? collectives_rank(site, g, m) : -1;
  bool here = m->on_device && g && collective_group_is_one_task(g); /* they meet in their task */
  bool known = rank >= 0 && !here && collectives_known_instance(site, m, rank, &source);
  if (known && !near) p = party_new(site, step, m, g, rank, false);
  if (!near) collective_group_unref(g);
  if (!known || !p) return false;
  party_add(p, m, source, NULL);
  return true;
}
