/* Plans for broadcasting, and the walk over one. */
#include "ops/math/broadcast.h"

#include "base/mem.h"

/* The size of dimension d of the output as operand s has it: 1 where s has fewer dimensions. */
static int64_t size_at(const struct shape *s, int rank, int d) {
  int i = d - (rank - s->rank);
  return i < 0 ? 1 : s->dims[i];
}

shoal_status broadcast_plan_shapes(struct broadcast *b, const struct shape *in, int n_in) {
  MUST(n_in >= 1 && n_in <= BROADCAST_MAX);
  b->n_in = n_in;
  b->out = in[0];
  for (int k = 1; k < n_in; k++) TRY(shape_broadcast(&b->out, &in[k], &b->out));
  TRY(shape_elements(&b->out, &b->n));
  int rank = b->out.rank, r = 0;
  int64_t walked[BROADCAST_MAX]; /* elements of each operand inside dimension d */
  for (int k = 0; k < n_in; k++) walked[k] = 1;
  /* From the innermost outwards, into reversed arrays. */
  for (int d = rank - 1; d >= 0; d--) {
    int64_t size = b->out.dims[d];
    if (size == 1) continue;
    bool merge = r > 0;
    int64_t step[BROADCAST_MAX];
    for (int k = 0; k < n_in; k++) {
      step[k] = size_at(&in[k], rank, d) == 1 ? 0 : walked[k];
      if (r && step[k] != b->step[k][r - 1] * b->dims[r - 1]) merge = false;
    }
    if (merge) b->dims[r - 1] *= size;
    else {
      for (int k = 0; k < n_in; k++) b->step[k][r] = step[k];
      b->dims[r++] = size;
    }
    for (int k = 0; k < n_in; k++) walked[k] *= size_at(&in[k], rank, d);
  }
  if (r == 0) {
    for (int k = 0; k < n_in; k++) b->step[k][0] = 1;
    b->dims[r++] = 1;
  }
  b->rank = r;
  for (int i = 0, j = r - 1; i < j; i++, j--) {
    int64_t t = b->dims[i];
    b->dims[i] = b->dims[j];
    b->dims[j] = t;
    for (int k = 0; k < n_in; k++) {
      t = b->step[k][i];
      b->step[k][i] = b->step[k][j];
      b->step[k][j] = t;
    }
  }
  return NULL;
}

shoal_status broadcast_plan(struct broadcast *b, const struct tensor *const *in, int n_in) {
  MUST(n_in >= 1 && n_in <= BROADCAST_MAX);
  struct shape shapes[BROADCAST_MAX];
  for (int k = 0; k < n_in; k++) shapes[k] = tensor_shape(in[k]);
  return broadcast_plan_shapes(b, shapes, n_in);
}

void broadcast_each(const struct broadcast *b, int64_t begin, int64_t end, broadcast_run run, void *arg) {
  if (begin >= end) return;
  int last = b->rank - 1;
  int64_t index[SHOAL_MAX_RANK], at[BROADCAST_MAX] = {0}, rest = begin;
  for (int d = last; d >= 0; d--) {
    index[d] = rest % b->dims[d];
    rest /= b->dims[d];
    for (int k = 0; k < b->n_in; k++) at[k] += index[d] * b->step[k][d];
  }
  int64_t i = begin;
  for (;;) {
    int64_t n = MIN(b->dims[last] - index[last], end - i);
    run(arg, i, at, n);
    i += n;
    if (i >= end) return;
    /* To the start of the next run: back over this one, then carry. */
    for (int k = 0; k < b->n_in; k++) at[k] -= index[last] * b->step[k][last];
    index[last] = 0;
    for (int d = last - 1; d >= 0; d--) {
      index[d]++;
      for (int k = 0; k < b->n_in; k++) at[k] += b->step[k][d];
      if (index[d] < b->dims[d]) break;
      for (int k = 0; k < b->n_in; k++) at[k] -= b->dims[d] * b->step[k][d];
      index[d] = 0;
    }
  }
}
