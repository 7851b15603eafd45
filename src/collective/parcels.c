/* One thread at a time is at work (`busy`): who comes while another is there leaves what it brings (`begun`, `came`,
 * `why`) and goes, and that one sees it before it leaves. So all state but these belongs to whoever is busy, and no
 * lock is held while something is merged, sent, asked for or ended.
 *
 * A round of work: what was begun is entered and sent, before anything is summed, since a sum may be written over what
 * was brought; what has come is taken; sums that became whole are sent; runs that ended are told last, as what they
 * own is sent from. */
#include "collective/parcels.h"

#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/keyed_hash.h"
#include "base/mem.h"
#include "base/ref.h"
#include "base/vector.h"
#include "collective/parcel.h"
#include "collective/pairs.h"

enum {
  BUCKETS = 256,
  MOST_BYTES = 1 << 20,  /* of a parcel, about */
  MOST_AHEAD = 64 << 10, /* collectives that others have come to and this rank has not */
};

struct parcel_in { /* a parcel that came */
  struct parcel_in *next;
  int peer;
  int uses; /* entries that are waited with */
  struct tensor value;
};

/* Who is told that parcels were taken: they may outlive what sent them. */
struct parcel_ledger {
  struct ref refs;
  pthread_mutex_t lock;
  struct parcels *of; /* lock: NULL: nobody waits any more. Whoever waits holds it */
};

struct parcel_out {
  struct parcel_out *next; /* of those that were taken */
  struct parcel_ledger *ledger;
  size_t n;
  struct parcel_item *items[]; /* [n], that are in it */
};

/* A collective that this rank, or another, has come to. */
struct parcel_item {
  struct parcel_item *next;   /* of its bucket */
  struct parcel_item *queued; /* to be sent after it */
  struct parcel_item *after;  /* ended after it */
  uint64_t frame, iter;
  int instance_key;
  int64_t n;
  uint32_t element, stage;    /* bytes of one in a parcel; what is to be sent */
  struct collective_run *run; /* NULL: this rank has not come to it */
  int brought, sums;          /* parts and pieces of the sum that have come */
  bool is_summed;             /* this rank's piece; with rounds: all of it */
  bool has_rounds;            /* how it is summed: by rounds, or directly */
  int round;                  /* that is next */
  bool is_queued;             /* to be sent */
  int untaken;                /* parcels with it that are on their way */
  uint64_t has_sum;           /* of ranks, by bit */
  struct parcel_part {
    bool came;
    struct parcel_in *from; /* NULL: has not come, or is let go of */
    size_t at;              /* where its elements stand in that */
  } parts[];                /* [size] */
};

struct parcels {
  struct collective_transport head;
  struct parcels_wire *wire;
  int rank, size;
  struct cancel cancel; /* of what is asked for */
  struct parcel_ledger *ledger;

  pthread_mutex_t lock;
  bool busy;                                 /* lock */
  struct collective_run *begun, *last_begun; /* lock */
  struct parcel_in *came;                    /* lock: the newest first */
  struct parcel_out *taken;                  /* lock */
  shoal_status why;                          /* lock: why all of it ends; it stays */

  /* of whoever is busy */
  struct parcel_item *buckets[BUCKETS];
  struct parcel_item *queue, *last_queued;
  struct parcel_item *ended, *last_ended;
  int ahead;   /* items that this rank has not come to */
  char *spare; /* a sum that may not be written to its place yet, and those that wait; NULL: of two ranks */
  size_t spare_step;
  struct parcels_peer {
    uint64_t sent, asked; /* parcels */
    int misses;           /* what it has to send yet, of collectives that this rank has come to */
    bool is_asked;        /* lock */
  } peers[];              /* [size] */
};

_Static_assert(PARCELLED_RANKS <= 64, "a bit for each");

bool parcels_takes(enum collective_operation operation, int64_t n, size_t element, int size, int algorithm,
                   shoal_dtype wire) {
  size_t most = size > 2 ? PARCELLED_BYTES_OF_MANY : PARCELLED_BYTES;
  return operation == OPERATION_ALL_REDUCE && size > 1 && size <= PARCELLED_RANKS && n > 0 &&
         (wire || n <= (int64_t)(most / element)) && (algorithm < 0 || algorithm == ALGORITHM_DIRECT);
}

/* ---- items ---- */

/* Others choose all three: a sum of them, say, would let one take another back. */
static struct parcel_item **bucket(struct parcels *b, int instance_key, uint64_t frame, uint64_t iter) {
  const uint64_t key[] = {(uint32_t)instance_key, frame, iter};
  return &b->buckets[hash_keyed(key, sizeof key, 0) >> 56];
}

static struct parcel_item *find(struct parcels *b, int instance_key, uint64_t frame, uint64_t iter) {
  struct parcel_item *x = *bucket(b, instance_key, frame, iter);
  while (x && !(x->instance_key == instance_key && x->frame == frame && x->iter == iter)) x = x->next;
  return x;
}

/* Of a size that may have them. */
static bool has_rounds(const struct parcels *b, shoal_dtype wire) {
  return !wire && b->size > 2 && (b->size & (b->size - 1)) == 0;
}

/* Made, it is one that this rank has not come to. */
static struct parcel_item *find_or_make(struct parcels *b, const struct parcel_entry *e) {
  struct parcel_item *x = find(b, e->instance_key, e->frame, e->iter);
  if (x) return x;
  x = block_zalloc(sizeof *x + (size_t)b->size * sizeof *x->parts);
  x->instance_key = e->instance_key;
  x->frame = e->frame;
  x->iter = e->iter;
  x->n = e->n;
  x->element = e->element;
  x->has_rounds = e->stage >= PARCEL_ROUND;
  struct parcel_item **at = bucket(b, e->instance_key, e->frame, e->iter);
  x->next = *at;
  b->ahead++;
  return *at = x;
}

static void arrival_unref(struct parcel_in *a) {
  if (--a->uses) return;
  tensor_release(&a->value);
  block_free(a);
}

static const char *elements_of(const struct parcel_part *p) { return (const char *)p->from->value.data + p->at; }

static void let_go_of_part(struct parcel_item *x, int rank) {
  if (x->parts[rank].from) arrival_unref(x->parts[rank].from);
  x->parts[rank].from = NULL;
}

static void let_go_of_parts(struct parcels *b, struct parcel_item *x) {
  for (int r = 0; r < b->size; r++) let_go_of_part(x, r);
}

/* Out of its bucket; it goes when those are told that have ended. */
static void end_item(struct parcels *b, struct parcel_item *x) {
  struct parcel_item **at = bucket(b, x->instance_key, x->frame, x->iter);
  while (*at != x) at = &(*at)->next;
  *at = x->next;
  x->after = NULL;
  if (b->last_ended) b->last_ended->after = x;
  else b->ended = x;
  b->last_ended = x;
}

/* All of it ends before the next round; s, the first, is why, and consumed. */
static bool fail(struct parcels *b, shoal_status s) {
  pthread_mutex_lock(&b->lock);
  if (!b->why) b->why = s;
  else shoal_status_free(s);
  pthread_mutex_unlock(&b->lock);
  return false;
}

static shoal_status they_differ(const struct parcels *b, int peer) {
  return INVALID("%s (rank %d) has come to it with another operation, type or shape", b->wire->name(b->wire, peer),
                 peer);
}

static shoal_status too_far_ahead(const struct parcels *b, int peer) {
  return STATUS(SHOAL_RESOURCE_EXHAUSTED, "%s (rank %d) is more than %d collectives ahead of this task",
                b->wire->name(b->wire, peer), peer, MOST_AHEAD);
}

static shoal_status nonsense(const struct parcels *b, int peer) {
  return INTERNAL("%s (rank %d) sends what is no parcel of collectives", b->wire->name(b->wire, peer), peer);
}

/* ---- elements on the wire ---- */

VECTOR_CLONES static void round_to_wire(bf16 *restrict to, const float *restrict from, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = bf16_from_float(from[i]);
}

VECTOR_CLONES static void widen(float *restrict to, const bf16 *restrict from, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = bf16_to_float(from[i]);
}

/* n elements from the at-th on of what a run has in `base`. */
static void put_elements(const struct collective_run *run, char *to, const void *base, struct parcel_piece p) {
  const char *from = (const char *)base + (size_t)p.at * run->element;
  if (run->wire) round_to_wire((bf16 *)to, (const float *)from, p.n);
  else memcpy(to, from, (size_t)p.n * run->element);
}

static void take_elements(const struct collective_run *run, struct parcel_piece p, const char *from) {
  char *to = (char *)run->out + (size_t)p.at * run->element;
  if (run->wire) widen((float *)to, (const bf16 *)from, p.n);
  else memcpy(to, from, (size_t)p.n * run->element);
}

/* ---- sending ---- */

static void enqueue(struct parcels *b, struct parcel_item *x, int stage) {
  x->stage = (uint32_t)stage;
  x->queued = NULL;
  x->is_queued = true;
  if (b->last_queued) b->last_queued->queued = x;
  else b->queue = x;
  b->last_queued = x;
}

/* The other one of a round. */
static int partner(const struct parcels *b, int round) { return b->rank ^ 1 << round; }

static bool goes_to(const struct parcels *b, const struct parcel_item *x, int peer) {
  return x->stage < PARCEL_ROUND || partner(b, (int)x->stage - PARCEL_ROUND) == peer;
}

static struct parcel_piece piece_to(const struct parcels *b, const struct parcel_item *x, int peer) {
  if (x->stage >= PARCEL_ROUND) return (struct parcel_piece){0, x->n};
  return parcel_piece(x->n, x->stage == PARCEL_SUM ? b->rank : peer, b->size);
}

/* Of the queue, up to `end`. */
static size_t bytes_to(const struct parcels *b, const struct parcel_item *end, int peer, size_t *n) {
  size_t bytes = 0;
  *n = 0;
  for (const struct parcel_item *x = b->queue; x != end; x = x->queued) {
    if (!goes_to(b, x, peer)) continue;
    bytes += parcel_room(piece_to(b, x, peer).n, x->element);
    ++*n;
  }
  return bytes + parcel_head(*n);
}

static void pack(const struct parcels *b, const struct parcel_item *end, int peer, char *to, struct parcel_out *out) {
  size_t n = out->n, at = parcel_head(n), i = 0;
  parcel_put_count(to, n);
  for (struct parcel_item *x = b->queue; x != end; x = x->queued) {
    struct parcel_piece p = piece_to(b, x, peer);
    const void *from = x->stage == PARCEL_BROUGHT || x->stage == PARCEL_ROUND ? x->run->in : x->run->out;
    if (!goes_to(b, x, peer)) continue;
    out->items[i] = x;
    x->untaken++;
    parcel_put(to, i++,
               &(struct parcel_entry){.frame = x->frame,
                                      .iter = x->iter,
                                      .n = x->n,
                                      .instance_key = x->instance_key,
                                      .element = x->element,
                                      .stage = x->stage});
    put_elements(x->run, to + at, from, p);
    at += parcel_room(p.n, x->element);
  }
}

static struct parcel_out *out_new(const struct parcels *b, size_t n) {
  struct parcel_out *out = block_alloc(sizeof *out + n * sizeof *out->items);
  *out = (struct parcel_out){.ledger = b->ledger, .n = n};
  ref_take(&b->ledger->refs);
  return out;
}

static void ledger_unref(struct parcel_ledger *l) {
  if (!ref_drop(&l->refs)) return;
  pthread_mutex_destroy(&l->lock);
  block_free(l);
}

static void out_free(struct parcel_out *out) {
  ledger_unref(out->ledger);
  block_free(out);
}

static shoal_status send_to(struct parcels *b, const struct parcel_item *end, int peer) {
  size_t n, bytes = bytes_to(b, end, peer, &n);
  struct tensor t = tensor_none();
  if (!n) return NULL;
  TRY(tensor_new_dims(&t, SHOAL_UINT8, 1, &(int64_t){(int64_t)bytes}));
  struct parcel_out *out = out_new(b, n);
  pack(b, end, peer, t.data, out);
  return b->wire->send(b->wire, peer, b->peers[peer].sent++, &t, out);
}

/* The end of what goes into one parcel. */
static struct parcel_item *end_of_parcel(const struct parcels *b) {
  struct parcel_item *x = b->queue;
  for (size_t bytes = 0; x && bytes < MOST_BYTES; x = x->queued) bytes += (size_t)x->n * x->element;
  return x;
}

static shoal_status flush(struct parcels *b) {
  while (b->queue) {
    struct parcel_item *end = end_of_parcel(b);
    for (int far = 1; far < b->size; far++) TRY(send_to(b, end, (b->rank + far) % b->size));
    b->queue = end;
  }
  b->last_queued = NULL;
  return NULL;
}

/* ---- summing ---- */

enum { BLOCK = 1024 }; /* elements that are widened at a time */

/* As all see them: what this rank brings is rounded too, and so is the sum. */
static void sum_rounded(const struct parcels *b, const struct parcel_item *x, float *room) {
  const struct collective_run *run = x->run;
  struct parcel_piece p = parcel_piece(x->n, b->rank, b->size);
  const char *sources[PARCELLED_RANKS];
  bf16 rounded[BLOCK];
  for (int64_t at = 0, n; at < p.n; at += n) {
    n = MIN(p.n - at, BLOCK);
    float *out = (float *)run->out + p.at + at;
    round_to_wire(rounded, (const float *)run->in + p.at + at, n);
    for (int r = 0; r < b->size; r++) {
      sources[r] = (const char *)(room + r * BLOCK);
      widen(room + r * BLOCK, r == b->rank ? rounded : (const bf16 *)elements_of(&x->parts[r]) + at, n);
    }
    pairs_sum(run->arithmetic, sources, b->size, sizeof(float), n, (char *)out, (char *)(room + b->size * BLOCK),
              BLOCK * sizeof(float));
    if (run->arithmetic->final) run->arithmetic->final(run->arithmetic, out, run->members, n);
    round_to_wire(rounded, out, n);
    widen(out, rounded, n);
  }
}

static void sum_by_wire(const struct parcels *b, const struct parcel_item *x) {
  float *room = block_alloc((size_t)(b->size + pairs_levels(b->size)) * BLOCK * sizeof *room);
  sum_rounded(b, x, room);
  block_free(room);
}

static void sum_piece(struct parcels *b, struct parcel_item *x) {
  struct collective_run *run = x->run;
  struct parcel_piece p = parcel_piece(x->n, b->rank, b->size);
  const char *sources[PARCELLED_RANKS], *own = (const char *)run->in + (size_t)p.at * x->element;
  char *out = (char *)run->out + (size_t)p.at * x->element;
  for (int r = 0; r < b->size; r++) sources[r] = r == b->rank ? own : elements_of(&x->parts[r]);
  char *to = b->size > 2 && own == out ? b->spare : out;
  char *waiting = b->spare ? b->spare + b->spare_step : NULL; /* of two ranks nothing waits */
  pairs_sum(run->arithmetic, sources, b->size, x->element, p.n, to, waiting, b->spare_step);
  if (run->arithmetic->final) run->arithmetic->final(run->arithmetic, to, run->members, p.n);
  if (to != out) memcpy(out, to, (size_t)p.n * x->element);
}

static void end_if_over(struct parcels *b, struct parcel_item *x) {
  bool has_all = x->is_summed && (x->has_rounds || b->size == 2 || x->sums == b->size - 1);
  if (has_all && !x->is_queued && !x->untaken) end_item(b, x);
}

/* What it has now goes to the next one, or is the sum. Until it has gone nothing is added to it. */
static void next_round(struct parcels *b, struct parcel_item *x) {
  const struct collective_run *run = x->run;
  const struct parcel_part *part = &x->parts[partner(b, x->round)];
  if (!part->came) return;
  const char *theirs = elements_of(part), *own = x->round ? run->out : run->in;
  bool is_first = !(b->rank >> x->round & 1);
  run->arithmetic->merge(run->arithmetic, run->out, is_first ? own : theirs, is_first ? theirs : own, x->n);
  let_go_of_part(x, partner(b, x->round));
  if (1 << ++x->round < b->size) {
    enqueue(b, x, PARCEL_ROUND + x->round);
    return;
  }
  if (run->arithmetic->final) run->arithmetic->final(run->arithmetic, run->out, run->members, x->n);
  x->is_summed = true;
  let_go_of_parts(b, x);
  end_if_over(b, x);
}

static void sum_if_whole(struct parcels *b, struct parcel_item *x) {
  if (x->run && x->has_rounds && !x->is_queued && !x->is_summed) next_round(b, x);
  if (!x->run || x->has_rounds || x->brought < b->size - 1 || x->is_summed) return;
  if (x->run->wire) sum_by_wire(b, x);
  else sum_piece(b, x);
  x->is_summed = true;
  let_go_of_parts(b, x);
  if (b->size > 2) enqueue(b, x, PARCEL_SUM);
  end_if_over(b, x);
}

/* ---- what comes ---- */

/* Is it of the rank that such a stage is of, and do all see it alike? */
static bool is_sane(const struct parcels *b, const struct parcel_entry *e, int peer) {
  if (e->stage < PARCEL_ROUND) return true;
  unsigned round = e->stage - PARCEL_ROUND;
  return has_rounds(b, 0) && round < 8 && 1 << round < b->size && partner(b, (int)round) == peer;
}

static shoal_status take_brought(struct parcels *b, struct parcel_item *x, struct parcel_in *a, const char *data) {
  if (x->parts[a->peer].came) return nonsense(b, a->peer);
  x->parts[a->peer] = (struct parcel_part){true, a, (size_t)(data - (const char *)a->value.data)};
  a->uses++;
  x->brought++;
  if (x->run) b->peers[a->peer].misses--;
  sum_if_whole(b, x);
  return NULL;
}

static shoal_status take_sum(struct parcels *b, struct parcel_item *x, int peer, const char *data) {
  struct parcel_piece p = parcel_piece(x->n, peer, b->size);
  if (!x->run || b->size == 2 || x->has_sum >> peer & 1) return nonsense(b, peer);
  take_elements(x->run, p, data);
  x->has_sum |= (uint64_t)1 << peer;
  x->sums++;
  b->peers[peer].misses--;
  end_if_over(b, x);
  return NULL;
}

/* Elements in a message stand anywhere; what computes wants them where their type stands. */
static shoal_status align(struct tensor *t) {
  struct tensor copy;
  if ((uintptr_t)t->data % 16 == 0) return NULL;
  TRY(tensor_new_like(&copy, SHOAL_UINT8, t));
  memcpy(copy.data, t->data, (size_t)t->n);
  tensor_release(t);
  tensor_move(t, &copy);
  return NULL;
}

static shoal_status take(struct parcels *b, struct parcel_in *a) {
  struct parcel_reader r;
  struct parcel_entry e;
  const char *data;
  TRY(align(&a->value));
  if (!parcel_read(&r, a->value.data, (size_t)a->value.n, a->peer, b->rank, b->size)) return nonsense(b, a->peer);
  while (parcel_next(&r, &e, &data)) {
    if (!is_sane(b, &e, a->peer)) return nonsense(b, a->peer);
    struct parcel_item *x = find_or_make(b, &e);
    if (b->ahead > MOST_AHEAD) return too_far_ahead(b, a->peer);
    if (x->has_rounds != (e.stage >= PARCEL_ROUND)) return they_differ(b, a->peer);
    if (x->n != e.n || x->element != e.element) return they_differ(b, a->peer);
    if (e.stage == PARCEL_SUM) TRY(take_sum(b, x, a->peer, data));
    else TRY(take_brought(b, x, a, data));
  }
  return r.i == r.n ? NULL : nonsense(b, a->peer);
}

/* ---- what is begun ---- */

/* Who has come to it before; -1: nobody. */
static int who_came(const struct parcels *b, const struct parcel_item *x) {
  int r = 0;
  while (r < b->size && !x->parts[r].came) r++;
  return r < b->size ? r : -1;
}

static shoal_status enter(struct parcels *b, struct collective_run *run) {
  struct parcel_entry e = {.frame = run->id.frame,
                           .iter = run->id.iter,
                           .n = run->request->n,
                           .instance_key = run->id.instance_key,
                           .element = (uint32_t)(run->wire ? dtype_size(run->wire) : run->element),
                           .stage = has_rounds(b, run->wire) ? PARCEL_ROUND : PARCEL_BROUGHT};
  struct parcel_item *x = find_or_make(b, &e);
  if (x->run) return INVALID("it is under way already in this step");
  if (x->n != e.n || x->element != e.element || x->has_rounds != (e.stage == PARCEL_ROUND))
    return they_differ(b, MAX(who_came(b, x), 0));
  x->run = run;
  b->ahead--;
  for (int k = 0; x->has_rounds && 1 << k < b->size; k++)
    b->peers[partner(b, k)].misses += !x->parts[partner(b, k)].came;
  for (int r = 0; !x->has_rounds && r < b->size; r++)
    if (r != b->rank) b->peers[r].misses += !x->parts[r].came + (b->size > 2);
  enqueue(b, x, (int)e.stage);
  return NULL;
}

/* ---- work ---- */

static void ask(struct parcels *b) {
  for (int r = 0; r < b->size; r++) {
    struct parcels_peer *p = &b->peers[r];
    pthread_mutex_lock(&b->lock);
    bool asks = p->misses > 0 && !p->is_asked && !b->why;
    if (asks) p->is_asked = true;
    pthread_mutex_unlock(&b->lock);
    if (asks) b->wire->recv(b->wire, r, p->asked++, b, &b->cancel);
  }
}

static void append(struct collective_run ***last, struct collective_run *run) {
  run->next = NULL;
  **last = run;
  *last = &run->next;
}

/* Those that have ended; and others, which have failed. */
static void tell(struct parcels *b, struct collective_run *failed) {
  struct collective_run *list = NULL, **last = &list;
  for (struct parcel_item *x = b->ended, *after; x; x = after) {
    after = x->after;
    x->run->status = NULL;
    append(&last, x->run);
    block_free(x);
  }
  b->ended = b->last_ended = NULL;
  for (struct collective_run *r = failed, *next; r; r = next) {
    next = r->next;
    r->status = status_copy(b->why);
    append(&last, r);
  }
  if (list) b->wire->over(b->wire, list);
}

/* Everything that was begun, in one list; the items go. */
static struct collective_run *take_all(struct parcels *b) {
  struct collective_run *list = NULL;
  for (int i = 0; i < BUCKETS; i++)
    for (struct parcel_item *x = b->buckets[i], *next; x; x = next) {
      next = x->next;
      let_go_of_parts(b, x);
      if (x->run) {
        x->run->next = list;
        list = x->run;
      }
      block_free(x);
    }
  memset(b->buckets, 0, sizeof b->buckets);
  b->ahead = 0;
  b->queue = b->last_queued = NULL;
  return list;
}

/* Nobody waits for what is on its way. */
static void forget_sent(struct parcels *b) {
  pthread_mutex_lock(&b->ledger->lock);
  b->ledger->of = NULL;
  pthread_mutex_unlock(&b->ledger->lock);
}

static void free_list(struct parcel_out *taken) {
  for (struct parcel_out *next; taken; taken = next) {
    next = taken->next;
    out_free(taken);
  }
}

static void take_taken(struct parcels *b, const struct parcel_out *taken) {
  for (; taken; taken = taken->next)
    for (size_t i = 0; i < taken->n; i++) {
      taken->items[i]->untaken--;
      end_if_over(b, taken->items[i]);
    }
}

/* Why is known, and stays. What is asked for ends in parcels_came(). */
static void end_all(struct parcels *b, struct collective_run *begun, struct parcel_in *came) {
  forget_sent(b);
  cancel_start(&b->cancel, status_copy(b->why));
  for (struct parcel_in *next; came; came = next) {
    next = came->next;
    arrival_unref(came);
  }
  struct collective_run *open = take_all(b), **last = &open;
  while (*last) last = &(*last)->next;
  *last = begun;
  tell(b, open);
}

/* Those that could not be are left in the list. */
static shoal_status enter_all(struct parcels *b, struct collective_run **begun) {
  for (struct collective_run *run, *next; (run = *begun); *begun = next) {
    next = run->next;
    TRY(enter(b, run));
  }
  return NULL;
}

static struct parcel_in *in_order(struct parcel_in *came) {
  struct parcel_in *list = NULL;
  for (struct parcel_in *next; came; came = next) {
    next = came->next;
    came->next = list;
    list = came;
  }
  return list;
}

/* What waits with a parcel waits with a copy: its sender's collectives end when it is let go of, and may be waited for
 * by those that this rank has not come to. Its head is not read again: a sender that shares memory may have changed
 * it. */
static shoal_status keep(struct parcel_in *a) {
  struct tensor copy;
  if (a->uses == 1) return NULL;
  TRY(tensor_new_like(&copy, SHOAL_UINT8, &a->value));
  memcpy(copy.data, a->value.data, (size_t)copy.n);
  tensor_release(&a->value);
  tensor_move(&a->value, &copy);
  return NULL;
}

static shoal_status take_arrivals(struct parcels *b, struct parcel_in **came) {
  for (struct parcel_in *a; (a = *came);) {
    *came = a->next;
    shoal_status s = take(b, a);
    if (!s) s = keep(a);
    pthread_mutex_lock(&b->lock);
    b->peers[a->peer].is_asked = false; /* not before: what it brought may be all that is missed */
    pthread_mutex_unlock(&b->lock);
    arrival_unref(a);
    TRY(s);
  }
  return NULL;
}

/* Sends what is queued, and goes on with what waited for that, until nothing does. */
static shoal_status send_queued(struct parcels *b) {
  for (struct parcel_item *x, *next; (x = b->queue);) {
    TRY(flush(b));
    for (struct parcel_item *y = x; y; y = y->queued) y->is_queued = false;
    for (; x; x = next) {
      next = x->queued;
      sum_if_whole(b, x);
    }
  }
  return NULL;
}

/* False: all of it ends, with what is left of both. What came from one rank is in its order: there is one at a time. */
static bool work_on(struct parcels *b, struct collective_run **begun, struct parcel_in **came) {
  shoal_status s = enter_all(b, begun);
  if (!s) s = send_queued(b);
  if (s) return fail(b, s);
  ask(b);
  s = take_arrivals(b, came);
  if (!s) s = send_queued(b);
  if (s) return fail(b, s);
  ask(b);
  tell(b, NULL);
  return true;
}

/* With the lock held; whoever calls it holds the parcels. */
static void work(struct parcels *b) {
  if (b->busy) return;
  b->busy = true;
  while (b->begun || b->came || b->taken || (b->why && !cancel_started(&b->cancel))) {
    struct collective_run *begun = b->begun;
    struct parcel_in *came = in_order(b->came);
    struct parcel_out *taken = b->taken;
    shoal_status why = b->why;
    b->begun = b->last_begun = NULL;
    b->came = NULL;
    b->taken = NULL;
    pthread_mutex_unlock(&b->lock);
    if (!why) take_taken(b, taken);
    free_list(taken);
    if (why || !work_on(b, &begun, &came)) end_all(b, begun, came);
    pthread_mutex_lock(&b->lock);
  }
  b->busy = false;
}

static void do_work(struct parcels *b) {
  struct parcels_wire *w = b->wire;
  w->hold(w); /* with what ends it may go */
  work(b);
  pthread_mutex_unlock(&b->lock);
  w->let_go(w);
}

/* ---- the transport ---- */

static void start(struct collective_transport *t, struct collective_run *list) {
  struct parcels *b = (struct parcels *)t;
  struct collective_run *last = list;
  while (last->next) last = last->next;
  pthread_mutex_lock(&b->lock);
  if (b->last_begun) b->last_begun->next = list;
  else b->begun = list;
  b->last_begun = last;
  do_work(b);
}

static void abandon(struct collective_transport *t, const struct collective_id *id, shoal_status why) {
  struct parcels *b = (struct parcels *)t;
  pthread_mutex_lock(&b->lock);
  if (!b->why) b->why = status_copy(why);
  do_work(b);
}

void parcels_came(struct parcels *b, int peer, shoal_status s, struct tensor *parcel) {
  struct parcel_in *a = block_alloc(sizeof *a);
  *a = (struct parcel_in){.peer = peer, .uses = 1};
  tensor_move(&a->value, parcel);
  pthread_mutex_lock(&b->lock);
  bool taken = !s && !b->why;
  if (s && !b->why) {
    b->why = s;
    s = NULL;
  }
  if (taken) {
    a->next = b->came;
    b->came = a;
  }
  do_work(b);
  if (!taken) arrival_unref(a);
  shoal_status_free(s);
}

void parcels_taken(struct parcel_out *out) {
  struct parcel_ledger *l = out->ledger;
  pthread_mutex_lock(&l->lock);
  struct parcels *b = l->of;
  struct parcels_wire *w = b ? b->wire : NULL;
  if (w) w->hold(w);
  pthread_mutex_unlock(&l->lock);
  if (!b) {
    out_free(out);
    return;
  }
  pthread_mutex_lock(&b->lock);
  out->next = b->taken;
  b->taken = out;
  do_work(b);
  w->let_go(w);
}

int parcels_missing(struct parcels *b) {
  int r = 0;
  pthread_mutex_lock(&b->lock);
  while (r < b->size && !b->peers[r].is_asked) r++;
  pthread_mutex_unlock(&b->lock);
  return r < b->size ? r : -1;
}

struct collective_transport *parcels_transport(struct parcels *b) {
  return &b->head;
}

struct parcels *parcels_new(struct parcels_wire *wire, int rank, int size) {
  static const struct collective_transport_ops ops = {.name = "parcels", .abandon = abandon, .whole = start};
  struct parcels *b = block_zalloc(sizeof *b + (size_t)size * sizeof *b->peers);
  b->head.ops = &ops;
  b->wire = wire;
  b->rank = rank;
  b->size = size;
  b->spare_step = parcel_room(PARCELLED_BYTES / size, 1) + PARCEL_LINE;
  if (size > 2) b->spare = block_alloc((size_t)(1 + pairs_levels(size)) * b->spare_step);
  cancel_init(&b->cancel);
  b->ledger = block_zalloc(sizeof *b->ledger);
  ref_init(&b->ledger->refs, 1);
  pthread_mutex_init(&b->ledger->lock, NULL);
  b->ledger->of = b;
  pthread_mutex_init(&b->lock, NULL);
  return b;
}

void parcels_free(struct parcels *b) {
  if (!b) return;
  struct collective_run *open = take_all(b);
  MUST(!open);
  forget_sent(b);
  free_list(b->taken);
  ledger_unref(b->ledger);
  shoal_status_free(b->why);
  cancel_release(&b->cancel);
  pthread_mutex_destroy(&b->lock);
  block_free(b->spare);
  block_free(b);
}
