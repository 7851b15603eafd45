/* Groups and instances are both rolls: members come until all are there. The lock is held for a look at one roll;
 * whoever is to be told is taken out of it, and told without the lock. */
#include "collective/leader.h"

#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/device_name.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/strmap.h"
#include "base/vec.h"
#include "collective/choose.h"
#include "collective/group.h"
#include "collective/orders.h"
#include "collective/refusals.h"
#include "proto/step_stats.wire.h"
#include "proto/worker.wire.h"

enum { MOST_GROUPS = 1024, MOST_INSTANCES = 16384, MOST_MEMBERS = 65536, MOST_ATTRIBUTES = 1024, MOST_TYPE = 64 };
/* More than all calls that a server has under way can tell, and many groups that are complete. */
static const size_t MOST_BYTES = 256 << 20;
/* A group that does not fit one that was complete for so long is another program's: the old one is forgotten. */
static const int64_t SETTLED_NS = 1000000000;
/* After which people are told who is missing; then each time it has lasted twice as long. */
static const int64_t SAY_NS = 5000000000;
/* Who has not come, of one gap and of all that are looked at together. */
enum { MOST_ABSENT = 64, MOST_ABSENT_IN_ALL = 1 << 15 };

struct roll_member {
  char *device;
  uint64_t asker;          /* who asked first for it */
  size_t at;               /* its place among the members */
  int waits;               /* how many questions of it wait */
  struct device_spec spec; /* of groups, as is what follows */
  int rank;                /* which it claims; -1: none */
  struct text attributes;
  struct order_wait order; /* of instances: with the memory of what it holds back */
};

struct leader_table {
  struct strmap rolls;  /* of struct leader_roll * */
  struct strmap askers; /* how many of the rolls each has begun, as a pointer */
  size_t most;
  const char *what;
};

struct leader_roll {
  char *name; /* its key in its table */
  struct leader_table *table;
  uint64_t asker; /* who has begun it */
  int size;
  int64_t began, say;                /* say: when to tell people next that some are missing */
  int64_t complete;                  /* since when; 0: some are missing */
  size_t bytes;                      /* of its members */
  VEC(struct roll_member *) members; /* of an instance: until it is complete */
  struct strmap by_device;           /* the same */
  struct leader_wait *waiting;
  /* a group */
  int key;
  char *device_type;
  struct leader_answer *answer; /* NULL: to be written */
  char *left_task;              /* of a member that has left in order and has not come again; NULL: none has */
  shoal_status left;            /* what waits for it is told; NULL likewise */
  bool sheds;                   /* its instances are about to go */
  /* an instance */
  enum collective_kind kind;
  int dtype, source;
  int arithmetic; /* 0: who came first does not say */
  int64_t step;
  int hint; /* 0: who came first does not say */
  struct shape shape;
  struct order_place place;
};

struct leader {
  pthread_mutex_t lock;
  struct leader_table groups, instances; /* lock */
  size_t bytes;                          /* lock: of all rolls */
  struct refusals refusals;              /* lock */
  struct orders orders;                  /* lock */
};

/* Who is to be told what, without the lock. */
struct leader_outcome {
  struct leader_wait *others;    /* what the asker is told */
  struct leader_wait *evicted;   /* that there was no room */
  struct leader_wait *displaced; /* that their group is another now, or why */
  shoal_status why;
};

struct leader *leader_new(void) {
  struct leader *l = mem_zalloc(1, sizeof *l);
  pthread_mutex_init(&l->lock, NULL);
  l->groups = (struct leader_table){.most = MOST_GROUPS, .what = "groups"};
  l->instances = (struct leader_table){.most = MOST_INSTANCES, .what = "instances"};
  return l;
}

struct leader_answer *leader_answer_ref(struct leader_answer *a) {
  ref_take(&a->refs);
  return a;
}

void leader_answer_unref(struct leader_answer *a) {
  if (!a || !ref_drop(&a->refs)) return;
  text_release(&a->bytes);
  free(a);
}

static void member_free(struct leader *l, struct roll_member *m) {
  orders_leave(&l->orders, &m->order);
  free((int64_t *)m->order.holds.keys);
  free(m->device);
  text_release(&m->attributes);
  free(m);
}

static void free_members(struct leader *l, struct leader_roll *r) {
  for (size_t i = 0; i < r->members.n; i++) member_free(l, r->members.at[i]);
  vec_release(&r->members);
  strmap_release(&r->by_device);
  r->by_device = (struct strmap){0};
}

static void roll_free(struct leader *l, struct leader_roll *r) {
  free_members(l, r);
  leader_answer_unref(r->answer);
  shoal_status_free(r->left);
  free(r->left_task);
  free(r->device_type);
  free(r->name);
  free(r);
}

static void table_release(struct leader *l, struct leader_table *t) {
  void *r;
  for (size_t i = 0; strmap_next(&t->rolls, &i, NULL, &r);) roll_free(l, r);
  strmap_release(&t->rolls);
  strmap_release(&t->askers);
}

void leader_free(struct leader *l) {
  table_release(l, &l->groups);
  table_release(l, &l->instances);
  refusals_release(&l->refusals);
  pthread_mutex_destroy(&l->lock);
  free(l);
}

/* ---- rolls: with the lock held ---- */

/* How many one asker has begun. */
static intptr_t count(struct leader_table *t, uint64_t asker, int by) {
  char name[32];
  snprintf(name, sizeof name, "%" PRIu64, asker);
  intptr_t n = (intptr_t)strmap_get(&t->askers, name) + by;
  if (by && n) strmap_put(&t->askers, name, (void *)n);
  else if (by) strmap_remove(&t->askers, name);
  return n;
}

static struct leader_roll *roll_new(struct leader_table *t, const char *name, uint64_t asker, int size) {
  struct leader_roll *r = mem_zalloc(1, sizeof *r);
  r->name = mem_strdup(name);
  r->table = t;
  r->asker = asker;
  r->size = size;
  r->began = clock_ns();
  r->say = r->began + SAY_NS;
  r->source = -1;
  strmap_put(&t->rolls, name, r);
  count(t, asker, 1);
  return r;
}

static struct leader_wait *let_go(struct leader_roll *r) {
  struct leader_wait *waiting = r->waiting;
  for (struct leader_wait *w = waiting; w; w = w->next) w->roll = NULL;
  r->waiting = NULL;
  return waiting;
}

/* Nobody finds it any more; those who wait in it are the caller's to tell. */
static struct leader_wait *roll_drop(struct leader *l, struct leader_roll *r) {
  struct leader_wait *waiting = let_go(r);
  l->bytes -= r->bytes;
  count(r->table, r->asker, -1);
  strmap_remove(&r->table->rolls, r->name);
  roll_free(l, r);
  return waiting;
}

/* What members say of it does not fit: all who are here are told why, and remembered. size: as whoever came last has
 * it; where two differ in it, as many may come as the larger says. */
static struct leader_wait *roll_refuse(struct leader *l, struct leader_roll *r, const char *device, uint64_t asker,
                                       int size, shoal_status why) {
  struct refusal *f = refusals_add(&l->refusals, r->name, (size_t)MAX(r->size, size), why);
  for (size_t i = 0; f && i < r->members.n; i++) refusal_tell(f, r->members.at[i]->device, r->members.at[i]->asker);
  if (f) refusal_tell(f, device, asker);
  return roll_drop(l, r);
}

/* What a member is told that comes to what was refused, where nobody will come again. */
static shoal_status refused(struct leader *l, const char *name, const char *device, uint64_t asker) {
  struct refusal *f = l->refusals.tells ? refusals_find(&l->refusals, name) : NULL;
  if (!f) return NULL;
  refusal_tell(f, device, asker);
  return status_copy(f->why);
}

static struct leader_wait *roll_complete(struct leader *l, struct leader_roll *r) {
  struct leader_wait *waiting = let_go(r);
  refusals_forget(&l->refusals, r->name);
  r->complete = clock_ns();
  return waiting;
}

/* Who has begun the most rolls; of several, the first. */
static uint64_t find_greediest(const struct leader_table *t, intptr_t *most) {
  void *n;
  const char *name, *greediest = "0";
  *most = 0;
  for (size_t i = 0; strmap_next(&t->askers, &i, &name, &n);) {
    if ((intptr_t)n <= *most) continue;
    *most = (intptr_t)n;
    greediest = name;
  }
  return strtoull(greediest, NULL, 10);
}

static struct leader_roll *find_oldest(const struct leader_table *t, uint64_t asker, bool complete) {
  void *value;
  for (size_t i = 0; strmap_next(&t->rolls, &i, NULL, &value);) {
    struct leader_roll *r = value;
    if (r->asker == asker && !r->complete == !complete) return r;
  }
  return NULL;
}

static shoal_status full(const struct leader_table *t) {
  return STATUS(SHOAL_RESOURCE_EXHAUSTED, "%zu collective %s wait for members, as many as a leader keeps", t->most,
                t->what);
}

/* For one more roll: of whoever has the most, the oldest that is complete goes, else the oldest of another. */
static shoal_status make_room(struct leader *l, struct leader_table *t, uint64_t asker, struct leader_outcome *o) {
  if (t->rolls.n < t->most) return NULL;
  intptr_t most;
  uint64_t greediest = find_greediest(t, &most);
  if (count(t, asker, 0) >= most) greediest = asker;
  struct leader_roll *r = find_oldest(t, greediest, true);
  if (!r && greediest != asker) r = find_oldest(t, greediest, false);
  if (!r) return full(t);
  o->evicted = roll_drop(l, r);
  return NULL;
}

static struct leader_roll *find_largest(const struct leader_table *t, const struct leader_roll *but) {
  struct leader_roll *largest = NULL;
  void *value;
  for (size_t i = 0; strmap_next(&t->rolls, &i, NULL, &value);) {
    struct leader_roll *r = value;
    if (r != but && r->complete && (!largest || r->bytes > largest->bytes)) largest = r;
  }
  return largest;
}

/* A member of r is to take n bytes. The group is r, or that of an instance: it makes no room for itself. */
static shoal_status take_bytes(struct leader *l, const struct leader_roll *group, struct leader_roll *r, size_t n) {
  while (l->bytes + n > MOST_BYTES) {
    struct leader_roll *largest = find_largest(&l->groups, group);
    if (!largest)
      return STATUS(SHOAL_RESOURCE_EXHAUSTED, "Members of collective groups take %zu bytes, as many as a leader keeps",
                    l->bytes);
    roll_drop(l, largest);
  }
  l->bytes += n;
  r->bytes += n;
  return NULL;
}

static struct roll_member *find_member(const struct leader_roll *r, const char *device) {
  return strmap_get(&r->by_device, device);
}

/* What one takes, beside what it tells of its device. */
static size_t member_bytes(const char *device) { return sizeof(struct roll_member) + 2 * strlen(device) + 64; }

static shoal_status add_member(struct leader *l, const struct leader_roll *group, struct leader_roll *r,
                               const char *device, uint64_t asker, struct roll_member **out) {
  struct roll_member *m = *out = find_member(r, device);
  if (m) return NULL;
  TRY(take_bytes(l, group, r, member_bytes(device)));
  m = *out = mem_zalloc(1, sizeof *m);
  m->device = mem_strdup(device);
  m->asker = asker;
  m->at = r->members.n;
  vec_push(&r->members, m);
  strmap_put(&r->by_device, device, m);
  return NULL;
}

static size_t holds_bytes(const struct roll_member *m) { return (size_t)m->order.holds.n * sizeof(int64_t); }

static void remove_member(struct leader *l, struct leader_roll *r, struct roll_member *m) {
  size_t bytes = member_bytes(m->device) + m->attributes.n + holds_bytes(m);
  l->bytes -= bytes;
  r->bytes -= bytes;
  struct roll_member *last = vec_pop(&r->members);
  r->members.at[m->at] = last; /* perhaps itself, behind the end */
  last->at = m->at;
  strmap_remove(&r->by_device, m->device);
  member_free(l, m);
}

static void wait_in(struct leader_roll *r, struct leader_wait *w, struct roll_member *m) {
  w->roll = r;
  w->member = m;
  LIST_ADD(r->waiting, w);
  m->waits++;
}

bool leader_leave(struct leader *l, struct leader_wait *w, struct text *why) {
  pthread_mutex_lock(&l->lock);
  struct leader_roll *r = w->roll;
  if (r) {
    if (why) text_addf(why, "%zu of %d members came:", r->members.n, r->size);
    for (size_t i = 0; why && i < MIN(r->members.n, 16); i++) text_addf(why, " %s", r->members.at[i]->device);
    LIST_REMOVE(r->waiting, w);
    w->roll = NULL;
    if (!--w->member->waits) remove_member(l, r, w->member);
    if (!r->members.n) roll_drop(l, r);
  }
  pthread_mutex_unlock(&l->lock);
  return r != NULL;
}

static struct leader_wait *joined(struct leader_wait *list, struct leader_wait *more) {
  for (struct leader_wait *next; more; more = next) {
    next = more->next;
    more->next = list;
    list = more;
  }
  return list;
}

static struct leader_roll *group_of(const struct leader *l, const struct leader_roll *instance) {
  return strmap_getn(&l->groups.rolls, instance->name, strcspn(instance->name, ":"));
}

/* With the lock held: of all groups that shed theirs, in one walk, the instances go; or only those that are not
 * complete. Who waits in them is added to the list. */
static void shed_instances(struct leader *l, bool complete, struct leader_wait **waiting) {
  VEC(struct leader_roll *) dropped = {0};
  void *value;
  for (size_t i = 0; strmap_next(&l->instances.rolls, &i, NULL, &value);) {
    struct leader_roll *r = value;
    const struct leader_roll *group = r->complete && !complete ? NULL : group_of(l, r);
    if (group && group->sheds) vec_push(&dropped, r);
  }
  for (size_t i = 0; i < dropped.n; i++) *waiting = joined(*waiting, roll_drop(l, dropped.at[i]));
  vec_release(&dropped);
}

/* ---- telling: without it ---- */

static void tell_all(struct leader_wait *list, shoal_status s, struct leader_answer *group, int source) {
  for (struct leader_wait *next; list; list = next) {
    next = list->next;
    list->done(list, s ? status_copy(s) : NULL, group, source);
  }
}

static void tell_evicted(const struct leader_outcome *o, const struct leader_table *t) {
  if (!o->evicted) return;
  shoal_status s = full(t);
  tell_all(o->evicted, s, NULL, -1);
  shoal_status_free(s);
}

static void tell_displaced(const struct leader_outcome *o, int group_key) {
  if (!o->displaced) return;
  shoal_status s = o->why ? o->why : STATUS(SHOAL_ABORTED, "Collective group %d has changed", group_key);
  tell_all(o->displaced, s, NULL, -1);
  shoal_status_free(s);
}

/* ---- groups ---- */

static int by_rank(const void *a, const void *b) {
  const struct roll_member *m = *(struct roll_member *const *)a, *n = *(struct roll_member *const *)b;
  const struct device_spec *x = &m->spec, *y = &n->spec;
  if (m->rank != n->rank) return m->rank < n->rank ? -1 : 1;
  int by = strcmp(x->job, y->job);
  if (!by) by = (x->replica > y->replica) - (x->replica < y->replica);
  if (!by) by = (x->task > y->task) - (x->task < y->task);
  if (!by) by = strcmp(x->type, y->type);
  return by ? by : (x->id > y->id) - (x->id < y->id);
}

static void sort_members(struct leader_roll *r) {
  qsort(r->members.at, r->members.n, sizeof *r->members.at, by_rank);
  for (size_t i = 0; i < r->members.n; i++) r->members.at[i]->at = i;
}

/* After sorting: either nobody claims a rank, or each has one of its own. */
static shoal_status check_ranks(const struct leader_roll *r) {
  if (r->members.at[r->members.n - 1]->rank < 0) return NULL;
  for (size_t i = 0; i < r->members.n; i++) {
    const struct roll_member *m = r->members.at[i];
    if (m->rank != (int)i)
      return INVALID("Collective group %d: of its %d members none claims rank %zu, but %s claims %d", r->key, r->size,
                     i, m->device, m->rank);
  }
  return NULL;
}

static struct leader_answer *write_group(const struct leader_roll *r) {
  struct leader_answer *a = mem_zalloc(1, sizeof *a);
  ref_init(&a->refs, 1);
  int tasks = 0;
  for (size_t i = 0; i < r->members.n; i++) {
    const char *before = i ? r->members.at[i - 1]->device : "", *device = r->members.at[i]->device;
    size_t n = device_task_length(device);
    tasks += device_task_length(before) != n || memcmp(before, device, n) != 0;
  }
  put_CompleteGroupResponse_group_key(&a->bytes, r->key);
  put_CompleteGroupResponse_group_size(&a->bytes, r->size);
  put_CompleteGroupResponse_device_type(&a->bytes, r->device_type);
  put_CompleteGroupResponse_num_tasks(&a->bytes, tasks);
  for (size_t i = 0; i < r->members.n; i++) {
    const struct text *t = &r->members.at[i]->attributes;
    put_CompleteGroupResponse_device_attributes_n(&a->bytes, t->at, t->n);
  }
  return a;
}

static shoal_status check_question(const struct group_question *q, struct device_spec *d) {
  if (q->size < 1 || q->size > MOST_MEMBERS)
    return INVALID("Collective group %d: a group has 1 to %d members, not %d", q->key, MOST_MEMBERS, q->size);
  if (strlen(q->device_type) > MOST_TYPE || wire_left(&q->attributes) > MOST_ATTRIBUTES)
    return INVALID("Collective group %d: a member tells %zu bytes of its device, and %zu of its type", q->key,
                   wire_left(&q->attributes), strlen(q->device_type));
  TRY(device_spec_parse(q->device, d));
  if (d->has_job && d->has_task && d->has_type && d->has_id) return NULL;
  return INVALID("Collective group %d: \"%s\" is not the full name of a device", q->key, q->device);
}

static shoal_status check_fit(const struct leader_roll *r, const struct group_question *q, int rank) {
  const struct roll_member *m = find_member(r, q->device);
  if (r->size != q->size)
    return INTERNAL("Device %s is joining a group with size %d, but that group has size %d (group_key=%d)", q->device,
                    q->size, r->size, q->key);
  if (strcmp(r->device_type, q->device_type))
    return INTERNAL("Device %s is joining a group with device type %s, but that group has type %s (group_key=%d)",
                    q->device, q->device_type, r->device_type, q->key);
  if ((int)r->members.n == r->size && !m)
    return INTERNAL("Device %s is joining a group that is already full (group_key=%d)", q->device, q->key);
  if (m && m->rank != rank)
    return INTERNAL("Device %s is joining a group again, with another rank (group_key=%d)", q->device, q->key);
  return NULL;
}

static bool is_settled(const struct leader_roll *r) { return r->complete && clock_ns() - r->complete > SETTLED_NS; }

/* A member that was restarted tells other things of itself. */
static shoal_status set_attributes(struct leader *l, struct leader_roll *r, struct roll_member *m, struct wire w) {
  size_t n = wire_left(&w);
  if (n == m->attributes.n && (!n || !memcmp(w.at, m->attributes.at, n))) return NULL;
  TRY(take_bytes(l, r, r, n));
  l->bytes -= m->attributes.n;
  r->bytes -= m->attributes.n;
  text_release(&m->attributes);
  text_add(&m->attributes, (const char *)w.at, n);
  leader_answer_unref(r->answer);
  r->answer = NULL;
  return NULL;
}

static uint64_t incarnation_of(struct wire attributes) {
  for (struct wire_field f; wire_next(&attributes, &f) == WIRE_FIELD;)
    if (f.tag == DeviceAttributes_incarnation) return f.value;
  return 0;
}

/* Was the task of a member, which tells this of itself now, started anew? */
static bool is_anew(const struct roll_member *m, struct wire attributes) {
  uint64_t before = incarnation_of(wire_from(m->attributes.at, m->attributes.n)), now = incarnation_of(attributes);
  return before && now && before != now;
}

static bool is_of_task(const char *device, const char *task) {
  size_t n = device_task_length(device);
  return strlen(task) == n && !memcmp(device, task, n);
}

static void has_left(struct leader_roll *group, const char *task, shoal_status why) {
  shoal_status_free(group->left);
  free(group->left_task);
  group->left = why ? status_copy(why) : NULL;
  group->left_task = why ? mem_strdup(task) : NULL;
}

/* By a member that comes: it is here again. */
static void has_come(struct leader_roll *group, const char *device) {
  if (group->left_task && is_of_task(device, group->left_task)) has_left(group, NULL, NULL);
}

/* With the lock held. *answer: a reference, unless w waits. */
static shoal_status join_group(struct leader *l, const struct group_question *q, const struct device_spec *spec,
                               struct leader_wait *w, struct leader_outcome *o, struct leader_answer **answer) {
  char name[32];
  struct roll_member *m;
  snprintf(name, sizeof name, "%d", q->key);
  TRY(refused(l, name, q->device, q->asker));
  struct leader_roll *r = strmap_get(&l->groups.rolls, name);
  int rank = collective_claimed_rank(q->attributes);
  shoal_status s = r ? check_fit(r, q, rank) : NULL;
  if (s && is_settled(r)) {
    shoal_status_free(s);
    s = NULL;
    roll_drop(l, r);
    r = NULL;
  }
  if (s && !r->complete) o->others = roll_refuse(l, r, q->device, q->asker, q->size, s);
  TRY(s);
  if (!r) {
    TRY(make_room(l, &l->groups, q->asker, o));
    r = roll_new(&l->groups, name, q->asker, q->size);
    r->key = q->key;
    r->device_type = mem_strdup(q->device_type);
  }
  s = add_member(l, r, r, q->device, q->asker, &m);
  if (!s) {
    has_come(r, q->device);
    m->spec = *spec;
    m->rank = rank;
    /* Who waits in an instance of it waits for the one before. */
    r->sheds = r->complete && is_anew(m, q->attributes);
    if (r->sheds) shed_instances(l, false, &o->displaced);
    r->sheds = false;
    s = set_attributes(l, r, m, q->attributes);
    if (s && !m->waits && !r->complete) remove_member(l, r, m);
  }
  if (s && !r->members.n) roll_drop(l, r);
  TRY(s);
  if ((int)r->members.n < r->size) {
    wait_in(r, w, m);
    return NULL;
  }
  if (!r->complete) {
    sort_members(r);
    s = check_ranks(r);
    o->others = s ? roll_drop(l, r) : roll_complete(l, r);
    TRY(s);
  }
  if (!r->answer) r->answer = write_group(r);
  *answer = leader_answer_ref(r->answer);
  return NULL;
}

void leader_ask_group(struct leader *l, const struct group_question *q, struct leader_wait *w) {
  struct leader_outcome o = {0};
  struct leader_answer *answer = NULL;
  struct device_spec spec;
  w->roll = NULL;
  shoal_status s = check_question(q, &spec);
  bool waits = false;
  if (!s) {
    pthread_mutex_lock(&l->lock);
    s = join_group(l, q, &spec, w, &o, &answer);
    waits = w->roll != NULL;
    pthread_mutex_unlock(&l->lock);
  }
  tell_evicted(&o, &l->groups);
  tell_displaced(&o, q->key);
  if (!waits) {
    tell_all(o.others, s, answer, -1);
    w->done(w, s, answer, -1);
  }
  leader_answer_unref(answer);
}

/* ---- instances ---- */

static shoal_status check_instance(const struct leader_roll *r, const struct instance_question *q) {
  if (r->kind != q->kind || r->dtype != q->dtype)
    return INTERNAL("Collective instance %d expected type %d and data_type %d but got type %d and data_type %d from %s",
                    q->key, r->kind, r->dtype, q->kind, q->dtype, q->device);
  if (r->arithmetic && q->arithmetic && r->arithmetic != q->arithmetic)
    return INVALID("Collective instance %d expected %s but got %s from %s", q->key,
                   collective_arithmetic_name(r->arithmetic), collective_arithmetic_name(q->arithmetic), q->device);
  /* Steps may differ in this, if all members do: who is in another one is told of that. */
  if (!r->complete && r->step == q->step && r->hint && q->hint && r->hint != q->hint) {
    char wanted[COLLECTIVE_HINT_NAME], got[COLLECTIVE_HINT_NAME];
    collective_hint_print(r->hint, wanted);
    collective_hint_print(q->hint, got);
    return INVALID("Collective instance %d of group %d expected communication_hint \"%s\" but got \"%s\" from %s",
                   q->key, q->group_key, wanted, got, q->device);
  }
  if (!r->complete && !shape_equal(&r->shape, &q->shape))
    return INVALID(
        "Shape mismatch in the collective instance %d. Op at device %s expected shape %s but another member in the "
        "group expected shape %s. This is likely due to different input shapes at different members of the "
        "collective op.",
        q->key, q->device, shape_str(&q->shape), shape_str(&r->shape));
  return NULL;
}

/* Does its part fit in with those of others, and with what it said before? */
static shoal_status check_part(const struct leader_roll *r, const struct instance_question *q, int rank) {
  if (r->kind != COLLECTIVE_BROADCAST || r->source < 0) return NULL;
  if (q->is_source && r->source != rank)
    return INTERNAL("Instance %d already has source %d, received second claim from %d", q->key, r->source, rank);
  if (!q->is_source && r->source == rank)
    return INTERNAL("Instance %d already has source %d, which now wants to receive", q->key, rank);
  return NULL;
}

static shoal_status check_sources(const struct leader_roll *r, int key) {
  if (r->kind != COLLECTIVE_BROADCAST || r->source >= 0) return NULL;
  return INTERNAL(
      "Instance %d found no source for broadcast.  This could mean that there were group_size=%d BcastRecvs but no "
      "BcastSend.",
      key, r->size);
}

static shoal_status find_group(struct leader *l, const struct instance_question *q, struct leader_roll **group,
                               int *rank) {
  char name[32];
  snprintf(name, sizeof name, "%d", q->group_key);
  struct leader_roll *g = strmap_get(&l->groups.rolls, name);
  const struct roll_member *m = g && g->complete && g->size == q->group_size ? find_member(g, q->device) : NULL;
  *rank = m ? (int)m->at : -1;
  *group = g;
  if (m) has_come(g, q->device);
  if (m) return NULL;
  return STATUS(SHOAL_ABORTED, "%s is not in group %d of %d here: it has to join it (again)", q->device, q->group_key,
                q->group_size);
}

/* Who is ahead has left the step before, as those who wait there will; they may not have heard of its end yet. */
static shoal_status check_step(struct leader *l, struct leader_roll **r, const struct instance_question *q,
                               struct leader_outcome *o) {
  enum { NEAR = 64 };
  if ((*r)->complete || !(*r)->step || !q->step || (*r)->step == q->step) return NULL;
  shoal_status s =
      STATUS(SHOAL_ABORTED,
             "%s comes to instance %d of collective group %d in step %" PRId64 ", where %s waits in step %" PRId64,
             q->device, q->key, q->group_key, q->step, (*r)->members.at[0]->device, (*r)->step);
  if (q->step < (*r)->step && (uint64_t)(*r)->step - (uint64_t)q->step <= NEAR) return s;
  o->displaced = roll_drop(l, *r);
  o->why = s;
  *r = NULL;
  return NULL;
}

/* With the lock held. The roll that the question belongs to, made if there is none. */
static shoal_status find_roll(struct leader *l, const struct instance_question *q, int rank, struct leader_outcome *o,
                              struct leader_roll **out) {
  char name[64];
  snprintf(name, sizeof name, "%d:%d", q->group_key, q->key);
  TRY(refused(l, name, q->device, q->asker));
  struct leader_roll *r = strmap_get(&l->instances.rolls, name);
  shoal_status s = r ? check_instance(r, q) : NULL;
  if (r && !s) s = check_part(r, q, rank);
  if (r && (r->size != q->group_size || (s && is_settled(r)))) { /* of a group that is no more, or of another program */
    o->displaced = roll_drop(l, r);
    r = NULL;
    shoal_status_free(s);
    s = NULL;
  }
  if (s && !r->complete) o->others = roll_refuse(l, r, q->device, q->asker, r->size, s);
  TRY(s);
  if (r) TRY(check_step(l, &r, q, o));
  if (!r) {
    TRY(make_room(l, &l->instances, q->asker, o));
    r = roll_new(&l->instances, name, q->asker, q->group_size);
    r->kind = q->kind;
    r->dtype = q->dtype;
    r->arithmetic = q->arithmetic;
    r->shape = q->shape;
    r->step = q->step;
    r->hint = q->hint;
    r->place.key = orders_key(q->group_key, q->key);
    r->place.step = q->step;
  }
  *out = r;
  return NULL;
}

static struct leader_wait *instance_complete(struct leader *l, struct leader_roll *r) {
  l->bytes -= r->bytes;
  r->bytes = 0;
  free_members(l, r);
  return roll_complete(l, r);
}

/* With the lock held: what a member says that it holds back, once; it closes a circle of members that wait for each
 * other, or not. */
static shoal_status hold_back(struct leader *l, const struct leader_roll *group, struct leader_roll *r,
                              struct roll_member *m, const struct instance_question *q, bool *circle) {
  *circle = false;
  if (m->order.place || m->order.holds.keys || !q->holds.n || !q->step) return NULL;
  size_t n = (size_t)q->holds.n * sizeof *q->holds.keys;
  TRY(take_bytes(l, group, r, n));
  int64_t *keys = mem_alloc(n);
  memcpy(keys, q->holds.keys, n);
  m->order.device = m->device;
  m->order.holds = (struct order_held){keys, q->holds.n};
  *circle = orders_wait(&l->orders, &r->place, &m->order);
  return NULL;
}

/* With the lock held: all who wait in the instances of a circle, that of m among them, are told. */
static shoal_status break_circle(struct leader *l, const struct roll_member *m, const struct instance_question *q,
                                 struct leader_outcome *o) {
  VEC(struct leader_roll *) rolls = {0};
  shoal_status s = orders_circle(&m->order);
  const struct order_wait *e = &m->order;
  do {
    vec_push(&rolls, (struct leader_roll *)((char *)e->place - offsetof(struct leader_roll, place)));
    e = e->held_by;
  } while (e != &m->order);
  for (size_t i = 0; i < rolls.n; i++)
    o->others = joined(o->others, roll_refuse(l, rolls.at[i], q->device, q->asker, rolls.at[i]->size, s));
  vec_release(&rolls);
  return s;
}

static shoal_status join_instance(struct leader *l, const struct instance_question *q, struct leader_wait *w,
                                  struct leader_outcome *o, int *source) {
  int rank;
  struct leader_roll *r, *group;
  struct roll_member *m;
  TRY(find_group(l, q, &group, &rank));
  TRY(find_roll(l, q, rank, o, &r));
  if (r->complete) {
    *source = r->source;
    return NULL;
  }
  shoal_status s = add_member(l, group, r, q->device, q->asker, &m);
  if (s && !r->members.n) roll_drop(l, r);
  TRY(s);
  if (q->is_source) r->source = rank;
  *source = r->source;
  bool waits = (int)r->members.n < r->size, circle = false;
  if (waits && !group->left) {
    s = hold_back(l, group, r, m, q, &circle);
    if (circle) return break_circle(l, m, q, o);
    if (!s) wait_in(r, w, m);
    else if (!m->waits) remove_member(l, r, m);
    if (!r->members.n) roll_drop(l, r);
    return s;
  }
  s = waits ? status_copy(group->left) : check_sources(r, q->key);
  o->others = s ? roll_drop(l, r) : instance_complete(l, r);
  return s;
}

void leader_ask_instance(struct leader *l, const struct instance_question *q, struct leader_wait *w) {
  struct leader_outcome o = {0};
  int source = -1;
  w->roll = NULL;
  pthread_mutex_lock(&l->lock);
  shoal_status s = join_instance(l, q, w, &o, &source);
  bool waits = w->roll != NULL;
  pthread_mutex_unlock(&l->lock);
  tell_evicted(&o, &l->instances);
  tell_displaced(&o, q->group_key);
  tell_all(o.others, s, NULL, source);
  if (!waits) w->done(w, s, NULL, source);
}

/* ---- tasks that are lost ---- */

static bool has_member_of(const struct leader_roll *group, const char *task) {
  for (size_t i = 0; i < group->members.n; i++)
    if (is_of_task(group->members.at[i]->device, task)) return true;
  return false;
}

/* The group itself stays, or goes. Where it stays, what others come to later would wait in vain as well. */
static void lose(struct leader *l, const char *task, bool stays, shoal_status why) {
  VEC(struct leader_roll *) found = {0};
  struct leader_wait *waiting = NULL;
  void *value;
  pthread_mutex_lock(&l->lock);
  for (size_t i = 0; strmap_next(&l->groups.rolls, &i, NULL, &value);) {
    struct leader_roll *r = value;
    r->sheds = r->complete && has_member_of(r, task);
    if (r->sheds) vec_push(&found, r);
  }
  if (found.n) shed_instances(l, !stays, &waiting);
  for (size_t i = 0; i < found.n; i++) {
    found.at[i]->sheds = false;
    if (stays) has_left(found.at[i], task, why);
    else roll_drop(l, found.at[i]);
  }
  pthread_mutex_unlock(&l->lock);
  vec_release(&found);
  tell_all(waiting, why, NULL, -1);
}

void leader_lose_task(struct leader *l, const char *task, shoal_status why) { lose(l, task, false, why); }

void leader_task_left(struct leader *l, const char *task, shoal_status why) { lose(l, task, true, why); }

/* ---- who is missed ---- */

static void add_absent(const struct leader *l, const struct leader_roll *r, size_t most, struct leader_gap *g) {
  const struct leader_roll *group = group_of(l, r);
  for (size_t i = 0; group && group->complete && i < group->members.n && g->absent.n < most; i++) {
    const struct roll_member *m = group->members.at[i];
    if (find_member(r, m->device)) continue;
    uint64_t incarnation = incarnation_of(wire_from(m->attributes.at, m->attributes.n));
    vec_push(&g->absent, ((struct leader_absent){mem_strdup(m->device), incarnation, (int)m->at}));
  }
}

static void count_tasks(const struct leader_roll *r, struct leader_gap *g) {
  for (size_t i = 0; i < r->members.n; i++) {
    const char *device = r->members.at[i]->device;
    char *task = mem_strndup(device, device_task_length(device));
    strmap_put(&g->tasks, task, (void *)((intptr_t)strmap_get(&g->tasks, task) + 1));
    free(task);
  }
}

static struct leader_gap gap_of(const struct leader *l, struct leader_roll *r, size_t most_absent) {
  int64_t now = clock_ns();
  struct leader_gap g = {.is_group = r->table == &l->groups,
                         .name = mem_strdup(r->name),
                         .began = r->began,
                         .size = r->size,
                         .came = (int)r->members.n,
                         .say = now >= r->say};
  if (g.say) r->say = now + (now - r->began);
  if (g.is_group) {
    g.what = mem_printf("collective group %s", r->name);
    g.type = mem_strdup(r->device_type);
    count_tasks(r, &g);
  } else {
    const char *key = strchr(r->name, ':');
    g.what = mem_printf("instance %s of collective group %.*s", key + 1, (int)(key - r->name), r->name);
    add_absent(l, r, most_absent, &g);
  }
  return g;
}

bool leader_gaps_find(struct leader *l, int64_t before, struct leader_gaps *out) {
  struct leader_table *const tables[] = {&l->groups, &l->instances};
  VEC(struct leader_roll *) found = {0};
  bool any = false;
  void *value;
  pthread_mutex_lock(&l->lock);
  for (size_t t = 0; t < COUNT_OF(tables); t++)
    for (size_t i = 0; strmap_next(&tables[t]->rolls, &i, NULL, &value);) {
      struct leader_roll *r = value;
      any = any || r->waiting;
      if (r->waiting && r->began <= before) vec_push(&found, r);
    }
  for (size_t i = 0; i < found.n; i++)
    vec_push(out, gap_of(l, found.at[i], MIN(MOST_ABSENT, MOST_ABSENT_IN_ALL / found.n)));
  pthread_mutex_unlock(&l->lock);
  vec_release(&found);
  return any;
}

void leader_gaps_release(struct leader_gaps *gaps) {
  for (size_t i = 0; i < gaps->n; i++) {
    struct leader_gap *g = &gaps->at[i];
    for (size_t k = 0; k < g->absent.n; k++) free(g->absent.at[k].device);
    vec_release(&g->absent);
    strmap_release(&g->tasks);
    free(g->name);
    free(g->what);
    free(g->type);
  }
  vec_release(gaps);
}

void leader_gap_lose(struct leader *l, const struct leader_gap *g, shoal_status why) {
  pthread_mutex_lock(&l->lock);
  struct leader_roll *r = strmap_get(g->is_group ? &l->groups.rolls : &l->instances.rolls, g->name);
  bool waits = r && !r->complete && r->began == g->began;
  struct leader_wait *waiting = waits ? roll_drop(l, r) : NULL;
  pthread_mutex_unlock(&l->lock);
  tell_all(waiting, why, NULL, -1);
}

/* ---- going ---- */

/* With the lock held: takes out one roll in which members wait for what was refused. */
static struct leader_wait *take_refused(struct leader *l, shoal_status *why) {
  for (size_t i = 0; i < l->refusals.at.n; i++) {
    struct refusal *f = l->refusals.at.at[i];
    struct leader_roll *r = strmap_get(&l->groups.rolls, f->name);
    if (!r) r = strmap_get(&l->instances.rolls, f->name);
    if (!r || r->complete) continue;
    for (size_t k = 0; k < r->members.n; k++) refusal_tell(f, r->members.at[k]->device, r->members.at[k]->asker);
    *why = status_copy(f->why);
    return roll_drop(l, r);
  }
  return NULL;
}

void leader_last_words(struct leader *l) {
  for (bool more = true; more;) {
    shoal_status why = NULL;
    pthread_mutex_lock(&l->lock);
    l->refusals.tells = true;
    struct leader_wait *waiting = take_refused(l, &why);
    pthread_mutex_unlock(&l->lock);
    more = why != NULL;
    tell_all(waiting, why, NULL, -1);
    shoal_status_free(why);
  }
}

size_t leader_left(struct leader *l, uint64_t *told, size_t room, size_t *n_told) {
  pthread_mutex_lock(&l->lock);
  size_t left = refusals_left(&l->refusals, told, room, n_told);
  pthread_mutex_unlock(&l->lock);
  return left;
}
