/* Calls of functions as ops: PartitionedCall, If, Case, While and For.
 *
 * In a session's graph these are lowered to plain nodes before placement (graph/lower.h). These kernels serve where
 * that does not happen: inside functions called by other kernels (datasets), and where a client asks that they be
 * left alone. Each is asynchronous: a call is a step of its own, and ends when that does. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/device_name.h"
#include "graph/shape_fn.h"
#include "runtime/function.h"
#include "runtime/kernel.h"

enum { MAX_BRANCHES = 256 };

struct functional {
  int n;
  struct function *f[MAX_BRANCHES]; /* If: then, else; While: cond, body; Case: branches */
};

static shoal_status get_function_with(struct kernel_init *ki, const char *attr, struct function_memory memory,
                                      struct functional *s) {
  const struct func_attr *f;
  TRY(node_get_func(ki->node, attr, &f));
  return function_get_with(ki, f, memory, &s->f[s->n++]);
}

static shoal_status get_function(struct kernel_init *ki, const char *attr, struct functional *s) {
  return get_function_with(ki, attr, (struct function_memory){0}, s);
}

/* ---- calls ---- */

static shoal_status call_init(struct kernel_init *ki, void *state) { return get_function(ki, "f", state); }

/* Passes results on as the kernel's outputs. */
static void finish(void *arg, shoal_status s, struct tensor *rets) {
  struct kernel_ctx *ctx = arg;
  for (int i = 0; !s && i < ctx->kernel->n_out; i++) ctx_set(ctx, i, &rets[i]);
  ctx_done(ctx, s);
}

/* Calls f with the kernel's inputs from `first` on. */
static void call_with_inputs(struct kernel_ctx *ctx, struct function *f, int first) {
  int n = ctx->kernel->n_in - first;
  if (function_rets(f) != ctx->kernel->n_out) {
    ctx_done(ctx, INVALID("The function returns %d values, but the op has %d outputs", function_rets(f),
                          ctx->kernel->n_out));
    return;
  }
  struct tensor *args = mem_zalloc((size_t)n, sizeof *args);
  for (int i = 0; i < n; i++) tensor_move(&args[i], ctx_in(ctx, first + i));
  function_call(f, ctx->step, args, n, finish, ctx);
  free(args); /* the call keeps references of its own */
}

static void call_start(struct kernel_ctx *ctx) { call_with_inputs(ctx, ((struct functional *)ctx->state)->f[0], 0); }

/* RemoteCall whose target is known only now (others were inlined where they belong): here, or not at all. */
static shoal_status check_target(const struct kernel_ctx *ctx) {
  const struct tensor *t = ctx_in(ctx, 0);
  if (t->n != 1) return INVALID("`target` must be a scalar");
  const struct str *name = t->data;
  char *text = mem_strndup(str_data(name), name->size);
  struct device_spec want, here;
  shoal_status s = device_spec_parse(text, &want);
  if (!s) s = device_spec_parse(ctx->kernel->device->name, &here);
  if (!s && !device_spec_matches(&want, &here))
    s = UNIMPLEMENTED("RemoteCall from %s to %s, which is not a constant of the graph", ctx->kernel->device->name,
                      text);
  free(text);
  return s;
}

static void remote_start(struct kernel_ctx *ctx) {
  shoal_status s = check_target(ctx);
  if (s) ctx_done(ctx, s);
  else call_with_inputs(ctx, ((struct functional *)ctx->state)->f[0], 1);
}

/* ---- conditionals ---- */

/* Python's idea of truth: a non-zero scalar, a non-empty string, a non-empty tensor. */
static shoal_status truth(const struct tensor *t, bool *out) {
  if (t->rank > 0) {
    *out = t->n > 0;
    return NULL;
  }
  switch ((shoal_dtype)t->dtype) {
#define CASE(e, type) \
  case e: *out = *T_DATA(t, const type) != 0; return NULL;
    CASE(SHOAL_FLOAT32, float)
    CASE(SHOAL_FLOAT64, double)
    CASE(SHOAL_INT8, int8_t)
    CASE(SHOAL_UINT8, uint8_t)
    CASE(SHOAL_INT16, int16_t)
    CASE(SHOAL_INT32, int32_t)
    CASE(SHOAL_INT64, int64_t)
    CASE(SHOAL_BOOL, bool)
#undef CASE
    case SHOAL_STRING: *out = T_DATA(t, const struct str)->size > 0; return NULL;
    default: return INVALID("DataType %s cannot be converted to a boolean", dtype_tf_name(t->dtype));
  }
}

static shoal_status if_init(struct kernel_init *ki, void *state) {
  TRY(get_function(ki, "then_branch", state));
  return get_function(ki, "else_branch", state);
}

static void if_start(struct kernel_ctx *ctx) {
  struct functional *s = ctx->state;
  bool taken = false;
  shoal_status bad = truth(ctx_in(ctx, 0), &taken);
  if (bad) ctx_done(ctx, bad);
  else call_with_inputs(ctx, s->f[taken ? 0 : 1], 1);
}

static shoal_status case_init(struct kernel_init *ki, void *state) {
  struct functional *s = state;
  const struct attr *branches;
  TRY(node_get_list(ki->node, "branches", ATTR_FUNC, &branches));
  if (branches->list.n > MAX_BRANCHES)
    return UNIMPLEMENTED("Case with %zu branches; at most %d are supported", branches->list.n, MAX_BRANCHES);
  for (size_t i = 0; i < branches->list.n; i++) TRY(function_get(ki, branches->list.at[i].func, &s->f[s->n++]));
  return NULL;
}

static void case_start(struct kernel_ctx *ctx) {
  struct functional *s = ctx->state;
  int64_t branch;
  shoal_status bad = tensor_get_int(ctx_in(ctx, 0), "branch_index", &branch);
  if (bad) {
    ctx_done(ctx, bad);
    return;
  }
  if (branch < 0 || branch >= s->n) branch = s->n - 1; /* out of range is the last one */
  call_with_inputs(ctx, s->f[branch], 1);
}

static shoal_status to_bool_run(struct kernel_ctx *ctx) {
  struct tensor *y;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &y));
  return truth(ctx_in(ctx, 0), y->data);
}

/* ---- loops ---- */

/* One While (or For) under way. Calls that end before they return are followed by a loop rather than by recursion: the
 * two sides of a call, its maker and its end, each leave a mark, and the second to come goes on. */
enum { CALL_OPEN, CALL_LEFT, CALL_ENDED };

struct while_call {
  struct kernel_ctx *ctx;
  struct functional *f;
  int n;               /* loop variables */
  int first;           /* their place among the body's arguments (For: 1, after the counter) */
  struct tensor *vars; /* [first + n] */
  bool is_for;
  int64_t at, limit, delta;
  atomic_int call; /* CALL_...: of the call being made */
  bool has_result;
  shoal_status status;
  struct tensor *rets;
  int n_rets;
};

static void loop_finish(struct while_call *l, shoal_status s) {
  for (int i = 0; i < l->n; i++) {
    if (!s) ctx_set(l->ctx, i, &l->vars[l->first + i]);
  }
  for (int i = 0; i < l->first + l->n; i++) tensor_release(&l->vars[i]);
  struct kernel_ctx *ctx = l->ctx;
  free(l->vars);
  free(l->rets);
  free(l);
  ctx_done(ctx, s);
}

static void loop_go(struct while_call *l, bool asked);

static void called_cond(void *arg, shoal_status s, struct tensor *rets);
static void called_body(void *arg, shoal_status s, struct tensor *rets);

static void returned(struct while_call *l, shoal_status s, struct tensor *rets, int n, bool asked) {
  l->status = s;
  for (int i = 0; !s && i < n; i++) tensor_move(&l->rets[i], &rets[i]);
  l->n_rets = s ? 0 : n;
  l->has_result = true;
  if (atomic_exchange(&l->call, CALL_ENDED) == CALL_LEFT) loop_go(l, asked);
}

static void called_cond(void *arg, shoal_status s, struct tensor *rets) { returned(arg, s, rets, 1, true); }

static void called_body(void *arg, shoal_status s, struct tensor *rets) {
  struct while_call *l = arg;
  returned(l, s, rets, l->n, false);
}

static void take_body(struct while_call *l) {
  for (int i = 0; i < l->n; i++) {
    tensor_release(&l->vars[l->first + i]);
    tensor_move(&l->vars[l->first + i], &l->rets[i]);
  }
  if (l->is_for) l->at += l->delta;
}

/* A new scalar each time: the body may have kept the one before. */
static shoal_status set_counter(struct while_call *l) {
  tensor_release(&l->vars[0]);
  TRY(tensor_new_scalar(&l->vars[0], SHOAL_INT32));
  *T_DATA(&l->vars[0], int32_t) = (int32_t)l->at;
  return NULL;
}

/* Makes one call; true when it ended at once. */
static bool loop_call(struct while_call *l, bool cond) {
  atomic_store(&l->call, CALL_OPEN);
  struct function *f = l->is_for ? l->f->f[0] : l->f->f[cond ? 0 : 1];
  function_call(f, l->ctx->step, l->vars, l->first + l->n, cond ? called_cond : called_body, l);
  return atomic_exchange(&l->call, CALL_LEFT) == CALL_ENDED;
}

/* Goes on after a call has ended: asked tells which (the condition, or the body). */
static void loop_go(struct while_call *l, bool asked) {
  for (;;) {
    shoal_status s = l->status;
    bool more = true;
    if (!s && l->has_result && asked) {
      s = truth(&l->rets[0], &more);
      tensor_release(&l->rets[0]);
    } else if (!s && l->has_result) {
      take_body(l);
    }
    l->has_result = false;
    if (!s && l->ctx->step->cancel && cancel_started(l->ctx->step->cancel)) s = cancel_reason(l->ctx->step->cancel);
    if (l->is_for) {
      more = l->delta > 0 ? l->at < l->limit : l->at > l->limit;
      if (more && !s) s = set_counter(l);
    }
    if (s || !more) {
      loop_finish(l, s);
      return;
    }
    asked = !l->is_for && !asked;
    if (!loop_call(l, asked)) return;
  }
}

static struct while_call *loop_new(struct kernel_ctx *ctx, int n, int first_in, int first) {
  struct while_call *l = mem_zalloc(1, sizeof *l);
  l->ctx = ctx;
  l->f = ctx->state;
  l->n = n;
  l->first = first;
  l->vars = mem_zalloc((size_t)(first + n), sizeof *l->vars);
  l->rets = mem_zalloc((size_t)MAX(n, 1), sizeof *l->rets);
  for (int i = 0; i < n; i++) tensor_ref(&l->vars[first + i], ctx_in(ctx, first_in + i));
  return l;
}

static shoal_status while_init(struct kernel_init *ki, void *state) {
  TRY(get_function_with(ki, "cond", (struct function_memory){.host_rets = 1}, state));
  TRY(get_function(ki, "body", state));
  struct functional *s = state;
  int n = ki->kernel->n_in;
  if (function_rets(s->f[0]) != 1)
    return INVALID("Expected a single scalar return value from WhileOp cond, got %d tensors.", function_rets(s->f[0]));
  if (function_rets(s->f[1]) != n)
    return INVALID("While loop body returned %d arguments. Expected: %d", function_rets(s->f[1]), n);
  return NULL;
}

static void while_start(struct kernel_ctx *ctx) { loop_go(loop_new(ctx, ctx->kernel->n_in, 0, 0), false); }

static shoal_status for_init(struct kernel_init *ki, void *state) {
  TRY(get_function_with(ki, "body", (struct function_memory){.host_args = 1}, state)); /* the counter */
  struct functional *s = state;
  int n = ki->kernel->n_in - 3;
  if (function_rets(s->f[0]) != n)
    return INVALID("For loop body returned %d arguments. Expected: %d", function_rets(s->f[0]), n);
  return NULL;
}

static void for_start(struct kernel_ctx *ctx) {
  int64_t bounds[3];
  for (int i = 0; i < 3; i++) {
    static const char *const names[] = {"start", "limit", "delta"};
    shoal_status bad = ctx_check_scalar(ctx, i, names[i]);
    if (!bad) bad = tensor_get_int(ctx_in(ctx, i), names[i], &bounds[i]);
    if (!bad && i == 2) {
      int64_t start = bounds[0], limit = bounds[1], delta = bounds[2];
      if (!(delta > 0 ? start <= limit : delta < 0 ? start >= limit : start == limit))
        bad = INVALID("Invalid start/limit/delta: %" PRId64 " %" PRId64 " %" PRId64, start, limit, delta);
    }
    if (bad) {
      ctx_done(ctx, bad);
      return;
    }
  }
  struct while_call *l = loop_new(ctx, ctx->kernel->n_in - 3, 3, 1);
  l->is_for = true;
  l->at = bounds[0];
  l->limit = bounds[1];
  l->delta = bounds[2];
  loop_go(l, false);
}

/* host: the inputs that decide what is called. The rest is the functions' to look at. */
#define FUNCTIONAL(init_, start_, host)       \
  (const struct kernel_def[]) {               \
    {.device = "CPU",                         \
     .flags = KERNEL_ANYWHERE,                \
     .state_size = sizeof(struct functional), \
     .init = init_,                           \
     .start = start_,                         \
     .host_in = host},                        \
        {0},                                  \
  }
#define IF_ATTRS                                                                                     \
  "Tcond: type; Tin: list(type) >= 0; Tout: list(type) >= 0; then_branch: func; else_branch: func; " \
  "output_shapes: list(shape) = []"
#define CASE_ATTRS \
  "Tin: list(type) >= 0; Tout: list(type) >= 0; branches: list(func) >= 1; output_shapes: list(shape) = []"
#define WHILE_ATTRS \
  "T: list(type) >= 0; cond: func; body: func; output_shapes: list(shape) = []; parallel_iterations: int = 10"
#define CALL_ATTRS                                                                                         \
  "Tin: list(type) >= 0; Tout: list(type) >= 0; f: func; config: string = ''; config_proto: string = ''; " \
  "executor_type: string = ''"

static const struct op_row rows[] = {
    {.name = "PartitionedCall",
     .in = "args: Tin",
     .out = "output: Tout",
     .attrs = CALL_ATTRS,
     .kernels = FUNCTIONAL(call_init, call_start, 0)},
    {.name = "StatefulPartitionedCall",
     .in = "args: Tin",
     .out = "output: Tout",
     .attrs = CALL_ATTRS,
     .flags = OP_STATEFUL,
     .kernels = FUNCTIONAL(call_init, call_start, 0)},
    {.name = "If",
     .in = "cond: Tcond, input: Tin",
     .out = "output: Tout",
     .attrs = IF_ATTRS,
     .flags = OP_STATEFUL,
     .kernels = FUNCTIONAL(if_init, if_start, 1)},
    {.name = "StatelessIf",
     .in = "cond: Tcond, input: Tin",
     .out = "output: Tout",
     .attrs = IF_ATTRS,
     .kernels = FUNCTIONAL(if_init, if_start, 1)},
    {.name = "Case",
     .in = "branch_index: int32, input: Tin",
     .out = "output: Tout",
     .attrs = CASE_ATTRS,
     .flags = OP_STATEFUL,
     .kernels = FUNCTIONAL(case_init, case_start, 1)},
    {.name = "StatelessCase",
     .in = "branch_index: int32, input: Tin",
     .out = "output: Tout",
     .attrs = CASE_ATTRS,
     .kernels = FUNCTIONAL(case_init, case_start, 1)},
    {.name = "While",
     .in = "input: T",
     .out = "output: T",
     .attrs = WHILE_ATTRS,
     .flags = OP_STATEFUL,
     .kernels = FUNCTIONAL(while_init, while_start, 0)},
    {.name = "StatelessWhile",
     .in = "input: T",
     .out = "output: T",
     .attrs = WHILE_ATTRS,
     .kernels = FUNCTIONAL(while_init, while_start, 0)},
    {.name = "For",
     .in = "start: int32, limit: int32, delta: int32, input: T",
     .out = "output: T",
     .attrs = "T: list(type) >= 0; body: func",
     .kernels = FUNCTIONAL(for_init, for_start, 7)},
    {.name = "RemoteCall",
     .in = "target: string, args: Tin",
     .out = "output: Tout",
     .attrs = "Tin: list(type) >= 1; Tout: list(type) >= 1; f: func",
     .flags = OP_STATEFUL,
     .kernels = FUNCTIONAL(call_init, remote_start, 1)},
    {.name = "SymbolicGradient",
     .in = "input: Tin",
     .out = "output: Tout",
     .attrs = "Tin: list(type) >= 1; Tout: list(type) >= 1; f: func"},
    {.name = "ToBool",
     .in = "input: T",
     .out = "output: bool",
     .attrs = "T: type",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = (const struct kernel_def[]){{.device = "CPU", .flags = KERNEL_CHEAP, .run = to_bool_run}, {0}}},
};
OP_FAMILY(functional, rows);
