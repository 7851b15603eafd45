/* Elementwise kernels: one loop for each op and type, chosen when the kernel is built, and one way to run them.
 *
 * A loop is a plain C function over arrays; what an op does is a table of loops by dtype. float16 and bfloat16 have no
 * loops of their own: blocks of them are widened to float, go through the float loop and are rounded back. The tables
 * are found by op name, once per node; fusion and _UnaryOpsComposition find them the same way. */
#ifndef OPS_MATH_ELEMENTWISE_H
#define OPS_MATH_ELEMENTWISE_H

#include "runtime/kernel.h"

/* ---- one input ---- */

/* out may be in. */
typedef void (*unary_fn)(void *out, const void *in, int64_t n);

/* How much work an element is; sets how many go to a thread at least. */
enum loop_cost { COST_MOVE, COST_VECTOR, COST_CALL };

struct unary_loops {
  const char *op; /* NULL ends a table */
  enum loop_cost cost;
  unary_fn fn[DTYPE_COUNT];
};

/* What runs for one node (or one step of a chain): filled by unary_loop_init. */
struct unary_loop {
  unary_fn fn;
  uint8_t half;  /* 0, or SHOAL_FLOAT16 / SHOAL_BFLOAT16: in goes through float */
  bool half_out; /* and so does out */
  uint8_t in_size, out_size;
  int32_t grain;
};

/* UNIMPLEMENTED when there is no loop of op for these types. */
shoal_status unary_loop_init(struct unary_loop *l, const char *op, shoal_dtype in, shoal_dtype out);
void unary_loop_run(const struct unary_loop *l, void *out, const void *in, int64_t n);

/* Kernel functions for rows: state is a struct unary_loop. */
shoal_status unary_init(struct kernel_init *ki, void *state);
shoal_status unary_run(struct kernel_ctx *ctx);
#define UNARY_KERNEL(types_)                                                                                      \
  {                                                                                                               \
    "CPU", "T", types_, .flags = KERNEL_ELEMENTWISE, .state_size = sizeof(struct unary_loop), .init = unary_init, \
                        .run = unary_run                                                                          \
  }

/* ---- two inputs ---- */

enum binary_mode { VECTOR_VECTOR, VECTOR_SCALAR, SCALAR_VECTOR };

/* out may be a or b. Returns 0, or 1 when an element was bad (the table's `bad` says why). */
typedef unsigned (*binary_fn)(void *out, const void *a, const void *b, int64_t n, enum binary_mode mode);

struct binary_loops {
  const char *op;
  enum loop_cost cost;
  const char *bad; /* the error when a loop returns 1 */
  binary_fn fn[DTYPE_COUNT];
  bool internal; /* which TensorFlow takes for one of its own */
};

struct binary_loop {
  binary_fn fn;
  uint8_t half;
  bool half_out;
  uint8_t in_size, out_size;
  int32_t grain;
  const char *bad;
  bool internal;
};

shoal_status binary_loop_init(struct binary_loop *l, const char *op, shoal_dtype in, shoal_dtype out);
unsigned binary_loop_run(const struct binary_loop *l, void *out, const void *a, const void *b, int64_t n,
                         enum binary_mode mode);

/* State begins with a struct binary_loop. */
shoal_status binary_init(struct kernel_init *ki, void *state);
shoal_status binary_run(struct kernel_ctx *ctx);
shoal_status binary_pairs_run(struct kernel_ctx *ctx); /* nothing is broadcast: as many elements on both sides */
#define BINARY_KERNEL(types_)                                                                                       \
  {                                                                                                                 \
    "CPU", "T", types_, .flags = KERNEL_ELEMENTWISE, .state_size = sizeof(struct binary_loop), .init = binary_init, \
                        .run = binary_run                                                                           \
  }

/* ---- the tables, by the file that has them ---- */
extern const struct unary_loops unary_basic[], unary_transcendental[], unary_special[], unary_predicates[];
extern const struct binary_loops binary_arithmetic[], binary_division[], binary_gradients[], binary_comparisons[],
    binary_bitwise[], binary_special[];

/* n halves of either kind to float, and back. */
void half_to_float(shoal_dtype half, float *to, const void *from, int64_t n);
void half_from_float(shoal_dtype half, void *to, const float *from, int64_t n);

/* Entries of a table by dtype: the loops of an op that has them for the types of a group. */
#define IN_REALS(op) [SHOAL_FLOAT32] = op##_f32, [SHOAL_FLOAT64] = op##_f64
#define IN_COMPLEXES(op) [SHOAL_COMPLEX64] = op##_c64, [SHOAL_COMPLEX128] = op##_c128
#define IN_SIGNED(op) \
  [SHOAL_INT8] = op##_i8, [SHOAL_INT16] = op##_i16, [SHOAL_INT32] = op##_i32, [SHOAL_INT64] = op##_i64
#define IN_UNSIGNED(op) \
  [SHOAL_UINT8] = op##_u8, [SHOAL_UINT16] = op##_u16, [SHOAL_UINT32] = op##_u32, [SHOAL_UINT64] = op##_u64

#endif
