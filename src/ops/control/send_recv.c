/* The ends of a graph: _Arg and _Retval hand values in and out of a step, _Send and _Recv meet in the step's
 * rendezvous. _HostSend and _HostRecv are the same for values in host memory. What goes in and out is in host memory on
 * every device, but for _DeviceArg and _DeviceRetval, the ends of functions, whose callers have values of the device,
 * and _DeviceSend and _DeviceRecv, between devices of one type in one task. A graph may have any of them anywhere, so
 * the memory of what arrives is looked at.
 *
 * A key is "SRC;INCARNATION;DST;EDGE;FRAME:ITER". All but the last part is made when the kernel is; outside of
 * loops the whole key and its hash are, so that a step formats nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/array/array_util.h"
#include "runtime/rendezvous.h"

/* ---- _Arg, _Retval ---- */

struct index_state {
  int64_t index;
};

static shoal_status index_init(struct kernel_init *ki, void *state) {
  return node_get_int(ki->node, "index", &((struct index_state *)state)->index);
}

static shoal_status arg_run(struct kernel_ctx *ctx) {
  int64_t i = ((struct index_state *)ctx->state)->index;
  if (i < 0 || i >= ctx->step->n_args)
    return INVALID("There is no argument %" PRId64 ": the step has %d", i, ctx->step->n_args);
  const struct tensor *a = &ctx->step->args[i];
  if (!tensor_valid(a)) return INVALID("Argument %" PRId64 " has no value", i);
  if (a->dtype != ctx_out_type(ctx, 0))
    return INTERNAL("Output 0 of type %s does not match declared output type %s", dtype_tf_name(a->dtype),
                    dtype_tf_name(ctx_out_type(ctx, 0)));
  if (a->buffer->device != ctx_out_memory(ctx, 0))
    return INTERNAL("Argument %" PRId64 " is in other memory than this op takes it from", i);
  struct tensor t;
  tensor_ref(&t, a);
  ctx_set(ctx, 0, &t);
  return NULL;
}

/* A dead value leaves its place empty: the caller says that there is none. */
static shoal_status retval_run(struct kernel_ctx *ctx) {
  int64_t i = ((struct index_state *)ctx->state)->index;
  if (i < 0 || i >= ctx->step->n_rets)
    return INVALID("There is no result %" PRId64 ": the step has %d", i, ctx->step->n_rets);
  if (ctx->is_dead) return NULL;
  if (!ctx->step->depth && ctx_in(ctx, 0)->buffer->device)
    return INTERNAL("Result %" PRId64 " of a step would be in the memory of a device", i);
  tensor_release(&ctx->step->rets[i]);
  tensor_ref(&ctx->step->rets[i], ctx_in(ctx, 0));
  return NULL;
}

#define ARG_KERNELS(host)                      \
  (const struct kernel_def[]) {                \
    {.device = "CPU",                          \
     .flags = KERNEL_CHEAP | KERNEL_ANYWHERE,  \
     .state_size = sizeof(struct index_state), \
     .init = index_init,                       \
     .run = arg_run,                           \
     .host_out = host},                        \
        {0},                                   \
  }
#define RETVAL_KERNELS(host)                                   \
  (const struct kernel_def[]) {                                \
    {.device = "CPU",                                          \
     .flags = KERNEL_CHEAP | KERNEL_DEAD_OK | KERNEL_ANYWHERE, \
     .state_size = sizeof(struct index_state),                 \
     .init = index_init,                                       \
     .run = retval_run,                                        \
     .host_in = host},                                         \
        {0},                                                   \
  }

/* ---- keys ---- */

struct edge_state {
  char *key;       /* whole, for 0:0 */
  size_t prefix_n; /* up to and with the last ';' */
  uint64_t hash;
};

static shoal_status edge_init(struct kernel_init *ki, void *state) {
  struct edge_state *st = state;
  const char *src, *dst, *name;
  int64_t incarnation;
  TRY(node_get_string(ki->node, "send_device", &src));
  TRY(node_get_string(ki->node, "recv_device", &dst));
  TRY(node_get_string(ki->node, "tensor_name", &name));
  TRY(node_get_int(ki->node, "send_device_incarnation", &incarnation));
  st->key = rendezvous_key_make(src, (uint64_t)incarnation, dst, name, 0, 0);
  st->prefix_n = strlen(st->key) - strlen("0:0");
  st->hash = rendezvous_hash(st->key);
  return NULL;
}

static void edge_release(void *state) { free(((struct edge_state *)state)->key); }

/* The key for this node's frame and iteration: the one made before, or a new one in *made (to be freed). */
static const char *edge_key(const struct kernel_ctx *ctx, uint64_t *hash, char **made) {
  const struct edge_state *st = ctx->state;
  *made = NULL;
  *hash = st->hash;
  if (LIKELY(ctx->frame == 0 && ctx->iter == 0)) return st->key;
  char *key = mem_alloc(st->prefix_n + 48);
  memcpy(key, st->key, st->prefix_n);
  snprintf(key + st->prefix_n, 48, "%" PRIu64 ":%" PRIu64, ctx->frame, ctx->iter);
  *hash = rendezvous_hash(key);
  return *made = key;
}

/* ---- _Send, _Recv ---- */

static shoal_status send_run(struct kernel_ctx *ctx) {
  if (!ctx->step->rendezvous) return INTERNAL("Op _Send needs a rendezvous, but the step has none");
  uint64_t hash;
  char *made;
  const char *key = edge_key(ctx, &hash, &made);
  struct tensor t = tensor_none();
  if (!ctx->is_dead) tensor_ref(&t, ctx_in(ctx, 0));
  shoal_status s = rendezvous_send(ctx->step->rendezvous, key, hash, &t, ctx->is_dead);
  free(made);
  return s;
}

/* What was sent from another device of this task is copied by the devices. What another task sent arrives in the
 * memory it is for where both are on one host, else in host memory. */
static shoal_status take_value(struct kernel_ctx *ctx, struct tensor *value) {
  struct device *d = ctx->kernel->device;
  const struct device *from = value->buffer->device, *to = ctx_out_memory(ctx, 0);
  if (from == to) {
    ctx_set(ctx, 0, value);
    return NULL;
  }
  shoal_status s;
  if (from && to && from->type == to->type && d->type->ops->from_peer)
    s = d->type->ops->from_peer(d, ctx->kernel->name, value, &ctx->out[0]);
  else if (!from && to == d) s = d->type->ops->from_host(d, ctx->kernel->name, value, &ctx->out[0]);
  else s = INTERNAL("A value was sent from other memory than it is received in");
  tensor_release(value);
  return s;
}

static void recv_done(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  struct kernel_ctx *ctx = arg;
  if (!s) {
    if (is_dead) {
      ctx->is_dead = true;
      if (value) tensor_release(value);
    } else if (value->dtype != ctx_out_type(ctx, 0)) {
      s = INTERNAL("Output 0 of type %s does not match declared output type %s for node %s",
                   dtype_tf_name(value->dtype), dtype_tf_name(ctx_out_type(ctx, 0)), ctx->kernel->name);
      tensor_release(value);
    } else {
      s = take_value(ctx, value);
    }
  }
  ctx_done(ctx, s);
}

static void recv_start(struct kernel_ctx *ctx) {
  if (!ctx->step->rendezvous) {
    ctx_done(ctx, INTERNAL("Op _Recv needs a rendezvous, but the step has none"));
    return;
  }
  uint64_t hash;
  char *made;
  const char *key = edge_key(ctx, &hash, &made);
  struct device *d = ctx->kernel->device;
  if (ctx_out_memory(ctx, 0))
    rendezvous_recv_into(ctx->step->rendezvous, key, hash, d, ctx->step->cancel, recv_done, ctx);
  else rendezvous_recv(ctx->step->rendezvous, key, hash, ctx->step->cancel, recv_done, ctx);
  free(made);
}

#define SEND_KERNELS(host)                                     \
  (const struct kernel_def[]) {                                \
    {.device = "CPU",                                          \
     .flags = KERNEL_CHEAP | KERNEL_DEAD_OK | KERNEL_ANYWHERE, \
     .state_size = sizeof(struct edge_state),                  \
     .init = edge_init,                                        \
     .release = edge_release,                                  \
     .run = send_run,                                          \
     .host_in = host},                                         \
        {0},                                                   \
  }
#define RECV_KERNELS(host)                    \
  (const struct kernel_def[]) {               \
    {.device = "CPU",                         \
     .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, \
     .state_size = sizeof(struct edge_state), \
     .init = edge_init,                       \
     .release = edge_release,                 \
     .start = recv_start,                     \
     .host_out = host},                       \
        {0},                                  \
  }
#define EDGE_ATTRS                                                                                \
  "tensor_name: string; send_device: string; send_device_incarnation: int; recv_device: string; " \
  "client_terminated: bool = false"

static const struct op_row rows[] = {
    {.name = "_Arg",
     .out = "output: T",
     .attrs = "T: type; index: int >= 0",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = ARG_KERNELS(1)},
    {.name = "_Retval",
     .in = "input: T",
     .attrs = "T: type; index: int >= 0",
     .flags = OP_STATEFUL,
     .kernels = RETVAL_KERNELS(1)},
    {.name = "_DeviceArg",
     .out = "output: T",
     .attrs = "T: type; index: int >= 0",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = ARG_KERNELS(0)},
    {.name = "_DeviceRetval",
     .in = "input: T",
     .attrs = "T: type; index: int >= 0",
     .flags = OP_STATEFUL,
     .kernels = RETVAL_KERNELS(0)},
    {.name = "_Send",
     .in = "tensor: T",
     .attrs = "T: type; " EDGE_ATTRS,
     .flags = OP_STATEFUL,
     .kernels = SEND_KERNELS(1)},
    {.name = "_Recv",
     .out = "tensor: tensor_type",
     .attrs = "tensor_type: type; " EDGE_ATTRS,
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = RECV_KERNELS(1)},
    {.name = "_HostSend",
     .in = "tensor: T",
     .attrs = "T: type; " EDGE_ATTRS,
     .flags = OP_STATEFUL,
     .kernels = SEND_KERNELS(1)},
    {.name = "_HostRecv",
     .out = "tensor: tensor_type",
     .attrs = "tensor_type: type; " EDGE_ATTRS,
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = RECV_KERNELS(1)},
    {.name = "_DeviceSend",
     .in = "tensor: T",
     .attrs = "T: type; " EDGE_ATTRS,
     .flags = OP_STATEFUL,
     .kernels = SEND_KERNELS(0)},
    {.name = "_DeviceRecv",
     .out = "tensor: tensor_type",
     .attrs = "tensor_type: type; " EDGE_ATTRS,
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = RECV_KERNELS(0)},
};
OP_FAMILY(send_recv, rows);
