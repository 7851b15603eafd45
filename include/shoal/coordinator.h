/* Coordinators: threads that end together. One that stops, with an error or without, stops all; the first error is
 * what join returns. Queue runners are threads of a coordinator that fill a queue of the graph. */
#ifndef SHOAL_COORDINATOR_H
#define SHOAL_COORDINATOR_H

#include <shoal/session.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_coordinator shoal_coordinator;

SHOAL_API shoal_coordinator *shoal_coordinator_new(void);
/* After join. */
SHOAL_API void shoal_coordinator_free(shoal_coordinator *c);
/* Starts a thread that join waits for. fn looks at should_stop from time to time; what it returns as an error stops
 * all threads (OUT_OF_RANGE, the end of the input, is no error: it stops them cleanly). */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_coordinator_start(shoal_coordinator *c, shoal_status (*fn)(void *arg),
                                                                void *arg);
/* Asks all to stop; error (or NULL) is taken over, and kept if it is the first. */
SHOAL_API void shoal_coordinator_request_stop(shoal_coordinator *c, shoal_status error);
SHOAL_API bool shoal_coordinator_should_stop(shoal_coordinator *c);
/* Sleeps until a stop is requested, or for so long (below 0: for ever); is a stop requested? */
SHOAL_API bool shoal_coordinator_wait_for_stop(shoal_coordinator *c, double seconds);
/* A copy of the error that stopped the threads, or NULL. */
SHOAL_API shoal_status shoal_coordinator_error(shoal_coordinator *c);
/* Waits for all threads; once a stop is requested, for at most grace_seconds (0: 120) more: then DEADLINE_EXCEEDED with
 * the number of threads that go on. Returns the first error. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_coordinator_join(shoal_coordinator *c, double grace_seconds);

/* Runs enqueue over and over, in so many threads. When the input ends (OUT_OF_RANGE) or the queue is closed (CANCELLED)
 * the last thread runs close; when the coordinator stops, cancel. close and cancel may be NULL. */
typedef struct shoal_queue_runner {
  shoal_op *enqueue;
  int threads; /* 0: one */
  shoal_op *close, *cancel;
} shoal_queue_runner;

/* The session must outlive the coordinator's join. Of r it takes what version 0.1 has. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_queue_runner_start(const shoal_queue_runner *r, shoal_session *session,
                                                                 shoal_coordinator *c);
/* The same for n of them, of whatever version: runner_size is sizeof(shoal_queue_runner). */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_queue_runners_start(const shoal_queue_runner *runners, int n,
                                                                  size_t runner_size, shoal_session *session,
                                                                  shoal_coordinator *c);

#ifdef __cplusplus
}
#endif
#endif
