/* Skipgram and NegTrain: TensorFlow's own ops for word2vec. It refuses them in graphs of version 19 and later; graphs
 * that say they are older have them still, and so has a graph built here.
 *
 * Skipgram reads a text when its kernel is made, and then gives pairs of near words without end, the same as
 * TensorFlow's: its generator is always seeded with 0. Pairs are made 3000 at a time and ahead, which shows in the
 * counts of words and epochs that come with them. Words of one frequency are in the order of their bytes; TensorFlow's
 * order is its library's.
 *
 * NegTrain takes one step of gradient descent for each pair, against words drawn by frequency, in place. Rows that are
 * not there are refused (TensorFlow would write past its matrix). */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alias.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/words.h"
#include "ops/random/random_fill.h"
#include "ops/state/state.h"

/* ---- Skipgram ---- */

enum { AHEAD = 3000, SENTENCE = 1000, LOOK_EVERY = 1 << 16 };

struct skipgram {
  int64_t batch, window, min_count;
  float subsample;
  struct tensor words, counts; /* "UNK" first */
  struct buffer *text;         /* int32: the text as numbers of words */
  int64_t n_text;

  pthread_mutex_t lock; /* all below */
  struct philox_stream random;
  int32_t epoch;
  int64_t processed;
  int64_t at;                 /* in the text */
  int32_t sentence[SENTENCE]; /* words that were not passed over */
  int64_t center, label, end; /* in it: the word; the next label; where labels end */
  int32_t examples[AHEAD], labels[AHEAD];
  int used; /* of them */
};

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool next_word(const char **at, const char *end, const char **word, size_t *n) {
  while (*at < end && is_space(**at)) ++*at;
  *word = *at;
  while (*at < end && !is_space(**at)) ++*at;
  *n = (size_t)(*at - *word);
  return *n > 0;
}

static shoal_status count_words_of(struct skipgram *s, const char *data, size_t size, struct words *w) {
  const char *at = data, *word;
  for (size_t n; next_word(&at, data + size, &word, &n); s->n_text++)
    if (n > UINT32_MAX || !words_count(w, word, n, 1, 0)) return NO_MEMORY(n, "words");
  return s->n_text <= INT32_MAX ? NULL : INVALID("a text of %" PRId64 " words is too long", s->n_text);
}

/* The vocabulary as the two tensors; what is not in it is UNK. */
static shoal_status make_tensors(struct skipgram *s, const struct words *w) {
  int64_t n = (int64_t)w->n + 1, counted = 0;
  TRY(tensor_new_dims(&s->words, SHOAL_STRING, 1, &n));
  TRY(tensor_new_dims(&s->counts, SHOAL_INT32, 1, &n));
  str_set(T_DATA(&s->words, struct str), "UNK", 3);
  for (size_t i = 0; i < w->n; i++) {
    str_set(T_DATA(&s->words, struct str) + i + 1, word_text(w, i), w->at[i].n);
    T_DATA(&s->counts, int32_t)[i + 1] = (int32_t)w->at[i].count;
    counted += w->at[i].count;
  }
  T_DATA(&s->counts, int32_t)[0] = (int32_t)(s->n_text - counted);
  return NULL;
}

static shoal_status number_text(struct skipgram *s, const char *data, size_t size, const struct words *w) {
  TRY(buffer_new((size_t)s->n_text * sizeof(int32_t), &s->text));
  int32_t *to = s->text->data;
  const char *at = data, *word;
  for (size_t n; next_word(&at, data + size, &word, &n); to++) *to = (int32_t)words_find(w, word, n) + 1;
  return NULL;
}

static shoal_status take_text(struct skipgram *s, const char *path, const char *data, size_t size) {
  struct words w = {0};
  shoal_status e = count_words_of(s, data, size, &w);
  if (!e && s->n_text < s->window * 10)
    e = INVALID("The text file %s contains too little data: %" PRId64 " words", path, s->n_text);
  if (!e) {
    words_drop_rare(&w, s->min_count);
    words_sort(&w, 0);
    e = make_tensors(s, &w);
  }
  if (!e) e = number_text(s, data, size, &w);
  words_release(&w);
  return e;
}

static shoal_status skipgram_init(struct kernel_init *ki, void *state) {
  struct skipgram *s = state;
  const char *path;
  char *data;
  size_t size;
  pthread_mutex_init(&s->lock, NULL);
  TRY(node_get_string(ki->node, "filename", &path));
  TRY(node_get_int(ki->node, "batch_size", &s->batch));
  TRY(node_get_int(ki->node, "window_size", &s->window));
  TRY(node_get_int(ki->node, "min_count", &s->min_count));
  TRY(node_get_float(ki->node, "subsample", &s->subsample));
  if (s->batch < 0 || s->batch > INT32_MAX) return INVALID("batch_size must not be negative, nor 2^31 or more");
  if (s->window < 1 || s->window > INT32_MAX / 16) return INVALID("window_size must be positive, and below 2^27");
  TRY(file_read(path, 0, &data, &size));
  shoal_status e = take_text(s, path, data, size);
  free(data);
  s->random = philox_stream((struct philox){{0}, {0}});
  s->epoch = -1;
  s->at = s->n_text;
  s->center = SENTENCE;
  s->used = AHEAD;
  return e;
}

static void skipgram_release(void *state) {
  struct skipgram *s = state;
  tensor_release(&s->words);
  tensor_release(&s->counts);
  buffer_unref(s->text);
  pthread_mutex_destroy(&s->lock);
}

static bool passed_over(struct skipgram *s, int32_t word) {
  if (!(s->subsample > 0)) return false;
  float count = (float)T_DATA(&s->counts, int32_t)[word], often = s->subsample * (float)s->n_text;
  float keep = (sqrtf(count / often) + 1) * often / count;
  return philox_stream_float(&s->random) > keep;
}

/* Has the step been cancelled, or has it had its time? Kernels run on the thread that would look out for that. */
static shoal_status check_step(const struct step *step) {
  if (step->cancel && cancel_started(step->cancel)) return STATUS(SHOAL_CANCELLED, "the step was cancelled");
  if (clock_ns() < step->deadline) return NULL;
  return STATUS(SHOAL_DEADLINE_EXCEEDED, "Timed out waiting for notification");
}

/* Hardly a word may be left by a small `subsample`: it ends with the step. */
static shoal_status fill_sentence(struct skipgram *s, const struct step *step) {
  const int32_t *text = s->text->data;
  int64_t looked = 0;
  for (int n = 0; n < SENTENCE; s->at++) {
    if (s->at >= s->n_text) {
      s->epoch++;
      s->at = 0;
    }
    if (!passed_over(s, text[s->at])) s->sentence[n++] = text[s->at];
    else if (++looked % LOOK_EVERY == 0) TRY(check_step(step));
  }
  return NULL;
}

static shoal_status next_center(struct skipgram *s, const struct step *step) {
  s->processed++;
  if (++s->center >= SENTENCE) {
    s->center = 0;
    TRY(fill_sentence(s, step));
  }
  int64_t reach = 1 + (int64_t)philox_below32(&s->random, (uint32_t)s->window);
  s->label = MAX((int64_t)0, s->center - reach);
  s->end = MIN((int64_t)SENTENCE, s->center + reach + 1);
  return NULL;
}

static shoal_status make_examples(struct skipgram *s, const struct step *step) {
  for (int i = 0; i < AHEAD; i++) {
    while (s->label >= s->end || s->label == s->center) {
      if (s->label >= s->end) TRY(next_center(s, step));
      else s->label++;
    }
    s->examples[i] = s->sentence[s->center];
    s->labels[i] = s->sentence[s->label++];
  }
  s->used = 0;
  return NULL;
}

/* TensorFlow makes the next ones as soon as the last is taken. */
static shoal_status take_examples(struct skipgram *s, const struct step *step, int32_t *examples, int32_t *labels) {
  if (s->used == AHEAD) TRY(make_examples(s, step)); /* at first, or when the last attempt was cancelled */
  for (int64_t i = 0; i < s->batch; i++) {
    examples[i] = s->examples[s->used];
    labels[i] = s->labels[s->used];
    if (++s->used == AHEAD) TRY(make_examples(s, step));
  }
  return NULL;
}

static shoal_status skipgram_run(struct kernel_ctx *ctx) {
  struct skipgram *s = ctx->state;
  struct tensor *words_per_epoch, *epoch, *processed, *examples, *labels;
  TRY(ctx_out_dims(ctx, 2, 0, NULL, &words_per_epoch));
  TRY(ctx_out_dims(ctx, 3, 0, NULL, &epoch));
  TRY(ctx_out_dims(ctx, 4, 0, NULL, &processed));
  TRY(ctx_out_dims(ctx, 5, 1, &s->batch, &examples));
  TRY(ctx_out_dims(ctx, 6, 1, &s->batch, &labels));
  struct tensor words, counts;
  tensor_ref(&words, &s->words);
  tensor_ref(&counts, &s->counts);
  ctx_set(ctx, 0, &words);
  ctx_set(ctx, 1, &counts);
  pthread_mutex_lock(&s->lock);
  shoal_status e = take_examples(s, ctx->step, examples->data, labels->data);
  *T_DATA(words_per_epoch, int64_t) = s->n_text;
  *T_DATA(epoch, int32_t) = s->epoch;
  *T_DATA(processed, int64_t) = s->processed;
  pthread_mutex_unlock(&s->lock);
  return e;
}

static shoal_status skipgram_shape(struct shape_ctx *c) {
  int64_t batch;
  TRY(node_get_int(c->node, "batch_size", &batch));
  c->out[0] = c->out[1] = shape_vector(-1);
  c->out[2] = c->out[3] = c->out[4] = shape_scalar();
  c->out[5] = c->out[6] = shape_vector(MAX(batch, (int64_t)-1));
  return NULL;
}

/* ---- NegTrain ---- */

struct neg_train {
  struct random_state random; /* first: random_reserve's */
  struct alias *places;       /* [n] */
  int64_t n, samples;
};

static shoal_status neg_train_init(struct kernel_init *ki, void *state) {
  struct neg_train *s = state;
  const struct attr *counts;
  pthread_mutex_init(&s->random.lock, NULL);
  s->random.p = philox_from_seeds(ki->random_seed, ki->random_seed >> 32);
  TRY(node_get_int(ki->node, "num_negative_samples", &s->samples));
  TRY(node_get_list(ki->node, "vocab_count", ATTR_INT, &counts));
  s->n = (int64_t)counts->list.n;
  if (s->n < 1 || s->n > INT32_MAX) return INVALID("vocab_count must not be empty, nor have 2^31 elements");
  s->places = mem_zalloc((size_t)s->n, sizeof *s->places);
  double *weights = mem_zalloc((size_t)s->n, sizeof *weights);
  for (int64_t i = 0; i < s->n; i++) weights[i] = (double)powf((float)MAX(counts->list.at[i].i, (int64_t)0), 0.75f);
  alias_fill(s->places, weights, (uint32_t)s->n);
  free(weights);
  return NULL;
}

static void neg_train_release(void *state) {
  struct neg_train *s = state;
  free(s->places);
  random_state_release(&s->random);
}

static shoal_status check_rows(const struct tensor *t, int64_t n, const char *name) {
  for (int64_t i = 0; i < t->n; i++) {
    int32_t row = T_DATA(t, const int32_t)[i];
    if (row < 0 || row >= n) return INVALID("%s[%" PRId64 "] = %d is not in [0, %" PRId64 ")", name, i, row, n);
  }
  return NULL;
}

static shoal_status neg_train_check(const struct kernel_ctx *ctx, const struct tensor *w_in,
                                    const struct tensor *w_out) {
  const struct neg_train *s = ctx->state;
  const struct tensor *examples = ctx_in(ctx, 2), *labels = ctx_in(ctx, 3);
  if (!w_in->buffer || !w_out->buffer)
    return STATUS(SHOAL_FAILED_PRECONDITION, "Attempting to use uninitialized value");
  if (w_in->rank != 2 || w_in->dtype != SHOAL_FLOAT32) return INVALID("Must be a matrix");
  if (w_out->rank != 2 || w_out->dtype != SHOAL_FLOAT32 || w_in->dims[0] != w_out->dims[0] ||
      w_in->dims[1] != w_out->dims[1])
    return INVALID("w_in.shape == w_out.shape");
  if (examples->rank != 1) return INVALID("Must be a vector");
  if (labels->rank != 1 || labels->n != examples->n) return INVALID("examples.shape == labels.shape");
  if (ctx_in(ctx, 4)->rank != 0) return INVALID("Must be a scalar");
  if (w_in->dims[0] != s->n) return INVALID("vocab_size mismatches: %" PRId64 " vs. %" PRId64, w_in->dims[0], s->n);
  TRY(check_rows(examples, s->n, "examples"));
  return check_rows(labels, s->n, "labels");
}

/* One y: what x is to gain is added to `gain`, y changes at once. */
static void meet(const float *x, float *y, int64_t n, bool there, float rate, float *gain) {
  float dot = 0;
  for (int64_t j = 0; j < n; j++) dot += x[j] * y[j];
  float g = rate * (there ? 1 / (expf(dot) + 1) : -1 / (expf(-dot) + 1));
  for (int64_t j = 0; j < n; j++) {
    gain[j] += g * y[j];
    y[j] += g * x[j];
  }
}

static shoal_status neg_train_pairs(struct kernel_ctx *ctx, float *in, float *out, int64_t n, float *gain) {
  struct neg_train *s = ctx->state;
  const int32_t *examples = ctx_in(ctx, 2)->data, *labels = ctx_in(ctx, 3)->data;
  int64_t pairs = ctx_in(ctx, 2)->n, drawn = 0;
  float rate = *T_DATA(ctx_in(ctx, 4), const float);
  struct philox_stream r = philox_stream(random_reserve(&s->random, (uint64_t)(pairs * MAX(s->samples, 0)) * 2));
  for (int64_t i = 0; i < pairs; i++) {
    float *x = in + examples[i] * n;
    memset(gain, 0, (size_t)n * sizeof *gain);
    meet(x, out + labels[i] * n, n, true, rate, gain);
    for (int64_t k = 0; k < s->samples; k++) {
      uint32_t place = philox_below32(&r, (uint32_t)s->n), chance = philox_u32(&r);
      int32_t word = (int32_t)alias_draw(s->places, place, chance);
      if (word != labels[i]) meet(x, out + word * n, n, false, rate, gain);
      if (++drawn % LOOK_EVERY == 0) TRY(check_step(ctx->step));
    }
    for (int64_t j = 0; j < n; j++) x[j] += gain[j];
  }
  return NULL;
}

static shoal_status neg_train_run(struct kernel_ctx *ctx) {
  struct state_vars vars;
  struct tensor gain = tensor_none();
  TRY(state_vars_get(ctx, 2, NULL, &vars));
  state_vars_lock(&vars);
  struct tensor *in = &vars.v[0]->value, *out = &vars.v[1]->value;
  shoal_status s = neg_train_check(ctx, in, out);
  if (!s) s = state_sparse_access(ctx, 0, vars.v[0]);
  if (!s) s = state_sparse_access(ctx, 1, vars.v[1]);
  if (!s) s = tensor_new_dims(&gain, SHOAL_FLOAT32, 1, &in->dims[1]);
  if (!s) s = neg_train_pairs(ctx, in->data, out->data, in->dims[1], gain.data);
  tensor_release(&gain);
  state_vars_release(&vars);
  return s;
}

static shoal_status shape_none(struct shape_ctx *c) { return NULL; }

/* ---- rows ---- */

static const struct op_row rows[] = {
    {.name = "Skipgram",
     .in = "",
     .out = "vocab_word: string, vocab_freq: int32, words_per_epoch: int64, current_epoch: int32, "
            "total_words_processed: int64, examples: int32, labels: int32",
     .attrs = "filename: string; batch_size: int; window_size: int = 5; min_count: int = 5; subsample: float = 0.001",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = skipgram_shape,
     .kernels = (const struct kernel_def[]){{.device = "CPU",
                                             .flags = KERNEL_EXPENSIVE,
                                             .state_size = sizeof(struct skipgram),
                                             .init = skipgram_init,
                                             .release = skipgram_release,
                                             .run = skipgram_run},
                                            {0}}},
    {.name = "NegTrain",
     .in = "w_in: Ref(float), w_out: Ref(float), examples: int32, labels: int32, lr: float",
     .out = "",
     .attrs = "vocab_count: list(int); num_negative_samples: int",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_none,
     .kernels = (const struct kernel_def[]){{.device = "CPU",
                                             .flags = KERNEL_EXPENSIVE,
                                             .state_size = sizeof(struct neg_train),
                                             .init = neg_train_init,
                                             .release = neg_train_release,
                                             .run = neg_train_run},
                                            {0}}},
};
OP_FAMILY(word2vec, rows);
