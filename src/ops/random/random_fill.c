/* Random numbers into memory. The output is cut in groups of four numbers (two for 8-byte types); group g is made
 * from block g of the generator, or for the truncated normal, which rejects, from the 256 blocks that begin at
 * 256 g (128 for 8-byte types). Any thread can therefore make any group. */
#include "ops/random/random_fill.h"

#include <inttypes.h>

#include "base/mem.h"

enum { CHUNK_BLOCKS = 64, GRAIN_BLOCKS = 2048, GRAIN_GROUPS = 512 };

struct random_filling {
  struct philox p;
  enum random_kind kind;
  shoal_dtype dtype;
  bool ranged;
  uint64_t lo, range;
  char *out;
  int64_t n;
};

static f16 half_of(uint32_t x) {
  f16 one_to_two = {(uint16_t)(15u << 10 | (x & 0x3ffu))};
  return f16_from_float(f16_to_float(one_to_two) - 1.0f);
}

static bf16 bfloat_of(uint32_t x) {
  bf16 one_to_two = {(uint16_t)(127u << 7 | (x & 0x7fu))};
  return bf16_from_float(bf16_to_float(one_to_two) - 1.0f);
}

static void uniform(shoal_dtype dtype, const uint32_t *restrict x, void *restrict out, int64_t n) {
  switch (dtype) {
    case SHOAL_FLOAT32:
      for (int64_t i = 0; i < n; i++) ((float *)out)[i] = philox_float(x[i]);
      break;
    case SHOAL_FLOAT64:
      for (int64_t i = 0; i < n; i++) ((double *)out)[i] = philox_double(x[2 * i], x[2 * i + 1]);
      break;
    case SHOAL_FLOAT16:
      for (int64_t i = 0; i < n; i++) ((f16 *)out)[i] = half_of(x[i]);
      break;
    default:
      for (int64_t i = 0; i < n; i++) ((bf16 *)out)[i] = bfloat_of(x[i]);
  }
}

static void store_float(shoal_dtype dtype, void *out, int64_t i, float v) {
  if (dtype == SHOAL_FLOAT32) ((float *)out)[i] = v;
  else if (dtype == SHOAL_FLOAT16) ((f16 *)out)[i] = f16_from_float(v);
  else ((bf16 *)out)[i] = bf16_from_float(v);
}

static void normal(shoal_dtype dtype, const uint32_t *x, void *out, int64_t n) {
  if (dtype == SHOAL_FLOAT64) {
    for (int64_t i = 0; i < n; i += 2, x += 4) {
      double v[2];
      philox_normal_double(x, v);
      ((double *)out)[i] = v[0];
      if (i + 1 < n) ((double *)out)[i + 1] = v[1];
    }
    return;
  }
  for (int64_t i = 0; i < n; i += 2, x += 2) {
    float v[2];
    philox_normal_float(x[0], x[1], v);
    store_float(dtype, out, i, v[0]);
    if (i + 1 < n) store_float(dtype, out, i + 1, v[1]);
  }
}

static void ints(const struct random_filling *f, const uint32_t *restrict x, void *restrict out, int64_t n) {
  if (dtype_size(f->dtype) == 8) {
    uint64_t *o = out;
    for (int64_t i = 0; i < n; i++) {
      uint64_t v = x[2 * i] | (uint64_t)x[2 * i + 1] << 32;
      o[i] = f->ranged ? f->lo + v % f->range : v;
    }
  } else {
    uint32_t *o = out, lo = (uint32_t)f->lo, range = (uint32_t)f->range;
    for (int64_t i = 0; i < n; i++) o[i] = f->ranged ? lo + x[i] % range : x[i];
  }
}

/* Blocks [begin, end) of a distribution that takes one block a group. */
static void fill_blocks(void *arg, int64_t begin, int64_t end) {
  const struct random_filling *f = arg;
  size_t size = dtype_size(f->dtype);
  int64_t group = size == 8 ? 2 : 4;
  struct philox p = f->p;
  philox_skip(&p, (uint64_t)begin);
  uint32_t x[4 * CHUNK_BLOCKS];
  for (int64_t b = begin; b < end; b += CHUNK_BLOCKS) {
    int64_t blocks = MIN(end - b, (int64_t)CHUNK_BLOCKS), first = b * group, n = MIN(blocks * group, f->n - first);
    philox_blocks(&p, x, (size_t)blocks);
    void *out = f->out + (size_t)first * size;
    if (f->ranged || f->kind == RANDOM_FULL_INT) ints(f, x, out, n);
    else if (f->kind == RANDOM_UNIFORM) uniform(f->dtype, x, out, n);
    else normal(f->dtype, x, out, n);
  }
}

static void truncated_group(const struct random_filling *f, struct philox_stream *s, void *out, int64_t n) {
  int64_t made = 0;
  if (f->dtype == SHOAL_FLOAT64) {
    while (made < n) {
      uint32_t x[4];
      for (int i = 0; i < 4; i++) x[i] = philox_u32(s);
      double v[2];
      philox_normal_double(x, v);
      for (int i = 0; i < 2 && made < n; i++)
        if (fabs(v[i]) < 2.0) ((double *)out)[made++] = v[i];
    }
    return;
  }
  while (made < n) {
    uint32_t x0 = philox_u32(s), x1 = philox_u32(s);
    float v[2];
    philox_normal_float(x0, x1, v);
    for (int i = 0; i < 2 && made < n; i++)
      if (fabsf(v[i]) < 2.0f) store_float(f->dtype, out, made++, v[i]);
  }
}

static void fill_truncated(void *arg, int64_t begin, int64_t end) {
  const struct random_filling *f = arg;
  size_t size = dtype_size(f->dtype);
  int64_t group = size == 8 ? 2 : 4;
  for (int64_t g = begin; g < end; g++) {
    struct philox_stream s = philox_stream(f->p);
    philox_skip(&s.p, (uint64_t)g * RANDOM_BLOCKS_PER_OUTPUT * (uint64_t)group / 4);
    truncated_group(f, &s, f->out + (size_t)(g * group) * size, MIN(group, f->n - g * group));
  }
}

static void run(struct pool *pool, struct random_filling *f) {
  int64_t group = dtype_size(f->dtype) == 8 ? 2 : 4, groups = (f->n + group - 1) / group;
  if (!f->ranged && f->kind == RANDOM_TRUNCATED_NORMAL) pool_for(pool, groups, GRAIN_GROUPS, fill_truncated, f);
  else pool_for(pool, groups, f->kind == RANDOM_NORMAL ? GRAIN_GROUPS : GRAIN_BLOCKS, fill_blocks, f);
}

void random_fill(struct pool *pool, struct philox p, enum random_kind kind, shoal_dtype dtype, void *out, int64_t n) {
  struct random_filling f = {.p = p, .kind = kind, .dtype = dtype, .out = out, .n = n};
  run(pool, &f);
}

void random_fill_ints(struct pool *pool, struct philox p, shoal_dtype dtype, uint64_t lo, uint64_t range, void *out,
                      int64_t n) {
  struct random_filling f = {
      .p = p, .kind = RANDOM_FULL_INT, .dtype = dtype, .ranged = true, .lo = lo, .range = range, .out = out, .n = n};
  run(pool, &f);
}

/* ---- the kernels' generator ---- */

shoal_status random_state_init(struct kernel_init *ki, void *state) {
  struct random_state *s = state;
  int64_t seed, seed2;
  TRY(node_get_int(ki->node, "seed", &seed));
  TRY(node_get_int(ki->node, "seed2", &seed2));
  if (seed == 0 && seed2 == 0) s->p = philox_from_pair(ki->random_seed, 0);
  else s->p = philox_from_seeds((uint64_t)seed, (uint64_t)seed2);
  pthread_mutex_init(&s->lock, NULL);
  return NULL;
}

void random_state_release(void *state) { pthread_mutex_destroy(&((struct random_state *)state)->lock); }

struct philox random_reserve(struct random_state *s, uint64_t blocks) {
  pthread_mutex_lock(&s->lock);
  struct philox p = s->p;
  philox_skip(&s->p, blocks);
  pthread_mutex_unlock(&s->lock);
  return p;
}

/* ---- inputs ---- */

shoal_status random_shape(const struct tensor *t, struct shape *out) {
  if (t->rank != 1) {
    struct shape s = tensor_shape(t);
    return INVALID("shape must be a vector of {int32,int64}, got shape %s", shape_str(&s));
  }
  return tensor_get_shape(t, false, out);
}

shoal_status random_bounds(const struct tensor *lo_t, const struct tensor *hi_t, uint64_t *lo, uint64_t *range) {
  struct shape s;
  if (lo_t->rank != 0) {
    s = tensor_shape(lo_t);
    return INVALID("minval must be 0-D, got shape %s", shape_str(&s));
  }
  if (hi_t->rank != 0) {
    s = tensor_shape(hi_t);
    return INVALID("maxval must be 0-D, got shape %s", shape_str(&s));
  }
  if (lo_t->dtype == SHOAL_UINT64 || lo_t->dtype == SHOAL_UINT32) {
    bool wide = lo_t->dtype == SHOAL_UINT64;
    uint64_t a = wide ? *T_DATA(lo_t, uint64_t) : *T_DATA(lo_t, uint32_t);
    uint64_t b = wide ? *T_DATA(hi_t, uint64_t) : *T_DATA(hi_t, uint32_t);
    if (a >= b) return INVALID("Need minval < maxval, got %" PRIu64 " >= %" PRIu64, a, b);
    *lo = a;
    *range = b - a;
    return NULL;
  }
  int64_t a, b;
  TRY(tensor_get_int(lo_t, "minval", &a));
  TRY(tensor_get_int(hi_t, "maxval", &b));
  if (a >= b) return INVALID("Need minval < maxval, got %" PRId64 " >= %" PRId64, a, b);
  *lo = (uint64_t)a;
  *range = (uint64_t)b - (uint64_t)a;
  return NULL;
}

shoal_status random_from_seed_tensor(const struct tensor *seed, struct philox *out) {
  if (seed->rank != 1 || seed->dims[0] != 2) {
    struct shape s = tensor_shape(seed);
    return INVALID("seed must have shape [2], not %s", shape_str(&s));
  }
  uint64_t v[2];
  for (int i = 0; i < 2; i++) switch (seed->dtype) {
      case SHOAL_INT32: v[i] = (uint64_t)(int64_t)T_DATA(seed, int32_t)[i]; break;
      case SHOAL_UINT32: v[i] = T_DATA(seed, uint32_t)[i]; break;
      case SHOAL_INT64:
      case SHOAL_UINT64: v[i] = T_DATA(seed, uint64_t)[i]; break;
      default: return INVALID("Invalid seed type: %s", dtype_tf_name(seed->dtype));
    }
  *out = philox_from_pair(v[0], v[1]);
  return NULL;
}
