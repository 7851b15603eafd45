/* What layers share (shoal/layers.h). */
#ifndef TRAIN_LAYERS_H
#define TRAIN_LAYERS_H

#include "graph/builder.h"

/* The type of a layer's variables and moments for inputs of this one. Beside half-precision inputs variables stay
 * float32, and are rounded for each use: their small updates would be lost otherwise. */
static inline shoal_dtype layer_kept_type(shoal_dtype dtype) {
  return dtype == SHOAL_FLOAT16 || dtype == SHOAL_BFLOAT16 ? SHOAL_FLOAT32 : dtype;
}

/* x as [rows, the last dimension], and y of as many rows with x's dimensions before its own last one again. x's last
 * dimension is known, and at most one of the others is not. */
shoal_out layer_to_rows(struct shoal_graph *g, shoal_out x);
shoal_out layer_from_rows(struct shoal_graph *g, shoal_out y, shoal_out x);
/* The same for a rank that must be this one. */
int64_t layer_check(struct shoal_graph *g, shoal_out x, int rank, const char *layer);
/* The last dimension of x, of rank `least` or more. 1, and the graph has an error, where it is not known. */
int64_t layer_last_dim(struct shoal_graph *g, shoal_out x, int least, const char *layer);

#endif
