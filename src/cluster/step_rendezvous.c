/* Steps and their rendezvous; see step_rendezvous.h.
 *
 * The local half is runtime's own rendezvous; this adds the table of steps and the fetching. */
#include "cluster/step_rendezvous.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/clock.h"
#include "base/keyed_hash.h"
#include "cluster/cancellable.h"
#include "cluster/listing.h"

enum { BUCKET_BITS = 12, BUCKETS = 1 << BUCKET_BITS, ASKER_BITS = 8, REMEMBERED = 1024 };

struct entry {
  struct rendezvous head;
  struct entry *next;   /* steps->lock */
  struct steps *steps;  /* whose */
  atomic_bool finished; /* the step has run here: the last value taken ends it */
  int64_t id;
  int64_t session;         /* steps->lock: that has run it here; 0: none yet */
  uint64_t connection;     /* steps->lock: of who had it run here; 0: nobody yet */
  int64_t touched;         /* steps->lock: when somebody was last at work on it */
  int bound;               /* steps->lock: runs under way */
  int requests;            /* steps->lock: from outside, that wait */
  bool is_strange;         /* steps->lock: only requests know of it */
  struct rpc_origin asker; /* steps->lock: with is_strange, where the request that came first is from */
  struct rendezvous *local;
  _Atomic(char *) why;            /* the beginning of what it was aborted with first; NULL: it was not */
  const struct step_names *names; /* set while the step runs here */
  struct step_stats *stats;
  struct step_guest *guests; /* steps->lock */
};

/* A connection, or an address, that has asked for values of steps which nobody runs here yet. */
struct value_asker {
  struct value_asker *next;
  bool is_address;
  uint64_t number;
  int64_t n; /* of such steps */
};

/* A step that was cleaned up. Who comes late to one that failed is told why: the cause may be another task. */
struct gone_step {
  int64_t id;
  char *why; /* the beginning of it; NULL: it did not fail */
};

struct steps {
  pthread_mutex_t lock;
  struct value_asker *askers[1 << ASKER_BITS]; /* lock: by number */
  struct entry *buckets[BUCKETS];              /* lock */
  struct gone_step gone[REMEMBERED];           /* lock: a ring */
  size_t next_gone;
  int64_t n, most;     /* lock: known now; when strangers may add none */
  int64_t most_of_one; /* that one connection may add */
  int64_t looked;      /* lock: when stale ones were last looked for */
};

/* ---- fetching a value from another task ---- */

struct fetch {
  struct entry *step;
  struct cancellable call;
  rendezvous_done done;
  void *arg;
  struct fast_sink *sink; /* NULL: it comes as a tensor */
  int64_t started_wall;
  char *key;
};

static void fetch_free(struct fetch *f) {
  free(f->key);
  rendezvous_unref(&f->step->head);
  block_free(f);
}

static void record(struct fetch *f, const struct tensor *value) {
  struct rendezvous_key k;
  if (!f->step->stats || !f->key) return;
  shoal_status s = rendezvous_key_parse(f->key, &k);
  shoal_status_free(s);
  if (s) return;
  size_t bytes = tensor_valid(value) ? tensor_bytes(value) : f->sink && f->sink->filled ? f->sink->bytes : 0;
  char *device = mem_strndup(k.dst, k.dst_n);
  char *label = mem_printf("[%.1fKB] %.*s from %.*s to %.*s", (double)bytes / 1024, (int)k.edge_n, k.edge, (int)k.src_n,
                           k.src, (int)k.dst_n, k.dst);
  step_stats_span(f->step->stats, device, "RecvTensor", label, f->started_wall, wall_nanos(), (int64_t)bytes);
  free(label);
  free(device);
}

static void fetch_done(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  struct fetch *f = arg;
  cancellable_end(&f->call);
  if (!s) record(f, value);
  if (shoal_status_code(s) == SHOAL_CANCELLED) status_mark_derived(s);
  f->done(f->arg, s, value, is_dead);
  fetch_free(f);
}

static void fetch_start(struct entry *e, struct peer *peer, const char *key, struct device *to, struct fast_sink *sink,
                        struct cancel *cancel, rendezvous_done done, void *arg) {
  struct fetch *f = block_zalloc(sizeof *f);
  f->step = e;
  rendezvous_ref(&e->head);
  f->done = done;
  f->arg = arg;
  f->sink = sink;
  if (e->stats) {
    f->key = mem_strdup(key);
    f->started_wall = wall_nanos();
  }
  if (!cancellable_begin(&f->call, cancel, "the step that waited for this value has ended")) {
    struct tensor none = tensor_none();
    done(arg, status_mark_derived(STATUS(SHOAL_CANCELLED, "RecvAsync is cancelled.")), &none, false);
    fetch_free(f);
    return;
  }
  peer_fetch(peer, e->id, key, to, sink, fetch_done, f, &f->call.call);
  cancellable_begun(&f->call);
}

/* ---- who asks; call with the lock held ---- */

static struct value_asker **asker_at(struct steps *s, bool is_address, uint64_t number) {
  struct value_asker **at = &s->askers[hash_keyed_number(number) >> (64 - ASKER_BITS)];
  while (*at && ((*at)->number != number || (*at)->is_address != is_address)) at = &(*at)->next;
  return at;
}

static int64_t asked_by(struct steps *s, bool is_address, uint64_t number) {
  const struct value_asker *a = *asker_at(s, is_address, number);
  return a ? a->n : 0;
}

static void count_one_more(struct steps *s, bool is_address, uint64_t number) {
  struct value_asker **at = asker_at(s, is_address, number);
  if (!*at) {
    *at = block_zalloc(sizeof **at);
    (*at)->is_address = is_address;
    (*at)->number = number;
  }
  (*at)->n++;
}

static void count_one_less(struct steps *s, bool is_address, uint64_t number) {
  struct value_asker **at = asker_at(s, is_address, number), *a = *at;
  INVARIANT(9, a && a->n > 0);
  if (--a->n) return;
  *at = a->next;
  block_free(a);
}

/* Whoever has no address is of this process. */
static void count_strange(struct entry *e, struct rpc_origin from) {
  count_one_more(e->steps, false, from.connection);
  if (from.address) count_one_more(e->steps, true, from.address);
  e->is_strange = true;
  e->asker = from;
}

/* The step is run here, or goes: it is no longer of its asker's. */
static void count_known(struct entry *e) {
  if (!e->is_strange) return;
  e->is_strange = false;
  count_one_less(e->steps, false, e->asker.connection);
  if (e->asker.address) count_one_less(e->steps, true, e->asker.address);
}

/* NULL: it may ask for values of one more such step. */
static shoal_status greed(struct steps *s, struct rpc_origin from) {
  int64_t share = (int64_t)rpc_address_share((size_t)s->most);
  bool connection = asked_by(s, false, from.connection) >= s->most_of_one;
  if (!connection && (!from.address || asked_by(s, true, from.address) < share)) return NULL;
  return STATUS(SHOAL_RESOURCE_EXHAUSTED, "values of %" PRId64 " steps that do not run here are asked for over one %s",
                connection ? s->most_of_one : share,
                connection ? "connection, as many as --max_connection_steps allows"
                           : "address, three quarters of what --max_steps allows");
}

/* ---- the interface ---- */

static void step_send(struct rendezvous *r, const char *key, uint64_t hash, struct tensor *value, bool is_dead,
                      shoal_status *s) {
  *s = rendezvous_send(((struct entry *)r)->local, key, hash, value, is_dead);
}

/* "/job:a/replica:0/task:1/device:CPU:0;..." begins with the name of a task. */
static size_t task_length(const char *key) {
  static const char part[] = "/device:";
  const char *end = strchr(key, ';'), *last = end ? memrchr(key, '/', (size_t)(end - key)) : NULL;
  return last && !strncmp(last, part, sizeof part - 1) ? (size_t)(last - key) : 0;
}

static void receive(struct entry *e, const char *key, uint64_t hash, struct device *to, struct fast_sink *sink,
                    struct cancel *cancel, rendezvous_done done, void *arg) {
  const struct step_names *names = e->names;
  size_t n = task_length(key);
  if (!names || (n == strlen(names->task) && !memcmp(key, names->task, n))) {
    rendezvous_recv(e->local, key, hash, cancel, done, arg);
    return;
  }
  struct peer *peer = n ? names->find(names->arg, key, n) : NULL; /* the session's, which runs */
  if (peer) {
    fetch_start(e, peer, key, to, sink, cancel, done, arg);
    return;
  }
  struct tensor none = tensor_none();
  done(
      arg,
      INVALID(
          "%.*s, which should send %s, is not in the cluster that this task was started with: start all tasks with the "
          "same description of the cluster",
          (int)n, key, key),
      &none, false);
}

static void step_recv_into(struct rendezvous *r, const char *key, uint64_t hash, struct device *to,
                           struct cancel *cancel, rendezvous_done done, void *arg) {
  receive((struct entry *)r, key, hash, to, NULL, cancel, done, arg);
}

static void step_recv(struct rendezvous *r, const char *key, uint64_t hash, struct cancel *cancel, rendezvous_done done,
                      void *arg) {
  receive((struct entry *)r, key, hash, NULL, NULL, cancel, done, arg);
}

void step_rendezvous_recv_poured(struct rendezvous *r, const char *key, struct fast_sink *sink, struct cancel *cancel,
                                 rendezvous_done done, void *arg) {
  receive((struct entry *)r, key, rendezvous_hash(key), NULL, sink, cancel, done, arg);
}

static void step_abort(struct rendezvous *r, shoal_status why) {
  enum { LONGEST = 1000 };
  struct entry *e = (struct entry *)r;
  const char *text = shoal_status_message(why);
  char *none = NULL, *kept = mem_strndup(text, strnlen(text, LONGEST));
  if (!atomic_compare_exchange_strong(&e->why, &none, kept)) free(kept);
  rendezvous_abort(e->local, why);
}

static void step_free(struct rendezvous *r) {
  struct entry *e = (struct entry *)r;
  for (struct step_guest *g = e->guests, *next; g; g = next) {
    next = g->next;
    g->free(g);
  }
  rendezvous_unref(e->local);
  free(atomic_load(&e->why));
  block_free(e);
}

static const struct rendezvous_ops step_ops = {
    .send = step_send, .recv = step_recv, .recv_into = step_recv_into, .abort = step_abort, .free = step_free};

void step_rendezvous_recv_local(struct rendezvous *r, const char *key, struct cancel *cancel, rendezvous_done done,
                                void *arg) {
  struct entry *e = (struct entry *)r;
  rendezvous_recv(e->local, key, rendezvous_hash(key), cancel, done, arg);
  if (atomic_load(&e->finished) && rendezvous_local_is_empty(e->local)) steps_cleanup(e->steps, e->id);
}

struct step_guest *step_rendezvous_guest(struct rendezvous *r,
                                         bool (*is)(const struct step_guest *g, const void *sought),
                                         struct step_guest *(*make)(const void *sought), const void *sought) {
  struct entry *e = (struct entry *)r;
  pthread_mutex_lock(&e->steps->lock);
  struct step_guest *g = e->guests;
  while (g && !is(g, sought)) g = g->next;
  if (!g) {
    g = make(sought);
    g->next = e->guests;
    e->guests = g;
  }
  pthread_mutex_unlock(&e->steps->lock);
  return g;
}

shoal_status step_rendezvous_bind(struct rendezvous *r, const struct step_names *names, uint64_t connection,
                                  struct step_stats *stats) {
  struct entry *e = (struct entry *)r;
  pthread_mutex_lock(&e->steps->lock);
  bool taken = e->session && e->session != names->session;
  if (!taken) {
    e->bound++;
    e->session = names->session;
    e->connection = connection;
    count_known(e);
    e->stats = stats;
    e->names = names;
  }
  pthread_mutex_unlock(&e->steps->lock);
  return taken ? INVALID("step %" PRId64 " is another session's", e->id) : NULL;
}

void step_rendezvous_unbind(struct rendezvous *r) {
  struct entry *e = (struct entry *)r;
  pthread_mutex_lock(&e->steps->lock);
  INVARIANT(7, e->bound > 0 && e->names);
  if (--e->bound == 0) {
    e->names = NULL;
    e->stats = NULL;
  }
  e->touched = clock_ns();
  pthread_mutex_unlock(&e->steps->lock);
}

/* ---- the table ---- */

struct steps *steps_new(int64_t most, int64_t most_of_one) {
  struct steps *s = mem_zalloc(1, sizeof *s);
  s->most = most;
  s->most_of_one = most_of_one;
  pthread_mutex_init(&s->lock, NULL);
  return s;
}

static struct entry **bucket(struct steps *s, int64_t id) {
  return &s->buckets[hash_keyed_number((uint64_t)id) >> (64 - BUCKET_BITS)]; /* strangers choose them */
}

void steps_free(struct steps *s) {
  if (!s) return;
  for (int i = 0; i < BUCKETS; i++)
    for (struct entry *e = s->buckets[i], *next; e; e = next) {
      next = e->next;
      count_known(e);
      rendezvous_abort(e->local, STATUS(SHOAL_UNAVAILABLE, "the server is stopping"));
      rendezvous_unref(&e->head);
    }
  for (size_t i = 0; i < REMEMBERED; i++) free(s->gone[i].why);
  pthread_mutex_destroy(&s->lock);
  free(s);
}

static struct entry *find(struct steps *s, int64_t id) {
  struct entry *e = *bucket(s, id);
  while (e && e->id != id) e = e->next;
  return e;
}

static struct entry *find_or_make(struct steps *s, int64_t id) {
  struct entry *e = find(s, id);
  if (!e) {
    e = block_zalloc(sizeof *e);
    e->head.ops = &step_ops;
    ref_init(&e->head.refs, 1);
    e->id = id;
    e->steps = s;
    e->local = rendezvous_local_new();
    e->next = *bucket(s, id);
    *bucket(s, id) = e;
    s->n++;
  }
  rendezvous_ref(&e->head);
  return e;
}

struct rendezvous *steps_get(struct steps *s, int64_t id) {
  pthread_mutex_lock(&s->lock);
  struct entry *e = find_or_make(s, id);
  count_known(e);
  e->touched = clock_ns();
  pthread_mutex_unlock(&s->lock);
  return &e->head;
}

/* Takes steps out of the table that `over` says are; call with the lock held. They are the caller's to end. */
static struct entry *take_out(struct steps *s, bool (*over)(const struct entry *e, int64_t than), int64_t than) {
  struct entry *out = NULL;
  for (int i = 0; i < BUCKETS; i++)
    for (struct entry **at = &s->buckets[i]; *at;) {
      struct entry *e = *at;
      if (!over(e, than)) {
        at = &e->next;
        continue;
      }
      *at = e->next;
      count_known(e);
      e->next = out;
      out = e;
      s->n--;
    }
  return out;
}

static void end_all(struct entry *e, const char *why) {
  for (struct entry *next; e; e = next) {
    next = e->next;
    rendezvous_abort(e->local, status_mark_derived(STATUS(SHOAL_ABORTED, "Step %" PRId64 ": %s", e->id, why)));
    rendezvous_unref(&e->head);
  }
}

/* Step 0 has no end: it is that of all collectives without a step (collectives.h). */
static bool is_stale(const struct entry *e, int64_t than) {
  return e->id && !e->bound && !e->requests && e->touched < than;
}

static bool is_of_session(const struct entry *e, int64_t session) { return e->session == session && !e->bound; }

void steps_forget_session(struct steps *s, int64_t session) {
  pthread_mutex_lock(&s->lock);
  struct entry *gone = s->n ? take_out(s, is_of_session, session) : NULL;
  pthread_mutex_unlock(&s->lock);
  end_all(gone, "its session has been closed");
}

/* Looks through the whole table, so not for everyone who finds it full. Call with the lock held. */
static struct entry *take_stale(struct steps *s) {
  enum { BETWEEN_LOOKS_NS = 500000000 };
  int64_t now = clock_ns();
  if (s->looked && now - s->looked < BETWEEN_LOOKS_NS) return NULL;
  s->looked = now;
  return take_out(s, is_stale, now - STEP_STALE_MS * 1000000ll);
}

shoal_status steps_get_for_request(struct steps *s, int64_t id, struct rpc_origin from, struct rendezvous **out) {
  struct entry *stale = NULL;
  pthread_mutex_lock(&s->lock);
  bool gone = false, full = false;
  char *why = NULL; /* it failed, if it is gone */
  shoal_status greedy = NULL;
  struct entry *e = find(s, id);
  if (!e) {
    for (size_t i = 0; i < REMEMBERED && !gone; i++) {
      gone = id != 0 && s->gone[i].id == id;
      if (gone && s->gone[i].why) why = mem_strdup(s->gone[i].why);
    }
    if (!gone && s->n >= s->most) stale = take_stale(s);
    full = s->n >= s->most;
    if (!gone && !full) greedy = greed(s, from);
  }
  *out = NULL;
  if (!gone && !full && !greedy) {
    bool fresh = !e;
    e = find_or_make(s, id);
    if (fresh) count_strange(e, from);
    e->requests++;
    *out = &e->head;
  }
  pthread_mutex_unlock(&s->lock);
  end_all(stale, "nobody has been at work on it for a while, and the table of steps is full");
  if (gone) {
    shoal_status over =
        STATUS(SHOAL_ABORTED, "Cleanup %" PRId64 ": the step has ended%s%s", id, why ? ": " : "", why ? why : "");
    free(why);
    return status_mark_derived(over);
  }
  if (!full) return greedy;
  return STATUS(SHOAL_RESOURCE_EXHAUSTED, "values of %" PRId64 " steps are waited for, as many as --max_steps allows",
                s->most);
}

void steps_request_over(struct steps *s, struct rendezvous *r) {
  struct entry *e = (struct entry *)r;
  pthread_mutex_lock(&s->lock);
  INVARIANT(7, e->requests > 0);
  e->requests--;
  e->touched = clock_ns();
  bool over = e->is_strange && !e->requests && find(s, e->id) == e;
  if (over) {
    struct entry **at = bucket(s, e->id);
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    count_known(e);
    s->n--;
  }
  pthread_mutex_unlock(&s->lock);
  if (over) rendezvous_unref(r); /* the table's; the caller has another */
}

void steps_cleanup(struct steps *s, int64_t id) {
  char *forgotten = NULL;
  pthread_mutex_lock(&s->lock);
  struct entry **at = bucket(s, id);
  while (*at && (*at)->id != id) at = &(*at)->next;
  struct entry *e = *at;
  if (e) {
    *at = e->next;
    count_known(e);
    s->n--;
    struct gone_step *gone = &s->gone[s->next_gone++ % REMEMBERED];
    forgotten = gone->why;
    *gone = (struct gone_step){id, atomic_exchange(&e->why, NULL)};
  }
  pthread_mutex_unlock(&s->lock);
  if (!e) return;
  free(forgotten);
  rendezvous_local_end(e->local, id);
  rendezvous_unref(&e->head);
}

void steps_not_begun(struct steps *s, struct rendezvous *r) {
  struct entry *e = (struct entry *)r;
  pthread_mutex_lock(&s->lock);
  bool over = !e->session && !e->requests;
  pthread_mutex_unlock(&s->lock);
  if (over) steps_cleanup(s, e->id);
}

struct idle_step {
  int64_t id;
  uint64_t connection;
};

void steps_sweep(struct steps *s, int64_t idle_ms, bool (*connected)(void *arg, uint64_t connection), void *arg) {
  VEC(struct idle_step) idle = {0};
  int64_t before = clock_ns() - idle_ms * 1000000;
  pthread_mutex_lock(&s->lock);
  for (int i = 0; s->n && i < BUCKETS; i++)
    for (struct entry *e = s->buckets[i]; e; e = e->next)
      if (e->connection && is_stale(e, before)) vec_push(&idle, (struct idle_step){e->id, e->connection});
  pthread_mutex_unlock(&s->lock);
  for (size_t i = 0; i < idle.n; i++)
    if (!connected(arg, idle.at[i].connection)) steps_cleanup(s, idle.at[i].id);
  vec_release(&idle);
}

void steps_finished(struct steps *s, int64_t id) {
  pthread_mutex_lock(&s->lock);
  struct entry *e = find(s, id);
  if (e) atomic_store(&e->finished, true);
  bool over = e && rendezvous_local_is_empty(e->local);
  pthread_mutex_unlock(&s->lock);
  if (over) steps_cleanup(s, id);
}

struct description {
  struct listing *lines;
  int64_t id;
};

static bool describe_key(void *arg, const char *key) {
  struct description *d = arg;
  if (!listing_line(d->lines)) return false;
  text_addf(d->lines->out, "  step %" PRId64 ": waiting here for ", listing_step(d->id));
  text_add_shown(d->lines->out, key, strlen(key), false);
  text_addc(d->lines->out, '\n');
  return true;
}

void steps_describe(struct steps *s, struct text *out) {
  struct listing lines = {.out = out};
  int64_t seen = 0;
  pthread_mutex_lock(&s->lock);
  for (int i = 0; i < BUCKETS && !lines.full; i++)
    for (struct entry *e = s->buckets[i]; e && !lines.full; e = e->next, seen++)
      rendezvous_local_waiting(e->local, describe_key, &(struct description){&lines, e->id});
  int64_t left = s->n - seen;
  pthread_mutex_unlock(&s->lock);
  if (lines.full) text_addf(out, "  ... and of %" PRId64 " more steps\n", left + 1);
}
