/* ops/control: how a graph runs and talks: v1 control flow, function calls, sends, collectives, prints, watches. */

/* Collective ops: the same op on several devices, each with its own input, that ends when all have come. Where they
 * meet and what they compute is collective/; here are the signatures and the step's meeting, which is
 * made by the first op that needs one and goes with the step. Where other tasks may have members they meet at the
 * step's site instead.
 *
 * V1 ops have their keys and sizes as attributes, V2 ops as inputs, V3 ops from a communicator. Attributes about how to
 * communicate (communication_hint, subdiv_offsets, wait_for, max_subdivs_per_device, is_stateless) choose among
 * TensorFlow's algorithms and never the result. A communication_hint of "shoal:NAME" asks for one of ours
 * (collective/schedule.h), the same on all members; "shoal:bf16" for messages of bfloat16 (collective/parcels.h). */
#include "ops/control/communicator.h"

#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "collective/schedule.h"
#include "collective/staged.h"
#include "graph/across.h"
#include "graph/gradient.h"
#include "ops/array/array_util.h"
#include "ops/control/collective_loops.h"

static shoal_status read_arithmetic(struct collective_loops *a, const struct shoal_node *n) {
  const char *merge_op, *final_op = "Id";
  shoal_dtype dtype;
  bool has_final = op_attr_find(n->op, "final_op");
  TRY(node_get_string(n, has_final ? "merge_op" : "reduction", &merge_op));
  if (has_final) TRY(node_get_string(n, "final_op", &final_op));
  TRY(node_get_type(n, "T", &dtype));
  return collective_loops_init(a, merge_op, final_op, dtype);
}

/* ---- a node ---- */

struct collective_state {
  enum collective_kind kind;
  int generation;
  bool is_source, receives;
  int group_size, group_key, instance_key; /* V1 */
  int algorithm;                           /* -1: the cheapest */
  shoal_dtype wire;                        /* of messages; 0: the values' own */
  struct shape shape;                      /* V1 broadcasts: as declared */
  float timeout_s;
  struct order_held holds;
  struct collective_loops arithmetic;
};

static shoal_status check_group_size(int64_t n) {
  return n > 0 ? NULL : INVALID("group_size must be positive integer but got %" PRId64, n);
}

static enum collective_kind kind_of(const char *op) {
  if (strstr(op, "ReduceScatter")) return COLLECTIVE_REDUCE_SCATTER;
  if (strstr(op, "Reduce")) return COLLECTIVE_REDUCE;
  if (strstr(op, "AllToAll")) return COLLECTIVE_ALL_TO_ALL;
  return strstr(op, "Gather") ? COLLECTIVE_GATHER : COLLECTIVE_BROADCAST;
}

/* Messages of bfloat16 go straight from rank to rank (collective/parcels.h). */
static shoal_status read_wire(const struct shoal_node *n, struct collective_state *st) {
  shoal_dtype dtype;
  if (st->kind != COLLECTIVE_REDUCE)
    return INVALID("communication_hint \"shoal:bf16\" is for all-reduces, and not for %s", n->op->name);
  TRY(node_get_type(n, "T", &dtype));
  if (dtype != SHOAL_FLOAT32)
    return INVALID("communication_hint \"shoal:bf16\" is for float32, and not for %s", dtype_tf_name(dtype));
  st->wire = SHOAL_BFLOAT16;
  st->algorithm = ALGORITHM_DIRECT;
  return NULL;
}

static shoal_status read_hint(const struct shoal_node *n, struct collective_state *st) {
  static const char ours[] = "shoal:";
  const char *hint = "";
  st->algorithm = -1;
  if (op_attr_find(n->op, "communication_hint")) TRY(node_get_string(n, "communication_hint", &hint));
  if (strncmp(hint, ours, strlen(ours)) != 0) return NULL;
  if (!strcmp(hint + strlen(ours), "bf16")) return read_wire(n, st);
  st->algorithm = collective_algorithm_find(hint + strlen(ours));
  return st->algorithm >= 0 ? NULL : INVALID("communication_hint \"%s\": there is no such algorithm", hint);
}

/* What the cluster has found that it holds back. */
static void read_order(const struct shoal_node *n, struct collective_state *st) {
  const struct attr *a = node_attr(n, HOLDS_BACK_ATTR);
  if (!a || a->kind != ATTR_LIST || a->of != ATTR_INT) return;
  int64_t *keys = mem_zalloc(a->list.n + 1, sizeof *keys);
  for (size_t i = 0; i < a->list.n; i++) keys[i] = a->list.at[i].i;
  st->holds = (struct order_held){keys, (int)a->list.n};
}

static void release(void *state) { free((int64_t *)((struct collective_state *)state)->holds.keys); }

static shoal_status init(struct kernel_init *ki, void *state) {
  struct collective_state *st = state;
  const char *op = ki->node->op->name;
  st->generation = strstr(op, "V2") ? 2 : strstr(op, "V3") ? 3 : 1;
  st->is_source = strstr(op, "Send");
  st->receives = strstr(op, "Recv");
  st->kind = kind_of(op);
  TRY(read_hint(ki->node, st));
  read_order(ki->node, st);
  TRY(node_get_float(ki->node, "timeout_seconds", &st->timeout_s));
  if (st->kind == COLLECTIVE_REDUCE || st->kind == COLLECTIVE_REDUCE_SCATTER)
    TRY(read_arithmetic(&st->arithmetic, ki->node));
  if (st->generation > 1) return NULL;
  int64_t size, key, instance;
  TRY(node_get_int(ki->node, "group_size", &size));
  TRY(node_get_int(ki->node, "group_key", &key));
  TRY(node_get_int(ki->node, "instance_key", &instance));
  TRY(check_group_size(size));
  st->group_size = (int)MIN(size, INT32_MAX);
  st->group_key = (int)key;
  st->instance_key = (int)instance;
  if (st->kind != COLLECTIVE_BROADCAST) return NULL;
  TRY(node_get_shape(ki->node, "shape", &st->shape));
  if (shape_known(&st->shape)) return NULL;
  return INVALID("The shape of a broadcast must be known, but is %s", shape_str(&st->shape));
}

/* ---- the step's meeting ---- */

struct meeting_place {
  struct resource head;
  struct meeting *meeting;
};

static void free_place(struct resource *r) {
  meeting_free(((struct meeting_place *)r)->meeting);
  free(r);
}

static const struct resource_type place_type = {"collective", "collective", free_place};

static shoal_status make_place(void *arg, struct resource **out) {
  struct meeting_place *p = mem_zalloc(1, sizeof *p);
  resource_init(&p->head, &place_type);
  p->meeting = meeting_new();
  *out = &p->head;
  return NULL;
}

/* ---- running ---- */

struct collective_try {
  struct collective_member member;
  struct kernel_ctx *ctx;
};

static struct kernel_ctx *ctx_of(struct collective_member *m) { return ((struct collective_try *)m)->ctx; }

/* The result of all is made as this member's output, in place of its input where nobody else needs that. */
static shoal_status make(struct collective_member *m, struct tensor *out) {
  struct tensor *t;
  struct kernel_ctx *ctx = ctx_of(m);
  if (m->kind == COLLECTIVE_REDUCE) TRY(ctx_out_like(ctx, 0, 0, &t));
  else TRY(ctx_out(ctx, 0, &m->shape, &t));
  tensor_move(out, t);
  *t = tensor_none();
  return NULL;
}

static void done(struct collective_member *m, shoal_status s, struct tensor *result) {
  struct kernel_ctx *ctx = ctx_of(m);
  if (ctx->step->site) under_way_leave(&ctx->step->site->under_way, m);
  if (!s) ctx_set(ctx, 0, result);
  block_free(m);
  ctx_done(ctx, s);
}

static shoal_status read_communicator(const struct kernel_ctx *ctx, struct collective_member *m) {
  struct resource *r;
  if (ctx_in(ctx, 2)->n) return UNIMPLEMENTED("Group assignments are not supported yet.");
  TRY(resource_from_handle(ctx->kernel->resources, ctx_in(ctx, 1), &communicator_type, &r));
  struct communicator *c = (struct communicator *)r;
  m->group_size = c->group_size;
  m->group_key = c->group_key;
  m->rank = c->rank;
  m->instance_key = (int)(atomic_fetch_add(&c->next, 1) & ((1 << 21) - 1));
  if (m->timeout_s <= 0) m->timeout_s = c->timeout_s;
  resource_unref(r);
  return NULL;
}

/* The shape of what this member gets; at first it is that of what it brings. */
static shoal_status set_shape(struct collective_member *m) {
  if (m->kind == COLLECTIVE_REDUCE) return NULL;
  if (!m->in->rank) return INVALID("input should have rank > 0, received 0");
  int64_t *first = &m->shape.dims[0];
  if (m->kind == COLLECTIVE_GATHER && __builtin_mul_overflow(*first, m->group_size, first))
    return INVALID("The result of gathering %d times %s is too large", m->group_size, tensor_shape_str(m->in));
  if (m->kind == COLLECTIVE_ALL_TO_ALL && *first != m->group_size)
    return INVALID("input to all-to-all first dimension size (%" PRId64 ") must be the same as the group size (%d)",
                   *first, m->group_size);
  if (m->kind != COLLECTIVE_REDUCE_SCATTER) return NULL;
  if (*first % m->group_size)
    return INVALID("input to reduce-scatter first dimension size (%" PRId64
                   ") must be a multiple of the group size (%d)",
                   *first, m->group_size);
  *first /= m->group_size;
  return NULL;
}

static shoal_status read_key(const struct kernel_ctx *ctx, int i, const char *name, int *out) {
  const struct tensor *t = ctx_in(ctx, i);
  if (t->rank) return INVALID("Unexpected dimensions on input %s, got %s", name, tensor_shape_str(t));
  *out = T_DATA(t, const int32_t)[0];
  return NULL;
}

static shoal_status fill(struct kernel_ctx *ctx, struct collective_member *m) {
  const struct collective_state *st = ctx->state;
  *m = (struct collective_member){.name = ctx->kernel->name,
                                  .device = ctx->kernel->device,
                                  .on_device = !ctx->kernel->device->type->host,
                                  .kind = st->kind,
                                  .group_size = st->group_size,
                                  .group_key = st->group_key,
                                  .instance_key = st->instance_key,
                                  .rank = -1,
                                  .step = ctx->step->id,
                                  .frame = ctx->frame,
                                  .iter = ctx->iter,
                                  .dtype = ctx_out_type(ctx, 0),
                                  .is_source = st->is_source,
                                  .algorithm = st->algorithm,
                                  .wire = st->wire,
                                  .timeout_s = st->timeout_s,
                                  .holds = st->holds,
                                  .arithmetic = &st->arithmetic.head,
                                  .in = st->receives ? NULL : ctx_in(ctx, 0),
                                  .cancel = ctx->step->cancel,
                                  .make = make,
                                  .done = done};
  if (st->generation == 3) TRY(read_communicator(ctx, m));
  if (st->generation == 2) {
    int first = st->receives ? 0 : 1;
    TRY(read_key(ctx, first, "group_size", &m->group_size));
    TRY(read_key(ctx, first + 1, "group_key", &m->group_key));
    TRY(read_key(ctx, first + 2, "instance_key", &m->instance_key));
    TRY(check_group_size(m->group_size));
  }
  if (st->receives && st->generation == 2) return shape_from_values(ctx_in(ctx, 3), &m->shape);
  m->shape = st->kind == COLLECTIVE_BROADCAST && st->generation == 1 ? st->shape : tensor_shape(m->in);
  if (st->kind != COLLECTIVE_BROADCAST) return set_shape(m);
  if (m->in) {
    struct shape in = tensor_shape(m->in);
    if (!shape_equal(&m->shape, &in))
      return INTERNAL("Declared shape of op %s: Broadcast(1) does not match shape of input", m->name);
  }
  return NULL;
}

/* It lives as long as the step does, and the manager that has it. */
static shoal_status find_meeting(struct step *step, struct meeting **out) {
  struct resource *r;
  *out = step->meeting ? atomic_load_explicit(step->meeting, memory_order_acquire) : NULL;
  if (*out) return NULL;
  TRY(resource_find_or_make(step->step_resources, "", &place_type, "", make_place, NULL, &r));
  *out = ((struct meeting_place *)r)->meeting;
  if (step->meeting) atomic_store_explicit(step->meeting, *out, memory_order_release);
  resource_unref(r);
  return NULL;
}

void collective_meet(struct step *step, struct collective_member *m) {
  if (m->on_device && !m->device->type->ops->merge) collective_stage(step, m, collective_meet);
  else if (step->site) step->site->join(step->site, step, m);
  else collective_meet_here(step, m);
}

void collective_meet_here(struct step *step, struct collective_member *m) {
  struct meeting *meeting;
  shoal_status s = find_meeting(step, &meeting);
  if (s) m->done(m, s, NULL);
  else meeting_join(meeting, m);
}

static void start(struct kernel_ctx *ctx) {
  struct collective_try *a = block_alloc(sizeof *a);
  shoal_status s = fill(ctx, &a->member);
  a->ctx = ctx;
  if (!s && ctx->step->site) s = under_way_enter(&ctx->step->site->under_way, &a->member);
  if (s) done(&a->member, s, NULL);
  else collective_meet(ctx->step, &a->member);
}

/* Devices of every type take part: what is brought, which is the first argument, and what is got are in their memory.
 */
enum { KEYS_IN_HOST = ~1 };
#define KERNELS(name, in_host)                                                             \
  static const struct kernel_def name[] = {{.device = "CPU",                               \
                                            .flags = KERNEL_ANYWHERE,                      \
                                            .state_size = sizeof(struct collective_state), \
                                            .init = init,                                  \
                                            .release = release,                            \
                                            .start = start,                                \
                                            .host_in = (uint32_t)(in_host)},               \
                                           {0}}
KERNELS(kernels, KEYS_IN_HOST);
KERNELS(receiving, UINT32_MAX); /* it brings nothing */

/* ---- shapes ---- */

static shoal_status gather_shape(struct shape_ctx *c) {
  struct shape s;
  int64_t size;
  TRY(shape_in_rank_at_least(c, 0, 1, &s));
  TRY(node_get_int(c->node, "group_size", &size));
  if (s.rank > 0 && s.dims[0] >= 0 && __builtin_mul_overflow(s.dims[0], size, &s.dims[0])) s.dims[0] = -1;
  c->out[0] = s;
  return NULL;
}

static shoal_status gather_v2_shape(struct shape_ctx *c) {
  struct shape s;
  TRY(shape_in_rank_at_least(c, 0, 1, &s));
  if (s.rank > 0) s.dims[0] = -1;
  c->out[0] = s;
  return NULL;
}

static shoal_status receive_v2_shape(struct shape_ctx *c) { return shape_in_value(c, 3, &c->out[0]); }

/* Of a sum over all copies of a model: the sum of what comes back in all of them. TensorFlow has none of its own; its
 * all_reduce in replicas has this one. */
static shoal_status reduce_grad(struct grad_ctx *c) {
  struct across *a = across_on(c->g);
  const char *final_op;
  int64_t members;
  if (!a || !node_attr(c->node, ACROSS_ATTR))
    return STATUS(SHOAL_NOT_FOUND,
                  "No gradient defined for operation '%s' (op type: %s): a sum or mean over the replicas of a strategy "
                  "has one, inside of its replica",
                  c->node->name, c->node->op->name);
  TRY(node_get_string(c->node, "final_op", &final_op));
  TRY(node_get_int(c->node, "group_size", &members));
  shoal_out dx = a->sum(a, grad_dy(c, 0));
  if (!strcmp(final_op, "Div"))
    dx = build_op2(c->g, "RealDiv", dx, build_const_float(c->g, out_type(dx), (double)members));
  grad_set(c, 0, dx);
  return NULL;
}

#define REDUCED "T: {bfloat16, float, half, double, int32, int64}; "
#define GATHERED "T: {float, half, double, int32, int64}; "
#define SENT "T: {bool, float, half, double, int32, int64}; "
#define HOW "communication_hint: string = 'auto'; timeout_seconds: float = 0"
#define KEYS "group_size: int; group_key: int; instance_key: int; "
#define KEY_INPUTS "group_size: int32, group_key: int32, instance_key: int32"
#define TOKENS ", ordering_token: Nordering_token * resource"
#define V2_ATTRS "; is_stateless: bool = false; Nordering_token: int >= 0 = 0"
#define ARITHMETIC "merge_op: {'Min', 'Max', 'Mul', 'Add'}; final_op: {'Id', 'Div'}; "

static const struct op_row rows[] = {
    {"CollectiveReduce", "input: T", "data: T",
     REDUCED KEYS ARITHMETIC "subdiv_offsets: list(int); wait_for: list(int) = []; " HOW, OP_STATEFUL, shape_unchanged,
     reduce_grad, kernels},
    {"CollectiveReduceV2", "input: T, " KEY_INPUTS TOKENS, "data: T",
     REDUCED ARITHMETIC HOW V2_ATTRS "; max_subdivs_per_device: int = -1", OP_STATEFUL, shape_unchanged, NULL, kernels},
    {"CollectiveReduceV3", "input: T, communicator: resource, group_assignment: int32", "data: T",
     REDUCED "reduction: {'Min', 'Max', 'Mul', 'Add'}; timeout_seconds: float = 0", OP_STATEFUL, shape_unchanged, NULL,
     kernels},
    {"CollectiveReduceScatterV2", "input: T, " KEY_INPUTS TOKENS, "data: T",
     REDUCED ARITHMETIC HOW V2_ATTRS "; max_subdivs_per_device: int = -1", OP_STATEFUL, gather_v2_shape, NULL, kernels},
    {"CollectiveAllToAllV2", "input: T, " KEY_INPUTS TOKENS, "data: T", REDUCED HOW V2_ATTRS, OP_STATEFUL,
     shape_unchanged, NULL, kernels},
    {"CollectiveAllToAllV3", "input: T, communicator: resource, group_assignment: int32", "data: T",
     REDUCED "timeout_seconds: float = 0", OP_STATEFUL, shape_unchanged, NULL, kernels},
    {"CollectiveGather", "input: T", "data: T", GATHERED KEYS "shape: shape; " HOW, OP_STATEFUL, gather_shape, NULL,
     kernels},
    {"CollectiveGatherV2", "input: T, " KEY_INPUTS TOKENS, "data: T", GATHERED HOW V2_ATTRS, OP_STATEFUL,
     gather_v2_shape, NULL, kernels},
    {"CollectiveBcastSend", "input: T", "data: T", SENT KEYS "shape: shape; " HOW, OP_STATEFUL, shape_explicit, NULL,
     kernels},
    {"CollectiveBcastSendV2", "input: T, " KEY_INPUTS, "data: T", SENT HOW, OP_STATEFUL, shape_unchanged, NULL,
     kernels},
    {"CollectiveBcastRecv", NULL, "data: T", SENT KEYS "shape: shape; " HOW, OP_STATEFUL, shape_explicit, NULL,
     receiving},
    {"CollectiveBcastRecvV2", KEY_INPUTS ", shape: Tshape", "data: T", SENT "Tshape: {int32, int64} = int32; " HOW,
     OP_STATEFUL, receive_v2_shape, NULL, receiving},
};
OP_FAMILY(collective, rows);
