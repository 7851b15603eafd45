/* WorkerService on the wire. */
#ifndef CLUSTER_WORKER_SERVICE_H
#define CLUSTER_WORKER_SERVICE_H

#include "cluster/worker.h"
#include "rpc/server.h"

/* One for each method of the service; the handlers' argument is the server (server.h). */
void worker_service_get_status(struct worker *w, struct rpc_call *c);
void worker_service_create_session(struct worker *w, struct rpc_call *c);
void worker_service_delete_session(struct worker *w, struct rpc_call *c);
void worker_service_register_graph(struct worker *w, struct rpc_call *c);
void worker_service_deregister_graph(struct worker *w, struct rpc_call *c);
void worker_service_run_graph(struct worker *w, struct rpc_call *c);
void worker_service_cleanup_graph(struct worker *w, struct rpc_call *c);
void worker_service_cleanup_all(struct worker *w, struct rpc_call *c);
void worker_service_recv_tensor(struct worker *w, struct rpc_call *c);
void worker_service_recv_buf(struct worker *w, struct rpc_call *c);
void worker_service_complete_group(struct worker *w, struct rpc_call *c);
void worker_service_complete_instance(struct worker *w, struct rpc_call *c);
void worker_service_step_sequence(struct worker *w, struct rpc_call *c);
void worker_service_step_failed(struct worker *w, struct rpc_call *c);
void worker_service_session_given_up(struct worker *w, struct rpc_call *c);
void worker_service_step_stands(struct worker *w, struct rpc_call *c);
/* RecvTensor and RunGraph by the fast path: fast_handlers, for the worker. */
void worker_service_fast_recv(void *worker, struct fast_request *request, int64_t step, const char *key);
void worker_service_fast_run(void *worker, struct fast_request *request, const void *data, size_t n, int64_t deadline);
void worker_service_mark_recv_finished(struct worker *w, struct rpc_call *c);
void worker_service_logging(struct worker *w, struct rpc_call *c);

#endif
