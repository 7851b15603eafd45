/* Training updates: every optimizer, on ref and resource variables, with dense and sparse gradients.
 *
 * An op is described by its own signature: the references or handles at its front are the variable and its slots,
 * "grad" (or "delta") is the gradient, "indices" makes it sparse, what is left are the scalars, in order. So one
 * kernel serves all of them, and a row only names the formula (training_rules.inc). The variables are locked for
 * the whole update, whatever use_locking says: a reader sees a state before or after, never between.
 *
 * Sparse updates apply rows in the order of the indices. On several threads each thread owns part of the rows of the
 * variable, so that repeated indices are still applied in order, and the result never depends on the threads. */
#include <inttypes.h>
#include <math.h>
#include <complex.h>
#include <stdlib.h>
#include <string.h>

#include "base/vector.h"
#include "ops/math/elementwise.h"
#include "ops/state/training.h"
#include "ops/state/variable_rows.h"

enum { MAX_SCALARS = 8, GRAIN = 8192, BLOCK = 2048, SHARDS = 16, SPARSE_PARALLEL_MIN = 1 << 15 };

struct hyper {
  float f[MAX_SCALARS]; /* for float, half and bfloat16 */
  double d[MAX_SCALARS];
  c64 c[MAX_SCALARS];
  c128 z[MAX_SCALARS];
  int64_t global_step;
  bool nesterov, update_slots, multiply_linear_by_lr, sparse;
};

typedef void (*rule_fn)(void *const *x, const void *g, int64_t n, const struct hyper *h);

#define SAME(v) (v)
#define T float
#define C float
#define LD SAME
#define ST SAME
#define S(i) (h->f[i])
#define SQRT sqrtf
#define POW powf
#define EXP expf
#define ABS fabsf
#define RULE_NAME(name) name##_f32
#define RULE_CLONES VECTOR_CLONES
#include "ops/state/training_rules.inc"

#define T double
#define C double
#define LD SAME
#define ST SAME
#define S(i) (h->d[i])
#define SQRT sqrt
#define POW pow
#define EXP exp
#define ABS fabs
#define RULE_NAME(name) name##_f64
#define RULE_CLONES VECTOR_CLONES
#include "ops/state/training_rules.inc"

#define T f16
#define C float
#define LD f16_to_float
#define ST f16_from_float
#define S(i) (h->f[i])
#define SQRT sqrtf
#define POW powf
#define EXP expf
#define ABS fabsf
#define RULE_NAME(name) name##_f16
#define RULE_CLONES
#include "ops/state/training_rules.inc"

#define T bf16
#define C float
#define LD bf16_to_float
#define ST bf16_from_float
#define S(i) (h->f[i])
#define SQRT sqrtf
#define POW powf
#define EXP expf
#define ABS fabsf
#define RULE_NAME(name) name##_bf16
#define RULE_CLONES
#include "ops/state/training_rules.inc"

#define RULES_COMPLEX
#define T c64
#define C c64
#define LD SAME
#define ST SAME
#define S(i) (h->c[i])
#define SQRT csqrtf
#define RULE_NAME(name) name##_c64
#define RULE_CLONES
#include "ops/state/training_rules.inc"

#define T c128
#define C c128
#define LD SAME
#define ST SAME
#define S(i) (h->z[i])
#define SQRT csqrt
#define RULE_NAME(name) name##_c128
#define RULE_CLONES
#include "ops/state/training_rules.inc"
#include "runtime/variable_copy.h"
#undef RULES_COMPLEX

enum { K_F32, K_F64, K_F16, K_BF16, K_C64, K_C128, KINDS };

static int kind_of(shoal_dtype t) {
  switch (t) {
    case SHOAL_FLOAT32: return K_F32;
    case SHOAL_FLOAT64: return K_F64;
    case SHOAL_FLOAT16: return K_F16;
    case SHOAL_BFLOAT16: return K_BF16;
    case SHOAL_COMPLEX64: return K_C64;
    case SHOAL_COMPLEX128: return K_C128;
    default: return -1;
  }
}

/* ---- the kernel ---- */

struct training {
  const rule_fn *rule;                    /* [KINDS] */
  int n_vars, grad, indices, global_step; /* inputs; -1: none */
  int n_scalars, scalar[MAX_SCALARS];
  bool has_signs;     /* an op that depends on its scalars' signs */
  struct hyper flags; /* the attributes */
};

static shoal_status flag(struct kernel_init *ki, const char *name, bool *out) {
  return node_attr(ki->node, name) ? node_get_bool(ki->node, name, out) : NULL;
}

static shoal_status training_init(struct kernel_init *ki, struct training *t, const rule_fn *rule) {
  const struct op *op = ki->node->op;
  *t = (struct training){.rule = rule, .grad = -1, .indices = -1, .global_step = -1};
  for (int i = 0; i < op->n_in; i++) {
    const struct op_arg *a = &op->in[i];
    if (a->is_ref || a->type == SHOAL_RESOURCE) t->n_vars++;
    else if (!strcmp(a->name, "grad") || !strcmp(a->name, "delta")) t->grad = i;
    else if (!strcmp(a->name, "indices")) t->indices = i;
    else if (!strcmp(a->name, "global_step")) t->global_step = i;
    else t->scalar[t->n_scalars++] = i;
  }
  t->has_signs = strstr(op->name, "Ftrl") || strstr(op->name, "ProximalAdagrad");
  t->flags.sparse = t->indices >= 0;
  t->flags.update_slots = true;
  TRY(flag(ki, "use_nesterov", &t->flags.nesterov));
  TRY(flag(ki, "update_slots", &t->flags.update_slots));
  return flag(ki, "multiply_linear_by_lr", &t->flags.multiply_linear_by_lr);
}

static const char *arg_name(const struct kernel_ctx *ctx, int i) { return ctx->kernel->op->in[i].name; }

/* Scalars whose sign the proximal optimizers depend on. */
static shoal_status check_sign(const char *name, double v) {
  if (!strcmp(name, "lr") && !(v > 0)) return INVALID("lr is not a positive scalar: []");
  if ((!strcmp(name, "l1") || !strcmp(name, "l2")) && !(v >= 0))
    return INVALID("%s regularization strength is not a non-negative scalar: []", name);
  if (!strcmp(name, "l2_shrinkage") && !(v >= 0))
    return INVALID("l2 shrinkage regularization strength is not a non-negative scalar: []");
  if (!strcmp(name, "lr_power") && !(v <= 0)) return INVALID("lr_power is not a non-positive scalar: []");
  return NULL;
}

static shoal_status read_scalars(struct kernel_ctx *ctx, const struct training *t, struct hyper *h) {
  h->nesterov = t->flags.nesterov;
  h->update_slots = t->flags.update_slots;
  h->multiply_linear_by_lr = t->flags.multiply_linear_by_lr;
  h->sparse = t->flags.sparse;
  for (int k = 0; k < t->n_scalars; k++) {
    const struct tensor *s = ctx_in(ctx, t->scalar[k]);
    const char *name = arg_name(ctx, t->scalar[k]);
    if (UNLIKELY(s->rank != 0)) {
      struct shape shape = tensor_shape(s);
      return INVALID("%s is not a scalar: %s", name, shape_str(&shape));
    }
    double v = 0;
    switch (s->dtype) {
      case SHOAL_FLOAT32: v = h->f[k] = *T_DATA(s, const float); break;
      case SHOAL_FLOAT64: v = h->d[k] = *T_DATA(s, const double); break;
      case SHOAL_FLOAT16: v = h->f[k] = f16_to_float(*T_DATA(s, const f16)); break;
      case SHOAL_BFLOAT16: v = h->f[k] = bf16_to_float(*T_DATA(s, const bf16)); break;
      case SHOAL_COMPLEX64: h->c[k] = *T_DATA(s, const c64); break;
      case SHOAL_COMPLEX128: h->z[k] = *T_DATA(s, const c128); break;
      default: return INVALID("%s has type %s", name, dtype_tf_name(s->dtype));
    }
    if (t->has_signs) TRY(check_sign(name, v));
  }
  if (t->global_step >= 0) {
    const struct tensor *s = ctx_in(ctx, t->global_step);
    if (s->rank != 0 || s->dtype != SHOAL_INT64) {
      struct shape shape = tensor_shape(s);
      return INVALID("global_step is not a scalar: %s", shape_str(&shape));
    }
    h->global_step = *T_DATA(s, const int64_t);
  }
  return NULL;
}

/* Of the gradient as the rule takes it. */
static shoal_dtype type_of(struct kernel_ctx *ctx, const struct training *t, const struct training_joined *with) {
  return with ? SHOAL_FLOAT32 : ctx_in_type(ctx, t->grad);
}

static shoal_status check_vars(struct kernel_ctx *ctx, const struct state_vars *vars, shoal_dtype type) {
  const struct tensor *var = &vars->v[0]->value;
  for (int i = 0; i < vars->n; i++) {
    const struct tensor *slot = &vars->v[i]->value;
    if (UNLIKELY(!tensor_valid(slot)))
      return STATUS(SHOAL_FAILED_PRECONDITION, "Attempting to use uninitialized variables: %s", vars->v[i]->name);
    if (UNLIKELY(slot->dtype != type))
      return INVALID("%s has type %s, but the gradient has type %s", arg_name(ctx, i), dtype_tf_name(slot->dtype),
                     dtype_tf_name(type));
    if (UNLIKELY(!tensor_same_shape(var, slot))) {
      struct shape a = tensor_shape(var), b = tensor_shape(slot);
      return INVALID("var and %s do not have the same shape%s %s", arg_name(ctx, i), shape_str(&a), shape_str(&b));
    }
  }
  return NULL;
}

struct dense_loop {
  rule_fn rule;
  const struct hyper *h;
  char *x[STATE_MAX_VARS];
  int n_vars;
  const char *grad;
  size_t size;
};

static void dense_piece(void *arg, int64_t begin, int64_t end) {
  const struct dense_loop *l = arg;
  void *x[STATE_MAX_VARS];
  for (int i = 0; i < l->n_vars; i++) x[i] = l->x[i] + (size_t)begin * l->size;
  l->rule(x, l->grad + (size_t)begin * l->size, end - begin, l->h);
}

/* ---- with what stood around it (training.h): a block at a time, while it is in the first cache ---- */

struct joined_loop {
  struct dense_loop d;
  const struct training_joined *with;
  shoal_dtype type; /* of the gradient in memory */
};

VECTOR_CLONES static void scale_block(float *restrict to, const float *restrict from, float by, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = from[i] * by;
}

VECTOR_CLONES static void multiply_block(float *x, float by, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] *= by;
}

VECTOR_CLONES static void shrink_block(float *x, float part, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] -= x[i] * part;
}

/* The gradient's elements from i on as the rule takes them: in float32, scaled. They may be made in `space`. */
static const float *gradient_block(const struct joined_loop *l, int64_t i, int64_t n, float *space) {
  const float *scale = l->with->scale;
  if (l->type == SHOAL_FLOAT32) {
    const float *from = (const float *)l->d.grad + i;
    if (!scale) return from;
    scale_block(space, from, *scale, n);
    return space;
  }
  half_to_float(l->type, space, l->d.grad + 2 * i, n);
  if (scale) multiply_block(space, *scale, n);
  return space;
}

static void joined_piece(void *arg, int64_t begin, int64_t end) {
  const struct joined_loop *l = arg;
  float space[BLOCK];
  for (int64_t i = begin; i < end; i += BLOCK) {
    int64_t n = MIN(end - i, BLOCK);
    void *x[STATE_MAX_VARS];
    for (int k = 0; k < l->d.n_vars; k++) x[k] = (float *)l->d.x[k] + i;
    if (l->with->shrink) shrink_block(x[0], *l->with->shrink, n);
    l->d.rule(x, gradient_block(l, i, n, space), n, l->d.h);
  }
}

static bool grad_fits(const struct tensor *var, const struct tensor *grad, const struct training_joined *with) {
  return with && with->fits ? var->n == grad->n : tensor_same_shape(var, grad);
}

static shoal_status dense_update(struct kernel_ctx *ctx, const struct training *t, rule_fn rule,
                                 struct state_vars *vars, const struct hyper *h, const struct training_joined *with) {
  const struct tensor *grad = ctx_in(ctx, t->grad), *var = &vars->v[0]->value;
  if (UNLIKELY(!grad_fits(var, grad, with))) {
    struct shape a = tensor_shape(var), b = tensor_shape(grad);
    return INVALID("var and %s do not have the same shape%s %s", arg_name(ctx, t->grad), shape_str(&a), shape_str(&b));
  }
  struct dense_loop d = {
      .rule = rule, .h = h, .n_vars = vars->n, .grad = grad->data, .size = dtype_size(type_of(ctx, t, with))};
  for (int i = 0; i < vars->n; i++) {
    TRY(variable_make_writable_on(vars->v[i], ctx_pool(ctx)));
    d.x[i] = vars->v[i]->value.data;
  }
  struct joined_loop j = {.d = d, .with = with, .type = (shoal_dtype)grad->dtype};
  void (*piece)(void *, int64_t, int64_t) = with ? joined_piece : dense_piece;
  void *arg = with ? (void *)&j : &d;
  if (grad->n <= GRAIN) piece(arg, 0, grad->n);
  else pool_for(ctx_pool(ctx), grad->n, GRAIN, piece, arg);
  return NULL;
}

struct sparse_loop {
  struct dense_loop d;
  const struct tensor *indices;
  int64_t run; /* elements of a row */
};

static void sparse_row(const struct sparse_loop *l, int64_t i, int64_t row) {
  void *x[STATE_MAX_VARS];
  for (int k = 0; k < l->d.n_vars; k++) x[k] = l->d.x[k] + (size_t)(row * l->run) * l->d.size;
  l->d.rule(x, l->d.grad + (size_t)(i * l->run) * l->d.size, l->run, l->d.h);
}

static void sparse_shards(void *arg, int64_t begin, int64_t end) {
  const struct sparse_loop *l = arg;
  for (int64_t i = 0; i < l->indices->n; i++) {
    int64_t row = index_at(l->indices, i);
    if (row % SHARDS >= begin && row % SHARDS < end) sparse_row(l, i, row);
  }
}

shoal_status sparse_update_check(const struct tensor *var, const struct tensor *grad, const struct tensor *indices,
                                 int64_t *run) {
  if (var->rank < 1) return INVALID("var must be at least 1 dimensional");
  if (indices->rank != 1) return INVALID("indices must be one-dimensional");
  if (grad->rank < 1 || grad->dims[0] != indices->dims[0])
    return INVALID("grad must be the same size as indices in the first dimension.");
  *run = 1;
  for (int d = 1; d < var->rank; d++) {
    if (d >= grad->rank || var->dims[d] != grad->dims[d]) return INVALID("var and grad must match in dimension %d", d);
    *run *= var->dims[d];
  }
  if (*run == 0) return INVALID("Inner dimension should be greater than zero.");
  if (grad->n != *run * indices->n) return INVALID("var and grad must match in dimension %d", var->rank);
  return NULL;
}

static shoal_status sparse_update(struct kernel_ctx *ctx, const struct training *t, rule_fn rule,
                                  struct state_vars *vars, const struct hyper *h) {
  const struct tensor *grad = ctx_in(ctx, t->grad), *indices = ctx_in(ctx, t->indices), *var = &vars->v[0]->value;
  int64_t run;
  TRY(sparse_update_check(var, grad, indices, &run));
  for (int64_t i = 0; i < indices->n; i++) {
    int64_t row = index_at(indices, i);
    if (row < 0 || row >= var->dims[0])
      return INVALID("Index %" PRId64 " at offset %" PRId64 " in indices is out of range", row, i);
  }
  struct sparse_loop l = {
      .d = {.rule = rule, .h = h, .n_vars = vars->n, .grad = grad->data, .size = dtype_size((shoal_dtype)grad->dtype)},
      .indices = indices,
      .run = run};
  for (int k = 0; k < vars->n; k++) {
    TRY(state_sparse_access(ctx, k, vars->v[k]));
    l.d.x[k] = vars->v[k]->value.data;
  }
  if (grad->n < SPARSE_PARALLEL_MIN || run < 8) {
    for (int64_t i = 0; i < indices->n; i++) sparse_row(&l, i, index_at(indices, i));
  } else {
    pool_for(ctx_pool(ctx), SHARDS, 1, sparse_shards, &l);
  }
  return NULL;
}

static shoal_status run_with(struct kernel_ctx *ctx, const struct training_joined *with) {
  const struct training *t = ctx->state;
  struct hyper h;
  shoal_dtype type = type_of(ctx, t, with);
  int kind = kind_of(type);
  rule_fn rule = kind < 0 ? NULL : t->rule[kind];
  if (!rule) return UNIMPLEMENTED("%s has no CPU kernel for type %s", ctx->kernel->op->name, dtype_tf_name(type));
  struct state_vars vars;
  TRY(state_vars_get(ctx, t->n_vars, "Invalid variable reference.", &vars));
  state_vars_lock(&vars);
  shoal_status s = check_vars(ctx, &vars, type);
  if (!s) s = read_scalars(ctx, t, &h);
  if (!s) s = t->flags.sparse ? sparse_update(ctx, t, rule, &vars, &h) : dense_update(ctx, t, rule, &vars, &h, with);
  if (!s) state_forward_ref(ctx, vars.v[0]);
  state_vars_release(&vars);
  return s;
}

static shoal_status training_run(struct kernel_ctx *ctx) { return run_with(ctx, NULL); }

bool training_joins(const struct kernel *k) {
  const struct training *t = k->state;
  return k->def->run == training_run && !t->flags.sparse && k->in_types[t->grad] == SHOAL_FLOAT32;
}

shoal_status training_run_joined(struct kernel_ctx *ctx, const struct training_joined *with) {
  return run_with(ctx, with);
}

/* ---- shapes: the output of a reference op is the variable ---- */

static shoal_status shape_training(struct shape_ctx *c) {
  if (c->node->n_out) c->out[0] = c->in[0];
  return NULL;
}

/* ---- rows ---- */

#define KERNELS(rule_, types_, ...)                                                                               \
  static const rule_fn rule_##_rules[KINDS] = {rule_##_f32, rule_##_f64, rule_##_f16, rule_##_bf16, __VA_ARGS__}; \
  static shoal_status rule_##_init(struct kernel_init *ki, void *state) {                                         \
    return training_init(ki, state, rule_##_rules);                                                               \
  }                                                                                                               \
  static const struct kernel_def rule_##_kernels[] = {{.device = "CPU",                                           \
                                                       .borrowable = true,                                        \
                                                       .type_attr = "T",                                          \
                                                       .types = types_,                                           \
                                                       .state_size = sizeof(struct training),                     \
                                                       .init = rule_##_init,                                      \
                                                       .run = training_run},                                      \
                                                      {0}};
#define KERNELS_REAL(rule_) KERNELS(rule_, DT_FLOATING, NULL, NULL)
#define KERNELS_ALL(rule_) KERNELS(rule_, DT_FLOATING | DT_COMPLEX, rule_##_c64, rule_##_c128)
KERNELS_ALL(gradient_descent)
KERNELS_ALL(momentum)
KERNELS_ALL(keras_momentum)
KERNELS_ALL(adagrad)
KERNELS_ALL(adagrad_v2)
KERNELS_ALL(adadelta)
KERNELS_ALL(rms_prop)
KERNELS_ALL(centered_rms_prop)
KERNELS_ALL(adam)
KERNELS_REAL(adam_amsgrad)
KERNELS_REAL(adamax)
KERNELS_REAL(adagrad_da)
KERNELS_REAL(ftrl)
KERNELS_REAL(ftrl_v2)
KERNELS_REAL(proximal_gradient_descent)
KERNELS_REAL(proximal_adagrad)
KERNELS_REAL(add_sign)
KERNELS_REAL(power_sign)

#define LOCK "T: {numbertype}; use_locking: bool = false"
#define SPARSE_LOCK "T: {numbertype}; Tindices: {int32, int64}; use_locking: bool = false"
#define ROW_REF(op, args, attrs_, rule_)                                                              \
  {                                                                                                   \
    .name = op, .in = args("Ref(T)"), .out = "out: Ref(T)", .attrs = attrs_, .flags = OP_NO_GRADIENT, \
    .shape = shape_training, .kernels = rule_##_kernels                                               \
  }
#define ROW_RESOURCE(op, args, attrs_, rule_)                                                                      \
  {                                                                                                                \
    .name = "Resource" op, .in = args("resource"), .attrs = attrs_, .flags = OP_STATEFUL, .shape = shape_training, \
    .kernels = rule_##_kernels                                                                                     \
  }
#define ROWS(op, args, attrs_, rule_) ROW_REF(op, args, attrs_, rule_), ROW_RESOURCE(op, args, attrs_, rule_)

#define VARS1(V) "var: " V
#define VARS2(V, a) "var: " V ", " a ": " V
#define VARS3(V, a, b) "var: " V ", " a ": " V ", " b ": " V
#define VARS4(V, a, b, c) "var: " V ", " a ": " V ", " b ": " V ", " c ": " V

#define GRADIENT_DESCENT(V) VARS1(V) ", alpha: T, delta: T"
#define PROXIMAL_GD(V) VARS1(V) ", alpha: T, l1: T, l2: T, delta: T"
#define SPARSE_PROXIMAL_GD(V) VARS1(V) ", alpha: T, l1: T, l2: T, grad: T, indices: Tindices"
#define MOMENTUM(V) VARS2(V, "accum") ", lr: T, grad: T, momentum: T"
#define SPARSE_MOMENTUM(V) VARS2(V, "accum") ", lr: T, grad: T, indices: Tindices, momentum: T"
#define ADAGRAD(V) VARS2(V, "accum") ", lr: T, grad: T"
#define SPARSE_ADAGRAD(V) VARS2(V, "accum") ", lr: T, grad: T, indices: Tindices"
#define ADAGRAD_V2(V) VARS2(V, "accum") ", lr: T, epsilon: T, grad: T"
#define SPARSE_ADAGRAD_V2(V) VARS2(V, "accum") ", lr: T, epsilon: T, grad: T, indices: Tindices"
#define PROXIMAL_ADAGRAD(V) VARS2(V, "accum") ", lr: T, l1: T, l2: T, grad: T"
#define SPARSE_PROXIMAL_ADAGRAD(V) VARS2(V, "accum") ", lr: T, l1: T, l2: T, grad: T, indices: Tindices"
#define ADAGRAD_DA_VARS(V) VARS3(V, "gradient_accumulator", "gradient_squared_accumulator")
#define ADAGRAD_DA(V) ADAGRAD_DA_VARS(V) ", grad: T, lr: T, l1: T, l2: T, global_step: int64"
#define SPARSE_ADAGRAD_DA(V) ADAGRAD_DA_VARS(V) ", grad: T, indices: Tindices, lr: T, l1: T, l2: T, global_step: int64"
#define ADADELTA(V) VARS3(V, "accum", "accum_update") ", lr: T, rho: T, epsilon: T, grad: T"
#define SPARSE_ADADELTA(V) ADADELTA(V) ", indices: Tindices"
#define RMS_PROP(V) VARS3(V, "ms", "mom") ", lr: T, rho: T, momentum: T, epsilon: T, grad: T"
#define SPARSE_RMS_PROP(V) RMS_PROP(V) ", indices: Tindices"
#define CENTERED(V) VARS4(V, "mg", "ms", "mom") ", lr: T, rho: T, momentum: T, epsilon: T, grad: T"
#define SPARSE_CENTERED(V) CENTERED(V) ", indices: Tindices"
#define FTRL(V) VARS3(V, "accum", "linear") ", grad: T, lr: T, l1: T, l2: T, lr_power: T"
#define SPARSE_FTRL(V) VARS3(V, "accum", "linear") ", grad: T, indices: Tindices, lr: T, l1: T, l2: T, lr_power: T"
#define FTRL_V2(V) VARS3(V, "accum", "linear") ", grad: T, lr: T, l1: T, l2: T, l2_shrinkage: T, lr_power: T"
#define SPARSE_FTRL_V2(V) \
  VARS3(V, "accum", "linear") ", grad: T, indices: Tindices, lr: T, l1: T, l2: T, l2_shrinkage: T, lr_power: T"
#define ADAM(V) VARS3(V, "m", "v") ", beta1_power: T, beta2_power: T, lr: T, beta1: T, beta2: T, epsilon: T, grad: T"
#define AMSGRAD(V) \
  VARS4(V, "m", "v", "vhat") ", beta1_power: T, beta2_power: T, lr: T, beta1: T, beta2: T, epsilon: T, grad: T"
#define ADAMAX(V) VARS3(V, "m", "v") ", beta1_power: T, lr: T, beta1: T, beta2: T, epsilon: T, grad: T"
#define ADD_SIGN(V) VARS2(V, "m") ", lr: T, alpha: T, sign_decay: T, beta: T, grad: T"
#define POWER_SIGN(V) VARS2(V, "m") ", lr: T, logbase: T, sign_decay: T, beta: T, grad: T"

#define NESTEROV "; use_nesterov: bool = false"
#define SLOTS "; update_slots: bool = true"
#define BY_LR "; multiply_linear_by_lr: bool = false"
static const struct op_row rows[] = {
    ROWS("ApplyGradientDescent", GRADIENT_DESCENT, LOCK, gradient_descent),
    ROWS("ApplyProximalGradientDescent", PROXIMAL_GD, LOCK, proximal_gradient_descent),
    ROWS("SparseApplyProximalGradientDescent", SPARSE_PROXIMAL_GD, SPARSE_LOCK, proximal_gradient_descent),
    ROWS("ApplyMomentum", MOMENTUM, LOCK NESTEROV, momentum),
    ROWS("SparseApplyMomentum", SPARSE_MOMENTUM, SPARSE_LOCK NESTEROV, momentum),
    ROW_RESOURCE("ApplyKerasMomentum", MOMENTUM, LOCK NESTEROV, keras_momentum),
    ROW_RESOURCE("SparseApplyKerasMomentum", SPARSE_MOMENTUM, SPARSE_LOCK NESTEROV, keras_momentum),
    ROWS("ApplyAdagrad", ADAGRAD, LOCK SLOTS, adagrad),
    ROWS("SparseApplyAdagrad", SPARSE_ADAGRAD, SPARSE_LOCK SLOTS, adagrad),
    ROWS("ApplyAdagradV2", ADAGRAD_V2, LOCK SLOTS, adagrad_v2),
    ROWS("SparseApplyAdagradV2", SPARSE_ADAGRAD_V2, SPARSE_LOCK SLOTS, adagrad_v2),
    ROWS("ApplyProximalAdagrad", PROXIMAL_ADAGRAD, LOCK, proximal_adagrad),
    ROWS("SparseApplyProximalAdagrad", SPARSE_PROXIMAL_ADAGRAD, SPARSE_LOCK, proximal_adagrad),
    ROWS("ApplyAdagradDA", ADAGRAD_DA, LOCK, adagrad_da),
    ROWS("SparseApplyAdagradDA", SPARSE_ADAGRAD_DA, SPARSE_LOCK, adagrad_da),
    ROWS("ApplyAdadelta", ADADELTA, LOCK, adadelta),
    ROWS("SparseApplyAdadelta", SPARSE_ADADELTA, SPARSE_LOCK, adadelta),
    ROWS("ApplyRMSProp", RMS_PROP, LOCK, rms_prop),
    ROWS("SparseApplyRMSProp", SPARSE_RMS_PROP, SPARSE_LOCK, rms_prop),
    ROWS("ApplyCenteredRMSProp", CENTERED, LOCK, centered_rms_prop),
    ROWS("SparseApplyCenteredRMSProp", SPARSE_CENTERED, SPARSE_LOCK, centered_rms_prop),
    ROWS("ApplyFtrl", FTRL, LOCK BY_LR, ftrl),
    ROWS("SparseApplyFtrl", SPARSE_FTRL, SPARSE_LOCK BY_LR, ftrl),
    ROWS("ApplyFtrlV2", FTRL_V2, LOCK BY_LR, ftrl_v2),
    ROWS("SparseApplyFtrlV2", SPARSE_FTRL_V2, SPARSE_LOCK BY_LR, ftrl_v2),
    ROWS("ApplyAdam", ADAM, LOCK NESTEROV, adam),
    ROW_RESOURCE("ApplyAdamWithAmsgrad", AMSGRAD, LOCK, adam_amsgrad),
    ROWS("ApplyAdaMax", ADAMAX, LOCK, adamax),
    ROWS("ApplyAddSign", ADD_SIGN, LOCK, add_sign),
    ROWS("ApplyPowerSign", POWER_SIGN, LOCK, power_sign),
};
OP_FAMILY(training, rows);
