/* Image and sound formats, for the ops that decode and encode them and for summaries. */
#ifndef OPS_IMAGE_IMAGE_FORMAT_H
#define OPS_IMAGE_IMAGE_FORMAT_H

#include "base/status.h"
#include "base/text.h"
#include "tensor/tensor.h"

/* Decoders make the tensor once width, height and channels are known and sane: fn gives the memory. */
typedef shoal_status image_alloc(void *arg, int64_t height, int64_t width, int64_t channels, void **pixels);

/* bits is 8 or 16; 16-bit samples are in the machine's order. compression -1 is zlib's own choice. */
shoal_status png_encode(const void *pixels, int64_t width, int64_t height, int channels, int bits, int compression,
                        struct text *out);
/* channels 0 takes what the file has. */
shoal_status png_decode(const void *data, size_t n, int channels, int bits, image_alloc *alloc, void *arg);

struct jpeg_options {
  int channels; /* 0: the file's */
  int ratio;    /* 1, 2, 4 or 8 */
  bool fancy_upscaling, recover_truncated;
  float acceptable_fraction;
  bool fast_dct; /* INTEGER_FAST; otherwise INTEGER_ACCURATE */
  bool crop;
  int64_t crop_y, crop_x, crop_height, crop_width;
};
shoal_status jpeg_decode(const void *data, size_t n, const struct jpeg_options *o, image_alloc *alloc, void *arg);
shoal_status jpeg_shape(const void *data, size_t n, int *height, int *width, int *channels);

struct jpeg_encoding {
  bool grayscale;
  int quality, x_density, y_density;
  bool progressive, optimize_size, chroma_downsampling, density_in_cm;
  const char *xmp;
  size_t xmp_n;
};
shoal_status jpeg_encode(const uint8_t *pixels, int64_t width, int64_t height, int channels,
                         const struct jpeg_encoding *o, struct text *out);

shoal_status bmp_decode(const void *data, size_t n, int channels, image_alloc *alloc, void *arg);
/* All frames, RGB: [frames, height, width, 3] comes out as height * frames rows; *frames tells how many. */
shoal_status gif_decode(const void *data, size_t n, bool first_only, int *frames, image_alloc *alloc, void *arg);

/* 16-bit PCM. */
shoal_status wav_encode(const float *samples, uint64_t rate, uint64_t channels, uint64_t frames, struct text *out);

#endif
