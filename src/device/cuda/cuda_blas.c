/* cuBLASLt: opened at run time; what of it we use is declared here as its binary interface has it.
 *
 * The library counts in columns where we have rows: our c = a * b is its c' = b' * a', with the same memory.
 *
 * How a product of some shape is best done is found once and kept: the library names a few ways, the one it thinks best
 * first, and each is timed with the operands at hand (cuda_timed.h); another than the first is taken where it is
 * clearly faster. */
#include "device/cuda/cuda_blas.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/vec.h"
#include "device/cuda/cuda_small.h"
#include "device/cuda/cuda_timed.h"

enum { TYPE_F32 = 0, TYPE_F64 = 1, TYPE_F16 = 2, TYPE_BF16 = 14 }; /* cudaDataType */
enum { COMPUTE_F32 = 68, COMPUTE_F64 = 70, COMPUTE_TF32 = 77 };    /* cublasComputeType_t */
enum {
  DESC_TRANS_A = 3,
  DESC_TRANS_B = 4,
  DESC_EPILOGUE = 7,
  DESC_BIAS = 8,
  DESC_AUX = 11,
  DESC_AUX_LEAD = 12,
  LAYOUT_BATCH = 5,
  LAYOUT_STEP = 6,
  PREFERENCE_WORKSPACE = 1,
  PREFERENCE_ALIGN = 5
};
enum { WORKSPACE = 32 << 20, WAYS = 8 };

struct blas_algo {
  uint64_t data[8];
};
struct blas_choice { /* cublasLtMatmulHeuristicResult_t */
  struct blas_algo algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

#define BLAS_FUNCTIONS(X)                                                                                            \
  X(create, "cublasLtCreate", (void **handle))                                                                       \
  X(destroy, "cublasLtDestroy", (void *handle))                                                                      \
  X(desc_new, "cublasLtMatmulDescCreate", (void **desc, int compute, int scale))                                     \
  X(desc_set, "cublasLtMatmulDescSetAttribute", (void *desc, int what, const void *value, size_t size))              \
  X(desc_free, "cublasLtMatmulDescDestroy", (void *desc))                                                            \
  X(layout_new, "cublasLtMatrixLayoutCreate", (void **layout, int type, uint64_t rows, uint64_t cols, int64_t lead)) \
  X(layout_set, "cublasLtMatrixLayoutSetAttribute", (void *layout, int what, const void *value, size_t size))        \
  X(layout_free, "cublasLtMatrixLayoutDestroy", (void *layout))                                                      \
  X(preference_new, "cublasLtMatmulPreferenceCreate", (void **preference))                                           \
  X(preference_set, "cublasLtMatmulPreferenceSetAttribute", (void *p, int what, const void *value, size_t size))     \
  X(preference_free, "cublasLtMatmulPreferenceDestroy", (void *preference))                                          \
  X(choose, "cublasLtMatmulAlgoGetHeuristic",                                                                        \
    (void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int most,                       \
     struct blas_choice *out, int *n))                                                                               \
  X(matmul, "cublasLtMatmul",                                                                                        \
    (void *handle, void *desc, const void *alpha, const void *a, void *layout_a, const void *b, void *layout_b,      \
     const void *beta, const void *c, void *layout_c, void *d, void *layout_d, const struct blas_algo *algo,         \
     void *workspace, size_t size, CUstream stream))

static struct {
  pthread_once_t once;
  bool there;
#define FIELD(name, symbol, args) int(*name) args;
  BLAS_FUNCTIONS(FIELD)
#undef FIELD
} lt = {.once = PTHREAD_ONCE_INIT};

static void open_library(void) {
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"};
  void *library = NULL;
  for (size_t i = 0; i < sizeof names / sizeof names[0] && !library; i++)
    library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!library) return;
#define ROW(name, symbol, args) {symbol, (void **)(void *)&lt.name},
  const struct cuda_symbol symbols[] = {BLAS_FUNCTIONS(ROW){0}};
#undef ROW
  lt.there = !cuda_symbols(library, symbols);
}

bool cuda_blas_there(void) {
  pthread_once(&lt.once, open_library);
  return lt.there;
}

static shoal_status blas_status(int error, const char *what) {
  return error ? INTERNAL("cuBLASLt: %s: error %d", what, error) : NULL;
}

/* A product as the library knows it, with the way to do it. */
struct blas_plan {
  struct cuda_product of;
  uint32_t align; /* of all three, in bytes */
  void *desc, *a, *b, *c;
  struct blas_algo algo;
  bool own; /* our own kernel is faster (cuda_small.h) */
};

struct cuda_blas {
  void *handle;
  struct buffer *workspace;
  VEC(struct blas_plan *) plans; /* the device's lock */
};

static void plan_free(struct blas_plan *p) {
  if (p->desc) lt.desc_free(p->desc);
  if (p->a) lt.layout_free(p->a);
  if (p->b) lt.layout_free(p->b);
  if (p->c) lt.layout_free(p->c);
  free(p);
}

shoal_status cuda_blas_new(struct cuda_device *c, struct device *d, struct cuda_blas **out) {
  if (!cuda_blas_there()) {
    LOGW("there is no libcublasLt.so: matrix products stay on the CPU");
    return NULL;
  }
  struct cuda_blas *b = mem_zalloc(1, sizeof *b);
  *out = b;
  TRY(blas_status(lt.create(&b->handle), "beginning"));
  return cuda_alloc(d, "matrix products", WORKSPACE, &b->workspace);
}

void cuda_blas_free(struct cuda_blas *b) {
  if (!b) return;
  for (size_t i = 0; i < b->plans.n; i++) plan_free(b->plans.at[i]);
  vec_release(&b->plans);
  if (b->handle) lt.destroy(b->handle);
  buffer_unref(b->workspace);
  free(b);
}

static int data_type(shoal_dtype t) {
  switch (t) {
    case SHOAL_FLOAT64: return TYPE_F64;
    case SHOAL_FLOAT16: return TYPE_F16;
    case SHOAL_BFLOAT16: return TYPE_BF16;
    default: return TYPE_F32;
  }
}

/* A matrix of rows * cols numbers, row after row, is one of cols by rows for the library. */
static shoal_status layout(int type, int64_t rows, int64_t cols, int64_t batch, int64_t step, void **out) {
  int32_t n = (int32_t)batch;
  TRY(blas_status(lt.layout_new(out, type, (uint64_t)cols, (uint64_t)rows, cols), "a layout"));
  TRY(blas_status(lt.layout_set(*out, LAYOUT_BATCH, &n, sizeof n), "a layout"));
  return blas_status(lt.layout_set(*out, LAYOUT_STEP, &step, sizeof step), "a layout");
}

/* As TensorFlow has it: products of float32 may be taken in TF32 unless TF32 is switched off, by
 * NVIDIA_TF32_OVERRIDE=0, which the library itself heeds. */
static shoal_status describe(struct blas_plan *p) {
  int type = data_type(p->of.dtype), compute = type == TYPE_F64   ? COMPUTE_F64
                                               : type == TYPE_F32 ? COMPUTE_TF32
                                                                  : COMPUTE_F32;
  int32_t trans_a = p->of.trans_a, trans_b = p->of.trans_b;
  static const int32_t epilogues[] = {1, 4, 6, 64 | 128, 4 | 32 | 128}; /* cublasLtEpilogue_t: by enum cuda_epilogue */
  const struct cuda_product *o = &p->of;
  TRY(blas_status(lt.desc_new(&p->desc, compute, type == TYPE_F64 ? TYPE_F64 : TYPE_F32), "a product"));
  TRY(blas_status(lt.desc_set(p->desc, DESC_TRANS_A, &trans_b, sizeof trans_b), "a product"));
  TRY(blas_status(lt.desc_set(p->desc, DESC_TRANS_B, &trans_a, sizeof trans_a), "a product"));
  int32_t epilogue = epilogues[o->epilogue];
  if (o->epilogue) TRY(blas_status(lt.desc_set(p->desc, DESC_EPILOGUE, &epilogue, sizeof epilogue), "a product"));
  if (o->epilogue == CUDA_GELU_BACK || o->epilogue == CUDA_BIAS_GELU)
    TRY(blas_status(lt.desc_set(p->desc, DESC_AUX_LEAD, &o->n, sizeof o->n), "a product"));
  TRY(layout(type, o->trans_a ? o->k : o->m, o->trans_a ? o->m : o->k, o->batch, o->step_a, &p->a));
  TRY(layout(type, o->trans_b ? o->n : o->k, o->trans_b ? o->k : o->n, o->batch, o->step_b, &p->b));
  return layout(type, o->m, o->n, o->batch, o->step_c, &p->c);
}

/* The ways that the library knows, best first; at most WAYS. */
static shoal_status ask(struct cuda_blas *b, struct blas_plan *p, struct blas_choice *ways, int *n) {
  void *preference;
  size_t room = WORKSPACE;
  TRY(blas_status(lt.preference_new(&preference), "a choice"));
  int error = lt.preference_set(preference, PREFERENCE_WORKSPACE, &room, sizeof room);
  for (int i = 0; i < 4 && !error; i++)
    error = lt.preference_set(preference, PREFERENCE_ALIGN + i, &p->align, sizeof p->align);
  if (!error) error = lt.choose(b->handle, p->desc, p->b, p->a, p->c, p->c, preference, WAYS, ways, n);
  lt.preference_free(preference);
  TRY(blas_status(error, "a choice"));
  return *n ? NULL : UNIMPLEMENTED("cuBLASLt has no way to do this product");
}

/* ---- products ---- */

struct blas_operands {
  const void *a, *b;
  void *out;
  const void *more; /* the epilogue's; NULL: none */
  const void *onto; /* what c begins with; NULL: zeros */
  void *also;       /* written beside out: what GELU is of; NULL: none */
};

static shoal_status set_more(struct blas_plan *p, const struct blas_operands *o) {
  int what = p->of.epilogue == CUDA_GELU_BACK ? DESC_AUX : DESC_BIAS;
  if (o->also) TRY(blas_status(lt.desc_set(p->desc, DESC_AUX, &o->also, sizeof o->also), "an epilogue"));
  return o->more ? blas_status(lt.desc_set(p->desc, what, &o->more, sizeof o->more), "an epilogue") : NULL;
}

static int multiply(struct cuda_device *c, const struct blas_plan *p, const struct blas_algo *algo,
                    const struct blas_operands *o) {
  static const double one = 1, none = 0;
  static const float one_f = 1, none_f = 0;
  bool wide = p->of.dtype == SHOAL_FLOAT64;
  const void *by = wide ? (const void *)&one : &one_f, *keep = wide ? (const void *)&none : &none_f;
  return lt.matmul(c->blas->handle, p->desc, by, o->b, p->b, o->a, p->a, o->onto ? by : keep,
                   o->onto ? o->onto : o->out, p->c, o->out, p->c, algo, c->blas->workspace->data, WORKSPACE,
                   c->streams[CUDA_COMPUTE].stream);
}

static int multiply_own(struct cuda_device *c, const struct blas_plan *p, const struct blas_operands *o) {
  return cuda_small_multiply(c, &p->of, o->a, o->b, o->more, o->out);
}

/* ---- timing ---- */

struct blas_try {
  struct cuda_device *c;
  const struct blas_plan *p;
  const struct blas_algo *algo;
  const struct blas_operands *o;
};
static int try_way(void *arg) {
  const struct blas_try *t = arg;
  return multiply(t->c, t->p, t->algo, t->o);
}
static int try_own(void *arg) {
  const struct blas_try *t = arg;
  return multiply_own(t->c, t->p, t->o);
}

static int fastest(struct cuda_device *c, const struct blas_plan *p, const struct blas_choice *ways, int n,
                   const struct blas_operands *o, float *took_best) {
  enum { LONG_US = 100 }; /* what takes so long is timed to a percent */
  float shortest = cuda_time(c, try_way, &(struct blas_try){c, p, &ways[0].algo, o});
  int best = 0;
  for (int i = 1; i < n && shortest >= 0; i++) {
    float took = ways[i].state ? -1 : cuda_time(c, try_way, &(struct blas_try){c, p, &ways[i].algo, o});
    float clearly = shortest * 1000 > LONG_US ? 0.99f : 0.95f;
    if (took < 0 || took >= clearly * shortest) continue;
    shortest = took;
    best = i;
  }
  *took_best = shortest;
  return best;
}

static bool is_own_faster(struct cuda_device *c, const struct blas_plan *p, const struct blas_operands *o, float than) {
  static const float nearly = 1.05f; /* it is one launch, whatever the library's way consists of */
  if (than < 0 || !cuda_small_fits(&p->of)) return false;
  float took = cuda_time(c, try_own, &(struct blas_try){c, p, NULL, o});
  return took >= 0 && took < nearly * than;
}

static shoal_status choose(struct cuda_device *c, struct blas_plan *p, const struct blas_operands *o) {
  struct blas_choice ways[WAYS];
  int n = 0;
  TRY(describe(p));
  TRY(set_more(p, o));
  TRY(ask(c->blas, p, ways, &n));
  float took = -1;
  int best = cuda_may_time(c) ? fastest(c, p, ways, n, o, &took) : 0;
  p->own = is_own_faster(c, p, o, took);
  LOGD("a product of %lld by %lld by %lld is done in way %d of %d, %.1f us%s", (long long)p->of.m, (long long)p->of.k,
       (long long)p->of.n, best, n, (double)took * 1e3, p->own ? ", or rather by our own kernel" : "");
  p->algo = ways[best].algo;
  return NULL;
}

static bool same(const struct cuda_product *a, const struct cuda_product *b) {
  return a->dtype == b->dtype && a->trans_a == b->trans_a && a->trans_b == b->trans_b && a->m == b->m && a->n == b->n &&
         a->k == b->k && a->batch == b->batch && a->step_a == b->step_a && a->step_b == b->step_b &&
         a->step_c == b->step_c && a->epilogue == b->epilogue && a->onto == b->onto;
}

static shoal_status find_plan(struct cuda_device *c, const struct cuda_product *of, uint32_t align,
                              const struct blas_operands *o, struct blas_plan **out) {
  enum { MOST = 512 };
  struct cuda_blas *b = c->blas;
  for (size_t i = 0; i < b->plans.n; i++)
    if (b->plans.at[i]->align == align && same(&b->plans.at[i]->of, of)) {
      *out = b->plans.at[i];
      return NULL;
    }
  struct blas_plan *p = mem_zalloc(1, sizeof *p);
  p->of = *of;
  p->align = align;
  shoal_status s = choose(c, p, o);
  if (s) {
    plan_free(p);
    return s;
  }
  if (b->plans.n == MOST) { /* shapes that change all the time: the oldest goes */
    plan_free(b->plans.at[0]);
    memmove(b->plans.at, b->plans.at + 1, (MOST - 1) * sizeof *b->plans.at);
    b->plans.n--;
  }
  vec_push(&b->plans, p);
  *out = p;
  return NULL;
}

/* Parts of tensors begin anywhere. */
static uint32_t alignment(uintptr_t bits) {
  enum { MOST = 256 };
  return bits & (MOST - 1) ? (uint32_t)(bits & -bits) : MOST;
}

static shoal_status run(struct cuda_device *c, const struct cuda_product *of, const struct blas_operands *o) {
  struct blas_plan *p;
  uintptr_t all = (uintptr_t)o->a | (uintptr_t)o->b | (uintptr_t)o->out | (uintptr_t)o->more | (uintptr_t)o->onto |
                  (uintptr_t)o->also;
  TRY(find_plan(c, of, alignment(all), o, &p));
  TRY(set_more(p, o));
  cuda_count_computed(c);
  if (p->own) return cuda_status(multiply_own(c, p, o), "a product");
  return blas_status(multiply(c, p, &p->algo, o), "a product");
}

shoal_status cuda_blas_run_onto(struct cuda_device *c, const struct cuda_product *of, const void *a, const void *b,
                                const void *more, const void *onto, void *out) {
  return run(c, of, &(struct blas_operands){a, b, out, more, onto, NULL});
}

shoal_status cuda_blas_run_gelu(struct cuda_device *c, const struct cuda_product *of, const void *a, const void *b,
                                const void *bias, void *x, void *out) {
  return run(c, of, &(struct blas_operands){a, b, out, bias, NULL, x});
}

shoal_status cuda_blas_run_with(struct cuda_device *c, const struct cuda_product *of, const void *a, const void *b,
                                const void *more, void *out) {
  return cuda_blas_run_onto(c, of, a, b, more, NULL, out);
}

shoal_status cuda_blas_run(struct cuda_device *c, const struct cuda_product *of, const void *a, const void *b,
                           void *out) {
  return cuda_blas_run_with(c, of, a, b, NULL, out);
}
