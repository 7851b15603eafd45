#include "word2vec/train.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stop.h"
#include "word2vec/crew.h"
#include "word2vec/train_internal.h"
#include "word2vec/vectors.h"

enum { COUNT_EVERY = 10000 /* words */, TELL_EVERY = 100 * 1000 * 1000 /* ns */ };

static int workers_of(const struct training_options *o) { return MAX(o->workers, 1); }

/* ---- the text as numbers ---- */

/* The chunk's words that have vectors; NULL when there is no memory. */
static struct numbers *look_up(const struct word_vocabulary *v, struct corpus_chunk *c) {
  const char *word;
  size_t n;
  struct numbers *list =
      mem_try_alloc(sizeof *list + (c->end - c->at + 1) * sizeof *list->at); /* a word takes a byte */
  if (!list) return NULL;
  list->n = 0;
  while (corpus_next(c, &word, &n)) {
    int64_t id = words_find(&v->words, word, n);
    if (id >= 0) list->at[list->n++] = (uint32_t)id;
  }
  return list;
}

/* Keeps a chunk for the passes to come, if there is room and nobody has kept it; then it is not the caller's. */
static bool keep(struct word_training *t, int64_t chunk, struct numbers **list) {
  size_t bytes = sizeof **list + (*list)->n * sizeof *(*list)->at;
  struct numbers *none = NULL, *fitted;
  if (atomic_fetch_sub(&t->room, (long long)bytes) >= (long long)bytes && (fitted = mem_try_realloc(*list, bytes, 1))) {
    *list = fitted;
    if (atomic_compare_exchange_strong(&t->kept[chunk], &none, fitted)) return true;
  }
  atomic_fetch_add(&t->room, (long long)bytes);
  return false;
}

/* *mine: the caller frees it. */
static shoal_status numbers_of(struct trainer *w, int64_t chunk, struct numbers **out, bool *mine) {
  struct word_training *t = w->t;
  *mine = false;
  if ((*out = atomic_load(&t->kept[chunk]))) return NULL;
  TRY(corpus_read(t->corpus, chunk, &w->chunk));
  if (!(*out = look_up(t->vocabulary, &w->chunk))) return NO_MEMORY(t->corpus->chunk_bytes, "a chunk of text");
  *mine = !keep(t, chunk, out);
  return NULL;
}

/* ---- sentences ---- */

/* Fills the trainer's sentence, from `at` on; returns where the next one begins. */
static size_t take_sentence(struct trainer *w, const struct numbers *list, size_t at) {
  const uint32_t *pass = w->t->sampling.pass;
  size_t from = at;
  for (w->n = 0; at < list->n && w->n < SENTENCE; at++) {
    uint32_t id = list->at[at];
    if (!id) { /* the end of a line */
      at++;
      break;
    }
    if (pass[id] == UINT32_MAX || chance(&w->state) <= pass[id]) w->sentence[w->n++] = id;
  }
  w->words += (int64_t)(at - from);
  return at;
}

/* How much of the work is done, by the words in the text; the rate is what is left. */
static double done(const struct trainer *w) {
  const struct word_training *t = w->t;
  double words = (double)(atomic_load_explicit(&t->words, memory_order_relaxed) + w->words);
  double all = (double)t->o->passes * (double)t->vocabulary->total / workers_of(t->o);
  return MIN(words / (all + 1), 1.0);
}

static void tell(struct trainer *w, bool last) {
  struct word_training *t = w->t;
  int64_t now = clock_ns();
  if (!last && now - w->told < TELL_EVERY) return;
  w->told = now;
  struct training_progress p = {.part = done(w), .rate = (double)w->rate, .words = atomic_load(&t->words)};
  p.seconds = (double)(now - t->began) / 1e9;
  t->o->tell(t->o->arg, &p);
}

static void count(struct trainer *w) {
  atomic_fetch_add_explicit(&w->t->words, w->words, memory_order_relaxed);
  w->words = 0;
}

static void train_numbers(struct trainer *w, const struct numbers *list) {
  for (size_t at = 0; at < list->n && !stop_told();) {
    at = take_sentence(w, list, at);
    w->rate = (float)(w->t->o->rate * MAX(1 - done(w), 1e-4));
    if (w->n > 1 && w->t->o->negative) trainer_draw(w);
    for (int i = 0; i < w->n; i++) trainer_step(w, i);
    if (w->words >= COUNT_EVERY) count(w);
  }
}

/* ---- threads ---- */

static shoal_status train_chunks(struct trainer *w, bool tells) {
  struct word_training *t = w->t;
  for (int64_t i; (i = atomic_fetch_add(&t->next, 1)) < t->until;) {
    struct numbers *list;
    bool mine;
    int64_t chunk = i % t->chunks * workers_of(t->o) + t->o->worker, pass = i / t->chunks;
    TRY(numbers_of(w, chunk, &list, &mine));
    w->state = (t->o->seed + (uint64_t)(pass * t->corpus->chunks + chunk) + 1) * 0x9e3779b97f4a7c15u;
    train_numbers(w, list);
    if (mine) free(list);
    count(w);
    if (stop_told()) return STATUS(SHOAL_CANCELLED, "told to stop after %.1f%% of the training", 100 * done(w));
    if (tells && t->o->tell) tell(w, i + 1 == t->until);
  }
  return NULL;
}

static size_t longest_way(const struct word_training *t) {
  size_t most = 0;
  for (size_t i = 0; t->o->hs && i < t->vocabulary->words.n; i++)
    most = MAX(most, t->tree.first[i + 1] - t->tree.first[i]);
  return most;
}

static shoal_status train_thread(void *arg, int number) {
  struct word_training *t = arg;
  struct trainer *w;
  size_t size = (sizeof *w + 63) / 64 * 64, most = MAX(longest_way(t), (size_t)t->o->negative + 1);
  if (!(w = aligned_alloc(64, size))) return NO_MEMORY(size, "a thread that trains");
  memset(w, 0, size);
  w->t = t;
  w->y = mem_zalloc(most, sizeof *w->y);
  w->label = mem_zalloc(most, sizeof *w->label);
  shoal_status s = rows_new(1, t->model->width, &w->hidden);
  if (!s) s = rows_new(1, t->model->width, &w->before);
  if (!s) s = train_chunks(w, !number);
  corpus_chunk_release(&w->chunk);
  free(w->y);
  free(w->label);
  free(w->hidden);
  free(w->before);
  free(w);
  return s;
}

shoal_status training_options_check(const struct training_options *o) {
  if (!o->width || o->width > 1 << 20) return INVALID("-size must be between 1 and %d", 1 << 20);
  if (o->window < 1 || o->window > TRAIN_MOST_WINDOW) return INVALID("-window must be 1 to %d", TRAIN_MOST_WINDOW);
  if (o->negative < 0 || o->negative > TRAIN_MOST_NEGATIVE)
    return INVALID("-negative must be 0 to %d", TRAIN_MOST_NEGATIVE);
  if (!o->negative && !o->hs) return INVALID("-negative 0 needs -hs 1: there is nothing to train by");
  if (o->passes < 1 || o->threads < 1) return INVALID("-iter and -threads must be 1 or more");
  if (!(o->rate > 0) || !isfinite(o->rate)) return INVALID("-alpha must be above 0");
  if (o->worker < 0 || o->worker >= workers_of(o)) return INVALID("there is no worker %d", o->worker);
  if (!(o->sample >= 0) || !isfinite(o->sample)) return INVALID("-sample must be 0 or more");
  return NULL;
}

/* What is allowed, less the model's. */
static long long room_for_text(const struct word_training *t) {
  const struct word_model *m = t->model;
  size_t rows = m->stride * sizeof(float) * t->vocabulary->words.n * (size_t)(1 + !!m->out + !!m->nodes);
  return t->o->memory > rows ? (long long)(t->o->memory - rows) : 0;
}

/* Vectors that nobody could read are no result. */
static shoal_status check_finite(const struct word_model *m, size_t words) {
  for (size_t i = 0; i < words * m->stride; i++)
    if (!isfinite(m->in[i]))
      return STATUS(SHOAL_FAILED_PRECONDITION,
                    "the vectors became infinite while they were trained: a smaller -alpha may help");
  return NULL;
}

/* Hosts take chunks in turn, and meet after the same share of their own. */
static shoal_status train_rounds(struct word_training *t, struct word_model *m, shoal_status begun) {
  const struct training_options *o = t->o;
  int64_t all = t->chunks * o->passes, rounds = o->meet ? o->passes * MAX(o->meetings, 1) : 1;
  size_t words = t->vocabulary->words.n;
  shoal_status s = o->meet ? o->meet(o->meet_arg, m, words, begun) : begun;
  for (int64_t i = 0; !s && i < rounds; i++) {
    atomic_store(&t->next, all * i / rounds);
    t->until = all * (i + 1) / rounds;
    s = crew_run(o->threads, train_thread, t);
    if (o->meet) s = o->meet(o->meet_arg, m, words, s);
  }
  return s ? s : check_finite(m, words);
}

static shoal_status begin(struct word_training *t, struct word_model *m) {
  const struct training_options *o = t->o;
  int64_t chunks = t->corpus->chunks;
  TRY(training_options_check(o));
  t->chunks = (chunks - o->worker + workers_of(o) - 1) / workers_of(o);
  if (t->chunks < 1) return INVALID("the text is too small for %d workers: %" PRId64 " will do", o->workers, chunks);
  TRY(model_new(m, t->vocabulary, o));
  sampling_init(&t->sampling, t->vocabulary, o->sample);
  if (o->hs) tree_init(&t->tree, t->vocabulary);
  t->kept = mem_zalloc((size_t)chunks, sizeof *t->kept);
  atomic_init(&t->room, room_for_text(t));
  t->began = clock_ns();
  return NULL;
}

static void release(struct word_training *t) {
  for (int64_t i = 0; t->kept && i < t->corpus->chunks; i++) free(atomic_load(&t->kept[i]));
  free(t->kept);
  sampling_release(&t->sampling);
  tree_release(&t->tree);
}

shoal_status word2vec_train(struct word_model *m, const struct corpus *c, const struct word_vocabulary *v,
                            const struct training_options *o) {
  struct word_training t = {.o = o, .corpus = c, .vocabulary = v, .model = m, .kernel = block_kernel()};
  *m = (struct word_model){0};
  shoal_status s = train_rounds(&t, m, begin(&t, m));
  release(&t);
  if (s) model_release(m);
  return s;
}
