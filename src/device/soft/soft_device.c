/* The soft device: streams, copies, the type. See soft.h. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/latch.h"
#include "base/mem.h"
#include "device/soft/soft.h"
#include "ops/array/strided.h"
#include "runtime/kernel_borrow.h"

enum { MOST = 16 };
#define CARD_MEMORY ((int64_t)1 << 30) /* what one is said to have */

/* ---- copies ---- */

static struct soft_device *self(const struct device *d) { return d->impl; }

struct soft_upload {
  struct tensor from; /* held until it is done */
  void *to;
  struct soft_turn turn, replays;
};

static void upload(void *arg) {
  struct soft_upload *u = arg;
  struct tensor open;
  soft_turn_begin(&u->replays);
  soft_turn_end(&u->replays);
  soft_open(&u->from, &open);
  soft_turn_begin(&u->turn);
  if (open.n) memcpy(u->to, open.data, tensor_bytes(&open));
  soft_turn_end(&u->turn);
  tensor_release(&open);
  tensor_release(&u->from);
  free(u);
}

/* Of the host, or of another soft device, whose work that writes it is waited for. */
static shoal_status soft_bring(struct device *d, const char *who, const struct tensor *from, struct tensor *to) {
  struct buffer *b;
  TRY(soft_alloc(d, who, tensor_bytes(from), &b));
  tensor_move(to, from); /* its type and shape */
  to->buffer = b;
  to->data = b->data;
  if (soft_captures(d)) {
    shoal_status s = soft_capture_in(d, from, to);
    if (s) tensor_release(to);
    return s;
  }
  struct soft_upload *u = mem_zalloc(1, sizeof *u);
  tensor_ref(&u->from, from);
  u->to = soft_data(to);
  u->turn = soft_write(to);
  u->replays = soft_turn_after_replays(self(from->buffer->device ? from->buffer->device : d)->memory);
  pool_submit(self(d)->in, upload, u);
  return NULL;
}

/* Work without references: the marks of the memory are enough. */
struct soft_move {
  struct soft_work head;
  void *to;
  const void *from; /* NULL: zeros */
  size_t bytes;
};

static void move(struct soft_work *w) {
  const struct soft_move *m = (struct soft_move *)w;
  if (m->from && m->bytes) memcpy(m->to, m->from, m->bytes);
  if (!m->from) memset(m->to, 0, m->bytes);
}

static void soft_copy(struct device *d, const struct tensor *from, const struct tensor *to, size_t at) {
  struct soft_move *m = mem_zalloc(1, sizeof *m);
  *m = (struct soft_move){
      .head.run = move, .to = (char *)soft_data(to) + at, .from = soft_data(from), .bytes = tensor_bytes(from)};
  soft_work_reads(&m->head, from);
  soft_work_writes(&m->head, to);
  soft_queue(d, &m->head);
}

void soft_zero(struct device *d, const struct tensor *t) {
  struct soft_move *m = mem_zalloc(1, sizeof *m);
  *m = (struct soft_move){.head.run = move, .to = soft_data(t), .bytes = tensor_bytes(t)};
  soft_work_writes(&m->head, t);
  soft_queue(d, &m->head);
}

struct soft_view {
  struct soft_work head;
  struct strided view;
  shoal_dtype dtype;
  char *to;
  const char *from;
};

static void move_view(struct soft_work *w) {
  const struct soft_view *m = (struct soft_view *)w;
  strided_copy(NULL, m->dtype, &m->view, m->to, m->from);
}

static shoal_status soft_copy_view(struct device *d, const struct strided *s, const struct tensor *to, int64_t to_at,
                                   const struct tensor *from, int64_t from_at) {
  struct soft_view *m = mem_zalloc(1, sizeof *m);
  int64_t size = (int64_t)dtype_size((shoal_dtype)to->dtype);
  *m = (struct soft_view){.head.run = move_view,
                          .view = *s,
                          .dtype = (shoal_dtype)to->dtype,
                          .to = (char *)soft_data(to) + to_at * size,
                          .from = (const char *)soft_data(from) + from_at * size};
  soft_work_reads(&m->head, from);
  soft_work_writes(&m->head, to);
  soft_queue(d, &m->head);
  return NULL;
}

struct soft_wait {
  struct device *d;
  struct soft_turn replays; /* of a copy out */
  struct tensor from;       /* held until it is done */
  struct tensor *to;
  shoal_status status;
  device_done done;
  void *arg;
};

/* A card that is lost, for tests: the first device to find the file that SHOAL_SOFT_LOST names takes it away, and is.
 */
static bool is_lost(struct device *d) {
  const char *file = getenv("SHOAL_SOFT_LOST");
  if (file && !unlink(file)) atomic_store(&d->lost, true);
  return atomic_load(&d->lost);
}

static void tell(void *arg) {
  struct soft_wait w = *(struct soft_wait *)arg;
  free(arg);
  tensor_release(&w.from);
  if (!w.status && is_lost(w.d)) w.status = INTERNAL("work on %s: the card is lost to this process", w.d->name);
  w.done(w.arg, w.status);
}

static void download(void *arg) {
  struct soft_wait *w = arg;
  struct tensor open;
  soft_turn_begin(&w->replays);
  soft_turn_end(&w->replays);
  soft_open(&w->from, &open);
  w->status = tensor_copy(w->to, &open);
  tensor_release(&open);
  pool_submit(self(w->d)->events, tell, w);
}

static void soft_to_host(struct device *d, const struct tensor *from, struct tensor *to, device_done done, void *arg) {
  struct soft_wait *w = mem_zalloc(1, sizeof *w);
  *w = (struct soft_wait){.d = d, .to = to, .done = done, .arg = arg};
  tensor_ref(&w->from, from);
  w->replays = soft_turn_after_replays(self(d)->memory);
  pool_submit(self(d)->out, download, w);
}

struct soft_late {
  struct tensor from; /* held until it is done */
  struct buffer *to;  /* the same */
  struct soft_turn replays;
};

static void download_late(void *arg) {
  struct soft_late *l = arg;
  struct tensor open;
  soft_turn_begin(&l->replays);
  soft_turn_end(&l->replays);
  soft_open(&l->from, &open);
  if (open.n) memcpy(l->to->data, open.data, tensor_bytes(&open));
  tensor_release(&open);
  tensor_release(&l->from);
  buffer_unref(l->to);
  free(l);
}

static shoal_status soft_to_host_at_end(struct device *d, const struct tensor *from, struct tensor *to) {
  struct shape shape = tensor_shape(from);
  TRY(tensor_new(to, (shoal_dtype)from->dtype, &shape));
  if (soft_captures(d)) {
    soft_capture_out(d, from, to);
    return NULL;
  }
  struct soft_late *l = mem_zalloc(1, sizeof *l);
  tensor_ref(&l->from, from);
  l->to = buffer_ref(to->buffer);
  l->replays = soft_turn_after_replays(self(d)->memory);
  pool_submit(self(d)->out, download_late, l);
  return NULL;
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

static shoal_status soft_finish(struct device *d) {
  struct latch over;
  latch_init(&over, 1);
  soft_when_done(d, latch_done, &over);
  return latch_finish(&over);
}

/* ---- the type ---- */

static int soft_count(int asked) {
  const char *text = getenv("SHOAL_SOFT_GPUS");
  int have = text ? atoi(text) : 0;
  have = MAX(0, MIN(have, MOST));
  return asked < 0 ? have : MIN(asked, have);
}

static shoal_status soft_start(struct device *d, const struct device_options *o) {
  struct soft_device *s = mem_zalloc(1, sizeof *s);
  if (!d->memory_limit) d->memory_limit = (int64_t)((o->memory_fraction > 0 ? o->memory_fraction : 1) * CARD_MEMORY);
  d->description =
      mem_printf("device: %d, name: soft device for tests, pci bus id: none, compute capability: 0.0", d->card);
  s->memory = soft_memory_new(d->memory_limit);
  s->host = *d;
  s->host.type = device_type_host();
  s->compute = pool_new(1, "soft-compute");
  s->borrowed = pool_new(1, "soft-borrowed");
  s->in = pool_new(1, "soft-in");
  s->out = pool_new(1, "soft-out");
  s->events = pool_new(1, "soft-events");
  d->impl = s;
  return NULL;
}

/* What one stream hands to the next is there before that one ends. */
static void soft_free(struct device *d) {
  struct soft_device *s = d->impl;
  pool_free(s->borrowed);
  pool_free(s->compute);
  pool_free(s->in);
  pool_free(s->out);
  pool_free(s->events);
  soft_memory_free(s->memory);
  free(s);
}

static const struct device_ops soft_ops = {.alloc = soft_alloc,
                                           .to_host = soft_to_host,
                                           .to_host_at_end = soft_to_host_at_end,
                                           .from_host = soft_bring,
                                           .from_peer = soft_bring,
                                           .merge = soft_merge,
                                           .merge_across = soft_merge_across,
                                           .window_new = soft_window_new,
                                           .window_open = soft_window_open,
                                           .copy = soft_copy,
                                           .zero = soft_zero,
                                           .copy_view = soft_copy_view,
                                           .when_done = soft_when_done,
                                           .finish = soft_finish,
                                           .capture_begin = soft_capture_begin,
                                           .capture_end = soft_capture_end,
                                           .replay = soft_replay,
                                           .capture_free = soft_capture_free,
                                           .free = soft_free};

DEVICE_TYPE(soft) = {.name = "GPU",
                     .priority = 210,
                     .stands_in = true,
                     .ops = &soft_ops,
                     .kernels = soft_kernels,
                     .more_kernels = soft_borrow,
                     .lent = kernel_lent,
                     .count = soft_count,
                     .start = soft_start};
