/* IDX files: the format of MNIST and its kin, plain or gzipped. */
#ifndef DATA_IDX_H
#define DATA_IDX_H

#include "tensor/tensor.h"

/* The whole file as a tensor. */
shoal_status idx_read(const char *path, struct tensor *out);

#endif
