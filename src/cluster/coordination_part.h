/* What a strategy asks of a server. */
#ifndef CLUSTER_COORDINATION_PART_H
#define CLUSTER_COORDINATION_PART_H

#include <stdbool.h>

#include "shoal/cluster.h"

/* Has it a part in coordination (shoal_server_options.coordination_service)? */
bool server_coordinates(const shoal_server *s);

#endif
