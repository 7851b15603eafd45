/* Updates that happen only in some steps.
 *
 * Between only_if_begin and only_if_end every node runs only if the bool scalar said so (TensorFlow's Switch makes what
 * depends on it dead in other steps; variables made inside are not part of it). The node that only_if_end returns runs
 * in every step, after `done` in those that have it. */
#ifndef TRAIN_ONLY_IF_H
#define TRAIN_ONLY_IF_H

#include "graph/builder.h"

struct only_if {
  struct shoal_graph *g;
  struct shoal_node *choice;
};
struct only_if only_if_begin(struct shoal_graph *g, shoal_out happens);
struct shoal_node *only_if_end(struct only_if *w, struct shoal_node *done);

#endif
