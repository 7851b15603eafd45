/* Random numbers that are a function of their inputs: from a pair of seeds, from a key and a counter (V2), or from
 * a generator kept in a variable (tf.random.Generator: int64 [counter low, counter high, key]), which moves on by
 * 256 blocks for each element drawn. */
#include <inttypes.h>
#include <sys/random.h>

#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/random/random_fill.h"
#include "ops/random/random_variable.h"

enum { PHILOX = 1, AUTO_SELECT = 3 };

/* ---- shapes ---- */

static shoal_status shape_first(struct shape_ctx *c) { return shape_in_value(c, 0, &c->out[0]); }
static shoal_status shape_second(struct shape_ctx *c) { return shape_in_value(c, 1, &c->out[0]); }
static shoal_status shape_third(struct shape_ctx *c) { return shape_in_value(c, 2, &c->out[0]); }
static shoal_status shape_key_counter(struct shape_ctx *c) {
  c->out[0] = shape_vector(1);
  c->out[1] = shape_vector(2);
  if (c->node->n_out > 2) c->out[2] = shape_scalar();
  return NULL;
}
static shoal_status shape_state(struct shape_ctx *c) {
  c->out[0] = shape_vector(3);
  return NULL;
}

/* ---- from a pair of seeds ---- */

static shoal_status from_seed(struct kernel_ctx *ctx, enum random_kind kind) {
  struct shape shape;
  struct philox p;
  struct tensor *out;
  TRY(random_shape(ctx_in(ctx, 0), &shape));
  TRY(random_from_seed_tensor(ctx_in(ctx, 1), &p));
  TRY(ctx_out(ctx, 0, &shape, &out));
  random_fill(ctx_pool(ctx), p, kind, (shoal_dtype)out->dtype, out->data, out->n);
  return NULL;
}
static shoal_status seed_uniform(struct kernel_ctx *ctx) { return from_seed(ctx, RANDOM_UNIFORM); }
static shoal_status seed_normal(struct kernel_ctx *ctx) { return from_seed(ctx, RANDOM_NORMAL); }
static shoal_status seed_truncated(struct kernel_ctx *ctx) { return from_seed(ctx, RANDOM_TRUNCATED_NORMAL); }
static shoal_status seed_full_int(struct kernel_ctx *ctx) { return from_seed(ctx, RANDOM_FULL_INT); }

static shoal_status fill_between(struct kernel_ctx *ctx, struct philox p, const struct tensor *lo_t,
                                 const struct tensor *hi_t, struct tensor *out) {
  if (out->n == 0) return NULL;
  uint64_t lo, range;
  TRY(random_bounds(lo_t, hi_t, &lo, &range));
  random_fill_ints(ctx_pool(ctx), p, (shoal_dtype)out->dtype, lo, range, out->data, out->n);
  return NULL;
}

static shoal_status seed_int(struct kernel_ctx *ctx) {
  struct shape shape;
  struct philox p;
  struct tensor *out;
  TRY(random_shape(ctx_in(ctx, 0), &shape));
  TRY(random_from_seed_tensor(ctx_in(ctx, 1), &p));
  TRY(ctx_out(ctx, 0, &shape, &out));
  return fill_between(ctx, p, ctx_in(ctx, 2), ctx_in(ctx, 3), out);
}

/* ---- from a key and a counter: inputs 1, 2 and 3 (the algorithm) ---- */

shoal_status random_from_key(struct kernel_ctx *ctx, struct philox *out) {
  const struct tensor *key = ctx_in(ctx, 1), *counter = ctx_in(ctx, 2), *alg = ctx_in(ctx, 3);
  struct shape s;
  if (alg->rank != 0) {
    s = tensor_shape(alg);
    return INVALID("algorithm must be of shape [], not %s", shape_str(&s));
  }
  int32_t id = *T_DATA(alg, int32_t);
  if (id != PHILOX && id != AUTO_SELECT) return INVALID("Unsupported algorithm id: %d", (int)id);
  if (key->rank != 1 || key->dims[0] != 1) {
    s = tensor_shape(key);
    return INVALID("key must have shape [1], not %s (Note that batched keys are not supported yet.)", shape_str(&s));
  }
  if (counter->rank != 1 || counter->dims[0] < 2) {
    s = tensor_shape(counter);
    return INVALID(
        "counter must be a vector with length at least 2; got shape: %s (Note that batched counters are not "
        "supported yet.)",
        shape_str(&s));
  }
  uint64_t k = *T_DATA(key, uint64_t), lo = T_DATA(counter, uint64_t)[0], hi = T_DATA(counter, uint64_t)[1];
  *out = (struct philox){{(uint32_t)lo, (uint32_t)(lo >> 32), (uint32_t)hi, (uint32_t)(hi >> 32)},
                         {(uint32_t)k, (uint32_t)(k >> 32)}};
  return NULL;
}

static shoal_status from_key(struct kernel_ctx *ctx, enum random_kind kind) {
  struct shape shape;
  struct philox p;
  struct tensor *out;
  TRY(random_from_key(ctx, &p));
  TRY(random_shape(ctx_in(ctx, 0), &shape));
  TRY(ctx_out(ctx, 0, &shape, &out));
  random_fill(ctx_pool(ctx), p, kind, (shoal_dtype)out->dtype, out->data, out->n);
  return NULL;
}
static shoal_status key_uniform(struct kernel_ctx *ctx) { return from_key(ctx, RANDOM_UNIFORM); }
static shoal_status key_normal(struct kernel_ctx *ctx) { return from_key(ctx, RANDOM_NORMAL); }
static shoal_status key_truncated(struct kernel_ctx *ctx) { return from_key(ctx, RANDOM_TRUNCATED_NORMAL); }
static shoal_status key_full_int(struct kernel_ctx *ctx) { return from_key(ctx, RANDOM_FULL_INT); }

static shoal_status key_int(struct kernel_ctx *ctx) {
  struct shape shape;
  struct philox p;
  struct tensor *out;
  TRY(random_from_key(ctx, &p));
  TRY(random_shape(ctx_in(ctx, 0), &shape));
  TRY(ctx_out(ctx, 0, &shape, &out));
  return fill_between(ctx, p, ctx_in(ctx, 4), ctx_in(ctx, 5), out);
}

static shoal_status get_key_counter(struct kernel_ctx *ctx) {
  struct philox p;
  TRY(random_from_seed_tensor(ctx_in(ctx, 0), &p));
  struct tensor *key, *counter, *alg;
  int64_t one = 1, two = 2;
  TRY(ctx_out_dims(ctx, 0, 1, &one, &key));
  TRY(ctx_out_dims(ctx, 1, 1, &two, &counter));
  *T_DATA(key, uint64_t) = (uint64_t)p.key[0] | (uint64_t)p.key[1] << 32;
  for (int i = 0; i < 2; i++)
    T_DATA(counter, uint64_t)[i] = (uint64_t)p.counter[2 * i] | (uint64_t)p.counter[2 * i + 1] << 32;
  if (ctx->kernel->n_out < 3) return NULL;
  TRY(ctx_out_dims(ctx, 2, 0, NULL, &alg));
  *T_DATA(alg, int32_t) = PHILOX;
  return NULL;
}

static shoal_status get_alg(struct kernel_ctx *ctx) {
  struct tensor *alg;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &alg));
  *T_DATA(alg, int32_t) = PHILOX;
  return NULL;
}

/* ---- from a variable ---- */

/* The generator that begins at element `first` of the state; the state moves on by as many blocks. */
static shoal_status take(struct variable *v, int64_t alg, bool tagged, uint64_t blocks, struct philox *out,
                         int64_t *before) {
  const struct tensor *t = &v->value;
  if (!tensor_valid(t))
    return STATUS(SHOAL_FAILED_PRECONDITION,
                  "Trying to access resource using the wrong type or before it is "
                  "initialized: the RNG state variable %s has no value",
                  v->name);
  if (t->dtype != SHOAL_INT64)
    return INVALID("dtype of RNG state variable must be int64, not %s", dtype_tf_name(t->dtype));
  if (t->rank != 1) return INVALID("RNG state must have one and only one dimension, not %d", t->rank);
  int first = tagged ? 1 : 0;
  if (tagged) {
    if (t->n < 1) return INVALID("Size of tensor must be at least 1");
    alg = T_DATA(t, int64_t)[0];
  }
  if (alg != PHILOX && alg != AUTO_SELECT) return INVALID("Unsupported algorithm id: %" PRId64, alg);
  if (t->n < first + 3)
    return INVALID("For the Philox algorithm, the size of state must be at least %d; got %" PRId64, first + 3, t->n);
  TRY(variable_make_writable(v));
  uint64_t *s = T_DATA(&v->value, uint64_t) + first;
  if (before) memcpy(before, s, 24);
  *out = (struct philox){{(uint32_t)s[0], (uint32_t)(s[0] >> 32), (uint32_t)s[1], (uint32_t)(s[1] >> 32)},
                         {(uint32_t)s[2], (uint32_t)(s[2] >> 32)}};
  struct philox after = *out;
  philox_skip(&after, blocks);
  s[0] = (uint64_t)after.counter[0] | (uint64_t)after.counter[1] << 32;
  s[1] = (uint64_t)after.counter[2] | (uint64_t)after.counter[3] << 32;
  return NULL;
}

shoal_status random_from_variable(struct kernel_ctx *ctx, int64_t alg, bool tagged, uint64_t outputs,
                                  struct philox *out, int64_t *before) {
  struct resource *r;
  TRY(resource_from_handle(ctx->kernel->resources, ctx_in(ctx, 0), &variable_type, &r));
  struct variable *v = (struct variable *)r;
  pthread_rwlock_wrlock(&v->lock);
  shoal_status s = take(v, alg, tagged, outputs * RANDOM_BLOCKS_PER_OUTPUT, out, before);
  pthread_rwlock_unlock(&v->lock);
  variable_unref(v);
  return s;
}

shoal_status random_scalar_in(struct kernel_ctx *ctx, int i, shoal_dtype dtype, int64_t *out) {
  const struct tensor *t = ctx_in(ctx, i);
  if (t->rank != 0) {
    struct shape s = tensor_shape(t);
    return INVALID("input %d (0-based) must have shape [], not %s", i, shape_str(&s));
  }
  if (t->dtype != dtype)
    return INVALID("dtype of input %d (0-based) must be %s, not %s", i, dtype_tf_name(dtype), dtype_tf_name(t->dtype));
  *out = dtype == SHOAL_INT32 ? *T_DATA(t, int32_t) : *T_DATA(t, int64_t);
  return NULL;
}

static shoal_status from_variable(struct kernel_ctx *ctx, enum random_kind kind, bool tagged) {
  int64_t alg = 0;
  struct shape shape;
  struct tensor *out;
  struct philox p;
  if (!tagged) TRY(random_scalar_in(ctx, 1, SHOAL_INT64, &alg));
  TRY(random_shape(ctx_in(ctx, tagged ? 1 : 2), &shape));
  TRY(ctx_out(ctx, 0, &shape, &out));
  TRY(random_from_variable(ctx, alg, tagged, (uint64_t)out->n, &p, NULL));
  random_fill(ctx_pool(ctx), p, kind, (shoal_dtype)out->dtype, out->data, out->n);
  return NULL;
}
static shoal_status state_uniform(struct kernel_ctx *ctx) { return from_variable(ctx, RANDOM_UNIFORM, false); }
static shoal_status state_normal(struct kernel_ctx *ctx) { return from_variable(ctx, RANDOM_NORMAL, false); }
static shoal_status state_normal_tagged(struct kernel_ctx *ctx) { return from_variable(ctx, RANDOM_NORMAL, true); }
static shoal_status state_truncated(struct kernel_ctx *ctx) {
  return from_variable(ctx, RANDOM_TRUNCATED_NORMAL, false);
}
static shoal_status state_full_int(struct kernel_ctx *ctx) { return from_variable(ctx, RANDOM_FULL_INT, false); }

static shoal_status state_int(struct kernel_ctx *ctx) {
  int64_t alg;
  uint64_t lo, range;
  struct shape shape;
  struct tensor *out;
  struct philox p;
  TRY(random_scalar_in(ctx, 1, SHOAL_INT64, &alg));
  TRY(random_bounds(ctx_in(ctx, 3), ctx_in(ctx, 4), &lo, &range));
  TRY(random_shape(ctx_in(ctx, 2), &shape));
  TRY(ctx_out(ctx, 0, &shape, &out));
  TRY(random_from_variable(ctx, alg, false, (uint64_t)out->n, &p, NULL));
  random_fill_ints(ctx_pool(ctx), p, (shoal_dtype)out->dtype, lo, range, out->data, out->n);
  return NULL;
}

static shoal_status rng_skip(struct kernel_ctx *ctx) {
  int64_t alg, delta;
  struct philox p;
  TRY(random_scalar_in(ctx, 1, SHOAL_INT64, &alg));
  TRY(random_scalar_in(ctx, 2, SHOAL_INT64, &delta));
  return random_from_variable(ctx, alg, false, (uint64_t)delta, &p, NULL);
}

static shoal_status rng_read_and_skip(struct kernel_ctx *ctx) {
  int64_t alg, delta, three = 3;
  struct philox p;
  struct tensor *out;
  TRY(random_scalar_in(ctx, 1, SHOAL_INT32, &alg));
  TRY(random_scalar_in(ctx, 2, SHOAL_UINT64, &delta));
  TRY(ctx_out_dims(ctx, 0, 1, &three, &out));
  return random_from_variable(ctx, alg, false, (uint64_t)delta, &p, out->data);
}

static shoal_status non_deterministic(struct kernel_ctx *ctx) {
  struct shape shape;
  struct tensor *out;
  TRY(random_shape(ctx_in(ctx, 0), &shape));
  TRY(ctx_out(ctx, 0, &shape, &out));
  uint64_t seeds[2];
  if (getrandom(seeds, sizeof seeds, 0) != (ssize_t)sizeof seeds) return INTERNAL("the system gives no random bytes");
  struct philox p = philox_from_pair(seeds[0], seeds[1]);
  random_fill(ctx_pool(ctx), p, RANDOM_FULL_INT, (shoal_dtype)out->dtype, out->data, out->n);
  return NULL;
}

/* ---- rows ---- */

#define KERNEL(dtypes, fn)                                                                                \
  (const struct kernel_def[]) {                                                                           \
    {.device = "CPU", .type_attr = "dtype", .types = dtypes, .flags = KERNEL_EXPENSIVE, .run = fn}, { 0 } \
  }
#define CHEAP(fn)                                              \
  (const struct kernel_def[]) {                                \
    {.device = "CPU", .flags = KERNEL_CHEAP, .run = fn}, { 0 } \
  }
/* Of a generator's state, a variable. in_: what is in host memory on every device. */
#define OF_STATE(dtypes, fn, in_)                         \
  (const struct kernel_def[]) {                           \
    {.device = "CPU",                                     \
     .borrowable = true,                                  \
     .type_attr = (dtypes) ? "dtype" : NULL,              \
     .types = dtypes,                                     \
     .flags = (dtypes) ? KERNEL_EXPENSIVE : KERNEL_CHEAP, \
     .run = fn,                                           \
     .host_in = in_},                                     \
        {0},                                              \
  }
#define INTS32 (DT(INT32) | DT(UINT32) | DT(INT64) | DT(UINT64))

#define SEED_ROW(op, fn)                                                              \
  {                                                                                   \
    .name = op, .in = "shape: T, seed: Tseed", .out = "output: dtype",                \
    .attrs =                                                                          \
        "dtype: {half, bfloat16, float, double} = float; T: {int32, int64} = int32; " \
        "Tseed: {int32, int64} = int64",                                              \
    .flags = OP_NO_GRADIENT, .shape = shape_first, .kernels = KERNEL(DT_FLOATING, fn) \
  }
#define KEY_ROW(op, fn)                                                                                  \
  {                                                                                                      \
    .name = op, .in = "shape: Tshape, key: uint64, counter: uint64, alg: int32", .out = "output: dtype", \
    .attrs = "dtype: {half, bfloat16, float, double} = float; Tshape: {int32, int64} = int32",           \
    .flags = OP_NO_GRADIENT, .shape = shape_first, .kernels = KERNEL(DT_FLOATING, fn)                    \
  }
#define STATE_ROW(op, dflt, dtypes, fn)                                                                   \
  {                                                                                                       \
    .name = op, .in = "resource: resource, algorithm: int64, shape: shape_dtype", .out = "output: dtype", \
    .attrs = "dtype: type = " dflt "; shape_dtype: type = int64", .flags = OP_STATEFUL | OP_NO_GRADIENT,  \
    .shape = shape_third, .kernels = OF_STATE(dtypes, fn, 6)                                              \
  }

static const struct op_row rows[] = {
    SEED_ROW("StatelessRandomUniform", seed_uniform),
    SEED_ROW("StatelessRandomNormal", seed_normal),
    SEED_ROW("StatelessTruncatedNormal", seed_truncated),
    {.name = "StatelessRandomUniformInt",
     .in = "shape: T, seed: Tseed, minval: dtype, maxval: dtype",
     .out = "output: dtype",
     .attrs = "dtype: {int32, int64}; T: {int32, int64}; Tseed: {int32, int64} = int64",
     .flags = OP_NO_GRADIENT,
     .shape = shape_first,
     .kernels = KERNEL(INTS32, seed_int)},
    {.name = "StatelessRandomUniformFullInt",
     .in = "shape: T, seed: Tseed",
     .out = "output: dtype",
     .attrs = "dtype: {int32, int64, uint32, uint64} = uint64; T: {int32, int64} = int32; "
              "Tseed: {int32, int64, uint32, uint64} = int64",
     .flags = OP_NO_GRADIENT,
     .shape = shape_first,
     .kernels = KERNEL(INTS32, seed_full_int)},
    KEY_ROW("StatelessRandomUniformV2", key_uniform),
    KEY_ROW("StatelessRandomNormalV2", key_normal),
    KEY_ROW("StatelessTruncatedNormalV2", key_truncated),
    {.name = "StatelessRandomUniformIntV2",
     .in = "shape: Tshape, key: uint64, counter: uint64, alg: int32, minval: dtype, maxval: dtype",
     .out = "output: dtype",
     .attrs = "dtype: {int32, int64, uint32, uint64}; Tshape: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = shape_first,
     .kernels = KERNEL(INTS32, key_int)},
    {.name = "StatelessRandomUniformFullIntV2",
     .in = "shape: Tshape, key: uint64, counter: uint64, alg: int32",
     .out = "output: dtype",
     .attrs = "dtype: {int32, int64, uint32, uint64} = uint64; Tshape: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = shape_first,
     .kernels = KERNEL(INTS32, key_full_int)},
    {.name = "StatelessRandomGetKeyCounter",
     .in = "seed: Tseed",
     .out = "key: uint64, counter: uint64",
     .attrs = "Tseed: {int32, int64} = int64",
     .flags = OP_NO_GRADIENT,
     .shape = shape_key_counter,
     .kernels = CHEAP(get_key_counter)},
    {.name = "StatelessRandomGetKeyCounterAlg",
     .in = "seed: Tseed",
     .out = "key: uint64, counter: uint64, alg: int32",
     .attrs = "Tseed: {int32, int64} = int64",
     .flags = OP_NO_GRADIENT,
     .shape = shape_key_counter,
     .kernels = CHEAP(get_key_counter)},
    {.name = "StatelessRandomGetAlg",
     .out = "alg: int32",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = CHEAP(get_alg)},
    STATE_ROW("StatefulUniform", "float", DT_FLOATING, state_uniform),
    STATE_ROW("StatefulStandardNormalV2", "float", DT_FLOATING, state_normal),
    STATE_ROW("StatefulTruncatedNormal", "float", DT_FLOATING, state_truncated),
    STATE_ROW("StatefulUniformFullInt", "uint64", INTS32, state_full_int),
    {.name = "StatefulStandardNormal",
     .in = "resource: resource, shape: shape_dtype",
     .out = "output: dtype",
     .attrs = "dtype: type = float; shape_dtype: type = int64",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_second,
     .kernels = OF_STATE(DT_FLOATING, state_normal_tagged, 2)},
    {.name = "StatefulUniformInt",
     .in = "resource: resource, algorithm: int64, shape: shape_dtype, minval: dtype, maxval: dtype",
     .out = "output: dtype",
     .attrs = "dtype: type = int64; shape_dtype: type = int64",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_third,
     .kernels = OF_STATE(INTS32, state_int, 30)},
    {.name = "RngSkip",
     .in = "resource: resource, algorithm: int64, delta: int64",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = OF_STATE(0, rng_skip, 6)},
    {.name = "RngReadAndSkip",
     .in = "resource: resource, alg: int32, delta: uint64",
     .out = "value: int64",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_state,
     .kernels = OF_STATE(0, rng_read_and_skip, 6)},
    {.name = "NonDeterministicInts",
     .in = "shape: shape_dtype",
     .out = "output: dtype",
     .attrs = "dtype: type = int64; shape_dtype: type = int64",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_first,
     .kernels = KERNEL(INTS32, non_deterministic)},
};
OP_FAMILY(random_stateless, rows);
