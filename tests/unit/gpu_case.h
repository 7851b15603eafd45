/* What the tests of a GPU's kernels share: cases, op by op and type by type. The same numbers go through the CPU's
 * kernel and the GPU's, and the results are held against each other. On a machine with a card this tries the card
 * (`make test-gpu`); elsewhere, and in `make test`, the soft device, whose kernels are the CPU's, so that what is tried
 * is the way there and back. */
#ifndef GPU_CASE_H
#define GPU_CASE_H

#include "unit.h"

#include <math.h>
#include <shoal/ops.h>
#include <shoal/shoal.h>

#include "base/mem.h"
#include "device/cuda/cuda_api.h"
#include "runtime/kernel.h"

static const char *const devices[] = {"/device:CPU:0", "/device:GPU:0"};

enum { MOST_IN = 12, MOST_VALUES = 8 };
struct gpu_case {
  const char *op;
  int n_in;
  struct {
    int rank;
    int64_t dims[5];
    shoal_dtype type; /* 0: the one that is tried */
    int limit;        /* of another type: numbers from 0 below this; 0: these, where there are so many */
    double values[MOST_VALUES];
  } in[MOST_IN];
  uint32_t types;   /* DT() bits; 0: the floating ones */
  double low, high; /* of the inputs' numbers; both 0: -2 and 2 */
  void (*attrs)(shoal_builder *b);
  int axes[3], n_axes; /* a last input of int32: a vector, or */
  bool scalar;
  bool tf32;    /* float32 is multiplied in TF32 on a card, as TensorFlow does: 10 bits */
  double slack; /* of the tolerance; 0: 1 */
  int n_out;    /* 0: 1 */
};

static inline double tolerance(shoal_dtype t) {
  if (!(DT_FLOATING >> t & 1)) return 0;
  return t == SHOAL_FLOAT64 ? 1e-11 : t == SHOAL_FLOAT32 ? 2e-5 : t == SHOAL_FLOAT16 ? 4e-3 : 3e-2;
}

static int wrong;            /* cases that differ: all are told of */
static shoal_dtype building; /* the type of the case that is built, for attributes that no input tells */
static uint32_t seed;
static inline double number(double low, double high) {
  seed = seed * 1664525 + 1013904223;
  return low + (high - low) * (seed >> 8) / (double)(1 << 24);
}

static inline double element(const struct gpu_case *c, int i, int64_t k) {
  if (c->in[i].type && c->in[i].limit) return floor(number(0, c->in[i].limit));
  if (c->in[i].type && k < MOST_VALUES) return c->in[i].values[k];
  return c->low == c->high ? number(-2, 2) : number(c->low, c->high);
}

static inline shoal_out constant(shoal_graph *g, const struct gpu_case *c, int i, shoal_dtype t) {
  shoal_tensor *v;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT64, c->in[i].rank, c->in[i].dims, &v));
  for (int64_t k = 0; k < shoal_tensor_elements(v); k++) ((double *)shoal_tensor_data(v))[k] = element(c, i, k);
  shoal_out o = shoal_constant(g, v);
  shoal_tensor_unref(v);
  return shoal_cast(g, o, c->in[i].type ? c->in[i].type : t);
}

static inline shoal_out axes_of(shoal_graph *g, const struct gpu_case *c) {
  shoal_tensor *v;
  ASSERT_OK(shoal_tensor_from(SHOAL_INT32, !c->scalar, (int64_t[]){c->n_axes}, c->axes,
                              (size_t)c->n_axes * sizeof *c->axes, &v));
  shoal_out o = shoal_constant(g, v);
  shoal_tensor_unref(v);
  return o;
}

static inline bool is_list(const char *op) {
  return !strcmp(op, "AddN") || !strcmp(op, "Pack") || !strcmp(op, "ConcatV2");
}

static inline void build(shoal_graph *g, const struct gpu_case *c, shoal_dtype t, int device, shoal_out *out) {
  shoal_out in[MOST_IN + 1];
  seed = 1;
  building = t;
  shoal_push_device(g, devices[0]);
  for (int i = 0; i < c->n_in; i++) in[i] = constant(g, c, i, t);
  if (c->n_axes) in[c->n_in] = axes_of(g, c);
  shoal_pop_device(g);
  shoal_builder *b = shoal_build(g, c->op, NULL);
  if (is_list(c->op)) shoal_build_inputs(b, in, c->n_in);
  for (int i = is_list(c->op) ? c->n_in : 0; i < c->n_in + (c->n_axes > 0); i++) shoal_build_input(b, in[i]);
  if (c->attrs) c->attrs(b);
  shoal_build_device(b, devices[device]);
  shoal_op *op = shoal_build_end(b);
  if (!op) return;
  shoal_push_device(g, devices[0]);
  for (int i = 0; i < MAX(c->n_out, 1); i++) out[i] = shoal_cast(g, (shoal_out){op, i}, SHOAL_FLOAT64);
  shoal_pop_device(g);
}

static inline void hold(const struct gpu_case *c, shoal_dtype t, const shoal_tensor *want, const shoal_tensor *have) {
  int64_t n = shoal_tensor_elements(want);
  const double *w = shoal_tensor_const_data(want), *h = shoal_tensor_const_data(have);
  assert_int_equal(n, shoal_tensor_elements(have));
  double most = tolerance(c->tf32 && t == SHOAL_FLOAT32 ? SHOAL_FLOAT16 : t) * (c->slack ? c->slack : 1);
  for (int64_t i = 0; i < n; i++) {
    if ((isnan(w[i]) && isnan(h[i])) || w[i] == h[i]) continue;
    if (fabs(w[i] - h[i]) <= most * (1 + fabs(w[i]))) continue;
    print_error("%s of %s: element %d is %.9g on the CPU, %.9g on the GPU\n", c->op, shoal_dtype_name(t), (int)i, w[i],
                h[i]);
    wrong++;
    return;
  }
}

/* What both devices make of it, output by output. */
static inline void hold_outputs(shoal_session *s, const struct gpu_case *c, shoal_dtype t, int n, const shoal_out *cpu,
                                const shoal_out *gpu) {
  for (int i = 0; i < n; i++) {
    shoal_tensor *want, *have;
    shoal_status e = shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(cpu[i], &want, gpu[i], &have), NULL);
    if (e) {
      print_error("%s of %s: %s\n", c->op, shoal_dtype_name(t), shoal_status_message(e));
      shoal_status_free(e);
      wrong++;
      continue;
    }
    hold(c, t, want, have);
    shoal_tensor_unref(want);
    shoal_tensor_unref(have);
  }
}

/* A session in which ops of constants alone are not folded on the CPU. */
static inline shoal_session *open_cases(shoal_graph *g) {
  shoal_session *s;
  shoal_session_options o = {.rewrites_off = "all"};
  wrong = 0;
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(g, &o, &s));
  return s;
}

static inline void close_cases(shoal_graph *g, shoal_session *s) {
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
  assert_int_equal(wrong, 0);
}

/* All in one graph: a card takes a while to be opened. */
struct gpu_tried {
  const struct gpu_case *of;
  shoal_dtype type;
  shoal_out out[2][6];
};
enum { MOST_TRIED = 1024 };

static inline void try_all(const struct gpu_case *cases, int n) {
  struct gpu_tried *all = mem_zalloc(MOST_TRIED, sizeof *all);
  shoal_graph *g = shoal_graph_new();
  int count = 0;
  for (int i = 0; i < n; i++)
    for (int t = 1; t < 32; t++) {
      if (!((cases[i].types ? cases[i].types : DT_FLOATING) >> t & 1)) continue;
      assert_true(count < MOST_TRIED);
      struct gpu_tried *k = &all[count++];
      k->of = &cases[i];
      k->type = (shoal_dtype)t;
      for (int d = 0; d < 2; d++) build(g, k->of, k->type, d, k->out[d]);
    }
  shoal_session *s = open_cases(g);
  for (int i = 0; i < count; i++)
    hold_outputs(s, all[i].of, all[i].type, MAX(all[i].of->n_out, 1), all[i].out[0], all[i].out[1]);
  free(all);
  close_cases(g, s);
}
#define TRY_ALL(cases) try_all(cases, (int)(sizeof(cases) / sizeof *(cases)))

#define D(...)                                                          \
  {                                                                     \
    sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), { __VA_ARGS__ } \
  }
#define SCALAR \
  {            \
    0, { 0 }   \
  }
#define TF32 .tf32 = true, .slack = 8
/* Numbers of another type: these, one, or as many as are asked for, below a limit. */
#define INTS(type_, ...)                                                                                    \
  {                                                                                                         \
    1, {sizeof((double[]){__VA_ARGS__}) / sizeof(double)}, .type = SHOAL_##type_, .values = { __VA_ARGS__ } \
  }
#define INT(type_, value)                              \
  {                                                    \
    0, {0}, .type = SHOAL_##type_, .values = { value } \
  }
#define BELOW(limit_, type_, ...) \
  { sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), {__VA_ARGS__}, .type = SHOAL_##type_, .limit = limit_ }
#define ONE(op_, ...) \
  { .op = op_, .n_in = 1, .in = {D(7, 131)}, __VA_ARGS__ }
#define POSITIVE .low = 0.1, .high = 3
#define TWO(op_, ...) \
  { .op = op_, .n_in = 2, .in = {D(7, 131), D(7, 131)}, __VA_ARGS__ }

/* A card, or what stands in for it; false: there should have been one. */
static inline bool gpu_here(void) {
  const char *why;
  if (cuda_api(&why)) return true;
  if (getenv("SHOAL_NEEDS_GPU")) {
    print_error("%s\n", why);
    return false;
  }
  print_message("# %s: the soft device stands in\n", why);
  setenv("SHOAL_SOFT_GPUS", "1", 1);
  return true;
}

/* Without fmax, whose loops gcc 12 for aarch64 cannot compile. Not all tests need it. */
static inline double largest(const float *x, int64_t n) {
  float top = 0;
  for (int64_t i = 0; i < n; i++)
    if (fabsf(x[i]) > top) top = fabsf(x[i]);
  return (double)top;
}

#endif
