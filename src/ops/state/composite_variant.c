/* CompositeTensorVariantFromComponents and ToComponents: tensors that make up one value (a ragged or sparse tensor, a
 * class of a program's own) as a variant, and back.
 *
 * The attribute `metadata` says what kind of value it is: CompositeTensorVariantMetadata{1: TypeSpecProto{1:
 * type_spec_class}}. It travels with the tensors, under TensorFlow's name. */
#include <stdlib.h>

#include "base/wire.h"
#include "ops/array/array_util.h"
#include "proto/attributes.wire.h"
#include "proto/saved_object.wire.h"
#include "tensor/tensor_proto.h"

struct composite {
  struct variant head;
  char *metadata;
  size_t size;
  struct tensor *parts; /* [n] */
  int n;
};

static void composite_free(struct variant *v) {
  struct composite *c = (struct composite *)v;
  for (int i = 0; i < c->n; i++) tensor_release(&c->parts[i]);
  free(c->parts);
  free(c->metadata);
  free(c);
}

static shoal_status composite_encode(const struct variant *v, struct text *metadata, struct tensor **tensors, int *n) {
  const struct composite *c = (const struct composite *)v;
  text_add(metadata, c->metadata, c->size);
  *n = c->n;
  *tensors = mem_zalloc((size_t)MAX(c->n, 1), sizeof **tensors);
  for (int i = 0; i < c->n; i++) tensor_ref(&(*tensors)[i], &c->parts[i]);
  return NULL;
}

static const struct variant_type composite_type;

static struct composite *composite_new(const void *metadata, size_t size, int n) {
  struct composite *c = mem_zalloc(1, sizeof *c);
  variant_init(&c->head, &composite_type);
  c->metadata = mem_strndup(metadata, size);
  c->size = size;
  c->n = n;
  c->parts = mem_zalloc((size_t)MAX(n, 1), sizeof *c->parts);
  return c;
}

static shoal_status composite_decode(const void *metadata, size_t size, const struct tensor *tensors, int n,
                                     struct variant **out) {
  struct composite *c = composite_new(metadata, size, n);
  for (int i = 0; i < n; i++) tensor_ref(&c->parts[i], &tensors[i]);
  *out = &c->head;
  return NULL;
}

static const struct variant_type composite_type = {
    .name = "CompositeTensorVariant", .free = composite_free, .encode = composite_encode, .decode = composite_decode};

__attribute__((constructor)) static void register_type(void) { variant_type_register(&composite_type); }

/* ---- ops ---- */

struct composite_state {
  char *metadata;
  size_t size;
};

/* The class that the metadata names; false when it is no such message. */
static bool class_of(const void *metadata, size_t size, uint64_t *out) {
  struct wire w = wire_from(metadata, size);
  struct wire_field f, g;
  enum wire_step step, inner = WIRE_END;
  *out = 0;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag != CompositeTensorVariantMetadata_type_spec_proto) continue;
    struct wire spec = wire_inside(&f);
    while ((inner = wire_next(&spec, &g)) == WIRE_FIELD)
      if (g.tag == TypeSpecProto_type_spec_class) *out = g.value;
    if (inner == WIRE_BROKEN) return false;
  }
  return step == WIRE_END;
}

static shoal_status init(struct kernel_init *ki, void *state) {
  struct composite_state *s = state;
  const struct attr *a = node_attr(ki->node, "metadata");
  uint64_t class;
  if (!a || a->kind != ATTR_STRING || !class_of(a->s.data, a->s.n, &class)) return INVALID("Error parsing metadata");
  s->metadata = mem_strndup(a->s.data, a->s.n);
  s->size = a->s.n;
  return NULL;
}

static void release(void *state) { free(((struct composite_state *)state)->metadata); }

static shoal_status from_run(struct kernel_ctx *ctx) {
  const struct composite_state *s = ctx->state;
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  struct composite *c = composite_new(s->metadata, s->size, ctx->kernel->n_in);
  for (int i = 0; i < c->n; i++) tensor_ref(&c->parts[i], ctx_in(ctx, i));
  *T_DATA(out, struct variant *) = &c->head;
  return NULL;
}

static shoal_status to_run(struct kernel_ctx *ctx) {
  const struct composite_state *s = ctx->state;
  const struct tensor *t = ctx_in(ctx, 0);
  if (t->rank) return INVALID("Expected `encoded` to be a scalar, got shape %s", tensor_shape_str(t));
  const struct variant *v = *T_DATA(t, struct variant *const);
  uint64_t have, want;
  if (!v || v->type != &composite_type) return INVALID("The input Variant doesn't hold a CompositeTensorVariant");
  const struct composite *c = (const struct composite *)v;
  if (!class_of(c->metadata, c->size, &have) || !class_of(s->metadata, s->size, &want) || have != want)
    return INVALID("Expected a CompositeTensorVariant of another kind of value than the one that is given");
  if (c->n != ctx->kernel->n_out)
    return INVALID("Encoded value has %d components; but Tcomponents.size() = %d", c->n, ctx->kernel->n_out);
  for (int i = 0; i < c->n; i++)
    if (c->parts[i].dtype != ctx_out_type(ctx, i))
      return INVALID("Encoded value had dtype %s for component %d; but Tcomponents[%d] is %s",
                     dtype_tf_name((shoal_dtype)c->parts[i].dtype), i, i, dtype_tf_name(ctx_out_type(ctx, i)));
  for (int i = 0; i < c->n; i++) {
    struct tensor part;
    tensor_ref(&part, &c->parts[i]);
    ctx_set(ctx, i, &part);
  }
  return NULL;
}

#define KERNEL(run_)                                                                                                  \
  (const struct kernel_def[]) {                                                                                       \
    {.device = "CPU", .state_size = sizeof(struct composite_state), .init = init, .release = release, .run = run_}, { \
      0                                                                                                               \
    }                                                                                                                 \
  }

static const struct op_row rows[] = {
    {.name = "CompositeTensorVariantFromComponents",
     .in = "components: Tcomponents",
     .out = "encoded: variant",
     .attrs = "metadata: string; Tcomponents: list(type) >= 0",
     .shape = shape_scalar_out,
     .flags = OP_NO_GRADIENT,
     .kernels = KERNEL(from_run)},
    {.name = "CompositeTensorVariantToComponents",
     .in = "encoded: variant",
     .out = "components: Tcomponents",
     .attrs = "metadata: string; Tcomponents: list(type) >= 0",
     .flags = OP_NO_GRADIENT,
     .kernels = KERNEL(to_run)},
};
OP_FAMILY(composite_variant, rows);
