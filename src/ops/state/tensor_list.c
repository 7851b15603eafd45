/* The list itself, and how it travels: metadata as TensorFlow writes it,
 *   varint number of unset elements, varint each of their indices, varint dtype, varint max (as 64 bits),
 *   TensorShapeProto of the element shape
 * and the elements that are set as the variant's tensors. */
#include "ops/state/tensor_list.h"

#include <stdlib.h>

#include "base/wire.h"
#include "tensor/tensor_proto.h"

static void list_free(struct variant *v) {
  struct tensor_list *l = (struct tensor_list *)v;
  tensor_list_resize(l, 0);
  vec_release(&l->items);
  free(l);
}

struct tensor_list *tensor_list_new(shoal_dtype dtype, const struct shape *element_shape, int64_t n) {
  struct tensor_list *l = mem_zalloc(1, sizeof *l);
  variant_init(&l->head, &tensor_list_type);
  l->dtype = dtype;
  l->element_shape = *element_shape;
  l->max = -1;
  tensor_list_resize(l, n);
  return l;
}

void tensor_list_resize(struct tensor_list *l, int64_t n) {
  while ((int64_t)l->items.n > n) {
    struct tensor *t = &vec_last(&l->items);
    if (tensor_valid(t)) tensor_release(t);
    l->items.n--;
  }
  vec_reserve(&l->items, (size_t)n);
  while ((int64_t)l->items.n < n) l->items.at[l->items.n++] = tensor_none();
}

struct tensor_list *tensor_list_copy(const struct tensor_list *l) {
  struct tensor_list *c = tensor_list_new(l->dtype, &l->element_shape, (int64_t)l->items.n);
  c->max = l->max;
  for (size_t i = 0; i < l->items.n; i++)
    if (tensor_valid(&l->items.at[i])) tensor_ref(&c->items.at[i], &l->items.at[i]);
  return c;
}

static struct variant *copy(const struct variant *v) { return &tensor_list_copy((const struct tensor_list *)v)->head; }

static struct tensor *tensors(struct variant *v, size_t *n) {
  struct tensor_list *l = (struct tensor_list *)v;
  *n = l->items.n;
  return l->items.at;
}

shoal_status tensor_on_host(const struct tensor *t) {
  const struct device *d = t->buffer->device;
  if (!d) return NULL;
  return INVALID("An element of a TensorList is in the memory of %s, and was not copied from there", d->name);
}

static shoal_status list_encode(const struct variant *v, struct text *metadata, struct tensor **tensors, int *n) {
  const struct tensor_list *l = (const struct tensor_list *)v;
  uint64_t unset = 0;
  for (size_t i = 0; i < l->items.n; i++) {
    unset += !tensor_valid(&l->items.at[i]);
    if (tensor_valid(&l->items.at[i])) TRY(tensor_on_host(&l->items.at[i]));
  }
  wire_put_varint(metadata, unset);
  *tensors = mem_zalloc(l->items.n + 1, sizeof **tensors);
  *n = 0;
  for (size_t i = 0; i < l->items.n; i++) {
    if (tensor_valid(&l->items.at[i])) tensor_ref(&(*tensors)[(*n)++], &l->items.at[i]);
    else wire_put_varint(metadata, i);
  }
  wire_put_varint(metadata, (uint64_t)l->dtype);
  wire_put_varint(metadata, (uint64_t)l->max);
  shape_proto_encode(&l->element_shape, metadata);
  return NULL;
}

static shoal_status list_decode(const void *metadata, size_t size, const struct tensor *tensors, int n_tensors,
                                struct variant **out) {
  struct wire w = wire_from(metadata, size);
  uint64_t unset, dtype, max;
  if (!wire_get_varint(&w, &unset) || unset > size) return INVALID("Malformed TensorList");
  uint64_t *indices = mem_zalloc((size_t)unset + 1, sizeof *indices), total = unset + (uint64_t)n_tensors;
  bool good = true;
  for (uint64_t i = 0; i < unset && good; i++)
    good = wire_get_varint(&w, &indices[i]) && indices[i] < total && (i == 0 || indices[i] > indices[i - 1]);
  good = good && wire_get_varint(&w, &dtype) && wire_get_varint(&w, &max) && dtype_valid((int)dtype);
  struct shape shape;
  shoal_status s = good ? shape_proto_decode(w.at, wire_left(&w), &shape) : INVALID("Malformed TensorList");
  for (int i = 0; i < n_tensors && !s; i++)
    if (tensors[i].dtype != dtype) s = INVALID("An element of a TensorList is not of the list's type");
  if (s) {
    free(indices);
    return s;
  }
  struct tensor_list *l = tensor_list_new((shoal_dtype)dtype, &shape, (int64_t)total);
  l->max = (int64_t)max < 0 || max > INT32_MAX ? -1 : (int64_t)max;
  uint64_t next = 0;
  for (uint64_t i = 0, t = 0; i < total; i++) {
    if (next < unset && indices[next] == i) next++;
    else tensor_ref(&l->items.at[i], &tensors[t++]);
  }
  free(indices);
  *out = &l->head;
  return NULL;
}

static struct variant *list_zeros_like(const struct variant *v) {
  const struct tensor_list *l = (const struct tensor_list *)v;
  struct tensor_list *z = tensor_list_new(l->dtype, &l->element_shape, (int64_t)l->items.n);
  for (size_t i = 0; i < l->items.n; i++) {
    const struct tensor *t = &l->items.at[i];
    if (!tensor_valid(t)) continue;
    shoal_status s = tensor_new_dims(&z->items.at[i], l->dtype, t->rank, t->dims);
    if (s) { /* an unset element is zero too */
      shoal_status_free(s);
      z->items.at[i] = tensor_none();
      continue;
    }
    tensor_zero(&z->items.at[i]);
    for (int64_t k = 0; l->dtype == SHOAL_VARIANT && k < t->n; k++) {
      struct variant *inner = T_DATA(t, struct variant *)[k];
      if (inner && inner->type->zeros_like)
        T_DATA(&z->items.at[i], struct variant *)[k] = inner->type->zeros_like(inner);
    }
  }
  return &z->head;
}

shoal_status tensors_add(const struct tensor *a, const struct tensor *b, struct tensor *out) {
  shoal_dtype dtype = (shoal_dtype)a->dtype;
  if (!tensor_same_shape(a, b)) {
    struct shape x = tensor_shape(a), y = tensor_shape(b);
    return INVALID("Trying to add two tensors with incompatible element shapes. One is %s and the other is %s",
                   shape_str(&x), shape_str(&y));
  }
  TRY(tensor_on_host(a));
  TRY(tensor_on_host(b));
  TRY(tensor_copy(out, a));
  shoal_status s = NULL;
  update_fn add = update_find(UPDATE_ADD, dtype);
  if (add) {
    add(dtype, out->data, b->data, b->n);
  } else if (dtype == SHOAL_VARIANT) {
    for (int64_t i = 0; i < b->n && !s; i++) {
      struct variant **to = &T_DATA(out, struct variant *)[i], *by = T_DATA(b, struct variant *)[i], *sum = NULL;
      if (!by) continue;
      if (!*to) sum = variant_ref(by);
      else if (by->type->add && by->type == (*to)->type) s = by->type->add(*to, by, &sum);
      else s = UNIMPLEMENTED("Variants of type %s cannot be added", by->type->name);
      if (s) break;
      variant_unref(*to);
      *to = sum;
    }
  } else {
    s = UNIMPLEMENTED("Lists of %s cannot be added", dtype_tf_name(dtype));
  }
  if (s) tensor_release(out);
  return s;
}

static shoal_status list_add(const struct variant *va, const struct variant *vb, struct variant **out) {
  const struct tensor_list *a = (const struct tensor_list *)va, *b = (const struct tensor_list *)vb;
  if (a->dtype != b->dtype)
    return INVALID("Trying to add two lists of tensors of different dtypes. One is %s and the other is %s",
                   dtype_tf_name(a->dtype), dtype_tf_name(b->dtype));
  if (!shape_compatible(&a->element_shape, &b->element_shape))
    return INVALID("Trying to add two lists of tensors with incompatible element shapes. One is %s and the other is %s",
                   shape_str(&a->element_shape), shape_str(&b->element_shape));
  if (a->items.n != b->items.n)
    return INVALID("Trying to add two lists of tensors with different lengths. One is %zu and the other is %zu",
                   a->items.n, b->items.n);
  struct shape shape;
  TRY(shape_merge(&a->element_shape, &b->element_shape, &shape));
  struct tensor_list *sum = tensor_list_new(a->dtype, &shape, (int64_t)a->items.n);
  shoal_status s = NULL;
  for (size_t i = 0; i < a->items.n && !s; i++) {
    const struct tensor *x = &a->items.at[i], *y = &b->items.at[i];
    if (!tensor_valid(x) && !tensor_valid(y)) continue;
    if (!tensor_valid(x) || !tensor_valid(y)) tensor_ref(&sum->items.at[i], tensor_valid(x) ? x : y);
    else s = tensors_add(x, y, &sum->items.at[i]);
    if (s) sum->items.at[i] = tensor_none();
  }
  if (s) variant_unref(&sum->head);
  else *out = &sum->head;
  return s;
}

const struct variant_type tensor_list_type = {.name = "tensorflow::TensorList",
                                              .free = list_free,
                                              .encode = list_encode,
                                              .decode = list_decode,
                                              .zeros_like = list_zeros_like,
                                              .add = list_add,
                                              .copy = copy,
                                              .tensors = tensors};

__attribute__((constructor)) static void register_type(void) { variant_type_register(&tensor_list_type); }
