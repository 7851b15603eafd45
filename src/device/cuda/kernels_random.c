/* Random numbers on a card (random.cu): the bits of the CPU's. A pair of seeds stays on the card, where it may have
 * been computed: the host need not know it. */
#include <string.h>

#include "device/cuda/cuda_kernel.h"
#include "ops/array/array_util.h"
#include "ops/random/random_fill.h"
#include "ops/random/random_variable.h"

struct cuda_source { /* as random.cu has it */
  uint32_t counter[4], key[2];
  const void *seeds;
  int32_t wide;
};
struct cuda_random {
  struct random_state of; /* first: what its functions are given */
  CUfunction f;
};

static struct cuda_source source_of(const struct philox *p) {
  struct cuda_source s = {
      {p->counter[0], p->counter[1], p->counter[2], p->counter[3]}, {p->key[0], p->key[1]}, NULL, 0};
  return s;
}

/* ---- what is made, by the op's name ---- */

static shoal_status find(struct kernel_init *ki, struct cuda_random *st) {
  const char *op = ki->node->op->name;
  const char *kind = strstr(op, "Truncated") ? "random_truncated"
                     : strstr(op, "Normal")  ? "random_normal"
                     : strstr(op, "Int")     ? "random_ints"
                                             : "random_uniform";
  return cuda_function(cuda_of(ki->device), "random", kind, dtype_base(ki->kernel->out_types[0]), 0, &st->f);
}

static shoal_status state_init(struct kernel_init *ki, void *state) {
  TRY(find(ki, state));
  return random_state_init(ki, state);
}
static shoal_status plain_init(struct kernel_init *ki, void *state) { return find(ki, state); }

static int64_t groups(const struct tensor *out) {
  int64_t group = dtype_size((shoal_dtype)out->dtype) == 8 ? 2 : 4;
  return (out->n + group - 1) / group;
}

static shoal_status fill(struct kernel_ctx *ctx, struct cuda_source s) {
  const struct cuda_random *st = ctx->state;
  struct tensor *out = &ctx->out[0];
  int64_t n = out->n;
  return cuda_run_each(ctx, st->f, groups(out), (void *[]){&out->data, &n, &s});
}

static shoal_status fill_ints(struct kernel_ctx *ctx, struct cuda_source s, int low_at) {
  const struct cuda_random *st = ctx->state;
  struct tensor *out = &ctx->out[0];
  int64_t n = out->n;
  uint64_t low, range;
  if (!n) return NULL; /* an impossible range is no matter when nothing is drawn */
  TRY(random_bounds(ctx_in(ctx, low_at), ctx_in(ctx, low_at + 1), &low, &range));
  return cuda_run_each(ctx, st->f, groups(out), (void *[]){&out->data, &n, &s, &low, &range});
}

static shoal_status make_out(struct kernel_ctx *ctx) {
  struct shape shape;
  struct tensor *out;
  TRY(random_shape(ctx_in(ctx, 0), &shape));
  return ctx_out(ctx, 0, &shape, &out);
}

/* ---- from the kernel's own generator ---- */

static struct cuda_source reserve(struct kernel_ctx *ctx) {
  struct philox p = random_reserve(ctx->state, (uint64_t)ctx->out[0].n * RANDOM_BLOCKS_PER_OUTPUT);
  return source_of(&p);
}

static shoal_status state_run(struct kernel_ctx *ctx) {
  TRY(make_out(ctx));
  return fill(ctx, reserve(ctx));
}

static shoal_status state_int_run(struct kernel_ctx *ctx) {
  TRY(make_out(ctx));
  return ctx->out[0].n ? fill_ints(ctx, reserve(ctx), 1) : NULL;
}

/* ---- from a pair of seeds ---- */

static shoal_status seed_source(struct kernel_ctx *ctx, struct cuda_source *out) {
  const struct tensor *seed = ctx_in(ctx, 1);
  if (seed->rank != 1 || seed->dims[0] != 2) return INVALID("seed must have shape [2], not %s", tensor_shape_str(seed));
  *out = (struct cuda_source){.seeds = seed->data, .wide = seed->dtype == SHOAL_INT64};
  return NULL;
}

static shoal_status seed_run(struct kernel_ctx *ctx) {
  struct cuda_source s;
  TRY(seed_source(ctx, &s));
  TRY(make_out(ctx));
  return fill(ctx, s);
}

static shoal_status seed_int_run(struct kernel_ctx *ctx) {
  struct cuda_source s;
  TRY(seed_source(ctx, &s));
  TRY(make_out(ctx));
  return fill_ints(ctx, s, 2);
}

/* ---- from a key and a counter, which are the host's ---- */

static shoal_status key_run(struct kernel_ctx *ctx) {
  struct philox p;
  TRY(random_from_key(ctx, &p));
  TRY(make_out(ctx));
  return fill(ctx, source_of(&p));
}

static shoal_status key_int_run(struct kernel_ctx *ctx) {
  struct philox p;
  TRY(random_from_key(ctx, &p));
  TRY(make_out(ctx));
  return fill_ints(ctx, source_of(&p), 4);
}

/* ---- the table ---- */

#define INTEGERS (DT(INT32) | DT(INT64))
#define KERNEL(id, attr, types_, host, init_, run_, ...)                            \
  static const struct kernel_def id[] = {{.device = "GPU",                          \
                                          .type_attr = attr,                        \
                                          .types = types_,                          \
                                          .state_size = sizeof(struct cuda_random), \
                                          .host_in = host,                          \
                                          .init = init_,                            \
                                          .run = run_,                              \
                                          __VA_ARGS__},                             \
                                         {0}};
KERNEL(state, "dtype", CUDA_FLOATING, 1, state_init, state_run, .release = random_state_release)
KERNEL(state_int, "Tout", INTEGERS, 1 | 2 | 4, state_init, state_int_run, .release = random_state_release)
KERNEL(seed, "dtype", CUDA_FLOATING, 1, plain_init, seed_run)
KERNEL(seed_int, "dtype", INTEGERS, 1 | 4 | 8, plain_init, seed_int_run)
KERNEL(key, "dtype", CUDA_FLOATING, 1 | 2 | 4 | 8, plain_init, key_run)
KERNEL(key_int, "dtype", INTEGERS, 1 | 2 | 4 | 8 | 16 | 32, plain_init, key_int_run)

const struct device_kernels cuda_random_kernels[] = {{"RandomUniform", state},
                                                     {"RandomStandardNormal", state},
                                                     {"TruncatedNormal", state},
                                                     {"RandomUniformInt", state_int},
                                                     {"StatelessRandomUniform", seed},
                                                     {"StatelessRandomNormal", seed},
                                                     {"StatelessTruncatedNormal", seed},
                                                     {"StatelessRandomUniformInt", seed_int},
                                                     {"StatelessRandomUniformV2", key},
                                                     {"StatelessRandomNormalV2", key},
                                                     {"StatelessTruncatedNormalV2", key},
                                                     {"StatelessRandomUniformIntV2", key_int},
                                                     {0}};
