/* Scopes of a graph that is built in several places in turn: whoever waits for another sets its own aside, and puts
 * them back when it goes on. */
#ifndef GRAPH_ASIDE_H
#define GRAPH_ASIDE_H

#include "graph/builder.h"

/* How many scopes of each kind are open. */
struct graph_depth {
  size_t scopes, devices, controls, colocations;
};
struct graph_depth graph_depth(struct shoal_graph *g);

/* All that were opened above that depth; they must be put back, at the same depth. */
struct graph_aside *graph_set_aside(struct shoal_graph *g, struct graph_depth above);
void graph_put_back(struct shoal_graph *g, struct graph_aside *a);

#endif
