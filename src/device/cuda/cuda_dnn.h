/* Convolutions on a card by cuDNN's backend (graph) interface; the library is opened at run time.
 *
 * Images are channels last; the filter is [co, filter, ci / groups]. How a convolution of some shape is best done is
 * timed once (cuda_timed.h), and kept; so is that the library has no way to do it. Ways that do not give the same bits
 * each time are not taken. */
#ifndef DEVICE_CUDA_CUDA_DNN_H
#define DEVICE_CUDA_CUDA_DNN_H

#include "device/cuda/cuda.h"
#include "ops/nn/conv_shapes.h"

struct cuda_conv {
  enum conv_kind kind;
  shoal_dtype dtype;
  uint32_t align; /* of all three pieces of memory, in bytes */
  struct conv c;
};
struct cuda_conv_memory { /* one of them is written */
  void *image, *filter, *result, *workspace;
};

bool cuda_dnn_there(void);
void cuda_dnn_free(struct cuda_dnn *d);
/* Can it be done, and with how much memory besides? With the device's lock held. */
shoal_status cuda_dnn_ask(struct cuda_device *c, const struct cuda_conv *of, bool *can, size_t *workspace);
/* The same, after cuda_use of what it takes. */
shoal_status cuda_dnn_run(struct cuda_device *c, const struct cuda_conv *of, const struct cuda_conv_memory *m);

#endif
