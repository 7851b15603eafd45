/* What the elements of a dataset are: how many tensors, of which types, of which shapes as far as known.
 *
 * Dataset ops carry that in attributes, so a dataset of the graph (a shoal_out) is all that is handed around. Readers
 * of files have no such attributes: their elements are strings. A window's components are datasets again; what those
 * hold is found by walking up to where the windows were made, and written beside an input of a function that gets them
 * ("_dataset_types", "_dataset_shapes"): TensorFlow passes by attributes with an underscore. */
#ifndef FEED_ELEMENT_H
#define FEED_ELEMENT_H

#include "graph/builder.h"
#include "shoal/dataset.h"

struct feed_element {
  int n;
  shoal_dtype types[SHOAL_MAX_COMPONENTS];
  struct shape shapes[SHOAL_MAX_COMPONENTS];
};

/* Fails, in the caller's name, when d is no dataset. */
shoal_status element_of(const char *caller, shoal_out d, struct feed_element *out);
/* One component more; false when there is no room. */
bool element_add(struct feed_element *e, shoal_dtype type, const struct shape *shape);
/* What component i of d's elements holds, where that is a dataset; false where it is none, or not known. */
bool element_nested(shoal_out d, int i, struct feed_element *out);
/* From now on the variant `node` gives is known to be a dataset of such elements. */
void element_mark(struct shoal_node *node, const struct feed_element *e);
shoal_status element_shape(shoal_dims dims, struct shape *out);

/* A shape with a dimension before it, or without its first one. */
struct shape shape_batched(const struct shape *s, int64_t rows);
struct shape shape_row(const struct shape *s);

/* A dataset op: what all of them begin and end with. */
struct build dataset_begin(struct shoal_graph *g, const char *op, shoal_out in);
shoal_out dataset_end(struct build *b, const struct feed_element *e);        /* output_types, output_shapes */
shoal_out dataset_end_shapes(struct build *b, const struct feed_element *e); /* types are those of the inputs */

#endif
