/* A variant that holds a tensor: what TensorFlow makes of a tensor that is assigned to an element of a variant. */
#ifndef TENSOR_TENSOR_VARIANT_H
#define TENSOR_TENSOR_VARIANT_H

#include "tensor/tensor.h"

/* Takes a reference of its own. */
struct variant *tensor_variant_new(const struct tensor *t);
/* A new reference to the tensor in v; false when v (which may be NULL) is of another kind. */
bool tensor_variant_get(const struct variant *v, struct tensor *out);

#endif
