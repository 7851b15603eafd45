/* Iterators over datasets as resources: made, initialised, asked for the next element, passed by string.
 *
 * An iterator may wait (for files, for functions, for a prefetching thread), so asking it never happens on a thread
 * that runs nodes: each iterator has a line of tasks of its own (data/data_thread.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/data/iterator.h"
#include "ops/state/optional.h"
#include "tensor/tensor_proto.h"

static void iterator_resource_free(struct resource *r) {
  struct iterator *it = (struct iterator *)r;
  task_line_free(it->line);
  iterator_free(it->at);
  element_spec_release(&it->spec);
  text_release(&it->seeds);
  free(it);
}

const struct resource_type iterator_type = {"N10tensorflow4data16IteratorResourceE", "iterator",
                                            iterator_resource_free};

struct element_spec element_spec_copy(const struct element_spec *s) {
  shoal_dtype *types = mem_zalloc((size_t)s->n, sizeof *types);
  struct shape *shapes = mem_zalloc((size_t)s->n, sizeof *shapes);
  for (int i = 0; i < s->n; i++) {
    types[i] = s->types[i];
    shapes[i] = s->shapes[i];
  }
  return (struct element_spec){s->n, types, shapes};
}

void element_spec_release(struct element_spec *s) {
  free((void *)(uintptr_t)s->types);
  free((void *)(uintptr_t)s->shapes);
}

static shoal_status make_iterator(void *arg, struct resource **out) {
  const struct element_spec *spec = arg;
  struct iterator *it = mem_zalloc(1, sizeof *it);
  resource_init(&it->head, &iterator_type);
  it->line = task_line_new();
  it->spec = element_spec_copy(spec);
  *out = &it->head;
  return NULL;
}

shoal_status element_spec_check(const struct element_spec *want, int n, const shoal_dtype *types,
                                const struct shape *shapes) {
  if (!want->n) return NULL;
  if (want->n != n) return INVALID("Number of components does not match: expected %d types but got %d.", want->n, n);
  for (int i = 0; i < n; i++) {
    if (want->types[i] != types[i])
      return INVALID("Data type mismatch at component %d: expected %s but got %s.", i, dtype_tf_name(want->types[i]),
                     dtype_tf_name(types[i]));
    if (!shape_compatible(&want->shapes[i], &shapes[i]))
      return INVALID("Incompatible shapes at component %d: expected %s but got %s.", i, shape_str(&want->shapes[i]),
                     shape_str(&shapes[i]));
  }
  return NULL;
}

/* ---- handles ---- */

struct handle_state {
  struct dataset_state data; /* first: dataset_state_init fills it */
  struct resource_name name;
  struct function *factory; /* OneShotIterator */
};

static shoal_status handle_init(struct kernel_init *ki, void *state) {
  struct handle_state *s = state;
  TRY(dataset_state_init(ki, state));
  TRY(resource_name_init(&s->name, ki));
  if (!node_attr(ki->node, "dataset_factory")) return NULL;
  const struct func_attr *f;
  TRY(node_get_func(ki->node, "dataset_factory", &f));
  TRY(function_get(ki, f, &s->factory));
  return NULL;
}

static void handle_release(void *state) {
  struct handle_state *s = state;
  resource_name_release(&s->name);
  dataset_state_release(state);
}

static shoal_status give_handle(struct kernel_ctx *ctx) {
  const struct handle_state *s = ctx->state;
  struct tensor t;
  TRY(resource_handle_tensor(ctx->kernel->resources, ctx->kernel->device->name, s->name.container, s->name.name,
                             &iterator_type, &t));
  ctx_set(ctx, 0, &t);
  return NULL;
}

static shoal_status iterator_run(struct kernel_ctx *ctx) {
  struct handle_state *s = ctx->state;
  struct resource *r;
  TRY(resource_find_or_make(ctx->kernel->resources, s->name.container, &iterator_type, s->name.name, make_iterator,
                            &s->data.spec, &r));
  shoal_status bad =
      element_spec_check(&((struct iterator *)r)->spec, s->data.spec.n, s->data.spec.types, s->data.spec.shapes);
  resource_unref(r);
  TRY(bad);
  return give_handle(ctx);
}

static shoal_status anonymous_run(struct kernel_ctx *ctx) {
  struct handle_state *s = ctx->state;
  static atomic_int_fast64_t next;
  char name[64];
  snprintf(name, sizeof name, "_iterator_%lld", (long long)atomic_fetch_add(&next, 1));
  struct resource *r;
  struct tensor t, *mark;
  TRY(make_iterator(&s->data.spec, &r));
  if (op_is(ctx->kernel->op, "AnonymousIteratorV3")) { /* goes with its last handle */
    TRY(resource_handle_anonymous(ctx->kernel->resources, ctx->kernel->device->name, "AnonymousIterator",
                                  &iterator_type, r, &t));
    ctx_set(ctx, 0, &t);
    return NULL;
  }
  shoal_status bad = resource_add(ctx->kernel->resources, "", name, r);
  if (bad) resource_unref(r);
  TRY(bad);
  TRY(resource_handle_tensor(ctx->kernel->resources, ctx->kernel->device->name, "", name, &iterator_type, &t));
  ctx_set(ctx, 0, &t);
  return ctx->kernel->n_out < 2 ? NULL : ctx_out_dims(ctx, 1, 0, NULL, &mark);
}

static shoal_status delete_run(struct kernel_ctx *ctx) {
  return resource_destroy(ctx->kernel->resources, ctx_in(ctx, 0), true);
}

/* ---- what runs on the iterator's line ---- */

struct next_request {
  struct kernel_ctx *ctx;
  struct iterator *it;  /* a reference */
  struct dataset *data; /* to walk from the beginning; a reference */
  bool one_shot;        /* forget the iterator when this fails, so that the next step tries again */
};

static struct next_request *request_new(struct kernel_ctx *ctx, struct resource *r) {
  struct next_request *q = mem_zalloc(1, sizeof *q);
  q->ctx = ctx;
  q->it = (struct iterator *)r;
  return q;
}

static void request_end(struct next_request *q, shoal_status s) {
  struct resource *r = &q->it->head;
  struct kernel_ctx *ctx = q->ctx;
  if (s && q->one_shot) {
    const struct handle_state *h = ctx->state;
    shoal_status_free(resource_remove(ctx->kernel->resources, h->name.container, &iterator_type, h->name.name));
  }
  dataset_unref(q->data);
  free(q);
  resource_unref(r); /* before the step ends, and with it perhaps the session whose devices the elements come from */
  ctx_done(ctx, s);
}

/* Runs fn(q) when all that was asked before is done. */
static void on_line(struct next_request *q, void (*fn)(void *)) {
  shoal_status s = task_line_add(q->it->line, fn, q);
  if (s) request_end(q, s);
}

shoal_status iterator_begin(struct iterator *it, struct dataset *d) {
  struct data_iterator *fresh;
  struct text seeds = {0};
  TRY(element_spec_check(&it->spec, d->n, d->types, d->shapes));
  dataset_seeds_save(d, &seeds);
  shoal_status s = dataset_iterate(d, &fresh);
  if (s) {
    text_release(&seeds);
    return s;
  }
  iterator_free(it->at);
  text_release(&it->seeds);
  it->at = fresh;
  it->seeds = seeds;
  it->asked = 0;
  it->failed = false;
  return NULL;
}

static void initialise(void *arg) {
  struct next_request *q = arg;
  request_end(q, iterator_begin(q->it, q->data));
}

/* Begins with q's dataset, in its last form. */
static void begin_final(void *arg, struct dataset *d) {
  struct next_request *q = arg;
  dataset_unref(q->data);
  q->data = d;
  on_line(q, initialise);
}

/* The next element, [components]. On the iterator's line. */
static shoal_status next_element(struct iterator *it, struct cancel *cancel, struct tensor *out, bool *end) {
  if (!it->at)
    return STATUS(SHOAL_FAILED_PRECONDITION,
                  "GetNext() failed because the iterator has not been initialized. Ensure that you have run the "
                  "initializer operation for this iterator before getting the next element.");
  struct data_ctx ctx = {.cancel = cancel};
  shoal_status s = iterator_next(it->at, &ctx, out, end);
  if (s ? !data_ended(&ctx) : !*end) it->asked++;
  it->failed |= s && !data_ended(&ctx);
  return s;
}

shoal_status element_give(struct kernel_ctx *ctx, struct tensor *t, int n) {
  const struct kernel *k = ctx->kernel;
  if (n != k->n_out) return INVALID("The iterator's elements have %d components, not %d", n, k->n_out);
  for (int i = 0; i < n; i++)
    if (t[i].dtype != dtype_base(k->out_types[i]))
      return INVALID("Data type mismatch at component %d: expected %s but got %s.", i,
                     dtype_tf_name(dtype_base(k->out_types[i])), dtype_tf_name(t[i].dtype));
  for (int i = 0; i < n; i++) {
    ctx_set(ctx, i, &t[i]);
    t[i] = tensor_none();
  }
  return NULL;
}

static void get_optional(void *arg) {
  struct next_request *q = arg;
  int n = q->it->at ? q->it->at->of->n : 0;
  struct tensor *out = mem_zalloc((size_t)MAX(n, 1), sizeof *out), t;
  bool end = false;
  shoal_status s = next_element(q->it, q->ctx->step->cancel, out, &end);
  if (!s) s = optional_to_tensor(end ? NULL : out, n, &t);
  if (!s) ctx_set(q->ctx, 0, &t);
  tensors_release(out, n);
  free(out);
  request_end(q, s);
}

static void get_next(void *arg) {
  struct next_request *q = arg;
  int n = q->it->at ? q->it->at->of->n : 0;
  struct tensor *out = mem_zalloc((size_t)MAX(n, 1), sizeof *out);
  bool end = false;
  shoal_status s = next_element(q->it, q->ctx->step->cancel, out, &end);
  if (!s && end) s = STATUS(SHOAL_OUT_OF_RANGE, "End of sequence");
  if (!s) s = element_give(q->ctx, out, n);
  tensors_release(out, n);
  free(out);
  request_end(q, s);
}

/* A request of the iterator that input `input` names; NULL: there is none, and the kernel is done. */
static struct next_request *request_of(struct kernel_ctx *ctx, int input) {
  struct resource *r;
  shoal_status s = resource_from_handle(ctx->kernel->resources, ctx_in(ctx, input), &iterator_type, &r);
  if (!s) return request_new(ctx, r);
  ctx_done(ctx, s);
  return NULL;
}

static void start_on(struct kernel_ctx *ctx, void (*fn)(void *)) {
  struct next_request *q = request_of(ctx, 0);
  if (q) on_line(q, fn);
}

static void get_next_start(struct kernel_ctx *ctx) { start_on(ctx, get_next); }
static void get_optional_start(struct kernel_ctx *ctx) { start_on(ctx, get_optional); }

static void make_start(struct kernel_ctx *ctx) {
  struct dataset *d;
  shoal_status s = dataset_from_tensor(ctx_in(ctx, 0), &d);
  if (s) {
    ctx_done(ctx, s);
    return;
  }
  struct next_request *q = request_of(ctx, 1);
  if (q) dataset_final(ctx, d, begin_final, q);
}

/* ---- one-shot iterators: a function makes the dataset when the iterator is first asked for ---- */

static void factory_done(void *arg, shoal_status s, struct tensor *rets) {
  struct next_request *q = arg;
  struct dataset *d = NULL;
  if (!s) {
    s = dataset_from_tensor(&rets[0], &d);
    if (!s) q->data = dataset_ref(d);
    tensor_release(&rets[0]);
  }
  if (!s) s = give_handle(q->ctx);
  if (s) request_end(q, s);
  else dataset_final(q->ctx, q->data, begin_final, q);
}

static void one_shot_start(struct kernel_ctx *ctx) {
  struct handle_state *s = ctx->state;
  struct resource *r = NULL;
  bool fresh = false;
  shoal_status bad = resource_find(ctx->kernel->resources, s->name.container, &iterator_type, s->name.name, &r);
  if (bad) {
    shoal_status_free(bad);
    fresh = true;
    bad = make_iterator(&s->data.spec, &r);
    if (!bad) {
      resource_ref(r);
      bad = resource_add(ctx->kernel->resources, s->name.container, s->name.name, r);
      if (bad) { /* another step was first */
        resource_unref(r);
        resource_unref(r);
        fresh = false;
        shoal_status_free(bad);
        bad = resource_find(ctx->kernel->resources, s->name.container, &iterator_type, s->name.name, &r);
      }
    }
  }
  if (bad) {
    ctx_done(ctx, bad);
  } else if (!fresh) {
    resource_unref(r);
    ctx_done(ctx, give_handle(ctx));
  } else if (function_args(s->factory) != 0 || function_rets(s->factory) != 1) {
    resource_unref(r);
    ctx_done(ctx, INVALID("The `dataset_factory` function must return a single scalar of dtype DT_VARIANT."));
  } else {
    struct next_request *q = request_new(ctx, r);
    q->one_shot = true;
    function_call(s->factory, ctx->step, NULL, 0, factory_done, q);
  }
}

/* ---- handles as strings ---- */

shoal_status handle_to_string(struct kernel_ctx *ctx, const struct resource_type *type) {
  const struct tensor *h = ctx_in(ctx, 0);
  if (h->rank != 0) return INVALID("resource_handle must be a scalar");
  struct resource *r;
  TRY(resource_from_handle(ctx->kernel->resources, h, type, &r));
  resource_unref(r);
  struct text t = {0};
  handle_proto_encode(*T_DATA(h, struct resource_handle *const), &t);
  struct tensor *out;
  shoal_status s = ctx_out_dims(ctx, 0, 0, NULL, &out);
  if (!s) str_set(out->data, text_cstr(&t), t.n);
  text_release(&t);
  return s;
}

static shoal_status to_string_run(struct kernel_ctx *ctx) { return handle_to_string(ctx, &iterator_type); }

shoal_status handle_from_string(struct kernel_ctx *ctx, const struct resource_type *type, struct resource **out) {
  const struct tensor *in = ctx_in(ctx, 0);
  if (in->rank != 0) return INVALID("string_handle must be a scalar");
  const struct str *text = in->data;
  struct resource_handle *h = NULL;
  shoal_status bad = handle_proto_decode(str_data(text), text->size, &h);
  if (bad) {
    shoal_status_free(bad);
    return INVALID("Could not parse string_handle as a valid ResourceHandle");
  }
  struct tensor t;
  shoal_status s = tensor_new_scalar(&t, SHOAL_RESOURCE);
  if (s) {
    resource_handle_unref(h);
    return s;
  }
  *T_DATA(&t, struct resource_handle *) = h;
  if (strcmp(h->device, ctx->kernel->device->name))
    s = INVALID("Attempted create an iterator on device \"%s\" from handle defined on device \"%s\"",
                ctx->kernel->device->name, h->device);
  if (!s) s = resource_from_handle(ctx->kernel->resources, &t, type, out);
  if (s) tensor_release(&t);
  else ctx_set(ctx, 0, &t);
  return s;
}

static shoal_status from_string_run(struct kernel_ctx *ctx) {
  const struct element_spec *want = &((const struct handle_state *)ctx->state)->data.spec;
  struct resource *r;
  TRY(handle_from_string(ctx, &iterator_type, &r));
  const struct element_spec *have = &((struct iterator *)r)->spec;
  shoal_status s = element_spec_check(want, have->n, have->types, have->shapes);
  resource_unref(r);
  return s;
}

static shoal_status device_run(struct kernel_ctx *ctx) {
  const struct tensor *h = ctx_in(ctx, 0);
  struct tensor *out;
  if (h->rank != 0 || !*T_DATA(h, struct resource_handle *const)) return INVALID("resource must be a scalar handle");
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  const char *device = (*T_DATA(h, struct resource_handle *const))->device;
  str_set(out->data, device, strlen(device));
  return NULL;
}

#define HANDLE(run_, start_)                    \
  (const struct kernel_def[]) {                 \
    {.device = "CPU",                           \
     .state_size = sizeof(struct handle_state), \
     .init = handle_init,                       \
     .release = handle_release,                 \
     .run = run_,                               \
     .start = start_},                          \
    {                                           \
      0                                         \
    }                                           \
  }
#define DATA(run_, start_) DATASET_KERNELS(.run = run_, .start = start_)
#define FLAGS (OP_STATEFUL | OP_NO_GRADIENT)
#define SPEC DATASET_SPEC
#define OPEN_SPEC "output_types: list(type) >= 0 = []; output_shapes: list(shape) >= 0 = []"

static const struct op_row rows[] = {
    {.name = "Iterator",
     .out = "handle: resource",
     .attrs = "shared_name: string; container: string; " SPEC,
     .flags = FLAGS,
     .shape = shape_scalar_out,
     .kernels = HANDLE(iterator_run, NULL)},
    {.name = "IteratorV2",
     .out = "handle: resource",
     .attrs = "shared_name: string; container: string; " SPEC,
     .flags = FLAGS,
     .shape = shape_scalar_out,
     .kernels = HANDLE(iterator_run, NULL)},
    {.name = "AnonymousIterator",
     .out = "handle: resource",
     .attrs = SPEC,
     .flags = FLAGS,
     .shape = shape_scalar_out,
     .kernels = HANDLE(anonymous_run, NULL)},
    {.name = "AnonymousIteratorV2",
     .out = "handle: resource, deleter: variant",
     .attrs = SPEC,
     .flags = FLAGS,
     .shape = shape_scalar_out,
     .kernels = HANDLE(anonymous_run, NULL)},
    {.name = "AnonymousIteratorV3",
     .out = "handle: resource",
     .attrs = SPEC,
     .flags = FLAGS,
     .shape = shape_scalar_out,
     .kernels = HANDLE(anonymous_run, NULL)},
    {.name = "DeleteIterator",
     .in = "handle: resource, deleter: variant",
     .flags = FLAGS,
     .kernels = DATA(delete_run, NULL)},
    {.name = "OneShotIterator",
     .out = "handle: resource",
     .attrs = "dataset_factory: func; " SPEC "; container: string = ''; shared_name: string = ''",
     .flags = FLAGS,
     .shape = shape_scalar_out,
     .kernels = HANDLE(NULL, one_shot_start)},
    {.name = "MakeIterator",
     .in = "dataset: variant, iterator: resource",
     .flags = FLAGS,
     .kernels = DATA(NULL, make_start)},
    {.name = "IteratorGetNext",
     .in = "iterator: resource",
     .out = "components: output_types",
     .attrs = SPEC,
     .flags = FLAGS,
     .shape = dataset_element_shape,
     .kernels = DATA(NULL, get_next_start)},
    {.name = "IteratorGetNextSync",
     .in = "iterator: resource",
     .out = "components: output_types",
     .attrs = SPEC,
     .flags = FLAGS,
     .shape = dataset_element_shape,
     .kernels = DATA(NULL, get_next_start)},
    {.name = "IteratorGetNextAsOptional",
     .in = "iterator: resource",
     .out = "optional: variant",
     .attrs = SPEC,
     .flags = FLAGS,
     .shape = shape_scalar_out,
     .kernels = DATA(NULL, get_optional_start)},
    {.name = "IteratorToStringHandle",
     .in = "resource_handle: resource",
     .out = "string_handle: string",
     .flags = FLAGS,
     .shape = shape_scalar_out,
     .kernels = DATA(to_string_run, NULL)},
    {.name = "IteratorFromStringHandle",
     .in = "string_handle: string",
     .out = "resource_handle: resource",
     .attrs = OPEN_SPEC,
     .flags = FLAGS,
     .shape = shape_scalar_out,
     .kernels = HANDLE(from_string_run, NULL)},
    {.name = "IteratorFromStringHandleV2",
     .in = "string_handle: string",
     .out = "resource_handle: resource",
     .attrs = OPEN_SPEC,
     .flags = FLAGS,
     .shape = shape_scalar_out,
     .kernels = HANDLE(from_string_run, NULL)},
    {.name = "ExperimentalIteratorGetDevice",
     .in = "resource: resource",
     .out = "device: string",
     .flags = FLAGS,
     .shape = shape_scalar_out,
     .kernels = DATA(device_run, NULL)},
    {.name = "IteratorGetDevice",
     .in = "resource: resource",
     .out = "device: string",
     .flags = FLAGS,
     .shape = shape_scalar_out,
     .kernels = DATA(device_run, NULL)},
};
OP_FAMILY(iterators, rows);
