/* Datasets that pass their input's elements on: some of them at random, after a while, with a note, or only where the
 * pipeline around is what was promised. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/philox.h"
#include "base/strmap.h"
#include "base/text.h"
#include "base/vec.h"
#include "data/dataset.h"

struct passing_dataset {
  struct dataset head;
  float rate; /* sampling */
  int64_t seed, seed2;
  int64_t micros; /* sleep */
  char *note;     /* options: serialized */
  size_t note_size;
  char **names; /* promises: transformations, [n_names] */
  int n_names;
};

static void pass_free(struct dataset *d) {
  struct passing_dataset *p = (struct passing_dataset *)d;
  free(p->note);
  for (int i = 0; i < p->n_names; i++) free(p->names[i]);
  free(p->names);
}

static struct passing_dataset *pass_new(const struct dataset_type *type, struct dataset *in) {
  return (struct passing_dataset *)dataset_new(sizeof(struct passing_dataset), type, in->n, in->types, in->shapes, &in,
                                               1);
}

/* ---- a part, at random ---- */

struct sampling_iter {
  struct data_iterator head;
  struct philox_stream random;
};

static shoal_status sampling_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct sampling_iter *s = (struct sampling_iter *)it;
  struct data_iterator *in;
  TRY(iterator_input(it, &in));
  for (;;) {
    TRY(iterator_next(in, ctx, out, end));
    if (*end || philox_stream_float(&s->random) < ((const struct passing_dataset *)it->of)->rate) return NULL;
    tensors_release(out, it->of->n);
  }
}

static const struct data_iterator_type sampling_iter_type = {sizeof(struct sampling_iter), sampling_next, NULL};

static shoal_status sampling_iterate(struct dataset *d, struct data_iterator **out) {
  const struct passing_dataset *p = (const struct passing_dataset *)d;
  *out = iterator_new(&sampling_iter_type, d);
  ((struct sampling_iter *)*out)->random = philox_stream(philox_from_seeds((uint64_t)p->seed, (uint64_t)p->seed2));
  return NULL;
}

static int64_t unknown(const struct dataset *d) { return SIZE_UNKNOWN; }

static const struct dataset_type sampling_type = {"Sampling", sampling_iterate, unknown, pass_free};

struct dataset *dataset_sampling(struct dataset *in, float rate, int64_t seed, int64_t seed2) {
  struct passing_dataset *p = pass_new(&sampling_type, in);
  p->rate = rate;
  p->seed = seed;
  p->seed2 = seed2;
  return &p->head;
}

/* ---- after a while ---- */

static shoal_status sleep_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct data_iterator *in;
  TRY(iterator_input(it, &in));
  int64_t begun = clock_ns() / 1000, micros = ((const struct passing_dataset *)it->of)->micros;
  enum { NAP = 50000 }; /* between two looks at the cancellation */
  for (int64_t left; (left = micros - (clock_ns() / 1000 - begun)) > 0 && !data_ended(ctx);)
    nanosleep(&(struct timespec){.tv_nsec = MIN(left, NAP) * 1000}, NULL);
  return iterator_next(in, ctx, out, end);
}

static const struct data_iterator_type sleep_iter = {sizeof(struct data_iterator), sleep_next, NULL};

static shoal_status sleep_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&sleep_iter, d);
  return NULL;
}

static const struct dataset_type sleep_type = {"Sleep", sleep_iterate, NULL, pass_free};

struct dataset *dataset_sleep(struct dataset *in, int64_t micros) {
  struct passing_dataset *p = pass_new(&sleep_type, in);
  p->micros = micros;
  return &p->head;
}

/* ---- with a note ---- */

static shoal_status note_iterate(struct dataset *d, struct data_iterator **out) {
  return dataset_iterate(d->inputs[0], out);
}

static const struct dataset_type options_type = {"Options", note_iterate, NULL, pass_free};

struct dataset *dataset_options(struct dataset *in, const void *options, size_t n) {
  struct passing_dataset *p = pass_new(&options_type, in);
  p->note = mem_alloc(MAX(n, 1));
  memcpy(p->note, options, n);
  p->note_size = n;
  return &p->head;
}

/* Those above d that have notes, the last first. A dataset that several others have for input counts where it comes
 * last, once: what it says before that would not be heard, and it may be there very often. */
struct noted {
  struct strmap seen;
  VEC(const struct passing_dataset *) notes;
};

static void find_notes(const struct dataset *d, struct noted *all) {
  char key[32];
  snprintf(key, sizeof key, "%p", (const void *)d);
  if (strmap_get(&all->seen, key)) return;
  strmap_put(&all->seen, key, all);
  if (d->type == &options_type) vec_push(&all->notes, (const struct passing_dataset *)d);
  for (int i = d->n_inputs; i--;) find_notes(d->inputs[i], all);
}

/* Messages after one another are one message, where what comes later counts. */
void dataset_get_options(const struct dataset *d, struct text *out) {
  struct noted all = {0};
  find_notes(d, &all);
  for (size_t i = all.notes.n; i--;) text_add(out, all.notes.at[i]->note, all.notes.at[i]->note_size);
  vec_release(&all.notes);
  strmap_release(&all.seen);
}

/* ---- promises of what stands around ---- */

/* "ParallelMapV2" of "ParallelMapDatasetV2". */
static void short_name(const char *op, char out[64]) {
  op += str_starts(op, "Experimental") ? strlen("Experimental") : 0;
  const char *word = strstr(op, "Dataset");
  size_t n = word ? (size_t)(word - op) : strlen(op), rest = word ? strlen(word + strlen("Dataset")) : 0;
  n = MIN(n, 63);
  memcpy(out, op, n);
  rest = MIN(rest, 63 - n);
  if (rest) memcpy(out + n, word + strlen("Dataset"), rest);
  out[n + rest] = 0;
}

/* The name, or one of its versions. */
static bool matches(const char *want, const char *have) {
  size_t n = strlen(want);
  if (strncmp(want, have, n)) return false;
  have += n;
  if (!*have) return true;
  if (*have++ != 'V' || !*have) return false;
  return have[strspn(have, "0123456789")] == 0;
}

struct promise_iter {
  struct data_iterator head;
  bool kept;
};

static shoal_status promise_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct promise_iter *p = (struct promise_iter *)it;
  const struct passing_dataset *d = (const struct passing_dataset *)it->of;
  struct data_iterator *in;
  const struct data_iterator *above = it->user;
  for (int i = 0; !p->kept && i < d->n_names; i++, above = above->user) {
    char name[64];
    if (!above) return INVALID("Asserted next %d transformations but encountered only %d.", d->n_names, i);
    short_name(above->of->op ? above->of->op : above->of->type->name, name);
    if (!matches(d->names[i], name))
      return INVALID("Asserted transformation matching '%s' at offset %d but encountered '%s' transformation instead.",
                     d->names[i], i, name);
  }
  p->kept = true;
  TRY(iterator_input(it, &in));
  return iterator_next(in, ctx, out, end);
}

static const struct data_iterator_type promise_iter_type = {sizeof(struct promise_iter), promise_next, NULL};

static shoal_status promise_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&promise_iter_type, d);
  return NULL;
}

static const struct dataset_type promise_type = {"AssertNext", promise_iterate, NULL, pass_free};

struct dataset *dataset_assert_next(struct dataset *in, char **names, int n) {
  struct passing_dataset *p = pass_new(&promise_type, in);
  p->names = names;
  p->n_names = n;
  return &p->head;
}

shoal_status dataset_check_previous(const struct dataset *in, const char *const *names, int n) {
  for (int i = 0; i < n; i++) {
    if (!in) return INVALID("Asserted previous %d transformations but encountered only %d.", n, i);
    const char *op = in->op ? in->op : in->type->name;
    if (!matches(names[i], op))
      return INVALID("Asserted transformation matching '%s', but found '%s' at offset %d.", names[i], op, i);
    in = in->n_inputs ? in->inputs[0] : NULL;
  }
  return NULL;
}
