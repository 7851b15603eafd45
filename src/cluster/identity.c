/* Certificates and tasks; see identity.h. */
#include "cluster/identity.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "base/device_name.h"

#define SUFFIX ".shoal"
enum { MAX_DIGITS = 9 };

char *identity_of_task(const char *task) {
  struct device_spec d;
  shoal_status s = device_spec_parse(task, &d);
  shoal_status_free(s);
  if (s || !d.has_job || !d.has_task) return NULL;
  return mem_printf("%d.%s" SUFFIX, d.task, d.job);
}

/* The job part of "N.JOB.shoal" or "*.JOB.shoal", and N (-1: any); false for other names. */
static bool parse(const char *name, const char **job, size_t *n, int64_t *index) {
  size_t all = strlen(name), head = strcspn(name, ".");
  if (all <= head + strlen(SUFFIX) + 1 || strcasecmp(name + all - strlen(SUFFIX), SUFFIX) != 0) return false;
  *job = name + head + 1;
  *n = all - strlen(SUFFIX) - head - 1;
  *index = -1;
  if (head == 1 && *name == '*') return true;
  if (head == 0 || head > MAX_DIGITS || (head > 1 && *name == '0')) return false; /* one way to write a number */
  *index = 0;
  for (size_t i = 0; i < head; i++) {
    if (name[i] < '0' || name[i] > '9') return false;
    *index = *index * 10 + (name[i] - '0');
  }
  return true;
}

static bool is_member(const char *name, void *arg) {
  const struct cluster_spec *spec = arg;
  const char *job;
  size_t n;
  int64_t index;
  if (!parse(name, &job, &n, &index)) return false;
  for (size_t i = 0; i < spec->jobs.n; i++) {
    const struct cluster_job *j = &spec->jobs.at[i];
    if (strlen(j->name) != n || strncasecmp(j->name, job, n) != 0) continue;
    for (size_t k = 0; k < j->tasks.n; k++)
      if (index < 0 || j->tasks.at[k].index == index) return true;
  }
  return false;
}

shoal_status identity_check_member(struct rpc_call *c, const struct cluster_spec *spec) {
  if (rpc_call_peer_named(c, is_member, (void *)(uintptr_t)spec)) return NULL;
  char *peer = rpc_call_peer(c);
  shoal_status s = STATUS(SHOAL_PERMISSION_DENIED,
                          "the certificate of %s names no task of this cluster (a DNS name such as 0.worker" SUFFIX
                          " or *.worker" SUFFIX "): it may open sessions, but not act as a task",
                          peer);
  free(peer);
  return s;
}

static bool is_task(const char *name, void *arg) {
  const struct device_spec *d = arg;
  const char *job;
  size_t n;
  int64_t index;
  return parse(name, &job, &n, &index) && (index < 0 || index == d->task) && strlen(d->job) == n &&
         !strncasecmp(d->job, job, n);
}

shoal_status identity_check_task(struct rpc_call *c, const char *task) {
  struct device_spec d;
  TRY(device_spec_parse(task, &d));
  if (rpc_call_peer_named(c, is_task, &d)) return NULL;
  char *peer = rpc_call_peer(c);
  shoal_status s = STATUS(SHOAL_PERMISSION_DENIED,
                          "%s calls itself %s, but its certificate has no DNS name %d.%s" SUFFIX " or *.%s" SUFFIX,
                          peer, task, d.task, d.job, d.job);
  free(peer);
  return s;
}
