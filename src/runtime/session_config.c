/* ConfigProto; see session_config.h. */
#include "runtime/session_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_FILTERS = 100000 }; /* as many as a cluster may have tasks */

void session_config_release(struct session_config *c) {
  for (size_t i = 0; i < c->filters.n; i++) free(c->filters.at[i]);
  vec_release(&c->filters);
}

void graph_options_read(struct session_config *c, struct wire w) {
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.number == 4 && f.type == WIRE_VARINT) c->cost_every = (int64_t)f.value;
    if (f.number != 10 || f.type != WIRE_BYTES) continue; /* rewrite_options */
    struct wire rewriter = wire_inside(&f);
    for (struct wire_field k; wire_next(&rewriter, &k) == WIRE_FIELD;)
      if (k.number == 19 && k.type == WIRE_VARINT) c->as_is = k.value != 0; /* disable_meta_optimizer */
  }
}

void session_config_ask(struct session_config *c, const struct device_type *type, int n) {
  int i = 0;
  while (i < c->n_devices && c->devices[i].type != type->name) i++;
  if (i == MAX_DEVICE_TYPES) return;
  c->devices[i] = (struct device_count){type->name, n};
  c->n_devices = MAX(c->n_devices, i + 1);
}

/* An entry of device_count. */
static void read_count(struct session_config *c, struct wire w) {
  char name[64] = "";
  int count = 0;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.number == 1 && f.type == WIRE_BYTES)
      snprintf(name, sizeof name, "%.*s", (int)MIN(f.size, sizeof name - 1), (const char *)f.data);
    if (f.number == 2 && f.type == WIRE_VARINT) count = (int)f.value;
  }
  const struct device_type *type = device_type_find(name);
  if (type) session_config_ask(c, type, count);
}

static shoal_status read_filter(struct session_config *c, const struct wire_field *f) {
  if (c->filters.n == MAX_FILTERS)
    return STATUS(SHOAL_RESOURCE_EXHAUSTED, "device_filters: more than %d of them", MAX_FILTERS);
  vec_push(&c->filters, mem_strndup((const char *)f->data, f->size));
  return NULL;
}

static void read_experimental(struct session_config *c, struct wire w) {
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
    if (f.number == 8 && f.type == WIRE_VARINT) c->shared_state = f.value != 0;
}

shoal_status session_config_read(struct session_config *c, struct wire w) {
  enum wire_step step;
  for (struct wire_field f; (step = wire_next(&w, &f)) == WIRE_FIELD;) {
    if (f.type == WIRE_VARINT) {
      if (f.number == 2) c->intra_threads = (int)f.value;
      if (f.number == 5) c->inter_threads = (int)f.value;
      if (f.number == 7) c->soft_placement = f.value != 0;
      if (f.number == 8) c->log_placement = f.value != 0;
      if (f.number == 9) c->own_threads |= f.value != 0;
      if (f.number == 11) c->operation_timeout_ms = (int64_t)f.value;
      if (f.number == 15) c->isolated = f.value != 0;
    } else if (f.type == WIRE_BYTES) {
      if (f.number == 1) read_count(c, wire_inside(&f));
      if (f.number == 4) TRY(read_filter(c, &f));
      if (f.number == 10) graph_options_read(c, wire_inside(&f));
      if (f.number == 12) c->own_threads = true;
      if (f.number == 14) c->cluster_def = wire_inside(&f);
      if (f.number == 16) read_experimental(c, wire_inside(&f));
    }
  }
  return step == WIRE_BROKEN ? INVALID("ConfigProto does not parse as a protocol buffer") : NULL;
}
