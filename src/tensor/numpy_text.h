/* Tensor values as text, the way NumPy prints arrays: what saved_model_cli shows of a model's answers. */
#ifndef TENSOR_NUMPY_TEXT_H
#define TENSOR_NUMPY_TEXT_H

#include "tensor/tensor.h"

/* Appends what Python's str() makes of t's array, or, where it has no dimensions, of its one element. Strings are as
 * Python writes bytes, so that nothing in them reaches a terminal. */
void numpy_print(const struct tensor *t, struct text *out);

#endif
