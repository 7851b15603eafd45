/* Tensors that stay on the device between runs: GetSessionHandle keeps one and gives out its name
 * ("node;number;device"), GetSessionTensor gives it back, DeleteSessionTensor drops it. */
#include <stdlib.h>
#include <string.h>

#include "ops/state/state.h"

struct kept {
  struct resource head;
  struct tensor value;
};

static void free_kept(struct resource *r) {
  tensor_release(&((struct kept *)r)->value);
  free(r);
}

static const struct resource_type kept_type = {"TensorHandle", "session tensor", free_kept};
static const char container[] = "_session_state";

static shoal_status keep_run(struct kernel_ctx *ctx) {
  static _Atomic uint64_t numbers;
  const struct kernel *k = ctx->kernel;
  struct kept *kept = mem_zalloc(1, sizeof *kept);
  resource_init(&kept->head, &kept_type);
  tensor_ref(&kept->value, ctx_in(ctx, 0));
  char *name = mem_printf("%s;%llu;%s", k->name, (unsigned long long)atomic_fetch_add(&numbers, 1), k->device->name);
  shoal_status s = resource_add(k->resources, container, name, &kept->head);
  if (s) {
    resource_unref(&kept->head);
  } else if (ctx_out_type(ctx, 0) == SHOAL_RESOURCE) {
    struct tensor t;
    s = resource_handle_tensor(k->resources, k->device->name, container, name, &kept_type, &t);
    if (!s) ctx_set(ctx, 0, &t);
  } else {
    struct tensor *out;
    s = ctx_out_dims(ctx, 0, 0, NULL, &out);
    if (!s) str_set(out->data, name, strlen(name));
  }
  free(name);
  return s;
}

/* The kept tensor that the handle in input 0 names; remove takes it out. */
static shoal_status find(struct kernel_ctx *ctx, bool remove, struct resource **out) {
  TRY(ctx_check_scalar(ctx, 0, "handle"));
  const struct str *h = T_DATA(ctx_in(ctx, 0), const struct str);
  char *name = mem_strndup(str_data(h), h->size);
  shoal_status s = remove ? resource_remove(ctx->kernel->resources, container, &kept_type, name)
                          : resource_find(ctx->kernel->resources, container, &kept_type, name, out);
  if (s) {
    shoal_status_free(s);
    s = INVALID("The tensor with handle '%s' is not in the session store.", name);
  }
  free(name);
  return s;
}

static shoal_status get_run(struct kernel_ctx *ctx) {
  struct resource *r;
  TRY(find(ctx, false, &r));
  struct tensor t;
  tensor_ref(&t, &((struct kept *)r)->value);
  resource_unref(r);
  if ((shoal_dtype)t.dtype != ctx_out_type(ctx, 0)) {
    shoal_status s =
        INVALID("The tensor is of type %s, not %s", dtype_tf_name(t.dtype), dtype_tf_name(ctx_out_type(ctx, 0)));
    tensor_release(&t);
    return s;
  }
  ctx_set(ctx, 0, &t);
  return NULL;
}

static shoal_status delete_run(struct kernel_ctx *ctx) { return find(ctx, true, NULL); }

#define KERNEL(id, run_) \
  static const struct kernel_def id[] = {{.device = "CPU", .flags = KERNEL_ANYWHERE, .run = run_}, {0}}
KERNEL(keep_kernels, keep_run);
KERNEL(get_kernels, get_run);
KERNEL(delete_kernels, delete_run);

static const struct op_row rows[] = {
    {.name = "GetSessionHandle",
     .in = "value: T",
     .out = "handle: string",
     .attrs = "T: type",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = keep_kernels},
    {.name = "GetSessionHandleV2",
     .in = "value: T",
     .out = "handle: resource",
     .attrs = "T: type",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = keep_kernels},
    {.name = "GetSessionTensor",
     .in = "handle: string",
     .out = "value: dtype",
     .attrs = "dtype: type",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = get_kernels},
    {.name = "DeleteSessionTensor", .in = "handle: string", .flags = OP_STATEFUL, .kernels = delete_kernels},
};
OP_FAMILY(session_state, rows);
