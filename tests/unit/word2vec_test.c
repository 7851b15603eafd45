/* word2vec: words and their counts, texts cut into chunks, kernels of every instruction set, training on a text whose
 * answer is known, files of vectors and every way in which one can be wrong. */
#include "folder.h"

#include <math.h>

#include "base/stop.h"
#include "base/text.h"
#include "checkpoint/bundle.h"
#include "word2vec/block.h"
#include "word2vec/classes.h"
#include "word2vec/phrases.h"
#include "word2vec/projector.h"
#include "word2vec/sampling.h"
#include "word2vec/train.h"
#include "word2vec/tree.h"
#include "word2vec/vectors.h"

static char *put(const char *name, const char *data, size_t n) {
  char *path = in_dir(name);
  ASSERT_OK(file_write(path, data, n));
  return path;
}

static void open_text(struct corpus *c, const char *data, size_t n) {
  char *path = put("text", data, n);
  ASSERT_OK(corpus_open(c, &path, 1));
  free(path);
}

/* ---- words ---- */

static void words_are_counted_dropped_and_sorted(void **state) {
  struct words w = {0};
  char name[16];
  for (int i = 0; i < 3000; i++) {
    snprintf(name, sizeof name, "w%d", i);
    for (int k = 0; k <= i % 3; k++) assert_true(words_count(&w, name, strlen(name), 1, 0));
  }
  assert_int_equal(w.n, 3000);
  words_drop_rare(&w, 2);
  assert_int_equal(w.n, 2000);
  assert_int_equal(words_find(&w, "w0", 2), -1);
  words_sort(&w, 0);
  assert_string_equal(word_text(&w, 0), "w1001"); /* three times, and the first by its bytes: 1001 % 3 is 2 */
  assert_int_equal(w.at[words_find(&w, "w2", 2)].count, 3);
  assert_int_equal(w.at[words_find(&w, "w1", 2)].count, 2);
  words_release(&w);
}

static void a_table_keeps_to_its_limit(void **state) {
  struct words w = {0};
  char name[16];
  int i = 0;
  enum { LIMIT = 200000 };
  for (bool more = true; more; i++) {
    snprintf(name, sizeof name, "w%d", i);
    more = words_count(&w, name, strlen(name), 1, LIMIT);
    assert_true(words_memory(&w) <= LIMIT);
  }
  assert_true(i > 500);
  assert_true(words_count(&w, "w0", 2, 1, LIMIT)); /* one that is there needs no room */
  words_release(&w);
}

/* ---- texts ---- */

static void every_word_is_seen_once(void **state) {
  struct text t = {0};
  enum { WORDS = 200000 };
  for (int i = 0; i < WORDS; i++) text_addf(&t, "word%d%s", i, i % 17 ? " " : i % 2 ? "\n" : "\t\r ");
  struct corpus c;
  open_text(&c, t.at, t.n);
  assert_true(c.chunks > 10);
  struct words seen = {0};
  struct corpus_chunk chunk = {0};
  const char *word;
  size_t n;
  for (int64_t i = c.chunks - 1; i >= 0; i--) {
    ASSERT_OK(corpus_read(&c, i, &chunk));
    while (corpus_next(&chunk, &word, &n)) words_count(&seen, word, n, 1, 0);
  }
  assert_int_equal(seen.n, WORDS + 1);
  for (size_t i = 0; i < seen.n; i++)
    if (strcmp(word_text(&seen, i), CORPUS_LINE_END) != 0) assert_int_equal(seen.at[i].count, 1);
  corpus_chunk_release(&chunk);
  words_release(&seen);
  corpus_close(&c);
  text_release(&t);
}

static void long_words_are_cut_before_a_byte_that_goes_on(void **state) {
  struct text t = {0};
  for (int i = 0; i < 98; i++) text_addc(&t, 'a');
  for (int i = 0; i < 3000000; i++) text_adds(&t, "\xe2\x82\xac"); /* the 99th byte is the first of three */
  text_adds(&t, " end\xff");
  struct corpus c;
  struct corpus_chunk chunk = {0};
  struct words seen = {0};
  const char *word;
  size_t n;
  open_text(&c, t.at, t.n);
  for (int64_t i = 0; i < c.chunks; i++) {
    ASSERT_OK(corpus_read(&c, i, &chunk));
    while (corpus_next(&chunk, &word, &n)) words_count(&seen, word, n, 1, 0);
  }
  assert_int_equal(seen.n, 2);
  assert_int_equal(seen.at[0].n, 98);
  assert_string_equal(word_text(&seen, 1), "end\xff");
  corpus_chunk_release(&chunk);
  words_release(&seen);
  corpus_close(&c);
  text_release(&t);
}

static void empty_texts_are_refused(void **state) {
  char *path = put("empty", "", 0);
  struct corpus c;
  ASSERT_FAILS(corpus_open(&c, &path, 1), SHOAL_INVALID_ARGUMENT, "no text");
  free(path);
  path = in_dir("none");
  ASSERT_FAILS(corpus_open(&c, &path, 1), SHOAL_NOT_FOUND, "none");
  free(path);
}

/* ---- vocabularies ---- */

static void fill_text(struct text *t, int kinds, int lines) {
  uint64_t state = 7;
  for (int i = 0; i < lines; i++) {
    for (int k = 0; k < 8; k++) {
      int64_t a = (int64_t)chance_below(&state, (uint32_t)kinds);
      text_addf(t, "w%d ", (int)(a * (int64_t)chance_below(&state, (uint32_t)kinds) / kinds));
    }
    text_addc(t, '\n');
  }
}

static void a_vocabulary_is_the_same_by_any_number_of_threads(void **state) {
  struct text t = {0};
  struct corpus c;
  struct word_vocabulary one, four, read;
  fill_text(&t, 5000, 20000);
  open_text(&c, t.at, t.n);
  ASSERT_OK(vocabulary_count(&one, &c, 3, 1, 1 << 30));
  ASSERT_OK(vocabulary_count(&four, &c, 3, 4, 1 << 30));
  char *path = in_dir("vocabulary");
  ASSERT_OK(vocabulary_save(&one, path));
  ASSERT_OK(vocabulary_read(&read, path, 3));
  assert_string_equal(word_text(&one.words, 0), CORPUS_LINE_END);
  assert_int_equal(one.words.at[0].count, 20000);
  assert_int_equal(one.seen, 180000);
  assert_int_equal(one.words.n, four.words.n);
  assert_int_equal(one.words.n, read.words.n);
  for (size_t i = 0; i < one.words.n; i++) {
    assert_string_equal(word_text(&one.words, i), word_text(&four.words, i));
    assert_string_equal(word_text(&one.words, i), word_text(&read.words, i));
    assert_int_equal(one.words.at[i].count, four.words.at[i].count);
    assert_true(i < 2 || one.words.at[i].count <= one.words.at[i - 1].count);
  }
  free(path);
  vocabulary_release(&one);
  vocabulary_release(&four);
  vocabulary_release(&read);
  corpus_close(&c);
  text_release(&t);
}

static void little_memory_costs_the_rare_words(void **state) {
  struct text t = {0};
  struct corpus c;
  struct word_vocabulary v;
  for (int i = 0; i < 100000; i++) text_addf(&t, "often rare%d ", i);
  open_text(&c, t.at, t.n);
  ASSERT_OK(vocabulary_count(&v, &c, 1, 2, 1 << 20));
  assert_true(v.dropped > 0);
  assert_true(v.words.n < 50000);
  assert_string_equal(word_text(&v.words, 1), "often");
  assert_int_equal(v.words.at[1].count, 100000);
  vocabulary_release(&v);
  ASSERT_FAILS(vocabulary_count(&v, &c, 1000000, 2, 1 << 30), SHOAL_INVALID_ARGUMENT, "lower -min-count");
  corpus_close(&c);
  text_release(&t);
}

static void wrong_vocabularies_are_told_by_their_line(void **state) {
  static const char *const wrong[] = {"a 1\nb\n", "a 1\n 2\n", "a 1\nb x\n", "a 1\nb -2\n", "a 1\na 1\n"};
  struct word_vocabulary v;
  for (size_t i = 0; i < COUNT_OF(wrong); i++) {
    char *path = put("wrong", wrong[i], strlen(wrong[i]));
    ASSERT_FAILS(vocabulary_read(&v, path, 1), SHOAL_INVALID_ARGUMENT, "line 2");
    free(path);
  }
}

/* ---- chance and trees ---- */

static void a_vocabulary_of(struct word_vocabulary *v, const int64_t *counts, size_t n) {
  struct text t = {0};
  for (size_t i = 0; i < n; i++) text_addf(&t, "w%zu %d\n", i, (int)counts[i]);
  char *path = put("counts", t.at, t.n);
  ASSERT_OK(vocabulary_read(v, path, 0));
  free(path);
  text_release(&t);
}

static void words_are_drawn_by_their_counts(void **state) {
  const int64_t counts[] = {10000, 625, 16, 1};
  struct word_vocabulary v;
  struct word_sampling s;
  enum { DRAWS = 2000000 };
  int drawn[5] = {0};
  uint64_t chance_state = 3;
  a_vocabulary_of(&v, counts, 4);
  sampling_init(&s, &v, 1e-3);
  for (int i = 0; i < DRAWS; i++) drawn[sampling_draw(&s, &chance_state)]++;
  const double share[] = {0, 1000, 125, 8, 1}; /* to the power of 3/4; "</s>" is never there */
  for (int i = 0; i < 5; i++) {
    double want = DRAWS * share[i] / 1134;
    assert_true(fabs(drawn[i] - want) <= 5 * sqrt(want));
  }
  double often = 1e-3 * (double)v.total, p = (sqrt(10000 / often) + 1) * often / 10000;
  assert_true(fabs(s.pass[1] / 4294967295.0 - p) < 1e-6);
  assert_int_equal(s.pass[4], UINT32_MAX);
  sampling_release(&s);
  vocabulary_release(&v);
}

static void frequent_words_have_short_ways(void **state) {
  const int64_t counts[] = {40, 30, 20, 10};
  struct word_vocabulary v;
  struct word_tree t;
  a_vocabulary_of(&v, counts, 4);
  tree_init(&t, &v); /* "</s>" is never there: it shares the deepest node */
  const size_t lengths[] = {4, 1, 2, 3, 4};
  for (size_t i = 0; i < 5; i++) {
    assert_int_equal(t.first[i + 1] - t.first[i], lengths[i]);
    assert_int_equal(t.steps[t.first[i]].node, 3); /* the root */
  }
  tree_release(&t);
  vocabulary_release(&v);
}

/* ---- kernels ---- */

enum { MOST_ROWS = BLOCK_X + BLOCK_Y, MOST_STRIDE = 48 };
static _Alignas(64) float rows[MOST_ROWS][MOST_STRIDE];
static double want[MOST_ROWS][MOST_STRIDE];

static void fill_rows(size_t stride) {
  uint64_t s = 11;
  for (int i = 0; i < MOST_ROWS; i++)
    for (size_t j = 0; j < stride; j++) want[i][j] = rows[i][j] = (float)chance(&s) / 4294967296.0f - 0.5f;
}

static double product(const double *a, const double *b, size_t n) {
  double f = 0;
  for (size_t j = 0; j < n; j++) f += a[j] * b[j];
  return f;
}

/* Rows y of a later tile meet x as those before have left it; g is of the rows as they were. */
static void step_by_hand(int n_x, int n_y, size_t stride, const float *label, double rate) {
  static double old[MOST_ROWS][MOST_STRIDE], before[BLOCK_X][MOST_STRIDE];
  memcpy(old, want, sizeof old);
  for (int k = 0; k < n_y; k++) {
    if (k % BLOCK_TILE == 0) memcpy(before, want, sizeof before);
    for (int i = 0; i < n_x; i++) {
      double g = rate * ((double)label[k] - 1 / (1 + exp(-product(old[i], old[BLOCK_X + k], stride))));
      for (size_t j = 0; j < stride; j++) {
        want[i][j] += g * old[BLOCK_X + k][j];
        want[BLOCK_X + k][j] += g * before[i][j];
      }
    }
  }
}

static double worst(size_t stride) {
  double most = 0;
  for (int i = 0; i < MOST_ROWS; i++)
    for (size_t j = 0; j < stride; j++) {
      double off = fabs(want[i][j] - (double)rows[i][j]);
      if (!(off <= most)) most = off; /* what is no number is the worst */
    }
  return most;
}

static void try_kernel(const struct block_kernel *k, struct block_room *room) {
  float *x[BLOCK_X], *y[BLOCK_Y], label[BLOCK_Y];
  for (int i = 0; i < BLOCK_X; i++) x[i] = rows[i];
  for (int i = 0; i < BLOCK_Y; i++) y[i] = rows[BLOCK_X + i], label[i] = i % 3 == 0;
  for (int n_x = 1; n_x <= BLOCK_X; n_x += n_x < 8 ? 1 : 6)
    for (int n_y = 1; n_y <= BLOCK_Y; n_y += n_y < 14 ? 1 : 6)
      for (size_t stride = 16; stride <= MOST_STRIDE; stride += 16) {
        struct pair_block b = {x, y, label, n_x, n_y};
        fill_rows(stride);
        step_by_hand(n_x, n_y, stride, label, 0.01);
        k->step(&b, stride, 0.01f, room);
        if (worst(stride) > 2e-6) print_error("%s: %d x %d: %g\n", k->name, n_x, n_y, worst(stride));
        assert_true(worst(stride) <= 2e-6);
      }
}

static void kernels_do_what_is_done_by_hand(void **state) {
  struct block_room *room = aligned_alloc(64, sizeof *room);
  memset(room, 0, sizeof *room);
  int tried = 0;
  for (int i = 0; i < n_block_kernels; i++)
    if (!block_kernels[i].has || block_kernels[i].has()) {
      print_message("# word2vec kernel %s\n", block_kernels[i].name);
      try_kernel(&block_kernels[i], room);
      tried++;
    }
  assert_true(tried > 0);
  free(room);
}

static void means_are_spread_again(void **state) {
  float *x[3] = {rows[0], rows[5], rows[9]};
  _Alignas(64) float to[MOST_STRIDE], after[MOST_STRIDE];
  for (int i = 0; i < n_block_kernels; i++) {
    const struct block_kernel *k = &block_kernels[i];
    if (k->has && !k->has()) continue;
    fill_rows(MOST_STRIDE);
    k->mean(x, 3, MOST_STRIDE, to);
    for (int j = 0; j < MOST_STRIDE; j++) {
      assert_true(fabs((double)to[j] - (want[0][j] + want[5][j] + want[9][j]) / 3) < 1e-6);
      after[j] = to[j] + (float)j;
    }
    k->spread(x, 3, MOST_STRIDE, to, after);
    for (int j = 0; j < MOST_STRIDE; j++) assert_true(fabs((double)rows[5][j] - want[5][j] - j) < 1e-5);
  }
}

/* ---- training ---- */

/* Two subjects that never meet in a line. */
static void fill_subjects(struct text *t, int lines) {
  static const char *const words[2][4] = {{"sun", "moon", "star", "sky"}, {"bread", "milk", "salt", "wine"}};
  uint64_t state = 5;
  for (int i = 0; i < lines; i++) {
    for (int k = 0; k < 8; k++) text_addf(t, "%s ", words[i % 2][chance_below(&state, 4)]);
    text_addc(t, '\n');
  }
}

static const struct training_options usual = {
    .width = 20, .window = 3, .negative = 4, .rate = 0.05, .passes = 10, .threads = 1, .seed = 1, .memory = 1 << 26};

struct trained {
  struct corpus c;
  struct word_vocabulary v;
  struct word_model m;
};

static shoal_status train_text(struct trained *t, const char *text, size_t n, const struct training_options *o) {
  open_text(&t->c, text, n);
  ASSERT_OK(vocabulary_count(&t->v, &t->c, 1, o->threads > 0 ? o->threads : 1, 1 << 28));
  return word2vec_train(&t->m, &t->c, &t->v, o);
}

static void trained_release(struct trained *t) {
  model_release(&t->m);
  vocabulary_release(&t->v);
  corpus_close(&t->c);
}

static double cosine(const struct trained *t, const char *a, const char *b) {
  const float *x = t->m.in + (size_t)words_find(&t->v.words, a, strlen(a)) * t->m.stride;
  const float *y = t->m.in + (size_t)words_find(&t->v.words, b, strlen(b)) * t->m.stride;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < t->m.stride; i++) {
    xy += (double)x[i] * (double)y[i];
    xx += (double)x[i] * (double)x[i];
    yy += (double)y[i] * (double)y[i];
  }
  return xy / sqrt(xx * yy);
}

static void every_variant_tells_subjects_apart(void **state) {
  struct text text = {0};
  fill_subjects(&text, 2000);
  for (int variant = 0; variant < 12; variant++) {
    struct training_options o = usual;
    struct trained t;
    o.cbow = variant & 1;
    o.hs = variant % 3 != 0;
    o.negative = variant % 3 == 1 ? 0 : 4;
    o.threads = variant < 6 ? 1 : 3;
    ASSERT_OK(train_text(&t, text.at, text.n, &o));
    double near = cosine(&t, "sun", "moon"), far = cosine(&t, "sun", "bread");
    if (near < far + 0.3) print_error("variant %d: %g and %g\n", variant, near, far);
    assert_true(near > far + 0.3);
    assert_true(cosine(&t, "milk", "wine") > cosine(&t, "milk", "star") + 0.3);
    trained_release(&t);
  }
  text_release(&text);
}

static void one_thread_gives_the_same_bits(void **state) {
  struct text text = {0};
  fill_subjects(&text, 3000);
  struct trained a, b;
  struct training_options o = usual;
  ASSERT_OK(train_text(&a, text.at, text.n, &o));
  o.memory = 0; /* nothing of the text is kept from pass to pass: it is read again */
  ASSERT_OK(train_text(&b, text.at, text.n, &o));
  assert_memory_equal(a.m.in, b.m.in, a.v.words.n * a.m.stride * sizeof(float));
  trained_release(&b);
  o.seed = 2;
  ASSERT_OK(train_text(&b, text.at, text.n, &o));
  assert_memory_not_equal(a.m.in, b.m.in, a.v.words.n * a.m.stride * sizeof(float));
  trained_release(&a);
  trained_release(&b);
  text_release(&text);
}

static shoal_status count_meetings(void *arg, struct word_model *m, size_t words, shoal_status mine) {
  ++*(int *)arg;
  return mine;
}

/* Rows around a few directions, more words than a thread takes at once. */
static void words_of_a_direction_are_one_class(void **state) {
  enum { WORDS = 3000, WIDTH = 20, DIRECTIONS = 5 };
  float *at;
  int32_t *by_one = mem_zalloc(WORDS, sizeof *by_one), *by_four = mem_zalloc(WORDS, sizeof *by_four);
  uint64_t chances = 7;
  ASSERT_OK(rows_new(WORDS, WIDTH, &at));
  for (size_t i = 0; i < WORDS; i++) {
    float *row = at + i * rows_stride(WIDTH);
    for (size_t j = 0; j < WIDTH; j++) row[j] = (float)(chance(&chances) >> 8) / 16777216.0f * 0.2f;
    row[i / 7 % DIRECTIONS * 4] += 1 + (float)(i % 3);
  }
  ASSERT_OK(classes_find(at, WORDS, WIDTH, 40, 1, by_one));
  ASSERT_OK(classes_find(at, WORDS, WIDTH, 40, 4, by_four));
  assert_memory_equal(by_one, by_four, WORDS * sizeof *by_one);
  int direction_of[40];
  memset(direction_of, -1, sizeof direction_of);
  for (int i = 0; i < WORDS; i++) {
    assert_in_range(by_one[i], 0, 39);
    int *of = &direction_of[by_one[i]], direction = i / 7 % DIRECTIONS;
    assert_true(*of < 0 || *of == direction);
    *of = direction;
  }
  ASSERT_OK(classes_find(at, WORDS, WIDTH, 1, 2, by_four));
  for (int i = 0; i < WORDS; i++) assert_int_equal(by_four[i], 0);
  free(at);
  free(by_one);
  free(by_four);
}

static void keep_words(void *arg, const struct training_progress *p) { *(int64_t *)arg = p->words; }

static void hosts_share_the_text(void **state) {
  struct text text = {0};
  fill_subjects(&text, 3000);
  int64_t words = 0;
  for (int worker = 0; worker < 3; worker++) {
    struct training_options o = usual;
    struct trained t;
    int meetings = 0;
    int64_t trained = 0;
    o.worker = worker;
    o.workers = 3;
    o.meetings = 2;
    o.passes = 3;
    o.meet = count_meetings;
    o.meet_arg = &meetings;
    o.tell = keep_words;
    o.arg = &trained;
    ASSERT_OK(train_text(&t, text.at, text.n, &o));
    assert_int_equal(meetings, 1 + 3 * 2);
    assert_true(trained > 0);
    words += trained;
    trained_release(&t);
  }
  assert_int_equal(words, 3 * 3000 * 9); /* eight words, and the end of the line */
  struct training_options o = usual;
  struct trained t;
  o.workers = o.worker = 1;
  ASSERT_FAILS(train_text(&t, text.at, text.n, &o), SHOAL_INVALID_ARGUMENT, "no worker 1");
  trained_release(&t);
  o.workers = 1000;
  o.worker = 999;
  ASSERT_FAILS(train_text(&t, text.at, text.n, &o), SHOAL_INVALID_ARGUMENT, "too small for 1000 workers");
  trained_release(&t);
  text_release(&text);
}

static void odd_texts_train_too(void **state) {
  static const char *const odd[] = {"one", "one one one one one", "\n\n\n x \n", "a b\xff\xfe c\n", "x y"};
  for (size_t i = 0; i < COUNT_OF(odd); i++)
    for (int hs = 0; hs < 2; hs++) {
      struct training_options o = usual;
      struct trained t;
      o.hs = hs;
      o.threads = 3;
      o.window = TRAIN_MOST_WINDOW;
      o.negative = TRAIN_MOST_NEGATIVE;
      ASSERT_OK(train_text(&t, odd[i], strlen(odd[i]), &o));
      for (size_t k = 0; k < t.v.words.n * t.m.stride; k++) assert_true(isfinite(t.m.in[k]));
      trained_release(&t);
    }
}

static void wide_windows_and_many_drawn_train_too(void **state) {
  struct text text = {0};
  fill_subjects(&text, 200);
  for (size_t i = 0; i < text.n; i++)
    if (text.at[i] == '\n') text.at[i] = ' '; /* sentences of a thousand words */
  struct training_options o = usual;
  struct trained t;
  o.window = 100;
  o.negative = 40;
  o.hs = true;
  o.passes = 2;
  ASSERT_OK(train_text(&t, text.at, text.n, &o));
  for (size_t k = 0; k < t.v.words.n * t.m.stride; k++) assert_true(isfinite(t.m.in[k]));
  trained_release(&t);
  text_release(&text);
}

static void what_makes_no_sense_is_refused(void **state) {
  struct trained t = {0};
  struct training_options o = usual;
#define REFUSED(field, value, code, says)                     \
  o = usual;                                                  \
  o.field = value;                                            \
  ASSERT_FAILS(train_text(&t, "a b a b", 7, &o), code, says); \
  trained_release(&t)
  REFUSED(width, 0, SHOAL_INVALID_ARGUMENT, "-size");
  REFUSED(window, 0, SHOAL_INVALID_ARGUMENT, "-window");
  REFUSED(window, 256, SHOAL_INVALID_ARGUMENT, "-window");
  REFUSED(negative, 0, SHOAL_INVALID_ARGUMENT, "-hs 1");
  REFUSED(negative, 1000, SHOAL_INVALID_ARGUMENT, "-negative");
  REFUSED(passes, 0, SHOAL_INVALID_ARGUMENT, "-iter");
  REFUSED(rate, NAN, SHOAL_INVALID_ARGUMENT, "-alpha");
  REFUSED(sample, -1, SHOAL_INVALID_ARGUMENT, "-sample");
  REFUSED(memory, 100, SHOAL_RESOURCE_EXHAUSTED, "--memory");
#undef REFUSED
}

static void too_large_a_model_says_what_would_fit(void **state) {
  struct text text = {0};
  struct trained t;
  struct training_options o = usual;
  for (int i = 0; i < 5000; i++) text_addf(&text, "often x%d x%d ", i % 1000, i);
  o.memory = 500 * 2 * 32 * sizeof(float);
  ASSERT_FAILS(train_text(&t, text.at, text.n, &o), SHOAL_RESOURCE_EXHAUSTED, "-min-count 7 would fit");
  trained_release(&t);
  text_release(&text);
}

/* ---- files of vectors ---- */

static void small_vectors(struct words *w, float **to, size_t width) {
  static const char *const names[] = {"</s>", "one", "gr\xc3\xbcn", "\xff"};
  for (size_t i = 0; i < 4; i++) words_count(w, names[i], strlen(names[i]), 1, 0);
  ASSERT_OK(rows_new(4, width, to));
  for (size_t i = 0; i < 4; i++)
    for (size_t j = 0; j < width; j++) (*to)[i * rows_stride(width) + j] = (float)(i + 1) * 0.25f - (float)j;
}

static void both_formats_come_back(void **state) {
  char *path = in_dir("vectors");
  for (size_t width = 1; width < 40; width += 6)
    for (int binary = 0; binary < 2; binary++) {
      struct words w = {0};
      float *r;
      struct vectors v;
      small_vectors(&w, &r, width);
      ASSERT_OK(vectors_write(&w, r, width, path, binary));
      ASSERT_OK(vectors_read(&v, path, width > 1 ? VECTORS_GUESS : binary ? VECTORS_BINARY : VECTORS_TEXT));
      assert_int_equal(v.words.n, 4);
      assert_int_equal(v.width, width);
      assert_memory_equal(v.rows, r, 4 * v.stride * sizeof *r);
      assert_string_equal(word_text(&v.words, 3), "\xff");
      vectors_release(&v);
      words_release(&w);
      free(r);
    }
  free(path);
}

/* Digits are those of printf, halves and all. */
static void numbers_are_those_of_printf(void **state) {
  enum { WIDTH = 4096 };
  static const float some[] = {0,           -0.0F,   1,        -1,     0.0078125F, 0.0234375F,
                               -0.0078125F, 4.9e-7F, 5.1e-7F,  1e-45F, 999999936,  123456.789F,
                               1e9F,        -3e38F,  INFINITY, -NAN,   0.9999999F, 9.9999995F};
  char *path = in_dir("numbers"), *data;
  struct words w = {0};
  float *r;
  size_t n;
  words_count(&w, "word", 4, 1, 0);
  ASSERT_OK(rows_new(1, WIDTH, &r));
  uint32_t bits = 1;
  for (size_t i = 0; i < WIDTH; i++, bits = bits * 1664525 + 1013904223) {
    if (i < COUNT_OF(some)) r[i] = some[i];
    else if (i % 2) memcpy(&r[i], &bits, sizeof bits);
    else r[i] = ((float)(bits >> 8) - 8388608) / 4194304;
  }
  ASSERT_OK(vectors_write(&w, r, WIDTH, path, false));
  ASSERT_OK(file_read(path, 0, &data, &n));
  const char *at = strchr(data, '\n') + 1 + strlen("word ");
  for (size_t i = 0; i < WIDTH; i++) {
    char expected[64];
    size_t length = (size_t)snprintf(expected, sizeof expected, "%f ", (double)r[i]);
    assert_memory_equal(at, expected, length);
    at += length;
  }
  assert_string_equal(at, "\n");
  free(data);
  free(r);
  free(path);
  words_release(&w);
}

static void files_cut_short_are_told(void **state) {
  char *path = in_dir("vectors"), *data;
  for (int binary = 0; binary < 2; binary++) {
    struct words w = {0};
    float *r;
    size_t n;
    small_vectors(&w, &r, 3);
    ASSERT_OK(vectors_write(&w, r, 3, path, binary));
    ASSERT_OK(file_read(path, 0, &data, &n));
    size_t whole = binary ? n - 1 : n - strlen("00 \n"); /* a number may be shorter; the last newline may be missing */
    for (size_t cut = 0; cut < whole; cut++) {
      struct vectors v;
      char *part = mem_strndup("", 0);
      part = mem_realloc(part, cut + 1, 1);
      memcpy(part, data, cut);
      part[cut] = 0;
      shoal_status s = vectors_parse(&v, part, cut, binary ? VECTORS_BINARY : VECTORS_TEXT, "part");
      if (!s && !binary) vectors_release(&v); /* "-1.750" is as good a number as "-1.750000" */
      else assert_int_equal(shoal_status_code(s), SHOAL_DATA_LOSS);
      shoal_status_free(s);
      free(part);
    }
    free(data);
    words_release(&w);
    free(r);
  }
  free(path);
}

static void wrong_files_are_told(void **state) {
  static const struct {
    const char *data, *says;
  } wrong[] = {{"", "first line"},
               {"2\n", "first line"},
               {"0 5\n", "first line"},
               {"-1 5\n", "first line"},
               {"99999999999999999999 5\n", "first line"},
               {"1000000000000 5\nx 1 2 3 4 5\n", "cut short"},
               {"1 1000000000\nx 1\n", "cut short"},
               {"2 2\na 1 2\na 1 2\n", "second time"},
               {"1 2\na 1 z\n", "no number"},
               {"1 2\na 1 2 3\n", "more numbers"},
               {"2 2\na 1 \nb 1 2 \n", "fewer numbers"},
               {"1 2\na 1 nan\n", "not finite"},
               {"1 2\na 1 1e99\n", "not finite"}};
  for (size_t i = 0; i < COUNT_OF(wrong); i++) {
    struct vectors v;
    ASSERT_FAILS(vectors_parse(&v, wrong[i].data, strlen(wrong[i].data), VECTORS_TEXT, "wrong"), SHOAL_DATA_LOSS,
                 wrong[i].says);
  }
}

static void nearest_words_come_first(void **state) {
  static const char data[] = "5 2\nking 1 1\nqueen 0.9 1.1\nman 1 0\nwoman 0.8 0.2\nzero 0 0\n";
  struct vectors v;
  struct word_neighbor found[5];
  ASSERT_OK(vectors_parse(&v, data, strlen(data), VECTORS_GUESS, "data"));
  vectors_normalize(&v);
  size_t king = 0, three[] = {2, 0, 3};
  assert_int_equal(vectors_near(&v, &king, (float[]){1}, 1, found, 5), 4);
  assert_int_equal(found[0].word, 1);
  assert_int_equal(found[3].word, 4);
  assert_true(found[0].cosine > 0.99f && found[0].cosine < 1.0001f);
  assert_int_equal(vectors_near(&v, three, (float[]){-1, 1, 1}, 3, found, 1), 1);
  assert_int_equal(found[0].word, 1);
  vectors_release(&v);
}

/* ---- what else is written ---- */

static void phrases_are_joined(void **state) {
  struct text t = {0};
  for (int i = 0; i < 300; i++) text_addf(&t, "i%d new york c%d\nare%d new %d </s> york\n", i, i, i, i);
  struct corpus c;
  int64_t joined;
  char *path = in_dir("phrases"), *data;
  size_t n;
  open_text(&c, t.at, t.n);
  struct phrases_options o = {.min_count = 5, .threshold = 2.5, .threads = 2, .memory = 1 << 28};
  ASSERT_OK(phrases_write(&c, &o, path, &joined));
  assert_int_equal(joined, 300);
  ASSERT_OK(file_read(path, 0, &data, &n));
  static const char first[] = "i0 new_york c0\nare0 new 0 </s> york\ni1 new_york c1\n";
  assert_int_equal(strncmp(data, first, strlen(first)), 0);
  free(data);
  free(path);
  corpus_close(&c);
  text_release(&t);
}

static void checkpoints_hold_the_model(void **state) {
  struct text text = {0};
  struct trained t;
  struct bundle b;
  struct tensor in;
  struct training_options o = usual;
  fill_subjects(&text, 100);
  o.hs = true;
  ASSERT_OK(train_text(&t, text.at, text.n, &o));
  char *dir = in_dir("projector"), *prefix = in_dir("projector/model.ckpt"),
       *metadata = in_dir("projector/metadata.tsv");
  ASSERT_OK(projector_save(dir, &t.v, &t.m));
  ASSERT_OK(bundle_open(&b, prefix));
  assert_int_equal(b.items.n, 4);
  ASSERT_OK(bundle_read(&b, "word2vec/embeddings", strlen("word2vec/embeddings"), &in));
  assert_int_equal(in.dims[0], 9);
  assert_int_equal(in.dims[1], 20);
  assert_memory_equal((float *)in.data + 20, t.m.in + t.m.stride, 20 * sizeof(float));
  tensor_release(&in);
  bundle_close(&b);
  char *lines;
  size_t n;
  ASSERT_OK(file_read(metadata, 0, &lines, &n));
  assert_int_equal(strncmp(lines, "</s>\n", 5), 0);
  free(lines);
  free(dir);
  free(prefix);
  free(metadata);
  trained_release(&t);
  text_release(&text);
}

/* The last: the process stays told. */
static void who_is_told_to_stop_trains_no_more(void **state) {
  struct text text = {0};
  struct trained t;
  fill_subjects(&text, 1000);
  open_text(&t.c, text.at, text.n);
  ASSERT_OK(vocabulary_count(&t.v, &t.c, 1, 1, 1 << 28));
  stop_tell();
  ASSERT_FAILS(word2vec_train(&t.m, &t.c, &t.v, &usual), SHOAL_CANCELLED, "told to stop");
  assert_null(t.m.in);
  trained_release(&t);
  text_release(&text);
}

RUN_TESTS_WITHIN(
    make_dir, drop_dir, cmocka_unit_test(words_are_counted_dropped_and_sorted),
    cmocka_unit_test(a_table_keeps_to_its_limit), cmocka_unit_test(every_word_is_seen_once),
    cmocka_unit_test(long_words_are_cut_before_a_byte_that_goes_on), cmocka_unit_test(empty_texts_are_refused),
    cmocka_unit_test(a_vocabulary_is_the_same_by_any_number_of_threads),
    cmocka_unit_test(little_memory_costs_the_rare_words), cmocka_unit_test(wrong_vocabularies_are_told_by_their_line),
    cmocka_unit_test(words_are_drawn_by_their_counts), cmocka_unit_test(frequent_words_have_short_ways),
    cmocka_unit_test(kernels_do_what_is_done_by_hand), cmocka_unit_test(means_are_spread_again),
    cmocka_unit_test(every_variant_tells_subjects_apart), cmocka_unit_test(words_of_a_direction_are_one_class),
    cmocka_unit_test(one_thread_gives_the_same_bits), cmocka_unit_test(hosts_share_the_text),
    cmocka_unit_test(odd_texts_train_too), cmocka_unit_test(wide_windows_and_many_drawn_train_too),
    cmocka_unit_test(what_makes_no_sense_is_refused), cmocka_unit_test(too_large_a_model_says_what_would_fit),
    cmocka_unit_test(both_formats_come_back), cmocka_unit_test(numbers_are_those_of_printf),
    cmocka_unit_test(files_cut_short_are_told), cmocka_unit_test(wrong_files_are_told),
    cmocka_unit_test(nearest_words_come_first), cmocka_unit_test(phrases_are_joined),
    cmocka_unit_test(checkpoints_hold_the_model), cmocka_unit_test(who_is_told_to_stop_trains_no_more))
