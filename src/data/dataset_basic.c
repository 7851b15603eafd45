/* Datasets of values in memory, and those that only choose among their inputs' elements. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/text.h"
#include "data/dataset.h"

static shoal_status iterate_simply(const struct data_iterator_type *type, struct dataset *d,
                                   struct data_iterator **out) {
  *out = iterator_new(type, d);
  return NULL;
}

#define ITERATE(name, type) \
  static shoal_status name(struct dataset *d, struct data_iterator **out) { return iterate_simply(&(type), d, out); }

/* ---- one element; or slices of the first dimension ---- */

struct tensors {
  struct dataset head;
  struct tensor *t; /* [n] */
  int64_t rows;     /* slices: how many */
};

struct at_iter {
  struct data_iterator head;
  int64_t at;
};

static void tensors_free(struct dataset *d) {
  struct tensors *s = (struct tensors *)d;
  tensors_release(s->t, d->n);
  free(s->t);
}

static shoal_status one_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct tensors *s = (struct tensors *)it->of;
  *end = ((struct at_iter *)it)->at++ > 0;
  for (int i = 0; !*end && i < it->of->n; i++) tensor_ref(&out[i], &s->t[i]);
  return NULL;
}

static shoal_status at_skip(struct data_iterator *it, struct data_ctx *ctx, bool *end) {
  int64_t *at = &((struct at_iter *)it)->at;
  *end = *at >= dataset_size(it->of);
  if (!*end) ++*at;
  return NULL;
}

static int64_t one_size(const struct dataset *d) { return 1; }

static const struct data_iterator_type one_iter = {sizeof(struct at_iter), one_next, NULL, at_skip};
ITERATE(one_iterate, one_iter)
static const struct dataset_type one_type = {"Tensor", one_iterate, one_size, tensors_free};

static struct tensors *keep_tensors(const struct dataset_type *type, const struct tensor *t, int n, bool sliced) {
  shoal_dtype *types = mem_zalloc((size_t)n, sizeof *types);
  struct shape *shapes = mem_zalloc((size_t)n, sizeof *shapes);
  for (int i = 0; i < n; i++) {
    types[i] = (shoal_dtype)t[i].dtype;
    shapes[i] = tensor_shape(&t[i]);
    if (!sliced) continue;
    for (int k = 1; k < shapes[i].rank; k++) shapes[i].dims[k - 1] = shapes[i].dims[k];
    shapes[i].rank--;
  }
  struct tensors *d = (struct tensors *)dataset_new(sizeof *d, type, n, types, shapes, NULL, 0);
  d->t = mem_zalloc((size_t)n, sizeof *d->t);
  for (int i = 0; i < n; i++) tensor_ref(&d->t[i], &t[i]);
  free(types);
  free(shapes);
  return d;
}

struct dataset *dataset_of_tensors(const struct tensor *t, int n) {
  return &keep_tensors(&one_type, t, n, false)->head;
}

/* Row i of a tensor, as a tensor of one dimension less. Buffers must be aligned for kernels, so rows are copied. */
static shoal_status take_row(const struct tensor *t, int64_t row, struct tensor *out) {
  TRY(tensor_new_dims(out, (shoal_dtype)t->dtype, t->rank - 1, t->dims + 1));
  size_t size = dtype_size((shoal_dtype)t->dtype);
  elements_copy((shoal_dtype)t->dtype, out->data, (const char *)t->data + (size_t)(row * out->n) * size, out->n);
  return NULL;
}

static shoal_status slice_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct tensors *s = (struct tensors *)it->of;
  int64_t *at = &((struct at_iter *)it)->at;
  *end = *at >= s->rows;
  for (int i = 0; !*end && i < it->of->n; i++) {
    shoal_status bad = take_row(&s->t[i], *at, &out[i]);
    if (bad) {
      tensors_release(out, i);
      return bad;
    }
  }
  ++*at;
  return NULL;
}

static int64_t slice_size(const struct dataset *d) { return ((const struct tensors *)d)->rows; }

static const struct data_iterator_type slice_iter = {sizeof(struct at_iter), slice_next, NULL, at_skip};
ITERATE(slice_iterate, slice_iter)
static const struct dataset_type slice_type = {"TensorSlice", slice_iterate, slice_size, tensors_free};

shoal_status dataset_of_slices(const struct tensor *t, int n, struct dataset **out) {
  for (int i = 0; i < n; i++) {
    if (t[i].rank < 1) return INVALID("All components must be at least 1-dimensional");
    if (t[i].dims[0] != t[0].dims[0]) return INVALID("All components must have the same size in the 0th dimension");
  }
  struct tensors *d = keep_tensors(&slice_type, t, n, true);
  d->rows = n ? t[0].dims[0] : 0;
  *out = &d->head;
  return NULL;
}

/* ---- range ---- */

struct range {
  struct dataset head;
  int64_t start, stop, step;
};

static int64_t range_size(const struct dataset *d) {
  const struct range *r = (const struct range *)d;
  if (r->step > 0 ? r->start >= r->stop : r->start <= r->stop) return 0;
  uint64_t span = r->step > 0 ? (uint64_t)r->stop - (uint64_t)r->start : (uint64_t)r->start - (uint64_t)r->stop;
  uint64_t by = r->step > 0 ? (uint64_t)r->step : 0 - (uint64_t)r->step;
  return (int64_t)MIN((span - 1) / by + 1, (uint64_t)INT64_MAX);
}

static shoal_status range_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  const struct range *r = (const struct range *)it->of;
  int64_t *at = &((struct at_iter *)it)->at;
  *end = *at >= range_size(it->of);
  if (*end) return NULL;
  int64_t v = (int64_t)((uint64_t)r->start + (uint64_t)(*at)++ * (uint64_t)r->step);
  shoal_dtype type = it->of->types[0];
  TRY(tensor_new_scalar(&out[0], type));
  switch (type) {
    case SHOAL_INT64:
    case SHOAL_UINT64: *T_DATA(&out[0], int64_t) = v; return NULL;
    case SHOAL_INT32:
    case SHOAL_UINT32: *T_DATA(&out[0], int32_t) = (int32_t)v; return NULL;
    case SHOAL_INT16:
    case SHOAL_UINT16: *T_DATA(&out[0], int16_t) = (int16_t)v; return NULL;
    case SHOAL_INT8:
    case SHOAL_UINT8: *T_DATA(&out[0], int8_t) = (int8_t)v; return NULL;
    case SHOAL_FLOAT32: *T_DATA(&out[0], float) = (float)v; return NULL;
    case SHOAL_FLOAT64: *T_DATA(&out[0], double) = (double)v; return NULL;
    case SHOAL_FLOAT16: *T_DATA(&out[0], f16) = f16_from_float((float)v); return NULL;
    case SHOAL_BFLOAT16: *T_DATA(&out[0], bf16) = bf16_from_float((float)v); return NULL;
    default: tensor_release(&out[0]); return INVALID("Unsupported data type: %s", dtype_tf_name(type));
  }
}

static const struct data_iterator_type range_iter = {sizeof(struct at_iter), range_next, NULL, at_skip};
ITERATE(range_iterate, range_iter)
static const struct dataset_type range_type = {"Range", range_iterate, range_size, NULL};

struct dataset *dataset_range(int64_t start, int64_t stop, int64_t step, shoal_dtype type) {
  struct shape scalar = shape_scalar();
  struct range *r = (struct range *)dataset_new(sizeof *r, &range_type, 1, &type, &scalar, NULL, 0);
  r->start = start;
  r->stop = stop;
  r->step = step;
  return &r->head;
}

/* ---- take, skip, repeat, shard: a count and a place ---- */

struct counted {
  struct dataset head;
  int64_t count, index;
  bool flag;
};

static struct dataset *counted_new(const struct dataset_type *type, struct dataset *in, int64_t count, int64_t index,
                                   bool flag) {
  struct counted *d = (struct counted *)dataset_new(sizeof *d, type, in->n, in->types, in->shapes, &in, 1);
  d->count = count;
  d->index = index;
  d->flag = flag;
  return &d->head;
}

static const struct counted *counted(const struct data_iterator *it) { return (const struct counted *)it->of; }

/* out NULL: the element is passed by. */
static shoal_status next_or_skip(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  return out ? iterator_next(it, ctx, out, end) : iterator_skip(it, ctx, end);
}

static shoal_status take_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  int64_t *at = &((struct at_iter *)it)->at, count = counted(it)->count;
  struct data_iterator *in;
  *end = count >= 0 && *at >= count;
  if (*end) return NULL;
  TRY(iterator_input(it, &in));
  TRY(next_or_skip(in, ctx, out, end));
  if (!*end) ++*at;
  else if (count >= 0) *at = count;
  return NULL;
}

static shoal_status take_skip(struct data_iterator *it, struct data_ctx *ctx, bool *end) {
  return take_next(it, ctx, NULL, end);
}

static shoal_status take_begin(struct data_iterator *it) {
  struct data_iterator *in;
  return counted(it)->count ? iterator_input(it, &in) : NULL;
}

static int64_t take_size(const struct dataset *d) {
  int64_t n = dataset_size(d->inputs[0]), count = ((const struct counted *)d)->count;
  if (count < 0) return n;
  if (n == SIZE_INFINITE || count == 0) return count;
  return n == SIZE_UNKNOWN ? SIZE_UNKNOWN : MIN(n, count);
}

static const struct data_iterator_type take_iter = {sizeof(struct at_iter), take_next, NULL, take_skip, take_begin};
ITERATE(take_iterate, take_iter)
static const struct dataset_type take_type = {"Take", take_iterate, take_size, NULL};

struct dataset *dataset_take(struct dataset *in, int64_t count) {
  return counted_new(&take_type, in, count, 0, false);
}

/* Passes n elements by; out: room for one, NULL: they need not be made. One that fails leaves the caller's count as it
 * was before the first of them, as in TensorFlow: all n are passed by anew. */
static shoal_status pass_by(struct data_iterator *in, struct data_ctx *ctx, struct tensor *out, int64_t n, bool *end) {
  for (; n > 0 && !*end; n--) {
    TRY(next_or_skip(in, ctx, out, end));
    if (out && !*end) tensors_release(out, in->of->n);
  }
  return NULL;
}

static shoal_status skip_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  int64_t *at = &((struct at_iter *)it)->at, count = counted(it)->count;
  struct data_iterator *in;
  *end = count < 0;
  if (*end) return NULL;
  TRY(iterator_input(it, &in));
  TRY(pass_by(in, ctx, counted(it)->flag ? NULL : out, count - *at, end));
  if (*end) return NULL;
  *at = count;
  return iterator_next(in, ctx, out, end);
}

static shoal_status skip_begin(struct data_iterator *it) {
  struct data_iterator *in;
  return counted(it)->count >= 0 ? iterator_input(it, &in) : NULL;
}

static int64_t skip_size(const struct dataset *d) {
  int64_t n = dataset_size(d->inputs[0]), count = ((const struct counted *)d)->count;
  if (count < 0) return 0;
  return n < 0 ? n : MAX(0, n - count);
}

static const struct data_iterator_type skip_iter = {sizeof(struct at_iter), skip_next, .begin = skip_begin};
ITERATE(skip_iterate, skip_iter)
static const struct dataset_type skip_type = {"Skip", skip_iterate, skip_size, NULL};

struct dataset *dataset_skip(struct dataset *in, int64_t count, bool unmade) {
  return counted_new(&skip_type, in, count, 0, unmade);
}

struct repeat_iter {
  struct data_iterator head;
  int64_t round;
  bool any; /* this round has given an element */
};

/* A number of rounds has the iterator of the next one made as soon as the last has ended, even when there is no next
 * one. (Where TensorFlow makes one dataset of shuffle and repeat there is none too many.) */
static shoal_status repeat_begin(struct data_iterator *it) {
  const char *op = it->of->inputs[0]->op;
  bool shuffle = op && str_starts(op, "ShuffleDataset");
  struct data_iterator *in;
  return counted(it)->count > (shuffle ? ((const struct repeat_iter *)it)->round : 0) ? iterator_input(it, &in) : NULL;
}

static shoal_status repeat_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct repeat_iter *r = (struct repeat_iter *)it;
  int64_t count = counted(it)->count;
  struct data_iterator *in;
  for (;;) {
    *end = count >= 0 && r->round >= count;
    if (*end) return NULL;
    TRY(iterator_input(it, &in));
    TRY(next_or_skip(in, ctx, out, end));
    if (!*end) {
      r->any = true;
      return NULL;
    }
    if (count < 0 && !r->any) return NULL; /* an empty input repeated for ever is empty */
    iterator_free(it->in);
    it->in = NULL;
    r->round++;
    r->any = false;
    TRY(repeat_begin(it));
  }
}

static shoal_status repeat_skip(struct data_iterator *it, struct data_ctx *ctx, bool *end) {
  return repeat_next(it, ctx, NULL, end);
}

static int64_t repeat_size(const struct dataset *d) {
  int64_t n = dataset_size(d->inputs[0]), count = ((const struct counted *)d)->count;
  return size_times(n, count < 0 ? SIZE_INFINITE : count);
}

static const struct data_iterator_type repeat_iter_type = {sizeof(struct repeat_iter), repeat_next, NULL, repeat_skip,
                                                           repeat_begin};
ITERATE(repeat_iterate, repeat_iter_type)
static const struct dataset_type repeat_type = {"Repeat", repeat_iterate, repeat_size, NULL};

struct dataset *dataset_repeat(struct dataset *in, int64_t count) {
  return counted_new(&repeat_type, in, count, 0, false);
}

/* With the first element of its own a shard looks for those of all others, where none may be empty. */
static shoal_status see_others(struct data_iterator *in, struct data_ctx *ctx, int64_t seen, int64_t shards) {
  struct tensor *t = mem_zalloc((size_t)MAX(in->of->n, 1), sizeof *t);
  bool end = false;
  shoal_status s = pass_by(in, ctx, t, shards - seen, &end);
  free(t);
  if (!end && (!s || shoal_status_code(s) != SHOAL_OUT_OF_RANGE)) return s;
  shoal_status_free(s);
  return INVALID("There aren't enough elements in this dataset for each of %" PRId64 " shards to have at least one",
                 shards);
}

static shoal_status shard_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  const struct counted *s = counted(it);
  int64_t *at = &((struct at_iter *)it)->at;
  struct data_iterator *in;
  if (s->count == SHARD_HINT)
    return STATUS(SHOAL_FAILED_PRECONDITION,
                  "`tf.data.Dataset.shard(SHARD_HINT, ...)` can only be used where a strategy distributes the dataset, "
                  "with the auto shard policy HINT");
  TRY(iterator_input(it, &in));
  int64_t others = (s->index - *at % s->count + s->count) % s->count;
  TRY(pass_by(in, ctx, out, others, end));
  if (*end) return NULL;
  *at += others;
  TRY(iterator_next(in, ctx, out, end));
  if (*end) return NULL;
  ++*at;
  if (!s->flag || *at >= s->count) return NULL;
  shoal_status bad = see_others(in, ctx, *at, s->count);
  if (bad) tensors_release(out, it->of->n);
  else *at = s->count;
  return bad;
}

static int64_t shard_size(const struct dataset *d) {
  const struct counted *s = (const struct counted *)d;
  int64_t n = dataset_size(d->inputs[0]);
  if (s->count == SHARD_HINT) return SIZE_UNKNOWN;
  return n < 0 ? n : n / s->count + (s->index < n % s->count);
}

static const struct data_iterator_type shard_iter = {sizeof(struct at_iter), shard_next, NULL};
ITERATE(shard_iterate, shard_iter)
static const struct dataset_type shard_type = {"Shard", shard_iterate, shard_size, NULL};

struct dataset *dataset_shard(struct dataset *in, int64_t shards, int64_t index, bool require_non_empty) {
  return counted_new(&shard_type, in, shards, index, require_non_empty);
}

/* ---- concatenate, zip ---- */

struct many_iter {
  struct data_iterator head;
  struct data_iterator **in; /* [n_inputs], made when needed */
  int at;
};

static void many_free(struct data_iterator *it) {
  struct many_iter *m = (struct many_iter *)it;
  for (int i = 0; m->in && i < it->of->n_inputs; i++) iterator_free(m->in[i]);
  free(m->in);
}

static shoal_status input_at(struct many_iter *m, int i, struct data_iterator **out) {
  struct dataset *of = m->head.of;
  if (!m->in) m->in = mem_zalloc((size_t)of->n_inputs, sizeof *m->in);
  if (!m->in[i]) TRY(dataset_iterate(of->inputs[i], &m->in[i]));
  *out = m->in[i];
  return NULL;
}

static shoal_status concatenate_begin(struct data_iterator *it) {
  struct data_iterator *in;
  return input_at((struct many_iter *)it, 0, &in);
}

static shoal_status concatenate_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct many_iter *m = (struct many_iter *)it;
  struct data_iterator *in;
  *end = true;
  for (; *end && m->at < it->of->n_inputs; m->at += *end) {
    TRY(input_at(m, m->at, &in));
    TRY(iterator_next(in, ctx, out, end));
  }
  return NULL;
}

static int64_t concatenate_size(const struct dataset *d) {
  return size_add(dataset_size(d->inputs[0]), dataset_size(d->inputs[1]));
}

static const struct data_iterator_type concatenate_iter = {sizeof(struct many_iter), concatenate_next, many_free,
                                                           .begin = concatenate_begin};
ITERATE(concatenate_iterate, concatenate_iter)
static const struct dataset_type concatenate_type = {"Concatenate", concatenate_iterate, concatenate_size, NULL};

shoal_status dataset_concatenate(struct dataset *a, struct dataset *b, struct dataset **out) {
  bool fits = a->n == b->n;
  for (int i = 0; fits && i < a->n; i++) fits = a->types[i] == b->types[i];
  if (!fits) return INVALID("input dataset and dataset to concatenate have different output_types");
  struct dataset *in[2] = {a, b};
  *out = dataset_new(sizeof **out, &concatenate_type, a->n, a->types, a->shapes, in, 2);
  dataset_widen(*out, b);
  return NULL;
}

/* All inputs go on where one fails, so that what is zipped later still belongs together; the first error is told. */
static shoal_status zip_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct many_iter *m = (struct many_iter *)it;
  shoal_status err = NULL;
  int filled = 0;
  *end = it->of->n_inputs == 0;
  for (int i = 0; i < it->of->n_inputs && !*end; i++) {
    struct data_iterator *in;
    shoal_status s = input_at(m, i, &in);
    if (!s) s = iterator_next(in, ctx, out + filled, end);
    filled += it->of->inputs[i]->n;
    status_merge(&err, s);
  }
  if (err || *end) tensors_release(out, filled);
  return err;
}

static shoal_status zip_begin(struct data_iterator *it) {
  struct data_iterator *in;
  for (int i = 0; i < it->of->n_inputs; i++) TRY(input_at((struct many_iter *)it, i, &in));
  return NULL;
}

static shoal_status zip_skip(struct data_iterator *it, struct data_ctx *ctx, bool *end) {
  shoal_status err = NULL;
  *end = it->of->n_inputs == 0;
  for (int i = 0; i < it->of->n_inputs && !*end; i++) {
    struct data_iterator *in;
    shoal_status s = input_at((struct many_iter *)it, i, &in);
    if (!s) s = iterator_skip(in, ctx, end);
    status_merge(&err, s);
  }
  return err;
}

static int64_t zip_size(const struct dataset *d) {
  int64_t least = SIZE_INFINITE;
  for (int i = 0; i < d->n_inputs; i++) {
    int64_t n = dataset_size(d->inputs[i]);
    if (n == SIZE_UNKNOWN) return SIZE_UNKNOWN;
    if (n != SIZE_INFINITE && (least == SIZE_INFINITE || n < least)) least = n;
  }
  return least;
}

static const struct data_iterator_type zip_iter = {sizeof(struct many_iter), zip_next, many_free, zip_skip, zip_begin};
ITERATE(zip_iterate, zip_iter)
static const struct dataset_type zip_type = {"Zip", zip_iterate, zip_size, NULL};

struct dataset *dataset_zip(struct dataset *const *in, int n_in) {
  int n = 0;
  for (int i = 0; i < n_in; i++) n += in[i]->n;
  shoal_dtype *types = mem_zalloc((size_t)n, sizeof *types);
  struct shape *shapes = mem_zalloc((size_t)n, sizeof *shapes);
  n = 0;
  for (int i = 0; i < n_in; i++)
    for (int k = 0; k < in[i]->n; k++, n++) {
      types[n] = in[i]->types[k];
      shapes[n] = in[i]->shapes[k];
    }
  struct dataset *d = dataset_new(sizeof *d, &zip_type, n, types, shapes, in, n_in);
  free(types);
  free(shapes);
  return d;
}
