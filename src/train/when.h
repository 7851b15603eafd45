/* Updates that happen only in some steps.
 *
 * Between when_begin and when_end every node runs only if the bool scalar said so (TensorFlow's Switch makes what
 * depends on it dead in other steps; variables made inside are not part of it). The node that when_end returns runs in
 * every step, after `done` in those that have it. */
#ifndef TRAIN_WHEN_H
#define TRAIN_WHEN_H

#include "graph/builder.h"

struct when {
  struct graph *g;
  struct node *choice;
};
struct when when_begin(struct graph *g, struct out happens);
struct node *when_end(struct when *w, struct node *done);

#endif
