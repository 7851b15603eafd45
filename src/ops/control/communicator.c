/* ops/control: how a graph runs and talks: v1 control flow, function calls, sends, collectives, prints, watches. */

/* Groups that are formed while a graph runs: communicators, and which of several groups a device is in. */
#include "ops/control/communicator.h"

#include <stdio.h>
#include <stdlib.h>

#include "ops/array/array_util.h"

static void free_communicator(struct resource *r) { free(r); }

const struct resource_type communicator_type = {"communicator", "collective_op_group", free_communicator};

static shoal_status read_scalar(const struct kernel_ctx *ctx, int i, const char *name, int *out) {
  const struct tensor *t = ctx_in(ctx, i);
  if (t->rank)
    return INVALID("Unexpected dimensions on input %s. It should be a scalar, got tensor with shape %s", name,
                   tensor_shape_str(t));
  *out = T_DATA(t, const int32_t)[0];
  return NULL;
}

/* ---- CollectiveInitializeCommunicator ---- */

struct beginning {
  struct collective_member member;
  struct kernel_ctx *ctx;
};

struct communicator_state {
  float timeout_s;
};

static shoal_status init_communicator(struct kernel_init *ki, void *state) {
  struct communicator_state *st = state;
  return node_get_float(ki->node, "timeout_seconds", &st->timeout_s);
}

/* Keeps it under the group's key and its own rank, and hands its handle out. */
static shoal_status keep(struct kernel_ctx *ctx, const struct collective_member *m) {
  static const char container[] = "collective_op_group";
  char name[32];
  struct tensor handle;
  struct resource_mgr *all = ctx->kernel->resources;
  struct communicator *c = mem_zalloc(1, sizeof *c);
  resource_init(&c->head, &communicator_type);
  c->group_key = m->group_key;
  c->group_size = m->group_size;
  c->rank = m->rank;
  c->timeout_s = (float)m->timeout_s;
  snprintf(name, sizeof name, "%d:r%04d", m->group_key, m->rank);
  shoal_status s = resource_add(all, container, name, &c->head);
  if (s) {
    resource_unref(&c->head);
    return s;
  }
  TRY(resource_handle_tensor(all, ctx->kernel->device->name, container, name, &communicator_type, &handle));
  ctx_set(ctx, 0, &handle);
  return NULL;
}

static void group_formed(struct collective_member *m, shoal_status s, struct tensor *result) {
  struct kernel_ctx *ctx = ((struct beginning *)m)->ctx;
  if (!s) s = keep(ctx, m);
  free(m);
  ctx_done(ctx, s);
}

static shoal_status fill(struct kernel_ctx *ctx, struct collective_member *m) {
  const struct communicator_state *st = ctx->state;
  *m = (struct collective_member){.name = ctx->kernel->name,
                                  .device = ctx->kernel->device,
                                  .kind = COLLECTIVE_JOIN,
                                  .instance_key = -1,
                                  .frame = ctx->frame,
                                  .iter = ctx->iter,
                                  .timeout_s = st->timeout_s,
                                  .cancel = ctx->step->cancel,
                                  .done = group_formed};
  TRY(read_scalar(ctx, 2, "group_size", &m->group_size));
  TRY(read_scalar(ctx, 0, "group_key", &m->group_key));
  TRY(read_scalar(ctx, 1, "rank", &m->rank));
  if (m->group_size <= 0) return INVALID("group_size must be positive integer but got %d", m->group_size);
  if (m->rank < 0) return INVALID("rank must be non-negative integer but got %d", m->rank);
  if (m->rank >= m->group_size)
    return INVALID("rank must be less than group size but got %d >= %d", m->rank, m->group_size);
  return NULL;
}

static void start_communicator(struct kernel_ctx *ctx) {
  struct beginning *b = mem_zalloc(1, sizeof *b);
  b->ctx = ctx;
  shoal_status s = fill(ctx, &b->member);
  if (s) group_formed(&b->member, s, NULL);
  else collective_meet(ctx->step, &b->member);
}

/* ---- CollectiveAssignGroupV2 ---- */

/* The row of the matrix that the device is in; groups have neighbouring keys. */
static shoal_status find_row(const struct tensor *groups, int device, int base_key, int *key) {
  const int32_t *at = T_DATA(groups, const int32_t);
  for (int64_t row = 0; row < groups->dims[0]; row++) {
    *key = (int)((uint32_t)base_key + (uint32_t)row);
    if (!*key)
      return INVALID("Using the reserved group_key = 0 is not allowed: group_id = %" PRId64 ", base_key = %d", row,
                     base_key);
    for (int64_t k = 0; k < groups->dims[1]; k++, at++) {
      if (*at < 0 || *at >= groups->n)
        return INVALID("Not all items in group_assignment %s is within [0, number of devices)",
                       tensor_shape_str(groups));
      if (*at == device) return NULL;
    }
  }
  return INVALID("device_index %d is not found in group_assignment %s", device, tensor_shape_str(groups));
}

static shoal_status assign_group(struct kernel_ctx *ctx) {
  const struct tensor *groups = ctx_in(ctx, 0);
  struct tensor *size, *key;
  int found, index, base;
  for (int i = 1; i < 3; i++)
    if (ctx_in(ctx, i)->rank)
      return INVALID("%s must be a scalar, but received tensor of shape: %s", i == 1 ? "device_index" : "base_key",
                     tensor_shape_str(ctx_in(ctx, i)));
  if (groups->rank != 2)
    return INVALID("group_assignment must be a 2-d Tensor, but received tensor of shape: %s", tensor_shape_str(groups));
  index = T_DATA(ctx_in(ctx, 1), const int32_t)[0];
  base = T_DATA(ctx_in(ctx, 2), const int32_t)[0];
  TRY(find_row(groups, index, base, &found));
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &size));
  TRY(ctx_out_dims(ctx, 1, 0, NULL, &key));
  T_DATA(size, int32_t)[0] = (int32_t)groups->dims[1];
  T_DATA(key, int32_t)[0] = found;
  return NULL;
}

static const struct kernel_def communicators[] = {{.device = "CPU",
                                                   .flags = KERNEL_ANYWHERE,
                                                   .state_size = sizeof(struct communicator_state),
                                                   .init = init_communicator,
                                                   .start = start_communicator,
                                                   .host_in = UINT32_MAX,
                                                   .host_out = UINT32_MAX},
                                                  {0}};

static const struct kernel_def assigned[] = {
    {.device = "CPU", .flags = KERNEL_ANYWHERE, .run = assign_group, .host_in = UINT32_MAX, .host_out = UINT32_MAX},
    {0}};

static const struct op_row rows[] = {
    {"CollectiveInitializeCommunicator", "group_key: int32, rank: int32, group_size: int32", "communicator: resource",
     "communication_hint: string = 'auto'; timeout_seconds: float = 0", OP_STATEFUL, shape_scalar_out, NULL,
     communicators},
    {"CollectiveAssignGroupV2", "group_assignment: int32, device_index: int32, base_key: int32",
     "group_size: int32, group_key: int32", NULL, OP_STATEFUL, shape_scalar_out, NULL, assigned},
};
OP_FAMILY(communicator, rows);
