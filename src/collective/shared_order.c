#include "collective/shared_order.h"

#include <string.h>

#include "base/mem.h"
#include "collective/shared_work.h"

static bool same(const struct shared_post *a, const struct shared_post *b) {
  return a->n == b->n && a->operation == b->operation && a->element == b->element && a->root == b->root &&
         a->arithmetic == b->arithmetic;
}

/* Where it stands; n: nowhere. They come in much the same order from everybody: it is looked for from `near` on. */
static size_t find(const struct shared_order *o, const struct collective_id *id, size_t near) {
  size_t n = o->candidates.n;
  for (size_t k = 0; k < n; k++) {
    size_t i = near + k < n ? near + k : near + k - n;
    if (collective_id_equal(&o->candidates.at[i].post.id, id)) return i;
  }
  return n;
}

/* Returns its place. */
static size_t count(struct shared_order *o, int rank, const struct shared_post *p, size_t near) {
  size_t i = find(o, &p->id, near);
  if (i == o->candidates.n) {
    struct shared_candidate c = {*p, 0, -1};
    vec_push(&o->candidates, c);
  }
  struct shared_candidate *c = &o->candidates.at[i];
  if (!same(&c->post, p)) c->differs = rank;
  c->count++;
  return i;
}

static bool read_posts(struct shared_order *o, int r, const struct shared_area *a, int size) {
  uint64_t posted = atomic_load(&a->posted);
  size_t near = 0;
  bool more = posted != o->seen[r];
  o->wrong = posted < o->seen[r] || posted - o->seen[r] > SHARED_POSTS ||
             o->candidates.n > (size_t)SHARED_POSTS * (size_t)size;
  for (; !o->wrong && o->seen[r] < posted; o->seen[r]++) {
    struct shared_post p = a->posts[o->seen[r] % SHARED_POSTS];
    near = count(o, r, &p, near) + 1;
  }
  return more;
}

/* ---- exchanges ---- */

/* One that is being put together. */
struct shared_exchange {
  uint64_t first, n; /* places in the order */
  size_t room;       /* that its sums take; 0: nothing joins it */
  int64_t step;
};

/* It goes with those before it, or is the first of another. */
static void join(struct shared_exchange *x, const struct shared_candidate *c) {
  size_t room;
  bool can = shared_work_joins((enum collective_operation)c->post.operation, c->post.n, c->post.element, &room) &&
             room && c->differs < 0;
  if (can && x->room && x->step == c->post.id.step && x->room + room <= SHARED_JOINED) {
    x->room += room;
    x->n++;
    return;
  }
  *x = (struct shared_exchange){.first = x->first + x->n, .n = 1, .room = can ? room : 0, .step = c->post.id.step};
}

/* All those that `size` ranks have come to. */
static bool put_in_order(struct shared_order *o, int size, struct shared_area *own) {
  uint64_t before = atomic_load(&own->ordered), at = before;
  struct shared_exchange x = {.first = at};
  size_t left = 0;
  for (size_t i = 0; i < o->candidates.n; i++) {
    const struct shared_candidate *c = &o->candidates.at[i];
    if (c->count < size) {
      if (left != i) o->candidates.at[left] = *c;
      left++;
      continue;
    }
    join(&x, c);
    own->order[at++ % SHARED_POSTS] = (struct shared_turn_of){.id = c->post.id, .differs = c->differs};
    own->order[x.first % SHARED_POSTS].joined = x.n;
  }
  o->candidates.n = left;
  atomic_store(&own->ordered, at);
  return at != before;
}

bool shared_order_look(struct shared_order *o, struct shared_area *const *areas, int size, struct shared_area *own) {
  bool more = false;
  for (int r = 0; r < size && !o->wrong; r++) more |= read_posts(o, r, areas[r], size);
  return more && put_in_order(o, size, own);
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
