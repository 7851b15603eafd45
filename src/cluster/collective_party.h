/* A party: the collectives of one group that a step comes to at one moment, on one device, in memory that the group's
 * tasks share. One list for those who do them, one time-out, one watch over those who do not come: what a collective
 * costs for itself is little more than its bytes. */
#ifndef CLUSTER_COLLECTIVE_PARTY_H
#define CLUSTER_COLLECTIVE_PARTY_H

#include "collective/group.h"
#include "collective/meeting.h"

struct session_collectives;
struct step;

/* A member whose group and instance are known to the session; false: it is to go the long way. */
bool party_take_known(struct session_collectives *site, struct step *step, struct collective_member *m);
/* One of that group, where it has that rank; false: the group goes by messages. source: of a broadcast. */
bool party_take(struct session_collectives *site, struct step *step, struct collective_member *m,
                struct collective_group *g, int rank, int source);

#endif
