/* Tensors and shapes as TensorFlow's messages, read and written straight on the wire.
 *
 * TensorProto has two ways to hold values: tensor_content (raw bytes), and typed lists whose last value repeats to
 * the end. Both are read; which is written depends on who will read it:
 *   tensor_proto_encode   tensor_content: feeds, fetches, transfers
 *   tensor_proto_compact  typed values, repeats cut, raw bytes where shorter: attributes of nodes
 *   tensor_proto_fields   typed values, all of them: for clients who read those alone (TensorFlow Serving's)
 *   tensor_proto_header   all but the raw bytes, for framing around the tensor's own buffer */
#ifndef TENSOR_TENSOR_PROTO_H
#define TENSOR_TENSOR_PROTO_H

#include "base/wire.h"
#include "tensor/tensor.h"

/* Most bytes that repetition may make of a short message: content has to be sent, repetition is free to ask for. */
#define TENSOR_PROTO_MAX_REPEAT ((size_t)1 << 30)

/* What a message says before its values are looked at. */
struct tensor_proto_view {
  shoal_dtype dtype;
  struct shape shape; /* fully known */
  int64_t n;          /* elements */
  size_t bytes;       /* that they take in memory */
  bool has_content;
  struct wire content; /* tensor_content */
  struct wire message; /* the whole */
};
shoal_status tensor_proto_peek(const void *data, size_t size, struct tensor_proto_view *out);

/* A tensor with memory of its own. */
shoal_status tensor_proto_decode(const void *data, size_t size, struct tensor *out);
/* The same; bytes made by repetition are taken from *budget, which must suffice. */
shoal_status tensor_proto_decode_within(const void *data, size_t size, size_t *budget, struct tensor *out);

shoal_status tensor_proto_encode(const struct tensor *t, struct text *out);
shoal_status tensor_proto_compact(const struct tensor *t, struct text *out);
shoal_status tensor_proto_fields(const struct tensor *t, struct text *out);
/* Plain types only. What follows in the message is tensor_bytes(t) bytes from t->data. */
void tensor_proto_header(const struct tensor *t, struct text *out);

/* TensorShapeProto; partly known shapes too. Ranks above SHOAL_MAX_RANK are INVALID_ARGUMENT. */
shoal_status shape_proto_decode(const void *data, size_t size, struct shape *out);
void shape_proto_encode(const struct shape *s, struct text *out);

/* ResourceHandleProto. */
shoal_status handle_proto_decode(const void *data, size_t size, struct resource_handle **out);
void handle_proto_encode(const struct resource_handle *h, struct text *out);

/* Variants travel by type name: a type is known once registered (it must live for ever). Values of types that are
 * not known are kept as they came, and go out again as they are. */
void variant_type_register(const struct variant_type *type);
const struct variant_type *variant_type_find(const char *name, size_t n);

/* VariantTensorDataProto; an empty one is NULL. depth counts variants inside tensors inside variants. */
enum { VARIANT_MAX_DEPTH = 32 };
shoal_status variant_proto_decode(struct wire w, size_t *budget, int depth, struct variant **out);
shoal_status variant_proto_encode(const struct variant *v, int depth, struct text *out);
/* For variant_proto.c alone: the tensors inside. */
shoal_status tensor_proto_decode_nested(struct wire w, size_t *budget, int depth, struct tensor *out);
shoal_status tensor_proto_encode_nested(const struct tensor *t, int depth, struct text *out);

#endif
