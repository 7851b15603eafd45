/* The fast path's answering side: connections, requests, cancelling; see fast.h for what travels, fast_wire.h for how,
 * limits.h for how much of it. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/block.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/vec.h"
#include "rpc/door.h"
#include "rpc/fast/fast_sender.h"
#include "rpc/limits.h"

static const int64_t STOP_NS = 5000000000;

void fast_server_unref(struct fast_server *s) {
  if (!s || !ref_drop(&s->refs)) return;
  pthread_mutex_destroy(&s->lock);
  free(s);
}

void request_unref(struct fast_request *r) {
  if (!ref_drop(&r->refs)) return;
  budget_give(&r->conn->conn.held, r->held);
  fast_conn_unref(&r->conn->conn);
  block_free(r);
}

void request_begin_answer(struct fast_request *r) {
  struct sender *c = r->conn;
  pthread_mutex_lock(&c->lock);
  unwanted_answer(&r->unwanted, &c->lock, &c->idle);
  for (struct fast_request **at = &c->requests[fast_bucket(r->id)]; *at; at = &(*at)->next)
    if (*at == r) {
      *at = r->next;
      c->n_requests--;
      break;
    }
  pthread_mutex_unlock(&c->lock);
}

struct rpc_origin fast_origin(const struct fast_request *r) {
  return (struct rpc_origin){(uint64_t)(uintptr_t)r->conn, r->conn->conn.from->number};
}

/* ---- cancelling ---- */

void fast_on_cancel(struct fast_request *r, void (*fn)(void *arg), void *arg) {
  pthread_mutex_lock(&r->conn->lock);
  r->unwanted.fn = fn;
  r->unwanted.arg = arg;
  bool already = r->cancelled;
  pthread_mutex_unlock(&r->conn->lock);
  if (already) fn(arg);
}

/* Calls the request's cancel function, unless it has been answered. */
static void cancel_request(struct sender *c, struct fast_request *r) {
  pthread_mutex_lock(&c->lock);
  bool already = r->cancelled;
  r->cancelled = true;
  if (!already) unwanted_tell(&r->unwanted, &c->lock, &c->idle);
  pthread_mutex_unlock(&c->lock);
}

static void on_unwanted(struct rpc_event *e) {
  struct fast_request *r = (struct fast_request *)((char *)e - offsetof(struct fast_request, cancel));
  cancel_request(r->conn, r);
  request_unref(r);
}

/* ---- frames ---- */

/* Call with the lock held. */
static struct fast_request *find_request(struct sender *c, uint64_t id) {
  struct fast_request *r = c->requests[fast_bucket(id)];
  while (r && r->id != id) r = r->next;
  return r;
}

/* The peer wants it no more. Cancelling must not wait for what it cancels: it is news, and waits in no line. */
static void give_up(struct sender *c, uint64_t id) {
  pthread_mutex_lock(&c->lock);
  struct fast_request *r = find_request(c, id);
  if (r && r->posted) r = NULL;
  if (r) {
    r->posted = true;
    ref_take(&r->refs);
  }
  pthread_mutex_unlock(&c->lock);
  if (r) rpc_loop_post(&r->cancel);
}

static void refuse_request(struct sender *c, uint64_t id, const char *why) {
  sender_error(c, id, STATUS(SHOAL_RESOURCE_EXHAUSTED, "OOM: %s on a connection of the fast path", why));
}

/* Notes a request, or answers it with an error and returns NULL. */
static struct fast_request *begin_request(struct sender *c, const struct fast_frame *f, const uint8_t *head) {
  size_t bytes = sizeof(struct fast_request) + f->head + 1;
  bool room = budget_take(&c->conn.held, bytes);
  struct fast_request *r = room ? block_try_zalloc(bytes) : NULL;
  if (!r) {
    if (room) budget_give(&c->conn.held, bytes);
    refuse_request(c, f->id, "no room for a request");
    return NULL;
  }
  r->conn = c;
  r->cancel = (struct rpc_event){.fn = on_unwanted, .kind = RPC_EVENT_NEWS};
  r->held = bytes;
  fast_conn_ref(&c->conn);
  ref_init(&r->refs, 2);
  r->id = f->id;
  r->is_call = f->kind == FAST_CALL;
  r->by_window = f->flags & FAST_BY_WINDOW;
  r->step = (int64_t)f->size;
  if (r->is_call) r->deadline = f->size > INT64_MAX / 2 ? DEADLINE_NEVER : clock_ns() + (int64_t)f->size;
  r->n = f->head;
  memcpy(r->data, head, f->head);
  struct fast_request **first = &c->requests[fast_bucket(r->id)];
  pthread_mutex_lock(&c->lock);
  bool again = find_request(c, r->id), many = c->n_requests >= rpc_limit(RPC_MAX_FAST_REQUESTS);
  if (!again && !many) {
    r->next = *first;
    *first = r;
    c->n_requests++;
  }
  pthread_mutex_unlock(&c->lock);
  if (!again && !many) return r;
  ref_drop(&r->refs); /* the table has none */
  request_unref(r);
  if (again) fast_conn_shut(&c->conn); /* which of the two would an answer be for? */
  else refuse_request(c, f->id, "too many requests");
  return NULL;
}

static struct fast_work *sender_frame(struct fast_conn *base, const struct fast_frame *f, const uint8_t *head,
                                      struct buffer *body) {
  struct sender *c = (struct sender *)base;
  buffer_unref(body);
  struct fast_request *r;
  switch (f->kind) {
    case FAST_ASK:
    case FAST_CALL: r = begin_request(c, f, head); return r ? &r->work : NULL;
    case FAST_CANCEL: give_up(c, f->id); return NULL;
    case FAST_DONE:
    case FAST_RESEND: sender_let_go(c, f->id, f->kind == FAST_RESEND); return NULL;
    default: return NULL;
  }
}

static void sender_run(struct fast_conn *base, struct fast_work *work) {
  struct fast_request *r = (struct fast_request *)work;
  struct fast_server *s = ((struct sender *)base)->server;
  if (r->is_call) s->handlers.call(s->arg, r, r->data, r->n, r->deadline);
  else s->handlers.recv(s->arg, r, r->step, r->data);
  request_unref(r);
}

static void sender_closed(struct fast_conn *base) {
  struct sender *c = (struct sender *)base;
  for (int b = 0; b < FAST_BUCKETS; b++) {
    VEC(struct fast_request *) open = {0};
    pthread_mutex_lock(&c->lock);
    for (struct fast_request *r = c->requests[b]; r; r = r->next) {
      ref_take(&r->refs);
      vec_push(&open, r);
    }
    pthread_mutex_unlock(&c->lock);
    for (size_t i = 0; i < open.n; i++) {
      cancel_request(c, open.at[i]);
      request_unref(open.at[i]);
    }
    vec_release(&open);
  }
  sender_drop_held(c);
  struct fast_server *s = c->server;
  pthread_mutex_lock(&s->lock);
  LIST_REMOVE(s->conns, c);
  pthread_mutex_unlock(&s->lock);
  budget_give(rpc_budget(RPC_MAX_FAST_CONNECTIONS), 1);
}

static void sender_free(struct fast_conn *base) {
  struct sender *c = (struct sender *)base;
  struct fast_server *s = c->server;
  fast_arena_free(c->arena);
  fast_windows_release(&c->windows);
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->idle);
  free(c);
  fast_server_unref(s); /* last: who waits for that lets the devices go next */
}

static const struct fast_conn_ops sender_ops = {
    .kinds = 1 << FAST_ASK | 1 << FAST_CALL | 1 << FAST_CANCEL | 1 << FAST_DONE | 1 << FAST_RESEND,
    .work = RPC_EVENT_REQUEST,
    .frame = sender_frame,
    .run = sender_run,
    .closed = sender_closed,
    .free = sender_free};

/* ---- connections ---- */

/* Strangers do not come in any number: the oldest go first. Call with the lock held. */
static void turn_out_strangers(struct fast_server *s) {
  int strangers = 0;
  for (struct sender *c = s->conns; c; c = c->next)
    if (atomic_load(&c->conn.needs_secret) && ++strangers > rpc_limit(RPC_MAX_FAST_STRANGERS)) fast_conn_shut(&c->conn);
}

static void accept_conn(struct fast_server *s, int fd, bool is_local) {
  if (!rpc_limit_take(RPC_MAX_FAST_CONNECTIONS)) {
    LOGW("the fast path has %lld connections: no more are taken (--max_fast_connections)",
         (long long)rpc_limit(RPC_MAX_FAST_CONNECTIONS));
    close(fd);
    return;
  }
  struct sockaddr_storage peer = {0};
  getpeername(fd, (struct sockaddr *)&peer, &(socklen_t){sizeof peer});
  struct rpc_address *from = rpc_address_get(rpc_address_number(&peer), rpc_budget(RPC_MAX_HELD_BYTES));
  struct sender *c = mem_zalloc(1, sizeof *c);
  c->server = s;
  c->no_remote = c->no_shared = c->no_windows = !is_local;
  ref_take(&s->refs);
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->idle, NULL);
  pthread_mutex_lock(&s->lock);
  bool stopped = s->stopped;
  turn_out_strangers(s);
  LIST_ADD(s->conns, c);
  fast_conn_start(&c->conn, &sender_ops, fd, s->secret, from);
  pthread_mutex_unlock(&s->lock);
  if (stopped) fast_conn_shut(&c->conn);
  fast_conn_unref(&c->conn);
}

static void accepted_local(void *arg, int fd) {
  if (fd < 0) door_free_descriptors();
  if (fd < 0) return;
  if (!fast_same_user(fd)) close(fd);
  else accept_conn(arg, fd, true);
}

static void accepted_tcp(void *arg, int fd) {
  if (fd < 0) door_free_descriptors();
  if (fd < 0) return;
  fast_tune_tcp(fd);
  accept_conn(arg, fd, false);
}

static void on_stopping(struct rpc_event *e) {
  struct fast_server *s = (struct fast_server *)((char *)e - offsetof(struct fast_server, stopping));
  listener_close(s->local);
  listener_close(s->tcp);
  fast_server_unref(s);
  rpc_loop_release();
}

struct fast_server *fast_server_new(const struct fast_handlers *handlers, void *arg, const char *host) {
  struct fast_server *s = mem_zalloc(1, sizeof *s);
  int local = fast_bind_local(s->name), tcp = host ? fast_bind_tcp(host, &s->port) : -1;
  if ((local < 0 && tcp < 0) || getrandom(s->secret, FAST_SECRET, 0) != FAST_SECRET) {
    if (local >= 0) close(local);
    if (tcp >= 0) close(tcp);
    free(s);
    return NULL;
  }
  if (local < 0) s->name[0] = 0;
  if (tcp < 0) s->port = 0;
  ref_init(&s->refs, 2);
  s->stopping = (struct rpc_event){.fn = on_stopping, .kind = RPC_EVENT_QUICK};
  s->handlers = *handlers;
  s->arg = arg;
  pthread_mutex_init(&s->lock, NULL);
  rpc_loop_hold();
  s->local = local >= 0 ? listener_of(local, accepted_local, s) : NULL;
  s->tcp = tcp >= 0 ? listener_of(tcp, accepted_tcp, s) : NULL;
  if (s->local) listener_begin(s->local);
  if (s->tcp) listener_begin(s->tcp);
  return s;
}

bool fast_server_stop(struct fast_server *s) {
  if (!s) return true;
  pthread_mutex_lock(&s->lock);
  if (!s->stopped) rpc_loop_post(&s->stopping);
  s->stopped = true;
  for (struct sender *c = s->conns; c; c = c->next) fast_conn_shut(&c->conn);
  pthread_mutex_unlock(&s->lock);
  /* Until every connection has cancelled what it had, and all of it has been answered: the handlers' owner goes next.
   */
  rpc_loop_hand_over();
  for (int64_t late = clock_ns() + STOP_NS; ref_count(&s->refs) > 1; usleep(1000))
    if (clock_ns() > late) {
      LOGW("%d connections of the fast path have not ended", ref_count(&s->refs) - 1);
      return false;
    }
  return true;
}

void fast_server_ticket(const struct fast_server *s, struct text *out) {
  text_add(out, (const char *)s->secret, FAST_SECRET);
  text_add(out, (const char[]){(char)s->port, (char)(s->port >> 8)}, 2);
  text_adds(out, s->name);
}
