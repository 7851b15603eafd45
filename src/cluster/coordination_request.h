/* Requests to the coordination service, taken apart.
 *
 * What a request says goes on to other tasks: keys and devices in their answers, names and texts in their errors. So a
 * name is no longer than COORDINATION_NAME, has no NUL and is UTF-8, as strings of protocol buffers are, and devices
 * are a sound message: TensorFlow's tasks throw an answer away in which one is not. */
#ifndef CLUSTER_COORDINATION_REQUEST_H
#define CLUSTER_COORDINATION_REQUEST_H

#include "cluster/coordination.h"
#include "rpc/server.h"

struct coordination_request {
  char *task; /* source_task, in full */
  char *key;  /* or a barrier's id */
  char *text; /* its beginning */
  struct wire body;
  uint64_t incarnation;
  int64_t number; /* a time-out, an error's code */
  VEC(char *) tasks;
};

/* Where a message's fields are; 0: it has none such. */
struct coordination_tags {
  uint32_t task, tasks, key, text, body, incarnation, number;
};

/* To be released whatever is returned. With certificates the task is the caller. */
shoal_status coordination_request_read(const struct coordination *c, struct rpc_call *call,
                                       const struct coordination_tags *tags, struct coordination_request *r);
void coordination_request_release(struct coordination_request *r);
/* A name (what: "a key") out of a field, in place of *to, which is freed. */
shoal_status coordination_name_read(const struct wire_field *f, const char *what, char **to);
/* Is it a DeviceInfo? */
shoal_status coordination_devices_check(struct wire devices);

#endif
