/* Reads of ref variables, as late as TensorFlow's.
 *
 * TensorFlow's read of a ref variable (an Identity) hands on the variable's own memory: a consumer that is made to wait
 * for an update sees the updated value, although the read itself ran before. Programs rely on it (SyncReplicasOptimizer
 * fills its token queue so). Here a read is a snapshot; so a consumer that comes after an update of the variable, by
 * whatever edges, is given the variable instead of the read. */
#ifndef GRAPH_LATE_READS_H
#define GRAPH_LATE_READS_H

#include "graph/graph.h"

/* For a graph that is about to be cut: the cutter reads a variable for a consumer elsewhere when that may run. */
void graph_late_reads(struct shoal_graph *g);

#endif
