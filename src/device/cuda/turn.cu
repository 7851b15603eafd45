/* Matrices turned round, tile by tile: [batch, rows, cols] to [batch, cols, rows]. */
#include "types.cuh"

enum { TILE = 32, TILE_STEP = 8 };

template <class T>
__device__ inline void turn(const T *from, T *to, int64_t batch, int64_t rows, int64_t cols) {
  __shared__ T tile[TILE][TILE + 1];
  int64_t across = (cols + TILE - 1) / TILE;
  int64_t r0 = blockIdx.x / across * TILE, c0 = blockIdx.x % across * TILE;
  int lane = threadIdx.x % TILE, step = threadIdx.x / TILE;
  for (int64_t b = blockIdx.y; b < batch; b += gridDim.y) {
    for (int k = step; k < TILE; k += TILE_STEP)
      if (r0 + k < rows && c0 + lane < cols) tile[k][lane] = from[(b * rows + r0 + k) * cols + c0 + lane];
    __syncthreads();
    for (int k = step; k < TILE; k += TILE_STEP)
      if (c0 + k < cols && r0 + lane < rows) to[(b * cols + c0 + k) * rows + r0 + lane] = tile[lane][k];
    __syncthreads();
  }
}

#define TURN_OF(T, bytes)                                                                                      \
  extern "C" __global__ void turn_##bytes(const T *from, T *to, int64_t batch, int64_t rows, int64_t cols) {   \
    turn(from, to, batch, rows, cols);                                                                         \
  }
TURN_OF(uint8_t, 1)
TURN_OF(uint16_t, 2)
TURN_OF(uint32_t, 4)
TURN_OF(uint64_t, 8)
