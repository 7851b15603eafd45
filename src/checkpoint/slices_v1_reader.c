/* Reading checkpoints of the first format; see slices_v1.h. */
#include <string.h>

#include "checkpoint/slices_v1.h"
#include "proto/checkpoint.wire.h"
#include "proto/tensor.wire.h"
#include "tensor/tensor_proto.h"

#define LOST(...) STATUS(SHOAL_DATA_LOSS, __VA_ARGS__)

static void tensor_info_free(struct v1_tensor *t) {
  vec_release(&t->slices);
  vec_release(&t->files);
  free(t->name);
  free(t);
}

/* One SavedSliceMeta: name 1, shape 2, type 3, slice 4. */
static shoal_status add_tensor(struct v1_reader *r, int file, struct wire w) {
  struct v1_tensor *t = mem_zalloc(1, sizeof *t);
  struct wire_field f;
  enum wire_step step;
  shoal_status s = NULL;
  while (!s && (step = wire_next(&w, &f)) == WIRE_FIELD) {
    struct slice slice;
    if (f.tag == SavedSliceMeta_name && !t->name) {
      t->name = mem_try_strndup((const char *)f.data, f.size);
      if (!t->name) s = NO_MEMORY(f.size, "a tensor's name");
    } else if (f.tag == SavedSliceMeta_shape) {
      s = shape_proto_decode(f.data, f.size, &t->shape);
    } else if (f.tag == SavedSliceMeta_type) {
      t->dtype = (shoal_dtype)(f.value < DTYPE_COUNT ? f.value : 0);
    } else if (f.tag == SavedSliceMeta_slice) {
      if (!slice_decode(f.data, f.size, &slice)) {
        s = LOST("a slice that cannot be read");
        break;
      }
      vec_push(&t->slices, slice);
      vec_push(&t->files, file);
    }
  }
  if (!s && (step == WIRE_BROKEN || !t->name || !dtype_valid(t->dtype) || !shape_known(&t->shape)))
    s = LOST("a tensor that cannot be read");
  struct v1_tensor *had = s ? NULL : strmap_get(&r->by_name, t->name);
  if (had) {
    if (!shape_equal(&had->shape, &t->shape))
      s = INTERNAL("Incompatible tensor shapes detected for tensor %s: existing = %s, new = %s", t->name,
                   shape_str(&had->shape), shape_str(&t->shape));
    else if (had->dtype != t->dtype)
      s = INTERNAL("Incompatible tensor types detected for tensor %s: existing = %s, new = %s", t->name,
                   dtype_tf_name(had->dtype), dtype_tf_name(t->dtype));
    for (size_t i = 0; !s && i < t->slices.n; i++) {
      vec_push(&had->slices, t->slices.at[i]);
      vec_push(&had->files, file);
    }
    tensor_info_free(t);
    return s;
  }
  if (s) tensor_info_free(t);
  else strmap_put(&r->by_name, t->name, t);
  return s;
}

static shoal_status read_meta(struct v1_reader *r, int file, struct wire w) {
  struct wire meta;
  if (!find_SavedTensorSlices_meta(w, &meta)) return LOST("no list of tensors");
  struct wire_field f;
  enum wire_step step;
  while ((step = wire_next(&meta, &f)) == WIRE_FIELD)
    if (f.tag == SavedTensorSliceMeta_tensor) TRY(add_tensor(r, file, wire_inside(&f)));
  return step == WIRE_BROKEN ? LOST("a list of tensors that cannot be read") : NULL;
}

static shoal_status open_file(struct v1_reader *r, const char *path) {
  struct table t;
  shoal_status s = table_open(&t, path);
  if (s) {
    shoal_status lost = LOST("Unable to open table file %s: %s: %s", path, shoal_code_name(shoal_status_code(s)),
                             shoal_status_message(s));
    shoal_status_free(s);
    return lost;
  }
  vec_push(&r->files, t);
  char *value;
  size_t n;
  TRY(table_find(&t, "", 0, &value, &n));
  if (!value)
    return INTERNAL("Failed to find the saved tensor slices at the beginning of the checkpoint file: %s", path);
  s = read_meta(r, (int)r->files.n - 1, wire_from(value, n));
  free(value);
  return s ? status_prefix(s, "%s: ", path) : NULL;
}

shoal_status v1_open(struct v1_reader *r, const char *pattern) {
  *r = (struct v1_reader){0};
  struct path_list paths = {0};
  shoal_status s = file_glob(pattern, &paths);
  if (!s && !paths.paths.n)
    s = NOT_FOUND("Unsuccessful TensorSliceReader constructor: Failed to find any matching files for %s", pattern);
  for (size_t i = 0; !s && i < paths.paths.n; i++) s = open_file(r, paths.paths.at[i]);
  path_list_release(&paths);
  if (s) v1_close(r);
  return s;
}

void v1_close(struct v1_reader *r) {
  const char *key;
  void *value;
  for (size_t i = 0; strmap_next(&r->by_name, &i, &key, &value);) tensor_info_free(value);
  strmap_release(&r->by_name);
  for (size_t i = 0; i < r->files.n; i++) table_close(&r->files.at[i]);
  vec_release(&r->files);
}

const struct v1_tensor *v1_find(const struct v1_reader *r, const char *name, size_t n) {
  return strmap_getn(&r->by_name, name, n);
}

static shoal_status not_all(const struct v1_tensor *t) {
  return INVALID("Error copying slice data: not all of tensor %s is in the checkpoint", t->name);
}

/* The values of one slice. Type and shape stand in front of the TensorProto's own fields, which makes it whole; in a
 * sound file it has no others after them. */
static shoal_status read_slice(const struct v1_reader *r, const struct v1_tensor *t, size_t i, struct tensor *out) {
  struct shape shape;
  TRY(slice_shape(&t->slices.at[i], &t->shape, &shape));
  struct text key = {0}, proto = {0};
  slice_key(t->name, strlen(t->name), &t->slices.at[i], &key);
  char *value;
  size_t n;
  shoal_status s = table_find(&r->files.at[t->files.at[i]], key.at, key.n, &value, &n);
  text_release(&key);
  TRY(s);
  if (!value) return NOT_FOUND("A slice of tensor %s is not in its checkpoint file", t->name);
  struct wire slice, data;
  if (!find_SavedTensorSlices_data(wire_from(value, n), &slice) || !find_SavedSlice_data(slice, &data)) {
    free(value);
    return LOST("A slice of tensor %s cannot be read", t->name);
  }
  put_TensorProto_dtype(&proto, t->dtype);
  size_t at = begin_TensorProto_tensor_shape(&proto);
  shape_proto_encode(&shape, &proto);
  wire_end(&proto, at);
  if (!text_try_add(&proto, (const char *)data.at, wire_left(&data))) s = NO_MEMORY(wire_left(&data), "a slice");
  free(value);
  if (!s) s = tensor_proto_decode(proto.at, proto.n, out);
  text_release(&proto);
  if (s) return status_prefix(s, "Tensor %s: ", t->name);
  struct shape got = tensor_shape(out);
  if (out->dtype == t->dtype && shape_equal(&got, &shape)) return NULL;
  tensor_release(out);
  return LOST("A slice of tensor %s has another shape or type than its tensor", t->name);
}

static shoal_status fill(const struct v1_reader *r, const struct v1_tensor *t, const struct slice *want,
                         struct tensor *out) {
  int64_t covered = 0;
  TRY(slices_check_apart(t->name, strlen(t->name), t->slices.at, t->slices.n, &t->shape));
  for (size_t i = 0; i < t->slices.n; i++) {
    struct slice both;
    if (!slice_meet(&t->slices.at[i], want, &t->shape, &both)) continue;
    struct tensor part;
    TRY(read_slice(r, t, i, &part));
    slice_copy(&t->shape, &t->slices.at[i], &part, want, out);
    tensor_release(&part);
    int64_t n = 1;
    for (int d = 0; d < both.rank; d++) n *= both.length[d];
    covered += n;
  }
  return covered < out->n ? not_all(t) : NULL;
}

shoal_status v1_read(const struct v1_reader *r, const struct v1_tensor *t, const struct slice *want,
                     struct tensor *out) {
  struct shape shape;
  TRY(slice_shape(want, &t->shape, &shape));
  if (t->slices.n == 1 && slice_is_whole(want, &t->shape) && slice_is_whole(&t->slices.at[0], &t->shape))
    return read_slice(r, t, 0, out);
  /* No more memory than the files may fill: an element takes a byte, before they are packed. */
  int64_t stored = 0, elements;
  size_t bytes;
  for (size_t i = 0; i < r->files.n; i++) stored += r->files.at[i].file.size;
  TRY(tensor_bytes_for(t->dtype, &shape, &elements, &bytes));
  if (elements / TABLE_MOST_PACKED > stored) return not_all(t);
  TRY(tensor_new(out, t->dtype, &shape));
  shoal_status s = fill(r, t, want, out);
  if (s) tensor_release(out);
  return s;
}
