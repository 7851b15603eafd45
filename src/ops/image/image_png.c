/* PNG through libpng. Its errors come as long jumps: everything they must not leak is volatile or freed after. */
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ops/image/image_format.h"

enum { MAX_PIXELS = 1 << 29 };

static void fail(png_structp png, png_const_charp message) {
  (void)message;
  longjmp(png_jmpbuf(png), 1);
}
static void warn(png_structp png, png_const_charp message) {
  (void)png;
  (void)message;
}

/* ---- writing ---- */

static void append(png_structp png, png_bytep data, png_size_t n) {
  text_add(png_get_io_ptr(png), (const char *)data, n);
}
static void flush(png_structp png) { (void)png; }

shoal_status png_encode(const void *pixels, int64_t width, int64_t height, int channels, int bits, int compression,
                        struct text *out) {
  static const int colors[] = {0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                               PNG_COLOR_TYPE_RGB_ALPHA};
  size_t start = out->n;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, fail, warn);
  png_infop info = png ? png_create_info_struct(png) : NULL;
  if (!info || setjmp(png_jmpbuf(png))) {
    png_destroy_write_struct(&png, &info);
    out->n = start;
    return INTERNAL("PNG encoding failed");
  }
  png_set_user_limits(png, 0x7fffffff, 0x7fffffff);
  png_set_write_fn(png, out, append, flush);
  png_set_compression_level(png, compression < 0 ? -1 : compression);
  png_set_compression_mem_level(png, 9);
  png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, bits, colors[channels], PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  if (bits == 16) png_set_swap(png);
#endif
  size_t row = (size_t)width * (size_t)channels * (size_t)(bits / 8);
  for (int64_t y = 0; y < height; y++) png_write_row(png, (png_const_bytep)pixels + (size_t)y * row);
  png_write_end(png, NULL);
  png_destroy_write_struct(&png, &info);
  return NULL;
}

/* ---- reading ---- */

struct input {
  const unsigned char *at, *end;
};

static void take(png_structp png, png_bytep to, png_size_t n) {
  struct input *in = png_get_io_ptr(png);
  if ((size_t)(in->end - in->at) < n) png_error(png, "truncated");
  memcpy(to, in->at, n);
  in->at += n;
}

/* Asks libpng for samples of the width and number that are wanted. */
static void transform(png_structp png, png_infop info, int channels, int bits) {
  int color = png_get_color_type(png, info), depth = png_get_bit_depth(png, info);
  bool alpha = (color & PNG_COLOR_MASK_ALPHA) != 0;
  if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (color == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(png);
  if (png_get_valid(png, info, PNG_INFO_tRNS)) {
    png_set_tRNS_to_alpha(png);
    alpha = true;
  }
  bool want_alpha = channels == 2 || channels == 4, want_gray = channels == 1 || channels == 2;
  bool is_gray = !(color & PNG_COLOR_MASK_COLOR);
  if (channels && want_alpha && !alpha) png_set_add_alpha(png, (1u << bits) - 1, PNG_FILLER_AFTER);
  if (channels && !want_alpha && alpha) png_set_strip_alpha(png);
  if (channels && want_gray && !is_gray) png_set_rgb_to_gray(png, 1, 0.299, 0.587);
  if (channels && !want_gray && is_gray) png_set_gray_to_rgb(png);
  if (depth == 16 && bits == 8) png_set_strip_16(png);
  if (bits == 16) {
    if (depth < 16) png_set_expand_16(png);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    png_set_swap(png);
#endif
  }
}

shoal_status png_decode(const void *data, size_t n, int channels, int bits, image_alloc *alloc, void *arg) {
  struct input in = {data, (const unsigned char *)data + n};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, fail, warn);
  png_infop info = png ? png_create_info_struct(png) : NULL;
  shoal_status volatile s = NULL;
  png_bytep *volatile rows = NULL;
  if (!info || setjmp(png_jmpbuf(png))) {
    png_destroy_read_struct(&png, &info, NULL);
    free((void *)rows);
    return s ? s : INVALID("Invalid PNG data, size %zu", n);
  }
  png_set_read_fn(png, &in, take);
  png_read_info(png, info);
  png_uint_32 width = png_get_image_width(png, info), height = png_get_image_height(png, info);
  if (width == 0 || height == 0 || (uint64_t)width * height > MAX_PIXELS) {
    s = INVALID("PNG size too large for int: %u by %u", width, height);
    png_error(png, "size");
  }
  transform(png, info, channels, bits);
  int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  size_t row = png_get_rowbytes(png, info);
  int have = png_get_channels(png, info);
  if (row != (size_t)width * (size_t)have * (size_t)(bits / 8)) png_error(png, "row");
  void *pixels;
  s = alloc(arg, height, width, have, &pixels);
  if (s) png_error(png, "memory");
  rows = mem_alloc(sizeof *rows * height);
  for (png_uint_32 y = 0; y < height; y++) rows[y] = (png_bytep)pixels + y * row;
  (void)passes;
  png_read_image(png, rows);
  png_read_end(png, info);
  png_destroy_read_struct(&png, &info, NULL);
  free((void *)rows);
  return NULL;
}
