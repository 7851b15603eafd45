/* Where feeds and fetches of a step are: where they are read and made.
 *
 * By itself a feed is on the first device of the task, the CPU, and so is a fetch. Where all that read a feed, or what
 * makes a fetch, is on one device of this process whose memory is its own, it goes there: the step then need not meet
 * itself in a rendezvous, and one that is all on that device is one plan, which may be captured as a whole (replay.h).
 */
#ifndef RUNTIME_STEP_ENDS_H
#define RUNTIME_STEP_ENDS_H

#include "runtime/plan_set.h"

/* Of a graph that was placed and pruned, with _Arg and _Retval at its ends. */
void step_ends_follow(struct plan_places *p, struct shoal_graph *g);

#endif
