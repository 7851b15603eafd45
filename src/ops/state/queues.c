/* The queue ops, by V1 (string reference) and V2 (resource) handles: making queues, putting in and taking out,
 * closing, asking. The queues themselves are in ops/state/queue.c. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "ops/state/queue.h"

/* ---- making ---- */

struct queue_maker {
  struct state_maker m;
  struct queue_spec spec;
  uint64_t random_seed;
};

static shoal_status maker_init(struct kernel_init *ki, struct queue_maker *st, enum queue_kind kind) {
  st->random_seed = ki->random_seed;
  TRY(queue_spec_init(&st->spec, ki->node, kind));
  return state_maker_init(&st->m, ki, &queue_type, true);
}
static shoal_status fifo_init(struct kernel_init *ki, void *st) { return maker_init(ki, st, QUEUE_FIFO); }
static shoal_status padding_init(struct kernel_init *ki, void *st) { return maker_init(ki, st, QUEUE_PADDING); }
static shoal_status shuffle_init(struct kernel_init *ki, void *st) { return maker_init(ki, st, QUEUE_SHUFFLE); }
static shoal_status priority_init(struct kernel_init *ki, void *st) { return maker_init(ki, st, QUEUE_PRIORITY); }

static void maker_release(void *state) {
  struct queue_maker *st = state;
  state_maker_release(&st->m);
  queue_spec_release(&st->spec);
}

static shoal_status make_queue(void *arg, struct resource **out) {
  struct queue_maker *st = arg;
  struct queue_spec spec;
  queue_spec_copy(&spec, &st->spec);
  *out = (struct resource *)queue_new(st->m.name, &spec, st->random_seed);
  return NULL;
}

static shoal_status maker_run(struct kernel_ctx *ctx) {
  struct queue_maker *st = ctx->state;
  struct resource *r;
  TRY(state_maker_run(&st->m, ctx, make_queue, st, &r));
  shoal_status s = queue_matches((struct queue *)r, &st->spec, ctx->kernel->name, ctx->kernel->op->name);
  resource_unref(r);
  return s;
}

/* A V1 handle for what a V2 handle names. */
static shoal_status fake_queue_run(struct kernel_ctx *ctx) {
  const struct resource_handle *h = resource_handle_of(ctx_in(ctx, 0));
  if (!h) return INVALID("Empty resource handle");
  struct shape two = shape_vector(2);
  struct variable *v = variable_new(ctx->kernel->name, SHOAL_STRING, &two);
  shoal_status s = tensor_new(&v->value, SHOAL_STRING, &two);
  if (!s) {
    str_set(&T_DATA(&v->value, struct str)[0], h->container, strlen(h->container));
    str_set(&T_DATA(&v->value, struct str)[1], h->name, strlen(h->name));
    ctx_set_ref(ctx, 0, v);
  }
  variable_unref(v);
  return s;
}

/* ---- putting in and taking out ---- */

static shoal_status access_init(struct kernel_init *ki, void *state) {
  int64_t timeout;
  TRY(node_get_int(ki->node, "timeout_ms", &timeout));
  return timeout == -1 ? NULL : INVALID("Timeout not supported yet.");
}

static void print_types(struct text *out, int n, const uint8_t *types) {
  for (int i = 0; i < n; i++) text_addf(out, "%s%s", i ? ", " : "", dtype_tf_name(types[i]));
}

/* The tuple's types are those of the queue: of the inputs from `first_in` on, or of the outputs. */
static shoal_status check_signature(const struct kernel_ctx *ctx, const struct queue *q, int first_in, bool outputs) {
  const struct kernel *k = ctx->kernel;
  const struct queue_spec *spec = queue_spec_of(q);
  const uint8_t *have = outputs ? k->out_types : k->in_types + first_in;
  int n = outputs ? k->n_out : k->n_in - first_in;
  bool same = n == spec->n;
  for (int i = 0; same && i < n; i++) same = have[i] == spec->types[i];
  if (same) return NULL;
  struct text a = {0}, b = {0};
  print_types(&a, k->n_in, k->in_types);
  text_adds(&a, "->");
  print_types(&a, k->n_out, k->out_types);
  print_types(&b, outputs ? k->n_in : first_in, k->in_types);
  if (outputs) text_adds(&b, "->");
  for (int i = 0; i < spec->n; i++) text_addf(&b, "%s%s", i || !outputs ? ", " : "", dtype_tf_name(spec->types[i]));
  if (!outputs) text_adds(&b, "->");
  shoal_status s = INVALID("Signature mismatch, have: %s expected: %s", text_cstr(&a), text_cstr(&b));
  text_release(&a);
  text_release(&b);
  return s;
}

static void enqueued(void *arg, shoal_status s, struct tensor *tuple) { ctx_done(arg, s); }

static void dequeued(void *arg, shoal_status s, struct tensor *tuple) {
  struct kernel_ctx *ctx = arg;
  for (int i = 0; tuple && i < ctx->kernel->n_out; i++) ctx_set(ctx, i, &tuple[i]);
  ctx_done(ctx, s);
}

static void enqueue(struct kernel_ctx *ctx, bool many) {
  struct resource *r;
  shoal_status s = state_from_handle(ctx, 0, &queue_type, &r);
  if (s) {
    ctx_done(ctx, s);
    return;
  }
  struct queue *q = (struct queue *)r;
  s = check_signature(ctx, q, 1, false);
  if (s) ctx_done(ctx, s);
  else queue_enqueue(q, ctx->in + 1, ctx->kernel->n_in - 1, many, ctx->step->cancel, enqueued, ctx);
  resource_unref(r);
}
static void enqueue_start(struct kernel_ctx *ctx) { enqueue(ctx, false); }
static void enqueue_many_start(struct kernel_ctx *ctx) { enqueue(ctx, true); }

static void dequeue_start(struct kernel_ctx *ctx) {
  struct resource *r;
  shoal_status s = state_from_handle(ctx, 0, &queue_type, &r);
  if (s) {
    ctx_done(ctx, s);
    return;
  }
  s = check_signature(ctx, (struct queue *)r, 1, true);
  if (s) ctx_done(ctx, s);
  else queue_dequeue((struct queue *)r, ctx->step->cancel, dequeued, ctx);
  resource_unref(r);
}

static void dequeue_batch(struct kernel_ctx *ctx, bool up_to) {
  struct resource *r;
  shoal_status s = state_from_handle(ctx, 0, &queue_type, &r);
  if (s) {
    ctx_done(ctx, s);
    return;
  }
  const struct tensor *n = ctx_in(ctx, 1);
  s = check_signature(ctx, (struct queue *)r, 2, true);
  if (!s) s = ctx_check_scalar(ctx, 1, "n");
  if (!s && *T_DATA(n, const int32_t) < 0)
    s = INVALID("%s requested %d < 0 elements", up_to ? "DequeueUpToOp" : "DequeueManyOp", *T_DATA(n, const int32_t));
  if (s) ctx_done(ctx, s);
  else queue_dequeue_many((struct queue *)r, *T_DATA(n, const int32_t), up_to, ctx->step->cancel, dequeued, ctx);
  resource_unref(r);
}
static void dequeue_many_start(struct kernel_ctx *ctx) { dequeue_batch(ctx, false); }
static void dequeue_up_to_start(struct kernel_ctx *ctx) { dequeue_batch(ctx, true); }

/* ---- closing and asking ---- */

struct queue_close {
  bool cancel_pending;
};

static shoal_status close_init(struct kernel_init *ki, void *state) {
  return node_get_bool(ki->node, "cancel_pending_enqueues", &((struct queue_close *)state)->cancel_pending);
}

static void close_start(struct kernel_ctx *ctx) {
  struct resource *r;
  shoal_status s = state_from_handle(ctx, 0, &queue_type, &r);
  if (s) {
    ctx_done(ctx, s);
    return;
  }
  queue_close((struct queue *)r, ((struct queue_close *)ctx->state)->cancel_pending, enqueued, ctx);
  resource_unref(r);
}

static shoal_status size_run(struct kernel_ctx *ctx) {
  struct resource *r;
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  TRY(state_from_handle(ctx, 0, &queue_type, &r));
  *T_DATA(out, int32_t) = (int32_t)queue_size((struct queue *)r);
  resource_unref(r);
  return NULL;
}

static shoal_status is_closed_run(struct kernel_ctx *ctx) {
  struct resource *r;
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  TRY(state_from_handle(ctx, 0, &queue_type, &r));
  *T_DATA(out, bool) = queue_is_closed((struct queue *)r);
  resource_unref(r);
  return NULL;
}

/* ---- rows ---- */

#define KERNEL(id, ...) static const struct kernel_def id[] = {{.device = "CPU", __VA_ARGS__}, {0}}
#define MAKER(id, init_) \
  KERNEL(id, .state_size = sizeof(struct queue_maker), .init = init_, .release = maker_release, .run = maker_run)
MAKER(fifo_kernels, fifo_init);
MAKER(padding_kernels, padding_init);
MAKER(shuffle_kernels, shuffle_init);
MAKER(priority_kernels, priority_init);
KERNEL(fake_queue_kernels, .run = fake_queue_run);
KERNEL(enqueue_kernels, .init = access_init, .start = enqueue_start);
KERNEL(enqueue_many_kernels, .init = access_init, .start = enqueue_many_start);
KERNEL(dequeue_kernels, .init = access_init, .start = dequeue_start);
KERNEL(dequeue_many_kernels, .init = access_init, .start = dequeue_many_start);
KERNEL(dequeue_up_to_kernels, .init = access_init, .start = dequeue_up_to_start);
KERNEL(close_kernels, .state_size = sizeof(struct queue_close), .init = close_init, .start = close_start);
KERNEL(size_kernels, .run = size_run);
KERNEL(is_closed_kernels, .run = is_closed_run);

#define PLACE "; capacity: int = -1; container: string = ''; shared_name: string = ''"
#define FIFO_ATTRS "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []" PLACE
#define SHUFFLE_ATTRS                                                                                                 \
  "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; min_after_dequeue: int = 0; " \
  "seed: int = 0; seed2: int = 0; container: string = ''; shared_name: string = ''"
#define PRIORITY_ATTRS "component_types: list(type) >= 0 = []; shapes: list(shape) >= 0" PLACE
#define MAKE(op, attrs_, kernels_)                                                                                \
  {.name = op,                                                                                                    \
   .out = "handle: Ref(string)",                                                                                  \
   .attrs = attrs_,                                                                                               \
   .flags = OP_STATEFUL,                                                                                          \
   .shape = shape_handle_v1,                                                                                      \
   .kernels = kernels_},                                                                                          \
  {                                                                                                               \
    .name = op "V2", .out = "handle: resource", .attrs = attrs_, .flags = OP_STATEFUL, .shape = shape_scalar_out, \
    .kernels = kernels_                                                                                           \
  }
#define USE(op, more, out_, attrs_, kernels_)                                     \
  {.name = op,                                                                    \
   .in = "handle: Ref(string)" more,                                              \
   .out = out_,                                                                   \
   .attrs = attrs_,                                                               \
   .flags = OP_NO_GRADIENT,                                                       \
   .kernels = kernels_},                                                          \
  {                                                                               \
    .name = op "V2", .in = "handle: resource" more, .out = out_, .attrs = attrs_, \
    .flags = OP_STATEFUL | OP_NO_GRADIENT, .kernels = kernels_                    \
  }
#define ASK(op, out_, kernels_)                                                                    \
  {.name = op,                                                                                     \
   .in = "handle: Ref(string)",                                                                    \
   .out = out_,                                                                                    \
   .flags = OP_NO_GRADIENT,                                                                        \
   .shape = shape_scalar_out,                                                                      \
   .kernels = kernels_},                                                                           \
  {                                                                                                \
    .name = op "V2", .in = "handle: resource", .out = out_, .flags = OP_STATEFUL | OP_NO_GRADIENT, \
    .shape = shape_scalar_out, .kernels = kernels_                                                 \
  }
#define IN_ATTRS "Tcomponents: list(type) >= 1; timeout_ms: int = -1"
#define OUT_ATTRS "component_types: list(type) >= 1; timeout_ms: int = -1"
#define OUT "components: component_types"
static const struct op_row rows[] = {
    MAKE("FIFOQueue", FIFO_ATTRS, fifo_kernels),
    MAKE("PaddingFIFOQueue", FIFO_ATTRS, padding_kernels),
    MAKE("RandomShuffleQueue", SHUFFLE_ATTRS, shuffle_kernels),
    MAKE("PriorityQueue", PRIORITY_ATTRS, priority_kernels),
    {.name = "FakeQueue",
     .in = "resource: resource",
     .out = "handle: Ref(string)",
     .flags = OP_STATEFUL,
     .shape = shape_handle_v1,
     .kernels = fake_queue_kernels},
    USE("QueueEnqueue", ", components: Tcomponents", NULL, IN_ATTRS, enqueue_kernels),
    USE("QueueEnqueueMany", ", components: Tcomponents", NULL, IN_ATTRS, enqueue_many_kernels),
    USE("QueueDequeue", "", OUT, OUT_ATTRS, dequeue_kernels),
    USE("QueueDequeueMany", ", n: int32", OUT, OUT_ATTRS, dequeue_many_kernels),
    USE("QueueDequeueUpTo", ", n: int32", OUT, OUT_ATTRS, dequeue_up_to_kernels),
    USE("QueueClose", "", NULL, "cancel_pending_enqueues: bool = false", close_kernels),
    ASK("QueueIsClosed", "is_closed: bool", is_closed_kernels),
    ASK("QueueSize", "size: int32", size_kernels),
};
OP_FAMILY(queues, rows);
