#include "collective/shared_order.h"

#include <string.h>

#include "base/mem.h"

static bool same(const struct shared_post *a, const struct shared_post *b) {
  return a->n == b->n && a->operation == b->operation && a->element == b->element && a->root == b->root;
}

/* All have come to the i-th. */
static void put_in_order(struct shared_order *o, size_t i, struct shared_area *own) {
  uint64_t at = atomic_load(&own->ordered);
  const struct shared_candidate *c = &o->candidates.at[i];
  own->order[at % SHARED_POSTS] = (struct shared_turn_of){c->post.id, c->differs};
  atomic_store(&own->ordered, at + 1);
  memmove(&o->candidates.at[i], &o->candidates.at[i + 1], (--o->candidates.n - i) * sizeof *o->candidates.at);
}

/* True: it was the last that one of them waited for. */
static bool count(struct shared_order *o, int rank, int size, const struct shared_post *p, struct shared_area *own) {
  size_t i = 0;
  while (i < o->candidates.n && !collective_id_equal(&o->candidates.at[i].post.id, &p->id)) i++;
  if (i == o->candidates.n) {
    struct shared_candidate c = {*p, 0, -1};
    vec_push(&o->candidates, c);
  }
  struct shared_candidate *c = &o->candidates.at[i];
  if (!same(&c->post, p)) c->differs = rank;
  if (++c->count < size) return false;
  put_in_order(o, i, own);
  return true;
}

bool shared_order_look(struct shared_order *o, struct shared_area *const *areas, int size, struct shared_area *own) {
  bool more = false;
  for (int r = 0; r < size && !o->wrong; r++) {
    uint64_t posted = atomic_load(&areas[r]->posted);
    o->wrong = posted < o->seen[r] || posted - o->seen[r] > SHARED_POSTS ||
               o->candidates.n > (size_t)SHARED_POSTS * (size_t)size;
    for (; !o->wrong && o->seen[r] < posted; o->seen[r]++) {
      struct shared_post p = areas[r]->posts[o->seen[r] % SHARED_POSTS];
      more |= count(o, r, size, &p, own);
    }
  }
  return more;
}

void shared_order_clear(struct shared_order *o) {
  memset(o->seen, 0, sizeof o->seen);
  o->candidates.n = 0;
  o->wrong = false;
}

void shared_order_release(struct shared_order *o) { vec_release(&o->candidates); }

bool shared_order_has(const struct shared_area *a, const struct collective_id *id) {
  uint64_t n = atomic_load(&a->posted);
  for (uint64_t i = 1; i <= n && i <= SHARED_POSTS; i++)
    if (collective_id_equal(&a->posts[(n - i) % SHARED_POSTS].id, id)) return true;
  return false;
}
