/* What scatters into variables and sparse updates need to be checked, for the kernels of every device. */
#ifndef OPS_STATE_VARIABLE_ROWS_H
#define OPS_STATE_VARIABLE_ROWS_H

#include "ops/state/state.h"

/* With the variable's lock held. No element is looked at. */
shoal_status scatter_check(const struct variable *v, const struct tensor *indices, const struct tensor *updates);
/* The gradient of a sparse update, and its indices (training.c); *run: elements of a row. */
shoal_status sparse_update_check(const struct tensor *var, const struct tensor *grad, const struct tensor *indices,
                                 int64_t *run);

#endif
