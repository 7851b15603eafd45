/* What a client's ConfigProto says to a master; the rest of it travels to the workers as it is. */
#include <stdlib.h>
#include <string.h>

#include "cluster/master.h"
#include "cluster/request_parts.h"

enum { MAX_FILTERS = 100000 }; /* as many as a cluster may have tasks */

void master_config_release(struct master_config *c) {
  for (size_t i = 0; i < c->filters.n; i++) free(c->filters.at[i]);
  vec_release(&c->filters);
  cluster_spec_release(&c->spec);
  text_release(&c->bytes);
}

static void read_graph_options(struct master_config *c, struct wire w) {
  c->rewrites_off = graph_options_as_is(w) ? "all" : NULL;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
    if (f.number == 4 && f.type == WIRE_VARINT) c->cost_every = (int64_t)f.value;
}

shoal_status master_config_read(struct master_config *c, struct wire w, int64_t max_tasks) {
  text_add(&c->bytes, (const char *)w.at, wire_left(&w));
  enum wire_step step;
  bool shared = false; /* experimental.share_session_state_in_clusterspec_propagation */
  for (struct wire_field f; (step = wire_next(&w, &f)) == WIRE_FIELD;) {
    bool varint = f.type == WIRE_VARINT, bytes = f.type == WIRE_BYTES;
    if (f.number == 4 && bytes) {
      if (c->filters.n == MAX_FILTERS)
        return STATUS(SHOAL_RESOURCE_EXHAUSTED, "device_filters: more than %d of them", MAX_FILTERS);
      vec_push(&c->filters, mem_strndup((const char *)f.data, f.size));
    }
    if (f.number == 7 && varint) c->soft_placement = f.value != 0;
    if (f.number == 8 && varint) c->log_placement = f.value != 0;
    if (f.number == 9 && varint && f.value)
      return INVALID("Distributed session does not support session thread pool options.");
    if (f.number == 10 && bytes) read_graph_options(c, wire_inside(&f));
    if (f.number == 11 && varint) c->operation_timeout_ms = (int64_t)f.value;
    if (f.number == 12) return INVALID("Distributed session does not support session thread pool options.");
    if (f.number == 14 && bytes && f.size) {
      c->propagated = true;
      TRY(cluster_spec_from_proto(&c->spec, f.data, f.size, max_tasks));
    }
    if (f.number == 15 && varint) c->isolated = f.value != 0;
    if (f.number == 16 && bytes) {
      struct wire experimental = wire_inside(&f);
      for (struct wire_field k; wire_next(&experimental, &k) == WIRE_FIELD;)
        if (k.number == 8 && k.type == WIRE_VARINT) shared = k.value != 0;
    }
  }
  if (step == WIRE_BROKEN) return INVALID("ConfigProto does not parse as a protocol buffer");
  if (c->propagated && !shared) c->isolated = true;
  for (size_t i = 0; i < c->filters.n; i++) {
    struct device_spec spec;
    shoal_status s = device_spec_parse(c->filters.at[i], &spec);
    if (s) return status_prefix(s, "device_filters: ");
  }
  return NULL;
}

bool device_filters_pass(char *const *filters, size_t n, const char *job, int task) {
  for (size_t i = 0; i < n; i++) {
    struct device_spec f;
    shoal_status s = device_spec_parse(filters[i], &f);
    shoal_status_free(s);
    if (s) continue;
    if ((!f.has_job || !strcmp(f.job, job)) && (!f.has_task || f.task == task) && (!f.has_replica || f.replica == 0))
      return true;
  }
  return n == 0;
}
