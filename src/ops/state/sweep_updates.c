/* _SweepUpdates: many optimizer updates of small variables in one node, made by the rewrite of that name.
 *
 * It holds one kernel of the op it stands for (attribute `op`) and runs it `count` times, each time with the inputs
 * that update has for itself (`own` says which of the op's inputs those are) and the scalars that all share. Inputs:
 * the own ones of each update in turn, then the shared ones. Each update locks its own variables, as it did alone.
 *
 * Inputs are of the types that the op takes: that was checked when the updates were nodes. So no graph that arrives may
 * have it.
 *
 * Gradients of small variables have mostly been computed by one thread, whose core has them and the variables at hand:
 * only where there is much to do is it shared with others. */
#include <pthread.h>
#include <stdlib.h>

#include "device/device.h"
#include "ops/state/swept.h"
#include "runtime/resource_ahead.h"

enum { GRAIN = 1 << 18, AHEAD = 16 }; /* elements; updates whose variables are fetched together */

struct sweep {
  struct kernel one; /* of the op it stands for */
  int count, n_own;
  int at[SWEPT_INPUTS]; /* own: place among an update's own inputs; shared: -1 - place among the shared */
  uint8_t types[SWEPT_INPUTS];
};

shoal_status swept_init(struct kernel_init *ki, const struct op *op, const uint8_t *types, struct kernel *out) {
  struct shoal_node like = *ki->node;
  like.op = op;
  like.n_in = op->n_in;
  like.in_types = (uint8_t *)(uintptr_t)types;
  const struct kernel_def *def;
  TRY(kernel_find(&like, device_type_host()->name, &def));
  if (!def->run) return INVALID("%s cannot be swept", op->name);
  *out = *ki->kernel;
  out->op = op;
  out->def = def;
  out->n_in = op->n_in;
  out->in_types = types;
  out->state = mem_zalloc(1, MAX(def->state_size, 1));
  struct kernel_init inner = *ki;
  inner.node = &like;
  inner.kernel = out;
  return def->init ? def->init(&inner, out->state) : NULL;
}

void swept_release(struct kernel *k) {
  if (k->state && k->def->release) k->def->release(k->state);
  free(k->state);
}

static shoal_status sweep_init(struct kernel_init *ki, void *state) {
  struct sweep *s = state;
  const char *name;
  const struct attr *own;
  int64_t count;
  TRY(node_get_string(ki->node, "op", &name));
  TRY(node_get_int(ki->node, "count", &count));
  TRY(node_get_list(ki->node, "own", ATTR_INT, &own));
  const struct op *op = op_find(name);
  if (!op || op->n_in > SWEPT_INPUTS || op->n_in != (int)own->list.n || op->n_out || count < 1)
    return INVALID("%s cannot be swept", name);
  int shared = 0;
  for (int i = 0; i < op->n_in; i++) s->at[i] = own->list.at[i].i ? s->n_own++ : -1 - shared++;
  if (ki->node->n_in < shared || (ki->node->n_in - shared) != count * s->n_own)
    return INVALID("%s: %d inputs are not %d updates", ki->node->name, ki->node->n_in, (int)count);
  s->count = (int)count;
  for (int i = 0; i < op->n_in; i++)
    s->types[i] = ki->node->in_types[s->at[i] >= 0 ? s->at[i] : s->count * s->n_own - 1 - s->at[i]];
  return swept_init(ki, op, s->types, &s->one);
}

static void sweep_release(void *state) { swept_release(&((struct sweep *)state)->one); }

struct sweep_pass {
  struct kernel_ctx *ctx;
  const struct sweep *s;
  pthread_mutex_t lock;
  shoal_status error; /* lock: the first */
};

static void run_some(void *arg, int64_t begin, int64_t end) {
  struct sweep_pass *p = arg;
  const struct sweep *s = p->s;
  for (int64_t m = begin; m < end; m++) {
    if ((m - begin) % AHEAD == 0) resource_fetch_ahead(p->ctx->in + m * s->n_own, (int)MIN(AHEAD, end - m) * s->n_own);
    const struct tensor *in[SWEPT_INPUTS];
    for (int i = 0; i < s->one.n_in; i++)
      in[i] = p->ctx->in[s->at[i] >= 0 ? m * s->n_own + s->at[i] : (int64_t)s->count * s->n_own - 1 - s->at[i]];
    struct kernel_ctx ctx = {.kernel = &s->one, .state = s->one.state, .step = p->ctx->step, .in = in};
    shoal_status status = s->one.def->run(&ctx);
    if (!status) continue;
    pthread_mutex_lock(&p->lock);
    if (!p->error) p->ctx->part = (int)m;
    status_merge(&p->error, status);
    pthread_mutex_unlock(&p->lock);
  }
}

static shoal_status sweep_run(struct kernel_ctx *ctx) {
  const struct sweep *s = ctx->state;
  struct sweep_pass p = {.ctx = ctx, .s = s, .lock = PTHREAD_MUTEX_INITIALIZER};
  int64_t elements = 0;
  for (int i = 0; i < s->count * s->n_own; i++) elements += ctx_in(ctx, i)->n; /* mostly of gradients */
  int64_t grain = elements <= GRAIN ? s->count : MAX(1, s->count * GRAIN / elements);
  pool_for(elements <= GRAIN ? NULL : ctx_pool(ctx), s->count, grain, run_some, &p);
  return p.error;
}

static const struct op_row rows[] = {
    {.name = "_SweepUpdates",
     .in = "inputs: Tin",
     .attrs = "op: string; count: int >= 1; own: list(int); Tin: list(type) >= 1",
     .flags = OP_STATEFUL | OP_OWN,
     .kernels = (const struct kernel_def[]){{.device = "CPU",
                                             .borrowable = true,
                                             .state_size = sizeof(struct sweep),
                                             .init = sweep_init,
                                             .release = sweep_release,
                                             .run = sweep_run},
                                            {0}}},
};
OP_FAMILY(sweep_updates, rows);
