#include "collective/group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fingerprint.h"
#include "base/mem.h"
#include "collective/shared_group.h"
#include "proto/step_stats.wire.h"
#include "proto/worker.wire.h"

size_t device_task_length(const char *device) {
  const char *end = strstr(device, "/device:");
  return end ? (size_t)(end - device) : strlen(device);
}

/* "shoal rank 3 memory BOOT PID FD INODE", of which each part but the first may be missing. */
struct member_claim {
  bool is_ours;
  int rank;
  struct shared_place memory;
};

#define MEMORY " memory %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64

static struct member_claim read_claim(const struct wire_field *desc) {
  struct member_claim c = {.rank = -1};
  char text[128] = "";
  size_t n = strlen(COLLECTIVE_OURS);
  memcpy(text, desc->data, MIN(desc->size, sizeof text - 1));
  c.is_ours = str_starts(text, COLLECTIVE_OURS) && (!text[n] || text[n] == ' ');
  if (!c.is_ours) return c;
  if (sscanf(text + n, " rank %d", &c.rank) != 1 || c.rank < 0) c.rank = -1;
  const char *memory = strstr(text, " memory ");
  struct shared_place *p = &c.memory;
  if (memory && sscanf(memory, MEMORY, &p->boot, &p->pid, &p->fd, &p->inode) != 4) *p = (struct shared_place){0};
  return c;
}

void collective_put_claim(struct text *attributes, int rank, const struct shared_place *p) {
  struct text t = {0};
  text_adds(&t, COLLECTIVE_OURS);
  if (rank >= 0) text_addf(&t, " rank %d", rank);
  if (p->boot) text_addf(&t, " memory %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64, p->boot, p->pid, p->fd, p->inode);
  put_DeviceAttributes_physical_device_desc(attributes, text_cstr(&t));
  text_release(&t);
}

int collective_claimed_rank(struct wire w) {
  int rank = -1;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
    if (f.tag == DeviceAttributes_physical_device_desc) rank = read_claim(&f).rank;
  return rank;
}

static shoal_status read_place(struct wire w, struct collective_place *p) {
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == DeviceAttributes_name) {
      free(p->device);
      p->device = mem_strndup((const char *)f.data, f.size);
    }
    if (f.tag == DeviceAttributes_incarnation) p->incarnation = f.value;
    if (f.tag == DeviceAttributes_physical_device_desc) {
      struct member_claim c = read_claim(&f);
      p->is_ours = c.is_ours;
      p->memory = c.memory;
    }
  }
  return p->device ? NULL : INTERNAL("The leader of a collective group tells of a member without a name");
}

static void number_tasks(struct collective_group *g) {
  for (int i = 1; i < g->size; i++) {
    size_t n = device_task_length(g->places[i].device), before = device_task_length(g->places[i - 1].device);
    bool same = n == before && !memcmp(g->places[i].device, g->places[i - 1].device, n);
    g->tasks[i] = g->tasks[i - 1] + !same;
  }
}

/* All members come to the same. */
static void identify(struct collective_group *g) {
  struct shared_place places[SHARED_RANKS];
  uint64_t h = fingerprint_cat64((uint64_t)(uint32_t)g->key, (uint64_t)g->size);
  for (int i = 0; i < g->size; i++) {
    const struct collective_place *p = &g->places[i];
    h = fingerprint_cat64(h, fingerprint64(p->device, strlen(p->device)));
    h = fingerprint_cat64(h, p->incarnation);
    h = fingerprint_cat64(h, fingerprint64(&p->memory, sizeof p->memory));
    if (i < SHARED_RANKS) places[i] = p->memory;
  }
  g->identity = h;
  g->could_share = g->all_ours && g->size <= SHARED_RANKS && shared_group_could(places, g->size);
}

shoal_status collective_group_read(const void *data, size_t n, int wanted, struct collective_group **out) {
  struct wire w = wire_from(data, n), again = w;
  int members = 0, size = 0, key = 0;
  enum wire_step step;
  struct wire_field f;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    members += f.tag == CompleteGroupResponse_device_attributes;
    if (f.tag == CompleteGroupResponse_group_size) size = (int)f.value;
    if (f.tag == CompleteGroupResponse_group_key) key = (int)f.value;
  }
  if (step == WIRE_BROKEN || members != size || size != wanted || size < 1)
    return INTERNAL("The leader of collective group %d tells of %d members in a group of %d, where %d were to be", key,
                    members, size, wanted);
  struct collective_group *g = mem_zalloc(1, sizeof *g + (size_t)size * sizeof *g->places);
  ref_init(&g->refs, 1);
  g->key = key;
  g->size = size;
  g->all_ours = true;
  g->tasks = mem_zalloc((size_t)size, sizeof *g->tasks);
  shoal_status s = NULL;
  for (int i = 0; !s && wire_next(&again, &f) == WIRE_FIELD;) {
    if (f.tag != CompleteGroupResponse_device_attributes) continue;
    s = read_place(wire_inside(&f), &g->places[i]);
    g->all_ours &= g->places[i++].is_ours;
  }
  if (s) {
    collective_group_unref(g);
    return s;
  }
  number_tasks(g);
  identify(g);
  *out = g;
  return NULL;
}

bool collective_group_is_one_task(const struct collective_group *g) {
  for (int i = 1; i < g->size; i++)
    if (g->tasks[i] != g->tasks[0]) return false;
  return true;
}

bool collective_group_equal(const struct collective_group *a, const struct collective_group *b) {
  bool equal = a->key == b->key && a->size == b->size;
  for (int i = 0; i < a->size && equal; i++) {
    const struct collective_place *x = &a->places[i], *y = &b->places[i];
    equal = x->incarnation == y->incarnation && !memcmp(&x->memory, &y->memory, sizeof x->memory) &&
            !strcmp(x->device, y->device);
  }
  return equal;
}

struct collective_group *collective_group_ref(struct collective_group *g) {
  ref_take(&g->refs);
  return g;
}

void collective_group_unref(struct collective_group *g) {
  if (!g || !ref_drop(&g->refs)) return;
  for (int i = 0; i < g->size; i++) free(g->places[i].device);
  free(g->tasks);
  free(g);
}

int collective_group_rank(const struct collective_group *g, const char *device) {
  for (int i = 0; i < g->size; i++)
    if (!strcmp(g->places[i].device, device)) return i;
  return -1;
}
