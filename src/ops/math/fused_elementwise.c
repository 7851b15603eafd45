/* _Elementwise: a chain of elementwise ops as one kernel (made by the rewrite "fuse_elementwise").
 *
 * The program runs over blocks of BLOCK elements; what its steps leave behind stays in the first-level cache, and close
 * together: of a tensor of a few elements it is a few lines. Each step is the very loop that the op alone would run, so
 * results are the same to the bit.
 *
 * The rewrite goes by the shapes that a graph tells of, and a graph may lie: a variable may have another shape than its
 * handle says. So a scalar may stand where the values of a vector are read: it is spread there. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/math/elementwise.h"

enum { BLOCK = 1024, MAX_STEPS = 16, MAX_INPUTS = 16, GRAIN = 8 * BLOCK, PARALLEL_MIN = 1 << 18 };

struct step_code {
  bool binary;
  struct unary_loop one;
  struct binary_loop two;
  int a, b; /* an input, or n_in + a step before */
};

struct fused_chain {
  int n, n_in;
  size_t size; /* of an element */
  struct step_code steps[MAX_STEPS];
};

static shoal_status chain_init(struct kernel_init *ki, void *state) {
  struct fused_chain *c = state;
  const struct attr *ops;
  int64_t a[MAX_STEPS], b[MAX_STEPS];
  int n_a, n_b;
  shoal_dtype type;
  TRY(node_get_type(ki->node, "T", &type));
  TRY(node_get_list(ki->node, "ops", ATTR_STRING, &ops));
  TRY(node_get_ints(ki->node, "a", a, MAX_STEPS, &n_a));
  TRY(node_get_ints(ki->node, "b", b, MAX_STEPS, &n_b));
  c->n = (int)ops->list.n;
  c->n_in = ki->node->n_in;
  c->size = dtype_size(type);
  if (c->n < 1 || c->n > MAX_STEPS || c->n_in > MAX_INPUTS || n_a != c->n || n_b != c->n)
    return INVALID("a program of 1 to %d steps with as many operands is needed", MAX_STEPS);
  for (int i = 0; i < c->n; i++) {
    struct step_code *s = &c->steps[i];
    if (a[i] < 0 || a[i] >= c->n_in + i || b[i] < -1 || b[i] >= c->n_in + i)
      return INVALID("step %d reads what is not there", i);
    s->a = (int)a[i];
    s->b = (int)b[i];
    s->binary = b[i] >= 0;
    if (s->binary) TRY(binary_loop_init(&s->two, ops->list.at[i].s.data, type, type));
    else TRY(unary_loop_init(&s->one, ops->list.at[i].s.data, type, type));
  }
  return NULL;
}

struct chain_run {
  const struct fused_chain *c;
  const char *in[MAX_INPUTS];
  bool scalar[MAX_INPUTS];
  char *out;
  atomic_uint bad; /* steps that met an element without a result, as bits */
};

static void run_blocks(void *arg, int64_t begin, int64_t end) {
  struct chain_run *r = arg;
  const struct fused_chain *c = r->c;
  _Alignas(64) char temps[(MAX_STEPS - 1) * BLOCK * sizeof(double)], spread[BLOCK * sizeof(double)];
  size_t apart = ((size_t)MIN(BLOCK, end - begin) * c->size + 63) & ~(size_t)63;
  for (int64_t at = begin; at < end; at += BLOCK) {
    int64_t n = MIN(BLOCK, end - at);
    size_t offset = (size_t)at * c->size;
    for (int i = 0; i < c->n; i++) {
      const struct step_code *s = &c->steps[i];
      void *to = i == c->n - 1 ? (void *)(r->out + offset) : (void *)(temps + (size_t)i * apart);
      const void *operand[2];
      bool scalar[2] = {false, false};
      for (int k = 0; k < 1 + s->binary; k++) {
        int o = k ? s->b : s->a;
        scalar[k] = o < c->n_in && r->scalar[o];
        operand[k] = o >= c->n_in ? temps + (size_t)(o - c->n_in) * apart : r->in[o] + (scalar[k] ? 0 : offset);
      }
      if (UNLIKELY(scalar[0] && scalar[s->binary])) {
        for (int64_t j = 0; j < n; j++) memcpy(spread + (size_t)j * c->size, operand[s->binary], c->size);
        operand[s->binary] = spread;
      }
      if (!s->binary) {
        unary_loop_run(&s->one, to, operand[0], n);
        continue;
      }
      enum binary_mode mode = scalar[0] ? SCALAR_VECTOR : scalar[1] ? VECTOR_SCALAR : VECTOR_VECTOR;
      if (UNLIKELY(binary_loop_run(&s->two, to, operand[0], operand[1], n, mode))) atomic_fetch_or(&r->bad, 1u << i);
    }
  }
}

static shoal_status chain_run(struct kernel_ctx *ctx) {
  const struct fused_chain *c = ctx->state;
  struct chain_run r = {.c = c};
  int whole = -1; /* the first input that is not a scalar */
  for (int i = 0; i < c->n_in; i++) {
    const struct tensor *x = ctx_in(ctx, i);
    r.in[i] = x->data;
    r.scalar[i] = x->rank == 0;
    if (r.scalar[i]) continue;
    if (whole < 0) whole = i;
    else if (!tensor_same_shape(x, ctx_in(ctx, whole))) {
      struct shape a = tensor_shape(ctx_in(ctx, whole)), b = tensor_shape(x);
      return INVALID("Incompatible shapes: %s vs. %s", shape_str(&a), shape_str(&b));
    }
  }
  struct tensor *y;
  int like = whole < 0 ? 0 : whole;
  for (int i = 0; i < c->n_in; i++) r.scalar[i] &= whole >= 0; /* all scalars: each is a vector of one */
  TRY(ctx_out_like(ctx, 0, like, &y));
  r.out = y->data;
  struct pool *pool = y->n * c->n < PARALLEL_MIN ? NULL : ctx_pool(ctx); /* waking others would take longer */
  pool_for(pool, y->n, GRAIN, run_blocks, &r);
  unsigned bad = atomic_load(&r.bad);
  for (int i = 0; i < c->n; i++)
    if (bad >> i & 1) {
      ctx->part = i;
      return INVALID("%s", c->steps[i].two.bad);
    }
  return NULL;
}

static shoal_status chain_shape(struct shape_ctx *c) {
  struct shape s = shape_scalar();
  for (int i = 0; i < c->node->n_in; i++) {
    if (c->in[i].rank == 0) continue;
    if (s.rank == 0) s = c->in[i];
    else TRY(shape_merge(&s, &c->in[i], &s));
  }
  c->out[0] = s;
  return NULL;
}

static const struct op_row rows[] = {
    {.name = "_Elementwise",
     .in = "inputs: N * T",
     .out = "output: T",
     .attrs = "N: int >= 1; T: {half, bfloat16, float, double}; ops: list(string) >= 1; a: list(int); b: list(int)",
     .flags = OP_OWN,
     .shape = chain_shape,
     .kernels =
         (const struct kernel_def[]){
             {.device = "CPU", .state_size = sizeof(struct fused_chain), .init = chain_init, .run = chain_run}, {0}}},
};
OP_FAMILY(fused_elementwise, rows);
