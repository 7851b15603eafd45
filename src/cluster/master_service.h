/* MasterService on the wire: one handler for each method. */
#ifndef CLUSTER_MASTER_SERVICE_H
#define CLUSTER_MASTER_SERVICE_H

#include "cluster/master.h"
#include "rpc/server.h"

void master_service_create_session(struct master *m, struct rpc_call *c);
void master_service_extend_session(struct master *m, struct rpc_call *c);
void master_service_partial_run_setup(struct master *m, struct rpc_call *c);
void master_service_run_step(struct master *m, struct rpc_call *c);
void master_service_close_session(struct master *m, struct rpc_call *c);
void master_service_list_devices(struct master *m, struct rpc_call *c);
void master_service_reset(struct master *m, struct rpc_call *c);
void master_service_make_callable(struct master *m, struct rpc_call *c);
void master_service_run_callable(struct master *m, struct rpc_call *c);
void master_service_release_callable(struct master *m, struct rpc_call *c);

#endif
