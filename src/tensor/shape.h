/* Shapes. A struct shape may be partly known (rank -1: unknown; dimension -1: unknown), as in attributes and
 * in shape inference; a tensor's own shape is always fully known. */
#ifndef TENSOR_SHAPE_H
#define TENSOR_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "shoal/tensor.h"

struct shape {
  int rank; /* -1: unknown */
  int64_t dims[SHOAL_MAX_RANK];
};

static inline struct shape shape_unknown(void) { return (struct shape){.rank = -1}; }
static inline struct shape shape_scalar(void) { return (struct shape){.rank = 0}; }
static inline struct shape shape_vector(int64_t n) { return (struct shape){.rank = 1, .dims = {n}}; }
static inline struct shape shape_matrix(int64_t r, int64_t c) { return (struct shape){.rank = 2, .dims = {r, c}}; }
struct shape shape_unknown_of_rank(int rank);

bool shape_known(const struct shape *s); /* rank and every dimension */
bool shape_equal(const struct shape *a, const struct shape *b);
/* Could both describe the same tensor? */
bool shape_compatible(const struct shape *a, const struct shape *b);
/* The number of elements; -1 when not fully known. Overflow or a dimension below -1 is an error. */
shoal_status shape_elements(const struct shape *s, int64_t *out);
/* The shape that both describe, in *out; an error when they cannot be the same. */
shoal_status shape_merge(const struct shape *a, const struct shape *b, struct shape *out);
/* NumPy broadcasting of two (possibly partly known) shapes. */
shoal_status shape_broadcast(const struct shape *a, const struct shape *b, struct shape *out);
/* "[2,3]", "[?,3]", "<unknown>": as TensorFlow's errors have it. */
void shape_print(const struct shape *s, struct text *out);
/* The same in one of a few rotating thread-local buffers: for error messages only. */
const char *shape_str(const struct shape *s);

#endif
