#include "cli/bench_rank.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tensor/tensor.h"

enum { BATCH = 200, BATCH_BYTES = 4 << 20, WARM_UP = 2 };

shoal_status bench_rank_init(struct bench_rank *b, const struct bench_case *c, int rank,
                             shoal_status (*reduce)(struct bench_rank *b)) {
  *b = (struct bench_rank){
      .reduce = reduce, .request = {.rank = rank, .size = c->ranks, .n = c->elements}, .element = dtype_size(c->dtype)};
  b->data = mem_try_alloc((size_t)c->bytes);
  if (!b->data) return NO_MEMORY(c->bytes, "one of the processes");
  return collective_loops_init(&b->loops, "Add", "Id", c->dtype);
}

void bench_rank_release(struct bench_rank *b) { free(b->data); }

void bench_rank_run(struct bench_rank *b, struct collective_run *out) {
  *out = (struct collective_run){.program = b->program,
                                 .request = &b->request,
                                 .id = {.instance_key = b->instance++},
                                 .transport = b->transport,
                                 .arithmetic = &b->loops.head,
                                 .members = b->request.size,
                                 .element = b->element,
                                 .in = b->data,
                                 .out = b->data};
}

static void fill(const struct bench_case *c, const struct bench_rank *b, double v) {
  for (int64_t i = 0; i < c->elements; i++) {
    char *at = (char *)b->data + (size_t)i * b->element;
    float f = (float)v;
    switch (c->dtype) {
      case SHOAL_FLOAT64: *(double *)at = v; break;
      case SHOAL_INT32: *(int32_t *)at = (int32_t)v; break;
      case SHOAL_INT64: *(int64_t *)at = (int64_t)v; break;
      case SHOAL_FLOAT32: *(float *)at = f; break;
      default: half_from_float(c->dtype, at, &f, 1);
    }
  }
}

/* Ranks begin with 1, 2, 4, ...; modulo 5, so that sums are exact in every type. */
static double begins_with(int rank) { return 1 << rank % 5; }

static shoal_status check(const struct bench_case *c, struct bench_rank *b) {
  size_t bytes = (size_t)c->bytes;
  double sum = 0;
  for (int r = 0; r < c->ranks; r++) sum += begins_with(r);
  fill(c, b, begins_with(b->request.rank));
  TRY(b->reduce(b));
  void *got = b->data;
  b->data = mem_alloc(bytes);
  fill(c, b, sum);
  bool same = !memcmp(got, b->data, bytes);
  free(b->data);
  b->data = got;
  return same ? NULL : INTERNAL("The sum of %d ranks is wrong", c->ranks);
}

shoal_status bench_rank_measure(struct bench_rank *b, const struct bench_case *c, double *seconds) {
  int batch = (int)MAX(MIN(BATCH_BYTES / c->bytes, BATCH), 1);
  TRY(check(c, b));
  fill(c, b, 0);
  for (int i = -WARM_UP; i < c->iters; i++) {
    int64_t began = clock_ns();
    for (int k = 0; k < batch; k++) TRY(b->reduce(b));
    if (i >= 0 && seconds) seconds[i] = (double)(clock_ns() - began) * 1e-9 / batch;
  }
  return NULL;
}
