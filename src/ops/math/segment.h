/* What all ops have in common that reduce rows by sorted segment ids. */
#ifndef OPS_MATH_SEGMENT_H
#define OPS_MATH_SEGMENT_H

#include "tensor/tensor.h"

/* Does a segment end at ids[i - 1]? Then the id must be below `rows`, and the next one larger. Asked segment by
 * segment, so that of several mistakes the one TensorFlow finds first is named. */
shoal_status segment_end(const struct tensor *ids, int64_t i, int64_t rows, bool *is_end);

/* Of UnsortedSegmentSum and its kin; of the ids no element is looked at. */
shoal_status unsorted_segment_shape(const struct tensor *x, const struct tensor *ids, const struct tensor *num,
                                    struct shape *out);

#endif
