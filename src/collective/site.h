/* Where collectives of a step go whose groups may have members in other tasks; a step without one meets in its own task
 * alone (meeting.h). The cluster has it (src/cluster/collectives.h); ops know only this. */
#ifndef COLLECTIVE_SITE_H
#define COLLECTIVE_SITE_H

#include "collective/meeting.h"
#include "collective/under_way.h"

struct step;
struct collective_site {
  struct under_way under_way; /* of its session; ops enter their members */
  /* The member's own fields of the meeting are not used. May call done before it returns. */
  void (*join)(struct collective_site *s, struct step *step, struct collective_member *m);
};

#endif
