/* Groups and instances are both rolls: members come until all are there. The lock is held for a look at one roll;
 * whoever is to be told is taken out of it, and told without the lock. */
#include "collective/leader.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/device_name.h"
#include "base/mem.h"
#include "base/strmap.h"
#include "base/vec.h"
#include "collective/group.h"
#include "proto/step_stats.wire.h"
#include "proto/worker.wire.h"

enum { MOST_GROUPS = 1024, MOST_INSTANCES = 16384, MOST_MEMBERS = 65536, MOST_ATTRIBUTES = 4096 };
/* A group that does not fit one that was complete for so long is another program's: the old one is forgotten. */
static const int64_t SETTLED_NS = 1000000000;

struct roll_member {
  char *device;
  struct text attributes; /* of groups */
};

struct leader_roll {
  char *name; /* its key in its table */
  struct strmap *table;
  int size;
  int64_t complete; /* since when; 0: some are missing */
  VEC(struct roll_member) members;
  struct leader_wait *waiting;
  /* a group */
  int key;
  char *device_type;
  /* an instance */
  enum collective_kind kind;
  int dtype, source;
  struct shape shape;
};

struct leader {
  pthread_mutex_t lock;
  struct strmap groups, instances; /* lock: of struct leader_roll * */
};

struct leader *leader_new(void) {
  struct leader *l = mem_zalloc(1, sizeof *l);
  pthread_mutex_init(&l->lock, NULL);
  return l;
}

static void roll_free(struct leader_roll *r) {
  for (size_t i = 0; i < r->members.n; i++) {
    free(r->members.at[i].device);
    text_release(&r->members.at[i].attributes);
  }
  vec_release(&r->members);
  free(r->device_type);
  free(r->name);
  free(r);
}

void leader_free(struct leader *l) {
  void *r;
  for (size_t i = 0; strmap_next(&l->groups, &i, NULL, &r);) roll_free(r);
  for (size_t i = 0; strmap_next(&l->instances, &i, NULL, &r);) roll_free(r);
  strmap_release(&l->groups);
  strmap_release(&l->instances);
  pthread_mutex_destroy(&l->lock);
  free(l);
}

/* ---- rolls: with the lock held ---- */

static shoal_status make_room(struct strmap *table, size_t most, const char *what) {
  void *r;
  if (table->n < most) return NULL;
  for (size_t i = 0; strmap_next(table, &i, NULL, &r);) {
    struct leader_roll *old = r;
    if (!old->complete) continue;
    strmap_remove(table, old->name);
    roll_free(old);
    return NULL;
  }
  return STATUS(SHOAL_RESOURCE_EXHAUSTED, "%zu collective %s wait for members, as many as a leader keeps", most, what);
}

static struct leader_roll *roll_new(struct strmap *table, char *name, int size) {
  struct leader_roll *r = mem_zalloc(1, sizeof *r);
  r->name = name;
  r->table = table;
  r->size = size;
  r->source = -1;
  strmap_put(table, name, r);
  return r;
}

/* Nobody finds it any more; those who wait in it are the caller's to tell. */
static struct leader_wait *roll_drop(struct leader_roll *r) {
  struct leader_wait *waiting = r->waiting;
  for (struct leader_wait *w = waiting; w; w = w->next) w->roll = NULL;
  strmap_remove(r->table, r->name);
  roll_free(r);
  return waiting;
}

static struct leader_wait *roll_complete(struct leader_roll *r) {
  struct leader_wait *waiting = r->waiting;
  for (struct leader_wait *w = waiting; w; w = w->next) w->roll = NULL;
  r->waiting = NULL;
  r->complete = clock_ns();
  return waiting;
}

static int find_member(const struct leader_roll *r, const char *device) {
  for (size_t i = 0; i < r->members.n; i++)
    if (!strcmp(r->members.at[i].device, device)) return (int)i;
  return -1;
}

static void wait_in(struct leader_roll *r, struct leader_wait *w, const char *device) {
  w->device = mem_strdup(device);
  w->roll = r;
  w->next = r->waiting;
  r->waiting = w;
}

bool leader_leave(struct leader *l, struct leader_wait *w, struct text *why) {
  pthread_mutex_lock(&l->lock);
  struct leader_roll *r = w->roll;
  if (r) {
    text_addf(why, "%zu of %d members came:", r->members.n, r->size);
    for (size_t i = 0; i < MIN(r->members.n, 16); i++) text_addf(why, " %s", r->members.at[i].device);
    struct leader_wait **p = &r->waiting;
    while (*p != w) p = &(*p)->next;
    *p = w->next;
    w->roll = NULL;
    bool still = false;
    for (struct leader_wait *o = r->waiting; o; o = o->next) still |= !strcmp(o->device, w->device);
    int i = still ? -1 : find_member(r, w->device);
    if (i >= 0) {
      free(r->members.at[i].device);
      text_release(&r->members.at[i].attributes);
      r->members.at[i] = r->members.at[--r->members.n];
    }
    if (!r->members.n) roll_drop(r);
  }
  pthread_mutex_unlock(&l->lock);
  if (r) free(w->device);
  return r != NULL;
}

/* ---- telling: without it ---- */

static void tell(struct leader_wait *w, shoal_status s, const struct text *group, int source) {
  free(w->device);
  w->device = NULL;
  w->done(w, s, group, source);
}

static void tell_all(struct leader_wait *list, shoal_status s, const struct text *group, int source) {
  for (struct leader_wait *next; list; list = next) {
    next = list->next;
    tell(list, s ? status_copy(s) : NULL, group, source);
  }
}

/* ---- groups ---- */

static int by_rank(const void *a, const void *b) {
  struct device_spec x = {0}, y = {0};
  shoal_status_free(device_spec_parse(((const struct roll_member *)a)->device, &x));
  shoal_status_free(device_spec_parse(((const struct roll_member *)b)->device, &y));
  int by = strcmp(x.job, y.job);
  if (!by) by = (x.replica > y.replica) - (x.replica < y.replica);
  if (!by) by = (x.task > y.task) - (x.task < y.task);
  if (!by) by = strcmp(x.type, y.type);
  return by ? by : (x.id > y.id) - (x.id < y.id);
}

static void write_group(const struct leader_roll *r, struct text *out) {
  int tasks = 0;
  for (size_t i = 0; i < r->members.n; i++) {
    const char *before = i ? r->members.at[i - 1].device : "", *device = r->members.at[i].device;
    size_t n = device_task_length(device);
    tasks += device_task_length(before) != n || memcmp(before, device, n) != 0;
  }
  put_CompleteGroupResponse_group_key(out, r->key);
  put_CompleteGroupResponse_group_size(out, r->size);
  put_CompleteGroupResponse_device_type(out, r->device_type);
  put_CompleteGroupResponse_num_tasks(out, tasks);
  for (size_t i = 0; i < r->members.n; i++)
    put_CompleteGroupResponse_device_attributes_n(out, r->members.at[i].attributes.at, r->members.at[i].attributes.n);
}

static shoal_status check_question(const struct group_question *q) {
  struct device_spec d;
  if (q->size < 1 || q->size > MOST_MEMBERS)
    return INVALID("Collective group %d: a group has 1 to %d members, not %d", q->key, MOST_MEMBERS, q->size);
  if (wire_left(&q->attributes) > MOST_ATTRIBUTES)
    return INVALID("Collective group %d: a member tells %zu bytes of its device", q->key, wire_left(&q->attributes));
  TRY(device_spec_parse(q->device, &d));
  if (d.has_job && d.has_task && d.has_type && d.has_id) return NULL;
  return INVALID("Collective group %d: \"%s\" is not the full name of a device", q->key, q->device);
}

static shoal_status check_fit(const struct leader_roll *r, const struct group_question *q, int at) {
  if (r->size != q->size)
    return INTERNAL("Device %s is joining a group with size %d, but that group has size %d (group_key=%d)", q->device,
                    q->size, r->size, q->key);
  if (strcmp(r->device_type, q->device_type))
    return INTERNAL("Device %s is joining a group with device type %s, but that group has type %s (group_key=%d)",
                    q->device, q->device_type, r->device_type, q->key);
  if (at < 0 && (int)r->members.n == r->size)
    return INTERNAL("Device %s is joining a group that is already full (group_key=%d)", q->device, q->key);
  return NULL;
}

static bool is_settled(const struct leader_roll *r) { return r->complete && clock_ns() - r->complete > SETTLED_NS; }

/* With the lock held. *tell_them: who else is to be told of the outcome. */
static shoal_status join_group(struct leader *l, const struct group_question *q, struct leader_wait *w,
                               struct leader_wait **tell_them, struct text *answer) {
  char name[32];
  snprintf(name, sizeof name, "%d", q->key);
  struct leader_roll *r = strmap_get(&l->groups, name);
  int at = r ? find_member(r, q->device) : -1;
  shoal_status s = r ? check_fit(r, q, at) : NULL;
  if (s && is_settled(r)) {
    shoal_status_free(s);
    s = NULL;
    roll_drop(r);
    r = NULL;
    at = -1;
  }
  if (s && !r->complete) *tell_them = roll_drop(r);
  TRY(s);
  if (!r) {
    TRY(make_room(&l->groups, MOST_GROUPS, "groups"));
    r = roll_new(&l->groups, mem_strdup(name), q->size);
    r->key = q->key;
    r->device_type = mem_strdup(q->device_type);
  }
  if (at < 0) {
    vec_push(&r->members, (struct roll_member){.device = mem_strdup(q->device)});
    at = (int)r->members.n - 1;
  }
  text_release(&r->members.at[at].attributes); /* a member that was restarted has others */
  text_add(&r->members.at[at].attributes, (const char *)q->attributes.at, wire_left(&q->attributes));
  if ((int)r->members.n < r->size) {
    wait_in(r, w, q->device);
    return NULL;
  }
  if (!r->complete) {
    qsort(r->members.at, r->members.n, sizeof *r->members.at, by_rank);
    *tell_them = roll_complete(r);
  }
  write_group(r, answer);
  return NULL;
}

void leader_ask_group(struct leader *l, const struct group_question *q, struct leader_wait *w) {
  struct leader_wait *others = NULL;
  struct text answer = {0};
  w->roll = NULL;
  w->device = NULL;
  shoal_status s = check_question(q);
  bool waits = false;
  if (!s) {
    pthread_mutex_lock(&l->lock);
    s = join_group(l, q, w, &others, &answer);
    waits = w->roll != NULL;
    pthread_mutex_unlock(&l->lock);
  }
  if (!waits) {
    tell_all(others, s, &answer, -1);
    tell(w, s, &answer, -1);
  }
  text_release(&answer);
}

/* ---- instances ---- */

static shoal_status check_instance(const struct leader_roll *r, const struct instance_question *q) {
  if (r->kind != q->kind || r->dtype != q->dtype)
    return INTERNAL("Collective instance %d expected type %d and data_type %d but got type %d and data_type %d from %s",
                    q->key, r->kind, r->dtype, q->kind, q->dtype, q->device);
  /* Steps may differ in it, if all members do. */
  if (!r->complete && !shape_equal(&r->shape, &q->shape))
    return INVALID(
        "Shape mismatch in the collective instance %d. Op at device %s expected shape %s but another member in the "
        "group expected shape %s. This is likely due to different input shapes at different members of the "
        "collective op.",
        q->key, q->device, shape_str(&q->shape), shape_str(&r->shape));
  return NULL;
}

static shoal_status check_source(struct leader_roll *r, const struct instance_question *q, int rank) {
  if (!q->is_source || r->source == rank) return NULL;
  if (r->source >= 0)
    return INTERNAL("Instance %d already has source %d, received second claim from %d", q->key, r->source, rank);
  r->source = rank;
  return NULL;
}

static shoal_status check_sources(const struct leader_roll *r, int key) {
  if (r->kind != COLLECTIVE_BROADCAST || r->source >= 0) return NULL;
  return INTERNAL(
      "Instance %d found no source for broadcast.  This could mean that there were group_size=%d BcastRecvs but no "
      "BcastSend.",
      key, r->size);
}

static shoal_status find_group(struct leader *l, const struct instance_question *q, int *rank) {
  char name[32];
  snprintf(name, sizeof name, "%d", q->group_key);
  const struct leader_roll *g = strmap_get(&l->groups, name);
  *rank = g && g->complete && g->size == q->group_size ? find_member(g, q->device) : -1;
  if (*rank >= 0) return NULL;
  return STATUS(SHOAL_ABORTED, "%s is not in group %d of %d here: it has to join it (again)", q->device, q->group_key,
                q->group_size);
}

static shoal_status join_instance(struct leader *l, const struct instance_question *q, struct leader_wait *w,
                                  struct leader_wait **tell_them, int *source) {
  char name[64];
  int rank;
  TRY(find_group(l, q, &rank));
  snprintf(name, sizeof name, "%d:%d", q->group_key, q->key);
  struct leader_roll *r = strmap_get(&l->instances, name);
  shoal_status s = r ? check_instance(r, q) : NULL;
  if (r && (r->size != q->group_size || (s && is_settled(r)))) { /* of a group that is no more, or of another program */
    *tell_them = roll_drop(r);
    r = NULL;
    shoal_status_free(s);
    s = NULL;
  }
  if (!r) {
    TRY(make_room(&l->instances, MOST_INSTANCES, "instances"));
    r = roll_new(&l->instances, mem_strdup(name), q->group_size);
    r->kind = q->kind;
    r->dtype = q->dtype;
    r->shape = q->shape;
  }
  if (!s) s = check_source(r, q, rank);
  if (s) {
    if (!r->complete) *tell_them = roll_drop(r);
    return s;
  }
  if (find_member(r, q->device) < 0) vec_push(&r->members, (struct roll_member){.device = mem_strdup(q->device)});
  *source = r->source;
  if ((int)r->members.n < r->size) {
    wait_in(r, w, q->device);
    return NULL;
  }
  if (r->complete) return NULL;
  s = check_sources(r, q->key);
  *tell_them = s ? roll_drop(r) : roll_complete(r);
  return s;
}

void leader_ask_instance(struct leader *l, const struct instance_question *q, struct leader_wait *w) {
  struct leader_wait *others = NULL;
  int source = -1;
  w->roll = NULL;
  w->device = NULL;
  pthread_mutex_lock(&l->lock);
  shoal_status s = join_instance(l, q, w, &others, &source);
  bool waits = w->roll != NULL;
  pthread_mutex_unlock(&l->lock);
  if (waits && others) s = STATUS(SHOAL_ABORTED, "Collective group %d has changed", q->group_key);
  tell_all(others, s, NULL, source);
  if (!waits) tell(w, s, NULL, source);
  else shoal_status_free(s);
}
