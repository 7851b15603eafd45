/* How many batches a run has used, where the step counter does not tell: steps that are put together from several
 * batches count once for all of them, and a batch whose gradients are left out does not count at all. The number is a
 * variable beside the step counter, made by what counts so: saved, restored and mirrored as that is. Where there is
 * none, each step has used one batch.
 *
 * It has the batches that have done all they ever will: those of gradients that are still being added up come to it
 * with the last of them. The sums are lost with a session, and the next one takes these batches again.
 *
 * A checkpoint from before there was such a number has none. Then it is the step counter's. */
#ifndef TRAIN_BATCHES_USED_H
#define TRAIN_BATCHES_USED_H

#include "train/variables.h"

/* Adds n in each run; NULL: step is not the graph's step counter, by which nobody's input goes. */
struct shoal_node *batches_used_add(struct shoal_graph *g, shoal_var step, int n);
/* Where input that goes by that number begins: the number of batches, if it is the step counter and there is one. */
shoal_out batches_used_value(const struct shoal_graph *g, shoal_out position);

#endif
