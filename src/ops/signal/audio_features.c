/* What speech models take from sound: AudioSpectrogram, the power of each frequency in windows that slide over the
 * samples, and Mfcc, the cosine transform of the logarithm of a spectrogram summed under triangles of the mel scale.
 * All in double inside, as in TensorFlow. */
#include <math.h>
#include <string.h>

#include "ops/array/array_util.h"
#include "ops/signal/fft_plan.h"

/* ---- AudioSpectrogram ---- */

struct spectrogram_state {
  int64_t window, stride;
  bool squared;
};

enum { MAX_WINDOW = 1 << 24 };

static shoal_status check_spectrogram(const struct spectrogram_state *st) {
  if (st->window <= 1) return INVALID("window_size must be > 1, got %" PRId64, st->window);
  if (st->stride <= 0) return INVALID("stride must be > 0, got %" PRId64, st->stride);
  if (st->window > MAX_WINDOW) return INVALID("window_size must be <= %d, got %" PRId64, MAX_WINDOW, st->window);
  return NULL;
}

static shoal_status init_spectrogram(struct kernel_init *ki, void *state) {
  struct spectrogram_state *st = state;
  TRY(node_get_int(ki->node, "window_size", &st->window));
  TRY(node_get_int(ki->node, "stride", &st->stride));
  TRY(node_get_bool(ki->node, "magnitude_squared", &st->squared));
  return check_spectrogram(st);
}

static int64_t power_of_two(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

static int64_t frames_of(const struct spectrogram_state *st, int64_t samples) {
  return samples < st->window ? 0 : 1 + (samples - st->window) / st->stride;
}

struct windows {
  const struct spectrogram_state *st;
  const struct tensor *sound;
  const double *hann; /* [window] */
  struct fft_plan plan;
  c128 *x, *scratch;
};

static void one_frame(struct windows *w, int64_t channel, int64_t frame, float *out) {
  const float *in = w->sound->data;
  int64_t channels = w->sound->dims[1], first = frame * w->st->stride;
  for (int64_t i = 0; i < w->plan.n; i++)
    w->x[i] = i < w->st->window ? w->hann[i] * (double)in[(first + i) * channels + channel] : 0;
  fft_run(&w->plan, w->x, false, w->scratch);
  for (int64_t k = 0; k <= w->plan.n / 2; k++) {
    double re = __real__ w->x[k], im = __imag__ w->x[k];
    float power = (float)(re * re + im * im);
    out[k] = w->st->squared ? power : sqrtf(power);
  }
}

static shoal_status run_spectrogram(struct kernel_ctx *ctx) {
  const struct spectrogram_state *st = ctx->state;
  const struct tensor *sound = ctx_in(ctx, 0);
  if (sound->rank != 2) return INVALID("input must be 2-dimensional%s", tensor_shape_str(sound));
  struct windows w = {.st = st, .sound = sound};
  int64_t length = power_of_two(st->window), frames = frames_of(st, sound->dims[0]), width = 1 + length / 2;
  struct tensor *out, memory;
  TRY(ctx_out_dims(ctx, 0, 3, (int64_t[]){sound->dims[1], frames, width}, &out));
  TRY(fft_plan_init(&w.plan, length));
  struct shape room = shape_vector(length + fft_scratch(&w.plan) + st->window);
  shoal_status s = ctx_temp(ctx, SHOAL_COMPLEX128, &room, &memory);
  if (!s) {
    w.x = memory.data;
    w.scratch = w.x + length;
    double *hann = (double *)(w.scratch + fft_scratch(&w.plan));
    for (int64_t i = 0; i < st->window; i++) hann[i] = 0.5 - 0.5 * cos(2 * M_PI * (double)i / (double)st->window);
    w.hann = hann;
    for (int64_t c = 0; c < sound->dims[1]; c++)
      for (int64_t f = 0; f < frames; f++) one_frame(&w, c, f, T_DATA(out, float) + (c * frames + f) * width);
    tensor_release(&memory);
  }
  fft_plan_release(&w.plan);
  return s;
}

static shoal_status shape_spectrogram(struct shape_ctx *c) {
  struct spectrogram_state st;
  struct shape in;
  TRY(shape_in_rank(c, 0, 2, &in));
  TRY(node_get_int(c->node, "window_size", &st.window));
  TRY(node_get_int(c->node, "stride", &st.stride));
  TRY(check_spectrogram(&st));
  int64_t frames = in.dims[0] < 0 ? -1 : frames_of(&st, in.dims[0]);
  c->out[0] = (struct shape){.rank = 3, .dims = {in.dims[1], frames, 1 + power_of_two(st.window) / 2}};
  return NULL;
}

/* ---- Mfcc ---- */

struct mfcc_state {
  float upper, lower;
  int64_t bands, coefficients;
};

enum { MAX_TABLE = 1 << 24 };

static shoal_status init_mfcc(struct kernel_init *ki, void *state) {
  struct mfcc_state *st = state;
  TRY(node_get_float(ki->node, "upper_frequency_limit", &st->upper));
  TRY(node_get_float(ki->node, "lower_frequency_limit", &st->lower));
  TRY(node_get_int(ki->node, "filterbank_channel_count", &st->bands));
  return node_get_int(ki->node, "dct_coefficient_count", &st->coefficients);
}

static double mel(double hertz) { return 1127.0 * log1p(hertz / 700.0); }

/* Bin i gives weight[i] of itself to band band[i], and the rest to the next. */
struct filters {
  int64_t bins, first, last;
  double *weight;  /* [bins] */
  double *band;    /* [bins] a whole number; -1: below the first band's middle */
  double *middles; /* [bands + 1] */
  double *cosines; /* [coefficients, bands] */
  double *sums;    /* [bands] */
};

static void filters_fill(struct filters *f, const struct mfcc_state *st, double rate) {
  double low = mel(st->lower), spacing = (mel(st->upper) - low) / (double)(st->bands + 1);
  double per_bin = 0.5 * rate / (double)(f->bins - 1), last = (double)st->upper / per_bin;
  for (int64_t i = 0; i <= st->bands; i++) f->middles[i] = low + spacing * (double)(i + 1);
  f->first = (int64_t)fmin(1.5 + (double)st->lower / per_bin, (double)f->bins);
  f->last = last >= (double)f->bins ? f->bins : (int64_t)last;
  int64_t band = 0;
  for (int64_t i = f->first; i <= f->last && i < f->bins; i++) {
    double at = mel((double)i * per_bin);
    while (band < st->bands && f->middles[band] < at) band++;
    double left = band > 0 ? f->middles[band - 1] : low;
    f->band[i] = (double)(band - 1);
    f->weight[i] = (f->middles[band] - at) / (f->middles[band] - left);
  }
  double scale = sqrt(2.0 / (double)st->bands), step = M_PI / (double)st->bands;
  for (int64_t i = 0; i < st->coefficients; i++)
    for (int64_t j = 0; j < st->bands; j++)
      f->cosines[i * st->bands + j] = scale * cos((double)i * step * ((double)j + 0.5));
}

static void mfcc_frame(const struct filters *f, const struct mfcc_state *st, const float *power, float *out) {
  /* A spectrogram that ends below the upper limit has no filters in TensorFlow, and zeros come out. */
  bool none = f->last >= f->bins;
  memset(f->sums, 0, (size_t)st->bands * sizeof *f->sums);
  for (int64_t i = f->first; !none && i <= f->last; i++) {
    double v = sqrt((double)power[i]), part = v * f->weight[i];
    int64_t band = (int64_t)f->band[i];
    if (band >= 0) f->sums[band] += part;
    if (band + 1 < st->bands) f->sums[band + 1] += v - part;
  }
  for (int64_t j = 0; j < st->bands; j++) f->sums[j] = log(f->sums[j] < 1e-12 ? 1e-12 : f->sums[j]);
  for (int64_t i = 0; i < st->coefficients; i++) {
    double sum = 0;
    for (int64_t j = 0; j < st->bands; j++) sum += f->cosines[i * st->bands + j] * f->sums[j];
    out[i] = none ? 0 : (float)sum;
  }
}

static shoal_status check_mfcc(const struct mfcc_state *st, int64_t bins, int64_t rate) {
  int64_t table;
  if (st->bands < 1 || rate <= 0 || bins < 2 || !(st->lower >= 0) || !(st->upper > st->lower) || st->coefficients < 1 ||
      st->coefficients > st->bands)
    return INVALID("Mfcc initialization failed for channel count %" PRId64 ", sample rate %" PRId64
                   " and filterbank_channel_count %" PRId64,
                   bins, rate, st->bands);
  if (mul_overflows(st->bands, st->coefficients, &table) || table > MAX_TABLE || st->bands > MAX_TABLE)
    return STATUS(SHOAL_RESOURCE_EXHAUSTED, "Mfcc with %" PRId64 " channels and %" PRId64 " coefficients is too large",
                  st->bands, st->coefficients);
  return NULL;
}

static shoal_status run_mfcc(struct kernel_ctx *ctx) {
  const struct mfcc_state *st = ctx->state;
  const struct tensor *in = ctx_in(ctx, 0), *rate = ctx_in(ctx, 1);
  if (in->rank != 3) return INVALID("spectrogram must be 3-dimensional%s", tensor_shape_str(in));
  if (rate->rank)
    return INVALID("Input sample_rate should be a scalar tensor, got %s instead.", tensor_shape_str(rate));
  struct filters f = {.bins = in->dims[2]};
  TRY(check_mfcc(st, f.bins, int_at(rate, 0)));
  struct tensor *out, memory;
  TRY(ctx_out_dims(ctx, 0, 3, (int64_t[]){in->dims[0], in->dims[1], st->coefficients}, &out));
  struct shape room = shape_vector(2 * f.bins + 2 * st->bands + 1 + st->bands * st->coefficients);
  TRY(ctx_temp(ctx, SHOAL_FLOAT64, &room, &memory));
  f.weight = memory.data;
  f.band = f.weight + f.bins;
  f.middles = f.band + f.bins;
  f.sums = f.middles + st->bands + 1;
  f.cosines = f.sums + st->bands;
  filters_fill(&f, st, (double)int_at(rate, 0));
  int64_t frames = in->dims[0] * in->dims[1];
  for (int64_t i = 0; i < frames; i++)
    mfcc_frame(&f, st, T_DATA(in, const float) + i * f.bins, T_DATA(out, float) + i * st->coefficients);
  tensor_release(&memory);
  return NULL;
}

static shoal_status shape_mfcc(struct shape_ctx *c) {
  struct shape in, rate;
  int64_t coefficients;
  TRY(shape_in_rank(c, 0, 3, &in));
  TRY(shape_in_rank(c, 1, 0, &rate));
  TRY(node_get_int(c->node, "dct_coefficient_count", &coefficients));
  c->out[0] = (struct shape){.rank = 3, .dims = {in.dims[0], in.dims[1], coefficients < 1 ? -1 : coefficients}};
  return NULL;
}

static const struct op_row rows[] = {
    {.name = "AudioSpectrogram",
     .in = "input: float",
     .out = "spectrogram: float",
     .attrs = "window_size: int; stride: int; magnitude_squared: bool = false",
     .flags = OP_NO_GRADIENT,
     .shape = shape_spectrogram,
     .kernels = (const struct kernel_def[]){{.device = "CPU",
                                             .state_size = sizeof(struct spectrogram_state),
                                             .init = init_spectrogram,
                                             .run = run_spectrogram},
                                            {0}}},
    {.name = "Mfcc",
     .in = "spectrogram: float, sample_rate: int32",
     .out = "output: float",
     .attrs = "upper_frequency_limit: float = 4000; lower_frequency_limit: float = 20; filterbank_channel_count: int = "
              "40; dct_coefficient_count: int = 13",
     .flags = OP_NO_GRADIENT,
     .shape = shape_mfcc,
     .kernels =
         (const struct kernel_def[]){
             {.device = "CPU", .state_size = sizeof(struct mfcc_state), .init = init_mfcc, .run = run_mfcc}, {0}}},
};
OP_FAMILY(audio_features, rows);
