/* Sorting of indices on a card: see cuda_rows.h and rows.cu. */
#include "device/cuda/cuda_rows.h"

enum { TILE = 256, BINS = 256, DIGIT = 8, SCAN_THREADS = 1024, WARP = 32 };

shoal_status cuda_sorter_init(struct cuda_device *c, shoal_dtype index, struct cuda_sorter *out) {
  TRY(cuda_function(c, "rows", "rows_keys", index, 0, &out->keys));
  TRY(cuda_function(c, "rows", "rows_count", 0, 0, &out->count));
  TRY(cuda_function(c, "rows", "rows_scan", 0, 0, &out->scan));
  return cuda_function(c, "rows", "rows_place", 0, 0, &out->place);
}

static shoal_status room(struct kernel_ctx *ctx, int64_t n, struct tensor *out) {
  struct shape shape = shape_vector(n);
  return cuda_temp(ctx, SHOAL_INT32, &shape, out);
}

static shoal_status rooms(struct kernel_ctx *ctx, int64_t n, int64_t tiles, struct cuda_sorting *s) {
  for (int i = 0; i < 2; i++) {
    TRY(room(ctx, n, &s->keys[i]));
    TRY(room(ctx, n, &s->order[i]));
  }
  return room(ctx, tiles * BINS, &s->counts);
}

/* One digit, from keys[from] to the other ones. */
static shoal_status sort_digit(struct kernel_ctx *ctx, const struct cuda_sorter *f, struct cuda_sorting *s, int64_t n,
                               int shift, int from) {
  unsigned tiles = (unsigned)((n + TILE - 1) / TILE);
  int64_t counts = (int64_t)tiles * BINS;
  TRY(cuda_run(ctx, f->count, tiles, 1, TILE, (void *[]){&s->keys[from].data, &s->counts.data, &n, &shift}));
  TRY(cuda_run(ctx, f->scan, 1, 1, SCAN_THREADS, (void *[]){&s->counts.data, &counts}));
  return cuda_run(ctx, f->place, tiles, 1, TILE,
                  (void *[]){&s->keys[from].data, &s->order[from].data, &s->keys[!from].data, &s->order[!from].data,
                             &s->counts.data, &n, &shift});
}

static shoal_status sort(struct kernel_ctx *ctx, const struct cuda_sorter *f, const struct tensor *indices,
                         struct cuda_sorting *s) {
  int64_t n = indices->n, rows = s->s.rows;
  int at = 0;
  TRY(rooms(ctx, n, (n + TILE - 1) / TILE, s));
  TRY(cuda_run(ctx, f->keys, cuda_blocks(cuda_ctx(ctx), n), 1, CUDA_BLOCK,
               (void *[]){(void *)&indices->data, &s->keys[0].data, &s->order[0].data, &n, &rows}));
  for (int shift = 0; shift < 32 && rows >> shift; shift += DIGIT, at = !at) TRY(sort_digit(ctx, f, s, n, shift, at));
  s->s.keys = s->keys[at].data;
  s->s.order = s->order[at].data;
  return NULL;
}

shoal_status cuda_sort(struct kernel_ctx *ctx, const struct cuda_sorter *f, const struct tensor *indices, int64_t rows,
                       int64_t width, struct cuda_sorting *out) {
  *out = (struct cuda_sorting){.s = {.n = indices->n, .rows = rows, .width = width}};
  if (rows >= UINT32_MAX || indices->n >= INT32_MAX)
    return UNIMPLEMENTED("more than 2^32 rows, or 2^31 indices, on a card");
  shoal_status s = sort(ctx, f, indices, out);
  if (s) cuda_sorting_release(out);
  return s;
}

void cuda_sorting_release(struct cuda_sorting *s) {
  for (int i = 0; i < 2; i++) {
    tensor_release(&s->keys[i]);
    tensor_release(&s->order[i]);
  }
  tensor_release(&s->counts);
}

unsigned cuda_row_threads(int64_t width) {
  return (unsigned)MIN(CUDA_BLOCK, MAX(WARP, (width + WARP - 1) / WARP * WARP));
}
