/* Clients in the process of their own server: steps by a call instead of a message.
 *
 * A worker of a training job is a server and a client of that server at once, and feeds it a batch at every step. On
 * the wire this batch would be copied four times and pass two queues; here the step's arguments are the client's
 * tensors themselves. Everything but running steps still goes by the wire: it is rare, and one way of doing it is
 * enough. */
#ifndef CLUSTER_IN_PROCESS_H
#define CLUSTER_IN_PROCESS_H

#include "cluster/master.h"
#include "shoal/session.h"

/* A server says that it is here, by its target; and that it goes, which waits for the calls that are inside. Before it
 * goes, its sessions must have been closed. */
void in_process_add(const char *target, struct master *m);
void in_process_remove(struct master *m);

/* The master behind a target if it is in this process, or NULL. It stays until in_process_leave. */
struct master *in_process_enter(const char *target);
void in_process_leave(struct master *m);

/* RunStep, for a session of that master. deadline: as clock_ns() has it. */
shoal_status in_process_run(struct master *m, const char *handle, const shoal_run_options *o, int64_t deadline,
                            const struct step_signature *sig, shoal_tensor *const *feeds, shoal_tensor **fetches,
                            shoal_bytes *metadata);

#endif
