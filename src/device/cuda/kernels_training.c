/* Variables on a card: optimizers' updates (training.cu), and what is added to a value. */
#include <stdio.h>
#include <string.h>

#include "device/cuda/cuda_rows.h"
#include "ops/array/array_util.h"
#include "ops/state/variable_rows.h"
#include "runtime/variable_copy.h"

/* ---- values ---- */

static shoal_status check_value(const struct variable *v, const struct tensor *by) {
  if (!tensor_valid(&v->value))
    return STATUS(SHOAL_FAILED_PRECONDITION, "Attempting to use uninitialized value %s", v->name);
  if (v->value.dtype != by->dtype) return INVALID("DType of variable handle and value does not match.");
  if (tensor_same_shape(&v->value, by)) return NULL;
  return INVALID("Cannot update variable with shape %s using a Tensor with shape %s, shapes must be equal.",
                 tensor_shape_str(&v->value), tensor_shape_str(by));
}

/* ---- AssignAdd, AssignSub: as the sum of two ---- */

static shoal_status assign_init(struct kernel_init *ki, void *state) {
  struct cuda_fn *st = state;
  const char *name = strstr(ki->node->op->name, "Add") ? "AddN" : "Subtract";
  return cuda_function(cuda_of(ki->device), "elementwise", name, dtype_base(ki->kernel->in_types[1]), 0, &st->f);
}

static shoal_status launch_blocks(struct kernel_ctx *ctx, const struct state_vars *vars, CUfunction f, unsigned blocks,
                                  unsigned threads, void **args) {
  struct cuda_device *c = cuda_ctx(ctx);
  shoal_status s = NULL;
  cuda_lock(c);
  for (int i = 0; i < vars->n && !s; i++) s = cuda_use(c, &vars->v[i]->value);
  for (int i = vars->n; i < ctx->kernel->n_in && !s; i++) s = cuda_use(c, ctx_in(ctx, i));
  if (!s) s = cuda_launch(c, f, blocks, 1, threads, args);
  cuda_unlock(c);
  return s;
}

static shoal_status launch_on(struct kernel_ctx *ctx, const struct state_vars *vars, CUfunction f, int64_t n,
                              void **args) {
  return n ? launch_blocks(ctx, vars, f, cuda_blocks(cuda_ctx(ctx), n), CUDA_BLOCK, args) : NULL;
}

static shoal_status assign_run(struct kernel_ctx *ctx) {
  const struct cuda_fn *st = ctx->state;
  const struct tensor *by = ctx_in(ctx, 1);
  struct state_vars vars;
  TRY(state_vars_get(ctx, 1, NULL, &vars));
  state_vars_lock(&vars);
  struct variable *v = vars.v[0];
  shoal_status s = check_value(v, by);
  if (!s) s = variable_make_writable_in(v, ctx->kernel->device);
  int64_t n = by->n;
  if (!s) s = launch_on(ctx, &vars, st->f, n, (void *[]){&v->value.data, (void *)&by->data, &v->value.data, &n});
  if (!s) state_forward_ref(ctx, v);
  state_vars_release(&vars);
  return s;
}

/* ---- updates ---- */

enum { UPDATE_SCALARS = 8 };
struct cuda_update_memory { /* as training.cu has it */
  void *x[STATE_MAX_VARS];
  const void *g, *scalars[UPDATE_SCALARS];
  int64_t n, global_step;
  int32_t n_scalars;
  bool nesterov, update_slots, multiply_linear_by_lr;
};

struct cuda_update {
  CUfunction f;
  int n_vars, grad, indices, global_step, scalar[UPDATE_SCALARS]; /* inputs; -1: none */
  struct cuda_sorter sorter;                                      /* of indices */
  struct cuda_update_memory flags;                                /* what does not change */
};

struct cuda_rule {
  const char *op, *rule; /* the op's name without "Resource" and "Sparse" */
};
static const struct cuda_rule rules[] = {{"ApplyGradientDescent", "gradient_descent"},
                                         {"ApplyMomentum", "momentum"},
                                         {"ApplyKerasMomentum", "keras_momentum"},
                                         {"ApplyAdagrad", "adagrad"},
                                         {"ApplyAdagradV2", "adagrad_v2"},
                                         {"ApplyAdadelta", "adadelta"},
                                         {"ApplyRMSProp", "rms_prop"},
                                         {"ApplyCenteredRMSProp", "centered_rms_prop"},
                                         {"ApplyAdam", "adam"},
                                         {"ApplyAdamWithAmsgrad", "adam_amsgrad"},
                                         {"ApplyAdaMax", "adamax"},
                                         {"ApplyAdagradDA", "adagrad_da"},
                                         {"ApplyFtrl", "ftrl"},
                                         {"ApplyFtrlV2", "ftrl_v2"},
                                         {"ApplyProximalGradientDescent", "proximal_gradient_descent"},
                                         {"ApplyProximalAdagrad", "proximal_adagrad"},
                                         {"ApplyAddSign", "add_sign"},
                                         {"ApplyPowerSign", "power_sign"}};

static const char *rule_of(const char *op) {
  const char *plain = strstr(op, "Apply");
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
    if (!strcmp(rules[i].op, plain)) return rules[i].rule;
  return NULL;
}

static shoal_status flag(struct kernel_init *ki, const char *name, bool *out) {
  return node_attr(ki->node, name) ? node_get_bool(ki->node, name, out) : NULL;
}

static shoal_status find_rule(struct kernel_init *ki, struct cuda_update *st) {
  struct cuda_device *c = cuda_of(ki->device);
  char name[64];
  bool sparse = st->indices >= 0;
  snprintf(name, sizeof name, "%s%s", sparse ? "sparse_" : "", rule_of(ki->node->op->name));
  if (sparse) TRY(cuda_sorter_init(c, dtype_base(ki->kernel->in_types[st->indices]), &st->sorter));
  return cuda_function(c, "training", name, dtype_base(ki->kernel->in_types[st->grad]), 0, &st->f);
}

static shoal_status apply_init(struct kernel_init *ki, void *state) {
  struct cuda_update *st = state;
  const struct op *op = ki->node->op;
  *st = (struct cuda_update){.grad = -1, .indices = -1, .global_step = -1, .flags.update_slots = true};
  for (int i = 0; i < op->n_in; i++) {
    const struct op_arg *a = &op->in[i];
    if (a->is_ref || a->type == SHOAL_RESOURCE) st->n_vars++;
    else if (!strcmp(a->name, "grad") || !strcmp(a->name, "delta")) st->grad = i;
    else if (!strcmp(a->name, "indices")) st->indices = i;
    else if (!strcmp(a->name, "global_step")) st->global_step = i;
    else st->scalar[st->flags.n_scalars++] = i;
  }
  TRY(flag(ki, "use_nesterov", &st->flags.nesterov));
  TRY(flag(ki, "update_slots", &st->flags.update_slots));
  TRY(flag(ki, "multiply_linear_by_lr", &st->flags.multiply_linear_by_lr));
  return find_rule(ki, st);
}

static shoal_status find_scalars(struct kernel_ctx *ctx, const struct cuda_update *st, struct cuda_update_memory *m) {
  for (int k = 0; k < m->n_scalars; k++) {
    const struct tensor *s = ctx_in(ctx, st->scalar[k]);
    if (s->rank) return INVALID("%s is not a scalar: %s", ctx->kernel->op->in[st->scalar[k]].name, tensor_shape_str(s));
    m->scalars[k] = s->data;
  }
  if (st->global_step >= 0) m->global_step = int_at(ctx_in(ctx, st->global_step), 0);
  return NULL;
}

/* The slots are like the variable. */
static shoal_status check_slots(const struct state_vars *vars, shoal_dtype type) {
  for (int i = 0; i < vars->n; i++) {
    const struct tensor *v = &vars->v[i]->value;
    if (!tensor_valid(v))
      return STATUS(SHOAL_FAILED_PRECONDITION, "Attempting to use uninitialized value %s", vars->v[i]->name);
    if (v->dtype != type) return INVALID("DType of variable handle and value does not match.");
    if (!tensor_same_shape(v, &vars->v[0]->value))
      return INVALID("var and its slots do not have the same shape%s %s", tensor_shape_str(&vars->v[0]->value),
                     tensor_shape_str(v));
  }
  return NULL;
}

static shoal_status update_rows(struct kernel_ctx *ctx, const struct cuda_update *st, struct state_vars *vars,
                                struct cuda_update_memory *m, int64_t width) {
  struct cuda_sorting sorting;
  const struct tensor *indices = ctx_in(ctx, st->indices);
  if (!indices->n) return NULL;
  TRY(cuda_sort(ctx, &st->sorter, indices, vars->v[0]->value.dims[0], width, &sorting));
  shoal_status s =
      launch_blocks(ctx, vars, st->f, (unsigned)indices->n, cuda_row_threads(width), (void *[]){m, &sorting.s});
  cuda_sorting_release(&sorting);
  return s;
}

static shoal_status update_locked(struct kernel_ctx *ctx, const struct cuda_update *st, struct state_vars *vars) {
  const struct tensor *grad = ctx_in(ctx, st->grad);
  struct cuda_update_memory m = st->flags;
  int64_t width = 0;
  m.g = grad->data;
  m.n = grad->n;
  TRY(find_scalars(ctx, st, &m));
  TRY(check_slots(vars, (shoal_dtype)grad->dtype));
  if (st->indices < 0) TRY(check_value(vars->v[0], grad));
  else TRY(sparse_update_check(&vars->v[0]->value, grad, ctx_in(ctx, st->indices), &width));
  for (int i = 0; i < vars->n; i++) {
    TRY(variable_make_writable_in(vars->v[i], ctx->kernel->device));
    m.x[i] = vars->v[i]->value.data;
  }
  return st->indices < 0 ? launch_on(ctx, vars, st->f, grad->n, (void *[]){&m}) : update_rows(ctx, st, vars, &m, width);
}

static shoal_status apply_run(struct kernel_ctx *ctx) {
  const struct cuda_update *st = ctx->state;
  struct state_vars vars;
  TRY(state_vars_get(ctx, st->n_vars, "Invalid variable reference.", &vars));
  state_vars_lock(&vars);
  shoal_status s = update_locked(ctx, st, &vars);
  if (!s) state_forward_ref(ctx, vars.v[0]);
  state_vars_release(&vars);
  return s;
}

/* ---- the table ---- */

#define ADD(id, attr)                                                           \
  static const struct kernel_def id[] = {{.device = "GPU",                      \
                                          .type_attr = attr,                    \
                                          .types = CUDA_NUMBERS,                \
                                          .state_size = sizeof(struct cuda_fn), \
                                          .init = assign_init,                  \
                                          .flags = KERNEL_REPLAYS,              \
                                          .run = assign_run},                   \
                                         {0}};
ADD(assign_ref, "T")
ADD(assign_resource, "dtype")

#define UPDATE(id, host)                                                            \
  static const struct kernel_def id[] = {{.device = "GPU",                          \
                                          .type_attr = "T",                         \
                                          .types = CUDA_FLOATING,                   \
                                          .state_size = sizeof(struct cuda_update), \
                                          .init = apply_init,                       \
                                          .flags = KERNEL_REPLAYS,                  \
                                          .run = apply_run,                         \
                                          .host_in = host},                         \
                                         {0}};
UPDATE(update, 0)
UPDATE(adagrad_da, 1u << 7) /* global_step is the host's */

#define SPARSE(id, host)                                                            \
  static const struct kernel_def id[] = {{.device = "GPU",                          \
                                          .type_attr = "T",                         \
                                          .types = CUDA_FLOATING,                   \
                                          .type_attr2 = "Tindices",                 \
                                          .types2 = DT(INT32) | DT(INT64),          \
                                          .state_size = sizeof(struct cuda_update), \
                                          .init = apply_init,                       \
                                          .flags = KERNEL_REPLAYS,                  \
                                          .run = apply_run,                         \
                                          .host_in = host},                         \
                                         {0}};
SPARSE(sparse, 0)
SPARSE(sparse_adagrad_da, 1u << 8)

#define BOTH(op, id) \
  {op, id}, { "Resource" op, id }
const struct device_kernels cuda_training_kernels[] = {{"AssignAdd", assign_ref},
                                                       {"AssignSub", assign_ref},
                                                       {"AssignAddVariableOp", assign_resource},
                                                       {"AssignSubVariableOp", assign_resource},
                                                       BOTH("ApplyGradientDescent", update),
                                                       BOTH("ApplyProximalGradientDescent", update),
                                                       BOTH("ApplyMomentum", update),
                                                       BOTH("ApplyKerasMomentum", update),
                                                       BOTH("ApplyAdagrad", update),
                                                       BOTH("ApplyAdagradV2", update),
                                                       BOTH("ApplyProximalAdagrad", update),
                                                       BOTH("ApplyAdadelta", update),
                                                       BOTH("ApplyAdagradDA", adagrad_da),
                                                       BOTH("ApplyRMSProp", update),
                                                       BOTH("ApplyCenteredRMSProp", update),
                                                       BOTH("ApplyAdam", update),
                                                       BOTH("ApplyAdamWithAmsgrad", update),
                                                       BOTH("ApplyAdaMax", update),
                                                       BOTH("ApplyFtrl", update),
                                                       BOTH("ApplyFtrlV2", update),
                                                       BOTH("ApplyAddSign", update),
                                                       BOTH("ApplyPowerSign", update),
                                                       BOTH("SparseApplyProximalGradientDescent", sparse),
                                                       BOTH("SparseApplyMomentum", sparse),
                                                       BOTH("SparseApplyKerasMomentum", sparse),
                                                       BOTH("SparseApplyAdagrad", sparse),
                                                       BOTH("SparseApplyAdagradV2", sparse),
                                                       BOTH("SparseApplyProximalAdagrad", sparse),
                                                       BOTH("SparseApplyAdagradDA", sparse_adagrad_da),
                                                       BOTH("SparseApplyAdadelta", sparse),
                                                       BOTH("SparseApplyRMSProp", sparse),
                                                       BOTH("SparseApplyCenteredRMSProp", sparse),
                                                       BOTH("SparseApplyFtrl", sparse),
                                                       BOTH("SparseApplyFtrlV2", sparse),
                                                       {0}};
