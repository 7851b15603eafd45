/* ExtractGlimpse: a window of an image around a point; what lies outside the image is filled with noise, or zeros.
 *
 * The noise is as random as TensorFlow's and not the same: there it comes from a generator of the process that nobody
 * can seed. */
#include <math.h>
#include <string.h>

#include "ops/image/image.h"
#include "ops/random/random_fill.h"

enum noise { NOISE_UNIFORM, NOISE_GAUSSIAN, NOISE_ZERO };

struct glimpse_state {
  struct random_state random;
  bool normalized, centered, first; /* first: ExtractGlimpse, not V2 */
  enum noise noise;
};

static shoal_status glimpse_init(struct kernel_init *ki, void *state) {
  struct glimpse_state *st = state;
  const struct shoal_node *n = ki->node;
  bool uniform;
  const char *noise;
  TRY(node_get_bool(n, "normalized", &st->normalized));
  TRY(node_get_bool(n, "centered", &st->centered));
  TRY(node_get_bool(n, "uniform_noise", &uniform));
  TRY(node_get_string(n, "noise", &noise));
  if (uniform && *noise && strcmp(noise, "uniform"))
    return INVALID("The uniform_noise and noise could not be specified at the same time");
  if (!*noise) st->noise = uniform ? NOISE_UNIFORM : NOISE_GAUSSIAN;
  else if (!strcmp(noise, "uniform")) st->noise = NOISE_UNIFORM;
  else if (!strcmp(noise, "gaussian")) st->noise = NOISE_GAUSSIAN;
  else if (!strcmp(noise, "zero")) st->noise = NOISE_ZERO;
  else return INVALID("The noise could only be uniform, gaussian, or zero, got%s", noise);
  st->first = op_is(n->op, "ExtractGlimpse");
  pthread_mutex_init(&st->random.lock, NULL);
  st->random.p = philox_from_seeds(ki->random_seed, 0);
  return NULL;
}

static void glimpse_release(void *state) { pthread_mutex_destroy(&((struct glimpse_state *)state)->random.lock); }

/* Where the window begins along one side of the image. The first op takes `at` for the window's centre always, and
 * halves it when centered; the second does both only when it is normalized and centered. */
static int64_t window_start(const struct glimpse_state *st, float at, int64_t image, int64_t window) {
  float size = (float)image;
  bool both = st->first || (st->normalized && st->centered);
  if (st->normalized) at *= size;
  if (st->centered) at = (both ? at / 2.0f : at) + size / 2.0f;
  if (both) at -= (float)window / 2.0f;
  /* Beyond these the window misses the image anyway, and the conversion is defined. */
  if (!(at > -1e15f)) return (int64_t)-1e15;
  return at < 1e15f ? (int64_t)at : (int64_t)1e15;
}

/* Noise for a whole window [height, width, depth], in the range or the spread of the image. */
static void fill_noise(struct glimpse_state *st, const float *image, int64_t pixels, int64_t depth, float *to,
                       int64_t n) {
  if (st->noise == NOISE_ZERO) {
    memset(to, 0, (size_t)(n * depth) * sizeof *to);
    return;
  }
  struct philox p = random_reserve(&st->random, (uint64_t)(n * depth));
  bool uniform = st->noise == NOISE_UNIFORM;
  random_fill(NULL, p, uniform ? RANDOM_UNIFORM : RANDOM_NORMAL, SHOAL_FLOAT32, to, n * depth);
  if (uniform) {
    float lo = image[0], hi = image[0];
    for (int64_t i = 1; i < pixels * depth; i++) lo = fminf(lo, image[i]), hi = fmaxf(hi, image[i]);
    for (int64_t i = 0; i < n * depth; i++) to[i] = lo + to[i] * (hi - lo);
    return;
  }
  for (int64_t c = 0; c < depth; c++) {
    float lo = image[c], hi = image[c];
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < pixels; i++) {
      float v = image[i * depth + c];
      lo = fminf(lo, v), hi = fmaxf(hi, v), sum += (double)v;
    }
    float mean = (float)(sum / (double)pixels);
    for (int64_t i = 0; i < pixels; i++) {
      double d = (double)(image[i * depth + c] - mean);
      squares += d * d;
    }
    float sigma = (float)sqrt(squares / (double)pixels);
    for (int64_t i = 0; i < n; i++) {
      float *v = &to[i * depth + c];
      *v = fmaxf(fminf(mean + *v * sigma, hi), lo);
    }
  }
}

static shoal_status glimpse_run(struct kernel_ctx *ctx) {
  struct glimpse_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *size = ctx_in(ctx, 1), *offsets = ctx_in(ctx, 2);
  if (x->rank != 4)
    return INVALID("input must be 4-dimensional (batch_size, height, width, depth)%s", tensor_shape_str(x));
  if (size->rank != 1 || size->n != 2)
    return INVALID("input must be a vector of size 2 (height, width)%s", tensor_shape_str(size));
  if (offsets->rank != 2) return INVALID("input must be a matrix%s", tensor_shape_str(offsets));
  if (offsets->dims[0] != x->dims[0]) return INVALID("first dimension should be batch%s", tensor_shape_str(offsets));
  if (offsets->dims[1] != 2) return INVALID("second dimension should be of size 2 (y,x)%s", tensor_shape_str(offsets));
  int64_t height = x->dims[1], width = x->dims[2], depth = x->dims[3];
  struct shape s = tensor_shape(x);
  int64_t rows = s.dims[1] = int_at(size, 0), cols = s.dims[2] = int_at(size, 1);
  if (rows < 0 || cols < 0)
    return INVALID("Dimension size must be non-negative, got [%" PRId64 ",%" PRId64 "]", rows, cols);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (!y->n) return NULL;
  if (!x->n) return INVALID("A glimpse of an empty image of shape %s cannot be had", tensor_shape_str(x));
  for (int64_t b = 0; b < x->dims[0]; b++) {
    const float *image = T_DATA(x, const float) + b * height * width * depth;
    float *to = T_DATA(y, float) + b * rows * cols * depth;
    int64_t top = window_start(st, T_DATA(offsets, const float)[2 * b], height, rows);
    int64_t left = window_start(st, T_DATA(offsets, const float)[2 * b + 1], width, cols);
    if (top < 0 || left < 0 || top + rows >= height || left + cols >= width)
      fill_noise(st, image, height * width, depth, to, rows * cols);
    for (int64_t r = MAX(0, -top); r < rows && top + r < height; r++)
      for (int64_t c = MAX(0, -left); c < cols && left + c < width; c++)
        memcpy(to + (r * cols + c) * depth, image + ((top + r) * width + left + c) * depth, (size_t)depth * sizeof *to);
  }
  return NULL;
}

static shoal_status glimpse_shape(struct shape_ctx *c) {
  struct shape x, offsets;
  TRY(shape_in_rank(c, 0, 4, &x));
  TRY(shape_in_rank(c, 2, 2, &offsets));
  struct shape size, *y = &c->out[0];
  TRY(shape_in_value(c, 1, &size));
  *y = shape_unknown_of_rank(4);
  y->dims[0] = x.dims[0] >= 0 ? x.dims[0] : offsets.dims[0];
  y->dims[3] = x.dims[3];
  if (size.rank == 2) y->dims[1] = size.dims[0], y->dims[2] = size.dims[1];
  return NULL;
}

static const struct kernel_def glimpse_kernels[] = {{.device = "CPU",
                                                     .state_size = sizeof(struct glimpse_state),
                                                     .init = glimpse_init,
                                                     .release = glimpse_release,
                                                     .run = glimpse_run},
                                                    {0}};

#define ROW(name_, flags_)                                                                                            \
  {                                                                                                                   \
    .name = name_, .in = "input: float, size: int32, offsets: float", .out = "glimpse: float",                        \
    .attrs = "centered: bool = true; normalized: bool = true; uniform_noise: bool = true; noise: string = 'uniform'", \
    .flags = flags_, .shape = glimpse_shape, .kernels = glimpse_kernels                                               \
  }

static const struct op_row rows[] = {
    ROW("ExtractGlimpse", OP_NO_GRADIENT),
    ROW("ExtractGlimpseV2", 0),
};
OP_FAMILY(image_glimpse, rows);
