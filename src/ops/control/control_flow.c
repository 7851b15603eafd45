/* Control flow of the first generation. The executor knows these ops by name: it moves values between frames and
 * iterations, and calls dead what a Switch did not choose. The kernels here only pass values on: Switch sets one
 * of its outputs and leaves the others empty, Merge passes the one input that has a value.
 *
 * The loop's gradient is the gradient engine's business (graph/gradient.h): these rows have none. */
#include <stdlib.h>

#include "ops/array/array_util.h"

/* ---- Switch ---- */

static shoal_status switch_choose(struct kernel_ctx *ctx, int *out) {
  const struct tensor *pred = ctx_in(ctx, 1);
  if (pred->rank != 0) return INVALID("The second input must be a scalar, but it has shape %s", tensor_shape_str(pred));
  *out = *T_DATA(pred, const uint8_t) != 0; /* whatever byte a peer sent */
  return NULL;
}

static shoal_status switch_run(struct kernel_ctx *ctx) {
  int i;
  TRY(switch_choose(ctx, &i));
  return ctx_forward(ctx, i, 0, NULL);
}

static shoal_status ref_switch_run(struct kernel_ctx *ctx) {
  int i;
  TRY(switch_choose(ctx, &i));
  ctx_set_ref(ctx, i, ctx_ref(ctx, 0));
  return NULL;
}

static shoal_status switch_n_run(struct kernel_ctx *ctx) {
  const struct tensor *index = ctx_in(ctx, 1);
  if (index->rank != 0)
    return INVALID("The second input must be a scalar, but it has shape %s", tensor_shape_str(index));
  int i = *T_DATA(index, const int32_t);
  if (i < 0 || i >= ctx->kernel->n_out) i = ctx->kernel->n_out - 1; /* the last branch is the default */
  return ctx_forward(ctx, i, 0, NULL);
}

static shoal_status switch_shape(struct shape_ctx *c) {
  struct shape scalar;
  TRY(shape_in_rank(c, 1, 0, &scalar));
  for (int i = 0; i < c->node->n_out; i++) {
    c->out[i] = c->in[0];
    shape_pass_handle(c, i, 0);
  }
  return NULL;
}

static const struct kernel_def switch_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = switch_run, .host_in = 2}, {0}};
static const struct kernel_def ref_switch_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = ref_switch_run, .host_in = 2}, {0}};
static const struct kernel_def switch_n_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = switch_n_run, .host_in = 2}, {0}};

/* ---- Merge, RefSelect ---- */

static shoal_status put_index(struct kernel_ctx *ctx, int i) {
  struct tensor *y;
  TRY(ctx_out_dims(ctx, 1, 0, NULL, &y));
  *T_DATA(y, int32_t) = i;
  return NULL;
}

static shoal_status merge_run(struct kernel_ctx *ctx) {
  for (int i = 0; i < ctx->kernel->n_in; i++) {
    if (!ctx->in[i] || !tensor_valid(ctx->in[i])) continue;
    TRY(ctx_forward(ctx, 0, i, NULL));
    return put_index(ctx, i);
  }
  return INTERNAL("Merge op must have at least one valid input.");
}

static shoal_status ref_merge_run(struct kernel_ctx *ctx) {
  for (int i = 0; i < ctx->kernel->n_in; i++) {
    if (!ctx_ref(ctx, i)) continue;
    ctx_set_ref(ctx, 0, ctx_ref(ctx, i));
    return put_index(ctx, i);
  }
  return INTERNAL("RefMerge op must have at least one valid input.");
}

/* What all inputs agree on. */
static shoal_status merge_shape(struct shape_ctx *c) {
  struct shape s = c->in[0];
  for (int i = 1; i < c->node->n_in; i++) {
    if (s.rank != c->in[i].rank) {
      s = shape_unknown();
      break;
    }
    for (int k = 0; k < s.rank; k++)
      if (s.dims[k] != c->in[i].dims[k]) s.dims[k] = -1;
  }
  c->out[0] = s;
  c->out[1] = shape_scalar();
  if (c->handle_in && c->handle_out) {
    bool same = true;
    for (int i = 1; i < c->node->n_in; i++) same &= shape_equal(&c->handle_in[0], &c->handle_in[i]);
    if (same) c->handle_out[0] = c->handle_in[0];
  }
  return NULL;
}

static shoal_status ref_select_run(struct kernel_ctx *ctx) {
  const struct tensor *index = ctx_in(ctx, 0);
  if (index->rank != 0) return INVALID("Index must be a scalar, but it has shape %s", tensor_shape_str(index));
  int i = *T_DATA(index, const int32_t), n = ctx->kernel->n_in - 1;
  if (i < 0 || i >= n) return INVALID("Index must be in the range [0, %d) but got %d", n, i);
  ctx_set_ref(ctx, 0, ctx_ref(ctx, i + 1));
  return NULL;
}

static shoal_status ref_select_shape(struct shape_ctx *c) {
  struct shape s = c->in[1];
  for (int i = 2; i < c->node->n_in; i++)
    if (!shape_equal(&s, &c->in[i])) s = shape_unknown();
  c->out[0] = s;
  return NULL;
}

static const struct kernel_def merge_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE | KERNEL_DEAD_OK, .run = merge_run, .host_out = 2}, {0}};
static const struct kernel_def ref_merge_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE | KERNEL_DEAD_OK, .run = ref_merge_run, .host_out = 2},
    {0}};
static const struct kernel_def ref_select_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = ref_select_run, .host_in = 1}, {0}};

/* ---- Enter, Exit, NextIteration, LoopCond ---- */

static shoal_status pass_run(struct kernel_ctx *ctx) { return ctx_forward(ctx, 0, 0, NULL); }

static shoal_status ref_pass_run(struct kernel_ctx *ctx) {
  ctx_set_ref(ctx, 0, ctx_ref(ctx, 0));
  return NULL;
}

static shoal_status loop_cond_shape(struct shape_ctx *c) { return shape_in_rank(c, 0, 0, &c->out[0]); }

static const struct kernel_def pass_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = pass_run}, {0}};
static const struct kernel_def ref_pass_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = ref_pass_run}, {0}};
static const struct kernel_def loop_cond_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = pass_run, .host_in = 1, .host_out = 1}, {0}};

/* ---- Abort ---- */

struct abort_state {
  char *message;
};

static shoal_status abort_init(struct kernel_init *ki, void *state) {
  struct abort_state *st = state;
  const char *message;
  TRY(node_get_string(ki->node, "error_msg", &message));
  st->message = mem_strdup(message);
  return NULL;
}

static void abort_release(void *state) { free(((struct abort_state *)state)->message); }

/* TensorFlow ends its process here. One client's graph must not take the server and everyone's variables with
 * it: the step fails instead. */
static shoal_status abort_run(struct kernel_ctx *ctx) {
  struct abort_state *st = ctx->state;
  return STATUS(SHOAL_ABORTED, "Abort_op intentional failure; %s", st->message);
}

static const struct kernel_def abort_kernels[] = {{.device = "CPU",
                                                   .state_size = sizeof(struct abort_state),
                                                   .init = abort_init,
                                                   .release = abort_release,
                                                   .run = abort_run},
                                                  {0}};

static const struct op_row rows[] = {
    {.name = "Switch",
     .in = "data: T, pred: bool",
     .out = "output_false: T, output_true: T",
     .attrs = "T: type",
     .shape = switch_shape,
     .kernels = switch_kernels},
    {.name = "RefSwitch",
     .in = "data: Ref(T), pred: bool",
     .out = "output_false: Ref(T), output_true: Ref(T)",
     .attrs = "T: type",
     .flags = OP_UNINITIALIZED_OK,
     .shape = switch_shape,
     .kernels = ref_switch_kernels},
    {.name = "_SwitchN",
     .in = "data: T, output_index: int32",
     .out = "outputs: num_outs * T",
     .attrs = "num_outs: int >= 1; T: type",
     .shape = switch_shape,
     .kernels = switch_n_kernels},
    {.name = "Merge",
     .in = "inputs: N * T",
     .out = "output: T, value_index: int32",
     .attrs = "T: type; N: int >= 1",
     .shape = merge_shape,
     .kernels = merge_kernels},
    {.name = "RefMerge",
     .in = "inputs: Ref(N * T)",
     .out = "output: Ref(T), value_index: int32",
     .attrs = "T: type; N: int >= 1",
     .shape = merge_shape,
     .kernels = ref_merge_kernels},
    {.name = "RefSelect",
     .in = "index: int32, inputs: Ref(N * T)",
     .out = "output: Ref(T)",
     .attrs = "T: type; N: int >= 1",
     .shape = ref_select_shape,
     .kernels = ref_select_kernels},
    {.name = "Enter",
     .in = "data: T",
     .out = "output: T",
     .attrs = "T: type; frame_name: string; is_constant: bool = false; parallel_iterations: int = 10",
     .shape = shape_pass,
     .kernels = pass_kernels},
    {.name = "RefEnter",
     .in = "data: Ref(T)",
     .out = "output: Ref(T)",
     .attrs = "T: type; frame_name: string; is_constant: bool = false; parallel_iterations: int = 10",
     .shape = shape_pass,
     .kernels = ref_pass_kernels},
    {.name = "Exit",
     .in = "data: T",
     .out = "output: T",
     .attrs = "T: type",
     .shape = shape_pass,
     .kernels = pass_kernels},
    {.name = "RefExit",
     .in = "data: Ref(T)",
     .out = "output: Ref(T)",
     .attrs = "T: type",
     .shape = shape_pass,
     .kernels = ref_pass_kernels},
    {.name = "NextIteration",
     .in = "data: T",
     .out = "output: T",
     .attrs = "T: type",
     .shape = shape_pass,
     .kernels = pass_kernels},
    {.name = "RefNextIteration",
     .in = "data: Ref(T)",
     .out = "output: Ref(T)",
     .attrs = "T: type",
     .shape = shape_pass,
     .kernels = ref_pass_kernels},
    {.name = "LoopCond",
     .in = "input: bool",
     .out = "output: bool",
     .shape = loop_cond_shape,
     .kernels = loop_cond_kernels},
    {.name = "Abort", .attrs = "error_msg: string = ''; exit_without_error: bool = false", .kernels = abort_kernels},
};
OP_FAMILY(control_flow, rows);
