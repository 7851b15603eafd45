/* Writing checkpoints of the first format; see slices_v1.h. */
#include <string.h>

#include "checkpoint/slices_v1.h"
#include "proto/checkpoint.wire.h"
#include "proto/tensor.wire.h"
#include "proto/types.wire.h"
#include "tensor/tensor_proto.h"

struct v1_item {
  struct text key, value;
};

/* TensorProto's packed integers: one varint an element, sign-extended. */
#define PUT_INTS(type, tag)                                                                         \
  do {                                                                                              \
    size_t at_ = wire_open(out, tag);                                                               \
    for (int64_t i = 0; i < t->n; i++) wire_put_varint(out, (uint64_t)(int64_t)T_DATA(t, type)[i]); \
    wire_end(out, at_);                                                                             \
  } while (0)

static shoal_status put_values(const struct tensor *t, struct text *out) {
  if (!t->n) return NULL;
  switch ((shoal_dtype)t->dtype) {
    case SHOAL_FLOAT32:
      put_TensorProto_float_val_packed_n(out, t->data, tensor_bytes(t));
      break; /* packed numbers are their bytes */
    case SHOAL_FLOAT64: put_TensorProto_double_val_packed_n(out, t->data, tensor_bytes(t)); break;
    case SHOAL_COMPLEX64: put_TensorProto_scomplex_val_packed_n(out, t->data, tensor_bytes(t)); break;
    case SHOAL_COMPLEX128: put_TensorProto_dcomplex_val_packed_n(out, t->data, tensor_bytes(t)); break;
    case SHOAL_INT32:
    case SHOAL_QINT32: PUT_INTS(int32_t, TensorProto_int_val_packed); break;
    case SHOAL_INT16:
    case SHOAL_QINT16: PUT_INTS(int16_t, TensorProto_int_val_packed); break;
    case SHOAL_INT8:
    case SHOAL_QINT8: PUT_INTS(int8_t, TensorProto_int_val_packed); break;
    case SHOAL_UINT8:
    case SHOAL_QUINT8: PUT_INTS(uint8_t, TensorProto_int_val_packed); break;
    case SHOAL_UINT16:
    case SHOAL_QUINT16: PUT_INTS(uint16_t, TensorProto_int_val_packed); break;
    case SHOAL_INT64: PUT_INTS(int64_t, TensorProto_int64_val_packed); break;
    case SHOAL_BOOL: PUT_INTS(bool, TensorProto_bool_val_packed); break;
    case SHOAL_FLOAT16:
    case SHOAL_BFLOAT16: PUT_INTS(uint16_t, TensorProto_half_val_packed); break;
    case SHOAL_STRING:
      for (int64_t i = 0; i < t->n; i++)
        put_TensorProto_string_val_n(out, str_data(&T_DATA(t, struct str)[i]), T_DATA(t, struct str)[i].size);
      break;
    default: return UNIMPLEMENTED("Saving data type %s not yet supported", dtype_tf_name(t->dtype));
  }
  return NULL;
}

static struct v1_tensor *info_of(struct v1_writer *w, const char *name, size_t n, const struct shape *full,
                                 shoal_dtype dtype, shoal_status *s) {
  struct v1_tensor *t = strmap_getn(&w->by_name, name, n);
  if (t) {
    if (!shape_equal(&t->shape, full))
      *s = INTERNAL("Mismatching shapes: existing tensor = %s, trying to add name %s, shape = %s", shape_str(&t->shape),
                    t->name, shape_str(full));
    else if (t->dtype != dtype)
      *s = INTERNAL("Mismatching types: existing type = %s, trying to add name %s, type = %s", dtype_tf_name(t->dtype),
                    t->name, dtype_tf_name(dtype));
    return t;
  }
  t = mem_zalloc(1, sizeof *t);
  t->name = mem_strndup(name, n);
  t->shape = *full;
  t->dtype = dtype;
  vec_push(&w->tensors, t);
  strmap_put(&w->by_name, t->name, t);
  return t;
}

shoal_status v1_writer_add(struct v1_writer *w, const char *name, size_t n, const struct shape *full,
                           const struct slice *s, const struct tensor *t) {
  enum { MOST = INT32_MAX - (1 << 16) }; /* a message cannot be larger than 2 GiB */
  shoal_status e = NULL;
  if (tensor_bytes(t) > MOST)
    return INVALID("Tensor slice is too large to serialize (conservative estimate: %zu bytes)", tensor_bytes(t));
  struct v1_tensor *info = info_of(w, name, n, full, (shoal_dtype)t->dtype, &e);
  TRY(e);
  vec_push(&info->slices, *s);
  struct v1_item *it = mem_zalloc(1, sizeof *it);
  vec_push(&w->items, it);
  slice_key(name, n, s, &it->key);
  size_t data = begin_SavedTensorSlices_data(&it->value);
  put_SavedSlice_name_n(&it->value, name, n);
  size_t slice = begin_SavedSlice_slice(&it->value);
  slice_encode(s, &it->value);
  wire_end(&it->value, slice);
  size_t proto = begin_SavedSlice_data(&it->value);
  TRY(put_values(t, &it->value));
  wire_end(&it->value, proto);
  wire_end(&it->value, data);
  return NULL;
}

static void put_meta(const struct v1_writer *w, struct text *out) {
  size_t meta = begin_SavedTensorSlices_meta(out);
  for (size_t i = 0; i < w->tensors.n; i++) {
    const struct v1_tensor *t = w->tensors.at[i];
    size_t tensor = begin_SavedTensorSliceMeta_tensor(out);
    put_SavedSliceMeta_name(out, t->name);
    size_t shape = begin_SavedSliceMeta_shape(out);
    shape_proto_encode(&t->shape, out);
    wire_end(out, shape);
    put_SavedSliceMeta_type(out, t->dtype);
    for (size_t k = 0; k < t->slices.n; k++) {
      size_t slice = begin_SavedSliceMeta_slice(out);
      slice_encode(&t->slices.at[k], out);
      wire_end(out, slice);
    }
    wire_end(out, tensor);
  }
  size_t versions = begin_SavedTensorSliceMeta_versions(out);
  put_VersionDef_producer(out, 1); /* producer */
  wire_end(out, versions);
  wire_end(out, meta);
}

static int by_key(const void *a, const void *b) {
  const struct text *x = &(*(struct v1_item *const *)a)->key, *y = &(*(struct v1_item *const *)b)->key;
  int c = memcmp(x->at, y->at, MIN(x->n, y->n));
  return c ? c : (x->n > y->n) - (x->n < y->n);
}

static shoal_status write_file(struct v1_writer *w, const char *path) {
  if (w->items.n) qsort(w->items.at, w->items.n, sizeof *w->items.at, by_key);
  struct table_writer table;
  TRY(table_writer_open(&table, path));
  struct text meta = {0};
  put_meta(w, &meta);
  shoal_status s = table_writer_add(&table, "", 0, meta.at, meta.n);
  text_release(&meta);
  for (size_t i = 0; !s && i < w->items.n; i++) {
    if (i && by_key(&w->items.at[i - 1], &w->items.at[i]) == 0) continue; /* the first of equal slices stands */
    s = table_writer_add(&table, w->items.at[i]->key.at, w->items.at[i]->key.n, w->items.at[i]->value.at,
                         w->items.at[i]->value.n);
  }
  if (!s) return table_writer_finish(&table);
  table_writer_abort(&table);
  return s;
}

void v1_writer_abort(struct v1_writer *w) {
  for (size_t i = 0; i < w->items.n; i++) {
    text_release(&w->items.at[i]->key);
    text_release(&w->items.at[i]->value);
    free(w->items.at[i]);
  }
  vec_release(&w->items);
  for (size_t i = 0; i < w->tensors.n; i++) {
    vec_release(&w->tensors.at[i]->slices);
    free(w->tensors.at[i]->name);
    free(w->tensors.at[i]);
  }
  vec_release(&w->tensors);
  strmap_release(&w->by_name);
}

shoal_status v1_writer_finish(struct v1_writer *w, const char *path) {
  shoal_status s = write_file(w, path);
  v1_writer_abort(w);
  return s;
}
