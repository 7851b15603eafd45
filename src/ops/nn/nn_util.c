/* Shared by the neural-network families: loops over floating elements of any width. */
#include "ops/nn/nn_util.h"

#include <string.h>

#include "base/vector.h"
#include "math/narrow.h"

VECTOR_CLONES static void widen(const bf16 *from, float *to, int64_t n) {
  LOOP_FREE for (int64_t i = 0; i < n; i++) to[i] = bf16_to_float(from[i]);
}

void nn_to_float(shoal_dtype type, const void *from, float *to, int64_t n) {
  if (type == SHOAL_FLOAT16) {
    const f16 *x = from;
    for (int64_t i = 0; i < n; i++) to[i] = f16_to_float(x[i]);
  } else if (type == SHOAL_BFLOAT16) {
    widen(from, to, n);
  } else {
    memcpy(to, from, (size_t)n * sizeof *to);
  }
}

void nn_from_float(shoal_dtype type, const float *from, void *to, int64_t n) {
  if (type == SHOAL_FLOAT16) {
    f16 *x = to;
    for (int64_t i = 0; i < n; i++) x[i] = f16_from_float(from[i]);
  } else if (type == SHOAL_BFLOAT16) {
    bf16_from_floats(from, to, n);
  } else {
    memcpy(to, from, (size_t)n * sizeof *from);
  }
}

struct map {
  shoal_dtype type;
  const char *a, *b;
  char *out;
  nn_map_float fn_f;
  nn_map_double fn_d;
  const void *arg;
};

enum { BLOCK = 512 };

static void map_some(void *arg, int64_t begin, int64_t end) {
  const struct map *m = arg;
  size_t es = dtype_size(m->type);
  const char *a = m->a + (size_t)begin * es, *b = m->b ? m->b + (size_t)begin * es : NULL;
  char *out = m->out + (size_t)begin * es;
  int64_t n = end - begin;
  if (m->type == SHOAL_FLOAT32) {
    m->fn_f((const float *)a, (const float *)b, (float *)out, n, m->arg);
    return;
  }
  if (m->type == SHOAL_FLOAT64) {
    m->fn_d((const double *)a, (const double *)b, (double *)out, n, m->arg);
    return;
  }
  float fa[BLOCK], fb[BLOCK];
  for (int64_t i = 0; i < n; i += BLOCK) {
    int64_t len = MIN(BLOCK, n - i);
    nn_to_float(m->type, a + (size_t)i * es, fa, len);
    if (b) nn_to_float(m->type, b + (size_t)i * es, fb, len);
    m->fn_f(fa, b ? fb : NULL, fa, len, m->arg);
    nn_from_float(m->type, fa, out + (size_t)i * es, len);
  }
}

void nn_map(struct pool *pool, shoal_dtype type, const void *a, const void *b, void *out, int64_t n, int64_t grain,
            nn_map_float fn_f, nn_map_double fn_d, const void *arg) {
  struct map m = {type, a, b, out, fn_f, fn_d, arg};
  pool_for(pool, n, grain, map_some, &m);
}

shoal_status nn_check_same(const struct kernel_ctx *ctx, int i, int j) {
  struct shape a = tensor_shape(ctx_in(ctx, i)), b = tensor_shape(ctx_in(ctx, j));
  if (shape_equal(&a, &b)) return NULL;
  return INVALID("Inputs to operation %s of type %s must have the same size and shape.  Input %d: %s != input %d: %s",
                 ctx->kernel->name, ctx->kernel->op->name, i, shape_str(&a), j, shape_str(&b));
}

shoal_status nn_same_dim(struct shape_ctx *c, int64_t a, int64_t b) {
  if (a < 0 || b < 0 || a == b) return NULL;
  struct text t = {0};
  for (int i = 0; i < c->node->n_in; i++) {
    if (i) text_adds(&t, ", ");
    shape_print(&c->in[i], &t);
  }
  shoal_status s = INVALID("Dimensions must be equal, but are %" PRId64 " and %" PRId64
                           " for '%s' (op: '%s') with "
                           "input shapes: %s.",
                           a, b, c->node->name, c->node->op->name, text_cstr(&t));
  text_release(&t);
  return s;
}
