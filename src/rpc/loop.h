/* The network's threads: one completion queue for all servers and channels of a process.
 *
 * Every batch given to gRPC carries a struct rpc_event as its tag (after handover_give(): base/handover.h); when it
 * completes, a thread of the loop calls the event's function. A handler may take its time: another thread takes over
 * the network within milliseconds (answers, cancellations and pings go on), at once when the handler says
 * rpc_loop_hand_over(). */
#ifndef RPC_LOOP_H
#define RPC_LOOP_H

#include <grpc/grpc.h>
#include <stdbool.h>
#include <stdint.h>

struct rpc_event {
  void (*fn)(struct rpc_event *e, bool ok);
};

/* Starts gRPC and the loop at the first call; each call is paired with a release, the last of which ends both. */
void rpc_loop_acquire(void);
/* Not from a thread of the loop. */
void rpc_loop_release(void);
/* Valid between acquire and release. */
grpc_completion_queue *rpc_loop_queue(void);
/* Says that this thread is about to wait or to compute for long. Does nothing on threads that are not the loop's. */
void rpc_loop_hand_over(void);

/* A value of clock_ns() as gRPC wants it, and back. */
gpr_timespec rpc_deadline(int64_t deadline_ns);
int64_t rpc_deadline_from(gpr_timespec t);

#endif
