/* Who a certificate says its holder is.
 *
 * A task's certificate names it among its DNS names: "2.worker.shoal" is /job:worker/task:2, "*.worker.shoal" any task
 * of that job. Whoever connects to a task demands its name (wildcards included); whoever is called as a
 * worker demands that the caller is a task of the cluster, and that a master which opens a session is the task it says.
 * Certificates without such a name are clients': they may open sessions and ask for the status, but not act as a
 * master. Names end in ".shoal", which is nobody's domain, so that no certificate made for a web server passes. */
#ifndef CLUSTER_IDENTITY_H
#define CLUSTER_IDENTITY_H

#include "cluster/cluster_spec.h"
#include "rpc/server.h"

/* "0.ps.shoal" for "/job:ps/replica:0/task:0"; NULL for what is no task. The caller frees it. */
char *identity_of_task(const char *task);
/* Does one of the caller's names stand for a task of the cluster? PERMISSION_DENIED if not. */
shoal_status identity_check_member(struct rpc_call *c, const struct cluster_spec *spec);
/* Does one stand for this very task? */
shoal_status identity_check_task(struct rpc_call *c, const char *task);

#endif
