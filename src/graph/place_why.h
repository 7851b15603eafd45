/* Why a node is where it is: for whoever wants his graph on a better device than it got. */
#ifndef GRAPH_PLACE_WHY_H
#define GRAPH_PLACE_WHY_H

#include "graph/place.h"

/* Of a node that has been placed: on the heap, in a few words, what keeps it from the best type of device that its task
 * has. NULL: it is on that. */
char *place_why(const struct shoal_node *n, const struct place_options *o);
/* Tells, of a graph that has been placed, how many nodes of which ops are not on the best type, and why: a line for
 * each reason. */
void place_tell_why(const struct shoal_graph *g, const struct place_options *o);

#endif
