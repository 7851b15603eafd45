/* IDX files: the format of MNIST and its kin, plain or gzipped. */
#ifndef DATA_IDX_H
#define DATA_IDX_H

#include "tensor/tensor.h"

struct idx_header {
  shoal_dtype dtype;
  struct shape shape;
  bool gzipped;
};
/* What stands before the elements. */
shoal_status idx_read_header(const char *path, struct idx_header *out);
/* The whole file as a tensor. */
shoal_status idx_read(const char *path, struct tensor *out);

#endif
