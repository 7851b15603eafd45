/* Lists of tensors as values: variants that loops and functions pass around. A list in a tensor is never changed,
 * unless nobody else can see it.
 *
 * The list is the host's, its elements are in the memory of the device that put them there, or in the host's: those of
 * a list that comes from elsewhere. Kernels of a device bring the latter along when they need them. A list that leaves
 * its device has its elements copied to the host (ops/control/device_copy.c). */
#ifndef OPS_STATE_TENSOR_LIST_H
#define OPS_STATE_TENSOR_LIST_H

#include "ops/state/state.h"

struct tensor_list {
  struct variant head;
  shoal_dtype dtype;
  struct shape element_shape; /* may be partly known */
  int64_t max;                /* -1: unbounded */
  VEC(struct tensor) items;   /* invalid: not set yet, reads as zeros */
};
extern const struct variant_type tensor_list_type;

struct tensor_list *tensor_list_new(shoal_dtype dtype, const struct shape *element_shape, int64_t n);
struct tensor_list *tensor_list_copy(const struct tensor_list *l);
void tensor_list_resize(struct tensor_list *l, int64_t n);
/* An error for one that is in a device's memory. */
shoal_status tensor_on_host(const struct tensor *t);
/* a + b of one type and shape, variants as their type says: what adding up lists and optionals comes down to. */
shoal_status tensors_add(const struct tensor *a, const struct tensor *b, struct tensor *out);

#endif
