/* Placement: gives every node of a graph a device, by TensorFlow's rules.
 *
 *   - what must be together forms a group: _class "loc:@NAME", inputs by reference, inputs by resource handle
 *   - a group's devices are those that match all its members' requests and have kernels for all its ops; of a group
 *     that asks for a type and would be refused, those that have kernels for who asks
 *   - of these the best type wins (GPU before CPU: `priority`), then the master's own task, then the first by name
 *   - a node that nothing holds may follow its neighbours: sources go to their one consumer's device, Shape, Size and
 *     Rank to their input's */
#ifndef GRAPH_PLACE_H
#define GRAPH_PLACE_H

#include "base/device_name.h"
#include "graph/graph.h"

struct place_device {
  const char *name; /* full; stays the caller's */
  struct device_spec spec;
};

struct place_options {
  const struct place_device *devices;
  int n_devices;
  const char *own_task; /* "/job:worker/replica:0/task:0": preferred */
  bool allow_soft_placement;
  bool log; /* tell each node's device, and what keeps it from a better one (place_why.h) */
  /* Is there a kernel for the node, its dtypes among them, on a type of device? NULL: yes. */
  bool (*has_kernel)(const struct shoal_node *n, const char *device_type);
  /* (optional) The same for a node that asks for that type and may be nowhere else. */
  bool (*has_if_asked)(const struct shoal_node *n, const char *device_type);
  /* (optional) Why there is none: on the heap. */
  char *(*why_no_kernel)(const struct shoal_node *n, const char *device_type);
  /* Which type is better: the higher. NULL: all are alike. */
  int (*priority)(const char *device_type);
};

/* Sets node->assigned where it is not set yet. The error names the node, what it asked for and what there is. */
shoal_status graph_place(struct shoal_graph *g, const struct place_options *o);

#endif
