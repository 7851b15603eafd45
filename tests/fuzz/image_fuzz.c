/* Pictures from anyone: the first byte chooses the format. Memory is asked for by size, and refused past a bound, as a
 * server short of memory would. */
#include <stdlib.h>

#include "ops/image/image_format.h"

enum { MOST = 1 << 24 };

static shoal_status alloc(void *arg, int64_t height, int64_t width, int64_t channels, void **pixels) {
  void **kept = arg;
  int64_t n = height * width * channels * 2;
  if (n > MOST) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "too large");
  *pixels = *kept = malloc((size_t)n + 1);
  return NULL;
}

/* A GIF's frames lie one after another. */
struct frames {
  void *kept;
  int count;
};
static shoal_status alloc_frames(void *arg, int64_t height, int64_t width, int64_t channels, void **pixels) {
  struct frames *f = arg;
  return alloc(&f->kept, height * f->count, width, channels, pixels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  int choice = *data++;
  size--;
  void *kept = NULL;
  struct frames frames = {0};
  struct jpeg_options jpeg = {.ratio = 1 << (choice >> 4 & 3), .channels = choice & 64 ? 3 : 0};
  shoal_status s = NULL;
  switch (choice & 3) {
    case 0: s = png_decode(data, size, choice >> 4 & 3, choice & 64 ? 16 : 8, alloc, &kept); break;
    case 1: s = jpeg_decode(data, size, &jpeg, alloc, &kept); break;
    case 2: s = gif_decode(data, size, choice & 64, &frames.count, alloc_frames, &frames); break;
    default: s = bmp_decode(data, size, choice & 64 ? 3 : 4, alloc, &kept);
  }
  shoal_status_free(s);
  free(kept);
  free(frames.kept);
  return 0;
}
