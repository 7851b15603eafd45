/* A member whose values are in a device's memory, by way of the host's: for groups that have no nearer way. */
#ifndef COLLECTIVE_STAGED_H
#define COLLECTIVE_STAGED_H

#include "collective/meeting.h"

struct step;

/* join() is given one in its place whose values are in host memory, when these are there: from any thread. What that
 * gets is the device's again before m->done. */
void collective_stage(struct step *step, struct collective_member *m,
                      void (*join)(struct step *step, struct collective_member *m));

#endif
