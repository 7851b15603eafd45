/* Running elementwise loops: choice of loop, memory for the output, broadcasting, threads.
 *
 * The case that must cost nothing is the small one: equal shapes (scalars are that too) go straight from the output's
 * allocation to the loop. Only different shapes make a plan, and only long loops see the pool. */
#include "ops/math/elementwise.h"

#include <inttypes.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "ops/math/broadcast.h"
#include "ops/math/vector_math.h"

enum { HALF_BLOCK = 512 };

/* Elements a thread takes at least: some ten microseconds of work, which is what waking another thread takes. */
static const int32_t grains[] = {[COST_MOVE] = 65536, [COST_VECTOR] = 8192, [COST_CALL] = 2048};

VECTOR_CLONES void half_to_float(shoal_dtype half, float *to, const void *from, int64_t n) {
  if (half == SHOAL_BFLOAT16) {
    const bf16 *x = from;
    for (int64_t i = 0; i < n; i++) to[i] = bf16_to_float(x[i]);
  } else {
    const f16 *x = from;
    for (int64_t i = 0; i < n; i++) to[i] = f16_to_float(x[i]);
  }
}

VECTOR_CLONES void half_from_float(shoal_dtype half, void *to, const float *from, int64_t n) {
  if (half == SHOAL_BFLOAT16) {
    bf16 *y = to;
    for (int64_t i = 0; i < n; i++) y[i] = bf16_from_float(from[i]);
  } else {
    f16 *y = to;
    for (int64_t i = 0; i < n; i++) y[i] = f16_from_float(from[i]);
  }
}

/* ---- one input ---- */

static const struct unary_loops *const unary_tables[] = {unary_basic, unary_transcendental, unary_special,
                                                         unary_predicates};

static shoal_status no_loop(const char *op, shoal_dtype t) {
  return UNIMPLEMENTED("%s has no CPU kernel for %s", op, dtype_tf_name(t));
}

shoal_status unary_loop_init(struct unary_loop *l, const char *op, shoal_dtype in, shoal_dtype out) {
  for (size_t t = 0; t < COUNT_OF(unary_tables); t++)
    for (const struct unary_loops *u = unary_tables[t]; u->op; u++) {
      if (!str_equal(u->op, op)) continue;
      *l = (struct unary_loop){.fn = u->fn[in],
                               .grain = grains[u->cost],
                               .in_size = (uint8_t)dtype_size(in),
                               .out_size = (uint8_t)dtype_size(out)};
      if (!l->fn && (in == SHOAL_FLOAT16 || in == SHOAL_BFLOAT16)) {
        l->fn = u->fn[SHOAL_FLOAT32];
        l->half = (uint8_t)in;
        l->half_out = out == in;
      }
      return l->fn ? NULL : no_loop(op, in);
    }
  return no_loop(op, in);
}

void unary_loop_run(const struct unary_loop *l, void *out, const void *in, int64_t n) {
  if (LIKELY(!l->half)) {
    l->fn(out, in, n);
    return;
  }
  float x[HALF_BLOCK];
  for (int64_t i = 0; i < n; i += HALF_BLOCK) {
    int64_t m = MIN(n - i, HALF_BLOCK);
    half_to_float((shoal_dtype)l->half, x, (const char *)in + 2 * i, m);
    if (l->half_out) {
      l->fn(x, x, m);
      half_from_float((shoal_dtype)l->half, (char *)out + 2 * i, x, m);
    } else {
      l->fn((char *)out + i * l->out_size, x, m);
    }
  }
}

shoal_status unary_init(struct kernel_init *ki, void *state) {
  const struct kernel *k = ki->kernel;
  return unary_loop_init(state, k->op->name, dtype_base(k->in_types[0]), dtype_base(k->out_types[0]));
}

struct unary_task {
  const struct unary_loop *l;
  char *out;
  const char *in;
};

static void unary_piece(void *arg, int64_t begin, int64_t end) {
  const struct unary_task *t = arg;
  unary_loop_run(t->l, t->out + begin * t->l->out_size, t->in + begin * t->l->in_size, end - begin);
}

shoal_status unary_run(struct kernel_ctx *ctx) {
  const struct unary_loop *l = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  if (LIKELY(x->n <= l->grain)) {
    unary_loop_run(l, y->data, x->data, x->n);
    return NULL;
  }
  struct unary_task t = {l, y->data, x->data};
  pool_for(ctx_pool(ctx), x->n, l->grain, unary_piece, &t);
  return NULL;
}

/* ---- two inputs ---- */

static const struct binary_loops *const binary_tables[] = {binary_arithmetic,  binary_division, binary_gradients,
                                                           binary_comparisons, binary_bitwise,  binary_special};

shoal_status binary_loop_init(struct binary_loop *l, const char *op, shoal_dtype in, shoal_dtype out) {
  for (size_t t = 0; t < COUNT_OF(binary_tables); t++)
    for (const struct binary_loops *b = binary_tables[t]; b->op; b++) {
      if (!str_equal(b->op, op)) continue;
      *l = (struct binary_loop){.fn = b->fn[in],
                                .grain = grains[b->cost],
                                .bad = b->bad,
                                .internal = b->internal,
                                .in_size = (uint8_t)dtype_size(in),
                                .out_size = (uint8_t)dtype_size(out)};
      if (!l->fn && (in == SHOAL_FLOAT16 || in == SHOAL_BFLOAT16)) {
        l->fn = b->fn[SHOAL_FLOAT32];
        l->half = (uint8_t)in;
        l->half_out = out == in;
      }
      return l->fn ? NULL : no_loop(op, in);
    }
  return no_loop(op, in);
}

unsigned binary_loop_run(const struct binary_loop *l, void *out, const void *a, const void *b, int64_t n,
                         enum binary_mode mode) {
  if (LIKELY(!l->half)) return l->fn(out, a, b, n, mode);
  shoal_dtype half = (shoal_dtype)l->half;
  float x[HALF_BLOCK], y[HALF_BLOCK];
  unsigned bad = 0;
  if (n > 0 && mode == SCALAR_VECTOR) half_to_float(half, x, a, 1);
  if (n > 0 && mode == VECTOR_SCALAR) half_to_float(half, y, b, 1);
  for (int64_t i = 0; i < n; i += HALF_BLOCK) {
    int64_t m = MIN(n - i, HALF_BLOCK);
    if (mode != SCALAR_VECTOR) half_to_float(half, x, (const char *)a + 2 * i, m);
    if (mode != VECTOR_SCALAR) half_to_float(half, y, (const char *)b + 2 * i, m);
    if (!l->half_out) {
      bad |= l->fn((char *)out + i * l->out_size, x, y, m, mode);
      continue;
    }
    float *z = mode == SCALAR_VECTOR ? y : x;
    bad |= l->fn(z, x, y, m, mode);
    half_from_float(half, (char *)out + 2 * i, z, m);
  }
  return bad;
}

shoal_status binary_init(struct kernel_init *ki, void *state) {
  const struct kernel *k = ki->kernel;
  return binary_loop_init(state, k->op->name, dtype_base(k->in_types[0]), dtype_base(k->out_types[0]));
}

static shoal_status bad_element(const struct binary_loop *l) {
  return STATUS(l->internal ? SHOAL_INTERNAL : SHOAL_INVALID_ARGUMENT, "%s", l->bad);
}

struct binary_task {
  const struct binary_loop *l;
  const struct broadcast *plan; /* NULL: equal shapes, or one scalar */
  char *out;
  const char *a, *b;
  enum binary_mode mode;
  atomic_uint bad;
};

static void binary_piece(void *arg, int64_t begin, int64_t end) {
  struct binary_task *t = arg;
  const struct binary_loop *l = t->l;
  unsigned bad =
      binary_loop_run(l, t->out + begin * l->out_size, t->mode == SCALAR_VECTOR ? t->a : t->a + begin * l->in_size,
                      t->mode == VECTOR_SCALAR ? t->b : t->b + begin * l->in_size, end - begin, t->mode);
  if (UNLIKELY(bad)) atomic_store_explicit(&t->bad, 1, memory_order_relaxed);
}

static void binary_stretch(void *arg, int64_t at, const int64_t *in_at, int64_t n) {
  struct binary_task *t = arg;
  const struct binary_loop *l = t->l;
  unsigned bad = binary_loop_run(l, t->out + at * l->out_size, t->a + in_at[0] * l->in_size,
                                 t->b + in_at[1] * l->in_size, n, t->mode);
  if (UNLIKELY(bad)) atomic_store_explicit(&t->bad, 1, memory_order_relaxed);
}

static void binary_planned_piece(void *arg, int64_t begin, int64_t end) {
  struct binary_task *t = arg;
  broadcast_each(t->plan, begin, end, binary_stretch, t);
}

/* Rows of few columns against one such row (biases of small layers): the row is repeated in a tile, so that the loop
 * runs over many rows at once. */
enum { TILE = 256 };

struct tile_task {
  struct binary_task t;
  int64_t rows, columns, group; /* rows of a tile */
  bool left;                    /* the tile stands for a, else for b */
};

static void tile_piece(void *arg, int64_t begin, int64_t end) {
  struct tile_task *k = arg;
  const struct binary_loop *l = k->t.l;
  unsigned bad = 0;
  for (int64_t i = begin; i < end; i++) {
    int64_t at = i * k->group * k->columns, n = MIN(k->group, k->rows - i * k->group) * k->columns;
    bad |= binary_loop_run(l, k->t.out + at * l->out_size, k->left ? k->t.a : k->t.a + at * l->in_size,
                           k->left ? k->t.b + at * l->in_size : k->t.b, n, VECTOR_VECTOR);
  }
  if (UNLIKELY(bad)) atomic_store_explicit(&k->t.bad, 1, memory_order_relaxed);
}

static bool tiles(const struct broadcast *p) {
  return p->rank == 2 && p->dims[1] <= TILE / 8 && p->dims[0] >= 4 && broadcast_inner(p, 0) && broadcast_inner(p, 1) &&
         (p->step[0][0] == 0) != (p->step[1][0] == 0);
}

static unsigned run_tiled(struct kernel_ctx *ctx, const struct broadcast *p, const struct binary_task *t) {
  _Alignas(16) char tile[TILE * sizeof(c128)];
  struct tile_task k = {.t = {.l = t->l, .out = t->out, .a = t->a, .b = t->b},
                        .rows = p->dims[0],
                        .columns = p->dims[1],
                        .group = TILE / p->dims[1],
                        .left = p->step[0][0] == 0};
  size_t row = (size_t)(k.columns * t->l->in_size);
  for (int64_t i = 0; i < k.group; i++) memcpy(tile + (size_t)i * row, k.left ? t->a : t->b, row);
  if (k.left) k.t.a = tile;
  else k.t.b = tile;
  pool_for(ctx_pool(ctx), (k.rows + k.group - 1) / k.group, MAX(t->l->grain / TILE, 1), tile_piece, &k);
  return k.t.bad;
}

static bool dims_are(const struct tensor *t, const struct shape *s) {
  return t->rank == s->rank && memcmp(t->dims, s->dims, (size_t)s->rank * sizeof *s->dims) == 0;
}

/* Different shapes. */
static shoal_status run_broadcast(struct kernel_ctx *ctx, const struct binary_loop *l, const struct tensor *a,
                                  const struct tensor *b) {
  struct broadcast plan;
  TRY(broadcast_plan(&plan, (const struct tensor *const[]){a, b}, 2));
  struct tensor *z;
  if (dims_are(a, &plan.out)) TRY(ctx_out_like(ctx, 0, 0, &z));
  else if (dims_are(b, &plan.out)) TRY(ctx_out_like(ctx, 0, 1, &z));
  else TRY(ctx_out(ctx, 0, &plan.out, &z));
  bool va = broadcast_inner(&plan, 0), vb = broadcast_inner(&plan, 1);
  struct binary_task t = {.l = l,
                          .plan = &plan,
                          .out = z->data,
                          .a = a->data,
                          .b = b->data,
                          .mode = va && vb ? VECTOR_VECTOR
                                  : va     ? VECTOR_SCALAR
                                           : SCALAR_VECTOR};
  if (tiles(&plan)) t.bad = run_tiled(ctx, &plan, &t);
  else pool_for(ctx_pool(ctx), plan.n, l->grain, plan.rank == 1 ? binary_piece : binary_planned_piece, &t);
  return UNLIKELY(t.bad) ? bad_element(l) : NULL;
}

/* As many elements of each; the result is like that input. */
static inline shoal_status run_pairs(struct kernel_ctx *ctx, const struct binary_loop *l, const struct tensor *a,
                                     const struct tensor *b, int like) {
  struct tensor *z;
  TRY(ctx_out_like(ctx, 0, like, &z));
  if (LIKELY(a->n <= l->grain)) {
    unsigned bad = binary_loop_run(l, z->data, a->data, b->data, a->n, VECTOR_VECTOR);
    return UNLIKELY(bad) ? bad_element(l) : NULL;
  }
  struct binary_task t = {.l = l, .out = z->data, .a = a->data, .b = b->data, .mode = VECTOR_VECTOR};
  pool_for(ctx_pool(ctx), a->n, l->grain, binary_piece, &t);
  return UNLIKELY(t.bad) ? bad_element(l) : NULL;
}

shoal_status binary_run(struct kernel_ctx *ctx) {
  const struct binary_loop *l = ctx->state;
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1);
  if ((a->rank | b->rank) && !tensor_same_shape(a, b)) return run_broadcast(ctx, l, a, b);
  return run_pairs(ctx, l, a, b, (ctx->steal & 3) == 2 ? 1 : 0);
}

shoal_status binary_pairs_run(struct kernel_ctx *ctx) {
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1);
  if (a->n != b->n)
    return INVALID("The two arguments to a cwise op must have same number of elements, got %" PRId64 " and %" PRId64,
                   a->n, b->n);
  return run_pairs(ctx, ctx->state, a, b, (ctx->steal & 3) == 2 && tensor_same_shape(a, b) ? 1 : 0);
}
