/* _ToHost and _ToDevice: the edges of a device's memory, put in by runtime/memory_edges.c. The device does the work.
 * What it gets is there for all that it does later, so nobody waits for that; what the host gets, the host waits for.
 * What only the end of a step reads is an exception (_ToHostAtEnd): that waits for the device anyway.
 *
 * A variant is in host memory itself, the tensors in it need not be (TensorList): where one leaves its device, those
 * are copied, into one like it.
 *
 * A constant is copied at its first use and kept by the kernel: every step that follows, and every iteration, shares
 * the copy. */
#include <stdlib.h>

#include "base/join.h"
#include "base/mem.h"
#include "runtime/kernel.h"

static void copied(void *arg, shoal_status s) { ctx_done(arg, s); }

/* ---- variants ---- */

static bool is_elsewhere(const struct tensor *t) { return tensor_valid(t) && t->buffer->device; }

/* Does it have tensors in a device's memory? */
static bool has_any(struct variant *v) {
  size_t n = 0;
  struct tensor *t = v && v->type->tensors ? v->type->tensors(v, &n) : NULL;
  while (n && !is_elsewhere(&t[n - 1])) n--;
  return n > 0;
}

struct leaving { /* a variant on its way out; those that do not have tensors there are handed on */
  struct kernel_ctx *ctx;
  struct join join;
};

static void left(void *arg, shoal_status s) {
  struct leaving *l = arg;
  struct kernel_ctx *ctx = l->ctx;
  free(l);
  ctx_done(ctx, s);
}

/* The copy has references to what is there; to_host puts values in their place, one part of the join each. */
static void fetch_tensors(struct leaving *l, const struct variant *from, struct variant *to) {
  size_t n;
  struct tensor *own = to->type->tensors(to, &n), *theirs = from->type->tensors((struct variant *)from, &n);
  for (size_t i = 0; i < n; i++) {
    if (!is_elsewhere(&own[i])) continue;
    struct device *d = own[i].buffer->device;
    tensor_release(&own[i]);
    own[i] = tensor_none();
    join_enter(&l->join);
    d->type->ops->to_host(d, &theirs[i], &own[i], join_part, &l->join);
  }
}

static void variants_to_host(struct kernel_ctx *ctx) {
  const struct tensor *in = ctx_in(ctx, 0);
  struct variant *const *from = T_DATA(in, struct variant *);
  bool any = false;
  for (int64_t i = 0; i < in->n && !any; i++) any = has_any(from[i]);
  shoal_status s = any ? tensor_new_like(&ctx->out[0], SHOAL_VARIANT, in) : ctx_forward(ctx, 0, 0, NULL);
  if (s || !any) {
    ctx_done(ctx, s);
    return;
  }
  struct variant **to = T_DATA(&ctx->out[0], struct variant *);
  struct leaving *l = mem_alloc(sizeof *l);
  l->ctx = ctx;
  join_init(&l->join, 1, left, l);
  for (int64_t i = 0; i < in->n; i++) {
    bool copy = has_any(from[i]);
    to[i] = copy ? from[i]->type->copy(from[i]) : variant_ref(from[i]);
    if (copy) fetch_tensors(l, from[i], to[i]);
  }
  join_part(&l->join, NULL);
}

/* ---- values ---- */

static void to_host_start(struct kernel_ctx *ctx) {
  struct device *d = ctx->kernel->device;
  if (d->type->host) ctx_done(ctx, ctx_forward(ctx, 0, 0, NULL)); /* a graph may have any op anywhere */
  else if (ctx_in_type(ctx, 0) == SHOAL_VARIANT) variants_to_host(ctx);
  else d->type->ops->to_host(d, ctx_in(ctx, 0), &ctx->out[0], copied, ctx);
}

static shoal_status to_host_at_end_run(struct kernel_ctx *ctx) {
  struct device *d = ctx->kernel->device;
  if (d->type->host) return ctx_forward(ctx, 0, 0, NULL);
  if (!d->type->ops->to_host_at_end || !ctx->step->waits || ctx_in_type(ctx, 0) == SHOAL_VARIANT)
    return INTERNAL("_ToHostAtEnd is not for this step");
  return d->type->ops->to_host_at_end(d, ctx_in(ctx, 0), &ctx->out[0]);
}

struct to_device {
  bool constant;
  pthread_mutex_t lock;
  struct tensor kept; /* lock: of a constant */
};

static shoal_status to_device_init(struct kernel_init *ki, void *state) {
  struct to_device *st = state;
  pthread_mutex_init(&st->lock, NULL);
  return node_get_bool(ki->node, "constant", &st->constant);
}

static void to_device_release(void *state) {
  struct to_device *st = state;
  tensor_release(&st->kept);
  pthread_mutex_destroy(&st->lock);
}

static shoal_status to_device_run(struct kernel_ctx *ctx) {
  struct to_device *st = ctx->state;
  struct device *d = ctx->kernel->device;
  if (d->type->host) return ctx_forward(ctx, 0, 0, NULL);
  if (!st->constant) return d->type->ops->from_host(d, ctx->kernel->name, ctx_in(ctx, 0), &ctx->out[0]);
  pthread_mutex_lock(&st->lock);
  shoal_status s =
      tensor_valid(&st->kept) ? NULL : d->type->ops->from_host(d, ctx->kernel->name, ctx_in(ctx, 0), &st->kept);
  if (!s) tensor_ref(&ctx->out[0], &st->kept);
  pthread_mutex_unlock(&st->lock);
  return s;
}

static const struct kernel_def to_host_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .start = to_host_start, .host_out = 1}, {0}};
static const struct kernel_def to_host_at_end_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = to_host_at_end_run, .host_out = 1}, {0}};
static const struct kernel_def to_device_kernels[] = {{.device = "CPU",
                                                       .flags = KERNEL_CHEAP | KERNEL_ANYWHERE,
                                                       .state_size = sizeof(struct to_device),
                                                       .init = to_device_init,
                                                       .release = to_device_release,
                                                       .run = to_device_run,
                                                       .host_in = 1},
                                                      {0}};

static const struct op_row rows[] = {
    {.name = "_ToHost", .in = "input: T", .out = "output: T", .attrs = "T: type", .kernels = to_host_kernels},
    {.name = "_ToHostAtEnd",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: type",
     .kernels = to_host_at_end_kernels},
    {.name = "_ToDevice",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: type; constant: bool = false",
     .kernels = to_device_kernels},
};
OP_FAMILY(device_copy, rows);
