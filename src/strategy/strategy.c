/* The kinds of strategies. They differ in numbers and names alone: how many replicas there are, here and in all, and on
 * which devices. What follows from those is the same code for all of them. */
#include "strategy/strategy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/given.h"
#include "base/options.h"
#include "device/device.h"

enum { DEFAULT_BUCKET_KIB = 4096, MOST_REPLICAS = 4096 };

/* ---- devices ---- */

/* Is it a device of this process? The whole name is written to out. */
static shoal_status check_device(const char *name, char *out, size_t size) {
  struct device_spec d;
  if (!name) return INVALID("the name of a device is NULL");
  TRY(device_spec_parse(name, &d));
  if (d.has_job || d.has_task || d.has_replica)
    return INVALID("device '%s': devices of one process are named without job and task, as \"/cpu:1\"", name);
  if (!d.has_type || !d.has_id)
    return INVALID("device '%s': which one? Type and number are expected, as \"/cpu:1\"", name);
  const struct device_type *type = device_type_find(d.type);
  if (!type) return INVALID("device '%s': there are no devices of type %s here", name, d.type);
  if (!type->host && d.id >= type->count(-1))
    return INVALID("device '%s': there are %d devices of type %s here", name, type->count(-1), d.type);
  device_spec_print(&d, out, size);
  return NULL;
}

static shoal_status add_devices(struct shoal_strategy *s, const char *const *devices, int n) {
  char name[192];
  s->devices = mem_zalloc((size_t)n + 1, sizeof *s->devices);
  for (s->local = 0; s->local < n; s->local++) {
    if (!devices) {
      snprintf(name, sizeof name, "/device:CPU:%d", s->local);
    } else TRY(check_device(devices[s->local], name, sizeof name));
    for (int i = 0; i < s->local; i++)
      if (!strcmp(s->devices[i], name))
        return INVALID("device '%s' is given twice: a replica has one of its own", name);
    s->devices[s->local] = mem_strdup(name);
    struct device_spec d;
    TRY(device_spec_parse(name, &d));
    if (!strcmp(d.type, "CPU")) s->rules.cpu_devices = MAX(s->rules.cpu_devices, d.id + 1);
  }
  return NULL;
}

/* ---- making them ---- */

static shoal_status make(const shoal_strategy_options *options, struct shoal_strategy **out) {
  shoal_strategy_options o = {0};
  TRY(OPTIONS_TAKE(shoal_strategy_options, bucket_kib, &o, options));
  if (o.gradients != SHOAL_REDUCE_MEAN && o.gradients != SHOAL_REDUCE_SUM)
    return INVALID("gradients are reduced by SHOAL_REDUCE_MEAN or SHOAL_REDUCE_SUM, not by %d", (int)o.gradients);
  if (o.bucket_kib < 0) return INVALID("bucket_kib is %d", o.bucket_kib);
  struct shoal_strategy *s = mem_zalloc(1, sizeof *s);
  s->gradients = o.gradients;
  s->bucket_bytes = (int64_t)(o.bucket_kib ? o.bucket_kib : DEFAULT_BUCKET_KIB) << 10;
  s->next_key = 1;
  *out = s;
  return NULL;
}

/* e is returned; without one *out becomes s. */
static shoal_status finish(struct shoal_strategy *s, shoal_status e, shoal_strategy **out) {
  if (e) shoal_strategy_free(s);
  else *out = s;
  return e;
}

shoal_status shoal_strategy_new_one_device(const char *device, const shoal_strategy_options *options,
                                           shoal_strategy **out) {
  GIVEN(out);
  struct shoal_strategy *s;
  TRY(make(options, &s));
  shoal_status e = add_devices(s, device ? &device : NULL, 1);
  s->replicas = s->local;
  return finish(s, e, out);
}

shoal_status shoal_strategy_new_mirrored(const char *const *devices, int n, const shoal_strategy_options *options,
                                         shoal_strategy **out) {
  GIVEN(out);
  if (n < 1 || n > MOST_REPLICAS) return INVALID("%s: a strategy of %d devices", __func__, n);
  struct shoal_strategy *s;
  TRY(make(options, &s));
  shoal_status e = add_devices(s, devices, n);
  s->replicas = s->local;
  return finish(s, e, out);
}

void shoal_strategy_free(shoal_strategy *s) {
  if (!s) return;
  for (int i = 0; i < s->local; i++) free(s->devices[i]);
  free(s->devices);
  free(s);
}

int shoal_strategy_replicas(const shoal_strategy *s) { return s->replicas; }
int shoal_strategy_local_replicas(const shoal_strategy *s) { return s->local; }
int shoal_strategy_first_replica(const shoal_strategy *s) { return s->first; }
