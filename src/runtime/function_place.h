/* Where the body of a function runs: the devices of the task that calls it. */
#ifndef RUNTIME_FUNCTION_PLACE_H
#define RUNTIME_FUNCTION_PLACE_H

#include "runtime/plan_set.h"

struct function_places {
  struct device **devices;
  char **names; /* as the session's graphs call them */
  struct resource_mgr **resources;
  int n;
  char *rewrites_off; /* rewrite_options' */
};
/* All is copied, or referred to once more. */
void function_places_init(struct function_places *p, struct device *const *devices, char *const *names,
                          struct resource_mgr *const *resources, int n, const char *rewrites_off);
void function_places_release(struct function_places *p);

/* A body that is called on a device. host_args and host_rets: function_memory's. */
struct function_call_place {
  uint32_t host_args, host_rets;
  const int *handles; /* [n_args] of a handle that belongs to another device: which of them; -1: to no other. NULL: none
                         does */
  int n_args;
};
/* Its plans. The graph is changed on the way, and stays the caller's. */
shoal_status function_place(const struct function_places *p, const struct plan_options *home,
                            const struct function_call_place *call, struct shoal_graph *g, struct plan_set *out);
/* Of the arguments of a call on a device, those that are handles of others, as above: to be freed. NULL: none is. */
int *function_find_handles(const struct function_places *p, const struct device *home, const struct tensor *args,
                           int n);

#endif
