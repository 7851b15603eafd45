/* Frames: which loop each node of a graph with v1 control flow runs in. */
#ifndef GRAPH_FRAMES_H
#define GRAPH_FRAMES_H

#include "graph/graph.h"

struct frame_def {
  char *name; /* "" for frame 0, the graph itself */
  int parent; /* -1 for frame 0 */
  int parallel_iterations;
  int n_enters;
};

struct frames {
  VEC(struct frame_def) at;
  int *runs_in;   /* by node id: the frame it runs in */
  int *output_in; /* by node id: where its outputs are (Enter: the child, Exit: the parent) */
};

/* order: g's nodes in topological order. A node whose inputs are in different frames is an error that names it. */
shoal_status frames_init(struct frames *f, const struct shoal_graph *g, struct shoal_node *const *order);
void frames_release(struct frames *f);

bool node_is_enter(const struct shoal_node *n);
bool node_is_exit(const struct shoal_node *n);
bool node_is_merge(const struct shoal_node *n);
bool node_is_switch(const struct shoal_node *n);
bool node_is_next_iteration(const struct shoal_node *n);

#endif
