/* Parcels of small collectives (collective/parcels.h) between tasks: values of the step's rendezvous, as all messages
 * of collectives are. A step has a parcels for each of its groups and ranks here, which goes with it. */
#ifndef CLUSTER_COLLECTIVE_BUNDLES_H
#define CLUSTER_COLLECTIVE_BUNDLES_H

#include "base/pool.h"
#include "collective/parcels.h"
#include "collective/group.h"
#include "runtime/rendezvous.h"

struct step_parcels;

/* Of a step, by its rendezvous, which must be held for as long. Large parcels are worked on by the pool. */
struct step_parcels *collective_parcels(struct rendezvous *step, struct collective_group *g, int rank,
                                        struct pool *pool);
struct parcels *collective_parcels_run(struct step_parcels *b);
/* Who has come to a collective with a shape that goes without parcels waits for a message of its own from this rank:
 * it is told that there is none, and so that shapes differ. Who has come to it in parcels never looks there. */
void collective_parcels_disclose(struct step_parcels *b, const struct collective_id *id);
/* It has ended: what was told goes. */
void collective_parcels_retract(struct step_parcels *b, const struct collective_id *id);

#endif
