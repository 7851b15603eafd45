/* What a client's ConfigProto says to a master; the rest of it travels to the workers as it is. */
#include <stdlib.h>
#include <string.h>

#include "cluster/master.h"

void master_config_release(struct master_config *c) {
  session_config_release(&c->said);
  cluster_spec_release(&c->spec);
  free(c->leader);
  text_release(&c->bytes);
}

/* One message after the other is both of them, the second laid over the first: so protocol buffers have it. */
shoal_status master_config_read(struct master_config *c, struct wire server, struct wire client, int64_t max_tasks) {
  text_add(&c->bytes, (const char *)server.at, wire_left(&server));
  text_add(&c->bytes, (const char *)client.at, wire_left(&client));
  TRY(session_config_read(&c->said, wire_from(text_cstr(&c->bytes), c->bytes.n)));
  if (c->said.own_threads) return INVALID("Distributed session does not support session thread pool options.");
  for (size_t i = 0; i < c->said.filters.n; i++) {
    struct device_spec spec;
    shoal_status s = device_spec_parse(c->said.filters.at[i], &spec);
    if (s) return status_prefix(s, "device_filters: ");
  }
  struct wire def = c->said.cluster_def;
  c->said.cluster_def = (struct wire){0}; /* the message goes */
  c->propagated = wire_left(&def) > 0;
  c->isolated = c->said.isolated || (c->propagated && !c->said.shared_state);
  return c->propagated ? cluster_spec_from_proto(&c->spec, def.at, wire_left(&def), max_tasks) : NULL;
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
