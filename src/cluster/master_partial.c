/* Partial runs: a step whose feeds come, and whose fetches are asked for, in several calls. The step runs from the
 * set-up on; its feeds and fetches meet in the rendezvous. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cluster/master.h"

struct partial {
  atomic_int refs; /* the session's table's, the run's, and each call's */
  struct master_session *session;
  struct compiled *compiled;
  char *handle;
  struct step_run *run;
  bool *fed, *fetched; /* session->lock */
  pthread_mutex_t lock;
  bool ended;                   /* lock: all partitions have */
  shoal_status status;          /* lock: how */
  struct partial_call *waiting; /* lock: calls that wait for the end */
};

/* One RunStep of a partial run. */
struct partial_call {
  struct partial *partial;   /* a reference */
  struct partial_call *next; /* partial->lock */
  step_done done;
  void *arg;
  int n_fetches;
  struct tensor *values;
  bool is_last;
  atomic_int left; /* fetches, and the starter */
  pthread_mutex_t lock;
  shoal_status status; /* lock */
};

void partial_unref(struct partial *p) {
  if (atomic_fetch_sub(&p->refs, 1) != 1) return;
  account_give(p->session->account, LIMIT_PARTIAL_RUNS, 1);
  step_run_cleanup(p->run, p->session);
  compiled_unref(p->compiled);
  step_run_unref(p->run);
  shoal_status_free(p->status);
  pthread_mutex_destroy(&p->lock);
  free(p->fed);
  free(p->fetched);
  free(p->handle);
  free(p);
}

static void call_answer(struct partial_call *c) {
  struct text none = {0};
  partial_unref(c->partial); /* before the answer, which lets go of the session */
  c->done(c->arg, c->status, c->values, &none);
  for (int i = 0; i < c->n_fetches; i++) tensor_release(&c->values[i]);
  free(c->values);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

/* The step has ended, as err says: so has the call, and with it the partial run. */
static void last_call(struct partial_call *c, shoal_status err) {
  struct partial *p = c->partial;
  struct master_session *s = p->session;
  status_merge(&c->status, err);
  pthread_mutex_lock(&s->lock);
  bool listed = strmap_get(&s->partials, p->handle) == p;
  if (listed) strmap_remove(&s->partials, p->handle);
  pthread_mutex_unlock(&s->lock);
  if (listed) partial_unref(p);
  call_answer(c);
}

/* All partitions have ended. */
static void run_ended(void *arg, shoal_status err, const struct tensor *values, const struct text *metadata) {
  struct partial *p = arg;
  pthread_mutex_lock(&p->lock);
  p->ended = true;
  p->status = err;
  struct partial_call *c = p->waiting;
  p->waiting = NULL;
  pthread_mutex_unlock(&p->lock);
  for (struct partial_call *next; c; c = next) {
    next = c->next;
    last_call(c, err ? status_copy(err) : NULL);
  }
  partial_unref(p);
}

struct setup {
  struct master_session *session;
  const atomic_bool *gone;
  void (*done)(void *arg, shoal_status s, const char *handle);
  void *arg;
};

static void begin(void *arg, shoal_status err, struct compiled *c) {
  struct setup k = *(struct setup *)arg;
  struct master_session *s = k.session;
  free(arg);
  if (!err && atomic_load(k.gone)) { /* nobody would know its handle */
    compiled_unref(c);
    err = STATUS(SHOAL_CANCELLED, "the client has gone");
  }
  if (err) {
    account_give(s->account, LIMIT_PARTIAL_RUNS, 1);
    k.done(k.arg, err, NULL);
    return;
  }
  struct partial *p = mem_zalloc(1, sizeof *p);
  atomic_init(&p->refs, 3); /* the table's, the run's, and ours */
  p->session = s;
  p->compiled = c;
  p->fed = mem_zalloc(c->feeds.n, sizeof *p->fed);
  p->fetched = mem_zalloc(c->fetches.n, sizeof *p->fetched);
  pthread_mutex_init(&p->lock, NULL);
  p->run = step_run_new(s, c, &(struct run_options){0}, DEADLINE_NEVER, NULL, run_ended, p);
  pthread_mutex_lock(&s->lock);
  p->handle = mem_printf("%lld", (long long)s->next_partial++);
  strmap_put(&s->partials, p->handle, p);
  pthread_mutex_unlock(&s->lock);
  step_run_begin(p->run);
  char *handle = mem_strdup(p->handle);
  partial_unref(p); /* before the answer, which lets go of the session */
  k.done(k.arg, NULL, handle);
  free(handle);
}

void master_partial_setup(struct master_session *s, const struct step_signature *sig, const atomic_bool *gone,
                          void (*done)(void *arg, shoal_status s, const char *handle), void *arg) {
  shoal_status full = account_take(s->account, LIMIT_PARTIAL_RUNS, 1);
  if (full) {
    done(arg, full, NULL);
    return;
  }
  struct setup *k = mem_alloc(sizeof *k);
  *k = (struct setup){s, gone, done, arg};
  master_compile(s, sig, COMPILE_PARTIAL, gone, begin, k);
}

static int name_index(char *const *names, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(names[i], name)) return (int)i;
  return -1;
}

/* The tensor that a client's end of a transfer stands for; NULL for other nodes. */
static const char *client_tensor(const struct shoal_node *n, const char *op) {
  if (!n || !op_is(n->op, op)) return NULL;
  const struct attr *mine = node_attr(n, "client_terminated"), *name = node_attr(n, "tensor_name");
  return mine && mine->b && name && name->kind == ATTR_STRING ? name->s.data : NULL;
}

/* Does a fetch depend on a feed that has not come? */
static bool needs_more(const struct partial *p, const char *fetch) {
  const struct shoal_graph *g = p->compiled->pruned;
  bool *seen = mem_zalloc(g->nodes.n, sizeof *seen), missing = false;
  VEC(struct shoal_node *) todo = {0};
  for (size_t i = 0; i < g->nodes.n && !todo.n; i++) {
    const char *name = client_tensor(g->nodes.at[i], "_Send");
    if (name && !strcmp(name, fetch)) vec_push(&todo, g->nodes.at[i]);
  }
  while (todo.n && !missing) {
    struct shoal_node *n = vec_pop(&todo);
    if (seen[n->id]) continue;
    seen[n->id] = true;
    const char *name = client_tensor(n, "_Recv");
    int feed = name ? name_index(p->compiled->feeds.at, p->compiled->feeds.n, name) : -1;
    missing = feed >= 0 && !p->fed[feed];
    for (int i = 0; i < n->n_in; i++)
      if (n->in[i].node) vec_push(&todo, n->in[i].node);
    for (size_t i = 0; i < n->control.n; i++) vec_push(&todo, n->control.at[i]);
  }
  vec_release(&todo);
  free(seen);
  return missing;
}

/* Marks the feeds and fetches of one call; call with the session's lock held. */
static shoal_status mark(struct partial *p, const struct step_signature *sig, bool *all) {
  for (int i = 0; i < sig->n_feeds; i++) {
    int k = name_index(p->compiled->feeds.at, p->compiled->feeds.n, sig->feeds[i]);
    if (k < 0) return INVALID("The feed %s was not specified in partial_run_setup.", sig->feeds[i]);
    if (p->fed[k]) return INVALID("The feed %s has already been fed.", sig->feeds[i]);
    p->fed[k] = true;
  }
  for (int i = 0; i < sig->n_fetches; i++) {
    int k = name_index(p->compiled->fetches.at, p->compiled->fetches.n, sig->fetches[i]);
    if (k < 0) return INVALID("The fetch %s was not specified in partial_run_setup.", sig->fetches[i]);
    if (p->fetched[k]) return INVALID("The fetch %s has already been fetched.", sig->fetches[i]);
    if (needs_more(p, sig->fetches[i]))
      return INVALID("Fetch %s can't be computed from the feeds that have been fed so far.", sig->fetches[i]);
    p->fetched[k] = true;
  }
  *all = true;
  for (size_t i = 0; i < p->compiled->feeds.n; i++) *all = *all && p->fed[i];
  for (size_t i = 0; i < p->compiled->fetches.n; i++) *all = *all && p->fetched[i];
  return NULL;
}

static void call_end(struct partial_call *c) {
  if (atomic_fetch_sub(&c->left, 1) != 1) return;
  struct partial *p = c->partial;
  if (!c->is_last && !c->status) {
    call_answer(c);
    return;
  }
  /* Everything was asked for, or something failed: the step ends here. */
  if (c->status) step_run_cancel(p->run, status_copy(c->status));
  pthread_mutex_lock(&p->lock);
  bool ended = p->ended;
  shoal_status err = ended && p->status ? status_copy(p->status) : NULL;
  if (!ended) {
    c->next = p->waiting;
    p->waiting = c;
  }
  pthread_mutex_unlock(&p->lock);
  if (ended) last_call(c, err);
}

struct value_wait {
  struct partial_call *call;
  int index;
};

static void got_value(void *arg, shoal_status err, struct tensor *value, bool is_dead) {
  struct value_wait *w = arg;
  struct partial_call *c = w->call;
  if (!err && is_dead) err = INVALID("The tensor returned was not valid.");
  if (err) {
    tensor_release(value);
    pthread_mutex_lock(&c->lock);
    status_merge(&c->status, err);
    pthread_mutex_unlock(&c->lock);
  } else {
    tensor_move(&c->values[w->index], value);
  }
  free(w);
  call_end(c);
}

static char *client_key(const struct master_session *s, const char *tensor) {
  const struct master_device *d = &s->devices.at[0];
  return rendezvous_key_make(d->name, d->incarnation, d->name, tensor, 0, 0);
}

void master_partial_run(struct master_session *s, const char *handle, const struct step_signature *sig,
                        struct tensor *feeds, step_done done, void *arg) {
  bool all = false;
  pthread_mutex_lock(&s->lock);
  struct partial *p = strmap_get(&s->partials, handle);
  shoal_status err = p ? mark(p, sig, &all) : INVALID("Must run PartialRunSetup before performing partial runs");
  if (!err) atomic_fetch_add(&p->refs, 1);
  pthread_mutex_unlock(&s->lock);
  if (err) {
    for (int i = 0; i < sig->n_feeds; i++) tensor_release(&feeds[i]);
    struct text none = {0};
    done(arg, err, NULL, &none);
    return;
  }
  struct partial_call *c = mem_zalloc(1, sizeof *c);
  c->partial = p;
  c->done = done;
  c->arg = arg;
  c->is_last = all;
  c->n_fetches = sig->n_fetches;
  c->values = mem_zalloc((size_t)sig->n_fetches, sizeof *c->values);
  atomic_init(&c->left, sig->n_fetches + 1);
  pthread_mutex_init(&c->lock, NULL);
  struct rendezvous *r = step_run_rendezvous(p->run);
  for (int i = 0; i < sig->n_feeds; i++) {
    char *key = client_key(s, sig->feeds[i]);
    err = rendezvous_send(r, key, hash_bytes(key, strlen(key), 0), &feeds[i], false);
    free(key);
    if (err) {
      pthread_mutex_lock(&c->lock);
      status_merge(&c->status, err);
      pthread_mutex_unlock(&c->lock);
    }
  }
  for (int i = 0; i < sig->n_fetches; i++) {
    struct value_wait *w = mem_zalloc(1, sizeof *w);
    *w = (struct value_wait){c, i};
    char *key = client_key(s, sig->fetches[i]);
    step_rendezvous_recv_local(r, key, step_run_cancellation(p->run), got_value, w);
    free(key);
  }
  call_end(c);
}
