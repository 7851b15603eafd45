/* Datasets that call functions: map, filter, take_while, flat_map, interleave, scan. */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/cond.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/vec.h"
#include "data/data_thread.h"
#include "data/dataset.h"

struct mapped {
  struct dataset head;
  struct captured f;
  int64_t parallel;     /* map: calls in flight */
  bool unordered;       /* map: what is ready first comes first */
  bool stop_at_false;   /* filter: take_while */
  int64_t cycle, block; /* interleave */
  bool ahead;           /* interleave: inputs run on threads of their own */
  struct tensor *state; /* scan: [n_state] */
  int n_state;
};

static void mapped_free(struct dataset *d) {
  struct mapped *m = (struct mapped *)d;
  captured_release(&m->f);
  tensors_release(m->state, m->n_state);
  free(m->state);
}

static struct mapped *mapped_new(const struct dataset_type *type, struct dataset *in, struct captured *f,
                                 const struct element_spec *spec) {
  struct mapped *m = (struct mapped *)dataset_new(sizeof *m, type, spec->n, spec->types, spec->shapes, &in, 1);
  m->f = *f;
  *f = (struct captured){0};
  return m;
}

static const struct mapped *mapped(const struct data_iterator *it) { return (const struct mapped *)it->of; }

static struct tensor *element_new(const struct dataset *d) {
  return mem_zalloc((size_t)MAX(d->n, 1), sizeof(struct tensor));
}

static void element_free(struct tensor *t, const struct dataset *d) {
  tensors_release(t, d->n);
  free(t);
}

/* A function that raises OUT_OF_RANGE ends the sequence, unless it was promised that there is one element for each. */
static shoal_status not_the_end(const struct captured *f, shoal_status s) {
  if (!f->must_not_end || shoal_status_code(s) != SHOAL_OUT_OF_RANGE) return s;
  shoal_status t = INVALID("Function invocation produced OutOfRangeError: %s", shoal_status_message(s));
  shoal_status_free(s);
  return t;
}

/* The same, where the end is told as such: a batch that was begun is given. */
static shoal_status or_the_end(const struct captured *f, shoal_status s, bool *end) {
  s = not_the_end(f, s);
  if (shoal_status_code(s) != SHOAL_OUT_OF_RANGE) return s;
  *end = true;
  shoal_status_free(s);
  return NULL;
}

/* ---- map, one after another ---- */

static shoal_status map_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct data_iterator *in;
  TRY(iterator_input(it, &in));
  struct tensor *element = element_new(in->of);
  shoal_status s = iterator_next(in, ctx, element, end);
  if (!s && !*end)
    s = or_the_end(&mapped(it)->f, captured_call(&mapped(it)->f, ctx, element, in->of->n, out, it->of->n), end);
  element_free(element, in->of);
  return s;
}

/* Elements that were not made yet are the input's. */
static shoal_status map_skip(struct data_iterator *it, struct data_ctx *ctx, bool *end) {
  struct data_iterator *in;
  TRY(iterator_input(it, &in));
  return iterator_skip(in, ctx, end);
}

static const struct data_iterator_type map_iter = {sizeof(struct data_iterator), map_next, NULL, map_skip};

/* ---- map, several at once ---- */

struct map_job {
  struct parallel_iter *of;
  struct tensor *in, *out;
  shoal_status status;
  bool done; /* lock */
  bool end;  /* the function said that there is no more */
};

struct parallel_iter {
  struct data_iterator head;
  struct pool *pool;
  int threads; /* taken out of the budget */
  struct cancel cancel;
  pthread_mutex_t lock;
  pthread_cond_t change;
  VEC(struct map_job *) jobs; /* oldest first; used by the consumer alone */
  bool ended;                 /* the input */
  bool over;
};

static void run_job(void *arg) {
  struct map_job *j = arg;
  struct parallel_iter *p = j->of;
  struct data_ctx ctx = {.cancel = &p->cancel};
  bool end = false;
  shoal_status s = captured_call(&mapped(&p->head)->f, &ctx, j->in, p->head.of->inputs[0]->n, j->out, p->head.of->n);
  s = or_the_end(&mapped(&p->head)->f, s, &end);
  pthread_mutex_lock(&p->lock);
  j->end = end;
  j->status = s;
  j->done = true;
  pthread_cond_broadcast(&p->change);
  pthread_mutex_unlock(&p->lock);
}

static void job_free(struct map_job *j) {
  element_free(j->in, j->of->head.of->inputs[0]);
  free(j->out);
  free(j);
}

static void wait_for(struct parallel_iter *p, const struct map_job *j) {
  pthread_mutex_lock(&p->lock);
  while (!j->done) data_wait(&p->change, &p->lock);
  pthread_mutex_unlock(&p->lock);
}

static shoal_status start_jobs(struct parallel_iter *p, struct data_ctx *ctx) {
  struct data_iterator *in;
  TRY(iterator_input(&p->head, &in));
  /* One more for each thread: it has its next when it is done, and waits for nobody to ask. */
  while (!p->ended && (int64_t)p->jobs.n < mapped(&p->head)->parallel + p->threads) {
    struct tensor *element = element_new(in->of);
    shoal_status s = iterator_next(in, ctx, element, &p->ended);
    struct map_job *j = mem_zalloc(1, sizeof *j);
    *j = (struct map_job){.of = p, .in = element, .out = element_new(p->head.of)};
    if (p->ended) {
      job_free(j);
      break;
    }
    if (s) { /* an error takes its place in the order */
      j->status = s;
      j->done = true;
    }
    vec_push(&p->jobs, j);
    if (!s) pool_submit(p->pool, run_job, j);
  }
  return NULL;
}

/* Which job is the next to be given: the oldest; where order is no matter, the first that is done; -1: none is. */
static int next_done(const struct parallel_iter *p) {
  size_t n = mapped(&p->head)->unordered ? p->jobs.n : MIN(p->jobs.n, 1);
  for (size_t i = 0; i < n; i++)
    if (p->jobs.at[i]->done) return (int)i;
  return -1;
}

/* Takes it from the list, when it is there; NULL: the call was cancelled. */
static struct map_job *take_done(struct parallel_iter *p, struct data_ctx *ctx) {
  int which;
  pthread_mutex_lock(&p->lock);
  while ((which = next_done(p)) < 0 && !data_ended(ctx)) data_wait(&p->change, &p->lock);
  pthread_mutex_unlock(&p->lock);
  if (which < 0) return NULL;
  struct map_job *j = p->jobs.at[which];
  for (size_t i = (size_t)which + 1; i < p->jobs.n; i++) p->jobs.at[i - 1] = p->jobs.at[i];
  p->jobs.n--;
  return j;
}

/* A function said that there is no more: what comes before it in order was given, or is still computed. */
static void hear_the_end(struct parallel_iter *p) {
  p->ended = true;
  p->over = !mapped(&p->head)->unordered;
}

static shoal_status parallel_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct parallel_iter *p = (struct parallel_iter *)it;
  for (bool made = false; !made;) {
    if (!p->over) TRY(start_jobs(p, ctx));
    *end = p->over || p->jobs.n == 0;
    if (*end) return NULL;
    struct map_job *j = take_done(p, ctx);
    if (!j) return data_why_ended(ctx);
    made = !j->end;
    if (!made) hear_the_end(p);
    shoal_status s = j->status;
    for (int i = 0; !s && made && i < it->of->n; i++) tensor_move(&out[i], &j->out[i]);
    job_free(j);
    TRY(s);
  }
  return NULL;
}

static shoal_status parallel_skip(struct data_iterator *it, struct data_ctx *ctx, bool *end) {
  struct parallel_iter *p = (struct parallel_iter *)it;
  if (!p->jobs.n && !p->ended && !p->over) return map_skip(it, ctx, end);
  struct tensor *t = element_new(it->of);
  shoal_status s = parallel_next(it, ctx, t, end);
  element_free(t, it->of);
  return s;
}

static void parallel_free(struct data_iterator *it) {
  struct parallel_iter *p = (struct parallel_iter *)it;
  cancel_start(&p->cancel, NULL);
  for (size_t i = 0; i < p->jobs.n; i++) {
    struct map_job *j = p->jobs.at[i];
    wait_for(p, j);
    if (!j->status && !j->end) tensors_release(j->out, it->of->n);
    shoal_status_free(j->status);
    job_free(j);
  }
  vec_release(&p->jobs);
  data_threads_give(p->threads);
  pool_free(p->pool);
  cancel_release(&p->cancel);
  pthread_mutex_destroy(&p->lock);
  pthread_cond_destroy(&p->change);
}

static const struct data_iterator_type parallel_iter_type = {sizeof(struct parallel_iter), parallel_next, parallel_free,
                                                             parallel_skip};

static shoal_status map_iterate(struct dataset *d, struct data_iterator **out) {
  int64_t parallel = ((struct mapped *)d)->parallel;
  int threads = (int)MIN(parallel, 4 * cpu_count());
  if (parallel > 1) TRY(data_threads_take(threads));
  *out = iterator_new(parallel > 1 ? &parallel_iter_type : &map_iter, d);
  if (parallel <= 1) return NULL;
  struct parallel_iter *p = (struct parallel_iter *)*out;
  p->threads = threads;
  p->pool = pool_new(threads, "map");
  cancel_init(&p->cancel);
  pthread_mutex_init(&p->lock, NULL);
  cond_init(&p->change);
  return NULL;
}

/* A function may end the sequence, unless it was promised not to. */
static int64_t map_size(const struct dataset *d) {
  return ((const struct mapped *)d)->f.must_not_end ? dataset_size(d->inputs[0]) : SIZE_UNKNOWN;
}

static const struct dataset_type map_type = {"Map", map_iterate, map_size, mapped_free};

struct dataset *dataset_map(struct dataset *in, struct captured *f, const struct element_spec *spec, int64_t parallel,
                            bool unordered) {
  struct mapped *m = mapped_new(&map_type, in, f, spec);
  m->parallel = parallel;
  m->unordered = unordered;
  return &m->head;
}

/* ---- filter, take_while ---- */

struct filter_iter {
  struct data_iterator head;
  bool over;
};

static shoal_status keep(const struct captured *f, struct data_ctx *ctx, const struct tensor *t, int n, bool *out) {
  static const char wrong[] = "Filter predicate `f` must return a scalar bool.";
  struct tensor answer = tensor_none();
  if (function_rets(f->f) != 1) return INVALID("%s", wrong);
  TRY(not_the_end(f, captured_call(f, ctx, t, n, &answer, 1)));
  shoal_status s = NULL;
  if (answer.dtype != SHOAL_BOOL || answer.n != 1) s = INVALID("%s", wrong);
  else *out = *T_DATA(&answer, bool);
  tensor_release(&answer);
  return s;
}

static shoal_status filter_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct filter_iter *f = (struct filter_iter *)it;
  struct data_iterator *in;
  TRY(iterator_input(it, &in));
  while (!f->over) {
    bool yes = false;
    TRY(iterator_next(in, ctx, out, end));
    if (*end) return NULL;
    shoal_status s = keep(&mapped(it)->f, ctx, out, it->of->n, &yes);
    if (!s && yes) return NULL;
    tensors_release(out, it->of->n);
    TRY(s);
    f->over = mapped(it)->stop_at_false;
  }
  *end = true;
  return NULL;
}

static const struct data_iterator_type filter_iter_type = {sizeof(struct filter_iter), filter_next, NULL};

static shoal_status filter_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&filter_iter_type, d);
  return NULL;
}

static int64_t size_unknown(const struct dataset *d) { return SIZE_UNKNOWN; }

static const struct dataset_type filter_type = {"Filter", filter_iterate, size_unknown, mapped_free};

struct dataset *dataset_filter(struct dataset *in, struct captured *f, bool stop_at_false) {
  struct element_spec spec = {in->n, in->types, in->shapes};
  struct mapped *m = mapped_new(&filter_type, in, f, &spec);
  m->stop_at_false = stop_at_false;
  return &m->head;
}

/* ---- flat_map and interleave ---- */

struct interleave_iter {
  struct data_iterator head;
  struct data_iterator **open; /* [cycle] NULL: none */
  int64_t at, given;           /* the one in turn, and how many it has given in this turn */
  int64_t n_open;
  bool ended;
};

/* The iterator over what the function makes of the next input element. */
static shoal_status open_next(struct data_iterator *it, struct data_ctx *ctx, struct data_iterator **out, bool *end) {
  struct data_iterator *in;
  TRY(iterator_input(it, &in));
  struct tensor *element = element_new(in->of), made = tensor_none();
  shoal_status s = iterator_next(in, ctx, element, end);
  if (!s && !*end) s = not_the_end(&mapped(it)->f, captured_call(&mapped(it)->f, ctx, element, in->of->n, &made, 1));
  element_free(element, in->of);
  if (s || *end) return s;
  struct dataset *d;
  s = dataset_from_tensor(&made, &d);
  if (!s && d->n != it->of->n)
    s = INVALID("the function's dataset has %d components, %d are expected", d->n, it->of->n);
  if (!s) s = dataset_iterate(d, out);
  if (!s && mapped(it)->ahead) *out = iterator_prefetch(d, *out, 2 * MIN(mapped(it)->block, 1024));
  tensor_release(&made);
  return s;
}

static shoal_status interleave_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct interleave_iter *v = (struct interleave_iter *)it;
  int64_t cycle = mapped(it)->cycle, block = mapped(it)->block;
  if (!v->open) v->open = mem_zalloc((size_t)cycle, sizeof *v->open);
  while (!v->ended || v->n_open > 0) {
    struct data_iterator **now = &v->open[v->at];
    if (!*now && !v->ended) {
      TRY(open_next(it, ctx, now, &v->ended));
      if (*now) v->n_open++;
    }
    bool over = !*now;
    if (*now && v->given < block) {
      TRY(iterator_next(*now, ctx, out, &over));
      if (!over) {
        v->given++;
        *end = false;
        return NULL;
      }
      iterator_free(*now);
      *now = NULL;
      v->n_open--;
    }
    v->at = (v->at + 1) % cycle;
    v->given = 0;
  }
  *end = true;
  return NULL;
}

static void interleave_free(struct data_iterator *it) {
  struct interleave_iter *v = (struct interleave_iter *)it;
  for (int64_t i = 0; v->open && i < mapped(it)->cycle; i++) iterator_free(v->open[i]);
  free(v->open);
}

static const struct data_iterator_type interleave_iter_type = {sizeof(struct interleave_iter), interleave_next,
                                                               interleave_free};

static shoal_status interleave_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&interleave_iter_type, d);
  return NULL;
}

static const struct dataset_type interleave_type = {"Interleave", interleave_iterate, size_unknown, mapped_free};

struct dataset *dataset_interleave(struct dataset *in, struct captured *f, const struct element_spec *spec,
                                   int64_t cycle, int64_t block, bool ahead) {
  struct mapped *m = mapped_new(&interleave_type, in, f, spec);
  m->cycle = cycle;
  m->block = block;
  m->ahead = ahead;
  return &m->head;
}

struct dataset *dataset_flat_map(struct dataset *in, struct captured *f, const struct element_spec *spec) {
  return dataset_interleave(in, f, spec, 1, INT64_MAX, false);
}

/* ---- scan ---- */

struct scan_iter {
  struct data_iterator head;
  struct tensor *state;
};

static shoal_status scan_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct scan_iter *s = (struct scan_iter *)it;
  const struct mapped *m = mapped(it);
  struct data_iterator *in;
  TRY(iterator_input(it, &in));
  int n_in = in->of->n, n_rets = m->n_state + it->of->n;
  if (function_rets(m->f.f) != n_rets)
    return INVALID("the scan function returns %d values, %d are expected", function_rets(m->f.f), n_rets);
  struct tensor *args = mem_zalloc((size_t)(m->n_state + n_in), sizeof *args);
  struct tensor *rets = mem_zalloc((size_t)n_rets, sizeof *rets);
  shoal_status status = iterator_next(in, ctx, args + m->n_state, end);
  if (!status && !*end) {
    for (int i = 0; i < m->n_state; i++) tensor_move(&args[i], &s->state[i]);
    status = not_the_end(&m->f, captured_call(&m->f, ctx, args, m->n_state + n_in, rets, n_rets));
    tensors_release(args + m->n_state, n_in);
    for (int i = 0; !status && i < m->n_state; i++) {
      tensor_release(&s->state[i]);
      tensor_move(&s->state[i], &rets[i]);
    }
    for (int i = 0; !status && i < it->of->n; i++) tensor_move(&out[i], &rets[m->n_state + i]);
  }
  free(args);
  free(rets);
  return status;
}

static void scan_iter_free(struct data_iterator *it) {
  struct scan_iter *s = (struct scan_iter *)it;
  tensors_release(s->state, mapped(it)->n_state);
  free(s->state);
}

static const struct data_iterator_type scan_iter_type = {sizeof(struct scan_iter), scan_next, scan_iter_free};

static shoal_status scan_iterate(struct dataset *d, struct data_iterator **out) {
  struct mapped *m = (struct mapped *)d;
  *out = iterator_new(&scan_iter_type, d);
  struct scan_iter *s = (struct scan_iter *)*out;
  s->state = mem_zalloc((size_t)m->n_state, sizeof *s->state);
  for (int i = 0; i < m->n_state; i++) tensor_ref(&s->state[i], &m->state[i]);
  return NULL;
}

static const struct dataset_type scan_type = {"Scan", scan_iterate, map_size, mapped_free};

struct dataset *dataset_scan(struct dataset *in, struct captured *f, const struct tensor *state, int n_state,
                             const struct element_spec *spec) {
  struct mapped *m = mapped_new(&scan_type, in, f, spec);
  m->state = mem_zalloc((size_t)n_state, sizeof *m->state);
  m->n_state = n_state;
  for (int i = 0; i < n_state; i++) tensor_ref(&m->state[i], &state[i]);
  return &m->head;
}
