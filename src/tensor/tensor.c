/* Tensors: allocation, views, copies, and the public handle. */
#include "tensor/tensor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/given.h"
#include "base/mem.h"
#include "tensor/strings.h"

/* ---- strings, handles, variants ---- */

_Atomic uint64_t strings_lost_;

/* NULL: there is no memory, and s is empty. */
static char *resize(struct str *s, size_t size) {
  if (s->size > STR_INLINE) {
    strings_count(-(int64_t)s->size);
    free(s->ptr);
  }
  s->size = 0;
  char *to = size <= STR_INLINE ? s->small : strings_have_room(size) ? mem_try_alloc(size) : NULL;
  if (!to) return NULL;
  s->size = size;
  if (size > STR_INLINE) {
    s->ptr = to;
    strings_count((int64_t)size);
  }
  return to;
}

char *str_resize(struct str *s, size_t size) {
  char *to = resize(s, size);
  if (UNLIKELY(!to)) atomic_fetch_add(&strings_lost_, 1);
  return to;
}

void str_set(struct str *s, const char *data, size_t size) {
  char *to = str_resize(s, size);
  if (to && size) memcpy(to, data, size);
}

bool str_try_set(struct str *s, const char *data, size_t size) {
  char *to = resize(s, size);
  if (to && size) memcpy(to, data, size);
  return to;
}

void str_clear(struct str *s) { str_resize(s, 0); }

struct resource_handle *resource_handle_new(const char *device, const char *container, const char *name,
                                            const char *type_name) {
  struct resource_handle *h = mem_zalloc(1, sizeof *h);
  ref_init(&h->refs, 1);
  h->device = mem_strdup(device);
  h->container = mem_strdup(container);
  h->name = mem_strdup(name);
  h->type_name = mem_strdup(type_name);
  h->hash_code = hash_bytes(type_name, strlen(type_name), 0);
  return h;
}

void resource_handle_unref(struct resource_handle *h) {
  if (!h || !ref_drop(&h->refs)) return;
  if (h->entry) h->release_entry(h->entry);
  free(h->device);
  free(h->container);
  free(h->name);
  free(h->type_name);
  free(h);
}

void variant_unref(struct variant *v) {
  if (v && ref_drop(&v->refs)) v->type->free(v);
}

void elements_destroy(shoal_dtype dtype, void *at, size_t bytes) {
  size_t n = bytes / dtype_size(dtype);
  if (dtype == SHOAL_STRING)
    for (struct str *s = at; n--; s++) str_clear(s);
  else if (dtype == SHOAL_RESOURCE)
    for (struct resource_handle **h = at; n--; h++) resource_handle_unref(*h);
  else if (dtype == SHOAL_VARIANT)
    for (struct variant **v = at; n--; v++) variant_unref(*v);
}

void elements_copy(shoal_dtype dtype, void *to, const void *from, int64_t n) {
  if (dtype == SHOAL_STRING) {
    struct str *a = to;
    const struct str *b = from;
    for (int64_t i = 0; i < n; i++)
      if (&a[i] != &b[i]) str_set(&a[i], str_data(&b[i]), b[i].size);
  } else if (dtype == SHOAL_RESOURCE) {
    struct resource_handle **a = to, *const *b = from;
    for (int64_t i = 0; i < n; i++) {
      if (b[i]) ref_take(&b[i]->refs);
      resource_handle_unref(a[i]);
      a[i] = b[i];
    }
  } else if (dtype == SHOAL_VARIANT) {
    struct variant **a = to, *const *b = from;
    for (int64_t i = 0; i < n; i++) {
      struct variant *old = a[i];
      a[i] = variant_ref(b[i]);
      variant_unref(old);
    }
  } else if (n) {
    memmove(to, from, (size_t)n * dtype_size(dtype));
  }
}

/* ---- tensors ---- */

shoal_status tensor_bytes_for(shoal_dtype dtype, const struct shape *shape, int64_t *elements, size_t *bytes) {
  if (!dtype_valid(dtype)) return INVALID("A tensor cannot have type %d", (int)dtype);
  int64_t n, total;
  TRY(shape_elements(shape, &n));
  if (n < 0) return INVALID("A tensor needs a fully known shape, not %s", shape_str(shape));
  if (mul_overflows(n, (int64_t)dtype_size(dtype), &total))
    return STATUS(SHOAL_RESOURCE_EXHAUSTED, "OOM when allocating tensor with shape%s and type %s", shape_str(shape),
                  dtype_tf_name(dtype));
  *elements = n;
  *bytes = (size_t)total;
  return NULL;
}

/* Memory for n elements: all but the shape. */
static shoal_status take_memory(struct tensor *t, shoal_dtype dtype, int64_t n, size_t bytes) {
  struct buffer *b;
  TRY(buffer_new(bytes, &b));
  if (UNLIKELY(!dtype_plain(dtype))) {
    memset(b->data, 0, bytes);
    b->elements_of = (uint8_t)dtype;
  }
  t->buffer = b;
  t->data = b->data;
  t->dtype = (uint8_t)dtype;
  t->n = n;
  return NULL;
}

shoal_status tensor_new(struct tensor *t, shoal_dtype dtype, const struct shape *shape) {
  size_t bytes;
  int64_t n;
  TRY(tensor_bytes_for(dtype, shape, &n, &bytes));
  shoal_status s = take_memory(t, dtype, n, bytes);
  if (UNLIKELY(s != NULL)) return status_suffix(s, " for shape %s and type %s", shape_str(shape), dtype_tf_name(dtype));
  t->rank = (uint8_t)shape->rank;
  for (int i = 0; i < shape->rank; i++) t->dims[i] = shape->dims[i];
  return NULL;
}

shoal_status tensor_new_like(struct tensor *t, shoal_dtype dtype, const struct tensor *like) {
  int64_t bytes;
  bool fits = dtype_valid(dtype) && !mul_overflows(like->n, (int64_t)dtype_size(dtype), &bytes);
  shoal_status s = fits ? take_memory(t, dtype, like->n, (size_t)bytes) : NULL;
  if (UNLIKELY(!fits || s)) { /* once more, to say what is wrong with it */
    shoal_status_free(s);
    struct shape shape = tensor_shape(like);
    return tensor_new(t, dtype, &shape);
  }
  t->rank = like->rank;
  for (int i = 0; i < like->rank; i++) t->dims[i] = like->dims[i];
  return NULL;
}

shoal_status tensor_new_dims(struct tensor *t, shoal_dtype dtype, int rank, const int64_t *dims) {
  if (rank < 0 || rank > SHOAL_MAX_RANK)
    return INVALID("A tensor has at most %d dimensions, not %d", SHOAL_MAX_RANK, rank);
  struct shape s = {.rank = rank};
  for (int i = 0; i < rank; i++) s.dims[i] = dims[i];
  return tensor_new(t, dtype, &s);
}

shoal_status tensor_new_scalar(struct tensor *t, shoal_dtype dtype) { return tensor_new_dims(t, dtype, 0, NULL); }

struct shape tensor_shape(const struct tensor *t) {
  struct shape s = {.rank = t->rank};
  for (int i = 0; i < t->rank; i++) s.dims[i] = t->dims[i];
  return s;
}

bool tensor_same_shape(const struct tensor *a, const struct tensor *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->dims[i] != b->dims[i]) return false;
  return true;
}

shoal_status tensor_reshape(struct tensor *to, const struct tensor *from, const struct shape *shape) {
  int64_t n;
  TRY(shape_elements(shape, &n));
  if (n != from->n) return INVALID("A tensor of %" PRId64 " elements cannot take shape %s", from->n, shape_str(shape));
  tensor_ref(to, from);
  to->rank = (uint8_t)shape->rank;
  for (int i = 0; i < shape->rank; i++) to->dims[i] = shape->dims[i];
  return NULL;
}

void tensor_rows(struct tensor *to, const struct tensor *from, int64_t begin, int64_t end) {
  MUST(from->rank > 0 && begin >= 0 && begin <= end && end <= from->dims[0]);
  int64_t row = from->dims[0] ? from->n / from->dims[0] : 0;
  tensor_ref(to, from);
  to->data = (char *)from->data + (size_t)(begin * row) * dtype_size((shoal_dtype)from->dtype);
  to->dims[0] = end - begin;
  to->n = row * (end - begin);
}

shoal_status tensor_copy(struct tensor *to, const struct tensor *from) {
  uint64_t lost = strings_lost();
  TRY(tensor_new_dims(to, (shoal_dtype)from->dtype, from->rank, from->dims));
  elements_copy((shoal_dtype)from->dtype, to->data, from->data, from->n);
  if (LIKELY(from->dtype != SHOAL_STRING)) return NULL;
  shoal_status s = strings_kept(lost);
  if (s) tensor_release(to);
  return s;
}

void tensor_zero(struct tensor *t) {
  size_t bytes = tensor_bytes(t);
  if (!dtype_plain((shoal_dtype)t->dtype)) elements_destroy((shoal_dtype)t->dtype, t->data, bytes);
  if (bytes) memset(t->data, 0, bytes);
}

shoal_status tensor_get_ints(const struct tensor *t, const char *what, int64_t *out, int max, int *n) {
  if (t->rank > 1) {
    struct shape s = tensor_shape(t);
    return INVALID("%s must be a vector, but has shape %s", what, shape_str(&s));
  }
  if (t->n > max) return INVALID("%s has %" PRId64 " elements; at most %d are supported", what, t->n, max);
  if (t->dtype != SHOAL_INT32 && t->dtype != SHOAL_INT64)
    return INVALID("%s must be int32 or int64, not %s", what, dtype_tf_name(t->dtype));
  for (int64_t i = 0; i < t->n; i++)
    out[i] = t->dtype == SHOAL_INT32 ? T_DATA(t, const int32_t)[i] : T_DATA(t, const int64_t)[i];
  *n = (int)t->n;
  return NULL;
}

shoal_status tensor_get_int(const struct tensor *t, const char *what, int64_t *out) {
  if (t->n != 1) {
    struct shape s = tensor_shape(t);
    return INVALID("%s must be a scalar, but has shape %s", what, shape_str(&s));
  }
  if (t->dtype != SHOAL_INT32 && t->dtype != SHOAL_INT64)
    return INVALID("%s must be int32 or int64, not %s", what, dtype_tf_name(t->dtype));
  *out = t->dtype == SHOAL_INT32 ? *T_DATA(t, const int32_t) : *T_DATA(t, const int64_t);
  return NULL;
}

shoal_status tensor_get_shape(const struct tensor *t, bool partial, struct shape *out) {
  if (partial && t->rank == 0 && t->n == 1) { /* a scalar -1 stands for "of any rank" */
    int64_t v;
    TRY(tensor_get_int(t, "shape", &v));
    if (v != -1) return INVALID("A scalar shape must be -1 (unknown rank), not %" PRId64, v);
    *out = shape_unknown();
    return NULL;
  }
  TRY(tensor_get_ints(t, "shape", out->dims, SHOAL_MAX_RANK, &out->rank));
  for (int i = 0; i < out->rank; i++)
    if (out->dims[i] < (partial ? -1 : 0))
      return INVALID("Dimension %d of a shape must be >= 0, but is %" PRId64, i, out->dims[i]);
  int64_t n;
  return shape_elements(out, &n);
}

/* ---- the public handle ---- */

shoal_tensor *tensor_handle_take(struct tensor *t) {
  shoal_tensor *h = block_zalloc(sizeof *h);
  ref_init(&h->refs, 1);
  tensor_move(&h->t, t);
  *t = tensor_none();
  return h;
}

shoal_status shoal_tensor_new(shoal_dtype dtype, int rank, const int64_t *dims, shoal_tensor **out) {
  if (rank > 0) GIVEN(dims);
  GIVEN(out);
  struct tensor t;
  TRY(tensor_new_dims(&t, dtype, rank, dims));
  tensor_zero(&t);
  *out = tensor_handle_take(&t);
  return NULL;
}

shoal_status shoal_tensor_from(shoal_dtype dtype, int rank, const int64_t *dims, const void *data, size_t size,
                               shoal_tensor **out) {
  if (rank > 0) GIVEN(dims);
  if (size) GIVEN(data);
  GIVEN(out);
  if (!dtype_plain(dtype)) return INVALID("A %s tensor cannot be made from raw bytes", dtype_tf_name(dtype));
  struct tensor t;
  TRY(tensor_new_dims(&t, dtype, rank, dims));
  if (tensor_bytes(&t) != size) {
    size_t want = tensor_bytes(&t);
    tensor_release(&t);
    return INVALID("The data has %zu bytes, but the tensor needs %zu", size, want);
  }
  if (size) memcpy(t.data, data, size);
  *out = tensor_handle_take(&t);
  return NULL;
}

shoal_status shoal_tensor_from_string(const char *data, size_t size, shoal_tensor **out) {
  if (size) GIVEN(data);
  GIVEN(out);
  struct tensor t;
  TRY(tensor_new_scalar(&t, SHOAL_STRING));
  if (!str_try_set(t.data, data, size)) {
    tensor_release(&t);
    return NO_MEMORY(size, "a string");
  }
  *out = tensor_handle_take(&t);
  return NULL;
}

shoal_tensor *shoal_tensor_ref(shoal_tensor *t) {
  if (t) ref_take(&t->refs);
  return t;
}

void shoal_tensor_unref(shoal_tensor *t) {
  if (!t || !ref_drop(&t->refs)) return;
  tensor_release(&t->t);
  block_free(t);
}

shoal_dtype shoal_tensor_dtype(const shoal_tensor *t) { return (shoal_dtype)t->t.dtype; }
int shoal_tensor_rank(const shoal_tensor *t) { return t->t.rank; }
int64_t shoal_tensor_dim(const shoal_tensor *t, int i) { return i >= 0 && i < t->t.rank ? t->t.dims[i] : -1; }
int64_t shoal_tensor_elements(const shoal_tensor *t) { return t->t.n; }

size_t shoal_tensor_bytes(const shoal_tensor *t) {
  return dtype_plain((shoal_dtype)t->t.dtype) ? tensor_bytes(&t->t) : 0;
}

void *shoal_tensor_data(shoal_tensor *t) { return t->t.data; }
const void *shoal_tensor_const_data(const shoal_tensor *t) { return t->t.data; }

const char *shoal_tensor_string(const shoal_tensor *t, int64_t i, size_t *size) {
  if (t->t.dtype != SHOAL_STRING || i < 0 || i >= t->t.n) {
    if (size) *size = 0;
    return NULL;
  }
  const struct str *s = &T_DATA(&t->t, const struct str)[i];
  if (size) *size = s->size;
  return str_data(s);
}

shoal_status shoal_tensor_set_string(shoal_tensor *t, int64_t i, const char *data, size_t size) {
  if (t->t.dtype != SHOAL_STRING) return INVALID("The tensor holds %s, not strings", dtype_tf_name(t->t.dtype));
  if (i < 0 || i >= t->t.n) return INVALID("Element %" PRId64 " is out of range", i);
  return str_try_set(&T_DATA(&t->t, struct str)[i], data, size) ? NULL : NO_MEMORY(size, "a string");
}
