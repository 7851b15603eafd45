/* The soft device: memory, streams, copies. See soft.h. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/soft/soft.h"

enum { MOST = 16, AWAY_BIT = 55 };
#define AWAY ((uintptr_t)1 << AWAY_BIT)

static void *away(const void *data) { return (void *)((uintptr_t)data | AWAY); }
static void *back(const void *data) { return (void *)((uintptr_t)data & ~AWAY); }

/* ---- memory ---- */

static void give_back(struct buffer *b) { buffer_unref(b->owner); }

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

void soft_open(const struct tensor *from, struct tensor *to) {
  tensor_ref(to, from);
  struct buffer *b = from->buffer;
  if (!b || !b->device) return;
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

struct soft_copy {
  struct device *d;
  struct tensor from; /* held until it is done */
  struct tensor *to;
  bool to_host;
  shoal_status status;
  device_done done;
  void *arg;
};

static struct soft_device *self(const struct device *d) { return d->impl; }

static void tell(void *arg) {
  struct soft_copy c = *(struct soft_copy *)arg;
  free(arg);
  tensor_release(&c.from);
  c.done(c.arg, c.status);
}

static void copy(void *arg) {
  struct soft_copy *c = arg;
  struct tensor open;
  soft_open(&c->from, &open);
  c->status = tensor_copy(c->to, &open);
  tensor_release(&open);
  if (!c->status && !c->to_host) c->status = soft_close(c->d, c->to);
  pool_submit(self(c->d)->events, tell, c);
}

/* All that was queued before it has been computed. */
static void computed(void *arg) { pool_submit(self(((struct soft_copy *)arg)->d)->copy, copy, arg); }

static struct soft_copy *copy_new(struct device *d, const struct tensor *from, struct tensor *to, bool to_host,
                                  device_done done, void *arg) {
  struct soft_copy *c = mem_zalloc(1, sizeof *c);
  *c = (struct soft_copy){.d = d, .to = to, .to_host = to_host, .done = done, .arg = arg};
  tensor_ref(&c->from, from);
  return c;
}

static void soft_to_host(struct device *d, const struct tensor *from, struct tensor *to, device_done done, void *arg) {
  pool_submit(self(d)->compute, computed, copy_new(d, from, to, true, done, arg));
}

static void soft_from_host(struct device *d, const struct tensor *from, struct tensor *to, device_done done,
                           void *arg) {
  pool_submit(self(d)->copy, copy, copy_new(d, from, to, false, done, arg));
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
  s->copy = pool_new(1, "soft-copy");
  s->events = pool_new(1, "soft-events");
  d->impl = s;
  return NULL;
}

/* What one stream hands to the next is there before that one ends. */
static void soft_free(struct device *d) {
  struct soft_device *s = d->impl;
  pool_free(s->compute);
  pool_free(s->copy);
  pool_free(s->events);
  free(s);
}

static const struct device_ops soft_ops = {
    .alloc = soft_alloc, .to_host = soft_to_host, .from_host = soft_from_host, .free = soft_free};

DEVICE_TYPE(soft) = {.name = "GPU",
                     .priority = 210,
                     .memory_limit = 256 << 20,
                     .ops = &soft_ops,
                     .kernels = soft_kernels,
                     .more_kernels = soft_borrow,
                     .count = soft_count,
                     .start = soft_start};
