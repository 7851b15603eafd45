/* BMP and GIF, simple enough to read here. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/vec.h"
#include "ops/image/image_format.h"

/* ---- BMP: 14 bytes of file header, then at 18 width, at 22 height (negative: top row first), at 28 bits a pixel;
 * rows of BGR(A) padded to 4 bytes ---- */

static int32_t get32(const unsigned char *p) {
  return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

shoal_status bmp_decode(const void *data, size_t n, int channels, image_alloc *alloc, void *arg) {
  const unsigned char *p = data;
  if (n < 32)
    return INVALID(
        "Incomplete bmp content, requires at least 32 bytes to find the header size, width, height, and bpp, "
        "got %zu bytes",
        n);
  int64_t header = get32(p + 10), width = get32(p + 18), height = get32(p + 22), bits = (int16_t)(p[28] | p[29] << 8);
  int64_t have = bits / 8, rows = height < 0 ? -height : height;
  if (have != 1 && have != 3 && have != 4)
    return INVALID("Number of channels inherent in the image must be 1, 3 or 4, was %" PRId64, have);
  if (width <= 0) return INVALID("Width must be positive");
  if (height == 0) return INVALID("Height must be nonzero");
  if (header < 0) return INVALID("header size must be nonnegative");
  if (width * rows >= INT32_MAX / 8) return INVALID("Total possible pixel bytes must be less than 2^30");
  int64_t row = (have * width + 3) / 4 * 4, want = channels ? channels : have;
  int64_t difference = (int64_t)n - header - row * rows;
  if (difference != 0)
    return INVALID("Input size should match (header_size + row_size * abs_height) but they differ by %" PRId64,
                   difference);
  void *pixels;
  TRY(alloc(arg, rows, width, want, &pixels));
  uint8_t *to = pixels;
  for (int64_t y = 0; y < rows; y++) {
    const unsigned char *from = p + header + (height < 0 ? y : rows - 1 - y) * row;
    for (int64_t x = 0; x < width; x++, from += have, to += want) {
      if (want == 1) {
        to[0] = from[0];
        continue;
      }
      for (int c = 0; c < 3; c++) to[c] = have == 1 ? from[0] : from[2 - c];
      if (want == 4) to[3] = have == 4 ? from[3] : 255;
    }
  }
  return NULL;
}

/* ---- GIF: a header with an optional palette; blocks: 0x21 extensions, stepped over; 0x2c images; 0x3b the end ---- */

struct gif {
  const unsigned char *at, *end;
  const unsigned char *palette; /* NULL: none */
  int colors;
};

struct gif_frame {
  int left, top, width, height;
  const unsigned char *palette;
  int colors;
  bool interlaced;
  const unsigned char *data; /* the code size and the blocks after it */
};

static bool take(struct gif *g, size_t n, const unsigned char **out) {
  if ((size_t)(g->end - g->at) < n) return false;
  *out = g->at;
  g->at += n;
  return true;
}

static bool take_palette(struct gif *g, unsigned flags, const unsigned char **palette, int *colors) {
  if (!(flags & 0x80)) return true;
  *colors = 2 << (flags & 7);
  return take(g, (size_t)*colors * 3, palette);
}

static bool skip_blocks(struct gif *g) {
  const unsigned char *p;
  for (;;) {
    if (!take(g, 1, &p)) return false;
    if (!*p) return true;
    if (!take(g, *p, &p)) return false;
  }
}

static bool read_frame(struct gif *g, struct gif_frame *f) {
  const unsigned char *p;
  if (!take(g, 9, &p)) return false;
  f->left = p[0] | p[1] << 8;
  f->top = p[2] | p[3] << 8;
  f->width = p[4] | p[5] << 8;
  f->height = p[6] | p[7] << 8;
  f->interlaced = p[8] & 0x40;
  f->palette = g->palette;
  f->colors = g->colors;
  if (!take_palette(g, p[8], &f->palette, &f->colors)) return false;
  f->data = g->at;
  return take(g, 1, &p) && skip_blocks(g) && f->width && f->height;
}

/* Bits of the data blocks, least significant first. */
struct bits {
  const unsigned char *at;
  unsigned left; /* bytes of the block not yet taken */
  uint32_t held;
  int n;
};

static int next_code(struct bits *b, int width) {
  while (b->n < width) {
    if (!b->left) {
      b->left = *b->at++;
      if (!b->left) return -1;
    }
    b->held |= (uint32_t)*b->at++ << b->n;
    b->n += 8;
    b->left--;
  }
  int code = (int)(b->held & ((1u << width) - 1));
  b->held >>= width;
  b->n -= width;
  return code;
}

enum { CODES = 4096 };

/* LZW: each code is an earlier one and a byte more. Fills n indices; false when there are fewer. */
static bool unpack(const struct gif_frame *f, uint8_t *out, size_t n) {
  uint16_t *before = mem_zalloc(CODES, sizeof *before);
  uint8_t *last = mem_zalloc(CODES, 1), *stack = mem_zalloc(CODES, 1);
  bool ok = f->data[0] >= 1 && f->data[0] <= 11;
  int size = ok ? f->data[0] : 1, clear = 1 << size, stop = clear + 1, next = clear + 2, width = size + 1, old = -1;
  struct bits b = {.at = f->data + 1};
  uint8_t first = 0;
  size_t made = 0;
  for (int i = 0; ok && i < clear && i < CODES; i++) last[i] = (uint8_t)i;
  while (ok && made < n) {
    int code = next_code(&b, width), depth = 0;
    if (code < 0 || code == stop) break;
    if (code == clear) {
      next = clear + 2;
      width = size + 1;
      old = -1;
      continue;
    }
    ok = code < next || (code == next && old >= 0 && next < CODES);
    if (old < 0) ok = ok && code < clear;
    if (!ok) break;
    int at = code;
    if (code == next) {
      stack[depth++] = first;
      at = old;
    }
    while (at >= clear && depth < CODES - 1) {
      stack[depth++] = last[at];
      at = before[at];
    }
    stack[depth++] = first = last[at];
    while (depth && made < n) out[made++] = stack[--depth];
    if (old >= 0 && next < CODES) {
      before[next] = (uint16_t)old;
      last[next++] = first;
      if (next == 1 << width && width < 12) width++;
    }
    old = code;
  }
  free(before);
  free(last);
  free(stack);
  return ok && made == n;
}

/* The row of the picture that row i of the data is. */
static int interlaced_row(int i, int height) {
  static const int starts[] = {0, 4, 2, 1}, steps[] = {8, 8, 4, 2};
  for (int pass = 0; pass < 4; pass++) {
    int rows = (height - starts[pass] + steps[pass] - 1) / steps[pass];
    if (rows < 0) rows = 0;
    if (i < rows) return starts[pass] + i * steps[pass];
    i -= rows;
  }
  return height - 1;
}

static bool draw(const struct gif_frame *f, uint8_t *canvas, int width, int height) {
  size_t n = (size_t)f->width * (size_t)f->height;
  uint8_t *indices = malloc(n);
  bool ok = indices && f->palette && unpack(f, indices, n);
  for (int i = 0; ok && i < f->height; i++) {
    int y = f->top + (f->interlaced ? interlaced_row(i, f->height) : i);
    if (y >= height) continue;
    for (int x = 0; x < f->width && f->left + x < width; x++) {
      int index = indices[(size_t)i * (size_t)f->width + (size_t)x];
      if (index >= f->colors) {
        ok = false;
        break;
      }
      memcpy(canvas + ((size_t)y * (size_t)width + (size_t)(f->left + x)) * 3, f->palette + 3 * index, 3);
    }
  }
  free(indices);
  return ok;
}

static shoal_status bad_gif(size_t n, const char *why) { return INVALID("Invalid GIF data (size %zu), %s", n, why); }

typedef VEC(struct gif_frame) frame_list;

static bool read_frames(struct gif *g, bool first_only, frame_list *frames) {
  const unsigned char *p;
  if (!take(g, 13, &p) || !take_palette(g, p[10], &g->palette, &g->colors)) return false;
  while (take(g, 1, &p) && *p != 0x3b) {
    if (*p == 0x21) {
      if (!take(g, 1, &p) || !skip_blocks(g)) return false;
    } else if (*p == 0x2c) {
      struct gif_frame f;
      if (!read_frame(g, &f)) return false;
      vec_push(frames, f);
      if (first_only) return true;
    } else {
      return false;
    }
  }
  return true;
}

/* A picture cannot hold much more than its bytes say: a code of nine bits makes at most 4096 pixels. */
static bool plausible(uint64_t pixels, size_t bytes) { return pixels <= (uint64_t)bytes * 4096; }

static shoal_status draw_frames(const frame_list *frames, size_t n, int *count, image_alloc *alloc, void *arg) {
  int width = 0, height = 0;
  uint64_t total = 0;
  for (size_t i = 0; i < frames->n; i++) {
    const struct gif_frame *f = &frames->at[i];
    width = MAX(width, f->width);
    height = MAX(height, f->height);
    total += (uint64_t)f->width * (uint64_t)f->height;
  }
  uint64_t pixels = (uint64_t)width * (uint64_t)height;
  if (!plausible(total, n) || !plausible(pixels, n) || pixels * frames->n >= (uint64_t)1 << 31)
    return bad_gif(n, "the image is too large");
  void *out;
  *count = (int)frames->n;
  TRY(alloc(arg, height, width, 3, &out));
  for (size_t i = 0; i < frames->n; i++) {
    uint8_t *canvas = (uint8_t *)out + i * pixels * 3; /* begins as the picture before, or black */
    if (i) memcpy(canvas, canvas - pixels * 3, pixels * 3);
    else memset(canvas, 0, pixels * 3);
    if (!draw(&frames->at[i], canvas, width, height)) return bad_gif(n, "failed to slurp gif file: bad image data");
  }
  return NULL;
}

shoal_status gif_decode(const void *data, size_t n, bool first_only, int *count, image_alloc *alloc, void *arg) {
  struct gif g = {.at = data, .end = (const unsigned char *)data + n};
  frame_list frames = {0};
  shoal_status s = NULL;
  if (!read_frames(&g, first_only, &frames)) s = bad_gif(n, "failed to slurp gif file: the data end too early");
  else if (!frames.n) s = bad_gif(n, "gif file does not contain any image");
  else s = draw_frames(&frames, n, count, alloc, arg);
  vec_release(&frames);
  return s;
}
