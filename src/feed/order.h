/* What transformations share with others of this folder. */
#ifndef FEED_ORDER_H
#define FEED_ORDER_H

#include "feed/element.h"

/* buffer: an int64 scalar. seed: SHOAL_ANY_SEED, or as tf.data has them. */
shoal_out feed_shuffle(struct shoal_graph *g, shoal_out d, const struct feed_element *e, shoal_out buffer, int64_t seed,
                       bool reshuffle);
/* Passes so many elements by, without making them where that can be; count: an int64 scalar. */
shoal_out feed_skip(struct shoal_graph *g, shoal_out d, const struct feed_element *e, shoal_out count);

/* What padded batches ask of the program. */
struct feed_padding {
  const shoal_dims *shapes;
  const shoal_out *values;
  bool drop_remainder;
};
/* rows: an int64 scalar; known: what it is, or -1. */
shoal_out feed_padded_batch(struct shoal_graph *g, const char *caller, shoal_out d, shoal_out rows, int64_t known,
                            const struct feed_padding *p);

/* What a function captured becomes inputs, and their types an attribute. */
void build_captured(struct build *b, const char *types_attr, const shoal_function *f);
/* Fails when f does not return one tensor of that type (SHOAL_DT_INVALID: a dataset, whose elements go to *e). */
shoal_status function_gives(const char *caller, const shoal_function *f, shoal_dtype type, struct feed_element *e);

#endif
