/* One thread at a time is in the program (`busy`); a message that ends while another thread is there leaves its mark
 * and goes, and the thread that is there sees it before it leaves. Merges of large pieces are done by whoever is there,
 * a thread of the transport's mostly: transports see to it that this is not one that others wait for.
 *
 * Where a sum is whole once a message is merged, each piece of it is finished while the cache has it.
 *
 * After the first error no step is begun, the transport is told to abandon what is under way, and the run ends when all
 * of that has ended: until then it may write to memory that is not its own. */
#include "collective/run.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct run_message {
  struct collective_transfer transfer;
  struct collective_run *run;
  bool open;        /* run's lock */
  const char *onto; /* of a receive that merges: what it is merged with */
  bool finishes;    /* and then the sum is whole */
};

static char *address(const struct collective_run *r, struct schedule_span s) {
  char *base = s.buffer == BUFFER_IN ? (char *)r->in : s.buffer == BUFFER_OUT ? r->out : r->scratch->data;
  return base ? base + (size_t)s.at * r->element : NULL; /* a step that has no such span; a receiver has no input */
}

static struct buffer *owner(const struct collective_run *r, struct schedule_span s) {
  return s.buffer == BUFFER_IN ? r->in_owner : s.buffer == BUFFER_OUT ? r->out_owner : r->scratch;
}

static size_t size_of(const struct collective_run *r, struct schedule_span s) { return (size_t)s.n * r->element; }

/* With the lock held: whether step s writes what is still being sent. */
static bool must_wait(const struct collective_run *r, const struct schedule_step *s) {
  const char *begin = address(r, s->a), *end = begin + size_of(r, s->a);
  for (size_t i = 0; i < r->at; i++) {
    const struct run_message *m = &r->messages[i];
    const char *data = m->transfer.data;
    if (m->open && data < end && begin < data + m->transfer.bytes) return true;
  }
  return false;
}

static void advance(struct collective_run *r);

static void message_done(struct collective_transfer *t, shoal_status s) {
  struct run_message *m = (struct run_message *)t;
  struct collective_run *r = m->run;
  pthread_mutex_lock(&r->lock);
  status_merge(&r->status, s);
  m->open = false;
  r->open--;
  if (r->program->steps[m - r->messages].verb != STEP_SEND) r->waits = false;
  bool mine = !r->busy;
  r->busy = true;
  pthread_mutex_unlock(&r->lock);
  if (mine) advance(r);
}

static void merge_piece(struct collective_transfer *t, const void *piece, size_t at, size_t bytes) {
  enum { CACHED = 64 << 10 };
  struct run_message *m = (struct run_message *)t;
  const struct collective_arithmetic *a = m->run->arithmetic;
  bool finishes = m->finishes && a->final;
  size_t element = m->run->element, most = finishes ? MAX(CACHED / element, (size_t)1) * element : bytes;
  for (const char *from = piece, *end = from + bytes; from < end;) {
    size_t here = MIN(most, (size_t)(end - from));
    char *sum = (char *)t->data + at;
    a->merge(a, sum, m->onto + at, from, (int64_t)(here / element));
    if (finishes) a->final(a, sum, m->run->members, (int64_t)(here / element));
    from += here;
    at += here;
  }
}

/* Whether the step after s only finishes what s merges. */
static bool is_finished_next(const struct collective_run *r, const struct schedule_step *s) {
  const struct schedule_step *next = s + 1;
  return next < r->program->steps + r->program->n && next->verb == STEP_FINISH && next->a.buffer == s->a.buffer &&
         next->a.at == s->a.at && next->a.n == s->a.n;
}

static void begin_message(struct collective_run *r, const struct schedule_step *s) {
  struct run_message *m = &r->messages[r->at];
  m->run = r;
  m->transfer = (struct collective_transfer){.peer = s->peer,
                                             .label = s->label,
                                             .data = address(r, s->a),
                                             .bytes = size_of(r, s->a),
                                             .owner = owner(r, s->a),
                                             .done = message_done};
  if (s->verb == STEP_RECV_MERGE) {
    m->onto = address(r, s->b);
    m->transfer.take = merge_piece;
    m->finishes = is_finished_next(r, s);
  }
  pthread_mutex_lock(&r->lock);
  m->open = true;
  r->open++;
  r->waits = s->verb != STEP_SEND;
  pthread_mutex_unlock(&r->lock);
  (s->verb == STEP_SEND ? r->transport->ops->send : r->transport->ops->recv)(r->transport, &r->id, &m->transfer);
}

static void perform(struct collective_run *r, const struct schedule_step *s) {
  char *a = address(r, s->a), *b = address(r, s->b);
  switch (s->verb) {
    case STEP_SEND:
    case STEP_RECV:
    case STEP_RECV_MERGE: begin_message(r, s); break;
    case STEP_MERGE: r->arithmetic->merge(r->arithmetic, a, a, b, s->a.n); break;
    case STEP_COPY:
      if (a != b) memcpy(a, b, size_of(r, s->a));
      break;
    case STEP_FINISH:
      if (r->arithmetic->final) r->arithmetic->final(r->arithmetic, a, r->members, s->a.n);
  }
}

static void finish(struct collective_run *r) {
  shoal_status s = r->status;
  buffer_unref(r->scratch);
  free(r->messages);
  pthread_mutex_destroy(&r->lock);
  r->done(r, s);
}

/* Called by the one who made the run busy. */
static void advance(struct collective_run *r) {
  pthread_mutex_lock(&r->lock);
  for (;;) {
    bool over = r->status || r->at == r->program->n;
    if (r->status && !r->abandoned) {
      r->abandoned = true;
      shoal_status why = status_copy(r->status);
      pthread_mutex_unlock(&r->lock);
      r->transport->ops->abandon(r->transport, &r->id, why);
      shoal_status_free(why);
      pthread_mutex_lock(&r->lock);
      continue;
    }
    if (over && !r->open) {
      pthread_mutex_unlock(&r->lock);
      finish(r);
      return;
    }
    const struct schedule_step *s = over ? NULL : &r->program->steps[r->at];
    if (over || r->waits || (s->verb != STEP_SEND && must_wait(r, s))) break;
    pthread_mutex_unlock(&r->lock);
    perform(r, s);
    pthread_mutex_lock(&r->lock);
    r->at += r->messages[r->at].finishes ? 2 : 1;
  }
  r->busy = false;
  pthread_mutex_unlock(&r->lock);
}

void collective_run_start(struct collective_run *r) {
  if (r->transport->ops->whole) {
    r->transport->ops->whole(r->transport, r);
    return;
  }
  pthread_mutex_init(&r->lock, NULL);
  r->busy = true;
  r->waits = r->abandoned = false;
  r->open = 0;
  r->at = 0;
  r->status = NULL;
  r->messages = mem_zalloc(r->program->n + 1, sizeof *r->messages);
  size_t bytes;
  if (__builtin_mul_overflow((size_t)r->program->scratch, r->element, &bytes)) bytes = SIZE_MAX;
  r->scratch = NULL;
  if (bytes) r->status = buffer_new(bytes, &r->scratch);
  advance(r);
}

void collective_run_fail(struct collective_run *r, shoal_status s) {
  if (r->transport->ops->whole) {
    atomic_store(&r->failed, true);
    r->transport->ops->abandon(r->transport, &r->id, s);
    shoal_status_free(s);
    return;
  }
  pthread_mutex_lock(&r->lock);
  status_merge(&r->status, s);
  bool mine = !r->busy;
  r->busy = true;
  pthread_mutex_unlock(&r->lock);
  if (mine) advance(r);
}

void collective_runs_end(struct collective_run *list) {
  for (struct collective_run *r = list, *next; r; r = next) {
    next = r->next;
    shoal_status s = r->status;
    r->status = NULL;
    r->done(r, s);
  }
}
