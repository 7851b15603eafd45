/* Writing TensorProto; the reading half is tensor_proto.c. */
#include <stdlib.h>

#include "base/mem.h"
#include "proto/tensor.wire.h"
#include "proto/types.wire.h"
#include "tensor/tensor_proto.h"

void shape_proto_encode(const struct shape *s, struct text *out) {
  if (s->rank < 0) {
    put_TensorShapeProto_unknown_rank(out, 1);
    return;
  }
  for (int i = 0; i < s->rank; i++) {
    size_t at = begin_TensorShapeProto_dim(out);
    if (s->dims[i]) put_TensorShapeProto_Dim_size(out, s->dims[i]); /* proto3 leaves out zeros */
    wire_end(out, at);
  }
}

static void put_shape(const struct tensor *t, struct text *out) {
  struct shape s = tensor_shape(t);
  size_t at = begin_TensorProto_tensor_shape(out);
  shape_proto_encode(&s, out);
  wire_end(out, at);
}

void tensor_proto_header(const struct tensor *t, struct text *out) {
  put_TensorProto_dtype(out, t->dtype);
  if (t->rank) put_shape(t, out);
  size_t n = tensor_bytes(t);
  wire_put_varint(out, TensorProto_tensor_content);
  wire_put_varint(out, n);
}

/* One element of a type that is not plain bytes. */
static shoal_status put_element(shoal_dtype t, const void *at, int depth, struct text *out) {
  if (t == SHOAL_STRING) {
    const struct str *s = at;
    text_add(out, str_data(s), s->size);
    return NULL;
  }
  if (t == SHOAL_RESOURCE) {
    const struct resource_handle *h = *(struct resource_handle *const *)at;
    if (h) handle_proto_encode(h, out);
    return NULL;
  }
  return variant_proto_encode(*(struct variant *const *)at, depth + 1, out);
}

static shoal_status put_list(const struct tensor *t, uint32_t tag, int depth, struct text *out) {
  size_t width = dtype_size((shoal_dtype)t->dtype);
  for (int64_t i = 0; i < t->n; i++) {
    size_t at = wire_open(out, tag);
    TRY(put_element((shoal_dtype)t->dtype, (const char *)t->data + (size_t)i * width, depth, out));
    wire_end(out, at);
  }
  return NULL;
}

/* Strings travel as content: all lengths, then all bytes. */
static void put_strings(const struct tensor *t, struct text *out) {
  const struct str *s = t->data;
  size_t total = 0;
  for (int64_t i = 0; i < t->n; i++) total += wire_varint_size(s[i].size) + s[i].size;
  wire_put_varint(out, TensorProto_tensor_content);
  wire_put_varint(out, total);
  for (int64_t i = 0; i < t->n; i++) wire_put_varint(out, s[i].size);
  for (int64_t i = 0; i < t->n; i++) text_add(out, str_data(&s[i]), s[i].size);
}

shoal_status tensor_proto_encode_nested(const struct tensor *t, int depth, struct text *out) {
  if (!tensor_valid(t)) return NULL;
  put_TensorProto_dtype(out, t->dtype);
  put_shape(t, out);
  if (dtype_plain((shoal_dtype)t->dtype)) {
    put_TensorProto_tensor_content_n(out, t->data, tensor_bytes(t));
    return NULL;
  }
  if (t->dtype == SHOAL_STRING) {
    if (t->n) put_strings(t, out);
    return NULL;
  }
  return put_list(t, t->dtype == SHOAL_RESOURCE ? TensorProto_resource_handle_val : TensorProto_variant_val, depth,
                  out);
}

shoal_status tensor_proto_encode(const struct tensor *t, struct text *out) {
  return tensor_proto_encode_nested(t, 0, out);
}

/* ---- the compact form ---- */

/* Element i of a type whose values travel as varints. */
static uint64_t varint_at(const struct tensor *t, int64_t i) {
  const void *d = t->data;
  switch ((shoal_dtype)t->dtype) {
    case SHOAL_INT64: return (uint64_t)((const int64_t *)d)[i];
    case SHOAL_UINT64: return ((const uint64_t *)d)[i];
    case SHOAL_UINT32: return ((const uint32_t *)d)[i];
    case SHOAL_FLOAT16:
    case SHOAL_BFLOAT16:
    case SHOAL_UINT16:
    case SHOAL_QUINT16: return ((const uint16_t *)d)[i];
    case SHOAL_BOOL:
    case SHOAL_UINT8:
    case SHOAL_QUINT8: return ((const uint8_t *)d)[i];
    case SHOAL_INT16:
    case SHOAL_QINT16: return (uint64_t)(int64_t)((const int16_t *)d)[i];
    case SHOAL_INT8:
    case SHOAL_QINT8: return (uint64_t)(int64_t)((const int8_t *)d)[i];
    default: return (uint64_t)(int64_t)((const int32_t *)d)[i];
  }
}

static uint32_t varint_tag(shoal_dtype t) {
  switch (t) {
    case SHOAL_INT64: return TensorProto_int64_val_packed;
    case SHOAL_UINT64: return TensorProto_uint64_val_packed;
    case SHOAL_UINT32: return TensorProto_uint32_val_packed;
    case SHOAL_BOOL: return TensorProto_bool_val_packed;
    case SHOAL_FLOAT16:
    case SHOAL_BFLOAT16: return TensorProto_half_val_packed;
    default: return TensorProto_int_val_packed;
  }
}

/* The first n elements, of a plain type. */
static void put_typed(const struct tensor *t, int64_t n, struct text *out) {
  size_t bytes = (size_t)n * dtype_size((shoal_dtype)t->dtype);
  switch ((shoal_dtype)t->dtype) {
    case SHOAL_FLOAT32: put_TensorProto_float_val_packed_n(out, t->data, bytes); return;
    case SHOAL_FLOAT64: put_TensorProto_double_val_packed_n(out, t->data, bytes); return;
    case SHOAL_COMPLEX64: put_TensorProto_scomplex_val_packed_n(out, t->data, bytes); return;
    case SHOAL_COMPLEX128: put_TensorProto_dcomplex_val_packed_n(out, t->data, bytes); return;
    default: break;
  }
  size_t at = wire_open(out, varint_tag((shoal_dtype)t->dtype));
  for (int64_t i = 0; i < n; i++) wire_put_varint(out, varint_at(t, i));
  wire_end(out, at);
}

/* Bit for bit, so that -0 and NaN stay what they are. */
static bool all_equal(const struct tensor *t) {
  size_t width = dtype_size((shoal_dtype)t->dtype), bytes = tensor_bytes(t);
  return t->n > 0 && memcmp(t->data, (const char *)t->data + width, bytes - width) == 0;
}

/* Of plain types the first n elements. */
static shoal_status put_fields(const struct tensor *t, int64_t n, struct text *out) {
  shoal_dtype dtype = (shoal_dtype)t->dtype;
  put_TensorProto_dtype(out, t->dtype);
  put_shape(t, out);
  if (dtype_plain(dtype)) {
    if (n) put_typed(t, n, out);
    return NULL;
  }
  if (dtype == SHOAL_STRING) return put_list(t, TensorProto_string_val, 0, out);
  return put_list(t, dtype == SHOAL_RESOURCE ? TensorProto_resource_handle_val : TensorProto_variant_val, 0, out);
}

shoal_status tensor_proto_compact(const struct tensor *t, struct text *out) {
  if (!tensor_valid(t)) return NULL;
  shoal_dtype dtype = (shoal_dtype)t->dtype;
  if (dtype_plain(dtype) && !all_equal(t)) return tensor_proto_encode(t, out);
  return put_fields(t, 1, out);
}

shoal_status tensor_proto_fields(const struct tensor *t, struct text *out) {
  return tensor_valid(t) ? put_fields(t, t->n, out) : NULL;
}
