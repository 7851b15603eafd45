/* Indices sorted on a card, for who writes rows: by row, then by place, those out of range at the end (rows.cu). */
#ifndef DEVICE_CUDA_CUDA_ROWS_H
#define DEVICE_CUDA_CUDA_ROWS_H

#include "device/cuda/cuda_kernel.h"

struct cuda_sorter { /* of a kernel's state: functions, found once */
  CUfunction keys, count, scan, place;
};
struct cuda_sorted { /* as rows.cu and training.cu have it */
  const void *keys, *order;
  int64_t n, rows, width;
};
struct cuda_sorting { /* the memory behind it; release it once the kernel that reads it is queued */
  struct tensor keys[2], order[2], counts;
  struct cuda_sorted s;
};

shoal_status cuda_sorter_init(struct cuda_device *c, shoal_dtype index, struct cuda_sorter *out);
/* Indices of a tensor with so many rows, of so many elements each. */
shoal_status cuda_sort(struct kernel_ctx *ctx, const struct cuda_sorter *f, const struct tensor *indices, int64_t rows,
                       int64_t width, struct cuda_sorting *out);
void cuda_sorting_release(struct cuda_sorting *s);
/* Threads for a block that serves a row. */
unsigned cuda_row_threads(int64_t width);

#endif
