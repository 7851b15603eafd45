/* cuDNN: what of it we use is declared here as its binary interface has it. Everything is a descriptor: made, given
 * attributes, finalized. A plan keeps all descriptors that it was made of. See cuda_dnn.h.
 *
 * The library names ways to do a convolution, the one it thinks best first. When one of some shape is first run, each
 * way is timed with the memory at hand, and the fastest is kept. */
#include "device/cuda/cuda_dnn.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/vec.h"
#include "device/cuda/cuda_timed.h"

enum dnn_type { /* cudnnBackendAttributeType_t */
                OF_HANDLE = 0,
                OF_DATA_TYPE = 1,
                OF_INT64 = 3,
                OF_FLOAT = 4,
                OF_POINTER = 6,
                OF_CONV_MODE = 7,
                OF_HEURISTIC = 8,
                OF_NOTE = 11,
                OF_DESCRIPTOR = 15
};
enum dnn_descriptor { /* cudnnBackendDescriptorType_t */
                      DNN_CONVOLUTION = 1,
                      DNN_ENGINE = 2,
                      DNN_CONFIG = 3,
                      DNN_HEURISTIC = 4,
                      DNN_PLAN = 5,
                      DNN_FORWARD = 10,
                      DNN_BACK_FILTER = 11,
                      DNN_BACK_INPUT = 12,
                      DNN_GRAPH = 15,
                      DNN_VARIANT = 16,
                      DNN_TENSOR = 17
};
enum dnn_attribute { /* cudnnBackendAttributeName_t */
                     CONV_COMPUTE = 100,
                     CONV_MODE = 101,
                     CONV_DILATIONS = 102,
                     CONV_STRIDES = 103,
                     CONV_PAD_AFTER = 104,
                     CONV_PAD_BEFORE = 105,
                     CONV_SPATIAL = 106,
                     HEURISTIC_MODE = 200,
                     HEURISTIC_GRAPH = 201,
                     HEURISTIC_RESULTS = 202,
                     CONFIG_ENGINE = 300,
                     PLAN_HANDLE = 400,
                     PLAN_CONFIG = 401,
                     PLAN_WORKSPACE = 402,
                     GRAPH_HANDLE = 800,
                     GRAPH_OPS = 801,
                     TENSOR_ALIGN = 900,
                     TENSOR_TYPE = 901,
                     TENSOR_DIMS = 902,
                     TENSOR_STRIDES = 903,
                     TENSOR_ID = 906,
                     VARIANT_IDS = 1000,
                     VARIANT_POINTERS = 1001,
                     VARIANT_WORKSPACE = 1003,
                     ENGINE_NOTES = 1303
};
enum { TYPE_F32 = 0, TYPE_F16 = 2, TYPE_BF16 = 9, CROSS_CORRELATION = 1, NOTE_NONDETERMINISTIC = 4 };
enum { BEST_FIRST = 3, BY_LONGER_THOUGHT = 1, WHATEVER_WORKS = 2 }; /* heuristics: A, B, fallback */
enum { IMAGE_ID = 'x', FILTER_ID = 'w', RESULT_ID = 'y' };
enum { MOST_PLANS = 1024, MOST_CONFIGS = 16, MOST_WAYS = 12, MOST_BY_A = 8, MOST_NOTES = 16, TEXT = 512 };
static const size_t most_workspace = (size_t)1 << 30;

/* alpha, beta, convolution, filter, image, result of each kind of operation. */
struct dnn_operation {
  enum dnn_descriptor type;
  int alpha, beta, conv, filter, image, result;
};
static const struct dnn_operation operations[] = {[CONV_FORWARD] = {DNN_FORWARD, 700, 701, 702, 703, 704, 705},
                                                  [CONV_BACK_INPUT] = {DNN_BACK_INPUT, 706, 707, 708, 709, 710, 711},
                                                  [CONV_BACK_FILTER] = {DNN_BACK_FILTER, 712, 713, 714, 715, 716, 717}};

#define DNN_FUNCTIONS(X)                                                                                    \
  X(create, "cudnnCreate", (void **handle))                                                                 \
  X(destroy, "cudnnDestroy", (void *handle))                                                                \
  X(set_stream, "cudnnSetStream", (void *handle, CUstream s))                                               \
  X(make, "cudnnBackendCreateDescriptor", (int type, void **out))                                           \
  X(drop, "cudnnBackendDestroyDescriptor", (void *d))                                                       \
  X(finalize, "cudnnBackendFinalize", (void *d))                                                            \
  X(set, "cudnnBackendSetAttribute", (void *d, int name, int type, int64_t n, const void *values))          \
  X(get, "cudnnBackendGetAttribute", (void *d, int name, int type, int64_t room, int64_t *n, void *values)) \
  X(execute, "cudnnBackendExecute", (void *handle, void *plan, void *variant))

static struct {
  pthread_once_t once;
  bool there;
#define FIELD(name, symbol, args) int(*name) args;
  DNN_FUNCTIONS(FIELD)
#undef FIELD
  void (*last_error)(char *text, size_t size);
} dnn = {.once = PTHREAD_ONCE_INIT};

static void open_library(void) {
  void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    LOGI("there is no libcudnn.so.9: convolutions on cards are our own, which are slow");
    return;
  }
#define ROW(name, symbol, args) {symbol, (void **)(void *)&dnn.name},
  const struct cuda_symbol symbols[] = {DNN_FUNCTIONS(ROW){"cudnnGetLastErrorString", (void **)(void *)&dnn.last_error},
                                        {0}};
#undef ROW
  const char *missing = cuda_symbols(library, symbols);
  if (missing) LOGW("libcudnn.so.9 has no %s: convolutions on cards are our own, which are slow", missing);
  dnn.there = !missing;
}

bool cuda_dnn_there(void) {
  pthread_once(&dnn.once, open_library);
  return dnn.there;
}

static shoal_status dnn_status(int error, const char *what) {
  char text[TEXT] = "";
  if (!error) return NULL;
  dnn.last_error(text, sizeof text);
  text[sizeof text - 1] = 0;
  return INTERNAL("cuDNN: %s: error %d: %s", what, error, text);
}

/* ---- plans ---- */

struct dnn_way {
  void *plan;
  int64_t workspace;
};
struct dnn_plan {
  struct cuda_conv of;
  VEC(void *) made; /* all descriptors, to be dropped */
  struct dnn_way ways[MOST_WAYS];
  int n; /* 0: there is no way to do it; 1: it is known; else they are to be timed */
};

struct cuda_dnn {
  void *handle;
  VEC(struct dnn_plan *) plans; /* the device's lock */
};

static void drop_made(struct dnn_plan *p) {
  while (p->made.n) dnn.drop(p->made.at[--p->made.n]);
}

static void plan_free(struct dnn_plan *p) {
  drop_made(p);
  vec_release(&p->made);
  free(p);
}

/* A descriptor that is being made. The first error sticks. */
struct dnn_maker {
  struct dnn_plan *p;
  void *d;
  int error;
};

static void begin(struct dnn_maker *m, enum dnn_descriptor type) {
  m->d = NULL;
  if (!m->error) m->error = dnn.make(type, &m->d);
  if (!m->error) vec_push(&m->p->made, m->d);
}

static void set(struct dnn_maker *m, int name, enum dnn_type type, int64_t n, const void *values) {
  if (!m->error) m->error = dnn.set(m->d, name, type, n, values);
}

static void *end(struct dnn_maker *m) {
  if (!m->error) m->error = dnn.finalize(m->d);
  return m->d;
}

static int data_type(shoal_dtype t) {
  return t == SHOAL_FLOAT16 ? TYPE_F16 : t == SHOAL_BFLOAT16 ? TYPE_BF16 : TYPE_F32;
}

/* With two spatial dimensions the first of three is left out. */
static int first_dim(const struct conv *c) { return c->in[0] == 1 && c->out[0] == 1 && c->filter[0] == 1 ? 1 : 0; }

/* [outer, spatial, inner] in memory; the library names dimensions outer, inner, spatial. */
static void *tensor(struct dnn_maker *m, int64_t id, int64_t outer, const int64_t *spatial, int64_t inner) {
  int first = first_dim(&m->p->of.c), rank = 5 - first, type = data_type(m->p->of.dtype);
  int64_t dims[5] = {outer, inner}, strides[5] = {0, 1}, step = inner, align = m->p->of.align;
  for (int d = 2; d >= first; d--) {
    dims[2 + d - first] = spatial[d];
    strides[2 + d - first] = step;
    step *= spatial[d];
  }
  strides[0] = step;
  begin(m, DNN_TENSOR);
  set(m, TENSOR_TYPE, OF_DATA_TYPE, 1, &type);
  set(m, TENSOR_DIMS, OF_INT64, rank, dims);
  set(m, TENSOR_STRIDES, OF_INT64, rank, strides);
  set(m, TENSOR_ID, OF_INT64, 1, &id);
  set(m, TENSOR_ALIGN, OF_INT64, 1, &align);
  return end(m);
}

static void *convolution(struct dnn_maker *m) {
  const struct conv *c = &m->p->of.c;
  int first = first_dim(c), compute = TYPE_F32, mode = CROSS_CORRELATION;
  int64_t spatial = 3 - first;
  begin(m, DNN_CONVOLUTION);
  set(m, CONV_COMPUTE, OF_DATA_TYPE, 1, &compute);
  set(m, CONV_MODE, OF_CONV_MODE, 1, &mode);
  set(m, CONV_SPATIAL, OF_INT64, 1, &spatial);
  set(m, CONV_DILATIONS, OF_INT64, spatial, c->dilation + first);
  set(m, CONV_STRIDES, OF_INT64, spatial, c->stride + first);
  set(m, CONV_PAD_BEFORE, OF_INT64, spatial, c->pad + first);
  set(m, CONV_PAD_AFTER, OF_INT64, spatial, c->pad + first);
  return end(m);
}

static void *operation(struct dnn_maker *m) {
  const struct conv *c = &m->p->of.c;
  const struct dnn_operation *o = &operations[m->p->of.kind];
  const float one = 1, none = 0;
  void *image = tensor(m, IMAGE_ID, c->batch, c->in, c->ci);
  void *filter = tensor(m, FILTER_ID, c->co, c->filter, c->ci / c->groups);
  void *result = tensor(m, RESULT_ID, c->batch, c->out, c->co);
  void *conv = convolution(m);
  begin(m, o->type);
  set(m, o->conv, OF_DESCRIPTOR, 1, &conv);
  set(m, o->image, OF_DESCRIPTOR, 1, &image);
  set(m, o->filter, OF_DESCRIPTOR, 1, &filter);
  set(m, o->result, OF_DESCRIPTOR, 1, &result);
  set(m, o->alpha, OF_FLOAT, 1, &one);
  set(m, o->beta, OF_FLOAT, 1, &none);
  return end(m);
}

static void *graph(struct dnn_maker *m, void *handle) {
  void *op = operation(m);
  begin(m, DNN_GRAPH);
  set(m, GRAPH_OPS, OF_DESCRIPTOR, 1, &op);
  set(m, GRAPH_HANDLE, OF_HANDLE, 1, &handle);
  return end(m);
}

/* Does this way give the same bits each time? */
static bool repeatable(struct dnn_maker *m, void *config) {
  int notes[MOST_NOTES];
  int64_t n = 0;
  begin(m, DNN_ENGINE);
  if (!m->error) m->error = dnn.get(config, CONFIG_ENGINE, OF_DESCRIPTOR, 1, &n, &m->d);
  n = 0;
  if (m->error || dnn.get(m->d, ENGINE_NOTES, OF_NOTE, MOST_NOTES, &n, notes)) n = 0;
  for (int64_t i = 0; i < MIN(n, MOST_NOTES); i++)
    if (notes[i] == NOTE_NONDETERMINISTIC) return false;
  return !m->error;
}

/* Whether a way can be gone is known when its plan is made. */
static bool try_config(struct dnn_maker *m, void *handle, void *config) {
  int64_t n, room = 0;
  m->error = 0;
  if (!repeatable(m, config)) return false;
  begin(m, DNN_PLAN);
  set(m, PLAN_HANDLE, OF_HANDLE, 1, &handle);
  set(m, PLAN_CONFIG, OF_DESCRIPTOR, 1, &config);
  void *plan = end(m);
  if (!m->error) m->error = dnn.get(plan, PLAN_WORKSPACE, OF_INT64, 1, &n, &room);
  if (m->error || room < 0 || (size_t)room > most_workspace) return false;
  m->p->ways[m->p->n++] = (struct dnn_way){plan, room};
  return true;
}

/* Ways are added until there are so many. */
static void try_heuristic(struct dnn_maker *m, void *handle, void *graph, int mode, int most) {
  void *configs[MOST_CONFIGS];
  int64_t n = 0;
  m->error = 0;
  begin(m, DNN_HEURISTIC);
  set(m, HEURISTIC_GRAPH, OF_DESCRIPTOR, 1, &graph);
  set(m, HEURISTIC_MODE, OF_HEURISTIC, 1, &mode);
  void *heuristic = end(m);
  for (int i = 0; i < MOST_CONFIGS; i++) {
    begin(m, DNN_CONFIG);
    configs[i] = m->d;
  }
  if (!m->error) m->error = dnn.get(heuristic, HEURISTIC_RESULTS, OF_DESCRIPTOR, MOST_CONFIGS, &n, configs);
  if (m->error) return;
  for (int i = 0; i < MIN(n, MOST_CONFIGS) && m->p->n < most; i++) try_config(m, handle, configs[i]);
}

/* What the library knows, best first; else whatever works; else nothing. */
static void find_ways(struct dnn_plan *p, void *handle, bool timed) {
  struct dnn_maker m = {.p = p};
  void *g = graph(&m, handle);
  bool built = !m.error;
  if (built) try_heuristic(&m, handle, g, BEST_FIRST, timed ? MOST_BY_A : 1);
  if (p->n && timed) try_heuristic(&m, handle, g, BY_LONGER_THOUGHT, MOST_WAYS);
  if (built && !p->n) try_heuristic(&m, handle, g, WHATEVER_WORKS, 1);
  if (p->n) return;
  shoal_status s = dnn_status(m.error, "a convolution");
  LOGI("cuDNN has no way to do a convolution, it is done slowly: %s", s ? shoal_status_message(s) : "no engine");
  shoal_status_free(s);
  drop_made(p);
}

static bool same(const struct cuda_conv *a, const struct cuda_conv *b) {
  return a->kind == b->kind && a->dtype == b->dtype && a->align == b->align && !memcmp(&a->c, &b->c, sizeof a->c);
}

static shoal_status dnn_new(struct cuda_device *c) {
  if (c->dnn) return NULL;
  struct cuda_dnn *d = mem_zalloc(1, sizeof *d);
  shoal_status s = dnn_status(dnn.create(&d->handle), "beginning");
  if (!s) s = dnn_status(dnn.set_stream(d->handle, c->streams[CUDA_COMPUTE].stream), "a stream");
  if (s) cuda_dnn_free(d);
  else c->dnn = d;
  return s;
}

static shoal_status find_plan(struct cuda_device *c, const struct cuda_conv *of, struct dnn_plan **out) {
  struct cuda_dnn *d = c->dnn;
  for (size_t i = 0; i < d->plans.n; i++)
    if (same(&d->plans.at[i]->of, of)) {
      *out = d->plans.at[i];
      return NULL;
    }
  if (d->plans.n == MOST_PLANS) { /* shapes that change all the time: the oldest goes */
    plan_free(d->plans.at[0]);
    memmove(d->plans.at, d->plans.at + 1, (MOST_PLANS - 1) * sizeof *d->plans.at);
    d->plans.n--;
  }
  struct dnn_plan *p = mem_zalloc(1, sizeof *p);
  p->of = *of;
  find_ways(p, d->handle, cuda_may_time(c));
  vec_push(&d->plans, p);
  *out = p;
  return NULL;
}

void cuda_dnn_free(struct cuda_dnn *d) {
  if (!d) return;
  for (size_t i = 0; i < d->plans.n; i++) plan_free(d->plans.at[i]);
  vec_release(&d->plans);
  if (d->handle) dnn.destroy(d->handle);
  free(d);
}

/* ---- what is asked of it ---- */

/* The library may be there and not work: parts of it missing, or of other versions. */
static bool works(struct cuda_device *c) {
  shoal_status s = c->no_dnn ? NULL : dnn_new(c);
  if (s) LOGW("%s: convolutions on this card are our own, which are slow", shoal_status_message(s));
  c->no_dnn |= s != NULL;
  shoal_status_free(s);
  return !c->no_dnn;
}

shoal_status cuda_dnn_ask(struct cuda_device *c, const struct cuda_conv *of, bool *can, size_t *workspace) {
  struct dnn_plan *p;
  *can = false;
  if (!works(c)) return NULL;
  TRY(find_plan(c, of, &p));
  *can = p->n > 0;
  *workspace = 0;
  for (int i = 0; i < p->n; i++) *workspace = MAX(*workspace, (size_t)p->ways[i].workspace);
  return NULL;
}

static int fill_variant(void *v, const struct cuda_conv_memory *m) {
  void *const pointers[] = {m->image, m->filter, m->result};
  const int64_t ids[] = {IMAGE_ID, FILTER_ID, RESULT_ID};
  int error = dnn.set(v, VARIANT_POINTERS, OF_POINTER, 3, pointers);
  if (!error) error = dnn.set(v, VARIANT_IDS, OF_INT64, 3, ids);
  if (!error) error = dnn.set(v, VARIANT_WORKSPACE, OF_POINTER, 1, &m->workspace);
  return error ? error : dnn.finalize(v);
}

struct dnn_run {
  void *handle, *plan, *variant;
};
static int execute(void *arg) {
  const struct dnn_run *r = arg;
  return dnn.execute(r->handle, r->plan, r->variant);
}

/* Every way writes the whole result: that of the last may stay. */
static int fastest(struct cuda_device *c, const struct dnn_plan *p, void *variant) {
  static const float clearly = 0.98f;
  float shortest = -1, first = -1;
  int best = 0;
  for (int i = 0; i < p->n; i++) {
    struct dnn_run r = {c->dnn->handle, p->ways[i].plan, variant};
    float took = cuda_time(c, execute, &r);
    if (i == 0) first = took;
    if (took < 0 || (shortest >= 0 && took >= clearly * shortest)) continue;
    shortest = took;
    best = i;
  }
  const struct conv *k = &p->of.c;
  LOGD(
      "a convolution (kind %d, %lld x %lld x %lld by %lld, %lld to %lld channels) is done in way %d of %d: %.1f us, "
      "the "
      "first takes %.1f",
      (int)p->of.kind, (long long)k->batch, (long long)k->in[1], (long long)k->in[2], (long long)k->filter[2],
      (long long)k->ci, (long long)k->co, best, p->n, (double)shortest * 1e3, (double)first * 1e3);
  return best;
}

static void keep_one(struct dnn_plan *p, int best) {
  p->ways[0] = p->ways[best];
  p->n = 1;
}

/* While a step is captured the library's first choice is taken, and the rest is left for later. */
static int run_best(struct cuda_device *c, struct dnn_plan *p, void *variant) {
  if (p->n > 1 && cuda_may_time(c)) keep_one(p, fastest(c, p, variant));
  return execute(&(struct dnn_run){c->dnn->handle, p->ways[0].plan, variant});
}

shoal_status cuda_dnn_run(struct cuda_device *c, const struct cuda_conv *of, const struct cuda_conv_memory *m) {
  struct dnn_plan *p;
  void *variant;
  TRY(find_plan(c, of, &p));
  TRY(dnn_status(dnn.make(DNN_VARIANT, &variant), "a convolution"));
  int error = fill_variant(variant, m);
  cuda_count_computed(c);
  if (!error) error = run_best(c, p, variant);
  shoal_status s = dnn_status(error, "a convolution");
  dnn.drop(variant);
  return s;
}
