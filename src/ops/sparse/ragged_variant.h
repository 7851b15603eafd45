/* A ragged tensor as one value: what RaggedTensorToVariant makes and RaggedTensorFromVariant takes. */
#ifndef OPS_SPARSE_RAGGED_VARIANT_H
#define OPS_SPARSE_RAGGED_VARIANT_H

#include "tensor/tensor.h"

/* One of a single ragged dimension; takes references of its own. */
struct variant *ragged_variant_new(const struct tensor *splits, const struct tensor *values);

#endif
