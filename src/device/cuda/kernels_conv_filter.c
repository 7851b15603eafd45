/* Gradients of small filters on a card, in float32: conv_filter.cu. Libraries cut such a product up by what comes of
 * it, and have turned the filter round besides. Where there is more to multiply, or more to join, it is left to them.
 */
#include "device/cuda/cuda_conv.h"

/* As conv_filter.cu has them. */
enum { TILE_ROWS = 16, TILE_K = 8, CHANNELS = 32, BESIDE = 40, ROOM = 12000, MOST_PIXELS = 256 };
enum { WARP = 32, FEWEST_WARPS = 4, MOST_WARPS = 12, PIECES = 256, PACK = 4, SLICE = 8, MOST_FILTER = 1 << 14 };
#define MOST_WORK ((int64_t)1 << 28) /* multiplications */

struct cuda_filter_conv { /* as conv_filter.cu has it */
  int64_t tiles;
  int32_t in[2], out[2], filter[2], stride[2], dilation[2], pad[2], ci, co;
  int32_t rows, chunks, lines, columns, down, across, high, wide, apart, packed[2];
};

shoal_status cuda_filters_init(struct kernel_init *ki, struct cuda_filters *out) {
  struct cuda_device *c = cuda_of(ki->device);
  if (dtype_base(ki->kernel->out_types[0]) != SHOAL_FLOAT32) return NULL;
  TRY(cuda_function(c, "conv_filter", "conv_filter_parts", 0, 0, &out->parts));
  return cuda_function(c, "thin", "thin_join", SHOAL_FLOAT32, 0, &out->join);
}

static int32_t parts(int32_t n, int32_t each) { return (n + each - 1) / each; }
static int32_t evenly(int32_t n, int32_t each) { return parts(n, parts(n, each)); }

static bool fits(const struct conv *c) {
  static const int64_t most = 1 << 15, step = 1 << 8;
  bool flat = c->in[0] == 1 && c->out[0] == 1 && c->filter[0] == 1 && c->groups == 1;
  int64_t work = c->batch;
  if (!flat || c->batch > MOST_WORK || c->ci > ROOM / 8 || c->co > MOST_FILTER) return false;
  for (int d = 1; d < 3; d++) {
    if (c->filter[d] > step || c->stride[d] > step || c->dilation[d] > step || c->pad[d] > most || c->in[d] > most ||
        c->out[d] > most)
      return false;
    if (mul_overflows(work, c->out[d], &work)) return false;
  }
  int64_t filter = c->filter[1] * c->filter[2] * c->ci * c->co;
  return filter <= MOST_FILTER && work <= MOST_WORK / filter;
}

static int64_t staged(const struct cuda_filter_conv *f, int d, int64_t n) {
  return (n - 1) * f->stride[d] + (int64_t)(f->filter[d] - 1) * f->dilation[d] + 1;
}

static bool has_room(const struct cuda_filter_conv *f, int64_t lines, int64_t columns) {
  int64_t pixels = (lines * columns + TILE_K - 1) / TILE_K * TILE_K;
  return pixels <= MOST_PIXELS && staged(f, 0, lines) * staged(f, 1, columns) * f->apart + pixels * BESIDE <= ROOM;
}

/* Tiles as large as the room allows, but as many as keep a card busy. false: not even a pixel has room. */
static bool cut(struct cuda_filter_conv *f, int64_t batch) {
  f->lines = 1;
  f->columns = f->out[1];
  while (f->columns > 1 && !has_room(f, 1, f->columns)) f->columns = parts(f->columns, 2);
  if (!has_room(f, 1, f->columns)) return false;
  while (f->lines < f->out[0] && has_room(f, f->lines + 1, f->columns)) f->lines++;
  f->lines = evenly(f->out[0], f->lines);
  f->across = parts(f->out[1], f->columns);
  while (f->lines > 1 && batch * parts(f->out[0], f->lines) * f->across < PIECES / 2) f->lines = parts(f->lines, 2);
  f->down = parts(f->out[0], f->lines);
  f->high = (int32_t)staged(f, 0, f->lines);
  f->wide = (int32_t)staged(f, 1, f->columns);
  f->tiles = batch * f->down * f->across;
  return true;
}

/* Numbers from a pixel to the next, so that four of them are in banks of their own. */
static int32_t apart(int32_t channels) {
  int32_t n = parts(channels, 8) * 8;
  return n % 16 ? n : n + 8;
}

static bool is_packed(const struct tensor *t, int64_t channels) {
  return channels % PACK == 0 && (uintptr_t)t->data % (PACK * sizeof(float)) == 0;
}

static struct cuda_filter_conv filter_of(const struct conv *c, const struct cuda_conv_tensors *t) {
  struct cuda_filter_conv f = {.ci = (int32_t)c->ci,
                               .co = (int32_t)c->co,
                               .rows = (int32_t)(c->filter[1] * c->filter[2] * c->ci),
                               .chunks = parts((int32_t)c->co, CHANNELS),
                               .apart = apart((int32_t)c->ci),
                               .packed = {is_packed(&t->image, c->ci), is_packed(&t->result, c->co)}};
  for (int d = 0; d < 2; d++) {
    f.in[d] = (int32_t)c->in[d + 1];
    f.out[d] = (int32_t)c->out[d + 1];
    f.stride[d] = (int32_t)c->stride[d + 1];
    f.dilation[d] = (int32_t)c->dilation[d + 1];
    f.pad[d] = (int32_t)c->pad[d + 1];
    f.filter[d] = (int32_t)c->filter[d + 1];
  }
  return f;
}

static shoal_status queue(struct kernel_ctx *ctx, struct cuda_filter_conv *f, struct cuda_conv_tensors *t,
                          struct tensor *sums, int32_t pieces) {
  const struct cuda_conv_state *st = ctx->state;
  int32_t stacked = parts(f->rows, TILE_ROWS), warps = MAX(FEWEST_WARPS, evenly(stacked, MOST_WARPS));
  int32_t n = f->rows * f->co;
  TRY(cuda_run_on(ctx, st->filters.parts, (unsigned)pieces, (unsigned)(f->chunks * parts(stacked, warps)),
                  (unsigned)(warps * WARP), (void *[]){&t->image.data, &t->result.data, &sums->data, f}, 3,
                  (const struct tensor *[]){&t->image, &t->result, sums}));
  return cuda_run_on(ctx, st->filters.join, (unsigned)parts(n, SLICE), 1, CUDA_BLOCK,
                     (void *[]){&sums->data, &t->filter.data, &n, &pieces}, 2,
                     (const struct tensor *[]){sums, &t->filter});
}

shoal_status cuda_conv_filter(struct kernel_ctx *ctx, const struct conv *c, struct cuda_conv_tensors *t, bool *done) {
  const struct cuda_conv_state *st = ctx->state;
  if (!st->filters.parts || st->of.kind != CONV_BACK_FILTER || !fits(c)) return NULL;
  struct cuda_filter_conv f = filter_of(c, t);
  *done = cut(&f, c->batch);
  if (!*done) return NULL;
  int32_t pieces = (int32_t)MIN(f.tiles, PIECES);
  struct tensor sums;
  struct shape room = shape_vector((int64_t)pieces * f.rows * f.co);
  TRY(cuda_temp(ctx, SHOAL_FLOAT32, &room, &sums));
  shoal_status s = queue(ctx, &f, t, &sums, pieces);
  tensor_release(&sums);
  return s;
}
