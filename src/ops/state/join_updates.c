/* _JoinedUpdates and _L2Losses: updates of all variables, and the norm of all gradients, made by the rewrite
 * join_updates. Cards have kernels of their own for them (device/cuda/kernels_joined.c); those here have the bits of
 * the single ops, and the soft device borrows them.
 *
 * _JoinedUpdates stands for `count` updates by the op `op`. Inputs: variable, slots and gradient of each; then the
 * scalars that the op takes, in its order; then, when `scaled`, a number that gradients are multiplied by; then, when
 * `shrunk`, one that says how much of a variable is taken off before its update, for those whose `how` says so.
 * Gradients may be of half precision; those whose `how` says so have another shape, and were seen to fit before.
 *
 * _L2Losses is the sum of L2Loss of each. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "graph/shape_fn.h"
#include "ops/array/array_util.h"
#include "ops/math/reduce.h"
#include "ops/state/joined.h"
#include "ops/state/swept.h"
#include "ops/state/training.h"
#include "runtime/resource_ahead.h"

enum { GRAIN = 1 << 18, AHEAD = 16 }; /* elements; updates whose variables are fetched together: see sweep_updates.c */

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
  TRY(swept_init(ki, st->at.op, st->types, &st->one));
  return training_joins(&st->one) ? NULL : INVALID("%s cannot be joined", st->at.op->name);
}

static void joined_release(void *state) {
  struct joined_updates *st = state;
  swept_release(&st->one);
  joined_layout_release(&st->at);
}

struct joined_pass {
  struct kernel_ctx *ctx;
  const struct joined_updates *st;
  const struct tensor *const *shared;
  pthread_mutex_t lock;
  shoal_status error; /* lock: the first */
};

static const float *number_of(const struct tensor *t) { return T_DATA(t, const float); }

static shoal_status run_one(const struct joined_pass *p, int64_t m) {
  const struct joined_layout *at = &p->st->at;
  const struct tensor *const *own = p->ctx->in + m * (at->n_vars + 1);
  const struct tensor *in[SWEPT_INPUTS];
  for (int i = 0, scalar = 0; i < at->op->n_in; i++)
    in[i] = i < at->n_vars ? own[i] : i == at->grad ? own[at->n_vars] : p->shared[scalar++];
  bool shrinks = at->shrunk && at->how[m] & JOINED_SHRINKS;
  struct training_joined with = {.scale = at->scaled ? number_of(p->shared[at->n_scalars]) : NULL,
                                 .shrink = shrinks ? number_of(p->shared[at->n_scalars + at->scaled]) : NULL,
                                 .fits = at->how[m] & JOINED_FITS};
  struct kernel_ctx one = {.kernel = &p->st->one, .state = p->st->one.state, .step = p->ctx->step, .in = in};
  return training_run_joined(&one, &with);
}

static void run_some(void *arg, int64_t begin, int64_t end) {
  struct joined_pass *p = arg;
  int n_own = p->st->at.n_vars + 1;
  for (int64_t m = begin; m < end; m++) {
    if ((m - begin) % AHEAD == 0) resource_fetch_ahead(p->ctx->in + m * n_own, (int)MIN(AHEAD, end - m) * n_own);
    shoal_status s = run_one(p, m);
    if (!s) continue;
    pthread_mutex_lock(&p->lock);
    if (!p->error) p->ctx->part = (int)m;
    status_merge(&p->error, s);
    pthread_mutex_unlock(&p->lock);
  }
}

static shoal_status joined_run(struct kernel_ctx *ctx) {
  const struct joined_updates *st = ctx->state;
  struct joined_pass p = {.ctx = ctx,
                          .st = st,
                          .shared = ctx->in + (ptrdiff_t)st->at.count * (st->at.n_vars + 1),
                          .lock = PTHREAD_MUTEX_INITIALIZER};
  for (const struct tensor *const *x = p.shared; x < ctx->in + ctx->kernel->n_in; x++)
    if ((*x)->rank) return INVALID("%s is not a scalar", tensor_shape_str(*x)); /* as the graph said it was */
  int64_t elements = 0, count = st->at.count;                                   /* elements: mostly of gradients */
  for (int64_t i = 0; i < count * (st->at.n_vars + 1); i++) elements += ctx_in(ctx, (int)i)->n;
  int64_t grain = elements <= GRAIN ? count : MAX(1, count * GRAIN / elements);
  pool_for(elements <= GRAIN ? NULL : ctx_pool(ctx), count, grain, run_some, &p);
  return p.error;
}

/* ---- norms ---- */

static shoal_status losses_run(struct kernel_ctx *ctx) {
  struct tensor *y;
  float sum = 0;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &y));
  for (int k = 0; k < ctx->kernel->n_in; k++) {
    float one;
    TRY(reduce_l2_loss(ctx, ctx_in(ctx, k), &one));
    sum = k ? sum + one : one;
  }
  *T_DATA(y, float) = sum;
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
