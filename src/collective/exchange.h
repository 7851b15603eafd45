/* What an instance computes once all its members are there. */
#ifndef COLLECTIVE_EXCHANGE_H
#define COLLECTIVE_EXCHANGE_H

#include "collective/meeting.h"

/* members in order of rank, all in this process; results[i], none before, is member i's, and stays none with an error.
 */
shoal_status exchange_run(struct collective_member *const *members, int n, struct tensor *results);

#endif
