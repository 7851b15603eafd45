/* A parcel is known by the key
 *
 *   SENDER;INCARNATION;RECEIVER;GROUP:parcel:NUMBER;0:0
 *
 * A send ends when whoever received it lets go: the step may end then, and what it holds be dropped. */
#include "cluster/collective_parcels.h"

#include <inttypes.h>
#include <string.h>

#include "base/block.h"
#include "cluster/collectives.h"
#include "cluster/step_rendezvous.h"

enum { LARGE = 32 << 10 };

struct step_parcels {
  struct step_guest guest; /* first */
  struct parcels_wire wire;
  struct rendezvous *rendezvous; /* which this goes with */
  struct collective_group *group;
  int rank;
  struct pool *pool;
  struct parcels *parcels;
};

static struct step_parcels *parcels_of(struct parcels_wire *w) {
  return (struct step_parcels *)((char *)w - offsetof(struct step_parcels, wire));
}

static char *key_of(const struct step_parcels *b, int from, int to, uint64_t number) {
  const struct collective_place *x = &b->group->places[from], *y = &b->group->places[to];
  char name[64];
  snprintf(name, sizeof name, "%d:parcel:%" PRIu64, b->group->key, number);
  return rendezvous_key_make(x->device, x->incarnation, y->device, name, 0, 0);
}

struct carried {
  struct buffer *memory;
  struct parcel_out *out;
  struct pool *pool;
};

static void was_taken(void *out) { parcels_taken(out); }

/* The last who could read it has let go: a connection with its lock held, for one, and what ends now may send. */
static void released(struct buffer *b) {
  struct carried *c = b->owner;
  struct parcel_out *out = c->out;
  struct pool *pool = c->pool;
  buffer_unref(c->memory);
  block_free(c);
  pool_submit(pool, was_taken, out);
}

static shoal_status send_parcel(struct parcels_wire *w, int peer, uint64_t number, struct tensor *parcel,
                                struct parcel_out *out) {
  struct step_parcels *b = parcels_of(w);
  struct carried *c = block_alloc(sizeof *c);
  *c = (struct carried){parcel->buffer, out, b->pool};
  parcel->buffer = buffer_wrap(parcel->data, (size_t)parcel->n, NULL, released, c);
  char *key = key_of(b, b->rank, peer, number);
  shoal_status s = rendezvous_send(b->rendezvous, key, rendezvous_hash(key), parcel, false);
  free(key);
  return s;
}

/* ---- receiving ---- */

struct awaited {
  struct step_parcels *parcels;
  int peer;
  shoal_status status;
  struct tensor value;
};

static void deliver(void *arg) {
  struct awaited *a = arg;
  struct rendezvous *step = a->parcels->rendezvous;
  parcels_came(a->parcels->parcels, a->peer, a->status, &a->value);
  block_free(a);
  rendezvous_unref(step);
}

/* Whoever knows the key can send anything under it. */
static shoal_status check(const struct awaited *a, const struct tensor *value, bool is_dead) {
  if (!is_dead && tensor_valid(value) && value->dtype == SHOAL_UINT8 && !value->buffer->device) return NULL;
  return INVALID("%s sends a value that is no message of a collective", a->parcels->group->places[a->peer].device);
}

static void parcel_came(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  struct awaited *a = arg;
  if (!s) s = check(a, value, is_dead);
  a->status = s;
  if (s) tensor_release(value);
  else tensor_move(&a->value, value);
  bool large = !s && a->value.n > LARGE && !pool_is_mine(a->parcels->pool);
  if (large) pool_submit(a->parcels->pool, deliver, a);
  else deliver(a);
}

static void recv_parcel(struct parcels_wire *w, int peer, uint64_t number, struct parcels *parcels,
                        struct cancel *cancel) {
  struct step_parcels *b = parcels_of(w);
  struct awaited *a = block_zalloc(sizeof *a);
  char *key = key_of(b, peer, b->rank, number);
  a->parcels = b;
  a->peer = peer;
  rendezvous_ref(b->rendezvous);
  rendezvous_recv(b->rendezvous, key, rendezvous_hash(key), cancel, parcel_came, a);
  free(key);
}

/* ---- the rest of the wire ---- */

static void over(struct parcels_wire *w, struct collective_run *list) { collective_runs_end(list); }
static void hold(struct parcels_wire *w) { rendezvous_ref(parcels_of(w)->rendezvous); }
static void let_go(struct parcels_wire *w) { rendezvous_unref(parcels_of(w)->rendezvous); }

static const char *name(const struct parcels_wire *w, int peer) {
  return parcels_of((struct parcels_wire *)(uintptr_t)w)->group->places[peer].device;
}

/* ---- of a step ---- */

static void guest_free(struct step_guest *g) {
  struct step_parcels *b = (struct step_parcels *)g;
  parcels_free(b->parcels);
  collective_group_unref(b->group);
  block_free(b);
}

struct sought {
  struct rendezvous *step;
  struct collective_group *group;
  int rank;
  struct pool *pool;
};

static bool is_it(const struct step_guest *g, const void *arg) {
  const struct step_parcels *b = (const struct step_parcels *)g;
  const struct sought *q = arg;
  return g->free == guest_free && b->group->key == q->group->key && b->group->size == q->group->size &&
         b->rank == q->rank;
}

static struct step_guest *make(const void *arg) {
  const struct sought *q = arg;
  struct step_parcels *b = block_zalloc(sizeof *b);
  b->guest.free = guest_free;
  b->wire = (struct parcels_wire){send_parcel, recv_parcel, over, hold, let_go, name};
  b->rendezvous = q->step;
  b->group = collective_group_ref(q->group);
  b->rank = q->rank;
  b->pool = q->pool;
  b->parcels = parcels_new(&b->wire, q->rank, q->group->size);
  return &b->guest;
}

struct step_parcels *collective_parcels(struct rendezvous *step, struct collective_group *g, int rank,
                                        struct pool *pool) {
  struct sought q = {step, g, rank, pool};
  return (struct step_parcels *)step_rendezvous_guest(step, is_it, make, &q);
}

struct parcels *collective_parcels_run(struct step_parcels *b) {
  return b->parcels;
}

/* ---- those who do not come ---- */

/* Of the first message that a rank would send to another without parcels. */
static char *first_key(const struct step_parcels *b, const struct collective_id *id, int to) {
  return collective_wire_key(b->group, id, b->rank, to, (const int[]){0, b->rank, to});
}

void collective_parcels_disclose(struct step_parcels *b, const struct collective_id *id) {
  for (int r = 0; r < b->group->size; r++) {
    if (r == b->rank) continue;
    struct tensor none = tensor_none();
    char *key = first_key(b, id, r);
    shoal_status_free(rendezvous_send(b->rendezvous, key, rendezvous_hash(key), &none, true));
    free(key);
  }
}

static void ignore(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  tensor_release(value);
  shoal_status_free(s);
}

void collective_parcels_retract(struct step_parcels *b, const struct collective_id *id) {
  struct cancel at_once;
  cancel_init(&at_once);
  for (int r = 0; r < b->group->size; r++) {
    if (r == b->rank) continue;
    char *key = first_key(b, id, r);
    step_rendezvous_recv_local(b->rendezvous, key, &at_once, ignore, NULL);
    free(key);
  }
  cancel_start(&at_once, NULL); /* of those that somebody has taken */
  cancel_release(&at_once);
}
