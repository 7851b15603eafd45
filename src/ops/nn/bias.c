/* BiasAdd and the gradient of its bias. A tensor is seen as [outer, channels, inner]: inner is 1 in NHWC, the
 * image in NCHW. Sums for the gradient run over fixed pieces of rows, which are then added in order. */
#include <string.h>

#include "ops/nn/nn_util.h"

struct bias_state {
  bool nchw;
};

static shoal_status bias_init(struct kernel_init *ki, void *state) {
  struct bias_state *st = state;
  if (!node_attr(ki->node, "data_format")) return NULL; /* BiasAddV1 */
  const char *format;
  TRY(node_get_string(ki->node, "data_format", &format));
  st->nchw = !strcmp(format, "NCHW");
  return NULL;
}

static void view(const struct tensor *t, bool nchw, int64_t *outer, int64_t *channels, int64_t *inner) {
  int at = nchw ? 1 : t->rank - 1;
  *outer = dims_product(t->dims, 0, at);
  *channels = t->dims[at];
  *inner = dims_product(t->dims, at + 1, t->rank);
}

/* ---- BiasAdd ---- */

struct add {
  const void *x, *bias;
  void *y;
  int64_t channels, inner;
};

#define PLUS_F(T, a, b) STORE_##T(LOAD_##T(a) + LOAD_##T(b))
#define ADD_BODY(T, PLUS)                                                          \
  {                                                                                \
    const T *x = a->x, *bias = a->bias;                                            \
    T *y = a->y;                                                                   \
    if (a->inner == 1) {                                                           \
      for (int64_t r = begin; r < end; r++) {                                      \
        const T *xr = x + r * a->channels;                                         \
        T *yr = y + r * a->channels;                                               \
        for (int64_t i = 0; i < a->channels; i++) yr[i] = PLUS(T, xr[i], bias[i]); \
      }                                                                            \
    } else {                                                                       \
      for (int64_t r = begin; r < end; r++)                                        \
        for (int64_t c = 0; c < a->channels; c++) {                                \
          const T *xr = x + (r * a->channels + c) * a->inner, b = bias[c];         \
          T *yr = y + (r * a->channels + c) * a->inner;                            \
          for (int64_t i = 0; i < a->inner; i++) yr[i] = PLUS(T, xr[i], b);        \
        }                                                                          \
    }                                                                              \
  }
#define ADD_FLOAT(E, T, C)                                     \
  static void add_##E(void *arg, int64_t begin, int64_t end) { \
    const struct add *a = arg;                                 \
    ADD_BODY(T, PLUS_F)                                        \
  }
NN_FLOATING(ADD_FLOAT)
/* Whole numbers wrap: two's complement addition is the same for signed and unsigned. */
#define PLUS_PLAIN(T, a, b) ((T)((a) + (b)))
#define ADD_PLAIN(E, T)                                        \
  static void add_##E(void *arg, int64_t begin, int64_t end) { \
    const struct add *a = arg;                                 \
    ADD_BODY(T, PLUS_PLAIN)                                    \
  }
ADD_PLAIN(8, uint8_t)
ADD_PLAIN(16, uint16_t)
ADD_PLAIN(32, uint32_t)
ADD_PLAIN(64, uint64_t)
ADD_PLAIN(c64, c64)
ADD_PLAIN(c128, c128)

static shoal_status bias_run(struct kernel_ctx *ctx) {
  const struct bias_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *bias = ctx_in(ctx, 1);
  if (x->rank < 2) return INVALID("Input tensor must be at least 2D: %s", tensor_shape_str(x));
  if (bias->rank != 1) return INVALID("Biases must be 1D: %s", tensor_shape_str(bias));
  int64_t outer;
  struct add a = {.bias = bias->data};
  view(x, st->nchw, &outer, &a.channels, &a.inner);
  if (bias->dims[0] != a.channels)
    return INVALID("Must provide as many biases as the last dimension of the input tensor: %s vs. %s",
                   tensor_shape_str(bias), tensor_shape_str(x));
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  x = ctx_in(ctx, 0);
  a.x = x->data;
  a.y = y->data;
  if (!y->n) return NULL;
  void (*fn)(void *, int64_t, int64_t) = NULL;
  switch (ctx_in_type(ctx, 0)) {
#define CASE(E, T, C) \
  case E: fn = add_##E; break;
    NN_FLOATING(CASE)
#undef CASE
    case SHOAL_COMPLEX64: fn = add_c64; break;
    case SHOAL_COMPLEX128: fn = add_c128; break;
    default: {
      size_t size = dtype_size(ctx_in_type(ctx, 0));
      fn = size == 1 ? add_8 : size == 2 ? add_16 : size == 4 ? add_32 : add_64;
    }
  }
  pool_for(ctx_pool(ctx), outer, nn_grain(a.channels * a.inner), fn, &a);
  return NULL;
}

/* ---- BiasAddGrad ---- */

struct sum {
  const void *dy;
  char *partial;                 /* [pieces][channels] sums */
  int64_t channels, inner, rows; /* rows of a piece */
};

#define SUM(E, T, ACC, LOAD)                                                               \
  static void sum_##E(void *arg, int64_t begin, int64_t end) {                             \
    const struct sum *s = arg;                                                             \
    const T *dy = s->dy;                                                                   \
    ACC *to = (ACC *)s->partial + begin / s->rows * s->channels;                           \
    for (int64_t c = 0; c < s->channels; c++) to[c] = 0;                                   \
    if (s->inner == 1) {                                                                   \
      for (int64_t r = begin; r < end; r++) {                                              \
        const T *row = dy + r * s->channels;                                               \
        for (int64_t c = 0; c < s->channels; c++) to[c] += LOAD(row[c]);                   \
      }                                                                                    \
      return;                                                                              \
    }                                                                                      \
    for (int64_t r = begin; r < end; r++)                                                  \
      for (int64_t c = 0; c < s->channels; c++) {                                          \
        const T *row = dy + (r * s->channels + c) * s->inner;                              \
        ACC lane[8] = {0};                                                                 \
        int64_t i = 0;                                                                     \
        for (; i + 8 <= s->inner; i += 8)                                                  \
          for (int l = 0; l < 8; l++) lane[l] += LOAD(row[i + l]);                         \
        for (; i < s->inner; i++) lane[0] += LOAD(row[i]);                                 \
        for (int l = 0; l < 8; l++) to[c] += lane[l];                                      \
      }                                                                                    \
  }                                                                                        \
  static void join_##E(const struct sum *s, int64_t pieces, void *out, shoal_dtype type) { \
    ACC *to = (ACC *)s->partial;                                                           \
    for (int64_t p = 1; p < pieces; p++)                                                   \
      for (int64_t c = 0; c < s->channels; c++) to[c] += to[p * s->channels + c];          \
    put_##ACC(to, out, type, s->channels);                                                 \
  }

static void put_float(const float *from, void *to, shoal_dtype type, int64_t n) { nn_from_float(type, from, to, n); }
#define PUT(T)                                                                \
  static void put_##T(const T *from, void *to, shoal_dtype type, int64_t n) { \
    memcpy(to, from, (size_t)n * sizeof *from);                               \
  }
PUT(double)
PUT(c64)
PUT(c128)
PUT(uint8_t)
PUT(uint16_t)
PUT(uint32_t)
PUT(uint64_t)
#define SUM_FLOAT(E, T, C) SUM(E, T, C, LOAD_##T)
NN_FLOATING(SUM_FLOAT)
#define PLAIN(v) (v)
SUM(8, uint8_t, uint8_t, PLAIN)
SUM(16, uint16_t, uint16_t, PLAIN)
SUM(32, uint32_t, uint32_t, PLAIN)
SUM(64, uint64_t, uint64_t, PLAIN)
SUM(c64, c64, c64, PLAIN)
SUM(c128, c128, c128, PLAIN)

static shoal_status bias_grad_run(struct kernel_ctx *ctx) {
  const struct bias_state *st = ctx->state;
  const struct tensor *dy = ctx_in(ctx, 0);
  if (dy->rank < 2) return INVALID("Input tensor must be at least 2D: %s", tensor_shape_str(dy));
  int64_t outer;
  struct sum s = {.dy = dy->data};
  view(dy, st->nchw, &outer, &s.channels, &s.inner);
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 1, &s.channels, &out));
  if (!dy->n) {
    tensor_zero(out);
    return NULL;
  }
  s.rows = nn_grain(s.channels * s.inner);
  int64_t pieces = (outer + s.rows - 1) / s.rows;
  struct buffer *b;
  TRY(buffer_new((size_t)(pieces * s.channels) * 16, &b));
  s.partial = b->data;
  void (*fn)(void *, int64_t, int64_t) = NULL;
  void (*join)(const struct sum *, int64_t, void *, shoal_dtype) = NULL;
  shoal_dtype type = ctx_in_type(ctx, 0);
#define USE(E) fn = sum_##E, join = join_##E
  switch (type) {
#define CASE(E, T, C) \
  case E: USE(E); break;
    NN_FLOATING(CASE)
#undef CASE
    case SHOAL_COMPLEX64: USE(c64); break;
    case SHOAL_COMPLEX128: USE(c128); break;
    default:
      switch (dtype_size(type)) {
        case 1: USE(8); break;
        case 2: USE(16); break;
        case 4: USE(32); break;
        default: USE(64); break;
      }
  }
  pool_for_pieces(ctx_pool(ctx), outer, s.rows, fn, &s);
  join(&s, pieces, out->data, type);
  buffer_unref(b);
  return NULL;
}

static const struct kernel_def bias_kernels[] = {{.device = "CPU",
                                                  .type_attr = "T",
                                                  .types = DT_NUMBER,
                                                  .state_size = sizeof(struct bias_state),
                                                  .init = bias_init,
                                                  .run = bias_run},
                                                 {0}};
static const struct kernel_def bias_grad_kernels[] = {{.device = "CPU",
                                                       .type_attr = "T",
                                                       .types = DT_NUMBER,
                                                       .state_size = sizeof(struct bias_state),
                                                       .init = bias_init,
                                                       .run = bias_grad_run},
                                                      {0}};

/* ---- shapes ---- */

static shoal_status bias_shape(struct shape_ctx *c) {
  struct shape x, bias;
  TRY(shape_in_rank_at_least(c, 0, 2, &x));
  TRY(shape_in_rank(c, 1, 1, &bias));
  if (x.rank >= 0) {
    const struct attr *format = node_attr(c->node, "data_format");
    int at = format && format->kind == ATTR_STRING && !strcmp(format->s.data, "NCHW") ? 1 : x.rank - 1;
    TRY(nn_same_dim(c, x.dims[at], bias.dims[0]));
    if (x.dims[at] < 0) x.dims[at] = bias.dims[0];
  }
  c->out[0] = x;
  return NULL;
}

static shoal_status bias_grad_shape(struct shape_ctx *c) {
  struct shape x;
  TRY(shape_in_rank_at_least(c, 0, 2, &x));
  const char *format;
  TRY(node_get_string(c->node, "data_format", &format));
  c->out[0] = shape_vector(x.rank < 0 ? -1 : x.dims[!strcmp(format, "NCHW") ? 1 : x.rank - 1]);
  return NULL;
}

/* ---- gradients ---- */

static shoal_status bias_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0);
  const char *format;
  TRY(node_get_string(c->node, "data_format", &format));
  grad_set(c, 0, dy);
  struct build n = build_begin(c->g, "BiasAddGrad", NULL);
  build_in(&n, dy);
  build_attr_string(&n, "data_format", format);
  grad_set(c, 1, build_end_out(&n));
  return NULL;
}

static shoal_status bias_v1_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0);
  grad_set(c, 0, dy);
  grad_set(c, 1, build_op1(c->g, "BiasAddGrad", dy));
  return NULL;
}

/* The bias's gradient spread over the shape it was summed from. */
static shoal_status bias_grad_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out dy = grad_dy(c, 0), x = gin(c, 0), zero = array_zeros_like(g, x);
  const char *format;
  TRY(node_get_string(c->node, "data_format", &format));
  struct build n = build_begin(g, "BiasAdd", NULL);
  build_in(&n, zero);
  build_in(&n, dy);
  build_attr_string(&n, "data_format", format);
  grad_set(c, 0, build_end_out(&n));
  return NULL;
}

static const struct op_row rows[] = {
    {"BiasAdd", .in = "value: T, bias: T", .out = "output: T",
     .attrs = "T: numbertype; data_format: {'NHWC', 'NCHW'} = 'NHWC'", .shape = bias_shape, .grad = bias_grad,
     .kernels = bias_kernels},
    {"BiasAddV1", .in = "value: T, bias: T", .out = "output: T", .attrs = "T: numbertype", .shape = bias_shape,
     .grad = bias_v1_grad, .kernels = bias_kernels},
    {"BiasAddGrad", .in = "out_backprop: T", .out = "output: T",
     .attrs = "T: numbertype; data_format: {'NHWC', 'NCHW'} = 'NHWC'", .shape = bias_grad_shape, .grad = bias_grad_grad,
     .kernels = bias_grad_kernels},
};
OP_FAMILY(bias, rows);
