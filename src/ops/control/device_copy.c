/* _ToHost and _ToDevice: the edges of a device's memory, put in by runtime/memory_edges.c. The device does the work.
 * What it gets is there for all that it does later, so nobody waits for that; what the host gets, the host waits for.
 *
 * A constant is copied at its first use and kept by the kernel: every step that follows, and every iteration, shares
 * the copy. */
#include "runtime/kernel.h"

static void copied(void *arg, shoal_status s) { ctx_done(arg, s); }

static void to_host_start(struct kernel_ctx *ctx) {
  struct device *d = ctx->kernel->device;
  if (d->type->host) ctx_done(ctx, ctx_forward(ctx, 0, 0, NULL)); /* a graph may have any op anywhere */
  else d->type->ops->to_host(d, ctx_in(ctx, 0), &ctx->out[0], copied, ctx);
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
    {.name = "_ToDevice",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: type; constant: bool = false",
     .kernels = to_device_kernels},
};
OP_FAMILY(device_copy, rows);
