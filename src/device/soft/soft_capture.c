/* Work for the soft device's stream that computes: queued, or kept to be queued again.
 *
 * A piece of work has addresses and no references. When it is queued it takes its turns at the memory (soft_memory.c);
 * in a capture it takes none: a replay is one piece of work on the stream, in which all of it runs in order, after all
 * that was queued before. What reads on other streams afterwards waits for the last replay. Values that are taken while
 * the capture is made have their places in one block, as planned; others' blocks are the capture's own, and are used
 * for nothing else. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/ref.h"
#include "device/memory_plan.h"
#include "device/soft/soft.h"

struct soft_capture {
  struct device_capture head;
  struct soft_device *of;
  VEC(struct soft_work *) works;
  VEC(struct buffer *) blocks;
  struct soft_planned *planned;
  size_t bytes; /* of the blocks and what was planned */
};

/* What was planned, for as long as the capture or one of its values is there. */
struct soft_planned {
  struct ref refs;
  struct tensor block; /* of the device */
  pthread_mutex_t lock;
  struct memory_serving serving; /* lock */
};

static _Thread_local struct soft_capture *capturing; /* by this thread, now */

static struct soft_device *self(const struct device *d) { return d->impl; }

bool soft_captures(const struct device *d) { return capturing && capturing->of == self(d); }
void soft_capture_block(struct buffer *b) {
  vec_push(&capturing->blocks, buffer_ref(b));
  capturing->bytes += b->size;
}

/* ---- places ---- */

static void planned_unref(struct soft_planned *p) {
  if (!p || !ref_drop(&p->refs)) return;
  tensor_release(&p->block);
  memory_serving_release(&p->serving);
  pthread_mutex_destroy(&p->lock);
  free(p);
}

/* NULL: there is no plan, or no room for it. */
static struct soft_planned *planned_new(struct device *d, const struct memory_plan *plan) {
  if (!plan || !plan->total) return NULL;
  struct shape shape = shape_vector((int64_t)plan->total);
  struct tensor block;
  shoal_status s = device_tensor_new(d, "captured steps", SHOAL_UINT8, &shape, &block);
  shoal_status_free(s);
  if (s) return NULL;
  struct soft_planned *p = mem_zalloc(1, sizeof *p);
  ref_init(&p->refs, 1);
  pthread_mutex_init(&p->lock, NULL);
  tensor_move(&p->block, &block);
  memory_serving_init(&p->serving, plan);
  return p;
}

struct soft_place {
  struct soft_planned *of; /* a reference */
  size_t span;
};

static void leave_place(struct buffer *b) {
  struct soft_place at = *(struct soft_place *)b->owner;
  free(b->owner);
  pthread_mutex_lock(&at.of->lock);
  memory_serving_give(&at.of->serving, at.span);
  pthread_mutex_unlock(&at.of->lock);
  planned_unref(at.of);
}

struct buffer *soft_capture_place(size_t size) {
  struct soft_planned *p = capturing->planned;
  size_t span;
  if (!p) return NULL;
  pthread_mutex_lock(&p->lock);
  bool is = memory_serving_take(&p->serving, size, &span);
  pthread_mutex_unlock(&p->lock);
  if (!is) return NULL;
  struct soft_place *at = mem_alloc(sizeof *at);
  *at = (struct soft_place){p, span};
  ref_take(&p->refs);
  return buffer_wrap((char *)soft_data(&p->block) + p->serving.spans.at[span].at, size, NULL, leave_place, at);
}

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
  c->planned = planned_new(d, memory_plan_used(d));
  if (c->planned) c->bytes = tensor_bytes(&c->planned->block);
  capturing = c;
  *out = &c->head;
  return NULL;
}

shoal_status soft_capture_end(struct device *d, struct device_capture *of) {
  struct memory_plan *planned = memory_plan_used(d);
  if (planned) planned->has = ((struct soft_capture *)of)->bytes;
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
  planned_unref(c->planned);
  free(c);
}
