/* What all devices share: the types there are, and the devices of a task. */
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/latch.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/vec.h"
#include "device/gate.h"
#include "device/named.h"

enum { MOST_OF_A_TYPE = 1024 };
enum { WINDOWS_SHARE = 8 }; /* an eighth of its memory, whoever asks for values */

const struct device_type *device_type_among(const struct device_type *const *types, const char *name) {
  const struct device_type *found = NULL;
  for (const struct device_type *const *t = types; *t; t++)
    if (!strcmp((*t)->name, name) && (!found || (*t)->stands_in) && (*t)->count(-1) > 0) found = *t;
  return found;
}

const struct device_type *device_type_find(const char *name) { return device_type_among(device_types, name); }

const struct device_type *device_type_named(const char *name) {
  const struct device_type *const *t = device_types;
  while (*t && strcmp((*t)->name, name) != 0) t++;
  return *t;
}

const struct device_type *device_type_host(void) {
  const struct device_type *const *t = device_types;
  while (!(*t)->host) t++;
  return *t;
}

/* What other tasks have and this one does not know is an accelerator. */
int device_type_priority(const char *name) {
  const struct device_type *t = device_type_find(name);
  return t ? t->priority : INT32_MAX;
}

/* v: where it is and what it may take, if that was said. */
static shoal_status make(const struct device_type *type, const char *task, int ordinal, const struct virtual_device *v,
                         const struct device_options *o, struct pool *intra, struct device **out) {
  struct device *d = mem_zalloc(1, sizeof *d);
  d->type = type;
  d->card = v->card;
  d->memory_limit = v->memory;
  d->name = mem_printf("%s/device:%s:%d", task, type->name, ordinal);
  d->ordinal = ordinal;
  d->task_devices = 1;
  d->intra = intra;
  d->across = o->across;
  while (!d->incarnation)
    if (getrandom(&d->incarnation, sizeof d->incarnation, 0) < 0) d->incarnation = (uint64_t)(uintptr_t)d;
  shoal_status s = type->start ? type->start(d, o) : NULL;
  if (s) {
    free(d->name);
    free(d);
    return s;
  }
  d->gate = type->host ? NULL : device_gate_new();
  budget_init(&d->windows, (size_t)d->memory_limit / WINDOWS_SHARE, NULL);
  *out = d;
  return NULL;
}

shoal_status device_new(const char *type, const char *task, int ordinal, struct pool *intra, struct device **out) {
  const struct device_type *t = device_type_find(type);
  struct virtual_device whole = {.card = ordinal};
  return t ? make(t, task, ordinal, &whole, &(struct device_options){0}, intra, out)
           : NOT_FOUND("There are no devices of type %s here", type);
}

void device_free(struct device *d) {
  if (!d) return;
  if (d->type->ops->free) d->type->ops->free(d);
  device_gate_free(d->gate);
  free(d->description);
  free(d->name);
  free(d);
}

shoal_status device_tensor_new(struct device *d, const char *who, shoal_dtype dtype, const struct shape *shape,
                               struct tensor *out) {
  size_t bytes;
  int64_t n;
  struct buffer *b;
  TRY(tensor_bytes_for(dtype, shape, &n, &bytes));
  TRY(d->type->ops->alloc(d, who, bytes, &b));
  *out = (struct tensor){.buffer = b, .data = b->data, .dtype = (uint8_t)dtype, .rank = (uint8_t)shape->rank, .n = n};
  memcpy(out->dims, shape->dims, (size_t)shape->rank * sizeof *out->dims);
  return NULL;
}

shoal_status device_to_host(const struct tensor *from, struct tensor *to) {
  struct device *d = from->buffer->device;
  if (!d) {
    tensor_ref(to, from);
    return NULL;
  }
  struct latch copied;
  latch_init(&copied, 1);
  d->type->ops->to_host(d, from, to, latch_done, &copied);
  return latch_finish(&copied);
}

static shoal_status count_parse(const char *text, size_t n, struct device_count *out) {
  const char *equals = memchr(text, '=', n);
  char name[64] = "", digits[16] = "";
  int64_t wanted = -1;
  if (equals) {
    snprintf(name, sizeof name, "%.*s", (int)MIN((size_t)(equals - text), sizeof name - 1), text);
    snprintf(digits, sizeof digits, "%.*s", (int)MIN(n - (size_t)(equals - text) - 1, sizeof digits - 1), equals + 1);
  }
  if (!str_to_int64(digits, &wanted) || wanted < 0 || wanted > MOST_OF_A_TYPE)
    return INVALID("\"%.*s\": expected TYPE=N, with N from 0 to %d", (int)n, text, MOST_OF_A_TYPE);
  const struct device_type *type = wanted ? device_type_find(name) : device_type_named(name);
  if (!type) return INVALID("There are no devices of type %s here", name);
  int have = type->count((int)wanted);
  if (have != wanted) return INVALID("%.*s: there are %d devices of type %s here", (int)n, text, have, name);
  *out = (struct device_count){type->name, (int)wanted};
  return NULL;
}

static bool names_type(const struct device_count *counts, int n, const char *type) {
  for (int i = 0; i < n; i++)
    if (!strcmp(counts[i].type, type)) return true;
  return false;
}

shoal_status device_counts_parse(const char *text, struct device_count *out, int most, int *n) {
  *n = 0;
  for (const char *at = text; *at; at += *at == ',') {
    size_t size = strcspn(at, ",");
    if (*n == most) return INVALID("\"%s\" names more than %d types of devices", text, most);
    TRY(count_parse(at, size, &out[*n]));
    if (names_type(out, *n, out[*n].type)) return INVALID("\"%s\" names devices of type %s twice", text, out[*n].type);
    ++*n;
    at += size;
  }
  return NULL;
}

/* ---- the devices of a task ---- */

typedef VEC(struct device *) device_list;

struct devices_making {
  const struct device_type *type;
  const char *task;
  const struct device_options *options;
  struct pool *intra;
  device_list *out;
  int made;
};

static bool make_next(struct devices_making *m, const struct virtual_device *v) {
  struct device *d;
  shoal_status s = make(m->type, m->task, m->made, v, m->options, m->intra, &d);
  if (s) {
    LOGW("%s has no device %s:%d: %s", m->task, m->type->name, m->made, shoal_status_message(s));
    shoal_status_free(s);
    return false;
  }
  vec_push(m->out, d);
  m->made++;
  return true;
}

/* All of a card, the i-th that is used: itself, or what it was divided into. */
static bool make_card(struct devices_making *m, int i, int card) {
  bool divided = false;
  for (int k = 0; k < m->options->n_virtual && !m->type->host; k++) {
    const struct virtual_device *v = &m->options->virtual_devices[k];
    if (v->card != i) continue;
    divided = true;
    if (!make_next(m, &(struct virtual_device){card, v->memory})) return false;
  }
  return divided || make_next(m, &(struct virtual_device){.card = card});
}

struct device **devices_new(const char *task, const struct device_count *asked, int n_asked,
                            const struct device_options *options, struct pool *intra, int *n) {
  static const struct device_options none;
  device_list all = {0};
  for (int host = 1; host >= 0; host--)
    for (const struct device_type *const *t = device_types; *t; t++) {
      int wanted = device_asked(*t, asked, n_asked);
      if ((*t)->host != host || !wanted || device_type_find((*t)->name) != *t) continue;
      struct devices_making m = {*t, task, options ? options : &none, intra, &all, 0};
      int cards[MOST_CARDS], used = device_cards(*t, m.options, wanted, cards);
      for (int i = 0; i < used && make_card(&m, i, host ? i : cards[i]); i++) continue;
      for (int i = 0; i < m.made; i++) all.at[(int)all.n - 1 - i]->task_devices = m.made;
    }
  *n = (int)all.n;
  return all.at;
}
