/* Copies between views on a card: views.cu. */
#include <stdio.h>

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

shoal_status cuda_views_find(struct cuda_device *c) {
  char name[16];
  for (int i = 0; i < CUDA_VIEWS; i++) {
    snprintf(name, sizeof name, "view_%d", 1 << i);
    TRY(cuda_function(c, "views", name, 0, 0, &c->views[i]));
  }
  return NULL;
}

/* Sizes are powers of two: the number of the function is the logarithm. */
static CUfunction view_of(const struct cuda_device *c, size_t size) {
  int i = 0;
  while (i < CUDA_VIEWS - 1 && size > (size_t)1 << i) i++;
  return c->views[i];
}

static shoal_status queue_view(struct cuda_device *c, struct cuda_view *v, const struct tensor *to, int64_t to_at,
                               const struct tensor *from, int64_t from_at) {
  size_t size = dtype_size((shoal_dtype)to->dtype);
  void *at = (char *)to->data + to_at * (int64_t)size, *of = (char *)from->data + from_at * (int64_t)size;
  TRY(cuda_use(c, to));
  TRY(cuda_use(c, from));
  return cuda_launch(c, view_of(c, size), cuda_blocks(c, v->n), 1, CUDA_BLOCK, (void *[]){&at, &of, v});
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
