/* Copies between views on a card: views.cu. */
#include "device/cuda/cuda_kernel.h"
#include "tensor/strided.h"

struct cuda_view { /* as views.cu has it */
  int64_t n;
  int32_t rank;
  uint32_t dims[SHOAL_MAX_RANK];
  int64_t to[SHOAL_MAX_RANK], from[SHOAL_MAX_RANK];
};

/* Can the dimension that is there be walked on into the next, inner one? */
static bool joins(const struct cuda_view *v, const struct strided *s, int i) {
  int last = v->rank - 1;
  return v->rank && v->to[last] == s->to[i] * s->dims[i] && v->from[last] == s->from[i] * s->dims[i];
}

/* Dimensions of 1 go, neighbours that are walked as one become one. */
static shoal_status simplify(const struct strided *s, struct cuda_view *v) {
  *v = (struct cuda_view){.n = 1};
  for (int i = 0; i < s->rank; i++) v->n *= s->dims[i];
  if (v->n > UINT32_MAX) return UNIMPLEMENTED("more than 2^32 elements that change their places, on a card");
  for (int i = 0; i < s->rank; i++) {
    if (s->dims[i] == 1) continue;
    if (!joins(v, s, i) && v->rank == SHOAL_MAX_RANK) return UNIMPLEMENTED("a view of so many dimensions on a card");
    uint32_t before = joins(v, s, i) ? v->dims[--v->rank] : 1;
    v->dims[v->rank] = before * (uint32_t)s->dims[i];
    v->to[v->rank] = s->to[i];
    v->from[v->rank++] = s->from[i];
  }
  if (v->rank) return NULL;
  v->rank = 1; /* one element */
  v->dims[0] = 1;
  return NULL;
}

/* Neighbours that stay neighbours move together: twice the size, half as many, as long as everything is even. */
static size_t widen(struct cuda_view *v, size_t size, uintptr_t addresses) {
  enum { MOST = 16 };
  int last = v->rank - 1;
  for (; size < MOST && v->to[last] == 1 && v->from[last] == 1; size *= 2) {
    int64_t odd = v->dims[last] % 2 || addresses % (2 * size);
    for (int i = 0; i < last; i++) odd |= v->to[i] % 2 || v->from[i] % 2;
    if (odd) break;
    for (int i = 0; i < last; i++) {
      v->to[i] /= 2;
      v->from[i] /= 2;
    }
    v->dims[last] /= 2;
    v->n /= 2;
  }
  return size;
}

/* Matrices that are turned round, one behind the other? */
static bool is_turn(const struct cuda_view *v, size_t size, struct cuda_matrices *m) {
  int r = v->rank - 2, c = v->rank - 1;
  if (size > 8 || v->rank < 2 || v->rank > 3) return false;
  *m = (struct cuda_matrices){r ? v->dims[0] : 1, v->dims[c], v->dims[r]};
  int64_t each = m->rows * m->cols;
  return v->to[c] == 1 && v->to[r] == v->dims[c] && v->from[r] == 1 && v->from[c] == v->dims[r] &&
         (!r || (v->to[0] == each && v->from[0] == each));
}

static shoal_status queue_view(struct cuda_device *c, struct cuda_view *v, const struct tensor *to, int64_t to_at,
                               const struct tensor *from, int64_t from_at) {
  size_t size = dtype_size((shoal_dtype)to->dtype);
  void *at = (char *)to->data + to_at * (int64_t)size, *of = (char *)from->data + from_at * (int64_t)size;
  struct cuda_matrices m;
  TRY(cuda_use(c, to));
  TRY(cuda_use(c, from));
  if (is_turn(v, size, &m)) return cuda_turn_queue(c, size, of, at, m);
  size = widen(v, size, (uintptr_t)at | (uintptr_t)of);
  return cuda_launch(c, cuda_for_size(c->views, CUDA_VIEWS, size), cuda_blocks(c, v->n), 1, CUDA_BLOCK,
                     (void *[]){&at, &of, v});
}

shoal_status cuda_copy_view(struct device *d, const struct strided *s, const struct tensor *to, int64_t to_at,
                            const struct tensor *from, int64_t from_at) {
  struct cuda_device *c = cuda_of(d);
  struct cuda_view v;
  TRY(simplify(s, &v));
  if (!v.n) return NULL;
  cuda_lock(c);
  shoal_status e = queue_view(c, &v, to, to_at, from, from_at);
  cuda_unlock(c);
  return e;
}
