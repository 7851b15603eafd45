/* A bound on how many of something a server holds at a time, by a flag of its own. */
#ifndef CLUSTER_QUOTA_H
#define CLUSTER_QUOTA_H

#include <inttypes.h>
#include <stdatomic.h>

#include "base/status.h"

struct quota {
  const char *flag, *what; /* "max_steps", "steps" */
  int64_t most;
  atomic_llong used;
};

static inline shoal_status quota_exceeded(const struct quota *q, const char *task) {
  return STATUS(SHOAL_RESOURCE_EXHAUSTED, "%s has %" PRId64 " %s, as many as --%s allows", task, q->most, q->what,
                q->flag);
}

/* One more; RESOURCE_EXHAUSTED when that would be too many. */
static inline shoal_status quota_take(struct quota *q, const char *task) {
  if (atomic_fetch_add_explicit(&q->used, 1, memory_order_relaxed) < q->most) return NULL;
  atomic_fetch_sub_explicit(&q->used, 1, memory_order_relaxed);
  return quota_exceeded(q, task);
}

static inline void quota_give(struct quota *q, int64_t n) {
  atomic_fetch_sub_explicit(&q->used, n, memory_order_relaxed);
}

#endif
