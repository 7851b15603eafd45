/* The fast path's asking side; see fast.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/block.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/ref.h"
#include "rpc/fast/fast.h"
#include "rpc/fast/fast_address.h"
#include "rpc/fast/fast_shared.h"
#include "rpc/fast/fast_window.h"
#include "rpc/fast/fast_wire.h"
#include "tensor/tensor_proto.h"

enum { BUCKETS = 256, LONG_COPY = 256 << 10 };

/* What a call has of a WINDOW: its place, and tensors of the peer's card's memory and of our own, while one is copied
 * to the other. */
struct window_copy {
  struct fast_window_place place;
  struct tensor view, value;
};

struct fast_call {
  struct fast_work work;
  struct fast_call *next; /* lock */
  struct ref refs;        /* the table's, the handle's */
  struct fast_client *client;
  uint64_t id;
  fast_done done;
  void *arg;
  struct device *to;      /* into whose memory it was asked for, by a window; NULL: it comes to the host's */
  struct fast_sink *sink; /* where its bytes are to go; NULL: into a tensor */
  /* the answer, once it is there */
  struct fast_frame frame;
  struct shape shape;
  struct buffer *body;
  uint64_t pid, address;
  struct fast_place place; /* SHARED: address is the offset in it */
  char *message;
  struct window_copy *window; /* WINDOW: or NULL */
};

/* The peer's arena, mapped; held by the connection and by every tensor in it. */
struct shared {
  struct ref refs;
  pthread_mutex_t lock;
  struct fast_conn *conn; /* lock: NULL when the connection is over */
  struct fast_view view;
};

/* A tensor's block. */
struct tensor_block {
  struct shared *shared;
  uint64_t id;
};

struct fast_client {
  struct fast_conn conn;
  pthread_mutex_t lock;
  struct fast_call *calls[BUCKETS]; /* lock */
  uint64_t next_id;                 /* lock */
  bool closed;                      /* lock */
  _Atomic(struct shared *) shared;  /* set once, with the lock held: a reference that goes with the connection */
  struct fast_views views;
  bool is_tcp;
  uint64_t peer; /* the process whose memory may be read; 0: none */
};

static void shared_unref(struct shared *s) {
  if (!s || !ref_drop(&s->refs)) return;
  fast_view_close(&s->view);
  pthread_mutex_destroy(&s->lock);
  free(s);
}

/* Takes a call out of the table: whoever succeeds ends it. Call with the lock held. */
static struct fast_call *take_call(struct fast_client *c, uint64_t id) {
  struct fast_call **at = &c->calls[id % BUCKETS];
  while (*at && (*at)->id != id) at = &(*at)->next;
  struct fast_call *call = *at;
  if (call) *at = call->next;
  return call;
}

static void put_call(struct fast_client *c, struct fast_call *call) {
  call->next = c->calls[call->id % BUCKETS];
  c->calls[call->id % BUCKETS] = call;
}

void fast_call_unref(struct fast_call *call) {
  if (!call || !ref_drop(&call->refs)) return;
  block_free(call->window);
  fast_conn_unref(&call->client->conn);
  block_free(call);
}

/* Call with the lock held. */
static struct fast_call *find_call(struct fast_client *c, uint64_t id) {
  struct fast_call *call = c->calls[id % BUCKETS];
  while (call && call->id != id) call = call->next;
  return call;
}

static void end_call(struct fast_call *call, shoal_status s, struct tensor *value, bool is_dead) {
  struct tensor none = tensor_none();
  call->done(call->arg, s, value ? value : &none, is_dead);
  fast_call_unref(call);
}

/* ---- answers ---- */

static bool receiver_pours(struct fast_conn *base, const struct fast_frame *f, const uint8_t *head) {
  struct fast_client *c = (struct fast_client *)base;
  uint64_t n;
  if (f->kind != FAST_VALUE || f->flags || f->dtype != SHOAL_UINT8 || f->rank != 1 || f->head != sizeof n) return false;
  memcpy(&n, head, sizeof n);
  pthread_mutex_lock(&c->lock); /* until it has begun: who cancels takes the call away first, then gives the sink up */
  struct fast_call *call = find_call(c, f->id);
  bool pours = call && call->sink && call->sink->bytes == f->size && f->size == n;
  if (pours) fast_pour_begin(&base->pour, call->sink, f->id);
  pthread_mutex_unlock(&c->lock);
  return pours;
}

static struct fast_work *receiver_frame(struct fast_conn *base, const struct fast_frame *f, const uint8_t *head,
                                        struct buffer *body) {
  struct fast_client *c = (struct fast_client *)base;
  pthread_mutex_lock(&c->lock);
  struct fast_call *call = take_call(c, f->id);
  pthread_mutex_unlock(&c->lock);
  if (!call) { /* cancelled meanwhile */
    buffer_unref(body);
    if (f->kind == FAST_REMOTE || f->kind == FAST_SHARED || f->kind == FAST_WINDOW)
      fast_conn_send(base, &(struct fast_frame){.kind = FAST_DONE, .id = f->id}, NULL, NULL, NULL);
    return NULL;
  }
  call->frame = *f;
  call->body = body;
  if (f->kind == FAST_ERROR) {
    call->message = mem_try_strndup((const char *)head, f->head);
    return &call->work;
  }
  if (f->kind == FAST_RESULT) {
    call->frame.dtype = SHOAL_UINT8;
    call->shape = (struct shape){.rank = 1, .dims = {(int64_t)f->size}};
    return &call->work;
  }
  size_t dims = (size_t)f->rank * 8, more = 0;
  if (f->kind == FAST_REMOTE) more = sizeof call->pid + sizeof call->address;
  if (f->kind == FAST_SHARED) more = sizeof call->place + sizeof call->address;
  if (f->kind == FAST_WINDOW) more = sizeof call->window->place;
  if (f->rank > SHOAL_MAX_RANK || f->head != dims + more) {
    call->frame.kind = 0;
    return &call->work;
  }
  call->shape.rank = f->rank;
  memcpy(call->shape.dims, head, dims);
  if (f->kind == FAST_REMOTE) {
    memcpy(&call->pid, head + dims, 8);
    memcpy(&call->address, head + dims + 8, 8);
  }
  if (f->kind == FAST_SHARED) {
    memcpy(&call->place, head + dims, sizeof call->place);
    memcpy(&call->address, head + dims + sizeof call->place, 8);
  }
  if (f->kind == FAST_WINDOW && !call->window) call->window = block_try_zalloc(sizeof *call->window);
  if (f->kind == FAST_WINDOW && call->window) memcpy(&call->window->place, head + dims, sizeof call->window->place);
  return &call->work;
}

/* Copies out of the sender's memory. 0, or errno. A sender that is another process than it says it is, as one in a
 * container with numbers of its own is, or a liar, is not looked for. */
static int copy_remote(const struct fast_call *w, struct tensor *t) {
  size_t done = 0, n = w->frame.size;
  if (!w->pid || w->pid != w->client->peer) return EPERM;
  if (n > LONG_COPY) {
    fast_flush();
    rpc_loop_hand_over();
  }
  while (done < n) {
    struct iovec here = {(uint8_t *)t->data + done, n - done};
    struct iovec there = {(void *)(uintptr_t)(w->address + done), n - done};
    ssize_t k = process_vm_readv((pid_t)w->pid, &here, 1, &there, 1, 0);
    if (k <= 0) return k < 0 ? errno : EIO;
    done += (size_t)k;
  }
  fast_count(&fast_received, n);
  return 0;
}

/* Does its head make sense? */
static shoal_status check_tensor(const struct fast_call *w, int64_t *elements) {
  size_t bytes;
  if (!w->frame.kind || w->frame.dtype >= DTYPE_COUNT || !dtype_valid(w->frame.dtype) ||
      !dtype_plain((shoal_dtype)w->frame.dtype))
    return INTERNAL("a tensor on the fast path makes no sense");
  TRY(tensor_bytes_for((shoal_dtype)w->frame.dtype, &w->shape, elements, &bytes));
  if (bytes == w->frame.size) return NULL;
  return INTERNAL("a tensor on the fast path has %zu bytes, not %zu", (size_t)w->frame.size, bytes);
}

static shoal_status make_tensor(struct fast_call *w, struct tensor *t) {
  int64_t elements;
  TRY(check_tensor(w, &elements));
  if (!w->body) return tensor_new(t, (shoal_dtype)w->frame.dtype, &w->shape);
  *t = (struct tensor){
      .buffer = w->body, .data = w->body->data, .dtype = w->frame.dtype, .rank = (uint8_t)w->shape.rank, .n = elements};
  w->body = NULL;
  for (int i = 0; i < w->shape.rank; i++) t->dims[i] = w->shape.dims[i];
  return NULL;
}

/* Asks for the value again, in another way; false when the connection is gone. */
static bool ask_again(struct fast_client *c, struct fast_call *w) {
  uint64_t id = w->id;
  pthread_mutex_lock(&c->lock);
  bool open = !c->closed;
  if (open) put_call(c, w);
  pthread_mutex_unlock(&c->lock);
  if (open) fast_conn_send(&c->conn, &(struct fast_frame){.kind = FAST_RESEND, .id = id}, NULL, NULL, NULL);
  return open;
}

/* The last user of a block: the sender may have it back, with whatever is sent next. */
static void release_block(struct buffer *b) {
  struct tensor_block *mine = b->owner;
  struct shared *s = mine->shared;
  pthread_mutex_lock(&s->lock);
  if (s->conn) fast_conn_queue(s->conn, &(struct fast_frame){.kind = FAST_DONE, .id = mine->id});
  pthread_mutex_unlock(&s->lock);
  block_free(mine);
  shared_unref(s);
}

/* Maps the arena of the first SHARED frame; NULL when that cannot be. */
static struct shared *open_shared(struct fast_client *c, const struct fast_place *place) {
  pthread_mutex_lock(&c->lock);
  struct shared *s = atomic_load(&c->shared);
  if (!s && !c->closed) {
    s = mem_zalloc(1, sizeof *s);
    ref_init(&s->refs, 1);
    pthread_mutex_init(&s->lock, NULL);
    s->conn = &c->conn;
    /* Of the process at the other end and of no other that it names. */
    if (place->pid && place->pid == c->peer && fast_view_open(&s->view, place)) {
      atomic_store(&c->shared, s);
    } else {
      shared_unref(s);
      s = NULL;
    }
  }
  pthread_mutex_unlock(&c->lock);
  return s;
}

/* The arena of a SHARED frame: a reference, or NULL. */
static struct shared *find_shared(struct fast_client *c, const struct fast_place *place) {
  struct shared *s = atomic_load_explicit(&c->shared, memory_order_acquire);
  if (!s) s = open_shared(c, place);
  if (s && s->view.inode != place->inode) s = NULL;
  if (s) ref_take(&s->refs);
  return s;
}

/* The work of a SHARED frame: the tensor's memory is the block. False when it must come again in another way. */
static bool finish_shared(struct fast_client *c, struct fast_call *w, shoal_status *s) {
  uint64_t n = w->frame.size, at = w->address;
  struct shared *shared = find_shared(c, &w->place);
  if (!shared) {
    if (ask_again(c, w)) return false;
    *s = STATUS(SHOAL_UNAVAILABLE, "Socket closed");
    return true;
  }
  if (at % 64 || at > shared->view.size || n > shared->view.size - at) {
    shared_unref(shared);
    *s = INTERNAL("a tensor on the fast path lies outside of shared memory");
    return true;
  }
  struct tensor_block *b = block_alloc(sizeof *b);
  *b = (struct tensor_block){shared, w->id};
  w->body = buffer_wrap(shared->view.at + at, n, NULL, release_block, b);
  fast_count(&fast_received, n);
  return true;
}

/* The sender may write into a block for as long as it likes. Wrong numbers are its own affair; but what is checked
 * first and used afterwards, as indices, sizes and messages are, is so in memory that is ours alone. */
static shoal_status take_out(struct tensor *t) {
  struct tensor own;
  shoal_status s = tensor_new_dims(&own, (shoal_dtype)t->dtype, t->rank, t->dims);
  if (!s) memcpy(own.data, t->data, tensor_bytes(t));
  tensor_release(t);
  if (!s) tensor_move(t, &own);
  return s;
}

/* The work of a REMOTE frame; false when it must come again through the socket. */
static bool finish_remote(struct fast_client *c, struct fast_call *w, struct tensor *t, shoal_status *s) {
  int err = *s ? 0 : copy_remote(w, t);
  if (err) tensor_release(t);
  if (err == EPERM || err == ENOSYS || err == EACCES) {
    if (ask_again(c, w)) return false;
    *s = STATUS(SHOAL_UNAVAILABLE, "Socket closed");
    return true;
  }
  if (err) *s = STATUS(SHOAL_UNAVAILABLE, "the sender is gone (%s)", strerror(err));
  fast_conn_send(&c->conn, &(struct fast_frame){.kind = FAST_DONE, .id = w->id}, NULL, NULL, NULL);
  return true;
}

/* ---- windows ---- */

static void copied_out(void *arg, shoal_status s) {
  struct fast_call *w = arg;
  fast_conn_send(&w->client->conn, &(struct fast_frame){.kind = FAST_DONE, .id = w->id}, NULL, NULL, NULL);
  tensor_release(&w->window->view);
  if (s) tensor_release(&w->window->value);
  end_call(w, s, &w->window->value, false);
}

/* The part of the window, and memory of ours for it. *again: the window cannot be opened here. */
static shoal_status open_window(struct fast_client *c, struct fast_call *w, bool *again) {
  int64_t elements;
  TRY(check_tensor(w, &elements));
  if (!w->to || w->frame.dtype == SHOAL_BOOL) return INTERNAL("a tensor on the fast path is in a window unasked");
  if (!w->window) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "OOM when receiving a tensor on the fast path");
  *again = !fast_views_find(&c->views, w->to, &w->window->place, &w->window->view);
  if (*again) return NULL;
  /* The size is that of the view, whatever the frame says of a window that was opened before. */
  uint64_t size = (uint64_t)w->window->view.n, at = w->window->place.offset;
  shoal_status s = at > size || w->frame.size > size - at
                       ? INTERNAL("a tensor on the fast path lies outside of its window")
                       : device_tensor_new(w->to, "a value of another task", (shoal_dtype)w->frame.dtype, &w->shape,
                                           &w->window->value);
  if (s) tensor_release(&w->window->view);
  return s;
}

/* The work of a WINDOW frame; the call ends when the card has copied. Its step is under way: nothing is captured there
 * now (device/gate.h). */
static void run_window(struct fast_client *c, struct fast_call *w) {
  bool again = false;
  shoal_status s = open_window(c, w, &again);
  if (!s && again && ask_again(c, w)) return;
  if (!s && again) s = STATUS(SHOAL_UNAVAILABLE, "Socket closed");
  if (s) {
    fast_conn_send(&c->conn, &(struct fast_frame){.kind = FAST_DONE, .id = w->id}, NULL, NULL, NULL);
    end_call(w, s, NULL, false);
    return;
  }
  struct tensor part = fast_window_part(&w->window->view, w->window->place.offset, &w->window->value);
  fast_count(&fast_received, w->frame.size);
  w->to->type->ops->copy(w->to, &part, &w->window->value, 0);
  w->to->type->ops->when_done(w->to, copied_out, w);
}

static shoal_status error_of(struct fast_call *w) {
  shoal_code code = (shoal_code)w->frame.dtype;
  shoal_status s = STATUS(code && code <= SHOAL_UNAUTHENTICATED ? code : SHOAL_UNKNOWN, "%s",
                          w->message ? w->message : "(no memory for the message)");
  if (w->frame.flags & FAST_DERIVED) status_mark_derived(s);
  if (w->frame.flags & FAST_RESTARTED) status_mark_restarted(s);
  free(w->message);
  w->message = NULL;
  return s;
}

static void receiver_run(struct fast_conn *base, struct fast_work *work) {
  struct fast_client *c = (struct fast_client *)base;
  struct fast_call *w = (struct fast_call *)work;
  struct tensor t = tensor_none();
  shoal_status s = NULL;
  bool is_dead = w->frame.flags & FAST_DEAD;
  if (w->frame.kind == FAST_WINDOW) {
    run_window(c, w);
    return;
  }
  if (w->frame.kind == FAST_ERROR) {
    s = error_of(w);
  } else if (!is_dead && !(w->sink && w->sink->filled)) {
    if (w->frame.kind == FAST_SHARED && !finish_shared(c, w, &s)) return;
    if (!s) s = make_tensor(w, &t);
    if (!s && w->frame.kind == FAST_SHARED && !dtype_floating((shoal_dtype)t.dtype)) s = take_out(&t);
    if (w->frame.kind == FAST_REMOTE && !finish_remote(c, w, &t, &s)) return;
    if (!s && w->frame.flags & FAST_ENCODED) {
      struct tensor decoded;
      s = tensor_proto_decode(t.data, (size_t)t.n, &decoded);
      tensor_release(&t);
      if (!s) tensor_move(&t, &decoded);
    } else if (!s && t.dtype == SHOAL_BOOL) {
      for (int64_t i = 0; i < t.n; i++) T_DATA(&t, uint8_t)[i] = T_DATA(&t, uint8_t)[i] != 0;
    }
  }
  buffer_unref(w->body);
  w->body = NULL;
  end_call(w, s, &t, is_dead);
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
  struct shared *shared = atomic_load(&c->shared);
  pthread_mutex_unlock(&c->lock);
  if (shared) {
    pthread_mutex_lock(&shared->lock);
    shared->conn = NULL;
    pthread_mutex_unlock(&shared->lock);
  }
  for (struct fast_call *next; all; all = next) {
    next = all->next;
    end_call(all, STATUS(SHOAL_UNAVAILABLE, "Socket closed"), NULL, false);
  }
}

static void receiver_free(struct fast_conn *base) {
  struct fast_client *c = (struct fast_client *)base;
  fast_views_release(&c->views);
  shared_unref(atomic_load(&c->shared));
  pthread_mutex_destroy(&c->lock);
  free(c);
}

static const struct fast_conn_ops receiver_ops = {.kinds = 1 << FAST_VALUE | 1 << FAST_REMOTE | 1 << FAST_ERROR |
                                                           1 << FAST_RESULT | 1 << FAST_SHARED | 1 << FAST_WINDOW,
                                                  .work = RPC_EVENT_NEWS,
                                                  .frame = receiver_frame,
                                                  .run = receiver_run,
                                                  .pours = receiver_pours,
                                                  .closed = receiver_closed,
                                                  .free = receiver_free};

/* ---- the connection ---- */

struct fast_client *fast_client_new(const void *ticket, size_t n, const char *host) {
  const uint8_t *bytes = ticket;
  if (n < FAST_SECRET + 2) return NULL;
  int port = bytes[FAST_SECRET] | bytes[FAST_SECRET + 1] << 8;
  int fd = fast_dial_local((const char *)bytes + FAST_SECRET + 2, n - FAST_SECRET - 2);
  bool is_tcp = fd < 0;
  if (is_tcp && port && host) fd = fast_dial_tcp(host, port);
  if (fd < 0) return NULL;
  if (send(fd, ticket, FAST_SECRET, MSG_NOSIGNAL) != FAST_SECRET) {
    close(fd);
    return NULL;
  }
  struct fast_client *c = mem_zalloc(1, sizeof *c);
  pthread_mutex_init(&c->lock, NULL);
  fast_views_init(&c->views);
  c->next_id = 1;
  c->is_tcp = is_tcp;
  c->peer = is_tcp ? 0 : (uint64_t)fast_peer_process(fd);
  fast_conn_start(&c->conn, &receiver_ops, fd, ticket, NULL);
  return c;
}

const char *fast_client_kind(const struct fast_client *c) {
  if (c->is_tcp) return "TCP";
  return atomic_load(&c->views.any) ? "shared memory, windows of cards" : "shared memory";
}

void fast_client_free(struct fast_client *c) {
  if (!c) return;
  fast_views_close(&c->views); /* the devices may go */
  fast_conn_shut(&c->conn);
  fast_conn_unref(&c->conn);
}

/* ---- asking ---- */

static bool start(struct fast_client *c, struct fast_frame f, const void *head, struct device *to,
                  struct fast_sink *sink, fast_done done, void *arg, struct fast_call **handle) {
  struct fast_call *call = block_zalloc(sizeof *call);
  ref_init(&call->refs, handle ? 2 : 1);
  call->client = c;
  call->done = done;
  call->arg = arg;
  call->to = to;
  call->sink = sink;
  pthread_mutex_lock(&c->lock);
  bool closed = c->closed;
  f.id = call->id = c->next_id++;
  if (!closed) {
    fast_conn_ref(&c->conn);
    if (handle) *handle = call;
    put_call(c, call);
  }
  pthread_mutex_unlock(&c->lock);
  if (closed) {
    block_free(call);
    return false;
  }
  fast_conn_send(&c->conn, &f, head, NULL, NULL);
  return true;
}

bool fast_ask(struct fast_client *c, int64_t step, const char *key, fast_done done, void *arg,
              struct fast_call **handle) {
  return fast_ask_into(c, step, key, NULL, done, arg, handle);
}

bool fast_ask_into(struct fast_client *c, int64_t step, const char *key, struct device *to, fast_done done, void *arg,
                   struct fast_call **handle) {
  struct fast_frame f = {.kind = FAST_ASK, .size = (uint64_t)step, .head = (uint32_t)strlen(key)};
  if (c->is_tcp || !to || !fast_views_wanted(to)) to = NULL;
  if (to) f.flags = FAST_BY_WINDOW;
  return start(c, f, key, to, NULL, done, arg, handle);
}

bool fast_ask_poured(struct fast_client *c, int64_t step, const char *key, struct fast_sink *sink, fast_done done,
                     void *arg, struct fast_call **handle) {
  struct fast_frame f = {.kind = FAST_ASK, .size = (uint64_t)step, .head = (uint32_t)strlen(key)};
  sink->filled = false;
  return start(c, f, key, NULL, sink, done, arg, handle);
}

bool fast_call(struct fast_client *c, const void *data, size_t n, int64_t deadline, fast_done done, void *arg,
               struct fast_call **handle) {
  if (n > FAST_MAX_HEAD) return false;
  struct fast_frame f = {.kind = FAST_CALL, .size = UINT64_MAX, .head = (uint32_t)n};
  if (deadline != DEADLINE_NEVER) f.size = (uint64_t)MAX(deadline - clock_ns(), (int64_t)0);
  return start(c, f, data, NULL, NULL, done, arg, handle);
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
  fast_pour_give_up(&c->conn.pour, call->id);
  fast_conn_send(&c->conn, &(struct fast_frame){.kind = FAST_CANCEL, .id = call->id}, NULL, NULL, NULL);
  end_call(mine, why, NULL, false);
}
