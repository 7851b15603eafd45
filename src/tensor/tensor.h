/* Tensors inside Shoal: a small value type that refers to a buffer.
 *
 *   struct tensor t;
 *   TRY(tensor_new(&t, SHOAL_FLOAT32, &shape));
 *   float *x = t.data;
 *   tensor_release(&t);
 *
 * Copying the struct moves the reference; tensor_ref() makes a second one. A tensor whose buffer is shared is
 * read-only: tensor_writable() tells. The public handle (shoal_tensor) wraps one. */
#ifndef TENSOR_TENSOR_H
#define TENSOR_TENSOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/ref.h"
#include "shoal/tensor.h"
#include "tensor/buffer.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

/* ---- element types that are not plain bytes ---- */

enum { STR_INLINE = 16 };

/* One string: inline up to 16 bytes, else on the heap. All zero is the empty string. */
struct str {
  size_t size;
  union {
    char small[STR_INLINE];
    char *ptr;
  };
};

static inline const char *str_data(const struct str *s) { return s->size <= STR_INLINE ? s->small : s->ptr; }
void str_set(struct str *s, const char *data, size_t size);
/* For sizes from outside: false, and s is empty, when there is no memory. */
bool str_try_set(struct str *s, const char *data, size_t size);
/* Room for size bytes to be filled in by the caller; what was there is dropped. */
char *str_resize(struct str *s, size_t size);
void str_clear(struct str *s);

/* A handle to a resource in some task's containers. Elements of DT_RESOURCE tensors point to one. */
struct resource_entry;
struct resource_handle {
  struct ref refs;
  char *device, *container, *name, *type_name; /* never NULL */
  uint64_t hash_code;
  struct resource_entry *entry; /* where it is in this process, once resolved (runtime/resource.h); holds a reference */
  void (*release_entry)(struct resource_entry *);
};
struct resource_handle *resource_handle_new(const char *device, const char *container, const char *name,
                                            const char *type_name);
void resource_handle_unref(struct resource_handle *h);

/* An opaque value with methods (a dataset, a tensor list, an optional). Elements of DT_VARIANT tensors. */
struct variant;
struct tensor;
struct variant_type {
  const char *name; /* the type name TensorFlow writes: "tensorflow::TensorList" */
  void (*free)(struct variant *v);
  /* (optional) For travelling between tasks: metadata and tensors as in VariantTensorDataProto. */
  shoal_status (*encode)(const struct variant *v, struct text *metadata, struct tensor **tensors, int *n_tensors);
  shoal_status (*decode)(const void *metadata, size_t size, const struct tensor *tensors, int n_tensors,
                         struct variant **out);
  /* (optional) A value of the same kind that is zero (gradients): NULL when there is none. */
  struct variant *(*zeros_like)(const struct variant *v);
  /* (optional) The sum of two values of this kind (gradients). */
  shoal_status (*add)(const struct variant *a, const struct variant *b, struct variant **out);
  /* (optional, both) Of a kind whose tensors may be in a device's memory: one like it, for the caller to change; and
   * the tensors inside, some of which may have no value. */
  struct variant *(*copy)(const struct variant *v);
  struct tensor *(*tensors)(struct variant *v, size_t *n);
};
struct variant {
  const struct variant_type *type;
  struct ref refs;
};
static inline void variant_init(struct variant *v, const struct variant_type *type) {
  v->type = type;
  ref_init(&v->refs, 1);
}
static inline struct variant *variant_ref(struct variant *v) {
  if (v) ref_take(&v->refs);
  return v;
}
void variant_unref(struct variant *v);

/* ---- tensors ---- */

struct tensor {
  struct buffer *buffer; /* NULL: no value (dtype is then 0) */
  void *data;            /* first element; inside the buffer */
  uint8_t dtype;         /* shoal_dtype, never a reference type */
  uint8_t rank;
  int64_t n; /* elements */
  int64_t dims[SHOAL_MAX_RANK];
};

/* A tensor of host memory, contents undefined for plain types, empty for the others. The shape must be fully
 * known; sizes are checked. */
shoal_status tensor_new(struct tensor *t, shoal_dtype dtype, const struct shape *shape);
/* One of the shape of another. */
shoal_status tensor_new_like(struct tensor *t, shoal_dtype dtype, const struct tensor *like);
/* rank dims given as an array. */
shoal_status tensor_new_dims(struct tensor *t, shoal_dtype dtype, int rank, const int64_t *dims);
shoal_status tensor_new_scalar(struct tensor *t, shoal_dtype dtype);
/* Bytes that shape and dtype take; checks for overflow and negative dimensions before any memory is taken. */
shoal_status tensor_bytes_for(shoal_dtype dtype, const struct shape *shape, int64_t *elements, size_t *bytes);

static inline struct tensor tensor_none(void) { return (struct tensor){.dtype = 0}; }
static inline bool tensor_valid(const struct tensor *t) { return t->buffer != NULL; }
/* Copies the struct without the unused dims. */
static inline void tensor_move(struct tensor *to, const struct tensor *from) {
  to->buffer = from->buffer;
  to->data = from->data;
  to->dtype = from->dtype;
  to->rank = from->rank;
  to->n = from->n;
  for (int i = 0; i < from->rank; i++) to->dims[i] = from->dims[i];
}
static inline void tensor_ref(struct tensor *to, const struct tensor *from) {
  tensor_move(to, from);
  buffer_ref(from->buffer);
}
static inline void tensor_release(struct tensor *t) {
  struct buffer *b = t->buffer;
  t->buffer = NULL;
  t->dtype = 0;
  buffer_unref(b);
}
/* Nobody else can see the elements. */
static inline bool tensor_writable(const struct tensor *t) { return !buffer_shared(t->buffer); }
static inline size_t tensor_bytes(const struct tensor *t) { return (size_t)t->n * dtype_size((shoal_dtype)t->dtype); }

struct shape tensor_shape(const struct tensor *t);
bool tensor_same_shape(const struct tensor *a, const struct tensor *b);
/* The same buffer under another shape of as many elements. */
shoal_status tensor_reshape(struct tensor *to, const struct tensor *from, const struct shape *shape);
/* Rows [begin, end) of the first dimension, sharing the buffer. */
void tensor_rows(struct tensor *to, const struct tensor *from, int64_t begin, int64_t end);
/* A copy with a buffer of its own (host tensors). */
shoal_status tensor_copy(struct tensor *to, const struct tensor *from);
/* Sets every byte to zero, or every element to empty. */
void tensor_zero(struct tensor *t);
/* Copies n elements of any type (assignment: references are counted, strings copied). */
void elements_copy(shoal_dtype dtype, void *to, const void *from, int64_t n);
void elements_destroy(shoal_dtype dtype, void *at, size_t bytes);

#define T_DATA(t, type) ((type *)(t)->data)

/* Element 0 as an integer, for int32 and int64 tensors (checked: rank and dtype). */
shoal_status tensor_get_int(const struct tensor *t, const char *what, int64_t *out);
/* All elements of an int32 or int64 vector (or scalar), at most max. */
shoal_status tensor_get_ints(const struct tensor *t, const char *what, int64_t *out, int max, int *n);
/* The value as a shape ([-1] for unknown dimensions allowed when partial). */
shoal_status tensor_get_shape(const struct tensor *t, bool partial, struct shape *out);

/* The public handle. */
struct shoal_tensor {
  struct ref refs;
  struct tensor t;
};
/* A handle that takes over *t's reference. */
shoal_tensor *tensor_handle_take(struct tensor *t);

#endif
