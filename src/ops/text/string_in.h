/* Strings that come in as tensors. */
#ifndef OPS_TEXT_STRING_IN_H
#define OPS_TEXT_STRING_IN_H

#include "base/mem.h"
#include "runtime/kernel.h"

/* Element i of a string tensor. */
static inline const struct str *string_at(const struct tensor *t, int64_t i) { return &T_DATA(t, const struct str)[i]; }
/* The same as a C string of the caller's. */
static inline char *string_dup(const struct tensor *t, int64_t i) {
  const struct str *s = string_at(t, i);
  return mem_strndup(str_data(s), s->size);
}

/* Text as a number of type int32, int64, float32 or float64 into element i of out: the whole of it, but for spaces
 * around. False when it is none, or does not fit. */
bool string_to_number(const char *data, size_t n, shoal_dtype type, void *out, int64_t i);

#endif
