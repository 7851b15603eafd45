/* Data from files into tensors. */
#ifndef SHOAL_DATA_H
#define SHOAL_DATA_H

#include <shoal/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An IDX file (MNIST's format), plain or gzipped, as a tensor. A file that is cut short or has more than its header
 * announces is DATA_LOSS. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_read_idx(const char *path, shoal_tensor **out);

#ifdef __cplusplus
}
#endif
#endif
