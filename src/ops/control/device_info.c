/* Questions about the device a node is on: DeviceIndex, which of a list of device types it is; IsTensorFloat32Enabled,
 * TensorFlow's switch for GPUs, on unless a program turned it off in its own process; SyncDevice, which waits for what
 * a device was given to do: here nothing is ever left to wait for. */
#include <string.h>

#include "graph/shape_fn.h"
#include "runtime/kernel.h"

static shoal_status init_index(struct kernel_init *ki, void *state) {
  const struct attr *names;
  TRY(node_get_list(ki->node, "device_names", ATTR_STRING, &names));
  int32_t i = 0, n = (int32_t)names->list.n;
  while (i < n && strcmp(names->list.at[i].s.data, ki->device->type->name) != 0) i++;
  *(int32_t *)state = i; /* one past the last when it is none of them */
  return NULL;
}

static shoal_status run_index(struct kernel_ctx *ctx) {
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  *T_DATA(out, int32_t) = *(const int32_t *)ctx->state;
  return NULL;
}

static shoal_status run_enabled(struct kernel_ctx *ctx) {
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  *T_DATA(out, bool) = true;
  return NULL;
}

static shoal_status run_sync(struct kernel_ctx *ctx) {
  (void)ctx;
  return NULL;
}

static const struct op_row rows[] = {
    {.name = "DeviceIndex",
     .out = "index: int32",
     .attrs = "device_names: list(string)",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels =
         (const struct kernel_def[]){
             {.device = "CPU", .state_size = sizeof(int32_t), .init = init_index, .run = run_index}, {0}}},
    {.name = "IsTensorFloat32Enabled",
     .out = "enabled: bool",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = (const struct kernel_def[]){{.device = "CPU", .run = run_enabled}, {0}}},
    {.name = "SyncDevice",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_no_outputs,
     .kernels = (const struct kernel_def[]){{.device = "CPU", .run = run_sync}, {0}}},
};
OP_FAMILY(device_info, rows);
