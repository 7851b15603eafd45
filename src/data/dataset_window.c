/* Windows: every shift-th element begins one, of every stride-th element from there on; each is a dataset for every
 * component, or a batch. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/vec.h"
#include "data/dataset_rows.h"

struct window_dataset {
  struct dataset head;
  int64_t size, shift, stride;
  bool drop;
  bool stacked; /* sliding: a window is a batch, not a dataset */
};

struct window_iter {
  struct data_iterator head;
  VEC(struct tensor) buffer; /* elements from the window's first on, one after another */
  VEC(shoal_status) failed;  /* by element: why there is none; only a window that needs it fails */
  int64_t skip;              /* elements to drop before the next window */
  bool ended;
};

static void window_free(struct data_iterator *it) {
  struct window_iter *w = (struct window_iter *)it;
  tensors_release(w->buffer.at, (int)w->buffer.n);
  vec_release(&w->buffer);
  for (size_t i = 0; i < w->failed.n; i++) shoal_status_free(w->failed.at[i]);
  vec_release(&w->failed);
}

/* Elements [0, n) have been passed by. */
static void drop_first(struct window_iter *w, size_t n, size_t width) {
  tensors_release(w->buffer.at, (int)(n * width));
  for (size_t i = 0; i < n; i++) shoal_status_free(w->failed.at[i]);
  for (size_t i = n * width; i < w->buffer.n; i++) w->buffer.at[i - n * width] = w->buffer.at[i];
  for (size_t i = n; i < w->failed.n; i++) w->failed.at[i - n] = w->failed.at[i];
  w->buffer.n -= n * width;
  w->failed.n -= n;
}

static shoal_status fill(struct window_iter *w, struct data_ctx *ctx, int n, int64_t want) {
  struct data_iterator *in;
  TRY(iterator_input(&w->head, &in));
  while (!w->ended && ((int64_t)w->buffer.n < want * n || w->skip > 0)) {
    vec_reserve(&w->buffer, w->buffer.n + (size_t)MAX(n, 1));
    for (int i = 0; i < n; i++) w->buffer.at[w->buffer.n + (size_t)i] = tensor_none();
    shoal_status s = iterator_next(in, ctx, w->buffer.at + w->buffer.n, &w->ended);
    if (s && data_ended(ctx)) return s;
    if (!s && w->ended) break;
    if (w->skip > 0) {
      w->skip--;
      shoal_status_free(s);
      tensors_release(w->buffer.at + w->buffer.n, n);
    } else {
      w->buffer.n += (size_t)n;
      vec_push(&w->failed, s);
    }
  }
  return NULL;
}

/* From the first element of a window to its last. */
static int64_t span_of(const struct window_dataset *b) {
  int64_t span;
  return mul_overflows(b->size - 1, b->stride, &span) || span >= INT64_MAX / DATASET_MAX_COMPONENTS
             ? INT64_MAX / DATASET_MAX_COMPONENTS
             : span + 1;
}

static shoal_status give_datasets(const struct window_iter *w, int64_t rows, struct tensor *out) {
  const struct dataset *in = w->head.of->inputs[0];
  int64_t stride = ((const struct window_dataset *)w->head.of)->stride;
  for (int c = 0; c < in->n; c++) {
    struct dataset *d = elements_new(1, &in->types[c], &in->shapes[c]);
    for (int64_t r = 0; r < rows; r++) {
      struct tensor t;
      tensor_ref(&t, &w->buffer.at[r * stride * in->n + c]);
      elements_add(d, &t);
    }
    shoal_status s = dataset_to_tensor(d, &out[c]);
    if (s) tensors_release(out, c);
    TRY(s);
  }
  return NULL;
}

/* The rows stand stride elements apart in the buffer: as components of rows that much wider. */
static shoal_status give_batch(const struct window_iter *w, int64_t rows, struct tensor *out) {
  int n = w->head.of->n;
  int64_t stride = rows > 1 ? ((const struct window_dataset *)w->head.of)->stride : 1;
  for (int c = 0; c < n; c++) {
    shoal_status s = rows_stack(w->buffer.at, rows, (int)stride * n, c, &out[c]);
    if (s) tensors_release(out, c);
    TRY(s);
  }
  return NULL;
}

static shoal_status window_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct window_iter *w = (struct window_iter *)it;
  const struct window_dataset *b = (const struct window_dataset *)it->of;
  const struct dataset *in = it->of->inputs[0];
  int64_t span = span_of(b);
  TRY(fill(w, ctx, in->n, span));
  int64_t have = in->n ? (int64_t)w->buffer.n / in->n : 0;
  *end = have == 0 || (b->drop && have < span);
  if (*end) return NULL;
  int64_t rows = MIN(b->size, (have - 1) / b->stride + 1), gone = MIN(b->shift, have);
  w->skip = b->shift - gone;
  for (int64_t r = 0; r < rows; r++) {
    shoal_status s = w->failed.at[r * b->stride];
    if (!s) continue;
    s = status_copy(s);
    drop_first(w, (size_t)gone, (size_t)in->n);
    return s;
  }
  shoal_status s = b->stacked ? give_batch(w, rows, out) : give_datasets(w, rows, out);
  drop_first(w, (size_t)gone, (size_t)in->n);
  return s;
}

static int64_t window_size(const struct dataset *d) {
  const struct window_dataset *b = (const struct window_dataset *)d;
  int64_t n = dataset_size(d->inputs[0]), span = span_of(b);
  if (n < 0) return n;
  if (!b->drop) return n / b->shift + (n % b->shift ? 1 : 0);
  return n < span ? 0 : (n - span) / b->shift + 1;
}

static const struct data_iterator_type window_iter_type = {sizeof(struct window_iter), window_next, window_free};

static shoal_status window_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&window_iter_type, d);
  return NULL;
}

static const struct dataset_type window_type = {"Window", window_iterate, window_size, NULL};

struct dataset *dataset_window(struct dataset *in, int64_t size, int64_t shift, int64_t stride, bool drop) {
  struct window_dataset *b =
      (struct window_dataset *)dataset_new(sizeof *b, &window_type, in->n, in->types, in->shapes, &in, 1);
  for (int i = 0; i < in->n; i++) {
    b->head.types[i] = SHOAL_VARIANT;
    b->head.shapes[i] = shape_scalar();
  }
  b->size = size;
  b->shift = shift;
  b->stride = stride;
  b->drop = drop;
  return &b->head;
}

struct dataset *dataset_sliding(struct dataset *in, int64_t size, int64_t shift, int64_t stride, bool drop) {
  struct window_dataset *b = (struct window_dataset *)dataset_window(in, size, shift, stride, drop);
  b->stacked = true;
  for (int i = 0; i < in->n; i++) {
    b->head.types[i] = in->types[i];
    b->head.shapes[i] = batch_shape(&in->shapes[i], -1);
  }
  return &b->head;
}
