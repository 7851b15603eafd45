/* Kernels of the soft device that only queue their work, as those of a card do: for tests of what rests on that.
 *
 * They are there when SHOAL_SOFT_QUEUES is in the environment: a few ops of float32 whose outputs' shapes follow from
 * their inputs'. The CPU's kernel runs on the stream that computes, and what it made is copied to where the output is;
 * variables are changed where they are. What the CPU's kernel finds wrong there is an error of the step. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "device/soft/soft.h"
#include "device/soft/soft_borrow.h"
#include "ops/math/broadcast.h"
#include "ops/state/state.h"
#include "runtime/variable_copy.h"

enum { MOST_IN = 3 };

/* ---- ops without state ---- */

struct soft_op {
  struct soft_work head;
  const struct kernel *inner; /* the CPU's */
  shoal_status _Atomic *late; /* NULL: captured, and of no step */
  int n_in;
  struct tensor in[MOST_IN], out; /* where they are: no reference */
};

static void nothing(struct buffer *b) {}

/* The CPU's kernels may take references for as long as they run. */
static struct tensor lend(const struct tensor *raw) {
  struct tensor t = *raw;
  t.buffer = buffer_wrap(raw->data, tensor_bytes(raw), NULL, nothing, NULL);
  return t;
}

static shoal_status compute(struct soft_op *o) {
  struct tensor in[MOST_IN], out = tensor_none();
  const struct tensor *at[MOST_IN];
  for (int i = 0; i < o->n_in; i++) {
    in[i] = lend(&o->in[i]);
    at[i] = &in[i];
  }
  struct kernel_ctx ctx = {.kernel = o->inner, .state = o->inner->state, .in = at, .out = &out};
  shoal_status s = o->inner->def->run(&ctx);
  if (!s && !tensor_same_shape(&out, &o->out)) s = INTERNAL("the shape of %s was foreseen wrongly", o->inner->name);
  if (!s && out.n) memcpy(o->out.data, out.data, tensor_bytes(&out));
  tensor_release(&out);
  for (int i = 0; i < o->n_in; i++) tensor_release(&in[i]);
  return ctx_error(&ctx, s);
}

static void run(struct soft_work *w) {
  struct soft_op *o = (struct soft_op *)w;
  shoal_status s = compute(o);
  if (s && !o->late) LOGE("in a replay: %s", shoal_status_message(s));
  if (s) step_fail_late(o->late, s);
}

static struct tensor raw(const struct tensor *t) {
  struct tensor r = *t;
  r.buffer = NULL;
  r.data = soft_data(t);
  return r;
}

static shoal_status queue(struct kernel_ctx *ctx, const struct shape *shape) {
  struct tensor *y;
  TRY(ctx_out(ctx, 0, shape, &y));
  struct soft_op *o = mem_zalloc(1, sizeof *o);
  o->head.run = run;
  o->inner = borrowed(ctx);
  o->late = soft_captures(ctx->kernel->device) ? NULL : ctx->step->late;
  o->n_in = ctx->kernel->n_in;
  for (int i = 0; i < o->n_in; i++) {
    soft_work_reads(&o->head, ctx_in(ctx, i));
    o->in[i] = raw(ctx_in(ctx, i));
  }
  soft_work_writes(&o->head, y);
  o->out = raw(y);
  soft_queue(ctx->kernel->device, &o->head);
  return NULL;
}

static shoal_status like_run(struct kernel_ctx *ctx) {
  struct shape shape = tensor_shape(ctx_in(ctx, 0));
  return queue(ctx, &shape);
}

static shoal_status spread_run(struct kernel_ctx *ctx) {
  struct broadcast b;
  TRY(broadcast_plan(&b, ctx->in, ctx->kernel->n_in));
  return queue(ctx, &b.out);
}

struct soft_product {
  struct borrowing inner; /* first: as of all that borrow */
  bool trans_a, trans_b;
};

static shoal_status product_init(struct kernel_init *ki, void *state) {
  struct soft_product *st = state;
  TRY(node_get_bool(ki->node, "transpose_a", &st->trans_a));
  TRY(node_get_bool(ki->node, "transpose_b", &st->trans_b));
  return soft_borrowing_init(ki, state);
}

static shoal_status product_run(struct kernel_ctx *ctx) {
  const struct soft_product *st = ctx->state;
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1);
  if (a->rank != 2 || b->rank != 2) return INVALID("MatMul takes matrices");
  struct shape shape = {.rank = 2, .dims = {a->dims[st->trans_a], b->dims[!st->trans_b]}};
  return queue(ctx, &shape);
}

/* ---- variables ---- */

struct soft_update {
  struct soft_work head;
  float *value;
  const float *by, *scale; /* scale NULL: by is added; else scale * by is taken away */
  int64_t n;
};

static void update(struct soft_work *w) {
  const struct soft_update *u = (struct soft_update *)w;
  for (int64_t i = 0; i < u->n; i++) u->value[i] += u->scale ? -*u->scale * u->by[i] : u->by[i];
}

static shoal_status update_locked(struct kernel_ctx *ctx, struct variable *v) {
  const struct tensor *scale = ctx->kernel->n_in == 3 ? ctx_in(ctx, 1) : NULL, *by = ctx_in(ctx, scale ? 2 : 1);
  struct device *d = ctx->kernel->device;
  if (!tensor_valid(&v->value) || !tensor_same_shape(&v->value, by)) return INVALID("%s has another shape", v->name);
  TRY(variable_make_writable_in(v, ctx->kernel->device));
  struct soft_update *u = mem_zalloc(1, sizeof *u);
  *u = (struct soft_update){.head.run = update, .value = soft_data(&v->value), .by = soft_data(by), .n = by->n};
  if (scale) {
    u->scale = soft_data(scale);
    soft_work_reads(&u->head, scale);
  }
  soft_work_reads(&u->head, by);
  soft_work_writes(&u->head, &v->value);
  soft_queue(d, &u->head);
  return NULL;
}

shoal_status soft_change(struct kernel_ctx *ctx, shoal_status (*change)(struct kernel_ctx *ctx, struct variable *v)) {
  struct state_vars vars;
  TRY(state_vars_get(ctx, 1, NULL, &vars));
  state_vars_lock(&vars);
  shoal_status s = change(ctx, vars.v[0]);
  state_vars_release(&vars);
  return s;
}

static shoal_status update_run_(struct kernel_ctx *ctx) { return soft_change(ctx, update_locked); }

/* ---- the table ---- */

#define QUEUED(id, ...) \
  static const struct kernel_def id[] = {{.device = "GPU", .types = DT(FLOAT32), __VA_ARGS__}, {0}}
#define BORROWED(init_) \
  .type_attr = "T", .state_size = sizeof(struct soft_product), .init = init_, .release = borrowing_release
QUEUED(like, BORROWED(soft_borrowing_init), .run = like_run);
QUEUED(spread, BORROWED(soft_borrowing_init), .run = spread_run);
QUEUED(product, BORROWED(product_init), .run = product_run);
QUEUED(descent, .type_attr = "T", .flags = KERNEL_REPLAYS, .run = update_run_);
QUEUED(add, .type_attr = "dtype", .flags = KERNEL_REPLAYS, .run = update_run_);

static const struct device_kernels queued[] = {{"Relu", like},
                                               {"Tanh", like},
                                               {"Neg", like},
                                               {"Square", like},
                                               {"AddV2", spread},
                                               {"Sub", spread},
                                               {"Mul", spread},
                                               {"MatMul", product},
                                               {"ResourceApplyGradientDescent", descent},
                                               {"AssignAddVariableOp", add},
                                               {"ResourceGather", soft_gather},
                                               {"ResourceScatterAdd", soft_scatter_add},
                                               {0}};

const struct kernel_def *soft_queued(const struct op *op) {
  if (!getenv("SHOAL_SOFT_QUEUES")) return NULL;
  for (const struct device_kernels *k = queued; k->op; k++)
    if (!strcmp(k->op, op->name)) return k->kernels;
  return NULL;
}
