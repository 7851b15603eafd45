/* Datasets that sort or choose elements: windows and reductions by key, unique elements, one dataset that says from
 * which of several the next element comes, errors passed over, a promised size checked. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/strmap.h"
#include "base/text.h"
#include "base/vec.h"
#include "data/dataset_rows.h"

/* ---- by key ---- */

enum { KEY, INIT, REDUCE, FINISH }; /* functions; INIT is the window's size for windows */

struct keyed {
  struct dataset head;
  struct captured f[4];
};

struct element_group {
  int64_t key;
  int64_t size;         /* windows: elements that fill it */
  struct dataset *held; /* windows: a dataset of given elements */
  struct tensor *state; /* reductions: [n_state] */
};

struct keyed_iter {
  struct data_iterator head;
  VEC(struct element_group) groups; /* in order of key */
  struct data_iterator *made;       /* windows: over what the last full one became */
  bool ended;
};

static const struct captured *function_of(const struct data_iterator *it, int which) {
  return &((const struct keyed *)it->of)->f[which];
}

static void group_release(struct element_group *g, int n_state) {
  dataset_unref(g->held);
  if (g->state) tensors_release(g->state, n_state);
  free(g->state);
}

static void keyed_iter_free(struct data_iterator *it) {
  struct keyed_iter *k = (struct keyed_iter *)it;
  int n_state = function_of(it, INIT)->f ? function_rets(function_of(it, INIT)->f) : 0;
  for (size_t i = 0; i < k->groups.n; i++) group_release(&k->groups.at[i], n_state);
  vec_release(&k->groups);
  if (k->made) iterator_free(k->made);
}

static void keyed_free(struct dataset *d) {
  for (int i = 0; i < 4; i++)
    if (((struct keyed *)d)->f[i].f) captured_release(&((struct keyed *)d)->f[i]);
}

static int64_t unknown_size(const struct dataset *d) {
  (void)d;
  return SIZE_UNKNOWN;
}

/* A function of one element that gives an int64 scalar. */
static shoal_status call_for_int(const struct captured *f, struct data_ctx *ctx, const struct tensor *in, int n,
                                 const char *what, int64_t *out) {
  struct tensor r = {0};
  TRY(captured_call(f, ctx, in, n, &r, 1));
  shoal_status s = r.dtype != SHOAL_INT64 || r.rank ? INVALID("`%s` must return a scalar int64.", what) : NULL;
  if (!s) *out = *T_DATA(&r, const int64_t);
  tensor_release(&r);
  return s;
}

/* The group of a key, or where it belongs. */
static size_t place_of(const struct keyed_iter *k, int64_t key, bool *found) {
  size_t lo = 0, hi = k->groups.n;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (k->groups.at[mid].key < key) lo = mid + 1;
    else hi = mid;
  }
  *found = lo < k->groups.n && k->groups.at[lo].key == key;
  return lo;
}

static struct element_group *insert_group(struct keyed_iter *k, size_t at, struct element_group g) {
  vec_push(&k->groups, g);
  for (size_t i = k->groups.n - 1; i > at; i--) k->groups.at[i] = k->groups.at[i - 1];
  k->groups.at[at] = g;
  return &k->groups.at[at];
}

static struct element_group take_group(struct keyed_iter *k, size_t at) {
  struct element_group g = k->groups.at[at];
  for (size_t i = at + 1; i < k->groups.n; i++) k->groups.at[i - 1] = k->groups.at[i];
  k->groups.n--;
  return g;
}

static shoal_status key_tensor(int64_t key, struct tensor *out) {
  TRY(tensor_new_scalar(out, SHOAL_INT64));
  *T_DATA(out, int64_t) = key;
  return NULL;
}

/* ---- windows by key ---- */

/* reduce_func(key, window) is a dataset; its elements come next. */
static shoal_status start_window(struct keyed_iter *k, struct data_ctx *ctx, struct element_group *g) {
  struct tensor args[2] = {{0}}, made = {0};
  struct dataset *d;
  shoal_status s = key_tensor(g->key, &args[0]);
  if (!s) {
    s = dataset_to_tensor(g->held, &args[1]);
    g->held = NULL;
  }
  if (!s) s = captured_call(function_of(&k->head, REDUCE), ctx, args, 2, &made, 1);
  if (!s) s = dataset_from_tensor(&made, &d);
  if (!s && (d->n != k->head.of->n || memcmp(d->types, k->head.of->types, (size_t)d->n * sizeof *d->types)))
    s = INVALID("`reduce_func` must return a dataset of the types it was said to give");
  if (!s) s = dataset_iterate(d, &k->made);
  tensor_release(&args[0]);
  tensor_release(&args[1]);
  tensor_release(&made);
  return s;
}

/* Puts an element, taken over, into its window; starts the window when that is full. */
static shoal_status hold(struct keyed_iter *k, struct data_ctx *ctx, const struct dataset *in, struct tensor *element) {
  int64_t key;
  bool found;
  TRY(call_for_int(function_of(&k->head, KEY), ctx, element, in->n, "key_func", &key));
  size_t at = place_of(k, key, &found);
  if (!found) {
    struct tensor t;
    int64_t size = 0;
    TRY(key_tensor(key, &t));
    shoal_status s = call_for_int(function_of(&k->head, INIT), ctx, &t, 1, "window_size_func", &size);
    tensor_release(&t);
    TRY(s);
    if (size <= 0) return INVALID("Window size must be greater than zero, but got %" PRId64 ".", size);
    insert_group(k, at,
                 (struct element_group){.key = key, .size = size, .held = elements_new(in->n, in->types, in->shapes)});
  }
  struct dataset *held = k->groups.at[at].held;
  for (int i = 0; i < in->n; i++) elements_add(held, &element[i]);
  if (elements_count(held) < k->groups.at[at].size) return NULL;
  struct element_group g = take_group(k, at);
  shoal_status s = start_window(k, ctx, &g);
  group_release(&g, 0);
  return s;
}

static shoal_status windows_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct keyed_iter *k = (struct keyed_iter *)it;
  struct data_iterator *in;
  TRY(iterator_input(it, &in));
  for (;;) {
    if (data_ended(ctx)) return data_why_ended(ctx);
    if (k->made) {
      TRY(iterator_next(k->made, ctx, out, end));
      if (!*end) return NULL;
      iterator_free(k->made);
      k->made = NULL;
    }
    if (k->ended) {
      *end = k->groups.n == 0;
      if (*end) return NULL;
      struct element_group g = take_group(k, 0);
      shoal_status s = start_window(k, ctx, &g);
      group_release(&g, 0);
      TRY(s);
      continue;
    }
    struct tensor *element = mem_zalloc((size_t)MAX(in->of->n, 1), sizeof *element);
    shoal_status s = iterator_next(in, ctx, element, &k->ended);
    if (!s && !k->ended) s = hold(k, ctx, in->of, element);
    tensors_release(element, in->of->n);
    free(element);
    TRY(s);
  }
}

static const struct data_iterator_type windows_iter_type = {sizeof(struct keyed_iter), windows_next, keyed_iter_free};

static shoal_status windows_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&windows_iter_type, d);
  return NULL;
}

static const struct dataset_type windows_type = {"GroupByWindow", windows_iterate, unknown_size, keyed_free};

static struct dataset *keyed_new(const struct dataset_type *type, struct dataset *in, struct captured *f, int n_f,
                                 const struct element_spec *spec) {
  struct keyed *k = (struct keyed *)dataset_new(sizeof *k, type, spec->n, spec->types, spec->shapes, &in, 1);
  for (int i = 0; i < n_f; i++) k->f[i] = f[i];
  return &k->head;
}

struct dataset *dataset_group_by_window(struct dataset *in, struct captured f[3], const struct element_spec *spec) {
  struct captured ordered[3] = {f[0], f[2], f[1]};
  return keyed_new(&windows_type, in, ordered, 3, spec);
}

/* ---- reductions by key ---- */

/* state = reduce_func(state, element), the state begun by init_func(key). */
static shoal_status reduce(struct keyed_iter *k, struct data_ctx *ctx, const struct tensor *element, int n) {
  const struct captured *init = function_of(&k->head, INIT), *f = function_of(&k->head, REDUCE);
  int n_state = function_rets(init->f);
  int64_t key;
  bool found;
  TRY(call_for_int(function_of(&k->head, KEY), ctx, element, n, "key_func", &key));
  size_t at = place_of(k, key, &found);
  if (!found) {
    struct tensor t, *state = mem_zalloc((size_t)MAX(n_state, 1), sizeof *state);
    shoal_status s = key_tensor(key, &t);
    if (!s) {
      s = captured_call(init, ctx, &t, 1, state, n_state);
      tensor_release(&t);
    }
    if (s) {
      free(state);
      return s;
    }
    insert_group(k, at, (struct element_group){.key = key, .state = state});
  }
  struct tensor *state = k->groups.at[at].state, *args = mem_zalloc((size_t)(n_state + n), sizeof *args);
  for (int i = 0; i < n_state; i++) tensor_move(&args[i], &state[i]);
  for (int i = 0; i < n; i++) tensor_move(&args[n_state + i], &element[i]);
  struct tensor *next = mem_zalloc((size_t)MAX(n_state, 1), sizeof *next);
  shoal_status s = captured_call(f, ctx, args, n_state + n, next, n_state);
  if (!s) {
    tensors_release(state, n_state);
    for (int i = 0; i < n_state; i++) tensor_move(&state[i], &next[i]);
  }
  free(next);
  free(args);
  return s;
}

static shoal_status reductions_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct keyed_iter *k = (struct keyed_iter *)it;
  struct data_iterator *in;
  TRY(iterator_input(it, &in));
  while (!k->ended) {
    if (data_ended(ctx)) return data_why_ended(ctx);
    struct tensor *element = mem_zalloc((size_t)MAX(in->of->n, 1), sizeof *element);
    shoal_status s = iterator_next(in, ctx, element, &k->ended);
    if (!s && !k->ended) s = reduce(k, ctx, element, in->of->n);
    tensors_release(element, in->of->n);
    free(element);
    TRY(s);
  }
  *end = k->groups.n == 0;
  if (*end) return NULL;
  int n_state = function_rets(function_of(it, INIT)->f);
  struct element_group g = take_group(k, 0);
  shoal_status s = captured_call(function_of(it, FINISH), ctx, g.state, n_state, out, it->of->n);
  group_release(&g, n_state);
  return s;
}

static const struct data_iterator_type reductions_iter_type = {sizeof(struct keyed_iter), reductions_next,
                                                               keyed_iter_free};

static shoal_status reductions_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&reductions_iter_type, d);
  return NULL;
}

static const struct dataset_type reductions_type = {"GroupByReducer", reductions_iterate, unknown_size, keyed_free};

shoal_status dataset_group_by_reducer(struct dataset *in, struct captured f[4], const struct element_spec *spec,
                                      struct dataset **out) {
  if (function_rets(f[REDUCE].f) != function_rets(f[INIT].f) || function_rets(f[FINISH].f) != spec->n) {
    for (int i = 0; i < 4; i++) captured_release(&f[i]);
    return INVALID("`init_func` and `reduce_func` must return as many values, `finalize_func` one for each output");
  }
  *out = keyed_new(&reductions_type, in, f, 4, spec);
  return NULL;
}

/* ---- unique ---- */

struct unique_iter {
  struct data_iterator head;
  struct strmap seen; /* bytes of an element in hexadecimal -> itself */
};

static void unique_free(struct data_iterator *it) { strmap_release(&((struct unique_iter *)it)->seen); }

/* The bytes of one tensor as a text without NULs. */
static void element_key(const struct tensor *t, struct text *key) {
  key->n = 0;
  for (int i = 0; i < t->rank; i++) text_addf(key, "%" PRId64 ",", t->dims[i]);
  const unsigned char *p = t->data;
  for (int64_t i = 0; i < t->n && t->dtype == SHOAL_STRING; i++) {
    const struct str *s = &T_DATA(t, const struct str)[i];
    text_addf(key, ":%zu:", s->size);
    for (size_t k = 0; k < s->size; k++) text_addf(key, "%02x", (unsigned char)str_data(s)[k]);
  }
  for (size_t i = 0; t->dtype != SHOAL_STRING && i < tensor_bytes(t); i++) text_addf(key, "%02x", p[i]);
}

static shoal_status unique_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct strmap *seen = &((struct unique_iter *)it)->seen;
  struct data_iterator *in;
  TRY(iterator_input(it, &in));
  struct text key = {0};
  shoal_status s;
  for (bool again = true; again;) {
    s = data_ended(ctx) ? data_why_ended(ctx) : iterator_next(in, ctx, out, end);
    if (s || *end) break;
    element_key(&out[0], &key);
    again = strmap_put(seen, text_cstr(&key), seen) != NULL;
    if (again) tensors_release(out, it->of->n);
  }
  text_release(&key);
  return s;
}

static const struct data_iterator_type unique_iter_type = {sizeof(struct unique_iter), unique_next, unique_free};

static shoal_status unique_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&unique_iter_type, d);
  return NULL;
}

static const struct dataset_type unique_type = {"Unique", unique_iterate, unknown_size, NULL};

shoal_status dataset_unique(struct dataset *in, struct dataset **out) {
  if (in->n != 1 || !(dtype_plain(in->types[0]) || in->types[0] == SHOAL_STRING))
    return INVALID("unique() only supports elements with a single component of int32, int64, or string type.");
  *out = dataset_new(sizeof(struct dataset), &unique_type, in->n, in->types, in->shapes, &in, 1);
  return NULL;
}

/* ---- directed interleave: input 0 says from which of the others the next element comes ---- */

struct directed {
  struct dataset head;
  bool stop_on_empty;
};

struct directed_iter {
  struct data_iterator head;
  struct data_iterator **data; /* [n_inputs - 1]; NULL: at its end */
  int left;
};

static void directed_free(struct data_iterator *it) {
  struct directed_iter *d = (struct directed_iter *)it;
  for (int i = 0; d->data && i < it->of->n_inputs - 1; i++)
    if (d->data[i]) iterator_free(d->data[i]);
  free(d->data);
}

static shoal_status directed_begin(struct data_iterator *it) {
  struct directed_iter *d = (struct directed_iter *)it;
  struct data_iterator *in;
  int n = d->head.of->n_inputs - 1;
  TRY(iterator_input(it, &in));
  d->data = mem_zalloc((size_t)n, sizeof *d->data);
  for (d->left = 0; d->left < n; d->left++) TRY(dataset_iterate(d->head.of->inputs[d->left + 1], &d->data[d->left]));
  return NULL;
}

static shoal_status directed_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct directed_iter *d = (struct directed_iter *)it;
  struct data_iterator *in;
  TRY(iterator_input(it, &in));
  bool stop = ((const struct directed *)it->of)->stop_on_empty;
  while (d->left > 0) {
    struct tensor which = {0};
    TRY(iterator_next(in, ctx, &which, end));
    if (*end) return NULL;
    int64_t i = *T_DATA(&which, const int64_t);
    tensor_release(&which);
    if (i < 0 || i >= it->of->n_inputs - 1)
      return INVALID("Selector index out of range: %" PRId64 " >= %d", i, it->of->n_inputs - 1);
    if (!d->data[i]) continue;
    TRY(iterator_next(d->data[i], ctx, out, end));
    if (!*end) return NULL;
    if (stop) {
      d->left = 0;
      return NULL;
    }
    iterator_free(d->data[i]);
    d->data[i] = NULL;
    d->left--;
  }
  *end = true;
  return NULL;
}

static const struct data_iterator_type directed_iter_type = {sizeof(struct directed_iter), directed_next, directed_free,
                                                             .begin = directed_begin};

static shoal_status directed_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&directed_iter_type, d);
  return NULL;
}

static const struct dataset_type directed_type = {"DirectedInterleave", directed_iterate, unknown_size, NULL};

shoal_status dataset_directed(struct dataset *const *in, int n, bool stop_on_empty, struct dataset **out) {
  if (in[0]->n != 1 || in[0]->types[0] != SHOAL_INT64 || in[0]->shapes[0].rank > 0)
    return INVALID("The selector input must be a dataset of scalar int64 elements.");
  for (int i = 2; i < n; i++)
    if (in[i]->n != in[1]->n || memcmp(in[i]->types, in[1]->types, (size_t)in[1]->n * sizeof *in[1]->types))
      return INVALID("All inputs must have the same output_types and output_shapes.");
  struct directed *d =
      (struct directed *)dataset_new(sizeof *d, &directed_type, in[1]->n, in[1]->types, in[1]->shapes, in, n);
  for (int i = 2; i < n; i++) dataset_widen(&d->head, in[i]);
  d->stop_on_empty = stop_on_empty;
  *out = &d->head;
  return NULL;
}

/* ---- errors passed over ---- */

static shoal_status ignore_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct data_iterator *in;
  TRY(iterator_input(it, &in));
  for (;;) {
    shoal_status s = iterator_next(in, ctx, out, end);
    if (!s || data_ended(ctx)) return s;
    shoal_status_free(s);
  }
}

static const struct data_iterator_type ignore_iter_type = {sizeof(struct data_iterator), ignore_next, NULL};

static shoal_status ignore_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&ignore_iter_type, d);
  return NULL;
}

static const struct dataset_type ignore_type = {"IgnoreErrors", ignore_iterate, unknown_size, NULL};

struct dataset *dataset_ignore_errors(struct dataset *in) {
  return dataset_new(sizeof(struct dataset), &ignore_type, in->n, in->types, in->shapes, &in, 1);
}

/* ---- a promised number of elements ---- */

struct promised {
  struct dataset head;
  int64_t count;
};

struct promised_iter {
  struct data_iterator head;
  int64_t seen;
};

static const char *elements_text(int64_t n, char *buffer, size_t size) {
  if (n == SIZE_INFINITE) return "an infinite number of elements";
  snprintf(buffer, size, "%" PRId64 " element%s", n, n == 1 ? "" : "s");
  return buffer;
}

static shoal_status promised_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  int64_t count = ((const struct promised *)it->of)->count, *seen = &((struct promised_iter *)it)->seen;
  char expected[40], got[40];
  struct data_iterator *in;
  TRY(iterator_input(it, &in));
  TRY(iterator_next(in, ctx, out, end));
  if (!*end) ++*seen;
  if (*end && *seen != count && count != SIZE_UNKNOWN)
    return STATUS(SHOAL_FAILED_PRECONDITION, "Input dataset was expected to contain %s but contained only %s.",
                  elements_text(count, expected, sizeof expected), elements_text(*seen, got, sizeof got));
  if (!*end && count >= 0 && *seen > count) {
    tensors_release(out, it->of->n);
    return STATUS(SHOAL_FAILED_PRECONDITION, "Input dataset was expected to contain %s but contained at least %s.",
                  elements_text(count, expected, sizeof expected), elements_text(*seen, got, sizeof got));
  }
  return NULL;
}

static const struct data_iterator_type promised_iter_type = {sizeof(struct promised_iter), promised_next, NULL};

static shoal_status promised_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&promised_iter_type, d);
  return NULL;
}

static int64_t promised_size(const struct dataset *d) { return ((const struct promised *)d)->count; }

static const struct dataset_type promised_type = {"AssertCardinality", promised_iterate, promised_size, NULL};

struct dataset *dataset_assert_size(struct dataset *in, int64_t count) {
  struct promised *p = (struct promised *)dataset_new(sizeof *p, &promised_type, in->n, in->types, in->shapes, &in, 1);
  p->count = count;
  return &p->head;
}
