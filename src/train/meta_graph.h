/* MetaGraphDefs: a graph with what a program needs to take it up again without the code that built it. tf.train.Saver
 * leaves one beside every checkpoint, PREFIX.meta, and tf.train.import_meta_graph reads it. */
#ifndef TRAIN_META_GRAPH_H
#define TRAIN_META_GRAPH_H

#include "base/text.h"
#include "graph/graph.h"

/* Appends a field with the name of a tensor, "x:0". */
void meta_graph_put_out(struct text *t, uint32_t tag, shoal_out o);
/* How a checkpoint is written and read in a session on the graph: by a fed file name, a tensor and an op. */
struct meta_saver {
  shoal_out filename, save;
  const struct shoal_node *restore;
  int max_to_keep; /* 0: all */
  double keep_every_hours;
};
/* Appends the message: the graph, the saver (NULL: none), and the collections that TensorFlow's programs go by
 * (variables, trainable_variables, local_variables, global_step, summaries). */
shoal_status meta_graph_encode(struct shoal_graph *g, const struct meta_saver *saver, struct text *out);

#endif
