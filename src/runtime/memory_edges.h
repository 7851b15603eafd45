/* Edges between host memory and a device's own, in the graph of one device. */
#ifndef RUNTIME_MEMORY_EDGES_H
#define RUNTIME_MEMORY_EDGES_H

#include "device/device.h"
#include "graph/graph.h"

/* Puts a copy on each edge whose ends are not in the same memory. For devices whose memory is not the host's. */
shoal_status memory_edges_add(struct shoal_graph *g, const struct device *d, bool step);
/* Is this send or receive one between two devices of the type of this one, whose values may stay in their memory? */
bool memory_edges_stay(const struct shoal_node *n, const struct device *d);

#endif
