/* Steps in the background: started, polled, waited for, cancelled. On sessions of this process and of clusters alike.
 *
 *   shoal_async *run;
 *   float l;
 *   shoal_run_async(session, NULL, SHOAL_FEED(x, images), SHOAL_FETCH(loss, &l), train, &run);
 *   while (!shoal_async_done(run, 100)) ...;   // or shoal_async_cancel(run)
 *   error = shoal_async_wait(run);             // l has its value now
 *   shoal_async_free(run);
 *
 * Each has a thread of its own while it runs, and any number may be under way in a session. */
#ifndef SHOAL_ASYNC_H
#define SHOAL_ASYNC_H

#include <shoal/step.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_async shoal_async;

/* Starts a step. Tensors that are fed are referenced until it ends; options and arrays are copied. Where fetches go
 * must stay until shoal_async_wait, and the graph until shoal_async_free. Closing the session ends the step with
 * CANCELLED, and waits for it; the handle is freed as ever. options and target may be NULL. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_run_async(shoal_session *s, const shoal_run_options *options,
                                                        shoal_feeds feeds, shoal_fetches fetches,
                                                        const shoal_op *target, shoal_async **out);
/* Has the step ended, with or without an error? Waits for that for at most so long; 0: not at all, below 0: for ever.
 */
SHOAL_API bool shoal_async_done(shoal_async *a, int64_t timeout_ms);
/* Waits for the end, stores what was fetched (the first time, and only if all went well), and returns the step's
 * error, each time a copy for the caller. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_async_wait(shoal_async *a);
/* Asks the step to end with CANCELLED, and returns at once; what has ended is left alone. Safe in any thread. */
SHOAL_API void shoal_async_cancel(shoal_async *a);
/* Cancels a step that still runs, waits until it has ended, frees a. */
SHOAL_API void shoal_async_free(shoal_async *a);

#ifdef __cplusplus
}
#endif
#endif
