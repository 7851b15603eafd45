/* What a strategy asks of a server. */
#ifndef CLUSTER_SERVER_PART_H
#define CLUSTER_SERVER_PART_H

#include <stdbool.h>

#include "base/status.h"
#include "shoal/cluster.h"

/* Has it a part in coordination (shoal_server_options.coordination_service)? */
bool server_coordinates(const shoal_server *s);
/* How many devices of a type it has. */
int server_devices(const shoal_server *s, const char *type);
/* Which tasks are in the group of its task's strategy, as people read it: an error where another has said that it has
 * others (same_group.h). */
shoal_status server_meets(const shoal_server *s, const char *group);
/* Its task cannot take part in what it and so many other tasks do together, and says why: it waits for a moment, until
 * those have heard of it (no_part.h). NULL: it can after all. */
void server_takes_part(const shoal_server *s, int others, shoal_status why_not);

#endif
