/* Tensors: typed, dense, row-major arrays. A shoal_tensor is a reference-counted handle; its buffer may be
 * shared with other tensors and with steps that are running, so a tensor that others can see is read-only. */
#ifndef SHOAL_TENSOR_H
#define SHOAL_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include <shoal/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* TensorFlow's numbers. A reference type (ref variables) is the number plus 100. */
typedef enum shoal_dtype {
  SHOAL_DT_INVALID = 0,
  SHOAL_FLOAT32 = 1,
  SHOAL_FLOAT64 = 2,
  SHOAL_INT32 = 3,
  SHOAL_UINT8 = 4,
  SHOAL_INT16 = 5,
  SHOAL_INT8 = 6,
  SHOAL_STRING = 7,
  SHOAL_COMPLEX64 = 8,
  SHOAL_INT64 = 9,
  SHOAL_BOOL = 10,
  SHOAL_QINT8 = 11,
  SHOAL_QUINT8 = 12,
  SHOAL_QINT32 = 13,
  SHOAL_BFLOAT16 = 14,
  SHOAL_QINT16 = 15,
  SHOAL_QUINT16 = 16,
  SHOAL_UINT16 = 17,
  SHOAL_COMPLEX128 = 18,
  SHOAL_FLOAT16 = 19,
  SHOAL_RESOURCE = 20,
  SHOAL_VARIANT = 21,
  SHOAL_UINT32 = 22,
  SHOAL_UINT64 = 23,
} shoal_dtype;

#define SHOAL_MAX_RANK 16

typedef struct shoal_tensor shoal_tensor;

/* "float32", "int64", ...; "float32_ref" for reference types; NULL for a number that is none. */
SHOAL_API const char *shoal_dtype_name(shoal_dtype t);
/* Bytes of an element; 0 for strings, resources and variants. */
SHOAL_API size_t shoal_dtype_size(shoal_dtype t);

/* A new tensor, its elements zero (strings empty). A dimension below 0, or a size past the address space,
 * is INVALID_ARGUMENT. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_tensor_new(shoal_dtype dtype, int rank, const int64_t *dims,
                                                         shoal_tensor **out);
/* The same, filled from data (size bytes, which must fit the shape; not for strings). */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_tensor_from(shoal_dtype dtype, int rank, const int64_t *dims,
                                                          const void *data, size_t size, shoal_tensor **out);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_tensor_from_string(const char *data, size_t size, shoal_tensor **out);
SHOAL_API shoal_tensor *shoal_tensor_ref(shoal_tensor *t);
SHOAL_API void shoal_tensor_unref(shoal_tensor *t);

SHOAL_API shoal_dtype shoal_tensor_dtype(const shoal_tensor *t);
SHOAL_API int shoal_tensor_rank(const shoal_tensor *t);
SHOAL_API int64_t shoal_tensor_dim(const shoal_tensor *t, int i);
SHOAL_API int64_t shoal_tensor_elements(const shoal_tensor *t);
/* Bytes of the buffer; 0 for strings, resources and variants. */
SHOAL_API size_t shoal_tensor_bytes(const shoal_tensor *t);
/* The elements. Write only to a tensor that nobody else has seen. */
SHOAL_API void *shoal_tensor_data(shoal_tensor *t);
SHOAL_API const void *shoal_tensor_const_data(const shoal_tensor *t);
/* Element i of a string tensor. */
SHOAL_API const char *shoal_tensor_string(const shoal_tensor *t, int64_t i, size_t *size);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_tensor_set_string(shoal_tensor *t, int64_t i, const char *data,
                                                                size_t size);

#ifdef __cplusplus
}
#endif
#endif
