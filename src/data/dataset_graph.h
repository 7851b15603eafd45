/* Datasets as graphs: each remembers the node that made it, so that the graph of a whole pipeline can be written down
 * (DatasetToGraph) or made anew with a change (AutoShardDataset). */
#ifndef DATA_DATASET_GRAPH_H
#define DATA_DATASET_GRAPH_H

#include "base/ref.h"
#include "data/dataset.h"
#include "graph/graph.h"

/* What a node says of itself: made once for a kernel, shared by the datasets that it makes. */
struct dataset_origin {
  struct ref refs;
  const struct op *op;
  struct named_attr *attrs; /* those of the op; what others put on its node is not the dataset's */
  int n_attrs;
};

struct dataset_origin *dataset_origin_new(const struct shoal_node *n);
void dataset_origin_unref(struct dataset_origin *o);
/* d was made by a node (o, which may be NULL, gets a reference, and so do functions and inputs). */
void dataset_set_origin(struct dataset *d, struct dataset_origin *o, struct function_runtime *functions,
                        const struct tensor *const *in, int n_in);

enum dataset_graph_flags {
  GRAPH_IN_PROCESS = 1, /* to be run here: values that have no form outside, datasets among them, are constants */
  GRAPH_OWN_SEEDS = 2,  /* a dataset with own_seeds is a node for each use of it */
};
/* The nodes that make d, in TensorFlow's order and under its names, inputs as constants, the functions that they name
 * in its library. *out is d's. An edge of the pipeline that is not a plain tensor or a dataset is an error. */
shoal_status dataset_graph(const struct dataset *d, unsigned flags, struct shoal_graph *g, struct shoal_node **out);
/* FAILED_PRECONDITION when a function of the library has state that a graph does not show. */
shoal_status dataset_graph_check_state(const struct shoal_graph *g);

#endif
