/* Made by CMakeLists.txt: what nvcc made of each .cu file here; none where there was no nvcc. */
#ifndef DEVICE_CUDA_CUDA_FATBINS_H
#define DEVICE_CUDA_CUDA_FATBINS_H

struct cuda_fatbin {
  const char *name; /* of the file, without .cu; NULL ends the table */
  const unsigned char *image;
};
extern const struct cuda_fatbin cuda_fatbins[];

#endif
