/* What queued work uses of the host's memory, until somebody has waited for it.
 *
 * A copy of pinned memory is over when the stream has passed it; to be told so for each would take an event, and a
 * thread that waits for it. The end of the step waits for all of them anyway, and lets them go. A step that queues very
 * many gets the rest told one by one. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/cuda/cuda.h"

enum { HELD_MOST = 64 << 20 };

bool cuda_hold(struct cuda_device *c, struct buffer *b) {
  struct cuda_held_list *h = &c->held;
  if (h->bytes + b->size > HELD_MOST) return false;
  if (h->n == h->cap) {
    h->cap = MAX(2 * h->cap, (size_t)16);
    h->at = mem_realloc(h->at, h->cap, sizeof *h->at);
  }
  h->at[h->n++] = buffer_ref(b);
  h->bytes += b->size;
  return true;
}

uint64_t cuda_held_last(const struct cuda_device *c) { return c->held.first + c->held.n; }

/* With the lock held: the first n leave the list. */
static struct buffer **take(struct cuda_held_list *h, size_t n) {
  struct buffer **out = mem_alloc(n * sizeof *out);
  memcpy(out, h->at, n * sizeof *out);
  memmove(h->at, h->at + n, (h->n - n) * sizeof *h->at);
  for (size_t i = 0; i < n; i++) h->bytes -= out[i]->size;
  h->n -= n;
  h->first += n;
  return out;
}

void cuda_let_go(struct cuda_device *c, uint64_t last) {
  struct buffer **list = NULL;
  cuda_lock(c);
  size_t n = last > c->held.first ? (size_t)(last - c->held.first) : 0;
  if (n) list = take(&c->held, n);
  cuda_unlock(c);
  for (size_t i = 0; i < n; i++) buffer_unref(list[i]);
  free(list);
}
