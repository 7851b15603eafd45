/* What a session knows of its groups and their instances, so that a step need not ask for them again. Every collective
 * of every step looks here: instances are in a table by their two numbers, which clients choose (base/keyed_hash.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/keyed_hash.h"
#include "cluster/collectives.h"
#include "cluster/worker.h"

enum { MOST_KNOWN = 4096, FIRST_ROOM = 64 }; /* groups, or instances: more are asked for again */

struct known_instance {
  int group_key, key;
  enum collective_kind kind;
  int dtype, source, arithmetic;
  bool is_there;
};

static void forget_groups(struct session_collectives *c) {
  void *value;
  for (size_t i = 0; strmap_next(&c->groups, &i, NULL, &value);) collective_group_unref(value);
  strmap_release(&c->groups);
  c->groups = (struct strmap){0};
}

static void forget_instances(struct session_collectives *c) {
  free(c->instances);
  c->instances = NULL;
  c->n_instances = c->instance_room = 0;
}

void session_collectives_release(struct session_collectives *c) {
  under_way_release(&c->site.under_way);
  forget_groups(c);
  forget_instances(c);
  pthread_mutex_destroy(&c->lock);
}

/* ---- groups ---- */

char *collectives_device(const struct session_collectives *c, const struct collective_member *m) {
  return mem_printf("%s/device:%s:%d", c->session->task, m->device->type->name, m->device->ordinal);
}

struct collective_group *collectives_known_group(struct session_collectives *c, const struct collective_member *m) {
  char name[32];
  snprintf(name, sizeof name, "%d", m->group_key);
  pthread_mutex_lock(&c->lock);
  struct collective_group *g = strmap_get(&c->groups, name);
  if (g) collective_group_ref(g);
  pthread_mutex_unlock(&c->lock);
  return g;
}

int collectives_rank(const struct session_collectives *c, const struct collective_group *g,
                     const struct collective_member *m) {
  if (g->size != m->group_size) return -1;
  char *device = collectives_device(c, m);
  int rank = collective_group_rank(g, device);
  free(device);
  return m->rank < 0 || m->rank == rank ? rank : -1;
}

void collectives_know_group(struct session_collectives *c, struct collective_group *g) {
  char name[32];
  snprintf(name, sizeof name, "%d", g->key);
  pthread_mutex_lock(&c->lock);
  if (c->groups.n >= MOST_KNOWN) forget_groups(c);
  collective_group_unref(strmap_put(&c->groups, name, collective_group_ref(g)));
  pthread_mutex_unlock(&c->lock);
}

/* ---- instances ---- */

/* With the lock held, where there is room: the place of an instance, or the free one it would have. */
static struct known_instance *place_of(const struct session_collectives *c, int group_key, int key) {
  uint64_t h = hash_keyed_number((uint64_t)(uint32_t)group_key << 32 | (uint32_t)key) >> 32;
  for (;; h++) {
    struct known_instance *k = &c->instances[h & (c->instance_room - 1)];
    if (!k->is_there || (k->group_key == group_key && k->key == key)) return k;
  }
}

/* With the lock held: half of the places stay free. */
static void make_room(struct session_collectives *c) {
  if (c->n_instances >= MOST_KNOWN) forget_instances(c);
  if (2 * c->n_instances < c->instance_room) return;
  struct known_instance *was = c->instances;
  size_t room = c->instance_room;
  c->instance_room = room ? 2 * room : FIRST_ROOM;
  c->instances = mem_zalloc(c->instance_room, sizeof *c->instances);
  for (size_t i = 0; i < room; i++)
    if (was[i].is_there) *place_of(c, was[i].group_key, was[i].key) = was[i];
  free(was);
}

bool collectives_plays_its_part(const struct collective_member *m, int rank, int source) {
  return m->kind != COLLECTIVE_BROADCAST || m->is_source == (rank == source);
}

bool collectives_known_instance(struct session_collectives *c, const struct collective_member *m, int rank,
                                int *source) {
  pthread_mutex_lock(&c->lock);
  const struct known_instance *k = c->n_instances ? place_of(c, m->group_key, m->instance_key) : NULL;
  bool known = k && k->is_there && k->kind == m->kind && k->dtype == (int)m->dtype &&
               k->arithmetic == collective_arithmetic_code(m->arithmetic) &&
               collectives_plays_its_part(m, rank, k->source);
  if (known) *source = k->source;
  pthread_mutex_unlock(&c->lock);
  return known;
}

void collectives_know_instance(struct session_collectives *c, const struct collective_member *m, int source) {
  pthread_mutex_lock(&c->lock);
  make_room(c);
  struct known_instance *k = place_of(c, m->group_key, m->instance_key);
  c->n_instances += !k->is_there;
  *k = (struct known_instance){.group_key = m->group_key,
                               .key = m->instance_key,
                               .kind = m->kind,
                               .dtype = (int)m->dtype,
                               .source = source,
                               .arithmetic = collective_arithmetic_code(m->arithmetic),
                               .is_there = true};
  pthread_mutex_unlock(&c->lock);
}

void collectives_forget(struct session_collectives *c, int group_key) {
  char name[32];
  snprintf(name, sizeof name, "%d", group_key);
  pthread_mutex_lock(&c->lock);
  collective_group_unref(strmap_remove(&c->groups, name));
  forget_instances(c);
  pthread_mutex_unlock(&c->lock);
}
