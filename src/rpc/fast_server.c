/* The fast path's answering side; see fast.h for what travels, fast_wire.h for how.
 *
 * Large tensors are read by the receiver out of the sender's memory (process_vm_readv), those of middling size are put
 * into memory that both share, where the receiver uses them: one copy either way. Where the system forbids it the
 * receiver says RESEND once, and all goes through the socket from then on. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/vec.h"
#include "rpc/fast.h"
#include "rpc/fast_address.h"
#include "rpc/fast_shared.h"
#include "rpc/fast_wire.h"
#include "tensor/tensor_proto.h"

/* Connections that have not shown the secret: at most STRANGERS, none for longer than STRANGER_NS once others come. */
enum { REMOTE_FROM = 64 << 10, BUCKETS = 256, STRANGERS = 64 };
static const int64_t STRANGER_NS = 5000000000, STOP_NS = 5000000000;

struct fast_server {
  atomic_int refs;      /* the owner's, each listener's, each connection's */
  int local_fd, tcp_fd; /* -1: none */
  int port;
  char name[FAST_NAME];
  uint8_t secret[FAST_SECRET];
  struct fast_handlers handlers;
  void *arg;
  pthread_mutex_t lock;
  struct sender *conns; /* lock: the newest first */
  bool stopped;         /* lock */
};

struct fast_request {
  struct fast_request *next; /* conn's lock */
  struct sender *conn;       /* a reference */
  atomic_int refs;           /* the answer's, the handler's, a canceller's */
  uint64_t id;
  bool is_call;
  int64_t step;             /* ASK */
  int64_t deadline;         /* CALL */
  bool answered, cancelled; /* conn's lock */
  bool cancelling;          /* conn's lock: the cancel function runs, on canceller */
  pthread_t canceller;
  void (*cancel_fn)(void *); /* conn's lock */
  void *cancel_arg;
  size_t n;
  char data[]; /* the key, or the request; NUL after it */
};

/* A tensor that the receiver copies, or a block that it uses, until it says DONE. */
struct held {
  struct held *next;
  uint64_t id;
  uint8_t flags;
  struct tensor value; /* of a block: only until the first DONE, should the receiver not find the memory */
  bool shared;
  uint64_t offset; /* of the block */
  size_t bytes;
};

struct sender {
  struct fast_conn conn;
  struct fast_server *server;
  int64_t accepted;
  struct sender *prev, *next; /* server's lock */
  pthread_mutex_t lock;
  pthread_cond_t idle;
  struct fast_request *requests[BUCKETS]; /* lock */
  struct held *held;                      /* lock */
  bool no_remote;                         /* lock */
  bool no_shared, proven;                 /* lock: the receiver cannot map the arena; it has done so */
  struct fast_arena *arena;               /* lock */
};

void fast_server_unref(struct fast_server *s) {
  if (!s || atomic_fetch_sub(&s->refs, 1) != 1) return;
  pthread_mutex_destroy(&s->lock);
  free(s);
}

static void request_unref(struct fast_request *r) {
  if (atomic_fetch_sub(&r->refs, 1) != 1) return;
  fast_conn_unref(&r->conn->conn);
  free(r);
}

/* ---- answers ---- */

/* By shared memory; false when that cannot be. head has t's dimensions, and room. */
static bool send_shared(struct sender *c, struct fast_frame f, uint64_t *head, struct tensor *t) {
  uint64_t offset = 0;
  pthread_mutex_lock(&c->lock);
  if (!c->arena && !c->no_shared) {
    c->arena = fast_arena_new();
    c->no_shared = !c->arena;
  }
  void *to = !c->no_shared && atomic_load(&c->conn.is_open) ? fast_arena_take(c->arena, f.size, &offset) : NULL;
  bool proven = c->proven;
  pthread_mutex_unlock(&c->lock);
  if (!to) return false;
  memcpy(to, t->data, f.size);
  struct held *h = mem_zalloc(1, sizeof *h);
  *h = (struct held){.id = f.id, .flags = f.flags, .shared = true, .offset = offset, .bytes = f.size};
  if (!proven) tensor_ref(&h->value, t);
  pthread_mutex_lock(&c->lock);
  h->next = c->held;
  c->held = h;
  pthread_mutex_unlock(&c->lock);
  struct fast_place place = fast_arena_place(c->arena);
  memcpy(head + t->rank, &place, sizeof place);
  head[t->rank + 4] = offset;
  f.kind = FAST_SHARED;
  f.head += 40;
  fast_conn_send(&c->conn, &f, head, NULL, NULL);
  return true;
}

static void send_value(struct sender *c, uint64_t id, uint8_t flags, struct tensor *t, bool may_remote) {
  struct fast_frame f = {.flags = flags, .id = id, .dtype = t->dtype, .rank = t->rank};
  uint64_t head[SHOAL_MAX_RANK + 5];
  for (int i = 0; i < t->rank; i++) head[i] = (uint64_t)t->dims[i];
  f.size = tensor_bytes(t);
  f.head = (uint32_t)t->rank * 8;
  if (may_remote && f.size >= SHARED_FROM && f.size <= SHARED_TO && send_shared(c, f, head, t)) return;
  if (may_remote && f.size >= REMOTE_FROM) {
    struct held *h = mem_zalloc(1, sizeof *h);
    *h = (struct held){.id = id, .flags = flags};
    tensor_ref(&h->value, t);
    pthread_mutex_lock(&c->lock);
    bool allowed = !c->no_remote && atomic_load(&c->conn.is_open);
    if (allowed) {
      h->next = c->held;
      c->held = h;
    }
    pthread_mutex_unlock(&c->lock);
    if (allowed) {
      f.kind = FAST_REMOTE;
      head[t->rank] = (uint64_t)getpid();
      head[t->rank + 1] = (uint64_t)(uintptr_t)t->data;
      f.head += 16;
      fast_conn_send(&c->conn, &f, head, NULL, NULL);
      return;
    }
    tensor_release(&h->value);
    free(h);
  }
  f.kind = FAST_VALUE;
  fast_conn_send(&c->conn, &f, head, f.size ? t->buffer : NULL, t->data);
}

/* Bytes in a tensor, as bodies are sent. */
static shoal_status bytes_tensor(struct text *bytes, struct tensor *out) {
  shoal_status s = tensor_new_dims(out, SHOAL_UINT8, 1, (const int64_t[]){(int64_t)bytes->n});
  if (!s && bytes->n) memcpy(out->data, bytes->at, bytes->n);
  return s;
}

/* Strings, resources and variants, as a TensorProto in a buffer of bytes. */
static shoal_status encode(const struct tensor *t, struct tensor *out) {
  struct text bytes = {0};
  TRY(tensor_proto_encode(t, &bytes));
  shoal_status s = bytes_tensor(&bytes, out);
  text_release(&bytes);
  return s;
}

static void send_error(struct sender *c, uint64_t id, shoal_status s) {
  const char *text = shoal_status_message(s);
  struct fast_frame f = {.kind = FAST_ERROR, .id = id, .dtype = (uint8_t)shoal_status_code(s)};
  f.flags = (uint8_t)((status_is_derived(s) ? FAST_DERIVED : 0) | (status_is_restarted(s) ? FAST_RESTARTED : 0));
  f.head = (uint32_t)MIN(strlen(text), 65536);
  fast_conn_send(&c->conn, &f, text, NULL, NULL);
  shoal_status_free(s);
}

/* The request is in nobody's table any more, and its cancel function will not be called. */
static void begin_answer(struct fast_request *r) {
  struct sender *c = r->conn;
  pthread_mutex_lock(&c->lock);
  r->answered = true;
  while (r->cancelling && !pthread_equal(r->canceller, pthread_self())) pthread_cond_wait(&c->idle, &c->lock);
  for (struct fast_request **at = &c->requests[r->id % BUCKETS]; *at; at = &(*at)->next)
    if (*at == r) {
      *at = r->next;
      break;
    }
  pthread_mutex_unlock(&c->lock);
}

void fast_answer(struct fast_request *r, shoal_status s, struct tensor *value, bool is_dead) {
  struct sender *c = r->conn;
  begin_answer(r);
  if (!s && !is_dead && !dtype_plain((shoal_dtype)value->dtype)) {
    struct tensor bytes;
    s = encode(value, &bytes);
    if (!s) {
      send_value(c, r->id, FAST_ENCODED, &bytes, false);
      tensor_release(&bytes);
    }
  } else if (!s && is_dead) {
    fast_conn_send(&c->conn, &(struct fast_frame){.kind = FAST_VALUE, .flags = FAST_DEAD, .id = r->id}, NULL, NULL,
                   NULL);
  } else if (!s) {
    send_value(c, r->id, 0, value, true);
  }
  if (s) send_error(c, r->id, s);
  if (value) tensor_release(value);
  request_unref(r);
}

void fast_reply(struct fast_request *r, shoal_status s, struct text *bytes) {
  struct tensor t = tensor_none();
  begin_answer(r);
  if (!s) s = bytes_tensor(bytes, &t);
  struct fast_frame f = {.kind = FAST_RESULT, .id = r->id, .size = bytes->n};
  if (s) send_error(r->conn, r->id, s);
  else fast_conn_send(&r->conn->conn, &f, NULL, bytes->n ? t.buffer : NULL, t.data);
  tensor_release(&t);
  text_release(bytes);
  request_unref(r);
}

/* ---- cancelling ---- */

void fast_on_cancel(struct fast_request *r, void (*fn)(void *arg), void *arg) {
  pthread_mutex_lock(&r->conn->lock);
  r->cancel_fn = fn;
  r->cancel_arg = arg;
  bool already = r->cancelled;
  pthread_mutex_unlock(&r->conn->lock);
  if (already) fn(arg);
}

/* Calls the request's cancel function, unless it has been answered. */
static void cancel_request(struct sender *c, struct fast_request *r) {
  pthread_mutex_lock(&c->lock);
  void (*fn)(void *) = r->answered || r->cancelled ? NULL : r->cancel_fn;
  r->cancelled = true;
  if (fn) {
    r->cancelling = true;
    r->canceller = pthread_self();
    pthread_mutex_unlock(&c->lock);
    fn(r->cancel_arg);
    pthread_mutex_lock(&c->lock);
    r->cancelling = false;
    pthread_cond_broadcast(&c->idle);
  }
  pthread_mutex_unlock(&c->lock);
}

/* ---- frames ---- */

static struct held *take_held(struct sender *c, uint64_t id) {
  pthread_mutex_lock(&c->lock);
  struct held **at = &c->held;
  while (*at && (*at)->id != id) at = &(*at)->next;
  struct held *h = *at;
  if (h) *at = h->next;
  pthread_mutex_unlock(&c->lock);
  return h;
}

/* The receiver needs it no more, or cannot get at it and asks for it again. */
static void let_go(struct sender *c, struct held *h, bool again) {
  pthread_mutex_lock(&c->lock);
  if (h->shared) fast_arena_give(c->arena, h->bytes, h->offset);
  if (h->shared && again) c->no_shared = true;
  if (h->shared && !again) c->proven = true;
  if (!h->shared && again) c->no_remote = true;
  pthread_mutex_unlock(&c->lock);
  if (again && tensor_valid(&h->value)) send_value(c, h->id, h->flags, &h->value, h->shared);
  else if (again) send_error(c, h->id, INTERNAL("a receiver has lost the shared memory of its connection"));
  tensor_release(&h->value);
  free(h);
}

/* Work for later is a request; its lowest bit says that it is to be cancelled. */
static void *work_of(struct fast_request *r, bool cancel) { return (char *)r + cancel; }

static void *sender_frame(struct fast_conn *base, const struct fast_frame *f, const uint8_t *head,
                          struct buffer *body) {
  struct sender *c = (struct sender *)base;
  buffer_unref(body);
  struct fast_request *r;
  switch (f->kind) {
    case FAST_ASK:
    case FAST_CALL:
      r = mem_zalloc(1, sizeof *r + f->head + 1);
      r->conn = c;
      fast_conn_ref(base);
      atomic_init(&r->refs, 2);
      r->id = f->id;
      r->is_call = f->kind == FAST_CALL;
      r->step = (int64_t)f->size;
      r->deadline = f->size > INT64_MAX / 2 ? DEADLINE_NEVER : clock_ns() + (int64_t)f->size;
      r->n = f->head;
      memcpy(r->data, head, f->head);
      pthread_mutex_lock(&c->lock);
      r->next = c->requests[r->id % BUCKETS];
      c->requests[r->id % BUCKETS] = r;
      pthread_mutex_unlock(&c->lock);
      return work_of(r, false);
    case FAST_CANCEL:
      pthread_mutex_lock(&c->lock);
      r = c->requests[f->id % BUCKETS];
      while (r && r->id != f->id) r = r->next;
      if (r) atomic_fetch_add(&r->refs, 1);
      pthread_mutex_unlock(&c->lock);
      return r ? work_of(r, true) : NULL;
    case FAST_DONE:
    case FAST_RESEND: {
      struct held *h = take_held(c, f->id);
      if (h) let_go(c, h, f->kind == FAST_RESEND);
      return NULL;
    }
    default: return NULL;
  }
}

static void sender_run(struct fast_conn *base, void *work) {
  struct sender *c = (struct sender *)base;
  bool cancel = (uintptr_t)work & 1;
  struct fast_request *r = (struct fast_request *)((char *)work - cancel);
  struct fast_server *s = c->server;
  if (cancel) cancel_request(c, r);
  else if (r->is_call) s->handlers.call(s->arg, r, r->data, r->n, r->deadline);
  else s->handlers.recv(s->arg, r, r->step, r->data);
  request_unref(r);
}

static void sender_closed(struct fast_conn *base) {
  struct sender *c = (struct sender *)base;
  for (int b = 0; b < BUCKETS; b++) {
    VEC(struct fast_request *) open = {0};
    pthread_mutex_lock(&c->lock);
    for (struct fast_request *r = c->requests[b]; r; r = r->next) {
      atomic_fetch_add(&r->refs, 1);
      vec_push(&open, r);
    }
    pthread_mutex_unlock(&c->lock);
    for (size_t i = 0; i < open.n; i++) {
      cancel_request(c, open.at[i]);
      request_unref(open.at[i]);
    }
    vec_release(&open);
  }
  pthread_mutex_lock(&c->lock);
  struct held *held = c->held;
  c->held = NULL;
  pthread_mutex_unlock(&c->lock);
  for (struct held *next; held; held = next) {
    next = held->next;
    tensor_release(&held->value);
    free(held);
  }
  struct fast_server *s = c->server;
  pthread_mutex_lock(&s->lock);
  if (c->prev) c->prev->next = c->next;
  else if (s->conns == c) s->conns = c->next;
  if (c->next) c->next->prev = c->prev;
  c->prev = c->next = NULL;
  pthread_mutex_unlock(&s->lock);
}

static void sender_free(struct fast_conn *base) {
  struct sender *c = (struct sender *)base;
  fast_server_unref(c->server);
  fast_arena_free(c->arena);
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->idle);
  free(c);
}

static const struct fast_conn_ops sender_ops = {sender_frame, sender_run, sender_closed, sender_free};

/* ---- connections ---- */

/* Who has not shown the secret yet does not stay for ever, nor come in any number. Call with the lock held. */
static void turn_out_strangers(struct fast_server *s) {
  int strangers = 0;
  int64_t now = clock_ns();
  for (struct sender *c = s->conns; c; c = c->next)
    if (atomic_load(&c->conn.needs_secret) && (++strangers > STRANGERS || now - c->accepted > STRANGER_NS))
      fast_conn_shut(&c->conn);
}

static void accept_conn(struct fast_server *s, int fd, bool is_local) {
  struct sender *c = mem_zalloc(1, sizeof *c);
  c->server = s;
  c->accepted = clock_ns();
  c->no_remote = c->no_shared = !is_local;
  atomic_fetch_add(&s->refs, 1);
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->idle, NULL);
  pthread_mutex_lock(&s->lock);
  bool stopped = s->stopped;
  turn_out_strangers(s);
  c->next = s->conns;
  if (c->next) c->next->prev = c;
  s->conns = c;
  fast_conn_start(&c->conn, &sender_ops, fd, s->secret, true);
  pthread_mutex_unlock(&s->lock);
  if (stopped) fast_conn_shut(&c->conn);
  fast_conn_unref(&c->conn);
}

static void accepted_local(void *arg, int fd) {
  if (fd < 0) fast_server_unref(arg);
  else if (!fast_same_user(fd)) close(fd);
  else accept_conn(arg, fd, true);
}

static void accepted_tcp(void *arg, int fd) {
  if (fd < 0) {
    fast_server_unref(arg);
    return;
  }
  fast_tune_tcp(fd);
  accept_conn(arg, fd, false);
}

struct fast_server *fast_server_new(const struct fast_handlers *handlers, void *arg, const char *host) {
  struct fast_server *s = mem_zalloc(1, sizeof *s);
  s->local_fd = fast_bind_local(s->name);
  s->tcp_fd = host ? fast_bind_tcp(host, &s->port) : -1;
  if ((s->local_fd < 0 && s->tcp_fd < 0) || getrandom(s->secret, FAST_SECRET, 0) != FAST_SECRET) {
    if (s->local_fd >= 0) close(s->local_fd);
    if (s->tcp_fd >= 0) close(s->tcp_fd);
    free(s);
    return NULL;
  }
  if (s->local_fd < 0) s->name[0] = 0;
  if (s->tcp_fd < 0) s->port = 0;
  atomic_init(&s->refs, 1 + (s->local_fd >= 0) + (s->tcp_fd >= 0));
  s->handlers = *handlers;
  s->arg = arg;
  pthread_mutex_init(&s->lock, NULL);
  if (s->local_fd >= 0) fast_listen(s->local_fd, accepted_local, s);
  if (s->tcp_fd >= 0) fast_listen(s->tcp_fd, accepted_tcp, s);
  return s;
}

void fast_server_stop(struct fast_server *s) {
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  if (!s->stopped && s->local_fd >= 0) shutdown(s->local_fd, SHUT_RDWR);
  if (!s->stopped && s->tcp_fd >= 0) shutdown(s->tcp_fd, SHUT_RDWR);
  s->stopped = true;
  for (struct sender *c = s->conns; c; c = c->next) fast_conn_shut(&c->conn);
  pthread_mutex_unlock(&s->lock);
  /* Until every connection has cancelled what it had, and all of it has been answered: the handlers' owner goes next.
   */
  for (int64_t late = clock_ns() + STOP_NS; atomic_load(&s->refs) > 1; usleep(1000))
    if (clock_ns() > late) {
      LOGW("%d connections of the fast path have not ended", atomic_load(&s->refs) - 1);
      break;
    }
}

void fast_server_ticket(const struct fast_server *s, struct text *out) {
  text_add(out, (const char *)s->secret, FAST_SECRET);
  text_add(out, (const char[]){(char)s->port, (char)(s->port >> 8)}, 2);
  text_adds(out, s->name);
}
