/* A party: the collectives of one group that a step comes to at one moment, on one device: in memory that the group's
 * tasks share, or small ones by messages in parcels. One list for those who do them, one time-out, one watch over those
 * who do not come: what a collective costs for itself is little more than its bytes. */
#ifndef CLUSTER_COLLECTIVE_PARTY_H
#define CLUSTER_COLLECTIVE_PARTY_H

#include "collective/group.h"
#include "collective/meeting.h"

struct session_collectives;
struct step;

struct party;

/* A member whose group and instance are known to the session; false: it is to go the long way. */
bool party_take_known(struct session_collectives *site, struct step *step, struct collective_member *m);
/* Where a member of that group goes, which has that rank; NULL: it goes by messages of its own. by_messages: memory was
 * tried. */
struct party *party_find(struct session_collectives *site, struct step *step, const struct collective_member *m,
                         struct collective_group *g, int rank, bool by_messages);
/* To be called at once. It may end before this returns, and the step with it. source: of a broadcast. out: the output
 * where it is made already, which is taken over; else NULL. */
void party_add(struct party *p, struct collective_member *m, int source, struct tensor *out);

#endif
