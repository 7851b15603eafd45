/* The soft device: memory, streams, copies. See soft.h. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/soft/soft.h"

enum { MOST = 16, AWAY_BIT = 55 };
#define AWAY ((uintptr_t)1 << AWAY_BIT)

static void *away(const void *data) { return (void *)((uintptr_t)data | AWAY); }
static void *back(const void *data) { return (void *)((uintptr_t)data & ~AWAY); }

/* ---- events ---- */

struct soft_event {
  atomic_int refs;
  pthread_mutex_t lock;
  pthread_cond_t set;
  bool is_set; /* lock */
};

struct soft_event *soft_event_new(void) {
  struct soft_event *e = mem_zalloc(1, sizeof *e);
  atomic_init(&e->refs, 1);
  pthread_mutex_init(&e->lock, NULL);
  pthread_cond_init(&e->set, NULL);
  return e;
}

struct soft_event *soft_event_ref(struct soft_event *e) {
  atomic_fetch_add(&e->refs, 1);
  return e;
}

void soft_event_unref(struct soft_event *e) {
  if (!e || atomic_fetch_sub(&e->refs, 1) != 1) return;
  pthread_mutex_destroy(&e->lock);
  pthread_cond_destroy(&e->set);
  free(e);
}

void soft_event_set(struct soft_event *e) {
  pthread_mutex_lock(&e->lock);
  e->is_set = true;
  pthread_cond_broadcast(&e->set);
  pthread_mutex_unlock(&e->lock);
}

void soft_event_wait(struct soft_event *e) {
  if (!e) return;
  pthread_mutex_lock(&e->lock);
  while (!e->is_set) pthread_cond_wait(&e->set, &e->lock);
  pthread_mutex_unlock(&e->lock);
}

struct soft_turn soft_write(const struct tensor *t) {
  struct soft_turn turn = {.before = t->buffer->ready, .after = soft_event_new()};
  t->buffer->ready = soft_event_ref(turn.after);
  return turn;
}

void soft_turn_begin(struct soft_turn *turn) {
  soft_event_wait(turn->before);
  soft_event_unref(turn->before);
}

void soft_turn_end(struct soft_turn *turn) {
  soft_event_set(turn->after);
  soft_event_unref(turn->after);
}

/* ---- memory ---- */

static void give_back(struct buffer *b) {
  soft_event_unref(b->ready);
  buffer_unref(b->owner);
}

/* Takes over the reference to the block. */
static struct buffer *hide(struct device *d, struct buffer *block) {
  return buffer_wrap(away(block->data), block->size, d, give_back, block);
}

static shoal_status soft_alloc(struct device *d, size_t size, struct buffer **out) {
  struct buffer *block;
  TRY(buffer_new(size, &block));
  *out = hide(d, block);
  return NULL;
}

void *soft_data(const struct tensor *t) { return back(t->data); }

void soft_open(const struct tensor *from, struct tensor *to) {
  tensor_ref(to, from);
  struct buffer *b = from->buffer;
  if (!b || !b->device) return;
  soft_event_wait(b->ready);
  to->buffer = buffer_ref(b->owner);
  to->data = back(from->data);
  buffer_unref(b);
}

shoal_status soft_close(struct device *d, struct tensor *t) {
  if (!tensor_valid(t) || t->buffer->device || !dtype_plain((shoal_dtype)t->dtype)) return NULL;
  if (buffer_shared(t->buffer) || t->buffer->release) {
    struct tensor own;
    TRY(tensor_copy(&own, t));
    tensor_release(t);
    tensor_move(t, &own);
  }
  t->buffer = hide(d, t->buffer);
  t->data = away(t->data);
  return NULL;
}

/* ---- copies ---- */

static struct soft_device *self(const struct device *d) { return d->impl; }

struct soft_upload {
  struct tensor from, to; /* held until it is done */
  struct soft_turn turn;
};

static void upload(void *arg) {
  struct soft_upload *u = arg;
  struct tensor open;
  soft_open(&u->from, &open);
  soft_turn_begin(&u->turn);
  if (u->to.n) memcpy(soft_data(&u->to), open.data, tensor_bytes(&open));
  soft_turn_end(&u->turn);
  tensor_release(&open);
  tensor_release(&u->from);
  tensor_release(&u->to);
  free(u);
}

/* Of the host, or of another soft device, whose work that writes it is waited for. */
static shoal_status soft_bring(struct device *d, const struct tensor *from, struct tensor *to) {
  struct buffer *b;
  TRY(soft_alloc(d, tensor_bytes(from), &b));
  tensor_move(to, from); /* its type and shape */
  to->buffer = b;
  to->data = b->data;
  struct soft_upload *u = mem_zalloc(1, sizeof *u);
  tensor_ref(&u->from, from);
  tensor_ref(&u->to, to);
  u->turn = soft_write(to);
  pool_submit(self(d)->in, upload, u);
  return NULL;
}

struct soft_wait {
  struct device *d;
  struct tensor from; /* held until it is done */
  struct tensor *to;
  shoal_status status;
  device_done done;
  void *arg;
};

static void tell(void *arg) {
  struct soft_wait w = *(struct soft_wait *)arg;
  free(arg);
  tensor_release(&w.from);
  w.done(w.arg, w.status);
}

static void download(void *arg) {
  struct soft_wait *w = arg;
  struct tensor open;
  soft_open(&w->from, &open);
  w->status = tensor_copy(w->to, &open);
  tensor_release(&open);
  pool_submit(self(w->d)->events, tell, w);
}

static void soft_to_host(struct device *d, const struct tensor *from, struct tensor *to, device_done done, void *arg) {
  struct soft_wait *w = mem_zalloc(1, sizeof *w);
  *w = (struct soft_wait){.d = d, .to = to, .done = done, .arg = arg};
  tensor_ref(&w->from, from);
  pool_submit(self(d)->out, download, w);
}

/* One stream after the other is through with what it had. */
static void copied_out(void *arg) { pool_submit(self(((struct soft_wait *)arg)->d)->events, tell, arg); }
static void copied_in(void *arg) { pool_submit(self(((struct soft_wait *)arg)->d)->out, copied_out, arg); }
static void computed(void *arg) { pool_submit(self(((struct soft_wait *)arg)->d)->in, copied_in, arg); }

static void soft_when_done(struct device *d, device_done done, void *arg) {
  struct soft_wait *w = mem_zalloc(1, sizeof *w);
  *w = (struct soft_wait){.d = d, .done = done, .arg = arg};
  pool_submit(self(d)->compute, computed, w);
}

/* ---- the type ---- */

static int soft_count(int asked) {
  const char *text = getenv("SHOAL_SOFT_GPUS");
  int have = text ? atoi(text) : 0;
  have = MAX(0, MIN(have, MOST));
  return asked < 0 ? have : MIN(asked, have);
}

static shoal_status soft_start(struct device *d) {
  struct soft_device *s = mem_zalloc(1, sizeof *s);
  s->host = *d;
  s->host.type = device_type_host();
  s->compute = pool_new(1, "soft-compute");
  s->in = pool_new(1, "soft-in");
  s->out = pool_new(1, "soft-out");
  s->events = pool_new(1, "soft-events");
  d->impl = s;
  return NULL;
}

/* What one stream hands to the next is there before that one ends. */
static void soft_free(struct device *d) {
  struct soft_device *s = d->impl;
  pool_free(s->compute);
  pool_free(s->in);
  pool_free(s->out);
  pool_free(s->events);
  free(s);
}

static const struct device_ops soft_ops = {.alloc = soft_alloc,
                                           .to_host = soft_to_host,
                                           .from_host = soft_bring,
                                           .from_peer = soft_bring,

                                           .when_done = soft_when_done,
                                           .free = soft_free};

DEVICE_TYPE(soft) = {.name = "GPU",
                     .priority = 210,
                     .memory_limit = 256 << 20,
                     .ops = &soft_ops,
                     .kernels = soft_kernels,
                     .more_kernels = soft_borrow,
                     .count = soft_count,
                     .start = soft_start};
