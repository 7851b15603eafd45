/* Edges between host memory and a device's own, in the graph of one device. */
#ifndef RUNTIME_MEMORY_EDGES_H
#define RUNTIME_MEMORY_EDGES_H

#include "device/device.h"
#include "graph/graph.h"

/* Puts a copy on each edge whose ends are not in the same memory. For devices whose memory is not the host's. */
shoal_status memory_edges_add(struct shoal_graph *g, const struct device *d, bool step);

#endif
