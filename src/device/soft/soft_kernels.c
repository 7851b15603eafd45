/* Kernels of the soft device.
 *
 * Nearly all are borrowed: the CPU's kernel runs on a stream of its kind, over memory opened for it, and what it made
 * is put away again before anyone is told. Its shapes are known only then, so these are kernels with start(), as
 * those of a card are that must look at a result (Where, Unique). Ops of the table are the other kind: run() makes the
 * output, queues the work and returns.
 *
 * A variable's value is the device's too: a borrowed kernel is given stand-ins for those it reaches (soft_variables.c).
 * Which ops are borrowed: those without state on plain numbers, and of the others those that say so (`borrowable`):
 * variables, their updates and random numbers. What waits, reads files or holds host values stays the CPU's. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/soft/soft.h"
#include "device/soft/soft_borrow.h"
#include "device/soft/soft_variables.h"
#include "runtime/kernel.h"

/* ---- borrowed kernels ---- */

static struct soft_device *soft_of(const struct kernel_ctx *ctx) { return ctx->kernel->device->impl; }

shoal_status soft_borrowing_init(struct kernel_init *ki, void *state) {
  return borrowing_init(ki, &((struct soft_device *)ki->device->impl)->host, state);
}

struct soft_launch {
  struct kernel_ctx *ctx;
  shoal_status status;
};

static void tell(void *arg) {
  struct soft_launch l = *(struct soft_launch *)arg;
  free(arg);
  ctx_done(l.ctx, l.status);
}

static void run(void *arg) {
  struct soft_launch *l = arg;
  struct kernel_ctx *ctx = l->ctx;
  struct soft_variables vars;
  int n_in = ctx->kernel->n_in;
  struct tensor *opened = mem_zalloc((size_t)n_in, sizeof *opened);
  const struct tensor **in = mem_zalloc((size_t)n_in, sizeof *in);
  for (int i = 0; i < n_in; i++) {
    soft_open(ctx->in[i], &opened[i]);
    in[i] = &opened[i];
  }
  l->status = soft_variables_open(&vars, ctx, opened);
  if (!l->status) l->status = borrowing_run(ctx, in, vars.refs);
  for (int i = 0; i < n_in; i++) tensor_release(&opened[i]);
  for (int i = 0; i < ctx->kernel->n_out && !l->status; i++)
    if (!ctx->kernel->host_out[i]) l->status = soft_close(ctx->kernel->device, ctx->kernel->name, &ctx->out[i]);
  shoal_status put_away = soft_variables_close(&vars, ctx);
  if (put_away) status_merge(&l->status, put_away);
  free(in);
  free(opened);
  pool_submit(soft_of(ctx)->events, tell, l);
}

static void borrowed_start(struct kernel_ctx *ctx) {
  struct soft_launch *l = mem_zalloc(1, sizeof *l);
  l->ctx = ctx;
  pool_submit(soft_of(ctx)->borrowed, run, l);
}

/* ---- which ---- */

static bool may_borrow(const struct op *op, const struct kernel_def *k) {
  if (!k->run || k->flags & KERNEL_ANYWHERE || op->flags & OP_LOCAL) return false;
  for (int i = 0; i < op->n_attrs; i++)
    if (op->attrs[i].kind == ATTR_FUNC || op->attrs[i].of == ATTR_FUNC) return false;
  if (k->borrowable) return true;
  if (op->flags & OP_STATEFUL) return false;
  for (int i = 0; i < op->n_in + op->n_out; i++) {
    const struct op_arg *a = i < op->n_in ? &op->in[i] : &op->out[i - op->n_in];
    if (a->is_ref || (a->type && !dtype_plain(a->type))) return false;
  }
  return true;
}

static bool borrow_one(const struct op *op, const struct kernel_def *from, struct kernel_def *out) {
  struct kernel_def like = {.device = "GPU",
                            .state_size = sizeof(struct borrowing),
                            .init = soft_borrowing_init,
                            .release = borrowing_release,
                            .start = borrowed_start,
                            .host_in = from->host_in,
                            .host_out = from->host_out};
  return may_borrow(op, from) && borrow_kernel(op, from, !from->borrowable, &like, out);
}

static struct borrowed_lists made = BORROWED_LISTS(borrow_one);

const struct kernel_def *soft_borrow(const struct op *op) {
  const struct kernel_def *own = soft_queued(op);
  return own ? own : borrow_all(&made, op);
}

/* ---- kernels of its own: the work is queued, and nobody is told ---- */

static shoal_status zeros_run(struct kernel_ctx *ctx) {
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  soft_zero(ctx->kernel->device, y);
  return NULL;
}

static const struct kernel_def zeros_kernels[] = {
    {.device = "GPU", .type_attr = "T", .types = DT_PLAIN, .run = zeros_run}, {0}};

/* CheckNumerics passes its input on before it has been looked at: the step learns at its end. */
struct soft_check {
  const struct kernel *kernel;
  shoal_status _Atomic *late;
  struct tensor t; /* where it was: no reference */
  struct soft_turn turn;
};

static void check(void *arg) {
  struct soft_check *c = arg;
  struct borrowing *b = c->kernel->state;
  struct tensor out = tensor_none();
  const struct tensor *in[] = {&c->t};
  soft_turn_begin(&c->turn);
  struct kernel_ctx inner = {.kernel = &b->inner, .state = b->inner.state, .in = in, .out = &out};
  shoal_status s = ctx_error(&inner, b->inner.def->run(&inner));
  if (s) step_fail_late(c->late, s);
  tensor_release(&out);
  soft_turn_end(&c->turn);
  free(c);
}

static shoal_status check_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  struct soft_check *c = mem_zalloc(1, sizeof *c);
  *c = (struct soft_check){.kernel = ctx->kernel, .late = ctx->step->late, .turn = soft_read(x)};
  tensor_move(&c->t, x);
  c->t.buffer = NULL;
  c->t.data = soft_data(x);
  pool_submit(soft_of(ctx)->compute, check, c);
  return ctx_forward(ctx, 0, 0, NULL);
}

static const struct kernel_def check_kernels[] = {{.device = "GPU",
                                                   .type_attr = "T",
                                                   .types = DT_FLOATING,
                                                   .flags = KERNEL_OF_STEP,
                                                   .state_size = sizeof(struct borrowing),
                                                   .init = soft_borrowing_init,
                                                   .release = borrowing_release,
                                                   .run = check_run},
                                                  {0}};

const struct device_kernels soft_kernels[] = {
    {"CheckNumerics", check_kernels}, {"CheckNumericsV2", check_kernels}, {"ZerosLike", zeros_kernels}, {0}};
