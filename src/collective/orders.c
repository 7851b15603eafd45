#include "collective/orders.h"

#include <inttypes.h>
#include <stddef.h>

#include "base/keyed_hash.h"
#include "base/list.h"
#include "base/text.h"

enum { MOST_LOOKS = 1 << 14 }; /* of a search: a millisecond */

static struct order_place **list_of(struct orders *o, int64_t step) {
  return &o->places[hash_keyed_number((uint64_t)step) % ORDER_LISTS];
}

static bool holds(const struct order_wait *w, int64_t key) {
  int low = 0, high = w->holds.n;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (w->holds.keys[middle] < key) low = middle + 1;
    else high = middle;
  }
  return low < w->holds.n && w->holds.keys[low] == key;
}

/* Those who wait for e, put behind the last in a search for who holds back w's own place. True: the last one does. */
static bool see_behind(struct orders *o, struct order_wait *e, const struct order_wait *w, struct order_wait **last) {
  for (struct order_place *p = *list_of(o, w->place->step); p && o->looks++ < MOST_LOOKS; p = p->next) {
    if (p->seen == o->searches || p->step != e->place->step || !holds(e, p->key)) continue;
    p->seen = o->searches;
    for (struct order_wait *f = p->waits; f && o->looks++ < MOST_LOOKS; f = f->next) {
      f->held_by = e;
      f->after = NULL;
      *last = (*last)->after = f;
      if (holds(f, w->place->key)) return true;
    }
  }
  return false;
}

/* From those who wait for w on to one that w waits for. */
static bool search(struct orders *o, struct order_wait *w) {
  struct order_wait *last = w;
  o->searches++;
  o->looks = 0;
  w->place->seen = o->searches;
  w->after = NULL;
  for (struct order_wait *e = w; e && o->looks < MOST_LOOKS; e = e->after) {
    if (!see_behind(o, e, w, &last)) continue;
    w->held_by = last;
    return true;
  }
  return false;
}

bool orders_wait(struct orders *o, struct order_place *at, struct order_wait *w) {
  if (w->place || !w->holds.n || !at->step) return false;
  if (!at->waits) LIST_ADD(*list_of(o, at->step), at);
  LIST_ADD(at->waits, w);
  w->place = at;
  return search(o, w);
}

void orders_leave(struct orders *o, struct order_wait *w) {
  struct order_place *at = w->place;
  if (!at) return;
  LIST_REMOVE(at->waits, w);
  w->place = NULL;
  if (!at->waits) LIST_REMOVE(*list_of(o, at->step), at);
}

static void add_key(struct text *t, int64_t key) {
  text_addf(t, "instance %d of collective group %d", (int)(uint32_t)(uint64_t)key, (int)((uint64_t)key >> 32));
}

shoal_status orders_circle(const struct order_wait *w) {
  enum { NAMED = 8 };
  struct text t = {0};
  int n = 0;
  const struct order_wait *e = w;
  do {
    if (n++ < NAMED) {
      text_addf(&t, "%s%s waits in ", n > 1 ? "; " : "", e->device);
      add_key(&t, e->place->key);
      text_adds(&t, " for ");
      text_addf(&t, "%s, which comes there only after ", e->held_by->device);
      add_key(&t, e->held_by->place->key);
    }
    e = e->held_by;
  } while (e != w);
  if (n > NAMED) text_addf(&t, "; and %d more", n - NAMED);
  shoal_status s = INVALID(
      "Collectives are called in other orders by their members, which wait for each other in step "
      "%" PRId64 ": %s",
      w->place->step, text_cstr(&t));
  text_release(&t);
  return s;
}
