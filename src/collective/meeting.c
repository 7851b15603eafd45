/* Groups and instances are found in short lists: a step has few groups, and an instance is forgotten when its last
 * member has come. Of instances there are several lists, by their keys: a device may come to hundreds before the next
 * one does. A group's members stay known for the step, so that a device too many is told at once, as TensorFlow
 * tells it. Unlike there an error ends with its step: the next may use the same keys.
 *
 * How a wait ends (complete, refused, cancelled, timed out) is decided under the lock by whoever clears
 * member->instance; that one calls done. Lock order: the meeting's before a cancel's or the alarms' own; both call back
 * without theirs. */
#include "collective/meeting.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/clock.h"
#include "base/going_on.h"
#include "base/mem.h"
#include "base/together.h"
#include "base/vec.h"
#include "collective/exchange.h"

enum { LISTS = 64 };

struct group {
  struct group *next;
  int key, size, n;
  const struct device *devices[]; /* [size], n of them so far */
};

struct meeting_instance {
  struct meeting_instance *next;
  struct group *group;
  struct order_place place;
  int key, n;
  shoal_status why; /* once it is decided: that there is no result */
  uint64_t frame, iter;
  struct collective_member *members[]; /* [group size], n of them so far, in order of rank */
};

struct meeting {
  pthread_mutex_t lock;
  struct group *groups;                      /* lock */
  struct meeting_instance *instances[LISTS]; /* lock: those not complete */
  struct orders orders;                      /* lock */
};

struct meeting *meeting_new(void) {
  struct meeting *m = mem_zalloc(1, sizeof *m);
  pthread_mutex_init(&m->lock, NULL);
  return m;
}

void meeting_free(struct meeting *m) {
  for (int i = 0; i < LISTS; i++) MUST(!m->instances[i]);
  for (struct group *g = m->groups, *next; g; g = next) {
    next = g->next;
    free(g);
  }
  pthread_mutex_destroy(&m->lock);
  free(m);
}

/* ---- ending waits ---- */

static struct meeting_instance **list_of(struct meeting *m, int key, uint64_t iter) {
  return &m->instances[((unsigned)key + iter) % LISTS];
}

static void unlink_instance(struct meeting *m, struct meeting_instance *at) {
  struct meeting_instance **p = list_of(m, at->key, at->iter);
  while (*p != at) p = &(*p)->next;
  *p = at->next;
}

static void finish(struct collective_member *m, shoal_status s, struct tensor *result) {
  INVARIANT(5, !m->instance);
  if (m->cancel) cancel_deregister(m->cancel, &m->hook);
  alarm_clear(&m->alarm);
  m->done(m, s, result);
}

/* With the lock held: takes one member out of the instance it waits in; false when its wait has ended otherwise. */
static bool take_out(struct collective_member *m) {
  struct meeting_instance *at = m->instance;
  if (!at) return false;
  int i = 0;
  while (at->members[i] != m) i++;
  memmove(&at->members[i], &at->members[i + 1], (size_t)(--at->n - i) * sizeof *at->members);
  orders_leave(&m->meeting->orders, &m->order);
  if (!at->n) {
    unlink_instance(m->meeting, at);
    block_free(at);
  }
  m->instance = NULL;
  return true;
}

static void give_up(struct collective_member *m, shoal_status (*why)(const struct collective_member *m)) {
  pthread_mutex_lock(&m->meeting->lock);
  bool mine = take_out(m);
  pthread_mutex_unlock(&m->meeting->lock);
  if (mine) finish(m, why(m), NULL);
}

static shoal_status cancelled(const struct collective_member *m) {
  return status_mark_derived(STATUS(SHOAL_CANCELLED, "Collective op %s was cancelled", m->name));
}

static shoal_status timed_out(const struct collective_member *m) {
  return STATUS(SHOAL_DEADLINE_EXCEEDED, "Collective has timed out waiting for other workers.");
}

static void on_cancel(void *arg) { give_up(arg, cancelled); }
static void on_time_out(void *arg) { give_up(arg, timed_out); }

/* ---- joining ---- */

static shoal_status find_group(struct meeting *m, const struct collective_member *c, struct group **out) {
  struct group *g = m->groups;
  while (g && g->key != c->group_key) g = g->next;
  if (!g) {
    g = mem_zalloc(1, sizeof *g + (size_t)c->group_size * sizeof *g->devices);
    *g = (struct group){.next = m->groups, .key = c->group_key, .size = c->group_size};
    m->groups = g;
  }
  if (g->n && g->devices[0]->type != c->device->type)
    return INTERNAL("Device %s is joining a group with device type %s, but that group has type %s (group_key=%d)",
                    c->device->name, c->device->type->name, g->devices[0]->type->name, g->key);
  if (g->size != c->group_size)
    return INTERNAL("Device %s is joining a group with size %d, but that group has size %d (group_key=%d)",
                    c->device->name, c->group_size, g->size, g->key);
  int i = 0;
  while (i < g->n && g->devices[i] != c->device) i++;
  if (i == g->size)
    return INTERNAL("Device %s is joining a group that is already full (group_key=%d)", c->device->name, g->key);
  if (i == g->n) g->devices[g->n++] = c->device;
  *out = g;
  return NULL;
}

static struct meeting_instance *find_instance(struct meeting *m, struct group *g, const struct collective_member *c) {
  struct meeting_instance **list = list_of(m, c->instance_key, c->iter), *at = *list;
  while (at && !(at->group == g && at->key == c->instance_key && at->frame == c->frame && at->iter == c->iter))
    at = at->next;
  if (at) return at;
  at = block_alloc(sizeof *at + (size_t)g->size * sizeof *at->members);
  *at = (struct meeting_instance){.next = *list,
                                  .group = g,
                                  .place = {.key = orders_key(g->key, c->instance_key), .step = c->step},
                                  .key = c->instance_key,
                                  .frame = c->frame,
                                  .iter = c->iter};
  return *list = at;
}

/* Whether the newcomer fits those who are there. */
static shoal_status check_newcomer(const struct meeting_instance *at, const struct collective_member *c) {
  for (int i = 0; i < at->n; i++) {
    const struct collective_member *other = at->members[i];
    if (other->kind != c->kind || other->dtype != c->dtype)
      return INTERNAL("Collective instance %d expected type %d and data_type %d but got type %d and data_type %d",
                      at->key, other->kind, other->dtype, c->kind, c->dtype);
    int theirs = collective_arithmetic_code(other->arithmetic), own = collective_arithmetic_code(c->arithmetic);
    if (theirs != own)
      return INVALID("Collective instance %d expected %s but got %s from %s", at->key,
                     collective_arithmetic_name(theirs), collective_arithmetic_name(own), c->device->name);
    if (!shape_equal(&other->shape, &c->shape))
      return INVALID(
          "Shape mismatch in the collective instance %d. Op at device %s expected shape %s but another member in the "
          "group expected shape %s. This is likely due to different input shapes at different members of the "
          "collective op.",
          at->key, c->device->name, shape_str(&c->shape), shape_str(&other->shape));
    if (c->rank >= 0 && other->rank == c->rank)
      return INVALID("Collective ops %s and %s of group %d both claim rank %d", other->name, c->name, at->group->key,
                     c->rank);
    if (other->device == c->device)
      return INVALID("Collective ops %s and %s both take part in instance %d of group %d on device %s", other->name,
                     c->name, at->key, at->group->key, c->device->name);
    if (other->is_source && c->is_source)
      return INTERNAL("Instance %d already has source %d, received second claim from %d", at->key,
                      other->device->ordinal, c->device->ordinal);
  }
  return NULL;
}

/* Devices of one task and type differ in their number alone. */
static int place_of(const struct collective_member *c) { return c->rank >= 0 ? c->rank : c->device->ordinal; }

static void insert_by_rank(struct meeting_instance *at, struct collective_member *c) {
  int i = at->n++;
  for (; i && place_of(at->members[i - 1]) > place_of(c); i--) at->members[i] = at->members[i - 1];
  at->members[i] = c;
  c->instance = at;
}

static shoal_status check_complete(const struct meeting_instance *at) {
  if (at->members[0]->kind != COLLECTIVE_BROADCAST) return NULL;
  for (int i = 0; i < at->n; i++)
    if (at->members[i]->is_source) return NULL;
  return INTERNAL(
      "Instance %d found no source for broadcast.  This could mean that there were group_size=%d BcastRecvs but no "
      "BcastSend.",
      at->key, at->n);
}

/* The instance is out of the list and its members' waits are decided: ends them all. more: and others after them. */
static void conclude(struct meeting_instance *at, bool more) {
  struct tensor *results = block_zalloc((size_t)at->n * sizeof *results);
  shoal_status s = at->why;
  if (!s) s = check_complete(at);
  if (s) status_prefix(s, "Collective ops is aborted by: ");
  else s = exchange_run(at->members, at->n, results);
  for (int i = 0; i < at->n; i++) {
    bool before = going_on_among_others(more || i + 1 < at->n);
    finish(at->members[i], s ? status_copy(s) : NULL, s ? NULL : &results[i]);
    going_on_among_others(before);
  }
  block_free(results);
  shoal_status_free(s);
  block_free(at);
}

/* What one thread's newcomers have led to. */
struct admission {
  struct meeting_instance *ended, **last; /* to be concluded */
  struct collective_member *refused;      /* they came to no instance; why is in `refusal` */
};

/* With the lock held: its members' waits are decided. s (which stays the caller's): there is no result. */
static void decide(struct meeting *m, struct meeting_instance *at, shoal_status s, struct admission *a) {
  unlink_instance(m, at);
  for (int i = 0; i < at->n; i++) {
    at->members[i]->instance = NULL;
    orders_leave(&m->orders, &at->members[i]->order);
  }
  at->why = s ? status_copy(s) : NULL;
  at->next = NULL;
  *a->last = at;
  a->last = &at->next;
}

/* With the lock held: are there members now that wait for each other (orders.h)? The instances where they do are
 * decided. */
static void check_order(struct meeting *m, struct collective_member *c, struct admission *a) {
  c->order = (struct order_wait){.device = c->device->name, .holds = c->holds};
  if (!orders_wait(&m->orders, &c->instance->place, &c->order)) return;
  VEC(struct meeting_instance *) circle = {0};
  shoal_status s = orders_circle(&c->order);
  struct order_wait *e = &c->order;
  do {
    vec_push(&circle, (struct meeting_instance *)((char *)e->place - offsetof(struct meeting_instance, place)));
    e = e->held_by;
  } while (e != &c->order);
  for (size_t i = 0; i < circle.n; i++) decide(m, circle.at[i], s, a);
  vec_release(&circle);
  shoal_status_free(s);
}

/* With the lock held. An instance that is now complete, or that the newcomer does not fit (and is in), is decided. An
 * error: it came to none. */
static shoal_status admit(struct meeting *m, struct collective_member *c, struct admission *a) {
  struct group *g;
  TRY(find_group(m, c, &g));
  struct meeting_instance *at = find_instance(m, g, c);
  shoal_status s = check_newcomer(at, c);
  bool waits = at->n + 1 < g->size;
  if (!s && c->cancel && (waits ? !cancel_register(c->cancel, &c->hook, on_cancel, c) : cancel_started(c->cancel)))
    s = cancelled(c);
  insert_by_rank(at, c);
  if (!s && waits) {
    if (c->timeout_s > 0) alarm_set(&c->alarm, clock_ns() + (int64_t)(MIN(c->timeout_s, 1e9) * 1e9), on_time_out, c);
    check_order(m, c, a);
    return NULL;
  }
  decide(m, at, s, a);
  shoal_status_free(s);
  return NULL;
}

/* Those who come together, linked by next. The meeting may be gone when the last of them is told. */
static void admit_all(struct meeting *m, struct collective_member *first) {
  struct admission a = {.last = &a.ended};
  pthread_mutex_lock(&m->lock);
  for (struct collective_member *c = first, *next; c; c = next) {
    next = c->next;
    shoal_status s = admit(m, c, &a); /* if it is decided by now it is still there: we tell it */
    if (!s) continue;
    c->refusal = s;
    c->next = a.refused;
    a.refused = c;
  }
  pthread_mutex_unlock(&m->lock);
  for (struct collective_member *c = a.refused, *next; c; c = next) {
    next = c->next;
    c->done(c, status_prefix(c->refusal, "Collective ops is aborted by: "), NULL);
  }
  for (struct meeting_instance *at = a.ended, *next; at; at = next) {
    next = at->next;
    conclude(at, next);
  }
}

/* Those that a thread comes to one after another (base/together.h). */
struct newcomers {
  struct together together; /* first */
  struct meeting *meeting;
  struct collective_member *first, **last;
};

static __thread struct newcomers *open_newcomers; /* this thread's */

static void come(struct together *t) {
  struct newcomers a = *(struct newcomers *)t;
  if (open_newcomers == (struct newcomers *)t) open_newcomers = NULL;
  block_free(t);
  admit_all(a.meeting, a.first);
}

void meeting_join(struct meeting *m, struct collective_member *c) {
  c->meeting = m;
  c->next = NULL;
  if (c->group_size > c->device->task_devices) {
    c->done(c,
            UNIMPLEMENTED("Collective op %s: group %d has %d members, but its task has %d devices of that type, and no "
                          "others to meet",
                          c->name, c->group_key, c->group_size, c->device->task_devices),
            NULL);
    return;
  }
  struct newcomers *a = open_newcomers;
  if (a && a->meeting == m) {
    *a->last = c;
    a->last = &c->next;
    return;
  }
  a = block_alloc(sizeof *a);
  *a = (struct newcomers){{.begin = come}, m, c, &c->next};
  if (together_leave(&a->together)) open_newcomers = a;
  else come(&a->together);
}
