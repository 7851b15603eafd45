/* Convolutions over thin images, of one to four channels, as the first of a network is: their results and their
 * filters' gradients by kernels of our own (thin.cu). cuDNN pads channels to eight, or goes by Fourier's way, in ten
 * kernels. Where there is so much to multiply that tensor cores pay for their padding it is left to the usual way, or
 * to folding (kernels_fold.c); gradients of images always are. */
#include "device/cuda/cuda_conv.h"

enum { MOST_FILTER = 1 << 14 }; /* elements of a gradient, which has PIECES parts in memory */
enum { THIN = 4, MOST_ROWS = 256, CHANNELS = 4, EACH = 9 }; /* CHANNELS, EACH: of a thread, as thin.cu has it */
enum { ROOM = 9504, STAGED = 5400, PIECES = 256, EACH_PROCESSOR = 4, MOST_QUADS = 16 };
#define MOST_WORK ((int64_t)1 << 30) /* multiplications */

struct cuda_thin { /* as thin.cu has it */
  int64_t tiles;
  int32_t in[2], out[2], filter[2], stride[2], dilation[2], pad[2], ci, co;
  int32_t rows, lines, columns, down, across, high, wide, quads, groups, pixels, chunks, packed, relu;
};

shoal_status cuda_thins_init(struct kernel_init *ki, struct cuda_thins *out) {
  struct cuda_device *c = cuda_of(ki->device);
  shoal_dtype type = dtype_base(ki->kernel->out_types[0]);
  if (type == SHOAL_FLOAT64) return NULL;
  TRY(cuda_function(c, "thin", "thin_forward", type, 0, &out->forward));
  TRY(cuda_function(c, "thin", "thin_back_filter", type, 0, &out->back_filter));
  return cuda_function(c, "thin", "thin_join", type, 0, &out->join);
}

/* ---- what fits, and how it is cut ---- */

static bool fits(const struct conv *c) {
  static const int64_t most = INT32_MAX / 8;
  bool flat = c->in[0] == 1 && c->out[0] == 1 && c->filter[0] == 1 && c->groups == 1;
  int64_t rows = 1, pixels = c->batch;
  for (int d = 1; d < 3; d++) {
    if (c->filter[d] > MOST_ROWS || c->stride[d] > MOST_ROWS || c->dilation[d] > MOST_ROWS || c->pad[d] > most ||
        c->in[d] > most / c->ci / MAX(c->in[3 - d], 1) || c->out[d] > most / c->stride[d] ||
        c->out[d] > MOST_WORK / MAX(pixels, 1))
      return false;
    rows *= c->filter[d];
    pixels *= c->out[d];
  }
  return flat && c->ci <= THIN && rows * c->ci <= MOST_ROWS && c->co <= most &&
         pixels <= MOST_WORK / (rows * c->ci) / c->co;
}

static int32_t parts(int32_t n, int32_t each) { return (n + each - 1) / each; }
static int32_t evenly(int32_t n, int32_t each) { return parts(n, parts(n, each)); }

static int32_t staged(const struct cuda_thin *t, int d, int32_t n) {
  return (n - 1) * t->stride[d] + (t->filter[d] - 1) * t->dilation[d] + 1;
}

static bool has_room(const struct cuda_thin *t, int32_t lines, int32_t columns, int32_t room) {
  int64_t wide = (int64_t)staged(t, 1, columns) * t->ci;
  return wide * staged(t, 0, lines) <= room;
}

/* Tiles as large as the room allows, but as many as keep a card busy. false: not even a pixel has room. */
static bool cut(struct cuda_thin *t, int64_t batch, int32_t room) {
  t->lines = 1;
  t->columns = t->out[1];
  while (t->columns > 1 && !has_room(t, 1, t->columns, room)) t->columns = parts(t->columns, 2);
  if (!has_room(t, 1, t->columns, room)) return false;
  while (t->lines < t->out[0] && has_room(t, t->lines + 1, t->columns, room)) t->lines++;
  t->across = parts(t->out[1], t->columns);
  t->lines = evenly(t->out[0], t->lines);
  while (t->lines > 1 && batch * parts(t->out[0], t->lines) * t->across < PIECES) t->lines = parts(t->lines, 2);
  t->down = parts(t->out[0], t->lines);
  t->high = staged(t, 0, t->lines);
  t->wide = staged(t, 1, t->columns) * t->ci;
  t->tiles = batch * t->down * t->across;
  return true;
}

static struct cuda_thin thin_of(const struct conv *c, const struct tensor *many) {
  struct cuda_thin t = {.ci = (int32_t)c->ci, .co = (int32_t)c->co};
  for (int d = 0; d < 2; d++) {
    t.in[d] = (int32_t)c->in[d + 1];
    t.out[d] = (int32_t)c->out[d + 1];
    t.filter[d] = (int32_t)c->filter[d + 1];
    t.stride[d] = (int32_t)c->stride[d + 1];
    t.dilation[d] = (int32_t)c->dilation[d + 1];
    t.pad[d] = (int32_t)c->pad[d + 1];
  }
  t.rows = t.filter[0] * t.filter[1] * t.ci;
  t.packed = t.co % CHANNELS == 0 && (uintptr_t)many->data % (CHANNELS * dtype_size((shoal_dtype)many->dtype)) == 0;
  return t;
}

/* ---- forward ---- */

static shoal_status forward(struct kernel_ctx *ctx, struct cuda_thin *t, struct cuda_conv_tensors *k) {
  const struct cuda_conv_state *st = ctx->state;
  int32_t quads = parts(t->co, CHANNELS), each = MIN(MOST_QUADS, (ROOM - STAGED) / (CHANNELS * t->rows));
  const struct tensor *bias = st->bias ? ctx_in(ctx, 2) : NULL;
  void *begin = bias ? bias->data : NULL;
  t->quads = evenly(quads, each);
  t->chunks = parts(quads, t->quads);
  t->pixels = CUDA_BLOCK / t->quads;
  t->relu = st->relu;
  unsigned blocks = (unsigned)MIN(t->tiles, (int64_t)cuda_ctx(ctx)->multiprocessors * EACH_PROCESSOR);
  return cuda_run_on(ctx, st->thins.forward, blocks, (unsigned)t->chunks, CUDA_BLOCK,
                     (void *[]){&k->image.data, &k->filter.data, &begin, &k->result.data, t}, 4,
                     (const struct tensor *[]){&k->image, &k->filter, &k->result, bias ? bias : &k->filter});
}

/* ---- the filter's gradient ---- */

static shoal_status queue_back(struct kernel_ctx *ctx, struct cuda_thin *t, struct cuda_conv_tensors *k,
                               struct tensor *sums, int32_t pieces, int32_t stacked) {
  enum { OUTPUTS = 8 };
  const struct cuda_conv_state *st = ctx->state;
  int32_t n = t->rows * t->co;
  TRY(cuda_run_on(ctx, st->thins.back_filter, (unsigned)pieces, (unsigned)(t->chunks * stacked), CUDA_BLOCK,
                  (void *[]){&k->image.data, &k->result.data, &sums->data, t}, 3,
                  (const struct tensor *[]){&k->image, &k->result, sums}));
  return cuda_run_on(ctx, st->thins.join, (unsigned)parts(n, OUTPUTS), 1, CUDA_BLOCK,
                     (void *[]){&sums->data, &k->filter.data, &n, &pieces}, 2,
                     (const struct tensor *[]){sums, &k->filter});
}

static shoal_status back_filter(struct kernel_ctx *ctx, struct cuda_thin *t, struct cuda_conv_tensors *k) {
  int32_t quads = parts(t->co, CHANNELS), groups = parts(t->rows, EACH);
  int32_t pieces = (int32_t)MIN(t->tiles, PIECES);
  struct tensor sums;
  struct shape room = shape_vector((int64_t)pieces * t->rows * t->co);
  t->quads = evenly(quads, MOST_QUADS);
  t->chunks = parts(quads, t->quads);
  t->groups = evenly(groups, CUDA_BLOCK / t->quads);
  t->pixels = CUDA_BLOCK / t->quads / t->groups;
  TRY(cuda_temp(ctx, SHOAL_FLOAT32, &room, &sums));
  shoal_status s = queue_back(ctx, t, k, &sums, pieces, parts(groups, t->groups));
  tensor_release(&sums);
  return s;
}

shoal_status cuda_conv_thin(struct kernel_ctx *ctx, const struct conv *c, struct cuda_conv_tensors *k, bool *done) {
  const struct cuda_conv_state *st = ctx->state;
  bool is_forward = st->of.kind == CONV_FORWARD;
  if (!st->thins.forward || st->of.kind == CONV_BACK_INPUT || !fits(c)) return NULL;
  if (!is_forward && c->filter[1] * c->filter[2] * c->ci * c->co > MOST_FILTER) return NULL;
  struct cuda_thin t = thin_of(c, &k->result);
  *done = cut(&t, c->batch, is_forward ? STAGED : ROOM);
  if (!*done) return NULL;
  return is_forward ? forward(ctx, &t, k) : back_filter(ctx, &t, k);
}
