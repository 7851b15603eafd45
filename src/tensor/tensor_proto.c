/* Reading TensorProto. Bytes come from anywhere, so the order is: shape and type, then how many values the message
 * really holds, then memory, then values.
 *
 * Content wins over typed values. Typed values shorter than the shape repeat the last one; none at all are zeros;
 * surplus ones are ignored. A shape that is absent, or of unknown rank, is a scalar's. All this as TensorFlow
 * does. Repetition lets a message of ten bytes ask for any amount of memory, so it has a budget. */
#include "tensor/tensor_proto.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "proto/tensor.wire.h"
#include "proto/types.wire.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw contents are little-endian, and copied as they are");

static shoal_status malformed(const char *what) { return INVALID("Cannot parse tensor from proto: %s", what); }

/* ---- shapes ---- */

shoal_status shape_proto_decode(const void *data, size_t size, struct shape *out) {
  struct wire w = wire_from(data, size);
  struct wire_field f;
  enum wire_step r;
  bool unknown = false;
  int rank = 0;
  while ((r = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == TensorShapeProto_unknown_rank) unknown = f.value != 0;
    if (f.tag != TensorShapeProto_dim) continue;
    if (rank == SHOAL_MAX_RANK) return INVALID("Shapes of more than %d dimensions are not supported", SHOAL_MAX_RANK);
    struct wire d = wire_inside(&f);
    struct wire_field g;
    int64_t dim = 0;
    while ((r = wire_next(&d, &g)) == WIRE_FIELD)
      if (g.tag == TensorShapeProto_Dim_size) dim = (int64_t)g.value;
    if (r == WIRE_BROKEN) break;
    if (dim < -1) return INVALID("Shape has dimension %" PRId64 "; dimensions must be >= -1 (-1 being unknown)", dim);
    out->dims[rank++] = dim;
  }
  if (r == WIRE_BROKEN) return INVALID("Malformed TensorShapeProto");
  out->rank = unknown ? -1 : rank;
  if (unknown && rank) return INVALID("An unknown shape must not have any dimensions set");
  int64_t n;
  return shape_elements(out, &n);
}

/* ---- what a message says ---- */

shoal_status tensor_proto_peek(const void *data, size_t size, struct tensor_proto_view *out) {
  *out = (struct tensor_proto_view){.message = wire_from(data, size)};
  struct wire w = out->message;
  struct wire_field f;
  enum wire_step r;
  int64_t dtype = 0;
  while ((r = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == TensorProto_dtype) dtype = (int64_t)f.value;
    else if (f.tag == TensorProto_tensor_shape) TRY(shape_proto_decode(f.data, f.size, &out->shape));
    else if (f.tag == TensorProto_tensor_content) {
      out->content = wire_inside(&f);
      out->has_content = f.size > 0;
    }
  }
  if (r == WIRE_BROKEN) return malformed("malformed TensorProto");
  if (dtype <= 0 || dtype >= DTYPE_COUNT || !dtype_valid((int)dtype))
    return INVALID("Cannot parse tensor from proto: unsupported type %" PRId64, dtype);
  out->dtype = (shoal_dtype)dtype;
  if (out->shape.rank < 0) out->shape = shape_scalar();
  for (int i = 0; i < out->shape.rank; i++)
    if (out->shape.dims[i] < 0)
      return INVALID("Cannot parse tensor from proto: shape %s is not fully defined", shape_str(&out->shape));
  return tensor_bytes_for(out->dtype, &out->shape, &out->n, &out->bytes);
}

/* ---- typed values ---- */

static uint32_t tag_of(shoal_dtype t) {
  switch (t) {
    case SHOAL_FLOAT32: return TensorProto_float_val;
    case SHOAL_FLOAT64: return TensorProto_double_val;
    case SHOAL_STRING: return TensorProto_string_val;
    case SHOAL_COMPLEX64: return TensorProto_scomplex_val;
    case SHOAL_INT64: return TensorProto_int64_val;
    case SHOAL_BOOL: return TensorProto_bool_val;
    case SHOAL_COMPLEX128: return TensorProto_dcomplex_val;
    case SHOAL_FLOAT16:
    case SHOAL_BFLOAT16: return TensorProto_half_val;
    case SHOAL_RESOURCE: return TensorProto_resource_handle_val;
    case SHOAL_VARIANT: return TensorProto_variant_val;
    case SHOAL_UINT32: return TensorProto_uint32_val;
    case SHOAL_UINT64: return TensorProto_uint64_val;
    default: return TensorProto_int_val;
  }
}

/* Width on the wire of the numbers in the typed list: 4, 8, or 0 for varints. */
static unsigned wire_width(uint32_t tag) {
  enum wire_type type = wire_tag_type(tag);
  return type == WIRE_FIXED32 ? 4 : type == WIRE_FIXED64 ? 8 : 0;
}

static void put_number(void *data, size_t width, shoal_dtype t, int64_t i, uint64_t v) {
  char *at = (char *)data + (size_t)i * width;
  if (t == SHOAL_BOOL) v = v != 0;
  memcpy(at, &v, width);
}

/* Numbers of the message's typed list into data, at most n (complex types count their parts); *got says how
 * many there were. */
static shoal_status read_numbers(const struct tensor_proto_view *v, void *data, int64_t n, int64_t *got) {
  uint32_t tag = tag_of(v->dtype);
  unsigned wide = wire_width(tag);
  size_t width = wide ? wide : dtype_size(v->dtype);
  struct wire w = v->message;
  struct wire_field f;
  int64_t have = 0;
  while (have < n && wire_next(&w, &f) == WIRE_FIELD) {
    if (f.number != wire_tag_number(tag)) continue;
    if (f.type != WIRE_BYTES) {
      if (f.tag != tag) return malformed("a value of another type than its list");
      put_number(data, width, v->dtype, have++, f.value);
      continue;
    }
    if (wide) {
      if (f.size % wide) return malformed("a list of odd length");
      int64_t k = MIN((int64_t)(f.size / wide), n - have);
      if (k) memcpy((char *)data + (size_t)have * width, f.data, (size_t)k * width);
      have += k;
      continue;
    }
    struct wire list = wire_inside(&f);
    uint64_t x;
    while (list.at < list.end && have < n) {
      if (!wire_get_varint(&list, &x)) return malformed("a malformed list");
      put_number(data, width, v->dtype, have++, x);
    }
  }
  *got = have;
  return NULL;
}

/* How many values the typed list holds, at most max: decides whether the rest is repetition. */
static int64_t count_values(const struct tensor_proto_view *v, int64_t max) {
  uint32_t tag = tag_of(v->dtype);
  unsigned wide = wire_width(tag);
  bool numbers = dtype_plain(v->dtype);
  struct wire w = v->message;
  struct wire_field f;
  int64_t have = 0;
  while (have < max && wire_next(&w, &f) == WIRE_FIELD) {
    if (f.number != wire_tag_number(tag)) continue;
    if (f.type != WIRE_BYTES || !numbers) have++;
    else if (wide) have += (int64_t)(f.size / wide);
    else
      for (size_t i = 0; i < f.size; i++) have += f.data[i] < 0x80;
  }
  return MIN(have, max);
}

static void repeat(shoal_dtype t, void *data, int64_t have, int64_t n) {
  size_t width = dtype_size(t);
  char *at = data;
  if (!have) {
    memset(data, 0, (size_t)n * width);
    return;
  }
  /* The filled part doubles: a memcpy of growing blocks. */
  const char *last = at + (size_t)(have - 1) * width;
  char *to = at + (size_t)have * width;
  size_t left = (size_t)(n - have) * width, block = width;
  while (left) {
    size_t k = MIN(block, left);
    memcpy(to, last, k);
    to += k;
    left -= k;
    block += k;
  }
}

static shoal_status decode_plain(const struct tensor_proto_view *v, size_t *budget, struct tensor *out) {
  if (v->has_content) {
    if (wire_left(&v->content) != v->bytes)
      return INVALID(
          "Cannot parse tensor from proto: %zu bytes of content for a %s tensor of shape %s, which takes "
          "%zu",
          wire_left(&v->content), dtype_tf_name((int)v->dtype), shape_str(&v->shape), v->bytes);
    TRY(tensor_new(out, v->dtype, &v->shape));
    memcpy(out->data, v->content.at, v->bytes);
    if (v->dtype == SHOAL_BOOL)
      for (uint8_t *b = out->data, *end = b + v->n; b < end; b++) *b = *b != 0;
    return NULL;
  }
  int64_t parts = dtype_complex(v->dtype) ? 2 : 1, numbers;
  if (mul_overflows(v->n, parts, &numbers)) return malformed("too many elements");
  int64_t have = count_values(v, numbers);
  if (have < numbers) {
    size_t extra = v->bytes - (size_t)have * (v->bytes / (size_t)numbers);
    if (extra > *budget)
      return STATUS(SHOAL_RESOURCE_EXHAUSTED,
                    "Cannot parse tensor from proto: shape %s of type %s repeats a short "
                    "list of values over %zu bytes, more than is allowed",
                    shape_str(&v->shape), dtype_tf_name((int)v->dtype), v->bytes);
    *budget -= extra;
  }
  TRY(tensor_new(out, v->dtype, &v->shape));
  shoal_status s = read_numbers(v, out->data, numbers, &have);
  if (s) {
    tensor_release(out);
    return s;
  }
  if (have < numbers) repeat(v->dtype, out->data, have / parts, v->n);
  return NULL;
}

/* ---- strings, handles, variants ---- */

static shoal_status set_element(shoal_dtype t, void *at, struct wire w, size_t *budget, int depth) {
  if (t == SHOAL_STRING) {
    if (str_try_set(at, (const char *)w.at, wire_left(&w))) return NULL;
    return NO_MEMORY(wire_left(&w), "a string");
  }
  if (t == SHOAL_RESOURCE) return handle_proto_decode(w.at, wire_left(&w), at);
  return variant_proto_decode(w, budget, depth + 1, at);
}

/* tensor_content of such types: every length as a varint, then all bytes. */
static shoal_status read_content(const struct tensor_proto_view *v, struct tensor *out, size_t *budget, int depth) {
  struct wire lengths = v->content, bytes = v->content;
  uint64_t n;
  for (int64_t i = 0; i < v->n; i++)
    if (!wire_get_varint(&bytes, &n)) return malformed("content that ends among the lengths");
  size_t width = dtype_size(v->dtype);
  for (int64_t i = 0; i < v->n; i++) {
    if (!wire_get_varint(&lengths, &n) || n > wire_left(&bytes)) return malformed("content shorter than its lengths");
    TRY(set_element(v->dtype, (char *)out->data + (size_t)i * width, wire_from(bytes.at, (size_t)n), budget, depth));
    bytes.at += n;
  }
  if (bytes.at != bytes.end) return malformed("content longer than its lengths");
  return NULL;
}

static shoal_status read_list(const struct tensor_proto_view *v, struct tensor *out, size_t *budget, int depth) {
  struct wire w = v->message;
  struct wire_field f;
  size_t width = dtype_size(v->dtype);
  uint32_t tag = tag_of(v->dtype);
  int64_t have = 0;
  char *data = out->data;
  while (have < v->n && wire_next(&w, &f) == WIRE_FIELD) {
    if (f.number != wire_tag_number(tag)) continue;
    if (f.tag != tag) return malformed("a value of another type than its list");
    TRY(set_element(v->dtype, data + (size_t)have * width, wire_inside(&f), budget, depth));
    have++;
  }
  if (have && have < v->n && v->dtype == SHOAL_STRING) { /* each copy has its own bytes */
    size_t last = ((const struct str *)out->data)[have - 1].size;
    if (last > *budget / (size_t)(v->n - have))
      return STATUS(SHOAL_RESOURCE_EXHAUSTED,
                    "Cannot parse tensor from proto: shape %s repeats a string of %zu bytes more often than is allowed",
                    shape_str(&v->shape), last);
    *budget -= last * (size_t)(v->n - have);
  }
  for (int64_t i = have; have && i < v->n; i++) {
    if (v->dtype == SHOAL_STRING) {
      const struct str *last = (const struct str *)out->data + (have - 1);
      if (!str_try_set((struct str *)out->data + i, str_data(last), last->size))
        return NO_MEMORY(last->size, "a string");
    } else {
      elements_copy(v->dtype, data + (size_t)i * width, data + (size_t)(have - 1) * width, 1);
    }
  }
  return NULL;
}

static shoal_status decode_objects(const struct tensor_proto_view *v, size_t *budget, int depth, struct tensor *out) {
  int64_t have = v->has_content ? MIN(v->n, (int64_t)wire_left(&v->content)) : count_values(v, v->n);
  if (v->has_content && have < v->n) return malformed("content that ends among the lengths");
  if (have < v->n) {
    size_t width = dtype_size(v->dtype), extra = (size_t)(v->n - have) * width;
    if (extra > *budget)
      return STATUS(SHOAL_RESOURCE_EXHAUSTED,
                    "Cannot parse tensor from proto: shape %s of type %s needs %zu bytes for "
                    "values that are not in it, more than is allowed",
                    shape_str(&v->shape), dtype_tf_name((int)v->dtype), extra);
    *budget -= extra;
  }
  TRY(tensor_new(out, v->dtype, &v->shape));
  shoal_status s = v->has_content ? read_content(v, out, budget, depth) : read_list(v, out, budget, depth);
  if (s) tensor_release(out);
  return s;
}

shoal_status tensor_proto_decode_nested(struct wire w, size_t *budget, int depth, struct tensor *out) {
  *out = tensor_none();
  struct tensor_proto_view v;
  TRY(tensor_proto_peek(w.at, wire_left(&w), &v));
  if (!v.n) return tensor_new(out, v.dtype, &v.shape);
  return dtype_plain(v.dtype) ? decode_plain(&v, budget, out) : decode_objects(&v, budget, depth, out);
}

shoal_status tensor_proto_decode_within(const void *data, size_t size, size_t *budget, struct tensor *out) {
  return tensor_proto_decode_nested(wire_from(data, size), budget, 0, out);
}

shoal_status tensor_proto_decode(const void *data, size_t size, struct tensor *out) {
  size_t budget = TENSOR_PROTO_MAX_REPEAT;
  return tensor_proto_decode_within(data, size, &budget, out);
}
