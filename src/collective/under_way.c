#include "collective/under_way.h"

#include "collective/meeting.h"

void under_way_init(struct under_way *u) { pthread_mutex_init(&u->lock, NULL); }

void under_way_release(struct under_way *u) { pthread_mutex_destroy(&u->lock); }

static struct collective_member **list_of(struct under_way *u, const struct collective_member *m) {
  uint64_t n = (uint64_t)m->instance_key + m->iter * 31 + (uint64_t)m->device->ordinal * 7;
  return &u->lists[n % UNDER_WAY_LISTS];
}

static bool is_same(const struct collective_member *a, const struct collective_member *b) {
  return a->instance_key == b->instance_key && a->group_key == b->group_key && a->device == b->device &&
         a->step == b->step && a->frame == b->frame && a->iter == b->iter;
}

shoal_status under_way_enter(struct under_way *u, struct collective_member *m) {
  struct collective_member **list = list_of(u, m), *x;
  shoal_status s = NULL;
  pthread_mutex_lock(&u->lock);
  for (x = *list; x && !is_same(x, m); x = x->under.next) continue;
  if (x) {
    s = INVALID("Collective ops %s and %s both take part in instance %d of group %d on device %s", x->name, m->name,
                m->instance_key, m->group_key, m->device->name);
  } else {
    m->under.prev = NULL;
    m->under.next = *list;
    if (*list) (*list)->under.prev = m;
    *list = m;
    m->under.way = true;
  }
  pthread_mutex_unlock(&u->lock);
  return s;
}

void under_way_leave(struct under_way *u, struct collective_member *m) {
  if (!m->under.way) return;
  pthread_mutex_lock(&u->lock);
  if (m->under.prev) m->under.prev->under.next = m->under.next;
  else *list_of(u, m) = m->under.next;
  if (m->under.next) m->under.next->under.prev = m->under.prev;
  m->under.way = false;
  pthread_mutex_unlock(&u->lock);
}
