/* The rules of tensor arrays: who may write what, when, and what reading gives. The ops are in tensor_array_ops.c. */
#include "ops/state/tensor_array.h"

#include <inttypes.h>
#include <stdlib.h>

static void free_array(struct resource *r) {
  struct tensor_array *a = (struct tensor_array *)r;
  for (size_t i = 0; i < a->items.n; i++)
    if (tensor_valid(&a->items.at[i].t)) tensor_release(&a->items.at[i].t);
  vec_release(&a->items);
  pthread_mutex_destroy(&a->lock);
  free(a->name);
  free(a);
}

const struct resource_type tensor_array_type = {"N10tensorflow11TensorArrayE", "tensor array", free_array};

static void resize(struct tensor_array *a, size_t n) {
  vec_reserve(&a->items, n);
  while (a->items.n < n) a->items.at[a->items.n++] = (struct array_item){0};
}

struct tensor_array *tensor_array_new(const char *name, struct device *device, shoal_dtype dtype,
                                      const struct shape *element_shape, int32_t n) {
  struct tensor_array *a = mem_zalloc(1, sizeof *a);
  resource_init(&a->head, &tensor_array_type);
  pthread_mutex_init(&a->lock, NULL);
  a->name = mem_strdup(name);
  a->device = dtype_plain(dtype) ? device : NULL;
  a->dtype = dtype;
  a->element_shape = *element_shape;
  a->marked_size = -1;
  resize(a, (size_t)n);
  return a;
}

shoal_status tensor_array_check_open(const struct tensor_array *a) {
  return a->closed ? INVALID("TensorArray %s has already been closed.", a->name) : NULL;
}

static shoal_status aggregate(struct tensor_array *a, struct pool *pool, int64_t index, struct array_item *it,
                              const struct tensor *value, struct tensor *taken) {
  struct shape now = tensor_shape(value);
  if (!shape_equal(&it->shape, &now))
    return INVALID("TensorArray %s: Could not aggregate to TensorArray index %" PRId64
                   " because the existing shape is %s "
                   "but the new input shape is %s.",
                   a->name, index, shape_str(&it->shape), shape_str(&now));
  if (!tensor_valid(&it->t)) { /* zeros so far */
    tensor_ref(&it->t, value);
    return NULL;
  }
  update_fn add = update_find(UPDATE_ADD, a->dtype);
  if (!add) return INVALID("TensorArray %s: elements of type %s cannot be added up", a->name, dtype_tf_name(a->dtype));
  if (a->device) {
    tensor_ref(taken, &it->t);
    return NULL;
  }
  if (!it->own || !tensor_writable(&it->t)) {
    struct tensor sum;
    TRY(tensor_copy(&sum, &it->t));
    tensor_release(&it->t);
    tensor_move(&it->t, &sum);
    it->own = true;
  }
  update_run(pool, add, a->dtype, it->t.data, value->data, value->n);
  a->no_gradients = true;
  return NULL;
}

bool tensor_array_replace(struct tensor_array *a, int64_t index, const struct tensor *taken, struct tensor *sum) {
  struct array_item *it = index < (int64_t)a->items.n ? &a->items.at[index] : NULL;
  if (!it || it->t.buffer != taken->buffer || it->t.data != taken->data) return false;
  tensor_release(&it->t);
  tensor_move(&it->t, sum);
  a->no_gradients = true;
  return true;
}

shoal_status tensor_array_write(struct tensor_array *a, struct pool *pool, int64_t index, const struct tensor *value,
                                struct tensor *taken) {
  *taken = tensor_none();
  TRY(tensor_array_check_open(a));
  enum { MAX_ITEMS = 1 << 28 };
  if (index < 0 || (!a->dynamic && index >= (int64_t)a->items.n))
    return INVALID("TensorArray %s: Tried to write to index %" PRId64 " but array is not resizeable and size is: %zu",
                   a->name, index, a->items.n);
  if (index >= MAX_ITEMS) return INVALID("TensorArray %s: index %" PRId64 " is too large", a->name, index);
  if (index >= (int64_t)a->items.n) resize(a, (size_t)index + 1);
  struct array_item *it = &a->items.at[index];
  struct shape now = tensor_shape(value);
  if ((shoal_dtype)value->dtype != a->dtype)
    return INVALID("TensorArray %s: Could not write to TensorArray index %" PRId64
                   " because the value dtype is %s but "
                   "TensorArray dtype is %s.",
                   a->name, index, dtype_tf_name(value->dtype), dtype_tf_name(a->dtype));
  if (!shape_compatible(&a->element_shape, &now))
    return INVALID("TensorArray %s: Could not write to TensorArray index %" PRId64
                   " because the value shape is %s which "
                   "is incompatible with the TensorArray's inferred element shape: %s (consider setting "
                   "infer_shape=False).",
                   a->name, index, shape_str(&now), shape_str(&a->element_shape));
  if (a->identical_shapes && !shape_known(&a->element_shape)) a->element_shape = now;
  if (it->read)
    return INVALID("TensorArray %s: Could not write to TensorArray index %" PRId64 " because it has already been read.",
                   a->name, index);
  if (it->written && !a->aggregate)
    return INVALID("TensorArray %s: Could not write to TensorArray index %" PRId64
                   " because it has already been written "
                   "to.",
                   a->name, index);
  if (it->written) return aggregate(a, pool, index, it, value, taken);
  tensor_ref(&it->t, value);
  it->shape = now;
  it->written = true;
  return NULL;
}

static shoal_status new_zeros(const struct tensor_array *a, const struct shape *shape, struct tensor *out) {
  if (a->device) {
    TRY(device_tensor_new(a->device, a->name, a->dtype, shape, out));
    a->device->type->ops->zero(a->device, out);
    return NULL;
  }
  TRY(tensor_new(out, a->dtype, shape));
  tensor_zero(out);
  return NULL;
}

shoal_status tensor_array_read(struct tensor_array *a, int64_t index, struct tensor *out) {
  TRY(tensor_array_check_open(a));
  if (index < 0 || index >= (int64_t)a->items.n)
    return INVALID("Tried to read from index %" PRId64 " but array size is: %zu", index, a->items.n);
  struct array_item *it = &a->items.at[index];
  if (!it->written) {
    if (!shape_known(&a->element_shape))
      return INVALID("TensorArray %s: Could not read from TensorArray index %" PRId64
                     ".  Furthermore, the element shape "
                     "is not fully defined: %s.  It is possible you are working with a resizeable TensorArray and "
                     "stop_gradients is not allowing the gradients to be written.  If you set the full element_shape "
                     "property on the forward TensorArray, the proper all-zeros tensor will be returned instead of "
                     "incurring this error.",
                     a->name, index, shape_str(&a->element_shape));
    it->shape = a->element_shape;
    it->written = true;
  }
  if (it->cleared)
    return INVALID("TensorArray %s: Could not read index %" PRId64
                   " twice because it was cleared after a previous read "
                   "(perhaps try setting clear_after_read = false?).",
                   a->name, index);
  if (!tensor_valid(&it->t)) {
    TRY(new_zeros(a, &it->shape, &it->t));
  }
  tensor_ref(out, &it->t);
  if (a->clear_after_read) {
    tensor_release(&it->t);
    it->cleared = true;
  }
  it->read = true;
  return NULL;
}

void tensor_array_copy_shapes(struct tensor_array *a, const struct tensor_array *from, const struct shape *prefix) {
  for (size_t i = 0; i < a->items.n && i < from->items.n; i++) {
    if (!from->items.at[i].written) continue;
    struct shape s = *prefix;
    const struct shape *tail = &from->items.at[i].shape;
    for (int d = 0; d < tail->rank && s.rank < SHOAL_MAX_RANK; d++) s.dims[s.rank++] = tail->dims[d];
    a->items.at[i].shape = s;
    a->items.at[i].written = true;
  }
}
