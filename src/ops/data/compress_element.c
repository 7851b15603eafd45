/* CompressElement and UncompressElement: the components of a dataset's element packed into one value.
 *
 * The value is TensorFlow's CompressedElement, and travels as that message:
 *   1 data                 Snappy's block (base/snappy.h) of all components' bytes, one after another
 *   2 component_metadata   for each: 1 dtype, 2 shape, 4 (packed) how many bytes: of each string, or of all elements
 *                          (nothing of none); other types stand there as a TensorProto
 *   3 version              0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/snappy.h"
#include "ops/array/array_util.h"
#include "ops/data/dataset_state.h"
#include "proto/dataset.wire.h"
#include "tensor/strings.h"
#include "tensor/tensor_proto.h"

struct packed_element {
  struct variant head;
  char *message; /* CompressedElement */
  size_t n;
};

static void packed_free(struct variant *v) {
  free(((struct packed_element *)v)->message);
  free(v);
}

static shoal_status packed_encode(const struct variant *v, struct text *metadata, struct tensor **tensors, int *n) {
  const struct packed_element *p = (const struct packed_element *)v;
  *n = 0;
  *tensors = NULL;
  return text_try_add(metadata, p->message, p->n) ? NULL : NO_MEMORY(p->n, "a packed element");
}

static const struct variant_type packed_type;

/* NULL when there is no memory. */
static struct variant *packed_new(const char *message, size_t n) {
  char *copy = mem_try_strndup(message, n);
  if (!copy) return NULL;
  struct packed_element *p = mem_zalloc(1, sizeof *p);
  p->message = copy;
  p->n = n;
  variant_init(&p->head, &packed_type);
  return &p->head;
}

static shoal_status packed_decode(const void *metadata, size_t size, const struct tensor *tensors, int n,
                                  struct variant **out) {
  *out = packed_new(metadata, size);
  return *out ? NULL : NO_MEMORY(size, "a packed element");
}

static const struct variant_type packed_type = {
    .name = "tensorflow.data.CompressedElement", .free = packed_free, .encode = packed_encode, .decode = packed_decode};

__attribute__((constructor)) static void register_type(void) { variant_type_register(&packed_type); }

/* ---- packing ---- */

/* A component's bytes, and what the message says of them. */
static shoal_status add_component(const struct tensor *t, struct text *bytes, struct text *message) {
  struct text sizes = {0};
  struct shape shape = tensor_shape(t);
  size_t begun = begin_CompressedElement_component_metadata(message), before = bytes->n;
  put_CompressedComponentMetadata_dtype(message, t->dtype);
  size_t shape_at = begin_CompressedComponentMetadata_tensor_shape(message);
  shape_proto_encode(&shape, message);
  wire_end(message, shape_at);
  bool fits = true;
  shoal_status s = NULL;
  if (t->dtype == SHOAL_STRING) {
    for (int64_t i = 0; fits && i < t->n; i++) {
      const struct str *e = &T_DATA(t, const struct str)[i];
      fits = text_try_add(bytes, str_data(e), e->size);
      wire_put_varint(&sizes, e->size);
    }
  } else {
    if (dtype_plain((shoal_dtype)t->dtype)) fits = text_try_add(bytes, t->data, tensor_bytes(t));
    else s = tensor_proto_encode(t, bytes);
    if (bytes->n > before) wire_put_varint(&sizes, bytes->n - before);
  }
  if (sizes.n) put_CompressedComponentMetadata_uncompressed_bytes_packed_n(message, sizes.at, sizes.n);
  wire_end(message, begun);
  text_release(&sizes);
  return s ? s : fits ? NULL : NO_MEMORY(tensor_bytes(t), "an element to pack");
}

static shoal_status compress_run(struct kernel_ctx *ctx) {
  struct text bytes = {0}, packed = {0}, components = {0}, message = {0};
  struct tensor *out;
  shoal_status s = NULL;
  for (int i = 0; !s && i < ctx->kernel->n_in; i++) s = add_component(ctx_in(ctx, i), &bytes, &components);
  if (!s && bytes.n > UINT32_MAX)
    s = STATUS(SHOAL_OUT_OF_RANGE, "Encountered dataset element of size %zu, exceeding the 4GB Snappy limit.", bytes.n);
  if (!s && !snappy_encode(text_cstr(&bytes), bytes.n, &packed)) s = NO_MEMORY(bytes.n, "a packed element");
  if (!s) s = ctx_out_dims(ctx, 0, 0, NULL, &out);
  if (!s) {
    put_CompressedElement_data_n(&message, packed.at, packed.n);
    text_add(&message, text_cstr(&components), components.n);
    *T_DATA(out, struct variant *) = packed_new(text_cstr(&message), message.n);
    if (!*T_DATA(out, struct variant *)) s = NO_MEMORY(message.n, "a packed element");
  }
  text_release(&bytes);
  text_release(&packed);
  text_release(&components);
  text_release(&message);
  return s;
}

/* ---- unpacking: everything in the message is a stranger's ---- */

struct component {
  shoal_dtype type;
  struct shape shape;
  struct wire sizes; /* packed numbers */
};

static shoal_status broken(void) { return INVALID("Failed to parse a compressed element"); }

static shoal_status read_component(struct wire w, struct component *c) {
  struct wire_field f;
  enum wire_step step;
  *c = (struct component){.shape = shape_scalar()};
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == CompressedComponentMetadata_dtype) c->type = (shoal_dtype)(f.value & 127);
    if (f.tag == CompressedComponentMetadata_tensor_shape) TRY(shape_proto_decode(f.data, f.size, &c->shape));
    if (f.tag == CompressedComponentMetadata_uncompressed_bytes_packed) c->sizes = wire_inside(&f);
  }
  return step == WIRE_END && c->shape.rank >= 0 ? NULL : broken();
}

static bool take(struct wire *from, struct wire *sizes, struct wire *out) {
  uint64_t n;
  if (!wire_get_varint(sizes, &n) || n > wire_left(from)) return false;
  *out = wire_from(from->at, (size_t)n);
  from->at += n;
  return true;
}

static shoal_status unpack_component(struct component *c, struct wire *bytes, struct tensor *out) {
  struct wire part;
  int64_t n;
  size_t size;
  TRY(tensor_bytes_for(c->type, &c->shape, &n, &size));
  if (c->type == SHOAL_STRING) {
    if ((uint64_t)n > wire_left(&c->sizes)) return broken();
    TRY(tensor_new(out, c->type, &c->shape));
    for (int64_t i = 0; i < n; i++) {
      if (!take(bytes, &c->sizes, &part)) return broken();
      if (!str_try_set(&T_DATA(out, struct str)[i], (const char *)part.at, wire_left(&part)))
        return NO_MEMORY(wire_left(&part), "a string");
    }
    return NULL;
  }
  if (!size) return tensor_new(out, c->type, &c->shape);
  if (!take(bytes, &c->sizes, &part)) return broken();
  if (!dtype_plain(c->type)) {
    TRY(tensor_proto_decode(part.at, wire_left(&part), out));
    struct shape have = tensor_shape(out);
    return out->dtype == c->type && shape_compatible(&have, &c->shape) ? NULL : broken();
  }
  if (wire_left(&part) != size) return broken();
  TRY(tensor_new(out, c->type, &c->shape));
  memcpy(out->data, part.at, size);
  if (c->type == SHOAL_BOOL)
    for (uint8_t *b = out->data, *end = b + n; b < end; b++) *b = *b != 0;
  return NULL;
}

static shoal_status other_number(const struct kernel_ctx *ctx) {
  return STATUS(SHOAL_FAILED_PRECONDITION, "Expected %d outputs from uncompress, which the element has not",
                ctx->kernel->n_out);
}

static shoal_status unpack_all(struct kernel_ctx *ctx, struct wire message, struct wire bytes) {
  const struct dataset_state *s = ctx->state;
  struct wire_field f;
  enum wire_step step;
  int i = 0;
  while ((step = wire_next(&message, &f)) == WIRE_FIELD) {
    if (f.tag != CompressedElement_component_metadata) continue;
    struct component c;
    if (i >= ctx->kernel->n_out) return other_number(ctx);
    TRY(read_component(wire_inside(&f), &c));
    if (c.type != ctx_out_type(ctx, i))
      return STATUS(SHOAL_FAILED_PRECONDITION, "Expected a tensor of type %s but got a tensor of type %s",
                    dtype_tf_name(ctx_out_type(ctx, i)), dtype_tf_name(c.type));
    if (i < s->spec.n && !shape_compatible(&c.shape, &s->spec.shapes[i]))
      return STATUS(SHOAL_FAILED_PRECONDITION, "Expected a tensor of shape %s but got a tensor of shape %s",
                    shape_str(&s->spec.shapes[i]), shape_str(&c.shape));
    TRY(unpack_component(&c, &bytes, &ctx->out[i]));
    i++;
  }
  if (step != WIRE_END) return broken();
  return i == ctx->kernel->n_out ? NULL : other_number(ctx);
}

static shoal_status uncompress_run(struct kernel_ctx *ctx) {
  const struct tensor *t = ctx_in(ctx, 0);
  const struct variant *v = t->rank == 0 ? *T_DATA(t, struct variant *const) : NULL;
  if (!v || v->type != &packed_type)
    return INVALID("Tensor does not contain a compressed element. Did you compress it with CompressElement?");
  const struct packed_element *p = (const struct packed_element *)v;
  struct wire message = wire_from(p->message, p->n), packed;
  char *plain = NULL;
  size_t n = 0;
  if (!find_CompressedElement_data(message, &packed)) return broken();
  uint64_t length = snappy_length(packed.at, wire_left(&packed));
  if (!strings_have_room(length)) return NO_MEMORY(length, "an unpacked element");
  TRY(snappy_decode(packed.at, wire_left(&packed), &plain, &n));
  shoal_status s = unpack_all(ctx, message, wire_from(plain, n));
  free(plain);
  return s;
}

static const struct op_row rows[] = {
    {.name = "CompressElement",
     .in = "components: input_types",
     .out = "compressed: variant",
     .attrs = "input_types: list(type) >= 1",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = (const struct kernel_def[]){{.device = "CPU", .run = compress_run}, {0}}},
    {.name = "UncompressElement",
     .in = "compressed: variant",
     .out = "components: output_types",
     .attrs = DATASET_SPEC,
     .flags = OP_NO_GRADIENT,
     .shape = dataset_element_shape,
     .kernels = DATASET_KERNELS(.run = uncompress_run)},
};
OP_FAMILY(compress_element, rows);
