/* NCCL, where it is there: see the head of cuda_nccl.c. */
#ifndef DEVICE_CUDA_CUDA_NCCL_H
#define DEVICE_CUDA_CUDA_NCCL_H

#include "device/device.h"

/* Why it is not; NULL: it is. */
const char *cuda_nccl_missing(void);
/* The type's. */
shoal_status cuda_merge_across(struct device *const *d, const struct device_merging *m);

#endif
