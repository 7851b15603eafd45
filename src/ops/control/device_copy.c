/* _ToHost and _ToDevice: the edges of a device's memory, put in by runtime/memory_edges.c. The device does the work and
 * says when it is done. */
#include "runtime/kernel.h"

static void copied(void *arg, shoal_status s) { ctx_done(arg, s); }

static void to_host_start(struct kernel_ctx *ctx) {
  struct device *d = ctx->kernel->device;
  d->type->ops->to_host(d, ctx_in(ctx, 0), &ctx->out[0], copied, ctx);
}

static void to_device_start(struct kernel_ctx *ctx) {
  struct device *d = ctx->kernel->device;
  d->type->ops->from_host(d, ctx_in(ctx, 0), &ctx->out[0], copied, ctx);
}

static const struct kernel_def to_host_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .start = to_host_start, .host_out = 1}, {0}};
static const struct kernel_def to_device_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .start = to_device_start, .host_in = 1}, {0}};

static const struct op_row rows[] = {
    {.name = "_ToHost", .in = "input: T", .out = "output: T", .attrs = "T: type", .kernels = to_host_kernels},
    {.name = "_ToDevice", .in = "input: T", .out = "output: T", .attrs = "T: type", .kernels = to_device_kernels},
};
OP_FAMILY(device_copy, rows);
