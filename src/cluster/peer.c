/* Peers and their watch; see peer.h.
 *
 * Times, for a time-out T (10 s unless told otherwise): a peer not heard of for T/5 while something waits is asked for
 * its status; the question has 3T/5 to be answered. The watch looks every T/20. A dead peer is thus found within
 * 17T/20.
 *
 * Locks: the set's guards its table, a peer's own all that is said to or heard from it: a socket that is slow to take a
 * request keeps only those who wait for the same peer. The set's is taken first where both are. */
#include "cluster/peer.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/device_name.h"
#include "base/inside.h"
#include "base/list.h"
#include "base/log.h"
#include "base/ref.h"
#include "base/strmap.h"
#include "base/vec.h"
#include "base/wire.h"
#include "cluster/identity.h"
#include "cluster/listing.h"
#include "cluster/request_ids.h"
#include "cluster/transfer.h"
#include "proto/step_stats.wire.h"
#include "proto/worker.wire.h"
#include "rpc/fast/fast.h"
#include "rpc/loop.h"

enum { MAX_TICKETS = 4 }; /* a peer whose tickets lead nowhere is not asked for more */

struct peer_call {
  struct ref refs;               /* the call's own, and the handle's; first (peer_call_ref) */
  struct peer_call *prev, *next; /* peer's lock */
  struct peer *peer;
  const char *method;
  int64_t step, started;
  const char *what; /* kept behind it */
  bool unwatched, counted;
  struct rpc_pending *pending; /* one of these two; both when the fast path took over */
  struct fast_call *fast;      /* peer's lock, once the call has begun */
  bool cancelled;              /* peer's lock */
  rpc_done done;
  fast_done fetched;           /* of peer_fetch */
  struct device *to;           /* of peer_fetch: whom it is for; NULL: the host */
  struct fast_sink *sink;      /* of peer_fetch: where its bytes go; NULL: into a tensor */
  struct tensor room;          /* of peer_fetch: where the value is being read to */
  struct peer_call *elsewhere; /* peer's lock: the next that waits for the fast path */
  void *arg;
};

struct peer {
  struct ref refs; /* holders, calls, questions, and the set's when it is kept; the last goes with set->lock held */
  bool kept;       /* set->lock */
  struct peers *set;
  char *task, *address;
  struct rpc_channel *channel;
  pthread_mutex_t lock;
  struct peer_call *calls;    /* lock */
  int64_t heard;              /* lock: when it last answered anything */
  bool asked;                 /* lock: a status question is under way */
  bool silent;                /* lock: the last one was not answered */
  uint64_t incarnation;       /* lock: of its first device, once known */
  struct text status;         /* lock: what it last said of its devices */
  int64_t changed;            /* lock: when that was first of another incarnation than before; 0: never */
  struct fast_client *fast;   /* lock: NULL until offered */
  int fast_tries;             /* lock: tickets that led nowhere */
  bool dialing;               /* lock: one is being tried */
  struct peer_call *oversize; /* lock: whose values can come by the fast path alone, once it is there */
};

struct peer_list {
  struct peer **at;
  size_t n, cap;
};

struct peers {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  const struct rpc_tls *tls;
  int64_t timeout_ns;
  bool fast_path;
  struct ref refs;   /* the owner's, and each peer's */
  struct strmap all; /* lock: "TASK ADDRESS" -> struct peer * */
  pthread_t watcher;
  atomic_bool watching, stopping; /* changed with the lock held */
  struct inside busy;             /* calls whose done has not returned yet, questions under way */
};

static void *watch(void *arg);

shoal_status peers_new(const struct rpc_tls *tls, int64_t timeout_ms, bool fast_path, struct peers **out) {
  TRY(rpc_loop_acquire());
  struct peers *p = *out = mem_zalloc(1, sizeof *p);
  pthread_mutex_init(&p->lock, NULL);
  cond_init(&p->changed);
  inside_init(&p->busy);
  ref_init(&p->refs, 1);
  p->tls = tls;
  p->fast_path = fast_path;
  p->timeout_ns = (timeout_ms > 0 ? timeout_ms : 10000) * 1000000;
  return NULL;
}

static void set_unref(struct peers *p) {
  if (!ref_drop(&p->refs)) return;
  strmap_release(&p->all);
  pthread_cond_destroy(&p->changed);
  pthread_mutex_destroy(&p->lock);
  free(p);
}

static char *key_of(const char *task, const char *address) { return mem_printf("%s %s", task, address); }

void peer_unref(struct peer *p) {
  if (!p) return;
  if (ref_drop_unless_last(&p->refs)) return;
  struct peers *set = p->set;
  pthread_mutex_lock(&set->lock);
  if (!ref_drop(&p->refs)) { /* somebody has found it in the table */
    pthread_mutex_unlock(&set->lock);
    return;
  }
  char *key = key_of(p->task, p->address);
  strmap_remove(&set->all, key);
  pthread_mutex_unlock(&set->lock);
  free(key);
  fast_client_free(p->fast);
  rpc_channel_unref(p->channel);
  pthread_mutex_destroy(&p->lock);
  text_release(&p->status);
  free(p->task);
  free(p->address);
  free(p);
  set_unref(set);
}

/* All peers, each with a reference. */
static void list_peers(struct peers *p, struct peer_list *out) {
  void *e;
  pthread_mutex_lock(&p->lock);
  for (size_t i = 0; strmap_next(&p->all, &i, NULL, &e);) {
    ref_take(&((struct peer *)e)->refs);
    vec_push(out, e);
  }
  pthread_mutex_unlock(&p->lock);
}

void peers_free(struct peers *p) {
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  p->stopping = true;
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
  struct peer_list all = {0};
  list_peers(p, &all);
  for (size_t i = 0; i < all.n; i++) peer_cancel_all(all.at[i], STATUS(SHOAL_CANCELLED, "this task is stopping"));
  pthread_mutex_lock(&p->lock);
  bool watching = p->watching;
  pthread_mutex_unlock(&p->lock);
  if (watching) pthread_join(p->watcher, NULL); /* it asks questions */
  inside_wait(&p->busy);
  for (size_t i = 0; i < all.n; i++) {
    if (all.at[i]->kept) peer_unref(all.at[i]);
    peer_unref(all.at[i]);
  }
  vec_release(&all);
  set_unref(p);
  rpc_loop_release();
}

struct peer *peers_get(struct peers *p, const char *task, const char *address, bool keep) {
  char *key = key_of(task, address);
  pthread_mutex_lock(&p->lock);
  struct peer *e = strmap_get(&p->all, key);
  if (!e) {
    e = mem_zalloc(1, sizeof *e);
    ref_init(&e->refs, 1);
    e->set = p;
    ref_take(&p->refs);
    pthread_mutex_init(&e->lock, NULL);
    e->task = mem_strdup(task);
    e->address = mem_strdup(address);
    char *name = identity_of_task(task);
    e->channel = rpc_channel_new(address, p->tls, name);
    free(name);
    strmap_put(&p->all, key, e);
  } else ref_take(&e->refs);
  if (keep && !e->kept) ref_take(&e->refs);
  e->kept = e->kept || keep;
  pthread_mutex_unlock(&p->lock);
  free(key);
  return e;
}

const char *peer_address(const struct peer *p) { return p->address; }

int64_t peers_quiet_ns(const struct peers *p) { return p->timeout_ns / 5; }
int64_t peers_patience_ns(const struct peers *p) { return p->timeout_ns * 3 / 5; }

struct rpc_channel *peer_channel(struct peer *p) {
  return p->channel;
}

bool peer_is_silent(struct peer *p) {
  pthread_mutex_lock(&p->lock);
  bool silent = p->silent;
  pthread_mutex_unlock(&p->lock);
  return silent;
}

void peer_call_unref(struct peer_call *c) {
  if (!c || !ref_drop(&c->refs)) return;
  struct peer *p = c->peer;
  rpc_pending_unref(c->pending);
  fast_call_unref(c->fast);
  block_free(c);
  peer_unref(p);
}

static shoal_status decorate(const struct peer_call *c, shoal_status s) {
  if (!s || shoal_status_code(s) == SHOAL_CANCELLED) return s;
  status_suffix(s, "\nAdditional GRPC error information from remote target %s (%s) while calling %s", c->peer->task,
                c->peer->address, c->method);
  if (c->step) status_suffix(s, " in step %" PRId64, c->step);
  if (c->what) status_suffix(s, ", waiting for %s", c->what);
  return s;
}

/* The answer has come: the call is in nobody's list any more. */
static void call_answered(struct peer_call *c, shoal_code code) {
  pthread_mutex_lock(&c->peer->lock);
  LIST_REMOVE(c->peer->calls, c);
  if (code != SHOAL_UNAVAILABLE && code != SHOAL_CANCELLED && code != SHOAL_DEADLINE_EXCEEDED) {
    c->peer->heard = clock_ns();
    c->peer->silent = false;
  }
  pthread_mutex_unlock(&c->peer->lock);
}

/* Only now is the call over for whoever waits to free the set. */
static void call_over(struct peer_call *c) {
  if (c->counted) inside_leave(&c->peer->set->busy);
  peer_call_unref(c); /* with it the peer, and with that the set, may go */
}

static void on_done(void *arg, shoal_status s, struct rpc_body *body) {
  struct peer_call *c = arg;
  call_answered(c, shoal_status_code(s));
  c->done(c->arg, decorate(c, s), body);
  call_over(c);
}

/* Makes a call and puts it in the peer's list; call with its lock held. */
static struct peer_call *call_new(struct peer *p, const char *method, int64_t step, const char *what, void *arg,
                                  struct peer_call **handle) {
  size_t n = what ? strlen(what) + 1 : 0;
  struct peer_call *c = block_zalloc(sizeof *c + n);
  ref_init(&c->refs, handle ? 2 : 1);
  c->peer = p;
  c->method = method;
  c->step = step;
  c->started = clock_ns();
  c->what = what ? memcpy(c + 1, what, n) : NULL;
  c->arg = arg;
  if (handle) *handle = c;
  LIST_ADD(p->calls, c);
  c->counted = inside_enter(&p->set->busy);
  ref_take(&p->refs);
  return c;
}

static void keep_watch(struct peers *set) {
  if (atomic_load_explicit(&set->watching, memory_order_relaxed)) return;
  pthread_mutex_lock(&set->lock);
  if (!set->watching && !set->stopping) set->watching = pthread_create(&set->watcher, NULL, watch, set) == 0;
  pthread_mutex_unlock(&set->lock);
}

/* ---- the fast path ---- */

bool peer_wants_ticket(struct peer *p) {
  pthread_mutex_lock(&p->lock);
  bool wants = p->set->fast_path && !p->fast && !p->dialing && p->fast_tries < MAX_TICKETS;
  pthread_mutex_unlock(&p->lock);
  return wants;
}

static void ask_elsewhere(struct peer_call *c);

static void on_dialled(void *arg, struct fast_client *fast) {
  struct peer *p = arg;
  pthread_mutex_lock(&p->lock);
  p->dialing = false;
  if (!atomic_load(&p->set->stopping)) {
    p->fast = fast;
    fast = NULL;
  }
  if (p->fast) p->fast_tries = 0;
  else if (p->fast_tries == MAX_TICKETS) LOGI("no fast path to %s (%s): gRPC carries everything", p->task, p->address);
  struct peer_call *waiting = p->oversize;
  p->oversize = NULL;
  pthread_mutex_unlock(&p->lock);
  fast_client_free(fast);
  for (struct peer_call *next; waiting; waiting = next) {
    next = waiting->elsewhere;
    ask_elsewhere(waiting);
  }
  peer_unref(p);
}

void peer_take_ticket(struct peer *p, const struct text *ticket) {
  pthread_mutex_lock(&p->lock);
  bool wanted = !atomic_load(&p->set->stopping) && !p->fast && !p->dialing && p->fast_tries++ < MAX_TICKETS;
  if (wanted) {
    p->dialing = true;
    ref_take(&p->refs);
  }
  pthread_mutex_unlock(&p->lock);
  if (!wanted) return;
  const char *colon = strrchr(p->address, ':');
  char *host = mem_strndup(p->address, colon ? (size_t)(colon - p->address) : strlen(p->address));
  fast_client_dial(ticket->at, ticket->n, host, on_dialled, p);
  free(host);
}

/* A peer that does not answer: nothing may wait on its connection, half a tensor included. */
static void drop_fast(struct peer *p) {
  pthread_mutex_lock(&p->lock);
  struct fast_client *fast = p->fast;
  p->fast = NULL;
  pthread_mutex_unlock(&p->lock);
  fast_client_free(fast);
}

/* ---- calls ---- */

static void on_fast_result(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  struct peer_call *c = arg;
  call_answered(c, shoal_status_code(s));
  struct rpc_body body = {0};
  if (!s) {
    body = rpc_body_copy(value->data, (size_t)value->n);
    tensor_release(value);
  }
  c->done(c->arg, decorate(c, s), &body);
  rpc_body_release(&body);
  call_over(c);
}

/* Call with the peer's lock held. */
static bool call_fast(struct peer_call *c, struct fast_client *fast, struct rpc_message *request, int64_t deadline) {
  const void *data;
  size_t size;
  bool sent = !request->failed && rpc_message_flat(request, &data, &size) &&
              fast_call(fast, data, size, deadline, on_fast_result, c, &c->fast);
  if (sent) rpc_message_free(request);
  return sent;
}

bool peer_start(struct peer *p, const char *method, struct rpc_message *request, int64_t deadline, unsigned flags,
                int64_t step, const char *what, rpc_done done, void *arg, struct peer_call **handle) {
  if (!(flags & PEER_UNWATCHED)) keep_watch(p->set);
  /* Under the lock: the watch must not meet a call whose handle is not there yet. The completion runs on another
   * thread and waits for the lock. */
  pthread_mutex_lock(&p->lock);
  struct peer_call *c = call_new(p, method, step, what, arg, handle);
  c->unwatched = flags & PEER_UNWATCHED;
  c->done = done;
  /* Calls with a deadline are left to gRPC, which keeps it. */
  bool fast = flags & PEER_FAST && p->fast && deadline == DEADLINE_NEVER && call_fast(c, p->fast, request, deadline);
  if (!fast) rpc_start(p->channel, method, request, deadline, flags, on_done, c, &c->pending);
  pthread_mutex_unlock(&p->lock);
  return fast;
}

/* ---- fetching tensors ---- */

static void on_fast(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  struct peer_call *c = arg;
  /* Whoever started the call holds the lock until its handle is set. */
  call_answered(c, shoal_status_code(s));
  c->fetched(c->arg, decorate(c, s), value, is_dead);
  call_over(c);
}

/* Call with the peer's lock held; false: there is no fast path, or it is broken. */
static bool fetch_fast(struct peer_call *c, const char *key) {
  struct fast_client *fast = c->peer->fast;
  if (!fast) return false;
  if (c->sink) return fast_ask_poured(fast, c->step, key, c->sink, on_fast, c, &c->fast);
  return fast_ask_into(fast, c->step, key, c->to, on_fast, c, &c->fast);
}

/* The value does not fit in a gRPC message: by the fast path, or not at all. The call goes on there, or ends. */
static void ask_elsewhere(struct peer_call *c) {
  struct peer *p = c->peer;
  shoal_status s = NULL;
  pthread_mutex_lock(&p->lock);
  bool waits = p->dialing && !c->cancelled;
  if (waits) {
    c->elsewhere = p->oversize;
    p->oversize = c;
  }
  bool asked = !waits && !c->cancelled && fetch_fast(c, c->what);
  if (c->cancelled) s = STATUS(SHOAL_CANCELLED, "the step that waited for this value has ended");
  pthread_mutex_unlock(&p->lock);
  if (waits || asked) return;
  if (!s)
    s = STATUS(SHOAL_RESOURCE_EXHAUSTED,
               "the tensor is larger than the 2 GiB of a gRPC message, and the fast path to %s (%s) cannot be opened",
               p->task, p->address);
  struct tensor none = tensor_none();
  on_fast(c, s, &none, false);
}

static bool place_value(void *arg, const uint8_t *head, size_t n, size_t total, size_t *at, size_t *size,
                        uint8_t **to) {
  struct peer_call *c = arg;
  if (!transfer_place(head, n, total, &c->room, at, size)) return false;
  *to = c->room.data;
  return true;
}

static void on_recv(void *arg, shoal_status s, struct rpc_body *body) {
  struct peer_call *c = arg;
  struct tensor value = tensor_none();
  struct text ticket = {0};
  bool is_dead = false;
  shoal_code code = shoal_status_code(s);
  if (!s) s = transfer_parse(body, &c->room, &value, &is_dead, &ticket);
  tensor_release(&c->room);
  bool elsewhere = !s && ticket.n && !is_dead && !tensor_valid(&value);
  if (ticket.n) peer_take_ticket(c->peer, &ticket);
  text_release(&ticket);
  if (elsewhere) {
    ask_elsewhere(c);
    return;
  }
  call_answered(c, code);
  c->fetched(c->arg, decorate(c, s), &value, is_dead);
  call_over(c);
}

void peer_fetch(struct peer *p, int64_t step, const char *key, struct device *to, struct fast_sink *sink,
                void (*done)(void *arg, shoal_status s, struct tensor *value, bool is_dead), void *arg,
                struct peer_call **handle) {
  keep_watch(p->set);
  pthread_mutex_lock(&p->lock);
  struct peer_call *c = call_new(p, "/tensorflow.WorkerService/RecvTensor", step, key, arg, handle);
  c->fetched = done;
  c->to = to;
  c->sink = sink;
  c->room = tensor_none();
  struct fast_client *gone = NULL;
  bool asked = fetch_fast(c, key);
  if (!asked) {
    gone = p->fast; /* broken: perhaps the peer was restarted, and offers another */
    p->fast = NULL;
    struct message m;
    message_init(&m);
    message_int(&m, RecvTensorRequest_step_id, (uint64_t)step);
    message_string(&m, RecvTensorRequest_rendezvous_key, key);
    if (p->set->fast_path && p->fast_tries < MAX_TICKETS)
      transfer_put_fast(&m, RecvTensorRequest_transport_options, "", 0);
    message_int(&m, RecvTensorRequest_request_id, (uint64_t)request_id_new());
    rpc_start_placed(p->channel, c->method, message_finish(&m), DEADLINE_NEVER, 0, place_value, on_recv, c,
                     &c->pending);
  }
  pthread_mutex_unlock(&p->lock);
  fast_client_free(gone);
}

void peer_cancel(struct peer_call *c, shoal_status why) {
  pthread_mutex_lock(&c->peer->lock);
  c->cancelled = true;
  struct peer_call **at = &c->peer->oversize;
  while (*at && *at != c) at = &(*at)->elsewhere;
  bool fast = c->fast != NULL, dials = *at == c;
  if (dials) *at = c->elsewhere; /* gRPC is done with it, and the fast path has not begun */
  pthread_mutex_unlock(&c->peer->lock);
  struct tensor none = tensor_none();
  if (dials) on_fast(c, why, &none, false);
  else if (fast) fast_cancel(c->fast, why);
  else rpc_cancel(c->pending, why);
}

/* ---- the watch ---- */

struct peer_question {
  struct peer *peer;
  int64_t asked;
};

/* Fails what waited when the question was asked. Calls are cancelled outside the lock, each with a reference. */
static void fail_calls(struct peer *p, int64_t before, shoal_status why) {
  VEC(struct peer_call *) victims = {0};
  pthread_mutex_lock(&p->lock);
  for (struct peer_call *c = p->calls; c; c = c->next)
    if (!c->unwatched && c->started <= before) {
      ref_take(&c->refs);
      vec_push(&victims, c);
    }
  pthread_mutex_unlock(&p->lock);
  if (victims.n)
    LOGW("%s: %zu call%s that wait%s for it end%s", shoal_status_message(why), victims.n, victims.n == 1 ? "" : "s",
         victims.n == 1 ? "s" : "", victims.n == 1 ? "s" : "");
  for (size_t i = 0; i < victims.n; i++) {
    peer_cancel(victims.at[i], status_copy(why));
    peer_call_unref(victims.at[i]);
  }
  vec_release(&victims);
  shoal_status_free(why);
}

void peer_cancel_all(struct peer *p, shoal_status why) {
  VEC(struct peer_call *) victims = {0};
  pthread_mutex_lock(&p->lock);
  for (struct peer_call *c = p->calls; c; c = c->next) {
    ref_take(&c->refs);
    vec_push(&victims, c);
  }
  pthread_mutex_unlock(&p->lock);
  for (size_t i = 0; i < victims.n; i++) {
    peer_cancel(victims.at[i], status_copy(why));
    peer_call_unref(victims.at[i]);
  }
  vec_release(&victims);
  shoal_status_free(why);
}

static uint64_t first_incarnation(struct wire w) {
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag != GetStatusResponse_device_attributes) continue;
    struct wire device = wire_inside(&f);
    for (struct wire_field k; wire_next(&device, &k) == WIRE_FIELD;)
      if (k.tag == DeviceAttributes_incarnation) return k.value;
    return 0;
  }
  return 0;
}

void peer_learn(struct peer *p, const void *status, size_t n) {
  enum { MOST = 64 << 10 };
  uint64_t now = first_incarnation(wire_from(status, n));
  pthread_mutex_lock(&p->lock);
  uint64_t before = first_incarnation(wire_from(p->status.at, p->status.n));
  if (before && now && before != now) p->changed = clock_ns();
  text_release(&p->status);
  if (n <= MOST) text_add(&p->status, status, n);
  pthread_mutex_unlock(&p->lock);
}

/* The name of its first device, as it has it. */
static struct wire first_device(struct wire status) {
  for (struct wire_field f; wire_next(&status, &f) == WIRE_FIELD;) {
    if (f.tag != GetStatusResponse_device_attributes) continue;
    struct wire attributes = wire_inside(&f);
    for (struct wire_field k; wire_next(&attributes, &k) == WIRE_FIELD;)
      if (k.tag == DeviceAttributes_name) return wire_inside(&k);
    break;
  }
  return wire_from("", 0);
}

shoal_status peer_check_name(struct peer *p) {
  pthread_mutex_lock(&p->set->lock);
  bool kept = p->kept;
  pthread_mutex_unlock(&p->set->lock);
  pthread_mutex_lock(&p->lock);
  struct wire name = first_device(wire_from(p->status.at, p->status.n));
  char *device = mem_strndup((const char *)name.at, wire_left(&name));
  pthread_mutex_unlock(&p->lock);
  struct device_spec d;
  shoal_status unread = device_spec_parse(device, &d), s = NULL;
  char *says = !unread && d.has_job && d.has_task ? mem_printf("/job:%s/replica:0/task:%d", d.job, d.task) : NULL;
  if (kept && says && strcmp(says, p->task) != 0)
    s = INVALID("%s says it is %s, expected %s: two tasks have one number, or their lists of tasks differ", p->address,
                says, p->task);
  shoal_status_free(unread);
  free(says);
  free(device);
  return s;
}

static const char *suffix_of(const char *device, size_t n) {
  const char *at = memmem(device, n, "/device:", 8);
  return at ? at : device;
}

uint64_t peer_device_incarnation(struct peer *p, const char *device) {
  const char *want = suffix_of(device, strlen(device));
  uint64_t found = 0;
  pthread_mutex_lock(&p->lock);
  struct wire w = wire_from(p->status.at, p->status.n);
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag != GetStatusResponse_device_attributes) continue;
    struct wire attributes = wire_inside(&f), name = wire_from("", 0);
    uint64_t incarnation = 0;
    for (struct wire_field k; wire_next(&attributes, &k) == WIRE_FIELD;) {
      if (k.tag == DeviceAttributes_name) name = wire_inside(&k);
      if (k.tag == DeviceAttributes_incarnation) incarnation = k.value;
    }
    const char *have = suffix_of((const char *)name.at, wire_left(&name));
    size_t n = (size_t)((const char *)name.end - have);
    if (n == strlen(want) && !memcmp(have, want, n)) found = incarnation;
  }
  pthread_mutex_unlock(&p->lock);
  return found;
}

int peer_count_devices(struct peer *p, const char *type) {
  int n = 0;
  pthread_mutex_lock(&p->lock);
  struct wire w = wire_from(p->status.at, p->status.n), has;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
    n += f.tag == GetStatusResponse_device_attributes && find_DeviceAttributes_device_type(wire_inside(&f), &has) &&
         wire_left(&has) == strlen(type) && !memcmp(has.at, type, strlen(type));
  pthread_mutex_unlock(&p->lock);
  return n;
}

uint64_t peer_incarnation(struct peer *p) {
  pthread_mutex_lock(&p->lock);
  uint64_t found = first_incarnation(wire_from(p->status.at, p->status.n));
  pthread_mutex_unlock(&p->lock);
  return found;
}

int64_t peer_changed(struct peer *p) {
  pthread_mutex_lock(&p->lock);
  int64_t changed = p->changed;
  pthread_mutex_unlock(&p->lock);
  return changed;
}

shoal_status peer_absence(const struct peer *p, shoal_status s) {
  shoal_code code = shoal_status_code(s);
  if (code != SHOAL_UNAVAILABLE && code != SHOAL_DEADLINE_EXCEEDED && code != SHOAL_UNAUTHENTICATED) return NULL;
  const char *why = code == SHOAL_DEADLINE_EXCEEDED ? "stopped, overloaded or unreachable" : shoal_status_message(s);
  return STATUS(SHOAL_UNAVAILABLE, "Task %s at %s does not answer (%.*s)", p->task, p->address, (int)strcspn(why, "\n"),
                why);
}

static void on_status(void *arg, shoal_status s, struct rpc_body *body) {
  struct peer_question *q = arg;
  struct peer *p = q->peer;
  struct peers *set = p->set;
  shoal_code code = shoal_status_code(s);
  shoal_status absent = peer_absence(p, s);
  if (absent) {
    fail_calls(p, q->asked, absent);
    drop_fast(p);
  } else if (!s) {
    const void *said = "";
    size_t size = 0;
    shoal_status flat = rpc_body_flat(body, &said, &size);
    if (!flat) peer_learn(p, said, size);
    uint64_t now = flat ? 0 : first_incarnation(wire_from(said, size)), before;
    shoal_status_free(flat);
    pthread_mutex_lock(&p->lock);
    before = p->incarnation;
    p->heard = clock_ns();
    if (now) p->incarnation = now;
    pthread_mutex_unlock(&p->lock);
    if (before && now && before != now)
      fail_calls(p, q->asked,
                 status_mark_restarted(STATUS(SHOAL_ABORTED, "Task %s at %s was restarted", p->task, p->address)));
  }
  shoal_status_free(s);
  pthread_mutex_lock(&p->lock);
  p->silent = code == SHOAL_UNAVAILABLE || code == SHOAL_DEADLINE_EXCEEDED;
  p->asked = false;
  pthread_mutex_unlock(&p->lock);
  inside_leave(&set->busy);
  peer_unref(p);
  free(q);
}

/* Does anything wait for p that should be watched, and has p been silent since? Then a question is to be asked. */
static bool overdue(struct peer *p, int64_t now) {
  int64_t oldest = INT64_MAX;
  pthread_mutex_lock(&p->lock);
  for (const struct peer_call *c = p->calls; c; c = c->next)
    if (!c->unwatched) oldest = MIN(oldest, c->started);
  bool due = !p->asked && oldest != INT64_MAX && now - MAX(oldest, p->heard) > peers_quiet_ns(p->set);
  p->asked = p->asked || due;
  pthread_mutex_unlock(&p->lock);
  return due;
}

/* The reference is taken over. */
static void ask_status(struct peer *p, int64_t now) {
  struct peer_question *q = mem_zalloc(1, sizeof *q);
  *q = (struct peer_question){p, now};
  rpc_start(p->channel, "/tensorflow.WorkerService/GetStatus", NULL, now + peers_patience_ns(p->set), 0, on_status, q,
            NULL);
}

static void *watch(void *arg) {
  struct peers *set = arg;
  pthread_setname_np(pthread_self(), "shoal-watch");
  pthread_mutex_lock(&set->lock);
  while (!set->stopping) {
    int64_t now = clock_ns(), wake = now + set->timeout_ns / 20;
    void *e;
    struct peer_list due = {0};
    for (size_t i = 0; strmap_next(&set->all, &i, NULL, &e);) {
      if (!overdue(e, now)) continue;
      ref_take(&((struct peer *)e)->refs);
      inside_enter(&set->busy);
      vec_push(&due, e);
    }
    if (due.n) {
      pthread_mutex_unlock(&set->lock);
      for (size_t i = 0; i < due.n; i++) ask_status(due.at[i], now);
      vec_release(&due);
      pthread_mutex_lock(&set->lock);
      if (set->stopping) break;
    }
    cond_wait_until(&set->changed, &set->lock, wake);
  }
  pthread_mutex_unlock(&set->lock);
  return NULL;
}

/* What one who calls the method waits for, in words. */
static const char *wanted(const char *method) {
  if (!strcmp(method, "RecvTensor")) return "a value";
  if (!strcmp(method, "RunGraph")) return "another task to run its part";
  if (!strcmp(method, "RegisterGraph")) return "another task to take its part of the graph";
  return "an answer";
}

void peers_describe(struct peers *p, struct text *out) {
  void *e;
  pthread_mutex_lock(&p->lock);
  int64_t now = clock_ns();
  struct listing fast = {.out = out}, calls = {.out = out};
  for (size_t i = 0; strmap_next(&p->all, &i, NULL, &e) && !calls.full;) {
    struct peer *peer = e;
    pthread_mutex_lock(&peer->lock);
    if (peer->fast && listing_line(&fast))
      text_addf(out, "  %s (%s): fast path over %s\n", peer->task, peer->address, fast_client_kind(peer->fast));
    for (struct peer_call *c = peer->calls; c && listing_line(&calls); c = c->next) {
      const char *method = strrchr(c->method, '/') + 1;
      text_addf(out, "  step %" PRId64 ": waits for %s since %.1f s: %s to %s (%s)", listing_step(c->step),
                wanted(method), (double)(now - c->started) * 1e-9, method, peer->task, peer->address);
      if (c->what) {
        text_adds(out, ", for ");
        text_add_shown(out, c->what, strlen(c->what), false);
      }
      text_addc(out, '\n');
    }
    pthread_mutex_unlock(&peer->lock);
  }
  pthread_mutex_unlock(&p->lock);
  if (calls.full) text_adds(out, "  ... and more calls to other tasks\n");
}

/* ---- blocking form ---- */

shoal_status peer_wait(struct peer *p, const char *method, struct rpc_message *request, int64_t deadline,
                       unsigned flags, bool (*give_up)(void), struct rpc_body *body) {
  enum { ASK_MS = 100 };
  struct rpc_wait w;
  struct peer_call *call = NULL;
  rpc_wait_init(&w);
  peer_start(p, method, request, deadline, flags, 0, NULL, rpc_wait_done, &w, give_up ? &call : NULL);
  rpc_loop_hand_over();
  while (give_up && !latch_wait_until(&w.ended, deadline_after_ms(ASK_MS)))
    if (give_up()) {
      peer_cancel(call, STATUS(SHOAL_CANCELLED, "given up"));
      give_up = NULL;
    }
  shoal_status s = rpc_wait_finish(&w, body);
  peer_call_unref(call);
  return s;
}
