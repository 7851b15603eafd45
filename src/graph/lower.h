/* Functions and functional control flow, made into plain nodes.
 *
 * graph_lower() inlines calls (PartitionedCall, StatefulPartitionedCall, nodes whose op is a function,
 * SymbolicGradient) and turns If, Case and While (and their stateless forms) into Switch, Merge, Enter, Exit and
 * NextIteration, as TensorFlow's master does. What a node computes is still found under its name: the node becomes
 * an IdentityN of its results (a NoOp when it has none), and pointers to it stay good. */
#ifndef GRAPH_LOWER_H
#define GRAPH_LOWER_H

#include "graph/graph.h"

enum {
  LOWER_MAX_NODES = 500000, /* that lowering a graph may add */
  LOWER_MAX_WORK = 1500000, /* nodes made, of bodies and of their copies, where the graph has no effort of its own */
};

/* On a node that could not be lowered: why. */
#define LOWER_ERROR "_lower_error"

/* Lowers every such node there is. One that cannot be (its function is missing, or calls itself) stays as it was, with
 * the reason in its attribute LOWER_ERROR, and runs as a call if its op has a kernel; the first such reason is
 * returned, the graph is good all the same. */
shoal_status graph_lower(struct shoal_graph *g);
/* The same, for those who leave it to the run to complain of single nodes. What is returned ended all lowering: it
 * would make too many nodes (which is found out before the first of them is made, where the library tells), or the
 * graph's effort is spent or over. */
shoal_status graph_try_lower(struct shoal_graph *g);
/* And again, with loops as TensorFlow's Python makes them: what a Switch hands to the body goes through an Identity,
 * without which TensorFlow's optimizer breaks the loop; and calls of functions that have gradients of their own stay.
 * For graphs that are differentiated, and may leave this process. */
shoal_status graph_try_lower_portable(struct shoal_graph *g);
/* Is there anything to lower? */
bool graph_needs_lowering(const struct shoal_graph *g);

#endif
