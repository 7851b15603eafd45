/* Strided copies. The dimensions are first brought to a normal form: those of size 1 go, neighbours that are one
 * run in both views become one, the rest is ordered so that writes go forward. Then one of three loops runs:
 *
 *   rows       the innermost dimension is contiguous in both views: memcpy
 *   transpose  one dimension is contiguous in the one view, another in the other: tiles that fit the cache
 *   elements   anything else, and types that are more than bytes
 *
 * Work is shared among threads by pieces of about COPY_GRAIN bytes. */
#include "ops/array/strided.h"

#include <stdlib.h>
#include <string.h>

#include "ops/array/array_util.h"

struct strided_job {
  struct strided s; /* without the dimensions that the inner loop takes */
  shoal_dtype dtype;
  size_t size;
  char *to;
  const char *from;
  int64_t len; /* rows, elements: the inner dimension */
  int64_t to_step, from_step;
  int64_t pieces, piece; /* rows: each row in so many pieces of so many elements */
  /* transpose: a is contiguous in `to`, b in `from` */
  int64_t na, nb, a_from, b_to, tiles_a, tiles_b;
};

enum { TILE = 32 };

static int64_t outer_count(const struct strided *s) { return dims_product(s->dims, 0, s->rank); }

/* Offsets of outer index i in both views. */
static void locate(const struct strided *s, int64_t i, int64_t *to, int64_t *from) {
  *to = *from = 0;
  for (int k = s->rank; k-- > 0;) {
    int64_t d = i % s->dims[k];
    i /= s->dims[k];
    *to += d * s->to[k];
    *from += d * s->from[k];
  }
}

static void rows_piece(void *arg, int64_t begin, int64_t end) {
  const struct strided_job *j = arg;
  for (int64_t u = begin; u < end; u++) {
    int64_t to, from, at = u % j->pieces * j->piece;
    locate(&j->s, u / j->pieces, &to, &from);
    int64_t n = MIN(j->piece, j->len - at);
    memcpy(j->to + (to + at) * (int64_t)j->size, j->from + (from + at) * (int64_t)j->size, (size_t)n * j->size);
  }
}

typedef struct {
  uint64_t half[2];
} bytes16;

#define T uint8_t
#define NAME tile1
#include "ops/array/strided_tile.inc"
#define T uint16_t
#define NAME tile2
#include "ops/array/strided_tile.inc"
#define T uint32_t
#define NAME tile4
#include "ops/array/strided_tile.inc"
#define T uint64_t
#define NAME tile8
#include "ops/array/strided_tile.inc"
#define T bytes16
#define NAME tile16
#include "ops/array/strided_tile.inc"

static void transpose_piece(void *arg, int64_t begin, int64_t end) {
  const struct strided_job *j = arg;
  for (int64_t u = begin; u < end; u++) {
    int64_t to, from, tile = u;
    int64_t a = tile % j->tiles_a * TILE;
    tile /= j->tiles_a;
    int64_t b = tile % j->tiles_b * TILE;
    locate(&j->s, tile / j->tiles_b, &to, &from);
    to += b * j->b_to + a;
    from += a * j->a_from + b;
    int64_t na = MIN(TILE, j->na - a), nb = MIN(TILE, j->nb - b);
    void *t = j->to + to * (int64_t)j->size;
    const void *f = j->from + from * (int64_t)j->size;
    switch (j->size) {
      case 1: tile1(t, f, na, nb, j->a_from, j->b_to); break;
      case 2: tile2(t, f, na, nb, j->a_from, j->b_to); break;
      case 4: tile4(t, f, na, nb, j->a_from, j->b_to); break;
      case 8: tile8(t, f, na, nb, j->a_from, j->b_to); break;
      default: tile16(t, f, na, nb, j->a_from, j->b_to);
    }
  }
}

#define STEP(type)                                                                  \
  do {                                                                              \
    type *t = (type *)j->to + to;                                                   \
    const type *f = (const type *)j->from + from;                                   \
    if (!j->from_step)                                                              \
      for (int64_t i = 0; i < j->len; i++) t[i * j->to_step] = *f;                  \
    else                                                                            \
      for (int64_t i = 0; i < j->len; i++) t[i * j->to_step] = f[i * j->from_step]; \
  } while (0)

static void elements_piece(void *arg, int64_t begin, int64_t end) {
  const struct strided_job *j = arg;
  for (int64_t u = begin; u < end; u++) {
    int64_t to, from;
    locate(&j->s, u, &to, &from);
    if (!dtype_plain(j->dtype)) {
      int64_t size = (int64_t)j->size;
      for (int64_t i = 0; i < j->len; i++)
        elements_copy(j->dtype, j->to + (to + i * j->to_step) * size, j->from + (from + i * j->from_step) * size, 1);
      continue;
    }
    switch (j->size) {
      case 1: STEP(uint8_t); break;
      case 2: STEP(uint16_t); break;
      case 4: STEP(uint32_t); break;
      case 8: STEP(uint64_t); break;
      default: STEP(bytes16);
    }
  }
}

static void drop(struct strided *s, int i) {
  s->rank--;
  for (; i < s->rank; i++) {
    s->dims[i] = s->dims[i + 1];
    s->to[i] = s->to[i + 1];
    s->from[i] = s->from[i + 1];
  }
}

/* Largest `to` stride outermost; no dimension of 1; nothing that could be one dimension left as two. */
static void normalise(struct strided *s) {
  for (int i = s->rank; i-- > 0;)
    if (s->dims[i] == 1) drop(s, i);
  for (int i = 1; i < s->rank; i++)
    for (int k = i; k > 0 && llabs(s->to[k - 1]) < llabs(s->to[k]); k--) {
      int64_t d = s->dims[k], t = s->to[k], f = s->from[k];
      s->dims[k] = s->dims[k - 1], s->to[k] = s->to[k - 1], s->from[k] = s->from[k - 1];
      s->dims[k - 1] = d, s->to[k - 1] = t, s->from[k - 1] = f;
    }
  for (int i = s->rank - 1; i-- > 0;)
    if (s->to[i] == s->to[i + 1] * s->dims[i + 1] && s->from[i] == s->from[i + 1] * s->dims[i + 1]) {
      s->dims[i] *= s->dims[i + 1];
      s->to[i] = s->to[i + 1];
      s->from[i] = s->from[i + 1];
      drop(s, i + 1);
    }
}

void strided_copy(struct pool *pool, shoal_dtype dtype, const struct strided *view, void *to, const void *from) {
  struct strided_job j = {.s = *view, .dtype = dtype, .size = dtype_size(dtype), .to = to, .from = from};
  struct strided *s = &j.s;
  if (outer_count(s) == 0) return;
  normalise(s);
  if (s->rank == 0) {
    elements_copy(dtype, to, from, 1);
    return;
  }
  int last = s->rank - 1;
  bool plain = dtype_plain(dtype);
  if (plain && s->to[last] == 1 && s->from[last] == 1) {
    j.len = s->dims[last];
    j.piece = MIN(j.len, MAX(1, COPY_GRAIN / (int64_t)j.size));
    j.pieces = (j.len + j.piece - 1) / j.piece;
    drop(s, last);
    pool_for(pool, outer_count(s) * j.pieces, copy_grain(j.piece * (int64_t)j.size), rows_piece, &j);
    return;
  }
  int b = -1;
  for (int i = 0; i < last; i++)
    if (s->from[i] == 1) b = i;
  if (plain && b >= 0 && s->to[last] == 1 && s->dims[b] > 1 && s->from[last] != 0) {
    j.na = s->dims[last];
    j.nb = s->dims[b];
    j.a_from = s->from[last];
    j.b_to = s->to[b];
    j.tiles_a = (j.na + TILE - 1) / TILE;
    j.tiles_b = (j.nb + TILE - 1) / TILE;
    drop(s, last);
    drop(s, b);
    int64_t tile_bytes = MIN(j.na, TILE) * MIN(j.nb, TILE) * (int64_t)j.size;
    pool_for(pool, outer_count(s) * j.tiles_a * j.tiles_b, copy_grain(tile_bytes), transpose_piece, &j);
    return;
  }
  j.len = s->dims[last];
  j.to_step = s->to[last];
  j.from_step = s->from[last];
  drop(s, last);
  pool_for(pool, outer_count(s), copy_grain(j.len * (int64_t)j.size * 4), elements_piece, &j);
}

static void *element(const struct tensor *t, int64_t i) {
  return (char *)t->data + i * (int64_t)dtype_size((shoal_dtype)t->dtype);
}

shoal_status ctx_copy_view(struct kernel_ctx *ctx, const struct strided *s, struct tensor *to, int64_t to_at,
                           const struct tensor *from, int64_t from_at) {
  struct device *d = to->buffer->device;
  if (d) return d->type->ops->copy_view(d, s, to, to_at, from, from_at);
  strided_copy(ctx_pool(ctx), (shoal_dtype)to->dtype, s, element(to, to_at), element(from, from_at));
  return NULL;
}

void ctx_zero(struct kernel_ctx *ctx, struct tensor *t) {
  struct device *d = t->buffer->device;
  if (d) d->type->ops->zero(d, t);
  else tensor_zero(t);
}
