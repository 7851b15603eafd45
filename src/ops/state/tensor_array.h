/* Tensor arrays: lists of tensors that live for one step, written once and read, with gradient arrays that add up what
 * is written to them. */
#ifndef OPS_STATE_TENSOR_ARRAY_H
#define OPS_STATE_TENSOR_ARRAY_H

#include "ops/state/state.h"

struct array_item {
  struct tensor t;                  /* invalid: not written, cleared, or all zero */
  struct shape shape;               /* once written */
  bool written, read, cleared, own; /* own: t is a sum that only we hold */
};

struct tensor_array {
  struct resource head;
  pthread_mutex_t lock;
  char *name;            /* without its container's */
  struct device *device; /* whose memory the elements are in; NULL: the host's */
  shoal_dtype dtype;
  bool aggregate, is_grad, clear_after_read, identical_shapes;
  /* lock: */
  bool closed, dynamic, no_gradients;
  struct shape element_shape;
  int32_t marked_size; /* as set by unpack and split; -1: never */
  VEC(struct array_item) items;
};
extern const struct resource_type tensor_array_type;

struct tensor_array *tensor_array_new(const char *name, struct device *device, shoal_dtype dtype,
                                      const struct shape *element_shape, int32_t n);
/* All of these are called with the lock held. */
shoal_status tensor_array_check_open(const struct tensor_array *a);
/* Refers to value; adds when the array aggregates and the place is taken. A sum in a device's memory is for the caller
 * to make, without the lock: *taken becomes what is there, else nothing. */
shoal_status tensor_array_write(struct tensor_array *a, struct pool *pool, int64_t index, const struct tensor *value,
                                struct tensor *taken);
/* The sum of what was taken and something more goes there, if nothing else has come in between. */
bool tensor_array_replace(struct tensor_array *a, int64_t index, const struct tensor *taken, struct tensor *sum);
shoal_status tensor_array_read(struct tensor_array *a, int64_t index, struct tensor *out);
/* a (empty, aggregating) gets the shapes of what was written to from, so that what is never written reads as zeros. */
void tensor_array_copy_shapes(struct tensor_array *a, const struct tensor_array *from, const struct shape *prefix);
static inline int32_t tensor_array_pack_size(const struct tensor_array *a) {
  return a->is_grad && a->marked_size >= 0 ? a->marked_size : (int32_t)a->items.n;
}

#endif
