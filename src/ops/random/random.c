/* ops/random: random numbers, the same as TensorFlow's for the same seeds, and sequences that stand for them. */

/* Random numbers whose state is the kernel's (seed and seed2 at its making), RandomShuffle, and RandomIndexShuffle.
 * The same seeds give TensorFlow's numbers; see base/philox.h and random_fill.h. The stateless and the
 * variable-backed generators are in random_stateless.c, distributions that reject in random_dist.c. */
#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/random/random_fill.h"
#include "ops/random/random_variable.h"

/* ---- shapes ---- */

static shoal_status shape_from_first(struct shape_ctx *c) { return shape_in_value(c, 0, &c->out[0]); }

static shoal_status shape_index_shuffle(struct shape_ctx *c) {
  if (c->in[0].rank == 0 && c->in[1].rank == 1 && c->in[2].rank == 0) c->out[0] = shape_scalar();
  else if (c->in[0].rank == 1) c->out[0] = c->in[0];
  return NULL;
}

/* ---- RandomUniform, RandomStandardNormal, TruncatedNormal, RandomUniformInt ---- */

static shoal_status fill(struct kernel_ctx *ctx, enum random_kind kind) {
  struct shape shape;
  TRY(random_shape(ctx_in(ctx, 0), &shape));
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  struct philox p = random_reserve(ctx->state, (uint64_t)out->n * RANDOM_BLOCKS_PER_OUTPUT);
  random_fill(ctx_pool(ctx), p, kind, (shoal_dtype)out->dtype, out->data, out->n);
  return NULL;
}

static shoal_status run_uniform(struct kernel_ctx *ctx) { return fill(ctx, RANDOM_UNIFORM); }
static shoal_status run_normal(struct kernel_ctx *ctx) { return fill(ctx, RANDOM_NORMAL); }
static shoal_status run_truncated(struct kernel_ctx *ctx) { return fill(ctx, RANDOM_TRUNCATED_NORMAL); }

static shoal_status run_uniform_int(struct kernel_ctx *ctx) {
  struct shape shape;
  TRY(random_shape(ctx_in(ctx, 0), &shape));
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  if (out->n == 0) return NULL; /* an impossible range is no matter when nothing is drawn */
  uint64_t lo, range;
  TRY(random_bounds(ctx_in(ctx, 1), ctx_in(ctx, 2), &lo, &range));
  struct philox p = random_reserve(ctx->state, (uint64_t)out->n * RANDOM_BLOCKS_PER_OUTPUT);
  random_fill_ints(ctx_pool(ctx), p, (shoal_dtype)out->dtype, lo, range, out->data, out->n);
  return NULL;
}

/* ---- RandomShuffle ---- */

static bool nothing_to_shuffle(const struct tensor *x) { return x->n <= 1 || x->dims[0] <= 1; }

static shoal_status shuffle_rows(struct kernel_ctx *ctx, struct philox p) {
  const struct tensor *x = ctx_in(ctx, 0);
  int64_t rows = x->dims[0], row = x->n / rows;
  struct shape shape = tensor_shape(x), index_shape = shape_vector(rows);
  struct tensor *out, index;
  TRY(ctx_out(ctx, 0, &shape, &out));
  TRY(ctx_temp(ctx, SHOAL_INT64, &index_shape, &index));
  int64_t *at = index.data;
  for (int64_t i = 0; i < rows; i++) at[i] = i;
  struct philox_stream s = philox_stream(p);
  for (int64_t i = 0; i + 1 < rows; i++) {
    int64_t j = i + (int64_t)(philox_u32(&s) % (uint32_t)(rows - i)), t = at[i];
    at[i] = at[j];
    at[j] = t;
  }
  shoal_dtype dtype = (shoal_dtype)x->dtype;
  size_t bytes = (size_t)row * dtype_size(dtype);
  for (int64_t i = 0; i < rows; i++)
    elements_copy(dtype, (char *)out->data + (size_t)i * bytes, (const char *)x->data + (size_t)at[i] * bytes, row);
  tensor_release(&index);
  return NULL;
}

static shoal_status run_shuffle(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  if (nothing_to_shuffle(x)) return ctx_forward(ctx, 0, 0, NULL);
  return shuffle_rows(ctx, random_reserve(ctx->state, (uint64_t)(x->dims[0] - 1 + 3) / 4));
}

static shoal_status run_stateless_shuffle(struct kernel_ctx *ctx) {
  struct philox p;
  TRY(random_from_key(ctx, &p));
  return nothing_to_shuffle(ctx_in(ctx, 0)) ? ctx_forward(ctx, 0, 0, NULL) : shuffle_rows(ctx, p);
}

/* ---- RandomIndexShuffle: a permutation of [0, max_index] by a small block cipher (SIMON with few rounds), whose
 * output is fed back until it falls inside the range. Words may have any width from 8 to 32 bits. ---- */

struct index_shuffle {
  int64_t rounds;
};

static shoal_status init_index_shuffle(struct kernel_init *ki, void *state) {
  struct index_shuffle *s = state;
  TRY(node_get_int(ki->node, "rounds", &s->rounds));
  if (s->rounds < 4 || s->rounds % 2 || s->rounds > 64)
    return INVALID("rounds must be even and at least 4 (and at most 64), not %lld", (long long)s->rounds);
  return NULL;
}

static uint64_t rotate_left(uint64_t x, int r, int width, uint64_t mask) { return (x << r | x >> (width - r)) & mask; }

static uint64_t mix(uint64_t x, int w, uint64_t mask) {
  return (rotate_left(x, 1, w, mask) & rotate_left(x, 8 % w, w, mask)) ^ rotate_left(x, 2, w, mask);
}

static uint64_t shuffle_index(uint64_t index, const uint32_t key[3], uint64_t max_index, int64_t rounds) {
  if (max_index == 0) return 0;
  int bits = (int)ceil(log2((double)max_index));
  bits += bits % 2;
  if (bits < 16) bits = 16;
  if (bits > 64) bits = 64;
  int w = bits / 2;
  uint64_t mask = ((uint64_t)1 << w) - 1, z = 0x7369f885192c0ef5u & mask, keys[64];
  for (int i = 0; i < 3; i++) keys[i] = key[i] & mask;
  for (int64_t i = 3; i < rounds; i++) {
    uint64_t last = keys[i - 1];
    keys[i] = (0xfffffffcu & mask) ^ (z & 1) ^ keys[i - 3] ^ rotate_left(last, w - 3, w, mask) ^
              rotate_left(last, w - 4, w, mask);
    z >>= 1;
  }
  do {
    uint64_t left = index >> w & mask, right = index & mask;
    for (int64_t i = 0; i < rounds; i += 2) {
      left ^= mix(right, w, mask) ^ keys[i];
      right ^= mix(left, w, mask) ^ keys[i + 1];
    }
    index = left << w | right;
  } while (index > max_index);
  return index;
}

static uint64_t element_bits(const struct tensor *t, int64_t i) {
  switch (t->dtype) {
    case SHOAL_INT32: return (uint64_t)(int64_t)T_DATA(t, int32_t)[i];
    case SHOAL_UINT32: return T_DATA(t, uint32_t)[i];
    default: return T_DATA(t, uint64_t)[i];
  }
}

static shoal_status run_index_shuffle(struct kernel_ctx *ctx) {
  const struct tensor *index = ctx_in(ctx, 0), *seed = ctx_in(ctx, 1), *max = ctx_in(ctx, 2);
  const struct index_shuffle *s = ctx->state;
  bool scalar = index->rank == 0 && seed->rank == 1 && max->rank == 0;
  int64_t n = MAX(MAX(index->n, max->n), seed->n / 3);
  struct shape shape;
  if (index->rank > 1 || (index->rank == 1 && index->dims[0] != n)) {
    shape = tensor_shape(index);
    return INVALID("Index must be a scalar or vector of size [%lld], but got %s.", (long long)n, shape_str(&shape));
  }
  if (!(seed->rank == 1 && seed->dims[0] == 3) && !(seed->rank == 2 && seed->dims[0] == n && seed->dims[1] == 3)) {
    shape = tensor_shape(seed);
    return INVALID("Seed must be a vector of size [3] or a matrix of size [%lld, 3] but got %s.", (long long)n,
                   shape_str(&shape));
  }
  if (max->rank > 1 || (max->rank == 1 && max->dims[0] != n)) {
    shape = tensor_shape(max);
    return INVALID("Maxval must be a scalar or a vector of the same size as index but got %s", shape_str(&shape));
  }
  shape = scalar ? shape_scalar() : shape_vector(n);
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  for (int64_t i = 0; i < n; i++) {
    uint64_t at = element_bits(index, index->rank ? i : 0), limit = element_bits(max, max->rank ? i : 0);
    if (at > limit)
      return INVALID("index must be <= max_index, got %llu > %llu", (unsigned long long)at, (unsigned long long)limit);
    uint32_t key[3];
    for (int k = 0; k < 3; k++) key[k] = (uint32_t)element_bits(seed, (seed->rank == 1 ? 0 : 3 * i) + k);
    uint64_t v = shuffle_index(at, key, limit, s->rounds);
    if (dtype_size((shoal_dtype)out->dtype) == 4) T_DATA(out, uint32_t)[i] = (uint32_t)v;
    else T_DATA(out, uint64_t)[i] = v;
  }
  return NULL;
}

/* ---- rows ---- */

#define SEEDS "seed: int = 0; seed2: int = 0; "
#define FLOATS "dtype: {half, bfloat16, float, double}; T: {int32, int64}"

static const struct op_row rows[] = {
    {.name = "RandomUniform",
     .in = "shape: T",
     .out = "output: dtype",
     .attrs = SEEDS FLOATS,
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_from_first,
     .kernels = RANDOM_KERNEL("dtype", DT_FLOATING, run_uniform)},
    {.name = "RandomStandardNormal",
     .in = "shape: T",
     .out = "output: dtype",
     .attrs = SEEDS FLOATS,
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_from_first,
     .kernels = RANDOM_KERNEL("dtype", DT_FLOATING, run_normal)},
    {.name = "TruncatedNormal",
     .in = "shape: T",
     .out = "output: dtype",
     .attrs = SEEDS FLOATS,
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_from_first,
     .kernels = RANDOM_KERNEL("dtype", DT_FLOATING, run_truncated)},
    {.name = "RandomUniformInt",
     .in = "shape: T, minval: Tout, maxval: Tout",
     .out = "output: Tout",
     .attrs = SEEDS "Tout: {int32, int64}; T: {int32, int64}",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_from_first,
     .kernels = RANDOM_KERNEL("Tout", DT(INT32) | DT(INT64), run_uniform_int)},
    {.name = "RandomShuffle",
     .in = "value: T",
     .out = "output: T",
     .attrs = SEEDS "T: type",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = RANDOM_KERNEL("T", DT_ALL, run_shuffle)},
    {.name = "StatelessShuffle",
     .in = "value: T, key: uint64, counter: uint64, alg: int32",
     .out = "output: T",
     .attrs = "T: type",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels =
         (const struct kernel_def[]){{.device = "CPU", .borrowable = true, .run = run_stateless_shuffle, .host_in = 14},
                                     {0}}},
    {.name = "RandomIndexShuffle",
     .in = "index: dtype, seed: Tseed, max_index: dtype",
     .out = "output: dtype",
     .attrs = "rounds: int = 4; dtype: {int32, uint32, int64, uint64}; Tseed: {int32, uint32, int64, uint64}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_index_shuffle,
     .kernels = (const struct kernel_def[]){{.device = "CPU",
                                             .borrowable = true,
                                             .state_size = sizeof(struct index_shuffle),
                                             .init = init_index_shuffle,
                                             .run = run_index_shuffle},
                                            {0}}},
};
OP_FAMILY(random, rows);
