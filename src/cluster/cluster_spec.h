/* Who belongs to the cluster: jobs, their tasks and addresses.
 *
 * However it is described (host lists in flags, JSON in a flag or file, TF_CONFIG, a ClusterDef on the wire), a
 * description becomes one of these and passes one validator, whose errors name the field, what was found there, and the
 * fix. */
#ifndef CLUSTER_CLUSTER_SPEC_H
#define CLUSTER_CLUSTER_SPEC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "base/text.h"
#include "base/vec.h"

struct cluster_task {
  int index;
  char *address; /* "host:port" */
};

struct cluster_job {
  char *name;
  VEC(struct cluster_task) tasks; /* by index, rising; gaps allowed (sparse) */
};

struct cluster_spec {
  VEC(struct cluster_job) jobs; /* in order of name */
};

void cluster_spec_release(struct cluster_spec *c);
void cluster_spec_copy(struct cluster_spec *to, const struct cluster_spec *from);

/* Adds one task; field names the place for errors. */
shoal_status cluster_spec_add(struct cluster_spec *c, const char *field, const char *job, int index,
                              const char *address);
/* "host:port,host:port", as the flags --ps_hosts and so on have it. An empty list adds nothing. */
shoal_status cluster_spec_add_hosts(struct cluster_spec *c, const char *field, const char *job, const char *hosts);
/* {"worker": ["host:port", ...], "ps": {"3": "host:port"}}; text is JSON or the name of a file that holds it. */
shoal_status cluster_spec_from_json(struct cluster_spec *c, const char *field, const char *text);
/* {"cluster": {...}, "task": {"type": "worker", "index": 0}}. job (the caller frees it) and task are left alone when
 * there is no "task". */
shoal_status cluster_spec_from_tf_config(struct cluster_spec *c, const char *field, const char *text, char **job,
                                         int *task);
/* A serialized tensorflow.ClusterDef, of at most so many tasks. */
shoal_status cluster_spec_from_proto(struct cluster_spec *c, const void *data, size_t size, int64_t most);
size_t cluster_spec_count(const struct cluster_spec *c);
void cluster_spec_to_proto(const struct cluster_spec *c, struct text *out);

/* The whole: at least one task, no address twice. */
shoal_status cluster_spec_check(const struct cluster_spec *c);
/* The task's address; an error says which jobs and indices there are. */
shoal_status cluster_spec_task(const struct cluster_spec *c, const char *job, int index, const char **address);
/* NULL when there is none. */
const char *cluster_spec_find(const struct cluster_spec *c, const char *job, int index);

/* A cluster that a client named to a task of this one: PERMISSION_DENIED, naming the flag that allows it, when it has
 * tasks at addresses that this one has not. self: the address by which the client means that task; NULL: none. */
shoal_status cluster_spec_admit(const struct cluster_spec *c, const struct cluster_spec *named, const char *self,
                                const char *task);

/* "host:port" in parts; port 0 to 65535. host has room for 256 bytes; IPv6 hosts stand in brackets. */
shoal_status address_parse(const char *field, const char *address, char *host, int *port);
/* Does the host stand for this machine alone (127.0.0.0/8, ::1, or a name that resolves only to such)? */
bool address_is_loopback(const char *host);

#endif
