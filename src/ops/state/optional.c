/* Optionals: a tuple of tensors, or nothing, as one variant. TF2's conditionals hand the branches' values to their
 * gradients in them, and iterators return them.
 *
 * On the way between tasks: metadata is one byte, 1 when there is a value, and the components are the variant's
 * tensors. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/gradient.h"
#include "graph/shape_fn.h"
#include "ops/state/optional.h"
#include "ops/state/tensor_list.h"
#include "runtime/kernel.h"
#include "tensor/tensor_proto.h"

struct optional {
  struct variant head;
  bool has_value;
  int n;
  struct tensor *parts; /* [n] */
};

static const struct variant_type optional_type;

static struct optional *make(int n, bool has_value) {
  struct optional *o = mem_zalloc(1, sizeof *o);
  variant_init(&o->head, &optional_type);
  o->has_value = has_value;
  o->n = n;
  o->parts = mem_zalloc((size_t)n, sizeof *o->parts);
  return o;
}

static void optional_free(struct variant *v) {
  struct optional *o = (struct optional *)v;
  for (int i = 0; i < o->n; i++) tensor_release(&o->parts[i]);
  free(o->parts);
  free(o);
}

static shoal_status optional_encode(const struct variant *v, struct text *metadata, struct tensor **tensors, int *n) {
  const struct optional *o = (const struct optional *)v;
  text_addc(metadata, o->has_value);
  *tensors = mem_zalloc((size_t)o->n, sizeof **tensors);
  for (*n = 0; *n < o->n; ++*n) tensor_ref(&(*tensors)[*n], &o->parts[*n]);
  return NULL;
}

static shoal_status optional_decode(const void *metadata, size_t size, const struct tensor *tensors, int n,
                                    struct variant **out) {
  if (size < 1) return INVALID("Malformed Optional");
  bool has_value = *(const char *)metadata != 0;
  struct optional *o = make(has_value ? n : 0, has_value);
  for (int i = 0; i < o->n; i++) tensor_ref(&o->parts[i], &tensors[i]);
  *out = &o->head;
  return NULL;
}

static struct variant *optional_zeros_like(const struct variant *v) {
  const struct optional *from = (const struct optional *)v;
  struct optional *o = make(from->n, from->has_value);
  for (int i = 0; i < o->n; i++) {
    shoal_status s = tensor_copy(&o->parts[i], &from->parts[i]);
    if (s) {
      shoal_status_free(s);
      variant_unref(&o->head);
      return NULL;
    }
    tensor_zero(&o->parts[i]);
    if (o->parts[i].dtype != SHOAL_VARIANT) continue;
    struct variant **zero = o->parts[i].data, *const *value = from->parts[i].data;
    for (int64_t k = 0; k < o->parts[i].n; k++)
      if (value[k] && value[k]->type->zeros_like) zero[k] = value[k]->type->zeros_like(value[k]);
  }
  return &o->head;
}

static shoal_status optional_add(const struct variant *va, const struct variant *vb, struct variant **out) {
  const struct optional *a = (const struct optional *)va, *b = (const struct optional *)vb;
  if (a->has_value != b->has_value)
    return INVALID("Cannot add optionals because one has a value and the other doesn't.");
  if (a->n != b->n)
    return INVALID("Cannot add optionals because they have different numbers of components (%d vs. %d).", a->n, b->n);
  struct optional *o = make(a->n, a->has_value);
  for (int i = 0; i < o->n; i++) {
    shoal_status s = a->parts[i].dtype == b->parts[i].dtype
                         ? tensors_add(&a->parts[i], &b->parts[i], &o->parts[i])
                         : INVALID("Cannot add optionals because component %d has different types.", i);
    if (!s) continue;
    o->parts[i] = tensor_none();
    variant_unref(&o->head);
    return s;
  }
  *out = &o->head;
  return NULL;
}

static const struct variant_type optional_type = {.name = "tensorflow::data::Optional",
                                                  .free = optional_free,
                                                  .encode = optional_encode,
                                                  .decode = optional_decode,
                                                  .zeros_like = optional_zeros_like,
                                                  .add = optional_add};
__attribute__((constructor)) static void register_type(void) { variant_type_register(&optional_type); }

shoal_status optional_to_tensor(struct tensor *values, int n, struct tensor *out) {
  struct optional *o = make(values ? n : 0, values != NULL);
  for (int i = 0; i < o->n; i++) {
    tensor_move(&o->parts[i], &values[i]);
    values[i] = tensor_none();
  }
  shoal_status s = tensor_new_scalar(out, SHOAL_VARIANT);
  if (s) variant_unref(&o->head);
  else *T_DATA(out, struct variant *) = &o->head;
  return s;
}

/* ---- kernels ---- */

static shoal_status put(struct kernel_ctx *ctx, struct optional *o) {
  struct tensor *t;
  struct shape scalar = shape_scalar();
  shoal_status s = ctx_out(ctx, 0, &scalar, &t);
  if (s) variant_unref(&o->head);
  else *T_DATA(t, struct variant *) = &o->head;
  return s;
}

static shoal_status from_value_run(struct kernel_ctx *ctx) {
  struct optional *o = make(ctx->kernel->n_in, true);
  for (int i = 0; i < o->n; i++) tensor_ref(&o->parts[i], ctx_in(ctx, i));
  return put(ctx, o);
}

static shoal_status none_run(struct kernel_ctx *ctx) { return put(ctx, make(0, false)); }

static shoal_status get(const struct kernel_ctx *ctx, const struct optional **out) {
  const struct tensor *t = ctx_in(ctx, 0);
  const struct variant *v = t->rank == 0 ? *T_DATA(t, struct variant *const) : NULL;
  if (!v || v->type != &optional_type) return INVALID("Input is not an Optional.");
  *out = (const struct optional *)v;
  return NULL;
}

static shoal_status has_value_run(struct kernel_ctx *ctx) {
  const struct optional *o;
  struct tensor *y;
  struct shape scalar = shape_scalar();
  TRY(get(ctx, &o));
  TRY(ctx_out(ctx, 0, &scalar, &y));
  *T_DATA(y, bool) = o->has_value;
  return NULL;
}

struct expected {
  int n;
  struct shape *shapes;
};

static shoal_status get_value_init(struct kernel_init *ki, void *state) {
  struct expected *e = state;
  const struct attr *list;
  TRY(node_get_list(ki->node, "output_shapes", ATTR_SHAPE, &list));
  if (list->list.n != (size_t)ki->kernel->n_out)
    return INVALID("output_types and output_shapes must be same length, got:\noutput_types: %d\noutput_shapes: %zu",
                   ki->kernel->n_out, list->list.n);
  e->n = (int)list->list.n;
  e->shapes = mem_zalloc(list->list.n, sizeof *e->shapes);
  for (int i = 0; i < e->n; i++) e->shapes[i] = *list->list.at[i].shape;
  return NULL;
}

static void get_value_release(void *state) { free(((struct expected *)state)->shapes); }

static shoal_status get_value_run(struct kernel_ctx *ctx) {
  const struct expected *e = ctx->state;
  const struct optional *o;
  TRY(get(ctx, &o));
  if (!o->has_value) return INVALID("The given optional does not have a value.");
  if (o->n != ctx->kernel->n_out)
    return INVALID("The given optional has %d components, expected %d.", o->n, ctx->kernel->n_out);
  for (int i = 0; i < o->n; i++) {
    struct shape have = tensor_shape(&o->parts[i]);
    if (o->parts[i].dtype != ctx_out_type(ctx, i))
      return INVALID("The given optional does not match the expected type for component %d. Expected: %s. Actual: %s.",
                     i, dtype_tf_name(ctx_out_type(ctx, i)), dtype_tf_name(o->parts[i].dtype));
    if (!shape_compatible(&have, &e->shapes[i]))
      return INVALID("The given optional does not match the expected shape for component %d. Expected: %s. Actual: %s.",
                     i, shape_str(&e->shapes[i]), shape_str(&have));
    struct tensor t;
    tensor_ref(&t, &o->parts[i]);
    ctx_set(ctx, i, &t);
  }
  return NULL;
}

/* ---- shapes and gradients ---- */

static shoal_status get_value_shape(struct shape_ctx *c) {
  const struct attr *list;
  TRY(node_get_list(c->node, "output_shapes", ATTR_SHAPE, &list));
  for (int i = 0; i < c->node->n_out && (size_t)i < list->list.n; i++) c->out[i] = *list->list.at[i].shape;
  return NULL;
}

static shoal_status from_value_grad(struct grad_ctx *c) {
  struct build b = build_begin(c->g, "OptionalGetValue", NULL);
  build_in(&b, grad_dy(c, 0));
  struct attr types = attr_list(ATTR_TYPE), shapes = attr_list(ATTR_SHAPE);
  for (int i = 0; i < c->node->n_in; i++) {
    struct shape s = out_shape(gin(c, i));
    attr_list_add(&types, attr_type(out_type(gin(c, i))));
    attr_list_add(&shapes, attr_shape(&s));
  }
  build_attr(&b, "output_types", types);
  build_attr(&b, "output_shapes", shapes);
  struct shoal_node *n = build_end(&b);
  for (int i = 0; n && i < c->node->n_in; i++) grad_set(c, i, node_out(n, i));
  return NULL;
}

static shoal_status get_value_grad(struct grad_ctx *c) {
  struct build b = build_begin(c->g, "OptionalFromValue", NULL);
  for (int i = 0; i < c->node->n_out; i++) build_in(&b, grad_dy(c, i));
  grad_set(c, 0, build_end_out(&b));
  return NULL;
}

#define KERNEL(name) \
  static const struct kernel_def name##_kernels[] = {{.device = "CPU", .flags = KERNEL_CHEAP, .run = name##_run}, {0}}
KERNEL(from_value);
KERNEL(none);
KERNEL(has_value);
static const struct kernel_def get_value_kernels[] = {{.device = "CPU",
                                                       .flags = KERNEL_CHEAP,
                                                       .state_size = sizeof(struct expected),
                                                       .init = get_value_init,
                                                       .release = get_value_release,
                                                       .run = get_value_run},
                                                      {0}};

static const struct op_row rows[] = {
    {.name = "OptionalFromValue",
     .in = "components: Toutput_types",
     .out = "optional: variant",
     .attrs = "Toutput_types: list(type) >= 1",
     .shape = shape_scalar_out,
     .grad = from_value_grad,
     .kernels = from_value_kernels},
    {.name = "OptionalNone",
     .out = "optional: variant",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = none_kernels},
    {.name = "OptionalHasValue",
     .in = "optional: variant",
     .out = "has_value: bool",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = has_value_kernels},
    {.name = "OptionalGetValue",
     .in = "optional: variant",
     .out = "components: output_types",
     .attrs = "output_types: list(type) >= 1; output_shapes: list(shape) >= 1",
     .shape = get_value_shape,
     .grad = get_value_grad,
     .kernels = get_value_kernels},
};
OP_FAMILY(optional, rows);
