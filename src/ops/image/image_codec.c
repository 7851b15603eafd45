/* Ops that decode and encode pictures. Each decoding op takes any format it can be asked for by its signature: the
 * format is told by the first bytes, as TensorFlow does. */
#include <inttypes.h>
#include <string.h>

#include "graph/shape_fn.h"
#include "ops/image/image_format.h"
#include "ops/text/string_in.h"

enum format { UNKNOWN, JPEG, PNG, GIF, BMP };

static enum format format_of(const char *data, size_t n) {
#define BEGINS(text) (n >= sizeof(text) - 1 && memcmp(data, text, sizeof(text) - 1) == 0)
  if (BEGINS("\xff\xd8\xff")) return JPEG;
  if (BEGINS("\x89PNG\r\n\x1a\n")) return PNG;
  if (BEGINS("GIF8")) return GIF;
  if (BEGINS("BM")) return BMP;
#undef BEGINS
  return UNKNOWN;
}

struct decode_state {
  const char *op;
  int channels;
  bool is_gif, is_bmp, is_image, is_crop; /* which op it is; PNG and JPEG need no flag */
  bool expand_animations;
  struct jpeg_options jpeg;
};

static shoal_status init_jpeg(struct kernel_init *ki, struct jpeg_options *o) {
  int64_t ratio;
  const char *dct;
  TRY(node_get_int(ki->node, "ratio", &ratio));
  if (ratio != 1 && ratio != 2 && ratio != 4 && ratio != 8)
    return INVALID("ratio must be 1, 2, 4, or 8, got %" PRId64, ratio);
  o->ratio = (int)ratio;
  TRY(node_get_bool(ki->node, "fancy_upscaling", &o->fancy_upscaling));
  TRY(node_get_bool(ki->node, "try_recover_truncated", &o->recover_truncated));
  TRY(node_get_float(ki->node, "acceptable_fraction", &o->acceptable_fraction));
  TRY(node_get_string(ki->node, "dct_method", &dct));
  o->fast_dct = strcmp(dct, "INTEGER_ACCURATE") != 0;
  if (o->fast_dct && *dct && strcmp(dct, "INTEGER_FAST") != 0)
    return INVALID("dct_method must be one of {'', 'INTEGER_FAST', 'INTEGER_ACCURATE'}");
  return NULL;
}

static shoal_status init_decode(struct kernel_init *ki, void *state) {
  struct decode_state *s = state;
  s->op = ki->node->op->name;
  s->is_gif = op_is(ki->node->op, "DecodeGif");
  s->is_bmp = op_is(ki->node->op, "DecodeBmp");
  s->is_image = op_is(ki->node->op, "DecodeImage");
  s->is_crop = op_is(ki->node->op, "DecodeAndCropJpeg");
  s->jpeg = (struct jpeg_options){.ratio = 1, .fancy_upscaling = true, .acceptable_fraction = 1, .fast_dct = true};
  s->expand_animations = true;
  if (node_attr(ki->node, "ratio")) TRY(init_jpeg(ki, &s->jpeg));
  if (s->is_image) TRY(node_get_bool(ki->node, "expand_animations", &s->expand_animations));
  int64_t channels = 3;
  if (!s->is_gif) TRY(node_get_int(ki->node, "channels", &channels));
  if (channels != 0 && channels != 1 && channels != 3 && channels != 4)
    return INVALID("`channels` must be 0, 1, 3 or 4 but got %" PRId64, channels);
  s->channels = (int)channels;
  return NULL;
}

/* Where a decoder's pixels go: the output itself when that has their type, a temporary otherwise. */
struct pixel_target {
  struct kernel_ctx *ctx;
  const struct decode_state *state;
  enum format format;
  shoal_dtype pixel; /* uint8 or uint16 */
  int frames;        /* of a GIF; set before alloc is called */
  struct tensor *out;
  struct tensor temp;
};

static shoal_status alloc(void *arg, int64_t height, int64_t width, int64_t channels, void **pixels) {
  struct pixel_target *t = arg;
  const struct decode_state *s = t->state;
  struct shape shape = {.rank = 3, .dims = {height, width, channels}};
  bool four = s->is_gif || (t->format == GIF && s->is_image && s->expand_animations);
  if (t->format == GIF && !four && !s->is_image && t->frames != 1)
    return INVALID("Got %d frames, but animated gifs can only be decoded by tf.io.decode_gif or tf.io.decode_image",
                   t->frames);
  if (four) shape = (struct shape){.rank = 4, .dims = {t->format == GIF ? t->frames : 1, height, width, channels}};
  TRY(ctx_out(t->ctx, 0, &shape, &t->out));
  *pixels = t->out->data;
  if ((shoal_dtype)t->out->dtype == t->pixel) return NULL;
  TRY(ctx_temp(t->ctx, t->pixel, &shape, &t->temp));
  *pixels = t->temp.data;
  return NULL;
}

/* Samples of 8 or 16 bits to the type asked for. */
static void convert(const struct tensor *from, struct tensor *to) {
  const uint8_t *bytes = from->data;
  const uint16_t *words = from->data;
  bool wide = from->dtype == SHOAL_UINT16;
  for (int64_t i = 0; i < to->n; i++) {
    if (to->dtype == SHOAL_UINT16) T_DATA(to, uint16_t)[i] = (uint16_t)(bytes[i] * 256);
    else T_DATA(to, float)[i] = wide ? (float)words[i] * (float)(1. / 65535) : (float)bytes[i] * (float)(1. / 255);
  }
}

static shoal_status wrong_op(const struct decode_state *s, const char *format, const char *op) {
  if (s->is_crop) return INVALID("DecodeAndCropJpeg operation can run on JPEG only, but detected %s.", format);
  return INVALID("Trying to decode %s format using %s op. Use `%s` or `decode_image` instead.", format, s->op, op);
}

static shoal_status read_window(struct kernel_ctx *ctx, struct jpeg_options *o) {
  const struct tensor *w = ctx_in(ctx, 1);
  struct shape shape = tensor_shape(w);
  if (w->rank != 1) return INVALID("crop_window must be 1-D, got shape %s", shape_str(&shape));
  if (w->dims[0] != 4) return INVALID("crop_size must have four elements %s", shape_str(&shape));
  const int32_t *v = w->data;
  o->crop = true;
  o->crop_y = v[0];
  o->crop_x = v[1];
  o->crop_height = v[2];
  o->crop_width = v[3];
  return NULL;
}

static shoal_status decode(struct pixel_target *t, const char *data, size_t n) {
  const struct decode_state *s = t->state;
  switch (t->format) {
    case JPEG: {
      if (s->channels == 4) return INVALID("JPEG does not support 4 channels");
      if (s->is_bmp) return wrong_op(s, "JPEG", "decode_jpeg");
      struct jpeg_options o = s->jpeg;
      o.channels = s->channels;
      if (s->is_crop) TRY(read_window(t->ctx, &o));
      return jpeg_decode(data, n, &o, alloc, t);
    }
    case PNG:
      if (s->is_bmp || s->is_crop) return wrong_op(s, "PNG", "decode_png");
      if (ctx_out_type(t->ctx, 0) != SHOAL_UINT8) t->pixel = SHOAL_UINT16;
      return png_decode(data, n, s->channels, t->pixel == SHOAL_UINT8 ? 8 : 16, alloc, t);
    case GIF:
      if (s->channels == 1 || s->channels == 4) return INVALID("channels must be 0 or 3 for GIF, got %d", s->channels);
      if (s->is_bmp || s->is_crop) return wrong_op(s, "GIF", "decode_gif");
      return gif_decode(data, n, !s->expand_animations, &t->frames, alloc, t);
    case BMP:
      if (s->channels == 1) return INVALID("`channels` must be 0, 3 or 4 for BMP, but got 1");
      if (s->is_crop) return wrong_op(s, "BMP", "decode_bmp");
      if (!s->is_bmp && !s->is_image)
        return INVALID(
            "Trying to decode BMP format using a wrong op. Use `decode_bmp` or `decode_image` instead. Op "
            "used: %s",
            s->op);
      return bmp_decode(data, n, s->channels, alloc, t);
    default: return INVALID("Unknown image file format. One of JPEG, PNG, GIF, BMP required.");
  }
}

static shoal_status run_decode(struct kernel_ctx *ctx) {
  const struct tensor *contents = ctx_in(ctx, 0);
  if (contents->rank != 0) {
    struct shape s = tensor_shape(contents);
    return INVALID("`contents` must be scalar but got shape%s", shape_str(&s));
  }
  const struct str *in = string_at(contents, 0);
  if (!in->size) return INVALID("Input is empty.");
  if (in->size > INT32_MAX) return INVALID("Input contents are too large for int: %zu", in->size);
  struct pixel_target t = {
      .ctx = ctx, .state = ctx->state, .format = format_of(str_data(in), in->size), .pixel = SHOAL_UINT8};
  shoal_status s = decode(&t, str_data(in), in->size);
  if (tensor_valid(&t.temp)) {
    if (!s) convert(&t.temp, t.out);
    tensor_release(&t.temp);
  }
  return s;
}

static shoal_status shape_decode(struct shape_ctx *c) {
  struct shape s;
  TRY(shape_in_rank(c, 0, 0, &s));
  bool gif = op_is(c->node->op, "DecodeGif");
  if (op_is(c->node->op, "DecodeImage")) return NULL;
  int64_t channels = 3;
  if (!gif) TRY(node_get_int(c->node, "channels", &channels));
  if (channels < 0) return INVALID("channels must be non-negative, got %" PRId64, channels);
  c->out[0] = shape_unknown_of_rank(gif ? 4 : 3);
  c->out[0].dims[gif ? 3 : 2] = channels ? channels : -1;
  return NULL;
}

/* ---- ExtractJpegShape ---- */

static shoal_status run_jpeg_shape(struct kernel_ctx *ctx) {
  const struct tensor *contents = ctx_in(ctx, 0);
  TRY(ctx_check_scalar(ctx, 0, "contents"));
  int dims[3];
  const struct str *in = string_at(contents, 0);
  TRY(jpeg_shape(str_data(in), in->size, &dims[0], &dims[1], &dims[2]));
  int64_t three = 3;
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 1, &three, &out));
  for (int i = 0; i < 3; i++)
    if (out->dtype == SHOAL_INT32) T_DATA(out, int32_t)[i] = dims[i];
    else T_DATA(out, int64_t)[i] = dims[i];
  return NULL;
}

static shoal_status shape_three(struct shape_ctx *c) {
  c->out[0] = shape_vector(3);
  return NULL;
}

/* ---- encoding ---- */

struct encode_state {
  struct jpeg_encoding jpeg;
  int channels;    /* 0: as the image has them */
  int compression; /* PNG */
  char *xmp;
};

static shoal_status init_png(struct kernel_init *ki, void *state) {
  int64_t level;
  TRY(node_get_int(ki->node, "compression", &level));
  if (level < -1 || level > 9) return INVALID("compression should be in [-1,9], got %" PRId64, level);
  ((struct encode_state *)state)->compression = (int)level;
  return NULL;
}

static shoal_status put_encoded(struct kernel_ctx *ctx, shoal_status s, struct text *t, struct str *to) {
  if (!s) str_set(to, t->at, t->n);
  t->n = 0;
  return s;
}

static shoal_status run_encode_png(struct kernel_ctx *ctx) {
  const struct encode_state *s = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape shape = tensor_shape(x);
  if (x->rank < 3) return INVALID("images must have at least rank 3, but got %s", shape_str(&shape));
  int64_t h = x->dims[x->rank - 3], w = x->dims[x->rank - 2], c = x->dims[x->rank - 1], images = 1;
  if (x->n == 0 && (h == 0 || w == 0)) return INVALID("image is empty: %s", shape_str(&shape));
  if (h > INT32_MAX || w > INT32_MAX) return INVALID("image too large for int: %s", shape_str(&shape));
  if (c < 1 || c > 4) return INVALID("image must have 1, 2, 3, or 4 channels, got %" PRId64, c);
  shape.rank -= 3;
  for (int i = 0; i < shape.rank; i++) images *= shape.dims[i];
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  size_t bytes = (size_t)h * (size_t)w * (size_t)c * dtype_size((shoal_dtype)x->dtype);
  struct text t = {0};
  shoal_status e = NULL;
  for (int64_t i = 0; !e && i < images; i++)
    e = put_encoded(ctx,
                    png_encode((const char *)x->data + (size_t)i * bytes, w, h, (int)c,
                               x->dtype == SHOAL_UINT8 ? 8 : 16, s->compression, &t),
                    &t, &T_DATA(out, struct str)[i]);
  text_release(&t);
  return e;
}

static shoal_status shape_encode_png(struct shape_ctx *c) {
  struct shape s;
  TRY(shape_in_rank_at_least(c, 0, 3, &s));
  if (s.rank < 0) return NULL;
  s.rank -= 3;
  c->out[0] = s;
  return NULL;
}

static shoal_status init_encode_jpeg(struct kernel_init *ki, void *state) {
  struct encode_state *s = state;
  struct jpeg_encoding *o = &s->jpeg;
  const char *format, *unit;
  int64_t quality, x, y;
  TRY(node_get_string(ki->node, "format", &format));
  if (!strcmp(format, "grayscale")) s->channels = 1;
  else if (!strcmp(format, "rgb")) s->channels = 3;
  else if (*format) return INVALID("format must be '', grayscale or rgb, got %s", format);
  TRY(node_get_int(ki->node, "quality", &quality));
  if (quality < 0 || quality > 100) return INVALID("quality must be in [0,100], got %" PRId64, quality);
  TRY(node_get_bool(ki->node, "progressive", &o->progressive));
  TRY(node_get_bool(ki->node, "optimize_size", &o->optimize_size));
  TRY(node_get_bool(ki->node, "chroma_downsampling", &o->chroma_downsampling));
  TRY(node_get_string(ki->node, "density_unit", &unit));
  TRY(node_get_int(ki->node, "x_density", &x));
  TRY(node_get_int(ki->node, "y_density", &y));
  o->quality = (int)quality;
  o->density_in_cm = strcmp(unit, "cm") == 0;
  o->x_density = (int)x;
  o->y_density = (int)y;
  const struct attr *xmp = node_attr(ki->node, "xmp_metadata");
  if (xmp && xmp->kind == ATTR_STRING && xmp->s.n) {
    s->xmp = mem_alloc(xmp->s.n);
    memcpy(s->xmp, xmp->s.data, xmp->s.n);
    o->xmp = s->xmp;
    o->xmp_n = xmp->s.n;
  }
  return NULL;
}

static void release_encode(void *state) { free(((struct encode_state *)state)->xmp); }

static shoal_status encode_jpeg(struct kernel_ctx *ctx, const struct jpeg_encoding *o, int want) {
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape shape = tensor_shape(x);
  if (x->rank != 3) return INVALID("image must be 3-dimensional %s", shape_str(&shape));
  int64_t c = x->dims[2];
  if (want && c != want)
    return INVALID("format %s expects %d channels, got %" PRId64, want == 1 ? "grayscale" : "rgb", want, c);
  if (c != 1 && c != 3) return INVALID("image must have 1 or 3 channels, got %s", shape_str(&shape));
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  struct text t = {0};
  shoal_status s = put_encoded(ctx, jpeg_encode(x->data, x->dims[1], x->dims[0], (int)c, o, &t), &t, out->data);
  text_release(&t);
  return s;
}

static shoal_status run_encode_jpeg(struct kernel_ctx *ctx) {
  const struct encode_state *s = ctx->state;
  return encode_jpeg(ctx, &s->jpeg, s->channels);
}

static shoal_status run_encode_jpeg_quality(struct kernel_ctx *ctx) {
  TRY(ctx_check_scalar(ctx, 1, "quality"));
  int quality = *T_DATA(ctx_in(ctx, 1), int32_t);
  if (quality < 0 || quality > 100) return INVALID("quality must be in [0,100], got %d", quality);
  struct jpeg_encoding o = {.quality = quality, .x_density = 300, .y_density = 300, .chroma_downsampling = true};
  return encode_jpeg(ctx, &o, 0);
}

/* ---- rows ---- */

#define DECODE                                  \
  (const struct kernel_def[]) {                 \
    {.device = "CPU",                           \
     .flags = KERNEL_EXPENSIVE,                 \
     .state_size = sizeof(struct decode_state), \
     .init = init_decode,                       \
     .run = run_decode},                        \
    {                                           \
      0                                         \
    }                                           \
  }
#define ENCODE(init_, fn)                       \
  (const struct kernel_def[]) {                 \
    {.device = "CPU",                           \
     .flags = KERNEL_EXPENSIVE,                 \
     .state_size = sizeof(struct encode_state), \
     .init = init_,                             \
     .release = release_encode,                 \
     .run = fn},                                \
    {                                           \
      0                                         \
    }                                           \
  }
#define RUN(fn)                                                    \
  (const struct kernel_def[]) {                                    \
    {.device = "CPU", .flags = KERNEL_EXPENSIVE, .run = fn}, { 0 } \
  }
#define JPEG_ATTRS                                                                                         \
  "channels: int = 0; ratio: int = 1; fancy_upscaling: bool = true; try_recover_truncated: bool = false; " \
  "acceptable_fraction: float = 1.0; dct_method: string = ''"

static const struct op_row rows[] = {
    {.name = "DecodeJpeg",
     .in = "contents: string",
     .out = "image: uint8",
     .attrs = JPEG_ATTRS,
     .flags = OP_NO_GRADIENT,
     .shape = shape_decode,
     .kernels = DECODE},
    {.name = "DecodeAndCropJpeg",
     .in = "contents: string, crop_window: int32",
     .out = "image: uint8",
     .attrs = JPEG_ATTRS,
     .flags = OP_NO_GRADIENT,
     .shape = shape_decode,
     .kernels = DECODE},
    {.name = "DecodePng",
     .in = "contents: string",
     .out = "image: dtype",
     .attrs = "channels: int = 0; dtype: {uint8, uint16} = uint8",
     .flags = OP_NO_GRADIENT,
     .shape = shape_decode,
     .kernels = DECODE},
    {.name = "DecodeGif",
     .in = "contents: string",
     .out = "image: uint8",
     .flags = OP_NO_GRADIENT,
     .shape = shape_decode,
     .kernels = DECODE},
    {.name = "DecodeBmp",
     .in = "contents: string",
     .out = "image: uint8",
     .attrs = "channels: int = 0",
     .flags = OP_NO_GRADIENT,
     .shape = shape_decode,
     .kernels = DECODE},
    {.name = "DecodeImage",
     .in = "contents: string",
     .out = "image: dtype",
     .attrs = "channels: int = 0; dtype: {uint8, uint16, float} = uint8; expand_animations: bool = true",
     .flags = OP_NO_GRADIENT,
     .shape = shape_decode,
     .kernels = DECODE},
    {.name = "ExtractJpegShape",
     .in = "contents: string",
     .out = "image_shape: output_type",
     .attrs = "output_type: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = shape_three,
     .kernels = RUN(run_jpeg_shape)},
    {.name = "EncodePng",
     .in = "image: T",
     .out = "contents: string",
     .attrs = "compression: int = -1; T: {uint8, uint16} = uint8",
     .flags = OP_NO_GRADIENT,
     .shape = shape_encode_png,
     .kernels = ENCODE(init_png, run_encode_png)},
    {.name = "EncodeJpeg",
     .in = "image: uint8",
     .out = "contents: string",
     .attrs = "format: {'', 'grayscale', 'rgb'} = ''; quality: int = 95; progressive: bool = false; "
              "optimize_size: bool = false; chroma_downsampling: bool = true; density_unit: {'in', 'cm'} = 'in'; "
              "x_density: int = 300; y_density: int = 300; xmp_metadata: string = ''",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = ENCODE(init_encode_jpeg, run_encode_jpeg)},
    {.name = "EncodeJpegVariableQuality",
     .in = "images: uint8, quality: int32",
     .out = "contents: string",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = RUN(run_encode_jpeg_quality)},
};
OP_FAMILY(image_codec, rows);
