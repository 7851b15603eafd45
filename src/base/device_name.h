/* Device names: "/job:worker/replica:0/task:1/device:CPU:0", whole or in part. */
#ifndef BASE_DEVICE_NAME_H
#define BASE_DEVICE_NAME_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* A parsed, possibly partial name: what is absent has has_x false. Old forms ("/cpu:0", "/gpu:1") are understood. */
struct device_spec {
  bool has_job, has_replica, has_task, has_type, has_id;
  char job[64];
  int replica, task, id;
  char type[32]; /* upper case */
};
shoal_status device_spec_parse(const char *name, struct device_spec *out);
/* "/job:a/replica:0/task:1/device:CPU:0", with the parts there are. Long enough: 192 bytes. */
void device_spec_print(const struct device_spec *s, char *out, size_t size);
/* Every part that `want` names is the same in `have`. */
bool device_spec_matches(const struct device_spec *want, const struct device_spec *have);
/* Parts of `over` win; the rest stays. */
void device_spec_merge(struct device_spec *into, const struct device_spec *over);
/* Sets the parts of `into` that are absent; false when both have a part and differ. */
bool device_spec_fill(struct device_spec *into, const struct device_spec *from);

#endif
