/* The fast path's two sides; see fast.h for what travels, fast_wire.h for how.
 *
 * Shared memory was weighed against reading the sender's memory (process_vm_readv): tensors do not live in shared
 * memory, so that would cost two copies; this costs one. Where the system forbids it the receiver says RESEND once, and
 * all goes through the socket from then on. */
#include "rpc/fast.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/vec.h"
#include "rpc/fast_wire.h"
#include "tensor/tensor_proto.h"

enum { REMOTE_FROM = 64 << 10, BUCKETS = 256 };

/* ---- the sending side ---- */

struct fast_server {
  atomic_int refs; /* the owner's, the listener's, each connection's */
  int fd;
  char name[64];
  uint8_t secret[FAST_SECRET];
  fast_handler handler;
  void *arg;
  pthread_mutex_t lock;
  struct sender *conns; /* lock */
  bool stopped;         /* lock */
};

struct fast_request {
  struct fast_request *next; /* conn's lock */
  struct sender *conn;       /* a reference */
  atomic_int refs;           /* the answer's, the handler's, a canceller's */
  uint64_t id;
  int64_t step;
  char *key;
  bool answered, cancelled; /* conn's lock */
  bool cancelling;          /* conn's lock: the cancel function runs, on canceller */
  pthread_t canceller;
  void (*cancel_fn)(void *); /* conn's lock */
  void *cancel_arg;
};

/* A tensor that the receiver copies, until it says DONE. */
struct held {
  struct held *next;
  uint64_t id;
  uint8_t flags;
  struct tensor value;
};

struct sender {
  struct fast_conn conn;
  struct fast_server *server;
  struct sender *prev, *next; /* server's lock */
  pthread_mutex_t lock;
  pthread_cond_t idle;
  struct fast_request *requests[BUCKETS]; /* lock */
  struct held *held;                      /* lock */
  bool no_remote;                         /* lock */
};

void fast_server_unref(struct fast_server *s) {
  if (!s || atomic_fetch_sub(&s->refs, 1) != 1) return;
  pthread_mutex_destroy(&s->lock);
  free(s);
}

static void request_unref(struct fast_request *r) {
  if (atomic_fetch_sub(&r->refs, 1) != 1) return;
  fast_conn_unref(&r->conn->conn);
  free(r->key);
  free(r);
}

static void send_value(struct sender *c, uint64_t id, uint8_t flags, struct tensor *t, bool may_remote) {
  struct fast_frame f = {.flags = flags, .id = id, .dtype = t->dtype, .rank = t->rank};
  uint64_t head[SHOAL_MAX_RANK + 2];
  for (int i = 0; i < t->rank; i++) head[i] = (uint64_t)t->dims[i];
  f.size = tensor_bytes(t);
  f.head = (uint32_t)t->rank * 8;
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

/* Strings, resources and variants, as a TensorProto in a buffer of bytes. */
static shoal_status encode(const struct tensor *t, struct tensor *out) {
  struct text bytes = {0};
  TRY(tensor_proto_encode(t, &bytes));
  shoal_status s = tensor_new_dims(out, SHOAL_UINT8, 1, (const int64_t[]){(int64_t)bytes.n});
  if (!s) memcpy(out->data, text_cstr(&bytes), bytes.n);
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

void fast_answer(struct fast_request *r, shoal_status s, struct tensor *value, bool is_dead) {
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

struct sender_work {
  struct fast_request *request;
  bool cancel;
};

static struct held *take_held(struct sender *c, uint64_t id) {
  pthread_mutex_lock(&c->lock);
  struct held **at = &c->held;
  while (*at && (*at)->id != id) at = &(*at)->next;
  struct held *h = *at;
  if (h) *at = h->next;
  pthread_mutex_unlock(&c->lock);
  return h;
}

static void *sender_frame(struct fast_conn *base, const struct fast_frame *f, const uint8_t *head,
                          struct buffer *body) {
  struct sender *c = (struct sender *)base;
  buffer_unref(body);
  if (f->kind == FAST_ASK) {
    struct fast_request *r = mem_zalloc(1, sizeof *r);
    r->conn = c;
    fast_conn_ref(base);
    atomic_init(&r->refs, 2);
    r->id = f->id;
    r->step = (int64_t)f->size;
    r->key = mem_strndup((const char *)head, f->head);
    pthread_mutex_lock(&c->lock);
    r->next = c->requests[r->id % BUCKETS];
    c->requests[r->id % BUCKETS] = r;
    pthread_mutex_unlock(&c->lock);
    struct sender_work *w = mem_zalloc(1, sizeof *w);
    w->request = r;
    return w;
  }
  if (f->kind == FAST_CANCEL) {
    struct sender_work *w = NULL;
    pthread_mutex_lock(&c->lock);
    struct fast_request *r = c->requests[f->id % BUCKETS];
    while (r && r->id != f->id) r = r->next;
    if (r) {
      atomic_fetch_add(&r->refs, 1);
      w = mem_zalloc(1, sizeof *w);
      *w = (struct sender_work){r, true};
    }
    pthread_mutex_unlock(&c->lock);
    return w;
  }
  if (f->kind == FAST_DONE || f->kind == FAST_RESEND) {
    struct held *h = take_held(c, f->id);
    if (h && f->kind == FAST_RESEND) {
      pthread_mutex_lock(&c->lock);
      c->no_remote = true;
      pthread_mutex_unlock(&c->lock);
      send_value(c, f->id, h->flags, &h->value, false);
    }
    if (h) tensor_release(&h->value);
    free(h);
  }
  return NULL;
}

static void sender_run(struct fast_conn *base, void *work) {
  struct sender *c = (struct sender *)base;
  struct sender_work w = *(struct sender_work *)work;
  free(work);
  if (w.cancel) cancel_request(c, w.request);
  else c->server->handler(c->server->arg, w.request, w.request->step, w.request->key);
  request_unref(w.request);
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
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->idle);
  free(c);
}

static const struct fast_conn_ops sender_ops = {sender_frame, sender_run, sender_closed, sender_free};

static void accepted(void *arg, int fd) {
  struct fast_server *s = arg;
  if (fd < 0) {
    fast_server_unref(s);
    return;
  }
  struct ucred who;
  socklen_t n = sizeof who;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) || who.uid != geteuid()) {
    close(fd);
    return;
  }
  struct sender *c = mem_zalloc(1, sizeof *c);
  c->server = s;
  atomic_fetch_add(&s->refs, 1);
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->idle, NULL);
  pthread_mutex_lock(&s->lock);
  bool stopped = s->stopped;
  c->next = s->conns;
  if (c->next) c->next->prev = c;
  s->conns = c;
  fast_conn_start(&c->conn, &sender_ops, fd, s->secret, true);
  pthread_mutex_unlock(&s->lock);
  if (stopped) fast_conn_shut(&c->conn);
  fast_conn_unref(&c->conn);
}

struct fast_server *fast_server_new(fast_handler handler, void *arg) {
  struct fast_server *s = mem_zalloc(1, sizeof *s);
  uint64_t random;
  s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  bool ok = s->fd >= 0 && getrandom(s->secret, FAST_SECRET, 0) == FAST_SECRET &&
            getrandom(&random, sizeof random, 0) == sizeof random;
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  if (ok) {
    snprintf(s->name, sizeof s->name, "shoal-%d-%016llx", (int)getpid(), (unsigned long long)random);
    memcpy(a.sun_path + 1, s->name, strlen(s->name)); /* an abstract name: nothing is left in the file system */
    socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(s->name));
    ok = bind(s->fd, (struct sockaddr *)&a, n) == 0 && listen(s->fd, 64) == 0;
  }
  if (!ok) {
    if (s->fd >= 0) close(s->fd);
    free(s);
    return NULL;
  }
  atomic_init(&s->refs, 2);
  s->handler = handler;
  s->arg = arg;
  pthread_mutex_init(&s->lock, NULL);
  fast_listen(s->fd, accepted, s);
  return s;
}

void fast_server_stop(struct fast_server *s) {
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  if (!s->stopped) shutdown(s->fd, SHUT_RDWR);
  s->stopped = true;
  for (struct sender *c = s->conns; c; c = c->next) fast_conn_shut(&c->conn);
  pthread_mutex_unlock(&s->lock);
  for (;;) { /* until every connection has cancelled what it had */
    pthread_mutex_lock(&s->lock);
    bool none = !s->conns;
    pthread_mutex_unlock(&s->lock);
    if (none) break;
    usleep(1000);
  }
}

void fast_server_ticket(const struct fast_server *s, struct text *out) {
  text_add(out, (const char *)s->secret, FAST_SECRET);
  text_adds(out, s->name);
}

/* ---- the receiving side ---- */

struct fast_call {
  struct fast_call *next; /* lock */
  atomic_int refs;        /* the table's, the handle's */
  struct fast_client *client;
  uint64_t id;
  fast_done done;
  void *arg;
};

struct fast_client {
  struct fast_conn conn;
  pthread_mutex_t lock;
  struct fast_call *calls[BUCKETS]; /* lock */
  uint64_t next_id;                 /* lock */
  bool closed;                      /* lock */
};

/* Takes a call out of the table: whoever succeeds ends it. Call with the lock held. */
static struct fast_call *take_call(struct fast_client *c, uint64_t id) {
  struct fast_call **at = &c->calls[id % BUCKETS];
  while (*at && (*at)->id != id) at = &(*at)->next;
  struct fast_call *call = *at;
  if (call) *at = call->next;
  return call;
}

void fast_call_unref(struct fast_call *call) {
  if (!call || atomic_fetch_sub(&call->refs, 1) != 1) return;
  fast_conn_unref(&call->client->conn);
  free(call);
}

static void end_call(struct fast_call *call, shoal_status s, struct tensor *value, bool is_dead) {
  struct tensor none = tensor_none();
  call->done(call->arg, s, value ? value : &none, is_dead);
  fast_call_unref(call);
}

struct receiver_work {
  struct fast_call *call;
  struct fast_frame frame;
  struct shape shape;
  struct buffer *body;
  uint64_t pid, address;
  char *message;
};

static void *receiver_frame(struct fast_conn *base, const struct fast_frame *f, const uint8_t *head,
                            struct buffer *body) {
  struct fast_client *c = (struct fast_client *)base;
  if (f->kind != FAST_VALUE && f->kind != FAST_REMOTE && f->kind != FAST_ERROR) {
    buffer_unref(body);
    return NULL;
  }
  pthread_mutex_lock(&c->lock);
  struct fast_call *call = take_call(c, f->id);
  pthread_mutex_unlock(&c->lock);
  if (!call) { /* cancelled meanwhile */
    buffer_unref(body);
    if (f->kind == FAST_REMOTE)
      fast_conn_send(base, &(struct fast_frame){.kind = FAST_DONE, .id = f->id}, NULL, NULL, NULL);
    return NULL;
  }
  struct receiver_work *w = mem_zalloc(1, sizeof *w);
  w->call = call;
  w->frame = *f;
  w->body = body;
  if (f->kind == FAST_ERROR) {
    w->message = mem_strndup((const char *)head, f->head);
    return w;
  }
  size_t dims = (size_t)f->rank * 8;
  bool sound = f->rank <= SHOAL_MAX_RANK && f->head == dims + (f->kind == FAST_REMOTE ? 16 : 0);
  if (!sound) {
    w->frame.kind = 0;
    return w;
  }
  w->shape.rank = f->rank;
  memcpy(w->shape.dims, head, dims);
  if (f->kind == FAST_REMOTE) {
    memcpy(&w->pid, head + dims, 8);
    memcpy(&w->address, head + dims + 8, 8);
  }
  return w;
}

/* Copies out of the sender's memory. 0, or errno. */
static int copy_remote(struct receiver_work *w, struct tensor *t) {
  size_t done = 0, n = w->frame.size;
  while (done < n) {
    struct iovec here = {(uint8_t *)t->data + done, n - done};
    struct iovec there = {(void *)(uintptr_t)(w->address + done), n - done};
    ssize_t k = process_vm_readv((pid_t)w->pid, &here, 1, &there, 1, 0);
    if (k <= 0) return k < 0 ? errno : EIO;
    done += (size_t)k;
  }
  return 0;
}

static shoal_status make_tensor(struct receiver_work *w, struct tensor *t) {
  int64_t elements;
  size_t bytes;
  if (!w->frame.kind || w->frame.dtype >= DTYPE_COUNT || !dtype_valid(w->frame.dtype) ||
      !dtype_plain((shoal_dtype)w->frame.dtype))
    return INTERNAL("a tensor on the fast path makes no sense");
  TRY(tensor_bytes_for((shoal_dtype)w->frame.dtype, &w->shape, &elements, &bytes));
  if (bytes != w->frame.size)
    return INTERNAL("a tensor on the fast path has %zu bytes, not %zu", (size_t)w->frame.size, bytes);
  if (!w->body) return tensor_new(t, (shoal_dtype)w->frame.dtype, &w->shape);
  *t = (struct tensor){
      .buffer = w->body, .data = w->body->data, .dtype = w->frame.dtype, .rank = w->frame.rank, .n = elements};
  w->body = NULL;
  for (int i = 0; i < w->shape.rank; i++) t->dims[i] = w->shape.dims[i];
  return NULL;
}

/* The work of a REMOTE frame; false when it must come again through the socket. */
static bool finish_remote(struct fast_client *c, struct receiver_work *w, struct tensor *t, shoal_status *s) {
  int err = *s ? 0 : copy_remote(w, t);
  if (err) tensor_release(t);
  if (err == EPERM || err == ENOSYS || err == EACCES) {
    pthread_mutex_lock(&c->lock);
    bool open = !c->closed;
    if (open) {
      w->call->next = c->calls[w->call->id % BUCKETS];
      c->calls[w->call->id % BUCKETS] = w->call;
    }
    pthread_mutex_unlock(&c->lock);
    if (open) {
      fast_conn_send(&c->conn, &(struct fast_frame){.kind = FAST_RESEND, .id = w->frame.id}, NULL, NULL, NULL);
      return false;
    }
    *s = STATUS(SHOAL_UNAVAILABLE, "Socket closed");
    return true;
  }
  if (err) *s = STATUS(SHOAL_UNAVAILABLE, "the sender is gone (%s)", strerror(err));
  fast_conn_send(&c->conn, &(struct fast_frame){.kind = FAST_DONE, .id = w->frame.id}, NULL, NULL, NULL);
  return true;
}

static void receiver_run(struct fast_conn *base, void *work) {
  struct fast_client *c = (struct fast_client *)base;
  struct receiver_work *w = work;
  struct tensor t = tensor_none();
  shoal_status s = NULL;
  bool is_dead = w->frame.flags & FAST_DEAD, ended = true;
  if (w->frame.kind == FAST_ERROR) {
    s = STATUS((shoal_code)(w->frame.dtype && w->frame.dtype <= SHOAL_UNAUTHENTICATED ? w->frame.dtype : SHOAL_UNKNOWN),
               "%s", w->message);
    if (w->frame.flags & FAST_DERIVED) status_mark_derived(s);
    if (w->frame.flags & FAST_RESTARTED) status_mark_restarted(s);
  } else if (!is_dead) {
    s = make_tensor(w, &t);
    if (w->frame.kind == FAST_REMOTE) ended = finish_remote(c, w, &t, &s);
    if (ended && !s && w->frame.flags & FAST_ENCODED) {
      struct tensor decoded;
      s = tensor_proto_decode(t.data, (size_t)t.n, &decoded);
      tensor_release(&t);
      if (!s) tensor_move(&t, &decoded);
    } else if (ended && !s && t.dtype == SHOAL_BOOL) {
      for (int64_t i = 0; i < t.n; i++) T_DATA(&t, uint8_t)[i] = T_DATA(&t, uint8_t)[i] != 0;
    }
  }
  if (ended) end_call(w->call, s, &t, is_dead);
  buffer_unref(w->body);
  free(w->message);
  free(w);
}

static void receiver_closed(struct fast_conn *base) {
  struct fast_client *c = (struct fast_client *)base;
  pthread_mutex_lock(&c->lock);
  c->closed = true;
  struct fast_call *all = NULL;
  for (int b = 0; b < BUCKETS; b++)
    while (c->calls[b]) {
      struct fast_call *call = c->calls[b];
      c->calls[b] = call->next;
      call->next = all;
      all = call;
    }
  pthread_mutex_unlock(&c->lock);
  for (struct fast_call *next; all; all = next) {
    next = all->next;
    end_call(all, STATUS(SHOAL_UNAVAILABLE, "Socket closed"), NULL, false);
  }
}

static void receiver_free(struct fast_conn *base) {
  struct fast_client *c = (struct fast_client *)base;
  pthread_mutex_destroy(&c->lock);
  free(c);
}

static const struct fast_conn_ops receiver_ops = {receiver_frame, receiver_run, receiver_closed, receiver_free};

struct fast_client *fast_client_new(const void *ticket, size_t n) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  if (n <= FAST_SECRET || n - FAST_SECRET > sizeof a.sun_path - 1) return NULL;
  memcpy(a.sun_path + 1, (const char *)ticket + FAST_SECRET, n - FAST_SECRET);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return NULL;
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (n - FAST_SECRET));
  if (connect(fd, (struct sockaddr *)&a, size) || send(fd, ticket, FAST_SECRET, MSG_NOSIGNAL) != FAST_SECRET) {
    close(fd);
    return NULL;
  }
  struct fast_client *c = mem_zalloc(1, sizeof *c);
  pthread_mutex_init(&c->lock, NULL);
  c->next_id = 1;
  fast_conn_start(&c->conn, &receiver_ops, fd, ticket, false);
  return c;
}

void fast_client_free(struct fast_client *c) {
  if (!c) return;
  fast_conn_shut(&c->conn);
  fast_conn_unref(&c->conn);
}

bool fast_client_is_open(struct fast_client *c) { return atomic_load(&c->conn.is_open); }

bool fast_ask(struct fast_client *c, int64_t step, const char *key, fast_done done, void *arg,
              struct fast_call **handle) {
  struct fast_call *call = mem_zalloc(1, sizeof *call);
  atomic_init(&call->refs, handle ? 2 : 1);
  call->client = c;
  call->done = done;
  call->arg = arg;
  pthread_mutex_lock(&c->lock);
  bool closed = c->closed;
  call->id = c->next_id++;
  if (!closed) {
    fast_conn_ref(&c->conn);
    if (handle) *handle = call;
    call->next = c->calls[call->id % BUCKETS];
    c->calls[call->id % BUCKETS] = call;
  }
  pthread_mutex_unlock(&c->lock);
  if (closed) {
    free(call);
    return false;
  }
  struct fast_frame f = {.kind = FAST_ASK, .id = call->id, .size = (uint64_t)step, .head = (uint32_t)strlen(key)};
  fast_conn_send(&c->conn, &f, key, NULL, NULL);
  return true;
}

void fast_cancel(struct fast_call *call, shoal_status why) {
  struct fast_client *c = call->client;
  pthread_mutex_lock(&c->lock);
  struct fast_call *mine = take_call(c, call->id);
  pthread_mutex_unlock(&c->lock);
  if (!mine) {
    shoal_status_free(why);
    return;
  }
  fast_conn_send(&c->conn, &(struct fast_frame){.kind = FAST_CANCEL, .id = call->id}, NULL, NULL, NULL);
  end_call(mine, why, NULL, false);
}
