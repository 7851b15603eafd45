/* ops/signal: sound and Fourier transforms. */

/* WAV files of 16-bit samples: DecodeWav, EncodeWav, and the encoder that summaries use.
 *
 *   RIFF, u32 size - 8, WAVE
 *   fmt , u32 16 (or 18), u16 1 (PCM), u16 channels, u32 rate, u32 bytes a second, u16 bytes a frame, u16 bits
 *   data, u32 bytes, samples; chunks of other names are stepped over */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "graph/shape_fn.h"
#include "ops/image/image_format.h"
#include "ops/text/string_in.h"

enum { HEADER = 44, BYTES = 2, FORMAT_SIZE = 16, PCM = 1 };

static void put(struct text *t, uint32_t v, int bytes) {
  for (int i = 0; i < bytes; i++) text_addc(t, (char)(v >> (8 * i)));
}

shoal_status wav_encode(const float *samples, uint64_t rate, uint64_t channels, uint64_t frames, struct text *out) {
  if (rate == 0 || rate > UINT32_MAX) return INVALID("sample_rate must be in (0, 2^32), got: %" PRIu64, rate);
  if (channels == 0 || channels > UINT16_MAX)
    return INVALID("num_channels must be in (0, 2^16), got: %" PRIu64, channels);
  if (frames == 0) return INVALID("num_frames must be positive.");
  if (frames > UINT32_MAX || frames * channels * BYTES + HEADER > UINT32_MAX)
    return INVALID("Provided channels and frames cannot be encoded as a WAV.");
  uint32_t bytes = (uint32_t)(frames * channels * BYTES);
  text_add(out, "RIFF", 4);
  put(out, bytes + HEADER - 8, 4);
  text_add(out, "WAVEfmt ", 8);
  put(out, FORMAT_SIZE, 4);
  put(out, PCM, 2);
  put(out, (uint32_t)channels, 2);
  put(out, (uint32_t)rate, 4);
  put(out, (uint32_t)(rate * BYTES * channels), 4);
  put(out, (uint32_t)(BYTES * channels), 2);
  put(out, 8 * BYTES, 2);
  text_add(out, "data", 4);
  put(out, bytes, 4);
  for (uint64_t i = 0; i < frames * channels; i++) {
    float v = roundf(samples[i] * 32768.0f);
    put(out, (uint32_t)(int32_t)(v >= 32767 ? 32767 : v <= -32768 ? -32768 : isnan(v) ? 0 : v), 2);
  }
  return NULL;
}

/* ---- EncodeWav ---- */

static shoal_status run_encode(struct kernel_ctx *ctx) {
  const struct tensor *audio = ctx_in(ctx, 0), *rate = ctx_in(ctx, 1);
  struct shape s;
  if (audio->rank != 2) {
    s = tensor_shape(audio);
    return INVALID("audio must be 2-dimensional but got shape %s", shape_str(&s));
  }
  if (rate->rank != 0) {
    s = tensor_shape(rate);
    return INVALID("Input sample_rate should be a scalar tensor, got %s instead.", shape_str(&s));
  }
  struct text t = {0};
  struct tensor *out;
  shoal_status e = wav_encode(audio->data, (uint64_t)(int64_t)*T_DATA(rate, int32_t), (uint64_t)audio->dims[1],
                              (uint64_t)audio->dims[0], &t);
  if (!e) e = ctx_out_dims(ctx, 0, 0, NULL, &out);
  if (!e) str_set(out->data, t.at, t.n);
  text_release(&t);
  return e;
}

/* ---- DecodeWav ---- */

struct wav {
  uint32_t rate, frames;
  uint16_t channels;
  const unsigned char *samples;
};

struct wav_scan {
  const unsigned char *at, *end;
};

static bool number(struct wav_scan *s, int bytes, uint32_t *out) {
  if (s->end - s->at < bytes) return false;
  *out = 0;
  for (int i = 0; i < bytes; i++) *out |= (uint32_t)*s->at++ << (8 * i);
  return true;
}

static shoal_status short_data(void) { return INVALID("Data too short when trying to read string"); }

static shoal_status expect(struct wav_scan *s, const char *text) {
  if (s->end - s->at < 4) return short_data();
  if (memcmp(s->at, text, 4) != 0)
    return INVALID("Header mismatch: Expected %s but found %.4s", text, (const char *)s->at);
  s->at += 4;
  return NULL;
}

static shoal_status find_samples(struct wav_scan s, uint32_t bytes_per_frame, struct wav *w) {
  while (s.at < s.end) {
    char id[5] = {0};
    uint32_t size;
    if (s.end - s.at < 4) return short_data();
    memcpy(id, s.at, 4);
    s.at += 4;
    if (!number(&s, 4, &size)) return short_data();
    if (size > INT32_MAX)
      return INVALID("WAV data chunk '%s' is too large: %u bytes, but the limit is %d", id, size, INT32_MAX);
    if (memcmp(id, "data", 4) == 0) {
      if (w->samples) return INVALID("More than one data chunk found in WAV");
      w->frames = size / bytes_per_frame;
      if (s.end - s.at < (int64_t)w->frames * bytes_per_frame) return short_data();
      w->samples = s.at;
      size = w->frames * bytes_per_frame;
    }
    if (s.end - s.at < (int64_t)size) break;
    s.at += size;
  }
  return w->samples ? NULL : INVALID("No data chunk found in WAV");
}

static shoal_status parse(const struct str *contents, struct wav *w) {
  struct wav_scan s = {(const unsigned char *)str_data(contents),
                       (const unsigned char *)str_data(contents) + contents->size};
  uint32_t total, format_size, format, channels, per_second, per_frame, bits;
  TRY(expect(&s, "RIFF"));
  if (!number(&s, 4, &total)) return short_data();
  TRY(expect(&s, "WAVE"));
  TRY(expect(&s, "fmt "));
  if (!number(&s, 4, &format_size)) return short_data();
  if (format_size != 16 && format_size != 18)
    return INVALID("Bad format chunk size for WAV: Expected 16 or 18, but got %u", format_size);
  if (!number(&s, 2, &format) || !number(&s, 2, &channels) || !number(&s, 4, &w->rate) || !number(&s, 4, &per_second) ||
      !number(&s, 2, &per_frame) || !number(&s, 2, &bits))
    return short_data();
  if (format != PCM) return INVALID("Bad audio format for WAV: Expected 1 (PCM), but got%u", format);
  if (channels < 1) return INVALID("Bad number of channels for WAV: Expected at least 1, but got %u", channels);
  if (bits != 16) return INVALID("Can only read 16-bit WAV files, but received %u", bits);
  if (per_frame != BYTES * channels)
    return INVALID("Bad bytes per sample in WAV header: Expected %u but got %u", BYTES * channels, per_frame);
  if (per_second != per_frame * w->rate)
    return INVALID("Bad bytes per second in WAV header: Expected %u but got %u (sample_rate=%u, bytes_per_sample=%u)",
                   per_frame * w->rate, per_second, w->rate, per_frame);
  w->channels = (uint16_t)channels;
  if (format_size == 18) {
    if (s.end - s.at < 2) return short_data();
    s.at += 2;
  }
  return find_samples(s, per_frame, w);
}

struct wav_decode_state {
  int64_t channels, samples; /* -1: as the file has them */
};

static shoal_status init_decode(struct kernel_init *ki, void *state) {
  struct wav_decode_state *s = state;
  TRY(node_get_int(ki->node, "desired_channels", &s->channels));
  return node_get_int(ki->node, "desired_samples", &s->samples);
}

static shoal_status run_decode(struct kernel_ctx *ctx) {
  const struct wav_decode_state *st = ctx->state;
  const struct tensor *contents = ctx_in(ctx, 0);
  if (contents->rank != 0) {
    struct shape s = tensor_shape(contents);
    return INVALID("contents must be scalar, got shape %s", shape_str(&s));
  }
  const struct str *data = string_at(contents, 0);
  if (data->size > INT32_MAX) return INVALID("WAV contents are too large for int: %zu", data->size);
  struct wav w = {0};
  TRY(parse(data, &w));
  int64_t dims[2] = {st->samples == -1 ? w.frames : st->samples, st->channels == -1 ? w.channels : st->channels};
  struct tensor *audio, *rate;
  TRY(ctx_out_dims(ctx, 0, 2, dims, &audio));
  for (int64_t f = 0; f < dims[0]; f++)
    for (int64_t c = 0; c < dims[1]; c++) {
      float v = 0;
      if (f < w.frames) { /* channels that are missing repeat the last one there is */
        const unsigned char *p = w.samples + (f * w.channels + MIN(c, w.channels - 1)) * BYTES;
        v = (float)(int16_t)(p[0] | p[1] << 8) * (1.0f / 32768);
      }
      T_DATA(audio, float)[f * dims[1] + c] = v;
    }
  TRY(ctx_out_dims(ctx, 1, 0, NULL, &rate));
  *T_DATA(rate, int32_t) = (int32_t)w.rate;
  return NULL;
}

static shoal_status shape_decode(struct shape_ctx *c) {
  int64_t channels, samples;
  TRY(node_get_int(c->node, "desired_channels", &channels));
  TRY(node_get_int(c->node, "desired_samples", &samples));
  if (channels < -1) return INVALID("channels must be non-negative, got %" PRId64, channels);
  if (samples < -1) return INVALID("samples must be non-negative, got %" PRId64, samples);
  c->out[0] = shape_matrix(samples, channels);
  c->out[1] = shape_scalar();
  return NULL;
}

static const struct op_row rows[] = {
    {.name = "DecodeWav",
     .in = "contents: string",
     .out = "audio: float, sample_rate: int32",
     .attrs = "desired_channels: int = -1; desired_samples: int = -1",
     .flags = OP_NO_GRADIENT,
     .shape = shape_decode,
     .kernels =
         (const struct kernel_def[]){
             {.device = "CPU", .state_size = sizeof(struct wav_decode_state), .init = init_decode, .run = run_decode},
             {0}}},
    {.name = "EncodeWav",
     .in = "audio: float, sample_rate: int32",
     .out = "contents: string",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = (const struct kernel_def[]){{.device = "CPU", .run = run_encode}, {0}}},
};
OP_FAMILY(audio, rows);
