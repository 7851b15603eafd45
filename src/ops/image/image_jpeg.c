/* JPEG through libjpeg (turbo). Its errors come as long jumps; what they must not leak is kept in one struct outside
 * the function that jumps. */
#include <stdio.h>
/* jpeglib.h needs stdio.h's FILE */
#include <jerror.h>
#include <jpeglib.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ops/image/image_format.h"

enum { MAX_SAMPLES = 1 << 29 };

struct failure {
  struct jpeg_error_mgr head;
  jmp_buf jump;
  bool ended; /* the data were not enough: the library fills up with grey */
};

static void fail(j_common_ptr c) { longjmp(((struct failure *)c->err)->jump, 1); }
static void ignore(j_common_ptr c) { (void)c; }
static void ignore_level(j_common_ptr c, int level) {
  if (level == -1 && c->err->msg_code == JWRN_JPEG_EOF) ((struct failure *)c->err)->ended = true;
}

static struct jpeg_error_mgr *set_errors(struct failure *f) {
  jpeg_std_error(&f->head);
  f->head.error_exit = fail;
  f->head.output_message = ignore;
  f->head.emit_message = ignore_level;
  return &f->head;
}

/* ---- reading ---- */

static shoal_status bad_data(void) { return INVALID("jpeg::Uncompress failed. Invalid JPEG data or crop window."); }

/* Lines as they come from the decoder to the output: cut to the crop window, four colours made three. */
struct jpeg_lines {
  int components, width; /* of the output */
  bool cmyk;
  size_t skip; /* samples at the start of a line, when it had to begin at a block */
};

static void put_line(const struct jpeg_decompress_struct *c, const struct jpeg_lines *l, const JSAMPLE *line,
                     uint8_t *to) {
  line += l->skip;
  if (!l->cmyk) {
    memcpy(to, line, (size_t)l->width * (size_t)l->components);
    return;
  }
  for (int i = 0; i < l->width; i++, line += 4, to += 3) {
    int k = line[3];
    for (int n = 0; n < 3; n++)
      to[n] = (uint8_t)(c->saw_Adobe_marker ? k * line[n] / 255 : (255 - k) * (255 - line[n]) / 255);
  }
}

struct jpeg_decoding {
  struct jpeg_decompress_struct c;
  struct failure failure;
  JSAMPLE *line;
  shoal_status error;
};

static bool window_fits(const struct jpeg_options *o, const struct jpeg_decompress_struct *c) {
  return o->crop_width > 0 && o->crop_height > 0 && o->crop_x >= 0 && o->crop_y >= 0 &&
         o->crop_y + o->crop_height <= (int64_t)c->output_height &&
         o->crop_x + o->crop_width <= (int64_t)c->output_width;
}

/* May jump back to the caller at any call of the library. */
static bool decode(struct jpeg_decoding *d, const void *data, size_t n, const struct jpeg_options *o,
                   image_alloc *alloc, void *arg) {
  struct jpeg_decompress_struct *c = &d->c;
  jpeg_mem_src(c, data, (unsigned long)n);
  jpeg_read_header(c, TRUE);
  int components = o->channels ? o->channels : MIN(c->num_components, 3);
  if (components != 1 && components != 3) return false;
  bool four = c->jpeg_color_space == JCS_CMYK || c->jpeg_color_space == JCS_YCCK;
  c->out_color_space = components == 1 ? JCS_GRAYSCALE : four ? JCS_CMYK : JCS_RGB;
  c->do_fancy_upsampling = o->fancy_upscaling;
  c->scale_num = 1;
  c->scale_denom = (unsigned)o->ratio;
  c->dct_method = o->fast_dct ? JDCT_IFAST : JDCT_ISLOW;
  jpeg_calc_output_dimensions(c);
  if (!c->output_width || !c->output_height ||
      (uint64_t)c->output_width * c->output_height * (uint64_t)c->num_components >= MAX_SAMPLES)
    return false;
  jpeg_start_decompress(c);
  struct jpeg_lines l = {
      .components = components, .width = (int)c->output_width, .cmyk = c->out_color_space == JCS_CMYK};
  int64_t height = c->output_height, first = 0;
  if (o->crop) {
    if (!window_fits(o, c)) return false;
    JDIMENSION x = (JDIMENSION)o->crop_x, w = (JDIMENSION)o->crop_width;
    jpeg_crop_scanline(c, &x, &w);
    first = o->crop_y;
    if (first && jpeg_skip_scanlines(c, (JDIMENSION)first) != (JDIMENSION)first) return false;
    l.width = (int)o->crop_width;
    l.skip = (size_t)(o->crop_x - x) * (l.cmyk ? 4u : (size_t)components);
    height = o->crop_height;
  }
  void *pixels;
  d->error = alloc(arg, height, l.width, components, &pixels);
  if (d->error) return false;
  d->line = mem_alloc((size_t)c->output_width * 4 + 64);
  uint8_t *to = pixels;
  for (int64_t y = 0; y < height; y++, to += (size_t)l.width * (size_t)components) {
    JSAMPROW row = d->line;
    if (jpeg_read_scanlines(c, &row, 1) == 0) return false;
    put_line(c, &l, d->line, to);
  }
  return !d->failure.ended || o->recover_truncated;
}

shoal_status jpeg_decode(const void *data, size_t n, const struct jpeg_options *o, image_alloc *alloc, void *arg) {
  struct jpeg_decoding *d = mem_zalloc(1, sizeof *d);
  d->c.err = set_errors(&d->failure);
  bool ok = false;
  if (setjmp(d->failure.jump) == 0) {
    jpeg_create_decompress(&d->c);
    ok = decode(d, data, n, o, alloc, arg);
  }
  jpeg_destroy_decompress(&d->c);
  shoal_status s = d->error ? d->error : ok ? NULL : bad_data();
  free(d->line);
  free(d);
  return s;
}

shoal_status jpeg_shape(const void *data, size_t n, int *height, int *width, int *channels) {
  struct jpeg_decoding *d = mem_zalloc(1, sizeof *d);
  d->c.err = set_errors(&d->failure);
  bool ok = false;
  if (setjmp(d->failure.jump) == 0) {
    jpeg_create_decompress(&d->c);
    jpeg_mem_src(&d->c, data, (unsigned long)n);
    jpeg_read_header(&d->c, TRUE);
    jpeg_calc_output_dimensions(&d->c);
    *height = (int)d->c.output_height;
    *width = (int)d->c.output_width;
    *channels = d->c.num_components;
    ok = true;
  }
  jpeg_destroy_decompress(&d->c);
  free(d);
  return ok ? NULL : INVALID("Invalid JPEG data, size %zu", n);
}

/* ---- writing ---- */

struct encoding {
  struct jpeg_compress_struct c;
  struct failure failure;
  unsigned char *out;
  unsigned long n;
};

static void encode(struct encoding *e, const uint8_t *pixels, int64_t width, int64_t height, int channels,
                   const struct jpeg_encoding *o) {
  struct jpeg_compress_struct *c = &e->c;
  jpeg_mem_dest(c, &e->out, &e->n);
  c->image_width = (JDIMENSION)width;
  c->image_height = (JDIMENSION)height;
  c->input_components = channels;
  c->in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(c);
  if (o->optimize_size) c->optimize_coding = TRUE;
  c->density_unit = o->density_in_cm ? 2 : 1;
  c->X_density = (UINT16)o->x_density;
  c->Y_density = (UINT16)o->y_density;
  jpeg_set_quality(c, o->quality, TRUE);
  if (o->progressive) jpeg_simple_progression(c);
  if (!o->chroma_downsampling)
    for (int i = 0; i < c->num_components; i++) c->comp_info[i].h_samp_factor = c->comp_info[i].v_samp_factor = 1;
  jpeg_start_compress(c, TRUE);
  static const char name[] = "http://ns.adobe.com/xap/1.0/";
  if (o->xmp_n && o->xmp_n < 65000) {
    char *block = mem_alloc(sizeof name + o->xmp_n);
    memcpy(block, name, sizeof name);
    memcpy(block + sizeof name, o->xmp, o->xmp_n);
    jpeg_write_marker(c, JPEG_APP0 + 1, (const JOCTET *)block, (unsigned)(sizeof name + o->xmp_n));
    free(block);
  }
  for (int64_t y = 0; y < height; y++) {
    JSAMPROW row = (JSAMPROW)(uintptr_t)(pixels + (size_t)y * (size_t)width * (size_t)channels);
    jpeg_write_scanlines(c, &row, 1);
  }
  jpeg_finish_compress(c);
}

shoal_status jpeg_encode(const uint8_t *pixels, int64_t width, int64_t height, int channels,
                         const struct jpeg_encoding *o, struct text *out) {
  if (width < 1 || height < 1 || width > 65500 || height > 65500)
    return INTERNAL("JPEG encoding failed: an image of %lld by %lld", (long long)width, (long long)height);
  struct encoding *e = mem_zalloc(1, sizeof *e);
  e->c.err = set_errors(&e->failure);
  bool ok = false;
  if (setjmp(e->failure.jump) == 0) {
    jpeg_create_compress(&e->c);
    encode(e, pixels, width, height, channels, o);
    ok = true;
  }
  jpeg_destroy_compress(&e->c);
  if (ok) text_add(out, (const char *)e->out, e->n);
  free(e->out);
  free(e);
  return ok ? NULL : INTERNAL("JPEG encoding failed");
}
