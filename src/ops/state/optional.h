/* Optionals for other kernels that return them. */
#ifndef OPS_STATE_OPTIONAL_H
#define OPS_STATE_OPTIONAL_H

#include "tensor/tensor.h"

/* A scalar variant tensor that holds values ([n], whose references are taken over); NULL: no value. */
shoal_status optional_to_tensor(struct tensor *values, int n, struct tensor *out);

#endif
