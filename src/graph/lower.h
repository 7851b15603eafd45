/* Functions and functional control flow, made into plain nodes.
 *
 * graph_lower() inlines calls (PartitionedCall, StatefulPartitionedCall, nodes whose op is a function,
 * SymbolicGradient) and turns If, Case and While (and their stateless forms) into Switch, Merge, Enter, Exit and
 * NextIteration, as TensorFlow's master does. What a node computes is still found under its name: the node becomes
 * an IdentityN of its results (a NoOp when it has none), and pointers to it stay good. */
#ifndef GRAPH_LOWER_H
#define GRAPH_LOWER_H

#include "graph/graph.h"

/* Lowers every such node there is. On error the graph is half-way and must not be used. */
shoal_status graph_lower(struct graph *g);
/* The same, but a graph that cannot be lowered (a function that calls itself) is left as it was: its calls then run as
 * calls. */
void graph_try_lower(struct graph *g);
/* Is there anything to lower? */
bool graph_needs_lowering(const struct graph *g);

#endif
