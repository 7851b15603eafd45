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

enum { MOST_OF_A_TYPE = 1024 };

const struct device_type *device_type_find(const char *name) {
  for (const struct device_type *const *t = device_types; *t; t++)
    if (!strcmp((*t)->name, name) && (*t)->count(-1) > 0) return *t;
  return NULL;
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

static shoal_status make(const struct device_type *type, const char *task, int ordinal, struct pool *intra,
                         struct device **out) {
  struct device *d = mem_zalloc(1, sizeof *d);
  d->type = type;
  d->name = mem_printf("%s/device:%s:%d", task, type->name, ordinal);
  d->ordinal = ordinal;
  d->task_devices = 1;
  d->intra = intra;
  while (!d->incarnation)
    if (getrandom(&d->incarnation, sizeof d->incarnation, 0) < 0) d->incarnation = (uint64_t)(uintptr_t)d;
  shoal_status s = type->start ? type->start(d) : NULL;
  if (s) {
    free(d->name);
    free(d);
    return s;
  }
  *out = d;
  return NULL;
}

shoal_status device_new(const char *type, const char *task, int ordinal, struct pool *intra, struct device **out) {
  const struct device_type *t = device_type_find(type);
  return t ? make(t, task, ordinal, intra, out) : NOT_FOUND("There are no devices of type %s here", type);
}

void device_free(struct device *d) {
  if (!d) return;
  if (d->type->ops->free) d->type->ops->free(d);
  free(d->name);
  free(d);
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
  const struct device_type *type = device_type_find(name);
  if (!type) return NOT_FOUND("There are no devices of type %s here", name);
  int have = type->count((int)wanted);
  if (have != wanted) return INVALID("%.*s: there are %d devices of type %s here", (int)n, text, have, name);
  *out = (struct device_count){type->name, (int)wanted};
  return NULL;
}

shoal_status device_counts_parse(const char *text, struct device_count *out, int most, int *n) {
  *n = 0;
  for (const char *at = text; *at; at += *at == ',') {
    size_t size = strcspn(at, ",");
    if (*n == most) return INVALID("\"%s\" names more than %d types of devices", text, most);
    TRY(count_parse(at, size, &out[(*n)++]));
    at += size;
  }
  return NULL;
}

typedef VEC(struct device *) device_list;

static void make_all(const struct device_type *type, const char *task, int asked, struct pool *intra,
                     device_list *out) {
  int n = type->count(asked), made = 0;
  for (int i = 0; i < n; i++) {
    struct device *d;
    shoal_status s = make(type, task, i, intra, &d);
    if (s) {
      LOGW("%s has no device %s:%d: %s", task, type->name, i, shoal_status_message(s));
      shoal_status_free(s);
      break;
    }
    vec_push(out, d);
    made++;
  }
  for (int i = 0; i < made; i++) out->at[(int)out->n - 1 - i]->task_devices = made;
}

struct device **devices_new(const char *task, const struct device_count *asked, int n_asked, struct pool *intra,
                            int *n) {
  device_list all = {0};
  for (int host = 1; host >= 0; host--)
    for (const struct device_type *const *t = device_types; *t; t++) {
      if ((*t)->host != host) continue;
      int wanted = -1;
      for (int i = 0; i < n_asked; i++)
        if (!strcmp(asked[i].type, (*t)->name)) wanted = asked[i].n;
      make_all(*t, task, wanted, intra, &all);
    }
  *n = (int)all.n;
  return all.at;
}
