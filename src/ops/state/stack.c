/* Stacks of tensors that live for one step: what loops push in the forward pass and pop in the gradient's. By
 * V1 (string reference) and V2 (resource) handles. What is pushed stays in the memory it is in: nobody looks at it, so
 * these kernels serve every device. swap_memory is accepted and means nothing. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ops/state/state.h"

struct stack {
  struct resource head;
  pthread_mutex_t lock;
  char *name;
  shoal_dtype dtype;
  int64_t max;              /* -1: unbounded */
  bool closed;              /* lock */
  VEC(struct tensor) items; /* lock */
};

static void free_stack(struct resource *r) {
  struct stack *st = (struct stack *)r;
  for (size_t i = 0; i < st->items.n; i++) tensor_release(&st->items.at[i]);
  vec_release(&st->items);
  pthread_mutex_destroy(&st->lock);
  free(st->name);
  free(st);
}

static const struct resource_type stack_type = {"N10tensorflow5StackE", "stack", free_stack};
static const char stacks[] = "_stacks";

struct stack_maker {
  char *name;
  shoal_dtype dtype;
};

static shoal_status maker_init(struct kernel_init *ki, void *state) {
  struct stack_maker *m = state;
  const char *name;
  TRY(node_get_type(ki->node, "elem_type", &m->dtype));
  TRY(node_get_string(ki->node, "stack_name", &name));
  m->name = mem_strdup(*name ? name : ki->node->name);
  return NULL;
}

static void maker_release(void *state) { free(((struct stack_maker *)state)->name); }

static shoal_status set_handle(struct kernel_ctx *ctx, const char *name, const char *full) {
  if (!dtype_is_ref(ctx->kernel->out_types[0])) {
    struct tensor t;
    TRY(resource_handle_tensor(ctx->step->step_resources, ctx->kernel->device->name, "", full, &stack_type, &t));
    ctx_set(ctx, 0, &t);
    return NULL;
  }
  struct shape two = shape_vector(2);
  struct variable *v = variable_new(ctx->kernel->name, SHOAL_STRING, &two);
  shoal_status s = tensor_new(&v->value, SHOAL_STRING, &two);
  if (!s) {
    str_set(&T_DATA(&v->value, struct str)[0], stacks, strlen(stacks));
    str_set(&T_DATA(&v->value, struct str)[1], name, strlen(name));
    ctx_set_ref(ctx, 0, v);
  }
  variable_unref(v);
  return s;
}

static shoal_status maker_run(struct kernel_ctx *ctx) {
  static _Atomic uint64_t numbers;
  struct stack_maker *m = ctx->state;
  int64_t max = -1;
  if (ctx->kernel->n_in) {
    struct shape shape = tensor_shape(ctx_in(ctx, 0));
    if (shape.rank != 0) return INVALID("Stack size must be a scalar, but had shape: %s", shape_str(&shape));
    max = *T_DATA(ctx_in(ctx, 0), const int32_t);
  }
  char *name = mem_printf("%s_%llu", m->name, (unsigned long long)atomic_fetch_add(&numbers, 1));
  char *full = mem_printf("%s%s", stacks, name);
  struct stack *st = mem_zalloc(1, sizeof *st);
  resource_init(&st->head, &stack_type);
  pthread_mutex_init(&st->lock, NULL);
  st->name = mem_strdup(name);
  st->dtype = m->dtype;
  st->max = max;
  shoal_status s = resource_add(ctx->step->step_resources, "", full, &st->head);
  if (s) resource_unref(&st->head);
  else s = set_handle(ctx, name, full);
  free(full);
  free(name);
  return s;
}

static shoal_status find(struct kernel_ctx *ctx, struct stack **out) {
  struct resource *r;
  if (!state_is_ref(ctx, 0)) {
    TRY(resource_from_handle(ctx->step->step_resources, ctx_in(ctx, 0), &stack_type, &r));
  } else {
    struct tensor t;
    variable_read(ctx_ref(ctx, 0), &t);
    if (!tensor_valid(&t) || t.dtype != SHOAL_STRING || t.n != 2) {
      if (tensor_valid(&t)) tensor_release(&t);
      return INVALID("Stack handle must have two elements");
    }
    const struct str *p = T_DATA(&t, const struct str);
    char *full = mem_printf("%.*s%.*s", (int)p[0].size, str_data(&p[0]), (int)p[1].size, str_data(&p[1]));
    shoal_status s = resource_find(ctx->step->step_resources, "", &stack_type, full, &r);
    free(full);
    tensor_release(&t);
    if (s) return s;
  }
  *out = (struct stack *)r;
  return NULL;
}

static shoal_status push_run(struct kernel_ctx *ctx) {
  struct stack *st;
  const struct tensor *elem = ctx_in(ctx, 1);
  TRY(find(ctx, &st));
  shoal_status s = NULL;
  pthread_mutex_lock(&st->lock);
  if (st->closed) s = INVALID("Stack[%s] has already been closed.", st->name);
  else if ((shoal_dtype)elem->dtype != st->dtype)
    s = INVALID("Must have type %s but got %s", dtype_tf_name(st->dtype), dtype_tf_name(elem->dtype));
  else if (st->max >= 0 && (int64_t)st->items.n >= st->max)
    s = INVALID("Stack[%s] overflowed its max_size (%" PRId64 ")", st->name, st->max);
  if (!s) {
    struct tensor t;
    tensor_ref(&t, elem);
    vec_push(&st->items, t);
  }
  pthread_mutex_unlock(&st->lock);
  resource_unref(&st->head);
  return s ? s : ctx_forward(ctx, 0, 1, NULL);
}

static shoal_status pop_run(struct kernel_ctx *ctx) {
  struct stack *st;
  TRY(find(ctx, &st));
  shoal_status s = NULL;
  struct tensor t = tensor_none();
  pthread_mutex_lock(&st->lock);
  if (st->closed) s = INVALID("Stack[%s] has already been closed.", st->name);
  else if (!st->items.n) s = INVALID("Stack[%s] is empty when calling Pop().", st->name);
  else t = vec_pop(&st->items);
  pthread_mutex_unlock(&st->lock);
  resource_unref(&st->head);
  if (s) return s;
  if ((shoal_dtype)t.dtype != ctx_out_type(ctx, 0))
    s = INVALID("Must have type %s but got %s", dtype_tf_name(ctx_out_type(ctx, 0)), dtype_tf_name(t.dtype));
  else if (t.buffer->device != ctx_out_memory(ctx, 0)) /* a stack is on one device, unless a graph says otherwise */
    s = INVALID("Stack[%s]: what was pushed on one device cannot be popped on another", ctx->kernel->name);
  if (s) {
    tensor_release(&t);
    return s;
  }
  ctx_set(ctx, 0, &t);
  return NULL;
}

static shoal_status close_run(struct kernel_ctx *ctx) {
  struct stack *st;
  TRY(find(ctx, &st));
  pthread_mutex_lock(&st->lock);
  st->closed = true;
  for (size_t i = 0; i < st->items.n; i++) tensor_release(&st->items.at[i]);
  st->items.n = 0;
  pthread_mutex_unlock(&st->lock);
  resource_unref(&st->head);
  return NULL;
}

static shoal_status shape_push(struct shape_ctx *c) {
  c->out[0] = c->in[1];
  return NULL;
}

#define KERNEL(id, ...) \
  static const struct kernel_def id[] = {{.device = "CPU", .flags = KERNEL_ANYWHERE, __VA_ARGS__}, {0}}
KERNEL(maker_kernels, .state_size = sizeof(struct stack_maker), .init = maker_init, .release = maker_release,
       .run = maker_run, .host_in = 1);
KERNEL(push_kernels, .run = push_run);
KERNEL(pop_kernels, .run = pop_run);
KERNEL(close_kernels, .run = close_run);

#define USE(v, H, flags_)                                                                 \
  {.name = "StackPush" v,                                                                 \
   .in = "handle: " H ", elem: T",                                                        \
   .out = "output: T",                                                                    \
   .attrs = "T: type; swap_memory: bool = false",                                         \
   .flags = (flags_) | OP_NO_GRADIENT,                                                    \
   .shape = shape_push,                                                                   \
   .kernels = push_kernels},                                                              \
      {.name = "StackPop" v,                                                              \
       .in = "handle: " H,                                                                \
       .out = "elem: elem_type",                                                          \
       .attrs = "elem_type: type",                                                        \
       .flags = (flags_) | OP_NO_GRADIENT,                                                \
       .kernels = pop_kernels},                                                           \
  {                                                                                       \
    .name = "StackClose" v, .in = "handle: " H, .flags = flags_, .kernels = close_kernels \
  }
static const struct op_row rows[] = {
    {.name = "Stack",
     .out = "handle: Ref(string)",
     .attrs = "elem_type: type; stack_name: string = ''",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_handle_v1,
     .kernels = maker_kernels},
    {.name = "StackV2",
     .in = "max_size: int32",
     .out = "handle: resource",
     .attrs = "elem_type: type; stack_name: string = ''",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = maker_kernels},
    USE("", "Ref(string)", 0),
    USE("V2", "resource", OP_STATEFUL),
};
OP_FAMILY(stack, rows);
