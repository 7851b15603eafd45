/* A variant that holds a tensor. */
#include "tensor/tensor_variant.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/text.h"
#include "tensor/tensor_proto.h"

struct tensor_variant {
  struct variant head;
  struct tensor t;
};

static void tensor_variant_free(struct variant *v) {
  tensor_release(&((struct tensor_variant *)v)->t);
  free(v);
}

static shoal_status tensor_variant_encode(const struct variant *v, struct text *metadata, struct tensor **tensors,
                                          int *n) {
  *n = 1;
  *tensors = mem_zalloc(1, sizeof **tensors);
  tensor_ref(*tensors, &((const struct tensor_variant *)v)->t);
  return NULL;
}

static shoal_status tensor_variant_decode(const void *metadata, size_t size, const struct tensor *tensors, int n,
                                          struct variant **out);

static const struct variant_type tensor_variant_type = {.name = "tensorflow::Tensor",
                                                        .free = tensor_variant_free,
                                                        .encode = tensor_variant_encode,
                                                        .decode = tensor_variant_decode};

__attribute__((constructor)) static void register_type(void) { variant_type_register(&tensor_variant_type); }

struct variant *tensor_variant_new(const struct tensor *t) {
  struct tensor_variant *v = mem_zalloc(1, sizeof *v);
  variant_init(&v->head, &tensor_variant_type);
  tensor_ref(&v->t, t);
  return &v->head;
}

static shoal_status tensor_variant_decode(const void *metadata, size_t size, const struct tensor *tensors, int n,
                                          struct variant **out) {
  if (n != 1) return INVALID("A tensor variant holds one tensor, not %d", n);
  *out = tensor_variant_new(&tensors[0]);
  return NULL;
}

bool tensor_variant_get(const struct variant *v, struct tensor *out) {
  if (!v || v->type != &tensor_variant_type) return false;
  tensor_ref(out, &((const struct tensor_variant *)v)->t);
  return true;
}
