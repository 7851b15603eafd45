/* Work for the soft device's stream that computes: queued, or kept to be queued again.
 *
 * A piece of work has addresses and no references. When it is queued it takes its turns at the memory (soft_memory.c);
 * in a capture it takes none: a replay is one piece of work on the stream, in which all of it runs in order, after all
 * that was queued before. What reads on other streams afterwards waits for the last replay. Blocks that were taken
 * while the capture was made are its own, and are used for nothing else. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/soft/soft.h"

struct soft_capture {
  struct device_capture head;
  struct soft_device *of;
  VEC(struct soft_work *) works;
  VEC(struct buffer *) blocks;
};

static _Thread_local struct soft_capture *capturing; /* by this thread, now */

static struct soft_device *self(const struct device *d) { return d->impl; }

bool soft_captures(const struct device *d) { return capturing && capturing->of == self(d); }
void soft_capture_block(struct buffer *b) { vec_push(&capturing->blocks, buffer_ref(b)); }

/* ---- work ---- */

void soft_work_reads(struct soft_work *w, const struct tensor *t) {
  if (!soft_captures(t->buffer->device)) w->turns[w->n_turns++] = soft_read(t);
}

void soft_work_writes(struct soft_work *w, const struct tensor *t) {
  if (!soft_captures(t->buffer->device)) w->turns[w->n_turns++] = soft_write(t);
}

static void run_once(void *arg) {
  struct soft_work *w = arg;
  for (int i = 0; i < w->n_turns; i++) soft_turn_begin(&w->turns[i]);
  w->run(w);
  for (int i = 0; i < w->n_turns; i++) soft_turn_end(&w->turns[i]);
  if (w->drop) w->drop(w);
  free(w);
}

void soft_queue(struct device *d, struct soft_work *w) {
  if (soft_captures(d)) vec_push(&capturing->works, w);
  else pool_submit(self(d)->compute, run_once, w);
}

/* ---- copies in and at the end ---- */

struct soft_staged {
  struct soft_work head;
  void *to;
  const void *from;
  size_t bytes;
};

static void copy(struct soft_work *w) {
  struct soft_staged *s = (struct soft_staged *)w;
  if (s->bytes) memcpy(s->to, s->from, s->bytes);
}

static void queue_copy(struct device *d, void *to, const void *from, size_t bytes) {
  struct soft_staged *s = mem_zalloc(1, sizeof *s);
  *s = (struct soft_staged){.head.run = copy, .to = to, .from = from, .bytes = bytes};
  soft_queue(d, &s->head);
}

shoal_status soft_capture_in(struct device *d, const struct tensor *from, const struct tensor *to) {
  struct buffer *staged;
  TRY(buffer_new(tensor_bytes(from), &staged));
  if (from->n) memcpy(staged->data, from->data, tensor_bytes(from));
  vec_push(&capturing->head.feeds, staged);
  queue_copy(d, soft_data(to), staged->data, tensor_bytes(from));
  return NULL;
}

void soft_capture_out(struct device *d, const struct tensor *from, const struct tensor *to) {
  vec_push(&capturing->head.fetches, buffer_ref(to->buffer));
  queue_copy(d, to->data, soft_data(from), tensor_bytes(from));
}

/* ---- captures ---- */

shoal_status soft_capture_begin(struct device *d, struct device_capture **out) {
  struct soft_capture *c = mem_zalloc(1, sizeof *c);
  c->of = self(d);
  capturing = c;
  *out = &c->head;
  return NULL;
}

shoal_status soft_capture_end(struct device *d, struct device_capture *of) {
  capturing = NULL;
  return NULL;
}

struct soft_replaying {
  struct soft_capture *c;
  struct soft_turn turn;
};

static void run_all(void *arg) {
  struct soft_replaying *r = arg;
  for (size_t i = 0; i < r->c->works.n; i++) r->c->works.at[i]->run(r->c->works.at[i]);
  soft_turn_end(&r->turn);
  free(r);
}

shoal_status soft_replay(struct device *d, struct device_capture *of) {
  struct soft_replaying *r = mem_zalloc(1, sizeof *r);
  r->c = (struct soft_capture *)of;
  r->turn = soft_turn_new();
  soft_replays_note(self(d)->memory, &r->turn);
  pool_submit(self(d)->compute, run_all, r);
  return NULL;
}

void soft_capture_free(struct device *d, struct device_capture *of) {
  struct soft_capture *c = (struct soft_capture *)of;
  for (size_t i = 0; i < c->works.n; i++) {
    if (c->works.at[i]->drop) c->works.at[i]->drop(c->works.at[i]);
    free(c->works.at[i]);
  }
  for (size_t i = 0; i < c->head.feeds.n; i++) buffer_unref(c->head.feeds.at[i]);
  for (size_t i = 0; i < c->head.fetches.n; i++) buffer_unref(c->head.fetches.at[i]);
  for (size_t i = 0; i < c->blocks.n; i++) buffer_unref(c->blocks.at[i]);
  vec_release(&c->works);
  vec_release(&c->head.feeds);
  vec_release(&c->head.fetches);
  vec_release(&c->blocks);
  free(c);
}
