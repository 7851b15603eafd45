/* _JoinedUpdates and _L2Losses: updates of all variables, and the norm of all gradients, made by the rewrite
 * join_updates for devices that have kernels of their own for them (device/cuda/kernels_joined.c). The kernels here say
 * what they compute; the soft device borrows them.
 *
 * _JoinedUpdates stands for `count` updates by the op `op`. Inputs: variable, slots and gradient of each; then the
 * scalars that the op takes, in its order; then, when `scaled`, a number that gradients are multiplied by; then, when
 * `shrunk`, one that says how much of a variable is taken off before its update, for those whose `how` says so.
 * Gradients may be of half precision; those whose `how` says so have another shape, and were seen to fit before.
 *
 * _L2Losses is the sum of L2Loss of each. */
#include <stdlib.h>
#include <string.h>

#include "graph/shape_fn.h"
#include "ops/array/array_util.h"
#include "ops/state/joined.h"
#include "ops/state/swept.h"

/* ---- what a node says; for devices' own kernels too ---- */

shoal_status joined_layout_find(const struct shoal_node *n, struct joined_layout *out) {
  const char *name;
  const struct attr *how;
  int64_t count;
  *out = (struct joined_layout){.grad = -1};
  TRY(node_get_string(n, "op", &name));
  TRY(node_get_int(n, "count", &count));
  TRY(node_get_bool(n, "scaled", &out->scaled));
  TRY(node_get_bool(n, "shrunk", &out->shrunk));
  TRY(node_get_list(n, "how", ATTR_INT, &how));
  out->op = op_find(name);
  if (!out->op || out->op->n_out || out->op->n_in > SWEPT_INPUTS) return INVALID("%s cannot be joined", name);
  for (int i = 0; i < out->op->n_in; i++) {
    const struct op_arg *a = &out->op->in[i];
    if (a->type == SHOAL_RESOURCE) out->n_vars++;
    else if (!strcmp(a->name, "grad") || !strcmp(a->name, "delta")) out->grad = i;
    else out->n_scalars++;
  }
  out->count = (int)count;
  int shared = out->n_scalars + out->scaled + out->shrunk;
  if (out->grad < 0 || count < 1 || count > n->n_in || n->n_in != count * (out->n_vars + 1) + shared ||
      (int64_t)how->list.n != count)
    return INVALID("%s: %d inputs are not %d updates", n->name, n->n_in, (int)count);
  out->how = mem_zalloc((size_t)count, sizeof *out->how);
  for (int i = 0; i < out->count; i++) out->how[i] = (uint8_t)how->list.at[i].i;
  return NULL;
}

void joined_layout_release(struct joined_layout *l) { free(l->how); }

/* ---- updates ---- */

struct joined_updates {
  struct joined_layout at;
  struct kernel one; /* of the op it stands for */
  uint8_t types[SWEPT_INPUTS];
};

static shoal_status joined_init(struct kernel_init *ki, void *state) {
  struct joined_updates *st = state;
  TRY(joined_layout_find(ki->node, &st->at));
  for (int i = 0; i < st->at.op->n_in; i++)
    st->types[i] = st->at.op->in[i].type == SHOAL_RESOURCE ? SHOAL_RESOURCE : SHOAL_FLOAT32;
  return swept_init(ki, st->at.op, st->types, &st->one);
}

static void joined_release(void *state) {
  struct joined_updates *st = state;
  swept_release(&st->one);
  joined_layout_release(&st->at);
}

static float number_at(const struct tensor *t, int64_t i) {
  if (t->dtype == SHOAL_BFLOAT16) return bf16_to_float(T_DATA(t, const bf16)[i]);
  if (t->dtype == SHOAL_FLOAT16) return f16_to_float(T_DATA(t, const f16)[i]);
  return T_DATA(t, const float)[i];
}

/* The gradient as the op takes it: in float32, scaled. */
static shoal_status gradient_of(const struct tensor *g, const struct tensor *scale, const struct shape *shape,
                                struct tensor *out) {
  TRY(tensor_new(out, SHOAL_FLOAT32, shape));
  if (out->n != g->n) {
    tensor_release(out);
    return INVALID("a gradient has %lld elements, its variable %s", (long long)g->n, shape_str(shape));
  }
  float *to = T_DATA(out, float), by = scale ? *T_DATA(scale, const float) : 1;
  for (int64_t i = 0; i < g->n; i++) to[i] = number_at(g, i) * by;
  return NULL;
}

static shoal_status shrink(struct variable *v, const struct tensor *by) {
  TRY(variable_make_writable(v));
  if (v->value.dtype != SHOAL_FLOAT32) return INVALID("%s is not of float32", v->name);
  float *x = T_DATA(&v->value, float), part = *T_DATA(by, const float);
  for (int64_t i = 0; i < v->value.n; i++) x[i] -= x[i] * part;
  return NULL;
}

/* What comes before update m: its variable shrinks, and tells its shape. */
static shoal_status prepare(struct kernel_ctx *ctx, const struct tensor *handle, const struct tensor *by,
                            struct shape *shape) {
  struct resource *r;
  TRY(resource_from_handle(ctx->kernel->resources, handle, &variable_type, &r));
  struct variable *v = (struct variable *)r;
  pthread_rwlock_wrlock(&v->lock);
  shoal_status s = by ? shrink(v, by) : NULL;
  *shape = tensor_valid(&v->value) ? tensor_shape(&v->value) : v->shape;
  pthread_rwlock_unlock(&v->lock);
  resource_unref(r);
  return s;
}

static shoal_status run_one(struct kernel_ctx *ctx, const struct joined_updates *st, int m,
                            const struct tensor *const *shared) {
  const struct joined_layout *at = &st->at;
  const struct tensor *const *own = ctx->in + (ptrdiff_t)m * (at->n_vars + 1);
  const struct tensor *in[SWEPT_INPUTS];
  const struct tensor *scale = at->scaled ? shared[at->n_scalars] : NULL;
  bool shrinks = at->shrunk && at->how[m] & JOINED_SHRINKS;
  struct tensor grad;
  struct shape shape;
  TRY(prepare(ctx, own[0], shrinks ? shared[at->n_scalars + at->scaled] : NULL, &shape));
  if (!(at->how[m] & JOINED_FITS)) shape = tensor_shape(own[at->n_vars]); /* the op sees whether it does */
  TRY(gradient_of(own[at->n_vars], scale, &shape, &grad));
  for (int i = 0, scalar = 0; i < at->op->n_in; i++)
    in[i] = i < at->n_vars ? own[i] : i == at->grad ? &grad : shared[scalar++];
  struct kernel_ctx one = {.kernel = &st->one, .state = st->one.state, .step = ctx->step, .in = in};
  shoal_status s = st->one.def->run(&one);
  tensor_release(&grad);
  return s;
}

static shoal_status joined_run(struct kernel_ctx *ctx) {
  const struct joined_updates *st = ctx->state;
  const struct tensor *const *shared = ctx->in + (ptrdiff_t)st->at.count * (st->at.n_vars + 1);
  shoal_status s = NULL;
  for (const struct tensor *const *x = shared; x < ctx->in + ctx->kernel->n_in; x++)
    if ((*x)->rank) return INVALID("%s is not a scalar", tensor_shape_str(*x)); /* as the graph said it was */
  for (int m = 0; m < st->at.count && !s; m++) {
    s = run_one(ctx, st, m, shared);
    if (s) ctx->part = m;
  }
  return s;
}

/* ---- norms ---- */

static shoal_status losses_run(struct kernel_ctx *ctx) {
  struct tensor *y;
  double sum = 0;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &y));
  for (int k = 0; k < ctx->kernel->n_in; k++)
    for (int64_t i = 0; i < ctx_in(ctx, k)->n; i++) {
      double x = (double)number_at(ctx_in(ctx, k), i);
      sum += x * x / 2;
    }
  *T_DATA(y, float) = (float)sum;
  return NULL;
}

static bool are_floats(const struct shoal_node *n) {
  for (int i = 0; i < n->n_in; i++) {
    shoal_dtype t = dtype_base(n->in_types[i]);
    if (t != SHOAL_RESOURCE && t != SHOAL_FLOAT32 && t != SHOAL_FLOAT16 && t != SHOAL_BFLOAT16) return false;
  }
  return true;
}

static const struct op_row rows[] = {
    {.name = "_JoinedUpdates",
     .in = "inputs: Tin",
     .attrs = "op: string; count: int >= 1; scaled: bool; shrunk: bool; how: list(int); Tin: list(type) >= 1",
     .flags = OP_STATEFUL | OP_OWN,
     .kernels = (const struct kernel_def[]){{.device = "CPU",
                                             .borrowable = true,
                                             .fits = are_floats,
                                             .state_size = sizeof(struct joined_updates),
                                             .init = joined_init,
                                             .release = joined_release,
                                             .run = joined_run},
                                            {0}}},
    {.name = "_L2Losses",
     .in = "inputs: Tin",
     .out = "sum: float",
     .attrs = "Tin: list(type) >= 1",
     .flags = OP_OWN,
     .shape = shape_scalar_out,
     .kernels =
         (const struct kernel_def[]){{.device = "CPU", .borrowable = true, .fits = are_floats, .run = losses_run},
                                     {0}}},
};
OP_FAMILY(join_updates, rows);
