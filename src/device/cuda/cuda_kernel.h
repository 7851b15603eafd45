/* What the cards' kernels share on the host's side: finding their function, launching it over their arguments.
 *
 * A family is a file kernels_NAME.c with a table of ops, cuda_NAME_kernels, which the build gathers, and the .cu file
 * of its functions. Functions are called by the op's name and the type: AddV2_f32. */
#ifndef DEVICE_CUDA_CUDA_KERNEL_H
#define DEVICE_CUDA_CUDA_KERNEL_H

#include "base/mem.h"
#include "device/cuda/cuda.h"
#include "runtime/kernel.h"

#define CUDA_FLOATING DT_FLOATING
#define CUDA_NUMBERS (DT_FLOATING | DT(INT32) | DT(INT64))
#define CUDA_PLAIN (CUDA_NUMBERS | DT(UINT8) | DT(INT8) | DT(BOOL))
/* Small integers are what shapes and places are made of, which the host wants to know: arithmetic with them stays
 * there. */
#define CUDA_ARITHMETIC (DT_FLOATING | DT(INT64))

extern const struct device_kernels *const cuda_families[]; /* NULL at the end */

enum { CUDA_BLOCK = 256 };

struct cuda_fn { /* the state of kernels with one function */
  CUfunction f;
};
/* OP_TYPE of a .cu file, with the type of the first input. */
shoal_status cuda_fn_init(struct kernel_init *ki, const char *file, struct cuda_fn *out);

static inline struct cuda_device *cuda_ctx(const struct kernel_ctx *ctx) { return cuda_of(ctx->kernel->device); }
/* Blocks for n elements, so that the card is full and no fuller. */
unsigned cuda_blocks(const struct cuda_device *c, int64_t n);
/* f over all of a kernel's inputs and outputs that are the card's. */
shoal_status cuda_run(struct kernel_ctx *ctx, CUfunction f, unsigned grid_x, unsigned grid_y, unsigned block,
                      void **args);
/* The same in one dimension, with shared memory beside what the kernel itself has: at most what cuda_let_share said. */
shoal_status cuda_run_sharing(struct kernel_ctx *ctx, CUfunction f, unsigned grid, unsigned block, unsigned bytes,
                              void **args);
/* The same as cuda_run for one thread an element, of n; none for none. */
shoal_status cuda_run_each(struct kernel_ctx *ctx, CUfunction f, int64_t n, void **args);

/* f over these alone. */
shoal_status cuda_run_on(struct kernel_ctx *ctx, CUfunction f, unsigned grid_x, unsigned grid_y, unsigned block,
                         void **args, int n, const struct tensor *const *uses);
/* f over up to three that are spread to one another, as a plan (ops/math/broadcast.h) says, and their result. */
struct broadcast;
shoal_status cuda_run_spread(struct kernel_ctx *ctx, CUfunction f, const struct broadcast *b,
                             const struct tensor *const *in, const struct tensor *out);
/* Scratch memory that may be written at once; release it. Its next user comes later on the stream that computes. */
shoal_status cuda_temp(struct kernel_ctx *ctx, shoal_dtype dtype, const struct shape *shape, struct tensor *out);
/* [batch, rows, cols] becomes [batch, cols, rows] (cuda_turn.c). */
struct cuda_matrices {
  int64_t batch, rows, cols;
};
shoal_status cuda_turn(struct kernel_ctx *ctx, const struct tensor *from, const struct tensor *to,
                       struct cuda_matrices m);
/* The same with the device's lock held, after cuda_use of both; elements of at most 8 bytes. */
shoal_status cuda_turn_queue(struct cuda_device *c, size_t size, void *from, void *to, struct cuda_matrices m);

/* A block [outer, length, inner] of numbers becomes [outer, inner], times scale. Results that are between are of the
 * wide type: float32, for float64 itself. */
enum cuda_reduction { CUDA_SUM, CUDA_PROD, CUDA_MAX, CUDA_MIN, CUDA_ALL, CUDA_ANY };
enum cuda_way { CUDA_SHORT, CUDA_LONG, CUDA_COLUMNS, CUDA_WIDE, CUDA_WAYS }; /* rows of two lengths, columns, many */
struct cuda_reducer {                                                        /* of a kernel's state: found once */
  CUfunction f[2][2][CUDA_WAYS]; /* from and to: 0 the type itself, 1 the wide one */
  shoal_dtype type;
};
struct cuda_block {
  int64_t outer, length, inner;
};
shoal_status cuda_reducer_init(struct cuda_device *c, enum cuda_reduction r, shoal_dtype type,
                               struct cuda_reducer *out);
shoal_status cuda_reduce(struct kernel_ctx *ctx, const struct cuda_reducer *r, const struct tensor *in,
                         struct cuda_block block, double scale, const struct tensor *out);

#endif
