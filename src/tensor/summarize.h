/* Tensor values as text, the way TensorFlow's errors, Print and tf.print have them. */
#ifndef TENSOR_SUMMARIZE_H
#define TENSOR_SUMMARIZE_H

#include "tensor/tensor.h"

/* Appends t's elements. Without edges: the first max elements, "..." when there are more, brackets around inner
 * dimensions only ("[1 2][3 4]"). With edges (tf.print): max elements from both ends of each dimension, strings
 * quoted, brackets and line breaks as NumPy has them. max < 0: all of them. */
void tensor_summarize(const struct tensor *t, int64_t max, bool edges, struct text *out);
/* One element, as above without quotes. */
void element_print(shoal_dtype dtype, const void *at, struct text *out);

#endif
