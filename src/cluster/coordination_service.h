/* CoordinationService on the wire; one for each method. Limits: the server's. */
#ifndef CLUSTER_COORDINATION_SERVICE_H
#define CLUSTER_COORDINATION_SERVICE_H

#include "cluster/coordination.h"
#include "rpc/server.h"

void coordination_service_register(struct coordination *c, struct limits *l, struct rpc_call *call);
void coordination_service_heartbeat(struct coordination *c, struct limits *l, struct rpc_call *call);
void coordination_service_wait_for_all(struct coordination *c, struct limits *l, struct rpc_call *call);
void coordination_service_shutdown(struct coordination *c, struct limits *l, struct rpc_call *call);
void coordination_service_reset(struct coordination *c, struct limits *l, struct rpc_call *call);
void coordination_service_report_error(struct coordination *c, struct limits *l, struct rpc_call *call);
void coordination_service_task_state(struct coordination *c, struct limits *l, struct rpc_call *call);
void coordination_service_insert(struct coordination *c, struct limits *l, struct rpc_call *call);
void coordination_service_get(struct coordination *c, struct limits *l, struct rpc_call *call);
void coordination_service_try_get(struct coordination *c, struct limits *l, struct rpc_call *call);
void coordination_service_get_directory(struct coordination *c, struct limits *l, struct rpc_call *call);
void coordination_service_delete(struct coordination *c, struct limits *l, struct rpc_call *call);
void coordination_service_barrier(struct coordination *c, struct limits *l, struct rpc_call *call);
void coordination_service_cancel_barrier(struct coordination *c, struct limits *l, struct rpc_call *call);

#endif
