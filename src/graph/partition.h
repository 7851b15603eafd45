/* Partitioning: cuts a placed graph where edges cross from one place to another, and puts a send and a receive at each
 * cut, as TensorFlow's master does (protocol: names, keys, control edges, loops that span places). */
#ifndef GRAPH_PARTITION_H
#define GRAPH_PARTITION_H

#include "graph/graph.h"

struct partition_options {
  /* The place a device belongs to (a device: NULL means the device itself; or its task). Returns an index. */
  int (*place_of)(void *arg, const char *device);
  int n_places;
  uint64_t (*incarnation)(void *arg, const char *device);
  void *arg;
  int64_t *next_name; /* counter for new node names, kept by the session */
};

/* Before it: takes away NoOps at the end of the graph that only wait for others. A step ends when every place has run
 * all it has, so nobody needs to be told across places that others are done; of a training step with an update for each
 * variable this is half of all messages. */
void graph_drop_joins(struct shoal_graph *g);

/* parts[n_places] receives a graph for each place that has nodes, else NULL. g is left as it was. */
shoal_status graph_partition(const struct shoal_graph *g, const struct partition_options *o,
                             struct shoal_graph **parts);

#endif
