/* Building summaries; see summary_build.h. */
#include "ops/data/summary_build.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/wire.h"
#include "ops/array/array_util.h"
#include "ops/image/image_format.h"
#include "proto/event.wire.h"
#include "proto/tensor.wire.h"
#include "tensor/tensor_proto.h"

static size_t begin(struct text *out, const struct str *tag, const char *suffix, int64_t index) {
  size_t at = begin_Summary_value(out);
  if (!tag) return at;
  struct text name = {0};
  text_add(&name, str_data(tag), tag->size);
  if (suffix) text_adds(&name, suffix);
  if (index >= 0) text_addf(&name, "/%" PRId64, index);
  if (name.n) put_Summary_Value_tag_n(out, name.at, name.n);
  text_release(&name);
  return at;
}

void summary_add_scalar(struct text *out, const struct str *tag, float value) {
  size_t at = begin(out, tag, NULL, -1);
  put_Summary_Value_simple_value(out, value);
  wire_end(out, at);
}

/* ---- histograms: buckets that grow by a tenth, from 1e-12 to 1e20 on both sides of 0 ---- */

enum { MAX_LIMITS = 2048 };
static double limits[MAX_LIMITS];
static int n_limits;
static pthread_once_t limits_once = PTHREAD_ONCE_INIT;

static void make_limits(void) {
  double positive[MAX_LIMITS / 2];
  int n = 0;
  for (double v = 1e-12; v < 1e20; v *= 1.1) positive[n++] = v;
  positive[n++] = DBL_MAX;
  for (int i = n - 1; i >= 0; i--) limits[n_limits++] = -positive[i];
  limits[n_limits++] = 0;
  for (int i = 0; i < n; i++) limits[n_limits++] = positive[i];
}

static void put_double(struct text *out, uint32_t tag, double v) {
  uint64_t bits;
  memcpy(&bits, &v, 8);
  if (bits) wire_add_double(out, tag, v);
}

shoal_status summary_add_histogram(struct text *out, const struct str *tag, const struct tensor *values,
                                   const char *where) {
  pthread_once(&limits_once, make_limits);
  double *buckets = mem_zalloc((size_t)n_limits * 2, sizeof *buckets), *ends = buckets + n_limits;
  double min = DBL_MAX, max = -DBL_MAX, sum = 0, squares = 0;
  for (int64_t i = 0; i < values->n; i++) {
    double v = real_at(values, i);
    if (!isfinite(v)) {
      free(buckets);
      return INVALID("%s in summary histogram for: %s", isnan(v) ? "Nan" : "Infinity", where);
    }
    int lo = 0, hi = n_limits - 1; /* the first limit past v; the last takes what is past all */
    while (lo < hi) {
      int mid = (lo + hi) / 2;
      if (limits[mid] > v) hi = mid;
      else lo = mid + 1;
    }
    buckets[lo] += 1;
    if (v < min) min = v;
    if (v > max) max = v;
    sum += v;
    squares += v * v;
  }
  int n = 0; /* a run of empty buckets becomes one, which ends where the run does */
  for (int i = 0; i < n_limits; i++) {
    if (n && buckets[i] <= 0 && buckets[n - 1] <= 0) n--;
    ends[n] = limits[i];
    buckets[n++] = buckets[i];
  }
  size_t at = begin(out, tag, NULL, -1), histo = begin_Summary_Value_histo(out);
  put_double(out, HistogramProto_min, min);
  put_double(out, HistogramProto_max, max);
  put_double(out, HistogramProto_num, (double)values->n);
  put_double(out, HistogramProto_sum, sum);
  put_double(out, HistogramProto_sum_squares, squares);
  put_HistogramProto_bucket_limit_packed(out, ends, (size_t)n);
  put_HistogramProto_bucket_packed(out, buckets, (size_t)n);
  wire_end(out, histo);
  wire_end(out, at);
  free(buckets);
  return NULL;
}

/* ---- images ---- */

/* Scales an image to 0..255: by its largest value, or around 128 when there are negative ones. */
static void normalize(const struct tensor *t, int64_t first, int64_t pixels, int depth, const uint8_t *bad,
                      uint8_t *to) {
  shoal_dtype dtype = (shoal_dtype)t->dtype;
  float min = INFINITY, max = -INFINITY;
  for (int64_t p = 0; p < pixels; p++) {
    bool finite = true;
    for (int c = 0; c < depth; c++) finite = finite && isfinite(real_at(t, first + p * depth + c));
    for (int c = 0; finite && c < depth; c++) {
      float v = (float)real_at(t, first + p * depth + c);
      if (v < min) min = v;
      if (v > max) max = v;
    }
  }
  const float tiny = 1e-6f;
  float scale, offset = 0;
  if (min < 0) {
    float most = MAX(fabsf(min), fabsf(max));
    scale = most < tiny ? 0 : 127.0f / most;
    offset = 128;
  } else {
    scale = max < tiny ? 0 : 255.0f / max;
  }
  double scale_in_type = real_rounded(dtype, (double)scale);
  for (int64_t p = 0; p < pixels; p++) {
    bool finite = true;
    for (int c = 0; c < depth; c++) finite = finite && isfinite(real_at(t, first + p * depth + c));
    for (int c = 0; c < depth; c++) {
      double v = real_at(t, first + p * depth + c);
      double scaled = real_rounded(dtype, real_rounded(dtype, v * scale_in_type) + (double)offset);
      to[p * depth + c] = finite ? (uint8_t)(scaled < 0 ? 0 : scaled > 255 ? 255 : scaled) : bad[c];
    }
  }
}

static shoal_status check_images(const struct tensor *t, const struct tensor *bad_color) {
  struct shape s = tensor_shape(t);
  if (t->rank != 4 || (t->dims[3] != 1 && t->dims[3] != 3 && t->dims[3] != 4))
    return INVALID("Tensor must be 4-D with last dim 1, 3, or 4, not %s", shape_str(&s));
  int64_t limit = (int64_t)1 << 31;
  if (t->dims[0] >= limit || t->dims[1] >= limit || t->dims[2] >= limit || t->dims[1] * t->dims[2] >= 1 << 29)
    return INVALID("Tensor too large for summary %s", shape_str(&s));
  if (t->dims[1] * t->dims[2] == 0)
    return INVALID("input tensor must have non-zero dims. Found: [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "].",
                   t->dims[0], t->dims[1], t->dims[2], t->dims[3]);
  if (bad_color->dtype != SHOAL_UINT8)
    return INVALID("bad_color must be uint8, got %s", dtype_tf_name(bad_color->dtype));
  if (bad_color->rank != 1) {
    s = tensor_shape(bad_color);
    return INVALID("bad_color must be a vector, got shape %s", shape_str(&s));
  }
  if (t->dtype != SHOAL_UINT8 && bad_color->n < t->dims[3])
    return INVALID("expected depth <= bad_color.size, got depth = %" PRId64 ", bad_color.size = %" PRId64, t->dims[3],
                   bad_color->n);
  return NULL;
}

shoal_status summary_add_images(struct text *out, const struct str *tag, const struct tensor *t, int64_t max_images,
                                const struct tensor *bad_color) {
  TRY(check_images(t, bad_color));
  int64_t h = t->dims[1], w = t->dims[2], pixels = h * w;
  int depth = (int)t->dims[3];
  uint8_t *scaled = NULL;
  if (t->dtype != SHOAL_UINT8) scaled = mem_alloc((size_t)(pixels * depth));
  shoal_status s = NULL;
  struct text png = {0};
  for (int64_t i = 0; !s && i < MIN(max_images, t->dims[0]); i++) {
    const uint8_t *image = T_DATA(t, uint8_t) + i * pixels * depth;
    if (scaled) {
      normalize(t, i * pixels * depth, pixels, depth, bad_color->data, scaled);
      image = scaled;
    }
    png.n = 0;
    s = png_encode(image, w, h, depth, 8, -1, &png);
    if (s) break;
    size_t at = begin(out, tag, "/image", max_images > 1 ? i : -1), message = begin_Summary_Value_image(out);
    put_Summary_Image_height(out, h);
    put_Summary_Image_width(out, w);
    put_Summary_Image_colorspace(out, depth);
    put_Summary_Image_encoded_image_string_n(out, png.at, png.n);
    wire_end(out, message);
    wire_end(out, at);
  }
  text_release(&png);
  free(scaled);
  return s;
}

/* ---- sound ---- */

shoal_status summary_add_audio(struct text *out, const struct str *tag, const struct tensor *t, int64_t max_outputs,
                               float sample_rate) {
  if (t->rank < 2 || t->rank > 3) {
    struct shape s = tensor_shape(t);
    return INVALID("Tensor must be 3-D or 2-D, got: %s", shape_str(&s));
  }
  if (!(sample_rate > 0)) return INVALID("sample_rate must be > 0");
  int64_t frames = t->dims[1], channels = t->rank == 2 ? 1 : t->dims[2];
  uint64_t rate = (uint64_t)lrintf(sample_rate);
  struct text wav = {0};
  shoal_status s = NULL;
  for (int64_t i = 0; i < MIN(max_outputs, t->dims[0]); i++) {
    wav.n = 0;
    s = wav_encode(T_DATA(t, float) + i * frames * channels, rate ? rate : 1, (uint64_t)channels, (uint64_t)frames,
                   &wav);
    if (s) break;
    size_t at = begin(out, tag, "/audio", max_outputs > 1 ? i : -1), message = begin_Summary_Value_audio(out);
    put_Summary_Audio_sample_rate(out, sample_rate);
    put_Summary_Audio_num_channels(out, channels);
    put_Summary_Audio_length_frames(out, frames);
    put_Summary_Audio_encoded_audio_string_n(out, wav.at, wav.n);
    put_Summary_Audio_content_type(out, "audio/wav");
    wire_end(out, message);
    wire_end(out, at);
  }
  text_release(&wav);
  return s;
}

/* ---- tensors ---- */

shoal_status summary_add_tensor(struct text *out, const struct str *tag, const struct tensor *t, const char *node_name,
                                const struct str *metadata) {
  if (!dtype_plain((shoal_dtype)t->dtype) && t->dtype != SHOAL_STRING)
    return UNIMPLEMENTED("A summary cannot hold a tensor of type %s", dtype_tf_name(t->dtype));
  size_t at = begin(out, tag, NULL, -1);
  if (node_name) put_Summary_Value_node_name(out, node_name);
  size_t proto = begin_Summary_Value_tensor(out);
  struct shape shape = tensor_shape(t);
  put_TensorProto_dtype(out, t->dtype);
  size_t dims = begin_TensorProto_tensor_shape(out);
  shape_proto_encode(&shape, out);
  wire_end(out, dims);
  if (t->dtype == SHOAL_STRING) { /* readers in Python want strings as values, not as raw content */
    for (int64_t i = 0; i < t->n; i++) {
      const struct str *s = &T_DATA(t, struct str)[i];
      put_TensorProto_string_val_n(out, str_data(s), s->size);
    }
  } else if (t->n) {
    put_TensorProto_tensor_content_n(out, t->data, tensor_bytes(t));
  }
  wire_end(out, proto);
  if (metadata) put_Summary_Value_metadata_n(out, str_data(metadata), metadata->size);
  wire_end(out, at);
  return NULL;
}
