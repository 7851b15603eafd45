/* What TensorFlow's debugger puts on edges: Copy and CopyHost, DebugIdentity in its three forms, and the counters and
 * summaries of what a tensor holds. Where they would publish what they see (debug_urls: files, or a server of the
 * debugger's), there is nothing here to publish with, and a node that asks for it is refused by name rather than run
 * without a word. */
#include <math.h>
#include <string.h>

#include "ops/array/array_util.h"

static shoal_status refuse_urls(struct kernel_init *ki) {
  const struct attr *urls = node_attr(ki->node, "debug_urls");
  if (!urls || urls->kind != ATTR_LIST || urls->list.n == 0) return NULL;
  return UNIMPLEMENTED("%s cannot publish to debug_urls: there is no debugger here to send tensors to",
                       ki->node->op->name);
}

/* "node" or "node:output". */
static shoal_status check_name(struct kernel_init *ki) {
  const char *name;
  TRY(node_get_string(ki->node, "tensor_name", &name));
  const char *colon = strchr(name, ':');
  int64_t slot;
  if (!*name || (colon && strchr(colon + 1, ':'))) return INVALID("Failed to parse tensor name: \"%s\"", name);
  if (colon && (!str_to_int64(colon + 1, &slot) || slot < INT32_MIN || slot > INT32_MAX))
    return INVALID("Invalid string value for output_slot: \"%s\"", colon + 1);
  return NULL;
}

static shoal_status init_named(struct kernel_init *ki, void *state) {
  TRY(refuse_urls(ki));
  return check_name(ki);
}

static shoal_status init_identity(struct kernel_init *ki, void *state) {
  (void)state;
  return refuse_urls(ki);
}

static shoal_status run_identity(struct kernel_ctx *ctx) { return ctx_forward(ctx, 0, 0, NULL); }

/* A buffer of its own, also where the input is a variable's. */
static shoal_status run_copy(struct kernel_ctx *ctx) {
  struct tensor copy;
  TRY(tensor_copy(&copy, ctx_in(ctx, 0)));
  ctx_set(ctx, 0, &copy);
  return NULL;
}

/* ---- what is in a tensor ---- */

struct tally {
  int64_t negative_inf, negative, zero, positive, positive_inf, nan;
  double min, max, mean, variance;
};

/* Finite values beyond a bound count as infinite, but are in minimum, maximum and mean all the same. */
static struct tally tally_of(const struct tensor *t, double lower, double upper) {
  struct tally c = {.min = INFINITY, .max = -INFINITY, .mean = NAN, .variance = NAN};
  double sum = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < t->n; i++) {
    double x = real_at(t, i);
    if (isnan(x)) c.nan++;
    else if (x == -INFINITY) c.negative_inf++;
    else if (x == INFINITY) c.positive_inf++;
    else {
      if (!isinf(lower) && x <= lower) c.negative_inf++;
      else if (!isinf(upper) && x >= upper) c.positive_inf++;
      else if (x < 0) c.negative++;
      else if (x > 0) c.positive++;
      else c.zero++;
      c.min = fmin(c.min, x);
      c.max = fmax(c.max, x);
      finite++;
      sum += x;
    }
  }
  if (finite == 0) return c;
  c.mean = sum / (double)finite;
  c.variance = 0;
  for (int64_t i = 0; i < t->n; i++) {
    double x = real_at(t, i);
    if (isfinite(x)) c.variance += (x - c.mean) * (x - c.mean);
  }
  c.variance /= (double)finite;
  return c;
}

static shoal_status run_nan_count(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 1, (int64_t[]){1}, &out));
  *T_DATA(out, int64_t) = tally_of(x, -INFINITY, INFINITY).nan;
  return NULL;
}

/* ---- DebugNumericSummary ---- */

struct debug_bounds {
  float lower, upper;
};

static shoal_status init_summary(struct kernel_init *ki, void *state) {
  struct debug_bounds *b = state;
  TRY(init_named(ki, state));
  TRY(node_get_float(ki->node, "lower_bound", &b->lower));
  return node_get_float(ki->node, "upper_bound", &b->upper);
}

enum { SUMMARY_FIXED = 14 };

static shoal_status run_summary(struct kernel_ctx *ctx) {
  const struct debug_bounds *b = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct tally c = tally_of(x, b->lower, b->upper);
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 1, (int64_t[]){SUMMARY_FIXED + x->rank}, &out));
  const double fixed[SUMMARY_FIXED] = {1,
                                       (double)x->n,
                                       (double)c.nan,
                                       (double)c.negative_inf,
                                       (double)c.negative,
                                       (double)c.zero,
                                       (double)c.positive,
                                       (double)c.positive_inf,
                                       c.min,
                                       c.max,
                                       c.mean,
                                       c.variance,
                                       x->dtype,
                                       x->rank};
  memcpy(out->data, fixed, sizeof fixed);
  for (int i = 0; i < x->rank; i++) T_DATA(out, double)[SUMMARY_FIXED + i] = (double)x->dims[i];
  return NULL;
}

/* ---- DebugNumericSummaryV2 ---- */

enum debug_mode { CURT_HEALTH = 2, CONCISE_HEALTH = 3, FULL_HEALTH = 4, SHAPE = 5, REDUCE_INF_NAN_THREE_SLOTS = 8 };
enum { SHAPE_DIMS = 6, MAX_SLOTS = 11 };

struct summary_v2 {
  int64_t mode, id;
};

static shoal_status init_v2(struct kernel_init *ki, void *state) {
  struct summary_v2 *st = state;
  TRY(node_get_int(ki->node, "tensor_debug_mode", &st->mode));
  return node_get_int(ki->node, "tensor_id", &st->id);
}

/* The slots of a mode; their number, 0 for a mode that there is not. */
static int slots_of(const struct summary_v2 *st, const struct tensor *x, double *v) {
  struct tally c = tally_of(x, -INFINITY, INFINITY);
  int64_t bad = c.negative_inf + c.positive_inf + c.nan;
  int n = 0;
  switch (st->mode) {
    case CURT_HEALTH:
      v[n++] = (double)st->id;
      v[n++] = bad > 0;
      break;
    case CONCISE_HEALTH:
    case FULL_HEALTH:
      v[n++] = (double)st->id;
      if (st->mode == FULL_HEALTH) {
        v[n++] = -1; /* the device has no number */
        v[n++] = x->dtype;
        v[n++] = x->rank;
      }
      v[n++] = (double)x->n;
      v[n++] = (double)c.negative_inf;
      v[n++] = (double)c.positive_inf;
      v[n++] = (double)c.nan;
      if (st->mode == CONCISE_HEALTH) break;
      v[n++] = (double)c.negative;
      v[n++] = (double)c.zero;
      v[n++] = (double)c.positive;
      break;
    case SHAPE:
      v[n++] = (double)st->id;
      v[n++] = x->dtype;
      v[n++] = x->rank;
      v[n++] = (double)x->n;
      for (int i = 0; i < SHAPE_DIMS; i++) { /* the last ones when there are more */
        int at = i + (x->rank > SHAPE_DIMS ? x->rank - SHAPE_DIMS : 0);
        v[n++] = at < x->rank ? (double)x->dims[at] : 0;
      }
      break;
    case REDUCE_INF_NAN_THREE_SLOTS:
      v[n++] = c.negative_inf ? -INFINITY : 0;
      v[n++] = c.positive_inf ? INFINITY : 0;
      v[n++] = c.nan ? NAN : 0;
      break;
    default: break;
  }
  return n;
}

static shoal_status run_v2(struct kernel_ctx *ctx) {
  const struct summary_v2 *st = ctx->state;
  double slots[MAX_SLOTS];
  int64_t n = slots_of(st, ctx_in(ctx, 0), slots);
  if (!n) return UNIMPLEMENTED("Unimplemented tensor debug mode: %lld", (long long)st->mode);
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 1, &n, &out));
  for (int64_t i = 0; i < n; i++) real_put(out, i, slots[i]);
  return NULL;
}

/* ---- rows ---- */

static shoal_status shape_any_vector(struct shape_ctx *c) {
  c->out[0] = shape_vector(-1);
  return NULL;
}

static shoal_status shape_one(struct shape_ctx *c) {
  c->out[0] = shape_vector(1);
  return NULL;
}

static const struct kernel_def copy_kernels[] = {{.device = "CPU", .run = run_copy}, {0}};
static const struct kernel_def identity_kernels[] = {{.device = "CPU", .init = init_identity, .run = run_identity},
                                                     {0}};
static const struct kernel_def named_kernels[] = {{.device = "CPU", .init = init_named, .run = run_identity}, {0}};
static const struct kernel_def nan_count_kernels[] = {
    {.device = "CPU", .type_attr = "T", .types = DT_REAL, .init = init_named, .run = run_nan_count}, {0}};
static const struct kernel_def summary_kernels[] = {{.device = "CPU",
                                                     .type_attr = "T",
                                                     .types = (DT_REAL & ~(DT(FLOAT16) | DT(BFLOAT16))) | DT(BOOL),
                                                     .state_size = sizeof(struct debug_bounds),
                                                     .init = init_summary,
                                                     .run = run_summary},
                                                    {0}};
static const struct kernel_def v2_kernels[] = {{.device = "CPU",
                                                .type_attr = "T",
                                                .types = DT_REAL | DT(BOOL),
                                                .state_size = sizeof(struct summary_v2),
                                                .init = init_v2,
                                                .run = run_v2},
                                               {0}};

#define COPY                                                \
  .in = "input: T", .out = "output: T",                     \
  .attrs =                                                  \
      "T: type; tensor_name: string = ''; debug_ops_spec: " \
      "list(string) = []",                                  \
  .flags = OP_UNINITIALIZED_OK | OP_NO_GRADIENT, .shape = shape_unchanged, .kernels = copy_kernels
#define NAMES "T: type; device_name: string = ''; tensor_name: string = ''; debug_urls: list(string) = []; "

static const struct op_row rows[] = {
    {.name = "Copy", COPY},
    {.name = "CopyHost", COPY},
    {.name = "DebugIdentity",
     .in = "input: T",
     .out = "output: T",
     .attrs = NAMES "gated_grpc: bool = false",
     .flags = OP_UNINITIALIZED_OK | OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = named_kernels},
    {.name = "DebugIdentityV2",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: type; tfdbg_context_id: string = ''; op_name: string = ''; output_slot: int = -1; tensor_debug_mode: "
              "int = -1; debug_urls: list(string) = []; circular_buffer_size: int = 1000; tfdbg_run_id: string = ''",
     .flags = OP_STATEFUL,
     .shape = shape_unchanged,
     .grad = grad_pass,
     .kernels = identity_kernels},
    {.name = "DebugIdentityV3",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: type; device_name: string = ''; tensor_name: string = ''; io_of_node: string = ''; is_input: bool = "
              "false; io_index: int = -1; debug_urls: list(string) = []; gated_grpc: bool = false",
     .flags = OP_STATEFUL | OP_UNINITIALIZED_OK | OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = named_kernels},
    {.name = "DebugNanCount",
     .in = "input: T",
     .out = "output: int64",
     .attrs = NAMES "gated_grpc: bool = false",
     .flags = OP_UNINITIALIZED_OK | OP_NO_GRADIENT,
     .shape = shape_one,
     .kernels = nan_count_kernels},
    {.name = "DebugNumericSummary",
     .in = "input: T",
     .out = "output: double",
     .attrs = NAMES "lower_bound: float = -inf; upper_bound: float = inf; mute_if_healthy: bool = false; gated_grpc: "
                    "bool = false",
     .flags = OP_UNINITIALIZED_OK | OP_NO_GRADIENT,
     .shape = shape_any_vector,
     .kernels = summary_kernels},
    {.name = "DebugNumericSummaryV2",
     .in = "input: T",
     .out = "output: output_dtype",
     .attrs = "output_dtype: {float, double} = float; T: type; tensor_debug_mode: int = -1; tensor_id: int = -1",
     .flags = OP_NO_GRADIENT,
     .shape = shape_any_vector,
     .kernels = v2_kernels},
};
OP_FAMILY(debug, rows);
