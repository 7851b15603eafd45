/* Shuffling with a buffer, and random numbers: TensorFlow's generators, so that the same seeds give the same order.
 *
 * The buffer holds elements of up to MAX_EPOCHS rounds of the input (when it repeats); an element is drawn from those
 * of the oldest round only, so that rounds never mix. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"
#include "base/philox.h"
#include "base/ref.h"
#include "base/text.h"
#include "base/vec.h"
#include "data/dataset.h"

enum { MAX_EPOCHS = 3 };

/* ---- seeds ---- */

struct seed_generator {
  struct ref refs;
  pthread_mutex_t lock;
  int64_t seed, seed2;
  bool reshuffle;
  struct philox_stream stream; /* lock */
};

struct seed_generator *seed_generator_new(int64_t seed, int64_t seed2, bool reshuffle) {
  struct seed_generator *g = mem_zalloc(1, sizeof *g);
  uint32_t drawn[2] = {1, 1};
  if (!seed && !seed2 && getrandom(drawn, sizeof drawn, 0) == sizeof drawn) {
    seed = drawn[0];
    seed2 = drawn[1];
  }
  ref_init(&g->refs, 1);
  pthread_mutex_init(&g->lock, NULL);
  g->seed = seed;
  g->seed2 = seed2;
  g->reshuffle = reshuffle;
  g->stream = philox_stream(philox_from_seeds((uint64_t)seed, (uint64_t)seed2));
  return g;
}

struct seed_generator *seed_generator_ref(struct seed_generator *g) {
  ref_take(&g->refs);
  return g;
}

void seed_generator_unref(struct seed_generator *g) {
  if (!g || !ref_drop(&g->refs)) return;
  pthread_mutex_destroy(&g->lock);
  free(g);
}

/* The generator for a new iterator: the seeds themselves, or the next pair drawn from them. */
static struct philox_stream next_stream(struct seed_generator *g) {
  pthread_mutex_lock(&g->lock);
  uint64_t one = (uint64_t)g->seed, two = (uint64_t)g->seed2;
  if (g->reshuffle) {
    one = philox_u32(&g->stream);
    two = philox_u32(&g->stream);
  }
  pthread_mutex_unlock(&g->lock);
  return philox_stream(philox_from_seeds(one, two));
}

/* A saved generator: seed, seed2, and the stream they have become. Read by the machine that wrote it, or its like. */
struct saved_seeds {
  int64_t seed, seed2;
  struct philox_stream stream;
};

void dataset_seeds_save(const struct dataset *d, struct text *out) {
  struct seed_generator *g = d->type->seeds ? d->type->seeds(d) : NULL;
  for (int i = 0; i < d->n_inputs; i++) dataset_seeds_save(d->inputs[i], out);
  if (!g) return;
  struct saved_seeds s;
  memset(&s, 0, sizeof s);
  pthread_mutex_lock(&g->lock);
  s.seed = g->seed;
  s.seed2 = g->seed2;
  s.stream = g->stream;
  pthread_mutex_unlock(&g->lock);
  text_add(out, (const char *)&s, sizeof s);
}

static shoal_status load_seeds(const struct dataset *d, const char **saved, size_t *n) {
  struct seed_generator *g = d->type->seeds ? d->type->seeds(d) : NULL;
  for (int i = 0; i < d->n_inputs; i++) TRY(load_seeds(d->inputs[i], saved, n));
  if (!g) return NULL;
  struct saved_seeds s;
  if (*n < sizeof s) return INVALID("The saved iterator is over another dataset: it has fewer seeds");
  memcpy(&s, *saved, sizeof s);
  if (s.stream.used < 0 || s.stream.used > 4) return INVALID("The saved iterator's seeds are damaged");
  *saved += sizeof s;
  *n -= sizeof s;
  pthread_mutex_lock(&g->lock);
  g->seed = s.seed;
  g->seed2 = s.seed2;
  g->stream = s.stream;
  pthread_mutex_unlock(&g->lock);
  return NULL;
}

shoal_status dataset_seeds_load(const struct dataset *d, const void *saved, size_t n) {
  const char *at = saved;
  TRY(load_seeds(d, &at, &n));
  return n ? INVALID("The saved iterator is over another dataset: it has more seeds") : NULL;
}

/* ---- shuffle ---- */

struct shuffle {
  struct dataset head;
  int64_t buffer, repeat;
  struct seed_generator *seeds;
  bool own;
  atomic_bool used; /* by an iterator's pipeline; own */
};

struct round_slice { /* elements of one round: [start, end), modulo the buffer's size */
  int64_t start, end;
};

struct shuffle_iter {
  struct data_iterator head;
  struct philox_stream random;
  struct tensor *buffer; /* [buffer * n] */
  int64_t room;          /* elements that buffer has memory for; grows up to the dataset's */
  int64_t count;         /* elements in it */
  VEC(struct round_slice) slices;
  int64_t epoch;
  bool exhausted, begun;
};

static void shuffle_iter_free(struct data_iterator *it) {
  struct shuffle_iter *s = (struct shuffle_iter *)it;
  int n = it->of->n;
  for (int64_t i = 0; i < s->room * n; i++) tensor_release(&s->buffer[i]);
  free(s->buffer);
  vec_release(&s->slices);
}

/* Memory for the element at index: taken as elements come, not on the word of a large buffer_size. */
static void make_room(struct shuffle_iter *s, int64_t index, int n, int64_t most) {
  if (index < s->room) return;
  int64_t room = MIN(most, MAX(index + 1, s->room * 2));
  s->buffer = mem_realloc(s->buffer, (size_t)(room * MAX(n, 1)), sizeof *s->buffer);
  for (int64_t i = s->room * n; i < room * n; i++) s->buffer[i] = tensor_none();
  s->room = room;
}

static shoal_status fill(struct shuffle_iter *s, struct data_ctx *ctx) {
  struct data_iterator *it = &s->head, *in;
  const struct shuffle *d = (const struct shuffle *)it->of;
  int n = it->of->n;
  struct tensor *element = mem_zalloc((size_t)MAX(n, 1), sizeof *element);
  shoal_status status = NULL;
  while (!status && !s->exhausted && s->count < d->buffer) {
    bool end = true;
    while (!status && end && (d->repeat < 0 || s->epoch < d->repeat)) {
      status = iterator_input(it, &in);
      if (!status) status = iterator_next(in, ctx, element, &end);
      if (status || !end) break;
      if (!s->begun && d->repeat < 0) break; /* an empty input repeated for ever is empty */
      s->epoch++;
      struct round_slice last = vec_last(&s->slices);
      vec_push(&s->slices, (struct round_slice){last.end, last.end});
      iterator_free(it->in);
      it->in = NULL;
    }
    if (status) break;
    if (end) {
      s->exhausted = true;
      break;
    }
    s->begun = true;
    int64_t index = vec_last(&s->slices).end % d->buffer;
    make_room(s, index, n, d->buffer);
    for (int i = 0; i < n; i++) tensor_move(&s->buffer[index * n + i], &element[i]);
    vec_last(&s->slices).end++;
    s->count++;
    if (s->slices.n > MAX_EPOCHS) break;
  }
  free(element);
  return status;
}

static shoal_status shuffle_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct shuffle_iter *s = (struct shuffle_iter *)it;
  const struct shuffle *d = (const struct shuffle *)it->of;
  int n = it->of->n;
  TRY(fill(s, ctx));
  *end = s->count == 0;
  if (*end) return NULL;
  size_t first = 0;
  while (s->slices.at[first].start == s->slices.at[first].end) {
    first++;
    s->random = next_stream(d->seeds); /* for each round its own */
  }
  for (size_t i = first; i < s->slices.n; i++) s->slices.at[i - first] = s->slices.at[i];
  s->slices.n -= first;
  struct round_slice *oldest = &s->slices.at[0];
  int64_t offset = (int64_t)(philox_u32(&s->random) % (uint64_t)(oldest->end - oldest->start));
  int64_t index = (oldest->start + offset) % d->buffer, front = oldest->start % d->buffer;
  for (int i = 0; i < n; i++) {
    tensor_move(&out[i], &s->buffer[index * n + i]);
    s->buffer[index * n + i] = tensor_none();
    if (index == front) continue;
    tensor_move(&s->buffer[index * n + i], &s->buffer[front * n + i]);
    s->buffer[front * n + i] = tensor_none();
  }
  oldest->start++;
  s->count--;
  return NULL;
}

static const struct data_iterator_type shuffle_iter_type = {sizeof(struct shuffle_iter), shuffle_next,
                                                            shuffle_iter_free, .begin = iterator_begin_later};

static shoal_status shuffle_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&shuffle_iter_type, d);
  struct shuffle_iter *s = (struct shuffle_iter *)*out;
  s->random = next_stream(((struct shuffle *)d)->seeds);
  vec_push(&s->slices, (struct round_slice){0, 0});
  return NULL;
}

static int64_t shuffle_size(const struct dataset *d) {
  const struct shuffle *s = (const struct shuffle *)d;
  int64_t n = dataset_size(d->inputs[0]);
  return size_times(n, s->repeat < 0 ? SIZE_INFINITE : s->repeat);
}

static void shuffle_free(struct dataset *d) { seed_generator_unref(((struct shuffle *)d)->seeds); }

static struct seed_generator *seeds_of(const struct dataset *d) { return ((const struct shuffle *)d)->seeds; }

static const struct dataset_type shuffle_type = {"Shuffle", shuffle_iterate, shuffle_size, shuffle_free, seeds_of};

struct dataset *dataset_shuffle(struct dataset *in, int64_t buffer, struct seed_generator *seeds, int64_t repeat,
                                bool own) {
  struct shuffle *d = (struct shuffle *)dataset_new(sizeof *d, &shuffle_type, in->n, in->types, in->shapes, &in, 1);
  d->buffer = buffer;
  d->repeat = repeat;
  d->seeds = seed_generator_ref(seeds);
  d->own = own;
  d->head.own_seeds |= own;
  atomic_init(&d->used, false);
  return &d->head;
}

/* (The number of ways is bounded when a dataset is made: parts.) */
bool dataset_seeds_used(struct dataset *d) {
  bool used = false;
  if (!d->own_seeds) return false;
  if (d->type == &shuffle_type && ((struct shuffle *)d)->own)
    used = atomic_exchange(&((struct shuffle *)d)->used, true);
  for (int i = 0; !d->n_args && i < d->n_inputs; i++) used |= dataset_seeds_used(d->inputs[i]);
  for (int i = 0; i < d->n_args; i++)
    for (int64_t k = 0; d->args[i].dtype == SHOAL_VARIANT && k < d->args[i].n; k++) {
      struct variant *v = T_DATA(&d->args[i], struct variant *const)[k];
      if (v && v->type == &dataset_variant) used |= dataset_seeds_used((struct dataset *)v);
    }
  return used;
}

/* ---- random numbers without end ---- */

struct random_iter {
  struct data_iterator head;
  struct philox_stream random;
};

static shoal_status random_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  TRY(tensor_new_scalar(&out[0], SHOAL_INT64));
  *T_DATA(&out[0], int64_t) = philox_u32(&((struct random_iter *)it)->random);
  return NULL;
}

static const struct data_iterator_type random_iter_type = {sizeof(struct random_iter), random_next, NULL};

static shoal_status random_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&random_iter_type, d);
  ((struct random_iter *)*out)->random = next_stream(((struct shuffle *)d)->seeds);
  return NULL;
}

static int64_t random_size(const struct dataset *d) { return SIZE_INFINITE; }

static const struct dataset_type random_type = {"Random", random_iterate, random_size, shuffle_free, seeds_of};

struct dataset *dataset_random(struct seed_generator *seeds) {
  shoal_dtype type = SHOAL_INT64;
  struct shape scalar = shape_scalar();
  struct shuffle *d = (struct shuffle *)dataset_new(sizeof *d, &random_type, 1, &type, &scalar, NULL, 0);
  d->seeds = seed_generator_ref(seeds);
  return &d->head;
}
