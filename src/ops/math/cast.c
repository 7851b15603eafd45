/* Cast, _HostCast, Bitcast and Bucketize.
 *
 * Cast has a loop for each pair of types, made by macros: a value is read as float, double or integer, and stored by
 * the rules of the target. What integer a floating number becomes where C leaves that undefined is said in to_integer.h
 * (narrow types go through 32 bits, which are then cut). Of a complex number the real part is taken. Narrowing floats
 * round to nearest even; with Truncate the bits that do not fit are cleared before. */
#include <math.h>

#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/array/array_util.h"
#include "ops/math/complex_math.h"
#include "ops/math/grad_help.h"
#include "ops/math/to_integer.h"
#include "ops/math/vector_math.h"

typedef void (*cast_fn)(void *out, const void *in, int64_t n);

/* ---- the pairs ---- */

/* X(tag, C type, value of x to begin with, class of that value: F floating, I integer) */
#define SOURCES(X)                    \
  X(f32, float, x, F)                 \
  X(f64, double, x, F)                \
  X(f16, f16, f16_to_float(x), F)     \
  X(bf16, bf16, bf16_to_float(x), F)  \
  X(i8, int8_t, x, I)                 \
  X(i16, int16_t, x, I)               \
  X(i32, int32_t, x, I)               \
  X(i64, int64_t, x, I)               \
  X(u8, uint8_t, x, I)                \
  X(u16, uint16_t, x, I)              \
  X(u32, uint32_t, x, I)              \
  X(u64, uint64_t, x, I)              \
  X(b, uint8_t, (uint8_t)(x != 0), I) \
  X(c64, c64, crealf(x), F)           \
  X(c128, c128, creal(x), F)

#define LOOP(from, from_t, value, to, to_t, store)                                 \
  VECTOR_CLONES static void from##_to_##to(void *out, const void *in, int64_t n) { \
    const from_t *a = in;                                                          \
    to_t *o = out;                                                                 \
    LOOP_FREE for (int64_t i = 0; i < n; i++) {                                    \
      const from_t x = a[i];                                                       \
      const __typeof__(value) v = value;                                           \
      o[i] = store;                                                                \
    }                                                                              \
  }

#define INT_STORES_F(from, from_t, value)                       \
  LOOP(from, from_t, value, i8, int8_t, (int8_t)TO_I32(v))      \
  LOOP(from, from_t, value, i16, int16_t, (int16_t)TO_I32(v))   \
  LOOP(from, from_t, value, i32, int32_t, TO_I32(v))            \
  LOOP(from, from_t, value, i64, int64_t, TO_I64(v))            \
  LOOP(from, from_t, value, u8, uint8_t, (uint8_t)TO_U32(v))    \
  LOOP(from, from_t, value, u16, uint16_t, (uint16_t)TO_U32(v)) \
  LOOP(from, from_t, value, u32, uint32_t, TO_U32(v))           \
  LOOP(from, from_t, value, u64, uint64_t, TO_U64(v))
/* Signed and unsigned targets of one size get the same bits. */
#define INT_STORES_I(from, from_t, value)               \
  LOOP(from, from_t, value, u8, uint8_t, (uint8_t)v)    \
  LOOP(from, from_t, value, u16, uint16_t, (uint16_t)v) \
  LOOP(from, from_t, value, u32, uint32_t, (uint32_t)v) \
  LOOP(from, from_t, value, u64, uint64_t, (uint64_t)v)
#define STORES(from, from_t, value, class)                                                                            \
  INT_STORES_##class(from, from_t, value) LOOP(from, from_t, value, f32, float, (float)v)                             \
      LOOP(from, from_t, value, f64, double, (double)v) LOOP(from, from_t, value, f16, f16, f16_from_float((float)v)) \
          LOOP(from, from_t, value, bf16, bf16, bf16_from_float((float)v)) LOOP(from, from_t, value, b, bool, v != 0) \
              LOOP(from, from_t, value, c64, c64, c64_of((float)v, 0))                                                \
                  LOOP(from, from_t, value, c128, c128, c128_of((double)v, 0))
SOURCES(STORES)

/* Both parts. */
LOOP(c64, c64, x, both_c128, c128, c128_of(crealf(v), cimagf(v)))
LOOP(c128, c128, x, both_c64, c64, c64_of((float)creal(v), (float)cimag(v)))

#define INT_TABLE_F(from)                                                                      \
  [SHOAL_INT8] = from##_to_i8, [SHOAL_INT16] = from##_to_i16, [SHOAL_INT32] = from##_to_i32,   \
  [SHOAL_INT64] = from##_to_i64, [SHOAL_QINT8] = from##_to_i8, [SHOAL_QINT16] = from##_to_i16, \
  [SHOAL_QINT32] = from##_to_i32
#define INT_TABLE_I(from)                                                                      \
  [SHOAL_INT8] = from##_to_u8, [SHOAL_INT16] = from##_to_u16, [SHOAL_INT32] = from##_to_u32,   \
  [SHOAL_INT64] = from##_to_u64, [SHOAL_QINT8] = from##_to_u8, [SHOAL_QINT16] = from##_to_u16, \
  [SHOAL_QINT32] = from##_to_u32
#define TABLE(from, from_t, value, class)                                                                     \
  static const cast_fn from_##from[DTYPE_COUNT] = {                                                           \
      INT_TABLE_##class(from),           [SHOAL_UINT8] = from##_to_u8,       [SHOAL_UINT16] = from##_to_u16,  \
      [SHOAL_UINT32] = from##_to_u32,    [SHOAL_UINT64] = from##_to_u64,     [SHOAL_QUINT8] = from##_to_u8,   \
      [SHOAL_QUINT16] = from##_to_u16,   [SHOAL_FLOAT32] = from##_to_f32,    [SHOAL_FLOAT64] = from##_to_f64, \
      [SHOAL_FLOAT16] = from##_to_f16,   [SHOAL_BFLOAT16] = from##_to_bf16,  [SHOAL_BOOL] = from##_to_b,      \
      [SHOAL_COMPLEX64] = from##_to_c64, [SHOAL_COMPLEX128] = from##_to_c128};
SOURCES(TABLE)

static const cast_fn *const casts[DTYPE_COUNT] = {
    [SHOAL_FLOAT32] = from_f32,   [SHOAL_FLOAT64] = from_f64,   [SHOAL_FLOAT16] = from_f16,
    [SHOAL_BFLOAT16] = from_bf16, [SHOAL_INT8] = from_i8,       [SHOAL_INT16] = from_i16,
    [SHOAL_INT32] = from_i32,     [SHOAL_INT64] = from_i64,     [SHOAL_UINT8] = from_u8,
    [SHOAL_UINT16] = from_u16,    [SHOAL_UINT32] = from_u32,    [SHOAL_UINT64] = from_u64,
    [SHOAL_BOOL] = from_b,        [SHOAL_COMPLEX64] = from_c64, [SHOAL_COMPLEX128] = from_c128,
    [SHOAL_QINT8] = from_i8,      [SHOAL_QINT16] = from_i16,    [SHOAL_QINT32] = from_i32,
    [SHOAL_QUINT8] = from_u8,     [SHOAL_QUINT16] = from_u16};

/* ---- the kernel ---- */

struct cast {
  cast_fn fn; /* NULL: the types are the same */
  uint8_t in_size, out_size;
  uint8_t clear; /* bits of the source's mantissa to clear first; 0: none */
  uint8_t word;  /* and the size of the numbers it has: 4 or 8 bytes */
};

static int mantissa(shoal_dtype t) {
  switch (t) {
    case SHOAL_FLOAT64:
    case SHOAL_COMPLEX128: return 52;
    case SHOAL_FLOAT32:
    case SHOAL_COMPLEX64: return 23;
    case SHOAL_FLOAT16: return 10;
    case SHOAL_BFLOAT16: return 7;
    default: return 0;
  }
}

static shoal_status cast_init(struct kernel_init *ki, void *state) {
  struct cast *k = state;
  shoal_dtype from = dtype_base(ki->kernel->in_types[0]), to = dtype_base(ki->kernel->out_types[0]);
  bool truncate;
  TRY(node_get_bool(ki->node, "Truncate", &truncate));
  k->in_size = (uint8_t)dtype_size(from);
  k->out_size = (uint8_t)dtype_size(to);
  if (from == to) return NULL;
  if (casts[from]) k->fn = casts[from][to];
  if (from == SHOAL_COMPLEX64 && to == SHOAL_COMPLEX128) k->fn = c64_to_both_c128;
  if (from == SHOAL_COMPLEX128 && to == SHOAL_COMPLEX64) k->fn = c128_to_both_c64;
  if (!k->fn) return UNIMPLEMENTED("Cast %s to %s is not supported", dtype_tf_name(from), dtype_tf_name(to));
  int have = mantissa(from), want = mantissa(to);
  if (truncate && want && have > want && have >= 23) {
    k->clear = (uint8_t)(have - want);
    k->word = have == 52 ? 8 : 4;
  }
  return NULL;
}

struct cast_task {
  const struct cast *k;
  char *out;
  const char *in;
};

/* Through a buffer in which the low bits of finite numbers are cleared. */
static void cast_truncated(const struct cast *k, char *out, const char *in, int64_t n) {
  union {
    uint64_t u64[256];
    uint32_t u32[512];
    double f64[256];
    float f32[512];
  } block;
  int64_t step = (int64_t)sizeof block / k->in_size;
  for (int64_t i = 0; i < n; i += step) {
    int64_t m = MIN(n - i, step), words = m * k->in_size / k->word;
    memcpy(&block, in + i * k->in_size, (size_t)(m * k->in_size));
    for (int64_t j = 0; j < words; j++) {
      if (k->word == 8) {
        if (!isnan(block.f64[j])) block.u64[j] &= ~0ull << k->clear;
      } else if (!isnan(block.f32[j])) {
        block.u32[j] &= ~0u << k->clear;
      }
    }
    k->fn(out + i * k->out_size, &block, m);
  }
}

static void cast_piece(void *arg, int64_t begin, int64_t end) {
  const struct cast_task *t = arg;
  char *out = t->out + begin * t->k->out_size;
  const char *in = t->in + begin * t->k->in_size;
  if (t->k->clear) cast_truncated(t->k, out, in, end - begin);
  else t->k->fn(out, in, end - begin);
}

static shoal_status cast_run(struct kernel_ctx *ctx) {
  const struct cast *k = ctx->state;
  if (!k->fn) return ctx_forward(ctx, 0, 0, NULL);
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  struct cast_task t = {k, y->data, x->data};
  pool_for(ctx_pool(ctx), x->n, 16384, cast_piece, &t);
  return NULL;
}

static shoal_status cast_grad(struct grad_ctx *c) {
  shoal_dtype from = out_type(gin(c, 0)), to = out_type(gout(c, 0));
  if (!mantissa(from) || !mantissa(to)) return NULL;
  grad_set(c, 0, build_cast(c->g, grad_dy(c, 0), from));
  return NULL;
}

/* ---- Bitcast: the same bytes, another type; the last dimension makes up for the difference in size ---- */

static shoal_status bitcast_dims(const struct shape *in, shoal_dtype from, shoal_dtype to, struct shape *out) {
  int64_t a = (int64_t)dtype_size(from), b = (int64_t)dtype_size(to);
  *out = *in;
  if (in->rank < 0 || a == b) return NULL;
  if (a > b) {
    if (in->rank == SHOAL_MAX_RANK) return INVALID("Cannot bitcast: the result would have too many dimensions");
    out->dims[out->rank++] = a / b;
    return NULL;
  }
  if (in->rank == 0 || (in->dims[in->rank - 1] >= 0 && in->dims[in->rank - 1] != b / a))
    return INVALID("Cannot bitcast from %d to %d", (int)from, (int)to);
  out->rank--;
  return NULL;
}

static shoal_status bitcast_shape(struct shape_ctx *c) {
  return bitcast_dims(&c->in[0], dtype_base(c->node->in_types[0]), dtype_base(c->node->out_types[0]), &c->out[0]);
}

static shoal_status bitcast_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  shoal_dtype to = ctx_out_type(ctx, 0);
  struct shape in = tensor_shape(x), out;
  TRY(bitcast_dims(&in, (shoal_dtype)x->dtype, to, &out));
  struct tensor y;
  tensor_ref(&y, x);
  y.dtype = (uint8_t)to;
  y.rank = (uint8_t)out.rank;
  for (int i = 0; i < out.rank; i++) y.dims[i] = out.dims[i];
  y.n = x->n * (int64_t)dtype_size((shoal_dtype)x->dtype) / (int64_t)dtype_size(to);
  ctx_set(ctx, 0, &y);
  return NULL;
}

/* ---- Bucketize: how many boundaries are not above the element ---- */

struct bucketize {
  float *at;
  int64_t n;
};

static shoal_status bucketize_init(struct kernel_init *ki, void *state) {
  struct bucketize *b = state;
  const struct attr *list;
  TRY(node_get_list(ki->node, "boundaries", ATTR_FLOAT, &list));
  b->n = (int64_t)list->list.n;
  b->at = mem_zalloc((size_t)MAX(b->n, 1), sizeof *b->at);
  for (int64_t i = 0; i < b->n; i++) {
    b->at[i] = list->list.at[i].f;
    if (i && b->at[i] < b->at[i - 1]) return INVALID("Expected sorted boundaries");
  }
  return NULL;
}

static void bucketize_release(void *state) { free(((struct bucketize *)state)->at); }

/* NaN is above everything. */
#define BUCKET(type)                             \
  for (int64_t i = begin; i < end; i++) {        \
    const type x = T_DATA(t->in, const type)[i]; \
    int64_t low = 0, high = b->n;                \
    while (low < high) {                         \
      int64_t mid = low + (high - low) / 2;      \
      if (x < b->at[mid]) high = mid;            \
      else low = mid + 1;                        \
    }                                            \
    t->out[i] = (int32_t)low;                    \
  }

struct bucketize_task {
  const struct bucketize *b;
  const struct tensor *in;
  int32_t *out;
};

static void bucketize_piece(void *arg, int64_t begin, int64_t end) {
  const struct bucketize_task *t = arg;
  const struct bucketize *b = t->b;
  switch (t->in->dtype) {
    case SHOAL_INT32: BUCKET(int32_t) break;
    case SHOAL_INT64: BUCKET(int64_t) break;
    case SHOAL_FLOAT32: BUCKET(float) break;
    default: BUCKET(double) break;
  }
}

static shoal_status bucketize_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *y;
  struct shape s = tensor_shape(x);
  TRY(ctx_out(ctx, 0, &s, &y));
  struct bucketize_task t = {ctx->state, x, y->data};
  pool_for(ctx_pool(ctx), x->n, 4096, bucketize_piece, &t);
  return NULL;
}

/* ---- rows ---- */

static const struct kernel_def cast_kernels[] = {
    {"CPU", .state_size = sizeof(struct cast), .init = cast_init, .run = cast_run}, {0}};
static const struct kernel_def bitcast_kernels[] = {{"CPU", .flags = KERNEL_CHEAP, .run = bitcast_run}, {0}};
static const struct kernel_def bucketize_kernels[] = {
    {"CPU", "T", DT(INT32) | DT(INT64) | DT(FLOAT32) | DT(FLOAT64), .state_size = sizeof(struct bucketize),
     .init = bucketize_init, .release = bucketize_release, .run = bucketize_run},
    {0}};

static const struct op_row rows[] = {
    {.name = "Cast",
     .in = "x: SrcT",
     .out = "y: DstT",
     .attrs = "SrcT: type; DstT: type; Truncate: bool = false",
     .shape = shape_unchanged,
     .grad = cast_grad,
     .kernels = cast_kernels},
    {.name = "_HostCast",
     .in = "x: SrcT",
     .out = "y: DstT",
     .attrs = "SrcT: type; DstT: type; Truncate: bool = false",
     .shape = shape_unchanged,
     .grad = cast_grad,
     .kernels = cast_kernels},
    {.name = "Bitcast",
     .in = "input: T",
     .out = "output: type",
     .attrs = "T: {bfloat16, half, float, double, int64, int32, uint8, uint16, uint32, uint64, int8, int16, "
              "complex64, complex128, qint8, quint8, qint16, quint16, qint32}; type: {bfloat16, half, float, "
              "double, int64, int32, uint8, uint16, uint32, uint64, int8, int16, complex64, complex128, qint8, "
              "quint8, qint16, quint16, qint32}",
     .flags = OP_NO_GRADIENT,
     .shape = bitcast_shape,
     .kernels = bitcast_kernels},
    {.name = "Bucketize",
     .in = "input: T",
     .out = "output: int32",
     .attrs = "T: {int32, int64, float, double}; boundaries: list(float)",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = bucketize_kernels},
};
OP_FAMILY(cast, rows);
