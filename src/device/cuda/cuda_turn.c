/* Matrices turned round on a card: turn.cu. What channels first and channels last come down to, and filters. */
#include "device/cuda/cuda_kernel.h"

enum { TILE = 32, MOST_GRID_Y = 65535 };

shoal_status cuda_turn_queue(struct cuda_device *c, size_t size, void *from, void *to, struct cuda_matrices m) {
  int64_t tiles = ((m.rows + TILE - 1) / TILE) * ((m.cols + TILE - 1) / TILE);
  if (!m.batch || !tiles) return NULL;
  return cuda_launch(c, cuda_for_size(c->turns, CUDA_TURNS, size), (unsigned)tiles, (unsigned)MIN(m.batch, MOST_GRID_Y),
                     CUDA_BLOCK, (void *[]){&from, &to, &m.batch, &m.rows, &m.cols});
}

static shoal_status queue(struct cuda_device *c, const struct tensor *from, const struct tensor *to,
                          struct cuda_matrices m) {
  TRY(cuda_use(c, from));
  TRY(cuda_use(c, to));
  return cuda_turn_queue(c, dtype_size((shoal_dtype)from->dtype), from->data, to->data, m);
}

shoal_status cuda_turn(struct kernel_ctx *ctx, const struct tensor *from, const struct tensor *to,
                       struct cuda_matrices m) {
  struct cuda_device *c = cuda_ctx(ctx);
  cuda_lock(c);
  shoal_status s = queue(c, from, to, m);
  cuda_unlock(c);
  return s;
}
