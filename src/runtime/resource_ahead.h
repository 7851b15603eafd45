/* Memory asked for before it is needed, for nodes that use many resources one after another. */
#ifndef RUNTIME_RESOURCE_AHEAD_H
#define RUNTIME_RESOURCE_AHEAD_H

#include "tensor/tensor.h"

/* What leads from each handle among these tensors to its resource, and the first elements of the other tensors, are on
 * their way to this core when it returns. */
void resource_fetch_ahead(const struct tensor *const *in, int n);

#endif
